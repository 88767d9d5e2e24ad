"""How each table of the papers is run again: data and protocol of its rows, and what every method may set.

``tables.yaml`` holds the tables of many methods, ``fedsage_plus.yaml`` those of FedSage+. The benchmarks of a checkout
read the same files, with more seeds, variants and searches than a table prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

from graphsilo import documents
from graphsilo.errors import ConfigError, nearest
from graphsilo.experiments.reproduce.published import NOT_COMPARED, Printed, key, load_scores
from graphsilo.experiments.spaces import default_spaces
from graphsilo.federation import registry

Place: TypeAlias = "tuple[str, str, str, str, int]"
"""Paper, table, data set, setting and number of clients."""


def path(name: str) -> Path:
    """A file of descriptions, or of published scores."""
    return Path(str(resources.files(__package__).joinpath(name)))


@cache
def tree(name: str) -> dict[str, Any]:
    """A description as it is written: ``tables`` or ``fedsage_plus``."""
    found: dict[str, Any] = documents.read(path(f"{name}.yaml"), "the description of rows", references=500)
    return found


@cache
def printed_scores() -> dict[Place, dict[tuple[str, str], Printed]]:
    """The papers' scores: by place, then by method as printed and metric."""
    found: dict[Place, dict[tuple[str, str], Printed]] = {}
    for each in load_scores():
        place = each.paper, each.table, each.data, each.setting, each.clients
        found.setdefault(place, {})[each.method, each.metric] = each
    return found


def rows(described: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of a description: each has ``id``, ``data``, ``base`` and ``runs``; a run its ``label``, what it ``set``s,
    the ``score``s that are shown, and what is ``published`` of them, in percent."""
    if "rows" not in described:
        yield from _rows_of_tables(described)
    for row in described.get("rows", []):
        cells = [
            printed_scores().get((described["paper"], place["table"], *_of(row, place)), {})
            for place in row.get("printed", [])
        ]
        runs = []
        for each in row.get("runs", []):
            found = [score for part in cells if (score := part.get((each.get("paper", ""), "accuracy")))]
            shown = {"published": [_percent(found[0].mean)], "std": [_percent(found[0].std)]} if found else {}
            runs.append({**each, **shown})
        yield {**row, **({"runs": runs} if runs else {})}


def _of(row: Mapping[str, Any], place: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["base"]["data.name"], place["setting"], row["base"]["partition.clients"]


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 6)


def _rows_of_tables(described: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A file of ``tables`` as rows: one per table, data set and setting, with references and the methods it prints.

    A table may set more of a method, or leave it out; its ``variants`` are further lines of a method, by label. Its
    ``scores`` are paths within a view; the published number is held against the view that the method reports first, or
    the one that ``views`` names.
    """
    views = {each.name: [f"{view}_local" for view in each.evaluates] for each in registry.listings()}
    for table in described["tables"]:
        for data in table["data"]:
            for setting, more in (table.get("settings") or {"": {}}).items():
                of_data = table.get("of_data", {})
                base = {
                    **table["base"], "data.name": data, **of_data.get(data, {}), **more,
                    **of_data.get(f"{data}.{setting}", {}),
                }  # fmt: skip
                places = [
                    (table["paper"], part["table"], data, part.get("setting", setting), base["partition.clients"])
                    for part in table["scores"]
                ]
                cells = [printed_scores().get(place, {}) for place in places]
                runs = [dict(each) for each in described["references"]]
                of_table = table.get("methods", {})
                for name in dict.fromkeys(name for part in cells for name, _ in part):
                    if name in described["methods"] and of_table.get(name, {}) is not None:
                        method = described["methods"][name]
                        settings = {**method["set"], **of_table.get(name, {})}
                        spaces = method.get("spaces") or default_spaces(settings["method.name"])
                        runs.append({**method, "spaces": spaces, "label": name, "set": settings, "paper": name})
                        runs += [
                            {**runs[-1], "label": label, "set": {**method["set"], **variant}}
                            for label, variant in table.get("variants", {}).items()
                            if label.partition(", ")[0] == name
                        ]
                for each in runs:
                    shown = views[each["set"]["method.name"]]
                    if view := table.get("views", {}).get(each["label"]):
                        shown = each["modes"] = sorted(shown, key=lambda mode: mode != f"{view}_local")
                    found = [
                        part.get((each.get("paper", ""), score.get("metric", "accuracy")))
                        for part, score in zip(cells, table["scores"], strict=True)
                    ]
                    each["score"] = [f"{view}.{score['path']}" for view in shown for score in table["scores"]]
                    each["published"] = [None if score is None else _percent(score.mean) for score in found]
                    each["std"] = [None if score is None else _percent(score.std) for score in found]
                yield {
                    "id": ".".join(filter(None, [table["id"], data, setting])),
                    "data": f"{data}{setting and f', {setting}'} ({table['title']})",
                    "base": base,
                    "runs": runs,
                    **({"seeds": table["seeds"]} if "seeds" in table else {"splits": [0, 1, 2]}),
                    "priority": table.get("priority", 2),
                    "printed": [
                        {"table": place[1], "setting": place[3], "path": score["path"],
                         "metric": score.get("metric", "accuracy")}
                        for place, score in zip(places, table["scores"], strict=True)
                    ],
                    "minutes": table.get("minutes", {}).get(".".join(filter(None, [data, setting]))),
                }  # fmt: skip


# -- what can be reproduced ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A method in a row of a table.

    Attributes:
        label: As the table names it.
        settings: All that it sets, protocol included.
        paper: The paper's name of it; None for a reference, which no paper prints.
        is_default: Run when no method is named: everything but variants of another line.
        printed: Path of the score to the published one.
    """

    label: str
    settings: dict[str, Any]
    paper: str | None
    is_default: bool
    printed: dict[str, Printed]


@dataclass(frozen=True)
class Row:
    """One column of a table as it is drawn: a data set under one protocol.

    Attributes:
        id: Name of its folder.
        data: The data set.
        base: What all its methods set.
        title: Heading: the data set, and its setting where there are several.
        paths: The scores that are shown: metrics, with the kind of test items before them.
        lines: The methods.
        seeds: Of training.
        own_cuts: Whether each seed draws a cut and split of its own.
        minutes: About what all of it takes on one core; None where nobody measured.
    """

    id: str
    data: str
    base: dict[str, Any]
    title: str
    paths: tuple[str, ...]
    lines: tuple[Line, ...]
    seeds: tuple[int, ...]
    own_cuts: bool
    minutes: float | None

    @property
    def clients(self) -> int:
        """How many."""
        found: int = self.base["partition.clients"]
        return found


@dataclass(frozen=True)
class Table:
    """A table of a paper."""

    paper: str
    number: str
    title: str
    rows: tuple[Row, ...]

    @property
    def protocol(self) -> str:
        """The title without paper and number."""
        return self.title.partition(": ")[2] or self.title

    @property
    def minutes(self) -> float | None:
        """About what all of it takes on one core, of the rows that somebody measured."""
        known = [row.minutes for row in self.rows if row.minutes is not None]
        return sum(known) if known else None


@cache
def tables() -> tuple[Table, ...]:
    """Every table that can be reproduced, in the order of the descriptions."""
    found = []
    for described in (tree("fedsage_plus"), tree("tables")):
        every = list(rows(described))
        for entry in described["tables"]:
            paper = entry.get("paper", described.get("paper"))
            mine = [row for row in every if "rows" in described or row["id"].startswith(f"{entry['id']}.")]
            for number in dict.fromkeys(part["table"] for part in entry["scores"]):
                shown = [row for row in mine if any(part["table"] == number for part in row.get("printed", []))]
                drawn = [_row(paper, number, row, described) for row in shown]
                # A paper may print fewer data sets in one of the tables that are of the same runs
                kept = tuple(row for row in drawn if any(line.printed for line in row.lines))
                found.append(Table(paper, str(number), entry["title"], kept))
    return tuple(found)


def _row(paper: str, number: str, row: Mapping[str, Any], described: Mapping[str, Any]) -> Row:
    parts = [part for part in row["printed"] if part["table"] == number]
    base = {**described.get("base", {}), **row["base"]}
    data, clients = base["data.name"], base["partition.clients"]
    lines: list[Line] = []
    for each in row["runs"]:
        name = each.get("paper")
        cells = {
            part.get("path", "accuracy"): score
            for part in parts
            if part.get("metric") not in NOT_COMPARED
            and (score := printed_scores().get((paper, number, data, part["setting"], clients), {}).get(
                (name or "", part.get("metric", "accuracy"))))
        }  # fmt: skip
        if name and not cells:
            continue  # another table of this paper prints it
        is_variant = name is not None and any(line.paper == name for line in lines)
        modes = {"evaluation.modes": each["modes"]} if "modes" in each else {}
        lines.append(Line(each["label"], {**base, **each.get("set", {}), **modes}, name, not is_variant, cells))
    setting = row["id"].partition(f".{data}.")[2] or ", ".join(
        part["setting"] for part in parts if part["setting"].startswith("batch")
    )
    return Row(
        id=row["id"],
        data=data,
        base=base,
        title=", ".join(filter(None, [data, setting])),
        paths=tuple(dict.fromkeys(part.get("path", "accuracy") for part in parts)),
        lines=tuple(lines),
        seeds=tuple(row.get("splits") or row.get("seeds", [0, 1, 2])),
        own_cuts="splits" in row,
        minutes=row.get("minutes"),
    )


def find_tables(paper: str, number: str | None = None) -> list[Table]:
    """The tables of a paper, or one of them.

    Raises:
        ConfigError: There is no such paper or table.
    """
    papers = dict.fromkeys(table.paper for table in tables())
    mine = [table for table in tables() if key(table.paper) == key(paper)]
    if not mine:
        raise ConfigError(f"a paper whose tables can be reproduced was wanted, got '{paper}': {nearest(paper, papers)}")
    if number is None:
        return mine
    found = [table for table in mine if table.number.lower() == number.lower()]
    if not found:
        numbers = ", ".join(table.number for table in mine)
        raise ConfigError(
            f"a table of {mine[0].paper} was wanted, got '{number}'; those that can be run are {numbers}."
        )
    return found
