"""Rows of features, recovered from what was sent.

A sum over a single node is its row. A linear layer's gradient is Σ δ xᵀ: divided by the bias' gradient Σ δ it is a mean
of inputs, and one of them exactly where only one node makes a unit fire (Geiping et al., NeurIPS 2020, and the trap
weights of Fowl et al., ICLR 2022, rest on it). A matrix Σ φ φᵀ of few rows has, as the column of a feature that one row
has alone, that row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.attacks.measures import wilson
from graphsilo.attacks.record import Outcome
from graphsilo.attacks.views import Update, View, dense, numbers_of
from graphsilo.data.silos.silo import Silo
from graphsilo.federation.release import Release
from graphsilo.methods.fedridge import columns, private
from graphsilo.methods.fedridge.config import FedRidgeConfig, plain_of
from graphsilo.methods.fedridge.features import Features
from graphsilo.methods.fedridge.messages import ScaleRequest, Statistics
from graphsilo.methods.fedridge.solve import unpack
from graphsilo.models.hops import hop_matrix
from graphsilo.models.view import tensors_of

ATTACK = "rows"
ALIKE = (0.999, 0.95)
"""Cosines from which a row counts as recovered."""
_SUMS = ("statistic", "synthetic")
_TINY = 1e-12
Space: TypeAlias = "tuple[str, int] | None"
"""What rows are of: FedRidge's features of a kind and width, or (None) raw ones."""


def rows(cases: Sequence[tuple[View, Silo]], others: Sequence[Silo]) -> list[Outcome]:
    """Share of rows of the silo's training nodes and their neighbours that are among the attacker's guesses.

    The prior's guesses are the rows of another silo.
    """
    attacker = cases[0][0].attacker
    hits, prior, targets = dict.fromkeys(ALIKE, 0), dict.fromkeys(ALIKE, 0), 0
    used: dict[str, None] = {}
    for view, silo in cases:
        guesses: dict[Space, list[Tensor]] = {}
        for what, space, matrix in _guesses(view):
            guesses.setdefault(space, []).append(matrix)
            used[what] = None
        elsewhere = next((other for other in others if other.client != silo.client), None)
        best, before = np.zeros(0), np.zeros(0)
        for space, found in guesses.items():
            truth = _truth(view, silo, space)
            theirs = [] if elsewhere is None else list(_truth(view, elsewhere, space))
            best, before = _larger(best, _nearest(truth, found)), _larger(before, _nearest(truth, theirs))
        targets += len(best)
        for each in ALIKE:
            hits[each] += int((best > each).sum())
            prior[each] += int((before > each).sum())
    figures = [f"share of rows recovered, cosine above {each}" for each in ALIKE]
    if not used or not targets:
        missing = "no change of first-layer weights, sum or class mean of a silo was seen"
        return [Outcome(attack=ATTACK, attacker=attacker, figure=figure, uses=missing) for figure in figures]
    return [
        Outcome.of(
            ATTACK, attacker, figure, ", ".join(used), wilson(hits[each], targets), prior=prior[each] / targets,
            targets=targets,
        )
        for figure, each in zip(figures, ALIKE, strict=True)
    ]  # fmt: skip


# -- guesses -------------------------------------------------------------------------------------------------------


def _guesses(view: View) -> Iterator[tuple[str, Space, Tensor]]:
    """Rows that the attacker thinks are there, [m, width]: what they were made of, in which space, and themselves."""
    for update in view.updates:
        for guess in of_gradient(update, view):
            yield f"change of the first layer{update.whose}", None, guess
    for sums in ridge_sums(view):
        values, vectors = torch.linalg.eigh(sums.moments)
        top = vectors[:, values > 1e-6 * values[-1]].t()
        yield f"sums Σ φφᵀ and Σ yφᵀ{sums.whose}", sums.space, torch.cat([sums.products, sums.moments, top, -top])
    features = view.public.schema.num_features
    for call, spec, tensor in view.fields(*_SUMS):
        if spec.form == "tensor" and tensor.ndim >= 2 and tensor.shape[-1] % features == 0:
            yield f"{spec.name}{call.whose}", None, tensor.reshape(-1, features)


def of_gradient(update: Update, view: View) -> Iterator[Tensor]:
    """Of a layer that takes features: for each unit the ratio of its weights' gradient to that of its bias, or the
    weights' gradient alone, whose direction is a weighted mean of inputs, too."""
    found = update.gradient(view.public.config)
    for name, tensor in found.items():
        if tensor.ndim != 2 or tensor.shape[0] != view.public.schema.num_features:
            continue
        units = tensor.t()
        bias = found.get(name.removesuffix("weight") + "bias")
        if bias is not None and bias.shape == (len(units),):
            fires = bias.abs() > _TINY
            yield units[fires] / bias[fires, None]
        yield torch.cat([units, -units])


@dataclass(frozen=True)
class RidgeSums:
    """FedRidge's sums for one kind of features, without the columns of labels.

    Attributes:
        space: Which features, and most of their columns.
        moments: [p, p] Σ φφᵀ.
        products: [C, p] Σ yφᵀ.
        plain: How many of the p columns are of features as they are, or projected; they come first.
        whose: As of the message.
    """

    space: tuple[str, int]
    moments: Tensor
    products: Tensor
    plain: int
    whose: str


def ridge_sums(view: View) -> Iterator[RidgeSums]:
    """What of FedRidge's sums was seen."""
    config, schema = view.public.settings(FedRidgeConfig), view.public.schema
    if view.attacker != "coordinator" or config is None:
        return
    for call in view.calls:
        moments: Mapping[str, Tensor]
        products: Mapping[str, Tensor]
        if isinstance(call.answer, Release):
            kind = config.released
            width = config.width(kind, config.dim, schema)
            square, cross = private.parts(numbers_of(call.answer, private.SENSITIVITY), schema.num_classes, width)
            moments, products, dim = {kind: square}, {kind: cross}, config.dim
        elif isinstance(call.answer, Statistics):
            moments, products, dim = call.answer.moments, call.answer.products, call.request.dim  # type: ignore[attr-defined]
        else:
            continue
        for name, packed in moments.items():
            kind = plain_of(name.split("/")[0])
            width = config.width(kind, dim, schema)
            square = unpack(packed, products[name].shape[1]).triu()
            square = (square + square.t() - square.diag().diag())[:width, :width]
            plain = width - 1 - config.random_features
            yield RidgeSums((kind, dim), square, products[name][:, :width].double(), plain, call.whose)


# -- truth ---------------------------------------------------------------------------------------------------------


def reach(silo: Silo, links: int = 1) -> NDArray[np.int64]:
    """Nodes from which a training node is so many links away: of two layers, the first sees two links far."""
    adjacency = silo.graph.union.adjacency()
    near = np.zeros(adjacency.shape[0], dtype=bool)
    near[silo.train] = True
    for _ in range(links):
        near |= np.asarray(adjacency.T @ near.astype(np.float32)) > 0
    found: NDArray[np.int64] = np.flatnonzero(near)
    return found


def phi(view: View, silo: Silo, nodes: NDArray[np.int64], space: tuple[str, int]) -> Tensor:
    """FedRidge's rows of some nodes, [n, p]; with noise they are of the nodes' own features alone."""
    config = view.public.settings(FedRidgeConfig)
    assert config is not None
    recipe = config.recipe(space[0], view.public.seed, space[1], silo.schema)
    recipe = replace(recipe, hops=0) if config.epsilon is not None else recipe
    data, base = tensors_of(silo.graph), None
    if recipe.kind == "columns":
        scale = next(call.request.scale for call in view.calls if isinstance(call.request, ScaleRequest))
        raw = columns.raw_columns(data, silo.schema, space[1], view.public.seed)
        base = columns.standardise(columns.take_logarithms(raw), scale)[:, : recipe.columns]
    features = Features(data, recipe, base=base)
    none = torch.zeros(0, features.width, dtype=torch.float64)  # where there are no nodes
    return torch.cat([none, *(part for _, part in features.blocks(nodes))])


def _truth(view: View, silo: Silo, space: Space) -> Tensor:
    """The rows that guesses are held against, of length 1, [levels, n, width]: X and ÂX of the same nodes, or φ."""
    if space is not None:
        return _unit(phi(view, silo, silo.train, space))[None]
    data, nodes = tensors_of(silo.graph), reach(silo)
    return torch.stack([_unit(dense(hop_matrix(data, level, "gcn")[nodes])) for level in (0, 1)])


def _larger(known: NDArray[np.float64], found: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(known, found) if len(known) else found


def _nearest(truth: Tensor, guesses: Sequence[Tensor]) -> NDArray[np.float64]:
    """[targets] best cosine of any guess to any of a target's rows [levels, targets, width]."""
    best = torch.zeros(truth.shape[1], dtype=torch.float64)
    for guess in guesses:
        unit = _unit(guess.reshape(-1, guess.shape[-1]))
        if len(unit):
            for level in truth:
                best = torch.maximum(best, (level @ unit.t()).amax(dim=1))
    return best.numpy()


def _unit(matrix: Tensor) -> Tensor:
    matrix = torch.nan_to_num(matrix.double(), posinf=0.0, neginf=0.0)
    return torch.nn.functional.normalize(matrix, dim=1, eps=1e-30)
