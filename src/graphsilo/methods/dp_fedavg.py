"""DP-FedAvg — FedAvg with changes of bounded length, and noise that hides whether a silo took part.

McMahan, Ramage, Talwar, Zhang. "Learning Differentially Private Recurrent Language Models". ICLR 2018.

FedAvg with a bound on how far one silo can move the model in a round, and with noise in proportion: what all rounds
together send is differentially private for whole silos. The noise has the same size in every direction, the change of a
model is one direction, and so few silos and large models leave nothing but noise; such a run is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from graphsilo.errors import ConfigError, FederationError
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import sends
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.release import (
    PrivateConfig,
    Release,
    Released,
    count_sharers,
    read_sum,
    refuse_without_noise,
)
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import setting
from graphsilo.methods import fedavg
from graphsilo.methods.fedavg import TrainReply, TrainRequest
from graphsilo.settings import ABOVE_ZERO
from graphsilo.types import ClientId


class DPFedAvgConfig(PrivateConfig, fedavg.FedAvgConfig):
    """Settings of DP-FedAvg."""

    protects: ClassVar[Literal["nodes", "silos"]] = "silos"

    weight_by: Literal["uniform"] = setting(
        "uniform", "a client's weight in the mean: 1", source="ours: a weight tells"
    )
    clip: float = setting(
        1.0, "largest length of a client's change of the model in a round, all weights together; longer ones are "
        "shortened", source="McMahan et al. try 0.1 to 40", gt=0,
    )  # fmt: skip
    noise: Literal["silo", "sum"] = setting(
        "sum", "who adds the noise: every silo all of it, or all together what their sum needs, with run.secure_sums",
        source="ours", when={"epsilon": ABOVE_ZERO},
    )  # fmt: skip
    max_noise: float = setting(
        1.0, "largest noise in a round's mean change, as a multiple of the largest change that it can have; a run that "
        "would have more is refused", source="ours", gt=0, when={"epsilon": ABOVE_ZERO},
    )  # fmt: skip

    @property
    def releases(self) -> int:
        return self.rounds


class NoisyRequest(TrainRequest):
    """The shared model, and how many honest silos share the noise."""

    honest: int = sends("control")


class NoisyChange(Release):
    """A client's change of the model, shortened to ``clip``: all weights in one vector, with noise."""

    numbers: Tensor = sends("gradient", dtype=torch.int64)


class Client(fedavg.Client[DPFedAvgConfig]):
    """Trains the shared model and sends how it changed, shortened, and with noise where ε is set."""

    stateful = (*fedavg.Client.stateful, "released")

    def __init__(self, context: ClientContext[DPFedAvgConfig]):
        super().__init__(context)
        self.released = Released(self.config, self.config.clip)

    @handler
    def train(self, request: TrainRequest) -> TrainReply:
        """Without noise: download, train, upload the model with its change shortened."""
        refuse_without_noise(self.config)
        change, share = self._change(request)
        weights = self.upload()
        if share < 1.0:
            weights = {
                name: (old.double() + share * change[name]).to(old.dtype) for name, old in request.weights.items()
            }
        return TrainReply(weights=weights, num_samples=self.weight)

    @handler
    def train_noisily(self, request: NoisyRequest) -> NoisyChange:
        """Download, train, upload the shortened change with noise."""

        def numbers() -> Tensor:
            if not self.weight:  # nothing to train on: a change of 0, which the noise hides
                return torch.zeros(sum(tensor.numel() for tensor in request.weights.values()))
            change, share = self._change(request)
            vector = torch.cat([part.flatten() for part in change.values()])
            # Of a model that is not finite no length can be bounded: as if the silo had not taken part.
            return share * vector if bool(vector.isfinite().all()) else torch.zeros_like(vector)

        return self.released.answer(NoisyChange, request.honest, numbers, self.round)

    def _change(self, request: TrainRequest) -> tuple[dict[str, Tensor], float]:
        """The change of the weights in one round of training, in float64, and the share of it that ``clip`` leaves."""
        self.download(request.weights)
        if self.weight:
            self.fit(request)
        own = self.upload()
        change = {name: own[name].detach().cpu().double() - old.double() for name, old in request.weights.items()}
        length = math.sqrt(sum(float(part.square().sum()) for part in change.values()))
        return change, min(1.0, self.config.clip / length) if length > 0 else 1.0


class Server(fedavg.Server[DPFedAvgConfig]):
    """Adds up changes, and knows how much of the sum is noise."""

    client = Client

    def __init__(self, context: ServerContext[DPFedAvgConfig]):
        super().__init__(context)
        if self.config.epsilon is not None and self.noise_ratio() > self.config.max_noise:
            raise ConfigError(self._explain_noise())

    def noise_ratio(self) -> float:
        """Length of the noise in a round's mean change, as a multiple of the largest change that it can have."""
        count = sum(tensor.numel() for tensor in self.weights.values())
        return self.config.noise_ratio(count, self.asked, self.asked)

    def _explain_noise(self) -> str:
        config, count = self.config, sum(tensor.numel() for tensor in self.weights.values())
        ratio = self.noise_ratio()
        return (
            f"the noise in a round's mean change would be {ratio:.3g} times as long as the largest change that it can "
            f"have: method.rounds={config.rounds}, {self.asked} silos in each, {count} weights, "
            f"ε = {config.epsilon:g}. Nothing can be learned from that. Take more silos, fewer rounds, a smaller model "
            f"or a larger method.epsilon; or say method.max_noise={math.ceil(ratio)} to see it."
        )

    def collect(self, federation: Federation, clients: Sequence[ClientId]) -> TrainReply:
        config = self.config
        if config.epsilon is None:
            return super().collect(federation, clients)
        sharers = count_sharers(config, len(clients))
        request = NoisyRequest(weights=self.weights, honest=sharers)
        total = federation.sum(self.client.train_noisily, request, to=clients).require(config.min_clients)
        found = read_sum(total, config, config.clip, sharers)
        sizes = [tensor.numel() for tensor in self.weights.values()]
        if found.numbers.numel() != sum(sizes):
            raise FederationError(f"a change of {found.numbers.numel()} weights came; the model has {sum(sizes)}.")
        self.log["noise"] = found.sigma * math.sqrt(sum(sizes)) / total.clients
        parts = zip(self.weights.items(), found.numbers.split(sizes), strict=True)
        summed_up = {name: total.clients * old.double() + part.view_as(old) for (name, old), part in parts}
        return TrainReply(weights=summed_up, num_samples=float(total.clients))

    def expected_bytes(self) -> tuple[int, int]:
        up, down = super().expected_bytes()
        return (up if self.config.epsilon is None else 2 * up), down


METHOD = Method(
    about=__doc__,
    name="dp_fedavg",
    family="averages of models",
    config=DPFedAvgConfig,
    client=Client,
    server=Server,
    edge_weights=True,
    trials={
        "epsilon": Trial([2.0], {"noise": "silo", "max_noise": 1e6}),
        "delta": Trial([1e-3], {"epsilon": 2.0, "noise": "silo", "max_noise": 1e6}),
        "clip": Trial([0.01]),
        "noise": Trial(reason="needs secure sums"),
        "max_noise": Trial(reason="what is refused"),
    },
)
