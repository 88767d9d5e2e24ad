"""Settings of FedGL."""

from __future__ import annotations

from typing import Literal

from graphsilo.errors import ConfigError
from graphsilo.federation.settings import ABOVE_ZERO, setting
from graphsilo.methods.fedavg import FedAvgConfig
from graphsilo.models.registry import listing
from graphsilo.types import Task


class FedGLConfig(FedAvgConfig):
    """Settings of FedGL."""

    strength: float = setting(0.1, "weight of the cross-entropy of pseudo labels (η)", source="OpenFGL", ge=0)
    threshold: float = setting(
        0.5, "probability below which a prediction counts as 0 (ζ)", source="OpenFGL", ge=0, le=1,
        when={"strength": ABOVE_ZERO},
    )  # fmt: skip
    graph_weight: float = setting(
        0.1, "weight of the links between nodes with like embeddings (γ); 0 leaves them out",
        source="none; the paper tunes it, OpenFGL has 0", ge=0, le=100,
    )  # fmt: skip
    neighbours: int = setting(
        100, "nodes that each is linked with", source="OpenFGL", ge=1, le=1000, when={"graph_weight": ABOVE_ZERO}
    )
    renew_every: int = setting(
        1, "rounds between two renewals of pseudo labels and links; 0 keeps those of a silo's first round",
        source="OpenFGL, whose clients go on reading those of round 1", ge=0,
    )  # fmt: skip
    shared: bool = setting(
        True, "silos name their nodes before round 1, and average predictions and embeddings of those that several "
        "hold; without it nothing but the model is sent, as if no silo held another's node", source="paper",
    )  # fmt: skip
    weight_by: Literal["train", "nodes", "uniform"] = setting(
        "nodes", "a client's weight in all means: its training items, all its nodes, or 1; none where it has no "
        "training items", source="OpenFGL",
    )  # fmt: skip

    @property
    def supervises(self) -> bool:
        """Whether there are pseudo labels or links at all."""
        return self.strength > 0 or self.graph_weight > 0

    @property
    def single_answers(self) -> str:
        if not (self.shared and self.supervises):
            return ""
        return "which nodes every client holds, and what it predicts of those that others hold, too"

    def check_model(self, model: str, depth: int, task: Task) -> None:
        super().check_model(model, depth, task)
        if self.graph_weight > 0 and not listing(model).edge_weights:
            raise ConfigError(
                f"FedGL's links between nodes with like embeddings have weights, and model {model} knows none. Use "
                f"--model gcn, or --set method.graph_weight=0."
            )
