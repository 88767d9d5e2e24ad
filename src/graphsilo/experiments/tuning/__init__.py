"""Tuning: the same number of trials for every method, compared by validation alone; then runs with other seeds.

A study is a folder::

    study.yaml             what is tuned; a study that goes on must be the same
    study.db               the trials, kept by Optuna
    tune.json              the same for people and programs, see ``record``
    trials/METHOD/NUMBER   a run each
    final/METHOD/tuned     the best settings with the final seeds; beside it ``untuned``, as the configuration says
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from graphsilo.__about__ import __version__
from graphsilo.errors import ConfigError, RunError
from graphsilo.experiments import batch
from graphsilo.experiments.batch import Executor, Outcome, Task, executor_of
from graphsilo.experiments.batch.orders import TASK, order_of
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.storage import disk
from graphsilo.experiments.tuning import record
from graphsilo.experiments.tuning.plan import STUDY, Plan, Study, read_space, read_study
from graphsilo.experiments.tuning.record import FinalRecord, MethodRecord, TrialRecord, TuneRecord
from graphsilo.experiments.tuning.trials import Trials, optuna_module, storage_in

__all__ = ["Plan", "TuneRecord", "read_space", "read_study", "tune"]

OnResult: TypeAlias = Callable[[TuneRecord, str, "TrialRecord | FinalRecord"], None]


def tune(
    config: RunConfig,
    plan: Plan,
    *,
    out: Path,
    resume: bool = False,
    executor: str | None = None,
    on_result: OnResult = lambda found, method, ended: None,
    after_round: Callable[[], None] = lambda: None,
) -> TuneRecord:
    """Tune methods, and run what was found.

    Args:
        config: What every trial runs, but for what is drawn.
        plan: What is tuned.
        out: The study's folder.
        resume: Go on with the study that it holds.
        executor: Where runs are carried out; see ``batch.executor_of``.
        on_result: Called with the study so far, the method, and the trial or the run that has ended.
        after_round: Called after rounds of runs in this process, and now and then during others.

    Raises:
        ConfigError: The plan cannot be, or the folder holds another study.
        RunError: Every trial of a method failed.
        GraphsiloError: As every trial would, before one is begun.
    """
    optuna_module()
    study = Study.of(config, plan, Path(out))
    if not resume and (study.out / STUDY).exists():
        raise ConfigError(
            f"{out} already holds a study. Continue it with --resume, choose another --out, or delete the folder."
        )
    study = study.with_data()
    with (
        closing(executor_of(executor)) as place,
        disk.hold_folder(study.out, f"another process leads the study in {out}. Wait for it, or stop it."),
    ):
        study.claim()
        found = _make_trials(study, place, on_result, after_round)
        return _make_final(study, found, place, on_result, after_round) if plan.final else found


def _make_trials(study: Study, place: Executor, on_result: OnResult, after_round: Callable[[], None]) -> TuneRecord:
    """All trials of all methods, turn by turn."""
    storage = storage_in(study.out / "study.db")
    trials = {name: _trials_of(study, name, storage) for name in study.spaces}

    def follow() -> None:
        after_round()
        for each in trials.values():
            each.look()

    for outcome in batch.run(_tasks(study, trials), place, follow=follow):
        method, number = outcome.name.split()
        trials[method].tell(int(number), outcome)
        found = _write_record(study, [each.record() for each in trials.values()])
        ended = next(one for one in found.methods if one.name == method).trials[int(number)]
        on_result(found, method, ended)
    found = _write_record(study, [each.record() for each in trials.values()])
    for each in found.methods:
        if each.best is None:
            first = next((trial.error for trial in each.trials if trial.error), "none came to its end.")
            raise RunError(f"every trial of {each.name} failed, so there are no settings to choose. The first: {first}")
    return found


def _trials_of(study: Study, method: str, storage: Any) -> Trials:
    config = study.config(method, {})
    return Trials(
        storage=storage,
        method=method,
        space=study.spaces[method],
        effective=lambda settings: study.effective(method, settings),
        folder=lambda number: study.folder(method, number),
        budget=study.plan.trials,
        sampler=study.plan.sampler,
        seed=study.plan.sampler_seed,
        prune=study.plan.prune,
        steps=config.method_config().total_rounds * len(config.run.seeds),
        metric=study.metric,
    )


def _tasks(study: Study, trials: dict[str, Trials]) -> Iterator[Task]:
    """Trials that were running when the study was stopped, then a new one of each method in turn."""
    for method, each in trials.items():
        for number, settings in each.take_up_unfinished():
            yield study.task(method, number, settings)
    for _ in count():
        drawn = 0
        for method, each in trials.items():
            if new := each.next():
                drawn += 1
                yield study.task(method, *new)
        if not drawn:
            return


def _make_final(
    study: Study, found: TuneRecord, place: Executor, on_result: OnResult, after_round: Callable[[], None]
) -> TuneRecord:
    """The best settings of every method with other seeds, and beside them those that the configuration says."""
    tasks: dict[str, tuple[Task, MethodRecord, bool]] = {}
    for method in found.methods:
        for tuned in (True, False):
            best = method.best_trial
            if best is not None:
                task = study.final(method.name, best.settings if tuned else {}, tuned=tuned)
                _make_room(task)
                tasks[task.name] = task, method, tuned
    # Where nothing was better than what the configuration says, the two are one run, which is made once.
    twice = {name for name, (_, method, tuned) in tasks.items() if tuned and method.best == 0}
    ended: dict[str, FinalRecord] = {}
    for outcome in batch.run([task for name, (task, *_) in tasks.items() if name not in twice], place,
                             follow=after_round):  # fmt: skip
        _, method, _ = tasks[outcome.name]
        for name in (outcome.name, *(name for name in twice if tasks[name][1] is method)):
            task, _, tuned = tasks[name]
            if task.out != outcome.out and outcome.error is None and not task.out.exists():
                shutil.copytree(outcome.out, task.out)
            folder = str(task.out.relative_to(study.out))
            ended[name] = FinalRecord(method=method.name, tuned=tuned, folder=folder, error=outcome.error)
        found = _write_record(study, found.methods, [ended[name] for name in tasks if name in ended])
        on_result(found, method.name, ended[outcome.name])
    return found


def _make_room(task: Task) -> None:
    """Put aside what was run with the settings that were best before there were more trials."""
    try:
        before = json.loads((task.out / TASK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    if before != order_of(task.name, task.config, task.out, followed=False)["config"]:
        free = (task.out.with_name(f"{task.out.name}-{number}") for number in count(1))
        task.out.rename(next(place for place in free if not place.exists()))


def _write_record(study: Study, methods: list[MethodRecord], final: list[FinalRecord] | None = None) -> TuneRecord:
    """The study so far, also on disk."""
    plan = study.plan
    found = TuneRecord(
        format=record.FORMAT, graphsilo=__version__,
        data=", ".join([name] if isinstance(name := study.base["data"]["name"], str) else name),
        metric=study.metric.name, budget=plan.trials, sampler=plan.sampler, seed=plan.sampler_seed,
        pruned=plan.prune, tuning_seeds=list(plan.tuning_seeds), seeds=study.seeds, methods=methods,
        final=final or [],
    )  # fmt: skip
    record.write(study.out, found)
    return found
