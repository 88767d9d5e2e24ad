"""What is said of shares over few rows, and that they do give away what is said."""

from __future__ import annotations

import numpy as np
import torch

from graphsilo.data.silos.silo import Schema
from graphsilo.federation import registry
from graphsilo.federation.exposure import warn_coordinator, warn_silo
from graphsilo.methods.fedridge.config import FedRidgeConfig
from graphsilo.methods.fedridge.messages import StatisticsRequest
from graphsilo.methods.fedridge.solve import unpack
from graphsilo.testing import conformance


def test_words_to_the_silo() -> None:
    told = warn_silo("FedRidge", 13, [3, 1, 0], 1)
    assert told.startswith("FedRidge sends sums of products over up to 13 columns, and this silo has 4 rows to add up:")
    assert "The sums of a class with one item are its row." in told
    assert "are its row" not in warn_silo("FedRidge", 13, [3, 2], 1)
    assert "has 3 rows" in warn_silo("FedRidge", 13, [3, 1], 2)
    for enough in ([13, 0], [20, 3], [0, 0], [1, 1]):
        assert warn_silo("FedRidge", 13, enough, 2 if enough == [1, 1] else 1) == ""
    assert warn_silo("FedAvg", 0, [1, 1], 1) == ""


def test_words_to_the_coordinator() -> None:
    told = warn_coordinator("FedRidge", 13, {"north": 5, "south": 13, "er": 0})
    assert "'north' (5 training items) has fewer rows" in told
    assert "south" not in told
    assert "er'" not in told
    many = warn_coordinator("FedRidge", 13, {f"s{number}": 1 for number in range(11)})
    assert "'s7' (1 training items) and 3 more have fewer rows" in many
    assert warn_coordinator("FedRidge", 13, {"south": 13}) == ""


def test_columns_of_methods() -> None:
    schema = Schema("node", 10, 3)
    settings = FedRidgeConfig
    # X, NX and N^2 X side by side, a constant, and 2 C label features.
    assert settings().square_columns(schema) == 30 + 1 + 6
    assert settings(features="mean", label_features="never", random_features=4).square_columns(schema) == 15
    assert settings(features="mean", label_features="never", dim=8).square_columns(schema) == 9
    for listing in registry.listings():
        columns = registry.load(listing.name).config().square_columns(schema)
        assert columns == (37 if listing.name in ("auto", "fedridge") else 0)


def test_a_share_over_few_rows_spans_them_and_a_class_of_one_is_its_row() -> None:
    """Why it is warned of: nothing but a silo's message and the public settings is used."""
    method = registry.load("fedridge")
    _, federation, _ = conformance.assemble(
        method, {"features": "mean", "hops": 0, "label_features": "never", "wire": "float64"}
    )
    client = federation.client(1)
    client.silo = client.silo.__class__(**{**vars(client.silo), "train": one_of_class_zero(client.silo)})
    classes = client.silo.schema.num_classes
    request = StatisticsRequest(
        kinds=["mean"], dim=2048, class_weights=torch.ones(1, classes).double(), size=1.0, blocks={}, constants={}
    )
    share = client.statistics(request)
    features = client.silo.graph.features[client.silo.train]
    features = np.asarray(features.todense()) if hasattr(features, "todense") else features
    rows = np.concatenate([features / np.linalg.norm(features, axis=1, keepdims=True), np.full((4, 1), 0.1)], axis=1)
    moments = unpack(share.moments["mean/0"] + share.moments_rest["mean/0"], rows.shape[1]).numpy()
    moments = np.triu(moments) + np.triu(moments, 1).T
    values, vectors = np.linalg.eigh(moments)
    span = vectors[:, values > 1e-5]
    assert span.shape[1] == 4 < len(moments)
    assert np.abs(rows - rows @ span @ span.T).max() < 1e-5  # every row lies in what was sent
    assert np.allclose(share.products["mean/0"][0].numpy(), rows[0], atol=1e-6)  # and this one was sent


def one_of_class_zero(silo: object) -> np.ndarray:
    labels = silo.graph.labels  # type: ignore[attr-defined]
    return np.concatenate([np.flatnonzero(labels == 0)[:1], np.flatnonzero(labels > 0)[:3]])
