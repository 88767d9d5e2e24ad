"""FedDyn — FedAvg with a linear and a quadratic term in every client's loss, so that all end where all would.

Acar et al. "Federated Learning Based on Dynamic Regularization". ICLR 2021.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from graphsilo.federation.averaging import AveragingServer
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import LocalTrainingConfig, setting
from graphsilo.federation.training_client import TrainingClient
from graphsilo.types import ClientId


class FedDynConfig(LocalTrainingConfig):
    """Settings of FedDyn."""

    alpha: float = setting(0.1, "strength of both terms (α)", source="paper: 0.1 to 0.001", gt=0)


class TrainRequest(Message):
    weights: Tensors = sends("model")


class TrainReply(Message):
    weights: Tensors = sends("model", weighted_by="num_samples")
    num_samples: float = sends("counts")  # 1: clients count alike


class Client(TrainingClient[FedDynConfig]):
    kept = ("slopes",)

    def __init__(self, context: ClientContext[FedDynConfig]):
        super().__init__(context)
        self.slopes = [torch.zeros_like(parameter) for parameter in self.model.parameters()]  # g_k

    @handler
    def train(self, request: TrainRequest) -> TrainReply:
        self.download(request.weights)
        alpha, parameters = self.config.alpha, list(self.model.parameters())
        start = [parameter.detach().clone() for parameter in parameters]  # w

        def adjust(gradients: list[Tensor], batch: object) -> None:
            """From ∇L_k(θ) to ∇[L_k(θ) - ⟨g_k, θ⟩ + α/2 ‖θ - w‖²], parameter by parameter and in place."""
            for gradient, theta, w, slope in zip(gradients, parameters, start, self.slopes, strict=True):
                gradient.add_(theta - w, alpha=alpha).sub_(slope)

        steps = self.run_epochs(adjust=adjust)
        ends = [parameter.detach() for parameter in parameters]
        self.slopes = [slope - alpha * (end - w) for slope, end, w in zip(self.slopes, ends, start, strict=True)]
        return TrainReply(weights=self.upload(), num_samples=float(steps > 0))


class Server(AveragingServer[FedDynConfig]):
    kept = ("weights", "shift")

    def __init__(self, context: ServerContext[FedDynConfig]):
        super().__init__(context)
        named = self.build_model().named_parameters()
        self.shift = {name: torch.zeros_like(parameter.detach()) for name, parameter in named}  # h

    def collect(self, federation: Federation, clients: Sequence[ClientId]) -> TrainReply:
        request = TrainRequest(weights=self.weights)
        return federation.sum(Client.train, request, to=clients).require(self.config.min_clients)

    def combine(self, total: TrainReply) -> None:
        """h ← h - α/m Σ (θ_k - w), and the model becomes the mean of θ_k less h/α."""
        before = self.weights
        super().combine(total)  # now self.weights is the mean
        share = self.config.alpha * total.num_samples / len(self.context.clients)
        if share > 0:
            self.shift = {name: h - share * (self.weights[name] - before[name]) for name, h in self.shift.items()}
            self.weights |= {name: self.weights[name] - h / self.config.alpha for name, h in self.shift.items()}


METHOD = Method(
    about=__doc__, name="feddyn",
    config=FedDynConfig, client=Client, server=Server, edge_weights=True,
)  # fmt: skip
