"""Silos with types, dates and windows whose processes are killed: the run goes on to the same numbers."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from experiments.service.test_typed_federation import write
from graphsilo.data.silos.own import read_silo_file
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.experiments.service.run_over import _count_evaluations, run_over
from graphsilo.federation import registry
from graphsilo.runtime.site.supervisor import SiteSupervisor
from kit.site_meddling import Meddling, once
from kit.site_tables import NAMES, assert_same
from kit.sites import Sites, coordinator, to_be_killed

RUNS: dict[str, dict[str, Any]] = {
    "fedtrees": {"method.name": "fedtrees", "method.rounds": 6, "method.min_child": 2},
    "rgcn": {"method.name": "fedavg", "method.rounds": 6, "model.name": "rgcn", "model.hidden": [8]},
}
pytestmark = pytest.mark.slow


@pytest.fixture
def bank(short_path: Path) -> Iterator[Sites]:
    with ExitStack() as stack:
        files, supervisors, said = {}, {}, []
        for number, name in enumerate(NAMES):
            files[name] = write(short_path, name, number, shops=number != 1) / "silo.yaml"
            site = SiteSupervisor(name, [(number, files[name])], short_path / name, say=said.append)
            stack.callback(site.close)
            site.start()
            supervisors[name] = site
        yield Sites(short_path, files, supervisors, said)


def settings(sites: Sites, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of a run over sites, and in one process."""
    said = {
        **RUNS[name], "run.references": [], "run.checkpoint_every": 2, "evaluation.threshold_by": "federation",
    }  # fmt: skip
    here = {
        "data.name": [str(sites.files[each].parent / "tables.yaml") for each in NAMES],
        "partition.ratios": [0.4, 0.3, 0.3], "partition.seed": 2, "partition.split": "stratified",
    }  # fmt: skip
    return said, {**said, **here}


def asked_for(site: str, step: str) -> Any:
    """Whether a request asks a site for this step of round 4; the last checkpoint is from round 2."""
    return lambda name, header: (name, header.get("handler"), header.get("round")) == (site, step, 4)


def test_a_silo_is_killed_in_mid_round_and_while_it_is_scored(bank: Sites, tmp_path: Path) -> None:
    apart, here = settings(bank, "fedtrees")
    for number, step in enumerate(("histograms", "evaluate_bins")):
        with to_be_killed(bank, "south") as strike:
            meddling = Meddling(bank.transport, once(asked_for("south", step), strike))
            tree = run_over(
                meddling, load_config(overrides=apart), name="typed", clients=bank.clients,
                out=tmp_path / f"out{number}", wait=60,
            ).tree  # fmt: skip
        whole = run(load_config(overrides=here)).tree
        assert_same(whole, tree)
    # What was answered again, to the same questions, counts once. In each round there are two answers, and one of
    # how good each forest is; before them, how many items are of a class. As many are said to be wanted.
    record = read_silo_file(bank.files["south"]).record("evaluated")
    wanted = 1 + 3 * len(whole["seeds"][0]["rounds"])
    assert len(record.read_text().splitlines()) == 2 * wanted
    config = load_config(overrides=apart)
    assert _count_evaluations(config, registry.load(config.method.name), config.method_config()) == wanted


def test_the_coordinator_is_killed_while_it_scores_and_started_again(bank: Sites, tmp_path: Path) -> None:
    apart, here = settings(bank, "rgcn")
    out = tmp_path / "out"
    first = coordinator(bank, out, "no", apart, "evaluate_bins", "train")
    first.communicate(timeout=200)
    assert first.returncode == -signal.SIGKILL
    assert not (out / "result.json").exists()
    second = coordinator(bank, out, "yes", apart)
    _, complaint = second.communicate(timeout=200)
    assert second.returncode == 0, complaint
    assert_same(run(load_config(overrides=here)).tree, json.loads((out / "result.json").read_text()))
