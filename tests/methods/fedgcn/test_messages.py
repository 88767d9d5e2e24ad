"""What FedGCN sends."""

from __future__ import annotations

from kit.messages import check_sent


def test_what_leaves_a_silo():
    check_sent(
        "fedgcn",
        """
        train weights: model float32 weighted_by=num_samples
        train num_samples: counts
        border own: topology int64 [own]
        border degrees: topology int64 [own] relayed
        border beyond: topology int64 [beyond]
        sums ids: topology int64 [nodes]
        sums rows: statistic float32 [nodes, features] recoverable per_class=False
        install clients: counts
        """,
    )
