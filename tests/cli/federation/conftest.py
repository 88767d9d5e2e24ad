"""The status of a made-up federation."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from kit.status import NOW, RUNNING, site


@pytest.fixture
def tree() -> dict[str, Any]:
    rows = [
        {"seed": 1, "round": number, "validation": {"accuracy": number / 50}, "test": {}, "seconds": 10.0 * number}
        for number in range(1, 13)
    ]
    progress = {"seed": 1, "index": 2, "seeds": 3, "round": 12, "rounds": 40, "best": [0.5, 10], "seconds": 120.0}
    return {
        "federation": "hospitals", "engine": "nvflare", "pid": 42, "since": NOW - 7923.5, "at": NOW, "serving": True,
        "job": {**asdict(RUNNING), **progress},
        "sites": [
            site("north", "up"),
            site("west", "working", "heart", "lung", note="a worker died"),
            site("south", "lost", note="no heartbeat for 60 seconds"),
        ],
        "rounds": rows,
        "events": [{"at": NOW - number, "text": f"event {number}"} for number in range(8, 0, -1)],
    }  # fmt: skip
