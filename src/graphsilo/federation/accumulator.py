"""Adding up clients' messages, in float64, a few messages at a time.

Sums of models are bound by memory, not by arithmetic: a model that is added as soon as it comes finds the total, which
is twice its size, out of the cache. So messages wait until some megabytes are there, and are added one right after the
other, in the order in which they came; of large tensors each block takes what all of them add to it. The numbers are
those of adding one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.message import FieldSpec, Message, diff_shapes, message_shapes, tensors_in
from graphsilo.federation.wire import JoinedTensors, aligned_bytes
from graphsilo.types import ClientId

Reply = TypeVar("Reply", bound=Message)
Share: TypeAlias = tuple[Any, float]
"""What one message holds in a field, and its weight."""
Rule: TypeAlias = Callable[[FieldSpec, Sequence[ClientId], Sequence[Share]], Sequence[Share]]
"""Given a field that is averaged, whose messages there are and their shares: what is added up in their place."""

BLOCK = 1 << 18
"""Entries of a large tensor that are widened at once to be added."""
MAX_WAITING = 1 << 23
"""Bytes of messages that may wait to be added."""


_NARROW = frozenset({torch.float32, torch.float16, torch.bfloat16})
_MAX_FLOAT = 1.7e308
_MAX_WHOLE = 2**63 - 1


def check_additive(kind: type[Message]) -> None:
    """Refuse a message that holds what has no sum.

    Raises:
        MessageError: It does; names the field.
    """
    names = {spec.name: spec for spec in kind.specs()}
    for spec in names.values():
        additive = spec.form != "plain" or spec.plain_type in (int, float)
        weight = names.get(spec.weighted_by) if spec.weighted_by is not None else spec
        if not additive or weight is None or (spec.weighted_by and weight.plain_type not in (int, float)):
            raise MessageError(
                f"{kind.__name__}.{spec.name} cannot be summed: only numbers and tensors can, and `weighted_by` must "
                f"name a number in the same message."
            )


class Accumulator(Generic[Reply]):
    """Adds up additive messages in the order given, without keeping more than some megabytes of them.

    Floats are summed in float64: a weight of at most 2^29 times a float32 number is exact there, so that the weighted
    mean of equal models is that model, bit for bit.

    Messages are added to those with the same names and shapes, and the sum is that of most of them. Nobody's message
    says what the others have to look like.

    Args:
        kind: The messages.
        rule: What averages are made by, once all messages have come, which are kept until then; None adds up.
    """

    def __init__(self, kind: type[Reply], rule: Rule | None = None):
        self.kind, self.rule = kind, rule
        self.specs = kind.specs()
        self._groups: list[_Group] = []
        # Float32 numbers do not overflow in float64, whatever weights they have.
        self._overflowing = [
            place
            for place, spec in enumerate(self.specs)
            if not spec.allow_nan and (spec.form == "plain" or not _NARROW.issuperset(spec.dtypes))
        ]
        check_additive(kind)

    def add(self, client: ClientId, message: Reply, shapes: Mapping[str, Any] | None = None) -> None:
        """Add one client's message. Its tensors must stay as they are until ``message`` is called.

        Raises:
            MessageError: It lacks something, its weight cannot be one, or the sum would overflow with it; the sum stays
                as it was.
        """
        shares: list[Share] = []
        for spec in self.specs:
            weight = 1.0
            if spec.weighted_by is not None:
                given = getattr(message, spec.weighted_by)
                weight = -1.0 if given is None else float(given)
                if not 0 <= weight < math.inf:
                    raise MessageError(
                        f"client {client}: {self.kind.__name__}.{spec.weighted_by} is a weight and must be at least 0; "
                        f"{given} came."
                    )
            shares.append((getattr(message, spec.name), weight))
        for spec, share in zip(self.specs, shares, strict=True):
            self._check(client, spec, *share)
        shapes = message_shapes(message) if shapes is None else shapes
        group = next((group for group in self._groups if group.shapes == shapes), None)
        if group is None:
            group = _Group(self.specs, shapes, self.rule)
            self._groups.append(group)
        sizes = {}
        for place in self._overflowing:
            value, weight = shares[place]
            size = sizes[place] = group.sizes.get(place, 0.0) + _size(value, weight)
            if not size <= (_MAX_WHOLE if _is_whole(value) else _MAX_FLOAT):
                raise MessageError(
                    f"client {client}: with its {self.kind.__name__}.{self.specs[place].name} the sum would be "
                    f"{size:.3g}, larger than a number can be."
                )
        group.add(client, shares, sizes)

    def message(self) -> Reply | None:
        """The sum so far; None of nothing, and where as many clients sent one thing as another."""
        group = self._largest()
        return None if group is None else self.kind(**group.total())

    @property
    def clients(self) -> list[ClientId]:
        """Whose messages make up the sum."""
        group = self._largest()
        return [] if group is None else group.clients

    def find_outvoted(self) -> dict[ClientId, str]:
        """Whose messages are not in the sum because most others look different, and how theirs does."""
        largest = self._largest()
        found: dict[ClientId, str] = {}
        for group in self._groups:
            if group is largest:
                continue
            other = largest or next(other for other in self._groups if other is not group)
            name = next(name for name, mine in group.shapes.items() if other.shapes[name] != mine)
            mine, theirs = group.shapes[name], other.shapes[name]
            who = f"{len(other.clients)} other clients'" if largest else f"client {other.clients[0]}'s"
            for client in group.clients:
                found[client] = (
                    f"client {client}: {self.kind.__name__}.{name} has {diff_shapes(mine, theirs)}, {who} has "
                    f"{diff_shapes(theirs, mine)}{'' if largest else ', and nobody can say which of them is right'}. "
                    f"All clients must run the same model and settings to be summed."
                )
        return dict(sorted(found.items()))

    def _largest(self) -> _Group | None:
        """The messages that most clients' look like; None where there is no such thing."""
        groups = sorted(self._groups, key=lambda group: -len(group.clients))
        if not groups or (len(groups) > 1 and len(groups[0].clients) == len(groups[1].clients)):
            return None
        return groups[0]

    def _check(self, client: ClientId, spec: FieldSpec, value: Any, weight: float) -> None:
        """Refuse what cannot be summed."""
        if value is None:
            raise MessageError(f"client {client}: {self.kind.__name__}.{spec.name} is missing from a sum.")
        if spec.form == "plain" or weight == int(weight):
            return
        if not all(map(torch.is_floating_point, tensors_in(value))):
            raise MessageError(
                f"client {client}: {self.kind.__name__}.{spec.name} holds whole numbers, which the weight {weight} "
                f"would make fractions; send them as floats."
            )


def add_up(kind: type[Reply], answers: Iterable[tuple[ClientId, Reply]]) -> Reply | None:
    """The sum of single answers, for a server that has looked at each; None as of ``Accumulator.message``."""
    total = Accumulator(kind)
    for client, answer in answers:
        total.add(client, answer)
    return total.message()


class _Group:
    """The sum of messages with the same names and shapes.

    Attributes:
        shapes: Per field, its names and shapes.
        clients: Who sent them.
        sizes: Per field that might overflow, what no entry of the sum can be larger than.
    """

    def __init__(self, specs: Sequence[FieldSpec], shapes: Mapping[str, Any], rule: Rule | None):
        self.specs, self.shapes, self.rule = specs, shapes, rule
        self.clients: list[ClientId] = []
        self.sizes: dict[int, float] = {}
        self._values: dict[str, Any] = {}
        self._waiting: list[list[Share]] = []
        self._bytes = 0

    def add(self, client: ClientId, shares: list[Share], sizes: dict[int, float]) -> None:
        self._waiting.append(shares)
        self._bytes += sum(
            _bytes(value) for spec, (value, _) in zip(self.specs, shares, strict=True) if spec.form != "plain"
        )
        self.clients.append(client)
        self.sizes = sizes
        if self._bytes >= MAX_WAITING and self.rule is None:
            self._add_waiting()

    def total(self) -> dict[str, Any]:
        self._add_waiting()
        return self._values

    def _add_waiting(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        for spec, shares in zip(self.specs, zip(*waiting, strict=True), strict=True):
            name, total = spec.name, self._values.get(spec.name)
            if self.rule is not None and spec.weighted_by:
                shares = tuple(self.rule(spec, self.clients, shares))
            if spec.form == "tensors":
                self._values[name] = self._sum_named(name, shares)
            elif spec.form == "tensor_list":
                olds = total or [None] * len(shares[0][0])
                self._values[name] = [
                    _sum(old, [(value[place], weight) for value, weight in shares]) for place, old in enumerate(olds)
                ]
            elif spec.form == "tensor":
                self._values[name] = _sum(total, shares)
            else:
                for value, weight in shares:
                    share = int(weight) if isinstance(value, int) and weight == int(weight) else weight
                    self._values[name] = self._values.get(name, 0) + value * share

    def _sum_named(self, name: str, shares: Sequence[Share]) -> Mapping[str, Tensor]:
        """Named tensors, added as one where all of them lie the same way in their messages."""
        totals: Mapping[str, Tensor] = self._values.get(name, {})
        like = totals or shares[0][0]
        if isinstance(like, JoinedTensors) and all(
            isinstance(one, JoinedTensors) and (one.parts is like.parts or one.parts == like.parts) for one, _ in shares
        ):
            flat = _sum(like.flat if totals else None, [(one.flat, weight) for one, weight in shares])
            return totals or JoinedTensors(flat, like.parts)
        return {key: _sum(totals.get(key), [(value[key], weight) for value, weight in shares]) for key in shares[0][0]}


def _bytes(value: Any) -> int:
    if isinstance(value, JoinedTensors):
        return value.flat.nbytes
    return sum(tensor.nbytes for tensor in tensors_in(value))


def _sum(total: Tensor | None, shares: Sequence[tuple[Tensor, float]]) -> Tensor:
    """total + Σ weight · tensor, in place where there is a total, in float64 (int64 for whole numbers)."""
    if total is None:
        total, shares = _start_sum(*shares[0]), shares[1:]
    if not total.is_floating_point():
        for tensor, weight in shares:
            total.add_(tensor.to(torch.int64), alpha=int(weight))
    elif total.numel() <= BLOCK or not all(tensor.is_contiguous() for tensor in (total, *(one for one, _ in shares))):
        for tensor, weight in shares:
            total.add_(tensor, alpha=weight)
    elif shares:
        # torch widens a whole tensor before it adds it; a block at a time needs half the time, and less memory.
        widened = total.new_empty(BLOCK)
        parts = [(tensor.view(-1), weight) for tensor, weight in shares]
        for start in range(0, total.numel(), BLOCK):
            into = total.view(-1)[start : start + BLOCK]
            for part, weight in parts:
                into.add_(widened[: len(into)].copy_(part[start : start + BLOCK]), alpha=weight)
    return total


def _start_sum(tensor: Tensor, weight: float) -> Tensor:
    """weight · tensor, as a total of its own."""
    wide = torch.float64 if tensor.is_floating_point() else torch.int64
    if tensor.numel() > BLOCK and tensor.is_cpu and tensor.is_contiguous():
        memory = torch.from_numpy(aligned_bytes(tensor.numel() * wide.itemsize))
        total = memory.view(wide).view(tensor.shape).copy_(tensor)
    else:
        total = tensor.to(wide, copy=True)
    return total.mul_(weight if tensor.is_floating_point() else int(weight)) if weight != 1.0 else total


def _is_whole(value: Any) -> bool:
    if isinstance(value, int | float):
        return isinstance(value, int)
    return not all(map(torch.is_floating_point, tensors_in(value)))


def _size(value: Any, weight: float) -> float:
    """What no entry of weight · value is larger than; 0 where it is too small to matter in a sum."""
    if isinstance(value, int | float):
        return abs(value) * weight
    sizes = [0.0]
    for tensor in tensors_in(value):
        if tensor.dtype in (torch.float64, torch.int64) and tensor.numel():
            low, high = (float(edge) for edge in torch.aminmax(tensor))
            sizes.append(math.inf if math.isnan(low) else max(-low, high))
        elif not tensor.is_floating_point():
            sizes.append(2.0**32)
    return max(sizes) * weight


class RowAccumulator:
    """Adds up rows by their ids, in float64, in the order given; holds the sums and nothing else."""

    def __init__(self, width: int) -> None:
        self._ids = torch.zeros(0, dtype=torch.int64)
        self._places = torch.zeros(0, dtype=torch.int64)  # where the row of each id stands
        self._rows = torch.zeros(0, width, dtype=torch.float64)
        self.clients: list[ClientId] = []

    def add(self, client: ClientId, message: Message, shapes: object = None) -> None:
        """Add the fields ``ids`` and ``rows`` of one client's message.

        Raises:
            MessageError: It has no such fields, ids do not ascend, or rows have another width.
        """
        ids, rows = getattr(message, "ids", None), getattr(message, "rows", None)
        if not isinstance(ids, Tensor) or not isinstance(rows, Tensor) or ids.dtype is not torch.int64:
            raise MessageError(
                f"{type(message).__name__} cannot be added up by rows: it needs the fields ids [n] int64 and "
                f"rows [n, d] of floats."
            )
        if ids.dim() != 1 or rows.dim() != 2 or len(ids) != len(rows) or bool((ids[1:] <= ids[:-1]).any()):
            raise MessageError(
                f"{type(message).__name__}.ids must be one ascending number for each row; {tuple(ids.shape)} came with "
                f"rows {tuple(rows.shape)}, in another order or twice."
            )
        if rows.shape[1] != self._rows.shape[1]:
            raise MessageError(
                f"{type(message).__name__}.rows must have {self._rows.shape[1]} columns; {rows.shape[1]} came."
            )
        known = torch.isin(ids, self._ids)
        new, count = ids[~known], len(self._ids)
        if count + len(new) > len(self._rows):
            # Twice as much room as is needed, so that rows are copied once or twice in all.
            grown = self._rows.new_zeros(2 * (count + len(new)) if count else len(new), rows.shape[1])
            grown[:count] = self._rows[:count]
            self._rows = grown
        self._ids, order = torch.cat([self._ids, new]).sort()
        self._places = torch.cat([self._places, torch.arange(count, count + len(new))])[order]
        self._rows.index_add_(0, self._places[torch.searchsorted(self._ids, ids)], rows.double())
        self.clients.append(client)

    def sums(self) -> tuple[Tensor, Tensor]:
        """The ids, ascending, and the sum of each one's rows."""
        return self._ids, self._rows[self._places]
