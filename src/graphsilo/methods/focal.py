"""Focal loss — local training in which items that are well classified count less.

Lin, Goyal, Girshick, He, Dollár. "Focal Loss for Dense Object Detection". ICCV 2017.

FedAvg with another local loss: an item's cross-entropy is multiplied by (1 − p)^γ, p being the probability of its
class, and if asked by a factor of its class.
"""

from __future__ import annotations

from functools import partial
from typing import Generic, Literal, TypeVar

from torch import bincount

from graphsilo.federation.client import ClientContext
from graphsilo.federation.registry import Method
from graphsilo.federation.settings import setting
from graphsilo.methods import fedavg
from graphsilo.training.losses import class_factors, focal, sigmoid_focal
from graphsilo.training.objective import ClassifyItems


class FocalConfig(fedavg.FedAvgConfig):
    """Settings of focal loss."""

    gamma: float = setting(2.0, "exponent γ of 1 − p; 0 is cross-entropy", source="paper", ge=0)
    form: Literal["softmax", "sigmoid"] = setting(
        "softmax", "p from one softmax, or from a sigmoid for each class against the rest, summed",
        source="ours: as cross-entropy; the paper and the code of ReNode use sigmoid",
    )  # fmt: skip
    class_weights: Literal["none", "inverse", "effective"] = setting(
        "none", "factor α of an item's class: 1, one over its training items, or over their effective number",
        source="ours; the paper's 0.25 is for two classes, the code of ReNode uses inverse",
    )  # fmt: skip
    class_beta: float = setting(
        0.9999, "β of the effective number (1 - β^n) / (1 - β)", source="Cui et al., CVPR 2019",
        when={"class_weights": ("effective",)}, gt=0, lt=1,
    )  # fmt: skip


ConfigT = TypeVar("ConfigT", bound=FocalConfig)


class Client(fedavg.Client[ConfigT], Generic[ConfigT]):
    """Trains with focal loss; factors of classes come from its own training items."""

    def __init__(self, context: ClientContext[ConfigT]):
        super().__init__(context)
        config, goal = self.config, self.trainer.objective
        assert isinstance(goal, ClassifyItems)
        if config.gamma == 0 and config.form == "softmax" and config.class_weights == "none":
            return  # cross-entropy, by its own path
        factors = None
        if config.class_weights != "none":
            counts = bincount(goal.labels, minlength=self.silo.schema.num_classes)
            factors = class_factors(counts, config.class_weights, beta=config.class_beta)
        loss = focal if config.form == "softmax" else sigmoid_focal
        goal.each = partial(loss, gamma=config.gamma, class_weights=factors)


class Server(fedavg.Server[FocalConfig]):
    """As FedAvg."""

    client = Client


METHOD = Method(
    name="focal",
    family="rare and missing classes",
    title="Focal loss",
    citation='Lin et al. "Focal Loss for Dense Object Detection". ICCV 2017.',
    near=("FedLC", "CReFF"),
    summary="FedAvg whose local loss counts well classified items less, and rare classes more if asked.",
    config=FocalConfig,
    client=Client,
    server=Server,
    aliases=("focal_loss", "fed_focal"),
    tasks=("node", "graph"),
    edge_weights=True,
    balances="class_weights=inverse",
    space={"gamma": [0.5, 1.0, 2.0]},
    reduces_to=("fedavg", {"gamma": 0.0}),
)
