"""O-pFGL's client: sends class statistics once, and makes a model of its own from the surrogate graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo import models
from graphsilo.evaluate.metrics import METRICS
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import handler
from graphsilo.federation.message import Done, Tensors
from graphsilo.federation.past_client import PastClient
from graphsilo.federation.portable import Deciding
from graphsilo.federation.release import Release, Released, ReleaseRequest, refuse_without_noise
from graphsilo.federation.starts import start_backbone
from graphsilo.methods.opfgl import private, stages
from graphsilo.methods.opfgl.config import OpFGLConfig
from graphsilo.methods.opfgl.messages import GlobalStatistics, Statistics, StatisticsRequest, SurrogateRequest
from graphsilo.models.base import Model, borrow
from graphsilo.models.hops import hop_matrix
from graphsilo.models.view import GraphTensors
from graphsilo.random import generator
from graphsilo.training.condensation import (
    ClassStatistics,
    ClassSums,
    Surrogate,
    class_sums,
    condense,
    surrogate_labels,
)
from graphsilo.training.label_propagation import (
    class_homophily,
    normalise_rows,
    one_hot_rows,
    propagate_labels,
    without_loops,
)
from graphsilo.training.links import PredictLinks, link_scores
from graphsilo.training.local import load_weights, tensors_of
from graphsilo.training.optimizer import Adam
from graphsilo.training.sharing import share
from graphsilo.training.work import Begin
from graphsilo.types import Task


class Client(PastClient[OpFGLConfig]):
    """Uploads statistics once, then trains its own model on the surrogate and on its own graph.

    Attributes:
        model: The client's own model.
        weights: Its parameters and float buffers by name.
    """

    kept = ("_facts",)
    stateful = ("model", "released")

    def __init__(self, context: ClientContext[OpFGLConfig]):
        super().__init__(context)
        self.model = self._build(self.silo.schema.task)
        self.weights = tensors_of(self.model)
        self.released = Released(self.config, private.SENSITIVITY)
        self._facts: dict[str, Any] = {}
        self._held: list[object] = []

    # -- upload --------------------------------------------------------------------------------------------------

    @handler
    def statistics(self, request: StatisticsRequest) -> Statistics:
        """Class statistics of the propagated features, over training nodes and reliable others."""
        refuse_without_noise(self.config)
        classes = self.expanded_labels()
        levels = [hop_matrix(self.data, level, "gcn") for level in range(self.config.hops + 1)]
        sums = class_sums(levels, classes, self.silo.schema.num_classes, min_count=self.config.min_count)
        labelled = self.silo.class_counts().astype(np.float64)
        if self.config.min_count > 2:  # more than a variance needs: nothing is to be said of small classes
            labelled[sums.counts == 0] = 0.0
        return Statistics(labelled=torch.from_numpy(labelled), **_tensors(sums))

    @handler
    def noisy_statistics(self, request: ReleaseRequest) -> Release:
        """Class statistics with noise, over training nodes' own features."""
        classes = self.silo.schema.num_classes

        def numbers() -> Tensor:
            return private.class_totals(self.data.graph.features, self._labelled, self.silo.labels, classes)

        return self.released.answer(Release, request.honest, numbers)

    @cached_property
    def _adjacency(self) -> sp.csr_matrix:
        return without_loops(self.data.graph.adjacency())

    @cached_property
    def _labelled(self) -> NDArray[np.int64]:
        """Numbers of the training nodes with a label."""
        train = self.silo.train
        found: NDArray[np.int64] = train[self.silo.labels[train] >= 0]
        return found

    @cached_property
    def homophily(self) -> NDArray[np.float64]:
        """[C] H of every class, from training labels alone."""
        return class_homophily(self._adjacency, self.silo.labels, self._labelled, self.silo.schema.num_classes)

    @cached_property
    def soft_labels(self) -> NDArray[np.float64]:
        """[n, C] ỹ before normalisation, from training labels alone."""
        config = self.config
        initial = one_hot_rows(self.silo.labels, self._labelled, self.silo.schema.num_classes)
        return propagate_labels(
            self._adjacency, initial, seed_rows=self._labelled, steps=config.lp_steps, alpha=config.lp_alpha,
            self_loops=config.lp_self_loops,
        )  # fmt: skip

    def expanded_labels(self) -> NDArray[np.int64]:
        """[n] class of every node that enters the statistics, -1 for the others (HRE)."""
        config = self.config
        classes = np.full(self.data.num_nodes, -1, dtype=np.int64)
        if config.expand and len(self._labelled):
            soft = self.soft_labels
            reached = soft.sum(axis=1) > 0
            likely = soft.argmax(axis=1)
            sure = normalise_rows(soft).max(axis=1) >= config.expand_confidence
            busy = np.diff(self._adjacency.indptr) >= config.expand_degree
            allowed = np.ones(self.silo.schema.num_classes, dtype=bool)
            if config.expand_classes:
                allowed[:] = False
                allowed[np.argsort(-self.homophily, kind="stable")[: config.expand_classes]] = True
            joins = reached & sure & busy & allowed[likely]
            classes[joins] = likely[joins]
        classes[self._labelled] = self.silo.labels[self._labelled]
        return classes

    # -- download ------------------------------------------------------------------------------------------------

    @handler
    def personalise(self, request: SurrogateRequest) -> Done:
        """Train on the surrogate, then on the own graph."""
        count = len(request.labels)
        adjacency = torch.zeros(count, count)
        ends = request.edges.long()
        adjacency[ends[0], ends[1]] = request.weights
        self._personalise(Surrogate(request.features, request.labels, adjacency + adjacency.t()))
        return Done(clients=1)

    @handler
    def condense(self, request: GlobalStatistics) -> Done:
        """Fit the surrogate here, then train on it and on the own graph."""
        config, seed = self.config, self.context.seed
        device = self.context.device

        def make() -> Surrogate:
            return fit_surrogate(
                ClassStatistics(request.counts, request.mean, request.variance), request.labelled, config, seed, device
            )[0]

        names = ("surrogate", seed, device, config.model_dump_json())
        surrogate = share(names, [request.counts, request.labelled, request.mean, request.variance], make)
        self._held = [surrogate]
        self._personalise(surrogate)
        return Done(clients=1)

    def _personalise(self, surrogate: Surrogate) -> None:
        if self.config.epsilon is not None:
            usual = private.usual_length(self.data.graph.features)
            surrogate = replace(surrogate, features=surrogate.features * usual)
        classifier = self.model if self.silo.schema.task == "node" else self._build("node")
        if self.silo.schema.task == "node" or self.config.link_pretrain:
            self._train_on_surrogate(classifier, surrogate)
            self._fine_tune(classifier)
        if self.silo.schema.task == "link":
            self._fine_tune_links(classifier)

    def _train_on_surrogate(self, classifier: Model, surrogate: Surrogate) -> None:
        """Stage 1; without a surrogate node the initial weights stay."""
        config, spec, seed = self.config, self.context.model, self.context.seed
        fresh = self._build("node")
        load_weights(tensors_of(classifier), tensors_of(fresh))
        if len(surrogate.labels) == 0:
            return
        checks = -(-config.stage1_epochs // config.stage1_check)
        keep = stages.shareable(fresh, checks)

        def make() -> stages.Path:
            view = surrogate.view(self.silo.schema.num_classes, self.context.device)
            loss = stages.cross_entropy(surrogate.labels.to(self.context.device), self.silo.schema.num_classes)
            return stages.Path(
                fresh, view, loss, lr=config.stage1_lr, epochs=config.stage1_epochs, check_every=config.stage1_check,
                generator=generator(seed, "stage 1"), keep=keep,
            )  # fmt: skip

        names = (
            "stage 1", seed, self.context.device, spec.name, sorted(spec.settings.items()), spec.precision, spec.start,
            config.dropout, config.stage1_lr, config.stage1_epochs, config.stage1_check, self.silo.schema.num_classes,
        )  # fmt: skip
        tensors = [surrogate.features, surrogate.labels, surrogate.adjacency]
        path = share(names, tensors, make) if keep else make()
        if keep:
            self._held.append(path)
        chosen, epoch = stages.choose(path, self._score(classifier), config.patience)
        load_weights(tensors_of(classifier), chosen)
        self._facts["stage1_epochs"] = epoch

    def _fine_tune(self, classifier: Model) -> None:
        """Stage 2, from the weights of stage 1; nothing to do without training nodes.

        Without them only the distillation is left, whose gradient is 0 at the teacher itself.
        """
        config, data, rows = self.config, self.data, self._labelled
        if config.fine_tune == "none" or len(rows) == 0:
            return
        classes = self.silo.schema.num_classes
        labels = torch.from_numpy(self.silo.labels[rows]).to(data.device)
        if config.fine_tune == "distil":
            view = data.full
            with torch.no_grad():
                teacher = F.softmax(classifier(view), dim=1)
            weights = torch.from_numpy(self.node_weights()).to(data.device, data.dtype)
            loss = stages.distil(
                labels, torch.from_numpy(rows).to(data.device), teacher, weights, mean=config.kl_mean
            )  # fmt: skip
        else:
            view = data.kept_view(rows)
            plain = config.fine_tune == "plain"
            loss = stages.cross_entropy(labels, classes) if plain else stages.focal(labels, classes, config.focal_gamma)
        path = stages.Path(
            classifier, view, loss, lr=config.stage2_lr, epochs=config.stage2_epochs, check_every=config.stage2_check,
            generator=self.generator("stage 2"),
        )  # fmt: skip
        chosen, epoch = stages.choose(path, self._score(classifier), config.patience)
        load_weights(tensors_of(classifier), chosen)
        self._facts["stage2_epochs"] = epoch

    def node_weights(self) -> NDArray[np.float64]:
        """[n] γ_i = β · ỹ_i · w with w[c] = 1 / (1 + log(1 + H(c))), within its bounds; or β everywhere."""
        config = self.config
        if config.gamma == "fixed":
            found = np.full(self.data.num_nodes, config.beta)
        else:
            soft = self.soft_labels
            unreached = soft.sum(axis=1, keepdims=True) == 0
            soft = normalise_rows(soft) if config.normalise_soft_labels else np.where(
                unreached, 1.0 / soft.shape[1], soft
            )  # fmt: skip
            found = config.beta * (soft @ (1.0 / (1.0 + np.log1p(self.homophily))))
        highest = np.inf if config.gamma_max is None else config.gamma_max
        return np.asarray(np.clip(found, config.gamma_min, highest), dtype=np.float64)

    def _score(self, classifier: Model) -> Callable[[Tensors], float] | None:
        """What own validation nodes say of weights, for the choice of an epoch; it never leaves the client.

        Training nodes stand in where there are none (link prediction validates links, not nodes: here by accuracy).
        """
        data, labels = self.tensors(self.silo.seen.graph), self.silo.seen.graph.labels
        rows = np.zeros(0, dtype=np.int64)
        if self.silo.schema.task == "node":
            rows = self.silo.seen.items.get("val", rows)
        rows = rows[labels[rows] >= 0]
        if len(rows) == 0:
            data, labels, rows = self.data, self.silo.labels, self._labelled
        if len(rows) == 0:
            return None
        view, truth, mine = data.kept_view(rows), labels[rows], tensors_of(classifier)
        metric = METRICS[self.context.select_by if self.silo.schema.task == "node" else "accuracy"]

        def quality(weights: Tensors) -> float:
            with torch.no_grad(), borrow(mine, weights):
                value = metric.of_outputs(truth, classifier(view).cpu().numpy())
            return -math.inf if value is None else value

        return quality

    def _fine_tune_links(self, classifier: Model) -> None:
        """The follow-up: the classifier's encoder under a new output layer, trained and chosen on links."""
        config = self.config
        start = self._build("link")
        load_weights(self.weights, tensors_of(start))
        if config.link_pretrain:
            names = classifier.encoder_names()
            load_weights(self.weights, {name: tensors_of(classifier)[name] for name in names}, names=names)
        links = self.silo.links
        assert links is not None
        objective = PredictLinks(self.data, self.silo)
        parameters = list(self.model.parameters())
        adam = Adam(parameters, lr=config.link_lr)
        pairs = np.concatenate([links.val, links.val_negative], axis=1)
        truth = np.repeat([1, 0], [links.val.shape[1], links.val_negative.shape[1]])
        draw, by = self.generator("links"), METRICS[self.context.select_by]
        rank = (METRICS["auc"] if by.ranking is None else by).rank
        best, best_score, best_epoch = stages.copy_of(self.weights), -1.0, 0
        for epoch in range(1, config.link_epochs + 1):
            for batch in objective.batches(0, draw):
                adam.step(objective.gradients(self.model, batch, draw, parameters))
            if epoch % config.link_check and epoch < config.link_epochs:
                continue
            with torch.no_grad():
                value = rank(truth, link_scores(self.model(self.data.full), pairs).cpu().numpy()).value
            if value is None or value > best_score:
                best, best_score, best_epoch = stages.copy_of(self.weights), value or -1.0, epoch
        load_weights(self.weights, best)
        self._facts["link_epochs"] = best_epoch

    # -- what every client does ------------------------------------------------------------------------------------

    def _build(self, task: Task) -> Model:
        """A model with the common initial weights of its architecture, without dropout unless asked for."""
        spec, schema = self.context.model, self.silo.schema
        options = dict(spec.settings)
        known = models.entry(spec.name).settings.model_fields
        if not self.config.dropout:
            options.update({name: 0.0 for name in ("dropout", "attention_dropout") if name in known})
        model = models.build(
            spec.name, num_features=schema.num_features, num_classes=schema.num_classes, task=task,
            generator=generator(self.context.seed, "model"), precision=spec.precision, schema=schema, **options,
        )  # fmt: skip
        start_backbone(model, spec.start)
        return model.to(self.context.device)

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        self._held = []  # every client of the process has its model once it is asked for predictions
        with torch.no_grad():
            logits: Tensor = self.model(data.full)
        return logits

    def network_of(self, view: str) -> Deciding | None:
        return Deciding(self.model, self.weights)

    def embed(self, data: GraphTensors) -> Tensor | None:
        return self.model.embed(data.full)

    def final_models(self) -> dict[str, Tensors]:
        return {"own": self.weights}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        load_weights(self.weights, models["own"])

    def study(self) -> Mapping[str, Any]:
        """Epochs chosen, how many nodes joined the statistics and how many of them rightly, and the weights γ."""
        classes, labels = self.expanded_labels(), self.data.graph.labels
        joined = np.setdiff1d(np.flatnonzero(classes >= 0), self._labelled)
        weights = self.node_weights()
        return {
            **self._facts,
            "expanded": len(joined),
            "expanded_correct": int((classes[joined] == labels[joined]).sum()),
            "gamma_mean": float(weights.mean()),
            "gamma": torch.from_numpy(weights),
            "homophily": torch.from_numpy(self.homophily),
        }


def fit_surrogate(
    statistics: ClassStatistics,
    labelled: Tensor,
    config: OpFGLConfig,
    seed: int,
    device: str,
    begin: Begin | None = None,
) -> tuple[Surrogate, dict[str, float]]:
    """The surrogate that server or client would fit, from public facts alone, and numbers about it."""
    labels = surrogate_labels(
        statistics.counts, labelled, per_class=config.nodes_per_class, percent=config.nodes_percent
    )
    return condense(statistics, labels, config, generator(seed, "surrogate"), device=device, begin=begin)


def _tensors(sums: ClassSums) -> dict[str, Tensor]:
    return {name: torch.from_numpy(value) for name, value in sums._asdict().items()}
