"""Own or common: which model stands for a seed, by validation."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.errors import GraphsiloError
from graphsilo.evaluate.metrics import METRICS
from graphsilo.experiments.config import load_config
from graphsilo.experiments.evaluation import SetScores
from graphsilo.experiments.observer import Observer
from graphsilo.experiments.progress import SeedProgress
from graphsilo.experiments.runner import run
from graphsilo.experiments.storage.records import reported_scores
from graphsilo.report.formats import describe_weights
from kit.doors import SMALL
from kit.runs import only
from kit.silos import write_bank

ACCURACY = METRICS["accuracy"]
MODES = ("own_local", "aggregate_local")


def right_of_ten(validation, test):
    """Scores of clients of ten validation and ten test items each, of two classes, so many of them right."""
    counts = np.zeros((len(validation), 2, 4, 2, 2), dtype=np.int64)
    for place, each in enumerate(zip(validation, test, strict=True)):
        for kind, right in enumerate(each):
            counts[place, kind, 0, 0] = [right, 10 - right]
    return {
        "seen": SetScores(("val", "test"), counts, np.array([10] * len(validation)), {}, tuple(range(len(validation))))
    }


def seed_of(own, common):
    progress = SeedProgress()
    progress.note(1, {"own": right_of_ten(*own), "aggregate": right_of_ten(*common)}, MODES, ACCURACY, "run")
    return progress


class Heard(Observer):
    def __init__(self):
        self.events = []

    def on_progress(self, progress):
        self.events.append(progress)
        assert progress.clients  # which are of the moment


def accuracy(reported):
    return reported.view.summary(reported.mode).test.numbers["accuracy"]


def test_the_mode_that_validation_prefers_whatever_the_test_says():
    # Validation: own 6 and 4 right (.5), common 7 and 7 (.7); on test own is better.
    progress = seed_of(([6, 4], [9, 9]), ([7, 7], [5, 3]))
    chosen = progress.choose_reported(MODES, ACCURACY, "run")
    assert (chosen.mode, accuracy(chosen)) == ("aggregate_local", pytest.approx(0.4))
    assert progress.choose_reported(MODES, ACCURACY, "own").mode == "own_local"
    assert progress.choose_reported(MODES, ACCURACY, "first").mode == "own_local"
    assert progress.choose_reported(MODES, ACCURACY, "common").mode == "aggregate_local"


def test_each_silo_by_its_own_validation():
    # Client 0 prefers its own (8 > 7), client 1 the common one (7 > 4): test 9 and 3 right, .6 on average.
    progress = seed_of(([8, 4], [9, 9]), ([7, 7], [5, 3]))
    chosen = progress.choose_reported(MODES, ACCURACY, "silo")
    assert chosen.mode == "silo_local"
    assert chosen.whose == {0: "own_local", 1: "aggregate_local"}
    assert accuracy(chosen) == pytest.approx(0.6)


def test_what_is_shown_of_a_round_and_ends_a_run_is_of_the_reported_mode():
    """Own is best in round 1, with 6 of 10 right, and the common model gets better from round to round."""
    progress = SeedProgress()
    for number, (own, common) in enumerate([(6, 5), (5, 7), (4, 8), (3, 8)], start=1):
        scores = {"own": right_of_ten([own], [own]), "aggregate": right_of_ten([common], [common])}
        progress.note(number, scores, MODES, ACCURACY, "run")
        assert reported_scores(progress.current)["validation"]["accuracy"] == max(own, common) / 10
        assert progress.current.get("reported") == (None if number == 1 else "aggregate_local")
    assert (progress.best_score, progress.since_best) == ((0.8, 3), 1)


def test_silos_that_choose_have_a_line_of_what_they_prefer_by_then():
    progress = SeedProgress()
    lines = []
    # Own 8 and 4, common 7 and 7: client 0 prefers its own. Then the common model is right of 9 and 6, by which it is
    # better on average (15 > 14) and at client 0 (9 > 8). Then of 5 and 5, which leaves the choice as it was.
    for number, (own, common) in enumerate([([8, 4], [7, 7]), ([2, 3], [9, 6]), ([8, 3], [5, 5])], start=1):
        scores = {"own": right_of_ten(own, own[::-1]), "aggregate": right_of_ten(common, common[::-1])}
        progress.note(number, scores, MODES, ACCURACY, "silo")
        assert progress.current["reported"] == "silo_local"
        lines.append([reported_scores(progress.current)[name]["accuracy"] for name in ("validation", "test")])
    assert lines == [[0.75, 0.55], [0.75, 0.75], [0.5, 0.5]]  # 8 + 7 and 4 + 7; 9 + 6 both times; 5 + 5
    assert (progress.best_score, progress.since_best) == ((0.75, 1), 2)


def test_of_equals_the_first():
    progress = seed_of(([5, 5], [1, 1]), ([5, 5], [9, 9]))
    assert progress.choose_reported(MODES, ACCURACY, "run").mode == "own_local"
    assert progress.choose_reported(MODES, ACCURACY, "silo").whose == {0: "own_local", 1: "own_local"}


def test_a_run_says_which(small, tmp_path):
    seed = only(run(small(method__rounds=4), out=tmp_path / "run"))
    validations = {mode: seed["modes"][mode]["validation"]["accuracy"] for mode in MODES}
    assert seed["reported"] == max(MODES, key=validations.__getitem__)
    assert seed["test"] == seed["modes"][seed["reported"]]["test"]
    assert seed["best_round"] == seed["modes"][seed["reported"]]["best_round"]
    heard = Heard()
    result = run(small(method__rounds=4, evaluation__model="silo"), observer=heard)
    (mixed,) = result.record.seeds
    assert mixed.mode == "silo_local"
    assert {row.mode for row in mixed.clients} <= set(MODES)
    for row, event in zip(mixed.rounds, heard.events, strict=True):
        line = mixed.curve(row, "validation")
        assert line == row.modes["silo_local"].validation == event.validation
        each = [(one.validation, part.weight) for one, part in zip(event.clients, mixed.clients, strict=True)]
        mean = sum(score * weight for score, weight in each) / sum(weight for _, weight in each)
        assert line["accuracy"] == pytest.approx(mean)
    assert mixed.curve(mixed.rounds[0], "test", "own_local") == mixed.rounds[0].test
    assert mixed.curve(mixed.rounds[0], "test", "own_global") == {}
    named = only(run(small(method__rounds=4, evaluation__modes=["own_local", "aggregate_local"])))
    assert named["reported"] == "own_local"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"method__name": "fedproto", "evaluation__model": "common"}, "FedProto has no common model"),
        ({"evaluation__model": "silo", "evaluation__report": "federation"}, "each silo's own scores"),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(small, settings, text):
    with pytest.raises(GraphsiloError, match=text):
        run(small(**settings))


def test_a_mean_over_silos_weighs_accounts_and_not_shops(tmp_path):
    """Six accounts with 40 shops, all ok, and twelve with one, most of them mules: 6 to 12, and not 46 to 13."""
    one = write_bank(tmp_path, "a", [(1.0 * k, "x", "ok", 1) for k in range(6)], 40)
    other = write_bank(tmp_path, "b", [(1.0 * k, "y", "mule" if k % 3 else "ok", 1) for k in range(12)], 1)
    config = load_config(
        {"data": {"name": [str(one), str(other)]}, "method": "majority", "partition": {"ratios": [0.4, 0.2, 0.4]}}
    )
    record = run(config).record
    (seed,) = record.seeds
    assert [row.weight for row in seed.clients] == [6, 12]
    first, second = (row.test.numbers["accuracy"] for row in seed.clients)
    assert first != second
    assert seed.test.numbers["accuracy"] == pytest.approx((6 * first + 12 * second) / 18)
    assert describe_weights(record) == "by their nodes of type account"
    plain = run(
        load_config({"data": SMALL, "partition": {"rule": "random", "clients": 2}, "method": "majority"})
    ).record
    assert describe_weights(plain) == "by their nodes"
    assert [row.weight for row in plain.seeds[0].clients] == [row.nodes for row in plain.seeds[0].clients]
