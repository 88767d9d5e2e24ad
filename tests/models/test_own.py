"""Modules of a person's own: the house's numbers where they compute the same, and refusals before training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GAT, GCN, GCNConv, SAGEConv, global_add_pool

import graphsilo
from graphsilo import models
from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.models.own import OwnModel, entry_of
from graphsilo.models.view import GraphTensors
from graphsilo.random import generator
from kit.own import QUICK, SMALL, numbers


def made(thing, inputs: int = 4, classes: int = 3, task: str = "node", seed: int = 0, **settings) -> OwnModel:
    entry = entry_of("net", thing)
    model = OwnModel.from_settings(entry.settings.of(settings), inputs, classes, task)
    model.reset(generator(seed, "model"))
    return model


def path(weights=None) -> Graph:
    """0 - 1 - 2, four features."""
    edges = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    features = np.arange(12, dtype=np.float32).reshape(3, 4) / 12
    return Graph(features, edges, np.array([0, 1, 2]), 3, edge_weights=weights)


class HouseGCN(nn.Module):
    """Exactly the house's two-layer GCN, from the same weights, written with PyTorch Geometric's layers."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        same = models.build("gcn", num_features=inputs, num_classes=outputs, seed=0, dropout=0.0, hidden=8)
        self.convs = nn.ModuleList([GCNConv(inputs, 8), GCNConv(8, outputs)])
        with torch.no_grad():
            for layer, conv in zip(same.layers, self.convs, strict=True):
                conv.lin.weight.copy_(layer.weight.t())
                conv.bias.copy_(layer.bias)

    def forward(self, x, edge_index):
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "scaffold"])
def test_the_house_s_formula_gives_the_house_s_scores(method):
    """Losses follow the same path: weights after training agree to rounding, and scores do to the last node."""
    shared = {**QUICK, "rounds": 5, "method": method}
    ours = graphsilo.run(**shared, model={"name": "gcn", "hidden": 8, "dropout": 0.0})
    theirs = graphsilo.run(**shared, model=HouseGCN)
    # Names of weights differ in length, and with them the bytes that are sent.
    assert [numbers(theirs, sent=False)] == [numbers(ours, sent=False)]


def test_weights_after_training_agree_to_rounding(tmp_path):
    from safetensors.torch import load_file

    for name, model in (("ours", {"name": "gcn", "hidden": 8, "dropout": 0.0}), ("theirs", HouseGCN)):
        graphsilo.run(**{**QUICK, "rounds": 4}, model=model, out=tmp_path / name)
    ours, theirs = (
        load_file(tmp_path / name / "models" / "seed0-client1-last.safetensors") for name in ("ours", "theirs")
    )
    for layer in (0, 1):
        left, right = ours[f"own/layers.{layer}.weight"], theirs[f"own/module.convs.{layer}.lin.weight"].t()
        torch.testing.assert_close(left, right, atol=2e-6, rtol=1e-4)


def test_widths_are_found_by_name_and_by_place():
    assert entry_of("net", GCN).settings.widths == ("in_channels", "out_channels")
    assert entry_of("net", nn.Linear).settings.widths == ("in_features", "out_features")
    assert entry_of("net", lambda first, second, third=3: None).settings.widths == ("first", "second")
    with pytest.raises(ConfigError, match=r"among its parameters \(hidden\) it is not clear which take them"):
        entry_of("net", lambda hidden: None)


def test_parameters_are_settings():
    kind = entry_of("net", GCN).settings
    assert kind.of({"hidden_channels": 8, "num_layers": 2}).as_dict()["dropout"] == 0.0
    with pytest.raises(ConfigError, match=r"model\.num_layers must be a whole number; got 2\.5"):
        kind.of({"hidden_channels": 8, "num_layers": 2.5})
    with pytest.raises(ConfigError, match=r"'model\.hiden_channels'.*did you mean 'model\.hidden_channels'"):
        kind.of({"hiden_channels": 8, "num_layers": 2})


def test_only_what_is_asked_for_comes_out():
    model, data = made(GCN, hidden_channels=8, num_layers=2), GraphTensors(path())
    whole = model(data.full)
    assert torch.equal(model(data.view(np.array([2, 0]))), whole[[2, 0]])


def test_randomness_is_an_argument():
    model, data = made(GCN, hidden_channels=8, num_layers=2, dropout=0.5), GraphTensors(path())
    before = torch.random.get_rng_state()
    one, same, other = (model(data.full, generator(0, "x", number)) for number in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(model(data.full), model(data.full))  # evaluation drops nothing
    left, right = (made(GCN, hidden_channels=8, num_layers=2).state_dict() for _ in range(2))
    assert all(torch.equal(left[name], right[name]) for name in left)


class Weighted(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.lin = nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, edge_index, edge_weight=None):
        gathered = torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]] * edge_weight[:, None])
        return self.lin(gathered)


def test_weights_of_edges_reach_those_who_take_them():
    graph = path(np.array([1.0, 1.0, 3.0, 3.0], dtype=np.float32))
    model = made(Weighted)
    x, weight = torch.from_numpy(graph.features), model.module.lin.weight
    expected = torch.stack([x[1], x[0] + 3 * x[2], 3 * x[1]]) @ weight.t()
    torch.testing.assert_close(model(GraphTensors(graph).full), expected)
    model.check_weights(True)
    with pytest.raises(UnsupportedError, match="takes no edge_weight: they would be ignored"):
        made(HouseGCN).check_weights(True)


class Headed(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv, self.head = SAGEConv(inputs, 5), nn.Linear(5, outputs)

    def embed(self, x, edge_index):
        return self.conv(x, edge_index).relu()

    def forward(self, x, edge_index):
        return self.head(self.embed(x, edge_index))


def test_embedding_and_head_are_what_the_module_says():
    model, data = made(Headed), GraphTensors(path())
    assert (model.embedding_dim, model.head_names()) == (5, ("module.head.weight", "module.head.bias"))
    logits, embeddings = model.outputs(data.view(np.array([1])))
    torch.testing.assert_close(model.classify(embeddings), logits)
    plain = made(GCN, hidden_channels=8, num_layers=2)
    assert (plain.embedding_dim, plain.encoder_names()) == (4, ())
    with pytest.raises(UnsupportedError, match="cannot classify vectors that are no nodes"):
        plain.classify(torch.zeros(1, 4))


def test_prototypes_want_a_hidden_layer():
    graphsilo.run(**QUICK, method="fedproto", model=Headed)
    text = (
        r"GCN as it is set has no hidden layer.*Give the module a method embed\(x, edge_index\) and a submodule `head`"
    )
    with pytest.raises(ConfigError, match=text):
        graphsilo.run(**QUICK, method="fedproto", model={"name": GCN, "hidden_channels": 8, "num_layers": 2})


class Pooled(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv, self.head = GCNConv(inputs, 6), nn.Linear(6, outputs)

    def forward(self, x, edge_index, batch):
        return self.head(global_add_pool(self.conv(x, edge_index).relu(), batch))


def collection() -> GraphCollection:
    union = Graph(
        np.arange(20, dtype=np.float32).reshape(5, 4) / 20, np.array([[0, 1, 2, 3, 3, 4], [1, 0, 3, 2, 4, 3]]),
        np.full(5, -1), 3,
    )  # fmt: skip
    return GraphCollection(union, np.array([0, 2, 5]), np.array([0, 1]), 3)


def test_graphs_are_classified_each_by_itself():
    model, data = made(Pooled, task="graph"), GraphTensors(collection())
    whole = model(data.full)
    assert whole.shape == (2, 3)
    torch.testing.assert_close(model(data.view(np.array([1]))), whole[1:])
    with pytest.raises(UnsupportedError, match=r"its forward takes no batch\. Pool the nodes with"):
        made(HouseGCN, task="graph")
    with pytest.raises(ConfigError, match=r"a row per graph .*\[1, 3\]; its forward gave \[2, 3\]"):
        made(GCN, task="graph", hidden_channels=8, num_layers=2)


@pytest.mark.parametrize("task", ["link", "graph"])
def test_other_tasks_run(task):
    if task == "link":
        result = graphsilo.run(**QUICK, task="link", model={"name": GAT, "hidden_channels": 8, "num_layers": 2})
        assert 0.4 < result.tree["seeds"][0]["test"]["auc"] <= 1
    else:
        from torch_geometric.datasets import FakeDataset

        torch.manual_seed(0)
        graphs = list(FakeDataset(num_graphs=30, avg_num_nodes=8, num_classes=2, edge_dim=0, task="graph"))
        assert 0 <= graphsilo.run(data=graphs, clients=2, rounds=2, model=Pooled, report=False).accuracy() <= 1


class Lazy(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = GCNConv(-1, outputs)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


def test_lazy_layers_are_made_at_once():
    assert [tuple(one.shape) for one in made(Lazy).parameters()] == [(3,), (3, 4)]


def no_module(inputs, outputs):
    return 3


def wrong_width(inputs, outputs):
    return GCN(inputs, 8, 2, outputs + 1)


def no_tensor(inputs, outputs):
    return _of(lambda self, x, edge_index: (self.lin(x), x))


def breaks(inputs, outputs):
    return _of(lambda self, x, edge_index: self.lin(x[:, :3]) @ torch.ones(7))


def frozen(inputs, outputs):
    return nn.Linear(inputs, outputs).requires_grad_(False)


def double(inputs, outputs):
    return _of(lambda self, x, edge_index: self.lin(x.double()).float(), torch.float64)


def empty(inputs, outputs):
    return _of(lambda self, x, edge_index: x[:, :3], None)


def not_a_number(inputs, outputs):
    return _of(lambda self, x, edge_index: self.lin(x) + (x.sum() / 0 if len(x) > 2 else 0))


def detached(inputs, outputs):
    return _of(lambda self, x, edge_index: self.lin(x).detach())


def _of(forward, dtype=torch.float32):
    kind = type("Made", (nn.Module,), {"forward": forward})
    module = kind()
    if dtype is not None:
        module.lin = nn.Linear(12, 3, dtype=dtype)
    return module


@pytest.mark.parametrize(
    ("factory", "text"),
    [
        (no_module, r"should make a torch\.nn\.Module; it made a int"),
        (wrong_width, r"a column per class, here \[2, 3\]; its forward gave \[2, 4\]"),
        (no_tensor, r"its forward gave a tuple"),
        (breaks, r"cannot be made and run on two nodes and the link between them: RuntimeError: .*line \d+\)"),
        (frozen, r"the parameter weight does not require a gradient"),
        (double, r"the parameter lin\.weight is torch\.float64"),
        (empty, r"has no parameters"),
        (not_a_number, r"gives NaN or infinity for \d+ of \d+ rows on client 0's graph, before anything is trained"),
        (detached, r"its output has no gradient"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(factory, text, tmp_path):
    with pytest.raises((ConfigError, UnsupportedError), match=text):
        graphsilo.run(**QUICK, model=factory, out=tmp_path / "run")
    assert [item.name for item in (tmp_path / "run").rglob("*") if item.name != ".lock"] == []


def test_weights_of_edges_that_would_be_ignored_are_refused():
    graph = graphsilo.load(**SMALL)
    weighted = replace(graph, edge_weights=np.ones(graph.num_edges, dtype=np.float32))
    with pytest.raises(UnsupportedError, match="takes no edge_weight"):
        graphsilo.run(**{**QUICK, "data": weighted}, model=HouseGCN)
    assert isinstance(graphsilo.run(**{**QUICK, "data": weighted}, model=Weighted).accuracy(), float)


@pytest.mark.slow
def test_generated_features_get_a_gradient():
    """DENSE trains a generator through the clients' models."""
    result = graphsilo.run(**{**QUICK, "rounds": None}, method={"name": "dense", "epochs": 2}, model=Headed)
    assert 0 <= result.accuracy() <= 1


def test_a_module_that_is_made_already_is_refused():
    with pytest.raises(ConfigError, match=r"this GCN is made already, and every client trains one of its own\. Give"):
        graphsilo.run(**QUICK, model=GCN(12, 8, 2, 3))


def test_entries_say_who_made_them():
    class Documented(Headed):
        """My net. With more to say."""

    assert entry_of("net", Documented).summary == "My net. With more to say"
    assert isinstance(made(Headed).module.head.weight, Tensor)
