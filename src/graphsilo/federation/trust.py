"""Whose code runs here: what the person names in this command, and what this user has trusted before.

Everything else that stands in a configuration, a run's folder or a message is a name, which is looked up and never
loaded. Contents are trusted, not places: a key is the sha256 of a file's bytes. What is installed changes with its
package and was installed by the user; its key is where it is, ``torch_geometric.nn:GAT``.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from graphsilo.data.sources.atomic import atomic_file
from graphsilo.errors import ConfigError, one_line

_ALLOWED: dict[str, str] = {}
_KEY = re.compile(r"[0-9a-f]{64}")


def key_of(source: bytes) -> str:
    """By which the contents of a file are trusted.

    Example:
        >>> key_of(b"")[:8]
        'e3b0c442'
    """
    return hashlib.sha256(source).hexdigest()


def allow(found: Mapping[str, str]) -> None:
    """Let this process run what the person names in this command: keys, each with its place.

    What a file imports from beside it is named with it, where the file is at that place. Processes that are started
    from here for the same person get ``list_allowed()``.
    """
    _ALLOWED.update(found)


def list_allowed() -> dict[str, str]:
    """What may run in this process so far, with its place; without one where only the contents count."""
    return dict(_ALLOWED)


def check(key: str, place: str, *, importer: str = "") -> bool:
    """The one place where it is decided whether code of a file or a package may run.

    Args:
        key: Of the very bytes that are to run.
        place: Where they were found.
        importer: The file that imports it, where it is not named itself.

    Returns:
        Whether the person named it in this command, and with it what it imports from beside it.

    Raises:
        ConfigError: Nobody named it, and this user has not trusted it.
    """
    if key not in _ALLOWED and key in read_trusted():
        _ALLOWED[key] = ""
    if key in _ALLOWED:
        return _ALLOWED[key] == place
    what = f"the code in {place} (sha256 {key})" if _KEY.fullmatch(key) else f"the code of {place}"
    who = f"{importer} imports it" if importer else "a configuration or the folder of a run names it"
    said = shlex.quote(place)
    raise ConfigError(
        f"{what} does not run: {who}, and you have not named it in this command. Whoever wrote it could do with it "
        f"whatever you can do on this machine. Look at it first; then trust it, as it is now: graphsilo trust {said}; "
        f"or name it for this command alone, where it is run, plan, tune, predict or attack: --own {said}"
    )


# -- what this user trusts -----------------------------------------------------------------------------------------


def store() -> Path:
    """The file with what this user trusts: ``XDG_CONFIG_HOME/graphsilo/trusted``, else in ``~/.config``."""
    shared = Path(os.environ.get("XDG_CONFIG_HOME", ""))  # a relative one would be wherever somebody happens to be
    return (shared if shared.is_absolute() else Path.home() / ".config") / "graphsilo" / "trusted"


def read_trusted() -> dict[str, str]:
    """Keys that this user trusts, and where each was when it was.

    Raises:
        ConfigError: The file cannot be read, or others could have written it.
    """
    path = store()
    try:
        for each in (path, path.parent):
            status = each.stat()
            if os.name == "posix" and (status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o022):
                raise ConfigError(
                    f"{each} says what code this user trusts, and others may write to it. Look at {path}, then take "
                    f"that right away: chmod go-w {each}"
                )
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}, which says what code this user trusts, cannot be read ({error}).") from None
    return {key: place for key, _, place in (line.partition("  ") for line in lines) if key}


def trust(found: Mapping[str, str]) -> None:
    """Trust these keys, each with its place, from now on."""
    _write({**read_trusted(), **found})


def forget(said: str) -> dict[str, str]:
    """Trust no longer what was at a place, or has this key or its first eight letters or more; returns it.

    Raises:
        ConfigError: There is no such thing.
    """
    place, known = str(Path(said).expanduser().resolve()), read_trusted()
    gone = {
        key: at for key, at in known.items()
        if said in (key, at) or at == place or (len(said) >= 8 and _KEY.fullmatch(key) and key.startswith(said))
    }  # fmt: skip
    if not gone:
        raise ConfigError(f"{said} is not trusted. `graphsilo trust --list` shows what is.")
    _write({key: at for key, at in known.items() if key not in gone})
    return gone


def _write(known: dict[str, str]) -> None:
    path = store()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with atomic_file(path, 0o600) as file:
            file.write("".join(f"{key}  {one_line(at)}\n" for key, at in known.items()).encode())
    except OSError as error:
        raise ConfigError(f"{path}, where what you trust is kept, cannot be written ({error.strerror}).") from None


# -- a file and what it imports from beside it ---------------------------------------------------------------------


def find_keys(path: Path) -> dict[str, str]:
    """Keys of a file and of what it imports from beside it, as far as its text says; nothing is run.

    Raises:
        ConfigError: One of them cannot be read.
    """
    found: dict[str, str] = {}
    waiting, seen, folder = [path], set[Path](), path.parent
    while waiting:
        here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        try:
            source = here.read_bytes()
        except OSError as error:
            raise ConfigError(f"the file {here} cannot be read ({error.strerror}).") from None
        found[key_of(source)] = str(here)
        waiting += [place for place in _find_imports(source, here, folder) if place.is_file()]
    return found


def _find_imports(source: bytes, here: Path, folder: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return  # reported where somebody runs it
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names, base = [alias.name for alias in node.names], folder
        elif isinstance(node, ast.ImportFrom):
            base = here.parents[node.level - 1] if node.level else folder
            names = [".".join(filter(None, (node.module, alias.name))) for alias in node.names]
        else:
            continue
        for name in names:
            place = base
            for part in name.split("."):
                yield from (place / f"{part}.py", place / part / "__init__.py")
                place = place / part


__all__ = ["allow", "check", "find_keys", "forget", "key_of", "list_allowed", "read_trusted", "store", "trust"]
