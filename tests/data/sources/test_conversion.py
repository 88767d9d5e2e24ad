"""Raw files as graphs."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from graphsilo.data.sources import conversion
from graphsilo.errors import DataError

COMPACT = "2\n3 1\n0 1 1\n0 3 0 2 2\n0 2 1 2\n2 0\n0 0\n5 0\n"


def test_compact_collection(tmp_path: Path) -> None:
    # Graph 0 is the path 0 - 1 - 2, with one link listed twice and a loop at 2; graph 1 has two lonely nodes.
    path = tmp_path / "C.txt.xz"
    path.write_bytes(lzma.compress(COMPACT.encode()))
    graphs = conversion.read_compact_collection(path, name="C", num_classes=2)
    assert graphs.pointer.tolist() == [0, 3, 5]
    assert graphs.labels.tolist() == [1, 0]
    assert graphs.union.edges.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]


@pytest.mark.parametrize(
    "text", [COMPACT + "0 0\n", COMPACT.replace("0 2 1 2\n", "0 2 1\n"), COMPACT.replace("5 0\n", ""), "3\n1 0\n0 0\n"]
)
def test_damaged_compact_collection(tmp_path: Path, text: str) -> None:
    path = tmp_path / "C.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=r"damaged|ends within"):
        conversion.read_compact_collection(path, name="C", num_classes=2)
