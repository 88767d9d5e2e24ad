"""Words of columns of truth values: which of two words is 1 must be the same wherever one model reads them.

Silos may write them in languages of their own, `[nein, ja]` and `[no, yes]`. One silo's word of 0 must not be another's
word of 1, though: every value of the column would mean its opposite there, and nothing else would show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from graphsilo.errors import DataError, quote

Words: TypeAlias = "tuple[tuple[str, ...], tuple[str, ...]]"
"""The words of 0, and the words of 1."""

TRUTH: Words = (("false", "no", "0"), ("true", "yes", "1"))
"""The words of a column of truth values that declares none, in any case; a column of numbers is read by them, too."""
_ADVICE = (
    "The same word must mean the same everywhere: correct the order of the two words (that of 0 first) under "
    "nodes.boolean of one description, or write its table with other words."
)
"""What to do where two tables contradict each other."""


@dataclass(frozen=True)
class BooleanWords:
    """The truth values of one table.

    Attributes:
        owner: Whose they are, for errors.
        features: Names of all features.
        booleans: Words of each column of truth values.
    """

    owner: str
    features: Sequence[str]
    booleans: Mapping[str, Words]

    def words(self, column: str) -> Words:
        """Those of a column; a table of which nothing is known has 0 and 1, which are among the usual ones."""
        return self.booleans.get(column, TRUTH)


def join_truth(tables: Sequence[BooleanWords]) -> dict[str, Words]:
    """The words of all tables for each column of truth values.

    Raises:
        DataError: A word of 0 in one of them is a word of 1 in another.

    Example:
        >>> one = BooleanWords("a", ["x"], {"x": (("no",), ("yes",))})
        >>> join_truth([one, BooleanWords("b", ["x"], {"x": (("nein",), ("ja",))})])
        {'x': (('no', 'nein'), ('yes', 'ja'))}
    """
    found: dict[str, Words] = {}
    for column in dict.fromkeys(name for table in tables for name in table.booleans):
        sharing = _find_sharing(tables, column)
        first: list[dict[str, BooleanWords]] = [{}, {}]
        for table in sharing:
            for value, listed in enumerate(table.words(column)):
                for word in listed:
                    other = first[1 - value].get(_normalise(word))
                    if other is not None:
                        raise DataError(
                            f"column '{column}' (nodes.boolean): {quote(word)} is {value} at {table.owner}, which "
                            f"reads {in_words(table.words(column))}, and {1 - value} at {other.owner}, which reads "
                            f"{in_words(other.words(column))}. {_ADVICE}"
                        )
                    first[value].setdefault(_normalise(word), table)
        pairs = [table.booleans[column] for table in sharing if column in table.booleans]
        found[column] = (_merge(pair[0] for pair in pairs), _merge(pair[1] for pair in pairs))
    return found


def truth_notes(tables: Sequence[BooleanWords]) -> tuple[str, ...]:
    """A sentence for each column of truth values that tables write with different words."""
    notes = []
    for column in dict.fromkeys(name for table in tables for name in table.booleans):
        sharing = _find_sharing(tables, column)
        first = sharing[0]
        other = next((table for table in sharing if _differ(table.words(column), first.words(column))), None)
        if other is not None:
            notes.append(
                f"truth values in column '{column}' are written {in_words(first.words(column))} at {first.owner} and "
                f"{in_words(other.words(column))} at {other.owner} (0 first): do they mean the same?"
            )
    return tuple(notes)


def _find_sharing(tables: Sequence[BooleanWords], column: str) -> list[BooleanWords]:
    return [table for table in tables if column in table.booleans or column in table.features]


def in_words(words: Sequence[Sequence[str]]) -> str:
    """For people: ``[nein, ja]``, 0 first."""
    return f"[{', '.join('/'.join(listed) for listed in words)}]"


def words_of(tree: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, Words]:
    """Words that came as plain lists."""
    return {column: (tuple(off), tuple(on)) for column, (off, on) in tree.items()}


def _differ(one: Words, other: Words) -> bool:
    """Whether one pair has a word that the other, which may know more of them, does not have."""
    pairs = [
        ({_normalise(word) for word in mine}, {_normalise(word) for word in theirs})
        for mine, theirs in zip(one, other, strict=True)
    ]
    return not (all(mine <= theirs for mine, theirs in pairs) or all(mine >= theirs for mine, theirs in pairs))


def _merge(lists: Iterable[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for listed in lists for word in listed))


def _normalise(word: str) -> str:
    return word.strip().casefold()
