"""The catalogue: what is known of every data set before it is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from graphsilo.errors import ConfigError, nearest
from graphsilo.types import Task

SplitRatios = tuple[float, float, float]


@dataclass(frozen=True)
class RawFiles:
    """Where raw files are, below a data root, and how PyG is called to read them.

    Attributes:
        folder: The root that is given to the PyG class.
        raw: The folder of ``files`` below it.
        files: Those that must be there.
        argument: What the PyG class is given besides.
        optional: Pattern of files that may be there, too.
        alternative: A compact file that can stand in for the raw folder.
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
                folder = self.raw_folder(root)
                extra = folder.glob(self.optional) if self.optional else ()
                return sorted({*(folder / name for name in self.files), *extra})
            if self.alternative and (root / self.alternative).is_file():
                return [root / self.alternative]
        return None

    def missing(self, root: Path) -> list[str]:
        folder = self.raw_folder(root)
        return [name for name in self.files if not (folder / name).is_file()]


@dataclass(frozen=True)
class CatalogEntry:
    """What is known of a data set before it is loaded.

    Attributes:
        name: As users know it; lookups ignore case.
        nodes, edges, features, classes: As published; ``edges`` counts the columns of PyG's ``edge_index`` (an
            undirected link twice), for graph tasks over all graphs, as do ``nodes``. For generated data the defaults.
        citation: One line.
        task: ``node`` or ``graph`` classification.
        graphs: 1 for node tasks.
        checksum: As :func:`graphsilo.data.sources.raw_files.checksum` of the published data; empty where it is not
            known.
        pyg_class: The class in ``torch_geometric.datasets`` (or ``ogb``) that reads it; None for generated data.
        generated: Made by :mod:`graphsilo.data.sources.generated`; needs no files.
        split_ratios: (train, val, test) per class, as the field's benchmark splits this data set; None where it names
            none.
        aliases: Other names, in small letters.
        class_names: What the classes stand for, in the order of their numbers; empty where it is not known. The order
            was found from the counts of nodes per class, which differ between all classes of a set and are those of
            the publications that made them (a test compares them with the files).
        tables: Whether its nodes are rows of tables, with columns in units of their own.
        source: Where its raw files are.
    """

    name: str
    nodes: int
    edges: int
    features: int
    classes: int
    citation: str
    task: Task = "node"
    graphs: int = 1
    checksum: str = ""
    pyg_class: str | None = None
    split_ratios: SplitRatios | None = None
    class_names: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    tables: bool = False
    source: RawFiles = field(default=RawFiles("", "", ()), repr=False, compare=False)

    @property
    def generated(self) -> bool:
        return self.pyg_class is None


def names() -> list[CatalogEntry]:
    """Every data set of the catalog, the default first."""
    return list(_CATALOG.values())


def find(name: str) -> CatalogEntry | None:
    """As ``entry``; None where there is none."""
    wanted = name.lower().replace("_", "-")
    return _CATALOG.get(wanted) or _ALIASES.get(wanted.replace("-", ""))


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


def _planetoid(name: str) -> RawFiles:
    kinds = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return RawFiles("planetoid", f"{name}/raw", tuple(f"ind.{name.lower()}.{kind}" for kind in kinds), name)


def _amazon(name: str) -> RawFiles:
    return RawFiles("amazon", f"{name}/raw", (f"amazon_electronics_{name.lower()}.npz",), name)


def _coauthor(name: str) -> RawFiles:
    return RawFiles("coauthor", f"{name}/raw", (f"ms_academic_{name.lower()[:3]}.npz",), name)


def _geom_gcn(folder: str, raw: str, prefix: str, argument: str | None = None) -> RawFiles:
    splits = tuple(f"{prefix}_split_0.6_0.2_{number}.npz" for number in range(10))
    return RawFiles(folder, raw, ("out1_node_feature_label.txt", "out1_graph_edges.txt", *splits), argument)


def _wikipedia(name: str) -> RawFiles:
    return _geom_gcn("wikipedia", f"{name}/geom_gcn/raw", name, name)


def _heterophilous(name: str) -> RawFiles:
    folder = name.lower().replace("-", "_")
    return RawFiles("heterophilous", f"{folder}/raw", (f"{folder}.npz",), name)


def _ogb(name: str) -> RawFiles:
    return RawFiles(
        "ogb", f"{name.replace('-', '_')}/raw", ("edge.csv.gz", "node-feat.csv.gz", "node-label.csv.gz"), name
    )


def _saint(name: str) -> RawFiles:
    return RawFiles(name.lower(), "raw", ("adj_full.npz", "feats.npy", "class_map.json", "role.json"))


def _tu(name: str) -> RawFiles:
    parts = tuple(f"{name}_{part}.txt" for part in ("A", "graph_indicator", "graph_labels"))
    return RawFiles("tu", f"{name}/raw", parts, name, optional=f"{name}_*.txt")


def _tu_without_features(name: str) -> RawFiles:
    return replace(_tu(name), alternative=f"tu_compact/{name}.txt.xz")


def _family(
    pyg_class: str, place: Callable[[str], RawFiles], split_ratios: SplitRatios | None, *entries: CatalogEntry
) -> Iterator[CatalogEntry]:
    """Data sets that one class of PyG reads."""
    for item in entries:
        yield replace(item, pyg_class=pyg_class, split_ratios=split_ratios, source=place(item.name))


_CITATION_GRAPHS: SplitRatios = (0.2, 0.4, 0.4)
_WIKIPEDIA: SplitRatios = (0.48, 0.32, 0.2)
_HETEROPHILOUS: SplitRatios = (0.5, 0.25, 0.25)
_PRODUCTS: SplitRatios = (0.1, 0.05, 0.85)
_SBM = "Generated: degree-corrected stochastic block model"
_PLANETOID = 'Yang, Cohen and Salakhutdinov (2016), "Revisiting semi-supervised learning with graph embeddings"'
_SHCHUR = 'Shchur et al. (2018), "Pitfalls of graph neural network evaluation"'
_GEOM_GCN = 'Pei et al. (2020), "Geom-GCN: geometric graph convolutional networks"'
_ROZEMBERCZKI = 'Rozemberczki, Allen and Sarkar (2021), "Multi-scale attributed node embedding"'
_PLATONOV = 'Platonov et al. (2023), "A critical look at the evaluation of GNNs under heterophily"'
_OGB = 'Hu et al. (2020), "Open Graph Benchmark: datasets for machine learning on graphs"'
_SAINT = 'Zeng et al. (2020), "GraphSAINT: graph sampling based inductive learning method"'
_HAMILTON = 'Hamilton, Ying and Leskovec (2017), "Inductive representation learning on large graphs"'
_LIM = 'Lim et al. (2021), "Large scale learning on non-homophilous graphs"'
_TU = 'Morris et al. (2020), "TUDataset: a collection of benchmark datasets for learning with graphs"'

_CORA = (
    "Theory", "Reinforcement learning", "Genetic algorithms", "Neural networks", "Probabilistic methods", "Case-based",
    "Rule learning",
)  # fmt: skip
_CITESEER = ("AI", "Machine learning", "Information retrieval", "Databases", "Agents", "HCI")
_PUBMED = ("Diabetes, experimental", "Diabetes type 1", "Diabetes type 2")

_ENTRIES = (
    CatalogEntry("citation-sbm", 2708, 10_562, 1433, 7, f"{_SBM}, Cora-like", split_ratios=_CITATION_GRAPHS),
    CatalogEntry("heterophily-sbm", 2500, 30_000, 1000, 5, f"{_SBM}, chameleon-like", split_ratios=_WIKIPEDIA),
    CatalogEntry("product-sbm", 2_400_000, 60_000_000, 100, 47, f"{_SBM}, ogbn-products-like", split_ratios=_PRODUCTS),
    CatalogEntry(
        "bank", 31_200, 110_000, 55, 2, "Generated: banks with mule rings, treasurers and hubs",
        split_ratios=(0.5, 0.2, 0.3), tables=True,
    ),
    CatalogEntry(
        "hospital", 34_200, 259_000, 34, 2, "Generated: hospitals with infections, frail patients and drugs that clash",
        split_ratios=(0.5, 0.2, 0.3), tables=True,
    ),
    *_family(
        "Planetoid", _planetoid, _CITATION_GRAPHS,
        CatalogEntry("Cora", 2708, 10_556, 1433, 7, _PLANETOID, checksum="918ae6152b18bfa3", class_names=_CORA),
        CatalogEntry("CiteSeer", 3327, 9104, 3703, 6, _PLANETOID, checksum="e091490dfef6bd1f", class_names=_CITESEER),
        CatalogEntry("PubMed", 19_717, 88_648, 500, 3, _PLANETOID, checksum="df612be3fd09d527", class_names=_PUBMED),
    ),
    *_family(
        "Amazon", _amazon, _CITATION_GRAPHS,
        CatalogEntry("Computers", 13_752, 491_722, 767, 10, _SHCHUR, checksum="73cb439832489088"),
        CatalogEntry("Photo", 7650, 238_162, 745, 8, _SHCHUR, checksum="4f96e14f561a9e11"),
    ),
    *_family(
        "Coauthor", _coauthor, _CITATION_GRAPHS,
        CatalogEntry("CS", 18_333, 163_788, 6805, 15, _SHCHUR, checksum="ee33a58c30680afa", aliases=("msacademic",)),
        CatalogEntry("Physics", 34_493, 495_924, 8415, 5, _SHCHUR, checksum="9771db24073e7182"),
    ),
    *_family(
        "Actor", lambda _: _geom_gcn("actor", "raw", "film"), _HETEROPHILOUS,
        CatalogEntry("Actor", 7600, 30_019, 932, 5, _GEOM_GCN, checksum="4bab5b88d64d6c7f"),
    ),
    *_family(
        "WikipediaNetwork", _wikipedia, _WIKIPEDIA,
        CatalogEntry("chameleon", 2277, 36_101, 2325, 5, _ROZEMBERCZKI, checksum="fcf8b56ed5208bea"),
        CatalogEntry("squirrel", 5201, 217_073, 2089, 5, _ROZEMBERCZKI, checksum="943b8ab32b2f0268"),
    ),
    *_family(
        "HeterophilousGraphDataset", _heterophilous, _HETEROPHILOUS,
        CatalogEntry("Roman-empire", 22_662, 65_854, 300, 18, _PLATONOV),
        CatalogEntry("Amazon-ratings", 24_492, 186_100, 300, 5, _PLATONOV),
        CatalogEntry("Minesweeper", 10_000, 78_804, 7, 2, _PLATONOV, checksum="ffb15ae3a8acfde3"),
        CatalogEntry("Tolokers", 11_758, 1_038_000, 10, 2, _PLATONOV, checksum="28233cecced8cd4e"),
        CatalogEntry("Questions", 48_921, 307_080, 301, 2, _PLATONOV),
    ),
    *_family(
        "PygNodePropPredDataset", _ogb, (0.6, 0.2, 0.2),
        CatalogEntry("ogbn-arxiv", 169_343, 1_166_243, 128, 40, _OGB),
    ),
    *_family(
        "PygNodePropPredDataset", _ogb, _PRODUCTS,
        CatalogEntry("ogbn-products", 2_449_029, 123_718_280, 100, 47, _OGB),
    ),
    *_family("Flickr", _saint, (0.6, 0.2, 0.2), CatalogEntry("Flickr", 89_250, 899_756, 500, 7, _SAINT)),
    *_family(
        "Reddit", lambda _: RawFiles("reddit", "raw", ("reddit_data.npz", "reddit_graph.npz")), (0.8, 0.1, 0.1),
        CatalogEntry("Reddit", 232_965, 114_615_892, 602, 41, _HAMILTON),
    ),
    *_family("Reddit2", _saint, (0.65, 0.1, 0.25), CatalogEntry("Reddit2", 232_965, 23_213_838, 602, 41, _SAINT)),
    *_family(
        "LINKXDataset", lambda _: RawFiles("linkx", "genius/raw", ("data.mat",), "genius"), _HETEROPHILOUS,
        CatalogEntry("genius", 421_961, 984_979, 12, 2, _LIM),
    ),
    *_family(
        "TUDataset", _tu, None,
        CatalogEntry("MUTAG", 3371, 7442, 7, 2, _TU, "graph", 188, "b31f553ae6e6695d"),
        CatalogEntry("PROTEINS", 43_471, 162_088, 3, 2, _TU, "graph", 1113, "07af9f7198e2a907"),
        CatalogEntry("NCI1", 122_747, 265_506, 37, 2, _TU, "graph", 4110, "c473a8807268fec6"),
    ),
    *_family(
        "TUDataset", _tu_without_features, None,
        CatalogEntry("IMDB-BINARY", 19_773, 193_062, 0, 2, _TU, "graph", 1000, "beb14b06ce7a1945"),
        CatalogEntry("COLLAB", 372_474, 24_572_158, 0, 3, _TU, "graph", 5000, "e484eb3ba4a4c09e"),
    ),
)  # fmt: skip
_CATALOG = {item.name.lower(): item for item in _ENTRIES}
_ALIASES = {alias: item for item in _ENTRIES for alias in item.aliases}
