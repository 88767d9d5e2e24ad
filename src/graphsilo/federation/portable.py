"""A network as plain values and arrays, of which an export makes it again."""

from __future__ import annotations

from typing import Any

from graphsilo.errors import UnsupportedError
from graphsilo.federation.client import ClientBase
from graphsilo.federation.training_client import TrainingClient
from graphsilo.models.finished import dense_layers
from graphsilo.models.registry import entry
from graphsilo.models.settings import BUILT_IN
from graphsilo.training.local import tensors_of


def portable_network(client: ClientBase[Any], view: str) -> list[dict[str, Any]]:
    """As ``ClientBase.portable``, of a client whose scores are those of one of graphsilo's networks.

    Raises:
        UnsupportedError: They are not.
    """
    if not isinstance(client, TrainingClient) or not _decides_alone(client, view):
        name = type(client).__module__.removeprefix("graphsilo.methods.").split(".")[0]
        raise UnsupportedError(
            f"{name}: an export is made of ridges, trees, or a network of graphsilo's that decides alone, and this "
            f"method scores otherwise. `graphsilo predict --graph` asks any model of a run."
        )
    spec = client.context.model
    weights = client.weights if view == "own" else {**client.common_weights, **(client._aggregate or {})}
    return [{
        "kind": "network", "model": spec.name, "settings": dict(spec.settings), "precision": spec.precision,
        "weights": {name: weight.detach().cpu().numpy() for name, weight in weights.items()},
        "layers": [
            [part.detach().cpu().numpy() for part in layer]
            for layer in dense_layers(client.model, client.data.full, weights)
        ],
    }]  # fmt: skip


def _decides_alone(client: TrainingClient[Any], view: str) -> bool:
    if type(client).predict is not TrainingClient.predict or (view != "own" and client.common is not client.model):
        return False
    like = ClientBase.build_model(client)
    same = type(like) is type(client.model) and tensors_of(like).keys() == client.weights.keys()
    return same and entry(client.context.model.name) in BUILT_IN
