"""Settings of somebody's own class or function: its parameters that have plain defaults, or none at all."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import create_model

from graphsilo.errors import ConfigError
from graphsilo.settings import Settings, setting

GroupT = TypeVar("GroupT", bound=Settings)
_PLAIN = (bool, int, float, str, NoneType)


def parameters_of(function: Callable[..., Any], what: str) -> dict[str, inspect.Parameter]:
    """The parameters of a class or function by name, without ``self`` and what only collects others.

    Raises:
        ConfigError: It has no signature that can be read.
    """
    try:
        try:
            found = inspect.signature(function, eval_str=True).parameters.values()
        except (NameError, TypeError):  # annotations that only a type checker can read
            found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise ConfigError(f"{what}: its parameters cannot be read. Wrap it in a function of your own.") from None
    collecting = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {one.name: one for one in found if one.kind not in collecting}


def settings_of(
    name: str, base: type[GroupT], function: Callable[..., Any], given: Collection[str], what: str
) -> type[GroupT]:
    """A group of settings with a field for each parameter that a person may choose.

    Parameters whose default is no plain value keep it. Those without a default must be given.

    Args:
        name: Of the class that is made.
        base: What it derives from.
        function: Whose parameters.
        given: Names of those that are not for a person to choose.
        what: Whose they are, for refusals.

    Example:
        >>> def net(inputs, outputs, hidden: int = 16, act=len): ...
        >>> settings_of("Net", Settings, net, ("inputs", "outputs"), "net")().model_dump()
        {'hidden': 16}
    """
    fields: dict[str, Any] = {}
    for one in parameters_of(function, what).values():
        required = one.default is inspect.Parameter.empty
        if one.name in given or not (required or _is_plain(one.default)):
            continue
        default = ... if required else one.default
        fields[one.name] = (_type_of(one), setting(default, f"of {what}", source="its signature"))
    return create_model(name, __base__=base, **fields)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


def _type_of(one: inspect.Parameter) -> Any:
    """The annotation where it is of plain types, else the default's type, else anything."""
    if one.annotation is not inspect.Parameter.empty and _has_plain_type(one.annotation):
        missing = one.default is None and NoneType not in get_args(one.annotation)
        return one.annotation | None if missing and one.annotation is not NoneType else one.annotation
    kind = type(one.default)
    return kind if kind in (bool, int, float, str) and one.annotation is inspect.Parameter.empty else Any


def _has_plain_type(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin in (Union, UnionType, list, tuple):
        return all(arm is Ellipsis or _has_plain_type(arm) for arm in get_args(annotation))
    return annotation in _PLAIN or origin is Literal
