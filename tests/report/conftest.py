"""Sample run folders, made once per test run, and a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kit.sample

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def sample() -> ModuleType:
    """The generator of run folders, ``sample.make_run``."""
    return kit.sample


@pytest.fixture(scope="session")
def runs(sample: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three comparable runs of seven seeds, enough for two corrected comparisons; read only."""
    root = tmp_path_factory.mktemp("runs")
    make = {"seeds": 7, "rounds": 12}
    return {
        "fedavg": sample.make_run(root / "fedavg", **make),
        "fedprox": sample.make_run(root / "fedprox", method="fedprox", title="FedProx", level=0.815, **make),
        "local": sample.make_run(root / "local", method="local", title="Local", level=0.70, payload=1, **make),
    }


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no Chromium on the search path")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield opened
        opened.close()
