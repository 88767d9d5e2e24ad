"""SCAFFOLD — FedAvg whose local steps are corrected by the difference of everybody's and the client's own gradient.

Karimireddy et al. "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning". ICML 2020.

FedAvg in which every client keeps an estimate c_k of its own gradient, and the server the mean c of all of them. Local
steps follow their gradient + c − c_k, which is near the gradient of the whole federation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Literal, TypeVar

import torch
from torch import Tensor

from graphsilo.data.silos.silo import Schema
from graphsilo.errors import FederationError
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Empty, Message, Tensors, sends
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import setting
from graphsilo.methods import fedavg
from graphsilo.training.local import check_weights
from graphsilo.types import ClientId


class ScaffoldConfig(fedavg.FedAvgConfig):
    """Settings of SCAFFOLD."""

    weight_by: Literal["train", "nodes", "uniform"] = setting("uniform", "weight in both means", source="paper")
    optimizer: Literal["adam", "sgd"] = setting("sgd", "local optimiser", source="paper; OpenFGL uses adam")
    lr: float = setting(0.5, "learning rate (η)", source="ours: tuned for FedAvg with sgd on Cora", gt=0)
    control_update: Literal["option1", "option2", "mean_gradient"] = setting(
        "option2", "new c_k: gradient at the download, c_k - c + (w - y) / (K η), mean of all steps", source="paper"
    )

    def explain_no_effect(self, schema: Schema, items: int, asked: int, model: str) -> str:
        plain = self.optimizer == "sgd" and self.momentum == 0
        if plain or self.control_update != "option2":
            return ""
        used = "Adam" if self.optimizer == "adam" else "momentum"
        return (
            f"with method.control_update=option2 a control is how far a client moved over K η, which is a mean of "
            f"gradients for plain SGD alone: with {used} it is not, and training may diverge. Use "
            f"method.control_update=mean_gradient, or plain SGD."
        )


class CountReply(Message):
    """The client's weight in both means; 0 for one with nothing to train on."""

    weight: float = sends("counts", steady=("weight",))


class TrainRequest(fedavg.TrainRequest):
    """The shared model and c."""

    control: Tensors = sends("gradient")


class TrainReply(fedavg.TrainReply):
    """The model after local training, and by how much c_k changed."""

    num_samples: float = sends("counts", steady=("weight",))
    control: Tensors = sends("gradient", weighted_by="num_samples")


ConfigT = TypeVar("ConfigT", bound=fedavg.FedAvgConfig)


class ControlClient(fedavg.Client[ConfigT], Generic[ConfigT]):
    """Keeps an estimate of its own gradient, of which the server keeps the mean.

    Attributes:
        control: c_k by name.
    """

    kept: ClassVar[tuple[str, ...]] = ("control",)

    def __init__(self, context: ClientContext[ConfigT]):
        super().__init__(context)
        self.control = {name: torch.zeros_like(value) for name, value in self.model.named_parameters()}

    @handler
    def count(self, request: Empty) -> CountReply:
        """Say what this client counts for."""
        return CountReply(weight=self.weight)


class Client(ControlClient[ScaffoldConfig]):
    """Adds c − c_k to every gradient."""

    @handler
    def train(self, request: TrainRequest) -> TrainReply:  # type: ignore[override]
        """Download, corrected local steps, a new c_k, upload."""
        check_weights(self.control, request.control)
        self.download(request.weights)
        here, trainer, how, old = self.data.device, self.trainer, self.config.control_update, self.control
        shift = [request.control[name].to(here) - mine for name, mine in old.items()]
        seen = [torch.zeros_like(value) for value in shift]
        if how == "option1" and trainer.objective.num_samples:
            (batch,) = trainer.objective.batches(0, self.generator("control"))
            seen = trainer.objective.gradients(self.model, batch, None, trainer.parameters)  # without dropout

        def correct(gradients: list[Tensor], _: object) -> None:
            if how == "mean_gradient":
                torch._foreach_add_(seen, gradients)
            torch._foreach_add_(gradients, shift)

        steps = self.run_epochs(adjust=correct)
        if steps and how == "option2":
            rate = 1.0 / (steps * self.config.lr)
            moved = [request.weights[name].to(here) - self.weights[name].detach() for name in old]
            seen = [rate * way - more for way, more in zip(moved, shift, strict=True)]
        if steps:
            count = steps if how == "mean_gradient" else 1
            self.control = {name: value / count for name, value in zip(old, seen, strict=True)}
        change = {name: value - old[name] for name, value in self.control.items()}
        return TrainReply(weights=self.upload(), control=change, num_samples=self.weight)


class Server(fedavg.Server[ConfigT], Generic[ConfigT]):
    """Keeps w and c; needs only sums.

    Attributes:
        total: Σ p_k, which c is the sum of changes over: c · total = Σ p_k c_k.
        known: The clients that are in it.
    """

    client: type[ControlClient[Any]] = Client
    kept: ClassVar[tuple[str, ...]] = ("weights", "control", "total", "known")

    def __init__(self, context: ServerContext[ConfigT]):
        super().__init__(context)
        trained = [name for name, _ in self.build_model().named_parameters()]
        self.control = {name: torch.zeros_like(self.weights[name]) for name in trained}
        self.total = 0.0
        self.known: list[ClientId] = []

    def set_up(self, federation: Federation) -> None:
        """Learn what all clients together count for: the mean in c is over all, in w over a round's.

        Raises:
            FederationError: Too few answered, or only such as have nothing to train on.
        """
        found = federation.sum(self.client.count, Empty())
        count: CountReply = found.require(self.config.min_clients)
        away = len(federation.clients) - len(found.clients)
        if away and not count.weight:
            raise FederationError(
                f"the means over all clients need to know what these count for, and {away} of "
                f"{len(federation.clients)} did not say it; the others have nothing to train on. Begin again once "
                f"the others can be reached."
            )
        self.weigh(count)
        self.known = list(found.clients)

    def weigh(self, count: CountReply) -> None:
        """Take Σ p_k from what clients said; c becomes the mean over those."""
        self.control = rescale(self.control, self.total, count.weight)
        self.total = count.weight

    def after(self, federation: Federation, number: int) -> None:
        """Have all say again what they count for, once one has answered that was away before."""
        if set(self.answered) <= set(self.known):
            return
        found = federation.sum(self.client.count, Empty())
        if found.message is not None and set(self.known) <= set(found.clients):  # else in a later round
            self.weigh(found.message)
            self.known = list(found.clients)

    def expected_bytes(self) -> tuple[int, int]:
        up, down = super().expected_bytes()
        return 2 * up, 2 * down

    def request(self) -> TrainRequest:
        return TrainRequest(weights=self.weights, control=self.control)

    def combine(self, total: TrainReply) -> None:  # type: ignore[override]
        super().combine(total)
        part = {name: value / self.total for name, value in total.control.items()} if self.total else {}
        self.control.update((name, (self.control[name].double() + value).float()) for name, value in part.items())


def rescale(means: Mapping[str, Tensor], old: float, new: float) -> dict[str, Tensor]:
    """Means over ``old`` as means over ``new``: their sum stays."""
    return (
        dict(means) if old == new else {name: (value.double() * (old / new)).to(value) for name, value in means.items()}
    )


METHOD = Method(
    about=__doc__,
    name="scaffold",
    family="averages of models",
    config=ScaffoldConfig,
    client=Client,
    server=Server,
    edge_weights=True,
    space=(
        {
            "optimizer": ["sgd"],
            "lr": [0.05, 0.2, 0.5, 1.0],
            "control_update": ["option1", "option2", "mean_gradient"],
        },
        {"optimizer": ["adam"], "lr": [0.003, 0.01, 0.03], "control_update": ["mean_gradient"]},
    ),
)
