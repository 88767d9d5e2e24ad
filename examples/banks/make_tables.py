"""Writes generated banks out as the exports that banks have. Nobody in them exists.

    python make_tables.py [FOLDER]

FOLDER (by default this one) gets a folder for each bank, with ``tables.yaml`` and what it describes, in files with
semicolons, decimal commas and the day of a date first. The same seed writes the same bytes.

A bank knows all transfers of its customers, and of accounts at other banks only what they are called: these are
``counterparties.csv``. An account's verdict is empty where nobody looked into it.
"""

from __future__ import annotations

import csv
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.sources.bank import CATEGORIES, CHANNELS, CLASSES, COUNTRIES, SEGMENTS, Bank

SEED = 7
TRANSFERS = 200_000
NUMBERS = ["balance", "tenure", "age"]
RELATIONS = {
    "transfer": ("account", "account"), "sent": ("account", "counterparty"), "received": ("counterparty", "account"),
    "payment": ("account", "merchant"),
}  # fmt: skip
CALLED = {"account": "iban", "label": "verdict"}

Table = dict[str, NDArray[Any]]


def main(folder: Path) -> None:
    """Writes the tables of all banks."""
    everything = Bank(seed=SEED, transfers=TRANSFERS).draw_tables()
    for number, bank in enumerate(everything.owners):
        tables = everything.export(number)
        accounts, rows = tables["account"], tables["transfer"]
        accounts["online"] = np.where(accounts["online"] > 0, "ja", "nein")
        giver, taker = (np.isin(rows[end], accounts["account"]) for end in ("from", "to"))
        for name, kept in (("transfer", giver & taker), ("sent", ~taker), ("received", ~giver)):
            tables[name] = {column: values[kept] for column, values in rows.items()}
        tables["counterparty"] = {"iban": np.union1d(tables["sent"]["to"], tables["received"]["from"])}
        (folder / bank).mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            write(folder / bank / f"{name}.csv", table, "reviewed" if name == "account" else "booked")
        (folder / bank / "tables.yaml").write_text(describe(bank), encoding="utf-8")
        honest, mules = ((accounts["label"] == word).sum() for word in CLASSES)
        print(f"{bank}: {len(accounts['label']):,} accounts, {mules} of {honest + mules:,} known ones are mules")


def write(path: Path, table: Table, day: str) -> None:
    """Writes a table as banks do; what its column of days is called."""
    columns = {CALLED.get(name, name): [*map(text, values.tolist())] for name, values in table.items() if name != "day"}
    if "day" in table:
        seconds = np.round(86_400 * table["day"]).tolist()
        columns[day] = [f"{datetime(1970, 1, 1) + timedelta(0, each):%d.%m.%Y %H:%M:%S}" for each in seconds]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=";", lineterminator="\n").writerows([columns, *zip(*columns.values(), strict=True)])


def text(cell: object) -> str:
    """A cell; numbers have a decimal comma."""
    return str(cell).removesuffix(".0").replace(".", ",") if isinstance(cell, float) else str(cell)


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


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
