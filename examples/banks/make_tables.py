"""Writes generated banks out as the exports that banks have. Nobody in them exists.

    python make_tables.py [FOLDER]

FOLDER (by default this one) gets a folder for each bank, with ``tables.yaml`` and what it describes, in files with
semicolons, decimal commas and the day of a date first. The same seed writes the same bytes.

A bank knows all transfers of its customers, and of accounts at other banks only what they are called: these are
``counterparties.csv``. An account's verdict is empty where nobody looked into it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from graphsilo.data.sources.bank import CATEGORIES, CHANNELS, CLASSES, COUNTRIES, SEGMENTS, Bank

SEED = 7
TRANSFERS = 200_000
NUMBERS = ["balance", "tenure", "age"]
RELATIONS = {
    "transfer": ("account", "account"), "sent": ("account", "counterparty"), "received": ("counterparty", "account"),
    "payment": ("account", "merchant"),
}  # fmt: skip


def main(folder: Path) -> None:
    """Writes the tables of all banks."""
    graph = Bank(seed=SEED, transfers=TRANSFERS).generate()
    types, links, owners, names, days = graph.types, graph.links, graph.owners, graph.node_names, graph.time
    assert types
    assert links
    assert owners
    assert graph.feature_names
    assert names is not None
    assert days is not None
    columns = dict(zip(graph.feature_names, np.asarray(graph.features).T, strict=True))
    of_links = dict(zip(links.feature_names, links.features.T, strict=True))
    kind, relation = np.array(types.names)[types.of_node], np.array(links.relations)[links.of_link]
    nodes = pd.DataFrame({
        "iban": names, "reviewed": dates(days), **{key: columns[f"account.{key}"] for key in NUMBERS},
        "online": np.where(columns["account.online"] > 0, "ja", "nein"), "segment": words(columns, "account.segment"),
        "country": words(columns, "account.country"), "verdict": np.array([*CLASSES, ""])[graph.labels],
    }).astype({"tenure": int, "age": int})  # fmt: skip
    shops = pd.DataFrame({
        "merchant": names, "since": columns["merchant.since"].astype(int),
        "category": words(columns, "merchant.category"),
    })  # fmt: skip
    amounts = (of_links[f"{each}.amount"] for each in links.relations)
    rows = pd.DataFrame({
        "from": names[links.ends[0]], "to": names[links.ends[1]], "booked": dates(links.time),
        "channel": words(of_links, "transfer.channel"), "amount": np.nansum(list(amounts), axis=0).round(2),
    })  # fmt: skip
    for number, bank in enumerate(owners.names):
        own = owners.of_node == number
        giver, taker = own[links.ends]
        moved = relation == "transfer"
        tables = {
            "account": nodes[own], "merchant": shops[kind == "merchant"], "transfer": rows[moved & giver & taker],
            "sent": rows[moved & giver & ~taker], "received": rows[moved & ~giver & taker],
            "payment": rows[~moved & giver].drop(columns="channel"),
        }  # fmt: skip
        others = {*tables["sent"]["to"], *tables["received"]["from"]}
        tables["counterparty"] = pd.DataFrame({"iban": sorted(others)})
        (folder / bank).mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            table.to_csv(folder / bank / f"{name}.csv", sep=";", decimal=",", index=False)
        (folder / bank / "tables.yaml").write_text(describe(bank), encoding="utf-8")
        known = nodes[own]["verdict"].value_counts()
        print(
            f"{bank}: {own.sum():,} accounts, {known['mule']} of {known['mule'] + known['ok']:,} known ones are mules"
        )


def describe(bank: str) -> str:
    """The text of ``tables.yaml``."""
    lines = [
        f"name: {bank}",
        "nodes:",
        "  account:",
        '    {path: account.csv, delimiter: ";", decimal: ",", id: iban, label: verdict,',
        "     time: {column: reviewed, order: day-first},",
        f"     features: [{', '.join(NUMBERS)}], boolean: {{online: [nein, ja]}},",
        f"     one_hot: {{segment: [{', '.join(SEGMENTS)}], country: [{', '.join(COUNTRIES)}]}}}}",
        "  counterparty: {path: counterparty.csv, id: iban}",
        '  merchant: {path: merchant.csv, delimiter: ";", id: merchant, features: [since],',
        f"             one_hot: {{category: [{', '.join(CATEGORIES)}]}}}}",
        "edges:",
    ]
    for name, (source, target) in RELATIONS.items():
        lines += [
            f"  {name}:",
            f'    {{path: {name}.csv, delimiter: ";", decimal: ",", source: from, target: to,',
            f"     from: {source}, to: {target}, features: [amount], time: {{column: booked, order: day-first}},",
            f"     one_hot: {{channel: [{', '.join(CHANNELS)}]}}}}" if name != "payment" else "    }",
        ]
    return "\n".join([*lines, "sums: {windows: [30, 90]}", f"classes: [{', '.join(CLASSES)}]", ""])


def dates(days: NDArray[np.float64]) -> NDArray[np.str_]:
    """Days since 1970-01-01 as text, to the second."""
    seconds = np.nan_to_num(days * 86_400).round()
    return pd.to_datetime(seconds, unit="s").strftime("%d.%m.%Y %H:%M:%S").to_numpy(str)


def words(columns: dict[str, NDArray[np.floating]], key: str) -> NDArray[np.str_]:
    """A category from its columns of zeros and ones."""
    found = {name.partition("=")[2]: values for name, values in columns.items() if name.startswith(f"{key}=")}
    return np.array(list(found))[np.nan_to_num(list(found.values())).argmax(axis=0)]


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
