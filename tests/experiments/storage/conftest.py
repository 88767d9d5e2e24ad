"""Disks that are full."""

from __future__ import annotations

import errno
import os

import pytest


@pytest.fixture
def full(monkeypatch):
    """Every synchronisation says that the disk is full."""

    def refuse(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
