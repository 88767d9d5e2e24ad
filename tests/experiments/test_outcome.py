"""What is said of an outcome, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphsilo.data.silos.silo import Schema
from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.experiments.evaluation import SetScores
from graphsilo.experiments.outcome import find_untrained, label_warnings, lopsided_warnings, outcome_warnings
from graphsilo.experiments.participants import Participants, needs_ranking, selection_metric
from graphsilo.experiments.storage.records import Seed, record_of
from graphsilo.federation import registry
from kit import COSTS, round_tree, seed_tree


def tables(*clients: tuple[list[int], list[int]]) -> SetScores:
    """Of clients with so many training and test items of each class, every one predicted as class 0."""
    counts = np.zeros((len(clients), 2, 4, 3, 3), dtype=np.int64)
    for place, rows in enumerate(clients):
        for kind, items in enumerate(rows):
            counts[place, kind, place % 4, :, 0] = items
    return SetScores(("train", "test"), counts, np.ones(len(clients), np.int64), {}, tuple(range(len(clients))))


class Known(Participants):
    def keep(self, folder: Any) -> None: ...


class Here(Known):
    has_data = True


def silos(rows: list[dict[str, Any]], *classes: str, task: Any = "node", here: bool = False, **more: Any) -> Any:
    """Participants of whom these rows are known."""
    return (Here if here else Known)(
        clients=tuple(row["client"] for row in rows), task=task, models={}, rule="files", num_holders=len(rows),
        schema=Schema(task, 2, len(classes), class_names=classes), data={}, data_hash="", cut={"per_client": rows},
        cut_hash="", has_edge_weights=False, **more,
    )  # fmt: skip


def said(seeds: list[dict[str, Any]], *, has_data: bool = False) -> list[str]:
    rows = [{"client": 0, "silo": "north"}, {"client": 1, "silo": "south"}]
    participants = silos(rows, "home", "rehab", "again", here=has_data)
    method = registry.load("fedavg")
    return outcome_warnings(RunConfig(), [record_of(seed, Seed) for seed in seeds], method, participants)


def test_classes_that_nobody_trains_are_found_in_the_tables() -> None:
    found = find_untrained(tables(([5, 0, 0], [1, 2, 0]), ([4, 1, 0], [1, 0, 7])), 2)
    assert found == [[2, 7]]
    assert said([seed_tree(untrained=found)]) == [
        "no client trains the class 'again', and 7 items of it are asked for at test time: they cannot be found."
    ]
    assert said([seed_tree(untrained=found)], has_data=True) == []


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([[98, 2], [97, 3], [2, 98]], "at client 'west' class 'mule' is the common one, which is the rare one at most"),
        ([[98, 2], [97, 3], [100, 0]], "only one class occurs at client 'west': accuracy and Macro-F1 there are of"),
        ([[98, 2], [97, 3], [60, 40]], ""),
        ([[98, 2], [2, 98]], "the commonest class differs between silos: 'ok' at client 'north'; 'mule' at client "),
        ([[98, 2], [2, 98], [3, 97], [97, 3]], "the commonest class differs between silos: 'ok' at clients 'north', "),
        ([[98, 2], [2, 98], [60, 40], [50, 50]], ""),
        ([[98, 2]], ""),
    ],
)
def test_silos_whose_classes_are_not_those_of_others_are_named(labels: list[list[int]], words: str) -> None:
    names = ["north", "south", "west", "east"]
    rows = [{"client": place, "silo": names[place], "labels": row} for place, row in enumerate(labels)]
    found = label_warnings(silos(rows, "ok", "mule"))
    assert [text.startswith(words) for text in found] == [True] * bool(words)
    assert label_warnings(bank(1, 1)) == []  # between machines


def test_nothing_is_said_of_classes_where_a_client_sent_no_table() -> None:
    assert find_untrained(tables(([5, 0, 0], [1, 2, 0])), 2) == []
    assert find_untrained(SetScores(("test",), np.ones((1, 1, 4, 3, 3), dtype=np.int64)), 0) == []


@pytest.mark.parametrize(
    ("setup", "rounds", "when"),
    [
        (["train"], [[], []], "set-up"),
        ([], [["train", "evaluate"], []], "1 of 2 rounds"),
        (["open"], [["train"], ["train"]], "2 of 2 rounds and in set-up"),
    ],
)
def test_who_failed_is_told_once(setup: list[str], rounds: list[list[str]], when: str) -> None:
    def row(steps: list[str]) -> dict[str, Any]:
        failures = [f"client 1 failed in '{step}' (Gone: away)" for step in steps]
        return {**COSTS, **({"failures": failures} if steps else {})}

    first = next(step for steps in (setup, *rounds) for step in steps)
    assert said([seed_tree(setup=row(setup), rounds=[round_tree(1, **row(steps)) for steps in rounds])]) == [
        f"client 'south' failed in {when}, which went on without it; first in '{first}' (Gone: away)"
    ]


def test_who_refuses_has_not_failed():
    row = {**COSTS, "failures": ["client 1 failed in 'train' (DisclosureError: not this method)"]}
    (text,) = said([seed_tree(setup=dict(COSTS), rounds=[round_tree(1, **row), round_tree(2, **COSTS)])])
    assert text.startswith("client 'south' refused in 1 of 2 rounds, which went on without it; first in 'train'")


def test_who_keeps_its_scores_did_train():
    row = {**COSTS, "failures": ["client 1 failed in 'evaluate' (DisclosureError: too few items)"]}
    (text,) = said([seed_tree(setup=dict(COSTS), rounds=[round_tree(1, **row), round_tree(2, **row)])])
    assert text == (
        "client 'south' sent no scores in 2 of 2 rounds, and those of the run are of the others; first in 'evaluate' "
        "(DisclosureError: too few items)"
    )


def bank(*trained: int, task: Any = "node") -> Participants:
    """Two silos with so many training items of each class."""
    rows = [{"client": 0}, {"client": 1}]
    return silos(rows, *("ok", "mule", "other")[: len(trained)], task=task, trained=None if task == "link" else trained)


@pytest.mark.parametrize(
    ("trained", "said", "chosen", "rare"),
    [
        ((990, 10), None, "macro_f1", 1),
        ((10, 990), None, "macro_f1", 0),
        ((990, 10), "accuracy", "accuracy", 1),
        ((990, 10), "ap", "ap", 1),
        ((3997, 996), None, "accuracy", 1),  # 80.05 %: 80, and not more
        ((805, 195), None, "accuracy", 1),
        ((806, 194), None, "macro_f1", 1),
        ((5, 5), None, "accuracy", 1),
        ((810, 100, 90), None, "macro_f1", None),
        ((500, 400, 100), None, "accuracy", None),
    ],
)
def test_what_chooses_rounds_where_classes_are_uneven(
    trained: tuple[int, ...], said: str | None, chosen: str, rare: int | None
) -> None:
    config = load_config(overrides={"evaluation.select_by": said} if said else {})
    who = bank(*trained)
    assert (selection_metric(config.evaluation, who).name, who.rare) == (chosen, rare)
    assert needs_ranking(config.evaluation, who) == (who.is_lopsided or chosen == "ap")
    warned = lopsided_warnings(config, who)
    assert bool(warned) == who.is_lopsided
    if said == "ap":
        assert "rounds are chosen by Average precision, as evaluation.select_by says." in warned[0]
    if trained == (990, 10) and said is None:
        assert warned == [
            "99.0 % of the training items are of class 'ok', and whoever always answers that has as much accuracy: "
            "rounds are chosen by Macro-F1; evaluation.select_by=ap chooses by how well the rare class is ranked. "
            "Average precision of class 'mule' is measured beside it."
        ]


def test_links_go_on_being_chosen_by_auc() -> None:
    config = load_config()
    assert selection_metric(config.evaluation, bank(990, 10, task="link")).name == "auc"


def told(method: str, area: float | None, *trained: int, last: float | None = None, **settings: Any) -> list[str]:
    """What is said where both silos answer class 0 to everything, and rank with this AUC."""
    config = load_config(overrides={"method.name": method, **settings})
    scores = {"accuracy": 0.99, **({} if area is None else {"auc": area})}
    seed = seed_tree(scores=scores, one_class=[[0, 0], [1, 0]], test_last={**scores, "auc": last if last else area})
    return outcome_warnings(config, [record_of(seed, Seed)], registry.load(method), bank(*trained))


def test_one_answer_to_everything_is_explained_by_a_common_class() -> None:
    (text,) = told("fedridge", 0.815, 990, 10)
    assert "the class of 99.0 % of all training items" in text
    assert "AUC 81.5" in text
    assert "something was learned" in text
    assert text.endswith("Give rare classes more weight with method.balance=[0,0.5,1].")
    (text,) = told("focal", 0.815, 990, 10, **{"method.class_weights": "inverse"})
    assert "method.class_weights weighs rare classes already" in text
    (text,) = told("fedavg", 0.815, 990, 10, **{"evaluation.select_by": "accuracy"})
    assert "focal with method.class_weights=inverse" in text
    assert text.endswith("rounds chosen by them with evaluation.select_by=macro_f1.")


def test_nothing_is_claimed_of_a_ranking_that_was_not_measured() -> None:
    (text,) = told("fedavg", None, 500, 500)
    assert "nothing was learned" not in text
    assert "evaluation.auc=true" in text
    (text,) = told("fedavg", 0.51, 500, 500)
    assert "nothing was learned by then" in text
    assert text.endswith("Look at the units of the features (data.scale), the learning rate and the rounds.")
    (text,) = told("fedavg", 0.9, 500, 500)
    assert "something was learned" in text


def test_units_are_no_cause_where_labels_may_be_swapped() -> None:
    who = bank(500, 500)
    who.cut["per_client"] = [{"client": 0, "labels": [98, 2]}, {"client": 1, "labels": [2, 98]}]
    seed = record_of(seed_tree(scores={"auc": 0.51}, one_class=[[0, 0], [1, 0]]), Seed)
    (text,) = outcome_warnings(RunConfig(), [seed], registry.load("fedavg"), who)
    assert text.endswith("Look first at the labels, which may be swapped at some silos.")


def test_a_ranking_the_wrong_way_round_is_said_by_itself() -> None:
    (text,) = told("fedavg", 0.22, 990, 10, last=0.61)
    assert text.startswith("test items are ranked worse than by chance at the reported round: AUC 22.0")
    assert "in the last round 61.0" in text
    assert "too few rounds" in text
    assert "too few rounds" not in told("fedridge", 0.22, 990, 10)[0]


@pytest.mark.parametrize(
    ("scores", "items", "said"),
    [
        ([{"auc": 0.9}, {"auc": 0.1}], 100, "client 1 (AUC 10.0)"),
        ([{"accuracy": 0.9}, {"accuracy": 0.1}], 100, "client 1 (accuracy 10.0)"),
        ([{"accuracy": 0.1, "auc": 0.6}, {"auc": 0.9}], 100, None),  # rare items weighed, and ranked well
        ([{"auc": 0.9}, {"auc": 0.35}], 30, None),  # 0.5 - 3 / sqrt(90) = 0.18
        ([{"auc": 0.9}, {"auc": 0.35}], 400, "client 1 (AUC 35.0)"),
        ([{"auc": 0.1}, {"auc": 0.1}], 400, None),  # all of them: another warning's
    ],
)
def test_labels_that_are_swapped_at_a_silo(scores: list[dict[str, float]], items: int, said: str | None) -> None:
    clients = [{"client": place, "test_items": items, "test": test} for place, test in enumerate(scores)]
    seed = record_of(seed_tree(scores={"auc": 0.6}, clients=clients), Seed)
    config, method = load_config(overrides={"method.name": "fedavg"}), registry.load("fedavg")
    found = outcome_warnings(config, [seed], method, bank(500, 500))
    assert [f"not at the others: {said}, where guessing has 50" in text for text in found] == [True] * (
        said is not None
    )
    assert outcome_warnings(config, [seed], method, bank(500, 300, 200)) == []
