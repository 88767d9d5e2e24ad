"""Sums that no rows can have fail who sent them; those of any rows pass, however few, many, small or alike they are."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import wraps

import numpy as np
import pytest
import torch

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.errors import FederationError, MessageError
from graphsilo.federation.candidates import Candidates
from graphsilo.methods import fedridge
from graphsilo.methods.fedridge.check import find_fault, is_semidefinite
from graphsilo.methods.fedridge.messages import Counts, Statistics
from graphsilo.methods.fedridge.solve import pack

BLOCKS = [(2, 1.0), (1, 0.01)]


def sums(rows, labels, weights=(1.0, 1.0), dtype=torch.float32):
    """Packed M and B of rows that end with the constant 0.1."""
    rows = torch.tensor(rows, dtype=torch.float64)
    rows = torch.cat([rows, torch.full((len(rows), 1), 0.1).double()], dim=1)
    weight = torch.tensor(weights, dtype=torch.float64)[torch.tensor(labels)]
    cross = torch.zeros(len(weights), rows.shape[1], dtype=torch.float64)
    cross.index_add_(0, torch.tensor(labels), weight[:, None] * rows)
    return pack((rows.t() @ (weight[:, None] * rows)).to(dtype)), cross.to(dtype)


def trouble(square, cross, rows, weights=(1.0, 1.0), blocks=BLOCKS, constant=2):
    return find_fault(square, cross, rows, blocks=blocks, constant=constant,
                      weights=torch.tensor(weights, dtype=torch.float64))  # fmt: skip


ROWS, LABELS = [[0.6, 0.8], [1.0, 0.0], [0.0, 1.0]], [0, 0, 1]
# By hand: Σ φφᵀ = [[1.36, 0.48, 0.16], [0.48, 1.64, 0.18], [0.16, 0.18, 0.03]], packed row by row.
PACKED = [1.36, 0.48, 0.16, 1.64, 0.18, 0.03]
# Σ φ of class 0 is (1.6, 0.8, 0.2), of class 1 (0, 1, 0.1).


def test_honest_sums_by_hand():
    square, cross = sums(ROWS, LABELS)
    assert square.tolist() == pytest.approx(PACKED)
    assert cross.flatten().tolist() == pytest.approx([1.6, 0.8, 0.2, 0.0, 1.0, 0.1])
    assert trouble(square, cross, 3) == ""


LIES = {
    "too few numbers": (lambda m, b: (m[:-1], b), r"\(5,\) and \(2, 3\) numbers came for 3 columns, 2 classes"),
    "another class": (lambda m, b: (m, torch.cat([b, b[:1]])), r"\(3, 3\) numbers came"),
    "a square below 0": (lambda m, b: (changed(m, 0, -1.0), b), "-1 is less than any sum of squares"),
    "heavier rows": (lambda m, b: (100 * m, 100 * b), "the constant column tells of 300 rows"),
    "longer rows": (lambda m, b: (changed(m, 0, 1.7), b), "2 columns have squares of 3.34 over 3 rows"),
    "another constant": (lambda m, b: (changed(m, 5, 0.3), b), "1 columns have squares of 0.3 over 3 rows"),
    "other sums by class": (lambda m, b: (m, changed(b, 0, 1.0)), "column 0 has other sums by class"),
    "turned about, too large": (lambda m, b: (m, torch.stack([b[0] + b[1] - big(b), big(b)])), "sums of a class"),
    "a product": (lambda m, b: (changed(m, 1, -1.5), b), "column 0 goes with another more"),
    "half a row": (lambda m, b: (m, torch.stack([b[0] + 2 * b[1], -b[1]])), "tells of 3 rows, -1 at least"),
}  # fmt: skip


def changed(values, place, value):
    found = values.clone()
    found.view(-1)[place] = value
    return found


def big(cross):
    """The sums of class 1, six times as long, over as many rows: each column agrees with M's constant one."""
    found = cross[1].clone()
    found[:2] *= 6
    return found


@pytest.mark.parametrize("lie", list(LIES))
def test_lies_are_found(lie):
    change, words = LIES[lie]
    square, cross = change(*sums(ROWS, LABELS))
    assert re.search(words, trouble(square, cross, 3))


def test_a_number_of_rows_that_is_not_that_of_the_sums():
    square, cross = sums(ROWS, LABELS)
    assert trouble(square, cross, 4) == "the constant column tells of 3 rows, 1 at least; it says 4"
    assert trouble(square, cross, -1).startswith("-1 is less than")
    assert trouble(*sums(ROWS, LABELS, (0.75, 1.5)), 3, (0.75, 1.5)) == ""
    assert "tells of 3.5 rows" in trouble(*sums(ROWS, LABELS, (0.75, 1.5)), 3, (0.75, 1.0))
    assert trouble(*sums(ROWS, [0, 0, 0], (1.0, 0.0)), 3, (1.0, 0.0)) == ""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_of_all_sorts_pass(dtype):
    draw = np.random.default_rng(0)
    some = draw.standard_normal((5000, 6)) * (draw.random((5000, 6)) < 0.5) * 10.0 ** draw.integers(-24, 1, (5000, 6))
    lengths = np.linalg.norm(some, axis=1, keepdims=True)
    some = np.where(lengths > 0, some / np.maximum(lengths, 1e-300), 0.0).astype(np.float32)
    alike = np.repeat(np.float32([[0.6, 0.8, 0, 0, 0, 0]]), 4096, axis=0)
    for rows in (some, some[:1], some[:0], alike, np.zeros((3, 6)), np.eye(6)):
        labels = np.arange(len(rows)) % 3
        full = torch.from_numpy(np.concatenate([rows, np.full((len(rows), 1), 0.1)], axis=1)).to(dtype)
        cross = torch.zeros(4, 7, dtype=torch.float64).index_add_(0, torch.from_numpy(labels), full.double())
        found = find_fault(pack(full.t() @ full), cross.float(), len(rows), blocks=[(6, 1.0), (1, 0.01)], constant=6,
                           weights=torch.ones(4).double())  # fmt: skip
        assert found == ""


def collected(kit, monkeypatch, **settings):
    """The last answer of each type in a run whose silos are taken to be elsewhere, with what it answers."""
    graph = settings.pop("task", "node") == "graph"
    silos = [
        graphs(client) if graph else kit.tiny_silo(client, nodes=9, train=range(3 + client)) for client in range(3)
    ]
    server, federation = kit.build("fedridge", silos, **settings)
    federation.limits = dict.fromkeys(federation.clients, 100.0)
    heard = {}

    def noted(honest):
        def check_answer(self, request):
            heard[type(self)] = (self, request)
            honest(self, request)

        return check_answer

    for kind in (Counts, Statistics, Candidates):
        monkeypatch.setattr(kind, "check_answer", noted(kind.check_answer))
    server.set_up(federation)
    server.round(federation, 1)
    monkeypatch.undo()
    return heard


def graphs(client):
    draw = np.random.default_rng(client)
    pointer = np.concatenate([[0], np.cumsum(draw.integers(1, 9, 12))])
    count = int(pointer[-1])
    union = Graph(
        draw.standard_normal((count, 4)).astype(np.float32), np.zeros((2, 0), np.int64), np.full(count, -1), 2
    )
    whole = GraphCollection(union, pointer, np.arange(12) % 2, 2)
    items = {"train": np.arange(6), "val": np.arange(6, 9), "test": np.arange(9, 12)}
    return Silo(client, whole, items["train"], (EvaluationSet("seen", whole, items),), Schema("graph", 4, 2))


@pytest.mark.parametrize(
    "settings",
    [{}, {"wire": "float64"}, {"balance": (0.0, 0.5, 1.0)}, {"random_features": 20}, {"min_count": 2}, {"dim": 2},
     {"features": "separate", "hops": 3}, {"task": "graph"}, {"task": "graph", "random_features": 5}],
)  # fmt: skip
def test_no_honest_client_is_refused(settings, kit, monkeypatch):
    assert len(collected(kit, monkeypatch, **settings)) == 3


def test_answers_that_contradict_themselves(kit, monkeypatch):
    heard = collected(kit, monkeypatch, balance=(0.0, 1.0))
    sent, asked = heard[Statistics]
    for change, words in (
        ({"moments": {}}, r"Statistics\.moments holds 0 sums; .*/0, .*/1 were asked for"),
        ({"products_rest": {"x": torch.zeros(1)}}, r"Statistics\.products_rest holds 1 sums"),
        ({"num_samples": sent.num_samples + 5}, r"are sums of no rows: the constant column tells of 5 rows"),
        ({"moments": {name: 2 * value for name, value in sent.moments.items()}}, "are sums of no rows"),
    ):
        with pytest.raises(MessageError, match=words):
            replace(sent, **change).check_answer(asked)
    counts, _ = heard[Counts]
    for change in ({"classes": -counts.classes}, {"classes": counts.classes + 9}, {"sizes": -counts.sizes}):
        with pytest.raises(MessageError, match=r"Counts counts -?\d+ training items among"):
            replace(counts, **change).check()
    scores, request = heard[Candidates]
    for table, words in (
        (scores.counts[:-1], "were asked about"),
        (scores.counts[:, :1, :1], "is of 1 classes; there are 2"),
    ):
        with pytest.raises(MessageError, match=words):
            replace(scores, counts=table).check_answer(request)


def test_a_liar_fails_and_the_others_go_on(kit, monkeypatch):
    """Client 1 sends its sums a thousand times: it has failed, and the model is that of the other two."""
    silos = [kit.tiny_silo(client, nodes=9, train=range(4)) for client in range(3)]
    honest = fedridge.Client.statistics.function

    @wraps(honest)
    def lying(self, request):
        answer = honest(self, request)
        if self.id != 1:
            return answer
        return replace(answer, moments={name: 1000 * value for name, value in answer.moments.items()},
                       products={name: 1000 * value for name, value in answer.products.items()})  # fmt: skip

    monkeypatch.setattr(fedridge.Client.statistics, "function", lying)
    server, federation = kit.build("fedridge", silos)
    federation.limits = dict.fromkeys(federation.clients, 100.0)
    with pytest.raises(FederationError, match=r"client 1 failed in 'statistics' .*sums of no rows: the const"):
        server.set_up(federation)
    settings = {"min_clients": 2, "features": "mean", "label_features": "never"}
    server, federation = kit.build("fedridge", silos, **settings)
    federation.limits = dict.fromkeys(federation.clients, 100.0)
    server.set_up(federation)
    other, two = kit.build("fedridge", [silos[0], silos[2]], **settings)
    other.set_up(two)
    assert all(torch.equal(server.moments[name], value) for name, value in other.moments.items())


def test_a_sum_of_squares_is_negative_nowhere():
    """Each pair of columns may go together as they do; all three may not: 1 - 2 · 0.9 is an eigenvalue."""
    near = torch.tensor([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]], dtype=torch.float64)
    assert not is_semidefinite(pack(near), 3)
    assert is_semidefinite(pack(near.abs()), 3)
    assert is_semidefinite(pack(torch.zeros(3, 3)), 3)
    rows = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
    assert is_semidefinite(pack(rows.t() @ rows), 5)  # of rank 2, in float32
    assert not is_semidefinite(pack((rows.t() @ rows).double() - 0.01 * torch.eye(5)), 5)
