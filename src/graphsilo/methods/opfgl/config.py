"""Settings of O-pFGL."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from graphsilo.errors import ConfigError
from graphsilo.federation.settings import ABOVE_ZERO, OneRoundConfig, setting
from graphsilo.training.condensation import (
    Condensation,
)


class OpFGLConfig(OneRoundConfig):
    """Settings of O-pFGL."""

    hops: int = setting(2, "h: the statistics are of X, ÂX, …, Â^h X; the published scripts use 1", source="paper: at "
                        "most 2", ge=0)  # fmt: skip
    min_count: int = setting(2, "classes with fewer nodes at a client are left out there", source="paper", ge=2)
    lp_steps: int = setting(2, "steps of label propagation", source="release, Cora; PubMed 4, ogbn-arxiv 5", ge=0)
    lp_alpha: float = setting(0.9, "share of the neighbours in it", source="release, Cora; PubMed 0.6", ge=0, le=1)
    lp_self_loops: bool = setting(False, "propagate labels with A + I", source="release: without; paper: with")
    expand: bool = setting(
        True, "homophily-guided reliable node expansion (HRE); off for heterophilic graphs", source="paper"
    )
    expand_classes: int = setting(
        1, "only to the so many most homophilic classes of the client; 0 switches this criterion off",
        source="release, Cora; ogbn-arxiv 4", ge=0, when={"expand": (True,)},
    )  # fmt: skip
    expand_confidence: float = setting(
        1.0, "least normalised soft label; 0 switches this criterion off", source="release, Cora; ogbn-arxiv 0.95",
        ge=0, le=1, when={"expand": (True,)},
    )  # fmt: skip
    expand_degree: int = setting(
        3,
        "least degree; 0 switches this criterion off",
        source="release, 3 to 20; ogbn-arxiv 15",
        ge=0,
        when={"expand": (True,)},
    )
    ddof: Literal["paper", "pooled"] = setting(
        "paper", "denominator of the global variance: N less the clients that contributed to the class, or N - 1",
        source="paper, which takes off all clients",
    )  # fmt: skip

    condense_at: Literal["server", "clients"] = setting(
        "server", "who fits the surrogate; at the clients the server only sums (server-efficient variant)",
        source="paper",
    )  # fmt: skip
    links: Literal["learned", "edgeless", "direct", "cosine"] = setting(
        "edgeless", "A': none at all, from a link predictor, learned entry by entry, or normalised dot products",
        source="ours; paper: learned",
    )  # fmt: skip
    delta: float = setting(
        0.01,
        "δ: lighter links are dropped; 1 leaves isolated nodes",
        source="release",
        ge=0,
        le=1,
        when={"links": ("learned", "direct", "cosine")},
    )
    link_values: Literal["weights", "indicator"] = setting(
        "weights",
        "what a link of the finished surrogate carries: its weight, or 1",
        source="release; paper: indicator",
        when={"links": ("learned", "direct", "cosine")},
    )
    nodes_per_class: int = setting(
        1, "surrogate nodes of each class", source="paper, Cora, CiteSeer, PubMed", ge=1, when={"nodes_percent": (0.0,)}
    )
    nodes_percent: float = setting(
        0.0, "instead of it, percent of each class's training nodes (at least 1 node); 0 for none",
        source="paper: ogbn-arxiv 0.25, Computers, Photo and CS 1, Physics 0.5, Actor 2", ge=0, le=100,
    )  # fmt: skip
    moment: Literal["std", "variance"] = setting(
        "std", "second moment that is matched; only for classes with several nodes", source="release; paper: variance"
    )
    smoothness: Literal["reward", "printed"] = setting(
        "reward", "sign of the smoothness term: links between similar nodes are rewarded, or as printed in the paper",
        source="SimGC", when={"smooth_weight": ABOVE_ZERO},
    )  # fmt: skip
    feature_weight: float = setting(10.0, "α_f, weight of the statistics", source="release; SimGC", ge=0)
    smooth_weight: float = setting(
        0.1,
        "α_s, weight of the smoothness",
        source="release; SimGC",
        ge=0,
        when={"links": ("learned", "direct", "cosine")},
    )
    surrogate_steps: int = setting(3000, "updates of the surrogate", source="release; ogbn-arxiv 2000", ge=0)
    cycle: int = setting(50, "updates in a cycle", source="SimGC", ge=1)
    link_steps: int = setting(10, "of these, so many update the links, the others the features", source="SimGC", ge=0)
    lr_features: float = setting(5e-3, "Adam's rate for X'", source="release; large graphs 5e-2", gt=0)
    lr_links: float = setting(
        1e-3,
        "Adam's rate for the links",
        source="release; large graphs 1e-2",
        gt=0,
        when={"links": ("learned", "direct")},
    )
    link_hidden: int = setting(
        128, "width of the link predictor", source="SimGC; ogbn-arxiv 256", ge=1, when={"links": ("learned",)}
    )
    link_norm: bool = setting(True, "BatchNorm in the link predictor", source="SimGC", when={"links": ("learned",)})

    stage1_lr: float = setting(1e-4, "Adam's rate on the surrogate", source="release, Cora; ogbn-arxiv 5e-4", gt=0)
    stage1_epochs: int = setting(3000, "most epochs on the surrogate", source="release", ge=1)
    stage1_check: int = setting(100, "epochs between validations on it", source="release", ge=1)
    stage2_lr: float = setting(
        5e-5,
        "Adam's rate on the own graph",
        source="release, Cora; ogbn-arxiv 5e-3",
        gt=0,
        when={"fine_tune": ("distil", "plain", "focal")},
    )
    stage2_epochs: int = setting(
        3000, "most epochs on the own graph", source="release", ge=1, when={"fine_tune": ("distil", "plain", "focal")}
    )
    stage2_check: int = setting(
        100,
        "epochs between validations on it",
        source="release",
        ge=1,
        when={"fine_tune": ("distil", "plain", "focal")},
    )
    patience: int = setting(10, "validations without a better one before a stage ends", source="release", ge=1)
    dropout: bool = setting(False, "keep the model's dropout; the release trains without any", source="release")
    fine_tune: Literal["distil", "plain", "focal", "none"] = setting(
        "distil", "stage 2: with distillation, with cross-entropy alone, with focal loss alone, or none", source="paper"
    )
    beta: float = setting(
        1.0, "β, strength of the distillation", source="paper: 0.1 to 1", ge=0, when={"fine_tune": ("distil",)}
    )
    gamma: Literal["adaptive", "fixed"] = setting(
        "adaptive", "weight of a node's distillation: by its soft label and the classes' homophily, or β everywhere",
        source="paper", when={"fine_tune": ("distil",)},
    )  # fmt: skip
    gamma_min: float = setting(
        0.0, "smallest weight", source="release: 0 or 0.05", ge=0, when={"fine_tune": ("distil",)}
    )
    gamma_max: float | None = setting(
        None, "largest weight; none for no bound", source="release: 0.1 to 0.2", ge=0, when={"fine_tune": ("distil",)}
    )
    normalise_soft_labels: bool = setting(
        True,
        "divide a node's soft label by its sum before weighing",
        source="paper; the release does not",
        when={"gamma": ("adaptive",)},
    )
    kl_mean: bool = setting(True, "average the distillation over the local nodes instead of summing it",
                            source="release; paper: sum", when={"fine_tune": ("distil",)})  # fmt: skip
    focal_gamma: float = setting(
        2.0, "exponent of the focal loss", source="Lin et al. 2017", ge=0, when={"fine_tune": ("focal",)}
    )

    link_pretrain: bool = setting(
        True,
        "link prediction: start from the encoder of the personalised classifier, or from scratch",
        source="paper",
        when={"task": ("link",)},
    )
    link_epochs: int = setting(200, "link prediction: most epochs of fine-tuning", ge=1, when={"task": ("link",)})
    link_lr: float = setting(1e-2, "link prediction: Adam's rate", source="OpenFGL", gt=0, when={"task": ("link",)})
    link_check: int = setting(10, "link prediction: epochs between validations", ge=1, when={"task": ("link",)})

    @model_validator(mode="after")
    def _check(self) -> OpFGLConfig:
        if self.gamma_max is not None and self.gamma_min > self.gamma_max:
            raise ConfigError(
                f"method.gamma_min is {self.gamma_min}, more than method.gamma_max, {self.gamma_max}; lower the one or "
                f"raise the other."
            )
        return self

    @property
    def chooses_by_validation(self) -> bool:
        """Both stages take the epoch that is best on it."""
        return True

    def condensation(self) -> Condensation:
        """The settings of the surrogate's fit."""
        return Condensation(
            hops=self.hops, links=self.links, delta=self.delta, link_values=self.link_values, moment=self.moment,
            smoothness=self.smoothness,
            feature_weight=self.feature_weight, smooth_weight=self.smooth_weight, steps=self.surrogate_steps,
            cycle=self.cycle, link_steps=self.link_steps, lr_features=self.lr_features, lr_links=self.lr_links,
            link_hidden=self.link_hidden, link_norm=self.link_norm,
        )  # fmt: skip
