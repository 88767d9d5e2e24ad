"""Parked clients: the same numbers with one client in memory, files that come and go, and a disk that is full."""

from __future__ import annotations

import gc
import tempfile
import weakref

import numpy as np
import pytest
import torch

from graphsilo.errors import RunError
from graphsilo.experiments.runner import run
from graphsilo.federation.client import ClientContext, EvaluateRequest
from graphsilo.federation.codec import encode_tree
from graphsilo.methods import fedprox
from graphsilo.methods.fedavg import TrainRequest
from graphsilo.runtime.local.clients import ClientCache
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.runtime.local.offloading import OffloadedState
from graphsilo.runtime.local.placement import MemoryBudget
from graphsilo.testing import conformance
from kit.damage import small_files


@pytest.fixture
def cache_of(simulation_of, troubled, tmp_path):
    """Four clients, of whom so many stay in memory."""
    config = conformance.small_config(troubled.METHOD, {}).method_config()

    def make(client):
        silo = next(silo for silo in simulation_of.silos if silo.client == client)
        return troubled.Client(ClientContext(client, silo, config, simulation_of.models[client], seed=0))

    def build(limit, name="offloaded", kind=ClientCache.within):
        def folder():
            (tmp_path / name).mkdir()
            return tmp_path / name

        return kind([0, 1, 2, 3], make, budget=MemoryBudget(limit, 0, folder))

    return build


@pytest.fixture
def federations(cache_of, troubled):
    """A federation with so many clients in memory, and its server."""

    def make(limit, name="offloaded"):
        server, _, _ = conformance.assemble(troubled.METHOD, {})
        return server, cache_of(limit, name, InProcess)

    return make


def same(one, other):
    return encode_tree(one).tobytes() == encode_tree(other).tobytes()


def opened(state):
    """The tree behind a state, whether it is in a file or not."""
    from graphsilo.federation.codec import decode_tree

    return decode_tree(np.fromfile(state.path, dtype=np.uint8)) if isinstance(state, OffloadedState) else state


def test_few_are_in_memory_and_the_longest_unused_goes(cache_of, tmp_path):
    held = cache_of(2)
    assert held.limit == 2
    assert tuple(held._here) == (0,)
    for client in (1, 2, 0, 3):
        held.get(client)
        held._shrink()
    assert tuple(held._here) == (0, 3)
    assert list((tmp_path / "offloaded").iterdir()) == []  # nobody has been asked: there is nothing to write


def test_all_stay_where_there_is_room(cache_of, tmp_path):
    assert cache_of(4).limit is None
    assert tuple(cache_of(None)._here) == (0, 1, 2, 3)
    assert not (tmp_path / "offloaded").exists()


def test_rounds_best_models_and_checkpoints_are_those_of_resident_clients(federations, tmp_path):
    (server, federation), (twin_server, twin) = federations(1), federations(None)
    for number in (1, 2, 3):
        for one, where in ((server, federation), (twin_server, twin)):
            where.at("round", number)
            one.round(where, number)
            if number == 2:
                where.remember()
    states, expected = federation.client_states(), twin.client_states()
    assert all(isinstance(state, OffloadedState) for state in states.values())
    assert all(same(opened(states[client]), expected[client]) for client in range(4))
    again_server, again = federations(2, "again")
    again_server.load_state(server.state())
    again.load_client_states(states)
    mixed_server, mixed = federations(None)
    mixed_server.load_state(server.state())
    mixed.load_client_states(states)  # from files into memory
    back_server, back = federations(1, "back")
    back_server.load_state(server.state())
    back.load_client_states(expected)  # and the other way
    for one, where in ((twin_server, twin), (again_server, again), (mixed_server, mixed), (back_server, back)):
        where.at("round", 4)
        one.round(where, 4)
        assert all(torch.equal(value, twin_server.weights[name]) for name, value in one.weights.items())
        finished = dict(where.finish(embeddings=True, study=True))
        for client, kept in twin.finish(embeddings=True, study=True):
            assert same(finished[client], kept)
    assert len(list((tmp_path / "offloaded").iterdir())) == 4  # one file per client, whatever it did


def test_models_of_the_best_round_are_kept_of_clients_that_were_away(federations):
    _, federation = federations(1)
    _, twin = federations(None)
    for where in (federation, twin):
        where.remember()  # nobody has trained: the initial models
        server, _ = federations(None)
        where.at("round", 1)
        server.round(where, 1)
        where.remember()
        where.at("round", 2)
        server.round(where, 2)
    kept, expected = dict(federation.finish(embeddings=False)), dict(twin.finish(embeddings=False))
    assert all(same(kept[client], expected[client]) for client in range(4))
    assert not torch.equal(kept[0]["best"]["own"]["layers.0.weight"], kept[0]["last"]["own"]["layers.0.weight"])


def test_evaluation_writes_nothing(federations, troubled, tmp_path):
    server, federation = federations(1)
    federation.at("round", 1)
    server.round(federation, 1)
    files = {path.name for path in (tmp_path / "offloaded").iterdir()}
    before = federation.client_states()
    federation.at("evaluation", 1)
    federation.ask(troubled.Client.evaluate, EvaluateRequest(views=["own", "aggregate"], aggregate=server.aggregate()))
    files_after = {path.name for path in (tmp_path / "offloaded").iterdir()}
    assert files < files_after  # only of the client that had stayed in memory
    assert len(files_after) == 4
    assert federation.client_states() == before


def test_a_call_that_is_made_again_draws_anew_after_offloading(cache_of):
    """The number of a call within its round decides its draws; it outlives offloading."""
    one, all_ = cache_of(1), cache_of(None)
    for held in (one, all_):
        for client in (0, 1, 0):
            held.get(client).begin("train", 1)
            if held.limit:
                held._changed.add(client)
                held._shrink()
    assert one.get(0).client.repeat == all_.get(0).client.repeat == 1


def test_what_a_offloaded_client_derived_goes_with_it(cache_of):
    held = cache_of(1)
    client = held.get(2).client
    graph = client.silo.graph
    tensors = weakref.ref(client.data)
    gone = weakref.ref(client)
    assert "_tensors" in graph.__dict__
    gc.disable()
    try:
        del client
        held._shrink()
        held.get(3)
        held._shrink()
        assert gone() is None
        assert tensors() is None
    finally:
        gc.enable()
    assert "_tensors" not in graph.__dict__


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_with_offloaded_clients_resumes(troubled, config_of, tmp_path, workers):
    """Stopped, and gone on with other numbers of workers and of clients in memory."""
    whole = run(config_of(clients=6))
    folder = tmp_path / "run"
    config = config_of(clients=6, run={"resident_clients": 2, "checkpoint_every": 1, "workers": workers})
    with pytest.raises(conformance._Stopped):
        run(config, out=folder, observer=conformance._Stop(after=1))
    files = list((folder / "checkpoints" / "seed-0.clients").iterdir())
    assert 0 < len(files) <= 6
    assert not (folder / "offloaded").exists()
    tighter = config_of(clients=6, run={"resident_clients": 1, "checkpoint_every": 1, "workers": 3 - workers})
    with pytest.raises(conformance._Stopped):
        run(tighter, out=folder, resume=True, observer=conformance._Stop(after=2))
    resumed = run(config_of(clients=6, run={"checkpoint_every": 1}), out=folder, resume=True)
    assert conformance.numbers(resumed.tree) == conformance.numbers(whole.tree)
    assert not (folder / "checkpoints" / "seed-0.clients").exists()


def test_a_damaged_file_of_a_checkpoint_is_refused(config_of, tmp_path):
    config = config_of(run={"resident_clients": 1, "checkpoint_every": 1})
    with pytest.raises(conformance._Stopped):
        run(config, out=tmp_path / "run", observer=conformance._Stop(after=1))
    file = next((tmp_path / "run" / "checkpoints" / "seed-0.clients").iterdir())
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(RunError, match=r"seed-0\.ckpt is damaged: .* is missing or changed"):
        run(config, out=tmp_path / "run", resume=True)
    file.unlink()
    with pytest.raises(RunError, match="is missing or changed"):
        run(config, out=tmp_path / "run", resume=True)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_full_disk_is_one_paragraph(config_of, tmp_path, monkeypatch, workers):
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    config = config_of(clients=6, run={"resident_clients": 2, "workers": workers, "checkpoint_every": 0})
    large = config.model.model_copy(update={"options": {"hidden": 2048}})
    with (
        small_files(200_000),
        pytest.raises(RunError, match=r"had to make room for others.*File too large.*run\.resident_clients"),
    ):  # silos are smaller, states are larger
        run(config.model_copy(update={"model": large}))
    assert list((tmp_path / "scratch").iterdir()) == []


def test_fedprox_keeps_nothing_in_between(simulation_of):
    """A method whose client would keep the received model beyond a call would not survive offloading."""
    conformance.check_offloading(fedprox.METHOD, {})


def test_train_requests_are_shared(federations, troubled):
    server, federation = federations(1)
    federation.at("round", 1)
    total = federation.sum(troubled.Client.train, TrainRequest(weights=server.weights))
    assert total.clients == (0, 1, 2, 3)
    assert tuple(federation.cache._here) == (3,)
