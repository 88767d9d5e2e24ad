"""The arithmetic that carries what was measured over to what was not: more rounds, more repetitions, more clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.federation.accumulator import MOST_WAITING

COUNT, CPU, UP, DOWN = range(4)
"""What the columns of an ask's rows hold: how often a client was asked, CPU seconds, bytes up, bytes down."""


@dataclass(frozen=True)
class Ask:
    """All asks of one handler in a stretch.

    Attributes:
        calls: How often the server asked.
        rows: [clients, 4] per client: times asked, CPU seconds, bytes up, bytes down.
        summed: Whether answers are added up as they come, so that few of them are held at once.
    """

    calls: float
    rows: NDArray[np.float64]
    summed: bool = False

    def held(self, early: int = 0, most: float = np.inf) -> float:
        """Bytes of the answers that the server holds at once.

        Args:
            early: How many may wait for those of clients before them, besides.
            most: Bytes of these, but for one.
        """
        up = self.rows[:, UP]
        if not self.summed:
            return float(up.sum()) / max(self.calls, 1.0)
        each = float((up / np.maximum(self.rows[:, COUNT], 1.0)).max(initial=0.0))
        return min(float(up.sum()), MOST_WAITING + each + min(early * each, most + each))

    @property
    def asked(self) -> float:
        """Clients asked, each as often as it was."""
        return float(self.rows[:, COUNT].sum())

    @property
    def abreast(self) -> float:
        """How many clients are asked at once, on average."""
        return max(1.0, self.asked / max(self.calls, 1e-9))


@dataclass(frozen=True)
class Stretch:
    """Set-up, a round or an evaluation.

    Attributes:
        server: CPU seconds outside of the clients' steps.
        wall: Wall seconds, as they were while it was measured.
        asks: By handler.
    """

    server: float = 0.0
    wall: float = 0.0
    asks: Mapping[str, Ask] = field(default_factory=dict)

    @property
    def cpu(self) -> float:
        """CPU seconds, the server's and all clients'."""
        return self.server + float(self.column(CPU).sum())

    @property
    def up(self) -> float:
        return float(self.column(UP).sum())

    @property
    def down(self) -> float:
        return float(self.column(DOWN).sum())

    def column(self, which: int) -> NDArray[np.float64]:
        """[clients] one column over all handlers; one zero where nobody was asked."""
        return np.sum([ask.rows[:, which] for ask in self.asks.values()], axis=0) if self.asks else np.zeros(1)


@dataclass(frozen=True)
class Course:
    """How a seed goes.

    Attributes:
        setup: Before round 1.
        rounds: The first ones, as measured.
        steady: What a round costs afterwards.
        evaluation: What an evaluation costs.
        first_evaluation: The first, which makes what later ones find made.
    """

    setup: Stretch
    rounds: tuple[Stretch, ...]
    steady: Stretch
    evaluation: Stretch
    first_evaluation: Stretch

    def round(self, number: int) -> Stretch:
        """A round, from 1."""
        return self.rounds[number - 1] if number <= len(self.rounds) else self.steady


def stretch_of(event: Mapping[str, Any], clients: Sequence[int]) -> Stretch:
    """A stretch from what the probe told of it."""
    place = {client: row for row, client in enumerate(clients)}
    asks = {}
    for name, told in event["handlers"].items():
        rows = np.zeros((len(clients), 4))
        for client, values in told["clients"].items():
            rows[place[int(client)]] = values
        asks[name] = Ask(float(told["calls"]), rows, bool(told.get("summed")))
    spent = sum(float(ask.rows[:, CPU].sum()) for ask in asks.values())
    return Stretch(max(0.0, event["cpu"] - spent), event["wall"], asks)


def course_of(stretches: Sequence[Mapping[str, Any]], clients: Sequence[int]) -> Course:
    """The course of a trial that came through set-up and at least one round.

    The first two rounds often differ from the others (constants are made, the server has nothing to send yet), so that
    later ones are like the mean from the third on, where there are any.
    """
    by_phase: dict[str, list[Stretch]] = {"setup": [], "round": [], "evaluation": []}
    for event in stretches:
        by_phase.setdefault(event["phase"], []).append(stretch_of(event, clients))
    rounds, evaluations = by_phase["round"], by_phase["evaluation"]
    return Course(
        total(by_phase["setup"]),
        tuple(rounds),
        mean(rounds[2:] or rounds[-1:]),
        mean(evaluations[1:] or evaluations[-1:]),
        evaluations[0] if evaluations else Stretch(),
    )


def total(stretches: Sequence[Stretch], weights: Sequence[float] | None = None) -> Stretch:
    """Σ weight · stretch, handler by handler."""
    weights = [1.0] * len(stretches) if weights is None else weights
    pairs = list(zip(stretches, weights, strict=True))
    names = dict.fromkeys(name for stretch in stretches for name in stretch.asks)
    asks = {}
    for name in names:
        parts = [(stretch.asks[name], weight) for stretch, weight in pairs if name in stretch.asks]
        rows = np.sum([weight * ask.rows for ask, weight in parts], axis=0)
        calls = sum(weight * ask.calls for ask, weight in parts)
        asks[name] = Ask(calls, rows, all(ask.summed for ask, _ in parts))
    server = sum(weight * stretch.server for stretch, weight in pairs)
    return Stretch(server, sum(weight * stretch.wall for stretch, weight in pairs), asks)


def mean(stretches: Sequence[Stretch]) -> Stretch:
    """The mean stretch; an empty one of none."""
    return total(stretches, [1 / len(stretches)] * len(stretches)) if stretches else Stretch()


def longer(base: Stretch, others: Sequence[tuple[Stretch, float]]) -> Stretch:
    """What a stretch costs with all repetitions, where it was measured with few of all, and with more of some.

    Each number is linear in each repetition, and never less than where it was measured.

    Args:
        base: With few of all.
        others: With more of some, and how often the difference to the base is to be added: (all of them - few) / (more
            - few).
    """
    line = total(
        [base, *(more for more, _ in others)], [1 - sum(far for _, far in others), *(far for _, far in others)]
    )
    asks = {}
    for name, ask in line.asks.items():
        known = [more.asks[name] for more, _ in others if name in more.asks]
        rows = np.maximum.reduce([ask.rows, *(one.rows for one in known)])
        asks[name] = Ask(max([ask.calls, *(one.calls for one in known)]), rows, ask.summed)
    known_server = [(more.server, more.wall) for more, _ in others]
    server, wall = (max(pair) for pair in zip((line.server, line.wall), *known_server, strict=True))
    return Stretch(server, wall, asks)


def fullest(stretches: Sequence[Stretch]) -> Stretch:
    """Of each handler, the asks of the stretch that has most of them."""
    asks: dict[str, Ask] = {}
    for stretch in stretches:
        for name, ask in stretch.asks.items():
            if name not in asks or (ask.asked, ask.rows[:, CPU].sum()) > (
                asks[name].asked,
                asks[name].rows[:, CPU].sum(),
            ):
                asks[name] = ask
    return Stretch(asks=asks)


def corrected(line: Stretch, high: Stretch, real: Stretch) -> Stretch:
    """The same with the seconds of asks as they were under the real settings, where as many of these were seen as of
    the shortened ones, or where only the work of an ask was shortened and not the number of asks."""
    asks = dict(line.asks)
    for name, ask in line.asks.items():
        seen = real.asks.get(name)
        short = high.asks.get(name)
        if seen is None or short is None or seen.asked == 0 or short.asked == 0:
            continue
        if seen.asked >= short.asked or ask.asked == short.asked:
            # Clients that were not reached cost what they cost in the shortened trial, times what the others say.
            reached = seen.rows[:, COUNT] > 0
            usual = np.where(short.rows[:, COUNT] > 0, short.rows[:, CPU] / np.maximum(short.rows[:, COUNT], 1), 0.0)
            here = seen.rows[:, CPU] / np.maximum(seen.rows[:, COUNT], 1)
            ratio = float(here[reached].sum()) / max(float(usual[reached].sum()), 1e-9)
            each = np.where(reached, here, ratio * usual)
            rows = ask.rows.copy()
            rows[:, CPU] = rows[:, COUNT] * each
            asks[name] = replace(ask, rows=rows)
    return replace(line, asks=asks)


def spread(stretch: Stretch, sample: Sequence[int], sizes: NDArray[np.float64]) -> Stretch:
    """The stretch with all clients, from one with a sample of them.

    Each number per ask is a non-negative linear function of the client's sizes, fitted to the sample; clients beyond it
    are asked as often as those in it.

    Args:
        stretch: Its rows are those of the sample.
        sample: Places of the sample's clients among all.
        sizes: [clients, s] of all clients: nodes, edges, filled features, items to train on.
    """
    chosen = list(sample)
    asks = {}
    for name, ask in stretch.asks.items():
        seen = ask.rows[:, COUNT] > 0
        known = sizes[chosen][seen]
        rows = np.zeros((len(sizes), 4))
        if seen.any():
            times = ask.asked / len(chosen)
            rows[:, COUNT] = times
            for column in (CPU, UP, DOWN):
                rows[:, column] = times * fitted(known, ask.rows[seen, column] / ask.rows[seen, COUNT], sizes)
        rows[chosen] = np.where(seen[:, None], ask.rows, rows[chosen])
        asks[name] = Ask(ask.calls, rows, ask.summed)
    more = sum(ask.asked for ask in asks.values()) / max(sum(ask.asked for ask in stretch.asks.values()), 1.0)
    grown = more if asks else 1.0
    return Stretch(stretch.server * grown, stretch.wall * grown, asks)


def with_more_clients(few: Stretch, more: Stretch, clients: tuple[int, int, int]) -> Stretch:
    """A stretch spread to all clients, corrected for what grows with their number.

    Args:
        few, more: Spread to all clients, from a smaller and from a larger sample.
        clients: Sizes of both samples, and how many there are.
    """
    small, large, everyone = clients

    def growth(low: float, high: float) -> float:
        """How much larger than in the larger sample, on a line through both; counts and bytes are exact, so that equal
        ones stay."""
        line = high + (high - low) * (everyone - large) / (large - small)
        return max(line / high, 1.0) if high > 0 else 1.0

    asks = {}
    for name, ask in more.asks.items():
        before = few.asks.get(name)
        if before is None:
            asks[name] = ask
            continue
        times = growth(before.rows[:, COUNT].mean(), ask.rows[:, COUNT].mean())
        rows = ask.rows * times
        for column in (UP, DOWN):
            # Fits to two different samples differ a little where sizes follow the client's data: no growth.
            per_ask = [part.rows[:, column].sum() / max(part.asked, 1e-9) for part in (before, ask)]
            if abs(per_ask[1] - per_ask[0]) > 0.2 * per_ask[0]:
                rows[:, column] *= growth(*per_ask)
        alone = growth(before.calls, ask.calls)
        asks[name] = Ask(ask.calls * alone, rows, ask.summed)
    # The server's work goes with the answers that it takes.
    answers = [sum(ask.asked for ask in found.values()) for found in (more.asks, asks)]
    return Stretch(more.server * answers[1] / max(answers[0], 1e-9) if asks else more.server, more.wall, asks)


def fitted(sizes: NDArray[np.float64], values: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """A non-negative linear function a + Σ b_i size_i of a client's sizes, at other clients.

    Equal values stay what they are. With fewer than four clients to learn from, values follow the mean of the sizes'
    shares.

    Args:
        sizes: [m, s] of the clients with known values.
        values: [m], not negative.
        wanted: [n, s] of the clients asked for.

    Returns:
        [n] values.

    Example:
        >>> fitted(np.array([[1.0], [2.0], [3.0], [5.0]]), np.array([3.0, 5.0, 7.0, 11.0]), np.array([[4.0]])).round(6)
        array([9.])
    """
    from scipy.optimize import nnls

    if len(values) == 0:
        return np.zeros(len(wanted))
    if np.ptp(values) == 0:
        return np.full(len(wanted), float(values[0]))
    scale = np.maximum(sizes.max(axis=0), 1.0)
    if len(values) < 4:
        share = (sizes / scale).mean(axis=1)
        return np.asarray((wanted / scale).mean(axis=1) * values.sum() / max(share.sum(), 1e-12))
    design = np.column_stack([np.ones(len(sizes)), sizes / scale])
    weights, _ = nnls(design, values)
    return np.asarray(np.column_stack([np.ones(len(wanted)), wanted / scale]) @ weights)
