"""Which tensors are added as one, and what a share may be as large as; sums themselves are in test_interface.py."""

from __future__ import annotations

import math

import pytest
import torch

from graphsilo.federation.accumulator import Accumulator, _joined, _size
from graphsilo.federation.message import Message, sends


def test_tensors_that_lie_behind_each_other_are_one():
    memory = torch.arange(64, dtype=torch.float32)
    # From entry 4: six entries of "a"; ten that lie between; three of "b". 6 + 10 + 3 = 19 in all.
    joined = _joined({"a": memory[4:10].view(2, 3), "b": memory[20:23]})
    assert joined is not None
    assert joined.layout == (("a", (2, 3), (3, 1), 0), ("b", (3,), (1,), 16))
    assert joined.flat.tolist() == list(range(4, 23))
    assert joined.flat.data_ptr() == memory[4:].data_ptr()


@pytest.mark.parametrize(
    "others",
    [
        lambda memory: {"b": memory[22:25]},  # 16 entries between: 64 bytes
        lambda memory: {"b": memory[0:2]},  # before the first
        lambda memory: {"b": memory[5:8]},  # over the first
        lambda memory: {"b": torch.zeros(3)},  # elsewhere
        lambda memory: {"b": memory[6:18].view(3, 4).t()},  # by columns
        lambda memory: {"b": torch.zeros(3, dtype=torch.float64)},
    ],
)
def test_tensors_that_do_not_are_added_by_themselves(others):
    memory = torch.zeros(64)
    assert _joined({"a": memory[:6], "c": memory[6:12]}) is not None
    assert _joined({"a": memory[:6], **others(memory)}) is None
    assert _joined({}) is None


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
