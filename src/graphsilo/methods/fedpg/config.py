"""Settings of FedPG."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from graphsilo.federation.settings import ABOVE_ZERO, LocalTrainingConfig, setting

DEEPEST = 3
"""Most hops that are taken from the depth of the models alone."""


_TRAINED = {"generator": ("trained",)}
_WITH_MARGIN = {"margin": ABOVE_ZERO}


class FedPGConfig(LocalTrainingConfig):
    """Settings of FedPG."""

    mu: float = setting(
        0.3, "weight μ of the pull towards received prototypes", source="validation; paper 0.5, with norm_sum", ge=0
    )
    reduction: Literal["norm_sum", "squared_mean"] = setting(
        "squared_mean", "distance to received prototypes: mean of squares, or sum of norms over classes and hops",
        source="validation; paper: norm_sum", when={"mu": ABOVE_ZERO},
    )  # fmt: skip
    alpha: float = setting(
        0.5, "share α of the universal prototype in what a client receives", source="ours; paper: a moderate one",
        ge=0, le=1,
    )  # fmt: skip
    similarity: float = setting(
        0.9, "λ: smallest cosine of two clients' prototypes that makes them mix; above 1 none does",
        source="ours; paper: a large one",
    )  # fmt: skip
    hops: int | None = setting(
        None,
        f"largest hop L; none: the smallest depth among the clients' models, {DEEPEST} at most",
        source="paper",
        ge=0,
        le=10,
    )
    neighbourhood: Literal["exact", "within"] = setting(
        "exact", "neighbours at hop h: nodes at distance h, or at 1 to h", when={"task": ("node",)}
    )
    neighbour_weights: Literal["mean", "scorer"] = setting(
        "mean", "weights of an item's neighbours: equal, or a trained softmax", source="paper: scorer"
    )
    max_neighbours: int = setting(
        32, "most neighbours of an item, drawn once, from hop 2 on (graphs: at every hop); 0 for all", ge=0
    )
    annotation: Literal["predicted", "labelled"] = setting(
        "predicted", "items behind prototypes: also unlabelled ones with their predicted class, or labelled ones alone",
        source="paper: predicted",
    )  # fmt: skip
    confidence: float = setting(
        0.8, "smallest probability of a predicted class that counts", source="validation; paper: none, that is 0",
        ge=0, le=1, when={"annotation": ("predicted",)},
    )  # fmt: skip
    centred: bool = setting(
        True, "take prototypes relative to the mean over the client's classes, at each hop",
        source="validation; paper: no",
    )  # fmt: skip
    initial: Literal["common", "own"] = setting(
        "common", "initial weights: the same for clients with equal models, or each client's own"
    )
    generator: Literal["trained", "code"] = setting(
        "trained", "universal prototypes: from the trained generator, or a fixed random orthogonal code (ablation)",
        source="paper: trained",
    )  # fmt: skip
    norm: Annotated[float, Field(gt=0)] | Literal["free", "first"] = setting(
        "free", "length of universal prototypes: as generated, the mean length of the first uploads, or a number",
        source="paper: free",
    )  # fmt: skip
    restart: bool = setting(False, "start the generator again in each round", when=_TRAINED)
    server_epochs: int = setting(30, "steps E_s of the generator in a round", source="validation", ge=1, when=_TRAINED)
    server_lr: float = setting(0.01, "learning rate of the generator", source="ours", gt=0, when=_TRAINED)
    server_optimizer: Literal["adam", "sgd"] = setting("adam", "optimiser of the generator", when=_TRAINED)
    temperature: float = setting(
        1.0, "divisor of the generator's cosines", source="paper: none, that is 1", ge=0.05, when=_TRAINED
    )
    hop_share: float = setting(
        0.5, "Δs: prototypes of other hops in the query sets, relative to those of the hop itself",
        source="paper searches 0 to 1", ge=0, le=1, when=_TRAINED,
    )  # fmt: skip
    margin: float = setting(
        0.5, "ε: largest margin of the generator's loss; 0 for none", source="paper", ge=0, when=_TRAINED
    )
    margin_sign: Literal["minus", "paper"] = setting(
        "minus", "the margin makes positives harder, or is added as printed", source="paper's intent", when=_WITH_MARGIN
    )
    discrepancy: Literal["one_minus_cosine", "cosine"] = setting(
        "one_minus_cosine",
        "how far apart two class centres are; cosine as printed",
        source="paper's intent",
        when=_WITH_MARGIN,
    )
    noise: float = setting(
        0.0,
        "share of a prototype's dimensions that get noise before upload; unproved: no privacy is promised",
        source="paper 0.1, 0.2",
        ge=0,
        le=1,
    )
    noise_scale: float = setting(
        1.0,
        "standard deviation of that noise, in root mean squares of the prototypes",
        ge=0,
        when={"noise": ABOVE_ZERO},
    )
    graph_similarity: float = setting(
        0.9,
        "graph classification: smallest cosine τ₁ of neighbouring graphs at hop 1",
        ge=-1,
        le=1,
        when={"task": ("graph",)},
    )
    graph_decay: float = setting(
        0.9, "graph classification: τ_h = τ₁ · decay^(h-1)", gt=0, le=1, when={"task": ("graph",)}
    )

    @property
    def single_answers(self) -> str:
        return "every client's prototypes, to mix prototypes by"
