"""Dense products in bfloat16, all else in float32."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from graphsilo.models import GraphTensors, Model, names
from graphsilo.models.operators import ChainOperator, DenseOperator, SparseOperator, matmul
from graphsilo.models.precision import is_reduced, reduce_precision, times_reduced
from graphsilo.random import generator
from kit import backbones
from kit.backbones import shaken

VARIANTS = [
    *((name, {}) for name in names()),
    ("sage", {"unit_rows": True}),
    ("gat", {"heads": 4}),
    ("gin", {"norm": "batch"}),
    ("gcnii", {"layers": 3}),
    ("classic", {"norm": "layer"}),
    ("sgc", {"layers": 2}),
]
IDS = [f"{name}-{options}" for name, options in VARIANTS]
BETWEEN = 1.0 + 2.0**-9
"""Rounds to 1 in bfloat16, whose next number is 1 + 2^-7; 3 times it rounds to 3."""


def made(name: str, precision: str, options: dict) -> Model:
    return shaken(backbones.made(name, {**options, "precision": precision}))


def test_products_by_hand() -> None:
    right = torch.tensor([[3.0]])
    dense = DenseOperator(torch.tensor([[BETWEEN]]))
    sparse = SparseOperator(sp.csr_matrix([[BETWEEN]], dtype=np.float32))
    exact = 3.0 * BETWEEN
    with reduce_precision("cpu"):
        found = [dense.mm(right), dense.tmm(right), matmul(dense.matrix, right), sparse.mm(right), sparse.tmm(right)]
        # Of the chain the dense half is lowered, to 3.
        chained = ChainOperator(sparse, dense).mm(right)
    assert [value.item() for value in found] == [3.0, 3.0, 3.0, exact, exact]
    assert chained.item() == exact
    assert {value.dtype for value in [*found, chained]} == {torch.float32}
    assert [dense.mm(right).item(), dense.tmm(right).item(), matmul(dense.matrix, right).item()] == [exact] * 3


def test_float64_is_left_alone() -> None:
    wide = DenseOperator(torch.tensor([[BETWEEN]], dtype=torch.float64))
    with reduce_precision("cpu"):
        assert wide.mm(torch.tensor([[3.0]], dtype=torch.float64)).item() == 3.0 * BETWEEN


def gradients_of(model: Model, view, draw: torch.Generator, slope: Tensor) -> list[Tensor]:
    output = model(view, draw)
    return list(torch.autograd.grad((output * slope).sum(), list(model.parameters())))


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_every_backbone_rounds_its_products_and_nothing_else(name: str, options: dict, make_graph) -> None:
    data = GraphTensors(make_graph())
    for view in (data.full, data.view(np.arange(3, 25))):
        full, low = made(name, "float32", options), made(name, "bfloat16", options)
        slope = torch.randn((view.num_items, 3), generator=generator(1))
        outputs = [model(view, generator(0, "mask")) for model in (full, low)]
        inner = [model.embed(view, generator(0, "mask")) for model in (full, low)]
        found = [gradients_of(model, view, generator(0, "mask"), slope) for model in (full, low)]
        # Statistics of so few rows, or of so few columns, carry rounding on.
        close = 0.3 if any("norm" in key for key, _ in full.named_parameters()) else 0.1
        whole = [torch.cat([one.flatten() for one in gradients]) for gradients in found]
        for place, (exact, rounded) in enumerate((outputs, inner, whole)):
            assert rounded.dtype is torch.float32
            # Of SGC and SSGC without a hidden layer the embedding is constant.
            assert not torch.equal(exact, rounded) or (place == 1 and name in ("sgc", "ssgc"))
            assert (exact - rounded).norm() <= close * exact.norm()
        assert not is_reduced(slope)


@pytest.mark.parametrize("name", ["gcn", "sage", "mlp", "sign"])
def test_steps_without_autograd_round_the_same_products(name: str, make_graph) -> None:
    view = GraphTensors(make_graph()).view(np.arange(3, 20))
    model = made(name, "bfloat16", {"layers": 3})
    slope = torch.randn((17, 3), generator=generator(1))
    trace = model.trace(view, generator(0, "mask"))
    assert trace is not None
    assert torch.equal(trace.logits, model(view, generator(0, "mask")))
    for mine, autograd in zip(trace.pull(slope), gradients_of(model, view, generator(0, "mask"), slope), strict=True):
        assert torch.equal(mine, autograd)


def test_weights_that_an_optimiser_changed_are_seen(make_graph) -> None:
    view = GraphTensors(make_graph()).full
    model = made("mlp", "bfloat16", {})
    with reduce_precision("cpu"), torch.no_grad():  # a method of one's own may hold it open over several steps
        before = model(view)
        for parameter in model.parameters():
            parameter.mul_(2.0)
        assert not torch.equal(model(view), before)


class Plain(Model):
    """A model of torch's own layers, as somebody else would write it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.linear.weight, 3.0)

    def forward(self, view, generator=None):
        return self.linear(view)

    def embed(self, view, generator=None):
        return view


def test_layers_of_torch_follow() -> None:
    model, value = Plain(), torch.tensor([[BETWEEN]])
    before = times_reduced()
    assert model(value).item() == 3.0 * BETWEEN
    assert times_reduced() == before
    model.precision = "bfloat16"
    assert model(value).item() == 3.0
    assert model(value).dtype is torch.float32
    assert times_reduced() > before
