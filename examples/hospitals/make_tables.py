"""Makes up three hospitals: tables of patients and their contacts, and what describes them. Nobody in them exists.

    python make_tables.py [FOLDER]

FOLDER (by default this one) gets ``north``, ``south`` and ``west``, each with ``patients.csv``, ``contacts.csv``,
``tables.yaml`` and ``silo.yaml``. The same seed writes the same bytes.

How the outcome of a stay shows is the same everywhere: it shifts twelve lab values that vary together for other reasons
,too, and patients who met often had the same outcome. A hospital alone has seen too few patients to tell the two apart.
Age is in years and every lab value in the unit of its own, platelets per microlitre beside potassium in mmol/l.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SEED = 7
OUTCOMES = ("home", "rehab", "readmitted")
WARDS = ("medicine", "surgery", "icu")
LABS = {
    "crp": (45, 3, 1),  # mg/l
    "leu": (9, 0.6, 2),  # 1000 per microlitre
    "hb": (130, 5, 1),  # g/l
    "plt": (250_000, 18_000, 0),  # per microlitre
    "na": (139, 1.2, 1),  # mmol/l
    "k": (4.2, 0.15, 2),  # mmol/l
    "crea": (88, 6, 1),  # micromol/l
    "urea": (6.5, 0.45, 2),  # mmol/l
    "alt": (34, 2.4, 1),  # U/l
    "bili": (12, 0.8, 2),  # micromol/l
    "alb": (40, 1.6, 1),  # g/l
    "lac": (1.6, 0.11, 2),  # mmol/l
}
"""Of each lab value: usual size, what it varies by alone and for no reason, and decimals."""
SHIFT = 0.7
"""How far an outcome shifts a lab value, in units of what it varies by alone."""
TOGETHER = 1.5
"""How far lab values vary together for other reasons, in the same unit."""
CONTACTS = 2
"""Contacts that each patient names; met by others, a patient has twice as many."""
ALIKE = 0.3
"""Share of contacts that are drawn among patients of the same outcome; the others are drawn among all."""


@dataclass(frozen=True)
class Hospital:
    """One of the three.

    Attributes:
        patients: How many.
        shares: Of the outcomes; 0 where an outcome does not occur.
        policy: What goes into ``silo.yaml``, as YAML.
    """

    patients: int
    shares: tuple[float, float, float]
    policy: str = ""


HOSPITALS = {
    "north": Hospital(360, (0.5, 0.3, 0.2)),
    "south": Hospital(
        300,
        (0.3, 0.4, 0.3),
        "policy:\n  kinds: [model, counts, statistic]\n  min_evaluation_count: 20\n  max_run_bytes: 20 MB\n",
    ),
    "west": Hospital(240, (0.65, 0.0, 0.35)),  # no rehabilitation clinic far and wide
}

TABLES = f"""\
nodes:
  path: patients.csv
  id: patient
  label: outcome
  features: [age, "lab_*"]
  one_hot: {{ward: [{", ".join(WARDS)}]}}
edges: {{path: contacts.csv, source: patient, target: met}}
directed: false
classes: [{", ".join(OUTCOMES)}]
"""


def main(folder: Path) -> None:
    """Write all hospitals."""
    common = np.random.default_rng(SEED)
    shifts = SHIFT * common.standard_normal((len(OUTCOMES), len(LABS)))
    together = common.standard_normal((4, len(LABS)))
    for number, (name, hospital) in enumerate(HOSPITALS.items()):
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        write(place, name, hospital, np.random.default_rng([SEED, number]), shifts, together)
        print(f"{name}: {hospital.patients} patients")


def write(
    place: Path,
    name: str,
    hospital: Hospital,
    random: np.random.Generator,
    shifts: NDArray[np.float64],
    together: NDArray[np.float64],
) -> None:
    """Draw one hospital's patients and write its four files.

    Args:
        place: Its folder.
        name: Its name.
        hospital: What it is like.
        random: Its own generator.
        shifts: [outcomes, labs] by how much an outcome shifts each lab value.
        together: [4, labs] what makes lab values vary together.
    """
    outcome = random.choice(len(OUTCOMES), hospital.patients, p=hospital.shares)
    labs = shifts[outcome] + TOGETHER * random.standard_normal((hospital.patients, 4)) @ together
    labs += random.standard_normal(labs.shape)
    age = np.clip(55 + 14 * (0.5 * (outcome == 1) + random.standard_normal(hospital.patients)), 18, 99)
    ward = random.choice(len(WARDS), hospital.patients, p=(0.5, 0.3, 0.2))
    ids = [f"{name[0]}{row:04d}" for row in random.permutation(10 * hospital.patients)[: hospital.patients]]
    rows = zip(ids, ward, age, labs, outcome, strict=True)
    _write_csv(
        place / "patients.csv",
        ["patient", "ward", "age", *(f"lab_{lab}" for lab in LABS), "outcome"],
        [[i, WARDS[w], f"{a:.0f}", *in_units(values), OUTCOMES[o]] for i, w, a, values, o in rows],
    )
    pairs = contacts(outcome, random)
    _write_csv(place / "contacts.csv", ["patient", "met"], [[ids[one], ids[other]] for one, other in pairs.tolist()])
    (place / "tables.yaml").write_text(f"name: {name}\n{TABLES}", encoding="utf-8")
    (place / "silo.yaml").write_text(f"name: {name}\ndata: tables.yaml\n{hospital.policy}", encoding="utf-8")


def in_units(values: NDArray[np.float64]) -> list[str]:
    """A patient's lab values as a laboratory prints them."""
    return [
        f"{usual + varies * value:.{decimals}f}"
        for (usual, varies, decimals), value in zip(LABS.values(), values, strict=True)
    ]


def contacts(outcome: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """Who met whom.

    Args:
        outcome: [n] of each patient.
        random: Generator.

    Returns:
        [m, 2] rows of patients, each pair once.
    """
    one = np.repeat(np.arange(len(outcome)), CONTACTS)
    # In the order of outcomes, patients of one outcome stand side by side: a draw among them is a draw from a stretch.
    order = np.argsort(outcome, kind="stable")
    size = np.bincount(outcome, minlength=len(OUTCOMES))
    begin = np.cumsum(size) - size
    same = order[begin[outcome[one]] + (random.random(len(one)) * size[outcome[one]]).astype(np.int64)]
    other = np.where(random.random(len(one)) < ALIKE, same, random.integers(len(outcome), size=len(one)))
    pairs = np.sort(np.stack([one, other], axis=1), axis=1)
    return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)


def _write_csv(path: Path, head: list[str], rows: list[list[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
