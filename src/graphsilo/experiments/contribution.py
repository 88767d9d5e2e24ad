"""What each silo was worth to a federation: the model without it, and what it has without the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphsilo.errors import ConfigError, UnsupportedError, several
from graphsilo.experiments.client_names import client_number
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.experiments.storage import reading
from graphsilo.experiments.storage.records import RunRecord
from graphsilo.types import ClientId

FOLDER = "without"
"""In a run's folder: the runs without one client, and of one client alone."""


@dataclass(frozen=True)
class Contribution:
    """Test scores by the metric that models were selected by, means over seeds; several clients count as in the result.

    Attributes:
        client: Its number.
        name: What its silo is called, else the number.
        metric: Name of the metric.
        others: Of all others, in the run.
        others_without: Of all others, trained without it.
        own: Its own, in the run.
        own_alone: Its own, trained without anybody.
        seeds: How many seeds the means are over.
    """

    client: ClientId
    name: str
    metric: str
    others: float
    others_without: float
    own: float
    own_alone: float
    seeds: int = 1


def contribution(
    run_dir: str | Path, *, clients: Iterable[ClientId | str] | None = None, say: Callable[[str], None] = lambda _: None
) -> list[Contribution]:
    """Train again without each client, and each alone, from the same random numbers; finished runs are not repeated.

    Args:
        run_dir: Folder of the run.
        clients: Which, by number or name; None: all.
        say: Hears which run begins.

    Raises:
        ConfigError: Fewer than two clients, or no such client.
        UnsupportedError: Silos of the run share nothing, or their data is elsewhere.
    """
    folder = Path(run_dir)
    whole = reading.read_run(folder)
    if (folder / "silos.json").exists():
        raise UnsupportedError(
            f"{folder} is the coordinator's part of a run between machines: submit the job again with --without SILO, "
            f"and compare the two with `graphsilo compare`."
        )
    if whole.method.alone or whole.method.pooled:
        raise UnsupportedError("silos of this run have no model in common, so that none contributes to another's.")
    known = [row.client for row in whole.seeds[0].clients]
    names = {row.client: row.silo or str(row.client) for row in whole.partition.per_client}
    asked = known if clients is None else clients
    wanted = [client_number(each, len(known), names, "contribution (--clients)") for each in asked]
    if len(known) < 2:
        raise ConfigError(
            "what a silo contributes shows at others, and this run has one client. Choose a run of several."
        )
    if absent := sorted(set(wanted) - set(known)):
        having = several((names[each] for each in known), 8)
        raise ConfigError(f"the run has clients {having}; {absent[0]} was asked for (--clients).")
    metric = whole.config["evaluation"]["select_by"]  # as it was resolved for these data
    found = []
    for client in wanted:
        others = [each for each in known if each != client]
        without = _run_without(folder, [client], f"client-{client}", say)
        alone = _run_without(folder, others, f"all-but-{client}", say)
        found.append(Contribution(
            client, names[client], metric, _mean(whole, others, metric), _mean(without, others, metric),
            _mean(whole, [client], metric), _mean(alone, [client], metric), len(whole.seeds),
        ))  # fmt: skip
    return found


def _run_without(folder: Path, clients: list[ClientId], name: str, say: Callable[[str], None]) -> RunRecord:
    place = folder / FOLDER / name
    if not (place / "result.json").exists():
        say(f"{place} ...")
        before = load_config(folder / "config.yaml").run.without
        left = {"run.without": [*before, *clients], "run.references": []}
        config = load_config(folder / "config.yaml", overrides=left)
        run(config, out=place, resume=place.exists())
    return reading.read_run(place)


def _mean(record: RunRecord, clients: list[ClientId], metric: str) -> float:
    """The mean over seeds, and over clients by their n_k, as the result's own means are."""
    found = []
    for seed in record.seeds:
        scores = [
            (row.test.numbers.get(metric), row.weight or row.nodes) for row in seed.clients if row.client in clients
        ]
        if known := [(value, size) for value, size in scores if value is not None and size]:
            found.append(np.average([value for value, _ in known], weights=[size for _, size in known]))
    return float(np.mean(found)) if found else float("nan")
