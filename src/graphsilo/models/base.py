"""What every backbone promises."""

from __future__ import annotations

import contextlib
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from graphsilo.errors import UnsupportedError
from graphsilo.models.dropout import Source
from graphsilo.models.precision import reduce_precision, widen
from graphsilo.models.view import Norm, View
from graphsilo.types import Precision, Task

if TYPE_CHECKING:
    from graphsilo.data.silos.silo import Schema
    from graphsilo.models.settings import ModelSettings

Readout: TypeAlias = Literal["node", "graph"]
Pooling: TypeAlias = Literal["sum", "mean"]
Weights: TypeAlias = "tuple[tuple[nn.Module, str], ...]"
"""Modules, and the names of parameters in them."""


class Outputs(NamedTuple):
    """What one pass through a model gives for the items of a view.

    Attributes:
        logits: [items, C].
        embeddings: [items, p], the input of the last layer behind the same dropout.
    """

    logits: Tensor
    embeddings: Tensor


class Trace(ABC):
    """One pass through a model, made without autograd, and its way back.

    Attributes:
        logits: [items, C].
    """

    logits: Tensor

    @property
    @abstractmethod
    def embeddings(self) -> Tensor:
        """[items, p], of the same pass."""

    @abstractmethod
    def pull(self, gradient: Tensor, inner: Tensor | None = None) -> list[Tensor]:
        """The gradients of ``parameters()`` from that of the logits and, where there is one, that of the embeddings."""


class Model(nn.Module, ABC):
    """A network that turns a View into one row per item.

    A model is an encoder and a head. The encoder's output on the items is the *embedding* (the input of the last
    layer, after its activation); methods that exchange prototypes or share only one half use this split.

    Attributes:
        embedding_dim: Width p of the embedding.
        num_classes: Width C of the output.
        head: Name prefix of the parameters behind the embedding.
        core: Name prefix of the layers between those that features and classes give their width, for methods whose
            clients share these alone; empty, which is the prefix of all, where the model is not divided so.
        readout: ``node`` (a row per node) or ``graph`` (a row per graph of a collection).
        precision: Of its dense matrix products, forwards and backwards. Parameters, gradients, what it is given and
            what it answers are float32 all the same.
        reach: By which matrix, and how often, rows are mixed behind the embedding: it is computed for more rows than
            the items then. None where they are not.
        message_layers: Layers that mix rows along links in every pass; 0 where none do, as in models that propagate
            features once.
    """

    embedding_dim: int
    num_classes: int
    head: str
    core: str = ""
    readout: Task = "node"
    precision: Precision = "float32"
    reach: tuple[Norm, int] | None = None
    message_layers: int = 0
    deeper: ClassVar[str] = "Set model.layers to 2"
    """How a person gives it a hidden layer where it has none."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Have the ways into every model, somebody else's too, open its precision."""
        super().__init_subclass__(**options)
        for name in ("forward", "embed", "outputs", "outputs_beside"):
            if name in cls.__dict__:
                setattr(cls, name, _with_precision(cls.__dict__[name]))

    @abstractmethod
    def forward(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        """Logits [items, classes]. With a generator: training mode, dropout drawn from it; without: evaluation."""

    @abstractmethod
    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        """Embeddings [items, embedding_dim], the input of the last layer."""

    def outputs(self, view: View, generator: torch.Generator | None = None) -> Outputs:
        """Logits and embeddings of one pass, for losses that depend on both.

        What stands here serves any model: a second pass with the same dropout, in which running statistics do not move
        again. Models that can give both in one pass override it.
        """
        before = None if generator is None else generator.get_state()
        logits: Tensor = self(view, generator)
        buffers = dict(self.named_buffers())
        with borrow(buffers, {name: buffer.clone() for name, buffer in buffers.items()}):
            if generator is None or before is None:
                return Outputs(logits, self.embed(view, None))
            after = generator.get_state()
            generator.set_state(before)
            embeddings = self.embed(view, generator)
            generator.set_state(after)
        return Outputs(logits, embeddings)

    def outputs_beside(self, view: View, others: View, generator: torch.Generator | None) -> Outputs:
        """Logits of a view's items as from ``forward``, and embeddings of others' in evaluation.

        What stands here serves any model: a pass for each. Models whose passes have much in common override it.
        """
        return Outputs(self(view, generator), self.embed(others))

    def classify(self, embeddings: Tensor) -> Tensor:
        """Logits [b, C] of vectors [b, p] that take the place of embeddings, such as prototypes.

        Raises:
            UnsupportedError: Behind the embedding rows are mixed along links, which such vectors do not have.
        """
        if self.reach is not None:
            raise UnsupportedError(
                f"{type(self).__name__}: behind the embedding this model mixes nodes along their links, so that it "
                f"cannot classify vectors that are no nodes. Choose mlp, sgc, ssgc, sign, gamlp, gcnii or classic, or "
                f"the task 'graph'."
            )
        with self._set_precision():
            return widen(self._head(embeddings))

    def classify_by(self, heads: Mapping[str, Tensor], embeddings: Tensor) -> Tensor:
        """Logits [m, b, C] of vectors [b, p] by m heads, with a gradient for the vectors.

        Args:
            heads: The tensors of ``head_names`` of all of them, each [m, ...].
            embeddings: As for ``classify``.

        Raises:
            UnsupportedError: As by ``classify``.
        """
        if self.reach is not None:
            self.classify(embeddings)
        inner = {name.removeprefix(self.head): tensor for name, tensor in heads.items()}
        with self._set_precision():
            return widen(vmap(lambda head: functional_call(self._head, head, (embeddings,)))(inner))

    @property
    def _head(self) -> nn.Module:
        return self.get_submodule(self.head.removesuffix("."))

    def _of_items(self, view: View, hidden: Tensor) -> Tensor:
        """The items' rows of a last layer's input."""
        rows = None if self.reach is None else view.item_rows(*self.reach)
        return hidden if rows is None else hidden.index_select(0, rows)

    @classmethod
    def from_settings(
        cls, settings: ModelSettings, inputs: int, classes: int, task: Task, schema: Schema | None = None
    ) -> Self:
        """A model with undrawn parameters; ``settings.arguments(task)`` are the keyword arguments of the class.

        One whose entry says ``relational`` is given the schema beside these.
        """
        arguments: dict[str, Any] = settings.arguments(task)
        return cls(inputs, classes, **arguments) if schema is None else cls(inputs, classes, schema, **arguments)

    def head_names(self) -> tuple[str, ...]:
        """Names of the parameters behind the embedding."""
        return tuple(name for name, _ in self.named_parameters() if name.startswith(self.head))

    def encoder_names(self) -> tuple[str, ...]:
        """Names of all other parameters."""
        head = set(self.head_names())
        return tuple(name for name, _ in self.named_parameters() if name not in head)

    def reset(self, generator: torch.Generator) -> None:
        """Draw every parameter again from ``generator``, in the order of their names' registration."""
        for module in self.modules():
            initialise = getattr(module, "initialise", None)
            if callable(initialise):
                initialise(generator)

    def trace(self, view: View, source: Source | None) -> Trace | None:
        """One pass whose way back is written out, see ``stack``; None where the model is left to autograd.

        Same numbers as ``outputs`` followed by ``torch.autograd.grad``; on small graphs autograd's bookkeeping costs a
        third of a step.
        """
        return None

    def sources(self, view: View, times: int, generator: torch.Generator) -> Iterable[Source]:
        """What so many calls of ``trace`` in a row take for their source, to draw the same dropout in less time."""
        return repeat(generator, times)

    def _set_precision(self) -> contextlib.AbstractContextManager[Any]:
        """What holds while this model computes."""
        if self.precision == "float32":
            return _NOTHING
        return reduce_precision(next(self.parameters()).device.type)

    @property
    def called(self) -> str:
        """How refusals name it."""
        return type(self).__name__

    @property
    def num_parameters(self) -> int:
        """P of the papers: trainable scalars."""
        return sum(parameter.numel() for parameter in self.parameters())


_NOTHING = contextlib.nullcontext()


def _with_precision(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def run(self: Model, *arguments: Any, **options: Any) -> Any:
        if self.precision == "float32":
            return method(self, *arguments, **options)
        with self._set_precision():
            found = method(self, *arguments, **options)
            return Outputs(*map(widen, found)) if isinstance(found, Outputs) else widen(found)

    return run


@contextlib.contextmanager
def borrow(mine: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Let a model compute with other weights for a while, without copying either.

    Args:
        mine: Its parameters and buffers by name.
        tensors: The others, on the same device; they must not be written to meanwhile.
    """
    kept = {name: mine[name].data for name in tensors}
    try:
        for name, value in tensors.items():
            mine[name].data = value
        yield
    finally:
        for name, value in kept.items():
            mine[name].data = value


class HeadedModel(Model):
    """A model that is an embedding and its head behind it, from which both come in one pass."""

    def forward(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        return self.outputs(view, generator).logits

    def outputs(self, view: View, generator: torch.Generator | None = None) -> Outputs:
        embeddings = self.embed(view, generator)
        return Outputs(self._head(embeddings), embeddings)


class LayeredModel(Model):
    """A model whose embedding is the activation before its last layer.

    ``node``: the last of ``self.layers`` gives the logits. ``graph``: every layer is hidden, the activation of the
    last one is pooled over each graph's nodes, and a linear head classifies the sum or mean.
    """

    layers: nn.ModuleList
    pooling: Pooling
    output: Dense
    norm: ClassVar[Norm | None] = None
    """The matrix that a layer mixes rows with; None where it does not."""

    def _finish(self, embedding_dim: int, classes: int, readout: Readout, pooling: Pooling) -> None:
        """What follows once ``self.layers`` is there."""
        self.embedding_dim, self.num_classes = embedding_dim, classes
        self.readout, self.pooling = readout, pooling
        self.depth = len(self.layers)
        self.message_layers = 0 if self.norm is None else self.depth
        if readout == "graph":
            self.output = Dense(embedding_dim, classes)
            self.head = "output."
        else:
            self.head = f"layers.{self.depth - 1}."
            self.reach = None if self.norm is None else (self.norm, 1)

    @abstractmethod
    def _outputs(
        self, view: View, depth: int, generator: torch.Generator | None, activate_last: bool
    ) -> Sequence[Tensor]:
        """The output of each of the first ``depth`` layers; the last one's is on the view's rows.

        Behind all but the last come ReLU and dropout, behind that one if asked.
        """

    def _inputs(self, view: View) -> Tensor:
        """What a single layer is given, [items, d]."""
        return view.features().dense()

    def forward(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        if self.readout == "graph":
            logits: Tensor = self.output(self.embed(view, generator))
            return logits
        return self._outputs(view, self.depth, generator, False)[-1]

    def outputs(self, view: View, generator: torch.Generator | None = None) -> Outputs:
        if self.readout == "graph":
            embeddings = self.embed(view, generator)
            return Outputs(self.output(embeddings), embeddings)
        if self.depth == 1:
            return Outputs(self(view, generator), self.embed(view))
        *_, hidden, logits = self._outputs(view, self.depth, generator, False)
        return Outputs(logits, self._of_items(view, hidden))

    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        if self.readout == "graph":
            return view.pool(self._outputs(view, self.depth, generator, True)[-1], self.pooling)
        if self.depth == 1:
            return self._inputs(view)
        return self._outputs(view, self.depth - 1, generator, True)[-1]


class Layer(nn.Module, ABC):
    """The weights of one layer, from its width to the next one's."""

    @property
    @abstractmethod
    def slots(self) -> Weights:
        """Where the weight of each summand, and last the bias, is kept."""


class Dense(Layer):
    """Weight [inputs, outputs] and bias [outputs] of one layer: Xavier-uniform and zero, as PyG's layers.

    The weight is stored inputs first, so that sparse products need no transpose.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True, gain: float = 1.0):
        super().__init__()
        self.gain = gain
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None

    @property
    def slots(self) -> Weights:
        return ((self, "weight"),) if self.bias is None else ((self, "weight"), (self, "bias"))

    def initialise(self, generator: torch.Generator) -> None:
        draw_uniform(self.weight, sum(self.weight.shape), generator, gain=self.gain)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, values: Tensor) -> Tensor:
        """values @ weight + bias; [rows, inputs] to [rows, outputs]."""
        return widen(values @ self.weight if self.bias is None else torch.addmm(self.bias, values, self.weight))


def draw_uniform(weight: Tensor, fans: int, generator: torch.Generator, *, gain: float = 1.0) -> None:
    """Xavier-uniform in place: between ±gain · √(6 / fans), ``fans`` being inputs plus outputs."""
    bound = gain * math.sqrt(6.0 / fans)
    with torch.no_grad():
        weight.copy_(torch.rand(weight.shape, generator=generator) * (2 * bound) - bound)


def layer_widths(inputs: int, hidden: Sequence[int], classes: int, readout: Readout) -> list[tuple[int, int]]:
    """Widths of a model's layers: the head is one of them for nodes, and comes after pooling for graphs."""
    return widths(inputs, hidden, classes) if readout == "node" else widths(inputs, hidden[:-1], hidden[-1])


def widths(inputs: int, hidden: Iterable[int], outputs: int) -> list[tuple[int, int]]:
    """Pairs of layer widths, e.g. ``widths(5, [64], 3)`` is ``[(5, 64), (64, 3)]``."""
    sizes = [inputs, *hidden, outputs]
    return list(pairwise(sizes))
