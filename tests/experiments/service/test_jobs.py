"""Jobs by number, in their folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.experiments.service.jobs import Jobs


def test_unknown_job(kit: Path) -> None:
    with pytest.raises(ConfigError, match="there is no job '7'"):
        Jobs(kit).get("7")


def test_folder_without_a_job_keeps_its_number(kit: Path, tmp_path: Path) -> None:
    (kit / "jobs" / "0001-fedavg").mkdir(parents=True)
    (tmp_path / "config.yaml").write_text("method: fedavg\n")
    assert Jobs(kit).submit(tmp_path / "config.yaml").id == "0002-fedavg"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (["run.secure_sums=true", "run.compression=topk"], "run.compression sends a part of each model"),
        (["method.name=fedridge", "run.compression=int8"], "no answer of FedRidge holds a model"),
        (["method.name=gcfl", "run.secure_sums=true"], "needs every client's update"),
        (["method.fan_out=[5,5,5]"], "the model has 2 layers, a list of 3 numbers came"),
        (["method.fan_out=1001"], "method.fan_out must be"),
        (["run.secure_sums=true", "run.without=[0]"], "a secure sum needs 3 clients or more.*Here 2 are asked"),
    ],
)
def test_what_no_run_can_begin_with_is_not_queued(kit: Path, tmp_path: Path, said: list[str], words: str) -> None:
    (tmp_path / "config.yaml").write_text("method: fedavg\n")
    jobs = Jobs(kit)
    with pytest.raises((ConfigError, UnsupportedError), match=words):
        jobs.submit(tmp_path / "config.yaml", assignments=said, names={"north": 0, "south": 1, "west": 2})
    assert jobs.all() == []


@pytest.mark.parametrize(
    "said", [["method.participation=0.8"], ["evaluation.share=0.8", "evaluation.report=federation"]]
)
def test_secure_sums_over_some_silos_at_a_time_are_not_queued(kit: Path, tmp_path: Path, said: list[str]) -> None:
    """From sums over four of five silos each, what every one of them sent can be computed."""
    (tmp_path / "config.yaml").write_text("method: fedavg\nrun: {secure_sums: true}\n")
    jobs, names = Jobs(kit), {name: number for number, name in enumerate("abcde")}
    with pytest.raises(ConfigError, match=r"opens secure sums with one set of silos only.* Here 4 of 5 are asked"):
        jobs.submit(tmp_path / "config.yaml", assignments=said, names=names)
    assert jobs.all() == []
    jobs.submit(tmp_path / "config.yaml", assignments=["evaluation.share=0.8"], names=names)  # single scores: no sum
