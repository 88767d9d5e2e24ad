"""Sums, replies, failures, addressees."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphsilo.errors import FederationError, MessageError
from graphsilo.federation import accumulator
from graphsilo.federation.codec import decode, encode
from graphsilo.federation.interface import Accumulator, Failure, Handler, Replies, Total, handler
from graphsilo.federation.message import Message, Tensors, sends


class Update(Message):
    weights: Tensors = sends("model", dtype=(torch.float32, torch.float64), weighted_by="samples")
    samples: float = sends("counts")


class Mixed(Message):
    sums: Tensor = sends("statistic")
    lists: list[Tensor] = sends("statistic", default=())
    hits: Tensor = sends("counts", dtype=(torch.int64, torch.int32, torch.uint8, torch.int8, torch.bool))
    number: int = sends("counts")
    share: float = sends("score")


class Weighted(Message):
    hits: Tensor = sends("counts", dtype=(torch.int64, torch.int8), weighted_by="samples")
    number: int = sends("counts", weighted_by="samples")
    samples: float = sends("counts")


def update(values, samples, **more):
    return Update(weights={"w": torch.tensor(values, dtype=torch.float32), **more}, samples=samples)


def total(messages, kind=Update):
    accumulator = Accumulator(kind)
    for client, message in enumerate(messages):
        accumulator.add(client, message)
    return accumulator.message()


def test_weighted_sum_by_hand():
    # 2·(1, 2) + 3·(10, 20) = (32, 64); 2 + 3 = 5
    result = total([update([1.0, 2.0], 2.0), update([10.0, 20.0], 3.0)])
    assert result.weights["w"].tolist() == [32.0, 64.0]
    assert result.weights["w"].dtype is torch.float64
    assert result.samples == 5.0


def test_plain_sum_by_hand():
    def one(value, number, share):
        return Mixed(
            sums=torch.tensor([value, 2 * value]), lists=[torch.tensor([value]), torch.ones(2, 2)],
            hits=torch.tensor([number, 2**53 + 1]), number=number, share=share,
        )  # fmt: skip

    result = total([one(0.5, 3, 0.25), one(1.5, 4, 0.5)], Mixed)
    assert result.sums.tolist() == [2.0, 4.0]
    assert [tensor.tolist() for tensor in result.lists] == [[2.0], [[2.0, 2.0], [2.0, 2.0]]]
    assert result.hits.dtype is torch.int64
    assert result.hits.tolist() == [7, 2**54 + 2]  # floats could not say that
    assert (result.number, result.share) == (7, 0.75)
    assert isinstance(result.number, int)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32], ids=str)
def test_whole_numbers_do_not_wrap(dtype):
    ones = Mixed(
        sums=torch.ones(1), hits=torch.full((2,), 1 if dtype is torch.bool else 100, dtype=dtype), number=1, share=0.0
    )
    assert total([ones] * 5, Mixed).hits.tolist() == [5 if dtype is torch.bool else 500] * 2


def test_whole_weights_of_whole_numbers():
    result = total(
        [
            Weighted(hits=torch.tensor([1, 2]), number=3, samples=2.0),
            Weighted(hits=torch.tensor([10, 20]), number=5, samples=3.0),
        ],
        Weighted,
    )
    assert result.hits.tolist() == [32, 64]
    assert result.number == 21


def test_fractional_weights_of_whole_numbers_are_refused_and_harm_nothing():
    accumulator = Accumulator(Weighted)
    accumulator.add(0, Weighted(hits=torch.tensor([1]), number=1, samples=2.0))
    with pytest.raises(MessageError, match="send them as floats"):
        accumulator.add(1, Weighted(hits=torch.tensor([1]), number=1, samples=0.5))
    assert accumulator.message().hits.tolist() == [2]
    assert accumulator.clients == [0]


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
WEIGHTS = st.floats(1e-3, 1e6, allow_nan=False) | st.integers(1, 2**20).map(float)


@settings(max_examples=200, deadline=None)
@given(st.lists(FLOATS, min_size=1, max_size=8), st.lists(WEIGHTS, min_size=1, max_size=6))
def test_equal_models_stay_the_same_whatever_the_weights(values, weights):
    value = torch.tensor(values, dtype=torch.float32)
    result = total([update(values, weight) for weight in weights])
    mean = torch.div(result.weights["w"], result.samples).to(torch.float32)
    assert torch.equal(mean, value)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3), WEIGHTS), min_size=2, max_size=6
    ),
    st.randoms(use_true_random=False),
)
def test_the_order_of_clients_changes_only_the_last_bits(clients, shuffle):
    messages = [update(*client) for client in clients]
    first = total(messages)
    shuffle.shuffle(messages)
    second = total(messages)
    scale = sum(weight * max(map(abs, values)) for values, weight in clients) + 1e-300
    assert float((first.weights["w"] - second.weights["w"]).abs().max()) <= 1e-14 * scale
    assert math.isclose(first.samples, second.samples, rel_tol=1e-14)


def test_whole_weights_sum_exactly_in_any_order():
    values = [[0.1, -3.7], [1e-3, 2.2], [5.5, 0.3]]
    messages = [update(value, weight) for value, weight in zip(values, (3.0, 1024.0, 77.0), strict=True)]
    assert torch.equal(total(messages).weights["w"], total(messages[::-1]).weights["w"])


def test_weight_zero_counts_nothing():
    result = total([update([1e30, 2.0], 0.0), update([1.0, 2.0], 3.0), update([5.0, 5.0], 0.0)])
    assert result.weights["w"].tolist() == [3.0, 6.0]
    assert result.samples == 3.0


@pytest.mark.parametrize("bad", [-1.0, math.inf, math.nan])
def test_weights_below_zero_are_refused(bad):
    with pytest.raises(MessageError, match="is a weight and must be at least 0"):
        total([update([1.0], bad)])


def test_large_tensors_are_summed_block_by_block_to_the_same_numbers(monkeypatch):
    parts = [torch.randn(10, 100, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    messages = [
        Update(weights={"w": part, "t": part.t()}, samples=share)
        for part, share in zip(parts, (0.3, 7.0, 1.0), strict=True)
    ]
    whole = total(messages)
    monkeypatch.setattr(accumulator, "BLOCK", 64)
    blocks = total(messages)
    assert all(torch.equal(whole.weights[name], blocks.weights[name]) for name in ("w", "t"))


def test_nobody():
    assert Accumulator(Update).message() is None
    with pytest.raises(FederationError, match="nobody was asked"):
        Total(None, ()).require()


@pytest.mark.parametrize(
    "bad",
    [
        update([1.0, 2.0, 3.0], 1.0),
        Update(weights={"v": torch.ones(2)}, samples=1.0),
        Update(weights={}, samples=1.0),
        update([1.0, 2.0], 1.0, more=torch.ones(1)),
        Update(weights={"w": torch.ones(2, 1)}, samples=1.0),
        Update(weights={"w": torch.ones(2, dtype=torch.int64)}, samples=1.0),
    ],
    ids=["shape", "name", "missing", "more", "dimension", "type"],
)
def test_a_mismatch_leaves_the_sum_as_it_was(bad):
    for place in range(3):  # who comes first says nothing about the others
        accumulator = Accumulator(Update)
        good = iter([(0, update([1.0, 2.0], 2.0)), (8, update([1.0, 2.0], 1.0))])
        for number in range(3):
            accumulator.add(*((7, bad) if number == place else next(good)))
        assert accumulator.message().weights["w"].tolist() == [3.0, 6.0]
        assert accumulator.message().samples == 3.0
        assert accumulator.clients == [0, 8]
        assert list(accumulator.find_outvoted()) == [7]
        assert accumulator.find_outvoted()[7].startswith("client 7: Update.weights has ")
        assert "2 other clients' has " in accumulator.find_outvoted()[7]


def test_where_nobody_is_in_the_majority_nobody_is_summed():
    accumulator = Accumulator(Update)
    accumulator.add(0, update([1.0], 2.0))
    accumulator.add(1, update([1.0, 2.0], 2.0))
    assert accumulator.message() is None
    assert accumulator.clients == []
    assert list(accumulator.find_outvoted()) == [0, 1]
    assert "the shape w (1,), client 1's has the shape w (2,)" in accumulator.find_outvoted()[0]
    accumulator.add(2, update([5.0], 1.0))
    assert accumulator.message().weights["w"].tolist() == [7.0]
    assert list(accumulator.find_outvoted()) == [1]


def test_a_sum_that_would_overflow_fails_whose_share_it_is():
    def wide(value, samples):
        return Update(weights={"w": torch.tensor([value, 0.0], dtype=torch.float64)}, samples=samples)

    accumulator = Accumulator(Update)
    accumulator.add(0, wide(1.0, 3.0))
    for bad in (wide(-1.7e308, 100.0), wide(math.nan, 1.0), wide(math.inf, 1.0)):
        with pytest.raises(MessageError, match=r"client 1: with its Update\.weights the sum would be (inf|nan)"):
            accumulator.add(1, bad)
    accumulator.add(2, wide(2.0, 1.0))
    assert accumulator.message().weights["w"].tolist() == [5.0, 0.0]
    assert accumulator.clients == [0, 2]


def test_whole_numbers_do_not_wrap_around_when_they_are_weighted():
    accumulator = Accumulator(Weighted)
    accumulator.add(0, Weighted(hits=torch.tensor([3]), number=1, samples=2.0))
    with pytest.raises(MessageError, match=r"client 1: with its Weighted\.hits the sum would be 1\.84e\+19"):
        accumulator.add(1, Weighted(hits=torch.tensor([-(2**62)]), number=1, samples=4.0))
    with pytest.raises(MessageError, match=r"client 2: with its Weighted\.hits"):
        accumulator.add(2, Weighted(hits=torch.tensor([1], dtype=torch.int8), number=1, samples=2.0**40))
    with pytest.raises(MessageError, match=r"client 3: with its Weighted\.number"):
        accumulator.add(3, Weighted(hits=torch.tensor([1]), number=2**62, samples=2.0))
    assert accumulator.message().hits.tolist() == [6]


def test_the_order_of_names_does_not_matter():
    one = Update(weights={"a": torch.ones(1), "b": torch.zeros(2)}, samples=1.0)
    two = Update(weights={"b": torch.zeros(2), "a": torch.ones(1)}, samples=1.0)
    assert total([one, two]).weights["a"].tolist() == [2.0]


def test_the_first_message_is_not_changed():
    first = update([1.0, 2.0], 1.0)
    double = Update(weights={"w": torch.ones(2, dtype=torch.float64)}, samples=1.0)
    total([first, update([1.0, 1.0], 4.0)])
    total([double, double])
    assert first.weights["w"].tolist() == [1.0, 2.0]
    assert double.weights["w"].tolist() == [1.0, 1.0]


def test_what_cannot_be_summed():
    class Text(Message):
        text: str = sends("control")

    class Flag(Message):
        yes: bool = sends("control")

    class Lost(Message):
        value: Tensor = sends("model", weighted_by="samplez")

    class ByTensor(Message):
        value: Tensor = sends("model", weighted_by="size")
        size: Tensor = sends("counts")

    for kind in (Text, Flag, Lost, ByTensor):
        with pytest.raises(MessageError, match="cannot be summed"):
            Accumulator(kind)


def test_a_missing_optional_field():
    class Maybe(Message):
        value: Tensor | None = sends("model", default=None)

    with pytest.raises(MessageError, match=r"client 0: Maybe\.value is missing from a sum"):
        total([Maybe()], Maybe)


def test_a_missing_weight():
    class Maybe(Message):
        value: float = sends("score", weighted_by="size")
        size: float | None = sends("counts", default=None)

    with pytest.raises(MessageError, match=r"client 0: Maybe\.size is a weight and must be at least 0; None came"):
        total([Maybe(value=1.0)], Maybe)


def test_replies_require():
    failure = Failure(3, "train", "ValueError", "no data", "Traceback: here")
    replies = Replies({1: update([1.0], 1.0), 2: update([2.0], 1.0)}, {3: failure})
    assert replies.require(2) is replies
    assert replies.clients == (1, 2)
    assert [client for client, _ in replies] == [1, 2]
    assert len(replies) == 2
    assert replies[2].weights["w"].tolist() == [2.0]
    with pytest.raises(
        FederationError, match=r"3 clients had to answer, 2 did\. First failure: client 3 failed in 'train'"
    ) as caught:
        replies.require()
    assert caught.value.__notes__ == ["\nTraceback: here"]
    with pytest.raises(FederationError, match="5 clients had to answer"):
        replies.require(5)


def test_total_require():
    failure = Failure(1, "train", "ValueError", "no data")
    one = Total(update([1.0], 1.0), (0,), {1: failure})
    assert one.require(1) is one.message
    with pytest.raises(FederationError, match="2 clients had to answer, 1 did"):
        one.require()
    with pytest.raises(FederationError, match="1 clients had to answer, 0 did"):
        Total(None, (), {1: failure}).require(1)


class Holder:
    @handler
    def step(self, request: Update) -> Mixed:
        """Does something."""
        raise NotImplementedError

    @handler
    def untyped(self, request) -> Mixed:
        raise NotImplementedError

    @handler
    def plain(self, request: Update) -> int:
        raise NotImplementedError


def test_handlers_know_their_types():
    assert isinstance(Holder.step, Handler)
    assert Holder.step.types() == (Update, Mixed)
    assert Holder.step.name == "step"
    assert Holder.step.__doc__ == "Does something."
    assert callable(Holder().step)
    for bad in (Holder.untyped, Holder.plain):
        with pytest.raises(MessageError, match="must be written as"):
            bad.types()


def test_models_from_messages_sum_like_any_others(monkeypatch):
    # Decoded tensors lie in one piece of memory and are added as one; waiting changes no number.
    draws = torch.Generator().manual_seed(0)
    messages = [
        Update(weights={"w": torch.randn(5, 7, generator=draws), "b": torch.randn(7, generator=draws)}, samples=share)
        for share in (0.3, 2.0, 1.0, 0.7)
    ]
    wanted = total(messages)
    decoded = [decode(encode(message).data, Update) for message in messages + messages][len(messages) :]
    mixed = [*decoded[:2], *messages[2:]]
    for limit in (1 << 23, 1):
        monkeypatch.setattr(accumulator, "MAX_WAITING", limit)
        for some in (decoded, mixed, messages):
            found = total(some)
            assert all(torch.equal(found.weights[name], wanted.weights[name]) for name in ("w", "b"))
            assert found.samples == wanted.samples
