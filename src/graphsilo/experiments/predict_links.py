"""Which pairs of nodes are likeliest linked, by the model of a saved run that predicts links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from graphsilo.errors import ConfigError, several
from graphsilo.experiments.predict import open_member

_ROWS = 256
"""Nodes that are held against all others at a time."""


@dataclass(frozen=True, eq=False)
class LinkPrediction:
    """For each node asked for those that it is likeliest linked with, and is not in the tables.

    Attributes:
        nodes, others: [m] what the user calls both ends; the first are in the order asked for, each with its likeliest
            others first.
        scores: [m] in (0, 1): the model held links against as many random pairs, so these order pairs, and are no share
            of them.
        on, by: Whose graph and whose model, in words.
    """

    nodes: NDArray[np.str_]
    others: NDArray[np.str_]
    scores: NDArray[np.float32]
    on: str
    by: str


def predict_links(
    run_dir: str | Path, *, client: int | str | None = None, nodes: Sequence[str] | None = None, top: int = 10,
    seed: int | None = None, checkpoint: str = "best", model: str | None = None,
) -> LinkPrediction:  # fmt: skip
    """Score pairs of a client's nodes as the run scored them: messages pass along its training links.

    Args:
        run_dir: Folder of the run, or of a silo's own results.
        client, seed, checkpoint, model: As for ``predict``.
        nodes: One end of the pairs, by the ids of the user's table; None: every node.
        top: How many others of each; fewer where it is linked with most.

    Raises:
        ConfigError: The run predicts no links; a node is not there.
        RunError: The data has changed since the run was trained.
    """
    asked = open_member(run_dir, client=client, seed=seed, checkpoint=checkpoint, model=model, links=True)
    asked.refuse_other_data()
    graph, links = asked.silo.graph, asked.silo.links
    assert links is not None
    ids = graph.external_ids.astype(np.str_)
    rows = np.arange(len(ids)) if nodes is None else _find(ids, nodes, asked.owner)
    with torch.no_grad():
        embedded = asked.client.predict(asked.client.tensors(graph), asked.view)
    known = np.concatenate([links.train, links.val, links.test], axis=1)
    ends = np.concatenate([known, known[::-1]], axis=1)
    found = []
    for part in np.array_split(rows, range(_ROWS, len(rows), _ROWS)):
        scores = embedded[torch.as_tensor(part)] @ embedded.T
        scores[torch.arange(len(part)), torch.as_tensor(part)] = -torch.inf
        for place, row in enumerate(part.tolist()):
            scores[place, torch.as_tensor(ends[1, ends[0] == row])] = -torch.inf
        best, others = scores.topk(min(top, len(ids)), dim=1)
        there = best > -torch.inf
        first = np.repeat(part, there.sum(dim=1).numpy())
        found.append((ids[first], ids[others[there].numpy()], torch.sigmoid(best[there]).numpy()))
    nodes_, others_, scored = (np.concatenate(each) for each in zip(*found, strict=True))
    return LinkPrediction(nodes_, others_, scored, f"{asked.owner}'s own graph", asked.words(checkpoint))


def _find(ids: NDArray[np.str_], nodes: Sequence[str], owner: str) -> NDArray[np.int64]:
    places = {name: place for place, name in enumerate(ids.tolist())}
    lost = [node for node in nodes if node not in places]
    if lost:
        raise ConfigError(
            f"{owner}'s own graph has no node {several(lost, 5)}; it holds {len(ids)} nodes such as {ids[0]}."
        )
    return np.array([places[node] for node in nodes], dtype=np.int64)
