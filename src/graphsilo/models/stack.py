"""Models that are products of constant and trainable matrices with ReLU between: their passes are written out here.

On small graphs autograd's bookkeeping, a node per operation, costs as much as the arithmetic. A model of this form
states its *plan*, the constant matrices of every layer, and all of it is run, and differentiated, as one. ``plain`` is
what that means.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from graphsilo.models.base import Dense, Layer, LayeredModel, Pooling, Readout, Trace, layer_widths
from graphsilo.models.dense import matmul
from graphsilo.models.dropout import Source, activate, activate_backward, dropout, masks_ahead
from graphsilo.models.operators import Operator
from graphsilo.models.precision import is_reduced, match_forward, widen
from graphsilo.models.view import View


class Term(NamedTuple):
    """One summand of a layer's output.

    In the first layer it is ``operator @ W``; behind it ``operator @ (H[rows] @ W)``, where no operator stands for
    the identity and no rows for all of them.
    """

    operator: Operator | None = None
    rows: Tensor | None = None


Plan: TypeAlias = tuple[tuple[Term, ...], ...]
"""The summands of each layer, first layer first: the constant half of a model."""

DENSE: tuple[Term, ...] = (Term(),)
"""H @ W: a layer without a graph."""


class StackedModel(LayeredModel):
    """A model whose layer l is ReLU, then dropout, of Σ_terms + b_l; the last one is left as it is.

    Subclasses say what each layer is multiplied with, and name its kind where it is not ``Dense``.

    Args:
        inputs: d.
        classes: C.
        hidden: Width of each hidden layer; in the ``node`` readout one more layer, to C, follows them. () is a linear
            model.
        dropout: Rate after each hidden activation.
        first: Makes the first layer, where it is of another kind.
        layer: Makes a layer, where this takes more than its widths.
        readout: ``graph`` pools the last hidden layer and classifies it with a linear head.
        pooling: ``sum`` or ``mean`` over a graph's nodes.
    """

    layer: ClassVar[type[Layer]] = Dense
    """Made from (inputs, outputs)."""
    activation: Callable[[Tensor], Tensor] | None = None
    """What stands for ReLU, if anything: then autograd differentiates the plan."""

    def __init__(
        self,
        inputs: int,
        classes: int,
        hidden: Sequence[int] = (64,),
        dropout: float = 0.5,
        *,
        first: Callable[[int, int], Layer] | None = None,
        layer: Callable[[int, int], Layer] | None = None,
        readout: Readout = "node",
        pooling: Pooling = "sum",
    ):
        super().__init__()
        start, *others = layer_widths(inputs, hidden, classes, readout)
        layer = layer or self.layer
        layers = [(first or layer)(*start), *(layer(*pair) for pair in others)]
        self.layers = nn.ModuleList(layers)
        self.dropout = dropout
        self._finish([inputs, *hidden][-1], classes, readout, pooling)
        # Read where modules keep them, so that whoever replaces one there (``torch.func.functional_call``, a device
        # change) is heard, at a tenth of the cost of attribute look-ups.
        self._slots = [slot for layer in layers for slot in layer.slots]
        self._hidden = list(hidden)

    @abstractmethod
    def plan(self, view: View, depth: int) -> Plan:
        """The constant half of the first ``depth`` layers; made once per view, see ``View.cached``."""

    @cached_property
    def _order(self) -> list[int]:
        """Where each parameter stands among the weights."""
        places = {id(parameter): place for place, parameter in enumerate(self._weights(len(self._slots)))}
        return [places[id(parameter)] for parameter in self.layers.parameters()]

    def _weights(self, count: int) -> list[Tensor]:
        """The first weights and biases, layer by layer."""
        return [module._parameters[name] for module, name in self._slots[:count]]  # type: ignore[misc]

    def _outputs(
        self, view: View, depth: int, generator: torch.Generator | None, activate_last: bool
    ) -> Sequence[Tensor]:
        plan = self.plan(view, depth)
        parameters = self._weights(sum(len(terms) + 1 for terms in plan))
        if view.live or self.activation is not None:
            return plain(plan, self.dropout, generator, activate_last, parameters, self.activation or torch.relu)
        found: tuple[Tensor, ...] = _Layers.apply(plan, self.dropout, generator, activate_last, *parameters)  # type: ignore[no-untyped-call]
        return found

    def _inputs(self, view: View) -> Tensor:
        if self.reach is not None:
            return super()._inputs(view)
        return torch.cat([term.operator.dense() for term in self.plan(view, 1)[0]], 1)  # type: ignore[union-attr]

    def _is_written_out(self, view: View) -> bool:
        """Whether the logits are what the plan says and nothing else, and its constants need no gradient."""
        if self.readout != "node" or self.activation is not None or view.live:
            return False
        ways = ("forward", "outputs", "embed", "_outputs")
        return all(getattr(type(self), way) is getattr(StackedModel, way) for way in ways)

    def trace(self, view: View, source: Source | None) -> Trace | None:
        return _StackTrace(self, view, source) if self._is_written_out(view) else None

    def sources(self, view: View, times: int, generator: torch.Generator) -> Iterable[Source]:
        """With dropout masks drawn ahead, where they are few: a draw of its own costs a tenth of a small step."""
        ahead = None
        if (
            self._is_written_out(view)
            and self.dropout
            and view.device.type == "cpu"
            and view.data.dtype is torch.float32
        ):
            plan = self.plan(view, self.depth)
            shapes = [(_rows(plan, layer), width) for layer, width in enumerate(self._hidden)]
            ahead = masks_ahead(shapes, self.dropout, times, generator)
        return super().sources(view, times, generator) if ahead is None else ahead


class _StackTrace(Trace):
    """One run through a plan, ready for its way back."""

    def __init__(self, model: StackedModel, view: View, source: Source | None):
        self.model, self.view, self.plan = model, view, model.plan(view, model.depth)
        self.parameters = model._weights(len(model._slots))
        with model._set_precision(), without_gradients():
            self.outputs, self.masks = _forward(self.plan, model.dropout, source, False, self.parameters)
        self.logits = self.outputs[-1]

    @property
    def embeddings(self) -> Tensor:
        if len(self.plan) == 1:
            return self.model.embed(self.view)
        return self.model._of_items(self.view, self.outputs[-2])

    def pull(self, gradient: Tensor, inner: Tensor | None = None) -> list[Tensor]:
        model = self.model
        upstream: list[Tensor | None] = [None] * len(self.plan)
        upstream[-1] = gradient
        if inner is not None and len(self.plan) > 1:
            rows = None if model.reach is None else self.view.item_rows(*model.reach)
            hidden = self.outputs[-2]
            upstream[-2] = inner if rows is None else torch.zeros_like(hidden).index_add_(0, rows, inner)
        with model._set_precision(), without_gradients():
            found = _backward(self.plan, False, self.parameters, self.outputs, self.masks, upstream)
        return [found[place] for place in model._order]


def plain(
    plan: Plan,
    rate: float,
    generator: torch.Generator | None,
    activate_last: bool,
    parameters: Sequence[Tensor],
    activation: Callable[[Tensor], Tensor] = torch.relu,
) -> list[Tensor]:
    """The output of every layer by autograd: what a plan means.

    Args:
        plan: The constants.
        rate: Of dropout.
        generator: Its source; None for evaluation.
        activate_last: Whether activation and dropout follow the last layer, too.
        parameters: Layer by layer, the weight of each summand and the bias.
        activation: What comes before dropout.
    """
    outputs: list[Tensor] = []
    weights = iter(parameters)
    for layer, terms in enumerate(plan):
        total: Tensor | None = None
        for operator, rows in terms:
            value = next(weights)
            if outputs:
                value = widen((outputs[-1] if rows is None else outputs[-1].index_select(0, rows)) @ value)
            if operator is not None:
                value = operator @ value
            total = value if total is None else total + value
        assert total is not None
        total = total + next(weights)
        if layer < len(plan) - 1 or activate_last:
            total = dropout(activation(total), rate, generator)
        outputs.append(total)
    return outputs


_NOTHING = contextlib.nullcontext()


def without_gradients() -> contextlib.AbstractContextManager[None]:
    """``torch.no_grad()``, at a fraction of its cost where gradients are off already: entered several times a step."""
    return torch.no_grad() if torch.is_grad_enabled() else _NOTHING


def feature_plan(view: View, depth: int, key: tuple[Any, ...], make: Callable[[], Sequence[Operator]]) -> Plan:
    """Constant operators summed in the first layer, then layers without a graph. Kept with the view under ``key``."""
    return view.cached(
        ("plan", depth, *key), lambda: (tuple(Term(operator) for operator in make()), *[DENSE] * (depth - 1))
    )


def _forward(
    plan: Plan, rate: float, source: Source | None, activate_last: bool, parameters: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor | None]]:
    """The output of every layer, and the mask of its dropout: ``plain`` without autograd."""
    outputs: list[Tensor] = []
    masks: list[Tensor | None] = []
    position, last = 0, len(plan) - 1
    for layer, terms in enumerate(plan):
        total: Tensor | None = None
        for operator, rows in terms:
            weight = parameters[position]
            position += 1
            if not outputs:
                value = operator.mm(weight)  # type: ignore[union-attr]
            else:
                hidden = outputs[-1]
                value = matmul(hidden if rows is None else hidden.index_select(0, rows), weight)
                value = value if operator is None else operator.mm(value)
            total = value if total is None else total.add_(value)
        assert total is not None
        outputs.append(total.add_(parameters[position]))
        position += 1
        masks.append(activate(total, rate, source) if layer < last or activate_last else None)
    return outputs, masks


def _backward(
    plan: Plan,
    activate_last: bool,
    parameters: Sequence[Tensor],
    outputs: Sequence[Tensor],
    masks: Sequence[Tensor | None],
    upstream: Sequence[Tensor | None],
) -> list[Tensor]:
    """Gradients of the parameters, in their order, from those of the layers' outputs, of which the last one is there.

    ``upstream`` is left as it is.
    """
    gradient = upstream[-1].contiguous()  # type: ignore[union-attr]
    gradients: list[Tensor] = [gradient] * len(parameters)
    position, last = len(parameters), len(plan) - 1
    for layer in range(last, -1, -1):
        terms = plan[layer]
        position -= len(terms) + 1
        if layer < last or activate_last:
            gradient = activate_backward(gradient, outputs[layer], masks[layer])
        gradients[position + len(terms)] = gradient.sum(0)
        if layer == 0:
            for index, term in enumerate(terms):
                gradients[position + index] = term.operator.tmm(gradient)  # type: ignore[union-attr]
            break
        hidden, below = outputs[layer - 1], None
        for index, (operator, rows) in enumerate(terms):
            inner = gradient if operator is None else operator.tmm(gradient)
            source = hidden if rows is None else hidden.index_select(0, rows)
            gradients[position + index] = matmul(source.t(), inner)
            inner = matmul(inner, parameters[position + index].t())
            if rows is not None:
                below = hidden.new_zeros(hidden.shape) if below is None else below
                below.index_add_(0, rows, inner)
            else:
                below = inner if below is None else below.add_(inner)
        assert below is not None
        more = upstream[layer - 1]
        gradient = below if more is None else below.add_(more)
    return gradients


def _rows(plan: Plan, layer: int) -> int:
    """Rows that a layer computes."""
    operator, rows = plan[layer][0]
    if operator is not None:
        return operator.shape[0]
    return _rows(plan, layer - 1) if rows is None else len(rows)


class _Layers(torch.autograd.Function):
    """The output of every layer, as one node of the autograd graph."""

    @staticmethod
    def forward(
        ctx: Any,
        plan: Plan,
        rate: float,
        generator: torch.Generator | None,
        activate_last: bool,
        *parameters: Tensor,
    ) -> tuple[Tensor, ...]:
        outputs, masks = _forward(plan, rate, generator, activate_last, parameters)
        ctx.plan, ctx.activate_last, ctx.count = plan, activate_last, len(parameters)
        ctx.reduced = is_reduced(outputs[-1])
        ctx.save_for_backward(*parameters, *outputs, *masks)
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    @match_forward
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        saved, count, depth = ctx.saved_tensors, ctx.count, len(ctx.plan)
        parameters, outputs, masks = saved[:count], saved[count : count + depth], saved[count + depth :]
        gradients = _backward(ctx.plan, ctx.activate_last, parameters, outputs, masks, upstream)
        return (None, None, None, None, *gradients)
