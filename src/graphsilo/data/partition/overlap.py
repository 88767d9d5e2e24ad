"""Overlapping clients: Metis parts, each shared by several clients that hold a random half of it.

Source: FED-PUB (Baek et al., ICML 2023): K/5 parts, five clients per part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.partition.cut import Cut
from graphsilo.data.partition.metis import MetisOptions
from graphsilo.data.partition.metis import cut as metis_cut
from graphsilo.errors import ConfigError, PartitionError
from graphsilo.random import numpy_generator


@dataclass(frozen=True)
class OverlapOptions:
    """Settings of the overlapping split.

    Attributes:
        per_part: Clients that share one part.
        share: Share of the part's nodes that each of them holds.
        recursive: See ``metis``.
        cut_seed: Another cut of the same graph; see ``metis``.
    """

    per_part: int = 5
    share: float = 0.5
    recursive: bool | None = None
    cut_seed: int | None = None


def cut(graph: Graph, clients: int, seed: int, options: OverlapOptions) -> Cut:
    """Cut into K / ``per_part`` parts; client i draws its nodes from part i // ``per_part``, without replacement.

    Raises:
        ConfigError: ``share`` is not above 0 and at most 1, or ``per_part`` is below 1.
        PartitionError: K is not a multiple of ``per_part``, or a share holds no node.
    """
    if not 0 < options.share <= 1 or options.per_part < 1:
        raise ConfigError(
            f"the overlap partition needs share above 0 and at most 1, and per_part of at least 1; got share "
            f"{options.share:g} and per_part {options.per_part}."
        )
    if clients % options.per_part:
        raise PartitionError(
            f"partition 'overlap' puts {options.per_part} clients on each part, so the number of clients must be a "
            f"multiple of {options.per_part}; got {clients}. Change the clients or per_part."
        )
    inner = MetisOptions(recursive=options.recursive, cut_seed=options.cut_seed)
    parts = metis_cut(graph, clients // options.per_part, seed, inner).nodes
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
