"""``graphsilo explain``: what a method is, what crosses the boundary of a silo, and what can be set."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphsilo.cli.terminal import say, show, table
from graphsilo.errors import ConfigError, GraphsiloError, nearest

if TYPE_CHECKING:
    from graphsilo.federation.interface import Handler
    from graphsilo.federation.message import FieldSpec, Message
    from graphsilo.federation.registry import Method

Facts = Iterable[tuple[str, str]]


def explain_command(name: str) -> None:
    """Explain a method, or else a model, or else a partition rule.

    Raises:
        ConfigError: Nothing has this name.
    """
    from graphsilo.data.partition import rules
    from graphsilo.federation import registry
    from graphsilo.models import registry as backbones

    models = [known for model in backbones.names() for known in (model, *backbones.entry(model).aliases)]
    cuts = [rule.name for rule in rules()]
    wanted = name.lower()
    try:
        method = registry.load(name)
    except ConfigError:
        if wanted.replace("-", "_") in models:
            _explain_model(name)
        elif wanted in cuts:
            _explain_rule(wanted)
        else:
            known = [*registry.names(), *models, *cuts]
            raise ConfigError(
                f"no method, model or partition rule is called '{name}'; {nearest(name, known)} `graphsilo list "
                f"methods` shows the methods."
            ) from None
    else:
        _explain_method(method)


def _explain_method(method: Method) -> None:
    from graphsilo.testing.conformance import handlers_of

    say(f"{method.title} ({method.name}): {method.summary}")
    say()
    for text in _idea(method):
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
        _exchange(grid, name, item)
    show(grid)
    say()
    say("Settings (--set method.NAME=VALUE), with the source of the default:")
    say()
    grid = table("setting", "default", "values", "meaning")
    for name, setting in _own_first(method):
        extra = setting.json_schema_extra
        source = extra.get("source", "") if isinstance(extra, dict) else ""
        meaning = f"{setting.description or ''}{f' [{source}]' if source else ''}"
        grid.add_row(name, _value(setting.default), _values(setting.annotation, setting.metadata), meaning)
    show(grid)


def _idea(method: Method) -> list[str]:
    """What the method's file says below its title and its citation."""
    module = sys.modules.get(method.client.__module__)
    own = method.client.__module__ == method.config.__module__
    paragraphs = (inspect.getdoc(module) or "").split("\n\n") if module is not None and own else []
    return [" ".join(text.split()) for text in paragraphs[2:]]


def _own_first(method: Method) -> list[tuple[str, Any]]:
    """The method's settings, those that all methods have at the end."""
    from graphsilo.federation.settings import LocalTrainingConfig

    fields = method.config.model_fields.items()
    return sorted(fields, key=lambda item: item[0] in LocalTrainingConfig.model_fields)


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
        return "only sums over clients (seen in a trial run of two rounds); whoever adds them up sees each summand"
    return "single clients' answers, so sums alone are not enough (seen in a trial run of two rounds)"


def _exchange(grid: Any, name: str, item: Handler) -> None:
    request, reply = item.types()
    for place, (direction, message) in enumerate((("receives", request), ("sends", reply))):
        for row, (field, discloses) in enumerate(_fields(message)):
            grid.add_row(name if not place and not row else "", direction if not row else "", field, discloses)


def _model(model: Mapping[str, Any]) -> str:
    """The backbone, or that of each task, and its settings as ``--model`` and ``--set`` take them."""
    if "name" in model:
        told = _backbone(model)
    else:
        told = "; ".join(f"{_backbone(settings)} (task {task})" for task, settings in model.items())
    return f"{told}, unless --model names another"


def _backbone(settings: Mapping[str, Any]) -> str:
    options = ", ".join(f"model.{name}={value}" for name, value in settings.items() if name != "name")
    return f"{settings['name']}{f' with {options}' if options else ''}"


def _fields(message: type[Message]) -> list[tuple[str, str]]:
    """The fields with what they disclose, in words; those that disclose the same stand together."""
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
            notes.append("gives features of single nodes away")
        if spec.only_with:
            notes.append(f"only with {', '.join(f'{name}={_value(value)}' for name, value in spec.only_with)}")
        found.setdefault(KINDS[spec.kind] + _noted(notes), []).append(_field(spec))
    return [(", ".join(names), told) for told, names in found.items()] or [("nothing but the call", "–")]


def _noted(notes: Sequence[str]) -> str:
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
    say("Settings (--set model.NAME=VALUE):")
    say()
    grid = table("setting", "default", "values", "meaning")
    for setting, default, values, meaning in backbones.describe(name):
        grid.add_row(setting, _value(default), values, meaning)
    show(grid)


def _explain_rule(name: str) -> None:
    from graphsilo.data.partition import entry

    rule = entry(name)
    say(f"{rule.name}: {rule.summary}.")
    say()
    _facts([*([("source", rule.source)] if rule.source else []), ("splits", rule.split)])
    say()
    options = dataclasses.fields(rule.options)
    if not options:
        say("It has no settings of its own.")
        return
    say("Settings (--set partition.NAME=VALUE):")
    say()
    hints = typing.get_type_hints(rule.options)
    meanings = documented(rule.options)
    grid = table("setting", "default", "values", "meaning")
    for item in options:
        grid.add_row(item.name, _value(item.default), _values(hints[item.name], ()), meanings.get(item.name, ""))
    show(grid)


def documented(kind: type) -> dict[str, str]:
    """What the ``Attributes`` section of a class's docstring says of each.

    Example:
        >>> class Shape:
        ...     '''A shape.
        ...
        ...     Attributes:
        ...         sides: How many
        ...             there are.
        ...     '''
        >>> documented(Shape)
        {'sides': 'How many there are.'}
    """
    found: dict[str, str] = {}
    inside, name, indent = False, "", 0
    for line in (inspect.getdoc(kind) or "").splitlines():
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        if text == "Attributes:":
            inside = True
        elif inside and text and depth == 0:
            break
        elif inside and text:
            indent = indent or depth
            head, colon, rest = text.partition(": ")
            if depth == indent and colon and head.replace(", ", "").replace("_", "").isalnum():
                name = head
                found.update(dict.fromkeys(name.split(", "), rest))
            elif name:
                found.update({key: f"{found[key]} {text}" for key in name.split(", ")})
    return found


def _facts(facts: Facts) -> None:
    grid = table("", "")
    grid.show_header = False
    grid.box = None
    for name, text in facts:
        grid.add_row(name, text)
    show(grid)


def _value(value: Any) -> str:
    """A default as it is written in a configuration file."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


_WORDS = {int: "whole number", float: "number", bool: "true or false", str: "text"}
_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def _values(annotation: Any, bounds: Iterable[Any]) -> str:
    """The values that a setting takes, in words.

    Example:
        >>> _values(float, ())
        'number'
    """
    if typing.get_origin(annotation) is typing.Literal:
        return " | ".join(map(str, typing.get_args(annotation)))
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        parts = [part for part in typing.get_args(annotation) if part is not type(None)]
        text = " or ".join(_values(part, bounds) for part in parts)
        return f"{text}, or none" if len(parts) < len(typing.get_args(annotation)) else text
    if typing.get_origin(annotation) in (list, tuple):
        inner = [part for part in typing.get_args(annotation) if part is not Ellipsis]
        return f"list of {_values(inner[0], ())}" if inner else "list"
    limits = [
        f"{sign} {getattr(bound, key):g}"
        for bound in bounds
        for key, sign in _BOUNDS.items()
        if isinstance(getattr(bound, key, None), int | float)
    ]
    word = _WORDS.get(annotation, str(getattr(annotation, "__name__", annotation)))
    return f"{word} {', '.join(limits)}".strip()
