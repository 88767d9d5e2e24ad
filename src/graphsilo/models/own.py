"""Backbones of a person's own: an ``nn.Module`` with ``forward(x, edge_index)``, run as it is and trained by autograd.

Each step computes all nodes of a client's graph, from dense features: what other rows a module needs for some of them
is not known. The backbones of graphsilo compute only those, and without autograd's bookkeeping.
"""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from graphsilo.errors import ConfigError, UnsupportedError, several
from graphsilo.models.base import Model
from graphsilo.models.generated import RelinkedView
from graphsilo.models.precision import widen
from graphsilo.models.settings import ModelEntry, ModelListing, ModelSettings
from graphsilo.models.view import GraphTensors, View
from graphsilo.signatures import parameters_of, settings_of
from graphsilo.types import Task

INPUTS = ("in_channels", "in_features", "num_features", "inputs", "input_dim", "in_dim", "in_feats")
OUTPUTS = ("out_channels", "out_features", "num_classes", "outputs", "output_dim", "out_dim", "out_feats")
"""What classes call the widths of what comes in and goes out."""
_RESERVED = ("name", "pool", "options")
"""Names of a run's ``model`` settings that stand for something else."""


class OwnSettings(ModelSettings):
    """Base of the settings of somebody's own model."""

    factory: ClassVar[Callable[..., Any]]
    widths: ClassVar[tuple[str, str]]
    """What its parameters for the widths of features and output are called."""


def entry_of(name: str, made_by: Callable[..., Any]) -> ModelEntry:
    """The line of the list for a class of modules, or for a function that makes one.

    Args:
        name: By which it will be known.
        made_by: Takes the widths of features and of the output, and its own settings.

    Raises:
        ConfigError: Its parameters do not say which are the widths.
    """
    what = f"model '{name}'"
    widths = _widths(made_by, what)
    settings = settings_of("OwnSettings", OwnSettings, made_by, (*widths, *_RESERVED), what)
    settings.factory, settings.widths = staticmethod(made_by), widths
    said = inspect.cleandoc(made_by.__doc__ or "")  # not what a base class says of itself
    summary = (said or "a module of your own").splitlines()[0].rstrip(".")
    about = ModelListing(name=name, summary=summary, paper="your own", graphs=True, edge_weights=True)
    return ModelEntry(**vars(about), settings=settings, network=OwnModel)


def _widths(made_by: Callable[..., Any], what: str) -> tuple[str, str]:
    names = list(parameters_of(made_by, what))
    found = tuple(next((name for name in known if name in names), None) for known in (INPUTS, OUTPUTS))
    if found[0] is not None and found[1] is not None:
        return found[0], found[1]
    if found == (None, None) and len(names) >= 2:
        return names[0], names[1]
    raise ConfigError(
        f"{what} is made for every client, with the width of the features and that of the output; among its "
        f"parameters ({several(names, 8) or 'none'}) it is not clear which take them. Call them in_channels and "
        f"out_channels, or give a function f(inputs, outputs) that makes the module."
    )


class Call(NamedTuple):
    """What a module's ``forward`` takes behind the features."""

    edges: bool
    weights: bool
    batch: bool

    @classmethod
    def of(cls, forward: Callable[..., Any], what: str) -> Self:
        names = list(parameters_of(forward, what))
        kinds = {one.kind for one in inspect.signature(forward).parameters.values()}
        edges = "edge_index" in names or inspect.Parameter.VAR_POSITIONAL in kinds
        return cls(edges or names[1:2] not in ([], ["batch"]), "edge_weight" in names, "batch" in names)


class Inputs(NamedTuple):
    """A graph as a module takes it: x [n, d], edge_index [2, e], edge_weight [e], batch [n] (many graphs)."""

    x: Tensor
    edge_index: Tensor
    edge_weight: Tensor | None = None
    batch: Tensor | None = None


class OwnModel(Model):
    """Holds somebody's module and gives it what it takes of a view.

    Where the module has a submodule ``head`` and a method ``embed`` that takes the same as ``forward``, what ``embed``
    gives is the embedding; else there is no hidden layer that is known.

    Args:
        make: Makes the module.
        inputs, classes: Widths.
        readout: ``graph``: it must take ``batch`` and give a row per graph.
        what: How errors name it.
    """

    deeper = "Give the module a method embed(x, edge_index) and a submodule `head` that comes behind it"

    def __init__(self, make: Callable[[], nn.Module], inputs: int, classes: int, readout: Task, what: str):
        super().__init__()
        self.num_classes, self.readout, self.what = classes, readout, what
        self._make, self._inputs = make, inputs
        self._draw(0)

    @classmethod
    def from_settings(cls, settings: ModelSettings, inputs: int, classes: int, task: Task, schema: Any = None) -> Self:
        assert isinstance(settings, OwnSettings)
        kind = type(settings)
        widths = dict(zip(kind.widths, (inputs, classes), strict=True))
        return cls(partial(kind.factory, **widths, **dict(settings)), inputs, classes, task, f"model '{kind.model}'")

    @property
    def called(self) -> str:
        return self.what

    def reset(self, generator: torch.Generator) -> None:
        """Make the module again: whatever way it draws its weights, they come from the generator."""
        self._draw(_seed(generator))

    def _draw(self, seed: int) -> None:
        with torch.random.fork_rng(devices=[]), _name_errors(self.what, "on two nodes and the link between them"):
            torch.manual_seed(seed)
            module = self._make()
            if not isinstance(module, nn.Module):
                raise ConfigError(f"{self.what} should make a torch.nn.Module; it made a {type(module).__name__}.")
            self.module = module
            self._call = Call.of(module.forward, self.what)
            if self.readout == "graph" and not self._call.batch:
                raise UnsupportedError(
                    f"{self.what}: task 'graph' wants a row per graph, hence forward(x, edge_index, batch), where "
                    f"batch [n] says whose graph a node is; its forward takes no batch. Pool the nodes with "
                    f"torch_geometric.nn.global_add_pool(x, batch)."
                )
            self._try()
        self._check_parameters()

    def _try(self) -> None:
        """One pass over two linked nodes: finds widths and makes what a module makes at its first call."""
        ends = torch.tensor([[0, 1], [1, 0]])
        batch = torch.zeros(2, dtype=torch.int64) if self.readout == "graph" else None
        given = Inputs(torch.randn(2, self._inputs), ends, torch.ones(2), batch)
        self.module.eval()
        with torch.no_grad():
            output = self._run(self.module, given, 1 if self.readout == "graph" else 2)
            self.head, self.embedding_dim, self._is_pointwise = "", self._inputs, False
            if self._has_embedding:
                hidden = self.module.embed(*self._arguments(given), **self._options(given))  # type: ignore[operator]
                self.head, self.embedding_dim = "module.head.", int(hidden.shape[-1])
                # Whether it classifies vectors that are no nodes is seen, not said.
                with contextlib.suppress(Exception):
                    self._is_pointwise = torch.allclose(self._head(hidden), output, atol=1e-5)

    @property
    def _has_embedding(self) -> bool:
        return isinstance(getattr(self.module, "head", None), nn.Module) and callable(
            getattr(self.module, "embed", None)
        )

    def _check_parameters(self) -> None:
        parameters = dict(self.named_parameters())
        frozen = next((name for name, one in parameters.items() if not one.requires_grad), None)
        odd = next((name for name, one in parameters.items() if one.dtype != torch.float32), None)
        if not parameters:
            raise UnsupportedError(f"{self.what} has no parameters: there is nothing to train or to share.")
        if frozen is not None:
            raise UnsupportedError(
                f"{self.what}: the parameter {frozen.removeprefix('module.')} does not require a gradient. Register "
                f"what stays constant with register_buffer."
            )
        if odd is not None:
            raise UnsupportedError(
                f"{self.what}: the parameter {odd.removeprefix('module.')} is {parameters[odd].dtype}; weights are "
                f"averaged and stored as float32. Leave them so (run.precision has the products in bfloat16)."
            )

    def forward(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        given = self._of(view)
        with self._mode(view, generator):
            output = self._run(self.module, given, view.num_items if self.readout == "graph" else len(given.x))
        return output if self.readout == "graph" else _rows(output, view)

    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        given = self._of(view)
        if not self._has_embedding:
            return view.pool(given.x, "mean") if self.readout == "graph" else _rows(given.x, view)
        with self._mode(view, generator):
            hidden: Tensor = self.module.embed(*self._arguments(given), **self._options(given))  # type: ignore[operator]
        return widen(hidden if self.readout == "graph" else _rows(hidden, view))

    def classify(self, embeddings: Tensor) -> Tensor:
        if not self._is_pointwise:
            raise UnsupportedError(
                f"{self.what} cannot classify vectors that are no nodes, such as prototypes or what a generator makes. "
                f"For this, give the module a method embed(x, edge_index) and a submodule `head`, with forward(x, "
                f"edge_index) equal to head(embed(x, edge_index)); or choose a model of graphsilo, such as sgc or mlp."
            )
        return super().classify(embeddings)

    def check_weights(self, has_weights: bool) -> None:
        """Refuse weights of edges that would be ignored.

        Raises:
            UnsupportedError: There are some, and ``forward`` takes none.
        """
        if has_weights and not self._call.weights:
            raise UnsupportedError(
                f"the edges have weights, and the forward of {self.what} takes no edge_weight: they would be ignored. "
                f"Let it take them, or leave the weights out: replace(graph, edge_weights=None)."
            )

    def check_pass(self, data: GraphTensors, where: str, generator: torch.Generator, *, finite: bool = True) -> None:
        """One pass over a client's data as a training step makes it, forwards and backwards.

        Raises:
            ConfigError: It fails, or gives what is no finite number.
        """
        with _name_errors(self.what, f"on {where}"), torch.enable_grad():
            output = self(data.full, generator)
            if finite and not bool(torch.isfinite(output).all()):
                count = int((~torch.isfinite(output)).any(dim=1).sum())
                raise ConfigError(
                    f"{self.what} gives NaN or infinity for {count} of {len(output)} rows on {where}, before anything "
                    f"is trained. Look for a division by zero, the logarithm of 0, or features in large units "
                    f"(data.scale=standard)."
                )
            if not output.requires_grad:
                raise ConfigError(
                    f"{self.what}: its output has no gradient. Leave out detach(), no_grad() and the like."
                )
            output.sum().backward()
        for parameter in self.parameters():
            parameter.grad = None

    def _run(self, run: Callable[..., Any], given: Inputs, rows: int) -> Tensor:
        output = run(*self._arguments(given), **self._options(given))
        what = self.what
        if not isinstance(output, Tensor):
            raise ConfigError(f"{what} should give a tensor of logits; its forward gave a {type(output).__name__}.")
        if tuple(output.shape) != (rows, self.num_classes):
            of = "graph" if self.readout == "graph" else "node"
            raise ConfigError(
                f"{what} should give a row per {of} and a column per class, here [{rows}, {self.num_classes}]; its "
                f"forward gave {list(output.shape)}. Use the width that it is made with."
            )
        return widen(output)

    def _arguments(self, given: Inputs) -> tuple[Tensor, ...]:
        return (given.x, given.edge_index) if self._call.edges else (given.x,)

    def _options(self, given: Inputs) -> dict[str, Tensor | None]:
        weights = {"edge_weight": given.edge_weight} if self._call.weights else {}
        return weights | ({"batch": given.batch} if self._call.batch else {})

    @contextlib.contextmanager
    def _mode(self, view: View, generator: torch.Generator | None) -> Iterator[None]:
        """Training with torch's random state taken from the generator and given back, or evaluation."""
        self.module.train(generator is not None)
        if generator is None:
            yield
            return
        devices = [view.device] if view.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(_seed(generator))
            yield

    def _of(self, view: View) -> Inputs:
        """The whole graph, whatever rows are asked for; of a collection only the graphs that are."""
        if isinstance(view, RelinkedView):
            raise UnsupportedError(f"{self.what} takes links for constants: choose {RelinkedView.able}.")
        if view.data.collection is None:
            return view.data.cached(("own inputs",), lambda: _inputs(view.data.full))
        return view.cached(("own inputs",), lambda: _inputs(view))


def _rows(output: Tensor, view: View) -> Tensor:
    return output if view.items is None else output[torch.from_numpy(view.items).to(output.device)]


def _inputs(view: View) -> Inputs:
    """All of a view's rows, and the links between them."""
    graph, collection, batch = view.data.graph, view.data.collection, None
    matrix = graph.adjacency()
    if collection is not None:
        matrix = matrix[view.nodes][:, view.nodes]
        chosen = np.arange(len(collection)) if view.items is None else view.items
        of_each = np.repeat(np.arange(len(chosen)), np.diff(collection.pointer)[chosen])
        batch = torch.from_numpy(of_each).to(view.device)
    links = matrix.tocoo()
    ends = torch.from_numpy(np.stack([links.col, links.row]).astype(np.int64)).to(view.device)
    weights = None if graph.edge_weights is None else torch.from_numpy(links.data).to(view.device, view.data.dtype)
    return Inputs(view.features().dense(), ends, weights, batch)


def _seed(generator: torch.Generator) -> int:
    return int(torch.randint(2**62, (), generator=generator, device=generator.device))


@contextlib.contextmanager
def _name_errors(what: str, where: str) -> Iterator[None]:
    """An error in somebody's module as a refusal that names it and the line.

    Raises:
        ConfigError: Something was raised.
    """
    try:
        yield
    except (ConfigError, UnsupportedError):
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"{what} cannot be made and run {where}: {type(error).__name__}: {error} ({last.filename}, line "
            f"{last.lineno})."
        ) from error
