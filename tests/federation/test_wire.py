"""Headers of messages that are too large, and bytes that belong to no field."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation import codec, wire
from graphsilo.federation.codec import decode, encode
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.methods.fedavg import TrainReply
from kit.damage import EMPTY_DICT, EMPTY_LIST, EMPTY_TEXT, MEGABYTE, ZERO, array, memory, message
from kit.messages import Anything, Everything, Weights, everything


class Numbers(Message):
    """Numbers."""

    value: list[float] = sends("statistic")


class Nested(Message):
    """Lists of lists."""

    value: list[list[int]] = sends("statistic")


class Texts(Message):
    """Texts."""

    value: list[str] = sends("control")


class Listed(Message):
    """A list of tensors."""

    value: list[Tensor] = sends("model")


class Named(Message):
    """Named tensors."""

    value: Tensors = sends("model")


@pytest.mark.parametrize("junk", [EMPTY_DICT, EMPTY_LIST, EMPTY_TEXT, ZERO], ids=["dicts", "lists", "texts", "numbers"])
def test_large_header_of_a_message_is_not_read(junk: bytes) -> None:
    data = bytearray(message(Numbers, array(17 * MEGABYTE, junk)))
    with memory() as most, pytest.raises(MessageError, match=rf"at most {wire.MAX_HEADER} are read"):
        decode(data, Numbers)
    assert most() < 2 * len(data)  # a copy, which torch needs


LARGEST: dict[str, tuple[type[Message], bytes, str | None]] = {
    "dicts in place of numbers": (Numbers, EMPTY_DICT, "Expected `float`, got `object`"),
    "lists in place of tensors": (Listed, EMPTY_LIST, "of length 3, got 0"),
    "lists in place of names": (Named, EMPTY_LIST, "Expected `object`, got `array`"),
    "numbers": (Numbers, ZERO, None),
    "lists": (Nested, EMPTY_LIST, None),
    "texts": (Texts, EMPTY_TEXT, None),
    "tensors of nothing": (Listed, b"\x93\xa2f4\x91\x00\x00", None),
}
"""A message, what its field holds as often as it can, and the error where that is not what the field is."""


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(what, marks=[] if error or what == "numbers" else [pytest.mark.slow])
        for what, (_, _, error) in LARGEST.items()
    ],
)
def test_header_that_is_just_short_enough_takes_little_memory(what: str) -> None:
    kind, item, error = LARGEST[what]
    data = message(kind, array((wire.MAX_HEADER - 100) // len(item), item))
    with memory() as most:
        if error is None:
            assert len(decode(data, kind).value) == (wire.MAX_HEADER - 100) // len(item)
        else:
            with pytest.raises(MessageError, match=error):
                decode(data, kind)
    assert most() < (20 if error is None else 2) * MEGABYTE


def test_message_with_too_long_a_header_is_not_sent() -> None:
    with pytest.raises(
        MessageError, match=r"Texts holds so many tensors or plain values that its header has \d+ bytes"
    ):
        encode(Texts(value=["name"] * 60_000))


# -- padding ------------------------------------------------------------------------------------------------------


def test_bytes_of_no_field_are_refused_wherever_they_are() -> None:
    reply = TrainReply(weights={"a": torch.ones(1), "b": torch.ones(3, 5), "c": torch.ones(16)}, num_samples=2.0)
    whole = encode(reply).data.tobytes()
    header = 8 + struct.unpack("<I", whole[4:8])[0]
    start = -(-header // 64) * 64
    gaps = [*range(header, start), *range(start + 4, start + 64), *range(start + 64 + 60, start + 128)]
    assert len(whole) == start + 192
    for known in (False, True):  # before and after a message with this header was read
        codec.LAYOUTS.clear()
        if known:
            decode(whole, TrainReply)
        for place in range(header, len(whole)):
            changed = bytearray(whole)
            changed[place] |= 1
            if place in gaps:
                with pytest.raises(MessageError, match="bytes between the tensors are not zero"):
                    decode(changed, TrainReply)
            else:
                decode(changed, TrainReply)


def test_honest_messages_have_no_bytes_of_no_field() -> None:
    """What lay in the memory that a message is written to does not go out with it."""
    for kind, size in ((3, 5), (1 << 20, 7)):
        tensors = {"a": torch.full((kind,), 7.0), "b": torch.full((size,), 7.0)}
        for _ in range(3):
            decode(encode(TrainReply(weights=tensors, num_samples=1.0)).data, TrainReply)
    decode(encode(TrainReply(weights={}, num_samples=1.0)).data, TrainReply)


# -- headers that are known ---------------------------------------------------------------------------------------


def test_a_known_header_is_checked_like_a_new_one():
    """Headers that were read before are not read again; what follows them is."""
    good = encode(everything())
    decode(good.data, Everything)
    bad = everything(named={"a": torch.tensor([1.0, math.nan]), "b": torch.zeros(0, 4)})
    decode(encode(everything()).data, Everything).table["x"].append(99)
    assert decode(good.data, Everything).table == {"x": [1, 2], "y": []}
    for _ in range(2):
        with pytest.raises(MessageError, match=r"Everything\.named contains NaN"):
            decode(encode(bad).data, Everything)
    data = good.data.tobytes()
    for wrong in (data[:-1], data[:-64], data + bytes(64)):
        with pytest.raises(MessageError, match="cut or extended"):
            decode(wrong, Everything)
    with pytest.raises(MessageError, match="at most 100 bytes"):
        decode(good.data, Everything, limit=100)
    with pytest.raises(MessageError, match="was expected"):
        decode(good.data, Weights)


def test_named_tensors_are_parts_of_one() -> None:
    weights = decode(
        encode(Weights(weights={"a": torch.arange(6.0).view(2, 3), "b": torch.arange(3.0)})).data, Weights
    ).weights
    assert isinstance(weights, wire.JoinedTensors)
    assert (list(weights), len(weights)) == (["a", "b"], 2)
    # Six entries of "a", ten zeros up to 64 bytes, three of "b".
    assert weights.flat.tolist() == [*range(6), *[0.0] * 10, 0, 1, 2]
    assert weights["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    weights["b"].add_(1)
    assert weights["a"]._version == 1  # whoever writes into one is found out by looking at any
    with pytest.raises(TypeError):
        weights["a"] = torch.zeros(2, 3)


def test_a_known_header_does_not_alias_another_message():
    first, second = encode(Anything(value=torch.ones(3))), encode(Anything(value=torch.zeros(3)))
    assert np.array_equal(first.data[:-64], second.data[:-64])
    decoded = [decode(one.data, Anything).value for one in (first, second)]
    assert [value.tolist() for value in decoded] == [[1.0] * 3, [0.0] * 3]


def test_nan_in_a_message_with_other_types():
    class Both(Message):
        counts: Tensor = sends("counts", dtype=torch.int64)
        weights: Tensor = sends("model")
        loose: Tensor = sends("score", allow_nan=True)

    # The bits of -1 read as a float are NaN, and NaN is allowed in the last field: neither hides or raises anything.
    fine = Both(counts=torch.tensor([-1]), weights=torch.ones(3), loose=torch.tensor([math.nan]))
    wrong = Both(counts=torch.tensor([-1]), weights=torch.tensor([math.inf, 0.0, 0.0]), loose=torch.ones(1))
    for _ in range(2):
        assert decode(encode(fine).data, Both).counts.tolist() == [-1]
        with pytest.raises(MessageError, match=r"Both\.weights contains NaN"):
            decode(encode(wrong).data, Both)


def test_tables_in_another_order_are_others() -> None:
    """A known header in the other order would give the scores of one view to another."""

    class Answer(Message):
        kinds: dict[str, list[str]] = sends("control")
        counts: Tensor = sends("counts")

    for views in (["own", "aggregate"], ["aggregate", "own"]):
        answer = Answer(kinds={view: ["test"] for view in views}, counts=torch.ones(2))
        for _ in range(2):
            assert list(decode(encode(answer).data, Answer).kinds) == views


def test_what_is_equal_for_python_may_differ_on_the_wire() -> None:
    class Note(Message):
        count: int = sends("counts")
        share: float = sends("counts")

    sent = [Note(count=1, share=0.0), Note(count=True, share=0.0), Note(count=1, share=-0.0)]
    assert len({encode(note).data.tobytes() for note in sent}) == 3


def test_only_small_headers_are_kept_and_not_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "LAYOUTS", {})
    monkeypatch.setattr(codec, "MAX_KEPT", 3)
    kept = []
    for names in (1, 400, 2, 3, 4):  # 400 names of four letters, with type and size, are more than 4096 bytes
        sent = Weights(weights={f"w{index:03}": torch.full((2,), float(index)) for index in range(names)})
        for _ in range(2):
            assert float(decode(encode(sent).data, Weights).weights[f"w{names - 1:03}"][1]) == names - 1
        kept.append(len(codec.LAYOUTS))
    assert kept == [1, 1, 2, 3, 1]
