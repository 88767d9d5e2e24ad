"""Published scores beside runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from graphsilo.errors import ConfigError
from graphsilo.experiments.reproduce.description import tables
from graphsilo.experiments.reproduce.published import Printed, Question, load_scores, select_scores
from graphsilo.report import Comparison, comparison, published, to_csv
from kit import seed_tree
from report.test_grid import run


def beside(*folders: Path, published: bool | str = True, **asked: object) -> Comparison:
    found = comparison(folders, published=published, **asked)  # type: ignore[arg-type]
    assert isinstance(found, Comparison)
    return found


def test_the_scores_of_the_same_question(tmp_path: Path) -> None:
    table = beside(run(tmp_path, "FedAvg", "Cora", [0.80, 0.82]), run(tmp_path, "Mine", "Cora", [0.9, 0.9]))
    found, none = table.published["accuracy"]
    assert found is not None
    # FairFGL, table II: FedAvg, Cora, Metis, 10 clients: 81.13 ± 0.33
    assert (found.source, found.mean, found.std) == ("FairFGL, table II", 0.8113, 0.0033)
    assert none is None
    assert any(text.startswith("Published: FairFGL, table II. The papers' cuts") for text in table.remarks)
    assert "Published with 150 rounds; these runs have 1." in table.remarks
    assert ",0.8113,0.0033," in to_csv(table)


def test_a_run_of_many_rounds_has_not_the_score_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Question("Cora", "metis", 10, "seen", None, "", "accuracy", "fedavg", "gcn")
    one = Printed("O-pFGL", "1", "Cora", "metis", 10, 1, "", "accuracy", "FedAvg", 0.5, 0.01, asked)
    among = (one, replace(one, table="8", rounds=100, mean=0.75))
    monkeypatch.setattr(published, "select_scores", lambda paper: among)
    many = run(tmp_path, "FedAvg", "Cora", [0.8, 0.8], method={"rounds": 80})
    once = run(tmp_path, "FedAvg", "Cora", [0.6, 0.6], method={"rounds": 2})
    table = beside(many, once)
    assert [score and score.mean for score in table.published["accuracy"]] == [0.75, 0.5]
    assert "Published with 1 and 100 rounds; these runs have 2 and 80." in table.remarks
    assert "Published with 1 round; these runs have 2." in beside(once).remarks


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"partition": {"rule": "louvain"}}, "No published score is of Cora, louvain, 10 clients, gcn, accuracy"),
        ({"config": {"model": {"name": "sage"}}}, "Nearest: "),
        ({"config": {"scenario": {"name": "open"}}}, "Nearest: "),
    ],
)
def test_of_another_cut_model_or_scenario_there_is_none(tmp_path: Path, more: dict[str, object], said: str) -> None:
    table = beside(run(tmp_path, "FedAvg", "Cora", [0.8], **more))
    assert table.published == {}
    assert said in table.remarks[0]


@pytest.mark.parametrize("metric", ["min_f1", "hete_min_f1"])
def test_what_follows_no_definition_is_printed_but_not_compared(metric: str) -> None:
    assert any(each.metric == metric for each in load_scores())
    assert all(each.question is None for each in load_scores() if each.metric == metric)
    assert not any(metric in line.printed for table in tables() for row in table.rows for line in row.lines)


@pytest.mark.parametrize(("mode", "beside_it"), [("own_local", 0.8106), ("aggregate_local", None)])
def test_a_printed_score_is_of_the_view_that_its_row_scores(tmp_path: Path, mode: str, beside_it: float | None) -> None:
    # FairFGL, table II, has own models of FedGTA on a GCN; the method itself reports what the server returns first
    seed = seed_tree(0, {"accuracy": 0.8})
    seed["modes"] = {mode: seed["modes"]["own_local"]}
    method = {"evaluates": ["aggregate", "own"]}
    folder = run(tmp_path, "FedGTA", "Cora", [], method=method, seeds=[seed])
    [found] = beside(folder).published.get("accuracy", [None])
    assert (found and found.mean) == beside_it


def test_a_paper_by_name(tmp_path: Path) -> None:
    folder = run(tmp_path, "FedAvg", "Cora", [0.8])
    assert beside(folder, published="fairfgl/ii").published
    assert not beside(folder, published="O-pFGL").published
    with pytest.raises(ConfigError, match="did you mean 'FairFGL'"):
        select_scores("fairgl")
    with pytest.raises(ConfigError, match="a table of FairFGL was wanted, got 'V'"):
        select_scores("FairFGL/V")


def test_gamlp_and_sage_tables_are_of_their_models() -> None:
    models = {(each.paper, each.table): each.question.model for each in load_scores() if each.question is not None}
    assert models["FedPG", "V"] == "gamlp"
    assert models["FedSage+", "D2"] == "sage"
    assert models["FedPG", "VII"] == "gamlp"


def test_a_method_is_published_with_the_backbone_of_its_row() -> None:
    models = {each.method: each.question.model for each in load_scores() if each.table == "II" and each.question}
    assert {name: models[name] for name in ("FedAvg", "FedSage+", "FedGTA")} == {
        "FedAvg": "gcn", "FedSage+": "sage", "FedGTA": "gcn",
    }  # fmt: skip
