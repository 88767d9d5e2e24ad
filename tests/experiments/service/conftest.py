"""The sites that these tests speak to."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.sites import make_sites, short_path, sites, standing

__all__ = ["make_sites", "short_path", "sites", "standing"]


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    return tmp_path / "kit"
