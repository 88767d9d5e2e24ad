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
from graphsilo.federation.secure.fixed import BLOCK, SIZES, Encoding, Layout, Scale, decode
from kit.secure import Statistics, Update, updates


def scale_of(*messages: Message) -> Scale:
    return Scale.together(Scale.of(Layout.of(message), message) for message in messages)


def words_of(message: Message, *, scale: Scale | None = None, parties: int = 3) -> np.ndarray:
    scale = scale_of(message) if scale is None else scale
    encoding = Encoding(Layout.of(message), message, scale=scale, parties=parties)
    blocks = [block.copy() for block in encoding.blocks()]
    return np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.uint64)


def statistics(**fields) -> Statistics:
    zero = {"hits": torch.zeros(1, dtype=torch.int64), "sums": torch.zeros(1), "number": 0, "share": 0.0}
    return Statistics(**{**zero, "wide": torch.zeros(1, dtype=torch.float64), **fields})


def test_weighted_words_by_hand():
    # 3 clients, weights of up to 2 bits: F = 50 - 2 - 2 = 46. 3 · 0.5 · 2^46 and 3 · (-1) · 2^46; 3 itself is below
    # 2^8: F = 62 - 8 - 2 = 52.
    found = words_of(Update(weights={"w": torch.tensor([0.5, -1.0])}, num_samples=3.0)).view(np.int64)
    assert found.tolist() == [3 * 2**45, -3 * 2**46, 3 * 2**52]


@pytest.mark.parametrize(
    ("largest", "size"),
    [(0.0, -64), (1e-30, -64), (2.0**-9, -8), (0.5, 0), (0.99, 0), (1.0, 8), (255.9, 8), (256.0, 16), (1e36, 120)],
)
def test_sizes_are_powers_of_two_to_the_eighth(largest, size):
    """Of what a client has, the others learn that no entry exceeds it."""
    message = statistics(sums=torch.tensor([largest, -largest / 2], dtype=torch.float64))
    assert scale_of(message) == Scale(0, (size, -64))
    # The size of all is the largest, and F = 62 - size - 2 for three clients.
    assert scale_of(message, statistics(share=3.0)).sizes == (size, 8)
    assert words_of(message).view(np.int64)[1] == round(largest * 2.0 ** (60 - size))


def test_digits_by_hand():
    # 2^-6 with F = 62 - 0 - 2 = 60; -2^-60 is -1; 2^-80 with three words is 1, -(2^-30 + 2^-80) is -(2^50 + 1).
    message = statistics(
        sums=torch.tensor([2.0**-6, -(2.0**-60)], dtype=torch.float64),
        wide=torch.tensor([2.0**-80, -(2.0**-30) - 2.0**-80], dtype=torch.float64), hits=torch.tensor([7, -7]),
        number=-5,
    )  # fmt: skip
    found = words_of(message, scale=Scale(0, (0, 0))).view(np.int64).tolist()
    assert found[:2] == [7, -7]
    assert found[2:4] == [2**54, -1]
    assert found[4:10] == [1, -1, 0, -1, 0, 0]
    assert found[10] == -5


def test_columns_of_very_different_size_need_three_words():
    """Sums of squares of a column in millions and of one in millionths, over 1000 rows: one word keeps nothing of the
    smaller, three keep all. So sums that scale features have three."""
    squares = torch.tensor([1000 * 1e6**2, 1000 * 1e-6**2], dtype=torch.float64)
    message = statistics(sums=squares, wide=squares)
    scale = scale_of(message)
    found = decode(Layout.of(message), words_of(message, scale=scale), scale=scale, parties=3)
    assert found["sums"].tolist() == [1e15, 0.0]
    assert found["wide"].tolist() == pytest.approx([1e15, 1e-9], rel=1e-12)


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
    scale = scale_of(*messages)
    total = np.zeros(len(words_of(messages[0], parties=parties)), dtype=np.uint64)
    for message in data.draw(st.permutations(messages)):
        total += words_of(message, scale=scale, parties=parties)
    found = Statistics(**decode(Layout.of(messages[0]), total, scale=scale, parties=parties))
    assert found.hits.tolist() == [sum(int(one.hits[place]) for one in messages) for place in range(3)]
    assert found.number == sum(one.number for one in messages)
    assert isinstance(found.number, int)
    sized = 62 - (parties - 1).bit_length()
    for name, behind in (("sums", sized - scale.sizes[0]), ("wide", 80)):
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
    scale = scale_of(*answers.values())
    total = sum(words_of(answer, scale=scale, parties=parties) for answer in answers.values())
    found = Update(**decode(Layout.of(answers[0]), total, scale=scale, parties=parties))
    weight = sum(answer.num_samples for answer in answers.values())
    assert found.num_samples == weight
    plain = sum(answer.weights["w"].double() * answer.num_samples for answer in answers.values())
    error = float((found.weights["w"] - plain).abs().max())
    assert error <= parties * 2.0 ** -(51 - scale.bits - (parties - 1).bit_length()) + 1e-12 * weight
    ours, theirs = (found.weights["w"] / weight).float(), (plain / weight).float()
    apart = (ours.view(torch.int32) - theirs.view(torch.int32)).abs()
    assert int(apart.max()) <= 1
    assert float((apart == 0).double().mean()) >= 0.999


def test_blocks_are_filled_across_parts():
    many = {f"w{place}": torch.full((BLOCK // 2 + 1,), float(place)) for place in range(5)}
    message = Update(weights=many, num_samples=1.0)
    found = words_of(message)
    assert len(found) == 5 * (BLOCK // 2 + 1) + 1 == Layout.of(message).words
    total = Update(**decode(Layout.of(message), found, scale=scale_of(message), parties=3))
    assert all(torch.equal(total.weights[name], tensor.double()) for name, tensor in many.items())


def test_what_a_sum_cannot_hold_is_refused():
    for fields, text in (
        ({"sums": torch.tensor([1e39], dtype=torch.float64)}, r"sums holds more than 1e\+36, the most that a"),
        ({"sums": torch.tensor([math.nan])}, "sums contains NaN or infinity"),
        ({"wide": torch.tensor([1e30], dtype=torch.float64)}, r"wide holds more than 1.21e\+24"),
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
        words_of(Update(weights={"w": torch.zeros(1)}, num_samples=8.0), scale=Scale(3, (8,)))
    with pytest.raises(MessageError, match=r"sums holds more than 256, the most that a secure sum of 3 clients"):
        words_of(statistics(sums=torch.tensor([300.0])), scale=Scale(0, (8, 8)))
    layout = Layout.of(statistics())
    # A statistic is at most 1e36 < 2^120, a score 1e18 < 2^64.
    for strange in (
        Scale(-1, (0, 0)), Scale(0, (0,)), Scale(0, (0, 4)), Scale(0, (0, SIZES[-1] + 8)), Scale(0, (128, 0)),
        Scale(0, (0, 72)),
    ):  # fmt: skip
        with pytest.raises(MessageError, match="what a client says of the size of its numbers cannot be"):
            strange.check(layout)
    Scale(0, (SIZES[0], SIZES[0])).check(layout)
    Scale(0, (120, 64)).check(layout)
    with pytest.raises(MessageError, match=r"share holds more than 1e\+18, the most that a secure sum takes"):
        scale_of(statistics(share=1.1e18))


@pytest.mark.parametrize(
    ("mine", "others", "trouble"),
    [
        ((0, 8), [(0, 8), (0, 8), (0, 16)], ""),
        ((0, 32), [(0, 8), (0, 8), (0, 16)], ""),  # 2^24 above: 62 - 32 - 2 + 8 = 36 digits are left
        ((0, 40), [(0, 8), (0, 8), (0, 16)], "holds numbers up to 2^40, and the middle one of the others says 2^8"),
        ((0, 40), [(0, 8), (0, 8)], "the middle one of the others says 2^8"),
        ((0, 40), [(0, -56), (0, 40)], ""),  # one of three lies: this one does not, and is not named for it
        ((0, 40), [(0, -56), (0, 0), (0, -64)], "says 2^0"),
        ((0, 40), [(0, -56), (0, -64)], ""),  # nor where the third one has only zeros
        ((0, 40), [(0, -56), (0, -56), *[(0, 40)] * 2, *[(0, -64)] * 2], ""),  # two of seven lie
        ((0, 40), [(0, -56), (0, -56), *[(0, -64)] * 4], ""),
        ((27, 8), [(1, 8), (27, 8)], ""),
        ((27, 8), [(0, 8), (0, 8), (0, 8)], ""),
        ((0, 40), [(0, -64), (0, -64), (0, 24)], ""),  # who has only zeros loses nothing
        ((0, 40), [(0, -64), (0, -64)], ""),
        ((26, 8), [(10, 8), (3, 8), (30, 8)], ""),
        ((27, 8), [(10, 8), (3, 8), (30, 8)], "the middle one of the others' is up to 2^10"),
    ],
)  # fmt: skip
def test_one_that_takes_the_digits_of_the_others(mine, others, trouble):
    """62 - 40 - 2 + 8 = 28 digits for three clients, 18 for 4096: a float32 number has 24."""
    layout = Layout.of(Update(weights={"w": torch.zeros(1)}, num_samples=1.0))
    stated = [Scale(bits, (size,)) for bits, size in others]
    found = Scale(mine[0], (mine[1],)).above(stated, layout)
    assert (trouble in found) if trouble else not found


def test_the_largest_of_everybody_is_no_overflow():
    for parties in (3, 4, 5, 100):
        layout, scale = Layout.of(statistics()), Scale(0, (16, 0))
        sizes = {part.field: layout.largest(part, scale, parties) for part in layout.parts}
        assert sizes["sums"] == 2.0**16
        message = statistics(
            sums=torch.tensor([-sizes["sums"]], dtype=torch.float64),
            wide=torch.tensor([sizes["wide"]], dtype=torch.float64), hits=torch.tensor([-int(sizes["hits"])]),
        )  # fmt: skip
        total = sum(words_of(message, scale=scale, parties=parties) for _ in range(parties))
        found = Statistics(**decode(layout, total, scale=scale, parties=parties))
        assert found.sums.tolist() == [-parties * sizes["sums"]]
        assert found.wide.tolist() == [parties * sizes["wide"]]
        assert found.hits.tolist() == [-parties * int(sizes["hits"])]
        update = Update(weights={"w": torch.tensor([4096.0])}, num_samples=1023.0)
        scale = scale_of(update)
        whole = sum(words_of(update, parties=parties) for _ in range(parties))
        assert decode(Layout.of(update), whole, scale=scale, parties=parties)["weights"]["w"].tolist() == [
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
    assert good.words == 2 + 12 + 1
    assert good.fields == (("weights", "model", 112), ("num_samples", "counts", 8))
    for text in (
        "", "[", "[1]", '[["weights","a",[2],false]]', '[["weights","a",[-2],false],["num_samples",null,null,false]]',
        '[["weights",3,[2],false],["num_samples",null,null,false]]', '[["other",null,null,false]]',
        '[["num_samples",null,null,false],["num_samples",null,null,false]]', "[" * 5000,
        '[["weights","a",[1099511627],false],["weights","b",[1099511627],false],["num_samples",null,null,false]]',
        '[["weights","a",[2],1],["num_samples",null,null,false]]',
    ):  # fmt: skip
        with pytest.raises(MessageError, match=r"layout of its sum|answers of up to"):
            Layout.read(Update, text)
