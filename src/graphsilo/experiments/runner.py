"""A run from configuration to results: every seed in turn, the reference rows, and the folder they are written to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from graphsilo import documents
from graphsilo.data.sources.files import remove_unfinished
from graphsilo.errors import FederationError
from graphsilo.experiments.checks import (
    check_data,
    check_device,
    check_models,
    check_own,
    check_precision,
    check_resources,
    check_support,
)
from graphsilo.experiments.config import REFERENCES, RunConfig
from graphsilo.experiments.effects import check_clients, settled
from graphsilo.experiments.observer import Beside, Observer, RunEnded, RunStarted
from graphsilo.experiments.outcome import failure_warnings
from graphsilo.experiments.participants import Federations, Participants, selection_metric
from graphsilo.experiments.references import gaps_closed, method_of, reference_config, reference_method
from graphsilo.experiments.seed import SeedRun, tell_again
from graphsilo.experiments.simulation import Simulation, complete_config, fingerprint, model_specs, prepare
from graphsilo.experiments.storage import disk, results
from graphsilo.experiments.storage.checkpoint import Checkpoints
from graphsilo.experiments.storage.inputs import adopted, check_places
from graphsilo.experiments.storage.outputs import write_missing_embeddings
from graphsilo.experiments.storage.records import Means, References, RunRecord
from graphsilo.experiments.storage.results import Result
from graphsilo.experiments.storage.resume import check_begun, check_free, check_outputs, finished, reason
from graphsilo.experiments.usage import UsageMeter
from graphsilo.federation import registry
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.registry import Method
from graphsilo.runtime.local.offloading import OffloadFolder
from graphsilo.runtime.local.workers import WorkerPool
from graphsilo.runtime.lost import StateLost
from graphsilo.runtime.machine import keep_freed_memory, needs_unix

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
        observer: Is told what happens.
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
    observer = observer or Observer()
    folder = None if out is None else Path(out)
    remote = simulation is not None and not isinstance(simulation, Simulation)
    config = settled(config, out=folder, remote=remote)
    method = method_of(config)
    method_config = config.method_config()
    check_device(config.run.device, config.run.precision)
    check_models(config, method, method_config)
    if config.run.workers > 1:
        needs_unix("run.workers above 1")
    with ExitStack() as stack:
        if folder is not None:
            if not resume:
                check_free(folder)
            stack.enter_context(disk.owned(folder))
        simulation = simulation or prepare(config, method)
        if isinstance(simulation, Simulation):
            check_clients(config, simulation.partition)
            config = settled(config, task=simulation.task, partition=simulation.partition, out=folder)
            check_resources(simulation, method_config)
        check_support(config, method, method_config, simulation)
        for name in config.run.references:  # before the run, not after it
            check_data(registry.load(reference_method(config, name)), simulation)
        if isinstance(simulation, Simulation):
            check_own(config, method, simulation)
            check_precision(simulation)
        kept: dict[Path, Path] = {}
        if folder is not None:
            config, kept = adopted(config, own, folder, resume=resume)
            check_places(folder, simulation)
        run_fingerprint = fingerprint(config, simulation)
        settings = complete_config(config, simulation)
        checkpoints = None
        done = None
        if folder is not None:
            why = partial(reason, folder, settings, simulation)
            checkpoints = Checkpoints(folder / "checkpoints", run_fingerprint, settings, why)
            if resume:  # another run's is refused before anything of it is overwritten
                done = finished(folder, run_fingerprint, why)
                # Also of seeds that are not asked for now: the folder is theirs.
                for seed in {*config.run.seeds, *checkpoints.seeds} if done is None else ():
                    checkpoints.load(seed)
                if done is None and not checkpoints.seeds:
                    check_begun(folder, settings, why)
                check_outputs(folder, config.evaluation)
                remove_unfinished(folder)
        if done is not None and set(config.run.references) <= done.reference_rows.keys():
            if folder is not None and config.evaluation.embeddings and isinstance(simulation, Simulation):
                write_missing_embeddings(folder, config, method, simulation, config.run.seeds)
            if folder is not None and report is not None and not (folder / "report.html").exists():
                report(folder)  # stopped between the result and its page
            result = Result(done, folder)
            observer.started(_started(config, method, simulation, label, settings, run_fingerprint, folder, done=True))
            for index, kept_seed in enumerate(done.seeds):
                tell_again(kept_seed, (kept_seed.seed, index + 1, len(done.seeds)), observer, label)
            observer.ended(RunEnded(label=label, result=result))
            return result
        if folder is not None:
            for source, target in kept.items():
                disk.write_bytes(target, source.read_bytes())
            disk.write_text(folder / "config.yaml", documents.write(settings))
            simulation.keep(folder)
        observer.started(_started(config, method, simulation, label, settings, run_fingerprint, folder, resumed=resume))
        stack.enter_context(_failing(observer, label))
        first = results.first_warnings(config, method, simulation)
        for warning in first:
            observer.warned(warning)
        place = elsewhere
        offload_folder = OffloadFolder(folder)
        stack.callback(offload_folder.close)
        if place is None and isinstance(simulation, Simulation) and min(config.run.workers, len(simulation.silos)) > 1:
            place = pool = WorkerPool(
                simulation.silos,
                config.run.workers,
                resident=config.run.resident_clients,
                offload_folder=offload_folder,
                own=config.brought("model"),
            )
            stack.callback(pool.close)
        keep_freed_memory()
        seeds = []
        ledgers: list[tuple[int, Ledger]] = []
        for index, seed in enumerate(config.run.seeds):
            again = resume
            while True:
                one = seed_run(config, method, method_config, simulation, seed, place, checkpoints, offload_folder)
                try:
                    found, ledger = one.run(index, resume=again, observer=observer, label=label, folder=folder)
                    break
                except StateLost as lost:
                    if place is None:
                        raise
                    place.recovering(lost)
                    if elsewhere is None:
                        observer.warned(f"{lost} It was started again; the seed goes on from its last checkpoint.")
                    again = True
            seeds.append(found)
            ledgers.append((seed, ledger))
        record = results.assemble(config, method, simulation, seeds, run_fingerprint)
        for warning in record.warnings[len(first) :] if not label else ():
            observer.warned(warning)
        if config.run.references:
            references, missing = _references(config, simulation, record, folder, resume, observer, elsewhere)
            record = replace(record, references=references, warnings=[*record.warnings, *missing])
        record = replace(record, process=usage.read())
        if folder is not None:
            results.write(folder, record, ledgers)
            if report is not None:
                report(folder)
    record = replace(record, process=usage.read())  # with the page, and with workers that have ended
    if folder is not None:
        results.write_record(folder, record)
    result = Result(record, folder)
    observer.ended(RunEnded(label=label, result=result))
    return result


@contextmanager
def _failing(observer: Observer, label: str) -> Iterator[None]:
    """Report what ends a run before its time."""
    try:
        yield
    except BaseException as error:
        observer.ended(RunEnded(label=label, error=error))
        raise


def _references(
    config: RunConfig,
    simulation: Participants,
    record: RunRecord,
    folder: Path | None,
    resume: bool,
    observer: Observer,
    elsewhere: Federations | None,
) -> tuple[References, list[str]]:
    """Run the reference rows that are asked for, each in a folder of its own.

    Returns:
        The rows; and why some are missing, or lack a client: silos at other machines may refuse one, and the run is
        worth keeping.
    """
    observer = Beside(observer, record.warnings)
    rows: dict[str, Means] = {}
    missing: list[str] = []
    gaps = None
    by = selection_metric(config.evaluation, simulation).name
    for name in REFERENCES:
        if name not in config.run.references:
            continue
        place = None if folder is None else folder / "references" / name
        again = resume and place is not None and place.exists()
        beside = reference_config(config, name)
        # All rows are chosen by one metric, also where one silo alone would have taken another.
        evaluation = beside.evaluation.model_copy(update={"select_by": by})
        reuse = simulation if name in ("local", "alone") and not registry.load(config.method.name).pooled else None
        if elsewhere is not None:  # of silos apart no more is known than their cards
            reuse = dataclasses.replace(simulation, models=model_specs(beside, list(simulation.clients)))
        try:
            result = run(
                beside.model_copy(update={"evaluation": evaluation}),
                out=place,
                resume=again,
                observer=observer,
                simulation=reuse,
                elsewhere=None if elsewhere is None else elsewhere.for_reference(name),
                label=name,
                seed_run=partial(SeedRun, beside=folder if name in ("local", "alone") else None),
            )
        except FederationError as error:
            if elsewhere is None:
                raise
            missing.append(f"the reference '{name}' is missing: {error}")
            observer.warned(missing[-1])
            continue
        for text in failure_warnings(result.record.seeds, simulation):
            missing.append(f"the reference '{name}': {text}")
            observer.warned(missing[-1])
        summary, spent = result.record.summary, result.record.spent
        rows[name] = Means(summary.test.metrics, replace(summary.test.beside, scenarios=summary.scenarios, spent=spent))
    if "local" in rows and "global" in rows:
        gaps = gaps_closed(record.summary.test, rows["local"], rows["global"])
    return References.of(rows, gaps), missing


def _started(
    config: RunConfig,
    method: Method,
    simulation: Participants,
    label: str,
    settings: Mapping[str, Any],
    run_fingerprint: str,
    folder: Path | None,
    *,
    resumed: bool = True,
    done: bool = False,
) -> RunStarted:
    return RunStarted(
        label=label,
        method=method.name,
        title=method.title,
        data=simulation.data,
        clients=len(simulation.holders),
        names={row["client"]: row["silo"] for row in simulation.cut["per_client"] if row.get("silo")},
        rule=simulation.rule,
        models=sorted({spec.name for spec in simulation.models.values()}) if method.backbone else ["no backbone"],
        seeds=list(config.run.seeds),
        rounds=config.method_config().total_rounds,
        workers=config.run.workers,
        config=settings,
        fingerprint=run_fingerprint,
        out=folder,
        resumed=resumed,
        is_finished=done,
    )
