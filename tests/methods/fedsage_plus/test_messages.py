"""What FedSage+ sends."""

from __future__ import annotations

from kit.messages import check_sent


def test_what_leaves_a_silo():
    check_sent(
        "fedsage_plus",
        """
        train weights: model float32 weighted_by=num_samples
        train num_samples: counts
        pretrain nodes: counts
        pretrain missing: counts
        pretrain predicted: counts
        offer weights: generator float32 relayed neighgen=own exchange=weights
        offer embeddings: embedding float32 [rows, width] relayed neighgen=own exchange=weights
        offer counts: counts int64 [rows] relayed neighgen=own exchange=weights
        compare gradient: gradient float32 recoverable like=weights neighgen=own exchange=weights where few rows were \
compared, or such as the coordinator made up
        offer_outputs features: synthetic float32 [generated, features] relayed per_class=False neighgen=own \
exchange=outputs
        offer_outputs counts: counts int64 [rows] relayed neighgen=own exchange=outputs
        compare_outputs gradient: gradient float32 [generated, features] recoverable like=features neighgen=own \
exchange=outputs
        shared_gradient gradient: gradient float32 weighted_by=clients like=weights neighgen=shared
        shared_gradient clients: counts
        mend nodes: counts
        mend generated: counts
        """,
    )
