"""``graphsilo join``: a site of a federation between machines."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import Annotated

import typer

from graphsilo.errors import ConfigError, nearest


def join(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="This site's kit.")],
    silo: Annotated[
        list[Path], typer.Option(metavar="silo.yaml", help="A silo that lives here; repeat it for several.")
    ],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Take part in a federation with the silos of this site, until stopped."""
    join_command(kit, silo, quiet=quiet)


def join_command(folder: Path, silos: list[Path], *, quiet: bool) -> None:
    """Serve a site until it is stopped.

    Raises:
        RunError: It is no site's kit, or the site is already served.
        GraphsiloError: A silo is not what it should be.
    """
    from graphsilo.data.silos.own import read_silo_file
    from graphsilo.experiments.storage.disk import owned
    from graphsilo.runtime.engines.choice import request_check, site_engine, site_kit
    from graphsilo.runtime.site.supervisor import SiteSupervisor

    os.umask(0o077)  # logs, models and checkpoints are for whoever runs this site
    kit = site_kit(folder)
    members = []
    for path in silos:
        file = read_silo_file(path)
        if file.name not in kit.silos:
            raise ConfigError(
                f"{path} describes silo '{file.name}', which does not live at site '{kit.party}'; "
                f"{nearest(file.name, kit.silos)}"
            )
        members.append((kit.silos[file.name], path.resolve()))
    missing = [name for name, client in kit.silos.items() if client not in dict(members)]
    if missing:
        raise ConfigError(f"site '{kit.party}' also holds silo '{missing[0]}': give its file with --silo, too.")
    allowed = {number: silo.may_send for number, silo in enumerate(kit.federation.silos) if silo.may_send is not None}

    def say(text: str) -> None:
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}"
        with contextlib.suppress(OSError), (kit.run / "site.log").open("a", encoding="utf-8") as log:
            log.write(line + "\n")
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    with contextlib.ExitStack() as stack:
        stack.enter_context(owned(kit.run, "this site is already served by another process: stop it first."))
        site = SiteSupervisor(
            kit.party, sorted(members), kit.folder, say=say, may_send=allowed, opened=request_check(kit)
        )
        stack.callback(site.close)
        site.start()
        engine = site_engine(kit, say=say)
        stack.callback(engine.close)
        engine.start()
        where = f"{kit.federation.coordinator.hosts[0]}:{kit.federation.coordinator.port}"
        say(f"site '{kit.party}' of '{kit.federation.name}' with {', '.join(kit.silos)}; coordinator at {where}")
        threading.Event().wait()
