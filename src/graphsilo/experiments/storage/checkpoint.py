"""Checkpoints: everything a seed needs to go on after ``kill -9``, written atomically.

One file, which is replaced, and one with the finished rounds, which only grows (``history.py``). Beside them stand the
states of clients that were offloaded: links to the files that offloading wrote, so that a checkpoint of a thousand
clients neither holds them in memory nor copies those that have not changed. What many clients share stands there, too,
once, whether they are offloaded or not.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphsilo.errors import ConfigError, MessageError, RunError
from graphsilo.experiments.storage.disk import write_bytes
from graphsilo.experiments.storage.history import History
from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.runtime.local.offloading import OffloadedState, link_or_copy
from graphsilo.runtime.local.shared_files import encode_shared, join_shared, read_shared, split_shared
from graphsilo.training.sharing import SharedTensors

FORMAT = 7


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: ``OUT/checkpoints``.
        fingerprint: Of configuration, data and partition; a checkpoint of something else is refused.
        settings: Complete settings of the run, kept with each checkpoint.
        reason: Says in what the run differs from one with other settings.
    """

    def __init__(
        self,
        folder: Path,
        fingerprint: str,
        settings: Mapping[str, Any] | None = None,
        reason: Callable[[Any], str] = lambda begun: "choose another --out.",
    ):
        self.folder, self.fingerprint, self.settings, self.reason = folder, fingerprint, settings, reason
        self._digests: dict[tuple[int, int, int], str] = {}  # of files that were looked through
        self._histories: dict[int, History] = {}

    @property
    def seeds(self) -> list[int]:
        """Which seeds have a checkpoint."""
        names = (path.stem.removeprefix("seed-") for path in self.folder.glob("seed-*.ckpt"))
        return sorted(int(name) for name in names if name.removeprefix("-").isdecimal())

    def save(self, seed: int, tree: Mapping[str, Any], rows: Mapping[str, list[Any]]) -> None:
        """Replace the seed's checkpoint. Clients that are offloaded keep their files, under other names beside it.

        Args:
            seed: Of training.
            tree: The state now.
            rows: What has come since the last checkpoint, by table; ``load`` gives back those of all checkpoints.

        Raises:
            RunError: The disk is full or cannot be written; the checkpoint before is unharmed.
        """
        history = self._history(seed)
        history.append(rows)
        names: set[str] = set()
        if tree.get("clients"):
            clients, shared = split_shared(
                {
                    client: self._keep_files(seed, state, names) if isinstance(state, OffloadedState) else state
                    for client, state in tree["clients"].items()
                }
            )
            for name, tensors in shared.items():
                names.add(name)
                self._write_shared(seed, name, tensors)
            if names:
                _flush(self._beside(seed))
            tree = {**tree, "clients": clients}
        head = {"format": FORMAT, "fingerprint": self.fingerprint, "settings": self.settings, "history": history.mark}
        data = encode_tree({**head, **tree})
        digest = hashlib.sha256(data.data).digest()
        write_bytes(self._path(seed), np.concatenate([np.frombuffer(digest, dtype=np.uint8), data]).data)
        if self._beside(seed).exists():  # only now is nothing but these files needed
            for path in self._beside(seed).iterdir():
                if path.name not in names:
                    path.unlink()
            if not names:
                self._beside(seed).rmdir()

    def load(self, seed: int) -> dict[str, Any] | None:
        """The seed's checkpoint, with the rows of its rounds as ``history``; None where there is none.

        Raises:
            ConfigError: It belongs to another configuration, data or partition.
            RunError: It is damaged.
        """
        path = self._path(seed)
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            self._histories.pop(seed, None)  # rows without a checkpoint belong to nothing
            return None
        except OSError as error:
            raise RunError(f"the checkpoint {path} cannot be read ({error.strerror}).") from None
        if len(raw) < 32 or hashlib.sha256(raw[32:]).digest() != raw[:32]:
            raise RunError(f"the checkpoint {path} is damaged. Delete it to start seed {seed} again, then --resume.")
        try:
            tree = decode_tree(raw[32:])
        except MessageError as error:
            raise RunError(f"the checkpoint {path} cannot be read: {error}") from None
        if tree.get("format") != FORMAT:
            raise RunError(f"the checkpoint {path} has format {tree.get('format')}; this graphsilo reads {FORMAT}.")
        if tree["fingerprint"] != self.fingerprint:
            raise ConfigError(
                f"the checkpoint {path} belongs to another configuration, data set or partition: "
                f"{self.reason(tree['settings'])}"
            )
        if "clients" in tree:
            tree["clients"] = {
                client: self._find_files(seed, state)
                if "offloaded" in state
                else join_shared(state, lambda digest: self._read_shared(seed, digest))
                for client, state in tree["clients"].items()
            }
        return {**tree, "history": self._history(seed).read(tree["history"])}

    def _history(self, seed: int) -> History:
        return self._histories.setdefault(seed, History(self.folder / f"seed-{seed}.history"))

    def _keep_files(self, seed: int, state: OffloadedState, names: set[str]) -> dict[str, Any]:
        """What the checkpoint says of a offloaded client; its files are called after their contents, and noted."""
        if state.path is None:
            return {"offloaded": None, "remember": list(state.remember), "shared": []}
        found = []
        try:
            self._beside(seed).mkdir(parents=True, exist_ok=True)
            for path in (state.path, *map(state.path.with_name, state.shared)):
                found.append(self._digest(path, flush=True))
                link_or_copy(path, self._beside(seed) / found[-1])
        except OSError as error:
            raise RunError(f"the state at {state.path} could not be kept ({error.strerror}).") from error
        names.update(found)
        return {"offloaded": found[0], "remember": list(state.remember), "shared": list(state.shared)}

    def _find_files(self, seed: int, state: Mapping[str, Any]) -> OffloadedState:
        """A offloaded client's state, whose files are looked through once."""
        if state["offloaded"] is None:
            return OffloadedState(None, tuple(state["remember"]))
        shared = tuple(state["shared"])
        path, *others = (self._beside(seed) / name for name in (state["offloaded"], *shared))
        for each in (path, *others):
            self._require_whole(seed, each)
        return OffloadedState(path, tuple(state["remember"]), shared)

    def _write_shared(self, seed: int, name: str, tensors: SharedTensors) -> None:
        """Keep what clients in memory share; it never changes, so that it is written once."""
        path = self._beside(seed) / name
        if path.exists():
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"the folder {path.parent} could not be made ({error.strerror}).") from error
        write_bytes(path, encode_shared(tensors).data)

    def _read_shared(self, seed: int, name: str) -> SharedTensors:
        path = self._beside(seed) / name
        self._require_whole(seed, path)
        return read_shared(path)

    def _require_whole(self, seed: int, path: Path) -> None:
        """Refuse a file that does not hold what it is called after."""
        try:
            whole = self._digest(path) == path.name
        except OSError:
            whole = False
        if not whole:
            raise RunError(
                f"the checkpoint {self._path(seed)} is damaged: {path} is missing or changed. Delete both to start "
                f"seed {seed} again, then --resume."
            )

    def _digest(self, path: Path, *, flush: bool = False) -> str:
        """sha256 of a file that is never written to again, looked through once however many names it has."""
        facts = path.stat()
        known = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
        if known not in self._digests:
            with path.open("rb") as file:
                if flush:
                    os.fsync(file.fileno())
                self._digests[known] = hashlib.file_digest(file, "sha256").hexdigest()
        return self._digests[known]

    def _beside(self, seed: int) -> Path:
        """Where the files of offloaded clients stand, and of what clients share."""
        return self.folder / f"seed-{seed}.clients"

    def _path(self, seed: int) -> Path:
        return self.folder / f"seed-{seed}.ckpt"


def _flush(folder: Path) -> None:
    """Have the names in a folder on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
