"""Why a saved run's model says what it says of a node: shares of columns and of neighbours, in the user's own words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import Silo
from graphsilo.errors import ConfigError
from graphsilo.experiments.predict import Member, open_member
from graphsilo.federation.scoring import probabilities
from graphsilo.models.node_columns import list_classified
from graphsilo.models.shares import Part, Shares
from graphsilo.models.view import GraphTensors
from graphsilo.types import TARGET_TASKS, ClientId


@dataclass(frozen=True)
class Reason:
    """What one column adds to a score.

    Attributes:
        column: In words.
        value: What it is for the node, in the units of the table; None where it is no number of it.
        usual: Its median over the silo's own nodes, where they have types those of the one that is classified.
        share: What it adds.
    """

    column: str
    value: float | None
    usual: float | None
    share: float


@dataclass(frozen=True)
class Neighbour:
    """What one node adds to a score.

    Attributes:
        node: What the user calls it.
        links: How many links away; 0 is the node itself, None where no path leads there.
        share: What it adds.
    """

    node: str
    links: int | None
    share: float


@dataclass(frozen=True)
class Why:
    """Why a node's score is what it is.

    Attributes:
        node: What the user calls it.
        of: The class, label or target that the score is of.
        score: Log-odds of the class against the mean of all others, or of the label; of a target the number itself, in
            its own unit, as are all shares of it.
        probability: Of the class or label; None of a number.
        base: The score that it is held against, that of ``against``.
        reasons: Shares of all columns, largest first.
        nodes: Shares of all nodes, largest first.
        ties: Pairs of nodes among ``nodes`` that a link joins.
        gap: What the score has beyond ``base`` and the shares; 0 where they are exact.
        by: By whose model, in words.
        against: In words.
    """

    node: str
    of: str
    score: float
    probability: float | None
    base: float
    reasons: tuple[Reason, ...]
    nodes: tuple[Neighbour, ...]
    ties: tuple[tuple[str, str], ...]
    gap: float
    by: str
    against: str

    @property
    def is_exact(self) -> bool:
        """Whether the shares add up to the score."""
        return self.gap == 0.0

    @property
    def title(self) -> str:
        """What the score is, and is held against, in words."""
        if self.probability is None:
            return f"estimate of '{self.of}' {self.score:,.5g}; {self.against}: {self.base:,.5g}"
        return (
            f"log-odds of '{self.of}' {self.score:+.3f} (probability {self.probability:.2f}); {self.against}: "
            f"{self.base:+.3f}"
        )

    def say(self, share: float) -> str:
        """A share with its sign and as many digits as tell something."""
        if self.probability is None:
            return f"{share:+,.0f}" if abs(share) >= 100 else f"{share:+.3g}"
        return f"{share:+.3f}"

    def __repr__(self) -> str:
        return f"Why(node={self.node!r}, of={self.of!r}, score={self.score:.3g}, base={self.base:.3g})"


NodeId: TypeAlias = "str | int"
DRAWN = 30
"""Nodes of a neighbourhood that are named, and whose links are looked for."""


def why(
    run_dir: str | Path,
    node: NodeId,
    *,
    client: ClientId | str | None = None,
    seed: int | None = None,
    checkpoint: str = "best",
    model: str | None = None,
    of: str | int | None = None,
) -> Why:
    """As ``graphsilo.why``."""
    asked = open_member(run_dir, client=client, seed=seed, checkpoint=checkpoint, model=model, node=str(node))
    asked.refuse_other_data()
    graph = asked.silo.seen.graph
    if not isinstance(graph, Graph):
        raise ConfigError(
            "the run is of whole graphs, and shares are known of nodes. `predict` has the graphs' scores."
        )
    known = graph.external_ids.astype(np.str_)
    places = np.flatnonzero(known == str(node))
    if len(places) != 1:
        several = f"{len(places)} nodes of {asked.owner} are called {node}" if len(places) else (
            f"node {node} is not on {asked.owner}'s own graph, which holds {len(known)} nodes such as {known[0]}"
        )  # fmt: skip
        raise ConfigError(f"{several}. `graphsilo predict --client` lists them all.")
    return explain_items(asked, places, of)[0]


def explain_items(asked: Member, items: NDArray[np.int64], of: str | int | None = None) -> list[Why]:
    """Why some items of a client's own graph have their scores.

    Args:
        asked: The client with its model.
        items: Their numbers in its graph.
        of: Class or target; None: of two classes the rarer one, of several the most probable, and the first target.
    """
    silo, graph = asked.silo, asked.silo.seen.graph
    assert isinstance(graph, Graph)
    data = asked.client.tensors(graph)
    with torch.no_grad():
        logits = asked.client.predict(data, asked.view)[torch.from_numpy(items)].double().cpu()
    chosen = [_class_of(silo, each, of) for each in logits]
    found: dict[int, Why] = {}
    for number in sorted(set(chosen)):
        which = np.flatnonzero(np.array(chosen) == number)
        contrast = _contrast(silo, number)
        for place, shares in zip(
            which, asked.client.explain(data, items[which], contrast, asked.view), strict=True
        ):  # fmt: skip
            found[int(place)] = _in_words(asked, data, int(items[place]), number, logits[place], shares)
    return [found[place] for place in range(len(items))]


def _contrast(silo: Silo, number: int) -> torch.Tensor:
    """[C] a score is the logits times these: a class less the mean of all others."""
    classes = silo.schema.num_classes
    if silo.schema.task in TARGET_TASKS:
        return torch.eye(classes, dtype=torch.float64)[number]
    found = torch.full((classes,), -1.0 / max(classes - 1, 1), dtype=torch.float64)
    found[number] = 1.0
    return found


def _class_of(silo: Silo, logits: torch.Tensor, of: str | int | None) -> int:
    names = list(silo.schema.class_names or [])
    classes = silo.schema.num_classes
    if of is not None:
        text = str(of)
        if text in names:
            return names.index(text)
        if text.isdecimal() and int(text) < classes:
            return int(text)
        known = ", ".join(names) if names else f"0 to {classes - 1}"
        raise ConfigError(
            f"a score is asked of '{of}', and the run has classes (or targets) {known}. Name one of them."
        )
    if silo.schema.task in TARGET_TASKS:
        return 0
    if classes == 2:
        counts = np.bincount(silo.labels[silo.train], minlength=2)
        return int(counts[1] <= counts[0])
    return int(logits.argmax())


def _in_words(
    asked: Member, data: GraphTensors, item: int, number: int, logits: torch.Tensor, shares: Shares
) -> Why:  # fmt: skip
    silo, graph, like_it = asked.silo, data.graph, list_classified(data)
    known = graph.external_ids.astype(np.str_)
    names = silo.schema.class_names
    unit, shift = _unit(silo, number)
    order = np.argsort(-np.abs(shares.node_shares), kind="stable")
    away = _links_away(graph, item)
    nodes = tuple(
        Neighbour(str(known[node]), away.get(int(node)), float(share) * unit)
        for node, share in zip(shares.nodes[order], shares.node_shares[order], strict=True)
    )
    score = float(logits @ _contrast(silo, number)) * unit + shift
    drawn = np.union1d(shares.nodes[order[:DRAWN]], [item])
    inside = np.isin(graph.edges, drawn).all(axis=0)
    ties = sorted({tuple(sorted((str(known[a]), str(known[b])))) for a, b in graph.edges[:, inside].T if a != b})
    probability = None
    if silo.schema.task != "regression":
        chances = logits.sigmoid() if silo.schema.task == "multilabel" else probabilities(logits[None])[0]
        probability = float(chances[number])
    parts = sorted(shares.parts, key=lambda part: -abs(part.share))
    reasons = tuple(
        _reason(silo, part, item, unit, like_it if place < DRAWN else None) for place, part in enumerate(parts)
    )
    return Why(
        node=str(known[item]), of=names[number] if names else str(number), score=score, probability=probability,
        base=shares.base * unit + shift, reasons=reasons, nodes=nodes, ties=tuple((a, b) for a, b in ties),
        gap=shares.gap * unit,
        by=f"{asked.owner}'s own model" if asked.whose == "own" else "the common model", against=shares.against,
    )  # fmt: skip


def _unit(silo: Silo, number: int) -> tuple[float, float]:
    """What a model's number of a target is multiplied by, and what is added, to have it in the target's own unit."""
    scale = None if silo.scale is None else silo.scale.targets
    if silo.schema.task != "regression" or scale is None:
        return 1.0, 0.0
    return 1.0 / float(scale.factor[number]), float(scale.shift[number])


def _reason(silo: Silo, part: Part, item: int, unit: float, like_it: NDArray[np.int64] | slice | None) -> Reason:
    """Numbers are looked up for the first ones, and of nodes ``like_it``: each takes its whole column."""
    share = part.share * unit
    if part.read is None or like_it is None:
        return Reason(part.name, None, None, share)
    values = part.read()
    # A shop has no balance: the 0 that it has in such a column is the mean of those that have one.
    value, usual = float(values[item]), float(np.median(values[like_it]))
    scale = silo.scale
    if part.feature is not None and scale is not None and len(scale.factor) and scale.factor[part.feature]:
        shift, width = 0.0 if part.spread else float(scale.shift[part.feature]), 1 / float(scale.factor[part.feature])
        # What is scaled has six digits: behind these, a 0 would not be one.
        digits = 6 - math.ceil(math.log10(max(abs(width), abs(shift))))
        value, usual = (round(each * width + shift, digits) + 0.0 for each in (value, usual))
    return Reason(part.name, value, usual, share)


def _links_away(graph: Graph, item: int, most: int = 4) -> dict[int, int]:
    """How many links away nodes are, as far as that is few."""
    links = graph.adjacency()
    links = (links + links.T).tocsr()
    found, frontier = {item: 0}, np.array([item])
    for step in range(1, most + 1):
        frontier = np.setdiff1d(links[frontier].indices, np.fromiter(found, dtype=np.int64))
        found |= dict.fromkeys(frontier.tolist(), step)
    return found


def top_cases(
    run_dir: str | Path,
    count: int,
    *,
    client: ClientId | str | None = None,
    seed: int | None = None,
    checkpoint: str = "best",
    model: str | None = None,
    of: str | int | None = None,
) -> list[Why]:
    """The same of a client's test items that have the highest scores: of ``of``, of two classes of the rarer one, else
    each of its own class."""
    asked = open_member(run_dir, client=client, seed=seed, checkpoint=checkpoint, model=model)
    asked.refuse_other_data()
    silo, graph = asked.silo, asked.silo.seen.graph
    if not isinstance(graph, Graph):
        raise ConfigError(
            "the run is of whole graphs, and shares are known of nodes. `predict` has the graphs' scores."
        )
    items = np.asarray(silo.seen.items["test"], dtype=np.int64)
    if not len(items):
        raise ConfigError(f"{asked.owner} has no test items: name a node (--node).")
    with torch.no_grad():
        logits = asked.client.predict(asked.client.tensors(graph), asked.view)[torch.from_numpy(items)].double().cpu()
    chosen = [_class_of(silo, each, of) for each in logits]
    scores = torch.stack([each @ _contrast(silo, number) for each, number in zip(logits, chosen, strict=True)])
    best = scores.argsort(descending=True, stable=True)[:count].numpy()
    return explain_items(asked, items[best], of)
