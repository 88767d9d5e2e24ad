"""FedNTD — FedAvg whose clients keep the shared model's view of the classes that an item is not in.

Lee, Jeong, Shin, Bae, Yun. "Preservation of the Global Knowledge by Not-True Distillation in Federated Learning".
NeurIPS 2022.

FedAvg whose clients also learn to rate the classes that an item is not in as the downloaded model does, so that local
steps do not forget what it knows about classes that are rare at the client.
"""

from __future__ import annotations

from functools import partial

import torch

from graphsilo.data.silos.silo import Schema
from graphsilo.federation.registry import Method
from graphsilo.federation.settings import ABOVE_ZERO, setting
from graphsilo.methods import fedavg
from graphsilo.training.local import Teacher
from graphsilo.training.objective import Slopes, Step


class FedNTDConfig(fedavg.FedAvgConfig):
    """Settings of FedNTD."""

    beta: float = setting(1.0, "weight of the distillation (β)", source="authors' configuration; FedED 0.1", ge=0)
    temperature: float = setting(
        1.0, "temperature of both models in it (τ)", source="authors' configuration", gt=0, when={"beta": ABOVE_ZERO}
    )

    def explain_no_effect(self, schema: Schema, items: int, asked: int, model: str) -> str:
        if self.beta == 0 or schema.num_classes > 2:
            return ""
        return (
            "FedNTD is FedAvg on this data: of two classes one is left beside an item's own, both models give it "
            "everything, and what method.beta weighs is 0. It needs three classes or more."
        )


class Client(fedavg.Client[FedNTDConfig]):
    """Adds β times the divergence from the downloaded model over all classes but an item's own."""

    def fit(self, request: fedavg.TrainRequest) -> None:
        # With two classes there is nothing to distil: see explain_no_effect.
        if self.config.beta > 0 and self.silo.schema.num_classes > 2:
            self.run_epochs(term=partial(self.term, self.teacher(request.weights)))
        else:
            super().fit(request)

    @torch.no_grad()
    def term(self, teacher: Teacher, step: Step) -> Slopes:
        """β τ (q − p) / b: the gradient of β times the mean ``not_true_kd``."""
        own, heat = step.labels[:, None], self.config.temperature
        q, p = (
            torch.softmax((logits / heat).scatter_(1, own, -torch.inf), 1)
            for logits in (step.logits, teacher.outputs(step.view).logits)
        )
        return Slopes(logits=q.sub_(p).mul_(self.config.beta * heat / len(q)))


METHOD = Method(
    about=__doc__,
    name="fedntd",
    family="averages of models",
    config=FedNTDConfig,
    client=Client,
    server=fedavg.Server,
    tasks=("node", "graph"),
    edge_weights=True,
    space={"beta": [0.1, 0.3, 1.0]},
    reduces_to=("fedavg", {"beta": 0.0}),
)
