"""Which answers to an evaluation can be, of silos at other machines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping

from graphsilo.errors import FederationError, MessageError, one_line
from graphsilo.evaluate import metrics
from graphsilo.evaluate.binned import COLUMNS, split_columns
from graphsilo.federation.client import EvaluateReply
from graphsilo.federation.interface import Failure, Federation, Replies
from graphsilo.federation.scoring import PAIRED


def drop_unbelievable(
    federation: Federation, answers: Replies[EvaluateReply], views: list[str], classes: int
) -> Replies[EvaluateReply]:
    """The answers without those that cannot be: their clients have failed.

    Looked at are silos elsewhere, of which it is known what they said they hold (``limits``).
    """
    limits = federation.limits
    if not limits:
        return answers
    told = Counter(name for _, reply in answers for name in reply.kinds)
    # Who scores what nobody asked for, or what most silos do not, has failed, and has no say in what is usual.
    asked = {name for name, often in told.items() if name.rpartition("/")[0] in views and 2 * often >= len(answers)}
    seen = Counter((name, tuple(kinds)) for _, reply in answers for name, kinds in reply.kinds.items() if name in asked)
    usual: dict[str, tuple[str, ...]] = {}
    times: dict[str, int] = {}
    for (name, kinds), often in seen.most_common():
        usual.setdefault(name, kinds)
        if times.setdefault(name, often) == often and usual[name] != kinds:
            raise FederationError(
                f"silos count different kinds of items in {one_line(name, 60)}, as many these as those: one side does "
                f"not answer what it was asked, and nobody can say which. Run the same release at all of them."
            )
    counted = Counter(frozenset(reply.bins or ()) for _, reply in answers)
    (binned, often), *others = counted.most_common(2) or [(frozenset(), 0)]
    if others and others[0][1] == often:
        raise FederationError(
            "silos count scores of different items, as many these as those: one side does not answer what it was "
            "asked, and nobody can say which. Run the same release at all of them."
        )
    good, failures = dict(answers.answers), dict(answers.failures)
    for client, reply in answers:
        if client not in limits:
            continue
        trouble = _find_trouble(reply, views, classes, limits[client], usual)
        trouble = trouble or _find_bad_bins(reply, binned, limits[client])
        if trouble:
            reason = f"its evaluation cannot be: {trouble}"
            failures[client] = Failure(client, "evaluate", MessageError.__name__, reason)
            federation.note_failure(failures[client])
            del good[client]
    return Replies(good, failures)


def _find_trouble(
    reply: EvaluateReply, views: list[str], classes: int, limit: float, usual: Mapping[str, tuple[str, ...]]
) -> str:
    """Why an answer cannot be; empty if it can."""
    named = reply.kinds
    if any(name not in usual for name in named):
        return "it scores what was not asked for"
    if any(f"{view}/seen" not in named for view in views):
        return "it lacks a view that was asked for"
    if any(usual[name] != tuple(kinds) for name, kinds in named.items()):
        return "it counts other kinds of items than the other silos"
    if reply.parts != [1] * len(named) or tuple(reply.sizes.shape) != (len(named),):
        return "its parts do not fit together"
    rows = sum(map(len, named.values()))
    whole = (reply.counts, reply.sizes)
    if tuple(reply.counts.shape) != (rows, 4, classes, classes) or any(part.is_floating_point() for part in whole):
        return f"its tables have the shape {tuple(reply.counts.shape)}"
    totals = [*reply.counts.double().flatten(1).sum(1).tolist(), *reply.sizes.tolist()]
    if any(part.numel() and int(part.min()) < 0 for part in whole) or max(totals, default=0) > limit:
        return f"it counts fewer than 0 items, or more than the {limit:g} that its silo said it holds"
    ranked = {each.name for each in metrics.METRICS.values() if each.ranking is not None}
    for name, pair in reply.scores.items():
        view, _, rest = name.partition("/")
        which, _, score = rest.partition("/")
        score, at, number = score.partition("@")
        kind, _, metric = score.partition("/")
        known = usual.get(f"{view}/{which}") or ("val", "test")
        asked = metric in ("accuracy", "macro_f1") if kind == PAIRED else kind in known and metric in ranked
        if at:  # of one of several targets
            asked = asked and number in map(str, range(classes)) and metrics.METRICS[metric].per_class
        if f"{view}/{which}" not in named or not asked or len(pair) != 2:
            return "it has a score that was not asked for"
        value, weight = pair
        if not (math.isnan(value) or metrics.METRICS[metric].may_be(value)) or not 0 <= weight <= limit:
            return f"it has a score of {value:g} over {weight:g} items"
    return ""


def _find_bad_bins(reply: EvaluateReply, usual: Collection[str], limit: float) -> str:
    """Why counts of scores cannot be; empty if they can."""
    found = reply.bins or {}
    if found.keys() != usual:
        return "it counts other scores than the other silos"
    for table in found.values():
        if tuple(table.shape) != (1, 2, COLUMNS) or int(table.min()) < 0 or int(table.max()) > limit:
            return "its counts of scores have another shape, or are below 0 or above what its silo said it holds"
        if any(int(part.sum()) > limit for part in split_columns(table[0].numpy())):
            return f"it counts more scores than the {limit:g} items that its silo said it holds"
    return ""
