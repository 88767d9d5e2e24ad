"""A stored partition and the settings beside it."""

from __future__ import annotations

import pytest
import yaml

from graphsilo.data.sources import catalog
from graphsilo.data.sources.files import save_graph
from graphsilo.errors import ConfigError, GraphsiloError
from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.experiments.runner import run
from kit.runs import only


def test_a_stored_partition_stands_for_its_rule(small, tmp_path):
    first = run(small(), out=tmp_path / "one")
    second = run(small(partition__file=str(tmp_path / "one" / "partition.npz"), partition__clients=3))
    assert [row["test"] for row in only(second)["rounds"]] == [row["test"] for row in only(first)["rounds"]]
    with pytest.raises(GraphsiloError, match="was made for 150 nodes"):
        run(
            small(
                partition__file=str(tmp_path / "one" / "partition.npz"),
                data__generator={"nodes": 100, "classes": 3, "features": 40, "feature_density": 0.1},
            )
        )


def test_clients_and_rule_must_agree_with_a_stored_partition(small, tmp_path):
    stored = str(run(small(), out=tmp_path / "one").out / "partition.npz")
    with pytest.raises(ConfigError, match=r"9 clients are asked for .* has 3\. Leave the number out"):
        run(small(partition__file=stored, partition__clients=9))
    path = tmp_path / "both.yaml"
    path.write_text(yaml.safe_dump({"partition": {"rule": "metis", "file": stored}}))
    with pytest.raises(ConfigError, match=r"both the rule 'metis' .* and the stored partition .*only one of them"):
        load_config(path)
    again = run(RunConfig.of(small(partition__file=stored).complete()))  # its defaults are no wishes
    assert again.tree["partition"]["clients"] == 3


def test_clients_must_agree_with_the_number_of_files(small, tmp_path):
    generator = small().data.options
    names = []
    for seed in (0, 1):
        graph = catalog.load("citation-sbm", options={"generator": generator}, seed=seed)
        names.append(str(save_graph(tmp_path / f"{seed}.npz", graph)))
    more = {"data__name": names, "data__generator": None, "partition__rule": "auto"}
    with pytest.raises(ConfigError, match=r"3 clients are asked for .* one client per data set or file makes 2\."):
        run(small(**more, partition__clients=3))
    assert run(small(**more, partition__clients=2)).tree["partition"]["clients"] == 2
