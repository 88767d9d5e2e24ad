"""One threshold for all silos and periods in time, between machines: what leaves and what is kept."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from graphsilo.experiments.predict import open_member, predict

LOOKING = {
    "evaluation__positive": "yes", "evaluation__threshold_by": "federation",
    "evaluation__periods": ["2025-01-31", "2025-02-28", "2025-03-31"],
}  # fmt: skip


def look_for_one_of_two(file: Path) -> None:
    """Two classes in place of four, a date for every node, and no bin of scores with fewer than three items."""
    table, about = file.parent / "nodes.csv", file.parent / "tables.yaml"
    head, *rows = table.read_text().splitlines()
    for place, row in enumerate(rows):
        node, label, *rest = row.split(",")
        rows[place] = ",".join([node, "yes" if label in ("c2", "c3") else "no", *rest, f"2025-0{1 + place % 3}-15"])
    table.write_text("\n".join([f"{head},seen", *rows]) + "\n")
    tree = yaml.safe_load(about.read_text()) | {"classes": ["no", "yes"]}
    tree["nodes"]["time"] = "seen"
    tree.pop("outside")  # links without dates, which nodes with dates must not have
    about.write_text(yaml.safe_dump(tree))
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "policy": {"min_evaluation_count": 3}}))


@pytest.mark.slow
def test_a_threshold_of_all_silos(make_sites: Callable[..., Any], tmp_path: Path) -> None:
    """Validation counts are masked; each silo's test counts are seen."""
    sites = make_sites()
    for site, file in sites.files.items():
        look_for_one_of_two(file)
        os.kill(sites.supervisors[site].worker_pid, signal.SIGKILL)
    tree = sites.carry_out(sites.transport, tmp_path / "out", **LOOKING, run__secure_sums=True)
    seed = tree["seeds"][0]
    assert [period["name"] for period in seed["periods"]] == ["2025-02", "2025-03"]
    counts = [count for part in ("places", "model", "calibrated") for row in seed["score_bins"][part] for count in row]
    assert not any(0 < count < 3 for count in counts)
    assert sum(counts) > 0
    kept = set()
    for supervisor in sites.supervisors.values():
        (result,) = supervisor.folder.glob("**/result.json")
        kept.add(open_member(result.parent).decision())
        assert "all silos' validation items" in predict(result.parent).decided
    assert len(kept) == 1
