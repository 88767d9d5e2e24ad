"""Settings of a method, typed once at the edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union, get_args, get_origin

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from graphsilo.errors import ConfigError, nearest

if TYPE_CHECKING:
    from graphsilo.data.silos.silo import Schema

ABOVE_ZERO = "above 0"
"""A condition of ``setting``: the other setting is a number above 0."""
Conditions: TypeAlias = Mapping[str, Sequence[Any] | Literal["above 0"]]


def setting(default: Any, description: str, *, source: str = "", when: Conditions | None = None, **bounds: Any) -> Any:
    """A setting of a method or of a section.

    Args:
        default: Its default.
        description: What it means, for people.
        source: Where the default comes from.
        when: For a setting that matters only where others matter and have certain values: those others and their
            values, ``{"optimizer": ("sgd",)}``, or ``ABOVE_ZERO``; ``task`` is the run's. Where they have not, a run
            that is asked for it refuses it or remarks on it.
        bounds: ge, gt, le, lt, min_length.
    """
    extra: dict[str, Any] = {"source": source}
    if when is not None:
        extra["when"] = {name: values if values == ABOVE_ZERO else list(values) for name, values in when.items()}
    return Field(default, description=description, json_schema_extra=extra, **bounds)


_WORDS = {bool: "a valid boolean", int: "a valid integer", float: "a valid number"}
_TYPES: dict[str, Any] = {word: f"{kind.__name__}_type" for kind, word in _WORDS.items()}
"""What pydantic calls the mistake."""


def exact(value: Any, annotation: Any) -> Any:
    """A value that is what it looks like, for a setting of this type; numbers of numpy's become Python's.

    A truth value is no number, a number no truth value, and text neither, whatever could be made of it.

    Raises:
        PydanticCustomError: It is of another kind.
    """
    value = (
        value.item() if isinstance(value, np.generic) else value.tolist() if isinstance(value, np.ndarray) else value
    )
    kinds = _kinds(annotation)
    if not isinstance(value, list | tuple):
        if wanted := _mistaken(value, kinds):
            kind = _TYPES.get(wanted, "exact_type")
            raise PydanticCustomError(kind, "Input should be {wanted}", {"wanted": wanted})
        return value
    inner = [
        other
        for kind in kinds
        if get_origin(kind) in (list, tuple)
        for item in get_args(kind)
        for other in _kinds(item)
    ]
    value = [item.item() if isinstance(item, np.generic) else item for item in value]
    for item in value:
        if wanted := _mistaken(item, inner):
            text = "Input should be a list in which each entry is {wanted}"
            raise PydanticCustomError("exact_type", text, {"wanted": wanted})
    return value


def _kinds(annotation: Any) -> list[Any]:
    return list(get_args(annotation)) if get_origin(annotation) in (Union, UnionType) else [annotation]


def _mistaken(value: Any, kinds: Sequence[Any]) -> str:
    """What is wanted where a value is of another kind and pydantic would make it fit; empty where it may pass."""
    plain = [kind for kind in kinds if kind in _WORDS]
    others = [kind for kind in kinds if kind not in _WORDS and kind not in (NoneType, ...)]
    lists = [kind for kind in others if get_origin(kind) in (list, tuple)]
    others = [kind for kind in others if kind not in lists]
    if not isinstance(value, bool | int | float | str) or any(get_origin(kind) is not Literal for kind in others):
        return ""  # pydantic says what it wants of text or a table
    if lists and not plain:
        return ""
    if type(value) in plain or (type(value) in (int, float) and {int, float} & set(plain)):
        return ""
    if any(type(value) in map(type, get_args(kind)) for kind in others):
        return ""
    return " or ".join([*(_WORDS[kind] for kind in dict.fromkeys(plain)), *(["a list"] if lists else [])])


class Settings(BaseModel):
    """Base of every group of settings: frozen, exact in types, and unknown names are refused with the nearest one."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, values: Any) -> Any:
        if isinstance(values, dict):
            for name in values:
                if name not in cls.model_fields:
                    raise ConfigError(
                        f"unknown setting '{name}' for {cls.label()}; {nearest(str(name), cls.model_fields)}"
                    )
        return values

    @field_validator("*", mode="before")
    @classmethod
    def _exact(cls, value: Any, info: ValidationInfo) -> Any:
        return exact(value, cls.model_fields[str(info.field_name)].annotation)

    @classmethod
    def label(cls) -> str:
        """How errors name this group."""
        return cls.__name__.removesuffix("Config").removesuffix("Settings").removesuffix("Section").lower()


class MethodConfig(Settings):
    """What every method has."""

    rounds: int = setting(100, "communication rounds", source="OpenFGL", ge=1)
    participation: float = setting(
        1.0, "share of clients per round: int(clients * share), at least one, drawn uniformly", source="OpenFGL",
        gt=0, le=1,
    )  # fmt: skip
    min_clients: int | None = setting(
        None, "fewest answers a round goes on with; none means that every client asked must answer", ge=1
    )

    @property
    def total_rounds(self) -> int:
        """Rounds that a run has after set-up; one-shot methods say 1."""
        return self.rounds

    @property
    def chooses_by_validation(self) -> bool:
        """Whether clients choose something by the score on their own validation nodes, such as when to stop."""
        return False

    def square_columns(self, schema: Schema) -> int:
        """Columns p of Σ φ φᵀ over a client's training items, for methods that have clients send it; else 0.

        Such a sum over fewer items than columns says what the items' rows span.
        """
        return 0


class OneRoundConfig(MethodConfig):
    """For methods that have exactly one round."""

    rounds: int = setting(100, "rounds of reference rows; the method itself has exactly one", source="OpenFGL", ge=1)

    @property
    def total_rounds(self) -> int:
        return 1


class LocalTrainingConfig(MethodConfig):
    """For methods whose clients run local epochs."""

    local_epochs: int = setting(3, "passes over the local training items per round", source="OpenFGL", ge=1)
    batch_size: int = setting(
        0, "items per step; 0 is the full batch (graph classification: 64 unless set)", source="OpenFGL", ge=0
    )
    optimizer: Literal["adam", "sgd"] = setting("adam", "local optimiser", source="OpenFGL")
    lr: float = setting(1e-2, "learning rate", source="OpenFGL", gt=0)
    weight_decay: float = setting(5e-4, "L2 weight decay", source="OpenFGL", ge=0)
    momentum: float = setting(0.0, "momentum of sgd", when={"optimizer": ("sgd",)}, ge=0, lt=1)
    reset_optimizer: bool = setting(
        False, "forget the optimiser's moments at each download", source="OpenFGL keeps them"
    )
