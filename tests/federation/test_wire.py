"""Headers of messages that are too large, and bytes that belong to no field."""

from __future__ import annotations

import struct

import pytest
import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation import codec_fast, wire
from graphsilo.federation.codec import decode, encode
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.methods.fedavg import TrainReply
from kit.damage import EMPTY_DICT, EMPTY_LIST, EMPTY_TEXT, MEGABYTE, ZERO, array, memory, message


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


@pytest.mark.parametrize("what", list(LARGEST))
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
        codec_fast.LAYOUTS.clear()
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
