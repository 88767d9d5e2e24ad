"""What a person sees and what log.txt keeps while a run goes on.

Three observers of the runner share one description of a round: ``PlainProgress`` writes a line now and then,
``LiveProgress`` keeps one line of the terminal up to date, and ``Log`` writes the plain lines to a file.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from graphsilo.cli import terminal
from graphsilo.errors import without_secrets
from graphsilo.evaluate.metrics import find_leading, metric_of
from graphsilo.experiments.observer import Observer, Progress, RunStarted, Working
from graphsilo.experiments.storage import disk
from graphsilo.report.formats import REFERENCES, data_size, duration, in_sentence, metric, with_unit

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

SILENT_SECONDS = 60.0
"""Longest time without a plain line while rounds go on."""


def headline(run: RunStarted) -> str:
    """What is run, in one line."""
    data = run.data
    counts = [
        f"{data[key]} {key if data[key] > 1 else key.removesuffix('s')}"
        for key in ("graphs", "nodes", "edges", "features", "classes", "targets")
        if data.get(key)
    ]
    if "graphs" in data:
        counts = [item for item in counts if not item.endswith((" nodes", " edges"))]
    bounds = f", by time ({run.bounds})" if run.bounds and not run.label else ""
    return (
        f"{title(run)} on {data['name']} ({', '.join(counts)}): "
        f"{run.rule}, {_many(run.clients, 'client')}{bounds}; {', '.join(run.models)}; "
        f"{_many(run.rounds, 'round')}; {'seed' if len(run.seeds) == 1 else 'seeds'} {', '.join(map(str, run.seeds))}"
        f"{f'; {run.workers} workers' if run.workers > 1 else ''}"
    )


def title(run: RunStarted) -> str:
    """The name of a run among those that belong together; reference rows have their own."""
    return run.title if run.label in ("alone", "one_place") else REFERENCES.get(run.label, run.label) or run.title


def _many(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def score(values: Mapping[str, float | None] | None, wanted: str = "") -> tuple[str, float] | None:
    """The score that stands for a round, and its metric: the one that rounds are selected by, where it is there."""
    name = wanted if wanted in (values or {}) else find_leading(values or ()) or ""
    found = (values or {}).get(name)
    return None if found is None else (name, float(found))


@dataclass
class Track:
    """One seed of one run, as far as it is known.

    Attributes:
        name: Of the run, e.g. "FedAvg".
        first: Round and seconds at which this process began to count.
        last: The newest event.
        validation: Score of the newest evaluated round.
        metric: Its name.
        closed: Whether its end was announced.
    """

    name: str
    first: tuple[int, float]
    last: Progress
    validation: float | None = None
    closed: bool = False
    metric: str = "accuracy"

    @property
    def remaining(self) -> float | None:
        """Seconds that this seed and those after it will take, if rounds go on as before."""
        done, spent = self.last.round - self.first[0], self.last.seconds - self.first[1]
        if done <= 0:
            return None
        rounds = self.last.rounds - self.last.round + (self.last.seeds - self.last.index) * self.last.rounds
        return rounds * spent / done


class Tracks:
    """Turns the runner's events into seeds that begin, go on and end.

    The runner does not announce the end of a seed, which may come early, so it shows when the next one begins or when
    ``finish`` is called.
    """

    def __init__(self) -> None:
        self.name = self.metric = ""
        self.current: Track | None = None

    def begin(self, run: RunStarted) -> Track | None:
        """Another run begins; returns the seed that has ended with it."""
        ended = self.finish()
        self.name, self.metric = title(run), str(run.config.get("evaluation", {}).get("select_by", ""))
        return ended

    def advance(self, progress: Progress) -> tuple[Track | None, Track]:
        """A round has ended; returns the seed that had ended before, if any, and the current one."""
        ended = None
        track = self.current
        if track is None or track.closed or track.last.seed != progress.seed:
            ended = self.finish()
            # The first round seen carries the set-up, so the pace is taken from the rounds after it.
            track = self.current = Track(self.name, (progress.round, progress.seconds), progress)
            track.metric = self.metric or track.metric
        track.last = progress
        if (found := score(progress.validation, self.metric)) is not None:
            track.metric, track.validation = found
        return ended, track

    def finish(self) -> Track | None:
        """The seed that has ended by now and was not announced yet."""
        track = self.current
        if track is None or track.closed:
            return None
        track.closed = True
        return track


def round_line(track: Track) -> str:
    """Where a seed is, in one line."""
    event = track.last
    parts = [f"{seed_name(track)}: round {event.round}/{event.rounds}"]
    if track.validation is not None:
        parts.append(f"validation {in_sentence(track.metric)} {with_unit(track.validation, track.metric)}")
    if event.best is not None:
        parts.append(f"best {with_unit(event.best[0], track.metric)} in round {event.best[1]}")
    parts.append(_traffic(event))
    parts.append(duration(event.seconds))
    left = track.remaining
    if left is not None:
        parts.append(f"about {short_time(left)} left")
    return ", ".join(parts)


def end_line(track: Track) -> str:
    """What a seed has come to, in one line."""
    event = track.last
    early = " (stopped early)" if event.round < event.rounds else ""
    best = ""
    if event.best is not None:
        value = with_unit(event.best[0], track.metric)
        best = f", best validation {in_sentence(track.metric)} {value} in round {event.best[1]}"
    return f"{seed_name(track)}: done after {_many(event.round, 'round')}{early}{best}, {_traffic(event)}, " + duration(
        event.seconds
    )


def seed_name(track: Track) -> str:
    """Run and seed, and which of how many it is."""
    event = track.last
    place = f" ({event.index}/{event.seeds})" if event.seeds > 1 else ""
    return f"{track.name}, seed {event.seed}{place}"


def _traffic(event: Progress) -> str:
    return f"sent {data_size(event.upload_bytes)}, received {data_size(event.download_bytes)}"


class PlainProgress(Observer):
    """A line at the start, one about every tenth of the rounds, and one at the end of each seed.

    Args:
        write: Receives them.
        is_brief: Whether there is a line at the start of each row alone, and others only after a long silence.
    """

    def __init__(self, write: Callable[[str], None], *, is_brief: bool = False):
        self.write, self.is_brief = write, is_brief
        self.tracks = Tracks()
        self._reported = 0.0

    def on_start(self, run: RunStarted) -> None:
        self._end(self.tracks.begin(run))
        if not run.is_finished:
            self._print(headline(run))

    def on_progress(self, progress: Progress) -> None:
        """Say where it is, if it is time to."""
        ended, track = self.tracks.advance(progress)
        self._end(ended)
        if progress.round >= progress.rounds:
            self._end(self.tracks.finish())
        elif self._is_due(progress.round % max(1, progress.rounds // 10) == 0):
            self._print(round_line(track))

    def on_work(self, working: Working) -> None:
        """Say how far the server's work is, if nothing was said for long."""
        if self._is_due(False):
            self._print(str(working))

    def on_warning(self, text: str) -> None:
        self._print(f"warning: {text}")

    def finish(self) -> None:
        """Say what the last seed came to, if it ended early."""
        self._end(self.tracks.finish())

    def _end(self, track: Track | None) -> None:
        if track is not None and self._is_due(True):
            self._print(end_line(track))

    def _is_due(self, is_step: bool) -> bool:
        """Whether a line is to be written: at a step that is announced, or after a long silence."""
        return (is_step and not self.is_brief) or time.monotonic() - self._reported > SILENT_SECONDS

    def _print(self, line: str) -> None:
        self._reported = time.monotonic()
        self.write(line)


class LiveProgress(Observer):
    """One line of the terminal that follows the rounds; finished seeds stay above it.

    Args:
        stream: The terminal; None for a notebook.
    """

    def __init__(self, stream: IO[str] | None):
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        # A notebook takes what it is given for a page; its cells have room for this.
        width = 110 if stream is None else None
        self.console = Console(file=stream, highlight=False, emoji=False, markup=False, width=width)
        self.tracks = Tracks()
        self._spinner = Spinner("dots", "Preparing data ...")
        self._headed = False
        self._doing = ""
        self._digits = 3
        self._live = Live(
            console=self.console, get_renderable=self._draw, refresh_per_second=5, transient=True, redirect_stdout=False
        )
        self._live.start()

    def on_start(self, run: RunStarted) -> None:
        self._end(self.tracks.begin(run))
        if not self._headed and not run.is_finished:
            self._headed = True
            self._digits = max(3, len(str(run.rounds)))
            self.console.print(headline(run))
            self.console.print()
            sign = " %" if metric_of(self.tracks.metric).is_share else ""
            self.console.print(self._line([text + sign * (text in _SCORES) for text in _HEADINGS], style="dim"))

    def on_progress(self, progress: Progress) -> None:
        """Take note; the screen follows by itself."""
        ended, _ = self.tracks.advance(progress)
        self._end(ended)
        self._doing = ""

    def on_work(self, working: Working) -> None:
        self._doing = str(working)

    def on_warning(self, text: str) -> None:
        """Show a warning above the line."""
        self.console.print(f"Warning: {text}", style="yellow")

    def finish(self) -> None:
        """Leave the last seed's line on the screen and give the terminal back."""
        if self._live.is_started:
            self._end(self.tracks.finish())
            self._live.stop()

    def abandon(self) -> None:
        """The same after a failure: what was going on stays, without a tick."""
        if self._live.is_started:
            self._live.stop()
            track = self.tracks.current
            if track is not None and not track.closed:
                self.console.print(self._row(track))

    def _end(self, track: Track | None) -> None:
        if track is not None:
            self.console.print(self._row(track))

    def _draw(self) -> RenderableType:
        track = self.tracks.current
        if track is not None and not track.closed and not self._doing:
            return self._row(track)
        if self._headed:
            self._spinner.update(text=self._doing or "Working ...")
        return self._spinner

    def _row(self, track: Track) -> Text:
        event = track.last
        best, at = ("", "") if event.best is None else (metric(event.best[0], track.metric), str(event.best[1]))
        left = track.remaining
        when = short_time(event.seconds) if track.closed else "" if left is None else f"{short_time(left)} left"
        cells = (
            track.name,
            str(event.seed),
            f"{event.round}/{event.rounds}",
            "" if track.validation is None else metric(track.validation, track.metric),
            best,
            at,
            data_size(event.upload_bytes),
            data_size(event.download_bytes),
            when,
        )
        return self._line(cells, done=event.round / max(1, event.rounds), mark="✓" if track.closed else "›")

    def _line(self, cells: Sequence[str], *, done: float = 0.0, mark: str = " ", style: str = "") -> Text:
        """One line in fixed columns, 78 characters wide; what is left of the terminal's width becomes a bar.

        Two characters stay free, or the ``^C`` that a terminal shows would break the line and leave it standing.
        """
        from rich.text import Text

        extra = self._digits - 3
        forms = list(_COLUMNS)
        forms[2], forms[5] = f">{7 + 2 * extra}", f">{4 + extra}"
        space = min(30, self.console.width - 83 - 3 * extra)
        if space < 10:
            forms[0] = f"<{17 - 3 * extra}.{17 - 3 * extra}"
        parts = [f"{cell:{form}}" for cell, form in zip(cells, forms, strict=True)]
        if space >= 10:
            filled = round(done * space)
            parts.insert(3, "━" * filled + ("╌" if mark.strip() else " ") * (space - filled))
        line = Text(f"{mark} ", style=style or "green", no_wrap=True, overflow="crop")
        return line.append(" ".join(parts), style=style or "default")


def choose_progress() -> LiveProgress | PlainProgress:
    """Progress on stderr: a line that follows on a terminal, else lines that begin and end."""
    if terminal.is_terminal(sys.stderr):
        return LiveProgress(sys.stderr)
    return PlainProgress(terminal.to_stderr, is_brief=True)


_HEADINGS = ("", "seed", "round", "val", "best", "at", "sent", "received", "time")
_SCORES = ("val", "best")
_COLUMNS = ("<17.17", ">4", ">7", ">5", ">6", ">4", ">8", ">8", ">9")


def short_time(seconds: float) -> str:
    """Minutes and seconds, with hours where there are any: "0:07", "12:40", "1:02:03"."""
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


class Log:
    """The plain lines with their time, at the end of a file that is opened with the first of them.

    A log that cannot be written is given up; it never ends a run.
    """

    def __init__(self, path: Path):
        self.path = path
        self._given_up = False

    def __call__(self, line: str) -> None:
        if self._given_up:
            return
        try:
            with disk.open_to_append(self.path) as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {without_secrets(line)}\n".encode())
        except OSError as error:
            self._given_up = True
            print(f"graphsilo: {self.path} is not continued ({error.strerror}).", file=sys.stderr)
