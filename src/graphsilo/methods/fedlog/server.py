"""FedLoG's server: averages, weighs and mixes condensed nodes."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from graphsilo.errors import ConfigError
from graphsilo.federation.interface import Federation
from graphsilo.federation.message import Tensors
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.methods.fedlog import mixing
from graphsilo.methods.fedlog.client import Client, build_modules
from graphsilo.methods.fedlog.config import FedLoGConfig
from graphsilo.methods.fedlog.messages import (
    ClassGenerators,
    GeneratorRequest,
    PretrainRequest,
    RangeRequest,
    TrainRequest,
)


class Server(ServerBase[FedLoGConfig]):
    """Keeps the shared modules and the global synthetic nodes; needs only sums."""

    client: ClassVar[type[Client]] = Client
    kept = ("weights", "synthetic")

    def __init__(self, context: ServerContext[FedLoGConfig]):
        super().__init__(context)
        receiver = self.config.receiver
        if receiver is not None and receiver not in context.clients:
            raise ConfigError(f"method.receiver is client {receiver}; there are clients {list(context.clients)}.")
        # In main memory, where the sums of what clients answer are.
        _, self.weights = build_modules(context.common, self.schema, self.config, context.seed, "cpu")
        self.synthetic: Tensor | None = None

    def set_up(self, federation: Federation) -> None:
        config, client = self.config, self.client
        if config.uses_generator:
            output: str = config.generator_output
            if output == "auto":
                answer = federation.sum(client.check_range, RangeRequest()).require(config.min_clients)
                output = "identity" if answer.outside else "tanh"
            total = federation.sum(client.fit_generator, GeneratorRequest(output=output))
            fitted = total.require(config.min_clients)
            mixed = mixing.mix_generators(fitted.generators, fitted.class_weights)
            message = ClassGenerators(generators=mixed, output=output)
            federation.sum(client.take_generators, message).require(config.min_clients)
        if config.pretrain_epochs:
            federation.sum(client.pretrain, PretrainRequest()).require(config.min_clients)

    def round(self, federation: Federation, number: int) -> None:
        request = TrainRequest(weights=self.weights, synthetic=self.synthetic)
        total = federation.sum(self.client.train, request, to=self.select(federation, number))
        reply = total.require(self.config.min_clients)
        if reply.num_samples > 0:
            self.weights = {name: (value / reply.num_samples).float() for name, value in reply.weights.items()}
        if self.config.local_generalization:
            self.synthetic = mixing.mix_nodes(reply.synthetic, reply.class_weights, self.synthetic)

    def aggregate(self) -> Tensors | None:
        return self.weights
