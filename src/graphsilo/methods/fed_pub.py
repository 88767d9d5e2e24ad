"""Fed-PUB — each client's model is the mean over clients whose models answer alike on a random graph, under masks of
its own.

Baek, Jeong, Jin, Yoon, Hwang. "Personalized Subgraph Federated Learning". ICML 2023.

A client multiplies the weights that it receives by its masks, which it trains with them and keeps to itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.silo import Schema
from graphsilo.errors import MessageError
from graphsilo.federation.client import BESIDE_COMMON, ClientContext
from graphsilo.federation.interface import Federation, Replies, handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.mixing import MixingServer
from graphsilo.federation.portable import Deciding
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import ABOVE_ZERO, LocalTrainingConfig, setting
from graphsilo.federation.training_client import TrainingClient
from graphsilo.models.base import borrow
from graphsilo.models.view import GraphTensors
from graphsilo.random import numpy_generator
from graphsilo.training.local import load_weights
from graphsilo.training.masked import MaskedOptimizer
from graphsilo.training.prototypes import unit_rows
from graphsilo.training.sharing import share
from graphsilo.types import ClientId

BLOCK, LINKED = 100, 0.1
"""Nodes of a block of the random graph, and the share of their pairs that are linked."""
_ROUNDING = 1e-3


class FedPUBConfig(LocalTrainingConfig):
    """Settings of Fed-PUB."""

    weight_decay: float = setting(1e-6, "L2 weight decay, of masks as well", source="authors' code; OpenFGL 5e-4", ge=0)
    sharpness: float = setting(
        10.0, "how much more those count that are alike (τ); 0 is the plain mean",
        source="authors' code, OpenFGL; scripts 3 on disjoint and 5 on overlapping subgraphs", ge=0,
    )  # fmt: skip
    sparsity: float = setting(
        1e-3, "strength of what draws masks to 0 (λ1)", source="authors' code, where it has no gradient: 0", ge=0
    )
    proximal: float = setting(
        1e-3, "strength of what draws weights to the received ones (λ2)",
        source="authors' code, where it has no gradient: 0", ge=0,
    )  # fmt: skip
    distance: Literal["squared", "plain"] = setting(
        "squared", "from the received weights: the square of its length, or the length of each tensor's",
        source="paper; plain: authors' code", when={"proximal": ABOVE_ZERO},
    )  # fmt: skip
    cut: float = setting(1e-3, "masks of at most this size are 0 in evaluation", source="authors' code", ge=0)
    blocks: int = setting(
        5, "blocks of 100 nodes of the random graph; for graph classification each is a graph", source="authors' code",
        ge=1, le=1000,
    )  # fmt: skip

    @property
    def single_answers(self) -> str:
        return "every client's model and what it answers on a random graph, to mix models by"

    def explain_no_effect(self, schema: Schema, items: int, asked: int, model: str) -> str:
        if not self.proximal or self.local_epochs > 1 or self.batch_size or schema.task == "graph":
            return ""
        return (
            "a client takes one step, from the received weights, where what method.proximal weighs has no slope. It "
            "needs method.local_epochs or method.batch_size for two steps or more."
        )


class TrainRequest(Message):
    """The client's own mixture."""

    weights: Tensors = sends("model")


class TrainReply(Message):
    """The weights after local training, without masks; and where the masked model points on the random graph.

    Attributes:
        direction: [C] its mean logits there over their length; zeros where these are zeros.
        num_samples: What it was trained on; 0 counts for nobody.
    """

    weights: Tensors = sends("model")
    direction: Tensor = sends("model", shape=("outputs",), largest=1 + _ROUNDING)
    num_samples: float = sends("counts")

    def check(self) -> None:
        super().check()
        length = float(self.direction.norm())
        if length and abs(length - 1) > _ROUNDING:
            raise MessageError(f"a direction has length 1, or is none at all; one of length {length:.4g} came.")


class Client(TrainingClient[FedPUBConfig]):
    """Trains its mixture and its masks, and says where the masked model points.

    Between steps the model holds the weights times the masks, as evaluation has them.
    """

    kept = ("masks",)
    completes_common = True

    def __init__(self, context: ClientContext[FedPUBConfig]):
        super().__init__(context)
        config, schema = self.config, self.silo.schema
        named = dict(self.model.named_parameters())
        self.masked = MaskedOptimizer(
            list(named.values()), self.make_optimizer,
            sparsity=config.sparsity, proximal=config.proximal, squared=config.distance == "squared",
        )  # fmt: skip
        self.trainer.optimizer = self.masked
        self.common_weights = {**self.weights, **dict(zip(named, self.masked.weights, strict=True))}
        self._named = [list(named)[place] for place in self.masked.masked]
        names = ("random graph", context.seed, config.blocks, schema.task, schema.num_features, self.data.device)
        self.random: GraphTensors = share(
            names, [], lambda: GraphTensors(draw_graph(context.seed, config.blocks, schema), device=self.data.device)
        )

    @property
    def masks(self) -> dict[str, Tensor]:
        """μ by the names of their weights."""
        return dict(zip(self._named, self.masked.masks, strict=True))

    @masks.setter
    def masks(self, masks: Tensors) -> None:
        load_weights(self.masks, masks)  # in place: the optimiser holds them

    def download(self, weights: Tensors) -> None:
        super().download(weights)
        self.masked.begin()

    @handler
    def train(self, request: TrainRequest) -> TrainReply:
        """Download, train weights and masks, describe the model, upload the weights."""
        self.download(request.weights)
        self.run_epochs()
        self.masked.write(self.config.cut)
        with torch.no_grad():
            mean: Tensor = self.model(self.random.full).mean(0)
        samples = float(self.trainer.objective.num_samples)
        return TrainReply(weights=self.upload(), direction=unit_rows(mean).cpu(), num_samples=samples)

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        if view == "own" or self._aggregate is None:
            return super().predict(data, view)
        with torch.no_grad(), borrow(self.weights, self._mask(self._aggregate)):
            logits: Tensor = self.model(data.full)
        return logits

    def _mask(self, weights: Tensors) -> Tensors:
        cut = self.config.cut
        return {**weights, **{name: weights[name] * F.hardshrink(mask, cut) for name, mask in self.masks.items()}}

    def network_of(self, view: str) -> Deciding | None:
        found = super().network_of(view)
        if view == "own" or self._aggregate is None or found is None:
            return found
        return found._replace(weights=self._mask(self._aggregate))

    def count_trained(self) -> int:
        return super().count_trained() + sum(mask.numel() for mask in self.masked.masks)

    def final_models(self) -> dict[str, Tensors]:
        return {**super().final_models(), BESIDE_COMMON: self.masks}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        super().load_final(models)
        self.masks = dict(models.get(BESIDE_COMMON, self.masks))


class Server(MixingServer[FedPUBConfig, TrainReply]):
    """Mixes, for every client, the models of all by how alike they answer on the random graph."""

    def __init__(self, context: ServerContext[FedPUBConfig]):
        super().__init__(context)
        self.outputs = self.build_model().num_classes

    def collect(self, federation: Federation, clients: Sequence[ClientId]) -> Replies[TrainReply]:
        requests = {client: TrainRequest(weights=self.models[client]) for client in clients}
        return federation.ask(Client.train, requests, check=self.check).require(self.config.min_clients)

    def check(self, client: ClientId, reply: TrainReply) -> None:
        """Refuse a direction of another width: it is held against the others'."""
        if len(reply.direction) != self.outputs:
            raise MessageError(
                f"client {client} must send a direction of {self.outputs} numbers; {len(reply.direction)} came."
            )

    def shares(self, replies: Replies[TrainReply]) -> Tensor:
        """n_i exp(τ cos(e_i, e_j)) over the largest of a row, for those that trained; so that each counts n_i itself.

        Rows count as multiples; what a client counts itself is its weight in the mean for clients never asked.
        """
        answers = list(replies.answers.values())
        samples = torch.tensor([reply.num_samples for reply in answers], dtype=torch.float64)
        trained = samples > 0
        if not trained.any():
            return torch.zeros(len(answers), len(answers), dtype=torch.float64)
        directions = torch.stack([reply.direction for reply in answers]).double()
        alike = directions @ directions.t()
        # Who did not train counts for nobody, and has a mixture of the others all the same.
        below = (alike - alike[:, trained].amax(1, keepdim=True)).clamp_(max=0)
        shares = (self.config.sharpness * below).exp() * trained
        self.log |= {"similarity": float(alike.mean()), "own_share": float((shares.diagonal() / shares.sum(1)).mean())}
        return shares * samples.clamp(min=1)[:, None]

    def expected_bytes(self) -> tuple[int, int]:
        up, down = super().expected_bytes()
        return up + self.rounds * self.asked * 4 * self.outputs, down


def draw_graph(seed: int, blocks: int, schema: Schema) -> Graph | GraphCollection:
    """Blocks of 100 nodes, of whose pairs one in ten is linked, with features N(0, 1): the same at every party.

    For graph classification each block is a graph.
    """
    draw = numpy_generator(seed, "random graph")
    features = draw.standard_normal((blocks * BLOCK, schema.num_features), dtype=np.float32)
    first, second = np.triu_indices(BLOCK, 1)
    block, pair = np.nonzero(draw.random((blocks, len(first))) < LINKED)
    ends = block * BLOCK + np.stack([first[pair], second[pair]])
    unknown = np.full(len(features), -1, dtype=np.int64)
    graph = Graph(features, np.concatenate([ends, ends[::-1]], axis=1), unknown, schema.num_classes, name="random")
    if schema.task != "graph":
        return graph
    pointer = BLOCK * np.arange(blocks + 1)
    return GraphCollection(graph, pointer, unknown[:blocks], schema.num_classes, name="random")


METHOD = Method(
    about=__doc__,
    name="fed_pub",
    family="silos that are unlike",
    makes_graphs=True,
    config=FedPUBConfig,
    client=Client,
    server=Server,
    evaluates=("own", "aggregate"),
    edge_weights=True,
    trials={
        "cut": Trial([1.1]),
    },
)
