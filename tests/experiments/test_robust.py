"""A run with robust averages: the same numbers however it is carried out, liars held, and refused where it is idle."""

from __future__ import annotations

import re
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
import torch

from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.federation.codec import decode
from graphsilo.federation.robust import PLAIN, Robust
from graphsilo.methods import scaffold
from graphsilo.methods.fedavg import TrainReply
from graphsilo.runtime.local import clients
from graphsilo.testing.conformance import assemble, encode_unchecked
from graphsilo.testing.small import play
from kit.runs import learned
from kit.stopped import stopped

RULES = [
    {"run__robust": "median", "run__compression": "int8"},
    {"run__robust": "krum", "partition__clients": 5, "method__name": "scaffold"},
]


@pytest.mark.slow
@pytest.mark.parametrize("settings", RULES, ids=[rule["run__robust"] for rule in RULES])
def test_the_same_serially_spread_parked_and_resumed(small, tmp_path, settings):
    settings = {**settings, "evaluation__models": True}
    whole = learned(small(**settings), tmp_path / "whole")
    assert learned(small(**{**settings, "run__robust": "none"}), tmp_path / "mean")[1] != whole[1]
    for how in ({"run__workers": 2}, {"run__resident_clients": 1}):
        assert learned(small(**settings, **how), tmp_path / next(iter(how))) == whole
    again = small(**settings, run__checkpoint_every=1)
    stopped(again, tmp_path / "resumed")
    assert learned(again, tmp_path / "resumed") == whole


def test_the_ledger_holds_what_it_held(small, tmp_path):
    """Single answers are held against each other, and come as they did: not a byte more, of no other kind."""
    for way in ("none", "clip"):
        run(small(method__rounds=1, run__robust=way), out=tmp_path / way)
    plain, robust = (pq.read_table(tmp_path / way / "ledger.parquet").to_pylist() for way in ("none", "clip"))
    assert robust == plain


@pytest.fixture
def liar(monkeypatch):
    """Have client 1 of a run send its model times a number, and its control variate."""
    honest = clients.call

    def install(kind, factor):
        def call(held, name, *rest):
            answer = honest(held, name, *rest)
            if held.client.id != 1 or name != "train":
                return answer
            reply = decode(answer.data, kind)
            fields = [spec.name for spec in reply.specs() if spec.weighted_by]
            lies = {name: {key: factor * one for key, one in getattr(reply, name).items()} for name in fields}
            return encode_unchecked(replace(reply, **lies))

        monkeypatch.setattr(clients, "call", call)

    return install


@pytest.mark.parametrize(("method", "kind"), [("fedavg", TrainReply), ("scaffold", scaffold.TrainReply)])
@pytest.mark.parametrize("way", ["trimmed_mean", "median"])
def test_how_large_a_lie_is_changes_nothing(method, kind, way, liar):
    """Beyond the others' numbers a larger one moves nothing any more; of the mean it decides everything."""

    def learned_with(robust, factor):
        liar(kind, factor)
        server, federation, _ = assemble(registry.load(method), {})
        federation.robust, federation.largest_value = robust, 1e30
        play(server, federation)
        return torch.cat([weights.flatten() for weights in server.weights.values()])

    far, farther = (learned_with(Robust(way), factor) for factor in (-1e4, -1e5))
    assert torch.equal(far, farther)
    assert float(far.abs().max()) < 5.0
    assert float(learned_with(PLAIN, -1e4).abs().max()) > 1e3


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"run__robust": "krum"},
            r"run\.robust=krum with run\.liars=1 needs 5 answers in every round, .* go on with 3",
        ),
        ({"run__robust": "trimmed_mean", "run__liars": 2}, r"with run\.liars=2 needs 5 answers"),
        ({"run__robust": "median", "partition__clients": 2}, r"run\.robust=median needs 3 .* go on with 2\. Use more"),
        ({"run__robust": "clip", "method__participation": 0.5}, "needs 3 answers in every round, and .* with 1"),
        ({"run__robust": "clip", "method__min_clients": 2}, "needs 3 answers in every round, and .* with 2"),
        ({"run__robust": "clip", "run__without": [0]}, "needs 3 answers in every round, and .* with 2"),
        ({"run__robust": "median", "run__secure_sums": True}, r"with run\.secure_sums nobody sees a single one"),
        ({"run__robust": "median", "run__liars": 2}, r"run\.liars would have no effect: run\.robust is 'median'"),
        ({"run__robust": "median", "run__alone": True}, r"no effect: with run\.alone every client is in a federation"),
        ({"run__robust": "median", "method__name": "global"}, "no effect: Centralised has all data in one place"),
        ({"run__robust": "median", "method__name": "local"}, "no effect: Local only has every silo train by itself"),
    ],
)
def test_refused_where_it_cannot_hold_or_is_idle(small, settings, words):
    said = [name.replace("__", ".") for name in settings]
    with pytest.raises(ConfigError, match=words):
        run(small(**settings).with_explicit(said))


@pytest.mark.parametrize(
    ("method", "needs"),
    [
        ("fedridge", "more of its clients"), ("fedproto", r"more of its clients \('train' answers with sums\)"),
        ("fednh", r"more of its clients \('train' answers with weights, sums\)"), ("gcfl", "every client's update"),
        ("dp_fedavg", r"more of its clients \('train_noisily' answers with numbers\)"),
        ("fedpg", "every client's prototypes"),
    ],
)  # fmt: skip
def test_methods_that_send_more_than_averages_are_refused(small, method, needs):
    """What no rule looks at would decide in the rule's name."""
    with pytest.raises(
        UnsupportedError, match=rf"run\.robust=median guards averages and nothing else, .* needs {needs}"
    ) as caught:
        run(small(run__robust="median", method__name=method).with_explicit([]))
    assert re.search(r"Methods that it guards: ([a-z_]+, )*fedavg, feddc, ([a-z_]+, )*scaffold\.$", str(caught.value))


def test_a_base_for_several_runs_is_told_where_it_is_idle(small):
    tree = run(small(run__robust="median", method__name="local", method__rounds=1).with_explicit([])).tree
    assert tree["config"]["run"]["robust"] == "none"
    assert any(text.startswith("run.robust 'median' has no effect: Local only has every") for text in tree["warnings"])


def test_references_have_nobody_to_outvote(small):
    settings = {"run__robust": "trimmed_mean", "run__references": ["local", "alone", "fedridge", "global"]}
    tree = run(small(**settings, method__rounds=1)).tree
    assert {"local", "alone", "fedridge", "global"} <= set(tree["references"])
    assert not any("robust" in text or "liars" in text for text in tree["warnings"])
