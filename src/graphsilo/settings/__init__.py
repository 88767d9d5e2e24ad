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

from graphsilo.errors import ConfigError, nearest, quote

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


def must_be(text: str) -> Exception:
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
            from graphsilo.settings.words import refusal

            raise ConfigError(refusal(type(self), error, type(self).section)) from None

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
                raise ConfigError(f"{where or 'it'} must be a table of settings; got {quote(values)}.")
            return super().model_validate(dict(values or {}))
        except ValidationError as error:
            from graphsilo.settings.words import refusal

            text = refusal(cls, error, where, owner, beside)
        except ConfigError as error:
            text = str(error)
        raise ConfigError(f"{origin}: {text}" if origin else text)

    @classmethod
    def model_validate(cls, obj: Any, **_: Any) -> Self:
        """As :meth:`of`, under pydantic's name."""
        return cls.of(obj)

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: Any, info: ValidationInfo) -> Any:
        if hasattr(value, "tolist"):  # numpy's
            value = value.tolist()
        if isinstance(value, list | tuple):
            kinds = {get_origin(arm) for arm, _ in arms_of(cls.model_fields[str(info.field_name)].annotation)}
            made: type = tuple if tuple in kinds else list
            value = made(item.tolist() if hasattr(item, "tolist") else item for item in value)
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, int) and abs(item) >= _LARGEST:
                raise must_be("below 1e18 in size")
            if isinstance(item, float) and math.isfinite(item) and abs(item) > _LARGEST_FLOAT:
                raise must_be("at most 1e30 in size")
        return value


def arms_of(annotation: Any) -> list[tuple[Any, list[Any]]]:
    """The types that one stands for, each with its own bounds."""
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        rules = [rule for note in notes for rule in (note.metadata if isinstance(note, FieldInfo) else [note])]
        return [(arm, [*own, *rules]) for arm, own in arms_of(inner)]
    if get_origin(annotation) in (Union, UnionType):
        return [pair for arm in get_args(annotation) for pair in arms_of(arm)]
    return [(annotation, [])]
