"""A silo with its own data: ``silo.yaml`` says where the data is, how it is split, and what may leave.

```yaml
name: north                  # as in the federation
data: tables.yaml            # a description of tables, or the same keys here (nodes, edges, ...), or store: FOLDER
features: {scale: standard}
split: {ratios: [0.2, 0.4, 0.4], seed: 2024}
policy: {}                   # graphsilo.federation.policy
```

Loading a silo alone, as client k, gives the very arrays that client k has in one process with all others: the split
depends on its seed, on k and on the silo's own labels; what must be agreed upon (classes and their order, whether
features are sparse) is compared on the silos' cards (:mod:`graphsilo.data.silos.cards`) and handed to
:meth:`SiloFile.load`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from pydantic import BeforeValidator, field_validator

from graphsilo import documents
from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.partition.rule import Moment, Seed, TimeOptions
from graphsilo.data.partition.splits import check_ratios, ratios_for
from graphsilo.data.scales import UNSCALED, ScaleOptions, Scaling
from graphsilo.data.silos.between import own_links
from graphsilo.data.silos.scenarios import build_silo
from graphsilo.data.silos.schema import TABLES, learned_of
from graphsilo.data.silos.silo import Schema, Silo
from graphsilo.data.silos.store import SiloStore
from graphsilo.data.silos.union import dense, own_partition, union
from graphsilo.data.sources import catalog
from graphsilo.data.sources.description import Description, Name, Names
from graphsilo.data.sources.missing import REFUSE, Missing
from graphsilo.data.sources.sums import Sums
from graphsilo.data.sources.table_spec import (
    EdgeTables,
    FeatureOptions,
    LabelTable,
    NodeTables,
    OutsideTable,
    TableSpec,
    read_spec,
    spec_of,
)
from graphsilo.data.sources.tables import Reading
from graphsilo.data.sources.vocabulary import Learned
from graphsilo.data.truth import BooleanWords, join_truth
from graphsilo.errors import ConfigError, DataError
from graphsilo.settings import Share, must_be, setting
from graphsilo.types import NODE_TASKS, ClientId, Task

OwnMode: TypeAlias = Literal["stratified", "predefined", "time"]
"""Splits that a silo can draw alone; ``global`` draws over all silos."""
DEFAULT_SEED = 2024

_INLINE = ("nodes", "edges", "target", "sums", "labels", "outside", "directed", "classes")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def _check_mode(value: Any) -> Any:
    if value == "global":
        raise must_be(
            "'stratified', 'time', or 'predefined' with a column nodes.split: 'global' draws over the nodes of all "
            "silos, which no silo sees"
        )
    return value


class SiloFeatures(FeatureOptions, ScaleOptions):
    """What ``features:`` says in a ``silo.yaml``."""


class SiloSplit(Description):
    """How a silo divides its nodes."""

    mode: Annotated[OwnMode, BeforeValidator(_check_mode)] | None = setting(
        None, "per class, by time, or as a column says; none: as the tables have such a column"
    )
    ratios: tuple[Share, Share, Share] | None = setting(
        None, "shares of training, validation and test items; none: 0.2, 0.4, 0.4 of nodes and 0.8, 0.1, 0.1 of links"
    )
    seed: Seed = setting(DEFAULT_SEED, "of the splits")
    train_until: Moment | None = setting(None, "mode time: the last day (or number) of training; none: as ratios say")
    val_until: Moment | None = setting(None, "and of validation; what is later is for tests")


class SiloDescription(Description):
    """A silo with its own data."""

    name: Name = setting(..., "as in the federation: small letters, digits and hyphens")
    data: Name | None = setting(None, "a description of tables (.yaml)")
    nodes: NodeTables | None = setting(None, "or the table of nodes itself, or several")
    edges: EdgeTables | None = setting(None, "and the table of edges, or several")
    labels: LabelTable | None = setting(None, "beside them, as in a description of tables")
    outside: OutsideTable | None = setting(None, "beside them, as in a description of tables")
    target: Name | None = setting(None, "beside them, as in a description of tables")
    sums: bool | Sums | None = setting(None, "beside them, as in a description of tables")
    directed: bool | None = setting(None, "beside them, as in a description of tables")
    classes: Names | None = setting(None, "beside them, as in a description of tables")
    store: Name | None = setting(None, "or the folder of a silo that `graphsilo silo export` wrote")
    features: SiloFeatures = setting(SiloFeatures(), "what empty cells become, and how features are scaled")
    options: dict[str, Any] = setting({}, "what happens to the data on its way in, as under data: of a run")
    split: SiloSplit = setting(SiloSplit(), "how nodes are divided")
    policy: dict[str, Any] = setting({}, "what may leave the silo")

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise must_be("small letters, digits and hyphens, as the federation calls the silo")
        return value


@dataclass(frozen=True)
class SiloFile:
    """What a ``silo.yaml`` says; paths are absolute.

    Attributes:
        path: The file.
        name: Of the silo, as in the federation.
        tables: Where the data is, unless it is stored.
        store: Folder of a stored silo, or None.
        options: What happens to the data on its way in; see :class:`graphsilo.data.sources.catalog.LoadOptions`.
        split: How nodes are divided; for a stored silo not used.
        policy: As written.
        scaling: How features are scaled; all silos of a federation do alike.
    """

    path: Path
    name: str
    tables: TableSpec | None = None
    store: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    split: SiloSplit = field(default_factory=SiloSplit)
    policy: Mapping[str, Any] = field(default_factory=dict)
    scaling: Scaling = UNSCALED

    def load(
        self,
        client: ClientId,
        *,
        task: Task | None = None,
        schema: Schema | None = None,
        sparse: bool | None = None,
        scenario: str = "seen",
        fills: Mapping[str, float] | None = None,
    ) -> Silo:
        """Reads the data and makes the silo of it.

        Args:
            client: Number of the silo in its federation.
            task: ``node`` or ``link``; None takes the schema's, else ``node``, or what a stored silo is made for.
            schema: What the federation agreed on: names the classes and their order, also those that are absent here.
                None takes what this silo knows alone.
            sparse: Whether features are kept as CSR: all silos do alike. None decides by this silo alone.
            scenario: ``seen`` or ``inductive``; a stored silo has its own.
            fills: What empty cells become, of a model that was trained here before; None takes what the tables say.

        Raises:
            ConfigError: The description is wrong.
            DataError: The data is, or it does not fit the schema.
            UnsupportedError: The data cannot serve the task or the scenario.
        """
        if self.store is not None:
            return _load_stored(self, client, task, schema, sparse)
        read = self.read(Learned(fills=fills) if schema is None else learned_of(schema, fills))
        return self.silo_of(read, client, task=task, schema=schema, sparse=sparse, scenario=scenario)

    def silo_of(
        self,
        read: Reading,
        client: ClientId,
        *,
        task: Task | None = None,
        schema: Schema | None = None,
        sparse: bool | None = None,
        scenario: str = "seen",
    ) -> Silo:
        """As :meth:`load`, of tables that were read already."""
        graph = read.graph if schema is None else _match_schema(read.graph, schema, self)
        whole, sizes = union([graph], sparse=sparse)
        partition = own_partition(
            whole,
            sizes,
            mode=self.split.mode or "stratified",
            ratios=self.split.ratios or ratios_for("", self.split.mode or "stratified"),
            seed=self.split.seed,
            times=TimeOptions(train_until=self.split.train_until, val_until=self.split.val_until),
            first_client=client,
        )
        chosen = task or (schema.task if schema is not None else whole.task)
        silo = build_silo(
            whole, partition, client=client, scenario=scenario, task=chosen, link_ratios=self.split.ratios
        )
        silo = replace(silo, fills=read.graph.fills, estimated=read.graph.estimated)
        if chosen in NODE_TASKS and scenario == "seen":
            silo = replace(silo, cut=own_links(whole, partition.nodes[0]))
        return silo if schema is None else replace(silo, schema=replace(schema, task=chosen))

    def read(self, learned: Learned | None = None) -> Reading:
        """The graph of the tables, as ``graphsilo.data.load`` gives it; classes as this silo knows them.

        Args:
            learned: Words and fill values that are known already, of a schema or a model.

        Raises:
            ConfigError, DataError: As there.
        """
        assert self.tables is not None, "a stored silo has no tables"
        return catalog.load_spec(self.tables, self.options, learned=learned)

    def record(self, kind: str) -> Path:
        """The file in ``sums/``, beside this one, where something of the silo's data is kept for good.

        It is called after where the nodes are: not after the silo, which another federation calls otherwise, nor after
        what is in the tables, which changes. Within the folder places count from there: it may be moved as a whole.

        Args:
            kind: What is kept, as the ending of the file's name.
        """
        folder = self.path.parent.resolve()
        place, more = (
            (self.store, "")
            if self.tables is None
            else self.tables.places[self.tables.node_key(self.tables.target)].address
        )
        if isinstance(place, Path):
            place = place.resolve()
            place = place.relative_to(folder) if place.is_relative_to(folder) else place
        return folder / "sums" / f"{hashlib.sha256(f'{place} {more}'.encode()).hexdigest()[:12]}.{kind}"

    @property
    def missing(self) -> Missing:
        """What becomes of empty cells: as the options say, else as the tables' description does."""
        said = self.options.get("missing")
        if said is not None:
            return Missing.parse(said)
        return REFUSE if self.tables is None else self.tables.missing

    @property
    def sums(self) -> bool | Sums:
        """What nodes are told of their links: as the options say, else as the tables' description does."""
        return False if self.tables is None else catalog.sums_of(self.tables, self.options)

    def stored_client(self) -> ClientId:
        """The client number that a stored silo was exported as.

        Raises:
            DataError: The folder holds no silo, or several.
        """
        assert self.store is not None, "only a stored silo has a number of its own"
        held = SiloStore(self.store).clients()
        if len(held) != 1:
            what = f"{len(held)} silos (clients {', '.join(map(str, held))})" if held else "no silo"
            raise DataError(
                f"{self.path}: the store {self.store} holds {what}; wanted is one, in a folder of its own, as "
                f"`graphsilo silo export` writes it."
            )
        return held[0]


def read_silo_file(path: str | os.PathLike[str]) -> SiloFile:
    """Reads and checks a ``silo.yaml``, and the description of tables that it names; tables are not opened.

    Raises:
        ConfigError: A key is unknown or missing, keys contradict each other, or a value is of the wrong kind; or a file
            is missing or is not YAML.
        DataError: A folder is missing.
    """
    file = Path(path).expanduser().absolute()
    description = SiloDescription.of(documents.read(file, "the silo file"), origin=str(file))
    tables, store = _data(description, file)
    if store is not None:
        for key in ("options", "split"):
            if key in description.model_fields_set:
                raise ConfigError(
                    f"{file}: '{key}' cannot be changed in a stored silo: it was prepared and split when it was "
                    f"exported. Leave the key out."
                )
        return SiloFile(
            file, description.name, store=store, policy=description.policy, scaling=_stored_scaling(description, file)
        )
    assert tables is not None
    if tables.outside is not None and tables.name != description.name:
        raise ConfigError(
            f"{file}: the silo is '{description.name}', and {tables.file.name} calls its graph '{tables.name}'. Links "
            f"of other silos lead to it by one name: write name: {description.name} in {tables.file.name}."
        )
    options = _with_features(description, tables, file)
    catalog.LoadOptions.parse(options, name=description.name, origin=str(file))
    return SiloFile(
        file, description.name, tables, options=options, split=_split(description.split, tables, file),
        policy=description.policy,
        scaling=Scaling.of(options.get("scale"), options.get("scale_by"), own_tables=True, where=f"{file}: features"),
    )  # fmt: skip


def _stored_scaling(description: SiloDescription, file: Path) -> Scaling:
    """What ``features`` says beside a stored silo, whose features are as they were read."""
    given = description.features
    found = Scaling.of(given.scale, given.scale_by, own_tables=False, where=f"{file}: features")
    if given.missing is not None or found.scale == "unit_rows":
        raise ConfigError(
            f"{file}: empty cells are filled and rows normalised when tables are read, and a stored silo was read when "
            f"it was exported. Leave out features.{'scale' if given.missing is None else 'missing'}."
        )
    return found


def _data(description: SiloDescription, file: Path) -> tuple[TableSpec | None, Path | None]:
    """Where the data is: exactly one of three."""
    inline = {key: value for key in _INLINE if (value := getattr(description, key)) is not None}
    ways = [key for key in ("data", "store") if getattr(description, key) is not None]
    ways += ["nodes and edges"] if {"nodes", "edges"} & inline.keys() else []
    if len(ways) != 1:
        found = "it has " + (" and ".join(f"'{way}'" for way in ways) or "none of them")
        raise ConfigError(
            f"{file}: a silo's data is named by one of 'data' (a description of tables), 'nodes' and 'edges' (the "
            f"tables themselves) and 'store' (an exported silo); {found}."
        )
    if ways == ["nodes and edges"]:
        return spec_of({"name": description.name, **inline}, file), None
    if inline:
        where = "in the description of tables" if ways == ["data"] else "with nodes and edges only"
        raise ConfigError(f"{file}: '{next(iter(inline))}' stands {where}, not beside '{ways[0]}'.")
    place = file.parent / Path(getattr(description, ways[0])).expanduser()
    if ways == ["store"]:
        if not place.is_dir():
            raise DataError(f"{file}: the folder {place} (store) does not exist.")
        return None, place
    if not catalog.is_description(place):
        raise ConfigError(
            f"{file}: 'data' must name a description of tables (.yaml); got '{place.name}'. Tables themselves stand "
            f"under 'nodes' and 'edges'."
        )
    return read_spec(place), None


def _with_features(description: SiloDescription, tables: TableSpec, file: Path) -> Mapping[str, Any]:
    """The options with what ``features:`` says: the same in a silo's file as in a description, but in one of them."""
    said = description.features.model_dump(exclude_none=True)
    for key in said:
        if key in description.options:
            raise ConfigError(f"{file}: '{key}' stands under 'options' and under 'features'; keep the second.")
    if "missing" in said and tables.missing.rules and tables.file != file:
        raise ConfigError(
            f"{file}: features.missing stands here and in {tables.file.name}; only one of them could hold. Keep it "
            f"where the columns are described."
        )
    return {**description.options, **said}


def _split(description: SiloSplit, tables: TableSpec, file: Path) -> SiloSplit:
    mode = description.mode or ("predefined" if tables.classified.split is not None else "stratified")
    if mode == "predefined" and tables.classified.split is None:
        raise ConfigError(
            f"{file}: split.mode is 'predefined', but no column says which node trains: name it as nodes.split in "
            f"{tables.file.name}, or use 'stratified'."
        )
    dates = [key for key in ("train_until", "val_until") if getattr(description, key) is not None]
    if dates and (mode != "time" or description.ratios is not None):
        beside = f"split.mode is '{mode}'" if mode != "time" else "split.ratios say the same"
        raise ConfigError(
            f"{file}: split.{dates[0]} is a boundary in time, and {beside}. Set mode: time with dates or with ratios, "
            f"or leave the dates out."
        )
    try:
        ratios = None if description.ratios is None else check_ratios(description.ratios, "split.ratios")
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    return description.model_copy(update={"mode": mode, "ratios": ratios})


def _match_schema(graph: Graph, schema: Schema, file: SiloFile) -> Graph:
    """The graph with the federation's class numbers, or targets as numbers where others have other than 0 and 1."""
    if graph.targets is not None and schema.task == "regression":
        graph = replace(graph, targets=replace(graph.targets, task="regression"))
    tables = Schema.of(graph, schema.task)
    if (
        graph.num_features != schema.num_features
        or (schema.feature_names is not None and graph.feature_names != schema.feature_names)
        or any(getattr(tables, key) != getattr(schema, key) for key in TABLES)
    ):
        raise DataError(
            f"silo '{file.name}' has other features now ({graph.num_features}), or other tables, than those the "
            f"federation agreed on ({schema.num_features}): its tables have changed since. Run `graphsilo silo check` "
            f"and start again."
        )
    join_truth(
        [
            BooleanWords("the federation", schema.feature_names or (), schema.booleans),
            BooleanWords(f"silo '{file.name}'", graph.feature_names or (), graph.booleans),
        ]
    )
    own, agreed = graph.class_names or (), schema.class_names
    if agreed is None or own == agreed:
        if graph.num_classes != schema.num_classes and own != agreed:
            raise DataError(
                f"silo '{file.name}' has {graph.num_classes} classes, the federation {schema.num_classes} without "
                f"names; list the classes in {file.path.name} or its tables' description."
            )
        return graph
    strange = [word for word in own if word not in agreed]
    if strange:
        raise DataError(
            f"silo '{file.name}' has nodes of class '{strange[0]}', which the federation does not know (it knows "
            f"{', '.join(agreed)}): its tables have changed since it reported its classes."
        )
    # One more entry for the label -1, which stays.
    numbers = np.array([*(agreed.index(word) for word in own), -1], dtype=np.int64)
    return replace(graph, labels=numbers[graph.labels], num_classes=schema.num_classes, class_names=agreed)


def _load_stored(
    file: SiloFile, client: ClientId, task: Task | None, schema: Schema | None, sparse: bool | None
) -> Silo:
    assert file.store is not None
    held = file.stored_client()
    if held != client:
        raise DataError(
            f"silo '{file.name}' was exported as client {held}, and its place in the federation makes it client "
            f"{client}. List the silos of a simulation in the order of their numbers."
        )
    try:
        silo = SiloStore(file.store).read(client)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"the stored silo {file.store} cannot be read ({error}): it is damaged or incomplete. Export it again."
        ) from error
    wanted = task or (schema.task if schema is not None else silo.schema.task)
    if wanted != silo.schema.task:
        raise DataError(
            f"silo '{file.name}' was exported for the task '{silo.schema.task}', and '{wanted}' is asked of it. "
            f"Export the simulation with task: {wanted}."
        )
    if sparse is not None:
        silo = _convert_features(silo, sparse)
    if schema is None:
        return silo
    own = silo.schema
    pairs = [(own.feature_names, schema.feature_names), (own.class_names, schema.class_names)]
    if (own.num_features, own.num_classes) != (schema.num_features, schema.num_classes) or any(
        None not in pair and pair[0] != pair[1] for pair in pairs
    ):
        raise DataError(
            f"silo '{file.name}' was exported with {own.num_features} features and {own.num_classes} classes; the "
            f"federation agreed on {schema.num_features} and {schema.num_classes}, or on other names of them."
        )
    return replace(silo, schema=replace(schema, task=wanted))


def _convert_features(silo: Silo, sparse: bool) -> Silo:
    """The silo with all features as CSR, or all dense; graphs that were one object stay one."""
    done: dict[int, Graph | GraphCollection] = {}

    def convert(graph: Graph | GraphCollection) -> Graph | GraphCollection:
        if id(graph) not in done:
            features = graph.union.features
            if graph.union.is_sparse != sparse:
                features = sp.csr_matrix(features) if sparse else dense(features)
            done[id(graph)] = graph if features is graph.union.features else graph.with_features(features)
        return done[id(graph)]

    return replace(
        silo,
        graph=convert(silo.graph),
        evaluations=tuple(replace(item, graph=convert(item.graph)) for item in silo.evaluations),
    )
