"""What deserves a look in tables that can be read: nothing here is wrong, and much of it is not meant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.sources.plain import signed_note
from graphsilo.data.sources.tables import Reading, TableSpec
from graphsilo.errors import several

MOSTLY_EMPTY = 0.5
"""Share of empty cells from which a column deserves a word."""
SHOWN = 3
FAR = 10.0
"""How many ranges of all other values a value must lie beyond them to be far from all."""
_ENOUGH = 5
"""Distinct values of a column from which some of them can be far from the others."""
_AT_EACH_END = 3
"""Most distinct values at one end of a column that are looked at as far from the others."""


@dataclass(frozen=True)
class LinkFacts:
    """What became of the rows of an edge table.

    Attributes:
        repeated: Rows that name a link in the direction in which an earlier row does.
        reversed: Links that are named in both directions.
        links: All links, directions aside.
        loops: Rows that link a node with itself.
    """

    repeated: int
    reversed: int
    links: int
    loops: int

    @classmethod
    def of(cls, rows: NDArray[np.int64], num_nodes: int) -> LinkFacts:
        """Of [2, r] node numbers."""
        apart = rows[:, rows[0] != rows[1]]
        directed = np.unique(apart[0] * num_nodes + apart[1])
        links = len(np.unique(np.minimum(*apart) * num_nodes + np.maximum(*apart)))
        return cls(apart.shape[1] - len(directed), len(directed) - links, links, rows.shape[1] - apart.shape[1])


def remarks(found: Reading, spec: TableSpec) -> list[tuple[str, str]]:
    """What a person should look at: where, and what."""
    said = [*_features(found), *_far(found), *_words(found, spec)]
    if spec.classes is None:
        said += [("classes", note) for note in signed_note(found.graph.class_names)]
    facts = LinkFacts.of(found.rows, found.graph.num_nodes)
    if facts.repeated:
        effect = "weights add up" if spec.edges.weight is not None else "" if spec.directed else "it counts once"
        text = f"{_rows(facts.repeated)} a link that stands there before"
        said.append(("links", f"{text}: {effect}" if effect else text))
    if facts.reversed and not spec.directed:
        all_ = "every link" if facts.reversed == facts.links else f"{facts.reversed} of {facts.links} links"
        said.append(("links", f"{all_} named in both directions: each is one link, since `directed` is false"))
    if facts.loops:
        left_out = "" if spec.directed else ": left out"
        said.append(("links", f"{_rows(facts.loops)} a node as linked with itself{left_out}"))
    return said


def _rows(number: int) -> str:
    return "one row names" if number == 1 else f"{number:,} rows name".replace(",", " ")


def _features(found: Reading) -> list[tuple[str, str]]:
    graph = found.graph
    names = graph.feature_names or ()
    plain = [(name, place) for place, name in enumerate(names) if name in found.empty]
    said = []
    if plain and graph.num_nodes > 1:
        part = graph.features[:, [place for _, place in plain]]
        values = part if isinstance(part, np.ndarray) else part.toarray()
        flat = [name for (name, _), same in zip(plain, (values == values[0]).all(axis=0), strict=True) if same]
        if flat:
            said.append(("features", f"{_some(flat)}: the same value in every row, which tells nothing"))
    for name, empty in found.empty.items():
        if empty > MOSTLY_EMPTY * graph.num_nodes:
            share = 100 * empty / graph.num_nodes
            said.append(("features", f"'{name}': {share:.0f} % of the cells are empty, and filled in"))
    return said


def _far(found: Reading) -> list[tuple[str, str]]:
    """Numbers that are slips of the keyboard, or stand for an empty cell."""
    names = found.graph.feature_names or ()
    said = []
    for place, name in enumerate(names):
        if name not in found.empty:
            continue  # made of words or of dates
        column = found.graph.features[:, [place]]
        values = (column if isinstance(column, np.ndarray) else column.toarray()).ravel()
        far = far_value(values)
        if far is not None:
            value, low, high = far
            rows = int((values == value).sum())
            where = "one row" if rows == 1 else f"{rows} rows"
            said.append(
                (
                    "features",
                    f"'{name}': {value:g} in {where}, far from all others ({low:g} to {high:g}): a slip, or does it "
                    f"stand for an empty cell (nodes.empty)?",
                )
            )
    return said


def far_value(values: NDArray[np.floating]) -> tuple[float, float, float] | None:
    """A value that is far from all others, if there is one: at either end, beside at most two others of that end.

    Laboratory values are skewed, so that a large one is not yet far. It is where it lies ten ranges of the others
    beyond them and, where it and they are above 0, further in logarithms, too, than they lie apart. A code for an empty
    cell may be nearer: -9, -99, -999 and so on are far where nothing else is below 0.

    Args:
        values: [n] of one column.

    Returns:
        The value, and the least and the greatest of the others.

    Example:
        >>> far_value(np.array([20.0, 35.0, 41.0, 58.0, 77.0, 90.0, -99.0]))
        (-99.0, 20.0, 90.0)
        >>> far_value(np.array([1.0, 2.0, 5.0, 20.0, 120.0, 900.0])) is None
        True
    """
    known = np.unique(values.astype(np.float64))
    if len(known) <= _ENOUGH:
        return None
    if known[1] >= 0 > known[0] and set(f"{-known[0]:g}") == {"9"}:
        return float(known[0]), float(known[1]), float(known[-1])
    for ends in range(1, 2 * _AT_EACH_END + 1):
        for above in range(min(ends, _AT_EACH_END), -1, -1):
            below = ends - above
            rest = known[below : len(known) - above]
            if below > _AT_EACH_END or len(rest) < _ENOUGH:
                continue
            nearest = [*known[:below][-1:], *known[len(known) - above :][:1]]
            if all(_is_far(value, rest) for value in nearest):
                return float(known[-1] if above else known[0]), float(rest[0]), float(rest[-1])
    return None


def _is_far(value: float, rest: NDArray[np.float64]) -> bool:
    """Whether a value lies far outside ascending others."""
    gap = value - rest[-1] if value > rest[-1] else rest[0] - value
    if gap <= FAR * (rest[-1] - rest[0]):
        return False
    positive = rest[rest > 0]
    if value < rest[-1] or not len(positive):
        return True
    return bool(value / positive[-1] > positive[-1] / positive[0])


def _words(found: Reading, spec: TableSpec) -> list[tuple[str, str]]:
    """Words that differ so little that one is probably meant; where they are spelled out they are."""
    names = found.graph.feature_names or ()
    lists = [] if spec.classes is not None else [("classes", "class", found.graph.class_names or ())]
    for column, declared in spec.nodes.one_hot.items():
        if declared is None:
            prefix = f"{column}="
            words = tuple(name.removeprefix(prefix) for name in names if name.startswith(prefix))
            lists.append(("features", f"'{column}'", words))
    said = []
    for where, what, words in lists:
        groups: dict[str, list[str]] = {}
        for word in words:
            groups.setdefault("".join(word.split()).casefold(), []).append(word)
        for group in groups.values():
            if len(group) > 1:
                text = f"{_some(group)} ({what}) differ by case or blanks alone: is one of them meant?"
                said.append((where, text))
    return said


def _some(words: Iterable[str]) -> str:
    return several((f"'{word}'" for word in words), SHOWN)
