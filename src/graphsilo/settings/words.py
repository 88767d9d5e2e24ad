"""Settings in words: what was wrong with what a person wrote, and what a setting takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from graphsilo.errors import nearest, quote
from graphsilo.settings import SYNONYMS, Settings, arms_of

# -- a refusal -----------------------------------------------------------------------------------------------------


def refusal(
    kind: type[Settings], error: ValidationError, section: str, owner: str = "", beside: Iterable[str] = ()
) -> str:
    """pydantic's complaints in one paragraph, each with the dotted name of what it is about."""
    found: dict[str, str] = {}
    for item in error.errors(include_url=False):
        loc, value = item["loc"], list(item["input"]) if isinstance(item["input"], tuple) else item["input"]
        context = item.get("ctx", {})
        if item["type"] == "missing" and isinstance(loc[-1], int):
            loc = loc[:-1]  # of a list that is too short
        is_unknown = item["type"] in ("extra_forbidden", "invalid_key")
        path, annotation, metadata = _place(kind, loc[:-1] if is_unknown else loc, section)
        if is_unknown:
            own = str(loc[-1])
            name = f"{path}.{own}" if path else own
            groups = [arm for arm, _ in arms_of(annotation) if isinstance(arm, type) and issubclass(arm, Settings)]
            known = [*(field for group in groups for field in group.model_fields), *beside]
            word = SYNONYMS.get(own, own)
            hint = nearest(word, known) if known else "it has no settings of its own."
            if "." in word:
                hint = f"did you mean '{word}'?"
            elif path and hint.startswith("did you mean '"):
                hint = hint.replace("'", f"'{path}.", 1)
            found.setdefault(name, f"{_UNKNOWN} '{name}'{f' for {owner}' if owner else ''}; {hint}")
        elif item["type"] == "missing" and loc == item["loc"]:
            found.setdefault(path, f"{path} is missing; it must be {describe(annotation, metadata)}.")
        elif item["type"] == "value_error":
            found.setdefault(path, f"{path}: {context['error']}; got {quote(value)}.")
        else:
            text = context["text"] if item["type"] == "wanted" else ""
            limits = _limits(item["type"], annotation, metadata)
            text = text or limits or describe(annotation, metadata)
            if item["type"] == "finite_number":
                text = text.replace("number", "finite number")
            found.setdefault(path, f"{path or 'it'} must be {text}; got {quote(value)}.{_suggest(value, annotation)}")
    # Of a list with a wrong entry, the entry says it better.
    kept = [text for path, text in found.items() if not any(other.startswith(f"{path}.") for other in found)]
    kept.sort(key=lambda text: not text.startswith(_UNKNOWN))
    # What is missing may stand there under a name like it.
    kept = [text for text in kept if not any(f"mean '{text.partition(' is missing')[0]}'" in other for other in kept)]
    shown = [text for place, text in enumerate(kept) if sum(map(len, kept[:place])) < _LONG]
    return " ".join(shown) + (f" And {len(kept) - len(shown)} more." if len(kept) > len(shown) else "")


def _place(kind: Any, loc: Sequence[str | int], section: str) -> tuple[str, Any, Sequence[Any]]:
    """Dotted name, type and bounds of what a complaint is about; parts that name an arm of a union are left out."""
    parts, annotation, metadata = [section] if section else [], kind, ()
    for part in loc:
        inner: tuple[Any, Any] | None = None
        for arm, _ in arms_of(annotation):
            origin, arguments = get_origin(arm), get_args(arm)
            if isinstance(part, int) and origin in (list, tuple):
                inner = arguments[0], ()
            elif isinstance(arm, type) and issubclass(arm, Settings) and part in arm.model_fields:
                inner = arm.model_fields[str(part)].annotation, arm.model_fields[str(part)].metadata
            elif origin is dict and inner is None and not _is_arm(part):
                inner = arguments[1], ()
        if inner is not None:
            parts += [str(part)] if part != "" else []
            annotation, metadata = inner
    return ".".join(parts), annotation, metadata


def _is_arm(part: str | int) -> bool:
    """Whether a part of pydantic's names a type."""
    return part in ("str", "int", "float", "bool") or (isinstance(part, str) and part.endswith("]"))


_LONG = 400
_UNKNOWN = "unknown setting"
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
        dict.fromkeys(text for _, rules in arms_of(annotation) for text in _bounds([*metadata, *rules], signs=False))
    )


def _suggest(value: Any, annotation: Any) -> str:
    """Which of the words was meant, where one is near."""
    known = [word for arm, _ in arms_of(annotation) if get_origin(arm) is Literal for word in get_args(arm)]
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


def describe(annotation: Any, metadata: Sequence[Any] = (), *, signs: bool = False, plural: bool = False) -> str:
    """The values that a setting takes.

    Args:
        annotation: Its type.
        metadata: Its bounds, as pydantic keeps them.
        signs: In short, for a table: ``number > 0``; else for a sentence: ``a number above 0``.
        plural: Of several.

    Example:
        >>> describe(float | None), describe(list[int], signs=True)
        ('a number or none', 'list of whole numbers')
    """
    found = []
    for arm, rules in arms_of(annotation):
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
            inner = describe(arguments[0], signs=signs, plural=True)
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
    arms = [arm for arm, _ in arms_of(annotation)]
    if NoneType in arms:
        found.append("null" if any("none" in get_args(arm) for arm in arms) else "none")
    return " or ".join(dict.fromkeys(found))


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
        yield name, default, describe(field.annotation, field.metadata, signs=True), field.description or "", source


def choices(annotation: Any) -> list[str]:
    """The words that a setting of this type takes, as they are written in a configuration file; empty where any do.

    Example:
        >>> choices(Literal["adam", "sgd"]), choices(bool), choices(float)
        (['adam', 'sgd'], ['false', 'true'], [])
    """
    arms = [arm for arm, _ in arms_of(annotation)]
    words = [word for arm in arms if get_origin(arm) is Literal for word in get_args(arm)]
    return [format_value(word) for word in [*words, *([False, True] if bool in arms else [])]]


def format_value(value: Any) -> str:
    """A value as it is written in a configuration file.

    Example:
        >>> format_value(None), format_value(True), format_value([0.5, 1e-7])
        ('none', 'true', '[0.5, 1e-07]')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_value, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
