"""Types of what people write in the YAML files that describe tables (:mod:`graphsilo.documents`)."""

from __future__ import annotations

import codecs
import datetime
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, model_validator

from graphsilo.data.sources.faults import unseen_fault
from graphsilo.settings import Positive, Settings, must_be


class Description(Settings):
    """Base of what describes data: a key without a value counts as left out."""

    @model_validator(mode="before")
    @classmethod
    def _leave_out(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {key: value for key, value in values.items() if value is not None or key not in cls.model_fields}


def _name(value: Any) -> Any:
    return str(value) if type(value) is int else value


def _words(value: Any) -> Any:
    """One word may stand for a list of one."""
    words = tuple(map(_name, value if isinstance(value, list | tuple) else [value]))
    if any(isinstance(word, bool) for word in words):
        raise must_be(
            "a list of names (YAML takes yes, no, on, off, true and false for truth values: quote such words)"
        )
    twice = next((word for word in words if words.count(word) > 1), None)
    if twice is not None:
        raise must_be(f"a list of names, each once ('{twice}' stands there twice)")
    return words


def _pair(value: Any) -> Any:
    words = _words(value)
    if len(words) != 2:
        raise must_be("the words of 0 and 1, such as [nein, ja]")
    for word in words:
        if isinstance(word, str) and (wrong := unseen_fault(word)):
            raise must_be(f"two words that can be shown ({word!r} {wrong})")
    return words


def _by_name(value: Any) -> Any:
    """Columns alone, or with something said of each."""
    if isinstance(value, dict):
        return {str(name): item for name, item in value.items()}
    return dict.fromkeys(_words(value))


def _parse_mapping(value: Any) -> Any:
    """Words to words."""
    return dict(zip(_words([*value]), map(_word, value.values()), strict=True)) if isinstance(value, dict) else value


def _word(value: Any) -> Any:
    return "" if value is None else _words(value)[0] if not isinstance(value, list | tuple) else value


def _parse_renaming(value: Any) -> Any:
    found = _parse_mapping(value)
    columns = [*found.values()] if isinstance(found, dict) else []
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise must_be(f"names of columns, each once ('{twice}' stands there twice)")
    return found


def _day(value: Any) -> Any:
    try:
        return datetime.date.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise must_be("a day such as 2024-01-01") from None


def _character(value: Any) -> Any:
    if not isinstance(value, str) or len(value) != 1:
        raise must_be("one character, such as ';'")
    return value


def _encoding(value: Any) -> Any:
    try:
        return codecs.lookup(value).name
    except (LookupError, TypeError):
        raise must_be("the name of an encoding, such as utf-8, utf-16 or cp1252") from None


Name: TypeAlias = Annotated[str, BeforeValidator(_name)]
"""Of a column or a class; a whole number is the word that it is written with."""
Names: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_words)]
Vocabularies: TypeAlias = Annotated[dict[str, Names | None], BeforeValidator(_by_name)]
"""Columns, with the words of each where they are spelled out."""
Pairs: TypeAlias = Annotated[
    dict[str, Annotated[tuple[str, str], BeforeValidator(_pair)] | None], BeforeValidator(_by_name)
]
"""Columns, with the words of 0 and of 1 where they are spelled out."""
Renames: TypeAlias = Annotated[dict[str, str], BeforeValidator(_parse_renaming)]
"""Names of columns, with what each is called in the table."""
Keys: TypeAlias = Annotated[dict[str, str], BeforeValidator(_parse_mapping)]
"""Columns, with the table that each one's words are ids of."""
WordMaps: TypeAlias = Annotated[
    dict[str, Annotated[dict[str, str], BeforeValidator(_parse_mapping)]], BeforeValidator(_by_name)
]
"""Columns, with the words that stand there and what each is taken for."""
Units: TypeAlias = Annotated[dict[str, Positive], BeforeValidator(_by_name)]
"""Columns, with what their numbers are multiplied by."""
Day: TypeAlias = Annotated[datetime.date, BeforeValidator(_day)]
Character: TypeAlias = Annotated[str, BeforeValidator(_character)]
Encoding: TypeAlias = Annotated[str, BeforeValidator(_encoding)]
"""How text is written as bytes."""
