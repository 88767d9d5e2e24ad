"""What the gate measures, each part in a process of its own: pairs that run in turn within the process.

    python -P benchmarks/cost/paired.py rounds|methods|memory-ours|memory-plain

Generated data only, so that the gate needs nothing but the checkout. Prints one JSON object: ratios by name, one per
turn, and bytes by method.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from children import memory, reset_peak

from cost.loop import PlainFedAvg
from cost.probe import Watch
from graphsilo.experiments.config import load_config
from graphsilo.experiments.observer import Observer, Progress
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry

COMMON = {
    "data.name": "citation-sbm",
    "evaluation.modes": ["own_local"],
    "evaluation.models": False,
    "run.checkpoint_every": 0,
    "run.seeds": [2024],
}
FEDAVG = {**COMMON, "method.name": "fedavg", "partition.rule": "louvain", "partition.clients": 10}
LARGER = {
    **FEDAVG,
    "data.nodes": 40_000,
    "data.features": 256,
    "data.feature_density": 0.05,
    "partition.rule": "metis",
    "method.rounds": 4,
}
SMALL: dict[str, Any] = {
    **COMMON,
    "data.nodes": 600,
    "data.features": 128,
    "data.classes": 4,
    "data.feature_density": 0.05,
    "partition.rule": "metis",
    "partition.clients": 4,
    "method.rounds": 4,
}
UNIT_ROUNDS = 10


class InTurn(Observer):
    """After each round of ours, runs one of the plain loop's, and notes what both took.

    Args:
        loop: The plain loop.
    """

    def __init__(self, loop: PlainFedAvg):
        self.loop = loop
        self.ratios: list[float] = []
        self._start = time.process_time()

    def on_progress(self, progress: Progress) -> None:
        """A round of ours has ended."""
        ours = time.process_time() - self._start
        start = time.process_time()
        self.loop.round()
        plain = time.process_time() - start
        if progress.round > 3:  # the first ones fill caches
            self.ratios.append(ours / plain)
        self._start = time.process_time()


def rounds(count: int = 40) -> dict[str, Any]:
    """A round of FedAvg over a round of the plain loop; the codec's and the evaluation's share of it."""
    config = load_config(overrides={**FEDAVG, "method.rounds": count})
    prepared = prepare(config, registry.load("fedavg"))
    turns = InTurn(PlainFedAvg(prepared.silos))
    run(config, simulation=prepared, observer=turns)
    watch = Watch()
    watch.install()
    run(config, simulation=prepared)
    look = watch.look()
    whole, scored = watch.parts["round"][3:], watch.parts["evaluation"][3:]
    return {
        "ratios": {
            "FedAvg's round over the plain loop's": turns.ratios,
            "codec and ledger's share of FedAvg's round": [
                max(0.0, row["codec"] - look * row["calls"]) / row["cpu"] for row in whole
            ],
            "evaluation's share of FedAvg's round": [
                one["cpu"] / row["cpu"] for row, one in zip(whole, scored, strict=True)
            ],
        },
        "bytes": {},
    }


def _scored(name: str) -> dict[str, Any]:
    """Own models, or the server's of a method that has no others."""
    return {} if "own" in registry.load(name).evaluates else {"evaluation.modes": ["aggregate_local"]}


def _shortened(name: str) -> dict[str, Any]:
    """What the method itself says shortens it and leaves every step in."""
    return {f"method.{setting}": value for setting, value in registry.load(name).quick.items()}


LONG, FEW = 10.0, 3
"""A method that takes so many times as long as FedAvg is measured well in so few turns."""


def methods(names: Collection[str] = (), turns: int = 7) -> dict[str, Any]:
    """These methods, or all that are registered, over FedAvg on a small graph, set-up included; and their bytes.

    FedAvg runs right before and right after each method, with more rounds: what it takes alone is too little to be
    measured well.
    """
    configs = {
        # Said as in a file: what one method has no use for, such as rounds, is left out.
        name: load_config({**SMALL, "method.name": name, **_scored(name), **_shortened(name)})
        for name in registry.names()
        if not names or name in {"fedavg", *names}
    }
    unit = load_config(overrides={**SMALL, "method.name": "fedavg", "method.rounds": UNIT_ROUNDS})
    prepared = {name: prepare(config, registry.load(name)) for name, config in configs.items()}
    ratios: dict[str, list[float]] = {name: [] for name in configs}
    counted = {}

    def unit_seconds() -> float:
        seed = run(unit, simulation=prepared["fedavg"]).tree["seeds"][0]
        return float(seed["cpu_seconds"]) * float(SMALL["method.rounds"]) / UNIT_ROUNDS

    for turn in range(turns + 1):
        before = unit_seconds()
        for name, config in configs.items():
            if turn > FEW and ratios[name][-1] > LONG:
                continue
            seed = run(config, simulation=prepared[name]).tree["seeds"][0]
            after = unit_seconds()
            if turn:  # the first one imports and fills caches
                ratios[name].append(seed["cpu_seconds"] / ((before + after) / 2))
            before = after
            last = seed["rounds"][-1]
            counted[name] = [
                seed["setup"]["upload_bytes"],
                seed["setup"]["download_bytes"],
                last["upload_bytes"],
                last["download_bytes"],
            ]
    ratios.pop("fedavg")
    what = f"over FedAvg, set-up and {SMALL['method.rounds']} rounds"
    return {"ratios": {f"{name} {what}": values for name, values in ratios.items()}, "bytes": counted}


def memory_of(ours: bool) -> dict[str, Any]:
    """Bytes that training adds to the prepared data, of FedAvg or of the plain loop."""
    config = load_config(overrides=LARGER)
    prepared = prepare(config, registry.load("fedavg"))
    small = load_config(overrides={**SMALL, "method.name": "fedavg"})
    run(small)  # what is imported and set aside at the first use is nobody's
    PlainFedAvg(prepare(small, registry.load("fedavg")).silos).round()
    before = memory()
    reset_peak()
    if ours:
        run(config, simulation=prepared)
    else:
        loop = PlainFedAvg(prepared.silos)
        for _ in range(config.method_config().rounds):
            loop.round()
    return {"bytes_added": memory("VmHWM") - before}


def main() -> None:
    """Measure one part and print it."""
    import torch

    torch.set_num_threads(1)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "rounds": rounds,
        "methods": lambda: methods(sys.argv[2:]),
        "memory-ours": lambda: memory_of(True),
        "memory-plain": lambda: memory_of(False),
    }
    print(json.dumps(parts[sys.argv[1]]()))


if __name__ == "__main__":
    main()
