"""Scores of nodes, or of whole graphs, by an exported model, without a federation and without graphsilo.

    python scorer.py                # checks itself against check.npz
    python scorer.py tables.yaml    # a line for each node or graph that is classified: id, scores, decision

The tables are described as for `graphsilo run --data`, or by a silo's own silo.yaml, and stay as they were exported;
graphs lie in a file of graphsilo's. graphsilo.zip holds what reads them. MODEL_CARD.md names their columns,
requirements.txt the packages that tables and networks need; for all else numpy is enough. Where one of two classes is
looked for, its calibrated probability (where validation items were enough) and the decision at the chosen threshold
follow. In Python: ``Model(folder).score_tables("tables.yaml")``, ``score(features, links)``, and ``decide`` of what
these return.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from graphsilo.data.graph import Graph, GraphCollection
    from graphsilo.data.silos.asked import Preparation

Floats: TypeAlias = "NDArray[Any]"
CLASSES = ("node", "graph")
"""Tasks in which scores are probabilities of classes."""
NEAR = 1e-5
"""What scores may differ by from those of the run, which has them in float32."""


class Given(NamedTuple):
    """What is scored.

    Attributes:
        rows: [n, d] features, scaled.
        links: [2, m] rows of their sources and targets.
        passing: [3, r] kinds (2 · relation, and 1 more against its rows), sources and targets of what passes along rows
            of tables of links.
        labels: [n] classes of training nodes, -1 for others; None where these are not the silo's own nodes.
        weights: [m] of the links, where they have some.
        graph: All of it, for networks; of whole graphs all of them.
    """

    rows: Floats
    links: Floats
    passing: Floats
    labels: Floats | None = None
    weights: Floats | None = None
    graph: Any = None


class Operator:
    """The links as a matrix that is multiplied by: means over neighbours, or the symmetric one with self-loops.

    Parallel links are one, or their weights add up; a link of a node to itself is no neighbour, and its weight that of
    the self-loop.
    """

    def __init__(self, links: Floats, count: int, weights: Floats | None = None, *, loops: bool):
        between = links[0] != links[1]
        (source, target), each = links[:, between], np.ones(between.sum(), dtype=np.float32)
        if weights is not None:
            each = weights[between].astype(np.float32)
        if loops:
            own = np.zeros(count) if weights is None else np.bincount(links[0, ~between], weights[~between], count)
            source, target = np.append(source, np.arange(count)), np.append(target, np.arange(count))
            each = np.append(each, np.where(own > 0, own, 1.0).astype(np.float32))
        keys = target * count + source
        order = np.argsort(keys, kind="stable")
        keys, first = np.unique(keys[order], return_index=True)
        # In float32, as the run adds them up.
        entries = each[order][first] if weights is None or not len(first) else np.add.reduceat(each[order], first)
        self.target, self.source, self.count = keys // count, keys % count, count
        self.filled, self._starts = np.unique(self.target, return_index=True)
        self.degree = np.zeros(count)
        self.degree[self.filled] = np.add.reduceat(entries, self._starts) if len(self.filled) else 0.0
        inverse = np.divide(1.0, self.degree, out=np.zeros(count), where=self.degree > 0)
        scale = np.sqrt(inverse) if loops else inverse
        entries = scale[self.target] * entries * (scale[self.source] if loops else 1.0)
        self.weights = entries.astype(np.float32).astype(np.float64)

    def __matmul__(self, rows: Floats) -> Floats:
        found = np.zeros((self.count, rows.shape[1]))
        for start in range(0, rows.shape[1] if len(self.filled) else 0, 64):
            part = rows[self.source, start : start + 64] * self.weights[:, None]
            found[self.filled, start : start + 64] = np.add.reduceat(part, self._starts, axis=0)
        return found

    def deviation(self, rows: Floats, mean: Floats, rounding: float) -> Floats:
        """[n, d] the standard deviation over neighbours, whose mean is known."""
        squares = self @ (rows * rows)
        variance = squares - mean * mean
        return np.asarray(np.sqrt(np.where(variance > rounding * squares, variance, 0.0)))


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
        self.folder = Path(folder)
        self.about = json.loads((self.folder / "model.json").read_text(encoding="utf-8"))
        with np.load(self.folder / "model.npz", allow_pickle=False) as found:
            self.arrays = {name: found[name] for name in found.files}

    def score_tables(self, path: str | Path) -> tuple[Floats, Floats]:
        """[n] ids of the nodes that are classified, and [n, C] as ``score``: as if no class around them were known.

        Args:
            path: A description of tables, or a silo's own file.
        """
        graph, asked = self._read(path)
        return graph.external_ids[asked], self.score_given(given_of(graph))[asked]

    def inputs(self, path: str | Path) -> tuple[Floats, dict[str, Floats]]:
        """[n] ids of the nodes that are classified, and what model.onnx takes, by name: [n, p] float32."""
        graph, asked = self._read(path)
        made = self._inputs(given_of(graph))
        return graph.external_ids[asked], {name: columns[asked] for name, columns in made.items()}

    def score(self, features: Floats, links: Floats, labels: Floats | None = None) -> Floats:
        """[n, C] probabilities of the classes, or what is estimated; of graphs with one type of nodes and plain links.

        Args:
            features: [n, d] in the units of the table; NaN where a cell is empty.
            links: [2, m] rows of their sources and targets.
            labels: [n] classes of training nodes, -1 for others; only where these are the silo's own nodes.
        """
        if not self.about["plain"]:
            raise ValueError(
                "this model reads types, dates, weights or columns of links, or whole graphs: score_tables(path)."
            )
        rows = np.array(features, dtype=np.float64)
        rows = np.where(np.isnan(rows), self.arrays["fills"], rows)
        rows = ((rows - self.arrays["shift"]) * self.arrays["factor"]).astype(np.float32).astype(np.float64)
        links = np.asarray(links, dtype=np.int64)
        if self.about["read"]["both_ways"]:
            links = np.hstack([links, links[::-1]])
        return self.score_given(Given(rows, links, np.zeros((3, 0), dtype=np.int64), labels))

    def score_given(self, given: Given) -> Floats:
        """[n, C] as ``score``, of what is ready for the model."""
        said = [
            self._say(sum(self._apply(term, given) for term in part))
            for part in self.parts(labelled=given.labels is not None)
        ]
        mean: Floats = np.mean(said, axis=0)
        if self.about["task"] in CLASSES:
            return np.asarray(np.exp(log_softmax(mean)))
        if self.about["task"] == "multilabel":
            return np.asarray(1 / (1 + np.exp(-mean.clip(-80, 80))))
        return np.asarray(mean / self.arrays["target_factor"] + self.arrays["target_shift"])

    def parts(self, *, labelled: bool = False) -> list[list[dict[str, Any]]]:
        """The models whose mean is taken, each a sum of terms."""
        found: list[list[dict[str, Any]]] = self.about["parts"]["own" if labelled else "other"]
        return found

    def columns(self, term: dict[str, Any], given: Given) -> Floats:
        """[n, p] what a term looks at; of a network that is not made of dense layers, nothing."""
        make = {"trees": self._tree_columns, "linear": self._linear_columns, "network": self._network_columns}
        return make[term["kind"]](term, given)

    def decide(self, scores: Floats, *, labelled: bool = False) -> tuple[Floats | None, Floats]:
        """[n] calibrated probabilities of the class looked for, None where validation items were too few to calibrate,
        and [n] numbers of the classes decided on.

        Args:
            scores: [n, 2] what ``score`` returns.
            labelled: Whether it was given labels.
        """
        said = self.about["decision"]["own" if labelled else "other"]
        positive = said["positive"]
        logs = np.log(np.maximum(scores, 1e-38, dtype=np.float64))
        odds = logs[:, positive] - logs[:, 1 - positive]
        calibrated = None
        if (said["slope"], said["intercept"]) != (1.0, 0.0):
            calibrated = np.exp(-np.logaddexp(0, -(said["slope"] * odds + said["intercept"])))
        return calibrated, np.where(odds >= said["threshold"], positive, 1 - positive)

    def preparation(self) -> Preparation:
        """What is done to tables before the model sees them, by graphsilo's own parts."""
        self._use_archive()
        from graphsilo.data.silos.asked import Preparation
        from graphsilo.data.silos.scaling import FeatureScale

        links = None
        if "link_shift" in self.arrays:
            links = FeatureScale(self.arrays["link_shift"], self.arrays["link_factor"])
        scale = FeatureScale(self.arrays["shift"], self.arrays["factor"], links)
        return Preparation.from_tree(self.about["read"], scale)

    def _read(self, path: str | Path) -> tuple[Graph | GraphCollection, Any]:
        """What a file holds, ready for the model, and which of it is classified."""
        graph = self.preparation().read(path)[0]
        types = graph.union.types
        return graph, slice(None) if types is None else np.flatnonzero(types.targets)

    def _inputs(self, given: Given) -> dict[str, Floats]:
        terms = {term["input"]: term for part in self.parts() for term in part}
        return {name: self.columns(term, given).astype(np.float32) for name, term in terms.items()}

    def _use_archive(self) -> None:
        if "graphsilo" not in sys.modules:
            sys.path.insert(0, str(self.folder / "graphsilo.zip"))

    def _say(self, logits: Any) -> Floats:
        return log_softmax(logits) if self.about["task"] in CLASSES else np.asarray(logits)

    def _apply(self, term: dict[str, Any], given: Given) -> Floats:
        if term["kind"] == "network":
            network, data = self._network(term, given)
            rows = network(data.full) if term["head"].get("kind") in (None, "cosines") else network.embed(data.full)
            return np.asarray(self._score_rows(rows, term["head"]).double().numpy())
        columns = self.columns(term, given)
        if term["kind"] == "linear":
            found = columns @ self.arrays[term["weights"]]
            return np.asarray(term["factor"] * (found - term["middle"]))
        forest = {name: self.arrays[place] for name, place in term["forest"].items()}
        columns = columns.astype(np.float32)
        found = np.tile(forest["base"].astype(np.float64), (len(columns), 1))
        outputs, lines = np.arange(found.shape[1]), np.arange(len(columns))[:, None]
        trees = zip(forest["columns"].astype(np.int64), forest["thresholds"], forest["values"], strict=True)
        for column, limit, value in trees:
            node = np.zeros(found.shape, dtype=np.int64)
            for level in range(value.shape[1].bit_length() - 1):
                place = 2**level - 1 + node
                node = 2 * node + (columns[lines, column[outputs, place]] >= limit[outputs, place])
            found += value[outputs, node]
        return np.hstack([np.zeros_like(found), found]) if term["two"] else found

    def _score_rows(self, rows: Any, head: dict[str, Any]) -> Any:
        """[n, C] logits of a network's rows, as ``federation.portable.Deciding`` words it."""
        if not head:
            return rows
        import torch
        from torch.nn.functional import normalize

        parts = {name: torch.from_numpy(self.arrays[value]) for name, value in head.items() if value in self.arrays}
        known = parts["prototypes"].float()
        if head["kind"] == "nearest":
            return -torch.cdist(rows, known).square().masked_fill(~parts["present"].bool(), float("inf"))
        if head["kind"] == "cosines":
            return parts["scale"] * (normalize(rows) @ known.t())
        cosines = normalize(rows) @ normalize(known).t()
        nearest, places = cosines.topk(head["voters"], dim=1)
        weights = torch.zeros_like(cosines).scatter_(1, places, torch.softmax(nearest / head["temperature"], 1))
        return (weights @ parts["votes"].float()).log()

    def _network(self, term: dict[str, Any], given: Given) -> tuple[Any, Any]:
        """A network with its weights, and the graph as it looks at it."""
        self._use_archive()
        import torch

        from graphsilo.data.silos.schema import schema_of
        from graphsilo.models import build
        from graphsilo.models.view import GraphTensors

        schema = schema_of(self.about["read"]["schema"])
        network = build(
            term["model"], num_features=schema.num_features, num_classes=term["outputs"], task=schema.task, seed=0,
            precision=term["precision"], schema=schema, **term["settings"],
        )  # fmt: skip
        for name, value in [*network.named_parameters(), *network.named_buffers()]:
            value.requires_grad_(False)
            if name in term["weights"]:
                value.copy_(torch.from_numpy(self.arrays[term["weights"][name]]))
        assert given.graph is not None
        return network.eval(), GraphTensors(given.graph)

    def _network_columns(self, term: dict[str, Any], given: Given) -> Floats:
        network, data = self._network(term, given)
        from graphsilo.models.finished import first_columns

        return np.asarray(first_columns(network, data.full))

    def _linear_columns(self, term: dict[str, Any], given: Given) -> Floats:
        if term["columns"] == "columns":
            made = self._tree_columns(term, given).astype(np.float64)
            mean, factor = self.arrays[term["scale"]]
            made = (np.copysign(np.log1p(np.abs(made)), made) - mean) * factor
            return np.hstack([made.clip(-term["most"], term["most"]), np.full((len(made), 1), term["constant"])])
        hops, links = term["hops"], (given.links, len(given.rows), given.weights)
        thrown = [self.arrays[name] for name in term["projections"]]
        own = unit_rows(given.rows)
        if term["columns"] == "wl":
            self._use_archive()
            from graphsilo.models.colours import colour_counts

            rows = colour_counts(given.graph, hops, term["base"], term["seed"]).toarray()
        elif term["columns"] == "separate":
            step, found = Operator(*links, loops=False), []
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
            step, rows = Operator(*links, loops=True), first
            for _ in range(hops):
                rows = step @ rows + (first if term["columns"] == "mean" else 0.0)
            rows = unit_rows(rows)
        if term["size"] is not None:  # a graph's nodes together
            start, sums = given.graph.pointer, np.vstack([np.zeros_like(rows[:1]), np.cumsum(rows, axis=0)])
            total, sizes = sums[start[1:]] - sums[start[:-1]], np.diff(start)[:, None]
            rows = np.hstack([total / np.maximum(sizes, 1), total / term["size"]])
        parts = [rows, np.full((len(rows), 1), term["constant"])]
        if term["labelled"]:
            parts.append(_label_columns(Operator(*links, loops=False), given.labels, term["classes"]))
        return np.hstack(parts)

    def _graph_columns(self, term: dict[str, Any], given: Given) -> Floats:
        self._use_archive()
        from scipy.sparse import csr_matrix

        from graphsilo.models.graph_columns import graph_columns

        count = len(given.rows)
        step = Operator(given.links, count, given.weights, loops=False)
        entries = step.weights.astype(np.float32), (step.target, step.source)
        return graph_columns(given.graph, csr_matrix(entries, (count, count)), term["dim"], term["seed"])

    def _tree_columns(self, term: dict[str, Any], given: Given) -> Floats:
        if term.get("columns") == "graphs":
            return self._graph_columns(term, given)
        own, links = given.rows, given.links
        if term["principal"]:
            length = np.sqrt((own**2).sum(axis=1, keepdims=True))
            inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0).astype(np.float32)
            own = np.rint((own.astype(np.float32) * inverse).astype(np.float64) * term["grid"]) / term["grid"]
            own = np.hstack([own @ self.arrays[name].astype(np.float64) for name in term["principal"]])
        # Where nodes have times, a link counts in one way: the other would tell a node of what came later.
        both = links if term["timed"] else np.hstack([links, links[::-1]])
        ways = [(both, None), (links, given.weights), (links[::-1], given.weights)]
        ways = ways[: 3 if term["directed"] else 2] if term["directed"] or term["weighted"] else ways[1:2]
        steps = [Operator(way, len(own), weights, loops=False) for way, weights in ways]
        parts = [own]
        for step in steps:
            one = step @ own
            parts += [one, step @ one]
            if not term["principal"]:
                parts.append(step.deviation(own, one, term["rounding"]))
            degree = np.log1p(step.degree)[:, None]
            parts += [degree, step @ degree]
        kinds, *ends = given.passing
        for kind, chosen in term["relations"]:
            step = Operator(np.stack(ends)[:, kinds == kind], len(own), loops=False)
            here = own if chosen is None else own[:, self.arrays[chosen]]
            one, degree = step @ here, np.log1p(step.degree)[:, None]
            parts += [one, degree]
            if chosen is not None:
                parts += [step.deviation(here, one, term["rounding"]), step @ degree]
        for step in steps if term["labelled"] else ():
            parts.append(_label_columns(step, given.labels, term["classes"]))
        return np.hstack(parts).astype(np.float32)


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


def given_of(graph: Graph | GraphCollection) -> Given:
    """What a graph, or a collection of them, is to a model, once it is ready for it."""
    from graphsilo.data.sources.looking_back import passing_rows

    union = graph.union
    rows: Any = union.features
    rows = np.asarray(rows if isinstance(rows, np.ndarray) else rows.toarray(), dtype=np.float64)
    found = passing_rows(union)
    passing = np.stack([found.kind, found.source, found.target])
    return Given(rows, union.edges.astype(np.int64), passing, None, union.edge_weights, graph)


def check(model: Model) -> tuple[dict[str, float], int]:
    """The largest differences to what the run said of some items, and how many of them are decided otherwise."""
    model.preparation()
    from graphsilo.data.sources.files import load_graph

    given = given_of(load_graph(model.folder / "check_graph.npz"))
    with np.load(model.folder / "check.npz", allow_pickle=False) as known:
        asked = known["asked"]  # nobody classifies nodes of other types
        said = {"scores": model.score_given(given)[asked]}
        if (model.folder / "model.onnx").exists():
            try:
                from onnxruntime import InferenceSession
            except ImportError:
                print("model.onnx is not looked at: onnxruntime is not installed.")
            else:
                found = InferenceSession(model.folder / "model.onnx", providers=["CPUExecutionProvider"])
                said["scores of model.onnx"] = found.run(None, model._inputs(given))[0][asked]
        worst = {name: float(np.abs(scores - known["scores"]).max(initial=0.0)) for name, scores in said.items()}
        if "decisions" not in known:
            return worst, 0
        calibrated, decisions = model.decide(said["scores"])
        if calibrated is not None:
            worst["calibrated"] = float(np.abs(calibrated - known["calibrated"]).max(initial=0.0))
        return worst, int((decisions != known["decisions"]).sum())


def _main(arguments: list[str]) -> int:
    if len(arguments) > 1 or any(argument in ("-h", "--help") for argument in arguments):
        print(__doc__)
        return 0 if len(arguments) < 2 else 2
    model = Model(Path(__file__).parent)
    if not arguments:
        worst, wrong = check(model)
        for name, difference in worst.items():
            print(f"largest difference to the run's {name}: {difference:.1e}")
        print(f"nodes that are decided otherwise: {wrong}")
        return int(max(worst.values()) > NEAR or wrong > 0)
    model.preparation()
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    from graphsilo.errors import GraphsiloError
    from graphsilo.spreadsheets import csv_text

    try:
        ids, scores = model.score_tables(arguments[0])
    except GraphsiloError as error:
        raise SystemExit(str(error)) from None
    classes = model.about["classes"]
    lines = [[str(name), *(f"{value:.9g}" for value in line)] for name, line in zip(ids, scores, strict=True)]
    heading = ["graph" if model.about["task"] == "graph" else "node", *classes]
    if model.about["decision"]:
        calibrated, decisions = model.decide(scores)
        more = {} if calibrated is None else {"calibrated": [f"{chance:.9g}" for chance in calibrated]}
        more["decision"] = [classes[chosen] for chosen in decisions]
        lines = [[*line, *beside] for line, *beside in zip(lines, *more.values(), strict=True)]
        heading += more
    sys.stdout.write(csv_text([heading, *lines]))
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
