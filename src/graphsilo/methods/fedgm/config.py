"""Settings of FedGM."""

from __future__ import annotations

from typing import ClassVar, Literal

from graphsilo.federation.settings import MethodConfig, setting
from graphsilo.settings import WIDEST
from graphsilo.training.condensation import SyntheticGraphConfig


class FedGMConfig(SyntheticGraphConfig, MethodConfig):
    """Settings of FedGM."""

    reaches_all: ClassVar[bool] = True

    ratio: float = setting(
        0.25, "condensed nodes as a share of a client's training nodes, class by class: a class with fewer than "
        "1/ratio has none, but for the largest one", source="ours; release 0.84 for Cora", gt=0, le=1,
    )  # fmt: skip
    max_nodes: int = setting(
        200, "most condensed nodes of a client, whose ratio is smaller where it would have more: links are learned "
        "pair by pair", source="ours", ge=1, le=20000,
    )  # fmt: skip
    steps: int = setting(300, "updates of a condensed graph at its client", source="ours; release 1000", ge=1)
    match_hidden: int = setting(
        64, "width of the random networks whose gradients are compared", source="ours; release 256", ge=1, le=WIDEST
    )
    class_items: int = setting(
        256, "most training nodes of a class behind its gradient, drawn for each network", source="release", ge=1
    )
    links: Literal["learned", "edgeless", "direct", "cosine"] = setting(
        "learned", "A': none at all, from a link predictor, learned entry by entry, or normalised dot products",
        source="paper",
    )  # fmt: skip
    link_threshold: float = setting(
        0.0, "lighter links are dropped; 1 leaves isolated nodes", source="release", ge=0, le=1,
        when={"links": ("learned", "direct", "cosine")},
    )  # fmt: skip
    cycle: int = setting(20, "updates in a cycle", source="release", ge=1)
    link_steps: int = setting(5, "of these, so many update the links, the others the features", source="release", ge=0)
    lr_features: float = setting(1e-2, "Adam's rate for X' at a client", source="release", gt=0)
    lr_links: float = setting(
        1e-2, "Adam's rate for the links", source="release", gt=0, when={"links": ("learned", "direct")}
    )
    server_lr: float = setting(1e-2, "Adam's rate for X' at the server: one step a round", source="release", gt=0)
    epochs: int = setting(600, "steps of a model on the joint condensed graph", source="release", ge=1)
    lr: float = setting(1e-2, "Adam's rate for a model; a tenth of it in the second half", source="release", gt=0)
    weight_decay: float = setting(5e-4, "L2 weight decay of a model", source="release", ge=0)
    checkpoints: int = setting(
        6, "models along these steps, of which the best on all clients' validation nodes is taken; 1 takes the last",
        source="ours; release: all, by nodes of the server's own", ge=1, le=100,
    )  # fmt: skip
    train_every: int = setting(
        20, "rounds from one model to the next; there is always one after the first round and after the last",
        source="ours; release 1", ge=1,
    )  # fmt: skip

    participation: float = setting(
        1.0, "share of clients that send gradients in a round and score models: int(clients * share), at least one, "
        "drawn uniformly; all send condensed graphs and have the model", source="OpenFGL", gt=0, le=1,
    )  # fmt: skip

    @property
    def single_answers(self) -> str:
        return "every client's condensed graph, which its server joins to the others"

    @property
    def chooses_by_validation(self) -> bool:
        return self.checkpoints > 1
