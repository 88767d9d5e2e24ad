"""A finished run, read from its folder.

Only ``result.json`` must be there. Every other file and every optional key may be missing: what can be shown is shown,
and what could not be read is kept in ``Run.problems`` for the page to say so.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from graphsilo import documents
from graphsilo.errors import ConfigError, RunError
from graphsilo.evaluate.metrics import ordered
from graphsilo.experiments.doors import RECORDS
from graphsilo.experiments.storage import disk
from graphsilo.report import formats
from graphsilo.report.formats import Spread, spread

FORMAT = 1
"""The version of result.json this module reads."""

NOT_METRICS = frozenset({"items", "client", "round", "best_round", "nodes", "graphs"})
"""Numbers that stand beside the metrics without being one."""

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


@dataclass(frozen=True)
class Run:
    """One run folder in memory.

    Attributes:
        path: The folder.
        result: result.json as it was written.
        config: The complete settings: config.yaml, or the copy in result.json.
        ledger: What crossed, or None when ledger.parquet is missing or unreadable.
        study: What the clients of the first seed told of their inner workings, by client; empty if nothing was asked.
        kernel: What ``graphsilo gntk`` found for this run, or None.
        problems: Sentences about parts that could not be read.
    """

    path: Path
    result: dict[str, Any]
    config: dict[str, Any]
    ledger: Ledger | None
    problems: tuple[str, ...]
    study: dict[str, dict[str, Any]] = field(default_factory=dict)
    kernel: dict[str, Any] | None = None

    @property
    def seeds(self) -> list[dict[str, Any]]:
        """The records of all seeds, in the order they were run."""
        return [seed for seed in self.result["seeds"] if isinstance(seed, dict)]

    @property
    def seed_names(self) -> list[Any]:
        """The seeds' numbers; the position where a record does not say."""
        return [seed.get("seed", position) for position, seed in enumerate(self.seeds)]

    def section(self, name: str) -> dict[str, Any]:
        """A top-level mapping of result.json, empty when absent."""
        return mapping(self.result.get(name))

    def values(self, *keys: str) -> list[float | None]:
        """One number per seed, found by walking down the keys: ``values("test", "accuracy")``."""
        return [formats.number(dig(seed, *keys)) for seed in self.seeds]

    def spread(self, *keys: str) -> Spread | None:
        """Mean and deviation over seeds of ``values(*keys)``."""
        return spread(self.values(*keys))

    def metrics(self, *keys: str) -> list[str]:
        """Names of the numbers under the keys (default: the test scores), the usual ones first."""
        found: dict[str, None] = {}
        for seed in self.seeds:
            group = mapping(dig(seed, *(keys or ("test",))))
            scored = (name for name, value in group.items() if formats.number(value) is not None)
            found.update(dict.fromkeys(name for name in scored if name not in NOT_METRICS))
        return ordered(found)

    @property
    def main_metric(self) -> str:
        """The metric of the headline: accuracy where it was scored, else the first scored."""
        return next(iter(self.metrics()), "accuracy")

    @property
    def modes(self) -> list[str]:
        """The ways in which the run was scored, e.g. ``own_local``; the reported one first."""
        return list(dict.fromkeys(mode for seed in self.seeds for mode in mapping(seed.get("modes"))))

    def setting(self, *names: str) -> Any:
        """The first setting with one of these names, wherever the configuration nests it; None when absent.

        Outer levels win, so ``rounds`` is the run's before it is a method's.
        """
        for name in names:
            level: list[Mapping[str, Any]] = [self.config]
            while level:
                for group in level:
                    if name in group and not isinstance(group[name], Mapping):
                        return group[name]
                level = [value for group in level for value in group.values() if isinstance(value, Mapping)]
        return None

    @property
    def method_title(self) -> str:
        """The method's printed name."""
        method = self.section("method")
        for candidate in (method.get("title"), method.get("name"), self.config.get("method"), self._in("method")):
            if isinstance(candidate, str) and candidate:
                return candidate
        return "Unnamed method"

    @property
    def data_name(self) -> str:
        """The data set's printed name."""
        for candidate in (self.section("data").get("name"), self.config.get("data"), self._in("data")):
            if isinstance(candidate, str) and candidate:
                return candidate
        return "unnamed data"

    def _in(self, group: str) -> Any:
        return mapping(self.config.get(group)).get("name")


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return dict(value) if isinstance(value, Mapping) else {}


def records(value: Any) -> list[dict[str, Any]]:
    """The mappings in a list; an empty list for anything else."""
    return [mapping(item) for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def dig(value: Any, *keys: str) -> Any:
    """Walk down nested mappings; None as soon as a key is missing."""
    for key in keys:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


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

    Args:
        run_dir: Folder with at least ``result.json``.
        with_ledger: False leaves ledger.parquet unread (comparisons need only totals).

    Raises:
        RunError: The folder or its result is missing, is not JSON, or has a format this version cannot read.
    """
    path = Path(run_dir)
    if not path.is_dir():
        raise RunError(
            f"a run folder was wanted at '{path}', but there is no such folder: give the folder that "
            f"`graphsilo run --out` wrote, the one that holds result.json."
        )
    result = _read_result(path)
    problems: list[str] = []
    config = _read_config(path, result, problems)
    _fill_rounds(path, result, problems)
    ledger = _read_ledger(path, result, problems) if with_ledger else None
    return Run(
        path=path,
        result=result,
        config=config,
        ledger=ledger,
        study=_read_study(path, result, problems),
        kernel=_read_kernel(path, problems),
        problems=tuple(problems),
    )


def _read_result(path: Path) -> dict[str, Any]:
    file = path / "result.json"
    if not file.is_file():
        raise RunError(
            f"a finished run was wanted in '{path}', but it holds no result.json: the run has not finished or this "
            f"is another kind of folder. Finish it with `graphsilo run --resume --out {path}`, or give another folder."
        )
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(
            f"'{file}' should hold the result of a run as JSON, but it cannot be read ({error}): "
            f"the file is damaged; run again, or restore it from a copy."
        ) from error
    if not isinstance(result, dict) or not isinstance(result.get("seeds"), list):
        raise RunError(
            f"'{file}' should hold a result with a list 'seeds', but it has none: it was not written by "
            f"`graphsilo run`, or was edited; run again, or restore it from a copy."
        )
    version = result.get("format", FORMAT)
    if version != FORMAT:
        raise RunError(
            f"'{file}' has result format {version!r}, this graphsilo reads format {FORMAT}: "
            f"use the graphsilo that wrote it ({result.get('graphsilo', 'version not recorded')}), or upgrade."
        )
    if not any(isinstance(seed, dict) for seed in result["seeds"]):
        raise RunError(f"'{file}' holds no seed's result: no seed of this run finished; run it again with --resume.")
    return result


def _read_config(path: Path, result: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    file = path / "config.yaml"
    if file.is_file():
        try:
            config = documents.read(file, "the configuration")
        except ConfigError as error:
            problems.append(f"config.yaml cannot be read; settings are taken from result.json. {error}")
        else:
            if isinstance(config, dict):
                return config
            problems.append("config.yaml does not hold settings; they are taken from result.json.")
    return mapping(result.get("config"))


def _read_study(path: Path, result: dict[str, Any], problems: list[str]) -> dict[str, dict[str, Any]]:
    """Numbers from the result and arrays from the file beside it, of the first seed that has any."""
    for seed in result["seeds"]:
        study = {client: dict(facts) for client, facts in mapping(mapping(seed).get("study")).items()}
        file = disk.study_path(path, mapping(seed).get("seed", 0))
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
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        problems.append(f"gntk.json cannot be read ({type(error).__name__}).")
        return None
    return found if isinstance(found, dict) else None


def _fill_rounds(path: Path, result: dict[str, Any], problems: list[str]) -> None:
    """Take the rounds from rounds.parquet for seeds whose record leaves them out."""
    seeds = [seed for seed in result["seeds"] if isinstance(seed, dict)]
    file = path / "rounds.parquet"
    if all(records(seed.get("rounds")) for seed in seeds) or not file.is_file():
        return
    try:
        import pyarrow.parquet as parquet

        rows = parquet.read_table(file).to_pylist()
    except Exception as error:  # pyarrow raises its own, OSError and ValueError for a damaged file
        problems.append(f"rounds.parquet cannot be read ({type(error).__name__}); there are no curves.")
        return
    by_seed: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_seed[row.get("seed")].append(_nested(row))
    for position, seed in enumerate(seeds):
        if not records(seed.get("rounds")):
            found = by_seed.get(seed.get("seed", position), [])
            seed["rounds"] = sorted(found, key=lambda row: row.get("round") or 0)


def _nested(row: Mapping[str, Any]) -> dict[str, Any]:
    """A table row as a round's record: ``validation_accuracy`` or ``validation.accuracy`` go under validation."""
    record: dict[str, Any] = {}
    for key, value in row.items():
        for group in ("validation", "test"):
            if key.startswith((f"{group}_", f"{group}.")):
                record.setdefault(group, {})[key[len(group) + 1 :]] = value
                break
        else:
            record[key] = value
    return record


def _read_ledger(path: Path, result: dict[str, Any], problems: list[str]) -> Ledger | None:
    file = path / "ledger.parquet"
    if not file.is_file():
        return None
    keys = ["direction", "kind", "client", "phase", "handler", "message", "field"]
    try:
        import pyarrow.parquet as parquet

        table = parquet.read_table(file)
        missing = sorted({"direction", "kind", "bytes"} - set(table.column_names))
        if missing:
            problems.append(f"ledger.parquet has no column {', '.join(missing)}; the ledger is left out.")
            return None
        present = [key for key in keys if key in table.column_names]
        sums = [(name, "sum") for name in ("bytes", "messages") if name in table.column_names]
        rows = table.group_by(present, use_threads=False).aggregate(sums).to_pylist()
        recorded = table.column("seed").unique().to_pylist() if "seed" in table.column_names else []
    except Exception as error:  # pyarrow raises its own, OSError and ValueError for a damaged file
        problems.append(f"ledger.parquet cannot be read ({type(error).__name__}); the ledger is left out.")
        return None
    return _sum_up(rows, max(1, len(recorded)))


def _sum_up(rows: Sequence[Mapping[str, Any]], seeds: int) -> Ledger:
    by_kind: dict[str, Bytes] = defaultdict(lambda: defaultdict(float))
    by_client: dict[str, dict[int, Bytes]] = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    by_phase: dict[str, Bytes] = defaultdict(lambda: defaultdict(float))
    fields: dict[tuple[str, str, str, str, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows:
        direction, kind, phase = (str(row.get(key) or "not recorded") for key in ("direction", "kind", "phase"))
        size = (formats.number(row.get("bytes_sum")) or 0.0) / seeds
        by_kind[direction][kind] += size
        by_phase[phase][direction] += size
        client = formats.number(row.get("client"))
        if client is not None and client >= 0:
            by_client[direction][int(client)][kind] += size
        handler, message, field = (str(row.get(key) or "") for key in ("handler", "message", "field"))
        cell = fields[(direction, phase, handler, message, field, kind)]
        cell[0] += size
        cell[1] += (formats.number(row.get("messages_sum")) or 0.0) / seeds
    listed = [Field(*key, sizes[0], sizes[1]) for key, sizes in fields.items()]
    listed.sort(key=lambda field: (-field.bytes, field.direction, field.handler, field.name))
    return Ledger(
        by_kind={name: dict(kinds) for name, kinds in by_kind.items()},
        by_client={name: {who: dict(kinds) for who, kinds in all_.items()} for name, all_ in by_client.items()},
        by_phase={name: dict(ways) for name, ways in by_phase.items()},
        fields=listed,
    )


def write_page(path: Path, text: str) -> None:
    """Write a page in one step: a reader, or a crash, never meets half of it.

    Raises:
        RunError: The folder cannot be written to.
    """
    from graphsilo.experiments.storage import disk

    try:
        disk.write_text(path, text)
    except RunError as error:
        cause = error.__cause__
        reason = (cause.strerror if isinstance(cause, OSError) else None) or cause or error
        raise RunError(
            f"the page should be written to '{path}', but that failed ({reason}): give another place, or make room."
        ) from error
