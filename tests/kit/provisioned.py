"""Federations with kits."""

from graphsilo.runtime.remote.federation_file import FederationSpec, parse_federation


def spec(name: str = "demo") -> FederationSpec:
    silos = ["north", {"name": "south-a", "site": "south"}, {"name": "south-b", "site": "south"}]
    return parse_federation({"name": name, "coordinator": {"host": ["localhost", "127.0.0.1"]}, "silos": silos})
