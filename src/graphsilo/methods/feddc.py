"""FedDC — FedAvg whose clients sum up how they drift, steer against it, and whose server adds the mean drift.

Gao, Fu, Li, Chen, Xu, Xu. "FedDC: Federated Learning with Non-IID Data via Local Drift Decoupling and Correction". CVPR
2022.

FedAvg in which every client keeps a drift h_k, the sum of its moves away from the shared model so far. Local steps are
pulled to w − h_k, their gradients corrected as SCAFFOLD does, and the server adds the mean drift to the mean model.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from graphsilo.data.silos.silo import Schema
from graphsilo.errors import MessageError
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import handler
from graphsilo.federation.message import Empty, Message, sends
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import setting
from graphsilo.methods import fedavg, scaffold
from graphsilo.training.local import check_weights


class FedDCConfig(fedavg.FedAvgConfig):
    """Settings of FedDC."""

    optimizer: Literal["adam", "sgd"] = setting("sgd", "local optimiser", source="paper; OpenFGL uses adam")
    lr: float = setting(0.5, "learning rate (η)", source="ours: tuned for FedAvg with sgd on Cora", gt=0)
    alpha: float = setting(
        0.1, "strength of the pull to w - h_k (α)",
        source="authors' code on MNIST, OpenFGL; authors' code 0.01 on CIFAR, 0.005 on synthetic data", ge=0,
    )  # fmt: skip
    correction: Literal["paper", "scaffold", "own", "none"] = setting(
        "paper", "c_k in the correction c - c_k: (w - θ_k) / (K η), or less what was corrected; own: -c_k alone",
        source="paper; scaffold: authors' code, own: OpenFGL",
    )  # fmt: skip
    weighted: Literal["means", "objectives"] = setting(
        "means", "what a client's weight scales: its share in the means, or its loss against α and c",
        source="paper; objectives: authors' code", when={"weight_by": ("train", "nodes")},
    )  # fmt: skip

    @property
    def shares_control(self) -> bool:
        """Whether c is made."""
        return self.correction in ("paper", "scaffold")

    def explain_no_effect(self, schema: Schema, items: int, asked: int, model: str) -> str:
        if self.optimizer == "sgd" and self.momentum > 0:
            return (
                "drifts add up how far clients moved, which momentum carries past where they are pulled to: training "
                "may diverge. Use method.momentum=0."
            )
        if self.optimizer == "adam" and self.shares_control:
            return (
                f"with method.correction={self.correction} a client's gradient is taken to be how far it moved over "
                f"K η, which holds for plain SGD alone. With Adam use method.correction=own or none."
            )
        return ""


class CountReply(scaffold.CountReply):
    """The client's weight, and 1 if it has any."""

    clients: float = sends("counts", steady=("clients",))


class TrainRequest(scaffold.TrainRequest):
    """The shared model, c, and the mean weight of all clients; 0 where it weighs nothing."""

    mean_weight: float = sends("counts")


class TrainReply(scaffold.TrainReply):
    """The same; where objectives are weighted, each client that trains counts once."""

    num_samples: float = sends("counts", steady=("weight", "clients"))

    def check_answer(self, request: Message) -> None:
        assert isinstance(request, TrainRequest)
        if request.mean_weight and self.num_samples > 1:
            raise MessageError(f"TrainReply.num_samples is {self.num_samples:g}; each client counts once.")


class Client(scaffold.ControlClient[FedDCConfig]):
    """Adds α (θ − w + h_k) + c − c_k to every gradient.

    Attributes:
        drift: h_k by name.
    """

    kept = (*scaffold.ControlClient.kept, "drift")

    def __init__(self, context: ClientContext[FedDCConfig]):
        super().__init__(context)
        self.drift = {name: torch.zeros_like(value) for name, value in self.control.items()}

    @handler
    def count(self, request: Empty) -> CountReply:
        """Say what this client counts for."""
        return CountReply(weight=self.weight, clients=float(self.weight > 0))

    @handler
    def train(self, request: TrainRequest) -> TrainReply:  # type: ignore[override]
        """Download, corrected local steps, new h_k and c_k, upload."""
        config, here, old = self.config, self.data.device, self.control
        check_weights(old, request.control, names=old if config.shares_control else ())
        self.download(request.weights)
        share = self.weight / request.mean_weight if config.weighted == "objectives" and self.weight else 1.0
        alpha, start = config.alpha / share, [request.weights[name].to(here) for name in old]
        common = [request.control[name].to(here) / share if config.shares_control else 0.0 for name in old]
        corrected = [c - mine for c, mine in zip(common, old.values(), strict=True)]
        shift = corrected
        if alpha:
            away = zip(corrected, self.drift.values(), start, strict=True)
            shift = [one + alpha * (drift - w) for one, drift, w in away]

        theta: list[Tensor] = list(self.trainer.parameters)

        def correct(gradients: list[Tensor], _: object) -> None:
            torch._foreach_add_(gradients, shift)
            if alpha:
                torch._foreach_add_(gradients, theta, alpha=alpha)

        steps = self.run_epochs(adjust=correct)
        if steps:
            moved = [self.weights[name].detach() - w for name, w in zip(old, start, strict=True)]
            self.drift = {name: self.drift[name] + way for name, way in zip(old, moved, strict=True)}
            rate, again = -1.0 / (steps * config.lr), config.correction == "scaffold"
            new = [rate * way - one if again else rate * way for way, one in zip(moved, corrected, strict=True)]
            if config.correction != "none":
                self.control = dict(zip(old, new, strict=True))
        change = {name: share * (value - old[name]) for name, value in self.control.items()}
        samples = float(self.weight > 0) if config.weighted == "objectives" else self.weight
        return TrainReply(weights=self.upload(), control=change if config.shares_control else {}, num_samples=samples)


class Server(scaffold.Server[FedDCConfig]):
    """Keeps w, c and the mean drift, which it knows from the models; needs only sums."""

    client = Client
    kept = (*scaffold.Server.kept, "drift", "mean_weight")

    def __init__(self, context: ServerContext[FedDCConfig]):
        super().__init__(context)
        self.drift = {name: torch.zeros_like(value) for name, value in self.control.items()}
        self.mean_weight = 1.0
        if not self.config.shares_control:
            self.control = {}

    def weigh(self, count: CountReply) -> None:  # type: ignore[override]
        by_clients, old = self.config.weighted == "objectives", self.total
        self.total = count.clients if by_clients else count.weight
        self.drift = scaffold.rescale(self.drift, old, self.total)
        # What c sums up is in both ways p_k c_k, as a multiple of the mean weight where objectives are weighted.
        weight = old * self.mean_weight if by_clients else old
        self.control = scaffold.rescale(self.control, weight, count.weight)
        self.mean_weight = count.weight / max(count.clients, 1.0)

    def expected_bytes(self) -> tuple[int, int]:
        up, down = super().expected_bytes()
        return (up, down) if self.control else (up // 2, down // 2)

    def request(self) -> TrainRequest:
        mean = self.mean_weight if self.config.weighted == "objectives" else 0.0
        return TrainRequest(weights=self.weights, control=self.control, mean_weight=mean)

    def combine(self, total: scaffold.TrainReply) -> None:  # type: ignore[override]
        before = self.weights
        super().combine(total)
        if total.num_samples > 0:
            for name, drift in self.drift.items():
                moved = total.weights[name].double() - total.num_samples * before[name].double()
                self.drift[name] = (drift.double() + moved / self.total).to(drift)
                self.weights[name] = self.weights[name] + self.drift[name]
        self.log["drift"] = float(torch.stack([drift.norm() for drift in self.drift.values()]).norm())


METHOD = Method(
    about=__doc__,
    name="feddc",
    family="averages of models",
    near=("FedDyn",),
    config=FedDCConfig,
    client=Client,
    server=Server,
    edge_weights=True,
    space=(
        {"optimizer": ["sgd"], "lr": [0.05, 0.2, 0.5, 1.0], "alpha": [0.005, 0.01, 0.1]},
        {"optimizer": ["adam"], "lr": [0.003, 0.01], "alpha": [0.005, 0.01, 0.1]},
    ),
)
