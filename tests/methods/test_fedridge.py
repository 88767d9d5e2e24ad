"""FedRidge: exact whatever the cut, features and solutions by hand, choices by sums, and data that spoils a solver."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.data.silos.silo import Schema
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from kit.fedridge import played
from kit.messages import check_sent

# -- data that spoils a solver ---------------------------------------------------------------------------------------


def spoilt(kit, what):
    silos = [kit.tiny_silo(client, nodes=8, train=(0, 1, 2, 3)) for client in range(3)]
    if what == "constant and duplicate columns":
        wide = [np.repeat(silo.graph.features[:, :1], 6, axis=1) for silo in silos]
        for columns in wide:
            columns[:, 3:] = 1.0
        return [
            replace(silo, graph=(new := replace(silo.graph, features=columns)), schema=Schema("node", 6, 2),
                    evaluations=(replace(silo.seen, graph=new),))
            for silo, columns in zip(silos, wide, strict=True)
        ]  # fmt: skip
    if what == "one class only":
        return [replace(silo, train=np.array([0, 2])) for silo in silos]
    if what == "a client without training nodes":
        return [replace(silos[0], train=np.zeros(0, np.int64)), *silos[1:]]
    if what == "nobody trains":
        return [replace(silo, train=np.zeros(0, np.int64)) for silo in silos]
    if what == "features of zeros":
        return [
            replace(silo, graph=(new := replace(silo.graph, features=np.zeros_like(silo.graph.features))),
                    evaluations=(replace(silo.seen, graph=new),))
            for silo in silos
        ]  # fmt: skip
    assert what == "a class nobody has"
    return [
        replace(silo, schema=Schema("node", 3, 5), graph=(new := replace(silo.graph, num_classes=5)),
                evaluations=(replace(silo.seen, graph=new),))
        for silo in silos
    ]  # fmt: skip


@pytest.mark.parametrize(
    "what",
    ["constant and duplicate columns", "one class only", "a client without training nodes", "nobody trains",
     "features of zeros", "a class nobody has"],
)  # fmt: skip
def test_no_data_makes_it_warn_or_lose_a_number(kit, what):
    silos = spoilt(kit, what)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        server, federation = played(
            kit, silos, ridge=(1e-6, 1.0), own_ridge=(1e-6, 1.0), balance=(0.0, 1.0), random_features=4
        )
        for silo in silos:
            client = federation.client(silo.client)
            client.install_aggregate(server.aggregate())
            for view in ("own", "aggregate"):
                output = client.predict(client.data, view)
                assert torch.isfinite(output).all()
                assert torch.allclose(output.exp().sum(1), torch.ones(len(output)), atol=1e-5)
    if what == "one class only":
        assert client.predict(client.data).argmax(1).tolist() == [0] * 8
    if what == "a class nobody has":
        assert client.predict(client.data).argmax(1).max() < 2


# -- the suite -------------------------------------------------------------------------------------------------------


@pytest.mark.data
def test_cora_in_one_round(data_root):
    """Beside FedAvg of a hundred rounds: 79 to 80 % on this cut."""
    config = load_config(
        overrides={"data.name": "Cora", "data.root": str(data_root), "partition.rule": "louvain",
                   "method.name": "fedridge", "evaluation.models": False}
    )  # fmt: skip
    tree = run(config).tree
    assert tree["summary"]["test"]["accuracy"]["mean"] > 0.835
    assert tree["seeds"][0]["modes"]["aggregate_local"]["test"]["macro_f1"] > 0.65
    assert len(tree["seeds"][0]["rounds"]) == 1


def test_what_leaves_a_silo():
    check_sent(
        "fedridge",
        """
        count classes: counts int64 [classes] per_class=min_count
        count sizes: counts int64 [2] per_class=False
        count_targets classes: counts int64 [classes] per_class=min_count
        count_targets sizes: counts int64 [2] per_class=False
        count_targets squares: statistic float64 [classes] per_class=min_count
        add_columns sums: statistic float64 [columns] per_class=False
        add_columns squares: statistic float64 [columns] per_class=False
        add_columns num_samples: counts
        scale_columns clients: counts
        statistics moments: statistic float32 per_class=False
        statistics products: statistic float32 per_class=min_count
        statistics moments_rest: statistic float32 per_class=False
        statistics products_rest: statistic float32 per_class=min_count
        statistics num_samples: counts
        target_statistics moments: statistic float32 per_class=False
        target_statistics products: statistic float32 per_class=min_count
        target_statistics moments_rest: statistic float32 per_class=False
        target_statistics products_rest: statistic float32 per_class=min_count
        target_statistics num_samples: counts
        noisy_statistics numbers: statistic int64
        noisy_statistics clients: counts
        noisy_statistics mu: control
        noisy_statistics honest: control
        score counts: counts int64 [models, classes, classes]
        score ranked: score float64
        adopt clients: counts
        """,
    )
