"""Whether two nodes of a silo are linked, from how alike a model's answers about them are.

He et al., "Stealing Links from Graph Neural Networks", USENIX Security 2021: answers that were computed along links are
more alike at their two ends. A reader is given the predictions of the silo's nodes, as its owner may publish them. A
coordinator and another silo have no such answers. They are taken to know the nodes' features, and ask the model about
nodes without links.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.attacks.measures import Floats, auc, auc_interval
from graphsilo.attacks.record import Outcome
from graphsilo.attacks.views import View, dense, without_links
from graphsilo.data.silos.silo import Silo
from graphsilo.random import numpy_generator

ATTACK = "links"
FIGURE = "AUC of which pairs of nodes are linked"
PAIRS = 2000
"""Linked pairs of a silo that are looked at, and as many that are not."""
LEAST = -30.0
"""Log-probability that is told from less no more: a class for which nothing votes has minus infinity."""


def links(cases: Sequence[tuple[View, Silo]], others: Sequence[Silo]) -> list[Outcome]:
    """Tell linked pairs from others; the prior is how alike their features are."""
    attacker = cases[0][0].attacker
    scores, prior, truth = [], [], []
    uses = ""
    for view, silo in cases:
        answers = view.predictions
        if attacker == "reader":
            uses = "published predictions of the silo's nodes"
        elif view.saved is not None:
            answers = view.public.logits(view.saved, view.target, without_links(silo.graph.union))
            uses = "the model, asked about the nodes without links"
        pairs, linked = sample_pairs(silo)
        if answers is None or not len(linked):
            continue
        scores.append(correlation(answers, pairs))
        prior.append(_cosine(dense(silo.graph.union.features), pairs))
        truth.append(linked)
    if not scores:
        missing = "no predictions, and no model that answers about single nodes, were seen"
        return [Outcome(attack=ATTACK, attacker=attacker, figure=FIGURE, uses=missing)]
    there, known = np.concatenate(truth), np.concatenate(prior)
    found = auc_interval(np.concatenate(scores), there)
    return [Outcome.of(ATTACK, attacker, FIGURE, uses, found, prior=auc(known, there), targets=len(there))]


def sample_pairs(silo: Silo) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """[2, m] pairs of nodes, and whether they are linked: half of them are."""
    graph = silo.graph.union
    source, target = (end.astype(np.int64) for end in graph.edges)
    count = graph.num_nodes
    keys = np.unique(np.minimum(source, target) * count + np.maximum(source, target))
    keys = keys[keys // count != keys % count]
    draw = numpy_generator(0, "attacks", "links", silo.client)
    chosen = draw.permutation(keys)[:PAIRS]
    drawn = draw.integers(count, size=(2, 4 * len(chosen) + 64))
    apart = np.unique(drawn.min(axis=0) * count + drawn.max(axis=0))
    apart = draw.permutation(np.setdiff1d(apart[apart // count != apart % count], keys))[: len(chosen)]
    chosen = chosen[: len(apart)]
    both = np.concatenate([chosen, apart])
    return np.stack([both // count, both % count]), np.arange(len(both)) < len(chosen)


def correlation(answers: Tensor, pairs: NDArray[np.int64]) -> Floats:
    """[m] Pearson correlation of the log-probabilities of both ends."""
    answers = answers.clamp_min(LEAST)
    return _cosine(answers - answers.mean(dim=1, keepdim=True), pairs)


def _cosine(rows: Tensor, pairs: NDArray[np.int64]) -> Floats:
    unit = torch.nn.functional.normalize(rows, dim=1)
    found: Floats = (unit[pairs[0]] * unit[pairs[1]]).sum(dim=1).numpy()
    return found
