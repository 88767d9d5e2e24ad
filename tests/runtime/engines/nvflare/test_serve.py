"""`graphsilo serve` as a person uses it: killed, started again, started twice, given the wrong kit."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("nvflare")

from joined_sites import Federation, tables

from graphsilo.experiments.runner import run

pytestmark = pytest.mark.slow
COMMAND = [sys.executable, "-m", "graphsilo"]


def config_file(federation: Federation, **overrides: Any) -> Path:
    tree = federation.config(**overrides).model_dump(mode="json", exclude_unset=True)
    path = federation.folder / "config.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


def graphsilo(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, words)], capture_output=True, text=True, check=False, timeout=150, stdin=subprocess.DEVNULL
    )


def test_killed_coordinator_goes_on_with_its_job(federation: Federation) -> None:
    config = federation.config(**{"method.rounds": 40})
    out = federation.folder / "out"
    kit = federation.coordinator
    submitted = graphsilo(
        "federation", "submit", config_file(federation, **{"method.rounds": 40}), "--kit", kit, "--out", out
    )
    assert submitted.returncode == 0, submitted.stderr
    first = subprocess.Popen([*COMMAND, "serve", str(kit)], stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert first.stderr is not None
    for line in first.stderr:
        if "FedAvg, seed 0: round" in line:
            break
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not (out / "result.json").exists()
    second = subprocess.Popen([*COMMAND, "serve", str(kit)], stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        end = time.monotonic() + 120
        while not (out / "result.json").exists() and time.monotonic() < end:
            time.sleep(0.3)
        tree = json.loads((out / "result.json").read_text())
        told = json.loads(graphsilo("federation", "status", "--kit", kit, "--json").stdout)
        assert told["serving"]
        twice = graphsilo("serve", kit)
        assert twice.returncode == 1
        assert "another coordinator serves this kit" in twice.stderr
        assert [site["state"] for site in told["sites"]] == ["up", "up", "up"]
    finally:
        second.send_signal(signal.SIGTERM)
        printed = second.communicate(timeout=60)[1]
    assert second.returncode == 130, printed
    assert "job 0001-fedavg continues" in printed
    assert "round 1/40" not in printed
    alone = run(config).tree
    assert tables.numbers(alone["seeds"][0]["rounds"]) == tables.numbers(tree["seeds"][0]["rounds"])
    assert alone["summary"]["test"] == tree["summary"]["test"]


def test_wrong_kits_are_refused(federation: Federation) -> None:
    site = federation.folder / "kits" / "north"
    silo = federation.folder / "north" / "silo.yaml"
    for words, told in (
        (("serve", site), "is the kit of site 'north'"),
        (("join", federation.coordinator, "--silo", silo), "is the coordinator's kit"),
        (("join", site, "--silo", federation.folder / "south" / "silo.yaml"), "does not live at site 'north'"),
        (("serve", federation.folder), "is no kit"),
        (("join", site, "--silo", silo), "already served by another process"),
    ):
        done = graphsilo(*words)
        assert done.returncode in (1, 2), done.stderr
        assert told in " ".join(done.stderr.split()), done.stderr
