"""What FedSage+'s clients and server send each other."""

from __future__ import annotations

import torch
from torch import Tensor

from graphsilo.federation.message import Message, Tensors, sends

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
    predicted: float = sends("counts", whole=False)


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

    gradient: Tensors = sends(
        "gradient", like="weights", only_with=_WEIGHTS,
        recoverable="where few rows were compared, or such as the coordinator made up",
    )  # fmt: skip


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
