"""Every data set by the name users know it by: ``load("Cora")``.

Raw files come from a folder in PyTorch Geometric's layout (``GRAPHSILO_DATA``), or are downloaded by PyTorch Geometric
into the user's cache. They are converted once; later loads read the converted copy with numpy alone, so that a command
that only needs the graph does not import torch. Data roots are never written to.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import model_validator

from graphsilo.data.graph import Features, Graph, GraphCollection, PublishedSplits, content_hash, noted
from graphsilo.data.scales import ScaleOptions, Scaling
from graphsilo.data.sources import cache, files, generated, pyg, transforms
from graphsilo.data.sources.missing import Missing, Rules
from graphsilo.errors import ConfigError, DataError, nearest, several
from graphsilo.settings import setting
from graphsilo.types import Task

if TYPE_CHECKING:
    from graphsilo.data.sources.columns import Learned
    from graphsilo.data.sources.tables import Reading, TableSpec

CACHE_FORMAT = 2
"""Raise whenever a conversion changes its result: older copies in users' caches are then ignored."""
DOWNLOAD_TIMEOUT_SECONDS = 60.0
GRAPH_FILES = (".yaml", ".yml", ".npz", ".pt")
TABLE_FILES = (".yaml", ".yml")
"""Those of them that describe tables."""

OTHER_CONTENT = (
    "the raw files hold as many nodes, links, features and classes as the published data set, but not the same ones, "
    "so that scores cannot be compared with published ones; where the files were not meant to differ, fetch them anew"
)

SplitRatios = tuple[float, float, float]


@dataclass(frozen=True)
class CatalogEntry:
    """What is known of a data set before it is loaded.

    Attributes:
        name: As users know it; lookups ignore case.
        task: ``node`` or ``graph`` classification.
        nodes, edges, features, classes: As published; ``edges`` counts the columns of PyG's ``edge_index`` (an
            undirected link twice), for graph tasks over all graphs, as do ``nodes``. For generated data the defaults.
        graphs: 1 for node tasks.
        checksum: As :func:`checksum` of the published data; empty where it is not known.
        pyg_class: The class in ``torch_geometric.datasets`` (or ``ogb``) that reads it; None for generated data.
        generated: Made by :mod:`graphsilo.data.sources.generated`; needs no files.
        split_ratios: (train, val, test) per class, as the field's benchmark splits this data set; None where it names
            none.
        citation: One line.
    """

    name: str
    task: Task
    nodes: int
    edges: int
    features: int
    classes: int
    citation: str
    graphs: int = 1
    checksum: str = ""
    pyg_class: str | None = None
    split_ratios: SplitRatios | None = None
    source: _DataSet = field(default_factory=lambda: _DataSet("", "", ()), repr=False, compare=False)

    @property
    def generated(self) -> bool:
        return self.pyg_class is None


@dataclass(frozen=True)
class _DataSet:
    """Where raw files are, below a data root, and how PyG is called to read them.

    ``folder`` is the root given to the PyG class, ``raw`` the folder of ``files`` below it. ``alternative`` is a
    compact file that can stand in for the raw folder.
    """

    folder: str
    raw: str
    files: tuple[str, ...]
    argument: str | None = None
    optional: str | None = None
    alternative: str | None = None

    def raw_folder(self, root: Path) -> Path:
        return root / self.folder / self.raw

    def find(self, roots: Iterable[Path]) -> list[Path] | None:
        """The raw files in the first root that has them all, or the compact file that stands for them."""
        for root in roots:
            if not self.missing(root):
                return self.present(root)
            if self.alternative and (root / self.alternative).is_file():
                return [root / self.alternative]
        return None

    def missing(self, root: Path) -> list[str]:
        folder = self.raw_folder(root)
        return [name for name in self.files if not (folder / name).is_file()]

    def present(self, root: Path) -> list[Path]:
        folder = self.raw_folder(root)
        extra = folder.glob(self.optional) if self.optional else ()
        return sorted({*(folder / name for name in self.files), *extra})


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
        "auto", "one-hot degrees: auto where there are no features (IMDB-BINARY, COLLAB), true beside the features "
        "that are there, false never",
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
        kind = generated.settings_of(name)
        if isinstance(options, cls) or not isinstance(options, Mapping | None):
            return cls.of(options, owner=name, origin=origin)
        values = dict(options or {})
        for key in values.keys() - cls.model_fields.keys():
            if kind is None and any(key in other.model_fields for other, _ in generated.GENERATORS.values()):
                raise ConfigError(
                    f"unknown setting 'data.{key}' for {name}; it is a setting of generated data "
                    f"({', '.join(generated.GENERATORS)})."
                )
        if kind is None:
            return cls.of(values, owner=name, beside=beside, origin=origin)
        own = {key: values.pop(key) for key in list(values) if key not in cls.model_fields}
        made = cls.of(values, owner=name)
        settings = {**made.generator, **own}
        kind.of(settings, owner=name, beside=[*beside, *(cls.model_fields.keys() - {"generator"})])
        return made.model_copy(update={"generator": settings})


def is_file(name: str) -> bool:
    """Whether a data set of this name is a file, and not one of the catalog."""
    return Path(name).suffix.lower() in GRAPH_FILES


def title(name: str) -> str:
    """What a data set or file of this name calls itself, which pages show; the name itself where it cannot be read."""
    path = Path(name).expanduser()
    with contextlib.suppress(ConfigError, DataError):
        if path.suffix.lower() in TABLE_FILES:
            from graphsilo.data.sources import tables

            return tables.read_spec(path).name
        if path.suffix.lower() == ".npz":
            return files.load_graph(path).name
    return name


def names() -> list[CatalogEntry]:
    """Every data set of the catalog, the default first."""
    return list(_CATALOG.values())


def find(name: str) -> CatalogEntry | None:
    """As ``entry``; None where there is none."""
    return _CATALOG.get(name.lower().replace("_", "-"))


def entry(name: str) -> CatalogEntry:
    """The catalog's entry for a name, in any case; ``_`` may stand for ``-``.

    Raises:
        ConfigError: No such data set.
    """
    found = find(name)
    if found is None:
        known = [item.name for item in _CATALOG.values()]
        raise ConfigError(
            f"no data set is called '{name}'; {nearest(name, known)} A path to a .yaml, .npz or .pt file loads your "
            f"own graph."
        )
    return found


def memory_needed(name: str, options: LoadOptions | Mapping[str, Any] | None = None) -> int:
    """Bytes that a generated data set takes at the very least while it is made; 0 for all others.

    Raises:
        ConfigError: An unknown data set or option.
    """
    if is_file(name) or not entry(name).generated:
        return 0
    found = entry(name).name
    return generated.memory_needed(found, LoadOptions.parse(options, name=found).generator)


def load(
    name: str,
    *,
    root: str | os.PathLike[str] | None = None,
    options: LoadOptions | Mapping[str, Any] | None = None,
    seed: int = 0,
    learned: Learned | None = None,
) -> Graph | GraphCollection:
    """Loads a data set of the catalog, or a graph of your own.

    Args:
        name: A name of the catalog, or the path of a ``.yaml`` (tables), ``.npz`` (saved graph) or ``.pt`` (PyG) file.
        root: Folder with raw files in PyG's layout (``planetoid/Cora/raw/...``); None takes ``GRAPHSILO_DATA``. What
            is not there is looked for in the cache, then downloaded into it.
        options: See :class:`LoadOptions`.
        seed: For generated data only; a ``seed`` among the options wins.
        learned: For tables that a model is to be asked about: what it was trained with.

    Returns:
        A Graph for node tasks, a GraphCollection for graph tasks. Bags of words come as CSR.

    Raises:
        ConfigError: An unknown data set or option.
        DataError: The files are missing, damaged, or cannot be downloaded.
    """
    if is_file(name):
        return _load_file(Path(name), options, learned)
    found = entry(name)
    chosen = LoadOptions.parse(options, name=found.name)
    _own_tables_only(chosen, found.name)
    if found.generated:
        # Generated graphs are undirected by construction; to check it would take longer than to make them.
        return _apply(generated.generate(found.name, chosen.generator, seed=seed), chosen, undirected_already=True)
    if chosen.generator:
        raise ConfigError(f"{found.name} is not generated, so it takes no generator settings; got {chosen.generator}.")
    if chosen.use_node_attributes and found.pyg_class != "TUDataset":
        raise ConfigError(f"use_node_attributes is an option of TU data sets such as PROTEINS, not of {found.name}.")
    if chosen.largest_component and found.task == "graph":
        raise ConfigError(f"largest_component needs one graph; {found.name} is a collection of {found.graphs}.")
    graph, facts = _convert_once(found, _roots(root), chosen.use_node_attributes)
    if isinstance(graph, Graph):
        graph = replace(graph, splits=PublishedSplits(graph.splits))
    graph = _apply(graph, chosen, undirected_already=bool(facts.get("undirected")))
    return graph if facts["checksum"] in ("", found.checksum) else noted(graph, [OTHER_CONTENT])


def scaling_of(names: Sequence[str], options: LoadOptions | Mapping[str, Any] | None) -> Scaling:
    """How the features of some data sets are scaled, the usual way where the options do not say.

    Raises:
        ConfigError: An option is unknown, or does not go with another.
    """
    chosen = LoadOptions.parse(options, name=names[0])
    own = all(Path(name).suffix.lower() in TABLE_FILES for name in names)
    return Scaling.of(chosen.scale, chosen.scale_by, own_tables=own)


def check_distinct(names: Mapping[int, str]) -> None:
    """Refuses a data set that two clients would hold: one's test nodes would be the other's training nodes.

    Raises:
        DataError: Two names stand for the same data.
    """
    seen: dict[str, int] = {}
    for client, name in names.items():
        path = Path(name).expanduser()
        key = str(path.resolve()) if path.suffix.lower() in GRAPH_FILES else name.lower().replace("_", "-")
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
    path: Path, options: LoadOptions | Mapping[str, Any] | None, learned: Learned | None
) -> Graph | GraphCollection:
    path = path.expanduser()
    chosen = _own_options(options, path)
    if path.suffix.lower() in TABLE_FILES:
        from graphsilo.data.sources import tables

        return load_spec(tables.read_spec(path), chosen, learned=learned).graph
    _own_tables_only(chosen, path.name)
    read = files.load_graph if path.suffix.lower() == ".npz" else pyg.load_pyg_file
    return _apply(read(path), chosen)


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
) -> Reading:
    """Loads the graph that a checked description of tables names, as :func:`load` does for its file.

    Raises:
        ConfigError, DataError: As :func:`load`.
    """
    from graphsilo.data.sources import tables

    chosen = _own_options(options, spec.file)
    if spec.directed and "undirected" not in chosen.model_fields_set:
        chosen = chosen.model_copy(update={"undirected": False})
    missing = None if chosen.missing is None else Missing.said(chosen.missing)
    found = tables.read_tables(spec, missing=missing, learned=learned)
    return replace(found, graph=_apply(found.graph, chosen).union)


def prepared(
    graph: Graph | GraphCollection, options: LoadOptions | Mapping[str, Any] | None
) -> Graph | GraphCollection:
    """A graph in memory as :func:`load` would give it from a file.

    Raises:
        ConfigError: An option is unknown or of the wrong type.
    """
    return _apply(graph, LoadOptions.parse(options, name=graph.name))


def _apply(
    graph: Graph | GraphCollection, options: LoadOptions, *, undirected_already: bool = False
) -> Graph | GraphCollection:
    if isinstance(graph, GraphCollection):
        if options.largest_component:
            raise ConfigError(f"largest_component needs one graph; {graph.name} is a collection of {len(graph)}.")
        return replace(graph, union=_apply(graph.union, options, undirected_already=undirected_already).union)
    if options.undirected and not undirected_already:
        graph = transforms.undirected(graph)
    elif not undirected_already:
        graph = transforms.merge_parallel(graph)
    if options.largest_component:
        graph = transforms.largest_component(graph)
        graph = replace(graph, estimated=(*graph.estimated, "largest_component"))
    features: Features = graph.features
    if options.scale == "unit_rows":
        features = transforms.row_normalize(features)
    if options.degree_features is True or (options.degree_features == "auto" and not graph.num_features):
        degrees = transforms.one_hot_degree(graph, max_degree=options.max_degree)
        features = transforms.append_features(features, degrees)
        graph = replace(graph, estimated=(*graph.estimated, "degree"))
    if features is graph.features:
        return graph
    if graph.feature_names is not None:
        more = tuple(f"degree={degree}" for degree in range(features.shape[1] - graph.num_features))
        graph = replace(graph, feature_names=graph.feature_names + more)
    return graph.with_features(features)


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


def _convert_once(
    found: CatalogEntry, roots: list[Path], use_node_attributes: bool
) -> tuple[Graph | GraphCollection, Mapping[str, Any]]:
    place = cache.cache_root()
    ready = _cached(found, roots, place, use_node_attributes)
    if ready is not None:
        return ready
    with cache.lock(place, found.name.lower()):
        ready = _cached(found, roots, place, use_node_attributes)
        if ready is not None:
            return ready
        with cache.building(place) as folder:
            where = found.source.find(roots)
            if where is None:
                _download(found, roots, folder, place / "raw")
                where = found.source.find(roots)
                assert where is not None
            graph = _convert(found, where, folder / "work", use_node_attributes)
            _check_counts(found, graph, where[0].parent, use_node_attributes)
        target = _cache_file(found, where, place, use_node_attributes)
        told = found.checksum and not use_node_attributes
        facts = {
            "undirected": transforms.is_undirected(graph.union.edges, graph.union.num_nodes),
            "checksum": checksum(graph) if told else "",
        }
        try:
            files.write_graph(target, graph, facts=facts)
        except OSError as error:
            raise DataError(
                f"the converted copy of {found.name} could not be written to {target} ({error.strerror or error}); "
                f"make room there, or set GRAPHSILO_CACHE to another folder."
            ) from error
        return graph, facts


def _cached(
    found: CatalogEntry, roots: list[Path], place: Path, use_node_attributes: bool
) -> tuple[Graph | GraphCollection, Mapping[str, Any]] | None:
    """The converted copy, or None if there is none yet, or it is damaged or of other data."""
    where = found.source.find(roots)
    if where is None:
        return None
    path = _cache_file(found, where, place, use_node_attributes)
    if not path.is_file():
        return None
    try:
        graph, facts = files.read_graph(path)
        _check_counts(found, graph, where[0].parent, use_node_attributes)
    except DataError:
        return None
    return graph, facts


def _cache_file(found: CatalogEntry, where: list[Path], place: Path, use_node_attributes: bool) -> Path:
    key = cache.fingerprint(where, f"format {CACHE_FORMAT}.{files.FORMAT}", f"attributes {use_node_attributes}")
    return place / "converted" / f"{found.name.lower()}-{key}.npz"


def _convert(found: CatalogEntry, where: list[Path], work: Path, use_node_attributes: bool) -> Graph | GraphCollection:
    """Reads raw files, through PyG in a private tree where they are PyG's own."""
    source = found.source
    try:
        if source.alternative and where[0].name == Path(source.alternative).name:
            return read_compact_collection(where[0], name=found.name, num_classes=found.classes)
        raw = where[0].parent
        if found.pyg_class == "PygNodePropPredDataset":
            return _read_ogb(raw.parent, found)
        cache.link_folder(raw, source.raw_folder(work))
        # PyG reports its progress on stderr; nothing takes long enough here to need it.
        with contextlib.redirect_stderr(io.StringIO()):
            dataset = _open_pyg(found, work, use_node_attributes)
            return _from_pyg_dataset(found, dataset, use_node_attributes)
    except (DataError, ConfigError, MemoryError):
        raise
    except Exception as error:
        raise DataError(
            f"the raw files of {found.name} in {where[0].parent} could not be read ({type(error).__name__}: {error}); "
            f"they may be incomplete or from another source. Replace them, or remove them to have them downloaded."
        ) from error


def _check_counts(found: CatalogEntry, graph: Graph | GraphCollection, folder: Path, use_node_attributes: bool) -> None:
    """Refuse files that hold other data than the name promises: what is known of the name would not be true of them.

    Raises:
        DataError: Says which counts differ, and whose they are.
    """
    counts = {
        "graphs": len(graph) if isinstance(graph, GraphCollection) else 1, "nodes": graph.union.num_nodes,
        "edges": graph.union.num_edges, "features": graph.num_features,
        "classes": int(graph.labels.max(initial=-1)) + 1,
    }  # fmt: skip
    if use_node_attributes:
        del counts["features"]
    wrong = {what: count for what, count in counts.items() if count != getattr(found, what)}
    if not wrong:
        return
    others = [other.name for other in names() if all(getattr(other, what) == count for what, count in counts.items())]
    differ = ", ".join(f"{count} {what} where it has {getattr(found, what)}" for what, count in wrong.items())
    raise DataError(
        f"the raw files in {folder} are not those of {found.name}: they hold {differ}"
        f"{f', as {others[0]} has' if others else ''}. Put the files of {found.name} there, or remove these to have "
        f"them downloaded; a graph of your own is named by its file."
    )


def checksum(graph: Graph | GraphCollection) -> str:
    """Sixteen hex digits of nodes, links, features and labels, whatever order links and stored entries have."""
    union = graph.union
    features = sp.csr_matrix(union.features, copy=True)
    features.eliminate_zeros()
    features.sort_indices()
    edges = union.edges[:, np.lexsort(union.edges)].astype(np.int64)
    plain = replace(union, features=features, edges=edges)
    return content_hash([plain if isinstance(graph, Graph) else replace(graph, union=plain)])[:16]


def _open_pyg(found: CatalogEntry, root: Path, use_node_attributes: bool, *, download_only: bool = False) -> Any:
    import torch_geometric.datasets

    assert found.pyg_class is not None
    source = found.source
    kind = getattr(torch_geometric.datasets, found.pyg_class)
    if download_only:
        kind = _without_processing(kind)
    arguments = [str(root / source.folder)] + ([source.argument] if source.argument else [])
    return kind(*arguments, use_node_attr=True) if use_node_attributes else kind(*arguments)


class _Downloaded(Exception):
    """Stops a PyG data set after its download."""


def _without_processing(kind: type) -> type:
    def process(self: Any) -> None:
        raise _Downloaded

    return type(kind.__name__, (kind,), {"process": process})


def _from_pyg_dataset(found: CatalogEntry, dataset: Any, use_node_attributes: bool) -> Graph | GraphCollection:
    if found.task == "graph":
        if use_node_attributes and not dataset.num_node_attributes:
            raise ConfigError(f"{found.name} has no node attributes; leave use_node_attributes out.")
        graphs = [_without_attributes(dataset[index]) for index in range(len(dataset))]
        return pyg.collection_from_pyg(graphs, name=found.name, num_classes=int(dataset.num_classes))
    return pyg.graph_from_pyg(_without_attributes(dataset[0]), name=found.name, num_classes=int(dataset.num_classes))


def _without_attributes(data: Any) -> Any:
    """The same without features of edges, which nobody expects of these data sets here."""
    data.edge_attr = None
    return data


def _download(found: CatalogEntry, roots: list[Path], folder: Path, downloads: Path) -> None:
    """Lets PyG download into a private folder and moves the raw files into the cache once they are complete."""
    source = found.source
    private = folder / "download"
    reason: str | None = None
    try:
        with _patient_sockets():
            if found.pyg_class == "PygNodePropPredDataset":
                _download_ogb(found, private)
            else:
                _open_pyg(found, private, False, download_only=True)
    except DataError:
        raise
    except (Exception, SystemExit) as error:
        # What counts is whether the files came; the conversion reads them and says what is wrong with them.
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
    if source.missing(private):
        raise DataError(_not_available(found, roots, reason or "some files did not come"))
    cache.keep_folder(source.raw_folder(private), source.raw_folder(downloads))


def _not_available(found: CatalogEntry, roots: list[Path], reason: str) -> str:
    source = found.source
    looked = " and ".join(str(source.raw_folder(root)) for root in roots)
    missing = source.missing(roots[0])
    wanted = several(missing, 4)
    return (
        f"{found.name} is not on this machine and could not be downloaded ({reason}). Looked for {wanted} in {looked}. "
        f"Put the raw files into a folder DIR as DIR/{source.folder}/{source.raw}/{source.files[0]} and so on, and "
        f"name it with --data-root DIR or GRAPHSILO_DATA=DIR; or connect to the network and run again. The generated "
        f"data set citation-sbm needs no files."
    )


@contextlib.contextmanager
def _patient_sockets() -> Iterator[None]:
    """A connection that gives no answer must end in an error: PyG's downloads set no timeout of their own."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(DOWNLOAD_TIMEOUT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def read_compact_collection(path: Path, *, name: str, num_classes: int) -> GraphCollection:
    """Reads the compact text format of graph-classification benchmarks (``COLLAB.txt.xz``), without features.

    The first line holds the number of graphs; each graph a line ``nodes class`` and then per node a line ``tag degree
    neighbour neighbour ...`` with neighbours counted from 0 within the graph. Self-loops and duplicates are dropped, as
    PyG does when it reads the same data set.

    Raises:
        DataError: Counts in the file contradict each other.
    """
    import lzma

    with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as file:
        rows = [np.fromstring(line, dtype=np.int64, sep=" ") for line in file]
    count, line = int(rows[0][0]), 1
    sizes, labels = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    ends: list[list[NDArray[np.int64]]] = [[], []]
    for graph in range(count):
        if line >= len(rows):
            raise DataError(f"{path}: {count} graphs were announced, but the file ends within graph {graph}.")
        first = int(sizes.sum())
        sizes[graph], labels[graph] = rows[line]
        nodes = rows[line + 1 : line + 1 + int(sizes[graph])]
        line += 1 + int(sizes[graph])
        if any(len(row) - 2 != row[1] for row in nodes):
            raise DataError(f"{path}: a node's number of neighbours differs from the number announced; it is damaged.")
        ends[0].append(np.repeat(first + np.arange(len(nodes)), [len(row) - 2 for row in nodes]))
        ends[1] += [first + row[2:] for row in nodes]
    if line != len(rows):
        raise DataError(f"{path}: the graphs end at line {line}, the file at line {len(rows)}; it is damaged.")
    pointer = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    n = int(pointer[-1])
    edges = transforms.remove_self_loops(np.stack([np.concatenate([*each, pointer[:0]]) for each in ends]))
    union = Graph(
        features=np.zeros((n, 0), dtype=np.float32),
        edges=transforms.coalesce(edges, n),
        labels=np.full(n, -1, dtype=np.int64),
        num_classes=num_classes,
        name=name,
    )
    return GraphCollection(union=union, pointer=pointer, labels=labels, num_classes=num_classes, name=name)


def _download_ogb(found: CatalogEntry, private: Path) -> None:
    source = found.source
    try:
        from ogb.nodeproppred import PygNodePropPredDataset
    except ImportError as error:
        raise DataError(
            f"{found.name} belongs to the Open Graph Benchmark, whose package is optional: install it with 'pip "
            f"install ogb' to have the data downloaded, or unpack the benchmark's archive so that "
            f"DIR/{source.folder}/{source.raw}/{source.files[0]} exists and name DIR with --data-root or "
            f"GRAPHSILO_DATA; reading it needs no further package."
        ) from error
    _without_processing(PygNodePropPredDataset)(name=found.name, root=str(private / "ogb"))


def _read_ogb(folder: Path, found: CatalogEntry) -> Graph:
    """Reads the benchmark's own CSV files: ``raw/{edge,node-feat,node-label}.csv.gz`` and the official split.

    Deviation: the ``ogb`` package is not used for reading, because it stores and loads a pickle.
    """
    import pyarrow as pa
    from pyarrow import csv

    def table(name: str, kind: Any) -> NDArray[Any]:
        options = csv.ReadOptions(autogenerate_column_names=True)
        first = csv.open_csv(folder / name, read_options=options).read_next_batch()
        types = csv.ConvertOptions(column_types=dict.fromkeys(first.schema.names, kind))
        columns = csv.read_csv(folder / name, read_options=options, convert_options=types)
        return np.stack([column.to_numpy() for column in columns.columns], axis=1)

    edges = table("raw/edge.csv.gz", pa.int64()).T
    if found.name == "ogbn-products":
        edges = np.concatenate([edges, edges[::-1]], axis=1)
    features = transforms.compact_features(table("raw/node-feat.csv.gz", pa.float32()))
    values = table("raw/node-label.csv.gz", pa.float64())[:, 0]
    labels = np.where(np.isnan(values), -1, values).astype(np.int64)
    splits: dict[str, NDArray[np.bool_]] = {}
    for key, name in (("train", "train"), ("val", "valid"), ("test", "test")):
        paths = sorted(folder.glob(f"split/*/{name}.csv.gz"))
        if paths:
            splits[key] = np.zeros(len(labels), dtype=bool)
            splits[key][table(str(paths[0].relative_to(folder)), pa.int64())[:, 0]] = True
    return Graph(
        features=features,
        edges=np.ascontiguousarray(edges),
        labels=labels,
        num_classes=found.classes,
        name=found.name,
        splits=splits,
    )


_CITATION_GRAPHS: SplitRatios = (0.2, 0.4, 0.4)
_WIKIPEDIA: SplitRatios = (0.48, 0.32, 0.2)
_HETEROPHILOUS: SplitRatios = (0.5, 0.25, 0.25)
_PLANETOID = 'Yang, Cohen and Salakhutdinov (2016), "Revisiting semi-supervised learning with graph embeddings"'
_SHCHUR = 'Shchur et al. (2018), "Pitfalls of graph neural network evaluation"'
_GEOM_GCN = 'Pei et al. (2020), "Geom-GCN: geometric graph convolutional networks"'
_ROZEMBERCZKI = 'Rozemberczki, Allen and Sarkar (2021), "Multi-scale attributed node embedding"'
_PLATONOV = 'Platonov et al. (2023), "A critical look at the evaluation of GNNs under heterophily"'
_OGB = 'Hu et al. (2020), "Open Graph Benchmark: datasets for machine learning on graphs"'
_SAINT = 'Zeng et al. (2020), "GraphSAINT: graph sampling based inductive learning method"'
_TU = 'Morris et al. (2020), "TUDataset: a collection of benchmark datasets for learning with graphs"'


def _planetoid(name: str) -> _DataSet:
    kinds = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return _DataSet("planetoid", f"{name}/raw", tuple(f"ind.{name.lower()}.{kind}" for kind in kinds), name)


def _geom_gcn(folder: str, raw: str, prefix: str, argument: str | None = None) -> _DataSet:
    splits = tuple(f"{prefix}_split_0.6_0.2_{number}.npz" for number in range(10))
    return _DataSet(folder, raw, ("out1_node_feature_label.txt", "out1_graph_edges.txt", *splits), argument)


def _heterophilous(name: str) -> _DataSet:
    folder = name.lower().replace("-", "_")
    return _DataSet("heterophilous", f"{folder}/raw", (f"{folder}.npz",), name)


def _ogb(name: str) -> _DataSet:
    files = ("edge.csv.gz", "node-feat.csv.gz", "node-label.csv.gz")
    return _DataSet("ogb", f"{name.replace('-', '_')}/raw", files, name)


def _tu(name: str, *, compact: bool = False) -> _DataSet:
    parts = tuple(f"{name}_{part}.txt" for part in ("A", "graph_indicator", "graph_labels"))
    alternative = f"tu_compact/{name}.txt.xz" if compact else None
    return _DataSet("tu", f"{name}/raw", parts, name, optional=f"{name}_*.txt", alternative=alternative)


_ENTRIES = (
    CatalogEntry(
        "citation-sbm", "node", 2708, 10_562, 1433, 7, "Generated: degree-corrected stochastic block model, Cora-like",
        split_ratios=_CITATION_GRAPHS,
    ),
    CatalogEntry(
        "heterophily-sbm", "node", 2500, 30_000, 1000, 5,
        "Generated: degree-corrected stochastic block model, chameleon-like", split_ratios=_WIKIPEDIA,
    ),
    CatalogEntry(
        "product-sbm", "node", 2_400_000, 60_000_000, 100, 47,
        "Generated: degree-corrected stochastic block model, ogbn-products-like", split_ratios=(0.1, 0.05, 0.85),
    ),
    CatalogEntry(
        "Cora", "node", 2708, 10_556, 1433, 7, _PLANETOID, checksum="918ae6152b18bfa3",
        pyg_class="Planetoid", split_ratios=_CITATION_GRAPHS, source=_planetoid("Cora"),
    ),
    CatalogEntry(
        "CiteSeer", "node", 3327, 9104, 3703, 6, _PLANETOID, checksum="e091490dfef6bd1f",
        pyg_class="Planetoid", split_ratios=_CITATION_GRAPHS, source=_planetoid("CiteSeer"),
    ),
    CatalogEntry(
        "PubMed", "node", 19_717, 88_648, 500, 3, _PLANETOID, checksum="df612be3fd09d527",
        pyg_class="Planetoid", split_ratios=_CITATION_GRAPHS, source=_planetoid("PubMed"),
    ),
    CatalogEntry(
        "Computers", "node", 13_752, 491_722, 767, 10, _SHCHUR, checksum="73cb439832489088",
        pyg_class="Amazon", split_ratios=_CITATION_GRAPHS,
        source=_DataSet("amazon", "Computers/raw", ("amazon_electronics_computers.npz",), "Computers"),
    ),
    CatalogEntry(
        "Photo", "node", 7650, 238_162, 745, 8, _SHCHUR, checksum="4f96e14f561a9e11",
        pyg_class="Amazon", split_ratios=_CITATION_GRAPHS,
        source=_DataSet("amazon", "Photo/raw", ("amazon_electronics_photo.npz",), "Photo"),
    ),
    CatalogEntry(
        "CS", "node", 18_333, 163_788, 6805, 15, _SHCHUR, checksum="ee33a58c30680afa",
        pyg_class="Coauthor", split_ratios=_CITATION_GRAPHS,
        source=_DataSet("coauthor", "CS/raw", ("ms_academic_cs.npz",), "CS"),
    ),
    CatalogEntry(
        "Physics", "node", 34_493, 495_924, 8415, 5, _SHCHUR, checksum="9771db24073e7182",
        pyg_class="Coauthor", split_ratios=_CITATION_GRAPHS,
        source=_DataSet("coauthor", "Physics/raw", ("ms_academic_phy.npz",), "Physics"),
    ),
    CatalogEntry(
        "Actor", "node", 7600, 30_019, 932, 5, _GEOM_GCN, checksum="4bab5b88d64d6c7f",
        pyg_class="Actor", split_ratios=_HETEROPHILOUS, source=_geom_gcn("actor", "raw", "film"),
    ),
    CatalogEntry(
        "chameleon", "node", 2277, 36_101, 2325, 5, _ROZEMBERCZKI, checksum="fcf8b56ed5208bea",
        pyg_class="WikipediaNetwork", split_ratios=_WIKIPEDIA,
        source=_geom_gcn("wikipedia", "chameleon/geom_gcn/raw", "chameleon", "chameleon"),
    ),
    CatalogEntry(
        "squirrel", "node", 5201, 217_073, 2089, 5, _ROZEMBERCZKI, checksum="943b8ab32b2f0268",
        pyg_class="WikipediaNetwork", split_ratios=_WIKIPEDIA,
        source=_geom_gcn("wikipedia", "squirrel/geom_gcn/raw", "squirrel", "squirrel"),
    ),
    *(
        CatalogEntry(
            name, "node", nodes, edges, features, classes, _PLATONOV, checksum=checksum,
            pyg_class="HeterophilousGraphDataset", split_ratios=_HETEROPHILOUS, source=_heterophilous(name),
        )
        for name, nodes, edges, features, classes, checksum in (
            ("Roman-empire", 22_662, 65_854, 300, 18, ""),
            ("Amazon-ratings", 24_492, 186_100, 300, 5, ""),
            ("Minesweeper", 10_000, 78_804, 7, 2, "ffb15ae3a8acfde3"),
            ("Tolokers", 11_758, 1_038_000, 10, 2, "28233cecced8cd4e"),
            ("Questions", 48_921, 307_080, 301, 2, ""),
        )
    ),
    CatalogEntry(
        "ogbn-arxiv", "node", 169_343, 1_166_243, 128, 40, _OGB, pyg_class="PygNodePropPredDataset",
        split_ratios=(0.6, 0.2, 0.2), source=_ogb("ogbn-arxiv"),
    ),
    CatalogEntry(
        "ogbn-products", "node", 2_449_029, 123_718_280, 100, 47, _OGB, pyg_class="PygNodePropPredDataset",
        split_ratios=(0.1, 0.05, 0.85), source=_ogb("ogbn-products"),
    ),
    CatalogEntry(
        "Flickr", "node", 89_250, 899_756, 500, 7, _SAINT, pyg_class="Flickr", split_ratios=(0.6, 0.2, 0.2),
        source=_DataSet("flickr", "raw", ("adj_full.npz", "feats.npy", "class_map.json", "role.json")),
    ),
    CatalogEntry(
        "Reddit", "node", 232_965, 114_615_892, 602, 41,
        'Hamilton, Ying and Leskovec (2017), "Inductive representation learning on large graphs"',
        pyg_class="Reddit", split_ratios=(0.8, 0.1, 0.1),
        source=_DataSet("reddit", "raw", ("reddit_data.npz", "reddit_graph.npz")),
    ),
    CatalogEntry(
        "Reddit2", "node", 232_965, 23_213_838, 602, 41, _SAINT, pyg_class="Reddit2", split_ratios=(0.65, 0.1, 0.25),
        source=_DataSet("reddit2", "raw", ("adj_full.npz", "feats.npy", "class_map.json", "role.json")),
    ),
    CatalogEntry(
        "genius", "node", 421_961, 984_979, 12, 2,
        'Lim et al. (2021), "Large scale learning on non-homophilous graphs"',
        pyg_class="LINKXDataset", split_ratios=_HETEROPHILOUS,
        source=_DataSet("linkx", "genius/raw", ("data.mat",), "genius"),
    ),
    *(
        CatalogEntry(
            name, "graph", nodes, edges, features, classes, _TU, graphs=graphs, checksum=checksum,
            pyg_class="TUDataset", source=_tu(name, compact=features == 0),
        )
        for name, graphs, nodes, edges, features, classes, checksum in (
            ("MUTAG", 188, 3371, 7442, 7, 2, "b31f553ae6e6695d"),
            ("PROTEINS", 1113, 43_471, 162_088, 3, 2, "07af9f7198e2a907"),
            ("NCI1", 4110, 122_747, 265_506, 37, 2, "c473a8807268fec6"),
            ("IMDB-BINARY", 1000, 19_773, 193_062, 0, 2, "beb14b06ce7a1945"),
            ("COLLAB", 5000, 372_474, 24_572_158, 0, 3, "e484eb3ba4a4c09e"),
        )
    ),
)  # fmt: skip
_CATALOG = {item.name.lower(): item for item in _ENTRIES}
