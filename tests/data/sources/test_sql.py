"""Tables from databases: SQLite files, and a PostgreSQL server that was started for these tests."""

from __future__ import annotations

import builtins
import re
import sqlite3
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphsilo.data import Graph, load, load_tables
from graphsilo.data.sources import sql
from graphsilo.data.sources.sql import read_queries
from graphsilo.data.sources.table_files import Query
from graphsilo.errors import ConfigError, DataError, GraphsiloError, installing

CREATE = (
    "CREATE TABLE patients (id integer, age real, smoker boolean, ward text, outcome text)",
    "INSERT INTO patients VALUES (10, 40.5, true, 'icu', 'yes'), (7, 50, false, 'er', 'no'), (3, 60, true, 'er', NULL)",
    "CREATE TABLE contacts (a integer, b integer)",
    "INSERT INTO contacts VALUES (10, 7), (7, 3), (3, 7)",
)
NODES = "SELECT id, age, smoker, ward, outcome FROM patients"
EDGES = "SELECT a, b FROM contacts"


def describe(folder: Path, connection: str, *, nodes: str = NODES, edges: str = EDGES, **more: str) -> Path:
    import yaml

    content = {
        "name": "ward",
        "nodes": {
            "query": nodes,
            "connection": connection,
            "id": "id",
            "label": "outcome",
            "one_hot": ["ward"],
            **more,
        },
        "edges": {"query": edges, "connection": connection, "source": "a", "target": "b"},
    }
    path = folder / "ward.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def ward(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "ward.db") as database:
        for statement in CREATE:
            database.execute(statement)
    return tmp_path


def check_ward(graph: Graph) -> None:
    assert graph.external_ids.tolist() == ["3", "7", "10"]
    assert graph.feature_names == ("age", "smoker", "ward=er", "ward=icu")
    assert graph.features.tolist() == [[60, 1, 1, 0], [50, 0, 1, 0], [40.5, 1, 0, 1]]
    assert graph.edges.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert graph.labels.tolist() == [-1, 0, 1]
    assert graph.class_names == ("no", "yes")


def test_a_graph_from_sqlite(ward: Path) -> None:
    path = describe(ward, "sqlite:///ward.db")
    check_ward(load_tables(path))
    graph = load(str(path), options={"scale": "unit_rows"})
    assert isinstance(graph, Graph)
    assert graph.features[1].tolist() == pytest.approx([50 / 51, 0, 1 / 51, 0])


@pytest.mark.parametrize("directed", [False, True])
def test_the_order_in_which_a_database_gives_rows_does_not_matter(ward: Path, directed: bool) -> None:
    graphs = []
    for order in ("age", "age DESC"):
        edges = f"{EDGES} ORDER BY a {order[4:]}"
        path = describe(ward, "sqlite:///ward.db", nodes=f"{NODES} ORDER BY {order}", edges=edges)
        path.write_text(path.read_text() + f"directed: {str(directed).lower()}\n")
        graphs.append(load_tables(path))
    for name in ("features", "edges", "labels", "node_names"):
        assert np.array_equal(getattr(graphs[0], name), getattr(graphs[1], name))
    assert graphs[0].edges.shape[1] == (3 if directed else 4)


def test_nodes_from_a_file_and_edges_from_a_database(ward: Path) -> None:
    (ward / "n.csv").write_text("id,x\n3,1\n7,2\n10,3\n")
    (ward / "m.yaml").write_text(
        "nodes: {path: n.csv, id: id}\n"
        f"edges: {{query: 'SELECT a, b FROM contacts', connection: 'sqlite:///{ward}/ward.db', source: a, target: b}}\n"
    )
    assert load_tables(ward / "m.yaml").edges.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]


def test_many_chunks_are_one_table(ward: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "CHUNK_ROWS", 2)
    numbers = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 6) SELECT i"
    (table,) = read_queries(
        [query(ward, f"{numbers}, CASE WHEN i < 4 THEN NULL WHEN i < 6 THEN i ELSE 6.5 END AS late FROM n")]
    )
    assert table.column("i").to_pylist() == list(range(7))
    assert table.column("late").to_pylist() == [None] * 4 + [4.0, 5.0, 6.5]
    # SQLite keeps any type in any column: a word among the numbers makes words of all.
    (table,) = read_queries([query(ward, f"{numbers}, CASE WHEN i = 5 THEN 'a' ELSE i END AS mixed FROM n")])
    assert table.column("mixed").to_pylist() == ["0", "1", "2", "3", "4", "a", "6"]


def query(folder: Path, text: str, connection: str = "sqlite:///ward.db") -> Query:
    return Query(text, connection, "nodes", folder / "ward.yaml")


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ((1, None, 3), [1, None, 3]),
        ((Decimal("1"), Decimal("2.00"), None), [1, 2, None]),
        ((Decimal("1.5"), None), [1.5, None]),
        ((Decimal(10**20), None), [str(10**20), None]),
        ((Decimal("NaN"), Decimal("1"), None), ["nan", 1.0, None]),
        ((2**70, 1), [str(2**70), "1"]),
        ((None, None), [None, None]),
    ],
)
def test_types_of_values(values: tuple[Any, ...], wanted: list[Any]) -> None:
    found = sql._array(values).to_pylist()
    assert [str(value) if value != value else value for value in found] == wanted


def test_sqlite_is_opened_for_reading_only(ward: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "_check_reads_only", lambda query: None)
    for text in ("INSERT INTO patients (id) VALUES (1) RETURNING id", "DELETE FROM patients RETURNING id"):
        with pytest.raises(DataError, match=r"nodes\.query .* failed at the SQLite .*readonly.*only read"):
            read_queries([query(ward, text)])
    check_ward(load_tables(describe(ward, "sqlite:///ward.db")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DELETE FROM patients", r"must be one SELECT; it starts with 'DELETE'"),
        ("-- select\nUPDATE patients SET age = 1", r"starts with 'UPDATE'"),
        ("SELECT 1; DROP TABLE patients", r"several statements"),
        ("", r"must be one SELECT"),
    ],
)
def test_what_is_no_select_is_refused_before_anything_is_opened(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_queries([query(tmp_path, text)])


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ';' AS x, 'a%' AS y, ' :z' AS z;\n",
        "(SELECT 1 AS x)",
        "/* ; */ VALUES (1) -- ;",
        "with a as (select 1) select 1",
    ],
)
def test_signs_inside_text_are_nothing_special(ward: Path, text: str) -> None:
    if text.startswith("("):
        sql._check_reads_only(query(ward, text))  # PostgreSQL's, not SQLite's
    else:
        assert read_queries([query(ward, text)])[0].num_rows == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"nodes": "SELECT idd FROM patients"},
            r"nodes\.query \(.*ward\.yaml\) failed at the SQLite .*no such column: idd",
        ),
        ({"edges": "SELECT a FROM contact"}, r"edges\.query .* failed .*no such table: contact"),
        ({"edges": "SELECT a FROM contacts"}, r"edges\.query \(.*\) has no column 'b' \(edges\.target\)"),
        ({"nodes": f"SELECT * FROM ({NODES}) WHERE id = 0"}, r"nodes\.query \(.*\) returned no rows"),
        (
            {"nodes": "SELECT id, id, age, ward, outcome FROM patients"},
            r"nodes\.query \(.*\) has two columns called 'id'",
        ),
        ({"nodes": f"{NODES} WHERE id > 3"}, r"edges\.query .*'a' .*unknown node: row 3: '3'.*nodes\.query"),
        ({"features": "outcome"}, r"'outcome' is the label column"),
        (
            {"nodes": NODES.replace("age,", "NULL AS age,")},
            r"nodes\.query \(.*\): column 'age' has 3 values .*missing: row 1;",
        ),
    ],
)
def test_mistakes_are_named(ward: Path, change: dict[str, str], message: str) -> None:
    with pytest.raises(GraphsiloError, match=message):
        load_tables(describe(ward, "sqlite:///ward.db", **change))


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        ("sqlite:///none.db", r"SQLite database .*none\.db \(nodes\.connection\) does not exist"),
        ("sqlite://", r"must name the file of the SQLite database"),
        ("hunter2-is-not-an-address", r"is no address of a database"),
        ("mysql://me:hunter2@host/db", r"asks for 'mysql'; read are PostgreSQL"),
        ("postgresql://me:hunter2@x@host/db", r"more than one '@'.*%40"),
        ("env:NO_SUCH_VARIABLE", r"environment variable NO_SUCH_VARIABLE, which is not set"),
    ],
)
def test_connections_that_are_none(ward: Path, connection: str, message: str) -> None:
    with pytest.raises(GraphsiloError, match=message) as caught:
        load_tables(describe(ward, connection))
    assert "hunter2" not in str(caught.value)
    assert not (ward / "none.db").exists()


def test_a_file_that_is_no_database(ward: Path) -> None:
    (ward / "ward.db").write_bytes(b"no database at all, but long enough to be looked at" * 40)
    with pytest.raises(DataError, match=r"nodes\.query .*not a database"):
        load_tables(describe(ward, "sqlite:///ward.db"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  connection: sqlite:///ward.db\n  id", "  id", r"nodes\.connection is missing"),
        ("  id: id", "  id: id\n  path: n.csv", r"nodes names a path and a query"),
        ("  id: id", "  id: id\n  delimiter: ';'", r"nodes\.delimiter belongs to a file"),
        ("  id: id", "  id: id\n  qery: x", r"unknown setting 'nodes\.qery'; did you mean 'nodes\.query'"),
    ],
)
def test_descriptions_that_contradict_themselves(ward: Path, old: str, new: str, message: str) -> None:
    path = describe(ward, "sqlite:///ward.db")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        load_tables(path)


def test_without_sqlalchemy_it_says_what_to_install(ward: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "sqlalchemy":
            raise ImportError(name)
        return original(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DataError, match=rf"SQLAlchemy; it is not installed\. {re.escape(installing('sql'))}"):
        load_tables(describe(ward, "sqlite:///ward.db"))


def test_without_psycopg_it_says_what_to_install(ward: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DataError, match=rf"needs the package psycopg.*{re.escape(installing('sql'))}") as caught:
        load_tables(describe(ward, "postgresql://me:hunter2@127.0.0.1/db"))
    assert "hunter2" not in str(caught.value)


def test_a_query_does_not_show_its_connection(tmp_path: Path) -> None:
    assert "hunter2" not in repr(query(tmp_path, "SELECT 1", "postgresql://me:hunter2@host/db"))


postgres = pytest.mark.postgres


@pytest.fixture(scope="module")
def clinic(postgres_server: Any) -> Any:
    postgres_server.execute(
        *CREATE,
        "CREATE ROLE reader LOGIN PASSWORD 'r3ader-word'",
        "GRANT SELECT ON patients, contacts TO reader",
        "CREATE TABLE secret (x integer)",
        "CREATE SEQUENCE counter",
        "CREATE TABLE odd (id uuid, n numeric, big numeric, day date, flag boolean, label text)",
        "INSERT INTO odd VALUES"
        " ('00000000-0000-0000-0000-000000000001', 1.50, 12345678901234567890, '2024-02-29', true, 'x'),"
        " ('00000000-0000-0000-0000-000000000002', NULL, 2, NULL, NULL, '')",
        "CREATE TABLE many AS SELECT i AS id, i * 0.5::real AS x FROM generate_series(0, 120000) AS i",
    )
    return postgres_server


@postgres
def test_a_graph_from_postgres(clinic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = clinic.url(user="reader", password="r3ader-word")
    check_ward(load_tables(describe(tmp_path, url)))
    check_ward(load_tables(describe(tmp_path, url.replace("+psycopg", ""))))
    monkeypatch.setenv("WARD_DB", clinic.url())
    check_ward(load_tables(describe(tmp_path, "env:WARD_DB")))
    check_ward(
        load_tables(describe(tmp_path, f"postgresql://keeper@/postgres?host={clinic.folder}&port={clinic.port}"))
    )


@postgres
def test_postgres_gives_what_sqlite_gives(clinic: Any, ward: Path) -> None:
    one, other = load_tables(describe(ward, clinic.url())), load_tables(describe(ward, "sqlite:///ward.db"))
    for name in ("features", "edges", "labels", "node_names"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
        assert getattr(one, name).dtype == getattr(other, name).dtype


@postgres
def test_types_of_postgres(clinic: Any, tmp_path: Path) -> None:
    (table,) = read_queries([query(tmp_path, "SELECT * FROM odd ORDER BY id", clinic.url())])
    assert table.column("id").to_pylist()[1].endswith("0002")
    assert table.column("n").to_pylist() == [1.5, None]
    assert table.column("big").to_pylist() == ["12345678901234567890", "2"]
    assert table.column("flag").to_pylist() == [True, None]
    with pytest.raises(DataError, match=r"column 'day' \(nodes\.features\) holds dates\. .*days_since"):
        load_tables(describe(tmp_path, clinic.url(), nodes="SELECT id, day, label AS outcome, label AS ward FROM odd"))


@postgres
def test_many_rows_come_in_chunks(clinic: Any, tmp_path: Path) -> None:
    (table,) = read_queries([query(tmp_path, "SELECT * FROM many ORDER BY id", clinic.url())])
    assert table.num_rows == 120001
    assert table.column("id").num_chunks == 3
    assert table.column("x").to_pylist()[-1] == 60000.0


@postgres
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "SELECT idd FROM patients",
            r"failed at the PostgreSQL database 'postgres' at 127\.0\.0\.1:\d+: column \"idd\" does not",
        ),
        ("SELECT 1 FROM no_such_table", r"relation \"no_such_table\" does not exist"),
        ("SELEC 1", r"must be one SELECT; it starts with 'SELEC'"),
        ("WITH gone AS (DELETE FROM patients RETURNING id) SELECT * FROM gone", r"data-modifying.*only read"),
        ("SELECT nextval('counter')", r"read-only transaction.*only read"),
        ("SELECT 1/0 AS id", r"division by zero"),
        ("SELECT id FROM patients WHERE", r"syntax error"),
    ],
)
def test_queries_that_fail_at_postgres(clinic: Any, tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(GraphsiloError, match=message):
        read_queries([query(tmp_path, text, clinic.url())])
    check_ward(load_tables(describe(tmp_path, clinic.url())))


@postgres
def test_a_table_that_may_not_be_read(clinic: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"permission denied for table secret.*right to SELECT"):
        read_queries([query(tmp_path, "SELECT * FROM secret", clinic.url(user="reader", password="r3ader-word"))])


@postgres
def test_connections_that_fail_tell_no_password(clinic: Any, tmp_path: Path, unused_port: Callable[[], int]) -> None:
    cases = [
        (clinic.url(password="wr0ng-word"), r"does not let the user 'keeper' in .*Check user and password"),
        (clinic.url(database="nothing"), r"refuses the connection .*nothing.* does not exist"),
        (clinic.url(password="wr0ng-word").replace(str(clinic.port), str(unused_port())), r"cannot be reached"),
        ("postgresql://me:wr0ng-word@no-such-host.invalid/db", r"'db' at no-such-host\.invalid cannot be reached"),
        ("postgresql://me:wr0ng-word@127.0.0.1:99999/db", r"cannot be reached|is no address"),
    ]
    for url, message in cases:
        with pytest.raises(GraphsiloError, match=message) as caught:
            read_queries([query(tmp_path, "SELECT 1", url)])
        told: BaseException | None = caught.value
        assert "wr0ng" not in str(told)
        assert "s3cret" not in str(told)
        assert told.__cause__ is None
        assert told.__suppress_context__


@pytest.fixture
def unused_port() -> Callable[[], int]:
    import socket

    def find() -> int:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            return int(one.getsockname()[1])

    return find


@postgres
def test_both_queries_see_one_state(clinic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node and its edge that are written between the two queries are in neither table."""
    original = sql._fetch

    def fetch(connection: Any, text: str) -> Any:
        table = original(connection, text)
        if "patients" in text:
            clinic.execute(
                "INSERT INTO patients VALUES (99, 1, true, 'er', 'no')", "INSERT INTO contacts VALUES (99, 7)"
            )
        return table

    monkeypatch.setattr(sql, "_fetch", fetch)
    try:
        check_ward(load_tables(describe(tmp_path, clinic.url())))
    finally:
        clinic.execute("DELETE FROM patients WHERE id = 99", "DELETE FROM contacts WHERE a = 99")


ONE = "postgresql://me:pw@host:5432/ward?application_name=me@home"


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("postgresql://you:a/b@HOST/ward", True),
        ("postgresql://host/ward?connect_timeout=3", True),
        ("postgresql://me:pw@host:5433/ward?application_name=me@home", False),
        ("postgresql://me:pw@host:5432/other?application_name=me@home", False),
        ("postgresql://me:pw@elsewhere:5432/ward?application_name=me@home", False),
        ("postgresql://me:pw@host:5432/ward?options=-csearch_path%3Dother", False),
    ],
)
def test_what_is_kept_belongs_to_one_database(other: str, same: bool) -> None:
    one, two = (Query("SELECT 1", address, "nodes", Path("silo.yaml")).address for address in (ONE, other))
    assert (one == two) is same
    assert "pw" not in str(one) + str(two)
