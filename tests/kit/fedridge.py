"""What several tests of fedridge are made of."""

from __future__ import annotations

import numpy as np
import torch

from graphsilo.methods import fedridge
from graphsilo.methods.fedridge.features import Features
from graphsilo.methods.fedridge.solve import unpack
from graphsilo.models.view import GraphTensors

METHOD = fedridge.METHOD


PLAIN = {"label_features": "never", "prior": (0.0,)}
"""The ridge alone."""


def whole(packed, size):
    """The symmetric matrix of a packed triangle."""
    upper = unpack(packed, size).triu()
    return upper + upper.triu(1).t()


def played(kit, silos, *, rounds=True, **settings):
    server, federation = kit.build("fedridge", silos, **settings)
    server.set_up(federation)
    if rounds:
        server.round(federation, 1)
    return server, federation


def pooled(silos, kind, settings, class_weights=None):
    """M and B of all silos' training rows in one place, in float64 numpy."""
    config = METHOD.config(**settings)
    recipe = config.recipe(kind, 0, config.dim, silos[0].schema)
    rows = [torch.cat([part for _, part in Features(GraphTensors(silo.graph), recipe).blocks(silo.train)])
            for silo in silos if len(silo.train)]  # fmt: skip
    labels = np.concatenate([silo.labels[silo.train] for silo in silos])
    rows, truth = torch.cat(rows).numpy(), np.eye(silos[0].schema.num_classes)[labels]
    weights = np.ones(len(labels)) if class_weights is None else np.asarray(class_weights)[labels]
    return rows.T @ (weights[:, None] * rows), rows.T @ (weights[:, None] * truth)
