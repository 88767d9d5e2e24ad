"""Which runs a table takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphsilo.data.sources import catalog
from graphsilo.errors import ConfigError, DataError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.reproduce.description import find_tables, tables
from graphsilo.experiments.reproduce.runs import QUICK_ROUNDS, carry_out, plan, settings_of
from graphsilo.federation import registry


def test_a_whole_table(tmp_path: Path) -> None:
    found = plan("FairFGL", "II", out=tmp_path)
    [table] = find_tables("FairFGL", "II")
    lines = {line.label for line in table.rows[0].lines if line.is_default}
    assert lines >= {"FedAvg", "FedAvg, Adam 0.01", "FairFGL", "local only"}
    # Three seeds of every line on every data set; FedAvg is the reference "FedAvg, Adam 0.01" under its own name
    assert len(found.jobs) == 3 * len(table.rows) * (len(lines) - 1)
    assert len({job.out for job in found.jobs}) == len({job.name for job in found.jobs}) == len(found.jobs)
    one = next(job for job in found.jobs if job.line.label == "FairFGL" and job.seed == 2)
    assert one.config["partition.seed"] == 2  # a cut of its own
    assert one.config["run.seeds"] == [2]
    assert one.config["method.rounds"] == 150
    of_paper = {job.row.id for job in plan("FairFGL", out=tmp_path).jobs}
    assert of_paper == {*(row.id for row in table.rows), "fairfgl-4.CiteSeer"}  # table III is of the same runs


def test_a_quick_look(tmp_path: Path) -> None:
    found = plan("FairFGL", "II", quick=True, out=tmp_path)
    assert {(job.row.data, job.seed) for job in found.jobs} == {("Cora", 0)}
    assert {job.config.get("method.rounds") for job in found.jobs} == {QUICK_ROUNDS, None}  # None: one exact round
    assert all("quick" in job.out.parts for job in found.jobs)  # never taken for the table's own


def test_what_was_asked_for(tmp_path: Path) -> None:
    found = plan("FairFGL", "II", data=["citeseer"], methods=["Moon"], seeds=[4, 5], out=tmp_path)
    assert {(job.row.data, job.seed) for job in found.jobs} == {("CiteSeer", 4), ("CiteSeer", 5)}
    assert [job.line.label for job in found.jobs if job.line.paper and job.seed == 4] == ["Moon"]
    assert {job.line.label for job in found.jobs if job.line.paper is None} >= {"local only", "FedRidge"}


def test_names_in_any_spelling(tmp_path: Path) -> None:
    found = plan("FedSage+", "D2", data=["MSAcademic"], methods=["fedsage_plus"], out=tmp_path)
    assert {job.row.data for job in found.jobs} == {"CS"}
    assert {job.line.label for job in found.jobs if job.line.paper} == {"FedSage+"}
    with pytest.raises(ConfigError, match=r"FedOV is not in graphsilo; nearest in kind: DENSE"):
        plan("O-pFGL", "1", methods=["Fed-OV"], out=tmp_path)
    with pytest.raises(ConfigError, match=r"FedGen is printed in .* \(FedPG: VI\), and is not in these tables here"):
        plan("FedPG", "VI", methods=["fedgen"], out=tmp_path)
    with pytest.raises(
        ConfigError, match=r"FedAvg is printed in .* \(O-pFGL: 1,.*; FedPG: V,.*\), and is not in these"
    ):
        plan("FedPG", "VII", methods=["fedavg"], out=tmp_path)


def test_names_may_be_joined_and_variants_named(tmp_path: Path) -> None:
    found = plan("FedSage+", "D2", data=["cora,CS"], methods=["fedsage, FedSage+"], out=tmp_path)
    assert {job.row.data for job in found.jobs} == {"Cora", "CS"}
    assert {job.line.label for job in found.jobs if job.line.paper} == {"FedSage", "FedSage+"}
    variant = plan("FedSage+", "D2", quick=True, methods=["FedSage+, Algorithm 1 as printed"], out=tmp_path)
    assert [job.line.label for job in variant.jobs if job.line.paper] == ["FedSage+, Algorithm 1 as printed"]


PAPERS = sorted({table.paper for table in tables()})


@pytest.mark.parametrize("paper", PAPERS)
def test_a_quick_look_is_quick_in_every_row(tmp_path: Path, paper: str) -> None:
    seen = set()
    for table in find_tables(paper):
        for row in table.rows:
            for line in row.lines:
                settings = settings_of(row, line, 0, ".", quick=True)
                kind = {name: value for name, value in settings.items() if name.startswith(("method.", "model."))}
                if repr(kind) in seen:
                    continue
                seen.add(repr(kind))
                config = load_config(overrides=settings)
                method = registry.load(config.method.name)
                options, epochs = config.method_config(), {"local_epochs": 5}
                assert options.total_rounds <= QUICK_ROUNDS, (row.id, line.label)
                epochs |= {name: 5 for name in method.config.model_fields if name.endswith("epochs")}
                for name, most in {**epochs, **method.quick}.items():
                    value = getattr(options, name, 0)
                    if isinstance(most, tuple):
                        assert all(one <= other for one, other in zip(value, most, strict=True)), (line.label, name)
                    elif isinstance(most, int) and "link" not in name:
                        assert value <= most, (row.id, line.label, name)


def test_what_a_quick_look_shortens() -> None:
    """By hand: references of a one-round table, which says no rounds, have five; O-pFGL's FedAvg keeps its two."""
    row = find_tables("O-pFGL", "1")[0].rows[0]
    settings = {line.label: settings_of(row, line, 0, quick=True) for line in row.lines}
    assert settings["local only"]["method.rounds"] == 5
    assert settings["all data in one place"]["method.rounds"] == 5
    assert "method.rounds" not in settings["FedRidge"]
    assert (settings["FedAvg"]["method.rounds"], settings["FedAvg"]["method.local_epochs"]) == (2, 5)
    assert (settings["O-pFGL"]["method.surrogate_steps"], settings["O-pFGL"]["method.stage1_epochs"]) == (100, 60)
    assert "method.link_epochs" not in settings["O-pFGL"]  # there it would have no effect
    row = find_tables("FedSage+", "D2")[0].rows[0]
    wide = next(line for line in row.lines if line.label == "FedSage+, Algorithm 1 as printed")
    assert settings_of(row, wide, 0, quick=True)["method.generator_hidden"] == [16, 32]
    assert settings_of(row, wide, 0)["method.generator_hidden"] == [256, 2048]


def test_only_rows_with_so_many_clients(tmp_path: Path) -> None:
    found = plan("O-pFGL", clients=20, out=tmp_path)
    assert {job.config["partition.clients"] for job in found.jobs} == {20}
    assert {row.id.partition(".")[0] for table in found.tables for row in table.rows} == {"opfgl-4", "opfgl-7"}
    three = plan("FedLoG", "1a", clients=3, quick=True, out=tmp_path)
    assert {(job.row.data, job.config["partition.clients"]) for job in three.jobs} == {("Cora", 3)}


def test_large_graphs_are_run_where_they_are_named(tmp_path: Path) -> None:
    found = plan("O-pFGL", "1", out=tmp_path)
    assert {job.row.data for job in found.jobs} == {"Cora", "CiteSeer", "PubMed"}
    named = plan("O-pFGL", "1", data=["ogbn-arxiv"], methods=["O-pFGL"], seeds=[0], out=tmp_path)
    [mine] = [job for job in named.jobs if job.line.paper]
    assert (mine.row.data, mine.config["method.nodes_percent"]) == ("ogbn-arxiv", 0.25)
    assert "method.nodes_percent" not in found.jobs[-1].config
    with pytest.raises(ConfigError, match=r"table VI, is of large graphs alone.* give --data ogbn-arxiv,Flickr"):
        plan("FedPG", "VI", out=tmp_path)


def test_numbers_of_clients_that_no_row_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rows with 7 clients were wanted .* O-pFGL, tables 1, .*; take 10 or 20\."):
        plan("O-pFGL", clients=7, out=tmp_path)
    with pytest.raises(ConfigError, match=r"with 5 clients on Cora .* FedSage\+, table D2, has none; take 3\."):
        plan("FedSage+", "D2", clients=5, data=["Cora"], out=tmp_path)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"data": ["Coraa"]}, "a data set of these tables was wanted, got 'Coraa': did you mean 'Cora'"),
        ({"seeds": [-1]}, r"run\.seeds\.0 must be at least 0; got -1"),
        ({"methods": ["Mon"]}, "a method of these tables was wanted, got 'Mon': did you mean 'Moon'"),
    ],
)
def test_what_is_not_in_the_table(tmp_path: Path, asked: dict[str, list[Any]], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan("FairFGL", "II", out=tmp_path, **asked)  # type: ignore[arg-type]


def test_data_that_is_missing_ends_its_own_runs_alone(
    tmp_path: Path, data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str, **asked: Any) -> Any:
        if name != "Cora":
            raise DataError(f"{name} is not here.")
        return whole(name, **asked)

    whole = catalog.load
    monkeypatch.setattr(catalog, "load", load)
    (tmp_path / "data" / "planetoid").mkdir(parents=True)
    (tmp_path / "data" / "planetoid" / "Cora").symlink_to(data_root / "planetoid" / "Cora")
    asked: dict[str, Any] = {"methods": ["FedAvg"], "quick": True, "out": tmp_path, "data_root": tmp_path / "data"}
    some = plan("FairFGL", "II", data=["CiteSeer", "Cora"], **asked)
    found = [(job.row.data, outcome.error) for job, outcome in carry_out(some)]
    reasons = {data: [error for name, error in found if name == data] for data, _ in found}
    assert reasons["Cora"]
    assert set(reasons["Cora"]) == {None}
    first, *others = reasons["CiteSeer"]
    assert first == "CiteSeer is not here."
    assert set(others) == {"CiteSeer is missing, as was said of another run."}
    with pytest.raises(DataError, match="CiteSeer is not here"):
        list(carry_out(plan("FairFGL", "II", data=["CiteSeer"], **asked)))
