"""Messages: frozen, typed records of tensors and plain values, each field declaring what it discloses.

Raw node features and labels have no kind of disclosure, so no message can carry them.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, cast, dataclass_transform, get_args, get_origin

import torch
from torch import Tensor

from graphsilo.errors import MessageError, nearest, several
from graphsilo.federation.kinds import KINDS as KINDS
from graphsilo.federation.kinds import Kind as Kind

Tensors: TypeAlias = Mapping[str, Tensor]
"""Named tensors, such as the weights of a model."""

DTYPES: dict[str, torch.dtype] = {
    "f4": torch.float32, "f8": torch.float64, "f2": torch.float16, "b2": torch.bfloat16, "i8": torch.int64,
    "i4": torch.int32, "i2": torch.int16, "i1": torch.int8, "u1": torch.uint8, "bo": torch.bool,
}  # fmt: skip
"""Types that a tensor can have in a message, and what each is called on the wire."""

M = TypeVar("M", bound="Message")


@dataclasses.dataclass(frozen=True)
class FieldSpec:
    """What is known of one field: what its ``sends`` says, and what its type says.

    Attributes:
        name: Of the field.
        form: ``tensor``, ``tensors`` (named), ``tensor_list`` or ``plain``.
        optional: Whether None is allowed.
        plain_type: For plain values, the type they are checked against.
        required: Whether the sender must fill it in.
        has_floats: Whether a plain value may hold a float, hence NaN.
        only_with: Settings of the method without which the field is not sent, as (name, value).
        dtypes: Types that its tensors may have.
    """

    name: str
    kind: Kind
    form: Literal["tensor", "tensors", "tensor_list", "plain"]
    optional: bool
    plain_type: Any
    shape: tuple[int | str, ...] | None
    allow_nan: bool
    weighted_by: str | None
    required: bool
    has_floats: bool
    relayed: bool
    per_class: bool | str | None
    only_with: tuple[tuple[str, Any], ...]
    recoverable: bool | str
    dtypes: tuple[torch.dtype, ...]
    largest: float | None
    like: str | None
    words: int
    compared: bool
    whole: bool
    evaluated: bool | str
    known: bool
    steady: tuple[str, ...]

    def is_sent(self, config: Any) -> bool:
        """Whether it is sent at all with these settings of the method."""
        return all(getattr(config, name, value) == value for name, value in self.only_with)

    @property
    def where_recoverable(self) -> str:
        """When it gives features away, to be put behind words that say so; empty where it always does."""
        return f" {self.recoverable}" if isinstance(self.recoverable, str) else ""


def sends(
    kind: Kind,
    *,
    dtype: torch.dtype | tuple[torch.dtype, ...] = torch.float32,
    shape: tuple[int | str, ...] | None = None,
    allow_nan: bool = False,
    weighted_by: str | None = None,
    relayed: bool = False,
    per_class: bool | str | None = None,
    only_with: Mapping[str, Any] | None = None,
    recoverable: bool | str = False,
    largest: float | None = None,
    like: str | None = None,
    words: int = 2,
    compared: bool = True,
    whole: bool | None = None,
    evaluated: bool | str = False,
    known: bool = False,
    steady: tuple[str, ...] = (),
    default: Any = dataclasses.MISSING,
) -> Any:
    """Declare a message field and what it discloses.

    Args:
        kind: One of the kinds in ``KINDS``.
        dtype: Type of a tensor (of each of several), or the types it may have. Any other is refused at both ends.
        shape: Expected shape of a tensor: numbers, or names that must agree within the message.
        allow_nan: Let NaN and infinity through.
        weighted_by: In a sum, count this field times that one: the wire carries a model and its weight, the server
            receives only Σ weight · model and Σ weight.
        relayed: The server passes the field on to other clients as it came, not mixed with anybody else's.
        per_class: Whether the field describes the sender's classes one by one. If so, the first axis of a tensor (of
            each of named tensors, a plain list) is divided evenly among the classes, in their order, and what is 0
            there says nothing. The name of a setting of the method says so, too, and that classes with fewer items
            than this setting are left 0. False: it says nothing of classes. A silo with ``policy.min_class_count``
            does not send prototypes, statistics and synthetic nodes that leave it open, unless with noise that
            ``policy.max_epsilon`` bounds.
        only_with: Settings of the method without which the field is never sent, such as ``{"exchange": "outputs"}``:
            a silo that does not let it out can still take part with others.
        recoverable: Whoever sees the field (and what it answers) can compute features of single nodes from it. A silo
            sends it only where its owner said so. A text says when, where that is not always: owners read it, and the
            field leaves.
        largest: Largest size of a number that is taken from a client, where the one of the kind (``kinds.LARGEST``;
            of weights ``run.largest_value``) does not fit.
        like: In an answer: the field of the request whose names and shapes it has. Without it, it is compared with
            the field of its own name, if there is one. A client that sends others has failed.
        words: Words of 64 bits that a float without a weight has in a secure sum: 2 hold sums up to 2^56 to the 2^-57;
            3, for entries of very different sizes that all matter, sums up to 2^82 to the 2^-81.
        compared: Between machines, a client whose numbers are far larger than most others' has failed (``outliers``).
            False where honest silos may differ as much.
        whole: Whether its numbers are whole and at least 0; a client that answers with others has failed. What is of
            kind ``counts`` is, unless a field of weights or means says False.
        evaluated: Whether it says how well items are predicted: of kind ``counts``, tables of hits and misses, one for
            each entry of the first axis (of named tensors, one each), or just how many items, with "each" in every
            number; of kind ``score``, by name, values and how many items each rests on, in a list in turn, in a tensor
            in two rows. Those over fewer items than a silo's ``policy.min_evaluation_count`` do not leave it.
        known: Whether everybody knows the number before it is sent, whatever was asked: the 1 of a client that is
            done, or what stands on its card. An answer of nothing else is summed with anybody, as often as one likes.
        steady: Names of a number that a client says in several answers of a run, between machines the same in all, or
            it has failed; with two names it is one of both. Sums that are divided by each other need it.
        default: Value when the sender leaves the field out.

    Raises:
        MessageError: The kind is not declared, or no message can carry a type.
    """
    if kind not in KINDS:
        raise MessageError(f"'{kind}' is no kind of disclosure; {nearest(kind, KINDS)}")
    dtypes = dtype if isinstance(dtype, tuple) else (dtype,)
    strange = [one for one in dtypes if one not in DTYPES.values()]
    if strange or not dtypes:
        raise MessageError(
            f"no message carries tensors of {strange[0] if strange else 'no type'}; types are "
            f"{', '.join(map(str, DTYPES.values()))}."
        )
    if words not in (2, 3):
        raise MessageError(f"a float has 2 or 3 words in a secure sum; {words} were declared.")
    metadata = {
        "kind": kind, "shape": shape, "allow_nan": allow_nan, "weighted_by": weighted_by, "relayed": relayed,
        "per_class": per_class, "only_with": tuple((only_with or {}).items()), "recoverable": recoverable,
        "dtypes": dtypes, "largest": largest, "like": like, "words": words,
        "compared": compared, "whole": kind == "counts" if whole is None else whole, "evaluated": evaluated,
        "known": known, "steady": steady,
    }  # fmt: skip
    return dataclasses.field(default=default, metadata=metadata)


_METHODS = "graphsilo.methods."


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(sends,))
class Message:
    """Base of everything that crosses a silo's boundary.

    Example:
        >>> class Hello(Message):
        ...     number: int = sends("counts")
        >>> Hello(number=3).number
        3
    """

    __fields: ClassVar[tuple[FieldSpec, ...] | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in inspect.get_annotations(cls):
            value = cls.__dict__.get(name)
            if not isinstance(value, dataclasses.Field) or "kind" not in value.metadata:
                raise MessageError(
                    f"{cls.__name__}.{name} declares no disclosure. Every field of a message says what it discloses: "
                    f'write `{name}: ... = sends("model")` with one of {", ".join(KINDS)}.'
                )
        dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)(cls)
        cls.__fields = None

    @classmethod
    def wire_name(cls) -> str:
        """Name on the wire: the method it was written for and its own, e.g. ``fedavg.TrainReply``."""
        module = cls.__module__
        if module.startswith(_METHODS):
            place = module.removeprefix(_METHODS).partition(".")[0]
        elif module == "__main__":
            place = Path(getattr(sys.modules[module], "__file__", None) or "notebook").stem
        else:
            place = _OPENED.sub(r"\1", module.rpartition(".")[2])
        return f"{place}.{cls.__name__}"

    @classmethod
    def specs(cls) -> tuple[FieldSpec, ...]:
        """The fields in order, with their types resolved."""
        if cls.__fields is None:
            hints = _hints(cls)
            cls.__fields = tuple(_spec(cls, field, hints[field.name]) for field in dataclasses.fields(cast("Any", cls)))
        return cls.__fields

    def check(self) -> None:
        """Refuse what cannot be, such as a sum of squares below 0.

        Called for every answer as it comes; the client whose answer it was has failed. What a field by itself can hold
        is refused before (``sends``): this is for what only several fields together, or their meaning, can say.

        Raises:
            MessageError: The numbers contradict themselves.
        """

    def check_answer(self, request: Message) -> None:
        """Refuse what cannot be the answer to this request, whatever data it was made of.

        Called for the answers of silos elsewhere, after ``check`` and once names and shapes are those of the request.

        Raises:
            MessageError: No data gives such numbers.
        """

    def check_size(self, request: Message, items: float, degrees: float) -> None:
        """Refuse what no silo of this size can say; by itself no count is above ``items`` already.

        Called after ``check_answer`` for the answers of silos elsewhere, and for secure sums of such silos with the
        sums of their sizes.

        Args:
            request: What was asked of it.
            items: What the silo said it holds.
            degrees: Sum over the nodes that it said it holds, a loop at each included; infinite where its links have
                weights.

        Raises:
            MessageError: It cannot.
        """

    def check_total(self, request: Message, clients: int) -> None:
        """Refuse what cannot be the sum of so many clients' answers: called where nobody saw the answers themselves.

        What a single answer is held against holds for sums as well, unless a message says otherwise.

        Raises:
            MessageError: No answers come to such a sum.
        """
        self.check()
        self.check_answer(request)

    def honest_silos(self) -> int:
        """How many silos that do not collude must be sure to be in the sum in which this answer leaves.

        More than 1 where each adds only its share of the noise that protects the sum: such an answer leaves masked, or
        not at all.
        """
        return 1

    def __repr__(self) -> str:
        parts = []
        for spec in self.specs():
            value = getattr(self, spec.name)
            if isinstance(value, Tensor):
                value = f"<{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}>"
            elif spec.form == "tensors" and value is not None:
                value = f"<{len(value)} tensors>"
            parts.append(f"{spec.name}={value}")
        return f"{type(self).__name__}({', '.join(parts)})"


_OPENED = re.compile(r"^graphsilo_own_(.+)_[0-9a-f]{12}$")
"""What the module of a person's own file is called (``own``): its messages have the names, hence the bytes, that they
have where the file was imported."""


class Empty(Message):
    """Nothing but the call itself."""


def derive_type(kind: type[Message], suffix: str, fields: Mapping[str, tuple[torch.dtype, ...]]) -> type[Message]:
    """A message with the fields of another one, of which some hold named tensors of other types.

    Args:
        kind: The other one.
        suffix: Stands behind its name on the wire, in brackets.
        fields: The types of the tensors in these fields.
    """
    hints, name = _hints(kind), f"{kind.wire_name()} ({suffix})"
    content: dict[str, Any] = {"__module__": kind.__module__, "__annotations__": {}}
    for field in dataclasses.fields(cast("Any", kind)):
        more = {"dtypes": fields[field.name], "like": None} if field.name in fields else {}
        content["__annotations__"][field.name] = Tensors if more else hints[field.name]
        content[field.name] = dataclasses.field(default=field.default, metadata={**field.metadata, **more})
    content["wire_name"] = classmethod(lambda cls: name)
    return type(f"{kind.__name__}_{suffix}", (Message,), content)


def _hints(cls: type) -> dict[str, Any]:
    """Resolved annotations, also for messages that are defined inside a function."""
    names: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        module = sys.modules.get(base.__module__)
        space = {**vars(typing), "Tensor": Tensor, "torch": torch, "Tensors": Tensors, **vars(module or types)}
        for name, annotation in inspect.get_annotations(base).items():
            names[name] = eval(annotation, space) if isinstance(annotation, str) else annotation
    return names


_PLAIN = (int, float, bool, str)


def _is_plain(annotation: Any) -> bool:
    if annotation in _PLAIN:
        return True
    if get_origin(annotation) not in (list, tuple, dict, Mapping):
        return False
    return all(item is Ellipsis or _is_plain(item) for item in get_args(annotation))


def _spec(cls: type[Message], field: dataclasses.Field[Any], annotation: Any) -> FieldSpec:
    inner, optional = annotation, False
    if get_origin(annotation) in (typing.Union, types.UnionType):
        options = [option for option in get_args(annotation) if option is not type(None)]
        optional = len(options) < len(get_args(annotation))
        inner = options[0] if len(options) == 1 else annotation
    form: Literal["tensor", "tensors", "tensor_list", "plain"] | None = None
    origin, arguments = get_origin(inner), get_args(inner)
    if inner is Tensor:
        form = "tensor"
    elif origin in (dict, Mapping) and len(arguments) == 2 and arguments[1] is Tensor:
        form = "tensors"
    elif origin in (list, tuple) and arguments and arguments[0] is Tensor:
        form = "tensor_list"
    elif _is_plain(inner):
        form = "plain"
    if form is None:
        raise MessageError(
            f"{cls.__name__}.{field.name} has type {annotation}, which no message can carry. Use a Tensor, named "
            f"Tensors (Mapping[str, Tensor]), a list of tensors, or numbers, truth values and text and lists of these."
        )
    return FieldSpec(
        name=field.name,
        form=form,
        optional=optional,
        plain_type=inner,
        required=field.default is dataclasses.MISSING,
        has_floats="float" in str(inner),
        **field.metadata,
    )


def tensors_in(value: Any) -> Iterable[Tensor]:
    """The tensors of a field."""
    if isinstance(value, Tensor):
        return (value,)
    return value.values() if isinstance(value, Mapping) else value


def numbers_in(value: Any) -> Iterator[Tensor]:
    """Tensors of a field, plain numbers among them; nothing where it was left out or holds text."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, int | float):
        yield torch.tensor(value, dtype=torch.float64)
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from numbers_in(item)


def message_shapes(message: Message) -> dict[str, Any]:
    """Names and shapes of a message's tensors, by field."""
    fields = [(spec.name, getattr(message, spec.name)) for spec in message.specs() if spec.form != "plain"]
    return {name: None if value is None else shapes_of(value) for name, value in fields}


def shapes_of(value: Any) -> Any:
    """Shapes of a tensor, or of each of several, by name where they have names."""
    if isinstance(value, Tensor):
        return _shape(value)
    if isinstance(value, Mapping):
        return {key: _shape(tensor) for key, tensor in value.items()}
    return [_shape(tensor) for tensor in value]


def _shape(tensor: Tensor) -> tuple[int | str, ...]:
    """Sizes, and whether the entries are whole numbers: those are summed in another type."""
    return tuple(tensor.shape) if tensor.is_floating_point() else (*tensor.shape, "whole numbers")


def diff_shapes(shapes: Any, others: Any) -> str:
    """What of some shapes is not in others, in a few words: names and sizes may come from somebody who lies."""
    if isinstance(shapes, Mapping):
        mine = [f"{name} {shape}" for name, shape in shapes.items() if others.get(name) != shape]
    elif isinstance(shapes, list):
        mine = [f"{len(shapes)} tensors", *(str(shape) for shape in shapes)]
    else:
        mine = [str(shapes)]
    return f"the shape {several(mine, 3)[:300]}" if mine else "nothing of that"


def expected_shapes(request: Message, kind: type[Message]) -> dict[str, Any]:
    """Names and shapes of an answer's fields, as far as the request says them."""
    sent = {spec.name: spec.form for spec in request.specs() if spec.form != "plain"}
    fields = [
        (spec.name, spec.like or spec.name) for spec in kind.specs() if sent.get(spec.like or spec.name) == spec.form
    ]
    known = [(name, getattr(request, like)) for name, like in fields]
    return {name: shapes_of(value) for name, value in known if value is not None}


def check_shapes(kind: type[Message], found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Refuse an answer whose tensors are not those of the request's field of the same name."""
    for name, wanted in expected.items():
        mine = found[name]
        if mine is not None and mine != wanted:
            raise MessageError(
                f"{kind.__name__}.{name} has {diff_shapes(mine, wanted)}; what it was asked with has "
                f"{diff_shapes(wanted, mine)}. All clients must run the same model and settings; an answer that is "
                f"meant to hold other tensors than the request needs a field of another name."
            )


class Done(Message):
    """The client has it; nothing about it is said."""

    clients: int = sends("counts", known=True)
