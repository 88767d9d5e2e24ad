"""The settings of FedLoG and their bounds."""

from __future__ import annotations

import pytest

from graphsilo.errors import ConfigError
from graphsilo.methods.fedlog import FedLoGConfig


def test_release_sets_defaults_that_a_person_may_change():
    found = FedLoGConfig(compat="release", pretrain_epochs=0)
    assert (found.interaction, found.weight_by, found.matching, found.permute) == ("inert", "uniform", "last", True)
    assert (found.reset_optimizer, found.class_generators, found.pretrain_epochs) == (True, False, 0)
    assert FedLoGConfig(**found.model_dump()) == found
    plain = FedLoGConfig()
    assert (plain.interaction, plain.weight_by, plain.matching, plain.class_generators) == (
        "full", "nodes", "mean", True,
    )  # fmt: skip


def test_too_many_networks_and_nothing_to_classify_by_are_refused():
    with pytest.raises(ConfigError, match="nets_per_epoch"):
        FedLoGConfig(networks=2, nets_per_epoch=3)
    with pytest.raises(ConfigError, match=r"inert is the layer norm .* and nothing else"):
        FedLoGConfig(interaction="inert", layer_norm=False)
