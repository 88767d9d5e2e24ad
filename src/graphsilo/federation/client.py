"""The client's side: private data, a model, named handlers, and an evaluation that is the same for all methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo import models
from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.errors import MessageError, UnsupportedError
from graphsilo.evaluate.counts import ConfusionPlan
from graphsilo.evaluate.metrics import rankings
from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.federation.interface import Handler, handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.model_files import fill_tensors, scale_tensors, word_tensors
from graphsilo.federation.settings import MethodConfig
from graphsilo.models import precision
from graphsilo.models.base import Model
from graphsilo.models.view import GraphTensors, tensors_of
from graphsilo.random import Name, generator
from graphsilo.training.objective import link_scores
from graphsilo.types import ClientId, Precision, Task

ConfigT = TypeVar("ConfigT", bound=MethodConfig)


@dataclass(frozen=True)
class ModelSpec:
    """Which backbone a client runs, with settings that differ from its defaults, and how precisely."""

    name: str
    settings: Mapping[str, Any]
    precision: Precision = "float32"

    def wire(self) -> list[Any]:
        """Name, settings and precision as plain values; ``ModelSpec(*values)`` takes them back."""
        return [self.name, dict(self.settings), self.precision]


def common_model(specs: Mapping[ClientId, ModelSpec]) -> ModelSpec:
    """The backbone of the server's model: that of the first client."""
    return specs[min(specs)]


@dataclass(frozen=True)
class ClientContext(Generic[ConfigT]):
    """What a client is made from.

    Attributes:
        client: Its number.
        silo: Its private data.
        config: Settings of the method.
        model: The backbone it runs.
        seed: Seed of the run.
        device: Where it computes.
        server_model: The backbone of the server's model; None where it is the client's own.
    """

    client: ClientId
    silo: Silo
    config: ConfigT
    model: ModelSpec
    seed: int
    device: str = "cpu"
    server_model: ModelSpec | None = None

    @property
    def common(self) -> ModelSpec:
        """The backbone that server and clients have in common: where clients run different ones, the server's."""
        return self.server_model or self.model


class EvaluateRequest(Message):
    """Ask for counts; carries the aggregate where that view is wanted.

    Attributes:
        views: Model views to score on the client's own evaluation sets.
        global_views: Model views to score on the pooled graph, in a simulation that has one.
        auc: Also the area under the ROC curve.
        aggregate: The server's model, for the ``aggregate`` view.
    """

    views: list[str] = sends("control")
    global_views: list[str] = sends("control", default=())
    auc: bool = sends("control", default=False)
    aggregate: Tensors | None = sends("model", default=None)


class EvaluateReply(Message):
    """Confusion counts and scores.

    Attributes:
        kinds: ``"view/set"`` → names of the kinds of items that were counted; none for link prediction.
        parts: For each of these entries, how many clients' items it counts apart; 1 but for a pooled silo.
        counts: [rows, 4, C, C] int32; the rows are parts x kinds of the first entry, then of the second, and so on.
        sizes: [parts] int64, entry by entry: nodes (graphs) behind each part, the n_k of weighted means.
        scores: ``"view/set/kind/metric"`` → value and weight of each part in turn; link prediction, and AUC where
            asked for.
    """

    kinds: dict[str, list[str]] = sends("control")
    parts: list[int] = sends("control")
    counts: Tensor = sends("counts", dtype=torch.int32, shape=("rows", 4, "classes", "classes"))
    sizes: Tensor = sends("counts", dtype=torch.int64, shape=("parts",))
    scores: dict[str, list[float]] = sends("score", allow_nan=True)


class ClientBase(ABC, Generic[ConfigT]):
    """One participant. Subclasses add handlers and say how they predict.

    A client holds its silo and nothing of other clients or of the server; what it learns from them came in messages.

    Attributes:
        id: Number of the client.
        silo: Its private data.
        config: Settings of the method.
        round: Number of the current round, 0 during set-up; kept by the runtime.
    """

    def __init__(self, context: ClientContext[ConfigT]):
        self.context = context
        self.id = context.client
        self.silo = context.silo
        self.config = context.config
        self.round = 0
        self._calls: dict[str, int] = {}
        self._repeat = 0
        self._plans: dict[str, ConfusionPlan] = {}
        self._asked: frozenset[str] = frozenset()
        self._foreseen: dict[str, Tensor] = {}
        self._best: dict[str, Any] | None = None

    # -- what a method writes ------------------------------------------------------------------------------------

    @abstractmethod
    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        """Log-probabilities [items, C] on all items of a graph (link prediction: embeddings [nodes, p]).

        Args:
            data: The graph, as tensors.
            view: ``own`` for the client's own model, ``aggregate`` for the one it last installed.
        """

    def install_aggregate(self, weights: Tensors) -> None:
        """Take the server's model for the ``aggregate`` view, without touching the client's own."""
        raise UnsupportedError(f"{type(self).__module__}: this method has no aggregated model to evaluate.")

    def state(self) -> dict[str, Any]:
        """Everything that must survive a restart: tensors and plain values."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state()``."""

    def final_models(self) -> dict[str, Tensors]:
        """Weights worth keeping after the run: what ``load_final`` needs to predict as now."""
        return {}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        """Predict as when ``final_models`` returned these."""

    @property
    def is_at_rest(self) -> bool:
        """Whether ``state()`` is complete now, between two calls: such a client may be put away and made again.

        Where the steps of set-up share what is in no state, the client is not at rest before the last of them.
        """
        return True

    def release(self) -> None:
        """The client is put away: break what refers to itself, such as tensors of graphs that the client made."""

    def embed(self, data: GraphTensors) -> Tensor | None:
        """Embeddings [items, p] of the client's own model; None where it has none."""
        return None

    def study(self) -> Mapping[str, Any]:
        """Facts about the method's inner workings, for the researcher at this machine: plain numbers, and tensors.

        Asked for once, after the last round, with ``evaluation.study``. They stay beside the result and are in no
        message, so that private data may be compared with what was learned from it.
        """
        return {}

    # -- for the runtime -------------------------------------------------------------------------------------------

    def remember(self) -> None:
        """Keep a copy of the current models: validation has never been better."""
        self._best = {
            view: {name: tensor.detach().clone() for name, tensor in weights.items()}
            for view, weights in self.final_models().items()
        }

    def full_state(self) -> dict[str, Any]:
        """The method's state and the remembered models."""
        return {"state": self.state(), "best": self._best}

    def load_full_state(self, state: Mapping[str, Any]) -> None:
        """Continue from ``full_state()``."""
        self._foreseen.clear()
        self.load_state(state["state"])
        self._best = state["best"]

    def foresee(self) -> int:
        """Predict with the own model what the last evaluation asked for, before the next asks for it.

        For the time between two calls in which there is nothing else to do. Any other handler and the next round void
        what was foreseen; evaluation takes it in place of predicting the same again, so that no number depends on
        whether there was time. What fails here fails again where it is asked for, and is told there.

        Returns:
            Bytes of memory that what was foreseen takes until then.
        """
        repeat, self._repeat = self._repeat, self._calls.get("evaluate", 0)
        try:
            for evaluation in self.silo.evaluations:
                if evaluation.name in self._asked and evaluation.name not in self._foreseen:
                    self._foreseen[evaluation.name] = self._predicted(evaluation, "own")
        except Exception:
            self._foreseen.clear()
        finally:
            self._repeat = repeat
        return sum(output.nbytes for output in self._foreseen.values())

    def finish(self, *, embeddings: bool, study: bool) -> dict[str, Any]:
        """Models of the last and the best round, by what features are scaled and filled, and embeddings of the best
        on the first evaluation set."""
        result: dict[str, Any] = {"last": self.final_models(), "best": self._best}
        if self.silo.scale is not None:
            result["scale"] = scale_tensors(self.silo.scale)
        if self.silo.fills is not None:
            result["fills"] = fill_tensors(self.silo.fills)
        if self.silo.schema.booleans:
            result["booleans"] = word_tensors(self.silo.schema.booleans)
        if embeddings:
            if self._best is not None:
                last = encode_tree(result["last"])
                self.load_final(self._best)
            with torch.no_grad():
                embedded = self.embed(self.tensors(self.silo.seen.graph))
            if self._best is not None:
                result["last"] = decode_tree(last)
                self.load_final(result["last"])
            if embedded is not None:
                result["embeddings"] = embedded.cpu()
        if study:
            result["study"] = dict(self.study())
        return result

    # -- what every method gets ----------------------------------------------------------------------------------

    def generator(self, *names: Name) -> torch.Generator:
        """A generator for one purpose of this client in this call: a handler that is asked again within a round, or
        within set-up, draws anew."""
        again: tuple[Name, ...] = ("call", self._repeat) if self._repeat else ()
        return generator(self.context.seed, "client", self.id, "round", self.round, *again, *names)

    def begin(self, handler_name: str, round_number: int) -> None:
        """A call begins; the runtime says which, and in which round."""
        if round_number != self.round or handler_name != "evaluate":
            self._foreseen.clear()
        if round_number != self.round:
            self.round = round_number
            self._calls.clear()
        self._repeat = self._calls.get(handler_name, 0)
        self._calls[handler_name] = self._repeat + 1

    def tensors(self, graph: Graph | GraphCollection) -> GraphTensors:
        """The tensors of a graph, made once."""
        return tensors_of(graph, device=self.context.device)

    @property
    def data(self) -> GraphTensors:
        """The training graph's tensors."""
        return self.tensors(self.silo.graph)

    def build_model(self, spec: ModelSpec | None = None, *, seed_names: tuple[Name, ...] = ("model",)) -> Model:
        """A fresh model of this client's architecture, or of another such as ``context.common``, drawn from
        (seed, *seed_names)."""
        draw = generator(self.context.seed, *seed_names)
        return build_model(spec or self.context.model, self.silo.schema, draw, self.context.device)

    @handler
    def evaluate(self, request: EvaluateRequest) -> EvaluateReply:
        """Count true against predicted classes on every evaluation set."""
        classes = self.silo.schema.num_classes
        counts = [np.zeros((0, 4, classes, classes), dtype=np.int64)]
        kinds: dict[str, list[str]] = {}
        sizes: list[NDArray[np.int64]] = []
        scores: dict[str, list[float]] = {}
        foreseen, self._foreseen = self._foreseen, {}
        asked: set[str] = set()
        if request.aggregate is not None:
            self.install_aggregate(request.aggregate)
        for view in dict.fromkeys([*request.views, *request.global_views]):
            for evaluation in self.silo.evaluations:
                if view not in (request.global_views if evaluation.name == "global" else request.views):
                    continue
                output = foreseen.get(evaluation.name) if view == "own" else None
                if output is None:
                    output = self._predicted(evaluation, view)
                if view == "own":
                    asked.add(evaluation.name)
                name = f"{view}/{evaluation.name}"
                if self.silo.schema.task == "link":
                    owner, parts = _parts(self.silo, evaluation)
                    scores.update(self._score_links(name, output, owner, parts))
                    kinds[name] = []
                    alone = evaluation.name == "global" or parts == 1
                    sizes.append(np.array([self.silo.num_items]) if alone else np.bincount(owner, minlength=parts))
                    continue
                plan = self._plan(evaluation)
                counts.append(plan.count(output.argmax(1)).reshape(-1, 4, classes, classes))
                kinds[name] = list(plan.kinds)
                # n_k weights a client's score on the pooled graph, too; its own nodes, not the graph's
                own = np.array([len(self.silo.seen.graph.labels)])
                sizes.append(own if evaluation.name == "global" else plan.part_sizes)
                if request.auc:
                    task = self.silo.schema.task
                    scores.update(_score_classes(name, task, evaluation, output, *_parts(self.silo, evaluation)))
        self._asked = frozenset(asked)
        return EvaluateReply(
            kinds=kinds,
            parts=[len(part) for part in sizes],
            counts=torch.from_numpy(np.concatenate(counts, dtype=np.int32, casting="same_kind")),
            sizes=torch.from_numpy(np.concatenate([*sizes, np.zeros(0, dtype=np.int64)])),
            scores=scores,
        )

    def _predicted(self, evaluation: EvaluationSet, view: str) -> Tensor:
        data, before = self.tensors(evaluation.graph), precision.times_lowered()
        with torch.no_grad():
            output = self.predict(data, view)
        wanted = self.context.model.precision
        if wanted != "float32" and precision.times_lowered() == before:
            raise UnsupportedError(
                f"{type(self).__module__}: run.precision is {wanted}, but this method predicts without a model of that "
                f"precision, so the setting would do nothing. Leave it at float32; a method of your own gets such "
                f"models from build_model(), or from models.build(..., precision=self.context.model.precision)."
            )
        return output

    def _plan(self, evaluation: EvaluationSet) -> ConfusionPlan:
        if evaluation.name not in self._plans:
            self._plans[evaluation.name] = ConfusionPlan.of(
                evaluation,
                self.silo.schema.num_classes,
                num_parts=self.silo.parts,
                # The pooled graph is one question about everybody's items, not one per client.
                together=evaluation.name == "global",
            )
        return self._plans[evaluation.name]

    def _score_links(
        self, name: str, embeddings: Tensor, owner: NDArray[np.int64], parts: int
    ) -> dict[str, list[float]]:
        links = self.silo.links
        if links is None:
            raise MessageError("a silo for link prediction holds no links.")
        scores: dict[str, list[float]] = {}
        for kind, positive, negative in (
            ("val", links.val, links.val_negative),
            ("test", links.test, links.test_negative),
        ):
            pairs = np.concatenate([positive, negative], axis=1)
            labels = np.concatenate([np.ones(positive.shape[1]), np.zeros(negative.shape[1])]).astype(np.int64)
            value = link_scores(embeddings, pairs).cpu().numpy()
            scores.update(_ranked(f"{name}/{kind}", "link", labels, value, owner[pairs[0]], parts))
        return scores


def _parts(silo: Silo, evaluation: EvaluationSet) -> tuple[NDArray[np.int64], int]:
    """The client of every item, and how many clients are scored apart: one, but for a pooled silo's own sets."""
    if evaluation.part is None or evaluation.name == "global":
        graph = evaluation.graph
        count = len(graph) if isinstance(graph, GraphCollection) else graph.num_nodes
        return np.zeros(count, dtype=np.int64), 1 if evaluation.name == "global" else silo.parts
    return evaluation.part, silo.parts


def _ranked(
    name: str, task: Task, labels: NDArray[np.int64], values: NDArray[Any], owner: NDArray[np.int64], parts: int
) -> dict[str, list[float]]:
    """By metric, value and weight of each part's own ranking, in turn: a ranking over several clients' items would be
    another metric than the mean over clients that stands beside it."""
    found: dict[str, list[float]] = {}
    for metric in rankings(task):
        for part in range(parts):
            mine = owner == part
            found.setdefault(f"{name}/{metric.name}", []).extend(_wire(metric.rank(labels[mine], values[mine])))
    return found


def _score_classes(
    name: str, task: Task, evaluation: EvaluationSet, output: Tensor, owner: NDArray[np.int64], parts: int
) -> dict[str, list[float]]:
    probabilities = output.exp().cpu().numpy()
    scores: dict[str, list[float]] = {}
    for kind, items in evaluation.items.items():
        labels, values = evaluation.graph.labels[items], probabilities[items]
        scores.update(_ranked(f"{name}/{kind}", task, labels, values, owner[items], parts))
    return scores


def _wire(score: Any) -> list[float]:
    value = float("nan") if score.value is None else float(score.value)
    return [value, float(score.weight)]


def build_model(spec: ModelSpec, schema: Schema, draw: torch.Generator, device: str) -> Model:
    """A model for data of this schema with weights drawn from ``draw``.

    It computes in the precision of the spec.
    """
    model = models.build(
        spec.name,
        num_features=schema.num_features,
        num_classes=schema.num_classes,
        task=schema.task,
        generator=draw,
        precision=spec.precision,
        **spec.settings,
    )
    return model.to(device)


def precision_matters(spec: ModelSpec, silo: Silo) -> bool:
    """Whether a client's backbone answers otherwise than in float32, tried out where it might not."""
    if spec.precision == "float32":
        return False
    data = GraphTensors(silo.graph)
    if not sp.issparse(data.graph.features):
        return True
    model = build_model(spec, silo.schema, generator(0, "model"), "cpu")
    try:
        with torch.no_grad():
            output = model(data.full)
            model.precision = "float32"
            return not torch.equal(model(data.full), output)
    finally:
        data.clear()


def no_dense_products(spec: ModelSpec) -> str:
    """What to say where precision does not matter."""
    return (
        f"run.precision {spec.precision} is for dense matrix products, but '{spec.name}' without a hidden layer "
        f"multiplies sparse features here and nothing else, which stays float32. Leave the precision at float32, or "
        f"give the model a hidden layer (model.layers)."
    )


def log_probabilities(model: Model, data: GraphTensors, task: str) -> Tensor:
    """A model's answer on every item: log-softmax of its logits, or embeddings for links."""
    with torch.no_grad():
        output: Tensor = model(data.full)
    if task == "link":
        return output
    if output.is_cpu and output.shape[1] < 16:
        # Rows of a few entries are normalised one by one; as columns, many at once.
        return F.log_softmax(output.t().contiguous(), dim=0).t().contiguous()
    return F.log_softmax(output, dim=1)


__all__ = [
    "ClientBase", "ClientContext", "EvaluateReply", "EvaluateRequest", "Handler", "ModelSpec", "build_model",
    "common_model", "log_probabilities",
]  # fmt: skip
