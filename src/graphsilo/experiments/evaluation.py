"""Evaluation of a round: ask every client for counts, and compute every number from them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.errors import UnsupportedError
from graphsilo.evaluate import metrics
from graphsilo.experiments.config import EvaluationConfig, Mode, RunConfig
from graphsilo.experiments.storage.records import Scores
from graphsilo.federation.client import ClientBase, EvaluateReply, EvaluateRequest
from graphsilo.federation.interface import Federation
from graphsilo.federation.message import Tensors
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerBase
from graphsilo.random import numpy_generator
from graphsilo.types import ClientId

SCENARIO_KINDS = ("missing_class", "unseen_node", "new_client")
NAMES = {"val": "validation", "test": "test", "train": "train"}
EVERYBODY: ClientId = -1
"""In place of a client's number: one score that stands for all clients."""


def modes_of(config: EvaluationConfig, method: Method) -> tuple[Mode, ...]:
    """The modes to score: those asked for, or every view of the method on the clients' own graphs.

    Raises:
        UnsupportedError: The method has no such view.
    """
    if config.modes is None:
        return tuple(f"{view}_local" for view in method.evaluates)  # type: ignore[misc]
    for mode in config.modes:
        if mode.split("_")[0] not in method.evaluates:
            raise UnsupportedError(
                f"evaluation mode '{mode}' needs the view '{mode.split('_')[0]}'; {method.title} has only "
                f"{' and '.join(method.evaluates)}."
            )
    return tuple(dict.fromkeys(config.modes))


def view_of(mode: str) -> str:
    """``own`` or ``aggregate``."""
    return mode.split("_")[0]


def choice_of(config: RunConfig) -> str:
    """How the reported model is chosen: ``evaluation.model``, where nobody named modes and not that."""
    return "first" if config.evaluation.modes and not config.is_given("evaluation.model") else config.evaluation.model


def scenario_weights(kind: str, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights of clients in a scenario's mean: scored nodes; the new client counts each model once (FedLoG)."""
    if kind == "new_client":
        return np.ones(len(counts))
    items: NDArray[np.float64] = counts.sum(axis=(1, 2, 3)).astype(np.float64)
    return items


@dataclass
class SetScores:
    """One view on one evaluation set.

    Attributes:
        kinds: Names along the counts' second axis.
        counts: [clients, kinds, 4, C, C].
        sizes: [clients] n_k.
        scores: ``kind/metric`` → [clients, 2] value and weight.
        clients: Who stands behind each row; a client that failed has none. ``EVERYBODY`` for all at once.
        summed: How many clients are in the counts, where only their sum is known: one row then, that of everybody.
        rare: The rarer of two classes.
        tables: Of the class looked for, a row of each client: ``test``, counts of ``evaluate.binned``; ``agreed``, the
            numbers of the decision that all have.
    """

    kinds: tuple[str, ...] = ()
    counts: NDArray[np.int64] | None = None
    sizes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    scores: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    clients: tuple[ClientId, ...] = ()
    summed: int = 0
    rare: int | None = None
    tables: dict[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def scored(self) -> int:
        """How many clients were scored."""
        return self.summed or len(self.clients)

    def note_agreed(self, decision: Tensor) -> None:
        """Keep the decision that all clients have."""
        self.tables["agreed"] = np.tile(decision.numpy(), (len(self.clients), 1))

    def of(self, kind: str) -> NDArray[np.int64]:
        """Counts of one kind, [clients, 4, C, C]."""
        if self.counts is None:
            raise KeyError(kind)
        return self.counts[:, self.kinds.index(kind)]

    def each(self, kind: str, metric: str) -> list[float | None]:
        """One metric of every client, in the order of ``clients``."""
        pairs = self.scores.get(f"{kind}/{metric}")
        if pairs is not None:
            return [None if math.isnan(value) else value for value in pairs[:, 0].tolist()]
        if self.counts is None or kind not in self.kinds:
            return [None] * len(self.clients)
        if kind not in self._each:
            self._each[kind] = metrics.score_clients(self.of(kind), rare=self.rare)
        return [row.get(metric) for row in self._each[kind]]

    def select(self, clients: Collection[ClientId]) -> SetScores:
        """The rows of some clients."""
        rows = [place for place, client in enumerate(self.clients) if client in clients]
        return SetScores(
            self.kinds,
            None if self.counts is None else self.counts[rows],
            self.sizes[rows],
            {name: pairs[rows] for name, pairs in self.scores.items()},
            tuple(self.clients[row] for row in rows),
            rare=self.rare,
            tables={name: table[rows] for name, table in self.tables.items()},
        )

    def join(self, other: SetScores) -> SetScores:
        """The rows of both, which score different clients, by client."""
        clients = (*self.clients, *other.clients)
        order = sorted(range(len(clients)), key=clients.__getitem__)
        counts = None
        if self.counts is not None and other.counts is not None:
            counts = np.concatenate([self.counts, other.counts])[order]
        return SetScores(
            self.kinds,
            counts,
            np.concatenate([self.sizes, other.sizes])[order],
            {name: np.concatenate([pairs, other.scores[name]])[order] for name, pairs in self.scores.items()},
            tuple(clients[row] for row in order),
            rare=self.rare,
            tables={name: np.concatenate([table, other.tables[name]])[order] for name, table in self.tables.items()},
        )

    @cached_property
    def _each(self) -> dict[str, list[dict[str, Any]]]:
        """What ``each`` has made of counts, by kind."""
        return {}

    @cached_property
    def means(self) -> dict[str, dict[str, float | None]]:
        """``light()``, made once."""
        return self.light()

    def light(self, *, single: bool = False) -> dict[str, dict[str, float | None]]:
        """Node-weighted means of every kind, for a curve; ``single`` adds those of each of several targets."""
        result: dict[str, dict[str, float | None]] = {}
        if self.counts is not None:
            result = {NAMES.get(key, key): value for key, value in self._summaries().items()}
        for name, pairs in self.scores.items():
            from graphsilo.evaluate.scores import Score, combine

            kind, _, metric = name.partition("/")
            if "@" in metric and not single:
                continue
            each = [Score(None if np.isnan(value) else float(value), int(weight)) for value, weight in pairs]
            weights = self.sizes if len(self.sizes) == len(each) else None
            result.setdefault(NAMES.get(kind, kind), {})[metric] = combine(each, weights).value
        return result

    def _summaries(self) -> dict[str, dict[str, float | None]]:
        if self.counts is None:
            return {}
        scenario = [kind for kind in self.kinds if kind in SCENARIO_KINDS]
        plain = [kind for kind in self.kinds if kind not in SCENARIO_KINDS]
        result = {}
        if plain:
            index = [self.kinds.index(kind) for kind in plain]
            counts = self.counts if len(index) == len(self.kinds) else self.counts[:, index]
            result.update(metrics.round_summaries(counts, self.sizes, plain, rare=self.rare))
        for kind in scenario:
            counts = self.of(kind)
            result[kind] = metrics.round_summary(counts, scenario_weights(kind, counts), rare=self.rare)
        return result

    def full(self, kind: str) -> Scores:
        """Everything the result says about one kind."""
        result: dict[str, Any] = {}
        if self.counts is not None and kind in self.kinds:
            counts = self.of(kind)
            weights = scenario_weights(kind, counts) if kind in SCENARIO_KINDS else self.sizes
            result = dict(metrics.summarise(counts, weights, clients=self.clients or None, rare=self.rare))
            if EVERYBODY in self.clients:
                result["worst_client"] = {"client": None, "accuracy": None}
                result["spread"] = {"std": None, "min": None, "max": None}
        light = self.light(single=True).get(NAMES.get(kind, kind), {})
        return Scores.of(fold_targets({**light, **result}))


def fold_targets(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Scores of single targets, ``target_mae@1``, as lists under the metric's name."""
    found: dict[str, Any] = {}
    for name, value in sorted(scores.items(), key=lambda item: int(item[0].partition("@")[2] or 0)):
        metric, number, _ = name.partition("@")
        if number:
            found.setdefault(metric, []).append(value)
        else:
            found[name] = value
    return found


RoundScores = dict[str, dict[str, SetScores]]
"""View → evaluation set → scores."""


def evaluate(
    federation: Federation,
    server: ServerBase[Any],
    client: type[ClientBase[Any]],
    modes: tuple[Mode, ...],
    *,
    auc: bool,
    rare: int | None = None,
    budget: float = 1.0,
    aim: str = "",
    within: float | None = None,
    periods: Sequence[float] = (),
    minimum: int | None = None,
    to: Sequence[ClientId] | None = None,
    holders: Sequence[ClientId] = (),
    summed: bool = False,
) -> RoundScores:
    """Score the current models.

    Aggregates are sent where their view is wanted. On the pooled graph one client scores the aggregate for all, where
    all have the same. ``to`` names who is asked; None asks everybody. ``holders`` are those whose data a pooled silo
    holds. ``auc``, ``rare``, ``budget``, ``aim`` and ``periods`` are as an ``EvaluateRequest`` has them; ``within``,
    where all have one decision, is the share of all items that their budgets are. ``summed`` has only sums over clients
    sent, so that no client's own scores are seen.

    Raises:
        UnsupportedError: The aggregate's view is wanted, and the server has no aggregate for a client that is asked.
    """
    asked = federation.clients if to is None else tuple(to)
    looking: dict[str, Any] = {"auc": auc, "rare": rare, "budget": budget, "aim": aim, "periods": list(periods)}
    local = [mode.split("_")[0] for mode in modes if mode.endswith("_local")]
    pooled = [mode.split("_")[0] for mode in modes if mode.endswith("_global")]
    wanted = next((mode for mode in modes if mode.startswith("aggregate")), None)
    aggregates = {} if wanted is None else server.aggregates()
    apart = server.aggregates_at_clients
    if wanted is not None and not apart and not all(aggregates.get(client) for client in asked):
        # Clients asked for a view that they were never sent would answer with their own models.
        raise UnsupportedError(
            f"evaluation mode '{wanted}' scores the server's model, but the server of "
            f"{type(server).__module__.rpartition('.')[2]} has none in this run. Score the clients' own models: --set "
            f"'evaluation.modes=[own_local]'. (A method whose aggregates() are always empty has evaluates=('own',).)"
        )
    is_common = not apart and len({id(aggregate) for aggregate in aggregates.values()}) <= 1
    if within is not None and rare is not None and local:
        from graphsilo.experiments.sums import agree

        requests = _requests(asked, aggregates if "aggregate" in local else {}, local, [], looking)
        counted = federation.sum(client.evaluate_bins, requests, to=to).require(minimum)
        looking["agreed"] = agree(counted, rare, aim, within)
    if summed:
        from graphsilo.experiments.sums import gather_sums

        installed = aggregates if "aggregate" in local else {}
        total = federation.sum(client.evaluate_sums, _requests(asked, installed, local, [], looking), to=to)
        return gather_sums(total.require(minimum), len(total.clients), rare, looking.get("agreed"))
    replies: list[tuple[ClientId, EvaluateReply]] = []
    each_pooled = [view for view in pooled if view == "own" or not is_common]
    if local or each_pooled:
        installed = aggregates if "aggregate" in (*local, *each_pooled) else {}
        answers = federation.ask(client.evaluate, _requests(asked, installed, local, each_pooled, looking), to=to)
        if federation.limits:  # silos elsewhere said what they hold
            from graphsilo.experiments.believed import drop_unbelievable

            answers = drop_unbelievable(federation, answers, local, server.schema.num_classes)
        replies = list(answers.require(minimum))
    result = gather(replies, holders, rare)
    if "aggregate" in pooled and is_common:
        first = federation.clients[:1]
        one = federation.ask(client.evaluate, _requests(first, aggregates, [], ["aggregate"], looking)).require()
        for view, sets in gather([(EVERYBODY, reply) for _, reply in one], rare=rare).items():
            result.setdefault(view, {}).update(sets)
    for view, decision in looking.get("agreed", {}).items():
        result[view]["seen"].note_agreed(decision)
    return result


def _requests(
    clients: Sequence[ClientId], aggregates: Mapping[ClientId, Tensors], local: list[str], pooled: list[str],
    looking: Mapping[str, Any],
) -> dict[ClientId, EvaluateRequest]:  # fmt: skip
    """A request for each client; those with the same aggregate are sent the same one."""
    made: dict[int, EvaluateRequest] = {}
    for client in clients:
        aggregate = aggregates.get(client)
        if id(aggregate) not in made:
            made[id(aggregate)] = EvaluateRequest(views=local, global_views=pooled, aggregate=aggregate, **looking)
    return {client: made[id(aggregates.get(client))] for client in clients}


def gather(
    replies: list[tuple[ClientId, EvaluateReply]], holders: Sequence[ClientId] = (), rare: int | None = None
) -> RoundScores:
    """Stack the clients' counts; a pooled silo brings all its parts, the ``holders``, at once."""
    result: RoundScores = {}
    counts: dict[tuple[str, str], list[NDArray[np.int64]]] = {}
    # A silo that was away when the run beside was finished has nothing to be compared with.
    unknown = dict.fromkeys((name for _, reply in replies for name in reply.scores), (math.nan, 0.0))
    for _, run in groupby(replies, key=_look):  # mostly all of them: stacked once, and cut up by view
        alike = list(run)
        first = alike[0][1]
        tables = np.stack([reply.counts.numpy() for _, reply in alike])
        sizes = np.stack([reply.sizes.numpy() for _, reply in alike])
        row = part = 0
        for (name, kinds), parts in zip(first.kinds.items(), first.parts, strict=True):
            view, _, which = name.partition("/")
            scores = result.setdefault(view, {}).setdefault(which, SetScores(tuple(kinds), rare=rare))
            if kinds:
                end = row + parts * len(kinds)
                table = tables[:, row:end].reshape(-1, len(kinds), *tables.shape[2:])
                counts.setdefault((view, which), []).append(table)
                row = end
            scores.sizes = np.concatenate([scores.sizes, sizes[:, part : part + parts].reshape(-1)])
            pooled = tuple(holders) if parts == len(holders) else tuple(range(parts)) if parts != 1 else None
            scores.clients += tuple([client for client, _ in alike]) if pooled is None else pooled * len(alike)
            part += parts
        for name in unknown:
            view, which, key = name.split("/", 2)
            if f"{view}/{which}" not in first.kinds:
                continue
            scores = result[view][which]
            found = [reply.scores.get(name, unknown[name]) for _, reply in alike]
            scored = np.array(found, dtype=np.float64).reshape(-1, 2)
            old = scores.scores.get(key)
            scores.scores[key] = scored if old is None else np.concatenate([old, scored])
        for name in first.bins or ():
            view, which, kind = name.split("/", 2)
            kept, own = result[view][which].tables, [dict(reply.bins or {})[name].numpy() for _, reply in alike]
            kept[kind] = np.concatenate([*([kept[kind]] if kind in kept else []), *own])
    for (view, which), arrays in counts.items():
        result[view][which].counts = np.concatenate(arrays).astype(np.int64)
    return result


def _look(answer: tuple[ClientId, EvaluateReply]) -> tuple[Any, ...]:
    """Answers with the same of it have tables of the same shapes."""
    _, reply = answer
    shapes = reply.counts.shape, reply.sizes.shape, {name: len(pair) for name, pair in reply.scores.items()}
    return reply.kinds, list(reply.kinds), reply.parts, shapes, sorted(reply.bins or ())


def scored_clients(config: EvaluationConfig, clients: Sequence[ClientId], seed: int) -> tuple[ClientId, ...] | None:
    """Who is scored where ``evaluation.share`` asks for a part of the clients; None for everybody.

    The same ones in all rounds, so that rounds can be compared: int(K · share) distinct ones, drawn uniformly.
    """
    count = max(1, int(len(clients) * config.share + 1e-9))
    if count >= len(clients):
        return None
    draw = numpy_generator(seed, "evaluation", "clients")
    return tuple(sorted(clients[place] for place in draw.choice(len(clients), count, replace=False).tolist()))
