"""Dask as a place for runs: a real scheduler, and real workers."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

import graphsilo
from graphsilo.errors import ConfigError, RunError
from graphsilo.experiments import batch
from graphsilo.experiments.batch import cluster as cluster_module
from graphsilo.experiments.batch.cluster import look_at
from graphsilo.experiments.storage import disk

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def local():
    """A scheduler and two workers, as threads of this process."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address=None
    ) as cluster:
        yield f"dask://{cluster.scheduler_address.removeprefix('tcp://')}"


def test_a_batch_on_dask_gives_the_numbers_of_one_process(local, tasks, numbers, notes, tmp_path):
    rates = (0.02, 1e30, 0.1)
    here, there = (tasks(*rates, to=tmp_path / name) for name in ("here", "there"))
    list(batch.run(here))
    found = {outcome.name: outcome.error for outcome in batch.run(there, local, follow=lambda: None)}
    assert [found[task.name] is None for task in there] == [True, False, True]
    assert "NaN" in found["lr1e+30"]
    assert numbers(here[0].out) == numbers(there[0].out)
    assert notes(there[0].out) == dict.fromkeys(range(1, 6), 1)
    assert not list((tmp_path / "there").glob(".shared-*"))


@pytest.mark.slow
def test_a_sweep_on_dask_is_the_sweep_of_one_process(local, tmp_path):
    grid = {"method.lr": [0.02, 0.1], "method.local_epochs": [1, 2]}
    here, there = (
        graphsilo.sweep(
            data="citation-sbm", partition="random", clients=2, rounds=2, seeds=[0], grid=grid,
            executor=executor, out=tmp_path / name, **{"data.nodes": 150},
        )
        for name, executor in (("here", None), ("there", local))
    )  # fmt: skip
    assert len(there.rows) == 4
    assert [(row.values, row.scores) for row in there.rows] == [(row.values, row.scores) for row in here.rows]


def test_a_run_on_dask_can_be_stopped(local, tasks, notes):
    (task,) = tasks(0.05, rounds=20_000)

    def look():
        if len(notes(task.out)) > 3:
            (task.out / "stop").touch()

    (outcome,) = batch.run([task], local, follow=look)
    assert outcome.stopped


def test_a_scheduler_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(cluster_module, "CONNECT_SECONDS", 1.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    start = time.monotonic()
    with pytest.raises(ConfigError, match=f"no Dask scheduler answers at {address}"):
        list(batch.run([], f"dask://{address}"))
    assert time.monotonic() - start < 10


def test_what_a_worker_sees_of_a_folder(tmp_path):
    assert look_at(str(tmp_path / "none")) == "absent"
    with disk.hold_folder(tmp_path / "held"):
        assert look_at(str(tmp_path / "held")) == "locked"
    assert look_at(str(tmp_path / "held")) == "unlocked", "nobody holds it: as where locks do not reach this machine"


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_nothing_and_repeats_nothing(cluster, tasks, numbers, notes, until, tmp_path):
    rates = (0.01, 0.02, 0.05, 0.1)
    rounds = 150
    here, there = (tasks(*rates, rounds=rounds, to=tmp_path / name) for name in ("here", "there"))
    list(batch.run(here))
    workers = [cluster.worker(), cluster.worker()]
    killed = []

    def kill():
        until(lambda: sum((task.out / "result.json").exists() for task in there) >= 1)
        until(lambda: len(notes(there[2].out)) > 50 or len(notes(there[3].out)) > 50)
        killed.append({task.out: (task.out / "result.json").stat().st_mtime_ns for task in there if _done(task)})
        workers[0].send_signal(signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    found = {outcome.name: outcome.error for outcome in batch.run(there, cluster.name, follow=lambda: None)}
    killer.join()
    assert found == dict.fromkeys((task.name for task in there), None)
    for alone, beside in zip(here, there, strict=True):
        assert numbers(alone.out) == numbers(beside.out)
        assert sorted(path.name for path in beside.out.iterdir()) == sorted(
            [path.name for path in alone.out.iterdir()] + ["validation.jsonl"]
        )
    done = killed[0]
    assert done
    assert {folder: (folder / "result.json").stat().st_mtime_ns for folder in done} == done, "finished is finished"
    twice = [task.name for task in there if set(notes(task.out).values()) != {1}]
    assert len(twice) <= 1, "only the run that was going on where the worker died was gone on with"
    assert all(set(notes(task.out)) == set(range(1, rounds + 1)) for task in there)


@pytest.mark.slow
def test_a_scheduler_that_goes_away_ends_the_batch_in_words(cluster, tasks, notes, until):
    cluster.worker()
    (task,) = tasks(0.05, rounds=100_000)

    def kill():
        until(lambda: len(notes(task.out)) > 5)
        cluster.process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(RunError, match="has gone"):
        list(batch.run([task], cluster.name, follow=lambda: None))
    killer.join()


@pytest.mark.slow
def test_workers_that_cannot_be_used_are_refused_in_words(cluster, tasks, tmp_path):
    with pytest.raises(ConfigError, match="has no workers"):
        list(batch.run(tasks(0.1), cluster.name))
    worker = cluster.worker(threads=2)
    with pytest.raises(ConfigError, match="up to 2 threads"):
        _when_it_is_there(cluster, tasks)
    worker.kill()
    worker.wait()
    package = tmp_path / "older" / "graphsilo"
    shutil.copytree(Path(graphsilo.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__about__.py").write_text('__version__ = "0.0.7"\n')
    cluster.worker(env={**os.environ, "PYTHONPATH": str(package.parent)})
    with pytest.raises(ConfigError, match=r"a process that should carry it out has 0\.0\.7"):
        _when_it_is_there(cluster, tasks)


def _when_it_is_there(cluster, tasks):
    """The scheduler takes some seconds to notice who comes and goes."""
    for _ in range(20):
        try:
            list(batch.run(tasks(0.1), cluster.name))
        except ConfigError as error:
            if "has no workers" not in str(error):
                raise
    raise AssertionError("no worker came")


def _done(task):
    return (task.out / "result.json").exists()
