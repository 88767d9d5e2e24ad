"""What methods cost on large graphs and with many clients. Run by hand; a full run takes an hour of one core.

Every measurement has a process of its own, pinned to one thread: CPU seconds (wall times mean nothing on a shared
machine) and peak memory of set-up, of single rounds and of an evaluation, and the bytes of each. Schedules are
shortened, so that what is measured is a step and not its repetitions; ``CASES`` says how. Results go to
``.benchmarks/`` as JSON, one file per commit and suite, and are printed as Markdown.

    python benchmarks/methods_at_scale.py --suite large many clients nodes --methods fedpg fairfgl
    python benchmarks/methods_at_scale.py --suite many --methods fedlog --set run.resident_clients=50

With ``run.resident_clients`` the others are offloaded as in a run; the bytes of their files and what each part read and
wrote are measured, too.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import children

PROFILE = io.StringIO()
"""Where a child writes its profile."""

# Steps instead of schedules: one epoch of what is repeated, or a handful where an epoch costs nothing.
CASES: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedsage": {},
    "fedsage_plus": {
        "local_generator_epochs": 1,
        "generator_epochs": 1,
        "generator_hidden": [256, 256],
        "exchange": "outputs",
    },
    "fedlog": {"generator_epochs": 2},
    "opfgl": {"links": "edgeless", "surrogate_steps": 100, "stage1_epochs": 100, "stage2_epochs": 10,
              "stage2_check": 5},
    "fedpg": {},
    "fairfgl": {},
    "fedridge": {},
}  # fmt: skip
MANY: dict[str, dict[str, Any]] = {
    "fedsage_plus": {"local_generator_epochs": 1, "generator_epochs": 1, "neighgen": "shared"},
}
"""What differs with hundreds of clients: where every client of FedSage+ helps every other, volume is quadratic."""


def arxiv_like(nodes: int, *, clients: int, rule: str, features: int = 128, classes: int = 40) -> dict[str, Any]:
    """A generated graph with ogbn-arxiv's proportions: dense features, 40 classes, 14 link ends per node."""
    return {
        "data.name": "citation-sbm",
        "data.options": {
            "nodes": nodes,
            "classes": classes,
            "features": features,
            "mean_degree": 13.8,
            "feature_density": 0.45,
            "homophily": 0.65,
        },
        "partition.rule": rule,
        "partition.clients": clients,
        "partition.ratios": [0.2, 0.4, 0.4],
    }


def suite(name: str, methods: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Label and settings of every measurement of a suite."""
    for method in methods:
        large = {f"method.{key}": value for key, value in CASES[method].items()}
        many = {f"method.{key}": value for key, value in {**CASES[method], **MANY.get(method, {})}.items()}
        named = {"method.name": method}
        if name == "large":
            yield (
                f"{method}, 169k nodes, 10 clients",
                {**arxiv_like(169_343, clients=10, rule="metis"), **named, **large},
            )
        elif name == "products":
            yield f"{method}, 2.4M nodes, 10 clients", {
                "data.name": "product-sbm", "partition.rule": "louvain", "partition.clients": 10,
                "partition.ratios": [0.1, 0.1, 0.8], "run.resident_clients": 10, **named, **large,
            }  # fmt: skip
        elif name == "many":
            yield f"{method}, 50k nodes, 1000 clients", {
                **arxiv_like(50_000, clients=1000, rule="metis"), **named, **many,
            }  # fmt: skip
        elif name == "physics":
            yield f"{method}, Physics, 1000 clients", {
                "data.name": "Physics", "data.root": children.data_root(), "partition.rule": "metis",
                "partition.clients": 1000, "model.hidden": 8, **named, **many,
            }  # fmt: skip
        elif name == "clients":
            for clients in (10, 100, 1000):
                # As many nodes at each client: what a client costs then stays, and the rest is the server's.
                yield f"{method}, {clients} clients of 50 nodes", {
                    **arxiv_like(50 * clients, clients=clients, rule="random", classes=10), **named, **many,
                }  # fmt: skip
        elif name == "nodes":
            for nodes in (5_000, 20_000, 80_000):
                yield f"{method}, {nodes} nodes", {**arxiv_like(nodes, clients=10, rule="metis"), **named, **large}
        else:
            raise SystemExit(f"unknown suite '{name}'; there are large, products, many, physics, clients, nodes")


# -- one measurement ---------------------------------------------------------------------------------------------------


def measure(settings: dict[str, Any], rounds: int, profile: str | None) -> dict[str, Any]:
    """Prepare the data, then time the parts of a run in this process."""
    import torch

    from graphsilo.experiments.checks import check_support
    from graphsilo.experiments.config import load_config
    from graphsilo.experiments.evaluation import evaluate
    from graphsilo.experiments.seed import SeedRun
    from graphsilo.experiments.simulation import prepare
    from graphsilo.federation import registry
    from graphsilo.federation.ledger import Ledger
    from graphsilo.federation.server import ServerContext
    from graphsilo.runtime.local.offload_folder import OffloadFolder

    torch.set_num_threads(1)
    config = load_config(overrides=settings)
    method, options = registry.load(config.method.name), config.method_config()
    found: dict[str, Any] = {"parts": []}

    @contextmanager
    def part(name: str) -> Iterator[None]:
        children.reset_peak()
        before = carried() | file_bytes()
        start = time.process_time()
        yield
        row = {"part": name, "cpu": time.process_time() - start, "rss": children.memory("VmHWM")}
        row |= {key: size - before[key] for key, size in (carried() | file_bytes()).items()}
        found["parts"].append(row | {"disk": 0 if beside is None else _size(beside)})

    def carried() -> dict[str, int]:
        phases = [ledger.total(phase) for phase in ("setup", "round", "evaluation")]
        return {key: sum(each[key] for each in phases) for key in ("up", "down")}

    ledger = Ledger()
    beside: Path | None = None
    with part("data"):
        simulation = prepare(config, method)
    graph = simulation.graph
    found |= {"nodes": graph.num_nodes, "edges": int(graph.edges.shape[1]), "clients": len(simulation.silos)}
    check_support(config, method, options, simulation)
    offload_folder = None
    if config.run.resident_clients:
        beside = Path(tempfile.mkdtemp())
        offload_folder = OffloadFolder(beside)
    run = SeedRun(config, method, options, simulation, config.run.seeds[0], None, None, offload_folder)
    with part("clients"):
        federation = run.federation(ledger)
        server = method.server(
            ServerContext(
                options,
                simulation.schema,
                simulation.models,
                run.seed,
                federation.clients,
                "cpu",
            )
        )

    def score() -> None:
        federation.at("evaluation", 1)
        evaluate(federation, server, method.client, run.modes, auc=False, minimum=options.min_clients)

    work: list[tuple[str, Callable[[], None]]] = [("set-up", lambda: _at(federation, "setup", 0, server.set_up))]
    for number in range(1, min(rounds, server.rounds) + 1):
        work.append(
            (
                f"round {number}",
                lambda number=number: _at(federation, "round", number, lambda f: server.round(f, number)),  # type: ignore[misc]
            )
        )
        work.append((f"evaluation {number}", score))
    for name, step in work:
        with part(name):
            if profile == name:
                _profiled(step)
            else:
                step()
    found["log"] = {key: float(value) for key, value in server.log.items()}
    if offload_folder is not None and beside is not None:
        offload_folder.close()
        beside.rmdir()
    return found


def file_bytes() -> dict[str, int]:
    """Bytes that this process has read from files and written to them so far, in memory or on disk; or nothing."""
    with suppress(OSError):
        rows = (row.split(": ") for row in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
        counts = {name: int(value) for name, value in rows}
        return {"read": counts["rchar"], "written": counts["wchar"]}
    return {}


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _at(federation: Any, phase: str, number: int, work: Callable[[Any], None]) -> None:
    federation.at(phase, number)
    work(federation)


def _profiled(work: Callable[[], None]) -> None:
    import cProfile
    import pstats

    profiler = cProfile.Profile(time.process_time)
    profiler.runcall(work)
    pstats.Stats(profiler, stream=PROFILE).sort_stats("tottime").print_stats(28)


# -- all of them -------------------------------------------------------------------------------------------------------


def child(settings: dict[str, Any], rounds: int, profile: str | None = None) -> dict[str, Any]:
    """A measurement in a process of its own; one that fails says why."""
    command = [sys.executable, __file__, "--child", json.dumps([settings, rounds, profile])]
    try:
        found = children.execute(command, PYTHONWARNINGS="ignore").json()
    except children.ChildFailed as error:
        return {"error": str(error)}
    if profile:
        print(found.pop("profile"))
    return found


def summary(found: dict[str, Any]) -> dict[str, float]:
    """CPU seconds of set-up, of a later round and of a later evaluation; peak memory; offloaded files; bytes."""
    parts = {row["part"]: row for row in found["parts"]}
    last = max(int(name.split()[1]) for name in parts if name.startswith("round"))
    ours = [row for row in found["parts"] if row["part"] != "data"]
    return {
        "clients": parts["clients"]["cpu"],
        "set-up": parts["set-up"]["cpu"],
        "round 1": parts["round 1"]["cpu"],
        "round": parts[f"round {last}"]["cpu"],
        "evaluation": parts[f"evaluation {last}"]["cpu"],
        "rss": max(row["rss"] for row in ours),
        "data_rss": parts["data"]["rss"],
        "disk": max(row["disk"] for row in ours),
        "setup_bytes": parts["set-up"]["up"] + parts["set-up"]["down"],
        "round_bytes": parts[f"round {last}"]["up"] + parts[f"round {last}"]["down"],
    }


HEAD = (
    "| measured | clients s | set-up s | round 1 s | later round s | evaluation s | peak GB | disk GB | set-up MB |"
    " round MB |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def line(label: str, found: dict[str, Any]) -> str:
    """A row of the table."""
    if "error" in found:
        return f"| {label} | {found['error']} |||||||||"
    row = summary(found)
    numbers = [f"{row[key]:.1f}" for key in ("clients", "set-up", "round 1", "round", "evaluation")]
    sizes = [f"{row[key] / 1e9:.2f}" for key in ("rss", "disk")]
    sizes += [f"{row[key] / 1e6:.1f}" for key in ("setup_bytes", "round_bytes")]
    return f"| {label} | {' | '.join([*numbers, *sizes])} |"


def exponents(results: list[dict[str, Any]], by: str) -> dict[str, float]:
    """b of a·size^b from the last two sizes, by part: at small sizes constants hide it."""
    rows = [(one[by], summary(one)) for one in results if "error" not in one]
    if len(rows) < 2:
        return {}
    (small, before), (large, after) = rows[-2:]
    keys = ("clients", "set-up", "round", "evaluation", "rss", "round_bytes")
    return {
        key: math.log(after[key] / before[key]) / math.log(large / small)
        for key in keys
        if before[key] > 0.05 and after[key] > 0
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", nargs="+", default=["large", "many", "clients", "nodes"])
    parser.add_argument("--methods", nargs="+", default=[name for name in CASES if name != "fedavg"], choices=CASES)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=JSON", help="settings that differ, for all")
    parser.add_argument("--profile", help="profile one part, such as 'round 2'; to stderr")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        settings, rounds, profile = json.loads(chosen.child)
        found = measure(settings, rounds, profile)
        print(json.dumps({**found, "profile": PROFILE.getvalue()} if profile else found))
        return
    differs = {key: json.loads(value) for key, _, value in (item.partition("=") for item in chosen.set)}
    for name in chosen.suite:
        print(f"\n{HEAD}")
        results: dict[str, list[dict[str, Any]]] = {method: [] for method in chosen.methods}
        for label, settings in suite(name, chosen.methods):
            found = child({**settings, **differs}, chosen.rounds, chosen.profile)
            results[settings["method.name"]].append({"label": label, "settings": {**settings, **differs}, **found})
            print(line(label, found), flush=True)
        if name in ("clients", "nodes"):
            for method, each in results.items():
                growth = ", ".join(f"{key} {value:.2f}" for key, value in exponents(each, name).items())
                print(f"\n{method}: exponents between the last two sizes: {growth}")
        path = children.RESULTS / f"methods-{name}-{children.commit()}.json"
        old = json.loads(path.read_text()) if path.exists() else {}
        children.write_json(path, {**old, **results})


if __name__ == "__main__":
    main()
