"""Settings of FairFGL."""

from __future__ import annotations

from typing import Literal

from graphsilo.federation.settings import ABOVE_ZERO, LocalTrainingConfig, OwnLoss, setting


class FairFGLConfig(OwnLoss, LocalTrainingConfig):
    """Settings of FairFGL."""

    rounds: int = setting(150, "communication rounds", source="FairFGL, section V", ge=1)
    history: int = setting(
        5, "global models in the frozen mean; 0 is the ablation without history: no mixing, no distillation",
        source="FairFGL, section IV", ge=0,
    )  # fmt: skip
    alpha: Literal["entries", "scalar"] = setting(
        "entries",
        "the history's share α in the fused weights: one per weight, or one number",
        source="FairFGL",
        when={"alpha_learned": (True,)},
    )
    alpha_start: float = setting(
        0.5,
        "where α starts; 0 means that the model is not mixed with the history, ever",
        ge=0,
        lt=1,
        when={"history": ABOVE_ZERO},
    )
    alpha_learned: bool = setting(True, "whether α is trained", source="FairFGL", when={"alpha_start": ABOVE_ZERO})
    distillation: float = setting(
        1.0,
        "weight of the distillation from the history on unlabelled nodes; 0 is without",
        source="FairFGL",
        ge=0,
        when={"history": ABOVE_ZERO},
    )
    distillation_until: int | None = setting(
        None, "the distillation's weight falls in a straight line from round 1 to 0 after this round; none: it stays",
        source="ours", ge=1, when={"distillation": ABOVE_ZERO},
    )  # fmt: skip
    alignment: float = setting(
        1.0, "weight of S_loss, which draws heterophilous nodes of majority classes to their prototype; 0 is without",
        source="FairFGL", ge=0,
    )  # fmt: skip
    alignment_target: Literal["prototype", "node"] = setting(
        "prototype",
        "S_loss is KL(prototype ‖ node), or KL(node ‖ prototype) as printed",
        source="FairFGL's text",
        when={"alignment": ABOVE_ZERO},
    )
    pseudo_labels: bool = setting(
        False,
        "count unlabelled neighbours by the history's prediction when nodes are ranked by homophily",
        when={"alignment": ABOVE_ZERO},
    )
    correction: bool = setting(
        True, "take what opposes the most dissimilar client out of the gradient; false is the ablation without "
        "gradient modification", source="FairFGL",
    )  # fmt: skip
    correction_margin: float = setting(
        0.0, "length added along that client's direction after a correction", ge=0, when={"correction": (True,)}
    )
    deviated_gradient: Literal["loss", "update"] = setting(
        "loss", "the opposing direction: the gradient of the own loss at the dissimilar client's model, or that "
        "client's negative update", source="FairFGL", when={"correction": (True,)},
    )  # fmt: skip
    top_k: float = setting(
        0.5, "share of the entries of an update that is uploaded, the most changed ones", source="FairFGL: 0.2 to 0.6",
        gt=0, le=1,
    )  # fmt: skip
    clustering: bool = setting(
        True, "cluster the updates; false is the ablation: one cluster, the weighted mean", source="FairFGL"
    )
    eta: float | None = setting(
        None, "factor η of the sum over clusters; none is 1 / clusters, their mean (FairFGL: 0.4 to 0.8, fixed)", gt=0
    )
    weight_by: Literal["train", "nodes", "uniform"] = setting(
        "train", "a client's weight within its cluster: its training nodes, all its nodes, or 1", source="as FedAvg"
    )

    @property
    def single_answers(self) -> str:
        return "every client's update, to group clients by"
