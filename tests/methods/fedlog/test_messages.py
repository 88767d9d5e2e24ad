"""What FedLoG sends."""

from __future__ import annotations

from kit.messages import check_sent


def test_what_leaves_a_silo():
    check_sent(
        "fedlog",
        """
        train weights: model float32 weighted_by=num_samples
        train num_samples: counts
        check_range outside: counts
        pretrain clients: counts
        fit_generator generators: generator float32 per_class=True local_generalization=True neighbour_generator=True
        fit_generator class_weights: counts float32 [classes] per_class=True local_generalization=True \
neighbour_generator=True
        take_generators clients: counts
        train synthetic: synthetic float32 [nodes, features] per_class=True local_generalization=True
        train class_weights: counts float32 [classes] per_class=True local_generalization=True
        """,
    )
