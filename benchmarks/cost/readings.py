"""From what the turns left to the numbers that are shown and compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cost.fit import Growth, Middle, growth, middle

Tree = Mapping[str, Any]

QUANTITIES = {
    "preparation": "Preparing the data, CPU seconds",
    "set_up": "Set-up, CPU seconds",
    "round": "Round without evaluation, CPU seconds",
    "evaluation": "Evaluation, CPU seconds",
    "memory": "Memory of training above that of the imports, MB",
    "upload": "Upload per round, MB",
}
"""What a growth curve is drawn of."""


@dataclass(frozen=True)
class MethodRow:
    """One method on one data set. Ratios are multiples of a FedAvg round, evaluation included.

    Attributes:
        ratios: set_up, round, evaluation: in units; memory: over the unit's; empty where it did not come to its end.
        codec: Share of codec and ledger in a round's CPU seconds.
        cpu, wall: Seconds of set_up, round and evaluation.
        memory: Bytes above those of the imports.
        bytes: setup_up, setup_down, up, down.
        score: Test accuracy after these few rounds.
        trouble: Why there are no numbers.
    """

    method: str
    data: str
    ratios: Mapping[str, Middle]
    codec: Middle | None
    cpu: Mapping[str, Middle]
    wall: Mapping[str, Middle]
    memory: Middle | None
    bytes: Mapping[str, float]
    score: float | None
    model: str
    trouble: str


def part(probe: Tree, name: str, key: str = "cpu") -> float:
    """One number of one part; 0 where the run had no such part."""
    return float(probe["parts"].get(name, {}).get(key, 0.0))


def whole_round(probe: Tree, key: str = "cpu") -> float:
    """A round with its evaluation."""
    return part(probe, "round", key) + part(probe, "evaluation", key)


def _setup_wall(probe: Tree) -> float:
    return max(part(probe, "setup", "wall"), 1e-9)


def training_memory(probe: Tree) -> float:
    """Most bytes of set-up, rounds and evaluation, above those of the imports."""
    top = max(part(probe, name, "peak") for name in ("setup", "round", "evaluation"))
    return top - float(probe["base"])


def records(tree: Tree, kind: str) -> Iterator[tuple[str, Tree]]:
    """Name and result of the cases of one kind."""
    for name, record in tree["cases"].items():
        if record["kind"] == kind:
            yield name, record


def methods(tree: Tree) -> list[MethodRow]:
    """The rows of every method, by data set as they were measured."""
    return [_method_row(record) for _, record in records(tree, "methods")]


def _method_row(record: Tree) -> MethodRow:
    method, data = record["facts"]["method"], record["facts"]["data"]
    pairs = [(turn["case"], turn.get("unit", turn["case"])) for turn in record["turns"]]
    if record["status"] != "done" or not pairs:
        return MethodRow(method, data, {}, None, {}, {}, None, {}, None, "", record["reason"])
    parts = {"set_up": "setup", "round": "round", "evaluation": "evaluation"}
    ratios = {
        shown: middle([part(case, name) / whole_round(unit) for case, unit in pairs]) for shown, name in parts.items()
    }
    ratios["memory"] = middle([training_memory(case) / max(1.0, training_memory(unit)) for case, unit in pairs])
    case = pairs[-1][0]
    return MethodRow(
        method,
        data,
        ratios,
        middle([whole_round(one, "codec") / whole_round(one) for one, _ in pairs]),
        {shown: middle([part(one, name) for one, _ in pairs]) for shown, name in parts.items()},
        {shown: middle([part(one, name, "wall") for one, _ in pairs]) for shown, name in parts.items()},
        middle([training_memory(one) for one, _ in pairs]),
        {
            "setup_up": part(case, "setup", "up"),
            "setup_down": part(case, "setup", "down"),
            "up": part(case, "round", "up"),
            "down": part(case, "round", "down"),
        },
        case["score"],
        case["model"],
        "",
    )


@dataclass(frozen=True)
class Curve:
    """What one method costs along one axis.

    Attributes:
        axis, title, method: Which.
        sizes: What grew, ascending.
        costs: Quantity to one cost per size.
        fits: Quantity to its exponent.
        trouble: Size to why it has no numbers.
    """

    axis: str
    title: str
    method: str
    sizes: list[float]
    costs: Mapping[str, list[float]]
    fits: Mapping[str, Growth]
    trouble: Mapping[float, str]


def curves(tree: Tree) -> list[Curve]:
    """All growth curves."""
    groups: dict[tuple[str, str], list[Tree]] = defaultdict(list)
    for _, record in records(tree, "growth"):
        groups[record["facts"]["axis"], record["facts"]["method"]].append(record)
    found = []
    for (axis, method), rows in groups.items():
        rows = sorted(rows, key=lambda record: record["facts"]["value"])
        good = [record for record in rows if record["status"] == "done"]
        costs: dict[str, list[float]] = {name: [] for name in QUANTITIES}
        for record in good:
            probes = [turn["case"] for turn in record["turns"]]
            for name, read in _READERS.items():
                costs[name].append(middle([read(probe) for probe in probes]).value)
        sizes = [float(record["facts"]["value"]) for record in good]
        # Below a millisecond, or a kilobyte, there is nothing that could grow.
        kept = {name: values for name, values in costs.items() if values and max(values) > 1e-3}
        fits = {name: fit for name, values in kept.items() if (fit := growth(sizes, values)) is not None}
        trouble = {float(record["facts"]["value"]): record["reason"] for record in rows if record["status"] != "done"}
        found.append(Curve(axis, rows[0]["facts"]["title"], method, sizes, kept, fits, trouble))
    return found


_READERS: dict[str, Callable[[Tree], float]] = {
    "preparation": lambda probe: part(probe, "prepare"),
    "set_up": lambda probe: part(probe, "setup"),
    "round": lambda probe: part(probe, "round"),
    "evaluation": lambda probe: part(probe, "evaluation"),
    "memory": lambda probe: training_memory(probe) / 1e6,
    "upload": lambda probe: part(probe, "round", "up") / 1e6,
}


@dataclass(frozen=True)
class PairRow:
    """Something beside its unit.

    Attributes:
        title, unit: What was measured, and beside what.
        ratio: CPU seconds over the unit's (workers: wall seconds of one process over those of several).
        facts: Further cells by column.
    """

    title: str
    unit: str
    ratio: Middle
    facts: Mapping[str, Any]


def yardstick(tree: Tree) -> list[PairRow]:
    """FedAvg beside the yardstick, the same schedule on the same cut."""
    rows = []
    for _, record in records(tree, "yardstick"):
        turns = record["turns"]
        if record["status"] == "done":
            rows.append(
                PairRow(
                    record["facts"]["data"],
                    "yardstick",
                    middle([turn["case"]["cpu"] / turn["unit"]["cpu"] for turn in turns]),
                    {
                        "ours": middle([turn["case"]["cpu"] for turn in turns]).value,
                        "theirs": middle([turn["unit"]["cpu"] for turn in turns]).value,
                        "our_score": middle([turn["case"]["score"] for turn in turns]).value,
                        "their_score": middle([turn["unit"]["score"] or 0.0 for turn in turns]).value,
                    },
                )
            )
    return rows


def start_up(tree: Tree) -> list[PairRow]:
    """Commands beside what any Python program, or any with torch, takes."""
    return [
        PairRow(
            record["facts"]["title"],
            record["facts"]["unit"],
            middle([turn["case"]["cpu"] / turn["unit"]["cpu"] for turn in record["turns"]]),
            {key: middle([turn["case"][key] for turn in record["turns"]]).value for key in ("cpu", "wall")},
        )
        for _, record in records(tree, "start")
        if record["status"] == "done"
    ]


def workers(tree: Tree) -> list[PairRow]:
    """Several processes beside one: how many times faster by the clock."""
    rows = []
    for _, record in records(tree, "workers"):
        if record["status"] != "done":
            continue
        turns = record["turns"]
        one = [training_memory(turn["unit"]) + turn["unit"]["base"] for turn in turns]
        rows.append(
            PairRow(
                f"{record['facts']['method']} on {record['facts']['data']}, {record['facts']['workers']} workers",
                "one process",
                middle([whole_round(turn["unit"], "wall") / whole_round(turn["case"], "wall") for turn in turns]),
                {
                    "setup": middle([_setup_wall(turn["unit"]) / _setup_wall(turn["case"]) for turn in turns]).value,
                    "setup_rounds": middle(
                        [_setup_wall(turn["unit"]) / whole_round(turn["unit"], "wall") for turn in turns]
                    ).value,
                    "cpu": middle([whole_round(turn["case"]) / whole_round(turn["unit"]) for turn in turns]).value,
                    "memory": middle([turn["case"]["pss"] / own for turn, own in zip(turns, one, strict=True)]).value,
                    "same": all(turn["case"]["score"] == turn["unit"]["score"] for turn in turns),
                },
            )
        )
    return rows


def compared(tree: Tree) -> dict[str, Middle]:
    """Everything that is compared with an earlier state, all of it ratios or bytes, by a name people understand."""
    found: dict[str, Middle] = {}
    for row in yardstick(tree):
        found[f"FedAvg on {row.title}, over the yardstick"] = row.ratio
    for one in methods(tree):
        for name, value in one.ratios.items():
            if not (name == "memory" and value.value == 1.0):
                found[f"{one.method} on {one.data}, {name.replace('_', '-')}"] = value
        for name, count in one.bytes.items():
            found[f"{one.method} on {one.data}, {name.replace('_', ' ')} bytes"] = Middle(count, count, count, 1)
    for row in start_up(tree):
        found[f"{row.title}, over {row.unit}"] = row.ratio
    for row in workers(tree):
        found[f"{row.title}, speed-up"] = row.ratio
    for curve in curves(tree):
        for name, fit in curve.fits.items():
            if fit.error is not None:
                found[f"{curve.method} along {curve.axis}, exponent of {name.replace('_', '-')}"] = Middle(
                    fit.exponent, fit.exponent - fit.error, fit.exponent + fit.error, len(curve.sizes)
                )
    return found


@dataclass(frozen=True)
class Change:
    """One number then and now.

    Attributes:
        name: What.
        before, after: The numbers.
        factor: After over before; None where that says nothing, as before was next to 0.
        clear: Whether bytes differ at all; of other numbers, whether the quartiles of several turns do not touch and
            the medians are more than a twentieth apart.
    """

    name: str
    before: Middle
    after: Middle
    factor: float | None
    clear: bool


def changes(before: Tree, after: Tree) -> list[Change]:
    """What both states have, but for what is next to 0 in both; those that clearly differ first."""
    old, new = compared(before), compared(after)
    found = []
    for name in new:
        if name not in old or max(abs(old[name].value), abs(new[name].value)) < _NOTHING:
            continue
        one, two = old[name], new[name]
        factor = two.value / one.value if one.value > _NOTHING else None
        apart = two.low > one.high or two.high < one.low
        if not name.endswith(" bytes"):
            apart = apart and min(one.turns, two.turns) > 1 and abs(two.value - one.value) > abs(one.value) / 20
        found.append(Change(name, one, two, factor, apart))
    return sorted(found, key=lambda change: (not change.clear, -abs((change.factor or 1.0) - 1.0)))


_NOTHING = 0.01
