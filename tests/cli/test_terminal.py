"""Tables that fit, and plain text in a pipe."""

from __future__ import annotations

import io
import re
import sys

import pytest

from graphsilo.cli import terminal

SHEET = terminal.Sheet("Test", [f"metric {index}" for index in range(8)], [("run", ["99.9 ± 0.1"] * 8, "bold")])


class Screen(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("width", "upright"), [(60, False), (120, True)])
def test_a_sheet_lies_on_its_side_where_it_would_not_fit(monkeypatch, width, upright):
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    terminal.show(SHEET.draw())
    lines = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) == (3 if upright else 10)
    assert screen.getvalue().count("99.9 ± 0.1") == 8


def test_a_pipe_gets_plain_lines(capsys):
    terminal.show(SHEET.draw())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].split()[0] == "run"
    assert not any(line.endswith(" ") for line in lines)
    assert "\x1b" not in "".join(lines)


def test_bars():
    assert terminal.bars([8, 0, 4, 1], 10) == "█·▄▁"
    assert terminal.bars([1, 1, 2, 2], 2) == "▄█"  # two classes share a sign: 2 and 4
    assert terminal.bars([0, 0], 10) == "··"
    assert terminal.bars([], 10) == ""


def test_paragraphs(monkeypatch):
    text = "word " * 40
    assert terminal.paragraph(text, io.StringIO()) == text
    monkeypatch.setenv("COLUMNS", "50")
    filled = terminal.paragraph(text, Screen())
    assert max(map(len, filled.splitlines())) <= 50


@pytest.mark.parametrize("screen", [Screen(), io.StringIO()])
def test_quotes_steer_no_terminal(screen):
    """Names in a folder that somebody handed over: a title, a cleared screen, letters from right to left."""
    told = terminal.paragraph("unknown setting '\x1b]0;x\x07\x1b[2J\x9b2J\u202e'.\nAnd\ton.", screen)
    assert re.sub(r"\s+", " ", told) == "unknown setting '?]0;x??[2J?2J?'. And on."


def test_cells_steer_no_terminal(monkeypatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    grid = terminal.table("Test")
    grid.add_row("Fed\x1b]0;owned\x07Avg")
    terminal.show(grid)
    assert "Fed?]0;owned?Avg" in screen.getvalue()


def test_numbers():
    assert terminal.count(None) == "–"
    assert terminal.count(1234567) == "1234567"
    assert terminal.share(None) == "–"
    assert terminal.share(0.256) == "0.26"
