"""The folder of a run, from the first look at it to its report."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from graphsilo import documents
from graphsilo.data.graph import Graph, GraphCollection, content_hash
from graphsilo.data.partition import Partition
from graphsilo.data.partition.rules.files import GIVEN
from graphsilo.data.sources.atomic import remove_unfinished
from graphsilo.data.sources.files import load_graph
from graphsilo.errors import ConfigError, GraphsiloError
from graphsilo.experiments.config import EvaluationConfig, RunConfig
from graphsilo.experiments.given import DATA, PARTITION
from graphsilo.experiments.participants import Participants
from graphsilo.experiments.simulation import Simulation
from graphsilo.experiments.storage import disk, reading, tables
from graphsilo.experiments.storage.checkpoint import Checkpoints
from graphsilo.experiments.storage.place import Place
from graphsilo.experiments.storage.records import RunRecord
from graphsilo.experiments.storage.resume import check_free, differences, holds_run, reason, stored_config
from graphsilo.federation.ledger import Ledger

_PLACES = {DATA: "data.name", PARTITION: "partition.file", GIVEN: "partition.path"}
"""Files that hold what was given in memory, and the settings that name them."""


class Folder(Place):
    """A folder that a run writes.

    Args:
        path: The folder.
        resume: Whether the run that it holds goes on.
    """

    path: Path

    def __init__(self, path: str | Path, *, resume: bool = False):
        super().__init__(resume=resume)
        self.path = Path(path)
        self._copies: dict[Path, Path] = {}

    def reference(self, name: str) -> Folder:
        """The folder of a reference row."""
        place = self.path / "references" / name
        return Folder(place, resume=self.resume and place.exists())

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep others out.

        Raises:
            BusyError: Another process writes it.
            ConfigError: It holds a run that is not to go on.
            RunError: It cannot be written.
        """
        if not self.resume:
            check_free(self.path)
        with disk.hold_folder(self.path):
            yield

    def adopt(self, config: RunConfig, own: Path | None, simulation: Participants) -> RunConfig:
        """The configuration with what was given in memory at its place here, to which ``begin`` copies it.

        Raises:
            ConfigError: Something else is there.
        """
        for file, setting in _PLACES.items():
            source, target = own and own / file, self.path / file
            if source is None or config.get(setting) != str(source) or not self._is_place(target, source):
                continue
            if not target.exists():
                self._copies[source] = target
            config = config.with_settings({setting: str(target)})
        self._check_partition(simulation)
        return config

    def _is_place(self, target: Path, source: Path) -> bool:
        """Whether a file may have this place: nothing is there, or the same. Something else in a run that goes on is
        left to the comparison with that run, which says in what they differ.

        Raises:
            ConfigError: Something else is, and no run could be warned of it.
        """
        if not target.exists() or _same(target, source):
            return True
        if self.resume and holds_run(target.parent):
            return False
        raise _other(target, "graph" if target.name == DATA else "partition")

    def _check_partition(self, simulation: Participants) -> None:
        """Refuse to write the partition over a file that no run of this folder has left."""
        place = self.path / PARTITION
        if not isinstance(simulation, Simulation) or not place.exists() or holds_run(self.path):
            return
        stored = stored_config(self.path)
        if stored is not None and (stored.get("partition") or {}).get("file") != str(place.resolve()):
            return  # left by a run that was stopped before its first checkpoint
        with contextlib.suppress(GraphsiloError):
            if Partition.load(place).content_hash == simulation.cut_hash:
                return
        raise _other(place, "partition")

    def open(
        self, config: RunConfig, simulation: Participants, fingerprint: str, settings: Mapping[str, Any]
    ) -> RunRecord | None:
        """The result that is here already, if it is finished; another run's is refused before it is written over.

        Raises:
            ConfigError: Another run is here, or one that did not keep what is wanted now.
            RunError: What is here is damaged, or another version's.
        """
        why = partial(reason, self.path, settings, simulation)
        self.checkpoints = Checkpoints(self.path / "checkpoints", fingerprint, settings, why)
        if not self.resume:
            return None
        done = reading.read_run(self.path) if (self.path / "result.json").exists() else None
        begun = stored_config(self.path)
        if done is not None and done.fingerprint != fingerprint:
            raise ConfigError(
                f"{self.path} holds the result of another configuration, data set or partition: {why(done.config)}"
            )
        if done is None:
            # Also of seeds that are not asked for now: the folder is theirs.
            for seed in {*config.run.seeds, *self.checkpoints.seeds}:
                self.checkpoints.load(seed)
            if not self.checkpoints.seeds and begun and differences(begun, settings, with_partition=False):
                # What it has written would stay here.
                raise ConfigError(f"{self.path} is another run's, which has no checkpoint yet: {why(begun)}")
        if holds_run(self.path):
            self._check_outputs((begun or {}).get("evaluation"), config.evaluation)
        remove_unfinished(self.path)
        return done

    def _check_outputs(self, begun: Any, wanted: EvaluationConfig) -> None:
        """Refuse to go on with a run that is now asked for models which it did not keep while it was training."""
        if not isinstance(begun, Mapping):
            return
        kept = {name: bool(begun.get(name, getattr(EvaluationConfig(), name))) for name in ("models", "embeddings")}
        # Models are what embeddings are made of, so a run that kept them can still give both.
        lacking = [name for name in kept if getattr(wanted, name) and not kept[name] and not kept["models"]]
        if lacking:
            named = " and ".join(f"evaluation.{name}" for name in lacking)
            raise ConfigError(
                f"{named} {'is' if len(lacking) == 1 else 'are'} true now, but the run in {self.path} was begun "
                f"without: the models of its best rounds were not kept and cannot be written afterwards. Go on with "
                f"{' and '.join(f'--set evaluation.{name}=false' for name in lacking)}, or run it again with another "
                f"--out."
            )

    def begin(self, settings: Mapping[str, Any], simulation: Participants) -> None:
        """Write what the run is made of."""
        for source, target in self._copies.items():
            disk.write_bytes(target, source.read_bytes())
        disk.write_text(self.path / "config.yaml", documents.write(settings))
        simulation.keep(self.path)

    def write(self, record: RunRecord, ledgers: list[tuple[int, Ledger]] | None = None) -> None:
        """Tables and result: where that stands, the run is complete. Without ledgers the result alone."""
        if ledgers is not None:
            tables.write(self.path, record, ledgers)
        else:
            tables.write_record(self.path, record)

    def draw(self, report: Callable[[Path], Any] | None, *, again: bool = True) -> None:
        """Have the report drawn, if somebody draws; ``again``: also where it is there."""
        if report is not None and (again or not (self.path / "report.html").exists()):
            report(self.path)


def _other(place: Path, what: str) -> ConfigError:
    return ConfigError(
        f"{place} is there already and holds another {what} than this run's, or something else: it is neither used nor "
        f"written over. Choose another folder for the run, or move the file away."
    )


def _same(one: Path, other: Path) -> bool:
    if one.read_bytes() == other.read_bytes():
        return True
    if one.name == GIVEN:
        return False
    try:
        if one.name == PARTITION:
            return Partition.load(one).content_hash == Partition.load(other).content_hash
        graphs = (load_graph(one), load_graph(other))
    except GraphsiloError:
        return False
    return content_hash(graphs[:1]) == content_hash(graphs[1:]) and _splits(graphs[0]) == _splits(graphs[1])


def _splits(graph: Graph | GraphCollection) -> dict[str, bytes]:
    return {} if isinstance(graph, GraphCollection) else {name: mask.tobytes() for name, mask in graph.splits.items()}
