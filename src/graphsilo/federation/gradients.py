"""Why a network says what it says of a node: integrated gradients of its score, which are approximate.

Source: Sundararajan, Taly and Yan, "Axiomatic Attribution for Deep Networks", ICML 2017: the gradient for the features
of all nodes times these, averaged on the way from zeros to what they are. The links stay what they are. Shares add up
to the score but for the error of ``STEPS`` steps, which is the ``gap``.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.errors import UnsupportedError
from graphsilo.federation.client import ClientBase
from graphsilo.models.base import Model, borrow
from graphsilo.models.generated import GeneratedGraph
from graphsilo.models.shares import Floats, Part, Shares, name_columns
from graphsilo.models.view import GraphTensors

STEPS = 64
"""Between zeros and what features are."""
_MOST = 1 << 26
"""Numbers that are dense at once: 256 MB."""
_HOPS = 4
"""Links away up to which nodes count where all are more than these numbers."""


def explain_network(
    client: ClientBase[Any], data: GraphTensors, items: NDArray[np.int64], output: Tensor, view: str = "own"
) -> list[Shares]:
    """As ``ClientBase.explain``, of a client whose scores are those of ``client.model``.

    Raises:
        UnsupportedError: They are not, are of whole graphs, or too many nodes count.
    """
    name = type(client).__module__.removeprefix("graphsilo.methods.").split(".")[0]
    model = getattr(client, "model" if view == "own" else "common", None)
    if not isinstance(model, Model) or data.collection is not None:
        raise UnsupportedError(
            f"'{name}' cannot say what its scores{' of whole graphs' if data.collection is not None else ''} are made "
            f"of: shares are known of ridges, of trees, and of nodes of which a network of its own decides. `graphsilo "
            f"predict` has the scores; fedridge, fedtrees and auto give exact shares of theirs."
        )
    weights: Any = nullcontext()
    if view != "own":
        weights = borrow(client.common_weights, client._aggregate or {})  # type: ignore[attr-defined]
    with torch.no_grad():
        said = client.predict(data, view)[torch.from_numpy(items)].double()
    with weights:
        was_training = model.training
        model.eval()
        try:
            return [
                _integrate(model, data, int(item), output, float(each @ output), name)
                for item, each in zip(items, said, strict=True)
            ]
        finally:
            model.train(was_training)


def _integrate(model: Model, data: GraphTensors, item: int, output: Tensor, said: float, name: str) -> Shares:
    nodes = _near(data, item)
    rows = data.graph.features[nodes]
    features = torch.from_numpy(np.asarray(rows.toarray() if sp.issparse(rows) else rows, dtype=np.float32))
    place = int(np.searchsorted(nodes, item))
    graph = GeneratedGraph(features, data.graph.adjacency()[nodes][:, nodes])

    def score(some: Tensor) -> Tensor:
        found: Tensor = model(graph.with_features(some).full)[place].double() @ output
        return found

    with torch.no_grad():
        base, whole = float(score(torch.zeros_like(features))), float(score(features))
    if abs(whole - said) > 1e-3 * max(1.0, abs(said)):
        raise UnsupportedError(
            f"'{name}' says more of a node than its network does, or of more nodes than could be looked at, so that "
            f"the network's gradients are no reason for its score. fedridge, fedtrees and auto give exact shares."
        )
    total = torch.zeros_like(features, dtype=torch.float64)
    for step in range(STEPS):
        some = (features * ((step + 0.5) / STEPS)).requires_grad_()
        (gradient,) = torch.autograd.grad(score(some), some)
        total += gradient.double()
    shares: Floats = (total / STEPS * features.double()).numpy()
    columns, each, own = shares.sum(axis=0), shares.sum(axis=1), shares[place]
    names, around = (
        name_columns(data.graph.feature_names, len(own), where) for where in ("", "of the nodes around it")
    )
    parts = (
        *(Part(names[k], float(own[k]), int(k), read=partial(_column, data, int(k))) for k in np.flatnonzero(own)),
        *(Part(around[k], float(columns[k] - own[k]), int(k)) for k in np.flatnonzero(columns - own)),
    )
    counted = (each != 0) | (nodes == item)
    return Shares(base, parts, nodes[counted], each[counted], whole - base - float(columns.sum()), "zeros everywhere")


def _column(data: GraphTensors, column: int) -> Floats:
    values = data.graph.features[:, column]
    return np.asarray(values.toarray() if sp.issparse(values) else values, dtype=np.float64).ravel()


def _near(data: GraphTensors, item: int) -> NDArray[np.int64]:
    """All nodes, or where these are too many, those so many links away."""
    width = max(data.num_features, 1)
    if data.num_nodes * width <= _MOST:
        return np.arange(data.num_nodes)
    links, found = data.graph.adjacency(), np.array([item])
    for _ in range(_HOPS):
        found = np.union1d(found, links[found].indices).astype(np.int64)
    if len(found) * width > _MOST:
        raise UnsupportedError(
            f"{len(found)} nodes with {width} features lie within {_HOPS} links of the node, more than {_MOST} "
            f"numbers, whose gradients would take {2 * len(found) * width * 12 / 2**30:.1f} GB. Ask for another node."
        )
    return found
