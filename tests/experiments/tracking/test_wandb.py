"""Weights & Biases in offline mode: its files read back."""

from __future__ import annotations

import json

import pytest

from graphsilo.experiments.runner import run

wandb = pytest.importorskip("wandb")
pytestmark = pytest.mark.slow


def records(folder, run_id):
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    for path in sorted(folder.glob(f"wandb/*-{run_id}/run-{run_id}.wandb")):
        store = DataStore()
        store.open_for_scan(str(path))
        while (data := store.scan_data()) is not None:
            record = Record()
            record.ParseFromString(data)
            yield record


def curve(folder, run_id, name):
    found = []
    for record in records(folder, run_id):
        if record.WhichOneof("record_type") == "history":
            items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            if name in items:
                found.append((record.history.step.num, json.loads(items[name])))
    return found


def test_offline_files_hold_the_rounds(tmp_path, small, monkeypatch):
    from graphsilo.experiments.tracking import WandB

    monkeypatch.delenv("WANDB_MODE", raising=False)
    tree = run(small(run__seeds=[3, 4]), out=tmp_path, observer=WandB("papers")).tree
    name = json.loads((tmp_path / "tracking.json").read_text())["run"]
    for seed in tree["seeds"]:
        wanted = [(row["round"], row["validation"]["accuracy"]) for row in seed["rounds"]]
        assert curve(tmp_path, f"{name}-{seed['seed']}", "validation/accuracy") == wanted
    (facts,) = [one.run for one in records(tmp_path, f"{name}-3") if one.WhichOneof("record_type") == "run"][:1]
    assert (facts.project, facts.run_group, facts.job_type) == ("papers", name, "run")
    whole = list(records(tmp_path, f"{name}-all"))
    assert any(one.WhichOneof("record_type") == "request" or "artifact" in str(one)[:2000] for one in whole)


def test_every_round_once_after_kill_9(tmp_path, killed, monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    started = killed(tmp_path / "run", "wandb")
    started.go(until="1 5")
    started.go(resume=True)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    name = json.loads((tmp_path / "run" / "tracking.json").read_text())["run"]
    for seed in result["seeds"]:
        wanted = [(row["round"], row["validation"]["accuracy"]) for row in seed["rounds"]]
        assert curve(tmp_path / "run", f"{name}-{seed['seed']}", "validation/accuracy") == wanted
