"""Messages of every form."""

from __future__ import annotations

import torch
from torch import Tensor

from graphsilo.federation import message
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.message import Message, Tensors, sends


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


class Anything(Message):
    """A tensor of any shape, NaN allowed."""

    value: Tensor = sends("statistic", dtype=tuple(message.DTYPES.values()), allow_nan=True)


def everything(**more):
    fields = {
        "one": torch.arange(6.0).view(3, 2),
        "other": torch.tensor([1, 2, 3]),
        "named": {"a": torch.ones(2), "b": torch.zeros(0, 4)},
        "number": 7,
        "table": {"x": [1, 2], "y": []},
    }
    return Everything(**{**fields, **more})


def by_kind(ledger: Ledger, direction: str = "up") -> dict[str, int]:
    """Bytes per kind of disclosure over a whole run."""
    found: dict[str, int] = {}
    for row in ledger.rows():
        if row[3] == direction:
            found[row[7]] = found.get(row[7], 0) + row[8]
    return found
