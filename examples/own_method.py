"""FedPer: clients share the encoder and keep the classifier to themselves. A complete method.

Arivazhagan et al. "Federated Learning with Personalization Layers". arXiv 1912.00818, 2019.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.federation.settings import LocalTrainingConfig
from graphsilo.federation.training_client import TrainingClient
from graphsilo.training.local import weights_of


class TrainRequest(Message):
    encoder: Tensors = sends("model")


class TrainReply(Message):
    encoder: Tensors = sends("model", weighted_by="num_samples")
    num_samples: float = sends("counts")


class Client(TrainingClient[LocalTrainingConfig]):
    @property
    def shared(self) -> Sequence[str]:
        return self.model.encoder_names()

    @handler
    def train(self, request: TrainRequest) -> TrainReply:
        self.download(request.encoder)
        self.run_epochs()
        return TrainReply(encoder=self.upload(), num_samples=float(self.trainer.objective.num_samples))


class Server(ServerBase[LocalTrainingConfig]):
    def __init__(self, context: ServerContext[LocalTrainingConfig]):
        super().__init__(context)
        model = self.build_model()
        self.encoder = {name: weights_of(model)[name] for name in model.encoder_names()}

    def round(self, federation: Federation, number: int) -> None:
        total = federation.sum(Client.train, TrainRequest(encoder=self.encoder), to=self.select(federation, number))
        reply = total.require(self.config.min_clients)
        if reply.num_samples > 0:
            self.encoder = {name: (value / reply.num_samples).float() for name, value in reply.encoder.items()}

    def state(self) -> dict[str, Any]:
        return {"encoder": dict(self.encoder)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.encoder = dict(state["encoder"])


METHOD = Method(
    name="fedper", title="FedPer", citation="Arivazhagan et al. arXiv 1912.00818, 2019.",
    summary="A shared encoder, and a classifier of every client's own.",
    config=LocalTrainingConfig, client=Client, server=Server, evaluates=("own",), edge_weights=True,
)  # fmt: skip
