"""graphsilo beside OpenFGL, the field's benchmark, in turn on the same cut: CPU seconds, memory and scores per method.

The peer is not part of this project. Whoever runs this has its source, in a folder, and a Python in which it works:

    python benchmarks/side_by_side.py --peer ~/OpenFGL --peer-python ~/OpenFGL/.venv/bin/python
    python benchmarks/side_by_side.py ... --data PubMed --method fedavg --turns 3
    python benchmarks/side_by_side.py --show

The peer cuts each graph once and keeps its cut; graphsilo is given the very same nodes and splits as a file. Both
train ten clients with the peer's default schedule, one thread, a process of its own each time, one after the other.
graphsilo runs twice: as a user calls it, with two views of evaluation, checkpoints, models and a report; and with what
the peer does alone, one view and none of the rest. Results are kept in ``.benchmarks/side_by_side.json``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from children import RESULTS, Ended, commit, data_root, execute, write_json

HERE = Path(__file__).resolve().parent
KEPT = RESULTS / "side_by_side.json"
FOLDER = RESULTS / "side_by_side"
CLIENTS = 10
AS_THE_PEER = {
    "evaluation.modes": "[own_local]", "evaluation.models": "false", "run.checkpoint_every": "0",
    "method.weight_by": "nodes",
}  # fmt: skip
"""Settings with which ours does no more than the peer does."""


@dataclass(frozen=True)
class Shared:
    """A method that both have.

    Attributes:
        name: Ours.
        peers: The peer's.
        model: The peer's name of the backbone.
        ours: Settings with which ours does what the peer does.
        note: What still differs.
    """

    name: str
    peers: str
    model: str = "gcn"
    ours: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


METHODS = {
    method.name: method
    for method in (
        Shared("fedavg", "fedavg"),
        Shared("fedprox", "fedprox", ours={"method.mu": "0.001"}),
        Shared(
            "scaffold", "scaffold", ours={"method.optimizer": "adam", "method.lr": "0.01"},
            note="the paper's method takes SGD; both run Adam here, as the peer does",
        ),
        Shared("moon", "moon"),
        Shared("fedproto", "fedproto"),
        Shared(
            "fedsage_plus", "fedsage_plus", model="graphsage",
            note="the peer trains generators for 30 epochs and reads neighbours' features across clients, ours for 20 "
            "and 20 epochs with weights and gradients exchanged; the peer's rounds 1 to 10 are its generators'",
        ),
    )
}  # fmt: skip


def peers_settings(method: Shared, data: str, seed: int, rounds: int) -> dict[str, Any]:
    """What the peer is told; all else is its default."""
    return {
        "root": str(FOLDER / "peer"), "dataset": [data], "fl_algorithm": method.peers, "model": [method.model],
        "metrics": ["accuracy"], "num_clients": CLIENTS, "num_rounds": rounds, "seed": seed, "use_cuda": False,
    }  # fmt: skip


def run_peer(options: argparse.Namespace, settings: Mapping[str, Any], *more: str) -> Ended:
    command = [options.peer_python, str(HERE / "peer_driver.py"), str(options.peer), json.dumps(settings), *more]
    # It loads its own files, which hold objects, as torch once did by default.
    return execute(command, limit=options.limit, TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD="1")


def cut_of(options: argparse.Namespace, data: str) -> Path:
    """The peer's cut of a graph, which it makes once and keeps."""
    path = FOLDER / f"{data}.npz"
    if not path.exists():
        raw = FOLDER / "peer" / "global" / "subgraph_fl" / data / "raw"
        if not raw.is_dir():
            shutil.copytree(Path(data_root()) / "planetoid" / data / "raw", raw)
        partial = path.with_name(f"{data}.part.npz")
        run_peer(options, peers_settings(METHODS["fedavg"], data, options.seed, 1), str(partial))
        partial.replace(path)
    return path


def peers_row(options: argparse.Namespace, method: Shared, data: str, seed: int) -> dict[str, float]:
    ended = run_peer(options, peers_settings(method, data, seed, options.rounds))
    found = ended.json()
    # Its FedSage+ trains generators within its rounds, ours before them: neither is left out.
    return {"train": found["train_cpu"], "whole": ended.cpu_seconds, "memory": ended.peak, "test": found["test"]}


def our_row(
    options: argparse.Namespace, method: Shared, data: str, seed: int, cut: Path, *, bare: bool
) -> dict[str, float]:
    """One run of ours; ``bare``: with what the peer does alone."""
    settings = {**method.ours, **(AS_THE_PEER if bare else {})}
    with tempfile.TemporaryDirectory(prefix="beside-") as folder:
        command = [
            sys.executable, "-m", "graphsilo", "run", "--quiet", "--data", data, "--data-root", data_root(),
            "--partition-file", str(cut), "--method", method.name, "--rounds", str(options.rounds),
            "--seeds", f"{seed},", "--out", f"{folder}/out", *(["--no-report"] if bare else []),
            *[word for name, value in settings.items() for word in ("--set", f"{name}={value}")],
        ]  # fmt: skip
        ended = execute(command, limit=options.limit)
        (one,) = json.loads(Path(folder, "out", "result.json").read_text(encoding="utf-8"))["seeds"]
    rounds = sum(entry["cpu_seconds"] for entry in one["rounds"])
    return {
        "train": rounds + one["setup"]["cpu_seconds"],
        "whole": ended.cpu_seconds,
        "memory": ended.peak,
        "test": one["modes"]["own_local"]["test"]["accuracy"],
    }


SIDES = ("peer", "as called", "same work")


def measure(options: argparse.Namespace) -> None:
    """Turns of peer and ours, of every method and graph; each turn is kept as soon as it is there."""
    for data in options.data:
        cut = cut_of(options, data)
        for name in options.method:
            method = METHODS[name]
            for turn in range(options.turns):
                seed = options.seed + turn
                rows = {
                    "peer": peers_row(options, method, data, seed),
                    "as called": our_row(options, method, data, seed, cut, bare=False),
                    "same work": our_row(options, method, data, seed, cut, bare=True),
                }
                entry = {"data": data, "method": name, "rounds": options.rounds, "commit": commit(), "sides": rows}
                write_json(KEPT, [*kept(), entry])
                print(json.dumps(entry), flush=True)


def kept() -> list[dict[str, Any]]:
    """All turns that were measured."""
    return list(json.loads(KEPT.read_text(encoding="utf-8"))) if KEPT.exists() else []


def table(entries: Iterable[Mapping[str, Any]]) -> str:
    """A line per method and graph: medians over turns of the peer's cost over ours, in the same turn."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in entries:
        groups.setdefault((entry["method"], entry["data"]), []).append(entry["sides"])
    lines = [
        "| method, graph | turns | peer: training, process | ours: training, process | training | process | "
        "process, as called | memory | accuracy: peer, ours |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for (method, data), sides in groups.items():
        peer, ours = (_medians(sides, side) for side in ("peer", "same work"))
        lines.append(
            f"| {method}, {data} | {len(sides)} | {peer['train']:.1f} s, {peer['whole']:.1f} s "
            f"| {ours['train']:.1f} s, {ours['whole']:.1f} s "
            f"| {_ratio(sides, 'same work', 'train')} | {_ratio(sides, 'same work', 'whole')} "
            f"| {_ratio(sides, 'as called', 'whole')} | {_ratio(sides, 'same work', 'memory')} "
            f"| {100 * peer['test']:.1f}, {100 * ours['test']:.1f} |"
        )
    return "\n".join(lines)


def _medians(sides: Sequence[Mapping[str, Any]], side: str) -> dict[str, float]:
    return {name: statistics.median(one[side][name] for one in sides) for name in sides[0][side]}


def _ratio(sides: Sequence[Mapping[str, Any]], side: str, name: str) -> str:
    return f"{statistics.median(one['peer'][name] / one[side][name] for one in sides):.1f} ×"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, help="folder with the peer's source")
    parser.add_argument("--peer-python", help="a Python in which the peer works")
    parser.add_argument("--data", nargs="*", default=["Cora", "CiteSeer", "PubMed"])
    parser.add_argument("--method", nargs="*", default=["fedavg", "fedprox", "scaffold", "fedsage_plus"])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seed", type=int, default=2024)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds of one run")
    parser.add_argument("--show", action="store_true", help="only the table of what was measured")
    options = parser.parse_args()
    strange = [name for name in options.method if name not in METHODS]
    if strange:
        parser.error(f"'{strange[0]}' is not among the methods that both have: {', '.join(METHODS)}")
    if not options.show:
        if options.peer is None or not options.peer.is_dir() or options.peer_python is None:
            parser.error("--peer wants the folder with the peer's source, and --peer-python a Python that runs it")
        FOLDER.mkdir(parents=True, exist_ok=True)
        measure(options)
    print(table(kept()))


if __name__ == "__main__":
    main()
