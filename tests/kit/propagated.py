"""A graph of products, and the models on propagated features."""

from __future__ import annotations

from graphsilo.data.sources.generated import ProductSBM
from graphsilo.models.registry import built_in

GRAPH = ProductSBM(nodes=700, classes=3, features=5, mean_degree=6.0).generate()


BACKBONES = [item.name for item in built_in().values() if item.keeps and not item.relational]
