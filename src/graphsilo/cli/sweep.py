"""``graphsilo sweep``: points as they end, then the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphsilo.cli import Interrupted, check_stopped
from graphsilo.cli.reproduce import tell
from graphsilo.cli.run import folder_name, folders
from graphsilo.cli.terminal import say, show, table
from graphsilo.errors import ConfigError, RunError
from graphsilo.experiments.config import call_of, configure
from graphsilo.loading import load

if TYPE_CHECKING:
    from graphsilo.report.sweep_page import Swept


def sweep_command(
    said: Sequence[str],
    *,
    overrides: Mapping[str, Any],
    assignments: Sequence[str],
    methods: Sequence[str] | None,
    executor: str | None,
    out: Path | None,
    quiet: bool,
) -> None:
    """Sweep; see the flags of ``graphsilo sweep``.

    Raises:
        ConfigError: The grid cannot be.
        RunError: A point failed; the others are drawn.
    """
    paths = [Path(text) for text in said if "=" not in text and text.endswith((".yaml", ".yml"))]
    if len(paths) > 1:
        raise ConfigError(f"one configuration is swept, got {' and '.join(map(str, paths))}. Name one of them.")
    load("graphsilo.experiments.runner")
    from graphsilo.experiments import sweep
    from graphsilo.report import sweep_page

    grid = sweep.read_grid([text for text in said if Path(text) not in paths])
    named = [name for text in methods or () for name in text.split(",")]
    call = call_of({**overrides, **({"method": named[0]} if named else {})}, assignments)
    names = [call.name_own("method", name) for name in named]
    config = configure(next(iter(paths), None), call)
    free = (folder for folder in folders(f"sweep-{folder_name(config)}"))
    places = free if out is None else iter([out.expanduser()])
    planned = next(
        one
        for place in places
        if not sweep.find_changes(one := sweep.plan(config, grid, names, place)) or out is not None
    )
    try:
        swept = sweep_page.sweep(
            [planned], planned.out, executor, say=(lambda text: None) if quiet else tell, follow=check_stopped
        )
    except KeyboardInterrupt:
        raise Interrupted("stopped; the same command goes on.") from None
    print_swept(swept, quiet=quiet)


def print_swept(swept: Swept, *, quiet: bool = False) -> None:
    """The table of every sweep, and where it is drawn.

    Raises:
        RunError: A point failed.
    """
    from graphsilo.report.sweep_page import cells, sentence

    if quiet:
        say(str(swept.out))
    for found in () if quiet else swept.found:
        head, rows = cells(found)
        grid = table(*head, numbers=range(1, len(head)))
        for row in rows:
            grid.add_row(*row)
        say(found.sweep.title) if found.sweep.title else None
        show(grid)
        say()
        say(sentence(found))
    for path in () if quiet else swept.files:
        say(str(path))
    if swept.failed:
        raise RunError(swept.complaint)
