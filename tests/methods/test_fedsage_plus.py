"""FedSage+: hiding, the losses, the exchange of gradients, mending, and what is left when nothing is generated."""

from __future__ import annotations

import pytest
import scipy.sparse as sp

from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.federation.message import KINDS
from graphsilo.testing import conformance
from kit.fedsage_plus import SMALL


def test_no_message_carries_features_of_nodes():
    """No field has a kind for them, and no row of a sent tensor is a row of anybody's features."""
    method = registry.load("fedsage_plus")
    server, federation, spy = conformance.assemble(method, SMALL)
    federation.at("setup", 0)
    server.set_up(spy)
    kinds = {spec.kind for message in spy.messages for spec in message.specs()}
    assert kinds <= set(KINDS)
    assert "generator" in kinds
    assert "gradient" in kinds
    raw = [federation.client(client).graph.features for client in federation.clients]
    raw = [matrix.toarray() if sp.issparse(matrix) else matrix for matrix in raw]
    known = {row.tobytes() for matrix in raw for row in matrix}
    for message in spy.messages:
        for spec in message.specs():
            value = getattr(message, spec.name)
            tensors = (
                [] if value is None or spec.form == "plain" else [value] if spec.form == "tensor" else value.values()
            )
            for tensor in tensors:
                if tensor.dim() == 2:
                    assert not any(row.tobytes() in known for row in tensor.float().numpy())


def test_without_generated_neighbours_it_is_fedsage():
    def rounds(name, **settings):
        config = conformance.small_config(registry.load(name), settings)
        tree = run(config).tree["seeds"][0]
        return [[row["validation"], row["test"], row["modes"]] for row in tree["rounds"]]

    silent = rounds("fedsage_plus", lambda_d=0, lambda_f=0, count_bias=-100, **SMALL)
    assert silent == rounds("fedsage")
    assert rounds("fedsage_plus", count_bias=2, **SMALL) != silent


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"fan_out": 2},
        {"exchange": "outputs"},
        {"neighgen": "shared"},
        {"loss_counts": "truncate", "hidden_share": 0.0},
    ],
    ids=str,
)
def test_conformance(settings):
    conformance.check_method(registry.load("fedsage_plus"), settings={**SMALL, **settings})


@pytest.mark.parametrize("scenario", ["inductive", "unseen"])
def test_other_scenarios(scenario):
    method = registry.load("fedsage_plus")
    config = conformance.small_config(method, SMALL)
    config = config.model_copy(update={"scenario": config.scenario.model_copy(update={"name": scenario})})
    result = run(config)
    assert 0 <= result.accuracy() <= 1


@pytest.mark.parametrize("settings", [{"exchange": "outputs"}, {"neighgen": "shared"}, {"fan_out": 2}], ids=str)
def test_labels_stay_in_variants(settings):
    method = registry.load("fedsage_plus")
    conformance.check_labels_stay(method, {**method.quick, **settings})
