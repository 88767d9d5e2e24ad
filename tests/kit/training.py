"""Small tasks to train on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from graphsilo import models
from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet, Silo
from graphsilo.random import generator
from kit.backbones import SCHEMA, typed

NODES, CLASSES = 40, 3


def graph(*, sparse=True, seed=0):
    draw = np.random.default_rng(seed)
    ends = draw.integers(NODES, size=(2, 2 * NODES))
    ends = np.unique(np.sort(ends[:, ends[0] != ends[1]], axis=0), axis=1)
    features = (draw.random((NODES, 12)) < 0.3).astype(np.float32)
    return typed(
        Graph(
            features=sp.csr_matrix(features) if sparse else features,
            edges=np.concatenate([ends, ends[::-1]], axis=1).astype(np.int64),
            labels=draw.integers(CLASSES, size=NODES),
            num_classes=CLASSES,
        )
    )


def silo(task="node", *, train=range(0, 30, 2), **more):
    whole = graph(**more)
    items = np.array(train, dtype=np.int64)
    return Silo(0, whole, items, (EvaluationSet("seen", whole, {}),), replace(SCHEMA, task=task))


def model_for(one, name="gcn", **settings):
    schema = one.schema
    return models.build(
        name, num_features=schema.num_features, num_classes=schema.num_classes, task=schema.task, seed=0,
        schema=SCHEMA, **settings,
    )  # fmt: skip


def full_batch(goal):
    return next(iter(goal.batches(0, generator(0))))
