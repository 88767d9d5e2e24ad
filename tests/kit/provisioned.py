"""Federations with kits."""

from graphsilo.runtime.remote.federation_file import FederationSpec


def spec(name: str = "demo") -> FederationSpec:
    silos = ["north", {"name": "south-a", "site": "south"}, {"name": "south-b", "site": "south"}]
    return FederationSpec.of({"name": name, "coordinator": {"host": ["localhost", "127.0.0.1"]}, "silos": silos})
