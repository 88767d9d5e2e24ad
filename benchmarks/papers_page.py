"""Writes docs/papers-tables.md, the papers' tables run again, from what ``benchmarks/papers.py tables`` has left.

What was measured elsewhere stays: a cell that has no result here keeps what the page says.

    python benchmarks/papers.py tables --priority 3 --rows fairfgl-2.Cora
    python benchmarks/papers_page.py
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape, unescape
from typing import TypeAlias

import papers
from children import ROOT

from graphsilo import documents
from graphsilo.experiments.reproduce.published import NOT_COMPARED
from graphsilo.federation import registry

PAGE = ROOT / "docs" / "papers-tables.md"
FINDINGS = ROOT / "docs" / "papers-findings.md"
FEDRIDGE, METHODS = "## FedRidge in each", "## Each method over all tables"
"""Headings of the parts of the findings that are written here, each up to the next heading."""
COLUMNS = (
    "method",
    "score",
    "published",
    "ours",
    "difference",
    "tuned",
    "tuned − published",
    "other view",
    "seeds",
    "CPU s",
)
OF_SEEDS = ("ours", "difference", "other view", "seeds", "CPU s")
"""Columns of the method as it comes, to which ``seeds`` belongs."""
STEPS = (1.0, 3.0, 8.0)
"""Differences in points from which a cell is coloured, more strongly at each."""
SUMMARISED = ("accuracy", "macro f1", "hete f1", "unseen node, accuracy", "missing class, accuracy")
"""Scores that the summary of FedRidge has."""
NOT_FEDERATED = ("FedRidge", "local only", "Standalone", "Local", "all data in one place")
"""Rows that are none of a paper's federated methods: FedRidge is not held against them, nor are they counted."""
TITLES = {"Co-Boost": "Co-Boosting", "Moon": "MOON", "Scaffold": "SCAFFOLD"}
"""What some papers call a method, and we do."""
VERDICTS = ("above", "level", "below")
COMPARED = {
    "ours against print": ("ours", "", "published"),
    "ours against training alone": ("ours", "local only", "ours"),
    "ours against FedAvg": ("ours", "FedAvg", "ours"),
    "tuned against print": ("tuned", "", "published"),
    "tuned against FedAvg tuned": ("tuned", "FedAvg", "tuned"),
}
"""Columns of the overview of methods: a column of theirs, and whose (their own: empty) and which it is held against."""
NOT_YET = "–"
EMPTY = f"<td>{NOT_YET}</td>"
INTRODUCTION = """# The papers' tables, run again

<!-- Written by benchmarks/papers_page.py; change the words there. -->

Each table holds the scores that a paper prints for the methods it compares, and ours on the same data and kind of cut.
The papers' cuts and splits are not known (FedLoG prints class counts for three silos in the closed set on Cora, PubMed
and Computers, and our cuts there are the nearest), so a difference of one or two points may come from the cut alone,
and one of many points on classes that a silo lacks. A client here is a silo on the other pages. *Ours* is the method as
it comes, in the view that its printed rows score: the clients' own models, but for GCFL+, FedStar and, except in
FairFGL's tables, FedGTA what the server returns (*other view*: the other of the two), at the round that validation
chose, mean ± standard deviation of three seeds, of which each has a cut and split of its own except in FedLoG's tables.
*Tuned* is the best of eight settings, the same number for every method, chosen by validation on a cut and seed that no
score here comes from; (1 of 3) means that only so many seeds gave a score, as training diverged in the others. A dash
is a run that was not made, or one that diverged in all seeds; which, the findings say. Rows in italics are references
and stand in no paper; those of FedAvg have the optimiser and rate that they name, and a hundred rounds in O-pFGL's
tables of one round, too. Where *FedGTA, GAMLP* has a row, that is its own paper's model and *FedGTA* the GCN, rounds
and view that the printed rows fit ([evidence](methods/fedgta.md#measured)). Hete-Min-F1 is shown, not compared: no
definition fits what is printed. Click a title to sort; differences of at least one, three and eight points are shaded
more and more. CPU seconds are of one seed; most were measured on an Intel Xeon, some later ones on an AMD EPYC, which
takes about half. From one kind of processor to another scores with GIN on PROTEINS move by up to four points, others by
tenths.

What follows from them: [findings](papers-findings.md).
"""
SUMMARY_SAYS = """<!-- Written by benchmarks/papers_page.py; change the words there. -->

One round, no trial of settings, on the same cuts, own models. Beside it the best federated score, tuned or not, FedAvg
with SGD of 0.5 and common models included, and a GCN alone; whose it is, spreads and the published ones are in
[the tables](papers-tables.md). *Level* is a difference to that best score that is no larger than the two standard
deviations together. FedRidge's scores but those of FedPG VIII are from before a silo could take its own rows alone,
which moves them by at most 0.2 in accuracy and 1.1 in macro-F1 on the cuts that were measured again, on chameleon by
+1.5 and +0.6.
"""
METHODS_SAY = """<!-- Written by benchmarks/papers_page.py; change the words there. -->

Over all cells that a table prints for a method, accuracy and the other scores but AUC and Hete-Min-F1: how many of ours
are above / level with / below the printed score, training alone, and FedAvg of the same table; and how many tuned ones
are above / level with / below print and FedAvg tuned. *Level* is a difference that is no larger than the two standard
deviations together (where a paper prints none, than ours). This is an overview, no test: tables share cuts, and a
table's scores depend on each other.
"""


Cells: TypeAlias = "list[str]"
"""A line of a table: each cell with its tags."""


@dataclass
class Section:
    """One data set of one table: what the page says of it, or what is added to it.

    Attributes:
        cuts, commits: Of the runs behind it, shortened.
        lines: By method as shown and score.
    """

    cuts: list[str] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    lines: dict[tuple[str, str], Cells] = field(default_factory=dict)

    def over(self, kept: Section) -> Section:
        """This section, and what only the other one knows, or knows from more seeds."""
        both: dict[tuple[str, str], Cells] = {}
        for place, mine in self.lines.items():
            old = kept.lines.get(place, mine)
            fewer = _seeds(mine) < _seeds(old)
            both[place] = [
                before if now == EMPTY or (fewer and title in OF_SEEDS) else now
                for title, now, before in zip(COLUMNS, mine, old, strict=True)
            ]
        return Section(
            list(dict.fromkeys([*kept.cuts, *self.cuts])), list(dict.fromkeys([*kept.commits, *self.commits])), both
        )


def main() -> None:
    """Write the page."""
    title, runs = papers.read("tables")
    tree = documents.read(papers.FILES["tables"], "the description of rows", references=500)
    kept = read(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    text = "\n".join(page(tree, runs, kept))
    PAGE.write_text(text, encoding="utf-8")
    findings = FINDINGS.read_text(encoding="utf-8")
    sections = read(text)
    for heading, part in ((FEDRIDGE, fedridge(tree, sections)), (METHODS, of_methods(sections))):
        before, _, rest = findings.partition(f"{heading}\n")
        after = rest[rest.index("\n## ") :]
        findings = "\n".join([f"{before}{heading}\n", *part]) + f"\n{after}"
    FINDINGS.write_text(findings, encoding="utf-8")
    print(f"written: {PAGE.relative_to(ROOT)} ({title}), {FINDINGS.relative_to(ROOT)} (two parts)")


def read(text: str) -> dict[str, Section]:
    """What a page says, by row."""
    found: dict[str, Section] = {}
    for line in text.splitlines():
        if of_row := re.match(r"`python .* --rows (\S+)`; cuts (.*); commits (.*)\.$", line):
            row, *noted = of_row.groups()
            found[row] = Section(*[names.split(", ") for names in noted])
        elif line.startswith("<tr><td>"):
            cells = re.findall(r"<td.*?</td>", line)
            found[row].lines[cells[0], cells[1]] = cells
    return found


def page(tree: dict[str, object], runs: list[papers.Run], kept: Mapping[str, Section]) -> Iterator[str]:
    """The page in Markdown, its tables in HTML, which can be sorted and coloured."""
    yield INTRODUCTION
    for entry in tree["tables"]:  # type: ignore[attr-defined]
        mine = [run for run in runs if run.row.startswith(f"{entry['id']}.")]
        parts = [
            list(drawn([run for run in mine if run.row == row], kept.get(row, Section())))
            for row in dict.fromkeys(run.row for run in mine)
        ]
        if any(parts):
            yield f"## {entry['title']}\n"
            for part in parts:
                yield from part


def fedridge(tree: dict[str, object], sections: Mapping[str, Section]) -> Iterator[str]:
    """FedRidge's score on each data set of each table, beside the best others, in Markdown."""
    yield SUMMARY_SAYS
    yield "| table | scores | FedRidge | best other | alone | FedRidge is |\n|---|---|---|---|---|---|"
    found: list[str] = []
    for entry in tree["tables"]:  # type: ignore[attr-defined]
        numbers = ", ".join(sorted({str(part["table"]) for part in entry["scores"]}))
        for row, section in sections.items():
            if row.startswith(f"{entry['id']}."):
                data, _, setting = row.removeprefix(f"{entry['id']}.").partition(".")
                place = ", ".join(filter(None, [f"{entry['paper']} {numbers}", data, setting.replace("-", " ")]))
                known = {score: line for score in SUMMARISED if (line := _beside(section, score)) is not None}
                found += [line[-1] for line in known.values()]
                if known:
                    cells = [", ".join(column) for column in zip(*known.values(), strict=True)]
                    names = ", ".join(score.removesuffix(", accuracy") for score in known)
                    yield f"| {place} | {names} | {' | '.join(cells)} |"
    counts = ", ".join(f"{word} in {found.count(word)}" for word in VERDICTS)
    yield f"\nOf {len(found)} scores it is {counts}. Tables on the same cuts are not independent."


def _beside(section: Section, score: str) -> list[str] | None:
    """A score's part of a line of the summary; None where the paper or FedRidge has no such score."""
    of_score = {_text(name): cells for (name, shown), cells in section.lines.items() if _text(shown) == score}
    known = [
        _number(cell)
        for name, cells in of_score.items()
        for title in ("ours", "other view", "tuned")
        if name not in NOT_FEDERATED and (cell := _column(cells, title)) != EMPTY
    ]
    printed = any(_column(cells, "published") != EMPTY for cells in of_score.values())
    ours = _column(of_score["FedRidge"], "ours") if "FedRidge" in of_score else EMPTY
    if ours == EMPTY or not known or not printed:
        return None
    best = max(known)
    alone = _column(of_score["local only"], "ours")
    return [*(_text(cell).partition(" ")[0] for cell in (ours, f"{best[0]:.1f}", alone)), _verdict(_number(ours), best)]


def of_methods(sections: Mapping[str, Section]) -> Iterator[str]:
    """Each method's cells over all tables, counted by how they stand to others, in Markdown."""
    yield METHODS_SAY
    yield f"| method | {' | '.join(COMPARED)} |\n|---|{'---|' * len(COMPARED)}"
    names = {listing.title: listing.name for listing in registry.listings()}
    found: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for section in sections.values():
        lines = {(_text(name), _text(score)): cells for (name, score), cells in section.lines.items()}
        for (label, score), cells in lines.items():
            title = TITLES.get(label, label)
            metric = score.replace(" ", "_")
            if metric in ("auc", *NOT_COMPARED) or label in NOT_FEDERATED or title not in names:
                continue
            for heading, (mine, other, theirs) in COMPARED.items():
                beside = lines.get((other or label, score))
                pair = (_column(cells, mine), EMPTY if beside is None else _column(beside, theirs))
                if EMPTY not in pair and title != other:
                    found[title][heading][_verdict(*map(_number, pair))] += 1
    for title in sorted(found, key=str.casefold):
        shown = [
            " / ".join(str(counts[word]) for word in VERDICTS) if (counts := found[title][heading]) else NOT_YET
            for heading in COMPARED
        ]
        yield f"| [{title}](methods/{names[title]}.md) | {' | '.join(shown)} |"


def _verdict(mine: tuple[float, float], other: tuple[float, float]) -> str:
    """How a mean and deviation stand to others: level within the two deviations together."""
    gap = mine[0] - other[0]
    return "level" if abs(gap) <= mine[1] + other[1] else "above" if gap > 0 else "below"


def _column(cells: Cells, title: str) -> str:
    return cells[COLUMNS.index(title)]


def _text(cell: str) -> str:
    return unescape(re.sub("<[^>]*>", "", cell))


def _number(cell: str) -> tuple[float, float]:
    """Mean and standard deviation of a cell, as exactly as the page has them; no deviation is 0."""
    exact = {name: float(value) for name, value in re.findall(r'data-(value|spread)="([^"]*)"', cell)}
    mean, _, spread = _text(cell).partition(" ± ")
    shown = float(mean.partition(" ")[0]), float(spread.partition(" ")[0] or 0.0)
    return exact.get("value", shown[0]), exact.get("spread", shown[1])


def drawn(runs: list[papers.Run], kept: Section) -> Iterator[str]:
    """One data set of one table; nothing where nothing was run."""
    shown = measured(runs).over(kept)
    if not shown.cuts:
        return
    yield f"### {runs[0].data.partition(' (')[0]}\n"
    command = f"python benchmarks/papers.py tables --priority 3 --rows {runs[0].row}"
    yield f"`{command}`; cuts {', '.join(shown.cuts)}; commits {', '.join(shown.commits)}.\n"
    yield (
        '<table class="sortable"><thead><tr>'
        + "".join(f"<th>{title}</th>" for title in COLUMNS)
        + "</tr></thead><tbody>"
    )
    for cells in shown.lines.values():
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table>\n"


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
        section.lines.update({(cells[0], cells[1]): cells for cells in lines(of_label, kept, tuned)})
        for result in [result for found in (kept, tuned) for trials in found.values() for result in trials]:
            section.cuts.append(result["partition"][:8])
            section.commits.append(result["commit"][:7])
    return section


def lines(runs: list[papers.Run], kept: papers.Trials, tuned: papers.Trials) -> Iterator[Cells]:
    """A method's cells for each score that is printed for it; ``runs`` are its seeds."""
    run, seeds = runs[0], len({each.seed for each in runs})
    view = run.scores[0].partition(".")[0]
    reference = all(value is None for value in run.published)
    for index, wanted in enumerate(run.scores):
        if not wanted.startswith(f"{view}.") or (run.published[index] is None and not reference):
            continue
        path = wanted.removeprefix(f"{view}.")
        other = [name for name in run.scores if name != wanted and name.endswith(f"_local.{path}")]
        ours, best = _values(kept, wanted), _values(tuned, wanted)
        published = run.published[index]
        gap_to = None if path in NOT_COMPARED else published
        name = f"<em>{escape(run.label)}</em>" if reference else escape(run.label)
        cpu = [trials[0]["seed"]["cpu_seconds"] for trials in kept.values()]
        yield [
            f"<td>{name}</td>",
            f"<td>{path.replace('_', ' ').replace('.', ', ')}</td>",
            _cell([] if published is None else [published], papers._paper(run, index)),
            _cell(ours),
            _difference(ours, gap_to),
            _cell(best, _of_seeds(best, seeds)),
            _difference(best, gap_to),
            _cell(_values(kept, other[0]) if other else []),
            f"<td>{len(ours)}</td>" if ours else EMPTY,
            _cell(cpu, f"{statistics.fmean(cpu):.1f}" if cpu else NOT_YET),
        ]


def _of_seeds(values: list[float], seeds: int) -> str | None:
    """What a cell says that holds fewer seeds than were to be run."""
    return f"{papers._shown(values)} ({len(values)} of {seeds})" if 0 < len(values) < seeds else None


def _seeds(cells: Cells) -> int:
    count = _text(_column(cells, "seeds"))
    return 0 if count == NOT_YET else int(count)


def _values(kept: papers.Trials, wanted: str) -> list[float]:
    return [value for trials in kept.values() if (value := papers.score(trials[0], wanted)) is not None]


def _cell(values: list[float], text: str | None = None) -> str:
    if not values:
        return EMPTY
    shown = papers._shown(values) if text is None else text
    spread = f' data-spread="{statistics.stdev(values):.3f}"' if len(values) > 1 and " ± " in shown else ""
    return f'<td data-value="{statistics.fmean(values):.3f}"{spread}>{shown}</td>'


def _difference(values: list[float], published: float | None) -> str:
    if not values or published is None:
        return EMPTY
    gap = statistics.fmean(values) - published
    strength = sum(abs(gap) >= step for step in STEPS)
    colour = f' class="{"above" if gap > 0 else "below"}-{strength}"' if strength else ""
    return f'<td data-value="{gap:.3f}"{colour}>{gap:+.1f}</td>'


if __name__ == "__main__":
    main()
