"""What each method is by itself, the choice between them, and when trees are given up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import graphsilo
from graphsilo.errors import MessageError
from graphsilo.evaluate.metrics import METRICS
from graphsilo.federation import registry
from graphsilo.federation.interface import Failure
from graphsilo.methods import auto
from graphsilo.methods.auto import ChooseRequest, Client, ScoreRequest
from graphsilo.methods.fedtrees.messages import FORESTS
from graphsilo.runtime.local.in_process import InProcess
from kit import molecules
from kit.fedtrees import silo_of
from kit.messages import check_sent, sent

GRAPH = {
    "data": {"name": "citation-sbm", "generator": {"nodes": 300}}, "partition": {"clients": 3}, "model": {},
}  # fmt: skip


def played(kit, silos, rounds, name="auto", **settings):
    server, federation = kit.build(name, silos, **settings)
    kit.rounds(server, federation, rounds)
    return server, federation


@pytest.fixture
def silos():
    """Classes are a matter of the product of two features: trees find it, a line does not."""
    return [silo_of(client, range(6 * client, 6 * client + 6)) for client in range(3)]


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(each, other[name]) for name, each in one.items())


def test_its_rounds_are_those_of_the_methods_bit_for_bit(kit, silos):
    ours, federation = played(kit, silos, 5)
    ridge, theirs = played(kit, silos, 1, "fedridge")
    trees, others = played(kit, silos, 4, "fedtrees")
    assert same(ours.parts["ridge"].aggregate(), ridge.aggregate())
    assert same(ours.parts["trees"].aggregate(), trees.aggregate())
    for client in range(3):
        parts = federation.client(client)._parts
        data = theirs.client(client).data
        for view in ("own", "common"):
            assert torch.equal(parts["ridge"].predict(data, view), theirs.client(client).predict(data, view))
        for view in FORESTS:  # Auto itself chooses among them
            assert torch.equal(parts["trees"].predict(data, view), others.client(client).predict(data, view))


def test_one_methods_columns_are_held_at_a_time_and_the_ridge_predicts_once(kit, silos, monkeypatch):
    asked = []
    predict = auto.PARTS["ridge"].client.predict
    monkeypatch.setattr(
        auto.PARTS["ridge"].client, "predict",
        lambda self, data, view="own": asked.append((self.id, view)) or predict(self, data, view),
    )  # fmt: skip
    server, federation = played(kit, silos, 1)
    client = federation.client(0)
    names = {key[0] for key in client.data._cache}
    assert not names & {"ridge features", "trees columns"}
    client.install_aggregate(server.aggregate())
    before = client.predict(client.data, "aggregate")
    for number in range(2, 6):
        server.round(federation, number)
        client.install_aggregate(server.aggregate())
        client.predict(client.data, "aggregate")
    assert "trees columns" in {key[0] for key in client.data._cache}
    assert sorted(asked) == sorted((each, view) for each in range(3) for view in ("own", "common"))
    # Another model than the silo's own common one is no copy of it.
    weights = {name: 2 * each for name, each in client._parts["ridge"].model_of("common").items() if name != "about"}
    client.install_aggregate({f"ridge-common/{name}": each for name, each in weights.items()})
    assert not torch.equal(client.predict(client.data, "aggregate"), before)
    assert asked[-1] == (0, "aggregate")


def test_trees_are_taken_once_validation_prefers_them(kit, silos):
    server, federation = played(kit, silos, 1)
    client = federation.client(0)
    assert (server.preferred, client._chosen) == ([0, 0], 0)
    assert {name.partition("/")[0] for name in server.aggregate()} == {"ridge-common"}
    for number in range(2, 4):
        server.round(federation, number)
        assert "chosen_7" not in server.log
    server.round(federation, 4)
    assert server.log["chosen_7"] > 0  # every fourth round
    for number in range(5, 21):
        server.round(federation, number)
    assert server.preferred == [2, 2]
    assert {name.partition("/")[0] for name in server.aggregate()} == {"trees-common"}
    assert client.study()["chosen"] == client._chosen == 2
    assert torch.equal(client.predict(client.data), client._parts["trees"].predict(client.data, "common"))


@pytest.mark.parametrize("select_by", ["accuracy", "auc"])
def test_the_choice_adds_up(kit, silos, select_by):
    """Counts of every silo's validation nodes, for each choice."""
    server, federation = played(kit, silos, 8, select_by=select_by)
    clients = [federation.client(client) for client in range(3)]
    answers = [client.score(ScoreRequest(choices=8, course=True)) for client in clients]
    total = sum(answer.counts for answer in answers)
    labels = np.concatenate([silo.graph.labels[silo.seen.items["val"]] for silo in silos])
    assert torch.equal(total[5].sum(1), torch.from_numpy(np.bincount(labels, minlength=3)))
    rights = []
    for models in auto.CHOICES:
        right = 0
        for client, silo in zip(clients, silos, strict=True):
            items = silo.seen.items["val"]
            found = sum(
                client._parts["ridge"].predict_held_out()
                if (name, view) == ("ridge", "own")
                else client._parts[name].predict(client.data, view)[items]
                for name, view in models
            ).argmax(1)
            right += int((found.numpy() == silo.graph.labels[items]).sum())
        rights.append(right)
    assert total.diagonal(dim1=1, dim2=2).sum(1).tolist() == rights
    if select_by == "accuracy":
        common = {0: rights[0], 2: rights[2], 5: rights[5]}
        assert server.preferred == [int(np.argmax(rights)), max(common, key=common.get)]
    auc = np.divide(*sum(answer.ranked["auc"] for answer in answers).numpy())
    assert server.curve[-1] == pytest.approx(max(auc[2:5]))
    assert server.ridge == pytest.approx(max(auc[:2]))


def test_a_silo_departs_where_its_own_nodes_are_clear(kit, silos):
    _, federation = played(kit, silos, 15)
    client = federation.client(0)
    metric, labels = METRICS["accuracy"], silos[0].graph.labels[silos[0].seen.items["val"]]
    clear = np.eye(3, dtype=np.float32)[labels]
    for other, wanted in ((1 - clear, 0), (clear, 1)):
        client._predict_choice = lambda choice, other=other: other if choice else clear
        client.choose(ChooseRequest(choices=8, preferred=1))
        assert client._chosen == wanted
    assert metric.of_outputs(labels, clear) == 1.0


@pytest.mark.parametrize(
    ("curve", "ridge", "hopeless"),
    [
        ([0.1, 0.5, 0.6], 0.69, False),  # 0.1 · (1/2 + 1/4 + ...) more: 0.7
        ([0.1, 0.5, 0.6], 0.71, True),
        ([0.7, 0.6], 0.61, True),  # it does not get worse, either
        ([0.7, 0.6], 0.59, False),
    ],
)
def test_trees_that_stay_behind_are_given_up(kit, silos, curve, ridge, hopeless):
    server, _ = kit.build("auto", silos)
    server.curve, server.ridge = curve, ridge
    assert server._is_hopeless() is hopeless


@pytest.mark.slow
def test_how_trees_get_on_is_asked_in_rounds_8_16_and_32(kit, silos, monkeypatch):
    asked = []
    monkeypatch.setattr(auto.Server, "_is_hopeless", lambda server: asked.append(len(server.curve)))
    server, _ = played(kit, silos, 33)
    assert (len(server.curve), asked) == (3, [2, 3])


def test_a_run_ends_with_the_last_step_that_may_pay(monkeypatch):
    """Its last round is scored and kept as any other's."""
    monkeypatch.setattr(auto.Server, "_is_hopeless", lambda server: True)
    monkeypatch.setattr(auto, "FEWEST", 4)
    for every, scored in ((3, [3, 4]), (1, [1, 2, 3, 4]), (None, [1, 4])):
        config = {**GRAPH, "method": {"name": "auto", "rounds": 50}, "evaluation": {"every": every}}
        [seed] = graphsilo.run(config, report=False).tree["seeds"]
        assert [row["round"] for row in seed["rounds"]] == [1, 2, 3, 4]
        assert [row["round"] for row in seed["rounds"] if "validation" in row] == scored


def test_with_one_round_it_is_fedridge():
    ours = graphsilo.run({**GRAPH, "method": {"name": "auto", "rounds": 1}}, report=False)
    theirs = graphsilo.run({**GRAPH, "method": "fedridge"}, report=False)
    for name in ("test", "validation", "confusion", "modes"):
        assert ours.tree["seeds"][0].get(name) == theirs.tree["seeds"][0].get(name)


def test_graphs_are_classified_by_both(tmp_path):
    data = {"name": str(molecules(tmp_path / "rings.npz"))}
    found = []
    for method in ({"name": "fedridge"}, {"name": "auto", "rounds": 1}, {"name": "auto", "rounds": 4}):
        config = {"task": "graph", "data": data, "partition": {"clients": 3}, "model": {}, "method": method}
        [seed] = graphsilo.run(config, report=False).tree["seeds"]
        found.append((len(seed["rounds"]), seed["rounds"][0]["validation"]))
    assert [rounds for rounds, _ in found] == [1, 1, 4]
    assert found[0][1] == found[1][1] == found[2][1]


def test_without_validation_nodes_nobody_can_tell(kit, silos):
    bare = [
        replace(silo, evaluations=tuple(replace(each, items={**each.items, "val": np.zeros(0, dtype=np.int64)})
                                        for each in silo.evaluations)) for silo in silos
    ]  # fmt: skip
    server, federation = played(kit, bare, 1)
    assert server.ends_early
    before = federation.client(0).state()
    server.round(federation, 2)  # as with --reference alone, where other silos go on
    assert federation.client(0).state()["chosen"] == before["chosen"] == 1
    assert not federation.client(0)._parts["trees"]._forests


@pytest.mark.slow
def test_what_is_kept_says_the_same(kit, silos):
    for rounds, own, common in ((1, 1, 0), (15, 3, 2), (15, 7, 5)):
        server, federation = played(kit, silos, rounds)
        client = federation.client(1)
        client._chosen, server.preferred[1] = own, common
        fresh = Client(client.context)
        fresh.load_final(client.final_models())
        assert torch.equal(fresh.predict(client.data), client.predict(client.data))
        fresh.install_aggregate(server.aggregate())
        client.install_aggregate(server.aggregate())
        assert torch.equal(fresh.predict(client.data, "aggregate"), client.predict(client.data, "aggregate"))
    with pytest.raises(MessageError, match="no models that are tried here: forest"):
        client.install_aggregate({"forest/values": torch.zeros(1)})


@pytest.mark.parametrize(("choices", "preferred"), [(8, -1), (8, 8), (3, 0), (2, 2), (0, 0)])
def test_no_choice_that_is_not_there_is_preferred(kit, silos, choices, preferred):
    _, federation = played(kit, silos, 2)
    with pytest.raises(MessageError, match="kinds of models"):
        federation.client(0).choose(ChooseRequest(choices=choices, preferred=preferred))
    _, alone = kit.build("auto", silos, rounds=1)
    with pytest.raises(MessageError, match="kinds of models"):
        alone.client(0).choose(ChooseRequest(choices=8, preferred=0))


class Missing(InProcess):
    """One request of a step does not reach client 1, or its answer does not come back.

    Attributes:
        step, is_answered: Which, and whether the answer is lost.
    """

    step: str = "ridge_adopt"
    is_answered = False

    def deliver(self, handler, round, outgoing):
        if handler != self.step:
            yield from super().deliver(handler, round, outgoing)
            return
        self.step = ""
        asked = outgoing if self.is_answered else {client: what for client, what in outgoing.items() if client != 1}
        yield from ((client, answer) for client, answer in super().deliver(handler, round, asked) if client != 1)
        yield 1, Failure(1, handler, "Gone", "")


@pytest.mark.parametrize("step", ["ridge_adopt", "choose"])
def test_an_answer_that_is_lost_is_as_if_it_had_never_been_asked_for(kit, silos, step):
    found = []
    for is_answered in (True, False):
        server, federation = kit.build("auto", silos, min_clients=1)
        federation.__class__, federation.step, federation.is_answered = Missing, step, is_answered
        said = []
        for number in range(1, 7):
            kit.rounds(server, federation, start=number)
            federation.client_states()
            clients = [federation.client(client) for client in range(3)]
            said += [(client._chosen, client.predict(client.data).tolist()) for client in clients]
        found.append(said)
    assert found[0] == found[1]


def test_a_silo_that_missed_the_ridge_goes_on_without(kit, silos):
    """It says that it knows nothing, and takes trees where they are better."""
    server, federation = kit.build("auto", silos, min_clients=1)
    federation.__class__ = Missing
    kit.rounds(server, federation, 1)
    assert [failure.handler for failure in federation.failures] == ["ridge_adopt"]
    kit.rounds(server, federation, 20, start=2)
    assert not federation.failures
    client = federation.client(1)
    assert client._chosen > 1 < client.predict(client.data).argmax(1).unique().numel()


def test_every_step_of_both_is_there_under_a_name_of_its_own():
    names = {name for name in dir(Client) if name.startswith(("ridge_", "trees_"))}
    assert names == {
        "ridge_count", "ridge_count_targets", "ridge_statistics", "ridge_target_statistics", "ridge_score",
        "ridge_adopt", "ridge_add_columns", "ridge_scale_columns",
        "trees_count", "trees_moments", "trees_project", "trees_cells", "trees_start", "trees_histograms",
        "trees_adopt",
    }  # fmt: skip
    for name in names:
        part, _, step = name.partition("_")
        assert getattr(Client, name).types() == getattr(auto.PARTS[part].client, step).types()
        assert getattr(Client, name).__doc__ == getattr(auto.PARTS[part].client, step).__doc__
    assert registry.load("auto").config().of_parts()["trees"].rounds == 99


def test_what_leaves_a_silo():
    """What its parts send without noise, and the counts to choose by."""
    parts = [(part, line) for part, name in (("ridge", "fedridge"), ("trees", "fedtrees")) for line in sent(name)]
    check_sent(
        "auto",
        "\n".join(f"{part}_{line}" for part, line in parts if not line.startswith("noisy_statistics"))
        + """
        score counts: counts int64 [models, classes, classes]
        score ranked: score float64
        choose clients: counts
        """,
    )
