"""How the command line prints: tables that fit the terminal, and the same tables in plain text for a pipe."""

from __future__ import annotations

import contextlib
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

WIDEST_TEXT = 100
UNLIMITED = 100_000
"""Columns of something that is no terminal: a line is as long as it needs to be."""


def is_terminal(stream: IO[str] | None = None) -> bool:
    """Whether somebody looks at the stream (stdout by default)."""
    with contextlib.suppress(AttributeError, ValueError):
        return (stream or sys.stdout).isatty()
    return False


def columns() -> int:
    """Width of the terminal."""
    return shutil.get_terminal_size((80, 24)).columns


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text)


def paragraph(text: str, stream: IO[str]) -> str:
    """The text, filled to the width of a terminal; one line for anything else, which is easier to search.

    Some of it may be quoted from files of others: what steers a terminal becomes a question mark.
    """
    text = _printable(text)
    if not is_terminal(stream):
        return text
    width = max(40, min(columns(), WIDEST_TEXT))
    return "\n".join(
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) for line in text.split("\n")
    )


def add_timestamp(text: str) -> str:
    """A line of a log, with the moment before it."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}"


def console(stream: IO[str] | None = None) -> Console:
    """A rich console for a stream (stdout by default), without guesses about what to colour."""
    from rich.console import Console

    class Clean(Console):
        """Cells may hold names from files of others."""

        def render_str(self, text: str, **how: Any) -> Text:
            return super().render_str(_printable(text), **how)

    target = stream or sys.stdout
    width = None if is_terminal(target) else UNLIMITED
    return Clean(file=target, width=width, highlight=False, emoji=False, markup=False)


def show(*parts: RenderableType) -> None:
    """Print on stdout: as rich draws it on a terminal, without colours and trailing blanks elsewhere."""
    screen = console()
    with screen.capture() as captured:
        for part in parts:
            screen.print(part)
    text = captured.get()
    if not is_terminal():
        text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    sys.stdout.write(text)


def say(text: str = "") -> None:
    """A paragraph on stdout."""
    sys.stdout.write(paragraph(text, sys.stdout) + "\n")


def announce(text: str) -> None:
    """A paragraph on stderr."""
    to_stderr(paragraph(text, sys.stderr))


def to_stderr(line: str) -> None:
    """A line on stderr, at once."""
    print(line, file=sys.stderr, flush=True)


def table(*headings: str, numbers: Sequence[int] = (), narrow: bool = False) -> Table:
    """An empty table in the house's style: a line below the headings on a terminal, bare columns in a pipe.

    Args:
        headings: Of the columns.
        numbers: Which columns hold numbers; these stand right and are never broken.
        narrow: Less room between columns.
    """
    from rich import box
    from rich.table import Table

    seen = is_terminal()
    grid = Table(
        header_style="bold",
        box=box.SIMPLE_HEAD if seen else None,
        padding=(0, 1) if seen and not narrow else (0, 1 if seen else 2, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    for place, heading in enumerate(headings):
        is_number = place in numbers
        grid.add_column(
            heading, justify="right" if is_number else "left", no_wrap=is_number or place == 0, overflow="fold"
        )
    return grid


@dataclass(frozen=True)
class Sheet:
    """A table of numbers that may lie on either side, whichever fits.

    Attributes:
        corner: What its rows are.
        columns: Headings of the numbers.
        rows: Name, cells in the order of the columns, and a rich style.
    """

    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str], str]]

    def draw(self) -> Table:
        """One line per row where that fits into the terminal, else one line per column."""
        upright = self._upright()
        return upright if width_of(upright) <= console().width else self._lying()

    def _upright(self) -> Table:
        grid = table(self.corner, *self.columns, numbers=range(1, len(self.columns) + 1))
        for name, cells, style in self.rows:
            grid.add_row(name, *cells, style=style)
        return grid

    def _lying(self) -> Table:
        from rich.text import Text

        grid = table(self.corner, *(name for name, _, _ in self.rows), numbers=range(1, len(self.rows) + 1))
        for column in grid.columns[1:]:
            column.no_wrap = False
        for place, heading in enumerate(self.columns):
            grid.add_row(heading, *(Text(cells[place], style=style) for _, cells, style in self.rows))
        return grid


def width_of(grid: Table) -> int:
    """Columns of the terminal that a table needs."""
    from rich.measure import Measurement

    screen = console()
    return Measurement.get(screen, screen.options.update(max_width=UNLIMITED), grid).maximum


def bare_table(rows: Iterable[Sequence[RenderableType]], columns: int = 2) -> Table:
    """Cells in columns, without headings or lines."""
    grid = table(*[""] * columns)
    grid.show_header = False
    grid.box = None
    for row in rows:
        grid.add_row(*row)
    return grid


def show_findings(findings: Iterable[Any]) -> None:
    """Print lines of an examination: ``status`` (ok, note or broken) as a mark, ``what`` was looked at, ``text``."""
    from rich.text import Text

    marks = {"ok": ("✓", "green"), "note": ("!", "yellow"), "broken": ("✗", "bold red")}
    show(bare_table(((Text(*marks[finding.status]), finding.what, finding.text) for finding in findings), columns=3))


def bars(counts: Sequence[int], space: int) -> str:
    """A histogram in one line: a bar per class, a dot for a class that is not there.

    Args:
        counts: Per class.
        room: Most characters; neighbouring classes share one where there are more.

    Example:
        >>> bars([8, 0, 4, 1], 10)
        '█·▄▁'
    """
    if len(counts) > space:
        share = -(-len(counts) // space)
        counts = [sum(counts[start : start + share]) for start in range(0, len(counts), share)]
    top = max(counts, default=0)
    steps = "▁▂▃▄▅▆▇█" if _can_show("█") else "12345678"
    empty = "·" if _can_show("·") else "."
    return "".join(steps[max(0, -(-8 * count // top) - 1)] if count else empty for count in counts)


def _can_show(sign: str) -> bool:
    try:
        sign.encode(sys.stdout.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def count(value: Any) -> str:
    """A whole number, its thousands apart where a person looks; a dash where there is none."""
    if value is None:
        return "–"
    return f"{value:,}".replace(",", " ") if is_terminal() else str(value)


def share(value: float | None) -> str:
    """A fraction as it is; a dash where there is none."""
    return "–" if value is None else f"{value:.2f}"
