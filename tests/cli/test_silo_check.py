"""``graphsilo silo check`` of a hospital's export, spoilt in every way that exports are."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graphsilo.data.graph import content_hash
from graphsilo.data.silos.own import read_silo_file
from graphsilo.data.sources.missing import far_value
from graphsilo.data.sources.remarks import LinkFacts
from graphsilo.data.sources.tables import read_spec, read_tables
from graphsilo.federation.secure.opened import OpenedSums

WARDS, OUTCOMES = ("medicine", "surgery", "icu"), ("home", "rehab", "readmitted")
PATIENTS = "patient,age,crp,ward,outcome\n" + "".join(
    f"p{row:02d},{40 + row},{row / 4},{WARDS[row % 3]},{OUTCOMES[row % 3]}\n" for row in range(30)
)
CONTACTS = "patient,met\n" + "".join(f"p{row:02d},p{(row + 1) % 30:02d}\n" for row in range(30))
TABLES = """nodes:
  path: patients.csv
  id: patient
  label: outcome
  features: [age, crp]
  one_hot: {ward: [medicine, surgery, icu]}
edges: {path: contacts.csv, source: patient, target: met}
classes: [home, rehab, readmitted]
"""
SILO = "name: north\ndata: tables.yaml\nsplit: {ratios: [0.4, 0.3, 0.3]}\n"


@pytest.fixture
def check(call: Callable, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Writes the silo, changed in places, and checks it: exit code, and what was said."""

    def run(*changes: tuple[str, str | bytes, str | bytes], without: str = "") -> tuple[int, str]:
        files = {"patients.csv": PATIENTS, "contacts.csv": CONTACTS, "tables.yaml": TABLES, "silo.yaml": SILO}
        content = {name: text.encode() for name, text in files.items()}
        for name, old, new in changes:
            old, new = (part.encode() if isinstance(part, str) else part for part in (old, new))
            assert old in content[name], old
            content[name] = content[name].replace(old, new, -1 if old in (b",", b"\n") else 1)
        for name, data in content.items():
            if name != without:
                (tmp_path / name).write_bytes(data)
        code, out, err = call("silo", "check", tmp_path / "silo.yaml")
        return code, re.sub(r"\s+", " ", out + err)

    return run


WEIGHTED = "patient,met,days\np00,p01,3\n" + re.sub(r"\n", ",2\n", CONTACTS.partition("\n")[2])
P, C, T = "patients.csv", "contacts.csv", "tables.yaml"
CELL = "p04,44,1.0,surgery,rehab"


def test_lines_of_the_policy_that_refuse_nothing_are_not_listed_as_if_they_held(check) -> None:
    lines = "policy: {min_silos: 5, max_delta: 1.0e-6, max_rounds: 9}\nsplit:"
    code, text = check(("silo.yaml", "split:", lines))
    assert code == 0
    assert re.search(r"✓ policy [^!]*max_rounds: 9 !", text)
    assert "! policy min_silos: 5 has no effect: it counts the silos of secure sums, and runs without any" in text
    assert "! policy max_delta: 1e-06 has no effect: it goes with policy.max_epsilon, which is not set" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([(P, "p04,44", ",44")], r"'patient' has one value where the id is empty: row 5 \(line 6\)"),
        ([(P, "p05,", "p04,")], r"the id occurred before: row 6 \(line 7\): 'p04'"),
        ([(C, "p00,p01", "p00,ghost")], r"names an unknown node: row 1 \(line 2\): 'ghost'.*add the node"),
        ([(P, CELL, CELL.replace("rehab", "1"))], r"label is not among classes .*: '1'\. Add it to 'classes'"),
        ([(P, CELL, CELL.replace("rehab", "Rehab "))], r"Did you mean 'rehab' where it says 'Rehab'\? Otherwise add"),
        ([(P, CELL, CELL.replace("rehab", "rehap"))], r"Did you mean 'rehab' where it says 'rehap'"),
        ([(P, CELL, CELL.replace("rehab", "died"))], r"'died'\. Add it to 'classes', or empty the cell"),
        ([(P, "p04,44", "p04,NaN")], r"'age' has one value where the feature is missing: row 5 .*missing: mean"),
        ([(P, "p04,44", "p04,")], r"'age' has one value where the feature is missing: row 5 \(line 6\)\."),
        ([(P, "p04,44", "p04,NA")], r"the feature is missing: row 5 \(line 6\): 'NA'"),
        ([(P, "p04,44", "p04,2024-03-05")], r"the feature is not a number: row 5 \(line 6\): '2024-03-05'"),
        ([(P, "p04,44", 'p04,"44,5"')], r"a decimal comma: row 5 \(line 6\): '44,5'.*nodes\.decimal"),
        ([(P, "p04,44", "p04,inf")], r"infinite or too large for float32: row 5 \(line 6\): 'inf'"),
        ([(P, "surgery", "er")], r"not among nodes\.one_hot\.ward .*: row 2 \(line 3\): 'er'.*for all other words"),
        ([(P, "surgery", "Surgery")], r"Did you mean 'surgery' where it says 'Surgery'"),
        ([(T, "crp]", "crp, ward]"), (T, "  one_hot: {ward: [medicine, surgery, icu]}\n", "")], r"one_hot: \[ward\]"),
        ([(P, "medicine", b"m\xe9decine")], r"row 1 \(line 2\), column 'ward', holds bytes that are not UTF-8"),
        ([(P, PATIENTS, "")], r"patients\.csv is empty"),
        ([(P, PATIENTS, PATIENTS.splitlines()[0] + "\n")], r"has a header but no data rows"),
        ([(C, CONTACTS, "")], r"contacts\.csv is empty"),
        ([(P, ",", ";")], r"seems to be separated by ';'\. Set nodes\.delimiter"),
        (
            [(T, "label: outcome", "label: outcomes")],
            r"has no column 'outcomes' \(nodes\.label\); did you mean 'outcome'",
        ),
        ([(P, CELL, CELL + ",x")], r"row 5 \(line 6\) has too many cells, 6 where the header has 5"),
        ([(C, "p00,p01", "0,p01")], r"names an unknown node"),
        ([(T, "  path: patients", "\tpath: patients")], r"line 2.*there is a tab"),
        ([(T, "features:", "feature:")], r"unknown setting 'nodes\.feature'; did you mean 'nodes\.features'"),
        ([(T, "patients.csv", "patients.xls")], r"patients\.xls does not exist"),
        ([(P, "patient,age", "patient,a\x1bge"), (T, "features: [age, crp]", 'features: ["a*", crp]')], r"U\+001B"),
    ],
)
def test_what_cannot_work_is_refused(check: Callable, changes: list, message: str) -> None:
    code, said = check(*changes)
    assert code == 2
    assert re.search(message, said), said


def test_a_table_that_is_not_there(check: Callable) -> None:
    code, said = check(without="patients.csv")
    assert code == 2
    assert "patients.csv does not exist" in said


@pytest.mark.parametrize(
    "changes",
    [
        [(P, b"patient,", b"\xef\xbb\xbfpatient,")],
        [(P, "\n", "\r\n"), (C, "\n", "\r\n")],
        [(C, "p00,p01", "p00 , p01")],
        [(P, "p00,", f"{10**18},"), (C, "p00,p01", f"{10**18},p01"), (C, "p29,p00", "p29,p01")],
    ],
    ids=["byte order mark", "line ends of Windows", "blanks round ids", "ids beyond 2^53"],
)
def test_what_does_no_harm_is_taken(check: Callable, changes: list) -> None:
    assert check(*changes)[0] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([(C, "patient,met\n", "patient,met\np00,p01\np00,p01\n")], "links 2 rows name a link that stands there"),
        (
            [
                (C, CONTACTS, WEIGHTED),
                (T, "target: met", "target: met, weight: days"),
            ],
            "links one row names a link that stands there before: weights add up",
        ),
        ([(C, "patient,met\n", "patient,met\np01,p00\np02,p01\n")], "! links 2 of 30 links named in both directions"),
        ([(C, "patient,met\n", "patient,met\np07,p07\n")], "links one row names a node as linked with itself"),
        ([(C, "p00,p01\n", ""), (C, "p29,p00\n", "")], r"! links one node \(3.3 %\) has no link"),
        ([(P, PATIENTS, re.sub(r",\d\.\d+,", ",1,", PATIENTS))], "! tables 'crp': constant, the same value in every"),
        (
            [
                (P, PATIENTS, re.sub(r"(p[12]\d,\d+),[\d.]+", r"\1,", PATIENTS)),
                (T, "classes:", "features: {missing: mean}\nclasses:"),
            ],
            "! features 'crp': 67 % of the cells are empty, and filled in",
        ),
        (
            [(P, "p04,44", "p04,440000"), ("silo.yaml", "split:", "features: {scale: none}\nsplit:")],
            "! features 'age' ranges over 439960, 'ward=medicine' over 1, and features are not scaled",
        ),
        (
            [(T, "classes: [home, rehab, readmitted]\n", ""), (P, CELL, CELL.replace("rehab", "Rehab"))],
            "! classes 'Rehab', 'rehab' .class. differ by case or blanks alone",
        ),
        (
            [(T, "one_hot: {ward: [medicine, surgery, icu]}", "one_hot: [ward]"), (P, "surgery", "sur gery")],
            "! features 'sur gery', 'surgery' .'ward'. differ by case or blanks alone",
        ),
        ([(P, PATIENTS, re.sub(r"(\d,\w+),\w+\n", r"\1,\n", PATIENTS))], "! labels none of the nodes has one"),
        (
            [(P, PATIENTS, re.sub(r"(\d,\w+),\w+\n", r"\1,home\n", PATIENTS))],
            "! labels all are 'home': nothing here tells",
        ),
        (
            [(P, "p04,44,1.0", "p04,44,1.2e22")],
            r"! tables 'crp': 1\.2e\+22 in one row, far from all others \(0 to 7\.25",
        ),
        (
            [(P, "p04,44", "p04,-99"), (P, "p05,45", "p05,-99")],
            r"! tables 'age': -99 in 2 rows, far from all others \(40 to 69\).*nodes\.empty",
        ),
    ],
)  # fmt: skip
def test_what_is_odd_is_remarked(check: Callable, changes: list, message: str) -> None:
    code, said = check(*changes)
    assert code == 0, said
    assert re.search(message, said), said


def test_all_faults_at_once(check: Callable) -> None:
    code, said = check(
        (P, "p04,44", "p04,"), (P, "icu", "er"), (P, "p07,47,1.75,surgery,rehab", "p07,47,many,surgery,died"),
        (C, "p00,p01", "p00,ghost"),
        ("silo.yaml", "split:", "policy: {refuse: [weights]}\nsplit:"),
    )  # fmt: skip
    assert code == 2
    assert "6 faults are to be mended" in said
    for word in ("'age' has one value", "'many'", "'er'", "'died'", "'ghost'", "policy"):
        assert word in said


@pytest.mark.parametrize(
    ("values", "far"),
    [
        ([*range(20, 90), 999], (999, 20, 89)),
        ([*range(20, 90), 999, 9999], (9999, 20, 89)),
        ([*range(-10, 10), -999, 9999], (9999, -10, 9)),
        ([*range(0, 500, 7), -99], (-99, 0, 497)),  # nearer than the others lie apart, but the only one below 0
        ([*range(0, 500, 7), -3], None),
        ([*range(-20, 20), -99], None),
        ([*range(-20, 20), -99, -99], (-99, -20, 19)),  # and the commonest
        ([*range(100), 999, 999], (999, 0, 99)),
        ([*range(99), 99, 99], None),  # no gap
        ([*range(100), -1, -1], (-1, 0, 99)),
        ([*range(100), -1], None),
        ([0, 1, 99], None),  # a code among codes
        ([0.1, 0.4, 1.5, 6, 30, 400, 9000], None),  # skewed: each a few times the one before
        ([*range(10), 10.0 * 9], None),  # 81 beyond a range of 9
        ([*range(1, 10), 10.0 * 9], (90, 1, 9)),  # 81 beyond a range of 8
    ],
)
def test_what_is_far_by_hand(values: list[float], far: tuple[float, float, float] | None) -> None:
    assert far_value(np.array(values, dtype=np.float64)) == far


def test_skewed_values_are_rarely_far() -> None:
    """Lognormal values, the logarithm's deviation 1.5 as of inflammation markers: none of 300 tables of 200 rows."""
    draw = np.random.default_rng(0)
    assert not [True for _ in range(300) if far_value(draw.lognormal(0, 1.5, 200)) is not None]


def test_links_by_hand(tmp_path: Path) -> None:
    """a-b twice, b-a, c-c, c-d: two links, one repeated, one reversed, one loop."""
    (tmp_path / "n.csv").write_text("id\na\nb\nc\nd\n")
    (tmp_path / "e.csv").write_text("x,y\na,b\na,b\nb,a\nc,c\nc,d\n")
    text = "nodes: {path: n.csv, id: id}\nedges: {path: e.csv, source: x, target: y}\n"
    (tmp_path / "t.yaml").write_text(text)
    found = read_tables(read_spec(tmp_path / "t.yaml"))
    assert LinkFacts.of(found.rows, 4) == LinkFacts(repeated=1, reversed=1, links=2, loops=1)


def test_a_policy_on_messages_keeps_no_card_in(check):
    told = "counts are refused in messages; those of the card leave before every run"
    assert told in check(("silo.yaml", SILO, f"{SILO}policy: {{kinds: [model]}}\n"))[1]
    assert told not in check()[1]


def test_sums_of_data_that_have_changed_are_remarked(check, tmp_path: Path) -> None:
    """The owner is to know that the next sum says what has changed, before it is opened."""
    check()
    described = read_silo_file(tmp_path / "silo.yaml")
    data = content_hash([described.load(3).graph])
    OpenedSums(described.record("opened")).note(bytes(32), data, [bytes([silo]) * 32 for silo in range(3)])
    assert "sums were opened" not in check()[1]
    code, text = check((P, "p04,44", "p04,45"))
    assert code == 0
    assert "! sums secure sums were opened of other data than there are now: where the other silos' have not" in text
    described.record("opened").write_text("{\n")
    assert "sums no secure sum can be made: the record of opened sums" in check()[1]


def test_small_classes_in_secure_sums_are_remarked(check) -> None:
    code, text = check(("silo.yaml", "split:", "policy: {min_class_count: 9}\nsplit:"))
    assert code == 0
    assert "classes are refused here, in secure sums those with a method.min_count as well, and so are scores" in text
