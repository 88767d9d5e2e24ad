"""The page of the cost suite: Markdown for the terminal, and one HTML file with figures that loads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cost import readings
from cost.fit import Growth, Middle
from graphsilo.experiments.storage.disk import write_text
from graphsilo.report import sections as report
from graphsilo.report.formats import data_size, duration, percent
from graphsilo.report.html import page
from graphsilo.report.plot import Axis, Figure, Line, Plot, short
from graphsilo.report.sections import SELF_CONTAINED

FOOTER = "Drawn by benchmarks/suite.py from the results beside this file."
NONE = "–"


@dataclass(frozen=True)
class Table:
    """Columns and rows of text; the first column names the row."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    key: str
    title: str
    text: str
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = field(default_factory=list)


def write(
    tree: Mapping[str, Any], before: Mapping[str, Any] | None, folder: Path, others: Sequence[Section] = ()
) -> Path:
    """Write ``index.md`` and ``index.html``; returns the first.

    Args:
        tree: Results of one state of the code.
        before: Those of an earlier one.
        folder: Where to.
        others: Sections about other benchmarks, which stand behind the own ones.
    """
    sections = [part for part in [*describe(tree, before), *others] if part.tables or part.figures]
    lede = _lede(tree)
    drawn = [report.Section(part.key, part.title, _blocks(part), part.title) for part in sections]
    title = f"Costs at {tree['code']}"
    found = report.Page(title, "graphsilo benchmarks", [("lede", lede)], drawn, f"{FOOTER} {SELF_CONTAINED}")
    write_text(folder / "index.html", page(found))
    written = folder / "index.md"
    write_text(written, markdown(title, lede, sections))
    return written


def _blocks(part: Section) -> list[report.Block]:
    tables = [
        report.Table(table.caption, [(name, "") for name in table.columns], table.rows, is_hidden=not table.caption)
        for table in part.tables
    ]
    figures = report.pair_figures(part.figures[0].group, part.figures) if part.figures else []
    return [("note", part.text), *figures, *(("table", table) for table in tables)]


def describe(tree: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[Section]:
    """All sections, empty ones too."""
    return [_yardstick(tree), *_methods(tree), _growth(tree), _workers(tree), _start(tree), _changes(tree, before)]


def markdown(title: str, lede: str, sections: Sequence[Section]) -> str:
    """The same without figures."""
    lines = [f"# {title}", "", lede, ""]
    for part in sections:
        lines += [f"## {part.title}", "", part.text, ""]
        for table in part.tables:
            lines += [f"{table.caption}", ""] if table.caption else []
            lines.append("| " + " | ".join(table.columns) + " |")
            lines.append("|---" * len(table.columns) + "|")
            lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table.rows]
            lines.append("")
    return "\n".join(lines)


def shown(value: Middle | None, digits: int = 2) -> str:
    """A median with its quartiles: "1.25 (1.21–1.30)"."""
    if value is None:
        return NONE
    text = _number(value.value, digits)
    if value.turns == 1 or value.low == value.high:
        return text
    return f"{text} ({_number(value.low, digits)}–{_number(value.high, digits)})"


def exponent(fit: Growth | None) -> str:
    """ "0.98 ± 0.03, at the end 1.02"."""
    if fit is None:
        return NONE
    error = "" if fit.error is None else f" ± {fit.error:.2f}"
    return f"{fit.exponent:.2f}{error}, at the end {fit.last:.2f}"


def _number(value: float, digits: int) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.{digits}f}"


def _lede(tree: Mapping[str, Any]) -> str:
    found = tree["machine"]
    versions = ", ".join(f"{name} {found[name]}" for name in ("python", "torch", "numpy", "scipy"))
    return (
        f"{found['cpu']}, {found['cores']} cores, {data_size(found['memory_bytes'])}; {versions}; load average "
        f"{', '.join(map(str, found['load_average']))} at the end; {tree['time']}. One thread per process. Numbers are "
        f"medians over turns, quartiles in brackets."
    )


def _yardstick(tree: Mapping[str, Any]) -> Section:
    rows = [
        [
            row.title,
            shown(row.ratio),
            duration(row.facts["ours"]),
            duration(row.facts["theirs"]),
            f"{percent(row.facts['our_score'])} %",
            f"{percent(row.facts['their_score'])} %",
        ]
        for row in readings.yardstick(tree)
    ]
    columns = ["Data", "Ratio", "Our CPU", "Its CPU", "Our accuracy", "Its accuracy"]
    return Section(
        "yardstick",
        "FedAvg beside the yardstick",
        "100 rounds of FedAvg with everything that a round does (codec, ledger, evaluation) over the yardstick's CPU "
        "seconds for the same schedule on the same cut. The yardstick is hand-written for this one task.",
        [Table(columns, rows)] if rows else [],
    )


def _methods(tree: Mapping[str, Any]) -> list[Section]:
    rows = readings.methods(tree)
    sections = []
    for data in dict.fromkeys(row.data for row in rows):
        ratios, costs, refused = [], [], []
        for row in sorted((row for row in rows if row.data == data), key=lambda row: row.method):
            if row.trouble:
                refused.append([row.method, row.trouble])
                continue
            ratios.append(
                [
                    row.method,
                    row.model,
                    *(shown(row.ratios[name]) for name in ("set_up", "round", "evaluation", "memory")),
                    NONE if row.codec is None else f"{percent(row.codec.value)} %",
                    f"{percent(row.score)} %",
                ]
            )
            costs.append(
                [
                    row.method,
                    *(duration(row.cpu[name].value) for name in ("set_up", "round", "evaluation")),
                    *(duration(row.wall[name].value) for name in ("set_up", "round", "evaluation")),
                    data_size(None if row.memory is None else row.memory.value),
                    *(data_size(row.bytes[name]) for name in ("setup_up", "setup_down", "up", "down")),
                ]
            )
        tables = []
        if ratios:
            tables.append(
                Table(
                    ["Method", "Model", "Set-up", "Round", "Evaluation", "Memory", "Codec", "Accuracy"],
                    ratios,
                    "As multiples of one FedAvg round with its evaluation, CPU seconds; memory over FedAvg's. Accuracy "
                    "only says that it learns: there are few rounds.",
                )
            )
            tables.append(
                Table(
                    [
                        "Method",
                        "Set-up, CPU",
                        "Round, CPU",
                        "Evaluation, CPU",
                        "Set-up, clock",
                        "Round, clock",
                        "Evaluation, clock",
                        "Memory",
                        "Up, set-up",
                        "Down, set-up",
                        "Up per round",
                        "Down per round",
                    ],
                    costs,
                    "As measured; bytes are those of all clients together.",
                )
            )
        if refused:
            tables.append(Table(["Method", "Why not"], refused, "Not measured."))
        sections.append(
            Section(
                f"methods-{''.join(sign if sign.isalnum() else '-' for sign in data.lower())}",
                f"Methods on {data}",
                "A round's numbers are those behind the first, which fills caches, and leave out its evaluation. Each "
                "method runs its paper's model; long stages are cut short as benchmarks/cost/settings.yaml says.",
                tables,
            )
        )
    return sections


def _growth(tree: Mapping[str, Any]) -> Section:
    curves = readings.curves(tree)
    figures, tables = [], []
    for axis in dict.fromkeys(curve.axis for curve in curves):
        mine = [curve for curve in curves if curve.axis == axis]
        plots: dict[str, Plot] = {}
        for name, title in readings.QUANTITIES.items():
            lines = [
                Line(curve.method, curve.sizes, [short(cost) for cost in curve.costs[name]], place, place // 8)
                for place, curve in enumerate(mine)
                if min(curve.costs.get(name, [0])) > 0
            ]
            if lines:
                x = Axis(mine[0].title[:1].upper() + mine[0].title[1:], log=True)
                plots[name] = Plot(x, Axis(title, log=True), tuple(lines))
        if plots:
            plots = {name: plots[name] for name in sorted(plots, key=lambda name: name != "round")}
            figures.append(
                Figure(
                    f"growth-{axis}",
                    f"Along the number of {mine[0].title}; both axes logarithmic.",
                    f"Log-log lines of costs along the number of {mine[0].title}",
                    360,
                    plots,
                    "growth",
                )
            )
        names = [name for name in readings.QUANTITIES if any(name in curve.fits for curve in mine)]
        rows = [
            [curve.method, _range(curve.sizes), *(exponent(curve.fits.get(name)) for name in names),
             "; ".join(f"{size:,.0f}: {why}" for size, why in curve.trouble.items()) or NONE]
            for curve in mine
        ]  # fmt: skip
        tables.append(
            Table(["Method", "From–to", *(name.replace("_", "-").capitalize() for name in names), "Not measured"], rows,
                  f"Exponents along {axis} ({mine[0].title})")
        )  # fmt: skip
    return Section(
        "growth",
        "Growth",
        "Cost ∝ size^exponent: least squares on logarithms with standard error; behind it the slope between the two "
        "largest sizes, where a fixed cost hides least.",
        tables,
        figures,
    )


def _range(sizes: Sequence[float]) -> str:
    return f"{sizes[0]:,.0f}–{sizes[-1]:,.0f}" if sizes else NONE


def _workers(tree: Mapping[str, Any]) -> Section:
    rows = [
        [row.title, shown(row.ratio), f"{row.facts['cpu']:.2f}", f"{row.facts['memory']:.2f}",
         f"{row.facts['setup']:.2f}", f"{row.facts['setup_rounds']:.1f}",
         "yes" if row.facts["same"] else "NO"]
        for row in readings.workers(tree)
    ]  # fmt: skip
    columns = ["Run", "Speed-up", "CPU, ratio", "Memory, ratio", "Set-up, speed-up", "Set-up, rounds", "Same numbers"]
    return Section(
        "workers",
        "Workers",
        "Clock time of a round in one process over that with several: the only number here that needs idle cores. "
        "Memory counts shared pages once, and a torch of its own per process.",
        [Table(columns, rows)] if rows else [],
    )


def _start(tree: Mapping[str, Any]) -> Section:
    rows = [
        [row.title, row.unit, shown(row.ratio), duration(row.facts["cpu"]), duration(row.facts["wall"])]
        for row in readings.start_up(tree)
    ]
    tables = [Table(["Command", "Unit", "Ratio", "CPU", "Clock"], rows)] if rows else []
    for title, modules in tree.get("imports", {}).items():
        tables.append(
            Table(["Module", "Own time"], [[name, f"{milliseconds:.1f} ms"] for name, milliseconds in modules],
                  f"What `{title}` imports, dearest first (clock)")
        )  # fmt: skip
    return Section("start", "Start-up", "CPU seconds from start to end of a process, over those of its unit.", tables)


def _changes(tree: Mapping[str, Any], before: Mapping[str, Any] | None) -> Section:
    if before is None:
        return Section("changes", "Before and after", "")
    found = readings.changes(before, tree)
    rows = [
        [
            change.name,
            shown(change.before),
            shown(change.after),
            NONE if change.factor is None else f"× {change.factor:.2f}",
            "yes" if change.clear else "",
        ]
        for change in found
        if change.clear or change.factor != 1.0
    ]
    count = sum(change.clear for change in found)
    return Section(
        "changes",
        "Before and after",
        f"Against {before['code']} ({before['time']}): {count} of {len(found)} numbers differ by more than their "
        f"quartiles; those that are equal are left out.",
        [Table(["Number", "Before", "After", "Factor", "Clear"], rows)] if rows else [],
    )
