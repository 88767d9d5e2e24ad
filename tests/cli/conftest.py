"""A small run on generated data, made once, and a way to call the command line in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from graphsilo.cli import main

SMALL = [
    "--set", "data.generator.nodes=150", "--set", "data.classes=3", "--set", "data.features=40",
    "--set", "data.feature_density=0.1", "--set", "model.hidden=8", "--partition", "random", "--clients", "3",
]  # fmt: skip
"""Flags of a run that takes a fraction of a second."""

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def small() -> list[str]:
    return list(SMALL)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command; returns exit code, stdout, stderr."""

    def invoke(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return invoke


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two seeds with reference rows."""
    folder = tmp_path_factory.mktemp("runs") / "fedavg"
    references = ["--reference", "local,alone,fedavg,fedridge,global,majority"]
    arguments = ["run", *SMALL, "--rounds", "4", "--seeds", "0,1", *references, "--out", str(folder), "-q"]
    assert main(arguments) == 0
    return folder
