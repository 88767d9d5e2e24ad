"""The pages in a real browser: drawn, silent, and asking nothing of anyone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from graphsilo import report
from kit.pages import Visit

pytestmark = pytest.mark.browser

DRAWN = """() => [...document.querySelectorAll("figure.panel[id]")].map((figure) => {
  const shown = [...figure.querySelectorAll("svg")].filter((svg) => svg.getClientRects().length);
  const box = shown[0]?.getBoundingClientRect();
  return [figure.id, shown.length, box ? box.width * box.height : 0, shown[0]?.querySelectorAll("[class]").length];
})"""
"""Of every figure: its pictures that are seen, the area of the first, and what is drawn in it."""


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (800, "dark"), (390, "light")])
def test_run_page(browser: Any, runs: dict[str, Path], tmp_path: Path, width: int, scheme: str) -> None:
    path = report.write(runs["fedavg"], tmp_path / "report.html")
    visit = Visit(browser, path, viewport={"width": width, "height": 900}, color_scheme=scheme)
    drawn = visit.page.evaluate(DRAWN)
    assert len(drawn) == 6
    assert all(shown == 1 and area > 10_000 and marks > 5 for _, shown, area, marks in drawn), drawn
    assert visit.page.evaluate("document.documentElement.scrollWidth") == width  # nothing sticks out
    visit.page.select_option("select[data-group=curves]", "macro_f1")
    assert "Macro-F1, %" in visit.page.text_content("#curve-rounds .choice:not([hidden])")
    visit.page.hover("#confusion svg:visible rect[data-tip]")
    assert "of class" in visit.page.inner_text(".tip")
    assert visit.complaints == []
    assert visit.requests == {path.as_uri()}
    visit.page.close()


@pytest.mark.parametrize("width", [1280, 1210, 1100, 1001, 700])
def test_the_table_of_references_is_whole(browser: Any, runs: dict[str, Path], tmp_path: Path, width: int) -> None:
    """Also with five columns of numbers."""
    visit = Visit(
        browser, report.write(runs["fedavg"], tmp_path / "report.html"), viewport={"width": width, "height": 9}
    )
    wide = """() => { const box = document.querySelector(".ladder .scroll");
      for (const row of box.querySelectorAll("tr")) row.append(row.lastElementChild.cloneNode(true));
      return box.scrollWidth - box.clientWidth; }"""
    assert visit.page.evaluate(wide) == 0
    visit.page.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_long_name_of_a_silo_widens_nothing(browser: Any, runs: dict[str, Path], tmp_path: Path, width: int) -> None:
    folder = shutil.copytree(runs["fedavg"], tmp_path / "run")
    record = json.loads((folder / "result.json").read_text())
    for row in record["partition"]["per_client"]:
        row["silo"] = f"{row['client']} Hospital of Saint Bartholomew " * 6
    (folder / "result.json").write_text(json.dumps(record))
    visit = Visit(browser, report.write(folder, tmp_path / "report.html"), viewport={"width": width, "height": 900})
    assert "Bartholomew" in visit.page.text_content("#client-table tbody th")
    assert visit.page.evaluate("document.documentElement.scrollWidth") == width
    assert visit.page.evaluate("document.querySelector('#client-table tbody th').offsetWidth") < 300
    visit.page.close()


def test_dark_pages_draw_in_dark_colours(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    path = report.write(runs["fedavg"], tmp_path / "report.html")
    visit = Visit(browser, path, color_scheme="dark")
    fill = "getComputedStyle(document.querySelector('#per-class circle')).fill"
    assert visit.page.evaluate(fill) == "rgb(90, 180, 230)"
    visit.page.emulate_media(color_scheme="light")
    assert visit.page.evaluate(fill) == "rgb(0, 114, 178)"
    visit.page.emulate_media(color_scheme="dark", media="print")  # paper is white
    assert visit.page.evaluate(fill) == "rgb(0, 114, 178)"
    visit.page.close()


def test_a_figure_is_saved_with_its_colours(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    visit = Visit(browser, report.write(runs["fedavg"], tmp_path / "report.html"), accept_downloads=True)
    with visit.page.expect_download() as waiting:
        visit.page.click("#per-class .save")
    assert waiting.value.suggested_filename == "per-class.svg"
    text = waiting.value.path().read_text()
    assert text.startswith("<svg")
    assert "rgb(0, 114, 178)" in text  # no colour is left to a style that stays behind
    assert visit.complaints == []
    visit.page.close()


def test_words_are_explained_at_the_keyboard(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    visit = Visit(browser, report.write(runs["fedavg"], tmp_path / "report.html"))
    visit.page.focus(".score .term")
    assert visit.page.inner_text(".tip") == "The share of test items that were predicted right."
    described = visit.page.get_attribute(".score .term", "aria-describedby")
    assert visit.page.inner_text(f"#{described}") == visit.page.inner_text(".tip")
    visit.page.keyboard.press("Escape")
    assert visit.page.is_hidden(".tip")
    visit.page.hover("#client-table th button[data-tip] >> nth=0")
    assert visit.page.is_visible(".tip")
    visit.page.close()


def test_sorting_and_showing_more(browser: Any, tmp_path: Path, sample: ModuleType) -> None:
    folder = sample.make_run(tmp_path / "run", clients=100, rounds=2, seeds=1)
    visit = Visit(browser, report.write(folder))
    rows = "#client-table tbody tr:visible"
    assert visit.page.locator(rows).count() == 20
    visit.page.get_by_role("button", name="Nodes", exact=True).click()
    shown = [int(cell) for cell in visit.page.locator(f"{rows} >> td:nth-child(2)").all_inner_texts()]
    assert shown == sorted(shown)
    assert visit.page.locator("#client-table th[aria-sort=ascending]").inner_text().strip() == "Nodes"
    visit.page.get_by_role("button", name="Show all 100 rows").click()
    assert visit.page.locator(rows).count() == 100
    assert visit.complaints == []
    visit.page.close()


def test_a_script_smuggled_into_the_page_does_not_run(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    text = report.write(runs["local"], tmp_path / "report.html").read_text()
    path = tmp_path / "tampered.html"
    path.write_text(
        text.replace("</main>", "<script>window.smuggled = 1</script><img src=https://example.org/x></main>")
    )
    visit = Visit(browser, path)
    assert visit.page.evaluate("window.smuggled") is None
    told = " ".join(visit.complaints)
    assert "Executing inline script violates" in told
    assert "Loading the image 'https://example.org/x' violates" in told
    visit.page.close()


def test_comparison_page(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    path = report.write_comparison(list(runs.values()), tmp_path / "compare.html")
    visit = Visit(browser, path)
    drawn = visit.page.evaluate(DRAWN)
    assert len(drawn) == 5
    assert all(shown == 1 and area > 10_000 and marks > 5 for _, shown, area, marks in drawn), drawn
    assert visit.complaints == []
    assert visit.requests == {path.as_uri()}
    visit.page.close()
