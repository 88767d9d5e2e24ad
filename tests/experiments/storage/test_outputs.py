"""Models and embeddings that a run leaves."""

from __future__ import annotations

import pytest

from graphsilo.errors import ConfigError, RunError
from graphsilo.experiments.runner import run
from kit.stopped import Stop, StopAfter, stopped


@pytest.mark.parametrize("wanted", [{"evaluation__models": True}, {"evaluation__embeddings": True}], ids=str)
def test_models_that_were_not_kept_are_refused(small, tmp_path, wanted):
    run(small(), out=tmp_path / "finished")
    stopped(small(run__checkpoint_every=1), tmp_path / "halted")
    (name,) = (key.replace("__", ".") for key in wanted)
    for place in ("finished", "halted"):
        before = (tmp_path / place / "config.yaml").read_bytes()
        told = rf"{name} is true now, but the run in .* was begun without.*{name}=false"
        with pytest.raises(ConfigError, match=told):
            run(small(run__checkpoint_every=1, **wanted), out=tmp_path / place, resume=True)
        assert (tmp_path / place / "config.yaml").read_bytes() == before
    run(small(run__checkpoint_every=1), out=tmp_path / "halted", resume=True)


@pytest.mark.parametrize("method", ["fedavg", "global"])
def test_embeddings_of_a_finished_run_are_made_from_its_models(small, tmp_path, method):
    config = {"evaluation__models": True, "run__seeds": [0, 1], "method__name": method}
    run(small(**config, evaluation__embeddings=True), out=tmp_path / "whole")
    run(small(**config), out=tmp_path / "run")
    again = run(small(**config, evaluation__embeddings=True), out=tmp_path / "run", resume=True)
    assert again.tree["seeds"]
    made = sorted((tmp_path / "whole" / "embeddings").iterdir())
    assert len(made) == (6 if method == "fedavg" else 2)
    for path in made:
        assert path.read_bytes() == (tmp_path / "run" / "embeddings" / path.name).read_bytes(), path.name


def test_embeddings_of_the_seeds_that_were_done_before(small, tmp_path):
    config = {"evaluation__models": True, "run__seeds": [0, 1], "run__checkpoint_every": 1}
    run(small(**config, evaluation__embeddings=True), out=tmp_path / "whole")
    with pytest.raises(Stop):
        run(small(**config), out=tmp_path / "run", observer=StopAfter(1, 2))
    run(small(**config, evaluation__embeddings=True), out=tmp_path / "run", resume=True)
    for path in (tmp_path / "whole" / "embeddings").iterdir():
        assert path.read_bytes() == (tmp_path / "run" / "embeddings" / path.name).read_bytes(), path.name


def test_embeddings_without_models(small, tmp_path):
    run(small(evaluation__models=True), out=tmp_path / "run")
    for path in (tmp_path / "run" / "models").iterdir():
        path.unlink()
    with pytest.raises(RunError, match=r"are made from its models, and .* holds none of seed 0, client 0"):
        run(small(evaluation__models=True, evaluation__embeddings=True), out=tmp_path / "run", resume=True)
