"""Messages: frozen, typed records of tensors and plain values, each field declaring what it discloses.

Raw node features and labels have no kind of disclosure, so no message can carry them.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, cast, dataclass_transform, get_args, get_origin

import torch
from torch import Tensor

from graphsilo.errors import MessageError, nearest

Kind: TypeAlias = Literal[
    "model", "gradient", "prototype", "statistic", "embedding", "generator", "synthetic", "counts", "topology",
    "logits", "score", "control",
]  # fmt: skip

KINDS: dict[str, str] = {
    "model": "model weights",
    "gradient": "gradients of a loss",
    "prototype": "class prototypes: mean embeddings of many nodes",
    "statistic": "additive statistics of many nodes",
    "embedding": "embeddings of single nodes",
    "generator": "weights of a feature generator",
    "synthetic": "synthetic nodes that were learned, not observed",
    "counts": "how many items there are of something, confusion counts included",
    "topology": "facts about edges",
    "logits": "predictions of single nodes",
    "score": "one number that says how good a model is",
    "control": "settings and message headers, nothing about the data",
}
"""What each kind of disclosure means, in words a data owner understands."""

Tensors: TypeAlias = Mapping[str, Tensor]
"""Named tensors, such as the weights of a model."""

M = TypeVar("M", bound="Message")


@dataclasses.dataclass(frozen=True)
class FieldSpec:
    """What the codec knows of one field.

    Attributes:
        name: Of the field.
        kind: What it discloses.
        form: ``tensor``, ``tensors`` (named), ``tensor_list`` or ``plain``.
        optional: Whether None is allowed.
        plain_type: For plain values, the type they are checked against.
        shape: Per dimension a number or a name; one name means one size throughout the message. None: any shape.
        allow_nan: Whether NaN and infinity may pass.
        weighted_by: For sums: the field whose value this one counts with.
        required: Whether the sender must fill it in.
        has_floats: Whether a plain value may hold a float, hence NaN.
        relayed: Whether the server passes the field on to other clients as it came.
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
    relayed: bool = False


def sends(
    kind: Kind,
    *,
    shape: tuple[int | str, ...] | None = None,
    allow_nan: bool = False,
    weighted_by: str | None = None,
    relayed: bool = False,
    default: Any = dataclasses.MISSING,
) -> Any:
    """Declare a message field and what it discloses.

    Args:
        kind: One of the kinds in ``KINDS``.
        shape: Expected shape of a tensor: numbers, or names that must agree within the message.
        allow_nan: Let NaN and infinity through.
        weighted_by: In a sum, count this field times that one: the wire carries a model and its weight, the server
            receives only Σ weight · model and Σ weight.
        relayed: The server passes the field on to other clients as it came, not mixed with anybody else's.
        default: Value when the sender leaves the field out.

    Raises:
        MessageError: The kind is not declared.
    """
    if kind not in KINDS:
        raise MessageError(f"'{kind}' is no kind of disclosure; {nearest(kind, KINDS)}")
    metadata = {"kind": kind, "shape": shape, "allow_nan": allow_nan, "weighted_by": weighted_by, "relayed": relayed}
    return dataclasses.field(default=default, metadata=metadata)


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
        """Name on the wire, e.g. ``fedavg.TrainReply``."""
        return f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}"

    @classmethod
    def specs(cls) -> tuple[FieldSpec, ...]:
        """The fields in order, with their types resolved."""
        if cls.__fields is None:
            hints = _hints(cls)
            cls.__fields = tuple(_spec(cls, field, hints[field.name]) for field in dataclasses.fields(cast("Any", cls)))
        return cls.__fields

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


class Empty(Message):
    """Nothing but the call itself."""


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


def _spec(cls: type[Message], field: dataclasses.Field, annotation: Any) -> FieldSpec:
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
    meta = field.metadata
    return FieldSpec(
        name=field.name,
        kind=meta["kind"],
        form=form,
        optional=optional,
        plain_type=inner,
        shape=meta["shape"],
        allow_nan=meta["allow_nan"],
        weighted_by=meta["weighted_by"],
        required=field.default is dataclasses.MISSING,
        has_floats="float" in str(inner),
        relayed=meta["relayed"],
    )
