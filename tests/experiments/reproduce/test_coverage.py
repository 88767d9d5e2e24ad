"""A row or a reason for every printed score."""

from __future__ import annotations

from collections import Counter

from graphsilo.experiments.reproduce import coverage
from graphsilo.experiments.reproduce.published import read_scores


def test_what_a_table_leaves_out_is_named_by_what_is_fewest() -> None:
    """FairFGL's III has two metrics of three data sets and twelve methods, FedPG's VI two methods, one reason each."""
    assert list(coverage.list_left_out("FairFGL", "III")) == [
        "Table III, not run: Min-F1, Hete-Min-F1 (no definition fits what is printed)."
    ]
    assert [text.partition(" (")[0] for text in coverage.list_left_out("FedPG", "VI")] == [
        "Table VI, not run: FedGen", "Table VI, not run: FGGP",
    ]  # fmt: skip
    whole = list(coverage.list_left_out("FedPG"))
    assert "Table V, not run: ogbn-papers100M (no such data set here)." in whole
    assert "Table I, not run: 16 scores (ranks over its other tables)." in whole


def test_there_is_a_row_of_everything_that_is_printed_or_a_reason() -> None:
    cells = {each.printed: each for each in coverage.cells()}
    assert set(cells) == set(read_scores())
    assert not [each.printed for each in cells.values() if bool(each.row) == bool(each.why)]
    count = Counter(each.why for each in cells.values())
    assert count["means of the other columns"] > 0
    [named] = [each for each in cells.values() if each.printed.table == "X" and each.printed.method == "FedPG"
               and each.printed.data == "Cora"]  # fmt: skip
    assert (named.row, named.label, named.path) == ("fedpg-10.Cora", "FedPG", "accuracy")
