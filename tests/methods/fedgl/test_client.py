"""FedGL's client: what it trains on, and over which links."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from graphsilo.errors import ConfigError, MessageError
from graphsilo.federation import registry
from graphsilo.methods.fedgl import links
from graphsilo.methods.fedgl.client import labels_of
from graphsilo.methods.fedgl.messages import Shared, TrainRequest
from kit.fedgl import overlapping, ready


def test_pseudo_labels_are_of_nodes_without_a_label_shared_ones_by_everybody(kit):
    """Nodes 0 to 2 have labels; of node 3 the client is sure, of node 4 others say 1, of node 5 nobody anything."""
    _, _, (one, _) = ready(kit, overlapping(kit))
    nothing = TrainRequest(weights={}, renew=True)
    told = TrainRequest(weights={}, renew=True, ids=torch.tensor([4, 5]), labels=torch.tensor([1, -1]))
    assert one.pseudo_labels(nothing).tolist() == [-1] * 6
    assert one.pseudo_labels(told).tolist() == [-1, -1, -1, -1, 1, -1]  # it comes late, and others were there before
    one.guesses = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.9], [0.8, 0.0], [0.7, 0.0], [0.0, 0.6]])
    assert one.pseudo_labels(nothing).tolist() == [-1, -1, -1, 0, 0, 1]
    assert one.pseudo_labels(told).tolist() == [-1, -1, -1, 0, 1, -1]
    assert labels_of(torch.tensor([[0.0, 0.0], [0.2, 0.6]])).tolist() == [-1, 1]


def test_a_step_goes_down_both_cross_entropies(kit):
    """θ − lr ∇(CE over labels + η CE over pseudo labels), each a mean over its own nodes."""
    settings = {"strength": 0.5, "graph_weight": 0.0, "optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0}
    _, _, (one, _) = ready(kit, overlapping(kit), local_epochs=1, renew_every=0, **settings)
    one.guesses = torch.tensor([[0.0, 1.0]] * 4 + [[0.0, 0.0]] * 2)
    before = [parameter.detach().clone() for parameter in one.model.parameters()]
    logits, labels = one.model(one.data.full), torch.from_numpy(one.silo.labels)
    loss = F.cross_entropy(logits[:3], labels[:3]) + 0.5 * F.cross_entropy(logits[3:4], torch.tensor([1]))
    slopes = torch.autograd.grad(loss, list(one.model.parameters()))
    one.fit(TrainRequest(weights={}, renew=False))
    for start, slope, now in zip(before, slopes, one.model.parameters(), strict=True):
        torch.testing.assert_close(now.detach(), start - 0.1 * slope)
    assert one.guesses[3, 1] == 1.0  # nothing was to be renewed


def test_what_is_below_the_threshold_counts_as_nothing(kit):
    _, _, (one, _) = ready(kit, overlapping(kit), threshold=0.5)
    one.fit(TrainRequest(weights={}, renew=True))
    with torch.no_grad():
        chances = torch.softmax(one.model(one.data.full), 1)
    expected = torch.where(chances >= 0.5, chances, 0.0)
    assert torch.equal(one.guesses, expected)
    assert (expected == 0).any()


def test_a_client_trains_and_answers_over_links_of_the_round_before(kit):
    """Shared nodes are linked by what all silos say of them; another graph is left as it is."""
    _, _, (one, _) = ready(kit, overlapping(kit), neighbours=1)
    one.fit(TrainRequest(weights={}, renew=True))
    assert one.linked is one.data
    mean = torch.full((2, 4), 3.0)
    rows = one.embedded.clone()
    rows[4:] = mean
    one.fit(TrainRequest(weights={}, renew=True, ids=torch.tensor([4, 5]), labels=None, embeddings=mean))
    expected = links.link_alike(rows, 1, 0.1)
    assert all(torch.equal(one.links[name], value) for name, value in expected.items())
    assert one.trainer.objective.data is one.linked
    with torch.no_grad():
        assert torch.equal(one.predict(one.data), one.model(one.linked.full))
        other = one.tensors(kit.tiny_silo(3).graph)
        assert torch.equal(one.predict(other), one.model(other.full))
    saved = one.final_models()
    twin = kit.build("fedgl", overlapping(kit), neighbours=1)[1].client(0)
    twin.load_final(saved)
    assert torch.equal(twin.predict(twin.data), one.predict(one.data))


def test_what_cannot_be_is_refused(kit):
    with pytest.raises(MessageError, match="by ids of its own"):
        ready(kit, [kit.tiny_silo(0)])[2][0].tell_predictions(Shared(ids=torch.tensor([4, 5])))
    with pytest.raises(ConfigError, match="no hidden layer"):
        kit.build("fedgl", overlapping(kit), model="sgc", model_options={"hidden": 4})[1].client(0)
    with pytest.raises(ConfigError, match="model gat knows none"):
        registry.load("fedgl").config().check_model("gat", 2, "node")
