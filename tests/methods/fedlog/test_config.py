"""The settings of FedLoG and their bounds."""

from __future__ import annotations

import pytest

from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.methods.fedlog import FedLoGConfig
from kit.fedlog import SHORT, silo_of


def test_release_sets_defaults_that_a_person_may_change():
    found = FedLoGConfig(compat="release", pretrain_epochs=0)
    assert (found.interaction, found.weight_by, found.matching, found.permute) == ("inert", "uniform", "last", True)
    assert (found.reset_optimizer, found.class_generators, found.pretrain_epochs) == (True, False, 0)
    assert FedLoGConfig(**found.model_dump()) == found
    plain = FedLoGConfig()
    assert (plain.interaction, plain.weight_by, plain.matching, plain.class_generators) == (
        "full", "nodes", "mean", True,
    )  # fmt: skip


def test_other_backbones_and_too_many_networks_are_refused(kit):
    with pytest.raises(UnsupportedError, match="sage"):
        kit.build("fedlog", [silo_of(0, [0, 1])], model="gat", **SHORT)[1].client(0)
    with pytest.raises(UnsupportedError, match=r"Leave model\.unit_rows at false"):
        kit.build("fedlog", [silo_of(0, [0, 1])], model="sage", model_options={"unit_rows": True}, **SHORT)[1].client(0)
    with pytest.raises(ConfigError, match="nets_per_epoch"):
        FedLoGConfig(networks=2, nets_per_epoch=3)
    with pytest.raises(ConfigError, match=r"inert is the layer norm .* and nothing else"):
        FedLoGConfig(interaction="inert", layer_norm=False)
