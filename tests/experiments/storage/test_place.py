"""A run that writes nowhere."""

from __future__ import annotations

from graphsilo.experiments.runner import run


def test_a_run_without_a_folder_keeps_nothing(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(small(run__references=["local"])).out is None
    assert list(tmp_path.iterdir()) == []
