"""FedPG — federated prototype graph learning.

Wu, Li, Zhu, Li, Wang, Zhou. "Federated Prototype Graph Learning". arXiv 2024/2025.

Only class prototypes travel, one per class and hop, so that clients may run different networks: they share nothing but
the width of their embeddings. The server learns universal prototypes with a contrastive loss and mixes in, for each
client, the prototypes of similar clients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from graphsilo.errors import ConfigError, MessageError
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import Failure, Federation, Replies, handler
from graphsilo.federation.message import Empty, Message, sends
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.federation.settings import ABOVE_ZERO, LocalTrainingConfig, setting
from graphsilo.federation.training_client import TrainingClient
from graphsilo.methods.fedpg.generator import (
    PrototypeGenerator,
    class_centres,
    contrastive_loss,
    make_queries,
    orthogonal_code,
    personalise,
    unit_rows,
)
from graphsilo.methods.fedpg.prototypes import (
    Membership,
    Pairs,
    Scorer,
    add_noise,
    alignment,
    annotate,
    centre,
    hop_pairs,
    similar_pairs,
)
from graphsilo.models.base import Model
from graphsilo.models.view import View
from graphsilo.random import Name, generator, numpy_generator
from graphsilo.training.objective import Classified
from graphsilo.training.optimizer import Optimizer, optimizer
from graphsilo.training.upstream import gradients_through
from graphsilo.types import ClientId

DEEPEST = 3
"""Most hops that are taken from the depth of the models alone."""


class FedPGConfig(LocalTrainingConfig):
    """Settings of FedPG."""

    mu: float = setting(
        0.3, "weight μ of the pull towards received prototypes", source="validation; paper 0.5, with norm_sum", ge=0
    )
    reduction: Literal["norm_sum", "squared_mean"] = setting(
        "squared_mean", "distance to received prototypes: mean of squares, or sum of norms over classes and hops",
        source="validation; paper: norm_sum", when={"mu": ABOVE_ZERO},
    )  # fmt: skip
    alpha: float = setting(
        0.5, "share α of the universal prototype in what a client receives", source="ours; paper: a moderate one",
        ge=0, le=1,
    )  # fmt: skip
    similarity: float = setting(
        0.9, "λ: smallest cosine of two clients' prototypes that makes them mix; above 1 none does",
        source="ours; paper: a large one",
    )  # fmt: skip
    hops: int | None = setting(
        None,
        f"largest hop L; none: the smallest depth among the clients' models, {DEEPEST} at most",
        source="paper",
        ge=0,
    )
    neighbourhood: Literal["exact", "within"] = setting(
        "exact", "neighbours at hop h: nodes at distance h, or at 1 to h", when={"task": ("node",)}
    )
    neighbour_weights: Literal["mean", "scorer"] = setting(
        "mean", "weights of an item's neighbours: equal, or a trained softmax", source="paper: scorer"
    )
    max_neighbours: int = setting(
        32, "most neighbours of an item, drawn once, from hop 2 on (graphs: at every hop); 0 for all", ge=0
    )
    annotation: Literal["predicted", "labelled"] = setting(
        "predicted", "items behind prototypes: also unlabelled ones with their predicted class, or labelled ones alone",
        source="paper: predicted",
    )  # fmt: skip
    confidence: float = setting(
        0.8, "smallest probability of a predicted class that counts", source="validation; paper: none, that is 0",
        ge=0, le=1, when={"annotation": ("predicted",)},
    )  # fmt: skip
    centred: bool = setting(
        True, "take prototypes relative to the mean over the client's classes, at each hop",
        source="validation; paper: no",
    )  # fmt: skip
    initial: Literal["common", "own"] = setting(
        "common", "initial weights: the same for clients with equal models, or each client's own"
    )
    generator: Literal["trained", "code"] = setting(
        "trained", "universal prototypes: from the trained generator, or a fixed random orthogonal code (ablation)",
        source="paper: trained",
    )  # fmt: skip
    norm: Annotated[float, Field(gt=0)] | Literal["free", "first"] = setting(
        "free", "length of universal prototypes: as generated, the mean length of the first uploads, or a number",
        source="paper: free",
    )  # fmt: skip
    restart: bool = setting(False, "start the generator anew in each round", when={"generator": ("trained",)})
    server_epochs: int = setting(
        30, "steps E_s of the generator in a round", source="validation", ge=1, when={"generator": ("trained",)}
    )
    server_lr: float = setting(
        0.01, "learning rate of the generator", source="ours", gt=0, when={"generator": ("trained",)}
    )
    server_optimizer: Literal["adam", "sgd"] = setting(
        "adam", "optimiser of the generator", when={"generator": ("trained",)}
    )
    temperature: float = setting(
        1.0,
        "divisor of the generator's cosines",
        source="paper: none, that is 1",
        ge=0.05,
        when={"generator": ("trained",)},
    )
    hop_share: float = setting(
        0.5, "Δs: prototypes of other hops in the query sets, relative to those of the hop itself",
        source="paper searches 0 to 1", ge=0, le=1, when={"generator": ("trained",)},
    )  # fmt: skip
    margin: float = setting(
        0.5,
        "ε: largest margin of the generator's loss; 0 for none",
        source="paper",
        ge=0,
        when={"generator": ("trained",)},
    )
    margin_sign: Literal["minus", "paper"] = setting(
        "minus",
        "the margin makes positives harder, or is added as printed",
        source="paper's intent",
        when={"margin": ABOVE_ZERO},
    )
    discrepancy: Literal["one_minus_cosine", "cosine"] = setting(
        "one_minus_cosine",
        "how far apart two class centres are; cosine as printed",
        source="paper's intent",
        when={"margin": ABOVE_ZERO},
    )
    noise: float = setting(
        0.0, "share of a prototype's dimensions that get noise before upload", source="paper 0.1, 0.2", ge=0, le=1
    )
    noise_scale: float = setting(
        1.0,
        "standard deviation of that noise, in root mean squares of the prototypes",
        ge=0,
        when={"noise": ABOVE_ZERO},
    )
    graph_similarity: float = setting(
        0.9,
        "graph classification: smallest cosine τ₁ of neighbouring graphs at hop 1",
        ge=-1,
        le=1,
        when={"task": ("graph",)},
    )
    graph_decay: float = setting(
        0.9, "graph classification: τ_h = τ₁ · decay^(h-1)", gt=0, le=1, when={"task": ("graph",)}
    )


class HelloReply(Message):
    """What clients must agree on, or settle together.

    Attributes:
        width: p of the client's model.
        depth: Its layers or propagation steps.
    """

    width: int = sends("control")
    depth: int = sends("control")


class TrainRequest(Message):
    """This client's prototypes, from round 2 on.

    Attributes:
        hops: L.
        prototypes: Ṗ, 0 where absent.
        present: Which of them there are: some of those that the client uploaded last.
    """

    hops: int = sends("control")
    prototypes: Tensor | None = sends("prototype", shape=("classes", "levels", "width"), default=None)
    present: Tensor | None = sends("control", dtype=torch.bool, shape=("classes", "levels"), default=None)


class TrainReply(Message):
    """The client's prototypes after local training; a row of 0 means that it has none there.

    Attributes:
        prototypes: P_k.
        counts: Items behind each class.
    """

    prototypes: Tensor = sends("prototype", shape=("classes", "levels", "width"), per_class=True)
    counts: Tensor = sends("counts", dtype=torch.int32, shape=("classes",), per_class=True)


class Client(TrainingClient[FedPGConfig]):
    """Trains its own model on its labels and towards the prototypes it received."""

    def __init__(self, context: ClientContext[FedPGConfig]):
        super().__init__(context)
        if not self.model.encoder_names():
            raise ConfigError(
                f"client {self.id}: FedPG exchanges means of a hidden layer's embeddings, and {context.model.name} as "
                f"it is set has no hidden layer: means of the features themselves would leave the client. Set "
                f"model.layers to 2, or use the pool 'fedpg'."
            )
        # What the last upload was made of: the pull compares the same items, neighbours and classes.
        self._membership: Membership | None = None
        self._neighbours: dict[int, list[Pairs]] = {}
        self.scorer: Scorer | None = None
        self.scorer_optimizer: Optimizer | None = None
        if self.config.neighbour_weights == "scorer":
            self.scorer = Scorer(self.model.embedding_dim)
            self.scorer.reset(generator(context.seed, "client", self.id, "scorer"))
            self.scorer.to(self.data.device)
            self.scorer_optimizer = optimizer("adam", list(self.scorer.parameters()), lr=self.config.lr)

    def build_model(self, *, seed_names: tuple[Name, ...] = ("model",)) -> Model:
        own: tuple[Name, ...] = ("client", self.id) if self.config.initial == "own" else ()
        return super().build_model(seed_names=(*seed_names, *own))

    @handler
    def hello(self, request: Empty) -> HelloReply:
        """Say how wide embeddings are, and how deep the model."""
        return HelloReply(width=self.model.embedding_dim, depth=depth_of(self.model))

    @handler
    def train(self, request: TrainRequest) -> TrainReply:
        """Local epochs, then the prototypes."""
        if self.config.reset_optimizer:
            self.trainer.optimizer.reset()
        if request.prototypes is None or request.present is None or self._membership is None or self.config.mu == 0.0:
            self.run_epochs()
        else:
            self._train_towards(request.prototypes.to(self.data.device), request.present.to(self.data.device))
        return self._upload(request.hops)

    # -- local training ------------------------------------------------------------------------------------------

    def _train_towards(self, targets: Tensor, present: Tensor) -> None:
        """As ``run_epochs``, with the gradient of μ Σ ‖P − Ṗ‖ added in each step."""
        trainer, size = self.trainer, self.batch_size
        if trainer.objective.num_samples == 0:
            return
        whole = size <= 0 or size >= trainer.objective.num_samples
        draw = self.generator("train")
        membership, view = self._pulled()
        for _ in range(self.config.local_epochs):
            for batch in trainer.objective.batches(size, draw):
                gradients = trainer.objective.gradients(self.model, batch, draw, trainer.parameters)
                if not whole:
                    # Embedding every item for each small step would cost many times it: the batch stands for all.
                    view = cast("Classified", batch)[0]
                    assert self._membership is not None
                    assert view.items is not None
                    membership = self._membership.restricted(view.items)
                self._pull(gradients, membership, view, targets, present)
                trainer.optimizer.step(gradients)

    def _pulled(self) -> tuple[Membership, View]:
        """What is pulled in a full batch, and its view: all items, or labelled ones where no other counts."""
        assert self._membership is not None
        if self.config.annotation == "labelled":
            items = np.sort(self.silo.train)
            return self._membership.restricted(items), self.data.kept_view(items)
        return self._membership, self.data.full

    def _pull(
        self, gradients: list[Tensor], membership: Membership, view: View, targets: Tensor, present: Tensor
    ) -> None:
        """Add the gradient of the pull, through embeddings without dropout, as those of the upload are."""
        embeddings = self.model.embed(view)
        parameters = self.trainer.parameters
        weights = [] if self.scorer is None else list(self.scorer.parameters())
        reached = membership.prototypes(embeddings if weights else embeddings.detach(), self.scorer)
        _, slope = alignment(
            reached.detach(),
            targets,
            present & membership.mask,
            reduction=self.config.reduction,
            centred=self.config.centred,
        )
        slope = slope * self.config.mu
        if weights:
            found = gradients_through([reached], [slope], [*parameters, *weights])
        else:
            back = membership.mean_operator().tmm(slope.flatten(0, 1))
            found = gradients_through([embeddings], [back], parameters)
        for gradient, extra in zip(gradients, found, strict=False):
            gradient.add_(extra)
        if self.scorer_optimizer is not None:
            self.scorer_optimizer.step(found[len(parameters) :])

    # -- prototypes ----------------------------------------------------------------------------------------------

    def _upload(self, hops: int) -> TrainReply:
        config, classes = self.config, self.silo.schema.num_classes
        shape = (classes, hops + 1, self.model.embedding_dim)
        if self.trainer.objective.num_samples == 0:
            # A model that never saw a label predicts noise: it has no prototypes to share.
            self._membership = None
            return TrainReply(prototypes=torch.zeros(shape), counts=torch.zeros(classes, dtype=torch.int32))
        with torch.no_grad():
            logits, embeddings = self._outputs()
            self._membership = membership = self._annotate(logits, embeddings, hops)
            prototypes = membership.prototypes(embeddings, self.scorer)
            if config.centred:
                prototypes = centre(prototypes, membership.mask)
            if config.noise > 0:
                prototypes = add_noise(
                    prototypes, membership.mask, config.noise, config.noise_scale, self.generator("noise")
                )
        return TrainReply(prototypes=prototypes, counts=torch.from_numpy(membership.counts.astype(np.int32)))

    def _outputs(self) -> tuple[Tensor, Tensor]:
        """Logits and embeddings of all items, from one pass where the model allows it."""
        view = self.data.full
        traced = self.model.trace_embedding(view, None)
        if traced is not None and traced[1] is not None:
            return traced[0], traced[1]
        return self.model(view), self.model.embed(view)

    def _annotate(self, logits: Tensor, embeddings: Tensor, hops: int) -> Membership:
        """Which class every item counts for, and its neighbours of that class."""
        config, items = self.config, self.silo.train
        probabilities = torch.softmax(logits, dim=1)
        confidence = None if config.annotation == "labelled" else config.confidence
        labels = annotate(probabilities, items, self.silo.labels[items], confidence=confidence)
        if self.silo.schema.task == "graph":
            thresholds = [config.graph_similarity * config.graph_decay**level for level in range(hops)]
            seed = numpy_generator(self.context.seed, "client", self.id, "round", self.round, "neighbours")
            pairs = similar_pairs(embeddings.cpu().numpy(), labels, thresholds, most=config.max_neighbours, draw=seed)
        else:
            pairs = self._hop_pairs(hops)
        return Membership(labels, pairs, self.silo.schema.num_classes, self.data.device)

    def _hop_pairs(self, hops: int) -> list[Pairs]:
        """Neighbours at 1 to L hops in the training graph, found once."""
        if hops not in self._neighbours:
            self._neighbours[hops] = hop_pairs(
                self.data.matrix("sum"),
                hops,
                within=self.config.neighbourhood == "within",
                most=self.config.max_neighbours,
                draw=numpy_generator(self.context.seed, "client", self.id, "neighbours"),
            )
        return self._neighbours[hops]

    # -- state ---------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        state = super().state()
        if self._membership is not None:
            state["annotation"] = torch.from_numpy(self._membership.labels)
            # Neighbours of nodes follow from the graph; those of graphs came from embeddings that are gone.
            state["hops"] = self._membership.levels - 1
            if self.silo.schema.task == "graph":
                state["pairs"] = [torch.from_numpy(np.stack(pairs)) for pairs in self._membership.pairs]
        if self.scorer is not None and self.scorer_optimizer is not None:
            state["scorer"] = {name: value.detach() for name, value in self.scorer.state_dict().items()}
            state["scorer_optimizer"] = self.scorer_optimizer.state()
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._membership = None
        if "annotation" in state:
            if "pairs" in state:
                pairs = [(pair[0].numpy(), pair[1].numpy()) for pair in state["pairs"]]
            else:
                pairs = self._hop_pairs(int(state["hops"]))
            labels = state["annotation"].numpy()
            self._membership = Membership(labels, pairs, self.silo.schema.num_classes, self.data.device)
        if self.scorer is not None and self.scorer_optimizer is not None:
            self.scorer.load_state_dict(state["scorer"])
            self.scorer_optimizer.load_state(state["scorer_optimizer"])

    def study(self) -> Mapping[str, Any]:
        """How good predicted classes are, how far hops differ, how long embeddings are."""
        if self._membership is None:
            return {}
        with torch.no_grad():
            embeddings = self.model.embed(self.data.full)
            prototypes = self._membership.prototypes(embeddings, self.scorer)
        annotated = self._membership.labels
        guessed = np.ones(len(annotated), dtype=bool)
        guessed[self.silo.train] = False
        truth = self.silo.graph.labels
        guessed &= (annotated >= 0) & (truth >= 0)
        facts: dict[str, Any] = {
            "prototypes": prototypes,
            "annotated": int((annotated >= 0).sum()),
            "embedding_norm": float(embeddings.norm(dim=1).mean()),
        }
        if guessed.any():
            facts["predicted_classes_right"] = float((annotated == truth)[guessed].mean())
        both = self._membership.mask[:, 0] & self._membership.mask[:, -1]
        if bool(both.any()):
            unit = unit_rows(prototypes[both])
            facts["cosine_of_first_and_last_hop"] = float((unit[:, 0] * unit[:, -1]).sum(-1).mean())
        return facts


def depth_of(model: Model) -> int:
    """Layers of a model, or propagation steps where it has these."""
    hops = getattr(model, "hops", None)
    if isinstance(hops, int):
        return hops
    convolutions = getattr(model, "convolutions", None)
    return len(convolutions) if convolutions is not None else int(getattr(model, "depth", 1))


class Server(ServerBase[FedPGConfig]):
    """Keeps every client's latest prototypes, and the generator of universal ones."""

    def __init__(self, context: ServerContext[FedPGConfig]):
        super().__init__(context)
        self.place = {client: index for index, client in enumerate(context.clients)}
        self.hops, self.width = 0, 0
        self.prototypes = self.counts = torch.empty(0)
        self.targets: Tensor | None = None
        self.norm: float | None = None
        self.universal: PrototypeGenerator | None = None
        self.optimizer: Optimizer | None = None

    def set_up(self, federation: Federation) -> None:
        """Learn how wide and how deep the clients' models are."""
        replies = federation.ask(Client.hello, Empty(), check=_check_hello)
        widths = Counter(reply.width for _, reply in replies).most_common()
        if self.config.min_clients is not None and len(widths) > 1 and widths[0][1] > widths[1][1]:
            replies = _without_other_widths(federation, replies, widths[0][0])
        replies.require(self.config.min_clients)
        check_widths({client: reply.width for client, reply in replies})
        depths = [reply.depth for _, reply in replies]
        deepest = min(*depths, DEEPEST) if self.config.hops is None else self.config.hops
        self._start(deepest, next(reply.width for _, reply in replies))

    def _start(self, hops: int, width: int) -> None:
        self.hops, self.width = hops, width
        clients, classes = len(self.place), self.schema.num_classes
        self.prototypes = torch.zeros(clients, classes, hops + 1, width, device=self.context.device)
        self.counts = torch.zeros(clients, classes, dtype=torch.int32, device=self.context.device)
        self._new_generator("generator")

    def _new_generator(self, *names: Name) -> None:
        config, rows = self.config, self.schema.num_classes * (self.hops + 1)
        self.universal = PrototypeGenerator(rows, self.width, self.generator(*names), self.context.device)
        self.optimizer = optimizer(config.server_optimizer, self.universal.parameters, lr=config.server_lr)

    def round(self, federation: Federation, number: int) -> None:
        chosen = self.select(federation, number)
        requests = self._requests(chosen)
        replies = federation.ask(Client.train, requests, check=self._check).require(self.config.min_clients)
        for client, reply in replies:
            self._keep(client, reply)
        if bool(self.present.any()):
            self._mix(number)

    def _requests(self, chosen: Sequence[ClientId]) -> dict[ClientId, TrainRequest]:
        """Ṗ for each client; nothing for one that has uploaded nothing yet."""
        fresh = TrainRequest(hops=self.hops)
        if self.targets is None:
            return dict.fromkeys(chosen, fresh)
        present = self.present
        known = present.flatten(1).any(1).tolist()
        requests = {}
        for client in chosen:
            place = self.place[client]
            if known[place]:
                requests[client] = TrainRequest(hops=self.hops, prototypes=self.targets[place], present=present[place])
            else:
                requests[client] = fresh
        return requests

    def _check(self, client: ClientId, reply: TrainReply) -> None:
        """Refuse prototypes of another shape than set-up agreed on.

        Raises:
            MessageError: They are.
        """
        wanted = self.prototypes[self.place[client]].shape
        if reply.prototypes.shape != wanted:
            raise MessageError(
                f"client {client} must send prototypes of shape {tuple(wanted)}; {tuple(reply.prototypes.shape)} "
                f"came. All clients must run the same settings."
            )

    def _keep(self, client: ClientId, reply: TrainReply) -> None:
        place = self.place[client]
        self.prototypes[place] = reply.prototypes.to(self.prototypes)
        self.counts[place] = reply.counts.to(self.counts)

    @property
    def present(self) -> Tensor:
        """[K, C, L + 1] which prototypes there are."""
        return (self.prototypes != 0).any(-1)

    def _mix(self, number: int) -> None:
        """Universal prototypes, then every client's own mixture."""
        config, present = self.config, self.present
        lengths = self.prototypes[present].norm(dim=1)
        if self.norm is None:
            self.norm = float(lengths.mean())
        rows = self._learn(number, present)
        self.log["generated_norm"] = float(rows[present.any(0).flatten()].norm(dim=1).mean())
        self.log["uploaded_norm"] = float(lengths.mean())
        if config.norm != "free" or config.generator == "code":
            rows = unit_rows(rows) * (self.norm if isinstance(config.norm, str) else config.norm)
        universal = rows.view(self.prototypes.shape[1:])
        self.targets, similar = personalise(
            self.prototypes, present, self.counts, universal, alpha=config.alpha, threshold=config.similarity
        )
        self.log["similar_clients"] = float(similar.sum(1).float().mean())

    def _learn(self, number: int, present: Tensor) -> Tensor:
        """P̃ [R, p] after this round's steps."""
        config = self.config
        if config.generator == "code":
            shape = self.schema.num_classes, self.hops + 1
            return orthogonal_code(shape, self.width, self.generator("code")).flatten(0, 1).to(self.prototypes)
        if config.restart:
            self._new_generator("round", number, "generator")
        assert self.universal is not None
        assert self.optimizer is not None
        queries = make_queries(
            self.prototypes, present, share=config.hop_share, limit=config.margin, sign=config.margin_sign,
            by=config.discrepancy, draw=self.generator("round", number, "queries"),
        )  # fmt: skip
        loss = torch.zeros(())
        for step in range(config.server_epochs):
            rows, hidden = self.universal.forward()
            loss, slope = contrastive_loss(rows, queries, config.temperature)
            if step == 0:
                self.log["generator_loss_before"] = float(loss)
            self.optimizer.step(self.universal.gradients(hidden, slope))
        self.log["generator_loss"] = float(loss)
        self.log["margin"] = queries.margin
        rows = self.universal()
        known = present.any(0).flatten()
        classes = torch.arange(len(rows), device=rows.device) // (self.hops + 1)
        for name, values, owners in (
            ("generated_cosine", unit_rows(rows[known]), classes[known]),
            ("uploaded_cosine", queries.values, present.nonzero(as_tuple=True)[1]),
        ):
            centres, counts = class_centres(values, owners, self.schema.num_classes)
            self.log[name] = mean_cosine(centres[counts > 0])
        return rows

    def state(self) -> dict[str, Any]:
        assert self.universal is not None
        assert self.optimizer is not None
        return {
            "hops": self.hops,
            "width": self.width,
            "norm": self.norm,
            "prototypes": self.prototypes,
            "counts": self.counts,
            "targets": self.targets,
            "generator": list(self.universal.parameters),
            "optimizer": self.optimizer.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._start(int(state["hops"]), int(state["width"]))
        assert self.universal is not None
        assert self.optimizer is not None
        self.norm = state["norm"]
        self.prototypes.copy_(state["prototypes"])
        self.counts.copy_(state["counts"])
        self.targets = None if state["targets"] is None else state["targets"].to(self.prototypes)
        for mine, saved in zip(self.universal.parameters, state["generator"], strict=True):
            mine.copy_(saved)
        self.optimizer.load_state(state["optimizer"])


def mean_cosine(rows: Tensor) -> float:
    """Mean cosine of two different rows; 0 with fewer than two."""
    count = len(rows)
    if count < 2:
        return 0.0
    unit = unit_rows(rows)
    return float((unit.sum(0).square().sum() - unit.square().sum()) / (count * (count - 1)))


def _check_hello(client: ClientId, reply: HelloReply) -> None:
    if reply.width < 1 or reply.depth < 0:
        raise MessageError(f"client {client} says that its model has {reply.depth} layers of {reply.width} entries.")


def _without_other_widths(federation: Federation, replies: Replies[HelloReply], width: int) -> Replies[HelloReply]:
    """The answers of those with the width that most have; the others have failed."""
    failures = dict(replies.failures)
    for client, reply in replies:
        if reply.width != width:
            reason = f"its embeddings have {reply.width} entries, those of most others {width}"
            failures[client] = Failure(client, Client.hello.name, "MessageError", reason)
            federation.note_failure(failures[client])
    return Replies(
        {client: reply for client, reply in replies if client not in failures}, dict(sorted(failures.items()))
    )


def check_widths(widths: Mapping[ClientId, int]) -> None:
    """Make sure that all clients' embeddings have one width.

    Raises:
        ConfigError: Two differ; the text names them.
    """
    first, width = next(iter(widths.items()))
    for client, other in widths.items():
        if other != width:
            raise ConfigError(
                f"FedPG's clients may run different models, but prototypes need one width of embeddings: client "
                f"{first} has {width}, client {client} has {other}. Give their last hidden layers one width "
                f"(hidden: {width}), or use the pool 'fedpg'."
            )


METHOD = Method(
    name="fedpg",
    family="prototypes",
    quick={"server_epochs": 5},
    title="FedPG",
    citation='Wu et al. "Federated Prototype Graph Learning". arXiv, 2024.',
    summary="Clients with models of their own exchange class prototypes per hop, which the server generalises and "
    "mixes for each.",
    config=FedPGConfig,
    client=Client,
    server=Server,
    tasks=("node", "graph"),
    heterogeneous=True,
    evaluates=("own",),
    model={"node": {"name": "gamlp"}, "graph": {"name": "gin"}},
)
