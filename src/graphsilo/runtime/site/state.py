"""What a site keeps of a run: who took part in it, and what its clients know after a round. None of it is ever sent.

The coordinator only says when to keep one and which to go back to, by a mark such as ``seed0-round12``.
"""

from __future__ import annotations

import hmac
import json
import re
import shutil
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import numpy as np

from graphsilo.data.sources.atomic import atomic_file
from graphsilo.errors import MessageError, RunError
from graphsilo.federation.codec import decode_tree, encode_tree

KEPT = 2
"""Checkpoints of a seed that are kept: the coordinator may have stopped before it wrote the newest one down."""
_OPENED = "opened.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


class SiteState:
    """What is kept of one run at one site.

    Args:
        folder: Of all runs; each gets a folder of its own.
        run: Name of the run, given by the coordinator and checked here.
        secret: Known to nobody else. A checkpoint that was not written with it is refused: a folder that somebody hands
            over may hold any. Empty: whoever could write there may go on from what they like.

    Raises:
        RunError: The name is none.
    """

    def __init__(self, folder: Path, run: str, secret: bytes = b""):
        self.folder, self._secret = folder / safe_name(run), secret

    def save(self, mark: str, tree: Mapping[str, Any]) -> None:
        """Keep a checkpoint; older ones of the same seed but the last are removed.

        Raises:
            RunError: The disk is full or cannot be written; what was kept before is unharmed.
        """
        path = self._path(mark)
        data = encode_tree(dict(tree))
        digest = np.frombuffer(self._tag(mark, data.data), dtype=np.uint8)
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with atomic_file(path) as file:
                file.write(digest.data)
                file.write(data.data)
        except OSError as error:
            raise RunError(
                f"the site's checkpoint {path.name} could not be written ({error.strerror}): free some space there."
            ) from error
        seed = mark.partition("-")[0]
        old = sorted(self.folder.glob(f"{seed}-*.ckpt"), key=lambda item: (item.stat().st_mtime_ns, item.name))
        for item in old[:-KEPT]:
            if item != path:
                item.unlink(missing_ok=True)

    def load(self, mark: str) -> dict[str, Any]:
        """The checkpoint of a mark.

        Raises:
            RunError: It is not there or damaged.
        """
        path = self._path(mark)
        try:
            raw = np.fromfile(path, dtype=np.uint8)
        except FileNotFoundError:
            held = sorted(item.stem for item in self.folder.glob("*.ckpt"))
            raise RunError(
                f"this site holds no checkpoint '{mark}' of run '{self.folder.name}', only "
                f"{', '.join(held) or 'none at all'}. Begin the run again with another --out."
            ) from None
        except OSError as error:
            raise RunError(f"the site's checkpoint {path.name} cannot be read ({error.strerror}).") from None
        if len(raw) < 32 or not hmac.compare_digest(self._tag(mark, raw[32:].data), raw[:32].tobytes()):
            raise RunError(
                f"the site's checkpoint {path.name} is damaged, or was written by somebody else. Begin the run again "
                f"with another --out."
            )
        try:
            return dict(decode_tree(raw[32:].tobytes()))
        except MessageError as error:
            raise RunError(f"the site's checkpoint {path.name} cannot be read: {error}") from None

    def note_opened(self, data: Mapping[int, str], singles: Iterable[str] | None) -> None:
        """Keep which clients a run was opened for, the hash of the data that each has, and what was agreed on.

        Args:
            data: By client.
            singles: Steps of which single answers may be seen; None: all.

        Raises:
            RunError: The disk is full or cannot be written.
        """
        agreed = None if singles is None else sorted(singles)
        noted = {"clients": sorted({**self.read_clients(), **data}.items()), "singles": agreed}
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with atomic_file(self.folder / _OPENED) as file:
                file.write(json.dumps(noted).encode())
        except OSError as error:
            raise RunError(f"{_OPENED} could not be written at the site ({error.strerror}).") from error

    def read_clients(self) -> dict[int, str]:
        """Clients that this run was opened for, each with the hash of its data; none where it never was, or is over."""
        try:
            return {int(client): str(data) for client, data in self._read_opening()["clients"]}
        except (OSError, ValueError, TypeError, LookupError):
            return {}

    def agrees(self, singles: AbstractSet[str] | None) -> bool:
        """Whether the run was opened with these words on single answers, or never.

        Raises:
            RunError: What was kept of it cannot be read.
        """
        try:
            found = self._read_opening()["singles"]
            return singles == (None if found is None else frozenset(found))
        except FileNotFoundError:
            return True
        except (OSError, ValueError, TypeError, LookupError):
            raise RunError(
                f"the site cannot read in {self.folder / _OPENED} under which words run '{self.folder.name}' was "
                f"opened. Begin another run with another --out."
            ) from None

    def _read_opening(self) -> Any:
        return json.loads((self.folder / _OPENED).read_bytes())

    def forget(self, complete: bool) -> None:
        """Remove the checkpoints: the run is finished; and what was agreed on, once nobody can open it again."""
        for item in self.folder.glob("*.ckpt"):
            item.unlink(missing_ok=True)
        if complete:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _tag(self, mark: str, data: Any) -> bytes:
        tag = hmac.new(self._secret, f"{self.folder.name} {mark} ".encode(), "sha256")
        tag.update(data)
        return tag.digest()

    def _path(self, mark: str) -> Path:
        return self.folder / f"{safe_name(mark)}.ckpt"


def safe_name(name: object) -> str:
    """A name from outside that may become a file's.

    Raises:
        RunError: It may not.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or ".." in name:
        raise RunError(
            f"{str(name)[:80]!r} is no name for a run or a checkpoint: small letters, digits, - _ and . only."
        )
    return name
