"""What a client of FedRidge computes, step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.data.sources.targets import with_targets
from graphsilo.errors import MessageError, RequestError
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.methods.fedridge import METHOD
from graphsilo.methods.fedridge.messages import AdoptRequest, ScoreRequest, StatisticsRequest
from kit.fedridge import PLAIN, played, pooled, whole


def test_class_balance_weighs_rows_by_hand(kit):
    # 4 rows of class 0 and 2 of class 1: n / (C n_c) is 6/8 and 6/4.
    silos = [kit.tiny_silo(0, train=(0, 1, 2)), kit.tiny_silo(1, train=(0, 2, 3))]
    settings = {"features": "mean", "balance": (0.0, 1.0), "ridge": (1.0,), "wire": "float64", **PLAIN}
    server, _ = played(kit, silos, rounds=False, **settings)
    assert server.class_weights.tolist() == [[1, 1], [0.75, 1.5]]
    square, cross = pooled(silos, "mean", settings, [0.75, 1.5])
    assert np.abs(whole(server.moments["mean/1"], len(square)).numpy() - square).max() < 1e-12
    assert np.abs(server.products["mean/1"].numpy().T - cross).max() < 1e-12


def test_classes_with_few_rows_are_left_out_of_a_silos_sums(kit):
    silos = [kit.tiny_silo(0, train=(0, 1, 2))]  # two of class 0, one of class 1
    settings = {"features": "mean", "wire": "float64", **PLAIN}
    server, _ = played(kit, silos, rounds=False, min_count=2, **settings)
    alone, _ = played(kit, [kit.tiny_silo(0, train=(0, 2))], rounds=False, **settings)
    assert torch.equal(server.moments["mean/0"], alone.moments["mean/0"])
    assert server.products["mean/0"][1].abs().max() == 0


def test_a_correction_does_not_undo_the_raised_scores(kit):
    silos = [kit.tiny_silo(client, nodes=12, train=range(6), seed=3) for client in range(3)]
    fixed = {"features": "mean", "label_features": "never", "ridge": (0.1,), "own_ridge": (0.01,)}
    raised, with_it = played(kit, silos, prior=(0.3,), **fixed)
    plain, without = played(kit, silos, prior=(0.0,), **fixed)
    shift = raised.weights["mean"] - plain.weights["mean"]
    corrected = 0
    for client in range(3):
        one, other = (each.client(client)._models["own"]["mean"] for each in (with_it, without))
        if not torch.equal(one, raised.weights["mean"]) and not torch.equal(other, plain.weights["mean"]):
            corrected += 1
            assert torch.allclose(one - other, shift, atol=1e-5)
    assert corrected


def test_a_silo_keeps_the_common_model_where_its_own_is_no_better(kit):
    silos = [kit.tiny_silo(client) for client in range(3)]
    no_validation = replace(
        silos[0],
        evaluations=(EvaluationSet("seen", silos[0].graph, {"val": np.zeros(0, np.int64), "test": np.array([4, 5])}),),
    )
    server, federation = played(kit, [no_validation, *silos[1:]], own_ridge=(0.01,))
    client = federation.client(0)
    assert torch.equal(client.predict(client.data), client.predict(client.data, "own"))
    models = client.final_models()
    ((name, common),) = server.weights.items()
    assert torch.equal(models["own"][name], common)
    assert torch.equal(models["common"][name], common)


def test_before_the_round_all_classes_are_alike(kit):
    _, federation = played(kit, [kit.tiny_silo(0), kit.tiny_silo(1)], rounds=False)
    client = federation.client(0)
    assert client.predict(client.data).exp().tolist() == [[pytest.approx(0.5)] * 2] * 6


MADE_UP = {
    "no-sums": ("statistics", "kinds", lambda each: []),
    "sums-twice": ("statistics", "kinds", lambda each: 1000 * each),
    "sums-with-weights-below-0": ("statistics", "class_weights", lambda each: -each),
    "sums-of-fewer-classes": ("statistics", "class_weights", lambda each: each[:, :1]),
    "no-candidates": ("score", "candidates", lambda each: {}),
    "candidates-of-fewer-columns": ("score", "candidates", lambda each: {"mean": each["mean"][:, 1:]}),
    "candidates-of-fewer-classes": ("score", "candidates", lambda each: {"mean": each["mean"][..., :1]}),
    "shifts-of-fewer-classes": ("score", "shifts", lambda each: each[:, :1]),
    "no-models": ("adopt", "weights", lambda each: {}),
    "models-of-other-features": ("adopt", "weights", lambda each: {"sgc": each["mean"]}),
    "models-of-fewer-columns": ("adopt", "weights", lambda each: {"mean": each["mean"][1:]}),
    "models-without-shifts": ("adopt", "weights", lambda each: {**each, "separate": torch.ones(10, 2)}),
    "models-with-weights-below-0": ("adopt", "class_weights", lambda each: -each),
}


@pytest.mark.parametrize("change", list(MADE_UP))
def test_no_made_up_question(kit, change):
    """Whether it can be answered may depend on rows, and what it leaves behind is no model."""
    _, federation = played(kit, [kit.tiny_silo(0), kit.tiny_silo(1)])
    client, model = federation.client(0), torch.ones(4, 2)
    ones, nothing = torch.ones(1, 2).double(), torch.zeros(1, 2).double()
    usual = {
        "statistics": StatisticsRequest(
            kinds=["mean"], dim=2048, class_weights=ones, size=1.0, blocks={}, constants={}
        ),
        "score": ScoreRequest(candidates={"mean": model[None]}, shifts=nothing, dim=2048, size=1.0),
        "adopt": AdoptRequest(weights={"mean": model}, shifts=nothing, class_weights=ones, size=1.0),
    }
    step, field, changed = MADE_UP[change]
    getattr(client, step)(usual[step])
    before = client.predict(client.data)
    with pytest.raises(RequestError, match="no run of these settings asks"):
        getattr(client, step)(replace(usual[step], **{field: changed(getattr(usual[step], field))}))
    assert torch.equal(client.predict(client.data), before)


def test_an_aggregate_of_other_features_is_refused(kit):
    _, federation = played(kit, [kit.tiny_silo(0), kit.tiny_silo(1)])
    with pytest.raises(MessageError, match=r"the aggregate has shape \(3, 2\)"):
        federation.client(0).install_aggregate({"mean": torch.zeros(3, 2)})
    with pytest.raises(MessageError, match="'gcn' is no kind of features"):
        federation.client(0).install_aggregate({"gcn": torch.zeros(4, 2)})


def line(client, signs, labels, *, train=4):
    """Nodes at +1 or -1 on a line, without links: the first few train, the others validate."""
    graph = Graph(
        features=np.array(signs, dtype=np.float32)[:, None], edges=np.zeros((2, 0), np.int64),
        labels=np.array(labels, dtype=np.int64), num_classes=2,
    )  # fmt: skip
    nodes = np.arange(len(signs))
    items = {"train": nodes[:train], "val": nodes[train:], "test": nodes[train:]}
    return Silo(client, graph, nodes[:train], (EvaluationSet("seen", graph, items),), Schema("node", 1, 2))


ON_A_LINE = {"features": "mean", "ridge": (1.0,), "own_ridge": (100.0,), **PLAIN}


@pytest.mark.parametrize(
    ("validation", "alone"),
    [
        ([0, 0, 0, 0, 1], True),  # own rows right on all five, the common model on none
        ([0, 0, 0, 1, 1], True),  # 4 to 1: 0.6 more; half a standard error is 0.2
        ([0, 0, 0, 1, 0], False),  # 3 to 2: 0.2 more; here it is 0.245
        ([1, 1, 1, 1, 0], False),
    ],
)
def test_a_silo_takes_its_own_rows_alone_where_joining_is_surely_worse(kit, validation, alone):
    """Two silos say that +1 is class 1, the third that it is class 0; a weak correction does not change its mind.

    Over all M is 12 on the feature and B of class 1 is 2 + 2 - 2: (12 + 1) w = 2. The third's own are 4 and -2:
    (4 + 1) w = -2. Its constant column, 0.1 in 4 rows, 2 of class 1: (0.04 + 1) w = 0.2.
    """
    signs, others = [1, 1, -1, -1, 1, 1, 1, 1, -1], [1, 1, 0, 0, 1, 1, 1, 1, 0]
    silos = [line(0, signs, others), line(1, signs, others), line(2, signs, [0, 0, 1, 1, *validation])]
    server, federation = played(kit, silos, **ON_A_LINE)
    assert server.weights["mean"][0].tolist() == pytest.approx([-2 / 13, 2 / 13])
    own = federation.client(2)._models["own"]["mean"]
    if alone:
        assert own[0].tolist() == pytest.approx([2 / 5, -2 / 5])
        assert own[1].tolist() == pytest.approx([0.2 / 1.04] * 2)
    else:
        assert torch.sign(own[0]).tolist() == [-1, 1]
    joined = federation.client(0)._models["own"]["mean"]
    assert torch.equal(joined, server.weights["mean"])


def test_alone_in_a_federation_of_one_is_the_common_model(kit):
    silo = line(0, [1, 1, -1, -1, 1, -1, 1], [1, 1, 0, 0, 1, 0, 0])
    server, federation = played(kit, [silo], **{**ON_A_LINE, "ridge": (0.1, 1.0, 10.0)})
    assert torch.equal(federation.client(0)._models["own"]["mean"], server.weights["mean"])


def test_an_own_choice_follows_the_metric_of_the_run(kit):
    """8 items of class 0 and 2 of class 1. The first is right on 8, the second on 8 of which 2 are of class 1: macro-F1
    (16/18) / 2 and (12/14 + 4/6) / 2. The third is right on 2 and ranks all pairs in order: AUC 1, the others 0.5 and
    14/16."""
    silo = line(0, [1] * 14, [0, 0, 1, 1, *[0] * 8, 1, 1])
    scores = [[0] * 10, [0] * 6 + [1] * 4, [1] * 8 + [2] * 2]
    outputs = [torch.stack([torch.full((10,), 0.5), torch.tensor(each, dtype=torch.float32)], dim=1) for each in scores]
    for metric, values, best in (
        ("accuracy", [0.8, 0.8, 0.2], 0),
        ("macro_f1", [8 / 18, (12 / 14 + 4 / 6) / 2, (4 / 12) / 2], 1),
        ("auc", [0.5, 14 / 16, 1.0], 2),
    ):
        _, federation = kit.build("fedridge", [silo], select_by=metric)
        client = federation.client(0)
        judge, scored = client._judge, [client._to_scores(output) for output in outputs]
        assert [judge.quality(each) for each in scored] == pytest.approx(values)
        assert judge.best(scored, 0) == best


def test_sums_tell_of_no_label_that_fewer_items_have_or_lack_than_may_be_told_of():
    plain = Graph(np.eye(6, dtype=np.float32), np.zeros((2, 0), np.int64), np.zeros(6, np.int64), 1)
    values = np.array([[0, 1, 0], [0, 0, 1], [1, 1, 1], [0, 1, 0], [0, 1, 0], [0, 1, 0]])
    graph = with_targets(plain, values)
    seen = EvaluationSet("seen", graph, {"val": np.zeros(0, np.int64), "test": np.zeros(0, np.int64)})
    silo = Silo(0, graph, np.arange(6), (seen,), Schema.of(graph, graph.task))
    for least, counts in ((1, [1, 5, 2]), (2, [0, 6, 2]), (3, [0, 6, 0])):
        config = METHOD.config(min_count=least)
        client = METHOD.client(ClientContext(0, silo, config, ModelSpec("gcn", {"hidden": [8]}), 0))
        assert client._wanted(client._train).sum(0).tolist() == counts
