"""Classes of single training nodes, from bins of FedTrees' histograms that hold one node.

Whoever knows a node's columns, or only in which bin one of them lies, reads its class off the sign of that bin's sum of
gradients p - y.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from graphsilo.attacks.measures import wilson
from graphsilo.attacks.record import Outcome
from graphsilo.attacks.views import View
from graphsilo.data.silos.silo import Silo
from graphsilo.methods import auto
from graphsilo.methods.fedtrees.client import Client
from graphsilo.methods.fedtrees.config import FedTreesConfig
from graphsilo.methods.fedtrees.messages import HistogramRequest, Histograms

ATTACK = "labels"
FIGURE = "share of classes of training nodes that a bin of their own tells"


def labels(cases: Sequence[tuple[View, Silo]], others: Sequence[Silo]) -> list[Outcome]:
    """Share of training nodes alone in a bin, which tells their class; the prior: all are of the commonest class."""
    attacker = cases[0][0].attacker
    told = [found for view, silo in cases if (found := _find_revealed(view, silo)) is not None and len(found)]
    if not told:
        return [
            Outcome(attack=ATTACK, attacker=attacker, figure=FIGURE, uses="no histogram of a training node was seen")
        ]
    hits = np.concatenate(told)
    counts = np.sum([silo.class_counts() for silo in others], axis=0)
    uses = "bins of one node" + ("" if cases[0][0].is_single else ", summed over silos")
    share, prior = wilson(int(hits.sum()), len(hits)), float(counts.max() / counts.sum())
    return [Outcome.of(ATTACK, attacker, FIGURE, uses, share, prior=prior, targets=len(hits))]


def _find_revealed(view: View, silo: Silo) -> NDArray[np.bool_] | None:
    """[training nodes] whether a bin revealed the class; None where no histogram was seen."""
    if view.attacker != "coordinator" or view.public.settings(FedTreesConfig) is None:
        return None
    client = view.public.member(view.target, silo)
    client = client.part("trees") if isinstance(client, auto.Client) else client
    assert isinstance(client, Client)
    told: NDArray[np.bool_] | None = None
    for call in view.calls:
        request, answer = call.request, call.answer
        if isinstance(request, HistogramRequest) and not request.columns.shape[1] and isinstance(answer, Histograms):
            # At the first level all nodes are in one place, and each output has a histogram.
            places = client.layout(request.step)[1][:, 1:]
            gradients = answer.gradients.numpy()
            guess = gradients.argmin(axis=0) if len(gradients) > 1 else (gradients[0] < 0).astype(np.int64)
            alone = (answer.counts[0].numpy() == 1)[places]
            right = alone & (guess[places] == silo.labels[client.train][:, None])
            told = right.any(axis=1) | (told if told is not None else False)
    return told
