"""Auto — FedRidge, then FedTrees as far as it pays: validation says which, or both, for all silos and for each.

graphsilo's own; FedRidge and FedTrees.

The first round is FedRidge's: one exact ridge. Every further round is a step of FedTrees' forest, and there are fewer
where the forest would not catch up. In the first and every fourth round all silos' validation items together say, by
counts, which kind of model is best: of one method or a mean of both; common, corrected by each silo, or of its own
rows. All silos take that kind, and one departs from it where its own items say so clearly: a choice of each silo's,
among few items, is worse. The reported round is chosen as in any method, among these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.silos.silo import Schema
from graphsilo.data.silos.targets import scaled_targets
from graphsilo.errors import MessageError
from graphsilo.evaluate.choice import CLEAR, Judge, describe_choice, rate_candidates
from graphsilo.evaluate.metrics import Metric, find_selecting
from graphsilo.federation.candidates import Candidates, CandidatesRequest
from graphsilo.federation.client import ClientBase, ClientContext
from graphsilo.federation.interface import (
    Check,
    Failure,
    Federation,
    Handler,
    Reply,
    Request,
    Total,
    handler,
    handlers_of,
)
from graphsilo.federation.message import Done, Message, Tensors, sends
from graphsilo.federation.registry import Method
from graphsilo.federation.release import ReleaseRequest
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.federation.settings import MethodConfig, setting
from graphsilo.methods import fedridge, fedtrees
from graphsilo.models.shares import Shares
from graphsilo.models.view import GraphTensors
from graphsilo.types import ClientId, Task

PARTS = {"ridge": fedridge.METHOD, "trees": fedtrees.METHOD}
"""In the order of rounds."""
COMMON = "common"
CHOICES = (
    (("ridge", COMMON),),
    (("ridge", "own"),),
    (("trees", COMMON),),
    (("trees", "corrected"),),
    (("trees", "alone"),),
    (("ridge", COMMON), ("trees", COMMON)),
    (("ridge", "own"), ("trees", "corrected")),
    (("ridge", "own"), ("trees", COMMON), ("trees", "alone")),
)
"""What is chosen among, named in ``METHOD``: means of the log-probabilities of methods' models, each of some view. Of
equals the first is taken."""
FIRST = 2
"""How many of them there are before the first tree."""
SHARED = tuple(place for place, models in enumerate(CHOICES) if all(view == COMMON for _, view in models))
"""Those of which all silos have the same model."""
_OF_TREES = tuple(place for place, models in enumerate(CHOICES) if all(name == "trees" for name, _ in models))
COURSE = "auc"
"""By which is said how trees get on, where the task has it: of one common class, accuracy begins late."""
EVERY = 4
"""Rounds from one choice to the next."""
FEWEST = 16
"""Rounds before anything is said about more of them."""


class AutoConfig(MethodConfig):
    """Settings of Auto."""

    reaches_all: ClassVar[bool] = True

    rounds: int = setting(
        100, "rounds at most: FedRidge's one, then steps of FedTrees as long as they may catch up",
        source="ours", ge=1,
    )  # fmt: skip
    participation: float = setting(
        1.0,
        "share of clients that add to the sums: int(clients * share), at least one, drawn uniformly; all have what "
        "comes of them",
        source="OpenFGL", gt=0, le=1,
    )  # fmt: skip
    balance: float = setting(
        0.0, "class weights (n / (C · n_c))^balance: 0 counts nodes alike, 1 classes", source="ours", ge=0, le=1,
        when={"task": ("node", "graph")},
    )  # fmt: skip
    own: bool = setting(
        True, "whether silos correct the common models towards their own rows, or take these alone", source="ours"
    )
    min_count: int = setting(
        1, "a class with fewer training nodes at a silo is left out of its sums", source="ours", ge=1
    )

    def is_scored(self, number: int) -> bool:
        """Those after which silos choose: the first, every fourth and the last. A choice costs as much as a step, as
        does a score, and of many some win by chance."""
        return number == 1 or number % EVERY == 0 or number == self.rounds

    @property
    def chooses_by_validation(self) -> bool:
        """All silos together choose the model by it, and each its own."""
        return True

    def of_parts(self) -> dict[str, MethodConfig]:
        """The settings of each method that is tried."""
        said = self.model_dump(exclude={"rounds", "balance"})
        parts: dict[str, dict[str, Any]] = {"ridge": {"balance": (self.balance,)}}
        if self.rounds > 1:
            parts["trees"] = {"balance": self.balance, "rounds": self.rounds - 1}
        return {name: PARTS[name].config.model_validate({**said, **own}) for name, own in parts.items()}

    def square_columns(self, schema: Schema) -> int:
        return max(part.square_columns(schema) for part in self.of_parts().values())


class ScoreRequest(CandidatesRequest):
    """Ask how good each kind of model is.

    Attributes:
        choices: How many of ``CHOICES`` there are by now: those of FedRidge, or all.
        course: Whether the AUC is asked for, too: scores are sorted for it.
    """

    choices: int = sends("control")
    course: bool = sends("control")

    def count_models(self) -> tuple[int, ...]:
        return (self.choices,)


class RankedCandidates(Candidates):
    """Counts of each kind of model, and always scores: before the first step, the AUC."""

    ranked: Tensors = sends("score", dtype=torch.float64, evaluated=True)


class ChooseRequest(Message):
    """Tell what all silos' validation items together prefer.

    Attributes:
        choices: How many of ``CHOICES`` there are.
        preferred: The number of one.
    """

    choices: int = sends("control")
    preferred: int = sends("control")


class Client(ClientBase[AutoConfig]):
    """Takes part in each method, and chooses among what they gave it: its steps are theirs, ``ridge_count`` etc."""

    kept = ("_chosen", "_of_ridge")
    kept_on = "cpu"

    def __init__(self, context: ClientContext[AutoConfig]):
        super().__init__(context)
        configs: dict[str, Any] = context.config.of_parts()
        self._parts: dict[str, Any] = {
            name: PARTS[name].client(replace(context, config=config)) for name, config in configs.items()
        }
        self._chosen, self._aggregate = FIRST - 1, 0
        self._said: WeakKeyDictionary[GraphTensors, dict[str, Tensor]] = WeakKeyDictionary()
        self._outputs: list[NDArray[np.float32]] = []
        # All silos together choose among what these would choose by the same few items.
        self._parts["ridge"].holds_out = True
        if trees := self._parts.get("trees"):
            trees.chooses = False

    @property
    def _of_ridge(self) -> dict[str, Any]:
        """What FedRidge keeps; FedTrees' silos have trees that were not counted sent to them again."""
        ridge = self._parts["ridge"]
        return {name: getattr(ridge, name) for name in ridge.kept}

    @_of_ridge.setter
    def _of_ridge(self, kept: Mapping[str, Any]) -> None:
        for name, value in kept.items():
            setattr(self._parts["ridge"], name, value)
        self._said.clear()
        self._outputs = []

    def part(self, name: str) -> ClientBase[Any]:
        """Its side of a method, in this round."""
        part: ClientBase[Any] = self._parts[name]
        self._outputs = []
        if name == "ridge":
            self._said.clear()
        part.round, part.repeat = self.round, self.repeat
        return part

    @handler
    def score(self, request: ScoreRequest) -> RankedCandidates:
        """Say how good each kind of model is by own validation items."""
        self._check(request.choices)
        judge, outputs = self._judge(request.choices)
        if request.choices == FIRST:
            self._predict_part("ridge", "own", self.tensors(self.silo.seen.graph))
            self._parts["ridge"].drop_columns()
        further = [course_of(self.silo.schema.task).name] if request.course else ()
        return RankedCandidates.from_outputs(judge, outputs, self.silo.schema.num_classes, further)

    @handler
    def choose(self, request: ChooseRequest) -> Done:
        """Take the kind that all silos prefer, or another one where own validation items clearly do."""
        count = request.choices
        self._check(count, request.preferred)
        judge, outputs = self._judge(count)
        order = sorted(range(count), key=lambda choice: choice != request.preferred)
        self._chosen = order[judge.best([outputs[choice] for choice in order], count - 1)]
        self._outputs = []
        return Done(clients=1)

    def _check(self, count: int, preferred: int = 0) -> None:
        if count not in (FIRST, len(CHOICES)) or not 0 <= preferred < count or (
            count > FIRST and "trees" not in self._parts
        ):  # fmt: skip
            raise MessageError(
                f"{count} kinds of models, number {preferred} of them preferred, were named; this silo has {FIRST} "
                f"before the first tree and {len(CHOICES)} after it."
            )

    def _judge(self, count: int) -> tuple[Judge, list[NDArray[np.float32]]]:
        """Of the own validation items, and [n, C] log-probabilities of these for each choice."""
        if len(self._outputs) != count:
            self._outputs = [self._predict_choice(choice) for choice in range(count)]
        seen, task = self.silo.seen.graph, self.silo.schema.task
        labels = scaled_targets(self.silo, seen) if self.silo.has_targets else seen.labels
        return Judge(find_selecting(self.context.select_by, task), labels[self._validation], CLEAR), self._outputs

    @cached_property
    def _validation(self) -> NDArray[np.int64]:
        return self.silo.labelled_validation()

    def _predict_choice(self, choice: int) -> NDArray[np.float32]:
        data, ridge = self.tensors(self.silo.seen.graph), self._parts["ridge"]
        found: NDArray[np.float32] = self._mean([
            ridge.predict_held_out()
            if model == ("ridge", "own")
            else self._predict_part(*model, data).cpu()[self._validation]
            for model in CHOICES[choice]
        ]).numpy()  # fmt: skip
        return found

    def _predict_part(self, name: str, view: str, data: GraphTensors) -> Tensor:
        """[n, C] log-probabilities of one method's model. What FedRidge's says of a graph is held: it does not change
        from round to round."""
        part = self._parts[name]
        if name != "ridge":
            found: Tensor = part.predict(data, view)
            return found
        held, view = self._said.setdefault(data, {}), part.same_view(view)
        if view not in held:
            held[view] = part.predict(data, view)
        return held[view]

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        is_common = view == "aggregate"
        models = CHOICES[self._aggregate if is_common else self._chosen]
        return self._mean([self._predict_part(name, view if is_common else whose, data) for name, whose in models])

    def explain(self, data: GraphTensors, items: NDArray[np.int64], output: Tensor, view: str = "own") -> list[Shares]:
        """The mean of its parts' shares."""
        from graphsilo.models.shares import add_shares

        each = [part.explain(data, items, output, whose) for part, whose in self.models_of(view)]
        return [add_shares(found, 1 / len(each)) for found in zip(*each, strict=True)]

    def models_of(self, view: str) -> list[tuple[ClientBase[Any], str]]:
        """The clients of methods whose mean a view is, and each one's view."""
        is_common = view == "aggregate"
        models = CHOICES[self._aggregate if is_common else self._chosen]
        return [(self._parts[name], view if is_common else whose) for name, whose in models]

    def _mean(self, outputs: Sequence[Tensor]) -> Tensor:
        """[n, C] log-probabilities; of targets as they are."""
        mean = outputs[0] if len(outputs) == 1 else torch.stack(list(outputs)).mean(0)
        return mean if len(outputs) == 1 or self.silo.has_targets else F.log_softmax(mean, dim=1)

    def install_aggregate(self, weights: Tensors) -> None:
        self._aggregate, found = _models_of(weights)
        for (name, _), model in found.items():
            self._parts[name].install_aggregate(model)
        for held in self._said.values():
            held.pop("aggregate", None)

    def state(self) -> dict[str, Any]:
        return {"chosen": self._chosen, **{name: part.state() for name, part in self._parts.items()}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._chosen = int(state["chosen"])
        for name, part in self._parts.items():
            part.load_state(state[name])
        self._said.clear()

    def release(self) -> None:
        self._said.clear()
        self._outputs = []
        for part in self._parts.values():
            part.release()

    def final_models(self) -> dict[str, Tensors]:
        if not self._parts["ridge"].final_models():  # before round 1
            return {}
        # How sharp FedRidge's common model is, each silo knows for itself.
        kept = {"own": CHOICES[self._chosen], COMMON: (("ridge", COMMON),)}
        return {
            view: _join({(name, whose): self._parts[name].model_of(whose) for name, whose in models})
            for view, models in kept.items()
        }

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        self._chosen, found = _models_of(models["own"])
        found |= _models_of(models[COMMON])[1]
        self._said.clear()
        for name, part in self._parts.items():
            if mine := {view: model for (whose, view), model in found.items() if whose == name}:
                part.load_final(mine)

    def study(self) -> Mapping[str, Any]:
        """What the silo took, the number of a choice; and what FedRidge says of itself."""
        found = {f"ridge_{key}": value for key, value in self._parts["ridge"].study().items()}
        return {"chosen": float(self._chosen), **found} if found else {}


def course_of(task: Task) -> Metric:
    """The metric by which is said how trees get on."""
    return find_selecting(COURSE, task)


def _join(models: Mapping[tuple[str, str], Tensors]) -> dict[str, Tensor]:
    return {f"{name}-{view}/{key}": tensor for (name, view), model in models.items() for key, tensor in model.items()}


def _models_of(weights: Tensors) -> tuple[int, dict[tuple[str, str], dict[str, Tensor]]]:
    """The number of the choice whose models these are, and the models by method and view.

    Raises:
        MessageError: They are of no choice.
    """
    found: dict[tuple[str, str], dict[str, Tensor]] = {}
    for name, tensor in weights.items():
        whose, _, key = name.partition("/")
        method, _, view = whose.partition("-")
        found.setdefault((method, view), {})[key] = tensor
    for number, models in enumerate(CHOICES):
        if found.keys() == set(models):
            return number, found
    raise MessageError(
        f"weights are of no models that are tried here: {', '.join(sorted({name for name, _ in found}))[:80]}."
    )


def _step_of(part: str, step: Handler[Any, Any]) -> Handler[Any, Any]:
    """A method's step as one of this method's clients."""

    def call(self: Client, request: Any) -> Any:
        return step.function(self.part(part), request)

    request, reply = step.types()
    call.__annotations__ = {"self": Client, "request": request, "return": reply}
    call.__doc__ = step.__doc__
    made = handler(call)
    made.name = f"{part}_{step.name}"
    return made


STEPS = {
    (part, name): _step_of(part, step)
    for part, method in PARTS.items()
    for name, step in handlers_of(method.client).items()
    if name not in handlers_of(ClientBase) and not issubclass(step.types()[0], ReleaseRequest)
}
for _made in STEPS.values():
    setattr(Client, _made.name, _made)


class _Steps(Federation):
    """The federation as a method's server sees it: its steps are those of this method's clients."""

    def __init__(self, federation: Federation, part: str):
        self.federation, self.part = federation, part
        self.clients, self.ledger, self.robust = federation.clients, federation.ledger, federation.robust

    def sum(
        self, handler: Handler[Request, Reply], request: Request | Mapping[ClientId, Request], *,
        to: Sequence[ClientId] | None = None,
    ) -> Total[Reply]:  # fmt: skip
        # With ``participation``, silos that added nothing have the models, too, and choose among all of them.
        return self.federation.sum(STEPS[self.part, handler.name], request, to=None if handler.name == "adopt" else to)

    def exchange(
        self, handler: Handler[Request, Reply], request: Request | Mapping[ClientId, Request],
        to: Sequence[ClientId] | None = None, check: Check[Reply] | None = None,
    ) -> Iterator[tuple[ClientId, Reply | Failure, Mapping[str, Any]]]:  # fmt: skip
        return self.federation.exchange(STEPS[self.part, handler.name], request, to, check)

    def note_failure(self, failure: Failure) -> None:
        self.federation.note_failure(failure)


class Server(ServerBase[AutoConfig]):
    """Runs one method after the other, and stops where a further step would not pay.

    Attributes:
        parts: The server of each method.
        preferred: Numbers of the choice that all silos' validation items together liked best, and of the best one of
            which all silos have the same model.
        curve: AUC of FedTrees' best models in rounds 8, 16, 32, ...
        ridge: AUC of FedRidge's.
    """

    kept = ("preferred", "curve", "ridge", "ends_early")

    def __init__(self, context: ServerContext[AutoConfig]):
        super().__init__(context)
        configs: dict[str, Any] = self.config.of_parts()
        self.parts = {name: PARTS[name].server(replace(context, config=config)) for name, config in configs.items()}
        self.preferred, self.curve, self.ridge = [FIRST - 1, 0], list[float](), -math.inf

    def expected_bytes(self) -> tuple[int, int]:
        each = [part.expected_bytes() for part in self.parts.values()]
        return sum(up for up, _ in each), sum(down for _, down in each)

    def set_up(self, federation: Federation) -> None:
        """FedRidge's: FedTrees' columns, which take as much memory as the data, are made once FedRidge's are let go."""
        self._run("ridge", lambda part, its: part.set_up(its), federation)

    def round(self, federation: Federation, number: int) -> None:
        """FedRidge's round, or a step of FedTrees; then the choice between them."""
        if self.ends_early:  # alone, other silos may go on
            return
        steps = number - 1
        if steps == 1:
            self._run("trees", lambda part, its: part.set_up(its), federation)
        self._run("trees" if steps else "ridge", lambda part, its: part.round(its, steps or 1), federation)
        self.log["chosen"] = float(self.preferred[0])
        if self.config.is_scored(number):
            self._choose(federation, number)

    def _run(self, name: str, run: Callable[[ServerBase[Any], Federation], None], federation: Federation) -> None:
        part = self.parts[name]
        run(part, _Steps(federation, name))
        self.log.update({f"{name}_{key}": value for key, value in part.log.items()})
        part.log.clear()

    def _choose(self, federation: Federation, number: int) -> None:
        is_first = number == 1  # without a tree
        choices = FIRST if is_first else len(CHOICES)
        # In rounds 1, 8, 16, 32, ...
        course = is_first or (number >= FEWEST // 2 and number & (number - 1) == 0)
        request = ScoreRequest(choices=choices, course=course)
        found = federation.sum(Client.score, request).require(self.config.min_clients)
        metric = find_selecting(self.context.select_by, self.schema.task)
        values = rate_candidates(metric, found.counts.numpy(), found.ranked)
        if not values:  # nobody can tell whether trees are better
            self.ends_early = True
            return
        shared = [place for place in SHARED if place < choices]
        self.preferred = [int(np.argmax(values)), max(shared, key=values.__getitem__)]  # the first of equals
        if is_first and "trees" in self.parts:
            # Silos chose their own ridges by the same nodes that choose the reported round, which would be this one.
            self.preferred[0] = self.preferred[1]
        chosen = ChooseRequest(choices=choices, preferred=self.preferred[0])
        federation.sum(Client.choose, chosen).require(self.config.min_clients)
        self.log.update(describe_choice(self.preferred[0], metric, values))
        self.ends_early = "trees" not in self.parts
        if course:
            each = rate_candidates(course_of(self.schema.task), found.counts.numpy(), found.ranked) or values
            if is_first:
                self.ridge = max(each)
                return
            self.curve.append(max(each[place] for place in _OF_TREES))
            self.ends_early = number >= FEWEST and self._is_hopeless()

    def _is_hopeless(self) -> bool:
        """Whether the trees would stay behind, if each doubling of the rounds gained half of what the last one did."""
        before, now = self.curve[-2:]
        return now + max(now - before, 0.0) < self.ridge

    def aggregate(self) -> Tensors | None:
        return _join({model: self.parts[model[0]].aggregate() or {} for model in CHOICES[self.preferred[1]]}) or None

    def state(self) -> dict[str, Any]:
        return {**super().state(), "parts": {name: part.state() for name, part in self.parts.items()}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        for name, part in self.parts.items():
            part.load_state(state["parts"][name])


METHOD = Method(
    about=__doc__,
    name="auto",
    family="trees",
    config=AutoConfig,
    client=Client,
    server=Server,
    tasks=("node", "graph", "regression", "multilabel"),
    backbone=False,
    edge_weights=True,
    choices={
        "chosen": (
            "FedRidge's common model",
            "FedRidge's own models",
            "the common forest",
            "corrected forests",
            "trees of each silo's own",
            "the mean of both common models",
            "the mean of FedRidge's own models and corrected forests",
            "the mean of FedRidge's own models, the common forest and own trees",
        ),
    },
    balances="balance=0.5",
)
