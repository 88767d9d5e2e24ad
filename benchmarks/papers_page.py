"""Writes docs/papers-tables.md, the papers' tables run again, from what ``benchmarks/papers.py tables`` has left.

What was measured elsewhere stays: a cell that has no result here keeps what the page says.

    python benchmarks/papers.py tables --priority 3 --rows fairfgl-2.Cora
    python benchmarks/papers_page.py
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TypeAlias

import papers
from children import ROOT

from graphsilo import documents

PAGE = ROOT / "docs" / "papers-tables.md"
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
NOT_YET = "–"
EMPTY = f"<td>{NOT_YET}</td>"
INTRODUCTION = """# The papers' tables, run again

<!-- Written by benchmarks/papers_page.py; change the words there. -->

Each table holds the scores that a paper prints for the methods it compares, and ours on the same data and kind of cut.
The papers' cuts and splits are not known (FedLoG prints class counts for three silos in the closed set on Cora, PubMed
and Computers, and our cuts there are the nearest), so a difference of a point or two is one of cuts, and on classes
that a silo lacks one of many points. *Ours* is the method as it comes, in the view that its paper reports (*other
view*: the common model instead of the clients' own, or the other way round), at the round that validation chose, mean
± standard deviation of three seeds, of which each has a cut and split of its own except in FedLoG's tables. *Tuned* is
the best of eight settings, the same number for every method, chosen by validation on a cut and seed that no score here
comes from; (1 of 3) means that only so many seeds gave a score, as training diverged in the others. Rows in italics
are references and stand in no paper. Click a title to sort; differences are coloured from one point, from three and
from eight. CPU seconds are of one seed; most were measured on an Intel Xeon, some later ones on an AMD EPYC, which
takes about half. From one kind of processor to another scores with GIN on PROTEINS move by up to four points, others
by tenths.

What follows from them: [findings](papers-findings.md).
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
    PAGE.write_text("\n".join(page(tree, runs, kept)), encoding="utf-8")
    print(f"written: {PAGE.relative_to(ROOT)} ({title})")


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
        name = f"<em>{escape(run.label)}</em>" if reference else escape(run.label)
        cpu = [trials[0]["seed"]["cpu_seconds"] for trials in kept.values()]
        yield [
            f"<td>{name}</td>",
            f"<td>{path.replace('_', ' ').replace('.', ', ')}</td>",
            _cell([] if published is None else [published], papers._paper(run, index)),
            _cell(ours),
            _difference(ours, published),
            _cell(best, _of_seeds(best, seeds)),
            _difference(best, published),
            _cell(_values(kept, other[0]) if other else []),
            f"<td>{len(ours)}</td>" if ours else EMPTY,
            _cell(cpu, f"{statistics.fmean(cpu):.1f}" if cpu else NOT_YET),
        ]


def _of_seeds(values: list[float], seeds: int) -> str | None:
    """What a cell says that holds fewer seeds than were to be run."""
    return f"{papers._shown(values)} ({len(values)} of {seeds})" if 0 < len(values) < seeds else None


def _seeds(cells: Cells) -> int:
    count = cells[COLUMNS.index("seeds")]
    return 0 if count == EMPTY else int(count.removeprefix("<td>").removesuffix("</td>"))


def _values(kept: papers.Trials, wanted: str) -> list[float]:
    return [value for trials in kept.values() if (value := papers.score(trials[0], wanted)) is not None]


def _cell(values: list[float], text: str | None = None) -> str:
    if not values:
        return EMPTY
    return f'<td data-value="{statistics.fmean(values):.3f}">{papers._shown(values) if text is None else text}</td>'


def _difference(values: list[float], published: float | None) -> str:
    if not values or published is None:
        return EMPTY
    gap = statistics.fmean(values) - published
    strength = sum(abs(gap) >= step for step in STEPS)
    colour = f' class="{"above" if gap > 0 else "below"}-{strength}"' if strength else ""
    return f'<td data-value="{gap:.3f}"{colour}>{gap:+.1f}</td>'


if __name__ == "__main__":
    main()
