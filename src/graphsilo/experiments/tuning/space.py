"""What a study draws from: for each method tables of settings with their values, checked before anything is run."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from graphsilo.errors import ConfigError, nearest, quote
from graphsilo.evaluate.metrics import METRICS
from graphsilo.experiments.checks import check_models
from graphsilo.experiments.config import RunConfig, configure, door_of
from graphsilo.experiments.doors import own_of, own_tree
from graphsilo.experiments.effects import drop_idle
from graphsilo.experiments.options import spell_name
from graphsilo.experiments.spaces import default_spaces
from graphsilo.federation import registry
from graphsilo.federation.settings import MethodConfig

if TYPE_CHECKING:
    import optuna

TUNED = ("method", "model")
"""Sections whose settings can be drawn: data, cut and what is measured are the same in all trials."""
SCALE = "data.scale"
"""What else can be: with it the same data is another question to a model, and the same one to who scores it."""
CHOSEN = ("method.name", "model.name", "model.pool")
ROUNDS = "method.rounds"
"""What all trials have alike."""
MOST_POINTS = 1_000
"""Spaces that are larger count as endless: nobody tries all of them."""

Settings: TypeAlias = dict[str, Any]
"""Values by dotted name."""
Parameters: TypeAlias = dict[str, Any]
"""What a sampler drew, by its own names; see ``Space.settings``."""


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; whole ones where both are.

    Attributes:
        log: Whether equal ratios are equally likely, and not equal differences.
    """

    low: float
    high: float
    log: bool = False

    @property
    def is_whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def ends(self) -> tuple[float, ...]:
        return (self.low, self.high)


Values: TypeAlias = "tuple[Any, ...] | Range"


@dataclass(frozen=True)
class Space:
    """The space of one method.

    Attributes:
        tables: Settings to their values; a draw is of one of them.
    """

    tables: tuple[Mapping[str, Values], ...]

    def draw(self, trial: optuna.Trial) -> Parameters:
        """Have a table drawn, and of each of its settings a value; a single value is no draw."""
        place = 0
        if len(self.tables) > 1:
            place = trial.suggest_categorical("space", list(range(len(self.tables))))
        return {"space": place} | {
            key: _draw(trial, self._sampler_name(place, key), values)
            for key, values in self.tables[place].items()
            if not _is_fixed(values)
        }

    def settings(self, parameters: Parameters) -> Settings:
        """The settings that drawn values stand for."""
        table = self.tables[parameters["space"]]
        return {
            name: values[0]
            if isinstance(values, tuple) and _is_fixed(values)
            else _round_drawn(parameters[name], values)
            for name, values in table.items()
        }

    def to_sampler(self, parameters: Parameters) -> dict[str, Any]:
        """Drawn values under the sampler's names, which differ from table to table: their values do."""
        place = parameters["space"]
        head = {"space": place} if len(self.tables) > 1 else {}
        return head | {self._sampler_name(place, key): value for key, value in parameters.items() if key != "space"}

    def points(self) -> list[Parameters] | None:
        """All that can be drawn; None where that is endless."""
        counts = [math.prod(_count(values) for values in table.values()) for table in self.tables]
        if sum(counts) > MOST_POINTS:
            return None
        return list(self._points())

    def _points(self) -> Iterator[Parameters]:
        for place, table in enumerate(self.tables):
            drawn = {name: _list_values(values) for name, values in table.items() if not _is_fixed(values)}
            for each in itertools.product(*drawn.values()):
                yield {"space": place} | dict(zip(drawn, each, strict=True))

    def _sampler_name(self, place: int, setting: str) -> str:
        return setting if len(self.tables) == 1 else f"{setting} ({place})"

    def tree(self) -> list[dict[str, Any]]:
        """As a person would write it."""
        return [{name: _to_tree(values) for name, values in table.items()} for table in self.tables]


def _round_drawn(value: Any, values: Values) -> Any:
    """A number drawn from a range as a person would write it down: in four digits."""
    if isinstance(values, tuple) or values.is_whole:
        return value
    return min(max(float(f"{value:.4g}"), values.low), values.high)


def _is_fixed(values: Values) -> bool:
    return isinstance(values, tuple) and len(values) == 1


def _draw(trial: optuna.Trial, name: str, values: Values) -> Any:
    if isinstance(values, tuple):
        with warnings.catch_warnings():
            # Optuna keeps lists, such as one number per layer, but says of each that others may not.
            warnings.filterwarnings("ignore", "Choices for a categorical distribution", UserWarning)
            return trial.suggest_categorical(name, list(values))
    if values.is_whole:
        return trial.suggest_int(name, int(values.low), int(values.high), log=values.log)
    return trial.suggest_float(name, values.low, values.high, log=values.log)


def _count(values: Values) -> float:
    if isinstance(values, tuple):
        return len(values)
    return values.high - values.low + 1 if values.is_whole else math.inf


def _list_values(values: Values) -> Sequence[Any]:
    return values if isinstance(values, tuple) else range(int(values.low), int(values.high) + 1)


def _to_tree(values: Values) -> Any:
    if isinstance(values, tuple):
        return list(values)
    return {"low": values.low, "high": values.high, **({"log": True} if values.log else {})}


# -- reading -------------------------------------------------------------------------------------------------------


def spaces_of(said: Any, methods: Sequence[str], base: Mapping[str, Any]) -> dict[str, Space]:
    """The space of every method: what a person said, else the method's own.

    Args:
        said: Settings with their values, for all methods; and under the name of a method those of that one alone, or a
            list of such tables, of which one is drawn. None where nothing is said.
        methods: Names, as the registry spells them.
        base: The complete configuration that trials change.

    Raises:
        ConfigError: A space is empty, names something that cannot be drawn, or holds a value that a run would refuse.
    """
    common, own = _sort_out(said, methods)
    found = {}
    for method in methods:
        tables: Sequence[Mapping[str, Any]] = own.get(method) or ([{}] if common else default_spaces(method))
        space = Space(tuple({**common, **{name: _values(name, each) for name, each in t.items()}} for t in tables))
        if not any(space.tables):
            fields = registry.load(method).config.model_fields
            known = ["lr", *(name for name in fields if name not in MethodConfig.model_fields)]
            example = next((name for name in known if name in fields), "rounds")
            raise ConfigError(
                f"the space of {method} is empty: there is nothing to try. Name settings and their values, such as "
                f"tune: {{method.{example}: {'[0.003, 0.01, 0.03]' if example == 'lr' else '[...]'}}}, in the "
                f"configuration or a file for --space."
            )
        try:
            _check(space, method, base)
        except ConfigError as error:
            one = "" if len(methods) == 1 else f" What is for one method stands under its name: {{{method}: {{...}}}}."
            raise ConfigError(f"{error}{one}") from None
        found[method] = space
    return found


def _sort_out(said: Any, methods: Sequence[str]) -> tuple[dict[str, Values], dict[str, list[Mapping[str, Any]]]]:
    """Values for all methods, and the tables of single ones."""
    common: dict[str, Values] = {}
    own: dict[str, list[Mapping[str, Any]]] = {}
    if said is not None and not isinstance(said, Mapping):
        raise ConfigError(f"a space is a table of settings and their values; got {quote(said)}.")
    if said is not None and not said:
        raise ConfigError(
            "the space is empty: there is nothing to try. Name settings and their values, such as "
            "{method.lr: [0.003, 0.01, 0.03]}; or leave it out for the short space of each method."
        )
    for name, value in (said or {}).items():
        if "." in name:
            common[name] = _values(name, value)
            continue
        method = spell_name("method", name)
        if method not in methods and method in registry.names():
            raise ConfigError(
                f"the space has a table for {method}, which is not tuned: the methods of the study are "
                f"{', '.join(methods)}. Leave the table out, or name the method, too."
            )
        if method not in methods:
            raise ConfigError(
                f"a space holds settings, such as method.lr, and tables for single methods of the study; got "
                f"'{name}'; {nearest(name, [*methods, 'method.lr'])}"
            )
        tables = list(value) if isinstance(value, list) else [value]
        if not tables or not all(isinstance(table, Mapping) for table in tables):
            raise ConfigError(f"the space of {name} is a table of settings, or a list of them; got {quote(value)}.")
        own[method] = tables
    return common, own


def _values(name: str, value: Any) -> Values:
    """The values of a setting as a person wrote them: a list, one value, or a range.

    Raises:
        ConfigError: There are none, or the setting is none that can be drawn.
    """
    section, _, key = name.partition(".")
    if section in ("test", "validation", "scenario") and key.rpartition(".")[2] in METRICS:
        raise ConfigError(
            f"'{name}' is a score, and a space holds settings. Trials are compared by their validation score, never by "
            f"one of the test; evaluation.select_by says by which metric."
        )
    if (section not in TUNED and name != SCALE) or name in CHOSEN or key.startswith("options"):
        raise ConfigError(
            f"'{name}' cannot be drawn: trials differ in settings of {' and '.join(TUNED)} and in {SCALE}, and share "
            f"other data, cut, split and seeds. Say it in the configuration; --method names several methods."
        )
    if name == ROUNDS and (isinstance(value, Mapping) or (isinstance(value, list) and len(value) > 1)):
        raise ConfigError(
            f"'{name}' cannot be drawn: trials are held against each other, and stopped, round by round, and the "
            f"longest would win. Give all the most that any should have (--rounds): each is reported at its best one."
        )
    if isinstance(value, Mapping):
        return _range(name, value)
    values = tuple(value) if isinstance(value, list) else (value,)
    if not values:
        raise ConfigError(f"the space has no values of {name}: list some, such as {name}: [0.003, 0.01, 0.03].")
    if len({repr(each) for each in values}) < len(values):
        raise ConfigError(f"the space lists a value of {name} twice: {quote(list(values))}.")
    return values


def _range(name: str, value: Mapping[str, Any]) -> Range:
    strange = next((key for key in value if key not in ("low", "high", "log")), None)
    if strange is not None:
        raise ConfigError(
            f"a range of {name} has low, high and log; got '{strange}'; {nearest(str(strange), ('low', 'high', 'log'))}"
        )
    low, high, log = value.get("low"), value.get("high"), value.get("log", False)
    numbers = [each for each in (low, high) if isinstance(each, int | float) and not isinstance(each, bool)]
    if len(numbers) < 2 or not isinstance(log, bool):
        raise ConfigError(f"a range of {name} is {{low: 0.001, high: 1.0, log: true}}; got {quote(dict(value))}.")
    if not numbers[0] < numbers[1] or not all(map(math.isfinite, numbers)):
        raise ConfigError(f"a range of {name} goes from low up to high; got {quote(dict(value))}.")
    if log and numbers[0] <= 0:
        raise ConfigError(f"a logarithmic range of {name} begins above 0; got low {numbers[0]}.")
    return Range(numbers[0], numbers[1], log)


def _check(space: Space, method: str, base: Mapping[str, Any]) -> None:
    """Have every value looked at as a run would, with the first values of the others beside it."""
    for table in space.tables:
        first = {name: _ends(values)[0] for name, values in table.items()}
        for name, values in table.items():
            for value in _ends(values):
                try:
                    config = drop_idle(trial_config(base, method, {**first, name: value}))
                    check_models(config, registry.load(method), config.method_config())
                except ConfigError as error:
                    raise ConfigError(f"the space of {method}, {name} {quote(value)}: {error}") from None


def _ends(values: Values) -> tuple[Any, ...]:
    return values if isinstance(values, tuple) else values.ends


def complete_base(config: RunConfig, methods: Sequence[str]) -> dict[str, Any]:
    """The configuration that trials change, with what is a person's own among the methods."""
    mine = {name: one for name, one in own_of(config.own).get("method", {}).items() if name in methods}
    base = config.complete()
    return {**base, "own": {**base.get("own", {}), **own_tree({"method": mine})}}


def trial_config(base: Mapping[str, Any], method: str, settings: Settings, **more: Any) -> RunConfig:
    """The configuration of a trial: the base with another method, and the settings that were drawn.

    Args:
        base: A complete configuration.
        method: Which.
        settings: By dotted name.
        more: Sections and what is said of them beside: ``run={"seeds": [10]}``.
    """
    call = door_of("this trial").say_all({"method": method, **more})
    for name, value in settings.items():
        call.say(name, value)
    return configure(base, call)
