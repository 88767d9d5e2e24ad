"""What an attacker sees of one silo: the coordinator, another silo, or who reads the saved model. Nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphsilo.attacks.recorder import Call, Repetition
from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.errors import GraphsiloError
from graphsilo.federation import noise
from graphsilo.federation.client import ClientBase, ClientContext, ModelSpec, common_model
from graphsilo.federation.message import FieldSpec, Message, Tensors, tensors_in
from graphsilo.federation.registry import Method
from graphsilo.federation.release import Release
from graphsilo.federation.settings import LocalTrainingConfig, MethodConfig
from graphsilo.methods.auto import AutoConfig
from graphsilo.methods.dp_fedavg import DPFedAvgConfig, NoisyChange
from graphsilo.methods.fedtrees.messages import DirectionsRequest, StartRequest
from graphsilo.methods.opfgl import private
from graphsilo.methods.opfgl.config import OpFGLConfig
from graphsilo.methods.opfgl.messages import Statistics
from graphsilo.models.view import Matrix
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.types import ClientId

Attacker: TypeAlias = Literal["coordinator", "silo", "reader"]
ATTACKERS: tuple[Attacker, ...] = get_args(Attacker)
C = TypeVar("C", bound=MethodConfig)
Saved: TypeAlias = "tuple[str, Mapping[str, Any]]"
"""A model: ``common`` or ``sent`` (by the silo) and its weights, or ``own`` and what a client saves."""


_MODELS = {"sent": "the silo's last model", "common": "the common model", "own": "the silo's own saved model"}


@dataclass(frozen=True)
class Public:
    """What everybody knows: settings, names, and that the method's code is open.

    Attributes:
        set_up: Requests that every silo gets before the first tree; FedTrees' forests cannot be read without them.
    """

    method: Method
    config: MethodConfig
    schema: Schema
    models: Mapping[ClientId, ModelSpec]
    seed: int
    clients: tuple[ClientId, ...]
    set_up: tuple[Call, ...] = ()

    def settings(self, kind: type[C]) -> C | None:
        """The run's settings of a method, or of one that Auto is made of; None where that method is not run."""
        parts = self.config.of_parts().values() if isinstance(self.config, AutoConfig) else (self.config,)
        return next((each for each in parts if isinstance(each, kind)), None)

    def member(self, client: ClientId, silo: Silo) -> ClientBase[Any]:
        """A client of the method on somebody's data."""
        common = common_model(self.models)
        made = self.method.client(
            ClientContext(client, silo, self.config, self.models[client], self.seed, "cpu", common)
        )
        for call in self.set_up:
            getattr(made, call.step)(call.request)
        return made

    def logits(self, saved: Saved, client: ClientId, graph: Graph) -> Tensor | None:
        """What a model says of a graph's nodes, [n, C] log-probabilities; None where it is no classifier of these."""
        # A client without data of its own asks: what models make of own labels is not the attacker's.
        none, empty = np.zeros(0, dtype=np.int64), _graph(np.zeros((1, self.schema.num_features), dtype=np.float32))
        asked = EvaluationSet("seen", empty, {"val": none, "test": none})
        kind, weights = saved
        with torch.no_grad():
            try:  # a part of a model, such as the layers that a method shares, or a method that needs more than a graph
                member = self.member(client, Silo(client, empty, none, (asked,), self.schema))
                if kind == "own":
                    member.load_final(weights)
                else:
                    member.install_aggregate(weights)
                found = member.predict(member.tensors(graph), "own" if kind == "own" else "aggregate")
            except (GraphsiloError, KeyError):
                return None
        return torch.log_softmax(found.double(), dim=1)

    def without_features(self, asked: tuple[str, Message], client: ClientId) -> Message | None:
        """What a new client answers whose only node has no feature: the method's code is open."""
        step, request = asked
        node = np.zeros(1, dtype=np.int64)
        graph = replace(_graph(np.zeros((1, self.schema.num_features), dtype=np.float32)), labels=node)
        asked_of = EvaluationSet("seen", graph, {"val": node[:0], "test": node[:0]})
        try:
            member = self.member(client, Silo(client, graph, node, (asked_of,), self.schema))
            member.round = 1
            answer = getattr(member, step)(request)
        except (GraphsiloError, RuntimeError, ValueError):  # methods that a single node is too little for
            return None
        return answer if isinstance(answer, Message) else None

    def of_words(self, saved: Saved, client: ClientId) -> Tensor | None:
        """The same of nodes without links that have one feature each, [d, C]."""
        return self.logits(saved, client, _graph(np.eye(self.schema.num_features, dtype=np.float32)))


@dataclass(frozen=True)
class Update:
    """Weights before and after local training.

    Attributes:
        own: Whether they are the silo's; else the mean over several.
        asked: What was asked for: the step and the request.
    """

    before: Mapping[str, Tensor]
    after: Mapping[str, Tensor]
    own: bool
    round: int
    asked: tuple[str, Message] | None = None

    @property
    def whose(self) -> str:
        """What to say behind what was made of it."""
        return "" if self.own else ", mean over silos"

    def gradient(self, config: MethodConfig) -> dict[str, Tensor]:
        """The sum of the gradients behind a change, as far as the change tells it.

        Plain descent is taken back exactly where there was one step. Of Adam's first step lr · g / (|g| + ε) the
        rounding of float32 leaves enough to tell g unless it is large. Otherwise the change itself stands for it, its
        sign turned.
        """
        change = {name: (self.before[name].double() - self.after[name].double()) for name in self.after}
        if not isinstance(config, LocalTrainingConfig):
            return change
        plain = config.optimizer == "sgd" and not config.momentum
        single = config.local_epochs == 1 and not config.batch_size
        if not plain and not (config.optimizer == "adam" and single and (self.round == 1 or config.reset_optimizer)):
            return change
        found = {}
        for name, moved in change.items():
            step = moved / config.lr
            if not plain:
                step = 1e-8 * step / (1 - step.abs()).clamp_min(1e-7)
            found[name] = step - config.local_epochs * config.weight_decay * self.before[name].double()
        return found


@dataclass(frozen=True)
class View:
    """What one attacker knows of one silo.

    Attributes:
        target: The silo.
        calls: Messages that the attacker saw, in order; for a coordinator the target's own, and those over all silos
            (``client`` None).
        saved: The model as the attacker has it at the end: what the target sent last, the common one, or what the
            target saved.
        own: The attacker's data, where it is a silo.
        predictions: The saved model's predictions of the target's nodes, [n, C], which a reader was given.
        decoder: Features and embeddings of a silo's own nodes, from which embeddings can be read: of the attacking
            silo, or of one that helps the coordinator.
    """

    attacker: Attacker
    target: ClientId
    public: Public
    calls: tuple[Call, ...] = ()
    saved: Saved | None = None
    own: Silo | None = None
    predictions: Tensor | None = None
    decoder: tuple[Tensor, Tensor] | None = None

    @property
    def model(self) -> str:
        """What the model is that the attacker has, in words; empty without one."""
        return "" if self.saved is None else _MODELS[self.saved[0]]

    @cached_property
    def updates(self) -> list[Update]:
        """Changes of weights that the attacker saw, those of the target where it did."""
        return _steps(self) if self.attacker == "silo" else _changes(self)

    def fields(self, *kinds: str) -> Iterator[tuple[Call, FieldSpec, Tensor]]:
        """Tensors of these kinds: for a coordinator in answers of the target or sums over all, for another silo in what
        it was asked with, which is made of all answers."""
        for call in self.calls:
            message = call.answer
            if self.attacker == "silo":
                message, call = call.request, replace(call, client=None)
            if isinstance(message, Release) and isinstance(self.public.config, OpFGLConfig):
                message = _statistics(message, self.public.schema)
            for spec in message.specs():
                value = getattr(message, spec.name)
                if spec.kind in kinds and spec.form != "plain" and value is not None:
                    for tensor in tensors_in(value):
                        yield call, spec, tensor.double()

    @property
    def is_single(self) -> bool:
        """Whether the attacker sees what the target sent by itself."""
        return self.attacker == "coordinator" and any(call.client == self.target for call in self.calls)


def views(repetition: Repetition, attacker: Attacker, targets: tuple[ClientId, ...]) -> list[View]:
    """What an attacker sees of each of some silos. As another silo, the next one attacks."""
    public = public_of(repetition)
    return [_view(repetition, attacker, target, public) for target in targets]


def public_of(repetition: Repetition) -> Public:
    """What everybody knows of a run."""
    simulation = repetition.simulation
    set_up = {
        call.step: call
        for call in repetition.recorder.calls
        if isinstance(call.request, DirectionsRequest | StartRequest)
    }
    return Public(
        repetition.method, repetition.config.method_config(), simulation.schema, simulation.models, repetition.seed,
        simulation.clients, tuple(set_up.values()),
    )  # fmt: skip


def _view(repetition: Repetition, attacker: Attacker, target: ClientId, public: Public) -> View:
    calls, models = repetition.recorder.calls, repetition.models
    seen = View(attacker, target, public)
    common = next((saved for saved in models.values() if saved[0] == "common"), None)
    if attacker == "reader":
        saved, predictions = models.get(target), None
        if saved is not None:
            silo = next(silo for silo in repetition.simulation.silos if silo.client == target)
            predictions = public.logits(saved, target, silo.graph.union)
        return replace(seen, saved=saved, predictions=predictions)
    if attacker == "coordinator":
        mine = tuple(call for call in calls if call.client in (None, target))
        made = models.get(target, common)
        made = made if made is not None and made[0] == "common" else None
        return replace(
            seen, calls=mine, saved=last_model(mine, common, target) or made, decoder=_decoder(repetition, target)
        )
    other = next_to(target, public.clients)
    if other is None:
        return seen
    # In a secure sum a silo hears the request and knows its own answer; the sum it does not see.
    heard = tuple(
        replace(call, client=other, answer=_Nothing()) if call.client is None else call
        for call in calls if call.client in (None, other)
    )  # fmt: skip
    silo = next(silo for silo in repetition.simulation.silos if silo.client == other)
    theirs = models.get(other)
    return replace(
        seen, calls=heard, own=silo, saved=theirs if theirs is not None and theirs[0] == "common" else None,
        decoder=_decoder(repetition, target),
    )  # fmt: skip


class _Nothing(Message):
    """In place of what was not seen."""


def last_model(calls: tuple[Call, ...], common: Saved | None, target: ClientId) -> Saved | None:
    """The last weights that a client sent by itself, if they are of the common model's form."""
    if common is None:
        return None
    for call in reversed(calls):
        if call.client == target and call.phase != "evaluation":
            for _, weights in weights_in(call.answer):
                if weights.keys() == common[1].keys():
                    return "sent", weights
    return None


def weights_in(message: Message) -> Iterator[tuple[FieldSpec, Tensors]]:
    """Models in a message."""
    for spec in message.specs():
        value = getattr(message, spec.name)
        if spec.kind == "model" and spec.form == "tensors" and value:
            yield spec, value


def _changes(view: View) -> list[Update]:
    """From a request's weights to those of its answer."""
    found = []
    for call in view.calls:
        before = {spec.name: weights for spec, weights in weights_in(call.request)}
        if isinstance(call.answer, NoisyChange) and isinstance(view.public.config, DPFedAvgConfig):
            moved = numbers_of(call.answer, view.public.config.clip) / call.clients
            weights = _add_change(before["weights"], moved)
            asked = call.step, call.request
            found.append(Update(before["weights"], weights, call.client is not None, call.round, asked))
        for spec, after in weights_in(call.answer):
            start = before.get(spec.name)
            if start is None or not _are_alike(start, after):
                continue
            if call.client is None:
                weight = float(getattr(call.answer, spec.weighted_by)) if spec.weighted_by else call.clients
                after = {name: (tensor.double() / weight).to(start[name].dtype) for name, tensor in after.items()}
            found.append(Update(start, after, call.client is not None, call.round, (call.step, call.request)))
    return found


def _are_alike(one: Tensors, other: Tensors) -> bool:
    """Whether two models are of one form: forests grow."""
    return one.keys() == other.keys() and all(one[name].shape == other[name].shape for name in one)


def _add_change(weights: Tensors, change: Tensor) -> Tensors:
    """Weights and a change of them, all in one vector."""
    parts = change.split([tensor.numel() for tensor in weights.values()])
    return {
        name: (old.double() + part.view_as(old)).to(old.dtype)
        for (name, old), part in zip(weights.items(), parts, strict=True)
    }


def _steps(view: View) -> list[Update]:
    """From the weights of one request to those of the next round's."""
    found: list[Update] = []
    before: tuple[Call, Tensors] | None = None
    for call in view.calls:
        for _, weights in weights_in(call.request):
            if call.phase == "round":
                if before is not None and before[0].round == call.round - 1 and _are_alike(before[1], weights):
                    last = before[0]
                    found.append(Update(before[1], weights, False, last.round, (last.step, last.request)))
                before = call, weights
    return found


def numbers_of(release: Release, sensitivity: float) -> Tensor:
    """What was released, noise included, in the units of what it was made of."""
    return release.numbers.double() * noise.grid(sensitivity, release.numbers.numel())


def _statistics(release: Release, schema: Schema) -> Message:
    """O-pFGL's statistics with noise, by the names that they have without."""
    classes, features = schema.num_classes, schema.num_features
    numbers = numbers_of(release, private.SENSITIVITY)
    counts, totals, squares = numbers.split([classes, classes * features, classes * features])
    sums = {"totals": totals.view(classes, -1), "squares": squares.view(classes, -1)}
    return Statistics(counts=counts, labelled=counts, contributors=counts, within=sums["squares"], **sums)


def next_to(target: ClientId, clients: tuple[ClientId, ...]) -> ClientId | None:
    """Which silo attacks another one; None where there is no other."""
    return clients[(clients.index(target) + 1) % len(clients)] if len(clients) > 1 else None


def _decoder(repetition: Repetition, target: ClientId) -> tuple[Tensor, Tensor] | None:
    federation, other = repetition.recorder.federation, next_to(target, repetition.simulation.clients)
    if not isinstance(federation, InProcess) or other is None:
        return None
    member = federation.client(other)
    with torch.no_grad():
        found = member.embed(member.tensors(member.silo.graph))
    return None if found is None else (dense(member.silo.graph.union.features), found.double())


def dense(matrix: Matrix) -> Tensor:
    """Features as a tensor in float64."""
    return torch.from_numpy(np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix, dtype=np.float64))


def _graph(features: Any) -> Graph:
    count = features.shape[0]
    return Graph(features, np.zeros((2, 0), dtype=np.int64), np.full(count, -1, dtype=np.int64), num_classes=2)


def without_links(graph: Graph) -> Graph:
    """The same nodes and no links: what somebody who knows only features can ask a model about."""
    return _graph(graph.features)
