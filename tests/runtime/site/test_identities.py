"""A silo's own key, and the keys that it knows the others by."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from graphsilo.errors import DisclosureError
from graphsilo.runtime.site.identities import Pinned, load_identity, load_secret


def test_a_key_lasts(tmp_path: Path) -> None:
    first = load_identity(tmp_path / "sums" / "north.key")
    assert load_identity(tmp_path / "sums" / "north.key").proof == first.proof
    (tmp_path / "sums" / "north.key").write_bytes(b"short")
    with pytest.raises(DisclosureError, match="the key by which this silo signs in secure sums cannot be kept"):
        load_identity(tmp_path / "sums" / "north.key")


def test_nobody_else_can_read_the_key_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []
    sync = os.fsync

    def look(handle: int) -> None:
        modes.extend(path.stat().st_mode & 0o777 for path in tmp_path.glob(".*.tmp"))
        sync(handle)

    monkeypatch.setattr(os, "fsync", look)
    before = os.umask(0)
    try:
        load_identity(tmp_path / "north.key")
    finally:
        os.umask(before)
    assert modes == [0o600]
    assert (tmp_path / "north.key").stat().st_mode & 0o777 == 0o600


def test_another_key_for_the_same_client_is_refused_after_a_restart(tmp_path: Path) -> None:
    keys = [load_identity(tmp_path / f"{name}.key").proof for name in ("a", "b")]
    known = Pinned(tmp_path / "known")
    known.key_of(1, keys[0])
    again = Pinned(tmp_path / "known")
    again.key_of(1, keys[0])
    with pytest.raises(DisclosureError, match="client 1 signs with another key than before"):
        again.key_of(1, keys[1])
    for damaged in ("not json", "[]", "null", "[" * 100_000):
        (tmp_path / "known").write_text(damaged)
        with pytest.raises(DisclosureError, match="the keys of other silos cannot be read"):
            Pinned(tmp_path / "known")


def test_a_silos_secret_is_made_once_and_is_its_owners_alone(tmp_path):
    file = tmp_path / "sums" / "north.secret"
    first = load_secret(file)
    assert len(first) == 32
    assert load_secret(file) == first
    assert file.stat().st_mode & 0o777 == 0o600
    assert load_secret(tmp_path / "sums" / "south.secret") != first
    file.write_bytes(b"short")
    with pytest.raises(DisclosureError, match="secret by which this silo knows its checkpoints"):
        load_secret(file)


def test_of_two_that_begin_at_once_both_have_one_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second comes while the first makes it."""
    file = tmp_path / "sums" / "north.secret"
    found: list[bytes] = []
    second = threading.Thread(target=lambda: found.append(load_secret(file)))

    drawn = os.urandom

    def made(size: int) -> bytes:
        if size == 32 and threading.current_thread() is not second:
            second.start()
            second.join(0.2)  # it waits, or has made another by then
            return b"1" * size
        return drawn(size)

    monkeypatch.setattr(os, "urandom", made)
    assert load_secret(file) == b"1" * 32
    second.join()
    assert found == [b"1" * 32]
    assert file.read_bytes() == b"1" * 32
