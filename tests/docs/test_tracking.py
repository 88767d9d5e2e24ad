"""What docs/tracking.md shows runs, and does what the page says."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tracking.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def run(block, folder, monkeypatch):
    monkeypatch.chdir(folder)
    named = {"__name__": "page"}
    exec(block, named)
    return named


def test_files_of_the_first_example(tmp_path, monkeypatch):
    run(BLOCKS[0], tmp_path, monkeypatch)
    rows = list(csv.DictReader((tmp_path / "runs" / "tracked" / "track.csv").open()))
    assert [row["round"] for row in rows] == ["0", "1", "2", "3", "4", "5"]
    assert '"event": "ended"' in (tmp_path / "events.jsonl").read_text(encoding="utf-8")


def test_the_observer_says_who_fell(tmp_path, monkeypatch, capsys):
    run(BLOCKS[1], tmp_path, monkeypatch)
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all(re.fullmatch(r"round \d: client \d fell from 0\.\d\d to 0\.\d\d", line) for line in lines)


@pytest.mark.slow
def test_tables_and_figures(tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    named = run(BLOCKS[2], tmp_path, monkeypatch)
    assert len(named["figure"].axes) == 2
