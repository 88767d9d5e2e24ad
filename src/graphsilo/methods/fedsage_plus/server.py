"""FedSage+'s server: passes on what generators exchange, and averages classifiers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from graphsilo.errors import MessageError, UnsupportedError
from graphsilo.federation.interface import Federation, Handler, Reply, Request
from graphsilo.federation.message import diff_shapes, shapes_of
from graphsilo.methods import fedavg
from graphsilo.methods.fedsage_plus.client import Client
from graphsilo.methods.fedsage_plus.config import FedSagePlusConfig
from graphsilo.methods.fedsage_plus.messages import (
    Generated,
    Generator,
    ImproveRequest,
    MendRequest,
    OfferRequest,
    PretrainRequest,
    SharedRequest,
)
from graphsilo.training import neighgen
from graphsilo.training.impaired import MAX_SLOTS
from graphsilo.training.optimizer import Adam
from graphsilo.types import ClientId

MAX_RELAYS = 10_000_000
"""Most comparisons of a set-up: at a millisecond each they take three hours."""
MAX_BYTES = 20 * 10**12
"""Most bytes of a set-up's exchange of weights: some five hours of encoding, comparing and adding up."""


class Server(fedavg.Server[FedSagePlusConfig]):
    """Carries generators and summed gradients between clients, then averages classifiers."""

    def expected_bytes(self) -> tuple[int, int]:
        """Of the weights of classifier and generator; the generator's with all of its slots."""
        config, clients = self.config, len(self.context.clients)
        each = 4 * neighgen.count_fgen(config, self.schema.num_features, MAX_SLOTS)
        sent = received = 0
        if config.neighgen == "shared":
            each += 4 * neighgen.count_others(config, self.schema.num_features, self.schema.num_classes)
            sent = clients * (config.local_generator_epochs + config.generator_epochs) * each
            received = sent + clients * each
        elif config.exchange == "weights" and config.lambda_f * config.alpha:
            sent = received = clients * config.generator_epochs * (1 + config.num_comparing(clients)) * each
        rounds = super().expected_bytes()
        return sent + rounds[0], received + rounds[1]

    def set_up(self, federation: Federation) -> None:
        if self.config.neighgen == "shared":
            weights = self._train_shared(federation)
            total = federation.sum(Client.mend, MendRequest(weights=weights)).require(self.config.min_clients)
            if total.nodes:
                self.log["generated_neighbours"] = total.generated / total.nodes
            return
        check_volume(self.config, len(federation.clients), self.schema.num_features)
        everyone = federation.sum(Client.pretrain, PretrainRequest())
        reply = everyone.require(self.config.min_clients)
        if reply.nodes:
            self.log["true_hidden_neighbours"] = reply.missing / reply.nodes
            self.log["predicted_hidden_neighbours"] = reply.predicted / reply.nodes
        # A client's generator depends on no other's: one client after the other needs the least memory.
        nodes = generated = 0.0
        left = set(everyone.clients)  # whoever fails from now on is not asked to compare any more
        for place in self.work("generators of the clients", len(everyone.clients)):
            client = everyone.clients[place]
            for epoch in range(self.config.generator_epochs):
                gradients = self._exchange(federation, client, left, epoch)
                if gradients is None:
                    break
                request = ImproveRequest(clients=len(everyone.clients), **gradients)
                if self._one(federation, Client.improve, request, client, left) is None:
                    break
            mended = self._one(federation, Client.mend, MendRequest(), client, left)
            if mended is not None:
                nodes, generated = nodes + mended.nodes, generated + mended.generated
        if nodes:
            self.log["generated_neighbours"] = generated / nodes

    def _one(
        self,
        federation: Federation,
        handler: Handler[Request, Reply],
        request: Request,
        client: ClientId,
        left: set[ClientId],
        check: Callable[[ClientId, Reply], None] | None = None,
    ) -> Reply | None:
        """One client's answer; None from one that failed, where fewer answers are allowed: it leaves ``left``."""
        replies = federation.ask(handler, request, to=(client,), check=check)
        left.difference_update(replies.failures)
        return replies.require(None if self.config.min_clients is None else 0).answers.get(client)

    def _exchange(
        self, federation: Federation, client: ClientId, left: set[ClientId], epoch: int
    ) -> dict[str, Any] | None:
        """The sum of the gradients of all that are ``left`` for one client's generator.

        Empty where there is nothing to compare; None where the client failed: it is not asked to go on, because its
        draws would no longer be those of what it offers.
        """
        alone = left <= {client} and self.config.min_clients in (None, 1)
        if alone or self.config.lambda_f * self.config.alpha == 0:
            return {}
        others = left - {client}
        asked = self._helpers(client, epoch, sorted(others))
        scale = len(others) / max(len(asked), 1)
        if self.config.exchange == "outputs":
            made = self._one(federation, Client.offer_outputs, OfferRequest(), client, left, self._check_made)
            if made is None or not len(made.counts):
                return None if made is None else {}
            outputs = self._others(federation, Client.compare_outputs, made, asked, left)
            return {} if outputs is None else {"outputs": outputs.gradient.mul_(scale).float()}
        offer = self._one(federation, Client.offer, OfferRequest(), client, left, self._check_offer)
        if offer is None or not len(offer.counts):
            return None if offer is None else {}
        total = self._others(federation, Client.compare, offer, asked, left)
        if total is None:
            return {}
        return {"weights": {name: part.mul_(scale).float() for name, part in total.gradient.items()}}

    def _helpers(self, client: ClientId, epoch: int, others: Sequence[ClientId]) -> tuple[ClientId, ...]:
        """Who compares in this epoch."""
        count = self.config.num_comparing(len(others) + 1)
        if count == len(others):
            return tuple(others)
        order = torch.randperm(len(others), generator=self.generator("helpers", client, epoch))[:count]
        return tuple(sorted(others[place] for place in order.tolist()))

    def _check_offer(self, client: ClientId, offer: Generator) -> None:
        """Refuse a generator that the other clients could not run: they, not its sender, would fail.

        Raises:
            MessageError: It is none.
        """
        if not len(offer.counts):
            return
        _check_counts(client, offer.counts)
        wanted = neighgen.fgen_shapes(self.config, self.schema.num_features, int(offer.counts.max()))
        found, width = shapes_of(offer.weights), self.config.encoder_widths[1]
        if found != wanted or offer.embeddings.shape[1] != width:
            raise MessageError(
                f"client {client} offers {diff_shapes(found, wanted)} and embeddings of {offer.embeddings.shape[1]} "
                f"entries as its generator; {diff_shapes(wanted, found)} and {width} were expected. All "
                f"clients must run the same settings."
            )

    def _check_made(self, client: ClientId, made: Generated) -> None:
        """Refuse generated features that cannot be compared.

        Raises:
            MessageError: They cannot.
        """
        if not len(made.counts):
            return
        _check_counts(client, made.counts)
        wanted = (int(made.counts.sum()), self.schema.num_features)
        if tuple(made.features.shape) != wanted:
            raise MessageError(
                f"client {client} must offer features of shape {wanted}; {tuple(made.features.shape)} came."
            )

    def _others(
        self,
        federation: Federation,
        handler: Handler[Request, Reply],
        request: Request,
        asked: tuple[ClientId, ...],
        left: set[ClientId],
    ) -> Reply | None:
        """The sum over those that are asked; None where none of them answered and none has to."""
        total = federation.sum(handler, request, to=asked)
        left.difference_update(total.failures)
        minimum = self.config.min_clients
        if minimum == 1 and not total.clients:
            return None
        # Who is helped is there, too, and counts as one of those that have to be.
        return total.require(None if minimum is None else min(minimum - 1, len(asked)))

    def _train_shared(self, federation: Federation) -> dict[str, Tensor]:
        """One generator for all: Adam on the mean gradient of the local losses."""
        config = self.config
        weights = neighgen.initial_weights(
            config, self.schema.num_features, self.schema.num_classes, lambda part: self.generator("neighgen", part)
        )
        optimizer = Adam(list(weights.values()), lr=config.generator_lr, weight_decay=config.generator_weight_decay)
        for _ in self.work("common generator", config.local_generator_epochs + config.generator_epochs):
            total = federation.sum(Client.shared_gradient, SharedRequest(weights=weights)).require(config.min_clients)
            if total.clients:
                optimizer.step([total.gradient[name].div_(total.clients).float() for name in weights])
        return weights


def _check_counts(client: ClientId, counts: Tensor) -> None:
    if int(counts.min()) < 1 or int(counts.max()) > MAX_SLOTS or bool((counts.diff() > 0).any()):
        raise MessageError(
            f"client {client} must say 1 to {MAX_SLOTS} neighbours per node, descending; {counts[:5].tolist()} came."
        )


def check_volume(config: FedSagePlusConfig, clients: int, features: int) -> None:
    """Refuse an exchange of everybody with everybody that would not end: it grows with the square of the clients.

    Raises:
        UnsupportedError: There are too many comparisons, or they carry too much; the text names both.
    """
    if config.lambda_f * config.alpha == 0:
        return  # nobody is asked to compare
    relays = clients * config.num_comparing(clients) * config.generator_epochs
    weights = neighgen.count_fgen(config, features, 1)
    volume = 8 * weights * relays if config.exchange == "weights" else 0  # one slot at least, there and back
    if relays <= MAX_RELAYS and volume <= MAX_BYTES:
        return
    carried = f" that carry at least {volume / 1e12:.0f} TB" if volume else ""
    raise UnsupportedError(
        f"FedSage+ has every client's generator compared by {config.num_comparing(clients)} others in each epoch: with "
        f"{clients} clients and {config.generator_epochs} epochs these are {relays:.2g} comparisons{carried}. Set "
        f"method.helpers=3 (that many others, drawn in every epoch), method.neighgen=shared (one generator for "
        f"all, the paper's appendix D), method.alpha=0 (no comparisons), or lower method.generator_epochs."
    )
