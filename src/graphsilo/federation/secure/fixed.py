"""Numbers as integers modulo 2^64, so that masks can be added to them and sums do not depend on their order.

Whole numbers stay what they are. Of a float x, weighted by w, there are two forms:

- with a weight, one word: ``rint(w · x · 2^F)`` with F = 50 - bits - log2 n, where ``bits`` is the bit length of the
  largest weight of anybody and n the number of clients (10 clients with up to 1023 items each: F = 36). A sum of n is
  off by n · 2^-(F+1) at most, a mean over weights by less than n² · 2^-48, whatever the weights are; x can be as large
  as 4096.
- without, two words: digits to the base 2^50 of ``rint(x · 2^56)``, both with the sign of x, which hold sums up to
  2^56. How large its numbers are no client says: a question that makes them large or small by what a row holds would
  ask for that row.
- where entries of one field differ by more than that, as the sums of columns with units of their own do, three words
  (``sends(words=3)``) of ``rint(x · 2^80)``, which hold sums up to 2^82.

Nothing overflows: a number that is too large is refused by the client that has it, before anything leaves.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.errors import MessageError, quote
from graphsilo.federation.accumulator import check_additive
from graphsilo.federation.message import FieldSpec, Message

Words: TypeAlias = "NDArray[np.uint64]"

BLOCK = 1 << 16
"""Words that are worked on at once: half a megabyte, which stays in a processor's cache."""
MAX_PARTIES = 1 << 12
"""Most clients of one sum: so many digits to the base 2^50 fit into a word."""
MAX_WORDS = 1 << 31
"""Most words of one client's answer that a coordinator makes room for."""

_ONE_WORD = 50
LARGEST_WEIGHTED = 2.0**12
"""Most that |x| of a weighted float is."""
_WHOLE = 62
"""Binary digits of a whole number; one more is its sign's, and one is left over."""
_BASE = 50
_FRACTION = {2: 56, 3: 80}
"""F of a float without a weight, by its words."""
MOST_BITS = 16
"""How many bits one client's weight may have above the middle of the others': with more, a float32 number of theirs
would be left with fewer than its 24 digits, as all are scaled by the largest."""


def headroom(parties: int) -> int:
    """log2 of the number of clients, rounded up."""
    return max(0, parties - 1).bit_length()


@dataclass(frozen=True)
class Part:
    """One tensor or number of a message.

    Attributes:
        field: Its field.
        key: Its name among named tensors, its place in a list; None where the field is one tensor or number.
        shape: Of the tensor; () for a number.
        whole: Whether it holds whole numbers.
        spec: What the field declares.
    """

    field: str
    key: str | int | None
    shape: tuple[int, ...]
    whole: bool
    spec: FieldSpec

    @property
    def entries(self) -> int:
        return math.prod(self.shape)

    @property
    def weighted(self) -> bool:
        return self.spec.weighted_by is not None

    @property
    def words(self) -> int:
        """Of each entry."""
        return 1 if self.whole or self.weighted else self.spec.words

    @property
    def where(self) -> str:
        return self.field if self.key is None else f"{self.field}[{self.key!r}]"


@dataclass(frozen=True)
class Layout:
    """What stands where in the words of an answer.

    Attributes:
        kind: Type of the answer.
        parts: Its tensors and numbers, in order.
        text: The same as text, which a client sends: names, shapes, and whether numbers are whole.
    """

    kind: type[Message]
    parts: tuple[Part, ...]
    text: str

    @property
    def words(self) -> int:
        """Of a whole answer."""
        return sum(part.words * part.entries for part in self.parts)

    def fraction(self, part: Part, bits: int, parties: int) -> int:
        """F: binary digits behind the point."""
        return _ONE_WORD - bits - headroom(parties) if part.weighted else _FRACTION[part.words]

    def largest(self, part: Part, bits: int, parties: int) -> float:
        """Largest size of an entry: of a whole number times its weight, of a float without it."""
        if part.whole:
            return 2.0 ** (_WHOLE - headroom(parties))
        if part.weighted:
            return LARGEST_WEIGHTED
        return 2.0 ** (_BASE * (part.words - 1) + _WHOLE - headroom(parties) - self.fraction(part, bits, parties))

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(f"{self.kind.wire_name()}\n{self.text}".encode()).digest()

    @property
    def fields(self) -> tuple[tuple[str, str, int], ...]:
        """Name, kind and bytes of each field, masked."""
        sizes = dict.fromkeys((spec.name for spec in self.kind.specs()), 0)
        for part in self.parts:
            sizes[part.field] += 8 * part.words * part.entries
        return tuple((spec.name, spec.kind, sizes[spec.name]) for spec in self.kind.specs())

    @classmethod
    def of(cls, message: Message) -> Layout:
        """The layout of an answer.

        Raises:
            MessageError: A field is missing, or cannot be summed.
        """
        found: list[list[Any]] = []
        for spec in message.specs():
            value = getattr(message, spec.name)
            if value is None:
                raise MessageError(f"{type(message).__name__}.{spec.name} is missing from a sum.")
            if spec.form == "plain":
                found.append([spec.name, None, None, isinstance(value, int)])
            elif spec.form == "tensor":
                found.append([spec.name, None, *_describe(value)])
            elif isinstance(value, Mapping):
                found += [[spec.name, key, *_describe(tensor)] for key, tensor in value.items()]
            else:
                found += [[spec.name, place, *_describe(tensor)] for place, tensor in enumerate(value)]
        return cls.read(type(message), json.dumps(found, separators=(",", ":"), ensure_ascii=True))

    @classmethod
    def read(cls, kind: type[Message], text: str) -> Layout:
        """The layout that a client sent.

        Raises:
            MessageError: It is none of this type, or too large.
        """
        specs = {spec.name: spec for spec in kind.specs()}
        check_additive(kind)
        try:
            parts = tuple(_part(specs, row) for row in json.loads(text))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise MessageError(f"{kind.__name__}: the layout of its sum cannot be read ({quote(error)}).") from None
        missing = [
            name for name, spec in specs.items() if spec.form in ("plain", "tensor") and not _is_single(name, parts)
        ]
        if missing or len({(part.field, part.key) for part in parts}) < len(parts):
            what = f"lacks {missing[0]}" if missing else "names something twice"
            raise MessageError(f"{kind.__name__}: the layout of its sum {what}.")
        layout = cls(kind, parts, text)
        if layout.words > MAX_WORDS:
            raise MessageError(f"{kind.__name__}: a secure sum takes answers of up to {MAX_WORDS} words.")
        return layout


def describe_outweighing(bits: int, others: Sequence[int]) -> str:
    """By what a client's weight would take the digits from all others' numbers, in words; empty: by nothing.

    Fewer than a third may lie, and one of three: where so few others have weights that all may be lies, nobody is
    judged.

    Args:
        bits: Bit length of its largest weight.
        others: Those of the others.
    """
    some = [each for each in others if each > 0]  # who has no items says nothing
    if len(some) < 2 * max(1, len(others) // 3):
        return ""
    # With all who may lie below it, the upper middle one is still what somebody says who does not.
    middle = statistics.median_high(some)
    if bits <= middle + MOST_BITS:
        return ""
    return f"says that its weight is up to 2^{bits}, and the middle one of the others' is up to 2^{middle}"


def _is_single(name: str, parts: Sequence[Part]) -> bool:
    return sum(part.field == name for part in parts) == 1


def _describe(tensor: Tensor) -> tuple[list[int], bool]:
    return list(tensor.shape), not tensor.is_floating_point()


def _part(specs: Mapping[str, FieldSpec], row: Any) -> Part:
    name, key, shape, whole = row
    spec = specs[name]
    sizes = () if shape is None else tuple(shape)
    fits = {"plain": key is None, "tensor": key is None, "tensors": isinstance(key, str), "tensor_list": _is_size(key)}
    if (shape is None) != (spec.form == "plain") or not fits[spec.form] or not all(map(_is_size, sizes)):
        raise ValueError(f"'{name}' is declared otherwise")
    if not isinstance(whole, bool):
        raise TypeError("whole or not")
    return Part(name, key, sizes, whole, spec)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40


# -- encoding ----------------------------------------------------------------------------------------------------------


def bits_of(layout: Layout, message: Message) -> int:
    """Bit length of the largest weight in a client's answer; 0 where it has none.

    Raises:
        MessageError: A weight or a number cannot be one.
    """
    weights = [_weight(message, spec) for spec in message.specs() if spec.weighted_by is not None]
    bits = max((math.ceil(weight).bit_length() for weight in weights), default=0)
    for part in layout.parts:
        flat = _flatten(getattr(message, part.field), part)
        if not np.isfinite(flat).all():
            raise MessageError(
                f"{layout.kind.__name__}.{part.field} contains NaN or infinity, of which there is no sum."
            )
        if part.words > 1 and flat.size and np.abs(flat).max() > (limit := layout.largest(part, 0, 2)):
            raise MessageError(f"{layout.kind.__name__}.{part.where} {_describe_too_large(limit, 'a secure sum')}")
    return bits


def _weight(message: Message, spec: FieldSpec) -> float:
    given = getattr(message, str(spec.weighted_by))
    weight = -1.0 if given is None else float(given)
    if not 0 <= weight < math.inf:
        raise MessageError(
            f"{type(message).__name__}.{spec.weighted_by} is a weight and must be at least 0; {given} came."
        )
    return weight


def _describe_too_large(limit: float, what: str) -> str:
    """The rest of a sentence, without the number itself: the coordinator reads it."""
    return (
        f"holds more than {limit:.3g}, the most that {what} takes of each client. Scale the features, lower the "
        f"learning rate, or add up in plain (run.secure_sums=false)."
    )


class Encoding:
    """An answer as words, once ``bits_of`` has looked at its numbers.

    Args:
        layout: Of the answer.
        message: The answer.
        bits: Of the largest weight of all clients.
        parties: How many there are.

    Raises:
        MessageError: A number is too large, or a weight cannot be one.
    """

    def __init__(self, layout: Layout, message: Message, *, bits: int, parties: int):
        if not 0 < parties <= MAX_PARTIES:
            raise MessageError(f"a secure sum has up to {MAX_PARTIES} clients; {parties} came.")
        self.layout, self.bits, self.parties = layout, bits, parties
        self._parts: list[tuple[Part, NDArray[Any], float]] = []
        for part in layout.parts:
            weight = 1.0 if part.spec.weighted_by is None else _weight(message, part.spec)
            flat = _flatten(getattr(message, part.field), part)
            self._check(part, flat, weight)
            self._parts.append((part, flat, weight))

    def _check(self, part: Part, flat: NDArray[Any], weight: float) -> None:
        if not flat.size:
            return
        name = f"{self.layout.kind.__name__}.{part.where}"
        low, high = float(flat.min()), float(flat.max())
        size, limit = max(-low, high), self.layout.largest(part, self.bits, self.parties)
        if part.whole:
            if weight != int(weight):
                raise MessageError(
                    f"{name} holds whole numbers, which its weight would make fractions; send them as floats."
                )
            size *= weight
        if size > limit:
            raise MessageError(f"{name} {_describe_too_large(limit, f'a secure sum of {self.parties} clients')}")
        if part.weighted and math.ceil(weight).bit_length() > self.bits:
            raise MessageError(f"{name}: its weight has more than the {self.bits} bits that were agreed on.")

    def blocks(self) -> Iterator[Words]:
        """The words in order, some at a time; each block is written over by the next."""
        room = np.empty(BLOCK, dtype=np.uint64)
        filled = 0
        for part, flat, weight in self._parts:
            for word in range(part.words):
                start = 0
                while start < flat.size:
                    stop = min(start + BLOCK - filled, flat.size)
                    room[filled : filled + stop - start] = self._words(part, flat[start:stop], weight, word)
                    filled += stop - start
                    start = stop
                    if filled == BLOCK:
                        yield room
                        filled = 0
        if filled:
            yield room[:filled]

    def _words(self, part: Part, values: NDArray[Any], weight: float, word: int) -> Words:
        if part.whole:
            return (values.astype(np.int64) * int(weight)).view(np.uint64)
        wide = values.astype(np.float64)
        if part.words == 1:
            scaled = np.rint(np.ldexp(wide * weight, self.layout.fraction(part, self.bits, self.parties)))
            return scaled.astype(np.int64).view(np.uint64)
        scaled = np.rint(np.ldexp(np.abs(wide), self.layout.fraction(part, self.bits, self.parties)))
        for _ in range(word):
            scaled = np.floor(np.ldexp(scaled, -_BASE))
        if word < part.words - 1:  # the last digit has all that is left
            scaled -= np.ldexp(np.floor(np.ldexp(scaled, -_BASE)), _BASE)
        digits = scaled.astype(np.int64)
        np.negative(digits, where=wide < 0, out=digits)
        return digits.view(np.uint64)


def _flatten(value: Any, part: Part) -> NDArray[Any]:
    if part.spec.form == "plain":
        if part.whole and abs(value) >= 1 << 63:
            raise MessageError(f"{part.where} holds {value:.3g}, larger than a number can be.")
        return np.array([value], dtype=np.int64 if part.whole else np.float64)
    tensor: Tensor = value if part.key is None else value[part.key]
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.float()
    array: NDArray[Any] = tensor.detach().cpu().reshape(-1).numpy()
    return array


# -- decoding ----------------------------------------------------------------------------------------------------------


def decode(layout: Layout, words: Words, *, bits: int, parties: int) -> dict[str, Any]:
    """The fields of the sum: floats in float64, whole numbers in int64.

    Args:
        layout: Of each answer.
        words: Their sum modulo 2^64, [layout.words].
        bits, parties: As when they were encoded.

    Raises:
        MessageError: Somebody has added what the fixed point of nobody holds.
    """
    signed = words.view(np.int64)
    if signed.size and max(int(signed.max()), -int(signed.min())) > 1 << _WHOLE:
        raise MessageError(f"{layout.kind.__name__} holds larger numbers than {parties} clients can add up to.")
    found: dict[str, Any] = {spec.name: _empty(spec) for spec in layout.kind.specs()}
    start = 0
    for part in layout.parts:
        digits = []
        for _ in range(part.words):
            digits.append(words[start : start + part.entries].view(np.int64))
            start += part.entries
        values = digits[0].copy() if part.whole else _join_digits(digits, layout.fraction(part, bits, parties))
        if part.spec.form == "plain":
            found[part.field] = int(values[0]) if part.whole else float(values[0])
            continue
        tensor = torch.from_numpy(values).view(part.shape)
        if part.key is None:
            found[part.field] = tensor
        elif isinstance(part.key, str):
            found[part.field][part.key] = tensor
        else:
            found[part.field].append(tensor)
    return found


def _empty(spec: FieldSpec) -> Any:
    return {"tensors": dict, "tensor_list": list}.get(spec.form, lambda: None)()


def _join_digits(digits: Sequence[NDArray[np.int64]], behind: int) -> NDArray[np.float64]:
    carried = list(digits)
    for place in range(len(carried) - 1):  # the lower digits between 0 and the base
        carry = carried[place] >> _BASE
        carried[place] = carried[place] - (carry << _BASE)
        carried[place + 1] = carried[place + 1] + carry
    total = np.zeros(carried[0].shape)
    for place in reversed(range(len(carried))):
        total += np.ldexp(carried[place].astype(np.float64), _BASE * place - behind)
    return total
