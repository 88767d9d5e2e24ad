"""FedTrees' client: counts into histograms, and chooses between the common forest, a corrected one and its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.silos.targets import scaled_targets
from graphsilo.errors import MessageError, RequestError, refuse_unless
from graphsilo.evaluate.choice import CLEAR, Judge
from graphsilo.evaluate.metrics import find_selecting
from graphsilo.federation.candidates import Candidates
from graphsilo.federation.client import ClientBase, ClientContext
from graphsilo.federation.interface import handler
from graphsilo.federation.message import Done, Tensors
from graphsilo.methods.fedtrees import bins, forest
from graphsilo.methods.fedtrees.config import FedTreesConfig
from graphsilo.methods.fedtrees.directions import round_to_grid, second_moments
from graphsilo.methods.fedtrees.forest import Floats, Layout, Whole
from graphsilo.methods.fedtrees.messages import (
    FORESTS,
    AdoptRequest,
    Cells,
    CellsRequest,
    CountRequest,
    Counts,
    DirectionsRequest,
    HistogramRequest,
    Histograms,
    Moments,
    MomentsRequest,
    StartRequest,
)
from graphsilo.models.columns import label_columns
from graphsilo.models.graph_columns import graph_columns
from graphsilo.models.node_columns import list_classified, node_columns, place_classified, views_of
from graphsilo.models.shares import Shares
from graphsilo.models.view import GraphTensors
from graphsilo.training.sharing import are_equal, shared_copy

T = TypeVar("T")
COMMON, CORRECTED, ALONE = FORESTS
COLUMNS = "trees columns"


class Client(ClientBase[FedTreesConfig]):
    """Counts into histograms, and chooses between the common forest, a corrected one and its own."""

    def __init__(self, context: ClientContext[FedTreesConfig]):
        super().__init__(context)
        self._directions = torch.zeros(self.silo.schema.num_features, 0)
        self._edges = torch.zeros(0, self.config.bins - 1)
        self._class_weights = torch.ones(self.silo.schema.num_classes, dtype=torch.float64)
        self._scale = 1
        self._forests: dict[str, Tensors] = {}
        self._aggregate: Tensors | None = None
        self._chosen = COMMON
        self.chooses = True
        self._margins: dict[tuple[str, int], tuple[Any, int, Floats]] = {}
        self._held: dict[str, tuple[int, Any]] = {}

    # -- the sums ------------------------------------------------------------------------------------------------

    @cached_property
    def train(self) -> NDArray[np.int64]:
        """Training nodes that count: labelled, of a class with enough of them."""
        return self.silo.train_of_classes(self.config.min_count)

    @cached_property
    def _labels(self) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self.silo.labels[self.train]
        return found

    @cached_property
    def _targets(self) -> NDArray[np.float64]:
        """[n, m] of these nodes."""
        return scaled_targets(self.silo)[self.train].astype(np.float64)

    @handler
    def count(self, request: CountRequest) -> Counts:
        """Training nodes by class."""
        counts = np.bincount(self._labels, minlength=self.silo.schema.num_classes)
        return Counts(classes=torch.from_numpy(counts))

    @handler
    def moments(self, request: MomentsRequest) -> Moments:
        """How wide features lie along some directions."""
        refuse_unless(self._are_directions(request.basis), "directions")
        found = second_moments(self.data.graph.features, self.train, request.basis.numpy())
        return Moments(sums=torch.from_numpy(found))

    @handler
    def project(self, request: DirectionsRequest) -> Done:
        """Take the directions onto which wide features are projected; whoever has these keeps what it made of them."""
        if not (self._directions.numel() and torch.equal(self._directions, request.directions)):
            self._project(request.directions)
        return Done(clients=1)

    def _project(self, directions: Tensor) -> None:
        refuse_unless(self._are_directions(directions), "directions")
        self._directions = directions.clone()
        self._forget()

    @cached_property
    def _which(self) -> int:
        """Tells directions apart."""
        return hash(self._directions.numpy().tobytes())

    def _are_directions(self, found: Tensor) -> bool:
        schema = self.silo.schema
        return (
            found.shape == (schema.num_features, self.config.principal(schema))
            and bool((found.abs() <= 1).all())
            and np.array_equal(round_to_grid(found.double().numpy()), found.numpy())
        )

    @handler
    def cells(self, request: CellsRequest) -> Cells:
        """Training nodes by cell of each column."""
        cells = request.cells.numpy()
        known = np.sort(cells, axis=1)
        refuse_unless(
            len(cells) == self._trained.shape[1] and cells.shape[1] < self.config.bins
            and (cells >= -1).all() and (cells < 1 << bins.COARSE).all()
            and not ((known[:, 1:] == known[:, :-1]) & (known[:, 1:] >= 0)).any(),
            "cells",
        )  # fmt: skip
        found = bins.fine_counts(self._trained, cells) if cells.shape[1] else bins.coarse_counts(self._trained)
        found = found.reshape(len(cells), -1)
        return Cells(counts=torch.from_numpy(self._hide_small(found, found).astype(np.int32)))

    def _hide_small(self, numbers: NDArray[Any], counts: NDArray[Any]) -> NDArray[Any]:
        """Numbers, with 0 for those of fewer rows than a silo may report."""
        return numbers if self.config.min_count == 1 else np.where(counts >= self.config.min_count, numbers, 0)

    @handler
    def start(self, request: StartRequest) -> Done:
        """Begin a forest; one that began like this goes on."""
        weights, edges, steps = request.class_weights.numpy(), request.edges.numpy(), request.scale
        refuse_unless(
            edges.shape == (self._trained.shape[1], self.config.bins - 1) and (edges[:, 1:] >= edges[:, :-1]).all()
            and (np.abs(edges) <= bins.LARGEST).all()
            and len(weights) == self.silo.schema.num_classes and np.isfinite(weights).all() and (weights >= 0).all()
            and len(request.base) == forest.outputs_of(self.silo.schema) and bool(request.base.isfinite().all())
            and steps >= 1 and steps & (steps - 1) == 0 and forest.fits(steps, 1, self._heaviest(weights))
            and (self.config.own or not request.own),
            "a beginning",
        )  # fmt: skip
        if self._has_begun(request):
            return Done(clients=1)
        self._edges, self._class_weights = request.edges.clone(), request.class_weights.clone()
        self._scale = steps
        self._forget()
        self._forests = {COMMON: forest.empty(request.base.double().numpy(), self.config.depth)}
        if request.own:
            base = np.zeros(len(request.base))
            if not self.silo.has_targets:
                base = forest.base_of(weights * np.bincount(self._labels, minlength=len(weights)))
            self._forests[CORRECTED] = dict(self._forests[COMMON])
            self._forests[ALONE] = forest.empty(base, self.config.depth)
        return Done(clients=1)

    def _heaviest(self, weights: NDArray[np.float64]) -> float:
        return forest.heaviest_of(self.silo.schema, weights)

    def _has_begun(self, request: StartRequest) -> bool:
        common = self._forests.get(COMMON)
        return (
            common is not None and torch.equal(common["base"], request.base)
            and torch.equal(self._edges, request.edges) and torch.equal(self._class_weights, request.class_weights)
            and (self._scale, ALONE in self._forests) == (request.scale, request.own)
        )  # fmt: skip

    @handler
    def histograms(self, request: HistogramRequest) -> Histograms:
        """Sums of the next level of a tree."""
        self._require_steps(request.step)
        layout, wanted = self.layout(request.step)[0], request.wanted.numpy()
        outputs, upper = request.columns.shape
        refuse_unless(
            upper < 2**self.config.depth - 1 and upper & (upper + 1) == 0
            and outputs == len(self._forests[COMMON]["base"]) and request.thresholds.shape == request.columns.shape
            and forest.has_valid_splits(request.columns, request.thresholds, self._trained.shape[1])
            and len(wanted) and (wanted >= 0).all() and (wanted < [outputs, upper + 1]).all()
            and len(np.unique(wanted, axis=0)) == len(wanted)
            and np.array_equal(request.ends.numpy(), layout.ends)
            and request.largest == forest.largest_of(self._scale, self._heaviest(self._class_weights.numpy())),
            "histograms",
        )  # fmt: skip
        nodes = forest.leaves_of(self._trained, request.columns, request.thresholds)
        found = self._sums(COMMON, request.step, nodes, wanted)
        # Too large are they only if the steps are no run's, and a refusal would tell of the silo's rows.
        found = self._hide_small(found, found[2]).clip(-forest.LARGEST_SUM, forest.LARGEST_SUM)
        first, second, counts = torch.from_numpy(found.astype(np.int32))
        return Histograms(gradients=first, hessians=second, counts=counts)

    def _require_beginning(self) -> None:
        if not self._forests:
            raise RequestError(
                "this silo has missed the beginning of the forest, and with it the bins of its columns. It can take "
                "part once it is sent these again."
            )

    def _require_steps(self, steps: int) -> None:
        self._require_beginning()
        have = len(self._forests[COMMON]["columns"])
        if have != steps:
            raise RequestError(
                f"this silo has {have} trees of the common forest, and the next one after {steps} was asked "
                f"for or sent: it has missed some. It can take part again once it is given the forest."
            )

    def _sums(self, track: str, step: int, nodes: Whole, wanted: Whole) -> Floats:
        """[3, W, B] histograms of the own rows for the tree of a step, beside what a forest says so far."""
        layout, places = self.layout(step)
        first, second = self._make_once((track, step), lambda: self._whole_gradients(track))
        return forest.histograms(places, layout.size, nodes, wanted, first, second)

    def _whole_gradients(self, track: str) -> tuple[Whole, Whole]:
        first, second = self._gradients(track)
        return (self._scale * first).round().astype(np.int64), (self._scale * second).round().astype(np.int64)

    def _gradients(self, track: str) -> tuple[Floats, Floats]:
        margins = self._update_margins(track, self.data)[place_classified(self.data, self.train)]
        if self.silo.has_targets:
            return forest.target_gradients(margins, self._targets, self.silo.schema.task)
        return forest.gradients(margins, self._labels, self._class_weights.numpy()[self._labels])

    def layout(self, step: int) -> tuple[Layout, NDArray[np.int32]]:
        """What stands where in the histograms of a step, and the entries that each own row counts in."""

        def make() -> tuple[Layout, NDArray[np.int32]]:
            layout = Layout.draw(self._edges.numpy(), self.config.num_drawn(len(self._edges)), self.context.seed, step)
            return layout, layout.places(self._codes)

        return self._make_once(("layout", step), make)

    def _make_once(self, key: tuple[str, int], make: Callable[[], T]) -> T:
        """What all levels of a tree need: made for the first one."""
        name, step = key
        if name not in self._held or self._held[name][0] != step:
            self._held[name] = step, make()
        found: T = self._held[name][1]
        return found

    @cached_property
    def _codes(self) -> NDArray[np.uint8]:
        return bins.codes_of(self._trained, self._edges.numpy())

    @cached_property
    def _trained(self) -> NDArray[np.float32]:
        return self._rows(self.data)[place_classified(self.data, self.train)]

    # -- the columns ---------------------------------------------------------------------------------------------

    def _rows(self, data: GraphTensors) -> NDArray[np.float32]:
        """[m, p] the columns of the nodes that are classified, or of all graphs, held."""
        if (graphs := data.collection) is not None:
            dim, seed = self.config.dim, self.context.seed
            return _hold_columns(data, (dim, seed), (), lambda: graph_columns(graphs, data.matrix("mean"), dim, seed))
        config = self.config
        if self._directions.shape[1] != config.principal(self.silo.schema):
            raise RequestError("this silo has missed the directions onto which its features are projected.")
        key = (config.dim, self.context.seed, config.label_features, self._which)
        labelled = config.has_labels(self.silo.schema) and self._is_own(data)
        mine = (self.train.tobytes(), self._labels.tobytes()) if labelled else ()
        return _hold_columns(data, key, mine, lambda: self._make_rows(data, list_classified(data)))

    def _is_own(self, data: GraphTensors) -> bool:
        """Nothing is known of labels around the nodes of other graphs."""
        return data.graph is self.silo.graph or data.graph is self.silo.seen.graph

    def _make_rows(self, data: GraphTensors, nodes: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.float32]:
        """[m, p] the columns of some nodes of a graph."""
        config, schema = self.config, self.silo.schema
        views, relations = views_of(data, schema), (data, schema) if schema.relations else None
        found = [node_columns(views, config.dim, self._directions.numpy(), self.context.seed, relations, nodes)]
        for view in views if config.has_labels(schema) else ():
            columns = sp.csr_matrix((data.num_nodes, 2 * schema.num_classes))
            if self._is_own(data):
                columns = label_columns(view, self.train, self._labels, schema.num_classes, of=self.data)
            found.append(columns[nodes].toarray().astype(np.float32))
        return np.hstack(found, dtype=np.float32)

    # -- the forests ---------------------------------------------------------------------------------------------

    @handler
    def adopt(self, request: AdoptRequest) -> Candidates:
        """Keep the common forest; correct its new leaves, grow trees of the own rows, and choose by own validation."""
        self._require_beginning()
        refuse_unless(
            self._is_forest(request.forest) and request.first >= 0
            and request.first + len(request.forest["columns"]) <= self.config.rounds
            and 0 <= request.preferred < len(FORESTS),
            "a forest",
        )  # fmt: skip
        known, given = self._forests[COMMON], shared_copy(request.forest, "cpu")
        have = len(known["columns"])
        if request.first > have:
            self._require_steps(request.first)
        refuse_unless(torch.equal(known["base"], given["base"]), "a forest")
        # It has some of the new ones, too, where its answer was lost.
        kept = request.first + forest.count_common_trees(forest.trees(known, request.first), given)
        if kept < have:  # the run went back, and other trees grew: what was made of these is made again
            self._forests = {track: forest.trees(each, 0, kept) for track, each in self._forests.items()}
            self._margins, self._held = {}, {}
        self._forests[COMMON] = forest.extend(forest.trees(known, 0, request.first), given) if request.first else given
        if ALONE in self._forests:
            for step in range(kept, len(self._forests[COMMON]["columns"])):
                self._correct(step)
                self._grow_alone(step)
            if self.chooses:
                return self._choose(request.preferred)
        return Candidates.none(self.silo.schema.num_classes)

    def _correct(self, step: int) -> None:
        tree = {name: each[step : step + 1] for name, each in self._forests[COMMON].items() if name != "base"}
        leaves = forest.leaves_of(self._trained, tree["columns"][0], tree["thresholds"][0])
        sums = np.zeros((2, *tree["values"].shape[1:]))
        for kind, each in enumerate(self._gradients(CORRECTED)):
            for output in range(leaves.shape[1]):
                sums[kind, output] = np.bincount(leaves[:, output], each[:, output], minlength=sums.shape[2])
        mine = forest.correct_leaves(tree, sums, self.config.rule, self.config.own_weight)
        self._forests[CORRECTED] = forest.extend(self._forests[CORRECTED], mine)

    def _grow_alone(self, step: int) -> None:
        mine = self._forests[ALONE]
        growing = forest.Growing(self.config.rule, self.layout(step)[0], len(mine["base"]), self._scale)
        nodes = None
        while len(growing.wanted):
            upper = torch.from_numpy(growing.columns), torch.from_numpy(growing.thresholds)
            nodes = forest.leaves_of(self._trained, *upper, nodes)
            growing.grow(self._sums(ALONE, step, nodes, growing.wanted))
        self._forests[ALONE] = forest.extend(mine, growing.tree())

    @cached_property
    def _judge(self) -> tuple[Judge, NDArray[np.int64]]:
        """Of the own validation nodes, and these."""
        items = self.silo.labelled_validation()
        seen = self.silo.seen.graph
        labels = scaled_targets(self.silo, seen) if self.silo.has_targets else seen.labels
        return Judge(find_selecting(self.context.select_by, self.silo.schema.task), labels[items], CLEAR), items

    def _choose(self, preferred: int) -> Candidates:
        """Take the forest that all silos prefer, or another one where the own validation nodes clearly do."""
        (judge, items), data = self._judge, self.tensors(self.silo.seen.graph)
        places = place_classified(data, items)
        outputs = [self._say(self._update_margins(track, data)[places]) for track in FORESTS]
        order = [preferred, *(place for place in range(len(FORESTS)) if place != preferred)]
        self._chosen = FORESTS[order[judge.best([outputs[place] for place in order], apart=2)]]
        return Candidates.from_outputs(judge, outputs, self.silo.schema.num_classes)

    def _update_margins(self, track: str, data: GraphTensors) -> Floats:
        """[m, C'] what a forest says of the items of ``_rows``, kept from step to step."""
        known, key = self._forests[track], (track, id(data))
        steps, held = len(known["columns"]), self._margins.get(key)
        if held is None or held[0] is not data or held[1] > steps:
            held = (data, 0, np.tile(known["base"].double().numpy(), (len(self._rows(data)), 1)))
        if held[1] < steps:
            forest.add_trees(held[2], self._rows(data), known, range(held[1], steps))
        self._margins[key] = (data, steps, held[2])
        return held[2]

    # -- prediction ----------------------------------------------------------------------------------------------

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        if not (self._aggregate if view == "aggregate" else self._forests):  # before round 1
            return self.predict_undecided(data.full.num_items)
        track, known = COMMON, self._aggregate
        if view != "aggregate" or known is None:
            track, known = self._track(view), self._forests[self._track(view)]
        base = known["base"].double().numpy()
        if known is self._forests.get(track) or (track in self._forests and are_equal(self._forests[track], known)):
            margins = self._update_margins(track, data)
        else:
            margins = np.tile(base, (len(self._rows(data)), 1))
            forest.add_trees(margins, self._rows(data), known, range(len(known["columns"])))
        said, nodes = self._say(margins), list_classified(data)
        if not isinstance(nodes, slice):  # nobody asks of others
            of_all = np.tile(self._say(base[None]), (data.num_nodes, 1))
            of_all[nodes] = said
            said = of_all
        return torch.from_numpy(said).to(data.device)

    def explain(self, data: GraphTensors, items: NDArray[np.int64], output: Tensor, view: str = "own") -> list[Shares]:
        from graphsilo.methods.fedtrees.shares import tree_shares
        from graphsilo.models.column_shares import describe_columns, explain_rows
        from graphsilo.models.shares import list_usual

        known = self._aggregate if view == "aggregate" else self._forests.get(self._track(view))
        if known is None or data.collection is not None:
            return super().explain(data, items, output, view)
        weights, rows = output.double().numpy(), self._make_rows(data)
        weights = weights[1:] if len(known["base"]) < len(weights) else weights  # of two classes one has no trees
        train, labels = self.train, None
        if data.graph is not self.data.graph:
            train = data.graph.rows_of(self.data.graph.global_ids[train])
        usual, against = list_usual(data, train)
        base, shares = tree_shares(rows[items], self._trained if len(train) else rows[usual], known, weights)
        if self.config.has_labels(self.silo.schema):
            shape = (data.num_nodes, self.silo.schema.num_classes)
            labels = sp.csr_matrix((np.ones(len(train)), (train, self._labels)), shape=shape)
        described = describe_columns(
            views_of(data, self.silo.schema), rows, self._directions.numpy(), self.config.dim, self.context.seed,
            labels, self.class_names, self.silo.schema,
        )  # fmt: skip
        return explain_rows(rows, shares, base, items, usual, against, described)

    def portable(self, view: str = "own", *, labelled: bool = True) -> list[dict[str, Any]]:
        from graphsilo.methods.fedtrees.shares import portable_forest

        known = self._aggregate if view == "aggregate" else self._forests.get(self._track(view))
        schema = self.silo.schema
        if known is None:
            return super().portable(view, labelled=labelled)
        return [{
            **portable_forest(known, self._directions.numpy(), schema, self.config.dim, self.context.seed),
            "width": self.config.width(schema), "labelled": schema.task != "graph" and self.config.has_labels(schema),
            "timed": self.silo.graph.union.time is not None,
        }]  # fmt: skip

    def _say(self, margins: Floats) -> NDArray[np.float32]:
        """[n, C] log-probabilities; of targets as they are: numbers, or logits of labels."""
        if self.silo.has_targets:
            return margins.astype(np.float32)
        found: NDArray[np.float32] = F.log_softmax(torch.from_numpy(forest.logits(margins)), dim=1).float().numpy()
        return found

    def install_aggregate(self, weights: Tensors) -> None:
        if weights and not self._is_forest(weights):
            raise MessageError("the aggregate is no forest of this method's settings.")
        self._aggregate = dict(weights) or None

    def _is_forest(self, found: Tensors) -> bool:
        like = forest.empty(np.zeros(forest.outputs_of(self.silo.schema)), self.config.depth)
        return (
            dict(found).keys() == like.keys()
            and all(
                each.shape[1:] == like[name].shape[1:] and each.dim() == like[name].dim()
                for name, each in found.items()
            )
            and len({len(each) for name, each in found.items() if name != "base"}) == 1
            and found["base"].shape == like["base"].shape
            and forest.has_valid_splits(found["columns"], found["thresholds"], self.config.width(self.silo.schema))
            and bool(found["values"].isfinite().all() and found["base"].isfinite().all())
        )

    def state(self) -> dict[str, Any]:
        return {
            "directions": self._directions, "edges": self._edges, "class_weights": self._class_weights,
            "scale": self._scale, "forests": self._forests, "chosen": self._chosen,
        }  # fmt: skip

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._directions, self._edges, self._class_weights = (
            state[name] for name in ("directions", "edges", "class_weights")
        )
        self._scale, self._chosen = int(state["scale"]), str(state["chosen"])
        self._forests = {track: dict(each) for track, each in state["forests"].items()}
        self._forget()

    def _forget(self) -> None:
        self._margins, self._held = {}, {}
        for name in ("_codes", "_trained", "_which"):
            self.__dict__.pop(name, None)

    def release(self) -> None:
        self._forget()

    def _track(self, view: str) -> str:
        """The forest of a view: ``own`` is what was chosen, and who grows none of its own has the common one."""
        track = self._chosen if view == "own" else view
        return track if track in self._forests else COMMON

    def model_of(self, view: str) -> Tensors:
        """What ``load_final`` needs of a view: ``own`` or one of ``FORESTS``."""
        return {**self._forests[self._track(view)], "directions": self._directions}

    def final_models(self) -> dict[str, Tensors]:
        return {view: self.model_of(view) for view in ("own", COMMON)} if self._forests else {}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        self._project(next(iter(models.values()))["directions"])
        self._forests = {
            view: {name: each for name, each in model.items() if name != "directions"} for view, model in models.items()
        }
        self._chosen = "own"

    def study(self) -> Mapping[str, Any]:
        """Which forest the silo's own validation nodes chose: 0 the common one, 1 a corrected one, 2 its own alone."""
        return {"chosen": float(FORESTS.index(self._chosen))} if self._chosen in self._forests else {}


def _hold_columns(
    data: GraphTensors, key: tuple[Any, ...], mine: tuple[bytes, ...], make: Callable[[], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """A graph's columns, made at first use. Those of another seed, or of other directions, are no longer held then: a
    coordinator may ask for any number of these."""
    held: dict[tuple[Any, ...], dict[Any, NDArray[np.float32]]] = data.cached((COLUMNS,), dict)
    if key not in held:
        held.clear()
        held[key] = {}
    if mine not in held[key]:
        held[key][mine] = make()
    return held[key][mine]
