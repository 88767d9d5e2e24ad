"""CSV and parquet as they come."""

from __future__ import annotations

import gzip
import uuid
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from graphsilo.data import load_tables
from graphsilo.data.sources import table_files
from graphsilo.data.sources.faults import Faults
from graphsilo.data.sources.table_files import Format, Table, TableFile, TableSource
from graphsilo.errors import ConfigError, DataError
from kit.tables import EDGES, NODES, rewrite


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


def test_a_further_kind_of_file_is_one_entry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyarrow import json

    wanted = load_tables(folder / "a.yaml")
    kind = Format("JSON lines", (".jsonl",), lambda source, part: (json.read_json(source.path), None))
    monkeypatch.setattr(table_files, "FORMATS", (*table_files.FORMATS, kind))
    rows = [line.split(",") for line in EDGES.split()[1:]]
    (folder / "edges.jsonl").write_text("".join(f'{{"src": "{a}", "dst": "{b}"}}\n' for a, b, _ in rows))
    graph = load_tables(rewrite(folder, "a.yaml", "edges.csv", "edges.jsonl"))
    assert np.array_equal(graph.edges, wanted.edges)


def test_semicolons(folder: Path) -> None:
    (folder / "edges.csv").write_text(EDGES.replace(",", ";"))
    path = rewrite(folder, "a.yaml", "target: dst", 'target: dst, delimiter: ";"')
    assert load_tables(path).num_edges == 4


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


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("name", ["nodes.csv", "nodes.csv.gz"])
def test_text_in_another_encoding(folder: Path, name: str, encoding: str) -> None:
    def write(text: str) -> Path:
        data = text.encode(encoding)
        (folder / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        return folder / "a.yaml"

    rewrite(folder, "a.yaml", "path: nodes.csv", f"path: {name}, encoding: {encoding}")
    rewrite(folder, "a.yaml", "id: patient", "id: pätient")
    nodes = NODES.replace("patient", "pätient")
    assert load_tables(write(nodes)).node_names.tolist()[:2] == ["p1", "p2"]
    with pytest.raises(DataError, match=r"'age' .* is not a number: row 2 \(line 3\): 'fünf'"):
        load_tables(write(nodes.replace("p2,50", "p2,fünf")))


def test_an_encoding_that_is_none(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"nodes\.encoding must be the name of an encoding, such as utf-8"):
        load_tables(rewrite(folder, "a.yaml", "id: patient", "id: patient, encoding: windows"))
    (folder / "nodes.csv").write_bytes(NODES.replace("icu", "\x81").encode("latin-1"))
    with pytest.raises(DataError, match=r"column 'ward', holds bytes that are not CP1252"):
        load_tables(rewrite(folder, "a.yaml", "encoding: windows", "encoding: cp1252"))


def test_a_truncated_archive(folder: Path) -> None:
    whole = gzip.compress((NODES * 50).encode())
    (folder / "nodes.csv.gz").write_bytes(whole[: len(whole) // 2])
    path = rewrite(folder, "a.yaml", "nodes.csv", "nodes.csv.gz")
    with pytest.raises(DataError, match=r"nodes\.csv\.gz cannot be read"):
        load_tables(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            gzip.compress(b"id,a\n1,2\n", mtime=0),
            r"compressed by gzip, and its name does not say so: call it n\.csv\.gz",
        ),
        ("id,a\n1,2\n".encode("utf-16"), r"is text in UTF-16\. Set nodes\.encoding: utf-16, or save it as UTF-8"),
        ("id,a\n1,2\n".encode("utf-16-le"), r"is text in UTF-16\. Set nodes\.encoding: utf-16"),
        (b"PK\x03\x04rest", r"a ZIP archive or a sheet of Excel: unpack it, or call it \.xlsx"),
    ],
)
def test_what_only_bears_the_name_of_a_csv(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "n.csv").write_bytes(data)
    with pytest.raises(DataError, match=message):
        Table.of(TableFile(tmp_path / "n.csv", TableSource()), "nodes", {}, Faults("t"))


UUIDS = [uuid.UUID(int=number) for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array(["a", " b ", None], pa.string_view()), ["a", "b", None]),
        (pa.array([one.bytes for one in UUIDS], pa.uuid()), [str(one) for one in UUIDS]),
        (pa.array([10, 7, None], pa.decimal128(12, 2)), ["10", "7", None]),
        (pa.array([10**40, 7, None], pa.decimal256(60, 0)), [str(10**40), "7", None]),
        (pa.array([1.0, float("nan"), 2.0**62]), ["1", None, str(2**62)]),
        (pa.array([1.0, 2.0, 3.0], pa.float16()), ["1", "2", "3"]),
    ],
)
def test_ids_of_every_type(column: pa.Array, words: list) -> None:
    table = Table("n.parquet", "n", pa.table({"id": column}), Faults("t"))
    assert table.text("id", key="nodes.id").to_pylist() == words


@pytest.mark.parametrize(
    "column",
    [pa.array([1.0, 1e20]), pa.array([1.0, -np.inf]), pa.array([1, 2.5]), pa.array([Decimal(1), Decimal("2.5")])],
)
def test_ids_that_are_no_whole_numbers(column: pa.Array) -> None:
    table = Table("n.parquet", "n", pa.table({"id": column}), Faults("t"))
    with pytest.raises(
        DataError, match=r"one value where the value is neither a word nor a whole number of 64 bits: row 2"
    ):
        table.text("id", key="nodes.id")
    assert table.faults.found == []
