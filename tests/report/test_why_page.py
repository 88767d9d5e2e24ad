"""The page of single nodes, and the words of the terminal."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from graphsilo.cli.why import describe, number
from graphsilo.experiments.why import Neighbour, Reason, Why
from graphsilo.report.why_page import write

FOUND = Why(
    node="a<7>", of="mule", score=1.0, probability=0.7, base=-1.0,
    reasons=(Reason("turnover", 12_400.0, 310.0, 1.8), Reason("no number", None, None, 0.2)),
    nodes=(Neighbour("a<7>", 0, 1.5), Neighbour("b", 1, 0.5)), ties=(("a<7>", "b"),), gap=0.0,
    by="silo adler's own model", against="the mean of the silo's training nodes",
)  # fmt: skip


def page_text(file: Path) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", file.read_text()).split())


def test_a_section_for_each_node(tmp_path):
    text = write([FOUND, FOUND], tmp_path / "why.html", "Why").read_text()
    assert [f'id="node-{place}"' in text for place in range(3)] == [True, True, False]
    assert "a<7>" not in text
    assert "12,400" in text
    assert "what is taken of several nodes together has no number in the table" in text


def test_what_is_not_listed_is_added_up_by_where_it_comes_from(tmp_path):
    listed = tuple(Reason(f"column {place}", 1.0, 1.0, 1.0) for place in range(20))
    more = (
        Reason("transfer in: amount, sum", None, None, 0.25), Reason("transfer in: amount, mean", None, None, -0.5),
        Reason("a.age, around it, transfer in", None, None, 0.125), Reason("a.age", None, None, 0.0625),
    )  # fmt: skip
    found = replace(FOUND, reasons=listed + more, nodes=tuple(Neighbour(f"shop{n}", 1, 0.5) for n in range(22)))
    text = page_text(write([found], tmp_path / "why.html", "Why"))
    assert "2 more of transfer in – – -0.250 1 more of nodes around it, transfer in – – +0.125" in text
    assert "1 more of its own row – – +0.062" in text
    assert "shop19 1 +0.500 2 others – +1.000" in text


def test_words_of_the_terminal():
    assert describe(FOUND) == (
        "Node a<7>, by silo adler's own model: log-odds of 'mule' +1.000 (probability 0.70); the mean of the silo's "
        "training nodes: -1.000. Columns add up to the difference, and so do nodes."
    )
    assert [number(value) for value in (None, 12_400.0, 0.017241)] == ["", "12,400", "0.01724"]
