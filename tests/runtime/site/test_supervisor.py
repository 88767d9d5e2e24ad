"""What a person at a site reads in the terminal of ``join``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphsilo.runtime.protocol import Packet
from graphsilo.runtime.site.supervisor import SiteSupervisor


def test_what_a_silo_refuses_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    site = SiteSupervisor("north", [], tmp_path, say=said.append)
    call = Packet({"id": "1", "do": "call", "run": "a", "handler": "train"}, [])
    begin = Packet({"id": "0", "do": "open", "run": "a", "method": "fedavg", "seed": 0, "models": [0, 1]}, [])
    refused: dict[str, Any] = {
        "client": 2,
        "failure": ["DisclosureError", "too many bytes (policy.max_run_bytes).", None],
    }
    wrong: dict[str, Any] = {"client": 2, "failure": ["MessageError", "no such step.", None]}
    for _ in range(3):
        site._print(call, {"answers": [{"client": 1, "payload": 0}, refused, wrong]})
    assert said == [
        "client 2 refuses 'train' of run a: too many bytes (policy.max_run_bytes).",
        "client 2 failed in 'train' of run a: no such step.",
    ]
    site._print(begin, {"refused": []})
    site._print(call, {"answers": [refused]})
    assert said[2:] == ["run a begins: fedavg, seed 0", said[0]]
    site._print(Packet({**begin.header, "mark": "seed0-round1"}), {"refused": []})
    assert said[-1] == "run a goes on: fedavg, seed 0"
