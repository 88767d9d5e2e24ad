"""What has left a silo in all, kept with its data: a log that is damaged, moved or deleted does not lower it.

The log (``federation.journal``) says what left, message by message; this file says what that comes to, for the bounds
of the owner's policy over all runs. It lies beside ``silo.yaml`` and is the data's, so that a silo that joins a second
federation, under whatever name, goes on with it. A message is counted, on the disk, before it leaves. Where the file
cannot be read, nothing leaves that would have to be counted: its owner says what happens, with ``graphsilo silo log LOG
--repair SILO.yaml``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from graphsilo.errors import DisclosureError

_NAMES = {"squared_mu", "bytes"}


@dataclass(frozen=True)
class Spent:
    """What left.

    Attributes:
        squared_mu: Σ μ² over messages with noise: together they tell as much as one release with its root
            (``federation.noise``).
        bytes: Of tensors and text.
    """

    squared_mu: float = 0.0
    bytes: int = 0

    @property
    def mu(self) -> float:
        """What all releases with noise tell together."""
        return math.sqrt(self.squared_mu)

    def plus(self, mu: float | None, size: int) -> Spent:
        """What will have left with a message more: what it tells, if it is a release with noise, and its bytes."""
        return Spent(self.squared_mu + (0.0 if mu is None else mu * mu), self.bytes + size)


class Account:
    """One silo's.

    Args:
        path: Its file (``SiloFile.record``), made when something is first counted. Only its owner can read it.
    """

    def __init__(self, path: Path):
        self.path = path

    def read(self) -> Spent | None:
        """What is counted so far; None where nothing was ever counted.

        Raises:
            DisclosureError: The file cannot be read.
        """
        try:
            tree = json.loads(self.path.read_bytes())
            found = Spent(**{name: tree[name] for name in _NAMES})
            if not (0 <= found.squared_mu < math.inf and found.bytes >= 0):
                raise ValueError
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise DisclosureError(
                f"the silo's account {self.path.name} cannot be read ({type(error).__name__}), so that nobody knows "
                f"what has left the silo in all, and nothing leaves that counts. Its owner may have it made again from "
                f"the log: graphsilo silo log LOG --repair SILO.yaml"
            ) from None
        return found

    def write(self, spent: Spent) -> None:
        """Put this in place of what was counted.

        Raises:
            DisclosureError: It cannot be written.
        """
        from graphsilo.data.sources.atomic import atomic_file

        text = json.dumps({name: getattr(spent, name) for name in sorted(_NAMES)})
        try:
            with atomic_file(self.path, 0o600) as file:
                file.write(text.encode())
        except OSError as error:
            raise self._make_error(error) from error

    @contextmanager
    def lock(self) -> Iterator[None]:
        """While nobody else counts: silos' processes of several federations may share the file.

        Raises:
            DisclosureError: Nothing can be written there.
        """
        from graphsilo.data.sources.atomic import lock_file

        try:
            with lock_file(self.path.with_name(f"{self.path.name}.lock")):
                yield
        except OSError as error:
            raise self._make_error(error) from error

    def _make_error(self, error: OSError) -> DisclosureError:
        return DisclosureError(
            f"the silo's account {self.path.name} cannot be written ({error.strerror}), and nothing is sent that is "
            f"not counted. Its owner must make room for it, or mend its folder; then the run can go on."
        )
