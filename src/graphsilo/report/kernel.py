"""The section on the tangent kernel's bound: what a cut costs the nodes of each silo, and what mending gives back.

A record is what ``evaluate.gntk.compare`` returns, and ``graphsilo gntk`` writes as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphsilo.report.formats import MISSING, integer, number
from graphsilo.report.plot import Axis, Dots, Figure, Plot
from graphsilo.report.sections import Table

GRAPHS = {"global": "Whole graph", "cut": "Cut graph", "mended": "Mended graph"}
"""What a silo's nodes are seen on."""
_PLACES = {"global": "the whole graph", "cut": "the cut graphs", "mended": "the mended graphs"}


def list_graphs(record: Mapping[str, Any]) -> list[str]:
    """The keys of the graphs that at least one silo has a bound on."""
    return [name for name in GRAPHS if any(number(row.get(name)) is not None for row in record.get("silos", []))]


def summary(record: Mapping[str, Any]) -> str:
    """What the numbers are, and what they say, in sentences."""
    steps = f"{record.get('blocks')} aggregation{'' if record.get('blocks') == 1 else 's'}"
    layers = record.get("layers")
    text = (
        f"Bound on the generalisation error by the graph neural tangent kernel of {steps} with {layers} ReLU "
        f"layer{'' if layers == 1 else 's'} each, √(yᵀΘ⁻¹y · tr Θ) / n, one class against the rest: smaller is better."
    )
    whole = record.get("global") or {}
    if number(whole.get("bound")) is not None:
        text += f" The whole graph's {integer(whole.get('nodes'))} nodes: {_text(whole['bound'])}."
    mean = record.get("mean") or {}
    if number(mean.get("cut")) is not None and number(mean.get("global")) is not None:
        text += (
            f" Over the silos' own nodes (node-weighted mean): {_text(mean['global'])} on the whole graph, "
            f"{_text(mean['cut'])} on the cut ones"
        )
        text += f", {_text(mean['mended'])} on the mended ones." if number(mean.get("mended")) is not None else "."
    compared = integer(record.get("compared"))
    if record.get("compared"):
        text += f" Mending moves the bound towards the whole graph's in {integer(record.get('nearer'))} of {compared} "
        text += f"silo{'' if record['compared'] == 1 else 's'}."
    alike = {
        name: sum(number((row.get("twins") or {}).get(name)) or 0 for row in record.get("silos", [])) for name in GRAPHS
    }
    if any(alike.values()):
        where = ", ".join(f"{integer(alike[name])} on {_PLACES[name]}" for name in list_graphs(record))
        text += (
            f" Nodes that the kernel cannot tell from a neighbour of another class make the term very large: {where}. "
            f"Compare the silos without any, or take a larger jitter."
        )
    return text


def table(record: Mapping[str, Any]) -> Table | None:
    """A row per silo and their mean; None without silos."""
    silos = record.get("silos") or []
    if not silos:
        return None
    names = list_graphs(record)
    generated = any(number(row.get("generated")) is not None for row in silos)
    alike = any(value for row in silos for value in (row.get("twins") or {}).values())
    counted = ["Nodes", *(["Generated"] if generated else []), *(["Alike"] if alike else [])]
    columns = [("Silo", "wrap"), *((title, "") for title in (*counted, *(GRAPHS[name] for name in names)))]
    rows = []
    for row in silos:
        cells = [integer(row.get("nodes")), *([integer(row.get("generated"))] if generated else [])]
        if alike:
            seen = row.get("twins") or {}
            cells.append(" / ".join(integer(seen.get(name)) for name in names))
        rows.append([f"Client {row.get('client')}", *cells, *(_text(row.get(key)) for key in names)])
    mean = record.get("mean") or {}
    rows.append(["Mean", *[MISSING] * len(counted), *(_text(mean.get(name)) for name in names)])
    return Table("The bound on each silo's own nodes; smaller is better.", columns, rows, is_hidden=False)


def figure(record: Mapping[str, Any]) -> Figure | None:
    """Dots per silo, one for each graph that its nodes are seen on."""
    names = list_graphs(record)
    silos = record.get("silos") or []
    if not names:
        return None
    clients = [str(row.get("client")) for row in silos]
    values = [value for row in silos for name in names if (value := number(row.get(name))) is not None]
    # Where two nodes that see the same have different labels the term is a hundred times larger: that needs decades.
    log = min(values) > 0 and max(values) > 20 * min(values)
    dots = []
    for series, name in enumerate(names):
        known = [(place, value) for place, row in enumerate(silos) if (value := number(row.get(name))) is not None]
        tips = [f"client {clients[place]}, {GRAPHS[name].lower()}: {value:.4g}" for place, value in known]
        dots.append(Dots(GRAPHS[name], [value for _, value in known], [place for place, _ in known], series, tips))
    plot = Plot(Axis("Bound term", log=log), Axis(names=tuple(f"client {who}" for who in clients)), tuple(dots))
    return Figure(
        "kernel-bound",
        "The bound's term over each silo's own nodes, as they see the whole graph, their cut graph and, where it was "
        "mended, their mended graph. Mending should move it from the cut graph's towards the whole graph's.",
        f"Dots of the bound's term for {len(silos)} clients on {len(names)} graphs",
        int(min(100 + 24 * len(silos), 900)),
        {"bound": plot},
    )


def _text(value: Any) -> str:
    known = number(value)
    return MISSING if known is None else f"{known:.4g}"
