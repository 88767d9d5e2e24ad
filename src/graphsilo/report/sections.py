"""What a page is made of: sections of blocks. One template, ``page.html.j2``, lays out every page.

A block is the name of a macro of ``macros.html.j2`` and what it draws; a block with nothing to draw is left out, and so
is a section without blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from markupsafe import Markup

from graphsilo.report.plot import Figure, choices

Block: TypeAlias = tuple[str, Any]
SELF_CONTAINED = "Everything on this page is inside this file; it asks no address for anything."
RECOMPUTED = f"Numbers are recomputed from the seeds in each result.json. {SELF_CONTAINED}"
_DRAWN = ("pair", "wide", "figures")
"""Macros that draw figures."""


@dataclass(frozen=True)
class Table:
    """Cells of text under headings; the first cell of a row names it.

    Attributes:
        caption: What it holds.
        columns: Heading and kind of each: "" for numbers, "text", "text wrap"; of the first one "wrap", or "name" for
            names that may be long.
        rows: Cells; ``Markup`` where they hold more than text.
        is_hidden: Whether the caption is for who cannot see the table, since what stands around it says the same.
        pale: Positions of rows to be drawn pale.
    """

    caption: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Any]]
    is_hidden: bool = True
    pale: Collection[int] = ()


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes:
        id: Its address on the page.
        title: Its heading; empty where what it holds needs none.
        blocks: What it shows.
        menu: What the menu at the top calls it; empty where it is not in there.
    """

    id: str
    title: str
    blocks: Sequence[Block]
    menu: str = ""


@dataclass(frozen=True)
class Page:
    """Everything that a page shows.

    Attributes:
        title: Its heading.
        brand: Which of graphsilo's pages it is.
        lede: Paragraphs below the heading: class and text.
        sections: In order.
        footer: What stands at its end.
        notices: Blocks before the first section.
        glossary: Words that are explained on the page; see ``glossary.explain_terms``.
    """

    title: str
    brand: str
    lede: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    footer: str = RECOMPUTED
    notices: Sequence[Block] = ()
    glossary: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def figures(self) -> list[Figure]:
        """All figures, in their order on the page."""
        blocks = (block for section in self.sections for block in section.blocks)
        return [figure for name, drawn in blocks if name in _DRAWN for figure in drawn]


def warn_of(items: Sequence[str]) -> Block:
    """What the reader should know before anything else."""
    return "aside", ("warnings", "Warning" if len(items) == 1 else "Warnings", items) if items else ()


def with_bar(text: str, width: str | None) -> Markup:
    """A cell with a bar below its text, ``width`` percent of its track; None draws none."""
    bar = Markup('<span class="in-cell" aria-hidden="true"><i style="width: {}%"></i></span>')
    return Markup("{}{}").format(text, "" if width is None else bar.format(width))


def code(text: str) -> Markup:
    """A name of a file, a field or a setting."""
    return Markup("<code>{}</code>").format(text)


def pair_figures(group: str, found: Sequence[Figure]) -> list[Block]:
    """Figures of one group, two in a row, and what the reader can choose among in all of them."""
    return [("choose", (group, choices(found)) if found else ()), ("pair", found)]


def add_heading(title: str, blocks: Iterable[Block]) -> list[Block]:
    """Blocks under a heading of their own, which is there only if one of them has something to draw."""
    kept = [block for block in blocks if block[1]]
    return [("heading", title), *kept] if kept else []
