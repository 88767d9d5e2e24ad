"""What silos exchange before FedGCN's first round. Nodes are named by the ids that silos know them by."""

from __future__ import annotations

import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.borders import check_border
from graphsilo.federation.message import Message, sends


class Empty(Message):
    """Nothing to say."""


class Border(Message):
    """Which nodes the links between silos join.

    Attributes:
        own: Own nodes with links to other silos.
        degrees: Their degrees in the whole graph, with a loop.
        beyond: The nodes at the other ends.
    """

    own: Tensor = sends("topology", dtype=torch.int64, shape=("own",))
    degrees: Tensor = sends("topology", dtype=torch.int64, shape=("own",), relayed=True)
    beyond: Tensor = sends("topology", dtype=torch.int64, shape=("beyond",))

    def check(self) -> None:
        check_border(self)
        if bool((self.degrees < 2).any()):
            raise MessageError("a node of a border has a link and a loop, hence a degree of 2 at least.")


class Degrees(Message):
    """Degrees of the nodes beyond the border, in the order in which they were named; 0 where nobody says."""

    degrees: Tensor = sends("topology", dtype=torch.int64, shape=("beyond",))


class Sums(Message):
    """Σ_j Â_ij x_j over own nodes j, for the nodes i of the border and beyond it: of one neighbour, its features."""

    ids: Tensor = sends("topology", dtype=torch.int64, shape=("nodes",))
    rows: Tensor = sends("statistic", shape=("nodes", "features"), per_class=False, recoverable=True)


class Totals(Message):
    """The same over everybody's nodes j: for the nodes of the border, and with two hops for those beyond it."""

    rows: Tensor = sends("statistic", shape=("nodes", "features"))
