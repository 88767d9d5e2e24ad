"""Jobs by number, in their folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsilo.errors import ConfigError
from graphsilo.experiments.service.jobs import Jobs


def test_unknown_job(kit: Path) -> None:
    with pytest.raises(ConfigError, match="there is no job '7'"):
        Jobs(kit).get("7")


def test_folder_without_a_job_keeps_its_number(kit: Path, tmp_path: Path) -> None:
    (kit / "jobs" / "0001-fedavg").mkdir(parents=True)
    (tmp_path / "config.yaml").write_text("method: fedavg\n")
    assert Jobs(kit).submit(tmp_path / "config.yaml").id == "0002-fedavg"
