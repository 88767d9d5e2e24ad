"""What FairFGL's clients and server send each other."""

from __future__ import annotations

import torch
from torch import Tensor

from graphsilo.federation.message import Message, Tensors, sends


class TrainRequest(Message):
    """The shared model, and the update of another client: the one that went the other way in the last round.

    Attributes:
        weights: The shared model.
        deviated_values, deviated_positions, deviated_bitmap: That client's update of the last round as it came, in
            the coding of ``updates.SparseUpdate``; none for whoever took no part in that round.
    """

    weights: Tensors = sends("model")
    deviated_values: Tensor | None = sends("model", relayed=True, default=None)
    deviated_positions: Tensor | None = sends("model", dtype=torch.int32, relayed=True, default=None)
    deviated_bitmap: Tensor | None = sends("model", dtype=torch.uint8, relayed=True, default=None)


class TrainReply(Message):
    """The most changed entries of the update, in the shortest of three codings.

    Attributes:
        values: What changed: the kept entries, or all.
        positions: Places of the entries, [kept] int32.
        bitmap: Or one bit per weight of the model, [ceil(P / 8)] uint8.
        num_samples: Weight of the client; 0 if it has nothing to learn from.
    """

    values: Tensor = sends("model", relayed=True)
    positions: Tensor | None = sends("model", dtype=torch.int32, relayed=True, default=None)
    bitmap: Tensor | None = sends("model", dtype=torch.uint8, relayed=True, default=None)
    num_samples: float = sends("counts")
