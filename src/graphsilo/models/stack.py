"""Layers of constant and trainable products as one node of the autograd graph.

On small graphs the bookkeeping of a node per operation costs as much as the arithmetic, so whole stacks are
differentiated by hand here: MLP, GCN, GraphSAGE, GIN and the models on propagated features are all of this form.
Checked against finite differences, and against plain implementations, in the tests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from graphsilo.models.dense import matmul
from graphsilo.models.dropout import Source, activate, activate_backward, dropout, masks_ahead
from graphsilo.models.operators import Operator
from graphsilo.models.precision import as_forwards, is_reduced, wide
from graphsilo.models.view import Norm, View


class Term(NamedTuple):
    """One summand of a layer's output.

    In the first layer it is ``operator @ W``; behind it ``operator @ (H[rows] @ W)``, where no operator stands for
    the identity and no rows for all of them.
    """

    operator: Operator | None = None
    rows: Tensor | None = None


Plan: TypeAlias = tuple[tuple[Term, ...], ...]
"""The summands of each layer, first layer first: the constant half of a stack."""
Trace: TypeAlias = tuple[Tensor, Callable[[Tensor], list[Tensor]]]
"""An output, and a function from its gradient to those of the parameters."""
Weights: TypeAlias = "tuple[tuple[nn.Module, str], ...]"
"""Where the weight of each summand, and last the bias, is kept."""

DENSE: tuple[Term, ...] = (Term(),)
"""H @ W: a layer without a graph."""


class StackRun(NamedTuple):
    """One run through a stack, ready for its backward pass.

    Attributes:
        plan, activate_last: What was run.
        parameters: In slot order.
        saved: Per hidden layer, the mask of its dropout and its output.
        output: Of the last layer.
    """

    plan: Plan
    activate_last: bool
    parameters: Sequence[Tensor]
    saved: Sequence[Tensor | None]
    output: Tensor

    def pull(self, gradient: Tensor, hidden: tuple[int, Tensor] | None = None) -> list[Tensor]:
        """From the gradient of the output to those of the parameters, in slot order.

        Args:
            gradient: Of the output.
            hidden: A layer above the first, and what is added to the gradient of its input, where something else
                depends on that too.
        """
        with without_gradients():
            return _backward(self.plan, self.activate_last, self.parameters, self.saved, gradient, hidden)

    def input_of(self, layer: int) -> Tensor:
        """What a layer above the first was given."""
        return self.saved[2 * layer - 1]  # type: ignore[return-value]


class Stack:
    """The trainable half of a stack: layer l is relu, then dropout, of Σ_terms + b_l; the last one is left as it is.

    Args:
        layers: Per layer, its weights (one per term) and its bias.
        rates: Dropout rate behind each layer. Behind the last one only where ``hidden`` asks for its activation.

    Not a module itself: it reads parameters where their modules keep them, so that whoever replaces one there
    (``torch.func.functional_call``, a device change) is heard, at a tenth of the cost of attribute look-ups.
    """

    def __init__(self, layers: Sequence[Weights], rates: Sequence[float]):
        self._slots = [slot for layer in layers for slot in layer]
        self._ends = [sum(map(len, layers[: depth + 1])) for depth in range(len(layers))]
        self._rates = tuple(rates)
        self._recording = False
        self._record: StackRun | None = None

    def parameters(self) -> list[Tensor]:
        """Weights and biases, layer by layer."""
        return [module._parameters[name] for module, name in self._slots]  # type: ignore[misc]

    def record(self, run: Callable[[], Tensor]) -> tuple[Tensor, StackRun | None]:
        """Run something that calls this stack once, without autograd, and keep what a backward pass needs."""
        self._recording, self._record = True, None
        try:
            with torch.no_grad():
                output = run()
            return output, self._record
        finally:
            self._recording, self._record = False, None

    def run(self, plan: Plan, source: Source | None) -> StackRun:
        """Run all layers, without autograd, and keep what a backward pass needs."""
        parameters = self.parameters()
        with without_gradients():
            output, saved = _forward(plan, self._rates, source, False, parameters)
        return StackRun(plan, False, parameters, saved, output)

    def with_input(self, plan: Plan, source: torch.Generator | None, layer: int) -> tuple[Tensor, Tensor]:
        """The output of all layers, and the input of one above the first; both have a gradient.

        Args:
            plan: One entry per layer.
            source: Of dropout; None for evaluation.
            layer: Whose input is wanted, counted from 0.
        """
        parameters = self.parameters()
        if _is_live(plan):
            layers = plain(plan, self._rates, source, False, parameters)
            return layers[-1], layers[layer - 1]
        result: tuple[Tensor, Tensor] = _Layers.apply(plan, self._rates, source, False, layer, *parameters)  # type: ignore[no-untyped-call]
        return result

    def passes(self, plan: Plan, times: int, generator: torch.Generator) -> Iterator[Trace] | None:
        """Several runs to come, each at the parameters as they are then, and the backward pass of each.

        What they have in common is looked up once: on small graphs that costs a tenth of a step.

        Returns:
            Of each run its output, and a function from its gradient to those of the parameters, in slot order; None
            where dropout masks are not drawn ahead, as on large graphs.
        """
        # Without what would have autograd look at them: they share the parameters' memory.
        parameters = [parameter.detach() for parameter in self.parameters()]
        last = len(plan) - 1
        if parameters[0].device.type != "cpu" or parameters[0].dtype is not torch.float32 or not last:
            return None
        layers = [
            (torch.Size((_rows(plan, layer), parameters[end - 1].shape[0])), rate)
            for layer, (end, rate) in enumerate(zip(self._ends[:last], self._rates[:last], strict=True))
            if rate
        ]
        sources = masks_ahead(layers, times, generator)
        return None if sources is None else self._passes(plan, parameters, sources)

    def _passes(self, plan: Plan, parameters: list[Tensor], sources: Sequence[Source]) -> Iterator[Trace]:
        for source in sources:
            output, saved = _forward(plan, self._rates, source, False, parameters)
            yield output, partial(_backward, plan, False, parameters, saved)

    def __call__(self, plan: Plan, generator: torch.Generator | None, *, activate_last: bool = False) -> Tensor:
        """The output of the first ``len(plan)`` layers.

        Args:
            plan: One entry per layer to compute.
            generator: Source of dropout; None for evaluation.
            activate_last: Whether ReLU and dropout follow the last computed layer too.
        """
        parameters = [module._parameters[name] for module, name in self._slots[: self._ends[len(plan) - 1]]]
        if _is_live(plan):
            return plain(plan, self._rates, generator, activate_last, parameters)[-1]  # type: ignore[arg-type]
        if self._recording:
            output, saved = _forward(plan, self._rates, generator, activate_last, parameters)  # type: ignore[arg-type]
            self._record = StackRun(plan, activate_last, parameters, saved, output)  # type: ignore[arg-type]
            return output
        if generator is None and not torch.is_grad_enabled():
            return _evaluate(plan, activate_last, parameters)  # type: ignore[arg-type]
        result: Tensor = _Layers.apply(plan, self._rates, generator, activate_last, None, *parameters)  # type: ignore[no-untyped-call]
        return result


def plain(
    plan: Plan,
    rates: Sequence[float],
    generator: torch.Generator | None,
    activate_last: bool,
    parameters: Sequence[Tensor],
) -> list[Tensor]:
    """The output of every layer by autograd: what a stack means, and what is run where operators need a gradient."""
    outputs: list[Tensor] = []
    weights = iter(parameters)
    for layer, terms in enumerate(plan):
        total: Tensor | None = None
        for operator, rows in terms:
            value = next(weights)
            if outputs:
                value = wide((outputs[-1] if rows is None else outputs[-1].index_select(0, rows)) @ value)
            if operator is not None:
                value = operator @ value
            total = value if total is None else total + value
        assert total is not None
        total = total + next(weights)
        if layer < len(plan) - 1 or activate_last:
            total = dropout(total.relu(), rates[layer], generator)
        outputs.append(total)
    return outputs


def _is_live(plan: Plan) -> bool:
    """Whether features need a gradient; they are in the first layer alone."""
    return any(operator.live for operator, _ in plan[0])  # type: ignore[union-attr]


_NOTHING = contextlib.nullcontext()


def without_gradients() -> contextlib.AbstractContextManager[None]:
    """``torch.no_grad()``, at a fraction of its cost where gradients are off already: entered several times a step."""
    return torch.no_grad() if torch.is_grad_enabled() else _NOTHING


def graph_plan(view: View, norm: Norm, depth: int) -> Plan:
    """One term per layer, the block of the normalised adjacency: the plan of a GCN. Kept with the view."""

    def make() -> Plan:
        operators = [view.first_layer(norm, depth), *view.blocks(norm, depth)[1:]]
        return tuple((Term(operator),) for operator in operators)

    return view.cached(("plan", norm, depth), make)


def feature_plan(view: View, depth: int, key: tuple[Any, ...], make: Callable[[], Sequence[Operator]]) -> Plan:
    """Constant operators summed in the first layer, then layers without a graph. Kept with the view under ``key``."""
    return view.cached(
        ("plan", depth, *key), lambda: (tuple(Term(operator) for operator in make()), *[DENSE] * (depth - 1))
    )


def _evaluate(plan: Plan, activate_last: bool, parameters: list[Tensor]) -> Tensor:
    """The same without keeping anything for a backward pass."""
    hidden = _layer(plan[0], parameters, 0, None)
    position = len(plan[0]) + 1
    for terms in plan[1:]:
        hidden = _layer(terms, parameters, position, hidden.relu_())
        position += len(terms) + 1
    return hidden.relu_() if activate_last else hidden


def _layer(terms: tuple[Term, ...], parameters: Sequence[Tensor], position: int, hidden: Tensor | None) -> Tensor:
    """Σ_terms + bias. A new tensor each time, so that callers may change it in place."""
    total: Tensor | None = None
    for operator, rows in terms:
        weight = parameters[position]
        position += 1
        if hidden is None:
            value = operator.mm(weight)  # type: ignore[union-attr]
        else:
            value = matmul(hidden if rows is None else hidden.index_select(0, rows), weight)
            if operator is not None:
                value = operator.mm(value)
        total = value if total is None else total.add_(value)
    assert total is not None
    return total.add_(parameters[position])


def _forward(
    plan: Plan,
    rates: tuple[float, ...],
    source: Source | None,
    activate_last: bool,
    parameters: Sequence[Tensor],
) -> tuple[Tensor, list[Tensor | None]]:
    """The output, and per hidden layer the mask of its dropout and its output."""
    saved: list[Tensor | None] = []
    last = len(plan) - 1
    hidden: Tensor | None = None
    position = 0
    for layer, terms in enumerate(plan):
        hidden = _layer(terms, parameters, position, hidden)
        position += len(terms) + 1
        if layer < last or activate_last:
            saved += [activate(hidden, rates[layer], source), hidden]
    assert hidden is not None
    return hidden, saved


def _backward(
    plan: Plan,
    activate_last: bool,
    parameters: Sequence[Tensor],
    saved: Sequence[Tensor | None],
    gradient: Tensor,
    hidden_gradient: tuple[int, Tensor] | None = None,
) -> list[Tensor]:
    """Gradients of the parameters, in slot order. ``gradient`` is left as it is."""
    gradients: list[Tensor] = [gradient] * len(parameters)
    position, last = len(parameters), len(plan) - 1
    gradient = gradient.contiguous()
    for layer in range(last, -1, -1):
        terms = plan[layer]
        position -= len(terms) + 1
        if layer < last or activate_last:
            gradient = activate_backward(gradient, saved[2 * layer + 1], saved[2 * layer])  # type: ignore[arg-type]
        gradients[position + len(terms)] = gradient.sum(0)
        if layer == 0:
            for index, term in enumerate(terms):
                gradients[position + index] = term.operator.tmm(gradient)  # type: ignore[union-attr]
            break
        hidden: Tensor = saved[2 * layer - 1]  # type: ignore[assignment]
        below: Tensor | None = None
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
        gradient = below
        if hidden_gradient is not None and hidden_gradient[0] == layer:
            gradient.add_(hidden_gradient[1])
    return gradients


def _rows(plan: Plan, layer: int) -> int:
    """Rows that a layer computes."""
    operator, rows = plan[layer][0]
    if operator is not None:
        return operator.shape[0]
    return _rows(plan, layer - 1) if rows is None else len(rows)


class _Layers(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        plan: Plan,
        rates: tuple[float, ...],
        generator: torch.Generator | None,
        activate_last: bool,
        layer: int | None,
        *parameters: Tensor,
    ) -> Tensor | tuple[Tensor, Tensor]:
        hidden, saved = _forward(plan, rates, generator, activate_last, parameters)
        ctx.plan, ctx.activate_last, ctx.count, ctx.layer = plan, activate_last, len(parameters), layer
        ctx.reduced = is_reduced(hidden)
        # ``hidden`` of the last layer is the output; saving it is allowed, changing it in place is caught by torch.
        ctx.save_for_backward(*parameters, *saved)
        return hidden if layer is None else (hidden, saved[2 * layer - 1])  # type: ignore[return-value]

    @staticmethod
    @once_differentiable
    @as_forwards
    def backward(ctx: Any, gradient: Tensor, inner: Tensor | None = None) -> tuple[Tensor | None, ...]:
        parameters, saved = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        hidden = None if inner is None else (ctx.layer, inner)
        gradients = _backward(ctx.plan, ctx.activate_last, parameters, saved, gradient, hidden)
        return (None, None, None, None, None, *gradients)
