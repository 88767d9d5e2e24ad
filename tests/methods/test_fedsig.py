"""FedSig: which nodes are made, between what, and what is agreed of classes, by hand."""

from __future__ import annotations

import pytest
import torch

from graphsilo.errors import MessageError, UnsupportedError
from graphsilo.methods.fedsig import (
    Decoder,
    TrainReply,
    count_lacking,
    distance,
    draw_anchors,
    mix_common,
    mix_nearest,
)
from graphsilo.random import generator
from graphsilo.training.objective import Step


def rare(kit, client=0, **settings):
    """Five training nodes of class 0, one of class 1."""
    silo = kit.tiny_silo(client, train=range(6), **settings)
    silo.graph.labels[:] = [0, 0, 0, 0, 0, 1]
    return silo


def test_rare_classes_are_filled_up_by_hand():
    """Of 8, 2, 5 and 0 the mean of three is 5: only the second is below; half of 8 is 4, two more than 2."""
    counts = torch.tensor([8, 2, 5, 0])
    assert count_lacking(counts, 1.0, 1.0, 100).tolist() == [0, 6, 0, 0]
    assert count_lacking(counts, 1.0, 0.5, 100).tolist() == [0, 2, 0, 0]
    assert count_lacking(counts, 1.1, 1.0, 100).tolist() == [0, 6, 3, 0]
    assert count_lacking(counts, 1.1, 1.0, 3).tolist() == [0, 2, 1, 0]  # in proportion
    assert not count_lacking(counts, 0.0, 1.0, 100).any()
    assert not count_lacking(torch.zeros(2, dtype=torch.int64), 1.0, 1.0, 9).any()


def test_nodes_are_made_from_their_class():
    labels = torch.tensor([2, 0, 2, 1, 0])
    anchors, classes = draw_anchors(labels, torch.tensor([40, 0, 20]), generator(0))
    assert classes.tolist() == [0] * 40 + [2] * 20
    assert torch.equal(labels[anchors], classes)
    assert set(anchors.tolist()) == {0, 1, 2, 4}


def test_a_made_node_lies_between_its_anchor_and_the_nearest_of_its_class():
    """Of class 0 the nearest to (0, 0) is (2, 0), though (1, 1) of class 1 is nearer; the only node of 1 is itself."""
    rows = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 5.0], [1.0, 1.0]])
    labels = torch.tensor([0, 0, 0, 1])
    made = mix_nearest(rows, labels, torch.tensor([0, 0, 3]), generator(0))
    assert torch.equal(made[:2, 1], torch.zeros(2))
    assert bool(((made[:2, 0] > 0) & (made[:2, 0] < 2)).all())
    assert float(made[0, 0]) != float(made[1, 0])
    assert torch.equal(made[2], rows[3])


def test_the_common_distribution_has_its_share():
    """Without spread z is the mean: three quarters of (1, 1) and a quarter of (5, 9); class 1 is nobody's."""
    made, labels = torch.ones(2, 2), torch.tensor([0, 1])
    means, none = torch.tensor([[5.0, 9.0], [7.0, 7.0]]), torch.zeros(2, 2)
    known = means, none, torch.tensor([True, False])
    found = mix_common(made, labels, *known, share=0.25, draw=generator(0))
    torch.testing.assert_close(found, torch.tensor([[2.0, 3.0], [1.0, 1.0]]))
    assert torch.equal(mix_common(made, labels, *known, share=0.0, draw=generator(0)), made)


def test_the_distance_of_rare_classes_by_hand():
    """Class 1 has (1, 0) and (3, 0): mean (2, 0), deviation (1, 0), against (2, 1) and (0, 0): 1 + 1."""
    rows, labels = torch.tensor([[9.0, 9.0], [1.0, 0.0], [3.0, 0.0]]), torch.tensor([0, 1, 1])
    means, deviations = torch.tensor([[0.0, 0.0], [2.0, 1.0]]), torch.zeros(2, 2)
    there = torch.tensor([True, True])
    far = distance(rows, labels, torch.tensor([False, True]), means, deviations, there)
    assert float(far) == pytest.approx(2.0, abs=1e-5)
    assert float(distance(rows, labels, torch.tensor([False, True]), means, deviations, ~there)) == 0.0


def test_the_server_knows_mean_and_deviation_of_all_rows_in_one_place(kit):
    silos = [kit.tiny_silo(client) for client in range(3)]
    server, federation = kit.build("fedsig", silos)
    kit.rounds(server, federation, 1)
    rows, labels = [], []
    for silo in silos:
        client = federation.client(silo.client)
        rows.append(client.model.embed(client.data.full)[silo.train].detach())
        labels.append(torch.from_numpy(silo.labels[silo.train]))
    every, classes = torch.cat(rows), torch.cat(labels)
    for label in classes.unique():
        mine = every[classes == label]
        torch.testing.assert_close(server.means[label], mine.mean(0))
        torch.testing.assert_close(server.deviations[label], mine.std(0, unbiased=False), atol=1e-4, rtol=1e-3)


def test_made_nodes_count_as_much_as_real_ones(kit):
    """Of a GCN without links to them: the mean of ten cross-entropies, four of made nodes, which are copies of the one
    node of class 1."""
    _, federation = kit.build("fedsig", [rare(kit)], link_weight=0.0, common=0.0, dropout=0.0)
    client = federation.client(0)
    with torch.no_grad():
        client.decoder.weight.fill_(0.0)  # σ(0) is no link
    assert client.lacking.tolist() == [0, 4]
    seen = []
    client.run_epochs = lambda term, adjust: seen.append(term)
    client.fit(type("Request", (), {"means": None, "deviations": None, "present": None})())
    batch = next(client.goal.batches(0, generator(0)))
    with torch.no_grad():
        outputs = client.model.outputs(batch.view)
    labels = batch.labels
    step = Step(
        client.goal.items, labels, outputs.logits, outputs.embeddings.requires_grad_(), batch.view, generator(1)
    )
    value = float(seen[0](step).detach())
    losses = torch.nn.functional.cross_entropy(outputs.logits, labels, reduction="none")
    copy = client.model.get_submodule("layers.1")(outputs.embeddings[5:])
    made = torch.nn.functional.cross_entropy(copy.detach(), labels[5:])
    assert float(losses.mean()) + value == pytest.approx(float((losses.sum() + 4 * made) / 10), abs=1e-6)


def test_the_decoder_learns_and_stays(kit):
    silos = [rare(kit), rare(kit, 1)]
    server, federation = kit.build("fedsig", silos)
    before = federation.client(0).decoder.weight.detach().clone()
    assert not torch.equal(before, federation.client(1).decoder.weight)  # of its own from the start
    kit.rounds(server, federation, 2)
    assert not torch.equal(federation.client(0).decoder.weight, before)
    assert not any("decoder" in name for name in server.weights)


def test_a_score_of_the_decoder_by_hand():
    decoder = Decoder(2, generator(0))
    with torch.no_grad():
        decoder.weight.copy_(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    found = decoder(torch.tensor([[2.0, 5.0]]), torch.tensor([[7.0, 0.5]]))
    assert float(found) == pytest.approx(1 / (1 + 2.718281828**-1))  # 2 · 0.5 = 1


def test_links_lead_to_nodes_at_most_two_links_away(kit):
    """On a line 0 – 1 – 2 – 3 – 4 – 5 node 5 is near to 4, then 3."""
    silo = rare(kit)
    silo.graph.edges[:] = 0
    ends = [[0, 1, 1, 2, 2, 3, 3, 4, 4, 5], [1, 0, 2, 1, 3, 2, 4, 3, 5, 4]]
    silo.graph.edges[:, :10] = ends
    client = kit.build("fedsig", [silo], candidates=2)[1].client(0)
    near, there = client.around
    assert (near[5].tolist(), there[5].tolist()) == ([4, 3], [True, True])
    assert near[2].tolist() == [1, 3]  # nearer ones first


def test_models_whose_last_layer_is_no_single_weight_are_refused(kit):
    with pytest.raises(UnsupportedError, match="weighs a node and its neighbours apart"):
        kit.build("fedsig", [rare(kit)], model="gat")


def test_sums_that_cannot_be_are_refused():
    two = torch.tensor([[2.0, 0.0]])
    good = {"weights": {}, "num_samples": 1.0, "counts": torch.tensor([2])}
    TrainReply(**good, sums=two, squares=two).check()
    with pytest.raises(MessageError, match="sum of n squares"):
        TrainReply(**good, sums=two, squares=two / 4).check()
