"""FedLoG's client: trains, condenses its classes, learns from what the server mixed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo import models
from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import Schema
from graphsilo.evaluate.metrics import METRICS
from graphsilo.federation import noise
from graphsilo.federation.client import ClientBase, ClientContext, ModelSpec
from graphsilo.federation.interface import handler
from graphsilo.federation.message import Done, Tensors
from graphsilo.federation.starts import start_backbone
from graphsilo.federation.training_client import client_weight
from graphsilo.methods.fedlog import generator as generators
from graphsilo.methods.fedlog import mixing
from graphsilo.methods.fedlog.config import FedLoGConfig
from graphsilo.methods.fedlog.layers import BRANCHES, Classifiers
from graphsilo.methods.fedlog.messages import (
    ClassGenerators,
    GeneratorReply,
    GeneratorRequest,
    PretrainRequest,
    RangeReply,
    RangeRequest,
    TrainReply,
    TrainRequest,
)
from graphsilo.methods.fedlog.rows import BatchRows, Synthetic
from graphsilo.methods.fedlog.step import Judged, Network
from graphsilo.models.base import Model
from graphsilo.models.dense import varying_rows
from graphsilo.models.generated import GeneratedGraph, pairs
from graphsilo.models.view import GraphTensors, View
from graphsilo.random import generator
from graphsilo.training.local import check_weights, load_weights, tensors_of
from graphsilo.training.optimizer import Adam
from graphsilo.training.sharing import SharedTensors, share
from graphsilo.training.upstream import gradients_of

HEAD, TAIL = 0, 1
_SHOWN = 2000
"""Real nodes in a study at most; evenly chosen."""


class Client(ClientBase[FedLoGConfig]):
    """Trains encoder and classifiers with the others, and keeps its learnable nodes and difficulties.

    Attributes:
        model: The encoder.
        weights: Parameters of encoder and classifiers, by name: what is averaged.
        prototypes: [2, s·C, d] learnable nodes of the head and the tail branch, class by class.
        difficulty: [C] γ; never sent.
    """

    kept = ("difficulty", "pretrained", "global_nodes", "generator_loss")
    stateful = ("optimizer", "prototype_optimizer")

    def __init__(self, context: ClientContext[FedLoGConfig]):
        super().__init__(context)
        config, schema, seed = self.config, self.silo.schema, context.seed
        device = context.device
        self.model, self.weights = build_modules(context.model, schema, config, seed, device)
        parts = {
            name.removeprefix(_CLASSIFIER): value.detach().requires_grad_()
            for name, value in self.weights.items()
            if name.startswith(_CLASSIFIER)
        }
        self.network = Network(self.model, config, schema.num_classes, parts)
        nodes = config.prototypes * schema.num_classes
        bound = math.sqrt(6.0 / (nodes + schema.num_features))
        draw = torch.rand(
            BRANCHES, nodes, schema.num_features, generator=generator(seed, "client", self.id, "prototypes")
        )
        self.prototypes = (draw * (2 * bound) - bound).to(device)
        self.difficulty = torch.zeros(schema.num_classes, device=device)
        self.optimizer = Adam(list(self.weights.values()), lr=config.lr, weight_decay=config.weight_decay)
        self.prototype_optimizer = Adam([self.prototypes], lr=config.prototype_lr)
        self.generators: Tensors | None = None
        self.output: generators.Output = "tanh"
        self.global_nodes: SharedTensors | None = None
        self.pretrained = False
        self.generator_loss: list[float] = []
        labels = self.silo.labels[self.silo.train]
        self.train_nodes = self.silo.train[labels >= 0]
        self.train_labels = torch.from_numpy(np.ascontiguousarray(labels[labels >= 0])).to(device)
        self.class_labels = torch.arange(schema.num_classes, device=device).repeat_interleave(config.prototypes)
        self.counts: Tensor | None = None
        self._rows: BatchRows | None = None

    # -- set-up

    @handler
    def check_range(self, request: RangeRequest) -> RangeReply:
        """Whether a generator with values within -1 and 1 can say what neighbours look like."""
        scale = self.silo.scale
        if scale is not None and len(scale.shift):
            # A column of deviation 1 reaches beyond somewhere. The scale says so, not the cells: it may be one of
            # somebody's making, and with one scale after the other the answer would tell a single cell.
            moved = (scale.factor != 0) & ((scale.factor != 1) | (scale.shift != 0))
            return RangeReply(outside=int(moved.any()))
        features = cast("Graph", self.silo.graph).features
        values = features.data if sp.issparse(features) else features
        return RangeReply(outside=int(values.size > 0 and float(np.abs(values).max()) > 1.0))

    @handler
    def fit_generator(self, request: GeneratorRequest) -> GeneratorReply:
        """Fit a neighbour generator to the own graph; it goes out once for each class, times the class's rate."""
        config, schema = self.config, self.silo.schema
        weights = generators.draw(schema.num_features, generator(self.context.seed, "generator"))
        if len(self.train_nodes):
            fitting = generators.Fitting(
                self.data, self.train_nodes, self.train_labels, schema.num_classes, config,
                cast("generators.Output", request.output),
                lambda draw: build_encoder(self.context.model, schema, config, draw),
            )  # fmt: skip
            weights, losses = fitting.run(weights, self.generator("generator"))
            self.generator_loss = [losses[0], losses[-1]]
        counts = self.class_weights(self.rates())
        return GeneratorReply(generators=mixing.weigh(weights, counts), class_weights=counts)

    @handler
    def take_generators(self, request: ClassGenerators) -> Done:
        """Keep the class-wise generators; they never change again."""
        # Reported here and not when fitting: who was away then may still be here now.
        self.output = cast("generators.Output", request.output)
        self.keep_generators(request.generators)
        return Done(clients=1)

    def keep_generators(self, mixed: Tensors) -> None:
        """Use these; or, as the authors' code does with what it trained and mixed, ones that were never trained."""
        device, schema, seed = self.context.device, self.silo.schema, self.context.seed
        if self.config.class_generators:
            self.generators = self.keep(mixed)
            return

        def make() -> SharedTensors:
            seeds = [generator(seed, "untrained", label) for label in range(schema.num_classes)]
            made = generators.draw_each(schema.num_features, seeds)
            return SharedTensors((name, value.to(device)) for name, value in made.items())

        # A generator per class takes more memory than all else a client has, and every client draws the same ones.
        names = ("untrained generators", seed, schema.num_features, schema.num_classes, device)
        self.generators = share(names, [], make)

    @handler
    def pretrain(self, request: PretrainRequest) -> Done:
        """Supervised training of the encoder under a linear head, as the authors' code does before its first round.

        The last network goes on. Their code stops by accuracy on the test nodes; this stops by validation nodes.
        """
        if len(self.train_nodes) == 0:
            return Done(clients=1)
        config, draw, classes = self.config, self.generator("pretrain"), self.silo.schema.num_classes
        bound = 1.0 / math.sqrt(config.embedding_dim)
        head = torch.rand(config.embedding_dim + 1, classes, generator=draw).to(self.data.device)
        head = head.mul_(2 * bound).sub_(bound).requires_grad_()
        trained = [*self.model.parameters(), head]
        optimizer = Adam(trained, lr=config.lr, weight_decay=config.weight_decay)
        seen = self.silo.seen
        held, data = seen.items.get("val", self.silo.train[:0]), self.tensors(seen.graph)
        truth, metric = cast("Graph", seen.graph).labels[held], METRICS[self.context.select_by]
        best, patience = -1.0, 0

        def logits(view: View, draw: torch.Generator | None = None) -> Tensor:
            return torch.addmm(head[-1], self.model(view, draw), head[:-1])

        for _ in range(config.pretrain_epochs):
            for batch in self.batches(draw):
                outputs = logits(self.data.view(self.train_nodes[batch.numpy()]), draw)
                loss = F.cross_entropy(outputs, self.train_labels[batch])
                optimizer.step(gradients_of(loss, trained))
            if len(held) == 0:
                continue
            with torch.no_grad():
                found = metric.of_outputs(truth, logits(data.view(held)).cpu().numpy())
            if found is not None:
                best, patience = (found, 0) if found >= best else (best, patience + 1)
            if patience == config.pretrain_patience:
                break
        self.pretrained = True
        return Done(clients=1)

    # -- rounds

    @handler
    def train(self, request: TrainRequest) -> TrainReply:
        """Download, local fitting with local generalisation, upload."""
        config = self.config
        if self.pretrained and self.round == 1:
            # The authors' code goes on from its own pre-trained encoder in round 1.
            check_weights(self.weights, request.weights)
            self.pretrained = False
        else:
            load_weights(self.weights, request.weights)
        if config.reset_optimizer:
            self.optimizer.reset()
            self.prototype_optimizer.reset()
        synthetic = None
        if request.synthetic is not None and config.local_generalization and self.generalises:
            self.global_nodes = self.keep({"nodes": request.synthetic})
            synthetic = self.customise(self.global_nodes["nodes"])
        draw = self.generator("train")
        beside = synthetic if config.generalization == "joint" else None
        with varying_rows(not self.rows.whole):
            for _ in range(config.local_epochs):
                for batch in self.batches(draw):
                    if len(batch) or beside is not None:
                        self.step(batch, beside, draw)
        if synthetic is not None and beside is None:
            self.generalise(synthetic, draw)
        if synthetic is not None and config.adaptive_factor:
            self.adapt(synthetic)
        return self.reply()

    def generalise(self, synthetic: Synthetic, draw: torch.Generator) -> None:
        """As many epochs on the synthetic nodes alone, in batches of the same size; the loss is L_g."""
        alone = torch.zeros(0, dtype=torch.int64)
        for _ in range(self.config.local_epochs):
            for batch in self.batches(draw, len(synthetic.labels)):
                self.step(alone, synthetic.take(batch), draw, norm_weight=0.0)

    def batches(self, draw: torch.Generator, count: int | None = None) -> Iterator[Tensor]:
        """Positions among so many nodes, the training nodes by default, one epoch; a single empty batch for none."""
        count = len(self.train_nodes) if count is None else count
        size = self.config.batch_size or max(count, 1)
        order = torch.randperm(count, generator=draw)
        yield from torch.split(order, size)

    def step(
        self,
        batch: Tensor,
        synthetic: Synthetic | None,
        draw: torch.Generator | None,
        *,
        norm_weight: float | None = None,
    ) -> float:
        """One step on a batch of training nodes and synthetic nodes; returns L_cls + β L_norm + L_g."""
        loss, gradients, to_prototypes = self.gradients(batch, synthetic, draw, norm_weight=norm_weight)
        self.optimizer.step(gradients)
        self.prototype_optimizer.step([to_prototypes])
        return loss

    def gradients(
        self,
        batch: Tensor,
        synthetic: Synthetic | None,
        draw: torch.Generator | None,
        *,
        norm_weight: float | None = None,
    ) -> tuple[float, list[Tensor], Tensor]:
        """The loss of a step, and its gradients: of ``weights``, in order, and of the prototypes."""
        network = self.network
        weight = self.config.norm_weight if norm_weight is None else norm_weight
        learnable = self.prototypes.detach().requires_grad_()
        judged = []
        if len(batch):
            targets, degree = self.rows.embed(self.model, network.classifiers, self.train_nodes[batch.numpy()], draw)
            labels = self.train_labels[batch.to(self.train_labels.device)]
            judged.append(Judged(targets, network.trust(degree), labels))
        prototypes = network.prototypes(learnable, draw)
        if synthetic is not None:
            judged.append(self.judge(synthetic, draw))
        # L_norm is the mean of the two branches' norms.
        loss = network.loss(prototypes, judged) + 0.5 * weight * learnable.flatten(1).norm(dim=1).sum()
        *modules, below = gradients_of(loss, [*self.model.parameters(), *network.parts.values(), learnable])
        return float(loss.detach()), modules, below

    def judge(self, synthetic: Synthetic, draw: torch.Generator | None) -> Judged:
        """Synthetic nodes as targets; both branches count alike."""
        targets, degree = synthetic.rows.embed(self.model, self.network.classifiers, synthetic.nodes, draw)
        return Judged(targets, torch.zeros_like(degree), synthetic.labels)

    @torch.no_grad()
    def customise(self, nodes: Tensor) -> Synthetic:
        """Global synthetic nodes drawn towards their mean by each class's difficulty, with a generated neighbour."""
        points = nodes + self.difficulty.repeat_interleave(self.config.prototypes)[:, None] * (nodes.mean(0) - nodes)
        if self.generators is not None and self.config.uses_generator:
            points = torch.cat([points, generators.generate(self.generators, points, self.output)])
        return Synthetic.of(points, self.class_labels)

    def adapt(self, synthetic: Synthetic) -> None:
        """Make a class harder whose synthetic nodes are recognised, easier otherwise; from 0 to 1."""
        recognised = self.network.recognise(self.prototypes, self.judge(synthetic, None))
        accuracy = recognised.float().view(-1, self.config.prototypes).mean(1)
        config = self.config
        gain, loss = config.difficulty_step, -config.difficulty_decrease
        change = torch.where(accuracy > config.difficulty_threshold, gain, loss)
        self.difficulty = (self.difficulty + change).clamp_(0.0, 1.0)

    def reply(self) -> TrainReply:
        """What goes to the server: the modules, and one branch's nodes times what each class counts here."""
        config = self.config
        if not config.local_generalization:
            nodes, counts = self.prototypes.new_zeros(0, self.prototypes.shape[2]), torch.zeros(0)
        else:
            nodes = self.prototypes[HEAD if config.synthetic[1] == "H" else TAIL].cpu()
            counts = self.class_weights(self.rates(), rare=config.synthetic[0] == "T")
            if config.permute:
                nodes = mixing.permute(nodes, len(counts), self.generator("permute"))
            nodes = nodes * counts.repeat_interleave(config.prototypes)[:, None]
        return TrainReply(weights=self.weights, num_samples=self.weight, synthetic=nodes.cpu(), class_weights=counts)

    @property
    def generalises(self) -> bool:
        """Whether this client trains on synthetic nodes: all do, unless one is the receiver."""
        return self.config.receiver is None or self.config.receiver == self.id

    @property
    def weight(self) -> float:
        """Weight in the mean of the modules."""
        return client_weight(self.config.weight_by, len(self.train_nodes), self.silo.num_items)

    def rates(self) -> Tensor:
        """[C] share of each class among the training nodes, as the others may learn it."""
        # Drawn once: new noise in each round would average out.
        config = self.config
        if self.counts is None:
            self.counts = torch.bincount(self.train_labels.cpu(), minlength=self.silo.schema.num_classes)
            if config.rate_epsilon is not None:
                self.counts = noise.noisy_counts(self.counts, moves=2, epsilon=config.rate_epsilon)
        draw = generator(self.context.seed, "client", self.id, "rates")
        error = 0.0 if config.rate_epsilon is not None else config.rate_noise
        return mixing.class_rates(
            self.counts, len(self.train_labels), draw, noise=error, permuted=config.rate_permutation
        )

    def class_weights(self, rates: Tensor, *, rare: bool = False) -> Tensor:
        """[C] float32 what this client counts in the mixture of each class; ``rare``: the more, the rarer it is."""
        if self.config.receiver == self.id:
            return torch.zeros(len(rates))
        return mixing.class_weights(rates, rare=rare)

    # -- prediction

    @property
    def rows(self) -> BatchRows:
        """How a batch's rows are found in the training graph."""
        if self._rows is None:
            self._rows = BatchRows(self.data, self.config.batch_size)
        return self._rows

    no_export = "its classifiers hold each node and its neighbours against learned nodes of every class"

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        return self.network.predict(data, self.prototypes)

    def embed(self, data: GraphTensors) -> Tensor | None:
        return self.model(data.full)  # type: ignore[no-any-return]

    # -- state

    def state(self) -> dict[str, Any]:
        return {
            **super().state(),
            "weights": dict(self.weights),
            "prototypes": self.prototypes,
            "generators": self._generators_state(),
            "output": self.output,
            "counts": None if self.config.rate_epsilon is None else self.counts,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        load_weights(self.weights, state["weights"])
        self.prototypes.copy_(state["prototypes"])
        self.generators = None
        if state["generators"] is not None:
            self.keep_generators(state["generators"])
        self.output = state["output"]
        self.counts = state["counts"]

    def _generators_state(self) -> Tensors | None:
        """The generators, which all clients share; nothing but that there are some, where they can be drawn again."""
        if self.generators is None:
            return None
        return self.generators if self.config.class_generators else {}

    def final_models(self) -> dict[str, Tensors]:
        return {"own": {**self.weights, "prototypes": self.prototypes}}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        weights = dict(models["own"])
        self.prototypes.copy_(weights.pop("prototypes"))
        load_weights(self.weights, weights)

    def study(self) -> Mapping[str, Any]:
        """Difficulties, norms, and real beside learned features: what the paper's privacy figures compare."""
        count = len(self.train_nodes)
        shown = np.linspace(0, count - 1, min(count, _SHOWN)).astype(np.int64)
        features = cast("Graph", self.silo.graph).features[self.train_nodes[shown]]
        real = features.toarray() if sp.issparse(features) else np.asarray(features)
        learned = self.prototypes[HEAD].cpu()
        facts: dict[str, Any] = {
            "real_features": torch.from_numpy(np.array(real, dtype=np.float32)),
            "real_labels": self.train_labels.cpu()[shown],
            "synthetic_features": learned,
            "synthetic_labels": self.class_labels.cpu(),
            "difficulty": self.difficulty.cpu(),
            "mean_difficulty": float(self.difficulty.mean()),
            "hardest_class": int(self.difficulty.argmax()),
            "head_norm": float(self.prototypes[HEAD].norm()),
            "tail_norm": float(self.prototypes[TAIL].norm()),
        }
        if self.global_nodes is not None:
            facts["global_features"] = self.global_nodes["nodes"].cpu()
        if self.generator_loss:
            facts["generator_loss_first"], facts["generator_loss_last"] = self.generator_loss
        if len(real):
            gaps = torch.cdist(learned, facts["real_features"])
            facts["nearest_real_node"] = float(gaps.min())
        return facts


_ENCODER, _CLASSIFIER = "encoder.", "classifier."


def build_encoder(spec: ModelSpec, schema: Schema, config: FedLoGConfig, draw: torch.Generator) -> Model:
    """An encoder: the backbone with E outputs, no activation behind the last layer, in float32."""
    return models.build(
        spec.name,
        num_features=schema.num_features,
        num_classes=schema.num_classes,
        task="link",  # the output is an embedding
        embedding_dim=config.embedding_dim,
        generator=draw,
        schema=schema,
        **spec.settings,
    )


def build_modules(
    spec: ModelSpec, schema: Schema, config: FedLoGConfig, seed: int, device: str
) -> tuple[Model, dict[str, Tensor]]:
    """Encoder, and the parameters of encoder and classifiers by name: the same numbers at server and clients."""
    model = build_encoder(spec, schema, config, generator(seed, "model")).to(device)
    start_backbone(model, spec.start)
    model.precision = spec.precision
    with torch.no_grad():  # is refused here if it has no gradient for features
        model(GeneratedGraph(torch.zeros(1, schema.num_features, device=device), pairs(1, 0)).full)
    parts = Classifiers(config, schema.num_classes).draw(generator(seed, "model", "classifiers"))
    weights = {f"{_ENCODER}{name}": value.detach() for name, value in tensors_of(model).items()}
    weights.update({f"{_CLASSIFIER}{name}": value.to(device) for name, value in parts.items()})
    return model, weights
