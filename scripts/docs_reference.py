"""Tables of the documentation that are made when the site is built: from the code, so that they cannot be out of date,
or from files of numbers.

A page asks for one with a comment such as ``<!-- settings: fedavg -->``. MkDocs loads this file as a hook.
"""

from __future__ import annotations

import ast
import csv
import importlib
import inspect
import re
import sys
import tomllib
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

MARKER = re.compile(r"^<!-- (?P<name>[a-z-]+)(?:: (?P<argument>[^ ]+))? -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls this with the text of every page.

    Pages install from a clone, ``'.[extra]'``; where graphsilo is on a package index, the site installs it from there.
    """
    if is_on_index():
        markdown = re.sub(r"'\.(\[[a-z,]+\])'", r"'graphsilo\1'", markdown)
    return MARKER.sub(_replace, markdown)


def on_config(config: Any) -> Any:
    """MkDocs calls this first: the page of every method stands behind the index of methods, by its family."""
    for section in config["nav"]:
        if "Methods" in section:
            section["Methods"][1:1] = method_pages()
    return config


def method_pages() -> list[dict[str, list[str]]]:
    """Pages of methods in the navigation, by family and title."""
    pages: dict[str, list[str]] = {}
    for item in methods_by_family():
        pages.setdefault(item.family.capitalize(), []).append(f"methods/{item.name}.md")
    return [{family: paths} for family, paths in pages.items()]


def is_on_index() -> bool:
    """Whether graphsilo is on a package index, as pyproject.toml has it."""
    from graphsilo.errors import PRIVATE

    text = (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    return PRIVATE not in tomllib.loads(text)["project"]["classifiers"]


def _replace(found: re.Match[str]) -> str:
    maker = TABLES.get(found["name"])
    if maker is None:
        raise ValueError(f"the page asks for '{found[0]}', but there is no table '{found['name']}'")
    return maker(found["argument"]) if found["argument"] else maker()


# -- what all tables are made of -----------------------------------------------------------------------------------


def table(head: Iterable[str], rows: Iterable[Iterable[Any]], *, align: str = "") -> str:
    """A Markdown table; ``align`` holds one letter per column, r for numbers."""
    head = list(head)
    lines = [
        "| " + " | ".join(head) + " |",
        "|" + "|".join("---:" if align[i : i + 1] == "r" else "---" for i in range(len(head))) + "|",
    ]
    lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ").strip()


def code(value: Any) -> str:
    """A value as it is written in a configuration file."""
    if value is None:
        return "none"
    if value is PydanticUndefined:
        return "(required)"
    if isinstance(value, BaseModel):
        return "(see below)"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        value = list(value)
    return f"`{value}`" if value != "" else "(empty)"


HEAD = ("setting", "default", "values", "meaning", "source of the default")


def group(kind: Any, section: str = "") -> str:
    """The table of a group of settings; without the column of sources where none has one."""
    from graphsilo.settings.words import rows

    found = list(rows(kind))
    if not found:
        return "It has no settings."
    width = 5 if any(source for *_, source in found) else 4
    dot = f"{section}." if section else ""
    return table(HEAD[:width], ((f"`{dot}{name}`", code(default), *rest)[:width] for name, default, *rest in found))


def named(path: str) -> str:
    """The settings of a class named as ``module:Class``."""
    module, _, name = path.partition(":")
    return group(getattr(importlib.import_module(module), name))


def chosen(names: str) -> str:
    """Some settings of a run, such as ``run.deadline,run.patience``."""
    from graphsilo.experiments.config import RunConfig
    from graphsilo.settings.words import rows

    made = []
    for place in names.split(","):
        section, _, wanted = place.partition(".")
        found = {name: row for name, *row in rows(RunConfig.model_fields[section].annotation)}
        default, *rest = found[wanted]
        made.append((f"`{place}`", code(default), *rest[:2]))
    return table(HEAD[:4], made)


# -- the tables ----------------------------------------------------------------------------------------------------


def from_an_index() -> str:
    """The first commands from a package index, once they work."""
    return "From the package index:\n\n```sh\npip install graphsilo\ngraphsilo demo\n```" if is_on_index() else ""


def catalog() -> str:
    """Every data set."""
    from graphsilo.data.partition.splits import GRAPH_RATIOS, ratios_for
    from graphsilo.data.sources import catalog

    def split(item: Any) -> str:
        return "/".join(f"{share:g}" for share in (GRAPH_RATIOS if item.task == "graph" else ratios_for(item.name)))

    def row(item: Any) -> tuple[str, ...]:
        counts = (item.nodes, item.edges, item.features, item.classes)
        if item.task == "graph":
            counts = (item.graphs, *counts)
        origin = "generated" if item.generated else f"`{item.pyg_class}`"
        source = item.citation.removeprefix("Generated: ").split(', "')[0]
        return (f"`{item.name}`", *(f"{value:,}" for value in counts), split(item), origin, source)

    node = [row(item) for item in catalog.names() if item.task == "node"]
    graph = [row(item) for item in catalog.names() if item.task == "graph"]
    tail = ("features", "classes", "train/val/test", "read by", "source")
    return "\n\n".join(
        [
            "### Node classification and link prediction",
            table(("name", "nodes", "edges", *tail), node, align=" rrrr"),
            "### Graph classification",
            table(("name", "graphs", "nodes", "edges", *tail), graph, align=" rrrrr"),
        ]
    )


def generator(name: str) -> str:
    """Settings of a generated data set."""
    from graphsilo.data.sources.generated import find_generator

    return group(find_generator(name))


def rules() -> str:
    """Partition rules for one graph, each with its options."""
    from graphsilo.data.partition import rules as known

    parts = []
    for rule in known():
        source = f" Source: {rule.source}." if rule.source else ""
        parts.append(f"### `{rule.name}`\n\n{_sentence(rule.summary)}{source}\n\n{group(rule.options)}")
    return "\n\n".join(parts)


def graph_rules() -> str:
    """Partition rules for collections of graphs."""
    from graphsilo.data.partition.graphs import graph_rules as known

    rows = []
    for rule in known():
        names = ", ".join(f"`{name}` = {code(field.default)}" for name, field in rule.options.model_fields.items())
        rows.append((f"`{rule.name}`", rule.summary, names or "none"))
    return table(("rule", "what it does", "settings"), rows)


def split_ratios() -> str:
    """Shares of train, val and test by data set."""
    from graphsilo.data.partition.splits import GRAPH_RATIOS, ratios_for
    from graphsilo.data.sources import catalog

    groups: dict[tuple[float, ...], list[str]] = {}
    for item in catalog.names():
        groups.setdefault(GRAPH_RATIOS if item.task == "graph" else ratios_for(item.name), []).append(item.name)
    return table(
        ("data", "train", "val", "test"),
        ((", ".join(names), *(f"{share:g}" for share in shares)) for shares, names in groups.items()),
        align=" rrr",
    )


def scenarios() -> str:
    """The scenarios."""
    from graphsilo.data.silos.scenarios import SCENARIOS

    return table(("name", "what is asked"), ((f"`{name}`", text) for name, text in SCENARIOS.items()))


def models() -> str:
    """Every model, then its settings."""
    from graphsilo import models as known

    entries = [known.entry(name) for name in known.names()]
    head = table(
        ("name", "what it is", "tasks", "source"),
        ((f"`{item.name}`", item.summary, ", ".join(item.tasks), item.paper) for item in entries),
    )
    parts = [head, "## Settings"]
    for item in entries:
        also = f" Also called {', '.join(f'`{alias}`' for alias in item.aliases)}." if item.aliases else ""
        parts.append(f"### `{item.name}`\n\n{_sentence(item.summary)}{also}\n\n{group(item.settings)}")
    return "\n\n".join(parts)


def refuse_weights() -> str:
    """Which backbones and methods do not run where edges have weights."""
    from graphsilo import models as known
    from graphsilo.federation import registry

    backbones = [f"`{name}`" for name in known.names() if not known.entry(name).edge_weights]
    methods = [item.title for item in (registry.load(name) for name in registry.names()) if not item.edge_weights]
    return table(("backbones", "methods"), [(", ".join(backbones), ", ".join(methods))])


def pools() -> str:
    """Pools of different models."""
    from graphsilo import models as known

    def words(name: str, changed: Mapping[str, Any]) -> str:
        inside = ", ".join(f"{key} {value}" for key, value in changed.items())
        return f"{name} ({inside})" if inside else name

    return table(
        ("pool", "models, client k takes number k modulo the length"),
        ((f"`{name}`", "; ".join(words(*item) for item in known.pool(name))) for name in known.pools()),
    )


def every_setting() -> str:
    """Every setting of every section, with those of each rule, model, method and data set."""
    from graphsilo.experiments.config import SECTIONS, RunConfig
    from graphsilo.experiments.suggestions import every_group
    from graphsilo.settings.words import rows

    top = [(f"`{name}`", code(default), *rest) for name, default, *rest in rows(RunConfig) if name not in SECTIONS]
    parts = ["## Top level", table(HEAD[:4], (row[:4] for row in top))]
    for section, owner, kind in every_group():
        parts += [f"### `{section}`, {owner}" if owner else f"## `{section}`", group(kind, section)]
    return "\n\n".join(parts)


def methods_by_family() -> list[Any]:
    """Every method, in the order of families and titles."""
    from graphsilo.federation import registry

    order = typing.get_args(registry.Family)
    return sorted(registry.listings(), key=lambda item: (order.index(item.family), item.title.lower()))


def methods() -> str:
    """Every method in a line."""
    from graphsilo.federation import registry

    def row(item: Any) -> tuple[str, ...]:
        sums = "–" if item.pooled else "no" if registry.load(item.name).config().single_answers else "yes"
        differ = "yes" if item.heterogeneous else "no"
        return (f"[{item.title}]({item.name}.md)", item.family, item.summary, ", ".join(item.tasks), sums, differ)

    head = ("method", "family", "what it does", "tasks", "only sums", "models may differ")
    return table(head, map(row, methods_by_family()))


def settings(name: str) -> str:
    """Settings of a method."""
    from graphsilo.federation import registry

    return group(registry.load(name).config)


def metrics() -> str:
    """Every score."""
    from graphsilo.evaluate.metrics import METRICS

    rows = [(f"`{item.name}`", item.meaning, ", ".join(item.tasks)) for item in METRICS.values()]
    return table(("score", "definition", "tasks"), rows)


def messages(name: str) -> str:
    """What a method's clients and server send each other."""
    from graphsilo.federation import registry
    from graphsilo.federation.client import ClientBase
    from graphsilo.federation.interface import Handler

    method = registry.load(name)
    own = [
        value
        for key in dir(method.client)
        if isinstance(value := getattr(method.client, key), Handler) and not hasattr(ClientBase, key)
    ]
    rows = []
    for handler in own:
        for direction, message in zip(("to the client", "to the server"), handler.types(), strict=True):
            specs = message.specs()
            if not specs:
                rows.append((f"`{handler.name}`", direction, f"`{message.__name__}`", "(nothing but the call)", "", ""))
            for spec in specs:
                rows.append((f"`{handler.name}`", direction, f"`{message.__name__}`", f"`{spec.name}`", _form(spec),
                             ", ".join((f"`{spec.kind}`", *_disclosure_notes(spec)))))  # fmt: skip
    return table(("handler", "direction", "message", "field", "content", "discloses"), rows)


def _disclosure_notes(spec: Any) -> Iterable[str]:
    """What else is declared of a field."""
    if spec.relayed:
        yield "passed on to other clients"
    elif spec.weighted_by:
        yield f"counted `{spec.weighted_by}` times in the sum"
    if spec.per_class:
        yield "class by class"
    if spec.recoverable:
        yield "gives features of single nodes away"
    if spec.only_with:
        yield "only with " + ", ".join(f"`{name}={code(value).strip('`')}`" for name, value in spec.only_with)


def _form(spec: Any) -> str:
    from graphsilo.settings.words import describe

    forms = {"tensor": "tensor", "tensors": "named tensors", "tensor_list": "list of tensors"}
    return forms.get(spec.form) or describe(spec.plain_type, signs=True)


def policy() -> str:
    """The keys of a silo's policy."""
    from graphsilo.federation.kinds import KINDS
    from graphsilo.federation.policy import DEFAULT_KINDS, DisclosurePolicy
    from graphsilo.settings.words import rows

    rest = " and ".join(f"`{kind}`" for kind in KINDS if kind not in DEFAULT_KINDS)
    told = ((f"`{name}`", f"all but {rest}" if name == "kinds" else code(default), *more)
            for name, default, *more, _ in rows(DisclosurePolicy))  # fmt: skip
    return table(("key", *HEAD[1:4]), told)


def kinds() -> str:
    """The kinds of disclosure."""
    from graphsilo.federation.message import KINDS

    return table(("kind", "what it is"), ((f"`{name}`", text) for name, text in KINDS.items()))


def attacks() -> str:
    """What attacks found, a table for each attacker."""
    from graphsilo.attacks.findings import Finding, load
    from graphsilo.federation import registry

    names = {"coordinator": "The coordinator", "silo": "Another silo", "reader": "A reader of the saved model"}
    found = load()
    parts = []

    def column(each: Finding) -> str:
        return each.attack + (", 1 % false alarms" if each.figure.startswith("share of training nodes") else "")

    def cell(each: Finding | None) -> str:
        if each is None:
            return ""
        text = f"{each.value:.2f}" if each.value >= 0.1 or not each.value else f"{each.value:.3f}"
        return f"**{text}**" if each.succeeds else text

    for attacker, title in names.items():
        mine = [each for each in found if each.attacker == attacker]
        columns = sorted({column(each) for each in mine})
        rows = {}
        for each in mine:
            label = registry.load(each.method).title + (f", {each.variant}" if each.variant else "")
            rows.setdefault(label, {})[column(each)] = each
        prior = ["without the run"]
        for name in columns:
            known = sorted({f"{each.prior:.2f}" for each in mine if column(each) == name and each.prior is not None})
            prior.append(known[0] if len(set(known)) == 1 else f"{known[0]} to {known[-1]}" if known else "")
        lines = [prior, *([label, *(cell(row.get(name)) for name in columns)] for label, row in rows.items())]
        parts.append(f"### {title}\n\n" + table(("method", *columns), lines, align=" " + "r" * len(columns)))
    return "\n\n".join(parts) if found else "Nothing was measured yet."


def decisions() -> str:
    """Every decision by its first line."""
    folder = Path(__file__).resolve().parents[1] / "docs" / "decisions"
    lines = ((path.name, path.read_text(encoding="utf-8").splitlines()[0]) for path in sorted(folder.glob("0*.md")))
    return "\n".join(f"- [{line.removeprefix('# ')}]({name})" for name, line in lines)


def secure_sums() -> str:
    """Which methods sums are enough for, and what the others need."""
    from graphsilo.federation import registry

    found = [registry.load(name) for name in registry.names()]
    needs = {method.title: method.config().single_answers for method in found if not method.pooled}
    enough = ", ".join(title for title, need in needs.items() if not need)
    rows = [(enough, "nothing but sums: they run"), *((title, need) for title, need in needs.items() if need)]
    return table(("method", "what its server needs"), rows)


def small_classes() -> str:
    """What a silo with a small class can take part in where its policy has ``min_class_count: 5``."""
    from graphsilo.errors import DisclosureError
    from graphsilo.federation import registry
    from graphsilo.federation.kinds import KINDS
    from graphsilo.federation.policy import DisclosurePolicy

    policy = DisclosurePolicy.of({"min_class_count": 5, "kinds": list(KINDS), "recoverable": True})

    def passes(method: Any, **settings: int) -> bool:
        if not settings.keys() <= method.config.model_fields.keys():
            return False
        try:
            policy.check_method(method, method.config(**settings), class_counts=[4, 5])
        except DisclosureError:
            return False
        return True

    answers = ("it takes part", "with `method.min_count=5`, not in secure sums", "it does not take part")
    found: dict[str, list[str]] = {answer: [] for answer in answers}
    for method in (registry.load(name) for name in registry.names()):
        if not (method.pooled or method.alone):
            found[answers[0 if passes(method) else 1 if passes(method, min_count=5) else 2]].append(method.title)
    return table(("a run of", "then"), ((", ".join(titles), answer) for answer, titles in found.items()))


def papers(part: str) -> str:
    """What was measured on the papers' tables: all of it, how much, the lead of a paper's own method
    (``leads-FedPG``), or a picture of the study over all of them."""
    benchmarks = str(Path(__file__).resolve().parents[1] / "benchmarks")
    if benchmarks not in sys.path:
        sys.path.append(benchmarks)
    import papers_page
    import study

    if part in study.PARTS:
        return study.picture(part)
    sections = papers_page.read()
    parts = {
        "tables": lambda: papers_page.page(papers_page.tree(), sections),
        "coverage": lambda: papers_page.coverage(sections),
        "coverage-by-method": lambda: papers_page.coverage(sections, "method"),
        "style": lambda: [papers_page.style()],
    }
    if part.startswith("leads-"):
        return "\n".join(papers_page.leads(papers_page.tree(), sections, part.removeprefix("leads-")))
    return "\n".join(parts[part]())


def rooms(package: str = "") -> str:
    """The package's rooms from the top layer down, or the modules of one, each with the first line of its docstring."""
    root = Path(__file__).resolve().parents[1]
    folder = root / "src" / "graphsilo" / package
    if package:
        names = sorted({path.stem for path in folder.iterdir() if not path.name.startswith("_")})
    else:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
        names = [name.removeprefix("graphsilo.") for layer in layers for name in layer.split(" | ")]

    def summary(name: str) -> str:
        source = next((path for path in (folder / f"{name}.py", folder / name / "__init__.py") if path.exists()), None)
        text = source and ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))
        return (text or "").split("\n")[0].replace("``", "`")

    said = ((f"`{name}`", summary(name)) for name in names)
    return table(("room", "what is in it"), (row for row in said if row[1]))


def measured(name: str) -> str:
    """Numbers that are kept as ``docs/measured/NAME.csv``; columns of numbers are right-aligned."""
    with (Path(__file__).resolve().parents[1] / "docs" / "measured" / f"{name}.csv").open(encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    numbers = [
        "r" if all(re.match(r"[\d−–]|$", cell) for cell in column) else " " for column in zip(*rows, strict=True)
    ]
    return table(head, rows, align="".join(numbers))


def record(name: str) -> str:
    """What each field of a part of ``result.json`` holds, as the docstrings of its class and bases say it."""
    from graphsilo.experiments.storage import records

    kind = getattr(records, name)
    said: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        section = inspect.cleandoc(base.__dict__.get("__doc__") or "").partition("Attributes:\n")[2]
        for names, text in re.findall(r"^    ([\w, ]+): (.*(?:\n {8}.*)*)", section, flags=re.MULTILINE):
            said[names] = " ".join(text.split()).replace("``", "`")
    lacking = set(kind.__struct_fields__) - {name for names in said for name in names.split(", ")}
    if lacking:
        raise ValueError(f"{name}: the docstring does not say what these hold: {', '.join(sorted(lacking))}")
    return table(("key", "content"), (("`" + names.replace(", ", "`, `") + "`", text) for names, text in said.items()))


def conformance() -> str:
    """What a method is checked for."""
    from graphsilo.testing.conformance import CHECKS, check_settings

    return "\n".join(f"- {_sentence(check.__doc__ or '')}" for check in (*CHECKS, check_settings))


def command(name: str) -> str:
    """Arguments and options of a command."""
    found = _command_line()
    for word in name.split("."):
        found = found.commands[word]
    rows = []
    for item in found.params:
        if getattr(item, "hidden", False):
            continue
        if item.param_type_name == "argument":
            words = f"`{item.metavar or item.name.upper()}`"
        else:
            words = ", ".join(f"`{word}`" for word in (*item.opts, *item.secondary_opts))
            words += f" {item.metavar}" if item.metavar else ""
        rows.append((words, getattr(item, "help", None) or ""))
    usage = _sentence(inspect.cleandoc(found.help or "").split("\n\n")[0].replace("\n", " "))
    return f"{usage}\n\n{table(('option', 'meaning'), rows)}" if rows else usage


def commands() -> str:
    """Every command, then its options."""
    parts = []

    def walk(path: tuple[str, ...], found: Any) -> None:
        for name, inner in sorted(found.commands.items()):
            if inner.hidden:
                continue
            if hasattr(inner, "commands"):
                walk((*path, name), inner)
            else:
                parts.append(f"### `graphsilo {' '.join((*path, name))}`\n\n{command('.'.join((*path, name)))}")

    walk((), _command_line())
    return "\n\n".join(parts)


@cache
def _command_line() -> Any:
    import typer

    from graphsilo.cli.app import app

    return typer.main.get_command(app)


def _sentence(text: str) -> str:
    text = text.strip().splitlines()[0]
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ":", "?")) else ".")


TABLES: dict[str, Callable[..., str]] = {
    "attacks": attacks,
    "catalog": catalog,
    "command": command,
    "commands": commands,
    "conformance": conformance,
    "decisions": decisions,
    "every-setting": every_setting,
    "from-an-index": from_an_index,
    "generator": generator,
    "graph-rules": graph_rules,
    "kinds": kinds,
    "secure-sums": secure_sums,
    "small-classes": small_classes,
    "record": record,
    "refuse-weights": refuse_weights,
    "measured": measured,
    "messages": messages,
    "methods": methods,
    "metrics": metrics,
    "models": models,
    "options": named,
    "chosen": chosen,
    "papers": papers,
    "policy": policy,
    "pools": pools,
    "rooms": rooms,
    "rules": rules,
    "scenarios": scenarios,
    "settings": settings,
    "split-ratios": split_ratios,
}
