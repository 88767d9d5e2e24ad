"""Files that claim more than they hold are refused before room is made."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphsilo.data.arrays import read_npy, read_npz
from graphsilo.data.partition import Partition
from graphsilo.data.partition.rules.files import load_owners
from graphsilo.data.sources.files import load_graph
from graphsilo.errors import GraphsiloError
from graphsilo.experiments.storage import disk


def header(shape: tuple[int, ...], descr: str = "<i8") -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": descr, "fortran_order": False, "shape": shape})
    return out.getvalue()


def write(path: Path, members: dict[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


READERS: list[Callable[[Path], Any]] = [load_graph, Partition.load, disk.read_study]


@pytest.mark.parametrize("packed", [False, True])
def test_what_numpy_writes_is_read(tmp_path: Path, packed: bool) -> None:
    arrays = {
        "a": np.arange(6).reshape(2, 3), "b": np.zeros((0, 4), dtype=np.float32), "c": np.array("text"),
        "d": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "e": np.ones(1000, dtype=bool), "f": np.array(["ä", "b"]),
    }  # fmt: skip
    (np.savez_compressed if packed else np.savez)(tmp_path / "a.npz", allow_pickle=False, **arrays)
    found = read_npz(tmp_path / "a.npz")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)


@pytest.mark.parametrize("read", READERS)
def test_a_shape_that_is_not_there(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    path = write(tmp_path / "lie.npz", {"nodes_0": header((10**15,))})
    with pytest.raises(GraphsiloError, match=r"lie\.npz .*'nodes_0' claims to hold 8000000000000000 bytes and holds 0"):
        read(path)


@pytest.mark.parametrize("read", READERS)
def test_a_small_file_that_unpacks_to_a_large_one(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    """80 MB of zeros in 80 kB: refused by what the directory of the archive says."""
    content = header((80_000_000,), "|u1") + bytes(80_000_000)
    path = write(tmp_path / "bomb.npz", {"nodes_0": content})
    assert path.stat().st_size < 120_000
    del content
    tracemalloc.start()
    with pytest.raises(GraphsiloError, match=r"bomb\.npz .*it unpacks to 8000\d+ bytes"):
        read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000


def test_members_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'a' holds Python objects, which need pickle"):
        read_npz(write(tmp_path / "o.npz", {"a": header((1,), "|O") + b"x"}))
    with pytest.raises(ValueError, match="'a' claims to hold 8 bytes and holds 9"):
        read_npz(write(tmp_path / "m.npz", {"a": header((1,)) + bytes(9)}))
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("a.npy", header((0,)))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.npy", header((0,)))
    with pytest.raises(ValueError, match="'a' is in it twice"):
        read_npz(tmp_path / "t.npz")
    with pytest.raises(ValueError, match=r"the npy format 3\.0"):
        read_npz(write(tmp_path / "v.npz", {"a": b"\x93NUMPY\x03\x00" + bytes(10)}))


def test_one_array(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(5))
    assert read_npy(tmp_path / "a.npy").tolist() == [0, 1, 2, 3, 4]
    (tmp_path / "lie.npy").write_bytes(header((10**15,)))
    with pytest.raises(GraphsiloError, match=r"lie\.npy: one client number per node was wanted"):
        load_owners(tmp_path / "lie.npy")


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", allow_pickle=False, a=np.arange(1000))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[4000] ^= 1
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(zipfile.BadZipFile, match="CRC"):
        read_npz(tmp_path / "a.npz")
