"""The gate: has anything become dearer? Compares ratios measured in turn with ``bounds.yaml``, never times.

A bound is broken where the median lies above it in two measurements, the second of which takes place only then: on a
busy machine a single one may be unlucky. Bytes must be exactly what they were.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from children import ChildFailed, execute

from cost.fit import middle
from cost.store import machine
from graphsilo import documents

HERE = Path(__file__).resolve().parent
BOUNDS = HERE / "bounds.yaml"
MEMORY = "memory that FedAvg adds over what the plain loop adds"
DIRECTIONS = ("up in set-up", "down in set-up", "up in the last round", "down in the last round")
LEAST = 0.25
"""Share above the measured ratio that is always allowed: processors differ in what they are good at."""
SPREADS = 3.0
"""How many half interquartile ranges above it are allowed, where that is more."""

HEAD = """\
# What benchmarks/suite.py --gate allows; written by --gate --accept, which takes what is measured for right.
# ratios: median, half the interquartile range over turns, and the bound: the median and the larger of 25 % and three
# such spreads. bytes: of all clients, up and down, in set-up and in the last round; they are met exactly.
# Measured on {cpu}; ratios on another kind of processor differ by a quarter.
"""


@dataclass
class Measured:
    """What a measurement found.

    Attributes:
        ratios: Name to one value per turn.
        bytes: Method to its bytes, in the order of ``DIRECTIONS``.
    """

    ratios: dict[str, list[float]] = field(default_factory=dict)
    bytes: dict[str, list[int]] = field(default_factory=dict)


PARTS = ("rounds", "methods", "memory")
_OVER = " over FedAvg, "


def measure(parts: Sequence[str] = PARTS, methods: Sequence[str] = ()) -> Measured:
    """Measure some parts, each in processes of its own; of methods these, or all.

    Raises:
        ChildFailed: One did not come to its end.
    """
    found = Measured()
    for part in parts:
        if part == "memory":
            turns = [(_child("memory-ours"), _child("memory-plain")) for _ in range(2)]
            found.ratios[MEMORY] = [ours["bytes_added"] / plain["bytes_added"] for ours, plain in turns]
            continue
        tree = _child(part, *(methods if part == "methods" else ()))
        found.ratios.update(tree["ratios"])
        found.bytes.update(tree["bytes"])
    return found


def _child(part: str, *methods: str) -> dict[str, Any]:
    return execute([sys.executable, "-P", str(HERE / "paired.py"), part, *methods], limit=600).json()


def accept(measured: Measured) -> dict[str, Any]:
    """Bounds around what was measured."""
    ratios = {}
    for name, values in measured.ratios.items():
        found = middle(values)
        allowed = found.value + max(LEAST * found.value, SPREADS * found.spread)
        ratios[name] = {
            "measured": round(found.value, 3),
            "spread": round(found.spread, 3),
            "at_most": round(allowed, 3),
        }
    return {"ratios": ratios, "bytes": dict(measured.bytes)}


def broken_ratios(bounds: Mapping[str, Any], measured: Measured) -> list[str]:
    """Names of ratios whose median is above their bound."""
    return [
        name
        for name, values in measured.ratios.items()
        if name in bounds["ratios"] and statistics.median(values) > bounds["ratios"][name]["at_most"]
    ]


def complaints(bounds: Mapping[str, Any], first: Measured, second: Measured | None) -> list[str]:
    """One paragraph per broken bound.

    Args:
        bounds: As in ``bounds.yaml``.
        first: What was measured.
        second: What was measured again because a ratio looked broken; None where none did.
    """
    found = []
    again = Measured() if second is None else second
    for name in broken_ratios(bounds, first):
        if name not in broken_ratios(bounds, again):
            continue
        bound = bounds["ratios"][name]
        both = first.ratios[name] + again.ratios[name]
        found.append(
            f"{name}: {statistics.median(both):.3f} over {len(both)} turns, in two measurements; at most "
            f"{bound['at_most']:.3f} is allowed, and it was {bound['measured']:.3f} ± {bound['spread']:.3f} when the "
            f"bound was set. Find what became dearer (benchmarks/suite.py --only methods/*/Cora shows the parts), or "
            f"say in the changelog why it must be and run benchmarks/suite.py --gate --accept."
        )
    for method, wanted in bounds["bytes"].items():
        came = first.bytes.get(method)
        if came is None:
            found.append(
                f"{method} has bounds in {BOUNDS.name} but is not registered any more. Run benchmarks/suite.py --gate "
                f"--accept if that is meant."
            )
            continue
        wrong = [
            f"{new:,} instead of {old:,} {where}"
            for where, new, old in zip(DIRECTIONS, came, wanted, strict=True)
            if new != old
        ]
        if wrong:
            found.append(
                f"{method} sends other bytes than before: {'; '.join(wrong)}. If a message was meant to change, say so "
                f"in the changelog and run benchmarks/suite.py --gate --accept."
            )
    return found


def notes(bounds: Mapping[str, Any], measured: Measured) -> list[str]:
    """What is no complaint but should be known: numbers without a bound, and those that became much cheaper."""
    found = [f"{name} has no bound yet." for name in measured.ratios if name not in bounds["ratios"]]
    found += [f"{method}'s bytes have no bound yet." for method in measured.bytes if method not in bounds["bytes"]]
    for name, values in measured.ratios.items():
        bound = bounds["ratios"].get(name)
        if bound and statistics.median(values) < 2 * bound["measured"] - bound["at_most"]:
            found.append(f"{name} became cheaper, {bound['measured']:.3f} before: --accept keeps it so.")
    return found


def main(*, accept_all: bool = False) -> int:
    """Measure and compare; returns the exit code.

    Args:
        accept_all: Write new bounds around what is measured instead.
    """
    start = time.perf_counter()
    try:
        first = measure()
        if accept_all:
            again = measure(("rounds", "methods"))
            for name, values in again.ratios.items():
                first.ratios[name] += values
            text = yaml.safe_dump(
                accept(first), sort_keys=False, allow_unicode=True, width=120, default_flow_style=None
            )
            BOUNDS.write_text(HEAD.format(cpu=machine()["cpu"]) + text, encoding="utf-8")
            print(f"{BOUNDS} was written; look at what changed in it before you commit it.")
            return 0
        bounds = documents.read(BOUNDS, "the bounds")
        suspects = broken_ratios(bounds, first)
        # Of the methods those alone that look dearer.
        second = measure(_parts_of(suspects), [name.split(_OVER)[0] for name in suspects]) if suspects else None
    except ChildFailed as error:
        print(f"the gate could not measure: {error}", file=sys.stderr)
        return 1
    for name, values in first.ratios.items():
        bound = bounds["ratios"].get(name, {}).get("at_most")
        print(f"{statistics.median(values):8.3f}  at most {bound or '–':>7}  {name}")
    for text in notes(bounds, first):
        print(f"note: {text}")
    found = complaints(bounds, first, second)
    for text in found:
        print(f"\nBROKEN: {text}", file=sys.stderr)
    count = len(first.ratios) + len(first.bytes)
    print(f"\n{count} numbers, {len(found)} broken, {time.perf_counter() - start:.0f} s")
    return 1 if found else 0


def _parts_of(names: Sequence[str]) -> list[str]:
    """Which parts measure these ratios."""
    parts = {MEMORY: "memory"}
    return sorted({parts.get(name, "methods" if _OVER in name else "rounds") for name in names})
