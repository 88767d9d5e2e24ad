"""What FedTrees sends."""

from __future__ import annotations

from kit.messages import check_sent


def test_what_leaves_a_silo():
    check_sent(
        "fedtrees",
        """
        count classes: counts int64 [classes] per_class=min_count
        moments sums: statistic int64 [features, directions] per_class=False
        project clients: counts
        cells counts: counts int32 [columns, cells] per_class=False
        start clients: counts
        histograms gradients: statistic int32 [wanted, entries]
        histograms hessians: statistic int32 [wanted, entries]
        histograms counts: counts int32 [wanted, entries] per_class=False
        adopt counts: counts int64 [models, classes, classes]
        adopt ranked: score float64
        """,
    )
