"""Refusals before training of what is to become of the clients' answers: secure sums, compression, robust averages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.evaluation import scored_clients
from graphsilo.experiments.participants import Participants
from graphsilo.federation import registry
from graphsilo.federation.client import ClientBase
from graphsilo.federation.interface import handlers_of
from graphsilo.federation.registry import Method
from graphsilo.federation.release import PrivateConfig
from graphsilo.federation.robust import NO_VALUES, Robust, averages
from graphsilo.federation.secure import MIN_PARTIES
from graphsilo.federation.settings import MethodConfig
from graphsilo.types import COUNTING, ClientId


def check_answers(
    config: RunConfig, method: Method, method_config: MethodConfig, asked: int, simulation: Participants
) -> None:
    """Refuse what does not go with the method, with each other, or with so many clients a round.

    Raises:
        ConfigError, UnsupportedError: As the parts do.
    """
    check_secure_sums(config, method, method_config)
    check_parties(config, asked, simulation.clients, apart=not simulation.has_data)
    check_compression(config, method, method_config)
    check_robust(config, method, method_config, asked)


def check_secure_sums(config: RunConfig, method: Method, method_config: MethodConfig) -> None:
    """Refuse secure sums for methods that need more than sums, and settings that need them in runs without.

    Raises:
        ConfigError: Only sums of scores are wanted where more is needed, or settings need sums that the run does not
            make.
        UnsupportedError: The method needs single answers; names methods that do not.
    """
    summed = config.evaluation.report == "federation"
    if summed and method.pooled:
        raise ConfigError(
            f"{method.title} has all data in one place: there is nothing to sum. Leave out "
            f"evaluation.report=federation."
        )
    if summed and getattr(method_config, "best_round", "common") == "own":
        raise ConfigError(
            "method.best_round=own takes every client's own score, and evaluation.report=federation has the "
            "coordinator see none. Use method.best_round=common, or evaluation.report=silos."
        )
    if summed and config.evaluation.modes and any(mode.endswith("_global") for mode in config.evaluation.modes):
        raise ConfigError(
            "a score on the pooled graph is one client's answer for all, and evaluation.report=federation has the "
            "coordinator see none. Use the modes own_local and aggregate_local, or evaluation.report=silos."
        )
    if not config.run.secure_sums:
        if method_config.needs_secure_sums and not method.pooled:
            raise ConfigError(f"{method_config.needs_secure_sums}; run with run.secure_sums=true.")
        return
    if method.pooled:
        raise UnsupportedError(
            f"{method.title} has all data in one place, where no sums are made. Leave out run.secure_sums."
        )
    needed = method_config.single_answers
    if needed:
        able = [name for name in registry.names() if _are_sums_enough(registry.load(name))]
        raise UnsupportedError(
            f"with run.secure_sums the coordinator sees nothing but sums, and {method.title} needs {needed}. Methods "
            f"that sums are enough for: {', '.join(able)}."
        )


def check_parties(config: RunConfig, asked: int, clients: Sequence[ClientId], *, apart: bool) -> None:
    """Refuse secure sums of so few clients that they hide nothing, and between machines those of other clients than
    before.

    Args:
        config: The run.
        asked: Clients of a round.
        clients: All.
        apart: Whether they are at machines of their own.

    Raises:
        ConfigError: They are too few, or others in each round.
    """
    if not config.run.secure_sums:
        return
    summed = config.evaluation.report == "federation"
    chosen = scored_clients(config.evaluation, clients, 0) if summed else clients
    scored = len(clients if chosen is None else chosen)
    if min(asked, scored) < MIN_PARTIES:
        raise ConfigError(
            f"a secure sum needs {MIN_PARTIES} clients or more: of two, each would know the other's answer from it. "
            f"Here {min(asked, scored)} are asked. Use more clients, a larger method.participation or "
            f"evaluation.share, or run.secure_sums=false."
        )
    if apart and min(asked, scored) < len(clients):
        raise ConfigError(
            f"between machines a silo opens secure sums with one set of silos only, because the difference of two sums "
            f"says what single silos sent. Here {min(asked, scored)} of {len(clients)} are asked at a time: use "
            f"method.participation=1 and evaluation.share=1, or run.secure_sums=false."
        )


def check_compression(config: RunConfig, method: Method, method_config: MethodConfig) -> None:
    """Refuse to compress what would be masked or carries a promise.

    Raises:
        ConfigError: Sums are secure ones, or the method promises something of the very numbers that it sends.
    """
    if config.run.compression == "none":
        return
    if config.run.secure_sums:
        raise ConfigError(
            "run.compression sends a part of each model, and run.secure_sums masks all of it: a mask hides no places, "
            "and steps of different sizes do not add up. Choose one of them."
        )
    if isinstance(method_config, PrivateConfig) and method_config.promises(len(config.run.seeds)):
        raise ConfigError(
            f"{method.title} makes a promise of the numbers that it sends, noise and all, and run.compression would "
            f"send others. Leave run.compression out."
        )


def check_robust(config: RunConfig, method: Method, method_config: MethodConfig, asked: int | None = None) -> None:
    """Refuse a robust average where there is none, where nobody sees single answers, and of too few answers.

    Args:
        config: The run.
        method, method_config: What it runs.
        asked: Clients of a round, where that is known.

    Raises:
        ConfigError: Sums are secure ones, or too few answer for the rule.
        UnsupportedError: The method sends other things than averages; names methods that do not.
    """
    run, robust = config.run, Robust(config.run.robust, config.run.liars)
    if run.robust == "none":
        return
    if run.secure_sums:
        raise ConfigError(
            f"run.robust={run.robust} holds the clients' answers against each other, and with run.secure_sums nobody "
            f"sees a single one. Choose one of them."
        )
    if why := _beside_averages(method):
        able = [name for name in registry.names() if _beside_averages(registry.load(name)) == ""]
        raise UnsupportedError(
            f"run.robust={run.robust} guards averages and nothing else, and {method.title} needs {why}. Methods that "
            f"it guards: {', '.join(able)}."
        )
    fewest = asked if method_config.min_clients is None else method_config.min_clients
    if fewest is not None and fewest < robust.least:
        known, fewer = (f" with run.liars={run.liars}", ", or fewer run.liars") if run.robust in COUNTING else ("", "")
        raise ConfigError(
            f"run.robust={run.robust}{known} needs {robust.least} answers in every round, and a round may go on with "
            f"{fewest}. Use more clients, a larger method.participation or method.min_clients{fewer}."
        )


BY_SETTINGS: Sequence[Callable[[RunConfig, Method, MethodConfig], None]] = (
    check_secure_sums, check_compression, check_robust,
)  # fmt: skip
"""What can be refused before anything is known of the silos."""


def _beside_averages(method: Method) -> str:
    """What a method needs beside averages and counts, in words; empty: nothing."""
    if method.pooled or method.config().single_answers:
        return method.config().single_answers or "all data in one place"
    steps = {name: step.types() for name, step in handlers_of(method.client).items() if name not in _OF_ALL}
    for name, types in steps.items():
        others = [spec.name for spec in types[1].specs() if spec.kind not in NO_VALUES]
        if others and not averages(*types):
            return f"more of its clients ('{name}' answers with {', '.join(others)})"
    return "" if any(averages(*types) for types in steps.values()) else "none"


_OF_ALL = handlers_of(ClientBase).keys()
"""What every method's clients are asked: how they score."""


def _are_sums_enough(method: Method) -> bool:
    return not method.pooled and not method.config().single_answers
