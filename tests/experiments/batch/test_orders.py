"""Orders: plain values, carried out once, by the same version."""

from __future__ import annotations

import json
import threading

import pytest

from graphsilo.experiments import batch
from graphsilo.experiments.batch import Task
from graphsilo.experiments.batch.orders import carry_out, order_of, scores_of
from graphsilo.experiments.storage import disk


def test_scores_of_several_seeds_are_their_mean_so_far(tasks):
    (task,) = tasks(0.05, rounds=3)
    list(batch.run([Task(task.name, {**task.config, "run.seeds": [3, 4]}, task.out)], follow=lambda: None))
    scores = scores_of(task.out)
    assert list(scores) == [1, 2, 3, 4, 5, 6]
    result = json.loads((task.out / "result.json").read_text())
    best = [seed["validation"]["accuracy"] for seed in result["seeds"]]
    assert scores[3] == best[0]
    assert scores[6] == pytest.approx(sum(best) / 2, abs=1e-12)


def test_a_run_that_another_process_is_making_is_waited_for(tasks, monkeypatch):
    monkeypatch.setattr(batch.orders, "WAIT_SECONDS", 0.05)
    (task,) = tasks(0.05, rounds=2)
    free = threading.Event()
    held = threading.Event()

    def hold():
        with disk.hold_folder(task.out):
            held.set()
            free.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    threading.Timer(0.5, free.set).start()
    (outcome,) = batch.run([task])
    assert free.is_set()
    assert outcome.error is None
    holder.join()


def test_another_version_does_not_carry_out_an_order(tasks):
    (task,) = tasks(0.05)
    order = order_of(task.name, task.config, task.out, followed=False)
    reply = carry_out({**order, "graphsilo": "0.0.7"})
    assert "led by graphsilo 0.0.7" in reply["error"]
    assert not task.out.exists()


def test_an_order_holds_plain_values_and_absolute_paths(tasks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.npz").touch()
    order = order_of("one", {"data": "own.npz", "method": {"name": "fedprox", "mu": 0.1}}, "runs/one", followed=False)
    assert json.loads(json.dumps(order)) == order
    assert order["config"] == {"data.name": str(tmp_path / "own.npz"), "method.name": "fedprox", "method.mu": 0.1}
    assert order["out"] == str(tmp_path / "runs" / "one")
    assert order_of("one", {"data": "Cora"}, "runs/one", followed=False)["config"] == {"data.name": "Cora"}
