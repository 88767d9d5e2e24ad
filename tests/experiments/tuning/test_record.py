"""``tune.json``: read as it was written, refused when it is something else."""

from __future__ import annotations

import pytest

from graphsilo.errors import ConfigError, RunError
from graphsilo.experiments.tuning.record import MethodRecord, TrialRecord, TuneRecord, read, write

TRIALS = [
    TrialRecord(trial=0, settings={}, state="complete", validation=0.5, round=6, cpu_seconds=0.1),
    TrialRecord(trial=1, settings={"method.lr": 0.1}, state="complete", validation=0.7, round=6),
    TrialRecord(trial=2, settings={"method.lr": 1e30}, state="failed", error="it diverged."),
]
METHOD = MethodRecord(name="fedavg", title="FedAvg", space=[{"method.lr": [0.1, 1e30]}], trials=TRIALS, best=1)
STUDY = TuneRecord(
    format=1, graphsilo="0.1.0",
    metric="accuracy", budget=3, sampler="tpe", seed=0, pruned=True, tuning_seeds=[10], seeds=[0], methods=[METHOD],
    final=[],
)  # fmt: skip


def test_a_study_is_read_as_it_was_written(tmp_path):
    write(tmp_path, STUDY)
    found = read(tmp_path)
    assert found == STUDY
    assert found.methods[0].best_trial.settings == {"method.lr": 0.1}
    assert [found.methods[0].count(state) for state in ("complete", "failed", "pruned")] == [2, 1, 0]


def test_what_is_no_study_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="is not there"):
        read(tmp_path)
    (tmp_path / "tune.json").write_text('{"format": 7}')
    with pytest.raises(RunError, match="has format 7; this graphsilo reads 1"):
        read(tmp_path)
