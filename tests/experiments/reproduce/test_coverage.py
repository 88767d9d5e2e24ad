"""A row or a reason for every printed score."""

from __future__ import annotations

from collections import Counter

from graphsilo.experiments.reproduce import coverage
from graphsilo.experiments.reproduce.published import read_scores


def test_there_is_a_row_of_everything_that_is_printed_or_a_reason() -> None:
    cells = {each.printed: each for each in coverage.cells()}
    assert set(cells) == set(read_scores())
    assert not [each.printed for each in cells.values() if bool(each.row) == bool(each.why)]
    count = Counter(each.why for each in cells.values())
    assert count["means of the other columns"] > 0
    [named] = [each for each in cells.values() if each.printed.table == "X" and each.printed.method == "FedPG"
               and each.printed.data == "Cora"]  # fmt: skip
    assert (named.row, named.label, named.path) == ("fedpg-10.Cora", "FedPG", "accuracy")
