"""The folder of offloaded states."""

from __future__ import annotations

from graphsilo.runtime.local.offload_folder import OffloadFolder


def test_what_a_killed_run_offloaded_is_removed(tmp_path):
    (tmp_path / "offloaded" / "1").mkdir(parents=True)
    (tmp_path / "offloaded" / "1" / "client-3.1").write_bytes(b"x")
    offload_folder = OffloadFolder(tmp_path)
    assert not (tmp_path / "offloaded").exists()
    first = offload_folder.make_empty()
    (first / "client-0.1").write_bytes(b"x")
    second = offload_folder.make_empty()
    assert second.is_dir()
    assert not first.exists()
    offload_folder.close()
    assert list(tmp_path.iterdir()) == []
