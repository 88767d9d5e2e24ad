"""Refusals of what needs all data, or all code, in one place, before a run whose silos are at other machines."""

from __future__ import annotations

from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.simulation import model_entries, reference_method
from graphsilo.federation import registry


def check_remote(config: RunConfig) -> None:
    """Refuse what needs all data in one place.

    Raises:
        UnsupportedError: A reference or an evaluation does.
        ConfigError: Settings do not go with machines apart.
    """
    _refuse_own(config)
    pooled = ["run.one_place"] if config.run.one_place else []
    for name in config.run.references:
        if name == "one_place" or registry.load(reference_method(config, name)).pooled:
            pooled.append(f"the reference '{name}'")
    if pooled:
        raise UnsupportedError(
            f"{pooled[0]} trains on all data in one place, which silos at other machines do not allow. Leave it out."
        )
    if any(mode.endswith("_global") for mode in config.evaluation.modes or []):
        raise UnsupportedError("nobody holds the pooled graph between machines: evaluation modes end in _local there.")
    if config.evaluation.study:
        raise UnsupportedError(
            "evaluation.study compares private data with what was learned from it, for a researcher who holds both; "
            "between machines nobody does."
        )
    if config.run.start is not None:
        raise UnsupportedError(
            "run.start begins with models of this machine, and between machines silos keep theirs. Leave it out."
        )
    if config.run.workers > 1:
        raise ConfigError("run.workers spreads clients over processes of one machine; between machines leave it at 1.")
    if config.run.secure_sums and len({str(entry) for entry in model_entries(config)}) > 1:
        raise ConfigError(
            "between machines a silo opens secure sums only with silos that were asked the same as itself, its model "
            "included, because the difference of two sums says what single silos sent. Use one model for all "
            "(model.pool has several), or run.secure_sums=false."
        )


def _refuse_own(config: RunConfig) -> None:
    """Refuse what a person brought along where the silos are at other machines.

    Raises:
        UnsupportedError: Names the first.
    """
    for section in ("method", "model"):
        for name in config.find_own(section):
            raise UnsupportedError(
                f"{section} '{name}' is in a file of yours, and sites run no code that a coordinator names: it must be "
                f"installed at each of them. Put it into a package with an entry point of the group "
                f"'graphsilo.{section}s', install that at the sites and here, and name it by its name."
            )
