"""Models, embeddings and studies of a run, as files beside its result."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from graphsilo.data.silos.scaling import FeatureScale, scale_silo
from graphsilo.errors import RunError
from graphsilo.experiments.config import EvaluationConfig, RunConfig
from graphsilo.experiments.progress import Aggregates
from graphsilo.experiments.simulation import Simulation
from graphsilo.experiments.storage import disk
from graphsilo.federation.client import ClientContext, common_model
from graphsilo.federation.message import Tensors
from graphsilo.federation.model_files import (
    SCALE,
    Kept,
    aggregate_path,
    embedding_path,
    flatten,
    kept_files,
    model_path,
    scale_tensors,
)
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerBase
from graphsilo.runtime.exchange import Exchange
from graphsilo.runtime.hosted import NOBODY, Reported
from graphsilo.types import ClientId


def write_outputs(
    folder: Path | None,
    seed: int,
    federation: Exchange,
    server: ServerBase[Any],
    wanted: EvaluationConfig,
    best: Aggregates,
    scale: FeatureScale | None = None,
    reported: Mapping[ClientId, Reported] = NOBODY,
) -> dict[str, dict[str, float]]:
    """Write what is wanted of every client's best and last model, its embeddings and its study, and aggregates.

    Args:
        folder: Of the run; None writes nothing.
        seed: Of the run.
        federation, server: As they are after the last round.
        wanted: What to write.
        best: The aggregates of the best round.
        scale: Of the features, where all silos agreed on one: the aggregate needs it, too.
        reported: Of clients whose answers are wanted, too: what the run reports.

    Returns:
        The plain numbers of the clients' studies, by client (as text) and name; empty unless they are wanted.

    Raises:
        RunError: The disk is full or cannot be written.
    """
    numbers: dict[str, dict[str, float]] = {}
    arrays: dict[str, NDArray[Any]] = {}

    def files() -> Iterator[tuple[Path, Tensors]]:
        embeddings = wanted.embeddings and folder is not None
        for client, kept in federation.finish(embeddings=embeddings, study=wanted.study, reported=reported):
            for name, value in kept.get("study", {}).items():
                if isinstance(value, torch.Tensor):
                    arrays[f"client-{client}/{name}"] = value.detach().cpu().numpy()
                else:
                    numbers.setdefault(str(client), {})[name] = value
            if folder is None:
                continue
            yield from kept_files(folder, seed, client, kept, models=wanted.models)
        if folder is not None and wanted.models:
            beside = {} if scale is None else flatten({SCALE: scale_tensors(scale)})
            for when, kept_aggregates in (("best", best), ("last", Aggregates(server.aggregates()))):
                for owner, aggregate in kept_aggregates.distinct():
                    yield aggregate_path(folder, seed, owner, when), {**aggregate, **beside}

    if folder is None:
        deque(files(), maxlen=0)  # studies are wanted all the same
    else:
        disk.write_all_tensors(folder, files())
        if arrays:
            disk.write_arrays(disk.study_path(folder, seed), arrays)
    return numbers


def write_missing_embeddings(
    folder: Path, config: RunConfig, method: Method, simulation: Simulation, seeds: Iterable[int]
) -> None:
    """Write the embeddings that finished seeds lack, from the models that they saved.

    Raises:
        RunError: A model is not there, cannot be read, or embeddings cannot be written.
    """
    settings = config.method_config()
    for seed in seeds:
        for silo in simulation.silos:
            target = embedding_path(folder, seed, silo.client)
            if target.exists():
                continue
            kept = read_models(folder, seed, silo.client)
            own = scale_silo(silo, kept.scale)
            specs = simulation.models
            member = method.client(
                ClientContext(
                    silo.client, own, settings, specs[silo.client], seed, config.run.device, common_model(specs)
                )
            )
            member.load_final(kept.models)
            with torch.no_grad():
                embedded = member.embed(member.tensors(silo.seen.graph))
            if embedded is not None:
                disk.write_tensors(target, {"embeddings": embedded.cpu()})


def read_models(folder: Path, seed: int, client: ClientId) -> Kept:
    """A client's best models, or its last where there is no best, and what they need.

    Raises:
        RunError: They are not there or cannot be read.
    """
    path = model_path(folder, seed, client, "best")
    if not path.exists():
        path = model_path(folder, seed, client, "last")
    if not path.exists():
        raise RunError(
            f"the embeddings of a finished run are made from its models, and {path.parent} holds none of seed {seed}, "
            f"client {client}. Run it again with another --out and --set evaluation.embeddings=true."
        )
    return Kept.of(disk.read_tensors(path))
