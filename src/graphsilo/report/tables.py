"""Runs side by side: one row per run, mean and deviation over seeds, and what may be said about differences.

Scores are recomputed from the seeds' values, never copied from a summary. Differences are tested seed by seed against
a run chosen beforehand, corrected for the number of comparisons with it; or against the best run of each metric. Which
one that is, the same scores decide, so that all pairs of runs count as compared.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from msgspec import structs

from graphsilo.errors import ConfigError, RunError, nearest
from graphsilo.evaluate.metrics import main_ones, metric_of, ordered
from graphsilo.evaluate.significance import PairedComparison, compare_paired, gap_closed, holm
from graphsilo.experiments.storage.records import BesideScores, Scores, Spent
from graphsilo.report.formats import (
    COST_TITLES,
    COSTS,
    MODES,
    REFERENCES,
    Spread,
    absent_clients,
    cost_texts,
    metric,
    plus_minus,
    references_explained,
    short_hash,
)
from graphsilo.report.record import Run, flatten, load

ALPHA = 0.05
"""Level of the marks, after correction."""

# Settings (or whole sections) in which runs may differ without a word: where and how they ran.
_FREE = ("run", "data.root", "evaluation.models", "evaluation.embeddings")
# A difference in these sections means that different questions were asked.
_SAME = ("task", "data", "partition", "scenario", "perturb")
# Of these, contents are compared, so that a name, path or seed that leads to the same contents is no difference.
_BY_CONTENT = ("data", "partition")
# Within the method's section these are the schedule that compared runs usually share; the rest is the method itself.
_SCHEDULE = ("rounds", "local_epochs", "batch_size", "participation", "optimizer", "lr", "weight_decay")


@dataclass(frozen=True)
class Row:
    """One run, or one reference, of a comparison.

    Attributes:
        label: Distinct within the comparison.
        path: The run's folder; None for a reference.
        scores: Metric to mean and deviation over seeds; None where it was not scored.
        by_seed: Metric to seed to score.
        gap: Share of the gap between local and global that the run closes, by metric.
        spent: What training took, per seed.
    """

    label: str
    path: Path | None
    scores: dict[str, Spread | None]
    by_seed: dict[str, dict[int, float | None]]
    gap: dict[str, float | None]
    seeds: tuple[Any, ...] = ()
    spent: Spent = field(default_factory=Spent)


@dataclass(frozen=True)
class Difference:
    """A row against the reference row of one metric.

    Attributes:
        paired: The comparison seed by seed; differences are this row - the other.
        adjusted_p: The sign-flip test's p after Holm's correction.
        verdict: "better", "worse", "no difference shown" or "too few seeds"; in the sense of the metric, so a lower
            loss is "better".
    """

    paired: PairedComparison
    adjusted_p: float | None
    verdict: str

    @property
    def mark(self) -> str:
        """The sign in tables: † for worse, ‡ for better, nothing where no difference is shown."""
        return {"worse": "†", "better": "‡"}.get(self.verdict, "")


@dataclass(frozen=True)
class Comparison:
    """Runs side by side.

    Attributes:
        metrics: The columns, in order.
        rows: One per run, in the order given.
        references: Local and global training, when the runs agree on them.
        best: Metric to the positions of the rows with the best mean (several when equal).
        against: Metric to the position of the row that the others are tested against.
        is_fixed: Whether that row was chosen beforehand; else it is the best of each metric.
        differences: Metric to one Difference per row; None for the row tested against and where nothing pairs up.
        warnings: Sentences on why the rows may not be comparable.
        notes: Settings in which the runs differ beside the method.
    """

    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    references: tuple[Row, ...]
    best: dict[str, tuple[int, ...]]
    against: dict[str, int]
    is_fixed: bool
    differences: dict[str, tuple[Difference | None, ...]]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    def mark(self, name: str, position: int) -> str:
        """The significance sign of a row's score; empty when there is none."""
        found = self.differences.get(name, ())
        difference = found[position] if position < len(found) else None
        return "" if difference is None else difference.mark

    @property
    def legend(self) -> list[str]:
        """What bold and the signs mean, and what the number of seeds does not allow."""
        sentences = ["Mean ± standard deviation over seeds, percent; bold: best mean."]
        listed = [item for row in self.differences.values() for item in row if item is not None]
        marks = {item.mark for item in listed}
        compared = len(self.rows) - 1 if self.is_fixed else math.comb(len(self.rows), 2)
        what = f"{compared} comparisons" if self.is_fixed else f"all {compared} pairs of runs"
        over = f" over {what}" if compared > 1 else ""
        test = f"paired sign-flip test over seeds, Holm-corrected{over}, p ≤ {ALPHA}"
        fixed = {self.rows[position].label for position in self.against.values()}
        other = f"'{fixed.pop()}'" if self.is_fixed or len(fixed) == 1 else "the best"
        if "†" in marks:
            sentences.append(f"†: worse than {other} ({test}).")
        if "‡" in marks:
            sentences.append(f"‡: better than {other} ({test}).")
        if listed and all(item.verdict == "too few seeds" for item in listed):
            # The least p of n seeds is 2^(1 - n).
            needed = 1 + math.ceil(math.log2(compared / ALPHA))
            fewer = f" ({1 + math.ceil(math.log2((len(self.rows) - 1) / ALPHA))} with a baseline chosen beforehand)"
            sentences.append(
                f"Too few common seeds for any difference to be significant: {len(self.rows)} runs take {needed}"
                f"{'' if self.is_fixed or len(self.rows) < 3 else fewer}."
            )
        elif listed and not marks - {""}:
            sentences.append(f"No difference is significant ({test}).")
        labels = [row.label.partition(" (of ")[0] for row in self.references]
        shown = [key for key, title in REFERENCES.items() if title in labels]
        if any(row.spent.upload_bytes is not None for row in self.rows):
            sentences.append("Sent and received: for training, per seed, without evaluation.")
        return [*sentences, references_explained(shown)] if shown else sentences


def comparison(
    run_dirs: Sequence[Path | str], *, metrics: Sequence[str] | None = None, baseline: str | None = None
) -> Comparison:
    """Read run folders and put them side by side.

    Args:
        run_dirs: The folders, at least one.
        metrics: Test metrics to show; by default those that any run scored, of the usual five (all if none of them).
        baseline: Label or folder name of the run that others are tested against; by default the best of each metric.

    Raises:
        RunError: No folder, or one that cannot be read.
        ConfigError: ``baseline`` names none of the runs, or a metric was scored by none.
    """
    return compare_runs([load(run_dir, with_ledger=False) for run_dir in run_dirs], metrics=metrics, baseline=baseline)


def compare_runs(
    runs: Sequence[Run], *, metrics: Sequence[str] | None = None, baseline: str | None = None
) -> Comparison:
    """``comparison`` of runs already in memory; see there."""
    if not runs:
        raise RunError("at least one run folder was wanted for a comparison, none came: give the folders of the runs.")
    labels = distinct_labels(runs)
    runs, shared = _with_shared_clients(runs, labels)
    names = _metrics(runs, metrics)
    rows = tuple(_row(run, label, names) for run, label in zip(runs, labels, strict=True))
    best = {name: _best(rows, name) for name in names}
    fixed = None if baseline is None else _position(baseline, runs, labels)
    against = {name: places[0] if fixed is None else fixed for name, places in best.items() if places}
    references, reference_warnings = _references(runs, labels, names)
    warnings, notes = _differing(runs, labels)
    if not warnings and not reference_warnings:
        rows = tuple(_with_shared_gap(row, references) for row in rows)
    return Comparison(
        metrics=tuple(names),
        rows=rows,
        references=references,
        best=best,
        against=against,
        is_fixed=fixed is not None,
        differences={name: _differences(rows, name, place, fixed is not None) for name, place in against.items()},
        warnings=tuple(warnings + reference_warnings),
        notes=(*shared, *notes),
    )


def _with_shared_clients(runs: Sequence[Run], labels: Sequence[str]) -> tuple[list[Run], list[str]]:
    """Where runs leave out different clients: scores over those that all of them have, and a sentence that says so.

    A mean over other clients is that of other test items: nothing could be said about its difference.
    """
    absent = [f"without {left}" if (left := absent_clients(run.result.partition)) else "all clients" for run in runs]
    if len(set(absent)) == 1:
        return list(runs), []
    scored = [{row.client for row in seed.clients if row.test.metrics} for run in runs for seed in run.seeds]
    common = set.intersection(*scored)
    text = f"Who takes part differs ({_distinct(labels, absent)})"
    if not common:
        return list(runs), [f"{text}, and no client was scored in all runs: each has the mean over its own."]
    count = f"{len(common)} client{'' if len(common) == 1 else 's'}"
    return [_narrowed(run, common) for run in runs], [
        f"{text}: scores are node-weighted means over the {count} that all runs have."
    ]


def _narrowed(run: Run, clients: set[int]) -> Run:
    """A run with test scores over some of its clients; metrics that no client has by itself are left out."""
    seeds = []
    for seed in run.seeds:
        rows = [row for row in seed.clients if row.client in clients]
        test: dict[str, float | list[float | None] | None] = {}
        for name in run.metrics():
            pairs = [(row.nodes, row.test.numbers.get(name)) for row in rows]
            known = [(size, score) for size, score in pairs if size is not None and score is not None]
            if known:
                test[name] = sum(size * score for size, score in known) / sum(size for size, _ in known)
        seeds.append(structs.replace(seed, test=Scores(test, BesideScores())))
    return replace(run, result=structs.replace(run.result, seeds=seeds))


def to_markdown(table: Comparison, *, digits: int = 1) -> str:
    """The table as GitHub Markdown: signs, differing settings and warnings stand below."""
    header = ["Method", *(metric_of(name).title for name in table.metrics), *COST_TITLES]
    lines = [_markdown_line(header), _markdown_line(["---", *["---:"] * (len(header) - 1)])]
    for row in table.references:
        scores = [plus_minus(row.scores[name], name, digits) for name in table.metrics]
        lines.append(_markdown_line([f"*{_markdown(row.label)}*", *scores, *cost_texts(row.spent)]))
    for position, row in enumerate(table.rows):
        scores = []
        for name in table.metrics:
            text = plus_minus(row.scores[name], name, digits)
            scores.append((f"**{text}**" if position in table.best[name] else text) + table.mark(name, position))
        lines.append(_markdown_line([_markdown(row.label), *scores, *cost_texts(row.spent)]))
    below = [*table.legend, *map(_markdown, table.notes), *(f"Warning: {_markdown(text)}" for text in table.warnings)]
    return "\n".join(lines) + "\n\n" + "\n\n".join(below) + "\n"


def to_latex(table: Comparison, *, digits: int = 1, costs: bool = False) -> str:
    """The table as a LaTeX ``tabular`` in booktabs style (needs ``\\usepackage{booktabs}``).

    Args:
        digits: Decimals of the percentages.
        costs: Adds what was sent and received and the processor time.
    """
    titles = [metric_of(name).title for name in table.metrics] + (list(COST_TITLES) if costs else [])
    above = (*table.legend, *table.notes, *(f"Warning: {text}" for text in table.warnings))
    lines = [f"% {text}" for text in above]
    lines = [line.replace("\n", " ").replace("\r", " ") for line in lines]
    lines.append(f"\\begin{{tabular}}{{l{'r' * len(titles)}}}")
    lines += ["\\toprule", _latex_line(["Method", *map(_latex, titles)]), "\\midrule"]
    for row in table.references:
        cells = [_latex_score(row.scores[name], name, digits) for name in table.metrics]
        lines.append(
            _latex_line(
                [f"\\emph{{{_latex(row.label)}}}", *cells, *(map(_latex, cost_texts(row.spent)) if costs else ())]
            )
        )
    if table.references:
        lines.append("\\midrule")
    for position, row in enumerate(table.rows):
        cells = []
        for name in table.metrics:
            text = _latex_score(row.scores[name], name, digits, bold=position in table.best[name])
            mark = {"†": "$^{\\dagger}$", "‡": "$^{\\ddagger}$"}.get(table.mark(name, position), "")
            cells.append(text + mark)
        lines.append(_latex_line([_latex(row.label), *cells, *(map(_latex, cost_texts(row.spent)) if costs else ())]))
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def to_csv(table: Comparison) -> str:
    """The table for other programs: fractions, bytes and seconds in full precision; empty cells where missing."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    scores = [f"{name}_{part}" for name in table.metrics for part in ("mean", "std", "p")]
    costs = [*(name for _, name, _ in COSTS), "wall_seconds"]
    writer.writerow(["label", "row", "run", "seeds", *scores, *costs, "remarks"])
    said = " ".join([*table.notes, *(f"Warning: {text}" for text in table.warnings)])
    for position, row in [*((None, row) for row in table.references), *enumerate(table.rows)]:
        cells: list[Any] = []
        for name in table.metrics:
            score = row.scores[name]
            listed = table.differences.get(name, ())
            difference = listed[position] if position is not None and position < len(listed) else None
            cells += [None, None] if score is None else [score.mean, score.std]
            cells.append(None if difference is None else difference.adjusted_p)
        kind, where = ("reference", "") if row.path is None else ("run", str(row.path))
        seeds = " ".join(map(str, row.seeds))
        spent = [getattr(row.spent, name) for name in costs]
        # A comment line would be a row of one cell to most readers: what holds of all runs stands in each one's row.
        writer.writerow([row.label, kind, where, seeds, *cells, *spent, said if row.path is not None else ""])
    return file.getvalue()


def distinct_labels(runs: Sequence[Run]) -> list[str]:
    """Method names; where two runs share one, the settings that tell them apart, else the folder's name, is added."""
    titles = [run.result.method.title for run in runs]
    labels = list(titles)
    for title in set(titles):
        group = [position for position, other in enumerate(titles) if other == title]
        if len(group) < 2:
            continue
        flat = [flatten(runs[position].config) for position in group]
        keys = dict.fromkeys(key for settings in flat for key in settings if not _is_free(key))
        telling = [key for key in keys if len({repr(settings.get(key)) for settings in flat}) > 1]
        for position, settings in zip(group, flat, strict=True):
            if 0 < len(telling) <= 2:
                parts = [
                    f"{key.removesuffix('.name').rsplit('.', 1)[-1]} {settings.get(key, 'unset')}" for key in telling
                ]
                labels[position] = f"{title} ({', '.join(parts)})"
            else:
                labels[position] = f"{title} ({runs[position].path.resolve().name})"
    return [label if labels.count(label) == 1 else f"{label} [{place + 1}]" for place, label in enumerate(labels)]


def reference_spread(run: Run, key: str, name: str, scenario: str | None = None) -> Spread | None:
    """A reference's score as the run recorded it; None when it did not."""
    means = run.result.reference_rows.get(key)
    if means is not None and scenario is not None:
        means = (means.beside.scenarios or {}).get(scenario)
    cell = None if means is None else means.metrics.get(name)
    return None if cell is None or cell.mean is None else Spread(cell.mean, cell.std, len(run.seeds))


def _metrics(runs: Sequence[Run], wanted: Sequence[str] | None) -> list[str]:
    scored = ordered(name for run in runs for name in run.metrics())
    if wanted is None:
        return main_ones(scored)
    for name in wanted:
        if name not in scored:
            raise ConfigError(f"a test metric that the runs scored was wanted, got '{name}': {nearest(name, scored)}")
    return list(wanted)


def _position(baseline: str, runs: Sequence[Run], labels: Sequence[str]) -> int:
    for position, (run, label) in enumerate(zip(runs, labels, strict=True)):
        if baseline in (label, run.path.name, str(run.path), run.result.method.name):
            return position
    raise ConfigError(f"the baseline must be one of the compared runs, got '{baseline}': {nearest(baseline, labels)}")


def _row(run: Run, label: str, names: Iterable[str]) -> Row:
    names = list(names)
    return Row(
        label=label,
        path=run.path,
        scores={name: run.spread(name) for name in names},
        by_seed={name: dict(zip(run.seed_names, run.values(name), strict=True)) for name in names},
        gap={name: run.result.gap_closed.get(name) for name in names},
        seeds=tuple(run.seed_names),
        spent=run.result.spent,
    )


def _with_shared_gap(row: Row, references: Sequence[Row]) -> Row:
    """Fill in the share of the gap from the references of another, comparable run."""
    ends = {reference.label: reference.scores for reference in references}
    local, central = (ends.get(REFERENCES[key], {}) for key in ("local", "global"))
    gap = dict(row.gap)
    for name, score in row.scores.items():
        low, high = local.get(name), central.get(name)
        if score is None or low is None or high is None or not metric_of(name).higher_is_better:
            continue
        if gap[name] is None:
            gap[name] = gap_closed(score.mean, low.mean, high.mean)
    return replace(row, gap=gap)


def _best(rows: Sequence[Row], name: str) -> tuple[int, ...]:
    means = {position: score.mean for position, row in enumerate(rows) if (score := row.scores[name]) is not None}
    if not means:
        return ()
    top = (max if metric_of(name).higher_is_better else min)(means.values())
    return tuple(position for position, value in means.items() if value == top)


def _differences(rows: Sequence[Row], name: str, against: int, is_fixed: bool) -> tuple[Difference | None, ...]:
    """Every row against one; where that one is the best, its choice was a look at all pairs, and all are corrected."""
    scored = [position for position, row in enumerate(rows) if row.scores[name] is not None]
    chosen = [
        (one, other) for one, other in combinations(scored, 2) if not is_fixed or against in (one, other)
    ]  # fmt: skip
    # Differences are a row's own score less that of the row it is tested against.
    places = [(other, one) if one == against else (one, other) for one, other in chosen]
    pairs = [compare_paired(rows[one].by_seed[name], rows[other].by_seed[name]) for one, other in places]
    adjusted = holm([pair.sign_flip_p for pair in pairs])
    # Holm multiplies the least p by the number of comparisons: beyond ALPHA, no outcome could have been significant
    least = [pair.smallest_p for pair in pairs if pair.smallest_p is not None]
    hopeless = bool(least) and len(least) * min(least) > ALPHA
    flipped = {} if metric_of(name).higher_is_better else {"better": "worse", "worse": "better"}
    found: list[Difference | None] = [None] * len(rows)
    for (one, other), pair, p in zip(places, pairs, adjusted, strict=True):
        if other == against and pair.seeds:
            verdict = "too few seeds" if hopeless else pair.verdict(ALPHA, adjusted_p=p)
            found[one] = Difference(pair, p, flipped.get(verdict, verdict))
    return tuple(found)


def _references(runs: Sequence[Run], labels: Sequence[str], names: Sequence[str]) -> tuple[tuple[Row, ...], list[str]]:
    rows, warnings = [], []
    for key, title in REFERENCES.items():
        found: dict[str, dict[str, Spread | None]] = {}
        spent: dict[str, Spent] = {}
        for run, label in zip(runs, labels, strict=True):
            scores = {name: reference_spread(run, key, name) for name in names}
            if any(score is not None for score in scores.values()):
                found[label] = scores
                spent[label] = run.result.reference_rows[key].beside.spent or Spent()
        distinct = {
            repr([None if score is None else round(score.mean, 6) for score in s.values()]) for s in found.values()
        }
        if len(distinct) > 1:
            warnings.append(f"The runs disagree on the reference '{key}': each has its own row.")
        shown = found if len(distinct) > 1 else dict(list(found.items())[:1])
        for label, scores in shown.items():
            text = f"{title} (of {label})" if len(distinct) > 1 else title
            gap = dict.fromkeys(names)
            rows.append(Row(label=text, path=None, scores=scores, by_seed={}, gap=gap, spent=spent[label]))
    return tuple(rows), warnings


def _differing(runs: Sequence[Run], labels: Sequence[str]) -> tuple[list[str], list[str]]:
    """Sentences on what makes runs incomparable, and on settings that differ beside the method."""
    if len(runs) < 2:
        return [], []
    warnings, notes, differing = [], [], set()
    # A run that repeats another with other clients has the same clients but for those, wherever their data lies.
    kin = len({run.result.replaces or run.result.fingerprint for run in runs}) == 1
    checks: list[tuple[str, Callable[[Run], Any]]] = [
        *([] if kin else [("data", _data_identity), ("partition", _partition_identity)]),
        ("seeds", lambda run: ", ".join(map(str, sorted(run.seed_names)))),
        ("scenario", lambda run: run.scenario),
    ]
    for what, identity in checks:
        values = [identity(run) for run in runs]
        if len({repr(value) for value in values}) > 1:
            differing.add(what)
            warnings.append(f"The runs are not comparable: {what} differ ({_distinct(labels, values)}).")
    flat = [flatten(run.config) for run in runs]
    for key in dict.fromkeys(key for settings in flat for key in settings):
        section = key.split(".")[0]
        values = [settings.get(key, "unset") for settings in flat]
        if _is_free(key) or len({repr(value) for value in values}) == 1:
            continue
        if section in _BY_CONTENT:
            continue
        if section == "method" and (key.removeprefix("method.") not in _SCHEDULE or "unset" in values):
            continue
        sentence = f"{key} differs ({_distinct(labels, values)})."
        if section not in _SAME:
            notes.append(sentence)
        elif section not in differing:
            warnings.append(f"The runs may not be comparable: {sentence}")
    scored = [MODES.get(run.modes[0], run.modes[0]) for run in runs]
    if len(set(scored)) > 1:
        notes.append(f"Whose model is scored differs ({_distinct(labels, scored)}).")
    if len({run.result.fingerprint for run in runs}) < len(runs):
        notes.append("Some runs have the same fingerprint: the same settings on the same data, run again.")
    return warnings, notes


def _distinct(labels: Sequence[str], values: Sequence[Any]) -> str:
    """``A, B: 10; C: 20``, shortened when there are many values."""
    groups: dict[str, list[str]] = {}
    for label, value in zip(labels, values, strict=True):
        groups.setdefault("not recorded" if value is None else str(value), []).append(label)
    parts = [f"{', '.join(who)}: {value}" for value, who in groups.items()]
    return "; ".join(parts) if len(parts) <= 6 else "; ".join(parts[:6]) + f"; and {len(parts) - 6} more"


def _data_identity(run: Run) -> str:
    data = run.result.data
    counts = f"{data.nodes} nodes, {data.edges} edges, {data.features} features, {data.classes} classes"
    return f"{data.name}, {counts}, hash {short_hash(data.hash)}"


def _partition_identity(run: Run) -> str:
    partition = run.result.partition
    return f"{partition.rule} {partition.clients}, hash {short_hash(partition.hash)}"


def _is_free(key: str) -> bool:
    return key in _FREE or key.split(".")[0] in _FREE


def _markdown(text: str) -> str:
    # A label is text, not markup: `a|b` would open a column, `<b>` a tag
    for sign in "\\|*_`<>[]":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def _markdown_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "–": "--",
    "±": r"$\pm$",
    "\u202f": r"\,",
    "\n": " ",
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _latex_score(score: Spread | None, name: str, digits: int, *, bold: bool = False) -> str:
    if score is None:
        return "--"
    text = metric(score.mean, name, digits)
    text = f"\\textbf{{{text}}}" if bold else text
    return text if score.std is None else f"{text} $\\pm$ {metric(score.std, name, digits)}"


def _latex_line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"
