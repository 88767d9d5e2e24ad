"""pyarrow, imported by what first uses it: every run imports the modules that read tables, and few read any."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Later:
    """Stands for a module that is not imported yet."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, key: str) -> Any:
        found = getattr(import_module(self._name), key)
        setattr(self, key, found)  # asked for once: reading a table takes thousands of these
        return found


pa: Any = _Later("pyarrow")
pc: Any = _Later("pyarrow.compute")
