"""What FedStar's encodings need; its formulas are tested beside GCFL's."""

from __future__ import annotations

import pytest

from graphsilo.errors import ConfigError
from graphsilo.models import build


def test_nothing_to_encode_is_refused():
    with pytest.raises(ConfigError, match=r"walks and model\.degrees are both 0"):
        build("gin_fedstar", num_features=6, num_classes=2, seed=0, walks=0, degrees=0)
