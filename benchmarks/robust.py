"""Liars against the rules of ``run.robust``: FedAvg on Louvain's cut into ten silos, two of which lie.

    python benchmarks/robust.py --out robust.csv       # Cora and chameleon, three seeds: 20 minutes of one core
    python benchmarks/robust.py --data Cora --attacks honest --seeds 0

Clients of one process lie by themselves, as no setting of the package does; which, is drawn per seed. What is measured
is the common model after the last round on the test nodes of the honest silos, and in a backdoor the share of those
nodes of other classes that the trigger, ten features at the largest value, sends to the target class. The bounds of
messages hold as between machines: a lie above them would end the run. Without liars the silo that has the
largest share of some class is looked at by itself: how right the common model and its own are there.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import Silo
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.kinds import LARGEST_RATIO, LARGEST_WEIGHT
from graphsilo.federation.message import Tensors
from graphsilo.federation.registry import Method
from graphsilo.methods import fedavg

SILOS, LIARS, ROUNDS = 10, 2, 30
RULES = ("none", "trimmed_mean", "median", "krum", "clip")
TARGET = 0
TRIGGER = 10
BOOST = SILOS / LIARS
"""By what two liars multiply their change so that it becomes that of the mean."""
NEAR = 0.8
"""Of the bounds ``run.largest_ratio`` and ``run.largest_value``: how far a liar dares."""


@dataclass(frozen=True)
class Attack:
    """What liars do.

    Attributes:
        factor: What they multiply their change by; None: as far as ``NEAR`` of the bounds.
        labels: Whether they train on labels turned around.
        backdoor: Whether they train half of their nodes to be of the target class with the trigger.
    """

    factor: float | None = 1.0
    labels: bool = False
    backdoor: bool = False


ATTACKS = {
    "honest": Attack(),
    "labels": Attack(labels=True),
    "sign": Attack(factor=-1.0),
    "times 10": Attack(factor=10.0),
    "times -10": Attack(factor=-10.0),
    "near the bounds": Attack(factor=None),
    "backdoor": Attack(backdoor=True),
    "backdoor times 5": Attack(backdoor=True, factor=BOOST),
}


@dataclass(frozen=True)
class Score:
    """At one silo: test nodes, those that the common model and its own are right about, the same of the trigger, and
    its training nodes by class."""

    items: int
    right: int
    own: int
    tried: int
    sent: int
    classes: np.ndarray[Any, Any]


def triggered(graph: Graph, nodes: np.ndarray[Any, Any]) -> Graph:
    """The graph with the trigger at these nodes."""
    columns = np.random.default_rng(0).permutation(graph.features.shape[1])[:TRIGGER]
    sparse = sp.issparse(graph.features)
    features = graph.features.tolil(copy=True) if sparse else graph.features.copy()
    features[np.ix_(nodes, columns)] = graph.features.max()
    return replace(graph, features=features.tocsr() if sparse else features)


def spoiled(silo: Silo, attack: Attack) -> Silo:
    """What a liar trains on."""
    labels = silo.labels.copy()
    if attack.labels:
        labels[silo.train] = silo.schema.num_classes - 1 - labels[silo.train]
        return replace(silo, noisy_labels=labels)
    if not attack.backdoor:
        return silo
    nodes = silo.train[::2]
    labels[nodes] = TARGET
    assert isinstance(silo.graph, Graph)
    return replace(silo, graph=triggered(silo.graph, nodes), noisy_labels=labels)


def method_of(attack: Attack, liars: Sequence[int], scores: dict[int, Score]) -> Method:
    """FedAvg with liars; ``scores`` is filled when the common model is scored."""

    class Client(fedavg.Client[fedavg.FedAvgConfig]):
        def __init__(self, context: ClientContext[fedavg.FedAvgConfig]):
            self.lies = context.client in liars
            super().__init__(replace(context, silo=spoiled(context.silo, attack)) if self.lies else context)

        @handler
        def train(self, request: fedavg.TrainRequest) -> fedavg.TrainReply:
            self.download(request.weights)
            self.fit(request)
            honest = {name: value.detach() for name, value in self.upload().items()}
            factor = attack.factor if self.lies else 1.0
            if factor is None:
                factor = farthest(request.weights, honest)
            old = request.weights
            sent = honest if factor == 1.0 else {
                name: old[name] + factor * (value - old[name]) for name, value in honest.items()
            }  # fmt: skip
            return fedavg.TrainReply(weights=sent, num_samples=self.weight)

        def install_aggregate(self, weights: Tensors) -> None:
            super().install_aggregate(weights)
            scores[self.id] = self.score()

        def score(self) -> Score:
            seen = self.silo.seen
            assert isinstance(seen.graph, Graph)
            test, labels = seen.items["test"], seen.graph.labels
            others = test[labels[test] != TARGET]
            graphs = {"clean": self.tensors(seen.graph), "with": self.tensors(triggered(seen.graph, others))}
            common = {name: self.predict(data, "aggregate").argmax(1).numpy() for name, data in graphs.items()}
            own = self.predict(graphs["clean"]).argmax(1).numpy()
            return Score(
                len(test), int((common["clean"][test] == labels[test]).sum()), int((own[test] == labels[test]).sum()),
                len(others), int((common["with"][others] == TARGET).sum()), self.silo.class_counts(),
            )  # fmt: skip

    class Server(fedavg.Server[fedavg.FedAvgConfig]):
        def set_up(self, federation: Federation) -> None:
            federation.limits = dict.fromkeys(federation.clients, 1e9)  # type: ignore[attr-defined]

    Server.client = Client
    return replace(fedavg.METHOD, name="fedavg_lied_to", client=Client, server=Server)


def farthest(old: Tensors, new: Mapping[str, torch.Tensor]) -> float:
    """The largest factor of the change whose result stays near the bounds, as far as a silo knows them."""

    def size(factor: float) -> float:
        return max(float((old[name] + factor * (value - old[name])).abs().max()) for name, value in new.items())

    low, high, bound = 1.0, 1e12, NEAR * min(LARGEST_RATIO * size(1.0), LARGEST_WEIGHT)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if size(middle) <= bound else (low, middle)
    return low


def measure(data: str, name: str, rule: str, seed: int, rounds: int) -> tuple[dict[int, Score], list[int]]:
    """Every silo's scores, and the two that are drawn, which lie unless all are honest."""
    liars = random.Random(seed).sample(range(SILOS), LIARS)
    scores: dict[int, Score] = {}
    registry.register(method_of(ATTACKS[name], liars, scores))
    settings = {
        "data.name": data, "partition.rule": "louvain", "partition.clients": SILOS, "method.name": "fedavg_lied_to",
        "method.rounds": rounds, "run.seeds": [seed], "run.robust": rule, "evaluation.every": rounds,
        "evaluation.models": False, "run.checkpoint_every": 0,
    }  # fmt: skip
    if rule in ("trimmed_mean", "krum"):
        settings["run.liars"] = LIARS
    run(load_config(overrides=settings))
    return scores, liars


def unlike(scores: Mapping[int, Score]) -> int:
    """The silo that has the largest share of all training nodes of some class."""
    total = np.sum([score.classes for score in scores.values()], 0)
    return max(scores, key=lambda client: float((scores[client].classes / total.clip(1)).max()))


def row(scores: Mapping[int, Score], drawn: Sequence[int]) -> dict[str, str]:
    """What is kept of a run, in percent: of the silos that are not drawn together, and of each by itself."""
    others, one = [score for client, score in scores.items() if client not in drawn], scores[unlike(scores)]
    found = {
        "accuracy": 100 * sum(score.right for score in others) / sum(score.items for score in others),
        "sent": 100 * sum(score.sent for score in others) / sum(score.tried for score in others),
        "all": 100 * sum(score.right for score in scores.values()) / sum(score.items for score in scores.values()),
        "unlike": 100 * one.right / one.items,
        "unlike_own": 100 * one.own / one.items,
    }
    silos = [f"{100 * score.right / score.items:.2f}" for _, score in sorted(scores.items())]
    return {**{name: f"{value:.4f}" for name, value in found.items()}, "each": " ".join(silos)}


FIELDS = ["data", "attack", "rule", "seed", "rounds", "accuracy", "sent", "all", "unlike", "unlike_own", "each"]


def table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Means over seeds, a line for each attack and figure and a column for each rule."""
    for data in dict.fromkeys(one["data"] for one in rows):
        print(f"\n| {data} | {' | '.join(RULES)} |\n|---|{'--:|' * len(RULES)}")
        for name, attack in ATTACKS.items():
            found = {
                rule: [one for one in rows if (one["data"], one["attack"], one["rule"]) == (data, name, rule)]
                for rule in RULES
            }
            if not any(found.values()):
                continue
            honest = ["all", "unlike", "unlike_own"] if name == "honest" else []
            for figure in ["accuracy", *honest, *(["sent"] if attack.backdoor or honest else [])]:
                cells = [_cell([float(one[figure]) for one in found[rule]]) for rule in RULES]
                print(f"| {name}: {figure} | {' | '.join(cells)} |")
            if honest and found["none"]:
                print(f"| {name}: most lost and won by a silo | {' | '.join(_moved(found, rule) for rule in RULES)} |")


def _cell(values: Sequence[float]) -> str:
    """Mean and, of several, standard deviation."""
    spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{mean(values):.1f}{spread}" if values else ""


def _moved(found: Mapping[str, Sequence[Mapping[str, Any]]], rule: str) -> str:
    """By how much the accuracy of the silos differs from what it is without a rule, at the two ends."""
    if not found[rule]:
        return ""
    before, after = (
        np.mean([list(map(float, one["each"].split())) for one in found[name]], 0) for name in ("none", rule)
    )
    return f"{min(after - before):+.1f}, {max(after - before):+.1f}"


def main() -> None:
    """Measure what is not known yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=["Cora", "chameleon"])
    parser.add_argument("--attacks", nargs="*", default=list(ATTACKS), choices=list(ATTACKS))
    parser.add_argument("--rules", nargs="*", default=list(RULES), choices=list(RULES))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, help="a CSV file: what it holds is not measured again, the rest is added")
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = options.out is not None and options.out.exists()
    rows: list[dict[str, Any]] = list(csv.DictReader(options.out.open())) if known else []
    done = {(one["data"], one["attack"], one["rule"], one["seed"], one["rounds"]) for one in rows}
    for key in product(options.seeds, options.data, options.attacks, options.rules):
        seed, data, name, rule = key
        place = (data, name, rule, str(seed), str(options.rounds))
        if place in done:
            continue
        rows.append({**dict(zip(FIELDS, place, strict=False)), **row(*measure(data, name, rule, seed, options.rounds))})
        if options.out is not None:
            with options.out.open("w", newline="") as file:
                writer = csv.DictWriter(file, FIELDS)
                writer.writeheader()
                writer.writerows(rows)
    table(rows)


if __name__ == "__main__":
    main()
