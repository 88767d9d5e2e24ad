"""Batches: outcomes, what is skipped and gone on with, and orders to stop."""

from __future__ import annotations

import pytest

from graphsilo.errors import ConfigError
from graphsilo.experiments import batch
from graphsilo.experiments.batch import Task
from graphsilo.experiments.batch.orders import scores_of
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from kit.stopped import Stop, StopAfter


def test_every_task_has_an_outcome_and_one_that_fails_ends_no_other(tasks, tmp_path):
    good, diverging, after = tasks(0.01, 1e30, 0.1)
    refused = Task("refused", {**good.config, "method.mue": 1}, tmp_path / "refused")
    unread = Task("unread", {"mothod.mue": 1}, tmp_path / "unread")
    found = {outcome.name: outcome for outcome in batch.run([refused, diverging, unread, good, after])}
    assert list(found) == ["refused", "lr1e+30", "unread", "lr0.01", "lr0.1"]
    assert [name for name, outcome in found.items() if outcome.error is None] == ["lr0.01", "lr0.1"]
    assert "NaN" in found["lr1e+30"].error
    assert "unknown setting 'method.mue' for fedavg" in found["refused"].error
    assert "unknown setting 'mothod.mue'" in found["unread"].error
    assert not any(outcome.stopped for outcome in found.values())
    assert not (diverging.out / "result.json").exists()
    assert not (tmp_path / "refused").exists()
    assert not (tmp_path / "unread").exists()


def test_the_numbers_are_those_of_the_run_alone(tasks, numbers, tmp_path):
    (task,) = tasks(0.05)
    list(batch.run([task], follow=lambda: None))
    run(load_config(task.config), out=tmp_path / "alone")
    assert numbers(task.out) == numbers(tmp_path / "alone")


def test_a_finished_run_is_left_alone_and_other_settings_are_refused(tasks):
    (task,) = tasks(0.05)
    list(batch.run([task]))
    before = (task.out / "result.json").stat().st_mtime_ns
    assert [outcome.error for outcome in batch.run([task])] == [None]
    assert (task.out / "result.json").stat().st_mtime_ns == before
    (outcome,) = batch.run([Task(task.name, {**task.config, "method.lr": 0.06}, task.out)])
    assert "method.lr was 0.05 when the run was begun and is 0.06 now" in outcome.error
    assert (task.out / "result.json").stat().st_mtime_ns == before


def test_an_unfinished_run_is_gone_on_with(tasks, numbers, notes, tmp_path):
    (task,) = tasks(0.05, rounds=6)
    config = load_config({**task.config, "run.checkpoint_every": 2})
    with pytest.raises(Stop):
        run(config, out=task.out, observer=StopAfter(0, 5))
    list(batch.run([Task(task.name, {**task.config, "run.checkpoint_every": 2}, task.out)], follow=lambda: None))
    assert notes(task.out) == {5: 1, 6: 1}
    (whole,) = tasks(0.05, rounds=6, to=tmp_path / "whole")
    list(batch.run([whole]))
    assert numbers(task.out) == numbers(whole.out)


def test_two_tasks_do_not_share_a_folder_or_a_name(tasks):
    (task,) = tasks(0.05, rounds=1)
    with pytest.raises(ConfigError, match="folder of its own"):
        list(batch.run([task, Task("other", task.config, task.out / ".." / task.out.name)]))
    assert not task.out.exists(), "nothing is run before"
    with pytest.raises(ConfigError, match="name of its own"):
        list(batch.run([task, Task(task.name, task.config, task.out / "other")]))


def test_the_next_task_is_asked_for_after_the_last_outcome(tasks):
    told = []

    def asked():
        for task in tasks(0.01, 0.02, 0.03, rounds=1):
            told.append(("asked", task.name))
            yield task

    for outcome in batch.run(asked()):
        told.append(("told", outcome.name))
    names = ["lr0.01", "lr0.02", "lr0.03"]
    assert told == [(what, name) for name in names for what in ("asked", "told")]


def test_whoever_follows_sees_every_round_and_can_stop_the_run(tasks):
    (task,) = tasks(0.05, rounds=9)
    seen = []

    def look():
        scores = scores_of(task.out)
        if not seen or scores != seen[-1]:
            seen.append(scores)
        if 4 in scores:
            (task.out / "stop").touch()

    (outcome,) = batch.run([task], follow=look)
    assert outcome.stopped
    assert outcome.error is not None
    assert [max(scores) for scores in seen] == [1, 2, 3, 4]
    values = list(seen[-1].values())
    assert values == sorted(values), "the best so far never falls"
    (again,) = batch.run([task], follow=lambda: None)
    assert again.stopped, "the order to stop stands"
    assert max(scores_of(task.out)) == 4
