"""What a person brings along: methods, models and partition rules in a file, a module or the running session.

Such a thing has a name in every table and report, and a place where any process finds it again: ``/path/net.py:Net`` or
``package.module:Net``. It is loaded here alone, and only if ``trust.check`` lets it: the person named it in this
command, or has trusted it as it is.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from graphsilo.data import partition
from graphsilo.errors import ConfigError, nearest, several
from graphsilo.evaluate.metrics import Metric
from graphsilo.federation import registry, trust
from graphsilo.federation.registry import Method
from graphsilo.models.registry import adopt as adopt_model
from graphsilo.models.settings import ModelEntry

SESSION = "__main__"
_OPENED = "graphsilo_own_"  # how modules that were opened as files are called, with their stem and a hash
_PLACE = re.compile(r"(?P<where>.+\.py|[A-Za-z_]\w*(?:\.\w+)*(?=:))(?::(?P<name>[A-Za-z_][\w.]*))?")


class Own(NamedTuple):
    """Where a thing is found again.

    Attributes:
        place: ``file.py:NAME`` or ``module:NAME``; ``__main__:NAME`` in a script or notebook, ``module:<NAME>``
            inside a function.
        sha256: Of the file, or of the code in a script or notebook; empty for an installed package.
    """

    place: str
    sha256: str

    @property
    def is_findable(self) -> bool:
        """Whether another process finds it."""
        return is_findable(self.place)


def is_findable(place: str) -> bool:
    """Whether another process finds what is at a place."""
    return not place.startswith(f"{SESSION}:") and "<" not in place


class NothingFound(ConfigError):
    """A file holds nothing of the kind that is looked for."""


@dataclass(frozen=True)
class Kind:
    """What can be brought along for a section of the settings.

    Attributes:
        variable: What a file calls it where it holds several.
        wanted: What it is, in words.
        is_one: Whether something in a file is one without being named so.
        adopt: Makes it known under a name and returns the one it has.
    """

    variable: str
    wanted: str
    is_one: Callable[[Any], bool]
    adopt: Callable[[str, Any], str]


def _is_module(thing: Any) -> bool:
    torch = sys.modules.get("torch")  # without it there is no such class
    if isinstance(thing, ModelEntry) or torch is None:
        return isinstance(thing, ModelEntry)
    return isinstance(thing, type) and issubclass(thing, torch.nn.Module) and not _is_inner(thing)


def _is_inner(thing: Any) -> bool:
    """Whether it is a class of graphsilo's own kind, which comes with an entry."""
    from graphsilo.models.base import Model

    return isinstance(thing, type) and issubclass(thing, Model)


def _is_rule(thing: Any) -> bool:
    return isinstance(thing, partition.Rule) or inspect.isfunction(thing)


def _adopt_metric(name: str, thing: Any) -> str:
    from graphsilo.evaluate.adopting import adopt

    return adopt(name, thing)


KINDS = {
    "method": Kind("METHOD", "METHOD = Method(...)", lambda thing: isinstance(thing, Method), registry.adopt),
    "model": Kind("MODEL", "a class that derives from torch.nn.Module", _is_module, adopt_model),
    "partition": Kind("RULE", "a function (graph, clients, seed)", _is_rule, partition.adopt),
    "metric": Kind("METRIC", "METRIC = Metric(...)", lambda thing: isinstance(thing, Metric), _adopt_metric),
}

_ENTRIES = Method | ModelEntry | partition.Rule | Metric

_KNOWN: dict[tuple[str, str], Own] = {}
_RAN: dict[str, str] = {}  # keys of the files that were run here


def bring(
    section: str, value: Any, folder: Path | None = None, *, named: bool = False
) -> tuple[str, Own | None] | None:
    """Make known what a person says of a section where it is something of their own.

    Args:
        section: ``method``, ``model``, ``partition`` or ``metric``.
        value: ``net.py``, ``net.py:Net``, ``package.module:Net``, or the thing itself.
        folder: What paths are relative to; None: where the process is.
        named: Whether the person says it in this very command; what a file says must be trusted.

    Returns:
        Its name and place; no place for what graphsilo has itself. None where the value is a plain name, or nothing
        that could be brought along.

    Raises:
        ConfigError: There is no such file or name, it may not run or cannot be imported, or is not what is wanted.
    """
    kind, digest = KINDS[section], None
    if isinstance(value, str):
        if not (said := _PLACE.fullmatch(value)):
            return None
        if named:
            trust.allow(dict([find_key(value, folder)]))
        where = _locate(said["where"], folder)
        module, digest = _open_module(value, where)
        name, thing = _choose(kind, module, said["name"], value)
        place = f"{where}:{name}"
    elif isinstance(value, _ENTRIES) or inspect.isclass(value) or inspect.isroutine(value):
        thing, place = value, place_of(value)
        if is_findable(place):
            _allow_again(place)
    elif section == "model" and hasattr(value, "forward"):
        raise ConfigError(
            f"model: this {type(value).__name__} is made already, and every client trains one of its own. Give the "
            f"class, {{'name': {type(value).__name__}, ...}} with its settings, or a function f(inputs, outputs) that "
            f"makes one."
        )
    else:
        return None
    if section == "model" and _is_inner(thing):
        raise ConfigError(
            f"model: {thing.__qualname__} derives from graphsilo's Model, which has settings and an entry in the list "
            f"of models: give its ModelEntry."
        )
    known_as = kind.adopt(_title(place), thing)
    if section == "method" and known_as not in registry.list_registered():
        return known_as, None
    own = _KNOWN[section, known_as] = Own(place, _digest(place, thing) if digest is None else digest)
    return known_as, own


def admit(section: str, name: str, own: Own) -> None:
    """Make known again what a run was begun with.

    Raises:
        ConfigError: It is not there any more, has changed, or was a session's that is over.
    """
    changed = own.is_findable and own.sha256 not in ("", find_key(own.place)[0])  # seen before it runs
    if not changed:
        found = bring(section, own.place) if own.is_findable else _find_in_session(section, name, own.place)
        if found is None or found[1] is None or found[0] != name:
            raise ConfigError(
                f"{section} '{name}' was defined in a script or notebook that is over ({own.place}): other commands "
                f"and processes cannot find it. Define it again and call graphsilo from there; or put it into a file "
                f"and say {section}='file.py' in the next run."
            )
        changed = found[1].sha256 != own.sha256
    if changed:
        new = f"--{section} {own.place}" if own.is_findable else f"{section}={name.rpartition('.')[2]}"
        raise ConfigError(
            f"{section} '{name}' has changed since the run was begun: {own.place} is not what it was. Put it back, or "
            f"name it again ({new}) in a new folder to run what it is now."
        )


def _find_in_session(section: str, name: str, place: str) -> tuple[str, Own | None] | None:
    known, module = _KNOWN.get((section, name)), sys.modules.get(SESSION)
    thing = None if "<" in place or module is None else _look_up(module, place.partition(":")[2])
    if thing is not None and place_of(thing) == place:  # defined there, not only imported
        return bring(section, thing)
    return None if known is None else (name, known)


def locate_error(error: BaseException) -> str:
    """File and line of a person's own code that an error came through, the innermost; empty where it came through none.

    Example:
        >>> locate_error(ValueError("nobody's"))
        ''
    """
    places = [own.place.rpartition(":")[0] for own in _KNOWN.values()]
    parts = [
        part for name in registry.list_registered() for part in (registry.load(name).client, registry.load(name).server)
    ]
    known, found, here = {*places, *(part.__module__ for part in parts)}, "", error.__traceback__
    while here is not None:
        file, module = here.tb_frame.f_code.co_filename, str(here.tb_frame.f_globals.get("__name__"))
        if (file in known or module in known or module.startswith(_OPENED)) and not module.startswith("graphsilo."):
            found = f"{file}, line {here.tb_lineno}"
        here = here.tb_next
    return found


# -- places --------------------------------------------------------------------------------------------------------


def place_of(thing: Any) -> str:
    """Where a class, a function or an entry is found again; with ``<`` in it where it is not."""
    for module, name in _homes(thing):
        if _look_up(module, name) is thing:
            return f"{_place_of_module(module)}:{name}"
    home = getattr(thing, "__module__", SESSION) if hasattr(thing, "__qualname__") else SESSION
    called = str(getattr(thing, "__qualname__", None) or getattr(thing, "name", type(thing).__name__))
    return f"{home}:<{called.replace('<', '').replace('>', '')}>"


def address_of(kind: type) -> list[str]:
    """Module, name and file of a class, for a worker that must know it by the same module: messages carry its name."""
    where = _place_of_module(sys.modules[kind.__module__])
    if not where.endswith(".py"):
        return [kind.__module__, kind.__qualname__, ""]
    _allow_again(where)
    return [kind.__module__, kind.__qualname__, where]


def class_at(module: str, name: str, file: str) -> Any:
    """The class that ``address_of`` describes.

    Raises:
        ConfigError: It cannot be imported, may not run, or is not there.
    """
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        if not file:
            raise ConfigError(f"the module {module} cannot be imported ({error}).") from None
        source = _source(Path(file))
        named = trust.check(trust.key_of(source), file)
        found = sys.modules[module] = _execute(module, Path(file), source, named)
    return _require(found, name, f"{module}:{name}")


def _homes(thing: Any) -> Iterator[tuple[types.ModuleType, str]]:
    """Modules and names under which a thing may be found, the likeliest first."""
    near = {Method: "client", ModelEntry: "network", partition.Rule: "cut", Metric: "counts"}
    owner = getattr(thing, near.get(type(thing), ""), thing)
    for name in dict.fromkeys((getattr(owner, "__module__", None), SESSION)):
        module = sys.modules.get(str(name))
        if module is not None:
            if hasattr(thing, "__qualname__"):
                yield module, thing.__qualname__
            else:
                yield from ((module, key) for key, value in list(vars(module).items()) if value is thing)


def _look_up(module: types.ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _require(module: types.ModuleType, name: str, place: str) -> Any:
    found = _look_up(module, name)
    if found is None:
        names = [key for key in vars(module) if not key.startswith("_")]
        raise ConfigError(f"{place}: there is no '{name}'; {nearest(name, names)}")
    return found


def _place_of_module(module: types.ModuleType) -> str:
    """A module as another process finds it: by its file, unless it is installed or part of a package."""
    name, file = module.__name__, getattr(module, "__file__", None)
    if name == SESSION or file is None or not file.endswith(".py") or "." in name or _is_installed(Path(file)):
        return name
    return str(Path(file).resolve())


def _is_installed(file: Path) -> bool:
    paths = sysconfig.get_paths()
    return any(Path(paths[key]).resolve() in file.resolve().parents for key in ("stdlib", "platlib", "purelib"))


def _title(place: str) -> str:
    """What a thing is called: ``net.Net`` of ``/path/net.py:Net``."""
    where, _, name = place.rpartition(":")
    if where == SESSION:
        where = getattr(sys.modules[SESSION], "__file__", None) or "notebook"
    stem = Path(where).stem if where.endswith(".py") else where.rpartition(".")[2]
    return f"{stem}.{name.rpartition('.')[2].strip('<>')}"


def find_key(said: str, folder: Path | None = None) -> tuple[str, str]:
    """By what the code at a place is trusted, ``file.py``, ``file.py:NAME`` or ``module:NAME``, and where it is.

    Raises:
        ConfigError: It is no place, or the file cannot be read.
    """
    found = _PLACE.fullmatch(said)
    if found is None:
        raise ConfigError(f"'{said}' is no place of code; wanted is file.py, file.py:NAME or module:NAME.")
    where = _locate(found["where"], folder)
    if isinstance(where, Path):
        return trust.key_of(_source(where)), str(where)
    file = _file_of(where)
    return said if file is None else trust.key_of(_source(file)), said


def _allow_again(place: str) -> None:
    """Let run elsewhere what runs here already; of a file that was opened here the bytes that were run, no others."""
    found = _PLACE.fullmatch(place)
    file = "" if found is None else found["where"]
    trust.allow({_RAN[file]: file} if file in _RAN else dict([find_key(place)]))


def _locate(where: str, folder: Path | None) -> Path | str:
    """A file, or the name of a module."""
    if not where.endswith(".py"):
        return where
    path = Path(where).expanduser()
    return (path if folder is None else folder / path).resolve()


def _file_of(module: str) -> Path | None:
    """The file of a module that is not installed, found without running anything; None for all others."""
    spec, places, name = None, None, ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = importlib.machinery.PathFinder.find_spec(name, places)
        if spec is None:
            return None
        places = spec.submodule_search_locations
    file = None if spec is None or not spec.has_location or spec.origin is None else Path(spec.origin)
    return None if file is None or _is_installed(file) else file


def _source(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the file {path} cannot be read ({error.strerror}). Paths on the command line are relative to the folder "
            f"that you are in, those in a configuration file to its own."
        ) from None


def _open_module(said: str, where: Path | str) -> tuple[types.ModuleType, str | None]:
    """The module at a place, and the hash of the file that was run.

    Raises:
        ConfigError: It is not there, may not run, or raises an error.
    """
    if isinstance(where, str):
        trust.check(*find_key(said))
        try:
            return importlib.import_module(where), None
        except Exception as error:
            raise ConfigError(f"the module {where} cannot be imported: {type(error).__name__}: {error}.") from error
    source = _source(where)
    digest = trust.key_of(source)
    named = trust.check(digest, str(where))
    # By contents: a file that was changed is another module, and every process calls it alike.
    name = f"{_OPENED}{re.sub(r'[^0-9A-Za-z_]', '_', where.stem)}_{digest[:12]}"
    if name not in sys.modules or getattr(sys.modules[name], "__file__", None) != str(where):
        sys.modules[name] = _execute(name, where, source, named)
    return sys.modules[name], digest


class _Source(importlib.machinery.SourceFileLoader):
    """Runs the bytes that were looked at, whatever the file and Python's cache of it hold by now."""

    def __init__(self, name: str, path: str, source: bytes):
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> types.CodeType:
        _RAN[self.path] = trust.key_of(self._source)
        code: types.CodeType = self.source_to_code(self._source, self.path)
        return code


class _Beside:
    """Finds what a file imports from its own folder, as where it is run as a script.

    Args:
        file: Which imports.
        named: Whether the person named it, and with it what it imports.
    """

    def __init__(self, file: Path, named: bool):
        self._file, self._named = file, named

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        folder = self._file.parent
        places = [str(folder)] if path is None else [each for each in path if Path(each).is_relative_to(folder)]
        spec = importlib.machinery.PathFinder.find_spec(name, places) if places else None
        if spec is None or spec.loader is None or spec.origin is None:  # a folder without code of its own
            return spec
        source = _source(Path(spec.origin))
        if self._named:
            trust.allow({trust.key_of(source): spec.origin})
        trust.check(trust.key_of(source), spec.origin, importer=str(self._file))
        if isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Source(name, spec.origin, source)
        return spec


def _execute(name: str, path: Path, source: bytes, named: bool) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path, loader=_Source(name, str(path), source))
    assert spec is not None
    assert spec.loader is not None
    module, before = importlib.util.module_from_spec(spec), sys.modules.get(name)
    sys.modules[name] = module  # dataclasses and annotations look themselves up there
    beside = _Beside(path, named)
    sys.meta_path.insert(sys.meta_path.index(importlib.machinery.PathFinder), beside)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        sys.modules.pop(name) if before is None else sys.modules.update({name: before})
        if isinstance(error, ConfigError):
            raise
        line = _line(error, path)
        raise ConfigError(
            f"{path}{'' if line is None else f', line {line}'}: the file cannot be imported: {type(error).__name__}: "
            f"{error.msg if isinstance(error, SyntaxError) else error}."
        ) from error
    finally:
        sys.meta_path.remove(beside)
    return module


def _line(error: Exception, path: Path) -> int | None:
    if isinstance(error, SyntaxError):
        return error.lineno
    lines, here = [], error.__traceback__
    while here is not None:
        if here.tb_frame.f_code.co_filename == str(path):
            lines.append(here.tb_lineno)
        here = here.tb_next
    return lines[-1] if lines else None


def _choose(kind: Kind, module: types.ModuleType, name: str | None, said: str) -> tuple[str, Any]:
    """The thing of a name, or the only one in a module, and its name.

    Raises:
        ConfigError: There is none, or there are several.
    """
    if name is not None:
        return name, _require(module, name, said)
    if kind.variable in vars(module):
        return kind.variable, vars(module)[kind.variable]
    found = {
        key: value for key, value in vars(module).items()
        if not key.startswith("_") and kind.is_one(value) and getattr(value, "__module__", module.__name__) in
        (module.__name__, type(value).__module__)
    }  # fmt: skip
    entries = {key: value for key, value in found.items() if not (inspect.isclass(value) or inspect.isfunction(value))}
    found = entries or found
    if len(found) == 1:
        return next(iter(found.items()))
    if not found:
        raise NothingFound(
            f"{said} holds nothing that could be meant; wanted is {kind.wanted}. Write one, or name what to take: "
            f"{said}:NAME."
        )
    raise ConfigError(
        f"{said} holds {len(found)} things that could be meant: {several(found, 8)}. Say which: "
        f"{said}:{next(iter(found))}."
    )


# -- contents ------------------------------------------------------------------------------------------------------


def _digest(place: str, thing: Any) -> str:
    if is_findable(place):
        key, _ = find_key(place)
        return "" if key == place else key
    return hashlib.sha256(repr(list(_code(thing, set()))).encode()).hexdigest()


def _code(thing: Any, seen: set[int]) -> Iterator[Any]:
    """What a class or function of a session does, as text that is the same as long as it does the same."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, Method):
        for part in (thing.config, thing.client, thing.server):
            yield from _code(part, seen)
    elif isinstance(thing, types.CodeType):
        yield thing.co_code, thing.co_names
        for constant in thing.co_consts:
            yield from _code(constant, seen) if isinstance(constant, types.CodeType) else [repr(constant)]
    elif inspect.isclass(thing):
        for key, value in vars(thing).items():
            if inspect.isfunction(value) or isinstance(value, bool | int | float | str | tuple):
                yield key if key not in ("__doc__", "__module__", "__firstlineno__") else ""
                yield from _code(value, seen) if inspect.isfunction(value) else [repr(value)]
    elif inspect.isfunction(thing):
        yield repr(thing.__defaults__) if _is_plain(thing.__defaults__) else ""
        yield from _code(thing.__code__, seen)
    elif isinstance(thing, partition.Rule | Metric):
        yield from _code(thing.cut if isinstance(thing, partition.Rule) else thing.counts, seen)


def _is_plain(values: Any) -> bool:
    return all(isinstance(value, bool | int | float | str | None) for value in values or ())


__all__ = ["KINDS", "Own", "address_of", "admit", "bring", "class_at", "find_key", "is_findable", "place_of"]
