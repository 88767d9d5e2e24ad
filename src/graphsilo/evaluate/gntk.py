"""The graph neural tangent kernel of node classification, and the generalisation bound it gives.

Source: Zhang, Yang, Li, Sun, Yiu. "Subgraph Federated Learning with Missing Neighbor Generation" (FedSage+, NeurIPS
2021), appendix B and C; the kernel is that of Du et al., "Graph Neural Tangent Kernel" (NeurIPS 2019), for nodes. A
graph that was cut changes the kernel of its nodes; mending should move it back towards that of the whole graph.

Worked by hand: two linked nodes with features 1 and 0, one block with one ReLU layer, c = 1 / degree of the closed
neighbourhood. Both nodes see the mean 1/2, so after the aggregation every entry of Σ and Θ is 1/4. Equal nodes have
correlation 1: the ReLU layer leaves Σ = 1/4, its derivative is 1, and Θ = 1/4 · 1 + 1/4 = 1/2 everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.graph import Features, Graph
from graphsilo.errors import DataError, UnsupportedError
from graphsilo.types import ClientId

Scale: TypeAlias = Literal["mean", "root"]
"""c_u: 1 / degree of the closed neighbourhood, or one over its square root."""

Kernel: TypeAlias = "NDArray[np.float64]"

MAX_NODES = 20_000
"""Two dense matrices of this size are 6.4 GB."""
JITTER = 1e-6
"""Added to the diagonal, as a share of its mean: kernels of nodes that see the same have no inverse."""
GRAPHS = ("global", "cut", "mended")
"""What a silo's nodes are seen on."""
_BLOCK = 512
"""Rows that are worked on at a time, so that no third matrix is needed."""


def check_size(nodes: int) -> None:
    """Refuse a graph whose kernel would not fit.

    Raises:
        UnsupportedError: It has more than ``MAX_NODES`` nodes; the text says how much memory its kernel needs.
    """
    if nodes > MAX_NODES:
        raise UnsupportedError(
            f"the tangent kernel holds two dense matrices of nodes × nodes: {nodes} nodes would need "
            f"{16 * nodes**2 / 1e9:.0f} GB of memory, and {MAX_NODES} nodes ({16 * MAX_NODES**2 / 1e9:.1f} GB) are the "
            f"most that is tried. Take a smaller graph, or the silos alone."
        )


def kernel(graph: Graph, *, blocks: int = 2, layers: int = 1, scale: Scale = "mean") -> Kernel:
    """Θ of every pair of nodes. O(blocks · (n · edges + layers · n²)) time, two n × n matrices of memory.

    A block sums over closed neighbourhoods, scales by c_u, and passes ``layers`` ReLU layers, with unit variance kept
    (c_σ = 2); a linear readout follows the last one. Edge weights are not used; directions are.

    Args:
        graph: With dense or sparse features.
        blocks: K, aggregations.
        layers: R, ReLU layers in each.
        scale: c_u, ``mean`` for 1 / degree or ``root`` for 1 / √degree, the node itself counted.
    Returns:
        [n, n], symmetric and positive semidefinite to rounding.
    Raises:
        UnsupportedError: More than ``MAX_NODES`` nodes.
        ValueError: ``blocks`` or ``layers`` is below 1.
    """
    if blocks < 1 or layers < 1:
        raise ValueError(f"the kernel needs at least one block of one layer; got {blocks} of {layers}.")
    check_size(graph.num_nodes)
    gather = _gather(graph, scale)
    sigma = _products(graph.features.astype(np.float64))
    theta = sigma.copy()
    for _ in range(blocks):
        _aggregate(sigma, gather)
        _aggregate(theta, gather)
        for _ in range(layers):
            _relu(sigma, theta)
    return theta


def _products(features: Features) -> Kernel:
    """X Xᵀ. In blocks of rows: as one sparse matrix a full product takes half as much again as the dense one."""
    if not sp.issparse(features):
        return np.asarray(features @ features.T)
    found = np.empty((features.shape[0], features.shape[0]))
    columns = sp.csr_matrix(features.T)
    for start in range(0, len(found), _BLOCK):
        (features[start : start + _BLOCK] @ columns).toarray(out=found[start : start + _BLOCK])
    return found


def _gather(graph: Graph, scale: Scale) -> sp.csr_matrix:
    """C (A + I) with ones for edges."""
    if graph.edge_weights is not None:
        raise UnsupportedError(f"the kernel knows no weights of edges, and those of {graph.name} have some.")
    n = graph.num_nodes
    closed = sp.csr_matrix(graph.adjacency() + sp.eye(n, format="csr"))
    closed.data = np.ones(closed.nnz)
    degree = np.diff(closed.indptr)
    return sp.csr_matrix(sp.diags(1.0 / degree if scale == "mean" else 1.0 / np.sqrt(degree)) @ closed)


def _aggregate(matrix: Kernel, gather: sp.csr_matrix) -> None:
    """matrix ← P matrix Pᵀ, in place."""
    for start in range(0, len(matrix), _BLOCK):
        columns = slice(start, start + _BLOCK)
        matrix[:, columns] = gather @ matrix[:, columns]
    for start in range(0, len(matrix), _BLOCK):
        rows = slice(start, start + _BLOCK)
        matrix[rows] = (gather @ matrix[rows].T).T


def _relu(sigma: Kernel, theta: Kernel) -> None:
    """One ReLU layer in place: Σ by the arc-cosine kernel of degree 1, then Θ ← Θ ⊙ Σ̇ + Σ.

    With c_σ = 2 the factors c_σ / (2π) are 1 / π, and the diagonal of Σ stays as it is.
    """
    length = np.sqrt(np.clip(sigma.diagonal(), 0.0, None))
    for start in range(0, len(sigma), _BLOCK):
        rows = slice(start, start + _BLOCK)
        sizes = length[rows, None] * length[None, :]
        # A node that sees only zeros is orthogonal to everybody.
        cosine = np.divide(sigma[rows], sizes, out=np.zeros_like(sizes), where=sizes > 0)
        np.clip(cosine, -1.0, 1.0, out=cosine)
        # Rounding would leave a node's correlation with itself just below 1, where arccos is steepest.
        np.fill_diagonal(cosine[:, start:], np.where(length[rows] > 0, 1.0, 0.0))
        angle = np.arccos(cosine)
        np.subtract(np.pi, angle, out=angle)
        theta[rows] *= angle
        angle *= cosine
        cosine *= cosine
        np.subtract(1.0, cosine, out=cosine)
        np.sqrt(cosine, out=cosine)
        angle += cosine
        angle *= sizes
        sigma[rows] = angle
        theta[rows] += angle
    sigma /= np.pi
    theta /= np.pi


def bound_term(
    theta: Kernel, labels: NDArray[np.int64], *, confidence: float | None = None, jitter: float = JITTER
) -> float:
    """√(yᵀ Θ⁻¹ y · tr Θ) / n, the part of the bound on the generalisation error that the kernel decides.

    For several classes it is the mean over those among the labels of one against the rest, y = ±1.

    Args:
        theta: [n, n] kernel of the nodes.
        labels: [n] their classes, none unknown.
        confidence: σ; with it √(log(1/σ) / n) is added, and the bound holds with probability 1 - σ.
        jitter: Added to the diagonal, as a share of its mean.
    Returns:
        The bound's term; the smaller the better these labels suit the kernel.
    Raises:
        DataError: There is no node, a label is unknown, the shapes do not fit, or every node sees zeros only.
    Source: FedSage+, appendix C.
    """
    n = len(labels)
    if theta.shape != (n, n) or n == 0:
        raise DataError(f"the bound needs a kernel [n, n] and n labels, n above 0; got {theta.shape} and {n}.")
    if int(labels.min()) < 0:
        raise DataError("the bound needs the label of every node; leave out those that have none.")
    trace = float(np.trace(theta))
    if not trace > 0:
        raise DataError("every node's features and those of its neighbours are 0: the kernel has no inverse.")
    from scipy.linalg import cho_factor, cho_solve

    ridged = theta.copy()
    ridged.flat[:: n + 1] += jitter * trace / n
    # The transpose of a symmetric matrix in rows is one in columns, which LAPACK factorises where it lies.
    factor = cho_factor(ridged.T, lower=True, overwrite_a=True, check_finite=False)
    classes = np.unique(labels)
    targets = np.where(labels[:, None] == classes[None, :], 1.0, -1.0)
    energy = np.einsum("nc,nc->c", targets, cho_solve(factor, targets, check_finite=False))
    term = float(np.sqrt(energy * trace).mean()) / n
    return term if confidence is None else term + float(np.sqrt(np.log(1.0 / confidence) / n))


def twins(theta: Kernel, labels: NDArray[np.int64], *, jitter: float = JITTER) -> int:
    """Nodes that the kernel cannot tell from one of another class, e.g. two linked nodes without other neighbours.

    Such a pair alone makes the bound's term about 1 / √jitter times larger.

    Args:
        theta: [n, n] kernel.
        labels: [n] classes.
        jitter: Two nodes are alike where their squared distance is at most this share of the mean of the diagonal.
    """
    size = theta.diagonal()
    least = jitter * float(size.mean()) if len(size) else 0.0
    found = 0
    for start in range(0, len(theta), _BLOCK):
        rows = slice(start, start + _BLOCK)
        alike = size[rows, None] + size[None, :] - 2 * theta[rows] <= least
        found += int((alike & (labels[rows, None] != labels[None, :])).any(axis=1).sum())
    return found


def compare(
    whole: Graph,
    silos: Mapping[ClientId, Graph],
    mended: Mapping[ClientId, Graph] | None = None,
    *,
    blocks: int = 2,
    layers: int = 1,
    scale: Scale = "mean",
    confidence: float | None = None,
    jitter: float = JITTER,
) -> dict[str, Any]:
    """The bound's term of the whole graph, and for the nodes of each silo on three graphs.

    The term shrinks with the number of nodes, so a silo is compared over its own labelled nodes only: as they see the
    whole graph, their silo's cut graph, and its mended graph, whose generated nodes are seen but not scored.

    Args:
        whole: The graph before it was cut.
        silos: Each client's graph; its ``global_ids`` are nodes of the whole graph.
        mended: Each client's mended graph: the silo's nodes first and in their order, then generated ones.
        blocks, layers, scale: As for :func:`kernel`.
        confidence, jitter: As for :func:`bound_term`.
    Returns:
        JSON-able: the settings; ``global`` with ``nodes``, ``bound`` and ``twins``; ``silos``, one row per client with
        ``client, nodes, generated``, the bounds ``global, cut, mended`` and for each of them the number of
        ``twins``; ``mean``, the node-weighted means of the bounds over silos that have all of them; ``compared``,
        silos with a mended graph, and ``nearer``, those where mending moved the bound towards the whole graph's.
    Raises:
        UnsupportedError: A graph has more than ``MAX_NODES`` nodes.
        DataError: A silo's nodes are not those of the whole graph, or a mended graph is not of its silo.
    """
    mended = mended or {}
    for graph in (whole, *silos.values(), *mended.values()):
        check_size(graph.num_nodes)
    known = whole.labels >= 0
    places = {client: _places(whole, client, graph) for client, graph in silos.items()}
    for client, graph in mended.items():
        _check_mended(client, silos.get(client), graph)

    def build(graph: Graph) -> Kernel:
        return kernel(graph, blocks=blocks, layers=layers, scale=scale)

    def judge(theta: Kernel, nodes: NDArray[np.int64], labels: NDArray[np.int64]) -> tuple[float | None, int]:
        part = theta if len(nodes) == len(theta) else theta[np.ix_(nodes, nodes)]
        if not len(nodes) or not np.trace(part) > 0:
            return None, 0
        return bound_term(part, labels, confidence=confidence, jitter=jitter), twins(part, labels, jitter=jitter)

    theta = build(whole)
    rows: list[dict[str, Any]] = []
    for client, graph in silos.items():
        own = np.flatnonzero(known[places[client]])
        labels = whole.labels[places[client][own]]
        views = {"global": (theta, places[client][own]), "cut": (build(graph), own)}
        if client in mended:
            views["mended"] = (build(mended[client]), own)
        bounds: dict[str, float | None] = dict.fromkeys(GRAPHS)
        alike: dict[str, int | None] = dict.fromkeys(GRAPHS)
        for name, (seen, nodes) in views.items():
            bounds[name], alike[name] = judge(seen, nodes, labels)
        generated = mended[client].num_nodes - graph.num_nodes if client in mended else None
        rows.append({"client": client, "nodes": len(own), "generated": generated, **bounds, "twins": alike})
    everywhere = np.flatnonzero(known)
    bound, alike_everywhere = judge(theta, everywhere, whole.labels[everywhere])
    return {
        "blocks": blocks,
        "layers": layers,
        "scale": scale,
        "confidence": confidence,
        "jitter": jitter,
        "global": {"nodes": len(everywhere), "bound": bound, "twins": alike_everywhere},
        "silos": rows,
        **_average(rows),
    }


def _average(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    healed = [row for row in rows if None not in (row["global"], row["cut"], row["mended"])]
    names = GRAPHS if healed else GRAPHS[:2]
    there = healed or [row for row in rows if None not in (row["global"], row["cut"])]
    mean: dict[str, float | None] = dict.fromkeys(GRAPHS)
    if there:
        weights = [row["nodes"] for row in there]
        mean |= {name: float(np.average([row[name] for row in there], weights=weights)) for name in names}
    nearer = [abs(row["mended"] - row["global"]) < abs(row["cut"] - row["global"]) for row in healed]
    return {"mean": mean, "compared": len(healed), "nearer": sum(nearer)}


def _places(whole: Graph, client: ClientId, silo: Graph) -> NDArray[np.int64]:
    """Rows of the whole graph that a silo's nodes are."""
    try:
        return whole.rows_of(silo.global_ids)
    except DataError:
        raise DataError(f"client {client} holds nodes that are not in the graph it is compared with.") from None


def _check_mended(client: ClientId, silo: Graph | None, mended: Graph) -> None:
    if silo is None:
        raise DataError(f"there is a mended graph of client {client}, but no such client.")
    n = silo.num_nodes
    if mended.num_features != silo.num_features or mended.num_nodes < n:
        raise DataError(
            f"client {client}'s mended graph must have its {n} nodes of {silo.num_features} features and more; got "
            f"{mended.num_nodes} of {mended.num_features}. It is of another run, or of another cut."
        )
    before, after = (graph.features[:n] for graph in (silo, mended))
    difference = abs(sp.csr_matrix(before) - sp.csr_matrix(after))
    if difference.nnz and float(difference.max()) > 1e-5:
        raise DataError(
            f"the first {n} nodes of client {client}'s mended graph do not have the features of its own nodes. It is "
            f"of another run, or of another cut."
        )
