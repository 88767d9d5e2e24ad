"""A run once more, with everything noted that its coordinator sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from graphsilo.data.silos.silo import Silo
from graphsilo.errors import ConfigError, RunError, UnsupportedError
from graphsilo.experiments import runner
from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.experiments.observer import Observer
from graphsilo.experiments.seed import SeedRun
from graphsilo.experiments.simulation import Simulation, prepare
from graphsilo.experiments.storage import reading
from graphsilo.experiments.storage.records import RunRecord, Seed, tree_of
from graphsilo.federation import registry
from graphsilo.federation.codec import decode, encode
from graphsilo.federation.interface import Handler, Total
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.message import Done, Message, Tensors
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerBase
from graphsilo.runtime.exchange import Exchange
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.types import ClientId

FIRST, LAST = 2, 2
"""Rounds whose messages are kept, from the first and up to the last: all of a long run's would not fit in memory."""
_SCORES = ("best_round", "last_round", "validation", "test", "test_last", "scenarios", "scenarios_last")


@dataclass(frozen=True)
class Call:
    """What a client was asked and what it answered.

    Attributes:
        client: Who; None for all of a secure sum together, of which the answer is then the sum.
        clients: How many are in the answer.
    """

    phase: str
    round: int
    step: str
    client: ClientId | None
    request: Message
    answer: Message
    clients: int = 1

    @property
    def whose(self) -> str:
        """What to say behind what was made of it."""
        return "" if self.client is not None else ", summed over silos"


@dataclass
class Recorder:
    """Notes answers and opened sums; of a long run those of the first and last rounds."""

    calls: list[Call] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    federation: Exchange | None = None
    server: ServerBase[Any] | None = None
    opened_last: tuple[Handler[Any, Any], Total[Any]] | None = None
    _copies: dict[int, tuple[Message, Message]] = field(default_factory=dict)

    def note_answer(self, client: ClientId, handler: Handler[Any, Any], request: Message, answer: Message) -> None:
        """A client answered in plain."""
        self._note(Call(self.ledger.phase, self.ledger.round, handler.name, client, request, answer))

    def note_sum(
        self, handler: Handler[Any, Any], request: Message | Mapping[ClientId, Message], total: Total[Any]
    ) -> None:
        """A secure sum was opened."""
        self.opened_last = handler, total
        if total.message is not None:
            asked = request if isinstance(request, Message) else next(iter(request.values()))
            place = self.ledger.phase, self.ledger.round, handler.name
            self._note(Call(*place, None, asked, total.message, len(total.clients)))

    def _note(self, call: Call) -> None:
        if self.calls and self.calls[-1].round != call.round:
            self._copies.clear()
            self.calls = [each for each in self.calls if each.round <= FIRST or each.round > call.round - LAST]
        # Servers go on with what they sent. The original is kept beside its copy, so that no other gets its id.
        original, copy = self._copies.get(id(call.request), (None, None))
        if original is not call.request or copy is None:
            copy = decode(encode(call.request).data, type(call.request))
            self._copies[id(call.request)] = call.request, copy
        self.calls.append(replace(call, request=copy))

    def models(self) -> dict[ClientId, tuple[str, Mapping[str, Any]]]:
        """What a receiver of each client's saved model has: the common one, else the client's own."""
        assert self.server is not None
        assert self.federation is not None
        found: dict[ClientId, tuple[str, Mapping[str, Any]]] = {
            client: ("common", _copy_weights(weights))
            for client, weights in self.server.aggregates().items()
            if weights
        }
        if not found and isinstance(self.federation, InProcess):
            for client in self.federation.clients:
                own = self.federation.client(client).final_models()
                if own:
                    found[client] = ("own", {view: _copy_weights(weights) for view, weights in own.items()})
        return found


def _copy_weights(weights: Tensors) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in weights.items()}


class RecordedSeed(SeedRun):
    """A seed whose messages are noted."""

    def __init__(self, *arguments: Any, recorder: Recorder, **named: Any):
        super().__init__(*arguments, **named)
        self.recorder = recorder

    def _clients(self, method: Method, ledger: Ledger) -> Exchange:
        found = super()._clients(method, ledger)
        found.witness = self.recorder
        self.recorder.federation, self.recorder.ledger = found, ledger
        return found

    def _server(self, federation: Exchange) -> ServerBase[Any]:
        self.recorder.server = super()._server(federation)
        return self.recorder.server


@dataclass(frozen=True)
class Repetition:
    """One seed of a run, repeated.

    Attributes:
        recorder: What was noted.
        models: As ``Recorder.models``.
        differs: What to say where its scores are not those of the run; empty where they are.
    """

    config: RunConfig
    method: Method
    simulation: Simulation
    seed: int
    recorder: Recorder
    models: Mapping[ClientId, tuple[str, Mapping[str, Any]]]
    differs: str = ""


def open_run(folder: Path) -> tuple[RunRecord, RunConfig]:
    """A finished run's result, and the configuration with which it is repeated.

    Raises:
        ConfigError: The folder holds no finished run.
        RunError: Its result cannot be read, or its data is not here.
    """
    record = reading.read_run(folder)
    if (folder / "silos.json").exists():
        raise RunError(
            f"{folder} is the coordinator's part of a run between machines. An attack is measured against the data, "
            f"which stayed at the silos. Attack a run of the same method in one process, on data that is here."
        )
    if record.task != "node":
        raise UnsupportedError(
            f"attacks are made for runs that classify nodes; the task of the run in {folder} is '{record.task}'."
        )
    changed = {
        "partition.file": str(folder / "partition.npz"), "run.device": "cpu", "run.workers": 1, "run.references": [],
        "evaluation.models": False, "evaluation.embeddings": False,
    }  # fmt: skip
    return record, load_config(folder / "config.yaml", overrides=changed)


def repeat(record: RunRecord, config: RunConfig, seed: int, *, observer: Observer | None = None) -> Repetition:
    """Run one seed again and note what is sent.

    Raises:
        ConfigError: The run has no such seed.
    """
    before = next((each for each in record.seeds if each.seed == seed), None)
    if before is None:
        raise ConfigError(f"the run has seeds {[each.seed for each in record.seeds]}; {seed} was asked for.")
    method = registry.load(config.method.name)
    one = config.changed({"run.seeds": [seed]})
    simulation = prepare(one, method)
    recorder = Recorder()
    result = runner.run(
        one, simulation=simulation, observer=observer, seed_run=partial(RecordedSeed, recorder=recorder)
    )
    differs = _difference(before, result.record.seeds[0])
    return Repetition(one, method, simulation, seed, recorder, recorder.models(), differs)


def rerun(repetition: Repetition, silos: tuple[Silo, ...], seed: int) -> Repetition:
    """The same run with other silos and another seed, scored only at its end.

    Where sums are secure these are plain, which comes to the same and is faster, and no answer is kept that tells more
    than that there was one.
    """
    settings, secure = repetition.config.method_config(), repetition.config.run.secure_sums
    config = repetition.config.changed({"evaluation.every": settings.total_rounds, "run.secure_sums": False})
    recorder = Recorder()
    simulation = replace(repetition.simulation, silos=silos)
    one = RecordedSeed(config, repetition.method, settings, simulation, seed, None, None, recorder=recorder)
    one.run(1, resume=False, observer=Observer(), label="", folder=None)
    if secure:
        recorder.calls = [call for call in recorder.calls if isinstance(call.answer, Done)]
    found = replace(repetition, config=config, simulation=simulation, seed=seed, recorder=recorder)
    return replace(found, models=recorder.models())


def _difference(before: Seed, after: Seed) -> str:
    """What to say of a repetition whose scores are others; empty where they are the same."""
    ran, again = tree_of(before), tree_of(after)
    if all(ran.get(name) == again.get(name) for name in _SCORES):
        return ""
    return (
        f"seed {before.seed} was run again and has other scores than result.json: data, version or machine have "
        f"changed, or silos drew noise from the operating system (method.epsilon), which nobody can repeat. What "
        f"follows holds for the repetition: the same settings, and noise that is new."
    )
