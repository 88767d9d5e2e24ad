"""GAMLP (Zhang et al., KDD 2022): each node weighs its propagated features by attention, then an MLP."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from graphsilo.models.base import Dense, HeadedModel, Outputs, draw_uniform, widths
from graphsilo.models.dense import times
from graphsilo.models.dropout import dropout
from graphsilo.models.levels import times_levels
from graphsilo.models.precision import keep_precision
from graphsilo.models.settings import MLP_LAYERS, MOST, HiddenSettings, ModelEntry
from graphsilo.models.view import View
from graphsilo.settings import setting


class GAMLPSettings(HiddenSettings):
    """Settings of ``gamlp``."""

    hops: int = setting(3, "propagation steps L; levels 0 to L are weighed by attention", ge=0, le=MOST)
    layers: int = setting(3, MLP_LAYERS, ge=2, le=MOST)
    attention: Literal["jk", "recursive"] = setting("jk", "what a hop is compared with: all hops, or those before it")
    score_activation: Literal["sigmoid", "relu", "leaky_relu"] = setting("sigmoid", "activation of the scores")
    attention_dropout: float = setting(0.0, "share of hop weights set to 0 in training", ge=0, lt=1)
    legacy_layout: bool = setting(False, "mix the nodes' scores as a release does; only to reproduce its numbers")


_GAIN = math.sqrt(2.0)


class HopAttention(nn.Module):
    """The scorer: ``weight`` [references + 1, d], the last row for the hop itself, and ``bias`` [1]."""

    def __init__(self, references: int, inputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(references + 1, inputs))
        self.bias = nn.Parameter(torch.empty(1))

    def initialise(self, generator: torch.Generator) -> None:
        draw_uniform(self.weight, self.weight.numel() + 1, generator, gain=_GAIN)
        nn.init.zeros_(self.bias)


class SharedPReLU(nn.Module):
    """max(x, 0) + slope · min(x, 0) with one trainable slope, 0.25 at the start."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.empty(1))

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.constant_(self.slope, 0.25)

    def forward(self, values: Tensor) -> Tensor:
        """Any shape."""
        with keep_precision(values):  # torch counts this one among the products
            return nn.functional.prelu(values, self.slope)


class GAMLP(HeadedModel):
    """MLP(Σ_l w_vl X_v^(l)), w_v = softmax over l of the scores s_vl, X^(l) = Â^l X for l = 0..L.

    ``jk``: s_vl = act(w_refᵀ [X_v^(0) ‖ … ‖ X_v^(L)] + w_hopᵀ X_v^(l) + b).
    ``recursive``: s_vl = act(w_refᵀ h_vl + w_hopᵀ X_v^(l) + b), h_v0 = X_v^(0) and
    h_vl = Σ_{j<l} softmax_j(s_v0..s_v,l−1) X_v^(j).

    Neither the concatenation nor Σ_l w_vl X^(l) is built: with the weight split, every use of X^(l) is one product
    with a matrix of 2 + h columns, so that sparse hops stay sparse.

    Args:
        inputs: d.
        classes: C.
        hops: L.
        hidden: Width of each hidden layer of the MLP, at least one.
        dropout: Rate after each hidden activation.
        attention: ``jk`` or ``recursive``.
        score_activation: act: ``sigmoid``, ``relu`` or ``leaky_relu`` (slope 0.2).
        attention_dropout: Rate on w.
        legacy_layout: Reproduces a release that reads the scores of the stacked hops, [(L+1) · n], row by row as
            [n, L+1], which mixes nodes and hops: outputs then depend on which rows are computed together. Only for
            reproducing published numbers.

    P = (L+2)d + 1 + dh + h + h² + h + hC + C + 1 with ``jk`` and two hidden layers; 2d + 1 for the scorer with
    ``recursive``.

    Source: Zhang et al., "Graph Attention Multi-Layer Perceptron", KDD 2022, eqs. 5 to 8, in FedGTA's form: L = 3,
    reference without an MLP of its own, 3 layers, one shared PReLU, dropout 0.5, Xavier-uniform with gain √2.
    Deviations: no input dropout, no label use, no unused link-prediction layer.
    """

    def __init__(
        self,
        inputs: int,
        classes: int,
        hops: int = 3,
        hidden: Sequence[int] = (64, 64),
        dropout: float = 0.5,
        attention: Literal["jk", "recursive"] = "jk",
        score_activation: Literal["sigmoid", "relu", "leaky_relu"] = "sigmoid",
        attention_dropout: float = 0.0,
        legacy_layout: bool = False,
    ):
        super().__init__()
        self.scorer = HopAttention(hops + 1 if attention == "jk" else 1, inputs)
        self._rows = [Dense(*pair, gain=_GAIN) for pair in widths(inputs, hidden, classes)]
        self.layers = nn.ModuleList(self._rows)
        self.activation = SharedPReLU()
        self.embedding_dim, self.num_classes = hidden[-1], classes
        self.head = f"layers.{len(self.layers) - 1}."
        self.hops, self.attention, self.score_activation = hops, attention, score_activation
        self.dropout, self.attention_dropout, self.legacy_layout = dropout, attention_dropout, legacy_layout

    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        return self._finish(self._mix(view, generator), generator)

    def outputs_beside(self, view: View, others: View, generator: torch.Generator | None) -> Outputs:
        # Products and attention of all rows serve both, unless some rows, or a mask, have a say in others' attention.
        if not others.is_full or self.legacy_layout or self.attention_dropout:
            return super().outputs_beside(view, others, generator)
        mixed = self._mix(others)
        rows = view.cached(("nodes",), lambda: torch.from_numpy(view.nodes).to(view.device))
        return Outputs(self._head(self._finish(mixed.index_select(0, rows), generator)), self._finish(mixed))

    def _mix(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        """The first hidden layer, before dropout [items, h]."""
        projected, *scores = self._products(view)
        weights = dropout(self._weights(*scores), self.attention_dropout, generator)
        hidden: Tensor = (weights.unsqueeze(-1) * projected).sum(0) + self._rows[0].bias  # type: ignore[operator]
        return self.activation(hidden)  # type: ignore[no-any-return]

    def _finish(self, hidden: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The embeddings [items, p] of rows of the first hidden layer."""
        hidden = dropout(hidden, self.dropout, generator)
        for layer in self._rows[1:-1]:
            hidden = dropout(self.activation(times(hidden, layer.weight, layer.bias)), self.dropout, generator)
        return hidden

    def hop_weights(self, view: View) -> Tensor:
        """w [items, L + 1]: how much each node takes from each hop, without dropout; rows sum to 1."""
        _, *scores = self._products(view)
        return self._weights(*scores).t()

    def _products(self, view: View) -> tuple[Tensor, Tensor, Tensor]:
        """X^(l) W_1 [L+1, n, h], and what reference and hop add to each score, [L+1, n] both."""
        weight, scorer = self._rows[0].weight, self.scorer.weight
        # One product per hop for all that is multiplied by it.
        found = times_levels(view, self.hops, torch.cat([weight, scorer.t()], 1))
        projected, references, own = found.split([weight.shape[1], len(scorer) - 1, 1], 2)
        # Level l takes the l-th reference, or the only one.
        reference = references.expand(-1, -1, self.hops + 1).diagonal(dim1=0, dim2=2).t()
        return projected, reference, own.squeeze(2)

    def _weights(self, reference: Tensor, own: Tensor) -> Tensor:
        """[L + 1, n] from both shares of each score."""
        if self.attention == "jk":
            scores = self._act(reference.sum(0) + own + self.scorer.bias)
        else:
            found = [self._act(reference[0] + own[0] + self.scorer.bias)]
            for level in range(1, self.hops + 1):
                history = (torch.softmax(torch.stack(found), 0) * reference[:level]).sum(0)
                found.append(self._act(history + own[level] + self.scorer.bias))
            scores = torch.stack(found)
        if self.legacy_layout:
            scores = scores.reshape(-1, self.hops + 1).t()
        return torch.softmax(scores, 0)

    def _act(self, scores: Tensor) -> Tensor:
        if self.score_activation == "sigmoid":
            return scores.sigmoid()
        return scores.relu() if self.score_activation == "relu" else nn.functional.leaky_relu(scores, 0.2)


BACKBONE = ModelEntry(
    name="gamlp",
    summary="an MLP on the propagation levels, weighed per node by attention",
    paper="Zhang et al., Graph Attention Multi-Layer Perceptron, KDD 2022",
    settings=GAMLPSettings,
    network=GAMLP,
    edge_weights=True,
    keeps="chained levels",
)
