"""The trials of one method, kept by Optuna in ``study.db``: drawn, followed, pruned and noted.

One process leads a study and it alone opens the storage; runs elsewhere speak to it through their folders. So a study
that was killed at any moment goes on: trials that were running are given out again with the settings that they had.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphsilo.errors import library
from graphsilo.evaluate.metrics import Metric
from graphsilo.experiments.batch import Outcome
from graphsilo.experiments.batch.orders import STOP, scores_of
from graphsilo.experiments.storage import reading
from graphsilo.experiments.tuning.record import MethodRecord, State, TrialRecord
from graphsilo.experiments.tuning.space import Parameters, Settings, Space
from graphsilo.federation import registry
from graphsilo.random import derive_seed, numpy_generator

if TYPE_CHECKING:
    import optuna


FIRST_AT_RANDOM = 5
"""Trials before the tree-structured Parzen estimator takes over from chance."""
ENDED_FIRST = 4
"""Trials that come to their end before one is pruned."""
SPARED = 3
"""One part in so many of a run is given to every trial: what learns slowly at first may be the best in the end."""
LOOKS = 12
"""How often a run's score is looked at; the storage takes longer to note one than a short round takes."""
LEAST_FOR_IMPORTANCE = 8
INDEX, SETTINGS, ERROR, CPU, ROUND = "trial", "settings", "error", "cpu_seconds", "round"
"""What a trial's record in the storage has of ours; one without an index was drawn twice and does not count."""


def optuna_module() -> Any:
    """Optuna, quiet.

    Raises:
        UnsupportedError: It is not installed.
    """
    optuna = library("optuna", "tune")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def storage_in(path: Path) -> Any:
    """Optuna's storage in a file: whole whenever the process or the machine stops, without a flush for every score.

    What a machine forgets that loses its power are the last trials of a study, which then are made again.
    """
    from sqlalchemy import event

    storage = optuna_module().storages.RDBStorage(f"sqlite:///{path}")

    def set_up(connection: Any, record: object) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    event.listen(storage.engine, "connect", set_up)
    storage.engine.dispose()  # connections from here on are set up
    return storage


@dataclass
class Trials:
    """The trials of one method.

    Args:
        storage: As ``storage_in`` opens it.
        method: Its name.
        space: What is drawn from.
        effective: All settings of a run with those that were drawn, as a text: two draws of one text are one trial.
        folder: Of a trial, by its number.
        budget: How many trials.
        sampler: As in ``plan.Plan``.
        seed: Of the sampler.
        prune: Whether trials that fall behind are stopped.
        steps: Rounds of a run, over all of its seeds.
        metric: Of validation.
    """

    storage: Any
    method: str
    space: Space
    effective: Callable[[Settings], str]
    folder: Callable[[int], Path]
    budget: int
    sampler: str
    seed: int
    prune: bool
    steps: int
    metric: Metric
    exhausted: bool = False
    _made: dict[str, str] = field(default_factory=dict)
    _live: dict[int, optuna.Trial] = field(default_factory=dict)
    _seen: dict[int, int] = field(default_factory=dict)  # the last step that the storage has of them

    def __post_init__(self) -> None:
        self._optuna = optuna_module()
        patience = self._optuna.pruners.MedianPruner(ENDED_FIRST)
        self._study = self._optuna.create_study(
            storage=self.storage,
            study_name=self.method,
            direction="maximize" if self.metric.higher_is_better else "minimize",
            pruner=patience if self.prune else self._optuna.pruners.NopPruner(),
            load_if_exists=True,
        )
        for frozen in self._study.get_trials(deepcopy=False):
            if frozen.state == self._optuna.trial.TrialState.RUNNING and INDEX not in frozen.user_attrs:
                self._study.tell(frozen.number, state=self._optuna.trial.TrialState.FAIL)  # killed while it was drawn
        self._points = self.space.points()
        if self.sampler == "grid":
            self.budget = 1 + len(self._points or [])

    # -- giving out ------------------------------------------------------------------------------------------------

    def take_up_unfinished(self) -> Iterator[tuple[int, Settings]]:
        """Trials that were running when the study was stopped, by number, with their settings."""
        for frozen in self._list_counted():
            if not frozen.state.is_finished():
                trial = self._optuna.trial.Trial(self._study, frozen._trial_id)
                index = frozen.user_attrs[INDEX]
                self._live[index], self._seen[index] = trial, max(frozen.intermediate_values, default=0)
                if self._seen[index]:
                    self._judge(index, trial)  # it may have been stopped between its score and the judgement
                yield index, json.loads(frozen.user_attrs[SETTINGS])

    def next(self) -> tuple[int, Settings] | None:
        """A new trial; None where the budget is spent or everything was tried."""
        counted = self._list_counted()
        index = len(counted)
        if index >= self.budget or self.exhausted:
            return None
        drawn = self._draw(index, {self._effective(json.loads(frozen.user_attrs[SETTINGS])) for frozen in counted})
        if drawn is None:
            self.exhausted = True
            return None
        trial, settings = drawn
        trial.set_user_attr(SETTINGS, json.dumps(settings))
        trial.set_user_attr(INDEX, index)  # from here on it counts
        self._live[index], self._seen[index] = trial, 0
        return index, settings

    def _draw(self, index: int, tried: set[str]) -> tuple[optuna.Trial, Settings] | None:
        """The settings of a trial, none of those tried before: as the configuration says, then as the sampler does.

        What is drawn depends on the seed, the number and the trials before; not on when the study was stopped.
        """
        if index == 0:
            return self._study.ask(), {}
        left = None
        if self._points is not None:
            left = [each for each in self._points if self._effective(self.space.settings(each)) not in tried]
            if not left:
                return None
        if self.sampler == "grid" and left is not None:
            return self._enqueue(left[0])
        seed = derive_seed(self.seed, "tune", self.method, index) % 2**32
        samplers = self._optuna.samplers
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
            self._study.sampler = (
                samplers.RandomSampler(seed=seed)
                if self.sampler == "random"
                else samplers.TPESampler(seed=seed, n_startup_trials=FIRST_AT_RANDOM)
            )
            trial = self._study.ask()
            settings = self.space.settings(self.space.draw(trial))
        if self._effective(settings) not in tried:
            return trial, settings
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        if left is None:
            return None  # an endless space that gives the same again is one of rounding
        return self._enqueue(left[int(numpy_generator(seed, "instead").integers(len(left)))])

    def _effective(self, settings: Settings) -> str:
        key = json.dumps(settings)
        if key not in self._made:
            self._made[key] = self.effective(settings)
        return self._made[key]

    def _enqueue(self, point: Parameters) -> tuple[optuna.Trial, Settings]:
        """A trial of certain settings."""
        self._study.enqueue_trial(self.space.to_sampler(point))
        trial = self._study.ask()
        return trial, self.space.settings(self.space.draw(trial))

    # -- following -------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Take in what running trials have noted, and have those that fall behind stop."""
        for index, trial in self._live.items():
            for step, value in sorted(scores_of(self.folder(index)).items()):
                if self._is_due(step, self._seen[index]):
                    trial.report(value, step)
                    self._seen[index] = step
                    self._judge(index, trial)

    def _is_due(self, step: int, last: int) -> bool:
        """Whether a score is looked at: one of each of ``LOOKS`` parts of a run, but of the first."""
        part = max(1, self.steps // LOOKS)
        return step >= self.steps // SPARED and step // part > last // part

    def _judge(self, index: int, trial: optuna.Trial) -> None:
        """Have a trial stop that has fallen behind and is not at its end anyway."""
        if self._seen[index] < self.steps and trial.should_prune():
            (self.folder(index) / STOP).touch()

    def tell(self, index: int, outcome: Outcome) -> None:
        """Note how a trial ended."""
        states = self._optuna.trial.TrialState
        trial = self._live.pop(index)
        if outcome.stopped:
            self._study.tell(trial, state=states.PRUNED)
        elif outcome.error is not None:
            trial.set_user_attr(ERROR, outcome.error)
            self._study.tell(trial, state=states.FAIL)
        else:
            found = reading.read_run(outcome.out)
            value = (
                None if found.summary.validation is None else found.summary.validation.metrics[self.metric.name].mean
            )
            trial.set_user_attr(CPU, sum(seed.cpu_seconds for seed in found.seeds))
            trial.set_user_attr(ROUND, sum(seed.last_round for seed in found.seeds))
            if value is None:
                trial.set_user_attr(ERROR, "no client had a validation score.")
            self._study.tell(trial, value, state=states.FAIL if value is None else None)

    # -- what came of it -------------------------------------------------------------------------------------------

    def record(self) -> MethodRecord:
        """The trials so far."""
        trials = [self._row(frozen) for frozen in self._list_counted()]
        ended = [each for each in trials if each.state == "complete" and each.validation is not None]
        best = max(ended, key=lambda each: (self.metric.goodness(each.validation or 0.0), -each.trial), default=None)
        return MethodRecord(
            name=self.method,
            title=registry.load(self.method).title,
            space=self.space.tree(),
            trials=trials,
            best=None if best is None else best.trial,
            importance=self._importance(len(ended)),
            exhausted=self.exhausted,
        )

    def _row(self, frozen: Any) -> TrialRecord:
        states = self._optuna.trial.TrialState
        known: dict[Any, State] = {states.COMPLETE: "complete", states.PRUNED: "pruned", states.FAIL: "failed"}
        state = known.get(frozen.state, "running")
        steps = frozen.intermediate_values
        value = steps[max(steps)] if state == "pruned" and steps else frozen.value
        return TrialRecord(
            trial=frozen.user_attrs[INDEX],
            settings=json.loads(frozen.user_attrs[SETTINGS]),
            state=state,
            validation=value,
            round=frozen.user_attrs.get(ROUND, max(steps, default=0)),
            cpu_seconds=frozen.user_attrs.get(CPU),
            error=frozen.user_attrs.get(ERROR),
        )

    def _importance(self, ended: int) -> dict[str, float] | None:
        """Share of each drawn setting in the spread of the scores; only of a space that is one table."""
        if ended < LEAST_FOR_IMPORTANCE or len(self.space.tables) > 1:
            return None
        try:
            evaluator = self._optuna.importance.FanovaImportanceEvaluator(seed=self.seed)
            found = self._optuna.importance.get_param_importances(self._study, evaluator=evaluator)
        except (ValueError, RuntimeError):
            return None  # all scores are the same, or too few trials drew
        return {name: float(value) for name, value in found.items()} or None

    def _list_counted(self) -> list[Any]:
        found = [each for each in self._study.get_trials(deepcopy=False) if INDEX in each.user_attrs]
        return sorted(found, key=lambda each: each.user_attrs[INDEX])
