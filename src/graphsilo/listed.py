"""Entries that are listed without being imported: files that end with ``METHOD = Method(...)`` or the like."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from graphsilo.errors import ConfigError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

ListingT = TypeVar("ListingT")


def find_files(folder: Traversable) -> Iterator[tuple[Traversable, str]]:
    """Files of a folder, which may be part of an archive, and packages by their ``__init__.py``, with the module's last
    name; none with a ``_``."""
    for path in sorted(folder.iterdir(), key=lambda each: each.name):
        if path.name.startswith((".", "_")):
            continue
        if path.name.endswith(".py"):
            yield path, path.name.removesuffix(".py")
        elif path.is_dir() and (path / "__init__.py").is_file():
            yield path / "__init__.py", path.name


def read_listing(path: Traversable, statement: str, kind: type[ListingT], wanted: str) -> ListingT:
    """The literals of a file's last statement. Only what stands from there on is parsed.

    Args:
        path: The file.
        statement: What the entry is called there, such as METHOD.
        kind: A dataclass; arguments that it has no field for are not read. ``about=__doc__`` is the text that the
            file begins with.
        wanted: What such a file says, for errors.

    Raises:
        ConfigError: There is no such statement, or one of these arguments is no literal. Names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); {wanted}.") from None
    found = re.search(rf"^(\w+ = )?{statement}\b[^=\n]*= ", text, re.MULTILINE)
    if found is None:
        raise ConfigError(f"{path}: there is no {statement}; {wanted}. Other files begin with an underscore.")
    before = text.count("\n", 0, found.start())
    try:
        call = ast.parse(text[found.start() :]).body[0].value  # type: ignore[attr-defined]
    except SyntaxError as error:
        raise ConfigError(f"{path}, line {before + (error.lineno or 1)}: {error.msg}; {wanted}.") from None
    if not isinstance(call, ast.Call):
        raise ConfigError(f"{path}, line {before + 1}: {statement} is no call; {wanted}.")
    literals = {field.name for field in dataclasses.fields(kind)} - {"source"}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg == "about" and ast.unparse(keyword.value) == "__doc__":
            values["about"] = "".join(text.split('"""', 2)[1:2])
        elif keyword.arg in literals:
            try:
                values[keyword.arg] = ast.literal_eval(keyword.value)
            except ValueError:
                raise ConfigError(
                    f"{path}, line {before + keyword.value.lineno}: '{keyword.arg}' must be written out, since a "
                    f"{statement} is listed without being imported; `{ast.unparse(keyword.value)}` came."
                ) from None
    if not values.get("name"):
        raise ConfigError(f"{path}, line {before + 1}: {statement} says no name; {wanted}.")
    return kind(**values)
