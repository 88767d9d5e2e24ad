"""Clients that come with data sets of their own, side by side in one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import scipy.sparse as sp

from graphsilo.data.graph import Graph, GraphCollection, PublishedSplits, content_hash
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.partition.rule import SplitMode
from graphsilo.data.partition.splits import check_ratios, ratios_for, refuse_ratios
from graphsilo.data.scales import Scaling
from graphsilo.data.silos.between import check_sides, side_notes, sides_of
from graphsilo.data.silos.column_scales import other_units
from graphsilo.data.silos.union import dense, own_partition, shared_nodes, truth_of, union
from graphsilo.data.sources import catalog
from graphsilo.data.sources.directions import has_directions
from graphsilo.data.sources.layout import Described, Layout, agree
from graphsilo.data.sources.vocabulary import Vocabulary
from graphsilo.data.truth import truth_notes
from graphsilo.errors import DataError, UnsupportedError
from graphsilo.experiments.config import RunConfig
from graphsilo.types import ClientId


def join_graphs(
    config: RunConfig,
    graphs: Sequence[Graph],
    present: Mapping[ClientId, Graph],
    scaling: Scaling,
    called: Sequence[str],
) -> tuple[Graph, list[int], list[str]]:
    """The graphs of silos as one, how many nodes each has, and what a person should know of their differences; by what
    silos are called.

    Raises:
        DataError: They do not go together.
    """
    if config.partition.split == "auto":
        _check_masks(present, config.data.names)
    _check_directions(present, config)
    own, names = list(present.values()), [called[place] for place in present]
    check_sides(own)
    notes = list(side_notes({graph.name: sides_of(graph) for graph in own}))
    graph, sizes = union(graphs, names=config.data.names)
    if scaling.is_agreed:  # of columns that are the same everywhere
        notes += other_units(own, names)
    return graph, sizes, [*notes, *truth_notes(truth_of(own, names))]


def with_shared_words(
    config: RunConfig, names: Mapping[ClientId, str], loaded: dict[ClientId, Graph | GraphCollection]
) -> dict[ClientId, Graph | GraphCollection]:
    """Tables read again with the words, types and relations of all, where they differ: as it is between machines.

    Raises:
        DataError: A word is not declared where words are, or tables of one name differ.
    """
    tables = {place: spec for place, name in names.items() if (spec := catalog.find_description(name)) is not None}
    if len(tables) < 2:
        return loaded
    read = {place: item for place, item in loaded.items() if isinstance(item, Graph)}
    own = []
    for place, spec in tables.items():
        graph, sums = read[place], catalog.sums_of(spec, config.data.options or None)
        links = () if graph.links is None else graph.links.feature_names
        words = Vocabulary.of(f"client {place} ({names[place]})", spec, graph.feature_names or (), links)
        own.append(Described(Layout.of(graph, spec, sums), words))
    found = dict(loaded)
    for place, before, after in zip(tables, own, agree(own), strict=True):
        if after.words.names != before.words.names or after.layout != before.layout:
            again = catalog.load(names[place], options=config.data.options or None, learned=after.learned)
            assert isinstance(again, Graph)
            # Whether features are sparse is said before words are shared, and holds for all.
            sparse = read[place].is_sparse
            found[place] = again.with_features(sp.csr_matrix(again.features) if sparse else dense(again.features))
    return found


def stand_in(like: Graph | GraphCollection, item: Graph | GraphCollection | None) -> Graph | GraphCollection:
    """What stands for a client that is left out: as many items as it has, so that a draw over all stays as it is.

    Columns and classes are those of the others, whatever its own are: nobody sees them.
    """
    whole = isinstance(like, GraphCollection)
    labels = item.labels if item is not None and type(item) is type(like) else np.zeros(int(whole), dtype=np.int64)
    n, empty = len(labels), like.union.subgraph(np.zeros(0, dtype=np.int64))
    shape = (n, like.num_features)
    kind, none = PublishedSplits if not empty.has_own_splits else dict, np.zeros(0, dtype=np.int64)
    sparse = sp.csr_matrix((none.astype(np.float32), (none, none)), shape=shape)
    graph = replace(
        empty,
        features=sparse if empty.is_sparse else np.zeros(shape, dtype=np.float32),
        labels=np.full(n, -1) if whole else np.minimum(labels, 0),
        splits=kind({key: np.zeros((n, *mask.shape[1:]), bool) for key, mask in empty.splits.items()}),
        node_ids=None,
        node_names=None,
        types=None if empty.types is None else replace(empty.types, of_node=np.full(n, empty.types.target, np.int16)),
        time=None if empty.time is None else np.full(n, np.nan),
        targets=None if (known := empty.targets) is None
        else replace(known, values=np.full((n, known.values.shape[1]), np.nan, np.float32)),
    )  # fmt: skip
    return GraphCollection(graph, np.arange(n + 1), labels, like.num_classes, like.name) if whole else graph


def copy_notes(loaded: Mapping[ClientId, Graph | GraphCollection], names: Sequence[str]) -> Iterator[str]:
    """Says so where two files hold the same by other ids, or much of the same.

    Raises:
        DataError: They hold the same by the same ids: a copy, to which a name of its own was given.
    """
    hashes = {client: content_hash([item]) for client, item in loaded.items()}
    shared = shared_nodes({client: item for client, item in loaded.items() if isinstance(item, Graph)})
    for one, other in combinations(loaded, 2):
        pair = f"clients {one} ({names[one]}) and {other} ({names[other]}) hold"
        if hashes[one] == hashes[other]:
            text = f"{pair} the same data under two names: what one of them is tested on, the other has trained on."
            if np.array_equal(loaded[one].external_ids, loaded[other].external_ids):
                raise DataError(f"{text} Leave one of them out.")
            yield text
        elif (one, other) in shared:
            yield (
                f"{pair} much of the same: {100 * shared[one, other]:.0f} % of the nodes of the smaller are at the "
                f"other with the same features and label, so that one may have trained on what the other is tested on. "
                f"Where one is a copy, leave it out."
            )


def _check_masks(graphs: Mapping[ClientId, Graph], names: Sequence[str]) -> None:
    """Refuse silos of which some have masks of their own and some have none."""
    own = {client: graph.has_own_splits for client, graph in graphs.items()}
    if len(set(own.values())) > 1:
        have, lack = (next(client for client, has in own.items() if has == wanted) for wanted in (True, False))
        raise DataError(
            f"client {have} ({names[have]}) has masks that say which nodes train, validate and test, client {lack} "
            f"({names[lack]}) has none. Give them to all, or divide all nodes again with partition.split=stratified."
        )


def _check_directions(graphs: Mapping[ClientId, Graph], config: RunConfig) -> None:
    """Refuse silos of which some have links with a direction and some have links without."""
    names, symmetrised = list(config.data.name), config.data.options.get("undirected") is True
    # A description says it; of a file that has links the links do.
    weighted = {
        client: not symmetrised and spec.directed if (spec := catalog.find_description(names[client])) is not None
        else has_directions(graph) if graph.num_edges
        else None
        for client, graph in graphs.items()
    }  # fmt: skip
    if {True, False} <= set(weighted.values()):
        have, lack = (next(client for client, says in weighted.items() if says is wanted) for wanted in (True, False))
        raise DataError(
            f"links have a direction at client {have} ({names[have]}) and none at client {lack} ({names[lack]}): set "
            f"`directed` alike in all descriptions, or drop all directions with data.undirected=true."
        )


def one_file_per_silo(
    config: RunConfig, graph: Graph, sizes: list[int], split: SplitMode | None, names: Sequence[str]
) -> Partition:
    if config.scenario.name not in ("seen", "inductive"):
        raise UnsupportedError(
            f"scenario '{config.scenario.name}' is made of one graph; with one file per silo only 'seen' and "
            f"'inductive' can be asked."
        )
    chosen = config.partition
    mode: SplitMode = split or ("predefined" if graph.has_own_splits else "stratified")
    if mode == "predefined" and config.task != "link":  # where they are the ratios of links
        refuse_ratios(graph, chosen.ratios)
    return own_partition(
        graph,
        sizes,
        mode=mode,
        ratios=check_ratios(chosen.ratios or ratios_for("", mode)),
        seed=chosen.seed,
        split_index=chosen.split_index,
        times=chosen.times,
        names=names,
    )
