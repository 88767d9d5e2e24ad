"""A client that trains one model on its own graph: what most methods start from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, ClassVar, Generic, Literal, TypeAlias, TypeVar

import torch
from pydantic import Field
from torch import Tensor

from graphsilo.errors import ConfigError
from graphsilo.federation.client import ClientBase, ClientContext
from graphsilo.federation.message import Tensors
from graphsilo.federation.settings import LocalTrainingConfig, setting
from graphsilo.models.base import borrow
from graphsilo.models.view import GraphTensors
from graphsilo.training.local import (
    Adjust,
    LocalTrainer,
    Teacher,
    check_weights,
    load_weights,
    tensors_of,
)
from graphsilo.training.objective import ItemLoss, Objective, Term, objective
from graphsilo.training.optimizer import Optimizer, optimizer
from graphsilo.types import NODE_TASKS, TARGET_TASKS, Task

GRAPH_BATCH = 64
"""Graphs per step in graph classification, unless a batch size is set."""

ConfigT = TypeVar("ConfigT", bound=LocalTrainingConfig)


# More draws than this cost more than a layer without sampling, which 0 asks for.
Neighbours: TypeAlias = Annotated[int, Field(ge=0, le=1000)]


class AveragedTrainingConfig(LocalTrainingConfig):
    """For methods that average what clients train, who may see a few sampled neighbours of each node in a step."""

    weight_by: Literal["train", "nodes", "uniform"] = setting(
        "train", "a client's weight in the mean: its training items, all its nodes (graphs), or 1",
        source="McMahan et al.; OpenFGL uses nodes",
    )  # fmt: skip
    fan_out: Neighbours | tuple[Neighbours, ...] = setting(
        0, "neighbours sampled per node in training: one number for every layer, or one per layer from the items "
        "outwards; 0 takes all",
        source="OpenFGL; Hamilton et al. 25, 10",
    )  # fmt: skip

    @property
    def samples(self) -> bool:
        """Whether some layer does not take all."""
        return any((self.fan_out,) if isinstance(self.fan_out, int) else self.fan_out)

    def check_model(self, model: str, depth: int, task: Task) -> None:
        neighbours_per_layer(self.fan_out, model, depth, task)


def neighbours_per_layer(asked: int | tuple[int, ...], model: str, depth: int, task: Task) -> tuple[int, ...]:
    """How many are sampled, from the items outwards; () where every layer takes all.

    Args:
        asked: One number for every layer, or one for each; 0 takes all.
        model: Its name.
        depth: Its layers that mix rows.
        task: The run's.

    Raises:
        ConfigError: The model does not mix rows layer by layer, or has other layers, or the items are no nodes.
    """
    counts = (asked,) * max(depth, 1) if isinstance(asked, int) else asked
    if not any(counts) and (isinstance(asked, int) or len(counts) == depth):
        return ()
    if task not in NODE_TASKS or not depth:
        raise ConfigError(
            f"method.fan_out={asked if isinstance(asked, int) else list(asked)} samples neighbours of training nodes, "
            f"layer by layer: for the task node and a model such as gcn, sage, gat, gin, gcnii or appnp. The task is "
            f"{task}, the model {model}; use another model, or fan_out=0."
        )
    if len(counts) != depth:
        came = f"a list of {len(counts) or 'no'} number{'' if len(counts) == 1 else 's'} came"
        alone = f". One for all layers is said without brackets: fan_out={counts[0]}" if len(counts) == 1 else ""
        raise ConfigError(
            f"method.fan_out is one number for all layers, or a list with one for each: the model has {depth} "
            f"layers, {came}{alone}."
        )
    return counts


class TrainingClient(ClientBase[ConfigT], Generic[ConfigT]):
    """Holds a model, its optimiser and the local objective.

    Attributes:
        model: The client's own model.
        weights: Its parameters and float buffers by name.
        common: The model that the server has a say in: the same one, unless a method has another beside it.
        common_weights: Its parameters and float buffers by name.
        trainer: Runs local epochs on it; ``trainer.objective.num_samples`` is the number of training items.
    """

    stateful: ClassVar[tuple[str, ...]] = ("model", "trainer")

    def __init__(self, context: ClientContext[ConfigT]):
        super().__init__(context)
        self.model = self.build_model()
        # The parameters and float buffers by name, looked up once; they are the model's own tensors.
        self.weights = tensors_of(self.model)
        self.common, self.common_weights = self.model, self.weights
        self._aggregate: dict[str, Tensor] | None = None
        made = self.make_optimizer(list(self.model.parameters()))
        self.trainer = LocalTrainer(self.model, self.objective_on(self.data), made)

    def make_optimizer(self, tensors: Sequence[Tensor]) -> Optimizer:
        """A new optimiser of these tensors, as the settings say."""
        config = self.config
        return optimizer(
            config.optimizer, tensors, lr=config.lr, weight_decay=config.weight_decay, momentum=config.momentum
        )

    def objective_on(self, data: GraphTensors) -> Objective:
        """The local loss on a graph whose first rows are the silo's nodes."""
        return objective(data, self.silo, each=self.item_loss)

    @property
    def item_loss(self) -> ItemLoss | None:
        """The loss of an item as the settings say it; None for plain cross-entropy, and for links."""
        usual, task = self.config.loss == "auto" and self.config.class_weights == "none", self.silo.schema.task
        if task == "link" or (usual and task not in TARGET_TASKS):
            return None
        from graphsilo.training.item_losses import item_loss

        return item_loss(self.config, self.silo)

    def run_epochs(
        self,
        *,
        epochs: int | None = None,
        term: Term | None = None,
        adjust: Adjust | None = None,
        node_weights: Tensor | None = None,
    ) -> int:
        """Train the client's model: whole passes over its training items, in steps of the method's optimiser.

        A method changes what a step minimises by a ``term``, or by changing the gradients, ``adjust``.

        Args:
            epochs: How many passes; None takes ``local_epochs``.
            term: Called in every step with a ``Step``; what it gives is added to the loss (tasks node and graph).
            adjust: Called in every step as ``adjust(gradients, batch)`` before the parameters move. ``gradients`` is a
                list of tensors in the order of ``self.model.parameters()`` (names: ``named_parameters()``), to be
                changed in place. ``batch`` says what the step was taken on; few methods look at it.
            node_weights: [labelled training items] how much each counts in the mean loss; 1 where None (tasks node
                and graph).

        Returns:
            Steps taken; 0 where the client has nothing to train on.
        """
        return self.trainer.run(
            self.config.local_epochs if epochs is None else epochs,
            self.generator("train"),
            batch_size=self.batch_size,
            term=term,
            adjust=adjust,
            node_weights=node_weights,
        )

    def teacher(self, weights: Mapping[str, Tensor]) -> Teacher:
        """A frozen model of this client's architecture with these weights, for one round's terms."""
        return Teacher(self.model, {name: tensor.to(self.data.device) for name, tensor in weights.items()})

    @property
    def batch_size(self) -> int:
        """Items per step. Many small graphs are trained on in batches, one graph's nodes all at once."""
        return self.config.batch_size or (GRAPH_BATCH if self.silo.schema.task == "graph" else 0)

    def download(self, weights: Tensors) -> None:
        """Begin a round with the server's weights: they replace the client's own, and the optimiser forgets its
        moments where ``reset_optimizer`` says so."""
        load_weights(self.common_weights, weights, names=self.shared)
        if self.config.reset_optimizer:
            self.trainer.optimizer.reset()

    def upload(self) -> dict[str, Tensor]:
        """The weights named by ``shared``, to be sent: the model's own tensors, not copies."""
        return {name: self.common_weights[name] for name in self.shared}

    @property
    def shared(self) -> Collection[str]:
        """Names of the tensors that the server has a say in: all of them, unless a method keeps some to its clients.

        What is downloaded, and what the server's model replaces in evaluation, has exactly these names.
        """
        return self.common_weights.keys()

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        with torch.no_grad():
            if view == "own":
                own: Tensor = self.model(data.full)
                return own
            with borrow(self.common_weights, self._aggregate or {}):
                logits: Tensor = self.common(data.full)
        return logits

    def install_aggregate(self, weights: Tensors) -> None:
        # Kept as received: views of one broadcast that all clients of a process share, not a copy for each.
        check_weights(self.common_weights, weights, names=self.shared)
        self._aggregate = {name: tensor.to(self.data.device) for name, tensor in weights.items()}

    def final_models(self) -> dict[str, Tensors]:
        return {"own": self.weights}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        load_weights(self.weights, models["own"])

    def embed(self, data: GraphTensors) -> Tensor | None:
        return self.model.embed(data.full)


AveragedConfigT = TypeVar("AveragedConfigT", bound=AveragedTrainingConfig)


class AveragedTrainingClient(TrainingClient[AveragedConfigT], Generic[AveragedConfigT]):
    """Counts in a mean, and samples neighbours where its settings say so."""

    @property
    def weight(self) -> float:
        """Weight in the server's mean."""
        return client_weight(self.config.weight_by, self.trainer.objective.num_samples, self.silo.num_items)

    def objective_on(self, data: GraphTensors) -> Objective:
        return objective(data, self.silo, self.fan_out, self.item_loss)

    @property
    def fan_out(self) -> tuple[int, ...]:
        """Neighbours to sample per layer, from the items outwards; () for all of them."""
        model, schema = self.context.model.name, self.silo.schema
        return neighbours_per_layer(self.config.fan_out, model, self.model.message_layers, schema.task)


def client_weight(by: str, samples: int, items: int) -> float:
    """Weight in the server's mean; 0, hence left out, for a client with nothing to train on.

    Args:
        by: ``train``, ``nodes`` or ``uniform``.
        samples: What it trains on.
        items: All its nodes (graphs).
    """
    return float({"train": samples, "nodes": items, "uniform": 1}[by]) if samples else 0.0
