"""Processes of this machine as a place for runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from graphsilo.errors import ConfigError
from graphsilo.experiments import batch
from graphsilo.experiments.batch.executors import InProcess, Processes, executor_of
from graphsilo.experiments.storage import disk


@pytest.mark.parametrize("text", ["processes:0", "processes:two", "process:2", "dask://", "dask:8786", "slurm"])
def test_what_names_no_executor_is_refused(text):
    with pytest.raises(ConfigError, match="an executor is processes:N or dask://HOST:PORT"):
        executor_of(text)


def test_the_places_of_this_machine():
    assert isinstance(executor_of(None), InProcess)
    assert executor_of("processes:3").slots == 3
    assert executor_of("processes").slots == os.cpu_count()


@pytest.mark.slow
def test_two_processes_give_the_numbers_of_one_and_one_that_dies_loses_nothing(tasks, numbers, notes, until, tmp_path):
    rates = (0.02, 0.05, 1e30, 0.1)
    rounds = 100
    here = tasks(*rates, rounds=rounds, to=tmp_path / "here")
    assert [outcome.error is None for outcome in batch.run(here)] == [True, True, False, True]
    there = tasks(*rates, rounds=rounds, to=tmp_path / "there")
    place = Processes(2)

    def kill():
        until(lambda: len(notes(there[0].out)) > 20)
        place._children[0].send_signal(signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    found = {outcome.name: outcome for outcome in batch.run(there, place, follow=lambda: None)}
    killer.join()
    place.close()
    assert [found[task.name].error is None for task in there] == [True, True, False, True]
    for alone, beside in zip(here, there, strict=True):
        if found[beside.name].error is None:
            assert numbers(alone.out) == numbers(beside.out)
            assert set(notes(beside.out)) == set(range(1, rounds + 1))
    again = [task.name for task in there[:2] if set(notes(task.out).values()) != {1}]
    assert len(again) <= 1, "what did not die is run once"  # either of the two may have had the process that died
    assert not list((tmp_path / "there").rglob("*.part"))


def test_a_run_whose_processes_keep_dying_has_failed(tasks, monkeypatch):
    """The process ends before it reads an order, every time."""
    started = []

    def die(arguments, **more):
        started.append(arguments)
        return popen([sys.executable, "-c", "import sys; sys.stdin.readline(); sys.exit(3)"], **more)

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", die)
    (outcome,) = batch.run(tasks(0.1), "processes:1")
    assert len(started) == 3
    assert outcome.error == ("its process ended with exit code 3, 3 times. Called again, the batch goes on with it.")


@pytest.mark.slow
def test_processes_end_with_whoever_leads_the_batch(tasks, notes, until):
    """kill -9 of the leader: the run that was going on ends as well, and can be gone on with."""
    (task,) = tasks(0.05, rounds=20_000)
    code = (
        "import sys, json, pathlib; from graphsilo.experiments import batch;"
        "name, config, out = json.loads(sys.argv[1]);"
        "list(batch.run([batch.Task(name, config, pathlib.Path(out))], 'processes:1', follow=lambda: None))"
    )
    given = json.dumps([task.name, dict(task.config), str(task.out)])
    with subprocess.Popen([sys.executable, "-c", code, given]) as leader:
        until(lambda: len(notes(task.out)) > 5)
        leader.kill()

    def free():
        try:
            with disk.hold_folder(task.out):
                return True
        except disk.BusyError:
            return False

    until(free, 20)
    assert not (task.out / "result.json").exists()
