"""``graphsilo join``: a site of a federation between machines."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from graphsilo.cli import terminal, wait_until_stopped
from graphsilo.cli.values import (
    Debug,
    argument,
    option,
    switch,
)
from graphsilo.errors import ConfigError, add_names, nearest, one_line


def join(
    kit: Path = argument("KIT", "This site's kit."),
    silo: list[Path] = option("silo.yaml", "A silo that lives here; repeat it for several.", default=...),
    quiet: bool = switch("--quiet -q", "Print nothing but errors."),
    debug: Debug = False,
) -> None:
    """Take part in a federation with the silos of this site, until stopped."""
    from graphsilo.data.silos.own import read_silo_file
    from graphsilo.experiments.storage.disk import hold_folder
    from graphsilo.runtime.engines.choice import kits_of, request_check, site_engine, site_kit
    from graphsilo.runtime.machine import require_unix
    from graphsilo.runtime.site.supervisor import SiteSupervisor

    require_unix("graphsilo join")
    os.umask(0o077)  # logs, models and checkpoints are for whoever runs this site
    own = site_kit(kit)
    members = []
    for path in silo:
        file = read_silo_file(path)
        if file.name not in own.silos:
            raise ConfigError(
                f"{path} describes silo '{file.name}', which does not live at site '{own.party}'; "
                f"{nearest(file.name, own.silos)}"
            )
        members.append((own.silos[file.name], path.resolve()))
    missing = [name for name, client in own.silos.items() if client not in dict(members)]
    if missing:
        raise ConfigError(f"site '{own.party}' also holds silo '{missing[0]}': give its file with --silo, too.")
    allowed = {number: each.may_send for number, each in enumerate(own.federation.silos) if each.may_send is not None}

    names = {client: name for name, client in own.silos.items()}

    def say(text: str) -> None:
        line = terminal.add_timestamp(one_line(add_names(text, names), 4000))  # some of it a coordinator's words
        with contextlib.suppress(OSError), (own.run / "site.log").open("a", encoding="utf-8") as log:
            log.write(line + "\n")
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    with contextlib.ExitStack() as stack:
        stack.enter_context(
            hold_folder(own.run, "this site is already served by another process: stop it first.", within=own.folder)
        )
        site = SiteSupervisor(
            own.party,
            sorted(members),
            own.folder,
            say=say,
            may_send=allowed,
            kits=kits_of(own),
            open_request=request_check(own),
        )
        stack.callback(site.close)
        site.start()
        engine = site_engine(own, say=say)
        stack.callback(engine.close)
        engine.start()
        where = f"{own.federation.coordinator.hosts[0]}:{own.federation.coordinator.port}"
        say(f"site '{own.party}' of '{own.federation.name}' with {', '.join(own.silos)}; coordinator at {where}")
        own.remind(say)
        wait_until_stopped()
