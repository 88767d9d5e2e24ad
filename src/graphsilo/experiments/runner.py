"""A run from configuration to results: every seed in turn, the reference rows, and the folder they are written to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace

from graphsilo.data.sources import catalog
from graphsilo.errors import FederationError, UnsupportedError
from graphsilo.evaluate.metrics import measure_adopted
from graphsilo.experiments.checks import (
    check_data,
    check_device,
    check_models,
    check_resources,
    check_support,
)
from graphsilo.experiments.config import REFERENCES, RunConfig, RunReference
from graphsilo.experiments.effects import check_clients, drop_idle
from graphsilo.experiments.observer import Beside, Observer, RunEnded, RunStarted
from graphsilo.experiments.outcome import failure_warnings
from graphsilo.experiments.participants import Federations, Participants, selection_metric
from graphsilo.experiments.seed import SeedRun, announce_seed
from graphsilo.experiments.simulation import (
    Simulation,
    complete_config,
    fingerprint,
    method_of,
    model_specs,
    prepare,
    reference_method,
)
from graphsilo.experiments.storage import results
from graphsilo.experiments.storage.place import Place
from graphsilo.experiments.storage.records import Means, References, RunRecord, Seed
from graphsilo.experiments.storage.results import Result
from graphsilo.experiments.usage import UsageMeter
from graphsilo.federation import registry
from graphsilo.federation.ledger import Ledger
from graphsilo.runtime.local.offload_folder import OffloadFolder
from graphsilo.runtime.lost import StateLost
from graphsilo.runtime.machine import keep_freed_memory, require_unix

if TYPE_CHECKING:
    from graphsilo.runtime.local.workers import WorkerPool

__all__ = ["Observer", "Result", "run"]


def run(
    config: RunConfig,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    observer: Observer | None = None,
    simulation: Participants | None = None,
    elsewhere: Federations | None = None,
    report: Callable[[Path], Any] | None = None,
    label: str = "",
    begun: float | None = None,
    own: Path | None = None,
    seed_run: Callable[..., SeedRun] = SeedRun,
) -> Result:
    """Carry out a configuration.

    Args:
        config: What to run.
        out: Folder for the results; None writes nothing.
        resume: Go on from the folder's checkpoints.
        observer: Hears what happens.
        simulation: Data prepared before, to share it between runs; or what is known of data that is elsewhere.
        elsewhere: Where the clients live, if not here.
        report: Called with the folder when everything is written, e.g. to draw the report page.
        label: How progress names this run, for reference rows.
        begun: ``time.perf_counter()`` when this process started, where all it does is this run: its whole cost counts
            from there. None counts from now.
        own: A folder that will not last, where what was given in memory lies as ``data.npz`` and ``partition.npz``;
            ``out`` gets copies once everything is checked.
        seed_run: What makes a seed.

    Raises:
        GraphsiloError: As the parts do; what was finished before stays on disk.
    """
    usage = UsageMeter(begun)
    torch.set_num_threads(1)  # the order of additions depends on the number of threads
    observer, folder = observer or Observer(), Place.of(out, resume=resume)
    config = check_settings(config, folder, remote=simulation is not None and not isinstance(simulation, Simulation))
    with folder.hold():
        config, simulation = check_with_data(config, folder, simulation)
        if isinstance(simulation, Simulation) and all(map(catalog.has_tables, config.data.names)):
            from graphsilo.experiments.references import with_trees_alone

            config = with_trees_alone(config, simulation.schema)
        config = folder.adopt(config, own, simulation)
        going = _Run(config, simulation, folder, observer, label, elsewhere)
        done = folder.open(config, simulation, going.fingerprint, going.settings)
        if done is not None and set(config.run.references) <= done.reference_rows.keys():
            return going.announce_finished(done, report)
        folder.begin(going.settings, simulation)
        going.announce_start()
        try:
            record, ledgers = going.train(seed_run)
            record = replace(going.with_references(record), process=usage.read(record.seeds))
            folder.write(record, ledgers)
            folder.draw(report)
        except BaseException as error:
            observer.on_end(RunEnded(label=label, error=error))
            raise
    record = replace(record, process=usage.read(record.seeds))  # with the page, and with workers that have ended
    folder.write(record)
    return going.announce_end(record)


def check_settings(config: RunConfig, folder: Place, *, remote: bool) -> RunConfig:
    """The configuration without what has no effect; refuses what can be refused before data is read."""
    config = drop_idle(config, out=folder.path, remote=remote)
    measure_adopted(config.evaluation.metrics)
    check_device(config.run.device, config.run.precision)
    check_models(config, method_of(config), config.method_config())
    if config.run.workers > 1:
        require_unix("run.workers above 1")
    return config


def check_with_data(
    config: RunConfig, folder: Place, simulation: Participants | None
) -> tuple[RunConfig, Participants]:
    """The data, unless it was there before; refuses what does not go with it, before anything is written."""
    method, settings = method_of(config), config.method_config()
    simulation = simulation or prepare(config, method)
    if isinstance(simulation, Simulation):
        check_clients(config, simulation.partition)
    cut = simulation.partition if isinstance(simulation, Simulation) else None
    classes = len(simulation.trained or ())
    config = drop_idle(
        config, task=simulation.task, partition=cut, out=folder.path, remote=cut is None, classes=classes
    )
    check_support(config, method, settings, simulation)
    if isinstance(simulation, Simulation):
        for name in config.run.references:  # before the run, not after it
            check_data(registry.load(reference_method(config, name)), simulation)
    if isinstance(simulation, Simulation):
        check_resources(simulation, settings)
        if config.run.workers > 1 or config.find_own("model"):
            from graphsilo.experiments.check_own import check_own

            check_own(config, method, simulation)
        if config.run.precision != "float32":
            from graphsilo.federation.reduced import check_precision

            check_precision(simulation.models, simulation.silos)
    return config, simulation


@dataclass
class _Run:
    """A run that was checked, stage by stage.

    Attributes:
        config, simulation: What is run, on what.
        folder: Where it is kept.
        observer, label: Who hears of it, under which name.
        elsewhere: Where the clients live, if not here.
    """

    config: RunConfig
    simulation: Participants
    folder: Place
    observer: Observer
    label: str
    elsewhere: Federations | None

    def __post_init__(self) -> None:
        self.method = method_of(self.config)
        self.fingerprint = fingerprint(self.config, self.simulation)
        self.settings = complete_config(self.config, self.simulation)

    def train(self, seed_run: Callable[..., SeedRun]) -> tuple[RunRecord, list[tuple[int, Ledger]]]:
        """Every seed in turn."""
        first = results.first_warnings(self.config, self.method, self.simulation)
        for warning in first:
            self.observer.on_warning(warning)
        seeds, ledgers = [], []
        with ExitStack() as stack:
            offload_folder = OffloadFolder(self.folder.path)
            stack.callback(offload_folder.close)
            place = self._workers(stack, offload_folder) if self.elsewhere is None else self.elsewhere
            keep_freed_memory()
            for index, seed in enumerate(self.config.run.seeds):
                make = partial(
                    seed_run, self.config, self.method, self.config.method_config(), self.simulation, seed, place,
                    self.folder.checkpoints, offload_folder,
                )  # fmt: skip
                found, ledger = self._train(make, index, place)
                seeds.append(found)
                ledgers.append((seed, ledger))
        record = results.assemble(self.config, self.method, self.simulation, seeds, self.fingerprint)
        for warning in record.warnings[len(first) :] if not self.label else ():
            self.observer.on_warning(warning)
        return record, ledgers

    def _train(self, make: Callable[[], SeedRun], index: int, place: Federations | None) -> tuple[Seed, Ledger]:
        """One seed, from its last checkpoint as often as clients lose their state."""
        again = self.folder.resume
        while True:
            try:
                return make().run(
                    index, resume=again, observer=self.observer, label=self.label, folder=self.folder.path
                )
            except StateLost as lost:
                if place is None:
                    raise
                place.recover(lost)
                if self.elsewhere is None:
                    self.observer.on_warning(f"{lost} It was started again; the seed goes on from its last checkpoint.")
                again = True

    def _workers(self, stack: ExitStack, offload_folder: OffloadFolder) -> WorkerPool | None:
        """Processes that share the clients, where several are wanted."""
        run, simulation = self.config.run, self.simulation
        if not isinstance(simulation, Simulation) or min(run.workers, len(simulation.silos)) < 2:
            return None
        from graphsilo.runtime.local.workers import WorkerPool

        pool = WorkerPool(
            simulation.silos, run.workers, resident=run.resident_clients, offload_folder=offload_folder,
            own=self.config.find_own("model"),
        )  # fmt: skip
        stack.callback(pool.close)
        return pool

    def with_references(self, record: RunRecord) -> RunRecord:
        """The result with the reference rows that are asked for, each run in a folder of its own.

        Silos at other machines may refuse one, nobody may have asked for one, and the run is worth keeping: then a
        warning says why it is missing, or lacks a client.
        """
        if not self.config.run.references:
            return record
        from graphsilo.experiments.references import measure_gaps_closed, reference_config

        observer = Beside(self.observer, record.warnings)
        rows: dict[str, Means] = {}
        missing: list[str] = []
        for name in REFERENCES:
            if name not in self.config.run.references:
                continue
            try:
                result = self._reference(name, reference_config(self.config, name), observer)
            except (FederationError, UnsupportedError) as error:
                if self.elsewhere is None and self.config.is_given("run.references"):
                    raise
                warnings = [f"the reference '{name}' is missing: {error}"]
            else:
                warnings = [
                    f"the reference '{name}': {text}" for text in failure_warnings(result.record.seeds, self.simulation)
                ]
                summary, spent = result.record.summary, result.record.spent
                beside = replace(summary.test.beside, scenarios=summary.scenarios, spent=spent)
                rows[name] = Means(summary.test.metrics, beside)
            for text in warnings:
                observer.on_warning(text)
            missing += warnings
        gaps = measure_gaps_closed(record.summary.test, rows)
        return replace(record, references=References.of(rows, gaps), warnings=[*record.warnings, *missing])

    def _reference(self, name: RunReference, config: RunConfig, observer: Observer) -> Result:
        at_silos = name in ("local", "alone")
        # All rows are chosen by one metric, also where one silo alone would have taken another.
        by = selection_metric(self.config.evaluation, self.simulation).name
        same = at_silos or (name != "one_place" and registry.load(config.method.name).alone)
        reuse = self.simulation if same and not method_of(self.config).pooled else None
        # Of silos apart no more is known than their cards; and a row without a backbone has no precision of one.
        if self.elsewhere is not None or (reuse is not None and not at_silos):
            models = model_specs(config, list(self.simulation.clients))
            reuse = dataclasses.replace(self.simulation, models=models)
        folder = self.folder.reference(name)
        return run(
            config.with_settings({"evaluation.select_by": by}),
            out=folder.path,
            resume=folder.resume,
            observer=observer,
            simulation=reuse,
            elsewhere=None if self.elsewhere is None else self.elsewhere.for_reference(name),
            label=name,
            seed_run=partial(SeedRun, beside=self.folder.path if at_silos else None),
        )

    # -- what observers hear -------------------------------------------------------------------------------------------

    def announce_finished(self, done: RunRecord, report: Callable[[Path], Any] | None) -> Result:
        """A run that was finished before; adds what it lacks of embeddings and report."""
        if (
            self.folder.path is not None
            and self.config.evaluation.embeddings
            and isinstance(self.simulation, Simulation)
        ):
            from graphsilo.experiments.storage.outputs import write_missing_embeddings

            write_missing_embeddings(self.folder.path, self.config, self.method, self.simulation, self.config.run.seeds)
        self.folder.draw(report, again=False)  # it was stopped between the result and its page
        self.announce_start(is_finished=True)
        for index, seed in enumerate(done.seeds):
            announce_seed(seed, (seed.seed, index + 1, len(done.seeds)), self.observer, self.label)
        return self.announce_end(done)

    def announce_start(self, *, is_finished: bool = False) -> None:
        """Training begins, or has been before."""
        method, simulation = self.method, self.simulation
        self.observer.on_start(
            RunStarted(
                label=self.label,
                method=method.name,
                title=method.title,
                data=simulation.data,
                clients=len(simulation.holders),
                names={row["client"]: row["silo"] for row in simulation.cut["per_client"] if row.get("silo")},
                rule=simulation.rule,
                bounds=str(simulation.cut.get("bounds", "")),
                models=sorted({spec.name for spec in simulation.models.values()})
                if method.backbone
                else ["no backbone"],
                seeds=list(self.config.run.seeds),
                rounds=self.config.method_config().total_rounds,
                workers=self.config.run.workers,
                config=self.settings,
                fingerprint=self.fingerprint,
                out=self.folder.path,
                resumed=self.folder.resume or is_finished,
                is_finished=is_finished,
            )
        )

    def announce_end(self, record: RunRecord) -> Result:
        """The run is over, and everything is written."""
        result = Result(record, self.folder.path)
        self.observer.on_end(RunEnded(label=self.label, result=result))
        return result
