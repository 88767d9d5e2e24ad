"""Small clients of one process, trained in one program.

On graphs of a few hundred nodes a training step costs more in calls than in arithmetic. Clients that run the same stack of
products on full batches are therefore laid side by side: block-diagonal constants, stacked weights, one fused
optimiser. It is a detail of execution: every number is the one that a client computes alone, bit for bit (tested),
and whoever cannot join trains alone.

A handler knows nothing of this. Each client's handler runs in a greenlet; where it trains, it hands its work to the
driver, which waits until all clients of the group have done so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import greenlet
import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.models.dropout import draw_bits, scale_of
from graphsilo.models.operators import ChainOperator, Operator, SparseOperator, matmul
from graphsilo.training.optimizer import Adam

if TYPE_CHECKING:
    from graphsilo.models.stack import Record
    from graphsilo.training.local import LocalTrainer

MAX_ROWS = 4000
"""Mean number of first-layer rows above which a client's arithmetic outweighs its calls, and joining gains nothing."""
_LANES = 16
"""Floats in 64 bytes, the alignment of memory. Kernels round differently where a row or a tensor does not start or end on
it: hidden layers of other widths are not joined, and tensors of other sizes are updated one by one."""

T = TypeVar("T")


@dataclass
class Work:
    """Local epochs that a client wants run."""

    trainer: LocalTrainer
    epochs: int
    generator: torch.Generator
    batch_size: int
    adjust: Callable[[list[Tensor]], None] | None = None
    extra_loss: Callable[[Any], Tensor] | None = None


class _Seat(greenlet.greenlet):
    """A client's handler, able to wait for the others."""


def submit(work: Work) -> None:
    """Run the epochs: with the other clients where a driver is waiting for them, else at once."""
    seat = greenlet.getcurrent()
    if isinstance(seat, _Seat) and seat.parent is not None:
        # Gradients are switched on and off per thread: what a handler has chosen must not reach the next one.
        mode = torch.is_grad_enabled()
        try:
            seat.parent.switch(work)
        finally:
            torch.set_grad_enabled(mode)
    else:
        work.trainer.run_alone(work)


class Driver(Generic[T]):
    """Runs the handlers of several clients side by side, and their training together where that is possible."""

    def __init__(self) -> None:
        self._group: tuple[int, ...] = ()
        self._joint: Joint | None = None

    def run(self, calls: Sequence[Callable[[], T]]) -> Iterator[T]:
        """The results of all calls, in their order. Calls must not raise.

        Each is handed on as soon as it is there, so that a reply is used while it is still in the processor's cache.
        """
        seats = [_Seat(call) for call in calls]
        results: dict[int, T] = {}
        waiting: dict[int, Work] = {}
        turn: list[tuple[int, Exception | None]] = [(index, None) for index in range(len(seats))]
        due = 0
        mode = torch.is_grad_enabled()
        while turn:
            for index, error in turn:
                seat = seats[index]
                answer = seat.switch() if error is None else seat.throw(error)
                torch.set_grad_enabled(mode)
                if seat.dead:
                    results[index] = answer
                else:
                    waiting[index] = answer
                while due in results:
                    yield results.pop(due)
                    due += 1
            works, waiting = waiting, {}
            errors = self._train(list(works.values())) if works else []
            turn = list(zip(works, errors, strict=True))

    def _train(self, works: list[Work]) -> list[Exception | None]:
        group = tuple(id(work.trainer) for work in works)
        if group != self._group:
            # Laying clients side by side pays from the second time on that the same ones meet.
            self._group, self._joint = group, None
        else:
            if self._joint is None:
                self._joint = Joint.of([work.trainer for work in works])
            if self._joint is not None and self._joint.fits(works):
                return self._joint.run(works)
        errors: list[Exception | None] = []
        for work in works:
            try:
                work.trainer.run_alone(work)
                errors.append(None)
            except Exception as error:
                errors.append(error)
        return errors


class Joint:
    """A group of clients laid side by side.

    Everything is in slot order, the order of a stack's weights and biases, layer by layer.
    """

    def __init__(self, trainers: Sequence[LocalTrainer], records: Sequence[Record], plan: list[list[_Term]]):
        self.trainers, self.plan = list(trainers), plan
        first = records[0]
        self.rates = trainers[0].model.__dict__["_stack"]._rates
        self.optimizer = trainers[0].optimizer
        self.objectives = [trainer.objective for trainer in trainers]
        count = len(trainers)
        hidden = [[record.saved[place] for record in records] for place in range(1, len(first.saved), 2)]
        outputs = [*hidden, [record.output for record in records]]
        self.bounds = [np.concatenate([[0], np.cumsum([len(part) for part in layer])]) for layer in outputs]
        self.owners = [
            torch.from_numpy(np.repeat(np.arange(count), np.diff(bounds)).astype(np.int64)) for bounds in self.bounds
        ]
        self.shapes = [tuple(parameter.shape) for parameter in first.parameters]
        self.orders = [trainer.model.__dict__["_slot_order"] for trainer in trainers]
        self.values = [torch.empty((count, *shape)) for shape in self.shapes]
        self.first = [torch.zeros((count, *shape)) for shape in self.shapes]
        self.second = [torch.zeros((count, *shape)) for shape in self.shapes]
        batches = [next(iter(trainer.objective.batches(0, torch.Generator()))) for trainer in trainers]
        self.shares = torch.cat([batch[2] for batch in batches])  # type: ignore[index]
        self.inverse = torch.cat(
            [torch.full((len(batch[1]), 1), 1.0 / len(batch[1])) for batch in batches]  # type: ignore[index]
        )

    @classmethod
    def of(cls, trainers: Sequence[LocalTrainer]) -> Joint | None:
        """The group, or None where its members are too different, too large, or not of a form that can be joined."""
        if len(trainers) < 2 or not all(trainer.can_join() for trainer in trainers):
            return None
        records = []
        for trainer in trainers:
            stack = trainer.model.__dict__["_stack"]
            batch: Any = next(iter(trainer.objective.batches(0, torch.Generator())))
            if trainer.model.trace(batch[0], None) is None:
                return None
            _, record = stack.record(lambda trainer=trainer, batch=batch: trainer.model(batch[0], None))
            records.append(record)
        first, model = records[0], trainers[0].model
        shapes = [tuple(parameter.shape) for parameter in first.parameters]
        if any(len(shape) > 1 and math.prod(shape) % _LANES for shape in shapes):
            return None  # a member's weights would not begin where BLAS finds a tensor of its own, and be rounded so
        for trainer, record in zip(trainers, records, strict=True):
            if (
                [tuple(parameter.shape) for parameter in record.parameters] != shapes
                or [len(terms) for terms in record.plan] != [len(terms) for terms in first.plan]
                or trainer.model.__dict__["_stack"]._rates != model.__dict__["_stack"]._rates
                or trainer.model.__dict__["_slot_order"] != model.__dict__["_slot_order"]
                or not same_rule(trainer.optimizer, trainers[0].optimizer)
            ):
                return None
        inner = [shape for terms, shape in zip(_layer_of(first.plan), shapes, strict=True) if terms < len(first.plan) - 1]
        if any(shape[-1] % _LANES for shape in inner):
            return None
        rows = np.mean([record.plan[0][0].operator.shape[0] for record in records])
        if rows > MAX_ROWS:
            return None
        plan = []
        inputs: list[int] = []
        for layer in range(len(first.plan)):
            terms = []
            for place in range(len(first.plan[layer])):
                parts = [record.plan[layer][place] for record in records]
                operators = [part.operator for part in parts]
                merged = None
                if any(operator is not None for operator in operators):
                    merged = merge(operators)
                    if merged is None:
                        return None
                picked = None
                if any(part.rows is not None for part in parts):
                    if not all(part.rows is not None for part in parts):
                        return None
                    picked = torch.cat([part.rows + start for part, start in zip(parts, inputs, strict=True)])
                terms.append(_Term(merged, picked, [_sources(part, record, layer) for part, record in zip(parts, records, strict=True)]))  # noqa: E501
            plan.append(terms)
            outputs = [
                len(record.saved[2 * layer + 1] if layer < len(record.plan) - 1 else record.output)
                for record in records
            ]
            inputs = np.concatenate([[0], np.cumsum(outputs)[:-1]]).tolist()
        return cls(trainers, records, plan)

    def fits(self, works: Sequence[Work]) -> bool:
        """Whether these epochs can be run together: full batches, as many for all, optimisers in step."""
        first = works[0]
        steps = [work.trainer.optimizer.steps for work in works if isinstance(work.trainer.optimizer, Adam)]
        return len(set(steps)) == 1 and all(
            work.epochs == first.epochs
            and work.extra_loss is None
            and (work.batch_size <= 0 or work.batch_size >= work.trainer.objective.num_samples)
            # A method may have given a trainer another objective or rate meanwhile.
            and work.trainer.objective is objective
            and same_rule(work.trainer.optimizer, first.trainer.optimizer)
            for work, objective in zip(works, self.objectives, strict=True)
        )

    @torch.no_grad()
    def run(self, works: Sequence[Work]) -> list[Exception | None]:
        """The epochs of all members; what went wrong with each, who stays as it was at that step."""
        self._seat()
        generators = [work.generator for work in works]
        errors: list[Exception | None] = [None] * len(works)
        kept: dict[int, list[Tensor]] = {}
        for _ in range(works[0].epochs):
            gradients = self._step(generators)
            for place, work in enumerate(works):
                if work.adjust is not None and place not in kept:
                    order = self.orders[place]
                    try:
                        work.adjust([gradients[slot][place] for slot in order])
                    except Exception as error:
                        errors[place] = error
                        kept[place] = [tensor[place].clone() for tensor in self._stacked()]
            if len(kept) == len(works):
                break
            self._update(gradients, kept)
        for place, tensors in kept.items():
            for stacked, tensor in zip(self._stacked(), tensors, strict=True):
                stacked[place].copy_(tensor)
        return errors

    def _stacked(self) -> list[Tensor]:
        return [*self.values, *self.first, *self.second]

    def _seat(self) -> None:
        """Put the members' weights and moments into the stacked tensors, where they are not there already."""
        for place, trainer in enumerate(self.trainers):
            optimizer = trainer.optimizer
            assert isinstance(optimizer, Adam)
            optimizer.start()
            for index, slot in enumerate(self.orders[place]):
                parameter = trainer.parameters[index]
                for stacked, owner, key in (
                    (self.values, parameter, None),
                    (self.first, optimizer.first, index),
                    (self.second, optimizer.second, index),
                ):
                    target = stacked[slot][place]
                    current = owner.data if key is None else owner[key]  # type: ignore[index, union-attr]
                    if current.data_ptr() == target.data_ptr():
                        continue
                    target.copy_(current)
                    if key is None:
                        parameter.data = target
                    else:
                        owner[key] = target  # type: ignore[index]

    def _step(self, generators: Sequence[torch.Generator]) -> list[Tensor]:
        """Gradients of every slot, stacked over members."""
        saved: list[tuple[Tensor, Tensor]] = []
        hidden: Tensor | None = None
        position, last = 0, len(self.plan) - 1
        for layer, terms in enumerate(self.plan):
            total: Tensor | None = None
            for term in terms:
                value = self._product(term, position, hidden)
                position += 1
                total = value if total is None else total.add_(value)
            assert total is not None
            hidden = total.add_(self.values[position].index_select(0, self.owners[layer]))
            position += 1
            if layer < last:
                scale = self._scale(hidden, layer, generators)
                hidden *= scale
                saved.append((scale, hidden))
        assert hidden is not None
        gradient = F.log_softmax(hidden, dim=1).exp_().mul_(self.inverse).sub_(self.shares)
        return self._backward(gradient, saved)

    def _product(self, term: _Term, position: int, hidden: Tensor | None) -> Tensor:
        weights = self.values[position]
        if hidden is None:
            assert term.operator is not None
            return term.operator.mm(weights.view(-1, weights.shape[-1]))
        source = hidden if term.rows is None else hidden.index_select(0, term.rows)
        # Fresh results, joined afterwards: products into a slice of a larger tensor are rounded differently.
        value = torch.cat(
            [matmul(_placed(part), weights[place]) for place, part in enumerate(source.split(term.sizes))]
        )
        return value if term.operator is None else term.operator.mm(value)

    def _scale(self, hidden: Tensor, layer: int, generators: Sequence[torch.Generator]) -> Tensor:
        rate = self.rates[layer]
        if rate == 0.0:
            return (hidden > 0).to(hidden.dtype)
        bounds, width = self.bounds[layer], hidden.shape[1]
        counts = (np.diff(bounds) * width).tolist()
        draws = np.concatenate(
            [draw_bits(count, rate, generator).numpy() for count, generator in zip(counts, generators, strict=True)]
        )
        return scale_of(draws, hidden, rate)

    def _backward(self, gradient: Tensor, saved: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        gradients: list[Tensor] = [gradient] * len(self.values)
        position, last = len(self.values), len(self.plan) - 1
        for layer in range(last, -1, -1):
            terms = self.plan[layer]
            position -= len(terms) + 1
            if layer < last:
                gradient = gradient * saved[layer][0]
            sizes = np.diff(self.bounds[layer]).tolist()
            gradients[position + len(terms)] = torch.stack([part.sum(0) for part in gradient.split(sizes)])
            if layer == 0:
                for index, term in enumerate(terms):
                    assert term.operator is not None
                    shape = self.values[position + index].shape
                    gradients[position + index] = term.operator.tmm(gradient).view(shape)
                break
            hidden = saved[layer - 1][1]
            below: Tensor | None = None
            for index, term in enumerate(terms):
                inner = gradient if term.operator is None else term.operator.tmm(gradient)
                source = hidden if term.rows is None else hidden.index_select(0, term.rows)
                weights = self.values[position + index]
                inners = [_placed(part) for part in inner.split(term.sizes)]
                gradients[position + index] = torch.stack(
                    [matmul(_placed(part).t(), one) for part, one in zip(source.split(term.sizes), inners, strict=True)]
                )
                value = torch.cat([torch.mm(one, weights[place].t()) for place, one in enumerate(inners)])
                if term.rows is not None:
                    below = hidden.new_zeros(hidden.shape) if below is None else below
                    below.index_add_(0, term.rows, value)
                else:
                    below = value if below is None else below.add_(value)
            assert below is not None
            gradient = below
        return gradients

    def _update(self, gradients: list[Tensor], left_out: Container[int]) -> None:
        columns: list[list[Tensor]] = [[], [], [], []]
        for slot, values in enumerate(self.values):
            group = (values, gradients[slot], self.first[slot], self.second[slot])
            whole = values[0].numel() % _LANES == 0
            for column, tensor in zip(columns, group, strict=True):
                column.extend([tensor] if whole else tensor.unbind(0))
        steps = [
            trainer.optimizer.count()  # type: ignore[attr-defined]
            for place, trainer in enumerate(self.trainers)
            if place not in left_out
        ]
        assert isinstance(self.optimizer, Adam)
        self.optimizer.kernel(*columns, steps[0])


def _placed(tensor: Tensor) -> Tensor:
    """The tensor as aligned as a fresh one: BLAS may round differently elsewhere."""
    return tensor if tensor.data_ptr() % (4 * _LANES) == 0 else tensor.clone()


@dataclass
class _Term:
    """One summand of a layer for the whole group.

    Attributes:
        operator: Block-diagonal constant, or None for the identity.
        rows: Rows of the layer below that it reads, or None for all.
        sizes: How many rows of its source each member has.
    """

    operator: Operator | None
    rows: Tensor | None
    sizes: list[int]


def _layer_of(plan: Any) -> list[int]:
    """The layer that each slot belongs to."""
    return [layer for layer, terms in enumerate(plan) for _ in range(len(terms) + 1)]


def _sources(term: Any, record: Record, layer: int) -> int:
    """Rows that a term multiplies by its weight, for one member."""
    if layer == 0:
        return int(term.operator.shape[1])
    if term.rows is not None:
        return len(term.rows)
    return len(record.saved[2 * layer - 1])


def merge(operators: Sequence[Operator | None]) -> Operator | None:
    """The block-diagonal operator, or None where the blocks are of different kinds, or dense."""
    if all(isinstance(operator, SparseOperator) for operator in operators):
        blocks = [operator.matrix for operator in operators]  # type: ignore[union-attr]
        return SparseOperator(sp.block_diag(blocks, format="csr"))
    if all(isinstance(operator, ChainOperator) for operator in operators):
        left = merge([operator.left for operator in operators])  # type: ignore[union-attr]
        right = merge([operator.right for operator in operators])  # type: ignore[union-attr]
        return None if left is None or right is None else ChainOperator(left, right)
    return None


def same_rule(first: Any, second: Any) -> bool:
    """Whether two optimisers update by the same formula."""
    if not isinstance(first, Adam) or not isinstance(second, Adam):
        return False
    return (first.lr, first.weight_decay, first.betas, first.eps) == (
        second.lr,
        second.weight_decay,
        second.betas,
        second.eps,
    )
