"""Which words columns and classes have, and whether silos agree on them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeVar

from graphsilo.data.sources.missing import INDICATOR
from graphsilo.errors import DataError

if TYPE_CHECKING:
    from graphsilo.data.sources.table_spec import TableSpec

Value = TypeVar("Value")
ANY_OTHER = "*"
"""Among the words of a one_hot column: whatever is none of the others."""
_COLUMNS = "the columns under nodes.features and the words of nodes.one_hot"
_SAID_BY = {
    rf"{INDICATOR}$": "the rules of empty cells (features.missing)",
    r" \((years|days since [\d-]+)\)$": "the days to count from (days_since or years_at under nodes.dates)",
}
"""End of a feature's name to what a description says it by."""


@dataclass(frozen=True)
class Learned:
    """What a model must be asked with later: columns and fill values of the table that it was trained on.

    Attributes:
        names: Of all features, in order: give the words of one_hot columns that declare none.
        fills: What an empty cell of each feature becomes.
        types, relations, links: Of nodes, of links, and names of the columns of links, where others have more of them.
        ends: Types of the nodes that the rows of each relation begin and end at.
    """

    names: tuple[str, ...] = ()
    fills: Mapping[str, float] | None = None
    types: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    ends: tuple[tuple[str, str], ...] = ()

    def of_table(self, start: str) -> Learned:
        """What is known of a table of nodes, whose columns' names begin so among those of all."""
        fills = self.fills if self.fills is None or not start else _below(start, self.fills)
        return Learned(tuple(_below(start, dict.fromkeys(self.names))), fills)

    def of_links(self, start: str) -> Learned:
        """The same of a table of edges."""
        return Learned(tuple(_below(start, dict.fromkeys(self.links))))

    def words(self, column: str) -> tuple[str, ...]:
        """The words that a one_hot column has."""
        return spread_words(column, self.names)


def _below(start: str, values: Mapping[str, Value]) -> dict[str, Value]:
    """What begins so, without it."""
    return {name[len(start) :]: value for name, value in values.items() if name.startswith(start)}


@dataclass(frozen=True)
class Vocabulary:
    """Which words a silo's columns have.

    Attributes:
        owner: Whose they are, for errors.
        names: Of its features, in order.
        words: Of each one_hot column, by the column's name.
        open: The columns that declare none: their words are those that occur.
    """

    owner: str
    names: tuple[str, ...]
    words: Mapping[str, Sequence[str]]
    open: frozenset[str]

    @classmethod
    def of(cls, owner: str, spec: TableSpec, names: Sequence[str], links: Sequence[str] = ()) -> Vocabulary:
        """Of a description, and the features and columns of links that were read by it."""
        declared = spec.one_hot
        words = {column: spread_words(column, (*names, *links)) for column in declared}
        return cls(owner, tuple(names), words, frozenset(name for name in declared if declared[name] is None))

    def replace_words(self, column: str, words: Sequence[str]) -> Vocabulary:
        """The same with other words of a column."""
        own = {f"{column}={word}" for word in self.words[column]}
        new = [f"{column}={word}" for word in words]
        places = [place for place, name in enumerate(self.names) if name in own or name == f"{column}{INDICATOR}"]
        kept = [name for name in self.names if name not in own]
        start = places[0] if places else len(kept)
        return replace(self, names=(*kept[:start], *new, *kept[start:]), words={**self.words, column: tuple(words)})


def share_words(silos: Sequence[Vocabulary]) -> list[Vocabulary]:
    """One list of words for each one_hot column that silos share and some of them leave open.

    Where one of them declares words, these hold for all; where none does, they are all that occur anywhere, sorted.

    Raises:
        DataError: A word occurs that is not declared where words are; names two silos.
    """
    found = list(silos)
    for column in sorted({column for silo in silos for column in silo.open}):
        sharing = [silo for silo in silos if column in silo.words]
        declared = next((silo for silo in sharing if column not in silo.open), None)
        if declared is None:
            words: Sequence[str] = sort_words(dict.fromkeys(word for silo in sharing for word in silo.words[column]))
        else:
            words = declared.words[column]
            for silo in sharing if ANY_OTHER not in words else ():
                strange = [word for word in silo.words[column] if word not in words]
                if strange:
                    raise DataError(
                        f"{silo.owner} has the word '{strange[0]}' in column '{column}', which {declared.owner} does "
                        f"not declare: it declares {', '.join(words)}. Add the word under nodes.one_hot in every "
                        f'description, or "{ANY_OTHER}" for all others.'
                    )
        found = [silo.replace_words(column, words) if column in silo.open else silo for silo in found]
    return found


def alike_words(mine: Sequence[str] | None, theirs: Sequence[str] | None) -> str:
    """What two descriptions must say alike, by the names of features that only one of them leads to."""
    told = {
        next((what for end, what in _SAID_BY.items() if re.search(end, name)), _COLUMNS)
        for name in {*(mine or ())} ^ {*(theirs or ())}
    }
    return f"Write {' and '.join(sorted(told or {_COLUMNS}))} alike into every description."


def first_difference(what: str, mine: Sequence[str] | None, one: str, theirs: Sequence[str] | None, other: str) -> str:
    """What to say of the first place where two lists of names differ; empty where one is missing or none does.

    Args:
        what: The names are of.
        mine, theirs: The lists.
        one, other: Whose they are.

    Example:
        >>> first_difference("class", ["no", "yes"], "a", ["no"], "b")
        ": class 2, 'yes', is only at a"
    """
    for place, (left, right) in enumerate(zip_longest(mine, theirs), start=1) if mine and theirs else ():
        if left is None or right is None:
            return f": {what} {place}, '{left or right}', is only at {one if right is None else other}"
        if left != right:
            return f": {what} {place} is '{left}' at {one} and '{right}' at {other}"
    return ""


def classes_in_words(count: int, names: Sequence[str] | None) -> str:
    """How many classes there are, and what they are called."""
    listed = ", ".join((names or ())[:8]) + (", …" if count > 8 else "")
    return f"{count} classes ({listed})" if names else f"{count} classes"


def spread_words(column: str, names: Iterable[str]) -> tuple[str, ...]:
    """The words of a one_hot column, by the names of all features."""
    return tuple(name.removeprefix(f"{column}=") for name in names if name.startswith(f"{column}="))


def sort_words(words: Iterable[str]) -> tuple[str, ...]:
    """In numeric order where all are whole numbers, else by spelling."""
    listed = list(words)
    whole = all(word.removeprefix("-").isdecimal() for word in listed)
    return tuple(sorted(listed, key=int) if whole else sorted(listed))
