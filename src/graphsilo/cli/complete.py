"""What the shell offers for a value that is being typed. Nothing here needs torch, but for a method's own settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from graphsilo.errors import GraphsiloError

Offers = list[tuple[str, str]]
"""Values, each with a word of help (which bash does not show)."""
LISTS = ("methods", "data", "partitions", "models", "scenarios")
_CONFIGURATIONS = (".yaml", ".yml")
_DATA = (".yaml", ".npz", ".pt")


def methods(incomplete: str) -> Offers:
    """Names of methods."""
    from graphsilo.federation import registry

    return _beginning(incomplete, ((item.name, item.summary) for item in registry.listings()))


def views(incomplete: str) -> Offers:
    """Whose model was scored, and how clients are averaged."""
    from graphsilo.report.formats import MODES
    from graphsilo.report.views import ALIASES, AVERAGES

    short = [(name, MODES[full]) for name, full in ALIASES.items() if full in MODES]
    return _beginning(incomplete, [*short, *AVERAGES.items(), *MODES.items()])


def papers(incomplete: str) -> Offers:
    """Papers whose tables can be reproduced."""
    from graphsilo.experiments.reproduce.description import tables

    return _beginning(incomplete, {table.paper: table.protocol for table in tables()}.items())


def data(incomplete: str) -> Offers:
    """Names of the catalog, and files of one's own."""
    from graphsilo.data.sources import catalog

    known = _beginning(incomplete, ((item.name, f"{item.nodes:,} nodes") for item in catalog.names()))
    return known + (_files(incomplete, _DATA) if incomplete else [])


def partitions(incomplete: str) -> Offers:
    """Rules for one graph and for collections of graphs."""
    from graphsilo.data.partition import rules
    from graphsilo.data.partition.graphs import graph_rules

    found = {rule.name: rule.summary for rule in graph_rules()} | {rule.name: rule.summary for rule in rules()}
    return _beginning(incomplete, sorted(found.items()))


def models(incomplete: str) -> Offers:
    """Backbones, and pools of them."""
    from graphsilo import models as backbones

    pools = ((pool, "different models, dealt out to clients") for pool in backbones.pools())
    return _beginning(incomplete, [*((name, backbones.listing(name).summary) for name in backbones.names()), *pools])


def scenarios(incomplete: str) -> Offers:
    """What is asked at test time."""
    from graphsilo.data.silos.scenarios import SCENARIOS

    return _beginning(incomplete, SCENARIOS.items())


def devices(incomplete: str) -> Offers:
    """Where tensors live."""
    return _beginning(incomplete, [("cpu", ""), ("cuda", "")])


def references(incomplete: str) -> Offers:
    """Rows beside a run's own."""
    from graphsilo.experiments.config import REFERENCES

    return _beginning(incomplete, ((name, "") for name in (*REFERENCES, "all", "none")))


def lists(incomplete: str) -> Offers:
    """What ``graphsilo list`` can show."""
    return _beginning(incomplete, ((name, "") for name in LISTS))


def topics(incomplete: str) -> Offers:
    """Everything that ``graphsilo explain`` knows."""
    from graphsilo.experiments.config import SECTIONS

    named = [kind(incomplete) for kind in (methods, models, partitions, data, scenarios)]
    sections = _beginning(incomplete, ((name, "settings") for name in (*SECTIONS, "perturb", "policy")))
    return list({name: (name, text) for kind in (*named, sections) for name, text in kind}.values())


def examples(incomplete: str) -> Offers:
    """What ``graphsilo examples`` copies."""
    from graphsilo.cli.examples import about, list_examples

    return _beginning(incomplete, ((name, about(path)) for name, path in list_examples().items()))


def configurations(incomplete: str) -> Offers:
    """YAML files."""
    return _files(incomplete, _CONFIGURATIONS)


def runs(incomplete: str) -> Offers:
    """Folders of finished runs: below ``runs`` where nothing was typed yet."""
    return [
        (place, "") if (Path(place) / "result.json").is_file() else (f"{place}/", "")
        for place in _places(incomplete or "runs/")
        if Path(place).is_dir()
    ]


def settings(ctx: Any, incomplete: str) -> Offers:
    """Settings as ``--set`` takes them: sections, then names with their choices or their default."""
    from graphsilo.experiments.config import SECTIONS
    from graphsilo.settings.words import choices, format_value

    begun, dot, _ = incomplete.partition(".")
    sections = [section for section in SECTIONS if section == begun or (not dot and section.startswith(begun))]
    if len(sections) != 1:
        return [(f"{section}.", "") for section in sections]
    found = {}
    for group in _groups(sections[0], ctx.params):
        for name, field in group.model_fields.items():
            if name in ("name", "options"):
                continue
            default = format_value(field.get_default(call_default_factory=True))
            for value in choices(field.annotation) or [default]:
                found[f"{sections[0]}.{name}={value}"] = field.description or ""
    return _beginning(incomplete, found.items())


def _groups(section: str, params: dict[str, Any]) -> Iterator[Any]:
    """A section's own settings, and those of what the flags so far choose in it."""
    from graphsilo.experiments.config import SECTIONS, RunConfig
    from graphsilo.experiments.doors import NAMES
    from graphsilo.experiments.options import groups

    yield SECTIONS[section]
    if section in NAMES:
        said = params.get(section)
        chosen = said[0] if isinstance(said, list | tuple) and said else said
        with suppress(GraphsiloError):  # an unknown name is refused when the command runs
            yield from groups(section, str(chosen or getattr(getattr(RunConfig(), section), NAMES[section])))


def words_of(name: str) -> Callable[[str], Offers]:
    """The words that a setting takes."""

    def offer(incomplete: str) -> Offers:
        from graphsilo.experiments.config import SECTIONS, RunConfig
        from graphsilo.settings.words import choices

        section, _, field = name.rpartition(".")
        kind = SECTIONS[section] if section else RunConfig
        return _beginning(incomplete, ((word, "") for word in choices(kind.model_fields[field].annotation)))

    return offer


def _beginning(incomplete: str, offers: Iterable[tuple[str, str]]) -> Offers:
    """Those that go on from what was typed, in the case that was typed: shells want it so, and commands take either."""
    size = len(incomplete)
    return [(incomplete + name[size:], text) for name, text in offers if name[:size].lower() == incomplete.lower()]


def _files(incomplete: str, endings: tuple[str, ...]) -> Offers:
    """Files with these endings, and folders on the way to them."""
    return [
        (f"{place}/" if Path(place).is_dir() else place, "")
        for place in _places(incomplete)
        if Path(place).is_dir() or place.endswith(endings)
    ]


def _places(incomplete: str) -> list[str]:
    """What lies on disk that goes on from what was typed; hidden things only where asked for."""
    folder, _, begun = incomplete.rpartition("/")
    base = Path(f"{folder}/" if folder or incomplete.startswith("/") else ".").expanduser()
    try:
        found = sorted(path.name for path in base.iterdir())
    except OSError:
        return []
    shown = [name for name in found if name.startswith(begun) and (begun.startswith(".") or not name.startswith("."))]
    prefix = incomplete[: len(incomplete) - len(begun)]
    return [f"{prefix}{name}" for name in shown]
