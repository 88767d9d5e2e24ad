"""Everything that a person can set: declared once, checked once, and refused in one wording.

A group of settings is a class whose fields are made by :func:`setting`. Methods, models, data, partitions, scenarios,
perturbations, a run's sections, a silo's file and a federation's file are such groups.

Example:
    >>> class Skew(Settings):
    ...     section: ClassVar[str] = "partition"
    ...     alpha: float = setting(1.0, "concentration; smaller means more skew", gt=0)
    >>> Skew.of({"alpha": 2}).alpha
    2.0
    >>> Skew.of({"alpha": -1})
    Traceback (most recent call last):
    graphsilo.errors.ConfigError: partition.alpha must be above 0; got -1.
    >>> Skew.of({"alhpa": 1}, owner="dirichlet")
    Traceback (most recent call last):
    graphsilo.errors.ConfigError: unknown setting 'partition.alhpa' for dirichlet; did you mean 'partition.alpha'?
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from graphsilo.errors import ConfigError, nearest, shown

ABOVE_ZERO: Literal["above 0"] = "above 0"
ABOVE_ONE: Literal["above 1"] = "above 1"
"""Conditions of ``setting``: the other setting is a number above it."""
Conditions: TypeAlias = Mapping[str, Sequence[Any] | Literal["above 0", "above 1"]]


SYNONYMS = {
    "learning_rate": "lr",
    "epochs": "local_epochs",
    "wd": "weight_decay",
    "hidden_channels": "hidden",
    "hidden_dim": "hidden",
    "num_layers": "layers",
    "num_clients": "clients",
    "num_rounds": "rounds",
    "fraction": "participation",
    "criterion": "evaluation.select_by",
}
"""Words that other tools have for settings, or an earlier version: with a section where that is another one."""


def setting(default: Any, description: str, *, source: str = "", when: Conditions | None = None, **bounds: Any) -> Any:
    """A setting of a group.

    Args:
        default: Its default; ``...`` where it must be given. A list or table is copied for every user.
        description: What it means, for people.
        source: Where the default comes from.
        when: For a setting that matters only where others matter and have certain values: those others and their
            values, ``{"optimizer": ("sgd",)}``, ``ABOVE_ZERO`` or ``ABOVE_ONE``; ``task`` is the run's. Where they have
            not, a run that is asked for it refuses it or remarks on it.
        bounds: ge, gt, le, lt, min_length.
    """
    extra: dict[str, Any] = {"source": source}
    if when is not None:
        extra["when"] = {name: values if above(values) is not None else list(values) for name, values in when.items()}
    return Field(default, description=description, json_schema_extra=extra, **bounds)


def above(values: Any) -> int | None:
    """What a condition wants the other setting to be above; None for one that lists values."""
    return {ABOVE_ZERO: 0, ABOVE_ONE: 1}.get(values) if isinstance(values, str) else None


Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
NotNegative: TypeAlias = Annotated[float, Field(ge=0)]
Positive: TypeAlias = Annotated[float, Field(gt=0)]
Count: TypeAlias = Annotated[int, Field(ge=0)]
WIDEST = 2**16
"""Columns of anything that settings say the width of, and most of what is kept side by side for each of them: no site
takes more memory by somebody else's word."""
Width: TypeAlias = Annotated[int, Field(ge=1, le=WIDEST)]
Widths: TypeAlias = Annotated[tuple[Width, ...], Field(min_length=1)]
"""Types of what stands in a list or is one of several things; a plain number has its bounds in ``setting``."""


_LARGEST = 10**18
"""Whole numbers stay below it, as what is stored and sent holds 64 bits of one."""
_LARGEST_FLOAT = 1e30
"""Other numbers are no larger, so that they and most of their products are numbers in 32 bits, too."""


def wanted(text: str) -> Exception:
    """What a validator of a single value raises: the refusal then says that the setting must be this.

    Args:
        text: As in "must be ...": ``a day such as 2024-01-01``.
    """
    return PydanticCustomError("wanted", "{text}", {"text": text})


class Settings(BaseModel):
    """Base of every group of settings: frozen, exact in types, and a mistake is a ConfigError in one wording.

    A truth value is no number, a number no truth value, and text neither. Numbers and arrays of numpy's count as
    Python's, and a list may stand for a tuple.
    """

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", protected_namespaces=(), allow_inf_nan=False, defer_build=True
    )
    section: ClassVar[str] = ""
    """What stands before the dot of a setting's name."""

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(_refusal(type(self), error, type(self).section)) from None

    # A group within a group is made without this, so that all mistakes are found before one is raised.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def of(
        cls,
        values: object = None,
        *,
        owner: str = "",
        beside: Iterable[str] = (),
        section: str | None = None,
        origin: str = "",
    ) -> Self:
        """The group that a person wrote.

        Args:
            values: By name, an instance, which passes through, or None for the defaults.
            owner: Whose settings they are, for the refusal of an unknown one: ``dirichlet``.
            beside: Names that stand beside these and may have been meant by an unknown one.
            section: What stands before the dot of their names, where it is not the class's own.
            origin: Where they were read, such as a file; errors begin with it.

        Raises:
            ConfigError: A setting is unknown, missing or has a value that it cannot have.
        """
        if isinstance(values, cls):
            return values
        where = cls.section if section is None else section
        try:
            if not isinstance(values, Mapping | None):
                raise ConfigError(f"{where or 'it'} must be a table of settings; got {shown(values)}.")
            return super().model_validate(dict(values or {}))
        except ValidationError as error:
            refusal = _refusal(cls, error, where, owner, beside)
        except ConfigError as error:
            refusal = str(error)
        raise ConfigError(f"{origin}: {refusal}" if origin else refusal)

    @classmethod
    def model_validate(cls, obj: Any, **_: Any) -> Self:
        """As :meth:`of`, under pydantic's name."""
        return cls.of(obj)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, values: Any) -> Any:
        for name in values if isinstance(values, dict) else ():
            if name not in cls.model_fields:
                raise PydanticCustomError("unknown", "{name}", {"name": str(name), "known": [*cls.model_fields]})
        return values

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: Any, info: ValidationInfo) -> Any:
        if hasattr(value, "tolist"):  # numpy's
            value = value.tolist()
        if isinstance(value, list | tuple):
            kinds = {get_origin(arm) for arm, _ in _arms(cls.model_fields[str(info.field_name)].annotation)}
            made: type = tuple if tuple in kinds else list
            value = made(item.tolist() if hasattr(item, "tolist") else item for item in value)
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, int) and abs(item) >= _LARGEST:
                raise wanted("below 1e18 in size")
            if isinstance(item, float) and math.isfinite(item) and abs(item) > _LARGEST_FLOAT:
                raise wanted("at most 1e30 in size")
        return value


# -- a refusal -----------------------------------------------------------------------------------------------------


def _refusal(
    kind: type[Settings], error: ValidationError, section: str, owner: str = "", beside: Iterable[str] = ()
) -> str:
    """pydantic's complaints in one paragraph, each with the dotted name of what it is about."""
    found: dict[str, str] = {}
    for item in error.errors(include_url=False):
        loc, value = item["loc"], list(item["input"]) if isinstance(item["input"], tuple) else item["input"]
        context = item.get("ctx", {})
        if item["type"] == "missing" and isinstance(loc[-1], int):
            loc = loc[:-1]  # of a list that is too short
        path, annotation, metadata = _place(kind, loc, section)
        if item["type"] == "unknown":
            name = f"{path}.{context['name']}" if path else context["name"]
            known = [*context["known"], *beside]
            word = SYNONYMS.get(context["name"], context["name"])
            hint = nearest(word, known) if known else "it has no settings of its own."
            if "." in word:
                hint = f"did you mean '{word}'?"
            elif path and hint.startswith("did you mean '"):
                hint = hint.replace("'", f"'{path}.", 1)
            found.setdefault(name, f"unknown setting '{name}'{f' for {owner}' if owner else ''}; {hint}")
        elif item["type"] == "missing" and loc == item["loc"]:
            found.setdefault(path, f"{path} is missing; it must be {allowed(annotation, metadata)}.")
        elif item["type"] == "value_error":
            found.setdefault(path, f"{path}: {context['error']}; got {shown(value)}.")
        else:
            text = context["text"] if item["type"] == "wanted" else ""
            limits = _limits(item["type"], annotation, metadata)
            text = text or limits or allowed(annotation, metadata)
            if item["type"] == "finite_number":
                text = text.replace("number", "finite number")
            found.setdefault(path, f"{path or 'it'} must be {text}; got {shown(value)}.{_meant(value, annotation)}")
    # Of a list with a wrong entry, the entry says it better.
    kept = [text for path, text in found.items() if not any(other.startswith(f"{path}.") for other in found)]
    return " ".join(text for place, text in enumerate(kept[:5]) if sum(map(len, kept[:place])) < _LONG)


def _place(kind: Any, loc: Sequence[str | int], section: str) -> tuple[str, Any, Sequence[Any]]:
    """Dotted name, type and bounds of what a complaint is about; parts that name an arm of a union are left out."""
    parts, annotation, metadata = [section] if section else [], kind, ()
    for part in loc:
        inner: tuple[Any, Any] | None = None
        for arm, _ in _arms(annotation):
            origin, arguments = get_origin(arm), get_args(arm)
            if isinstance(part, int) and origin in (list, tuple):
                inner = arguments[0], ()
            elif isinstance(arm, type) and issubclass(arm, Settings) and part in arm.model_fields:
                inner = arm.model_fields[str(part)].annotation, arm.model_fields[str(part)].metadata
            elif origin is dict and inner is None and not _is_arm(part):
                inner = arguments[1], ()
        if inner is not None:
            parts.append(str(part))
            annotation, metadata = inner
    return ".".join(parts), annotation, metadata


def _is_arm(part: str | int) -> bool:
    """Whether a part of pydantic's names a type."""
    return part in ("str", "int", "float", "bool") or (isinstance(part, str) and part.endswith("]"))


_LONG = 150
"""Characters of a refusal behind which no further mistake is listed."""
_BOUNDS = {
    "gt": ("greater_than", "above", ">"),
    "ge": ("greater_than_equal", "at least", "≥"),
    "lt": ("less_than", "below", "<"),
    "le": ("less_than_equal", "at most", "≤"),
}
"""pydantic's name of the mistake, and how people call the bound in a sentence and in a table."""


def _limits(mistake: str, annotation: Any, metadata: Sequence[Any]) -> str:
    """The bounds, where the value is of the right kind and beyond one of them."""
    if mistake not in {name for name, _, _ in _BOUNDS.values()}:
        return ""
    return " and ".join(
        dict.fromkeys(text for _, rules in _arms(annotation) for text in _bounds([*metadata, *rules], signs=False))
    )


def _meant(value: Any, annotation: Any) -> str:
    """Which of the words was meant, where one is near."""
    known = [word for arm, _ in _arms(annotation) if get_origin(arm) is Literal for word in get_args(arm)]
    hint = nearest(value, known) if known and isinstance(value, str) else ""
    return f" D{hint[1:]}" if hint.startswith("did") else ""


# -- what a setting takes ------------------------------------------------------------------------------------------


_WORDS = {
    bool: ("true or false", "truth values"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("text", "texts"),
    date: ("a date", "dates"),
    dict: ("a table", "tables"),
    BaseModel: ("a table of settings", "tables of settings"),
    list: ("a list", "lists"),
}
"""One of a type, and several."""


def allowed(annotation: Any, metadata: Sequence[Any] = (), *, signs: bool = False, plural: bool = False) -> str:
    """The values that a setting takes.

    Args:
        annotation: Its type.
        metadata: Its bounds, as pydantic keeps them.
        signs: In short, for a table: ``number > 0``; else for a sentence: ``a number above 0``.
        plural: Of several.

    Example:
        >>> allowed(float | None), allowed(list[int], signs=True)
        ('a number or none', 'list of whole numbers')
    """
    found = []
    for arm, rules in _arms(annotation):
        origin, arguments = get_origin(arm), get_args(arm)
        limits = _bounds([*metadata, *rules], signs=signs)
        if arm is NoneType:
            continue
        if origin is Literal:
            words = ", ".join(
                word if str(word).isidentifier() or "-" in str(word) else repr(word) for word in arguments
            )
            some = "words out of " if plural else "one of " if len(arguments) > 1 and not signs else ""
            found.append(f"{some}{words}")
        elif origin in (list, tuple):
            inner = allowed(arguments[0], signs=signs, plural=True)
            count = f"{len(arguments)} " if origin is tuple and Ellipsis not in arguments else ""
            if not signs and any(getattr(rule, "min_length", 0) for rule in (*metadata, *rules)):
                count = "one or more "
            found.append(f"{'' if signs else 'a '}list of {count}{inner}")
        else:
            kind = origin or arm
            group = isinstance(kind, type) and issubclass(kind, BaseModel)
            word = _WORDS.get(BaseModel if group else kind, ("a value", "values"))[plural]
            word = word.removeprefix("a ") if signs else word
            found.append(f"{word} {(', ' if signs else ' and ').join(limits)}".strip())
    arms = [arm for arm, _ in _arms(annotation)]
    if NoneType in arms:
        found.append("null" if any("none" in get_args(arm) for arm in arms) else "none")
    return " or ".join(dict.fromkeys(found))


def _arms(annotation: Any) -> list[tuple[Any, list[Any]]]:
    """The types that one stands for, each with its own bounds."""
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        rules = [rule for note in notes for rule in (note.metadata if isinstance(note, FieldInfo) else [note])]
        return [(arm, [*own, *rules]) for arm, own in _arms(inner)]
    if get_origin(annotation) in (Union, UnionType):
        return [pair for arm in get_args(annotation) for pair in _arms(arm)]
    return [(annotation, [])]


def _bounds(rules: Sequence[Any], *, signs: bool) -> list[str]:
    return [
        f"{sign if signs else word} {limit:g}" if isinstance(limit, float) else f"{sign if signs else word} {limit}"
        for key, (_, word, sign) in _BOUNDS.items()
        for rule in rules
        if (limit := getattr(rule, key, None)) is not None
    ]


def rows(kind: type[Settings]) -> Iterator[tuple[str, Any, str, str, str]]:
    """Name, default, values, meaning and the default's source of each setting of a group, for tables."""
    for name, field in kind.model_fields.items():
        extra = field.json_schema_extra
        source = str(extra.get("source", "")) if isinstance(extra, dict) else ""
        default = field.get_default(call_default_factory=True)
        yield name, default, allowed(field.annotation, field.metadata, signs=True), field.description or "", source


def choices(annotation: Any) -> list[str]:
    """The words that a setting of this type takes, as they are written in a configuration file; empty where any do.

    Example:
        >>> choices(Literal["adam", "sgd"]), choices(bool), choices(float)
        (['adam', 'sgd'], ['false', 'true'], [])
    """
    arms = [arm for arm, _ in _arms(annotation)]
    words = [word for arm in arms if get_origin(arm) is Literal for word in get_args(arm)]
    return [written(word) for word in [*words, *([False, True] if bool in arms else [])]]


def written(value: Any) -> str:
    """A value as it is written in a configuration file.

    Example:
        >>> written(None), written(True), written([0.5, 1e-7])
        ('none', 'true', '[0.5, 1e-07]')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(written, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
