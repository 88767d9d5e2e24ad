"""The headline: what joining brought, how certain that is, and what to do where it is not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphsilo import report
from graphsilo.report.clients import gains
from graphsilo.report.finding import choice, finding, gains_of
from graphsilo.report.headline import headline
from graphsilo.report.record import Run, load
from kit import result_tree, round_tree, seed_tree
from kit.pages import Page

Scores = list[list[float]]
"""[seeds][clients]; the mean over clients is the seed's score."""


def write_beside(folder: Path, tree: dict[str, Any], alone: dict[str, Any]) -> None:
    """A run's folder with the row alone."""
    place = folder / "references" / "alone"
    place.mkdir(parents=True)
    tree["references"] = {"alone": {"accuracy": {"mean": 0.5, "std": None}}}
    alone["method"]["alone"] = True
    (folder / "result.json").write_text(json.dumps(tree))
    (place / "result.json").write_text(json.dumps(alone))


def tree_of(scores: Scores, metric: str = "accuracy", names: list[str] | None = None, **more: Any) -> dict[str, Any]:
    seeds = [
        seed_tree(
            number,
            {metric: sum(row) / len(row)},
            clients=[
                {"client": client, "test_items": 100, "train": 20, "test": {metric: value}}
                for client, value in enumerate(row)
            ],
        )
        for number, row in enumerate(scores)
    ]
    holders = [
        {
            "client": client,
            "nodes": 200,
            "train": 20,
            "val": 80,
            "test": 100,
            **({"silo": names[client]} if names else {}),
        }
        for client in range(len(scores[0]))
    ]
    partition = {"per_client": holders, "clients": len(holders)}
    return result_tree([{metric: 0.5}], **{"seeds": seeds, "partition": partition, **more})


def run_of(folder: Path, together: Scores, alone: Scores | None = None, row: str = "alone", **more: Any) -> Run:
    """A run's folder, with what every client reaches alone beside it."""
    tree = tree_of(together, **more)
    if alone is not None:
        metric = more.get("metric", "accuracy")
        own = tree_of(alone, metric=metric, names=more.get("names"))
        own["method"]["alone"] = row == "alone"
        tree["references"] = {row: {metric: {"mean": 0.5, "std": None}}}
        place = folder / "references" / row
        place.mkdir(parents=True)
        (place / "result.json").write_text(json.dumps(own))
    folder.mkdir(exist_ok=True)
    (folder / "result.json").write_text(json.dumps(tree))
    return load(folder)


def test_most_gain_and_the_rest_is_named(tmp_path: Path) -> None:
    """Differences of the means: +3, +4, +5 points. Mean 4, deviation 1, t(2, 97.5 %) = 4.3027: 4 ± 2.48."""
    together = [[0.80, 0.70, 0.61], [0.82, 0.71, 0.62], [0.84, 0.72, 0.63]]
    alone = [[0.70, 0.62, 0.70], [0.70, 0.62, 0.71], [0.70, 0.62, 0.72]]
    run = run_of(tmp_path / "r", together, alone, names=["north", "south", "west"])
    found = finding(run)
    assert found.sentence == (
        "Together, 2 of 3 silos do better than alone: +4.0 points of accuracy on average (95\u00a0% interval over "
        "three seeds: +1.5 to +6.5); 1 loses 9.0 points (west)."
    )
    assert found.certainty == "Three seeds are too few for an exact test; six are enough."
    assert [(gain.client, gain.side) for gain in found.gains] == [(0, "gains"), (1, "gains"), (2, "loses")]
    assert [gain.difference for gain in found.gains] == pytest.approx([0.12, 0.09, -0.09])
    assert found.gains[0].alone == pytest.approx(0.70)
    assert found.gains[0].together == pytest.approx(0.82)


@pytest.mark.parametrize(
    ("together", "alone", "words"),
    [
        ([[0.5, 0.6]], [[0.4, 0.5]], "both silos do better than alone: +10.0 points of accuracy on average"),
        (
            [[0.5, 0.6]], [[0.6, 0.8]],
            "no silo does better than alone: −15.0 points of accuracy on average (one seed); both lose, up to 20.0 "
            "points (client 1).",
        ),
        (
            [[0.5, 0.5, 0.9]], [[0.6, 0.52, 0.8]],
            "only 1 of 3 silos does better than alone: −0.7 points of accuracy on average (one seed); 2 lose, up to "
            "10.0 points (client 0).",
        ),
        ([[0.5, 0.5]], [[0.5, 0.5]], "no silo does better than alone: +0.0 points of accuracy on average (one seed)."),
        ([[0.7]], [[0.6]], "the silo does better than alone: +10.0 points"),
    ],
)  # fmt: skip
def test_who_gains_and_who_loses(tmp_path: Path, together: Scores, alone: Scores, words: str) -> None:
    found = finding(run_of(tmp_path / "r", together, alone))
    assert found.sentence.startswith(f"Together, {words}")
    assert found.certainty.startswith("One seed: nothing says how much of this is chance.")


def test_what_may_be_chance_is_said_to_be(tmp_path: Path) -> None:
    found = finding(run_of(tmp_path / "r", [[0.6], [0.5]], [[0.5], [0.52]]))
    assert found.certainty.startswith("The interval holds 0: this may be chance. Two seeds are too few")
    assert found.gains[0].may_be_chance
    # Seven seeds that all gain: of 128 patterns of signs two are as far out, p = 0.0156
    seven = [[0.6 + place / 1000] for place in range(7)]
    certain = finding(run_of(tmp_path / "certain", seven, [[0.5]] * 7))
    assert certain.certainty == "It is better by more than chance explains (sign-flip test, p = 0.016)."
    worse = finding(run_of(tmp_path / "worse", [[0.5]] * 7, seven))
    assert worse.certainty == "It is worse by more than chance explains (sign-flip test, p = 0.016)."
    mixed = finding(run_of(tmp_path / "mixed", seven, [[0.603]] * 7))
    assert mixed.certainty == "No difference is shown: this may be chance (sign-flip test, p = 1)."


def test_without_training_alone_it_says_what_to_run(tmp_path: Path) -> None:
    found = finding(run_of(tmp_path / "r", [[0.5, 0.7]]))
    assert found.sentence == (
        "Together, the silos reach 60.0 % accuracy on average, from 50.0 to 70.0. Whether that is more than alone is "
        "not known."
    )
    assert "--reference alone" in found.missing
    apart = run_of(tmp_path / "apart", [[0.5]], partition={"rule": "silos"})
    assert "usual between machines" in finding(apart).missing
    asked = {"run": {"references": ["local"]}}
    refused = run_of(tmp_path / "refused", [[0.5]], partition={"rule": "silos"}, config=asked)
    assert "the warnings say why" in finding(refused).missing
    lost = run_of(tmp_path / "lost", [[0.5]], [[0.4]])
    (lost.path / "references" / "alone" / "result.json").unlink()
    assert finding(load(lost.path)).missing.endswith("(references).")


def test_that_a_part_of_the_silos_is_scored_is_said(tmp_path: Path) -> None:
    half = {"config": {"evaluation": {"share": 0.5}}}

    def scored(folder: str, together: Scores, alone: Scores | None = None) -> Run:
        """Of as many silos again, nobody is scored."""
        run = run_of(tmp_path / folder, together, alone, **half)
        run.result.partition.clients *= 2
        return run

    found = finding(scored("unknown", [[0.5, 0.7]]))
    assert found.sentence.startswith("Together, the scored silos reach 60.0 % accuracy on average, from 50.0 to 70.0.")
    assert found.certainty == "2 of 4 silos were scored (evaluation.share=0.5)."
    found = finding(scored("gain", [[0.5, 0.7]], [[0.4, 0.6]]))
    assert found.sentence.startswith("Together, both scored silos do better than alone: +10.0 points")
    assert found.certainty.startswith("2 of 4 silos were scored (evaluation.share=0.5). One seed: ")
    run = scored("seeds", [[0.5, 0.7], [0.5, 0.7]])
    run.seeds[1].clients[1].client = 2
    assert finding(run).certainty.endswith("(evaluation.share=0.5), not the same in every seed.")
    for seed in run.seeds:
        seed.clients = []
    assert finding(run).certainty == "Not all of the 4 silos were scored (evaluation.share=0.5)."
    page = Page(report.write(tmp_path / "gain").read_text(encoding="utf-8")).words
    assert "scored: the clients' own models at some of the silos." in page
    kept = run_of(tmp_path / "kept", [[0.5, 0.7]])
    kept.seeds[0].clients[1].test.metrics.clear()  # its policy keeps its scores in
    assert finding(kept).certainty == "1 of 2 silos was scored (the warnings say why)."
    kept.seeds[0].clients[1].test_items = 0
    assert finding(kept).certainty == ""
    assert "Worst scored client, accuracy 50.0 %" in page
    assert "All silos'" not in page


def test_references_are_not_called_together(tmp_path: Path) -> None:
    local = {"name": "local", "title": "Local only"}
    assert finding(run_of(tmp_path / "l", [[0.5, 0.7]], method=local)).sentence == (
        "Every silo alone: 60.0 % accuracy on average, from 50.0 to 70.0."
    )
    pooled = {"name": "global", "title": "Centralised", "pooled": True}
    text = "With all data in one place Centralised reaches 60.0 % accuracy."
    assert finding(run_of(tmp_path / "g", [[0.6]], method=pooled)).sentence == text


def test_one_class_for_everything_is_a_caution(tmp_path: Path) -> None:
    run = run_of(tmp_path / "r", [[0.5, 0.6]] * 2, [[0.4, 0.5]] * 2, names=["north", "south"])
    run.seeds[0].one_class, run.seeds[1].one_class = [[0, 2], [1, 1]], [[1, 1]]
    assert finding(run).certainty.endswith("Caution: at south the model answers one class for everything.")
    run.seeds[1].one_class = [[0, 0], [1, 1]]
    assert finding(run).certainty.endswith("Caution: at every silo the model answers one class for everything.")


def test_a_ranking_needs_no_caution_and_dates_are_what_to_change(tmp_path: Path) -> None:
    run = run_of(tmp_path / "r", [[0.5, 0.6]], [[0.4, 0.5]], metric="ap")
    run.seeds[0].one_class = [[0, 0], [1, 0]]
    run.result.method.backbone = False
    run.result.config["evaluation"] = {"select_by": "ap"}
    assert run.main_metric == "ap"
    run.result.config["partition"] = {"split": "time"}
    assert finding(run).certainty == (
        "One cut and split: nothing says how much of this is chance. Run other dates (partition.train_until); seeds "
        "change little or nothing of a method that draws no weights."
    )
    run.result.config["partition"] = {"split": "auto"}
    assert "Run other cuts and splits (partition.seed); seeds change" in finding(run).certainty
    run.result.partition.rule = "silos"
    assert "Run other splits in every silo.yaml (split.seed, or its dates); seeds" in finding(run).certainty


def test_scores_that_nobody_sees_silo_by_silo(tmp_path: Path) -> None:
    run = run_of(tmp_path / "r", [[0.5, 0.7]], [[0.4, 0.6]])
    for record in (run.result, run.alone):
        assert record is not None
        record.seeds[0].clients = []
    assert finding(run).sentence == (
        "Together, the silos reach 60.0 % accuracy on average: +10.0 points of accuracy against alone. Scores of "
        "single silos are seen by nobody."
    )


def test_silos_stand_by_gain_under_their_names_and_as_text(tmp_path: Path) -> None:
    names = ["<script>alert(1)</script>", "south", "west"]
    run = run_of(tmp_path / "r", [[0.5, 0.9, 0.6]], [[0.6, 0.6, 0.6]], names=names)
    found = finding(run)
    context = gains(run, found)
    assert context is not None
    assert [(row["name"], row["sign"], row["gain"], row["way"]) for row in context["rows"]] == [
        ("south", "▲", "+30.0", "right"), ("west", "=", "0.0", "right"), (names[0], "▼", "−10.0", "left"),
    ]  # fmt: skip
    # The axis is 0.432 long: from 0.5 to 0.9, and 4 % of that beyond either end
    assert [(row["ring"], row["head"], row["from"], row["width"]) for row in context["rows"]] == [
        ("26.85", "96.30", "26.85", "69.44"), ("26.85", "26.85", "26.85", "0.00"), ("26.85", "3.70", "3.70", "23.15"),
    ]  # fmt: skip
    assert (context["axis"], context["unit"], context["intervals"]) == (("50.0", "90.0"), ", points", False)
    page = Page(report.write(run.path).read_text(encoding="utf-8"))
    assert page.open == []
    assert len(page.scripts) == 1
    assert "1 loses 10.0 points (<script>alert(1)</script>)" in page.words
    assert "▲ gains +30.0" in page.words  # the word for those who see no sign


def test_of_hundreds_of_silos_the_ends_are_shown(tmp_path: Path) -> None:
    many = [[0.5 + place / 1000 for place in range(100)]]
    run = run_of(tmp_path / "r", many, [[0.55] * 100])
    context = gains(run, finding(run))
    assert context is not None
    assert [row["later"] for row in context["rows"]] == [False] * 10 + [True] * 80 + [False] * 10
    assert len(gains_of(run)) == 100


def test_the_backbone_alone_is_not_called_the_method_alone(tmp_path: Path) -> None:
    run = run_of(tmp_path / "r", [[0.8, 0.7]], [[0.7, 0.6]], row="local")
    assert "Alone is here FedAvg, the backbone by itself" in finding(run).certainty
    assert "Alone is here" not in finding(run_of(tmp_path / "s", [[0.8, 0.7]], [[0.7, 0.6]])).certainty


def test_the_interval_counts_seeds_and_test_items(tmp_path: Path) -> None:
    """One silo, +4, +5, +6 points: over seeds 5 ± 2.48. Standard errors of .03 and .04 on its items make one of .05 of
    the difference, 9.8 points at 95 %: together √(2.48² + 9.8²) = 10.11."""
    trees = [tree_of([[value] for value in scores]) for scores in ([0.84, 0.85, 0.86], [0.80, 0.80, 0.80])]
    for tree, error in zip(trees, (0.03, 0.04), strict=True):
        for seed in tree["seeds"]:
            seed["clients"][0] |= {"errors": {"accuracy": error}, "nodes": 200}
    write_beside(tmp_path / "r", *trees)
    found = finding(load(tmp_path / "r"))
    (gain,) = found.gains
    assert gain.span == pytest.approx((0.05 - 0.1011, 0.05 + 0.1011), abs=2e-4)
    assert gain.may_be_chance
    context = gains(load(tmp_path / "r"), found)
    assert context is not None
    assert (context["intervals"], context["rows"][0]["interval"]) == (True, "−5.1 to +15.1")
    assert "(95\u00a0% interval over three seeds: +2.5 to +7.5)" in found.sentence
    assert "Other test items might move it by up to 9.8 points more (95 %)." in found.certainty


def test_dots_of_the_run_and_of_alone_share_an_axis(tmp_path: Path) -> None:
    """Seeds .6 and .8 are .7 ± .1414, alone is .5: from .5 to .8414, and 8 % of that, .0273, beyond either end."""
    shown = headline(run_of(tmp_path / "r", [[0.6], [0.8]], [[0.5], [0.5]]))["references"]
    assert shown["axis"] == ["47.3", "86.9"]
    assert [row["dot"] for row in shown["rows"]] == [
        {"at": "6.90", "from": "6.90", "width": "0.00"},
        {"at": "57.40", "from": "21.69", "width": "71.42"},
    ]


def test_the_headline_is_in_the_metric_that_chose(tmp_path: Path) -> None:
    scores = {"accuracy": 0.99, "macro_f1": 0.6}
    tree = result_tree([scores], config={"evaluation": {"select_by": "macro_f1"}})
    (tmp_path / "result.json").write_text(json.dumps(tree))
    assert load(tmp_path).main_metric == "macro_f1"
    assert "60.0 % Macro-F1" in finding(load(tmp_path)).sentence


def test_models_that_answer_alike_say_nothing_of_other_items(tmp_path: Path) -> None:
    """Three seeds with the same scores, and no item that the two models answer differently: no interval of +0.0."""
    trees = [tree_of([[0.9, 0.8], [0.9, 0.8], [0.9, 0.8]]) for _ in range(2)]
    for tree, error in zip(trees, (None, 0.0), strict=True):
        for seed in tree["seeds"]:
            for row in seed["clients"]:
                row |= {"nodes": 200, "rare_items": 3, **({} if error is None else {"paired": {"accuracy": error}})}
    write_beside(tmp_path / "r", *trees)
    found = finding(load(tmp_path / "r"))
    assert [(gain.span, gain.rare) for gain in found.gains] == [(None, 3)] * 2
    assert "(three seeds, all alike)" in found.sentence
    assert "Other test items" not in found.certainty


def test_it_says_how_many_single_gains_may_be_chance(tmp_path: Path) -> None:
    """Of two silos with gains of 9, 10, 11 and of -1, 1, 3 points the second interval holds 0."""
    trees = [tree_of([[0.69, 0.49], [0.70, 0.51], [0.71, 0.53]]), tree_of([[0.6, 0.5]] * 3)]
    write_beside(tmp_path / "r", *trees)
    assert "By itself, the difference at 1 of 2 silos may be chance." in finding(load(tmp_path / "r")).certainty


def chosen(
    tmp_path: Path, logs: list[list[dict[str, float]]], select_by: str = "accuracy", method: str = "auto"
) -> str:
    """Of a run with these logs: seed by seed, a round each; the last one is the best."""
    seeds = [
        seed_tree(number, best_round=len(rows), rounds=[round_tree(i + 1, log=log) for i, log in enumerate(rows)])
        for number, rows in enumerate(logs)
    ]
    tree = result_tree(method={"name": method}, seeds=seeds, config={"evaluation": {"select_by": select_by}})
    (tmp_path / "result.json").write_text(json.dumps(tree))
    return choice(load(tmp_path).result)


def test_what_validation_chose_is_said_with_what_it_says_of_each(tmp_path: Path) -> None:
    early, late = {"chosen": 0, "chosen_0": 0.84}, {"chosen": 2, "chosen_0": 0.84, "chosen_1": 0.7, "chosen_2": 0.86}
    each = "86.0 for the common forest, 84.0 for FedRidge's common model and 70.0 for FedRidge's own models"
    start = "At the reported round their accuracy was"
    end = "here a silo counts by its validation items, elsewhere by its nodes."
    assert chosen(tmp_path, [[early, late]]) == (
        f"Validation items of all silos chose the common forest. {start} {each}; {end}"
    )
    assert chosen(tmp_path, [[early, late], [late], [late, {**early, "chosen_0": 0.81}]]) == (
        "Validation items of all silos chose the common forest (2 of 3 seeds) and FedRidge's common model (1 of 3 "
        f"seeds). {start} {each.replace('84.0', '83.0')}; {end}"
    )
    assert chosen(tmp_path, [[{**late, "chosen_3": 0.69}, {**late, "chosen_4": 0.6}]]).endswith(
        f"{each}, no better for 2 others; {end}"
    )
    assert chosen(tmp_path, [[late, {"chosen": 2}]]).endswith(f"{each}; {end}")  # chosen a round before
    errors = [[{"chosen": 0, "chosen_0": 0.24, "chosen_1": 0.31}]]
    assert "their MAE (in standard deviations) was 0.240 for FedRidge's common model and 0.310 for" in chosen(
        tmp_path, errors, "mae"
    )
    assert chosen(tmp_path, [[early]], method="fedavg") == ""
    assert chosen(tmp_path, [[{}]]) == ""
