"""What holds for every backbone, and each one's formula written out with dense matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from graphsilo.data.graph import Graph
from graphsilo.models import GraphTensors, Model, build, names
from graphsilo.random import generator

DOUBLE = torch.float64

# Every backbone, and every option that changes the computation.
VARIANTS: list[tuple[str, dict]] = [
    *((name, {}) for name in names()),
    ("mlp", {"layers": 1}),
    ("gcn", {"layers": 1}),
    ("gcn", {"hidden": [9, 5]}),
    ("sage", {"layers": 3}),
    ("sage", {"layers": 3, "unit_rows": True}),
    ("gat", {"heads": 4, "output_heads": 2, "attention_dropout": 0.3, "activation": "elu"}),
    ("gat", {"layers": 3, "attention_dropout": 0.3}),
    ("gin", {"train_eps": True, "eps": 0.5, "layers": 3}),
    ("gin", {"eps": 0.5, "mlp_layers": 1}),
    ("gin", {"eps": 0.5, "mlp_layers": 3}),
    ("sgc", {"hops": 0}),
    ("sgc", {"layers": 2}),
    ("ssgc", {"alpha": 1.0}),
    ("appnp", {"hops": 3, "layers": 1}),
    ("appnp", {"alpha": 1.0}),
    ("appnp_features", {"layers": 3}),
    ("gcnii", {"layers": 3}),
    ("gcnii", {"layers": 1, "dropout": 0.0}),
    ("sign", {"layers": 1}),
    ("sign", {"layers": 3, "hops": 1}),
    ("gamlp", {"attention": "recursive", "score_activation": "relu"}),
    ("gamlp", {"attention_dropout": 0.3, "score_activation": "leaky_relu", "layers": 2}),
    ("gamlp", {"hops": 0}),
]
IDS = [f"{name}-{'-'.join(f'{key}={value}' for key, value in options.items())}" for name, options in VARIANTS]


def made(name: str, options: dict, features: int = 12, classes: int = 3, seed: int = 0) -> Model:
    return build(name, num_features=features, num_classes=classes, seed=seed, **{"hidden": 8, **options})


def shaken(model: Model, seed: int = 0) -> Model:
    """Biases that are not zero, so that tests see them."""
    draws = generator(seed, "shake")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draws))
    return model


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
@pytest.mark.parametrize("sparse", [False, True])
def test_restricting_the_rows_changes_no_number(name: str, options: dict, sparse: bool, make_graph) -> None:
    data = GraphTensors(make_graph(sparse=sparse))
    model = shaken(made(name, options))
    logits, embeddings = model(data.full), model.embed(data.full)
    assert logits.shape == (30, 3)
    assert embeddings.shape == (30, model.embedding_dim)
    for rows in (np.array([4, 0, 17, 9]), np.array([1]), np.arange(30), np.array([], dtype=np.int64)):
        view = data.view(rows)
        torch.testing.assert_close(model(view), logits[rows], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(model.embed(view), embeddings[rows], atol=1e-6, rtol=1e-5)
        with torch.no_grad():
            torch.testing.assert_close(model(view), logits[rows], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_sparse_and_dense_features_agree(name: str, options: dict, make_graph) -> None:
    graph = make_graph(sparse=True)
    model = shaken(made(name, options))
    dense = graph.with_features(graph.features.toarray())
    torch.testing.assert_close(model(GraphTensors(graph).full), model(GraphTensors(dense).full), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
@pytest.mark.parametrize("part", ["full", "rows"])
@pytest.mark.parametrize("what", ["forward", "embed"])
def test_gradients_against_finite_differences(name: str, options: dict, part: str, what: str, make_graph) -> None:
    data = GraphTensors(make_graph(nodes=9, features=4, sparse=part == "rows"), dtype=DOUBLE)
    view = data.full if part == "full" else data.view(np.array([7, 0, 3]))
    small = {"layers": 2} if name.startswith("gcnii") else {}
    model = shaken(made(name, {"hidden": 4, **small, **options}, features=4)).double()
    parameters = dict(model.named_parameters())
    if what == "embed":
        parameters = {key: parameters[key] for key in model.encoder_names()}
    if not parameters:
        return

    def run(*values: Tensor) -> Tensor:
        with torch.no_grad():
            for parameter, value in zip(parameters.values(), values, strict=True):
                parameter.copy_(value)
        result: Tensor = (model if what == "forward" else model.embed)(view, generator(0, "mask"))
        return result

    start = [value.detach().clone() for value in parameters.values()]
    directions = [torch.randn(value.shape, dtype=DOUBLE, generator=generator(1, i)) for i, value in enumerate(start)]
    output = run(*start)
    weights = torch.randn(output.shape, dtype=DOUBLE, generator=generator(2))
    gradients = torch.autograd.grad((output * weights).sum(), list(parameters.values()))
    step = 1e-6
    # One random direction per parameter: a wrong entry shows in its inner product.
    for index, direction in enumerate(directions):
        ahead, behind = list(start), list(start)
        ahead[index], behind[index] = start[index] + step * direction, start[index] - step * direction
        slope = ((run(*ahead) - run(*behind)) * weights).sum() / (2 * step)
        assert (gradients[index] * direction).sum().item() == pytest.approx(slope.item(), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "options"), [("gcn", {}), ("sage", {}), ("gat", {"heads": 2}), ("gcnii", {"layers": 2})]
)
def test_gradcheck(name: str, options: dict, make_graph) -> None:
    """Every entry, by torch's own checker."""
    data = GraphTensors(make_graph(nodes=6, features=3), dtype=DOUBLE)
    model = shaken(made(name, {"hidden": 4, **options}, features=3, classes=2)).double()
    keys = [key for key, _ in model.named_parameters()]
    view = data.view(np.array([3, 5]))

    def run(*values: Tensor) -> Tensor:
        result: Tensor = torch.func.functional_call(
            model, dict(zip(keys, values, strict=True)), (view, generator(0, "mask"))
        )
        return result

    inputs = tuple(value.detach().clone().requires_grad_() for value in model.parameters())
    assert torch.autograd.gradcheck(run, inputs)


def test_rows_of_unit_length_by_hand() -> None:
    """Nodes 0 and 1 linked, 2 alone; X = (3, 0), (0, 4), (-1, 0). W_n = W_s = I, no bias; the head adds both columns.

    Means of neighbours (0, 4), (3, 0), (0, 0): H = (3, 4), (3, 4), (-1, 0). ReLU and unit length: (.6, .8) twice, and
    (0, 0), which stays. The head counts each node's own row and its neighbour's: 1.4 + 1.4, the same, and 0.
    """
    features = np.array([[3, 0], [0, 4], [-1, 0]], np.float32)
    data = GraphTensors(Graph(features, np.array([[0, 1], [1, 0]]), np.zeros(3, np.int64), 1))
    model = build("sage", num_features=2, num_classes=1, seed=0, hidden=2, unit_rows=True)
    first, last = model.layers
    with torch.no_grad():
        for layer, weight in ((first, torch.eye(2)), (last, torch.ones(2, 1))):
            layer.neighbours.weight.copy_(weight)
            layer.own.weight.copy_(weight)
    assert model.embed(data.full).tolist() == [pytest.approx([0.6, 0.8])] * 2 + [[0.0, 0.0]]
    torch.testing.assert_close(model(data.full), torch.tensor([[2.8], [2.8], [0.0]]))
    # From the first node's logit: both of its rows get (1, 1), less its part along (.6, .8), over the row's length 5:
    # (1 - 1.4 * .6, 1 - 1.4 * .8) / 5 = (.032, -.024). Own weights meet x_0 = (3, 0) and x_1 = (0, 4).
    (found,) = torch.autograd.grad(model(data.full)[0].sum(), [first.own.weight])
    torch.testing.assert_close(found, torch.tensor([[0.096, -0.072], [0.128, -0.096]]))


def test_second_derivatives_are_refused(make_graph) -> None:
    model = made("gcn", {})
    loss = model(GraphTensors(make_graph()).full).square().sum()
    gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    with pytest.raises(RuntimeError, match="twice"):
        gradients[0].sum().backward()


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_odd_graphs(name: str, options: dict) -> None:
    single = Graph(np.ones((1, 12), np.float32), np.zeros((2, 0), np.int64), np.array([0]), 1)
    edgeless = Graph(np.eye(5, 12, dtype=np.float32), np.zeros((2, 0), np.int64), np.zeros(5, np.int64), 1)
    blank = Graph(np.zeros((3, 12), np.float32), np.array([[0, 1], [1, 0]]), np.zeros(3, np.int64), 1)
    for graph in (single, edgeless, blank):
        data = GraphTensors(graph)
        model = made(name, options, classes=1)
        for view in (data.full, data.view(np.array([0]))):
            output = model(view, generator(0))
            assert torch.isfinite(output).all()
            gradients = torch.autograd.grad(output.sum(), list(model.parameters()))
            assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_dropout_is_reproducible_and_only_in_training(name: str, options: dict, make_graph) -> None:
    view = GraphTensors(make_graph()).full
    model = shaken(made(name, options))
    first, again = model(view, generator(0, "a")), model(view, generator(0, "a"))
    assert torch.equal(first, again)
    assert torch.equal(model(view), model(view))
    silent = made(name, {**options, "dropout": 0.0, **({"attention_dropout": 0.0} if "att" in str(options) else {})})
    torch.testing.assert_close(silent(view, generator(0, "a")), silent(view))


@pytest.mark.parametrize("name", ["mlp", "gcn", "sage", "gat", "appnp", "sign", "gamlp", "gin", "gcnii_openfgl"])
def test_dropout_changes_training_and_keeps_the_mean(name: str, make_graph) -> None:
    view = GraphTensors(make_graph()).full
    model = made(name, {"layers": 2})
    assert not torch.equal(model(view, generator(0, "a")), model(view, generator(0, "b")))
    if name in ("gin", "gcnii_openfgl"):
        return  # nothing linear lies between the mask and the output, or only for some depth
    wanted = model(view)
    total = torch.zeros_like(wanted)
    for draw in range(600):
        total += model(view, generator(0, draw)).detach()
    # With one hidden layer the output is linear in the mask, so its mean is the output without dropout.
    assert (total / 600 - wanted).abs().max().item() < 0.25 * wanted.abs().max().item()


def count(name: str, features: int, classes: int, hidden: int, **options: object) -> int:
    return build(name, num_features=features, num_classes=classes, seed=0, hidden=hidden, **options).num_parameters


def test_parameter_counts() -> None:
    d, c, h = 50, 7, 64
    assert count("mlp", d, c, h) == d * h + h + h * c + c
    assert count("gcn", d, c, h) == d * h + h + h * c + c
    assert count("sage", d, c, h) == 2 * d * h + h + 2 * h * c + c
    assert count("gat", d, c, h) == d * h + 3 * h + h * c + 3 * c
    assert count("gin", d, c, h) == (d * h + h + h * h + h) + (h * h + h + h * c + c)
    assert count("sgc", d, c, h) == count("ssgc", d, c, h) == d * c + c
    assert count("appnp", d, c, h) == count("ssgc_mlp", d, c, h) == d * h + h + h * c + c
    assert count("gcnii", d, c, h, layers=8) == d * h + h + 8 * h * h + h * c + c
    assert count("sign", d, c, h, hops=3) == 4 * d * h + h + h * c + c
    # The spec's count for L = 3, without the unused link-prediction layer.
    assert count("gamlp", d, c, 64) == 5 * d + 1 + 64 * d + 64 + 64**2 + 64 + 64 * c + c + 1
    assert count("gamlp", d, c, 64, attention="recursive") == 2 * d + 1 + 64 * d + 64 + 64**2 + 64 + 64 * c + c + 1


class Dense:
    """A graph's matrices in full, for formulas as printed."""

    def __init__(self, graph: Graph):
        self.data = GraphTensors(graph, dtype=DOUBLE)
        self.x = torch.from_numpy(graph.features).double()
        self.step = torch.from_numpy(self.data.matrix("gcn").toarray()).double()


@pytest.fixture
def dense(make_graph) -> Dense:
    return Dense(make_graph(nodes=20, features=6))


def close(left: Tensor, right: Tensor) -> None:
    # Propagated features are kept in single precision.
    torch.testing.assert_close(left, right, atol=1e-6, rtol=1e-5)


def double(name: str, **options: object) -> Model:
    return shaken(made(name, options, features=6)).double()


def mlp(layers: list, x: Tensor) -> Tensor:
    for layer in layers[:-1]:
        x = (x @ layer.weight + layer.bias).relu()
    return x @ layers[-1].weight + layers[-1].bias


def copied(source: Model, target: Model) -> Model:
    for left, right in zip(source.parameters(), target.parameters(), strict=True):
        right.data.copy_(left.data)
    return target


def test_sgc(dense: Dense) -> None:
    model = double("sgc", hops=3)
    (layer,) = model.layers
    close(model(dense.data.full), torch.matrix_power(dense.step, 3) @ dense.x @ layer.weight + layer.bias)
    logistic = copied(double("sgc", hops=0), double("mlp", layers=1))
    close(double("sgc", hops=0)(dense.data.full), logistic(dense.data.full))


def test_ssgc(dense: Dense) -> None:
    model = double("ssgc", hops=4, alpha=0.3)
    (layer,) = model.layers
    total = sum(0.7 * torch.matrix_power(dense.step, level) @ dense.x + 0.3 * dense.x for level in range(1, 5)) / 4
    close(model(dense.data.full), total @ layer.weight + layer.bias)
    linear = double("ssgc", alpha=1.0)
    close(linear(dense.data.full), dense.x @ linear.layers[0].weight + linear.layers[0].bias)


def test_ssgc_mlp(dense: Dense) -> None:
    model = double("ssgc_mlp", hops=2)
    mean = (dense.x + dense.step @ dense.x + dense.step @ dense.step @ dense.x) / 3
    close(model(dense.data.full), mlp(list(model.layers), mean))


def test_appnp(dense: Dense) -> None:
    for hops in (2, 10):
        model = double("appnp", hops=hops, alpha=0.2)
        start = level = mlp(list(model.layers), dense.x)
        for _ in range(hops):
            level = 0.8 * dense.step @ level + 0.2 * start
        close(model(dense.data.full), level)
    plain = double("appnp", alpha=1.0)
    close(plain(dense.data.full), copied(plain, double("mlp"))(dense.data.full))


def test_pagerank_step_by_step_and_multiplied_out(dense: Dense) -> None:
    from graphsilo.models.appnp import PageRank, pagerank
    from graphsilo.models.operators import DenseOperator

    wanted = 0.7**2 * dense.step @ dense.step + 0.3 * (torch.eye(20) + 0.7 * dense.step)
    for rows in (None, np.array([3, 11])):
        view = dense.data.view(rows)
        outer = np.arange(20) if rows is None else view._frontier("gcn", 2)[0]
        part = wanted if rows is None else wanted[rows][:, outer]
        steps = PageRank(view, 2, 0.3)
        close(steps.dense(), part)
        left = torch.rand(part.shape[0], 3, dtype=DOUBLE, generator=generator(0))
        close(steps.tmm(left), part.T @ left)
        close(pagerank(view, 2, 0.3).dense(), part)
    assert isinstance(pagerank(dense.data.view(np.array([3])), 10, 0.1), DenseOperator)
    assert isinstance(pagerank(dense.data.full, 1, 0.1), PageRank)


def test_appnp_features(dense: Dense) -> None:
    model = double("appnp_features")
    level = dense.x
    for _ in range(2):
        level = 0.9 * dense.step @ level + 0.1 * dense.x
    close(model(dense.data.full), mlp(list(model.layers), level))


def test_sign(dense: Dense) -> None:
    model = double("sign", hops=2)
    first, last = model.layers
    weight = torch.cat([first.weight0, first.weight1, first.weight2])
    side_by_side = torch.cat([dense.x, dense.step @ dense.x, dense.step @ dense.step @ dense.x], 1)
    close(model(dense.data.full), (side_by_side @ weight + first.bias).relu() @ last.weight + last.bias)
    bound = math.sqrt(6 / (3 * 6 + 8))
    fresh = made("sign", {"hops": 2}, features=6).layers[0].weight0
    assert bound / 2 < fresh.abs().max().item() <= bound


def test_gcnii(dense: Dense) -> None:
    model = double("gcnii", layers=3, alpha=0.2, theta=0.7)
    start = hidden = (dense.x @ model.input.weight + model.input.bias).relu()
    for level, layer in enumerate(model.convolutions, 1):
        beta = math.log(0.7 / level + 1)
        mixed = 0.8 * dense.step @ hidden + 0.2 * start
        hidden = (mixed @ ((1 - beta) * torch.eye(8, dtype=DOUBLE) + beta * layer.weight)).relu()
    close(model(dense.data.full), hidden @ model.output.weight + model.output.bias)


def test_gcnii_openfgl(dense: Dense) -> None:
    model = double("gcnii_openfgl", alpha=0.1)
    start = hidden = (dense.x @ model.input.weight + model.input.bias).relu()
    for layer in model.convolutions:
        hidden = (0.9 * dense.step @ hidden + 0.1 * start) @ layer.weight
    assert len(model.convolutions) == 2
    close(model(dense.data.full), hidden @ model.output.weight + model.output.bias)


def test_stacked_sgc_is_a_gcn(dense: Dense) -> None:
    assert torch.equal(double("sgc_stacked")(dense.data.full), double("gcn")(dense.data.full))


def test_gin_plain_and_stacked_paths_agree(dense: Dense) -> None:
    fixed = double("gin", eps=0.3, layers=3)
    steps = fixed._step_by_step(dense.data.full, 3, None, False)[-1]
    close(fixed(dense.data.full), steps)
    rows = np.array([2, 9])
    close(fixed._step_by_step(dense.data.view(rows), 3, None, False)[-1], steps[rows])


def test_gin_batch_norm(dense: Dense) -> None:
    model = double("gin", norm="batch")
    assert len(list(model.buffers())) == 6  # mean, variance and a counter for each of two layers
    before = model(dense.data.full)
    close(model(dense.data.view(np.array([4, 2]))), before[[4, 2]])
    model(dense.data.full, generator(0))
    assert not torch.equal(model(dense.data.full), before)  # the running statistics moved
    model.reset(generator(0))
    assert all(value.item() in (0.0, 1.0) for buffer in model.buffers() for value in buffer.view(-1))


def test_gin_jumping_reads_every_layer(make_collection) -> None:
    data = GraphTensors(make_collection())
    options = {"layers": 3, "hidden": 4, "seed": 0, "num_features": 5, "num_classes": 2}
    model = build("gin", task="graph", jumping=True, **options)
    assert model.embedding_dim == 12
    assert model.embed(data.full).shape == (6, 12)
    last = build("gin", task="graph", **options)
    torch.testing.assert_close(model.embed(data.full)[:, 8:], last.embed(data.full))
    torch.testing.assert_close(model(data.view(np.array([3]))), model(data.full)[[3]])


def test_every_model_learns_a_separable_graph() -> None:
    """Two cliques with their own features: a few steps of plain gradient descent lower the loss."""
    size = 6
    block = np.stack(np.nonzero(np.kron(np.eye(2), np.ones((size, size))) - np.eye(2 * size)))
    labels = np.repeat([0, 1], size)
    graph = Graph(np.eye(2, dtype=np.float32)[labels], block.astype(np.int64), labels, 2)
    view, target = GraphTensors(graph).full, torch.from_numpy(labels)
    for name in names():
        model = made(name, {"layers": 2, "dropout": 0.2}, 2, 2)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
        losses = []
        for step in range(100):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(view, generator(0, step)), target)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        with torch.no_grad():
            assert (model(view).argmax(1) == target).all(), name
        assert losses[-1] < losses[0], name
