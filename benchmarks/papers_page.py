"""Keeps the numbers of the papers' tables, run again, and draws them for the documentation.

``results/tables.csv`` holds them: mean ± standard deviation in percent, a line for each score of each method. What
``benchmarks/papers.py tables study`` has left is written there; a number that has no result here, or one from fewer
seeds, stays. ``scripts/docs_reference.py`` draws the documentation's tables from that file when the site is built.

    python benchmarks/papers.py tables --priority 3 --rows fairfgl-2.Cora
    python benchmarks/papers_page.py
"""

from __future__ import annotations

import csv
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, TypeAlias

import papers
from children import ROOT

from graphsilo.evaluate.costs import COSTS, COURSE
from graphsilo.evaluate.metrics import metric_of
from graphsilo.experiments.reproduce import coverage as reproduced
from graphsilo.experiments.reproduce import description
from graphsilo.experiments.reproduce.published import NOT_COMPARED
from graphsilo.federation import registry
from graphsilo.report.html import environment, read_asset
from graphsilo.report.plot import Axis, Dots, Figure, Plot, palette

NUMBERS = ROOT / "benchmarks" / "papers" / "results" / "tables.csv"
LEFT = ROOT / "benchmarks" / "papers" / "results" / "left.csv"
"""Why lines have no number: rows, methods, and what became of the last try. Kept by hand."""
OF_SEEDS = ("ours", "other view", "seeds", "CPU s")
"""Numbers of the method as it comes, to which ``seeds`` belongs."""
KEPT = ("published", "ours", "tuned", "other view", "seeds", "CPU s")
"""Numbers that the file has; empty where nothing was measured."""
NUMBER = re.compile(r"(?P<mean>[\d.]+)(?: ± (?P<spread>[\d.]+))?(?P<of> \(.*\))?")
STEPS = (1.0, 3.0, 8.0)
"""Differences in points from which a cell is coloured, more strongly at each."""
SUMMARISED = ("accuracy", "macro f1", "hete f1", "unseen node, accuracy", "missing class, accuracy")
"""Scores whose leads are drawn."""
NOT_FEDERATED = ("FedRidge", "local only", "Standalone", "Local", "all data in one place")
"""Rows that are none of a paper's federated methods, over which it leads."""
CUT_SHORT = (1, 2)
"""Rounds to which tables of one round hold methods that have many."""
WITHIN = 3.0
"""Points between a score and the printed one up to which they agree in the table of what is covered."""
ON_ITS_PAGE = {"FedSage+": "measured on [its page](methods/fedsage_plus.md#measured)"}
"""Papers whose tables another comparison has."""
INKS = (
    ".choice{--ink:var(--md-default-fg-color);--muted:var(--md-default-fg-color--light);"
    "--line:var(--md-default-fg-color--lightest);--card:var(--md-default-bg-color)}"
)
"""The reports' names of colours that are no series', as those of the site."""
NOT_YET = "–"
ONE_SEED = "of these one seed"


Cells: TypeAlias = "dict[str, str]"
"""Numbers of a line by their names in ``KEPT``."""


@dataclass
class Section:
    """One data set of one table.

    Attributes:
        cuts, commits: Of the runs behind it, shortened.
        lines: By method and score.
    """

    cuts: list[str] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    lines: dict[tuple[str, str], Cells] = field(default_factory=dict)

    def over(self, kept: Section) -> Section:
        """This section, and what only the other one knows, or knows from more seeds."""
        both: dict[tuple[str, str], Cells] = {}
        for place, mine in self.lines.items():
            old = kept.lines.get(place, mine)
            fewer = int(mine["seeds"] or 0) < int(old["seeds"] or 0)
            both[place] = {
                name: old[name]
                if not mine[name] or (fewer and name in OF_SEEDS) or _agree(old[name], mine[name])
                else mine[name]
                for name in KEPT
            }
        return Section(
            list(dict.fromkeys([*kept.cuts, *self.cuts])), list(dict.fromkeys([*kept.commits, *self.commits])), both
        )


def main() -> None:
    """Write the file of numbers."""
    every = [run for name in papers.TO_RECORD for run in papers.read(name)[1]]
    # A line of the study that a table has, too, is the table's, where it was run as such
    found: dict[tuple[str, str, str], papers.Run] = {}
    for run in (*every, *papers.read("tables")[1]):
        place = run.row, run.label, run.key
        found[place] = run if place not in found or papers.results([run]) else found[place]
    runs = list(found.values())
    write(NUMBERS, updated(runs, read(NUMBERS)))
    print(f"written: {NUMBERS.relative_to(ROOT)}")


def read(path: Path = NUMBERS) -> dict[str, Section]:
    """What a file of numbers says, by row."""
    found: dict[str, Section] = defaultdict(Section)
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            section = found[line["row"]]
            section.cuts += line["cuts"].split()
            section.commits += line["commits"].split()
            section.lines[line["method"], line["score"]] = {name: line[name] for name in KEPT}
    return dict(found)


def write(path: Path, sections: Mapping[str, Section]) -> None:
    """Write a file of numbers; cuts and commits stand in the first line of their section."""
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["row", "method", "score", *KEPT, "cuts", "commits"])
        for row, section in sections.items():
            noted = [" ".join(section.cuts), " ".join(section.commits)]
            for place, cells in section.lines.items():
                lines.writerow([row, *place, *(cells[name] for name in KEPT), *noted])
                noted = ["", ""]


def updated(runs: list[papers.Run], kept: Mapping[str, Section]) -> dict[str, Section]:
    """The sections of which a score is known that stands in the paper or the study."""
    found = {}
    for row in dict.fromkeys(run.row for run in runs):
        mine = [run for run in runs if run.row == row]
        section = measured(mine).over(kept.get(row, Section()))
        is_table = all(run.file == "tables" for run in mine)
        if any(cells["ours"] and (cells["published"] or not is_table) for cells in section.lines.values()):
            found[row] = section
    return found


def tree() -> dict[str, Any]:
    """The description of the tables."""
    return description.tree("tables")


def page(tree: Mapping[str, Any], sections: Mapping[str, Section]) -> Iterator[str]:
    """The tables in HTML, which can be sorted and coloured, below headings in Markdown."""
    data = {row["id"]: row["data"].partition(" (")[0] for row in description.rows(tree)}
    for entry in tree["tables"]:
        mine = [row for row in data if row.startswith(f"{entry['id']}.") and row in sections]
        if mine:
            yield f"## {entry['title']}\n"
        for row in mine:
            section = sections[row]
            command = f"python benchmarks/papers.py tables --priority 3 --rows {row}"
            yield f"### {data[row]}\n"
            yield f"`{command}`; cuts {', '.join(section.cuts)}; commits {', '.join(section.commits)}.\n"
            lines = [_drawn(*place, cells) for place, cells in section.lines.items()]
            head = "".join(f"<th>{title}</th>" for title in lines[0])
            yield f'<table class="sortable"><thead><tr>{head}</tr></thead><tbody>'
            for line in lines:
                yield f"<tr>{''.join(line.values())}</tr>"
            yield "</tbody></table>\n"


def _drawn(method: str, score: str, cells: Cells) -> dict[str, str]:
    """A line's cells by the titles of their columns."""
    published = "" if _metric(score) in NOT_COMPARED else cells["published"]
    return {
        "method": f"<td>{escape(method)}</td>" if cells["published"] else f"<td><em>{escape(method)}</em></td>",
        "score": f"<td>{score}</td>",
        "published": _cell(cells["published"]),
        "ours": _cell(cells["ours"]),
        "difference": _difference(cells["ours"], published, _metric(score)),
        "tuned": _cell(cells["tuned"]),
        "tuned − published": _difference(cells["tuned"], published, _metric(score)),
        "other view": _cell(cells["other view"]),
        "seeds": f"<td>{cells['seeds'] or NOT_YET}</td>",
        "CPU s": _cell(cells["CPU s"]),
    }


def _metric(shown: str) -> str:
    return shown.replace(" ", "_")


def _is_share(metric: str) -> bool:
    return metric.partition("@")[0] not in {**COSTS, **COURSE}


def _cell(number: str) -> str:
    found = NUMBER.fullmatch(number)
    if found is None:
        return f"<td>{NOT_YET}</td>"
    return f'<td data-value="{float(found["mean"]):.3f}">{_shown(number)}{found["of"] or ""}</td>'


def _shown(number: str) -> str:
    """Mean and standard deviation as they are shown."""
    mean, _, spread = number.partition(" (")[0].partition(" ± ")
    if float(mean) >= 10_000:  # bytes and the like
        return f"{float(mean):,.0f}"
    return f"{float(mean):.1f} ± {float(spread):.1f}" if spread else f"{float(mean):.1f}"


def _difference(ours: str, published: str, metric: str) -> str:
    if not ours or not published:
        return f"<td>{NOT_YET}</td>"
    if not _is_share(metric):
        ratio = number(ours)[0] / number(published)[0]
        return f'<td data-value="{ratio:.3f}">× {ratio:.2g}</td>'
    gap = number(ours)[0] - number(published)[0]
    strength = sum(abs(gap) >= step for step in STEPS)
    colour = f' class="{"above" if gap > 0 else "below"}-{strength}"' if strength else ""
    return f'<td data-value="{gap:.3f}"{colour}>{gap:+.1f}</td>'


def leads(tree: Mapping[str, Any], sections: Mapping[str, Section], paper: str) -> Iterator[str]:
    """How far a paper's own method is above the best other one of its tables, in print and here, as a picture."""
    rows: list[tuple[str, str, list[float | None]]] = []
    for entry in tree["tables"]:
        tables = {_metric(part["path"]).replace("_", " ").replace(".", ", "): part["table"] for part in entry["scores"]}
        for row, section in sections.items():
            if row.startswith(f"{entry['id']}.") and entry["paper"] == paper:
                data, _, setting = row.removeprefix(f"{entry['id']}.").partition(".")
                place = f"{data} {setting.replace('-', ' ')}".strip()
                for score in SUMMARISED:
                    gaps, best = _leads(section, score, paper, own_rounds=_is_cut_short(entry))
                    if gaps[0] is not None and gaps[1] is not None:
                        rows.append((f"{tables[score]}: {place}, {score.removesuffix(' node, accuracy')}", best, gaps))
    marks = []
    for series, name in enumerate(("printed", "here", "here, tuned")):
        points = [(gap, float(place)) for place, (*_, gaps) in enumerate(rows) if (gap := gaps[series]) is not None]
        labels = [best for _, best, _ in rows] if name == "printed" else []
        across, down = [gap for gap, _ in points], [place for _, place in points]
        marks.append(Dots(name, across, down, series, labels=labels, hollow=name == "printed"))
    plot = Plot(Axis("points above the best other method"), Axis(names=tuple(row[0] for row in rows)), tuple(marks))
    words = (f"{name}: {', '.join(f'{gap:+.1f}' for gap in gaps if gap is not None)}" for name, _, gaps in rows)
    label = f"Printed, here, tuned. {'; '.join(words)}"
    yield drawn(Figure(f"leads-{paper}", "", label, 70 + 15 * len(rows), {"": plot}))


def _is_cut_short(entry: Mapping[str, Any]) -> bool:
    said = entry.get("methods", {}).get("FedAvg")
    return isinstance(said, Mapping) and said.get("method.rounds") in CUT_SHORT


def _leads(section: Section, score: str, paper: str, *, own_rounds: bool = False) -> tuple[list[float | None], str]:
    """By how much a paper's method leads in print, here and tuned, and which other method is best here.

    Each method, the paper's own too, counts by the better of its models. The references of FedAvg are among the others
    but where the table gives its methods rounds that these do not have (``own_rounds``).
    """
    found: list[float | None] = []
    best = ""
    printed = {
        name
        for (name, _), cells in section.lines.items()
        if cells["published"] or (name.startswith("FedAvg") and not own_rounds)
    }
    for mine, theirs in (("published", ("published",)), ("ours", ("ours", "other view")), ("tuned", ("tuned",))):
        others = {
            name: max(number(cells[title])[0] for title in theirs if cells[title])
            for (name, shown), cells in section.lines.items()
            if shown == score
            and name in printed - {*NOT_FEDERATED}
            and paper not in name
            and any(cells[t] for t in theirs)
            and (mine == "published" or cells["seeds"] != "1")  # the best of many single seeds is best by chance
        }
        line = section.lines.get((paper, score), {})
        own = [number(line[title])[0] for title in theirs if line.get(title)]
        found.append(max(own) - max(others.values()) if own and others else None)
        best = max(others, key=others.__getitem__) if mine == "ours" and others else best
    return found, best


def drawn(figure: Figure) -> str:
    """A figure in HTML as the reports have it, with its numbers."""
    text = str(environment().get_template("macros.html.j2").module.figure(figure))
    # What the reports' script shows under the pointer, without it
    text = re.sub(r'(<circle[^>]*) data-tip="([^"]*)"([^>]*)/>', r"\1\3><title>\2</title></circle>", text)
    return re.sub(r"\n\s*", "\n", text).strip()


def style() -> str:
    """The reports' style of figures, in the colours of the documentation."""
    rules = re.findall(r"^(?:figure|\.chart|\.choice|\.narrow|@container).*$", read_asset("report.css"), re.MULTILINE)
    dark = palette().replace("@media screen and (prefers-color-scheme:dark){:root{", '[data-md-color-scheme="slate"]{')
    return f"<style>{dark.removesuffix('}')}{INKS}{''.join(rules)}</style>"


def coverage(sections: Mapping[str, Section], of: str = "paper") -> Iterator[str]:
    """How many printed scores of each paper, or ``method``, are measured here and how they stand to the print, and why
    others are not; in Markdown."""
    words = ("measured", ONE_SEED, f"within {WITHIN:g} points", "above", "below", "no data", "no method")
    yield f"| {of} | printed | {' | '.join(words)} | not run, and why |\n|---|{'---:|' * (len(words) + 1)}---|"
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for cell in reproduced.cells():
        name = cell.printed.paper if of == "paper" else _title(cell.printed.method)
        found[name].update(["printed", *_stands(cell, sections)])
    for name, counts in found.items() if of == "paper" else sorted(found.items(), key=lambda pair: pair[0].lower()):
        numbers = [str(counts.pop(word, 0)) for word in ("printed", *words)]
        why = "; ".join(f"{count}: {text}" for text, count in counts.most_common())
        yield f"| {name} | {' | '.join(numbers)} | {why or NOT_YET} |"


@cache
def _title(printed: str) -> str:
    """What a method is called here, whatever a paper calls it; variants are their method."""
    method = description.find_method(tree(), printed)
    listing = registry.listing(method["set"]["method.name"]) if method else None
    return listing.title if listing else printed


def _agree(old: str, new: str) -> bool:
    """Whether numbers are the same but for how what is recorded was rounded."""
    found, again = (NUMBER.fullmatch(text) for text in (old, new))
    if found is None or again is None or found["of"] != again["of"]:
        return old == new
    pairs = zip(found.group("mean", "spread"), again.group("mean", "spread"), strict=True)
    return all(one == other or (one and other and abs(float(one) - float(other)) < 5e-4) for one, other in pairs)


def _stands(cell: reproduced.Cell, sections: Mapping[str, Section]) -> list[str]:
    """The columns of the table of what is covered that count a printed score; of other words, why it was not run."""
    if cell.why:
        is_known = {reproduced.NO_DATA: "no data", description.NO_METHOD: "no method"}
        return [is_known.get(cell.why, cell.why)]
    section = sections.get(cell.row, Section())
    cells = section.lines.get((cell.label, cell.path.replace("_", " ").replace(".", ", ")))
    if cells and cells["ours"]:
        printed = metric_of(cell.printed.metric).factor * cell.printed.mean
        gap = number(cells["ours"])[0] - printed
        near = WITHIN if _is_share(cell.printed.metric) else WITHIN / 100 * printed
        stands = f"within {WITHIN:g} points" if abs(gap) <= near else "above" if gap > 0 else "below"
        return ["measured", stands, *([ONE_SEED] if cells["seeds"] == "1" else [])]
    if description.is_large(cell.printed.data):
        return ["no data"]
    return [ON_ITS_PAGE.get(cell.printed.paper) or _reasons().get((cell.row, cell.label), "not run yet")]


@cache
def _reasons() -> dict[tuple[str, str], str]:
    with LEFT.open(encoding="utf-8", newline="") as file:
        return {(line["row"], line["method"]): line["why"] for line in csv.DictReader(file)}


def number(text: str) -> tuple[float, float]:
    """Mean and standard deviation; no deviation is 0."""
    found = NUMBER.fullmatch(text)
    assert found is not None, text
    return float(found["mean"]), float(found["spread"] or 0.0)


def tuned_seeds(text: str, runs: Sequence[papers.Run]) -> int:
    """How many seeds are behind a tuned number: all of the line's, where it does not say."""
    said = re.search(r"\((\d+) of", text)
    return int(said[1]) if said else len({run.seed for run in runs})


def measured(runs: list[papers.Run]) -> Section:
    """What results there are of one data set of one table."""
    labels = [
        label for label in dict.fromkeys(run.label for run in runs) if not label.endswith((", trials", ", tuned"))
    ]
    section = Section()
    for label in labels:
        of_label = [run for run in runs if run.label == label]
        kept = papers.results(of_label)
        tuned = papers.results([run for run in runs if run.label == f"{label}, tuned"])
        if of_label[0].file != "tables" and not kept and not tuned:
            continue  # a line that no table has
        section.lines.update(lines(of_label, kept, tuned))
        for result in [result for found in (kept, tuned) for trials in found.values() for result in trials]:
            section.cuts.append(result["partition"][:8])
            section.commits.append(result["commit"][:7])
    return section


def lines(runs: list[papers.Run], kept: papers.Trials, tuned: papers.Trials) -> Iterator[tuple[tuple[str, str], Cells]]:
    """A method's numbers for each score that is printed for it; ``runs`` are its seeds."""
    run, seeds = runs[0], len({each.seed for each in runs})
    view = run.scores[0].partition(".")[0]
    reference = all(value is None for value in run.published)
    for index, wanted in enumerate(run.scores):
        published, spread = run.published[index], run.spread[index]
        is_cost = wanted.startswith("cost.")
        if not (is_cost or wanted.startswith(f"{view}.")) or (published is None and (is_cost or not reference)):
            continue
        path = wanted.partition(".")[2]
        other = [name for name in run.scores if name != wanted and name.endswith(f"_local.{path}")]
        ours, best = _values(kept, wanted), _values(tuned, wanted)
        if path in NOT_COMPARED and not ours:
            continue
        cpu = [trials[0]["seed"]["cpu_seconds"] for trials in kept.values()]
        printed = "" if published is None else f"{published:.10g}"
        yield (
            (run.label, path.replace("_", " ").replace(".", ", ")),
            {
                "published": printed if not printed or spread is None else f"{printed} ± {spread:.1f}",
                "ours": _mean(ours),
                "tuned": _mean(best) + (f" ({len(best)} of {seeds})" if 0 < len(best) < seeds else ""),
                "other view": _mean(_values(kept, other[0])) if other else "",
                "seeds": str(len(ours) or ""),
                "CPU s": f"{statistics.fmean(cpu):.3f}" if cpu else "",
            },
        )


def _mean(values: list[float]) -> str:
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4f}{spread}"


def _values(kept: papers.Trials, wanted: str) -> list[float]:
    return [value for trials in kept.values() if (value := papers.score(trials[0], wanted)) is not None]


if __name__ == "__main__":
    main()
