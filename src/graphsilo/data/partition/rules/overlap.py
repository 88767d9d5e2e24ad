"""Overlapping clients: Metis parts, each shared by several clients that hold a random half of it.

Source: FED-PUB (Baek et al., ICML 2023): K/5 parts, five clients per part.
"""

from __future__ import annotations

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.partition.rule import Cut, Rule
from graphsilo.data.partition.rules.metis import PartOptions, filled_parts
from graphsilo.errors import PartitionError
from graphsilo.random import numpy_generator
from graphsilo.settings import setting


class OverlapOptions(PartOptions):
    """Settings of the overlapping split."""

    per_part: int = setting(5, "clients that share one part", ge=1)
    share: float = setting(0.5, "share of the part's nodes that each of them holds", gt=0, le=1)


def cut(graph: Graph, clients: int, seed: int, options: OverlapOptions) -> Cut:
    """Cut into K / ``per_part`` parts; client i draws its nodes from part i // ``per_part``, without replacement.

    Raises:
        PartitionError: K is not a multiple of ``per_part``, or a share holds no node.
    """
    if clients % options.per_part:
        raise PartitionError(
            f"partition 'overlap' puts {options.per_part} clients on each part, so the number of clients must be a "
            f"multiple of {options.per_part}; got {clients}. Change the clients or per_part."
        )
    parts = filled_parts(graph, clients // options.per_part, options)
    nodes = []
    for client in range(clients):
        part = parts[client // options.per_part]
        size = int(options.share * len(part))
        if not size:
            raise PartitionError(
                f"partition 'overlap': a share of {options.share:g} of part {client // options.per_part} with "
                f"{len(part)} nodes is empty: ask for fewer clients or raise share."
            )
        generator = numpy_generator(seed, "partition", "overlap", client)
        nodes.append(np.sort(generator.choice(part, size=size, replace=False)))
    return Cut(tuple(nodes))


RULES = (
    Rule(
        "overlap",
        "five clients per Metis part, each with a random half of its nodes",
        OverlapOptions,
        cut,
        split="global",
        source="FED-PUB (Baek et al., ICML 2023)",
    ),
)
