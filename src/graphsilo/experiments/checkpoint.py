"""Checkpoints: everything a seed needs to go on after ``kill -9``, in one file, written atomically."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphsilo.errors import MessageError, RunError
from graphsilo.experiments.disk import write_bytes
from graphsilo.federation.codec import decode_tree, encode_tree

FORMAT = 1


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: ``OUT/checkpoints``.
        fingerprint: Of configuration, data and partition; a checkpoint of something else is refused.
        reason: Says in what the run differs from the one that the folder holds.
    """

    def __init__(self, folder: Path, fingerprint: str, reason: Callable[[], str] = lambda: "choose another --out."):
        self.folder, self.fingerprint, self.reason = folder, fingerprint, reason

    def save(self, seed: int, tree: Mapping[str, Any]) -> None:
        """Replace the seed's checkpoint."""
        data = encode_tree({"format": FORMAT, "fingerprint": self.fingerprint, **tree})
        digest = hashlib.sha256(data.data).digest()
        write_bytes(self._path(seed), np.concatenate([np.frombuffer(digest, dtype=np.uint8), data]).data)

    def load(self, seed: int) -> dict[str, Any] | None:
        """The seed's checkpoint; None where there is none.

        Raises:
            RunError: It is damaged, or belongs to another configuration, data or partition.
        """
        path = self._path(seed)
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunError(f"the checkpoint {path} cannot be read ({error.strerror}).") from None
        if len(raw) < 32 or hashlib.sha256(raw[32:]).digest() != raw[:32]:
            raise RunError(f"the checkpoint {path} is damaged. Delete it to start seed {seed} anew, then --resume.")
        try:
            tree = decode_tree(raw[32:])
        except MessageError as error:
            raise RunError(f"the checkpoint {path} cannot be read: {error}") from None
        if tree.get("format") != FORMAT:
            raise RunError(f"the checkpoint {path} has format {tree.get('format')}; this graphsilo reads {FORMAT}.")
        if tree["fingerprint"] != self.fingerprint:
            raise RunError(
                f"the checkpoint {path} belongs to another configuration, data set or partition: {self.reason()}"
            )
        return dict(tree)

    def _path(self, seed: int) -> Path:
        return self.folder / f"seed-{seed}.ckpt"
