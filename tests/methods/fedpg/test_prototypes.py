"""FedPG at a client: neighbours, prototypes per hop, and the pull, by hand and against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo.errors import ConfigError
from graphsilo.methods.fedpg import prototypes as fedpg_prototypes
from graphsilo.methods.fedpg import reach as fedpg_reach
from graphsilo.methods.fedpg.prototypes import (
    Membership,
    Scorer,
    add_noise,
    alignment,
    annotate,
    centre,
    hop_pairs,
    sample_pairs,
    scatter_softmax,
    similar_pairs,
)
from graphsilo.random import generator, numpy_generator


def path(nodes: int) -> sp.csr_matrix:
    return sp.csr_matrix(np.eye(nodes, k=1) + np.eye(nodes, k=-1))


def as_sets(pairs):
    return [set(zip(v.tolist(), j.tolist(), strict=True)) for v, j in pairs]


def random_graph(nodes: int, seed: int = 0, share: float = 0.08) -> sp.csr_matrix:
    draw = np.random.default_rng(seed)
    upper = np.triu(draw.random((nodes, nodes)) < share, 1)
    return sp.csr_matrix((upper | upper.T).astype(np.float32))


def test_hops_on_a_path():
    one, two, three = as_sets(hop_pairs(path(4), 3))
    assert one == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}
    assert two == {(0, 2), (2, 0), (1, 3), (3, 1)}
    assert three == {(0, 3), (3, 0)}
    within = as_sets(hop_pairs(path(4), 3, within=True))
    assert within == [one, one | two, one | two | three]


def test_no_hops_and_no_edges():
    assert hop_pairs(path(4), 0) == []
    assert as_sets(hop_pairs(sp.csr_matrix((3, 3)), 2)) == [set(), set()]


@pytest.mark.parametrize("within", [False, True])
def test_hops_agree_with_shortest_paths(within, monkeypatch):
    adjacency = random_graph(60)
    distance = sp.csgraph.shortest_path(adjacency, unweighted=True)
    for block in (1 << 23, 600):  # in one block, and ten rows at a time
        monkeypatch.setattr("graphsilo.methods.fedpg.prototypes._BLOCK", block)
        for hop, (v, j) in enumerate(hop_pairs(adjacency, 3, within=within), start=1):
            wanted = (distance <= hop) & (distance > 0) if within else distance == hop
            assert set(zip(v.tolist(), j.tolist(), strict=True)) == set(
                zip(*(i.tolist() for i in wanted.nonzero()), strict=True)
            )
            assert (np.diff(v) >= 0).all()


def test_at_most_so_many_neighbours_from_hop_two_on():
    adjacency = random_graph(80, share=0.15)
    everyone = hop_pairs(adjacency, 2)
    drawn = hop_pairs(adjacency, 2, limit=5, draw=numpy_generator(0))
    assert as_sets(drawn[:1]) == as_sets(everyone[:1])
    sizes = np.bincount(drawn[1][0], minlength=80)
    assert np.array_equal(sizes, np.minimum(np.bincount(everyone[1][0], minlength=80), 5))
    assert as_sets(drawn[1:])[0] <= as_sets(everyone[1:])[0]
    again = hop_pairs(adjacency, 2, limit=5, draw=numpy_generator(0))
    assert np.array_equal(again[1][1], drawn[1][1])


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("words", [1 << 22, 300])  # in one block of columns, and a word at a time
def test_bits_find_the_same_neighbours(within, words, monkeypatch):
    monkeypatch.setattr(fedpg_reach, "_WORDS", words)
    pattern = random_graph(200, share=0.01)
    everyone = hop_pairs(pattern, 3, within=within)
    found = fedpg_reach.draw_pairs(pattern, 3, within=within, limit=200, draw=numpy_generator(0))
    for mine, wanted in zip(found, everyone, strict=True):
        assert np.array_equal(mine, wanted)
    assert fedpg_reach.count_pairs(pattern, 3, within=within) == sum(len(v) for v, _ in everyone[1:])
    drawn = fedpg_reach.draw_pairs(pattern, 3, within=within, limit=4, draw=numpy_generator(0))
    assert np.array_equal(drawn[0], everyone[0])
    for mine, some, wanted in zip(drawn[1:], as_sets(drawn)[1:], everyone[1:], strict=True):
        assert some <= set(zip(*(end.tolist() for end in wanted), strict=True))
        sizes = np.minimum(np.bincount(wanted[0], minlength=200), 4)
        assert np.array_equal(np.bincount(mine[0], minlength=200), sizes)


def test_drawing_from_bits_is_uniform():
    star = sp.csr_matrix(([1.0] * 18, ([0] * 9 + list(range(1, 10)), list(range(1, 10)) + [0] * 9)), shape=(10, 10))
    drawn = [
        fedpg_reach.draw_pairs(star, 2, within=False, limit=2, draw=numpy_generator(seed))[1] for seed in range(80)
    ]
    counts = np.bincount(np.concatenate([j for _, j in drawn]), minlength=10)
    assert counts[0] == 0
    assert counts.sum() == 80 * 18
    assert counts[1:].min() > 120  # 160 on average


def test_a_large_silo_draws_from_bits_and_refuses_to_keep_all(monkeypatch):
    monkeypatch.setattr(fedpg_prototypes, "_ENUMERATED", 50)
    pattern = random_graph(80, share=0.15)
    drawn = hop_pairs(pattern, 2, limit=5, draw=numpy_generator(0))
    bits = fedpg_reach.draw_pairs(pattern, 2, within=False, limit=5, draw=numpy_generator(0))
    assert np.array_equal(drawn[1], bits[1])
    assert as_sets(hop_pairs(pattern, 2))[1] >= as_sets(drawn)[1]
    monkeypatch.setattr(fedpg_prototypes, "_MAX_PAIRS", 100)
    with pytest.raises(ConfigError, match="max_neighbours"):
        hop_pairs(pattern, 2)


def test_drawing_is_uniform():
    v, j = np.repeat([0, 1], [8, 2]), np.array([*range(10, 18), 3, 4])
    drawn = np.concatenate([sample_pairs((v, j), 2, numpy_generator(seed))[1] for seed in range(800)])
    counts = np.bincount(drawn, minlength=18)
    assert counts[3] == counts[4] == 800
    assert counts[10:].min() > 150  # 200 on average
    with pytest.raises(ValueError):
        sample_pairs((v, j), 2, None)


def test_similar_graphs():
    # Cosines: 0-1 1/√2, 0-2 0, 1-2 1/√2, 0-3 1; item 4 has length 0.
    embeddings = np.array([[1, 0], [1, 1], [0, 2], [3, 0], [0, 0]], dtype=np.float32)
    everyone = np.zeros(5, dtype=np.int64)
    near, far = as_sets(similar_pairs(embeddings, everyone, [0.9, 0.7]))
    assert near == {(0, 3), (3, 0)}
    assert far == near | {(0, 1), (1, 0), (1, 2), (2, 1), (1, 3), (3, 1)}
    (apart,) = as_sets(similar_pairs(embeddings, np.array([0, 1, 1, -1, 0]), [0.7]))
    assert apart == {(1, 2), (2, 1)}


def test_annotation_reads_training_labels_and_predictions_alone():
    probabilities = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.5, 0.5]])
    items, labels = np.array([0, 3]), np.array([1, -1])
    assert annotate(probabilities, items, labels, confidence=0.0).tolist() == [1, 1, 1, 0]
    assert annotate(probabilities, items, labels, confidence=0.7).tolist() == [1, -1, 1, -1]
    assert annotate(probabilities, items, labels, confidence=None).tolist() == [1, -1, -1, -1]


def test_prototypes_by_hand():
    # 0 - 1 - 2 - 3 with classes 0, 0, 1, 0 and embeddings 1, 2, 10, 6.
    membership = Membership(np.array([0, 0, 1, 0]), hop_pairs(path(4), 2), 3)
    prototypes = membership.prototypes(torch.tensor([[1.0], [2.0], [10.0], [6.0]]))[..., 0]
    # Class 0: mean of 1, 2, 6. Hop 1: item 0 sees 2, item 1 sees 1, item 3 sees nobody: 1.5. Hop 2: items 1 and 3 see
    # each other: (6 + 2) / 2. Class 1 is alone, class 2 absent.
    assert prototypes.tolist() == [[3.0, 1.5, 4.0], [10.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert membership.present.tolist() == [[True] * 3, [True, False, False], [False] * 3]
    assert membership.counts.tolist() == [3, 1, 0]


def plain_prototypes(embeddings, labels, pairs, num_classes, score=None):
    """Item by item and neighbour by neighbour."""
    result = embeddings.new_zeros(num_classes, len(pairs) + 1, embeddings.shape[1])
    for c in range(num_classes):
        mine = [v for v in range(len(labels)) if labels[v] == c]
        if mine:
            result[c, 0] = embeddings[mine].mean(0)
        for hop, (vs, js) in enumerate(pairs, start=1):
            means = []
            for v in mine:
                near = [j for i, j in zip(vs, js, strict=True) if i == v and labels[j] == c]
                if near:
                    scores = torch.stack([score(v, j) if score else torch.zeros(()) for j in near])
                    means.append((torch.softmax(scores, 0).unsqueeze(1) * embeddings[near]).sum(0))
            if means:
                result[c, hop] = torch.stack(means).mean(0)
    return result


@pytest.mark.parametrize("weights", ["mean", "scorer"])
def test_prototypes_against_loops(weights):
    draw = np.random.default_rng(3)
    adjacency = random_graph(40, share=0.1)
    labels = draw.integers(-1, 4, 40)
    pairs = hop_pairs(adjacency, 3)
    embeddings = torch.randn(40, 6, generator=generator(0, "test"))
    membership = Membership(labels, pairs, 5)
    scorer = score = None
    if weights == "scorer":
        scorer = Scorer(6)
        scorer.reset(generator(1, "test"))

        def score(v, j):
            both = torch.cat([scorer.item.weight, scorer.neighbour.weight])
            hidden = torch.cat([embeddings[v], embeddings[j]]) @ both + scorer.item.bias
            value = torch.nn.functional.leaky_relu(hidden) @ scorer.output.weight[:, 0] + scorer.output.bias[0]
            return torch.nn.functional.leaky_relu(value, 0.2)

    expected = plain_prototypes(embeddings, labels, pairs, 5, score)
    torch.testing.assert_close(membership.prototypes(embeddings, scorer), expected, atol=1e-5, rtol=1e-5)
    absent = torch.from_numpy(~membership.present)
    assert absent[4].all()
    assert (expected[absent] == 0).all()


def test_rows_of_the_mean_operator_sum_to_one():
    draw = np.random.default_rng(4)
    membership = Membership(draw.integers(0, 3, 30), hop_pairs(random_graph(30, share=0.1), 2), 4)
    sums = membership.mean_operator().dense().sum(1).view(4, 3)
    torch.testing.assert_close(sums, membership.mask.float(), atol=1e-6, rtol=0)


def test_gradients_reach_embeddings_and_scorer():
    labels = np.array([0, 0, 0, 1, 1, -1])
    membership = Membership(labels, hop_pairs(path(6), 2), 2)
    scorer = Scorer(3).double()
    scorer.reset(generator(0, "test"))
    with torch.no_grad():
        for parameter in scorer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator(2, "test")))
    embeddings = torch.randn(6, 3, dtype=torch.float64, generator=generator(1, "test"), requires_grad=True)
    assert torch.autograd.gradcheck(lambda values: membership.prototypes(values, scorer), (embeddings,))
    weight = scorer.item.weight
    (found,) = torch.autograd.grad(membership.prototypes(embeddings, scorer).square().sum(), weight)
    step = torch.zeros_like(weight)
    step[1, 0] = 1e-6
    with torch.no_grad():
        weight += step
        up = membership.prototypes(embeddings, scorer).square().sum()
        weight -= 2 * step
        down = membership.prototypes(embeddings, scorer).square().sum()
    assert float(found[1, 0]) == pytest.approx(float(up - down) / 2e-6, rel=1e-4)
    # An item without a class plays no part.
    (reached,) = torch.autograd.grad(membership.prototypes(embeddings, scorer).sum(), embeddings)
    assert (reached[5] == 0).all()


def test_a_batch_has_prototypes_of_its_own():
    labels = np.array([0, 0, 1, 0])
    embeddings = torch.tensor([[1.0], [2.0], [10.0], [6.0]])
    part = Membership(labels, hop_pairs(path(4), 2), 2).restrict(np.array([3, 1]))
    # Items 1 and 3 of class 0 are two hops apart; neither has a neighbour at one hop in the batch.
    prototypes = part.prototypes(embeddings[[3, 1]])[..., 0]
    assert prototypes.tolist() == [[4.0, 0.0, 4.0], [0.0, 0.0, 0.0]]


def test_scatter_softmax_survives_large_scores():
    weights = scatter_softmax(torch.tensor([1000.0, 1000.0, -1000.0, 3.0]), torch.tensor([2, 2, 2, 0]), 3)
    assert weights.tolist() == [0.5, 0.5, 0.0, 1.0]


def test_alignment_by_hand():
    # Two classes, one hop: differences (3, 4) and (0, 0); class 2 is not present.
    prototypes = torch.tensor([[[3.0, 4.0]], [[1.0, 1.0]], [[9.0, 9.0]]])
    targets = torch.tensor([[[0.0, 0.0]], [[1.0, 1.0]], [[0.0, 0.0]]])
    present = torch.tensor([[True], [True], [False]])
    loss, slope = alignment(prototypes, targets, present, reduction="norm_sum")
    assert float(loss) == pytest.approx(5.0)
    assert slope.flatten().tolist() == pytest.approx([0.6, 0.8, 0, 0, 0, 0])
    loss, slope = alignment(prototypes, targets, present, reduction="squared_mean")
    assert float(loss) == pytest.approx(25 / 4)
    assert slope.flatten().tolist() == pytest.approx([1.5, 2.0, 0, 0, 0, 0])
    nothing, slope = alignment(prototypes, targets, torch.zeros_like(present), reduction="squared_mean")
    assert float(nothing) == 0.0
    assert (slope == 0).all()


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("reduction", ["norm_sum", "squared_mean"])
def test_alignment_gradient(reduction, centred):
    draw = generator(0, "test")
    prototypes = torch.randn(4, 2, 3, dtype=torch.float64, generator=draw, requires_grad=True)
    targets = torch.randn(4, 2, 3, dtype=torch.float64, generator=draw)
    present = torch.tensor([[True, True], [True, False], [False, False], [True, True]])
    loss, slope = alignment(prototypes, targets, present, reduction=reduction, centred=centred)
    (expected,) = torch.autograd.grad(loss, prototypes)
    torch.testing.assert_close(slope.detach(), expected)
    moved = alignment(prototypes + 7.0, targets, present, reduction=reduction, centred=centred)[0]
    assert torch.allclose(moved, loss) is centred


def test_centring():
    prototypes = torch.tensor([[[1.0], [5.0]], [[3.0], [0.0]], [[0.0], [0.0]]])
    present = torch.tensor([[True, True], [True, False], [False, False]])
    assert centre(prototypes, present).flatten().tolist() == [-1.0, 0.0, 1.0, 0.0, 0.0, 0.0]


def test_noise_falls_on_a_share_of_the_dimensions():
    prototypes = torch.ones(3, 2, 20)
    present = torch.tensor([[True, True], [True, False], [False, False]])
    prototypes = prototypes * present.unsqueeze(-1)
    noisy = add_noise(prototypes, present, 0.1, 1.0, generator(0, "test"))
    changed = noisy != prototypes
    assert changed.any(0).any(0).sum() == 2
    assert not changed[~present].any()
    assert changed[present].sum() == 3 * 2
    assert torch.equal(add_noise(prototypes, present, 0.0, 1.0, generator(0, "test")), prototypes)
    loud = add_noise(2 * torch.ones(40, 3, 50), torch.ones(40, 3, dtype=torch.bool), 1.0, 0.5, generator(1, "test"))
    assert float(loud.std()) == pytest.approx(1.0, rel=0.05)  # half the root mean square, 2
