"""Settings of O-pFGL."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from graphsilo.data.silos.silo import Schema
from graphsilo.errors import ConfigError
from graphsilo.federation.release import PrivateConfig
from graphsilo.federation.settings import MethodConfig, OneRoundConfig, setting
from graphsilo.methods.opfgl import private
from graphsilo.settings import WIDEST
from graphsilo.training.condensation import CondensationConfig

_PLAIN = {"epsilon": (None,)}
_EXPANDING = {"expand": (True,), **_PLAIN}
_TUNED = {"fine_tune": ("distil", "plain", "focal")}
_DISTILLED = {"fine_tune": ("distil",)}
_OF_LINKS = {"task": ("link",)}


class OpFGLConfig(OneRoundConfig, PrivateConfig, CondensationConfig):
    """Settings of O-pFGL."""

    # Which nodes are in the sums: one more or less is the difference of two runs.
    tells_apart: ClassVar[tuple[str, ...]] = (
        *MethodConfig.tells_apart, "lp_steps", "lp_alpha", "lp_self_loops", "expand", "expand_classes",
        "expand_confidence", "expand_degree",
    )  # fmt: skip

    min_count: int = setting(
        2, "classes with fewer nodes at a client are left out there", source="paper", ge=2, when=_PLAIN
    )
    lp_steps: int = setting(2, "steps of label propagation", source="release, Cora; PubMed 4, ogbn-arxiv 5", ge=0)
    lp_alpha: float = setting(0.9, "share of the neighbours in it", source="release, Cora; PubMed 0.6", ge=0, le=1)
    lp_self_loops: bool = setting(False, "propagate labels with A + I", source="release: without; paper: with")
    expand: bool = setting(
        True, "homophily-guided reliable node expansion (HRE); off for heterophilic graphs", source="paper", when=_PLAIN
    )
    expand_classes: int = setting(
        1, "only to the so many most homophilic classes of the client; 0 switches this criterion off",
        source="release, Cora; ogbn-arxiv 4", ge=0, when=_EXPANDING,
    )  # fmt: skip
    expand_confidence: float = setting(
        1.0, "least normalised soft label; 0 switches this criterion off", source="release, Cora; ogbn-arxiv 0.95",
        ge=0, le=1, when=_EXPANDING,
    )  # fmt: skip
    expand_degree: int = setting(
        3,
        "least degree; 0 switches this criterion off",
        source="release, 3 to 20; ogbn-arxiv 15",
        ge=0,
        when=_EXPANDING,
    )
    ddof: Literal["paper", "pooled"] = setting(
        "paper", "denominator of the global variance: N less the clients that contributed to the class, or N - 1",
        source="paper, which takes off all clients", when=_PLAIN,
    )  # fmt: skip

    condense_at: Literal["server", "clients"] = setting(
        "server", "who fits the surrogate; at the clients the server only sums (server-efficient variant)",
        source="paper",
    )  # fmt: skip
    nodes_per_class: int = setting(
        1,
        "surrogate nodes of each class",
        source="paper, Cora, CiteSeer, PubMed",
        ge=1,
        le=WIDEST,
        when={"nodes_percent": (0.0,)},
    )
    nodes_percent: float = setting(
        0.0, "instead of it, percent of each class's training nodes (at least 1 node); 0 for none",
        source="paper: ogbn-arxiv 0.25, Computers, Photo and CS 1, Physics 0.5, Actor 2", ge=0, le=100,
    )  # fmt: skip

    stage1_lr: float = setting(1e-4, "Adam's rate on the surrogate", source="release, Cora; ogbn-arxiv 5e-4", gt=0)
    stage1_epochs: int = setting(3000, "most epochs on the surrogate", source="release", ge=1)
    stage1_check: int = setting(100, "epochs between validations on it", source="release", ge=1)
    stage2_lr: float = setting(
        5e-5, "Adam's rate on the own graph", source="release, Cora; ogbn-arxiv 5e-3", gt=0, when=_TUNED
    )
    stage2_epochs: int = setting(3000, "most epochs on the own graph", source="release", ge=1, when=_TUNED)
    stage2_check: int = setting(100, "epochs between validations on it", source="release", ge=1, when=_TUNED)
    patience: int = setting(10, "validations without a better one before a stage ends", source="release", ge=1)
    dropout: bool = setting(False, "keep the model's dropout; the release trains without any", source="release")
    fine_tune: Literal["distil", "plain", "focal", "none"] = setting(
        "distil", "stage 2: with distillation, with cross-entropy alone, with focal loss alone, or none", source="paper"
    )
    beta: float = setting(1.0, "β, strength of the distillation", source="paper: 0.1 to 1", ge=0, when=_DISTILLED)
    gamma: Literal["adaptive", "fixed"] = setting(
        "adaptive", "weight of a node's distillation: by its soft label and the classes' homophily, or β everywhere",
        source="paper", when=_DISTILLED,
    )  # fmt: skip
    gamma_min: float = setting(0.0, "smallest weight", source="release: 0 or 0.05", ge=0, when=_DISTILLED)
    gamma_max: float | None = setting(
        None, "largest weight; none for no bound", source="release: 0.1 to 0.2", ge=0, when=_DISTILLED
    )
    normalise_soft_labels: bool = setting(
        True,
        "divide a node's soft label by its sum before weighing",
        source="paper; the release does not",
        when={"gamma": ("adaptive",)},
    )
    kl_mean: bool = setting(True, "average the distillation over the local nodes instead of summing it",
                            source="release; paper: sum", when=_DISTILLED)  # fmt: skip
    focal_gamma: float = setting(
        2.0, "exponent of the focal loss", source="Lin et al. 2017", ge=0, when={"fine_tune": ("focal",)}
    )

    link_pretrain: bool = setting(
        True,
        "link prediction: start from the encoder of the personalised classifier, or from scratch",
        source="paper",
        when=_OF_LINKS,
    )
    link_epochs: int = setting(200, "link prediction: most epochs of fine-tuning", ge=1, when=_OF_LINKS)
    link_lr: float = setting(1e-2, "link prediction: Adam's rate", source="OpenFGL", gt=0, when=_OF_LINKS)
    link_check: int = setting(10, "link prediction: epochs between validations", ge=1, when=_OF_LINKS)

    @model_validator(mode="after")
    def _check(self) -> OpFGLConfig:
        if self.gamma_max is not None and self.gamma_min > self.gamma_max:
            raise ConfigError(
                f"method.gamma_min is {self.gamma_min}, more than method.gamma_max, {self.gamma_max}; lower the one or "
                f"raise the other."
            )
        return self

    def numbers(self, schema: Schema) -> int:
        return private.size(schema.num_classes, schema.num_features)

    @property
    def chooses_by_validation(self) -> bool:
        """Both stages take the epoch that is best on it."""
        return True
