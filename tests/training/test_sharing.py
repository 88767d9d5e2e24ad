"""Sharing by content within a process."""

from __future__ import annotations

import gc

import torch

from graphsilo.training.sharing import shared_copy


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
