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
from graphsilo.federation.secure.fixed import BLOCK, Encoding, Layout, bits_of, decode, describe_outweighing
from kit.secure import Statistics, Update, updates


def bits(*messages: Message) -> int:
    return max(bits_of(Layout.of(message), message) for message in messages)


def words_of(message: Message, *, weight: int | None = None, parties: int = 3) -> np.ndarray:
    encoding = Encoding(Layout.of(message), message, bits=bits(message) if weight is None else weight, parties=parties)
    blocks = [block.copy() for block in encoding.blocks()]
    return np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.uint64)


def statistics(**fields) -> Statistics:
    zero = {"hits": torch.zeros(1, dtype=torch.int64), "sums": torch.zeros(1), "number": 0, "share": 0.0}
    return Statistics(**{**zero, "wide": torch.zeros(1, dtype=torch.float64), **fields})


def test_weighted_words_by_hand():
    # 3 clients, weights of up to 2 bits: F = 50 - 2 - 2 = 46. 3 · 0.5 · 2^46 and 3 · (-1) · 2^46; 3 itself is
    # 3 · 2^56 = 192 · 2^50 + 0.
    found = words_of(Update(weights={"w": torch.tensor([0.5, -1.0])}, num_samples=3.0)).view(np.int64)
    assert found.tolist() == [3 * 2**45, -3 * 2**46, 0, 192]


def test_what_a_client_says_of_its_answer_depends_on_no_number():
    """A question that makes an answer zero, tiny or huge by what one row holds asks for that row."""
    stated = [
        bits(statistics(sums=torch.tensor([value, 0.0], dtype=torch.float64))) for value in (0.0, 1e-30, 1.0, 1e15)
    ]
    assert stated == [0, 0, 0, 0]
    assert {bits(Update(weights={"w": torch.tensor([value])}, num_samples=9.0)) for value in (0.0, 1e-9, 99.0)} == {4}


def test_digits_by_hand():
    # With two words 2^-6 · 2^56 is 1 · 2^50 + 0, -2^-56 is -1; with three 2^-80 is 1, -(2^-30 + 2^-80) is -(2^50 + 1).
    message = statistics(
        sums=torch.tensor([2.0**-6, -(2.0**-56)], dtype=torch.float64),
        wide=torch.tensor([2.0**-80, -(2.0**-30) - 2.0**-80], dtype=torch.float64), hits=torch.tensor([7, -7]),
        number=-5,
    )  # fmt: skip
    found = words_of(message).view(np.int64).tolist()
    assert found[:2] == [7, -7]
    assert found[2:6] == [0, -1, 1, 0]
    assert found[6:12] == [1, -1, 0, -1, 0, 0]
    assert found[12] == -5


def test_columns_of_very_different_size_need_three_words():
    """Sums of squares of a column in billions and of one in billionths, over 1000 rows: two words hold neither, three
    do. So sums that scale features have three."""
    squares = torch.tensor([1000 * 1e9**2, 1000 * 1e-9**2], dtype=torch.float64)
    message = statistics(wide=squares)
    found = decode(Layout.of(message), words_of(message), bits=0, parties=3)
    assert found["wide"].tolist() == pytest.approx([1e21, 1e-15], rel=1e-8)
    with pytest.raises(MessageError, match="sums holds more than"):
        words_of(statistics(sums=squares))


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
            assert value == pytest.approx(exact / 2.0**behind, rel=2**-51, abs=0)
    assert found.sums.dtype is torch.float64
    assert float(found.listed[0]) == pytest.approx(math.fsum(float(one.listed[0]) for one in messages), abs=1e-14)
    assert found.share == pytest.approx(math.fsum(one.share for one in messages), abs=1e-14)


def _rounded(value: float, behind: int) -> int:
    numerator, denominator = value.as_integer_ratio()
    scaled, rest = divmod(abs(numerator) << max(behind, 0), denominator << max(-behind, 0))
    denominator <<= max(-behind, 0)
    up = 2 * rest > denominator or (2 * rest == denominator and scaled % 2)
    return (scaled + up) * (1 if value >= 0 else -1)


@pytest.mark.parametrize("parties", [3, 10, 100])
def test_means_are_those_of_plain_sums(parties):
    """Σ w x / Σ w in float32: off by at most one unit in the last place, and hardly ever by that."""
    answers = updates(parties, 4000)
    most = bits(*answers.values())
    total = sum(words_of(answer, weight=most, parties=parties) for answer in answers.values())
    found = Update(**decode(Layout.of(answers[0]), total, bits=most, parties=parties))
    weight = sum(answer.num_samples for answer in answers.values())
    assert found.num_samples == weight
    plain = sum(answer.weights["w"].double() * answer.num_samples for answer in answers.values())
    error = float((found.weights["w"] - plain).abs().max())
    assert error <= parties * 2.0 ** -(51 - most - (parties - 1).bit_length()) + 1e-12 * weight
    ours, theirs = (found.weights["w"] / weight).float(), (plain / weight).float()
    apart = (ours.view(torch.int32) - theirs.view(torch.int32)).abs()
    assert int(apart.max()) <= 1
    assert float((apart == 0).double().mean()) >= 0.999


def test_blocks_are_filled_across_parts():
    many = {f"w{place}": torch.full((BLOCK // 2 + 1,), float(place)) for place in range(5)}
    message = Update(weights=many, num_samples=1.0)
    found = words_of(message)
    assert len(found) == 5 * (BLOCK // 2 + 1) + 2 == Layout.of(message).words
    total = Update(**decode(Layout.of(message), found, bits=bits(message), parties=3))
    assert all(torch.equal(total.weights[name], tensor.double()) for name, tensor in many.items())


def test_what_a_sum_cannot_hold_is_refused():
    for fields, text in (
        ({"sums": torch.tensor([1e17], dtype=torch.float64)}, r"sums holds more than 3.6e\+16, the most that a secure"),
        ({"sums": torch.tensor([math.nan])}, "sums contains NaN or infinity"),
        ({"wide": torch.tensor([1e30], dtype=torch.float64)}, r"wide holds more than 2.42e\+24"),
        ({"share": math.inf}, "share contains NaN or infinity"),
        ({"hits": torch.tensor([2**61])}, "hits holds more than 1.15e"),
        ({"number": 2**70}, "number holds"),
    ):
        with pytest.raises(MessageError, match=text):
            words_of(statistics(**fields))
    with pytest.raises(MessageError, match=r"weights\['w'\] holds more than 4.1e\+03, the most that a secure sum of 3"):
        words_of(Update(weights={"w": torch.tensor([4097.0])}, num_samples=1.0))
    for weight in (-1.0, math.nan, math.inf):
        with pytest.raises(MessageError, match="is a weight and must be at least 0"):
            words_of(Update(weights={"w": torch.zeros(1)}, num_samples=weight))
    with pytest.raises(MessageError, match="more than the 3 bits that were agreed on"):
        words_of(Update(weights={"w": torch.zeros(1)}, num_samples=8.0), weight=3)
    for parties, text in ((3, r"1.8e\+16, the most that a secure sum of 3"), (5, r"9.01e\+15, the most that a secure")):
        with pytest.raises(MessageError, match=f"sums holds more than {text}"):
            words_of(statistics(sums=torch.tensor([2.0**54.5], dtype=torch.float64)), parties=parties)


@pytest.mark.parametrize(
    ("mine", "others", "trouble"),
    [
        (27, [1, 27], ""),  # one of three lies: this one does not, and is not named for it
        (27, [0, 0, 0], ""),  # who has no items loses nothing
        (26, [10, 3, 30], ""),
        (27, [10, 3, 30], "the middle one of the others' is up to 2^10"),
        (40, [8, 8], "the middle one of the others' is up to 2^8"),
        (40, [1, 1, 40, 40, 0, 0], ""),  # two of seven lie
        (40, [1, 1, 0, 0, 0, 0], ""),
    ],
)  # fmt: skip
def test_one_that_takes_the_digits_of_the_others(mine, others, trouble):
    found = describe_outweighing(mine, others)
    assert (trouble in found) if trouble else not found


def test_the_largest_of_everybody_is_no_overflow():
    for parties in (3, 4, 5, 100):
        layout = Layout.of(statistics())
        sizes = {part.field: layout.largest(part, 0, parties) for part in layout.parts}
        assert sizes["sums"] == 2.0 ** (56 - (parties - 1).bit_length())
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
    with pytest.raises(MessageError, match=r"which its weight would make fractions"):
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
