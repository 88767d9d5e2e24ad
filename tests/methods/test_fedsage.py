"""FedSage: the invariants of its specification, and sampled neighbourhoods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.data.silos.silo import EvaluationSet
from graphsilo.errors import ConfigError
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.testing import conformance
from graphsilo.training.local import weights_of

TWO = [(1.0, 0.0), (3.0, 4.0)]


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_mean_is_not_weighted(kit):
    # Two steps of rate 0.1 from 1: 1 - 0.1 - 0.09 = 0.81, and 1 + 0.9 + 0.63 = 2.53; (0.81 + 2.53) / 2.
    weights = kit.rounds(*kit.quadratic("fedsage", TWO, sizes=[1, 9]))
    assert kit.value_of(weights) == pytest.approx(1.67, abs=1e-6)
    weighted = kit.rounds(*kit.quadratic("fedsage", TWO, sizes=[1, 9], weight_by="train"))
    assert kit.value_of(weighted) == pytest.approx(0.1 * 0.81 + 0.9 * 2.53, abs=1e-6)


def test_order_of_clients_does_not_matter(kit):
    there = kit.rounds(*kit.quadratic("fedsage", TWO))
    back = kit.rounds(*kit.quadratic("fedsage", TWO[::-1]))
    assert all(torch.equal(there[name], back[name]) for name in there)


def test_equal_answers_are_the_answer(kit):
    server, federation = kit.quadratic("fedsage", [(0.0, 0.0)] * 3)  # nothing pulls: everybody returns θ
    before = {name: value.clone() for name, value in server.weights.items()}
    after = kit.rounds(server, federation)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_client_with_nothing_to_train_on_is_left_out(kit):
    weights = kit.rounds(*kit.quadratic("fedsage", [*TWO, (1.0, 100.0)], sizes=[1, 1, 0]))
    assert kit.value_of(weights) == pytest.approx(1.67, abs=1e-6)


def test_one_client_is_centralised_sage():
    def rounds(name):
        config = conformance.small_config(registry.load(name), {}, clients=1)
        config = config.model_copy(update={"model": config.model.model_copy(update={"name": "sage"})})
        return [row["test"]["accuracy"] for row in run(config).tree["seeds"][0]["rounds"]]

    assert rounds("fedsage") == rounds("global")


def test_only_the_weights_travel(kit):
    server, federation = kit.build("fedsage", [kit.tiny_silo(0), kit.tiny_silo(1)], model="sage")
    kit.rounds(server, federation)
    # d = 3, h = 4, C = 2: 2·3·4 + 4 + 2·4·2 + 2 = 46 scalars in six tensors
    weights = sum(value.numel() for value in server.weights.values())
    assert weights == 46
    padded = sum(-(-4 * value.numel() // 64) * 64 for value in server.weights.values())
    for row in federation.ledger.rows():
        *_, direction, handler, _, field, kind, size, messages = row
        assert handler == "train"
        assert messages == 1
        assert size == padded if field == "weights" else kind in ("control", "counts")
        assert direction in ("up", "down")


def matching_silo(kit, client):
    """Three pairs of nodes: whoever samples neighbours always finds the same one."""
    silo = kit.tiny_silo(client)
    pairs = np.array([[0, 2, 4, 1, 3, 5], [1, 3, 5, 0, 2, 4]], dtype=np.int64)
    graph = silo.graph.with_edges(pairs)
    return replace(silo, graph=graph, evaluations=(EvaluationSet("seen", graph, silo.seen.items),))


@pytest.mark.parametrize("unit_rows", [False, True])
@pytest.mark.parametrize("fan_out", [5, (5, 5), (0, 3)], ids=str)
def test_sampling_where_there_is_no_choice_changes_nothing(kit, fan_out, unit_rows):
    def trained(fan_out):
        server, federation = kit.build(
            "fedsage", [matching_silo(kit, 0), matching_silo(kit, 1)], model="sage", fan_out=fan_out, local_epochs=3,
            model_options={"unit_rows": unit_rows},
        )  # fmt: skip
        return kit.rounds(server, federation)

    full, sampled = trained(0), trained(fan_out)
    assert all(torch.allclose(full[name], sampled[name], atol=1e-5) for name in full)


def test_a_fan_out_that_does_not_fit_is_refused(kit):
    with pytest.raises(ConfigError, match=r"task node and a model such as gcn.*the model sign"):
        kit.build("fedsage", [kit.tiny_silo(0)], model="sign", fan_out=5)
    with pytest.raises(ConfigError, match="2 layers, a list of 3 numbers"):
        kit.build("fedsage", [kit.tiny_silo(0)], model="sage", fan_out=(5, 5, 5))
    with pytest.raises(ConfigError, match=r"method\.fan_out must be at least 0"):
        registry.load("fedsage").config(fan_out=-1)


def test_batches_are_trained_on_with_samples(kit):
    server, federation = kit.build(
        "fedsage", [kit.tiny_silo(0), kit.tiny_silo(1)], model="sage", fan_out=(5, 5), batch_size=2, local_epochs=1
    )
    start = {name: value.clone() for name, value in server.weights.items()}
    kit.rounds(server, federation)
    client = federation.client(0)
    assert client.trainer.optimizer.steps == 2  # three training nodes, two at a time
    assert any(not torch.equal(start[name], value) for name, value in weights_of(client.model).items())


@pytest.mark.parametrize(
    "check",
    [conformance.check_determinism, conformance.check_labels_stay, conformance.check_resume],
)
def test_conforms_with_samples(check):
    check(registry.load("fedsage"), {"batch_size": 8, "fan_out": 2})
