"""A page as a reader meets it."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any


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


class Visit:
    """A page in a browser, from disk or from an address, with all that it asked for and complained about."""

    def __init__(self, browser: Any, place: Path | str, **options: Any) -> None:
        self.page = browser.new_page(**options)
        self.requests: set[str] = set()
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.add(request.url))
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(place if isinstance(place, str) else place.as_uri())

    def until(self, selector: str, text: str) -> None:
        """Wait for a text; the page's policy forbids the browser's own way, which evaluates text in the page."""
        for _ in range(200):
            if self.page.is_visible(selector) and text in self.page.inner_text(selector):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"{selector} never said {text!r}, but {self.page.inner_text(selector)!r}")
