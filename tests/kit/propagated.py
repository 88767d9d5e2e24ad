"""A graph of products, and the models on propagated features."""

from __future__ import annotations

from graphsilo.data.sources.generated import ProductSBM
from graphsilo.models.settings import BUILT_IN

GRAPH = ProductSBM(nodes=700, classes=3, features=5, mean_degree=6.0).generate()


BACKBONES = [item.name for item in BUILT_IN if item.keeps and not item.relational]
