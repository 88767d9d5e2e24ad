"""Whether a run in bfloat16 would be another one than in float32."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import scipy.sparse as sp
import torch

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.silo import Silo
from graphsilo.errors import UnsupportedError
from graphsilo.federation.client import ModelSpec, build_model
from graphsilo.models.relations import links_of
from graphsilo.models.view import GraphTensors
from graphsilo.random import generator, numpy_generator
from graphsilo.types import ClientId


def check_precision(specs: Mapping[ClientId, ModelSpec], silos: Iterable[Silo]) -> None:
    """Refuse bfloat16 where every product of a backbone is sparse at all of its clients.

    Raises:
        UnsupportedError: It is; names the model.
    """
    effective: dict[str, bool] = {}
    for silo in silos:
        spec = specs[silo.client]
        key = str(spec.wire())
        effective[key] = effective.get(key, False) or precision_matters(spec, silo)
    for spec in specs.values():
        if spec.precision != "float32" and not effective.get(str(spec.wire()), True):
            raise UnsupportedError(
                f"run.precision {spec.precision} is for dense matrix products, but '{spec.name}' without a hidden "
                f"layer multiplies sparse features here and nothing else, which stays float32. Leave the precision at "
                f"float32, or give the model a hidden layer (model.layers)."
            )


def precision_matters(spec: ModelSpec, silo: Silo) -> bool:
    """Whether a client's backbone answers otherwise than in float32, tried out where it might not: on made-up rows, as
    whether it does on the silo's own would tell of these."""
    if spec.precision == "float32":
        return False
    if not sp.issparse(silo.graph.union.features):
        return True
    draw, width, classes = numpy_generator(0, "precision"), silo.schema.num_features, silo.schema.num_classes
    nodes = np.arange(64)  # in a ring, each with one number
    values, places = draw.standard_normal(64).astype(np.float32), (nodes, draw.integers(0, width, 64))
    rows, ring = sp.csr_matrix((values, places), shape=(64, width)), np.stack([nodes, np.roll(nodes, 1)])
    links = links_of(silo.schema, ring)
    whole = Graph(rows, np.concatenate([ring, ring[::-1]], axis=1), np.zeros(64, dtype=np.int64), classes, links=links)
    one = GraphCollection(whole, np.array([0, 64]), np.zeros(1, dtype=np.int64), classes)
    data = GraphTensors(one if isinstance(silo.graph, GraphCollection) else whole)
    model = build_model(spec, silo.schema, generator(0, "model"), "cpu")
    try:
        with torch.no_grad():
            output = model(data.full)
            model.precision = "float32"
            return not torch.equal(model(data.full), output)
    finally:
        data.clear()
