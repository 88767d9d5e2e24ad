"""Where the states of offloaded clients stand."""

from __future__ import annotations

import shutil
from pathlib import Path

from graphsilo.errors import RunError


class OffloadFolder:
    """A folder for the states of offloaded clients, for as long as a run lasts.

    Args:
        beside: Folder of the run, which this process owns; states stand in its ``offloaded``, so that checkpoints can
            be links to them. None takes a temporary folder.
    """

    def __init__(self, beside: Path | None):
        self._beside = beside
        self._folder: Path | None = None
        self._lock: int | None = None
        self._count = 0
        if beside is not None:  # what a killed process left
            shutil.rmtree(beside / "offloaded", ignore_errors=True)

    def make_empty(self) -> Path:
        """An empty folder for one federation; what the one before offloaded is removed.

        Raises:
            RunError: It cannot be made.
        """
        try:
            if self._folder is None:
                if self._beside is None:
                    from graphsilo.runtime.local.temporary import make_folder, remove_abandoned

                    remove_abandoned()
                    self._folder, self._lock = make_folder()
                else:
                    self._folder = self._beside / "offloaded"
                    self._folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(self._folder / str(self._count), ignore_errors=True)
            self._count += 1
            place = self._folder / str(self._count)
            place.mkdir()
        except OSError as error:
            raise RunError(
                f"a folder for clients that are not in memory could not be made ({error}). Free some space, or choose "
                f"another --out."
            ) from error
        return place

    def close(self) -> None:
        """Remove the folder."""
        if self._folder is not None:
            from graphsilo.runtime.local.temporary import remove_folder

            remove_folder(self._folder, self._lock)
            self._folder = self._lock = None
