"""What of the papers' tables can be run again: a row for every printed score, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from graphsilo.data.sources import entries
from graphsilo.evaluate.metrics import metric_of
from graphsilo.experiments.reproduce.description import NO_METHOD, find_method, tables, tree, why_not
from graphsilo.experiments.reproduce.published import NOT_COMPARED, Printed, read_scores

NO_DATA = "no such data set here"
NO_DEFINITION = "no definition fits what is printed"


@dataclass(frozen=True)
class Cell:
    """A printed score, and where it is run again.

    Attributes:
        printed: The score.
        row, label, path: Row, line and score that are held against it; empty where there is none.
        why: Why there is none.
    """

    printed: Printed
    row: str = ""
    label: str = ""
    path: str = ""
    why: str = ""


def cells() -> Iterator[Cell]:
    """Every printed score, in the order of the file."""
    rows: dict[Printed, Cell] = {}
    for table in tables():
        for row in table.rows:
            for line in row.lines:
                for path, printed in line.printed.items() if line.is_default else ():
                    rows.setdefault(printed, Cell(printed, row.id, line.label, path))
    for printed in read_scores():
        yield rows.get(printed) or Cell(printed, why=_explain(printed))


def list_left_out(paper: str, number: str | None = None) -> Iterator[str]:
    """What a paper prints, in one of its tables or in all, and is never run: a line for each table and reason."""
    shown: dict[str, list[Cell]] = {}
    for cell in cells():
        if cell.printed.paper == paper and number in (None, cell.printed.table):
            shown.setdefault(cell.printed.table, []).append(cell)
    for table, each in shown.items():
        for why in dict.fromkeys(cell.why for cell in each if cell.why):
            missing, others = ([cell.printed for cell in each if (cell.why == why) is said] for said in (True, False))
            yield f"Table {table}, not run: {_name_left_out(missing, others)} ({why})."


def _name_left_out(missing: Sequence[Printed], others: Sequence[Printed]) -> str:
    """The data sets, methods or metrics, whichever are fewest, that these scores have and no others."""
    found = [f"{len(missing)} scores"]
    for column in ("data", "method", "metric"):
        names, known = ({getattr(each, column): None for each in some} for some in (missing, others))
        if others and names.keys().isdisjoint(known):
            found.append(", ".join(metric_of(name).title if column == "metric" else name for name in names))
    return min(found[1:] or found, key=lambda text: text.count(", "))


def _explain(printed: Printed) -> str:
    """Why no row holds anything against a score; empty where nothing says it."""
    described = tree("tables")
    shown = {"paper": printed.paper, "table": printed.table, "data": printed.data, "metric": printed.metric}
    for each in described["left_out"]:
        if all(shown[name] == value for name, value in each.items() if name != "why"):
            return str(each["why"])
    if entries.find(printed.data) is None:
        return NO_DATA
    method = find_method(described, printed.method)
    if method is None:
        return NO_METHOD
    if printed.metric in NOT_COMPARED:
        return NO_DEFINITION
    for table in _entries(printed):
        if isinstance(said := table.get("methods", {}).get(printed.method), str):
            return said
        if found := why_not({**table["base"], "data.name": printed.data}, method["set"]):
            return found
    return ""


def _entries(printed: Printed) -> list[dict[str, Any]]:
    """The entries of the description that show this table."""
    return _by_table().get((printed.paper, printed.table), [])


@cache
def _by_table() -> dict[tuple[str, str], list[dict[str, Any]]]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in tree("tables")["tables"]:
        for number in dict.fromkeys(part["table"] for part in entry["scores"]):
            found.setdefault((entry["paper"], number), []).append(entry)
    return found
