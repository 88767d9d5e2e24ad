"""Scores of nodes by an exported model, with numpy alone: columns and links in, scores out.

    python scorer.py                      # checks itself against check.npz
    python scorer.py NODES.csv LINKS.csv  # writes a line of scores for each line of NODES.csv, in its order

NODES.csv has the columns that model.json names under "features", all of them numbers in the units of the table that
the model was trained on: "segment=retail" is 1 where the segment is retail, and "turnover:missing" where the turnover
is empty. An empty cell is filled as it was then; other columns are not read, but for "label": where the nodes are the
silo's own, it has the class of its training nodes, by name, and nothing for the others. Without it, nodes are scored as
those of another graph are. LINKS.csv has two columns, the row of a link's source and that of its target, counted from
0. Both have a line of headings. Where one of two classes is looked for, its calibrated probability and the decision at
the chosen threshold follow. In Python: ``Model(folder).score(features, links)``, and ``decide`` of what that returns.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = "NDArray[Any]"


class Operator:
    """The links as a matrix that is multiplied by: means over neighbours, or the symmetric one with self-loops."""

    def __init__(self, links: Floats, count: int, *, loops: bool):
        source, target = links[:, links[0] != links[1]]
        if loops:
            source, target = np.append(source, np.arange(count)), np.append(target, np.arange(count))
        keys = np.unique(target * count + source)
        self.target, self.source, self.count = keys // count, keys % count, count
        degree = np.bincount(self.target, minlength=count).astype(np.float64)
        inverse = np.divide(1.0, degree, out=np.zeros(count), where=degree > 0)
        scale = np.sqrt(inverse) if loops else inverse
        weights = scale[self.target] * (scale[self.source] if loops else 1.0)
        self.weights = weights.astype(np.float32).astype(np.float64)
        self.degree = degree

    def __matmul__(self, rows: Floats) -> Floats:
        found = np.zeros((self.count, rows.shape[1]))
        for start in range(0, rows.shape[1], 64):
            part = rows[self.source, start : start + 64] * self.weights[:, None]
            np.add.at(found[:, start : start + 64], self.target, part)
        return found


def unit_rows(rows: Floats) -> Floats:
    """Rows of length 1; zeros stay."""
    length = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    found: Floats = np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)
    return found


def log_softmax(logits: Floats) -> Floats:
    """Log-probabilities."""
    moved = logits - logits.max(axis=1, keepdims=True)
    found: Floats = moved - np.log(np.exp(moved).sum(axis=1, keepdims=True))
    return found


class Model:
    """An exported model.

    Args:
        folder: With model.json and model.npz.
    """

    def __init__(self, folder: str | Path = "."):
        self.about = json.loads((Path(folder) / "model.json").read_text(encoding="utf-8"))
        with np.load(Path(folder) / "model.npz", allow_pickle=False) as found:
            self.arrays = {name: found[name] for name in found.files}

    def score(self, features: Floats, links: Floats, labels: Floats | None = None) -> Floats:
        """[n, C] probabilities of the classes, or what is estimated.

        Args:
            features: [n, d] in the units of the table; NaN where a cell is empty.
            links: [2, m] rows of their sources and targets.
            labels: [n] classes of training nodes, -1 for others; only where these are the silo's own nodes.
        """
        about = self.about
        rows = np.array(features, dtype=np.float64)
        rows = np.where(np.isnan(rows), self.arrays["fills"], rows)
        rows = ((rows - self.arrays["shift"]) * self.arrays["factor"]).astype(np.float32).astype(np.float64)
        links = np.asarray(links, dtype=np.int64)
        if about["both_ways"]:
            links = np.hstack([links, links[::-1]])
        parts = about["parts"]["own" if labels is not None else "other"]
        said = [self._of_part(part, rows, links, labels) for part in parts]
        mean: Floats = np.mean(said, axis=0)
        if about["task"] == "node":
            return np.asarray(np.exp(log_softmax(mean)))
        if about["task"] == "multilabel":
            return np.asarray(1 / (1 + np.exp(-mean.clip(-80, 80))))
        return np.asarray(mean / self.arrays["target_factor"] + self.arrays["target_shift"])

    def decide(self, scores: Floats, *, labelled: bool = False) -> tuple[Floats, Floats]:
        """[n] calibrated probabilities of the class looked for, and [n] numbers of the classes decided on.

        Args:
            scores: [n, 2] what ``score`` returns.
            labelled: Whether it was given labels.
        """
        said = self.about["decision"]["own" if labelled else "other"]
        positive = said["positive"]
        logs = np.log(np.maximum(scores, 1e-38, dtype=np.float64))
        odds = logs[:, positive] - logs[:, 1 - positive]
        calibrated = np.exp(-np.logaddexp(0, -(said["slope"] * odds + said["intercept"])))
        return calibrated, np.where(odds >= said["threshold"], positive, 1 - positive)

    def _of_part(self, part: list[Any], rows: Floats, links: Floats, labels: Floats | None) -> Floats:
        logits: Floats = np.sum(
            [(self._trees if term["kind"] == "trees" else self._linear)(term, rows, links, labels) for term in part],
            axis=0,
        )
        return log_softmax(logits) if self.about["task"] == "node" else logits

    def _linear(self, term: dict[str, Any], rows: Floats, links: Floats, labels: Floats | None) -> Floats:
        weights, count, hops = self.arrays[term["weights"]], len(rows), term["hops"]
        thrown = [self.arrays[name] for name in term["projections"]]
        own = unit_rows(rows)
        if term["columns"] == "separate":
            step, found = Operator(links, count, loops=False), []
            for level in range(hops + 1):
                block = own @ thrown[level] if thrown else own
                for _ in range(level):
                    block = step @ block
                found.append(unit_rows(block))
            rows = unit_rows(np.sum(found, axis=0) if thrown else np.hstack(found))
        else:
            first = own @ thrown[0] if thrown else own
            if term["centred"] is not None:
                even = thrown[0].sum(axis=0) if thrown else np.ones(first.shape[1])
                first = unit_rows(first - own.sum(axis=1, keepdims=True) * term["centred"] / own.shape[1] * even)
            step, rows = Operator(links, count, loops=True), first
            for _ in range(hops):
                rows = step @ rows + (first if term["columns"] == "mean" else 0.0)
            rows = unit_rows(rows)
        width = rows.shape[1]
        found = rows @ weights[:width] + term["constant"] * weights[width]
        if term["labelled"]:
            found += _label_columns(Operator(links, count, loops=False), labels, term["classes"]) @ weights[width + 1 :]
        return np.asarray(term["factor"] * (found - term["middle"]))

    def _trees(self, term: dict[str, Any], rows: Floats, links: Floats, labels: Floats | None) -> Floats:
        columns = self._tree_columns(term, rows, links, labels).astype(np.float32)
        forest = {name: self.arrays[place] for name, place in term["forest"].items()}
        found = np.tile(forest["base"].astype(np.float64), (len(rows), 1))
        outputs, lines = np.arange(found.shape[1]), np.arange(len(rows))[:, None]
        trees = zip(forest["columns"].astype(np.int64), forest["thresholds"], forest["values"], strict=True)
        for column, limit, value in trees:
            node = np.zeros(found.shape, dtype=np.int64)
            for level in range(value.shape[1].bit_length() - 1):
                place = 2**level - 1 + node
                node = 2 * node + (columns[lines, column[outputs, place]] >= limit[outputs, place])
            found += value[outputs, node]
        return np.hstack([np.zeros_like(found), found]) if term["two"] else found

    def _tree_columns(self, term: dict[str, Any], rows: Floats, links: Floats, labels: Floats | None) -> Floats:
        own = rows
        if term["principal"]:
            length = np.sqrt((rows**2).sum(axis=1, keepdims=True))
            inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0).astype(np.float32)
            own = np.rint((rows.astype(np.float32) * inverse).astype(np.float64) * term["grid"]) / term["grid"]
            own = np.hstack([own @ self.arrays[name].astype(np.float64) for name in term["principal"]])
        both = np.hstack([links, links[::-1]])
        ways = [both, links, links[::-1]] if term["directed"] else [links]
        steps = [Operator(way, len(rows), loops=False) for way in ways]
        parts = [own]
        for step in steps:
            one = step @ own
            parts += [one, step @ one]
            if not term["principal"]:
                squares = step @ (own * own)
                variance = squares - one * one
                parts.append(np.sqrt(np.where(variance > term["rounding"] * squares, variance, 0.0)))
            degree = np.log1p(step.degree)[:, None]
            parts += [degree, step @ degree]
        for step in steps if term["labelled"] else ():
            parts.append(_label_columns(step, labels, term["classes"]).astype(np.float32))
        return np.hstack(parts)


def _label_columns(step: Operator, labels: Floats | None, classes: int) -> Floats:
    """[n, 2C] how the nodes around a node are labelled; nothing of its own label."""
    if labels is None:
        return np.zeros((step.count, 2 * classes))
    known = (np.asarray(labels)[:, None] == np.arange(classes)).astype(np.float64)
    one = step @ known
    two = step @ one
    # What comes back to a node after two links is its own label.
    keys, turned = step.target * step.count + step.source, step.source * step.count + step.target
    place = np.minimum(np.searchsorted(keys, turned), max(len(keys) - 1, 0))
    there = np.where(keys[place] == turned, step.weights[place], 0.0) if len(keys) else np.zeros(0)
    back = np.bincount(step.target, step.weights * there, minlength=step.count)
    two = two - known * back[:, None]
    return 0.5 * np.hstack([one, np.where(two < 1e-12, 0.0, two)])


def _read(path: str) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of cells."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            names, *rows = list(csv.reader(file)) or [[]]
    except (OSError, ValueError, csv.Error) as error:
        raise SystemExit(f"{path} cannot be read as a text file of comma-separated values ({error}).") from None
    for line, row in enumerate(rows, 2):
        if len(row) != len(names):
            raise SystemExit(f"{path}, line {line}: {len(row)} cells, and {len(names)} headings.")
    return names, rows


def _numbers(path: str, names: list[str], rows: list[list[str]], wanted: list[int]) -> Floats:
    """[rows, wanted] numbers of some columns, NaN where a cell is empty."""
    found = np.full((len(rows), len(wanted)), np.nan)
    for line, row in enumerate(rows):
        for place, column in enumerate(wanted):
            if row[column].strip():
                try:
                    found[line, place] = float(row[column])
                except ValueError:
                    where = f"{path}, line {line + 2}, column '{names[column]}'"
                    raise SystemExit(f"{where}: '{row[column]}' is no number.") from None
    return found


def _read_nodes(path: str, about: dict[str, Any]) -> tuple[Floats, Floats | None]:
    """[n, d] features, and [n] classes of training nodes where the file has them."""
    names, rows = _read(path)
    wanted = about["features"] or [name for name in names if name != "label"]
    if missing := [name for name in wanted if name not in names]:
        raise SystemExit(
            f"{path} lacks {len(missing)} columns: {', '.join(missing[:5])} ... (model.json has them all)."
        )
    features = _numbers(path, names, rows, [names.index(name) for name in wanted])
    if "label" not in names or "label" in wanted or about["task"] != "node":
        return features, None
    words, known = [row[names.index("label")].strip() for row in rows], ["", *about["classes"]]
    if unknown := set(words) - set(known):
        raise SystemExit(f"{path}, column 'label': '{min(unknown)}' is no class; classes are {', '.join(known[1:])}.")
    return features, np.array([known.index(word) - 1 for word in words])


def _read_links(path: str, count: int) -> Floats:
    """[2, m] rows of nodes."""
    names, rows = _read(path)
    if len(names) < 2:
        raise SystemExit(f"{path} has {len(names)} columns; two are wanted, rows of sources and of targets.")
    links = _numbers(path, names, rows, [0, 1]).T
    wrong = ~((links >= 0) & (links < count) & (links == np.floor(links))).all(axis=0)
    if wrong.any():
        line = int(np.argmax(wrong)) + 2
        raise SystemExit(f"{path}, line {line}: a link joins two rows of the nodes, numbered from 0 to {count - 1}.")
    return links


def _main(arguments: list[str]) -> int:
    if any(argument in ("-h", "--help") for argument in arguments) or len(arguments) > 2:
        print(__doc__)
        return 0 if len(arguments) < 2 else 2
    folder = Path(__file__).parent
    model = Model(folder)
    if not arguments:
        with np.load(folder / "check.npz", allow_pickle=False) as check:
            said = model.score(check["features"], check["links"])
            worst, wrong = np.abs(said - check["scores"]).max(), 0
            if "decisions" in check:
                calibrated, decisions = model.decide(said)
                worst = max(worst, np.abs(calibrated - check["calibrated"]).max())
                wrong = int((decisions != check["decisions"]).sum())
        print(f"largest difference to the scores of the run: {worst:.1e}; other decisions: {wrong}")
        return int(worst > 1e-5 or wrong > 0)
    features, labels = _read_nodes(arguments[0], model.about)
    links = _read_links(arguments[1], len(features)) if len(arguments) > 1 else np.zeros((2, 0))
    classes, scores = model.about["classes"], model.score(features, links, labels)
    lines = [[f"{value:.9g}" for value in line] for line in scores]
    if model.about["decision"]:
        for line, chance, chosen in zip(lines, *model.decide(scores, labelled=labels is not None), strict=True):
            line += [f"{chance:.9g}", classes[chosen]]
        classes = [*classes, "calibrated", "decision"]
    print("\n".join(",".join(line) for line in [classes, *lines]))
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
