"""Which methods exist: one entry each in ``graphsilo/methods``, and the entry points "graphsilo.methods" of others.

An entry is a file or a package, and says ``METHOD = Method(...)``. Listing reads that statement's literals without
importing anything, so that it needs no torch; using a method imports it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from graphsilo.errors import ConfigError, nearest
from graphsilo.listed import find_files, read_listing
from graphsilo.types import CLASS_TASKS, TARGET_TASKS, Task

if TYPE_CHECKING:
    from graphsilo.federation.client import ClientBase
    from graphsilo.federation.server import ServerBase
    from graphsilo.federation.settings import MethodConfig

GROUP = "graphsilo.methods"
_DASH = " — "
PACKAGE = "graphsilo.methods"

View: TypeAlias = Literal["own", "aggregate"]
Family: TypeAlias = Literal[
    "one round", "trees", "averages of models", "rare and missing classes", "missing neighbours",
    "prototypes and distillation", "silos that are unlike", "references", "other",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What is known of a method without importing it: the literals of its ``METHOD`` statement.

    Attributes:
        name: As in ``--method``.
        about: ``__doc__`` of its file: title, dash and summary; then paragraphs: where it comes from,
            and what it does, in more words.
        family: What kind of method it is: its place in the documentation.
        aliases: Other ways to write its name, in small letters.
        near: Known methods that are not here, to which it is the nearest in kind.
        tasks: What it can be asked for; all, where its steps know nothing of classes.
        heterogeneous: Whether clients may run different models.
        evaluates: Model views it has, the one its paper reports first.
        pooled: Trains on all silos pooled in one place (a reference, not a federation).
        edge_weights: Whether it can be asked on graphs whose edges have weights: it leaves edges to the backbone, or
            its own steps use the weights.
        model: The paper's backbone as ``model`` settings, taken where the user names none; or such settings per task,
            ``{"node": {"name": ...}, "graph": {"name": ...}}``.
        alone: Its clients receive nothing from each other (a reference, not a federation).
        seedless: Whether no seed of training changes what it finds: as a reference row it is run with one.
        backbone: Whether its clients run a backbone, so that ``model`` settings and ``run.device`` mean something.
        elsewhere: What the method is on other backbones than the paper's, where that is another method.
        cut_links: Whether its clients use the links between silos, of which each knows those of its own nodes.
        choices: What a number stands for that the method's server writes into its log, and a client into its study,
            because validation chose: in words, by the number's name. Beside ``chosen`` the log has ``chosen_0`` etc.,
            what all silos' validation says of each.
        quick: Settings that shorten a trial run and leave every step in.
        balances: Setting and value that give rare classes more weight, ``class_weights=inverse``; empty: none does.
        space: What tuning tries where nobody says otherwise: settings and their values, under either optimiser with
            the usual learning rates; or tables of them as they are, of which one is drawn. Empty: the rates alone, if
            it has any. The papers' tables are tuned within: with another value here what was measured is old.
        source: The package that it comes from.
    """

    name: str
    about: str | None = ""
    family: Family = "other"
    aliases: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    tasks: tuple[Task, ...] = (*CLASS_TASKS, "link", *TARGET_TASKS)
    heterogeneous: bool = False
    evaluates: tuple[View, ...] = ("own", "aggregate")
    pooled: bool = False
    edge_weights: bool = False
    model: Mapping[str, Any] | None = None
    alone: bool = False
    seedless: bool = False
    backbone: bool = True
    elsewhere: str | None = None
    cut_links: bool = False
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)
    balances: str = ""
    space: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]] = ()
    source: str = "graphsilo"

    @property
    def title(self) -> str:
        """As a person reads it."""
        return "".join(self.paragraphs[:1]).partition(_DASH)[0] or self.name

    @property
    def summary(self) -> str:
        """What it does, in one sentence."""
        text = "".join(self.paragraphs[:1]).partition(_DASH)[2]
        return text[:1].upper() + text[1:]

    @property
    def citation(self) -> str:
        """Where it comes from."""
        return "".join(self.paragraphs[1:2])

    @property
    def paragraphs(self) -> list[str]:
        """What its file begins with, a line each."""
        return [" ".join(text.split()) for text in (self.about or "").split("\n\n")]


@dataclass(frozen=True)
class Trial:
    """How the conformance suite finds out that a setting does something, where its type does not say it.

    Attributes:
        values: What it is set to, one after the other; none: what its type suggests.
        beside: What else must be set for it to have anything to do, if its ``when`` does not say it.
        reason: Why it changes nothing that clients learn; then it is not tried.
        start: What it is set to while others are tried; none: ``Method.quick``, or its default.
    """

    values: Sequence[Any] = ()
    beside: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    start: Any = None


@dataclass(frozen=True, kw_only=True)
class Method(Listing):
    """The registry entry of a method.

    Attributes:
        config, client, server: Its classes.
        makes_graphs: Whether models compute on graphs that the method makes or mends, of which it knows no relations.
        trials: How settings are tried of which their type does not say it.
        reduces_to: Another method, and the settings with which this one is that, bit for bit.
    """

    config: type[MethodConfig]
    client: type[ClientBase[Any]]
    server: type[ServerBase[Any]]
    makes_graphs: bool = False
    trials: Mapping[str, Trial] = field(default_factory=dict)
    reduces_to: tuple[str, Mapping[str, Any]] | None = None


def listings() -> list[Listing]:
    """All methods, by name, without importing them.

    Raises:
        ConfigError: A file in ``graphsilo/methods`` has no ``METHOD`` that can be read; names file and line.
    """
    found: dict[str, Listing] = {listing.name: listing for listing, _ in _entries().values()}
    for point in _find_installed():
        module = point.value.partition(":")[0]
        source = point.dist.name if point.dist else module
        found[point.name] = Listing(name=point.name, source=module)
        path = _find(module)
        if path is not None:
            # Others may make their METHOD as they like: what cannot be read is listed by its name alone.
            with contextlib.suppress(ConfigError):
                found[point.name] = dataclasses.replace(_read(Path(path)), name=point.name, source=source)
    return [found[name] for name in sorted(found)]


@functools.cache
def _find_installed() -> tuple[EntryPoint, ...]:
    """What other packages offer; looked up once in a process, as it reads a file per package."""
    return tuple(entry_points(group=GROUP))


def names() -> list[str]:
    """Names of all methods."""
    return [listing.name for listing in listings()]


def load(name: str) -> Method:
    """The method of that name.

    Raises:
        ConfigError: There is none, or its file does not define ``METHOD``.
    """
    wanted = resolve_name(name)
    if wanted in _REGISTERED:
        return _REGISTERED[wanted]
    for point in _find_installed():
        if point.name == wanted:
            return _check_method(point.load(), wanted)
    if wanted in _entries():
        return _check_method(importlib.import_module(f"{PACKAGE}.{_entries()[wanted][1]}"), wanted)
    from graphsilo.federation.absent import missing

    raise ConfigError(missing(name) or f"unknown method '{name}'; {nearest(name, [*names(), *_REGISTERED])}")


def listing(name: str) -> Listing | None:
    """What is known of a method without importing it; None for one that is unknown."""
    wanted = resolve_name(name)
    return _REGISTERED.get(wanted) or next((each for each in listings() if each.name == wanted), None)


def usual_model(name: str) -> Mapping[str, Any] | None:
    """``Method.model`` of a method, without importing it; None for one that names none or is unknown."""
    found = listing(name)
    return found.model if found else None


def register(method: Method) -> Method:
    """Make a method known in this process, e.g. from a notebook or a test.

    With ``--workers`` every process must know it: put it in a package with an entry point instead.
    """
    _REGISTERED[method.name] = method
    return method


def adopt(name: str, thing: Any) -> str:
    """Make a method known that a person brought along; returns its name. ``name`` is where it comes from.

    Raises:
        ConfigError: It is no method, or has the name of one that graphsilo or an installed package has.
    """
    if not isinstance(thing, Method):
        raise ConfigError(f"a method is METHOD = Method(...); {name} is a {type(thing).__name__}.")
    known = thing.name in _entries() or any(point.name == thing.name for point in _find_installed())
    if not known:
        return register(thing).name
    if load(thing.name) is not thing:
        raise ConfigError(f"there is a method '{thing.name}' already; give yours ({name}) another name.")
    return thing.name


def list_registered() -> tuple[str, ...]:
    """Names of the methods that only this process knows."""
    return tuple(_REGISTERED)


_REGISTERED: dict[str, Method] = {}
_FOLDER = Path(__file__).resolve().parents[1] / "methods"


def resolve_name(name: str) -> str:
    """A method's name as it is registered, of its name, title or an alias in any spelling."""
    wanted = name.lower().replace("-", "_")
    if wanted in _REGISTERED or wanted in _entries() or any(wanted == point.name for point in _find_installed()):
        return wanted
    every = (*_REGISTERED.values(), *listings())
    spelt = ((each.name, text) for each in every for text in (each.name, each.title, *each.aliases))
    return next((known for known, text in spelt if text and plain_name(text) == plain_name(name)), wanted)


@functools.lru_cache(maxsize=1024)
def plain_name(name: str) -> str:
    """A name without what people write differently: ``Fed-PUB`` as ``fed_pub``, ``FedSage+`` as ``fedsage_plus``."""
    return "".join(letter for letter in name.lower().replace("+", "plus") if letter.isalnum())


def _check_method(loaded: Any, name: str) -> Method:
    method = getattr(loaded, "METHOD", loaded)
    if not isinstance(method, Method):
        raise ConfigError(f"method '{name}' must define METHOD = Method(...); {type(method).__name__} came.")
    return method


@functools.cache
def _entries() -> Mapping[str, tuple[Listing, str]]:
    """What the package's own methods say, and their modules' names, by name. Files that begin with ``_`` are none."""
    found: dict[str, tuple[Listing, str]] = {}
    for path, module in find_files(_FOLDER):
        listing = _read(Path(str(path)))
        if listing.name in found:
            raise ConfigError(f"{path}: there are two methods with the name '{listing.name}'.")
        found[listing.name] = (listing, module)
    return found


def _find(module: str) -> str | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec else None


@functools.cache
def _read(path: Path) -> Listing:
    wanted = "a method's file says METHOD = Method(about=__doc__, name=..., config=..., client=..., server=...)"
    return read_listing(path, "METHOD", Listing, wanted)
