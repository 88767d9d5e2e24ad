"""The settings of FairFGL and their bounds."""

from __future__ import annotations

import pytest

from graphsilo.errors import ConfigError
from graphsilo.federation import registry


@pytest.mark.parametrize("settings", [{"top_k": 0.0}, {"alpha_start": 1.0}, {"eta": 0.0}, {"alignement": 1.0}], ids=str)
def test_settings_out_of_range(settings):
    with pytest.raises((ConfigError, ValueError)):
        registry.load("fairfgl").config(**settings)
