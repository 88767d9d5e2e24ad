"""A method whose clients get into trouble on demand; importable by worker processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Literal

import torch

from graphsilo.federation.interface import handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.registry import Method
from graphsilo.federation.settings import setting
from graphsilo.methods import fedavg


class TroubledConfig(fedavg.FedAvgConfig):
    """FedAvg's settings, and the trouble."""

    who: list[int] = setting([], "clients in trouble")
    when: int = setting(2, "round of the trouble")
    how: Literal["raise", "kill", "write", "nan", "shape", "type", "evaluate"] = setting("raise", "kind of trouble")
    marker: str = setting("", "a file that marks that it has happened")


class Echo(Message):
    """Says who and when."""

    client: int = sends("control")
    round: int = sends("control")
    process: int = sends("control")
    value: float = sends("control", default=0.0)


class Client(fedavg.Client[TroubledConfig]):
    """FedAvg's client, until the moment comes."""

    @handler
    def train(self, request: fedavg.TrainRequest) -> fedavg.TrainReply:
        """As FedAvg, except when it is not."""
        how = self.config.how
        if self.id not in self.config.who or self.round != self.config.when or how == "evaluate":
            return fedavg.Client.train.function(self, request)
        if how == "raise":
            raise ValueError("the disk of this hospital is gone")
        if how == "kill" and not Path(self.config.marker).exists():
            if "GRAPHSILO_TROUBLE" not in os.environ:
                Path(self.config.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "write":
            next(iter(request.weights.values())).add_(1.0)
        reply = fedavg.Client.train.function(self, request)
        if how == "nan":
            return fedavg.TrainReply(
                weights={name: torch.full_like(value, float("nan")) for name, value in reply.weights.items()},
                num_samples=1.0,
            )
        if how == "shape":
            return fedavg.TrainReply(
                weights={name: value.reshape(-1) for name, value in reply.weights.items()}, num_samples=1.0
            )
        if how == "type":
            return Echo(client=self.id, round=self.round, process=0)  # type: ignore[return-value]
        return reply

    @handler
    def echo(self, request: Echo) -> Echo:
        """Who, when and where."""
        return Echo(client=self.id, round=self.round, process=os.getpid(), value=request.value + 1.0)

    @handler
    def weights(self, request: Message) -> Message:
        """Never called."""
        return request

    def predict(self, data, view="own"):
        if self.config.how == "evaluate" and self.id in self.config.who and self.round == self.config.when:
            raise ValueError("this hospital cannot evaluate")
        return super().predict(data, view)


class Server(fedavg.Server[TroubledConfig]):
    """As FedAvg."""

    client = Client


METHOD = Method(
    name="troubled",
    about="Troubled — FedAvg with accidents.",
    config=TroubledConfig,
    client=Client,
    server=Server,
)


class WeightsOnly(Message):
    """Named tensors."""

    weights: Tensors = sends("model")
