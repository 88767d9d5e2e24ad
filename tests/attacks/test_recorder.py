"""A run once more, with its messages noted."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

import kit
from graphsilo.attacks import recorder
from graphsilo.errors import ConfigError, RunError
from graphsilo.experiments import runner
from kit.attacks import recorded


def test_all_answers_of_first_and_last_rounds_are_kept():
    run = recorded(method__rounds=7)
    calls = run.recorder.calls
    assert {call.round for call in calls} == {1, 2, 6, 7}
    trained = [call for call in calls if call.step == "train" and call.round == 7]
    assert [call.client for call in trained] == [0, 1, 2]
    assert trained[0].request is trained[2].request  # a broadcast is kept once
    # The mean over the answers, weighted by their training items, is the model at the end.
    total = sum(call.answer.num_samples for call in trained)
    name = next(iter(trained[0].answer.weights))
    mean = sum(call.answer.num_samples * call.answer.weights[name].double() for call in trained) / total
    assert (mean - run.models[0][1][name]).abs().max() < 1e-6


def test_of_secure_sums_only_sums_are_noted():
    run = recorded(run__secure_sums=True, evaluation__report="federation")
    assert {call.client for call in run.recorder.calls} == {None}
    assert all(call.clients == 3 for call in run.recorder.calls)


def test_what_was_sent_is_what_was_sent_then():
    calls = [call for call in recorded().recorder.calls if call.step == "train"]
    first, second = (next(call for call in calls if call.round == number) for number in (1, 2))
    assert any((first.request.weights[name] != second.request.weights[name]).any() for name in first.request.weights)


def test_a_run_is_repeated_to_the_bit(tmp_path):
    runner.run(kit.small_run(run__seeds=[3, 4]), out=tmp_path / "run")
    record, config = recorder.open_run(tmp_path / "run")
    assert recorder.repeat(record, config, 4).differs == ""
    with pytest.raises(ConfigError, match=r"has seeds \[3, 4\]; 5 was asked for"):
        recorder.repeat(record, config, 5)


def test_other_scores_are_said(tmp_path):
    runner.run(kit.small_run(run__seeds=[0]), out=tmp_path / "run")
    record, config = recorder.open_run(tmp_path / "run")
    (seed,) = record.seeds
    other = replace(record, seeds=[replace(seed, best_round=seed.best_round + 1)])
    assert "seed 0 was run again and has other scores than result.json" in recorder.repeat(other, config, 0).differs


def test_a_run_between_machines_is_refused(tmp_path):
    runner.run(kit.small_run(run__seeds=[0]), out=tmp_path / "run")
    (tmp_path / "run" / "silos.json").write_text(json.dumps({}))
    with pytest.raises(RunError, match="which stayed at the silos"):
        recorder.open_run(tmp_path / "run")
