"""What a study has come to: ``OUT/tune.json``, drawn from its storage whenever a trial has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from graphsilo.errors import ConfigError, RunError
from graphsilo.experiments.storage import disk
from graphsilo.experiments.storage.records import Record, record_of, tree_of

FORMAT = 1
NAME = "tune.json"

State = Literal["running", "complete", "pruned", "failed"]


class TrialRecord(Record, kw_only=True):
    """One trial.

    Attributes:
        trial: Its number within the method; 0 has the settings that the configuration says.
        settings: What was drawn, by dotted name.
        validation: Best validation score of the run; of one that was pruned, until then.
        round: The last round, counted through all seeds; of one that was pruned, the one that it was judged by.
        cpu_seconds: Of the run.
        error: Why there is none.
    """

    trial: int
    settings: dict[str, Any]
    state: State
    validation: float | None = None
    round: int = 0
    cpu_seconds: float | None = None
    error: str | None = None


class MethodRecord(Record, kw_only=True):
    """The trials of one method.

    Attributes:
        space: What was drawn from; see ``graphsilo tune``.
        best: Number of the trial with the best validation score, the first of equals; None where none came to its end.
        importance: Share of each setting in the spread of the scores, where there are enough trials to say.
        exhausted: Whether everything that can be drawn was tried.
    """

    name: str
    title: str
    space: list[dict[str, Any]]
    trials: list[TrialRecord]
    best: int | None = None
    importance: dict[str, float] | None = None
    exhausted: bool = False

    @property
    def best_trial(self) -> TrialRecord | None:
        """The best, if there is one."""
        return next((each for each in self.trials if each.trial == self.best), None)

    def count(self, state: State) -> int:
        """How many trials are in a state."""
        return sum(each.state == state for each in self.trials)


class FinalRecord(Record, kw_only=True):
    """A run with other seeds after the study.

    Attributes:
        tuned: Whether with the best settings; else with those of the configuration.
        folder: Within the study's.
    """

    method: str
    tuned: bool
    folder: str
    error: str | None = None


class TuneRecord(Record, kw_only=True):
    """A study.

    Attributes:
        data: What trials are run on.
        metric: Of validation, by which trials are compared.
        budget: Trials of each method.
        sampler: ``tpe``, ``random`` or ``grid``.
        seed: Of the sampler.
        tuning_seeds, seeds: Of training, in trials and afterwards.
        methods: In the order in which they were named.
        final: What was run afterwards.
    """

    format: int
    graphsilo: str
    data: str = ""
    metric: str
    budget: int
    sampler: str
    seed: int
    pruned: bool
    tuning_seeds: list[int]
    seeds: list[int]
    methods: list[MethodRecord]
    final: list[FinalRecord]

    def __repr__(self) -> str:
        """What a person wants to see of it first."""
        best = ((method.title, method.best_trial) for method in self.methods)
        shown = (
            f"{title}: best is trial {trial.trial}, {trial.settings or 'as configured'}" if trial else f"{title}: none"
            for title, trial in best
        )
        return f"TuneRecord(by validation {self.metric}; {'; '.join(shown)})"


def write(folder: Path, record: TuneRecord) -> None:
    """Write ``tune.json``."""
    disk.write_json(folder / NAME, tree_of(record))


def read(folder: Path) -> TuneRecord:
    """Read it.

    Raises:
        ConfigError: The folder holds none.
        RunError: It is damaged or another version's.
    """
    if not (folder / NAME).is_file():
        raise ConfigError(
            f"a finished study was wanted in '{folder}', but {NAME} is not there: give the folder that "
            f"`graphsilo tune --out` wrote, or finish a study that was begun there with `graphsilo tune --resume --out "
            f"{folder}`."
        )
    tree = disk.read_json(folder / NAME, "the study")
    version = tree.get("format") if isinstance(tree, dict) else None
    if version != FORMAT:
        raise RunError(f"the study in {folder} has format {version!r}; this graphsilo reads {FORMAT}.")
    return record_of(tree, TuneRecord)
