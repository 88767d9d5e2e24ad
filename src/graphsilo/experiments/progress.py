"""How far one seed is and what it has found: the best and the last evaluation, round by round."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import msgspec
import numpy as np
import torch

from graphsilo.evaluate.metrics import Metric
from graphsilo.experiments.evaluation import RoundScores, SetScores, view_of
from graphsilo.experiments.storage.records import ModeScores, Scores
from graphsilo.federation.message import Tensors
from graphsilo.federation.server import ServerBase
from graphsilo.types import ClientId

Improved: TypeAlias = bool | frozenset[ClientId]
"""Whether a mode has never been better; where every client has its own best round, whose it is."""


@dataclass
class SeedProgress:
    """How far a seed is, and what it has found; all of it survives in a checkpoint and its history of rounds."""

    round: int = 0
    rounds: list[dict[str, Any]] = field(default_factory=list)
    setup: dict[str, Any] = field(default_factory=dict)
    views: dict[str, ViewProgress] = field(default_factory=dict)
    since_best: int = 0
    stopped: bool = False
    current: dict[str, Any] = field(default_factory=dict)
    best_score: tuple[float, int] | None = None
    best_worth: tuple[int, float, float] | None = None

    def note(
        self,
        number: int,
        scores: RoundScores,
        modes: tuple[str, ...],
        metric: Metric,
        choice: str,
        *,
        alone: bool = False,
        patience: float = math.inf,
    ) -> tuple[dict[str, Improved], SetScores]:
        """Keep what is best by validation, per mode; says which of them has never been better, and gives this round's
        scores of the mode that is reported as things stand.

        Args:
            number: Of the round.
            scores: What the clients' answers came to.
            modes: What was scored, the first one first.
            metric: Of validation.
            choice: As of ``choose_reported``.
            alone: Whether every client has a best round of its own; then those that have just had it are returned.
            patience: With ``alone``, rounds without a better one after which nothing of a client counts any more.
        """
        improved: dict[str, Improved] = {}
        own = self.views[modes[0]].rounds if alone and modes[0] in self.views else {}
        stopped = {client for client, (best, _) in own.items() if number - best > patience}
        self.current = {}
        for place, mode in enumerate(modes):
            view = view_of(mode)
            found = scores.get(view, {})
            sets = {name: value for name, value in found.items() if (name == "global") == mode.endswith("_global")}
            light = sets[first_set(mode)].means
            if place == 0:
                self.current = {"validation": light.get("validation", {}), "test": light.get("test", {})}
                scenarios = {name: value.light() for name, value in sets.items() if name != first_set(mode)}
                if scenarios:
                    self.current["scenarios"] = {
                        kind: score for part in scenarios.values() for kind, score in part.items()
                    }
            else:
                self.current.setdefault("modes", {})[mode] = {
                    "validation": light.get("validation", {}), "test": light.get("test", {})
                }  # fmt: skip
            kept = self.views.setdefault(mode, ViewProgress())
            value = light.get("validation", {}).get(metric.name)
            kept.last = sets
            if alone:
                from graphsilo.experiments.silo_rounds import note_each

                improved[mode] = note_each(kept, number, sets, mode, metric, stopped)
                continue
            # A round in which a client was not scored is no match for one in which all were: its mean is of others.
            scored = sets[first_set(mode)].scored
            before = kept.best[first_set(mode)].scored if kept.best else 0
            worth, tie = worth_of(light.get("validation", {}), metric)
            better = value is not None and (scored, worth) > (before, kept.best_worth)
            if value is not None and (scored, worth) == (before, kept.best_worth):
                better = tie > worth_of(kept.best[first_set(mode)].means["validation"], metric)[1]
            # Without anything to validate on no round is better than another: the last one is reported.
            if better or not kept.best or (value is None and kept.best_worth == float("-inf")):
                kept.best, kept.best_round = sets, number
                if value is not None:
                    kept.best_worth = worth
                improved[mode] = True
        return improved, self._note_reported(number, modes, metric, choice, bool(improved.get(modes[0])) and alone)

    def _note_reported(
        self, number: int, modes: tuple[str, ...], metric: Metric, choice: str, is_better: bool
    ) -> SetScores:
        """Name the mode that would be reported now, and count the evaluations since it, or a client, was best."""
        found = self.choose_reported(modes, metric, choice)
        best, last = (sets[first_set(found.mode)] for sets in (found.view.best, found.view.last))
        if found.mode != modes[0]:
            self.current["reported"] = found.mode
        if found.mode not in modes:  # of each silo another
            light = {name: last.means.get(name, {}) for name in ("validation", "test")}
            self.current.setdefault("modes", {})[found.mode] = light
        validation = best.means.get("validation", {})
        worth, value = (best.scored, *worth_of(validation, metric)), validation.get(metric.name)
        self.since_best += 1
        # Without anything to validate on no round is better than another.
        if is_better or value is None or self.best_worth is None or worth > self.best_worth:
            self.since_best, self.best_worth = 0, worth
            self.best_score = None if value is None else (value, number)
        return last

    def choose_reported(self, modes: tuple[str, ...], metric: Metric, choice: str) -> Reported:
        """The mode that stands for the seed, and its evaluations.

        Args:
            modes: What was scored.
            metric: Of validation.
            choice: As ``evaluation.model`` has it. Only modes on the same graphs are compared; of equals the first is
                taken, and so it is where nothing was validated.
        """
        alike = [mode for mode in modes if mode in self.views and first_set(mode) == first_set(modes[0])]
        named = {"own": "own", "common": "aggregate"}.get(choice)
        found = [mode for mode in alike if view_of(mode) == named] if named else alike
        if choice == "first" or len(found) < 2:
            mode = (found or alike)[0]
            return Reported(mode, self.views[mode])
        worth = [self.views[mode].worth(mode, metric) for mode in found]
        if choice == "run":
            mode = found[max(range(len(found)), key=worth.__getitem__)]
            return Reported(mode, self.views[mode])
        from graphsilo.experiments.silo_rounds import choose_by_silo

        return choose_by_silo(self.views, found, metric)

    def take_logs(self, server: ServerBase[Any]) -> None:
        """Take the server's own numbers of the last round."""
        if server.log:
            target = self.rounds[-1] if self.rounds else self.setup
            # A number that is not finite is missing, as everywhere in the result.
            target["log"] = {name: value if math.isfinite(value) else None for name, value in server.log.items()}
            server.log.clear()
        works = [
            {"name": work.name, "steps": work.steps, "curves": work.curves} for work in server.works if work.curves
        ]
        server.works.clear()
        if works:
            (self.rounds[-1] if self.rounds else self.setup)["works"] = works

    def state(self) -> dict[str, Any]:
        """Plain values and tensors, for a checkpoint: all but the rounds, of which there are ever more."""
        own = replace(self, rounds=[], current={})
        tree: dict[str, Any] = msgspec.to_builtins(own, enc_hook=_plain, builtin_types=(torch.Tensor,))
        return tree

    @classmethod
    def from_state(cls, state: Mapping[str, Any], rounds: list[dict[str, Any]]) -> SeedProgress:
        return replace(msgspec.convert(state, cls, dec_hook=lambda _, tensor: tensor.numpy()), rounds=rounds)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else torch.from_numpy(np.ascontiguousarray(value))


def worth_of(scores: Mapping[str, float | None], metric: Metric) -> tuple[float, float]:
    """A validation score and what decides between equals, such that more is better; minus infinity where there is none.

    Models that find nothing of a rare class are equals, at the most that the mean F1 of two classes can be then: their
    few false alarms would decide between them, and the one that says nothing at all would be best.
    """
    value, tie = scores.get(metric.name), scores.get(metric.tie) if metric.tie else None
    if value is None:
        return float("-inf"), 0.0
    if tie is not None and scores.get("rare_f1") == 0:
        return 0.5, tie
    return metric.goodness(value), tie or 0.0


@dataclass
class ViewProgress:
    """The best and the last evaluation of one mode.

    Attributes:
        best_round: Number of the best round; of clients on their own, the latest of theirs.
        best_worth: Its validation score, such that more is better.
        best, last: By evaluation set.
        rounds: Best round and its worth of every client; empty where all have the same.
    """

    best_round: int = 0
    best_worth: float = float("-inf")
    best: dict[str, SetScores] = field(default_factory=dict)
    last: dict[str, SetScores] = field(default_factory=dict)
    rounds: dict[ClientId, tuple[int, float]] = field(default_factory=dict)

    def worth(self, mode: str, metric: Metric) -> tuple[float, float]:
        """Its best validation score and what decides between equals, such that more is better; minus infinity where
        nothing was validated."""
        return worth_of(self.best[first_set(mode)].means.get("validation", {}), metric)

    def summary(self, mode: str) -> ModeScores:
        """What the result says of this mode."""
        scores = self.best[first_set(mode)]
        return ModeScores(self.best_round, scores.full("val"), scores.full("test"), scenarios_of(self.best))


@dataclass(frozen=True)
class Reported:
    """What stands for a seed.

    Attributes:
        mode: Its name; ``silo_local`` where every client has its own.
        view: Its evaluations.
        whose: The mode of each client, where they differ.
    """

    mode: str
    view: ViewProgress
    whose: Mapping[ClientId, str] = field(default_factory=dict)


def first_set(mode: str) -> str:
    return "global" if mode.endswith("_global") else "seen"


def scenarios_of(sets: Mapping[str, SetScores]) -> dict[str, Scores]:
    found = {}
    for name, scores in sets.items():
        if name in ("seen", "global"):
            continue
        for kind in scores.kinds:
            found[kind] = scores.full(kind)
    return found


class Aggregates:
    """The server's models of one round: one for all clients, or one for each.

    Args:
        of: The model of every client; one object where several have the same.
    """

    def __init__(self, of: Mapping[ClientId, Tensors] | None = None):
        self._of = {client: weights for client, weights in (of or {}).items() if weights}

    def keep(self, others: Mapping[ClientId, Tensors], clients: Collection[ClientId] | None) -> None:
        """Take copies of these in place of what is kept; only those of some clients where these are named."""
        copies: dict[int, Tensors] = {}
        for client, weights in others.items():
            if weights and (clients is None or client in clients):
                if id(weights) not in copies:
                    copies[id(weights)] = {name: tensor.detach().clone() for name, tensor in weights.items()}
                self._of[client] = copies[id(weights)]

    def of(self, client: ClientId) -> Tensors | None:
        """The model that is kept for a client."""
        return self._of.get(client)

    def distinct(self) -> list[tuple[ClientId | None, Tensors]]:
        """Each model and whose it is: one that is everybody's is nobody's."""
        if len({id(weights) for weights in self._of.values()}) == 1:
            return [(None, next(iter(self._of.values())))]
        return list(self._of.items())

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        from graphsilo.federation.mixing import pack_models

        return pack_models(self._of)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Aggregates:
        from graphsilo.federation.mixing import unpack_models

        return cls(unpack_models(state))
