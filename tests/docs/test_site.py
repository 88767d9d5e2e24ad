"""The built site is complete and loads nothing from outside."""

from __future__ import annotations

import re
import shutil
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


class Resources(HTMLParser):
    """Addresses that a browser loads by itself: not links that a person follows."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video", "audio", "embed", "track"):
            self.found += [address for address in (values.get("src"), values.get("srcset")) if address]
        if tag == "link" and values.get("rel") not in ("canonical", "next", "prev", "edit", "alternate"):
            self.found.append(values.get("href") or "")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def test_every_page_is_built(site: Path, checkout: Path) -> None:
    sources = {path.relative_to(checkout / "docs").with_suffix(".html") for path in (checkout / "docs").rglob("*.md")}
    assert sources <= {path.relative_to(site) for path in pages(site)}


def test_pages_load_nothing_from_outside(site: Path) -> None:
    for page in pages(site):
        reader = Resources()
        reader.feed(page.read_text(encoding="utf-8"))
        outside = [address for address in reader.found if re.match(r"(https?:)?//", address)]
        assert not outside, f"{page.name} loads {outside[0]}"
        for address in reader.found:
            if page.name != "404.html" and not address.startswith("data:"):
                assert (page.parent / address.split("?")[0].split("#")[0]).exists(), f"{page.name}: no {address}"


def test_styles_load_nothing_from_outside(site: Path) -> None:
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert not re.search(r"@import|url\(\s*[\"']?(https?:)?//", text), f"{style.name} loads from outside"


def test_pictures_are_shown_and_small(site: Path, checkout: Path) -> None:
    """Every picture stands on a page, with words for those who do not see it, and takes at most 150 kB."""
    shown: set[str] = set()
    for page in pages(site):
        for words, name in re.findall(r"<img alt=\"([^\"]*)\" src=\"[./]*pictures/([^\"]+)\"", page.read_text("utf-8")):
            shown.add(name)
            assert len(words) > 20, f"{page.name}: {name} has no description"
    pictures = list((checkout / "docs" / "pictures").iterdir())
    assert {picture.name for picture in pictures} == shown
    assert len(pictures) >= 8
    for picture in pictures:
        assert picture.stat().st_size <= 150_000, picture.name
        if picture.suffix == ".svg":
            assert not re.search(r"(href|src|url)[=(]", picture.read_text("utf-8").replace("url(#", "")), picture.name


def test_no_marker_is_left(site: Path) -> None:
    for page in pages(site):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"<!-- (settings|messages|options|catalog|rules)\b", text), page.name
        assert "--8&lt;--" not in text, page.name


@pytest.mark.browser
def test_a_browser_asks_nobody(site: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    playwright = pytest.importorskip("playwright.sync_api")
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync"]  # fmt: skip
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}/"
    try:
        with playwright.sync_playwright() as started:
            browser = started.chromium.launch(executable_path=chromium, args=quiet)
            page = browser.new_page(viewport={"width": 800, "height": 900})
            asked: list[str] = []
            errors: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            page.on("pageerror", lambda error: errors.append(str(error)))
            shown = ("index.html", "tables.html", "sites.html", "which-method.html", "methods/fairfgl.html")
            for width in (390, 1280):
                page.set_viewport_size({"width": width, "height": 900})
                for path in (*shown, "methods/fedavg.html", "configuration.html", "python.html"):
                    page.goto(home + path, wait_until="networkidle")
                    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                    assert wide == 0, f"{path} is wider than a window of {width}"
            for path in ("methods/fedridge.html", "methods/fedavg.html"):
                page.goto(home + path)
                heights = page.evaluate(
                    "[...document.querySelectorAll('math')].map((m) => m.getBoundingClientRect().height)"
                )
                assert len(heights) >= 4
                assert min(heights) > 5, "a formula is not drawn"
            page.goto((site / "methods" / "fedavg.html").as_uri())  # from a folder, without a server
            page.click(".md-search__input")
            told = "document.querySelector('.md-search-result__meta').textContent"
            page.wait_for_function(f"!{told}.includes('Initializing')")  # what is typed before is not seen
            page.locator(".md-search__input").press_sequentially("secure sums")
            page.wait_for_selector(".md-search-result__item")
            first = page.locator(".md-search-result__item a").first.get_attribute("href") or ""
            assert first.startswith("file:")
            assert "privacy.html" in first
            browser.close()
    finally:
        server.shutdown()
        server.server_close()
    assert [address for address in asked if not address.startswith((home, "data:", "blob:", site.as_uri()))] == []
    assert errors == []
