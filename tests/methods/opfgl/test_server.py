"""What the server of O-pFGL makes of the answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.federation.ledger import COLUMNS
from graphsilo.methods.opfgl.client import fit_surrogate
from graphsilo.testing import conformance
from graphsilo.training.condensation import ClassStatistics
from kit.opfgl import METHOD, SHORT, blocks, federation_of, own_weights, same, train


def test_one_upload_and_one_download():
    server, federation = federation_of(blocks(), links="edgeless")
    train(server, federation)
    told = [dict(zip(COLUMNS, row, strict=True)) for row in federation.ledger.rows()]
    data = [row for row in told if row["kind"] in ("statistic", "synthetic", "model", "embedding", "topology")]
    for client in federation.clients:
        mine = [row for row in data if row["client"] == client]
        assert {(row["phase"], row["direction"], row["message"], row["messages"]) for row in mine} == {
            ("setup", "up", "opfgl.Statistics", 1), ("round", "down", "opfgl.SurrogateRequest", 1)
        }  # fmt: skip
        assert {row["kind"] for row in mine} == {"statistic", "synthetic"}
    total = federation.ledger.total("setup"), federation.ledger.total("round")
    # 3 clients, 3 classes, 9 columns, three float64 sums: all else is headers and counts.
    assert 3 * 3 * 9 * 3 * 8 < total[0]["up"] < 3 * (3 * 9 * 3 * 8 + 600)
    assert total[1]["up"] < 3 * 100
    assert total[0]["down"] < 3 * 100
    assert server.rounds == 1


def test_the_server_needs_only_sums():
    for settings in (SHORT, {**SHORT, "condense_at": "clients"}):
        assert conformance.needs_only_sums(METHOD, settings)


def test_the_sum_of_clients_is_the_statistics_of_their_union():
    silos = blocks()
    server, federation = federation_of(silos, expand=False, hops=0, condense_at="clients", ddof="pooled")
    federation.at("setup", 0)
    server.set_up(federation)
    values = np.concatenate([silo.graph.features[silo.train] for silo in silos]).astype(np.float64)
    labels = np.concatenate([silo.labels[silo.train] for silo in silos])
    for number in range(3):
        rows = values[labels == number]
        assert server.download["mean"][number].numpy() == pytest.approx(rows.mean(axis=0), rel=1e-6)
        assert server.download["variance"][number].numpy() == pytest.approx(rows.var(axis=0, ddof=1), rel=1e-5)
        assert float(server.download["labelled"][number]) == (labels == number).sum()


@pytest.mark.parametrize("links", ["learned", "cosine"])
def test_surrogates_fitted_at_the_clients_are_the_servers(links):
    found = []
    for place in ("server", "clients"):
        server, federation = federation_of(blocks(), links=links, condense_at=place, nodes_per_class=2)
        train(server, federation)
        found.append(own_weights(federation))
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in federation.ledger.rows()]
        kinds = {(row["direction"], row["kind"]) for row in rows}
        assert (("down", "synthetic") in kinds) == (place == "server")
        assert (("down", "statistic") in kinds) == (place == "clients")
    assert same(*found)


def test_the_fit_depends_on_public_facts_alone():
    statistics = ClassStatistics(torch.tensor([4.0, 2.0]).double(), torch.ones(2, 6), torch.ones(2, 6))
    config = METHOD.config(**SHORT, hops=1)
    one = fit_surrogate(statistics, torch.tensor([4.0, 2.0]), config, 0, "cpu")[0]
    two = fit_surrogate(statistics, torch.tensor([4.0, 2.0]), config, 0, "cpu")[0]
    other = fit_surrogate(statistics, torch.tensor([4.0, 2.0]), config, 1, "cpu")[0]
    assert torch.equal(one.features, two.features)
    assert not torch.equal(one.features, other.features)
