"""A method in a federation of one: what each silo reaches by itself with the same method and the same settings. And one
with all data in one place.

Every client holds a server of its own, and its messages stay with it: they are encoded and decoded as in any other
federation, so that the numbers are those of a run with this one client, bit for bit, and nothing of them leaves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

from torch import Tensor

from graphsilo.data.silos.silo import CutLinks
from graphsilo.errors import FederationError, GraphsiloError, UnsupportedError
from graphsilo.federation.client import COMMON, ClientBase, ClientContext
from graphsilo.federation.interface import Failure, Federation, handler
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.message import Message, Tensors
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.federation.settings import MethodConfig
from graphsilo.federation.wire import Encoded
from graphsilo.models.view import GraphTensors
from graphsilo.runtime.dispatch import Inbox, call
from graphsilo.runtime.exchange import Exchange
from graphsilo.runtime.hosted import NOBODY, HostedClient, Reported
from graphsilo.types import ClientId


class FederationOfOne(Exchange):
    """One client, called where it is."""

    def __init__(self, client: ClientBase[Any]):
        super().__init__([client.id])
        self.held = HostedClient(client)

    def deliver(
        self, handler: str, round: int, outgoing: Mapping[ClientId, Encoded]
    ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
        for client, encoded in outgoing.items():
            yield client, call(self.held, handler, round, Inbox(encoded.data))

    def remember(self, clients: Collection[ClientId] | None = None, view: str = "own") -> None:
        self.held.remember(view)

    def client_states(self) -> dict[ClientId, Any]:
        return {self.held.client.id: self.held.state()}

    def load_client_states(self, states: Mapping[ClientId, Any]) -> None:
        self.held.load_state(states[self.held.client.id])

    def finish(
        self, *, embeddings: bool, study: bool = False, reported: Mapping[ClientId, Reported] = NOBODY
    ) -> Iterator[tuple[ClientId, dict[str, Any]]]:
        yield (
            self.held.client.id,
            self.held.finish(embeddings=embeddings, study=study, reported=reported.get(self.held.client.id)),
        )


class StepRequest(Message):
    """Go on by yourself."""


class StepReply(Message):
    """Done; of what was done nothing is said."""


@contextmanager
def _withhold_numbers() -> Iterator[None]:
    """Of what goes wrong in it no number leaves: texts that are about a sender are about this silo's own models here.

    Raises:
        FederationError: Something did; what, its notes say.
    """
    try:
        yield
    except GraphsiloError as error:
        public = FederationError(
            "training alone came to an error whose text stays in the site's own log, as it may hold numbers of this "
            "silo. Mostly numbers are too large or not finite then: try a smaller learning rate, or scaled features."
        )
        public.add_note(f"{type(error).__name__}: {error}")
        raise public from error


class AloneClient(ClientBase[MethodConfig]):
    """A client and a server of the method, in a federation of one.

    Attributes:
        member, coordinator: The method's own classes.
    """

    member: ClassVar[type[ClientBase[Any]]]
    coordinator: ClassVar[type[ServerBase[Any]]]

    def __init__(self, context: ClientContext[MethodConfig]):
        super().__init__(context)
        # Nobody else can fail to answer, and the common model is the client's own.
        config = context.config.model_copy(update={"min_clients": None})
        cut = self.silo.cut  # of links to others there are none
        silo = self.silo if cut is None else replace(self.silo, cut=CutLinks(cut.ids, cut.node[:0], cut.other[:0]))
        own = replace(context, silo=silo, config=config, server_model=context.model)
        self._federation = FederationOfOne(self.member(own))
        self._federation.compression = context.compression
        self._begun = False
        self._server = self.coordinator(
            ServerContext(
                config,
                self.silo.schema,
                {self.id: context.model},
                context.seed,
                (self.id,),
                context.device,
                context.select_by,
            )
        )

    @property
    def _own(self) -> ClientBase[Any]:
        return self._federation.held.client

    @handler
    def set_up_alone(self, request: StepRequest) -> StepReply:
        """All that comes before round 1."""
        self._federation.at("setup", 0)
        with _withhold_numbers():
            self._server.set_up(self._federation)
        self._begun = True
        return self._reply()

    @handler
    def train_alone(self, request: StepRequest) -> StepReply:
        """A round."""
        self._federation.at("round", self.round)
        with _withhold_numbers():
            self._server.round(self._federation, self.round)
        return self._reply()

    def _reply(self) -> StepReply:
        self._server.log.clear()
        self._server.works.clear()
        self._federation.ledger = Ledger()  # nothing was sent
        return StepReply()

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        if view == "aggregate":
            self._own.install_aggregate(self._aggregate())
        return self._own.predict(data, view)

    def _aggregate(self) -> Tensors:
        found = self._server.aggregates().get(self.id)
        if not found:
            raise UnsupportedError(f"{type(self._server).__module__}: this method has no common model to evaluate.")
        return found

    def embed(self, data: GraphTensors) -> Tensor | None:
        return self._own.embed(data)

    def study(self) -> Mapping[str, Any]:
        return self._own.study()

    def state(self) -> dict[str, Any]:
        server = self._server.state() if self._begun else None  # before set-up some have none
        return {"client": self._federation.client_states()[self.id], "server": server}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._federation.load_client_states({self.id: state["client"]})
        self._begun = state["server"] is not None
        if self._begun:
            self._server.load_state(state["server"])

    def final_models(self) -> dict[str, Tensors]:
        models = dict(self._own.final_models())
        common = self._server.aggregates().get(self.id) if self._begun else None
        return {**models, COMMON: common} if models and common else models

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        self._own.load_final({view: weights for view, weights in models.items() if view != COMMON})

    @property
    def can_be_offloaded(self) -> bool:
        return self._own.can_be_offloaded

    def release(self) -> None:
        self._own.release()


class AloneServer(ServerBase[MethodConfig]):
    """Only keeps time."""

    aggregates_at_clients = True

    def set_up(self, federation: Federation) -> None:
        federation.sum(AloneClient.set_up_alone, StepRequest()).require(self.config.min_clients)

    def round(self, federation: Federation, number: int) -> None:
        federation.sum(AloneClient.train_alone, StepRequest()).require(self.config.min_clients)


@cache
def client_of(member: type[ClientBase[Any]], coordinator: type[ServerBase[Any]] | None = None) -> type[ClientBase[Any]]:
    """The class of clients that ``classes_of`` describes: a method's own, or with a server of its own beside it."""
    if coordinator is None:
        return member
    return type("Client", (AloneClient,), {"member": member, "coordinator": coordinator})


def classes_of(client: type[ClientBase[Any]]) -> list[type]:
    """The method's own classes that a class of clients is made of."""
    return [client.member, client.coordinator] if issubclass(client, AloneClient) else [client]


def make_alone(method: Method) -> Method:
    """The method as every silo carries it out by itself; of name and settings it is the same one."""
    return replace(
        method,
        about=method.title + " alone" + (method.about or "").removeprefix(method.title),
        client=client_of(method.client, method.server),
        server=AloneServer,
        alone=True,
    )


def put_in_one_place(method: Method) -> Method:
    """The method on all silos' data in one place; of name and settings it is the same one."""
    views = ("own",) if "own" in method.evaluates else method.evaluates
    about = f"{method.title} in one place" + (method.about or "").removeprefix(method.title)
    return replace(method, about=about, pooled=True, alone=False, evaluates=views)
