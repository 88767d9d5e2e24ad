"""Targets of a silo in units that a model learns from, and back in their own.

Numbers are brought to mean 0 and deviation 1 over the training items of all silos, of which only sums cross
(:mod:`graphsilo.federation.scaling`); a silo that is alone takes its own. Labels stay 1 and 0.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.column_scales import CONSTANT
from graphsilo.data.silos.scaling import FeatureScale
from graphsilo.data.silos.silo import Silo


def scaled_targets(silo: Silo, graph: Graph | GraphCollection | None = None) -> NDArray[np.float32]:
    """[items, m] targets of a silo's training graph, or of another one of its graphs, scaled; NaN where unknown.

    Of its training graph only rows in ``silo.train`` may be read by a method.
    """
    targets = (silo.graph if graph is None else graph).union.targets
    assert targets is not None
    scale = None if silo.scale is None else silo.scale.targets
    return targets.values if scale is None else scale_values(scale, targets.values)


def scale_values(scale: FeatureScale, values: NDArray[np.floating]) -> NDArray[np.float32]:
    """[n, m] numbers in units that a model learns from."""
    return ((values - scale.shift) * scale.factor).astype(np.float32)


def read_targets(silo: Silo, outputs: NDArray[np.floating]) -> NDArray[np.floating]:
    """[n, m] of what a model says of targets: numbers in their own units, or the chance of each label."""
    if silo.schema.task == "multilabel":
        return np.asarray(1 / (1 + np.exp(-outputs.clip(-80, 80))))
    scale = None if silo.scale is None else silo.scale.targets
    return outputs if scale is None else outputs / scale.factor + scale.shift


def with_target_scale(silo: Silo, found: FeatureScale | None, agreed: FeatureScale | None) -> FeatureScale:
    """A scale of features, or none, with that of targets: the agreed one, or of a silo that is alone its own."""
    if agreed is not None and agreed.targets is not None:
        targets = agreed.targets
    else:
        counts, sums = target_sums(silo)
        centre = sums / np.maximum(counts, 1)
        targets = target_scale(centre, target_sums(silo, centre)[1], counts)
    nothing = np.zeros(0)
    return replace(FeatureScale(nothing, nothing) if found is None else found, targets=targets)


def target_sums(silo: Silo, centre: NDArray[np.float64] | None = None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """What a silo adds to means of targets, or about a centre to their deviations, of training items.

    Returns:
        [m] how many are known, and [m] their sum, or the sum of (y - centre)².
    """
    targets = silo.graph.union.targets
    assert targets is not None
    values = targets.values[silo.train].astype(np.float64)
    known = ~np.isnan(values)
    terms = values if centre is None else (values - centre) ** 2
    return known.sum(axis=0), np.where(known, terms, 0.0).sum(axis=0)


def described_counts(silo: Silo) -> NDArray[np.int64]:
    """[classes] training items that what is told of a class describes: those of the class; of a label, of which an item
    may have several, those that have it or those that do not, whichever are fewer."""
    targets = silo.graph.union.targets
    if targets is None or targets.task != "multilabel":
        return silo.class_counts()
    values = targets.values[silo.train]
    there, lacking = (np.asarray((values == value).sum(axis=0), dtype=np.int64) for value in (1, 0))
    return np.where((there > 0) & (lacking > 0), np.minimum(there, lacking), there + lacking)


def target_scale(centre: NDArray[np.float64], squares: NDArray[np.float64], counts: NDArray[np.int64]) -> FeatureScale:
    """To mean 0 and deviation 1; a target that is always the same is shifted alone."""
    spread = np.sqrt(squares / np.maximum(counts, 1))
    return FeatureScale(centre, np.divide(1.0, spread, out=np.ones_like(spread), where=spread > CONSTANT * abs(centre)))
