"""The page on attacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from graphsilo.attacks import findings
from graphsilo.attacks import record as records
from graphsilo.attacks.findings import Finding
from graphsilo.attacks.record import AttackRecord, Outcome
from graphsilo.report import attack_page
from kit.pages import Page


def outcome(**more: Any) -> Outcome:
    kept = {
        "attack": "rows",
        "attacker": "coordinator",
        "figure": "share of rows",
        "uses": "sums",
        "targets": 9,
        "clients": (0, 1),
    }
    return Outcome(**{**kept, **more})


@pytest.fixture
def record() -> AttackRecord:
    outcomes = [
        outcome(value=0.9, low=0.8, high=0.95, prior=0.1),
        outcome(attack="links", attacker="reader", figure="AUC <b>", value=0.6, low=0.5, high=0.7, prior=0.55),
        outcome(attack="replay", uses="not needed", targets=0),
    ]
    return AttackRecord(
        fingerprint="f" * 64, method="fedavg", title="FedAvg", data="<i>Cora", secure_sums=False,
        shadows=16, notes=["other <scores>"], outcomes={3: outcomes},
    )  # fmt: skip


def test_the_page_says_what_was_learned(record):
    page = Page(attack_page.render(record))
    assert "Attacks on FedAvg, <i>Cora" in page.words
    assert (
        "2 silos of a run without secure sums, attacked as the coordinator and a reader of the saved model."
        in page.words
    )
    assert "16 shadow runs" in page.words
    assert "Rows. share of rows: 0.900 (0.800 to 0.950), without the run 0.100. From sums." in page.words
    assert "The coordinator, nothing to use: replay." in page.words
    assert "A reader of the saved model, no better than without the run: links." in page.words
    assert "other <scores>" in page.words
    assert page.open == []


def test_attacks_on_other_clients_have_their_own_part(record):
    more = outcome(value=0.3, low=0.2, high=0.4, prior=0.1, clients=(2,))
    page = Page(attack_page.render(replace(record, outcomes={3: [*record.outcomes[3], more]})))
    assert "3 silos of a run" in page.words
    assert "What was learned, silos 0, 1" in page.words
    assert "What was learned, silo 2" in page.words


def test_the_figure_has_a_mark_for_each_that_was_tried(record):
    (figure,) = attack_page.describe(record).figures
    prior, below, above = figure.plots["success"].marks
    assert prior.x == [0.1, 0.55]
    assert (above.name, above.x, above.y) == ("above the prior", [0.9], [0])
    assert above.reach == [(0.8, 0.95)]
    assert (below.x, below.y) == ([0.6], [1])
    assert attack_page.draw_success([outcome()], "none", 0) is None


def test_what_guards_change_stands_beside_the_method_as_it_comes(record, monkeypatch):
    plain = Finding(
        method="fedavg", variant="", attacker="reader", attack="rows", figure="share", value=0.9, low=0.8, high=0.95,
        prior=0.1, targets=9, data="Cora", commit="abc",
    )  # fmt: skip
    noisy = replace(plain, variant="epsilon 8", value=0.1, low=0.05, high=0.2)
    monkeypatch.setattr(findings, "load", lambda: (plain, noisy, replace(plain, attack="links")))
    (_, text), (_, table) = attack_page.guards("fedavg")
    assert "on Cora, measured beforehand" in text
    assert [title for title, _ in table.columns[3:]] == ["Without the run", "as it comes", "epsilon 8"]
    assert [list(row[4:]) for row in table.rows] == [
        ["<b>0.900 (0.800 to 0.950)</b>", "0.100 (0.050 to 0.200)"], ["<b>0.900 (0.800 to 0.950)</b>", "–"],
    ]  # fmt: skip
    html = attack_page.render(record)
    assert "What guards change" in Page(html).words
    assert "<b>0.900 (0.800 to 0.950)</b>" in html
    monkeypatch.setattr(findings, "load", lambda: (plain,))
    assert attack_page.guards("fedavg") == []
    assert "What guards change" not in Page(attack_page.render(record)).words


def test_it_is_written_from_the_file_alone(record, tmp_path):
    records.write(tmp_path, record)
    assert attack_page.write(tmp_path) == tmp_path / "attack.html"
    assert "16 shadow runs" in (tmp_path / "attack.html").read_text()


@pytest.mark.browser
def test_it_is_drawn(record: AttackRecord, browser: Any, tmp_path: Path) -> None:
    records.write(tmp_path, record)
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(attack_page.write(tmp_path).as_uri())
    page.wait_for_selector(".wide svg circle")
    assert said == []
