"""A cut that was made elsewhere: a stored partition, or one client number per node."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.arrays import read_npy
from graphsilo.data.graph import Graph
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.partition.own import client_numbers, cut_by_owner
from graphsilo.data.partition.rule import Cut, PartitionOptions, Rule
from graphsilo.errors import ConfigError, PartitionError
from graphsilo.settings import setting

GIVEN = "given-clients.npy"
"""What client numbers that a call gave in memory are kept as."""


class FilesOptions(PartitionOptions):
    """Settings of the stored split."""

    path: str = setting(
        "", "a partition written by `graphsilo partition` (.npz; also with no more than nodes_k, or with nodes_k, "
        "train_k, val_k and test_k), or a table with one client number per node, -1 for a node of no client (.npy, or "
        "text with one number per line, an optional heading first)",
    )  # fmt: skip


def load_owners(path: Path) -> NDArray[np.int64]:
    """[n] client of each node from a .npy or text file.

    Raises:
        PartitionError: The file is missing or holds something else.
    """
    try:
        if path.suffix == ".npy":
            owners = read_npy(path)
        else:
            owners = _parse_owners(path, path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise PartitionError(f"the table of client numbers {path} does not exist.") from None
    except (OSError, ValueError, EOFError) as error:
        reason = "it is no text in UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        if path.suffix == ".npy":
            reason = "it is damaged, or no .npy of plain numbers"
        raise PartitionError(
            f"{path}: one client number per node was wanted, but the file cannot be read so ({reason}). Give a text "
            f"file with one number per line, or a .npy or .npz file."
        ) from error
    return client_numbers(owners, f"{path}: a client number per node")


def _parse_owners(path: Path, text: str) -> NDArray[np.int64]:
    rows = [(number, line.strip().rstrip(",")) for number, line in enumerate(text.splitlines(), start=1)]
    rows = [row for row in rows if row[1]]
    if rows and not _WHOLE.fullmatch(rows[0][1]):
        rows = rows[1:]
    for place, (number, word) in enumerate(rows, start=1):
        if not _WHOLE.fullmatch(word):
            several = any(sign in word for sign in ",;\t ")
            advice = "Keep the column of client numbers only, " if several else "Correct it: one number per line, "
            shown = word if len(word) <= 60 else word[:59] + "…"
            raise PartitionError(
                f"{path}: row {place} (line {number}) is '{shown}', where one whole client number was wanted. {advice}"
                f"in the order of the nodes, -1 for a node of no client; one heading may come first."
            )
    return np.array([int(word) for _, word in rows], dtype=np.int64)


_WHOLE = re.compile(r"-?\d{1,18}")


def cut(graph: Graph, clients: int | None, seed: int, options: FilesOptions) -> Cut:
    """Read the cut, and its splits where the file holds them; without a number of clients it has as many as there are.

    Raises:
        ConfigError: No path was given.
        PartitionError: The file is missing or damaged, or does not fit the graph or the number of clients.
    """
    if not options.path:
        raise ConfigError("partition 'files' needs the option path: a partition .npz or a table of client numbers.")
    path = Path(options.path)
    if path.suffix == ".npz":
        stored = Partition.load(path, num_nodes=graph.num_nodes)
        if clients not in (None, stored.num_clients):
            raise PartitionError(
                f"{path} holds {stored.num_clients} clients, {clients} were asked for: ask for {stored.num_clients}, "
                f"or cut again."
            )
        stored.check(graph)
        splits = tuple(zip(stored.train, stored.val, stored.test, strict=True)) if stored.has_splits else None
        return Cut(
            stored.nodes,
            added_edges=stored.added_edges,
            splits=splits,
            new_part=stored.new_part,
            cropped=stored.cropped,
        )
    owners, what = load_owners(path), "the partition that was given" if path.name == GIVEN else str(path)
    return cut_by_owner(owners, graph.num_nodes, what, graph.name, clients)


RULES = (
    Rule("files", "a stored partition, or a table with one client number per node", FilesOptions, cut, counts=True),
)
