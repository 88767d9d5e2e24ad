"""The configuration of a run, checked before anything is loaded; ``doors`` says what wins.

Every section may be written as its name alone (``data: Cora``). Settings that belong to the chosen rule, model or
method stand beside the name (``partition: {rule: dirichlet, alpha: 0.5}``, ``method: {name: fedprox, mu: 0.1}``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias, get_args

from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator

from graphsilo.data.partition.rule import BY_TIME, Moment, Seed, SplitBy, SplitMode, TimeOptions
from graphsilo.errors import ConfigError, quote
from graphsilo.evaluate.metrics import list_selecting
from graphsilo.experiments.doors import (
    CHOICES,
    FLAGS,
    NAMES,
    OWN,
    RECORDS,
    Door,
    merge,
    own_of,
    own_tree,
    tree_of,
)
from graphsilo.federation.kinds import LARGEST_RATIO, LARGEST_WEIGHT
from graphsilo.federation.settings import MethodConfig
from graphsilo.settings import Count, Settings, setting
from graphsilo.types import COUNTING, Averaging, Compressing, Precision, Task

Mode = Literal["own_local", "own_global", "aggregate_local", "aggregate_global"]
if TYPE_CHECKING:
    from graphsilo.federation.own import Own

    SelectBy: TypeAlias = str
else:
    SelectBy = Literal[tuple(list_selecting())]
RunReference = Literal[
    "local", "alone", "trees_alone", "fedavg", "fedridge", "auto", "one_place", "global", "global_cut", "majority"
]
REFERENCES: tuple[RunReference, ...] = get_args(RunReference)
WITHOUT_EFFECT = frozenset({"workers", "resident_clients", "checkpoint_every", "references", "deadline", "patience"})
"""Settings of ``run`` that change no number."""
OUTPUTS = frozenset({"models", "embeddings", "metrics"})
"""Settings of ``evaluation`` that only say what is written."""
NO_NUMBERS = {f"run.{name}" for name in WITHOUT_EFFECT} | {f"evaluation.{name}" for name in OUTPUTS} | {"data.root"}
"""Settings in which a run that goes on may differ from what it was begun with."""


class DataConfig(Settings):
    """Which data, and how it is prepared."""

    name: str | list[str] = setting(
        "citation-sbm",
        "data set by name, or a path to .yaml (own tables), .npz or .pt; a list gives each client one of them",
    )
    root: str | None = setting(None, "folder with PyG's raw files; else GRAPHSILO_DATA, else downloaded to the cache")
    seed: Count = setting(0, "seed of generated data")
    options: dict[str, Any] = setting({}, "scale, scale_by, largest_component, ...")

    @property
    def names(self) -> list[str]:
        """Of one data set, or of several."""
        return self.name if isinstance(self.name, list) else [self.name]


class PartitionConfig(Settings):
    """How the data is cut into clients."""

    rule: str = setting(
        "auto",
        "cutting rule; `graphsilo list partitions` shows all. auto: louvain for a graph, dirichlet for a collection of "
        "graphs, one each for several",
    )
    clients: int = setting(10, "number of clients", ge=1)
    seed: Seed = setting(2024, "seed of the cut and its splits; apart from the seeds of training", source="OpenFGL")
    split: Literal["auto", SplitMode] = setting(
        "auto",
        "how each client's items are divided: per client and class, over all clients, as the data says, or by time",
    )
    split_index: int = setting(0, "which of several predefined splits", ge=0)
    train_until: Moment | None = setting(
        None, "the last day (or number) of training items; none: as ratios say", when=BY_TIME
    )
    val_until: Moment | None = setting(None, "and of validation items; later ones are for tests", when=BY_TIME)
    split_by: SplitBy | None = setting(
        None, "whose items the ratios count: each silo's own, or all silos' together, with the same dates for all; "
        "none: all items of data that is cut, each silo's where each has its own data", when=BY_TIME,
    )  # fmt: skip
    ratios: tuple[float, float, float] | None = setting(None, "shares of train, val, test; none: the data's usual ones")
    file: str | None = setting(None, "a stored partition (.npz) instead of a rule")
    options: dict[str, Any] = setting({}, "settings of the rule, such as alpha")

    @property
    def times(self) -> TimeOptions:
        """What it says of a split by time."""
        return TimeOptions(**{name: getattr(self, name) for name in TimeOptions.model_fields})


class ScenarioConfig(Settings):
    """What is asked at test time."""

    name: Literal["seen", "unseen", "open", "inductive", "receiver"] = setting("seen", "see the scenarios page")
    options: dict[str, Any] = setting({}, "settings of the scenario, such as hops")


class ModelConfig(Settings):
    """Which network the clients run."""

    name: str = setting("gcn", "backbone; `graphsilo list models` shows all")
    options: dict[str, Any] = setting({}, "settings of the backbone, such as hidden")
    pool: str | list[str | dict[str, Any]] | None = setting(
        None, "different models: a named pool (opfgl, fedpg) or a list; client k runs entry k modulo its length"
    )


class MethodSection(Settings):
    """Which method, with its settings."""

    name: str = setting("fedavg", "method; `graphsilo list methods` shows all")
    options: dict[str, Any] = setting({}, "settings of the method, such as mu")


class EvaluationConfig(Settings):
    """What is measured, and when."""

    modes: list[Mode] | None = setting(
        None,
        "views and graphs to score: own_local, own_global, aggregate_local, aggregate_global; none: every view the "
        "method has, on the clients' own graphs",
        min_length=1,
    )
    model: Literal["run", "silo", "own", "common", "first"] = setting(
        "run",
        "whose model is reported and predicts where a method has both, each silo's own and a common one. run: the one "
        "that validation prefers, seed by seed; silo: the same for each silo by itself; first: the one that its paper "
        "reports, or that evaluation.modes names first, which is taken where modes are named",
    )
    every: int | None = setting(
        None, "evaluate every so many rounds, and after the last; none: as often as the method's clients take a model, "
        "which is every round, or with auto the first and every fourth", ge=1,
    )  # fmt: skip
    share: float = setting(
        1.0,
        "share of the clients that are scored, at least one; the same ones throughout, drawn from the seed",
        gt=0,
        le=1,
    )
    select_by: SelectBy | None = setting(
        None,
        "validation metric that picks the reported round; none: accuracy, or macro_f1 where the commonest class has "
        "more than 80 % of all training items; auc for links",
    )
    report: Literal["silos", "federation"] = setting(
        "silos",
        "silos: every client's counts and scores are seen, and there is a worst client. federation: only their sums, "
        "masked where run.secure_sums is on",
    )
    auc: bool = setting(
        False,
        "also the area under the ROC curve and average precision, computed at the clients; by itself where the "
        "commonest class has more than 80 % of all training items",
    )
    positive: str | int | None = setting(
        None,
        "of two classes the one that is looked for, by name or number; none: the one that fewer training items have",
    )
    metrics: list[str] = setting(
        [], "metrics of your own, measured beside the others: FILE.py with METRIC = Metric(..., counts=...)"
    )
    budget: float | None = setting(
        None, "how many items a silo can look into, the highest scores first; below 1 a share of them; none: 1 %", gt=0
    )
    threshold: Literal["f1", "budget"] | Annotated[float, Field(gt=0, le=1)] = setting(
        "f1",
        "what the threshold that validation items choose is good for. f1: the largest F1; budget: no more than the "
        "budget is found; a number: the most that is found with this precision",
    )
    periods: list[Moment] | None = setting(
        None,
        "the last day before the first of the periods by which the test part is scored, and the last day of each; "
        "none: as times say, and between machines no periods",
    )
    threshold_by: Literal["silo", "federation"] = setting(
        "silo",
        "who chooses threshold and calibration. silo: each on its own validation items; federation: all silos have "
        "those that sums over them come to, of counts of validation scores in bins",
    )
    embeddings: bool = setting(False, "save every client's embeddings under embeddings/")
    study: bool = setting(
        False,
        "save what the method's clients tell of their inner workings under study/; private data may be part of it",
    )
    models: bool = setting(True, "save every client's best and last model under models/")

    @field_validator("modes")
    @classmethod
    def _drop_repeats(cls, value: list[Mode] | None) -> list[Mode] | None:
        """Said twice, one is still the same run."""
        return value and list(dict.fromkeys(value))


def format_seeds(count: int) -> str:
    """So many seeds as a person writes them."""
    if count < 2:
        return "[0, 1, 2]"
    listed = ", ".join(map(str, range(min(count, 3))))
    return f"[{listed}{', ...' if count > 3 else ''}] or range({count})"


def sort_clients(value: Any) -> list[int | str]:
    """Clients by number or name, each once, numbers first; one may stand for a list of one.

    Raises:
        ConfigError: It is something else.
    """
    given = list(value) if isinstance(value, list | tuple) else [value]
    if any(isinstance(who, bool) or not isinstance(who, int | str) for who in given):
        raise ConfigError(
            f"run.without should list clients by number or name, such as [3] or [er, icu]; got {quote(value)}."
        )
    return sorted(dict.fromkeys(given), key=lambda who: (isinstance(who, str), who))


class RunSection(Settings):
    """How it is carried out."""

    section: ClassVar[str] = "run"

    seeds: list[Count] = setting([0], "seeds of training, one result each", min_length=1)
    without: list[int | str] = setting(
        [],
        "clients that are left out, by number, or by name where they have names: cut, numbers and random "
        "streams of the others stay as they are, and the result is that of a federation that never had them",
    )
    workers: int = setting(1, "processes that share the clients", ge=1)
    resident_clients: int | None = setting(
        None,
        "most clients in memory at once; the others are offloaded on disk until they are asked. none: as many as fit",
        ge=1,
    )
    start: str | None = setting(
        None, "folder of a run with whose reported models this one begins, all but a last layer of another width"
    )
    device: str = setting("cpu", "cpu, or cuda where there is one")
    precision: Precision = setting(
        "float32",
        "bfloat16 computes the dense matrix products of the clients' models in that; all else stays float32",
    )
    checkpoint_every: int | None = setting(
        None, "rounds between checkpoints; 0 for none. none: as often as takes a twentieth of the time at most", ge=0
    )
    early_stopping: int | None = setting(None, "stop after so many evaluations without a better validation score", ge=1)
    deadline: float = setting(3600.0, "between machines: seconds that a silo may work on one answer", gt=0)
    patience: float = setting(
        120.0, "between machines: seconds that a silo may be silent before it counts as gone", gt=0
    )
    largest_value: float = setting(
        LARGEST_WEIGHT, "largest size of a model's weight that is taken from a client; one that sends more has failed",
        gt=0,
    )  # fmt: skip
    largest_ratio: float = setting(
        LARGEST_RATIO,
        "between machines: how many times as large as at half of the other silos a number may be; a silo that sends "
        "more has failed", ge=1,
    )  # fmt: skip
    secure_sums: bool = setting(
        False,
        "sums are made of masked answers, so that the coordinator sees nothing but the sum; methods that need single "
        "answers are refused. In one process this protects nobody: it is there to try and to measure",
    )
    compression: Compressing = setting(
        "none",
        "what clients send of a model that they were sent: all of it, its change in 8 bits (int8) or the largest "
        "entries of its change (topk); what is left out is added to their next change",
    )
    top_share: float = setting(
        0.01, "share of a model's entries that topk sends", gt=0, le=1, when={"compression": ("topk",)}
    )
    robust: Averaging = setting(
        "none",
        "what makes one model of the clients', so that some liars cannot move it at will: none is their weighted mean. "
        "trimmed_mean, median (both entry by entry) and krum (the mean of those closest to each other) count every "
        "client once; clip shortens changes to the median length. For methods that send averages alone",
        source="Yin et al. 2018; Blanchard et al. 2017; Sun et al. 2019",
    )
    liars: int = setting(1, "how many clients may lie in a round", ge=1, when={"robust": COUNTING})
    alone: bool = setting(
        False, "every client runs the method by itself, in a federation of one: nothing of training leaves it"
    )
    one_place: bool = setting(False, "the method runs on all silos' data in one place: what a federation could reach")
    references: list[RunReference] = setting(
        [],
        "reference rows to add, or none; data of tables has trees_alone where nothing is said. local (every silo "
        "trains its backbone by itself), alone (every silo runs this method by itself, as with run.alone), "
        "trees_alone, fedavg, fedridge, auto, one_place (this method on all data there, as with run.one_place), "
        "global (so the backbone), global_cut, majority",
    )

    @field_validator("seeds", mode="before")
    @classmethod
    def _refuse_count(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            raise ConfigError(
                f"run.seeds is a list of seeds; got {value}, which may mean seed {value} or {value} seeds. Say "
                f"[{value}] for the one, and {format_seeds(value)} for the other."
            )
        return value

    @field_validator("references", mode="before")
    @classmethod
    def _leave_out(cls, value: Any) -> Any:
        return [] if value in ("none", ["none"]) else value

    @field_validator("without", mode="before")
    @classmethod
    def _sort_clients(cls, value: Any) -> Any:
        return sort_clients(value)


SECTIONS: dict[str, type[Settings]] = {
    "data": DataConfig,
    "partition": PartitionConfig,
    "scenario": ScenarioConfig,
    "model": ModelConfig,
    "method": MethodSection,
    "evaluation": EvaluationConfig,
    "run": RunSection,
}


_OWN = {section: set(kind.model_fields) - {"options"} for section, kind in SECTIONS.items()}
"""Settings that a section has whatever is chosen in it."""


class RunConfig(Settings):
    """Everything a run depends on."""

    task: Task | None = setting(None, "node, graph, link, regression or multilabel; none: what the data is made for")
    data: DataConfig = DataConfig()
    partition: PartitionConfig = PartitionConfig()
    scenario: ScenarioConfig = ScenarioConfig()
    perturb: dict[str, Any] = setting({}, "sparsity and noise of the training data")
    model: ModelConfig = ModelConfig()
    method: MethodSection = MethodSection()
    evaluation: EvaluationConfig = EvaluationConfig()
    run: RunSection = RunSection()
    given: list[str] = setting([], "names of the settings that somebody said")
    remarks: list[str] = setting([], "what to know of settings that are not used")
    replaces: str = setting("", "fingerprint of the run that this one repeats with other clients")
    own: dict[str, dict[str, dict[str, str]]] = setting({}, "where methods, models and rules of one's own are found")
    _explicit: frozenset[str] = PrivateAttr(default=frozenset())

    def __repr__(self) -> str:
        cut = self.partition.file or f"{self.partition.rule}, {self.partition.clients} clients"
        return f"RunConfig({self.method.name} on {self.data.name}; {cut}; {self.model.name}; seeds {self.run.seeds})"

    @classmethod
    def _gather(cls, values: Any) -> dict[str, Any]:
        """Accept names for sections, and settings beside the name."""
        if not isinstance(values, Mapping):
            raise ConfigError(f"a configuration is a table of sections; {type(values).__name__} came.")
        named = {name: _as_tree(value) for name, value in values.items()}
        door = door_of("the configuration").say_all(named)
        given = door.values if door.given is None else door.given & door.values.keys()
        gathered = {**tree_of(door.values, given, door.remarks, door.replaces), "own": own_tree(door.own)}
        for section, kind in SECTIONS.items():
            value = gathered.get(section)
            if value is not None and "options" in kind.model_fields:
                known = {key: item for key, item in value.items() if key in kind.model_fields}
                extra = {key: item for key, item in value.items() if key not in kind.model_fields}
                gathered[section] = {**known, "options": extra} if extra else known
        return _with_backbone(gathered)

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, values: Any, make: Any) -> Self:
        tree = cls._gather(values)
        faults = _list_option_faults(tree, "perturb", "data", "partition", "scenario", "model")
        try:
            config: Self = make(tree)
            if len(set(config.run.seeds)) != len(config.run.seeds):
                raise ConfigError(f"run.seeds must differ; got {config.run.seeds}.")
        except (ConfigError, ValidationError) as error:
            from graphsilo.settings.words import refusal

            faults.insert(0, str(error) if isinstance(error, ConfigError) else refusal(cls, error, cls.section))
        if faults:
            raise ConfigError(" ".join([*faults, *_list_option_faults(tree, "method")]))
        return config

    def is_given(self, name: str) -> bool:
        """Whether somebody said a setting, or one of a section; defaults written out into a file do not count."""
        return any(said == name or said.startswith(f"{name}.") for said in self.given)

    @property
    def explicit(self) -> frozenset[str]:
        """Dotted names of what the call or command line said itself, not the file that it is based on."""
        return self._explicit

    def with_explicit(self, names: Iterable[str]) -> Self:
        """The same, as if the call had said these."""
        made = self.model_copy()
        made._explicit = frozenset(names)
        return made

    def get(self, name: str, missing: Any = None) -> Any:
        """A setting by dotted name, or what stands for one that it does not have."""
        section, _, key = name.partition(".")
        found = getattr(self, section)
        if not isinstance(found, dict):
            found = dict(found) if key in type(found).model_fields else getattr(found, "options", {})
        return found.get(key, missing)

    def with_settings(self, values: Mapping[str, Any]) -> Self:
        """The same with other settings, by dotted name: made by the program, so that nobody has said them."""
        update: dict[str, Any] = {}
        for name, value in values.items():
            section, _, key = name.partition(".")
            found = update.get(section, getattr(self, section))
            if isinstance(found, dict):
                update[section] = {**found, key: value}
                continue
            more = {key: value} if key in type(found).model_fields else {"options": {**found.options, key: value}}
            update[section] = found.model_copy(update=more)
        return self.model_copy(update=update)

    def unset(self, names: Iterable[str]) -> Self:
        """The same, as if nobody had said these settings of sections."""
        update: dict[str, Any] = {}
        for name in names:
            section, _, key = name.partition(".")
            found = update.get(section, getattr(self, section))
            said = found if isinstance(found, dict) else found.model_dump(exclude_unset=True)
            said = {other: value for other, value in said.items() if other != key}
            if "options" in said:  # they belong to what the name names
                rest = {} if key in ("name", "rule") else said["options"]
                said["options"] = {other: value for other, value in rest.items() if other != key}
            update[section] = said if isinstance(found, dict) else type(found)(**said)
        return self.model_copy(update={**update, "given": [name for name in self.given if name not in set(names)]})

    def method_config(self) -> MethodConfig:
        """The method's settings, typed.

        Raises:
            ConfigError: An unknown method or setting, or a value out of its bounds.
        """
        from graphsilo.federation import registry

        kind = registry.load(self.method.name).config
        return kind.of(self.method.options, owner=registry.resolve_name(self.method.name))

    def scored_rounds(self, settings: MethodConfig, last: int) -> list[int]:
        """The rounds after which models are scored: as ``evaluation.every`` or the method says, and the last one."""
        every = self.evaluation.every
        return [
            number for number in range(1, last + 1)
            if number == last or (settings.is_scored(number) if every is None else number % every == 0)
        ]  # fmt: skip

    def find_own(self, section: str) -> dict[str, Own]:
        """What the person brought along for a section and this configuration uses, by name."""
        names = {
            "method": [self.method.name],
            "partition": [] if self.partition.file is not None else [self.partition.rule],
            "model": self.model_names(),
            "metric": self.evaluation.metrics,
        }
        found = own_of(self.own).get(section, {})
        return {name: one for name, one in found.items() if name in names[section]}

    def model_names(self) -> list[str]:
        """The model, or those of a list of different ones; none where the list has a name."""
        pool = self.model.pool
        entries = [self.model.name] if pool is None else pool if isinstance(pool, list) else []
        return [str(item.get("name")) if isinstance(item, dict) else item for item in entries]

    def complete(self) -> dict[str, Any]:
        """As a plain tree with every default written out; what OUT/config.yaml holds.

        ``given`` names what was said: the others are defaults, and give way when another method or other data is
        chosen over this tree.
        """
        tree = self.model_dump(mode="json")
        if self.partition.file is not None or isinstance(self.data.name, list):
            # The stored partition or the number of files decides; a default must not look like a wish.
            for name in {"rule", "clients"} - self.partition.model_fields_set:
                tree["partition"].pop(name)
        tree["method"] = {"name": self.method.name, **self.method_config().model_dump(mode="json")}
        for section in ("data", "partition", "scenario", "model"):
            options = tree[section].pop("options")
            tree[section].update({**self._defaults(section), **options})
        if self.model.pool is not None:
            tree["model"].pop("name")  # the pool stands in its place
        flat = {f"{section}.{key}" for section in SECTIONS for key in tree[section]} | {
            "task",
            *(f"perturb.{key}" for key in self.perturb),
        }
        tree["own"] = own_tree({section: self.find_own(section) for section in OWN})
        records = {name: value for name in RECORDS if (value := tree.pop(name)) not in ("", {})}
        return {**tree, **records, "given": sorted(flat.intersection(self.given))}

    def _defaults(self, section: str) -> dict[str, Any]:
        """Defaults of the settings beside a section's own, as plain values."""
        if section == "model" and self.model.pool is None:
            from graphsilo import models

            return dict(models.resolve(self.model.name, self.model.options).as_dict())
        if section == "scenario":
            from graphsilo.data.silos.scenarios import ScenarioOptions, options_of

            known = dict(ScenarioOptions())
            return {name: known[name] for name in options_of(self.scenario.name)}
        return {}


SAID = frozenset(RunConfig.model_fields) - set(RECORDS)
"""What a person can say."""


def _list_option_faults(tree: Mapping[str, Any], *sections: str) -> list[str]:
    """What is wrong with what stands beside the names of sections; a method's are known by importing it alone."""
    asked = [tree[section] for section in sections if isinstance(tree.get(section), Mapping)]
    if not tree.get("perturb") and not any(part.get("options") for part in asked):
        return []
    from graphsilo.experiments.options import list_faults

    return list(list_faults(tree, sections))


def _as_tree(value: Any) -> Any:
    """A section as a table, where it came as an object."""
    return value.model_dump(exclude_unset=True) if isinstance(value, Settings) else value


def _with_backbone(values: dict[str, Any]) -> dict[str, Any]:
    """The same, with the backbone of the method's paper where the user names none."""
    name, model = values.get("method", {}).get("name"), values.get("model", {})
    if not isinstance(name, str) or {"name", "pool"} & model.keys():
        return values
    from graphsilo.federation import registry

    usual = registry.usual_model(name)
    if usual and "name" not in usual:
        usual = usual.get(_likely_task(values))
    if usual:
        options = {key: value for key, value in usual.items() if key != "name"}
        values["model"] = {"name": usual["name"], "options": {**options, **model.get("options", {})}}
    return values


def _likely_task(values: Mapping[str, Any]) -> str:
    """The task asked for, or what the named data is made for; a file counts as a graph, as nobody has opened it yet."""
    from graphsilo.data.sources import catalog

    name = values.get("data", {}).get("name", DataConfig().name)
    first = name[0] if isinstance(name, list) and name else name
    try:
        return str(values.get("task") or catalog.entry(str(first)).task)
    except ConfigError:
        return "node"  # a file, or an unknown name, which is refused where it is used


def load_config(
    base: str | Path | Mapping[str, Any] | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
) -> RunConfig:
    """A configuration from a YAML file and what is said over it.

    Args:
        base: A YAML file, the ``config.yaml`` of an earlier run, or a table; None starts from the defaults.
        overrides: Dotted names to values, e.g. ``{"partition.clients": 5}``; None says nothing.
        assignments: As in ``--set``: ``method.mu=0.1``; the value is read as YAML.

    Raises:
        ConfigError: The file cannot be read, a setting is unknown or out of bounds, or overrides and assignments
            contradict each other.
    """
    return configure(base, call_of(overrides, assignments))


def call_of(overrides: Mapping[str, Any] | None = None, assignments: Sequence[str] = ()) -> Door:
    """What a call or command line says; as ``load_config`` takes it.

    Raises:
        ConfigError: What is said cannot be, or contradicts itself.
    """
    call = door_of("this call", is_call=True)
    for name, value in (overrides or {}).items():
        if value is not None:
            flag = FLAGS.get(name if name not in NAMES else f"{name}.{NAMES[name]}")
            call.say(name, value, f"{flag} {value}" if flag and not isinstance(value, Mapping) else "")
    for assignment in assignments:
        name, sign, text = assignment.partition("=")
        if not sign:
            raise ConfigError(f"--set needs NAME=VALUE, such as method.mu=0.1; got '{assignment}'.")
        from graphsilo import documents

        call.say(name.strip(), documents.parse(text, f"--set {assignment}"), f"--set {assignment}")
    return call


def configure(base: str | Path | Mapping[str, Any] | None, call: Door) -> RunConfig:
    """A configuration from what it is based on and what the call says.

    Args:
        base: A file or a tree; None starts from the defaults.
        call: What was said, at a door of ``door_of``.

    Raises:
        ConfigError: The base cannot be read, or a setting is unknown, out of bounds or contradicts another.
    """
    tree = base if isinstance(base, Mapping) else {} if base is None else _read(Path(base))
    title = "the configuration" if base is None or isinstance(base, Mapping) else Path(base).name
    folder = None if base is None or isinstance(base, Mapping) else Path(base).parent
    door = door_of(title, folder)
    door.unknown = []
    door.say_all(tree)
    own = _admit_own(door, call)
    merged = merge(door, call, _OWN, _written_defaults)
    merged["own"] = own_tree(own)
    merged["replaces"] = _find_replaced(None if base is None or isinstance(base, Mapping) else Path(base), door, call)
    unknown = [*door.unknown, *(call.unknown or ())]
    try:
        config = RunConfig.of(merged)
        if unknown:
            config.method_config()  # else that is refused where it is used
    except ConfigError as error:
        unknown.append(str(error))
    if unknown:
        raise ConfigError(" ".join(unknown))
    return config.with_explicit(call.values)


def _find_replaced(path: Path | None, base: Door, call: Door) -> str:
    """Fingerprint of the run that the call repeats with other clients; empty where it does not."""
    before, now = (sort_clients(door.values.get("run.without") or []) for door in (base, call))
    if "run.without" not in call.values or now == before:
        # A run that goes on is still the same; one with other settings is another.
        return base.replaces if call.values.keys() <= NO_NUMBERS | {"run.without"} else ""
    if path is None or path.name != "config.yaml":
        return ""
    try:
        found = json.loads((path.parent / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(found.get("fingerprint", "")) if isinstance(found, dict) else ""


def _admit_own(base: Door, call: Door) -> dict[str, dict[str, Own]]:
    """What a person brought along to either, known to this process.

    Raises:
        ConfigError: What a run was begun with is not there any more, or is not what it was.
    """
    found = {section: dict(own) for section, own in base.own.items()}
    for section, own in call.own.items():
        found[section] = {**found.get(section, {}), **own}
    for section, own in base.own.items():
        for name, one in own.items():
            if base.given is not None and found[section][name] is one and not _is_renamed(section, call):
                from graphsilo.federation.own import admit

                admit(section, name, one)
    return found


def _is_renamed(section: str, call: Door) -> bool:
    """Whether the call chooses another name for the section."""
    names = [f"{section}.{key}" for key in CHOICES[section]] if section in CHOICES else ["evaluation.metrics"]
    return any(name in call.values for name in names)


def door_of(title: str, folder: Path | None = None, *, is_call: bool = False) -> Door:
    """A place where settings are said, under the name that remarks have for it; its paths are relative to a folder.

    Only at the door of a call does a file that is named run without having been trusted.
    """
    return Door(title, SAID, _suggest, folder, is_call=is_call)


def _read(path: Path) -> Mapping[str, Any]:
    """The tree of a YAML file.

    Raises:
        ConfigError: It cannot be read, or holds something else.
    """
    from graphsilo import documents

    loaded = documents.read(path, "the configuration")
    if loaded is not None and not isinstance(loaded, Mapping):
        raise ConfigError(f"the configuration {path} must be a table of sections; it is a {type(loaded).__name__}.")
    return {name: value for name, value in (loaded or {}).items() if name != "tune"}  # what that says is no run's


def _written_defaults(base: Door) -> frozenset[str]:
    """Names of a written-out configuration's values that are defaults: not said, and not changed by hand since."""
    given = base.given or frozenset()
    unsaid = base.values.keys() - given
    try:
        said = tree_of({name: value for name, value in base.values.items() if name in given}, given, ())
        there = door_of("the defaults").say_all(RunConfig.of(said).complete()).values
    except ConfigError:
        return frozenset(unsaid)
    # The run itself found these out from its data, for want of a wish.
    found = {"task", "partition.rule", "partition.clients"} if "partition.file" in given else {"task", "partition.rule"}
    if isinstance(base.values.get("data.name"), list):
        found.add("partition.clients")
    from graphsilo.experiments.options import option_names

    rule = option_names("partition", base.values.get("partition.rule"))
    found |= {f"partition.{name}" for name in rule}
    return frozenset(name for name in unsaid if name in found or there.get(name) == base.values[name])


def _suggest(name: str, said: Mapping[str, Any]) -> str:
    from graphsilo.experiments.suggestions import suggest

    return suggest(name, said)
