"""The pages as text: complete, self-contained, harmless whatever the run holds."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from graphsilo import report
from graphsilo.errors import RunError
from graphsilo.report.html import render, render_comparison
from graphsilo.report.record import load
from kit.pages import Page


@pytest.fixture(scope="module")
def page(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Page:
    target = tmp_path_factory.mktemp("page") / "report.html"
    assert report.write(runs["fedavg"], target) == target
    return Page(target.read_text(encoding="utf-8"))


def test_every_section_is_there(page: Page, runs: dict[str, Path]) -> None:
    assert page.open == []
    ids = {attributes.get("id") for _, attributes in page.elements}
    assert {"result", "curves", "clients", "classes", "partition", "ledger", "cost", "settings"} <= ids
    words = page.words
    run = load(runs["fedavg"])
    score = run.spread("accuracy")
    assert score is not None
    assert score.std is not None
    assert f"{100 * score.mean:.1f} ± {100 * score.std:.1f} %" in words
    assert "FedAvg trained a GCN on Cora" in words
    assert "scored: the clients' own models." in words
    assert "Each item at one client yes" in words
    assert "held by 10 silos (partition louvain)" in words
    assert "class prototypes: one average embedding per class" in words
    # Evaluation: 196 bytes from each of ten clients
    assert "Of this, 2.0 kB and 0 B served evaluation alone" in words
    assert "Of the way from silos alone to all data in one place it goes" in words
    assert "method.weight_decay" in words
    assert run.result.fingerprint in words


def test_every_link_within_the_page_leads_somewhere(page: Page) -> None:
    ids = {attributes.get("id") for _, attributes in page.elements}
    links = [attributes["href"] for tag, attributes in page.elements if tag == "a"]
    assert links
    assert all(link is not None and link.startswith("#") and link[1:] in ids for link in links)


def test_nothing_is_loaded_from_elsewhere(page: Page) -> None:
    for tag, attributes in page.elements:
        assert tag not in {"iframe", "object", "embed", "base", "form"}
        assert attributes.get("src") is None
        if tag == "link":
            assert attributes["href"] == "data:,"
        assert not [name for name in attributes if name.startswith("on")]


def test_the_policy_names_exactly_the_scripts_of_the_page(page: Page) -> None:
    [policy] = [
        attributes["content"] or ""
        for tag, attributes in page.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none';")
    assert "unsafe-eval" not in policy
    assert "http" not in policy
    code = [text for attributes, text in page.scripts if attributes.get("type") is None]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in code]
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert len(code) == 1


def test_figures_are_labelled_and_have_a_caption(page: Page) -> None:
    charts = [attributes for _, attributes in page.elements if attributes.get("class") == "chart"]
    assert charts
    assert all(attributes.get("aria-label") and attributes.get("role") == "img" for attributes in charts)
    curves = [text for each in charts if (text := each["aria-label"] or "").startswith("Line chart of validation")]
    assert {"Line chart of validation and test Macro-F1 by round", *curves} == set(curves)
    assert len(set(curves)) == len(curves)  # each names its own metric
    assert sum(tag == "figcaption" for tag, _ in page.elements) == sum(tag == "figure" for tag, _ in page.elements)
    assert sum(tag == "svg" for tag, _ in page.elements) == 2 * len(charts)  # for a wide and for a narrow place
    headings = [attributes for tag, attributes in page.elements if tag == "th"]
    assert headings
    assert all(attributes.get("scope") in ("row", "col") for attributes in headings)


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028'\""


def test_pages_are_small(runs: dict[str, Path]) -> None:
    assert len(render(load(runs["fedavg"]))) < 300_000
    assert len(render_comparison([load(path) for path in runs.values()])) < 300_000


def test_text_from_the_run_stays_text(tmp_path: Path, sample: ModuleType) -> None:
    folder = sample.make_run(
        tmp_path / "run",
        title=HOSTILE,
        data=HOSTILE,
        rounds=2,
        seeds=1,
        classes=3,
        class_names=[HOSTILE, "b", "c"],
        settings={HOSTILE: HOSTILE},
        extra={"warnings": [HOSTILE]},
    )
    for text in (report.write(folder).read_text(), render_comparison([load(folder)])):
        page = Page(text)
        assert page.open == []
        assert not any(tag == "img" for tag, _ in page.elements)
        assert len(page.scripts) == 1
        assert "alert(1)</script>" in page.words


def test_a_failed_write_leaves_the_old_page(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs["local"], tmp_path / "run"))
    page = report.write(folder)
    before = page.read_bytes()
    (folder / "result.json").write_text("{")
    with pytest.raises(RunError):
        report.write(folder)
    assert page.read_bytes() == before
