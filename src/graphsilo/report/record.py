"""A finished run, read from its folder.

Only ``result.json`` must be there. Every other file may be missing: what can be shown is shown, and what could not be
read is kept in ``Run.problems`` for the page to say so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import structs

from graphsilo.data.sources.entries import find
from graphsilo.errors import RunError
from graphsilo.evaluate.metrics import sort_metrics
from graphsilo.experiments.doors import RECORDS
from graphsilo.experiments.storage import disk
from graphsilo.experiments.storage.reading import read_run
from graphsilo.experiments.storage.records import RunRecord, Scores, Seed
from graphsilo.report.formats import Names, Spread, spread

KIND_WORDS = {
    "model": ("model weights", "model weights after local training", "model weights to start the round from"),
    "gradient": ("gradients", "gradients of the model on the silo's own data", "gradients to apply or compare with"),
    "prototype": (
        "class prototypes",
        "class prototypes: one average embedding per class, of the nodes that have it",
        "class prototypes of the federation or of other silos",
    ),
    "statistic": (
        "statistics over nodes",
        "sums, means or moments over the silo's nodes, no single node's values",
        "sums, means or moments over all silos",
    ),
    "embedding": ("embeddings of nodes", "embeddings of single nodes", "embeddings of single nodes of other silos"),
    "generator": (
        "generator weights",
        "weights of a model that generates data like the silo's",
        "weights of a model that generates data like the silos'",
    ),
    "synthetic": ("synthetic data", "made-up nodes or graphs, fitted to the silo's data", "made-up nodes or graphs"),
    "logits": (
        "predictions",
        "predictions of the silo's model, one row per item",
        "predictions to learn from, one row per item",
    ),
    "topology": ("graph structure", "structure of the silo's graph: edges, degrees or paths", "graph structure"),
    "counts": (
        "counts",
        "how many: nodes, labels per class, right and wrong predictions",
        "how many, over the whole federation",
    ),
    "score": ("scores", "single numbers on quality: losses, accuracies, similarities", "single numbers on quality"),
    "control": ("control values", "settings and progress, nothing computed from data", "settings and progress"),
}
"""Disclosure kind to: its name in a sentence, what leaves a silo under it, what comes back; in the order of reports."""

Bytes: TypeAlias = "dict[str, float]"
Context: TypeAlias = "dict[str, Any]"
"""What a template is given."""


@dataclass(frozen=True)
class Field:
    """One field of one message, summed over rounds and clients.

    Attributes:
        bytes: Mean over seeds. messages: likewise, how many messages carried it.
    """

    direction: str
    phase: str
    handler: str
    message: str
    name: str
    kind: str
    bytes: float
    messages: float


@dataclass(frozen=True)
class Ledger:
    """What crossed the boundary of the silos, per seed (means over seeds, in bytes).

    Attributes:
        by_kind: direction ("up" leaves a silo, "down" arrives) to disclosure kind to bytes.
        by_client: direction to client to kind to bytes.
        by_phase: phase to direction to bytes.
        fields: Every field that crossed, most bytes first.
    """

    by_kind: dict[str, Bytes]
    by_client: dict[str, dict[int, Bytes]]
    by_phase: dict[str, Bytes]
    fields: list[Field]

    def total(self, direction: str) -> float:
        """All bytes in one direction, per seed."""
        return sum(self.by_kind.get(direction, {}).values())


Pick: TypeAlias = Callable[[Seed], "Scores | None"]
"""Which scores of a seed."""


def test_scores(seed: Seed) -> Scores:
    """The reported ones."""
    return seed.test


@dataclass(frozen=True)
class Run:
    """One run folder in memory.

    Attributes:
        path: The folder.
        result: What result.json holds.
        ledger: What crossed, or None when ledger.parquet is missing or unreadable.
        study: What the clients of the first seed reported of their inner workings, by client.
        kernel: What ``graphsilo gntk`` found for this run, or None.
        problems: Sentences about parts that could not be read.
        alone: What every client reaches with the same method by itself (the reference ``alone``), else with the
            backbone by itself (``local``), where one was run.
        local: What every client reaches with the backbone by itself.
    """

    path: Path
    result: RunRecord
    ledger: Ledger | None = None
    problems: tuple[str, ...] = ()
    study: dict[str, dict[str, Any]] = field(default_factory=dict)
    kernel: dict[str, Any] | None = None
    alone: RunRecord | None = None
    local: RunRecord | None = None

    @property
    def config(self) -> dict[str, Any]:
        """The complete settings."""
        return self.result.config

    @property
    def seeds(self) -> list[Seed]:
        """All seeds, in the order they were run."""
        return self.result.seeds

    @property
    def seed_names(self) -> list[int]:
        """The seeds' numbers."""
        return [seed.seed for seed in self.seeds]

    def values(self, name: str, pick: Pick = test_scores) -> list[float | None]:
        """One metric per seed; None where a seed has none."""
        return [None if (found := pick(seed)) is None else found.numbers.get(name) for seed in self.seeds]

    def spread(self, name: str, pick: Pick = test_scores) -> Spread | None:
        """Mean and deviation over seeds of ``values``."""
        return spread(self.values(name, pick))

    def metrics(self, pick: Pick = test_scores) -> list[str]:
        """Names of the metrics that any seed has a number of, the usual ones first."""
        found = [scores.numbers for seed in self.seeds if (scores := pick(seed)) is not None]
        return sort_metrics(name for numbers in found for name, value in numbers.items() if value is not None)

    @property
    def main_metric(self) -> str:
        """The metric of the headline: the one by which validation chose, else the first that was scored."""
        known = self.metrics()
        chosen = str(self.config.get("evaluation", {}).get("select_by"))
        return chosen if chosen in known else next(iter(known), "accuracy")

    @property
    def class_names(self) -> list[str] | None:
        """What its classes are called: as the data says, or as the field knows them; None where they have numbers."""
        known = self.result.class_names
        if known is None:
            found = find(str(self.config.get("data", {}).get("name")))
            named = () if found is None else found.class_names
            known = list(named) if len(named) == self.result.data.classes else None
        return known

    @property
    def names(self) -> Names:
        """What its clients are called."""
        return Names.of(self.result.partition)

    @property
    def modes(self) -> list[str]:
        """The ways in which the run was scored, e.g. ``own_local``, as the method has them."""
        return list(self.seeds[0].modes)

    @property
    def reported(self) -> str:
        """The mode that stands for the run; ``validation`` where seeds differ in it."""
        modes = {seed.mode for seed in self.seeds}
        return modes.pop() if len(modes) == 1 else "validation"

    @property
    def others(self) -> list[str]:
        """The modes beside the reported one, as far as all seeds have them."""
        return [mode for mode in self.modes if mode != self.reported and all(mode in seed.modes for seed in self.seeds)]

    @property
    def as_papers(self) -> Run:
        """The same run with the scores of the mode that is recorded first, which its paper reports."""
        return replace(self, result=structs.replace(self.result, seeds=[_first_mode(seed) for seed in self.seeds]))

    @property
    def scenario(self) -> str:
        """What was asked at test time, as configured; between machines the silos say it."""
        return str(self.config.get("scenario", {"name": "seen"})["name"])


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted names: ``{"method": {"mu": 1}}`` is ``{"method.mu": 1}``.

    What a configuration says of itself is left out: which settings were given, and remarks.
    """
    flat: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if name in RECORDS:
            continue
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def load(run_dir: Path | str, *, with_ledger: bool = True) -> Run:
    """Read a run folder.

    Raises:
        ConfigError: The folder, or the result in it, is missing.
        RunError: The result is damaged, or another version's.
    """
    path = Path(run_dir)
    result = read_run(path)
    problems: list[str] = []
    ledger = _read_ledger(path, problems) if with_ledger else None
    study = _read_study(path, result, problems)
    kernel = _read_kernel(path, problems)
    local, alone = (_read_alone(path, name, result, problems) for name in ("local", "alone"))
    return Run(
        path, result, ledger, study=study, kernel=kernel, alone=alone or local, local=local, problems=tuple(problems)
    )


def _first_mode(seed: Seed) -> Seed:
    first = next(iter(seed.modes), "")
    if seed.mode == first:
        return seed
    of = seed.modes[first]
    rows = [structs.replace(row, test=Scores.of({})) for row in seed.clients]  # recorded in the other mode alone
    return structs.replace(
        seed, reported=first, best_round=of.best_round, validation=of.validation, test=of.test,
        scenarios=of.scenarios, clients=rows,
    )  # fmt: skip


def _read_alone(path: Path, name: str, result: RunRecord, problems: list[str]) -> RunRecord | None:
    folder = path / "references" / name
    if name not in result.reference_rows or not (folder / "result.json").is_file():
        return None
    try:
        return read_run(folder)
    except RunError as error:
        problems.append(f"What every client reaches alone cannot be read: {error}")
        return None


def _read_study(path: Path, result: RunRecord, problems: list[str]) -> dict[str, dict[str, Any]]:
    """Numbers from the result and arrays from the file beside it, of the first seed that has any."""
    for seed in result.seeds:
        study = {client: dict(facts) for client, facts in (seed.study or {}).items()}
        file = disk.study_path(path, seed.seed)
        if file.is_file():
            try:
                for client, arrays in disk.read_study(file).items():
                    study.setdefault(client, {}).update(arrays)
            except RunError as error:
                problems.append(str(error))
        if study:
            return study
    return {}


def _read_kernel(path: Path, problems: list[str]) -> dict[str, Any] | None:
    file = path / "gntk.json"
    if not file.is_file():
        return None
    try:
        found = disk.read_json(file, "gntk.json")
    except RunError as error:
        problems.append(str(error))
        return None
    return found if isinstance(found, dict) else None


def _read_ledger(path: Path, problems: list[str]) -> Ledger | None:
    file = path / "ledger.parquet"
    if not file.is_file():
        return None
    keys = ["direction", "kind", "client", "phase", "handler", "message", "field"]
    try:
        import pyarrow.parquet as parquet

        table = parquet.read_table(file)
        sums = table.group_by(keys, use_threads=False).aggregate([("bytes", "sum"), ("messages", "sum")])
        return _sum_up(sums.to_pylist(), max(1, len(table.column("seed").unique())))
    except Exception as error:  # pyarrow raises its own, OSError and ValueError for a damaged file
        problems.append(f"ledger.parquet cannot be read ({type(error).__name__}); the ledger is left out.")
        return None


def _sum_up(rows: Sequence[Mapping[str, Any]], seeds: int) -> Ledger:
    by_kind: dict[str, Bytes] = defaultdict(lambda: defaultdict(float))
    by_client: dict[str, dict[int, Bytes]] = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    by_phase: dict[str, Bytes] = defaultdict(lambda: defaultdict(float))
    fields: dict[tuple[str, str, str, str, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows:
        direction, kind, phase = row["direction"], row["kind"], row["phase"]
        size = row["bytes_sum"] / seeds
        by_kind[direction][kind] += size
        by_phase[phase][direction] += size
        by_client[direction][row["client"]][kind] += size
        cell = fields[(direction, phase, row["handler"] or "", row["message"] or "", row["field"] or "", kind)]
        cell[0] += size
        cell[1] += row["messages_sum"] / seeds
    listed = [Field(*key, sizes[0], sizes[1]) for key, sizes in fields.items()]
    listed.sort(key=lambda field: (-field.bytes, field.direction, field.handler, field.name))
    return Ledger(
        by_kind={name: dict(kinds) for name, kinds in by_kind.items()},
        by_client={name: {who: dict(kinds) for who, kinds in all_.items()} for name, all_ in by_client.items()},
        by_phase={name: dict(ways) for name, ways in by_phase.items()},
        fields=listed,
    )
