"""Settings of models: strict, and told in words."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from graphsilo.errors import ConfigError
from graphsilo.models.registry import resolve


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("gcn", {"hiden": 3}, "unknown setting 'model.hiden' for gcn; did you mean 'model.hidden'?"),
        ("gcn", {"hidden": 0}, "model.hidden must be at least 1 and at most 65536; got 0."),
        ("gcn", {"hidden": "64"}, "hidden must be"),
        ("gcn", {"hidden": []}, "one or more whole numbers at least 1 and at most 65536; got []"),
        ("gcn", {"hidden": [64, 0]}, "model.hidden.1 must be at least 1 and at most 65536; got 0."),
        ("gcn", {"hidden": True}, "hidden must be"),
        ("gcn", {"layers": 2.0}, "layers must be a whole number"),
        ("gcn", {"dropout": 1.0}, "model.dropout must be at least 0 and below 1; got 1.0."),
        ("gcn", {"dropout": float("nan")}, "dropout must be"),
        ("gcn", {"pooling": "summ"}, "model.pooling must be one of sum, mean; got 'summ'. Did you mean 'sum'?"),
        ("gcn", {"hidden": [64, 64], "layers": 5}, "makes 3 layers, but model.layers is 5"),
        ("gin", {"train_eps": 1}, "train_eps must be true or false; got 1"),
        ("gat", {"hidden": 64, "heads": 5}, "model.hidden must be a multiple of model.heads (5)"),
        ("appnp", {"alpha": 1.5}, "model.alpha must be at least 0 and at most 1; got 1.5."),
        ("gcnii", {"hidden": [64]}, "hidden must be"),
        ("gcn", {"hidden": 10**9}, "model.hidden must be at least 1 and at most 65536; got 1000000000."),
        ("sign", {"hops": 10**9}, "model.hops must be at least 0 and at most 1000; got 1000000000."),
        ("gamlp", {"layers": 1}, "model.layers must be at least 2 and at most 1000; got 1."),
    ],
)
def test_refusals(name: str, overrides: dict, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(name, overrides)
    assert message in str(caught.value)


def test_accepted_forms() -> None:
    assert resolve("gcn", {"dropout": 0}).dropout == 0.0
    listed = resolve("gcn", {"hidden": [32, 16]})
    assert (listed.hidden, listed.layers) == ((32, 16), 3)
    assert listed.arguments("node")["hidden"] == [32, 16]
    assert resolve("gcn", {"layers": 3}).arguments("node")["hidden"] == [64, 64]
    assert resolve("gcn", {"layers": 3}).arguments("graph")["hidden"] == [64, 64, 64]
    assert resolve("sgc").arguments("node")["hidden"] == []
    with pytest.raises(ValidationError, match="frozen"):
        listed.layers = 5  # type: ignore[misc]
