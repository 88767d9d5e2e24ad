"""What a backbone's file says of it, and the settings that many have. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from pydantic import model_validator

from graphsilo.errors import ConfigError
from graphsilo.settings import WIDEST, Settings, Width, Widths, setting
from graphsilo.types import NODE_TASKS, Task

if TYPE_CHECKING:
    from graphsilo.models.base import Model

Hidden: TypeAlias = Width | Widths
MOST = 1000
"""Layers, hops and the like: more learn nothing, and each takes memory."""
Pooling: TypeAlias = Literal["sum", "mean"]


class ModelSettings(Settings):
    """Base of all model settings."""

    section: ClassVar[str] = "model"
    model: ClassVar[str] = ""
    """The name in the registry; its entry gives it."""
    head_counts: ClassVar[bool] = True
    """Whether ``layers`` counts the layer that gives the logits of a node."""

    @model_validator(mode="before")
    @classmethod
    def _layers_follow(cls, values: Any) -> Any:
        """A list of hidden widths says how many layers there are."""
        hidden = values.get("hidden") if isinstance(values, dict) else None
        if not isinstance(hidden, list | tuple) or "layers" not in cls.model_fields:
            return values
        default = cls.model_fields["layers"].default
        layers = values.get("layers", default)
        if layers not in (default, len(hidden) + 1):
            raise ConfigError(
                f"model.hidden lists {len(hidden)} widths, which makes {len(hidden) + 1} layers, but model.layers is "
                f"{layers}: leave model.layers out, or give model.hidden as one number."
            )
        return {**values, "layers": len(hidden) + 1}

    def arguments(self, task: Task) -> dict[str, Any]:
        """Keyword arguments of the model's class: ``hidden`` as a list of widths, the readout where there is one."""
        arguments = dict(self)
        if self.head_counts:
            layers, hidden = arguments.pop("layers"), arguments["hidden"]
            count = layers if task == "graph" else layers - 1
            arguments["hidden"] = list(hidden) if isinstance(hidden, tuple) else [hidden] * count
        if "pooling" in arguments:
            arguments["readout"] = "graph" if task == "graph" else "node"
        return arguments

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a configuration file, every default written out; ``resolve`` takes them back."""
        return self.model_dump(mode="json")


_LAYERS = "graph layers; for nodes and links the last one gives the output, for graphs a linear layer follows them all"
MLP_LAYERS = "layers of the MLP, the one that gives the output included"
LINEAR_LAYERS = "layers behind the propagation; 1 is the paper's linear model, without hidden layer"


class HiddenSettings(ModelSettings):
    """What every model with hidden layers has; here those of an MLP."""

    hidden: Hidden = setting(64, "width of every hidden layer, or a list with the width of each (layers follows then)")
    layers: int = setting(2, MLP_LAYERS, ge=1, le=MOST)
    dropout: float = setting(0.5, "share of hidden activations set to 0 in training", ge=0, lt=1)


class LayeredSettings(HiddenSettings):
    """What every model made of graph layers has."""

    layers: int = setting(2, _LAYERS, ge=1, le=MOST)
    pooling: Pooling = setting("sum", "how a graph's nodes become one row (graph task only)")


class EvenSettings(LayeredSettings):
    """What every model has whose graph layers have one width and stand between linear layers."""

    head_counts: ClassVar[bool] = False
    hidden: int = setting(64, "width of all layers", ge=1, le=WIDEST)
    layers: int = setting(2, "graph layers; a linear layer stands before and behind them", ge=1, le=MOST)


def check_heads(settings: Any) -> Any:
    """Refuse heads of an attention that cannot share the hidden width."""
    for width in settings.hidden if isinstance(settings.hidden, tuple) else (settings.hidden,):
        if width % settings.heads:
            raise ConfigError(
                f"model.hidden must be a multiple of model.heads ({settings.heads}), which share it; got {width}: try "
                f"{max(1, width // settings.heads) * settings.heads}."
            )
    return settings


@dataclass(frozen=True, kw_only=True)
class ModelListing:
    """What is known of a backbone without importing it: the literals of its ``BACKBONE`` statement.

    Attributes:
        name: As in configuration files.
        summary: One line for people.
        paper: Citation.
        graphs: Whether it can make one row of each graph, for the task ``graph``.
        aliases: Other names it answers to.
        edge_weights: Whether it can be run where edges have weights: they enter its sums, or it sees no edge.
        relational: Whether it reads the tables of links, whose relations and columns give it its widths.
        keeps: What it keeps of propagated features, see ``footprint``.
    """

    name: str
    summary: str
    paper: str
    graphs: bool = False
    aliases: tuple[str, ...] = ()
    edge_weights: bool = False
    relational: bool = False
    keeps: Literal["", "hop", "sum", "levels", "chained levels", "relations"] = ""

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What it can be used for."""
        return (*NODE_TASKS, "link", "graph") if self.graphs else (*NODE_TASKS, "link")


@dataclass(frozen=True, kw_only=True)
class ModelEntry(ModelListing):
    """A backbone: what its file ends with, ``BACKBONE = ModelEntry(...)``.

    Attributes:
        settings: The class of its settings.
        network: The class of its models.
    """

    settings: type[ModelSettings]
    network: type[Model]

    def __post_init__(self) -> None:
        self.settings.model = self.name
