"""FedRidge's client: sums once, scores candidates once, and corrects the model it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.silos.targets import scaled_targets
from graphsilo.errors import MessageError, RequestError, refuse_unless
from graphsilo.evaluate.choice import Judge, confusions, weight_scores
from graphsilo.evaluate.metrics import find_selecting
from graphsilo.evaluate.scores import Score
from graphsilo.federation.candidates import Candidates
from graphsilo.federation.client import ClientBase, ClientContext
from graphsilo.federation.interface import handler
from graphsilo.federation.message import Done, Tensors
from graphsilo.federation.release import Release, Released, ReleaseRequest, refuse_without_noise
from graphsilo.methods.fedridge import columns
from graphsilo.methods.fedridge.columns import RELATED
from graphsilo.methods.fedridge.config import FedRidgeConfig, kind_of
from graphsilo.methods.fedridge.features import CONSTANT, Features, Recipe, key_of
from graphsilo.methods.fedridge.labels import LABELLED, Joined, OfSome
from graphsilo.methods.fedridge.messages import (
    AdoptRequest,
    ColumnsRequest,
    ColumnSums,
    CountRequest,
    Counts,
    ScaleRequest,
    ScoreRequest,
    Statistics,
    StatisticsRequest,
    TargetCounts,
    TargetStatisticsRequest,
    halves,
)
from graphsilo.methods.fedridge.private import NOISY, SENSITIVITY, weighted_sums
from graphsilo.methods.fedridge.solve import corrections, pack, upper_product
from graphsilo.models.columns import BLOCK, label_columns
from graphsilo.models.node_columns import list_classified, place_classified, views_of
from graphsilo.models.shares import Linear, Shares, explain_sum, list_usual
from graphsilo.models.view import GraphTensors
from graphsilo.training.losses import binary_focal
from graphsilo.training.sharing import are_equal

LOGARITHMS = "ridge logarithms"
SHARPNESS = (2.0, 4.0, 8.0, 16.0, 32.0)
"""What predictions are multiplied by before they become probabilities: chosen at the client, on validation."""
USUAL_SHARPNESS = 8.0


class Client(ClientBase[FedRidgeConfig]):
    """Sums once, scores candidates once, and corrects the model it is given."""

    kept = ("_size", "_models", "_sharpness", "_held_out", "_scale")
    kept_on = "cpu"  # where sums are made and solved, whatever the device
    stateful = ("released",)

    def __init__(self, context: ClientContext[FedRidgeConfig]):
        super().__init__(context)
        self.metric = find_selecting(context.select_by, self.silo.schema.task)
        self._size = 1.0
        self._scale = torch.zeros(2, 0, dtype=torch.float64)
        self.released = Released(self.config, SENSITIVITY)
        self._models: dict[str, Tensors] = {}
        self._aggregate: Tensors | None = None
        self._sharpness: dict[str, dict[str, float]] = {}
        self.holds_out = False
        self._held_out: dict[str, Tensor] = {}

    # -- the sums ------------------------------------------------------------------------------------------------

    @cached_property
    def _train(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Training items that count: labelled, of a class with enough of them."""
        # With noise, a class that one more node makes large enough would come with all its rows.
        return self.silo.train_of_classes(self.config.min_count if self.config.epsilon is None else 1)

    @handler
    def count(self, request: CountRequest) -> Counts:
        """Training items by class."""
        refuse_without_noise(self.config)
        counts = np.bincount(self.silo.labels[self._train], minlength=self.silo.schema.num_classes)
        sizes = torch.tensor([self.data.num_nodes, self.silo.num_items])
        return Counts(classes=torch.from_numpy(counts), sizes=sizes)

    @handler
    def count_targets(self, request: CountRequest) -> TargetCounts:
        """Training items, and the squares of their targets."""
        found = self.count(request)
        squares = self._wanted(self._train).square().sum(0)
        return TargetCounts(classes=found.classes, sizes=found.sizes, squares=squares)

    @cached_property
    def _targets(self) -> NDArray[np.float32]:
        """[n, m] targets; of a label that fewer training items than may be told of have, or lack, as if none did."""
        found, trained = scaled_targets(self.silo), self._train
        if self.config.min_count > 1 and len(trained) and self.silo.schema.task == "multilabel":
            share = found[trained].mean(axis=0)
            rare = len(trained) * np.minimum(share, 1 - share) < self.config.min_count - 0.5
            found = np.where(rare, np.rint(share), found)
        return found

    def _wanted(self, items: NDArray[np.int64]) -> Tensor:
        """[items, C] float64 what a ridge is to say of training items: 1 for their class and 0 else, or targets."""
        if self.silo.has_targets:
            return torch.from_numpy(self._targets[items]).double()
        return F.one_hot(torch.from_numpy(self.silo.labels[items]), self.silo.schema.num_classes).double()

    @handler
    def add_columns(self, request: ColumnsRequest) -> ColumnSums:
        """How the columns of tables lie."""
        self._refuse_others(("columns",), self.config.dim, 1, 1)
        sums, squares = columns.add_moments(self._logarithms(self.data)[place_classified(self.data, self._train)])
        return ColumnSums(sums=sums, squares=squares, num_samples=len(self._train))

    @handler
    def scale_columns(self, request: ScaleRequest) -> Done:
        """Take the scale of these columns; whoever has it keeps what it made on it."""
        self._refuse_others(("columns",), self.config.dim, 1, 1)
        scale = request.scale
        refuse_unless(scale.shape[1] == sum(self._widths) and bool((scale[1] >= 0).all()), "a scale")
        self._scale = scale.clone()
        return Done(clients=1)

    @property
    def _widths(self) -> tuple[int, int]:
        return columns.widths(self.silo.schema, self.config.dim)

    def _logarithms(self, data: GraphTensors) -> NDArray[np.float32]:
        """[m, p] of the columns of tables, of the nodes that are classified; kept until they are put on a scale."""
        schema, dim, seed = self.silo.schema, self.config.dim, self.context.seed

        def make() -> NDArray[np.float32]:
            return columns.take_logarithms(columns.raw_columns(data, schema, dim, seed, list_classified(data)))

        return data.cached((LOGARITHMS,), make)

    def _columns(self, data: GraphTensors, recipe: Recipe) -> NDArray[np.float32]:
        """[m, p] the same on their scale."""
        if self._scale.shape[1] != sum(self._widths):
            raise RequestError("this silo has missed the scale of its columns.")
        held: dict[bytes, NDArray[np.float32]] = data.cached(key_of(data, recipe), dict)
        which = self._scale.numpy().tobytes()
        if which not in held:
            held.clear()
            held[which] = columns.standardise(self._logarithms(data), self._scale)
            data.forget(LOGARITHMS)
        return held[which]

    @handler
    def statistics(self, request: StatisticsRequest) -> Statistics:
        """The sums, for each kind of features and each balance."""
        refuse_without_noise(self.config)
        self._refuse_others(request.kinds, request.dim, len(request.class_weights), len(self.config.balance))
        classes, weights = self.silo.schema.num_classes, request.class_weights
        refuse_unless(
            0 < len(request.kinds) == len(set(request.kinds))
            and weights.shape[1] == classes and bool((weights >= 0).all()),
            "sums",
        )  # fmt: skip
        self._size = request.size
        moments: dict[str, Tensor] = {}
        products: dict[str, Tensor] = {}
        precise = self.config.precise(self.config.width(kind, request.dim, self.silo.schema) for kind in request.kinds)
        for kind in request.kinds:
            features = self._features(self.data, kind, request.dim)
            for place, weight in enumerate(weights):
                square: Tensor | None = None
                cross = torch.zeros(classes, features.width, dtype=torch.float64)
                for items, rows in features.blocks(self._train, np.float64 if precise else np.float32):
                    labels = torch.from_numpy(self.silo.labels[items])
                    scaled = rows if bool((weight == 1).all()) else rows * weight[labels][:, None].to(rows.dtype)
                    square = upper_product(rows, scaled, square)
                    if self.silo.has_targets:
                        cross += self._wanted(items).t() @ scaled.double()
                    else:
                        cross.index_add_(0, labels, scaled.double())
                if square is None:
                    square = torch.zeros(features.width, features.width)
                moments[f"{kind}/{place}"], products[f"{kind}/{place}"] = pack(square), cross
        self._forget_others(self.data, request.kinds, request.dim)
        single, rest = halves(moments, precise=precise)
        single_products, products_rest = halves(products, precise=precise)
        return Statistics(
            moments=single, products=single_products, moments_rest=rest, products_rest=products_rest,
            num_samples=len(self._train),
        )  # fmt: skip

    @handler
    def target_statistics(self, request: TargetStatisticsRequest) -> Statistics:
        """The same of targets."""
        return self.statistics(request)

    @handler
    def noisy_statistics(self, request: ReleaseRequest) -> Release:
        """The sums with noise, over rows in which no node is but their own."""

        def numbers() -> Tensor:
            rows = self._own_rows()
            found = weighted_sums(rows, self._train, self.silo.labels, self.silo.schema.num_classes)
            Features.forget_others(self.data, ())
            return found

        return self.released.answer(Release, request.honest, numbers)

    def _own_rows(self) -> Features:
        """The features that leave with noise, without neighbours."""
        return Features(self.data, replace(self._recipe(self.config.released), hops=0))

    @handler
    def score(self, request: ScoreRequest) -> Candidates:
        """Confusion counts of every candidate on the own validation items."""
        refuse_without_noise(self.config)
        self._refuse_others(request.candidates, request.dim, len(request.shifts), len(self.config.prior))
        refuse_unless(self._are_models(request.candidates, 3, request.dim, request.shifts), "candidates")
        self._size = request.size
        items, classes = self._validation, self.silo.schema.num_classes
        labels, shifts = self._judge.labels, request.shifts.float()
        has_targets = self.silo.has_targets
        found, ranked = [], list[Score]()
        for kind, candidates in request.candidates.items():
            features = self._features(self._seen, kind, request.dim)
            each = candidates.permute(1, 0, 2).flatten(1)
            counts = np.zeros((len(candidates) * len(shifts), classes, classes), dtype=np.int64)
            for start in range(0, len(items), BLOCK):
                part = slice(start, start + BLOCK)
                output = features.times(each, items[part]).view(-1, len(candidates), 1, classes) + shifts
                if has_targets:
                    counts[:, 0, 0] += len(items[part])
                else:
                    counts += confusions(labels[part], output.argmax(3).flatten(1).numpy(), classes)
            found.append(counts)
            if self.metric.ranking is not None:  # all items at once, one candidate after the other
                for weights in candidates:
                    output = features.times(weights, items)
                    ranked += [self.metric.rank(labels, self._say(output + shift).numpy()) for shift in shifts]
        self._forget_others(self._seen, request.candidates, request.dim)
        return Candidates(
            counts=torch.from_numpy(np.concatenate(found)),
            ranked={self.metric.name: torch.from_numpy(weight_scores(ranked))} if ranked else {},
        )

    def _refuse_others(self, kinds: Iterable[str], dim: int, times: int, most: int) -> None:
        """Refuse features that no run of these settings asks for: of others the silo's owner was told nothing.

        Args:
            kinds: Which.
            dim: Most of their columns.
            times: How often the sums, or scores, are asked for, and ``most`` how often they may be.

        Raises:
            RequestError: Some are.
        """
        config = self.config
        known = config.kinds(self.silo.schema) if config.epsilon is None else (config.released,)
        if not set(kinds) <= set(known) or dim not in self.config.dims or times > most:
            raise RequestError(
                f"features of a kind or width were asked for that no run of these settings asks for: {dim} columns, "
                f"{times} times; known are {', '.join(known)} of {' or '.join(map(str, self.config.dims))}, {most} "
                f"times."
            )

    def _are_models(self, found: Tensors, dims: int, dim: int, shifts: Tensor) -> bool:
        """Whether there are some, each of as many columns as its features have, and of all classes like the shifts."""
        schema = self.silo.schema
        return len(found) > 0 and shifts.shape[1] == schema.num_classes and all(
            each.dim() == dims and each.numel() > 0
            and tuple(each.shape[-2:]) == (self.config.width(name, dim, schema), schema.num_classes)
            for name, each in found.items()
        )  # fmt: skip

    @property
    def _seen(self) -> GraphTensors:
        return self.tensors(self.silo.seen.graph)

    @cached_property
    def _validation(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return self.silo.labelled_validation()

    # -- the models ----------------------------------------------------------------------------------------------

    @handler
    def adopt(self, request: AdoptRequest) -> Done:
        """Keep the common model; correct it towards the own rows, or take these alone, where own validation says so."""
        self._refuse_others(request.weights, self.config.dim, len(request.shifts), len(request.weights))
        refuse_unless(
            self._are_models(request.weights, 2, self.config.dim, request.shifts)
            and len(request.shifts) == len(request.weights) and bool((request.class_weights >= 0).all()),
            "models",
        )  # fmt: skip
        self._size = request.size
        models: dict[str, Tensors] = {"own": {}, "common": {}}
        sharpness: dict[str, dict[str, float]] = {"own": {}, "common": {}}
        for at, (name, common) in enumerate(request.weights.items()):
            if name.endswith(NOISY):
                models, sharpness = self._adopt_noisy(name, common)
                continue
            features = self._features(self.data, name)
            scores = partial(torch.matmul, other=common.double())
            changes, alone = self._fit_own(features, request.class_weights[at], scores)
            known = [common, *((common.double() + change).float() for change in changes), *alone]
            place = self._recipe(name).constant(self.data.num_features, graphs=self.silo.schema.task == "graph")
            # Shifted last: a correction of the shifted model would undo the shift.
            known = [shift_scores(weights, request.shifts[at], place) for weights in known]
            output = self._features(self._seen, name).times(torch.cat(known, dim=1), self._validation)
            outputs = output.split(self.silo.schema.num_classes, dim=1)
            scored = [self._to_scores(output) for output in outputs]
            best = self._judge.best(scored, len(alone))
            if self.holds_out:
                which = torch.from_numpy(self._judge.cross_validate(scored, len(alone)))
                self._held_out[name] = torch.stack(outputs)[which, torch.arange(len(which))]
            for view, chosen in (("own", best), ("common", 0)):
                models[view] = {**models[view], name: known[chosen]}
                sharpness[view][name] = self._sharpest(outputs[chosen])
        self._models, self._sharpness = models, sharpness
        for data in (self.data, self._seen):
            self._forget_others(data, self._models["own"].keys() | request.weights.keys())
        return Done(clients=1)

    def _adopt_noisy(self, name: str, common: Tensor) -> tuple[dict[str, Tensors], dict[str, dict[str, float]]]:
        """Models, and how sharp they are, by view.

        What stays here has no noise and any features: ridges of what the common model lacks, or of own rows alone.

        The own model adds up what it has for a graph (``_fitting``).
        """
        seen, items = self._features(self._seen, name), self._validation
        start, known = seen.times(common, items), self._features(self.data, name).times(common, self._train).double()
        ones = torch.ones(self.silo.schema.num_classes, dtype=torch.float64)
        joined, apart = [({name: common}, start)], list[tuple[Tensors, Tensor]]()
        for kind in self.config.kinds(self.silo.schema):
            changes, alone = self._fit_own(self._features(self.data, kind), ones, lambda _: known)
            seen = self._features(self._seen, kind)
            joined += [({kind: each.float(), name: common}, start + seen.times(each, items)) for each in changes]
            apart += [({kind: each}, seen.times(each, items)) for each in alone]
        chosen = self._choose_best([*joined, *apart], len(apart))
        own, output = [*joined, *apart][chosen]
        if any(kind.endswith(LABELLED) for kind in own):  # for graphs on which it has no labels
            alike = joined[1:] if chosen < len(joined) else apart
            plain = [each for each in alike if not any(kind.endswith(LABELLED) for kind in each[0])]
            own = {**own, **plain[self._choose_best(plain, 0)][0]}
        sharpness = {"own": dict.fromkeys(own, self._sharpest(output)), "common": {name: self._sharpest(start)}}
        return {"own": own, "common": {name: common}}, sharpness

    def _choose_best(self, models: Sequence[tuple[Tensors, Tensor]], apart: int) -> int:
        return self._judge.best([self._to_scores(output) for _, output in models], apart)

    def _fit_own(
        self, features: Features | Joined | OfSome, class_weights: Tensor, scores: Callable[[Tensor], Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Corrections of a model by what it says of weighted rows, float64, and ridges of the own rows alone."""
        if not self.config.own or not len(self._train) or not len(self._validation):
            return [], []
        rows = torch.cat([part for _, part in features.blocks(self._train)])
        labels = torch.from_numpy(self.silo.labels[self._train])
        root = class_weights[labels].sqrt()[:, None]
        target = self._wanted(self._train)
        # From the strongest penalty on: of equals the one nearest to the common model is kept.
        penalties = sorted(self.config.own_ridge, reverse=True)
        rows *= root
        wanted = ((root * target - scores(rows), penalties), (root * target, sorted(self.config.ridge, reverse=True)))
        changes, alone = corrections(rows, wanted)
        return changes, [weights.float() for weights in alone]

    @property
    def _judge(self) -> Judge:
        seen = self.silo.seen.graph
        labels = scaled_targets(self.silo, seen) if self.silo.has_targets else seen.labels
        return Judge(self.metric, labels[self._validation])

    def _to_scores(self, output: Tensor) -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = (output if self.metric.ranking is None else self._say(output)).numpy()
        return found

    def _say(self, output: Tensor, sharpness: float = USUAL_SHARPNESS) -> Tensor:
        """What a ridge's scores mean: log-probabilities, numbers, or logits of labels."""
        if self.silo.schema.task == "regression":
            return output
        if self.silo.schema.task == "multilabel":  # the middle of what 0 and 1 were
            return sharpness * (output - 0.5)
        return F.log_softmax(sharpness * output, dim=1)

    def _sharpest(self, output: Tensor) -> float:
        if not len(output) or self.silo.schema.task == "regression":
            return USUAL_SHARPNESS
        if self.silo.has_targets:
            targets = torch.from_numpy(self._judge.labels)
            return min(SHARPNESS, key=lambda s: float(binary_focal(self._say(output, s), targets, gamma=0.0).mean()))
        labels = torch.from_numpy(self.silo.seen.graph.labels[self._validation])
        return min(SHARPNESS, key=lambda factor: float(F.cross_entropy(factor * output, labels)))

    def _features(self, data: GraphTensors, name: str, dim: int | None = None) -> Features | Joined | OfSome:
        recipe = self._recipe(name, dim)
        if recipe.kind == "columns":
            every = self._columns(data, recipe)
            features = Features(data, recipe, base=every[:, : recipe.columns])
            joined = Joined(features, every[:, recipe.columns :]) if name.endswith(RELATED) else features
            nodes = list_classified(data)
            return joined if isinstance(nodes, slice) else OfSome(joined, nodes, data.num_nodes)
        features = Features(data, recipe, self._size)
        if not name.endswith(LABELLED):
            return features
        if data.collection is not None:
            raise MessageError(f"'{name}' was asked for; graphs have no label features, nodes have.")
        labels = self.silo.labels[self._train]

        key = ("ridge labels", self._train.tobytes(), labels.tobytes())
        make = partial(label_columns, data, self._train, labels, self.silo.schema.num_classes, of=self.data)
        return Joined(features, data.cached(key, make))

    def _forget_others(self, data: GraphTensors, names: Iterable[str], dim: int | None = None) -> None:
        """Keep of a graph only features that are asked for again: those of a comparison are large, too."""
        Features.forget_others(data, [self._recipe(name, dim) for name in names], self._size)

    def _recipe(self, name: str, dim: int | None = None) -> Recipe:
        return self.config.recipe(name, self.context.seed, self.config.dim if dim is None else dim, self.silo.schema)

    # -- prediction ----------------------------------------------------------------------------------------------

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        models = self._aggregate if view == "aggregate" else self._models.get(view)
        if models is None:  # before round 1
            return self.predict_undecided(data.full.num_items)
        names = self._fitting(models, data)
        sharpness = self._sharpness.get("own" if view == "own" else "common", {}).get(names[0], USUAL_SHARPNESS)
        output = torch.stack([self._features(data, name).times(models[name]) for name in names]).sum(0)
        return self._say(output, sharpness).to(data.device)

    def explain(self, data: GraphTensors, items: NDArray[np.int64], output: Tensor, view: str = "own") -> list[Shares]:
        from graphsilo.methods.fedridge.shares import label_parts, linear_parts

        models = self._aggregate if view == "aggregate" else self._models.get(view)
        if models is None:
            return super().explain(data, items, output, view)
        names = self._fitting(models, data)
        factor, start = self._factor(view, names[0])
        if kind_of(names[0]) == "columns":
            weights = models[names[0]].double() @ output.double()
            return self._explain_columns(data, items, names[0], factor * weights, -factor * start * float(output.sum()))
        terms, bias = list[Linear](), -start * float(output.sum())
        for name in names:
            weights = models[name].double() @ output.double()
            recipe = self._recipe(name)
            width = recipe.width(data.num_features, graphs=data.collection is not None)
            parts, constant = linear_parts(data, recipe, weights[:width])
            terms, bias = [*terms, *parts], bias + constant
            if name.endswith(LABELLED):
                terms += label_parts(data, *self._labels_on(data), weights[width:], self.class_names)
        scale = [replace(term, weights=factor * term.weights) for term in terms]
        return explain_sum(scale, factor * bias, items, *list_usual(data, self._labels_on(data)[0]))

    def _explain_columns(
        self, data: GraphTensors, items: NDArray[np.int64], name: str, weights: Tensor, bias: float
    ) -> list[Shares]:
        from graphsilo.methods.fedridge.shares import require_linear
        from graphsilo.models.column_shares import describe_columns, explain_rows

        schema, recipe = self.silo.schema, self._recipe(name)
        usual, against = list_usual(data, self._labels_on(data)[0])
        require_linear(data, recipe)
        place = recipe.columns
        bias += float(CONSTANT * weights[place])
        weights = torch.cat([weights[:place], weights[place + 1 :]])
        numbers = self._columns(data, recipe)[:, : len(weights)].astype(np.float64)
        mean = numbers[place_classified(data, usual)].mean(axis=0)
        shares = np.zeros((len(items), sum(self._widths)))
        shares[:, : len(weights)] = (numbers[place_classified(data, items)] - mean) * weights.numpy()
        dim, seed = columns.features_taken(schema, self.config.dim), self.context.seed
        raw = columns.raw_columns(data, schema, self.config.dim, seed)
        none = np.zeros((data.num_features, 0), dtype=np.float32)
        described = describe_columns(views_of(data, schema), raw, none, dim, seed, None, (), schema)
        return explain_rows(raw, shares, bias + float(mean @ weights.numpy()), items, usual, against, described)

    def portable(self, view: str = "own", *, labelled: bool = True) -> list[dict[str, Any]]:
        from graphsilo.methods.fedridge.shares import portable_part

        models = self._aggregate if view == "aggregate" else self._models.get(view)
        names = self._fitting_of(models or {}, own=labelled)
        if not models or not names:
            return super().portable(view, labelled=labelled)
        factor, middle = self._factor(view, names[0])
        size = None if self.data.collection is None else self._size
        schema, recipe = self.silo.schema, self._recipe(names[0])
        if recipe.kind == "columns":
            timed = self.silo.graph.union.time is not None
            made = columns.portable(recipe, schema, self._scale, models[names[0]], related=names[0].endswith(RELATED))
            return [{**made, "factor": factor, "middle": middle, "timed": timed}]
        return [
            portable_part(self._recipe(name), models[name], schema.num_features, size, {
                "factor": factor, "middle": middle if name == names[0] else 0.0,
                "labelled": name.endswith(LABELLED), "classes": schema.num_classes,
            })
            for name in names
        ]  # fmt: skip

    def _factor(self, view: str, name: str) -> tuple[float, float]:
        """What a ridge's scores are multiplied by to be logits, and what is taken off before."""
        factor = self._sharpness.get("own" if view == "own" else "common", {}).get(name, USUAL_SHARPNESS)
        known = {"regression": (1.0, 0.0), "multilabel": (factor, 0.5)}
        return known.get(self.silo.schema.task, (factor, 0.0))

    def _labels_on(self, data: GraphTensors) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Training nodes as a graph numbers them, and their classes."""
        train = self._train
        if data.graph is not self.data.graph:
            train = data.graph.rows_of(self.data.graph.global_ids[train])
        return train, self.silo.labels[self._train]

    def predict_held_out(self) -> Tensor:
        """[validation items, C] log-probabilities of each by an own model that it had no part in choosing: what tells
        how good the own models are. Kept where ``holds_out`` is true."""
        if not self._models:  # it has missed them
            return self.predict_undecided(len(self._validation)).cpu()
        name = self._fitting(self._models["own"], self._seen)[0]
        return self._say(self._held_out[name], self._sharpness["own"][name])

    def _fitting(self, models: Tensors, data: GraphTensors) -> list[str]:
        """The features whose scores are added up for a graph: with label features where validation could judge them, on
        its own, and those of a model with noise.

        Elsewhere nodes may be of classes that the silo has no label of, and label features would speak against them.
        """
        return self._fitting_of(models, own=data.graph is self.silo.graph or data.graph is self.silo.seen.graph)

    def _fitting_of(self, models: Tensors, *, own: bool) -> list[str]:
        noisy = [name for name in models if name.endswith(NOISY)]
        exact = [name for name in models if name not in noisy]
        return [next((name for name in exact if name.endswith(LABELLED) == own), exact[0]), *noisy] if exact else noisy

    def drop_columns(self) -> None:
        """Make room: features are made again where they are asked for."""
        for data in (self.data, self._seen):
            Features.forget_others(data, ())
            data.forget(LOGARITHMS)

    def same_view(self, view: str) -> str:
        """The view that predicts the same: the aggregate is the common model of whoever has that."""
        if view != "aggregate" or self._aggregate is None:
            return view
        return "common" if are_equal(self._aggregate, self._models.get("common", {})) else view

    def install_aggregate(self, weights: Tensors) -> None:
        for name, tensor in weights.items():
            width = self.config.width(name, self.config.dim, self.silo.schema)
            if tuple(tensor.shape) != (width, self.silo.schema.num_classes):
                raise MessageError(f"the aggregate has shape {tuple(tensor.shape)}; {width} features were expected.")
        self._aggregate = dict(weights) or None

    def model_of(self, view: str) -> Tensors:
        """What ``load_final`` needs of a view."""
        models, factors = self._models[view], self._sharpness[view]
        scale = {"scale": self._scale} if any(kind_of(name) == "columns" for name in models) else {}
        return {**models, **scale, "about": torch.tensor([self._size, *(factors[name] for name in sorted(models))])}

    def final_models(self) -> dict[str, Tensors]:
        return {view: self.model_of(view) for view in self._models}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        self._models = {
            view: {name: each for name, each in model.items() if name not in ("about", "scale")}
            for view, model in models.items()
        }
        for view, each in models.items():
            self._scale = each.get("scale", self._scale)
            self._size, *found = each["about"].tolist()
            self._sharpness[view] = dict(zip(sorted(self._models[view]), found, strict=True))

    def study(self) -> Mapping[str, Any]:
        """How far the own model is from the common one, relative to it, and what their scores are multiplied by."""
        if not self._models:
            return {}
        models, data = self._models, self.data
        found = {view: each[self._fitting(models[view], data)[0]] for view, each in self._sharpness.items()}
        name = self._fitting(models["own"], data)[0]
        if name not in models["common"] or name.endswith(NOISY):
            return found
        own, common = models["own"][name], models["common"][name]
        return {"correction": float((own - common).norm() / common.norm().clamp_min(1e-12)), **found}


def shift_scores(weights: Tensor, shift: Tensor, constant: int) -> Tensor:
    """Weights whose scores are higher by ``shift`` [C]: the constant column, of this number, bears it."""
    weights = weights.clone()
    weights[constant] += (shift / CONSTANT).to(weights.dtype)
    return weights
