"""Silos with several tables each: they agree by name, and may lack some."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphsilo.data.silos.cards import card, compare_cards
from graphsilo.data.silos.own import read_silo_file
from graphsilo.data.silos.union import union
from graphsilo.data.sources import catalog
from graphsilo.data.sources.layout import Layout
from graphsilo.data.sources.targets import with_targets
from graphsilo.errors import DataError
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.several_data_sets import stand_in, with_shared_words

NODES = "account,balance,segment,flag\n" + "".join(
    f"{k},{k % 7}.5,{'ab'[k % 2]},{('ok', 'bad')[k % 3 == 0]}\n" for k in range(30)
)
FILES = {
    "accounts.csv": NODES,
    "merchants.csv": "merchant,founded\n7,1990\n8,2001\n",
    "transfers.csv": "sender,receiver,amount,channel,booked\n7,8,1000,card,2025-01-01\n7,9,500,wire,2025-01-02\n",
    "payments.csv": "payer,shop,amount\n7,7,3\n8,8,4\n",
}
ACCOUNT = "account: {path: accounts.csv, id: account, label: flag, features: [balance], one_hot: [segment]}"
MERCHANT = "merchant: {path: merchants.csv, id: merchant, features: [founded]}"
TRANSFER = (
    "transfer: {path: transfers.csv, source: sender, target: receiver, from: account, to: account, "
    "features: [amount], one_hot: [channel], time: booked}"
)
PAYMENT = "payment: {path: payments.csv, source: payer, target: shop, from: account, to: merchant, features: [amount]}"
BOTH = f"nodes: {{{ACCOUNT}, {MERCHANT}}}\nedges: {{{TRANSFER}, {PAYMENT}}}\n"
FEWER = f"nodes: {{{ACCOUNT}}}\nedges: {{{TRANSFER}}}\n"


def write(folder: Path, name: str, tables: str, **files: str) -> Path:
    (folder / name).mkdir()
    for file, text in {**FILES, **{f"{key}.csv": text for key, text in files.items()}}.items():
        (folder / name / file).write_text(text)
    (folder / name / "silo.yaml").write_text(f"name: {name}\n{tables}")
    (folder / name / "tables.yaml").write_text(f"name: {name}\n{tables}")
    return folder / name


def cards(*folders: Path) -> list[dict[str, Any]]:
    return [card(read_silo_file(folder / "silo.yaml"), client) for client, folder in enumerate(folders)]


def test_a_silo_may_lack_tables_and_words(tmp_path: Path) -> None:
    wide = write(tmp_path, "wide", BOTH)
    narrow = write(
        tmp_path, "narrow", FEWER, accounts=NODES.replace(",b,", ",c,"),
        transfers=FILES["transfers.csv"].replace("wire", "cash"),
    )  # fmt: skip
    schema = compare_cards(cards(wide, narrow))
    assert schema.types == ("account", "merchant")
    assert schema.relations == ("payment", "transfer")
    assert schema.target == "account"
    assert schema.ends == (("account", "merchant"), ("account", "account"))
    own = ("transfer.amount", "transfer.channel=card", "transfer.channel=cash", "transfer.channel=wire")
    assert schema.link_features == ("payment.amount", *own)
    names = schema.feature_names or ()
    words = tuple(f"account.segment={word}" for word in "abc")
    assert names[:7] == ("account.balance", *words, "merchant.founded", "type=account", "type=merchant")
    assert "transfer out: channel=cash, share" in names
    assert "payment in: amount, sum" in names
    silos = [read_silo_file(folder / "silo.yaml").load(k, schema=schema) for k, folder in enumerate((wide, narrow))]
    lacking = silos[1].graph.union
    assert lacking.types is not None
    assert lacking.links is not None
    assert not lacking.types.of_node.any()
    assert np.asarray(lacking.features)[:, names.index("merchant.founded")].tolist() == [0.0] * 30
    assert np.asarray(lacking.features)[:, names.index("type=account")].tolist() == [1.0] * 30
    of_sum = lacking.types.of_feature[names.index("payment in: amount, sum")]
    assert of_sum == 1
    assert np.isnan(lacking.links.features[:, 0]).all()
    # Side by side in one process they are the same.
    files = [str(folder / "tables.yaml") for folder in (wide, narrow)]
    loaded = {place: catalog.load(name) for place, name in enumerate(files)}
    config = RunConfig.of({"data": {"name": files}})
    found = with_shared_words(config, dict(enumerate(files)), loaded)
    for place, silo in enumerate(silos):
        graph = found[place].union
        assert graph.feature_names == names
        np.testing.assert_array_equal(np.asarray(graph.features), np.asarray(silo.graph.union.features))
    whole, sizes = union([graph.union for graph in found.values()])
    assert whole.types is not None
    assert sizes == [32, 30]
    assert np.bincount(whole.types.of_node).tolist() == [60, 2]


PLAIN_TRANSFER = TRANSFER.replace("from: account, to: account, ", "")
UNNAMED = f"nodes: {ACCOUNT.removeprefix('account: ')}\nedges: {{{PLAIN_TRANSFER}}}\n"
SHOPS = (
    BOTH.replace("merchant: {", "shop: {", 1).replace("to: merchant", "to: shop").replace("payment: {", "merchant: {")
)


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        (FEWER.replace("features: [amount]", "features: []"), "links 'transfer' have 3 columns at silo 'a' and 2 at"),
        (FEWER.replace("features: [balance]", "features: []"), "nodes of type 'account' have 3 columns at silo 'a'"),
        (
            f"nodes: {{{ACCOUNT.replace('account: {', 'person: {')}}}\nedges: {{{PLAIN_TRANSFER}}}",
            "'person' at silo 'b'",
        ),
        (UNNAMED, "silo 'b' has one table of nodes without a name"),
        (
            BOTH.replace(
                "source: payer, target: shop, from: account, to: merchant",
                "source: shop, target: payer, from: merchant, to: account",
            ),
            "links 'payment' lead from account to merchant at silo 'a' and from merchant to account at silo 'b'",
        ),
        (FEWER.replace(", time: booked", ""), "the table 'transfer' has dates at silo 'a' and none at silo 'b'"),
        (FEWER + "sums: {windows: [30]}", "silo 'a' adds up links over all days, and silo 'b' over all days and 30"),
        (SHOPS, "'merchant' is a type of nodes at silo 'a' and a table of links at silo 'b'"),
    ],
)
def test_what_silos_do_not_agree_on_is_told(tmp_path: Path, tables: str, text: str) -> None:
    both = cards(write(tmp_path, "a", BOTH), write(tmp_path, "b", tables))
    with pytest.raises(DataError) as error:
        compare_cards(both)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"relations": []}, "layout.ends are not two types of nodes for each table of links"),
        ({"ends": [["account"], ["account", "account"]]}, "layout.ends are not two types of nodes for each table"),
        ({"types": ["account", "account"]}, "a name stands twice in layout.types"),
        ({"target": "person"}, "layout.target names what is not among its types"),
        ({"ends": [["account", "x"], ["account", "account"]]}, "layout.ends names what is not among its types"),
        ({"shares": ["x"]}, "layout.shares names what is not among"),
        ({"dated": ["x"]}, "layout.dated names what is not among"),
        ({"windows": [float("nan")]}, "a window is no number of days"),
        ({"windows": [k + 1.0 for k in range(90)], "links": [f"x{k}" for k in range(100)], "shares": []}, "at most"),
        ({"links": ["x" * 10_000_000], "shares": []}, "has more than 1000 characters"),
    ],
)
def test_a_card_that_no_tables_have_is_refused_in_words(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    honest, liar = cards(write(tmp_path, "a", BOTH), write(tmp_path, "b", BOTH))
    with pytest.raises(DataError, match="the card of silo 'b' is not one of") as error:
        compare_cards([honest, liar | {"layout": liar["layout"] | changes}])
    assert text in str(error.value)
    assert len(str(error.value)) < 2_000


def test_a_column_of_links_that_came_later_is_named(tmp_path: Path) -> None:
    schema = compare_cards(cards(write(tmp_path, "a", BOTH.replace("features: [amount], one_hot", "one_hot"))))
    with pytest.raises(DataError, match="links 'transfer' have the column 'amount', which the model or the federation"):
        read_silo_file(write(tmp_path, "b", BOTH) / "silo.yaml").load(0, schema=schema)


def test_a_graph_without_a_description_says_what_its_links_lead_between(tmp_path: Path) -> None:
    graph = catalog.load(str(write(tmp_path, "wide", BOTH) / "tables.yaml")).union
    assert Layout.of(graph, None, False).ends == [["account", "merchant"], ["account", "account"]]


def test_windows_that_are_said_twice_are_one(tmp_path: Path) -> None:
    dated = FEWER + "sums: {windows: [30, 30]}\n"
    assert compare_cards(cards(write(tmp_path, "a", dated), write(tmp_path, "b", dated.replace("30, 30", "30"))))


def test_what_stands_for_a_silo_that_is_left_out_has_types(tmp_path: Path) -> None:
    graph = catalog.load(str(write(tmp_path, "wide", BOTH) / "tables.yaml")).union
    absent = stand_in(graph, graph).union
    assert absent.types is not None
    assert absent.types.of_node.tolist() == [0] * 32
    assert np.bincount(union([absent, graph])[0].types.of_node).tolist() == [62, 2]  # type: ignore[union-attr]
    measured = with_targets(graph, np.ones((32, 2)), ("income", "rent"))
    assert np.isnan(stand_in(measured, measured).union.targets.values).all()  # type: ignore[union-attr]
    with pytest.raises(DataError, match=r"types\.of_node must have a value for each of 32 nodes; got \(0,\)"):
        replace(graph, types=replace(absent.types, of_node=absent.types.of_node[:0]))


def test_tables_that_are_alike_are_read_once(tmp_path: Path) -> None:
    dated = BOTH.replace("features: [amount]}\n", "features: [amount], time: booked}\n").replace(
        "one_hot: [segment]", "one_hot: {segment: [a, b]}"
    )
    payments = "payer,shop,amount,booked\n7,7,3,2025-01-01\n"
    files = {
        place: str(
            write(
                tmp_path,
                name,
                dated.replace("one_hot: [channel]", "one_hot: {channel: [card, wire]}"),
                payments=payments,
            )
            / "tables.yaml"
        )
        for place, name in enumerate(("one", "two"))
    }
    config = RunConfig.model_validate({"data": {"name": [*files.values()]}})
    loaded = {place: catalog.load(file) for place, file in files.items()}
    found = with_shared_words(config, files, loaded)
    assert all(found[place] is loaded[place] for place in files)
