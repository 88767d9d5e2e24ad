"""The same configuration in one process and over sites: the same numbers, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphsilo.experiments.remote import run_over
from graphsilo.experiments.runner import run

METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "opfgl": {},
    "fedpg": {},
    "fairfgl": {},
    "fedlog": {"method.rounds": 2},
    "fedsage_plus": {"method.rounds": 2, "method.generator_hidden": [16]},
}


@pytest.mark.parametrize("method", list(METHODS))
def test_same_numbers_as_in_one_process(
    method: str, make_sites: Callable[..., Any], measured: Callable[[Any], Any], tmp_path: Path
) -> None:
    sites = make_sites()
    config = sites.config(**{"method.name": method, **METHODS[method]})
    alone = run(config).tree
    apart = run_over(sites.transport, config, name="test", clients=sites.clients, out=tmp_path / "out").tree
    for mine, theirs in zip(alone["seeds"], apart["seeds"], strict=True):
        for key in ("best_round", "validation", "test", "test_last", "modes", "confusion", "setup", "rounds"):
            assert measured(mine[key]) == measured(theirs[key]), key
    assert alone["summary"] == apart["summary"]
