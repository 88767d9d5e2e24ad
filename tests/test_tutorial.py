"""The tutorial of three hospitals: its script works from tables to predictions, and its page has the same commands."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from graphsilo.data.silos.own import read_silo_file
from graphsilo.experiments.config import load_config
from graphsilo.runtime.remote.federation_file import load_federation
from graphsilo.runtime.remote.sites import SiteState
from graphsilo.testing.conformance import COSTS

CHECKOUT = Path(__file__).resolve().parents[1]
EXAMPLE = CHECKOUT / "examples" / "hospitals"
PAGE = CHECKOUT / "docs" / "tutorial-hospitals.md"
OWN_MACHINES = "## On machines of your own"
"""From this heading on the page shows commands that one machine cannot try."""
HOSPITALS = ("north", "south", "west")


def commands_of_the_page() -> list[str]:
    """What the page has a reader type, without how the folder is made."""
    text = PAGE.read_text(encoding="utf-8").split(OWN_MACHINES)[0]
    blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [" ".join(line.split()) for line in lines if not line.startswith(("graphsilo examples", "cd "))]


def commands_of_the_script() -> list[str]:
    """What the script runs."""
    text = (EXAMPLE / "tutorial.sh").read_text(encoding="utf-8")
    texts = dict(re.findall(r'^(tables|time)="(.*)"$', text, flags=re.MULTILINE))
    found = []
    for verb, rest in re.findall(r"^(run|start) (.*)$", text, flags=re.MULTILINE):
        line = " ".join(shlex.split(rest)[verb == "start" :])
        found.append(re.sub(r"\$(tables|time)", lambda name: texts[name[1]], line))
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with the hospitals' tables."""
    folder = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("hospitals") / "h")
    spec = importlib.util.spec_from_file_location("make_tables", EXAMPLE / "make_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_tables"] = module
    spec.loader.exec_module(module)
    module.main(folder)
    return folder


def test_page_and_script_have_the_same_commands() -> None:
    assert commands_of_the_page() == commands_of_the_script()


def test_the_page_shows_the_files_as_they_are() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in ("north/tables.yaml", "south/silo.yaml", "federation.yaml", "config.yaml", "fedavg.yaml"):
        assert f'--8<-- "examples/hospitals/{name}"' in page


FAILING = """#!/bin/sh
case "$1" in
serve) echo 'coordinator of hospitals, waiting for north, south, west'; echo 'job 0001-fedridge failed: no luck' ;;
join) ;;
*) exit 0 ;;
esac
exec sleep 60
"""


def test_the_script_ends_with_what_a_failed_job_said(tmp_path: Path) -> None:
    (tmp_path / "graphsilo").write_text(FAILING)
    (tmp_path / "graphsilo").chmod(0o755)
    places = (str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"])
    done = subprocess.run(
        ["timeout", "20", "bash", str(EXAMPLE / "tutorial.sh")], capture_output=True, text=True, check=False,
        env={**os.environ, "TUTORIAL_FOLDER": str(tmp_path / "h"), "PATH": os.pathsep.join(places)},
    )  # fmt: skip
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "job 0001-fedridge failed: no luck")


def test_the_files_fit_together(made: Path) -> None:
    silos = [read_silo_file(made / name / "silo.yaml") for name in HOSPITALS]
    assert [silo.name for silo in load_federation(EXAMPLE / "federation.yaml").silos] == list(HOSPITALS)
    assert [bool(silo.policy) for silo in silos] == [False, True, False]
    held = [silo.load(number) for number, silo in enumerate(silos)]
    assert [item.schema.feature_names for item in held] == [held[0].schema.feature_names] * 3
    # What differs is how it is written: the same columns are in the same units, and the same words mean the same.
    column = held[0].schema.feature_names.index("stay.haemoglobin")
    for item in held:
        stays = item.graph.types.targets
        assert set(item.graph.labels[stays].tolist()) == {-1, 0, 1}
        assert 13 < np.asarray(item.graph.features)[stays, column].mean() < 14
    assert load_config(EXAMPLE / "config.yaml").method.name == "fedridge"
    assert load_config(EXAMPLE / "fedavg.yaml").method_config().rounds == 30


def test_the_reference_has_the_defaults_and_the_states() -> None:
    page = (CHECKOUT / "docs" / "between-machines.md").read_text(encoding="utf-8")
    assert "<!-- chosen: run.deadline,run.patience -->" in page  # whose table is made from the code
    shown = page.split("| state of a site | meaning |\n")[1].split("\n\n")[0]
    assert [row.split("|")[1].strip() for row in shown.splitlines()[1:]] == list(get_args(SiteState))


@dataclass(frozen=True)
class Tutorial:
    """The script after its end."""

    folder: Path
    code: int
    said: str
    complaint: str


def processes_with(mark: str) -> list[str]:
    """Command lines of the processes that were started with something in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (place / "environ").read_bytes():
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return found


@pytest.fixture(scope="module")
def tutorial() -> Iterator[Tutorial]:
    pytest.importorskip("nvflare")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # pytest's own folders lie too deep for a socket
    with tempfile.TemporaryDirectory(prefix="gs-") as name:
        folder = Path(name) / "h"
        environment = {
            **os.environ,
            "TUTORIAL_FOLDER": str(folder),
            "TUTORIAL_PORT": str(port),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        process = subprocess.Popen(
            ["bash", str(EXAMPLE / "tutorial.sh")], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip
        try:
            said, complaint = process.communicate(timeout=600)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # the script ends what it started
            said, complaint = process.communicate(timeout=60)
        yield Tutorial(folder, process.returncode, said, complaint)


def measured(tree: Any) -> Any:
    """Everything of a result that is measured, without times."""
    timed = {*COSTS, "participants"}
    if isinstance(tree, dict):
        return {key: measured(value) for key, value in tree.items() if key not in timed}
    return [measured(value) for value in tree] if isinstance(tree, list) else tree


@pytest.mark.slow
def test_the_script_runs_what_the_page_shows(tutorial: Tutorial) -> None:
    assert tutorial.code == 0, tutorial.said + tutorial.complaint
    assert [line[2:] for line in tutorial.said.splitlines() if line.startswith("$ ")] == commands_of_the_page()


@pytest.mark.slow
def test_apart_and_together_give_the_same_numbers(tutorial: Tutorial) -> None:
    ridge, apart, together = (
        json.loads((tutorial.folder / name / "result.json").read_text()) for name in ("result", "fedavg", "together")
    )
    assert len(apart["seeds"]) == 3
    for mine, theirs in zip(apart["seeds"], together["seeds"], strict=True):
        for key in ("best_round", "validation", "test", "test_last", "modes", "confusion", "setup", "rounds"):
            assert measured(mine[key]) == measured(theirs[key]), key
    assert apart["summary"] == together["summary"]
    for tree in (apart, together):
        assert [row["silo"] for row in tree["partition"]["per_client"]] == list(HOSPITALS)
    # What the hospitals found at their own sites is what one process finds.
    assert measured(apart["references"]["alone"]) == measured(together["references"]["alone"])
    for tree in (ridge, apart):
        alone = tree["references"]["alone"]["ap"]["mean"]
        assert tree["summary"]["test"]["ap"]["mean"] > alone + 0.01
    assert ridge["references"]["alone"]["ap"]["mean"] > ridge["references"]["trees_alone"]["ap"]["mean"] + 0.03
    for metric, value in ridge["summary"]["test"].items():
        if isinstance(value, dict) and isinstance(value.get("mean"), float):
            assert together["references"]["fedridge"][metric]["mean"] == pytest.approx(value["mean"], abs=1e-12), metric


@pytest.mark.slow
def test_a_hospital_has_its_own_predictions_and_log(tutorial: Tutorial) -> None:
    with (tutorial.folder / "south" / "stay.csv").open() as file:
        stays = {row["stay"]: row["outcome"] for row in csv.DictReader(file, delimiter=";")}
    with (tutorial.folder / "south" / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [stays[row["node"]] for row in rows] == [""] * 10
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    log = (tutorial.folder / "kits" / "south" / "sent" / "south.jsonl").read_text(encoding="utf-8")
    assert not any(stay in log for stay in stays)
    assert not list((tutorial.folder / "result").rglob("*client*.safetensors"))


@pytest.mark.slow
def test_nothing_is_left_running(tutorial: Tutorial) -> None:
    if not Path("/proc/self/environ").exists():
        pytest.skip("this system does not show the environment of processes")
    mark, end = f"TUTORIAL_FOLDER={tutorial.folder}", time.monotonic() + 15
    while processes_with(mark) and time.monotonic() < end:  # an engine looks every half second whether it is needed
        time.sleep(0.2)
    assert processes_with(mark) == []
