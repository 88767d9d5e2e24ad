"""The papers' comparisons, run again: our mean and spread beside the published ones. Part of ``make bench``.

Every file in ``benchmarks/papers`` describes one comparison: rows (data and protocol) of runs (method and settings);
so do ``tables`` and ``fedsage_plus`` of the package, from which ``graphsilo reproduce`` draws the papers' tables.
A row's ``seeds`` are seeds of training on one cut; each of its ``splits`` also draws a cut and a split of its own. A
run may name fewer of them.
Each run and seed is one process with one thread; what was run before with the same settings is not run again, so a
long comparison can be stopped and continued. Scores are kept in ``.benchmarks/papers`` with the commit they were made
with, and the tables are drawn from there. ``--record`` also writes the scores of ``TO_RECORD``, a line a run, to
``benchmarks/papers/results``, which is part of the project: another machine goes on from there.

A run may name one of its file's ``searches``: a number of trials, the same on every row, of which each seed takes the
one that its validation nodes prefer.

    python benchmarks/papers.py                       # what must be measured (priority 1)
    python benchmarks/papers.py fairfgl --priority 2  # one file, more of its rows
    python benchmarks/papers.py --show                # only the tables
    python benchmarks/papers.py tables --show --record   # keep what was measured with the project
    python benchmarks/papers.py fedridge --show --against "FedAvg, best of 16"   # differences, paired by row and seed
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from children import RESULTS, ChildFailed, ChildStopped, commit, data_root, run_code, write_json

from graphsilo import documents
from graphsilo.evaluate.significance import compare_paired
from graphsilo.experiments.reproduce import description
from graphsilo.experiments.reproduce.runs import with_protocol
from graphsilo.experiments.spaces import default_spaces
from graphsilo.experiments.storage.records import Seed, record_of
from graphsilo.random import numpy_generator
from graphsilo.report.views import Column, mean_of_study

HERE = Path(__file__).resolve().parent
KEPT = RESULTS / "papers"
FILES = {
    path.stem: path
    for path in sorted(
        [*(HERE / "papers").glob("*.yaml"), *map(description.path, ("tables.yaml", "fedsage_plus.yaml"))]
    )
}
"""Comparisons by name."""
RECORDED = HERE / "papers" / "results"
"""Scores that another machine goes on from, in a file for each comparison that is recorded."""
TO_RECORD = ("tables", "study")
"""Comparisons whose scores are all in what is recorded: those of the round that validation chose."""
AS_IT_STANDS = ("study", "setup", "cost")
"""Scores that begin so are numbers that a run noted, and no percent."""

CHILD = """
import json, resource, sys
from graphsilo.experiments import progress
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.experiments.silo_rounds import note_each
each = {}  # by mode, every client at a best round of its own
note = progress.SeedProgress.note
def noted(self, number, scores, modes, metric, *others, **options):
    for mode in modes:
        found = scores.get(progress.view_of(mode), {})
        sets = {name: value for name, value in found.items() if (name == "global") == mode.endswith("_global")}
        note_each(each.setdefault(mode, progress.ViewProgress()), number, sets, mode, metric)
    return note(self, number, scores, modes, metric, *others, **options)
progress.SeedProgress.note = noted
tree = run(load_config(json.loads(sys.argv[1]))).tree
progress.SeedProgress.note = note
seed = tree["seeds"][0]
seed["upload_bytes"], seed["download_bytes"] = tree["summary"]["upload_bytes"], tree["summary"]["download_bytes"]
seed["each"] = {mode: {kind: kept.best[progress.first_set(mode)].light()[kind] for kind in ("validation", "test")}
                for mode, kept in each.items()}
seed["rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"evaluates": [mode for mode in seed["modes"]], "seed": seed, "data": tree["data"]["hash"],
                  "partition": tree["partition"]["hash"]}))
"""


@dataclass(frozen=True)
class Run:
    """One line of a row, on one seed.

    Attributes:
        file, row, data, label: Where it stands.
        overrides: Its settings.
        seed: Of training.
        scores: Which numbers are shown.
        published: Those of the paper, in percent or None.
        spread: Their standard deviations.
        trials: How many settings this line chooses from, by each seed's validation; 1: it is no search.
    """

    file: str
    row: str
    data: str
    label: str
    overrides: dict[str, Any]
    seed: int
    scores: tuple[str, ...]
    published: tuple[float | None, ...]
    spread: tuple[float | None, ...]
    priority: int
    trials: int = 1

    @property
    def place(self) -> Path:
        """Where its result is kept; the name changes with the settings."""
        label = "".join(letter if letter.isalnum() else "-" for letter in self.label.lower())
        return KEPT / self.file / f"{self.row}.{label}.{self.key}.json"

    @property
    def result(self) -> dict[str, Any] | None:
        """What it left, also where lines that show other scores of the same settings did; None before it is run."""
        key, folder = self.key, KEPT / self.file
        if folder.exists() and (found := _by_key(folder, folder.stat().st_mtime_ns).get(key)):
            return dict(json.loads(found.read_text(encoding="utf-8")))
        return recorded(self.file).get(key)

    @property
    def key(self) -> str:
        """Its settings, hashed, and its seed."""
        text = json.dumps(self.overrides, sort_keys=True)
        return f"{hashlib.sha256(text.encode()).hexdigest()[:8]}.{self.seed}"


@lru_cache(maxsize=16)
def _by_key(folder: Path, changed: int) -> dict[str, Path]:
    """A folder's results by their runs' keys, as it was when it was last changed."""
    return {".".join(path.name.split(".")[-3:-1]): path for path in folder.glob("*.json")}


def read(name: str) -> tuple[str, list[Run]]:
    """Title and runs of a file.

    Where a line is tuned beforehand, its runs with the settings that were chosen are known once all trials are kept.

    Raises:
        SystemExit: The file does not say what it must.
    """
    path = FILES[name]
    tree = documents.read(path, "the description of rows", references=500)
    runs: list[Run] = []
    for row in description.rows(tree):
        for place, entry in enumerate(row.get("runs", tree.get("runs", []))):
            base = {**tree.get("base", {}), **row.get("base", {}), **entry.get("set", {})}
            if "method.name" not in base:
                raise SystemExit(f"{path.name}: '{entry['label']}' in row '{row['id']}' names no method.name.")
            scores = _list(entry.get("score", row.get("score", tree.get("score", "own_local.accuracy"))))
            paper = {**({} if place else row), **entry}  # what a row says of its paper is said of its first run
            published = [*_list(paper.get("published")), *[None] * len(scores)][: len(scores)]
            spread = [*_list(paper.get("std")), *[None] * len(scores)][: len(scores)]
            splits = entry.get("splits", row.get("splits"))

            line = Run(
                file=name,
                row=row["id"],
                data=row["data"],
                label=entry["label"],
                overrides=base,
                seed=0,
                scores=tuple(scores),
                published=tuple(published),
                spread=tuple(spread),
                priority=entry.get("priority", row.get("priority", 1)),
            )
            seeds = splits or row.get("seeds", [0, 1, 2])
            trials = search(tree["searches"][entry["search"]]) if "search" in entry else [{}]
            runs += _on_seeds(line, trials, seeds, own_splits=splits is not None)
            if entry.get("tuned") and (spaces := entry.get("spaces") or default_spaces(base["method.name"])):
                aside = [tree["tuning"]["seed"]]
                trials = search({**tree["tuning"], "first": [{}], "spaces": spaces})
                tried = _on_seeds(replace(line, label=f"{line.label}, trials"), trials, aside, own_splits=True)
                runs += tried
                if found := results(tried).get(aside[0]):
                    chosen = best(found, scores[0])["overrides"]
                    settings = {name: value for name, value in chosen.items() if name != "partition.seed"}
                    tuned = replace(line, label=f"{line.label}, tuned", overrides=settings)
                    runs += _on_seeds(tuned, [{}], seeds, own_splits=splits is not None)
    return tree["title"], runs


def _on_seeds(line: Run, trials: Sequence[Mapping[str, Any]], seeds: Sequence[int], *, own_splits: bool) -> list[Run]:
    """A line's runs: every trial on every seed, each seed with a cut and split of its own where asked for."""
    return [
        replace(
            line,
            overrides={**line.overrides, **trial, **({"partition.seed": seed} if own_splits else {})},
            seed=seed,
            trials=len(trials),
        )
        for seed in seeds
        for trial in trials
    ]


def search(description: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The settings that a search tries: those it begins with, then random ones of its spaces, no two alike.

    Args:
        description: ``trials``, how many; ``first``, settings that are always tried; ``spaces``, of which one is drawn
            and then of each of its settings a value. Every row and seed tries the same.
    """
    draw = numpy_generator(0, "search")
    found = [dict(each) for each in description.get("first", [])]
    while len(found) < description["trials"]:
        spaces = description["spaces"]
        space = spaces[int(draw.integers(len(spaces)))]
        trial = {name: values[int(draw.integers(len(values)))] for name, values in space.items()}
        if trial not in found:
            found.append(trial)
    return found


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def execute(run: Run, root: str, limit: float) -> str:
    """Run it unless it was; returns a line for the person waiting."""
    if run.result:
        return ""
    overrides = with_protocol(run.overrides, run.seed, root)
    start = time.perf_counter()
    name = f"{run.file} {run.row} '{run.label}' seed {run.seed}"
    try:
        result = run_code(CHILD, json.dumps(overrides), limit=limit)
    except ChildStopped as error:
        return f"{name}: {error}"
    except ChildFailed as error:
        # Settings under which training diverges are a trial like any other, and never the best.
        if run.trials > 1 and str(error).startswith("graphsilo.errors."):
            write_json(run.place, {"failed": str(error), "overrides": run.overrides, "commit": commit()})
        return f"{name}: {error}"
    result["commit"] = commit()
    result["overrides"] = run.overrides
    write_json(run.place, result)
    return f"{name}: {time.perf_counter() - start:.0f} s"


# -- results that the project keeps --------------------------------------------------------------------------------


@cache
def recorded(name: str) -> dict[str, dict[str, Any]]:
    """What is recorded of a comparison, by the runs' keys."""
    path = RECORDED / f"{name}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {line["key"]: line for line in map(json.loads, lines)}


def record(name: str, runs: Sequence[Run]) -> int:
    """Write what is known of these runs beside what is recorded; returns how many lines there are.

    A run that was measured again takes the place of its line.
    """
    known = dict(recorded(name))
    every = {wanted for run in runs for wanted in run.scores}
    paths = sorted({wanted.partition(".")[2] for wanted in every if not wanted.startswith("cost.")})
    for run in runs:
        if result := run.result:
            costs = [wanted.removeprefix("cost.") for wanted in run.scores if wanted.startswith("cost.")]
            costs = [path for path in costs if path not in ("bytes_sent", "training_seconds")]  # recorded anyway
            known[run.key] = {"row": run.row, "label": run.label, "key": run.key, **compact(result, paths, costs)}
    order = sorted(known.values(), key=lambda line: (line["row"], line["label"], line["key"].partition(".")[::-1]))
    path = RECORDED / f"{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    whole = path.with_suffix(".new")
    whole.write_text("".join(json.dumps(line) + "\n" for line in order), encoding="utf-8")
    whole.replace(path)
    recorded.cache_clear()
    return len(known)


def compact(result: dict[str, Any], paths: Sequence[str], asked: Sequence[str] = ()) -> dict[str, Any]:
    """A result in the same shape with what tables show of it: scores, validation accuracy, cost, cut and commit.

    Args:
        result: What a run left.
        paths: The scores, within a mode.
        asked: Costs that a table shows of it.
    """
    kept = {
        name: result[name] for name in ("evaluates", "partition", "commit", "overrides", "failed") if name in result
    }
    if "seed" not in result:
        return kept
    seed = result["seed"]
    modes: dict[str, dict[str, Any]] = {}
    for mode, found in seed["modes"].items():
        modes[mode] = {"validation": {"accuracy": found.get("validation", {}).get("accuracy")}}
        for path in paths:
            names = path.split(".")
            if (value := _dig(found, names)) is not None:
                place = modes[mode]
                for name in ("test",) if len(names) == 1 else ("scenarios", *names[:-1]):
                    place = place.setdefault(name, {})
                place[names[-1]] = round(value, 6)
    costs = {name: seed[name] for name in ("cpu_seconds", "upload_bytes", "download_bytes") if name in seed}
    more = {path: value for path in asked if (value := score(result, f"cost.{path}")) is not None}
    return {**kept, "seed": {"modes": modes, **costs, **({"costs": more} if more else {})}}


def score(result: dict[str, Any], wanted: str) -> float | None:
    """One number of a result, in percent.

    Args:
        result: What a run left.
        wanted: ``mode.metric`` or ``mode.kind.metric``, where ``chosen`` stands for the mode that was best on
            validation (the first of equals); ``@last`` takes the last round instead of the best on validation,
            ``@20-59`` the mean of these rounds, ``@macro_f1`` the best by another validation metric (the first of
            equals), ``@each`` every client's own best round. ``study.name`` is a number of the clients' studies as it
            stands, its mean over nodes: weighted by the clients' ``nodes``, or by ``nodes_lacking`` where the number
            is about these. ``setup.name`` is a number that the server noted in set-up, as it stands.
            ``cost.name`` is a metric of ``evaluate.costs``, also ``cost.rounds_to_target@80``.
            ``first.mode.metric@80`` is the first round in which the score is 80 percent, ``sent.mode.metric@80`` the
            megabytes that all messages to the end of that round have; ``sent.megabytes`` those of the whole run.
    """
    path, _, when = wanted.partition("@")
    mode, *rest = path.split(".")
    seed = result["seed"]
    if mode in ("first", "sent"):
        return _reached(result, mode, rest, when)
    if mode == "cost":
        return _cost(result, rest[0], when)
    if mode in AS_IT_STANDS:
        source = seed["setup"].get("log", {}).get(rest[0]) if mode == "setup" else mean_of_study(seed["study"], rest[0])
        return None if when else source
    if when == "each":
        return _percent(_dig(_of_mode(seed.get("each", {}), mode), rest))
    mode = chosen_mode(seed["modes"]) if mode == "chosen" else mode
    if not when:
        return _percent(_dig(seed["modes"].get(mode, {}), rest))
    rows = _rounds(result, mode)
    if when == "last":
        rows = rows[-1:]
    elif when[0].isdigit():
        first, last = (int(number) for number in when.split("-"))
        rows = [row for row in rows if first <= row[0] <= last]
    else:
        rows = [max(rows, key=lambda row: _or_lowest(row[1].get("validation", {}).get(when)))]
    values = [_dig(row, rest) for _, row in rows]
    known = [value for value in values if value is not None]
    return _percent(statistics.fmean(known)) if known else None


def _rounds(result: dict[str, Any], mode: str) -> list[tuple[int, dict[str, Any]]]:
    """Each round, and what a mode scored after it."""
    main = result["evaluates"][0]
    rounds = result["seed"].get("rounds", [])
    return [(row["round"], row if mode == main else row.get("modes", {}).get(mode, {})) for row in rounds]


def _reached(result: dict[str, Any], what: str, path: list[str], percent: str) -> float | None:
    """The first round whose score is so many percent, or the megabytes sent to its end; None where none is."""
    seed = result["seed"]
    if path == ["megabytes"]:
        return None if percent else float(seed["upload_bytes"] + seed["download_bytes"]) / 1e6
    mode, *metric = path
    sent = seed["setup"]["upload_bytes"] + seed["setup"]["download_bytes"]
    for (number, scores), row in zip(_rounds(result, mode), seed["rounds"], strict=True):
        sent += row["upload_bytes"] + row["download_bytes"]
        value = _percent(_dig(scores, metric))
        if value is not None and value >= float(percent):
            return float(number) if what == "first" else sent / 1e6
    return None


def _cost(result: dict[str, Any], name: str, percent: str) -> float | None:
    """What a run cost, or when its validation accuracy was at a target; None where it was not, or is not recorded."""
    seed = result["seed"]
    if (known := seed.get("costs", {}).get(f"{name}@{percent}" if percent else name)) is not None:
        return float(known)
    if name == "bytes_sent":
        return float(seed["upload_bytes"] + seed["download_bytes"])
    if name == "training_seconds":
        return float(seed["cpu_seconds"])  # one thread: what the clock says where nothing else runs
    if "rounds" not in seed:
        return None
    noted = {key: value for key, value in seed.items() if key in Seed.__struct_fields__}  # without what CHILD adds
    column = Column(name, mode=result["evaluates"][0], target=float(percent) / 100 if percent else None)
    return column.of(record_of(noted, Seed))


def chosen_mode(modes: Mapping[str, Any]) -> str:
    """Own models or the common one, as validation accuracy says."""
    return max(modes, key=lambda mode: _validation(modes[mode]))


def _of_mode(modes: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """What a mode scored, of which ``chosen`` is one; empty where nothing is known of it."""
    name = chosen_mode(modes) if mode == "chosen" and modes else mode
    return dict(modes.get(name, {}))


def _validation(scores: Mapping[str, Any]) -> float:
    return _or_lowest(scores.get("validation", {}).get("accuracy"))


Trials = dict[int, list[dict[str, Any]]]
"""Results by seed, of all trials of a search."""


def results(runs: list[Run]) -> Trials:
    """What is kept of one line's runs, without trials that failed.

    A seed whose trials were not all run is left out, and one of which every trial failed.
    """
    found: Trials = {}
    for run in runs:
        if (result := run.result) is not None:
            found.setdefault(run.seed, []).append(result)
    complete = {seed: trials for seed, trials in found.items() if len(trials) == runs[0].trials}
    ended = {seed: [each for each in trials if "failed" not in each] for seed, trials in complete.items()}
    return {seed: trials for seed, trials in ended.items() if trials}


def best(trials: list[dict[str, Any]], wanted: str) -> dict[str, Any]:
    """The trial whose validation accuracy is highest in the mode of the wanted score; the first of equals."""
    path, _, when = wanted.partition("@")
    mode = path.partition(".")[0]
    views = [each["seed"].get("each", {}) if when == "each" else each["seed"]["modes"] for each in trials]
    worth = [_validation(_of_mode(modes, mode)) for modes in views]
    return trials[max(range(len(trials)), key=worth.__getitem__)]


def _or_lowest(value: float | None) -> float:
    return float("-inf") if value is None else value


def _dig(tree: dict[str, Any], path: list[str]) -> float | None:
    if len(path) == 1:
        found = tree.get("test", {}).get(path[0])
    else:
        found = tree.get("scenarios", {}).get(path[0], {})
        for name in path[1:]:
            found = found.get(name) if isinstance(found, dict) else None
    return found


def _percent(value: float | None) -> float | None:
    return None if value is None else 100.0 * value


def table(title: str, runs: list[Run]) -> Iterator[str]:
    """A Markdown table per row of the file, from what is kept."""
    yield f"## {title}\n"
    for row in dict.fromkeys(run.row for run in runs):
        mine = [run for run in runs if run.row == row]
        lines = []
        for label in dict.fromkeys(run.label for run in mine):
            seeds = [run for run in mine if run.label == label]
            tried = results(seeds)
            cost = [sum(each["seed"]["cpu_seconds"] for each in trials) for trials in tried.values()]
            for index, name in enumerate(seeds[0].scores):
                found = [best(trials, name) for trials in tried.values()]
                values = [value for result in found if (value := score(result, name)) is not None]
                if not values:
                    continue
                last = [] if "@" in name else [score(result, f"{name}@last") for result in found]
                lines.append(
                    f"| {label} | {name} | {_shown(values, name)} "
                    f"| {_shown([value for value in last if value is not None], name)} "
                    f"| {_paper(seeds[0], index)} | {len(found)} | "
                    f"{statistics.fmean(cost):.1f} | "
                    f"{statistics.fmean(result['seed']['upload_bytes'] for result in found) / 1e6:.3f} | "
                    f"{statistics.fmean(result['seed']['download_bytes'] for result in found) / 1e6:.3f} |"
                )
        if lines:
            yield f"### {mine[0].data}\n"
            yield "| run | score | ours, % | ours, last round | published, % | seeds | CPU s | MB up | MB down |"
            yield "|---|---|---|---|---|---|---|---|---|"
            yield from lines
            yield ""


def differences(runs: list[Run], against: str, wanted: str) -> Iterator[str]:
    """What each run is above the one labelled ``against``: by row, paired by seed, and over the means of all rows."""
    labels = [label for label in dict.fromkeys(run.label for run in runs) if label != against]
    yield f"### {wanted} against '{against}'\n"
    yield "| row | " + " | ".join(labels) + " |"
    yield "|---" * (len(labels) + 1) + "|"
    means: dict[str, list[float]] = {label: [] for label in labels}
    for row in dict.fromkeys(run.row for run in runs):
        values = {
            label: {
                seed: value
                for seed, trials in results(mine).items()
                if (value := score(best(trials, wanted), wanted)) is not None
            }
            for label in [*labels, against]
            if (mine := [run for run in runs if run.row == row and run.label == label])
        }
        cells = []
        for label in labels:
            shared = values.get(label, {}).keys() & values.get(against, {}).keys()
            gaps = [values[label][seed] - values[against][seed] for seed in sorted(shared)]
            means[label] += [statistics.fmean(gaps)] if gaps else []
            cells.append(_shown(gaps, sign="+"))
        if any(cell != "–" for cell in cells):
            yield f"| {row} | " + " | ".join(cells) + " |"
    pairs = {label: compare_paired(gaps, [0.0] * len(gaps)) for label, gaps in means.items() if gaps}
    yield "| mean of the rows | " + " | ".join(_shown(means[label], sign="+") for label in labels) + " |"
    yield (
        "| rows above, Wilcoxon p | "
        + " | ".join(
            f"{sum(gap > 0 for gap in means[label])} of {len(means[label])}, {_p(pairs[label].wilcoxon_p)}"
            if label in pairs
            else "–"
            for label in labels
        )
        + " |\n"
    )


def _p(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


def _digits(name: str) -> int:
    return {"study": 4, "setup": 3, "sent": 2}.get(name.partition(".")[0], 1)  # distances and counts, or percent


def _shown(values: list[float], name: str = "", sign: str = "") -> str:
    if not values:
        return "–"
    spread = f" ± {statistics.stdev(values):.{_digits(name)}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):{sign}.{_digits(name)}f}{spread}"


def _paper(run: Run, index: int) -> str:
    value, spread, digits = run.published[index], run.spread[index], _digits(run.scores[index])
    if value is None:
        return "–"
    return f"{value:.{digits}f}" if spread is None else f"{value:.{digits}f} ± {spread:.{digits}f}"


def main() -> None:
    """Run what is missing, then print the tables."""
    known = sorted(FILES)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help=f"which comparisons: {', '.join(known)}; none means all")
    parser.add_argument("--data-root", default=data_root())
    parser.add_argument("--priority", type=int, default=1, help="rows up to this priority (1 to 3)")
    parser.add_argument("--seeds", type=int, default=None, help="only the first so many seeds of each row")
    parser.add_argument("--rows", nargs="*", help="only these rows")
    parser.add_argument("--runs", nargs="*", help="only runs with these labels")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--limit", type=float, default=7200, help="seconds after which a run is stopped")
    parser.add_argument("--show", action="store_true", help="run nothing")
    parser.add_argument("--record", action="store_true", help="keep the tables' scores with the project")
    parser.add_argument("--against", metavar="LABEL", help="also the differences from this run")
    parser.add_argument("--difference", default="chosen.accuracy", help="of which score")
    options = parser.parse_args()
    unknown = [name for name in options.files if name not in known]
    if unknown:
        raise SystemExit(f"there is no comparison '{unknown[0]}'; known are {', '.join(known)}.")
    if not options.show and not Path(options.data_root).is_dir():
        raise SystemExit(f"the comparisons need the real graphs; {options.data_root} is no folder (--data-root).")
    names = options.files or known
    for _ in range(0 if options.show else 2):  # the second time, what was tuned is known
        todo = [run for runs in selected(names, options).values() for run in runs]
        with ThreadPoolExecutor(options.jobs) as pool:
            for line in pool.map(lambda run: execute(run, options.data_root, options.limit), todo):
                if line:
                    print(line, file=sys.stderr, flush=True)
    for name, runs in selected(names, options).items():
        print("\n".join(table(read(name)[0], runs)))
        if options.record and name in TO_RECORD:
            print(f"{RECORDED.name}/{name}.jsonl: {record(name, read(name)[1])} runs", file=sys.stderr)
        if options.against:
            print("\n".join(differences(runs, options.against, options.difference)))


def selected(names: Sequence[str], options: argparse.Namespace) -> dict[str, list[Run]]:
    """The runs that were asked for, by file."""
    chosen = {
        name: [
            run
            for run in read(name)[1]
            if run.priority <= options.priority
            and (not options.rows or run.row in options.rows)
            and (not options.runs or run.label in options.runs)
        ]
        for name in names
    }
    if options.seeds is None:
        return chosen
    first = {
        (run.file, run.row): list(dict.fromkeys(other.seed for other in runs if other.row == run.row))[: options.seeds]
        for runs in chosen.values()
        for run in runs
    }
    return {name: [run for run in runs if run.seed in first[name, run.row]] for name, runs in chosen.items()}


if __name__ == "__main__":
    main()
