"""What the gate finds broken, and what not."""

from __future__ import annotations

from typing import Any

import yaml
from cost import gate
from cost.gate import Measured, accept, broken_ratios, complaints, notes

BOUNDS: dict[str, Any] = {
    "ratios": {"round over loop": {"measured": 1.0, "spread": 0.05, "at_most": 1.2}},
    "bytes": {"fedavg": [0, 0, 100, 200]},
}


def found(values: list[float], count: int = 100) -> Measured:
    return Measured({"round over loop": values}, {"fedavg": [0, 0, count, 200]})


def test_a_median_within_its_bound_passes_whatever_single_turns_say() -> None:
    assert complaints(BOUNDS, found([1.0, 1.1, 9.0]), None) == []


def test_a_ratio_is_broken_only_if_the_second_measurement_agrees() -> None:
    high, fine = found([1.3, 1.4, 1.3]), found([1.0, 1.1, 1.0])
    assert broken_ratios(BOUNDS, high) == ["round over loop"]
    assert complaints(BOUNDS, high, fine) == []
    [text] = complaints(BOUNDS, high, found([1.5, 1.25, 1.35]))
    assert "1.325 over 6 turns" in text  # the median of both measurements
    assert "at most 1.200 is allowed" in text
    assert "\n" not in text


def test_bytes_must_be_exactly_what_they_were() -> None:
    [more] = complaints(BOUNDS, found([1.0], 101), None)
    [less] = complaints(BOUNDS, found([1.0], 99), None)
    assert "101 instead of 100 up in the last round" in more
    assert "99 instead of 100" in less


def test_a_method_that_has_gone_is_named() -> None:
    [text] = complaints(BOUNDS, Measured({"round over loop": [1.0]}, {}), None)
    assert "fedavg has bounds in bounds.yaml but is not registered" in text


def test_new_numbers_and_cheaper_ones_are_notes() -> None:
    new = Measured({"round over loop": [0.7], "other": [1.0]}, {"fedavg": [0, 0, 100, 200], "new": [0, 0, 0, 0]})
    assert complaints(BOUNDS, new, None) == []
    assert notes(BOUNDS, new) == [
        "other has no bound yet.",
        "new's bytes have no bound yet.",
        "round over loop became cheaper, 1.000 before: --accept keeps it so.",
    ]


def test_bounds_follow_the_spread() -> None:
    # Quartiles of 1..5 are 2 and 4: spread 1, three of which are more than a quarter of 3.
    assert accept(found([1, 2, 3, 4, 5]))["ratios"]["round over loop"] == {
        "measured": 3.0, "spread": 1.0, "at_most": 6.0,
    }  # fmt: skip
    assert accept(found([1.0, 1.0, 1.0, 1.0]))["ratios"]["round over loop"]["at_most"] == 1.25


def test_the_bounds_that_are_kept_can_be_read() -> None:
    kept = yaml.safe_load(gate.BOUNDS.read_text(encoding="utf-8"))
    assert kept["bytes"]["fedavg"][:2] == [0, 0]
    assert all(bound["measured"] < bound["at_most"] for bound in kept["ratios"].values())
    for name in kept["ratios"]:
        assert gate._parts_of([name])[0] in gate.PARTS
