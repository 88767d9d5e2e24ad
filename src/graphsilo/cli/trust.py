"""``graphsilo trust``: whose code a configuration or a run's folder may run here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphsilo.cli.terminal import say
from graphsilo.cli.values import Debug


def trust(
    places: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE.py...", help="Files that you have looked at; module:NAME of a package."),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Trust them no longer; by place, or by the beginning of the hash.")
    ] = False,
    show: Annotated[bool, typer.Option("--list", help="Show what is trusted.")] = False,
    debug: Debug = False,
) -> None:
    """Let configurations and runs of yours and of others use code in a file, as the file is now.

    What it imports from beside it is trusted with it. A file that changes is another one.
    """
    from graphsilo.federation import own, trust

    for place in places or ():
        if remove:
            for key, at in trust.forget(place).items():
                say(f"no longer trusted: {key}  {at}")
            continue
        key, where = own.keyed(place)
        found = trust.with_helpers(Path(where)) if where.endswith(".py") else {key: where}
        trust.trust(found)
        for key, at in found.items():
            say(f"trusted: {key}  {at}")
    if show or not places:
        for key, at in trust.trusted().items():
            say(f"{key}  {at}")
        say(f"Kept in {trust.store()}")
