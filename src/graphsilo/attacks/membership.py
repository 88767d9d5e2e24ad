"""Whether a node was trained on.

The likelihood ratio attack of Carlini et al. ("Membership Inference Attacks From First Principles", S&P 2022), online:
shadow runs train on a random half of the candidates each, so that of every candidate it is known how sure models are
that saw it, and how sure those are that did not. The attacker is taken to know the candidates, their labels and links,
and all other silos' data: what is measured is an upper end.

What is summed needs no shadows. Of fewer rows than columns, every row lies in what FedRidge's matrix spans, and nothing
else does; and where FedTrees count no training node in a cell of a column, none has its number there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from graphsilo.attacks.measures import Floats, auc_interval, count_detected, wilson
from graphsilo.attacks.record import Outcome
from graphsilo.attacks.recorder import Call, Repetition, rerun
from graphsilo.attacks.rows import phi, ridge_sums
from graphsilo.attacks.views import Attacker, View, views
from graphsilo.data.silos.silo import Silo
from graphsilo.methods.fedtrees import bins
from graphsilo.methods.fedtrees.config import FedTreesConfig
from graphsilo.methods.fedtrees.messages import Cells, CellsRequest, DirectionsRequest
from graphsilo.models.node_columns import node_columns, views_of
from graphsilo.models.view import tensors_of
from graphsilo.random import numpy_generator
from graphsilo.types import ClientId

ATTACK, SUMS = "membership", "membership, from sums"
AREA = "AUC of which nodes were trained on"
RATE = 0.01
SURE = "share of training nodes recognised, with false alarms for 1 in 100 others"
_LEAST_SPREAD = 0.05
"""Deviation of a confidence that is taken at least: few shadows may agree by chance."""


@dataclass(frozen=True)
class Candidates:
    """Whom to tell apart at one silo.

    Attributes:
        nodes: [m] training nodes, and as many test nodes.
        members: [m] which were trained on.
    """

    nodes: NDArray[np.int64]
    members: NDArray[np.bool_]


def candidates(silo: Silo) -> Candidates:
    """Training nodes with a label and as many test nodes, or as many of both as there are of the fewer."""
    draw = numpy_generator(0, "attacks", "candidates", silo.client)
    kinds = [np.asarray(silo.train), np.asarray(silo.seen.items["test"], dtype=np.int64)]
    kinds = [draw.permutation(items[silo.labels[items] >= 0]) for items in kinds]
    count = min(map(len, kinds))
    nodes = np.concatenate([items[:count] for items in kinds])
    return Candidates(nodes, np.arange(2 * count) < count)


@dataclass(frozen=True)
class Shadow:
    """A run that trained on a random half of the candidates.

    Attributes:
        chosen: Of each attacked silo, which of its candidates.
    """

    run: Repetition
    chosen: Mapping[ClientId, NDArray[np.bool_]]


def shadow_runs(
    repetition: Repetition, targets: Sequence[ClientId], count: int, say: Callable[[str], None]
) -> Iterator[Shadow]:
    """Shadow runs in turn. Training nodes that are no candidates stay, and other silos are what they were."""
    for number in range(count):
        say(f"Shadow run {number + 1} of {count}.")
        silos, chosen = [], {}
        for silo in repetition.simulation.silos:
            if silo.client in targets:
                known = candidates(silo)
                draw = numpy_generator(repetition.seed, "attacks", "shadow", number, silo.client)
                half = np.isin(np.arange(len(known.nodes)), draw.permutation(len(known.nodes))[: len(known.nodes) // 2])
                chosen[silo.client] = half
                rest = np.setdiff1d(silo.train, known.nodes)
                silo = replace(silo, train=np.sort(np.concatenate([rest, known.nodes[half]])))
            silos.append(silo)
        yield Shadow(rerun(repetition, tuple(silos), repetition.seed + 1000 + number), chosen)


def membership(
    repetition: Repetition, seen: Mapping[Attacker, Sequence[View]], shadows: Iterator[Shadow]
) -> list[Outcome]:
    """The likelihood ratio attack, as every attacker."""
    silos = {silo.client: silo for silo in repetition.simulation.silos}
    known = {client: candidates(silo) for client, silo in silos.items()}
    real = {role: [confidence(view, silos[view.target], known[view.target]) for view in seen[role]] for role in seen}
    drawn: dict[Attacker, list[list[tuple[Floats, NDArray[np.bool_]]]]] = {
        role: [[] for _ in each] for role, each in seen.items()
    }
    for shadow in shadows:
        for role, found in seen.items():
            targets = tuple(view.target for view in found)
            for place, view in enumerate(views(shadow.run, role, targets)):
                sure = confidence(view, silos[view.target], known[view.target])
                if sure is not None:
                    drawn[role][place].append((sure, shadow.chosen[view.target]))
    made = []
    for role, found in seen.items():
        scores, truth = [], []
        for view, mine, theirs in zip(found, real[role], drawn[role], strict=True):
            if mine is not None and len(mine) and len(theirs) > 1:
                scores.append(likelihood_ratio(mine, *(np.stack(each) for each in zip(*theirs, strict=True))))
                truth.append(known[view.target].members)
        whose = "; ".join(dict.fromkeys(view.model for view in found if view.saved is not None))
        uses = f"how sure {whose} is, beside shadow runs"
        made += _outcomes(ATTACK, role, uses, scores, truth)
    return made


def of_sums(cases: Sequence[tuple[View, Silo]]) -> list[Outcome]:
    """How far candidates' rows are from what FedRidge's sums span, and how often in cells of FedTrees' columns that no
    training node is in; nothing where no such sums were seen."""
    scores, truth = [], []
    used: dict[str, None] = {}
    for view, silo in cases:
        known = candidates(silo)
        far: dict[str, Floats] = {}
        spans = [_distance(sums.moments, phi(view, silo, known.nodes, sums.space)) for sums in ridge_sums(view)]
        if spans:
            far["Σ φφᵀ"] = np.max(spans, axis=0)
        counts = [call for call in view.calls if isinstance(call.answer, Cells)]
        if counts and view.attacker == "coordinator":
            far["counts of cells"] = count_outside(counts, _columns(view, silo, known.nodes))
        if far and len(known.nodes):
            scores.append(-np.sum(list(far.values()), axis=0))
            truth.append(known.members)
            used |= dict.fromkeys(far)
    uses = " and ".join(used) + ("" if cases[0][0].is_single else ", summed over silos")
    return _outcomes(SUMS, cases[0][0].attacker, uses, scores, truth) if scores else []


def count_outside(counts: Sequence[Call], rows: NDArray[np.float32]) -> Floats:
    """[m] in how many cells each row would count that no training node is in.

    Args:
        counts: Answers of FedTrees' ``cells``.
        rows: [m, p] the columns of candidates, the first ones of those that were counted.
    """
    found = np.zeros(len(rows))
    for call in counts:
        assert isinstance(call.request, CellsRequest)
        assert isinstance(call.answer, Cells)
        cells, seen = (each.numpy()[: rows.shape[1]] for each in (call.request.cells, call.answer.counts))
        places = bins.fine_places(rows, cells) if cells.shape[1] else bins.coarse_places(rows)
        found += ((places >= 0) & (seen.ravel()[places] == 0)).sum(axis=1)
    return found


def _columns(view: View, silo: Silo, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
    """[m, p] FedTrees' columns of some nodes but for those of labels, which depend on who else was trained on."""
    public, none = view.public, np.zeros(0, dtype=np.float32)
    config = public.settings(FedTreesConfig)
    assert config is not None
    known = [call.request for call in public.set_up if isinstance(call.request, DirectionsRequest)]
    directions = known[0].directions.numpy() if known else none.reshape(public.schema.num_features, 0)
    data, schema = tensors_of(silo.graph), public.schema
    relations = (data, schema) if schema.relations else None
    return node_columns(views_of(data, schema), config.dim, directions, public.seed, relations, nodes)


def confidence(view: View, silo: Silo, known: Candidates) -> Floats | None:
    """[m] log p / (1 - p) of the true class, as the attacker's model has it on the silo's graph."""
    if view.saved is None:
        return None
    answers = view.public.logits(view.saved, view.target, silo.graph.union)
    if answers is None:
        return None
    rows = answers[known.nodes]
    right = torch.from_numpy(silo.labels[known.nodes])[:, None]
    rest = rows.scatter(1, right, -torch.inf).logsumexp(dim=1).clamp_min(-50.0)
    found: Floats = (rows.gather(1, right)[:, 0] - rest).numpy()
    return found


def likelihood_ratio(mine: Floats, theirs: Floats, chosen: NDArray[np.bool_]) -> Floats:
    """[m] log of how much likelier a confidence is of models that saw the candidate than of those that did not.

    Args:
        mine: [m] of the attacked model.
        theirs: [shadows, m] of the shadows' models.
        chosen: [shadows, m] which of them saw it. Normal distributions, of one spread each: with few shadows that
            of a single candidate cannot be told (Carlini et al., section VI-C).
    """
    found = np.zeros(len(mine))
    for seen, sign in ((chosen, 1.0), (~chosen, -1.0)):
        times = seen.sum(axis=0)
        mean = np.where(times > 0, (theirs * seen).sum(axis=0) / np.maximum(times, 1), theirs.mean(axis=0))
        spread = max(_LEAST_SPREAD, float(np.sqrt((np.square(theirs - mean) * seen).sum() / max(1, seen.sum()))))
        found += sign * (-0.5 * np.square((mine - mean) / spread) - np.log(spread))
    return found


def _distance(moments: torch.Tensor, rows: torch.Tensor) -> Floats:
    values, vectors = torch.linalg.eigh(moments)
    base = vectors[:, values > 1e-6 * values[-1]]
    found: Floats = ((rows - (rows @ base) @ base.t()).norm(dim=1) / rows.norm(dim=1).clamp_min(1e-30)).numpy()
    return found


def _outcomes(
    attack: str, role: Attacker, uses: str, scores: Sequence[Floats], truth: Sequence[NDArray[np.bool_]]
) -> list[Outcome]:
    if not scores:
        missing = "no model that answers about single nodes was seen, or there is none to ask it about"
        return [Outcome(attack=attack, attacker=role, figure=figure, uses=missing) for figure in (AREA, SURE)]
    flat, there = np.concatenate(scores), np.concatenate(truth)
    hits, members = count_detected(flat, there, RATE)
    return [
        Outcome.of(attack, role, AREA, uses, auc_interval(flat, there), prior=0.5, targets=len(flat)),
        Outcome.of(attack, role, SURE, uses, wilson(hits, members), prior=RATE, targets=members),
    ]
