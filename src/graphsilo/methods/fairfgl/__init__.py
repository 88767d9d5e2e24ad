"""FairFGL — label- and topology-fair federated graph learning.

Wu, Pang, Li, Zhu, Su, Fan, Li, Wang, Zhou. "Towards Unbiased Federated Graph Learning: Label and Topology
Perspectives". arXiv 2025.

Each client mixes its model with the mean of the last global models, learns from that mean's predictions on unlabelled
nodes, draws heterophilous nodes of large classes to the class prototype, and takes out of its gradients what opposes
the most dissimilar client. It uploads the most changed entries only; the server clusters the updates and gives every
cluster the same say.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.graph import Graph
from graphsilo.errors import MessageError
from graphsilo.evaluate.groups import homophily
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.federation.settings import ABOVE_ZERO, LocalTrainingConfig, setting
from graphsilo.federation.training_client import TrainingClient
from graphsilo.methods.fairfgl.clusters import cluster
from graphsilo.methods.fairfgl.updates import (
    SparseUpdate,
    expand,
    gram,
    keep_largest,
    most_dissimilar,
)
from graphsilo.models.base import EmbeddedTrace, Model
from graphsilo.models.view import View
from graphsilo.random import derive_seed
from graphsilo.training.local import borrowed, check_weights, weights_of
from graphsilo.training.optimizer import Optimizer, optimizer
from graphsilo.training.sharing import shared_copy
from graphsilo.training.upstream import gradients_through
from graphsilo.types import ClientId


class FairFGLConfig(LocalTrainingConfig):
    """Settings of FairFGL."""

    rounds: int = setting(150, "communication rounds", source="FairFGL, section V", ge=1)
    history: int = setting(
        5, "global models in the frozen mean; 0 is the ablation without history: no mixing, no distillation",
        source="FairFGL, section IV", ge=0,
    )  # fmt: skip
    alpha: Literal["entries", "scalar"] = setting(
        "entries",
        "the history's share α in the fused weights: one per weight, or one number",
        source="FairFGL",
        when={"alpha_learned": (True,)},
    )
    alpha_start: float = setting(
        0.5,
        "where α starts; 0 means that the model is not mixed with the history, ever",
        ge=0,
        lt=1,
        when={"history": ABOVE_ZERO},
    )
    alpha_learned: bool = setting(True, "whether α is trained", source="FairFGL", when={"alpha_start": ABOVE_ZERO})
    distillation: float = setting(
        1.0,
        "weight of the distillation from the history on unlabelled nodes; 0 is without",
        source="FairFGL",
        ge=0,
        when={"history": ABOVE_ZERO},
    )
    distillation_until: int | None = setting(
        None, "the distillation's weight falls in a straight line from round 1 to 0 after this round; none: it stays",
        source="ours", ge=1, when={"distillation": ABOVE_ZERO},
    )  # fmt: skip
    alignment: float = setting(
        1.0, "weight of S_loss, which draws heterophilous nodes of majority classes to their prototype; 0 is without",
        source="FairFGL", ge=0,
    )  # fmt: skip
    alignment_target: Literal["prototype", "node"] = setting(
        "prototype",
        "S_loss is KL(prototype ‖ node), or KL(node ‖ prototype) as printed",
        source="FairFGL's text",
        when={"alignment": ABOVE_ZERO},
    )
    pseudo_labels: bool = setting(
        False,
        "count unlabelled neighbours by the history's prediction when nodes are ranked by homophily",
        when={"alignment": ABOVE_ZERO},
    )
    correction: bool = setting(
        True, "take what opposes the most dissimilar client out of the gradient; false is the ablation without "
        "gradient modification", source="FairFGL",
    )  # fmt: skip
    correction_margin: float = setting(
        0.0, "length added along that client's direction after a correction", ge=0, when={"correction": (True,)}
    )
    deviated_gradient: Literal["loss", "update"] = setting(
        "loss", "the opposing direction: the gradient of the own loss at the dissimilar client's model, or that "
        "client's negative update", source="FairFGL", when={"correction": (True,)},
    )  # fmt: skip
    top_k: float = setting(
        0.5, "share of the entries of an update that is uploaded, the most changed ones", source="FairFGL: 0.2 to 0.6",
        gt=0, le=1,
    )  # fmt: skip
    clustering: bool = setting(
        True, "cluster the updates; false is the ablation: one cluster, the weighted mean", source="FairFGL"
    )
    eta: float | None = setting(
        None, "factor η of the sum over clusters; none is 1 / clusters, their mean (FairFGL: 0.4 to 0.8, fixed)", gt=0
    )
    weight_by: Literal["train", "nodes", "uniform"] = setting(
        "train", "a client's weight within its cluster: its training nodes, all its nodes, or 1", source="as FedAvg"
    )


class TrainRequest(Message):
    """The shared model, and the update of another client: the one that went the other way in the last round.

    Attributes:
        weights: The shared model.
        deviated_values, deviated_positions, deviated_bitmap: That client's update of the last round as it came, in
            the coding of ``updates.SparseUpdate``; none for whoever took no part in that round.
    """

    weights: Tensors = sends("model")
    deviated_values: Tensor | None = sends("model", relayed=True, default=None)
    deviated_positions: Tensor | None = sends("model", dtype=torch.int32, relayed=True, default=None)
    deviated_bitmap: Tensor | None = sends("model", dtype=torch.uint8, relayed=True, default=None)


class TrainReply(Message):
    """The most changed entries of the update, in the shortest of three codings.

    Attributes:
        values: What changed: the kept entries, or all.
        positions: Places of the entries, [kept] int32.
        bitmap: Or one bit per weight of the model, [ceil(P / 8)] uint8.
        num_samples: Weight of the client; 0 if it has nothing to learn from.
    """

    values: Tensor = sends("model", relayed=True)
    positions: Tensor | None = sends("model", dtype=torch.int32, relayed=True, default=None)
    bitmap: Tensor | None = sends("model", dtype=torch.uint8, relayed=True, default=None)
    num_samples: float = sends("counts")


class Alignment(NamedTuple):
    """The rows of S_loss, all training nodes of majority classes.

    Attributes:
        homo, homo_class: [a] rows whose mean is a prototype, and which one.
        hete, hete_class: [b] rows drawn to a prototype, and which one.
        sizes: [m] homophilous rows per prototype, [m, 1].
        share: [b, 1] weight of each drawn row: 1 over the drawn rows of its class.
    """

    homo: Tensor
    homo_class: Tensor
    hete: Tensor
    hete_class: Tensor
    sizes: Tensor
    share: Tensor

    def loss_and_gradient(self, embedding: Tensor, *, to_prototype: bool = True) -> tuple[Tensor, Tensor]:
        """S_loss and its gradient; prototypes are constants.

        Args:
            embedding: [n, p], the input of the last layer.
            to_prototype: KL(prototype ‖ node) if true, else KL(node ‖ prototype).
        Returns:
            The loss, and [b, p] its gradient on the rows ``hete``.
        """
        prototypes = embedding.new_zeros(len(self.sizes), embedding.shape[1])
        prototypes.index_add_(0, self.homo_class, embedding[self.homo]).div_(self.sizes)
        target = F.log_softmax(prototypes, dim=1)[self.hete_class]
        own = F.log_softmax(embedding[self.hete], dim=1)
        if to_prototype:
            probability = target.exp()
            loss = (self.share * probability * (target - own)).sum()
            return loss, (own.exp() - probability).mul_(self.share)
        probability = own.exp()
        gap = own - target
        each = (probability * gap).sum(dim=1, keepdim=True)
        return (self.share * each).sum(), (gap - each).mul_(probability).mul_(self.share)


def alignment_rows(
    graph: Graph, train: NDArray[np.int64], labels: NDArray[np.int64], neighbours: NDArray[np.int64], classes: int
) -> Alignment | None:
    """Which training nodes make the prototypes of S_loss, and which are drawn to them.

    Majority classes are those with more training nodes than the mean over the classes present. The training nodes are
    ranked by homophily, ties by node number: the first half is homophilous, the rest, and whoever has no labelled
    neighbour, is not. A majority class without nodes on either side is left out.

    Args:
        graph: The client's graph.
        train: [t] labelled training nodes.
        labels: [t] their classes.
        neighbours: [n] classes that neighbours are counted by, -1 where unknown.
        classes: C.
    Returns:
        The rows, or None if no class has both kinds.
    """
    if not len(train):
        return None
    counts = np.bincount(labels, minlength=classes)
    majority = counts * (counts > 0).sum() > counts.sum()
    share = homophily(graph, neighbours)[train]
    place = np.empty(len(train), dtype=np.int64)
    # NaN sorts last; a stable sort keeps equals in the order of their numbers.
    place[np.lexsort((train, -share))] = np.arange(len(train))
    hete = (place >= len(train) // 2) | np.isnan(share)
    drawn = np.bincount(labels[hete], minlength=classes)
    makers = np.bincount(labels[~hete], minlength=classes)
    chosen = majority & (drawn > 0) & (makers > 0)
    if not chosen.any():
        return None
    number = np.cumsum(chosen) - 1
    mine = chosen[labels]
    homo_rows, hete_rows = mine & ~hete, mine & hete
    return Alignment(
        homo=torch.from_numpy(train[homo_rows]),
        homo_class=torch.from_numpy(number[labels[homo_rows]]),
        hete=torch.from_numpy(train[hete_rows]),
        hete_class=torch.from_numpy(number[labels[hete_rows]]),
        sizes=torch.from_numpy(makers[chosen].astype(np.float32))[:, None],
        share=torch.from_numpy((1.0 / drawn[labels[hete_rows]]).astype(np.float32))[:, None],
    )


def deflect(gradient: Tensor, direction: Tensor, margin: float = 0.0) -> bool:
    """Take the part of a gradient that opposes a direction out of it, in place; whether there was one.

    With d = g·v < 0: g ← g − d / ‖v‖² · v + margin · v / ‖v‖, so that g·v = margin · ‖v‖; else g stays.

    Args:
        gradient: [P].
        direction: [P], 0 outside the mask.
        margin: Length of what is added along the direction.

    Source: FairFGL, gradient modification.
    """
    product = float(gradient @ direction)
    if product >= 0:
        return False
    squared = float(direction @ direction)
    gradient.add_(direction, alpha=(margin * math.sqrt(squared) - product) / squared)
    return True


def embedded_trace(
    model: Model, view: View, generator: torch.Generator | None, *, embeds: bool = True
) -> EmbeddedTrace:
    """Logits, embeddings and the way back of one pass: ``Model.trace_embedding``, by autograd where it has none.

    There the embeddings are computed a second time, with the same dropout; running statistics move once.
    """
    traced = model.trace_embedding(view, generator)
    if traced is not None:
        return traced
    parameters = list(model.parameters())
    before = None if generator is None else generator.get_state()
    embedding: Tensor | None = None
    with torch.enable_grad():
        logits = model(view, generator)
        if embeds:
            buffers = dict(model.named_buffers())
            with borrowed(buffers, {name: buffer.clone() for name, buffer in buffers.items()}):
                if generator is not None and before is not None:
                    after = generator.get_state()
                    generator.set_state(before)
                    embedding = model.embed(view, generator)
                    generator.set_state(after)
                else:
                    embedding = model.embed(view, generator)
            embedding = embedding if embedding.requires_grad else None

    def pull(gradient: Tensor, inner: Tensor | None) -> list[Tensor]:
        if inner is None or embedding is None:
            return gradients_through([logits], [gradient], parameters)
        return gradients_through([logits, embedding], [gradient, inner], parameters)

    return logits.detach(), None if embedding is None else embedding.detach(), pull


class Goal(NamedTuple):
    """What the rows of a pass are to become in this round.

    Attributes:
        view: The rows that are computed.
        target: [rows, C] the class of a labelled row, the history's prediction of an unlabelled one.
        share: [rows, 1] weight of each row in the loss of a full batch.
        labelled: [t] where the labelled rows are.
        alignment: The rows of S_loss.
    """

    view: View
    target: Tensor
    share: Tensor
    labelled: Tensor
    alignment: Alignment | None


class Client(TrainingClient[FairFGLConfig]):
    """Trains W_local and α through the fused weights Ŵ = α ⊙ W_hist + (1 − α) ⊙ W_local.

    ``self.model`` holds Ŵ, which is what predicts. All its parameters lie in one flat tensor, so that mixing, the
    chain rule, the correction and the optimiser are a handful of kernels, whatever layers the model has.
    """

    def __init__(self, context: ClientContext[FairFGLConfig]):
        super().__init__(context)
        config = self.config
        self._parameter_names = [name for name, _ in self.model.named_parameters()]
        self._fused = self._flat(self.weights)
        for name, part in self._by_name(self._fused).items():
            self.weights[name].data = part
        self._mixes = config.history > 0 and config.alpha_start > 0
        # Unmixed, the local weights are the fused ones.
        self._local = self._fused.clone() if self._mixes else self._fused
        self.trainer.optimizer = self._make_optimizer(self._local, config.weight_decay)
        start = math.log(config.alpha_start / (1 - config.alpha_start)) if self._mixes else 0.0
        size = len(self._local) if config.alpha == "entries" else 1
        self._logit = torch.full((size if self._mixes else 0,), start, device=self.data.device)
        self._logit_optimizer = self._make_optimizer(self._logit, 0.0)
        self._alpha = torch.sigmoid(self._logit)
        self._history: deque[Tensors] = deque(maxlen=max(config.history, 1))
        self._steps = self._corrected = 0

        labels = self.silo.labels[self.silo.train]
        self._train = self.silo.train[labels >= 0]
        self._labels = labels[labels >= 0]
        self._base_goal: Goal | None = None

    @handler
    def train(self, request: TrainRequest) -> TrainReply:
        """Download, train through the fused weights, upload what changed most."""
        check_weights(self.weights, request.weights)
        with torch.no_grad():
            direction = self._direction(request)
            self._history.append(shared_copy(request.weights))
            mean = self._mean_of_history()
            self._local.copy_(self._flat(request.weights))
            for name in self._buffer_names():
                self.weights[name].copy_(request.weights[name])
            self._fuse(mean)
            if self.config.reset_optimizer:
                self.trainer.optimizer.reset()
                self._logit_optimizer.reset()
            if self.weight > 0:
                self._fit(mean, direction)
            change = [self._local - self._flat(request.weights)]
            change += [(self.weights[name] - request.weights[name]).reshape(-1) for name in self._buffer_names()]
            update = keep_largest(torch.cat(change), self.config.top_k)
        return TrainReply(
            values=update.values, positions=update.positions, bitmap=update.bitmap, num_samples=self.weight
        )

    @property
    def weight(self) -> float:
        """Weight in the cluster's mean; 0, hence left out, for a client with nothing to train on."""
        if not len(self._train):
            return 0.0
        return float({"train": len(self._train), "nodes": self.silo.num_items, "uniform": 1}[self.config.weight_by])

    def study(self) -> Mapping[str, Any]:
        """Mean α, and the share of steps whose gradient was corrected."""
        return {
            "alpha": float(self._alpha.mean()) if self._mixes else 0.0,
            "corrected": self._corrected / max(self._steps, 1),
        }

    def state(self) -> dict[str, Any]:
        return {
            **super().state(),
            "logit": self._logit,
            "logit_optimizer": self._logit_optimizer.state(),
            "history": list(self._history),
            "steps": self._steps,
            "corrected": self._corrected,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._logit.copy_(state["logit"])
        self._alpha = torch.sigmoid(self._logit)
        self._logit_optimizer.load_state(state["logit_optimizer"])
        self._history.clear()
        self._history.extend(shared_copy(weights) for weights in state["history"])
        self._steps, self._corrected = int(state["steps"]), int(state["corrected"])

    # -- weights -----------------------------------------------------------------------------------------------

    def _make_optimizer(self, flat: Tensor, weight_decay: float) -> Optimizer:
        config = self.config
        return optimizer(config.optimizer, [flat], lr=config.lr, weight_decay=weight_decay, momentum=config.momentum)

    def _flat(self, weights: Tensors) -> Tensor:
        """The parameters in one row, [P]."""
        return torch.cat([weights[name].detach().to(self.data.device).reshape(-1) for name in self._parameter_names])

    def _by_name(self, flat: Tensor) -> dict[str, Tensor]:
        """Parameters as views of a row that ``_flat`` made."""
        shapes = [self.weights[name].shape for name in self._parameter_names]
        parts = flat.split([shape.numel() for shape in shapes])
        return {name: part.view(shape) for name, part, shape in zip(self._parameter_names, parts, shapes, strict=True)}

    def _buffer_names(self) -> list[str]:
        """Float buffers, such as the statistics of BatchNorm: they travel, and are not mixed."""
        return list(self.weights)[len(self._parameter_names) :]

    def _mean_of_history(self) -> Tensor:
        """W_hist, the mean of the last global models, [P]."""
        rows = [self._flat(weights) for weights in self._history]
        return rows[0] if len(rows) == 1 else torch.stack(rows).mean(dim=0)

    def _history_model(self, mean: Tensor) -> dict[str, Tensor]:
        """W_hist by name, with the mean of the buffers."""
        weights = self._by_name(mean)
        for name in self._buffer_names():
            weights[name] = torch.stack([one[name].to(mean.device) for one in self._history]).mean(dim=0)
        return weights

    def _fuse(self, mean: Tensor) -> None:
        """Ŵ = α ⊙ W_hist + (1 − α) ⊙ W_local, into the model."""
        if self._mixes:
            torch.sigmoid(self._logit, out=self._alpha)
            torch.lerp(self._local, mean, self._alpha, out=self._fused)

    # -- gradients ---------------------------------------------------------------------------------------------

    def _direction(self, request: TrainRequest) -> Tensor | None:
        """What the dissimilar client's model would change here, on the entries that client changed; [P]."""
        if not self.config.correction or request.deviated_values is None or self.weight == 0:
            return None
        if not self._history:
            raise MessageError("an update of the last round came to a client that was not there: restore its state.")
        sizes = [tensor.numel() for tensor in self.weights.values()]
        update = SparseUpdate(request.deviated_values, request.deviated_positions, request.deviated_bitmap)
        change = expand(update, sum(sizes)).to(self.data.device)
        mine = change[: len(self._fused)]
        if self.config.deviated_gradient == "update":
            direction = -mine
        else:
            parts = change.split(sizes)
            before = self._history[-1]
            deviated = {
                name: before[name].to(part.device) + part.view(before[name].shape)
                for name, part in zip(self.weights, parts, strict=True)
            }
            with borrowed(self.weights, deviated):
                logits, _, pull = embedded_trace(self.model, self.data.kept_view(self._train), None, embeds=False)
                labels = torch.from_numpy(self._labels).to(logits.device)
                rest = F.softmax(logits, dim=1).sub_(F.one_hot(labels, logits.shape[1])).div_(len(labels))
                direction = _joined(pull(rest, None)).mul_(mine != 0)
        return direction if bool(direction.any()) else None

    def _fit(self, mean: Tensor, direction: Tensor | None) -> None:
        """The local epochs."""
        config = self.config
        draw = self.generator("train")
        goal = self._goal(mean)
        for _ in range(config.local_epochs):
            for share in self._batches(goal, draw):
                logits, embedding, pull = embedded_trace(self.model, goal.view, draw, embeds=goal.alignment is not None)
                # d/dz of cross-entropy and of KL(target ‖ softmax z) alike: softmax(z) − target.
                outer = F.softmax(logits, dim=1).sub_(goal.target).mul_(share)
                inner = None
                if goal.alignment is not None and embedding is not None:
                    _, rows = goal.alignment.loss_and_gradient(
                        embedding, to_prototype=config.alignment_target == "prototype"
                    )
                    inner = torch.zeros_like(embedding)
                    inner[goal.alignment.hete] = rows.mul_(config.alignment)
                self._step(_joined(pull(outer, inner)), mean, direction)
                self._fuse(mean)

    def _step(self, gradient: Tensor, mean: Tensor, direction: Tensor | None) -> None:
        """From the gradient at Ŵ to W_local and α by the chain rule, and one step of both."""
        self._steps += 1
        if self._mixes:
            rest = 1 - self._alpha
            if self.config.alpha_learned:
                slope = (mean - self._local).mul_(gradient)
                if self.config.alpha == "scalar":
                    slope = slope.sum().reshape(1)
                logit_gradient = slope.mul_(self._alpha).mul_(rest)
            gradient.mul_(rest)
        if direction is not None:
            self._corrected += deflect(gradient, direction, self.config.correction_margin)
        if self._mixes and self.config.alpha_learned:
            self._logit_optimizer.step([logit_gradient])
        self.trainer.optimizer.step([gradient])

    def _batches(self, goal: Goal, draw: torch.Generator) -> Iterator[Tensor]:
        """The rows' weights for every step of an epoch; batches are of labelled rows, the other terms stay."""
        size, total = self.config.batch_size, len(self._train)
        if size <= 0 or size >= total:
            yield goal.share
            return
        for part in torch.randperm(total, generator=draw).split(size):
            share = goal.share.clone()
            share[goal.labelled] = 0.0
            share[goal.labelled[part.to(share.device)]] = 1.0 / len(part)
            yield share

    def _goal(self, mean: Tensor) -> Goal:
        """This round's targets; what does not change is made once."""
        config = self.config
        if self._base_goal is None:
            self._base_goal = self._fixed_goal()
        goal = self._base_goal
        left = self._distillation_left
        distils = self._distils and left > 0
        aligns = config.alignment > 0 and config.pseudo_labels
        if left < 1:
            share = goal.share * left
            share[goal.labelled] = goal.share[goal.labelled]
            goal = goal._replace(share=share)
        if distils or aligns:
            with borrowed(self.weights, self._history_model(mean)):
                logits = self.model(self.data.full)
            if distils:
                target = F.softmax(logits, dim=1)
                target[goal.labelled] = goal.target[goal.labelled]
                goal = goal._replace(target=target)
            if aligns:
                guessed = logits.argmax(dim=1).cpu().numpy()
                guessed[self._train] = self._labels
                goal = goal._replace(alignment=self._alignment(guessed))
        return goal

    @property
    def _distillation_left(self) -> float:
        """The share of the distillation's weight that is left in this round."""
        until = self.config.distillation_until
        return 1.0 if until is None else max(0.0, (until + 1 - self.round) / until)

    @property
    def _distils(self) -> bool:
        config = self.config
        return config.distillation > 0 and config.history > 0 and len(self._train) < self.data.num_nodes

    def _fixed_goal(self) -> Goal:
        config, device = self.config, self.data.device
        rows, labels = torch.from_numpy(self._train).to(device), torch.from_numpy(self._labels).to(device)
        whole = self._distils or config.alignment > 0
        count = self.data.num_nodes if whole else len(rows)
        labelled = rows if whole else torch.arange(count, device=device)
        target = torch.zeros(count, self.silo.schema.num_classes, device=device)
        target[labelled, labels] = 1.0
        rest = config.distillation / (count - len(rows)) if self._distils else 0.0
        share = torch.full((count, 1), rest, device=device)
        share[labelled] = 1.0 / len(rows)
        known = np.full(self.data.num_nodes, -1, dtype=np.int64)
        known[self._train] = self._labels
        alignment = self._alignment(known) if config.alignment > 0 and not config.pseudo_labels else None
        view = self.data.full if whole else self.data.kept_view(self._train)
        return Goal(view, target, share, labelled, alignment)

    def _alignment(self, neighbours: NDArray[np.int64]) -> Alignment | None:
        rows = alignment_rows(self.data.graph, self._train, self._labels, neighbours, self.silo.schema.num_classes)
        return None if rows is None else Alignment(*(part.to(self.data.device) for part in rows))


def _joined(gradients: Sequence[Tensor]) -> Tensor:
    """One row of its own memory."""
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


class Server(ServerBase[FairFGLConfig]):
    """Clusters the updates, gives each cluster the same say, and passes each client its opposite's update."""

    def __init__(self, context: ServerContext[FairFGLConfig]):
        super().__init__(context)
        self.weights: dict[str, Tensor] = weights_of(self.build_model())
        self.deviated: dict[ClientId, ClientId] = {}
        self.updates: dict[ClientId, SparseUpdate] = {}

    def round(self, federation: Federation, number: int) -> None:
        chosen = self.select(federation, number)
        total = sum(tensor.numel() for tensor in self.weights.values())
        rows: dict[ClientId, Tensor] = {}

        def expanded(client: ClientId, reply: TrainReply) -> None:
            rows[client] = _expanded(client, SparseUpdate(reply.values, reply.positions, reply.bitmap), total)

        replies = federation.ask(Client.train, self._requests(chosen), check=expanded)
        replies.require(self.config.min_clients)
        self.deviated, self.updates = {}, {}
        answers = {client: reply for client, reply in replies if reply.num_samples > 0}
        if not answers:  # nobody had anything to train on, and the model stays
            return
        sent = {client: SparseUpdate(reply.values, reply.positions, reply.bitmap) for client, reply in answers.items()}
        updates = torch.stack([rows[client] for client in sent])
        needed = self.config.clustering or self.config.correction
        products = gram(updates) if needed else np.zeros((len(updates), len(updates)))
        self._aggregate(updates, products, [reply.num_samples for reply in answers.values()], number)
        if self.config.correction:
            clients = list(sent)
            opposite = most_dissimilar(products)
            self.deviated = {
                client: clients[place] for client, place in zip(clients, opposite.tolist(), strict=True) if place >= 0
            }
            self.updates = {client: sent[client] for client in sorted(set(self.deviated.values()))}
        self.log["kept"] = sum(len(update.values) for update in sent.values()) / (len(sent) * total)

    def _requests(self, chosen: Sequence[ClientId]) -> dict[ClientId, TrainRequest]:
        """One message per client; those with the same opposite share one."""
        made: dict[ClientId | None, TrainRequest] = {}
        for client in chosen:
            other = self.deviated.get(client)
            if other not in made:
                update = None if other is None else self.updates[other]
                made[other] = TrainRequest(
                    weights=self.weights,
                    deviated_values=None if update is None else update.values,
                    deviated_positions=None if update is None else update.positions,
                    deviated_bitmap=None if update is None else update.bitmap,
                )
        return {client: made[self.deviated.get(client)] for client in chosen}

    def _aggregate(self, updates: Tensor, products: NDArray[np.float64], samples: Sequence[float], number: int) -> None:
        """W += η Σ_clusters (the weighted mean of the cluster's updates), summed in float64."""
        labels = np.zeros(len(updates), dtype=np.int64)
        count = 1
        if self.config.clustering:
            seed = derive_seed(self.context.seed, "server", "round", number, "cluster") % 2**32
            labels, count, silhouette = cluster(products, seed=seed)
            if silhouette is not None:
                self.log["silhouette"] = silhouette
        self.log["clusters"] = float(count)
        weights = np.asarray(samples, dtype=np.float64)
        factor = 1.0 / count if self.config.eta is None else self.config.eta
        share = factor * weights / np.bincount(labels, weights, minlength=count)[labels]
        change = torch.zeros(updates.shape[1], dtype=torch.float64)
        for row, part in zip(updates, share.tolist(), strict=True):
            change.add_(row, alpha=part)
        parts = change.split([tensor.numel() for tensor in self.weights.values()])
        self.weights = {
            name: (old.double() + part.view(old.shape).to(old.device)).to(old.dtype)
            for (name, old), part in zip(self.weights.items(), parts, strict=True)
        }

    def aggregate(self) -> Tensors | None:
        return self.weights

    def state(self) -> dict[str, Any]:
        return {
            "weights": dict(self.weights),
            "deviated": dict(self.deviated),
            "updates": {client: update._asdict() for client, update in self.updates.items()},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.weights = dict(state["weights"])
        self.deviated = dict(state["deviated"])
        self.updates = {client: SparseUpdate(**parts) for client, parts in state["updates"].items()}


def _expanded(client: ClientId, update: SparseUpdate, total: int) -> Tensor:
    """A client's update as a row.

    Raises:
        MessageError: It does not fit the model; the text names the client.
    """
    try:
        return expand(update, total)
    except MessageError as error:
        raise MessageError(f"client {client}: {error}") from None


METHOD = Method(
    name="fairfgl",
    family="fairness",
    title="FairFGL",
    citation='Wu et al. "Towards Unbiased Federated Graph Learning: Label and Topology Perspectives". arXiv 2025.',
    summary="Fused with past global models, corrected against the most dissimilar client, aggregated by clusters.",
    config=FairFGLConfig,
    client=Client,
    server=Server,
    tasks=("node",),
    model={"name": "gcn", "hidden": [64]},
)
