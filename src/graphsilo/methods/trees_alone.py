"""Trees alone — every silo boosts trees on its own columns, without neighbours and without the others.

Friedman, Greedy function approximation, Annals of Statistics 2001; scikit-learn's histogram trees.

What has to be beaten where nodes come from tables: the columns of the nodes, with what is added up over their links
where the data has such sums, and nothing of what neighbours look like. How large trees are and how many, a silo's own
validation items say. No model leaves a silo, only counts for the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Annotated, Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from graphsilo.data.silos.targets import scaled_targets
from graphsilo.errors import UnsupportedError
from graphsilo.evaluate.metrics import find_selecting
from graphsilo.federation.client import ClientBase, ClientContext
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Done, Empty, Tensors
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerBase
from graphsilo.federation.settings import OneRoundConfig, setting
from graphsilo.models.view import GraphTensors
from graphsilo.settings import Widths

_STEP = 10
"""Boosting steps after which validation items are asked."""
_PATIENCE = 30
"""Steps without a better answer of theirs after which no more are made."""
_TINY = 1e-12
_UNDECIDED = -1e12
"""Less than any answer is worth."""


Leaves: TypeAlias = Annotated[int, Field(ge=2, le=1024)]


class TreesAloneConfig(OneRoundConfig):
    """Settings of trees alone."""

    leaves: tuple[Leaves, ...] = setting(
        (7,), "most leaves of a tree: those to choose among", source="ours; scikit-learn: 31", min_length=1
    )
    min_child: Widths = setting(
        (5, 20), "fewest training nodes in a leaf: those to choose among", source="ours; scikit-learn: 20"
    )
    iterations: int = setting(
        200, "steps of boosting, of which validation chooses; 30 without a better one end them", source="ours", ge=1,
        le=10_000,
    )  # fmt: skip
    lr: float = setting(0.05, "what a tree's leaves are multiplied by", source="ours; scikit-learn: 0.1", gt=0, le=1)

    @property
    def chooses_by_validation(self) -> bool:
        """Each silo how large its trees are, and how many."""
        return True


class Client(ClientBase[TreesAloneConfig]):
    """Grows trees of its own rows, and keeps those that its validation items prefer."""

    kept = ("trees",)

    def __init__(self, context: ClientContext[TreesAloneConfig]):
        super().__init__(context)
        self.metric = find_selecting(context.select_by, self.silo.schema.task)
        self.trees: Tensors = {}
        if self.data.collection is not None or not self.silo.schema.num_features:
            raise UnsupportedError("trees_alone looks at columns of nodes, and there are none here: take fedtrees.")

    @handler
    def grow(self, request: Empty) -> Done:
        """Choose leaves, fewest rows and steps by validation items; of equals the first."""
        items, seen = self.silo.labelled_validation(), self.silo.seen.graph
        rows, nodes = _rows(self.tensors(seen), items), self.silo.train_of_classes(1)
        has_targets = self.silo.has_targets
        labels: NDArray[Any] = scaled_targets(self.silo, seen)[items] if has_targets else seen.union.labels[items]
        known: NDArray[Any] = scaled_targets(self.silo)[nodes] if has_targets else self.silo.labels[nodes]
        best, first = -np.inf, None
        self.trees = {}
        if has_targets and len(known) < 2:
            return Done(clients=1)
        if not has_targets and len(np.unique(known)) < 2:
            if len(known):  # the one class is the answer
                share = np.bincount(known, minlength=self.silo.schema.num_classes) / len(known)
                self.trees = {"base": torch.from_numpy(np.log(np.maximum(share, _TINY)))}
            return Done(clients=1)
        trained = _rows(self.data, nodes)
        for leaves, fewest in product(self.config.leaves, self.config.min_child):
            asked = _Asked(self._worth, labels, rows)
            grown = self._grow(trained, known, leaves, fewest, asked)
            first = first or grown
            for step, worth in asked.about(grown):
                if worth is not None and worth > best:
                    best, self.trees = worth, {**grown, "start": grown["start"][: step + 1]}
        self.trees = self.trees or first or {}  # where nobody can choose: the first kind, all its steps
        return Done(clients=1)

    def _worth(self, labels: NDArray[Any], trees: Tensors, scores: NDArray[np.float64]) -> float | None:
        """How good the scores of validation items are; None where these do not say."""
        value = self.metric.of_outputs(labels, self._say(trees, scores)) if len(labels) else None
        return None if value is None else self.metric.goodness(value)

    def _grow(self, rows: NDArray[np.float32], known: NDArray[Any], leaves: int, fewest: int, asked: _Asked) -> Tensors:
        """scikit-learn's trees, until validation items have found none better for long."""
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        kind = HistGradientBoostingRegressor if self.silo.has_targets else HistGradientBoostingClassifier
        all_wanted = known.T.astype(np.float64) if self.silo.has_targets else [known]
        return _to_tensors([
            kind(
                learning_rate=self.config.lr, max_iter=self.config.iterations, max_leaf_nodes=leaves,
                min_samples_leaf=fewest, random_state=0,  # of the rows that decide on bins, where there are very many
                # Trees of several targets are judged together, which is possible only when all are there.
                early_stopping=len(all_wanted) == 1, scoring=asked, validation_fraction=None,
                n_iter_no_change=_PATIENCE, tol=0,
            ).fit(rows, wanted)
            for wanted in all_wanted
        ])  # fmt: skip

    def _say(self, trees: Tensors, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """[n, C] log-probabilities of all classes, or numbers."""
        return scores if self.silo.has_targets else self._logarithms(trees, scores)

    def _logarithms(self, trees: Tensors, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """[n, C] log-probabilities of all classes, also of those that the silo has never seen."""
        if scores.shape[1] == 1:
            scores = np.hstack([np.zeros_like(scores), scores])
        found = np.full((len(scores), self.silo.schema.num_classes), np.log(_TINY))
        shares = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
        found[:, trees["classes"].numpy()] = np.maximum(shares, np.log(_TINY))
        return found

    no_export = "its trees are scikit-learn's; those of fedtrees have one"

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        if not self.trees:
            return self.predict_undecided(data.full.num_items)
        if "value" not in self.trees:
            return self.trees["base"].float().expand(data.full.num_items, -1).to(data.device)
        *_, scores = _scores(self.trees, _rows(data, np.arange(data.num_nodes)))
        return torch.from_numpy(self._say(self.trees, scores).astype(np.float32)).to(data.device)

    def final_models(self) -> dict[str, Tensors]:
        return {"own": dict(self.trees)}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        self.trees = dict(models["own"])


class _Asked:
    """Validation items, which scikit-learn asks after every step in place of its own.

    Args:
        worth: How good an answer is.
        labels: Of the items, or targets.
        rows: [items, d] their features.
    """

    def __init__(
        self, worth: Callable[[NDArray[Any], Tensors, NDArray[np.float64]], float | None], labels: NDArray[Any],
        rows: NDArray[np.float32],
    ):  # fmt: skip
        self.worth, self.labels, self.rows = worth, labels, rows
        self.best = -np.inf
        self.scores: NDArray[np.float64] | None = None
        self.worths: list[tuple[int, float | None]] = []

    def about(self, grown: Tensors) -> Iterator[tuple[int, float | None]]:
        """How good the answers of so many steps are, those that were asked while the trees grew and the last ones."""
        yield from self.worths
        done, count = self.worths[-1][0] if self.worths else 0, len(grown["start"]) - 1
        rest = {**grown, "start": grown["start"][done:]}
        for step, scores in enumerate(_scores(rest, self.rows, self.scores), start=done + 1):
            if step % _STEP == 0 or step == count:
                yield step, self.worth(self.labels, grown, scores)

    def __call__(self, model: Any, *rows_and_labels: Any) -> float:
        """How good the best answer so far is; ever better where the items do not say, so that nothing ends early."""
        step = len(model._predictors)
        if step and not step % _STEP:
            trees = _to_tensors([model], after=step - _STEP)
            *_, scores = _scores(trees, self.rows, self.scores)
            worth, self.scores = self.worth(self.labels, trees, scores), scores
            self.worths.append((step, worth))
            self.best = max(self.best, _UNDECIDED + step if worth is None else worth)
        return self.best


def _to_tensors(fitted: Sequence[Any], after: int = 0) -> Tensors:
    """scikit-learn's trees as tensors, those of a step side by side: nodes of one after the other."""
    # Each of several targets has trees of its own: those of one step stand side by side, as those of classes do.
    steps = [
        [tree.nodes for part in step for tree in part]
        for step in zip(*(each._predictors[after:] for each in fitted), strict=True)
    ]
    nodes = np.concatenate([tree for step in steps for tree in step])
    sizes = np.array([[len(tree) for tree in step] for step in steps], dtype=np.int64)
    start = np.cumsum(sizes.ravel()).reshape(sizes.shape) - sizes
    found = {
        "feature": nodes["feature_idx"].astype(np.int64),
        "threshold": nodes["num_threshold"].astype(np.float64),
        "left": np.where(nodes["is_leaf"], -1, nodes["left"].astype(np.int64)),
        "right": nodes["right"].astype(np.int64),
        "value": nodes["value"].astype(np.float64),
        "start": np.vstack([start[:1], start]),  # the first row stands for no step at all
        "base": np.concatenate([np.ravel(each._baseline_prediction) for each in fitted]).astype(np.float64),
        "classes": getattr(fitted[0], "classes_", np.arange(0)).astype(np.int64),
    }
    return {name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in found.items()}


def _scores(
    trees: Tensors, rows: NDArray[np.float32], before: NDArray[np.float64] | None = None
) -> Iterator[NDArray[np.float64]]:
    """[n, 1 or C] scores of some rows after each step, in one array; ``before``: those to begin with."""
    feature, threshold, left, right, value, start = (
        trees[name].numpy() for name in ("feature", "threshold", "left", "right", "value", "start")
    )
    total = np.tile(trees["base"].numpy(), (len(rows), 1)) if before is None else before
    for step in start[1:]:
        for output, first in enumerate(step.tolist()):
            place = np.zeros(len(rows), dtype=np.int64)
            moving = np.arange(len(rows)) if left[first] >= 0 else np.zeros(0, dtype=np.int64)
            while len(moving):
                at = first + place[moving]
                goes = rows[moving, feature[at]] <= threshold[at]
                place[moving] = np.where(goes, left[at], right[at])
                moving = moving[left[first + place[moving]] >= 0]
            total[:, output] += value[first + place]
        yield total


def _rows(data: GraphTensors, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
    """[nodes, d] features of some nodes."""
    rows = data.graph.features[nodes]
    return np.asarray(rows.toarray() if sp.issparse(rows) else rows)


class Server(ServerBase[TreesAloneConfig]):
    """Only says when to grow."""

    def round(self, federation: Federation, number: int) -> None:
        # There is no other round: with ``participation``, too, every silo has trees.
        federation.sum(Client.grow, Empty()).require(self.config.min_clients)


METHOD = Method(
    about=__doc__,
    name="trees_alone",
    family="references",
    config=TreesAloneConfig,
    client=Client,
    server=Server,
    tasks=("node", "regression"),
    heterogeneous=True,
    evaluates=("own",),
    alone=True,
    seedless=True,
    backbone=False,
    edge_weights=True,
    quick={"iterations": 20, "leaves": (7,), "min_child": (1,)},
    trials={
        "participation": Trial(reason="every silo is by itself"),
        "leaves": Trial([(2,)]),
        "min_child": Trial([(20,)]),
    },
)
