"""FedPG's server: generalises prototypes and mixes them for each client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.interface import Failure, Federation, Replies
from graphsilo.federation.message import Empty
from graphsilo.federation.prototypes import check_widths
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.methods.fedpg.client import Client
from graphsilo.methods.fedpg.config import DEEPEST, FedPGConfig
from graphsilo.methods.fedpg.generator import contrastive_loss, make_queries, personalise
from graphsilo.methods.fedpg.messages import HelloReply, TrainReply, TrainRequest
from graphsilo.random import Name
from graphsilo.training.optimizer import Optimizer, optimizer
from graphsilo.training.prototypes import PrototypeGenerator, class_means, orthogonal_rows, unit_rows
from graphsilo.training.upstream import gradients_of
from graphsilo.types import ClientId


class Server(ServerBase[FedPGConfig]):
    """Keeps every client's latest prototypes, and the generator of universal ones."""

    kept = ("hops", "width", "norm", "prototypes", "counts", "targets")
    stateful = ("universal", "optimizer")

    def __init__(self, context: ServerContext[FedPGConfig]):
        super().__init__(context)
        self.place = {client: index for index, client in enumerate(context.clients)}
        self.hops, self.width = 0, 0
        self.prototypes = self.counts = torch.empty(0)
        self.targets: Tensor | None = None
        self.norm: float | None = None
        self.universal: PrototypeGenerator | None = None
        self.optimizer: Optimizer | None = None

    def set_up(self, federation: Federation) -> None:
        """Learn how wide and how deep the clients' models are."""
        replies = federation.ask(Client.hello, Empty(), check=_check_hello)
        widths = Counter(reply.width for _, reply in replies).most_common()
        if self.config.min_clients is not None and len(widths) > 1 and widths[0][1] > widths[1][1]:
            replies = _drop_other_widths(federation, replies, widths[0][0])
        replies.require(self.config.min_clients)
        check_widths({client: reply.width for client, reply in replies})
        depths = [reply.depth for _, reply in replies]
        deepest = min(*depths, DEEPEST) if self.config.hops is None else self.config.hops
        self._start(deepest, next(reply.width for _, reply in replies))

    def _start(self, hops: int, width: int) -> None:
        self.hops, self.width = hops, width
        clients, classes = len(self.place), self.schema.num_classes
        self.prototypes = torch.zeros(clients, classes, hops + 1, width, device=self.context.device)
        self.counts = torch.zeros(clients, classes, dtype=torch.int32, device=self.context.device)
        self._new_generator("generator")

    def _new_generator(self, *names: Name) -> None:
        config, rows = self.config, self.schema.num_classes * (self.hops + 1)
        self.universal = PrototypeGenerator(rows, self.width, self.generator(*names), self.context.device)
        self.optimizer = optimizer(config.server_optimizer, self.universal.parameters, lr=config.server_lr)

    def round(self, federation: Federation, number: int) -> None:
        chosen = self.select(federation, number)
        requests = self._requests(chosen)
        replies = federation.ask(Client.train, requests, check=self._check).require(self.config.min_clients)
        for client, reply in replies:
            self._keep(client, reply)
        if bool(self.present.any()):
            self._mix(number)

    def _requests(self, chosen: Sequence[ClientId]) -> dict[ClientId, TrainRequest]:
        """Ṗ for each client; nothing for one that has uploaded nothing yet."""
        fresh = TrainRequest(hops=self.hops)
        if self.targets is None:
            return dict.fromkeys(chosen, fresh)
        present = self.present
        known = present.flatten(1).any(1).tolist()
        requests = {}
        for client in chosen:
            place = self.place[client]
            if known[place]:
                requests[client] = TrainRequest(hops=self.hops, prototypes=self.targets[place], present=present[place])
            else:
                requests[client] = fresh
        return requests

    def _check(self, client: ClientId, reply: TrainReply) -> None:
        """Refuse prototypes of another shape than set-up agreed on.

        Raises:
            MessageError: They are.
        """
        wanted = self.prototypes[self.place[client]].shape
        if reply.prototypes.shape != wanted:
            raise MessageError(
                f"client {client} must send prototypes of shape {tuple(wanted)}; {tuple(reply.prototypes.shape)} "
                f"came. All clients must run the same settings."
            )

    def _keep(self, client: ClientId, reply: TrainReply) -> None:
        place = self.place[client]
        self.prototypes[place] = reply.prototypes.to(self.prototypes)
        self.counts[place] = reply.counts.to(self.counts)

    @property
    def present(self) -> Tensor:
        """[K, C, L + 1] which prototypes there are."""
        return (self.prototypes != 0).any(-1)

    def _mix(self, number: int) -> None:
        """Universal prototypes, then every client's own mixture."""
        config, present = self.config, self.present
        lengths = self.prototypes[present].norm(dim=1)
        if self.norm is None:
            self.norm = float(lengths.mean())
        rows = self._learn(number, present)
        self.log["generated_norm"] = float(rows[present.any(0).flatten()].norm(dim=1).mean())
        self.log["uploaded_norm"] = float(lengths.mean())
        if config.norm != "free" or config.generator == "code":
            rows = unit_rows(rows) * (self.norm if isinstance(config.norm, str) else config.norm)
        universal = rows.view(self.prototypes.shape[1:])
        self.targets, similar = personalise(
            self.prototypes, present, self.counts, universal, alpha=config.alpha, threshold=config.similarity
        )
        self.log["similar_clients"] = float(similar.sum(1).float().mean())

    def _learn(self, number: int, present: Tensor) -> Tensor:
        """P̃ [R, p] after this round's steps."""
        config = self.config
        if config.generator == "code":
            code = orthogonal_rows(self.schema.num_classes, self.width, self.generator("code"))
            return code.repeat_interleave(self.hops + 1, 0).to(self.prototypes)  # the same at every hop
        if config.restart:
            self._new_generator("round", number, "generator")
        assert self.universal is not None
        assert self.optimizer is not None
        queries = make_queries(self.prototypes, present, config, self.generator("round", number, "queries"))
        loss = torch.zeros(())
        for step in range(config.server_epochs):
            rows, hidden = self.universal.forward()
            loss = contrastive_loss(rows.requires_grad_(), queries, config.temperature)
            (slope,) = gradients_of(loss, [rows])
            if step == 0:
                self.log["generator_loss_before"] = loss.item()
            self.optimizer.step(self.universal.gradients(hidden, slope))
        self.log["generator_loss"] = loss.item()
        self.log["margin"] = queries.margin
        rows = self.universal()
        known = present.any(0).flatten()
        classes = torch.arange(len(rows), device=rows.device) // (self.hops + 1)
        for name, values, owners in (
            ("generated_cosine", unit_rows(rows[known]), classes[known]),
            ("uploaded_cosine", queries.values, present.nonzero(as_tuple=True)[1]),
        ):
            centres, counts = class_means(values, owners, self.schema.num_classes)
            self.log[name] = mean_cosine(centres[counts > 0])
        return rows

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._start(state["hops"], state["width"])
        super().load_state(state)


def mean_cosine(rows: Tensor) -> float:
    """Mean cosine of two different rows; 0 with fewer than two."""
    count = len(rows)
    if count < 2:
        return 0.0
    unit = unit_rows(rows)
    return float((unit.sum(0).square().sum() - unit.square().sum()) / (count * (count - 1)))


def _check_hello(client: ClientId, reply: HelloReply) -> None:
    if reply.width < 1 or reply.depth < 0:
        raise MessageError(f"client {client} says that its model has {reply.depth} layers of {reply.width} entries.")


def _drop_other_widths(federation: Federation, replies: Replies[HelloReply], width: int) -> Replies[HelloReply]:
    """The answers of those with the width that most have; the others have failed."""
    failures = dict(replies.failures)
    for client, reply in replies:
        if reply.width != width:
            reason = f"its embeddings have {reply.width} entries, those of most others {width}"
            failures[client] = Failure(client, Client.hello.name, "MessageError", reason)
            federation.note_failure(failures[client])
    return Replies(
        {client: reply for client, reply in replies if client not in failures}, dict(sorted(failures.items()))
    )
