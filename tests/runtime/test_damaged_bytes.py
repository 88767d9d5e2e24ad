"""Whatever bytes come, they are read or refused in the declared way, and cost no more memory than they are worth."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.codec import decode, decode_tree, encode, encode_tree
from graphsilo.federation.message import DTYPES, Message, Tensors, sends
from graphsilo.runtime.local import frames
from graphsilo.runtime.protocol import ProtocolError, pack, unpack

# -- anything -----------------------------------------------------------------------------------------------------


class All(Message):
    """A field of every form."""

    one: Tensor = sends("model", shape=("n", "d"))
    named: Tensors = sends("model", dtype=tuple(DTYPES.values()))
    listed: list[Tensor] = sends("statistic", dtype=(torch.int64, torch.bool))
    number: int = sends("counts")
    share: float = sends("counts")
    text: str = sends("control")
    yes: bool = sends("control")
    table: dict[str, list[float]] = sends("statistic")
    maybe: Tensor | None = sends("model", default=None)
    loose: Tensor = sends("model", allow_nan=True)


STRANGE: list[Any] = [
    -1, 0, 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 1.5, float("nan"), float("inf"), True,
    None, "x", "\x1b[2J\n", b"y", [], {}, [[]], {"\x00t": 1}, ["f4", [1], 0], ["f4", [2**40], 0], ["bo", [3], 64],
]  # fmt: skip


class Mutations:
    """Damages bytes in every way that somebody may think of, the same way for the same seed."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def value(self, tree: Any) -> Any:
        """The tree with something else in one place."""
        draw = self.random
        if draw.random() < 0.15 or not isinstance(tree, list | dict) or not tree:
            return draw.choice(STRANGE)
        if isinstance(tree, list):
            place = draw.randrange(len(tree))
            return [*tree[:place], self.value(tree[place]), *tree[place + 1 :]]
        key = draw.choice(list(tree))
        what = draw.random()
        if what < 0.1:
            return {name: item for name, item in tree.items() if name != key}
        if what < 0.2:
            return {**tree, "other": draw.choice(STRANGE)}
        return {**tree, key: self.value(tree[key])}

    def bytes(self, data: bytes, prefix: int) -> bytes:
        """The bytes with a few flipped, cut, inserted, or another length in the prefix."""
        draw, changed = self.random, bytearray(data)
        what = draw.randrange(6)
        if what == 0:
            for _ in range(draw.randrange(1, 6)):
                changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        elif what == 1:
            del changed[draw.randrange(len(changed)) :]
        elif what == 2:
            changed += draw.randbytes(draw.randrange(1, 200))
        elif what == 3:
            changed[4:8] = struct.pack("<I", draw.choice([0, 1, 2**31, 2**32 - 1, draw.randrange(2**12)]))
        elif what == 4:
            place = draw.randrange(len(changed))
            changed[place:place] = draw.randbytes(draw.randrange(1, 64))
        else:
            for _ in range(draw.randrange(1, 4)):
                changed[min(len(changed) - 1, prefix + draw.randrange(60))] = draw.randrange(256)
        return bytes(changed)

    def depth(self) -> bytes:
        """Something within something within something."""
        return self.random.choice([b"\x91", b"\x81\xa1a"]) * self.random.choice([10, 1000, 1024, 50_000]) + b"\xc0"


def headed(magic: bytes, header: bytes, payload: bytes, align: int = 1) -> bytes:
    whole = magic + struct.pack("<I", len(header)) + header
    return whole.ljust(-(-len(whole) // align) * align, b"\0") + payload


def damaged(data: bytes, mutations: Mutations, align: int = 1) -> bytes:
    """A packet or message with damage in its bytes or in its header."""
    if mutations.random.random() < 0.5:
        return mutations.bytes(data, 8)
    (length,) = struct.unpack("<I", data[4:8])
    start = -(-(8 + length) // align) * align
    tree = msgspec.msgpack.decode(data[8 : 8 + length])
    for _ in range(mutations.random.randrange(1, 3)):
        tree = mutations.value(tree)
    packed = mutations.depth() if mutations.random.random() < 0.02 else msgspec.msgpack.encode(tree)
    return headed(data[:4], packed, data[start:], align)


def messages() -> list[bytes]:
    draw = torch.Generator().manual_seed(3)
    return [
        encode(
            All(
                one=torch.randn(rows, 4, generator=draw), number=rows, share=0.5, text="hé", yes=True,
                named={"a": torch.randn(5, generator=draw), "b": torch.ones(2, 3, dtype=torch.float16)},
                listed=[torch.arange(4), torch.ones(2, dtype=torch.bool)], table={"x": [1.0, 2.5]},
                maybe=None if rows == 1 else torch.zeros(0, 4), loose=torch.tensor([float("nan")]),
            )
        ).data.tobytes()
        for rows in (1, 3, 17)
    ]  # fmt: skip


def read_message(data: bytes) -> None:
    found = decode(data, All, largest_value=1e6)
    tensors = [
        found.one,
        found.loose,
        *found.named.values(),
        *found.listed,
        *([] if found.maybe is None else [found.maybe]),
    ]
    assert all(float(tensor.double().abs().max()) <= 1e6 for tensor in [found.one] if tensor.numel())
    for tensor in tensors:
        tensor.double().sum()


def read_frame(data: bytes) -> None:
    mine, theirs = socket.socketpair()
    line = frames.Channel(theirs, None, frames.Ring.make(1 << 16))
    try:
        mine.sendall(data)
        mine.close()
        header, payloads = line.receive()
        assert isinstance(header, dict)
        assert all(payload.nbytes <= len(data) + (1 << 16) for payload in payloads)
    finally:
        line.close()


def frame(mutations: Mutations) -> bytes:
    draw = mutations.random
    places = [[draw.choice([0, 1, 5, 100, 4096, 1 << 16, (1 << 16) + 1, 2**40, -1]),
               draw.choice([-1, -1, -2, 0, 64, 4096, 1 << 16, 1 << 40, 2**63 - 1])]]  # fmt: skip
    header: Any = {"x": 1, "places": [[5, -1]] if draw.random() < 0.5 else places}
    packet = damaged(bytes(pack({"id": "", **header}, [b"hello"])), mutations)
    whole = b"GSP1" + struct.pack("<Q", draw.choice([len(packet), len(packet), 0, 2**63])) + packet
    return mutations.bytes(whole, 12) if draw.random() < 0.5 else whole


STATE = {"a": torch.ones(3, 3), "l": [1, 2.0, {"k": torch.ones(2, dtype=torch.bool)}], (1, 2): "x", 5: None}


CALL = {"id": "q", "do": "call", "to": [[0, 0]], "handler": "train", "round": 3}


ANSWER = {"client": 0, "cpu": 0.1, "name": "x", "fields": [["a", "b", 3]], "payload": 0}


KINDS: dict[str, tuple[Callable[[Mutations], bytes], Callable[[bytes], Any], tuple[type[Exception], ...]]] = {
    "message": (lambda m: damaged(m.random.choice(messages()), m, 64), read_message, (MessageError,)),
    "state": (lambda m: damaged(encode_tree(STATE).tobytes(), m, 64), decode_tree, (MessageError,)),
    "request": (lambda m: damaged(bytes(pack(CALL, [b"z" * 100, b""])), m), unpack, (ProtocolError,)),
    "answer": (
        lambda m: damaged(bytes(pack({"id": "a", "ok": True, "answers": [ANSWER]}, [b"hello"])), m),
        unpack,
        (ProtocolError,),
    ),
    "frame": (frame, read_frame, (EOFError, OSError)),
}


def shake(kind: str, count: int, seed: int) -> None:
    make, read, declared = KINDS[kind]
    mutations = Mutations(seed)
    refused = 0
    for _ in range(count):
        data = make(mutations)
        try:
            read(data)
        except declared:
            refused += 1
    assert count / 3 < refused


@pytest.mark.parametrize("kind", list(KINDS))
def test_damaged_bytes_are_refused_as_declared(kind: str) -> None:
    shake(kind, 1500, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS))
def test_many_damaged_bytes_are_refused_as_declared(kind: str) -> None:
    shake(kind, 8_000, seed=2)
