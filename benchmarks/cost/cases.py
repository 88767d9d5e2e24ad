"""Which cases there are: ``settings.yaml``, crossed with the methods that are registered."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from graphsilo import documents

HERE = Path(__file__).resolve().parent
Kind = Literal["yardstick", "methods", "growth", "workers", "start"]


@dataclass(frozen=True)
class Case:
    """One thing that is measured.

    Attributes:
        kind: What is done with it.
        name: Its place among those of its kind, e.g. ``fedavg/Cora``.
        overrides: Settings of the run; the command of a start-up case stands in ``facts``.
        unit: Settings of the run that it is a multiple of, in turn; none for a growth curve, which is a ratio itself.
        turns: How often.
        facts: What the page says of it, such as method, data, axis and value.
    """

    kind: Kind
    name: str
    overrides: Mapping[str, Any]
    unit: Mapping[str, Any] | None
    turns: int
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """As ``--only`` names it."""
        return f"{self.kind}/{self.name}"

    @property
    def settings(self) -> str:
        """Changes with everything that is run, but not with how often."""
        text = json.dumps([self.overrides, self.unit, self.facts], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def read_settings(path: Path = HERE / "settings.yaml") -> dict[str, Any]:
    """``settings.yaml``."""
    return dict(documents.read(path, "the cases"))


def registered() -> list[str]:
    """Every method there is, so that a new one joins by itself."""
    from graphsilo.federation import registry

    return registry.names()


def cases(
    settings: Mapping[str, Any],
    methods: Sequence[str],
    *,
    quick: bool = False,
    largest: int | None = None,
    yardstick: bool = False,
) -> list[Case]:
    """All cases.

    Args:
        settings: As ``settings.yaml`` has them.
        methods: Names of methods.
        quick: Only what takes a few minutes: small data, one turn.
        largest: Most nodes of a growth curve; None takes the usual size.
        yardstick: Whether there is one to measure against.
    """
    found = [*_start_up(settings)]
    if yardstick:
        found += _yardstick(settings, quick)
    found += [*_methods(settings, methods, quick), *_growth(settings, methods, quick, largest)]
    found += _workers(settings, methods, quick)
    if quick:
        found = [Case(one.kind, one.name, one.overrides, one.unit, min(one.turns, 2), one.facts) for one in found]
    return found


def chosen(all_cases: Sequence[Case], patterns: Sequence[str]) -> list[Case]:
    """Those whose id, or its beginning, matches a pattern (``methods/*/Cora``, ``growth``); all without patterns."""
    wanted = [form for pattern in patterns for form in (pattern, f"{pattern}/*")]
    return [one for one in all_cases if not patterns or any(fnmatch.fnmatch(one.id, form) for form in wanted)]


def _start_up(settings: Mapping[str, Any]) -> Iterator[Case]:
    turns = settings["start_up"]["turns"]
    python = ["{python}", "-c", "pass"]
    torch = ["{python}", "-c", "import torch"]
    run = ["{python}", "-m", "graphsilo", "run", "--data", "citation-sbm", "--clients", "10", "--quiet"]
    commands = {
        "help": ("graphsilo --help", ["{python}", "-m", "graphsilo", "--help"], "python -c pass", python),
        "import": ("import graphsilo", ["{python}", "-c", "import graphsilo"], "python -c pass", python),
        "first-round": (
            "graphsilo run, to the end of round 1",
            [*run, "--rounds", "1", "--no-report", "--out", "{out}"],
            "python -c 'import torch'",
            torch,
        ),
        "result": (
            "graphsilo run, 100 rounds and the report page",
            [*run, "--rounds", "100", "--out", "{out}"],
            "python -c 'import torch'",
            torch,
        ),
    }
    for name, (title, command, unit_title, unit) in commands.items():
        facts = {"title": title, "command": command, "unit": unit_title, "unit_command": unit}
        yield Case("start", name, {}, None, turns, facts)


def _yardstick(settings: Mapping[str, Any], quick: bool) -> Iterator[Case]:
    chapter = settings["yardstick"]
    for data in chapter["quick"] if quick else chapter["data"]:
        place = {"data.name": data, "partition.rule": "louvain", "partition.clients": 10}
        overrides = {
            **settings["base"],
            **settings["unit"],
            **place,
            "method.rounds": chapter["rounds"],
            "evaluation.modes": ["own_local"],
        }
        yield Case("yardstick", data, overrides, None, chapter["turns"], {"data": data})


def _methods(settings: Mapping[str, Any], methods: Sequence[str], quick: bool) -> Iterator[Case]:
    own = settings["methods"]
    for data, entry in settings["data"].items():
        if quick and not entry.get("quick"):
            continue
        common = {**settings["base"], **entry["set"], "method.rounds": entry["rounds"]}
        unit = {**common, **settings["unit"]}
        for name in methods:
            overrides = {**common, "method.name": name, **own.get(name, {})}
            if name == settings["unit"]["method.name"]:
                overrides = unit
            yield Case("methods", f"{name}/{data}", overrides, unit, entry["turns"], {"method": name, "data": data})


def _growth(settings: Mapping[str, Any], methods: Sequence[str], quick: bool, largest: int | None) -> Iterator[Case]:
    for axis, entry in settings["growth"].items():
        top = largest if largest is not None and axis == "nodes" else entry.get("usual", max(entry["values"]))
        for name, method_top in entry["methods"].items():
            if name not in methods or (quick and name != settings["unit"]["method.name"]):
                continue
            model = settings["unit"] if name == settings["unit"]["method.name"] else {}
            for value in entry["quick"] if quick else entry["values"]:
                if value > min(top, method_top):
                    continue
                scaled = {key: factor * value for key, factor in entry["scale"].items()}
                overrides = {
                    **settings["base"],
                    **entry["set"],
                    **model,
                    **scaled,
                    "method.rounds": entry["rounds"],
                    "method.name": name,
                    **settings["methods"].get(name, {}),
                }
                facts = {"method": name, "axis": axis, "value": value, "title": entry["title"]}
                yield Case("growth", f"{axis}/{name}/{value}", overrides, None, entry["turns"], facts)


def _workers(settings: Mapping[str, Any], methods: Sequence[str], quick: bool) -> Iterator[Case]:
    chapter = settings["workers"]
    data, unit = chapter["data"], settings["unit"]["method.name"]
    cores = len(os.sched_getaffinity(0))
    counts = sorted({2**power for power in range(1, cores.bit_length()) if 2**power <= cores} | {cores} - {1})
    for name in methods:
        if name in chapter["without"] or (quick and name != unit):
            continue
        how, model = (chapter["unit"], settings["unit"]) if name == unit else (chapter, {})
        one = {
            **settings["base"],
            **settings["data"][data]["set"],
            **model,
            "method.name": name,
            "method.rounds": how["rounds"],
            **settings["methods"].get(name, {}),
        }
        for count in counts:
            facts = {"method": name, "data": data, "workers": count}
            yield Case("workers", f"{name}/{data}/{count}", {**one, "run.workers": count}, one, how["turns"], facts)
