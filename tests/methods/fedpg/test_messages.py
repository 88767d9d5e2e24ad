"""What FedPG sends."""

from __future__ import annotations

from kit.messages import check_sent


def test_what_leaves_a_silo():
    check_sent(
        "fedpg",
        """
        hello width: control
        hello depth: control
        train prototypes: prototype float32 [classes, levels, width] per_class=True
        train counts: counts int32 [classes] per_class=True
        """,
    )
