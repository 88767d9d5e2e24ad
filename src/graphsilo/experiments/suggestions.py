"""All settings there are, and which of them was meant by a name that is none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from graphsilo.errors import nearest, several
from graphsilo.experiments.config import SAID, SECTIONS, RunConfig
from graphsilo.experiments.doors import NAMES
from graphsilo.experiments.options import option_names
from graphsilo.settings import SYNONYMS, Settings


def every_group() -> Iterator[tuple[str, str, type[Settings]]]:
    """Section, owner and group of everything that can be said of a run; a section's own settings have no owner."""
    from graphsilo import models
    from graphsilo.data.partition import rules
    from graphsilo.data.partition.graphs import graph_rules
    from graphsilo.data.silos.perturb import PerturbOptions
    from graphsilo.data.silos.scenarios import ScenarioOptions
    from graphsilo.data.sources.catalog import LoadOptions
    from graphsilo.data.sources.generated import generators
    from graphsilo.federation import registry

    owned: dict[str, list[tuple[str, type[Settings]]]] = {
        "data": [("every data set", LoadOptions), *generators().items()],
        "partition": [
            *((rule.name, rule.options) for rule in rules()),
            *((f"{rule.name}, of graphs", rule.options) for rule in graph_rules()),
        ],
        "scenario": [("unseen, open and receiver", ScenarioOptions)],
        "model": [(name, models.entry(name).settings) for name in models.names()],
        "method": [(name, registry.load(name).config) for name in registry.names()],
    }
    sections: dict[str, type[Settings]] = {**SECTIONS, "perturb": PerturbOptions}
    for section, kind in sections.items():
        yield section, "", kind
        for owner, group in owned.get(section, []):
            yield section, owner, group


def suggest(name: str, said: Mapping[str, Any]) -> str:
    """Which setting was most likely meant by a name without its section, or with one that is not there.

    Args:
        name: As it came.
        said: What was said before, by dotted name: it may choose the method that has such a setting.
    """
    if found := find_settings(name.rpartition(".")[2], said):
        return f"did you mean {found}?"
    known = _list_known(said)
    close = get_close_matches(name.rpartition(".")[2].lower(), known, n=1, cutoff=0.6)
    head = nearest(name.partition(".")[0], SAID)
    if close and not head.startswith("did you mean"):
        return f"did you mean {' or '.join(map(repr, known[close[0]]))}?"
    return head


def find_settings(word: str, said: Mapping[str, Any]) -> str:
    """The settings called so, or by another word of the field for it: ``'method.lr'`` for ``learning_rate``.

    Args:
        word: Without a section.
        said: What was said before, by dotted name.

    Returns:
        Their dotted names in quotes, with whose they are where that is not what was chosen; empty for none.
    """
    word = word.lower().replace("-", "_")
    word = SYNONYMS.get(word, word).rpartition(".")[2]
    if names := _list_known(said).get(word):
        return " or ".join(map(repr, names))
    places = []
    for section, others in _all_names():
        owners = [other for other in others if word in option_names(section, other)]
        places += [f"'{section}.{word}' (of {several(owners, 3)})"] if owners else []
    return " or ".join(places)


def _list_known(said: Mapping[str, Any]) -> dict[str, list[str]]:
    """Dotted names by last word, of all settings that what was said allows."""
    known: dict[str, list[str]] = {}
    defaults = RunConfig()
    for section, kind in SECTIONS.items():
        key = NAMES.get(section)
        names = [field for field in kind.model_fields if field not in ("name", "rule", "options")]
        if key is not None:
            chosen = said.get(f"{section}.{key}")
            names += sorted(option_names(section, str(chosen or getattr(getattr(defaults, section), key))))
        for field in dict.fromkeys(names):
            known.setdefault(field, []).append(f"{section}.{field}")
    return known


def _all_names() -> list[tuple[str, Sequence[str]]]:
    """Sections whose settings depend on a name, and every name there is."""
    from graphsilo import models
    from graphsilo.data import partition
    from graphsilo.federation import registry

    return [
        ("method", registry.names()),
        ("partition", [rule.name for rule in partition.rules()]),
        ("model", models.names()),
    ]
