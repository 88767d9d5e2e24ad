"""A client's fitted model as a folder that runs without a federation and without graphsilo: columns in, scores out."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
import torch
from numpy.typing import NDArray

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.targets import read_targets
from graphsilo.data.sources.files import save_graph
from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.evaluate.rare import Decision
from graphsilo.experiments.decisions import apply_decision
from graphsilo.experiments.export.card import model_card
from graphsilo.experiments.export.onnx_file import name_inputs, onnx_model
from graphsilo.experiments.export.scorer import NEAR, Model, check
from graphsilo.experiments.predict import Member, open_member
from graphsilo.experiments.storage import disk
from graphsilo.federation.scoring import probabilities
from graphsilo.types import TARGET_TASKS, ClientId

CHECKED = 200
"""Nodes or graphs, at most, with which the exported scorer checks itself."""
NEEDED = ("numpy", "scipy", "pyarrow", "pydantic", "pyyaml", "msgspec")
"""What reading tables takes; a network takes torch, too."""
ROOMS = (
    "data", "models", "__about__.py", "__init__.py", "documents.py", "drawing.py", "errors.py", "loading.py",
    "listed.py", "notebook.py", "random.py", "settings", "signatures.py", "spreadsheets.py", "types.py",
)  # fmt: skip
"""What reads data and makes networks and columns, and what this stands on."""


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
    onnx: bool = False,
) -> Export:
    """As ``graphsilo.export``."""
    folder = Path(out).expanduser()
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is there already and is not empty. Name a new folder for the export (--out).")
    asked = open_member(run_dir, client=client, seed=seed, checkpoint=checkpoint, model=model)
    asked.refuse_other_data()
    graph, decision, elsewhere = asked.silo.seen.graph, asked.decision(), asked.decision(elsewhere=True)
    arrays = _preparation(asked)
    models = asked.client.models_of(asked.view)
    parts = {
        name: [_store(part.portable(view, labelled=own), arrays) for part, view in models]
        for name, own in (("own", True), ("other", False))
    }
    takes_torch = any(term["kind"] == "network" for part in parts["own"] for term in part)
    about = {**_about(asked, graph, decision, elsewhere), "parts": parts}
    network = b""
    if onnx:
        name_inputs(parts["other"])
        network = onnx_model(about, arrays)
    checked = _choose_checked(asked)
    said = _ask_model(asked, checked, elsewhere)
    card = model_card(asked, decision, parts["other"], knows_more=_knows_more(asked))
    scorer = resources.files(__package__).joinpath("scorer.py").read_bytes()
    with _folder(folder) as made:
        disk.write_json(made / "model.json", about)
        disk.write_arrays(made / "model.npz", arrays)
        disk.write_arrays(made / "check.npz", said)
        save_graph(made / "check_graph.npz", checked)
        if onnx:
            disk.write_bytes(made / "model.onnx", network)
        disk.write_bytes(made / "scorer.py", scorer)
        disk.write_bytes(made / "graphsilo.zip", _bundle())
        disk.write_text(made / "requirements.txt", _requirements(takes_torch))
        disk.write_text(made / "MODEL_CARD.md", card)
        _refuse_other_scores(made)
    whose = f"{asked.owner}'s own model" if asked.whose == "own" else "the common model"
    return Export(folder, tuple(sorted(file.name for file in folder.iterdir())), whose)


@contextmanager
def _folder(wanted: Path) -> Iterator[Path]:
    """A folder that is called as wanted once all of it is there; what fails leaves nothing behind."""
    made = wanted.parent / f".{wanted.name}.{os.getpid()}"
    try:
        made.mkdir(parents=True)
        yield made
        if wanted.exists():  # empty
            wanted.rmdir()
        made.rename(wanted)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _refuse_other_scores(made: Path) -> None:
    """Refuse a folder that says something else than the run.

    Raises:
        UnsupportedError: It does.
    """
    worst, wrong = check(Model(made))
    name = max(worst, key=lambda name: worst[name])
    if not worst[name] <= NEAR or wrong:
        raise UnsupportedError(
            f"what was exported differs by up to {worst[name]:.1e} from the run's {name}, and {wrong} nodes are "
            f"decided otherwise: this method's scores take more than its model. `graphsilo predict` asks the model "
            f"itself."
        )


def _bundle() -> bytes:
    """An archive of parts of graphsilo, as Python imports it."""
    package, found = resources.files("graphsilo"), io.BytesIO()

    def add(into: ZipFile, place: Any, name: str) -> None:
        if place.is_dir():
            for each in sorted(place.iterdir(), key=lambda each: each.name):
                add(into, each, f"{name}/{each.name}")
        elif name.endswith(".py"):
            into.writestr(ZipInfo(name), place.read_bytes(), ZIP_DEFLATED)

    with ZipFile(found, "w") as into:
        for name in ROOMS:
            place = package.joinpath(name)
            add(into, place, f"graphsilo/{name}")
    return found.getvalue()


def _requirements(network: bool) -> str:
    """What the scorer needs, in the versions that are here."""
    return "".join(
        f"{name}=={version(name).partition('+')[0]}\n" for name in (*NEEDED, *(["torch"] if network else []))
    )


def _about(
    asked: Member, graph: Graph | GraphCollection, decision: Decision | None, elsewhere: Decision | None
) -> dict[str, Any]:
    schema, decisions, union = asked.silo.schema, {"own": decision, "other": elsewhere}, graph.union
    plain = graph is union and all(
        each is None for each in (union.edge_weights, union.time, union.types, union.links)
    )  # fmt: skip
    return {
        "decision": {name: each._asdict() for name, each in decisions.items() if each is not None}, "format": 2,
        "task": schema.task, "plain": plain, "read": asked.preparation.tree(),
        "classes": asked.client.class_names,
    }  # fmt: skip


def _preparation(asked: Member) -> dict[str, NDArray[Any]]:
    """What is done to columns before a model sees them, and to what it estimates after."""
    schema, scale = asked.silo.schema, asked.silo.scale
    width, outputs = schema.num_features, schema.num_classes
    plain = scale is None or not len(scale.factor)
    targets = None if scale is None else scale.targets
    names = schema.feature_names or ()
    found = {
        "shift": np.zeros(width) if scale is None or plain else scale.shift,
        "factor": np.ones(width) if scale is None or plain else scale.factor,
        "fills": np.array([asked.kept.fills.get(name, 0.0) for name in names]) if names else np.zeros(width),
        "target_shift": np.zeros(outputs) if targets is None else targets.shift,
        "target_factor": np.ones(outputs) if targets is None else targets.factor,
    }  # fmt: skip
    if scale is not None and scale.links is not None:
        found |= {"link_shift": scale.links.shift, "link_factor": scale.links.factor}
    return found


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


def _choose_checked(asked: Member) -> Graph | GraphCollection:
    """Some test nodes, of a silo without labels any that are classified, and others around them, or some graphs;
    nothing of classes and names."""
    seen = asked.silo.seen
    if isinstance(seen.graph, GraphCollection):
        items = np.union1d(seen.items["test"], np.arange(seen.graph.num_items))[:CHECKED]
        chosen = seen.graph.subset(items.astype(np.int64))
        return replace(chosen, labels=np.full(len(chosen), -1))
    links = seen.graph.adjacency()
    classified = range(seen.graph.num_nodes) if seen.graph.types is None else np.flatnonzero(seen.graph.types.targets)
    tested = seen.items["test"]
    nodes = np.asarray((tested if len(tested) else classified)[:10], dtype=np.int64)
    for _ in range(2):
        nodes = np.union1d(nodes, links[nodes].indices)[: max(CHECKED, len(nodes))].astype(np.int64)
    part = seen.graph.subgraph(nodes[:CHECKED])
    return replace(part, labels=np.full(part.num_nodes, -1), node_names=None, splits={})


def _knows_more(asked: Member) -> bool:
    """Whether the run's model says something else of the silo's own items than of the same ones elsewhere."""
    graphs: Any = (asked.silo.seen.graph, replace(asked.silo.seen.graph))
    with torch.no_grad():
        own, other = (asked.client.predict(asked.client.tensors(graph), asked.view) for graph in graphs)
    return not torch.equal(own, other)


def _ask_model(asked: Member, graph: Graph | GraphCollection, decision: Decision | None) -> dict[str, NDArray[Any]]:
    """What the run's model says of a graph's items, and which of them are asked for."""
    with torch.no_grad():
        output = asked.client.predict(asked.client.tensors(graph), asked.view)
    types = graph.union.types
    items = np.arange(graph.num_items) if types is None else np.flatnonzero(types.targets)
    output = output[torch.from_numpy(items)]
    if asked.silo.schema.task in TARGET_TASKS:
        scores = read_targets(asked.silo, output.cpu().numpy())
    else:
        scores = probabilities(output).cpu().numpy()
    found = {"asked": items, "scores": scores}
    if decision is not None:
        said = apply_decision(decision, scores)
        found |= {name: said[name] for name in ("decisions", "calibrated") if said[name] is not None}
    return found


__all__ = ["Export", "export"]
