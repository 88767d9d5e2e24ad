"""``graphsilo explain``: what a method is, what crosses the boundary of a silo, and what can be set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from graphsilo.cli.terminal import bare_table, say, show, table
from graphsilo.errors import ConfigError, GraphsiloError, nearest
from graphsilo.experiments.options import groups, option_names
from graphsilo.settings import Settings
from graphsilo.settings.words import format_value, rows

if TYPE_CHECKING:
    from graphsilo.federation.interface import Handler
    from graphsilo.federation.message import FieldSpec, Message
    from graphsilo.federation.registry import Method

Facts: TypeAlias = Iterable[tuple[str, str]]
Row: TypeAlias = tuple[str, Any, str, str, str]


def explain_command(name: str) -> None:
    """Explain whatever has this name: a method, a model, a partition rule, a data set, a scenario, a metric, a section
    or a setting (``run.workers``); of a file of one's own (``FILE.py``) the method, model or rule in it.

    Raises:
        ConfigError: Nothing has this name.
    """
    if Path(name.partition(":")[0]).suffix == ".py":
        return _explain_own(name)
    from graphsilo.data.partition import rules
    from graphsilo.data.partition.graphs import graph_rules
    from graphsilo.data.silos.scenarios import SCENARIOS
    from graphsilo.data.sources import catalog
    from graphsilo.evaluate.metrics import METRICS
    from graphsilo.experiments.suggestions import find_settings
    from graphsilo.federation import registry
    from graphsilo.federation.absent import missing
    from graphsilo.models import registry as backbones

    networks = [known for model in backbones.names() for known in (model, *backbones.listing(model).aliases)]
    kinds: list[tuple[Iterable[str], Callable[[str], None]]] = [
        (registry.names(), _explain_method),
        (networks, _explain_model),
        ([rule.name for rule in rules()] + [rule.name for rule in graph_rules()], _explain_rule),
        ([name for item in catalog.names() for name in (item.name, *item.aliases)], _explain_data),
        (SCENARIOS, _explain_scenario),
        (METRICS, _explain_metric),
        (_sections(), _explain_section),
    ]
    wanted = {_plain(name), registry.resolve_name(name)}
    for names, explain in kinds:
        found = next((known for known in names if _plain(known) in wanted), None)
        if found is not None:
            return explain(found)
    if "." in name or "/" in name:
        return _explain_setting(name)
    if said := missing(name):
        raise ConfigError(said)
    every = [known for names, _ in kinds for known in names]
    hint = nearest(name, every)
    if settings := find_settings(name, {}):
        hint = f"did you mean {settings}?"
    elif not hint.startswith("did"):
        hint = "`graphsilo list methods` shows the methods; a setting is called by its section, too: method.mu."
    raise ConfigError(
        f"no method, model, partition rule, data set, scenario, metric or section is called '{name}'; {hint}"
    )


def _explain_own(file: str) -> None:
    """Explain what a file holds, the method before a model and that before a rule.

    Raises:
        ConfigError: It holds none of them, or cannot be imported.
    """
    from graphsilo.federation.own import NothingFound, bring

    faults = []
    for section, explain in (("method", _explain_method), ("model", _explain_model), ("partition", _explain_rule)):
        try:
            found = bring(section, file, named=True)
        except ConfigError as error:
            faults.append(error)
            continue
        assert found is not None
        return explain(found[0])
    raise next((fault for fault in faults if not isinstance(fault, NothingFound)), faults[0])


def _explain_setting(name: str) -> None:
    """Explain a setting by its dotted name; one that several methods, models or rules have, for each meaning of it.

    Raises:
        ConfigError: There is none.
    """
    from graphsilo.experiments.suggestions import every_group

    if "/" in name or Path(name).suffix in (".yaml", ".yml"):
        raise ConfigError(
            f"explain takes a name, such as fedavg or run.workers, or the FILE.py of a method, model or rule of your "
            f"own, and '{name}' names another file. `graphsilo silo explain` explains a silo.yaml."
        )
    section, _, key = _plain(name).partition(".")
    sections = _sections()
    if section not in sections:
        raise ConfigError(f"settings are called SECTION.NAME, and there is no section '{section}'; "
                          f"{nearest(section, sections)}")  # fmt: skip
    known: list[tuple[str, type[Settings]]] = [("", sections[section])]
    if key not in _names(sections[section]):
        known += [(owner, kind) for where, owner, kind in every_group() if where == section and owner]
    found: dict[tuple[Any, ...], list[str]] = {}
    for owner, kind in known:
        for setting, default, *rest in rows(kind):
            if setting == key and key in _names(kind):
                found.setdefault((format_value(default), *rest), []).append(owner)
    if not found:
        every = [f"{section}.{each}" for _, kind in known for each in _names(kind)]
        raise ConfigError(f"there is no setting '{name}'; {nearest(f'{section}.{key}', every)}")
    say(f"{section}.{key} ({_door(section, key)}):")
    for (default, values, meaning, source), owners in found.items():
        say()
        of = [("of", ", ".join(dict.fromkeys(owners)))] if owners != [""] else []
        origin = [("source", source)] if source else []
        _facts([*of, ("meaning", meaning), ("values", values), ("default", default), *origin])


def _names(kind: type[Settings]) -> set[str]:
    """Settings that a person says by themselves; ``options`` holds those that stand beside a name."""
    return kind.model_fields.keys() - {"options"}


def _door(section: str, name: str) -> str:
    """Where a setting is said."""
    from graphsilo.experiments.doors import FLAGS

    if section == "policy":
        return "policy in silo.yaml"
    flag = FLAGS.get(f"{section}.{name}")
    return f"--set {section}.{name}=VALUE{f' or {flag}' if flag else ''}"


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _sections() -> dict[str, type[Settings]]:
    from graphsilo.data.silos.perturb import PerturbOptions
    from graphsilo.experiments.config import SECTIONS
    from graphsilo.federation.policy import DisclosurePolicy

    return {**SECTIONS, "perturb": PerturbOptions, "policy": DisclosurePolicy}


def _explain_method(name: str) -> None:
    from graphsilo.federation import registry
    from graphsilo.federation.settings import LocalTrainingConfig
    from graphsilo.testing.conformance import handlers_of

    method = registry.load(name)
    say(f"{method.title} ({method.name}): {method.summary}")
    say()
    for text in method.paragraphs[2:]:
        say(text)
        say()
    views = {"own": "each client's own model", "aggregate": "the server's model"}
    _facts(
        [
            ("source", method.citation),
            ("tasks", ", ".join(method.tasks)),
            ("scored", " and ".join(views[view] for view in method.evaluates)),
            ("different models", "each client may run its own" if method.heterogeneous else "all clients run the same"),
            *([("paper's model", _model(method.model))] if method.model else []),
            ("server learns", _what_the_server_learns(method)),
        ]
    )
    handlers = handlers_of(method.client)
    common = {name for name, item in handlers.items() if item.function.__module__ == "graphsilo.federation.client"}
    own = {name: item for name, item in handlers.items() if name not in common}
    say()
    say(
        "What crosses the boundary of a silo. Nothing else can: a message carries only fields that declare what they "
        "disclose."
    )
    say()
    grid = table("client's step", "", "field", "discloses")
    for name, item in [*own.items(), *((name, handlers[name]) for name in sorted(common))]:
        _exchange(grid, name, item, method.config.model_fields)
    show(grid)
    say()
    # The method's own first, those that all methods have at the end.
    _settings("method", sorted(rows(method.config), key=lambda row: row[0] in LocalTrainingConfig.model_fields))


def _settings(section: str, found: Iterable[Row]) -> None:
    """The table of a group's settings."""
    found = list(found)
    if not found:
        say("It has no settings of its own.")
        return
    sourced = any(source for *_, source in found)
    say(f"Settings ({_door(section, 'NAME')}){', with the source of the default' if sourced else ''}:")
    say()
    grid = table("setting", "default", "values", "meaning")
    for name, default, values, meaning, source in found:
        grid.add_row(name, format_value(default), values, f"{meaning}{f' [{source}]' if source else ''}")
    show(grid)


def _what_the_server_learns(method: Method) -> str:
    """Whether sums are enough, found by running the method on small data."""
    if method.pooled:
        return "everything: all silos are pooled in one place; this is a reference, not a federation"
    from graphsilo.testing.conformance import needs_only_sums

    try:
        only_sums = needs_only_sums(method)
    except GraphsiloError as error:
        return f"not known: the trial run ended ({error})"
    if only_sums:
        return (
            "only sums over clients (seen in a trial run of two rounds); whoever adds them up sees each summand, "
            "unless run.secure_sums masks them"
        )
    return "single clients' answers, so sums alone are not enough (seen in a trial run of two rounds)"


def _exchange(grid: Any, name: str, item: Handler[Any, Any], settings: Collection[str]) -> None:
    from graphsilo.federation.compressing import compressible

    request, reply = item.types()
    for place, (direction, message) in enumerate((("receives", request), ("sends", reply))):
        fewer = compressible(request, reply) if direction == "sends" else ()
        for row, (field, discloses) in enumerate(_fields(message, fewer, settings)):
            grid.add_row(name if not place and not row else "", direction if not row else "", field, discloses)


def _model(model: Mapping[str, Any]) -> str:
    """The backbone, or that of each task, and its settings as ``--model`` and ``--set`` take them."""
    if "name" in model:
        text = _backbone(model)
    else:
        text = "; ".join(f"{_backbone(settings)} (task {task})" for task, settings in model.items())
    return f"{text}, unless --model names another"


def _backbone(settings: Mapping[str, Any]) -> str:
    options = ", ".join(f"model.{name}={value}" for name, value in settings.items() if name != "name")
    return f"{settings['name']}{f' with {options}' if options else ''}"


def _fields(message: type[Message], fewer: Sequence[FieldSpec], settings: Collection[str]) -> list[tuple[str, str]]:
    """The fields with what they disclose, in words; those that disclose the same stand together.

    Args:
        message: That has them.
        fewer: Those that ``run.compression`` is about.
        settings: The method's.
    """
    from graphsilo.federation.message import KINDS

    found: dict[str, list[str]] = {}
    for spec in message.specs():
        notes = []
        if spec.relayed:
            notes.append("passed on to other clients as it came")
        if spec.weighted_by:
            notes.append(f"in a sum times {spec.weighted_by}")
        if spec.optional:
            notes.append("may be left out")
        if spec.per_class:
            notes.append("class by class")
        if spec.recoverable:
            notes.append(f"gives features of single nodes away{spec.where_recoverable}")
        if spec in fewer:
            notes.append("with run.compression only their change, in fewer bytes")
        if only := [f"{name}={format_value(value)}" for name, value in spec.only_with if name in settings]:
            notes.append(f"only with {', '.join(only)}")
        found.setdefault(KINDS[spec.kind] + _format_notes(notes), []).append(_field(spec))
    return [(", ".join(names), text) for text, names in found.items()] or [("nothing but the call", "–")]


def _format_notes(notes: Sequence[str]) -> str:
    return f" ({', '.join(notes)})" if notes else ""


def _field(spec: FieldSpec) -> str:
    shape = "" if spec.shape is None else f" [{', '.join(map(str, spec.shape))}]"
    return f"{spec.name}{shape}"


def _explain_model(name: str) -> None:
    from graphsilo.models import registry as backbones

    item = backbones.entry(name)
    say(f"{item.name}: {item.summary}.")
    say()
    aliases = [("also called", ", ".join(item.aliases))] if item.aliases else []
    _facts([("source", item.paper), ("tasks", ", ".join(item.tasks)), *aliases])
    say()
    _settings("model", rows(item.settings))


def _explain_rule(name: str) -> None:
    from graphsilo.data.partition import rules
    from graphsilo.data.partition.graphs import graph_rules

    for rule in (found for found in rules() if found.name == name):
        say(f"{rule.name}: {rule.summary}.")
        say()
        _facts([*([("source", rule.source)] if rule.source else []), ("splits", rule.split)])
        say()
        _settings("partition", rows(rule.options))
    for shared in (found for found in graph_rules() if found.name == name):
        say()
        say(f"{shared.name}, for collections of graphs: {shared.summary}.")
        say()
        _settings("partition", rows(shared.options))


def _explain_data(name: str) -> None:
    from graphsilo.data.sources import catalog

    item = catalog.entry(name)
    say(f"{item.name}: {item.citation}")
    say()
    counts = ", ".join(f"{getattr(item, key):,} {key}" for key in ("nodes", "edges", "features", "classes"))
    _facts([("task", item.task), ("size", counts)])
    for kind in reversed(groups("data", name)):
        say()
        _settings("data", (row for row in rows(kind) if row[0] in option_names("data", name)))


def _explain_scenario(name: str) -> None:
    from graphsilo.data.silos.scenarios import SCENARIOS, ScenarioOptions, check_scenario

    say(f"{name}: {SCENARIOS[check_scenario(name)]}.")
    say()
    _settings("scenario", (row for row in rows(ScenarioOptions) if row[0] in option_names("scenario", name)))


def _explain_metric(name: str) -> None:
    from graphsilo.evaluate.metrics import GROUPS, METRICS

    item = METRICS[name]
    say(f"{item.title} ({name}): {item.meaning}.")
    say()
    of = [] if item.group == "all" else [("of", GROUPS[item.group][1])]
    chooses = "as evaluation.select_by" if item.selects else "no round"
    better = "more" if item.higher_is_better else "less"
    _facts([*of, ("tasks", ", ".join(item.tasks)), ("better", better), ("chooses", chooses)])


def _explain_section(name: str) -> None:
    kind = _sections()[name]
    say(f"{name}: {(kind.__doc__ or '').splitlines()[0]}")
    say()
    _settings(name, rows(kind))


def _facts(facts: Facts) -> None:
    show(bare_table(facts))
