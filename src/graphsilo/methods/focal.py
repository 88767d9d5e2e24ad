"""Focal loss — FedAvg whose local loss counts well classified items less, and rare classes more if asked.

Lin, Goyal, Girshick, He, Dollár. "Focal Loss for Dense Object Detection". ICCV 2017.

FedAvg with another local loss: an item's cross-entropy is multiplied by (1 − p)^γ, p being the probability of its
class, and if asked by a factor of its class. Both are settings of local training, of any method that has it.
"""

from __future__ import annotations

from typing import Literal

from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.settings import setting
from graphsilo.methods import fedavg


class FocalConfig(fedavg.FedAvgConfig):
    """Settings of focal loss."""

    loss: Literal["focal", "sigmoid_focal"] = setting(
        "focal", "p from one softmax, or from a sigmoid for each class against the rest, summed",
        source="ours: as cross-entropy; the paper and the code of ReNode use sigmoid",
    )  # fmt: skip


METHOD = Method(
    about=__doc__,
    name="focal",
    family="rare and missing classes",
    near=("FedLC", "CReFF"),
    config=FocalConfig,
    client=fedavg.Client,
    server=fedavg.Server,
    aliases=("focal_loss", "fed_focal"),
    tasks=("node", "graph"),
    edge_weights=True,
    balances="class_weights=inverse",
    space={"gamma": [0.5, 1.0, 2.0]},
    trials={"loss": Trial(["sigmoid_focal"]), "gamma": Trial([1.0])},
    reduces_to=("fedavg", {"gamma": 0.0}),
)
