"""Every setting of every method is heard: changed alone, it changes what clients have learned after three rounds.

The cases come from the configuration itself: a switch is set to each other option, a number to the values below. A new
setting fails ``test_every_setting_has_a_case`` until it has a value here, or is named with the reason why it cannot.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.errors import ConfigError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.effects import settled
from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.codec import encode_tree
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import ABOVE_ZERO
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.types import Precision

METHODS = {name: registry.load(name) for name in registry.names() if name not in ("global", "majority")}
"""``global`` is FedAvg with one client; ``majority`` learns nothing that a setting could change."""

BASE: dict[str, dict[str, Any]] = {
    "fairfgl": {"lr": 0.3, "local_epochs": 2},
    "fedgta": {"threshold": 0.57},
    "fedlog": {
        "generator_epochs": 3, "networks": 3, "prototypes": 4, "embedding_dim": 8, "batch_size": 8, "interp": 4,
        "interaction_layers": 2,
    },
    "fedpg": {"server_epochs": 4, "confidence": 0.3, "lr": 0.05},
    "fedridge": {
        "features": "mean", "label_features": "never", "ridge": (100.0,), "prior": (0.0,), "own_ridge": (0.01,),
    },
    "fedsage_plus": {
        "local_generator_epochs": 2, "generator_epochs": 1, "generator_hidden": (8, 16), "encoder_widths": (8, 8),
        "count_bias": 1.7, "lambda_f": 0.5, "local_epochs": 1,
    },
    "opfgl": {
        "links": "learned", "surrogate_steps": 60, "stage1_epochs": 30, "stage1_check": 10, "stage2_epochs": 20,
        "stage2_check": 10, "stage1_lr": 1e-2, "stage2_lr": 1e-2, "link_epochs": 20, "link_check": 5,
    },
}  # fmt: skip
"""Where the changes start from: short, and such that every part has something to do."""

Value = Any
Settings = dict[str, Any]

COMMON: dict[str, list[Value]] = {
    "participation": [0.4], "local_epochs": [4], "batch_size": [3], "lr": [0.02], "weight_decay": [0.05],
    "momentum": [0.5], "server_lr": [0.5],
}  # fmt: skip
VALUES: dict[str, dict[str, list[Value]]] = {
    "fairfgl": {
        "history": [0, 1], "alpha_start": [0.0, 0.2], "distillation": [0.0], "distillation_until": [2],
        "alignment": [0.0],
        "correction_margin": [0.5], "top_k": [0.2], "eta": [0.8],
    },
    "fedgcn": {"lr": [0.1], "momentum": [0.5]},
    "fedgta": {"steps": [1], "alpha": [1.0], "heat": [0.1], "order": [1], "threshold": [1.0]},
    "fedlog": {
        "batch_size": [0, 3], "prototype_lr": [0.01], "embedding_dim": [6], "prototypes": [3],
        "degree_threshold": [0.0], "norm_weight": [1.0], "interaction_layers": [1], "interp": [0, 2],
        "difficulty_step": [0.1], "difficulty_decrease": [0.1],
        "difficulty_threshold": [0.0], "generator_epochs": [4], "generator_lr": [0.1],
        "generator_hops": [2], "grad_weight": [0.0], "networks": [2], "nets_per_epoch": [3], "pretrain_epochs": [2],
        "pretrain_patience": [1], "rate_noise": [0.2], "receiver": [0],
    },
    "fedpg": {
        "mu": [1.0], "alpha": [1.0], "similarity": [-1.0], "hops": [0, 1], "max_neighbours": [1],
        "confidence": [0.99], "norm": ["first", 5.0], "server_epochs": [8], "server_lr": [0.1],
        "temperature": [0.1], "hop_share": [0.0], "margin": [0.0], "noise": [0.2], "noise_scale": [3.0],
        "graph_similarity": [-1.0], "graph_decay": [0.2],
    },
    "fedprox": {"mu": [1.0], "stragglers": [1.0]},
    "fedproto": {"strength": [0.0], "min_count": [9]},
    "fedridge": {
        "pilot": [1], "hops": [0, 1], "dim": [4], "random_features": [5], "balance": [(1.0,)], "ridge": [(0.01,)],
        "prior": [(0.2,)], "own_ridge": [(100.0,)], "min_count": [12],
    },
    "fedsage": {"fan_out": [1, (2, 1)]},
    "fedsage_plus": {
        "fan_out": [1], "hidden_share": [0.8], "local_generator_epochs": [3], "generator_epochs": [2],
        "generator_lr": [0.01], "generator_weight_decay": [0.1], "generator_hidden": [(8,)],
        "encoder_widths": [(4, 8)], "generator_dropout": [0.0], "lambda_d": [0.0], "lambda_f": [5.0],
        "lambda_c": [0.0], "alpha": [0.0], "count_bias": [2.6], "helpers": [1],
    },
    "opfgl": {
        "hops": [1], "min_count": [4], "lp_steps": [1], "lp_alpha": [0.3], "expand_classes": [0],
        "expand_confidence": [0.4], "expand_degree": [1], "delta": [0.5], "nodes_per_class": [2],
        "nodes_percent": [50.0], "feature_weight": [1.0], "smooth_weight": [5.0], "surrogate_steps": [30],
        "cycle": [20], "link_steps": [3], "lr_features": [0.05], "lr_links": [0.1], "link_hidden": [16],
        "stage1_lr": [0.05], "stage1_epochs": [10], "stage1_check": [3], "stage2_lr": [0.05],
        "stage2_epochs": [10], "stage2_check": [3], "patience": [1], "beta": [0.1], "gamma_min": [3.0],
        "gamma_max": [0.05], "focal_gamma": [0.0], "link_epochs": [5], "link_lr": [0.1], "link_check": [2],
    },
}  # fmt: skip
"""What numbers are set to; where a method has none of its own, those of ``COMMON``."""

WITH: dict[tuple[str, str], Settings] = {
    ("", "momentum"): {"optimizer": "sgd"},
    ("fedpg", "noise_scale"): {"noise": 0.25},
    ("fedpg", "neighbourhood"): {"hops": 2},
    ("fedpg", "max_neighbours"): {"hops": 3, "neighbourhood": "within", "centred": False},
    ("fedpg", "discrepancy"): {"margin": 2.0},
    ("fedgta", "moments"): {"threshold": 0.552},  # raw and hybrid moments differ little
    ("fedgcn", "reset_optimizer"): {"momentum": 0.5},
    ("fedlog", "difficulty_decrease"): {"difficulty_step": 0.2, "difficulty_threshold": 0.1},
    ("fedlog", "pretrain_patience"): {"pretrain_epochs": 15, "lr": 0.01},
    ("fedlog", "rate_permutation"): {"rate_noise": 0.1},
    ("fedprox", "stragglers"): {"local_epochs": 5},
    ("fedridge", "pilot"): {"features": "auto", "ridge": (0.01,), "own": False},
    ("fedridge", "criterion"): {"ridge": (0.01, 10.0), "balance": (0.0, 1.0)},
    ("scaffold", "reset_optimizer"): {"momentum": 0.5},
    ("opfgl", "lp_self_loops"): {"expand_confidence": 0.4, "expand_degree": 1},
    ("opfgl", "ddof"): {"nodes_per_class": 3},
    ("opfgl", "moment"): {"nodes_per_class": 3},
    ("opfgl", "patience"): {"stage1_check": 2, "stage2_check": 2},
    ("opfgl", "focal_gamma"): {"fine_tune": "focal"},
}
"""What else has to be set for a setting to have anything to do, with both of its values."""

ELSEWHERE: dict[tuple[str, str], str] = {
    ("fedproto", "predict"): "how a client classifies: tests/methods/test_fedproto.py",
    ("local", "best_round"): "decides what is reported: tests/experiments/test_evaluation.py",
    ("", "rounds"): "how often the runner asks: tests/experiments/test_runner.py",
    ("", "min_clients"): "when failures end a round: tests/runtime/test_dispatch.py",
    ("local", "reset_optimizer"): "whoever trains alone downloads nothing",
    ("opfgl", "condense_at"): "the same surrogate at either place is its promise: tests/methods/test_opfgl.py",
}
"""Settings that change no number, and why."""

EQUAL = {("fedlog", "generator_output", "tanh"), ("fedridge", "features", "auto"), ("fedridge", "wire", "float64")}
"""Options that mean the same here: features within -1 and 1 make ``auto`` tanh, and are best averaged over hops."""

TASK = {
    ("fedpg", "graph_similarity"): "graph", ("fedpg", "graph_decay"): "graph",
    **{("opfgl", f"link_{name}"): "link" for name in ("pretrain", "epochs", "lr", "check")},
}  # fmt: skip


def options(method: str, field: str) -> list[Value]:
    """What a setting is changed to."""
    listed = VALUES.get(method, {}).get(field, COMMON.get(field))
    if listed is not None:
        return listed
    annotation = METHODS[method].config.model_fields[field].annotation
    usual = METHODS[method].config(**BASE.get(method, {})).model_dump()[field]
    if annotation is bool:
        return [not usual]
    if get_origin(annotation) is Literal:
        return [each for each in get_args(annotation) if each != usual and (method, field, each) not in EQUAL]
    return []


def about(table: dict[tuple[str, str], Any], method: str, field: str, default: Any = None) -> Any:
    return table.get((method, field), table.get(("", field), default))


FIELDS = [(name, field) for name, method in METHODS.items() for field in method.config.model_fields]
CASES = [
    pytest.param(method, field, value, id=f"{method}-{field}-{value}")
    for method, field in FIELDS
    if about(ELSEWHERE, method, field) is None
    for value in options(method, field)
]


@pytest.mark.parametrize(("method", "field"), FIELDS)
def test_every_setting_has_a_case(method, field):
    assert options(method, field) or about(ELSEWHERE, method, field), "give it values in VALUES, or a reason"


def test_every_case_has_a_setting():
    known = {*FIELDS, *(("", field) for _, field in FIELDS)}
    listed = {(method, field) for method, fields in VALUES.items() for field in fields}
    assert {*listed, *WITH, *ELSEWHERE, *TASK} <= known


@pytest.mark.parametrize(("method", "field", "value"), CASES)
def test_it_is_heard(method, field, value):
    task = TASK.get((method, field), "node")
    base = {**BASE.get(method, {}), **about(WITH, method, field, {})}
    assert learned(method, frozen({**base, field: value}), task) != learned(method, frozen(base), task)


def conditions(method: str, field: str) -> list[tuple[str, Value]]:
    """Values of other settings at which a setting says that it is idle."""
    extra = METHODS[method].config.model_fields[field].json_schema_extra
    found: list[tuple[str, Value]] = []
    for other, allowed in (extra.get("when", {}) if isinstance(extra, dict) else {}).items():
        if other == "task":
            found.append((other, next(task for task in METHODS[method].tasks if task not in allowed)))
        elif allowed == ABOVE_ZERO:
            found.append((other, 0))
        elif allowed == [0.0]:
            found.append((other, 50.0))
        else:
            annotation = METHODS[method].config.model_fields[other].annotation
            known = (True, False) if annotation is bool else get_args(annotation)
            found.extend((other, value) for value in known if value not in allowed)
    return found


IDLE = [
    pytest.param(method, field, value, off, id=f"{method}-{field}-{value}-{off[0]}-{off[1]}")
    for method, field in FIELDS
    for off in conditions(method, field)
    for value in options(method, field)
]


@pytest.mark.parametrize(("method", "field", "value", "off"), IDLE)
def test_it_is_idle_where_it_says_so(method, field, value, off):
    """And a run that asks for it there is refused."""
    other, at = off
    task = at if other == "task" else TASK.get((method, field), "node")
    base = {**BASE.get(method, {}), **about(WITH, method, field, {}), **({} if other == "task" else {other: at})}
    base.pop(field, None)
    assert learned(method, frozen({**base, field: value}), task, models=True) == learned(
        method, frozen(base), task, models=True
    )
    if value == METHODS[method].config.model_fields[field].default:
        return
    said = {f"method.{name}": each for name, each in {**base, field: value}.items()}
    config = load_config(overrides={"method.name": method, "task": task, **said})
    named = "the task" if other == "task" else f"method.{other}"
    with pytest.raises(ConfigError, match=rf"method\.{field} would have no effect: {named} is "):
        settled(config.with_explicit([f"method.{field}"]), task=task)


def frozen(settings: Settings) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(settings.items()))


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.backbone])
def test_the_precision_of_a_run_is_heard(method):
    settings = frozen(BASE.get(method, {}))
    assert learned(method, settings, "node", "bfloat16") != learned(method, settings, "node")


@cache
def learned(
    name: str,
    settings: tuple[tuple[str, Any], ...],
    task: str,
    precision: Precision = "float32",
    *,
    models: bool = False,
) -> bytes:
    """Every client's state after three rounds, or its models alone."""
    method = METHODS[name]
    config = method.config(**dict(settings))
    silos = silos_for(task)
    usual = dict(method.model or {})
    spec = ModelSpec(usual.get("name", "gcn" if task != "graph" else "gin"), {"hidden": 8}, precision)
    federation = InProcess(
        [silo.client for silo in silos],
        lambda client: method.client(ClientContext(client, silos[client], config, spec, 0)),
    )
    server = method.server(
        ServerContext(config, silos[0].schema, dict.fromkeys(federation.clients, spec), 0, federation.clients)
    )
    federation.at("setup", 0)
    server.set_up(federation)
    for number in range(1, min(3, server.rounds) + 1):
        federation.at("round", number)
        server.round(federation, number)
    clients = [federation.client(client) for client in federation.clients]
    return b"".join(encode_tree(client.final_models() if models else client.state()).tobytes() for client in clients)


@cache
def silos_for(task: str) -> tuple[Silo, ...]:
    """Three clients, with different numbers of nodes and, the first with fewer, of training nodes."""
    if task == "graph":
        return tuple(graphs_of(client) for client in range(3))
    config = load_config(
        overrides={
            "data.name": "citation-sbm", "data.generator": {"nodes": 122, "classes": 3, "features": 12},
            "partition.rule": "metis", "partition.clients": 3, "task": task,
            **({"partition.ratios": [0.4, 0.3, 0.3]} if task == "node" else {}),
        }
    )  # fmt: skip
    first, *others = prepare(config, METHODS["fedgcn" if task == "node" else "fedavg"]).silos
    return (replace(first, train=first.train[:-5]), *others)


def graphs_of(client: int, count: int = 16) -> Silo:
    """Paths of four nodes, of two classes by their features."""
    draw = np.random.default_rng(client)
    first = np.flatnonzero(np.arange(4 * count) % 4 < 3)
    edges = np.stack([np.concatenate([first, first + 1]), np.concatenate([first + 1, first])])
    labels = draw.integers(0, 2, count)
    features = draw.standard_normal((4 * count, 3)) + np.repeat(labels, 4)[:, None]
    union = Graph(features.astype(np.float32), edges, np.full(4 * count, -1), 2)
    whole = GraphCollection(union, np.arange(0, 4 * count + 1, 4), labels.astype(np.int64), 2)
    items = {"train": np.arange(0, count, 2), "val": np.arange(1, count, 4), "test": np.arange(3, count, 4)}
    return Silo(client, whole, items["train"], (EvaluationSet("seen", whole, items),), Schema("graph", 3, 2))


def test_bounds_of_node_weights_must_leave_room():
    with pytest.raises(ConfigError, match=r"gamma_min is 0\.5, more than method\.gamma_max, 0\.1; lower the one"):
        METHODS["opfgl"].config(gamma_min=0.5, gamma_max=0.1)
    assert METHODS["opfgl"].config(gamma_min=0.1, gamma_max=0.1).gamma_max == 0.1
