"""``graphsilo run``."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphsilo.cli import BEGUN, Interrupted, check_stopped, terminal
from graphsilo.cli.values import resume_command, trackers_of
from graphsilo.errors import ConfigError, GraphsiloError, without_secrets
from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.experiments.observer import Observer, RunStarted
from graphsilo.loading import load

if TYPE_CHECKING:
    from graphsilo.cli.progress import LiveProgress, PlainProgress
    from graphsilo.experiments.storage.records import RunRecord
    from graphsilo.experiments.tracking import Tracker

RUNS = Path("runs")
"""Where runs without --out go."""


def run_command(
    path: Path | None,
    *,
    overrides: Mapping[str, Any],
    assignments: Sequence[str],
    out: Path | None,
    resume: bool,
    quiet: bool,
    draw_report: bool,
    debug: bool,
    track: Sequence[str] = (),
) -> None:
    """Run a configuration and print what it came to; see the flags of ``graphsilo run``."""
    load("graphsilo.experiments.runner")
    if resume:
        out = out or find_unfinished()
        path = path or _find_config(out, given=bool(overrides or assignments))
    config = load_config(path, overrides=overrides, assignments=assignments)
    trackers = trackers_of(track)
    claimed = out is None
    folder = claim_folder(config) if out is None else out.expanduser()
    existed = folder.exists() and not claimed
    try:
        record, warned = _train(
            config, folder, resume=resume, quiet=quiet, draw_report=draw_report, debug=debug, trackers=trackers
        )
    except KeyboardInterrupt:
        raise Interrupted(_how_to_go_on(folder, config)) from None
    finally:
        if not existed:
            _remove_if_empty(folder)
    _print(record, folder, warned, quiet=quiet, draw_report=draw_report)


def _train(
    config: RunConfig,
    folder: Path,
    *,
    resume: bool,
    quiet: bool,
    draw_report: bool,
    debug: bool,
    trackers: Sequence[Tracker],
) -> tuple[RunRecord, list[str]]:
    """Run with progress on the screen and in the log; returns the result and the warnings that were shown."""
    from graphsilo.cli import progress
    from graphsilo.cli.progress import LiveProgress, Log, PlainProgress
    from graphsilo.experiments.observer import Several

    log = Log(folder / "log.txt")
    written = PlainProgress(log)
    shown: LiveProgress | PlainProgress | None = None
    if not quiet:
        shown = progress.choose_progress()
    begun = _Begun()

    def draw(run: Path) -> None:
        if draw_report:
            _draw_report(run, several.on_warning, debug)

    several = Several(begun, *([shown] if shown else []), written, *trackers)
    for tracker in trackers:
        tracker.say = several.on_warning
    try:
        from graphsilo.experiments.runner import run

        result = run(config, out=folder, resume=resume, observer=several, report=draw, begun=BEGUN)
    except BaseException as error:
        if isinstance(shown, LiveProgress):
            shown.abandon()
        if begun.yet:
            log("stopped." if isinstance(error, KeyboardInterrupt) else f"failed: {type(error).__name__}: {error}")
        raise
    for observer in (shown, written):
        if observer is not None:
            observer.finish()
    if not begun.yet and not quiet:
        terminal.to_stderr("This run was finished before; nothing was trained.")
    if draw_report and not (folder / "report.html").exists():  # the run was finished before, its report was not
        draw(folder)
    return result.record, begun.warnings


class _Begun(Observer):
    """Notes that training has begun, from when on the folder is this run's, and which warnings were shown."""

    def __init__(self) -> None:
        self.yet = False
        self.warnings: list[str] = []

    def on_start(self, run: RunStarted) -> None:
        self.yet = self.yet or not run.is_finished

    def on_progress(self, progress: Any) -> None:
        """A round has ended, and its checkpoint is written: a good moment to stop."""
        check_stopped()

    def on_work(self, working: Any) -> None:
        """A step of the server's work has ended."""
        check_stopped()

    def on_warning(self, text: str) -> None:
        """Keep it, so that it is not shown twice."""
        self.warnings.append(text)


def _draw_report(folder: Path, warn: Any, debug: bool) -> None:
    """Draw the page; a run whose page cannot be drawn is done all the same."""
    from graphsilo import report

    try:
        report.write(folder)
    except Exception as error:
        if debug:
            print(without_secrets(traceback.format_exc()), end="", file=sys.stderr)
        reason = str(error) if isinstance(error, GraphsiloError) else f"{type(error).__name__}: {error}"
        warn(
            f"the report page could not be drawn ({reason.rstrip('.')}). The results are complete; "
            f"`graphsilo report {shlex.quote(str(folder))}` tries again."
        )


def print_run(folder: Path) -> None:
    """Print what the finished run in a folder came to."""
    from graphsilo.experiments.storage import reading

    _print(reading.read_run(folder), folder, [], quiet=False, draw_report=(folder / "report.html").exists())


def _print(record: RunRecord, folder: Path, warned: Sequence[str], *, quiet: bool, draw_report: bool) -> None:
    if quiet:
        terminal.say(str(folder))
        return
    from graphsilo.cli import summary

    if terminal.is_terminal(sys.stderr):
        print(file=sys.stderr)  # between progress and table
    terminal.show(summary.sheet(record).draw())
    terminal.say()
    if text := summary.describe_scoring(record):
        terminal.say(text)
    for text in summary.remarks(record):
        if text not in warned:
            terminal.say(f"Note: {text}")
    page = folder / "report.html"
    print(f"Results: {folder}")
    if draw_report and page.exists():
        print(f"Report:  {page}")


def claim_folder(config: RunConfig) -> Path:
    """The next free folder below ``runs`` for this configuration, made so that no other process takes it.

    Raises:
        ConfigError: It cannot be made.
    """
    for folder in folders(folder_name(config)):
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            text = f"the folder {folder} cannot be made ({error.strerror}); choose another with --out."
            raise ConfigError(text) from None
        break
    return folder


def folders(name: str) -> Iterator[Path]:
    """Places below ``runs`` for something of this name, without end: ``name``, ``name-2``, ``name-3``."""
    return (RUNS / (name if number == 1 else f"{name}-{number}") for number in count(1))


def folder_name(config: RunConfig) -> str:
    """What a run is called: data, rule and clients, method; of silos with data of their own their names, or how many.

    Example:
        >>> folder_name(RunConfig.of({"data": "Cora", "partition": {"clients": 5}}))
        'Cora-louvain5-fedavg'
    """
    from graphsilo.data.sources import catalog

    names, rule = config.data.names, _rule(config)
    called = [catalog.title(name) if catalog.is_description(name) else name for name in names]
    called = [Path(name).stem if name in names and "." in name else name for name in called]
    data = "+".join(called)
    if len(called) > 1 and (len(data) > _LONG or len({*called}) < len(called)):
        data = f"{len(called)}-silos"
    cut = Path(config.partition.file).stem if config.partition.file else f"{rule}{config.partition.clients}"
    parts = [data, *([] if rule == "domains" and not config.partition.file else [cut]), config.method.name]
    return re.sub(r"[^\w.+-]+", "_", "-".join(parts))


_LONG = 40
"""Letters of silos' names from which they are only counted."""


def _rule(config: RunConfig) -> str:
    """The cutting rule, also where the data decides."""
    from graphsilo.data.sources import catalog

    name = config.data.name
    if config.partition.rule != "auto":
        return config.partition.rule
    if not isinstance(name, str):
        return "domains"
    try:
        return "dirichlet" if catalog.entry(name).task == "graph" else "louvain"
    except ConfigError:  # data of one's own
        return "louvain"


def find_unfinished() -> Path:
    """The one unfinished run below ``runs``.

    Raises:
        ConfigError: There is none, or more than one.
    """
    found = sorted(path.parent for path in RUNS.glob("*/config.yaml") if not (path.parent / "result.json").exists())
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError(
            f"--resume goes on with a run, and {RUNS}/ holds no unfinished one: name its folder with --out DIR."
        )
    raise ConfigError(
        f"--resume goes on with one run, and {len(found)} in {RUNS}/ are unfinished: name one with --out DIR "
        f"({', '.join(map(str, found[:5]))}{', ...' if len(found) > 5 else ''})."
    )


def _find_config(folder: Path, *, given: bool) -> Path | None:
    path = folder.expanduser() / "config.yaml"
    if path.exists():
        return path
    if given:
        return None  # stopped before it was written: the flags say what to begin with
    raise ConfigError(
        f"--resume takes the settings from {path}, which is not there: is this the folder of a run? A run that was "
        f"stopped before training began is started again with its settings."
    )


def _how_to_go_on(folder: Path, config: RunConfig) -> str:
    if not (folder / "config.yaml").exists():
        return "stopped before training began; nothing was kept."
    if (folder / "result.json").exists():
        return f"stopped; the results in {folder} are complete."
    command = resume_command("run", folder, config)
    if not any((folder / "checkpoints").glob("*.ckpt")):
        return f"stopped before the first checkpoint; `{command}` begins again."
    return f"stopped; continue with `{command}`."


def _remove_if_empty(folder: Path) -> None:
    """Take away a folder that this command made and nothing was written to."""
    with contextlib.suppress(OSError):
        if {path.name for path in folder.iterdir()} <= {".lock"}:
            (folder / ".lock").unlink(missing_ok=True)
            folder.rmdir()
            folder.parent.rmdir() if folder.parent == RUNS else None
