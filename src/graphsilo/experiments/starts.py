"""Models that begin as an earlier run left them, for fine-tuning and for going on with other data or another task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from graphsilo.errors import ConfigError, RunError, UnsupportedError
from graphsilo.experiments.participants import Participants
from graphsilo.experiments.storage import disk, reading
from graphsilo.experiments.storage.records import RunRecord
from graphsilo.federation.client import ModelSpec, build_model
from graphsilo.federation.message import Tensors
from graphsilo.federation.model_files import aggregate_path, model_path
from graphsilo.federation.registry import Method
from graphsilo.models.base import Model
from graphsilo.random import generator
from graphsilo.training.local import weights_of
from graphsilo.types import ClientId

WRAPPED = "encoder."
"""What the names of a backbone's weights begin with inside a larger model, such as ``Structured`` or ``Projected``."""


def start_models(folder: str, method: Method, participants: Participants, seed: int) -> Mapping[ClientId, ModelSpec]:
    """Every client's backbone, to begin with what the run in ``folder`` reports.

    Clients that train alone begin with what the run reports of each, its own model or the common one; all other methods
    with the common one. Of several seeds the model is that of ``seed``, else of the first.

    Raises:
        ConfigError: There is no such run, or its models are of another kind or for other features.
        RunError: It has none, saved none, or their file is damaged.
        UnsupportedError: The method has no backbone.
    """
    if not method.backbone:
        raise UnsupportedError(
            f"{method.title} has no backbone that could begin with the model of a run: leave out run.start."
        )
    record = reading.read(Path(folder))
    if not isinstance(record, RunRecord):
        raise ConfigError(
            f"run.start wants the folder of a whole run, and {folder} holds what one silo keeps of a run between "
            f"machines, whose models stayed at their silos."
        )
    row = next((row for row in record.seeds if row.seed == seed), record.seeds[0])
    specs, prefixes = {}, dict[tuple[Path, str, str], str]()
    for client, spec in participants.models.items():
        common = not method.alone or reading.mode_of(row, client).startswith("aggregate")
        path = _find(Path(folder), row.seed, client, common=common)
        kind = (path, spec.name, str(spec.settings))
        if kind not in prefixes:  # a common model is looked at once
            drawn = build_model(spec, participants.schema, generator(seed, "model"), "cpu")
            prefixes[kind] = _check(folder, spec.name, disk.read_tensors(path), drawn, "" if common else "own/")
        specs[client] = replace(spec, start=(str(path), prefixes[kind]))
    return specs


def explain_overlap(folder: str, participants: Participants) -> list[str]:
    """What a person should know where the run in ``folder`` may have learned from what is tested here."""
    record = reading.read(Path(folder))
    if not isinstance(record, RunRecord) or record.data.hash != participants.data_hash:
        return []
    if participants.task == "link" and record.task != "link":
        return [
            f"the run in {folder} passed messages along all links of the same data, those too that are test links "
            f"here: scores may be somewhat too high."
        ]
    if record.partition.hash == participants.cut_hash:
        return []
    return [
        f"the run in {folder} cut the same data otherwise, so that it may have trained on what is tested here: scores "
        f"may be too high. Use one cut for both (partition.seed, partition.file)."
    ]


def _find(folder: Path, seed: int, client: ClientId, *, common: bool) -> Path:
    """The file of the model of the best round."""
    own = [model_path(folder, seed, client, "best")]
    shared = [aggregate_path(folder, seed, whose, "best") for whose in (client, None)]
    for path in shared if common else own:
        if path.is_file():
            return path
    what, hint = f"model of client {client}", "a client that was not in that run has none"
    if common:
        what, hint = "common model", "a method may have none; --method local needs no common one"
    raise RunError(
        f"run.start: {folder} holds no {what} of seed {seed}. Models are saved unless evaluation.models is false, stay "
        f"at silos that are elsewhere, and {hint}."
    )


def _check(folder: str, name: str, tensors: Tensors, drawn: Model, view: str) -> str:
    """What the names of a backbone's weights begin with in a file; refuses models of which not all but the last layer
    is as in this run.

    Args:
        folder, name: Of the run, and of the backbone; for the message.
        tensors: What the file holds.
        drawn: The backbone.
        view: What the names of its model begin with.
    """
    inner = f"{view}{WRAPPED}"  # of a method that puts something behind or beside a backbone: that
    prefix = inner if any(tensor.startswith(inner) for tensor in tensors) else view
    for own, weight in weights_of(drawn).items():
        found = tensors.get(f"{prefix}{own}")
        if not own.startswith(drawn.head) and (found is None or found.shape != weight.shape):
            raise ConfigError(
                f"run.start: the models in {folder} do not fit {name} as it is set here: '{own}' has the shape "
                f"{tuple(weight.shape)}, there it is {'missing' if found is None else tuple(found.shape)}. Use the "
                f"model of that run, with its settings, and data with the same features."
            )
    return prefix
