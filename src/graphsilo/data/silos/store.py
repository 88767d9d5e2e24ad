"""Silos on disk for other processes of the same machine: plain arrays that can be mapped instead of copied.

Each distinct graph is written once, however many evaluation sets and clients refer to it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.schema import NAMES
from graphsilo.data.silos.silo import CutLinks, EvaluationSet, Links, Schema, Silo
from graphsilo.data.sources.files import graph_of, parts_of
from graphsilo.data.truth import words_of
from graphsilo.types import ClientId


class SiloStore:
    """A folder of silos.

    Args:
        folder: Where they are; written by one process, read by others.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._written: dict[int, tuple[str, Graph | GraphCollection]] = {}
        # Only what somebody holds: a silo that is put away takes its graphs along.
        self._read: WeakValueDictionary[str, Graph | GraphCollection] = WeakValueDictionary()

    def write(self, silo: Silo) -> None:
        """Add a silo."""
        self.folder.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, np.ndarray] = {"train": silo.train}
        if silo.noisy_labels is not None:
            arrays["noisy_labels"] = silo.noisy_labels
        evaluations = []
        for number, evaluation in enumerate(silo.evaluations):
            for kind, items in evaluation.items.items():
                arrays[f"items-{number}-{kind}"] = items
            if evaluation.part is not None:
                arrays[f"part-{number}"] = evaluation.part
            evaluations.append(
                {"name": evaluation.name, "graph": self._write_graph(evaluation.graph), "kinds": list(evaluation.items)}
            )
        for group, held in (("links", silo.links), ("cut", silo.cut)):
            if held is not None:
                arrays |= {f"{group}-{key}": array for key, array in vars(held).items()}
        head = {
            "graph": self._write_graph(silo.graph),
            "evaluations": evaluations,
            "schema": asdict(silo.schema),
            "parts": silo.parts,
            "facts": dict(silo.facts),
            "fills": None if silo.fills is None else dict(silo.fills),
            "estimated": list(silo.estimated),
            "shares_ids": silo.shares_ids,
        }
        self._put(f"silo-{silo.client}", head, arrays)

    def clients(self) -> list[ClientId]:
        """Whose silos are here, ascending."""
        numbers = [path.stem.removeprefix("silo-") for path in self.folder.glob("silo-*.json")]
        return sorted(int(number) for number in numbers if number.isdecimal())

    def read(self, client: ClientId) -> Silo:
        """The silo of one client, its arrays mapped copy-on-write."""
        head, arrays = self._get(f"silo-{client}")
        schema = {**asdict(Schema("node", 0, 0)), **head["schema"]}  # older ones say nothing of tables
        for key in NAMES:
            schema[key] = None if schema[key] is None else tuple(schema[key])
        schema["ends"] = tuple(map(tuple, schema["ends"]))
        schema["booleans"] = words_of(schema["booleans"])
        links = {key.removeprefix("links-"): array for key, array in arrays.items() if key.startswith("links-")}
        cut = {key.removeprefix("cut-"): array for key, array in arrays.items() if key.startswith("cut-")}
        return Silo(
            client=client,
            graph=self._read_graph(head["graph"]),
            train=arrays["train"],
            evaluations=tuple(
                EvaluationSet(
                    name=item["name"],
                    graph=self._read_graph(item["graph"]),
                    items={kind: arrays[f"items-{number}-{kind}"] for kind in item["kinds"]},
                    part=arrays.get(f"part-{number}"),
                )
                for number, item in enumerate(head["evaluations"])
            ),
            schema=Schema(**schema),
            links=Links(**links) if links else None,
            parts=head["parts"],
            noisy_labels=arrays.get("noisy_labels"),
            facts=head["facts"],
            fills=head["fills"],
            estimated=tuple(head["estimated"]),
            cut=CutLinks(**cut) if cut else None,
            shares_ids=head.get("shares_ids", False),
        )

    def _put(self, name: str, head: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        for key, array in arrays.items():
            np.save(self.folder / f"{name}.{key}.npy", array, allow_pickle=False)
        text = json.dumps({**head, "arrays": list(arrays)})
        (self.folder / f"{name}.json").write_text(text, encoding="utf-8")

    def _get(self, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        head = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        return head, {key: self._array(f"{name}.{key}") for key in head["arrays"]}

    def _array(self, name: str) -> np.ndarray:
        """An array in a file, mapped copy-on-write.

        numpy's own mapping keeps the file open, and a thousand silos of a dozen arrays are more files than a process
        may have open; torch's does not.
        """
        import torch

        path = self.folder / f"{name}.npy"
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
            start, size = file.tell(), os.fstat(file.fileno()).st_size
        count = int(np.prod(shape, dtype=np.int64))
        if dtype.hasobject or size != start + count * dtype.itemsize:
            raise ValueError(f"{path} is not an array of plain values")
        whole = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8).numpy()
        # Over a buffer, not as a view of all the bytes: scipy copies what looks like a small part of a larger array.
        array: np.ndarray = np.frombuffer(whole.data, dtype, count, start)
        return array.reshape(shape, order="F" if fortran else "C")

    def _write_graph(self, graph: Graph | GraphCollection) -> str:
        if id(graph) in self._written:
            return self._written[id(graph)][0]
        name = f"graph-{len(self._written)}"
        # The graph is kept beside its name: an id is only unique while the object lives.
        self._written[id(graph)] = (name, graph)
        head, arrays = parts_of(graph)
        self._put(name, head, arrays)
        return name

    def _read_graph(self, name: str) -> Graph | GraphCollection:
        known = self._read.get(name)
        if known is not None:
            return known
        graph = graph_of(*self._get(name))
        self._read[name] = graph
        return graph
