"""What ``graphsilo serve`` shows while it serves: a view that follows the federation, or lines for a pipe."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from graphsilo.cli import terminal
from graphsilo.cli.federation.view import TROUBLE, age, printable, sites_table, state
from graphsilo.cli.progress import PlainProgress, Track, Tracks, end_line, headline, round_line
from graphsilo.experiments.observer import Observer, Progress, RunStarted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from graphsilo.experiments.service.watch import Status

SHOWN_EVENTS = 5
_BESIDES_SITES = 14
"""Lines that everything but the sites takes: heads, job, events, and one that stays free."""


class PlainScreen:
    """Lines on stderr: events as they come, and progress now and then."""

    def __init__(self, status: Status, quiet: bool):
        self.status, self.quiet = status, quiet
        self._progress: PlainProgress | None = None
        if not quiet:
            status.listeners.append(_to_stderr)

    def observer(self) -> Observer:
        if self.quiet:
            return Observer()
        self.close()
        self._progress = _WithoutWarnings(_to_stderr)
        return self._progress

    def result(self, out: Path) -> None:
        """The table of a finished job; only its folder when quiet."""
        self.close()
        if self.quiet:
            terminal.say(str(out))
        else:
            _print(out)

    def close(self) -> None:
        """Say what the last seed came to. May be called twice."""
        progress, self._progress = self._progress, None
        if progress is not None and _is_done(self.status):
            progress.finish()


class _WithoutWarnings(PlainProgress):
    """Warnings are events of the coordinator already."""

    def on_warning(self, text: str) -> None:
        """Nothing."""


class LiveScreen(Observer):
    """A view of the terminal that follows the federation: sites, the job and the last events.

    What happens before the first job, what is run and what seeds come to stays above it.
    """

    def __init__(self, status: Status, stream: IO[str]):
        from rich.live import Live

        self.status = status
        self.console = terminal.console(stream)
        self.tracks = Tracks()
        self._begun = float("inf")
        self._closed = False
        status.listeners.append(self._print_event)
        self._live = Live(
            console=self.console, get_renderable=self._draw, refresh_per_second=4, redirect_stdout=False,
            vertical_overflow="crop",
        )  # fmt: skip
        self._live.start()
        atexit.register(self.close)  # a terminal without its cursor is a nuisance, whatever ended the command

    def observer(self) -> Observer:
        self._begun = min(self._begun, time.time())
        self._finish()
        self.tracks.current = None
        return self

    def result(self, out: Path) -> None:
        self.close()
        _print(out)

    def close(self) -> None:
        """Leave the view as it is last and give the terminal back. May be called twice."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        self._finish()
        self._live.stop()

    # -- an observer: the status shows the server's work, and the events its warnings -----------------------------

    def on_start(self, run: RunStarted) -> None:
        """Say what is run; it stays on the screen."""
        self._end(self.tracks.begin(run))
        self.tracks.current = None
        self.console.print(printable(headline(run)))

    def on_progress(self, progress: Progress) -> None:
        """Take note; the screen follows by itself."""
        ended, _ = self.tracks.advance(progress)
        self._end(ended)

    # -- drawing --------------------------------------------------------------------------------------------------

    def _print_event(self, text: str) -> None:
        if time.time() < self._begun and not self._closed:
            self.console.print(printable(text))

    def _finish(self) -> None:
        """The last seed of a job has ended, and nobody said so; one that was stopped has not come to its end."""
        if _is_done(self.status):
            self._end(self.tracks.finish())

    def _end(self, track: Track | None) -> None:
        if track is not None:
            self.console.print(printable(end_line(track)))

    def _draw(self) -> RenderableType:
        tree = self.status.tree()
        # What came before stands above the view already
        tree["events"] = [event for event in tree["events"] if event["at"] >= self._begun]
        return draw(tree, self.tracks.current, self.console.width, self.console.height)


def draw(tree: Mapping[str, Any], track: Track | None, width: int, height: int) -> RenderableType:
    """The view at one moment.

    Args:
        tree: As ``Status.tree`` makes it.
        track: The seed that trains, if one does.
        width, height: Of the terminal. Sites that have no room are counted; those in trouble come first then.
    """
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text("")]
    sites = list(tree["sites"])
    space = max(3, height - _BESIDES_SITES)
    if len(sites) > space:
        sites.sort(key=lambda site: site["state"] not in TROUBLE)  # stable: otherwise in their order
        hidden = sites[space:]
        sites = sites[:space]
        bad = sum(site["state"] in TROUBLE for site in hidden)
        more = f"… and {len(hidden)} more sites" + (f", {bad} of them in trouble" if bad else "")
    else:
        more = ""
    if sites:
        parts.append(sites_table(sites, tree["at"], width, note=True))
        parts.append(Text(more, style="dim"))
    parts += [*_job(tree, track, width), Text("")]
    for event in list(tree["events"])[-SHOWN_EVENTS:]:
        line = Text(f"{time.strftime('%H:%M:%S', time.localtime(event['at']))} ", style="dim")
        line.append(printable(event["text"]), style="default")
        # Two characters stay free for the ^C that a terminal shows
        line.truncate(max(20, width - 2), overflow="ellipsis")
        parts.append(line)
    return Group(*parts)


def _job(tree: Mapping[str, Any], track: Track | None, width: int) -> list[RenderableType]:
    """Which job runs, how far it is, and its numbers."""
    from rich.padding import Padding
    from rich.text import Text

    job = tree["job"]
    if job is None or job["state"] != "running":
        idle = Text("○ no job runs", style="dim").append(
            "" if job is None else f"; the last one, {printable(job['id'])}, is {job['state']}"
        )
        return [idle, Text("  `graphsilo federation submit CONFIG.yaml` puts one in the queue.", style="dim")]
    name = printable(job["id"])
    line = Text.assemble((f"{state('running').plain[0]} ", "cyan"), (name, "bold"))
    if track is None:
        away = [site["site"] for site in tree["sites"] if site["state"] == "waiting"]
        doing = f"waits for {printable(', '.join(away))}" if away else job.get("work") or "gets ready"
        return [line, Padding(Text(f"{doing}, for {age(tree['at'] - job['started'])}"), (0, 2))]
    place = f" {track.last.round}/{track.last.rounds}"
    space = min(50, width - len(name) - len(place) - 6)
    if space >= 8:
        done = round(space * track.last.round / max(1, track.last.rounds))
        line.append("  ").append("━" * done, style="green").append("╌" * (space - done), style="dim")
    line.append(place)
    return [line, Padding(Text(printable(round_line(track))), (0, 2))]


def screen(status: Status, quiet: bool) -> LiveScreen | PlainScreen:
    """What fits who looks: a view for a terminal, lines for anything else."""
    able = terminal.is_terminal(sys.stderr) and os.environ.get("TERM") not in ("dumb", "unknown")
    return LiveScreen(status, sys.stderr) if able and not quiet else PlainScreen(status, quiet)


def _is_done(status: Status) -> bool:
    job = status.tree()["job"]
    return job is not None and job["state"] == "done"


def _print(out: Path) -> None:
    from graphsilo.cli.run import print_run

    print_run(out)


def _to_stderr(line: str) -> None:
    with contextlib.suppress(OSError):  # who listened has gone; the coordinator goes on
        print(terminal.add_timestamp(printable(line)), file=sys.stderr, flush=True)
