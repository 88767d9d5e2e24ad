"""``graphsilo serve``: the coordinator of a federation between machines."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from graphsilo.cli import Interrupted
from graphsilo.errors import ConfigError, FederationError


def serve(
    kit: Annotated[
        Path, typer.Argument(metavar="KIT", help="The coordinator's kit, from `graphsilo federation init`.")
    ],
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG.yaml", help="Run this and end; else take jobs from `federation submit`."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the results of CONFIG.yaml; else inside the kit.")
    ] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting of CONFIG.yaml; repeatable.")
    ] = None,
    page: Annotated[
        int, typer.Option(metavar="PORT", help="Port of the status page on this machine; 0 takes a free one, -1 none.")
    ] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors and the result.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Coordinate a federation: wait for its silos, carry out jobs, show how it goes."""
    serve_command(kit, config, out=out, assignments=assignments or [], page=page, quiet=quiet)


def serve_command(
    folder: Path,
    config: Path | None,
    *,
    out: Path | None,
    assignments: Sequence[str],
    page: int,
    quiet: bool,
) -> None:
    """Serve a kit.

    Raises:
        RunError: It is no coordinator's kit, or somebody serves it.
        FederationError: The job on the command line failed.
        GraphsiloError: As the parts do.
    """
    from graphsilo.experiments.service.coordinator import Coordinator
    from graphsilo.experiments.service.jobs import Jobs
    from graphsilo.experiments.service.watch import Status
    from graphsilo.experiments.storage import disk
    from graphsilo.report import write as write_report
    from graphsilo.runtime.engines.choice import coordinator_kit, transport_of

    if config is None and (out is not None or assignments):
        raise ConfigError(
            f"{'--set' if assignments else '--out'} is about a CONFIG.yaml, and none was given: give it here, or with "
            f"`graphsilo federation submit`."
        )
    os.umask(0o077)  # results hold counts of the silos' classes
    kit = coordinator_kit(folder)
    with contextlib.ExitStack() as stack:
        stack.enter_context(disk.owned(kit.run, "another coordinator serves this kit: stop it first."))
        jobs = Jobs(kit.folder)
        job = None if config is None else jobs.take_up(config, out=out, assignments=assignments, names=kit.silos)
        names = {client: name for name, client in kit.silos.items()}
        clients: dict[str, list[int]] = {site: [] for site in kit.federation.sites}
        for number, silo in enumerate(kit.federation.silos):
            clients[silo.site].append(number)
        status = Status(kit.folder, kit.federation.name, names, kit.federation.engine, clients)
        show = _screen(status, quiet)
        stack.callback(show.close)
        if page >= 0:
            stack.callback(_serve_page(status, jobs, page).close)
        transport = transport_of(kit, say=status.say)
        stack.callback(transport.close)
        status.say(
            f"coordinator of '{kit.federation.name}' at {kit.federation.coordinator.hosts[0]}:"
            f"{kit.federation.coordinator.port}, waiting for {', '.join(clients)}"
        )
        transport.start()
        bounds = {number: silo.max_items for number, silo in enumerate(kit.federation.silos) if silo.max_items}
        coordinator = Coordinator(
            kit.folder, kit.federation.name, clients, transport, status, report=write_report, max_items=bounds,
            names=names,
        )  # fmt: skip
        stack.callback(status.write, force=True)
        try:
            if job is not None and job.state == "done":
                status.say(f"job {job.id} was done before; nothing is run again")
            done = coordinator.serve(observer=show.observer, until_idle=job is not None)
        except KeyboardInterrupt:
            running = [item.id for item in jobs.all() if item.state == "running"]
            more = f" Job {running[0]} continues when this kit is served again." if running else ""
            status.say(f"the coordinator was stopped.{more}")
            raise Interrupted(f"stopped.{more}") from None
    if job is not None:
        mine = next((item for item in reversed(done) if item.id == job.id), jobs.get(job.id))
        if mine.state != "done":
            reason = f": {mine.error}" if quiet and mine.error else "; the reason stands above."
            raise FederationError(f"job {mine.id} {mine.state}{reason}")
        show.result(Path(mine.out))


def _screen(status: Any, quiet: bool) -> Any:
    from graphsilo.cli.federation.live import screen

    return screen(status, quiet)


def _serve_page(status: Any, jobs: Any, port: int) -> Any:
    from graphsilo.report.status_page import StatusPage

    page = StatusPage(lambda: {**status.tree(), "jobs": [asdict(job) for job in jobs.all()]}, port)
    page.start()
    status.say(f"status page: {page.address}")
    return page
