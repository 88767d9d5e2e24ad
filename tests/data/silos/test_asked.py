"""A graph that a model is asked about is prepared as its own was."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from graphsilo.data.silos.asked import Preparation
from graphsilo.data.silos.own import read_silo_file
from graphsilo.data.silos.scaling import FeatureScale
from graphsilo.errors import ConfigError, DataError

TABLES = """
nodes: {path: nodes.csv, id: id, label: kind, features: [age, size]}
edges: {path: edges.csv, source: a, target: b}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "nodes.csv").write_text("id,kind,age,size\nn0,x,10,1\nn1,y,20,\nn2,x,30,3\n")
    (tmp_path / "edges.csv").write_text("a,b\nn0,n1\nn1,n2\n")
    (tmp_path / "tables.yaml").write_text(TABLES + "features: {missing: mean}")
    (tmp_path / "silo.yaml").write_text("name: north" + TABLES + "features: {missing: mean}\npolicy: {}")
    return tmp_path


@pytest.fixture
def known(folder):
    """What a model was trained with: an empty size is 7, and ages are halved about 10."""
    silo = read_silo_file(folder / "silo.yaml").load(0)
    silo = replace(silo, scale=FeatureScale(np.array([10.0, 0.0]), np.array([0.5, 1.0])))
    return Preparation.of(silo, {"scale": "none", "seed": 3}, {"age": 0.0, "size": 7.0}, {})


@pytest.mark.parametrize("name", ["tables.yaml", "silo.yaml"])
def test_tables_and_silo_files_are_filled_and_scaled_as_the_model_was(folder, known, name):
    assert known.options == {"scale": "none"}
    again = Preparation.from_tree(json.loads(json.dumps(known.tree())), known.scale)
    for each in (known, again):
        graph, remark = each.read(folder / name)
        assert graph.features.tolist() == [[0.0, 1.0], [5.0, 7.0], [10.0, 3.0]]
        assert (remark, graph.external_ids.tolist()) == ("", ["n0", "n1", "n2"])


def test_numbers_far_from_those_of_training_are_warned_of(folder, known):
    """Ages had mean 10 and deviation 2; sizes no unit that is known. In months, they lie some 110 deviations off."""
    known.read(folder / "tables.yaml")
    ages = 12 * np.array([10, 20, 30])
    spread = np.sqrt((((ages - 10) / 2) ** 2).mean())
    months = "".join(f"n{row},x,{age},99\n" for row, age in enumerate(ages))
    (folder / "nodes.csv").write_text(f"id,kind,age,size\n{months}")
    with pytest.warns(
        UserWarning, match=f"numbers of 'age' \\(nodes\\) lie {spread:.0f} times as far from the mean as"
    ):
        known.read(folder / "tables.yaml")


def test_so_they_are_where_features_are_not_scaled(folder):
    """Ages 10, 20 and 30 have mean 20 and deviation 8.2; a hundred times of them are a few hundred of these off."""
    plain = Preparation.of(read_silo_file(folder / "silo.yaml").load(0), {}, {"age": 0.0, "size": 7.0}, {})
    again = Preparation.from_tree(json.loads(json.dumps(plain.tree())), None)
    assert plain.read(folder / "tables.yaml")[0].features[:, 0].tolist() == [10, 20, 30]
    (folder / "nodes.csv").write_text("id,kind,age,size\nn0,x,1000,1\nn1,x,2000,\nn2,y,3000,3\n")
    times = np.sqrt(((np.array([1000, 2000, 3000]) - 20) ** 2).mean() / (200 / 3))
    for known in (plain, again):
        with pytest.warns(UserWarning, match=f"numbers of 'age' \\(nodes\\) lie {times:.0f} times as far"):
            graph, _ = known.read(folder / "tables.yaml")
        assert graph.features[:, 0].tolist() == [1000, 2000, 3000]


def test_what_does_not_fit_is_refused(folder, known):
    (folder / "less.yaml").write_text(TABLES.replace("age, size", "age"))
    with pytest.raises(DataError, match="trained on 2 features"):
        known.read(folder / "less.yaml")
    (folder / "one_way.yaml").write_text(TABLES + "features: {missing: mean}")
    with pytest.raises(DataError, match=r"one_way\.yaml says that links have no direction"):
        replace(known, both_ways=False).read(folder / "one_way.yaml")
    with pytest.raises(DataError, match="have no weights, and those that the model was trained on had some"):
        replace(known, weighted=True).read(folder / "tables.yaml")
    (folder / "stored.yaml").write_text(f"name: north\nstore: {folder}\npolicy: {{}}")
    with pytest.raises(ConfigError, match="names a stored silo"):
        known.read(folder / "stored.yaml")
