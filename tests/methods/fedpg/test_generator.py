"""FedPG at the server: query sets, margin, the generator's loss and its gradient, and the clients' mixtures."""

from __future__ import annotations

import math

import pytest
import torch

from graphsilo.methods.fedpg.config import FedPGConfig
from graphsilo.methods.fedpg.generator import (
    choose_queries,
    client_similarity,
    contrastive_loss,
    make_queries,
    margin_between,
    personalise,
)
from graphsilo.random import generator
from graphsilo.training.optimizer import optimizer
from graphsilo.training.prototypes import PrototypeGenerator, unit_rows
from graphsilo.training.upstream import gradients_of

DOUBLE = torch.float64


def uploads(clients=4, classes=3, levels=2, width=6, seed=0, dtype=DOUBLE):
    return torch.randn(clients, classes, levels, width, dtype=dtype, generator=generator(seed, "test"))


def queries_of(prototypes, present=None, **settings):
    present = (prototypes != 0).any(-1) if present is None else present
    return make_queries(prototypes, present, FedPGConfig(**settings), generator(9, "draw"))


def learned(rows, queries, temperature=1.0):
    """The loss, and its gradient."""
    leaf = rows.detach().requires_grad_()
    loss = contrastive_loss(leaf, queries, temperature)
    return loss.detach(), gradients_of(loss, [leaf])[0]


def test_queries_without_other_hops():
    classes, hops = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    chosen = choose_queries(classes, hops, (2, 2), 0.0, generator(0, "test"))
    assert chosen.tolist() == [[True, False, True, False], [False, True, False, True]]


@pytest.mark.parametrize(("share", "extra"), [(0.25, 1), (0.5, 2), (1.0, 4)])
def test_a_share_of_other_hops(share, extra):
    # Four clients with two classes at three hops.
    present = torch.ones(4, 2, 3, dtype=torch.bool)
    _, classes, hops = present.nonzero(as_tuple=True)
    chosen = choose_queries(classes, hops, (2, 3), share, generator(0, "test"))
    for hop in range(3):
        assert chosen[hop][hops == hop].all()
        for c in range(2):
            assert int(chosen[hop][(hops != hop) & (classes == c)].sum()) == extra
    other = choose_queries(classes, hops, (2, 3), share, generator(1, "test"))
    assert not torch.equal(other, chosen)


def test_other_hops_are_drawn_uniformly_and_only_where_there_are_some():
    classes = torch.tensor([0, 0, 0, 0, 0, 1])
    hops = torch.tensor([0, 0, 1, 1, 1, 0])
    counts = torch.zeros(6)
    for seed in range(600):
        chosen = choose_queries(classes, hops, (2, 2), 0.5, generator(seed, "test"))
        assert chosen[0, [0, 1, 5]].all()
        assert int(chosen[0].sum()) == 4  # half of two at hop 0 is one of three; class 1 has no other hop
        counts += chosen[0].float()
    assert counts[2:5].min() > 150  # 200 on average


def test_margin_by_hand():
    # Centres (1, 0), (0, 1), (1, 1)/2: cosines 0 and 1/√2.
    values = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.5, 0.5]])
    classes = torch.tensor([0, 1, 1, 2])
    assert margin_between(values, classes, 4, limit=9.0, by="one_minus_cosine") == pytest.approx(1.0)
    assert margin_between(values, classes, 4, limit=9.0, by="cosine") == pytest.approx(math.sqrt(0.5))
    assert margin_between(values, classes, 4, limit=0.5, by="one_minus_cosine") == 0.5
    assert margin_between(values, classes, 4, limit=0.0, by="cosine") == 0.0
    assert margin_between(values[1:3], classes[1:3], 4, limit=0.5, by="cosine") == 0.0


@pytest.mark.parametrize(("sign", "shift"), [("minus", -0.5), ("paper", 0.5)])
def test_loss_by_hand(sign, shift):
    # One client, two classes at (1, 0) and (0, 1), P̃ the same: D is 1 with the positive and 0 with the negative.
    prototypes = torch.tensor([[[[3.0, 0.0]], [[0.0, 7.0]]]])
    queries = queries_of(prototypes, margin_sign=sign)
    assert queries.shift == shift
    loss, slope = learned(torch.tensor([[2.0, 0.0], [0.0, 5.0]]), queries)
    top = math.exp(1.0 + shift)
    assert float(loss) == pytest.approx(-math.log(top / (top + 1.0)), rel=1e-5)
    assert slope[0, 0] == 0.0  # along the vector itself nothing changes: only directions count
    assert slope[0, 1] > 0.0  # away from the other class


@pytest.mark.parametrize("temperature", [1.0, 0.1])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_loss_against_the_formula(share, temperature):
    prototypes = uploads()
    prototypes[0, 1] = 0.0  # a client without a class
    prototypes[:, 2, 1] = 0.0  # a class nobody has at hop 1
    present = (prototypes != 0).any(-1)
    queries = queries_of(prototypes, hop_share=share)
    _, classes, hops = present.nonzero(as_tuple=True)
    chosen = choose_queries(classes, hops, (3, 2), share, generator(9, "draw"))
    universal = torch.randn(6, 6, dtype=DOUBLE, generator=generator(1, "test"))
    loss, slope = learned(universal, queries, temperature)
    cosines = unit_rows(universal) @ unit_rows(prototypes[present]).t()
    terms = []
    for row in range(5):  # the sixth is class 2 at hop 1
        own, here = classes == row // 2, chosen[row % 2]
        positive = ((cosines[row] + queries.shift) / temperature).exp()[own & here].sum()
        negative = (cosines[row] / temperature).exp()[~own & here].sum()
        terms.append(-(positive / (positive + negative)).log())
    torch.testing.assert_close(loss, torch.stack(terms).mean())
    assert (slope[:5] != 0).all()
    assert (slope[5] == 0).all()


def test_a_small_temperature_keeps_the_pull_of_far_positives():
    # Both classes at right angles, P̃ turned away from its own: exp((D - 1) / T) is about 1e-17 there.
    queries = queries_of(torch.tensor([[[[1.0, 0.0]], [[0.0, 1.0]]]]))
    rows = torch.tensor([[-1.0, 0.2], [0.2, -1.0]])
    loss, slope = learned(rows, queries, 0.05)
    leaf = rows.double().requires_grad_()
    cosines = unit_rows(leaf) @ torch.eye(2, dtype=DOUBLE)
    own, other = cosines.diagonal(), cosines.flip(1).diagonal()
    expected = torch.nn.functional.softplus((other - own + queries.margin) / 0.05).mean()
    (gradient,) = torch.autograd.grad(expected, leaf)
    torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-5, atol=0.0)
    torch.testing.assert_close(slope.double(), gradient, rtol=1e-5, atol=1e-5)


def test_one_class_alone_has_nothing_to_be_told_from():
    loss, slope = learned(uploads(classes=1).flatten(0, 2)[:2], queries_of(uploads(classes=1)))
    assert float(loss) == 0.0
    assert (slope == 0).all()


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_generator_separates_classes(share):
    """Its loss falls, and so does the mean cosine of its classes, towards that of a simplex, -1/(C-1)."""
    directions = torch.eye(3, 8).unsqueeze(1) + 1.0  # all classes share a large common part
    prototypes = directions + 0.05 * uploads(5, 3, 2, 8, dtype=torch.float32)
    queries = queries_of(prototypes, hop_share=share)
    network = PrototypeGenerator(6, 8, generator(0, "test"))
    steps = optimizer("adam", network.parameters, lr=0.01)
    losses, cosines = [], []
    for _ in range(200):
        rows, hidden = network.forward()
        loss, slope = learned(rows, queries)
        steps.step(network.gradients(hidden, slope))
        losses.append(float(loss))
        unit = unit_rows(network().view(3, 2, 8)[:, 0])
        cosines.append(float((unit @ unit.t()).sum() - 3) / 6)
    assert losses[-1] < losses[0]
    assert cosines[-1] < cosines[0]
    assert cosines[-1] == pytest.approx(-0.5, abs=0.05)


def test_the_margin_turns_no_gradient():
    prototypes = uploads()
    rows = uploads(seed=3)[0].flatten(0, 1)
    plain = learned(rows, queries_of(prototypes, margin=0.0))[1]
    harder = learned(rows, queries_of(prototypes))[1]
    cosine = torch.nn.functional.cosine_similarity(plain, harder, dim=1)
    torch.testing.assert_close(cosine, torch.ones_like(cosine))
    assert (harder.norm(dim=1) > plain.norm(dim=1)).all()


def test_similarity_counts_shared_classes_alone():
    prototypes = torch.zeros(4, 3, 1, 2)
    prototypes[0, 0, 0] = torch.tensor([1.0, 0.0])
    prototypes[0, 1, 0] = torch.tensor([0.0, 1.0])
    prototypes[1, 0, 0] = torch.tensor([1.0, 0.0])
    prototypes[1, 1, 0] = torch.tensor([0.0, -1.0])
    prototypes[2, 1, 0] = torch.tensor([0.0, 5.0])
    prototypes[2, 2, 0] = torch.tensor([9.0, 0.0])
    cosine = client_similarity(prototypes, (prototypes != 0).any(-1))
    # 0 and 1 agree in one class and oppose in the other; 0 and 2 share class 1; client 3 has nothing.
    assert cosine.tolist() == [[1, 0, 1, 0], [0, 1, -1, 0], [1, -1, 1, 0], [0, 0, 0, 1]]


def test_similarity_against_loops():
    prototypes = uploads(5)
    prototypes[torch.rand(5, 3, 2, generator=generator(2, "test")) < 0.3] = 0.0
    present = (prototypes != 0).any(-1)
    cosine = client_similarity(prototypes, present)
    for i in range(5):
        for k in range(5):
            both = present[i] & present[k]
            expected = torch.nn.functional.cosine_similarity(
                prototypes[i][both].flatten(), prototypes[k][both].flatten(), dim=0
            )
            assert float(cosine[i, k]) == pytest.approx(float(expected), abs=1e-9)


def test_mixture_by_hand():
    # Three clients, one class, one hop: values 1, 3 and -1 with 1, 3 and 4 items; client 2 is unlike the others.
    prototypes = torch.tensor([1.0, 3.0, -1.0]).view(3, 1, 1, 1)
    counts = torch.tensor([[1], [3], [4]], dtype=torch.int32)
    universal = torch.tensor([[[8.0]]])
    present = torch.ones(3, 1, 1, dtype=torch.bool)
    mixed, similar = personalise(prototypes, present, counts, universal, alpha=0.5, threshold=0.9)
    # ½ · 8 + ½ · (1 · 1 + 3 · 3) / 4 = 5.25, and ½ · 8 - ½ = 3.5
    assert mixed.flatten().tolist() == [5.25, 5.25, 3.5]
    assert similar.tolist() == [[True, True, False], [True, True, False], [False, False, True]]
    alone, similar = personalise(prototypes, present, counts, universal, alpha=0.0, threshold=1.5)
    assert alone.flatten().tolist() == [1.0, 3.0, -1.0]
    assert similar.tolist() == torch.eye(3, dtype=torch.bool).tolist()
    everyone, _ = personalise(prototypes, present, counts, universal, alpha=0.0, threshold=-1.0)
    assert everyone.flatten().tolist() == pytest.approx([0.75] * 3)  # (1 + 9 - 4) / 8, FedProto's mean
    ablated, _ = personalise(prototypes, present, counts, universal, alpha=1.0, threshold=0.9)
    assert ablated.flatten().tolist() == [8.0] * 3


def test_a_client_receives_only_what_it_has_itself():
    prototypes = uploads(3)
    prototypes[0, 1] = 0.0
    prototypes[1, 2, 1] = 0.0
    present = (prototypes != 0).any(-1)
    counts = torch.ones(3, 3, dtype=torch.int32)
    mixed, _ = personalise(prototypes, present, counts, uploads(1)[0], alpha=0.5, threshold=-1.0)
    assert torch.equal((mixed != 0).any(-1), present)
    assert torch.isfinite(mixed).all()
