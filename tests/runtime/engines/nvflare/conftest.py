"""A federation with a process at each site, for the tests of a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the helper beside this file


if TYPE_CHECKING:
    from joined_sites import Federation


@pytest.fixture(scope="module")
def federation() -> Iterator[Federation]:
    """Three sites that have joined; nobody coordinates them yet."""
    from joined_sites import make, short_folder, tables

    with short_folder() as folder:
        made = make(folder)
        try:
            for site in tables.NAMES:
                made.join(site)
            yield made
        finally:
            made.close()
