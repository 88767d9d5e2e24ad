"""Every data set by the name users know it by: ``load("Cora")``.

Raw files come from a folder in PyTorch Geometric's layout (``GRAPHSILO_DATA``), or are downloaded by PyTorch Geometric
into the user's cache. They are converted once; later loads read the converted copy with numpy alone, so that a command
that only needs the graph does not import torch. Data roots are never written to.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import model_validator

from graphsilo.data.graph import Features, Graph, GraphCollection, PublishedSplits, add_notes
from graphsilo.data.scales import ScaleOptions, Scaling
from graphsilo.data.sources import cache, files
from graphsilo.data.sources.empty import Rules
from graphsilo.data.sources.entries import CatalogEntry, entry, find, names
from graphsilo.data.sources.raw_files import read_raw
from graphsilo.data.sources.sums import Sums, windows_of
from graphsilo.errors import ConfigError, DataError
from graphsilo.settings import setting

if TYPE_CHECKING:
    from graphsilo.data.sources.generated import Generated
    from graphsilo.data.sources.tables import Reading, TableSpec
    from graphsilo.data.sources.vocabulary import Learned

__all__ = ["CatalogEntry", "LoadOptions", "entry", "find", "load", "names"]

_DESCRIPTIONS = (".yaml", ".yml")
_GRAPH_FILES = (*_DESCRIPTIONS, ".npz", ".pt")

OTHER_CONTENT = (
    "the raw files hold as many nodes, links, features and classes as the published data set, but not the same ones, "
    "so that scores cannot be compared with published ones; where the files were not meant to differ, fetch them again"
)


class LoadOptions(ScaleOptions):
    """What happens to a data set on its way in.

    Loading scales by ``unit_rows`` alone; other ways need to know who trains on what, and are a run's
    (:mod:`graphsilo.data.silos.scaling`).
    """

    largest_component: bool = setting(False, "keep only the largest connected component (node tasks)")
    undirected: bool = setting(
        True, "symmetrise; drop self-loops and duplicate edges, whose weights add up. Tables that declare "
        "`directed: true` stay as they are unless this is said",
    )  # fmt: skip
    degree_features: bool | Literal["auto"] = setting(
        "auto", "one-hot degrees (of edges out of a node): auto where there are no features (IMDB-BINARY, COLLAB), "
        "true beside the features that are there, false never",
    )  # fmt: skip
    max_degree: int | None = setting(
        None, "larger degrees share the last column; none takes the largest degree of the data set", ge=1
    )
    use_node_attributes: bool = setting(
        False, "TU data sets: continuous attributes before the node labels, as PyG's `use_node_attr`"
    )
    missing: Rules | None = setting(
        None, "own tables: what stands in an empty cell's place, `refuse`, `mean`, `median` or `indicator`, or a table "
        "of columns to those or to numbers; none leaves it to the tables' description",
    )  # fmt: skip
    sums: bool | Sums = setting(
        True, "what nodes are told of their links where tables of these have columns or dates: how many, with how many "
        "others, how much, and with {windows: [7, 30, 90]} once more of the last so many days; false: nothing",
    )  # fmt: skip
    generator: dict[str, Any] = setting(
        {}, "settings of a generated data set, such as nodes; they may stand beside the others"
    )

    @model_validator(mode="after")
    def _scaling_is_one(self) -> Self:
        Scaling.of(self.scale, self.scale_by, own_tables=True)
        return self

    @classmethod
    def parse(
        cls,
        options: LoadOptions | Mapping[str, Any] | None,
        *,
        name: str,
        beside: Iterable[str] = (),
        origin: str = "",
    ) -> LoadOptions:
        """Options from plain values. For a generated data set its settings may stand beside the options.

        Args:
            options: As written.
            name: Of the data set.
            beside: Names that stand beside the options and may have been meant by an unknown one.
            origin: Where they were read; errors begin with it.

        Raises:
            ConfigError: An option is unknown or of the wrong type.
        """
        kind = generator(name)
        if isinstance(options, cls) or not isinstance(options, Mapping | None):
            return cls.of(options, owner=name, origin=origin)
        values = dict(options or {})
        for key in values.keys() - cls.model_fields.keys():
            generators = [] if kind else [item.name for item in names() if item.generated]
            if any(key in other.model_fields for one in generators if (other := generator(one))):
                raise ConfigError(
                    f"unknown setting 'data.{key}' for {name}; it is a setting of generated data "
                    f"({', '.join(generators)})."
                )
        if kind is None:
            return cls.of(values, owner=name, beside=beside, origin=origin)
        own = {key: values.pop(key) for key in list(values) if key not in cls.model_fields}
        made = cls.of(values, owner=name)
        settings = {**made.generator, **own}
        kind.of(settings, owner=name, beside=[*beside, *(cls.model_fields.keys() - {"generator"})])
        return made.model_copy(update={"generator": settings})


def generator(name: str) -> type[Generated] | None:
    """What makes a generated data set, with its settings; None of any other."""
    found = find(name)
    if found is None or not found.generated:
        return None
    from graphsilo.data.sources.generated import find_generator

    return find_generator(found.name)


def is_file(name: str) -> bool:
    """Whether a data set of this name is a file or folder, and not one of the catalog."""
    return Path(name).suffix.lower() in _GRAPH_FILES or is_folder(name)


def is_folder(name: str | os.PathLike[str]) -> bool:
    """Whether a data set of this name is a folder with a file for each client (:mod:`graphsilo.data.sources.fedgb`)."""
    path = Path(name).expanduser()
    return (path / "fedgb_manifest.json").is_file() or (path / "distrib").is_dir()


def is_description(name: str | os.PathLike[str]) -> bool:
    """Whether a data set of this name is a description of tables (:mod:`graphsilo.data.sources.tables`)."""
    return Path(name).suffix.lower() in _DESCRIPTIONS


def find_description(name: str | os.PathLike[str]) -> TableSpec | None:
    """What a description of tables says; None of a data set that is none.

    Raises:
        ConfigError: It is wrong.
    """
    if not is_description(name):
        return None
    from graphsilo.data.sources.tables import read_spec

    return read_spec(name)


def title(name: str) -> str:
    """What a data set or file of this name calls itself, which pages show; the name itself where it cannot be read."""
    path = Path(name).expanduser()
    with contextlib.suppress(ConfigError, DataError):
        if (spec := find_description(path)) is not None:
            return spec.name
        if path.suffix.lower() == ".npz":
            return files.load_graph(path).name
    return name


def memory_needed(name: str, options: LoadOptions | Mapping[str, Any] | None = None) -> int:
    """Bytes that a generated data set takes at the very least while it is made; 0 for all others.

    Raises:
        ConfigError: An unknown data set or option.
    """
    kind = None if is_file(name) else generator(entry(name).name)
    if kind is None:
        return 0
    return kind.of(LoadOptions.parse(options, name=kind.name).generator, owner=kind.name).least_bytes


def load(
    name: str,
    *,
    root: str | os.PathLike[str] | None = None,
    options: LoadOptions | Mapping[str, Any] | None = None,
    seed: int = 0,
    learned: Learned | None = None,
    several: bool = False,
) -> Graph | GraphCollection:
    """Loads a data set of the catalog, or a graph of your own.

    Args:
        name: A name of the catalog, or the path of a ``.yaml`` (tables), ``.npz`` (saved graph) or ``.pt`` (PyG) file,
            or of a folder of FedGB's.
        root: Folder with raw files in PyG's layout (``planetoid/Cora/raw/...``); None takes ``GRAPHSILO_DATA``. What
            is not there is looked for in the cache, then downloaded into it.
        options: See :class:`LoadOptions`.
        seed: For generated data only; a ``seed`` among the options wins.
        learned: For tables that a model is to be asked about: what it was trained with.
        several: Whether other silos' tables may have dates of links where these have none.

    Returns:
        A Graph for node tasks, a GraphCollection for graph tasks. Bags of words come as CSR.

    Raises:
        ConfigError: An unknown data set or option.
        DataError: The files are missing, damaged, or cannot be downloaded.
    """
    if is_file(name):
        return _load_file(Path(name), options, learned, several)
    found = entry(name)
    chosen = LoadOptions.parse(options, name=found.name)
    _own_tables_only(chosen, found.name)
    if (kind := generator(found.name)) is not None:
        made = kind.of({"seed": seed, **chosen.generator}, owner=found.name).generate()
        # Generated graphs are undirected by construction; to check it would take longer than to make them.
        return _apply(made, chosen, undirected_already=True)
    if chosen.generator:
        raise ConfigError(f"{found.name} is not generated, so it takes no generator settings; got {chosen.generator}.")
    if chosen.use_node_attributes and found.pyg_class != "TUDataset":
        raise ConfigError(f"use_node_attributes is an option of TU data sets such as PROTEINS, not of {found.name}.")
    if chosen.largest_component and found.task == "graph":
        raise ConfigError(f"largest_component needs one graph; {found.name} is a collection of {found.graphs}.")
    graph, facts = read_raw(found, _roots(root), chosen.use_node_attributes)
    if isinstance(graph, Graph):
        graph = replace(graph, splits=PublishedSplits(graph.splits))
    graph = _apply(graph, chosen, undirected_already=bool(facts.get("undirected")))
    return graph if facts["checksum"] in ("", found.checksum) else add_notes(graph, [OTHER_CONTENT])


def scaling_of(names: Sequence[str], options: LoadOptions | Mapping[str, Any] | None) -> Scaling:
    """How the features of some data sets are scaled, the usual way where the options do not say.

    Raises:
        ConfigError: An option is unknown, or does not go with another.
    """
    chosen = LoadOptions.parse(options, name=names[0])
    return Scaling.of(chosen.scale, chosen.scale_by, own_tables=all(map(has_tables, names)))


def has_tables(name: str) -> bool:
    """Whether a data set of this name is made of tables: a description of them, or generated institutions."""
    found = None if is_description(name) else find(name)
    return found.tables if found is not None else is_description(name)


def check_distinct(names: Mapping[int, str]) -> None:
    """Refuses a data set that two clients would hold: one's test nodes would be the other's training nodes.

    Raises:
        DataError: Two names stand for the same data.
    """
    seen: dict[str, int] = {}
    for client, name in names.items():
        path = Path(name).expanduser()
        key = str(path.resolve()) if is_file(name) else name.lower().replace("_", "-")
        if key in seen:
            raise DataError(
                f"clients {seen[key]} and {client} would hold the same data, {name}: what one of them is tested on, "
                f"the other has trained on. Name each data set once; several clients of one data set are made by "
                f"partition.clients."
            )
        seen[key] = client


def _own_tables_only(options: LoadOptions, name: str) -> None:
    if options.missing is not None:
        raise ConfigError(
            f"data.missing is for tables of your own, whose cells may be empty; {name} has none. Leave it out."
        )


def _load_file(
    path: Path, options: LoadOptions | Mapping[str, Any] | None, learned: Learned | None, several: bool
) -> Graph | GraphCollection:
    path = path.expanduser()
    chosen = _own_options(options, path)
    if (spec := find_description(path)) is not None:
        return load_spec(spec, chosen, learned=learned, several=several).graph
    _own_tables_only(chosen, path.name)
    if path.suffix.lower() == ".npz":
        return _apply(files.load_graph(path), chosen)
    if is_folder(path):
        from graphsilo.data.sources.fedgb import read_folder

        return _apply(read_folder(path), chosen)
    from graphsilo.data.sources.pyg import load_pyg_file

    return _apply(load_pyg_file(path), chosen)


def _own_options(options: LoadOptions | Mapping[str, Any] | None, path: Path) -> LoadOptions:
    chosen = LoadOptions.parse(options, name=str(path))
    if chosen.generator or chosen.use_node_attributes:
        raise ConfigError(f"{path}: generator settings and use_node_attributes do not apply to a graph of your own.")
    return chosen


def load_spec(
    spec: TableSpec,
    options: LoadOptions | Mapping[str, Any] | None = None,
    *,
    learned: Learned | None = None,
    several: bool = False,
) -> Reading:
    """Loads the graph that a checked description of tables names, as :func:`load` does for its file.

    Raises:
        ConfigError, DataError: As :func:`load`.
    """
    from graphsilo.data.sources import tables
    from graphsilo.data.sources.missing import Missing

    chosen = _own_options(options, spec.file)
    if spec.directed and "undirected" not in chosen.model_fields_set:
        chosen = chosen.model_copy(update={"undirected": False})
    chosen = chosen.model_copy(update={"sums": sums_of(spec, chosen)})
    missing = None if chosen.missing is None else Missing.parse(chosen.missing)
    found = tables.read_tables(spec, missing=missing, learned=learned)
    return replace(found, graph=_apply(found.graph, chosen, others=several or learned is not None).union)


def sums_of(spec: TableSpec, options: LoadOptions | Mapping[str, Any] | None) -> bool | Sums:
    """What nodes of tables are told of their links: as the options say, else as the description does.

    Raises:
        ConfigError: An option is unknown or of the wrong type.
    """
    chosen = _own_options(options, spec.file)
    return chosen.sums if "sums" in chosen.model_fields_set else spec.sums


def apply_options(
    graph: Graph | GraphCollection, options: LoadOptions | Mapping[str, Any] | None
) -> Graph | GraphCollection:
    """A graph in memory as :func:`load` would give it from a file.

    Raises:
        ConfigError: An option is unknown or of the wrong type.
    """
    return _apply(graph, LoadOptions.parse(options, name=graph.name))


def _apply(
    graph: Graph | GraphCollection, options: LoadOptions, *, undirected_already: bool = False, others: bool = False
) -> Graph | GraphCollection:
    if isinstance(graph, GraphCollection):
        if options.largest_component:
            raise ConfigError(f"largest_component needs one graph; {graph.name} is a collection of {len(graph)}.")
        return replace(graph, union=_apply(graph.union, options, undirected_already=undirected_already).union)
    wants_degrees = options.degree_features is True or (options.degree_features == "auto" and not graph.num_features)
    is_plain = graph.links is None and graph.time is None
    if (
        undirected_already
        and is_plain
        and not (wants_degrees or options.largest_component or options.scale == "unit_rows")
    ):
        return graph
    from graphsilo.data.sources import transforms

    if options.undirected and not undirected_already:
        graph = transforms.make_undirected(graph)
    elif not undirected_already:
        graph = transforms.merge_parallel(graph)
    if options.largest_component:
        graph = transforms.largest_component(graph)
        graph = replace(graph, estimated=(*graph.estimated, "largest_component"))
    if not is_plain:
        graph = _apply_links(graph, options, others)
        wants_degrees = wants_degrees and (options.degree_features is True or not graph.num_features)
    features: Features = graph.features
    if options.scale == "unit_rows":
        features = transforms.row_normalize(features)
    if wants_degrees:
        # Links to a node are from before its time, those from it lead to what comes later.
        counted = graph if graph.time is None else graph.with_edges(graph.edges[::-1])
        degrees = transforms.one_hot_degree(counted, max_degree=options.max_degree)
        features = transforms.append_features(features, degrees)
        graph = replace(graph, estimated=(*graph.estimated, "degree"))
    if features is graph.features:
        return graph
    if graph.feature_names is not None:
        more = tuple(f"degree={degree}" for degree in range(features.shape[1] - graph.num_features))
        graph = replace(graph, feature_names=graph.feature_names + more)
    return graph.with_features(features)


def _apply_links(graph: Graph, options: LoadOptions, others: bool) -> Graph:
    """The graph with what its tables of links add up to, and without edges that pass something back in time."""
    from graphsilo.data.sources.link_columns import add_link_columns, has_link_columns
    from graphsilo.data.sources.looking_back import respect_time

    # What has such columns was loaded before, perhaps as a part of more, and stays as it is unless it is to be others.
    loaded, windows = has_link_columns(graph), windows_of(options.sums)
    if windows is not None and not (loaded and options.sums is True):
        graph = add_link_columns(graph, windows, others=others)
    return respect_time(graph, undirected=options.undirected or loaded)


def data_roots(root: str | os.PathLike[str] | None) -> list[Path]:
    """Where raw files are looked for: the root that was named, then what was downloaded before."""
    named = root if root is not None else os.environ.get("GRAPHSILO_DATA") or None
    downloads = cache.cache_root() / "raw"
    return [downloads] if named is None else [Path(named).expanduser().absolute(), downloads]


def _roots(root: str | os.PathLike[str] | None) -> list[Path]:
    """The same; a root that was named is a folder."""
    found = data_roots(root)
    if len(found) > 1 and not found[0].is_dir():
        origin = "the data root," if root is not None else "the data root from GRAPHSILO_DATA,"
        raise DataError(
            f"{origin} {found[0]}, is not a folder; it should hold raw files in PyTorch Geometric's layout, e.g. "
            f"planetoid/Cora/raw."
        )
    return found
