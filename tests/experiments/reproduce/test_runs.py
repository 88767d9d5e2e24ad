"""Which runs a table takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsilo.errors import ConfigError
from graphsilo.experiments.reproduce.description import wanted
from graphsilo.experiments.reproduce.runs import QUICK_ROUNDS, plan


def test_a_whole_table(tmp_path: Path) -> None:
    found = plan("FairFGL", "II", out=tmp_path)
    [table] = wanted("FairFGL", "II")
    lines = {line.label for line in table.rows[0].lines}
    assert lines >= {"FedAvg", "FedAvg, Adam 0.01", "FairFGL", "local only"}
    # Three seeds of every line on every data set; FedAvg is the reference "FedAvg, Adam 0.01" under its own name
    assert len(found.jobs) == 3 * len(table.rows) * (len(lines) - 1)
    assert len({job.out for job in found.jobs}) == len({job.name for job in found.jobs}) == len(found.jobs)
    one = next(job for job in found.jobs if job.line.label == "FairFGL" and job.seed == 2)
    assert one.config["partition.seed"] == 2  # a cut of its own
    assert one.config["run.seeds"] == [2]
    assert one.config["method.rounds"] == 150
    assert len(plan("FairFGL", out=tmp_path).jobs) == len(found.jobs)  # table III is of the same runs


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


def test_names_may_be_joined_and_variants_named(tmp_path: Path) -> None:
    found = plan("FedSage+", "D2", data=["cora,CS"], methods=["fedsage, FedSage+"], out=tmp_path)
    assert {job.row.data for job in found.jobs} == {"Cora", "CS"}
    assert {job.line.label for job in found.jobs if job.line.paper} == {"FedSage", "FedSage+"}
    variant = plan("FedSage+", "D2", quick=True, methods=["FedSage+, Algorithm 1 as printed"], out=tmp_path)
    assert [job.line.label for job in variant.jobs if job.line.paper] == ["FedSage+, Algorithm 1 as printed"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"data": ["Coraa"]}, "a data set of these tables was wanted, got 'Coraa': did you mean 'Cora'"),
        ({"methods": ["Mon"]}, "a method of these tables was wanted, got 'Mon': did you mean 'Moon'"),
    ],
)
def test_what_is_not_in_the_table(tmp_path: Path, asked: dict[str, list[str]], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan("FairFGL", "II", out=tmp_path, **asked)  # type: ignore[arg-type]
