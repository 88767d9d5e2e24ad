"""The peer's side, with a stand-in for it, and the table, by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import side_by_side
from children import execute

PEER = {
    "config.py": "from types import SimpleNamespace\nargs = SimpleNamespace(seed=0, num_rounds=100, dataset=[])\n",
    "utils/basic_utils.py": "seeds = []\ndef seed_everything(seed):\n    seeds.append(seed)\n",
    "flcore/trainer.py": """
from types import SimpleNamespace
import numpy as np
from PREFIX.utils.basic_utils import seeds

class Mask:
    def __init__(self, *nodes):
        self.mask = np.isin(range(3), nodes)
    def cpu(self):
        return self
    def numpy(self):
        return self.mask

class FGLTrainer:
    def __init__(self, args):
        assert seeds == [args.seed]
        data = SimpleNamespace(global_map={0: 7, 1: 2, 2: 5})
        task = SimpleNamespace(data=data, num_samples=3, train_mask=Mask(0), val_mask=Mask(1), test_mask=Mask(2))
        self.clients, self.args, self.evaluation_result = [SimpleNamespace(task=task)], args, {"best_round": 0}
    def train(self):
        self.evaluation_result["best_test_accuracy"] = self.args.num_rounds / 1000
        print("a line of the peer's own")
""",
}


@pytest.mark.parametrize("package", ["openfgl", ""])
def test_the_driver_runs_a_peer_as_package_or_repository(package: str, tmp_path: Path) -> None:
    for name, text in PEER.items():
        path = tmp_path / package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("PREFIX.", f"{package}." if package else ""))
    driver = str(side_by_side.HERE / "peer_driver.py")
    settings = json.dumps({"seed": 3, "num_rounds": 40})
    found = execute([sys.executable, driver, str(tmp_path), settings, str(tmp_path / "cut.npz")]).json()
    assert found["test"] == 0.04
    assert found.keys() == {"setup_cpu", "train_cpu", "test"}
    with np.load(tmp_path / "cut.npz") as cut:
        parts = {name: cut[name].tolist() for name in cut.files}
    # Node 0 of the client is node 7 of the graph, and trained on.
    assert parts == {"nodes_0": [2, 5, 7], "train_0": [7], "val_0": [2], "test_0": [5]}


def test_ratios_are_medians_over_turns() -> None:
    """Training: 20 / 2, 30 / 5 and 40 / 8 are 10, 6 and 5; the process 30 / 10, 40 / 10, 50 / 10."""

    def turn(peer: float, ours: float) -> dict[str, object]:
        row = {"train": ours, "whole": 10.0, "memory": 2.0, "test": 0.7}
        sides = {
            "peer": {"train": peer, "whole": peer + 10, "memory": 3.0, "test": 0.75},
            "same work": row,
            "as called": {**row, "whole": 20.0},
        }
        return {"method": "fedavg", "data": "Cora", "sides": sides}

    *_, line = side_by_side.table([turn(20, 2), turn(30, 5), turn(40, 8)]).splitlines()
    assert line == (
        "| fedavg, Cora | 3 | 30.0 s, 40.0 s | 5.0 s, 10.0 s | 6.0 × | 4.0 × | 2.0 × | 1.5 × | 75.0, 70.0 |"
    )


def test_methods_and_settings_are_those_of_both() -> None:
    from graphsilo.federation import registry

    for method in side_by_side.METHODS.values():
        fields = registry.load(method.name).config.model_fields
        assert all(name.removeprefix("method.") in fields for name in method.ours)
