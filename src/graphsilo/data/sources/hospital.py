"""Generated hospitals: patients and their stays, wards, drugs and diagnoses; some stays end in a readmission.

A stay is *readmitted* where the patient is back within 30 days of its end, and the tables have the stay that follows.
Who comes back is frail or gravely ill, was sent home early for that, got two drugs that do not go together, or caught
an infection, which goes round in a ward for some weeks. None of this is a column: frailty shows in earlier stays,
gravity in tariffs of diagnoses, drugs that do not go together only where both are given, and an infection in those who
lay in the same room.

Each stay is looked at on the day of its end. Whether the patient came back is not known of those of the last 30 days.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.sources.institutions import (
    FIRST_DAY,
    Institutions,
    LinkRows,
    NodeTable,
    Tables,
    spread,
)
from graphsilo.settings import setting

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CLASSES = ("home", "readmitted")
CHAPTERS = ("heart", "lung", "cancer", "injury", "kidney", "nerves", "digestion", "birth")
DRUGS = ("anticoagulant", "analgesic", "antibiotic", "diuretic", "insulin", "sedative", "statin", "steroid")
INSURANCES = ("public", "private", "none")
_RISKY = ((0, 1), (5, 7), (3, 4))
"""Classes of drugs that do not go together."""
_BACK = 30.0
"""Days within which a patient who comes again is readmitted."""
_CODES, _SUBSTANCES = 160, 96
_MOST_STAYS = 40
"""Of one patient."""


class Hospital(Institutions):
    """``hospital``: hospitals with patients, stays, wards, drugs and diagnoses; some stays end in a readmission.

    Raises:
        ConfigError: A setting is of the wrong type or out of range.
    """

    name: ClassVar[str] = "hospital"

    patients: int = setting(12_000, "how many; each has about two stays a year", ge=1000, le=1_000_000)
    hospitals: int = setting(4, "institutions, each with its own size, wards, patients and laboratory", ge=3, le=40)
    positives: float = setting(
        0.15, "about which share of stays is followed by another within 30 days", ge=0.02, le=0.4
    )
    shared_patients: float = setting(
        0.0, "share of patients who go to two hospitals; these are nodes that both hospitals know", ge=0, le=0.5
    )

    @property
    def least_bytes(self) -> int:
        """Bytes that making it takes at the very least."""
        return int(self.patients * (1 + self.months / 8) * 600)

    def draw_tables(self) -> Tables:
        """Types ``stay``, ``patient``, ``ward``, ``drug`` and ``diagnosis``; relations of their links."""
        house = _draw_house(self)
        people = _draw_people(self)
        stays = _draw_stays(self, house, people)
        count = len(stays.patient)
        nodes = {
            "stay": _stay_table(self, house, stays, people),
            "patient": _patient_table(self, people),
            "ward": _ward_table(self, house),
            "drug": NodeTable(
                _number("drug", _SUBSTANCES), spread(DRUGS, house.drug_class, "class"), np.full(_SUBSTANCES, -1)
            ),
            "diagnosis": NodeTable(
                _number("code", _CODES),
                {"tariff": np.round(house.tariff, 2), **spread(CHAPTERS, house.chapter, "chapter")},
                np.full(_CODES, -1),
            ),
        }
        begun, ended = FIRST_DAY + stays.begin, FIRST_DAY + stays.end
        rows = np.arange(count)
        links = {
            "of": LinkRows("stay", "patient", np.stack([rows, stays.patient]), time=begun),
            "at": LinkRows("stay", "ward", np.stack([rows, stays.ward]), time=begun),
            "given": _spread_links(stays.drugs, "drug", begun, {"dose": stays.doses}),
            "diagnosed": _spread_links(stays.codes, "diagnosis", ended, {}),
            "follows": _follow(stays),
            "room": _share_rooms(stays),
        }
        names = [f"hospital {number + 1}" for number in range(self.hospitals)]
        return Tables(nodes, links, names, CLASSES)


@dataclass(frozen=True, eq=False)
class _House:
    """What there is before patients come: codes and substances everywhere, and each hospital's wards.

    Attributes:
        chapter, tariff, gravity: [codes] of each diagnosis; gravity is in no table.
        drug_class: [substances].
        ward_of: [wards] hospital of each ward, ascending.
        beds, nurses: [wards].
        outbreaks: [wards, 2, o] days on which infections begin and end there.
        laboratory: [hospitals] factor of its measurements.
    """

    chapter: Ints
    tariff: Floats
    gravity: Floats
    drug_class: Ints
    ward_of: Ints
    beds: Floats
    nurses: Floats
    outbreaks: Floats
    laboratory: Floats


@dataclass(frozen=True, eq=False)
class _People:
    """Patients: [p] home hospital, another one or -1, age, frailty, which is in no table, and [2, p] what ails them."""

    home: Ints
    other: Ints
    age: Floats
    frailty: Floats
    leaning: Ints


@dataclass(frozen=True, eq=False)
class _Stays:
    """[m] stays; ``drugs``, ``doses`` [m, 4] and ``codes`` [m, 2], -1 for none; ``back`` is whether one came again."""

    patient: Ints
    hospital: Ints
    ward: Ints
    begin: Floats
    end: Floats
    codes: Ints
    drugs: Ints
    doses: Floats
    infected: NDArray[np.bool_]
    emergency: NDArray[np.bool_]
    back: NDArray[np.bool_]


def _number(word: str, count: int) -> NDArray[np.str_]:
    return np.char.add(word, np.char.zfill(np.arange(count).astype(str), len(str(count - 1))))


def _draw_house(hospital: Hospital) -> _House:
    draw = hospital.draw("house")
    chapter = np.arange(_CODES) % len(CHAPTERS)
    gravity = draw.normal(0, 0.5, len(CHAPTERS))[chapter] + draw.normal(0, 0.9, _CODES)
    wards = draw.integers(4, 13, hospital.hospitals)
    ward_of = np.repeat(np.arange(hospital.hospitals), wards)
    count = len(ward_of)
    begin = draw.uniform(0, hospital.days, (count, max(2, hospital.months // 2)))
    return _House(
        chapter,
        np.exp(0.5 * gravity + draw.normal(0, 0.25, _CODES)),
        gravity,
        np.arange(_SUBSTANCES) % len(DRUGS),
        ward_of,
        draw.integers(8, 40, count).astype(np.float64),
        draw.uniform(0.2, 0.7, count),
        np.stack([begin, begin + draw.uniform(7, 28, begin.shape)], axis=1),
        np.exp(draw.normal(0, 0.3, hospital.hospitals)),
    )


def _draw_people(hospital: Hospital) -> _People:
    n, count, draw = hospital.patients, hospital.hospitals, hospital.draw("people")
    share = (np.arange(count) + 1.0) ** -0.6 * np.exp(draw.normal(0, 0.2, count))
    home = draw.choice(count, n, p=share / share.sum())
    home[:count] = np.arange(count)  # none is empty
    frailty = draw.normal(0, 1, n)
    age = np.clip(np.floor(58 + 7 * frailty + draw.normal(0, 17, n)), 0, 99)
    other = np.where(draw.random(n) < hospital.shared_patients, (home + draw.integers(1, count, n)) % count, -1)
    other[:count] = -1
    leaning = np.stack([_lean(draw, home), draw.integers(0, len(CHAPTERS), n)])
    return _People(home, other, age, frailty, leaning)


def _lean(draw: np.random.Generator, home: Ints) -> Ints:
    """[p] the chapter that a patient's diagnoses are mostly of; hospitals are known for different ones."""
    known = draw.integers(0, len(CHAPTERS), home.max() + 1)
    return np.where(draw.random(len(home)) < 0.3, known[home], draw.integers(0, len(CHAPTERS), len(home)))


def _draw_stays(hospital: Hospital, house: _House, people: _People) -> _Stays:
    """All stays, in the order of their ends; each patient's one after the other, as those before it ended."""
    draw, days = hospital.draw("stays"), hospital.days
    # Some came first before the tables begin, so that these begin as they go on.
    who = np.arange(hospital.patients)
    begin = draw.uniform(-60, days - 40, hospital.patients)
    begin[: hospital.hospitals] = np.abs(begin[: hospital.hospitals])  # every hospital has a stay
    found, level = [], None
    for _ in range(_MOST_STAYS):
        part, risk = _draw_visit(draw, house, people, who, begin)
        if level is None:
            level = _find_level(risk, hospital.positives)
        back = draw.random(len(who)) < 1 / (1 + np.exp(-(risk + level)))
        pause = np.where(back, draw.uniform(1, _BACK - 1, len(who)), _BACK + 1 + draw.exponential(240, len(who)))
        found.append({**part, "back": back})
        begin = np.floor(part["end"] + pause)
        kept = begin < days
        who, begin = who[kept], begin[kept]
        if not len(who):
            break
    whole = {key: np.concatenate([part[key] for part in found]) for key in found[0]}
    chosen = np.flatnonzero((whole["begin"] >= 0) & (whole["end"] < days))
    order = chosen[np.lexsort((whole["patient"][chosen], whole["end"][chosen]))]
    return _Stays(**{key: values[order] for key, values in whole.items()})


def _draw_visit(
    draw: np.random.Generator, house: _House, people: _People, who: Ints, begin: Floats
) -> tuple[dict[str, NDArray[np.generic]], Floats]:
    """One stay of each of these patients, and the logit of coming back but for a constant."""
    m = len(who)
    away = (people.other[who] >= 0) & (draw.random(m) < 0.5)
    where = np.where(away, people.other[who], people.home[who])
    first = np.searchsorted(house.ward_of, np.arange(house.ward_of[-1] + 2))
    ward = first[where] + (draw.random(m) * (first[where + 1] - first[where])).astype(np.int64)
    mostly = people.leaning[:, who][(draw.random((2, m)) < 0.7).astype(np.int64), np.arange(m)]
    codes = draw.integers(0, _CODES // len(CHAPTERS), (m, 2)) * len(CHAPTERS) + mostly.T
    codes[:, 1] = np.where((draw.random(m) < 0.7) & (codes[:, 0] != codes[:, 1]), codes[:, 1], -1)
    gravity = np.where(codes >= 0, house.gravity[codes], 0).sum(axis=1)
    out = house.outbreaks[ward]
    near = ((begin[:, None] >= out[:, 0] - 3) & (begin[:, None] <= out[:, 1])).any(axis=1)
    infected = draw.random(m) < np.where(near, 0.55, 0.03)
    drugs = draw.integers(0, _SUBSTANCES // len(DRUGS), (m, 4)) * len(DRUGS) + draw.integers(0, len(DRUGS), (m, 4))
    drugs[draw.random((m, 4)) < 0.3] = -1
    # Antibiotics are given against infections, and for much else.
    cured = (infected & (draw.random(m) < 0.5)) | (draw.random(m) < 0.12)
    drugs[cured, 0] = drugs[cured, 0] // len(DRUGS) * len(DRUGS) % _SUBSTANCES + 2
    drugs[:, 1:][(drugs[:, 1:, None] == drugs[:, None, :1]).any(axis=2)] = -1
    drugs[:, 2:][drugs[:, 2:] == drugs[:, 1:2]] = -1
    drugs[:, 3][drugs[:, 3] == drugs[:, 2]] = -1
    classes = np.where(drugs >= 0, drugs % len(DRUGS), -1)
    risky = np.zeros(m, dtype=np.bool_)
    for one, other in _RISKY:
        risky |= (classes == one).any(axis=1) & (classes == other).any(axis=1)
    needed = np.exp(1.3 + 0.25 * gravity + 0.1 * people.frailty[who])
    early = draw.normal(0, 0.45, m)
    length = np.maximum(1, np.round(needed * np.exp(-early)))
    emergency = draw.random(m) < 1 / (1 + np.exp(-(0.4 * gravity - 0.3)))
    risk = (
        1.0 * people.frailty[who] + 0.5 * gravity + 1.9 * risky + 1.6 * infected + 1.3 * early
        - 2.0 * (house.nurses[ward] - 0.45)
    )  # fmt: skip
    part: dict[str, NDArray[np.generic]] = {
        "patient": who, "hospital": where, "ward": ward, "begin": np.floor(begin), "end": np.floor(begin) + length,
        "codes": codes, "drugs": drugs, "doses": np.round(np.exp(draw.normal(3, 0.8, (m, 4))), 1),
        "infected": infected, "emergency": emergency,
    }  # fmt: skip
    return part, risk


def _find_level(risk: Floats, share: float) -> float:
    """The constant with which so many come back on average."""
    low, high = -20.0, 20.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if np.mean(1 / (1 + np.exp(-(risk + middle)))) < share else (low, middle)
    return low


# -- Tables --------------------------------------------------------------------------------------------------------


def _stay_table(hospital: Hospital, house: _House, stays: _Stays, people: _People) -> NodeTable:
    m, draw = len(stays.patient), hospital.draw("measured")
    frailty = people.frailty[stays.patient]
    protein = np.exp(2.2 + 0.5 * stays.infected + draw.normal(0, 0.9, m)) * house.laboratory[stays.hospital]
    columns = {
        "length": stays.end - stays.begin,
        "emergency": stays.emergency.astype(np.float64),
        "protein": np.round(protein, 1),
        "haemoglobin": np.round(13.5 - 0.3 * frailty + draw.normal(0, 1.4, m), 1),
        "weekend": (np.floor(stays.end) % 7 >= 5).astype(np.float64),
    }
    known = stays.end <= hospital.days - _BACK
    names = np.char.add("stay", np.char.zfill(draw.permutation(m).astype(str), 8))
    return NodeTable(
        names, columns, stays.hospital, np.where(known, stays.back.astype(np.int64), -1), FIRST_DAY + stays.end
    )


def _patient_table(hospital: Hospital, people: _People) -> NodeTable:
    n, draw = len(people.home), hospital.draw("patients")
    insurance = draw.choice(len(INSURANCES), n, p=[0.8, 0.15, 0.05])
    alone = draw.random(n) < 1 / (1 + np.exp(1.2 - 0.3 * people.frailty))
    columns: dict[str, NDArray[np.floating]] = {
        "age": people.age,
        "alone": alone.astype(np.float64),
        **spread(INSURANCES, insurance, "insurance"),
    }
    names = np.char.add("patient", np.char.zfill(draw.permutation(n).astype(str), 7))
    return NodeTable(names, columns, np.where(people.other >= 0, -1, people.home))


def _ward_table(hospital: Hospital, house: _House) -> NodeTable:
    columns = {"beds": house.beds, "nurses": np.round(house.nurses, 2)}
    return NodeTable(_number("ward", len(house.ward_of)), columns, house.ward_of)


def _spread_links(ends: Ints, kind: str, days: Floats, columns: dict[str, Floats]) -> LinkRows:
    """A row for each entry that is not -1."""
    row, place = np.nonzero(ends >= 0)
    told = {key: values[row, place] for key, values in columns.items()}
    return LinkRows("stay", kind, np.stack([row, ends[row, place]]), told, days[row])


def _follow(stays: _Stays) -> LinkRows:
    """From each stay to the patient's next one."""
    order = np.lexsort((stays.begin, stays.patient))
    one, other = order[:-1], order[1:]
    same = stays.patient[one] == stays.patient[other]
    one, other = one[same], other[same]
    gap = stays.begin[other] - stays.end[one]
    return LinkRows("stay", "stay", np.stack([one, other]), {"gap": gap}, FIRST_DAY + stays.begin[other])


def _share_rooms(stays: _Stays) -> LinkRows:
    """From each stay to those up to four that ended next in its ward, where they were there at the same time."""
    order = np.lexsort((stays.end, stays.ward))
    parts = []
    for step in range(1, 5):
        one, other = order[:-step], order[step:]
        shared = stays.end[one] - stays.begin[other]
        kept = (stays.ward[one] == stays.ward[other]) & (shared > 0)
        parts.append(np.stack([one[kept], other[kept]]))
    ends = np.concatenate(parts, axis=1)
    return LinkRows(
        "stay", "stay", ends, {"days": stays.end[ends[0]] - stays.begin[ends[1]]}, FIRST_DAY + stays.end[ends[0]]
    )
