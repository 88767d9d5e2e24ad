"""Models in the mean: one for all."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from graphsilo.data.silos.silo import Schema
from graphsilo.federation import registry
from graphsilo.federation import server as server_module
from graphsilo.federation.client import ModelSpec
from graphsilo.federation.server import ServerContext
from graphsilo.methods import fedavg
from graphsilo.methods.fedavg import TrainReply


def test_steps_of_a_round_can_be_replaced():
    """Collect, combine and after, in this order, with the server's rate."""
    order: list[str] = []

    class Steps(fedavg.Server):
        def collect(self, federation, clients):
            order.append(f"collect {clients}")
            return TrainReply(weights={name: value + 4.0 for name, value in self.weights.items()}, num_samples=1.0)

        def combine(self, total):
            order.append("combine")
            super().combine(total)

        def after(self, federation, number):
            order.append(f"after {number}")

    class Nobody:
        clients = (0, 1)

    config = fedavg.FedAvgConfig(server_lr=0.5)
    specs = dict.fromkeys((0, 1), ModelSpec("sgc", {}))
    server = Steps(ServerContext(config, Schema("node", 1, 2), specs, 0, (0, 1)))
    before = {name: value.clone() for name, value in server.weights.items()}
    server.round(Nobody(), 7)
    assert order == ["collect (0, 1)", "combine", "after 7"]
    assert all(torch.allclose(server.weights[name], before[name] + 2.0) for name in before)


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "scaffold", "feddc", "fedstar", "gcfl", "fedgta", "fairfgl"])
def test_what_a_server_averages_is_in_main_memory(monkeypatch, name):
    """Where sums are, which come out of messages, also when models are on a GPU; with tensors that only say where they
    are."""
    plain = server_module.build_model

    def on_a_gpu(*args):
        with unset_fake_temporarily():
            built = plain(*args)
        for module in built.modules():
            for key, value in list(module._parameters.items()):
                if value is not None:
                    module._parameters[key] = torch.nn.Parameter(torch.empty(value.shape, device="cuda"))
        return built

    monkeypatch.setattr(server_module, "build_model", on_a_gpu)
    model = ModelSpec({"fedstar": "gin_fedstar", "gcfl": "gin_gcfl"}.get(name, "gcn"), {})
    method = registry.load(name)
    context = ServerContext(method.config(), Schema("node", 3, 2), dict.fromkeys((0, 1), model), 0, (0, 1))
    with FakeTensorMode(allow_non_fake_inputs=True):
        server = method.server(context)
        assert {tensor.device.type for tensor in server.build_model().parameters()} == {"cuda"}
        held = [tensor for weights in server.aggregates().values() for tensor in weights.values()]
        held += [tensor for part in ("control", "drift") for tensor in getattr(server, part, {}).values()]
    assert held
    assert {tensor.device.type for tensor in held} == {"cpu"}
