"""A run with compressed models: the same numbers however it is carried out, and refused where it cannot hold."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

import graphsilo
from graphsilo.errors import ConfigError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.report.exchange import kind_table, ledger_sentence
from graphsilo.report.record import load
from graphsilo.testing.conformance import numbers
from kit.stopped import stopped

TOPK = {"run__compression": "topk", "run__top_share": 0.1}


def bytes_of(tree):
    return tree["summary"]["upload_bytes"], tree["summary"]["download_bytes"]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [TOPK, {"run__compression": "int8"}], ids=["topk", "int8"])
def test_the_same_serially_spread_parked_and_resumed(small, tmp_path, settings):
    whole = run(small(**settings)).tree
    for how in ({"run__workers": 2}, {"run__resident_clients": 1}):
        other = run(small(**settings, **how)).tree
        assert numbers(other) == numbers(whole)
        assert bytes_of(other) == bytes_of(whole)
    again = small(**settings, run__checkpoint_every=1)
    stopped(again, tmp_path / "resumed")
    assert numbers(run(again, out=tmp_path / "resumed", resume=True).tree) == numbers(whole)


def test_fewer_bytes_go_up_and_as_many_come_down(small, tmp_path):
    plain, fewer = run(small()).tree, run(small(run__compression="int8"), out=tmp_path / "out").tree
    assert bytes_of(plain)[1] == bytes_of(fewer)[1]
    assert bytes_of(fewer)[0] < bytes_of(plain)[0]
    rows = pq.read_table(tmp_path / "out" / "ledger.parquet").to_pylist()
    up = {row["field"]: row for row in rows if row["direction"] == "up" and row["handler"] == "train"}
    assert {row["message"] for row in up.values()} == {"fedavg.TrainReply (int8)"}
    assert (up["weights"]["kind"], up["num_samples"]["kind"]) == ("model", "counts")


def test_it_comes_in_by_every_door(small, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("run: {compression: topk, top_share: 0.2}\n")
    for config in (
        load_config(path),
        load_config(assignments=["run.compression=topk", "run.top_share=0.2"]),
        load_config({"run": {"compression": "topk", "top_share": 0.2}}),
    ):
        assert (config.run.compression, config.run.top_share) == ("topk", 0.2)
    with pytest.raises(ConfigError, match=r"run\.compression must be one of none, int8, topk; got 'zip'"):
        load_config(overrides={"run.compression": "zip"})
    with pytest.raises(ConfigError, match=r"run\.top_share would have no effect: run\.compression is 'int8'"):
        run(load_config(overrides={"run.compression": "int8", "run.top_share": 0.2}))
    result = graphsilo.run(small(method__rounds=1), **{"run.compression": "int8"})
    assert result.tree["config"]["run"]["compression"] == "int8"


def test_refused_where_it_cannot_hold(small):
    with pytest.raises(ConfigError, match=r"run\.secure_sums masks all of it"):
        run(small(run__compression="int8", run__secure_sums=True))
    noisy = {"method__name": "dp_fedavg", "method__epsilon": 50.0, "method__noise": "silo"}
    with pytest.raises(ConfigError, match="makes a promise of the numbers that it sends"):
        run(small(run__compression="int8", **noisy))


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("fedproto", "no answer of FedProto holds a model that the client was sent"),
        ("majority", "no answer of Majority class holds a model"),
        ("local", "no answer of Local only holds a model"),
        ("global", "Centralised has all data in one place"),
    ],
)
def test_where_no_model_is_sent_there_is_nothing_to_compress(small, method, reason):
    with pytest.raises(ConfigError, match=rf"run\.compression would have no effect: {reason}"):
        run(small(run__compression="int8", method__name=method).with_explicit(["run.compression"]))
    told = run(small(run__compression="int8", method__name=method, method__rounds=1).with_explicit([])).tree
    assert told["config"]["run"]["compression"] == "none"
    assert any(text.startswith(f"run.compression 'int8' has no effect: {reason}") for text in told["warnings"])


def test_the_page_says_how_a_model_was_sent(small, tmp_path):
    for settings in (TOPK, {}):
        run(small(method__rounds=1, **settings), out=tmp_path / str(len(settings)))
    runs = [load(tmp_path / str(count)) for count in (2, 0)]
    left = [{name: left for name, left, *_ in kind_table(run.ledger, run.config["run"]).rows}["model"] for run in runs]
    assert left == [
        "model weights after local training, as the largest 10 % of their change: 8 bytes for each of these numbers, "
        "not 4 for all (run.compression=topk)",
        "model weights after local training",
    ]
    fewer, plain = (ledger_sentence(run.ledger, 1, run.config["run"]) for run in runs)
    assert "model weights (compressed)" in fewer
    assert "compressed" not in plain
