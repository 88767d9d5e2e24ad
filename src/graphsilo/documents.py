"""YAML as graphsilo reads and writes it, everywhere: what a person cannot have meant is refused, not interpreted.

Plain YAML keeps the last of two equal keys, reads ``010`` as 8, ``1:30`` as 90 and ``1e-3`` as text, and lets 700
bytes of references stand for gigabytes. Here a document is a tree of tables, lists, texts, numbers and truth values, no
larger than what was typed, and there is one reading of each word:

==================  =======================================================================
``12``, ``-3``      a whole number; ``1_000`` too
``0.1``, ``1e-3``   a number; ``.inf`` and ``.nan`` too
``yes``, ``off``    a truth value, as are ``true`` and ``no``, in one case throughout
``null``, ``~``     nothing, as is an empty place
``2024-05-01``      text, as is all else; what stands in quotes always is
``010``, ``0x1F``   refused, as is ``1:30``: readers of YAML do not agree on these
==================  =======================================================================

Keys are texts as written. References (``&`` and ``*``), tags (``!``) and several documents in one file are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphsilo.errors import ConfigError, quote

if TYPE_CHECKING:
    import yaml

MAX_CHARACTERS = 2**20
"""Largest document; a run's settings have some two thousand characters."""
MAX_DEPTH = 50
"""Deepest nesting of tables and lists."""
MAX_KEY = 200
"""Longest key, which errors quote."""
MAX_DIGITS = 100

_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTH = {
    spelling: value
    for value, words in ((True, ("yes", "true", "on")), (False, ("no", "false", "off")))
    for word in words
    for spelling in (word, word.capitalize(), word.upper())
}
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)")
_OTHERWISE = re.compile(
    r"[-+]?(?:0[0-9_]+|0[bB][01_]+|0[oO][0-7_]+|0[xX][0-9a-fA-F_]+|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)"
)
"""What readers of YAML take for numbers, but not for the same."""
_REAL = re.compile(r"[-+]?(?:(?:[0-9]+(?:_[0-9]+)*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))")
_NOT_A_NUMBER = frozenset({".nan", ".NaN", ".NAN"})


def read(path: str | Path, what: str, *, references: int = 0) -> Any:
    """The tree in a YAML file.

    Args:
        path: The file.
        what: What it is, for errors, e.g. ``the configuration``.
        references: How many ``*name`` it may hold; for files of one's own.

    Raises:
        ConfigError: The file cannot be read, or is not YAML as described above; the text names line and column.
    """
    file = Path(path)
    try:
        with file.open("rb") as stream:
            # No character takes more than four bytes; a longer file need not be read to its end.
            data = stream.read(4 * MAX_CHARACTERS + 1)
        text = data.decode("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{what} {file} does not exist.") from None
    except IsADirectoryError:
        raise ConfigError(f"{what} {file} is a folder; name a file in it, such as {file / 'config.yaml'}.") from None
    except OSError as error:
        raise ConfigError(f"{what} {file} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        if len(data) > 4 * MAX_CHARACTERS:
            raise _too_long(f"{what} {file}") from None
        raise ConfigError(
            f"{what} {file} is no text in UTF-8; is it a YAML file? An editor can save it as UTF-8."
        ) from None
    return parse(text, f"{what} {file}", references=references)


def parse(text: str, where: str, *, references: int = 0) -> Any:
    """The tree that a YAML text describes; None if it is empty.

    Args:
        text: The document.
        where: What errors begin with, e.g. the file.
        references: How many ``*name`` it may hold.

    Raises:
        ConfigError: It is not YAML as described above.

    Example:
        >>> parse("partition: {rule: dirichlet, alpha: 1e-1}", "here")
        {'partition': {'rule': 'dirichlet', 'alpha': 0.1}}
    """
    import yaml

    if len(text) > MAX_CHARACTERS:
        raise _too_long(where)
    try:
        return _Builder(where, references).document(yaml.parse(text, Loader=yaml.SafeLoader))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"{where}, line {line}: this is no valid YAML: there is a character that no text has "
            f"(U+{error.character:04X}). Take it out."
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _Builder(where, 0).error(mark, f"this is no valid YAML: {_plainly(error)}") from None


def plain(word: str) -> Any:
    """What a word without quotes stands for.

    Raises:
        ConfigError: It is one of those that readers of YAML do not agree on, or a number out of all bounds.

    Example:
        >>> plain("1e-3"), plain("2024-05-01"), plain("off")
        (0.001, '2024-05-01', False)
    """
    if word in _NOTHING:
        return None
    if word in _TRUTH:
        return _TRUTH[word]
    if _WHOLE.fullmatch(word) and len(word) <= MAX_DIGITS:
        return int(word)
    if _OTHERWISE.fullmatch(word):
        raise ConfigError(
            f"readers of YAML do not agree on what {quote(word)} is. Write a number in decimals, without zeros in "
            f'front, and put text in quotes: "{quote(word)[1:-1]}".'
        )
    if word in _NOT_A_NUMBER:
        return float("nan")
    if _REAL.fullmatch(word):
        value = float(word.replace(".", "", 1) if word.lstrip("+-").lower() == ".inf" else word)
        if (value in (float("inf"), float("-inf"))) != word.lower().endswith(".inf") or len(word) > MAX_DIGITS:
            raise ConfigError(f"the number {quote(word)} is longer or larger than any setting can be.")
        return value
    return word


def write(tree: Any) -> str:
    """A tree as YAML, which :func:`parse` gives back; keys become texts.

    Example:
        >>> print(write({"name": "1e5", "seeds": [0, 1]}), end="")
        name: '1e5'
        seeds:
        - 0
        - 1
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        """Without references, and with quotes wherever a word would be read as something else."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        try:
            same = plain(value) == value
        except ConfigError:
            same = False
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if same else "'")

    Dumper.add_representer(str, text)
    written: str = yaml.dump(tree, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    return written


class _Builder:
    """Makes the tree from the parser's events, one after the other, so that it stops where something is wrong."""

    def __init__(self, where: str, references: int):
        self.where, self.references = where, references
        self.named: dict[str, Any] = {}

    def error(self, mark: Any, text: str) -> ConfigError:
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        return ConfigError(f"{self.where}{place}: {text}")

    def document(self, events: Iterator[Any]) -> Any:
        import yaml

        tree, found = None, False
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if found:
                    raise self.error(event.start_mark, "a second document begins ('---'); only one is read. Cut it.")
                tree, found = self.value(next(events), events, 1), True
        return tree

    def value(self, event: Any, events: Iterator[Any], depth: int) -> Any:
        import yaml

        if isinstance(event, yaml.AliasEvent):
            return self._reference(event)
        if event.anchor is not None and not self.references:
            raise self.error(event.start_mark, f"'&{event.anchor[:MAX_KEY]}' names a part, which is not read. {_OUT}")
        if event.tag is not None:
            raise self.error(
                event.start_mark, f"the tag {quote(event.tag)} is not read: values have the type that they look like."
            )
        if isinstance(event, yaml.ScalarEvent):
            value = self._word(event)
        elif depth > MAX_DEPTH:
            raise self.error(event.start_mark, f"tables and lists are nested more than {MAX_DEPTH} deep.")
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            while not isinstance(item := next(events), yaml.SequenceEndEvent):
                value.append(self.value(item, events, depth + 1))
        else:
            value = self._table(events, depth)
        if event.anchor is not None:
            self.named[event.anchor] = value
        return value

    def _table(self, events: Iterator[Any], depth: int) -> dict[str, Any]:
        import yaml

        found: dict[str, Any] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.tag is not None:
                raise self.error(event.start_mark, "a key must be a word.")
            key: str = event.value
            line: int = event.start_mark.line + 1  # type: ignore[union-attr]
            if len(key) > MAX_KEY:
                raise self.error(event.start_mark, f"the key {quote(key)} has more than {MAX_KEY} characters.")
            if key in lines:
                first = "the same line" if lines[key] == line else f"line {lines[key]}"
                raise self.error(
                    event.start_mark,
                    f"the key '{key}' stands there a second time, after {first}. Keep one of the two: only one could "
                    f"hold.",
                )
            lines[key] = line
            found[key] = self.value(next(events), events, depth + 1)
        return found

    def _word(self, event: Any) -> Any:
        if not event.implicit[0]:
            return event.value
        try:
            return plain(event.value)
        except ConfigError as error:
            raise self.error(event.start_mark, str(error)) from None

    def _reference(self, event: Any) -> Any:
        self.references -= 1
        if self.references < 0:
            raise self.error(event.start_mark, f"'*{event.anchor[:MAX_KEY]}' refers to another part. {_OUT}")
        if event.anchor not in self.named:
            raise self.error(event.start_mark, f"'*{event.anchor[:MAX_KEY]}' refers to a part that is not there.")
        return self.named[event.anchor]


_OUT = "Write the values out where they are needed; text that begins with '&' or '*' needs quotes."

_PLAINLY = (
    ("found character '\\t'", "there is a tab, and YAML wants spaces; put spaces in its place."),
    ("found a tab character", "there is a tab, and YAML wants spaces; put spaces in its place."),
    ("cannot start any token", "no word can begin with this character; put the text in quotes."),
    (
        "mapping values are not allowed",
        "a ':' stands where no key can be; look at the indentation, and put text that holds ': ' in quotes.",
    ),
    ("could not find expected ':'", "a key is not followed by ':', or the indentation is not that of its neighbours."),
    ("expected <block end>", "the indentation does not fit the lines above, or something follows a finished value."),
    ("expected ',' or ']'", "a list that began with '[' is not closed, or a comma is missing."),
    ("expected ',' or '}'", "a table that began with '{' is not closed, or a comma is missing."),
    ("end of stream", "text in quotes is not closed."),
    ("found unknown escape character", "a backslash in double quotes begins an escape; take single quotes."),
    ("expected escape sequence", "a backslash in double quotes begins an escape; take single quotes."),
    ("expected the node content", "a value is missing, or a bracket is not closed."),
)
"""Parts of the parser's complaints, and the same in words for a person."""


def _plainly(error: yaml.MarkedYAMLError) -> str:
    problem = " ".join((error.problem or error.context or "it cannot be read").split())
    return next((words for part, words in _PLAINLY if part in problem), f"{problem[:MAX_KEY]}.")


def _too_long(where: str) -> ConfigError:
    return ConfigError(
        f"{where} has more than {MAX_CHARACTERS} characters, which no description needs; is it the right file?"
    )
