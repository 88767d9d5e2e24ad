"""FPL: the invariants of its specification, through the real machinery."""

from __future__ import annotations

import math

import pytest
import torch

from graphsilo.errors import ConfigError, FederationError
from graphsilo.methods.fpl import TrainRequest, cluster_prototypes
from graphsilo.testing.small import play
from graphsilo.training.objective import Step
from kit.messages import check_sent


def term_of(client, clusters, classes):
    """What a client adds to a step's loss with these clusters."""
    seen = []
    client.run_epochs = lambda term=None: seen.append(term)
    client.fit(TrainRequest(weights={}, clusters=torch.tensor(clusters), classes=torch.tensor(classes)))
    return seen[0]


def value(client, clusters, classes, rows, labels):
    rows, labels = torch.tensor(rows), torch.tensor(labels)
    step = Step(client.silo.train, labels, torch.zeros(len(rows), 2), rows, client.data.full, None)
    return float(term_of(client, clusters, classes)(step))


CASES = [
    # cosines √½ and 0 over 0.5: log(1 + e^(−√2))
    ({"temperature": 0.5}, [[1.0, 1.0], [0.0, 1.0]], [0, 1], 0.2176217),
    # the lengths of clusters do not matter
    ({"temperature": 0.5}, [[7.0, 7.0], [0.0, 0.1]], [0, 1], 0.2176217),
    # two clusters of the class: exponentials of both in the numerator, log(1 + 1 / (e^√2 + e^2))
    ({"temperature": 0.5}, [[1.0, 1.0], [0.0, 1.0], [3.0, 0.0]], [0, 1, 0], 0.0833657),
    # no other class; and none of the item's own
    ({"temperature": 0.02}, [[1.0, 1.0]], [0], 0.0),
    ({"temperature": 0.02}, [[1.0, 1.0]], [1], 0.0),
    # far in the wrong direction: (0 + 1) / 0.02, no infinity
    ({"temperature": 0.02}, [[-1.0, 0.0], [0.0, 1.0]], [0, 1], 50.0),
]


@pytest.mark.parametrize("length", [1.0, 9.0])
@pytest.mark.parametrize(("settings", "clusters", "classes", "expected"), CASES)
def test_the_contrast_by_hand(kit, settings, clusters, classes, expected, length):
    """Of an embedding in direction (1, 0), whatever its length."""
    _, federation = kit.build("fpl", [kit.tiny_silo(0)], pull=0.0, contrast=3.0, **settings)
    found = value(federation.client(0), clusters, classes, [[length, 0.0]], [0])
    assert found == pytest.approx(3 * expected, abs=1e-5)


@pytest.mark.parametrize(("reduction", "expected"), [("sum", 5.0), ("mean", 2.5)])
def test_the_pull_by_hand(kit, reduction, expected):
    """Clusters (2, 0) and (2, 4) have the mean (2, 2), which is 1 and 2 from (1, 0); an item without cluster adds 0."""
    _, federation = kit.build("fpl", [kit.tiny_silo(0)], pull=3.0, contrast=0.0, reduction=reduction)
    client, clusters = federation.client(0), [[2.0, 0.0], [2.0, 4.0]]
    assert value(client, clusters, [0, 0], [[1.0, 0.0]], [0]) == pytest.approx(3 * expected)
    assert value(client, clusters, [0, 0], [[1.0, 0.0], [7.0, 7.0]], [0, 1]) == pytest.approx(3 * expected / 2)


def test_clusters_by_hand():
    """Of class 0 four prototypes lie near (1, 0) and two near (0, 1): two clusters, which count one half each. The
    single one of class 2 stays."""
    near, far = [[1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [1.0, 0.2]], [[0.0, 1.0], [0.1, 1.0]]
    rows = torch.tensor([*near, [5.0, 3.0], *far])
    clusters, classes = cluster_prototypes(rows, torch.tensor([0, 0, 0, 0, 2, 0, 0]))
    torch.testing.assert_close(clusters, torch.tensor([[1.0, 0.05], [0.05, 1.0], [5.0, 3.0]]))
    assert classes.tolist() == [0, 0, 2]


def test_nobody_describes_anything():
    clusters, classes = cluster_prototypes(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64))
    assert (tuple(clusters.shape), tuple(classes.shape)) == ((0, 4), (0,))


def test_prototypes_are_of_the_round_and_of_its_clients(kit):
    """Mean embeddings after training, of those who took part; what others sent before is forgotten."""
    silos = [kit.tiny_silo(0, train=(0, 2)), kit.tiny_silo(1, train=(1, 3))]
    server, federation = kit.build("fpl", silos, participation=0.5)
    seen = set()
    for number in range(1, 9):
        federation.at("round", number)
        (asked,) = server.select(federation, number)
        server.round(federation, number)
        client = federation.client(asked)
        with torch.no_grad():
            rows = client.model.embed(client.data.full)[torch.from_numpy(client.silo.train)]
        torch.testing.assert_close(server.clusters, rows.mean(0, keepdim=True))
        assert server.classes.tolist() == [asked]
        seen.add(asked)
    assert seen == {0, 1}


def test_the_first_round_is_fedavgs(kit):
    found = []
    for name in ("fedavg", "fpl"):
        server, federation = kit.build(name, [kit.tiny_silo(client) for client in range(3)])
        play(server, federation, 1)
        found.append(server.weights)
    assert all(torch.equal(found[0][name], value) for name, value in found[1].items())


def test_only_whose_model_counted_is_asked_for_prototypes(kit):
    server, federation = kit.build("fpl", [kit.tiny_silo(client) for client in range(3)], min_clients=1)

    def fails(request):
        raise RuntimeError

    federation.client(1).fit = fails
    asked = []
    ask = type(federation).ask
    federation.ask = lambda handler, request, **more: (
        asked.append(more["to"]),
        ask(federation, handler, request, **more),
    )[1]
    play(server, federation, 1)
    assert asked == [(0, 2)]


def test_prototypes_of_another_width_are_refused(kit):
    server, federation = kit.build("fpl", [kit.tiny_silo(client) for client in range(2)])
    client = federation.client(1)
    client.__class__ = type("Liar", (type(client),), {"describe": type(client).describe})
    client.model.embed = lambda view: torch.ones(len(client.silo.train), 5)
    with pytest.raises(FederationError, match=r"client 1 must send prototypes of shape \(2, 4\); \(2, 5\) came"):
        play(server, federation, 1)


def test_a_model_without_hidden_layer_is_refused(kit):
    with pytest.raises(ConfigError, match=r"gcn as it is set has no hidden layer.*Set model\.layers to 2"):
        kit.build("fpl", [kit.tiny_silo(0)], model_options={"layers": 1})[1].client(0)


def test_bytes(kit):
    """FedAvg's, and up 4 C p + 8 C, down at most that for every second client: 2 classes, 4 wide, 4 clients."""
    silos = [kit.tiny_silo(client) for client in range(4)]
    plain = kit.build("fedavg", silos)[0].expected_bytes()
    up, down = kit.build("fpl", silos)[0].expected_bytes()
    assert (up - plain[0], down - plain[1]) == (400 * (32 + 16), 400 * 4 * (16 + 8))
    assert math.isfinite(down)


def test_what_leaves_a_silo():
    check_sent(
        "fpl",
        """
        train weights: model float32 weighted_by=num_samples
        train num_samples: counts
        describe sums: prototype float32 [classes, width] per_class=min_count
        describe counts: counts int64 [classes] per_class=min_count
        """,
    )
