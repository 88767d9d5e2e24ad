"""What everything costs: every method on small and large data, growth, workers, start-up. Part of ``make bench``.

    python benchmarks/suite.py                      # all cases that this state of the code lacks, then the page
    python benchmarks/suite.py --quick              # a few minutes
    python benchmarks/suite.py --only 'methods/*/Cora' --only growth/clients
    python benchmarks/suite.py --show               # the page again, from what is kept
    python benchmarks/suite.py --gate               # has anything become dearer? exit code 1 if so

Every case is a process of its own with one thread, run in turn with its unit, so that numbers are ratios of CPU
seconds: of the yardstick (GRAPHSILO_YARDSTICK) where the work is the same, else of one round of FedAvg on the same
data. Results are kept in ``.benchmarks/cost`` by commit, and the page ``.benchmarks/cost/index.html`` is drawn from
them. The folder ``benchmarks/cost`` holds the parts; ``docs/benchmarks.md`` says how to read the page.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from children import RESULTS, data_root
from cost import cases, gate, measure, others, page
from cost.store import KEPT, Store, code_name, earlier, latest


def main() -> int:
    """Measure what is missing, draw the page; or check the bounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small data and two turns: a few minutes")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PATTERN", help="only cases like this; repeatable"
    )
    parser.add_argument("--largest", type=int, metavar="NODES", help="most nodes of a growth curve (to 2000000)")
    parser.add_argument("--limit", type=float, default=600, help="seconds after which one process is stopped")
    parser.add_argument("--memory", type=float, default=8, help="gigabytes that one process may use")
    parser.add_argument("--yardstick", default=os.environ.get("GRAPHSILO_YARDSTICK"), help="its command; see the docs")
    parser.add_argument("--list", action="store_true", help="name the cases and whether they are done")
    parser.add_argument(
        "--show", action="store_true", help="run nothing, draw the page of this code or else of the latest measured"
    )
    parser.add_argument("--gate", action="store_true", help="check the bounds in benchmarks/cost/bounds.yaml")
    parser.add_argument("--accept", action="store_true", help="with --gate: write new bounds around what is measured")
    options = parser.parse_args()
    if options.gate:
        return gate.main(accept_all=options.accept)
    settings = cases.read_settings()
    found = cases.cases(
        settings,
        cases.registered(),
        quick=options.quick,
        largest=options.largest,
        yardstick=bool(options.yardstick),
    )
    if not Path(data_root()).is_dir():
        print(f"no real graphs in {data_root()} (GRAPHSILO_DATA): only generated ones are measured", file=sys.stderr)
        found = [case for case in found if case.facts.get("data") not in ("Cora", "CiteSeer", "PubMed")]
    found = cases.chosen(found, options.only)
    store = Store(code_name())
    if options.list:
        for case in found:
            print(f"{'done' if store.has(case) else '    '} {case.id} ({case.turns} turns)")
        return 0
    if not options.show:
        limits = measure.Limits(options.limit, round(options.memory * 1e9))
        run(store, found, limits, options.yardstick)
    elif not store.tree["cases"]:
        kept = latest()
        if kept is None:
            print("nothing was measured yet; run this without --show", file=sys.stderr)
            return 1
        store = Store(kept)
    written = page.write(store.tree, earlier(store.name), KEPT, others.sections(RESULTS))
    print(written.read_text(encoding="utf-8"))
    print(f"page: {KEPT / 'index.html'}", file=sys.stderr)
    return 0


def run(store: Store, found: list[cases.Case], limits: measure.Limits, yardstick: str | None) -> None:
    """Measure the cases that are not kept yet, telling how far it is."""
    if "imports" not in store.tree:
        store.note(imports=measure.import_times())
    for place, case in enumerate(found, start=1):
        if store.has(case):
            continue
        start = time.perf_counter()
        result = measure.measure(case, limits, yardstick)
        store.keep(case, result)
        seconds = time.perf_counter() - start
        why = f": {result['reason']}" if result["reason"] else ""
        print(
            f"[{place}/{len(found)}] {case.id} {result['status']} in {seconds:.0f} s{why}", file=sys.stderr, flush=True
        )


if __name__ == "__main__":
    sys.exit(main())
