"""FedPer — a shared encoder, and a classifier of every client's own.

Arivazhagan et al. "Federated Learning with Personalization Layers". arXiv 1912.00818, 2019.
"""

from collections.abc import Sequence

from graphsilo.federation.averaging import AveragingServer
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import LocalTrainingConfig
from graphsilo.federation.training_client import TrainingClient
from graphsilo.types import ClientId


class TrainRequest(Message):
    weights: Tensors = sends("model")


class TrainReply(Message):
    weights: Tensors = sends("model", weighted_by="num_samples")
    num_samples: float = sends("counts")


class Client(TrainingClient[LocalTrainingConfig]):
    @property
    def shared(self) -> Sequence[str]:
        return self.model.encoder_names()

    @handler
    def train(self, request: TrainRequest) -> TrainReply:
        self.download(request.weights)
        self.run_epochs()
        return TrainReply(weights=self.upload(), num_samples=float(self.trainer.objective.num_samples))


class Server(AveragingServer[LocalTrainingConfig]):
    def __init__(self, context: ServerContext[LocalTrainingConfig]):
        super().__init__(context)
        names = self.build_model().encoder_names()
        self.weights = {name: self.weights[name] for name in names}

    def collect(self, federation: Federation, clients: Sequence[ClientId]) -> TrainReply:
        request = TrainRequest(weights=self.weights)
        return federation.sum(Client.train, request, to=clients).require(self.config.min_clients)


METHOD = Method(
    about=__doc__, name="fedper",
    config=LocalTrainingConfig, client=Client, server=Server, evaluates=("own",), edge_weights=True,
)  # fmt: skip
