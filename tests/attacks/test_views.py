"""What an attacker is handed contains what it may see and nothing else."""

from __future__ import annotations

import numpy as np
import torch

from graphsilo.attacks.views import Update, views
from graphsilo.federation.settings import LocalTrainingConfig
from kit.attacks import SGD, cases, recorded


def test_a_coordinator_sees_the_answers_of_its_target():
    for view, silo in cases(recorded()):
        assert {call.client for call in view.calls} == {silo.client}
        assert {spec.name for _, spec, _ in view.fields("model")} == {"weights"}
        assert all(update.own for update in view.updates)
        assert view.own is None
        assert view.predictions is None


def test_with_secure_sums_it_sees_sums():
    for view, _ in cases(recorded(run__secure_sums=True, evaluation__report="federation")):
        assert {call.client for call in view.calls} == {None}
        assert not any(update.own for update in view.updates)


def test_a_silo_sees_what_it_is_sent_and_its_own_data():
    run = recorded()
    for view, silo in cases(run, "silo"):
        assert view.own is not None
        assert view.own.client == (silo.client + 1) % 3
        assert {call.client for call in view.calls} == {view.own.client}
        assert not any(update.own for update in view.updates)
        assert len(view.updates) == 2
        # From one round's broadcast to the next is the mean over all silos, not anybody's answer.
        mine = [call.answer for call in view.calls if call.step == "train" and call.round == 1]
        name = next(iter(mine[0].weights))
        assert (view.updates[0].after[name] != mine[0].weights[name]).any()


def test_where_there_is_one_silo_no_other_sees_it():
    ((view, _),) = cases(recorded(partition__clients=1), "silo")
    assert (view.calls, view.updates, view.own, view.saved) == ((), [], None, None)


def test_of_a_secure_sum_a_silo_does_not_see_the_sum():
    for view, _ in cases(recorded(run__secure_sums=True, evaluation__report="federation"), "silo"):
        assert all(not call.answer.specs() for call in view.calls)


def test_a_reader_sees_the_model_alone():
    run = recorded()
    for view, silo in cases(run, "reader"):
        assert view.calls == ()
        assert view.updates == []
        assert view.own is None
        assert view.saved == run.models[silo.client]
        assert view.predictions.shape == (silo.num_items, 3)


def test_no_view_holds_the_target_s_silo():
    run = recorded()
    for attacker in ("coordinator", "silo", "reader"):
        for view in views(run, attacker, run.simulation.clients):
            held = [value for value in vars(view).values() if hasattr(value, "train")]
            assert all(value.client != view.target for value in held)


def test_where_there_is_no_common_model_a_reader_has_the_silo_s_own():
    run = recorded(method__name="local")
    for view, silo in cases(run, "reader"):
        assert view.saved[0] == "own"
        assert view.predictions.shape == (silo.num_items, 3)
    for view, _ in cases(run):
        assert view.saved is None


def test_the_gradient_behind_one_step():
    before = {"w": torch.tensor([1.0, -2.0])}
    gradient = torch.tensor([0.25, -0.003])
    config = LocalTrainingConfig(optimizer="sgd", lr=0.1, weight_decay=0.01, local_epochs=1)
    moved = {"w": before["w"] - 0.1 * (gradient + 0.01 * before["w"])}
    found = Update(before, moved, True, 1).gradient(config)["w"]
    assert np.allclose(found, gradient, atol=1e-6)
    # Adam's first step is lr · g / (|g| + 1e-8): of a gradient of 1e-7 it is 0.1 · 10 / 11.
    small = torch.tensor([1e-7, -3e-8], dtype=torch.float64)
    config = LocalTrainingConfig(optimizer="adam", lr=0.1, weight_decay=0.0, local_epochs=1)
    moved = {"w": before["w"].double() - 0.1 * small / (small.abs() + 1e-8)}
    found = Update(before, moved, True, 1).gradient(config)["w"]
    assert np.allclose(found, small, rtol=1e-4)
    # Of a later round nobody knows the moments: the change stands for the gradient.
    assert torch.equal(Update(before, moved, True, 2).gradient(config)["w"], before["w"].double() - moved["w"])


def test_updates_of_a_round_are_the_silo_s_own():
    view, _ = cases(recorded(**SGD))[0]
    call = next(call for call in view.calls if call.step == "train")
    assert torch.equal(view.updates[0].after["layers.0.bias"], call.answer.weights["layers.0.bias"])


def test_a_change_with_noise_is_an_update():
    noisy = {"method__name": "dp_fedavg", "method__noise": "silo", "method__max_noise": 1e9, "method__rounds": 1}
    quiet, _ = cases(recorded(method__epsilon=1e6, **noisy))[0]
    plain, _ = cases(recorded(method__name="dp_fedavg", method__rounds=1))[0]
    assert quiet.updates[0].own
    for name, tensor in plain.updates[0].after.items():
        # At ε = 10⁶ there is next to no noise: σ = 0.0007.
        assert torch.allclose(quiet.updates[0].after[name], tensor, atol=1e-2)
    loud, _ = cases(recorded(method__epsilon=1.0, **noisy))[0]
    assert not torch.allclose(
        loud.updates[0].after["layers.0.weight"], plain.updates[0].after["layers.0.weight"], atol=0.1
    )
