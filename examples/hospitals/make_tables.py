"""Writes three generated hospitals out as the exports that hospitals have. Nobody in them exists.

    python make_tables.py [FOLDER]

FOLDER (by default this one) gets folders ``north``, ``south`` and ``west`` with the tables that ``tables.yaml`` in each
of them describes, and that. The same seed writes the same bytes.

Each hospital writes as its own system does: south with semicolons, decimal commas, the day of a date first and words of
its own, west with haemoglobin in g/l.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import numpy as np

from graphsilo.data.sources.hospital import Hospital

SEED, PATIENTS = 7, 1500
HOSPITALS = ("north", "south", "west")
CALLED = {"day": "date", "label": "outcome"}
SOUTH = {"home": "entlassen", "readmitted": "wieder da"}


def main(folder: Path) -> None:
    """Writes the tables of all hospitals."""
    everything = Hospital(seed=SEED, patients=PATIENTS, hospitals=len(HOSPITALS)).draw_tables()
    for number, name in enumerate(HOSPITALS):
        tables = everything.export(number)
        stays = tables["stay"]
        stays |= {"patient": tables.pop("of")["to"], "ward": tables.pop("at")["to"]}
        patients = tables["patient"]
        seen = np.isin(patients["patient"], stays["patient"])
        tables["patient"] = {column: values[seen] for column, values in patients.items()}
        if name == "west":
            stays["haemoglobin"] = np.round(10 * stays["haemoglobin"])
        if name == "south":
            stays["emergency"] = np.where(stays["emergency"] > 0, "ja", "nein")
        (folder / name).mkdir(parents=True, exist_ok=True)
        for each, table in tables.items():
            with (folder / name / f"{each}.csv").open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, delimiter=";" if name == "south" else ",", lineterminator="\n")
                writer.writerow([CALLED.get(column, column) for column in table])
                columns = (texts(column, values.tolist(), name) for column, values in table.items())
                writer.writerows(zip(*columns, strict=True))
        print(f"{name}: {len(stays['stay']):,} stays, {(stays['label'] == 'readmitted').mean():.0%} of them readmitted")


def texts(column: str, cells: list[float] | list[str], name: str) -> Iterator[str]:
    """A column as a hospital writes it."""
    day = "%d.%m.%Y" if name == "south" else "%Y-%m-%d"
    for cell in cells:
        if column == "day":
            yield (date(1970, 1, 1) + timedelta(float(cell))).strftime(day)
        elif name == "south":
            yield SOUTH.get(cell, cell) if isinstance(cell, str) else str(cell).removesuffix(".0").replace(".", ",")
        else:
            yield str(cell).removesuffix(".0")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
