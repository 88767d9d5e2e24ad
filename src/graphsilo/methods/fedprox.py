"""FedProx — FedAvg with a proximal term that keeps local models near the shared one.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith. "Federated Optimization in Heterogeneous Networks". MLSys 2020.

FedAvg whose local objective adds (μ/2) Σ ‖θ − w‖², w being the downloaded weights. Optionally some clients do only part
of the work, and are still averaged.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphsilo.data.silos.silo import Schema
from graphsilo.federation.registry import Method
from graphsilo.federation.settings import ABOVE_ONE, setting
from graphsilo.methods import fedavg


class FedProxConfig(fedavg.FedAvgConfig):
    """Settings of FedProx."""

    mu: float = setting(0.01, "strength of the proximal term (μ)", source="graph work; OpenFGL 0.001", ge=0)
    stragglers: float = setting(
        0.0, "share of a round's clients that run fewer epochs, uniformly 1 to local_epochs - 1",
        source="Li et al., section 5.2", ge=0, le=1, when={"local_epochs": ABOVE_ONE},
    )  # fmt: skip

    def explain_no_effect(self, schema: Schema, items: int, asked: int, model: str) -> str:
        one_step = self.local_epochs == 1 and self.batch_size == 0 and schema.task == "node" and not self.samples
        if self.mu == 0 or not one_step:
            return ""
        return (
            "FedProx is FedAvg with these settings: a client takes one step, from the downloaded weights, where what "
            "method.mu weighs is 0. It needs method.local_epochs or method.batch_size for two steps or more."
        )


class Client(fedavg.Client[FedProxConfig]):
    """Adds μ(θ − w) to every gradient: the derivative of the penalty, for any first-order optimiser."""

    def fit(self, request: fedavg.TrainRequest) -> None:
        mu = self.config.mu
        # The penalty covers exactly the downloaded parameters; float buffers have no gradient.
        reference = [request.weights[name].to(self.data.device) for name, _ in self.model.named_parameters()]

        def pull(gradients: list[Tensor], _: object) -> None:
            for gradient, parameter, start in zip(gradients, self.trainer.parameters, reference, strict=True):
                gradient.add_(parameter - start, alpha=mu)

        self.run_epochs(adjust=pull if mu > 0 else None, epochs=self.epochs())

    def epochs(self) -> int:
        """All local epochs, or fewer for a straggler."""
        full = self.config.local_epochs
        if self.config.stragglers == 0.0 or full == 1:
            return full
        draw = self.generator("straggler")
        if float(torch.rand((), generator=draw)) >= self.config.stragglers:
            return full
        return int(torch.randint(1, full, (), generator=draw))


METHOD = Method(
    about=__doc__,
    name="fedprox",
    family="averages of models",
    near=("Ditto", "pFedMe"),
    config=FedProxConfig,
    client=Client,
    server=fedavg.Server,
    edge_weights=True,
    space=(  # mu: the candidates of the paper
        {"optimizer": ["adam"], "lr": [0.001, 0.003, 0.01, 0.03], "mu": [0.001, 0.01, 0.1, 1.0]},
        {"optimizer": ["sgd"], "lr": [0.05, 0.2, 0.5, 1.0], "mu": [0.001, 0.01, 0.1, 1.0]},
    ),
    reduces_to=("fedavg", {"mu": 0.0}),
)
