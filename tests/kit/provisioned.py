"""Federations with kits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from graphsilo.runtime import certificates
from graphsilo.runtime.remote.federation_file import FederationSpec


def spec(name: str = "demo") -> FederationSpec:
    silos = ["north", {"name": "south-a", "site": "south"}, {"name": "south-b", "site": "south"}]
    return FederationSpec.of({"name": name, "coordinator": {"host": ["localhost", "127.0.0.1"]}, "silos": silos})


@pytest.fixture(scope="module")
def keys() -> Iterator[Any]:
    """A few keys, dealt over and over; making them is most of the work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificates, "_BITS", 2048)
        return itertools.cycle([certificates.new_key() for _ in range(9)])
