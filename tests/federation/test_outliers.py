"""What is far larger than most others' is noticed, whoever comes first; what honest silos differ in is not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.outliers import find_idle, outliers


class Answer(Message):
    """Of every form."""

    sums: Tensor = sends("statistic", dtype=torch.float64, default=None)
    weights: Tensors = sends("model", default=())
    norm: float = sends("gradient", default=0.0)
    rest: float = sends("statistic", compared=False, default=0.0)
    count: float = sends("counts", default=0.0)


class Sums(Message):
    """Floats over rows."""

    floats: Tensor = sends("statistic")
    rows: int = sends("counts")


def answer(size: float, field: str = "sums") -> Answer:
    value = {"sums": torch.tensor([0.0, -size], dtype=torch.float64), "weights": {"a": torch.tensor([size])}}
    return Answer(**{"sums": torch.zeros(0, dtype=torch.float64), "weights": {}, field: value.get(field, size)})


@pytest.mark.parametrize("field", ["sums", "weights", "norm"])
@pytest.mark.parametrize("liar", [0, 2])
def test_one_far_above_the_others_is_named(field: str, liar: int) -> None:
    sizes = {0: 1.0, 1: 2.0, 2: 3.0, liar: 1000.0}
    found = outliers({client: answer(size, field) for client, size in sizes.items()}, {}, 100.0)
    others = [size for client, size in sizes.items() if client != liar]
    middle = sum(others) / 2  # of two
    assert found == {liar: f"Answer.{field} holds 1e+03, and at half of the other silos {middle:.3g} at most"}


@pytest.mark.parametrize("field", ["rest", "count"])
def test_what_honest_silos_differ_in_is_not_compared(field: str) -> None:
    assert outliers({0: answer(1.0, field), 1: answer(1.0, field), 2: answer(1e9, field)}, {}, 100.0) == {}


@pytest.mark.parametrize(
    "sizes",
    [
        [1.0, 1e9],
        [0.0, 0.0, 1e9],
        [1.0, 1.0, 100.0],
        [1.0, 1.0, 0.0],
        [1e-9, 1e9, 1e9, 1e9],
        [1.0, 1.0, 0.0, 1e-30],
        [1.0, 0.0, 0.0, 1e-3, 1e-3],
        [1.0, 1e-40, 1e-40],
    ],
)
def test_nobody_is_named(sizes: list[float]) -> None:
    """Two answers; most of them zeros; just at the bound; one far below the others; one or
    two far below, beside some who have nothing to train on; numbers that were rounded away."""
    assert outliers({client: answer(size) for client, size in enumerate(sizes)}, {}, 100.0) == {}


def test_sums_over_more_items_may_be_larger() -> None:
    answers = {client: answer(size) for client, size in enumerate([1.0, 1.0, 40_000.0])}
    assert list(outliers(answers, {0: 10.0, 1: 10.0, 2: 1000.0}, 100.0)) == [2]
    assert outliers(answers, {0: 10.0, 1: 10.0, 2: 4000.0}, 100.0) == {}


@pytest.mark.parametrize(
    ("own", "sent", "found"),
    [
        ([1.0, 2.0, 0.0], None, {2: "Sums.floats: zeros alone"}),
        ([1.0, 2.0, 3.0], 3.0, {2: "Sums.floats: what it was sent, unchanged"}),
        ([1.0, 2.0, 1.0], None, {c: f"Sums.floats: the very numbers of client {2 - c}" for c in (0, 2)}),
        ([3.0, 3.0, 3.0], 3.0, {}),  # nobody trains
        ([0.0, 0.0, 0.0], None, {}),
        ([1.0, 0.0], None, {}),  # of two nobody can say
    ],
)  # fmt: skip
def test_answers_that_hold_nothing_of_their_own(own: list[float], sent: float | None, found: dict[int, str]) -> None:
    answers = {client: Sums(floats=torch.full((2,), value), rows=5) for client, value in enumerate(own)}
    requests = {} if sent is None else dict.fromkeys(answers, Sums(floats=torch.full((2,), sent), rows=1))
    assert find_idle(answers, requests) == found


def test_who_counts_nothing_may_send_nothing() -> None:
    answers = {client: Sums(floats=torch.full((2,), float(client)), rows=client) for client in range(3)}
    assert find_idle(answers, {}) == {}
