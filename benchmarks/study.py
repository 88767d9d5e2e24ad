"""Which methods are better than training alone, FedAvg and FedRidge, and at what cost: pictures of what was measured.

They read ``results/tables.csv``, which ``papers_page.py`` keeps, and of the runs recorded beside it settings and bytes;
``scripts/docs_reference.py`` puts them on their page when the site is built. Two methods are compared where both have
a score in the same row: the same data, cuts, splits and protocol. Rows of one data set are not independent of each
other, so they count as one: the mean of its rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean, geometric_mean
from typing import Any, TypeAlias

import papers
import papers_page

from graphsilo.evaluate.ranks import Ranking, count_needed, rank
from graphsilo.experiments.spaces import default_spaces
from graphsilo.federation import registry
from graphsilo.report.formats import join_words
from graphsilo.report.plot import Axis, Dots, Figure, Plot

KINDS = {"ours": "default settings", "tuned": "tuned"}
"""Columns of the file of numbers, and what they hold."""
ALONE, AVERAGE, RIDGE = "local", "fedavg", "fedridge"
LEFT_OUT = ("FedAvg, SGD 0.5",)
"""Lines that are a method's name with settings that no paper has."""
REFERENCES = (ALONE, AVERAGE, RIDGE)
FEW = 3
"""Data sets from which a method is drawn."""
FAR = -12.0
"""Points below a reference at which pictures end."""
LEVEL = 0.05
"""Of the tests of ranks."""


@dataclass
class Cell:
    """One method in one row.

    Attributes:
        method: Its name.
        model: What its clients train; empty where there is no network.
        scores: Kind to (mean, standard deviation) of the accuracy, in percent.
        seeds: Kind to the number of seeds: cells of other numbers have other cuts, too.
        cost: "seconds" of CPU time and "bytes" sent both ways, of one run with default settings, by the comparison
            in which they were measured: another machine, or another load, has other seconds.
    """

    method: str
    model: str
    scores: dict[str, tuple[float, float]]
    seeds: dict[str, int] = field(default_factory=dict)
    cost: dict[tuple[str, str], float] = field(default_factory=dict)


Rows: TypeAlias = "dict[str, list[Cell]]"
"""Cells by row; a row's name has its data set behind the first dot."""
Reference: TypeAlias = "Callable[[list[Cell], Cell], Cell | None]"
Gaps: TypeAlias = "dict[str, dict[str, tuple[float, float]]]"
"""Method, data set: points above the reference, and the two standard deviations together."""


# -- what was measured ---------------------------------------------------------------------------------------------


@cache
def measured() -> Rows:
    """All rows of the file of numbers that have an accuracy."""
    runs: dict[tuple[str, str], list[papers.Run]] = defaultdict(list)
    for name in papers.TO_RECORD:
        for run in papers.read(name)[1]:
            runs[run.row, run.label].append(run)
    rows: dict[str, dict[str, Cell]] = defaultdict(dict)
    for row, section in papers_page.read().items():
        for (label, score), numbers in section.lines.items():
            mine = runs.get((row, label))
            if score != "accuracy" or label in LEFT_OUT or mine is None:
                continue
            if mine[0].overrides.get("method.rounds") in papers_page.CUT_SHORT:
                continue  # it says nothing of a method of many rounds
            cell = _cell(mine, numbers)
            one = rows[row].setdefault(mine[0].key, cell)  # the same settings under two names
            one.scores, one.seeds = {**cell.scores, **one.scores}, {**cell.seeds, **one.seeds}
    return {row: known for row, cells in rows.items() if (known := [cell for cell in cells.values() if cell.scores])}


def _cell(runs: Sequence[papers.Run], numbers: Mapping[str, str]) -> Cell:
    name = runs[0].overrides["method.name"]
    scores = {kind: papers_page.number(numbers[kind]) for kind in KINDS if "±" in numbers[kind]}  # of several seeds
    seeds = {"ours": int(numbers["seeds"] or 0), "tuned": papers_page.tuned_seeds(numbers["tuned"], runs)}
    if not default_spaces(name) and "ours" in scores:  # nothing to tune
        scores["tuned"], seeds["tuned"] = scores["ours"], seeds["ours"]
    costs: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs:
        if seed := papers.recorded(run.file).get(run.key, {}).get("seed"):
            costs["seconds", run.file].append(seed["cpu_seconds"])
            if "upload_bytes" in seed:
                costs["bytes", run.file].append(seed["upload_bytes"] + seed["download_bytes"])
    if numbers["CPU s"]:
        costs.setdefault(("seconds", runs[0].file), [float(numbers["CPU s"])])
    return Cell(name, model_of(runs[0].overrides), scores, seeds, {what: fmean(each) for what, each in costs.items()})


def model_of(settings: Mapping[str, Any]) -> str:
    """The network of a run, with what differs from the usual one: that of the row, else its method's own.

    Example:
        >>> model_of({"method.name": "fedsage", "data.name": "Cora"})
        'sage, hidden 64, layers 2'
    """
    listing = registry.listing(settings["method.name"])
    assert listing is not None
    if not listing.backbone:
        return ""
    usual: Mapping[str, Any] = listing.model or {}
    if usual and "name" not in usual:
        usual = usual.get("graph" if settings["data.name"] in ("PROTEINS", "NCI1") else "node", {})
    said = {name.removeprefix("model."): value for name, value in settings.items() if name.startswith("model.")}
    found = {"name": "gcn", "hidden": 64, "layers": 2, **(said if "name" in said else {**usual, **said})}
    hidden = found["hidden"]
    found["hidden"] = hidden[0] if isinstance(hidden, list) and len(hidden) == 1 else hidden
    return ", ".join([found.pop("name"), *(f"{name} {value}" for name, value in sorted(found.items()))])


def alone(row: list[Cell], cell: Cell) -> Cell | None:
    """Training alone with the same network; of a method without one, with the row's."""
    known = [each for each in row if each.method == ALONE]
    same = [each for each in known if each.model == (cell.model or known[0].model)]
    return same[-1] if same else None


def other(name: str) -> Reference:
    """A method by its name."""
    return lambda row, _: next((each for each in reversed(row) if each.method == name), None)


def gaps(rows: Rows, reference: Reference, kind: str) -> Gaps:
    """What each method is above a reference, on each data set where both were measured.

    Args:
        rows: What was measured.
        reference: Finds, in a row, what a cell is held against.
        kind: Of ``KINDS``; both have it.
    """
    found: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for name, row in rows.items():
        for cell in compared(row):
            held = reference(row, cell)
            if held is None or held.method == cell.method or kind not in cell.scores or kind not in held.scores:
                continue
            if cell.seeds.get(kind) == held.seeds.get(kind):
                (mine, spread), (theirs, more) = cell.scores[kind], held.scores[kind]
                found[cell.method][data_of(name)].append((mine - theirs, spread + more))
    return {
        method: {
            data: (fmean(gap), fmean(spread))
            for data, each in sets.items()
            for gap, spread in [zip(*each, strict=True)]
        }
        for method, sets in found.items()
    }


def compared(row: list[Cell]) -> list[Cell]:
    """The methods of a federation, each with the last of its lines; no references."""
    last = {cell.method: cell for cell in row}
    return [cell for name, cell in last.items() if (of := registry.listing(name)) and not of.pooled and not of.alone]


def data_of(row: str) -> str:
    """The data set of a row's name."""
    return row.split(".")[1]


def title(method: str) -> str:
    """As a person reads it."""
    listing = registry.listing(method)
    return listing.title if listing else method


# -- pictures ------------------------------------------------------------------------------------------------------


def against(reference: Reference, name: str, text: str) -> Figure | None:
    """Each method's difference from a reference: its mean over data sets, and from the least to the most.

    Args:
        reference: Finds what a method is held against.
        name: Of the reference.
        text: What the caption says first.
    """
    known = {kind: gaps(measured(), reference, kind) for kind in KINDS}
    marks, said, order = [], [], _order(known)
    far = [name for name in order if any(_mean(sets[name]) < FAR for sets in known.values() if name in sets)]
    order = [name for name in order if name not in far]
    for (kind, heading), series, shift in zip(KINDS.items(), (5, 0), (0.17, -0.17), strict=True):
        mine = {name: sets for name in order if len(sets := known[kind].get(name, {})) >= FEW}
        marks.append(
            Dots(
                heading,
                [_mean(sets) for sets in mine.values()],
                [order.index(name) + shift for name in mine],
                series=series,
                tips=[
                    ", ".join(f"{data} {gap:+.1f}" for data, (gap, _) in sorted(sets.items())) for sets in mine.values()
                ],
                reach=[(max(FAR, min(sets.values())[0]), max(sets.values())[0]) for sets in mine.values()],
            )
        )
        always = [title(name) for name, sets in mine.items() if _counts(sets)[0] == len(sets)]
        everywhere = f" ({join_words(always)} on every data set)" if always else ""
        said.append(
            f"{heading}, {sum(x > 0 for x in marks[-1].x)} of {len(mine)} methods are above it on average{everywhere}"
        )
    if not order:
        return None
    counted = [
        next(sets for found in (known["tuned"], known["ours"]) if len(sets := found.get(each, {})) >= FEW)
        for each in order
    ]
    names = [f"{title(each)}  {':'.join(map(str, _counts(sets)))}" for each, sets in zip(order, counted, strict=True)]
    beyond = f" Not drawn, more than {-FAR:.0f} points below: {join_words(map(title, far))}." if far else ""
    sentence = "; ".join(said)
    caption = f"{text} {sentence[:1].upper()}{sentence[1:]}.{beyond}"
    return _figure(name.replace(" ", "-").lower(), caption, f"Accuracy above {name}, points", names, *marks)


def _figure(name: str, caption: str, axis: str, rows: Sequence[str], *marks: Dots, log: bool = False) -> Figure:
    plot = Plot(Axis(axis, log=log), Axis(names=tuple(rows)), marks)
    return Figure(f"study-{name}", caption, caption, 70 + 22 * len(rows), {"": plot})


def _order(known: Mapping[str, Gaps]) -> list[str]:
    """Methods that were measured on enough data sets, the best first; tuned where they are."""
    means = {name: _mean(sets) for found in known.values() for name, sets in found.items() if len(sets) >= FEW}
    return sorted(means, key=lambda name: -means[name])


def _mean(sets: Mapping[str, tuple[float, float]]) -> float:
    return fmean(gap for gap, _ in sets.values())


def _counts(sets: Mapping[str, tuple[float, float]]) -> list[int]:
    """On how many data sets a method is above, level and below: by more than the two standard deviations together."""
    above, below = (sum(sign * gap > spread for gap, spread in sets.values()) for sign in (1, -1))
    return [above, len(sets) - above - below, below]


def ranked(rows: Rows, kind: str, least: int) -> tuple[list[str], list[str], Ranking]:
    """Methods that were all measured in the same rows of so many data sets, these data sets, and the methods' ranks.

    The references come first, then the methods that were measured on most data sets, as long as there are enough.
    """
    scores: dict[str, dict[str, float]] = defaultdict(dict)
    for name, row in rows.items():
        for cell in [*(each for each in row[:1] if each.method == ALONE), *compared(row)]:
            if kind in cell.scores:
                scores[cell.method][name] = cell.scores[kind][0]
    chosen, shared = [], set(rows)
    for name in sorted(scores, key=lambda name: (name not in REFERENCES, -len({*map(data_of, scores[name])}), name)):
        if len({*map(data_of, shared & scores[name].keys())}) >= least:
            chosen.append(name)
            shared &= scores[name].keys()
    data = sorted({*map(data_of, shared)})
    means = [[fmean(scores[name][row] for row in shared if data_of(row) == each) for each in data] for name in chosen]
    return chosen, data, rank(means, alpha=LEVEL)


def ranks(kind: str, least: int) -> Figure | None:
    """Mean ranks, each with half the critical difference to either side."""
    names, data, found = ranked(measured(), kind, least)
    if found.p is None or found.critical_difference is None:
        return None
    order = sorted(range(len(names)), key=found.means.__getitem__)
    half, means = found.critical_difference / 2, [found.means[place] for place in order]
    test = f"Friedman's p {found.p:.2g} by permutation, Nemenyi's critical difference {2 * half:.1f}, level {LEVEL:g}"
    if found.p > LEVEL or len(data) < count_needed(len(names), alpha=LEVEL):
        text = f"No difference of ranks can be told from chance ({test})"
    else:
        text = f"Methods whose lines do not overlap differ ({test})"
    caption = f"{text}. {len(names)} methods, {KINDS[kind]}, on {len(data)} data sets: {join_words(data)}."
    dots = Dots("", means, range(len(order)), reach=[(max(1.0, mean - half), mean + half) for mean in means])
    return _figure(
        f"ranks-{kind}-{least}", caption, "Mean rank, 1 is best", [title(names[each]) for each in order], dots
    )


def costs() -> Figure | None:
    """Bytes and processor time of each method as multiples of FedAvg's in the same rows."""
    worth = gaps(measured(), alone, "ours")
    order, marks = _order({"ours": worth}), []
    found: dict[str, dict[str, dict[str, list[float]]]] = {"bytes": {}, "seconds": {}}
    for name, row in measured().items():
        base = other(AVERAGE)(row, row[0])
        for cell in compared(row):
            for what, file in cell.cost.keys() & base.cost.keys() if base else ():
                by_data = found[what].setdefault(cell.method, defaultdict(list))
                by_data[data_of(name)].append(cell.cost[what, file] / base.cost[what, file])
    order += sorted(name for name, each in found["seconds"].items() if len(each) >= FEW and name not in order)
    for what, heading, series in (("bytes", "bytes sent", 0), ("seconds", "processor time", 1)):
        times = {
            name: [one for each in found[what][name].values() for one in each] for name in order if name in found[what]
        }
        tips = [f"{len(each)} rows" for each in times.values()]
        marks.append(Dots(heading, [*map(geometric_mean, times.values())], [*map(order.index, times)], series, tips))
    single = {name for name in order if registry.load(name).config().single_answers}
    names = [f"{title(name)}{'*' * (name in single)}  {_adds(worth.get(name, {}))}".rstrip() for name in order]
    caption = (
        "Cost with default settings, in the order of what a method adds to training alone with its network, in points "
        "behind its name; without number where that was not run on three data sets. *: its server needs single answers "
        "of silos, where of the others it can do with sums."
    )
    return _figure("costs", caption, "times FedAvg's", names, *marks, log=True) if order else None


def _adds(sets: Mapping[str, tuple[float, float]]) -> str:
    return f"{round(_mean(sets), 1) + 0.0:+.1f}" if len(sets) >= FEW else ""


PARTS: dict[str, Callable[[], Figure | None]] = {
    "alone": lambda: against(alone, "training alone", "Against training alone with the same model."),
    "against-fedavg": lambda: against(other(AVERAGE), "FedAvg", "Against FedAvg, tuned where the method is."),
    "against-fedridge": lambda: against(other(RIDGE), "FedRidge", "Against FedRidge, which has nothing to tune."),
    "ranks": lambda: ranks("ours", 6),
    "ranks-tuned": lambda: ranks("tuned", 5),
    "costs": costs,
}
"""Pictures by what a page calls them."""


def picture(part: str) -> str:
    """A picture in HTML, with its numbers."""
    found = PARTS[part]()
    return papers_page.drawn(found) if found else "*Too few data sets were measured.*"
