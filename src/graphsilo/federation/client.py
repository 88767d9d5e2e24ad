"""The client's side: private data, a model, named handlers, and an evaluation that is the same for all methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphsilo import models
from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.errors import MessageError, UnsupportedError, refuse_unless
from graphsilo.evaluate.metrics import METRICS
from graphsilo.federation.compression import UNCOMPRESSED, Compression
from graphsilo.federation.interface import Handler, handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.scoring import Scoring, probabilities
from graphsilo.federation.settings import MethodConfig
from graphsilo.models import precision
from graphsilo.models.base import Model
from graphsilo.models.view import GraphTensors, tensors_of
from graphsilo.random import Name, generator
from graphsilo.training.local import load_model_state, model_state
from graphsilo.types import ClientId, Precision

if TYPE_CHECKING:
    from graphsilo.federation.portable import Deciding
    from graphsilo.models.shares import Shares
    from graphsilo.training.sharing import SharedTensors

ConfigT = TypeVar("ConfigT", bound=MethodConfig)

COMMON = "common model"
"""Among a client's models the server's, which of a federation of one is in no other file."""
BESIDE_COMMON = "beside the common model"
"""Likewise what the server's predicts only together with, as it was in the round that the latter is of."""
_ROUNDING, _DIGITS = 1e-9, 2.0**-9
"""Share by which a mean of shares in float64, and one of values that were rounded to digits, may be beyond a bound."""


@dataclass(frozen=True)
class ModelSpec:
    """Which backbone a client runs, how it is set, how precisely it computes, and where its first weights stand
    (``starts.read_start``; None: drawn)."""

    name: str
    settings: Mapping[str, Any]
    precision: Precision = "float32"
    start: tuple[str, str] | None = None

    def wire(self) -> list[Any]:
        """The same as plain values; ``ModelSpec(*values)`` takes them back."""
        return [self.name, dict(self.settings), self.precision, *([self.start] if self.start else [])]


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
        compression: How it compresses the models that it sends.
        select_by: Name of the metric of all choices by validation items, the run's ``evaluation.select_by``.
        beside: [test items] classes that the model answers beside which this run is a reference row; None: it is none.
        least: Items that a bin of scores holds, if any.
    """

    client: ClientId
    silo: Silo
    config: ConfigT
    model: ModelSpec
    seed: int
    device: str = "cpu"
    server_model: ModelSpec | None = None
    compression: Compression = UNCOMPRESSED
    select_by: str = "accuracy"
    beside: NDArray[np.int64] | None = field(default=None, repr=False)
    least: int = 1

    @property
    def common(self) -> ModelSpec:
        """The backbone that server and clients have in common: where clients run different ones, the server's."""
        return self.server_model or self.model


class EvaluateRequest(Message):
    """Ask for counts; carries the aggregate where that view is wanted.

    Attributes:
        views: Model views to score on the client's own evaluation sets.
        global_views: Model views to score on the pooled graph, in a simulation that has one.
        auc: Also the area under the ROC curve, average precision and other rankings.
        rare: Of two classes the one that is looked for, by default the rarer one among the training items of all silos;
            None where that is not known.
        budget: How many items a client can look into; below 1 a share of them.
        aim: What a client chooses its threshold for, as ``evaluate.rare.choose`` has it; empty: it chooses none.
        periods: Bounds of periods in time, of whose test items kinds ``test:0``, ``test:1``, … are scored, too.
        agreed: By view, [5] the ``evaluate.rare.Decision`` that all clients have; of others each chooses its own.
        aggregate: The server's model, for the ``aggregate`` view.
    """

    views: list[str] = sends("control")
    global_views: list[str] = sends("control", default=())
    auc: bool = sends("control", default=False)
    rare: int | None = sends("control", default=None)
    budget: float = sends("control", default=1.0)
    aim: str = sends("control", default="")
    periods: list[float] = sends("control", default=())
    agreed: Tensors | None = sends("statistic", dtype=torch.float64, shape=(5,), default=None)
    aggregate: Tensors | None = sends("model", default=None)


class EvaluateReply(Message):
    """Confusion counts and scores.

    Attributes:
        kinds: ``"view/set"`` → names of the kinds of items that were counted; none for link prediction.
        parts: For each of these entries, how many clients' items it counts apart; 1 but for a pooled silo.
        counts: [rows, 4, C, C] int32; the rows are parts x kinds of the first entry, then of the second, and so on.
        sizes: [parts] int64, entry by entry: nodes (graphs) of each part that could be classified, the n_k of means.
        scores: ``"view/set/kind/metric"`` → value and weight of each part in turn; link prediction, and AUC where
            asked for.
        bins: ``"view/set/kind"`` → [parts, 2, columns] how scores of the class looked for lie (``evaluate.binned``).
    """

    kinds: dict[str, list[str]] = sends("control")
    parts: list[int] = sends("control")
    counts: Tensor = sends("counts", dtype=torch.int32, shape=("rows", 4, "classes", "classes"), evaluated=True)
    sizes: Tensor = sends("counts", dtype=torch.int64, shape=("parts",))
    scores: dict[str, list[float]] = sends("score", allow_nan=True, evaluated=True)
    bins: Tensors | None = sends("counts", dtype=torch.int64, evaluated="each", default=None)


class EvaluateSums(Message):
    """The same as what only adds up over clients, named ``"view/set/kind"``.

    Attributes:
        counts: [4, C, C] int64 confusion counts.
        ranked: [2, 1] of each score that the client ranked itself, ``"view/set/kind/metric"``.
        items: [1] int64 how many items each of these rests on.
        sizes: [1] int64 n_k, named ``"view/set"``.
        bins: As an ``EvaluateReply`` has them, of one part.
    """

    counts: Tensors = sends("counts", dtype=torch.int64, evaluated=True)
    ranked: Tensors = sends("score", dtype=torch.float64, default=())
    items: Tensors = sends("counts", dtype=torch.int64, evaluated=True, default=())
    sizes: Tensors = sends("counts", dtype=torch.int64)
    bins: Tensors | None = sends("counts", dtype=torch.int64, evaluated="each", default=None)

    def check(self) -> None:
        for name, (above, below) in dict(self.ranked).items():
            metric = METRICS.get(name.rpartition("/")[2].partition("@")[0])
            low, high = (metric and metric.bounds) or (0.0, 1.0)
            most = below * (1 + (_ROUNDING if metric is None or metric.is_share else _DIGITS))
            if bool(((below < 0) | (above < low * most) | (above > high * most)).any()):
                raise MessageError(f"EvaluateSums of '{name[:60]}' are of no scores from {low:g} to {high:g}.")


class ScoreCounts(Message):
    """How scores of the class looked for lie among validation items: ``"view/set/kind"`` → [1, 2, bins]."""

    bins: Tensors = sends("counts", dtype=torch.int64, evaluated="each")


class ClientBase(ABC, Generic[ConfigT]):
    """One participant. Subclasses add handlers and say how they predict.

    A client holds its silo and nothing of other clients or of the server; what it learns from them came in messages.

    Attributes:
        id: Number of the client.
        silo: Its private data.
        config: Settings of the method.
        round: Number of the current round, 0 during set-up; set by the runtime.
        repeat: How often the current step was asked for before in this round; set by the runtime.
        takes_unscaled: Whether it looks at features as they were read.
        kept: Names of the attributes that last from round to round: they are saved, and what a step changed in them is
            taken back where its answer was not counted. Tensors and plain values, also in lists and by name.
        stateful: Names of the attributes that are saved as well, and never taken back: models, optimisers, accounts of
            what was released. Each is a module, has ``state`` and ``load_state``, or is None.
        completes_common: Whether the server's model predicts only together with what the client keeps to itself, which
            is among its final models as ``BESIDE_COMMON``.
    """

    takes_unscaled: ClassVar[bool] = False
    completes_common: ClassVar[bool] = False
    kept: ClassVar[tuple[str, ...]] = ()
    stateful: ClassVar[tuple[str, ...]] = ()

    def __init__(self, context: ClientContext[ConfigT]):
        self.context = context
        self.id = context.client
        self.silo = context.silo
        self.config = context.config
        self.round = self.repeat = 0
        self._scoring = Scoring(context.least)

    # -- what a method writes ------------------------------------------------------------------------------------

    @abstractmethod
    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        """Logits [items, C] on all items of a graph, of which softmax makes probabilities (link prediction: embeddings
        [nodes, p]). Log-probabilities are logits, too.

        Args:
            data: The graph, as tensors.
            view: ``own`` for the client's own model, ``aggregate`` for the one it last installed.
        """

    def install_aggregate(self, weights: Tensors) -> None:
        """Take the server's model for the ``aggregate`` view, without touching the client's own."""
        raise UnsupportedError(f"{type(self).__module__}: this method has no aggregated model to evaluate.")

    def state(self) -> dict[str, Any]:
        """Everything that must survive a restart: tensors and plain values, here those of ``kept`` and ``stateful``."""
        return {name: getattr(self, name) for name in self.kept} | states_of(self, self.stateful)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state()``."""
        for name in self.kept:
            setattr(self, name, copy_kept(state[name], self.kept_on))
        load_states(self, self.stateful, state)

    @property
    def kept_on(self) -> str:
        """The device that ``kept`` comes back to."""
        return self.context.device

    def final_models(self) -> dict[str, Tensors]:
        """Weights worth keeping after the run: what ``load_final`` needs to predict as now."""
        return {}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        """Predict as when ``final_models`` returned these."""

    @property
    def can_be_offloaded(self) -> bool:
        """Whether ``state()`` is complete now, between two calls: such a client may be put away and made again.

        Where the steps of set-up share what is in no state, the client is not at rest before the last of them.
        """
        return True

    def release(self) -> None:
        """The client is put away: break what refers to itself, such as tensors of graphs that the client made."""

    def embed(self, data: GraphTensors) -> Tensor | None:
        """Embeddings [items, p] of the client's own model; None where it has none."""
        return None

    def explain(self, data: GraphTensors, items: NDArray[np.int64], output: Tensor, view: str = "own") -> list[Shares]:
        """Why the scores of some items are what they are, each held against the mean of the silo's training items.

        Args:
            data: The graph.
            items: [m] numbers of its items.
            output: [C] float64: a score is the logits of an item times these.
            view: As for ``predict``.

        Raises:
            UnsupportedError: This method cannot tell.
        """
        from graphsilo.federation.gradients import explain_network

        return explain_network(self, data, items, output, view)

    def models_of(self, view: str) -> list[tuple[ClientBase[Any], str]]:
        """The clients whose mean log-probabilities a view is, and each one's view: itself, but where it is several."""
        return [(self, view)]

    no_export: ClassVar[str] = "it scores otherwise than by ridges, trees, or one of graphsilo's networks alone"
    """Why there is no network that scores other graphs as it does, in words."""

    def network_of(self, view: str) -> Deciding | None:
        """The network that scores graphs of which nothing is known but their tables as ``predict`` does, and what is
        made of its rows; None where more is needed. Who says how it predicts must say this, too."""
        from graphsilo.federation.portable import trained_network

        return trained_network(self, view)

    def portable(self, view: str = "own", *, labelled: bool = True) -> list[dict[str, Any]]:
        """What its scores are a sum of, for ``experiments/export/scorer.py``: plain values, and arrays by name.

        Args:
            view: As for ``predict``.
            labelled: Whether for the silo's own graph, of which classes of nodes are known.

        Raises:
            UnsupportedError: They need more than that.
        """
        from graphsilo.federation.portable import portable_network

        return portable_network(self, view)

    @property
    def class_names(self) -> list[str]:
        """Of the classes, or their numbers as text."""
        schema = self.silo.schema
        return list(schema.class_names or map(str, range(schema.num_classes)))

    def count_trained(self) -> int:
        """How many numbers it trains: those that the optimisers in ``stateful`` hold."""
        from graphsilo.training.optimizer import Optimizer

        parts = (getattr(self, name) for name in self.stateful)
        held = (getattr(part, "optimizer", part) for part in parts)
        tensors = {id(one): one for each in held if isinstance(each, Optimizer) for one in each.parameters}
        return sum(one.numel() for one in tensors.values())

    def study(self) -> Mapping[str, Any]:
        """Facts about the method's inner workings, for the researcher at this machine: plain numbers, and tensors.

        Asked for once, after the last round, with ``evaluation.study``. They stay beside the result and are in no
        message, so that private data may be compared with what was learned from it.
        """
        return {}

    # -- what every method gets ----------------------------------------------------------------------------------

    def generator(self, *names: Name) -> torch.Generator:
        """A generator for one purpose of this client in this call: a handler that is asked again within a round, or
        within set-up, draws again."""
        again: tuple[Name, ...] = ("call", self.repeat) if self.repeat else ()
        return generator(self.context.seed, "client", self.id, "round", self.round, *again, *names)

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

    def keep(self, tensors: Tensors) -> SharedTensors:
        """Received tensors, on the client's device, that may be held and put into ``state()`` after the call.

        What was received is a view of its whole message, which lasts no longer than the call should. Clients of one
        process that keep the same tensors have one copy of them, in memory and in checkpoints; nobody writes to it.
        ``load_state`` keeps what the state holds in the same way.
        """
        from graphsilo.training.sharing import shared_copy

        return shared_copy(tensors, self.context.device)

    def predict_undecided(self, items: int) -> Tensor:
        """[items, C] log-probabilities of all classes alike, or the mean of each target: of who has no model."""
        classes = self.silo.schema.num_classes
        if self.silo.has_targets:
            return torch.zeros(items, classes, device=self.context.device)
        return torch.full((items, classes), -float(np.log(classes)), device=self.context.device)

    @handler
    def evaluate(self, request: EvaluateRequest) -> EvaluateReply:
        """Count true against predicted classes on every evaluation set."""
        return EvaluateReply(**self._scores(request, self.context.beside))

    @handler
    def evaluate_sums(self, request: EvaluateRequest) -> EvaluateSums:
        """The same for a federation that is scored as a whole: what only the sum over clients is seen of."""
        from graphsilo.federation.rank_scoring import sums_of

        return EvaluateSums(**sums_of(**self._scores(request)))

    @handler
    def evaluate_bins(self, request: EvaluateRequest) -> ScoreCounts:
        """Count scores of validation items, for one threshold of all clients."""
        from graphsilo.federation.rank_scoring import count_validation

        refuse_unless(request.rare is not None, "rare")
        self._prepare(request)
        outputs = {f"{view}/seen/val": self._predict_set(self.silo.seen, view) for view in request.views}
        return ScoreCounts(bins=count_validation(self.silo.seen, outputs, request.rare or 0, self.context.least))

    def _scores(self, request: EvaluateRequest, beside: NDArray[np.int64] | None = None) -> dict[str, Any]:
        """The fields of an ``EvaluateReply``."""
        self._prepare(request)
        return self._scoring.scores(
            self.silo, self._predict_set, request.views, request.global_views, auc=request.auc, rare=request.rare,
            budget=request.budget, aim=request.aim, agreed=request.agreed, beside=beside, periods=request.periods,
        )  # fmt: skip

    def _prepare(self, request: EvaluateRequest) -> None:
        refuse_unless({*request.views, *request.global_views} <= {"own", "aggregate"}, "views")
        if request.aggregate is not None:
            self.install_aggregate(request.aggregate)
        if request.rare is not None and not (self.silo.schema.num_classes == 2 > request.rare >= 0):
            raise MessageError(f"EvaluateRequest.rare is one of two classes, 0 or 1; got {request.rare}.")

    def answers(self, view: str) -> Tensor:
        """[test items] classes that a view of the model answers on the client's own graph."""
        seen = self.silo.seen
        return self._predict_set(seen, view).argmax(1).cpu()[torch.as_tensor(seen.items["test"])]

    def decide(self, view: str, known: Mapping[str, Any] | None = None) -> list[float] | None:
        """The numbers of the ``evaluate.rare.Decision`` that validation items choose for a view of the model, by
        positive, budget and aim in ``known``, else as last asked for; None where there is none to choose."""
        known, seen = self._scoring.looking if known is None else known, self.silo.seen
        if not known.get("aim") or "val" not in seen.items:
            return None
        from graphsilo.evaluate.rare import choose_for

        shares = probabilities(self._predict_set(seen, view)).cpu().numpy()
        return list(map(float, choose_for(seen.items, seen.graph.labels, shares, **known)))

    def _predict_set(self, evaluation: EvaluationSet, view: str) -> Tensor:
        data, before = self.tensors(evaluation.graph), precision.times_reduced()
        with torch.no_grad():
            output = self.predict(data, view)
        wanted = self.context.model.precision
        if wanted != "float32" and precision.times_reduced() == before:
            raise UnsupportedError(
                f"{type(self).__module__}: run.precision is {wanted}, but this method predicts without a model of that "
                f"precision, so the setting would do nothing. Leave it at float32; a method of your own gets such "
                f"models from build_model(), or from models.build(..., precision=self.context.model.precision)."
            )
        return output


def copy_kept(value: Any, device: str | None = None) -> Any:
    """A value of an attribute in ``kept`` with tensors of its own, on the same device unless another is named.

    ``SharedTensors`` on that device stay what they are: nobody writes to them.
    """
    from graphsilo.training.sharing import SharedTensors, shared_copy

    if isinstance(value, SharedTensors):
        return value if device is None else shared_copy(value, device)
    if isinstance(value, Tensor):
        return value.detach().to(device or value.device, copy=True)
    if isinstance(value, Mapping):
        return {name: copy_kept(each, device) for name, each in value.items()}
    return [copy_kept(each, device) for each in value] if isinstance(value, list | tuple) else value


def states_of(owner: object, names: Iterable[str]) -> dict[str, Any]:
    """The states of attributes, but of those that are None."""
    parts = {name: getattr(owner, name) for name in names if getattr(owner, name) is not None}
    return {name: model_state(part) if isinstance(part, nn.Module) else part.state() for name, part in parts.items()}


def load_states(owner: object, names: Iterable[str], state: Mapping[str, Any]) -> None:
    """Take back what ``states_of`` gave."""
    for name in names:
        part = getattr(owner, name)
        if isinstance(part, nn.Module):
            load_model_state(part, state[name])
        elif part is not None:
            part.load_state(state[name])


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
        schema=schema,
        **spec.settings,
    )
    if spec.start is not None:
        from graphsilo.federation.starts import start_backbone

        start_backbone(model, spec.start)
    return model.to(device)


__all__ = [
    "ClientBase", "ClientContext", "EvaluateReply", "EvaluateRequest", "Handler", "ModelSpec", "build_model",
    "common_model",
]  # fmt: skip
