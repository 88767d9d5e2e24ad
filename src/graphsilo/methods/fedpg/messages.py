"""What FedPG's clients and server send each other."""

from __future__ import annotations

import torch
from torch import Tensor

from graphsilo.federation.message import Message, sends


class HelloReply(Message):
    """What clients must agree on, or settle together.

    Attributes:
        width: p of the client's model.
        depth: Its layers or propagation steps.
    """

    width: int = sends("control")
    depth: int = sends("control")


class TrainRequest(Message):
    """This client's prototypes, from round 2 on.

    Attributes:
        hops: L.
        prototypes: Ṗ, 0 where absent.
        present: Which of them there are: some of those that the client uploaded last.
    """

    hops: int = sends("control")
    prototypes: Tensor | None = sends("prototype", shape=("classes", "levels", "width"), default=None)
    present: Tensor | None = sends("control", dtype=torch.bool, shape=("classes", "levels"), default=None)


class TrainReply(Message):
    """The client's prototypes after local training; a row of 0 means that it has none there.

    Attributes:
        prototypes: P_k.
        counts: Items behind each class.
    """

    prototypes: Tensor = sends("prototype", shape=("classes", "levels", "width"), per_class=True)
    counts: Tensor = sends("counts", dtype=torch.int32, shape=("classes",), per_class=True)
