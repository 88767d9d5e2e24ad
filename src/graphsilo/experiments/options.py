"""What a section of a configuration may hold beside its own settings, by the name that is chosen in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import get_annotations
from typing import Any, get_args

from graphsilo import models
from graphsilo.data.silos.scenarios import ScenarioOptions, check_scenario, options_of
from graphsilo.data.sources import catalog
from graphsilo.errors import ConfigError
from graphsilo.federation import registry
from graphsilo.settings import Settings


def spell_name(section: str, name: str) -> str:
    """A name as the catalog or registry spells it; an unknown one as it is."""
    try:
        if section == "data":
            return catalog.entry(name).name
        if section == "model":
            return models.listing(name).name
        if section == "method":
            return registry.resolve_name(name)
    except ConfigError:
        return name
    return name.lower()


def option_names(section: str, name: Any) -> set[str]:
    """Settings that a rule, model, method, data set or scenario has beside its section's own; empty if unknown.

    Of a list those that all of them have.
    """
    if isinstance(name, list):
        found = [option_names(section, item.get("name") if isinstance(item, Mapping) else item) for item in name]
        return set.intersection(*found) if found else set()
    if name == "auto":
        return set()  # any of the rules
    try:
        found = [set(group.model_fields) for group in groups(section, str(name))]
        if section == "model":
            return set.intersection(*found)  # of a pool what all have
        known = set.union(*found)
        if section == "scenario":
            return known.intersection(options_of(check_scenario(str(name))))
        if section == "data":
            takes = not catalog.is_file(str(name)) and catalog.entry(str(name)).pyg_class == "TUDataset"
            return known - {"generator"} - (set() if takes else {"use_node_attributes"})
        return known
    except ConfigError:
        return set()  # an unknown name is refused where it is used


def groups(section: str, name: str) -> tuple[type[Settings], ...]:
    """What a section may hold beside its own settings where this name is chosen.

    A rule for single graphs that is also one for collections has a group for each, and so have generated data for what
    makes them and for what happens to them.

    Raises:
        ConfigError: An unknown name.
    """
    if section == "method":
        return (registry.load(name).config,)
    if section == "model":
        members = [item for item, _ in models.pool(name)] if name.lower() in models.pools() else [name]
        return tuple(models.entry(item).settings for item in members)
    if section == "scenario":
        check_scenario(name)
        return (ScenarioOptions,)
    if section == "data":
        kind = None if catalog.is_file(name) else catalog.generator(catalog.entry(name).name)
        return (catalog.LoadOptions,) if kind is None else (catalog.LoadOptions, kind)
    from graphsilo.data.partition import entry, rules
    from graphsilo.data.partition.graphs import graph_rules

    wanted = ("louvain", "dirichlet") if name == "auto" else (name.lower(),)
    known = [*((rule.name, rule.options) for rule in rules()), *((rule.name, rule.options) for rule in graph_rules())]
    found = tuple(options for one in wanted for rule, options in known if rule == one)
    if not found:
        entry(name)  # refuses it
    return found


def find_homonyms(before: Any, now: Any) -> set[str]:
    """Settings that two methods call alike and mean differently, as the mu of FedProx and that of FedPG.

    They mean the same where one class declares them for both, and where they are about local training. So does a
    client's weight in a mean of models, which has the same choices everywhere; other weights have others.
    """
    from graphsilo.federation.settings import LocalTrainingConfig

    try:
        old, new = (registry.load(str(name or "fedavg")).config for name in (before, now))
    except ConfigError:
        return set()  # an unknown name is refused where it is used
    alike = set(LocalTrainingConfig.model_fields)
    if _choices(old, "weight_by") == _choices(new, "weight_by"):
        alike.add("weight_by")
    return {
        name
        for name in (old.model_fields.keys() & new.model_fields.keys()) - alike
        if _find_declaring(old, name) is not _find_declaring(new, name)
    }


def _choices(kind: type[Settings], name: str) -> set[Any]:
    field = kind.model_fields.get(name)
    return set(get_args(field.annotation)) if field else set()


def _find_declaring(kind: type, name: str) -> type:
    return [part for part in kind.__mro__ if name in get_annotations(part)][-1]


def list_faults(tree: Mapping[str, Any], sections: Iterable[str]) -> Iterator[str]:
    """What is wrong with what stands beside the names of sections, as far as it is known what these are.

    Args:
        tree: Sections, each with its ``options`` apart.
        sections: Which.
    """
    from graphsilo.experiments.config import SECTIONS
    from graphsilo.experiments.doors import NAMES

    one_each = isinstance(tree.get("data", {}).get("name"), list)
    for section in sections:
        said = tree.get(section)
        if not isinstance(said, Mapping):
            continue
        if section == "perturb":
            from graphsilo.data.silos.perturb import PerturbOptions

            yield from _find_fault(PerturbOptions.of, said)
            continue
        options = said.get("options")
        if not options or said.get("pool") or (section == "partition" and (one_each or said.get("file"))):
            continue
        names = said.get(NAMES[section], SECTIONS[section].model_fields[NAMES[section]].default)
        for name in names if isinstance(names, list) else [names]:
            try:
                kinds = groups(section, name)
            except (ConfigError, AttributeError, TypeError):
                continue  # what is no name is refused where it is used
            owner = "" if name == "auto" else spell_name(section, name)
            beside = () if section == "method" else SECTIONS[section].model_fields.keys() - {"options"}
            if section == "data":
                from graphsilo.data.sources.catalog import LoadOptions

                yield from _find_fault(LoadOptions.parse, options, name=owner, beside=beside)
            else:
                kind = next((kind for kind in kinds if options.keys() <= kind.model_fields.keys()), kinds[0])
                yield from _find_fault(kind.of, options, owner=owner, beside=beside)


def _find_fault(make: Callable[..., Any], *values: Any, **more: Any) -> Iterator[str]:
    """What making something of these refuses."""
    try:
        make(*values, **more)
    except ConfigError as error:
        yield str(error)
