"""A silo's record of what it opened."""

from __future__ import annotations

import errno
import os
from unittest import mock

import pytest

from graphsilo.errors import DisclosureError
from graphsilo.federation import record as lines
from graphsilo.federation.secure.opened import MOST_OFFERED, OpenedSums

X, Y = bytes(32), b"\x01" * 32
A, B, C, D = (bytes([number]) * 32 for number in range(4))
DATA, CHANGED = "d1", "d2"


@pytest.fixture(params=["memory", "file"])
def path(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "sums" / "north.sums"


def again(record: OpenedSums) -> OpenedSums:
    """After a restart of the site, where the record is in a file."""
    return record if record.path is None else OpenedSums(record.path)


def test_the_same_answer_with_other_silos_is_refused_for_ever(path):
    record = OpenedSums(path)
    record.note(X, DATA, [A, B, C])
    record = again(record)
    record.note(X, DATA, [C, B, A])  # the same sum, as often as one likes
    for silos in ([A, B], [A, B, C, D], [A, B, D]):
        for data in (DATA, CHANGED, ""):
            with pytest.raises(DisclosureError, match="this answer was opened before in a sum with other silos"):
                again(record).check(X, data, silos)
    record.note(X, CHANGED, [A, B, C])


def test_another_answer_from_the_same_data_with_other_silos_is_refused(path):
    """However many are new or gone: sums of other silos, of which this one knows nothing, may make up for them."""
    record = OpenedSums(path)
    record.note(X, DATA, [A, B, C])
    with pytest.raises(DisclosureError, match=r"these data were opened .* \(0 are new, 1 are not there any more\)"):
        again(record).note(Y, DATA, [A, B])
    for silos in ([A, B, C, D], [A, D, bytes([9]) * 32], [D]):
        with pytest.raises(DisclosureError, match="these data were opened before"):
            again(record).check(Y, DATA, silos)
    again(record).note(Y, DATA, [A, B, C])
    again(record).note(bytes([7]) * 32, CHANGED, [A, B])  # the data have changed, and so has the answer


def test_few_answers_are_offered_that_are_never_opened(tmp_path):
    """That there is an answer at all may say something of its rows, as where numbers run over."""
    path = tmp_path / "sums" / "north.sums"
    record = OpenedSums(path)
    answers = [bytes([number]) * 32 for number in range(MOST_OFFERED + 2)]
    for answer in answers[:-2]:
        record.offer(answer)
        again(record).offer(answer)  # with fresh keys, it is the same
    for each in (record, again(record)):
        with pytest.raises(DisclosureError, match=rf"{MOST_OFFERED} answers of this silo were offered .* never opened"):
            each.offer(answers[-1])
    record.offer(answers[0])
    for _ in range(2):  # opened twice, it makes room once
        record.note(answers[0], DATA, [A, B, C])
    again(record).offer(answers[-1])
    with pytest.raises(DisclosureError, match="never opened"):
        record.offer(answers[-2])
    path.write_text("".join(line for line in path.read_text().splitlines(True) if "offered" not in line))
    record.offer(answers[-2])  # its owner has decided
    with pytest.raises(DisclosureError, match="these data were opened before"):
        record.check(answers[-2], DATA, [A, B])


def test_the_same_answer_to_other_questions_is_offered_each_time(tmp_path):
    """That it is the same says something, too: "no" for nothing, many times, made one "yes" tell many bits."""
    record = OpenedSums(tmp_path / "sums" / "north.sums")
    for number in range(MOST_OFFERED):
        record.offer(X, bytes([number]) * 32)
    with pytest.raises(DisclosureError, match="never opened"):
        again(record).offer(X, b"another")
    again(record).note(X, DATA, [A, B, C], bytes(32))
    again(record).offer(X, b"another")
    with pytest.raises(DisclosureError, match="never opened"):
        again(record).offer(X, b"one more")
    for _ in range(2):  # opened before, it frees what is opened now
        again(record).note(X, DATA, [A, B, C], b"another")
    record.offer(X, b"one more")
    again(record).free(X, b"one more")
    record.offer(Y, b"one more")
    with pytest.raises(DisclosureError, match="never opened"):
        record.offer(X, b"one more")


def test_in_memory_nothing_offered_is_noted():
    record = OpenedSums()
    for number in range(2 * MOST_OFFERED):
        record.offer(bytes([number]) * 32)


def test_where_nobody_says_what_the_data_are_answers_count(path):
    record = OpenedSums(path)
    record.note(X, "", [A, B, C])
    record.note(Y, "", [A, B])


def test_two_processes_have_one_record(tmp_path):
    """Two federations of the same data: each worker read the file before the other wrote."""
    one, other = OpenedSums(tmp_path / "a.opened"), OpenedSums(tmp_path / "a.opened")
    one.note(X, DATA, [A, B, C])
    with pytest.raises(DisclosureError, match="these data were opened before"):
        other.note(Y, DATA, [A, B])
    (tmp_path / "a.opened").unlink()  # its owner decides, knowing what that means
    other.note(Y, DATA, [A, B])
    with pytest.raises(DisclosureError, match="these data were opened before"):
        one.check(X, DATA, [A, B, C])


def test_one_that_was_first_between_check_and_note(tmp_path, monkeypatch):
    one, other = OpenedSums(tmp_path / "a.opened"), OpenedSums(tmp_path / "a.opened")
    lock = lines.lock_file

    def late(path):
        monkeypatch.setattr(lines, "lock_file", lock)
        other.note(X, DATA, [A, B, C])
        return lock(path)

    monkeypatch.setattr(lines, "lock_file", late)
    with pytest.raises(DisclosureError, match="these data were opened before"):
        one.note(Y, DATA, [A, B])
    assert len((tmp_path / "a.opened").read_bytes().splitlines()) == 1


def test_it_is_on_the_disk_before_anything_is_opened(tmp_path, monkeypatch):
    order = []
    write, sync = os.write, os.fsync
    monkeypatch.setattr(lines.os, "write", lambda *given: order.append("write") or write(*given))
    monkeypatch.setattr(lines.os, "fsync", lambda *given: order.append("fsync") or sync(*given))
    OpenedSums(tmp_path / "a.sums").note(X, DATA, [A, B, C])
    assert order[:2] == ["write", "fsync"]
    assert (tmp_path / "a.sums").stat().st_mode & 0o777 == 0o600


def test_a_line_that_was_cut_opened_nothing(tmp_path):
    path = tmp_path / "a.sums"
    OpenedSums(path).note(X, DATA, [A, B, C])
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"answer": "0101')
    record = OpenedSums(path)
    record.note(Y, CHANGED, [A, B])
    assert len(path.read_bytes().splitlines()) == 2
    with pytest.raises(DisclosureError, match="other silos"):
        OpenedSums(path).check(Y, DATA, [A, B])


def test_without_a_record_nothing_is_opened(tmp_path, monkeypatch):
    damaged = tmp_path / "a.sums"
    for text in (b"not a line\n", b"[]\n", b'{"answer": "a", "call": "b"}\n', b"[" * 100_000 + b"\n", b"\xff\n"):
        damaged.write_bytes(text)
        with pytest.raises(DisclosureError, match="cannot be read"):
            OpenedSums(damaged)
    record = OpenedSums(tmp_path / "b.sums")
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(lines.os, "write", mock.Mock(side_effect=full))
    with pytest.raises(DisclosureError, match="cannot be written"):
        record.note(X, DATA, [A, B, C])
    (tmp_path / "b.sums").unlink()
    (tmp_path / "b.sums").mkdir()
    with pytest.raises(DisclosureError, match="cannot be read"):
        record.note(X, DATA, [A, B, C])
