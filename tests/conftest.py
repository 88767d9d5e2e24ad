"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

import kit
from graphsilo.loading import without_collector
from kit import forks
from kit.sites import make_sites, short_path, sites, standing

__all__ = ["make_sites", "short_path", "sites", "standing"]

CHECKOUT = Path(__file__).resolve().parents[1]
REQUIRED = frozenset(os.environ.get("GRAPHSILO_REQUIRE", "").split())
"""Marks whose tests must not be skipped, e.g. ``data browser postgres`` in continuous integration."""

LAST_START = float(os.environ.get("GRAPHSILO_SLOW_UNTIL", "inf"))
"""Seconds since 1970 after which no slow test begins: machines differ by a factor, and CI has a limit of time."""
_LATE = "no time was left for this slow test (GRAPHSILO_SLOW_UNTIL)"


def find_data_root() -> Path | None:
    """The folder with PyG's raw files: GRAPHSILO_DATA, else ../shared/data beside the checkout."""
    named = os.environ.get("GRAPHSILO_DATA")
    candidates = [Path(named)] if named else [CHECKOUT.parent / "shared" / "data"]
    return next((path.resolve() for path in candidates if (path / "planetoid").is_dir()), None)


def pytest_configure(config: pytest.Config) -> None:
    import torch

    config.addinivalue_line("markers", "postgres: needs the programs of a PostgreSQL server")
    torch.set_num_threads(1)
    for name in {"fsync", "fdatasync"} & set(dir(os)):  # a test outlasts no loss of power, and each waits for the disk
        setattr(os, name, lambda descriptor: None)
    if sys.platform == "linux":
        subprocess.Popen = forks.Popen  # type: ignore[misc]
    settings = tempfile.TemporaryDirectory(prefix="graphsilo-config-")
    config.add_cleanup(settings.cleanup)
    os.environ["XDG_CONFIG_HOME"] = settings.name  # what whoever runs the tests trusts is nothing to them


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays: Python's collector of circles looks through it neither meanwhile nor in any test."""
    with without_collector():
        collected = yield
    gc.freeze()
    return collected


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where slow tests are left out, a file that has no others is not read: what it imports takes seconds."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    return "\npytestmark = pytest.mark.slow\n" in collection_path.read_text(encoding="utf-8") or None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("slow") is not None and time.time() > LAST_START:
        pytest.skip(_LATE)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    late = sum(_LATE in str(report.longrepr) for report in terminalreporter.stats.get("skipped", []))
    if late:
        terminalreporter.write_line(f"{late} slow tests did not begin: no time was left (GRAPHSILO_SLOW_UNTIL)")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    marks = {mark.name for mark in item.iter_markers()}
    missed = sorted(REQUIRED & marks) if report.skipped and "gpu" not in marks else []
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    if missed and not hasattr(report, "wasxfail") and _LATE not in str(reason):
        report.outcome = "failed"
        report.longrepr = f"GRAPHSILO_REQUIRE says that '{missed[0]}' tests must run, but this one: {reason}"
    return report


@pytest.fixture(autouse=True)
def _nothing_brought_along_stays() -> Generator[None, None, None]:
    """Models, methods and rules of a test's own are known to no other test, and trusted in none."""
    yield
    if "graphsilo.federation.trust" in sys.modules:
        from graphsilo.federation import trust

        trust._ALLOWED.clear()
        trust.store().unlink(missing_ok=True)
    if "graphsilo.federation.own" in sys.modules:
        from graphsilo.data.partition import registry as rules
        from graphsilo.evaluate import metrics
        from graphsilo.federation import own, registry
        from graphsilo.models import registry as models

        added = {"model": models._ADDED, "method": registry._REGISTERED, "partition": rules._ADDED,
                 "metric": metrics.ADOPTED}  # fmt: skip
        metrics.measure_adopted([])
        for section, name in own._KNOWN:
            added[section].pop(name, None)
        if own._KNOWN:
            models._registry.cache_clear()
            rules._rules.cache_clear()
        own._KNOWN.clear()


@pytest.fixture
def known_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system's randomness, of which noise is drawn, the same in every test run.

    For what noise leads to with a chance that has no bound near 1: a verdict at 95 % is another in one of twenty runs.
    """
    monkeypatch.setattr(os, "urandom", random.Random(0).randbytes)


@pytest.fixture(scope="session")
def data_root() -> Path:
    root = find_data_root()
    if root is None:
        pytest.skip("no real graphs: set GRAPHSILO_DATA to a folder that holds planetoid/Cora/raw")
    return root


@pytest.fixture(scope="session", autouse=True)
def _private_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep converted data sets of the test run out of the user's cache."""
    os.environ.setdefault("GRAPHSILO_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def golden_root() -> Path:
    data = find_data_root()
    candidates = [CHECKOUT.parent / "shared" / "golden", *([data.parent / "golden"] if data else [])]
    root = next((path for path in candidates if path.is_dir()), None)
    if root is None:
        pytest.skip("no golden partitions beside the checkout or the data")
    return root


@pytest.fixture(scope="session")
def small() -> Callable[..., Any]:
    return kit.small_run


@pytest.fixture(scope="session")
def molecules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kit.molecules(tmp_path_factory.mktemp("graphs") / "rings.npz")
