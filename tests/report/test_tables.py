"""Runs side by side."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from graphsilo.errors import ConfigError
from graphsilo.evaluate.metrics import METRICS, Metric, accuracy
from graphsilo.experiments.config import WITHOUT_EFFECT, RunSection
from graphsilo.report import Comparison, Grid
from graphsilo.report import comparison as any_comparison
from graphsilo.report.comparable import distinct_labels
from graphsilo.report.formats import spread
from graphsilo.report.record import load
from graphsilo.report.tables import Row, _differences, beside
from graphsilo.report.views import columns
from graphsilo.report.writers import to_csv, to_latex, to_markdown
from kit import result_tree


def run(root: Path, name: str, scores: list[float], *, metric: str = "accuracy", **more: Any) -> Path:
    """A run folder with one score per seed, and a fingerprint of its own."""
    folder = root / name
    folder.mkdir()
    titles = {"method": {"name": name, "title": name}, "fingerprint": name}
    content = result_tree([{metric: score} for score in scores], **titles | more)
    (folder / "result.json").write_text(json.dumps(content))
    return folder


def comparison(folders: list[Path], **asked: Any) -> Comparison:
    """Of runs that answer one question."""
    table = any_comparison(folders, **asked)
    assert isinstance(table, Comparison)
    return table


def reference(accuracy: float, std: float | None = None) -> dict[str, Any]:
    return {"accuracy": {"mean": accuracy, "std": std}}


def test_means_come_from_the_seeds_not_from_the_summary(tmp_path: Path) -> None:
    summary = {"test": reference(0.1, 0.1)}
    table = comparison([run(tmp_path, "a", [0.78, 0.80], summary=summary)])
    score = table.rows[0].scores["accuracy"]
    assert score is not None
    assert score.mean == pytest.approx(0.79)
    assert score.std == pytest.approx(0.0141421356)  # sqrt(2 * 0.01^2 / 1)


def test_nothing_is_best_by_a_metric_whose_direction_is_not_known(tmp_path: Path) -> None:
    """One's own, ``missed``, of which less is better: without its file the larger one was the best."""
    folders = [run(tmp_path, str(seed), [0.6 + seed / 10] * 7, metric="missed") for seed in range(2)]
    table = comparison(folders, metrics=["missed"])
    assert (table.best, table.against) == ({"missed": ()}, {})
    assert any(text.startswith("Missed: nothing is bold or marked") for text in table.legend)


def test_seven_seeds_show_a_difference_and_three_do_not(tmp_path: Path) -> None:
    good = [0.80, 0.81, 0.82, 0.80, 0.81, 0.82, 0.81]
    bad = [score - 0.05 - 0.001 * place for place, score in enumerate(good)]
    many = comparison([run(tmp_path, "good", good), run(tmp_path, "bad", bad)])
    # All seven differences have one sign: p = 2 / 2^7 = 0.015625
    difference = many.differences["accuracy"][1]
    assert difference is not None
    assert (difference.adjusted_p, difference.verdict) == (0.015625, "worse")
    assert many.mark("accuracy", 1) == "†"
    assert (many.best["accuracy"], many.differences["accuracy"][0]) == ((0,), None)
    few = comparison([run(tmp_path, "good3", good[:3]), run(tmp_path, "bad3", bad[:3])])
    assert few.mark("accuracy", 1) == ""
    assert any("Too few common seeds" in text for text in few.legend)


def test_the_best_of_several_is_tested_as_the_choice_that_it_is(tmp_path: Path) -> None:
    """Four runs, seven seeds, every difference of one sign: each p is 2 / 2^7 = 0.015625. Against a run chosen
    beforehand that makes three comparisons, 3 p = 0.047; against whichever is best, six pairs, 6 p = 0.094."""
    best = [0.80, 0.81, 0.82, 0.80, 0.81, 0.82, 0.81]
    folders = [run(tmp_path, f"r{worse}", [score - worse / 100 for score in best]) for worse in range(4)]
    chosen = comparison(folders, baseline="r0").differences["accuracy"]
    assert [None if one is None else (one.adjusted_p, one.verdict) for one in chosen] == [
        None, *[(pytest.approx(0.046875), "worse")] * 3
    ]  # fmt: skip
    open_ = comparison(folders)
    found = open_.differences["accuracy"]
    assert [None if one is None else one.verdict for one in found] == [None, *["too few seeds"] * 3]
    assert found[1] is not None
    assert found[1].adjusted_p == pytest.approx(0.09375)
    assert found[1].paired.difference == pytest.approx(-0.01)
    assert any("4 runs need 8 seeds (7 with a baseline chosen beforehand)" in text for text in open_.legend)
    three = comparison(folders[:3])
    assert [three.mark("accuracy", place) for place in range(3)] == ["", "†", "†"]  # 3 pairs, 3 p = 0.047
    assert any("over all 3 pairs of runs" in text for text in three.legend)


@pytest.mark.slow
def test_equal_runs_are_rarely_found_to_differ() -> None:
    """Five runs of one distribution, ten seeds, against the best: some mark in 8.3 % of tables when only the four
    comparisons with the best were corrected for. Corrected over all pairs it must stay below the level of 5 %."""
    draw = np.random.default_rng(0)
    marked = 0
    for _ in range(300):
        scores = draw.normal(0.8, 0.01, (5, 10)).tolist()
        rows = [
            Row(str(place), None, {"accuracy": spread(one)}, {"accuracy": dict(enumerate(one))}, {})
            for place, one in enumerate(scores)
        ]
        best = max(range(5), key=lambda place: sum(scores[place]))
        found = _differences(rows, "accuracy", best, is_fixed=False)
        marked += any(one is not None and bool(one.mark) for one in found)
    assert marked / 300 < 0.05


def test_against_a_chosen_baseline(tmp_path: Path) -> None:
    good = [0.80, 0.81, 0.82, 0.80, 0.81, 0.82, 0.81]
    folders = [run(tmp_path, "good", good), run(tmp_path, "base", [score - 0.05 for score in good])]
    table = comparison(folders, baseline="base")
    assert table.mark("accuracy", 0) == "‡"
    assert any("better than 'base'" in text for text in table.legend)
    with pytest.raises(ConfigError, match="did you mean 'base'"):
        comparison(folders, baseline="bass")


def test_a_lower_loss_is_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loss = Metric("loss", "Loss", "a cost", accuracy, is_share=False, higher_is_better=False)
    monkeypatch.setitem(METRICS, "loss", loss)
    for name, level in (("high", 0.9), ("low", 0.4)):
        run(tmp_path, name, [level + 0.001 * seed for seed in range(7)], metric="loss")
    table = comparison([tmp_path / "high", tmp_path / "low"])
    assert table.best == {"loss": (1,)}
    assert table.mark("loss", 0) == "†"


def test_what_makes_runs_incomparable_is_named(tmp_path: Path) -> None:
    one = run(
        tmp_path,
        "one",
        [0.8],
        method={"name": "one", "title": "one", "rounds": 100},
        data={"name": "Cora", "nodes": 2708},
        partition={"hash": "sha256:aaaa"},
        config={"scenario": {"name": "seen"}, "method": {"rounds": 100, "mu": 1, "lr": 0.01}, "run": {"workers": 1}},
    )
    two = run(
        tmp_path,
        "two",
        [0.8, 0.9],
        method={"name": "two", "title": "two", "rounds": 1},  # whatever its setting says
        data={"name": "CiteSeer", "nodes": 3327},
        partition={"hash": "sha256:bbbb"},
        config={"scenario": {"name": "unseen"}, "method": {"rounds": 100, "lr": 0.01}, "run": {"workers": 2}},
    )
    runs = [load(one), load(two)]
    table = beside(runs, distinct_labels(runs), columns(runs, None))
    assert (table.best, table.differences) == ({"accuracy": ()}, {})
    assert "Nothing is bold or marked: the runs are not comparable." in table.legend
    told = " ".join(table.warnings)
    for part in (
        "data differ (one: Cora, 2708 nodes, ",
        "two: CiteSeer, 3327 nodes, ",
        "hash aaaa",
        "seeds differ",
        "seen",
    ):
        assert part in told
    assert table.notes == ("method.rounds differs (one: 100; two: 1).",)
    assert r"method.rounds differs (one: 100; two: 1)." in to_markdown(table)
    assert r"\par\smallskip\footnotesize method.rounds differs (one: 100; two: 1). Warning: The " in to_latex(table)
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert [row["remarks"].startswith("method.rounds differs (one: 100; two: 1). Warning: ") for row in rows] == [
        True
    ] * 2


def test_scaling_that_differs_is_named(tmp_path: Path) -> None:
    scalings = {"one": {"scale": "none"}, "two": {"scale": "standard"}}
    runs = [load(run(tmp_path, name, [0.8], config={"data": scale})) for name, scale in scalings.items()]
    table = beside(runs, ["one", "two"], columns(runs, None))
    assert table.notes == ("data.scale differs (one: none; two: standard).",)


def test_backbones_are_compared_where_there_are_some(tmp_path: Path) -> None:
    def notes(**has: bool) -> tuple[str, ...]:
        runs = [
            load(run(tmp_path, f"{len(list(tmp_path.iterdir()))}", [0.8], config={"model": {"name": name}},
                     method={"backbone": there}))
            for name, there in has.items()
        ]  # fmt: skip
        return beside(runs, list(has), columns(runs, None)).notes

    assert notes(gcn=False, sage=False) == notes(gcn=True, sage=False) == ()
    assert notes(gcn=True, gat=True, sage=False) == ("model.name differs (gcn: gcn; gat: gat).",)
    # What only one of the backbones has is no difference beside that of their names
    both = [
        load(run(tmp_path, name, [0.8], config={"model": {"name": name, "hidden": 64, **more}}))
        for name, more in (("gin", {}), ("gamlp", {"hops": 3}))
    ]
    assert beside(both, ["one", "two"], columns(both, None)).notes == ("model.name differs (one: gin; two: gamlp).",)


def test_settings_of_the_run_that_change_numbers_are_named(tmp_path: Path) -> None:
    base = {"compression": "none", "top_share": 0.01, "secure_sums": False, "early_stopping": None, "workers": 1}

    def table(**changed: dict[str, Any]) -> Comparison:
        same: dict[str, Any] = {"method": {"name": "fedavg", "title": "FedAvg"}}
        return comparison(
            [
                run(tmp_path, f"{len(list(tmp_path.iterdir()))}{name}", [0.8], config={"run": base | more}, **same)
                for name, more in {"base": {}, **changed}.items()
            ]
        )

    found = table(other={"compression": "int8", "workers": 2, "checkpoint_every": 5})
    assert [row.label for row in found.rows] == ["FedAvg (compression none)", "FedAvg (compression int8)"]
    assert found.notes[0] == (
        "run.compression differs (FedAvg (compression none): none; FedAvg (compression int8): int8)."
    )
    found = table(other={"secure_sums": True})
    assert found.rows[1].label == "FedAvg (secure_sums true)"
    assert found.notes[0].startswith("run.secure_sums differs ")
    found = table(other={"early_stopping": 5})
    assert found.rows[0].label == "FedAvg (early_stopping none)"
    assert found.notes[0].startswith("run.early_stopping differs ")
    assert [row.label for row in table(other={"compression": "topk"}).rows][1] == "FedAvg (compression topk)"
    found = table(few={"compression": "topk"}, many={"compression": "topk", "top_share": 0.1})
    assert [row.label for row in found.rows] == [
        "FedAvg (compression none)", "FedAvg (compression topk, top_share 0.01)",
        "FedAvg (compression topk, top_share 0.1)",
    ]  # fmt: skip
    assert [note.split(" ")[0] for note in found.notes if "differs" in note] == ["run.compression", "run.top_share"]
    assert not any("differs" in note for note in table(unused={"top_share": 0.1}).notes)


def test_every_setting_of_the_run_that_changes_numbers_is_compared(tmp_path: Path) -> None:
    names = RunSection.model_fields.keys() - WITHOUT_EFFECT - {"seeds", "without", "top_share"}
    runs = [
        load(run(tmp_path, value, [0.8], config={"run": dict.fromkeys(names, value)})) for value in ("one", "other")
    ]
    notes = beside(runs, ["one", "other"], columns(runs, None)).notes
    assert {note.split(" ")[0] for note in notes} == {f"run.{name}" for name in names}


def test_whose_model_is_scored_differs_only_where_the_table_names_none(tmp_path: Path, sample: ModuleType) -> None:
    runs = [load(sample.make_run(tmp_path / name, seeds=2, rounds=3)) for name in ("one", "two")]
    for seed in runs[0].seeds:
        seed.reported = "aggregate_local"
    said = "Whose model is scored differs (one: common model (aggregate); two: clients' own models)."
    assert said in beside(runs, ["one", "two"], columns(runs, None)).notes
    asked = beside(runs, ["one", "two"], columns(runs, None, "aggregate"))
    assert not any(note.startswith("Whose model") for note in asked.notes)


def test_sampling_of_neighbours_is_part_of_the_schedule(tmp_path: Path) -> None:
    settings = {"one": {"fan_out": 0}, "two": {"fan_out": 5}}
    runs = [load(run(tmp_path, name, [0.8], config={"method": own})) for name, own in settings.items()]
    table = beside(runs, ["one", "two"], columns(runs, None))
    assert table.notes == ("method.fan_out differs (one: 0; two: 5).",)


def test_runs_of_the_same_question_are_comparable(runs: dict[str, Path]) -> None:
    table = comparison(list(runs.values()))
    assert table.warnings == ()
    assert [row.label for row in table.rows] == ["FedAvg", "FedProx", "Local"]
    assert [row.label for row in table.references] == ["Local only", "Centralised (cut)", "Centralised"]
    assert table.legend[-2].startswith("Local only: every silo trains the backbone by itself; Centralised (cut): ")
    assert table.mark("accuracy", 2) == "†"


def test_same_method_twice_is_told_apart_by_its_settings(tmp_path: Path) -> None:
    titles = {"method": {"name": "fedprox", "title": "FedProx"}}
    folders = [
        run(tmp_path, f"run{mu}", [0.8], **titles | {"config": {"method": {"name": "fedprox", "mu": mu}}})
        for mu in (0.1, 0.01)
    ]
    assert [row.label for row in comparison(folders).rows] == ["FedProx (mu 0.1)", "FedProx (mu 0.01)"]
    again = shutil.copytree(folders[0], tmp_path / "again" / "run0.1")
    table = comparison([folders[0], again])
    assert [row.label for row in table.rows] == ["FedProx (run0.1) [1]", "FedProx (run0.1) [2]"]
    with pytest.raises(
        ConfigError, match=r"2 of the compared runs are called 'run0\.1'. Give the label of one: 'FedProx"
    ):
        comparison([folders[0], again], baseline="run0.1")
    with pytest.raises(ConfigError, match=r"run0\.1 is named twice, and a run is not compared with itself"):
        comparison([folders[0], tmp_path / "again" / ".." / "run0.1"])


def test_a_run_and_a_reference_of_one_name_are_told_apart(tmp_path: Path) -> None:
    titles = {"method": {"name": "fedridge", "title": "FedRidge"}}
    rows = {"fedridge": reference(0.7), "local": reference(0.6)}
    table = comparison([run(tmp_path, "a", [0.8], references=rows), run(tmp_path, "b", [0.9], **titles)])
    assert [row.label for row in table.rows] == ["a", "FedRidge"]
    assert [row.label for row in table.references] == ["Local only", "FedRidge (reference)"]
    assert "FedRidge: " in table.legend[-2]


def scored(root: Path, name: str, seeds: list[dict[int, float]], share: float = 1.0, **more: Any) -> Path:
    """A run whose clients 0, 1 and 2 of 10, 20 and 30 nodes have these accuracies, seed by seed; or none."""
    means = [sum(10 * (who + 1) * a for who, a in of.items()) / sum(10 * (who + 1) for who in of) for of in seeds]
    folder = run(root, name, means, config={"evaluation": {"share": share}}, **more)
    tree = json.loads((folder / "result.json").read_text())
    for seed, of in zip(tree["seeds"], seeds, strict=True):
        seed["clients"] = [
            {
                "client": who,
                "nodes": 10 * (who + 1),
                "test_items": 5,
                "test": {"accuracy": of[who]} if who in of else {},
            }
            for who in range(3)
        ]
    (folder / "result.json").write_text(json.dumps(tree))
    return folder


def test_runs_scored_on_different_clients_are_compared_over_those_that_all_have(tmp_path: Path) -> None:
    every = scored(tmp_path, "every", [{0: 0.2, 1: 0.5, 2: 0.8}, {0: 0.3, 1: 0.6, 2: 0.9}])
    some = scored(tmp_path, "some", [{0: 0.2, 1: 0.5}, {1: 0.6, 2: 0.9}], share=0.7)
    table = comparison([every, some])
    expected = {0: (10 * 0.2 + 20 * 0.5) / 30, 1: (20 * 0.6 + 30 * 0.9) / 50}
    assert [row.by_seed["accuracy"] for row in table.rows] == [pytest.approx(expected)] * 2
    assert (table.is_comparable, table.warnings) == (True, ())
    assert table.notes == (
        "Who is scored differs (every: all clients; some: all clients, evaluation.share 0.7): scores are node-weighted "
        "means over the 2 clients that all runs have, others in each seed.",
    )
    # Two runs that drew the same clients are compared as they are, whether those differ from seed to seed or not.
    same = comparison([some, scored(tmp_path, "same", [{0: 0.1, 1: 0.4}, {1: 0.5, 2: 0.8}], share=0.7)])
    assert (same.is_comparable, same.notes) == (True, ())


@pytest.mark.parametrize(("own", "share"), [([{2: 0.8}], 0.4), ([{}], 0.4)], ids=["no common client", "sums alone"])
def test_runs_scored_on_other_clients_are_not_comparable(tmp_path: Path, own: list[Any], share: float) -> None:
    other = scored(tmp_path, "other", own, share) if own[0] else run(
        tmp_path, "other", [0.8], config={"evaluation": {"share": share}}
    )  # fmt: skip
    table = comparison([scored(tmp_path, "every", [{0: 0.2, 1: 0.5}], 0.7), other])
    assert (table.is_comparable, table.best, table.differences) == (False, {"accuracy": ()}, {})
    assert table.warnings == (
        "The runs are not comparable: who is scored differs (every: all clients, evaluation.share 0.7; other: all "
        "clients, evaluation.share 0.4), and no clients are known to be scored in all.",
    )


def test_runs_scored_on_the_test_items_of_all_and_on_their_own_are_not_comparable(tmp_path: Path) -> None:
    folders = [run(tmp_path, "own", [0.8]), run(tmp_path, "all", [0.9])]
    tree = json.loads((folders[1] / "result.json").read_text())
    for seed in tree["seeds"]:
        seed["modes"] = {"own_global": next(iter(seed["modes"].values()))}
    (folders[1] / "result.json").write_text(json.dumps(tree))
    table = comparison(folders)
    assert not table.is_comparable
    assert table.warnings == (
        "The runs are not comparable: test items differ (own: each client's own; all: those of all clients).",
    )


@pytest.mark.parametrize(("row", "disagrees"), [("local", True), ("alone", False), ("one_place", False)])
def test_references_that_disagree_are_kept_apart(tmp_path: Path, row: str, disagrees: bool) -> None:
    """What each method reaches alone, or in one place, are rows of its own."""
    folders = [
        run(tmp_path, name, [0.8], references={row: reference(score, 0.01)}) for name, score in (("a", 0.7), ("b", 0.6))
    ]
    table = comparison(folders)
    assert len(table.references) == 2
    assert any("disagree" in text for text in table.warnings) == disagrees


def test_gap_uses_the_references_of_a_comparable_run(tmp_path: Path) -> None:
    references = {"local": reference(0.70), "global": reference(0.90), "gap_closed": {"accuracy": 0.25}}
    folders = [run(tmp_path, "a", [0.75], references=references), run(tmp_path, "b", [0.80])]
    assert [row.gap["accuracy"] for row in comparison(folders).rows] == [0.25, pytest.approx(0.5)]
    elsewhere = run(tmp_path, "c", [0.80], data={"name": "CiteSeer"})
    apart = any_comparison([folders[0], elsewhere])
    assert isinstance(apart, Grid)
    assert apart.tables[1].rows[0].gap["accuracy"] is None


def test_markdown(tmp_path: Path) -> None:
    folders = [run(tmp_path, "a|b_*", [0.8, 0.82]), run(tmp_path, "<b>", [0.7, 0.72])]
    text = to_markdown(comparison(folders))
    assert text.splitlines()[:4] == [
        "| Method | Accuracy, % | Sent | Received | CPU | of it server |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        r"| a\|b\_\* | **81.0 ± 1.4** | 1.0 kB | 2.0 kB | 1.0 s | – |",
        r"| \<b\> | 71.0 ± 1.4 | 1.0 kB | 2.0 kB | 1.0 s | – |",
    ]


def test_latex_is_escaped_and_bold(tmp_path: Path) -> None:
    text = to_latex(comparison([run(tmp_path, r"50%_&\x{$", [0.8, 0.82]), run(tmp_path, "b", [0.7, 0.6])]), costs=True)
    assert r"50\%\_\&\textbackslash{}x\{\$ & \textbf{81.0} $\pm$ 1.4 & 1.0 kB & 2.0 kB & 1.0 s & -- \\" in text
    assert [r"\toprule" in text, r"\midrule" in text, r"\bottomrule" in text] == [True] * 3
    assert r"\begin{tabular}{lrrrrr}" in text
    for line in text.splitlines():
        if not line.startswith(("%", "\\")):
            assert line.count("&") - line.count(r"\&") == 5


def test_csv_holds_full_precision(tmp_path: Path) -> None:
    table = comparison([run(tmp_path, 'a,"b', [0.123456789, 0.2])])
    [row] = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert row["label"] == 'a,"b'
    assert float(row["accuracy_mean"]) == pytest.approx(0.1617283945, abs=1e-12)
    assert (row["row"], row["seeds"], row["upload_bytes"]) == ("run", "0 1", "1000")


def test_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one run folder"):
        comparison([])
    with pytest.raises(ConfigError, match="no such folder"):
        comparison([tmp_path / "gone"])
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        comparison([run(tmp_path, "a", [0.5])], metrics=["acuracy"])
