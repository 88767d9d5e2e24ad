"""Of which tables silos' graphs are made, and one order of types, relations and columns for all of them.

Types of nodes and relations are known by their names, in the order of the alphabet. A silo may lack some: its nodes
then have zeros in the columns of the types that it lacks, and no rows of the relations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.links import LinkTable
from graphsilo.data.sources.faults import Faults
from graphsilo.data.sources.link_columns import add_link_columns, check_windows
from graphsilo.data.sources.sums import Sums, windows_of
from graphsilo.data.sources.table_spec import LINK, TableSpec
from graphsilo.data.sources.vocabulary import Learned, Vocabulary, alike_words, first_difference, share_words
from graphsilo.data.truth import TRUTH
from graphsilo.errors import DataError, several
from graphsilo.settings import WIDEST

Words = TypeVar("Words")


@dataclass(frozen=True)
class Layout:
    """The tables of a graph.

    Attributes:
        types: Of nodes; [''] where they are one table without a name.
        relations: What tables of links are called.
        links: Names of the columns of links.
        shares: Those of them that are 0 or 1.
        has_rows: Whether rows of links say more than which nodes are linked.
        windows: Days that sums over links go back; None where there are no sums.
        target: Type of the nodes that are classified.
        ends: Types of the nodes that the rows of each relation begin and end at.
        dated: Those of the tables that say when their rows were.
    """

    types: list[str] = field(default_factory=lambda: [""])
    relations: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    shares: list[str] = field(default_factory=list)
    has_rows: bool = False
    windows: list[float] | None = None
    target: str = ""
    ends: list[list[str]] = field(default_factory=list)
    dated: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, graph: Graph, spec: TableSpec | None, sums: bool | Sums) -> Layout:
        """Of a graph, the description that it was read by, if it was, and the sums that were asked for."""
        rows, types = graph.links, graph.types
        relations = spec.relations if spec is not None else () if rows is None else rows.relations
        read = () if rows is None else rows.lead(types)
        ends = read or [("", "")] * len(relations) if spec is None else map(spec.ends, relations)
        windows = windows_of(sums)
        links = () if rows is None else rows.feature_names
        return cls(
            sorted(spec.nodes) if spec is not None else [""] if types is None else list(types.names),
            list(relations),
            list(links),
            [name for name in links if name in graph.booleans or "=" in name],
            rows is not None,
            None if windows is None else check_windows(windows),
            spec.target if spec is not None else "" if types is None else types.names[types.target],
            list(map(list, ends)),
            [] if spec is None else sorted(name for name, said in spec.tables() if said.time is not None),
        )

    def find_fault(self) -> str:
        """Why no silo has such tables, whatever it holds; empty where one may."""
        names = {"types": self.types, "relations": self.relations, "links": self.links}
        twice = next((what for what, listed in names.items() if len(set(listed)) < len(listed)), None)
        if twice is not None:
            return f"a name stands twice in layout.{twice}"
        if not all(0 < days < np.inf for days in self.windows or []):
            return "a window is no number of days"
        if any(len(pair) != 2 for pair in self.ends) or len(self.ends) != len(self.relations):
            return "layout.ends are not two types of nodes for each table of links"
        known = {
            "target": ([self.target], {"", *self.types}),
            "ends": ([kind for pair in self.ends for kind in pair], {"", *self.types}),
            "shares": (self.shares, set(self.links)),
            "dated": (self.dated, {*self.types, *self.relations}),
        }
        strange = next((what for what, (listed, among) in known.items() if not among.issuperset(listed)), None)
        if strange is not None:
            return f"layout.{strange} names what is not among its types, relations and columns"
        sums = 4 * (len(self.relations) + 2 * len(self.links)) * (1 + len(self.windows or ()))
        return f"sums over its links would be up to {sums} columns; at most {WIDEST}" if sums > WIDEST else ""

    def sum_names(self) -> tuple[str, ...]:
        """What sums over links are called: those of a graph without a node."""
        if not self.has_rows or self.windows is None:
            return ()
        rows = LinkTable(
            tuple(self.relations), np.zeros(0, np.int16), np.zeros((2, 0), np.int64),
            np.zeros((0, len(self.links))), tuple(self.links), np.zeros(0),
        )  # fmt: skip
        empty = Graph(
            np.zeros((0, 0), np.float32), rows.ends, np.zeros(0, np.int64), 1, links=rows, feature_names=(),
            booleans=dict.fromkeys(self.shares, TRUTH),
        )  # fmt: skip
        return add_link_columns(empty, self.windows).feature_names or ()


@dataclass(frozen=True)
class Described:
    """A silo's tables, and the words of their columns."""

    layout: Layout
    words: Vocabulary

    @property
    def learned(self) -> Learned:
        """What its tables must be read with."""
        layout = self.layout
        many = tuple(layout.types) if len(layout.types) > 1 else ()
        relations = tuple(layout.relations) if layout.has_rows else ()
        return Learned(
            self.words.names,
            None,
            many,
            relations,
            tuple(layout.links),
            tuple((start, end) for start, end in layout.ends),
        )


def agree(silos: Sequence[Described]) -> list[Described]:
    """The silos as if each had the tables of all, with one list of words for each column.

    Raises:
        DataError: They contradict each other; all that is wrong, at once.
    """
    faults = Faults("the silos' tables")
    for check in (_names, _ends, _dates, _targets, _windows):
        faults.found += [DataError(text) for text in check(silos)]
    faults.raise_if_any()
    types = sorted({kind for one in silos for kind in one.layout.types})
    relations = sorted({name for one in silos for name in one.layout.relations})
    has_rows = any(one.layout.has_rows for one in silos) or (len(relations) > 1 and len(silos) > 1)
    started = [_begin(one, types) for one in silos]
    shared = share_words([_with_links(one) for one in started])
    columns = {
        start: [(words.owner, _below(start, words.names)) for one, words in zip(started, shared, strict=True)
                if start[:-1] in (*one.layout.relations, *one.layout.types)]
        for start in [*(f"{kind}." for kind in types if len(types) > 1), *(f"{name}." for name in relations)]
    }  # fmt: skip
    for start, found in columns.items():
        faults.found += [DataError(text) for text in _columns_differ(start[:-1], found, start[:-1] in relations)]
    shares = {name: one.words.owner for one in started for name in one.layout.shares}
    for one in started:
        for name in one.layout.links:
            if name in shares and name not in one.layout.shares and "=" not in name:
                faults.found.append(
                    DataError(
                        f"column '{name}' of links is a truth value at {shares[name]} and a number at "
                        f"{one.words.owner}: declare it under `boolean` in every description, or in none."
                    )
                )
    faults.raise_if_any()
    links = [name for relation in relations if columns[f"{relation}."] for name in columns[f"{relation}."][0][1]]
    telling = next((one for one in silos if one.layout.has_rows), silos[0])
    plain = [name for name in links if name in shares or "=" in name]
    target = max(one.layout.target for one in silos)
    ends = dict(pair for one in silos for pair in zip(one.layout.relations, one.layout.ends, strict=True))
    layout = Layout(
        types, relations, links, plain, has_rows, telling.layout.windows, target, [ends[name] for name in relations],
        sorted({name for one in silos for name in one.layout.dated}),
    )  # fmt: skip
    sums = layout.sum_names()
    agreed = []
    for one, words in zip(started, shared, strict=True):
        own = [name for name in words.names if name not in one.layout.links and name not in set(links)]
        if len(types) > 1:
            own = [name for kind in types for name in columns[f"{kind}."][0][1]] + [f"type={kind}" for kind in types]
        agreed.append(Described(layout, replace(words, names=(*own, *sums))))
    return agreed


def _names(silos: Sequence[Described]) -> Iterator[str]:
    """Tables without a name beside such as have one, and names that stand for two things."""
    plain = next((one for one in silos if one.layout.types == [""]), None)
    named = next((one for one in silos if one.layout.types != [""]), None)
    if plain is not None and named is not None:
        kinds = several(named.layout.types, 6)
        yield (
            f"{named.words.owner} names types of nodes ({kinds}), and {plain.words.owner} has one table of nodes "
            f"without a name: say of which type they are, as nodes: {{{named.layout.target}: {{path: ...}}}}."
        )

    plain = next((one for one in silos if one.layout.relations == [LINK]), None)
    named = next((one for one in silos if LINK not in one.layout.relations), None)
    if plain is not None and named is not None:
        yield (
            f"{named.words.owner} names its tables of links ({several(named.layout.relations, 6)}), and "
            f"{plain.words.owner} has one without a name: say which it is, as edges: {{{named.layout.relations[0]}: "
            f"{{path: ...}}}}."
        )
    both = {kind: one.words.owner for one in silos for kind in one.layout.types}
    for one in silos:
        for name in sorted({*one.layout.relations} & both.keys()):
            yield f"'{name}' is a type of nodes at {both[name]} and a table of links at {one.words.owner}: rename one."


def _ends(silos: Sequence[Described]) -> Iterator[str]:
    """Tables of one name whose rows lead between other types."""
    first: dict[str, tuple[str, list[str]]] = {}
    for one in silos:
        for name, pair in zip(one.layout.relations, one.layout.ends, strict=True):
            owner, known = first.setdefault(name, (one.words.owner, pair))
            if known != pair:
                mine, theirs = (f"from {start or 'nodes'} to {end or 'nodes'}" for start, end in (known, pair))
                yield (
                    f"links '{name}' lead {mine} at {owner} and {theirs} at {one.words.owner}: name one of them "
                    f"otherwise, or turn `from` and `to` (with source and target) round."
                )


def _dates(silos: Sequence[Described]) -> Iterator[str]:
    """Tables of one name of which some say when their rows were."""
    has = {name: one.words.owner for one in silos for name in one.layout.dated}
    for one in silos:
        for name in (*one.layout.types, *one.layout.relations):
            if name in has and name not in one.layout.dated and "." not in name:
                table = f"'{name}'" if name else "of nodes"
                yield (
                    f"the table {table} has dates at {has[name]} and none at {one.words.owner}: name the column under "
                    f"`time` in every description, or in none."
                )
                return


def _targets(silos: Sequence[Described]) -> Iterator[str]:
    first = silos[0]
    for other in silos[1:]:
        if "" not in (first.layout.target, other.layout.target) and other.layout.target != first.layout.target:
            yield (
                f"nodes of type '{first.layout.target}' are classified at {first.words.owner}, and those of type "
                f"'{other.layout.target}' at {other.words.owner}: say the same `target` in every description. A silo "
                f"without nodes of that type has nothing to be classified, and takes no part."
            )
            return


def _windows(silos: Sequence[Described]) -> Iterator[str]:
    known = [one for one in silos if one.layout.has_rows]
    for other in known[1:]:
        if other.layout.windows != known[0].layout.windows:
            mine, theirs = (_in_words(one.layout.windows) for one in (known[0], other))
            yield (
                f"{known[0].words.owner} adds up links {mine}, and {other.words.owner} {theirs}: say the same `sums` "
                f"in every description."
            )
            return


def _in_words(windows: Sequence[float] | None) -> str:
    return "not at all" if windows is None else f"over all days{''.join(f' and {one:g}' for one in windows)}"


def _begin(one: Described, types: Sequence[str]) -> Described:
    """With the name of its only type before its columns, where others have more types."""
    layout, words = one.layout, one.words
    sums = set(layout.sum_names())
    own = tuple(name for name in words.names if name not in sums)
    if len(types) == 1 or len(layout.types) > 1:
        return Described(layout, replace(words, names=own))
    start = f"{layout.types[0]}."
    of_links = tuple(f"{name}." for name in layout.relations)
    renamed = {name: f"{start}{name}" for name in words.words if not name.startswith(of_links)}
    return Described(
        layout,
        replace(
            words,
            names=tuple(f"{start}{name}" for name in own),
            words={renamed.get(name, name): listed for name, listed in words.words.items()},
            open=frozenset(renamed.get(name, name) for name in words.open),
        ),
    )


def _with_links(one: Described) -> Vocabulary:
    return replace(one.words, names=(*one.words.names, *one.layout.links))


def _below(start: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if name.startswith(start)]


def _columns_differ(what: str, found: Sequence[tuple[str, Sequence[str]]], of_links: bool) -> Iterator[str]:
    """What to say where silos have other columns in tables of one name."""
    kind = f"links '{what}'" if of_links else f"nodes of type '{what}'"
    for owner, names in found[1:]:
        first, mine = found[0]
        if list(names) != list(mine):
            place = first_difference("column", mine, first, names, owner)
            advice = alike_words(mine, names).replace("nodes.", f"{'edges' if of_links else 'nodes'}.{what}.")
            yield (
                f"{kind} have {len(mine)} columns at {first} and {len(names)} at {owner}{place}. Silos may lack a "
                f"table, and must agree on its columns and their order where they have it. {advice}"
            )
            return


def rename_booleans(booleans: Mapping[str, Words], own: Layout, agreed: Layout) -> dict[str, Words]:
    """Truth values by the names that their columns have among those of all silos."""
    if len(agreed.types) == 1 or len(own.types) > 1:
        return dict(booleans)
    return {name if name in own.links else f"{own.types[0]}.{name}": words for name, words in booleans.items()}
