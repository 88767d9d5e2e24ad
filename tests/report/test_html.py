"""The pages as text: complete, self-contained, harmless whatever the run holds."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from graphsilo import report
from graphsilo.errors import RunError
from graphsilo.report.html import render_comparison
from graphsilo.report.record import load
from kit import result_tree, round_tree, seed_tree


class Page(HTMLParser):
    """Elements, text outside scripts and styles, and scripts of a page."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif not self.open or self.open[-1] != "style":
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


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
    assert "Cover disjoint and complete" in words
    assert "held by 10 silos (partition louvain)" in words
    assert "class prototypes: one average embedding per class" in words
    # Evaluation: 196 bytes from each of ten clients
    assert "Of this, 2.0 kB and 0 B served evaluation alone" in words
    assert "Of the gap between local and global, this run closes" in words
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
    assert len(code) == 2


def test_figures_are_labelled_and_their_data_is_there(page: Page) -> None:
    [data] = [json.loads(text) for attributes, text in page.scripts if attributes.get("id") == "page-data"]
    drawn = [attributes for _, attributes in page.elements if attributes.get("data-figure")]
    assert {attributes["data-figure"] for attributes in drawn} == set(data["figures"])
    assert all(attributes.get("aria-label") and attributes.get("role") == "img" for attributes in drawn)
    assert sum(tag == "figcaption" for tag, _ in page.elements) == len(drawn)
    headings = [attributes for tag, attributes in page.elements if tag == "th"]
    assert headings
    assert all(attributes.get("scope") in ("row", "col") for attributes in headings)


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028'\""


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
        assert len(page.scripts) == 3
        assert "alert(1)</script>" in page.words


def test_a_bare_result_makes_a_page_that_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps(result_tree([{}])))
    page = Page(report.write(tmp_path).read_text())
    assert page.open == []
    assert "Clock time of the whole run, to this page not recorded" in page.words
    assert "no readable ledger.parquet" in page.words
    assert "One seed" in page.words
    assert (tmp_path / "report.html").stat().st_size < 100_000  # nothing to draw, nothing embedded


def test_missing_values_do_not_stop_the_page(tmp_path: Path) -> None:
    holder = {"client": 0, "nodes": 5, "train": 1, "val": 1, "test": 3}
    seed = seed_tree(
        0,
        {"accuracy": None, "macro_f1": None, "min_f1": 0.5},
        per_class_f1=[None, 0.5],
        confusion=[[1, 2], [0, 3]],
        clients=[
            {"client": 0, "test_items": None, "test": {}},
            {"client": 7, "test_items": 1, "test": {"accuracy": 1}},
        ],
        rounds=[round_tree(1), round_tree(2, {"min_f1": 0.4}, failures=["client 0 failed"])],
        scenarios={"new_client": {"accuracy": 0.4}, "unseen_node": {"accuracy": None}},
    )
    content = result_tree([{}], seeds=[seed], partition={"per_client": [holder]})
    (tmp_path / "result.json").write_text(json.dumps(content))
    page = Page(report.write(tmp_path).read_text())
    assert "New client" in page.words
    assert "1 client steps failed" in page.words
    assert Page(render_comparison([load(tmp_path)] * 2)).open == []


def test_scenarios_and_missing_groups(tmp_path: Path, sample: ModuleType) -> None:
    folder = sample.make_run(tmp_path / "run", rounds=2, seeds=2)
    content = json.loads((folder / "result.json").read_text())
    for seed in content["seeds"]:
        seed["test"]["hete_min_f1"] = None
        seed["test"]["macro_f1_present"] = 0.875  # the groups' rule: classes among the labels
        seed["scenarios"] = {"missing_class": {"accuracy": 0.25}, "unseen_node": {"accuracy": 0.5}}
    (folder / "result.json").write_text(json.dumps(content))
    words = Page(report.write(folder).read_text()).words
    assert "Missing class 25.0 ± 0.0" in words
    assert "rare class and heterophilous at once no such items" in words
    assert "All every test item 87.5" in words


def test_other_readings_of_the_run(tmp_path: Path) -> None:
    def mode(accuracy: float) -> dict[str, Any]:
        return {"best_round": 2, "validation": {}, "test": {"accuracy": accuracy}, "scenarios": {}}

    modes = {"aggregate_local": mode(0.5), "own_global": mode(0.75), "own_local": mode(0.125)}
    seed = seed_tree(0, test_last={"accuracy": 0.25}, modes=modes, rounds=[round_tree(1)])
    config = {"model": {"pool": ["gcn", {"name": "sage"}, "gcn"]}, "scenario": {"name": "unseen"}}
    (tmp_path / "result.json").write_text(json.dumps(result_tree(seeds=[seed], config=config)))
    words = Page(report.write(tmp_path).read_text()).words
    for text in (
        "trained GCN and SAGE models, one kind per client, on",
        "scenario unseen",
        "Reported: aggregate, round chosen by validation 50.0",
        "Last round 25.0",
        "Clients' own models, test data of all 75.0",
        "Clients' own models 12.5",
    ):
        assert text in words
    assert words.count("Aggregate") == 0  # the reported row says it already


@pytest.mark.parametrize(("method", "promised"), [("global", False), ("fedavg", True)])
def test_pooled_data_are_not_called_private(tmp_path: Path, sample: ModuleType, method: str, promised: bool) -> None:
    folder = sample.make_run(tmp_path / "run", method=method, rounds=2, seeds=1, clients=3)
    words = Page(report.write(folder).read_text()).words
    assert ("no disclosure kind" in words) is promised
    assert ("not federated learning" in words) is not promised


def test_a_thousand_clients_list_the_worst(tmp_path: Path, sample: ModuleType) -> None:
    folder = sample.make_run(tmp_path / "run", clients=1000, classes=5, rounds=2, seeds=1)
    text = report.write(folder).read_text()
    table = text[text.index('id="client-table"') :]
    table = table[: table.index("</table>")]
    assert table.count("<tr") == 201
    assert table.count('class="later"') == 180
    scores = [float(row) for row in re.findall(r'</td><td data-value="([0-9.]+)">[0-9.]+<span', table)]
    assert len(scores) > 200
    assert "The worst 200 of 1\u202f000 clients are listed" in text
    accuracies = sorted(row.test.numbers["accuracy"] or 0.0 for row in load(folder).seeds[0].clients)
    assert f"{accuracies[0]!r}" in table
    assert f"{accuracies[250]!r}" not in table


def test_comparison_page(runs: dict[str, Path], tmp_path: Path) -> None:
    target = report.write_comparison(list(runs.values()), tmp_path / "compare.html")
    page = Page(target.read_text(encoding="utf-8"))
    assert page.open == []
    assert "3 runs on Cora" in page.words
    assert r"\toprule" in page.words
    assert "†: worse than 'FedProx' (paired sign-flip test" in page.words
    assert "Centralised: one place holds everything" in page.words
    with pytest.raises(RunError, match="at least one"):
        report.write_comparison([], tmp_path / "none.html")


def test_incomparable_runs_are_warned_about(runs: dict[str, Path], tmp_path: Path, sample: ModuleType) -> None:
    other = sample.make_run(tmp_path / "other", data="CiteSeer", rounds=3, seeds=2, partition_hash="sha256:00")
    words = Page(report.write_comparison([runs["fedavg"], other], tmp_path / "c.html").read_text()).words
    assert "not comparable: data differ" in words
    assert "FedAvg (data CiteSeer, rounds 3)" in words


def test_a_failed_write_leaves_the_old_page(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs["local"], tmp_path / "run"))
    page = report.write(folder)
    before = page.read_bytes()
    (folder / "result.json").write_text("{")
    with pytest.raises(RunError):
        report.write(folder)
    assert page.read_bytes() == before


def test_scenario_scores_of_references_stand_below_the_runs(tmp_path: Path, sample: ModuleType) -> None:
    folder = sample.make_run(tmp_path / "run", seeds=2, rounds=3)
    tree = json.loads((folder / "result.json").read_text())
    for seed in tree["seeds"]:
        seed["scenarios"] = {"unseen_node": {"accuracy": 0.61}}
    tree["references"]["local"]["scenarios"] = {"unseen_node": {"accuracy": {"mean": 0.523, "std": 0.01}}}
    (folder / "result.json").write_text(json.dumps(tree))
    words = Page(report.write(folder).read_text(encoding="utf-8")).words
    assert "Unseen node, Local only" in words
    assert "52.3 ± 1.0" in words
    assert "Unseen node, Centralised" not in words
    assert "Local only: every silo trains alone; Centralised (cut): one place holds everything but the edges" in words
