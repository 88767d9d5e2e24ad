"""The fast way of the codec: tensors sent from where they lie, headers that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation import codec, codec_fast, wire
from graphsilo.federation.codec import decode, encode
from graphsilo.federation.message import Message, Tensors, sends
from kit.messages import Anything, Everything, Weights, everything


def filled(shapes):
    like = {name: torch.empty(shape) for name, shape in shapes.items()}
    found = codec_fast.outgoing(like)
    for number, tensor in enumerate(found.values()):
        tensor.copy_(torch.arange(float(tensor.numel())).view(tensor.shape) + number)
    return found


LARGE = {"a": (3, 5), "b": (1 << 10, 1 << 10), "c": (7,)}


def test_outgoing_tensors_are_sent_from_where_they_lie():
    tensors = filled(LARGE)
    plain = encode(Weights(weights={name: tensor.clone() for name, tensor in tensors.items()}))
    sent = encode(Weights(weights=tensors))
    assert np.array_equal(sent.data, plain.data)
    assert sent.field_bytes == plain.field_bytes
    assert sent.data.ctypes.data % wire.ALIGN == 0
    assert np.shares_memory(sent.data, tensors["b"].numpy())
    assert torch.equal(decode(sent.data, Weights).weights["c"], torch.arange(7.0) + 2)


def test_outgoing_tensors_are_sent_so_once():
    tensors = filled(LARGE)
    first, second = (encode(Weights(weights=tensors)) for _ in range(2))
    assert np.array_equal(first.data, second.data)
    assert not np.shares_memory(first.data, second.data)


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: {name: tensors[name] for name in "acb"},
        lambda tensors: {name: tensors[name] for name in "ab"},
        lambda tensors: {**tensors, "d": torch.ones(2)},
        lambda tensors: {**tensors, "b": tensors["b"].t()},
        lambda tensors: {**tensors, "b": tensors["b"] * 2},
    ],
    ids=["order", "fewer", "more", "transposed", "replaced"],
)
def test_outgoing_tensors_are_copied_where_they_lie_differently(change):
    tensors = filled(LARGE)
    changed = change(tensors)
    plain = encode(Weights(weights={name: tensor.clone() for name, tensor in changed.items()}))
    sent = encode(Weights(weights=changed))
    assert np.array_equal(sent.data, plain.data)
    assert not any(np.shares_memory(sent.data, tensor.numpy()) for tensor in tensors.values())


@pytest.mark.parametrize("shapes", [{}, {"a": (0, 4)}, {"a": (2,), "b": (0, 4), "c": (3,)}], ids=str)
def test_small_and_empty_outgoing_tensors(shapes):
    tensors = filled(shapes)
    sent = encode(Weights(weights=tensors))
    assert np.array_equal(sent.data, encode(Weights(weights=dict(tensors))).data)
    assert {name: tuple(tensor.shape) for name, tensor in decode(sent.data, Weights).weights.items()} == shapes


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


def test_named_tensors_of_a_known_header_are_parts_of_one():
    sent = encode(Weights(weights={"a": torch.arange(6.0).view(2, 3), "b": torch.arange(3.0)})).data
    decode(sent, Weights)  # now the header is known
    weights = decode(sent.copy(), Weights).weights
    assert isinstance(weights, codec_fast.JoinedTensors)
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


def test_equal_contents_share_a_template_and_others_do_not() -> None:
    class Note(Message):
        weights: Tensors = sends("model")
        count: int | None = sends("counts")
        share: float = sends("counts")
        tags: list[str] = sends("control")

    def note(**changes: object) -> Note:
        given = {"weights": {"w": torch.arange(3.0)}, "count": 1, "share": 0.5, "tags": ["a"], **changes}
        return Note(**given)  # type: ignore[arg-type]

    first = encode(note()).data.tobytes()
    assert encode(note()).data.tobytes() == first
    assert encode(note(weights={"w": torch.arange(3.0) + 1})).data.tobytes() != first
    # Equal for Python, but not the same on the wire.
    assert encode(note(share=-0.0)).data.tobytes() != encode(note(share=0.0)).data.tobytes()
    assert encode(note(count=True)).data.tobytes() != first
    changing = ["a"]
    encode(note(tags=changing))
    changing.append("b")
    assert decode(encode(note(tags=changing)).data, Note).tags == ["a", "b"]
    transposed = torch.arange(6.0).reshape(2, 3).t()
    sent = decode(encode(note(weights={"w": transposed})).data, Note)
    assert torch.equal(sent.weights["w"], transposed)


def test_tables_in_another_order_are_others() -> None:
    """A known header in the other order would give the scores of one view to another."""

    class Answer(Message):
        kinds: dict[str, list[str]] = sends("control")
        counts: Tensor = sends("counts")

    for views in (["own", "aggregate"], ["aggregate", "own"]):
        answer = Answer(kinds={view: ["test"] for view in views}, counts=torch.ones(2))
        for _ in range(2):
            assert list(decode(encode(answer).data, Answer).kinds) == views


def test_only_small_headers_are_kept_and_not_many(monkeypatch):
    monkeypatch.setattr(codec, "TEMPLATES", {})
    monkeypatch.setattr(codec, "LAYOUTS", {})
    monkeypatch.setattr(codec, "MAX_KEPT", 3)
    kept = []
    for names in (1, 400, 2, 3, 4):  # 400 names of four letters, with type and size, are more than 4096 bytes
        sent = Weights(weights={f"w{index:03}": torch.full((2,), float(index)) for index in range(names)})
        for _ in range(2):
            assert float(decode(encode(sent).data, Weights).weights[f"w{names - 1:03}"][1]) == names - 1
        kept.append((len(codec.TEMPLATES), len(codec.LAYOUTS)))
    # A template is found by the plain values, the same in all of these; a layout by the whole header.
    assert kept == [(1, 1), (1, 1), (1, 2), (1, 3), (1, 1)]
    for number in range(4):
        encode(Weights(weights={}, samples=10.0 + number))
        kept.append(len(codec.TEMPLATES))
    assert kept[5:] == [2, 3, 1, 2]


def test_what_is_kept_of_a_message_is_not_the_message(monkeypatch):
    monkeypatch.setattr(codec, "TEMPLATES", {})
    table = {"a": [1]}
    shared = {"one": torch.ones(1, 2), "other": torch.ones(1, dtype=torch.int64), "named": {}, "number": 1}
    for value in (1, 2):
        table["a"][0] = value  # the same object, changed after it was sent
        assert decode(encode(Everything(**shared, table=table)).data, Everything).table == {"a": [value]}
    assert [template.contents.tensors for template in codec.TEMPLATES.values()] == [[]]
