"""What FedSage+ and FedLoG send, against the formulas on their pages.

On the wire every tensor starts on 64 bytes. The sizes here are such that nothing is padded: what the ledger notes
beside headers is the formula to the byte.
"""

from __future__ import annotations

import numpy as np
import torch

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.federation import registry
from graphsilo.methods.fedsage_plus import generator as neighgen
from graphsilo.methods.fedsage_plus.config import FedSagePlusConfig


def noted(ledger, direction, number, *handlers):
    """Bytes beside headers and control in a round (0: set-up), by client."""
    found = {}
    for _, when, client, way, handler, _, _, kind, size, _ in ledger.rows():
        if (when, way) == (number, direction) and handler in handlers and kind != "control":
            found[client] = found.get(client, 0) + size
    return found


def bipartite(client: int, centres: int) -> Silo:
    """Training nodes that are all joined to four validation nodes and a test node; 16 classes, 16 features, all 0."""
    leaves = centres + np.arange(5)
    ends = np.stack([np.repeat(np.arange(centres), 5), np.tile(leaves, centres)])
    graph = Graph(
        features=np.zeros((centres + 5, 16), np.float32),
        edges=np.concatenate([ends, ends[::-1]], axis=1).astype(np.int64),
        labels=(np.arange(centres + 5) % 16).astype(np.int64),
        num_classes=16,
    )
    items = {"train": np.arange(centres), "val": leaves[:4], "test": leaves[4:]}
    return Silo(client, graph, items["train"], (EvaluationSet("seen", graph, items),), Schema("node", 16, 16))


def test_fedsage_plus(kit):
    """K = 3, p = 16, d = 16, widths 16 and 32; of the four validation nodes two are hidden.

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
    weights = neighgen.initial_weights(config, 1433, 7, torch.Generator())
    body = {name: value for name, value in weights.items() if neighgen.is_fgen(name)}
    slot = sum(value.numel() for value in neighgen.slot_weights(config, 1433, torch.Generator()))
    assert sum(value.numel() for value in body.values()) == 559_360
    assert slot == 2049 * 1433
    assert 4 * (559_360 + 5 * slot) == 60_961_780


def test_fedlog(kit):
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


def test_fedlog_on_cora():
    """The page's numbers: |E| = 383,424, |D| = 41,856, s·C·d = 200,620, 2.7 MB each way."""
    config = registry.load("fedlog").config()
    width, hidden, features, classes = config.embedding_dim, 128, 1433, 7
    encoder = 2 * features * hidden + hidden + 2 * hidden * width + width
    classifier = 10 * width**2 + 14 * width
    nodes = config.prototypes * classes * features
    assert (encoder, classifier, nodes) == (383_424, 41_856, 200_620)
    assert round(4 * (encoder + 2 * classifier + nodes) / 1e6, 1) == 2.7
