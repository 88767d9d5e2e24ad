"""FedLoG: the invariants of its specification, through the real machinery."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from graphsilo.methods.fedlog import METHOD
from graphsilo.testing import conformance
from graphsilo.testing.small import play
from kit.fedlog import SHORT, build, silo_of
from kit.messages import noted
from kit.silos import bipartite


def test_no_message_carries_features_of_nodes(kit):
    """After two rounds no row that anybody sends or receives points where a node's features point.

    No class has two clients, so that no mixture hides anybody's nodes.
    """
    silos = [silo_of(0, [0, 1], features=60), silo_of(1, [2], features=60)]
    server, federation = build(kit, silos)
    spy = conformance.Spy(federation)
    conformance.play(server, spy)
    real = torch.cat([torch.from_numpy(silo.graph.features) for silo in silos])
    rows = [
        value.reshape(-1, 60)
        for message in spy.messages
        for spec in message.specs()
        for value in tensors(getattr(message, spec.name))
        if value.dim() >= 2 and value.shape[-1] == 60
    ]
    assert len(torch.cat(rows)) > 100
    alike = torch.nn.functional.normalize(torch.cat(rows).float()) @ torch.nn.functional.normalize(real).t()
    assert float(alike.abs().max()) < 0.9


def tensors(value):
    """Tensors of a field."""
    if isinstance(value, torch.Tensor):
        return [value]
    return list(value.values()) if isinstance(value, Mapping) else []


@pytest.mark.parametrize("settings", [{"interp": 0}, {"prototypes": 1}, {"batch_size": 0}, {"networks": 1}], ids=str)
def test_edges_of_settings_run(kit, settings):
    server, federation = build(kit, [silo_of(0, [0, 1, 2]), silo_of(1, [1, 1])], **settings)
    play(server, federation, 2)
    assert all(torch.isfinite(value).all() for value in server.weights.values())


def test_messages_are_as_large_as_the_formulas_say(kit):
    server, federation = build(kit, [silo_of(0, [0, 1, 2])])
    play(server, federation, 0)
    reply = federation.client(0).reply()
    client, width, features = federation.client(0), SHORT["embedding_dim"], 5
    encoder = 2 * features * 4 + 4 + 2 * 4 * width + width
    layer = (2 * width + 1) * width + 3 * width * width + 4 * width + width
    assert sum(value.numel() for value in client.weights.values()) == encoder + 2 * (2 * width + 2 * layer)
    assert reply.synthetic.shape == (SHORT["prototypes"] * 3, features)
    assert server.aggregate().keys() == reply.weights.keys()


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(conformance.check_resume, marks=pytest.mark.slow),
        pytest.param(conformance.check_poor_clients, marks=pytest.mark.slow),
        conformance.check_labels_stay,
    ],
)
def test_release_conforms(check):
    settings = {"compat": "release", "pretrain_epochs": 6, "pretrain_patience": 2}
    assert METHOD.config(**settings).chooses_by_validation
    check(METHOD, {**SHORT, **settings})


def test_labels_stay_in_a_release_without_pretraining():
    conformance.check_labels_stay(METHOD, {**SHORT, "compat": "release", "pretrain_epochs": 0})


def test_bytes_of_a_round(kit):
    """|E| = 2 (16·16 + 16 + 16·16) = 1056, |D| = 10 E² + 14 E = 2784 with E = 16, s·C·d = 2·16·16 = 512.

    4 (|E| + 2 |D| + s·C·d) = 28,544 bytes each way; 4 C = 64 more up, s·C·d fewer numbers down in round 1.
    """
    server, federation = kit.build(
        "fedlog", [bipartite(client, 32) for client in range(3)], model="sage", model_options={"hidden": 16},
        embedding_dim=16, prototypes=2, generator_epochs=1, networks=1,
    )  # fmt: skip
    kit.rounds(server, federation, 2)
    whole = 4 * (1056 + 2 * 2784 + 512)
    assert whole == 28_544
    assert noted(federation.ledger, "up", 1, "train") == dict.fromkeys(range(3), whole + 64)
    assert noted(federation.ledger, "up", 2, "train") == dict.fromkeys(range(3), whole + 64)
    assert noted(federation.ledger, "down", 1, "train") == dict.fromkeys(range(3), whole - 4 * 512)
    assert noted(federation.ledger, "down", 2, "train") == dict.fromkeys(range(3), whole)


def test_bytes_on_cora():
    """The page's numbers: |E| = 383,424, |D| = 41,856, s·C·d = 200,620, 2.7 MB each way."""
    config = METHOD.config()
    width, hidden, features, classes = config.embedding_dim, 128, 1433, 7
    encoder = 2 * features * hidden + hidden + 2 * hidden * width + width
    classifier = 10 * width**2 + 14 * width
    nodes = config.prototypes * classes * features
    assert (encoder, classifier, nodes) == (383_424, 41_856, 200_620)
    assert round(4 * (encoder + 2 * classifier + nodes) / 1e6, 1) == 2.7
