"""What a description of tables says, checked before any table is opened."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, create_model

from graphsilo import documents
from graphsilo.data.sources.columns import ColumnTable, Part
from graphsilo.data.sources.description import Description, Keys, Name, Names, WordMaps
from graphsilo.data.sources.empty import Rules
from graphsilo.data.sources.faults import Faults, name_fault
from graphsilo.data.sources.missing import Missing
from graphsilo.data.sources.sums import Sums
from graphsilo.data.sources.table_files import Query, TableFile, TableSource
from graphsilo.data.truth import TRUTH, Words
from graphsilo.errors import ConfigError, nearest, several
from graphsilo.settings import Positive, setting

LINK = "link"
"""What the rows of the only table of edges are called where it has no name."""


class NodeTable(ColumnTable):
    """A table of nodes."""

    id: Name = setting(..., "column of texts or whole numbers, each once")
    label: Name | None = setting(None, "column of classes; an empty cell means unlabelled")
    targets: Names = setting(
        (), "columns of numbers to be estimated, in place of classes; or several of 0 and 1, each a label that a node "
        "may have; an empty cell is unknown"
    )  # fmt: skip
    keys: Keys = setting({}, "columns of ids of other types, with the type: each cell is a link to that node")
    split: Name | None = setting(None, "column with train, val, test")


_ENDS: dict[str, Any] = {
    "from": (Name | None, setting(None, "type of the nodes that rows begin at; none: the only one")),
    "to": (Name | None, setting(None, "type of those that they end at; none: the only one")),
}
_Ends: Any = create_model("_Ends", __base__=ColumnTable, **_ENDS)
"""Since no attribute can be called ``from`` where Python reads it."""


class EdgeTable(_Ends):  # type: ignore[misc]
    """A table of edges."""

    source: Name = setting(..., "column of the node that an edge begins at")
    target: Name = setting(..., "column of the node that it ends at")
    features: Names = setting((), "columns of numbers, as in nodes; empty cells stay empty")
    weight: Name | None = setting(None, "column of weights above 0")
    unit: Positive = setting(1.0, "what weights are multiplied by")


class LabelTable(TableSource):
    """The table of labels, where they do not stand in that of nodes."""

    id: Name = setting(..., "column of the node")
    label: Name = setting(..., "column of its class")
    words: WordMaps = setting({}, "columns, with words of this table and what each is taken for")


class OutsideTable(TableSource):
    """The table of links to nodes of other silos; both silos have each of them, and a table may have no rows."""

    node: Name = setting(..., "column of the silo's own node")
    silo: Name = setting(..., "column of the other silo's name")
    other: Name = setting(..., "column of the id that the node at the other end has there")


class FeatureOptions(Description):
    """What ``features:`` says in a description of tables."""

    missing: Rules | None = setting(None, "what stands in an empty cell's place; none refuses empty cells")


def _by_name(kind: type[ColumnTable]) -> Any:
    """A table, or several by name; one alone has the name ''."""

    def parse(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        named = any(isinstance(item, dict | Description) for item in value.values())
        return value if named and not value.keys() & kind.model_fields.keys() else {"": value}

    return BeforeValidator(parse)


SILO_KEYS = ("data", "store", "split", "options", "policy")
"""Of a silo's own file, and not of a description of tables."""
NodeTables: TypeAlias = Annotated[dict[str, NodeTable], _by_name(NodeTable)]
EdgeTables: TypeAlias = Annotated[dict[str, EdgeTable], _by_name(EdgeTable)]


class TableDescription(Description):
    """A graph's tables."""

    name: Name | None = setting(None, "of the graph; none: the file's")
    nodes: NodeTables = setting(..., "the table of nodes, or several by the type of their nodes")
    edges: EdgeTables | None = setting(
        None, "the table of edges, or several by what their rows are called; none: keys of nodes are all links"
    )
    target: Name | None = setting(None, "type of the nodes that are classified, where several have labels")
    labels: LabelTable | None = setting(None, "the table of labels, in place of nodes.label")
    outside: OutsideTable | None = setting(None, "the table of links to nodes of other silos")
    directed: bool = setting(False, "whether a row of the edge table is a link in one direction only")
    classes: Names | None = setting(None, "fixed vocabulary, in the order of class numbers; none: the words that occur")
    sums: bool | Sums = setting(True, "what nodes are told of their links, as data.sums of a run")
    features: FeatureOptions = setting(FeatureOptions(), "what holds for features")


@dataclass(frozen=True)
class TableSpec:
    """A checked description of tables.

    Attributes:
        file: Where it stands.
        name: Of the graph.
        nodes: What it says of the tables of nodes, by type; the only one may be called ''.
        edges: What it says of the tables of edges, by relation.
        labels, outside: What it says of these tables.
        places: Where all these are, by what errors call them; paths are absolute.
        missing: What stands in an empty cell's place.
        directed, classes: As in the description.
        target: Type of the nodes that are classified.
        sums: What nodes are told of their links.
    """

    file: Path
    name: str
    nodes: Mapping[str, NodeTable]
    edges: Mapping[str, EdgeTable]
    labels: LabelTable | None
    outside: OutsideTable | None
    places: Mapping[str, TableFile | Query]
    missing: Missing
    directed: bool
    classes: tuple[str, ...] | None
    target: str = ""
    sums: bool | Sums = True

    @property
    def classified(self) -> NodeTable:
        """The table of the nodes that are classified."""
        return self.nodes[self.target]

    def tables(self) -> Iterator[tuple[str, ColumnTable]]:
        """What is said of each table of nodes and of edges, by its name."""
        yield from self.nodes.items()
        yield from self.edges.items()

    @property
    def relations(self) -> tuple[str, ...]:
        """What all rows of links are called, those of keys too, sorted."""
        keys = (f"{kind}.{column}" for kind, said in self.nodes.items() for column in said.keys)
        return tuple(sorted([*self.edges, *keys]))

    def node_key(self, kind: str) -> str:
        """What errors call a table of nodes."""
        return f"nodes.{kind}" if kind else "nodes"

    def edge_key(self, relation: str) -> str:
        """What errors call a table of edges."""
        return "edges" if "edges" in self.places else f"edges.{relation}"

    def ends(self, relation: str) -> tuple[str, str]:
        """Types of the nodes that the rows of a table of edges, or of keys, begin and end at."""
        if relation not in self.edges:
            kind, _, column = relation.partition(".")
            return kind, self.nodes[kind].keys[column]
        said, (first, *_) = self.edges[relation], self.nodes
        return getattr(said, "from") or first, said.to or first

    def node_part(self, kind: str, *, many: bool | None = None) -> Part:
        """A table of nodes.

        Args:
            kind: The type.
            many: Whether there are several types; None where the description says so.
        """
        said = self.nodes[kind]
        answers = {said.split: "split", said.label: "label"} if kind == self.target else {said.label: "label"}
        answers |= dict.fromkeys(said.targets, "targets")
        return Part(
            self.node_key(kind), said, self.file, f"{kind}." if (len(self.nodes) > 1 if many is None else many) else "",
            frozenset([said.id, said.label, *said.targets, said.split, said.time_column, *said.keys]),
            {column: what for column, what in answers.items() if column is not None}, self.missing,
        )  # fmt: skip

    def edge_part(self, relation: str) -> Part:
        """A table of edges."""
        said = self.edges[relation]
        taken = frozenset([said.source, said.target, said.weight, said.time_column])
        return Part(self.edge_key(relation), said, self.file, f"{relation}.", taken)

    def parts(self) -> Iterator[Part]:
        """All tables of nodes, and all of edges."""
        yield from map(self.node_part, self.nodes)
        yield from map(self.edge_part, self.edges)

    @property
    def one_hot(self) -> dict[str, tuple[str, ...] | None]:
        """The words that are declared for every column of words; None where none are."""
        return {f"{part.start}{name}": words for part in self.parts() for name, words in part.said.one_hot.items()}

    def booleans(self, many: bool) -> dict[str, Words]:
        """Words of 0 and of 1 of every column of truth values."""
        parts = [*(self.node_part(kind, many=many) for kind in self.nodes), *map(self.edge_part, self.edges)]
        return {
            f"{part.start}{name}": TRUTH if pair is None else ((pair[0],), (pair[1],))
            for part in parts
            for name, pair in part.said.boolean.items()
        }


def read_spec(path: str | os.PathLike[str]) -> TableSpec:
    """Reads and checks the YAML file alone; tables are not opened.

    Raises:
        ConfigError: The file is missing or is not YAML, a key is unknown or missing, or a value is of the wrong kind.
    """
    file = Path(path).expanduser().absolute()
    return spec_of(documents.read(file, "the data description"), file)


def spec_of(content: object, file: Path) -> TableSpec:
    """Checks what a YAML file, or a part of one, says of tables.

    Args:
        content: As parsed.
        file: Where it stands: paths are relative to its folder, and errors name it.

    Raises:
        ConfigError: A key is unknown or missing, or a value is of the wrong kind; all that is wrong, at once.
    """
    if isinstance(content, Mapping) and (own := [key for key in SILO_KEYS if key in content]):
        there = content.get("data")
        hint = (
            f"Give '{there}' in its place" if isinstance(there, str)
            else "Keep the tables in a file without them, which a silo.yaml names under 'data'"
        )  # fmt: skip
        raise ConfigError(
            f"{file}: a silo's own file has {' and '.join(own)}, and a description of tables, which is wanted here, "
            f"has not. {hint}. A run in one process divides nodes by partition.split and the settings beside it."
        )
    description = TableDescription.of(content, origin=str(file))
    nodes, edges = description.nodes, description.edges or {}
    single = [*edges] == [""]
    labels, outside = description.labels, description.outside
    faults = Faults(file)
    tables: dict[str, TableSource | None] = {f"nodes.{kind}" if kind else "nodes": said for kind, said in nodes.items()}
    tables |= {"edges" if single else f"edges.{name}": said for name, said in edges.items()}
    tables |= {"labels": labels, "outside": outside}
    places: dict[str, TableFile | Query] = {}
    for key, table in tables.items():
        with faults.collect():
            if table is not None:
                places[key] = table.place(file, key)
    target = ""
    with faults.collect():
        if not edges and not any(said.keys for said in nodes.values()):
            raise ConfigError(f"{file}: edges is missing; it must be a table of settings, unless nodes have keys.")
    with faults.collect():
        target = _target(description, file)
    spec = TableSpec(
        file=file,
        name=description.name or file.stem,
        nodes=nodes,
        edges={LINK: edges[""]} if single else edges,
        labels=labels,
        outside=outside,
        places=places,
        missing=Missing.parse(description.features.missing),
        directed=description.directed,
        classes=description.classes,
        target=target,
        sums=description.sums,
    )
    faults.found += [ConfigError(f"{file}: {text}") for text in _contradictions(spec, single)]
    faults.raise_if_any()
    return spec


def _target(description: TableDescription, file: Path) -> str:
    kinds = list(description.nodes)
    labelled = [kind for kind, said in description.nodes.items() if said.label or said.targets]
    if description.target is not None:
        if kinds == [""]:
            raise ConfigError(f"{file}: target names a type of nodes, and there is one table of nodes. Leave it out.")
        if description.target not in kinds:
            raise ConfigError(
                f"{file}: target is '{description.target}', and nodes has no such table; "
                f"{nearest(description.target, kinds)}"
            )
        return description.target
    if len(kinds) == 1 or len(labelled) == 1:
        return (labelled or kinds)[0]
    what = f"{several(labelled, 4)} all have labels" if labelled else "none of the tables of nodes has a label"
    raise ConfigError(f"{file}: {what}; nodes of one type are classified. Say which: target: {(labelled or kinds)[0]}.")


def _contradictions(spec: TableSpec, single: bool) -> Iterator[str]:
    """What cannot be so, in words."""
    known = list(spec.nodes)
    if len(known) > 1 or single is False:
        for word in {*known, *spec.edges} - {""}:
            if not re.fullmatch(r"[\w-]+", word):
                yield f"'{word}' names a table; such names are made of letters, digits, _ and - alone."
        for word in sorted({*known} & {*spec.edges}):
            yield f"nodes and edges both have a table called '{word}', so that it is not clear whose a column is."
    beyond = spec.outside
    weighted = any(said.weight is not None for said in spec.edges.values())
    if beyond is not None and len(known) > 1:
        yield (
            "links to other silos (outside) are read where there is one table of nodes, and there are "
            f"{len(known)}. Leave out outside."
        )
    if beyond is not None and (spec.directed or weighted):
        yield (
            f"links to other silos (outside) have neither direction nor weight, and edges have "
            f"{'directions' if spec.directed else 'weights'} here. Leave out outside, or "
            f"{'directed' if spec.directed else 'edges.weight'}."
        )
    if beyond is not None and any(said.time is not None for said in spec.nodes.values()):
        yield (
            "links to other silos (outside) have no dates, and nodes are looked at on some (nodes.time): a node would "
            "be told of what came later. Leave out outside, or nodes.time."
        )
    if spec.target in spec.nodes and spec.classified.label is not None and spec.labels is not None:
        yield f"labels stand in one table, and {spec.node_key(spec.target)}.label and labels name two; leave one out."
    for kind, said in spec.nodes.items():
        if said.targets and (said.label is not None or (spec.labels is not None and kind == spec.target)):
            yield (
                f"{spec.node_key(kind)}.targets are estimated in place of classes, and "
                f"{'label' if said.label else 'labels'} names some, too; leave one out."
            )
    for relation, said in spec.edges.items():
        for key in ("from", "to"):
            kind = getattr(said, key)
            if kind is None and len(known) > 1:
                yield f"{spec.edge_key(relation)}.{key} is missing: it names one of the types {several(known, 8)}."
            elif kind is not None and kind not in known:
                yield (
                    f"{spec.edge_key(relation)}.{key} is '{kind}', and nodes has no such table; "
                    f"{nearest(kind, [kind for kind in known if kind])}"
                )
    for kind, table in spec.nodes.items():
        for column, other in table.keys.items():
            if other not in known:
                yield (
                    f"{spec.node_key(kind)}.keys.{column} is '{other}', and nodes has no such table; "
                    f"{nearest(other, [kind for kind in known if kind])}"
                )
        if table.split is not None and spec.target in known and kind != spec.target:
            yield (
                f"{spec.node_key(kind)}.split divides nodes that are not classified; those of "
                f"{spec.node_key(spec.target)} are. Leave it out."
            )
    for part in spec.parts():
        declared = [*part.said.one_hot, *part.said.boolean, *part.said.dates]
        for name in dict.fromkeys(name for name in declared if declared.count(name) > 1):
            key = part.key
            yield f"'{name}' stands under two of {key}.one_hot, {key}.boolean and {key}.dates; a column is one of them."
    for what, names in (("name", [spec.name]), ("classes", spec.classes or ())):
        for name in names:
            if wrong := name_fault(name):
                yield f"{what} is {name!r}, which {wrong}. Choose another word."
