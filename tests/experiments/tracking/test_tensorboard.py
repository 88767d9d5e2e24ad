"""TensorBoard's event files, read back by its own reader."""

from __future__ import annotations

import json

import pytest

from graphsilo.experiments.runner import run
from graphsilo.experiments.storage.records import reported_scores
from graphsilo.experiments.tracking import TensorBoard

pytest.importorskip("tensorboard")


def scalars(folder, tag):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {event.step: event.value for event in events.Scalars(tag)}, events.Tags()


def test_curves_are_those_of_the_result(tmp_path, small):
    tree = run(
        small(run__seeds=[3, 4], run__references=["local"]), out=tmp_path, observer=TensorBoard(clients=True)
    ).tree
    for seed in tree["seeds"]:
        found, tags = scalars(tmp_path / "tensorboard" / f"seed-{seed['seed']}", "validation/accuracy")
        wanted = {row["round"]: pytest.approx(reported_scores(row)["validation"]["accuracy"]) for row in seed["rounds"]}
        assert found == wanted
        assert {"test/macro_f1", "upload_bytes", "setup/upload_bytes", "client/2/cpu_seconds"} <= set(tags["scalars"])
    assert scalars(tmp_path / "tensorboard" / "local" / "seed-3", "test/accuracy")[0].keys() == {1, 2, 3}


@pytest.mark.slow
def test_every_round_once_after_kill_9(tmp_path, killed):
    started = killed(tmp_path / "run", "tensorboard")
    started.go(until="1 5")
    started.go(resume=True)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    for seed in result["seeds"]:
        steps = [
            event.step
            for path in sorted((tmp_path / "run" / "tensorboard" / f"seed-{seed['seed']}").iterdir())
            for event in EventFileLoader(str(path)).Load()
            if any(value.tag == "validation/accuracy" for value in event.summary.value)
        ]
        assert steps == [1, 2, 3, 4, 5, 6]
