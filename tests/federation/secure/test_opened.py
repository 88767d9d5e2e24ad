"""A silo's record of what it opened."""

from __future__ import annotations

import os

import pytest

from graphsilo.errors import DisclosureError
from graphsilo.federation.secure import opened
from graphsilo.federation.secure.opened import OpenedSums, call_of

X, Y = bytes(32), b"\x01" * 32
A, B, C, D = (bytes([number]) * 32 for number in range(4))
CALL = call_of("run", 0, 1, "train", 0)


@pytest.fixture(params=["memory", "file"])
def path(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "sums" / "north.sums"


def again(record: OpenedSums) -> OpenedSums:
    """After a restart of the site, where the record is in a file."""
    return record if record.path is None else OpenedSums(record.path)


def test_the_same_answer_with_other_silos_is_refused_for_ever(path):
    record = OpenedSums(path)
    record.note(X, CALL, [A, B, C])
    record = again(record)
    record.note(X, CALL, [C, B, A])  # the same sum, as often as one likes
    for silos in ([A, B], [A, B, C, D], [A, B, D]):
        for call in (CALL, call_of("another", 7, 3, "train", 0)):
            with pytest.raises(DisclosureError, match="this answer was opened before in a sum with other silos"):
                again(record).check(X, call, silos)
    record.note(X, call_of("another", 0, 1, "train", 0), [A, B, C])


def test_another_answer_to_the_same_call_with_other_silos_is_refused(path):
    record = OpenedSums(path)
    record.note(X, CALL, [A, B, C])
    with pytest.raises(DisclosureError, match=r"this call was opened .* \(0 are new, 1 are not there any more\)"):
        again(record).note(Y, CALL, [A, B])
    again(record).note(Y, call_of("run", 0, 2, "train", 0), [A, B])


def test_it_is_on_the_disk_before_anything_is_opened(tmp_path, monkeypatch):
    order = []
    write, sync = os.write, os.fsync
    monkeypatch.setattr(opened.os, "write", lambda *given: order.append("write") or write(*given))
    monkeypatch.setattr(opened.os, "fsync", lambda *given: order.append("fsync") or sync(*given))
    OpenedSums(tmp_path / "a.sums").note(X, CALL, [A, B, C])
    assert order[:2] == ["write", "fsync"]
    assert (tmp_path / "a.sums").stat().st_mode & 0o777 == 0o600


def test_a_line_that_was_cut_opened_nothing(tmp_path):
    path = tmp_path / "a.sums"
    OpenedSums(path).note(X, CALL, [A, B, C])
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"answer": "0101')
    record = OpenedSums(path)
    record.note(Y, call_of("run", 0, 2, "train", 0), [A, B])
    assert len(path.read_bytes().splitlines()) == 2
    with pytest.raises(DisclosureError, match="other silos"):
        OpenedSums(path).check(Y, CALL, [A, B])


def test_without_a_record_nothing_is_opened(tmp_path):
    damaged = tmp_path / "a.sums"
    for text in (b"not a line\n", b"[]\n", b'{"answer": "a", "call": "b"}\n', b"[" * 100_000 + b"\n", b"\xff\n"):
        damaged.write_bytes(text)
        with pytest.raises(DisclosureError, match="cannot be read"):
            OpenedSums(damaged)
    folder = tmp_path / "b.sums"
    record = OpenedSums(folder)
    folder.mkdir()
    with pytest.raises(DisclosureError, match="cannot be written"):
        record.note(X, CALL, [A, B, C])
