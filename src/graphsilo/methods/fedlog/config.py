"""Settings of FedLoG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import model_validator

from graphsilo.errors import ConfigError
from graphsilo.federation.settings import ABOVE_ZERO, MethodConfig, setting
from graphsilo.methods.fedlog import generator as generators
from graphsilo.methods.fedlog.layers import Distance, Interaction, Mixing
from graphsilo.settings import WIDEST

Knowledge: TypeAlias = Literal["HH", "HT", "TH", "TT"]
"""Whose knowledge synthetic nodes hold: of Head or Tail classes, from the Head- or Tail-degree branch."""

RELEASE: Mapping[str, Any] = {
    "interaction": "inert",
    "distance": "embedding",
    "mixing": "logarithms",
    "norm_weight": 1.0,
    "class_generators": False,
    "matching": "last",
    "pretrain_epochs": 100,
    "weight_by": "uniform",
    "reset_optimizer": True,
    "permute": True,
}
"""Defaults with ``compat=release``."""


_GENERALISED = {"local_generalization": (True,)}
_GENERATED = {"neighbour_generator": (True,)}
_FITTED = {"class_generators": (True,)}
_ADAPTED = {"adaptive_factor": (True,)}


class FedLoGConfig(MethodConfig):
    """Settings of FedLoG."""

    tells_apart: ClassVar[tuple[str, ...]] = (
        *MethodConfig.tells_apart, "receiver", "rate_noise", "rate_epsilon", "rate_permutation",
    )  # fmt: skip

    compat: Literal["paper", "release"] = setting(
        "paper", "whose choices the other settings default to: the paper's, or those of the authors' code",
        source="ours",
    )  # fmt: skip
    local_epochs: int = setting(1, "passes over the training nodes per round", source="release", ge=1)
    batch_size: int = setting(64, "training nodes per step; 0 is the full batch", source="release", ge=0)
    lr: float = setting(1e-3, "learning rate of encoder and classifiers", source="paper", gt=0)
    prototype_lr: float = setting(1e-3, "learning rate of the learnable nodes", source="release", gt=0)
    weight_decay: float = setting(5e-4, "L2 weight decay of encoder and classifiers", source="release", ge=0)
    reset_optimizer: bool = setting(
        False, "forget the optimisers' moments at each download", source="release: yes; the paper does not say"
    )
    weight_by: Literal["nodes", "train", "uniform"] = setting(
        "nodes", "a client's weight in the mean of the models: all its nodes, its training nodes, or 1",
        source="paper; release uniform",
    )  # fmt: skip
    embedding_dim: int = setting(64, "width of an embedding (E)", source="paper", ge=1, le=WIDEST)
    prototypes: int = setting(20, "learnable nodes per class and branch (s)", source="paper", ge=1, le=WIDEST)
    degree_threshold: float = setting(
        3.0, "λ: a node with λ + 1 neighbours trusts both branches alike", source="paper", ge=0
    )
    norm_weight: float = setting(
        0.1, "weight of the learnable features' norm (β)", source="paper: 0.01, 0.1 or 1; release 1", ge=0
    )
    interaction_layers: int = setting(2, "layers of each classifier", source="paper", ge=1, le=100)
    interaction: Interaction = setting(
        "full", "whether the classifiers move embeddings towards the prototypes; inert: layer norm only",
        source="paper; inert is what the release computes",
    )  # fmt: skip
    layer_norm: bool = setting(
        True, "a layer norm on what the classifiers take of the encoder; the paper's equations have none",
        source="release; paper no",
    )  # fmt: skip
    distance: Distance = setting(
        "both", "distance to a prototype: of embedding and neighbours, or of the embedding alone",
        source="paper; release embedding",
    )  # fmt: skip
    interp: int = setting(
        8,
        "Chebyshev nodes per target in a classifier's layer; 0 evaluates every pair",
        source="ours",
        ge=0,
        le=1000,
        when={"interaction": ("full",)},
    )
    mixing: Mixing = setting(
        "probabilities", "what the loss mixes of the two branches", source="paper; release logarithms"
    )
    local_generalization: bool = setting(True, "train on synthetic nodes; off is an ablation", source="paper")
    generalization: Literal["joint", "sequential"] = setting(
        "joint", "when: in every step beside a batch, or in steps of their own after the local epochs",
        source="paper says both; release joint", when=_GENERALISED,
    )  # fmt: skip
    neighbour_generator: bool = setting(
        True, "give synthetic nodes a generated neighbour; off is an ablation", source="paper", when=_GENERALISED
    )
    adaptive_factor: bool = setting(
        True, "make learned classes harder; off is an ablation", source="paper", when=_GENERALISED
    )
    difficulty_step: float = setting(
        1e-3, "what a recognised class's difficulty gains a round", source="paper", ge=0, le=1, when=_ADAPTED
    )
    difficulty_decrease: float = setting(
        1e-3, "what the other classes' difficulty loses a round", source="release; paper 0", ge=0, le=1, when=_ADAPTED
    )
    difficulty_threshold: float = setting(
        0.8,
        "accuracy on a class's synthetic nodes above which it becomes harder",
        source="release",
        ge=0,
        le=1,
        when=_ADAPTED,
    )
    generator_epochs: int = setting(100, "epochs of the neighbour generator (P)", source="paper", ge=1, when=_FITTED)
    generator_lr: float = setting(
        1e-2, "learning rate of the neighbour generator", source="release", gt=0, when=_FITTED
    )
    generator_hops: int = setting(
        1, "hops of the neighbourhood whose mean it learns (h)", source="release", ge=1, when=_FITTED
    )
    generator_output: Literal["auto", "tanh", "identity"] = setting(
        "auto",
        "its last activation; auto: tanh if every client's features lie within -1 and 1",
        source="release tanh",
        when=_GENERATED,
    )
    grad_weight: float = setting(1.0, "weight of the gradient loss", source="paper", ge=0, when=_FITTED)
    networks: int = setting(
        20, "random networks of the gradient loss (N)", source="paper", ge=1, when={"grad_weight": ABOVE_ZERO}
    )
    nets_per_epoch: int = setting(
        1,
        "how many of them an epoch uses: an unbiased estimate; N is the paper's sum",
        source="ours; paper N",
        ge=1,
        when={"matching": ("mean",)},
    )
    matching: generators.Matching = setting(
        "mean", "gradient loss: mean over the networks, or one new network per epoch with weight 1/N",
        source="paper; release last", when=_FITTED,
    )  # fmt: skip
    class_generators: bool = setting(
        True,
        "use the class-wise generators; otherwise ones that were never trained",
        source="paper; release no",
        when=_GENERATED,
    )
    pretrain_epochs: int = setting(
        0,
        "supervised epochs before round 1, stopped by the validation score (``evaluation.select_by``)",
        source="paper none; release 100",
        ge=0,
    )
    pretrain_patience: int = setting(
        10, "epochs without a better validation score", source="release", ge=1, when={"pretrain_epochs": ABOVE_ZERO}
    )
    synthetic: Knowledge = setting(
        "HH", "classes (head or tail) and branch (head or tail degree) that synthetic nodes are made of",
        source="paper, appendices G.2 and M", when=_GENERALISED,
    )  # fmt: skip
    permute: bool = setting(
        False, "shuffle a class's learnable nodes before mixing", source="release yes", when=_GENERALISED
    )
    rate_noise: float = setting(
        0.0,
        "a: class rates are uploaded with noise N(0, (a·r)²), drawn once per client; unproved: no privacy is promised",
        source="paper",
        ge=0,
        when={**_GENERALISED, "rate_epsilon": (None,)},
    )
    rate_epsilon: float | None = setting(
        None, "instead, discrete Laplace noise on the counts behind the rates, drawn once from the operating system: "
        "rates alone are then ε-differentially private for nodes; weights and synthetic nodes are not", source="ours",
        ge=1e-6, when=_GENERALISED,
    )  # fmt: skip
    rate_permutation: bool = setting(
        False,
        "upload class rates permuted among the head and among the tail classes",
        source="paper",
        when=_GENERALISED,
    )
    receiver: int | None = setting(
        None, "one client that trains on the synthetic nodes of the others, who only contribute",
        source="ours, after appendix C", ge=0, when=_GENERALISED,
    )  # fmt: skip

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, values: Any) -> Any:
        """The release's choices where the user made none."""
        return {**RELEASE, **values} if isinstance(values, dict) and values.get("compat") == "release" else values

    @model_validator(mode="after")
    def _check(self) -> FedLoGConfig:
        if self.nets_per_epoch > self.networks:
            raise ConfigError(
                f"method.nets_per_epoch is {self.nets_per_epoch}, but there are only {self.networks} networks; lower "
                f"it, or raise method.networks."
            )
        if self.interaction == "inert" and not self.layer_norm:
            raise ConfigError(
                "method.interaction=inert is the layer norm of the embedding and nothing else; with "
                "method.layer_norm=false nothing is left. Leave one of the two at its default."
            )
        return self

    def promises(self, seeds: int) -> str:
        if self.rate_epsilon is None or not self.local_generalization:
            return ""
        several = f", {seeds * self.rate_epsilon:g} over {seeds} seeds" if seeds > 1 else ""
        return (
            f"Class rates carry noise that makes them differentially private for nodes, ε = {self.rate_epsilon:g}"
            f"{several}. They alone: weights, generators and synthetic nodes are sent without noise, like scores."
        )

    @property
    def uses_generator(self) -> bool:
        """Whether neighbours are generated at all."""
        return self.local_generalization and self.neighbour_generator

    @property
    def chooses_by_validation(self) -> bool:
        """Pre-training stops by it."""
        return self.pretrain_epochs > 0
