"""Every setting of every section, said through each door, is in the configuration; the cases come from the models."""

from __future__ import annotations

import json
import tempfile
import typing
from collections.abc import Collection
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import graphsilo
from graphsilo import api, models
from graphsilo.data.partition import rules
from graphsilo.data.silos.perturb import PerturbOptions
from graphsilo.data.silos.scenarios import SCENARIOS, ScenarioOptions, options_of
from graphsilo.data.sources.catalog import LoadOptions
from graphsilo.data.sources.generated import CitationSBM
from graphsilo.experiments.config import SECTIONS, configure, load_config
from graphsilo.experiments.doors import FLAGS
from graphsilo.federation import registry

SMALL = {"name": "citation-sbm", "nodes": 150, "classes": 3, "features": 30}


# -- another value than the default, from the type and the bounds ----------------------------------------------------

SPECIAL: dict[str, Any] = {
    "data.name": "heterophily-sbm", "data.root": "raw", "data.seed": 7, "data.missing": "mean",
    "partition.rule": "metis", "partition.file": "p.npz", "partition.split": "global",
    "partition.ratios": [0.5, 0.25, 0.25], "partition.train_until": "2025-03-31", "partition.val_until": 20000.5,
    "scenario.name": "inductive", "scenario.edges": "touching", "scenario.missing": "absent", "scenario.regrow": "all",
    "model.name": "sage", "model.pool": ["gcn", {"name": "sage", "hidden": 8}],
    "method.name": "fedprox", "run.device": "cuda", "run.seeds": [3, 4],
    "task": "node", "method.balance": [0.25, 1.0], "method.w_max": 2.5, "evaluation.periods": [7.0, 9.0],
}  # fmt: skip
"""Values of settings whose type says too little."""


def another(name: str, annotation: Any, default: Any, low: float | None = None, high: float | None = None) -> Any:
    """A valid value of a setting that is not its default."""
    if name in SPECIAL and not (annotation is float and isinstance(SPECIAL[name], list)):  # of another method
        return SPECIAL[name]
    kinds = typing.get_args(annotation) if typing.get_origin(annotation) in (Union, UnionType) else (annotation,)
    for kind in kinds:
        if typing.get_origin(kind) is typing.Annotated:
            kind = typing.get_args(kind)[0]
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if origin is Literal:
            return next(word for word in inner if word != default)
        if origin in (list, tuple):
            shares = origin is tuple and (typing.get_args(inner[0]) or inner)[0] is float
            some = [0.7, 0.9] if shares else [7, 9]
            return [another(name, inner[0], None)] if origin is list else some[: len(inner)]
        if kind is bool:
            return not default
        if kind is int:
            return int(default if default is not None else low or 1) + 1
        if kind is float:
            middle = (low if low is not None else 0.0) + 0.37 * ((high if high is not None else 1.0) - (low or 0.0))
            return middle if middle != default else middle / 2
        if kind is str:
            return f"another {name}"
        assert kind is NoneType, f"{name}: say what another value of {kind} is"
    raise AssertionError(name)


def of_model(section: str, kind: Any, leave: Collection[str] = ()) -> list[tuple[str, Any]]:
    found = []
    for key, field in kind.model_fields.items():
        fixed = typing.get_origin(field.annotation) is Literal and len(typing.get_args(field.annotation)) == 1
        if key != "options" and key not in leave and not fixed:
            bounds = {
                sign: getattr(rule, sign)
                for rule in field.metadata
                for sign in ("ge", "gt", "le", "lt")
                if hasattr(rule, sign)
            }
            low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
            default = field.get_default(call_default_factory=True)
            found.append((f"{section}.{key}", another(f"{section}.{key}", field.annotation, default, low, high)))
    return found


def cases() -> list[tuple[str, Any, dict[str, str]]]:
    """(setting, another value, what has to be said with it)."""
    found: list[tuple[str, Any, dict[str, str]]] = [("task", "node", {})]
    for section, kind in SECTIONS.items():
        found += [(name, value, {}) for name, value in of_model(section, kind)]
    found += [(name, value, {}) for name, value in of_model("data", LoadOptions, {"generator", "use_node_attributes"})]
    found += [("data.use_node_attributes", True, {"data.name": "PROTEINS"})]
    sizes = {"nodes": 200, "classes": 4, "features": 20}
    generated = [name for name in CitationSBM.model_fields if name != "seed"]
    fits = {"homophily": 0.5, "class_signal": 0.5, "ambiguity": 0.5, "locality": 0.5, "feature_density": 0.5}
    found += [(f"data.{name}", {**sizes, **fits}.get(name, 3), {"data.name": "citation-sbm"}) for name in generated]
    for rule in rules():
        if rule.name != "files":
            found += [
                (name, value, {"partition.rule": rule.name}) for name, value in of_model("partition", rule.options)
            ]
    for scenario in SCENARIOS:
        leave = ScenarioOptions.model_fields.keys() - options_of(scenario)
        found += [
            (name, value, {"scenario.name": scenario}) for name, value in of_model("scenario", ScenarioOptions, leave)
        ]
    found += [(name, value, {}) for name, value in of_model("perturb", PerturbOptions)]
    for model in models.names():
        settings = of_model("model", models.entry(model).settings)
        # the heads of an attention share a width
        shared = {
            "model.heads": 2,
            **({"model.hidden": 96} if "heads" in models.entry(model).settings.model_fields else {}),
        }
        found += [(name, shared.get(name, value), {"model.name": model}) for name, value in settings]
    for listing in registry.listings():
        config = registry.load(listing.name).config
        found += [(name, value, {"method.name": listing.name}) for name, value in of_model("method", config)]
    return found


CASES = cases()


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        section, _, key = name.partition(".")
        if key:
            tree.setdefault(section, {})[key] = value
        else:
            tree[section] = value
    return tree


def by_call(config: Any = None, said: dict[str, Any] | None = None) -> Any:
    with tempfile.TemporaryDirectory() as scratch:
        return api._configuration(config, api._parse_call(api.run, said or {}, Path(scratch)))


def doors(said: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The configuration that each door makes of the same settings."""
    tree = nested(said)
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    made = {
        "file": load_config(path),
        "table as a base": by_call(tree),
        "--set": load_config(assignments=[f"{name}={json.dumps(value)}" for name, value in said.items()]),
        "--set of a section": load_config(assignments=[f"{name}={json.dumps(value)}" for name, value in tree.items()]),
        "dotted": by_call(said=said),
        "numpy": by_call(said={name: _numpy(value) for name, value in said.items()}),
    }
    if set(tree) <= set(api._ARGUMENTS):
        made["table as an argument"] = by_call(said=tree)
    return made


def _numpy(value: Any) -> Any:
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int):
        return np.int64(value)
    if isinstance(value, float):
        return np.float64(value)
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize(
    "section",
    [
        pytest.param(section, marks=[pytest.mark.slow] if section == "method" else [])  # of all methods: the most
        for section in ("task", *SECTIONS, "perturb")
    ],
)
def test_every_setting_is_in_the_configuration_whatever_the_door(section: str, tmp_path: Path) -> None:
    mine = [case for case in CASES if case[0].partition(".")[0] == section]
    assert mine
    for name, value, companions in mine:
        made = doors({**companions, name: value}, tmp_path)
        first = made["file"]
        tree = first.complete()
        assert (tree[section] if section == "task" else tree[section][name.partition(".")[2]]) == value, (
            name,
            companions,
        )
        assert name in tree["given"]
        for door, config in made.items():
            assert config.model_dump() == first.model_dump(), f"{name} through {door} (with {companions})"
        again = configure(tree, api._parse_call(api.run, {}, tmp_path))
        assert again.complete() == tree, f"{name}: written out and read again"


FLAG_VALUES: dict[str, tuple[list[str], Any]] = {
    "data.name": (["Cora"], "Cora"),
    "data.root": (["raw"], "raw"),
    "partition.rule": (["metis"], "metis"),
    "partition.clients": (["4"], 4),
    "partition.seed": (["9"], 9),
    "partition.file": (["p.npz"], "p.npz"),
    "scenario.name": (["open"], "open"),
    "task": (["link"], "link"),
    "model.name": (["sage"], "sage"),
    "method.name": (["fedprox"], "fedprox"),
    "method.rounds": (["7"], 7),
    "run.seeds": (["3,5-6"], [3, 5, 6]),
    "run.references": (["local,global"], ["local", "global"]),
    "run.workers": (["2"], 2),
    "run.device": (["cuda"], "cuda"),
    "run.precision": (["bfloat16"], "bfloat16"),
    "run.without": (["er,3"], [3, "er"]),
}


@pytest.mark.parametrize("command", ["run", "plan"])
def test_every_flag_is_in_the_configuration(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import graphsilo.cli.plan
    import graphsilo.cli.run
    from graphsilo.cli.app import app

    heard: list[Any] = []

    def listen(path: Path | None, *, overrides: Any, assignments: Any, **_: Any) -> None:
        heard.append(load_config(path, overrides=overrides, assignments=assignments))

    monkeypatch.setattr(graphsilo.cli.run, "run_command", listen)
    monkeypatch.setattr(graphsilo.cli.plan, "plan_command", listen)
    assert set(FLAG_VALUES) == set(FLAGS)
    for name, (words, value) in FLAG_VALUES.items():
        result = CliRunner().invoke(app, [command, FLAGS[name], *words])
        assert result.exit_code == 0, result.output
        config = heard.pop()
        section, _, key = name.partition(".")
        assert (config.complete()[section][key] if key else config.task) == value
        assert name in config.given


@pytest.mark.parametrize("argument", api._ARGUMENTS)
def test_every_argument_is_in_the_configuration(argument: str) -> None:
    name = api._ARGUMENTS[argument]
    full = {"data": "data.name", "partition": "partition.rule", "scenario": "scenario.name", "model": "model.name",
            "method": "method.name"}.get(name, name)  # fmt: skip
    value = FLAG_VALUES[full][1]
    config = by_call(said={argument: value})
    section, _, key = full.partition(".")
    assert (config.complete()[section][key] if key else config.task) == value
    assert config.given == [full]


# -- and in the result, and in the numbers ---------------------------------------------------------------------------

BASE = {
    "data": SMALL, "partition": {"rule": "random", "clients": 3}, "model": {"hidden": 8}, "method": {"rounds": 2},
    "evaluation": {"models": False},
}  # fmt: skip


@pytest.fixture(scope="module")
def plain_run() -> Any:
    return graphsilo.run(BASE)


def numbers(tree: Any) -> str:
    """What a run measured, without times."""
    seeds = json.loads(json.dumps(tree["seeds"]))
    for seed in seeds:
        for row in seed["rounds"]:
            for key in [key for key in row if "seconds" in key]:
                del row[key]
    return json.dumps([[seed["seed"], seed["rounds"], seed["test"]] for seed in seeds])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data.nodes", 160), ("data.seed", 3), ("data.features", 40), ("partition.rule", "louvain"),
        ("partition.clients", 2), ("partition.seed", 5), ("partition.split", "global"),
        ("partition.ratios", [0.6, 0.2, 0.2]), ("scenario.name", "inductive"), ("perturb.edge_sparsity", 0.5),
        ("perturb.label_noise", 0.5), ("model.name", "sage"), ("model.hidden", 16), ("method.name", "fedlog"),
        ("method.rounds", 3), ("method.lr", 0.2), ("evaluation.every", 2), ("evaluation.auc", True),
        ("run.seeds", [4]), ("task", "link"),
    ],
)  # fmt: skip
def test_a_setting_is_in_the_result_and_in_the_numbers(name: str, value: Any, plain_run: Any, tmp_path: Path) -> None:
    result = graphsilo.run(BASE, out=tmp_path, report=False, **({name: value} if "." in name else {"task": value}))
    tree = json.loads((tmp_path / "result.json").read_text())
    section, _, key = name.partition(".")
    assert (tree["config"][section][key] if key else tree["config"][section]) == value
    assert name in tree["config"]["given"]
    assert numbers(result.tree) != numbers(plain_run.tree)
