"""A graph of products, and the models on propagated features."""

from __future__ import annotations

from graphsilo.data.sources.generated_products import product_sbm

GRAPH = product_sbm(nodes=700, classes=3, features=5, mean_degree=6.0)


BACKBONES = ("sgc", "sign", "gamlp", "ssgc", "ssgc_mlp", "appnp_features")
