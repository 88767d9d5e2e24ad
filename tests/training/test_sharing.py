"""Sharing by content within a process."""

from __future__ import annotations

import gc

import torch

from graphsilo.training import sharing
from graphsilo.training.sharing import find_by_digest, register_digest, shared_copy


def test_equal_tensors_are_kept_once_and_away_from_their_message():
    message = torch.arange(8.0)
    first = shared_copy({"a": message[:4], "b": message[4:]})
    again = shared_copy({"a": torch.arange(4.0), "b": torch.arange(4.0, 8.0)})
    assert again is first
    assert first["a"].untyped_storage().nbytes() == 16
    assert shared_copy({"b": message[:4], "a": message[4:]}) is not first
    assert shared_copy({"a": message[:4].view(2, 2), "b": message[4:]}) is not first
    del first, again
    gc.collect()
    assert torch.equal(shared_copy({"a": message[:4], "b": message[4:]})["b"], message[4:])


def test_one_broadcast_is_hashed_once_and_what_is_shared_is_given_back(monkeypatch):
    calls = []
    original = sharing.share
    monkeypatch.setattr(sharing, "share", lambda *given: calls.append(given) or original(*given))
    received = {"a": torch.arange(4.0), "b": torch.ones(2)}
    first = shared_copy(received)
    assert shared_copy(dict(received)) is first
    assert shared_copy(first) is first
    assert len(calls) == 1
    received["b"][0] = 3.0  # written to: it is another content now
    other = shared_copy(received)
    assert other is not first
    assert torch.equal(other["b"], torch.tensor([3.0, 1.0]))
    assert torch.equal(first["b"], torch.ones(2))
    assert shared_copy({"a": received["a"]}) is not other
    assert len(calls) == 3


def test_a_digest_finds_it_while_somebody_holds_it():
    held = register_digest(shared_copy({"a": torch.arange(3.0)}), "some digest")
    assert find_by_digest("some digest") is held
    elsewhere = shared_copy(held, "meta")
    assert elsewhere is not held
    assert find_by_digest("some digest") is elsewhere  # where it is used
    del held, elsewhere
    gc.collect()
    assert find_by_digest("some digest") is None


def test_what_is_made_of_shared_tensors_is_made_once_for_the_same_others():
    first = [shared_copy({"a": torch.full((2,), 1.0)})]
    two, three = (shared_copy({"a": torch.full((2,), value)}) for value in (2.0, 3.0))
    calls = []

    def sum_of(*models):
        calls.append(models)
        return torch.stack([model["a"] for model in models]).sum(0)

    for _ in range(2):  # two clients with the same history
        assert three.keep("sum", (*first, two), lambda: sum_of(*first, two, three)).tolist() == [6.0, 6.0]
    assert len(calls) == 1
    assert three.keep("sum", (two,), lambda: sum_of(two, three)).tolist() == [5.0, 5.0]  # one that came later
    assert three.keep("row", (), lambda: sum_of(three)).tolist() == [3.0, 3.0]
    assert len(calls) == 3
    three.keep("sum", (*first, two), lambda: sum_of(*first, two, three))
    calls.clear()
    first.clear()
    gc.collect()
    assert three._kept["sum"][0][0]() is None  # others live as long as their clients hold them
