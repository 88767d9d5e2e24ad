"""Spaces: what is drawn, what is refused."""

from __future__ import annotations

import pytest

from graphsilo.errors import ConfigError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.spaces import default_spaces
from graphsilo.experiments.tuning.space import spaces_of, trial_config

BASE = load_config({"data": {"name": "citation-sbm"}, "method": {"name": "fedavg", "rounds": 7}}).complete()


class Lowest:
    """Draws the first of everything."""

    def __init__(self):
        self.asked = []

    def suggest_categorical(self, name, choices):
        self.asked.append((name, list(choices)))
        return choices[0]

    def suggest_float(self, name, low, high, *, log=False):
        self.asked.append((name, low, high, log))
        return low + 0.123456789

    suggest_int = suggest_float


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({}, "the space is empty: there is nothing to try"),
        ({"fedprox": {}}, "the space of fedprox is empty"),
        ({"method.lr": []}, "the space has no values of method.lr"),
        ({"method.lr": [0.1, 0.1]}, "lists a value of method.lr twice"),
        ({"method.mue": [1]}, "unknown setting 'method.mue' for fedavg"),
        ({"method.mu": [1]}, r"What is for one method stands under its name: \{fedavg: \{\.\.\.\}\}"),
        ({"method.lr": [-1]}, "the space of fedavg, method.lr -1: method.lr must be above 0"),
        ({"method.momentum": [0.5]}, "method.momentum would have no effect: method.optimizer is 'adam'"),
        ({"method.fan_out": [[5, 3], [5, 3, 1]]}, r"method.fan_out \[5, 3, 1\]: method.fan_out is one number for all"),
        ({"test.accuracy": [0.5]}, "'test.accuracy' is a score"),
        ({"data.name": ["Cora"]}, "'data.name' cannot be drawn"),
        ({"data.scale_by": ["silo"]}, "'data.scale_by' cannot be drawn"),
        ({"data.scale": ["none", "huge"]}, "data.scale must be one of none, standard, robust, unit_rows"),
        ({"run.seeds": [[1], [2]]}, "'run.seeds' cannot be drawn"),
        ({"method.name": ["fedavg"]}, "'method.name' cannot be drawn"),
        ({"method.rounds": [5, 50]}, "'method.rounds' cannot be drawn: trials are held against each other"),
        ({"fedavg": {"method.rounds": {"low": 5, "high": 50}}}, "'method.rounds' cannot be drawn"),
        ({"lr": [0.1]}, "a space holds settings, such as method.lr"),
        ({"fedporx": {"method.mu": [1]}}, "did you mean 'fedprox'"),
        ({"fedprox": [1]}, "the space of fedprox is a table of settings"),
        ({"method.lr": {"low": 0.1}}, "a range of method.lr is"),
        ({"method.lr": {"low": 0.1, "hig": 1}}, "did you mean 'high'"),
        ({"method.lr": {"low": 1, "high": 0.1}}, "goes from low up to high"),
        ({"method.lr": {"low": 0, "high": 1, "log": True}}, "begins above 0"),
        ([1], "a space is a table of settings"),
    ],
)
def test_what_is_no_space_is_refused_in_words(said, text):
    with pytest.raises(ConfigError, match=text):
        spaces_of(said, ["fedavg", "fedprox"], BASE)


def test_the_scale_of_features_can_be_drawn():
    space = spaces_of({"data.scale": ["none", "unit_rows"]}, ["fedavg"], BASE)["fedavg"]
    scales = [trial_config(BASE, "fedavg", space.settings(each)).data.options["scale"] for each in space.points()]
    assert scales == ["none", "unit_rows"]


def test_what_is_said_for_all_and_for_one():
    found = spaces_of(
        {"method.lr": [0.01, 0.1], "fedprox": {"method.mu": {"low": 0.001, "high": 1.0, "log": True}}},
        ["fedavg", "fedprox"],
        BASE,
    )
    assert found["fedavg"].tree() == [{"method.lr": [0.01, 0.1]}]
    assert found["fedavg"].points() == [{"space": 0, "method.lr": 0.01}, {"space": 0, "method.lr": 0.1}]
    trial = Lowest()
    drawn = found["fedprox"].draw(trial)
    assert trial.asked == [("method.lr", [0.01, 0.1]), ("method.mu", 0.001, 1.0, True)]
    assert found["fedprox"].settings(drawn) == {"method.lr": 0.01, "method.mu": 0.1245}, "four digits"
    assert found["fedprox"].points() is None
    with pytest.raises(
        ConfigError, match="a table for fedprox, which is not tuned: the methods of the study are fedavg"
    ):
        spaces_of({"method.lr": [0.01], "fedprox": {"method.mu": [1]}}, ["fedavg"], BASE)


def test_of_several_tables_one_is_drawn_and_a_single_value_is_no_draw():
    (space,) = spaces_of(None, ["fedavg"], BASE).values()
    assert space.tree() == default_spaces("fedavg")
    trial = Lowest()
    drawn = space.draw(trial)
    assert trial.asked == [("space", [0, 1]), ("method.lr (0)", [0.001, 0.003, 0.01, 0.03])]
    assert space.settings(drawn) == {"method.optimizer": "adam", "method.lr": 0.001}
    assert space.to_sampler(drawn) == {"space": 0, "method.lr (0)": 0.001}
    settings = [space.settings(point) for point in space.points()]
    assert len(settings) == 8
    assert settings[-1] == {"method.optimizer": "sgd", "method.lr": 1.0}


def test_whole_numbers_of_a_range_are_points():
    (space,) = spaces_of({"method.local_epochs": {"low": 1, "high": 4}}, ["fedavg"], BASE).values()
    assert [point["method.local_epochs"] for point in space.points()] == [1, 2, 3, 4]
