"""What a run takes of this machine."""

from __future__ import annotations

from graphsilo.experiments.runner import run


def test_what_the_whole_run_took_is_told(small, tmp_path):
    """Loading, checkpoints, writing and the page are part of it."""
    pages = []
    result = run(small(method__rounds=2), out=tmp_path / "run", report=pages.append).tree
    (seed,) = result["seeds"]
    assert pages
    assert result["process"]["cpu_seconds"] > seed["cpu_seconds"]
    assert result["process"]["wall_seconds"] > seed["wall_seconds"]
    assert result["process"]["peak_rss_bytes"] >= seed["peak_rss_bytes"]


def test_a_peak_that_the_system_reports_lower_later_is_no_lower_here(small, tmp_path, monkeypatch):
    """Linux adds up what its processors counted, each a few pages behind."""
    monkeypatch.setattr("graphsilo.experiments.usage.machine.peak", lambda: 1)
    result = run(small(method__rounds=1), out=tmp_path / "run").tree
    (seed,) = result["seeds"]
    assert result["process"]["peak_rss_bytes"] == seed["peak_rss_bytes"]
