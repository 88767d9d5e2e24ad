"""What people write in YAML files (:mod:`graphsilo.documents`), taken out or refused in words that name the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphsilo.errors import ConfigError, nearest, shown


@dataclass(frozen=True)
class Reader:
    """Takes values out of parsed YAML, or says which key of which file holds something else."""

    file: Path

    def error(self, key: str, wanted: str, value: object) -> ConfigError:
        return ConfigError(f"{self.file}: '{key}' must be {wanted}; got {shown(value)}.")

    def mapping(self, value: object, where: str, known: Sequence[str], required: Sequence[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.error(where or "the file", f"a mapping with the keys {', '.join(known)}", value)
        for key in value:
            if key not in known:
                place = f" under '{where}'" if where else ""
                raise ConfigError(f"{self.file}: unknown key '{key}'{place}; {nearest(str(key), known)}")
        for key in required:
            if value.get(key) is None:
                raise ConfigError(f"{self.file}: the key '{where + '.' if where else ''}{key}' is missing.")
        return value

    def text(self, values: Mapping[str, Any], key: str, where: str = "") -> str | None:
        value = values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise self.error(f"{where + '.' if where else ''}{key}", "a name", value)
        return str(value)

    def needed(self, values: Mapping[str, Any], key: str, where: str) -> str:
        value = self.text(values, key, where)
        assert value is not None
        return value

    def words(self, value: object, key: str) -> tuple[str, ...]:
        items = value if isinstance(value, list) else [value]
        for item in items:
            if isinstance(item, bool):
                raise ConfigError(
                    f"{self.file}: '{key}' holds {item}, which YAML reads as a truth value; put quotes round words "
                    f'such as "yes", "no", "on", "true".'
                )
            if not isinstance(item, str | int):
                raise self.error(key, "a list of names", value)
        words = tuple(str(item) for item in items)
        if len(set(words)) != len(words):
            twice = next(word for word in words if words.count(word) > 1)
            raise ConfigError(f"{self.file}: '{key}' lists '{twice}' twice.")
        return words

    def vocabularies(self, value: object, key: str) -> dict[str, tuple[str, ...] | None]:
        """Columns, with the words of each where they are spelled out."""
        if value is None:
            return {}
        if isinstance(value, dict):
            return {
                str(name): None if words is None else self.words(words, f"{key}.{name}")
                for name, words in value.items()
            }
        return dict.fromkeys(self.words(value, key))

    def delimiter(self, values: Mapping[str, Any], where: str) -> str:
        value = values.get("delimiter", ",")
        if not isinstance(value, str) or len(value) != 1:
            raise self.error(f"{where}.delimiter", "one character, such as ';'", value)
        return value
