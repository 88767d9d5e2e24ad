"""What every server knows of its clients, and the models it has for them."""

from __future__ import annotations

import torch

from graphsilo.data.silos.silo import Schema
from graphsilo.federation.client import ModelSpec
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.federation.settings import MethodConfig
from graphsilo.training.local import weights_of


class Server(ServerBase[MethodConfig]):
    weights = None

    def round(self, federation, number):
        pass

    def aggregate(self):
        return self.weights


def server_of(*models, clients=None):
    chosen = clients or tuple(range(len(models)))
    specs = dict(zip(chosen, models, strict=True))
    return Server(ServerContext(MethodConfig(), Schema("node", 3, 2), specs, 7, chosen))


def test_one_aggregate_is_everybodys_and_none_is_nobodys():
    server = server_of(*[ModelSpec("sgc", {})] * 3)
    assert server.aggregates() == {}
    server.weights = {"w": torch.zeros(1)}
    assert list(server.aggregates()) == [0, 1, 2]
    assert all(found is server.weights for found in server.aggregates().values())


def test_the_common_model_is_the_first_clients_in_its_precision():
    first, second = ModelSpec("sgc", {}, "bfloat16"), ModelSpec("mlp", {"hidden": 5})
    server = server_of(second, first, clients=(4, 2))
    assert server.context.common is first
    assert server.build_model().precision == "bfloat16"
    assert sum(weight.numel() for weight in server.build_model(second).parameters()) == 3 * 5 + 5 + 5 * 2 + 2


def test_fresh_models_differ_by_what_they_are_drawn_for():
    server = server_of(ModelSpec("sgc", {}))
    one, same, other = (
        weights_of(server.build_model(seed_names=names)) for names in (("model",), ("model",), ("another",))
    )
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_state_holds_the_attributes_that_are_named():
    class Counting(Server):
        kept = ("sums", "total")

    one, other = Counting.__new__(Counting), Counting.__new__(Counting)
    one.sums, one.total, one.beside = {"a": torch.ones(2)}, 3.0, 7
    state = one.state()
    assert state.keys() == {"sums", "total"}
    one.sums["b"] = torch.zeros(1)
    other.load_state(state)
    assert (list(other.sums), other.total) == (["a"], 3.0)
    other.sums.clear()
    assert list(state["sums"]) == ["a"]


def test_a_saved_tensor_goes_where_the_attribute_was():
    """It comes back on the CPU; ``meta`` stands for a GPU here."""

    class Counting(Server):
        kept = ("counts",)

    server = Counting.__new__(Counting)
    server.counts = torch.zeros(3, device="meta")
    server.load_state({"counts": torch.ones(3)})
    assert server.counts.device.type == "meta"
    server.load_state({"counts": None})
    assert server.counts is None
