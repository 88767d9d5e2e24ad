"""What a run writes."""

from __future__ import annotations

import json

from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run


def test_result_on_disk(small, tmp_path):
    result = run(small(evaluation__models=True), out=tmp_path / "run")
    tree = json.loads((tmp_path / "run" / "result.json").read_text())
    assert tree == json.loads(json.dumps(result.tree))
    assert tree["format"] == 1
    assert tree["graphsilo"]
    assert tree["config"] == load_config(tmp_path / "run" / "config.yaml").complete()
    assert len(tree["fingerprint"]) == 64
    seed = tree["seeds"][0]
    assert {
        "seed", "best_round", "validation", "test", "scenarios", "rounds", "clients", "setup", "cpu_seconds",
        "wall_seconds", "peak_rss_bytes",
    } <= set(seed)  # fmt: skip
    assert {"accuracy", "macro_f1", "min_f1", "hete_f1", "hete_min_f1", "pooled", "worst_client"} <= set(seed["test"])
    assert [row["round"] for row in seed["rounds"]] == [1, 2, 3]
    assert {
        "round", "validation", "test", "upload_bytes", "download_bytes", "cpu_seconds", "wall_seconds"
    } <= set(seed["rounds"][0])  # fmt: skip
    assert {"client", "nodes", "train", "test"} <= set(seed["clients"][0])
    assert [client["client"] for client in seed["clients"]] == [0, 1, 2]
    assert sum(client["nodes"] for client in seed["clients"]) == 150
    assert seed["setup"]["upload_bytes"] == seed["setup"]["download_bytes"] == 0
    assert set(tree["summary"]["test"]["accuracy"]) >= {"mean", "std"}
    assert 0 <= seed["test"]["accuracy"] <= 1
    assert seed["peak_rss_bytes"] > 2**20
    for name in ("config.yaml", "rounds.parquet", "ledger.parquet", "partition.npz", "checkpoints/seed-0.ckpt"):
        assert (tmp_path / "run" / name).exists()
    models = sorted(path.name for path in (tmp_path / "run" / "models").iterdir())
    assert models == sorted(
        [f"seed0-client{k}-{when}.safetensors" for k in range(3) for when in ("best", "last")]
        + [f"seed0-aggregate-{when}.safetensors" for when in ("best", "last")]
    )
    assert not [path for path in (tmp_path / "run").rglob(".*") if path.name != ".lock"]


def test_bytes_add_up(small, tmp_path):
    import pyarrow.parquet as pq

    tree = run(small(run__seeds=[0, 1]), out=tmp_path / "run").tree
    table = pq.read_table(tmp_path / "run" / "ledger.parquet").to_pylist()
    for seed in tree["seeds"]:
        steps = [seed["setup"], *seed["rounds"]]
        for name in ("cpu_seconds", "server_cpu_seconds"):
            assert seed[name] == sum(step[name] for step in steps) > 0
        for row in seed["rounds"]:
            for direction, key in (("up", "upload_bytes"), ("down", "download_bytes")):
                noted = sum(
                    entry["bytes"]
                    for entry in table
                    if entry["seed"] == seed["seed"]
                    and (entry["phase"], entry["round"], entry["direction"]) == ("round", row["round"], direction)
                )
                assert noted == row[key] > 0
    total = sum(row["upload_bytes"] for row in tree["seeds"][0]["rounds"])
    assert tree["summary"]["upload_bytes"] == total
    assert {entry["kind"] for entry in table if entry["direction"] == "up"} == {"model", "counts", "control", "score"}
