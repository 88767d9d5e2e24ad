"""Own tables: what a hospital would write, and the mistakes it would make."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from graphsilo.data import Graph, load, load_tables, save_graph
from graphsilo.data.sources.tables import read_spec
from graphsilo.errors import ConfigError, DataError

NODES = """patient,age,lab_a,lab_b,smoker,ward,outcome,split
p1,40,1.5,-2,true,icu,yes,train
p2,50,2.5,0,false,er,no,val
p3,60,3.5,1e1,true,icu,,test
p4,70,4.5,3,false,er,yes,
"""
EDGES = "src,dst,weight\np1,p2,0.5\np2,p3,1\np3,p2,1\np4,p4,1\n"
YAML = """name: hospital-a
nodes: {path: nodes.csv, id: patient, label: outcome, features: [age, "lab_*", smoker], split: split}
edges: {path: edges.csv, source: src, target: dst}
classes: ["no", "yes"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text(EDGES)
    (tmp_path / "a.yaml").write_text(YAML)
    return tmp_path


def rewrite(folder: Path, name: str, old: str, new: str) -> Path:
    path = folder / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return folder / "a.yaml"


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


def test_compressed_csv_and_parquet_agree(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = load_tables(folder / "a.yaml")
    (folder / "nodes.csv.gz").write_bytes(gzip.compress(NODES.encode()))
    edges = {"src": ["p1", "p2", "p3", "p4"], "dst": ["p2", "p3", "p2", "p4"]}
    pq.write_table(pa.table(edges), folder / "edges.parquet")
    rewrite(folder, "a.yaml", "nodes.csv", "nodes.csv.gz")
    graph = load_tables(rewrite(folder, "a.yaml", "edges.csv", "edges.parquet"))
    assert np.array_equal(graph.features, wanted.features)
    assert np.array_equal(graph.edges, wanted.edges)


def test_parquet_with_whole_number_ids_and_gaps_in_labels(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    nodes = {"id": [10, 7, 3], "y": [2.0, None, 0.0], "x": [1, 2, 3], "b": [True, False, True]}
    pq.write_table(pa.table(nodes), tmp_path / "n.parquet")
    (tmp_path / "e.csv").write_text("a,b\n7,3\n")
    (tmp_path / "t.yaml").write_text(
        "nodes: {path: n.parquet, id: id, label: y}\nedges: {path: e.csv, source: a, target: b}\n"
    )
    graph = load_tables(tmp_path / "t.yaml")
    assert graph.name == "t"
    assert graph.features.tolist() == [[1, 1], [2, 0], [3, 1]]
    assert graph.edges.tolist() == [[1, 2], [2, 1]]
    assert graph.labels.tolist() == [1, -1, 0]
    assert graph.class_names == ("0", "2")
    assert graph.splits == {}
    pq.write_table(pa.table(nodes | {"x": [1.0, float("nan"), None]}), tmp_path / "n.parquet")
    with pytest.raises(DataError, match=r"'x' has 2 values where the feature is missing: row 2: nan; row 3\."):
        load_tables(tmp_path / "t.yaml")


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


def test_semicolons(folder: Path) -> None:
    (folder / "edges.csv").write_text(EDGES.replace(",", ";"))
    path = rewrite(folder, "a.yaml", "target: dst", 'target: dst, delimiter: ";"')
    assert load_tables(path).num_edges == 4


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
        ("edges.csv", "p2,p3", "p2,p9", r"edges.csv: column 'dst' .* unknown node: row 2 \(line 3\): 'p9'.*nodes.csv"),
        ("edges.csv", "p2,p3", ",p3", r"'src' .* end of an edge is empty: row 2 \(line 3\)"),
        ("edges.csv", "dst", "to", r"edges.csv has no column 'dst' \(edges.target\)"),
        ("a.yaml", "nodes.csv", "nodes.xlsx", r"nodes.xlsx does not exist"),
        ("a.yaml", "smoker]", "smokes]", r"no column 'smokes'.*did you mean 'smoker'"),
        ("a.yaml", "smoker]", '"blood_*"]', r"no column starts with 'blood_'"),
        ("a.yaml", "smoker]", "ward]", r"'ward' .* words such as 'icu'.*one_hot: \[ward\]"),
    ],
)
def test_table_mistakes(folder: Path, name: str, old: str, new: str, message: str) -> None:
    path = rewrite(folder, name, old, new)
    with pytest.raises(DataError, match=message):
        load_tables(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("classes:", "clases:", r"unknown setting 'clases'; did you mean 'classes'"),
        ("features:", "feature:", r"unknown setting 'nodes\.feature'; did you mean 'nodes\.features'"),
        ("id: patient, ", "", r"nodes\.id is missing; it must be text"),
        ("classes:", "directed: maybe\nclasses:", r"directed must be true or false; got 'maybe'"),
        ('["no", "yes"]', "[no, yes]", r"classes must be a list of names \(YAML .* quote such words\); got \[False"),
        ('["no", "yes"]', "[a, a]", r"classes must be a list of names, each once \('a' stands there twice\)"),
        ("smoker]", "outcome]", r"'outcome' is the label column"),
        ("smoker]", "1.5]", r"nodes\.features\.2 must be text; got 1\.5"),
        ("id: patient", "id: [patient]", r"nodes\.id must be text; got \['patient'\]"),
    ],
)
def test_yaml_mistakes(folder: Path, old: str, new: str, message: str) -> None:
    path = rewrite(folder, "a.yaml", old, new)
    with pytest.raises(ConfigError, match=message):
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


def test_only_the_first_rows_are_listed(folder: Path) -> None:
    rows = "".join(f"p{row},x{row},a,1\n" for row in range(10))
    (folder / "nodes.csv").write_text("patient,age,outcome,ok\n0,1,a,1\n" + rows)
    (folder / "edges.csv").write_text("src,dst\n")
    (folder / "a.yaml").write_text(
        "nodes: {path: nodes.csv, id: patient, label: outcome}\nedges: {path: edges.csv, source: src, target: dst}\n"
    )
    with pytest.raises(DataError, match=r"has 10 values .*row 2 \(line 3\): 'x0'; .*'x2' and 7 more\.") as caught:
        load_tables(folder / "a.yaml")
    assert "x3" not in str(caught.value)


def test_lines_are_counted_past_breaks_inside_cells_and_blank_lines(folder: Path) -> None:
    # The quoted ward of p1 takes lines 2 and 3, line 4 is blank, so p2 stands on line 5.
    rewrite(folder, "nodes.csv", "true,icu,yes,train\n", 'true,"i\ncu",yes,train\n\n')
    path = rewrite(folder, "nodes.csv", "p2,50", "p2,fifty")
    with pytest.raises(DataError, match=r"row 2 \(line 5\): 'fifty'"):
        load_tables(path)


def test_ids_are_compared_as_they_are_written(folder: Path) -> None:
    text = NODES.replace("p1", "007").replace("p2", "7").replace("p3", " 8 ")
    (folder / "nodes.csv").write_text(text)
    (folder / "edges.csv").write_text("src,dst\n007,8\n")
    assert load_tables(folder / "a.yaml").edges.tolist() == [[0, 2], [2, 0]]


def test_line_breaks_inside_cells_and_blank_lines_count_as_lines(folder: Path) -> None:
    path = rewrite(folder, "nodes.csv", "p1,40,1.5,-2,true,icu", 'p1,40,1.5,-2,true,"i\ncu"')
    rewrite(folder, "nodes.csv", "p3,60", "\np3")
    with pytest.raises(DataError, match=r"row 3 \(line 6\) has too few cells"):
        load_tables(path)


@pytest.mark.parametrize(
    ("name", "sign", "advice"),
    [
        ("nodes.csv", ";", r"separated by ';'\. Set nodes\.delimiter: ';'"),
        ("nodes.csv", "\t", r'separated by a tab\. Set nodes\.delimiter: "\\t"'),
        ("edges.csv", "|", r"separated by '\|'\. Set edges\.delimiter: '\|'"),
    ],
)
def test_another_separator_is_suggested(folder: Path, name: str, sign: str, advice: str) -> None:
    content = (folder / name).read_text()
    (folder / name).write_text(content.replace(",", sign))
    with pytest.raises(DataError, match=rf"{name}: the header is one column, .*{advice}"):
        load_tables(folder / "a.yaml")


def test_what_is_suggested_works(folder: Path) -> None:
    (folder / "nodes.csv").write_text(NODES.replace(",", "\t"))
    (folder / "edges.csv").write_text(EDGES.replace(",", ";"))
    path = rewrite(folder, "a.yaml", "id: patient", r'id: patient, delimiter: "\t"')
    rewrite(folder, "a.yaml", "source: src", "source: src, delimiter: ';'")
    assert load_tables(path).num_nodes == 4


def test_text_that_is_not_utf8(folder: Path) -> None:
    (folder / "nodes.csv").write_bytes(
        NODES.replace("p3,60,3.5,1e1,true,icu", "p3,60,3.5,1e1,true,né").encode("latin-1")
    )
    with pytest.raises(DataError, match=r"nodes\.csv: row 3 \(line 4\), column 'ward', holds bytes that are not UTF-8"):
        load_tables(folder / "a.yaml")
    (folder / "nodes.csv").write_bytes(NODES.replace("ward", "wärd").encode("latin-1"))
    with pytest.raises(DataError, match=r"nodes\.csv: the header \(line 1\) holds bytes that are not UTF-8"):
        load_tables(folder / "a.yaml")


def test_a_truncated_archive(folder: Path) -> None:
    whole = gzip.compress((NODES * 50).encode())
    (folder / "nodes.csv.gz").write_bytes(whole[: len(whole) // 2])
    path = rewrite(folder, "a.yaml", "nodes.csv", "nodes.csv.gz")
    with pytest.raises(DataError, match=r"nodes\.csv\.gz cannot be read"):
        load_tables(path)


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
