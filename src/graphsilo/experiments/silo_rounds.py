"""Rounds and models that each silo's own validation items choose."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from graphsilo.evaluate.metrics import Metric
from graphsilo.experiments.evaluation import SetScores
from graphsilo.experiments.progress import Reported, ViewProgress, first_set, worth_of
from graphsilo.types import ClientId


def choose_by_silo(views: Mapping[str, ViewProgress], modes: Sequence[str], metric: Metric) -> Reported:
    """Each client's scores by the mode that its own validation prefers."""
    values: dict[ClientId, dict[str, tuple[float, float]]] = {}
    for mode in modes:
        for client, worth in _each_worth(views[mode].best[first_set(mode)], metric).items():
            values.setdefault(client, {})[mode] = worth
    whose = {client: max(each, key=each.__getitem__) for client, each in values.items()}
    mixed = ViewProgress()
    for mode in modes:
        view, mine = views[mode], {client for client, chosen in whose.items() if chosen == mode}
        for kept, found in ((mixed.best, view.best), (mixed.last, view.last)):
            for name, scores in found.items():
                part = scores.select(mine)
                kept[name] = kept[name].join(part) if name in kept else part
        mixed.rounds |= {client: view.rounds.get(client, (view.best_round, 0.0)) for client in sorted(mine)}
    mixed.best_round = max((number for number, _ in mixed.rounds.values()), default=0)
    return Reported(f"silo_{modes[0].split('_')[1]}", mixed, whose)


def note_each(
    progress: ViewProgress,
    number: int,
    sets: dict[str, SetScores],
    mode: str,
    metric: Metric,
    stopped: Collection[ClientId] = (),
) -> frozenset[ClientId]:
    """Keep every client's own best round; says whose this one is. Without validation items it is the last."""
    better = set()
    before = _each_worth(progress.best.get(first_set(mode), SetScores()), metric)
    for client, worth in _each_worth(sets[first_set(mode)], metric).items():
        score, known = worth[0], progress.rounds.get(client)
        if client in stopped:
            continue
        if known is None or worth > before[client] or score == known[1] == float("-inf"):
            progress.rounds[client] = (number, score)
            better.add(client)
    if better:
        progress.best_round = number
        for name, found in sets.items():
            new = found.select(better)
            old = progress.best.get(name)
            progress.best[name] = new if old is None else old.select(set(old.clients) - better).join(new)
    return frozenset(better)


def _each_worth(scored: SetScores, metric: Metric) -> dict[ClientId, tuple[float, float]]:
    """How good each client's validation score is, as ``worth_of`` has it."""
    names = [name for name in (metric.name, metric.tie, "rare_f1") if name]
    rows = zip(*(scored.each("val", name) for name in names), strict=True)
    return {
        client: worth_of(dict(zip(names, row, strict=True)), metric)
        for client, row in zip(scored.clients, rows, strict=True)
    }
