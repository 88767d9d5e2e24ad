"""Predictions of a saved run's client: for the nodes of its own graph, or of a grown one."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphsilo import documents
from graphsilo.data.graph import Graph, GraphCollection, content_hash
from graphsilo.data.silos.asked import Preparation
from graphsilo.data.silos.own import read_silo_file
from graphsilo.data.silos.scaling import scale_silo
from graphsilo.data.silos.schema import schema_of
from graphsilo.data.silos.silo import Silo
from graphsilo.data.silos.targets import read_targets
from graphsilo.errors import ConfigError, RunError, quote, several, unusable
from graphsilo.evaluate.rare import Decision, choose_for
from graphsilo.experiments.client_names import client_number, list_client_names
from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.experiments.decisions import (
    apply_decision,
    describe_decision,
    labels_of,
    looked_for,
    splits_of,
)
from graphsilo.experiments.doors import plain
from graphsilo.experiments.participants import class_word
from graphsilo.experiments.simulation import prepare
from graphsilo.experiments.storage import disk, reading
from graphsilo.experiments.storage.reading import SiloRecord, mode_of
from graphsilo.experiments.storage.records import RunRecord
from graphsilo.experiments.storage.views import names_of
from graphsilo.federation import registry
from graphsilo.federation.client import ClientBase, ClientContext, ModelSpec
from graphsilo.federation.message import Tensors
from graphsilo.federation.model_files import SCALE, Kept, aggregate_path, model_path
from graphsilo.federation.registry import Method
from graphsilo.federation.scoring import probabilities
from graphsilo.types import CLASS_TASKS, ClientId


@dataclass(frozen=True)
class Prediction:
    """Class and probabilities of every item, or what is estimated of it.

    Attributes:
        node_ids: [m] what the user calls each item: its id in the user's own node table, as text; where the data has
            no such ids, its number in the whole data set (its row in a graph that was given).
        classes: [m] most probable class.
        probabilities: [m, C], rows sum to 1.
        class_names: Words for the classes, where the data has them; or what targets are called.
        on: What was predicted on, in words.
        by: By whose model, in words.
        splits: [m] ``train``, ``val`` or ``test``: the part of the silo's own data that it is of; empty: of none.
            None of a graph that was given.
        labels: [m] true classes, -1 where unknown; None where there are none.
        positive: Of two classes the one that is looked for: ``evaluation.positive``, else the rarer one of training.
        scores: [m] its probability by the model.
        calibrated: [m] its calibrated probability; None where there were too few validation items to calibrate.
        decisions: [m] the class that the score comes to at the threshold that validation items chose.
        decided: How that was chosen, in words.
        values: [m, t] of targets, where there are such and no classes: numbers in their own units, or the chance of
            each label; ``classes`` are then -1, ``probabilities`` [m, 0].
        truth: [m, t] what the targets are, NaN where unknown; None where there are none.
    """

    node_ids: NDArray[np.str_] | NDArray[np.int64]
    classes: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    class_names: tuple[str, ...] | None
    on: str
    by: str = ""
    values: NDArray[np.float64] | None = None
    truth: NDArray[np.float32] | None = None
    splits: NDArray[np.str_] | None = None
    labels: NDArray[np.int64] | None = None
    positive: int | None = None
    scores: NDArray[np.floating[Any]] | None = None
    calibrated: NDArray[np.float64] | None = None
    decisions: NDArray[np.int64] | None = None
    decided: str = ""

    def __repr__(self) -> str:
        if self.values is not None:
            return f"Prediction(items={len(self.values)}, targets={self.values.shape[1]}, on={self.on!r})"
        return f"Prediction(items={len(self.classes)}, classes={self.probabilities.shape[1]}, on={self.on!r})"

    @property
    def has_names(self) -> bool:
        """Whether ``node_ids`` are those of the user's own table."""
        return self.node_ids.dtype.kind == "U"

    def is_open(self, row: int) -> bool:
        """Whether neither the class of a row nor the value of any of its targets is known."""
        if self.truth is not None:
            return bool(np.isnan(self.truth[row]).all())
        return self.labels is None or bool(self.labels[row] < 0)

    def places(self, nodes: Sequence[str | int]) -> list[int]:
        """Where these nodes are among the predictions, in the order given.

        Args:
            nodes: Entries of ``node_ids``; of several equal ones, as in silos pooled in one place, all places count.

        Raises:
            ConfigError: A node is not there.
        """
        wanted = np.array([str(node) for node in nodes], dtype=np.str_)
        known = self.node_ids.astype(np.str_)
        order = np.argsort(known, kind="stable")
        start, stop = (np.searchsorted(known, wanted, side=side, sorter=order) for side in ("left", "right"))
        if (start == stop).any():
            raise ConfigError(self._describe_unknown(wanted[start == stop].tolist()))
        return [int(row) for first, last in zip(start, stop, strict=True) for row in order[first:last]]

    def rank(self, rows: Sequence[int], count: int) -> list[int]:
        """Of these rows the ones with the highest scores of the class looked for, or the largest values of a single
        target, the highest first; of equals the first.

        Raises:
            ConfigError: There is nothing to sort by.
        """
        by: Any = self.scores
        if by is None and self.values is not None and self.values.shape[1] == 1:
            by = self.values[:, 0]
        if by is None:
            raise ConfigError(
                "the highest scores (--top) are of the one of two classes that is looked for, or of a single target; "
                "these predictions have several of them. Leave it out."
            )
        places = np.asarray(rows, dtype=np.int64)
        return [int(row) for row in places[np.argsort(-by[places], kind="stable")[:count]]]

    def _describe_unknown(self, nodes: list[str]) -> str:
        count = len(self.node_ids)
        if self.has_names:
            some = ", ".join(f"'{name}'" for name in self.node_ids[:3])
            holds = f"{count} nodes with the ids of their table, such as {some}"
        else:
            holds = f"{count} nodes numbered from {self.node_ids.min()} to {self.node_ids.max()}"
        on, _, _ = self.on.partition(";")
        which = f"node {nodes[0]} is" if len(nodes) == 1 else f"nodes {several(nodes, 5)} are"
        return f"{which} not on {on}, which holds {holds}. Ask for no particular nodes to see them all."


@dataclass(frozen=True, eq=False)
class Member:
    """A client of a finished run with its model, ready to be asked.

    Attributes:
        folder: Of the run.
        result: What it says of itself.
        asked: Where its data and model are from.
        kept: What the client's file holds.
        silo: Its data, scaled as the model knows it.
        client: Who predicts.
        owner: Whose model, in words.
        whose: own or common.
        reported: Mode of the score that the run reports.
        seed: Of training.
    """

    folder: Path
    result: RunRecord | SiloRecord
    asked: _Asked
    kept: Kept
    silo: Silo
    client: ClientBase[Any]
    owner: str
    whose: str
    reported: str
    seed: int

    @property
    def view(self) -> str:
        """The model, as clients call it."""
        return _VIEWS[self.whose]

    @property
    def preparation(self) -> Preparation:
        """What the client's graph went through."""
        return Preparation.of(self.silo, self.asked.options, self.kept.fills, self.kept.booleans)

    @property
    def has_other_data(self) -> bool:
        """Whether the data has changed since the model was trained."""
        found = self.result
        trained_on = found.silo_data if isinstance(found, SiloRecord) else found.data.hash
        return trained_on is not None and trained_on != self.asked.data_hash

    def decision(self, *, elsewhere: bool = False) -> Decision | None:
        """How scores of the class looked for are read: by what was kept with the model, else by the silo's validation
        items; None where there are not two classes.

        Args:
            elsewhere: Whether they are scores of another graph than the silo's own.
        """
        known = looked_for(self.asked.config.evaluation, self.silo.schema, self.asked.rare)
        if known is None:
            return None
        if elsewhere and (found := self._decide_elsewhere(known)) is not None:
            return found
        numbers = self.kept.decisions.get(self.view)
        if numbers is None and not self.has_other_data:
            numbers = self.client.decide(self.view, known)
        return Decision(known["positive"]) if numbers is None else Decision.of(numbers)

    def _decide_elsewhere(self, known: Mapping[str, Any]) -> Decision | None:
        """The same by validation items that are scored as nodes of any other graph are, without the labels around them;
        None where that makes no difference, or the silo's data is no longer what it was."""
        seen = self.silo.seen
        if self.has_other_data or "val" not in seen.items or not isinstance(seen.graph, Graph):
            return None
        with torch.no_grad():
            own, other = (
                probabilities(self.client.predict(self.client.tensors(graph), self.view)).cpu()
                for graph in (seen.graph, replace(seen.graph))
            )
        return None if torch.equal(own, other) else choose_for(seen.items, seen.graph.labels, other.numpy(), **known)

    def describe(self, decision: Decision) -> str:
        """The same in words."""
        word = class_word(decision.positive, self.silo.schema)
        config = self.asked.config.evaluation
        kept = self.kept.decisions.get(self.view)
        agreed = config.threshold_by == "federation" and kept is not None and decision == Decision.of(kept)
        return describe_decision(decision, word, str(config.threshold), "all silos'" if agreed else "the silo's")

    @property
    def gap(self) -> str:
        """Which classes a silo's own model had no example of, and what to ask of them; empty where there is none."""
        schema, silo = self.silo.schema, self.silo
        if self.whose != "own" or schema.task not in ("node", "graph"):
            return ""
        lacking = sorted(set(range(schema.num_classes)) - set(silo.seen.graph.labels[silo.train].tolist()))
        if not lacking:
            return ""
        words = several([class_word(label, schema) for label in lacking], 5)
        modes = [mode for row in self.result.seeds for mode in getattr(row, "modes", ())]
        common = (
            "; the common model may (--model common)" if any(mode.startswith("aggregate") for mode in modes) else ""
        )
        return f"{self.owner} trained on no {schema.task} of class {words}, which its own model hardly knows{common}."

    def words(self, checkpoint: str) -> str:
        """Whose model answers; and where the run reports the other one, that it does."""
        return _words_of_model(self.owner, checkpoint, self.whose, self.reported)

    def refuse_other_data(self) -> None:
        """Raise if the data is not what it was.

        Raises:
            RunError: It is another.
        """
        if self.has_other_data:
            raise RunError(
                f"the data has changed since the run in {self.folder} was trained, so that {self.owner}'s own graph is "
                f"not what it was. Name the graph to predict on (--graph FILE, graph=...), or put the data back."
            )


def open_member(
    run_dir: str | Path, *, client: ClientId | str | None = None, seed: int | None = None, checkpoint: str = "best",
    model: str | None = None, node: str | None = None, links: bool = False,
) -> Member:  # fmt: skip
    """A client of a run with its model.

    Args:
        run_dir: Folder of the run, or of a silo's own results.
        client: Which; None: the one that holds ``node``, or a silo's own.
        seed, checkpoint, model: As for ``predict``.
        node: What the user calls an item of its.
        links: Whether pairs of nodes are to be scored.
    """
    folder = Path(run_dir)
    result = reading.read(folder)
    if checkpoint not in ("best", "last"):
        raise ConfigError(
            f"a run keeps the models of two checkpoints, 'best' and 'last'; '{checkpoint}' was asked for."
        )
    if model not in (None, *_VIEWS):
        raise ConfigError(
            f"a run has each silo's own model and may have a common one; {model!r} is neither own nor common."
        )
    seeds = [row.seed for row in result.seeds]
    chosen = seeds[0] if seed is None else plain(seed)
    if type(chosen) is not int or chosen not in seeds:
        raise ConfigError(f"the run has seeds {seeds}; {quote(chosen)} was asked for.")
    if (result.task == "link") != links:
        raise ConfigError(
            f"the run in {folder} {'says nothing of pairs' if links else 'scores pairs of nodes, not nodes'}: "
            f"`graphsilo predict` ranks pairs of a run with task link; why, export and Python's predict are of others."
        )
    # Scale and fill values are those that the model was trained with: today's tables may have other means.
    if isinstance(result, SiloRecord):
        own = result.client
        if client is not None and _find_number(client, 1, {own: result.silo}) != own:
            raise ConfigError(f"{folder} holds the results of client {own} alone; {client} was asked for.")
        kept = _read(model_path(folder, chosen, own, checkpoint))
        asked = _at_silo(folder, result, own, kept)
        owner = f"silo {result.silo}"
    else:
        called = names_of(result)
        asked = _of_run(folder, client, called, node)
        kept = _read(model_path(folder, chosen, asked.silo.client, checkpoint))
        owner = called.get(asked.silo.client, f"client {asked.silo.client}")  # with all data in one place, nobody's
    silo = scale_silo(asked.silo, kept.scale)
    member = asked.method.client(ClientContext(silo.client, silo, asked.config.method_config(), asked.spec, chosen))
    member.load_final(kept.models)
    reported = mode_of(next(row for row in result.seeds if row.seed == chosen), silo.client)
    whose = model or ("common" if reported.startswith("aggregate") else "own")
    if whose == "common":
        member.install_aggregate(_common(folder, chosen, silo.client, checkpoint, kept))
    return Member(folder, result, asked, kept, silo, member, owner, whose, reported, chosen)


def predict(
    run_dir: str | Path,
    *,
    client: ClientId | str | None = None,
    seed: int | None = None,
    checkpoint: str = "best",
    graph: str | Path | Graph | GraphCollection | None = None,
    model: str | None = None,
) -> Prediction:
    """As ``graphsilo.predict``; the folder may also be that of a silo's own results, which have one client only."""
    opened = open_member(run_dir, client=client, seed=seed, checkpoint=checkpoint, model=model)
    if opened.gap:
        warnings.warn(opened.gap, stacklevel=3)
    asked, silo = opened.asked, opened.silo
    member, owner, whose = opened.client, opened.owner, opened.whose
    target: Graph | GraphCollection
    if graph is None:
        opened.refuse_other_data()
        target, on = silo.seen.graph, f"{owner}'s own graph"
    else:
        target, remark = opened.preparation.read(graph, asked.root)
        on = f"the given graph '{target.name}'{remark}"
    with torch.no_grad():
        output = member.predict(member.tensors(target), _VIEWS[whose])
    types = target.union.types
    told = slice(None) if types is None else np.flatnonzero(types.targets)
    values, found = None, np.zeros((len(output[told]), 0), dtype=np.float32)
    if silo.has_targets:
        values = read_targets(silo, output.cpu().numpy()).astype(np.float64)[told]
    else:
        found = probabilities(output).cpu().numpy()[told]
    labels, decision = labels_of(target, silo.schema), opened.decision(elsewhere=graph is not None)
    decided = {} if decision is None else {**apply_decision(decision, found), "decided": opened.describe(decision)}
    return Prediction(
        node_ids=target.external_ids[told],
        classes=np.full(len(found), -1) if silo.has_targets else found.argmax(axis=1).astype(np.int64),
        probabilities=found,
        values=values,
        class_names=silo.schema.class_names,
        on=on,
        by=opened.words(checkpoint),
        truth=None if values is None or (known := target.union.targets) is None else known.values[told],
        splits=splits_of(silo)[told] if graph is None else None,
        labels=None if labels is None or (labels < 0).all() else labels[told],
        **decided,
    )


_VIEWS = {"own": "own", "common": "aggregate"}


def _words_of_model(owner: str, checkpoint: str, whose: str, reported: str) -> str:
    """Whose model answers; and where the run reports the other one, that it does."""
    named = {"own": f"{owner}'s own model", "common": "the common model"}
    text = f"{named[whose]} {'of the last round' if checkpoint == 'last' else 'of the best round by validation'}"
    other = "common" if whose == "own" else "own"
    if reported.split("_")[0] != _VIEWS[other]:
        return text
    return f"{text}, not {named[other]}, whose score the run reports"


def _common(folder: Path, seed: int, client: ClientId, checkpoint: str, kept: Kept) -> Tensors:
    """The common model, from the client's file or one of its own."""
    if kept.common is not None:
        return kept.common
    for owner in (client, None):
        path = aggregate_path(folder, seed, owner, checkpoint)
        if path.exists():
            found = disk.read_tensors(path)
            return {name: tensor for name, tensor in found.items() if not name.startswith(f"{SCALE}/")}
    raise RunError(
        f"the common model of seed {seed} ({checkpoint}) is not in {folder}: a method may have none, models are saved "
        f"unless evaluation.models is false, and a silo is sent the one that its run reports. Ask for the silo's own "
        f"model (--model own, model='own')."
    )


@dataclass(frozen=True)
class _Asked:
    """Whose model is asked: its method, silo and backbone; options, hash and root of the run's data, as it is now; the
    rarer of two classes, as far as it is known."""

    method: Method
    silo: Silo
    config: RunConfig
    spec: ModelSpec
    options: Mapping[str, Any]
    data_hash: str
    root: str | None = None
    rare: int | None = None


def _find_number(client: ClientId | str, count: int, names: Mapping[ClientId, str | Collection[str]]) -> ClientId:
    """The number of a client that is named by number or by name.

    Raises:
        ConfigError: It is neither, nobody has the name, or several have.
    """
    if isinstance(client, bool) or not isinstance(client, int | str):
        raise unusable("predict", "a client by number or by name", client)
    return client_number(client, count, names, "--client")


def _of_run(
    folder: Path, client: ClientId | str | None, called: Mapping[ClientId, str], node: str | None = None
) -> _Asked:
    """A run's client: the one that is named, or that holds a node; ``called`` says what clients are called."""
    if client is None and node is None:
        raise ConfigError(
            f"the run has several clients ({several(called.values(), 8)}): say whose model it is to be with --client."
        )
    if (folder / "silos.json").exists():
        raise RunError(
            f"{folder} is the coordinator's part of a run between machines: models and data stayed at the silos. "
            f"Predict there, with --run on the silo's own results."
        )
    config = load_config(folder / "config.yaml", overrides={"run.device": "cpu"})
    # The stored partition stands for the rule: the silo is the one that was trained, whatever was changed since. What
    # else its section says, such as which features graphs have, holds.
    config = config.with_settings({"partition.file": str(folder / "partition.npz")})
    method = registry.load(config.method.name)
    simulation = prepare(config, method)
    silos = {silo.client: silo for silo in simulation.silos}
    files = config.data.name
    client = _find_holder(silos, node or "", called) if client is None else client
    institutions = {row["client"]: row["silo"] for row in simulation.cut["per_client"] if "silo" in row}
    names = list_client_names(files) if isinstance(files, list) else institutions
    client = _find_number(client, simulation.num_holders, names)
    if client in simulation.without:
        raise ConfigError(
            f"client {client} was left out of the run in {folder} (run.without): it has no model of it. Ask for one of "
            f"{', '.join(map(str, sorted(silos)))}."
        )
    if client not in silos:
        raise ConfigError(f"the run has clients {min(silos)} to {max(silos)}; {client} was asked for.")
    spec, data = simulation.models[client], config.data
    return _Asked(method, silos[client], config, spec, data.options, simulation.data_hash, data.root, simulation.rare)


def _find_holder(silos: Mapping[ClientId, Silo], node: str, called: Mapping[ClientId, str]) -> ClientId:
    """The client whose graph holds a node.

    Raises:
        ConfigError: None does, or several do.
    """
    found = [client for client, silo in silos.items() if (silo.seen.graph.external_ids.astype(np.str_) == node).any()]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(
            f"a node {node} is at {several((called[who] for who in found), 8)}: say whose model is to be asked with "
            f"--client."
        )
    first = next(iter(silos.values())).seen.graph.external_ids
    raise ConfigError(
        f"no client of the run has a node {node}; nodes are called such as {first[0]}. `graphsilo predict` lists those "
        f"of a client."
    )


def _at_silo(folder: Path, result: SiloRecord, own: ClientId, kept: Kept) -> _Asked:
    """The client of a silo's own results, from the silo's file."""
    tree = documents.read(folder / "config.yaml", "the configuration")
    if not isinstance(tree, Mapping):
        raise RunError(f"{folder / 'config.yaml'} is not the configuration of a run. Put it back as it was.")
    # Of what a coordinator wrote, names count: methods and models here are those that are installed.
    config = load_config(
        {name: value for name, value in tree.items() if name != "own"}, overrides={"run.device": "cpu"}
    )
    schema = schema_of(result.schema)
    file = read_silo_file(result.silo_file)
    silo = file.load(own, task=schema.task, schema=schema, sparse=result.sparse, fills=kept.fills)
    name, settings = result.model
    method = registry.load(result.method.name)
    spec = ModelSpec(name, settings, config.run.precision)
    counts = silo.class_counts() if schema.task in CLASS_TASKS and schema.num_classes == 2 else None
    rare = None if counts is None else int(counts[0] >= counts[1])  # as far as this silo knows
    return _Asked(method, silo, config, spec, file.options, content_hash([silo.graph]), rare=rare)


def _read(path: Path) -> Kept:
    if not path.exists():
        raise RunError(
            f"the model {path} is not there. Models are saved unless evaluation.models is false, or the method keeps "
            f"none; run again with --set evaluation.models=true."
        )
    return Kept.of(disk.read_tensors(path))
