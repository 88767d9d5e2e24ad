"""FedDC: the invariants of its specification, through the real machinery."""

from __future__ import annotations

import pytest
import torch

from graphsilo.errors import MessageError
from graphsilo.methods import feddc
from graphsilo.training.local import weights_of
from kit.messages import check_sent

TWO = [(1.0, 0.0), (3.0, 4.0)]
"""f_1 = (x - 0)²/2 and f_2 = 3/2 (x - 4)²."""


def values(kit, federation, what):
    found = [what(federation.client(client)) for client in federation.clients]
    return [kit.value_of(value) for value in found if value]


def seen(kit, server, federation):
    """θ_k, h_k, c_k, w, c."""
    theta = values(kit, federation, lambda client: weights_of(client.model))
    drift, control = (values(kit, federation, lambda client, n=n: getattr(client, n)) for n in ("drift", "control"))
    return [*theta, *drift, *control, *(kit.value_of(each) for each in (server.weights, server.control) if each)]


ROUND_1 = [0.815, 2.485, -0.185, 1.485, 0.925, -7.425, 2.3, -3.25]
MOVED_2 = [2.6639875, 2.3301125, 0.1789875, 1.5151125]


@pytest.mark.parametrize(
    ("correction", "second"),
    [
        ("scaffold", [*MOVED_2, 2.3550625, -4.3255625, 3.3441, -0.98525]),
        ("paper", [*MOVED_2, -1.8199375, -0.1505625, 3.3441, -0.98525]),
        ("own", [2.0627375, 1.7938625, -0.4222625, 0.9788625, 1.1863125, 2.5306875, 2.2066]),
        ("none", [1.8916125, 3.0189875, -0.5933875, 2.2039875, 0.0, 0.0, 3.2606]),
    ],
)
def test_by_hand(kit, correction, second):
    """Rate 0.1, two steps, α = ½, from 1, as in the specification.

    Round 1, all zero: 1 -> 0.9 -> 0.9 - 0.1 (0.9 + ½ (0.9 - 1)) = 0.815 and 1 -> 1.9 -> 2.485; h_k = θ_k - 1,
    c_k = -h_k / 0.2; w = 1.65 + 0.65, c their mean.
    Round 2, client 1, from 2.3: gradients x + ½ (x - 2.3 - 0.185) and what corrects: c - c_1 = -4.175, or -c_1 =
    -0.925 alone, or nothing. c_1 = (2.3 - 2.6639875) / 0.2, or less c - c_1 the authors'.
    """
    server, federation = kit.quadratic("feddc", TWO, alpha=0.5, correction=correction)
    kit.rounds(server, federation)
    first = {"own": ROUND_1[:-1], "none": [*ROUND_1[:4], 0.0, 0.0, ROUND_1[6]]}.get(correction, ROUND_1)
    assert seen(kit, server, federation) == pytest.approx(first, abs=1e-5)
    kit.rounds(server, federation, start=2)
    assert seen(kit, server, federation) == pytest.approx(second, abs=1e-4)


@pytest.mark.parametrize(
    ("weighted", "expected"),
    [
        ("means", [0.815, 2.485, -0.185, 1.485, 0.925, -7.425, 3.135, -5.3375]),
        ("objectives", [0.82, 2.5, -0.18, 1.5, 0.9, -7.5, 2.32, -5.4]),
    ],
)
def test_weights_by_hand(kit, weighted, expected):
    """Clients of 1 and 3 items. In the means: w = (0.815 + 3 · 2.485) / 4 + (-0.185 + 3 · 1.485) / 4 and c likewise.

    In the objectives, of weight ½ and 3/2: α is 1 and 1/3, so that 0.9 -> 0.9 - 0.1 (0.9 - 0.1) and
    1.9 -> 1.9 - 0.1 (-6.3 + 0.3); the means of θ and h are plain, c = (½ · 0.9 - 3/2 · 7.5) / 2.
    """
    server, federation = kit.quadratic("feddc", TWO, alpha=0.5, sizes=(1, 3), weighted=weighted)
    kit.rounds(server, federation)
    assert seen(kit, server, federation) == pytest.approx(expected, abs=1e-5)
    kit.rounds(server, federation, start=2)
    if weighted == "objectives":  # from 2.32, α = 1 and c / r = -10.8: two steps of x + (x - 2.5) - 10.8 - 0.9
        assert seen(kit, server, federation)[0] == pytest.approx(2.32 + 0.956 + 0.7648, abs=1e-4)


@pytest.mark.parametrize("weighted", ["means", "objectives"])
def test_equal_sizes_are_no_weights(kit, weighted):
    pairs = [
        kit.quadratic("feddc", TWO, sizes=(5, 5), weighted=weighted),
        kit.quadratic("feddc", TWO, weight_by="uniform"),
    ]
    one, other = (kit.value_of(kit.rounds(*pair, 3)) for pair in pairs)
    assert one == pytest.approx(other, rel=1e-6)


def test_a_part_of_the_mean_change_by_hand(kit):
    """η_s = ½ scales the move to the mean of θ, and neither H nor c: w = 1 + ½ · 0.65 + 0.65, c = -3.25 as with 1.

    Round 2, from 1.975: client 1, x - 4.175 + ½ (x - 1.975 - 0.185): 2.20425 -> 2.3991125; client 2,
    3 (x - 4) + 4.175 + ½ (x - 1.975 + 1.485): 2.09075 -> 2.1659875. H = (0.2391125 + 1.6759875) / 2 = 0.95755 and
    w = 1.975 + ½ (2.28255 - 1.975) + 0.95755.
    """
    server, federation = kit.quadratic("feddc", TWO, alpha=0.5, correction="scaffold", server_lr=0.5)
    kit.rounds(server, federation)
    assert seen(kit, server, federation) == pytest.approx([*ROUND_1[:6], 1.975, -3.25], abs=1e-5)
    assert kit.value_of(server.drift) == pytest.approx(0.65, abs=1e-6)
    kit.rounds(server, federation, start=2)
    second = [2.3991125, 2.1659875, 0.2391125, 1.6759875, 2.0544375, -5.1299375, 3.086325, -1.53775]
    assert seen(kit, server, federation) == pytest.approx(second, abs=1e-4)
    assert kit.value_of(server.drift) == pytest.approx(0.95755, abs=1e-5)


class WithoutDrift(feddc.Server):
    """A server that adds no drift to the mean."""

    @property
    def drift(self):
        return {}

    @drift.setter
    def drift(self, value):
        """Nothing is kept."""

    def combine(self, total):
        feddc.scaffold.Server.combine(self, total)


@pytest.mark.parametrize(("name", "correction"), [("scaffold", "scaffold"), ("fedavg", "none")])
def test_without_pull_and_drift_it_is_scaffold_or_fedavg_bit_for_bit(kit, name, correction):
    settings = {"optimizer": "sgd", "lr": 0.5, "weight_by": "uniform", "dropout": 0.5, "batch_size": 2}
    silos = [kit.tiny_silo(client) for client in range(3)]
    plain = kit.rounds(*kit.build(name, silos, **settings), 4)
    server, federation = kit.build("feddc", silos, alpha=0.0, correction=correction, **settings)
    server.__class__ = WithoutDrift
    assert all(torch.equal(plain[key], value) for key, value in kit.rounds(server, federation, 4).items())


@pytest.mark.parametrize("batch_size", [0, 2])
def test_the_first_round_is_fedprox_s_and_the_mean_moves_twice_as_far(kit, batch_size):
    settings = {"optimizer": "sgd", "lr": 0.5, "dropout": 0.5, "batch_size": batch_size}
    silos = [kit.tiny_silo(client) for client in range(3)]
    server, federation = kit.build("feddc", silos, alpha=0.3, **settings)
    start = {name: value.clone() for name, value in server.weights.items()}
    pair = kit.build("fedprox", silos, mu=0.3, **settings)
    mean, weights = kit.rounds(*pair), kit.rounds(server, federation)
    for client in federation.clients:
        for name, value in federation.client(client).weights.items():
            torch.testing.assert_close(value, pair[1].client(client).weights[name], atol=1e-6, rtol=1e-5)
    for name, value in weights.items():
        torch.testing.assert_close(value - start[name], 2 * (mean[name] - start[name]), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    "settings", [{}, {"participation": 0.5}, {"participation": 0.5, "weighted": "objectives"}], ids=str
)
def test_drifts_are_sums_of_moves_and_the_server_has_their_means(kit, settings):
    """After every round, whoever took part; so is c the mean of all c_k."""
    sizes, problems = (1, 2, 3, 4), [*TWO, (2.0, 1.0), (1.0, 5.0)]
    server, federation = kit.quadratic("feddc", problems, sizes=sizes, alpha=0.5, correction="scaffold", **settings)
    drift = [0.0] * 4
    for number in range(1, 6):
        before = kit.value_of(server.weights)
        asked = server.select(federation, number)
        kit.rounds(server, federation, start=number)
        for client in asked:
            drift[client] += kit.value_of(weights_of(federation.client(client).model)) - before
        assert values(kit, federation, lambda client: client.drift) == pytest.approx(drift, abs=1e-5)
        controls = values(kit, federation, lambda client: client.control)
        shares = [1.0] * 4 if "weighted" in settings else sizes
        mean = sum(share * value for share, value in zip(shares, drift, strict=True)) / sum(shares)
        assert kit.value_of(server.drift) == pytest.approx(mean, abs=1e-5)
        mean = sum(size * value for size, value in zip(sizes, controls, strict=True)) / sum(sizes)
        assert kit.value_of(server.control) == pytest.approx(mean, abs=1e-4)


def test_it_ends_in_the_common_optimum(kit):
    """Where the drifts sum to what the clients' optima are apart: 3, of (x - 0)²/2 and 3/2 (x - 4)²."""
    server, federation = kit.quadratic("feddc", TWO, alpha=0.5, correction="scaffold")
    assert kit.value_of(kit.rounds(server, federation, 120)) == pytest.approx(3.0, abs=1e-3)


@pytest.mark.parametrize("weighted", ["means", "objectives"])
def test_who_has_nothing_to_train_on_counts_in_no_mean(kit, weighted):
    one = kit.quadratic("feddc", [*TWO, (1.0, 0.0)], sizes=(1, 3, 0), weighted=weighted)
    other = kit.quadratic("feddc", TWO, sizes=(1, 3), weighted=weighted)
    assert kit.value_of(kit.rounds(*one, 3)) == kit.value_of(kit.rounds(*other, 3))
    assert seen(kit, *one)[2] != 0.0
    assert kit.value_of(one[1].client(2).drift) == 0.0


@pytest.mark.parametrize("weighted", ["means", "objectives"])
def test_a_round_of_clients_with_nothing_to_train_on_moves_nothing(kit, weighted):
    """Round 2 asks client 2 alone: w, H and c stay what round 1 gave, and H is not added once more."""
    problems = [*TWO, (1.0, 0.0)]
    server, federation = kit.quadratic(
        "feddc", problems, sizes=(5, 5, 0), alpha=0.5, correction="scaffold", weighted=weighted
    )
    kit.rounds(server, federation)
    length = server.log["drift"]
    server.select = lambda federation, number: (2,)
    kit.rounds(server, federation, start=2)
    assert kit.value_of(server.weights) == pytest.approx(2.3, abs=1e-5)
    assert kit.value_of(server.drift) == pytest.approx(0.65, abs=1e-6)
    assert kit.value_of(server.control) == pytest.approx(-3.25, abs=1e-5)
    entries = sum(value.numel() for value in server.drift.values())
    assert server.log["drift"] == length == pytest.approx(0.65 * entries**0.5, rel=1e-5)


def test_controls_of_another_model_are_refused(kit):
    server, federation = kit.build("feddc", [kit.tiny_silo(0)])
    wrong = dict(list(server.control.items())[1:])
    with pytest.raises(MessageError, match="is missing"):
        federation.client(0).train(feddc.TrainRequest(weights=server.weights, control=wrong, mean_weight=3.0))


def test_buffers_travel_and_have_no_drift(kit):
    silos = [kit.tiny_silo(0), kit.tiny_silo(1)]
    server, federation = kit.build("feddc", silos, model="gin", model_options={"norm": "batch"})
    kit.rounds(server, federation, 2)
    assert set(server.weights) - set(server.drift) == {name for name in server.weights if "running" in name}
    assert set(federation.client(0).drift) == set(server.drift)


@pytest.mark.parametrize(("correction", "times"), [("paper", 2), ("scaffold", 2), ("own", 1), ("none", 1)])
def test_c_is_sent_where_there_is_one(kit, correction, times):
    plain, _ = kit.build("fedavg", [kit.tiny_silo(0)])
    server, federation = kit.build("feddc", [kit.tiny_silo(0)], correction=correction)
    assert server.expected_bytes() == tuple(times * each for each in plain.expected_bytes())
    kit.rounds(server, federation)
    assert server.log["drift"] == pytest.approx(
        float(torch.cat([value.flatten() for value in federation.client(0).drift.values()]).norm()), rel=1e-5
    )


def test_what_leaves_a_silo():
    check_sent(
        "feddc",
        """
        train weights: model float32 weighted_by=num_samples
        train num_samples: counts
        count weight: counts
        count clients: counts
        train control: gradient float32 weighted_by=num_samples
        """,
    )
