"""FedStar's GIN (Tan et al., AAAI 2023): GCFL's, beside graph convolutions on encodings of structure."""

from __future__ import annotations

from typing import Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from graphsilo.errors import ConfigError
from graphsilo.models.backbones.gin import self_blocks
from graphsilo.models.backbones.gin_gcfl import GCFLGIN, GCFLGINSettings
from graphsilo.models.base import Dense, Pooling, Readout
from graphsilo.models.dense import times
from graphsilo.models.encodings import structure_of
from graphsilo.models.settings import MOST, ModelEntry
from graphsilo.models.view import View
from graphsilo.settings import WIDEST, setting


class FedStarGINSettings(GCFLGINSettings):
    """Settings of ``gin_fedstar``."""

    walks: int = setting(16, "steps of the random walk whose chances to be back are a node's encoding", ge=0, le=MOST)
    degrees: int = setting(16, "columns of the one-hot degree; larger ones share the last", ge=0, le=WIDEST)

    @model_validator(mode="after")
    def _encodes(self) -> Self:
        if not self.walks + self.degrees:
            raise ConfigError(
                "model.walks and model.degrees are both 0, which leaves no structure to encode: raise one."
            )
        return self


class FedStarGIN(GCFLGIN):
    """``GCFLGIN`` with a second channel, graph convolutions on encodings of structure, which its layers read as well.

    S⁰ = encodings · W + b; H' = dropout(ReLU(MLP((I + A) [H ‖ S]))), then S' = tanh(Â S W + b); last [H ‖ S] W + b.

    Args:
        walks, degrees: Of the encodings, see ``encodings.structure_of``.
        inputs, classes, hidden, layers, dropout, readout, pooling: As in ``GCFLGIN``.

    Source: Tan et al., "Federated Learning on Non-IID Graphs via Structural Knowledge Sharing", AAAI 2023.
    """

    core = "structure."
    channels = 2

    def __init__(
        self,
        inputs: int,
        classes: int,
        hidden: int = 64,
        layers: int = 3,
        dropout: float = 0.5,
        walks: int = 16,
        degrees: int = 16,
        *,
        readout: Readout = "node",
        pooling: Pooling = "sum",
    ):
        super().__init__(inputs, classes, hidden, layers, dropout, readout=readout, pooling=pooling)
        self.walks, self.degrees = walks, degrees
        self._structure = [Dense(walks + degrees, hidden), *(Dense(hidden, hidden) for _ in range(layers))]
        self.structure, self.joined = nn.ModuleList(self._structure), Dense(2 * hidden, hidden)

    def _nodes(self, view: View, generator: torch.Generator | None) -> Tensor:
        hidden, (start, *convolutions) = self._first(view), self._structure
        key = ("structure", self.walks, self.degrees)
        known = view.of_links(key, lambda data: structure_of(data, self.walks, self.degrees), "sum", self.depth)
        assert start.bias is not None
        structure = known @ start.weight + start.bias
        blocks = zip(self_blocks(view, self.depth, 0.0), view.blocks("gcn", self.depth), strict=True)
        for layer, convolution, (summing, mixing) in zip(self._rows, convolutions, blocks, strict=True):
            assert convolution.bias is not None
            hidden = self._convolve(layer, summing, torch.cat([hidden, structure], 1), generator)
            structure = torch.tanh(mixing @ times(structure, convolution.weight) + convolution.bias)
        return times(torch.cat([hidden, structure], 1), self.joined.weight, self.joined.bias)


BACKBONE = ModelEntry(
    name="gin_fedstar",
    summary="FedStar's: the same beside graph convolutions on encodings of structure, which clients share",
    paper="Tan et al., Federated Learning on Non-IID Graphs via Structural Knowledge Sharing, AAAI 2023",
    settings=FedStarGINSettings,
    network=FedStarGIN,
    graphs=True,
)
