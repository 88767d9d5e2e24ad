"""Answers to one step held against each other: what is far larger than what most others sent is not taken.

A bound that holds for any data must be so wide that a number just below it decides a mean. What the other silos sent
of the same field in the same step says what size it has. Nobody needs to declare anything for that: it holds for every
field of every method.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median

import torch
from torch import Tensor

from graphsilo.federation.kinds import Kind
from graphsilo.federation.message import Message, numbers_in, tensors_in
from graphsilo.types import ClientId

LEAST_ANSWERS = 3
"""With fewer answers the others are one silo, and nobody can say which of two is right."""

_NOTHING = torch.finfo(torch.float32).tiny
"""What is smaller has been rounded away."""

APART: frozenset[Kind] = frozenset({"counts", "topology", "score", "control"})
"""Kinds with bounds of their own: what a silo says it holds, or 0 to 1."""


def sizes(message: Message) -> dict[str, float]:
    """The largest size of a float in each field that has floats."""
    found = {}
    for spec in message.specs():
        value = getattr(message, spec.name)
        if spec.kind in APART or not spec.compared or value is None:
            continue
        if spec.form == "plain":
            if isinstance(value, float):
                found[spec.name] = abs(value)
            continue
        floats = [tensor for tensor in tensors_in(value) if tensor.is_floating_point() and tensor.numel()]
        edges = [float(edge) for tensor in floats for edge in torch.aminmax(tensor)]
        found[spec.name] = max(map(abs, edges), default=0.0)
    return found


def find_idle(answers: Mapping[ClientId, Message], requests: Mapping[ClientId, Message]) -> dict[ClientId, str]:
    """Whose answer holds nothing of its own, although another's does, in words. It is no blame.

    Zeros alone, what it was sent, unchanged, or the very numbers of another silo: so answer silos that do not train,
    that hold the same data, that are broken, and that only take what others made. Silos that say themselves that they
    have nothing, with a count of 0, are left out.

    Example:
        >>> from graphsilo.federation.message import sends
        >>> class Sum(Message):
        ...     total: float = sends("statistic")
        >>> find_idle({0: Sum(total=1.0), 1: Sum(total=-2.0), 2: Sum(total=0.0)}, {})
        {2: 'Sum.total: zeros alone'}
    """
    if len(answers) < LEAST_ANSWERS:
        return {}
    said: dict[str, dict[ClientId, str]] = {}
    alike: dict[tuple[str, float], list[ClientId]] = {}
    fields = {client: find_comparable(answer) for client, answer in answers.items()}
    for client, own in fields.items():
        asked = vars(requests[client]) if client in requests else {}
        for name, (mine, like) in own.items():
            twins = alike.setdefault((name, sum(float(numbers.sum()) for numbers in mine)), [])
            twin = next((other for other in twins if _same(mine, fields[other][name][0])), None)
            twins.append(client)
            known = said.setdefault(f"{type(answers[client]).__name__}.{name}", {})
            known[client] = ""
            if not any(bool(numbers.any()) for numbers in mine):
                known[client] = "zeros alone"
            elif like in asked and _same(mine, list(numbers_in(asked[like]))):
                known[client] = "what it was sent, unchanged"
            elif twin is not None:
                known[client] = f"the very numbers of client {twin}"
                known[twin] = known[twin] or f"the very numbers of client {client}"
    return {
        client: f"{name}: {text}"
        for name, each in said.items()
        for client, text in each.items()
        if text and not all(each.values())
    }


def find_comparable(answer: Message) -> dict[str, tuple[list[Tensor], str]]:
    """Fields that honest silos fill with floats of their own, and which of the request's each is like; none where a
    count says that there is nothing."""
    found = {}
    for spec in answer.specs():
        numbers = [each for each in numbers_in(getattr(answer, spec.name)) if each.numel()]
        if spec.whole and numbers and not any(bool(each.any()) for each in numbers):
            return {}
        if spec.kind not in APART and spec.compared and any(each.is_floating_point() for each in numbers):
            found[spec.name] = numbers, spec.like or spec.name
    return found


def _same(mine: list[Tensor], theirs: list[Tensor]) -> bool:
    return len(mine) == len(theirs) and all(map(torch.equal, mine, theirs))


def outliers(answers: Mapping[ClientId, Message], items: Mapping[ClientId, float], ratio: float) -> dict[ClientId, str]:
    """Whose answer is far larger than the others', and in which field, in words.

    Args:
        answers: To one step.
        items: How much each silo said it holds: sums over more items may be larger in proportion.
        ratio: How many times as large as the median of the others is taken.

    Returns:
        Nobody where fewer than three answered, or where half of the others sent zeros: who has nothing to train on
        does, and says nothing of what is usual. So an honest silo is named only where more than half of the others lie.

    Example:
        >>> from graphsilo.federation.message import sends
        >>> class Sum(Message):
        ...     total: float = sends("statistic")
        >>> outliers({0: Sum(total=1.0), 1: Sum(total=-2.0), 2: Sum(total=9e17)}, {}, 100.0)
        {2: 'Sum.total holds 9e+17, and at half of the other silos 1.5 at most'}
    """
    if len(answers) < LEAST_ANSWERS:
        return {}
    each = {client: sizes(answer) for client, answer in answers.items()}
    usual = median(items.get(client, 1.0) for client in answers)
    found: dict[ClientId, str] = {}
    for client, mine in each.items():
        more = max(1.0, items.get(client, 1.0) / usual) if usual else 1.0
        for name, size in mine.items():
            others = [other[name] for asked, other in each.items() if asked != client and name in other]
            told = [other if other > _NOTHING else math.inf for other in others]
            if len(told) + 1 >= LEAST_ANSWERS and size > ratio * more * (middle := median(told)):
                kind = type(answers[client]).__name__
                found[client] = f"{kind}.{name} holds {size:.3g}, and at half of the other silos {middle:.3g} at most"
                break
    return found
