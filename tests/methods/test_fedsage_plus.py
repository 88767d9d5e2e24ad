"""FedSage+: hiding, the losses, the exchange of gradients, mending, and what is left when nothing is generated."""

from __future__ import annotations

from itertools import product

import pytest
import scipy.sparse as sp
import torch

from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.federation.message import KINDS
from graphsilo.methods.fedsage_plus.config import FedSagePlusConfig
from graphsilo.testing import conformance
from graphsilo.training import neighgen
from kit.fedsage_plus import SMALL
from kit.messages import noted
from kit.silos import bipartite


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


OTHER_MESSAGES = [{"exchange": "outputs"}, {"neighgen": "shared"}]
OTHER_STEPS = [{"fan_out": 2}, {"loss_counts": "truncate", "hidden_share": 0.0}]
STEPS = [conformance.check_resume, conformance.check_offloading, conformance.check_poor_clients]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "check"), [*product(OTHER_MESSAGES, conformance.CHECKS), *product(OTHER_STEPS, STEPS)]
)
def test_conformance(settings, check):
    check(registry.load("fedsage_plus"), {**SMALL, **settings})


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


def test_bytes_of_the_exchange(kit):
    """K = 3, p = 16, d = 16, widths 16 and 32; of the four validation nodes two are hidden. Nothing is padded.

    Embeddings are 0 as features are, so that dGen predicts its bias, 2, everywhere: every training node has a hidden
    and a predicted neighbour and is compared, b = 8, 16 and 24, and fGen is used with s = 2 slots:
    P_f = (16·16 + 16) + (16·32 + 32) + 2 (32·16 + 16) = 1872.
    Up 4·3·1872 + 72 b, down 4·3·1872 + 72 (48 − b), in each of the two epochs.
    """
    rows = {0: 8, 1: 16, 2: 24}
    server, federation = kit.build(
        "fedsage_plus", [bipartite(client, count) for client, count in rows.items()], model="sage",
        model_options={"hidden": 16}, local_generator_epochs=0, generator_epochs=2, generator_lr=1e-9, count_bias=2.0,
        generator_hidden=(16, 32), encoder_widths=(16, 16),
    )  # fmt: skip
    federation.at("setup", 0)
    server.set_up(federation)
    exchange = ("offer", "compare", "improve")
    assert noted(federation.ledger, "up", 0, *exchange) == {0: 2 * 23040, 1: 2 * 23616, 2: 2 * 24192}
    assert noted(federation.ledger, "down", 0, *exchange) == {0: 2 * 25344, 1: 2 * 24768, 2: 2 * 24192}
    for client, count in rows.items():
        assert 23040 + 72 * (count - 8) == 4 * 3 * 1872 + 72 * count
        assert noted(federation.ledger, "down", 0, *exchange)[client] == 2 * (4 * 3 * 1872 + 72 * (48 - count))

    # A round of FedSage: P = 2 layers of 16·16 + 16 + 16·16, 4P each way.
    federation.at("round", 1)
    server.round(federation, 1)
    for direction in ("up", "down"):
        assert noted(federation.ledger, direction, 1, "train") == dict.fromkeys(rows, 4 * 2 * 528)


def test_size_of_the_release_generator():
    """559,360 + 2,049 d for every slot, 559,360 + 10,245 d with all five; 61 MB on Cora."""
    config = FedSagePlusConfig(generator_hidden=(256, 2048))
    weights = neighgen.initial_weights(config, 1433, 7, lambda part: torch.Generator())
    sizes = {name: value.numel() for name, value in weights.items() if neighgen.is_fgen(name)}
    assert sum(size for name, size in sizes.items() if name.startswith("body.")) == 559_360
    assert sum(size for name, size in sizes.items() if name.startswith("slot.0.")) == 2049 * 1433
    assert 4 * sum(sizes.values()) == 60_961_780
