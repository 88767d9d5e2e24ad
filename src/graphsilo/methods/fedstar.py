"""FedStar — clients average a channel that reads encodings of structure, and keep the one that reads features.

Tan, Liu, Long, Jiang, Lu, Zhang. "Federated Learning on Non-IID Graphs via Structural Knowledge Sharing". AAAI 2023.

Each client's model has two channels: a GIN on features, and graph convolutions on encodings of structure, which the
GIN reads. The second alone is averaged.
"""

from __future__ import annotations

from graphsilo.errors import UnsupportedError
from graphsilo.federation.core_client import CoreClient, core_of
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerContext
from graphsilo.methods import fedavg
from graphsilo.models.backbones.gin_fedstar import FedStarGIN


class FedStarConfig(fedavg.FedAvgConfig):
    """Settings of FedStar; those of the encodings are the model's."""


class Client(CoreClient[FedStarConfig], fedavg.Client[FedStarConfig]):
    """Trains both channels and shares that of structure."""


class Server(fedavg.Server[FedStarConfig]):
    """Keeps the channel of structure; needs only sums."""

    def __init__(self, context: ServerContext[FedStarConfig]):
        super().__init__(context)
        model = self.build_model()
        if not isinstance(model, FedStarGIN):
            raise UnsupportedError(
                f"FedStar shares a channel for encodings of structure, which the model gin_fedstar has; "
                f"{context.common.name} was asked for. Use --model gin_fedstar, or leave the model out."
            )
        self.weights = core_of(model, self.weights)


METHOD = Method(
    about=__doc__,
    name="fedstar",
    family="silos that are unlike",
    near=("FedPer", "FedRep", "LG-FedAvg"),
    config=FedStarConfig,
    client=Client,
    server=Server,
    tasks=("graph", "node"),
    evaluates=("aggregate", "own"),
    model={"name": "gin_fedstar"},
    trials={
        "fan_out": Trial(reason="no neighbours to sample"),
    },
)
