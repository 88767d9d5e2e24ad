"""What the page of a comparison says."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from graphsilo import report
from graphsilo.errors import ConfigError
from kit.pages import Page


def test_comparison_page(runs: dict[str, Path], tmp_path: Path) -> None:
    target = report.write_comparison(list(runs.values()), tmp_path / "compare.html")
    page = Page(target.read_text(encoding="utf-8"))
    assert page.open == []
    assert "3 runs on Cora" in page.words
    assert r"\toprule" in page.words
    assert "†: worse than 'FedProx' (paired sign-flip test" in page.words
    assert "Centralised: one place holds everything" in page.words
    with pytest.raises(ConfigError, match="at least one"):
        report.write_comparison([], tmp_path / "none.html")


def test_data_sets_are_columns_of_the_page(runs: dict[str, Path], tmp_path: Path, sample: ModuleType) -> None:
    other = sample.make_run(tmp_path / "other", data="CiteSeer", rounds=3, seeds=2, partition_hash="sha256:00")
    words = Page(report.write_comparison([runs["fedavg"], other], tmp_path / "c.html").read_text()).words
    assert "Method Cora, % CiteSeer, % " in words
    assert "FedAvg, CiteSeer" in words  # in the figures a method of two data sets is two lines


def test_incomparable_runs_are_warned_about(runs: dict[str, Path], tmp_path: Path, sample: ModuleType) -> None:
    other = sample.make_run(tmp_path / "other", method="fedprox", title="FedProx", rounds=3, seeds=2)
    words = Page(report.write_comparison([runs["fedavg"], other], tmp_path / "c.html").read_text()).words
    assert "The runs are not comparable: seeds differ" in words
    assert "Nothing is bold or marked: the runs are not comparable." in words
