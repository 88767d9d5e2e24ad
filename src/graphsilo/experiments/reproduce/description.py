"""How each table of the papers is run again: data and protocol of its rows, and what every method may set.

``tables.yaml`` holds the tables of many methods, ``fedsage_plus.yaml`` those of FedSage+. The benchmarks of a checkout
read the same files, with more seeds, variants and searches than a table prints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

from graphsilo import documents
from graphsilo.data.sources import entries
from graphsilo.errors import ConfigError, nearest
from graphsilo.evaluate.costs import COSTS, COURSE
from graphsilo.evaluate.metrics import metric_of
from graphsilo.experiments.reproduce.published import NOT_COMPARED, Printed, Question, name_view, read_scores
from graphsilo.federation import registry
from graphsilo.federation.registry import plain_name

Place: TypeAlias = "tuple[str, str, str, str, int]"
"""Paper, table, data set, setting and number of clients."""
LARGE = 50_000
"""Graphs with more nodes are run where their data is named."""
NO_METHOD = "no method here has this name"


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
    for each in read_scores():
        place = each.paper, each.table, each.data, each.setting, each.clients
        found.setdefault(place, {})[each.method, each.metric] = each
    return found


def rows(described: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of a description: each has ``id``, ``data``, ``base`` and ``runs``; a run its ``label``, what it ``set``s,
    the ``score``s that are shown, and what is ``published`` of them, in percent where they are shares."""
    if "rows" not in described:
        yield from _rows_of_tables(described)
    for row in described.get("rows", []):
        places = {
            place.get("metric", "accuracy"): (described["paper"], place["table"], *_of(row, place))
            for place in reversed(row.get("printed", []))
        }
        runs = []
        for each in row.get("runs", []):
            found = [
                score
                for metric, place in reversed(places.items())
                if (score := printed_scores().get(place, {}).get((each.get("paper", ""), metric)))
            ]
            shown = {"published": [_mean(score) for score in found], "std": [_std(score) for score in found]}
            runs.append({**each, **(shown if found else {})})
        yield {**row, **({"runs": runs} if runs else {})}


def _of(row: Mapping[str, Any], place: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["base"]["data.name"], place["setting"], row["base"]["partition.clients"]


def _mean(score: Printed | None) -> float | None:
    """As it is printed: in percent where it is a share."""
    return None if score is None else round(metric_of(score.metric).factor * score.mean, 6)


def _std(score: Printed | None) -> float | None:
    return None if score is None or score.std is None else round(metric_of(score.metric).factor * score.std, 6)


def find_method(described: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """What runs under a paper's name of a method: what the description says, else what the registry knows by it; None
    where neither does."""
    if name in described["methods"]:
        return dict(described["methods"][name])
    found = registry.listing(name)
    return None if found is None else {"set": {"method.name": found.name}}


def why_not(base: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Why a method cannot be run in a row, in words; empty where it can.

    Args:
        base: What all methods of the row set.
        settings: What the method sets.
    """
    found = registry.listing(settings["method.name"])
    if found is None:
        return NO_METHOD
    task = base.get("task") or entries.entry(base["data.name"]).task
    if task not in found.tasks:
        return f"{found.title} is not for the task '{task}'"
    if "model.pool" in base and not found.heterogeneous:
        return f"{found.title} takes the same model everywhere"
    return ""


def _rows_of_tables(described: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A file of ``tables`` as rows: one per table, data set and setting, with references and the methods it prints."""
    every: dict[tuple[str, str], dict[str, None]] = {}
    for (paper, number, *_), cells in printed_scores().items():
        every.setdefault((paper, number), {}).update(dict.fromkeys(name for name, _ in cells))
    methods = {name: find_method(described, name) for names in every.values() for name in names}
    for table in described["tables"]:
        of_data = table.get("of_data", {})
        for data in table["data"]:
            for setting, more in (table.get("settings") or {"": {}}).items():
                name = ".".join(filter(None, [data, setting]))
                base = {**table["base"], "data.name": data, **of_data.get(data, {}), **more, **of_data.get(name, {})}
                places = [
                    (table["paper"], part["table"], data, part.get("setting", "{}").replace("{}", setting),
                     base["partition.clients"])
                    for part in table["scores"]
                ]  # fmt: skip
                is_whole = data in table.get("whole", ())
                names = dict.fromkeys(
                    name
                    for place in places
                    for name in (
                        every.get(place[:2], ()) if is_whole else [name for name, _ in printed_scores().get(place, ())]
                    )
                )
                runs = [] if table.get("sweep") else _references(described, base)
                runs += _methods(table, base, {name: methods[name] for name in names})
                for each in runs:
                    _score(each, table, places)
                yield {
                    "id": f"{table['id']}.{name}",
                    "data": f"{data}{setting and f', {setting}'} ({table['title']})",
                    "base": base,
                    "runs": runs,
                    **({"seeds": table["seeds"]} if "seeds" in table else {"splits": [0, 1, 2]}),
                    "priority": 3 if is_large(data) else table.get("priority", 2),
                    "printed": [
                        {"table": place[1], "setting": place[3], "path": score["path"],
                         "metric": score.get("metric", "accuracy")}
                        for place, score in zip(places, table["scores"], strict=True)
                    ],
                    "is_whole": is_whole,
                    "minutes": table.get("minutes", {}).get(name),
                }  # fmt: skip


def _references(described: Mapping[str, Any], base: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [dict(each) for each in described["references"] if not why_not(base, each["set"])]


def _methods(
    table: Mapping[str, Any], base: Mapping[str, Any], known: Mapping[str, dict[str, Any] | None]
) -> Iterator[dict[str, Any]]:
    """A line for each of these methods that can be run in a row, and for its variants."""
    of_data = table.get("methods_on", {}).get(base["data.name"], {})
    for name, method in known.items():
        mine = table.get("methods", {}).get(name, {})
        if method is None or isinstance(mine, str) or why_not(base, method["set"]):
            continue
        settings = {**method["set"], **mine, **of_data.get(name, {})}
        tuned = method.get("tuned", not table.get("sweep"))
        line = {**method, "label": name, "set": settings, "paper": name, "tuned": tuned}
        yield line
        for label, variant in table.get("variants", {}).items():
            if label.partition(", ")[0] == name:
                yield {**line, "label": label, "set": {**method["set"], **variant}}


def _score(line: dict[str, Any], table: Mapping[str, Any], places: Sequence[Place]) -> None:
    """Write into a line which scores it shows, and what is published of them.

    The published number is held against the view that the method reports first, or the one that ``views`` names.
    """
    listing = registry.listing(line["set"]["method.name"])
    assert listing is not None
    shown = [f"{view}_local" for view in listing.evaluates]
    if view := table.get("views", {}).get(line["label"]):
        shown = line["modes"] = sorted(shown, key=lambda mode: mode != f"{view}_local")
    parts = list(zip(places, table["scores"], strict=True))
    scored = [each for each in parts if _is_score(each[1]["path"])]
    costs = [each for each in parts if not _is_score(each[1]["path"])]
    found, paid = (
        [
            printed_scores().get(place, {}).get((line.get("paper", ""), part.get("metric", "accuracy")))
            for place, part in of
        ]
        for of in (scored, costs)
    )
    if costs:
        found += [*[None] * (len(shown) - 1) * len(scored), *paid]
    line["score"] = [f"{view}.{part['path']}" for view in shown for _, part in scored]
    line["score"] += [f"cost.{part['path']}" for _, part in costs]
    line["published"], line["std"] = [_mean(score) for score in found], [_std(score) for score in found]


def _is_score(path: str) -> bool:
    """Whether it says how right a model is; not what a run cost."""
    metric = path.partition("@")[0]
    return metric not in COURSE and metric not in COSTS


def is_large(data: str) -> bool:
    """Whether a data set is run only where it is named: a graph of a size at which a table takes hours."""
    found = entries.entry(data)
    return found.task == "node" and found.nodes > LARGE


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
        is_whole: Whether it stands in the table though published.csv has little or nothing of it.
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
    is_whole: bool = False

    @property
    def clients(self) -> int:
        """How many."""
        found: int = self.base["partition.clients"]
        return found


@dataclass(frozen=True)
class Table:
    """A table of a paper.

    Attributes:
        paper, number, title, rows: As they are named and drawn.
        is_sweep: Whether it varies a method: then no other run is held against it.
    """

    paper: str
    number: str
    title: str
    rows: tuple[Row, ...]
    is_sweep: bool = False

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
                kept = [row for row in drawn if row.is_whole or any(line.printed for line in row.lines)]
                found.append(Table(paper, str(number), entry["title"], _tell_apart(kept), entry.get("sweep", False)))
    return tuple(found)


def _tell_apart(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The same rows, with the number of clients in titles that would be another's, too."""
    titles = Counter(row.title for row in rows)
    return tuple(
        replace(row, title=f"{row.title}, {row.clients} clients") if titles[row.title] > 1 else row for row in rows
    )


@cache
def questions() -> dict[Printed, Question]:
    """What published scores are scores of, where a run of one's own can be held against them."""
    found: dict[Printed, Question] = {}
    for table in tables():
        for row in table.rows if not table.is_sweep else ():
            for line in row.lines:
                if line.paper is not None and line.is_default and registry.listing(line.paper) is not None:
                    for path, score in line.printed.items():
                        if _is_score(path):
                            found.setdefault(score, _question(row, line, path))
    return found


def _question(row: Row, line: Line, path: str) -> Question:
    settings, listing = line.settings, registry.listing(line.settings["method.name"])
    assert listing is not None
    alpha = settings.get("partition.alpha")
    rule = settings["partition.rule"] if alpha is None else f"{settings['partition.rule']} {alpha:g}"
    items, _, metric = path.rpartition(".")
    usual: Mapping[str, Any] = listing.model or {}
    if usual and "name" not in usual:
        usual = usual.get(entries.entry(row.data).task, {})
    model = settings.get("model.pool") or settings.get("model.name", usual.get("name", "gcn"))
    modes = settings.get("evaluation.modes")
    view = name_view(modes[0], listing.evaluates[0]) if modes else ""
    return Question(
        entries.entry(row.data).name, rule, row.clients, settings.get("scenario.name", "seen"), items or None, view,
        metric, listing.name, model or "",
    )  # fmt: skip


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
        if name and not cells and not row.get("is_whole"):
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
        is_whole=row.get("is_whole", False),
    )


def find_tables(paper: str, number: str | None = None) -> list[Table]:
    """The tables of a paper, or one of them.

    Raises:
        ConfigError: There is no such paper or table.
    """
    papers = dict.fromkeys(table.paper for table in tables())
    mine = [table for table in tables() if plain_name(table.paper) == plain_name(paper)]
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
