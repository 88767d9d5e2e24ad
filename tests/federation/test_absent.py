"""What is said of known methods that are not here."""

from __future__ import annotations

import pytest

from graphsilo.errors import ConfigError
from graphsilo.federation import registry
from graphsilo.federation.absent import missing


@pytest.mark.parametrize("name", ["Fed-OV", "FedOV", "fed_ov"])
def test_a_known_method_that_is_not_here(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^FedOV is not in graphsilo; nearest in kind: DENSE \(dense\)\.$"):
        registry.load(name)
    assert missing("FedAvg") == missing("nobody") == ""


def test_what_is_nearest_to_a_method_is_told_of_those_alone_that_are_not_here() -> None:
    near = [text for each in registry.listings() for text in each.near]
    assert len(set(map(registry.plain_name, near))) == len(near) > 20
    assert not [text for text in near if registry.resolve_name(text) in registry.names()]
