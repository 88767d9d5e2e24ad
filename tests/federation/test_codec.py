"""Messages to bytes and back; everything that is not exactly a message is refused."""

from __future__ import annotations

import math
import struct

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation import codec, codec_fast, message, wire
from graphsilo.federation.codec import decode, decode_tree, encode, encode_tree
from graphsilo.federation.message import Message, Tensors, sends

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


class Everything(Message):
    """One field of every form."""

    one: Tensor = sends("embedding", shape=("nodes", 2), allow_nan=True)
    other: Tensor = sends("counts", dtype=torch.int64, shape=("nodes",))
    named: Tensors = sends("model")
    listed: list[Tensor] = sends("gradient", default=())
    maybe: Tensors | None = sends("model", default=None)
    number: int = sends("counts")
    share: float = sends("score", default=0.5)
    yes: bool = sends("control", default=True)
    text: str = sends("control", default="a")
    table: dict[str, list[int]] = sends("control", default=None)


class Weights(Message):
    """The usual one."""

    weights: Tensors = sends("model")
    samples: float = sends("counts", default=1.0)


class Floats(Message):
    """Of any type."""

    weights: Tensors = sends("model", dtype=(torch.float32, torch.float64, torch.float16, torch.bfloat16))


class Anything(Message):
    """A tensor of any shape, NaN allowed."""

    value: Tensor = sends("statistic", dtype=tuple(message.DTYPES.values()), allow_nan=True)


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


def everything(**more):
    fields = {
        "one": torch.arange(6.0).view(3, 2),
        "other": torch.tensor([1, 2, 3]),
        "named": {"a": torch.ones(2), "b": torch.zeros(0, 4)},
        "number": 7,
        "table": {"x": [1, 2], "y": []},
    }
    return Everything(**{**fields, **more})


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
    with pytest.raises(MessageError, match=r"test_codec\.Weights was expected, 'test_codec\.Anything' came"):
        decode(encode(Anything(value=torch.ones(1))).data, Weights)


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


SMALL = encode(everything(listed=[torch.ones(1)], maybe={"w": torch.ones(2)})).data.tobytes()
HEADER = 8 + struct.unpack("<I", SMALL[4:8])[0]


@QUICK
@given(st.lists(st.tuples(st.integers(0, HEADER - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_flipped_header_bytes_never_break_the_decoder(changes):
    data = bytearray(SMALL)
    for place, value in changes:
        data[place] = value
    try:
        message = decode(bytes(data), Everything)
    except MessageError:
        return
    assert isinstance(message, Everything)
    encode(message)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@QUICK
@given(st.dictionaries(st.sampled_from(["one", "other", "named", "number", "listed", "share", "zz"]), PLAIN), PLAIN)
def test_any_header_is_refused_or_valid(body, length):
    for header in ([Everything.wire_name(), body, length], [Everything.wire_name(), body, 0], length):
        try:
            message = decode(raw(header, kind=Everything), Everything)
        except MessageError:
            continue
        assert isinstance(message, Everything)


@QUICK
@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data):
    with pytest.raises(MessageError):
        decode(b"GSM1" + data, Weights)
    with pytest.raises(MessageError):
        decode_tree(b"GSM1" + data)


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


class Bounded(Message):
    """One tensor and one number for each of two kinds of bound."""

    wide: Tensor = sends("logits", dtype=(torch.float32, torch.float64, torch.int64))
    count: float = sends("counts", default=0.0)
    control: float = sends("control", default=0.0)
    listed: list[float] = sends("control", default=())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("sign", [1, -1])
def test_an_entry_may_be_as_large_as_its_kinds_bound_and_no_larger(dtype, sign):
    # 1e18 for the output of a model, 2^53 for any whole number; a float32 beside 1e18 is 9.9e17 or 1.01e18
    fits, larger = (2**53, 2**53 + 2) if dtype is torch.int64 else (9.9e17, 1.01e18)
    value = torch.tensor([0, sign * fits, 1], dtype=dtype)
    assert torch.equal(decode(encode(Bounded(wide=value)).data, Bounded, largest_value=1.0).wide, value)
    with pytest.raises(MessageError, match=r"Bounded\.wide holds .*; at most (1e\+18|9\.01e\+15) is taken"):
        decode(encode(Bounded(wide=torch.tensor([0, sign * larger, 1], dtype=dtype))).data, Bounded, largest_value=1.0)


@pytest.mark.parametrize("field", ["count", "control"])
def test_a_number_may_be_as_large_as_its_kinds_bound_and_no_larger(field):
    for size in (2.0**53, -(2.0**53)):
        assert (
            getattr(
                decode(encode(Bounded(wide=torch.zeros(1), **{field: size})).data, Bounded, largest_value=1.0), field
            )
            == size
        )
        with pytest.raises(MessageError, match=rf"Bounded\.{field} holds 9\.01e\+15; at most 9\.01e\+15 is taken"):
            decode(
                encode(Bounded(wide=torch.zeros(1), **{field: size * (1 + 2**-52)})).data, Bounded, largest_value=1.0
            )
    with pytest.raises(MessageError, match=r"Bounded\.listed holds 9\.01e\+15"):
        decode(encode(Bounded(wide=torch.zeros(1), listed=[0.0, -(2.0**53) - 2])).data, Bounded, largest_value=1.0)


def test_a_whole_number_may_be_as_large_as_its_kinds_bound_and_no_larger():
    class Whole(Message):
        count: int = sends("counts")
        names: list[str] = sends("control", default=())

    for size in (2**53, -(2**53)):
        assert decode(encode(Whole(count=size, names=["a"])).data, Whole, largest_value=1.0).count == size
        with pytest.raises(MessageError, match=r"Whole\.count holds 1\.8e\+16; at most 9\.01e\+15 is taken"):
            decode(encode(Whole(count=2 * size)).data, Whole, largest_value=1.0)
