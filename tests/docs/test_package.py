"""What a package index shows: links, the README, and what CITATION.cff repeats of it."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml

from graphsilo.__about__ import __version__

CHECKOUT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
REPOSITORY = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")
RELATIVE = re.compile(r"\]\((?!https?:|#)")


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``scripts/package_metadata.py``; the interface of hatchling, which only builds have, is a plain class here."""
    monkeypatch.setitem(
        sys.modules, "hatchling.metadata.plugin.interface", SimpleNamespace(MetadataHookInterface=object)
    )
    path = CHECKOUT / PROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]["path"]
    spec = importlib.util.spec_from_file_location("package_metadata", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_are_absolute_where_the_repository_has_an_address(maker: ModuleType) -> None:
    made = maker.readable_anywhere(
        "![A page](docs/a.png) [words](docs/b.md#part) [out](https://example.org) [here](#x)",
        "https://host/owner/graphsilo",
    )
    assert made == (
        "![A page](https://host/owner/graphsilo/raw/main/docs/a.png) "
        "[words](https://host/owner/graphsilo/blob/main/docs/b.md#part) [out](https://example.org) [here](#x)"
    )
    assert maker.urls("https://host/owner/graphsilo")["Issues"] == "https://host/owner/graphsilo/issues"
    assert set(maker.urls("https://host/owner/graphsilo")) >= {"Homepage", "Source", "Documentation", "Changelog"}


def test_no_link_leads_nowhere(maker: ModuleType) -> None:
    assert maker.readable_anywhere("![A page](docs/a.png)[words](docs/b.md) x", "") == "words x"
    assert maker.urls("") == {}
    assert RELATIVE.search(README)
    for address in ("", "https://host/owner/graphsilo"):
        assert not RELATIVE.search(maker.readable_anywhere(README, address))


def test_the_readme_renders_as_it_is() -> None:
    assert "<!--" not in README
    assert "--8<--" not in README


def test_the_readme_begins_with_commands_that_work(reference: ModuleType) -> None:
    """On the day of the first upload to a package index, the two commands from there come first."""
    first = "pip install graphsilo\ngraphsilo demo\n" if reference.is_on_index() else "make quickstart\nmake test\n"
    assert README.partition("```sh\n")[2].partition("```")[0] == first
    assert len(README.partition("```sh\n")[0].splitlines()) < 15  # on the first screen


def test_pages_and_sources_install_from_a_clone(reference: ModuleType) -> None:
    """Only the site (below) and messages (``errors.installing``) know of an index, and both ask pyproject.toml."""
    tool = re.compile(r"\b(pip|pipx|uv)\b[^`#]*\b(install|download|wheel|add)\b[^`#]*(?<![\w/.-])graphsilo(?![\w/.-])")
    folders = [CHECKOUT / name for name in ("src", "docs", "examples", "deploy", ".github")]
    places = [*CHECKOUT.glob("*.*"), *(path for folder in folders for path in folder.rglob("*.*") if path.is_file())]
    told = ["CHANGELOG.md", "pyproject.toml", *(["README.md"] if reference.is_on_index() else [])]
    for path in (path for path in places if path.is_file() and path.name not in told):
        for line in path.read_text(encoding="utf-8", errors="ignore").splitlines():
            assert not tool.search(line) or "--no-index" in line, f"{path}: {line}"


@pytest.mark.parametrize("is_on_index", [False, True])
def test_one_line_of_the_build_file_switches_the_site(
    reference: ModuleType, monkeypatch: pytest.MonkeyPatch, is_on_index: bool
) -> None:
    monkeypatch.setattr(reference, "is_on_index", lambda: is_on_index)
    for name in ("index", "getting-started", "tune", "sites"):
        made = reference.on_page_markdown((CHECKOUT / "docs" / f"{name}.md").read_text(encoding="utf-8"))
        assert ("pip install graphsilo\ngraphsilo demo\n" in made) == (
            is_on_index and name in ("index", "getting-started")
        )
        assert ("pip install 'graphsilo[" in made) == (is_on_index and name != "index")
        assert ("'.[" in made) == (not is_on_index and name != "index")


def test_citation_and_package_say_the_same() -> None:
    cited = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == __version__
    assert cited["license"] == PROJECT["project"]["license"]
    assert [author["name"] for author in cited["authors"]] == [a["name"] for a in PROJECT["project"]["authors"]]
    assert cited.get("repository-code", "") == REPOSITORY
