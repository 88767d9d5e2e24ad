"""FedPG's client: trains its own model towards the prototypes that it is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphsilo.errors import ConfigError, RequestError
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.interface import handler
from graphsilo.federation.message import Empty
from graphsilo.federation.past_client import PastClient
from graphsilo.federation.training_client import TrainingClient
from graphsilo.methods.fedpg.config import DEEPEST, FedPGConfig
from graphsilo.methods.fedpg.messages import HelloReply, TrainReply, TrainRequest
from graphsilo.methods.fedpg.prototypes import (
    Membership,
    Scorer,
    add_noise,
    alignment,
    annotate,
    centre,
    hop_pairs,
    similar_pairs,
)
from graphsilo.methods.fedpg.reach import Pairs
from graphsilo.models.base import Model
from graphsilo.models.view import View
from graphsilo.random import Name, generator, numpy_generator
from graphsilo.training.objective import Classified, ClassifyItems
from graphsilo.training.optimizer import Optimizer, optimizer
from graphsilo.training.prototypes import unit_rows
from graphsilo.training.upstream import gradients_through, trace


class Client(PastClient[FedPGConfig], TrainingClient[FedPGConfig]):
    """Trains its own model on its labels and towards the prototypes it received."""

    kept = ("annotated",)
    stateful = (*TrainingClient.stateful, "scorer", "scorer_optimizer")

    def __init__(self, context: ClientContext[FedPGConfig]):
        super().__init__(context)
        if not self.model.encoder_names():
            raise ConfigError(
                f"client {self.id}: FedPG exchanges means of a hidden layer's embeddings, and {context.model.name} as "
                f"it is set has no hidden layer: means of the features themselves would leave the client. "
                f"{self.model.deeper}, or use the pool 'fedpg'."
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

    def build_model(self, spec: ModelSpec | None = None, *, seed_names: tuple[Name, ...] = ("model",)) -> Model:
        own: tuple[Name, ...] = ("client", self.id) if self.config.initial == "own" else ()
        return super().build_model(spec, seed_names=(*seed_names, *own))

    @handler
    def hello(self, request: Empty) -> HelloReply:
        """Say how wide embeddings are, and how deep the model."""
        return HelloReply(width=self.model.embedding_dim, depth=depth_of(self.model))

    @handler
    def train(self, request: TrainRequest) -> TrainReply:
        """Local epochs, then the prototypes."""
        most = DEEPEST if self.config.hops is None else self.config.hops
        if not 0 <= request.hops <= most:
            text = f"prototypes of {request.hops} hops were asked for; runs of these settings ask for 0 to {most}."
            raise RequestError(text)
        if self.config.reset_optimizer:
            self.trainer.optimizer.reset()
        if request.prototypes is None or request.present is None or self._membership is None or self.config.mu == 0.0:
            self.run_epochs()
        else:
            device = self.data.device
            self.trainer.follow(self._steps_towards(request.prototypes.to(device), request.present.to(device)))
        return self._upload(request.hops)

    # -- local training ------------------------------------------------------------------------------------------

    def _steps_towards(self, targets: Tensor, present: Tensor) -> Iterator[tuple[list[Tensor], Classified]]:
        """The gradients of each local step, with that of μ Σ ‖P − Ṗ‖ added."""
        objective, parameters = self.trainer.objective, self.trainer.parameters
        assert isinstance(objective, ClassifyItems)
        draw = self.generator("train")
        for _ in range(self.config.local_epochs):
            for batch in objective.batches(self.batch_size, draw):
                membership, view = self._choose_pulled(batch)
                (logits, embeddings), back = trace(self.model, batch.view, draw, parameters, view)
                drawn = self._pull(embeddings, membership, targets, present)
                yield back(objective.slope(logits, batch), drawn), batch

    def _choose_pulled(self, batch: Classified) -> tuple[Membership, View]:
        """What is pulled in a step, and its view: all items, or labelled ones where no other counts."""
        assert self._membership is not None
        if batch.places is not None and batch.view.items is not None:
            # Embedding every item for each small step would cost many times it: the batch stands for all.
            return self._membership.restrict(batch.view.items), batch.view
        if self.config.annotation == "labelled":
            items = np.sort(self.silo.train)
            return self._membership.restrict(items), self.data.kept_view(items)
        return self._membership, self.data.full

    def _pull(self, embeddings: Tensor, membership: Membership, targets: Tensor, present: Tensor) -> Tensor:
        """The pull's gradient for embeddings without dropout, as those of the upload are; the scorer takes its step."""
        if self.scorer is None or self.scorer_optimizer is None:
            slope = self._slope(membership.prototypes(embeddings), membership, targets, present)
            return membership.mean_operator().tmm(slope.flatten(0, 1))
        with torch.enable_grad():
            embeddings = embeddings.detach().requires_grad_()
            reached = membership.prototypes(embeddings, self.scorer)
        slope = self._slope(reached.detach(), membership, targets, present)
        back, *found = gradients_through([reached], [slope], [embeddings, *self.scorer.parameters()])
        self.scorer_optimizer.step(found)
        return back

    def _slope(self, reached: Tensor, membership: Membership, targets: Tensor, present: Tensor) -> Tensor:
        """The gradient of μ Σ ‖P − Ṗ‖ for P [C, L + 1, p]."""
        config = self.config
        _, slope = alignment(
            reached, targets, present & membership.mask, reduction=config.reduction, centred=config.centred
        )
        return slope * config.mu

    # -- prototypes ----------------------------------------------------------------------------------------------

    def _upload(self, hops: int) -> TrainReply:
        config, classes = self.config, self.silo.schema.num_classes
        shape = (classes, hops + 1, self.model.embedding_dim)
        if self.trainer.objective.num_samples == 0:
            # A model that never saw a label predicts noise: it has no prototypes to share.
            self._membership = None
            return TrainReply(prototypes=torch.zeros(shape), counts=torch.zeros(classes, dtype=torch.int32))
        with torch.no_grad():
            logits, embeddings = self.model.outputs(self.data.full)
            self._membership = membership = self._annotate(logits, embeddings, hops)
            prototypes = membership.prototypes(embeddings, self.scorer)
            if config.centred:
                prototypes = centre(prototypes, membership.mask)
            if config.noise > 0:
                prototypes = add_noise(
                    prototypes, membership.mask, config.noise, config.noise_scale, self.generator("noise")
                )
        return TrainReply(prototypes=prototypes, counts=torch.from_numpy(membership.counts.astype(np.int32)))

    def _annotate(self, logits: Tensor, embeddings: Tensor, hops: int) -> Membership:
        """Which class every item counts for, and its neighbours of that class."""
        config, items = self.config, self.silo.train
        probabilities = torch.softmax(logits, dim=1)
        confidence = None if config.annotation == "labelled" else config.confidence
        labels = annotate(probabilities, items, self.silo.labels[items], confidence=confidence)
        if self.silo.schema.task == "graph":
            thresholds = [config.graph_similarity * config.graph_decay**level for level in range(hops)]
            seed = numpy_generator(self.context.seed, "client", self.id, "round", self.round, "neighbours")
            pairs = similar_pairs(embeddings.cpu().numpy(), labels, thresholds, limit=config.max_neighbours, draw=seed)
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
                limit=self.config.max_neighbours,
                draw=numpy_generator(self.context.seed, "client", self.id, "neighbours"),
            )
        return self._neighbours[hops]

    # -- state ---------------------------------------------------------------------------------------------------

    @property
    def annotated(self) -> dict[str, Any]:
        """What membership is made of; empty where there is none."""
        found = self._membership
        if found is None:
            return {}
        # Neighbours of nodes follow from the graph; those of graphs came from embeddings that are gone.
        by_pairs = self.silo.schema.task == "graph"
        pairs = [torch.from_numpy(np.stack(pairs)) for pairs in found.pairs] if by_pairs else []
        return {"labels": torch.from_numpy(found.labels), "hops": found.levels - 1, "pairs": pairs}

    @annotated.setter
    def annotated(self, found: Mapping[str, Any]) -> None:
        self._membership = None
        if found:
            pairs = [(pair[0].numpy(), pair[1].numpy()) for pair in map(Tensor.cpu, found["pairs"])]
            if self.silo.schema.task != "graph":
                pairs = self._hop_pairs(int(found["hops"]))
            labels = found["labels"].cpu().numpy()
            self._membership = Membership(labels, pairs, self.silo.schema.num_classes, self.data.device)

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
