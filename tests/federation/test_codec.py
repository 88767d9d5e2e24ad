"""Messages to bytes and back; everything that is not exactly a message is refused."""

from __future__ import annotations

import math
import struct

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation import message
from graphsilo.federation.client import EvaluateSums
from graphsilo.federation.codec import decode, decode_tree, encode, encode_tree
from graphsilo.federation.message import Message, Tensors, sends
from kit.messages import Anything, Everything, Weights, everything


class Floats(Message):
    """Of any type."""

    weights: Tensors = sends("model", dtype=(torch.float32, torch.float64, torch.float16, torch.bfloat16))


def raw(header, payload=b"", *, kind=Weights):
    """Bytes with any header."""
    packed = msgspec.msgpack.encode([kind.wire_name(), header, len(payload)] if isinstance(header, dict) else header)
    start = math.ceil((8 + len(packed)) / 64) * 64
    return (b"GSM1" + struct.pack("<I", len(packed)) + packed).ljust(start, b"\0") + payload


def reference(ref, payload=b"\0" * 64):
    return raw({"value": ref}, payload, kind=Anything)


DTYPES = list(message.DTYPES.values())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 5), (2, 3), (1, 1, 1, 1, 9)], ids=str)
def test_every_dtype_and_shape_comes_back(dtype, shape):
    value = (torch.arange(math.prod(shape)) % 2).view(shape).to(dtype)
    back = decode(encode(Anything(value=value)).data, Anything).value
    assert back.dtype is dtype
    assert back.shape == value.shape
    assert torch.equal(back, value)


def test_special_values_keep_their_bits():
    value = torch.tensor([-0.0, math.inf, -math.inf, math.nan, 1e-45, 3.4e38])
    back = decode(encode(Anything(value=value)).data, Anything).value
    assert torch.equal(back.view(torch.int32), value.view(torch.int32))


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(12.0).view(3, 4).t(),
        torch.arange(12)[::3],
        torch.ones(1, 3).expand(5, 3),
        torch.arange(6, dtype=torch.bfloat16).view(2, 3).t(),
        torch.ones(2, requires_grad=True),
    ],
    ids=["transposed", "strided", "expanded", "bfloat16 transposed", "with gradient"],
)
def test_layout_does_not_matter(value):
    back = decode(encode(Anything(value=value)).data, Anything).value
    assert torch.equal(back, value.detach())
    assert back.is_contiguous()


def test_all_forms_come_back():
    back = decode(encode(everything(listed=[torch.ones(1), torch.zeros(2, 2)])).data, Everything)
    assert torch.equal(back.one, torch.arange(6.0).view(3, 2))
    assert list(back.named) == ["a", "b"]
    assert back.named["b"].shape == (0, 4)
    assert [tuple(tensor.shape) for tensor in back.listed] == [(1,), (2, 2)]
    assert back.maybe is None
    assert (back.number, back.share, back.yes, back.text) == (7, 0.5, True, "a")
    assert back.table == {"x": [1, 2], "y": []}


def test_optional_field_present_and_absent():
    present = decode(encode(everything(maybe={"w": torch.ones(1)})).data, Everything)
    assert torch.equal(present.maybe["w"], torch.ones(1))
    with pytest.raises(MessageError, match=r"Everything\.number must not be None"):
        encode(everything(number=None))
    with pytest.raises(MessageError, match=r"Weights\.weights must not be None"):
        decode(raw({"weights": None}), Weights)


def test_left_out_fields_take_their_default():
    assert decode(raw({"weights": {}}), Weights).samples == 1.0
    with pytest.raises(MessageError, match=r"Weights\.weights is missing"):
        decode(raw({"samples": 1.0}), Weights)


def test_numpy_scalars_travel_as_numbers():
    back = decode(encode(everything(number=np.int64(3), share=np.float32(0.25))).data, Everything)
    assert back.number == 3
    assert back.share == 0.25


def test_a_class_inside_a_function_works():
    class Inner(Message):
        weights: Tensors = sends("model")
        rows: Tensor | None = sends("embedding", default=None)

    back = decode(encode(Inner(weights={"w": torch.ones(2)})).data, Inner)
    assert torch.equal(back.weights["w"], torch.ones(2))
    assert back.rows is None


def test_decoded_tensors_are_views_of_the_bytes():
    data = encode(Anything(value=torch.arange(4.0))).data
    value = decode(data, Anything).value
    data[-64:-60] = np.frombuffer(struct.pack("<f", 9.0), dtype=np.uint8)
    assert value.tolist() == [9.0, 1.0, 2.0, 3.0]
    assert value.data_ptr() % 64 == 0


def test_bytes_are_not_written_through():
    data = encode(Anything(value=torch.arange(4.0))).data.tobytes()
    decode(data, Anything).value.fill_(5.0)
    assert decode(data, Anything).value.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_sent_tensors_are_not_shared():
    value = torch.ones(3)
    encoded = encode(Anything(value=value))
    value.zero_()
    assert decode(encoded.data, Anything).value.tolist() == [1.0, 1.0, 1.0]


def test_bytes_per_field_by_hand():
    # one: 3*2*4 = 24 -> 64; other: 3*8 = 24 -> 64; named: a 8 -> 64, b 0 -> 0; nothing else has a payload.
    encoded = encode(everything())
    sizes = {name: size for name, _, size in encoded.field_bytes}
    kinds = {name: kind for name, kind, _ in encoded.field_bytes}
    assert sizes == {
        "one": 64, "other": 64, "named": 64, "listed": 0, "maybe": 0, "number": 0, "share": 0, "yes": 0, "text": 0,
        "table": 0,
    }  # fmt: skip
    assert (kinds["one"], kinds["named"], kinds["listed"]) == ("embedding", "model", "gradient")
    (length,) = struct.unpack("<I", encoded.data[4:8].tobytes())
    assert encoded.num_bytes == math.ceil((8 + length) / 64) * 64 + 192


def test_encoding_is_canonical():
    again = encode(decode(encode(everything()).data, Everything))
    assert np.array_equal(again.data, encode(everything()).data)


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"one": 3}, "Everything.one must hold dense tensors"),
        ({"one": torch.ones(3, 2, dtype=torch.complex64)}, "complex64"),
        ({"one": torch.eye(2).to_sparse()}, "sparse"),
        ({"named": torch.ones(2)}, "Everything.named must hold tensors named by text"),
        ({"named": {1: torch.ones(2)}}, "Everything.named must hold tensors named by text"),
        ({"named": {"a": 3}}, "Everything.named must hold dense tensors"),
        ({"listed": {"a": torch.ones(1)}}, "Everything.listed must hold a list of tensors"),
        ({"number": torch.ones(1)}, "Tensor came"),
        ({"number": 2**70}, "holds something that no message can carry"),
    ],
    ids=str,
)
def test_what_cannot_be_sent(fields, text):
    with pytest.raises(MessageError, match=text):
        encode(everything(**fields))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("number", "7"), ("number", 7.5), ("number", True), ("share", "x"), ("yes", 1), ("text", 3),
        ("table", {"x": ["1"]}), ("table", [1]), ("number", [7]),
    ],
)  # fmt: skip
def test_plain_values_of_another_type(field, value):
    with pytest.raises(MessageError, match=rf"Everything\.{field}"):
        decode(encode(everything(**{field: value})).data, Everything)


@pytest.mark.parametrize(
    ("one", "other"),
    [((3, 3), (3,)), ((3,), (3,)), ((3, 2), (4,)), ((2, 2), (3,)), ((3, 2, 1), (3,)), ((3, 2), ())],
    ids=str,
)
def test_shapes_must_agree(one, other):
    message = everything(one=torch.ones(one), other=torch.ones(other, dtype=torch.int64))
    with pytest.raises(MessageError, match=r"must have shape"):
        decode(encode(message).data, Everything)


def test_a_shape_error_says_what_was_agreed():
    with pytest.raises(
        MessageError, match=r"Everything\.other must have shape \('nodes',\) \{'nodes': 3\}; \(4,\) came"
    ):
        decode(encode(everything(other=torch.ones(4, dtype=torch.int64))).data, Everything)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_nan_and_infinity(bad, dtype):
    message = Floats(weights={"w": torch.tensor([1.0, bad, 2.0], dtype=dtype)})
    for largest in (None, 10.0):
        with pytest.raises(MessageError, match=r"Floats\.weights contains NaN or infinity"):
            decode(encode(message).data, Floats, largest_value=largest)
    assert decode(encode(Anything(value=torch.tensor([bad]))).data, Anything).value.shape == (1,)


def test_opposite_infinities_do_not_cancel():
    with pytest.raises(MessageError, match="NaN or infinity"):
        decode(encode(Weights(weights={"w": torch.tensor([math.inf, -math.inf])})).data, Weights)


@pytest.mark.parametrize(("dtype", "big"), [(torch.float32, 3e38), (torch.float16, 6e4), (torch.bfloat16, 3e38)])
def test_finite_values_whose_sum_overflows_pass(dtype, big):
    value = torch.full((8,), big, dtype=dtype)
    assert torch.equal(decode(encode(Floats(weights={"w": value})).data, Floats).weights["w"], value)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_plain_nan(bad):
    with pytest.raises(MessageError, match=r"Weights\.samples contains NaN"):
        decode(encode(Weights(weights={}, samples=bad)).data, Weights)


def test_oversize():
    encoded = encode(Weights(weights={"w": torch.ones(1000)}))
    assert decode(encoded.data, Weights, limit=encoded.num_bytes).samples == 1.0
    with pytest.raises(MessageError, match=rf"at most {encoded.num_bytes - 1} bytes are accepted"):
        decode(encoded.data, Weights, limit=encoded.num_bytes - 1)
    with pytest.raises(MessageError, match="at most 10 bytes"):
        decode(encoded.data.tobytes(), Weights, limit=10)


def test_cut_anywhere():
    data = encode(Weights(weights={"w": torch.ones(3), "b": torch.ones(1)})).data.tobytes()
    for length in range(len(data)):
        with pytest.raises(MessageError):
            decode(data[:length], Weights)


@pytest.mark.parametrize("more", [1, 63, 64, 1000])
def test_extended(more):
    data = encode(Weights(weights={"w": torch.ones(3)})).data.tobytes()
    with pytest.raises(MessageError, match="cut or extended"):
        decode(data + b"\0" * more, Weights)


def test_another_message():
    with pytest.raises(MessageError, match=r"messages\.Weights was expected, 'messages\.Anything' came"):
        decode(encode(Anything(value=torch.ones(1))).data, Weights)


def test_words_of_a_message_steer_no_terminal():
    """Fields and tensors that another party named, whoever quotes them."""
    with pytest.raises(
        MessageError, match=r"Weights has no field ' \[2J ok: nothing left'; known: samples, weights\."
    ) as caught:
        decode(raw({"weights": {}, "\x1b[2J\nok: nothing left": 1}), Weights)
    assert str(caught.value).isprintable()
    sums = {"\x1b]0;owned\x07": torch.tensor([[2.0], [1.0]], dtype=torch.float64)}
    with pytest.raises(MessageError, match="are of no scores") as caught:
        EvaluateSums(counts={}, ranked=sums, sizes={}).check()
    assert str(caught.value).isprintable()


def test_unknown_fields():
    with pytest.raises(MessageError, match=r"Weights has no field 'weigths'; did you mean 'weights'\?"):
        decode(raw({"weights": {}, "weigths": {}}), Weights)
    with pytest.raises(MessageError, match=r"has no field|the header cannot be read"):
        decode(raw({"weights": {}, 3: 1, "labels": [1]}), Weights)


@pytest.mark.parametrize(
    "ref",
    [
        ["f4", [2**40, 2**40], 0], ["f4", [2**63], 0], ["f4", [-1], 0], ["f4", [-1, -16], 0], ["f4", [0, -1], 0],
        ["f4", [0, 2**62], 0], ["f4", [0, 2**40, 2**40], 0], ["f4", [17], 0], ["f4", [2], 64], ["f4", [2], -64],
        ["f4", [2], 4], ["f4", [0], 10**9], ["f4", [2.0], 0], ["f4", [2], 0.0], ["f4", [True], 0], ["f4", ["2"], 0],
        ["f4", {}, 0], ["f4", 2, 0], ["f4", None, 0], ["f4", [2], None], ["f4", [1] * 17, 0], ["zz", [2], 0],
        [["f4"], [2], 0], ["f4", [2]], ["f4", [2], 0, 0], "abc", 3, True, {}, [],
    ],
    ids=lambda ref: str(ref)[:30],
)  # fmt: skip
def test_malformed_tensor_references(ref):
    with pytest.raises(MessageError, match=r"outside the message or is malformed|Anything\.value is malformed"):
        decode(reference(ref), Anything)


def test_tensors_may_not_overlap():
    data = raw({"weights": {"a": ["f4", [2], 0], "b": ["f4", [2], 0]}}, b"\0" * 64)
    with pytest.raises(MessageError, match="malformed"):
        decode(data, Weights)


def test_nothing_travels_beside_the_fields():
    with pytest.raises(MessageError, match="64 bytes of the payload belong to no field"):
        decode(raw({"weights": {"a": ["f4", [2], 0]}}, b"secret".ljust(128, b"!")), Weights)


def test_bytes_that_are_no_truth_values():
    with pytest.raises(MessageError, match="truth values"):
        decode(reference(["bo", [2], 0], b"\x01\x02".ljust(64, b"\0")), Anything)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"GSM1", b"GSM1\0\0\0\0", b"GSM1\xff\xff\xff\xff", b"XXXX" + bytes(60), b"GSM1\x01\0\0\0\xc1",
        b"GSM1" + struct.pack("<I", 100_000) + b"\x91" * 100_000,
        raw([1, 2]), raw(["test_codec.Weights", {}]), raw(["test_codec.Weights", {}, -64]),
        raw(["test_codec.Weights", {}, False]), raw(["test_codec.Weights", [], 0]), raw([None, {}, 0]), raw(3),
    ],
    ids=lambda data: repr(data[:12]),
)  # fmt: skip
def test_bytes_that_are_no_message(data):
    with pytest.raises(MessageError):
        decode(data, Weights)


# -- states ----------------------------------------------------------------------------------------------------------


def test_a_state_comes_back():
    tree = {
        "weights": {"a": torch.arange(3.0), "b": torch.tensor(2, dtype=torch.int32), "none": torch.zeros(0, 3)},
        "list": [1, 2.5, None, True, "x", b"y", [], {}],
        3: {"numbers": torch.tensor([True, False])},
        "half": torch.ones(2, dtype=torch.bfloat16),
        "\x00t": "a name that looks like a tensor",
    }
    back = decode_tree(encode_tree(tree))
    assert list(back) == list(tree)
    assert torch.equal(back["weights"]["a"], tree["weights"]["a"])
    assert back["weights"]["b"].dtype is torch.int32
    assert back["weights"]["none"].shape == (0, 3)
    assert back["list"] == tree["list"]
    assert torch.equal(back[3]["numbers"], tree[3]["numbers"])
    assert torch.equal(back["half"], tree["half"])
    assert back["\x00t"] == tree["\x00t"]
    assert np.array_equal(encode_tree(back), encode_tree(tree))


def test_tuples_in_a_state_become_lists_but_stay_keys():
    assert decode_tree(encode_tree({"a": (1, 2), (1, 2): 3})) == {"a": [1, 2], (1, 2): 3}


def test_state_tensors_are_copies():
    data = encode_tree({"a": torch.zeros(2)})
    state = decode_tree(data)
    data[-64:] = 255
    assert state["a"].tolist() == [0.0, 0.0]


def test_floats_in_a_state_are_exact():
    values = [0.1, 1e-300, -0.0, 1 / 3, float("inf")]
    back = decode_tree(encode_tree(values))
    assert [value.hex() for value in back] == [value.hex() for value in values]


@pytest.mark.parametrize(
    "bad", [np.ones(2), {"x": {1, 2}}, [object()], {"x": 2**70}, np.float32(1)], ids=lambda bad: type(bad).__name__
)
def test_what_a_state_cannot_hold(bad):
    with pytest.raises(MessageError):
        encode_tree(bad)


def test_cut_states():
    data = encode_tree({"a": torch.ones(3), "b": [1, "x"]}).tobytes()
    for length in range(len(data)):
        with pytest.raises(MessageError):
            decode_tree(data[:length])


@pytest.mark.parametrize(
    "tree",
    [
        {"\0t": 3}, {"x": 3}, {"\0d": 3}, {"\0d": [1]}, {"\0t": ["f4", [0, 2**62], 0]}, {"\0d": [[{}, 1]]},
        {"\0t": ["f4", [0] * 17, 0]}, {"\0t": ["f4", {}, 0]}, {"\0t": ["f4", [0.0], 0]},
    ],
    ids=str,
)  # fmt: skip
def test_malformed_states(tree):
    with pytest.raises(MessageError):
        decode_tree(raw(["state", tree, 0]))


def test_other_bytes_are_no_state():
    with pytest.raises(MessageError, match="not a complete graphsilo state"):
        decode_tree(encode(Weights(weights={})).data)
    with pytest.raises(MessageError):
        decode_tree(raw(["state", 1, "x"]))


def test_nothing_but_empty_tensors():
    for _ in range(2):  # the second time its header is known
        back = decode(encode(Weights(weights={"w": torch.zeros(0, 3)})).data, Weights)
        assert back.weights["w"].shape == (0, 3)
