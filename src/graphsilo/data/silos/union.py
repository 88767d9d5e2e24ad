"""Silos that come with their own data, side by side in one process: one graph, whose parts are the silos.

A silo at its own machine takes the same steps over itself alone (:mod:`graphsilo.data.silos.own`), which is why it
trains on the same numbers there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.graph import Features, Graph, PublishedSplits
from graphsilo.data.links import join_parts
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.partition.rule import SplitMode, TimeOptions
from graphsilo.data.partition.splits import Ratios, own_split, splits_for
from graphsilo.data.sources.vocabulary import alike_words, classes_in_words, first_difference
from graphsilo.data.truth import BooleanWords, join_truth
from graphsilo.errors import DataError
from graphsilo.random import numpy_generator
from graphsilo.types import ClientId

_DISTINCT = 0.9
"""Share of different rows from which a row tells one node from the others."""


def union(
    graphs: Sequence[Graph], names: Sequence[str] | None = None, *, sparse: bool | None = None
) -> tuple[Graph, list[int]]:
    """Several silos' graphs side by side, and how many nodes each has.

    Args:
        graphs: One per client.
        names: What each was loaded by, for errors; None takes the graphs' own names.
        sparse: Whether features are kept as CSR; None does so if any of the graphs has them so.

    Raises:
        DataError: Their features or classes do not agree.
    """
    first = graphs[0]
    called = names or [graph.name for graph in graphs]
    for client, other in enumerate(graphs):
        here, there = f"client 0 ({called[0]})", f"client {client} ({called[client]})"
        if other.num_features != first.num_features or other.feature_names != first.feature_names:
            mine, theirs = first.feature_names, other.feature_names
            place = first_difference("feature", mine, "client 0", theirs, f"client {client}")
            raise DataError(
                f"all silos must describe nodes by the same features in the same order: {here} has "
                f"{first.num_features}, {there} has {other.num_features}{place}. {alike_words(mine, theirs)}"
            )
        if other.num_classes != first.num_classes or other.class_names != first.class_names:
            alike = sorted(first.class_names or ()) == sorted(other.class_names or ())
            how = " in the same order" if alike and first.class_names else ""
            raise DataError(
                f"all silos must name the same classes in the same order: {here} has "
                f"{classes_in_words(first.num_classes, first.class_names)}, {there} has "
                f"{classes_in_words(other.num_classes, other.class_names)}. Declare `classes`{how} in every silo's "
                f"description."
            )
        if _tables(first) != _tables(other):
            raise DataError(
                f"all silos must have the same types of nodes, tables of links and columns of these: {here} has "
                f"{_tables(first)}, {there} has {_tables(other)}."
            )
    sizes = [graph.num_nodes for graph in graphs]
    shifts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    as_csr = any(graph.is_sparse for graph in graphs) if sparse is None else sparse
    features = (
        sp.vstack([sp.csr_matrix(graph.features) for graph in graphs], format="csr")
        if as_csr
        else np.concatenate([dense(graph.features) for graph in graphs])
    )
    shared = set.intersection(*(set(graph.splits) for graph in graphs))
    splits = {}
    for name in sorted(shared):
        masks = [graph.splits[name] for graph in graphs]
        if all(mask.ndim == masks[0].ndim for mask in masks):
            splits[name] = np.concatenate(masks)
    published = not any(graph.has_own_splits for graph in graphs)
    joined = Graph(
        features=features,
        edges=np.concatenate([graph.edges + shift for graph, shift in zip(graphs, shifts, strict=True)], axis=1),
        labels=np.concatenate([graph.labels for graph in graphs]),
        num_classes=first.num_classes,
        name="+".join(dict.fromkeys(graph.name for graph in graphs)),
        splits=PublishedSplits(splits) if published else splits,
        feature_names=first.feature_names,
        class_names=first.class_names,
        node_names=_join_names(graphs),
        edge_weights=_join_weights(graphs, called),
        booleans=join_truth(truth_of(graphs, called)),
        notes=tuple(dict.fromkeys(note for graph in graphs for note in graph.notes)),
        **join_parts(graphs, shifts.tolist()),
    )
    return joined, sizes


def _tables(graph: Graph) -> str:
    """Types of nodes and tables of links, in words."""
    links = graph.links
    kinds = "nodes of one type" if graph.types is None else f"the types {', '.join(graph.types.names)}"
    rows = "no rows of links" if links is None else f"links {', '.join(links.relations)}"
    columns = "" if links is None or not links.feature_names else f" with {', '.join(links.feature_names)}"
    return f"{kinds} and {rows}{columns}"


def shared_nodes(graphs: Mapping[ClientId, Graph]) -> dict[tuple[ClientId, ClientId], float]:
    """By pairs of silos, the share of the smaller one's nodes that the other holds, too, where it is above a half.

    Nodes are the same where features and label are and, where many nodes of a graph agree in these, the id is, too.
    """
    keys = {client: _row_keys(graph) for client, graph in graphs.items() if graph.num_nodes}
    telling = {client: len(np.unique(rows)) >= _DISTINCT * len(rows) for client, rows in keys.items()}
    found = {}
    for pair in combinations(keys, 2):
        small, large = sorted(pair, key=lambda client: len(keys[client]))
        rows, among = keys[small], keys[large]
        chance = 0.0
        if telling[small] and telling[large]:
            share = float(np.isin(rows, among).mean())
        else:
            _, here, there = np.intersect1d(graphs[small].external_ids, graphs[large].external_ids, return_indices=True)
            share = float((rows[here] == among[there]).sum() / len(rows))
            _, place, times = np.unique(np.concatenate([rows, among]), return_inverse=True, return_counts=True)
            mine = np.bincount(place[: len(rows)], minlength=len(times))
            chance = float(mine @ (times - mine)) / (len(rows) * len(among))
        if graphs[small].num_features == graphs[large].num_features and share > max(0.5, 2 * chance):
            found[pair] = share
    return found


def _row_keys(graph: Graph) -> NDArray[np.uint64]:
    """[n] a number per node for its features and label."""
    rows = sp.csr_matrix(graph.features, dtype=np.float64, copy=True)
    rows.eliminate_zeros()
    factors = numpy_generator(0, "rows").integers(2**63, size=graph.num_features + 1, dtype=np.uint64) * 2 + 1
    terms = rows.data.view(np.uint64).byteswap() * factors[rows.indices]  # the low bits of a float are often all 0
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    keys: NDArray[np.uint64] = np.diff(sums[rows.indptr]) + graph.labels.astype(np.uint64) * factors[-1]
    return keys


def truth_of(graphs: Sequence[Graph], names: Sequence[str]) -> list[BooleanWords]:
    """Words of truth values of several silos' graphs, one per client."""
    return [
        BooleanWords(f"client {client} ({name})", graph.feature_names or (), graph.booleans)
        for client, (graph, name) in enumerate(zip(graphs, names, strict=True))
    ]


def _join_weights(graphs: Sequence[Graph], called: Sequence[str]) -> NDArray[np.float32] | None:
    weights = [graph.edge_weights for graph in graphs]
    given = [part for part in weights if part is not None]
    if given and len(given) < len(graphs):
        have, lack = (next(k for k, part in enumerate(weights) if (part is None) == none) for none in (False, True))
        raise DataError(
            f"edges have weights at client {have} ({called[have]}) and none at client {lack} ({called[lack]}): give "
            f"them everywhere, or nowhere."
        )
    return np.concatenate(given) if given else None


def _join_names(graphs: Sequence[Graph]) -> NDArray[np.str_] | None:
    """What every silo calls its nodes; rows of a silo without names count from 0 there."""
    if all(graph.node_names is None for graph in graphs):
        return None
    return np.concatenate([graph.external_ids.astype(np.str_) for graph in graphs])


def dense(features: Features) -> NDArray[np.floating]:
    """[n, d] features as a plain array."""
    array: NDArray[np.floating] = features.toarray() if sp.issparse(features) else np.asarray(features)
    return array


def own_partition(
    graph: Graph,
    sizes: Sequence[int],
    *,
    mode: SplitMode,
    ratios: Ratios,
    seed: int,
    split_index: int = 0,
    times: TimeOptions | None = None,
    first_client: ClientId = 0,
    names: Sequence[str] = (),
) -> Partition:
    """The partition of a union into the silos it was made of; nothing is cut.

    Args:
        graph: The union.
        sizes: Nodes of each silo, in order.
        mode: How nodes are split. ``stratified`` draws for each client by its number and its own labels alone.
        ratios: Shares of training, validation and test nodes.
        seed: Of the splits.
        split_index: Column, where there are several predefined splits.
        times: Of a split by time; ratios count each silo's own nodes unless it says otherwise.
        first_client: Number of the first silo's client.
        names: Of the silos, for errors.

    Raises:
        DataError: ``predefined`` or ``time`` is asked for, and the data has no such split, or no times.
    """
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    nodes = [np.arange(start, stop, dtype=np.int64) for start, stop in pairwise(bounds.tolist())]
    if mode == "stratified":
        splits = []
        for part, ids in enumerate(nodes):
            local = own_split(graph.labels[ids], ratios, seed=seed, client=first_client + part)
            splits.append((ids[local[0]], ids[local[1]], ids[local[2]]))
    else:
        chosen = times or TimeOptions()
        each = chosen if chosen.split_by else chosen.model_copy(update={"split_by": "silo"})
        splits = splits_for(
            graph, nodes, mode=mode, ratios=ratios, seed=seed, split_index=split_index, times=each, names=names
        )
    return Partition(
        rule="files",
        seed=seed,
        data=graph.name,
        num_nodes=graph.num_nodes,
        nodes=tuple(nodes),
        train=tuple(part[0] for part in splits),
        val=tuple(part[1] for part in splits),
        test=tuple(part[2] for part in splits),
        split=mode,
        ratios=ratios,
    )
