"""What silos tell each other of the nodes that several of them hold, beside the shared model."""

from __future__ import annotations

import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.message import Message, sends
from graphsilo.methods import fedavg


class Nodes(Message):
    """What a silo's nodes are called at every silo; none where its ids are its own."""

    ids: Tensor = sends("topology", dtype=torch.int64, shape=("nodes",), only_with={"shared": True})

    def check(self) -> None:
        if bool((self.ids[1:] <= self.ids[:-1]).any()):
            raise MessageError("nodes are named in ascending order, each once.")


class Shared(Message):
    """Those of a silo's nodes that others hold, too, ascending: what is said of them is asked for."""

    ids: Tensor = sends("topology", dtype=torch.int64, shape=("shared",))


class TrainRequest(fedavg.TrainRequest):
    """The shared model, and what silos together say of the nodes that the client shares with others.

    Attributes:
        renew: Whether predictions and embeddings after this training are the next ones.
        ids: The shared nodes, ascending.
        labels: Their pseudo labels; -1 where there is none.
        embeddings: Their mean embeddings; 0 where nobody has sent one.
    """

    renew: bool = sends("control")
    ids: Tensor | None = sends("topology", dtype=torch.int64, shape=("shared",), default=None)
    labels: Tensor | None = sends("logits", dtype=torch.int64, shape=("shared",), default=None)
    embeddings: Tensor | None = sends("embedding", shape=("shared", "width"), default=None)


class Rows(Message):
    """Something of each shared node, and a last column of 1; times the client's weight."""

    ids: Tensor = sends("topology", dtype=torch.int64, shape=("shared",), only_with={"shared": True})

    def check_answer(self, request: Message) -> None:
        assert isinstance(request, Shared)
        if not torch.equal(self.ids, request.ids):
            raise MessageError(f"{type(self).__name__}.ids are not those that were asked for.")

    def check_size(self, request: Message, items: float, degrees: float) -> None:
        weight: Tensor = self.rows[:, -1]  # type: ignore[attr-defined]
        if bool(((weight < 0) | (weight > items)).any()):
            raise MessageError(
                f"a silo of {items:g} items counts from 0 to {items:g} times; {float(weight.min()):g} to "
                f"{float(weight.max()):g} came."
            )


class Predictions(Rows):
    """The probabilities of its classes, 0 below the threshold."""

    rows: Tensor = sends("logits", shape=("shared", "columns"), only_with={"shared": True}, compared=False)

    def check(self) -> None:
        if bool((self.rows < 0).any()) or bool((self.rows[:, :-1].sum(1) > (1 + 1e-4) * self.rows[:, -1]).any()):
            raise MessageError("probabilities of a node's classes are at least 0, and add up to 1 at most.")


class Embeddings(Rows):
    """Its embedding."""

    rows: Tensor = sends("embedding", shape=("shared", "columns"), only_with={"shared": True}, compared=False)
