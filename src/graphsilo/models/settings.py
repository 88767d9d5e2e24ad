"""The settings of every model. Imports no torch: the command line reads them to explain and validate.

The list of models stands at the end; ``registry`` looks names up in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeAlias

from pydantic import model_validator

from graphsilo.errors import ConfigError
from graphsilo.settings import WIDEST, Settings, Width, Widths, setting
from graphsilo.types import NODE_TASKS, Task

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
_MLP_LAYERS = "layers of the MLP, the one that gives the output included"
_CLASSIC_NORM = "normalisation before each ReLU; with six layers or more, layer wants method.lr near 0.003"
_LINEAR = "layers behind the propagation; 1 is the paper's linear model, without hidden layer"


class HiddenSettings(ModelSettings):
    """What every model with hidden layers has; here those of an MLP."""

    hidden: Hidden = setting(64, "width of every hidden layer, or a list with the width of each (layers follows then)")
    layers: int = setting(2, _MLP_LAYERS, ge=1, le=MOST)
    dropout: float = setting(0.5, "share of hidden activations set to 0 in training", ge=0, lt=1)


class LayeredSettings(HiddenSettings):
    """What every model made of graph layers has."""

    layers: int = setting(2, _LAYERS, ge=1, le=MOST)
    pooling: Pooling = setting("sum", "how a graph's nodes become one row (graph task only)")


def check_heads(settings: Any) -> Any:
    """Refuse heads of an attention that cannot share the hidden width."""
    for width in settings.hidden if isinstance(settings.hidden, tuple) else (settings.hidden,):
        if width % settings.heads:
            raise ConfigError(
                f"model.hidden must be a multiple of model.heads ({settings.heads}), which share it; got {width}: try "
                f"{max(1, width // settings.heads) * settings.heads}."
            )
    return settings


class MLPSettings(LayeredSettings):
    """Settings of ``mlp``."""

    layers: int = setting(2, "linear layers; for graphs one more follows the pooling", ge=1, le=MOST)


class GCNSettings(LayeredSettings):
    """Settings of ``gcn``."""


class StackedSGCSettings(LayeredSettings):
    """Settings of ``sgc_stacked``."""


class SAGESettings(LayeredSettings):
    """Settings of ``sage``."""

    unit_rows: bool = setting(False, "whether each row of a hidden layer is scaled to length 1 behind its ReLU")


class RGCNSettings(LayeredSettings):
    """Settings of ``rgcn``."""

    bases: int = setting(
        0, "matrices of each layer that all relations' weights are mixed of; 0: each has its own", ge=0
    )


class HGTSettings(LayeredSettings):
    """Settings of ``hgt``."""

    head_counts: ClassVar[bool] = False
    hidden: int = setting(64, "width of all layers", ge=1, le=WIDEST)
    layers: int = setting(2, "attention layers; a linear layer stands before and behind them", ge=1, le=MOST)
    heads: int = setting(4, "attention heads of each layer, side by side; they share its width", ge=1)
    attention_dropout: float = setting(0.0, "share of attention weights set to 0 in training", ge=0, lt=1)

    _heads_share = model_validator(mode="after")(check_heads)


class GATSettings(LayeredSettings):
    """Settings of ``gat``."""

    heads: int = setting(1, "attention heads of each hidden layer, side by side; they share its width", ge=1)
    output_heads: int = setting(1, "attention heads of the output layer, averaged", ge=1, le=MOST)
    attention_dropout: float = setting(0.0, "share of attention weights set to 0 in training", ge=0, lt=1)
    negative_slope: float = setting(0.2, "slope of the scores' LeakyReLU below 0", ge=0)
    activation: Literal["relu", "elu"] = setting("relu", "activation of hidden layers")

    _heads_share = model_validator(mode="after")(check_heads)


class GINSettings(LayeredSettings):
    """Settings of ``gin``."""

    mlp_layers: int = setting(2, "linear layers inside each graph layer", ge=1, le=MOST)
    eps: float = setting(0.0, "weight of the node itself, minus 1")
    train_eps: bool = setting(False, "whether each layer learns its own eps")
    norm: Literal["none", "batch"] = setting("none", "normalisation inside each MLP")
    jumping: bool = setting(False, "whether the graph readout reads every layer instead of the last (graph task only)")


class GINESettings(LayeredSettings):
    """Settings of ``gine``."""

    head_counts: ClassVar[bool] = False
    hidden: int = setting(64, "width of all layers", ge=1, le=WIDEST)
    layers: int = setting(2, "graph layers; a linear layer stands before and behind them", ge=1, le=MOST)
    mlp_layers: int = setting(2, "linear layers inside each graph layer", ge=1, le=MOST)
    eps: float = setting(0.0, "weight of the node itself, minus 1")
    train_eps: bool = setting(False, "whether each layer learns its own eps")


class GCFLGINSettings(LayeredSettings):
    """Settings of ``gin_gcfl``."""

    head_counts: ClassVar[bool] = False
    hidden: int = setting(64, "width of all layers", ge=1, le=WIDEST)
    layers: int = setting(3, "graph layers; a linear layer stands before and two behind them", ge=1, le=MOST)


class FedStarGINSettings(GCFLGINSettings):
    """Settings of ``gin_fedstar``."""

    walks: int = setting(16, "steps of the random walk whose chances to be back are a node's encoding", ge=0, le=MOST)
    degrees: int = setting(16, "columns of the one-hot degree; larger ones share the last", ge=0, le=WIDEST)

    @model_validator(mode="after")
    def _encodes(self) -> Self:
        if not self.walks + self.degrees:
            raise ConfigError(
                "model.walks and model.degrees are both 0, which leaves no structure to encode: raise one."
            )
        return self


class SGCSettings(HiddenSettings):
    """Settings of ``sgc``."""

    hops: int = setting(2, "propagation steps K; 0 ignores the edges", ge=0, le=MOST)
    layers: int = setting(1, _LINEAR, ge=1, le=MOST)


class SSGCSettings(HiddenSettings):
    """Settings of ``ssgc``."""

    hops: int = setting(16, "propagation steps K, averaged", ge=1, le=MOST)
    alpha: float = setting(0.05, "share of the unpropagated features", ge=0, le=1)
    layers: int = setting(1, _LINEAR, ge=1, le=MOST)


class SSGCMLPSettings(HiddenSettings):
    """Settings of ``ssgc_mlp``."""

    hops: int = setting(3, "propagation steps L; levels 0 to L are averaged", ge=0, le=MOST)


class APPNPSettings(HiddenSettings):
    """Settings of ``appnp``."""

    hops: int = setting(10, "propagation steps K", ge=0, le=MOST)
    alpha: float = setting(0.1, "teleport probability; 1 is the MLP", ge=0, le=1)


class APPNPFeaturesSettings(HiddenSettings):
    """Settings of ``appnp_features``."""

    hops: int = setting(2, "propagation steps K", ge=0, le=MOST)
    alpha: float = setting(0.1, "teleport probability; 1 is an MLP on the features", ge=0, le=1)


class GCNIISettings(LayeredSettings):
    """Settings of ``gcnii``."""

    head_counts: ClassVar[bool] = False
    hidden: int = setting(64, "width of all layers", ge=1, le=WIDEST)
    layers: int = setting(64, "graph convolutions; a linear layer stands before and behind them", ge=1, le=MOST)
    dropout: float = setting(0.6, "share of hidden activations set to 0 in training", ge=0, lt=1)
    alpha: float = setting(0.1, "share of the first hidden layer in each convolution's input", ge=0, le=1)
    theta: float = setting(0.5, "identity mapping: layer l uses log(theta / l + 1) of its weight", ge=0)


class GCNIIOpenFGLSettings(LayeredSettings):
    """Settings of ``gcnii_openfgl``."""

    head_counts: ClassVar[bool] = False
    hidden: int = setting(64, "width of all layers", ge=1, le=WIDEST)
    layers: int = setting(2, "graph convolutions; a linear layer stands before and behind them", ge=1, le=MOST)
    alpha: float = setting(0.1, "share of the first hidden layer in each convolution's input", ge=0, le=1)

    def arguments(self, task: Task) -> dict[str, Any]:
        return {**super().arguments(task), "theta": None, "activate": False}


class ClassicSettings(LayeredSettings):
    """Settings of ``classic``."""

    head_counts: ClassVar[bool] = False
    conv: Literal["gcn", "sage"] = setting("gcn", "graph convolution: symmetrically normalised, or SAGE's mean")
    hidden: int = setting(64, "width of all layers", ge=1, le=WIDEST)
    layers: int = setting(3, "graph convolutions; a linear layer stands before and behind them", ge=1, le=MOST)
    norm: Literal["none", "layer"] = setting("none", _CLASSIC_NORM)
    residual: bool = setting(True, "whether a linear map of each convolution's input is added to its output")


class SIGNSettings(HiddenSettings):
    """Settings of ``sign``."""

    hops: int = setting(3, "propagation steps L; levels 0 to L stand side by side", ge=0, le=MOST)


class GAMLPSettings(HiddenSettings):
    """Settings of ``gamlp``."""

    hops: int = setting(3, "propagation steps L; levels 0 to L are weighed by attention", ge=0, le=MOST)
    layers: int = setting(3, _MLP_LAYERS, ge=2, le=MOST)
    attention: Literal["jk", "recursive"] = setting("jk", "what a hop is compared with: all hops, or those before it")
    score_activation: Literal["sigmoid", "relu", "leaky_relu"] = setting("sigmoid", "activation of the scores")
    attention_dropout: float = setting(0.0, "share of hop weights set to 0 in training", ge=0, lt=1)
    legacy_layout: bool = setting(False, "mix the nodes' scores as a release does; only to reproduce its numbers")


@dataclass(frozen=True)
class ModelEntry:
    """One line of the list of models.

    Attributes:
        name: As in configuration files.
        summary: One line for people.
        paper: Citation.
        settings: The class of its settings.
        path: ``module:Class`` of a Model; imported when a model is built.
        tasks: What it can be used for.
        aliases: Other names it answers to.
        edge_weights: Whether it can be run where edges have weights: they enter its sums, or it sees no edge.
        relational: Whether it reads the tables of links, whose relations and columns give it its widths.
        keeps: What it keeps of propagated features, see ``footprint``.
    """

    name: str
    summary: str
    paper: str
    settings: type[ModelSettings]
    path: str
    tasks: tuple[Task, ...] = (*NODE_TASKS, "link")
    aliases: tuple[str, ...] = ()
    edge_weights: bool = False
    relational: bool = False
    keeps: Literal["", "hop", "sum", "levels", "chained levels", "relations"] = ""

    def __post_init__(self) -> None:
        self.settings.model = self.name


_ALL: tuple[Task, ...] = (*NODE_TASKS, "link", "graph")
_HERE = "graphsilo.models"

BUILT_IN = (
    ModelEntry(
        "mlp", "linear layers; sees no edge", "structure-free baseline",
        MLPSettings, f"{_HERE}.mlp:MLP", _ALL, edge_weights=True,
    ),
    ModelEntry(
        "gcn", "graph convolutions with the symmetrically normalised adjacency",
        "Kipf and Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017",
        GCNSettings, f"{_HERE}.gcn:GCN", _ALL, edge_weights=True,
    ),
    ModelEntry(
        "sage", "GraphSAGE with mean aggregation",
        "Hamilton, Ying and Leskovec, Inductive Representation Learning on Large Graphs, NeurIPS 2017",
        SAGESettings, f"{_HERE}.sage:SAGE", _ALL, ("graphsage",), edge_weights=True,
    ),
    ModelEntry(
        "gat", "neighbours weighted by learned attention", "Veličković et al., Graph Attention Networks, ICLR 2018",
        GATSettings, f"{_HERE}.gat:GAT", _ALL,
    ),
    ModelEntry(
        "rgcn", "the mean over the links of each relation and direction, each with a weight of its own",
        "Schlichtkrull et al., Modeling Relational Data with Graph Convolutional Networks, ESWC 2018",
        RGCNSettings, f"{_HERE}.rgcn:RGCN", _ALL, relational=True, keeps="relations",
    ),
    ModelEntry(
        "hgt", "attention by the types of nodes and the relation between them",
        "Hu et al., Heterogeneous Graph Transformer, WWW 2020",
        HGTSettings, f"{_HERE}.hgt:HGT", _ALL, relational=True,
    ),
    ModelEntry(
        "gin", "an MLP on a node plus the sum of its neighbours",
        "Xu et al., How Powerful are Graph Neural Networks?, ICLR 2019",
        GINSettings, f"{_HERE}.gin:GIN", _ALL,
    ),
    ModelEntry(
        "gine", "gin on every row of the tables of links, with what stands in its columns",
        "Hu et al., Strategies for Pre-training Graph Neural Networks, ICLR 2020",
        GINESettings, f"{_HERE}.gine:GINE", _ALL, relational=True,
    ),
    ModelEntry(
        "gin_gcfl", "GCFL's: GIN layers of one width, which clients can share, between linear ones",
        "Xie et al., Federated Graph Classification over Non-IID Graphs, NeurIPS 2021",
        GCFLGINSettings, f"{_HERE}.gin_ends:GCFLGIN", _ALL,
    ),
    ModelEntry(
        "gin_fedstar", "FedStar's: the same beside graph convolutions on encodings of structure, which clients share",
        "Tan et al., Federated Learning on Non-IID Graphs via Structural Knowledge Sharing, AAAI 2023",
        FedStarGINSettings, f"{_HERE}.gin_ends:FedStarGIN", _ALL,
    ),
    ModelEntry(
        "sgc", "a linear model on features propagated K times",
        "Wu et al., Simplifying Graph Convolutional Networks, ICML 2019",
        SGCSettings, f"{_HERE}.sgc:SGC", edge_weights=True, keeps="hop",
    ),
    ModelEntry(
        "sgc_stacked", "OpenFGL's sgc: stacked one-hop layers with ReLU between, in fact a GCN",
        "Li et al., OpenFGL: A Comprehensive Benchmark for Federated Graph Learning, 2024",
        StackedSGCSettings, f"{_HERE}.gcn:StackedSGC", _ALL, ("sgc_openfgl",), edge_weights=True,
    ),
    ModelEntry(
        "ssgc", "S²GC: a linear model on the average of K propagation levels",
        "Zhu and Koniusz, Simple Spectral Graph Convolution, ICLR 2021",
        SSGCSettings, f"{_HERE}.ssgc:SSGC", aliases=("s2gc",), edge_weights=True, keeps="sum",
    ),
    ModelEntry(
        "ssgc_mlp", "the federated papers' SSGC: an MLP on the mean of the propagation levels",
        "Li et al., FedGTA: Topology-aware Averaging for Federated Graph Learning, VLDB 2024",
        SSGCMLPSettings, f"{_HERE}.ssgc:MeanHopsMLP", edge_weights=True, keeps="sum",
    ),
    ModelEntry(
        "appnp", "an MLP whose predictions are propagated by personalised PageRank",
        "Gasteiger, Bojchevski and Günnemann, Predict then Propagate, ICLR 2019",
        APPNPSettings, f"{_HERE}.appnp:APPNP", edge_weights=True,
    ),
    ModelEntry(
        "appnp_features", "O-pFGL's APPNP: personalised PageRank on the features, then an MLP",
        "Yan et al., Personalized One-shot Federated Graph Learning for Heterogeneous Clients, 2024",
        APPNPFeaturesSettings, f"{_HERE}.appnp:PropagatedAPPNP", edge_weights=True, keeps="sum",
    ),
    ModelEntry(
        "gcnii", "deep graph convolutions with initial residual and identity mapping",
        "Chen et al., Simple and Deep Graph Convolutional Networks, ICML 2020",
        GCNIISettings, f"{_HERE}.gcnii:GCNII", _ALL, ("gcn2",), edge_weights=True,
    ),
    ModelEntry(
        "gcnii_openfgl", "OpenFGL's gcnii: two layers, no identity mapping, no activation between them",
        "Li et al., OpenFGL: A Comprehensive Benchmark for Federated Graph Learning, 2024",
        GCNIIOpenFGLSettings, f"{_HERE}.gcnii:GCNII", _ALL, edge_weights=True,
    ),
    ModelEntry(
        "classic", "GCN or SAGE layers with normalisation, residual connections and dropout, to any depth",
        "Luo, Shi and Wu, Classic GNNs are Strong Baselines, NeurIPS 2024",
        ClassicSettings, f"{_HERE}.classic:Classic", _ALL, ("classic_gnn",), edge_weights=True,
    ),
    ModelEntry(
        "sign", "an MLP on the propagation levels side by side",
        "Frasca et al., SIGN: Scalable Inception Graph Neural Networks, 2020",
        SIGNSettings, f"{_HERE}.sign:SIGN", edge_weights=True, keeps="levels",
    ),
    ModelEntry(
        "gamlp", "an MLP on the propagation levels, weighed per node by attention",
        "Zhang et al., Graph Attention Multi-Layer Perceptron, KDD 2022",
        GAMLPSettings, f"{_HERE}.gamlp:GAMLP", edge_weights=True, keeps="chained levels",
    ),
)  # fmt: skip
