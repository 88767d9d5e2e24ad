"""The data and the partition that a run keeps in its folder; what lies there already is compared before it is used."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from graphsilo.data.graph import Graph, GraphCollection, content_hash
from graphsilo.data.partition import Partition
from graphsilo.data.partition.rules.files import GIVEN
from graphsilo.data.sources.files import load_graph
from graphsilo.errors import ConfigError, GraphsiloError
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.participants import Participants
from graphsilo.experiments.simulation import Simulation
from graphsilo.experiments.storage.resume import holds_run, stored_config

DATA, PARTITION = "data.npz", "partition.npz"
_PLACES = {DATA: ("data", "name"), PARTITION: ("partition", "file"), GIVEN: ("partition", "path")}
"""Files that hold what was given in memory, and the settings that name them."""


def adopted(config: RunConfig, own: Path | None, folder: Path, *, resume: bool) -> tuple[RunConfig, dict[Path, Path]]:
    """The configuration with what was given in memory at its place in the run's folder, and what is to be copied there.

    Args:
        config: Names files of ``own`` where something was given in memory.
        own: Where such things lie until everything is checked; None where nothing was given so.
        folder: Of the run.
        resume: Whether the run that the folder holds is gone on with: then something else in its place is left to
            the comparison with that run, which says in what they differ.

    Raises:
        ConfigError: Another graph or partition is there already.
    """
    copies: dict[Path, Path] = {}
    for name, (section, key) in _PLACES.items():
        source, target, chosen = None if own is None else own / name, folder / name, getattr(config, section)
        if source is None or _value(chosen, key) != str(source) or not _is_place(target, source, resume=resume):
            continue
        copies[source] = target
        config = config.model_copy(update={section: _with_value(chosen, key, str(target))})
    return config, {source: target for source, target in copies.items() if not target.exists()}


def _value(section: Any, key: str) -> Any:
    return getattr(section, key) if key in type(section).model_fields else section.options.get(key)


def _with_value(section: Any, key: str, value: str) -> Any:
    if key in type(section).model_fields:
        return section.model_copy(update={key: value})
    return section.model_copy(update={"options": {**section.options, key: value}})


def check_places(folder: Path, simulation: Participants) -> None:
    """Refuse to write the partition over a file that no run of this folder has left.

    Raises:
        ConfigError: There is one.
    """
    place = folder / PARTITION
    if not isinstance(simulation, Simulation) or not place.exists() or holds_run(folder):
        return
    stored = stored_config(folder)
    if stored is not None and _named(stored) != str(place.resolve()):
        return  # left by a run that was stopped before its first checkpoint
    with contextlib.suppress(GraphsiloError):
        if Partition.load(place).content_hash == simulation.cut_hash:
            return
    raise _other(place, "partition")


def _named(stored: dict[str, object]) -> str | None:
    """The stored partition that a run's configuration names."""
    section = stored.get("partition")
    return section.get("file") if isinstance(section, dict) else None


def _is_place(target: Path, source: Path, *, resume: bool) -> bool:
    """Whether a file may have this place: nothing is there, or the same.

    Raises:
        ConfigError: Something else is, and no run could be warned of it.
    """
    if not target.exists() or _same(target, source):
        return True
    if resume and holds_run(target.parent):
        return False
    raise _other(target, "graph" if target.name == DATA else "partition")


def _other(place: Path, what: str) -> ConfigError:
    return ConfigError(
        f"{place} is there already and holds another {what} than this run's, or something else: it is neither used nor "
        f"written over. Choose another folder for the run, or move the file away."
    )


def _same(one: Path, other: Path) -> bool:
    if one.read_bytes() == other.read_bytes():
        return True
    if one.name == GIVEN:
        return False
    try:
        if one.name == PARTITION:
            return Partition.load(one).content_hash == Partition.load(other).content_hash
        graphs = (load_graph(one), load_graph(other))
    except GraphsiloError:
        return False
    return content_hash(graphs[:1]) == content_hash(graphs[1:]) and _splits(graphs[0]) == _splits(graphs[1])


def _splits(graph: Graph | GraphCollection) -> dict[str, bytes]:
    return {} if isinstance(graph, GraphCollection) else {name: mask.tobytes() for name, mask in graph.splits.items()}
