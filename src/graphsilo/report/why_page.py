"""What the page on single nodes says: shares of their scores, and their neighbourhoods drawn.

It shows rows of the silo's own table, so it is written only where somebody asks for it, beside the data, and is part of
no run's report.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from graphsilo.experiments.storage import disk
from graphsilo.experiments.why import Why
from graphsilo.report.formats import MISSING
from graphsilo.report.html import page
from graphsilo.report.plot import Axis, Dots, Figure, Line, Plot, short
from graphsilo.report.sections import SELF_CONTAINED, Block, Page, Section, Table

SHOWN = 10
"""Columns of a node that are drawn, and nodes around it."""
LISTED = 20
"""Columns of a node, and nodes around it, that stand in tables."""


def write(found: Sequence[Why], out: Path, title: str) -> Path:
    """Write the page; returns the file.

    Raises:
        RunError: It cannot be written.
    """
    disk.write_text(out, page(describe(found, title)))
    return out


def describe(found: Sequence[Why], title: str) -> Page:
    """Everything the page shows."""
    return Page(
        title, "graphsilo why", [("lede", _lede(found))],
        [
            Section(f"node-{place}", f"Node {each.node}", _blocks(each, place), each.node)
            for place, each in enumerate(found)
        ],
        footer=f"This page holds rows of the silo's own table: it stays where these may be seen. {SELF_CONTAINED}",
    )  # fmt: skip


def _lede(found: Sequence[Why]) -> str:
    first = found[0]
    without = any(reason.value is None for each in found for reason in each.reasons[:LISTED])
    lacking = f" {MISSING}: what is taken of several nodes together has no number in the table." if without else ""
    kind = "exact: they add up to the score" if first.is_exact else "integrated gradients, which are approximate"
    return (
        f"Scores by {first.by}, each held against {first.against}. What columns add, and what nodes add, are two ways "
        f"to split the same difference. Shares are {kind}.{lacking}"
    )


def _blocks(found: Why, place: int) -> list[Block]:
    gap = "" if found.is_exact else f" {found.say(found.gap)} is in no share."
    rows = [
        (each.column, _number(each.value), _number(each.usual), found.say(each.share))
        for each in found.reasons[:LISTED]
    ]
    groups: dict[str, list[float]] = {}
    for each in found.reasons[LISTED:]:
        groups.setdefault(source_of(each.column), []).append(each.share)
    for source, shares in sorted(groups.items(), key=lambda each: -abs(sum(each[1]))):
        rows.append((f"{len(shares)} more of {source}", MISSING, MISSING, found.say(sum(shares))))
    columns = [("Column", "wrap"), ("Value", ""), ("Usual here", ""), ("Adds", "")]
    nodes = [(each.node, MISSING if each.links is None else str(each.links), found.say(each.share))
             for each in found.nodes[:LISTED]]  # fmt: skip
    if others := found.nodes[LISTED:]:
        nodes.append((f"{len(others)} others", MISSING, found.say(sum(each.share for each in others))))
    return [
        ("plain", f"{found.title[0].upper()}{found.title[1:]}.{gap}"),
        ("pair", [_bars(found, place), _neighbourhood(found, place)]),
        ("table", Table(f"What columns add to the score of {found.node}", columns, rows)),
        ("table", Table(f"What nodes add to it, {found.node} itself among them",
                        [("Node", "wrap"), ("Links away", ""), ("Adds", "")], nodes)),
    ]  # fmt: skip


def source_of(column: str) -> str:
    """Where a column comes from, in words.

    Example:
        >>> [source_of(name) for name in ("transfer in: amount, sum", "a.age, around it, payment out", "a.age")]
        ['transfer in', 'nodes around it, payment out', 'its own row']
    """
    _, around, relation = column.partition(", around it")
    if around:
        return f"nodes around it{relation}"
    table, apart, _ = column.partition(": ")
    return table if apart else "its own row"


def _number(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.4g}"


def _bars(found: Why, place: int) -> Figure:
    """What the first columns add, from 0."""
    reasons = found.reasons[:SHOWN]
    marks = []
    for name, series, sign in (("adds", 1, 1), ("takes off", 0, -1)):
        those = [(at, each) for at, each in enumerate(reasons) if each.share * sign > 0]
        shares = [short(each.share) for _, each in those]
        tips = [f"{each.column}: {found.say(each.share)}" for _, each in those]
        reach = [(0.0, share) for share in shares]
        if those:
            marks.append(Dots(name, shares, [float(at) for at, _ in those], series, tips, reach))
    names = tuple(_clip(each.column) for each in reasons)
    return Figure(
        f"columns-{place}", "What columns add (right) and take off (left).",
        f"What columns add to the score of node {found.node}", 60 + 30 * len(reasons),
        {"all": Plot(Axis("added to the score"), Axis(names=names), tuple(marks))},
    )  # fmt: skip


def _neighbourhood(found: Why, place: int) -> Figure:
    """The nodes that add most, in rings by how many links away they are."""
    nodes = [each for each in found.nodes if each.links == 0][:1] + [each for each in found.nodes if each.links][:SHOWN]
    rings: dict[int, int] = {}
    where: dict[str, tuple[float, float]] = {}
    counts = {ring: sum(each.links == ring for each in nodes) for ring in {each.links for each in nodes}}
    for each in nodes:
        ring = each.links or 0
        at = rings[ring] = rings.get(ring, -1) + 1
        angle = 2 * math.pi * at / counts[each.links] + 0.6 * ring
        where[each.node] = (short(ring * math.cos(angle)), short(ring * math.sin(angle)))
    ties = [
        Line("", [where[a][0], where[b][0]], [where[a][1], where[b][1]], 5, quiet=True)
        for a, b in found.ties if a in where and b in where
    ]  # fmt: skip
    dots = []
    for name, series, sign in (("adds", 1, 1), ("takes off", 0, -1)):
        those = [each for each in nodes if (each.share >= 0) == (sign > 0)]
        if those:
            x, y = zip(*(where[each.node] for each in those), strict=True)
            tips = [f"{each.node}, {each.links} links away: {found.say(each.share)}" for each in those]
            labels = [f"{_clip(each.node, 20)} {found.say(each.share)}" for each in those]
            dots.append(Dots(name, x, y, series, tips, labels=labels))
    size = max((each.links or 0 for each in nodes), default=1) + 0.5
    axis = Axis(low=-size, high=size)
    return Figure(
        f"around-{place}", "The nodes that add or take off most, around the node itself; a step of an axis is a link.",
        f"The neighbourhood of node {found.node}", 360, {"all": Plot(axis, axis, (*ties, *dots))},
    )  # fmt: skip


def _clip(text: str, most: int = 34) -> str:
    """Without its middle where it is long: names that begin alike often end otherwise."""
    head = (most - 1) // 2
    return text if len(text) <= most else f"{text[:head]}…{text[head + 1 - most :]}"
