"""The settings of FedRidge and their bounds."""

from __future__ import annotations

import pytest

from graphsilo.errors import ConfigError
from graphsilo.methods.fedridge.config import FedRidgeConfig
from kit.fedridge import METHOD


def test_settings_out_of_bounds_are_refused():
    for settings, text in (
        ({"balance": (0.5, 1.5)}, r"method\.balance\.1 must be at least 0 and at most 1; got 1\.5"),
        ({"ridge": (0.0,)}, r"method\.ridge\.0 must be above 0"),
        ({"prior": (0.1, -0.1)}, r"method\.prior\.1 must be at least 0; got -0\.1"),
        ({"own_ridge": (-1.0,)}, r"method\.own_ridge\.0 must be above 0"),
    ):
        with pytest.raises(ConfigError, match=text):
            METHOD.config(**settings)


@pytest.mark.parametrize(("wire", "width", "expected"), [
    ("auto", 256, True), ("auto", 257, False), ("float64", 5000, True), ("float32", 3, False),
])  # fmt: skip
def test_which_sums_cross_in_float64(wire, width, expected):
    assert FedRidgeConfig(wire=wire).precise([2, width]) is expected
