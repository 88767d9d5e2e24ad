"""Messages of every form, and what methods say of theirs."""

from __future__ import annotations

import torch
from torch import Tensor

from graphsilo.federation import message, registry
from graphsilo.federation.client import ClientBase
from graphsilo.federation.interface import answers_of
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.message import FieldSpec, Message, Tensors, sends


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


def check_sent(method: str, lines: str) -> None:
    """What leaves a silo beside what it does with every method: nothing begins to unless a test's line changes.

    Args:
        method: Its name.
        lines: Step, field, kind of disclosure; types and shape of tensors; what else is declared of it.
    """
    differing = sent(method) ^ {line.strip() for line in lines.splitlines() if line.strip()}
    assert not differing, sorted(differing)


def sent(method: str) -> set[str]:
    """The lines of ``check_sent``."""
    return said_of(registry.load(method).client) - said_of(ClientBase)


def said_of(client: type[ClientBase]) -> set[str]:
    """What all steps of a client answer."""
    return {f"{step} {spec.name}: {said(spec)}" for step, reply in answers_of(client).items() for spec in reply.specs()}


def said(spec: FieldSpec) -> str:
    """A field's declaration in the words of these lines."""
    dtypes = [str(dtype).removeprefix("torch.") for dtype in spec.dtypes] if spec.form != "plain" else []
    shape = [] if spec.shape is None else [f"[{', '.join(map(str, spec.shape))}]"]
    switches = [name for name in ("optional", "allow_nan", "relayed", "recoverable") if getattr(spec, name)]
    values = {name: getattr(spec, name) for name in ("per_class", "weighted_by", "largest", "like")}
    words = [f"{name}={value}" for name, value in (*values.items(), *spec.only_with) if value is not None]
    return " ".join([spec.kind, *dtypes, *shape, *switches, *words]) + spec.where_recoverable


def noted(ledger, direction, number, *handlers):
    """Bytes beside headers and control in a round (0: set-up), by client."""
    found = {}
    for _, when, client, way, handler, _, _, kind, size, _ in ledger.rows():
        if (when, way) == (number, direction) and handler in handlers and kind != "control":
            found[client] = found.get(client, 0) + size
    return found
