"""Sizes in words, and what does not fit."""

from __future__ import annotations

import pytest

from graphsilo.data.sources.sizes import dense_bytes, in_words, require_memory
from graphsilo.errors import UnsupportedError


def test_sizes() -> None:
    assert dense_bytes(2_400_000, 1000) == 9_600_000_000
    assert dense_bytes(10, 10, matrices=3) == 1200
    assert [in_words(size) for size in (0, 999, 1500, 2.5e6, 9.6e9, 3e12)] == [
        "0 bytes", "999 bytes", "1.5 kB", "2.5 MB", "9.6 GB", "3 TB",
    ]  # fmt: skip


def test_what_does_not_fit_is_refused_with_both_numbers() -> None:
    with pytest.raises(UnsupportedError) as refusal:
        require_memory(9_600_000_000, 2_000_000_000, what="a dense matrix", instead="Take fewer rows.")
    assert str(refusal.value) == "a dense matrix needs 9.6 GB of memory, and 2 GB are there. Take fewer rows."
    require_memory(5, 5, what="", instead="")
    require_memory(5, None, what="", instead="")
