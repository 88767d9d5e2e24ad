"""Runs on a GPU that is not there: no step of any method mixes devices, whichever way a run is carried out.

What a GPU itself computes is for ``test_gpu.py``, which needs one.
"""

from __future__ import annotations

import contextlib

import pytest
import torch

from graphsilo import models
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.training.optimizer import optimizer
from kit import runs
from kit.broad import broadly
from kit.pretended_gpu import OnGPU, pretended_gpu
from kit.stopped import Stop, StopAfter


@pytest.fixture
def gpu():
    with pretended_gpu():
        yield torch.device("cuda", 0)


# -- the pretence ------------------------------------------------------------------------------------------------------


def test_tensors_say_where_they_are_and_results_stay_there(gpu):
    made = torch.ones(2, 3, device="cuda")
    for there in (
        made,
        made + 1,
        made.t() @ made,
        made.to(torch.float64),
        made.new_zeros(4),
        made.split(1)[0],
        made.max(0)[0],
    ):
        assert (there.device, there.is_cuda, there.is_cpu) == (gpu, True, False)
        assert isinstance(there, OnGPU)
    for here in (made.cpu(), made.to("cpu"), torch.ones(2), made.new_zeros(4, device="cpu")):
        assert (here.device.type, here.is_cuda, here.is_cpu) == ("cpu", False, True)
    assert float(made.sum()) == 6.0


def test_what_torch_refuses_is_refused(gpu):
    here, there = torch.ones(3), torch.ones(3, device="cuda")
    for mixed in (
        lambda: here + there, lambda: there.add_(here), lambda: torch.cat([there, here]),
        lambda: there.index_select(0, torch.tensor([1])), lambda: there.index_add_(0, torch.tensor([0, 1, 2]), there),
        lambda: torch.where(here > 0, there, there), lambda: here[there > 0],
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="device"):
            mixed()
    with pytest.raises(TypeError, match="numpy"):
        there.numpy()
    counter = torch.zeros(())
    with pytest.raises(RuntimeError, match="device"):
        torch._fused_adam_(
            [there], [there], [there], [there], [], [counter], lr=0.1, beta1=0.9, beta2=0.9, weight_decay=0.0, eps=1e-8,
            amsgrad=False, maximize=False,
        )  # fmt: skip


def test_what_torch_allows_is_allowed(gpu):
    here, there = torch.ones(3), torch.zeros(3, device="cuda")
    assert there.copy_(here).device == gpu
    assert here.copy_(there).device.type == "cpu"
    assert (there * torch.tensor(2.0)).device == gpu  # a number without dimensions
    assert there[torch.tensor([0, 2])].device == gpu
    assert there.numpy(force=True).tolist() == [1.0, 1.0, 1.0]


def test_gradients_are_where_their_parameters_are(gpu):
    layer = torch.nn.Linear(2, 2).to("cuda")
    assert all(parameter.device == gpu for parameter in layer.parameters())
    loss = layer(torch.ones(1, 2, device="cuda")).sum()
    assert all(slope.device == gpu for slope in torch.autograd.grad(loss, list(layer.parameters())))


def test_it_finds_a_counter_that_came_back_in_main_memory(gpu):
    weights = torch.zeros(2, device="cuda")
    adam = optimizer("adam", [weights], lr=0.1)
    adam.step([torch.ones(2, device="cuda")])
    adam._step = adam._step.cpu()
    with pytest.raises(RuntimeError, match="_fused_adam_ got some on cuda:0, some on cpu"):
        adam.step([torch.ones(2, device="cuda")])


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", broadly(registry.names()))
def test_every_method_however_it_is_carried_out(small, gpu, tmp_path, method):
    settings = {
        "method__name": method, "run__device": "cuda", "evaluation__models": True, "run__checkpoint_every": 1,
        **runs.quick(method),
    }  # fmt: skip

    away = small(**settings, run__resident_clients=1)
    with contextlib.suppress(Stop):  # a method of one round is not stopped
        run(away, out=tmp_path / "away", observer=StopAfter(0, 2))
    assert runs.learned(small(**settings), tmp_path / "whole") == runs.learned(away, tmp_path / "away")


@pytest.mark.slow
@pytest.mark.parametrize("method", registry.names())
def test_every_method_on_graphs_and_links(small, gpu, molecules, method):
    entry = registry.load(method)
    for task in {"graph", "link"} & set(entry.tasks):
        data = {"data__name": str(molecules), "data__generator": None} if task == "graph" else {}
        run(small(method__name=method, task=task, run__device="cuda", **data, **runs.quick(method)))


@pytest.mark.parametrize(
    "model",
    [name for name in models.names() if "node" in (entry := models.entry(name)).tasks and not entry.relational],
)
def test_every_backbone(small, gpu, model):
    layers = {"model__layers": 3} if model.startswith("gcnii") else {}
    tree = run(small(model__name=model, run__device="cuda", method__rounds=1, **layers)).tree
    assert 0 <= tree["seeds"][0]["test"]["accuracy"] <= 1


@pytest.mark.parametrize(
    "method", broadly(["fedavg", "fedprox", "scaffold", "feddc", "fednh", "fedgen", "fedtgp", "fedlog", "gcfl"])
)
def test_settings_of_the_server(small, gpu, method):
    fields = registry.load(method).config.model_fields
    more = {"method__server_lr": 0.5} if "server_lr" in fields else {}
    some = {"method__name": method, "run__device": "cuda", "method__participation": 0.7, **more, **runs.quick(method)}
    run(small(**some))
    if method not in ("fedtgp", "scaffold", "feddc"):  # whose models leave as they are, or not at all
        run(small(**some, run__compression="int8"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        *runs.AROUND,
        {"method__fan_out": [3, 2], "method__batch_size": 16},
        {"method__optimizer": "sgd", "method__momentum": 0.5, "run__resident_clients": 1},
    ],
    ids=str,
)
def test_what_surrounds_a_method(small, gpu, more):
    tree = run(small(run__device="cuda", **more)).tree
    assert 0 <= tree["seeds"][0]["test"]["accuracy"] <= 1
