"""``graphsilo why`` prints shares, and writes a page of the highest scores."""

from __future__ import annotations

from graphsilo.cli import main
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run

BASE = {
    "data.name": "citation-sbm", "data.generator": {"nodes": 150, "classes": 3, "features": 40},
    "partition.rule": "random", "partition.clients": 3,
}  # fmt: skip


def test_the_page_and_the_table(tmp_path, capsys):
    page, place = tmp_path / "why.html", str(tmp_path / "run")
    run(load_config(overrides={**BASE, "method": {"name": "fedridge"}}), out=place)
    assert main(["why", "--run", place, "--client", "0", "--top", "2", "--page", str(page)]) == 0
    assert 'id="node-1"' in page.read_text()
    assert main(["why", "--run", place, "--node", "3", "--top", "2"]) == 0
    assert "itself" in capsys.readouterr().out
    assert main(["why", "--run", place]) == 2
