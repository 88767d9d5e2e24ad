"""Weights & Biases in offline mode: its files read back."""

from __future__ import annotations

import json
import struct
import time

import pytest

from graphsilo.experiments.runner import run
from graphsilo.experiments.storage.records import reported_scores
from graphsilo.experiments.tracking.wandb import records

wandb = pytest.importorskip("wandb")
pytestmark = pytest.mark.slow


def records_of(folder, run_id):
    for path in sorted(folder.glob(f"wandb/*-{run_id}/run-{run_id}.wandb")):
        for _ in range(200):  # the process that writes it may still be at it
            found = list(records(path))
            if found and found[-1].WhichOneof("record_type") == "exit":
                break
            time.sleep(0.1)
        assert path.read_bytes().startswith(b":W&B")
        yield from found


def curve(folder, run_id, name):
    found = []
    for record in records_of(folder, run_id):
        if record.WhichOneof("record_type") == "history":
            items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            if name in items:
                found.append((record.history.step.num, json.loads(items[name])))
    return found


def test_a_file_is_read_over_its_blocks_up_to_where_it_was_cut_off(tmp_path, monkeypatch):
    from wandb.proto.wandb_internal_pb2 import Record

    def part(kind, data):
        return struct.pack("<IHB", 0, len(data), kind) + data

    def found(*parts):
        (tmp_path / "one.wandb").write_bytes(bytes(7) + b"".join(parts))
        return [record.num for record in records(tmp_path / "one.wandb")]

    monkeypatch.setattr("graphsilo.experiments.tracking.wandb.BLOCK", 32)
    one, two, three = (Record(num=number).SerializeToString() for number in (1, 300, 3))
    # 7 + 9 + 10 bytes, and six are left of the block: no part's head
    assert found(part(1, one), part(1, two), bytes(6), part(1, three)) == [1, 300, 3]
    assert found(part(1, one), part(2, two[:1]), bytes(8), part(3, two[1:2]), part(4, two[2:]), part(1, one)) == [1]
    assert found(part(2, two[:1]), part(3, two[1:2]), part(4, two[2:]), bytes(1), part(1, one)) == [300, 1]
    assert found(part(1, one), part(1, two)[:-1]) == [1]


def test_offline_files_hold_the_rounds(tmp_path, small, monkeypatch):
    from graphsilo.experiments.tracking import WandB

    monkeypatch.delenv("WANDB_MODE", raising=False)
    tree = run(small(run__seeds=[3, 4]), out=tmp_path, observer=WandB("papers")).tree
    name = json.loads((tmp_path / "tracking.json").read_text())["run"]
    for seed in tree["seeds"]:
        wanted = [(row["round"], reported_scores(row)["validation"]["accuracy"]) for row in seed["rounds"]]
        assert curve(tmp_path, f"{name}-{seed['seed']}", "validation/accuracy") == wanted
    (facts,) = [one.run for one in records_of(tmp_path, f"{name}-3") if one.WhichOneof("record_type") == "run"][:1]
    assert (facts.project, facts.run_group, facts.job_type) == ("papers", name, "run")
    whole = list(records_of(tmp_path, f"{name}-all"))
    assert [one.artifact.name for one in whole if one.WhichOneof("record_type") == "artifact"] == [f"graphsilo-{name}"]


def test_every_round_once_after_kill_9(tmp_path, killed, monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    started = killed(tmp_path / "run", "wandb")
    started.go(until="1 5")
    started.go(resume=True)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    name = json.loads((tmp_path / "run" / "tracking.json").read_text())["run"]
    for seed in result["seeds"]:
        wanted = [(row["round"], reported_scores(row)["validation"]["accuracy"]) for row in seed["rounds"]]
        assert curve(tmp_path / "run", f"{name}-{seed['seed']}", "validation/accuracy") == wanted
