"""Local only — every silo trains alone; nothing is shared.

The lower reference of every comparison.
"""

from __future__ import annotations

from typing import Literal

from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Message, sends
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerBase
from graphsilo.federation.settings import LocalTrainingConfig, setting
from graphsilo.federation.training_client import TrainingClient


class LocalConfig(LocalTrainingConfig):
    """Settings of local training; a round is ``local_epochs`` epochs, so that curves line up with FedAvg's."""

    best_round: Literal["own", "common"] = setting(
        "own",
        "the reported round: own is each silo's, by its own validation, as a silo alone would choose; common is one "
        "for all, by the mean over silos",
    )


class TrainRequest(Message):
    """Train on."""


class TrainReply(Message):
    """Done."""

    clients: int = sends("counts", known=True)


class Client(TrainingClient[LocalConfig]):
    """Starts from the common initial weights (drawn from the seed, not sent) and receives nothing from others."""

    @handler
    def train_alone(self, request: TrainRequest) -> TrainReply:
        """A round's epochs on the own graph."""
        self.run_epochs()
        return TrainReply(clients=1)


class Server(ServerBase[LocalConfig]):
    """Only keeps time."""

    def round(self, federation: Federation, number: int) -> None:
        federation.sum(Client.train_alone, TrainRequest(), to=self.select(federation, number)).require(
            self.config.min_clients
        )


METHOD = Method(
    about=__doc__,
    name="local",
    family="references",
    aliases=("standalone",),
    config=LocalConfig,
    client=Client,
    server=Server,
    heterogeneous=True,
    evaluates=("own",),
    edge_weights=True,
    alone=True,
    trials={
        "reset_optimizer": Trial(reason="whoever trains alone downloads nothing"),
        "best_round": Trial(reason="decides what is reported"),
    },
)
