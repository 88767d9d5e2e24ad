"""FairFGL's client: fuses its model with past common ones, and sends the largest changes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.graph import Graph
from graphsilo.errors import MessageError
from graphsilo.evaluate.groups import homophily
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import handler
from graphsilo.federation.message import Tensors
from graphsilo.federation.past_client import PastClient
from graphsilo.federation.training_client import TrainingClient, client_weight
from graphsilo.methods.fairfgl.config import FairFGLConfig
from graphsilo.methods.fairfgl.messages import TrainReply, TrainRequest
from graphsilo.methods.fairfgl.updates import (
    SparseUpdate,
    expand,
    keep_largest,
)
from graphsilo.models.base import borrow
from graphsilo.models.view import View
from graphsilo.training.local import check_weights
from graphsilo.training.optimizer import Optimizer, optimizer
from graphsilo.training.sharing import SharedTensors
from graphsilo.training.upstream import trace


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

    def gradient(self, embedding: Tensor, *, to_prototype: bool = True) -> Tensor:
        """The gradient of S_loss, the KL divergence of drawn rows and their prototype, which is a constant: its mean
        over each class's rows, summed over classes.

        Args:
            embedding: [n, p], the input of the last layer.
            to_prototype: KL(prototype ‖ node) if true, else KL(node ‖ prototype).
        Returns:
            [b, p] for the rows ``hete``.
        """
        prototypes = embedding.new_zeros(len(self.sizes), embedding.shape[1])
        prototypes.index_add_(0, self.homo_class, embedding.index_select(0, self.homo)).div_(self.sizes)
        target = F.log_softmax(prototypes, dim=1)
        own = F.log_softmax(embedding.index_select(0, self.hete), dim=1)
        if to_prototype:
            return own.exp_().sub_(target.exp_().index_select(0, self.hete_class)).mul_(self.share)
        probability = own.exp()
        gap = own.sub_(target.index_select(0, self.hete_class))
        each = (probability * gap).sum(dim=1, keepdim=True)
        return gap.sub_(each).mul_(probability).mul_(self.share)


def alignment_rows(
    graph: Graph, train: NDArray[np.int64], labels: NDArray[np.int64], neighbours: NDArray[np.int64], classes: int
) -> Alignment | None:
    """Which training nodes make the prototypes of S_loss, and which are drawn to them.

    Majority classes are those with more training nodes than the mean over the classes present. The training nodes are
    ranked by homophily, ties by row: the first half is homophilous, the rest, and whoever has no labelled
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
    # NaN sorts last; equals stay in the order of their rows.
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


class Client(PastClient[FairFGLConfig], TrainingClient[FairFGLConfig]):
    """Trains W_local and α through the fused weights Ŵ = α ⊙ W_hist + (1 − α) ⊙ W_local.

    ``self.model`` holds Ŵ, which is what predicts. All its parameters lie in one flat tensor, so that mixing, the
    chain rule, the correction and the optimiser are a handful of kernels, whatever layers the model has.
    """

    kept = ("_history", "_steps", "_corrected")
    stateful = (*TrainingClient.stateful, "_logit_optimizer")

    def __init__(self, context: ClientContext[FairFGLConfig]):
        super().__init__(context)
        config = self.config
        self._parameters = dict(self.model.named_parameters())
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
        self._history: list[SharedTensors] = []
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
            self._history = [*self._history, self.keep(request.weights)][-max(self.config.history, 1) :]
            mean, received = self._mean_of_history(), self._row(self._history[-1])
            self._local.copy_(received)
            for name in self._buffer_names():
                self.weights[name].copy_(request.weights[name])
            self._fuse(mean)
            if self.config.reset_optimizer:
                self.trainer.optimizer.reset()
                self._logit_optimizer.reset()
            if self.weight > 0:
                self._fit(mean, direction)
            change = self._local - received
            if buffers := self._buffer_names():
                moved = [(self.weights[name] - request.weights[name]).reshape(-1) for name in buffers]
                change = torch.cat([change, *moved])
            update = keep_largest(change, self.config.top_k)
        return TrainReply(**update._asdict(), num_samples=self.weight)

    @property
    def weight(self) -> float:
        """Weight in the cluster's mean."""
        return client_weight(self.config.weight_by, len(self._train), self.silo.num_items)

    def study(self) -> Mapping[str, Any]:
        """Mean α, and the share of steps whose gradient was corrected."""
        return {
            "alpha": float(self._alpha.mean()) if self._mixes else 0.0,
            "corrected": self._corrected / max(self._steps, 1),
        }

    def state(self) -> dict[str, Any]:
        return {**super().state(), "logit": self._logit}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._logit.copy_(state["logit"])
        self._alpha = torch.sigmoid(self._logit)

    # -- weights -----------------------------------------------------------------------------------------------

    def _make_optimizer(self, flat: Tensor, weight_decay: float) -> Optimizer:
        config = self.config
        return optimizer(config.optimizer, [flat], lr=config.lr, weight_decay=weight_decay, momentum=config.momentum)

    def _flat(self, weights: Tensors) -> Tensor:
        """The parameters in one row, [P]."""
        return torch.cat([weights[name].detach().to(self.data.device).reshape(-1) for name in self._parameters])

    def _row(self, model: SharedTensors) -> Tensor:
        """The parameters of a model of the history in one row, [P], which all clients of the process read."""
        return model.keep("row", (), lambda: self._flat(model))

    def _by_name(self, flat: Tensor) -> dict[str, Tensor]:
        """Parameters as views of a row that ``_flat`` made."""
        shapes = [parameter.shape for parameter in self._parameters.values()]
        parts = flat.split([shape.numel() for shape in shapes])
        return {name: part.view(shape) for name, part, shape in zip(self._parameters, parts, shapes, strict=True)}

    def _buffer_names(self) -> list[str]:
        """Float buffers, such as the statistics of BatchNorm: they travel, and are not mixed."""
        return list(self.weights)[len(self._parameters) :]

    def _mean_of_history(self) -> Tensor:
        """W_hist, the mean of the last global models, [P]."""
        *older, newest = self._history
        if not older:
            return self._row(newest)
        return newest.keep("mean", older, lambda: torch.stack([*map(self._row, older), self._row(newest)]).mean(dim=0))

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
            with borrow(self.weights, deviated):
                (logits, _), pull = trace(
                    self.model, self.data.kept_view(self._train), None, list(self._parameters.values())
                )
                labels = torch.from_numpy(self._labels).to(logits.device).unsqueeze(1)
                rest = F.softmax(logits, dim=1)
                rest.scatter_add_(1, labels, rest.new_full((1, 1), -1.0).expand_as(labels)).div_(len(labels))
                direction = _flatten(pull(rest, None)).mul_(mine != 0)
        return direction if bool(direction.any()) else None

    def _fit(self, mean: Tensor, direction: Tensor | None) -> None:
        """The local epochs."""
        config = self.config
        draw, parameters = self.generator("train"), list(self._parameters.values())
        goal = self._goal(mean)
        for _ in range(config.local_epochs):
            for share in self._batches(goal, draw):
                (logits, embedding), pull = trace(self.model, goal.view, draw, parameters)
                # d/dz of cross-entropy and of KL(target ‖ softmax z) alike: softmax(z) − target.
                outer = F.softmax(logits, dim=1).sub_(goal.target).mul_(share)
                inner = None
                if goal.alignment is not None:
                    rows = goal.alignment.gradient(embedding, to_prototype=config.alignment_target == "prototype")
                    inner = torch.zeros_like(embedding)
                    inner.index_copy_(0, goal.alignment.hete, rows.mul_(config.alignment))
                self._step(_flatten(pull(outer, inner)), mean, direction)
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
            with borrow(self.weights, self._history_model(mean)):
                logits = self.model(self.data.full)
            if distils:
                target = F.softmax(logits, dim=1)
                target.index_copy_(0, goal.labelled, goal.target.index_select(0, goal.labelled))
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


def _flatten(gradients: Sequence[Tensor]) -> Tensor:
    """One row of its own memory."""
    return torch.cat([gradient.reshape(-1) for gradient in gradients])
