"""A plugin for pytest: the package has the backbone of ``examples/own_model.py`` among its own."""

from __future__ import annotations

import own_model

from graphsilo.models.registry import register

register(own_model.BACKBONE)
