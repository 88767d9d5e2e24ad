"""SCAFFOLD: the invariants of its specification, through the real machinery."""

from __future__ import annotations

import pytest
import torch

from graphsilo.data.silos.silo import Schema
from graphsilo.errors import MessageError
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.methods import fedavg, scaffold
from graphsilo.testing import conformance
from graphsilo.training.local import weights_of
from kit.messages import check_sent

TWO = [(1.0, 0.0), (3.0, 4.0)]
"""f_1 = (x - 0)²/2 and f_2 = 3/2 (x - 4)²; their sum is least at 3."""
UPDATES = ("option1", "option2", "mean_gradient")


def controls(kit, federation):
    return [kit.value_of(federation.client(client).control) for client in federation.clients]


@pytest.mark.parametrize("update", ["option2", "mean_gradient"])
def test_by_hand(kit, update):
    """Rate 0.1, two steps, from 1, as in the specification.

    Round 1, all controls 0: 1 -> 0.9 -> 0.81 and 1 -> 1.9 -> 2.53; c_1 = (1 - 0.81) / 0.2 = 0.95 = (1 + 0.9) / 2 and
    c_2 = (1 - 2.53) / 0.2 = -7.65 = (-9 - 6.3) / 2; w = 1.67, c = -3.35.
    Round 2: corrections -4.3 and 4.3, so 1.67 -> 1.67 - 0.1 (1.67 - 4.3) = 1.933 -> 2.1697, c_1 = (1.67 + 1.933) / 2;
    1.67 -> 1.67 - 0.1 (3 (1.67 - 4) + 4.3) = 1.939 -> 2.1273, c_2 = (-6.99 - 6.183) / 2; w = 2.1485, c = -2.3925.
    """
    server, federation = kit.quadratic("scaffold", TWO, control_update=update)
    assert kit.value_of(kit.rounds(server, federation)) == pytest.approx(1.67, abs=1e-6)
    assert controls(kit, federation) == pytest.approx([0.95, -7.65], abs=1e-5)
    assert kit.value_of(server.control) == pytest.approx(-3.35, abs=1e-5)
    kit.rounds(server, federation, start=2)
    own = [kit.value_of(weights_of(federation.client(client).model)) for client in (0, 1)]
    assert own == pytest.approx([2.1697, 2.1273], abs=1e-5)
    assert controls(kit, federation) == pytest.approx([1.8015, -6.5865], abs=1e-4)
    assert kit.value_of(server.weights) == pytest.approx(2.1485, abs=1e-5)
    assert kit.value_of(server.control) == pytest.approx(-2.3925, abs=1e-4)


def test_option_1_by_hand(kit):
    # The gradients at the download: 1 · (1 - 0) = 1 and 3 · (1 - 4) = -9.
    server, federation = kit.quadratic("scaffold", TWO, control_update="option1")
    assert kit.value_of(kit.rounds(server, federation)) == pytest.approx(1.67, abs=1e-6)
    assert controls(kit, federation) == pytest.approx([1.0, -9.0], abs=1e-5)
    assert kit.value_of(server.control) == pytest.approx(-4.0, abs=1e-5)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize(("epochs", "count"), [pytest.param(1, 60, marks=pytest.mark.slow), (10, 30)])
def test_it_ends_in_the_common_optimum_however_many_steps(kit, update, epochs, count):
    server, federation = kit.quadratic("scaffold", TWO, control_update=update, local_epochs=epochs)
    assert kit.value_of(kit.rounds(server, federation, count)) == pytest.approx(3.0, abs=1e-3)
    plain = kit.quadratic("fedavg", TWO, local_epochs=epochs, weight_by="uniform")
    drifted = kit.value_of(kit.rounds(*plain, count))
    assert abs(drifted - 3.0) < 1e-3 if epochs == 1 else drifted < 2.97


class WithoutControl(scaffold.Client):
    """A client whose control stays zero."""

    @property
    def control(self):
        return {name: torch.zeros_like(value) for name, value in self.model.named_parameters()}

    @control.setter
    def control(self, value):
        """Nothing is kept."""


def test_with_zero_controls_it_is_fedavg_bit_for_bit(kit):
    """In every round, where controls are held at zero; in the first, where they are anyway."""
    settings = {"optimizer": "sgd", "lr": 0.5, "weight_by": "uniform"}
    silos = [kit.tiny_silo(client) for client in range(3)]
    plain = kit.rounds(*kit.build("fedavg", silos, dropout=0.5, **settings), 3)
    server, federation = kit.build("scaffold", silos, dropout=0.5, **settings)
    for client in federation.clients:
        federation.client(client).__class__ = WithoutControl
    assert all(torch.equal(plain[name], value) for name, value in kit.rounds(server, federation, 3).items())
    corrected = kit.rounds(*kit.build("scaffold", silos, dropout=0.5, **settings), 3)
    assert not all(torch.equal(plain[name], value) for name, value in corrected.items())
    first, same = (kit.rounds(*kit.build(name, silos, dropout=0.5, **settings)) for name in ("fedavg", "scaffold"))
    assert all(torch.equal(first[name], value) for name, value in same.items())


@pytest.mark.parametrize("update", ["option2", "mean_gradient"])
def test_one_client_alone_is_fedavg(kit, update):
    """c = c_k, so that nothing is corrected."""
    settings = {"optimizer": "sgd", "lr": 0.1, "weight_by": "uniform", "weight_decay": 0.0}
    silos = [kit.tiny_silo(0)]
    plain = kit.rounds(*kit.build("fedavg", silos, **settings), 4)
    alone = kit.rounds(*kit.build("scaffold", silos, control_update=update, **settings), 4)
    for name, value in alone.items():
        torch.testing.assert_close(plain[name], value, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"participation": 0.5}, {"weight_by": "train"}], ids=str)
def test_c_is_the_mean_of_everybodys(kit, settings):
    """After every round, whoever took part; with the weights of the models' mean, if there are any."""
    sizes = (1, 2, 3, 4)
    problems = [*TWO, (2.0, 1.0), (1.0, 5.0)]
    server, federation = kit.quadratic("scaffold", problems, sizes=sizes, **settings)
    weights = sizes if settings.get("weight_by") == "train" else (1, 1, 1, 1)
    for number in range(1, 5):
        kit.rounds(server, federation, start=number)
        own = controls(kit, federation)
        mean = sum(weight * value for weight, value in zip(weights, own, strict=True)) / sum(weights)
        assert kit.value_of(server.control) == pytest.approx(mean, abs=1e-4)


def test_who_has_nothing_to_train_on_counts_in_neither_mean(kit):
    one, other = kit.quadratic("scaffold", [*TWO, (1.0, 0.0)], sizes=(1, 1, 0)), kit.quadratic("scaffold", TWO)
    assert kit.value_of(kit.rounds(*one, 3)) == kit.value_of(kit.rounds(*other, 3))
    assert kit.value_of(one[0].control) == kit.value_of(other[0].control)
    assert controls(kit, one[1])[2] == 0.0


def test_steps_are_counted_as_they_are(kit):
    """Mini-batches: three items in batches of 2 are two steps per epoch, K = 4."""
    server, federation = kit.build(
        "scaffold", [kit.tiny_silo(0), kit.tiny_silo(1)], lr=0.1, weight_decay=0.0, batch_size=2, local_epochs=2
    )
    start = {name: value.clone() for name, value in server.weights.items()}
    kit.rounds(server, federation)
    client = federation.client(0)
    for name, value in client.control.items():
        torch.testing.assert_close(value, (start[name] - client.weights[name].detach()) / 0.4)


def test_the_gradient_at_the_download_has_no_dropout(kit):
    """Option 1 gives the same control with and without dropout in the first round."""
    found = []
    for dropout in (0.0, 0.9):
        _, federation = pair = kit.build(
            "scaffold", [kit.tiny_silo(0)], control_update="option1", dropout=dropout, batch_size=1
        )
        kit.rounds(*pair)
        found.append(federation.client(0).control)
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name])


@pytest.mark.parametrize("settings", [{"weight_by": "train"}, {"server_lr": 0.5}, {"optimizer": "adam", "lr": 0.01}])
def test_first_round_of_a_real_run_is_fedavgs(settings):
    settings = {"optimizer": "sgd", "lr": 0.5, "weight_by": "uniform", "rounds": 1, **settings}

    def scores(name):
        tree = run(conformance.small_config(registry.load(name), settings)).tree["seeds"][0]
        return [[row["validation"], row["test"], row["modes"]] for row in tree["rounds"]]

    assert scores("scaffold") == scores("fedavg")


def test_controls_of_another_model_are_refused(kit):
    server, federation = kit.build("scaffold", [kit.tiny_silo(0)])
    wrong = dict(list(server.control.items())[1:])
    with pytest.raises(MessageError, match="is missing"):
        federation.client(0).train(scaffold.TrainRequest(weights=server.weights, control=wrong))


def test_buffers_travel_and_have_no_control(kit):
    server, federation = kit.build(
        "scaffold", [kit.tiny_silo(0), kit.tiny_silo(1)], model="gin", model_options={"norm": "batch"}
    )
    kit.rounds(server, federation, 2)
    assert set(server.weights) - set(server.control) == {name for name in server.weights if "running" in name}
    assert set(federation.client(0).control) == set(server.control)


def test_it_sends_twice_what_fedavg_sends(kit):
    plain, _ = kit.build("fedavg", [kit.tiny_silo(0)])
    server, _ = kit.build("scaffold", [kit.tiny_silo(0)])
    assert server.expected_bytes() == tuple(2 * each for each in plain.expected_bytes())
    assert issubclass(scaffold.Server, fedavg.Server)


@pytest.mark.parametrize(
    ("method", "settings", "said"),
    [
        ("scaffold", {"momentum": 0.9}, "with momentum it is not, and training may diverge"),
        ("scaffold", {"optimizer": "adam", "lr": 0.01}, "with Adam it is not"),
        ("scaffold", {"optimizer": "adam", "lr": 0.01, "control_update": "mean_gradient"}, ""),
        ("scaffold", {}, ""),
        ("feddc", {"momentum": 0.5, "correction": "none"}, "Use method.momentum=0"),
        ("feddc", {"optimizer": "adam", "lr": 0.01}, "which holds for plain SGD alone"),
        ("feddc", {"optimizer": "adam", "lr": 0.01, "correction": "own"}, ""),
        ("feddc", {}, ""),
    ],
)
def test_a_run_says_where_moves_are_taken_for_gradients(method, settings, said):
    config = registry.load(method).config(**settings)
    found = config.explain_no_effect(Schema("node", 3, 4), 100, 10, "gcn")
    assert said in found if said else found == ""


def test_what_leaves_a_silo():
    check_sent(
        "scaffold",
        """
        train weights: model float32 weighted_by=num_samples
        train num_samples: counts
        count weight: counts
        train control: gradient float32 weighted_by=num_samples
        """,
    )
