"""A plugin for pytest: the package has the methods of one more folder, which HELD_OUT names, among its own."""

from __future__ import annotations

import os
from pathlib import Path

from graphsilo import methods
from graphsilo.federation import registry

FOLDER = Path(os.environ["HELD_OUT"])
of_package = registry.find_files
methods.__path__.append(str(FOLDER))
registry.find_files = lambda folder: iter([*of_package(folder), *of_package(FOLDER)])
