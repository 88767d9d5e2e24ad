"""FGGP's settings, and what its tensors are called."""

from __future__ import annotations

from typing import Literal

from graphsilo.federation.settings import ABOVE_ZERO, setting
from graphsilo.methods import fedavg
from graphsilo.settings import WIDEST

AUGMENTOR = "augmentor."
"""Before the names of the augmentor's weights, among those of the model."""
PROTOTYPES, VOTES = "memory.prototypes", "memory.votes"
"""Of the aggregate: prototypes, and their classes."""


class FGGPConfig(fedavg.FedAvgConfig):
    """Settings of FGGP."""

    weight_by: Literal["train", "nodes", "uniform"] = setting(
        "nodes", "a client's weight in the mean: its training items, all its nodes (graphs), or 1",
        source="the authors' code",
    )  # fmt: skip
    predict: Literal["prototype", "head"] = setting(
        "prototype", "how items are classified: by the prototypes that the server keeps, or by the model's head",
        source="the authors' code; OpenFGL head",
    )  # fmt: skip
    memory: int = setting(
        10, "prototypes that the server keeps, for each class that there is", source="the authors' code", ge=1,
        le=WIDEST, when={"predict": ("prototype",)},
    )  # fmt: skip
    voters: int = setting(
        30, "prototypes by which an item is classified: the most similar ones", source="the authors' code", ge=1,
        when={"predict": ("prototype",)},
    )  # fmt: skip
    vote_temperature: float = setting(
        0.1, "temperature of their cosines", source="the authors' code", gt=0, when={"predict": ("prototype",)}
    )
    min_count: int = setting(
        1, "fewest items that are of a class, or taken for it, with which a client describes it", ge=1,
        when={"predict": ("prototype",)},
    )  # fmt: skip
    augment: float = setting(
        1.0, "weight of all losses of the augmented view (λ)", source="the authors' code, where it is 1", ge=0
    )
    align: float = setting(
        1.0, "weight of the contrast of both views' prototypes in it", source="the authors' code, where it is 1", ge=0,
        when={"augment": ABOVE_ZERO},
    )  # fmt: skip
    temperature: float = setting(
        0.5, "temperature of that contrast's cosines (τ)", source="the authors' code", gt=0,
        when={"augment": ABOVE_ZERO, "align": ABOVE_ZERO},
    )  # fmt: skip
    pairs: Literal["all", "union"] = setting(
        "all", "nodes between which links are drawn: all pairs (up to 10,000 nodes; graphs: of each), or those linked "
        "in the union of the own graph with the most similar nodes",
        source="the authors' code; union is ours", when={"augment": ABOVE_ZERO},
    )  # fmt: skip
    neighbours: int = setting(
        3, "most similar nodes that each is linked to in the union (k)", source="the authors' code", ge=0, le=1000,
        when={"augment": ABOVE_ZERO},
    )  # fmt: skip
    refresh: int = setting(
        20, "rounds after which a client looks for them again", source="the authors' code; OpenFGL 1", ge=1,
        when={"augment": ABOVE_ZERO},
    )  # fmt: skip
    augmentor_width: int = setting(
        64, "width of the network that draws links", source="ours: the usual hidden width; the authors' code 128",
        ge=1, le=WIDEST, when={"augment": ABOVE_ZERO},
    )  # fmt: skip

    @property
    def single_answers(self) -> str:
        return "every client's prototypes, to cluster" if self.predict == "prototype" else ""
