"""Writes docs/papers-tables.md, the papers' tables run again, from what ``benchmarks/papers.py tables`` has left.

python benchmarks/papers.py tables --priority 3 --rows fairfgl-2.Cora
python benchmarks/papers_page.py
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from html import escape

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
STEPS = (1.0, 3.0, 8.0)
"""Differences in points from which a cell is coloured, more strongly at each."""
NOT_YET = "–"
INTRODUCTION = """# The papers' tables, run again

<!-- Written by benchmarks/papers_page.py; change the words there. -->

Each table holds the scores that a paper prints for the methods it compares, and ours on the same data and kind of
cut. The papers' cuts and splits are not known (but for FedLoG's on Cora, PubMed and Computers), so a difference of a
point or two is one of cuts. *Ours* is the method as it comes, in the view that its paper reports (*other view*: the
common model instead of the clients' own, or the other way round), at the round that validation chose, mean ± standard
deviation of three seeds, of which each has a cut and split of its own except in FedLoG's tables. *Tuned* is the best
of eight settings, the same number for every method, chosen by validation on a cut and seed that no score here comes
from. Rows in italics are references and stand in no paper. Click a title to sort; differences are coloured from one
point, from three and from eight. CPU seconds are of one seed and depend on the machine.

What follows from them: [findings](papers-findings.md).
"""


def main() -> None:
    """Write the page."""
    title, runs = papers.read("tables")
    tree = documents.read(papers.HERE / "papers" / "tables.yaml", "the description of rows", references=500)
    PAGE.write_text("\n".join(page(tree, runs)), encoding="utf-8")
    print(f"written: {PAGE.relative_to(ROOT)} ({title})")


def page(tree: dict[str, object], runs: list[papers.Run]) -> Iterator[str]:
    """The page in Markdown, its tables in HTML, which can be sorted and coloured."""
    yield INTRODUCTION
    for entry in tree["tables"]:  # type: ignore[attr-defined]
        mine = [run for run in runs if run.row.startswith(f"{entry['id']}.")]
        parts = [
            list(section([run for run in mine if run.row == row])) for row in dict.fromkeys(run.row for run in mine)
        ]
        if any(parts):
            yield f"## {entry['title']}\n"
            for part in parts:
                yield from part


def section(runs: list[papers.Run]) -> Iterator[str]:
    """One data set of one table; nothing where nothing was run."""
    labels = [
        label for label in dict.fromkeys(run.label for run in runs) if not label.endswith((", trials", ", tuned"))
    ]
    kept = {label: papers.results([run for run in runs if run.label == label]) for label in labels}
    found = [result for trials in kept.values() for results in trials.values() for result in results]
    if not found:
        return
    cuts = sorted({result["partition"][:8] for result in found})
    commits = list(dict.fromkeys(result["commit"][:7] for result in found))
    yield f"### {runs[0].data.partition(' (')[0]}\n"
    command = f"python benchmarks/papers.py tables --priority 3 --rows {runs[0].row}"
    yield f"`{command}`; cuts {', '.join(cuts)}; commits {', '.join(commits)}.\n"
    yield (
        '<table class="sortable"><thead><tr>'
        + "".join(f"<th>{title}</th>" for title in COLUMNS)
        + "</tr></thead><tbody>"
    )
    for label in labels:
        of_label = [run for run in runs if run.label == label]
        tuned = papers.results([run for run in runs if run.label == f"{label}, tuned"])
        yield from lines(of_label[0], kept[label], tuned)
    yield "</tbody></table>\n"


def lines(run: papers.Run, kept: papers.Trials, tuned: papers.Trials) -> Iterator[str]:
    """A method's row for each score that is printed for it."""
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
        yield (
            "<tr>"
            + "".join(
                [
                    f"<td>{name}</td><td>{path.replace('_', ' ').replace('.', ', ')}</td>",
                    _cell([] if published is None else [published], papers._paper(run, index)),
                    _cell(ours),
                    _difference(ours, published),
                    _cell(best),
                    _difference(best, published),
                    _cell(_values(kept, other[0]) if other else []),
                    f"<td>{len(ours)}</td>",
                    _cell(cpu, f"{statistics.fmean(cpu):.1f}" if cpu else NOT_YET),
                ]
            )
            + "</tr>"
        )


def _values(kept: papers.Trials, wanted: str) -> list[float]:
    return [value for trials in kept.values() if (value := papers.score(trials[0], wanted)) is not None]


def _cell(values: list[float], text: str | None = None) -> str:
    if not values:
        return f"<td>{NOT_YET}</td>"
    return f'<td data-value="{statistics.fmean(values):.3f}">{papers._shown(values) if text is None else text}</td>'


def _difference(values: list[float], published: float | None) -> str:
    if not values or published is None:
        return f"<td>{NOT_YET}</td>"
    gap = statistics.fmean(values) - published
    strength = sum(abs(gap) >= step for step in STEPS)
    colour = f' class="{"above" if gap > 0 else "below"}-{strength}"' if strength else ""
    return f'<td data-value="{gap:.3f}"{colour}>{gap:+.1f}</td>'


if __name__ == "__main__":
    main()
