"""FedRidge — one exact round: ridge regression on propagated features, from sums alone.

Every silo makes the same fixed features of its nodes (``features``) and sends the sums that a ridge needs,
Σ w φ φᵀ and Σ w φ yᵀ over its training nodes. The model of the total is the one that all silos' rows in one place would
have given, whatever the cut, the number of silos or their order. Penalty, features and class balance are chosen by
validation counts, which are sums, too. Each silo then corrects the common model towards its own rows, as far as its own
validation nodes say that this helps.

Ours; the parts are known: Hoerl and Kennard, "Ridge Regression", Technometrics 1970; exact aggregation from sufficient
statistics as in Fed3R (Fanì et al., ICML 2024) and AFL (He et al., CVPR 2025); features see ``features``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from pydantic import field_validator
from torch import Tensor

from graphsilo.data.silo import Schema
from graphsilo.errors import ConfigError, FederationError, MessageError
from graphsilo.evaluate.metrics import accuracy, macro_f1, margins
from graphsilo.federation.client import ClientBase, ClientContext
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.federation.settings import OneRoundConfig, setting
from graphsilo.methods.fedridge.check import impossible
from graphsilo.methods.fedridge.features import BLOCK, CONSTANT, HOPS, KINDS, Features, Kind, Recipe
from graphsilo.methods.fedridge.labels import LABELLED, SCALE, Labelled, label_columns, numbers_on
from graphsilo.methods.fedridge.solve import Spectrum, corrections, pack, unpack, upper_product
from graphsilo.models.view import GraphTensors
from graphsilo.types import ClientId, Task

SHARPNESS = (2.0, 4.0, 8.0, 16.0, 32.0)
"""What predictions are multiplied by before they become probabilities: chosen at the client, on validation."""
USUAL_SHARPNESS = 8.0
FEW_COLUMNS = 256
"""Sums of up to so many columns cross in float64, unless told otherwise."""
USUAL_RIDGE = 1.0
"""The penalty next to this is taken where there are several, and nobody has a validation node."""


class FedRidgeConfig(OneRoundConfig):
    """Settings of FedRidge."""

    features: Literal["auto", "mean", "sgc", "separate"] = setting(
        "auto", "φ of a node: the mean of X, ÂX, …, Â^h X; Â^h X; or X, NX, …, N^h X side by side, for graphs whose "
        "neighbours differ; auto: mean or separate, as validation says",
        source="ours",
    )  # fmt: skip
    label_features: Literal["auto", "always", "never"] = setting(
        "auto", "½ [N Y ‖ (N² − diag N²) Y] appended to φ, of the classes Y of the silo's own training nodes; auto: as "
        "validation says",
        source="ours", when={"task": ("node",)},
    )  # fmt: skip
    pilot: int = setting(
        128, "auto: columns on which the features are compared before the sums of the better ones; 0: in full width",
        source="ours", ge=0, when={"features": ("auto",)},
    )  # fmt: skip
    hops: int | None = setting(None, "h; none: 3 for mean, 2 for sgc and separate", source="ours", ge=0)
    dim: int = setting(
        2048, "most columns of φ: what is wider is projected at random; 0 for no bound", source="ours", ge=0
    )
    random_features: int = setting(0, "random ReLU features of φ, appended", source="ours", ge=0)
    balance: tuple[float, ...] = setting(
        (0.0,), "class weights (n / (C · n_c))^balance that are tried: 0 counts nodes alike, 1 classes", source="ours",
        min_length=1,
    )  # fmt: skip
    ridge: tuple[float, ...] = setting(
        (0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0), "penalties λ that are tried", source="ours", min_length=1
    )
    prior: tuple[float, ...] = setting(
        (0.0, 0.02, 0.05, 0.1, 0.2), "strengths t that are tried of adding −t log(n_c / n) to the score of class c",
        source="ours; logit adjustment, Menon et al. 2021", min_length=1,
    )  # fmt: skip
    own: bool = setting(True, "whether silos correct the common model towards their own rows", source="ours")
    own_ridge: tuple[float, ...] = setting(
        (0.5, 2.0, 8.0), "penalties μ of that correction; a silo also tries none", source="ours", min_length=1,
        when={"own": (True,)},
    )  # fmt: skip
    criterion: Literal["accuracy", "macro_f1"] = setting(
        "accuracy", "what the choices look at: of the summed validation counts, and at each silo of its own",
        source="ours",
    )  # fmt: skip
    wire: Literal["auto", "float32", "float64"] = setting(
        "auto", "precision of the sums that silos send; auto: float64 for 256 columns or fewer, where it costs next to "
        "nothing; they are added up in float64 in any case", source="ours",
    )  # fmt: skip
    min_count: int = setting(
        1, "a class with fewer training nodes at a silo is left out of its sums", source="ours", ge=1
    )

    @field_validator("balance", "ridge", "prior", "own_ridge")
    @classmethod
    def _in_bounds(cls, value: tuple[float, ...], info: Any) -> tuple[float, ...]:
        if info.field_name == "balance":
            if not all(0 <= each <= 1 for each in value):
                raise ConfigError(f"method.balance lists numbers between 0 and 1; got {list(value)}.")
        elif info.field_name == "prior":
            if not all(each >= 0 for each in value):
                raise ConfigError(f"method.prior lists numbers of at least 0; got {list(value)}.")
        elif not all(each > 0 for each in value):
            raise ConfigError(f"method.{info.field_name} lists penalties above 0; got {list(value)}.")
        return value

    @property
    def chooses_by_validation(self) -> bool:
        """All silos together choose the model by it, and each its correction."""
        return True

    def kinds(self, task: Task) -> tuple[str, ...]:
        """The features that are tried; a name ends with ``LABELLED`` where label features come with them."""
        plain: tuple[str, ...] = ("mean", "separate") if self.features == "auto" else (self.features,)
        if self.label_features == "never" or task != "node":
            return plain
        return plain + tuple(name + LABELLED for name in plain)

    def recipe(self, kind: Kind, seed: int, dim: int) -> Recipe:
        """How these features are made, of so many columns."""
        return Recipe(kind, HOPS[kind] if self.hops is None else self.hops, dim, self.random_features, seed)

    def width(self, kind: str, dim: int, schema: Schema) -> int:
        """p, the columns of these features."""
        plain = self.recipe(_kind(kind), 0, dim).width(schema.num_features, graphs=schema.task == "graph")
        return plain + 2 * schema.num_classes * kind.endswith(LABELLED)

    def precise(self, widths: Iterable[int]) -> bool:
        """Whether sums of so many columns cross in float64."""
        return self.wire == "float64" or (self.wire == "auto" and max(widths) <= FEW_COLUMNS)

    def square_columns(self, schema: Schema) -> int:
        return max(self.width(kind, self.dim, schema) for kind in self.kinds(schema.task))


class CountRequest(Message):
    """Ask how much there is to learn from."""


class Counts(Message):
    """One client's training items by class, and the size of its graphs.

    Attributes:
        classes: [C] training items that its sums will count.
        sizes: [2] nodes and items of the training graph (of all graphs of a collection).
    """

    classes: Tensor = sends("counts", dtype=torch.int64, shape=("classes",), per_class="min_count")
    sizes: Tensor = sends("counts", dtype=torch.int64, shape=(2,), per_class=False)

    def check(self) -> None:
        least, items = int(min(self.classes.min(), self.sizes.min())), int(self.sizes[1])
        if least < 0 or int(self.classes.sum()) > items:
            raise MessageError(
                f"Counts counts {int(self.classes.sum())} training items among {items}, and {least} of something: "
                f"that cannot be."
            )


class StatisticsRequest(Message):
    """Ask for the sums.

    Attributes:
        kinds, dim: Which features, and most of their columns.
        class_weights: [balances, C] w.
        size: Nodes of a usual graph.
        blocks: Columns that belong together, by features: how many, and their largest squared length in a row.
        constants: Which column is constant, by features.
    """

    kinds: list[str] = sends("control")
    dim: int = sends("control")
    class_weights: Tensor = sends("counts", dtype=torch.float64, shape=("balances", "classes"))
    size: float = sends("counts")
    blocks: dict[str, list[list[float]]] = sends("control")
    constants: dict[str, int] = sends("control")


class Statistics(Message):
    """Σ w φ φᵀ, its upper triangle, and Σ w y φᵀ [C, p] over one client's training items, by features and balance.

    Attributes:
        moments, products: In float32.
        moments_rest, products_rest: What rounding took off, where sums cross in float64; else nothing.
        num_samples: Training items that are in the sums.
    """

    moments: Tensors = sends("statistic", per_class=False)
    products: Tensors = sends("statistic", per_class="min_count")
    moments_rest: Tensors = sends("statistic", per_class=False)
    products_rest: Tensors = sends("statistic", per_class="min_count")
    num_samples: int = sends("counts")

    def check_answer(self, request: Message) -> None:
        """Sums that rows of such features and such class weights can have."""
        assert isinstance(request, StatisticsRequest)
        names = [f"{kind}/{place}" for kind in request.kinds for place in range(len(request.class_weights))]
        for field in ("moments", "products", "moments_rest", "products_rest"):
            found = getattr(self, field)
            if found.keys() != set(names) and (found or not field.endswith("_rest")):
                raise MessageError(f"Statistics.{field} holds {len(found)} sums; {', '.join(names)} were asked for.")
        moments, products = _sum(self.moments, self.moments_rest), _sum(self.products, self.products_rest)
        for kind in request.kinds:
            blocks = [(int(columns), bound) for columns, bound in request.blocks[kind]]
            for place, weights in enumerate(request.class_weights):
                name = f"{kind}/{place}"
                trouble = impossible(
                    moments[name], products[name], self.num_samples, blocks=blocks, constant=request.constants[kind],
                    weights=weights,
                )  # fmt: skip
                if trouble:
                    raise MessageError(f"Statistics of {name} are sums of no rows: {trouble}.")


class ScoreRequest(Message):
    """Ask how good candidates are.

    Attributes:
        candidates: [candidates, p, C] by features.
        shifts: [shifts, C] what is added to the scores: each is tried with each candidate.
        dim: Most of the features' columns.
    """

    candidates: Tensors = sends("model")
    shifts: Tensor = sends("counts", dtype=torch.float64, shape=("shifts", "classes"))
    dim: int = sends("control")


class Scores(Message):
    """What candidates are worth to one client.

    Attributes:
        counts: [candidates, C true, C predicted] validation items, all candidates in turn.
        num_samples: Validation items.
    """

    counts: Tensor = sends("counts", dtype=torch.int64, shape=("candidates", "classes", "classes"))
    num_samples: int = sends("counts")

    def check(self) -> None:
        if not self.counts.numel():
            return
        true = self.counts.sum(2)
        if int(self.counts.min()) < 0 or not bool((true.sum(1) == self.num_samples).all()):
            raise MessageError(
                f"Scores counts {int(true.sum(1).min())} to {int(true.sum(1).max())} items for a candidate, and "
                f"{int(self.counts.min())} in one place; each is scored on the same {self.num_samples}."
            )
        if bool((true != true[0]).any()):
            raise MessageError("Scores has items of one class with one candidate, of another with the next.")

    def check_answer(self, request: Message) -> None:
        assert isinstance(request, ScoreRequest)
        wanted = sum(map(len, request.candidates.values())) * len(request.shifts)
        if self.counts.shape != (wanted, *(2 * request.shifts.shape[1:])):
            raise MessageError(
                f"Scores has the shape {tuple(self.counts.shape)}; {wanted} candidates were asked about."
            )


class AdoptRequest(Message):
    """The common model; where it has label features, a second one without them for graphs that are not the silo's own.

    Attributes:
        weights: By features.
        shifts: [models, C] what is added to their scores, in this order.
        class_weights: [models, C] those that they were made with.
    """

    weights: Tensors = sends("model")
    shifts: Tensor = sends("counts", dtype=torch.float64, shape=("models", "classes"))
    class_weights: Tensor = sends("counts", dtype=torch.float64, shape=("models", "classes"))


class Done(Message):
    """The client has its models; nothing about it is said."""

    clients: int = sends("counts")


class Client(ClientBase[FedRidgeConfig]):
    """Sums once, scores candidates once, and corrects the model it is given."""

    def __init__(self, context: ClientContext[FedRidgeConfig]):
        super().__init__(context)
        self._size = 1.0
        self._models: dict[str, Tensors] = {}
        self._aggregate: Tensors | None = None
        self._sharpness: dict[str, dict[str, float]] = {}

    # -- the sums ------------------------------------------------------------------------------------------------

    @cached_property
    def _train(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Training items that count: labelled, of a class with enough of them."""
        labels = self.silo.labels[self.silo.train]
        enough = self.silo.class_counts() >= self.config.min_count
        found: np.ndarray[Any, np.dtype[np.int64]] = self.silo.train[(labels >= 0) & enough[np.maximum(labels, 0)]]
        return found

    @handler
    def count(self, request: CountRequest) -> Counts:
        """Training items by class."""
        counts = np.bincount(self.silo.labels[self._train], minlength=self.silo.schema.num_classes)
        sizes = torch.tensor([self.data.num_nodes, self.silo.num_items])
        return Counts(classes=torch.from_numpy(counts), sizes=sizes)

    @handler
    def statistics(self, request: StatisticsRequest) -> Statistics:
        """The sums, for each kind of features and each balance."""
        self._size = request.size
        classes, weights = self.silo.schema.num_classes, request.class_weights
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
                    cross.index_add_(0, labels, scaled.double())
                if square is None:
                    square = torch.zeros(features.width, features.width)
                moments[f"{kind}/{place}"], products[f"{kind}/{place}"] = pack(square), cross
        self._forget_others(self.data, request.kinds, request.dim)
        return Statistics(
            moments=_single(moments), products=_single(products), moments_rest=_rest(moments) if precise else {},
            products_rest=_rest(products) if precise else {}, num_samples=len(self._train),
        )  # fmt: skip

    # -- the choice ----------------------------------------------------------------------------------------------

    @handler
    def score(self, request: ScoreRequest) -> Scores:
        """Confusion counts of every candidate on the own validation items."""
        items, classes = self._validation, self.silo.schema.num_classes
        labels, shifts = self.silo.seen.graph.labels[items], request.shifts.float()
        found = []
        for kind, candidates in request.candidates.items():
            features = self._features(self._seen, kind, request.dim)
            each = candidates.permute(1, 0, 2).flatten(1)
            counts = np.zeros((len(candidates) * len(shifts), classes, classes), dtype=np.int64)
            for start in range(0, len(items), BLOCK):
                part = slice(start, start + BLOCK)
                output = features.times(each, items[part]).view(-1, len(candidates), 1, classes) + shifts
                for place, guess in enumerate(output.argmax(3).flatten(1).t().contiguous().numpy()):
                    counts[place] += _confusion(labels[part], guess, classes)
            found.append(counts)
        self._forget_others(self._seen, request.candidates, request.dim)
        return Scores(counts=torch.from_numpy(np.concatenate(found)), num_samples=len(items))

    @property
    def _seen(self) -> GraphTensors:
        return self.tensors(self.silo.seen.graph)

    @property
    def _validation(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        items = np.asarray(self.silo.seen.items["val"], dtype=np.int64)
        return items[self.silo.seen.graph.labels[items] >= 0]

    # -- the models ----------------------------------------------------------------------------------------------

    @handler
    def adopt(self, request: AdoptRequest) -> Done:
        """Keep the common model, and correct it towards the own rows where that helps on the own validation items."""
        self._models, self._sharpness = {"own": {}, "common": {}}, {"own": {}, "common": {}}
        for at, (name, common) in enumerate(request.weights.items()):
            features = self._features(self.data, name)
            known = [common, *self._corrected(features, common.double(), request.class_weights[at])]
            place = self._recipe(name).constant(self.data.num_features, graphs=self.silo.schema.task == "graph")
            # Shifted last: a correction of the shifted model would undo the shift.
            known = [shifted(weights, request.shifts[at], place) for weights in known]
            output = self._features(self._seen, name).times(torch.cat(known, dim=1), self._validation)
            outputs = output.split(self.silo.schema.num_classes, dim=1)
            best = int(np.argmax([self._quality(output) for output in outputs]))  # the first of equals
            for view, chosen in (("own", best), ("common", 0)):
                self._models[view] = {**self._models[view], name: known[chosen]}
                self._sharpness[view][name] = self._sharpest(outputs[chosen])
        for data in (self.data, self._seen):
            self._forget_others(data, request.weights)
        return Done(clients=1)

    def _corrected(self, features: Features | Labelled, common: Tensor, class_weights: Tensor) -> list[Tensor]:
        if not self.config.own or not len(self._train) or not len(self._validation):
            return []
        parts = list(features.blocks(self._train))
        rows = torch.cat([part for _, part in parts])
        labels = torch.from_numpy(self.silo.labels[self._train])
        root = class_weights[labels].sqrt()[:, None]
        residual = root * (F.one_hot(labels, self.silo.schema.num_classes).double() - rows @ common)
        # From the strongest penalty on: of equals the one nearest to the common model is kept.
        penalties = sorted(self.config.own_ridge, reverse=True)
        return [(common + change).float() for change in corrections(root * rows, residual, penalties)]

    def _quality(self, output: Tensor) -> float:
        labels = self.silo.seen.graph.labels[self._validation]
        counts = _confusion(labels, output.argmax(1).numpy(), self.silo.schema.num_classes)
        return criterion_of(counts, self.config.criterion)

    def _sharpest(self, output: Tensor) -> float:
        if not len(output):
            return USUAL_SHARPNESS
        labels = torch.from_numpy(self.silo.seen.graph.labels[self._validation])
        return min(SHARPNESS, key=lambda factor: float(F.cross_entropy(factor * output, labels)))

    def _features(self, data: GraphTensors, name: str, dim: int | None = None) -> Features | Labelled:
        features = Features(data, self._recipe(name, dim), self._size)
        if not name.endswith(LABELLED):
            return features
        if data.collection is not None:
            raise MessageError(f"'{name}' was asked for; graphs have no label features, nodes have.")
        labels = self.silo.labels[self._train]

        def make() -> sp.csr_matrix:
            nodes = self._train
            if data.graph is not self.silo.graph:  # training saw a part of it
                nodes = numbers_on(data.graph, self.data.graph.global_ids[nodes])
            return label_columns(data, nodes, labels, self.silo.schema.num_classes)

        key = ("ridge labels", self._train.tobytes(), labels.tobytes())
        return Labelled(features, data.cached(key, make))

    def _forget_others(self, data: GraphTensors, names: Iterable[str], dim: int | None = None) -> None:
        """Keep of a graph only features that are asked for again: those of a comparison are large, too."""
        Features.forget_others(data, [self._recipe(name, dim) for name in names], self._size)

    def _recipe(self, name: str, dim: int | None = None) -> Recipe:
        return self.config.recipe(_kind(name), self.context.seed, self.config.dim if dim is None else dim)

    # -- prediction ----------------------------------------------------------------------------------------------

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        models = self._models.get("own")
        if view == "aggregate":
            models = self._aggregate
        if models is None:  # before round 1
            classes = self.silo.schema.num_classes
            return torch.full((data.full.num_items, classes), -float(np.log(classes)), device=data.device)
        name = self._fitting(models, data)
        sharpness = self._sharpness.get("own" if view == "own" else "common", {}).get(name, USUAL_SHARPNESS)
        output = self._features(data, name).times(models[name])
        return F.log_softmax(sharpness * output, dim=1).to(data.device)

    def _fitting(self, models: Tensors, data: GraphTensors) -> str:
        """The features of the model for a graph: with label features where validation could judge them, on its own.

        Elsewhere nodes may be of classes that the silo has no label of, and label features would speak against them.
        """
        own = data.graph is self.silo.graph or data.graph is self.silo.seen.graph
        return next((name for name in models if name.endswith(LABELLED) == own), next(iter(models)))

    def install_aggregate(self, weights: Tensors) -> None:
        for name, tensor in weights.items():
            width = self._features(self.data, name).width
            if tuple(tensor.shape) != (width, self.silo.schema.num_classes):
                raise MessageError(f"the aggregate has shape {tuple(tensor.shape)}; {width} features were expected.")
        self._aggregate = dict(weights) or None

    def state(self) -> dict[str, Any]:
        return {"size": self._size, "models": self._models, "sharpness": self._sharpness}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._size = float(state["size"])
        self._models = {view: dict(models) for view, models in state["models"].items()}
        self._sharpness = {view: dict(found) for view, found in state["sharpness"].items()}

    def final_models(self) -> dict[str, Tensors]:
        return {
            view: {**models, "about": torch.tensor([self._size, *(self._sharpness[view][n] for n in sorted(models))])}
            for view, models in self._models.items()
        }

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        self._models = {view: {n: t for n, t in each.items() if n != "about"} for view, each in models.items()}
        for view, each in models.items():
            self._size, *found = each["about"].tolist()
            self._sharpness[view] = dict(zip(sorted(self._models[view]), found, strict=True))

    def study(self) -> Mapping[str, Any]:
        """How far the own model is from the common one, relative to it, and what their scores are multiplied by."""
        if not self._models:
            return {}
        name = self._fitting(self._models["own"], self.data)
        own, common = self._models["own"][name], self._models["common"][name]
        found = {view: each[name] for view, each in self._sharpness.items()}
        return {"correction": float((own - common).norm() / common.norm().clamp_min(1e-12)), **found}


class Chosen(NamedTuple):
    """A candidate: features, place of the balance in the list, [p, C] weights, [C] the shift of its scores."""

    kind: str
    place: int
    weights: Tensor
    shift: Tensor


class Server(ServerBase[FedRidgeConfig]):
    """Adds up, solves, and lets the silos choose.

    Attributes:
        kinds: The features that are still to choose from.
        moments, products: The sums of all silos so far, by features and balance, float64.
        weights: The common model by its features, and where it has label features a second one without; empty before
            round 1.
    """

    def __init__(self, context: ServerContext[FedRidgeConfig]):
        super().__init__(context)
        self.kinds = self.config.kinds(self.schema.task)
        self.nodes = self.size = 1.0
        self.moments: dict[str, Tensor] = {}
        self.products: dict[str, Tensor] = {}
        self.class_weights = torch.ones(len(self.config.balance), self.schema.num_classes, dtype=torch.float64)
        self.shifts = torch.zeros(len(self.config.prior), self.schema.num_classes, dtype=torch.float64)
        self.weights: dict[str, Tensor] = {}

    def expected_bytes(self) -> tuple[int, int]:
        config, classes = self.config, self.schema.num_classes
        up = down = 0
        kinds = config.kinds(self.schema.task)
        each = 8 if config.precise(self._width(kind, config.dim) for kind in _widest(kinds)) else 4
        for kind in kinds:
            width = self._width(kind, config.dim)
            if kind in _widest(kinds):
                up += each * len(config.balance) * (width * (width + 1) // 2 + width * classes)
            down += 4 * width * classes * len(config.balance) * len(config.ridge)
            up += 8 * classes**2 * len(config.balance) * len(config.ridge) * len(config.prior)
        return up * self.asked, down * self.asked

    def _width(self, kind: str, dim: int) -> int:
        return self.config.width(kind, dim, self.schema)

    def _recipe(self, kind: str, dim: int) -> Recipe:
        return self.config.recipe(_kind(kind), 0, dim)

    def set_up(self, federation: Federation) -> None:
        """Counts, then the sums; of several features those that a narrow version of each says are best."""
        config, asked = self.config, self.select(federation, 1)
        counts = federation.sum(Client.count, CountRequest(), to=asked).require(config.min_clients)
        total = counts.classes.double()
        present = total > 0
        even = total.sum() / (present.sum().clamp_min(1) * total.clamp_min(1))
        self.class_weights = torch.stack([torch.where(present, even**each, 0.0) for each in config.balance])
        rarity = torch.where(present, -(total.clamp_min(1) / total.sum().clamp_min(1)).log(), 0.0)
        self.shifts = torch.tensor(config.prior, dtype=torch.float64)[:, None] * rarity
        if not present.any() and config.min_count > 1:
            raise FederationError(
                f"no silo has a training item that counts: every class has fewer than method.min_count="
                f"{config.min_count} of them at every silo. Lower it."
            )
        self.log["training_items"] = float(total.sum())
        self.nodes, self.size = float(counts.sizes[0]), float(counts.sizes[0]) / max(float(counts.sizes[1]), 1.0)
        kinds = self.kinds
        if config.features == "auto" and 0 < config.pilot < max(self._width(kind, config.dim) for kind in kinds):
            # Label features seem better than they are beside so few columns: they are judged in full width.
            self.kinds = tuple(name for name in kinds if name + LABELLED in kinds) or kinds
            self._add_up(federation, asked, config.pilot)
            better = _kind(self._choose(federation, asked, config.pilot)[0].kind)
            self.kinds = tuple(name for name in kinds if _kind(name) == better)
        self._add_up(federation, asked, config.dim)

    def _add_up(self, federation: Federation, asked: tuple[ClientId, ...], dim: int) -> None:
        kinds, features, graphs = _widest(self.kinds), self.schema.num_features, self.schema.task == "graph"
        recipes = {kind: self._recipe(kind, dim) for kind in kinds}
        # A graph has all nodes there are at most.
        sums = (self.nodes / self.size) ** 2 if graphs else None
        labelled = 2.0 * self.schema.num_classes
        request = StatisticsRequest(
            kinds=kinds,
            dim=dim,
            class_weights=self.class_weights,
            size=self.size,
            blocks={
                kind: [*recipe.blocks(features, sums), *([[labelled, 2 * SCALE**2]] if kind.endswith(LABELLED) else [])]
                for kind, recipe in recipes.items()
            },
            constants={kind: recipe.constant(features, graphs=graphs) for kind, recipe in recipes.items()},
        )
        found = federation.sum(Client.statistics, request, to=asked).require(self.config.min_clients)
        self.moments = _sum(found.moments, found.moments_rest)
        self.products = _sum(found.products, found.products_rest)

    def round(self, federation: Federation, number: int) -> None:
        """All candidates from the sums, one exchange to choose, one to hand out."""
        config, asked = self.config, self.select(federation, number)
        chosen = self._choose(federation, asked, config.dim)
        message = AdoptRequest(
            weights={each.kind: each.weights for each in chosen},
            shifts=torch.stack([each.shift for each in chosen]),
            class_weights=torch.stack([self.class_weights[each.place] for each in chosen]),
        )
        # With ``participation``, silos that added nothing have the model, too: there is no other round.
        federation.sum(Client.adopt, message).require(config.min_clients)
        graphs = self.schema.task == "graph"
        self.weights = {}
        for each in chosen:
            constant = self._recipe(each.kind, config.dim).constant(self.schema.num_features, graphs=graphs)
            self.weights[each.kind] = shifted(each.weights, each.shift, constant)

    def _choose(self, federation: Federation, asked: tuple[ClientId, ...], dim: int) -> list[Chosen]:
        """The candidate that summed validation counts prefer; behind one with label features the best without."""
        config = self.config
        solved = self.solutions()
        names = [
            (kind, place, at, strength)
            for kind, each in solved.items()
            for place in each
            for at in range(len(config.ridge))
            for strength in range(len(config.prior))
        ]
        plain = [number for number, name in enumerate(names) if not name[0].endswith(LABELLED)]
        labelled = [number for number, name in enumerate(names) if name[0].endswith(LABELLED)]
        known = labelled if labelled and config.label_features == "always" else [*plain, *labelled]
        # With nobody's validation nodes the usual penalty is best.
        scores = [-abs(float(np.log(config.ridge[at] / USUAL_RIDGE))) for _, _, at, _ in names]
        if max(len(plain), len(known)) > 1:
            candidates: dict[str, Tensor] = {
                kind: torch.stack([weights.float() for found in each.values() for weights in found])
                for kind, each in solved.items()
            }
            request = ScoreRequest(candidates=candidates, shifts=self.shifts, dim=dim)
            counts = federation.sum(Client.score, request, to=asked).require(config.min_clients).counts.numpy()
            if counts.any():
                scores = [criterion_of(each, config.criterion) for each in counts]
                self.log["validation"] = max(scores[number] for number in known)
        best = max(known, key=scores.__getitem__)  # the first of equals
        kind, place, at, strength = names[best]
        self.log.update(
            ridge=config.ridge[at], balance=config.balance[place], prior=config.prior[strength],
            features=float(KINDS.index(_kind(kind))), labels=float(kind.endswith(LABELLED)),
        )  # fmt: skip
        chosen = [best] if best in plain else [best, max(plain, key=scores.__getitem__)]
        return [
            Chosen(names[each][0], names[each][1], solved[names[each][0]][names[each][1]][names[each][2]].float(),
                   self.shifts[names[each][3]])
            for each in chosen
        ]  # fmt: skip

    def solutions(self) -> dict[str, dict[int, list[Tensor]]]:
        """The ridge of every penalty, [p, C] float64, by features and place of the balance."""
        # What float32 leaves in directions that no row has must not be taken for rows.
        precise = self.config.precise(len(self.products[f"{kind}/0"][0]) for kind in _widest(self.kinds))
        noise = 10 * torch.finfo(torch.float64 if precise else torch.float32).eps
        found: dict[str, dict[int, list[Tensor]]] = {kind: {} for kind in self.kinds}
        for asked in _widest(self.kinds):
            for place in range(len(self.config.balance)):
                right = self.products[f"{asked}/{place}"].double().t()
                square = unpack(self.moments[f"{asked}/{place}"], len(right))
                for kind in {asked, asked.removesuffix(LABELLED)} & found.keys():
                    # Sums with label features hold those without, which come first.
                    width = len(right) - (0 if kind == asked else 2 * self.schema.num_classes)
                    spectrum = Spectrum(square[:width, :width].contiguous(), noise)
                    found[kind][place] = spectrum.solve(right[:width], self.config.ridge)
        return found

    def aggregate(self) -> Tensors | None:
        return self.weights

    def state(self) -> dict[str, Any]:
        return {
            "moments": self.moments, "products": self.products, "class_weights": self.class_weights,
            "shifts": self.shifts, "weights": self.weights, "kinds": list(self.kinds), "size": self.size,
        }  # fmt: skip

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.moments, self.products = dict(state["moments"]), dict(state["products"])
        self.class_weights, self.shifts = state["class_weights"], state["shifts"]
        self.weights, self.kinds, self.size = dict(state["weights"]), tuple(state["kinds"]), float(state["size"])


def _kind(name: str) -> Kind:
    plain = name.removesuffix(LABELLED)
    if plain not in KINDS:
        raise MessageError(f"'{name[:40]}' is no kind of features; known are {', '.join(KINDS)}.")
    return plain


def _widest(kinds: Sequence[str]) -> list[str]:
    """Those whose sums hold the sums of the others."""
    return [name for name in kinds if name + LABELLED not in kinds]


def shifted(weights: Tensor, shift: Tensor, constant: int) -> Tensor:
    """Weights whose scores are higher by ``shift`` [C]: the constant column, of this number, bears it."""
    weights = weights.clone()
    weights[constant] += (shift / CONSTANT).to(weights.dtype)
    return weights


def _rest(sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What single precision takes off."""
    return {name: (value - value.float()).float() for name, value in sums.items()}


def _single(sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.float() for name, value in sums.items()}


def _sum(sums: Mapping[str, Tensor], rest: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value + rest[name] if rest else value for name, value in sums.items()}


def _confusion(labels: Any, guesses: Any, classes: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    found: np.ndarray[Any, np.dtype[np.int64]] = np.bincount(labels * classes + guesses, minlength=classes * classes)
    return found.reshape(classes, classes)


def criterion_of(counts: np.ndarray[Any, Any], criterion: str) -> float:
    """Of [C true, C predicted] counts."""
    if not counts.sum():
        return 0.0
    return float((accuracy if criterion == "accuracy" else macro_f1)(margins(counts)))


METHOD = Method(
    name="fedridge",
    family="one round",
    title="FedRidge",
    citation="graphsilo's own; ridge regression from sums, on propagated features.",
    summary="Ridge regression on propagated features: one exact round of sums, then a correction at each silo.",
    config=FedRidgeConfig,
    client=Client,
    server=Server,
    tasks=("node", "graph"),
    backbone=False,
    edge_weights=True,
)
