"""FedSage+ — FedSage on graphs mended with generated neighbours.

Zhang, Yang, Li, Sun, Yiu. "Subgraph Federated Learning with Missing Neighbor Generation". NeurIPS 2021.

Every client learns, by hiding some of its own nodes, how many neighbours a node lacks and what their features are. The
others help: they send the gradient of the distance between what a client's generator makes and their own features,
never the features. The generated neighbours are added to the client's graph once; then FedSage runs on mended graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.graph import Graph
from graphsilo.errors import MessageError, UnsupportedError
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import Federation, Handler, Reply, Request, handler
from graphsilo.federation.message import Message, Tensors, differing, sends, shapes_of
from graphsilo.federation.registry import Method
from graphsilo.federation.settings import setting
from graphsilo.methods import fedavg, fedsage
from graphsilo.methods.fedsage_plus import generator as neighgen
from graphsilo.methods.fedsage_plus import impaired as impaired_graph
from graphsilo.methods.fedsage_plus import mended as mended_graph
from graphsilo.methods.fedsage_plus.generator import NeighGen, Rows, Sight, Sizes, Strength
from graphsilo.methods.fedsage_plus.impaired import MAX_SLOTS, AllNodes, Targets
from graphsilo.methods.fedsage_plus.mended import Mended, MendedTensors
from graphsilo.models.view import GraphTensors
from graphsilo.random import generator
from graphsilo.training.optimizer import Adam
from graphsilo.types import ClientId


class FedSagePlusConfig(fedsage.FedSageConfig):
    """Settings of FedSage+."""

    hidden_share: float = setting(
        0.95, "share of the nodes outside training and test that a client hides from its generator (where it has none: "
        "of its training nodes, half of them at most)", source="validation on Cora; release 0.5", ge=0, lt=1,
    )  # fmt: skip
    neighgen: Literal["own", "shared"] = setting(
        "own", "every client has a generator of its own, helped by the others' gradients; or all train one on the mean "
        "of their local losses", source="Zhang et al., section 3.3; shared: appendix D",
    )  # fmt: skip
    exchange: Literal["weights", "outputs"] = setting(
        "weights", "what goes to the others: the generator's weights and embeddings, gradients of the weights coming "
        "back; or generated features and the gradients of these, a hundredth of the bytes, which tell whoever sees "
        "them the others' features",
        source="Zhang et al.; FederatedScope-GNN", when={"neighgen": ("own",)},
    )  # fmt: skip
    local_generator_epochs: int = setting(20, "epochs each client trains its generator alone", source="release", ge=0)
    generator_epochs: int = setting(20, "epochs with the other clients' gradients", source="release", ge=0)
    generator_lr: float = setting(1e-3, "learning rate of the generator's Adam", source="release", gt=0)
    generator_weight_decay: float = setting(1e-4, "L2 weight decay of the generator", source="release", ge=0)
    generator_hidden: tuple[int, ...] = setting(
        (256, 64), "hidden widths of the feature generator; its last layer has up to 5 · width · features weights",
        source="ours, for 25 times fewer bytes; release 256, 2048", min_length=1,
    )  # fmt: skip
    encoder_widths: tuple[int, int] = setting(
        (32, 128), "hidden width of encoder and auxiliary classifier, and width of the embedding", source="release"
    )
    generator_dropout: float = setting(
        0.5, "dropout in encoder, classifier and generator", source="release", ge=0, lt=1
    )
    lambda_d: float = setting(1.0, "weight of the loss of the predicted counts (λ_d)", source="release", ge=0)
    lambda_f: float = setting(
        0.01, "weight of the loss of the generated features (λ_f)",
        source="validation on Cora and CiteSeer; paper and release 1", ge=0,
    )  # fmt: skip
    lambda_c: float = setting(1.0, "weight of the auxiliary classifier's loss (λ_c)", source="release", ge=0)
    feature_error: Literal["sum", "mean"] = setting(
        "sum", "L_f adds up squared differences over generated neighbours and features, or divides by 5 · features",
        source="Zhang et al., eq. 5; release mean",
    )  # fmt: skip
    alpha: float = setting(
        1.0,
        "weight of the other clients' features beside one's own (α)",
        source="release",
        ge=0,
        when={"neighgen": ("own",)},
    )
    count_bias: float = setting(
        1.0,
        "where the bias of the predicted count starts; 0 may leave the generator dead from the start",
        source="ours",
        ge=-100,
    )
    loss_counts: Literal["round", "truncate", "stochastic"] = setting(
        "stochastic", "how a predicted count becomes a number of neighbours in the losses",
        source="as in mending; release truncate",
    )  # fmt: skip
    mend_counts: Literal["round", "truncate", "stochastic"] = setting(
        "stochastic", "how a predicted count becomes a number of neighbours in the mended graph; stochastic: the whole "
        "part, and one more with the probability of the rest", source="validation on Cora; release round",
    )  # fmt: skip
    mend_graph: Literal["impaired", "whole"] = setting(
        "impaired", "what the generator looks at when it mends: the graph without the hidden nodes, which get no "
        "neighbours then, or all of the client's graph", source="release",
    )  # fmt: skip
    cross_targets: Literal["neighbours", "all"] = setting(
        "all", "what a client compares another's generated features with: the nearest of all its nodes, or of five "
        "neighbours of a random node, drawn for each generated row",
        source="Zhang et al., Algorithm 1, line 25; release neighbours", when={"neighgen": ("own",)},
    )  # fmt: skip
    helpers: int = setting(
        3, "how many other clients, drawn anew in every epoch, compare a client's generator; their sum is scaled up to "
        "all of them. 0: all of them do", source="ours, for fewer bytes; Zhang et al. 0", ge=0,
        when={"neighgen": ("own",)},
    )  # fmt: skip

    @property
    def strength(self) -> Strength:
        """The three λ."""
        return Strength(self.lambda_d, self.lambda_f, self.lambda_c)

    def compared_by(self, clients: int) -> int:
        """How many of so many clients compare one's generator in an epoch."""
        return min(self.helpers or clients, clients - 1)


MOST_RELAYS = 10_000_000
"""Most comparisons of a set-up: at a millisecond each they take three hours."""
MOST_BYTES = 20 * 10**12
"""Most bytes of a set-up's exchange of weights: some five hours of encoding, comparing and adding up."""

_WEIGHTS = {"neighgen": "own", "exchange": "weights"}
_OUTPUTS = {"neighgen": "own", "exchange": "outputs"}


class PretrainRequest(Message):
    """Hide some nodes, and train a generator alone."""


class PretrainReply(Message):
    """How it went, in numbers that add up.

    Attributes:
        nodes: Nodes that were not hidden.
        missing: Hidden neighbours of these.
        predicted: What the generator predicts in their place.
    """

    nodes: float = sends("counts")
    missing: float = sends("counts")
    predicted: float = sends("counts")


class OfferRequest(Message):
    """Show the feature generator."""


class Generator(Message):
    """A client's feature generator, with the nodes that it is compared on; goes on to all other clients.

    Attributes:
        weights: fGen, with the slots that some of these nodes have.
        embeddings: [rows, p] of training nodes with a hidden and a predicted neighbour.
        counts: [rows] int64 neighbours predicted for them, 1 to 5, descending.
    """

    weights: Tensors = sends("generator", relayed=True, only_with=_WEIGHTS)
    embeddings: Tensor = sends("embedding", shape=("rows", "width"), relayed=True, only_with=_WEIGHTS)
    counts: Tensor = sends("counts", dtype=torch.int64, shape=("rows",), relayed=True, only_with=_WEIGHTS)


class Comparison(Message):
    """Gradient by the generator's weights of the squared distances to the nearest of own nodes' features."""

    gradient: Tensors = sends("gradient", like="weights", only_with=_WEIGHTS)


class Generated(Message):
    """Features that a client's generator made for its nodes; goes on to all other clients.

    Attributes:
        features: [generated, d], slot by slot.
        counts: [rows] int64 how many each node has, descending.
    """

    features: Tensor = sends(
        "synthetic", shape=("generated", "features"), relayed=True, per_class=False, only_with=_OUTPUTS
    )
    counts: Tensor = sends("counts", dtype=torch.int64, shape=("rows",), relayed=True, only_with=_OUTPUTS)


class OutputComparison(Message):
    """Gradient of the same distances by the generated features."""

    gradient: Tensor = sends(
        "gradient", shape=("generated", "features"), like="features", only_with=_OUTPUTS, recoverable=True
    )


class ImproveRequest(Message):
    """The sum of the other clients' gradients; without one, the own losses alone.

    Attributes:
        clients: How many take part (K).
        weights: By the generator's weights.
        outputs: By the generated features.
    """

    clients: int = sends("control")
    weights: Tensors | None = sends("gradient", default=None)
    outputs: Tensor | None = sends("gradient", default=None)


class Done(Message):
    """A step was made."""


class SharedRequest(Message):
    """The generator of all clients."""

    weights: Tensors = sends("generator")


class SharedReply(Message):
    """Gradient of the local losses by all weights.

    Attributes:
        gradient: By name.
        clients: 1, or 0 from a client without a training node.
    """

    gradient: Tensors = sends("gradient", like="weights", weighted_by="clients", only_with={"neighgen": "shared"})
    clients: float = sends("counts")


class MendRequest(Message):
    """Add generated neighbours to the graph.

    Attributes:
        weights: The shared generator; None uses the client's own.
    """

    weights: Tensors | None = sends("generator", default=None)


class MendReply(Message):
    """How many neighbours were added.

    Attributes:
        nodes: Nodes that could get some.
        generated: Neighbours they got.
    """

    nodes: float = sends("counts")
    generated: float = sends("counts")


class Client(fedsage.Client[FedSagePlusConfig]):
    """Generates missing neighbours, helps others to, and trains the classifier on its mended graph.

    Attributes:
        neighgen: The generator, until the graph is mended; None where there is nothing to learn from.
        mended: What was generated.
    """

    def __init__(self, context: ClientContext[FedSagePlusConfig]):
        super().__init__(context)
        self.neighgen: NeighGen | None = None
        self.mended: Mended | None = None
        self._tensors: dict[int, MendedTensors] = {}
        self._adjacency: sp.csr_matrix | None = None
        self._nodes: AllNodes | None = None

    # -- the generator -----------------------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The training graph."""
        graph = self.silo.graph
        assert isinstance(graph, Graph)
        return graph

    def hidden_nodes(self) -> NDArray[np.int64]:
        """Which nodes are hidden: always the same ones, drawn from the run's seed."""
        seen, train = self.silo.seen, self.silo.train
        draw = generator(self.context.seed, "client", self.id, "hidden")
        share = self.config.hidden_share
        others = np.zeros(0, dtype=np.int64)
        if self._same_nodes(seen.graph):
            others = np.setdiff1d(np.arange(self.graph.num_nodes), np.concatenate([train, seen.items["test"]]))
        if len(others):
            return impaired_graph.hide(others, share, draw)
        return impaired_graph.hide(train, min(share, 0.5), draw, keep=1)

    def make_neighgen(self) -> NeighGen | None:
        """A fresh generator; None for a client that has no labelled training node."""
        train = self.silo.train[self.silo.labels[self.silo.train] >= 0]
        if not len(train):
            return None
        impaired = impaired_graph.impair(self.graph, self.hidden_nodes(), train, self.silo.labels)
        return NeighGen(
            impaired,
            self.graph.features,
            sizes_of(self.config, self.graph.num_features, self.silo.schema.num_classes),
            lambda purpose: generator(self.context.seed, "client", self.id, "neighgen", purpose),
            count_bias=self.config.count_bias,
            lr=self.config.generator_lr,
            weight_decay=self.config.generator_weight_decay,
            feature_error=self.config.feature_error,
        )

    @handler
    def pretrain(self, request: PretrainRequest) -> PretrainReply:
        """Phase A: all parts, on the own graph; then everything but fGen is frozen."""
        own = self.neighgen = self.make_neighgen()
        if own is None:
            return PretrainReply(nodes=0.0, missing=0.0, predicted=0.0)
        own.begin(lambda name: True)
        for epoch in range(self.config.local_generator_epochs):
            own.epoch(self.generator("epoch", epoch), self.config.strength, self.config.loss_counts)
        own.freeze(self.config.loss_counts, self.generator("counts"))
        return PretrainReply(
            nodes=float(own.impaired.num_nodes),
            missing=float(own.impaired.counts.sum()),
            predicted=float(own.predicted.sum()),
        )

    @handler
    def offer(self, request: OfferRequest) -> Generator:
        """Phase B, step 1: fGen's weights, and embeddings and counts of the nodes that are compared."""
        own = self.neighgen
        if own is None:
            return Generator(weights={}, embeddings=torch.zeros(0, 0), counts=torch.zeros(0, dtype=torch.int64))
        rows, weights = own.offered()
        return Generator(
            weights=weights if len(rows) else {},
            embeddings=own.embeddings[torch.from_numpy(rows.nodes)],
            counts=torch.from_numpy(rows.counts),
        )

    @handler
    def compare(self, request: Generator) -> Comparison:
        """Phase B, step 2: the gradient of another client's generator on own features."""
        targets = self._targets(len(request.counts))
        if targets is None:
            return Comparison(gradient={name: torch.zeros_like(weight) for name, weight in request.weights.items()})
        gradient = neighgen.cross_gradient(
            request.weights,
            request.embeddings,
            request.counts.numpy(),
            targets,
            self.config.generator_dropout,
            self.generator("compare"),
        )
        return Comparison(gradient=gradient)

    @handler
    def improve(self, request: ImproveRequest) -> Done:
        """Phase B, step 4: one step of fGen on (1/K) [L + λ_f α Σ_{j≠i} L_f^{i←j}]."""
        own, config = self.neighgen, self.config
        if own is None:
            return Done()
        # The k-th improvement draws as the k-th offer of outputs did: both mean the same generated features.
        loss, leaves, generated = own.frozen_loss(self.generator("generate"), config.strength)
        scale = config.lambda_f * config.alpha * own.feature_scale
        if request.outputs is not None:
            made = torch.cat(neighgen.compared_features(generated, own.compared(own.rows)))
            loss = loss + scale * (made * request.outputs).sum()
        gradients = neighgen.gradients_of(loss, leaves)
        for name, gradient in (request.weights or {}).items():
            gradients[name] = gradients[name].add_(gradient, alpha=scale) if name in gradients else scale * gradient
        for gradient in gradients.values():
            gradient.mul_(1.0 / request.clients)
        own.step(gradients)
        return Done()

    @handler
    def offer_outputs(self, request: OfferRequest) -> Generated:
        """Phase B, step 1 of the exchange of outputs: features generated for the nodes that are compared."""
        own = self.neighgen
        if own is None:
            return Generated(features=torch.zeros(0, 0), counts=torch.zeros(0, dtype=torch.int64))
        with torch.no_grad():
            *_, generated = own.frozen_loss(self.generator("generate"), Strength(0.0, 0.0, 0.0))
        parts = neighgen.compared_features(generated, own.compared(own.rows))
        return Generated(
            features=torch.cat([torch.zeros(0, own.sizes.features), *parts]),
            counts=torch.from_numpy(own.offered()[0].counts),
        )

    @handler
    def compare_outputs(self, request: Generated) -> OutputComparison:
        """Phase B, step 2 of the exchange of outputs: the gradient by another client's generated features."""
        counts = request.counts.numpy()
        targets = self._targets(len(counts))
        if targets is None:
            return OutputComparison(gradient=torch.zeros_like(request.features))
        rows = Rows(np.arange(len(counts)), counts)
        return OutputComparison(gradient=2.0 * (request.features - targets.nearest(request.features, rows.anchors())))

    @handler
    def shared_gradient(self, request: SharedRequest) -> SharedReply:
        """The gradient of the local losses by the shared generator."""
        if self.neighgen is None:
            self.neighgen = self.make_neighgen()
        own = self.neighgen
        gradients: dict[str, Tensor] = {}
        if own is not None:
            leaves = own.borrow(request.weights)
            loss = own.joint_loss(
                leaves, self.generator("epoch"), self.config.strength, self.config.loss_counts, lambda slots: leaves
            )
            gradients = neighgen.gradients_of(loss, leaves)
            own.give_back()
        return SharedReply(
            gradient={
                name: gradients[name] if name in gradients else torch.zeros_like(weight)
                for name, weight in request.weights.items()
            },
            clients=0.0 if own is None else 1.0,
        )

    def _targets(self, rows: int) -> Targets | AllNodes | None:
        if self.config.cross_targets == "all":
            if self._nodes is None:
                self._nodes = AllNodes(self.graph.features)
            return self._nodes
        if self._adjacency is None:
            self._adjacency = impaired_graph.undirected(self.graph)
        return neighgen.cross_targets(self._adjacency, self.graph.features, rows, self.generator("targets"))

    # -- mending -----------------------------------------------------------------------------------------------------

    @handler
    def mend(self, request: MendRequest) -> MendReply:
        """Phase C: add the generated neighbours, once, and forget the generator."""
        own, self.neighgen = self.neighgen, None
        if own is None and request.weights is not None:
            own = self.make_neighgen()  # it was trained for no epoch, or without this client
        if own is None:
            return MendReply(nodes=0.0, generated=0.0)
        if request.weights is not None:
            own.borrow(request.weights)
        nodes, sight = own.impaired.kept, None
        if self.config.mend_graph == "whole":
            nodes = np.arange(self.graph.num_nodes)
            sight = Sight.of(impaired_graph.undirected(self.graph), self.graph.features)
        with torch.no_grad():
            embeddings = own.encode(sight=sight)
            counts = own.predict_counts(embeddings)
        made = neighgen.whole(counts, self.config.mend_counts, self.generator("counts"))
        rows = Rows.of(made, np.arange(len(nodes)))
        own.reach(int(rows.counts.max(initial=0)))
        features = neighgen.fill(own.weights, embeddings, rows, own.sizes, self.generator("noise"))
        predicted = torch.zeros(self.graph.num_nodes)
        predicted[torch.from_numpy(nodes)] = counts
        self.install_mended(Mended(torch.from_numpy(nodes[rows.anchors()]), features, predicted))
        return MendReply(nodes=float(len(nodes)), generated=float(len(features)))

    def install_mended(self, mended: Mended | None) -> None:
        """Train and predict on the graph with these generated nodes from now on."""
        self.mended = mended
        self._tensors = {}
        self.trainer.objective = self.objective_on(self.mended_tensors(self.data))

    @property
    def is_at_rest(self) -> bool:
        return self.neighgen is None  # the generator is in no state: it lives between two steps of set-up

    def release(self) -> None:
        for tensors in self._tensors.values():
            tensors.clear()

    def _same_nodes(self, graph: object) -> bool:
        own = self.silo.graph
        if graph is own:
            return True
        return (
            graph is self.silo.seen.graph
            and isinstance(graph, Graph)
            and isinstance(own, Graph)
            and np.array_equal(graph.global_ids, own.global_ids)
        )

    def mended_tensors(self, data: GraphTensors) -> GraphTensors:
        """The client's own graph with its generated neighbours; any other graph as it is."""
        if self.mended is None or not len(self.mended) or not self._same_nodes(data.graph):
            return data
        key = id(data.graph)
        if key not in self._tensors:
            graph = self.mended.graph(data.graph)
            self._tensors[key] = MendedTensors(graph, data.num_nodes, device=self.context.device)
        return self._tensors[key]

    # -- the classifier ----------------------------------------------------------------------------------------------

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        return super().predict(self.mended_tensors(data), view)[: data.num_nodes]

    def embed(self, data: GraphTensors) -> Tensor | None:
        embedded = super().embed(self.mended_tensors(data))
        return None if embedded is None else embedded[: data.num_nodes]

    def state(self) -> dict[str, Any]:
        return {**super().state(), "mended": self._mended_state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._load_mended(state["mended"])

    def final_models(self) -> dict[str, Tensors]:
        mended = self._mended_state()
        return {**super().final_models(), **({} if mended is None else {"mended": mended})}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        super().load_final(models)
        self._load_mended(models.get("mended"))

    def _mended_state(self) -> dict[str, Tensor] | None:
        return None if self.mended is None else self.mended.state()

    def _load_mended(self, state: Mapping[str, Tensor] | None) -> None:
        if state is None:
            if self.mended is not None:
                self.install_mended(None)
            return
        same = self.mended is not None and all(torch.equal(self.mended.state()[key], state[key]) for key in state)
        if not same:
            self.install_mended(Mended(**state))

    def study(self) -> Mapping[str, Any]:
        """What was generated against what is missing: see ``mended_graph.study``."""
        if self.mended is None:
            return {}
        whole = next((each.graph for each in self.silo.evaluations if each.name == "global"), None)
        return mended_graph.study(self.graph, self.mended, whole if isinstance(whole, Graph) else None)


class Server(fedavg.Server[FedSagePlusConfig]):
    """Carries generators and summed gradients between clients, then averages classifiers."""

    client = Client

    def expected_bytes(self) -> tuple[int, int]:
        """Of the weights of classifier and generator; the generator's with all of its slots."""
        config, clients = self.config, len(self.context.clients)
        each = 4 * neighgen.count_fgen(self.sizes, MAX_SLOTS)
        sent = received = 0
        if config.neighgen == "shared":
            each += 4 * neighgen.count_others(self.sizes)
            sent = clients * (config.local_generator_epochs + config.generator_epochs) * each
            received = sent + clients * each
        elif config.exchange == "weights" and config.lambda_f * config.alpha:
            sent = received = clients * config.generator_epochs * (1 + config.compared_by(clients)) * each
        rounds = super().expected_bytes()
        return sent + rounds[0], received + rounds[1]

    def set_up(self, federation: Federation) -> None:
        if self.config.neighgen == "shared":
            weights = self._train_shared(federation)
            total = federation.sum(Client.mend, MendRequest(weights=weights)).require(self.config.min_clients)
            if total.nodes:
                self.log["generated_neighbours"] = total.generated / total.nodes
            return
        check_volume(self.config, len(federation.clients), self.schema.num_features)
        everyone = federation.sum(Client.pretrain, PretrainRequest())
        reply = everyone.require(self.config.min_clients)
        if reply.nodes:
            self.log["true_hidden_neighbours"] = reply.missing / reply.nodes
            self.log["predicted_hidden_neighbours"] = reply.predicted / reply.nodes
        # A client's generator depends on no other's: one client after the other needs the least memory.
        nodes = generated = 0.0
        left = set(everyone.clients)  # whoever fails from now on is not asked to compare any more
        for client in everyone.clients:
            for epoch in range(self.config.generator_epochs):
                gradients = self._exchange(federation, client, left, epoch)
                if gradients is None:
                    break
                request = ImproveRequest(clients=len(everyone.clients), **gradients)
                if self._one(federation, Client.improve, request, client, left) is None:
                    break
            mended = self._one(federation, Client.mend, MendRequest(), client, left)
            if mended is not None:
                nodes, generated = nodes + mended.nodes, generated + mended.generated
        if nodes:
            self.log["generated_neighbours"] = generated / nodes

    def _one(
        self,
        federation: Federation,
        handler: Handler[Request, Reply],
        request: Request,
        client: ClientId,
        left: set[ClientId],
        check: Callable[[ClientId, Reply], None] | None = None,
    ) -> Reply | None:
        """One client's answer; None from one that failed, where fewer answers are allowed: it leaves ``left``."""
        replies = federation.ask(handler, request, to=(client,), check=check)
        left.difference_update(replies.failures)
        return replies.require(None if self.config.min_clients is None else 0).answers.get(client)

    def _exchange(
        self, federation: Federation, client: ClientId, left: set[ClientId], epoch: int
    ) -> dict[str, Any] | None:
        """The sum of the gradients of all that are ``left`` for one client's generator.

        Empty where there is nothing to compare; None where the client failed: it is not asked to go on, because its
        draws would no longer be those of what it offers.
        """
        alone = left <= {client} and self.config.min_clients in (None, 1)
        if alone or self.config.lambda_f * self.config.alpha == 0:
            return {}
        others = left - {client}
        asked = self._helpers(client, epoch, sorted(others))
        scale = len(others) / max(len(asked), 1)
        if self.config.exchange == "outputs":
            made = self._one(federation, Client.offer_outputs, OfferRequest(), client, left, self._check_made)
            if made is None or not len(made.counts):
                return None if made is None else {}
            outputs = self._others(federation, Client.compare_outputs, made, asked, left)
            return {} if outputs is None else {"outputs": outputs.gradient.mul_(scale).float()}
        offer = self._one(federation, Client.offer, OfferRequest(), client, left, self._check_offer)
        if offer is None or not len(offer.counts):
            return None if offer is None else {}
        total = self._others(federation, Client.compare, offer, asked, left)
        if total is None:
            return {}
        return {"weights": {name: part.mul_(scale).float() for name, part in total.gradient.items()}}

    def _helpers(self, client: ClientId, epoch: int, others: Sequence[ClientId]) -> tuple[ClientId, ...]:
        """Who compares in this epoch."""
        count = self.config.compared_by(len(others) + 1)
        if count == len(others):
            return tuple(others)
        order = torch.randperm(len(others), generator=self.generator("helpers", client, epoch))[:count]
        return tuple(sorted(others[place] for place in order.tolist()))

    def _check_offer(self, client: ClientId, offer: Generator) -> None:
        """Refuse a generator that the other clients could not run: they, not its sender, would fail.

        Raises:
            MessageError: It is none.
        """
        if not len(offer.counts):
            return
        _check_counts(client, offer.counts)
        found, wanted = shapes_of(offer.weights), neighgen.fgen_shapes(self.sizes, int(offer.counts.max()))
        width = self.sizes.encoder[1]
        if found != wanted or offer.embeddings.shape[1] != width:
            raise MessageError(
                f"client {client} offers {differing(found, wanted)} and embeddings of {offer.embeddings.shape[1]} "
                f"entries as its generator; {differing(wanted, found)} and {width} were expected. All "
                f"clients must run the same settings."
            )

    def _check_made(self, client: ClientId, made: Generated) -> None:
        """Refuse generated features that cannot be compared.

        Raises:
            MessageError: They cannot.
        """
        if not len(made.counts):
            return
        _check_counts(client, made.counts)
        wanted = (int(made.counts.sum()), self.schema.num_features)
        if tuple(made.features.shape) != wanted:
            raise MessageError(
                f"client {client} must offer features of shape {wanted}; {tuple(made.features.shape)} came."
            )

    def _others(
        self,
        federation: Federation,
        handler: Handler[Request, Reply],
        request: Request,
        asked: tuple[ClientId, ...],
        left: set[ClientId],
    ) -> Reply | None:
        """The sum over those that are asked; None where none of them answered and none has to."""
        total = federation.sum(handler, request, to=asked)
        left.difference_update(total.failures)
        minimum = self.config.min_clients
        if minimum == 1 and not total.clients:
            return None
        # Who is helped is there, too, and counts as one of those that have to be.
        return total.require(None if minimum is None else min(minimum - 1, len(asked)))

    @property
    def sizes(self) -> Sizes:
        """Widths of the generators."""
        return sizes_of(self.config, self.schema.num_features, self.schema.num_classes)

    def _train_shared(self, federation: Federation) -> dict[str, Tensor]:
        """One generator for all: Adam on the mean gradient of the local losses."""
        config, sizes = self.config, self.sizes
        weights = neighgen.initial_weights(sizes, self.generator("neighgen", "weights"), config.count_bias)
        for slot in range(MAX_SLOTS):
            drawn = neighgen.slot_weights(sizes, self.generator("neighgen", f"slot {slot}"))
            weights.update(zip(neighgen.slot_names(slot), drawn, strict=True))
        optimizer = Adam(list(weights.values()), lr=config.generator_lr, weight_decay=config.generator_weight_decay)
        for _ in range(config.local_generator_epochs + config.generator_epochs):
            total = federation.sum(Client.shared_gradient, SharedRequest(weights=weights)).require(config.min_clients)
            if total.clients:
                optimizer.step([total.gradient[name].div_(total.clients).float() for name in weights])
        return weights


def _check_counts(client: ClientId, counts: Tensor) -> None:
    if int(counts.min()) < 1 or int(counts.max()) > MAX_SLOTS or bool((counts.diff() > 0).any()):
        raise MessageError(
            f"client {client} must say 1 to {MAX_SLOTS} neighbours per node, descending; {counts[:5].tolist()} came."
        )


def check_volume(config: FedSagePlusConfig, clients: int, features: int) -> None:
    """Refuse an exchange of everybody with everybody that would not end: it grows with the square of the clients.

    Raises:
        UnsupportedError: There are too many comparisons, or they carry too much; the text names both.
    """
    if config.lambda_f * config.alpha == 0:
        return  # nobody is asked to compare
    relays = clients * config.compared_by(clients) * config.generator_epochs
    weights = neighgen.count_fgen(sizes_of(config, features, 0), 1)
    volume = 8 * weights * relays if config.exchange == "weights" else 0  # one slot at least, there and back
    if relays <= MOST_RELAYS and volume <= MOST_BYTES:
        return
    carried = f" that carry at least {volume / 1e12:.0f} TB" if volume else ""
    raise UnsupportedError(
        f"FedSage+ has every client's generator compared by {config.compared_by(clients)} others in each epoch: with "
        f"{clients} clients and {config.generator_epochs} epochs these are {relays:.2g} comparisons{carried}. Set "
        f"method.helpers=3 (that many others, drawn anew in every epoch), method.neighgen=shared (one generator for "
        f"all, the paper's appendix D), method.alpha=0 (no comparisons), or lower method.generator_epochs."
    )


def sizes_of(config: FedSagePlusConfig, features: int, classes: int) -> Sizes:
    """Widths of the generator."""
    return Sizes(features, classes, config.encoder_widths, config.generator_hidden, config.generator_dropout)


METHOD = Method(
    name="fedsage_plus",
    family="missing neighbours",
    aliases=("fedsage+",),
    quick={
        "local_generator_epochs": 2,
        "generator_epochs": 2,
        "generator_hidden": (16, 32),
        "encoder_widths": (8, 16),
    },
    title="FedSage+",
    citation='Zhang et al. "Subgraph Federated Learning with Missing Neighbor Generation". NeurIPS 2021.',
    summary="FedSage on graphs mended with neighbours from generators that clients train with each other's gradients.",
    config=FedSagePlusConfig,
    client=Client,
    server=Server,
    tasks=("node",),
    model={"name": "sage", "hidden": 64},
)
