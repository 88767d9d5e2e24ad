"""What a person who sets nothing gets, and which numbers are refused: every number and switch of every method.

And what a method says of itself. A line of settings is: name, default, and what is taken as an interval; a switch has
none. ``[`` takes its end, ``(`` does not.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from graphsilo.errors import ConfigError
from graphsilo.federation import registry

ROUNDS = """
    rounds 100 [1, inf)
    participation 1.0 (0, 1]
    min_clients None [1, inf)
"""
LOCAL_TRAINING = f"""{ROUNDS}
    local_epochs 3 [1, inf)
    batch_size 0 [0, inf)
    lr 0.01 (0, inf)
    weight_decay 0.0005 [0, inf)
    momentum 0.0 [0, 1)
    reset_optimizer False
"""
AVERAGING = f"""{LOCAL_TRAINING}
    server_lr 1.0 (0, inf)
"""
FOCAL = f"""{AVERAGING}
    gamma 2.0 [0, inf)
    class_beta 0.9999 (0, 1)
"""
ONE_SHOT = f"""{LOCAL_TRAINING}
    local_epochs 100 [1, inf)
    epochs 10 [1, inf)
    nodes 100 [2, inf)
    neighbours 5 [1, inf)
    row_length 1.0 (0, inf)
    noise_dim 256 [1, inf)
    generator_steps 30 [1, inf)
    generator_lr 0.001 (0, inf)
    reset_generator True
    student_lr 0.01 (0, inf)
"""
GCFL = f"""{AVERAGING}
    eps_1 0.05 [0, inf)
    eps_2 0.1 [0, inf)
    warm_up 20 [0, inf)
"""
TABLES = {
    "majority": ROUNDS,
    "local": LOCAL_TRAINING,
    "fedavg": AVERAGING,
    "fedsage": AVERAGING,
    "dp_fedavg": f"""{AVERAGING}
        epsilon None [1e-06, 1000000]
        delta 1e-05 (0, 1)
        clip 1.0 (0, inf)
        max_noise 1.0 (0, inf)
    """,
    "focal": f"""{FOCAL}
    """,
    "renode": f"""{FOCAL}
        gamma 0.0 [0, inf)
        alpha 0.15 [0.01, 1]
        w_min 0.5 [0, 1.5]
        w_max 1.5 [0.5, inf)
    """,
    "gcfl": GCFL,
    "gcfl_plus": f"""{GCFL}
        window 5 [1, inf)
        standardize False
    """,
    "fedstar": AVERAGING,
    "global": f"""{AVERAGING}
        cross_edges True
    """,
    "feddc": f"""{AVERAGING}
        lr 0.5 (0, inf)
        alpha 0.1 [0, inf)
    """,
    "feded": f"""{AVERAGING}
        distillation 0.1 [0, inf)
        suppression 0.005 [0, inf)
    """,
    "fedntd": f"""{AVERAGING}
        beta 1.0 [0, inf)
        temperature 1.0 (0, inf)
    """,
    "moon": f"""{AVERAGING}
        mu 1.0 [0, inf)
        temperature 0.5 (0, inf)
        previous 1 [1, 100]
        projection 0 [0, 65536]
    """,
    "feddistill": f"""{LOCAL_TRAINING}
        strength 1.0 [0, inf)
        min_count 1 [1, inf)
        leave_one_out True
        temperature 1.0 (0, inf)
    """,
    "fedproto": f"""{LOCAL_TRAINING}
        strength 1.0 [0, inf)
        min_count 1 [1, inf)
    """,
    "fedtgp": f"""{LOCAL_TRAINING}
        strength 10.0 [0, inf)
        min_count 1 [1, inf)
        max_margin 100.0 [0, inf)
        server_epochs 100 [0, inf)
        server_batch 10 [0, inf)
        server_lr 0.01 (0, inf)
    """,
    "fednh": f"""{AVERAGING}
        smoothing 0.9 [0, 1]
        width 64 [2, 65536]
        scale 1.0 (0, inf)
        scale_trained True
        clip 10.0 [0, inf)
        min_count 1 [1, inf)
    """,
    "fpl": f"""{AVERAGING}
        contrast 1.0 [0, inf)
        temperature 0.02 (0, inf)
        pull 1.0 [0, inf)
        min_count 1 [1, inf)
    """,
    "fedprox": f"""{AVERAGING}
        mu 0.01 [0, inf)
        stragglers 0.0 [0, 1]
    """,
    "scaffold": f"""{AVERAGING}
        lr 0.5 (0, inf)
    """,
    "fedridge": f"""{ROUNDS}
        pilot 128 [0, 65536]
        hops None [0, 10]
        dim 2048 [0, 65536]
        random_features 0 [0, 65536]
        own True
        min_count 1 [1, inf)
        epsilon None [1e-06, 1000000]
        delta 1e-05 (0, 1)
        private_dim 1024 [1, 65536]
    """,
    "auto": f"""{ROUNDS}
        balance 0.0 [0, 1]
        own True
        min_count 1 [1, inf)
    """,
    "fedtrees": f"""{ROUNDS}
        lr 0.1 (0, 1]
        depth 4 [1, 10]
        bins 32 [2, 255]
        columns 64 [1, 65536]
        l2 1.0 [0, inf)
        gamma 0.0 [0, inf)
        min_child 10 [1, inf)
        dim 128 [1, 65536]
        label_features True
        balance 0.0 [0, 1]
        own True
        own_weight 4.0 (0, inf)
        min_count 1 [1, inf)
    """,
    "fairfgl": f"""{LOCAL_TRAINING}
        rounds 150 [1, inf)
        history 5 [0, inf)
        alpha_start 0.5 [0, 1)
        alpha_learned True
        distillation 1.0 [0, inf)
        distillation_until None [1, inf)
        alignment 1.0 [0, inf)
        pseudo_labels False
        correction True
        correction_margin 0.0 [0, inf)
        top_k 0.5 (0, 1]
        clustering True
        eta None (0, inf)
    """,
    "fedgcn": f"""{AVERAGING}
        lr 0.5 (0, inf)
        hops 2
    """,
    "co_boosting": f"""{ONE_SHOT}
        hardness 1.0 [0, inf)
        adversarial 1.0 [0, inf)
        adversarial_temperature 3.0 (0, inf)
        step_size None [0, inf)
        step_decay 0.99 (0, 1]
        disturbance 0.03 [0, inf)
        temperature 4.0 (0, inf)
    """,
    "dense": f"""{ONE_SHOT}
        temperature 1.0 (0, inf)
        disagreement 1.0 [0, inf)
    """,
    "fedgen": f"""{AVERAGING}
        alpha 1.0 [0, inf)
        beta 0.0 [0, inf)
        decay 1.0 (0, 1]
        noise_dim 32 [1, 65536]
        generator_hidden 256 [1, 65536]
        generator_steps 50 [1, inf)
        generator_lr 0.0003 (0, inf)
        generator_weight_decay 0.01 [0, inf)
        generator_decay 0.98 (0, 1]
        diversity 1.0 [0, inf)
        generated 32 [2, 65536]
    """,
    "fedgta": f"""{LOCAL_TRAINING}
        steps 5 [1, inf)
        alpha 0.5 (0, 1]
        heat 20.0 (0, inf)
        order 6 [1, 100]
        threshold 0.5 [-1, 1]
    """,
    "fedkd": f"""{AVERAGING}
        mentee_hidden 16 [1, 65536]
        kl_weight 1.0 [0, inf)
        hidden_weight 1.0 [0, inf)
        detach True
        max_norm None (0, inf)
        energy_start 0.95 (0, 1]
        energy_end 0.98 (0, 1]
    """,
    "fedlog": f"""{ROUNDS}
        local_epochs 1 [1, inf)
        batch_size 64 [0, inf)
        lr 0.001 (0, inf)
        prototype_lr 0.001 (0, inf)
        weight_decay 0.0005 [0, inf)
        reset_optimizer False
        embedding_dim 64 [1, 65536]
        prototypes 20 [1, 65536]
        degree_threshold 3.0 [0, inf)
        norm_weight 0.1 [0, inf)
        interaction_layers 2 [1, 100]
        layer_norm True
        interp 8 [0, 1000]
        local_generalization True
        neighbour_generator True
        adaptive_factor True
        difficulty_step 0.001 [0, 1]
        difficulty_decrease 0.001 [0, 1]
        difficulty_threshold 0.8 [0, 1]
        generator_epochs 100 [1, inf)
        generator_lr 0.01 (0, inf)
        generator_hops 1 [1, inf)
        grad_weight 1.0 [0, inf)
        networks 20 [1, inf)
        nets_per_epoch 1 [1, 20]
        class_generators True
        pretrain_epochs 0 [0, inf)
        pretrain_patience 10 [1, inf)
        permute False
        rate_noise 0.0 [0, inf)
        rate_epsilon None [1e-06, inf)
        rate_permutation False
        receiver None [0, inf)
    """,
    "fedpg": f"""{LOCAL_TRAINING}
        mu 0.3 [0, inf)
        alpha 0.5 [0, 1]
        hops None [0, 10]
        max_neighbours 32 [0, inf)
        confidence 0.8 [0, 1]
        centred True
        restart False
        server_epochs 30 [1, inf)
        server_lr 0.01 (0, inf)
        similarity 0.9 (-inf, inf)
        temperature 1.0 [0.05, inf)
        hop_share 0.5 [0, 1]
        margin 0.5 [0, inf)
        noise 0.0 [0, 1]
        noise_scale 1.0 [0, inf)
        graph_similarity 0.9 [-1, 1]
        graph_decay 0.9 (0, 1]
    """,
    "fedsage_plus": f"""{AVERAGING}
        hidden_share 0.95 [0, 1)
        local_generator_epochs 20 [0, inf)
        generator_epochs 20 [0, inf)
        generator_lr 0.001 (0, inf)
        generator_weight_decay 0.0001 [0, inf)
        generator_dropout 0.5 [0, 1)
        lambda_d 1.0 [0, inf)
        lambda_f 0.01 [0, inf)
        lambda_c 1.0 [0, inf)
        alpha 1.0 [0, inf)
        count_bias 1.0 [-100, inf)
        helpers 3 [0, inf)
    """,
    "opfgl": f"""{ROUNDS}
        hops 2 [0, 10]
        min_count 2 [2, inf)
        lp_steps 2 [0, inf)
        lp_alpha 0.9 [0, 1]
        lp_self_loops False
        expand True
        expand_classes 1 [0, inf)
        expand_confidence 1.0 [0, 1]
        expand_degree 3 [0, inf)
        link_threshold 0.01 [0, 1]
        epsilon None [1e-06, 1000000]
        delta 1e-05 (0, 1)
        nodes_per_class 1 [1, 65536]
        nodes_percent 0.0 [0, 100]
        feature_weight 10.0 [0, inf)
        smooth_weight 0.1 [0, inf)
        surrogate_steps 3000 [0, inf)
        cycle 50 [1, inf)
        link_steps 10 [0, inf)
        lr_features 0.005 (0, inf)
        lr_links 0.001 (0, inf)
        link_hidden 128 [1, 65536]
        link_norm True
        stage1_lr 0.0001 (0, inf)
        stage1_epochs 3000 [1, inf)
        stage1_check 100 [1, inf)
        stage2_lr 5e-05 (0, inf)
        stage2_epochs 3000 [1, inf)
        stage2_check 100 [1, inf)
        patience 10 [1, inf)
        dropout False
        beta 1.0 [0, inf)
        gamma_min 0.0 [0, inf)
        gamma_max None [0, inf)
        normalise_soft_labels True
        kl_mean True
        focal_gamma 2.0 [0, inf)
        link_pretrain True
        link_epochs 200 [1, inf)
        link_lr 0.01 (0, inf)
        link_check 10 [1, inf)
    """,
}

LISTS: dict[str, dict[str, Any]] = {
    "fedridge": {
        "balance": (0.0,),
        "prior": (0.0, 0.02, 0.05, 0.1, 0.2),
        "ridge": (0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0),
        "own_ridge": (0.5, 2.0, 8.0),
    },
    "fedsage_plus": {"generator_hidden": (256, 64), "encoder_widths": (32, 128)},
}
SAMPLING = [name for name in registry.names() if "fan_out" in registry.load(name).config.model_fields]
LISTS |= {name: {"fan_out": 0, **LISTS.get(name, {})} for name in SAMPLING}


def rows(method: str) -> dict[str, tuple[str, str]]:
    """Default and interval of each setting; a later line overrides an earlier one."""
    lines = (line.split(maxsplit=2) for line in TABLES[method].splitlines() if line.strip())
    return {line[0]: (line[1], line[2] if len(line) > 2 else "") for line in lines}


def edges(interval: str, whole: bool) -> tuple[list[float], list[float]]:
    """The outermost numbers that are taken, and the next ones, that are not."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    taken, refused = [], []
    for end, outwards, closed in ((low, -1, interval[0] == "["), (high, 1, interval[-1] == "]")):
        if math.isinf(end):
            continue
        beside = (
            (lambda way, end=end: end + way) if whole else (lambda way, end=end: math.nextafter(end, way * math.inf))
        )
        taken.append(end if closed else beside(-outwards))
        refused.append(beside(outwards) if closed else end)
    return ([int(each) for each in taken], [int(each) for each in refused]) if whole else (taken, refused)


@pytest.mark.parametrize("method", registry.names())
def test_defaults(method):
    usual = registry.load(method).config().model_dump()
    words = {name: value for name, value in usual.items() if isinstance(value, str)}
    assert {name: str(value) for name, value in usual.items() if name not in {*words, *LISTS.get(method, ())}} == {
        name: default for name, (default, _) in rows(method).items()
    }
    assert {name: usual[name] for name in LISTS.get(method, ())} == LISTS.get(method, {})


@pytest.mark.parametrize("method", registry.names())
def test_bounds(method):
    config = registry.load(method).config
    for name, (_, interval) in rows(method).items():
        if not interval:
            continue
        taken, refused = edges(interval, "float" not in str(config.model_fields[name].annotation))
        for value in taken:
            assert getattr(config(**{name: value}), name) == value
        for value in refused:
            with pytest.raises((ConfigError, ValueError), match=name):
                config(**{name: value})


GCN, SAGE = {"name": "gcn", "hidden": 64, "layers": 2}, {"name": "sage", "hidden": 64}
EVERY_TASK, BOTH_MODELS = ("node", "graph", "link"), ("own", "aggregate")
ENTRIES: dict[str, tuple[tuple[str, ...], tuple[str, ...], set[str], Any]] = {
    "fairfgl": (("node",), BOTH_MODELS, set(), {"name": "gcn", "hidden": [64]}),
    "fedavg": (EVERY_TASK, BOTH_MODELS, {"edge_weights"}, None),
    "feddc": (EVERY_TASK, BOTH_MODELS, {"edge_weights"}, None),
    "feded": (("node", "graph"), BOTH_MODELS, {"edge_weights"}, None),
    "feddistill": (("node", "graph"), ("own",), {"heterogeneous", "edge_weights"}, None),
    "fedgcn": (("node",), ("aggregate", "own"), set(), {"name": "gcn", "hidden": [16]}),
    "co_boosting": (("node",), ("aggregate", "own"), {"heterogeneous", "edge_weights"}, None),
    "dense": (("node",), ("aggregate", "own"), {"heterogeneous", "edge_weights"}, None),
    "fedgen": (
        ("node", "graph"),
        ("aggregate", "own"),
        {"edge_weights"},
        {"node": {"name": "gamlp"}, "graph": {"name": "gin"}},
    ),
    "fedgta": (("node",), ("aggregate", "own"), {"edge_weights"}, {"name": "gamlp"}),
    "fedkd": (("node", "graph"), BOTH_MODELS, {"heterogeneous", "edge_weights"}, None),
    "fedlog": (("node",), ("own",), set(), {"name": "sage", "hidden": [128]}),
    "fedntd": (("node", "graph"), BOTH_MODELS, {"edge_weights"}, None),
    "fedpg": (("node", "graph"), ("own",), {"heterogeneous"}, {"node": {"name": "gamlp"}, "graph": {"name": "gin"}}),
    "fedproto": (("node", "graph"), ("own",), {"heterogeneous", "edge_weights"}, None),
    "fedprox": (EVERY_TASK, BOTH_MODELS, {"edge_weights"}, None),
    "fedridge": (("node", "graph"), BOTH_MODELS, {"edge_weights"}, None),
    "auto": (("node", "graph"), BOTH_MODELS, {"edge_weights"}, None),
    "fedtrees": (("node", "graph"), BOTH_MODELS, {"edge_weights"}, None),
    "fedsage": (("node",), BOTH_MODELS, {"edge_weights"}, SAGE),
    "fedsage_plus": (("node",), BOTH_MODELS, set(), SAGE),
    "dp_fedavg": (EVERY_TASK, BOTH_MODELS, {"edge_weights"}, None),
    "focal": (("node", "graph"), BOTH_MODELS, {"edge_weights"}, None),
    "renode": (("node",), BOTH_MODELS, {"edge_weights"}, None),
    "fedtgp": (("node", "graph"), ("own",), {"heterogeneous", "edge_weights"}, None),
    "fednh": (("node", "graph"), BOTH_MODELS, {"edge_weights"}, None),
    "fpl": (("node", "graph"), BOTH_MODELS, {"edge_weights"}, None),
    "gcfl": (("graph", "node"), ("aggregate", "own"), {"edge_weights"}, {"graph": {"name": "gin_gcfl"}}),
    "gcfl_plus": (("graph", "node"), ("aggregate", "own"), {"edge_weights"}, {"graph": {"name": "gin_gcfl"}}),
    "fedstar": (("graph", "node"), ("aggregate", "own"), set(), {"name": "gin_fedstar"}),
    "global": (EVERY_TASK, ("own",), {"pooled", "edge_weights"}, None),
    "local": (EVERY_TASK, ("own",), {"heterogeneous", "edge_weights", "alone"}, None),
    "majority": (("node", "graph"), ("own",), {"heterogeneous", "edge_weights", "alone"}, None),
    "moon": (("node", "graph"), BOTH_MODELS, {"edge_weights"}, None),
    "opfgl": (("node", "link"), ("own",), {"heterogeneous"}, GCN),
    "scaffold": (EVERY_TASK, BOTH_MODELS, {"edge_weights"}, None),
}
"""Tasks, model views, what holds of the method, and its paper's backbone."""


@pytest.mark.parametrize("name", registry.names())
def test_what_a_method_says_of_itself(name):
    method = registry.load(name)
    switches = {each for each in ("heterogeneous", "pooled", "edge_weights", "alone") if getattr(method, each)}
    assert (method.tasks, method.evaluates, switches, method.model) == ENTRIES[name]


def test_fedlogs_published_code_has_defaults_of_its_own():
    usual, theirs = (registry.load("fedlog").config(**more).model_dump() for more in ({}, {"compat": "release"}))
    assert {name: value for name, value in theirs.items() if value != usual[name]} == {
        "compat": "release", "interaction": "inert", "distance": "embedding", "mixing": "logarithms",
        "norm_weight": 1.0, "class_generators": False, "matching": "last", "pretrain_epochs": 100,
        "weight_by": "uniform", "reset_optimizer": True, "permute": True,
    }  # fmt: skip
