from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from graphsilo.errors import ConfigError, DataError
from graphsilo.evaluate import metrics
from graphsilo.evaluate.counts import ConfusionPlan
from graphsilo.evaluate.groups import Groups
from graphsilo.evaluate.metrics import round_summaries, round_summary, score_clients, summarise, weighted_mean

EACH_ROUND = [name for name, metric in metrics.METRICS.items() if metric.each_round and not metric.of_rare]


def counted(labels, predicted, classes, groups=None) -> np.ndarray:
    """[4, C, C] of one client whose items are all scored."""
    labels, predicted = np.asarray(labels, dtype=np.int64), np.asarray(predicted, dtype=np.int64)
    plan = ConfusionPlan({"test": np.arange(len(labels))}, labels, classes, groups=groups)
    return plan.count(predicted)[0, 0]


def close(value, expected):
    return value == pytest.approx(expected, abs=1e-12)


def test_worked_by_hand():
    # labels 0 0 1, predicted 0 1 1; the first two are heterophilous
    groups = Groups(np.zeros(3, dtype=bool), np.array([True, True, False]))
    result = round_summary(counted([0, 0, 1], [0, 1, 1], 2, groups)[None], [3])
    assert close(result["accuracy"], 2 / 3)
    assert close(result["macro_f1"], 2 / 3)
    # class 0 only: 1 hit, 2 actual, 1 predicted; class 1 is predicted there but nobody's label
    assert close(result["hete_f1"], 2 / 3)
    assert result["min_f1"] is None
    assert result["hete_min_f1"] is None


def test_two_clients_weighted_by_hand():
    # Client 0 (10 nodes): accuracy 1, F1 1. Client 1 (30 nodes): labels 0 0 1 1, predicted 0 0 0 0: accuracy 1/2,
    # F1 of class 0 is 4/6, of class 1 is 0, macro 1/3. Minority: none at client 0, the two class-1 nodes at client 1.
    first = counted([0, 0], [0, 0], 2, Groups(np.zeros(2, dtype=bool), np.zeros(2, dtype=bool)))
    second = counted([0, 0, 1, 1], [0] * 4, 2, Groups(np.array([0, 0, 1, 1], dtype=bool), np.zeros(4, dtype=bool)))
    result = summarise(np.stack([first, second]), [10, 30], clients=[7, 9])
    assert close(result["accuracy"], (10 * 1 + 30 * 0.5) / 40)
    assert close(result["macro_f1"], (10 * 1 + 30 / 3) / 40)
    assert result["min_f1"] == 0.0  # client 0 is left out; client 1 really scores 0
    assert result["hete_f1"] is None
    assert close(result["pooled"]["accuracy"], 4 / 6)
    assert close(result["pooled"]["macro_f1"], (8 / 10 + 0) / 2)
    assert result["per_class_f1"] == [pytest.approx((10 * 1 + 30 * 4 / 6) / 40), 0.0]
    # At client 1 half of what is predicted as class 0 is right; class 1 is never predicted, so never found.
    assert result["per_class_precision"] == [pytest.approx((10 * 1 + 30 / 2) / 40), None]
    assert result["per_class_recall"] == [1.0, 0.0]
    assert result["worst_client"] == {"client": 9, "accuracy": 0.5}
    assert result["spread"] == {"std": 0.25, "min": 0.5, "max": 1.0}
    assert result["items"] == 6
    assert [row["client"] for row in score_clients(np.stack([first, second]), clients=[7, 9])] == [7, 9]
    assert json.loads(json.dumps(result)) == result


def test_macro_f1_of_classes_present_counts_a_foreign_prediction_as_a_miss_only():
    # labels 0 0 1 1, predicted 0 2 1 1, four classes. F1: class 0 2/3, class 1 1, class 2 (predicted alone) 0.
    # Present among the labels: (2/3 + 1) / 2 = 5/6; scikit-learn's union: (2/3 + 1 + 0) / 3 = 5/9.
    result = summarise(counted([0, 0, 1, 1], [0, 2, 1, 1], 4)[None], [4])
    assert close(result["macro_f1_present"], 5 / 6)
    assert close(result["macro_f1"], 5 / 9)


def test_a_client_without_test_nodes_is_left_out():
    full, empty = counted([0, 1], [0, 0], 2), counted([], [], 2)
    result = summarise(np.stack([empty, full]), [1000, 10])
    assert result["accuracy"] == 0.5
    assert result["worst_client"]["client"] == 1
    assert result["spread"]["std"] == 0.0
    rows = score_clients(np.stack([empty, full]))
    assert rows[0]["accuracy"] is None
    assert rows[0]["items"] == 0


def test_nobody_has_anything_to_score():
    result = summarise(np.zeros((2, 4, 3, 3), dtype=np.int64), [5, 5])
    assert result["accuracy"] is None
    assert result["per_class_f1"] == [None] * 3
    assert result["pooled"]["macro_f1"] is None
    assert result["worst_client"] == {"client": None, "accuracy": None}
    assert result["spread"] == {"std": None, "min": None, "max": None}
    json.dumps(result, allow_nan=False)
    assert set(round_summary(np.zeros((0, 4, 3, 3), dtype=np.int64), []).values()) == {None}


def test_one_class():
    result = summarise(counted([0, 0], [0, 0], 1)[None], [2])
    assert result["accuracy"] == result["macro_f1"] == result["balanced_accuracy"] == 1.0


def test_a_class_nobody_has_is_missing_and_not_zero():
    result = summarise(counted([0, 1], [0, 1], 3)[None], [2])
    assert result["per_class_f1"] == [1.0, 1.0, None]
    assert result["macro_f1"] == 1.0


def test_many_classes():
    classes = 200
    result = round_summary(counted(np.arange(classes), np.arange(classes), classes)[None], [classes])
    assert result["macro_f1"] == 1.0


def test_kinds_at_once_equal_kinds_alone():
    random = np.random.default_rng(0)
    counts, weights = random.integers(0, 3, (5, 3, 4, 4, 4)), random.integers(1, 50, 5)
    together = round_summaries(counts, weights, ("train", "val", "test"))
    assert list(together) == ["train", "val", "test"]
    for place, kind in enumerate(together):
        assert together[kind] == round_summary(counts[:, place], weights)
        full = summarise(counts[:, place], weights)
        assert {name: full[name] for name in EACH_ROUND} == pytest.approx(together[kind], abs=1e-14)


def test_weighted_mean_renormalises():
    assert weighted_mean([1.0, math.nan, 0.0], [1, 100, 3]) == 0.25
    assert np.isnan(weighted_mean([math.nan, 1.0], [1, 0]))
    assert weighted_mean([[1.0, 0.0], [0.0, math.nan]], [3, 1]).tolist() == [0.75, 0.0]


@pytest.mark.parametrize(
    ("shape", "weights", "said"),
    [
        ((2, 4, 3), [1, 1], r"shape \[clients, 4, classes, classes\]; got \(2, 4, 3\)"),
        ((2, 3, 3, 3), [1, 1], "shape"),
        ((2, 4, 3, 2), [1, 1], "shape"),
        ((2, 4, 3, 3), [1], "weights"),
        ((2, 4, 3, 3), [1, -1], "not negative"),
        ((2, 4, 3, 3), [1, math.nan], "not negative"),
    ],
)
def test_wrong_shapes_are_refused(shape, weights, said):
    with pytest.raises(DataError, match=said):
        summarise(np.zeros(shape, dtype=np.int64), weights)
    if len(shape) == 4:
        with pytest.raises(DataError, match=said):
            round_summary(np.zeros(shape, dtype=np.int64), weights)


def test_wrong_client_numbers_are_refused():
    with pytest.raises(DataError, match="client numbers"):
        summarise(np.zeros((2, 4, 3, 3), dtype=np.int64), [1, 1], clients=[0])


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 5))
def test_everything_equals_scikit_learn(seed, clients, classes):
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 25, clients)
    labels = [random.integers(0, classes, size) for size in sizes]
    predicted = [np.where(random.random(len(y)) < 0.5, y, random.integers(0, classes, len(y))) for y in labels]
    groups = [Groups(random.random(size) < 0.3, random.random(size) < 0.3) for size in sizes]
    counts = np.stack([counted(y, p, classes, group) for y, p, group in zip(labels, predicted, groups, strict=True)])
    weights = random.integers(1, 100, clients)
    masks = {
        "min_f1": [group.minority for group in groups],
        "hete_f1": [group.hete for group in groups],
        "hete_min_f1": [group.minority & group.hete for group in groups],
    }

    def check(row, y, p, inside):
        assert close(row["accuracy"], reference.accuracy_score(y, p))
        assert close(row["macro_f1"], reference.f1_score(y, p, average="macro"))
        assert close(row["weighted_f1"], reference.f1_score(y, p, average="weighted"))
        assert close(row["balanced_accuracy"], reference.balanced_accuracy_score(y, p))
        present = np.union1d(y, p)
        expected = reference.f1_score(y, p, average=None, labels=present)
        assert [row["per_class_f1"][c] for c in present] == pytest.approx(expected.tolist(), abs=1e-12)
        assert all(row["per_class_f1"][c] is None for c in range(classes) if c not in present)
        for name, score, among in (
            ("per_class_precision", reference.precision_score, np.unique(p)),
            ("per_class_recall", reference.recall_score, np.unique(y)),
        ):
            expected = score(y, p, average=None, labels=among)
            assert [row[name][c] for c in among] == pytest.approx(expected.tolist(), abs=1e-12)
            assert all(row[name][c] is None for c in range(classes) if c not in among)
        for name, mask in inside.items():
            if mask.any():
                own = np.unique(y[mask])
                expected = reference.f1_score(y[mask], p[mask], average="macro", labels=own, zero_division=0)
                assert close(row[name], expected)
            else:
                assert row[name] is None

    rows = score_clients(counts)
    for k in range(clients):
        check(rows[k], labels[k], predicted[k], {name: mask[k] for name, mask in masks.items()})
    result = summarise(counts, weights)
    check(
        result["pooled"],
        np.concatenate(labels),
        np.concatenate(predicted),
        {name: np.concatenate(mask) for name, mask in masks.items()},
    )
    for name in EACH_ROUND:
        known = [k for k in range(clients) if rows[k][name] is not None]
        if known:
            mean = sum(weights[k] * rows[k][name] for k in known) / sum(weights[k] for k in known)
            assert close(result[name], mean)
        else:
            assert result[name] is None
    accuracies = [row["accuracy"] for row in rows]
    assert result["worst_client"]["client"] == int(np.argmin(accuracies))
    assert close(result["spread"]["std"], np.std(accuracies))


def test_precision_and_recall():
    of = metrics.margins(counted([0, 0, 1], [0, 1, 1], 3).sum(axis=0))
    assert metrics.precision(of)[:2].tolist() == [1.0, 0.5]
    assert metrics.recall(of)[:2].tolist() == [0.5, 1.0]
    assert np.isnan(metrics.precision(of)[2])
    assert np.isnan(metrics.recall(of)[2])
    assert close(float(metrics.accuracy(of)), 2 / 3)
    # class 2 would count as 0 in a plain mean over all classes: 4/9
    assert close(float(metrics.macro_f1(of)), 2 / 3)
    assert close(float(metrics.group_f1(of)), 2 / 3)
    assert close(float(metrics.weighted_f1(of)), 2 / 3)
    assert close(float(metrics.balanced_accuracy(of)), 0.75)


def test_a_metric_is_computed_in_one_way():
    with pytest.raises(ConfigError, match="either `counts` or `ranking`"):
        metrics.Metric("none", "None", "nothing")
    with pytest.raises(ConfigError, match="each round records it"):
        metrics.Metric("late", "Late", "not in each round", metrics.accuracy, selects=True)
    with pytest.raises(ConfigError, match="have no counts"):
        metrics.Metric("links", "Links", "of links", metrics.accuracy, tasks=("link",))
    with pytest.raises(ConfigError, match="a metric 'accuracy' already"):
        metrics.register(metrics.METRICS["accuracy"])
    with pytest.raises(DataError, match="from counts"):
        metrics.METRICS["accuracy"].rank(np.array([0]), np.array([0.5]))


def test_order_and_what_stands_for_all():
    assert metrics.sort_metrics(["odd", "weighted_f1", "min_f1", "auc", "auc"]) == [
        "auc",
        "min_f1",
        "weighted_f1",
        "odd",
    ]
    assert metrics.find_leading(["ap", "auc"]) == "auc"
    assert metrics.find_leading(["auc", "accuracy"]) == "accuracy"
    assert metrics.find_leading(["odd"]) is None
    assert metrics.list_selecting("link") == ["auc", "ap"]
    assert metrics.list_selecting("node")[:2] == ["accuracy", "macro_f1"]
    assert [metric.name for metric in metrics.rankings("link")] == ["auc", "ap", "hits_at_10"]
    unknown = metrics.metric_of("train_loss")
    assert (unknown.title, unknown.is_share, unknown.higher_is_better) == ("Train loss", False, True)


def test_f1_of_the_rarer_of_two_classes_by_hand():
    # 90 items of class 0, 10 of class 1: 5 of these are found, and 15 of the others are taken for them: 10 / (10 + 20)
    counts = np.zeros((1, 4, 2, 2), dtype=np.int64)
    counts[0, 2] = [[75, 15], [5, 5]]  # all are of minority cells: Min-F1 sees the misses too
    assert close(round_summary(counts, [100], rare=1)["rare_f1"], 1 / 3)
    assert close(round_summary(counts, [100], rare=0)["rare_f1"], 2 * 75 / (90 + 80))
    full = summarise(counts, [100], rare=1)
    assert full["rare_f1"] == full["per_class_f1"][1]
    assert close(full["pooled"]["rare_f1"], 1 / 3)
    assert close(score_clients(counts, rare=1)[0]["rare_f1"], 1 / 3)
    assert "rare_f1" not in summarise(counts, [100])  # more than two classes, or nobody knows which is rare


def test_of_two_classes_the_rare_one_has_the_column_of_min_f1():
    assert metrics.select_main(["min_f1", "rare_f1", "accuracy"]) == ["accuracy", "rare_f1"]
    assert metrics.select_main(["min_f1", "accuracy"]) == ["accuracy", "min_f1"]
    found = ["accuracy", "hete_f1", "auc", "ap", "rare_f1", "recall_at_budget", "brier"]
    assert metrics.select_main(found, "ap") == ["ap", "recall_at_budget", "auc"]
    assert metrics.select_main(found, "auc") == metrics.select_main(found) == [
        "accuracy", "auc", "ap", "rare_f1", "hete_f1"
    ]  # fmt: skip
    assert metrics.select_main(["accuracy", "ap"], "ap") == ["accuracy", "ap"]  # more than two classes


def test_a_ranking_of_the_rare_class_is_given_it():
    labels, scores = np.array([0, 1, 1]), np.array([[0.5, 0.5], [0.6, 0.4], [0.1, 0.9]])
    ap, auc = metrics.METRICS["ap"], metrics.METRICS["auc"]
    assert ap.rank(labels, scores, 0).value == 0.5  # the one item of class 0 comes second
    assert close(ap.rank(labels, scores).value, (1 + 2 / 3) / 2)
    assert auc.rank(labels, scores, 0) == auc.rank(labels, scores)


def test_the_settings_offer_what_may_select():
    from graphsilo.experiments.config import EvaluationConfig

    for name in metrics.list_selecting():
        assert EvaluationConfig(select_by=name).select_by == name


@pytest.fixture
def worst_recall():
    """A made-up metric, and a made-up cost that is no share and better when lower: one entry each, nowhere else."""

    def worst(of):
        return np.nanmin(np.where(of.actual > 0, metrics.recall(of), np.nan), axis=-1, initial=1.0)

    metrics.register(metrics.Metric("worst_recall", "Worst recall", "least recall", worst, is_main=True))
    metrics.register(
        metrics.Metric(
            "misses", "Misses", "wrong answers", lambda of: (of.actual - of.hits).sum(axis=-1).astype(float),
            is_share=False, higher_is_better=False, each_round=True, selects=True, is_main=True,
        )
    )  # fmt: skip
    yield
    for name in ("worst_recall", "misses"):
        del metrics.METRICS[name]


@pytest.mark.usefixtures("worst_recall")
def test_a_new_metric_is_one_entry(tmp_path):
    """It is in the result, the table on the terminal, the page and the comparison, as what it is."""
    from graphsilo.cli.summary import sheet
    from graphsilo.experiments.runner import run
    from graphsilo.report import comparison, to_csv, to_markdown, write
    from kit import small_run

    results = {rounds: run(small_run(method__rounds=rounds), out=tmp_path / str(rounds)) for rounds in (1, 8)}
    tree = results[8].tree
    for seed in tree["seeds"]:
        each = [np.array([row["test"]["misses"], row["test"]["worst_recall"]]) for row in seed["clients"]]
        weights = np.array([row["nodes"] for row in seed["clients"]], dtype=float)
        found = (seed["test"]["misses"], seed["test"]["worst_recall"])
        assert found == pytest.approx(tuple(weights @ np.array(each) / weights.sum()))
        assert seed["test"]["pooled"]["misses"] == sum(row["test"]["misses"] for row in seed["clients"])
        assert all("misses" in row["validation"] and "worst_recall" not in row["test"] for row in seed["rounds"])

    shown = sheet(results[8].record)
    cells = dict(zip(shown.columns, shown.rows[0][1], strict=True))
    assert cells["Misses"] == f"{found[0]:.2f}"  # four digits of what is no share
    assert cells["Worst recall, %"] == f"{100 * found[1]:.1f}"

    page = write(tmp_path / "8").read_text(encoding="utf-8")
    assert "Worst recall" in page
    assert "Misses in percent" not in page

    table = comparison([tmp_path / "1", tmp_path / "8"])
    best = {name: min if name == "misses" else max for name in ("misses", "worst_recall")}
    for name, choose in best.items():
        means = [row.scores[name].mean for row in table.rows]
        assert [means[place] for place in table.best[name]][:1] == [choose(means)]
    assert f"{found[0]:.2f}" in to_markdown(table)
    assert "misses_mean" in to_csv(table)


def test_the_reported_round_is_the_best_in_the_direction_of_the_metric():
    """By accuracy round 2 is best, by a cost that is lower where more is wrong, round 1."""
    from graphsilo.experiments.evaluation import SetScores
    from graphsilo.experiments.progress import SeedProgress

    wrong = metrics.Metric(
        "accuracy", "Accuracy", "as if lower were better", metrics.accuracy, higher_is_better=False, each_round=True
    )
    rounds = [counted([0] * 4, [0] * right + [1] * (4 - right), 2) for right in (1, 3, 2)]
    for metric, best, value in ((metrics.METRICS["accuracy"], 2, 0.75), (wrong, 1, 0.25)):
        for alone in (False, True):
            progress = SeedProgress()
            for number, counts in enumerate(rounds, start=1):
                both = np.stack([counts, counts])[None]
                scores = {"own": {"seen": SetScores(("val", "test"), both, np.array([4]), clients=(0,))}}
                progress.note(number, scores, ("own_local",), metric, "run", alone=alone)
            assert progress.views["own_local"].best_round == best
            assert progress.best_score == (value, best)
