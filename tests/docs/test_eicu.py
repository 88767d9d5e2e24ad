"""The example that makes silos of eICU's tables, on small files of their schema: the database itself is not at hand."""

from __future__ import annotations

import csv
import gzip
import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import graphsilo
from graphsilo.data import load

FILE = Path(__file__).resolve().parents[2] / "examples" / "eicu" / "make_silos.py"
PATIENT = (
    "patientunitstayid,patienthealthsystemstayid,gender,age,ethnicity,hospitalid,wardid,apacheadmissiondx,"
    "admissionheight,hospitaladmittime24,hospitaladmitoffset,hospitaladmitsource,hospitaldischargeyear,"
    "hospitaldischargetime24,hospitaldischargeoffset,hospitaldischargelocation,hospitaldischargestatus,unittype,"
    "unitadmittime24,unitadmitsource,unitvisitnumber,unitstaytype,admissionweight,dischargeweight,unitdischargetime24,"
    "unitdischargeoffset,unitdischargelocation,unitdischargestatus,uniquepid"
)
DIAGNOSIS = (
    "diagnosisid,patientunitstayid,activeupondischarge,diagnosisoffset,diagnosisstring,icd9code,diagnosispriority"
)
TREATMENT = "treatmentid,patientunitstayid,treatmentoffset,treatmentstring,activeupondischarge"
MEDICATION = (
    "medicationid,patientunitstayid,drugorderoffset,drugstartoffset,drugivadmixture,drugordercancelled,drugname,"
    "drughiclseqno,dosage,routeadmin,frequency,loadingdose,prn,drugstopoffset,gtc"
)


@pytest.fixture(scope="module")
def recipe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_silos", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def table(path: Path, columns: str, rows: list[dict[str, object]]) -> None:
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        writer = csv.DictWriter(file, columns.split(","), restval="")
        writer.writeheader()
        writer.writerows(rows)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Two hospitals with 40 and 30 patients of one stay or two; who has sepsis stays for long."""
    draw, stays, events = np.random.default_rng(0), [], []
    for number in range(105):
        patient = number % 70
        long = patient % 3
        stays.append({
            "patientunitstayid": 1000 + number, "uniquepid": f"002-{patient}",
            "hospitalid": 73 if patient < 40 else 420,
            "age": "> 89" if number == 4 else int(draw.integers(20, 89)), "gender": ["Male", "Female", ""][number % 3],
            "admissionheight": "" if number % 7 == 0 else 170, "admissionweight": 80.5, "unittype": "MICU",
            "unitadmitsource": "Floor", "unitdischargeoffset": [2000, 3 * 1440, 7 * 1440][long],
            "hospitaldischargestatus": "Alive",
        })  # fmt: skip
        name = ["burn", "Sepsis ", "sepsis|shock"][long]
        events.append({"patientunitstayid": 1000 + number, "diagnosisoffset": 30, "diagnosisstring": name})
    stays.append({**stays[0], "patientunitstayid": 9, "unitdischargeoffset": 1440})  # over within a day
    events += [
        {"patientunitstayid": 1000, "diagnosisoffset": 1441, "diagnosisstring": "too late"},
        {"patientunitstayid": 9, "diagnosisoffset": 1, "diagnosisstring": "of nobody"},
        {"patientunitstayid": 1000, "diagnosisoffset": 60, "diagnosisstring": "Burn"},  # once more
    ]
    table(tmp_path / "patient.csv.gz", PATIENT, stays)
    table(tmp_path / "diagnosis.csv", DIAGNOSIS, events)
    table(tmp_path / "treatment.csv", TREATMENT, [
        {"patientunitstayid": 1001, "treatmentoffset": 5, "treatmentstring": "ventilation"},
    ])  # fmt: skip
    table(tmp_path / "medication.csv", MEDICATION, [
        {"patientunitstayid": 1001, "drugstartoffset": -10, "drugname": "Heparin", "drugordercancelled": "No"},
        {"patientunitstayid": 1002, "drugstartoffset": 10, "drugname": "Aspirin", "drugordercancelled": "Yes"},
        {"patientunitstayid": 1003, "drugstartoffset": 10, "drugname": "", "drugordercancelled": "No"},
    ])  # fmt: skip
    return tmp_path


def test_a_hospital_is_a_silo_of_what_the_first_day_told(raw: Path, recipe: ModuleType, capsys) -> None:
    recipe.main([str(raw), str(raw / "silos")])
    assert capsys.readouterr().out == ("hospital_073: 75 stays of 40 patients\nhospital_420: 30 stays of 30 patients\n")
    folder = raw / "silos" / "hospital_073"
    stays = {row["patientunitstayid"]: row for row in rows_of(folder / "stay.csv")}
    assert "9" not in stays
    assert [stays[str(1000 + long)]["los"] for long in range(3)] == ["under 3 days", "3 to 7 days", "7 days or more"]
    assert not {"unitdischargeoffset", "hospitaldischargestatus"} & stays["1000"].keys()
    splits: dict[str, set[str]] = {}
    for row in stays.values():
        splits.setdefault(row["uniquepid"], set()).add(row["split"])
    assert {len(found) for found in splits.values()} == {1}
    found = [row["diagnosis"] for row in rows_of(folder / "stay_diagnosis.csv") if row["patientunitstayid"] == "1000"]
    assert found == ["burn"]
    assert rows_of(folder / "stay_medication.csv") == [{"patientunitstayid": "1001", "medication": "heparin"}]

    graph = load(folder / "tables.yaml")
    assert graph.class_names == ("under 3 days", "3 to 7 days", "7 days or more")
    assert graph.types.names == ("diagnosis", "medication", "patient", "stay", "treatment")
    age = graph.feature_names.index("stay.age")
    names = list(graph.external_ids)
    assert graph.features[names.index("1004"), age] == 90
    assert "stay.admissionheight:missing" in graph.feature_names


def test_the_largest_hospitals_go_through_a_run(raw: Path, recipe: ModuleType) -> None:
    recipe.main([str(raw), str(raw / "silos"), "--hospitals", "2"])
    files = [str(raw / "silos" / name / "tables.yaml") for name in ("hospital_073", "hospital_420")]
    result = graphsilo.run(data=files, method="fedridge", report=False)
    assert result.accuracy() > 0.9  # a diagnosis tells
    recipe.main([str(raw), str(raw / "one"), "--hospitals", "1"])
    assert [path.name for path in (raw / "one").iterdir()] == ["hospital_073"]


def test_a_folder_without_the_tables_is_refused(tmp_path: Path, recipe: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"has neither patient\.csv nor patient\.csv\.gz"):
        recipe.main([str(tmp_path), str(tmp_path / "silos")])
