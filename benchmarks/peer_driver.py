"""Runs the peer, OpenFGL, from a folder with its source: what ``side_by_side.py`` starts in the peer's own Python.

It needs nothing of graphsilo, changes nothing of the peer, and prints one JSON object on its last line. Clocks stand
around the two calls that the peer's own documentation names: making its trainer, and training.

    python peer_driver.py SOURCE SETTINGS.json [CUT.npz]
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any


def peer(source: Path) -> tuple[Any, Any, Any]:
    """Settings, trainer and seeding of the peer: of its repository, or of its package."""
    sys.path.insert(0, str(source))
    prefix = "openfgl." if (source / "openfgl" / "flcore").is_dir() else ""
    arguments, sys.argv = sys.argv, sys.argv[:1]  # it reads the command line where it is imported
    try:
        settings = importlib.import_module(f"{prefix}config").args
        trainer = importlib.import_module(f"{prefix}flcore.trainer").FGLTrainer
        seeding = importlib.import_module(f"{prefix}utils.basic_utils").seed_everything
    finally:
        sys.argv = arguments
    return settings, trainer, seeding


def write_cut(trainer: Any, path: Path) -> None:
    """The nodes of every client and how they are split, as a stored partition of graphsilo."""
    import numpy as np

    found = {}
    for place, client in enumerate(trainer.clients):
        nodes = np.array([client.task.data.global_map[node] for node in range(client.task.num_samples)], dtype=np.int64)
        found[f"nodes_{place}"] = nodes
        for part in ("train", "val", "test"):
            found[f"{part}_{place}"] = np.sort(nodes[getattr(client.task, f"{part}_mask").cpu().numpy()])
        found[f"nodes_{place}"] = np.sort(nodes)
    np.savez(path, **found)


def main() -> None:
    source, wanted = Path(sys.argv[1]), json.loads(sys.argv[2])
    settings, make, seed_everything = peer(source)
    for name, value in wanted.items():
        setattr(settings, name, value)
    seed_everything(settings.seed)
    begun = time.process_time()
    trainer = make(settings)
    made = time.process_time()
    trainer.train()
    trained = time.process_time()
    if len(sys.argv) > 3:
        write_cut(trainer, Path(sys.argv[3]))
    best = {name: float(value) for name, value in trainer.evaluation_result.items()}
    print()
    print(json.dumps({"setup_cpu": made - begun, "train_cpu": trained - made, "test": best["best_test_accuracy"]}))


if __name__ == "__main__":
    main()
