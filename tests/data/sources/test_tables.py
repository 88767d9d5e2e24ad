"""Own tables: what a hospital would write, and the mistakes it would make."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphsilo.data import Graph, load, load_tables, save_graph
from graphsilo.data.sources.tables import read_spec
from graphsilo.errors import ConfigError, DataError
from kit.tables import EDGES, NODES, rewrite


@pytest.mark.parametrize("quoted", [False, True], ids=["semicolons", "quotes"])
def test_weights_with_a_decimal_comma(folder: Path, quoted: bool) -> None:
    rewrite(folder, "a.yaml", "target: dst", "target: dst, weight: weight")
    text = EDGES.replace("0.5", '"0,5"') if quoted else EDGES.replace(",", ";").replace("0.5", "0,5")
    (folder / "edges.csv").write_text(text)
    if not quoted:
        rewrite(folder, "a.yaml", "target: dst", 'target: dst, delimiter: ";"')
    with pytest.raises(DataError, match=r"decimal comma: row 1 \(line 2\): '0,5'.*set edges\.decimal: \",\""):
        load_tables(folder / "a.yaml")
    rewrite(folder, "a.yaml", "target: dst", 'target: dst, decimal: ","')
    graph = load_tables(folder / "a.yaml")
    assert graph.edge_weights is not None
    assert graph.edge_weights.tolist() == [0.5, 0.5, 1, 1]
    rewrite(folder, "edges.csv", "0,5", "0.5")
    with pytest.raises(DataError, match=r"decimal point: row 1 .*Write numbers with ','"):
        load_tables(folder / "a.yaml")
    rewrite(folder, "a.yaml", 'decimal: ","', 'decimal: ";"')
    with pytest.raises(ConfigError, match=r"edges\.decimal must be one of '\.', ','; got ';'"):
        load_tables(folder / "a.yaml")


def test_graph_from_csv(folder: Path) -> None:
    graph = load_tables(folder / "a.yaml")
    assert graph.name == "hospital-a"
    assert graph.features.tolist() == [[40, 1.5, -2, 1], [50, 2.5, 0, 0], [60, 3.5, 10, 1], [70, 4.5, 3, 0]]
    assert graph.feature_names == ("age", "lab_a", "lab_b", "smoker")
    # p4-p4 is a loop, p2-p3 is there twice: two links, four columns.
    assert graph.edges.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert graph.labels.tolist() == [1, 0, -1, 1]
    assert (graph.num_classes, graph.class_names) == (2, ("no", "yes"))
    assert graph.external_ids.tolist() == ["p1", "p2", "p3", "p4"]
    assert {key: mask.tolist() for key, mask in graph.splits.items()} == {
        "train": [True, False, False, False],
        "val": [False, True, False, False],
        "test": [False, False, True, False],
    }


def test_directed_edges_stay_as_they_are(folder: Path) -> None:
    path = rewrite(folder, "a.yaml", "classes:", "directed: true\nclasses:")
    expected = [[0, 1, 2, 3], [1, 2, 1, 3]]
    assert load_tables(path).edges.tolist() == expected
    assert load(str(path)).edges.tolist() == expected
    assert load(str(path), options={"undirected": True}).num_edges == 4


def test_all_other_columns_and_one_hot(folder: Path) -> None:
    path = rewrite(folder, "a.yaml", '[age, "lab_*", smoker]', '"*", one_hot: [ward]')
    graph = load_tables(path)
    assert graph.feature_names == ("age", "lab_a", "lab_b", "smoker", "ward=er", "ward=icu")
    assert graph.features[:, 4:].tolist() == [[0, 1], [1, 0], [0, 1], [1, 0]]


def test_one_hot_with_a_fixed_vocabulary(folder: Path) -> None:
    path = rewrite(folder, "a.yaml", '[age, "lab_*", smoker]', "[age], one_hot: {ward: [icu, er, home]}")
    graph = load_tables(path)
    assert graph.feature_names == ("age", "ward=icu", "ward=er", "ward=home")
    assert graph.features[0].tolist() == [40, 1, 0, 0]
    rewrite(folder, "nodes.csv", "p2,50,2.5,0,false,er", "p2,50,2.5,0,false,garden")
    with pytest.raises(DataError, match=r"not among nodes.one_hot.ward \(icu, er, home\): row 2 \(line 3\): 'garden'"):
        load_tables(path)


def test_class_numbers_follow_numbers_not_spelling(folder: Path) -> None:
    rewrite(folder, "a.yaml", 'classes: ["no", "yes"]\n', "")
    rewrite(folder, "nodes.csv", "icu,yes", "icu,10")
    rewrite(folder, "nodes.csv", "er,no", "er,9.0")
    rewrite(folder, "nodes.csv", "er,yes", "er,-1")
    graph = load_tables(folder / "a.yaml")
    assert graph.class_names == ("9", "10")
    assert graph.labels.tolist() == [1, 0, -1, -1]


def test_without_labels(folder: Path) -> None:
    graph = load_tables(rewrite(folder, "a.yaml", "label: outcome, ", ""))
    assert graph.labels.tolist() == [-1] * 4
    assert graph.num_classes == 2


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("nodes.csv", "p3,60", "p1,60", r"'patient' has one value .* occurred before: row 3 \(line 4\): 'p1'"),
        ("nodes.csv", "p3,60", ",60", r"'patient' .* the id is empty: row 3 \(line 4\)"),
        ("nodes.csv", "p2,50", "p2,fifty", r"'age' .* is not a number: row 2 \(line 3\): 'fifty'"),
        ("nodes.csv", "p2,50", "p2,", r"'age' .* the feature is missing: row 2 \(line 3\)"),
        ("nodes.csv", "p2,50", "p2,NaN", r"'age' .* the feature is missing: row 2 \(line 3\): 'NaN'"),
        ("nodes.csv", "p2,50", "p2,-inf", r"'age' .* infinite or too large"),
        ("nodes.csv", "p2,50", "p2,1e39", r"'age' .* too large for float32"),
        ("nodes.csv", "p2,50", "p2,nan or so", r"is not a number: row 2 \(line 3\): 'nan or so'"),
        ("nodes.csv", "icu,yes", "icu,maybe", r"not among classes \(no, yes\): row 1 \(line 2\): 'maybe'"),
        ("nodes.csv", "no,val", "no,valid", r"'split' .* none of train, val, test: row 2 \(line 3\): 'valid'"),
        ("nodes.csv", "age,", "agee,", r"nodes.csv has no column 'age' \(nodes.features\); did you mean 'agee'"),
        ("nodes.csv", "lab_a,", "age,", r"two columns called 'age'"),
        ("nodes.csv", "p2,50,2.5", "p2,50", r"nodes.csv: row 2 \(line 3\) has too few cells, 7 where .* 8"),
        ("nodes.csv", "p2,50", "p2,,50", r"nodes.csv: row 2 \(line 3\) has too many cells, 9 where .* 8: 'p2,,50"),
        ("nodes.csv", "p2,50", 'p2,"50,5"', r"'age' .* decimal comma: row 2 \(line 3\): '50,5'.*nodes.decimal"),
        ("edges.csv", "p2,p3,1", "p2,p3", r"edges.csv: row 2 \(line 3\) has too few cells, 2 where .* 3"),
        ("edges.csv", "p2,p3", "p2,p3.0", r"Without '\.0' behind them, .* all of these occur there"),
        ("edges.csv", "p2,p3", "p2,P3", r"In lower case, all of these occur there"),
        ("edges.csv", "p2,p3", "p2,p9", r"edges.csv: column 'dst' .* unknown node: row 2 \(line 3\): 'p9'.*nodes.csv"),
        ("edges.csv", "p2,p3", ",p3", r"'src' .* end of an edge is empty: row 2 \(line 3\)"),
        ("edges.csv", "dst", "to", r"edges.csv has no column 'dst' \(edges.target\)"),
        (
            "a.yaml",
            "nodes.csv",
            "nodes.xlsx",
            r"nodes.xlsx does not exist \(.*a.yaml: nodes.path\). Did you mean 'nodes.csv'",
        ),
        ("a.yaml", "smoker]", "smokes]", r"no column 'smokes'.*did you mean 'smoker'"),
        ("a.yaml", "smoker]", '"blood_*"]', r"no column starts with 'blood_'"),
        ("a.yaml", "smoker]", "ward]", r"'ward' .* words such as 'icu'.*one_hot: \[ward\]"),
    ],
)
def test_table_mistakes(folder: Path, name: str, old: str, new: str, message: str) -> None:
    path = rewrite(folder, name, old, new)
    with pytest.raises(DataError, match=message):
        load_tables(path)


def test_files_that_are_nothing(folder: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        read_spec(folder / "b.yaml")
    (folder / "b.yaml").write_text("nodes: {")
    with pytest.raises(ConfigError, match=r"b\.yaml, line 1, column 9: this is no valid YAML"):
        read_spec(folder / "b.yaml")
    (folder / "b.yaml").write_text("- a\n")
    with pytest.raises(ConfigError, match="must be a table of settings"):
        read_spec(folder / "b.yaml")
    (folder / "nodes.csv").write_text(NODES.splitlines()[0] + "\n")
    with pytest.raises(DataError, match="no data rows"):
        load_tables(folder / "a.yaml")
    (folder / "nodes.csv").write_text("")
    with pytest.raises(DataError, match=r"nodes\.csv is empty"):
        load_tables(folder / "a.yaml")


def test_edge_table_without_rows(folder: Path) -> None:
    (folder / "edges.csv").write_text("src,dst\n")
    assert load_tables(folder / "a.yaml").edges.shape == (2, 0)


def test_ids_of_the_table_stay_with_the_nodes(folder: Path) -> None:
    """p4 has no edge to the others: the largest component leaves it, the rest keeps its ids in any order."""
    path = rewrite(folder, "nodes.csv", "p1,40", "007,40")
    rewrite(folder, "edges.csv", "p1,p2", "007,p2")
    graph = load(str(path), options={"largest_component": True, "scale": "unit_rows"})
    assert isinstance(graph, Graph)
    assert graph.external_ids.tolist() == ["007", "p2", "p3"]
    assert graph.subgraph(np.array([2, 0])).external_ids.tolist() == ["p3", "007"]
    again = load(str(save_graph(folder / "saved.npz", graph)))
    assert again.external_ids.tolist() == ["007", "p2", "p3"]


def test_weights_of_edges(folder: Path) -> None:
    path = rewrite(folder, "a.yaml", "target: dst", "target: dst, weight: weight")
    graph = load_tables(path)
    # p2-p3 is there in both directions with the same weight: one link.
    assert graph.edges.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert graph.edge_weights is not None
    assert graph.edge_weights.tolist() == [0.5, 0.5, 1.0, 1.0]
    rewrite(folder, "edges.csv", "p3,p2,1", "p1,p2,0.25")
    assert load_tables(path).edge_weights.tolist() == [0.75, 0.75, 1.0, 1.0]
    directed = load_tables(rewrite(folder, "a.yaml", "classes:", "directed: true\nclasses:"))
    assert directed.edges.tolist() == [[0, 1, 3], [1, 2, 3]]
    assert directed.edge_weights.tolist() == [0.75, 1.0, 1.0]


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("0", r"column 'weight' .* not above 0 .*: row 2 \(line 3\): '0'"),
        ("-1", r"row 2 \(line 3\): '-1'"),
        ("", "the weight is not a number: row 2"),
        ("heavy", "the weight is not a number: row 2 .*'heavy'"),
        ("1e60", "beyond float32: row 2"),
        ("2", "between node p2 and node p3 weighs 2 in one direction and 1 in the other"),
    ],
)
def test_weights_that_are_refused(folder: Path, cell: str, words: str) -> None:
    rewrite(folder, "edges.csv", "p2,p3,1", f"p2,p3,{cell}")
    with pytest.raises(DataError, match=words):
        load_tables(rewrite(folder, "a.yaml", "target: dst", "target: dst, weight: weight"))


def test_weights_from_parquet(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    edges = {"src": ["p1", "p2"], "dst": ["p2", "p3"], "n": [3, 4]}
    pq.write_table(pa.table(edges), folder / "edges.parquet")
    path = rewrite(folder, "a.yaml", "edges.csv, source: src", "edges.parquet, weight: n, source: src")
    assert load_tables(path).edge_weights.tolist() == [3, 3, 4, 4]
    pq.write_table(pa.table(edges | {"n": [3.0, None]}), folder / "edges.parquet")
    with pytest.raises(DataError, match="the weight is missing"):
        load_tables(path)
    pq.write_table(pa.table(edges | {"n": [True, False]}), folder / "edges.parquet")
    with pytest.raises(DataError, match=r"\(edges.weight\) holds bool; weights must be numbers"):
        load_tables(path)
