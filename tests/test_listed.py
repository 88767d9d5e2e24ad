"""What is said of an entry is read from its file: only literals, and where they are missing, which line says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsilo.errors import ConfigError
from graphsilo.listed import find_files, read_listing
from graphsilo.models.settings import ModelListing

WANTED = "a backbone's file says BACKBONE = ModelEntry(...)"


def test_files_and_packages_are_entries(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "__init__.py").write_text("")
    (tmp_path / "two" / "numerics.py").write_text("")
    (tmp_path / "three").mkdir()  # no package
    (tmp_path / "_shared.py").write_text("")
    assert [module for _, module in find_files(tmp_path)] == ["one", "two"]


def test_only_what_is_literal_is_read(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(
        'import gone\n\nBACKBONE = E(name="net", summary="a net", paper="", network=gone.Net, graphs=True)\n'
    )
    assert read_listing(path, "BACKBONE", ModelListing, WANTED) == ModelListing(
        name="net", summary="a net", paper="", graphs=True
    )
    path.write_text("\n\nBACKBONE = Entry(name=NAME)\n")
    with pytest.raises(ConfigError, match=r"net\.py, line 3: 'name' must be written out, since a BACKBONE is listed"):
        read_listing(path, "BACKBONE", ModelListing, WANTED)
    path.write_text("")
    with pytest.raises(ConfigError, match=r"there is no BACKBONE; a backbone's file says"):
        read_listing(path, "BACKBONE", ModelListing, WANTED)
