"""What a call gives in memory: a graph, a partition, or client numbers become files, which the run keeps."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.partition import Partition, Rule
from graphsilo.data.partition.own import client_numbers
from graphsilo.data.partition.rules.files import GIVEN
from graphsilo.data.sources.files import save_graph
from graphsilo.data.sources.objects import graph_of, is_graph
from graphsilo.errors import ConfigError, unusable
from graphsilo.experiments.doors import Door

DATA, PARTITION = "data.npz", "partition.npz"
"""What a graph and a partition of a call's are called, beside its client numbers, ``GIVEN``."""
KINDS = (
    "a data set's name, a file, a table of settings, or a graph (graphsilo's, PyTorch Geometric's, NetworkX's, DGL's)"
)


def read_data(data: Any, call: Door, scratch: Path) -> Any:
    """What an argument says of the data.

    Raises:
        ConfigError: It is no name, file or graph.
        DataError: It is a graph that lacks a part.
    """
    if isinstance(data, Graph | GraphCollection) or is_graph(data):
        call.fresh.add("data")
        if isinstance(data, Graph | GraphCollection):
            # What was loaded is what is trained on: nothing is done to it on the way back in, unless this call says so.
            call.implied["data.undirected"] = False
        graph = graph_of(data)
        if isinstance(graph, GraphCollection):
            call.implied["task"] = "graph"  # by which methods choose their models
        return {"name": str(save_graph(scratch / DATA, graph))}
    if isinstance(data, list | tuple):
        return [_read_name(item, client) for client, item in enumerate(data)]
    if isinstance(data, Mapping):
        name = data.get("name", "")
        if isinstance(name, Graph | GraphCollection):
            return {**data, **read_data(name, call, scratch)}
        if is_graph(name):
            return {**data, "name": _save_graph(name, scratch)}
        if isinstance(name, list | tuple):
            return {**data, "name": [_read_name(item, client) for client, item in enumerate(name)]}
        return data if isinstance(name, str) else {**data, "name": _read_name(name, None)}
    if not isinstance(data, str | PathLike):
        raise unusable("graphsilo.run(data=...)", KINDS, data)
    return data


def _save_graph(data: Any, scratch: Path) -> str:
    return str(save_graph(scratch / DATA, graph_of(data)))


def _read_name(item: object, client: int | None) -> str:
    """A name or path as text; ``client`` is the place in a list of names, None outside of one."""
    if isinstance(item, str | PathLike):
        return str(fspath(item))
    where = "data['name']" if client is None else f"entry {client} of a list for data"
    if isinstance(item, Graph | GraphCollection):
        raise ConfigError(
            f"{where} must name a data set or file; got {item.name}, a {type(item).__name__} in memory. Write it with "
            f"graphsilo.data.save_graph('client{client}.npz', graph) and name the file; or give one graph as "
            f"data=graph, which the partition cuts."
        )
    raise unusable(f"graphsilo.run: {where}", "a data set's name or a file", item)


def read_partition(partition: Any, scratch: Path) -> Any:
    """What an argument says of the cut.

    Raises:
        ConfigError: It is nothing that can cut.
        PartitionError: It is no client number per node.
    """
    if isinstance(partition, Partition):
        partition.save(scratch / PARTITION)
        return {"file": str(scratch / PARTITION)}
    if isinstance(partition, PathLike):
        path = fspath(partition)
        return path if Path(path).suffix == ".py" else {"file": path}
    if isinstance(partition, str | Mapping | Rule) or inspect.isroutine(partition):
        return partition
    if isinstance(partition, list | tuple | np.ndarray) or hasattr(partition, "__array__"):
        return {"rule": "files", "path": str(save_numbers(partition, scratch))}
    wanted = (
        "a rule, a stored partition (.npz), a table of settings, a client number per node, or a function (graph, "
        "clients, seed)"
    )
    raise unusable("graphsilo.run(partition=...)", wanted, partition)


def save_numbers(numbers: Any, scratch: Path) -> Path:
    """A file with the client numbers of all nodes.

    Raises:
        PartitionError: They are something else.
    """
    np.save(scratch / GIVEN, client_numbers(numbers, "partition: a client number per node"))
    return scratch / GIVEN
