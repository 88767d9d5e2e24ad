"""Reads a partition from its file, whose form :mod:`graphsilo.data.partition.artefact` describes."""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.arrays import read_npz
from graphsilo.data.partition.artefact import FORMAT, PARTS, Partition
from graphsilo.errors import PartitionError


def read(path: Path, num_nodes: int | None) -> Partition:
    """As ``Partition.load``."""
    arrays = _read_arrays(path)
    header: dict[str, Any] = {}
    if "header" in arrays:
        try:
            header = json.loads(str(arrays.pop("header")))
            version = int(header["format"])
        except (ValueError, KeyError, TypeError) as error:
            raise PartitionError(f"{path}: the header is damaged ({error}); cut again.") from error
        if version > FORMAT:
            raise PartitionError(f"{path} has format {version}; this version reads up to {FORMAT}: update it.")
    return _assemble(path, arrays, header, num_nodes)


def _assemble(path: Path, arrays: dict[str, NDArray[Any]], header: dict[str, Any], num_nodes: int | None) -> Partition:
    for name, array in arrays.items():
        dimensions = 2 if name.startswith("added_") else 1
        if not np.issubdtype(array.dtype, np.integer) or array.ndim != dimensions:
            raise PartitionError(f"{path}: '{name}' must hold whole numbers; got {array.dtype} {array.shape}.")
    clients = sum(name.startswith("nodes_") for name in arrays)
    wanted = [f"nodes_{client}" for client in range(clients)]
    if any(name.startswith(("train_", "val_", "test_")) for name in arrays):
        wanted = [f"{part}_{client}" for part in PARTS for client in range(clients)]
    absent = [name for name in wanted if name not in arrays]
    if not clients or absent:
        raise PartitionError(
            f"{path} is not a partition: {absent[0] if absent else 'nodes_0'} is missing. Wanted: nodes_k, "
            f"train_k, val_k, test_k for k = 0, 1, …"
        )
    empty = np.zeros(0, dtype=np.int64)
    parts = {
        part: tuple(arrays.get(f"{part}_{client}", empty).astype(np.int64) for client in range(clients))
        for part in PARTS
    }
    added = [arrays[f"added_{i}"].astype(np.int64) for i in range(clients + 1) if f"added_{i}" in arrays]
    largest = max((int(part.max()) + 1 for part in parts["nodes"] if len(part)), default=0)
    options = dict(header.get("options", {}))
    ratios = header.get("ratios")
    result = Partition(
        rule=str(header.get("rule", "files")),
        seed=int(header.get("seed", 0)),
        data=str(header.get("data", path.stem)),
        num_nodes=int(header["num_nodes"]) if "num_nodes" in header else (num_nodes or largest),
        nodes=parts["nodes"],
        train=parts["train"],
        val=parts["val"],
        test=parts["test"],
        options=options,
        split=str(header.get("split", "stored")),
        ratios=None if ratios is None else (float(ratios[0]), float(ratios[1]), float(ratios[2])),
        kind="graph" if header.get("kind") == "graph" else "node",
        new_part=arrays["new_part"].astype(np.int64) if "new_part" in arrays else None,
        cropped=arrays["cropped"].astype(np.int64) if "cropped" in arrays else None,
        added_edges=tuple(added) if added else None,
    )
    if "sha256" in header and header["sha256"] != result.content_hash:
        raise PartitionError(f"{path} was changed after it was written (its sha256 does not fit): cut again.")
    return result


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Every array of an .npz.

    Raises:
        PartitionError: The file is missing or damaged, or something else.
    """
    if path.is_dir():
        raise PartitionError(f"the partition {path} is a folder; name a file in it, such as {path / 'partition.npz'}.")
    try:
        with path.open("rb") as file:
            start = file.read(4)
        if not start.startswith(b"PK"):
            raise PartitionError(
                f"{path} is not a stored partition: an .npz was wanted, such as `graphsilo partition --out FILE.npz` "
                f"writes. A table with one client number per node is named by partition.path={path}, together with "
                f"the rule 'files'."
            )
        return read_npz(path)
    except FileNotFoundError:
        raise PartitionError(f"the partition {path} does not exist; `graphsilo partition` writes one.") from None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        reason = "it holds Python objects" if "pickle" in str(error) else str(error).rstrip(".")
        raise PartitionError(
            f"{path} cannot be read as a partition ({reason}): the file is damaged, or not an .npz of plain arrays. "
            f"Write it again with `graphsilo partition`."
        ) from error
