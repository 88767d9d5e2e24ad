"""Worker processes: the same numbers, and trouble that is told."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace

import pytest
import torch

from graphsilo.errors import FederationError
from graphsilo.experiments.observer import Observer
from graphsilo.experiments.runner import run
from graphsilo.experiments.storage.disk import write_tensors
from graphsilo.federation import registry
from graphsilo.federation.client import EvaluateRequest
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.model_files import answers_path
from graphsilo.methods.fedavg import TrainRequest
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.runtime.local.spread import expected_work, spread_clients
from graphsilo.runtime.local.workers import WorkerPool
from graphsilo.runtime.setup import ClientSetup
from graphsilo.testing import conformance


def places(silos, processes):
    """The clients of each process, the first being this one."""
    return spread_clients({silo.client: expected_work(silo) for silo in silos}, processes)


@pytest.mark.slow
def test_clients_are_spread_and_asked_in_order(spread, pool, troubled):
    assert sorted(client for clients in (pool.here, *pool.clients_of) for client in clients) == [0, 1, 2, 3]
    assert [len(clients) for clients in (pool.here, *pool.clients_of)] == [1, 3]
    _, federation = spread()
    replies = federation.ask(troubled.Client.echo, troubled.Echo(client=0, round=0, process=0))
    assert replies.clients == (0, 1, 2, 3)
    processes = {client: reply.process for client, reply in replies}
    found = [{processes[client] for client in clients} for clients in (pool.here, *pool.clients_of)]
    assert found[0] == {os.getpid()}
    assert [len(place) for place in found] == [1, 1]
    assert len(set.union(*found)) == 2
    for client in range(4):
        one = federation.ask(troubled.Client.echo, {client: troubled.Echo(client=0, round=0, process=0, value=5.0)})
        assert one.clients == (client,)
        assert one[client].value == 6.0


@pytest.mark.slow
@pytest.mark.parametrize(("early", "size"), [(0, 10**9), (1, 10**9), (32, 10**9), (32, 0), (32, 1)])
def test_answers_come_in_order_however_many_may_wait(spread, troubled, monkeypatch, early, size):
    monkeypatch.setattr("graphsilo.runtime.local.workers.MAX_EARLY", early)
    monkeypatch.setattr("graphsilo.runtime.local.workers.MAX_EARLY_BYTES", size)
    _, federation = spread()
    for _ in range(5):
        replies = federation.ask(troubled.Client.echo, troubled.Echo(client=0, round=0, process=0, value=2.0))
        assert [(client, reply.value) for client, reply in replies] == [(client, 3.0) for client in range(4)]


def test_rounds_states_models_and_ledger_are_those_of_one_process(spread, federation_of):
    server, federation = spread()
    twin_server, twin = federation_of()
    for number in (1, 2, 3):
        for one, where in ((server, federation), (twin_server, twin)):
            where.at("round", number)
            one.round(where, number)
        assert all(torch.equal(value, twin_server.weights[name]) for name, value in server.weights.items())
    assert sorted(federation.ledger.rows()) == sorted(twin.ledger.rows())
    federation.remember()
    twin.remember()
    mine, theirs = federation.client_states(), twin.client_states()
    assert list(mine) == list(theirs) == [0, 1, 2, 3]
    for client in mine:
        assert torch.equal(
            mine[client]["best"]["own"]["layers.0.weight"], theirs[client]["best"]["own"]["layers.0.weight"]
        )
    again_server, again = spread()
    again_server.load_state(server.state())
    again.load_client_states(mine)
    for one, where in ((again_server, again), (twin_server, twin)):
        where.at("round", 4)
        one.round(where, 4)
    assert all(torch.equal(value, twin_server.weights[name]) for name, value in again_server.weights.items())
    kept, expected = dict(again.finish(embeddings=True)), dict(twin.finish(embeddings=True))
    assert list(kept) == [0, 1, 2, 3]
    for client in kept:
        assert torch.equal(kept[client]["embeddings"], expected[client]["embeddings"])
        for when in ("best", "last"):
            assert kept[client][when]["own"].keys() == expected[client][when]["own"].keys()
            assert all(
                torch.equal(value, expected[client][when]["own"][name])
                for name, value in kept[client][when]["own"].items()
            )


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (
            "raise",
            r"client 2 failed in 'train' \(ValueError: the disk of this hospital is gone(; in your own code, .*)?\)",
        ),
        ("nan", "NaN or infinity"),
        ("shape", "has the shape"),
        ("write", "wrote into the received field"),
    ],
)
def test_failures_come_from_other_processes(spread, troubled, how, text):
    server, federation = spread(who=[2], when=1, how=how)
    total = federation.sum(troubled.Client.train, TrainRequest(weights=server.weights))
    # Its neighbour in the same process is refused as well where the bytes that both received were written to.
    held = (federation.pool.here, *federation.pool.clients_of)
    neighbours = {client for clients in held if 2 in clients for client in clients}
    assert {2} <= set(total.failures) <= (neighbours if how == "write" else {2})
    assert {0, 1, 2, 3} - neighbours <= set(total.clients)
    if how != "write":
        assert list(total.failures) == [2]
    with pytest.raises(FederationError, match=text) as caught:
        total.require()
    assert ("troubled.py" in "".join(getattr(caught.value, "__notes__", []))) == (how == "raise")
    # The processes are fit for more.
    assert len(federation.ask(troubled.Client.echo, troubled.Echo(client=0, round=0, process=0))) == 4


def test_answers_of_the_run_beside_are_read_in_every_process(pool, troubled, config_of, simulation_of, tmp_path):
    for silo in simulation_of.silos:
        none = torch.zeros(len(silo.seen.items["test"]), dtype=torch.int64)
        write_tensors(answers_path(tmp_path, 0, silo.client), {"answers": none})
    setup = ClientSetup(troubled.METHOD, config_of().method_config(), simulation_of.models, 0, beside=tmp_path)
    replies = pool.federation(setup, Ledger()).ask(troubled.Client.evaluate, EvaluateRequest(views=["own"]))
    assert ["own/seen/paired/accuracy" in reply.scores for _, reply in replies] == [True] * 4


def test_large_messages_do_not_block(spread, troubled):
    """More than socket buffers hold, both ways, to all clients at once."""
    server, federation = spread()
    weights = {name: value.clone() for name, value in server.weights.items()}
    extra = {"extra": torch.zeros(3_000_000)}
    replies = federation.ask(troubled.Client.train, TrainRequest(weights={**weights, **extra}))
    assert len(replies.failures) == 4  # this model has no such weight
    assert "'extra' is unknown" in replies.failures[0].reason


@pytest.mark.slow
def test_a_class_that_cannot_be_imported(troubled, config_of, simulation_of):
    class Hidden(troubled.Client):
        """Lives inside a function."""

    pool = WorkerPool(simulation_of.silos, 3)
    with pytest.raises(FederationError, match=r"cannot import troubled\.|cannot import .*Hidden"):
        pool.federation(
            ClientSetup(replace(troubled.METHOD, client=Hidden), config_of().method_config(), simulation_of.models, 0)
        )
    # Both workers answered; none is out of step.
    assert len(pool.processes) == 2
    for index in range(1, len(pool.processes)):
        with pytest.raises(FederationError):
            pool.answer(index)
    pool.close()


def test_client_time_is_counted(spread):
    server, federation = spread()
    server.round(federation, 1)
    assert federation.client_cpu_seconds > 0
    assert federation.peak_rss_bytes() > 1_000_000


@pytest.mark.slow
def test_more_workers_than_clients_and_nothing_left_behind(simulation_of, troubled, config_of, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pool = WorkerPool(simulation_of.silos[:2], 9)
    processes = list(pool.processes)
    assert len(processes) == 1
    assert sorted([pool.here, *pool.clients_of]) == [(0,), (1,)]
    federation = pool.federation(ClientSetup(troubled.METHOD, config_of().method_config(), simulation_of.models, 0))
    assert len(federation.ask(troubled.Client.echo, troubled.Echo(client=0, round=0, process=0))) == 2
    assert [path.name.startswith("graphsilo-") for path in tmp_path.iterdir()] == [True]
    pool.close()
    pool.close()
    assert [process.poll() for process in processes] == [0]  # ended and waited for: no zombie
    assert list(tmp_path.iterdir()) == []


class Listener(Observer):
    """Keeps what it is warned of, and the rounds it hears of."""

    def __init__(self):
        self.warnings, self.rounds = [], []

    def on_warning(self, text):
        self.warnings.append(text)

    def on_progress(self, progress):
        self.rounds.append(progress.round)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("checkpoints", "folder", "resident", "rounds"),
    [
        (1, True, None, [1, 2, 3]),
        (2, True, 1, [1, 2, 3]),
        (1, False, None, [1, 2, 1, 2, 3]),
    ],
)
def test_a_killed_worker_is_told_and_the_run_goes_on(
    config_of, simulation_of, monkeypatch, tmp_path, checkpoints, folder, resident, rounds
):
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    _, others = places(simulation_of.silos, 2)
    settings = {"who": [others[0]], "when": 3, "how": "kill", "marker": str(tmp_path / "killed")}
    spread = {"workers": 2, "checkpoint_every": checkpoints, "resident_clients": resident}
    listener = Listener()
    found = run(config_of(run=spread, **settings), out=tmp_path / "run" if folder else None, observer=listener)
    names = ", ".join(map(str, others))
    told = [text for text in listener.warnings if "worker" in text]
    assert len(told) == 1
    assert f"the worker process of clients {names} was killed by SIGKILL" in told[0]
    assert listener.rounds == rounds
    assert list((tmp_path / "scratch").iterdir()) == []
    assert conformance.numbers(found.tree) == conformance.numbers(run(config_of(**settings)).tree)


@pytest.mark.slow
def test_a_worker_that_is_killed_again_and_again(config_of, simulation_of, monkeypatch, tmp_path):
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    _, others = places(simulation_of.silos, 2)
    settings = {"who": [others[0]], "when": 3, "how": "kill", "marker": str(tmp_path / "nowhere" / "always")}
    monkeypatch.setenv("GRAPHSILO_TROUBLE", "always")
    config = config_of(run={"workers": 2, "checkpoint_every": 1}, **settings)
    with pytest.raises(FederationError, match=r"killed by SIGKILL.*, 3 times without a round in between.*--resume"):
        run(config, out=tmp_path / "run")
    assert list((tmp_path / "scratch").iterdir()) == []
    monkeypatch.delenv("GRAPHSILO_TROUBLE")
    (tmp_path / "nowhere").mkdir()
    (tmp_path / "nowhere" / "always").touch()
    resumed = run(config, out=tmp_path / "run", resume=True)
    assert conformance.numbers(resumed.tree) == conformance.numbers(run(config_of(**settings)).tree)


@pytest.mark.slow
def test_clients_elsewhere_choose_by_the_metric_of_the_run():
    def numbers(metric, **how):
        config = conformance.small_config(registry.load("fedridge"), {}, run=how)
        evaluation = config.evaluation.model_copy(update={"select_by": metric})
        return conformance.numbers(run(config.model_copy(update={"evaluation": evaluation})).tree)

    here = numbers("macro_f1")
    assert here == numbers("macro_f1", workers=2)
    assert here != numbers("accuracy")


@pytest.mark.slow
def test_workers_end_when_the_coordinator_is_gone(simulation_of):
    pool = WorkerPool(simulation_of.silos[:2], 2)
    (process,) = pool.processes
    for line in pool.channels:
        line.close()
    assert process.wait(timeout=60) == 0
    pool.close()


def test_serial_and_spread_share_one_implementation():
    assert InProcess.exchange.__qualname__ == "Exchange.exchange"
