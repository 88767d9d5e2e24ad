"""A net under a redesign: hashes of some 420 short runs, which a change that moves code must not change.

    python scripts/net.py record            # before: writes .benchmarks/net.json
    python scripts/net.py compare           # after: runs all again and names what differs
    python scripts/net.py compare --only fedlog --processes 1

Every run is hashed three ways: its *scores* (the result without times), the *messages* in the order in which they
crossed (bytes, names of their types included), and the *states* that it leaves (models, embeddings). What checkpoints
hold is seen by the runs that are stopped and resumed, and by those whose clients are offloaded. Hashes hold for one
machine and one installation: they are recorded, not shipped.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / ".benchmarks" / "net.json"

NODES = {
    "data.name": "citation-sbm",
    "data.generator": {"nodes": 150, "classes": 3, "features": 40, "feature_density": 0.1},
}
UNLIKE = {"data.name": "heterophily-sbm", "data.generator": {"nodes": 150, "classes": 3, "features": 40}}
PARTITIONS = ("louvain", "metis", "louvain+", "metis+", "dirichlet", "topology", "overlap")
SCENARIOS = ("seen", "unseen", "open", "inductive", "receiver")


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and settings of every run."""
    from graphsilo.federation import registry
    from graphsilo.federation.settings import OneRoundConfig
    from graphsilo.models import registry as models
    from graphsilo.testing.small import measured
    from graphsilo.types import TARGET_TASKS

    methods = {name: registry.load(name) for name in registry.names()}
    graphs = Path(os.environ.get("GRAPHSILO_DATA", ROOT.parent / "shared" / "data"))

    def settings(name: str, **more: Any) -> dict[str, Any]:
        method = methods[name]
        found = {"method.name": name, **{f"method.{key}": value for key, value in method.quick.items()}}
        found["method.rounds"] = None if issubclass(method.config, OneRoundConfig) else 3
        found["model.hidden"] = 8 if method.backbone else None
        found |= {"partition.clients": 4, "evaluation.models": True, "run.seeds": [0]}
        return {key: value for key, value in {**found, **more}.items() if value is not None}

    for name, method in methods.items():
        for task in method.tasks:
            data = {
                "node": NODES,
                "link": {**NODES, "data.generator": {**NODES["data.generator"], "nodes": 500}, "task": "link"},
                "graph": {"data.name": "MUTAG", "data.root": str(graphs)},
                **{each: {"data.name": str(measured(each))} for each in TARGET_TASKS},
            }[task]
            yield f"{name}/{task}", settings(name, **data)
            yield f"{name}/{task}/workers", settings(name, **data, **{"run.workers": 2})
            yield f"{name}/{task}/offloaded", settings(name, **data, **{"run.resident_clients": 1})
        if "node" not in method.tasks:
            continue
        yield f"{name}/resumed", settings(name, **NODES, **{"run.checkpoint_every": 1, "RESUME": True})
        yield f"{name}/heterophily", settings(name, **UNLIKE)
        yield f"{name}/part of the clients", settings(name, **NODES, **{"method.participation": 0.5})
        for rule in PARTITIONS:
            clients = 10 if rule == "overlap" else 4
            yield f"{name}/{rule}", settings(name, **NODES, **{"partition.rule": rule, "partition.clients": clients})
        for scenario in SCENARIOS:
            yield f"{name}/{scenario}", settings(name, **NODES, **{"scenario.name": scenario, "partition.clients": 3})
        if method.backbone:
            for model in models.names():
                yield f"{name}/{model}", settings(name, **NODES, **{"model.name": model})
            yield f"{name}/bfloat16", settings(name, **NODES, **{"run.precision": "bfloat16"})
            yield f"{name}/mini-batches", settings(name, **NODES, **{"method.batch_size": 8})
    for index, (kind, value) in enumerate(PERTURBED):
        yield f"perturbed/{index}", settings("fedavg", **NODES, **{kind: value})


PERTURBED = (
    ("perturb.edge_noise", 0.2), ("perturb.edge_sparsity", 0.2), ("perturb.feature_noise", 0.2),
    ("perturb.feature_sparsity", 0.2), ("perturb.label_sparsity", 0.2), ("perturb.label_noise", 0.2),
    ("data.scale", "standard"), ("data.scale", "robust"), ("data.scale", "unit_rows"), ("evaluation.auc", True),
    ("evaluation.modes", ["own_local", "aggregate_local", "own_global", "aggregate_global"]),
    ("run.references", ["local", "majority", "fedridge", "global", "global_cut"]),
)  # fmt: skip


def hashes(wanted: Mapping[str, Any]) -> dict[str, str]:
    """Scores, messages and states of one run; of one that is refused, its words."""
    import torch

    from graphsilo.errors import GraphsiloError
    from graphsilo.experiments.config import load_config
    from graphsilo.experiments.runner import run
    from graphsilo.federation.ledger import Ledger
    from graphsilo.testing.conformance import numbers

    torch.set_num_threads(1)
    overrides = dict(wanted)
    resume = overrides.pop("RESUME", False)
    messages, plain = hashlib.sha256(), Ledger.record

    def record(self: Ledger, client: Any, direction: Any, handler: Any, encoded: Any) -> None:
        messages.update(f"{self.phase} {self.round} {client} {direction} {handler}".encode())
        messages.update(np.ascontiguousarray(encoded.data))
        plain(self, client, direction, handler, encoded)

    folder = Path(tempfile.mkdtemp(prefix="net-"))
    Ledger.record = record  # type: ignore[method-assign]
    try:
        config = load_config(overrides={**overrides, "evaluation.embeddings": False})
        if resume:
            from graphsilo.testing import conformance

            with contextlib.suppress(conformance._Stopped):
                run(config, out=folder / "run", observer=conformance._Stop(2))
            tree = run(config, out=folder / "run", resume=True).tree
        else:
            tree = run(config, out=folder / "run").tree
        return {
            "scores": hashlib.sha256(numbers(tree).encode()).hexdigest()[:16],
            "messages": messages.hexdigest()[:16],
            "states": _files(folder / "run"),
        }
    except GraphsiloError as error:
        return {"refused": str(error).replace(str(folder), "OUT")}
    except Exception:
        return {"failed": traceback.format_exc(limit=-3)}
    finally:
        Ledger.record = plain  # type: ignore[method-assign]
        shutil.rmtree(folder, ignore_errors=True)


def _files(folder: Path) -> str:
    """One hash over the models and embeddings that a run left."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.safetensors")):
        found.update(path.relative_to(folder).as_posix().encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def main() -> None:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare", "list"))
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--file", type=Path, default=KEPT)
    options = parser.parse_args()
    known = {name: wanted for name, wanted in cases() if options.only in name}
    if options.what == "list":
        print("\n".join(known), f"\n{len(known)} runs")
        return
    with ProcessPoolExecutor(options.processes) as pool:
        found = dict(zip(known, pool.map(hashes, known.values(), chunksize=4), strict=True))
    for name, kept in found.items():
        if "failed" in kept:
            print(f"{name}: {kept['failed']}", file=sys.stderr)
    if options.what == "record":
        before = json.loads(options.file.read_text()) if options.only and options.file.exists() else {}
        options.file.parent.mkdir(parents=True, exist_ok=True)
        options.file.write_text(json.dumps({**before, **found}, indent=1, sort_keys=True) + "\n")
        print(f"{len(found)} runs, {sum('refused' in kept for kept in found.values())} of them refused: {options.file}")
        return
    before = json.loads(options.file.read_text())
    differing = []
    for name in sorted(known.keys() | {name for name in before if options.only in name}):
        mine, theirs = found.get(name, {"gone": ""}), before.get(name, {"new": ""})
        parts = [part for part in mine.keys() | theirs.keys() if mine.get(part) != theirs.get(part)]
        if parts:
            differing.append(name)
            print(
                f"{name}: {', '.join(sorted(parts))}",
                *([f"    {mine['refused']}"] if "refused" in mine else []),
                sep="\n",
            )
    print(f"{len(found) - len(differing)} of {len(found)} runs as before")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
