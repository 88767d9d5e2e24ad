"""Settings that were said and would change nothing: refused if the call said them itself, else left out and remarked.

A setting that others decide about says so itself: ``when`` of ``graphsilo.settings.setting``. What depends on more than
settings stands in one table below.
What a base configuration says for several runs is not held against one of them; what a call says for this run is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from graphsilo import models
from graphsilo.data.partition import Partition
from graphsilo.data.partition.rule import TimeOptions
from graphsilo.data.silos.scenarios import SCENARIOS, ScenarioOptions, options_of
from graphsilo.data.sources import catalog
from graphsilo.errors import ConfigError, quote
from graphsilo.evaluate.metrics import list_selecting
from graphsilo.experiments.config import ModelConfig, RunConfig
from graphsilo.experiments.doors import FLAGS, plain
from graphsilo.federation import registry
from graphsilo.federation.kinds import LARGEST_RATIO, LARGEST_WEIGHT
from graphsilo.federation.registry import Method
from graphsilo.federation.settings import LocalTrainingConfig, OneRoundConfig
from graphsilo.settings import Settings, above
from graphsilo.types import TARGET_TASKS, Task

Rule: TypeAlias = "Callable[[Case, Any], str | bool | None]"
"""Given a run and a setting's value: why it changes nothing; falsy where it may."""


@dataclass(frozen=True)
class Case:
    """What a run is, as far as it is known.

    Attributes:
        config: Its settings.
        task: None before the data is loaded, where nobody asked for one.
        partition: None before the data is cut, and between machines.
        out: Whether there is a folder for results.
        remote: Whether the silos are at other machines.
        classes: How many there are, 0 where targets are none; None before the data is known.
    """

    config: RunConfig
    task: Task | None = None
    partition: Partition | None = None
    out: bool = True
    remote: bool = False
    classes: int | None = None

    @property
    def stored(self) -> str | None:
        return self.config.partition.file

    @property
    def method(self) -> Method:
        return registry.load(self.config.method.name)

    @property
    def sources(self) -> set[str]:
        """Where the data comes from: ``file``, ``generated``, ``raw`` files of the catalog's, ``unknown``."""
        return {_source(name) for name in self.config.data.names}

    @property
    def one_each(self) -> bool:
        """Whether each client has a file of its own, so that nothing is cut."""
        return self.partition is not None and self.stored is None and self.partition.rule in ("files", "domains") and (
            isinstance(self.config.data.name, list)
        )  # fmt: skip

    @property
    def pooled(self) -> str | None:
        """Why there is nothing between silos, where all data is in one place."""
        if self.config.run.one_place:
            return "with run.one_place all data is in one place"
        return f"{self.method.title} has all data in one place" if self.method.pooled else None

    @property
    def apart(self) -> str | None:
        """Why nothing of training leaves a silo, where nothing does."""
        if self.config.run.alone:
            return "with run.alone nothing of training leaves a silo"
        leaves = f"of {self.method.title} nothing of training leaves a silo" if self.method.alone else None
        return self.pooled or leaves


def _source(name: str) -> str:
    if catalog.is_file(name):
        return "file"
    try:
        return "generated" if catalog.entry(name).generated else "raw"
    except ConfigError:
        return "unknown"  # it is refused where it is used


def drop_idle(config: RunConfig, *, task: Task | None = None, partition: Partition | None = None,
              out: Path | None = None, remote: bool = False, classes: int | None = None) -> RunConfig:  # fmt: skip
    """The configuration without settings that change nothing, and with remarks on them.

    Called before the data is loaded, and again when it is cut: the more is known, the more can be said.

    Args:
        config: As a person made it.
        task: What is asked, where it is known.
        partition: The cut, where it is known.
        out: Folder of the run.
        remote: Whether the silos are at other machines.
        classes: As a ``Case`` has them.

    Raises:
        ConfigError: The call itself said such a setting.
    """
    case = Case(config, task or config.task, partition, out is not None, remote, classes)
    idle = dict(_idle(case))
    refused = [name for name in idle if name in config.explicit and name not in _HARMLESS]
    if refused:
        raise ConfigError(" ".join(
            f"{_format_name(name)} would have no effect: {idle[name]}. Leave it out." for name in refused[:3]
        ))  # fmt: skip
    return _without(config, idle) if idle else config


def check_clients(config: RunConfig, partition: Partition) -> None:
    """Refuse a number of clients or a rule that was given where the data or a stored partition has already decided.

    Raises:
        ConfigError: They say something else than the partition that is used.
    """
    chosen = config.partition
    many = isinstance(config.data.name, list) and partition.rule in ("files", "domains")
    if chosen.file is None and not many:
        return
    cut_again = "Leave the number out, or cut the data again with a rule."
    remedy = (
        cut_again if chosen.file else "Leave the number out; run.without leaves out clients, or name fewer of them."
    )
    by = f"the stored partition {chosen.file} has" if chosen.file else "one client per data set or file makes"
    if config.is_given("partition.clients") and chosen.clients != partition.num_clients:
        raise ConfigError(
            f"{chosen.clients} clients are asked for (partition.clients, --clients), but {by} "
            f"{partition.num_clients}. {remedy}"
        )
    if chosen.file and config.is_given("partition.rule") and chosen.rule not in ("auto", partition.rule):
        raise ConfigError(
            f"partition.rule asks for '{chosen.rule}', but the stored partition {chosen.file} was cut by "
            f"'{partition.rule}' and is used as it is. Leave out the rule, or leave out partition.file to cut again."
        )


def _idle(case: Case) -> Iterator[tuple[str, str]]:
    for name in case.config.given:
        section, _, key = name.partition(".")
        if not key or (case.remote and section in ("data", "partition", "scenario", "perturb")):
            continue  # the silos hold their data; the run says so of whole sections
        value = case.config.get(name, _ABSENT)
        if value is not _ABSENT and (reason := next(_reasons(case, section, key, value), None)):
            yield name, reason


def _reasons(case: Case, section: str, key: str, value: Any) -> Iterator[str]:
    """Why a setting of this value changes nothing."""
    yield from filter(None, (family(case, key, value) for family in _FAMILIES.get(section, ())))
    yield from filter(None, (_unmet(case, section, key, value),))
    yield from filter(None, (rule(case, value) for rule in _TABLE.get(f"{section}.{key}", ())))


_ABSENT = object()
_HARMLESS = frozenset({"data.root", "run.device"})
"""What a person may well say for many runs alike."""
_ITEMS = {"run.references": ["alone"]}
"""Of a list the items that may be idle; the others stay."""


def _without(config: RunConfig, idle: Mapping[str, str]) -> RunConfig:
    said = {name: _ITEMS.get(name) or config.get(name) for name in idle}
    texts = [f"{name} {quote(said[name])} has no effect: {idle[name]}." for name in idle]
    others = {name: [item for item in config.get(name) if item not in _ITEMS[name]] for name in idle if name in _ITEMS}
    remarks = [*config.remarks, *(text for text in texts if text not in config.remarks)]
    return config.unset(idle).with_settings(others).model_copy(update={"remarks": remarks})


def _format_name(name: str) -> str:
    item = f"{', '.join(_ITEMS[name])} in " if name in _ITEMS else ""
    return f"{item}{name} ({FLAGS[name]})" if name in FLAGS else f"{item}{name}"


# -- what hangs on a choice ---------------------------------------------------------------------------------------


def _stored_cut(case: Case, key: str, value: Any) -> str | None:
    """A stored partition is used as it is; what it says itself may be repeated."""
    cut = case.partition
    if case.stored is None or cut is None or key in ("file", "clients"):
        return None
    if (key == "ratios" and case.task == "link") or (key == "features" and case.task == "graph"):
        return None  # asked of the clients' links, or of their graphs
    if key in ("rule", "split") and value == "auto":
        return None
    there = {"seed": cut.seed, "split": cut.split, "ratios": cut.ratios, "rule": cut.rule, **cut.options}
    if key in there and plain(there[key]) == plain(value):
        return None
    return f"the stored partition {case.stored} is used as it is ({key} {quote(there.get(key))})"


def _files(case: Case, key: str, value: Any) -> str | None:
    """One file for each client: nothing is cut."""
    if not case.one_each or key in (
        "clients",
        "file",
        "seed",
        "split",
        "split_index",
        "ratios",
        *TimeOptions.model_fields,
    ):
        return None
    if key == "features" and case.task == "graph":
        return None
    if key == "rule" and case.partition is not None and value in ("auto", case.partition.rule):
        return None
    return "each client has a data set of its own, so nothing is cut by a rule"


def _scenario(case: Case, key: str, value: Any) -> str | None:
    known = dict(ScenarioOptions())
    name = case.config.scenario.name
    if key not in known or key in options_of(name) or value == known[key]:
        return None
    able = [other for other in SCENARIOS if key in options_of(other)]
    owners = f"belongs to the scenario {' and '.join(map(repr, able))}" if able else "follows from evaluation.modes"
    return f"it {owners}, and this is '{name}'"


def _model(case: Case, key: str, value: Any) -> str | None:
    """A backbone that no row has, or a setting that every model of a pool has a value of its own for."""
    if not _any_backbone(case):
        return f"{case.method.title} has no backbone"
    pool = case.config.model.pool
    if pool is None or key in ModelConfig.model_fields:
        return None
    try:
        own = [extra for _, extra in models.pool(pool)] if isinstance(pool, str) else pool
    except ConfigError:
        return None  # an unknown pool is refused where it is used
    if own and all(isinstance(extra, Mapping) and key in extra for extra in own):
        return "every model of model.pool has a value of its own for it"
    return None


_FAMILIES = {"partition": (_stored_cut, _files), "scenario": (_scenario,), "model": (_model,)}


# -- what a setting declares ----------------------------------------------------------------------------------------


def _group(config: RunConfig, section: str) -> Settings:
    if section == "method":
        return config.method_config()
    if section == "perturb":
        from graphsilo.data.silos.perturb import PerturbOptions

        return PerturbOptions.of(config.perturb)
    if section == "scenario":
        return ScenarioOptions.of(config.scenario.options)
    found: Settings = getattr(config, section)
    return found


def _unmet(case: Case, section: str, key: str, value: Any) -> str | None:
    """The condition of a setting that does not hold, or that of a setting which its condition is about."""
    settings = _group(case.config, section)
    fields: Mapping[str, Any] = type(settings).model_fields
    if key not in fields or value == fields[key].default:
        return None
    extra = fields[key].json_schema_extra
    when: Mapping[str, Any] = extra.get("when", {}) if isinstance(extra, dict) else {}
    for other, allowed in when.items():
        now: Any = case.task if other == "task" else getattr(settings, other)
        if other == "task" and now is None:
            continue
        least = above(allowed)
        holds = now in allowed if least is None else (now or 0) > least
        if not holds:
            values = " or ".join(map(_format, allowed)) if least is None else allowed
            named = "the task" if other == "task" else f"{section}.{other}"
            return f"{named} is {_format(now)}; it is used where that is {values}"
        if reason := _unmet(case, section, other, _ABSENT):
            return reason
    return None


def _format(value: Any) -> str:
    """As a person would write it."""
    return "none" if value is None else quote(value)


# -- what depends on more than settings -----------------------------------------------------------------------------


def _sends_no_model(run: Case, value: Any) -> str | None:
    """Compression is about models that clients make of one that they were sent."""
    if value == "none":
        return None
    from graphsilo.federation.compressing import compressible
    from graphsilo.federation.interface import handlers_of

    if run.pooled:
        return f"{run.pooled}, and no silo sends anything"
    if any(compressible(*step.types()) for step in handlers_of(run.method.client).values()):
        return None
    return f"no answer of {run.method.title} holds a model that the client was sent"


def _nothing_to_choose(run: Case, value: Any) -> str | None:
    """``evaluation.model`` chooses between models that are scored on the same graphs."""
    modes: Sequence[str] = run.config.evaluation.modes or [f"{view}_local" for view in run.method.evaluates]
    alike = [mode for mode in modes if mode.partition("_")[2] == modes[0].partition("_")[2]]
    if value not in ("silo", "first") or len(alike) > 1:
        return None
    return f"there is one model of {run.method.title} that is scored ({alike[0]}), and nothing to choose from"


def _other_split(run: Case, value: Any) -> str | None:
    split = run.config.partition.split if run.partition is None else run.partition.split
    return None if split in ("auto", "predefined", "stored") else f"the split is {split}, not predefined"


def _other_metric(run: Case, value: Any) -> str | None:
    known = list_selecting(run.task)
    return None if value in (None, *known) else f"{run.task} prediction selects by {known[0]}"


def _no_moments(run: Case, value: Any) -> str | None:
    """Forgetting them at a download needs both."""
    settings = run.config.method_config()
    if not value or not isinstance(settings, LocalTrainingConfig):
        return None
    if run.method.alone or isinstance(settings, OneRoundConfig):
        return f"no client of {run.method.title} trains after a download"
    if settings.optimizer == "sgd" and not settings.momentum:
        return "method.optimizer is 'sgd' and method.momentum is 0, so that nothing is kept that could be forgotten"
    return None


def _one_round(run: Case, value: Any) -> str | None:
    """Where a method has one round, what is about several is about its reference rows, if that."""
    settings = run.config.method_config()
    if settings.total_rounds > 1 or settings.rounds == 1 or value is None:
        return None
    rows = _load_references(run)
    if not all(issubclass(row.config, OneRoundConfig) for row in rows):
        return None
    return f"{run.method.title} has exactly one round{', as has each of its reference rows' if rows else ''}"


def _load_references(run: Case) -> list[Method]:
    from graphsilo.experiments.simulation import reference_method

    return [registry.load(reference_method(run.config, name)) for name in run.config.run.references]


def _any_backbone(run: Case) -> bool:
    return any(method.backbone for method in (run.method, *_load_references(run)))


def _on_the_cpu(run: Case, value: Any) -> str | None:
    """Models are what is computed on another device."""
    if value == "cpu" or _any_backbone(run):
        return None
    return f"{run.method.title} has no backbone and computes on the CPU"


def _everybody_takes_part(run: Case, value: Any) -> str | None:
    """``participation`` is about who sends something, which the others then have."""
    if value == 1:
        return None
    once = run.method.alone and run.config.method_config().total_rounds == 1
    by_itself = f"{run.method.title} has every silo find its answer by itself, once" if once else None
    return _BY_ITSELF if run.config.run.alone else run.pooled or by_itself


def _no_outvoting(run: Case, value: Any) -> str | None:
    """A robust average is about what several clients send."""
    trains = f"{run.method.title} has every silo train by itself" if run.method.alone else None
    return None if value == "none" else _BY_ITSELF if run.config.run.alone else run.pooled or trains


def _no_sums(run: Case, value: Any) -> str | None:
    """Masks hide what is summed: of silos by themselves scores alone, and between machines the counts of classes."""
    summed = run.remote or run.config.evaluation.report == "federation"
    return run.apart if value and (run.pooled or not summed) and not run.config.run.references else None


def _row_twice(run: Case, value: Any) -> str | None:
    """By itself every silo is in the run already."""
    if "alone" not in value or run.pooled or not (run.config.run.alone or run.method.alone):
        return None
    what = "with run.alone" if run.config.run.alone else f"with {run.method.title}"
    return f"{what} every silo is by itself in the run already, and the row would repeat it"


def _bounds(usual: float) -> Rule:
    """A bound is about what silos send in training, also the one that holds all data."""
    return lambda run, value: None if value == usual or run.pooled or run.config.run.references else run.apart


def _where(condition: Rule, words: str) -> Rule:
    return lambda run, value: words if condition(run, value) else None


_BY_ITSELF = "with run.alone every client is in a federation of one"
_between = _where(lambda run, _: not run.remote, "it is about runs between machines")
_of_nodes = _where(
    lambda run, _: run.task == "graph", "graph classification splits whole graphs, per client and class"
)  # fmt: skip
_TABLE: dict[str, tuple[Rule, ...]] = {
    "data.seed": (
        _where(lambda run, _: not {"generated", "unknown"} & run.sources,
               "it is the seed of generated data, and this data is not generated"),
    ),
    "data.root": (
        _where(lambda run, _: not {"raw", "unknown"} & run.sources,
               "it is the folder of the catalog's raw files, and this data does not come from there"),
    ),
    "partition.split": (_of_nodes,),
    "partition.split_index": (_of_nodes, _other_split),
    "partition.split_by": (
        _where(lambda run, value: value is not None and run.config.partition.train_until is not None,
               "partition.train_until and val_until are dates for all"),
    ),
    "perturb.feature_sparsity": (
        _where(lambda run, value: value and run.config.scenario.name == "inductive",
               "in the scenario 'inductive' clients train on their training nodes alone, and it is about the others"),
    ),
    "method.reset_optimizer": (_no_moments,),
    "method.participation": (_everybody_takes_part,),
    **dict.fromkeys(
        ("method.epsilon", "method.delta", "method.noise"),
        (lambda run, value: value is not None and run.config.run.alone and run.apart,),
    ),
    # One place always answers; by themselves silos may still fail to say that they are done.
    "method.min_clients": (lambda run, value: value and not run.config.run.references and run.pooled,),
    "method.rounds": (_one_round,),
    "evaluation.every": (lambda run, value: (value or 1) > 1 and _one_round(run, value),),
    "evaluation.model": (_nothing_to_choose,),
    "evaluation.select_by": (_other_metric,),
    "evaluation.metrics": (
        _where(lambda run, value: value and run.task in ("link", *TARGET_TASKS),
               "metrics of your own are made of counts of classes, and this task has none"),
    ),
    "evaluation.embeddings": (  # between machines every job has a folder, and every site its own
        _where(lambda run, value: value and not run.out and not run.remote,
               "there is no folder to write to; name one as out"),
    ),
    **dict.fromkeys(("evaluation.threshold", "evaluation.threshold_by", "evaluation.budget"), (_where(
        lambda run, value: value not in (None, "f1", "silo") and run.classes not in (None, 2),
        "budget, threshold and calibration are of one of two classes, and this data has not two"),
    )),
    "run.device": (_on_the_cpu,),
    "run.early_stopping": (_one_round,),
    "run.deadline": (_between,),
    "run.patience": (_between,),
    "run.compression": (_sends_no_model,),
    "run.largest_ratio": (_between, _bounds(LARGEST_RATIO)),
    "run.largest_value": (_bounds(LARGEST_WEIGHT),),
    "run.secure_sums": (_no_sums,),
    "run.robust": (_no_outvoting,),
    "run.references": (_row_twice,),
}  # fmt: skip
