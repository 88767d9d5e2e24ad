"""Runs drawn at random: settings of every section, a person's own things among them, and ways to carry them out."""

from __future__ import annotations

import importlib
import json
import random
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import yaml

import graphsilo
from graphsilo.cli import main
from graphsilo.data import save_graph
from graphsilo.errors import GraphsiloError
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.doors import FLAGS
from graphsilo.experiments.observer import Observer
from graphsilo.federation import registry
from graphsilo.testing.conformance import numbers
from kit.own import EXAMPLES, NET, RULE, written
from kit.site_tables import NAMES, write_tables

DATA = {"data.name": "citation-sbm", "data.nodes": 60, "data.classes": 3, "data.features": 12}
LONG = frozenset({"fedlog", "fedsage_plus", "dense", "co_boosting", "fairfgl", "fedgen", "opfgl", "fedtgp"})
"""Methods of which a run takes long: drawn only where there is time for thousands of runs."""
OPTIONS: dict[str, list[Any]] = {
    "model.name": ["gcn", "sage", "gat", "gin", "mlp", "sgc", "gamlp", "appnp"],
    "model.dropout": [0.0, 0.3],
    "model.pool": [["gcn", "mlp"]],
    "data.scale": ["standard", "unit_rows"],
    "partition.rule": ["louvain", "metis", "dirichlet"],
    "partition.clients": [2, 4],
    "partition.seed": [5],
    "partition.split": ["global", "stratified"],
    "partition.ratios": [[0.5, 0.2, 0.3]],
    "perturb.edge_sparsity": [0.3],
    "perturb.feature_noise": [0.3],
    "perturb.feature_sparsity": [0.5],
    "perturb.label_noise": [0.2],
    "method.rounds": [1, 3],
    "method.participation": [0.5, 0.7],
    "method.min_clients": [2],
    "method.local_epochs": [1, 2],
    "method.batch_size": [10],
    "method.optimizer": ["sgd"],
    "method.lr": [0.05],
    "method.weight_decay": [0.0],
    "method.reset_optimizer": [True],
    "method.fan_out": [3],
    "evaluation.every": [2],
    "evaluation.share": [0.5],
    "evaluation.select_by": ["macro_f1"],
    "evaluation.report": ["federation"],
    "evaluation.auc": [True],
    "evaluation.modes": [["aggregate_local"], ["own_local", "own_global"], ["aggregate_global", "own_local"]],
    "evaluation.models": [False],
    "run.seeds": [[3], [0, 1]],
    "run.without": [[1], 0],
    "run.early_stopping": [1],
    "run.secure_sums": [True],
    "run.compression": ["int8", "topk"],
    "run.top_share": [0.1],
    "run.precision": ["bfloat16"],
    "run.references": [["local"], ["global", "majority"], ["fedridge"]],
    "scenario.name": ["inductive", "unseen", "open"],
    "task": ["link"],
}
"""What a draw may say beside data, cut and method, by dotted name."""
SINGLE = ("data", "partition", "scenario", "model", "method", "task")
"""Sections that are arguments of a call."""


@dataclass(frozen=True)
class Own:
    """Something of a person's own: an object in a session, a place in a file."""

    thing: Any
    place: str


@dataclass(frozen=True)
class Draw:
    """What a run is said to be.

    Attributes:
        number: Of the draw: the same one is drawn again.
        said: By dotted name; what is a person's own as ``Own``.
    """

    number: int
    said: dict[str, Any]

    def settings(self, *, as_objects: bool = False) -> dict[str, Any]:
        """By dotted name, with a person's own things as places, or as they are."""
        return {
            name: (value.thing if as_objects else value.place) if isinstance(value, Own) else value
            for name, value in self.said.items()
        }

    def tree(self) -> dict[str, Any]:
        """As a file has it."""
        made: dict[str, Any] = {}
        for name, value in self.settings().items():
            section, _, key = name.partition(".")
            if key:
                made.setdefault(section, {})[key] = value
            else:
                made[section] = value
        return made

    def __str__(self) -> str:
        return f"draw {self.number}: {json.dumps(self.settings(), default=str)}"


@dataclass(frozen=True)
class Belongings:
    """What a person has: files, and what they hold."""

    methods: list[Own]
    models: list[Own]
    rules: list[Own]
    data: list[dict[str, Any]]


def belongings(folder: Path) -> Belongings:
    """Files of a person's own in a folder, imported from there as a notebook does."""
    written(folder, "drawn_net.py", NET)
    written(folder, "drawn_rule.py", RULE)
    written(folder, "drawn_method.py", (EXAMPLES / "own_method.py").read_text(encoding="utf-8"))
    sys.path.insert(0, str(folder))
    net, rule, method = (importlib.import_module(f"drawn_{name}") for name in ("net", "rule", "method"))
    sys.path.remove(str(folder))
    tables = [str(write_tables(folder / name, name, place, nodes=40).parent / "tables.yaml")
              for place, name in enumerate(NAMES)]  # fmt: skip
    graph = graphsilo.load("citation-sbm", nodes=60, classes=3, features=12, seed=3)
    stored = save_graph(folder / "stored.npz", graph)
    return Belongings(
        [Own(method.METHOD, f"{folder}/drawn_method.py")],
        [Own(net.Net, f"{folder}/drawn_net.py:Net")],
        [Own(rule.bands, f"{folder}/drawn_rule.py:bands")],
        [{"data.name": tables}, {"data.name": tables[0]}, {"data.name": str(stored)}],
    )


def drawn(number: int, mine: Belongings, *, long: bool = False) -> Draw:
    """A run of so many thousands."""
    rng = random.Random(number)
    data = dict(DATA) if rng.random() < 0.7 else dict(rng.choice(mine.data))
    said = {**data, "method.rounds": 2, "method.local_epochs": 1, "model.hidden": 4}
    if not isinstance(data["data.name"], list):
        said |= {"partition.rule": "random", "partition.clients": 3}
    keys = rng.sample(list(OPTIONS), rng.randint(1, 4))
    said |= {key: rng.choice(OPTIONS[key]) for key in keys}
    kinds = ("method", "model", "partition")
    own = {kind: rng.random() < 0.12 for kind in kinds}
    names = [name for name in registry.names() if name not in LONG or long]
    name = "fedavg" if rng.random() < 0.4 else rng.choice(names)
    said["method.name"] = rng.choice(mine.methods) if own["method"] else name
    if own["model"]:
        said["model.name"] = rng.choice(mine.models)
    if own["partition"] and "partition.rule" in said:
        said["partition.rule"] = rng.choice(mine.rules)
    method = registry.load(name)
    if not own["method"]:
        said |= {f"method.{key}": value for key, value in method.quick.items() if f"method.{key}" not in said}
        if method.config.model_fields.keys() and method.config().total_rounds == 1 and rng.random() < 0.9:
            said.pop("method.rounds", None)
        if "local_epochs" not in method.config.model_fields:
            said.pop("method.local_epochs", None)
        if not method.backbone:
            said = {key: value for key, value in said.items() if not key.startswith("model.")}
    if "model.pool" in said:
        said.pop("model.name", None)
    return Draw(number, said)


# -- what must be the same -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Told:
    """What a run came to, or why there was none."""

    refused: str = ""
    numbers: str = ""
    warnings: tuple[str, ...] = ()
    fingerprint: str = ""
    models: Mapping[str, bytes] = field(default_factory=dict, repr=False)


def told(folder: Path) -> Told:
    """Of the run in a folder."""
    tree = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    models = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.glob("models/*"))}
    return Told("", numbers(tree), tuple(tree["warnings"]), tree["fingerprint"], models)


def attempt(door: Callable[[Draw, Path, Path], None], draw: Draw, folder: Path, first: Path) -> Told:
    """What a door makes of a draw in a folder; ``first`` is the folder of the first run of the same draw."""
    try:
        door(draw, folder, first)
    except GraphsiloError as error:
        return Told(refused=f"{type(error).__name__}: {error}")
    return told(folder)


# -- the doors -------------------------------------------------------------------------------------------------------


class _Stop(Observer):
    """Stops a run after its first round, as Ctrl-C does."""

    def progressed(self, progress: Any) -> None:
        """A round has ended."""
        if not progress.label:
            raise KeyboardInterrupt


def call(draw: Draw, folder: Path, first: Path) -> None:
    """Dotted settings in Python, own things as objects: what the others are held against."""
    said = draw.settings(as_objects=True)
    arguments = {name: said.pop(f"{name}.name", None) for name in ("method", "model")}
    arguments["partition"] = said.pop("partition.rule", None)
    task = said.pop("task", None)
    graphsilo.run(task=task, **arguments, out=folder, report=False, **said)


def tables(draw: Draw, folder: Path, first: Path) -> None:
    """Sections as tables in Python, own things as files."""
    tree = draw.tree()
    arguments = {name: tree.pop(name) for name in SINGLE if name in tree}
    rest = {f"{name}.{key}": value for name, section in tree.items() for key, value in section.items()}
    graphsilo.run(**arguments, out=folder, report=False, progress=None, **rest)


def one_table(draw: Draw, folder: Path, first: Path) -> None:
    """Everything as one table, as it stands in a notebook."""
    graphsilo.run(draw.tree(), out=folder, report=False)


def checked(draw: Draw, folder: Path, first: Path) -> None:
    """A configuration that was made before the call."""
    path = written(folder.parent, f"{folder.name}.yaml", yaml.safe_dump(draw.tree()))
    config = graphsilo.experiments.config.load_config(path)
    assert isinstance(config, RunConfig)
    graphsilo.run(config, out=folder, report=False)


def file(draw: Draw, folder: Path, first: Path) -> None:
    """A YAML file."""
    path = written(folder.parent, f"{folder.name}.yaml", yaml.safe_dump(draw.tree()))
    graphsilo.run(path, out=folder, report=False)


def flags(draw: Draw, folder: Path, first: Path) -> None:
    """The command line: a flag where there is one, else --set."""
    words = []
    for name, value in draw.settings().items():
        flag, values = FLAGS.get(name), value if isinstance(value, list) else [value]
        if flag is None:
            words += ["--set", f"{name}={json.dumps(value)}"]
        elif name in ("run.seeds", "run.without"):
            words += [flag, ",".join(map(str, values))]
        else:
            words += [part for each in values for part in (flag, str(each))]
    said = StringIO()
    with redirect_stdout(StringIO()), redirect_stderr(said):
        status = main(["run", *words, "--out", str(folder), "--quiet", "--no-report"])
    if status:
        raise GraphsiloError(" ".join(said.getvalue().split()).removeprefix("graphsilo: "))


def again(draw: Draw, folder: Path, first: Path) -> None:
    """The configuration that the first run wrote."""
    graphsilo.run(first / "config.yaml", out=folder, report=False)


def on(draw: Draw, folder: Path, first: Path) -> None:
    """Stopped after a round; gone on with as its folder says."""
    try:
        graphsilo.run(draw.tree(), out=folder, report=False, progress=_Stop(), **{"run.checkpoint_every": 1})
    except KeyboardInterrupt:
        graphsilo.run(out=folder, report=False, resume=True)


def one_at_a_time(draw: Draw, folder: Path, first: Path) -> None:
    """One client in memory at a time."""
    graphsilo.run(draw.tree(), out=folder, report=False, **{"run.resident_clients": 1})


def processes(draw: Draw, folder: Path, first: Path) -> None:
    """Clients in two processes."""
    graphsilo.run(draw.tree(), out=folder, report=False, workers=2)


def batch(draw: Draw, folder: Path, first: Path) -> None:
    """One run of a batch, in this process."""
    from graphsilo.experiments.batch import Task, run

    (outcome,) = run([Task("one", draw.tree(), folder)])
    if outcome.error is not None:
        raise GraphsiloError(outcome.error)


@dataclass(frozen=True)
class Door:
    """A way to have a run carried out.

    Attributes:
        carry_out: Given a draw, an empty folder and that of the first run; raises what is a refusal.
        fits: Whether a draw can go through it.
        every: Of how many draws that fit one goes through it: 1 in the common case, more of what takes long.
        refuses: Whether it refuses what ``call`` refuses; else what is idle is only remarked on.
        same: What of ``Told`` is the same as of the first.
    """

    carry_out: Callable[[Draw, Path, Path], None]
    fits: Callable[[Draw], bool] = lambda draw: True
    every: int = 1
    refuses: bool = False
    same: tuple[str, ...] = ("numbers", "warnings", "fingerprint", "models")


def _fits_workers(draw: Draw) -> bool:
    method = draw.said["method.name"]
    return isinstance(method, Own) or not registry.load(method).pooled


DOORS: dict[str, Door] = {
    "tables": Door(tables, refuses=True),
    "one table": Door(one_table),
    "checked": Door(checked),
    "file": Door(file),
    "flags": Door(flags, refuses=True),
    "its own configuration": Door(again),
    "gone on with": Door(on),
    "one client at a time": Door(one_at_a_time),
    "batch": Door(batch),
    "two processes": Door(processes, _fits_workers, every=40),
}
"""What is held against ``call``; a door between machines may be added here."""
