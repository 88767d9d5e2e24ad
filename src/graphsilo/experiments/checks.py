"""Refusals before training: what this machine, method, model or partition cannot do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
import torch

from graphsilo import models
from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import Schema, Silo
from graphsilo.data.sources.cache import cache_root
from graphsilo.data.sources.sizes import require_memory
from graphsilo.errors import ConfigError, DataError, UnsupportedError
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.evaluation import choice_of, modes_of, view_of
from graphsilo.experiments.participants import Participants
from graphsilo.experiments.simulation import model_entries
from graphsilo.federation import registry
from graphsilo.federation.registry import Method
from graphsilo.federation.settings import LocalTrainingConfig, MethodConfig
from graphsilo.random import generator
from graphsilo.runtime.local.placement import free_memory
from graphsilo.runtime.machine import free_disk, make_repeatable
from graphsilo.types import CLASS_TASKS, Precision

if TYPE_CHECKING:
    from graphsilo.experiments.simulation import Simulation


def check_device(device: str, precision: Precision = "float32") -> None:
    """Refuse a device that is not there or not able; on a GPU, ask torch for what it can repeat exactly.

    Raises:
        ConfigError: There is no such device, or it lacks the precision.
    """
    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = ""
    if kind not in ("cpu", "cuda"):
        what = (
            f"'{device}' is a device of torch that graphsilo does not compute on"
            if kind
            else f"'{device}' is no device"
        )
        raise ConfigError(f"run.device {what}; use cpu or cuda.")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(
            "run.device cuda was asked for, but this machine or this build of torch has none. Use "
            "run.device=cpu, or install torch with CUDA."
        )
    if device.startswith("cuda") and precision == "bfloat16" and not torch.cuda.is_bf16_supported():
        raise ConfigError(
            "run.precision bfloat16 was asked for, but this CUDA device cannot compute in it. Use "
            "run.precision=float32."
        )
    make_repeatable(device)


def check_models(config: RunConfig, method: Method, settings: MethodConfig) -> None:
    """Refuse, before data is read, backbones that do not go with a method's settings.

    Models of a person's own wait for the data, as only it says what they are made for.

    Raises:
        ConfigError: One does not.
    """
    task = config.task or "node"
    for name, options in model_entries(config) if method.backbone else ():
        if name not in config.find_own("model") and task in models.listing(name).tasks:
            model = models.build(
                name, num_features=1, num_classes=2, task=task, generator=generator(0, "depth"),
                schema=Schema(task, 1, 2, relations=("any",)), **options,
            )  # fmt: skip
            settings.check_model(name, model.message_layers, task)


def check_data(method: Method, simulation: Participants) -> None:
    """Refuse a task that a method does not do, weights of edges that it would ignore, and labels that teach or test
    nothing.

    Raises:
        DataError: There are no two classes, or no test items.
        UnsupportedError: It does not do the task, or would ignore them; names methods that do, or take them.
    """
    if simulation.task not in method.tasks:
        able = [listing.name for listing in registry.listings() if simulation.task in listing.tasks]
        raise UnsupportedError(
            f"{method.title} does not do task '{simulation.task}', only {', '.join(method.tasks)}. For this task there "
            f"are: {', '.join(able)}."
        )
    if simulation.has_edge_weights:
        _check_weights(method, simulation)
    if simulation.task != "link":
        if simulation.task in CLASS_TASKS:
            _check_classes(simulation)
        if not any(row.get("test", 1) for row in simulation.cut["per_client"]):
            raise DataError(
                f"{simulation.data['name']}: no client has a test item, so that nothing could be scored: give testing "
                f"a share of the {simulation.task}s, as partition.ratios=[0.6, 0.2, 0.2] does (ratios under split in "
                f"the description of a silo)."
            )


def check_support(config: RunConfig, method: Method, method_config: MethodConfig, simulation: Participants) -> None:
    """Refuse what a method or a model cannot do, and say which others can.

    Raises:
        ConfigError: More answers are wanted than clients are asked, or a class is looked for that there is not.
        UnsupportedError: Task, model or evaluation mode does not go with the method.
    """
    check_reported(config, method)
    if method.pooled and (config.run.alone or "alone" in config.run.references):
        instead = "" if config.run.one_place else "; `local` is the backbone at every silo by itself"
        raise UnsupportedError(
            f"{method.title} has all data in one place, so that no silo can carry it out by itself. Leave out "
            f"run.alone and the reference `alone`{instead}."
        )
    clients = len(simulation.clients)
    asked = method_config.count_asked(clients)
    if method_config.min_clients is not None and method_config.min_clients > asked:
        more = ", or raise method.participation" if asked < clients else ""
        raise ConfigError(
            f"method.min_clients wants {method_config.min_clients} answers, but only {asked} of {clients} clients are "
            f"asked per round{_describe_left_out(simulation)}. Lower it{more}."
        )
    check_data(method, simulation)
    if config.evaluation.positive is not None:
        from graphsilo.experiments.decisions import positive_class

        positive_class(config.evaluation, simulation.schema, simulation.rare)
    if isinstance(method_config, LocalTrainingConfig) and method_config.loss != "auto":
        from graphsilo.training.item_losses import check_loss

        check_loss(method_config, simulation.task)
    run, summed = config.run, config.evaluation.report == "federation"
    if run.secure_sums or summed or method_config.needs_secure_sums or {run.compression, run.robust} != {"none"}:
        from graphsilo.experiments.check_answers import check_answers

        check_answers(config, method, method_config, asked, simulation)
    here = getattr(simulation, "silos", ())  # others' are looked at where they are
    method_config.check_features(simulation.scaling, {name for silo in here for name in silo.estimated})
    if config.run.start is not None:
        from graphsilo.experiments.starts import start_models

        start_models(config.run.start, method, simulation, config.run.seeds[0])
    if config.run.precision != "float32" and not method.backbone:
        raise UnsupportedError(
            f"{method.title} has no backbone whose products could be made in {config.run.precision}. Leave "
            f"run.precision out."
        )
    for spec in simulation.models.values():
        tasks = models.listing(spec.name).tasks
        if simulation.task not in tasks:
            able = [name for name in models.names() if simulation.task in models.listing(name).tasks]
            raise UnsupportedError(
                f"model '{spec.name}' does not do task '{simulation.task}', only {', '.join(tasks)}. For this task "
                f"there are: {', '.join(able)}."
            )
        entry = models.listing(spec.name)
        models.check_relations(entry, simulation.schema.relations)
        if entry.relational and method.makes_graphs:
            raise UnsupportedError(
                f"{method.title} has models compute on graphs that it makes, whose links are of no relation, and model "
                f"'{spec.name}' reads relations alone. Use --model gcn or --model sage."
            )
    different = {(spec.name, tuple(sorted(map(str, spec.settings.items())))) for spec in simulation.models.values()}
    if len(different) > 1 and not method.heterogeneous:
        able = [listing.name for listing in registry.listings() if listing.heterogeneous]
        raise UnsupportedError(
            f"{method.title} averages models, so all clients must run the same one; model.pool gives "
            f"{len(different)} different ones. Methods for different models: {', '.join(able)}."
        )


def check_reported(config: RunConfig, method: Method) -> None:
    """Refuse to report a model that is not scored.

    Raises:
        ConfigError: Each silo's own scores would choose, and nobody sees them.
        UnsupportedError: The method has no such model, or it is not among the modes.
    """
    modes, choice = modes_of(config.evaluation, method), choice_of(config)
    named = {"own": ("own", "models of the clients' own"), "common": ("aggregate", "common model")}.get(choice)
    if named is not None and named[0] not in map(view_of, modes):
        raise UnsupportedError(
            f"evaluation.model={choice} reports the {named[1]}, and {method.title} has no {named[1]} that is scored "
            f"({', '.join(modes)}). Leave it out, or name the mode in evaluation.modes."
        )
    if choice == "silo" and config.evaluation.report == "federation":
        raise ConfigError(
            "evaluation.model=silo chooses by each silo's own scores, and evaluation.report=federation has the "
            "coordinator see none. Use evaluation.model=run, or evaluation.report=silos."
        )


def _describe_left_out(simulation: Participants) -> str:
    """Says how many clients there were, where some are left out."""
    without = simulation.without
    return f" (run.without leaves out {len(without)} of {len(without) + len(simulation.holders)})" if without else ""


def _check_classes(simulation: Participants) -> None:
    """Refuse labels of one class or none: whatever is trained would always be right."""
    schema, what = simulation.schema, f"{simulation.task}s"
    rows = [row["labels"] for row in simulation.cut["per_client"] if "labels" in row]
    classes = np.flatnonzero(np.sum(rows, axis=0)).tolist() if rows else list(range(schema.num_classes))
    if len(classes) > 1:
        return
    name = simulation.data["name"]
    if not classes:
        from graphsilo.data.silos.untrained import NO_LABELS

        raise DataError(f"{name}: none of the {what} has a label. {NO_LABELS}")
    word = f"'{schema.class_names[classes[0]]}'" if schema.class_names else f"class {classes[0]}"
    numbered = (
        "" if schema.class_names
        else " A label -1 is unknown; where -1 and 1 are the two classes of a graphsilo.Graph, this line numbers them "
        "0 and 1: graph = dataclasses.replace(graph, labels=(graph.labels + 1) // 2)."
    )  # fmt: skip
    raise DataError(
        f"{name}: all labels are the same, {word}, and {simulation.task} classification tells two classes or more "
        f"apart: every model would be right always. Name the column or attribute that tells the {what} apart.{numbered}"
    )


def _check_weights(method: Method, simulation: Participants) -> None:
    """Refuse methods and models for which the weights of edges would have no effect."""
    advice = (
        "Or leave the weights out: replace(graph, edge_weights=None), or no edges.weight in a description of tables."
    )
    if not method.edge_weights:
        able = [listing.name for listing in registry.listings() if listing.edge_weights]
        raise UnsupportedError(
            f"the edges have weights, and the steps of {method.title} know none: they would be ignored. Methods that "
            f"take them: {', '.join(able)}. {advice}"
        )
    for spec in simulation.models.values():
        if not models.listing(spec.name).edge_weights:
            able = [name for name in models.names() if models.listing(name).edge_weights]
            raise UnsupportedError(
                f"the edges have weights, and model '{spec.name}' knows none: they would be ignored. Models that take "
                f"them: {', '.join(able)}. {advice}"
            )


def check_resources(simulation: Simulation, settings: MethodConfig) -> None:
    """Refuse backbones whose propagated features fit neither into memory nor onto the cache's disk.

    Clients make room for each other where they have to, so that one of them at a time has to fit.

    Raises:
        UnsupportedError: They do not; names the client and what it takes.
    """
    if not any(models.listing(spec.name).keeps for spec in simulation.models.values()):
        return
    from graphsilo.models.footprint import propagated_bytes

    needed = {}
    for silo in simulation.silos:
        graph, spec = silo.graph, simulation.models[silo.client]
        if isinstance(graph, Graph):
            matrix = graph.features
            filled = matrix.nnz / max(1, matrix.shape[0] * matrix.shape[1]) if sp.issparse(matrix) else 1.0
            needed[silo.client] = propagated_bytes(
                spec.name, spec.settings, nodes=graph.num_nodes, edges=graph.num_edges, features=graph.num_features,
                density=filled, views=_views(silo, settings, whole=models.listing(spec.name).keeps != "relations"),
                relations=len(silo.schema.relations), fan_out=getattr(settings, "fan_out", 0),
            )  # fmt: skip
            if spec.precision == "bfloat16":
                needed[silo.client] += needed[silo.client] // 2  # the copy that products are made with
    if not needed or not max(needed.values()):
        return
    client = max(needed, key=lambda key: needed[key])
    folder = cache_root()
    require_memory(
        needed[client],
        free_memory() + free_disk(folder),
        what=f"keeping client {client}'s propagated features as '{simulation.models[client].name}' does (dense "
        f"matrices, in memory and in files of {folder})",
        instead="Ask for more clients, fewer hops, or a model that keeps none, such as gcn; or let GRAPHSILO_CACHE "
        "name a folder on a larger disk.",
    )


def _views(silo: Silo, settings: MethodConfig, *, whole: bool) -> tuple[int, ...] | None:
    """Items of a step of local training and of evaluation; None where there is more than that, or steps take rows of
    ``whole`` matrices."""
    if not isinstance(settings, LocalTrainingConfig):
        return None  # O-pFGL, for one, propagates features for itself
    if silo.schema.task == "link":
        return (silo.num_items,)
    items = int((silo.labels[silo.train] >= 0).sum())
    step = min(items, settings.batch_size or items)
    if whole and step < items:
        return None
    return (step, silo.num_items) if items else (silo.num_items,)
