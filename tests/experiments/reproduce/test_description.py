"""How the papers' tables are described."""

from __future__ import annotations

import pytest

from graphsilo import models
from graphsilo.errors import ConfigError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.reproduce.description import find_tables, tables
from graphsilo.federation import registry
from graphsilo.federation.core_client import CoreClient


def test_the_five_papers_have_tables_with_something_printed_in_every_row() -> None:
    assert {table.paper for table in tables()} >= {"FedSage+", "FedLoG", "O-pFGL", "FedPG", "FairFGL"}
    for table in tables():
        for row in table.rows:
            assert any(line.printed for line in row.lines), (table.number, row.id)
            assert [line.label for line in row.lines if line.paper is None or line.printed] == [
                line.label for line in row.lines
            ]


def test_tables_that_share_runs_show_different_scores() -> None:
    two, three = find_tables("fairfgl")
    assert (two.number, three.number) == ("II", "III")
    # Table III prints neither Chameleon nor Minesweeper
    assert [row.id for row in three.rows] == [f"fairfgl-2.{data}" for data in ("Cora", "CiteSeer", "PubMed")]
    assert [row.id for row in two.rows[:3]] == [row.id for row in three.rows]
    assert (two.rows[0].paths, three.rows[0].paths) == (("accuracy", "macro_f1"), ("hete_f1", "hete_min_f1"))
    fairfgl = next(line for line in two.rows[0].lines if line.label == "FairFGL")
    assert fairfgl.printed["accuracy"].mean == pytest.approx(0.8276, abs=0.01)
    assert two.rows[0].own_cuts
    assert not find_tables("FedLoG", "1a")[0].rows[0].own_cuts


def test_a_variant_is_run_only_where_it_is_named() -> None:
    lines = {line.label: line for line in find_tables("fedsage_plus", "D2")[0].rows[0].lines}
    assert lines["FedSage+"].is_default
    assert lines["FedSage+, one shared NeighGen"].is_default  # the paper prints a row for it
    assert not lines["FedSage+, Algorithm 1 as printed"].is_default


def test_settings_are_settings() -> None:
    for table in tables():
        for line in table.rows[0].lines:
            settings = {name: value for name, value in line.settings.items() if value is not None}
            load_config(overrides={**settings, "data.root": "."})


def test_methods_that_share_the_middle_of_a_model_have_one_with_ends() -> None:
    """Else they are FedAvg under another name."""
    found = []
    for table in tables():
        for row in table.rows:
            for line in row.lines:
                config = load_config(
                    overrides={
                        name: value for name, value in {**row.base, **line.settings}.items() if value is not None
                    }
                )
                if issubclass(registry.load(config.method.name).client, CoreClient):
                    found.append(line.label)
                    assert models.class_of(config.model.name).core, (row.id, line.label)
    assert set(found) == {"GCFL+", "FedStar"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [(("fairfg",), "did you mean 'FairFGL'"), (("fairfgl", "V"), "those that can be run are II, III")],
)
def test_there_is_no_such_table(asked: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        find_tables(*asked)


def test_fedlogs_tables_have_three_five_and_ten_clients() -> None:
    rows = {row.id: row for table in find_tables("FedLoG", "3a") for row in table.rows}
    cora = [rows[f"fedlog-open.Cora.{clients}-clients"].base for clients in (3, 5, 10)]
    assert [base["partition.clients"] for base in cora] == [3, 5, 10]
    assert [base["partition.cut_seed"] for base in cora] == [2, 1, 1]  # with 1, three silos leave a class untrained
    assert {row.paths for row in rows.values()} == {("unseen_node.accuracy",)}
    closed = [row.id for table in find_tables("FedLoG", "1a") for row in table.rows]
    assert {"fedlog-3.Cora", "fedlog-more.Cora.5-clients", "fedlog-more.Cora.10-clients"} <= set(closed)


def test_the_same_method_has_one_score_after_a_round_and_another_after_a_hundred() -> None:
    one, hundred = (
        next(line for row in find_tables("opfgl", number)[0].rows if row.data == "Cora" for line in row.lines
             if line.label == "FedAvg")
        for number in ("1", "8")
    )  # fmt: skip
    assert (one.settings["method.rounds"], one.printed["accuracy"].mean) == (2, pytest.approx(0.6968))
    assert (hundred.settings["method.rounds"], hundred.printed["accuracy"].mean) == (100, pytest.approx(0.7527))


def test_rows_are_held_against_the_view_and_settings_that_the_paper_scores() -> None:
    fairfgl, opfgl = (
        {line.label: line for line in find_tables(paper, number)[0].rows[0].lines}
        for paper, number in (("FairFGL", "II"), ("O-pFGL", "1"))
    )
    own_first = ["own_local", "aggregate_local"]
    gta = fairfgl["FedGTA"].settings
    assert (gta["model.name"], gta["evaluation.modes"]) == ("gcn", own_first)
    assert fairfgl["FedGTA, GAMLP"].settings.get("model.name") is None
    assert not fairfgl["FedGTA, GAMLP"].is_default
    assert {opfgl[label].settings["evaluation.modes"][0] for label in ("DENSE", "Co-Boost")} == {"own_local"}
    # the mixtures of one upload: what the server returns, not trained after it
    assert opfgl["FedGTA"].settings["method.rounds"] == 1
    assert "evaluation.modes" not in opfgl["FedGTA"].settings
