"""Which methods exist: one file each in ``graphsilo/methods``, and the entry points "graphsilo.methods" of others.

A method's file ends in ``METHOD = Method(...)``. Listing reads that line's literals without importing the file, so
that it needs no torch; using a method imports it.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from graphsilo.errors import ConfigError, nearest
from graphsilo.types import Task

if TYPE_CHECKING:
    from graphsilo.federation.client import ClientBase
    from graphsilo.federation.server import ServerBase
    from graphsilo.federation.settings import MethodConfig

GROUP = "graphsilo.methods"
PACKAGE = "graphsilo.methods"

View: TypeAlias = Literal["own", "aggregate"]


@dataclass(frozen=True)
class Method:
    """The registry entry of a method.

    Attributes:
        name: As in ``--method``.
        title: As a person reads it.
        citation: Where it comes from.
        summary: What it does, in one sentence.
        config, client, server: Its classes.
        tasks: What it can be asked for.
        heterogeneous: Whether clients may run different models.
        evaluates: Model views it has, the one its paper reports first.
        pooled: Trains on all silos pooled in one place (a reference, not a federation).
        edge_weights: Whether it can be asked on graphs whose edges have weights: it leaves edges to the backbone, or
            its own steps use the weights.
        model: The paper's backbone as ``model`` settings, taken where the user names none; or such settings per task,
            ``{"node": {"name": ...}, "graph": {"name": ...}}``.
        alone: Its clients hear nothing of each other (a reference, not a federation).
        backbone: Whether its clients run a backbone, so that ``model`` settings mean something.
        elsewhere: What the method is on other backbones than the paper's, where that is another method.
    """

    name: str
    title: str
    citation: str
    summary: str
    config: type[MethodConfig]
    client: type[ClientBase]
    server: type[ServerBase]
    tasks: tuple[Task, ...] = ("node", "graph", "link")
    heterogeneous: bool = False
    evaluates: tuple[View, ...] = ("own", "aggregate")
    pooled: bool = False
    edge_weights: bool = False
    model: Mapping[str, Any] | None = None
    alone: bool = False
    backbone: bool = True
    elsewhere: str | None = None


@dataclass(frozen=True)
class Listing:
    """What is known of a method without importing it."""

    name: str
    title: str
    summary: str
    source: str


def listings() -> list[Listing]:
    """All methods, by name, without importing them."""
    found = {}
    folder = _folder()
    for path in sorted(folder.glob("*.py")):
        listing = _read_listing(path, "graphsilo")
        if listing is not None:
            found[listing.name] = listing
    for point in _installed():
        module = point.value.partition(":")[0]
        spec = _find(module)
        listing = _read_listing(Path(spec), point.dist.name if point.dist else module) if spec else None
        found[point.name] = listing or Listing(point.name, point.name, "", module)
    return sorted(found.values(), key=lambda listing: listing.name)


@functools.cache
def _installed() -> tuple[EntryPoint, ...]:
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
    wanted = spelled(name)
    if wanted in _REGISTERED:
        return _REGISTERED[wanted]
    for point in _installed():
        if point.name == wanted:
            return _checked(point.load(), wanted)
    path = _file_of(wanted)
    if path is not None:
        return _checked(importlib.import_module(f"{PACKAGE}.{path.stem}"), wanted)
    raise ConfigError(f"unknown method '{name}'; {nearest(name, [*names(), *_REGISTERED])}")


def usual_model(name: str) -> Mapping[str, Any] | None:
    """``Method.model``: the backbone that a method names as its paper's, or one per task.

    Read without importing the method where that is possible.
    """
    wanted = spelled(name)
    if wanted in _REGISTERED:
        return _REGISTERED[wanted].model
    modules = (point.value.partition(":")[0] for point in _installed() if point.name == wanted)
    outside = next((spec for module in modules if (spec := _find(module))), None)
    path = _file_of(wanted) if outside is None else Path(outside)
    return None if path is None else (_literals(path, ("model",)) or {}).get("model")


def register(method: Method) -> Method:
    """Make a method known in this process, e.g. from a notebook or a test.

    With ``--workers`` every process must know it: put it in a package with an entry point instead.
    """
    _REGISTERED[method.name] = method
    return method


_REGISTERED: dict[str, Method] = {}


def spelled(name: str) -> str:
    """A method's name as it is registered."""
    wanted = name.lower().replace("-", "_")
    return {"fedsage+": "fedsage_plus", "gcfl+": "gcfl_plus"}.get(wanted, wanted)


def _checked(loaded: Any, name: str) -> Method:
    method = getattr(loaded, "METHOD", loaded)
    if not isinstance(method, Method):
        raise ConfigError(f"method '{name}' must define METHOD = Method(...); {type(method).__name__} came.")
    return method


def _folder() -> Path:
    return Path(__file__).resolve().parents[1] / "methods"


@functools.cache
def _file_of(wanted: str) -> Path | None:
    """The file in the package whose METHOD has this name, those that are called like it looked at first."""
    likely = [_folder() / f"{wanted}.py", _folder() / f"{wanted}_.py"]
    for path in dict.fromkeys([*likely, *sorted(_folder().glob("*.py"))]):
        listing = _read_listing(path, "graphsilo")
        if listing is not None and listing.name == wanted:
            return path
    return None


def _find(module: str) -> str | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec else None


def _read_listing(path: Path, source: str) -> Listing | None:
    """What a file's METHOD line says for people; None where it has none."""
    values = _literals(path, ("name", "title", "summary"))
    if values is None:
        return None
    return Listing(values.get("name", path.stem), values.get("title", ""), values.get("summary", ""), source)


@functools.cache
def _literals(path: Path, names: tuple[str, ...]) -> Mapping[str, Any] | None:
    """The literals of ``METHOD = Method(...)`` in a file; None where there is no such line or one is no literal."""
    try:
        text = path.read_text(encoding="utf-8")
        if "METHOD" not in text:
            return None  # a method's numerics; parsing them all would be most of the time that listing takes
        tree = ast.parse(text)
    except (OSError, SyntaxError):
        return None
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and any(isinstance(target, ast.Name) and target.id == "METHOD" for target in node.targets)
        ):
            values = {}
            for keyword in node.value.keywords:
                if keyword.arg in names:
                    try:
                        values[keyword.arg] = ast.literal_eval(keyword.value)
                    except ValueError:
                        return None
            return values
    return None
