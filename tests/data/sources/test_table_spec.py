"""Several tables of nodes by type, and of links by relation, in one description."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.sources.tables import load_tables, read_spec
from graphsilo.errors import ConfigError, DataError

YAML = """nodes:
  account: {path: accounts.csv, id: account, label: flag, time: seen, features: [balance], one_hot: {segment: [a, b]}}
  merchant: {path: merchants.csv, id: merchant, features: [founded]}
edges:
  transfer: {path: transfers.csv, source: sender, target: receiver, from: account, to: account, features: [amount],
             one_hot: {channel: [card, wire]}, boolean: {instant: [nein, ja]}, units: {amount: 0.01}, time: booked}
  payment: {path: payments.csv, source: payer, target: shop, from: account, to: merchant, features: [amount]}
sums: false
"""
FILES = {
    "accounts.csv": "account,balance,segment,flag,seen\n7,1.5,a,ok,2025-01-10\n8,2.5,b,bad,2025-02-01\n9,3.5,a,,\n",
    "merchants.csv": "merchant,founded\n7,1990\n8,2001\n",
    "transfers.csv": "sender,receiver,amount,channel,instant,booked\n7,8,1000,card,ja,2025-01-01 12:00\n"
    "7,8,500,wire,nein,2025-01-02\n9,7,,card,ja,2025-01-03\n",
    "payments.csv": "payer,shop,amount\n7,7,3\n8,8,4\n",
}


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "bank.yaml").write_text(YAML)
    return tmp_path / "bank.yaml"


def features(graph: Graph) -> dict[str, list[float]]:
    assert graph.feature_names is not None
    return dict(zip(graph.feature_names, np.asarray(graph.features).T.tolist(), strict=True))


def faults(bank: Path, old: str, new: str) -> str:
    bank.write_text(YAML.replace(old, new))
    with pytest.raises((ConfigError, DataError)) as error:
        load_tables(bank)
    return str(error.value)


def test_types_stand_side_by_side_and_rows_of_links_are_kept(bank: Path) -> None:
    graph = load_tables(bank)
    assert graph.types is not None
    assert graph.links is not None
    assert graph.time is not None
    assert features(graph) == {
        "account.balance": [1.5, 2.5, 3.5, 0, 0], "account.segment=a": [1, 0, 1, 0, 0],
        "account.segment=b": [0, 1, 0, 0, 0], "merchant.founded": [0, 0, 0, 1990, 2001],
        "type=account": [1, 1, 1, 0, 0], "type=merchant": [0, 0, 0, 1, 1],
    }  # fmt: skip
    assert graph.types.of_feature.tolist() == [0, 0, 0, 1, -1, -1]
    assert (graph.types.names, graph.types.target) == (("account", "merchant"), 0)
    assert graph.labels.tolist() == [1, 0, -1, -1, -1]
    assert graph.class_names == ("bad", "ok")
    assert graph.external_ids.tolist() == ["7", "8", "9", "merchant:7", "merchant:8"]
    assert graph.time.tolist()[:2] == [20098, 20120]
    assert np.isnan(graph.time[2:]).all()
    links = graph.links
    assert links.relations == ("payment", "transfer")
    assert links.ends.T.tolist() == [[0, 1], [0, 1], [2, 0], [0, 3], [1, 4]]
    assert links.of_link.tolist() == [1, 1, 1, 0, 0]
    names = ("payment.amount", "transfer.amount", "transfer.channel=card", "transfer.channel=wire", "transfer.instant")
    assert links.feature_names == names
    nan = np.nan
    rows = [
        [nan, 10, 1, 0, 1],
        [nan, 5, 0, 1, 0],
        [nan, nan, 1, 0, 1],
        [3, nan, nan, nan, nan],
        [4, nan, nan, nan, nan],
    ]
    np.testing.assert_array_equal(links.features, rows)
    assert links.time is not None
    np.testing.assert_array_equal(links.time, [20089.5, 20090, 20091, nan, nan])
    # Each link once and both ways, whatever its relation and how often it stands there.
    assert graph.edges.T.tolist() == [[0, 1], [0, 2], [0, 3], [1, 0], [1, 4], [2, 0], [3, 0], [4, 1]]


def test_one_type_with_a_name_is_a_graph_without_types(bank: Path) -> None:
    one = "nodes: {account: {path: accounts.csv, id: account, label: flag, features: [balance]}}\n"
    edges = "edges: {transfer: {path: transfers.csv, source: sender, target: receiver}}\n"
    bank.write_text(one + edges)
    named = load_tables(bank)
    bank.write_text(
        one.replace("account: {", "", 1).replace("}}", "}") + edges.replace("transfer: {", "", 1).replace("}}", "}")
    )
    plain = load_tables(bank)
    assert named.types is named.links is None
    assert named.feature_names == plain.feature_names == ("balance",)
    for key in ("features", "edges", "labels", "node_names"):
        np.testing.assert_array_equal(getattr(named, key), getattr(plain, key))


@pytest.mark.parametrize("name", ["account.balance", "balance", "account.b*", "'*'"])
def test_rules_of_empty_cells_go_by_either_name(bank: Path, name: str) -> None:
    (bank.parent / "accounts.csv").write_text(FILES["accounts.csv"].replace("1.5", ""))
    bank.write_text(
        f"{YAML}features: {{missing: {{{name}: 7}}}}\n" if name != "'*'" else f"{YAML}features: {{missing: median}}\n"
    )
    assert features(load_tables(bank))["account.balance"][0] == (3 if name == "'*'" else 7)
    one = (
        "nodes: {account: {path: accounts.csv, id: account, label: flag, features: [balance]}}\n"
        "edges: {transfer: {path: transfers.csv, source: sender, target: receiver}}\n"
    )
    bank.write_text(one + (f"features: {{missing: {{{name}: 7}}}}" if name != "'*'" else "features: {missing: median}"))
    assert features(load_tables(bank))["balance"][0] == (3 if name == "'*'" else 7)


def test_keys_of_a_table_of_nodes_are_links(bank: Path) -> None:
    bank.write_text(
        "nodes:\n  account: {path: accounts.csv, id: account, features: [balance]}\n"
        "  transfer: {path: moves.csv, id: nr, label: flag, time: day, keys: {from: account, to: account}}\n"
        "edges: {card: {path: payments.csv, source: payer, target: shop, from: account, to: account}}\nsums: false\n"
    )
    (bank.parent / "moves.csv").write_text(
        "nr,from,to,amount,flag,day\n1,7,8,10,ok,2025-01-01\n2,9,,20,bad,2025-01-02\n"
    )
    graph = load_tables(bank)
    assert graph.types is not None
    assert graph.links is not None
    assert graph.links.time is not None
    assert graph.feature_names is not None
    assert "transfer.amount" in graph.feature_names
    assert graph.types.names[graph.types.target] == "transfer"
    assert graph.links.relations == ("card", "transfer.from", "transfer.to")
    assert graph.links.ends.T.tolist() == [[0, 0], [1, 1], [3, 0], [4, 2], [3, 1]]
    assert graph.links.time[2:].tolist() == [20089, 20090, 20089]
    bank.write_text("\n".join(line for line in bank.read_text().splitlines() if not line.startswith("edges:")))
    assert load_tables(bank).edges.shape == (2, 6)
    (bank.parent / "moves.csv").write_text("nr,from,to,amount,flag,day\n1,7,6,10,ok,2025-01-01\n")
    with pytest.raises(
        DataError, match=r"the key names an unknown node \(nodes.transfer.keys\): row 1 \(line 2\): '6'"
    ):
        load_tables(bank)


def test_what_is_wrong_is_told_at_once(bank: Path) -> None:
    text = faults(bank, "from: account, to: merchant", "to: shop")
    assert "edges.payment.from is missing: it names one of the types account, merchant" in text
    assert "edges.payment.to is 'shop', and nodes has no such table" in text
    assert "2 faults" in text
    text = faults(bank, "features: [founded]", "label: founded")
    assert "account, merchant all have labels; nodes of one type are classified. Say which: target: account" in text
    assert "target is 'card', and nodes has no such table" in faults(bank, "sums: false", "target: card")
    assert "'transfer'" in faults(bank, "  merchant:", "  transfer:")
    assert "names a table" in faults(bank, "  payment:", "  pay.ment:")
    (bank.parent / "transfers.csv").write_text(FILES["transfers.csv"].replace("9,7,,card", "6,7,x,cash"))
    (bank.parent / "payments.csv").write_text(FILES["payments.csv"].replace("8,8,4", "8,9,4"))
    text = faults(bank, "time: booked", "time: {column: booked, order: day-first}")
    for part in (
        "column 'sender' has one value where the edge names an unknown node: row 3 (line 4): '6'",
        "in column 'account' of accounts.csv", "column 'shop' has one value", "in column 'merchant' of merchants.csv",
        "edges.transfer.one_hot.channel", "the date is not written with the day first",
    ):  # fmt: skip
        assert part in text, part


def test_a_silo_s_own_file_is_no_description(bank: Path) -> None:
    (bank.parent / "silo.yaml").write_text("name: adler\ndata: bank.yaml\nsplit: {mode: time}\n")
    with pytest.raises(ConfigError, match=r"has data and split, .* Give 'bank.yaml' in its place"):
        read_spec(bank.parent / "silo.yaml")


def test_the_only_table_of_links_may_have_columns(bank: Path) -> None:
    bank.write_text(
        "nodes: {path: accounts.csv, id: account, label: flag, features: [balance]}\n"
        "edges: {path: transfers.csv, source: sender, target: receiver, features: [amount], time: booked}\n"
        "sums: false\n"
    )
    graph = load_tables(bank)
    assert graph.types is None
    assert graph.links is not None
    assert graph.links.relations == ("link",)
    assert graph.links.feature_names == ("link.amount",)
    assert read_spec(bank).edge_key("link") == "edges"


def test_every_table_may_come_from_a_database(bank: Path) -> None:
    import sqlite3

    pytest.importorskip("sqlalchemy")
    wanted = load_tables(bank)
    with sqlite3.connect(bank.parent / "bank.db") as database:
        for name, text in FILES.items():
            head, *rows = (line.split(",") for line in text.splitlines())
            table = name.removesuffix(".csv")
            database.execute(f"CREATE TABLE {table} ({', '.join(head)})")
            cells = [[cell or None for cell in row] for row in reversed(rows)]
            database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' for _ in head)})", cells)
    text = YAML
    for name in FILES:
        table = name.removesuffix(".csv")
        text = text.replace(f"path: {name}", f"query: SELECT * FROM {table}, connection: sqlite:///bank.db")
    bank.write_text(text)
    found = load_tables(bank)
    assert features(found) == features(wanted)
    for key in ("edges", "labels", "time", "node_names"):
        np.testing.assert_array_equal(getattr(found, key), getattr(wanted, key))
    assert found.links is not None
    assert wanted.links is not None
    # Rows in an order of what they say, whatever the database's.
    assert found.links.ends.T.tolist() == wanted.links.ends.T[[1, 0, 2, 3, 4]].tolist()
