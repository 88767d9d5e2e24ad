"""The settings of every model. Imports no torch: the command line reads them to explain and validate.

Every model has one frozen dataclass; each field carries its help text and its range. The list of models is in
``registry``.
"""

# ruff: noqa: RUF009 (the defaults that functions make are dataclass fields)
from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeAlias

from graphsilo.errors import ConfigError, nearest, shown
from graphsilo.types import Task

Hidden: TypeAlias = "int | tuple[int, ...]"
Pooling: TypeAlias = Literal["sum", "mean"]


def setting(
    default: Any,
    text: str,
    *,
    low: float | None = None,
    high: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] = (),
    listed: bool = False,
) -> Any:
    """A dataclass field with its help text and the values it may have.

    Args:
        default: Its type is the type of the field.
        text: One line for people.
        low: Smallest value allowed.
        high: Largest value allowed.
        below: Bound that must not be reached.
        choices: The words allowed.
        listed: Whether a list of such values is allowed too.
    """
    rules = {"low": low, "high": high, "below": below, "choices": choices, "listed": listed}
    return field(default=default, metadata={"help": text, **rules})


@dataclass(frozen=True)
class Settings:
    """Base of all model settings; a value of the wrong type or outside its range raises ConfigError."""

    model: ClassVar[str] = ""
    """The name in the registry."""
    head_counts: ClassVar[bool] = True
    """Whether ``layers`` counts the layer that gives the logits of a node."""

    def __post_init__(self) -> None:
        for item in fields(self):
            object.__setattr__(self, item.name, _checked(self.model, item, getattr(self, item.name)))
        hidden, layers = getattr(self, "hidden", None), getattr(self, "layers", None)
        if isinstance(hidden, tuple) and layers != len(hidden) + 1:
            default = next(item.default for item in fields(self) if item.name == "layers")
            if layers != default:
                raise ConfigError(
                    f"{self.model}: a list of {len(hidden)} hidden widths makes {len(hidden) + 1} layers, but layers "
                    f"is {layers}: leave layers out, or give hidden as one number."
                )
            object.__setattr__(self, "layers", len(hidden) + 1)

    def arguments(self, task: Task) -> dict[str, Any]:
        """Keyword arguments of the model's class: ``hidden`` as a list of widths, the readout where there is one."""
        arguments = {item.name: getattr(self, item.name) for item in fields(self)}
        if self.head_counts:
            layers, hidden = arguments.pop("layers"), arguments["hidden"]
            count = layers if task == "graph" else layers - 1
            arguments["hidden"] = list(hidden) if isinstance(hidden, tuple) else [hidden] * count
        if "pooling" in arguments:
            arguments["readout"] = "graph" if task == "graph" else "node"
        return arguments

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a configuration file, every default written out; ``resolve`` takes them back."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _checked(model: str, item: dataclasses.Field, value: Any) -> Any:
    """The value in the field's type, or ConfigError."""
    rules = item.metadata
    kind = type(item.default)
    if rules["listed"] and isinstance(value, list | tuple):
        if not value:
            raise ConfigError(f"{model}: {item.name} must be {wanted(item)}; got an empty list.")
        return tuple(_checked(model, item, entry) for entry in value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    fits = type(value) is kind and not (isinstance(value, float) and not math.isfinite(value))
    if fits and rules["choices"]:
        fits = value in rules["choices"]
    if fits and kind in (int, float):
        low, high, below = rules["low"], rules["high"], rules["below"]
        fits = (low is None or value >= low) and (high is None or value <= high) and (below is None or value < below)
    if not fits:
        tail = f" {nearest(value, rules['choices'])}" if rules["choices"] and isinstance(value, str) else ""
        raise ConfigError(f"{model}: {item.name} must be {wanted(item)}; got {shown(value)}.{tail}")
    return value


def wanted(item: dataclasses.Field) -> str:
    """The values a field takes, in words."""
    rules = item.metadata
    if rules["choices"]:
        return "one of " + ", ".join(rules["choices"])
    kind = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[type(item.default)]
    bounds = []
    if rules["low"] is not None:
        bounds.append(f"at least {rules['low']:g}")
    if rules["high"] is not None:
        bounds.append(f"at most {rules['high']:g}")
    if rules["below"] is not None:
        bounds.append(f"below {rules['below']:g}")
    text = f"{kind} {' and '.join(bounds)}".rstrip()
    return f"{text}, or a list of these" if rules["listed"] else text


_HIDDEN = "width of every hidden layer, or a list with the width of each (then layers follows from it)"
_DROPOUT = "share of hidden activations set to 0 in training"
_POOLING = "how a graph's nodes become one row (graph task only)"
_LAYERS = "graph layers; for nodes and links the last one gives the output, for graphs a linear layer follows them all"
_MLP_LAYERS = "layers of the MLP, the one that gives the output included"


def _hidden() -> Any:
    return setting(64, _HIDDEN, low=1, listed=True)


def _layers(default: int, text: str = _LAYERS, low: int = 1) -> Any:
    return setting(default, text, low=low)


def _dropout(default: float = 0.5) -> Any:
    return setting(default, _DROPOUT, low=0.0, below=1.0)


def _pooling() -> Any:
    return setting("sum", _POOLING, choices=("sum", "mean"))


@dataclass(frozen=True)
class MLPSettings(Settings):
    """Settings of ``mlp``."""

    model: ClassVar[str] = "mlp"
    hidden: Hidden = _hidden()
    layers: int = _layers(2, "linear layers; for graphs one more follows the pooling")
    dropout: float = _dropout()
    pooling: Pooling = _pooling()


@dataclass(frozen=True)
class GCNSettings(Settings):
    """Settings of ``gcn``."""

    model: ClassVar[str] = "gcn"
    hidden: Hidden = _hidden()
    layers: int = _layers(2)
    dropout: float = _dropout()
    pooling: Pooling = _pooling()


@dataclass(frozen=True)
class StackedSGCSettings(Settings):
    """Settings of ``sgc_stacked``."""

    model: ClassVar[str] = "sgc_stacked"
    hidden: Hidden = _hidden()
    layers: int = _layers(2)
    dropout: float = _dropout()
    pooling: Pooling = _pooling()


@dataclass(frozen=True)
class SAGESettings(Settings):
    """Settings of ``sage``."""

    model: ClassVar[str] = "sage"
    hidden: Hidden = _hidden()
    layers: int = _layers(2)
    dropout: float = _dropout()
    unit_rows: bool = setting(False, "whether each row of a hidden layer is scaled to length 1 behind its ReLU")
    pooling: Pooling = _pooling()


@dataclass(frozen=True)
class GATSettings(Settings):
    """Settings of ``gat``."""

    model: ClassVar[str] = "gat"
    hidden: Hidden = _hidden()
    layers: int = _layers(2)
    dropout: float = _dropout()
    heads: int = setting(1, "attention heads of each hidden layer, side by side; they share its width", low=1)
    output_heads: int = setting(1, "attention heads of the output layer, averaged", low=1)
    attention_dropout: float = setting(0.0, "share of attention weights set to 0 in training", low=0.0, below=1.0)
    negative_slope: float = setting(0.2, "slope of the scores' LeakyReLU below 0", low=0.0)
    activation: Literal["relu", "elu"] = setting("relu", "activation of hidden layers", choices=("relu", "elu"))
    pooling: Pooling = _pooling()

    def __post_init__(self) -> None:
        super().__post_init__()
        for width in self.hidden if isinstance(self.hidden, tuple) else (self.hidden,):
            if width % self.heads:
                raise ConfigError(
                    f"gat: a hidden width must be a multiple of heads ({self.heads}), which share it; got {width}: "
                    f"try {max(1, width // self.heads) * self.heads}."
                )


@dataclass(frozen=True)
class GINSettings(Settings):
    """Settings of ``gin``."""

    model: ClassVar[str] = "gin"
    hidden: Hidden = _hidden()
    layers: int = _layers(2)
    dropout: float = _dropout()
    mlp_layers: int = setting(2, "linear layers inside each graph layer", low=1)
    eps: float = setting(0.0, "weight of the node itself, minus 1")
    train_eps: bool = setting(False, "whether each layer learns its own eps")
    norm: Literal["none", "batch"] = setting("none", "normalisation inside each MLP", choices=("none", "batch"))
    jumping: bool = setting(False, "whether the graph readout reads every layer instead of the last (graph task only)")
    pooling: Pooling = _pooling()


@dataclass(frozen=True)
class SGCSettings(Settings):
    """Settings of ``sgc``."""

    model: ClassVar[str] = "sgc"
    hops: int = setting(2, "propagation steps K; 0 ignores the edges", low=0)
    hidden: Hidden = _hidden()
    layers: int = _layers(1, "layers behind the propagation; 1 is the paper's linear model, without hidden layer")
    dropout: float = _dropout()


@dataclass(frozen=True)
class SSGCSettings(Settings):
    """Settings of ``ssgc``."""

    model: ClassVar[str] = "ssgc"
    hops: int = setting(16, "propagation steps K, averaged", low=1)
    alpha: float = setting(0.05, "share of the unpropagated features", low=0.0, high=1.0)
    hidden: Hidden = _hidden()
    layers: int = _layers(1, "layers behind the propagation; 1 is the paper's linear model, without hidden layer")
    dropout: float = _dropout()


@dataclass(frozen=True)
class SSGCMLPSettings(Settings):
    """Settings of ``ssgc_mlp``."""

    model: ClassVar[str] = "ssgc_mlp"
    hops: int = setting(3, "propagation steps L; levels 0 to L are averaged", low=0)
    hidden: Hidden = _hidden()
    layers: int = _layers(2, _MLP_LAYERS)
    dropout: float = _dropout()


@dataclass(frozen=True)
class APPNPSettings(Settings):
    """Settings of ``appnp``."""

    model: ClassVar[str] = "appnp"
    hidden: Hidden = _hidden()
    layers: int = _layers(2, _MLP_LAYERS)
    dropout: float = _dropout()
    hops: int = setting(10, "propagation steps K", low=0)
    alpha: float = setting(0.1, "teleport probability; 1 is the MLP", low=0.0, high=1.0)


@dataclass(frozen=True)
class APPNPFeaturesSettings(Settings):
    """Settings of ``appnp_features``."""

    model: ClassVar[str] = "appnp_features"
    hops: int = setting(2, "propagation steps K", low=0)
    alpha: float = setting(0.1, "teleport probability; 1 is an MLP on the features", low=0.0, high=1.0)
    hidden: Hidden = _hidden()
    layers: int = _layers(2, _MLP_LAYERS)
    dropout: float = _dropout()


@dataclass(frozen=True)
class GCNIISettings(Settings):
    """Settings of ``gcnii``."""

    model: ClassVar[str] = "gcnii"
    head_counts: ClassVar[bool] = False
    hidden: int = setting(64, "width of all layers", low=1)
    layers: int = setting(64, "graph convolutions; a linear layer stands before and behind them", low=1)
    dropout: float = _dropout(0.6)
    alpha: float = setting(0.1, "share of the first hidden layer in each convolution's input", low=0.0, high=1.0)
    theta: float = setting(0.5, "identity mapping: layer l uses log(theta / l + 1) of its weight", low=0.0)
    pooling: Pooling = _pooling()


@dataclass(frozen=True)
class GCNIIOpenFGLSettings(Settings):
    """Settings of ``gcnii_openfgl``."""

    model: ClassVar[str] = "gcnii_openfgl"
    head_counts: ClassVar[bool] = False
    hidden: int = setting(64, "width of all layers", low=1)
    layers: int = setting(2, "graph convolutions; a linear layer stands before and behind them", low=1)
    dropout: float = _dropout()
    alpha: float = setting(0.1, "share of the first hidden layer in each convolution's input", low=0.0, high=1.0)
    pooling: Pooling = _pooling()

    def arguments(self, task: Task) -> dict[str, Any]:
        return {**super().arguments(task), "theta": None, "activate": False}


@dataclass(frozen=True)
class SIGNSettings(Settings):
    """Settings of ``sign``."""

    model: ClassVar[str] = "sign"
    hops: int = setting(3, "propagation steps L; levels 0 to L stand side by side", low=0)
    hidden: Hidden = _hidden()
    layers: int = _layers(2, _MLP_LAYERS)
    dropout: float = _dropout()


@dataclass(frozen=True)
class GAMLPSettings(Settings):
    """Settings of ``gamlp``."""

    model: ClassVar[str] = "gamlp"
    hops: int = setting(3, "propagation steps L; levels 0 to L are weighed by attention", low=0)
    hidden: Hidden = _hidden()
    layers: int = _layers(3, _MLP_LAYERS, low=2)
    dropout: float = _dropout()
    attention: Literal["jk", "recursive"] = setting(
        "jk", "what a hop is compared with: all hops, or those before it", choices=("jk", "recursive")
    )
    score_activation: Literal["sigmoid", "relu", "leaky_relu"] = setting(
        "sigmoid", "activation of the scores", choices=("sigmoid", "relu", "leaky_relu")
    )
    attention_dropout: float = setting(0.0, "share of hop weights set to 0 in training", low=0.0, below=1.0)
    legacy_layout: bool = setting(False, "mix the nodes' scores as a release does; only to reproduce its numbers")
