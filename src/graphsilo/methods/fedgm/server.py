"""FedGM's server: joins condensed graphs, refines their features, and trains models on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.evaluate.choice import rate_candidates
from graphsilo.evaluate.metrics import METRICS
from graphsilo.federation.interface import Federation
from graphsilo.federation.message import Empty, Tensors
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.methods.fedgm.client import Client
from graphsilo.methods.fedgm.config import FedGMConfig
from graphsilo.methods.fedgm.messages import CondensedGraph, GradientRequest, ModelRequest, ScoreRequest
from graphsilo.models.view import View
from graphsilo.training.condensation import view_of
from graphsilo.training.local import weights_of
from graphsilo.training.matching import Distance, Layers, Target, draw_network
from graphsilo.training.optimizer import Adam
from graphsilo.training.upstream import gradients_of, trace
from graphsilo.types import ClientId


class Server(ServerBase[FedGMConfig]):
    """Holds the joint condensed graph and the model that was last trained on it.

    Attributes:
        features, labels: [n', d] and [n'], client after client.
        ends, links: [2, m] linked nodes, each pair once, and the weights of their links [m].
        optimizer: Changes the features.
        weights: The model.
    """

    kept = ("features", "labels", "ends", "links", "weights")
    stateful = ("optimizer",)

    def __init__(self, context: ServerContext[FedGMConfig]):
        super().__init__(context)
        self.weights: Tensors = self.first_weights()
        self.labels, self.ends = torch.zeros(0, dtype=torch.int64), torch.zeros(2, 0, dtype=torch.int64)
        self.links = torch.zeros(0)
        self._begin(torch.zeros(0, self.schema.num_features))

    def _begin(self, features: Tensor) -> None:
        self.features = features.to(self.context.device)
        self.optimizer = Adam([self.features], lr=self.config.server_lr)

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._begin(state["features"])  # the optimiser's moments are as large
        super().load_state({**state, "features": self.features})

    def set_up(self, federation: Federation) -> None:
        """The one upload of graphs, from everybody."""
        replies = federation.ask(Client.condense, Empty(), check=self.check).require(self.config.min_clients)
        graphs = list(replies.answers.values())
        ends, links, first = [self.ends], [self.links], 0
        for graph in graphs:
            nodes, linked = len(graph.features), graph.links > 0
            if len(linked):
                ends.append(torch.triu_indices(nodes, nodes, 1)[:, linked] + first)
                links.append(graph.links[linked])
            first += nodes
        classes = torch.arange(self.schema.num_classes)
        self.labels = torch.cat([classes.repeat_interleave(graph.sizes) for graph in graphs])
        self.ends, self.links = torch.cat(ends, 1), torch.cat(links)
        self._begin(torch.cat([graph.features for graph in graphs]))
        self.log["condensed_nodes"], self.log["condensed_links"] = float(first), float(len(self.links))

    def check(self, client: ClientId, reply: CondensedGraph) -> None:
        """Refuse a graph of other features or classes.

        Raises:
            MessageError: It is one.
        """
        features, classes = self.schema.num_features, self.schema.num_classes
        if (reply.features.shape[1], len(reply.sizes)) != (features, classes):
            raise MessageError(f"CondensedGraph is not of {features} features and {classes} classes.")

    def round(self, federation: Federation, number: int) -> None:
        """From round 2 on a step on the features; where it is due, a new model."""
        if not len(self.labels):  # nobody has a training node: there is nothing to learn from
            return
        if number > 1:
            self._refine(federation, number)
        if number in (1, self.rounds) or number % self.config.train_every == 0:
            self._choose(federation, self._train(number), number)
            federation.sum(Client.adopt, ModelRequest(weights=self.weights)).require(self.config.min_clients)

    # -- the graph -----------------------------------------------------------------------------------------------

    def _refine(self, federation: Federation, number: int) -> None:
        """A step towards ḡ_c = Σ_k n'_kc g_kc / Σ_k n'_kc, on one random network."""
        classes, device = self.schema.num_classes, self.context.device
        draw = self.generator("round", number, "network")
        network = draw_network(self.schema.num_features, self.config.match_hidden, classes, draw)
        request = GradientRequest(network=network._asdict())
        asked = self.select(federation, number)
        total = federation.sum(Client.gradients, request, to=asked).require(self.config.min_clients)
        known = (total.sizes > 0) & (torch.bincount(self.labels, minlength=classes) > 0)
        numbers = known.nonzero().flatten()
        if not len(numbers):
            return
        counts = total.sizes[numbers][:, None, None]
        means = Layers(**{name: (each[numbers] / counts).float() for name, each in total.gradients.items()})
        distance = Distance(self.labels.to(device), numbers.to(device), classes)
        mixing = self._view().blocks("gcn", 1)[0]
        with torch.enable_grad():
            target = Target.of_gradients(means.to(device))
            value = distance(network.to(device), self.features.requires_grad_(), mixing, target)
            slopes = gradients_of(value, [self.features])
        self.features.requires_grad_(False)
        self.optimizer.step(slopes)

    def _view(self) -> View:
        """All rows of the joint graph, as models see a graph."""
        parts = self.features, self.labels, self.ends, self.links
        return view_of(*parts, self.schema.num_classes, self.context.device)

    # -- the model -----------------------------------------------------------------------------------------------

    def _train(self, number: int) -> list[Tensors]:
        """A new model's weights along its training, in main memory."""
        config = self.config
        model, draw = self.build_model(seed_names=("server", "model", number)), self.generator("round", number, "model")
        view, parameters = self._view(), list(model.parameters())
        truth = F.one_hot(self.labels, self.schema.num_classes).to(view.device, torch.float32)
        optimizer = Adam(parameters, lr=config.lr, weight_decay=config.weight_decay)
        kept = {(place + 1) * config.epochs // config.checkpoints for place in range(config.checkpoints)}
        found: list[Tensors] = []
        work = self.work("model", config.epochs)
        for step in work:
            optimizer.lr = config.lr if 2 * step < config.epochs else config.lr / 10
            (logits, _), pull = trace(model, view, draw, parameters)
            with torch.no_grad():
                if work.is_noted:
                    work.note(loss=float(F.cross_entropy(logits, truth)))
                optimizer.step(pull((logits.softmax(1) - truth).div_(len(truth)), None))
            if step + 1 in kept:
                found.append({name: tensor.to("cpu", copy=True) for name, tensor in weights_of(model).items()})
        return found

    def _choose(self, federation: Federation, found: Sequence[Tensors], number: int) -> None:
        """Take the weights that all asked clients' validation nodes together prefer; the last ones without such."""
        place = len(found) - 1
        if place:
            request = ScoreRequest(candidates={name: torch.stack([each[name] for each in found]) for name in found[0]})
            total = federation.sum(Client.score, request, to=self.select(federation, number))
            scored = total.require(self.config.min_clients)
            values = rate_candidates(METRICS[self.context.select_by], scored.counts.numpy(), scored.ranked)
            place = int(np.argmax(values)) if values else place
        self.weights = found[place]
        self.log["chosen_epoch"] = float((place + 1) * self.config.epochs // len(found))

    def aggregate(self) -> Tensors | None:
        return self.weights

    def expected_bytes(self) -> tuple[int, int]:
        """Of the rounds; of the condensed graphs nobody can say before they are there."""
        config, classes = self.config, self.schema.num_classes
        network = 4 * ((self.schema.num_features + 1) * config.match_hidden + (config.match_hidden + 1) * classes)
        model = sum(weight.nbytes for weight in self.weights.values())
        trained = len({1, self.rounds, *range(config.train_every, self.rounds + 1, config.train_every)})
        scored = config.checkpoints * self.asked if config.checkpoints > 1 else 0
        refined = (self.rounds - 1) * self.asked
        up = refined * classes * network + 8 * trained * scored * classes**2
        return up, refined * network + trained * model * (scored + len(self.context.clients))
