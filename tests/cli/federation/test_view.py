"""A federation in the terminal: its status as tables, the live view, and lines for a pipe."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphsilo.cli.federation import view as federation_view
from graphsilo.cli.federation.live import draw
from graphsilo.cli.federation.view import age, printable, shorten_path, show_status
from kit.status import FAILED, NOW, RUNNING, Terminal, site, text_of


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    """Ages are counted from the moment that the made-up trees name, however long the tests take."""
    monkeypatch.setattr(federation_view, "time", SimpleNamespace(time=lambda: NOW))


def test_the_status_in_a_pipe(tree, capsys):
    show_status(tree, [FAILED, RUNNING])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "hospitals: serving for 2 h 12 min (process 42), engine NVIDIA FLARE"
    rows = [re.split(r" {2,}", line) for line in lines]
    assert rows[2] == ["site", "silos", "state", "for", "answer", "to it", "from it"]
    assert rows[3] == ["north", "north", "● up", "2 min 05 s", "3.2 s", "13.0 MB", "6.5 MB"]
    assert rows[4][:3] == ["west", "heart, lung", "▶ working"]
    assert rows[5][2] == "✕ lost"
    assert rows[7] == ["job", "state", "round", "best", "took", "left", "results"]
    assert rows[8] == ["0001-local", "✕ failed", "1 min 40 s", "/srv/kit/jobs/0001-local/out"]
    # 10 s a round: 28 rounds of this seed, 40 of the next
    assert rows[9][:4] == ["0002-fedavg", "▶ running", "12/40 of seed 2/3", "50.0 %"]
    assert rows[9][5:] == ["11:20", "/srv/kit/jobs/0002-fedavg/out"]
    assert lines[11:] == ["south: no heartbeat for 60 seconds", "0001-local: 3 clients have to take part, 2 do."]


@pytest.mark.parametrize("width", [70, 80, 100, 200])
def test_the_status_fits_a_terminal(tree, monkeypatch, width):
    tree["sites"][1].update(site="university-of-the-west", silos=["cardiology", "oncology", "surgery"])
    stdout = Terminal()
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    show_status(tree, [FAILED, RUNNING])
    lines = re.sub(r"\x1b\[[0-9;]*m", "", stdout.getvalue()).splitlines()
    assert max(map(len, lines)) <= width
    assert sum("▶ working" in line and "13.0 MB" in line for line in lines) == 1
    assert sum("/srv/kit/jobs/0002-fedavg/out" in line for line in lines) == 1
    assert any("✕ lost" in line for line in lines)
    assert any("cardiology, oncology, surgery" in line for line in lines) == (width == 200)
    assert sum(line.startswith("Results of ") for line in lines) == (0 if width >= 120 else 2)


def test_the_status_of_a_coordinator_that_ended(tree, capsys):
    tree.update(serving=False, at=NOW - 7200.5)
    tree["sites"] = [dict(site("north", "up"), since=NOW - 7202)]
    show_status(tree, [RUNNING])
    out = capsys.readouterr().out
    assert "hospitals: not serving; what follows is 2 h 00 min old" in out
    assert re.search(r"north +● up +1 s", out)
    assert re.search(r"▲ interrupted +12/40 of seed 2/3 +50.0 % +0 s +/srv", out)
    show_status({"serving": False}, [])
    assert capsys.readouterr().out == "Nobody has served this kit yet: start it with `graphsilo serve`.\n"
    show_status({**tree, "serving": True, "sites": [], "job": None}, [])
    assert "No job yet: `graphsilo federation submit CONFIG.yaml`" in capsys.readouterr().out


def test_what_a_site_says_cannot_steer_the_terminal(tree, capsys):
    hostile = "died\n\x1b[2J\x1b]0;title\x07\r\u202e\x9b31m" + "x" * 10_000
    tree["sites"][2].update(note=hostile, site=hostile[:20], silos=[hostile[:20]])
    tree["events"].append({"at": NOW, "text": hostile})
    show_status(tree, [replace(FAILED, error=hostile, out=hostile[:30])])
    shown = capsys.readouterr().out + "\n".join(text_of(draw(tree, None, 100, 30), 100))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown)
    assert "x" * (federation_view.LONGEST_TEXT + 1) not in shown
    assert printable("plain – text ✓") == "plain – text ✓"


def test_ages_and_paths(tmp_path, monkeypatch):
    assert [age(value) for value in (-3, 59.9, 60, 3599, 3600, 86399, 90000)] == [
        "0 s", "59 s", "1 min 00 s", "59 min 59 s", "1 h 00 min", "23 h 59 min", "1 d 1 h",
    ]  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert shorten_path(str(tmp_path / "kit" / "out")) == str(Path("kit", "out"))
    assert shorten_path("/srv/x") == "/srv/x"
