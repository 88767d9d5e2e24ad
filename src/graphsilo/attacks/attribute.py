"""Which features nodes of a class have at a silo, such as which words: from sums, synthetic nodes, prototypes, models.

A model is asked about nodes that have a single feature: the class that a feature speaks for is one whose nodes have it
(model inversion: Fredrikson et al., CCS 2015). Prototypes are embeddings, and are read by a ridge regression from
embeddings to features that is fitted to nodes of another silo.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.attacks.measures import auc, mean_interval
from graphsilo.attacks.record import Outcome
from graphsilo.attacks.rows import ridge_sums
from graphsilo.attacks.views import View, dense
from graphsilo.data.silos.silo import Silo
from graphsilo.methods.fedridge.features import projection

ATTACK = "attribute"
FIGURE = "AUC of which features a class's training nodes have, mean over silos and classes"
_RIDGE = 1e-2


def attribute(cases: Sequence[tuple[View, Silo]], others: Sequence[Silo]) -> list[Outcome]:
    """Guess which features occur among the training nodes of each class of a silo.

    Args:
        cases: What is seen of each target, and the truth.
        others: All silos: how often nodes of the class have the feature elsewhere is the prior.
    """
    attacker = cases[0][0].attacker
    counts = {each.client: _occurrences(each) for each in others}
    values, priors = [], []
    used: dict[str, None] = {}
    for view, silo in cases:
        scores, uses = evidence(view)
        if scores is None:
            continue
        elsewhere = sum((found for client, found in counts.items() if client != silo.client), np.zeros(scores.shape))
        for label in np.flatnonzero(silo.class_counts()):
            there = counts[silo.client][label] > 0
            value = auc(scores[label].numpy(), there)
            if value is not None:
                values.append(value)
                priors.append(auc(elsewhere[label], there) or 0.0)
                used[uses] = None
    if not values:
        missing = "no sums, synthetic nodes, prototypes or model of features were seen"
        return [Outcome(attack=ATTACK, attacker=attacker, figure=FIGURE, uses=missing)]
    found = mean_interval(values)
    prior = float(np.mean(priors))
    return [Outcome.of(ATTACK, attacker, FIGURE, ", ".join(used), found, prior=prior, targets=len(values))]


def evidence(view: View) -> tuple[Tensor | None, str]:
    """[C, d] the larger, the likelier a feature is there among the class's nodes; and what that was made of."""
    classes, features = view.public.schema.num_classes, view.public.schema.num_features
    for sums in ridge_sums(view):
        width = sums.products.shape[1] - 1 - view.public.config.random_features  # type: ignore[attr-defined]
        columns = sums.products[:, :width]
        if width >= features:
            return columns[:, :features], f"Σ yφᵀ{sums.whose}"
    for call, spec, tensor in view.fields("statistic", "synthetic"):
        whose = "" if call.client is not None else ", made of all silos"
        if tensor.ndim == 2 and tensor.shape[1] % features == 0 and len(tensor) and len(tensor) % classes == 0:
            return tensor.reshape(classes, -1, tensor.shape[1]).mean(1)[:, :features], f"{spec.name}{whose}"
    for sums in ridge_sums(view):
        width = sums.products.shape[1] - 1 - view.public.config.random_features  # type: ignore[attr-defined]
        back = torch.from_numpy(projection(features, width, view.public.seed).toarray()).double()
        return sums.products[:, :width] @ back.t(), f"Σ yφᵀ, projected back{sums.whose}"
    found = _decoded(view)
    if found[0] is not None:
        return found
    for update in view.updates[:1]:
        before, after = (view.public.of_words(("common", each), view.target) for each in (update.before, update.after))
        if before is not None and after is not None:
            return (after - before).t(), f"change of the model{'' if update.own else ', mean over silos'}"
    if view.saved is not None:
        answers = view.public.of_words(view.saved, view.target)
        if answers is not None:
            words = {"common": "the common model", "sent": "the silo's last model", "own": "the silo's own saved model"}
            return answers.t(), words[view.saved[0]]
    return None, ""


def _decoded(view: View) -> tuple[Tensor | None, str]:
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


def _occurrences(silo: Silo) -> NDArray[np.float64]:
    """[C, d] how many training nodes of each class have each feature."""
    labels = silo.labels[silo.train]
    known = labels >= 0
    there = dense(silo.graph.union.features[silo.train[known]]).numpy() != 0
    found = np.zeros((silo.schema.num_classes, there.shape[1]))
    for label in np.unique(labels[known]):
        found[label] = there[labels[known] == label].sum(axis=0)
    return found
