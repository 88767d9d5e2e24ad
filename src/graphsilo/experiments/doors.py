"""One merge for whatever a person says: in Python, in a file, by flags or by ``--set``.

A door is a place where settings are said. There are two of them: what a run is based on (a file, a table, another
run's configuration), and the call or command line that begins it. Within a door the order does not matter, and two
words that contradict each other are refused; between doors the call wins. Below both stand the backbone of the
method's paper and the defaults, which :class:`~graphsilo.experiments.config.RunConfig` fills in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphsilo.errors import ConfigError, quote

if TYPE_CHECKING:
    from graphsilo.federation.own import Own

NAMES = {"data": "name", "partition": "rule", "scenario": "name", "model": "name", "method": "name"}
"""What the name of a section is called, where a section may be written as its name alone."""
CHOICES = {
    **{section: (name,) for section, name in NAMES.items()},
    "partition": ("rule", "file"),
    "model": ("name", "pool"),
}
"""Settings that decide which other settings a section has; one of them takes the place of the other."""
DEPENDENTS = {
    "data": ("data", "task", "partition", "model"),
    "partition": ("partition",),
    "scenario": ("scenario", "partition"),
    "task": ("task", "model"),
    "model": ("model",),
    "method": ("method", "model"),
}
"""Sections whose defaults may be others when something else is chosen in a section."""
FLAGS = {
    "data.name": "--data", "data.root": "--data-root", "partition.rule": "--partition",
    "partition.clients": "--clients",
    "partition.seed": "--partition-seed", "partition.file": "--partition-file", "scenario.name": "--scenario",
    "task": "--task", "model.name": "--model", "method.name": "--method", "method.rounds": "--rounds",
    "run.seeds": "--seeds", "run.references": "--reference", "run.workers": "--workers", "run.device": "--device",
    "run.precision": "--precision", "run.without": "--without",
}  # fmt: skip
"""Flags of ``run`` and ``plan``, by the setting that they stand for."""
OWN = ("method", "model", "partition", "metric")
"""Sections whose names may stand for something of a person's own, and metrics."""
RECORDS = ("given", "remarks", "replaces", "own")
"""What a written-out configuration says of itself; no settings."""


def plain(value: Any) -> Any:
    """The same in plain types: numbers of numpy's and torch's as Python's, arrays, tuples and ranges as lists, paths as
    text."""
    if isinstance(value, np.generic | np.ndarray) or (type(value).__module__ == "torch" and hasattr(value, "tolist")):
        return value.tolist()
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    return fspath(value) if isinstance(value, PathLike) else value


class Door:
    """Settings said in one place, by dotted name.

    Args:
        title: How remarks name the place: ``cora.yaml``, ``this call``.
        sections: What can be said something of.
        suggest: What to add to the refusal of anything else, given the name and what was said before.

    Attributes:
        values: By dotted name, one or two parts.
        words: How each was said.
        given: The names that a person said, where others were written out; None for all of them.
        remarks: What was remarked when these settings were merged before.
        replaces: Fingerprint of the run that the one with these settings repeats with other clients.
        implied: Values that follow from what is said here, where nothing else is said of them here.
        fresh: Sections that are given whole: nothing of what they are based on is kept.
        own: Methods, models and rules of the person's own that are named here, by section and name.
        folder: What the paths of those are relative to; None: where the process is.
        is_call: Whether the person says it in this very command: a file named here may run.
        unknown: What is no setting, where that is not refused at once, in words.
    """

    def __init__(
        self,
        title: str,
        sections: Collection[str],
        suggest: Callable[[str, Mapping[str, Any]], str],
        folder: Path | None = None,
        *,
        is_call: bool = False,
    ):
        self.is_call = is_call
        self.title, self._sections, self._suggest, self.folder = title, sections, suggest, folder
        self.own: dict[str, dict[str, Own]] = {}
        self.values: dict[str, Any] = {}
        self.words: dict[str, str] = {}
        self.given: frozenset[str] | None = None
        self.remarks: tuple[str, ...] = ()
        self.replaces = ""
        self.implied: dict[str, Any] = {}
        self.fresh: set[str] = set()
        self.unknown: list[str] | None = [] if is_call else None

    def say_all(self, tree: Mapping[str, Any]) -> Door:
        """A whole tree of sections, which may be a written-out configuration.

        Raises:
            ConfigError: As ``say``.
        """
        for name, value in tree.items():
            if name == "given":
                self.given = frozenset(_texts(name, value))
            elif name == "remarks":
                self.remarks = _texts(name, value)
            elif name == "replaces":
                self.replaces = str(value or "")
            elif name == "own":
                self.own = own_of(value)
            else:
                self.say(str(name), value)
        return self

    def say(self, name: str, value: Any, how: str = "") -> None:
        """One setting or a section of them.

        Args:
            name: ``method.mu``; or ``method`` for a name or a table.
            value: As it came.
            how: The person's words, for refusals.

        Raises:
            ConfigError: No such section, a value where a table is wanted, or the opposite was said before.
        """
        section, *rest = name.split(".")
        value = self._name_all_own(section, rest, plain(value))
        if section not in self._sections:
            fault = f"unknown setting '{name}'; {self._suggest(name, self.values)}"
            if self.unknown is None:
                raise ConfigError(fault)
            self.unknown.append(fault)
            return
        if section == "task":
            if rest:
                raise ConfigError(f"'task' is a value, not a section; '{name}' cannot be set.")
            self._set(name, value, how)
        elif not rest and isinstance(value, Mapping):
            for key, item in value.items():
                inner = f"{section}.{key}"
                self.say(inner, item, f"{how}: {inner} {_format(item)}" if how else "")
        elif not rest:
            self._name(section, value, how)
        elif rest[0] == "options" or (rest[:1] == ["generator"] and section == "data"):
            self._inner(section, rest[1:], value, how, name)
        elif len(rest) > 1:
            raise ConfigError(f"'{section}.{rest[0]}' is a value, not a section; '{name}' cannot be set.")
        else:
            self._set(name, value, how)

    def _name_all_own(self, section: str, rest: list[str], value: Any) -> Any:
        """What is said, with a name for each thing of the person's own, which is known by it from now on."""
        if section == "model" and rest == ["pool"] and isinstance(value, list):
            return [
                {**item, "name": self.name_own(section, item.get("name"))}
                if isinstance(item, Mapping) and "name" in item else self.name_own(section, item) for item in value
            ]  # fmt: skip
        if (section, rest) == ("evaluation", ["metrics"]):
            return [self.name_own("metric", item) for item in (value if isinstance(value, list) else [value])]
        return self.name_own(section, value) if section in OWN and rest in ([], [NAMES[section]]) else value

    def name_own(self, section: str, value: Any) -> Any:
        """A name for what is said of a section: of a thing of the person's own, which is known by it from now on."""
        if value is None or isinstance(value, bool | int | float | list | Mapping):
            return value
        if isinstance(value, str) and not (value.endswith(".py") or ":" in value):
            return value
        from graphsilo.federation.own import bring

        found = bring(section, value, self.folder, named=self.is_call)
        if found is None:
            return value
        name, own = found
        known = self.own.setdefault(section, {})
        if own is not None and known.setdefault(name, own) != own and known[name].place != own.place:
            raise ConfigError(f"{known[name].place} and {own.place} are both called '{name}' here: rename one of them.")
        return name

    def _inner(self, section: str, rest: list[str], value: Any, how: str, name: str) -> None:
        """What stands under ``options`` or ``generator`` may as well stand beside the name."""
        if rest:
            self.say(".".join([section, *rest]), value, how)
        elif isinstance(value, Mapping):
            self.say(section, value, how)
        elif value is not None:
            raise ConfigError(f"{name} should be a table of settings; got {quote(value)}.")

    def _name(self, section: str, value: Any, how: str) -> None:
        key = NAMES.get(section)
        if key is None:
            raise ConfigError(f"{section} should be a table of settings; got {quote(value)}.")
        if not isinstance(value, str) and not (section == "data" and isinstance(value, list)):
            raise ConfigError(
                f"{section} should be a {key}, or a table with the {key} and its settings; got {_format(value)}. "
                f"Leave it out for the default."
            )
        if section == "data" and isinstance(value, list):
            wrong = next((place for place, item in enumerate(value) if not isinstance(item, str)), None)
            if wrong is not None:
                raise ConfigError(f"data.{wrong} should be text; got {quote(value[wrong])}.")
        if section == "partition" and isinstance(value, str) and value.endswith(".npz"):
            key = "file"
        self._set(f"{section}.{key}", value, how)

    def _set(self, name: str, value: Any, how: str) -> None:
        section = name.partition(".")[0]
        how = how or f"{name} {_format(value)}"
        before = self.values.get(name)
        if name in self.words and not _is_same(name, before, value):
            raise ConfigError(
                f"{self.words[name]} and {how} contradict each other: both say what {name} is. Give only one of them."
            )
        self.values[name], self.words[name] = value, self.words.get(name, how)
        said = [f"{section}.{key}" for key in CHOICES.get(section, ()) if _is_chosen(self.values, f"{section}.{key}")]
        if len(said) > 1 and self.given is None:
            raise ConfigError(
                f"both {' and '.join(self._words(other) for other in said)} say {_DECIDES[section]}. Give only one of "
                f"them."
            )

    def _words(self, name: str) -> str:
        kind = {"partition.rule": "the rule", "partition.file": "the stored partition"}.get(name, name)
        flag = f"{FLAGS[name]}, " if name in FLAGS else ""
        return f"{kind} {_format(self.values[name])} ({flag}{name})"


_DECIDES = {"partition": "how the data is cut", "model": "which models the clients run"}


def merge(
    base: Door, call: Door, own: Mapping[str, Collection[str]], defaults: Callable[[Door], frozenset[str]]
) -> dict[str, Any]:
    """The settings of a run as a tree: the call's, and of its base what they leave.

    Where the call chooses another name, what the base says stays as far as the new one has such settings, and
    remarks name the rest. Values that were written out, but said by nobody, do not outlive what they hang on.

    Args:
        base: What the run is based on.
        call: What wins.
        own: Settings that each section has whatever is chosen.
        defaults: Names of the base's values that are defaults written out; asked for only where it matters.
    """
    values, remarks = dict(base.values), list(base.remarks) if not call.values else []
    given = set(base.values if base.given is None else base.given & base.values.keys())
    changed = [section for section in DEPENDENTS if _changes(section, values, call.values)]
    if changed and base.given is not None:
        written = defaults(base)
        for name in written:
            if any(name.partition(".")[0] in DEPENDENTS[section] for section in changed):
                values.pop(name, None)
        given |= values.keys() - written
    for section in changed:
        if section in CHOICES:
            lost = _find_lost(section, values, call, own[section])
            named = [name for name in lost if name in given and not _is_choice(name)]
            for name in lost:
                del values[name]
            if named:
                remarks.append(
                    f"of what {base.title} says, this is not used, since {_reason(section, call)}: "
                    f"{', '.join(f'{name} {_format(base.values[name])}' for name in named)}."
                )
    values.update(call.values)
    for name, value in call.implied.items():
        values.setdefault(name, value)
    given = (given | call.values.keys()) & values.keys()
    return tree_of(values, given, remarks)


def tree_of(
    values: Mapping[str, Any], given: Iterable[str], remarks: Iterable[str], replaces: str = ""
) -> dict[str, Any]:
    """Settings by dotted name as a tree of sections."""
    tree: dict[str, Any] = {}
    for name, value in values.items():
        section, _, key = name.partition(".")
        if key:
            tree.setdefault(section, {})[key] = value
        else:
            tree[section] = value
    return {**tree, "given": sorted(given), "remarks": list(remarks), "replaces": replaces}


def _changes(section: str, values: Mapping[str, Any], said: Mapping[str, Any]) -> bool:
    """Whether something else is chosen in a section than before."""
    names = [f"{section}.{key}" for key in CHOICES[section]] if section in CHOICES else [section]
    return any(_is_chosen(said, name) and not _is_same(name, values.get(name), said[name]) for name in names)


def _find_lost(section: str, values: Mapping[str, Any], call: Door, own: Collection[str]) -> list[str]:
    """Settings of the base that do not go with what is chosen now: another choice, and what only that one has."""
    from graphsilo.experiments.options import find_homonyms, option_names

    chosen = next(key for key in CHOICES[section] if _is_chosen(call.values, f"{section}.{key}"))
    if section in call.fresh:
        known: set[str] = set()
    elif chosen == "file":
        known = set(own) - {"clients"}
    else:
        known = set(own) | option_names(section, call.values[f"{section}.{chosen}"])
    if section == "method":
        known -= find_homonyms(values.get("method.name"), call.values["method.name"])
    known -= set(CHOICES[section])
    return [name for name in values if name.partition(".")[0] == section and name.partition(".")[2] not in known]


def _reason(section: str, call: Door) -> str:
    if section in call.fresh:
        return f"{section} is given whole"
    chosen = next(key for key in CHOICES[section] if _is_chosen(call.values, f"{section}.{key}"))
    return f"{section}.{chosen} is {_format(call.values[f'{section}.{chosen}'])} now"


def _is_choice(name: str) -> bool:
    section, _, key = name.partition(".")
    return key in CHOICES.get(section, ())


def _is_chosen(values: Mapping[str, Any], name: str) -> bool:
    return values.get(name) not in (None, "auto")


def _is_same(name: str, one: Any, other: Any) -> bool:
    """Whether two values of a setting are one; names count as one in any spelling."""
    section, _, key = name.partition(".")
    if NAMES.get(section) == key and isinstance(one, str) and isinstance(other, str):
        from graphsilo.experiments.options import spell_name

        return spell_name(section, one) == spell_name(section, other)
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def own_of(value: Any) -> dict[str, dict[str, Own]]:
    """What a written-out configuration says of things of a person's own.

    Raises:
        ConfigError: It is something else.
    """
    if not value:
        return {}
    from graphsilo.federation.own import Own

    try:
        return {
            section: {name: Own(str(one["place"]), str(one["sha256"])) for name, one in found.items()}
            for section, found in value.items()
        }
    except (TypeError, KeyError, AttributeError):
        raise ConfigError(
            f"'own' is written by graphsilo into the configuration of a run; got {quote(value)}. Leave it out."
        ) from None


def own_tree(own: Mapping[str, Mapping[str, Own]]) -> dict[str, dict[str, dict[str, str]]]:
    """The same as plain values."""
    return {section: {name: one._asdict() for name, one in found.items()} for section, found in own.items() if found}


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError(
            f"'{name}' is written by graphsilo into the configuration of a run and is a list of text; got "
            f"{quote(value)}. Leave it out."
        )
    return tuple(value)


def _format(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return quote(value)
