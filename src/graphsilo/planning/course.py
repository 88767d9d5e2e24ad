"""Which trials tell how a seed goes, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphsilo.planning.calibration import Calibration, Trial
from graphsilo.planning.extrapolation import (
    COUNT,
    Ask,
    Course,
    Stretch,
    corrected,
    course_of,
    fullest,
    longer,
    spread,
    stretch_of,
    total,
    with_more_clients,
)

_SIZES = ("nodes", "edges", "filled", "train")


@dataclass(frozen=True)
class Estimate:
    """How a seed goes, by what trials told.

    Attributes:
        course: With all clients and the real settings.
        main: The trial that tells of memory and checkpoints.
        scale: Clients of the run per client of that trial.
        basis: What was measured, in a sentence.
        is_exact: Whether bytes were counted with all clients and the real settings.
        is_steady: Whether rounds after the second all moved the same number of bytes.
        weak: What makes the estimate weak, if anything.
        is_whole: Whether all parts of a seed were seen; else costs are at least so much.
    """

    course: Course
    main: Trial
    scale: float
    basis: str
    is_exact: bool
    is_steady: bool
    weak: tuple[str, ...] = ()
    is_whole: bool = True


def estimate(calibration: Calibration) -> Estimate:
    """How a seed goes, from the best of the trials: all clients with the real settings, a sample of the clients, all
    clients with fewer repetitions, and at last what an unfinished trial says at least."""
    whole, *others = calibration.trials
    everyone = len(calibration.silos)
    if _tells(whole, calibration.rounds):
        return _measured(whole, calibration.rounds)
    sampled = [trial for trial in others if len(trial.clients) < everyone and _tells(trial, calibration.rounds)]
    if sampled:
        return _from_sample(calibration, sampled)
    shortened = [trial for trial in others if trial.settings and trial.is_set_up and trial.rounds]
    if len(shortened) > 1:
        return _from_shortened(calibration, shortened)
    return _at_least(calibration, shortened)


def _tells(trial: Trial, rounds: int) -> bool:
    return trial.is_set_up and trial.rounds >= min(2, rounds)


def _measured(trial: Trial, rounds: int) -> Estimate:
    course = course_of(trial.stretches, trial.clients)
    done = trial.rounds
    told = f"set-up and {done} of {rounds} round{'s' if rounds > 1 else ''} of one seed measured, all clients"
    return Estimate(course, trial, 1.0, told, True, _is_steady(course, rounds), _early(course, rounds))


def _is_steady(course: Course, rounds: int) -> bool:
    if len(course.rounds) >= rounds:
        return True
    later = course.rounds[2:]
    return len(later) > 1 and len({(part.up, part.down) for part in later}) == 1


def _early(course: Course, rounds: int) -> tuple[str, ...]:
    if len(course.rounds) >= min(4, rounds):
        return ()
    return (
        f"only {len(course.rounds)} rounds were measured, and the first ones often differ from later ones: more "
        f"--seconds make this surer.",
    )


def _from_sample(calibration: Calibration, trials: Sequence[Trial]) -> Estimate:
    everyone = len(calibration.silos)
    row = {silo["client"]: place for place, silo in enumerate(calibration.silos)}
    sizes = _sizes(calibration)
    largest = max(trials, key=lambda trial: len(trial.clients))
    smaller = [trial for trial in trials if len(trial.clients) < len(largest.clients)]

    def all_of(trial: Trial) -> list[Stretch]:
        course = course_of(trial.stretches, trial.clients)
        parts = [course.setup, course.round(1), course.round(2), course.steady, course.evaluation]
        places = [row[client] for client in trial.clients]
        return [spread(part, places, sizes) for part in [*parts, course.first_evaluation]]

    found = all_of(largest)
    if smaller:
        numbers = (len(smaller[0].clients), len(largest.clients), everyone)
        found = [with_more_clients(few, more, numbers) for few, more in zip(all_of(smaller[0]), found, strict=True)]
    setup, first, second, steady, evaluation, first_evaluation = found
    rounds = (first, second)[: calibration.rounds]
    course = Course(setup, rounds, steady, evaluation, first_evaluation)
    told = (
        f"set-up and {largest.rounds} rounds of one seed measured with {len(largest.clients)} of {everyone} clients, "
        f"smallest to largest; the others by a linear fit to nodes, edges, features and training items"
    )
    weak = (
        f"only {len(largest.clients)} of {everyone} clients were tried: what the server does is taken to grow with "
        f"the answers it gets. More --seconds try all of them.",
    )
    steady_bytes = _is_steady(course_of(largest.stretches, largest.clients), calibration.rounds)
    return Estimate(course, largest, everyone / len(largest.clients), told, False, steady_bytes, weak)


def _sizes(calibration: Calibration) -> NDArray[np.float64]:
    return np.array([[silo[name] for name in _SIZES] for silo in calibration.silos], dtype=np.float64)


def _from_shortened(calibration: Calibration, trials: Sequence[Trial]) -> Estimate:
    base, *others = trials
    short, *long = (course_of(trial.stretches, trial.clients) for trial in trials)
    real = _seen(calibration.trials[0])

    def grown(phase: str, part: Callable[[Course], Stretch]) -> Stretch:
        pairs = [(part(course), trial.more[1]) for course, trial in zip(long, others, strict=True)]
        line = longer(part(short), pairs)
        return corrected(line, fullest([more for more, _ in pairs]), real.get(phase, Stretch()))

    course = Course(
        grown("setup", lambda course: course.setup),
        tuple(
            grown("round", lambda course, number=number: course.round(number))  # type: ignore[misc]
            for number in range(1, min(2, calibration.rounds) + 1)
        ),
        grown("round", lambda course: course.steady),
        grown("evaluation", lambda course: course.evaluation),
        grown("evaluation", lambda course: course.first_evaluation),
    )
    most = {name: max(trial.settings[name] for trial in trials) for name in base.settings}
    names = ", ".join(f"{name} {most[name]} of {value}" for name, value in calibration.facts["repeats"].items())
    told = (
        f"one seed measured with fewer repetitions ({names}) and carried over to all of them; all clients, "
        f"{base.rounds} of {calibration.rounds} rounds"
    )
    weak = (
        "set-up (or a round) was not finished with its real settings within the time: its costs lie on a line through "
        "shorter ones. A method that stops early when nothing gets better costs less. More --seconds measure it.",
    )
    # Bytes lie on the line exactly, if every repetition sends as much: which these trials cannot tell.
    return Estimate(course, others[-1], 1.0, told, False, _is_steady(short, calibration.rounds), weak)


def _seen(trial: Trial) -> dict[str, Stretch]:
    """What an unfinished trial saw, phase by phase."""
    events = [*trial.stretches, *([trial.partial] if trial.partial else [])]
    found: dict[str, list[Stretch]] = {}
    for event in events:
        found.setdefault(event["phase"], []).append(stretch_of(event, trial.clients))
    return {phase: total(parts) for phase, parts in found.items()}


def _at_least(calibration: Calibration, shortened: Sequence[Trial]) -> Estimate:
    """What is known of a run that could not be tried far enough."""
    whole = calibration.trials[0]
    best = shortened[-1] if shortened else whole
    seen = _seen(whole)
    sizes = _sizes(calibration)
    under_way = {} if whole.partial is None else whole.partial["handlers"]

    def known(phase: str) -> Stretch:
        """What was seen, an ask under way carried over to all clients that it was sent to."""
        part = seen.get(phase, Stretch())
        asks = dict(part.asks)
        for name, ask in part.asks.items():
            reached = np.flatnonzero(ask.rows[:, COUNT])
            if ask.calls == 1 and len(reached) and under_way.get(name, {}).get("asked") == len(sizes):
                few = Stretch(asks={name: Ask(1, ask.rows[reached], ask.summed)})
                asks[name] = spread(few, reached.tolist(), sizes).asks[name]
        return Stretch(part.server, part.wall, asks)

    if shortened:
        course = course_of(best.stretches, best.clients)
        setup = course.setup if course.setup.cpu > known("setup").cpu else known("setup")
        course = Course(setup, course.rounds, course.steady, course.evaluation, course.first_evaluation)
    else:
        rounds = known("round")
        course = Course(known("setup"), (rounds,) if "round" in seen else (), rounds, known("evaluation"), Stretch())
    where = "set-up" if not whole.is_set_up else "the first rounds"
    why = "memory ran out" if whole.end == "memory" else "time was up"
    told = f"{where} not finished when {why}"
    weak = (
        f"{where} was not finished within the calibration: everything here is at least so much. Give more --seconds.",
    )
    return Estimate(course, best, 1.0, told, False, False, weak, False)
