"""Which features nodes of a class have at a silo, such as which words: from sums, synthetic nodes, prototypes, models.

A model is asked about nodes that have a single feature: the class that a feature speaks for is one whose nodes have it
(model inversion: Fredrikson et al., CCS 2015). Prototypes are embeddings, and are read by a ridge regression from
embeddings to features that is fitted to nodes of another silo.

Of a feature that no node has, the first layer's weights change by their decay alone, and what else a method does to all
weights. An attacker sees how by training on a node without features: what changes otherwise is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.attacks.measures import auc, mean_interval
from graphsilo.attacks.record import Outcome
from graphsilo.attacks.rows import reach, ridge_sums
from graphsilo.attacks.views import Update, View, dense, weights_in
from graphsilo.data.silos.silo import Silo
from graphsilo.federation.message import Tensors
from graphsilo.models.columns import projection
from graphsilo.types import ClientId

ATTACK, SILO = "attribute", "attribute, of the silo"
FIGURE = "AUC of which features a class's training nodes have, mean over silos and classes"
ANYWHERE = "AUC of which features nodes within two links of training nodes have, mean over silos"
_RIDGE = 1e-2
Counted: TypeAlias = "NDArray[np.float64]"


def attribute(cases: Sequence[tuple[View, Silo]], others: Sequence[Silo]) -> list[Outcome]:
    """Guess which features occur among the training nodes of each class of a silo, and which in a silo at all.

    The prior is how often nodes (of the class) have the feature elsewhere.
    """
    trained = {each.client: _of_classes(each) for each in others}
    reached = {each.client: _count_features(each, reach(each, 2), None) for each in others}
    return [
        _outcome(ATTACK, FIGURE, cases, evidence, trained),
        _outcome(SILO, ANYWHERE, cases, measure_change, reached),
    ]


def _outcome(
    name: str,
    figure: str,
    cases: Sequence[tuple[View, Silo]],
    guess: Callable[[View], tuple[Tensor | None, str]],
    counts: Mapping[ClientId, Counted],
) -> Outcome:
    attacker = cases[0][0].attacker
    values, priors = [], []
    used: dict[str, None] = {}
    for view, silo in cases:
        scores, uses = guess(view)
        if scores is None:
            continue
        elsewhere = sum((found for client, found in counts.items() if client != silo.client), np.zeros(scores.shape))
        for place, mine in enumerate(counts[silo.client]):
            value = auc(scores[place].numpy(), mine > 0)
            if value is not None:
                values.append(value)
                priors.append(auc(elsewhere[place], mine > 0) or 0.0)
                used[uses] = None
    if not values:
        missing = "no sums, synthetic nodes, prototypes or model of features were seen"
        return Outcome(attack=name, attacker=attacker, figure=figure, uses=missing)
    prior = float(np.mean(priors))
    return Outcome.of(name, attacker, figure, ", ".join(used), mean_interval(values), prior=prior, targets=len(values))


def evidence(view: View) -> tuple[Tensor | None, str]:
    """[C, d] the larger, the likelier a feature is there among the class's nodes; and what that was made of."""
    classes, features = view.public.schema.num_classes, view.public.schema.num_features
    sums = max(ridge_sums(view), key=lambda each: each.products.shape[1], default=None)
    if sums is not None:
        columns = sums.products[:, : sums.plain]
        if sums.plain >= features:
            return columns[:, :features], f"Σ yφᵀ{sums.whose}"
        back = torch.from_numpy(projection(features, sums.plain, view.public.seed).toarray()).double()
        return columns @ back.t(), f"Σ yφᵀ, projected back{sums.whose}"
    for call, spec, tensor in view.fields("statistic", "synthetic"):
        whose = "" if call.client is not None else ", made of all silos"
        if tensor.ndim == 2 and tensor.numel() and tensor.shape[1] % features == 0 and len(tensor) % classes == 0:
            return tensor.reshape(classes, -1, tensor.shape[1]).mean(1)[:, :features], f"{spec.name}{whose}"
    found = _decode(view)
    if found[0] is not None:
        return found
    for update in view.updates[:1]:
        before, after = (view.public.of_words(("common", each), view.target) for each in (update.before, update.after))
        if before is not None and after is not None:
            return (after - before).t(), f"change of the model{update.whose}"
    if view.saved is not None:
        answers = view.public.of_words(view.saved, view.target)
        if answers is not None:
            return answers.t(), view.model
    return None, ""


def _decode(view: View) -> tuple[Tensor | None, str]:
    """Prototypes, read by a regression that a silo's own nodes give."""
    classes = view.public.schema.num_classes
    if view.decoder is None:
        return None, ""
    features, embeddings = view.decoder
    latest: tuple[Tensor | None, str] = (None, "")
    for call, spec, tensor in view.fields("prototype"):
        if tensor.ndim < 2 or tensor.shape[0] != classes or tensor.shape[-1] != embeddings.shape[1]:
            continue
        whose = "" if call.client is not None else ", of all silos"
        square = embeddings.t() @ embeddings
        square += _RIDGE * square.diagonal().mean() * torch.eye(len(square), dtype=square.dtype)
        read = torch.linalg.solve(square, embeddings.t() @ features)
        rows = tensor.reshape(classes, -1, tensor.shape[-1])[:, -1]  # of several levels the deepest
        latest = rows @ read, f"{spec.name}{whose}, read with another silo's nodes"
    return latest


def measure_change(view: View) -> tuple[Tensor | None, str]:
    """[1, d] how far each feature's weights have moved from where they would be if no node had it; and what that was
    seen of."""
    for update in view.updates[:1]:
        still = _without_features(update, view)
        for name, before in update.before.items():
            if before.ndim != 2 or before.shape[0] != view.public.schema.num_features:
                continue
            far = (update.after[name].double() - still.get(name, before).detach().double()).norm(dim=1)
            return far[None], f"change of the first layer{update.whose}"
    for sums in ridge_sums(view):
        width = view.public.schema.num_features
        if sums.plain >= width:
            return sums.moments.diag()[None, :width], f"Σ φφᵀ{sums.whose}"
    return None, ""


def _without_features(update: Update, view: View) -> Tensors:
    """Weights after local training on a node that has no feature; empty where that cannot be known."""
    if update.asked is None or update.round != 1:
        return {}
    answer = view.public.without_features(update.asked, view.target)
    if answer is None:
        return {}
    return next((weights for _, weights in weights_in(answer) if weights.keys() == update.before.keys()), {})


def _of_classes(silo: Silo) -> Counted:
    """[C, d] how many training nodes of each class have each feature."""
    known = silo.train[silo.labels[silo.train] >= 0]
    return np.stack([_count_features(silo, known, label)[0] for label in range(silo.schema.num_classes)])


def _count_features(silo: Silo, nodes: NDArray[np.int64], label: int | None) -> Counted:
    """[1, d] how many of these nodes, or of those of a class, have each feature."""
    chosen = nodes if label is None else nodes[silo.labels[nodes] == label]
    return np.asarray((dense(silo.graph.union.features[chosen]).numpy() != 0).sum(axis=0, dtype=np.float64))[None]
