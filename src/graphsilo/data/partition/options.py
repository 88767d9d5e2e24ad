"""Settings of a rule, checked at the edge: an unknown name or a wrong type is refused with the nearest known one."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from graphsilo.errors import ConfigError, nearest, shown

Options = TypeVar("Options")


def parse_options(kind: type[Options], values: Mapping[str, Any] | object | None, *, owner: str) -> Options:
    """An options dataclass from a mapping; an instance passes through.

    Args:
        kind: Dataclass with a default for every field, of plain types.
        values: Settings by name, an instance of ``kind``, or None for the defaults.
        owner: Who owns the settings, for messages: ``partition 'louvain'``.

    Raises:
        ConfigError: A name is unknown, or a value has the wrong type.
    """
    if values is None:
        return kind()
    if isinstance(values, kind):
        return values
    if not isinstance(values, Mapping):
        raise ConfigError(f"{owner} takes settings by name; got {type(values).__name__}.")
    hints = typing.get_type_hints(kind)
    known = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    parsed: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            tail = nearest(str(name), known) if known else "it has no settings."
            raise ConfigError(f"unknown setting '{name}' for {owner}: {tail}")
        parsed[name] = _convert(value, hints[name], f"{owner}: {name}")
    if parsed.get("cut_seed") is not None:
        check_seed(parsed["cut_seed"], f"{owner}: cut_seed")
    return kind(**parsed)


LARGEST_SEED = 2**32 - 1
"""Of cuts and splits: what NumPy's, scikit-learn's and Metis' generators take alike."""


def check_seed(seed: int, name: str) -> None:
    """Refuse a seed that the generators of cuts and splits do not take.

    Raises:
        ConfigError: It is negative or larger than 2^32 - 1.
    """
    if not 0 <= seed <= LARGEST_SEED:
        raise ConfigError(f"{name} must lie between 0 and {LARGEST_SEED}; got {seed}.")


def options_dict(options: object) -> dict[str, Any]:
    """Settings as a plain mapping, defaults written out."""
    return asdict(options) if is_dataclass(options) and not isinstance(options, type) else {}


def _convert(value: Any, hint: Any, where: str) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in choices:
        return None
    wanted = [choice for choice in choices if choice is not type(None)]
    for choice in wanted:
        if choice is bool and isinstance(value, bool):
            return value
        if choice is int and isinstance(value, int) and not isinstance(value, bool):
            return value
        if choice is float and isinstance(value, int | float) and not isinstance(value, bool):
            if not math.isfinite(value):
                raise ConfigError(f"{where} must be a finite number; got {shown(value)}.")
            return float(value)
        if choice is str and isinstance(value, str):
            return value
    names = " or ".join(choice.__name__ for choice in wanted)
    raise ConfigError(f"{where} must be {names}; got {shown(value)}.")
