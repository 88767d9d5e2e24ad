"""FGGP's server: averages models, clusters the clients' prototypes, and keeps those of the last rounds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.federation.interface import Federation
from graphsilo.federation.message import Tensors
from graphsilo.methods import fedavg, fpl
from graphsilo.methods.fggp.augmentor import Augmentor
from graphsilo.methods.fggp.client import Client
from graphsilo.methods.fggp.config import AUGMENTOR, PROTOTYPES, VOTES, FGGPConfig
from graphsilo.training.local import weights_of
from graphsilo.training.prototypes import unit_rows
from graphsilo.types import ClientId


class Server(fpl.Server[FGGPConfig]):
    """As FPL's, with a memory of clusters; needs only sums where heads classify.

    Attributes:
        clusters: [m, p] directions of the last clusters, oldest first.
        classes: [m] theirs.
    """

    client = Client

    def first_weights(self) -> dict[str, Tensor]:
        if not self.config.augment:
            return super().first_weights()
        drawer = Augmentor(self.schema.num_features, self.config.augmentor_width)
        drawer.reset(self.generator("augmentor"))
        named = {f"{AUGMENTOR}{name}": value for name, value in weights_of(drawer).items()}
        return {**super().first_weights(), **named}

    def collect(self, federation: Federation, clients: Sequence[ClientId]) -> fedavg.TrainReply:
        if self.config.predict == "head":
            return fedavg.Server.collect(self, federation, clients)
        clusters, classes = self.clusters, self.classes
        total = super().collect(federation, clients)
        most = self.config.memory * self.schema.num_classes
        self.clusters = torch.cat([clusters, unit_rows(self.clusters)])[-most:]
        self.classes = torch.cat([classes, self.classes])[-most:]
        return total

    def aggregate(self) -> Tensors:
        found = {name: value for name, value in self.weights.items() if not name.startswith(AUGMENTOR)}
        if len(self.classes):
            votes = F.one_hot(self.classes, self.schema.num_classes).to(self.clusters)
            found |= {PROTOTYPES: self.clusters, VOTES: votes}
        return found

    def expected_bytes(self) -> tuple[int, int]:
        up, down = fedavg.Server.expected_bytes(self)
        if self.config.predict == "head":
            return up, down
        classes, width = self.shape
        calls = self.rounds * self.asked
        return (
            up + calls * classes * (4 * width + 8),
            down + calls * self.config.memory * classes * (4 * width + 8),
        )
