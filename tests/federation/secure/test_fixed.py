"""Numbers as integers modulo 2^64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphsilo.errors import MessageError
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.secure.fixed import BLOCK, Encoding, Layout, decode, largest, weight_bits
from kit.secure import Statistics, Update, updates


def words_of(message: Message, *, bits: int | None = None, parties: int = 3) -> np.ndarray:
    bits = weight_bits(message) if bits is None else bits
    encoding = Encoding(Layout.of(message), message, bits=bits, parties=parties)
    blocks = [block.copy() for block in encoding.blocks()]
    return np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.uint64)


def statistics(**fields) -> Statistics:
    zero = {"hits": torch.zeros(1, dtype=torch.int64), "sums": torch.zeros(1), "number": 0, "share": 0.0}
    return Statistics(**{**zero, "wide": torch.zeros(1, dtype=torch.float64), **fields})


def test_weighted_words_by_hand():
    # 3 clients, weights of up to 2 bits: F = 50 - 2 - 2 = 46. 3 · 0.5 · 2^46 and 3 · (-1) · 2^46; 3 itself has 2 words
    # with F = 56: 3 · 2^56 = 192 · 2^50, so digits 0 and 192.
    found = words_of(Update(weights={"w": torch.tensor([0.5, -1.0])}, num_samples=3.0)).view(np.int64)
    assert found.tolist() == [3 * 2**45, -3 * 2**46, 0, 192]


def test_digits_by_hand():
    # 2^-56 is 1; -(2^-6 + 2^-56) is -(2^50 + 1): digits -1 and -1; 2^-80 with three words is 1.
    message = statistics(
        sums=torch.tensor([2.0**-56, -(2.0**-6) - 2.0**-56], dtype=torch.float64),
        wide=torch.tensor([2.0**-80], dtype=torch.float64), hits=torch.tensor([7, -7]), number=-5,
    )  # fmt: skip
    found = words_of(message).view(np.int64).tolist()
    assert found[:2] == [7, -7]
    assert found[2:6] == [1, -1, 0, -1]
    assert found[6:9] == [1, 0, 0]
    assert found[9] == -5


@settings(deadline=None, max_examples=60)
@given(data=st.data(), parties=st.integers(1, 12))
def test_sums_are_those_of_integers(data, parties):
    """Whole numbers exactly, floats to the last digit that is kept, in every order."""
    wide = st.floats(-1e15, 1e15, allow_nan=False)
    whole = st.integers(-(2**40), 2**40)
    messages = [
        statistics(
            hits=torch.tensor(data.draw(st.lists(whole, min_size=3, max_size=3))),
            sums=torch.tensor(data.draw(st.lists(wide, min_size=2, max_size=2)), dtype=torch.float64),
            wide=torch.tensor(data.draw(st.lists(wide, min_size=1, max_size=1)), dtype=torch.float64),
            listed=[torch.tensor([data.draw(st.floats(-1, 1, width=32))])],
            number=data.draw(whole), share=data.draw(st.floats(0, 1)),
        )
        for _ in range(parties)
    ]  # fmt: skip
    total = np.zeros(len(words_of(messages[0], parties=parties)), dtype=np.uint64)
    for message in data.draw(st.permutations(messages)):
        total += words_of(message, parties=parties)
    found = Statistics(**decode(Layout.of(messages[0]), total, bits=0, parties=parties))
    assert found.hits.tolist() == [sum(int(one.hits[place]) for one in messages) for place in range(3)]
    assert found.number == sum(one.number for one in messages)
    assert isinstance(found.number, int)
    for name, behind in (("sums", 56), ("wide", 80)):
        for place, value in enumerate(getattr(found, name).tolist()):
            exact = sum(_rounded(float(getattr(one, name)[place]), behind) for one in messages)
            assert value == pytest.approx(exact / 2**behind, rel=2**-51, abs=0)
    assert found.sums.dtype is torch.float64
    assert float(found.listed[0]) == pytest.approx(sum(float(one.listed[0]) for one in messages), abs=1e-15)
    assert found.share == pytest.approx(sum(one.share for one in messages), abs=1e-15)


def _rounded(value: float, behind: int) -> int:
    numerator, denominator = value.as_integer_ratio()
    scaled, rest = divmod(abs(numerator) << behind, denominator)
    up = 2 * rest > denominator or (2 * rest == denominator and scaled % 2)
    return (scaled + up) * (1 if value >= 0 else -1)


@pytest.mark.parametrize("parties", [3, 10, 100])
def test_means_are_those_of_plain_sums(parties):
    """Σ w x / Σ w in float32: off by at most one unit in the last place, and hardly ever by that."""
    answers = updates(parties, 4000)
    bits = max(map(weight_bits, answers.values()))
    total = sum(words_of(answer, bits=bits, parties=parties) for answer in answers.values())
    found = Update(**decode(Layout.of(answers[0]), total, bits=bits, parties=parties))
    weight = sum(answer.num_samples for answer in answers.values())
    assert found.num_samples == weight
    plain = sum(answer.weights["w"].double() * answer.num_samples for answer in answers.values())
    error = float((found.weights["w"] - plain).abs().max())
    assert error <= parties * 2.0 ** -(51 - bits - (parties - 1).bit_length()) + 1e-12 * weight
    ours, theirs = (found.weights["w"] / weight).float(), (plain / weight).float()
    apart = (ours.view(torch.int32) - theirs.view(torch.int32)).abs()
    assert int(apart.max()) <= 1
    assert float((apart == 0).double().mean()) >= 0.999


def test_blocks_are_filled_across_parts():
    many = {f"w{place}": torch.full((BLOCK // 2 + 1,), float(place)) for place in range(5)}
    message = Update(weights=many, num_samples=1.0)
    found = words_of(message)
    assert len(found) == 5 * (BLOCK // 2 + 1) + 2 == Layout.of(message).words
    total = Update(**decode(Layout.of(message), found, bits=1, parties=3))
    assert all(torch.equal(total.weights[name], tensor.double()) for name, tensor in many.items())


def test_what_a_sum_cannot_hold_is_refused():
    for fields, text in (
        (
            {"sums": torch.tensor([2.0**55], dtype=torch.float64)},
            r"sums holds 3.6e\+16; a secure sum of 3 clients takes",
        ),
        ({"sums": torch.tensor([math.nan])}, "sums contains NaN or infinity"),
        ({"wide": torch.tensor([1e30], dtype=torch.float64)}, r"wide holds 1e\+30"),
        ({"share": math.inf}, "share contains NaN or infinity"),
        ({"hits": torch.tensor([2**61])}, "hits holds 2.31e"),
        ({"number": 2**70}, "number holds"),
    ):
        with pytest.raises(MessageError, match=text):
            words_of(statistics(**fields))
    with pytest.raises(MessageError, match=r"weights\['w'\] holds 4.1e\+03; .* takes up to 4.1e\+03 of each"):
        words_of(Update(weights={"w": torch.tensor([4097.0])}, num_samples=1.0))
    for weight in (-1.0, math.nan, math.inf):
        with pytest.raises(MessageError, match="is a weight and must be at least 0"):
            words_of(Update(weights={"w": torch.zeros(1)}, num_samples=weight))
    with pytest.raises(MessageError, match="more than the 3 bits that were agreed on"):
        words_of(Update(weights={"w": torch.zeros(1)}, num_samples=8.0), bits=3)


def test_the_largest_of_everybody_is_no_overflow():
    for parties in (3, 4, 5, 100):
        layout = Layout.of(statistics())
        sizes = {part.field: largest(part, parties) for part in layout.parts}
        message = statistics(
            sums=torch.tensor([-sizes["sums"]], dtype=torch.float64),
            wide=torch.tensor([sizes["wide"]], dtype=torch.float64), hits=torch.tensor([-int(sizes["hits"])]),
        )  # fmt: skip
        total = sum(words_of(message, parties=parties) for _ in range(parties))
        found = Statistics(**decode(layout, total, bits=0, parties=parties))
        assert found.sums.tolist() == [-parties * sizes["sums"]]
        assert found.wide.tolist() == [parties * sizes["wide"]]
        assert found.hits.tolist() == [-parties * int(sizes["hits"])]
        update = Update(weights={"w": torch.tensor([4096.0])}, num_samples=1023.0)
        whole = sum(words_of(update, parties=parties) for _ in range(parties))
        assert decode(Layout.of(update), whole, bits=10, parties=parties)["weights"]["w"].tolist() == [
            parties * 1023 * 4096.0
        ]


class Whole(Message):
    hits: Tensors = sends("counts", dtype=torch.int8, weighted_by="weight")
    weight: float = sends("counts")


def test_whole_numbers_times_a_weight():
    found = words_of(Whole(hits={"a": torch.tensor([3, -2], dtype=torch.int8)}, weight=5.0)).view(np.int64)
    assert found[:2].tolist() == [15, -10]
    with pytest.raises(MessageError, match=r"the weight 0.5 would make fractions"):
        words_of(Whole(hits={"a": torch.tensor([3], dtype=torch.int8)}, weight=0.5))


class Text(Message):
    name: str = sends("control")


def test_layouts_that_are_none():
    with pytest.raises(MessageError, match=r"Text.name cannot be summed"):
        Layout.of(Text(name="a"))
    good = Layout.of(Update(weights={"a": torch.zeros(2), "b": torch.zeros(3, 4)}, num_samples=1.0))
    assert Layout.read(Update, good.text) == good
    assert good.words == 2 + 12 + 2
    assert good.fields == (("weights", "model", 112), ("num_samples", "counts", 16))
    for text in (
        "", "[", "[1]", '[["weights","a",[2],false]]', '[["weights","a",[-2],false],["num_samples",null,null,false]]',
        '[["weights",3,[2],false],["num_samples",null,null,false]]', '[["other",null,null,false]]',
        '[["num_samples",null,null,false],["num_samples",null,null,false]]', "[" * 5000,
        '[["weights","a",[1099511627],false],["weights","b",[1099511627],false],["num_samples",null,null,false]]',
        '[["weights","a",[2],1],["num_samples",null,null,false]]',
    ):  # fmt: skip
        with pytest.raises(MessageError, match=r"layout of its sum|answers of up to"):
            Layout.read(Update, text)
