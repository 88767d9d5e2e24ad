"""One run of a batch as plain values, and carrying it out, wherever that is.

What crosses to another process is JSON: an order there, a reply back. The rest goes through the run's folder, which all
machines share:

===================  ==============================================================
``validation.jsonl`` best validation score so far, a line for each evaluated round
``stop``             whoever put it there wants the run to end after its next round
``task.json``        the settings of the finished run
===================  ==============================================================
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from graphsilo.__about__ import __version__
from graphsilo.data.sources import catalog
from graphsilo.errors import GraphsiloError, one_line
from graphsilo.experiments.config import door_of, load_config
from graphsilo.experiments.doors import NAMES, own_tree
from graphsilo.experiments.observer import Observer
from graphsilo.federation.trust import allow, list_allowed

if TYPE_CHECKING:
    from graphsilo.experiments.observer import Progress, RunStarted

Order: TypeAlias = dict[str, Any]
"""``name``, ``config`` by dotted name, ``out``, ``followed``, the version of graphsilo that it comes from, and which
code may run (``trust.list_allowed``)."""
Reply: TypeAlias = dict[str, Any]
"""``error`` as a text or None, and whether it was ``stopped``."""

SCORES, STOP, TASK = "validation.jsonl", "stop", "task.json"
WAIT_SECONDS = 0.5
"""Between two looks whether the process that holds a folder has ended."""
_FILES = ("data.root", "data.name", "partition.file", "model.name", "method.name")
"""Settings that may be the path of a file or folder."""


class Stopped(Exception):
    """A run found the order to stop."""


def order_of(name: str, config: Mapping[str, Any], out: Path, *, followed: bool) -> Order:
    """A task as it is sent.

    Raises:
        ConfigError: The settings name something that there is not, or contradict each other.
    """
    door = door_of(f"the task {name}").say_all(config)
    settings = {key: _absolute(key, value) for key, value in door.values.items()}
    if door.given is not None:
        settings |= {"given": sorted(door.given), "remarks": list(door.remarks), "replaces": door.replaces}
        settings |= {"own": own_tree(door.own)} if door.own else {}
    else:  # a person's own things as places, where any process finds them
        for section, own in door.own.items():
            key = f"{section}.{NAMES[section]}"
            settings[key] = own[settings[key]].place if settings.get(key) in own else settings.get(key)
    out = Path(out).expanduser().absolute()
    order = {"name": name, "config": settings, "out": str(out), "followed": followed, "graphsilo": __version__}
    return {**order, "allowed": list_allowed()}


def _absolute(name: str, value: Any) -> Any:
    """Paths as they are wherever the run is carried out."""
    if name not in _FILES:
        return value
    if isinstance(value, list):
        return [_absolute(name, item) for item in value]
    path = Path(value).expanduser() if isinstance(value, str) else None
    is_known = path is not None and (name in ("data.root", "partition.file") or path.suffix or catalog.is_folder(path))
    return str(path.absolute()) if path is not None and is_known and path.exists() else value


def carry_out(order: Order, after_round: Callable[[], None] = lambda: None) -> Reply:
    """Make the run, unless it was made; errors go into the reply.

    Args:
        order: What to run.
        after_round: Called after every round, where the run is followed.
    """
    reply: Reply = {"error": None, "stopped": False}
    if order["graphsilo"] != __version__:
        return {**reply, "error": other_version(order["graphsilo"], __version__)}
    folder = Path(order["out"])
    try:
        if not _is_done(folder, order["config"]):
            _run(order, folder, after_round)
    except Stopped:
        reply["stopped"], reply["error"] = True, "it was stopped before its end, as it was asked to."
    except GraphsiloError as error:
        reply["error"] = str(error)
    except Exception as error:
        reply["error"] = one_line(f"{type(error).__name__}: {error}")
    return reply


def other_version(asked: str, found: str) -> str:
    """Why a run is not made by another version."""
    return (
        f"the batch is led by graphsilo {asked}, and a process that should carry it out has {found}. Numbers of two "
        f"versions do not belong into one table: install {asked} everywhere."
    )


def _is_done(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether the folder holds this very run, finished: nothing needs to be loaded to see that."""
    try:
        return (folder / "result.json").exists() and json.loads((folder / TASK).read_text(encoding="utf-8")) == config
    except (OSError, ValueError):
        return False


def _run(order: Order, folder: Path, after_round: Callable[[], None]) -> None:
    from graphsilo.experiments.runner import run
    from graphsilo.experiments.storage import disk

    allow(order["allowed"])
    config = load_config(order["config"])
    observer = _Followed(folder, after_round) if order["followed"] else None
    while True:
        try:
            run(config, out=folder, resume=True, observer=observer)
            break
        except disk.BusyError:  # the same run, begun elsewhere: nobody knows whether its process will come to an end
            time.sleep(WAIT_SECONDS)
    disk.write_json(folder / TASK, order["config"])


class _Followed(Observer):
    """Notes scores, and looks for the order to stop."""

    def __init__(self, folder: Path, after_round: Callable[[], None]):
        self.folder, self.after_round = folder, after_round

    def on_start(self, run: RunStarted) -> None:
        """The folder is this run's now; what was noted before it was stopped is noted again by the rounds."""
        if not run.is_finished and (self.folder / STOP).exists():
            raise Stopped

    def on_progress(self, progress: Progress) -> None:
        """Note the best score so far of this seed."""
        if progress.label:
            return  # a reference row
        if progress.best is not None:
            from graphsilo.experiments.storage import disk

            row = {"seed": progress.index, "round": progress.round, "rounds": progress.rounds}
            with disk.open_to_append(self.folder / SCORES) as file:
                file.write(json.dumps({**row, "validation": progress.best[0]}).encode() + b"\n")
        self.after_round()
        if (self.folder / STOP).exists():
            raise Stopped


def scores_of(folder: Path) -> dict[int, float]:
    """Best validation score so far of a run that is followed, by step: rounds of all seeds, counted through.

    Of several seeds it is the mean so far, which in the end is the run's. Rounds that were made twice, because a run
    was stopped between two checkpoints, are noted twice with the same numbers.
    """
    found: dict[tuple[int, int], tuple[int, float]] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / SCORES).read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):  # a line that is being written, or was when its process died
                row = json.loads(line)
                found[row["seed"], row["round"]] = (row["seed"] - 1) * row["rounds"] + row["round"], row["validation"]
    best: dict[int, float] = {}
    scores = {}
    for (seed, _), (step, value) in sorted(found.items()):
        best[seed] = value
        scores[step] = sum(best.values()) / len(best)
    return scores
