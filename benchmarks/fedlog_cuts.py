"""Which Metis cut stands in for FedLoG's: the seed whose class counts are nearest to the published ones.

The paper gives no seed, but prints how many nodes of each class every client and the new client hold (tables 9, 11 and
13; ``benchmarks/papers/fedlog_cuts.csv``). This tries one ``partition.cut_seed`` after the other: by the L1 distance of
the clients' own nodes (after their missing classes were removed) and the new client's it makes a short list, and of
that it takes the cut with the least distance of all counts, those of the missing-class and unseen nodes at test time
included. Clients may be numbered in any order; the last part is the new client. A cut with a class that nobody trains
is not admitted, since no method can be right about it, nor one whose clients hold together less than half of what the
paper's hold of some class. Counts are all that is looked at: no model is trained.

    python benchmarks/fedlog_cuts.py                 # where counts are published: about ten minutes
    python benchmarks/fedlog_cuts.py --seeds 2000 --graphs PubMed
    python benchmarks/fedlog_cuts.py --first         # every row of papers/fedlog.yaml: the first seed that is admitted
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import papers
from children import data_root
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.silos.scenarios import build_silos, partition_for_scenario
from graphsilo.data.silos.silo import Silo
from graphsilo.data.silos.unseen import missing_classes
from graphsilo.data.sources.catalog import load
from graphsilo.errors import PartitionError

PUBLISHED = papers.HERE / "papers" / "fedlog_cuts.csv"
RATIOS = (0.4, 0.3, 0.3)
ASKED = ("unseen_node", "missing_class")
HOPS = (1, 2, 3)
TRIED = {"Cora": 10_000, "PubMed": 5_000, "Computers": 2_000}
SHORT_LIST = 50
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """What is compared of a cut.

    Attributes:
        own: [K, C] nodes of each class in the clients' graphs, without their missing classes.
        trained: [K, C] training nodes among them.
        new: [C] nodes of the new client.
    """

    own: Counts
    trained: Counts
    new: Counts

    @property
    def untrained(self) -> list[int]:
        """Classes of the graph that no client trains."""
        return [int(label) for label in np.flatnonzero(self.trained.sum(0) == 0)]


def partition_of(graph: Graph, clients: int, seed: int, scenario: str = "unseen") -> Partition:
    """The scenario's cut with this seed."""
    return partition_for_scenario(
        graph, "metis", clients=clients, scenario=scenario, ratios=RATIOS, split="global", options={"cut_seed": seed}
    )


def cut_of(graph: Graph, clients: int, seed: int, scenario: str = "unseen") -> Cut:
    """Its counts."""
    part = partition_of(graph, clients, seed, scenario)
    assert part.new_part is not None
    own, trained = [], []
    for nodes, train in zip(part.nodes, part.train, strict=True):
        lost = missing_classes(graph.labels, nodes, train, num_classes=graph.num_classes)
        for found, ids in ((own, nodes), (trained, train)):
            counts = np.bincount(graph.labels[ids], minlength=graph.num_classes)
            counts[lost] = 0
            found.append(counts)
    new = np.bincount(graph.labels[part.new_part], minlength=graph.num_classes)
    return Cut(np.stack(own), np.stack(trained), new)


def published(name: str) -> dict[str, Counts]:
    """The paper's counts: ``own``, ``unseen_node`` and ``missing_class`` [K, C], ``new`` [C] as far as printed."""
    with PUBLISHED.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["dataset"] == name]
    columns = {"own": ("train", "valid", "test"), **{kind: (kind,) for kind in ASKED}}
    parts = sorted({row["part"] for row in rows if row["part"].startswith("Client")})
    tables = {
        kind: np.array(
            [[sum(int(row[name]) for name in names) for row in rows if row["part"] == part] for part in parts]
        )
        for kind, names in columns.items()
    }
    return {**tables, "new": np.array([int(row["test"]) for row in rows if row["part"] == "New Client"])}


def distance(cut: Cut, paper: dict[str, Counts]) -> tuple[int, tuple[int, ...]]:
    """L1 distance of what can be counted without growing graphs, under the best order of the clients; that order."""
    orders = permutations(range(len(cut.own)))
    own, order = min((apart(cut.own[list(order)], paper["own"]), order) for order in orders)
    return own + apart(cut.new[: len(paper["new"])], paper["new"]), order


def apart(mine: Counts, theirs: Counts) -> int:
    """L1 distance of two tables."""
    return int(np.abs(mine - theirs).sum())


@dataclass(frozen=True)
class Found:
    """A cut of the short list.

    Attributes:
        far: L1 distance of all counts that the paper prints.
        seed: Its cut seed.
        order: Which of its clients stands for which of the paper's.
        hops: As many as fit best; see ``grown``.
        near: The distance of the clients' own nodes and the new client's alone.
        grown: [K, C] test items of the grown graphs, by kind.
        cut: Its counts.
    """

    far: int
    seed: int
    order: tuple[int, ...]
    hops: int
    near: int
    grown: dict[str, Counts]
    cut: Cut


def compare(graph: Graph, seed: int, paper: dict[str, Counts]) -> Found:
    """All counts of a cut, those at test time for as many hops as fit them best."""
    cut = cut_of(graph, len(paper["own"]), seed)
    near, order = distance(cut, paper)
    part, fits = partition_of(graph, len(order), seed), []
    for hops in HOPS:
        silos = build_silos(graph, part, scenario="unseen", options={"hops": hops})
        grown = {kind: np.stack([asked(silos[client], kind) for client in order]) for kind in ASKED}
        fits.append((near + sum(apart(counts, paper[kind]) for kind, counts in grown.items()), hops, grown))
    far, hops, grown = min(fits, key=lambda fit: fit[0])
    return Found(far, seed, order, hops, near, grown, cut)


def search(graph: Graph, name: str, seeds: int) -> Iterator[str]:
    """A line per cut that is worth looking at, the nearest first, and the whole counts of the best."""
    paper = published(name)
    admitted, refused = [], []
    for seed in range(1, seeds + 1):
        try:
            cut = cut_of(graph, len(paper["own"]), seed)
        except PartitionError:
            continue
        scarce = cut.untrained or (2 * cut.own.sum(0) < paper["own"].sum(0)).any()
        (refused if scarce else admitted).append((distance(cut, paper)[0], seed))
    every = sorted(far for far, _ in admitted + refused)
    printed = int(paper["own"].sum() + paper["new"].sum())
    yield (
        f"{name}: {len(every)} cuts, {len(refused)} of them not admitted; own and new nodes: {printed} published, "
        f"distance of the median cut {every[len(every) // 2]}"
    )
    for far, seed in sorted(refused)[:1]:
        yield f"  not admitted: cut_seed {seed}, own and new {far}"
    nearest = [compare(graph, seed, paper) for _, seed in sorted(admitted)[:SHORT_LIST]]
    nearest.sort(key=lambda found: (found.far, found.seed))
    for found in nearest[:5]:
        yield f"  cut_seed {found.seed}: all counts {found.far}, own and new {found.near}, {found.hops} hops"
    best = nearest[0]
    for place, client in enumerate(best.order):
        yield f"  client {place} own: {best.cut.own[client].tolist()} (paper {paper['own'][place].tolist()})"
        for kind, counts in best.grown.items():
            yield f"  client {place} {kind}: {counts[place].tolist()} (paper {paper[kind][place].tolist()})"
    yield f"  new client: {best.cut.new.tolist()} (paper {paper['new'].tolist()})"


def asked(silo: Silo, kind: str) -> Counts:
    """[C] test items of a kind in a client's grown graph."""
    grown = next(test for test in silo.evaluations if test.name == "grown")
    assert isinstance(grown.graph, Graph)
    return np.bincount(grown.graph.labels[grown.items[kind]], minlength=silo.schema.num_classes)


def first(graph: Graph, clients: int, scenario: str) -> int:
    """The smallest seed from 1 whose cut leaves no class without a client that trains it."""
    seed = 1
    while cut_of(graph, clients, seed, scenario).untrained:
        seed += 1
    return seed


def main() -> None:
    """Search, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="*", default=list(TRIED))
    parser.add_argument("--seeds", type=int, help=f"how many cut seeds are tried, from 1; else {TRIED}")
    parser.add_argument("--first", action="store_true", help="only the first admitted seed of every row")
    parser.add_argument("--data-root", default=data_root())
    options = parser.parse_args()

    def graph_of(name: str) -> Any:
        return load(name, root=options.data_root, options={"largest_component": True})

    if options.first:
        _, runs = papers.read("fedlog")
        rows = {
            (run.overrides["data.name"], run.overrides["partition.clients"], run.overrides["scenario.name"]): run
            for run in runs
        }
        for (name, clients, scenario), run in rows.items():
            graph = graph_of(name)
            own = cut_of(graph, clients, run.overrides["partition.cut_seed"], scenario).untrained
            print(
                f"{run.row}: first seed {first(graph, clients, scenario)}; the row's "
                f"{run.overrides['partition.cut_seed']} leaves out {own or 'no class'}",
                flush=True,
            )
        return
    for name in options.graphs:
        print("\n".join(search(graph_of(name), name, options.seeds or TRIED[name])), flush=True)


if __name__ == "__main__":
    main()
