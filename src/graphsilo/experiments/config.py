"""The configuration of a run: file, flags and ``--set``, checked before anything is loaded.

Every section may be written as its name alone (``data: Cora``). Settings that belong to the chosen rule, model or
method stand beside the name (``partition: {rule: dirichlet, alpha: 0.5}``, ``method: {name: fedprox, mu: 0.1}``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from graphsilo import documents
from graphsilo.errors import ConfigError, nearest, shown
from graphsilo.federation.settings import MethodConfig, Settings, setting
from graphsilo.types import Precision, Task

Mode = Literal["own_local", "own_global", "aggregate_local", "aggregate_global"]
REFERENCES = ("local", "global", "global_cut", "majority")
RunReference = Literal["local", "global", "global_cut", "majority"]
WITHOUT_EFFECT = frozenset({"workers", "resident_clients", "checkpoint_every", "references", "deadline", "patience"})
"""Settings of ``run`` that change no number."""
OUTPUTS = frozenset({"models", "embeddings"})
"""Settings of ``evaluation`` that only say what is written."""


class DataConfig(Settings):
    """Which data, and how it is prepared."""

    name: str | list[str] = setting(
        "citation-sbm",
        "data set by name, or a path to .yaml (own tables), .npz or .pt; a list gives each client one of them",
    )
    root: str | None = setting(None, "folder with PyG's raw files; else GRAPHSILO_DATA, else downloaded to the cache")
    seed: int = setting(0, "seed of generated data")
    options: dict[str, Any] = Field(default_factory=dict, description="largest_component, row_normalize, ...")


class PartitionConfig(Settings):
    """How the data is cut into clients."""

    rule: str = setting(
        "auto",
        "cutting rule; `graphsilo list partitions` shows all. auto: louvain for a graph, dirichlet for a collection of "
        "graphs, one each for several",
    )
    clients: int = setting(10, "number of clients", ge=1)
    seed: int = setting(2024, "seed of the cut and its splits; apart from the seeds of training", source="OpenFGL")
    split: str = setting("auto", "auto, stratified (per class), global or predefined")
    split_index: int = setting(0, "which of several predefined splits", ge=0)
    ratios: tuple[float, float, float] | None = setting(None, "shares of train, val, test; none: the data's usual ones")
    file: str | None = setting(None, "a stored partition (.npz) instead of a rule")
    options: dict[str, Any] = Field(default_factory=dict, description="settings of the rule, such as alpha")


class ScenarioConfig(Settings):
    """What is asked at test time."""

    name: Literal["seen", "unseen", "open", "inductive"] = setting("seen", "see the scenarios page")
    options: dict[str, Any] = Field(default_factory=dict, description="settings of the scenario, such as hops")


class ModelConfig(Settings):
    """Which network the clients run."""

    name: str = setting("gcn", "backbone; `graphsilo list models` shows all")
    options: dict[str, Any] = Field(default_factory=dict, description="settings of the backbone, such as hidden")
    pool: str | list[str | dict[str, Any]] | None = setting(
        None, "different models: a named pool (opfgl, fedpg) or a list; client k runs entry k modulo its length"
    )


class MethodSection(Settings):
    """Which method, with its settings."""

    name: str = setting("fedavg", "method; `graphsilo list methods` shows all")
    options: dict[str, Any] = Field(default_factory=dict, description="settings of the method, such as mu")


class EvaluationConfig(Settings):
    """What is measured, and when."""

    modes: list[Mode] | None = setting(
        None,
        "views and graphs to score: own_local, own_global, aggregate_local, aggregate_global; none: every view the "
        "method has, on the clients' own graphs",
    )
    every: int = setting(1, "evaluate every so many rounds, and after the last", ge=1)
    share: float = setting(
        1.0,
        "share of the clients that are scored, at least one; the same ones throughout, drawn from the seed",
        gt=0,
        le=1,
    )
    select_by: Literal["accuracy", "macro_f1", "auc"] = setting(
        "accuracy", "validation metric that picks the reported round; link prediction uses auc"
    )
    auc: bool = setting(False, "also the area under the ROC curve, computed at the clients")
    embeddings: bool = setting(False, "save every client's embeddings under embeddings/")
    study: bool = setting(
        False,
        "save what the method's clients tell of their inner workings under study/; private data may be part of it",
    )
    models: bool = setting(True, "save every client's best and last model under models/")


class RunSection(Settings):
    """How it is carried out."""

    seeds: list[int] = setting([0], "seeds of training, one result each", min_length=1)
    workers: int = setting(1, "processes that share the clients", ge=1)
    resident_clients: int | None = setting(
        None,
        "most clients in memory at once; the others are parked on disk until they are asked. none: as many as fit",
        ge=1,
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
    references: list[RunReference] = Field(
        default_factory=list, description="reference rows to add: local, global, global_cut, majority"
    )


SECTIONS: dict[str, type[Settings]] = {
    "data": DataConfig,
    "partition": PartitionConfig,
    "scenario": ScenarioConfig,
    "model": ModelConfig,
    "method": MethodSection,
    "evaluation": EvaluationConfig,
    "run": RunSection,
}
_NAMES = {"data": "name", "partition": "rule", "scenario": "name", "model": "name", "method": "name"}


class RunConfig(Settings):
    """Everything a run depends on."""

    task: Task | None = setting(None, "node, graph or link; none: what the data is made for")
    data: DataConfig = DataConfig()
    partition: PartitionConfig = PartitionConfig()
    scenario: ScenarioConfig = ScenarioConfig()
    perturb: dict[str, Any] = Field(default_factory=dict, description="sparsity and noise of the training data")
    model: ModelConfig = ModelConfig()
    method: MethodSection = MethodSection()
    evaluation: EvaluationConfig = EvaluationConfig()
    run: RunSection = RunSection()

    @classmethod
    def label(cls) -> str:
        return "the configuration"

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, values: Any) -> Any:
        """Accept names for sections, and settings beside the name."""
        if not isinstance(values, Mapping):
            raise ConfigError(f"a configuration is a table of sections; {type(values).__name__} came.")
        gathered = dict(values)
        for section, kind in SECTIONS.items():
            value = gathered.get(section)
            if section in _NAMES and isinstance(value, (str, list) if section == "data" else str):
                value = {_NAMES[section]: value}
            if isinstance(value, Mapping) and "options" in kind.model_fields:
                known = {key: item for key, item in value.items() if key in kind.model_fields}
                extra = {key: item for key, item in value.items() if key not in kind.model_fields}
                if extra:
                    known["options"] = {**dict(known.get("options") or {}), **extra}
                value = known
            if value is not None:
                gathered[section] = value
        return _with_backbone(gathered)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.run.seeds)) != len(self.run.seeds):
            raise ConfigError(f"run.seeds must differ; got {self.run.seeds}.")
        return self

    def method_config(self) -> MethodConfig:
        """The method's settings, typed.

        Raises:
            ConfigError: An unknown method or setting, or a value out of its bounds.
        """
        from graphsilo.federation import registry

        kind = registry.load(self.method.name).config
        found: MethodConfig = validated(kind, self.method.options, "method")
        return found

    def complete(self) -> dict[str, Any]:
        """As a plain tree with every default written out; what OUT/config.yaml holds."""
        tree = self.model_dump(mode="json")
        if self.partition.file is not None or isinstance(self.data.name, list):
            # The stored partition or the number of files decides; a default must not look like a wish.
            for name in {"rule", "clients"} - self.partition.model_fields_set:
                tree["partition"].pop(name)
        tree["method"] = {"name": self.method.name, **self.method_config().model_dump(mode="json")}
        for section in ("data", "partition", "scenario", "model"):
            options = tree[section].pop("options")
            tree[section].update({**self._defaults(section), **options})
        return tree

    def _defaults(self, section: str) -> dict[str, Any]:
        """Defaults of the settings beside a section's own, as plain values."""
        if section == "model" and self.model.pool is None:
            from graphsilo import models

            return dict(models.resolve(self.model.name, self.model.options).as_dict())
        if section == "scenario" and self.scenario.name != "seen":
            from graphsilo.data.scenarios import ScenarioOptions

            return {key: value for key, value in asdict(ScenarioOptions()).items() if key != "global_graph"}
        return {}


def _with_backbone(values: dict[str, Any]) -> dict[str, Any]:
    """The same, with the backbone of the method's paper where the user names none."""
    method, model = values.get("method"), values.get("model")
    name = method.get("name") if isinstance(method, Mapping) else getattr(method, "name", None)
    asked = model.keys() if isinstance(model, Mapping) else getattr(model, "model_fields_set", ())
    if not isinstance(name, str) or {"name", "pool"} & set(asked):
        return values
    from graphsilo.federation import registry

    usual = registry.usual_model(name)
    if usual and "name" not in usual:
        usual = usual.get(_likely_task(values))
    if usual:
        options = {key: value for key, value in usual.items() if key != "name"}
        chosen = model.get("options") if isinstance(model, Mapping) else getattr(model, "options", None)
        values["model"] = {"name": usual["name"], "options": {**options, **dict(chosen or {})}}
    return values


def _likely_task(values: Mapping[str, Any]) -> str:
    """The task asked for, or what the named data is made for; a file counts as a graph, as nobody has opened it yet."""
    from graphsilo.data import catalog

    data = values.get("data", DataConfig())
    name = data.get("name", DataConfig().name) if isinstance(data, Mapping) else getattr(data, "name", None)
    first = name[0] if isinstance(name, list) and name else name
    try:
        return str(values.get("task") or catalog.entry(str(first)).task)
    except ConfigError:
        return "node"  # a file, or an unknown name, which is refused where it is used


def validated(kind: type[Any], values: Mapping[str, Any], where: str) -> Any:
    """A settings object, with pydantic's complaint put into one paragraph.

    Args:
        kind: Class of the settings.
        values: By name, as a person wrote them.
        where: Dotted name of the section that they stand in; empty for a whole configuration.

    Raises:
        ConfigError: A setting is unknown or has a value it cannot have.
    """
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(_complaint(error, values, where)) from None


_WANTED = {
    "missing": "given, too",
    "model_type": "a table of settings",
    "dict_type": "a table of settings",
    "too_short": "longer",
    "too_long": "shorter",
}
"""Complaints of pydantic's that speak of Python, in other words."""


def _complaint(error: ValidationError, values: Mapping[str, Any], where: str) -> str:
    wanted: dict[str, list[str]] = {}
    came: dict[str, Any] = {}
    for item in error.errors():
        path = ".".join(part for part in (where, _typed_path(item["loc"], values)) if part) or "the configuration"
        text = _WANTED.get(item["type"], item["msg"]).removeprefix("Input should be ")
        if text not in wanted.setdefault(path, []):
            wanted[path].append(text)
        came.setdefault(path, item["input"])
    # A list with a wrong entry is also no text, where text would do; the entry says it better.
    told = [path for path in wanted if not any(other.startswith(f"{path}.") for other in wanted)]
    return " ".join(f"{path} should be {' or '.join(wanted[path])}; got {shown(came[path])}." for path in told[:5])


def _typed_path(loc: Sequence[str | int], values: Any) -> str:
    """Where a value stands, as ``--set`` would name it: without the parts that name a type instead of a setting."""
    parts: list[str] = []
    place = values
    for part in loc:
        inside = part in place if isinstance(place, Mapping) else isinstance(part, int) and isinstance(place, list)
        if inside:
            parts.append(str(part))
            # Only what is missing has no place: a list that is too short.
            place = place[part] if isinstance(place, Mapping) or int(part) < len(place) else None
    return ".".join(parts)


def load_config(
    path: str | Path | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
) -> RunConfig:
    """A configuration from a YAML file, flags, and ``section.setting=value`` assignments, the later ones winning.

    Args:
        path: A YAML file, or the ``config.yaml`` of an earlier run; None starts from the defaults.
        overrides: Dotted names to values, e.g. ``{"partition.clients": 5}``.
        assignments: As in ``--set``: ``method.mu=0.1``; the value is read as YAML.

    Raises:
        ConfigError: The file cannot be read, or a setting is unknown or out of bounds.
    """
    tree: dict[str, Any] = {}
    if path is not None:
        loaded = documents.read(path, "the configuration")
        if loaded is not None and not isinstance(loaded, Mapping):
            raise ConfigError(f"the configuration {path} must be a table of sections; it is a {type(loaded).__name__}.")
        tree = dict(loaded or {})
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    _make_way(tree, {**given, **dict(text.split("=", 1) for text in assignments if "=" in text)})
    for name, value in given.items():
        _assign(tree, name, value)
    for assignment in assignments:
        name, sign, text = assignment.partition("=")
        if not sign:
            raise ConfigError(f"--set needs NAME=VALUE, such as method.mu=0.1; got '{assignment}'.")
        _assign(tree, name.strip(), documents.parse(text, f"--set {assignment}"))
    return validated(RunConfig, tree, "")  # type: ignore[no-any-return]


def _make_way(tree: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Take out of a file's settings how the data is cut, where flags say so in another way.

    Raises:
        ConfigError: Flags name both a rule and a stored partition.
    """
    said = {name.strip(): value for name, value in given.items() if str(value).strip() not in ("null", "~", "")}
    section = said.get("partition")
    inner = dict(section) if isinstance(section, Mapping) else {}
    rule = said.get("partition.rule", inner.get("rule") if inner else section)
    stored = said.get("partition.file", inner.get("file"))
    if rule not in (None, "auto") and stored is not None:
        raise ConfigError(
            f"both the rule '{rule}' (--partition, partition.rule) and the stored partition {stored} "
            f"(--partition-file, partition.file) say how the data is cut. Give only one of them."
        )
    old = tree.get("partition")
    if stored is not None and isinstance(old, str):
        tree.pop("partition")
    elif isinstance(old, dict):
        for name in ("rule", "clients") if stored is not None else ("file",) if rule is not None else ():
            old.pop(name, None)


def _assign(tree: dict[str, Any], name: str, value: Any) -> None:
    parts = name.split(".")
    if parts[0] not in RunConfig.model_fields:
        raise ConfigError(f"unknown setting '{name}'; {_suggestion(tree, name)}")
    place = tree
    for depth, part in enumerate(parts[:-1]):
        inner = place.get(part)
        if isinstance(inner, str) and depth == 0 and part in _NAMES:
            inner = {_NAMES[part]: inner}
        if inner is None:
            inner = {}
        if not isinstance(inner, dict):
            raise ConfigError(f"'{'.'.join(parts[: depth + 1])}' is a value, not a section; '{name}' cannot be set.")
        place[part] = inner
        place = inner
    last = parts[-1]
    section = parts[0]
    key = _NAMES.get(section)
    if len(parts) == 1 and key and not isinstance(value, Mapping):
        _assign(tree, f"{section}.{key}", value)
        return
    if len(parts) == 2 and key == last and place.get(last) not in (None, value):
        # Another rule, model or method: what only the old one has does not belong to it.
        kind = SECTIONS[section]
        options = {**dict(place.pop("options", None) or {})}
        for item in [item for item in place if item not in kind.model_fields]:
            options[item] = place.pop(item)
        known = option_names(section, str(value)) if options else set()
        place.update({item: setting for item, setting in options.items() if item in known})
    place[last] = value


def _suggestion(tree: Mapping[str, Any], name: str) -> str:
    """Which setting was most likely meant by a name without its section, or with one that is not there."""
    known: dict[str, list[str]] = {}
    defaults = RunConfig()
    for section, kind in SECTIONS.items():
        key = _NAMES.get(section)
        names = [field for field in kind.model_fields if field not in ("name", "rule", "options")]
        if key is not None:
            inner = tree.get(section)
            chosen = inner.get(key) if isinstance(inner, Mapping) else inner
            names += sorted(option_names(section, str(chosen or getattr(getattr(defaults, section), key))))
        for field in dict.fromkeys(names):
            known.setdefault(field, []).append(f"{section}.{field}")
    word = name.rpartition(".")[2]
    head = nearest(name.partition(".")[0], RunConfig.model_fields)
    if word in known:
        return f"did you mean {' or '.join(map(repr, known[word]))}?"
    if head.startswith("did you mean"):
        return head
    places = []
    for section, others in _all_names():
        owners = [other for other in others if word in option_names(section, other)]
        more = f" and {len(owners) - 3} more" if len(owners) > 3 else ""
        places += [f"'{section}.{word}' (of {', '.join(owners[:3])}{more})"] if owners else []
    if places:
        return f"did you mean {' or '.join(places)}?"
    close = get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f"did you mean {' or '.join(map(repr, known[close[0]]))}?" if close else head


def _all_names() -> list[tuple[str, Sequence[str]]]:
    """Sections whose settings depend on a name, and every name there is."""
    from graphsilo import models
    from graphsilo.data import partition
    from graphsilo.federation import registry

    return [
        ("method", registry.names()),
        ("partition", [rule.name for rule in partition.rules()]),
        ("model", models.names()),
    ]


def option_names(section: str, name: str) -> set[str]:
    """Settings that a rule, model, method, data set or scenario has beside its section's own; empty if unknown."""
    try:
        if section == "method":
            from graphsilo.federation import registry

            return set(registry.load(name).config.model_fields)
        if section == "model":
            from graphsilo import models

            return set(models.resolve(name, {}).as_dict())
        if section == "partition":
            from graphsilo.data.partition import entry

            return {item.name for item in fields(entry(name).options)}
        if section == "data":
            from graphsilo.data.catalog import LoadOptions

            return {item.name for item in fields(LoadOptions)}
    except ConfigError:
        pass  # an unknown name is refused where it is used
    return set()
