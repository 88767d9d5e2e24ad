"""A network as plain values and arrays, of which an export makes it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor

from graphsilo.errors import UnsupportedError
from graphsilo.federation.client import ClientBase, build_model
from graphsilo.federation.message import Tensors
from graphsilo.federation.training_client import TrainingClient
from graphsilo.models.base import Model
from graphsilo.models.finished import dense_layers
from graphsilo.models.registry import built_in, listing
from graphsilo.random import generator
from graphsilo.training.local import tensors_of


class Deciding(NamedTuple):
    """What scores graphs that a client has not seen.

    Attributes:
        model: A backbone of graphsilo's.
        weights: Its parameters and float buffers by name; others are left out.
        head: How its rows are scored, ``kind`` and the numbers for it; empty: they are logits. ``nearest`` (of
            ``prototypes`` [C, p], those ``present``) and ``votes`` (by ``voters`` prototypes [m, p], of a
            ``temperature``) look at embeddings, ``cosines`` (to ``prototypes`` [C, p], times ``scale``) at outputs.
    """

    model: Model
    weights: Tensors
    head: Mapping[str, Any] = {}

    def inner(self, name: str, head: Mapping[str, Any] | None = None) -> Deciding:
        """A part of the model, by its name, with what is made of its rows."""
        start = f"{name}."
        within = {key.removeprefix(start): value for key, value in self.weights.items() if key.startswith(start)}
        return Deciding(getattr(self.model, name), within, head or {})


def trained_network(client: ClientBase[Any], view: str) -> Deciding | None:
    """The model of a ``TrainingClient``; None of another, and of a common model that is not the own one."""
    if not isinstance(client, TrainingClient) or (view != "own" and client.common is not client.model):
        return None
    weights = client.weights if view == "own" else {**client.common_weights, **(client._aggregate or {})}
    return Deciding(client.model, weights)


def portable_network(client: ClientBase[Any], view: str) -> list[dict[str, Any]]:
    """As ``ClientBase.portable``, of a client whose scores are those of one of graphsilo's networks.

    Raises:
        UnsupportedError: They are not; says why.
    """
    found = client.network_of(view) if _says_what_it_predicts_by(type(client)) else None
    spec, schema = client.context.model, client.silo.schema
    like = None
    if found is not None and listing(spec.name).name in built_in():
        wide = replace(schema, num_classes=found.model.num_classes)
        like = build_model(spec, wide, generator(0, "model"), client.context.device)
    if (
        found is None
        or type(like) is not type(found.model)
        or not tensors_of(like).keys() <= dict(found.weights).keys()
    ):
        name = type(client).__module__.removeprefix("graphsilo.methods.").split(".")[0]
        why = f"'{spec.name}' is a backbone of your own" if found is not None and like is None else client.no_export
        raise UnsupportedError(f"{name} has no export: {why}. `graphsilo predict --graph` asks any model of a run.")
    weights = {name: found.weights[name] for name in tensors_of(found.model)}
    return [{
        "kind": "network", "model": spec.name, "settings": dict(spec.settings), "precision": spec.precision,
        "outputs": found.model.num_classes, "head": {name: _plain(value) for name, value in found.head.items()},
        "weights": {name: _plain(weight) for name, weight in weights.items()},
        "layers": [] if found.head else [
            [_plain(part) for part in layer] for layer in dense_layers(found.model, client.data.full, weights)
        ],
    }]  # fmt: skip


def _plain(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def _says_what_it_predicts_by(kind: type) -> bool:
    """Whether ``network_of`` is said by the class that says ``predict``, or by one that knows it."""
    order = [{"predict", "network_of"} & vars(part).keys() for part in kind.__mro__ if part is not ClientBase]
    first: set[str] = next((names for names in order if names), set())
    return "network_of" in first or getattr(kind, "predict", None) is TrainingClient.predict
