"""Runs one configuration in this process and tells what its parts cost. Started by ``measure.py``.

    python benchmarks/cost/probe.py '{"overrides": {"partition.clients": 10}}'

Seconds of set-up, training and evaluation are told apart by watching the runner's own steps, and memory by resetting
the kernel's high-water mark at the beginning of each; nothing of the package is changed. Prints one JSON object.
"""

from __future__ import annotations

import contextlib
import functools
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from children import memory, reset_peak

_KEPT = ("wall", "cpu", "codec", "calls", "up", "down")


def shared_out(pids: list[int]) -> int:
    """Bytes that several processes use together, shared pages counted once (the sum of their PSS)."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
            total += next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
    return total


def family() -> list[int]:
    """This process and its children."""
    own = Path("/proc/self/task")
    return [int(Path("/proc/self").resolve().name)] + [
        int(pid) for task in own.iterdir() for pid in (task / "children").read_text(encoding="ascii").split()
    ]


class Watch:
    """What the watched steps of a run cost, one entry per call."""

    def __init__(self) -> None:
        self.parts: dict[str, list[dict[str, float]]] = {}
        self.codec_seconds = 0.0
        self.codec_calls = 0
        self.pss = 0

    @contextlib.contextmanager
    def part(self, name: str, cpu: Callable[[], float] = time.process_time) -> Iterator[dict[str, float]]:
        """Measure a stretch; ``cpu`` also counts processes of workers where there are any."""
        row: dict[str, float] = {}
        reset_peak()
        before = cpu()
        start = time.perf_counter()
        codec, calls = self.codec_seconds, self.codec_calls
        yield row
        row["wall"] = time.perf_counter() - start
        row["cpu"] = cpu() - before
        row["codec"], row["calls"] = self.codec_seconds - codec, self.codec_calls - calls
        row["peak"] = float(memory("VmHWM"))
        self.parts.setdefault(name, []).append(row)

    def codec(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its CPU time added to the codec's."""

        @functools.wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            self.codec_calls += 1
            start = time.process_time()
            try:
                return function(*arguments, **options)
            finally:
                self.codec_seconds += time.process_time() - start

        return timed

    def look(self) -> float:
        """Seconds that looking at the clock adds to each of the codec's calls."""
        before, calls = self.codec_seconds, self.codec_calls
        nothing = self.codec(lambda: None)
        for _ in range(20_000):
            nothing()
        cost = (self.codec_seconds - before) / 20_000
        self.codec_seconds, self.codec_calls = before, calls
        return cost

    def install(self) -> None:
        """Watch codec and ledger, set-up, rounds and evaluation of every run of this process."""
        from graphsilo.experiments import seed
        from graphsilo.federation import ledger
        from graphsilo.runtime import dispatch, exchange

        modules: tuple[Any, ...] = (exchange, dispatch)
        for module in modules:
            for name in ("encode", "decode", "decode_known"):
                if hasattr(module, name):
                    setattr(module, name, self.codec(getattr(module, name)))
        ledger.Ledger.record = self.codec(ledger.Ledger.record)  # type: ignore[method-assign]
        place: Any = seed
        steps = place.SeedRun
        set_up, one_round, evaluate = steps._set_up, steps._round, place.evaluate

        def cpu_of(federation: Any) -> Callable[[], float]:
            return lambda: time.process_time() + federation.elsewhere_cpu_seconds

        def watched_set_up(run: Any, server: Any, federation: Any, *rest: Any) -> None:
            with self.part("setup", cpu_of(federation)) as row:
                set_up(run, server, federation, *rest)
            row |= _bytes(run.progress.setup)

        def watched_round(run: Any, number: int, server: Any, federation: Any, *rest: Any) -> None:
            with self.part("round", cpu_of(federation)) as row:
                one_round(run, number, server, federation, *rest)
            row |= _bytes(run.progress.rounds[-1])
            row["number"] = number
            if federation.elsewhere_cpu_seconds:
                self.pss = max(self.pss, shared_out(family()))

        def watched_evaluate(federation: Any, *rest: Any, **options: Any) -> Any:
            top = memory("VmHWM")  # of the training before it, whose mark this part begins anew
            with self.part("evaluation", cpu_of(federation)) as row:
                found = evaluate(federation, *rest, **options)
            row["before"] = float(top)
            sent = federation.ledger.total("evaluation", federation.ledger.round)
            row |= {"up": sent["up"], "down": sent["down"]}
            return found

        steps._set_up, steps._round = watched_set_up, watched_round
        place.evaluate = watched_evaluate

    def summary(self) -> dict[str, dict[str, float]]:
        """Each part's cost, per round: medians over the rounds behind the first, which fills caches.

        A round's own part is what it does beside its evaluation.
        """
        look = self.look()
        rounds, evaluations = self.parts.get("round", []), self.parts.get("evaluation", [])
        alone = []
        for row, scored in zip(rounds, evaluations, strict=True):
            alone.append(
                {
                    **row,
                    **{key: row[key] - scored[key] for key in ("wall", "cpu", "codec", "calls")},
                    "peak": scored["before"],
                }
            )
        both = {"round": alone[1:] or alone, "evaluation": evaluations[1:] or evaluations}
        found = {
            name: {key: statistics.median(row[key] for row in rows) for key in _KEPT}
            | {"peak": max(row["peak"] for row in rows)}
            for name, rows in {"setup": self.parts.get("setup", []), **both}.items()
            if rows
        }
        for row in found.values():
            row["codec"] = max(0.0, row["codec"] - look * row.pop("calls"))
        return found


def _bytes(row: Mapping[str, Any]) -> dict[str, float]:
    return {"up": row["upload_bytes"], "down": row["download_bytes"]}


def limit_memory(size: int) -> None:
    """Have what asks for more than so many bytes fail, instead of everything on the machine."""
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def probe(overrides: Mapping[str, Any], *, watched: bool = True) -> dict[str, Any]:
    """Run a configuration; returns the costs of its parts in seconds and bytes.

    Args:
        overrides: Dotted settings.
        watched: Whether parts are told apart; watching adds some 0.2 ms to a round.
    """
    import torch

    from graphsilo.experiments import simulation
    from graphsilo.experiments.config import load_config
    from graphsilo.experiments.runner import run
    from graphsilo.federation import registry

    torch.set_num_threads(1)
    watch = Watch()
    if watched:
        watch.install()
    config = load_config(overrides)
    method = registry.load(config.method.name)
    base = memory()
    steps: Any = simulation
    load, cut = steps.load_data, steps.cut

    def watched_load(*arguments: Any) -> Any:
        with watch.part("load"):
            return load(*arguments)

    def watched_cut(*arguments: Any) -> Any:
        with watch.part("cut"):
            return cut(*arguments)

    steps.load_data, steps.cut = watched_load, watched_cut
    with watch.part("prepare"):
        prepared = simulation.prepare(config, method)
    held = memory()
    tree = run(config, simulation=prepared).tree
    seed = tree["seeds"][0]
    parts = watch.summary()
    for name in ("prepare", "load", "cut"):
        for row in watch.parts.get(name, []):
            parts[name] = {key: row[key] for key in ("wall", "cpu", "peak")}
    # The parts of the preparation began the mark anew.
    parts["prepare"]["peak"] = max(parts[name]["peak"] for name in ("prepare", "load", "cut") if name in parts)
    return {
        "parts": parts,
        "base": base,
        "held": held,
        "pss": watch.pss,
        "cpu": sum(row["cpu_seconds"] for row in seed["rounds"]),
        "wall": sum(row["wall_seconds"] for row in seed["rounds"]),
        "rounds": len(seed["rounds"]),
        "score": seed["test"].get("accuracy", seed["test"].get("auc")),
        "clients": len(prepared.clients),
        "model": ", ".join(sorted({spec.name for spec in prepared.models.values()})),
    }


def main() -> None:
    """Read what to run, run it, print what it cost."""
    wanted = json.loads(sys.argv[1])
    if wanted.get("memory"):
        limit_memory(wanted["memory"])
    print(json.dumps(probe(wanted["overrides"], watched=wanted.get("watched", True))))


if __name__ == "__main__":
    main()
