"""What every client does, whatever its method: score its predictions, draw, and hand over its models at the end."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet, Links, Schema, Silo
from graphsilo.errors import DisclosureError, MessageError, UnsupportedError
from graphsilo.federation.client import ClientBase, ClientContext, EvaluateRequest, EvaluateSums, ModelSpec
from graphsilo.federation.policy import DisclosurePolicy, Gate
from graphsilo.federation.rank_scoring import score_classes
from graphsilo.federation.scoring import _parts, probabilities
from graphsilo.federation.settings import MethodConfig
from kit.clients import OneNumber
from kit.messages import said_of


class Oracle(OneNumber):
    """Predicts what it was given."""

    output: torch.Tensor

    def predict(self, data, view="own"):
        return self.output if view == "own" else -self.output


def path(labels, classes=2):
    count = len(labels)
    edges = np.stack([np.arange(count - 1), np.arange(1, count)])
    return Graph(
        np.eye(count, dtype=np.float32), np.concatenate([edges, edges[::-1]], axis=1), np.array(labels), classes
    )


def client_of(output, labels, items, *, task="node", classes=2, **more):
    graph = path(labels, classes)
    sets = (EvaluationSet("seen", graph, {name: np.array(each) for name, each in items.items()}),)
    silo = Silo(0, graph, np.array([0]), sets, Schema(task, len(labels), classes), **more)
    client = Oracle(ClientContext(0, silo, MethodConfig(), ModelSpec("gcn", {}), 0))
    client.output = torch.tensor(output)
    return client


def pairs(*columns):
    return np.array(columns).T


def test_links_are_scored_by_hand():
    # Scores are products: (0, 1) 2, (1, 2) 6, (0, 3) -1; (0, 2) 3.
    links = Links(
        train=pairs((0, 1)), val=pairs((0, 1), (1, 2), (0, 3)), val_negative=pairs((0, 2)),
        test=pairs((1, 2)), test_negative=pairs((0, 3), (0, 2)),
    )  # fmt: skip
    client = client_of([[1.0], [2.0], [3.0], [-1.0]], [0, 1, 0, 1], {"val": []}, task="link", links=links)
    reply = client.evaluate(EvaluateRequest(views=["own"]))
    # val: one of three positives is above the negative; in order 6 +, 3 -, 2 +, -1 +: (1 + 2/3 + 3/4) / 3.
    expected = {"val/auc": [1 / 3, 4], "val/ap": [29 / 36, 4], "test/auc": [1, 3], "test/ap": [1, 3]}
    few = {name: scores for name, scores in reply.scores.items() if name.endswith("hits_at_10")}
    assert [weight for _, weight in few.values()] == [0, 0]
    assert sorted(reply.scores.keys() - few) == sorted(f"own/seen/{name}" for name in expected)
    for name, value in expected.items():
        assert reply.scores[f"own/seen/{name}"] == pytest.approx(value)
    assert (reply.kinds, reply.parts, reply.sizes.tolist()) == ({"own/seen": []}, [1], [4])
    assert reply.counts.shape == (0, 4, 2, 2)
    summed = client.evaluate_sums(EvaluateRequest(views=["own"]))  # weighs by the four nodes; three pairs are tested
    assert {name: each.tolist() for name, each in summed.items.items()} == {
        **{f"own/seen/{name}": [rests_on] for name, (_, rests_on) in expected.items()},
        **{name: [0] for name in few},
    }
    for least, leaves in ((3, nullcontext()), (4, pytest.raises(DisclosureError, match="has fewer items"))):
        with leaves:
            Gate(DisclosurePolicy(min_evaluation_count=least), []).check("evaluate_sums", summed)
    client.silo = replace(client.silo, links=None)
    with pytest.raises(MessageError, match="holds no links"):
        client.evaluate(EvaluateRequest(views=["own"]))


def test_links_of_a_pooled_silo_are_scored_client_by_client():
    # Nodes 0 to 2 are the first client's, 3 to 5 the second's: there the negative, 3 · 3, is above one positive, 2 · 3.
    none = np.zeros((2, 0), dtype=np.int64)
    links = Links(none, none, none, pairs((0, 1), (3, 4), (3, 5)), pairs((0, 2), (4, 5)))
    output = [[1.0], [2.0], [1.0], [2.0], [3.0], [4.0]]
    client = client_of(output, [0] * 6, {"val": []}, task="link", links=links, parts=2)
    part = np.array([0, 0, 0, 1, 1, 1])
    client.silo = replace(client.silo, evaluations=(replace(client.silo.seen, part=part),))
    reply = client.evaluate(EvaluateRequest(views=["own"]))
    assert reply.scores["own/seen/test/auc"] == [1.0, 2.0, 0.0, 3.0]  # 2 > 1; neither 6 nor 8 is above 12
    value, weight, *_ = reply.scores["own/seen/val/auc"]
    assert math.isnan(value)
    assert weight == 0
    assert (reply.parts, reply.sizes.tolist()) == ([2], [3, 3])


def test_classes_are_counted_and_ranked_by_hand():
    # Probabilities of class 1; the last node has no label, and validation holds one class only.
    ones = [0.9, 0.8, 0.8, 0.1, 0.3, 0.99]
    output = [[math.log(1 - p), math.log(p)] for p in ones]
    client = client_of(output, [1, 0, 1, 0, 0, -1], {"val": [4], "test": [0, 1, 2, 3, 5]})
    reply = client.evaluate(EvaluateRequest(views=["own"], auc=True))
    assert reply.scores["own/seen/test/auc"] == pytest.approx([3.5 / 4, 4])
    assert math.isnan(reply.scores["own/seen/val/auc"][0])
    assert reply.counts.sum(1).tolist() == [[[1, 0], [0, 0]], [[1, 1], [0, 2]]]
    assert (reply.kinds, reply.parts, reply.sizes.tolist()) == ({"own/seen": ["val", "test"]}, [1], [6])
    assert client.evaluate(EvaluateRequest(views=["own"])).scores == {}  # not asked for
    assert reply.scores["own/seen/test/ap"] == pytest.approx([5 / 6, 4])
    # Of class 0: 0.9, then 0.2 twice (one of them right), then 0.1, so 1/2 + 1/2 * 2/3
    rare = client.evaluate(EvaluateRequest(views=["own"], auc=True, rare=0))
    assert rare.scores["own/seen/test/ap"] == pytest.approx([5 / 6, 4])
    assert rare.scores["own/seen/test/auc"] == reply.scores["own/seen/test/auc"]
    with pytest.raises(MessageError, match=r"EvaluateRequest\.rare is one of two classes"):
        client.evaluate(EvaluateRequest(views=["own"], rare=2))


def test_each_view_has_rankings_of_its_own_though_equal_ones_are_made_once():
    output = [[0.0, each] for each in (2.0, -1.0, 0.5, 1.0)]
    client = client_of(output, [1, 0, 1, 0], {"val": [0, 1], "test": [0, 1, 2, 3]})
    client.install_aggregate = lambda weights: None
    request = EvaluateRequest(views=["own", "aggregate"], aggregate={}, auc=True)
    own, other = (client.evaluate(request).scores[f"{view}/seen/test/auc"] for view in ("own", "aggregate"))
    assert (own, other) == ([0.75, 4.0], [0.25, 4.0])  # the aggregate says the contrary
    client.predict = lambda data, view="own": client.output
    same = client.evaluate(request).scores
    assert same["own/seen/test/auc"] == same["aggregate/seen/test/auc"] == own
    # With a decision that all silos have for one view, its scores at the threshold are those of that decision.
    nobody = torch.tensor([1.0, 50.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    found = client.evaluate(
        EvaluateRequest(
            views=["own", "aggregate"], aggregate={}, auc=True, rare=1, budget=0.5, aim="f1",
            agreed={"aggregate": nobody, "own": nobody * torch.tensor([1.0, -1.0, 1.0, 1.0, 1.0])},
        )
    ).scores  # fmt: skip
    recalls = [found[f"{view}/seen/test/threshold_recall"][0] for view in ("own", "aggregate")]
    assert recalls == [1.0, 0.0]


def test_only_the_views_that_are_asked_for_are_scored():
    client = client_of([[0.0, -1.0]] * 2, [0, 0], {"test": [0, 1]})
    client.install_aggregate = lambda weights: None
    both = client.evaluate(EvaluateRequest(views=["own", "aggregate"], aggregate={}))
    assert list(both.kinds) == ["own/seen", "aggregate/seen"]
    assert both.counts.sum(1)[:, 0].tolist() == [[2, 0], [0, 2]]  # the aggregate says class 1
    assert list(client.evaluate(EvaluateRequest(views=["own"], global_views=["aggregate"])).kinds) == ["own/seen"]
    pooled = replace(client.silo.seen, name="global")
    client.silo = replace(client.silo, evaluations=(client.silo.seen, pooled))
    assert list(client.evaluate(EvaluateRequest(views=["own"], global_views=["aggregate"])).kinds) == [
        "own/seen", "aggregate/global",
    ]  # fmt: skip


def test_the_pooled_graph_is_one_question_of_everybody():
    evaluation = EvaluationSet("global", path([0, 1, 1]), {"test": np.array([0, 1, 2])}, part=np.array([0, 1, 1]))
    owner, parts = _parts(client_of([[0.0]], [0, 1], {}, parts=2).silo, evaluation)
    assert (owner.tolist(), parts) == ([0, 0, 0], 1)
    output = torch.tensor([[0.1, 0.7, 0.2], [0.3, 0.4, 0.3], [0.2, 0.1, 0.7]]).log()
    three = replace(evaluation, graph=path([1, 0, 2], classes=3))
    # One class against the rest: class 0 holds 0.3, above 0.1 and 0.2; class 1 0.7, class 2 0.7: all in order.
    assert score_classes("node", three, output, owner, parts, {})[0] == {
        "test/auc": [1.0, 3.0], "test/ap": [1.0, 3.0],
    }  # fmt: skip


@pytest.mark.parametrize("classes", [2, 15, 16, 17])
def test_probabilities_of_few_and_of_many_classes(classes):
    logits = torch.randn(5, classes, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(probabilities(logits), F.softmax(logits, dim=1))
    torch.testing.assert_close(probabilities(F.log_softmax(logits, dim=1)), F.softmax(logits, dim=1))


def test_a_method_without_aggregate_says_so():
    client = client_of([[0.0, 0.0]] * 2, [0, 1], {"test": [0]})
    with pytest.raises(UnsupportedError, match="no aggregated model to evaluate"):
        client.evaluate(EvaluateRequest(views=["aggregate"], aggregate={}))


def test_what_leaves_a_silo_with_every_method():
    assert said_of(ClientBase) == {
        "evaluate kinds: control",
        "evaluate parts: control",
        "evaluate counts: counts int32 [rows, 4, classes, classes]",
        "evaluate sizes: counts int64 [parts]",
        "evaluate scores: score allow_nan",
        "evaluate_sums counts: counts int64",
        "evaluate_sums sizes: counts int64",
        "evaluate_sums ranked: score float64",
        "evaluate_sums items: counts int64",
        "evaluate_sums bins: counts int64 optional",
        "evaluate bins: counts int64 optional",
        "evaluate_bins bins: counts int64",
    }


@pytest.mark.parametrize(
    ("metric", "right", "wrong"),
    [
        ("ap", [0.0, 9.0], [-0.1, 9.1]), ("brier", [9.001], [9.1]), ("mae", [0.0, 1e9], [-1.0, 1e102]),
        ("target_mae@1", [1e9], [-1.0]), ("target_r2@0", [-1e9, 9.0], [10.0]), ("micro_f1", [9.0], [9.1]),
    ],
)  # fmt: skip
def test_sums_of_scores_are_held_against_what_scores_there_are(metric, right, wrong):
    """Of one of several targets as of all."""
    for above in (*right, *wrong):
        ranked = {f"own/seen/test/{metric}": torch.tensor([[above], [9.0]], dtype=torch.float64)}
        summed = EvaluateSums(counts={}, ranked=ranked, items={}, sizes={})
        with pytest.raises(MessageError, match="are of no scores from") if above in wrong else nullcontext():
            summed.check()


def test_no_view_that_is_not_there_is_scored():
    """A short message with thousands of names would have the model asked as often."""
    client = client_of([[1.0, 0.0], [0.0, 1.0]], [0, 1], {"val": [0], "test": [1]})
    for views in ({"views": ["own", "mine"]}, {"views": ["own"], "global_views": ["mine"]}):
        with pytest.raises(MessageError, match="views of a kind was asked of this silo"):
            client.evaluate(EvaluateRequest(**views))
