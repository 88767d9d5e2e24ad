"""What a share may be as large as, and sums by rows; sums themselves are in test_interface.py."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.accumulator import Accumulator, RowAccumulator, _size
from graphsilo.federation.interface import RowTotal
from graphsilo.federation.message import Message, sends


def test_how_large_an_entry_of_a_share_can_be():
    assert _size(-3, 2.0) == 6.0
    assert _size(torch.tensor([-5.0, 2.0], dtype=torch.float64), 3.0) == 15.0
    assert _size([torch.tensor([1], dtype=torch.int64), torch.tensor([-2, 7])], 0.5) == 3.5
    assert _size(torch.tensor([math.nan, 1.0], dtype=torch.float64), 1.0) == math.inf
    assert _size(torch.zeros(0, dtype=torch.float64), 1.0) == 0.0
    assert _size(torch.tensor([1], dtype=torch.uint8), 2.0) == 2.0**33  # more than any narrow whole number
    assert _size(torch.tensor([1e30]), 2.0) == 0.0  # far from what a float64 sum can hold


class Number(Message):
    hits: int = sends("counts", weighted_by="share")
    share: float = sends("counts")


def test_fractions_of_whole_numbers_are_not_cut():
    total = Accumulator(Number)
    total.add(0, Number(hits=3, share=0.5))
    total.add(1, Number(hits=2, share=2.0))
    assert total.message().hits == 5.5  # 3 · 0.5 + 2 · 2


class Rows(Message):
    """What ``sum_rows`` adds up."""

    ids: Tensor = sends("topology", dtype=torch.int64)
    rows: Tensor = sends("statistic")


def rows_of(*pairs):
    ids = [number for number, _ in pairs]
    return Rows(
        ids=torch.tensor(ids, dtype=torch.int64), rows=torch.tensor([row for _, row in pairs]).view(len(ids), 2)
    )


def test_rows_are_added_by_their_ids():
    total = RowAccumulator(2)
    total.add(0, rows_of((5, [1.0, 2.0]), (9, [3.0, 4.0])))
    total.add(0, rows_of())
    total.add(0, rows_of((2, [10.0, 0.0]), (5, [0.5, 0.5]), (7, [0.0, 1.0])))
    total.add(0, rows_of((7, [1.0, 1.0])))
    ids, rows = total.sums()
    assert ids.tolist() == [2, 5, 7, 9]
    assert rows.tolist() == [[10.0, 0.0], [1.5, 2.5], [1.0, 2.0], [3.0, 4.0]]
    assert rows.dtype is torch.float64
    found = RowTotal(ids, rows, (0, 1, 2, 3))
    assert found.of(torch.tensor([9, 3, 2, 11])).tolist() == [[3.0, 4.0], [0.0, 0.0], [10.0, 0.0], [0.0, 0.0]]
    assert RowTotal(*RowAccumulator(2).sums(), ()).of(torch.tensor([1])).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (rows_of((5, [1.0, 1.0]), (5, [1.0, 1.0])), "ascending"),
        (rows_of((5, [1.0, 1.0]), (4, [1.0, 1.0])), "ascending"),
        (Rows(ids=torch.arange(2), rows=torch.zeros(3, 2)), "ascending"),
        (Rows(ids=torch.arange(2), rows=torch.zeros(2, 3)), "must have 2 columns; 3 came"),
    ],
    ids=["twice", "another order", "more rows", "wider"],
)
def test_rows_that_cannot_be_added_change_nothing(message, text):
    total = RowAccumulator(2)
    total.add(0, rows_of((5, [1.0, 2.0])))
    with pytest.raises(MessageError, match=text):
        total.add(0, message)
    assert total.sums()[1].tolist() == [[1.0, 2.0]]
