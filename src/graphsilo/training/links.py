"""The loss of link prediction: which pairs of nodes are linked."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.silos.silo import Silo
from graphsilo.models.base import Model
from graphsilo.models.view import GraphTensors
from graphsilo.training.objective import Objective


class PredictLinks(Objective):
    """Binary cross-entropy of dot products of embeddings: linked pairs against as many random ones.

    Negatives are uniform pairs of nodes, drawn again for each step (they may hit a link, which is rare on sparse
    graphs; Hamilton et al., NeurIPS 2017, do the same).
    """

    def __init__(self, data: GraphTensors, silo: Silo):
        if silo.links is None:
            raise ValueError("link prediction needs a silo with links")
        self.data = data
        self._pairs = torch.from_numpy(np.ascontiguousarray(silo.links.train)).to(data.device)
        self.num_samples = int(self._pairs.shape[1])

    def batches(self, size: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        if size <= 0 or size >= self.num_samples:
            yield self._with_negatives(self._pairs, generator)
            return
        order = torch.randperm(self.num_samples, generator=generator).to(self.data.device)
        for part in order.split(size):
            yield self._with_negatives(self._pairs[:, part], generator)

    def _with_negatives(self, positive: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        count = positive.shape[1]
        negative = torch.randint(self.data.num_nodes, (2, count), generator=generator).to(positive.device)
        target = torch.cat([positive.new_ones(count), positive.new_zeros(count)]).to(torch.float32)
        return torch.cat([positive, negative], dim=1), target

    def loss(self, model: Model, batch: tuple[Tensor, Tensor], generator: torch.Generator | None) -> Tensor:
        pairs, target = batch
        scores = link_scores(model(self.data.full, generator), pairs)
        return F.binary_cross_entropy_with_logits(scores, target.to(scores.dtype))


def link_scores(embeddings: Tensor, pairs: Tensor | NDArray[np.int64]) -> Tensor:
    """Dot product of the two ends' embeddings.

    Args:
        embeddings: [nodes, p].
        pairs: [2, m] node numbers.

    Returns:
        [m] scores; a link is likelier the larger.
    """
    ends = torch.as_tensor(pairs, device=embeddings.device)
    return (embeddings[ends[0]] * embeddings[ends[1]]).sum(dim=1)
