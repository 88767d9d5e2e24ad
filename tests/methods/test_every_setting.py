"""Every setting of every method is heard: changed alone, it changes what clients have learned after three rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphsilo.errors import ConfigError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.effects import settled
from graphsilo.federation import noise, registry
from graphsilo.testing.settings import USUAL, Trial, cases, check_case, learned

METHODS = {name: registry.load(name) for name in registry.names() if name not in ("global", "majority")}
"""``global`` is FedAvg with one client; ``majority`` learns nothing that a setting could change."""

ONE_SHOT = {"local_epochs": 5, "epochs": 3, "generator_steps": 3, "nodes": 12, "noise_dim": 8}
NOT_SAMPLED = {"fan_out": Trial(reason="no neighbours to sample: tests/training/test_neighbour_sampling.py")}
ALONE = {"reset_optimizer": Trial(reason="whoever trains alone downloads nothing")}

BASE: dict[str, dict[str, Any]] = {
    "fairfgl": {"lr": 0.3, "local_epochs": 2},
    "co_boosting": ONE_SHOT,
    "dense": ONE_SHOT,
    "fedgen": {"generator_steps": 3},
    "fedgta": {"threshold": 0.57},
    "fedlog": {
        "generator_epochs": 3, "networks": 3, "prototypes": 4, "embedding_dim": 8, "batch_size": 8, "interp": 4,
        "interaction_layers": 2,
    },
    "gcfl": {"eps_1": 1e6, "eps_2": 0.0, "warm_up": 0},
    "gcfl_plus": {"eps_1": 1e6, "eps_2": 0.0, "warm_up": 0, "window": 2},
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

TRIALS: dict[str, dict[str, Trial]] = {
    "fairfgl": {
        "history": Trial([0, 1]),
        "distillation_until": Trial([2]),
        "eta": Trial([0.8]),
    },
    "feddc": {
        "reset_optimizer": Trial(beside={"momentum": 0.5}),
    },
    "feddistill": {
        "min_count": Trial([9]),
    },
    "fedgcn": {
        "fan_out": Trial([1], {"hops": 0}),
        "reset_optimizer": Trial(beside={"momentum": 0.5}),
    },
    "co_boosting": {**ALONE, "step_size": Trial([0.0, 0.2])},
    "dense": ALONE,
    "fedgen": {
        **NOT_SAMPLED,
        "reset_optimizer": Trial(beside={"momentum": 0.5}),
    },
    "fedgta": {
        "moments": Trial(beside={"threshold": 0.552}),
    },
    "dp_fedavg": {
        "epsilon": Trial([2.0], {"noise": "silo", "max_noise": 1e6}),
        "delta": Trial([1e-3], {"epsilon": 2.0, "noise": "silo", "max_noise": 1e6}),
        "clip": Trial([0.01]),
        "noise": Trial(reason="needs secure sums: tests/methods/test_dp_fedavg.py"),
        "max_noise": Trial(reason="what is refused: tests/methods/test_dp_fedavg.py"),
    },
    "fedkd": {
        "reset_optimizer": Trial(beside={"momentum": 0.5}),
        "max_norm": Trial([0.01]),
        "mentee_hidden": Trial([4, None]),
        "energy_start": Trial([0.3]),
        "energy_end": Trial([0.3]),
    },
    "fedlog": {
        "difficulty_decrease": Trial(beside={"difficulty_step": 0.2, "difficulty_threshold": 0.1}),
        "generator_output": Trial(["identity"]),
        "pretrain_patience": Trial([1], {"pretrain_epochs": 15, "lr": 0.01}),
        "rate_epsilon": Trial([0.5]),
        "rate_permutation": Trial(beside={"rate_noise": 0.1}),
        "receiver": Trial([0]),
    },
    "fedpg": {
        "similarity": Trial([-1.0]),
        "hops": Trial([0, 1]),
        "max_neighbours": Trial(beside={"hops": 3, "neighbourhood": "within", "centred": False}),
        "norm": Trial(["first", 5.0]),
        "discrepancy": Trial(beside={"margin": 2.0}),
        "noise_scale": Trial(beside={"noise": 0.25}),
    },
    "fedproto": {
        "predict": Trial(reason="how a client classifies: tests/methods/test_fedproto.py"),
        "min_count": Trial([9]),
    },
    "fedridge": {
        "features": Trial(["sgc", "separate"]),
        "pilot": Trial([1], {"features": "auto", "ridge": (0.01,), "own": False}),
        "hops": Trial([0, 1]),
        "dim": Trial([4]),
        "balance": Trial([(1.0,)]),
        "ridge": Trial([(0.01,)]),
        "prior": Trial([(0.2,)]),
        "own_ridge": Trial([(100.0,)]),
        "wire": Trial(["float32"]),
        "min_count": Trial([12]),
        "epsilon": Trial([2.0]),
        "delta": Trial([1e-3], {"epsilon": 2.0}),
        "noise": Trial(reason="needs secure sums: tests/methods/fedridge/test_private.py"),
        "private_dim": Trial([2], {"epsilon": 2.0}),
        "random_features": Trial([7]),
    },
    "fedtrees": {
        "columns": Trial([3]),
        "dim": Trial([2]),
        "gamma": Trial([1.0]),
        "balance": Trial([1.0]),
        "min_count": Trial([12]),
    },
    "fedsage_plus": {
        "generator_hidden": Trial([(8,)]),
        "encoder_widths": Trial([(4, 8)]),
        "helpers": Trial([1]),
    },
    "fedtgp": {
        "predict": Trial(reason="how a client classifies: tests/methods/test_fedproto.py"),
        "max_margin": Trial([0.01]),
        "server_batch": Trial([3]),
        "min_count": Trial([9]),
    },
    "fednh": {
        "clip": Trial([0.1]),
        "min_count": Trial([9]),
    },
    "fpl": {
        "min_count": Trial([9]),
    },
    "fedstar": NOT_SAMPLED,
    "gcfl": {
        **NOT_SAMPLED,
        "eps_1": Trial([0.0]),
        "mean_by": Trial(beside={"eps_1": 0.385}),
    },
    "gcfl_plus": {
        **NOT_SAMPLED,
        "eps_1": Trial([0.0]),
        "warm_up": Trial([2]),
        "mean_by": Trial(beside={"eps_1": 0.385, "window": 1}),
    },
    "local": {
        "reset_optimizer": Trial(reason="whoever trains alone downloads nothing"),
        "best_round": Trial(reason="decides what is reported: tests/experiments/test_evaluation.py"),
    },
    "opfgl": {
        "expand_classes": Trial([0]),
        "ddof": Trial(beside={"nodes_per_class": 3}),
        "condense_at": Trial(reason="the same surrogate at either place is its promise: tests/methods/test_opfgl.py"),
        "link_threshold": Trial([0.5]),
        "epsilon": Trial([1.0]),
        "delta": Trial([1e-3], {"epsilon": 1.0}),
        "noise": Trial(reason="needs secure sums: tests/methods/opfgl/test_private.py"),
        "nodes_percent": Trial([50.0]),
        "moment": Trial(beside={"nodes_per_class": 3}),
        "patience": Trial([1], {"stage1_check": 2, "stage2_check": 2}),
        "gamma_max": Trial([0.05]),
        "focal_gamma": Trial(beside={"fine_tune": "focal"}),
        "link_check": Trial([2]),
    },
    "moon": {
        "fan_out": Trial([1], {"contrast": "train"}),
    },
    "scaffold": {
        "reset_optimizer": Trial(beside={"momentum": 0.5}),
    },
}
"""Settings of which the type alone does not say what to try."""

CASES = [
    pytest.param(
        name, case, id=f"{name}-{case}",
        # What methods inherit works in them as in FedAvg, but for a mistake: all are tried where there is time.
        marks=pytest.mark.slow if case.field in USUAL and name != "fedavg" else (),
    )
    for name, method in METHODS.items()
    for case in cases(method, BASE.get(name, {}), TRIALS.get(name))
]  # fmt: skip


@pytest.fixture(autouse=True)
def same_noise(monkeypatch):
    """Noise comes from the operating system, another one each time: here it is the same."""
    monkeypatch.setattr(noise, "_normal", lambda count: np.random.default_rng(0).standard_normal(count))


@pytest.mark.parametrize(("name", "case"), CASES)
def test_it_is_heard_and_idle_where_it_says_so(name, case):
    """And a run that asks for it where it is idle is refused."""
    method = METHODS[name]
    check_case(method, case)
    if case.off is None or case.value == method.config.model_fields[case.field].default:
        return
    said = {f"method.{key}": value for key, value in {**case.settings, case.field: case.value}.items()}
    config = load_config(overrides={"method.name": name, "task": case.task, **said})
    named = "the task" if case.off == "task" else f"method.{case.off}"
    with pytest.raises(ConfigError, match=rf"method\.{case.field} would have no effect: {named} is "):
        settled(config.with_explicit([f"method.{case.field}"]), task=case.task)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.backbone])
def test_the_precision_of_a_run_is_heard(name):
    settings = BASE.get(name, {})
    assert learned(METHODS[name], settings, "node", "bfloat16") != learned(METHODS[name], settings, "node")


def test_bounds_of_node_weights_must_leave_room():
    with pytest.raises(ConfigError, match=r"gamma_min is 0\.5, more than method\.gamma_max, 0\.1; lower the one"):
        METHODS["opfgl"].config(gamma_min=0.5, gamma_max=0.1)
    assert METHODS["opfgl"].config(gamma_min=0.1, gamma_max=0.1).gamma_max == 0.1
