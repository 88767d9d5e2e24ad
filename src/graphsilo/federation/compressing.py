"""Models on their way to the server in fewer bytes: their change in 8 bits, or the largest entries of it alone.

A client answers with what it made of the model that it was sent. Compressed, it says by how much that changed, and of
the change only what the chosen way leaves. What is left out is kept at the client and added to its next change (error
feedback, Seide et al. 2014; Stich, Cordonnier, Jaggi 2018; Karimireddy et al. 2019), so that nothing is lost for good.

Applies to fields of answers that hold named float32 tensors of a *model* with the names and shapes of a field of the
request. All others, and all requests, go as they are.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.message import FieldSpec, Message, Tensors, derive_type, diff_shapes, shapes_of
from graphsilo.federation.wire import describe_too_large
from graphsilo.types import Compressing

ReplyT = TypeVar("ReplyT", bound=Message)

_LEVELS = 127
_PARTS: dict[Compressing, dict[str, torch.dtype]] = {
    "int8": {"levels": torch.int8, "scales": torch.float32},
    "topk": {"values": torch.float32, "indices": torch.int32},
}
"""What stands in a compressed field: vectors over all its tensors, one behind the other, in the request's order.

``int8``: each entry as a multiple from -127 to 127 of its tensor's scale, and the scale of each tensor. ``topk``: the
entries of largest size, and their ascending places.
"""


@dataclass(frozen=True)
class Compressor:
    """Compresses models in one way; attributes as of ``Compression``, whose way is not ``none``."""

    way: Compressing
    share: float

    def find_carrier(self, request: type[Message], reply: type[Message]) -> type[Message]:
        """The message that carries an answer: the answer itself where nothing of it is compressed."""
        return _derive_type(cast("Hashable", request), cast("Hashable", reply), self.way)

    def compress(self, handler: str, request: Message, reply: Message, kept: dict[str, Tensor]) -> Message:
        """The message that carries an answer.

        Args:
            handler: The step that was asked for.
            request: What asked for it.
            reply: The answer.
            kept: What the client has left out so far, by step and field; what it leaves out now is noted there.

        Raises:
            MessageError: The answer's model is not that of the request, or contains NaN or infinity.
        """
        kind = self.find_carrier(type(request), type(reply))
        if kind is type(reply):
            return reply
        values = {spec.name: getattr(reply, spec.name) for spec in reply.specs()}
        for spec in compressible(type(request), type(reply)):
            old, new = _get_base(spec, request), values[spec.name]
            if new is None or old is None:
                raise MessageError(f"{type(reply).__name__}.{spec.name} is missing, and was to be compressed.")
            if shapes_of(new) != shapes_of(old):
                mine, theirs = diff_shapes(shapes_of(new), shapes_of(old)), diff_shapes(shapes_of(old), shapes_of(new))
                raise MessageError(
                    f"{type(reply).__name__}.{spec.name} has {mine}, what it was asked with has {theirs}: their "
                    f"difference cannot be compressed. Run without run.compression."
                )
            change = torch.cat([(new[name].detach().cpu() - old[name].cpu()).view(-1) for name in old])
            place = f"{handler}/{spec.name}"
            if place in kept:
                change += kept[place]
            if not bool(torch.isfinite(change).all()):
                raise MessageError(
                    f"{type(reply).__name__}.{spec.name} contains NaN or infinity, which cannot be compressed. Lower "
                    f"the learning rate, or scale the features."
                )
            sizes = [tensor.numel() for tensor in old.values()]
            values[spec.name] = parts = self._parts(change, sizes)
            kept[place] = change - self._change(parts, sizes)
        return kind(**values)

    def restore(self, message: Message, request: Message, reply: type[ReplyT], largest: float) -> ReplyT:
        """The answer in a message that carries it.

        Args:
            message: Of the type that ``find_carrier`` gives.
            request: What was asked.
            reply: Type of the answer.
            largest: Largest size of a weight that is taken.

        Raises:
            MessageError: It does not say what a change of this request's model is, or a weight is too large with it.
        """
        values = {spec.name: getattr(message, spec.name) for spec in message.specs()}
        for spec in compressible(type(request), reply):
            where, old, parts = f"{reply.__name__}.{spec.name}", _get_base(spec, request), values[spec.name]
            if old is None or parts is None:
                raise MessageError(f"{where} is missing, and was to be compressed.")
            sizes = [tensor.numel() for tensor in old.values()]
            self._check(parts, sizes, where)
            changes = self._change(parts, sizes).split(sizes)
            new = {
                name: tensor + change.view(tensor.shape)
                for (name, tensor), change in zip(old.items(), changes, strict=True)
            }
            size = max((float(tensor.abs().max()) for tensor in new.values() if tensor.numel()), default=0.0)
            if not size <= largest:
                raise MessageError(describe_too_large(where, size, largest))
            values[spec.name] = new
        return reply(**values)

    def _count(self, entries: int) -> int:
        """How many entries ``topk`` sends."""
        return min(entries, max(1, int(entries * self.share + 1e-9)))

    def _parts(self, change: Tensor, sizes: list[int]) -> dict[str, Tensor]:
        """What is sent of a change."""
        if self.way == "int8":
            largest = [part.abs().max() if len(part) else change.new_zeros(()) for part in change.split(sizes)]
            scales = torch.stack(largest) / _LEVELS
            steps = _each(scales, sizes)
            levels = torch.where(steps > 0, change / steps, 0.0).round_().clamp_(-_LEVELS, _LEVELS)
            return {"levels": levels.to(torch.int8), "scales": scales}
        count, size = self._count(len(change)), change.abs()
        least = size.kthvalue(len(size) - count + 1).values if count else size.new_zeros(())
        above = (size > least).nonzero().view(-1)
        # Of entries of the same size the first ones: which they are must not depend on how torch sorts.
        ties = (size == least).nonzero().view(-1)[: count - len(above)]
        indices = torch.cat([above, ties]).sort().values
        return {"values": change[indices], "indices": indices.to(torch.int32)}

    def _change(self, parts: Tensors, sizes: list[int]) -> Tensor:
        """The change that is said by what was sent."""
        if self.way == "int8":
            return parts["levels"].to(torch.float32) * _each(parts["scales"], sizes)
        change = torch.zeros(sum(sizes))
        change[parts["indices"].long()] = parts["values"]
        return change

    def _check(self, parts: Tensors, sizes: list[int], where: str) -> None:
        """Refuse what no client that keeps to the rules has sent; numbers by themselves were looked at before."""
        entries, count = sum(sizes), self._count(sum(sizes))
        wanted = {"levels": entries, "scales": len(sizes), "values": count, "indices": count}
        for name, dtype in _PARTS[self.way].items():
            came = parts.get(name)
            if came is None or came.dtype is not dtype or tuple(came.shape) != (wanted[name],) or len(parts) != 2:
                found = {other: tuple(tensor.shape) for other, tensor in list(parts.items())[:3]}
                raise MessageError(
                    f"{where} was to hold {name} of {wanted[name]} {str(dtype).removeprefix('torch.')} entries; "
                    f"{str(found)[:200]} came. All clients must run the same release with the same settings."
                )
        if self.way == "int8":
            if bool((parts["scales"] < 0).any()) or bool((parts["levels"] < -_LEVELS).any()):
                raise MessageError(f"{where} holds a scale below 0 or a level below -{_LEVELS}; no change has these.")
        elif count:
            places = parts["indices"]
            if int(places[0]) < 0 or int(places[-1]) >= entries or bool((places[1:] <= places[:-1]).any()):
                raise MessageError(
                    f"{where} holds places of entries that do not ascend from 0 to {entries - 1}: one stands twice, "
                    f"in another order, or outside the model."
                )


def compressible(request: type[Message], reply: type[Message]) -> tuple[FieldSpec, ...]:
    """The fields of an answer that can be compressed: a model's tensors with the names and shapes of the request's."""
    models = {spec.name for spec in request.specs() if spec.form == "tensors" and spec.dtypes == (torch.float32,)}
    return tuple(
        spec
        for spec in reply.specs()
        if spec.kind == "model" and spec.form == "tensors" and spec.dtypes == (torch.float32,) and not spec.allow_nan
        and not spec.optional and (spec.like or spec.name) in models
    )  # fmt: skip


@cache
def _derive_type(request: Any, reply: Any, way: Compressing) -> type[Message]:
    fields = dict.fromkeys((spec.name for spec in compressible(request, reply)), tuple(_PARTS[way].values()))
    return derive_type(reply, way, fields) if fields else cast("type[Message]", reply)


def _get_base(spec: FieldSpec, request: Message) -> Mapping[str, Tensor] | None:
    return cast("Mapping[str, Tensor] | None", getattr(request, spec.like or spec.name))


def _each(scales: Tensor, sizes: list[int]) -> Tensor:
    """The scale of every entry."""
    return torch.repeat_interleave(scales, torch.tensor(sizes))
