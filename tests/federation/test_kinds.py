"""How large an entry of each kind may be."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.codec import decode, encode
from graphsilo.federation.message import Message, sends


class Bounded(Message):
    """One tensor and one number for each of two kinds of bound."""

    wide: Tensor = sends("logits", dtype=(torch.float32, torch.float64, torch.int64))
    count: float = sends("counts", default=0.0)
    control: float = sends("control", default=0.0)
    listed: list[float] = sends("control", default=())


def back(message: Message) -> Message:
    return decode(encode(message).data, type(message), largest_value=1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("sign", [1, -1])
def test_an_entry_may_be_as_large_as_its_kinds_bound_and_no_larger(dtype, sign):
    # 1e18 for the output of a model, 2^53 for any whole number; a float32 beside 1e18 is 9.9e17 or 1.01e18
    fits, larger = (2**53, 2**53 + 2) if dtype is torch.int64 else (9.9e17, 1.01e18)
    value = torch.tensor([0, sign * fits, 1], dtype=dtype)
    assert torch.equal(back(Bounded(wide=value)).wide, value)
    with pytest.raises(MessageError, match=r"Bounded\.wide holds .*; at most (1e\+18|9\.01e\+15) is taken"):
        back(Bounded(wide=torch.tensor([0, sign * larger, 1], dtype=dtype)))


@pytest.mark.parametrize("field", ["count", "control"])
def test_a_number_may_be_as_large_as_its_kinds_bound_and_no_larger(field):
    for size in (2.0**53, -(2.0**53)):
        assert getattr(back(Bounded(wide=torch.zeros(1), **{field: size})), field) == size
        with pytest.raises(MessageError, match=rf"Bounded\.{field} holds 9\.01e\+15; at most 9\.01e\+15 is taken"):
            back(Bounded(wide=torch.zeros(1), **{field: size * (1 + 2**-52)}))
    with pytest.raises(MessageError, match=r"Bounded\.listed holds 9\.01e\+15"):
        back(Bounded(wide=torch.zeros(1), listed=[0.0, -(2.0**53) - 2]))


def test_a_whole_number_may_be_as_large_as_its_kinds_bound_and_no_larger():
    class Whole(Message):
        count: int = sends("counts")
        names: list[str] = sends("control", default=())

    for size in (2**53, -(2**53)):
        assert back(Whole(count=size, names=["a"])).count == size
        with pytest.raises(MessageError, match=r"Whole\.count holds 1\.8e\+16; at most 9\.01e\+15 is taken"):
            back(Whole(count=2 * size))
