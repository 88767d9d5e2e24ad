"""``graphsilo doctor``: is everything here that a run needs, and does a small one work from end to end?"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import typer

from graphsilo.cli.terminal import say, show_findings
from graphsilo.cli.values import DataRoot, Debug
from graphsilo.errors import GraphsiloError
from graphsilo.runtime.machine import LEAST_FREE, free_disk

TESTED = {
    "torch": "2.13.0",
    "torch-geometric": "2.8.1",
    "numpy": "2.4.6",
    "scipy": "1.17.1",
    "scikit-learn": "1.9.1",
    "scikit-network": "0.33.5",
    "pymetis": "2025.2.2",
}
"""The versions that decide numbers and that the published results were measured with."""

Status = Literal["ok", "note", "broken"]
Said: TypeAlias = tuple[Status, str]
"""What a check found, and the text of it; see :class:`Finding`."""


@dataclass(frozen=True)
class Finding:
    """One line of the examination.

    Attributes:
        status: ``note`` is worth knowing and breaks nothing.
        what: What was looked at.
        text: What was found, and for ``broken`` what to do.
    """

    status: Status
    what: str
    text: str


def doctor(data_root: DataRoot = None, debug: Debug = False) -> None:
    """Check this installation: packages, data, disk, and a small federation from end to end."""
    found = list(examine(data_root))
    show_findings(found)
    broken = [finding.what for finding in found if finding.status == "broken"]
    say()
    say(f"Broken: {', '.join(broken)}." if broken else "Everything a run needs is here.")
    if broken:
        raise typer.Exit(1)


def examine(data_root: Path | None = None) -> Iterator[Finding]:
    """Every check, one after the other; none of them can end the examination."""
    checks: list[tuple[str, Callable[[], Iterator[Said]]]] = [
        ("python", _python),
        ("packages", _packages),
        ("torch", _torch),
        ("data", lambda: _data(data_root)),
        ("cache", _cache),
        ("disk", _disk),
        ("federation", _federation),
    ]
    for what, check in checks:
        try:
            for status, text in check():
                yield Finding(status, what, text)
        except GraphsiloError as error:
            yield Finding("broken", what, str(error))
        except Exception as error:  # a broken installation can fail in any way
            yield Finding("broken", what, f"{type(error).__name__}: {error}")


def _python() -> Iterator[Said]:
    from graphsilo.__about__ import __version__

    fits = sys.version_info >= (3, 11)
    text = f"{platform.python_version()} on {platform.system()} {platform.machine()}, graphsilo {__version__}"
    yield "ok" if fits else "broken", text if fits else f"{text}; 3.11 or newer is needed"


def _packages() -> Iterator[Said]:
    """Required packages against their least versions, and those that decide numbers against the tested ones."""
    missing, old, other = [], [], []
    for name, least in requirements().items():
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
            continue
        if _parts(version) < _parts(least):
            old.append(f"{name} {version} (at least {least})")
        if name in TESTED and version.partition("+")[0] != TESTED[name]:
            other.append(f"{name} {version} ({TESTED[name]})")
    if missing or old:
        problems = [f"missing: {', '.join(missing)}"] if missing else []
        problems += [f"too old: {', '.join(old)}"] if old else []
        yield "broken", f"{'; '.join(problems)}. Install graphsilo again with its dependencies."
    elif other:
        yield "note", f"other than the tested versions, numbers may differ: {', '.join(other)}"
    else:
        tested = ", ".join(f"{name} {version}" for name, version in TESTED.items())
        yield "ok", f"as tested: {tested}"


def requirements() -> dict[str, str]:
    """What the installed package needs: name to least version (empty where any will do); extras are left out."""
    try:
        declared = importlib.metadata.requires("graphsilo") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    found = {}
    for line in declared:
        if "extra ==" in line:
            continue
        name = re.match(r"[\w.-]+", line)
        least = re.search(r">=\s*([\w.]+)", line)
        if name:
            found[name.group()] = least.group(1) if least else ""
    return found


def _parts(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])]


def _torch() -> Iterator[Said]:
    import torch

    devices = "no CUDA device"
    if torch.cuda.is_available():
        devices = f"CUDA: {torch.cuda.get_device_name(0)}"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield "ok", f"{torch.__version__}, {devices}; runs use one thread each, and --workers up to {cores} cores"


def _data(root: Path | None) -> Iterator[Said]:
    from graphsilo.cli.listing import whereabouts
    from graphsilo.data.sources import catalog

    roots = catalog.data_roots(root)
    names = [item.name for item in catalog.names() if not item.generated]
    here = [name for name in names if whereabouts(name, roots) == "here"]
    if len(roots) > 1 and not roots[0].is_dir():
        where = "--data-root" if root is not None else "GRAPHSILO_DATA"
        yield "broken", f"{where} names {roots[0]}, which is no folder; correct it or leave it out."
        return
    searched = " and ".join(map(str, roots))
    if not here:
        yield "note", f"none in {searched}: data sets are downloaded when first used; generated ones always work"
        return
    yield "ok", f"{len(here)} of {len(names)} data sets in {searched}: {', '.join(here)}"


def _cache() -> Iterator[Said]:
    from graphsilo.data.sources import cache
    from graphsilo.report.formats import data_size

    place = cache.cache_root()
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file()) if place.is_dir() else 0
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        yield "broken", f"{place} cannot be written ({error.strerror}); set GRAPHSILO_CACHE to a folder of your own."
        return
    yield "ok", f"{place}, {data_size(size)}"


def _disk() -> Iterator[Said]:
    from graphsilo.report.formats import data_size

    scarce = []
    text = []
    for what, place in (("here", Path.cwd()), ("for temporary files", Path(tempfile.gettempdir()))):
        free = free_disk(place)
        text.append(f"{data_size(free)} free {what}")
        if free < LEAST_FREE:
            scarce.append(what)
    status: Status = "note" if scarce else "ok"
    yield status, f"{', '.join(text)}{'; that is little' if scarce else ''}"


def _federation() -> Iterator[Said]:
    """Two rounds on generated data, in one process and with two workers, with results and report on disk."""
    from graphsilo import report
    from graphsilo.experiments.config import load_config
    from graphsilo.experiments.predict import predict
    from graphsilo.experiments.runner import run
    from graphsilo.runtime.machine import is_unix

    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="graphsilo-doctor-") as folder:
        results = []
        for workers in (1, 2) if is_unix() else (1,):
            config = load_config(
                None,
                overrides={
                    "data.generator": {"nodes": 120, "classes": 3, "features": 30, "feature_density": 0.1},
                    "partition": "random",
                    "partition.clients": 3,
                    "model.hidden": 8,
                    "method": "fedavg",
                    "method.rounds": 2,
                    "run.workers": workers,
                },
            )
            place = Path(folder) / str(workers)
            results.append(run(config, out=place, report=report.write).record.summary.test)
            if not (place / "report.html").is_file():
                yield "broken", f"no page was drawn in {place}"
        predict(Path(folder) / "1", client=0)
    seconds = time.perf_counter() - started
    if results[0] != results[-1]:
        yield "broken", "one process and two workers gave different numbers; are the packages the tested ones?"
        return
    text = f"trained, evaluated, reported and predicted in {seconds:.1f} s"
    yield "ok", f"{text}; two worker processes gave the same numbers" if is_unix() else f"{text}, in one process"
