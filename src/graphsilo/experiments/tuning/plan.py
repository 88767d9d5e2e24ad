"""What is tuned, and how: checked before anything is run; ``study.yaml`` keeps it, so that a study goes on as begun."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

from graphsilo import documents
from graphsilo.errors import ConfigError
from graphsilo.evaluate.metrics import METRICS, Metric
from graphsilo.experiments.batch import Task
from graphsilo.experiments.checks import check_device, check_support
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.doors import RECORDS
from graphsilo.experiments.effects import drop_idle
from graphsilo.experiments.options import spell_name
from graphsilo.experiments.participants import selection_metric
from graphsilo.experiments.simulation import prepare
from graphsilo.experiments.storage import disk
from graphsilo.experiments.storage.resume import differences, some
from graphsilo.experiments.tuning.space import (
    MOST_POINTS,
    TUNED,
    Settings,
    Space,
    complete_base,
    spaces_of,
    trial_config,
)
from graphsilo.federation import registry
from graphsilo.settings import Count, setting
from graphsilo.settings import Settings as Group

STUDY = "study.yaml"
TRIALS = 16
FINAL_SEEDS = (0, 1, 2)
_LASTING = ("spaces", "tuning_seeds", "sampler", "sampler_seed", "prune")
"""What must not change within a study, beside the configuration."""
LEAN = {"models": False, "embeddings": False, "study": False}
"""What trials leave out: nobody looks at the models of most of them."""


class Plan(Group):
    """What a person asks of a study."""

    methods: list[str] = setting([], "by name; none stands for the configuration's own")
    space: Any = setting(None, "as `space.spaces_of` takes it; none: the short space of each method")
    trials: int = setting(TRIALS, "of each method, the first with the settings of the configuration", ge=1)
    tuning_seeds: list[Count] = setting([10], "of training, in trials", min_length=1)
    seeds: list[Count] | None = setting(
        None, "of training, in the runs afterwards; none: the configuration's if somebody said them", min_length=1
    )
    sampler: Literal["tpe", "random", "grid"] = setting("tpe", "grid tries everything")
    sampler_seed: Count = setting(0, "of what is drawn")
    prune: bool = setting(True, "whether trials that fall behind the median of the others are stopped")
    final: bool = setting(True, "whether the best settings are run with other seeds in the end")

    @classmethod
    def merge(cls, kept: Mapping[str, Any], **given: Any) -> Plan:
        """What is asked for now, and of what is not said, what a study was begun with.

        Args:
            kept: As ``read_study`` gives it; empty for a new study.
            given: By attribute; None is not said.

        Raises:
            ConfigError: One of them cannot be.
        """
        before = {name: kept[name] for name in (*_LASTING, "trials", "seeds") if name in kept}
        spaces = before.pop("spaces", None)
        if spaces is not None:
            before |= {"methods": list(spaces), "space": spaces}
        said = {name: value for name, value in given.items() if value is not None}
        if "methods" in said and "space" not in said and spaces is not None:
            before["space"] = {name: spaces[name] for name in said["methods"] if name in spaces} or None
        return cls(**{**before, **said})


@dataclass(frozen=True)
class Study:
    """A plan that was checked.

    Attributes:
        base: The complete configuration that trials change.
        plan: As it was asked for.
        spaces: By method, in order.
        seeds: Of training, in the runs afterwards.
        out: The study's folder.
    """

    base: dict[str, Any]
    plan: Plan
    spaces: dict[str, Space]
    seeds: list[int]
    out: Path

    @classmethod
    def of(cls, config: RunConfig, plan: Plan, out: Path) -> Study:
        """Check what can be checked without the data.

        Raises:
            ConfigError: The plan or a space cannot be.
        """
        seeds = list(plan.seeds or (config.run.seeds if config.is_given("run.seeds") else FINAL_SEEDS))
        if plan.final and set(seeds) & set(plan.tuning_seeds):
            raise ConfigError(
                f"settings are chosen with seeds that the runs afterwards do not have, so that these are new to them; "
                f"got {list(plan.tuning_seeds)} for tuning and {seeds} afterwards. Choose other seeds for one of them."
            )
        methods = list(dict.fromkeys(spell_name("method", name) for name in plan.methods or [config.method.name]))
        check_device(config.run.device, config.run.precision)
        # Settings of methods and models are looked at with each method's trials.
        others = [name for name in config.explicit if name.partition(".")[0] not in TUNED]
        drop_idle(config.with_explicit(others), out=Path(out))
        base = complete_base(config, methods)
        study = cls(base, plan, spaces_of(plan.space, methods, base), seeds, Path(out))
        endless = [name for name, space in study.spaces.items() if plan.sampler == "grid" and space.points() is None]
        if endless:
            raise ConfigError(
                f"a grid tries everything, and the space of {endless[0]} has more than {MOST_POINTS} "
                f"points: list fewer values, no ranges, or take another sampler."
            )
        return study

    def with_data(self) -> Self:
        """Load and cut the data, and refuse what no trial could do; returns the study with the metric that trials are
        compared by, where the data decides.

        Raises:
            ConfigError: There is nothing to validate on.
            GraphsiloError: As every trial would.
        """
        for name in self.spaces:
            config = drop_idle(self.config(name, {}), out=self.out)
            method = registry.load(name)
            simulation = prepare(config, method)
            check_support(config, method, config.method_config(), simulation)
            if not any(facts.get("val") for facts in simulation.cut["per_client"]):
                raise ConfigError(
                    "trials are compared by their validation score, and no client has anything to validate on: give "
                    "the validation set a share with partition.ratios, such as [0.6, 0.2, 0.2]."
                )
            chosen = selection_metric(config.evaluation, simulation).name
        return replace(self, base={**self.base, "evaluation": {**self.base["evaluation"], "select_by": chosen}})

    def claim(self) -> None:
        """Write what is tuned, or see that the folder's study is the same but for the number of trials.

        Raises:
            ConfigError: It is another one.
        """
        place, now = self.out / STUDY, self._tree()
        if place.exists():
            before = documents.read(place, "the study")
            changed = differences(before["config"], now["config"])
            changed += [
                f"{key} was {before.get(key)} when the study was begun and is {now[key]} now"
                for key in _LASTING
                if before.get(key) != now[key]
            ]
            if changed:
                raise ConfigError(
                    f"{self.out} holds another study: {some(changed)}. Its trials could not be compared: give what it "
                    f"was begun with (--resume alone does), or choose another --out."
                )
        disk.write_text(place, documents.write(now))

    def _tree(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "spaces": {name: space.tree() for name, space in self.spaces.items()},
            "trials": plan.trials,
            "tuning_seeds": list(plan.tuning_seeds),
            "seeds": self.seeds,
            "sampler": plan.sampler,
            "sampler_seed": plan.sampler_seed,
            "prune": plan.prune,
            "config": self.base,
        }

    @property
    def metric(self) -> Metric:
        """Of validation, by which trials are compared."""
        return METRICS[self.base["evaluation"]["select_by"]]

    def config(self, method: str, settings: Settings) -> RunConfig:
        """Of a trial."""
        run = {"seeds": list(self.plan.tuning_seeds), "references": []}
        return trial_config(self.base, method, settings, run=run, evaluation=LEAN)

    def effective(self, method: str, settings: Settings) -> str:
        """All settings of a trial, whoever said them, as a text: what is the same there is the same run."""
        tree = {name: value for name, value in self.config(method, settings).complete().items() if name not in RECORDS}
        return json.dumps(tree, sort_keys=True)

    def folder(self, method: str, trial: int) -> Path:
        """Of a trial."""
        return self.out / "trials" / method / f"{trial:03}"

    def task(self, method: str, trial: int, settings: Settings) -> Task:
        """A trial as a run of a batch."""
        return Task(f"{method} {trial}", self.config(method, settings).complete(), self.folder(method, trial))

    def final(self, method: str, settings: Settings, *, tuned: bool) -> Task:
        """A run after the study as one of a batch."""
        config = trial_config(self.base, method, settings, run={"seeds": self.seeds})
        folder = self.out / "final" / method / ("tuned" if tuned else "untuned")
        return Task(f"{method} {folder.name}", config.complete(), folder)


def read_space(config: str | PathLike[str] | Mapping[str, Any] | None) -> Any:
    """The space that a configuration holds under ``tune``, for this alone; None where it says nothing of it.

    Raises:
        ConfigError: It cannot be read.
    """
    if config is None:
        return None
    tree = config if isinstance(config, Mapping) else documents.read(Path(config), "the configuration")
    return tree.get("tune") if isinstance(tree, Mapping) else None


def read_study(out: Path) -> dict[str, Any]:
    """What ``study.yaml`` of a folder says.

    Raises:
        ConfigError: The folder holds no study.
    """
    if not (out / STUDY).exists():
        raise ConfigError(
            f"a study was wanted in '{out}', which holds no study: {STUDY} is not there. Give the folder that "
            f"`graphsilo tune --out` wrote."
        )
    return dict(documents.read(out / STUDY, "the study"))
