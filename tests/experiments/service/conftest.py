"""A place for a coordinator's kit."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    return tmp_path / "kit"
