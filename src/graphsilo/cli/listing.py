"""``graphsilo list``: what there is to choose from, without importing torch."""

from __future__ import annotations

from pathlib import Path

from graphsilo.cli.terminal import count, is_terminal, say, show, table


def methods() -> None:
    """Every method, the own ones and those of other packages."""
    from graphsilo.federation import registry

    found = registry.listings()
    foreign = any(item.source != "graphsilo" for item in found)
    grid = table("method", "title", "what it does", *(["from"] if foreign else []))
    for item in found:
        grid.add_row(item.name, item.title, item.summary, *([item.source] if foreign else []))
    show(grid)
    _hint("`graphsilo explain METHOD` shows what a method sends, and its settings.")


def data(root: Path | None) -> None:
    """Every data set of the catalog, and whether its files are on this machine."""
    from graphsilo.data.sources import catalog

    grid = table("data", "task", "graphs", "nodes", "edges", "features", "classes", "files", numbers=range(2, 7))
    for item in catalog.names():
        grid.add_row(
            item.name,
            item.task,
            count(item.graphs),
            count(item.nodes),
            count(item.edges),
            count(item.features),
            count(item.classes),
            whereabouts(item.name, catalog.data_roots(root)),
        )
    show(grid)
    _hint(
        "An undirected link counts as two edges. `--data` also takes a .yaml (tables), .npz or .pt file of your own. "
        "The folder of raw files is named by --data-root or GRAPHSILO_DATA."
    )


def whereabouts(name: str, roots: list[Path]) -> str:
    """``generated``, ``here`` or ``to download``."""
    from graphsilo.data.sources import catalog

    found = catalog.entry(name)
    if found.generated:
        return "generated"
    return "to download" if found.source.find(roots) is None else "here"


def partitions() -> None:
    """Every rule, for one graph and for collections of graphs."""
    from graphsilo.data.partition import rules
    from graphsilo.data.partition.graphs import graph_rules

    grid = table("rule", "how it cuts one graph", "source")
    for rule in rules():
        grid.add_row(rule.name, rule.summary, rule.source)
    show(grid)
    say()
    grid = table("rule", "how it shares out a collection of graphs")
    for shared in graph_rules():
        grid.add_row(shared.name, shared.summary)
    show(grid)
    _hint("`graphsilo explain RULE` shows a rule's settings.")


def models() -> None:
    """Every backbone."""
    from graphsilo import models as backbones

    grid = table("model", "what it is", "tasks")
    for name in backbones.names():
        item = backbones.listing(name)
        known = ", ".join((item.name, *item.aliases))
        grid.add_row(known, item.summary, ", ".join(item.tasks))
    show(grid)
    say()
    grid = table("pool", "different models, dealt out to clients in turn (--set model.pool=NAME)")
    for pool in backbones.pools():
        entries = [_entry(model, extra) for model, extra in backbones.pool(pool)]
        grid.add_row(pool, ", ".join(entries))
    show(grid)
    _hint("`graphsilo explain MODEL` shows a model's source and settings.")


def _entry(model: str, extra: dict[str, object]) -> str:
    text = " ".join(f"{key}={value}" for key, value in extra.items())
    return f"{model} {text}".strip()


def scenarios() -> None:
    """Every scenario."""
    from graphsilo.data.silos.scenarios import SCENARIOS

    grid = table("scenario", "what is asked at test time")
    for name, meaning in SCENARIOS.items():
        grid.add_row(name, meaning)
    show(grid)


def _hint(text: str) -> None:
    """A last line for people; a pipe gets the table alone."""
    if is_terminal():
        say()
        say(text)
