"""A first federation from Python: load, cut, train, compare, predict. Needs no network; takes a few seconds.

    python examples/quickstart.py [FOLDER]

Results and report pages go to FOLDER (by default ``runs/example``, made anew).
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import graphsilo
from graphsilo import report


def main(folder: Path) -> None:
    """Train two methods on one cut of a generated graph and put them side by side."""
    # A graph like Cora, smaller: 600 nodes in 4 classes. `graphsilo list data` shows the real ones.
    data = {"name": "citation-sbm", "nodes": 600, "classes": 4, "features": 100, "feature_density": 0.05}

    # Cut along communities into three silos. The cut is a file, so that both methods train on the very same one.
    cut = graphsilo.partition(graphsilo.load(**data), "louvain", clients=3)
    cut.save(folder / "cut.npz")
    print("nodes per silo:", [len(nodes) for nodes in cut.nodes])

    results = [
        graphsilo.run(
            data=data,
            partition=folder / "cut.npz",
            method=method,
            model={"name": "gcn", "hidden": 16},
            rounds=15,
            seeds=[0, 1],
            references=["local", "global"] if name == "fedavg" else None,
            out=folder / name,
        )
        for name, method in {"fedavg": "fedavg", "fedprox": {"name": "fedprox", "mu": 0.1}}.items()
    ]
    for result in results:
        sent = result.summary["upload_bytes"]
        print(f"{result.tree['method']['title']}: accuracy {result.accuracy():.3f}, {sent} bytes left the silos")

    print(report.to_markdown(graphsilo.compare(*results, report=folder / "comparison.html")))

    prediction = graphsilo.predict(results[0], client=0)
    for node, chosen, chances in list(
        zip(prediction.node_ids, prediction.classes, prediction.probabilities, strict=True)
    )[:3]:
        print(f"node {node}: class {chosen}, probability {chances[chosen]:.2f}")
    print("report:", folder / "fedavg" / "report.html")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs/example")
    if len(sys.argv) == 1:
        shutil.rmtree(target, ignore_errors=True)
    main(target)
