"""What FedGM's clients and server send each other."""

from __future__ import annotations

import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.candidates import CandidatesRequest
from graphsilo.federation.message import Message, Tensors, sends

# No product of these that a step forms leaves float32.
_LARGEST_FEATURE, _LARGEST_GRADIENT = 1e9, 1e16


class CondensedGraph(Message):
    """A client's condensed graph; its nodes stand in the order of their classes.

    Attributes:
        features: [n', d].
        sizes: [C] nodes of each class.
        links: [n' (n' − 1) / 2] the upper half of A', row by row; empty where there are no links.
    """

    features: Tensor = sends(
        "synthetic", shape=("nodes", "features"), per_class=True, largest=_LARGEST_FEATURE, recoverable="in part"
    )
    sizes: Tensor = sends("counts", dtype=torch.int64, shape=("classes",), per_class=True)
    links: Tensor = sends("synthetic", shape=("pairs",), per_class=True)

    def check(self) -> None:
        nodes, sized = len(self.features), int(self.sizes.sum())
        if sized != nodes or len(self.links) not in (0, nodes * (nodes - 1) // 2):
            raise MessageError(
                f"CondensedGraph has {nodes} nodes, {sized} in its classes, and {len(self.links)} pairs: every node is "
                f"of one class, and there are all pairs or none."
            )
        if bool(((self.links < 0) | (self.links > 1)).any()):
            raise MessageError("CondensedGraph.links has a weight that is not from 0 to 1.")

    def check_size(self, request: Message, items: float, degrees: float) -> None:
        if len(self.features) > items:
            raise MessageError(f"CondensedGraph has {len(self.features)} nodes, made of {items:g} at most.")


class GradientRequest(Message):
    """A random network: ``first`` [d + 1, h] and ``second`` [h + 1, C], biases in the last rows."""

    network: Tensors = sends("model")


class GradientReply(Message):
    """Class gradients of both layers, [C, ...] each, times the condensed nodes that the client has of the class.

    Attributes:
        gradients: By layer.
        sizes: [C] these nodes.
    """

    gradients: Tensors = sends(
        "gradient", per_class=True, largest=_LARGEST_GRADIENT, recoverable="where a class has few nodes"
    )
    sizes: Tensor = sends("counts", dtype=torch.int64, shape=("classes",), per_class=True)

    def check_answer(self, request: Message) -> None:
        assert isinstance(request, GradientRequest)
        classes = request.network["second"].shape[1]
        wanted = {name: (classes, *layer.shape) for name, layer in request.network.items()}
        if {name: tuple(layer.shape) for name, layer in self.gradients.items()} != wanted or len(self.sizes) != classes:
            raise MessageError(f"GradientReply is not of {classes} classes, or of other layers than the network's.")

    def check_size(self, request: Message, items: float, degrees: float) -> None:
        if int(self.sizes.sum()) > items:
            raise MessageError(f"GradientReply counts {int(self.sizes.sum())} nodes, made of {items:g} at most.")


class ScoreRequest(CandidatesRequest):
    """Models to be scored: their weights, [models, ...] each."""

    candidates: Tensors = sends("model")

    def count_models(self) -> tuple[int, ...]:
        return (len(next(iter(self.candidates.values()))),)


class ModelRequest(Message):
    """The server's model."""

    weights: Tensors = sends("model")
