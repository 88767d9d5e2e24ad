"""Which changes of settings are tried, and what is said of a setting that does nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphsilo.federation.settings import setting
from graphsilo.methods import fedavg
from graphsilo.testing.conformance import ConformanceError, Trial, check_settings
from graphsilo.testing.settings import cases
from graphsilo.training.local import load_weights


class Config(fedavg.FedAvgConfig):
    """One setting of each type, none of which does anything."""

    strength: float = setting(0.8, "a share", gt=0, le=1)
    steps: int = setting(0, "a count", ge=0)
    clips: bool = setting(False, "a switch", when={"steps": "above 0"})
    limit: float | None = setting(None, "a number or nothing", ge=0)


class Deaf(fedavg.Client):
    """Loads weights itself, and with it forgets what the optimiser must forget."""

    def download(self, weights):
        load_weights(self.weights, weights)


REASON = Trial(reason="an example")


def method(*, trials=(), **changes):
    return replace(fedavg.METHOD, tasks=("node",), trials=dict(trials), **changes)


def test_what_is_tried_comes_from_the_type_and_its_bounds():
    trials = {"limit": Trial([2.0], {"steps": 1}), "lr": Trial(start=0.25)}
    found = cases(method(config=Config, trials=trials), {})
    tried = {case.field: (case.value, dict(case.settings)) for case in found if case.off is None}
    assert tried["strength"] == (0.4, {"lr": 0.25})  # twice 0.8 is out of bounds
    assert tried["steps"] == (1, {"lr": 0.25})
    assert tried["clips"] == (True, {"lr": 0.25})
    assert tried["limit"] == (2.0, {"lr": 0.25, "steps": 1})
    assert tried["momentum"] == (0.5, {"lr": 0.25, "optimizer": "sgd"})
    assert tried["reset_optimizer"] == (True, {"lr": 0.25, "momentum": 0.5})
    assert tried["lr"] == (0.5, {"lr": 0.25})
    assert "rounds" not in tried
    assert "min_clients" not in tried
    idle = {(case.field, case.off): case.settings for case in found if case.off is not None}
    assert idle["clips", "steps"] == {"lr": 0.25, "steps": 0}
    assert idle["momentum", "optimizer"] == {"lr": 0.25, "optimizer": "adam"}


def test_of_the_tasks_where_a_setting_is_idle_one_is_tried():
    class OfGraphs(fedavg.FedAvgConfig):
        pools: bool = setting(False, "a switch", when={"task": ("graph",)})

    found = cases(replace(method(config=OfGraphs), tasks=("node", "link", "graph")), {})
    tried = [(case.task, case.off, case.value) for case in found if case.field == "pools"]
    assert tried == [("graph", None, True), ("node", "task", True)]


def test_who_knows_no_other_value_is_asked_for_a_trial():
    with pytest.raises(ConformanceError, match="what else could setting 'limit' be than None"):
        cases(method(config=Config), {})
    with pytest.raises(ConformanceError, match="there is a trial of 'limits', which is no setting"):
        cases(method(config=Config, trials={"limits": REASON}), {})


def test_the_settings_of_fedavg_are_heard():
    check_settings(method(), {})


@pytest.mark.slow
def test_a_setting_that_does_nothing_is_found():
    some = {"limit": REASON, "clips": REASON, "steps": REASON}
    with pytest.raises(ConformanceError, match=r"setting 'strength' changed to 0\.4 changes nothing"):
        check_settings(method(config=Config, trials=some), {})
    check_settings(method(config=Config, trials={**some, "strength": REASON}), {})


@pytest.mark.slow
def test_a_download_that_forgets_an_inherited_setting_is_found():
    with pytest.raises(ConformanceError, match=r"setting 'reset_optimizer' changed to True changes nothing.*download"):
        check_settings(method(client=Deaf, server=_server(Deaf)), {})


@pytest.mark.slow
def test_a_setting_that_does_something_where_it_says_that_it_is_idle_is_found():
    class Idle(fedavg.FedAvgConfig):
        lr: float = setting(1e-2, "learning rate", gt=0, when={"optimizer": ("sgd",)})

    with pytest.raises(ConformanceError, match=r"'lr' changed to 0\.02 does something where its `when` says"):
        check_settings(method(config=Idle, trials={"lr": Trial([0.02], {"optimizer": "sgd"})}), {})


def _server(kind):
    class Server(fedavg.Server):
        client = kind

    return Server
