"""``graphsilo serve``: the coordinator of a federation between machines."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graphsilo.cli import Interrupted, check_stopped
from graphsilo.cli.values import (
    Debug,
    Track,
    argument,
    option,
    switch,
    trackers_of,
)
from graphsilo.errors import ConfigError, FederationError
from graphsilo.loading import load


def serve(
    kit: Path = argument("KIT", "The coordinator's kit, from `graphsilo federation init`."),
    config: Path | None = argument(
        "CONFIG.yaml", "Run this and end; else take jobs from `federation submit`.", default=None
    ),
    out: Path | None = option("DIR", "Folder for the results of CONFIG.yaml; else inside the kit."),
    assignments: list[str] | None = option("NAME=VALUE", "Any setting of CONFIG.yaml; repeatable.", flags="--set"),
    page: int = option("PORT", "Port of the status page on this machine; 0 takes a free one, -1 none.", default=0),
    quiet: bool = switch("--quiet -q", "Print nothing but errors and the result."),
    track: Track = None,
    debug: Debug = False,
) -> None:
    """Coordinate a federation: wait for its silos, carry out jobs, show how it goes."""
    load("graphsilo.experiments.service.coordinator")
    from graphsilo.experiments.observer import Several
    from graphsilo.experiments.service.coordinator import Coordinator
    from graphsilo.experiments.service.jobs import Jobs
    from graphsilo.experiments.service.watch import Status
    from graphsilo.experiments.storage import disk
    from graphsilo.report import write as write_report
    from graphsilo.runtime.engines.choice import coordinator_kit, transport_of
    from graphsilo.runtime.machine import require_unix

    require_unix("graphsilo serve")
    if config is None and (out is not None or assignments):
        raise ConfigError(
            f"{'--set' if assignments else '--out'} is about a CONFIG.yaml, and none was given: give it here, or with "
            f"`graphsilo federation submit`."
        )
    trackers_of(track)  # refused now, not when the first job begins
    os.umask(0o077)  # results hold counts of the silos' classes
    own = coordinator_kit(kit)
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            disk.hold_folder(own.run, "another coordinator serves this kit: stop it first.", within=own.folder)
        )
        jobs = Jobs(own.folder)
        job = None if config is None else jobs.take_up(config, out=out, assignments=assignments or [], names=own.silos)
        names = {client: name for name, client in own.silos.items()}
        clients: dict[str, list[int]] = {site: [] for site in own.federation.sites}
        for number, silo in enumerate(own.federation.silos):
            clients[silo.site].append(number)
        status = Status(own.folder, own.federation.name, names, own.federation.engine, clients)
        show = _screen(status, quiet)
        stack.callback(show.close)
        if page >= 0:
            stack.callback(_serve_page(status, jobs, own, page).close)
        transport = transport_of(own, say=status.say)
        stack.callback(transport.close)
        status.say(
            f"coordinator of '{own.federation.name}' at {own.federation.coordinator.hosts[0]}:"
            f"{own.federation.coordinator.port}, waiting for {', '.join(clients)}"
        )
        transport.start()
        own.remind(status.say)
        bounds = {number: silo.max_items for number, silo in enumerate(own.federation.silos) if silo.max_items}
        coordinator = Coordinator(
            own.folder, own.federation.name, clients, transport, status, report=write_report, max_items=bounds,
            names=names, check=check_stopped,
        )  # fmt: skip
        stack.callback(status.write, force=True)
        try:
            if job is not None and job.state == "done":
                status.say(f"job {job.id} was done before; nothing is run again")
            done = coordinator.serve(
                observer=lambda: Several(show.observer(), *trackers_of(track, status.say)),
                until_idle=job is not None,
            )
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


def _serve_page(status: Any, jobs: Any, kit: Any, port: int) -> Any:
    from graphsilo.report.status_page import StatusPage

    def tree() -> dict[str, Any]:
        told = {"jobs": [asdict(job) for job in jobs.all()], "certificate_expires": kit.expires.timestamp()}
        return {**status.tree(), **told}

    page = StatusPage(tree, port)
    page.start()
    status.say(f"status page: {page.address}")
    return page
