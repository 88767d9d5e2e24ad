"""Makes silos, one for each hospital, of the tables of the eICU Collaborative Research Database 2.0.

    python make_silos.py RAW OUT [--hospitals 40]

RAW has the tables as they are published. OUT gets a folder for each of the largest hospitals, with ``tables.yaml`` and
what it describes. The same tables make the same bytes.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

DAY = 24 * 60
"""Minutes; offsets count them from the beginning of a stay in intensive care."""
CLASSES = {3 * DAY: "under 3 days", 7 * DAY: "3 to 7 days", float("inf"): "7 days or more"}
"""By the minutes that a stay lasts less than."""
NUMBERS = ["age", "admissionheight", "admissionweight"]
WORDS = {
    "gender": ["Female", "Male"],
    "unittype": ["Cardiac ICU", "CCU-CTICU", "CSICU", "CTICU", "Med-Surg ICU", "MICU", "Neuro ICU", "SICU"],
    "unitadmitsource": ["Emergency Department", "Floor", "Operating Room", "Direct Admit"],
}
"""Words that stand for themselves; all others are one."""
EVENTS = {
    "diagnosis": ("diagnosisoffset", "diagnosisstring", {}),
    "treatment": ("treatmentoffset", "treatmentstring", {}),
    "medication": ("drugstartoffset", "drugname", {"drugordercancelled": "No"}),
}
"""Of each table: minutes, what it was, and what other columns must say."""
STAY, PATIENT, HOSPITAL = "patientunitstayid", "uniquepid", "hospitalid"


def main(words: Sequence[str] | None = None) -> None:
    """Reads the tables and writes the silos."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("raw", type=Path, help="folder with patient.csv, diagnosis.csv, treatment.csv, medication.csv")
    parser.add_argument("out", type=Path, help="folder for the silos")
    parser.add_argument("--hospitals", type=int, default=40, help="how many, the largest first (default: 40)")
    asked = parser.parse_args(words)
    files = {name: find(asked.raw, name) for name in ("patient", *EVENTS)}
    stays = read_stays(files["patient"])
    events = {name: read_events(files[name], name, stays[STAY]) for name in EVENTS}
    largest = stays[HOSPITAL].value_counts(sort=False).sort_index().sort_values(ascending=False, kind="stable")
    for hospital in largest.index[: asked.hospitals]:
        own = stays[stays[HOSPITAL] == hospital].drop(columns=HOSPITAL)
        name = f"hospital_{hospital:03d}"
        write(asked.out / name, name, own, {kind: rows[rows[STAY].isin(own[STAY])] for kind, rows in events.items()})
        print(f"{name}: {len(own):,} stays of {own[PATIENT].nunique():,} patients")


def find(raw: Path, name: str) -> Path:
    """A table, compressed or not."""
    found = [path for ending in ("csv", "csv.gz") if (path := raw / f"{name}.{ending}").is_file()]
    if not found:
        raise SystemExit(f"{raw} has neither {name}.csv nor {name}.csv.gz: name the folder of the database's tables.")
    return found[0]


def read_stays(path: Path) -> pd.DataFrame:
    """Stays of more than a day, with class and split."""
    minutes = "unitdischargeoffset"
    stays = pd.read_csv(path, usecols=[STAY, PATIENT, HOSPITAL, minutes, *NUMBERS, *WORDS], dtype={"age": str})
    stays = stays[stays[minutes] > DAY].sort_values(STAY)
    stays["age"] = stays["age"].str.replace("> 89", "90")
    stays["los"] = pd.cut(stays[minutes], [0, *CLASSES], right=False, labels=[*CLASSES.values()])
    for column in WORDS:
        stays[column] = stays[column].fillna("unknown")
    # By a checksum, so that who has a patient's other stays, or more hospitals, divides alike.
    place = stays[PATIENT].map(lambda patient: zlib.crc32(str(patient).encode()) % 10)
    stays["split"] = place.map(lambda tenth: "train" if tenth < 6 else "val" if tenth < 8 else "test")
    return stays.drop(columns=minutes)


def read_events(path: Path, name: str, stays: pd.Series) -> pd.DataFrame:
    """What the first day of these stays brought, each thing once."""
    offset, what, others = EVENTS[name]
    found = []
    for rows in pd.read_csv(path, usecols=[STAY, offset, what, *others], chunksize=1_000_000):
        chosen = rows[STAY].isin(stays) & (rows[offset] <= DAY) & rows[what].notna()
        for column, word in others.items():
            chosen &= rows[column] == word
        found.append(rows.loc[chosen, [STAY, what]].rename(columns={what: name}))
    events = pd.concat(found)
    events[name] = events[name].str.strip().str.lower()
    return events.drop_duplicates().sort_values([STAY, name])


def write(folder: Path, name: str, stays: pd.DataFrame, events: Mapping[str, pd.DataFrame]) -> None:
    """One silo."""
    folder.mkdir(parents=True, exist_ok=True)
    stays.to_csv(folder / "stay.csv", index=False)
    stays[[PATIENT]].drop_duplicates().to_csv(folder / "patient.csv", index=False)
    for kind, rows in events.items():
        rows.to_csv(folder / f"stay_{kind}.csv", index=False)
        rows[[kind]].drop_duplicates().sort_values(kind).to_csv(folder / f"{kind}.csv", index=False)
    (folder / "tables.yaml").write_text(describe(name), encoding="utf-8")


def describe(name: str) -> str:
    """The text of ``tables.yaml``."""
    lines = [
        f"name: {name}",
        "nodes:",
        "  stay:",
        f"    {{path: stay.csv, id: {STAY}, label: los, split: split, features: [{', '.join(NUMBERS)}],",
        f"     keys: {{{PATIENT}: patient}}, one_hot: {{",
        *(f"       {column}: {json.dumps([*known, '*'])}," for column, known in WORDS.items()),
        "     }}",
        f"  patient: {{path: patient.csv, id: {PATIENT}}}",
        *(f"  {kind}: {{path: {kind}.csv, id: {kind}}}" for kind in EVENTS),
        "edges:",
        *(
            f"  has_{kind}: {{path: stay_{kind}.csv, source: {STAY}, target: {kind}, from: stay, to: {kind}}}"
            for kind in EVENTS
        ),
        f"classes: [{', '.join(CLASSES.values())}]",
        "features: {missing: {stay.age: mean, stay.admissionheight: indicator, stay.admissionweight: indicator}}",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
