"""What O-pFGL sends."""

from __future__ import annotations

from kit.messages import check_sent


def test_what_leaves_a_silo():
    check_sent(
        "opfgl",
        """
        statistics counts: counts float64 [classes] per_class=min_count
        statistics labelled: counts float64 [classes] per_class=min_count
        statistics contributors: counts float64 [classes] per_class=min_count
        statistics totals: statistic float64 [classes, width] per_class=min_count
        statistics within: statistic float64 [classes, width] per_class=min_count
        statistics squares: statistic float64 [classes, width] per_class=min_count
        noisy_statistics numbers: statistic int64
        noisy_statistics clients: counts
        noisy_statistics mu: control
        noisy_statistics honest: control
        personalise clients: counts
        condense clients: counts
        """,
    )
