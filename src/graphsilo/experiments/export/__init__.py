"""A client's fitted model as a folder that runs without a federation and without graphsilo: columns in, scores out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.silos.targets import read_targets
from graphsilo.data.sources.directions import is_symmetric
from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.evaluate.rare import Decision, log_odds
from graphsilo.experiments.decisions import apply_decision
from graphsilo.experiments.export.card import model_card
from graphsilo.experiments.predict import Member, open_member
from graphsilo.experiments.storage import disk
from graphsilo.federation.scoring import probabilities
from graphsilo.types import TARGET_TASKS, ClientId

CHECKED = 200
"""Nodes, at most, with which the exported scorer checks itself."""


@dataclass(frozen=True)
class Export:
    """What was written.

    Attributes:
        folder: Where.
        files: Names of the files in it.
        by: Whose model it is, in words.
    """

    folder: Path
    files: tuple[str, ...]
    by: str


def export(
    run_dir: str | Path,
    out: str | Path,
    *,
    client: ClientId | str | None = None,
    seed: int | None = None,
    checkpoint: str = "best",
    model: str | None = None,
) -> Export:
    """As ``graphsilo.export``."""
    folder = Path(out).expanduser()
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is there already and is not empty. Name a new folder for the export (--out).")
    asked = open_member(run_dir, client=client, seed=seed, checkpoint=checkpoint, model=model)
    asked.refuse_other_data()
    graph, decision, elsewhere = _plain_graph(asked), asked.decision(), asked.decision(elsewhere=True)
    arrays: dict[str, NDArray[Any]] = {}
    models = asked.client.models_of(asked.view)
    parts = {
        name: [_store(part.portable(view, labelled=own), arrays) for part, view in models]
        for name, own in (("own", True), ("other", False))
    }
    about = {**_about(asked, graph, decision, elsewhere), "parts": parts}
    arrays |= _preparation(asked)
    folder.mkdir(parents=True, exist_ok=True)
    disk.write_json(folder / "model.json", about)
    disk.write_arrays(folder / "model.npz", arrays)
    disk.write_arrays(folder / "check.npz", _check_rows(asked, graph, elsewhere))
    scorer = resources.files(__package__).joinpath("scorer.py").read_text(encoding="utf-8")
    disk.write_text(folder / "scorer.py", scorer)
    disk.write_text(folder / "MODEL_CARD.md", model_card(asked, decision))
    whose = f"{asked.owner}'s own model" if asked.whose == "own" else "the common model"
    return Export(folder, ("MODEL_CARD.md", "check.npz", "model.json", "model.npz", "scorer.py"), whose)


def _plain_graph(asked: Member) -> Graph:
    """The client's graph, of which an exported scorer can make the columns.

    Raises:
        UnsupportedError: It has what a scorer knows nothing of.
    """
    graph = asked.silo.seen.graph
    if not isinstance(graph, Graph):
        raise UnsupportedError("the run is of whole graphs, and an export scores nodes: use `graphsilo predict`.")
    more = {
        "weights of links": graph.edge_weights, "times of nodes": graph.time, "several types of nodes": graph.types,
        "tables of links with columns": graph.links,
    }  # fmt: skip
    if found := [name for name, value in more.items() if value is not None]:
        raise UnsupportedError(
            f"an export scores nodes from their columns and plain links, and this model also knows "
            f"{' and '.join(found)}. `graphsilo predict --run ... --graph FILE` asks the model itself."
        )
    return graph


def _about(asked: Member, graph: Graph, decision: Decision | None, elsewhere: Decision | None) -> dict[str, Any]:
    schema, decisions = asked.silo.schema, {"own": decision, "other": elsewhere}
    return {
        "decision": {name: each._asdict() for name, each in decisions.items() if each is not None}, "format": 1,
        "task": schema.task,
        "both_ways": is_symmetric(graph), "features": list(schema.feature_names or ()),
        "classes": asked.client.class_names,
    }  # fmt: skip


def _preparation(asked: Member) -> dict[str, NDArray[Any]]:
    """What is done to columns before a model sees them, and to what it estimates after."""
    schema, scale = asked.silo.schema, asked.silo.scale
    width, outputs = schema.num_features, schema.num_classes
    plain = scale is None or not len(scale.factor)
    targets = None if scale is None else scale.targets
    shift = np.zeros(width) if scale is None or plain else scale.shift
    names = schema.feature_names or ()
    fills = np.array([asked.kept.fills.get(name, 0.0) for name in names]) if names else np.zeros(width)
    return {
        "shift": shift, "factor": np.ones(width) if scale is None or plain else scale.factor, "fills": fills,
        "target_shift": np.zeros(outputs) if targets is None else targets.shift,
        "target_factor": np.ones(outputs) if targets is None else targets.factor,
    }  # fmt: skip


def _store(terms: list[dict[str, Any]], arrays: dict[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """Plain values with the names of arrays in place of these, each of which is stored once."""

    def name_of(array: NDArray[Any]) -> str:
        for name, known in arrays.items():
            if known.shape == array.shape and np.array_equal(known, array):
                return name
        arrays[f"array{len(arrays)}"] = array
        return f"array{len(arrays) - 1}"

    def stored(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return name_of(value)
        if isinstance(value, Mapping):
            return {key: stored(each) for key, each in value.items()}
        return [stored(each) for each in value] if isinstance(value, list) else value

    return [stored(term) for term in terms]


def _check_rows(asked: Member, graph: Graph, decision: Decision | None) -> dict[str, NDArray[Any]]:
    """Some nodes with their links among each other, as read, and what the run's model says of these alone."""
    links = graph.adjacency()
    nodes = np.asarray(asked.silo.seen.items["test"][:10], dtype=np.int64)
    for _ in range(2):
        nodes = np.union1d(nodes, links[nodes].indices)[: max(CHECKED, len(nodes))].astype(np.int64)
    part = graph.subgraph(nodes[:CHECKED])
    with torch.no_grad():
        output = asked.client.predict(asked.client.tensors(part), asked.view)
    if asked.silo.schema.task in TARGET_TASKS:
        scores = read_targets(asked.silo, output.cpu().numpy())
    else:
        scores = probabilities(output).cpu().numpy()
    found = {"features": raw_features(asked, part), "links": part.edges, "scores": scores}
    if decision is not None:
        said = apply_decision(decision, scores)
        found |= {"decisions": said["decisions"], "calibrated": decision.calibrate(log_odds(scores, decision.positive))}
    return found


def raw_features(asked: Member, graph: Graph) -> NDArray[np.float64]:
    """[n, d] the features of a scaled graph in the units of the table."""
    scale, found = asked.silo.scale, graph.features
    rows = np.asarray(found if isinstance(found, np.ndarray) else found.toarray(), dtype=np.float64)
    if scale is None or not len(scale.factor):
        return rows
    safe = np.where(scale.factor != 0, scale.factor, 1.0)
    return np.asarray(rows / safe + scale.shift)


__all__ = ["Export", "export", "raw_features"]
