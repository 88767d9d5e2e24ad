"""``graphsilo trust``: whose code a configuration or a run's folder may run here."""

from __future__ import annotations

from pathlib import Path

from graphsilo.cli.terminal import say
from graphsilo.cli.values import (
    Debug,
    argument,
    switch,
)


def trust(
    places: list[str] | None = argument(
        "FILE.py...", "Files that you have looked at; module:NAME of a package.", default=None
    ),
    remove: bool = switch("--remove", "Trust them no longer; by place, or by the beginning of the hash."),
    show: bool = switch("--list", "Show what is trusted."),
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
        key, where = own.find_key(place)
        found = trust.find_keys(Path(where)) if where.endswith(".py") else {key: where}
        trust.trust(found)
        for key, at in found.items():
            say(f"trusted: {key}  {at}")
    if show or not places:
        for key, at in trust.read_trusted().items():
            say(f"{key}  {at}")
        say(f"Kept in {trust.store()}")
