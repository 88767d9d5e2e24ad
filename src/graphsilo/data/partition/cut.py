"""What a cutting rule returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.partition.splits import Split
from graphsilo.types import NodeIds


@dataclass(frozen=True, eq=False)
class Cut:
    """The nodes of each client, and what a rule adds beside them.

    Attributes:
        nodes: Global ids of each client, in the client's own order.
        added_edges: [2, m_k] new links of each client in global ids, each once, or None.
        splits: Splits that the rule brings itself (a stored partition), or None.
        new_part: Nodes of a client that never trains, or None (a stored partition).
        cropped: Nodes kept away from everyone until test time, or None (a stored partition).
    """

    nodes: tuple[NodeIds, ...]
    added_edges: tuple[NDArray[np.int64], ...] | None = None
    splits: tuple[Split, ...] | None = None
    new_part: NodeIds | None = None
    cropped: NodeIds | None = None
