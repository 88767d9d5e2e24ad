"""A method's client as a runtime holds it, with what the runtime does to it and keeps for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.client import BESIDE_COMMON, COMMON, ClientBase, ClientContext, copy_kept
from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.federation.message import Message, Tensors
from graphsilo.types import CLASS_TASKS, ClientId

if TYPE_CHECKING:
    from graphsilo.runtime.parties import Parties

Numbering: TypeAlias = tuple[int, int, dict[str, int]]
"""Round of a client's last call, how often its step had been asked for before in it, and that of every step."""

Turn: TypeAlias = tuple[int, int | None]
"""Number of a step, which grows from step to step; and of the one from which on a client takes back what it changed,
which is the first since its last counted answer; None where nothing is."""

READS_ONLY = frozenset({"evaluate", "evaluate_sums", "evaluate_bins"})
"""Steps after which a client's state is what it was."""

Reported: TypeAlias = tuple[str, Tensors | None, list[float]]
"""Of a client, the view that its run reports; the server's model of the best round where that is the view; and the
decision that all silos have, if they have one."""
NOBODY: Mapping[ClientId, Reported] = MappingProxyType({})


class HostedClient:
    """One client in memory.

    Attributes:
        client: The method's own part.
        best: Its models when validation had never been better; None before.
        parties: Keeps its answers for secure sums; None where none are made.
        left_out: What compression has left out of its answers so far, by step and field.
        settled: Hash of what others said of how it is made, and ``asked`` of all that it was asked with since, one
            after the other; empty: nobody wants to know.
        turn: Number of the newest step that was asked for, and of the one whose changes can be taken back.
    """

    def __init__(self, client: ClientBase[Any], parties: Parties | None = None):
        self.client, self.parties = client, parties
        self.best: dict[str, Any] | None = None
        self.left_out: dict[str, Tensor] = {}
        self.settled = self.asked = b""
        self.turn = (0, 0)
        self._before: tuple[dict[str, Any], dict[str, Tensor]] | None = None  # what is kept and left out, as it was
        self._calls: dict[str, int] = {}

    @classmethod
    def open(
        cls, kind: type[ClientBase[Any]], context: ClientContext[Any], parties: Parties, settled: bytes
    ) -> HostedClient:
        """One that a site opens."""
        held = cls(kind(context), parties)
        held.settled = settled
        return held

    def take_turn(self, handler: str, turn: Turn) -> None:
        """Take back what was not counted, and keep what takes back the step to come, where a round may go on without.

        Raises:
            MessageError: A later step was asked for before: the request was under way for too long.
        """
        step, since = turn
        if step < self.turn[0]:
            raise MessageError("a request came after that of a later step: nobody waits for its answer any more.")
        self.settle(since)
        self.turn = step, self.turn[1]
        if self.client.config.min_clients is not None and handler not in READS_ONLY:
            self.turn = step, step
            kept = {name: copy_kept(getattr(self.client, name)) for name in self.client.kept}
            self._before = kept, dict(self.left_out)

    def settle(self, since: int | None = None) -> None:
        """Take back what a step changed if it is this one or a later one; what any other changed stays for good."""
        if self._before is not None and since is not None and since <= self.turn[1]:
            kept, self.left_out = self._before
            for name, value in kept.items():
                setattr(self.client, name, value)
            self._go_back(self.asked)
        self._before = None

    def _go_back(self, asked: bytes) -> None:
        """Who goes back is not as who stays: some of what they hold is in no state."""
        if self.settled:
            self.asked = hashlib.sha256(b"taken back" + asked).digest()

    def begin(self, handler: str, round_number: int, data: NDArray[np.uint8] | None = None) -> None:
        """A call begins: the client's draws depend on its round, and on how often the step was asked for in it.

        Args:
            handler: The step.
            round_number: Of the call.
            data: The bytes of what it is asked with.
        """
        if round_number != self.client.round:
            self.client.round = round_number
            self._calls.clear()
        self.client.repeat = self._calls.get(handler, 0)
        self._calls[handler] = self.client.repeat + 1
        if self.settled and data is not None:
            call = json.dumps([handler, round_number, self.client.repeat]).encode()
            self.asked = hashlib.sha256(self.asked + hashlib.sha256(data.data).digest() + call).digest()

    def pack_answer(self, handler: str, request: Message, reply: Message) -> Message:
        """The message that carries an answer, compressed where the run says so."""
        return self.client.context.compression.compress(handler, request, reply, self.left_out)

    @property
    def numbering(self) -> Numbering:
        """Survives that the client is put away and made again."""
        return self.client.round, self.client.repeat, dict(self._calls)

    @numbering.setter
    def numbering(self, numbering: Numbering) -> None:
        self.client.round, self.client.repeat, calls = numbering
        self._calls = dict(calls)

    def remember(self, view: str = "own") -> None:
        """Keep a copy of the current models: validation by this view has never been better.

        Where the server is the client's own, as in a federation of one, its model is among the client's. That one, and
        what it predicts with, are of the view ``aggregate``, whose best round may be another.
        """
        found = {
            name: {parameter: tensor.detach().clone() for parameter, tensor in weights.items()}
            for name, weights in self.client.final_models().items()
            if (name in (COMMON, BESIDE_COMMON)) == (view == "aggregate")
        }
        self.best = {**(self.best or {}), **found}

    def state(self) -> dict[str, Any]:
        """The method's state, the remembered models, with compression what was left out, and what takes back a step."""
        state: dict[str, Any] = {"state": self.client.state(), "best": self.best}
        if self.settled:
            number, repeat, calls = self.numbering
            state |= {"asked": self.asked, "numbering": [number, repeat, calls]}
        if self._before is not None and any(self._before):
            state["before"] = list(self._before)
        return {**state, "left_out": dict(self.left_out)} if self.left_out else state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state()``."""
        self.client.load_state(state["state"])
        self.best = state["best"]
        self.left_out = dict(state.get("left_out", {}))
        self.turn, self._before = (0, 0), None
        if "before" in state:
            kept, left_out = state["before"]
            self._before = copy_kept(kept, self.client.kept_on), dict(left_out)
        if "asked" in state:
            self._go_back(state["asked"])
            self.numbering = state["numbering"]

    def finish(self, *, embeddings: bool, study: bool, reported: Reported | None = None) -> dict[str, Any]:
        """Models of the last and the best round, by what features are scaled and filled, and embeddings and answers of
        the best on the first evaluation set."""
        from graphsilo.federation.model_files import fill_tensors, scale_tensors, word_tensors

        client, silo = self.client, self.client.silo
        result: dict[str, Any] = {"last": client.final_models(), "best": self.best}
        if silo.scale is not None:
            result["scale"] = scale_tensors(silo.scale)
        if silo.fills is not None:
            result["fills"] = fill_tensors(silo.fills)
        if silo.schema.booleans:
            result["booleans"] = word_tensors(silo.schema.booleans)
        if study:
            trained = client.count_trained()
            count = {"nodes": silo.num_items, "parameters": trained} if trained else {}
            result["study"] = {**count, **client.study()}
        if not embeddings and reported is None:
            return result
        if self.best is not None:
            last = encode_tree(result["last"])
            client.load_final(self.best)
        with torch.no_grad():
            embedded = client.embed(client.tensors(silo.seen.graph)) if embeddings else None
        if embedded is not None:
            result["embeddings"] = embedded.cpu()
        if reported is not None:
            view, common, agreed = reported
            if common is not None:
                client.install_aggregate(common)
            if silo.schema.task in CLASS_TASKS:
                result["answers"] = client.answers(view)
                if chosen := agreed or client.decide(view):
                    result["decision"] = {view: torch.tensor(chosen, dtype=torch.float64)}
        if self.best is not None:
            result["last"] = decode_tree(last)
            client.load_final(result["last"])
        return result
