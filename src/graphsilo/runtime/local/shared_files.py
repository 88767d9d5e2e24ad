"""Tensors that many clients hold, once per folder: the clients' states refer to a file called after its contents.

A state may hold ``SharedTensors`` anywhere. Before states are written or sent, ``split_shared`` puts a reference in
their place; ``join_shared`` gives back the one object that this process holds, or reads the file where nobody holds it
any more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.errors import RunError
from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.training.sharing import SharedTensors, find_by_digest, register_digest

_REFERENCE = "\x00shared"


def split_shared(tree: Any) -> tuple[Any, dict[str, SharedTensors]]:
    """A tree with references to its ``SharedTensors`` in their places, and these by digest."""
    found: dict[str, SharedTensors] = {}

    def walk(value: Any) -> Any:
        if isinstance(value, SharedTensors):
            digest = digest_of(value)
            found[digest] = value
            return {_REFERENCE: digest}
        if isinstance(value, Mapping):
            return {key: walk(item) for key, item in value.items()}
        return [walk(item) for item in value] if isinstance(value, list | tuple) else value

    return walk(tree), found


def join_shared(tree: Any, find: Callable[[str], SharedTensors]) -> Any:
    """The tree that ``split_shared`` was given, with what ``find`` gives for a digest in place of each reference."""
    if isinstance(tree, dict):
        if _REFERENCE in tree:
            return find(tree[_REFERENCE])
        return {key: join_shared(item, find) for key, item in tree.items()}
    return [join_shared(item, find) for item in tree] if isinstance(tree, list) else tree


def digest_of(tensors: SharedTensors) -> str:
    """sha256 of what a file of them holds, found once; they are known by it from then on."""
    if tensors.digest is None:
        register_digest(tensors, hashlib.sha256(encode_shared(tensors).data).hexdigest())
    return str(tensors.digest)


def encode_shared(tensors: SharedTensors) -> NDArray[np.uint8]:
    """What a file of them holds."""
    return encode_tree(dict(tensors))


def write_shared(path: Path, tensors: SharedTensors) -> None:
    """Write them into a file called after their digest, unless it is there.

    Raises:
        OSError: The disk is full or cannot be written; nothing is left of the file.
    """
    if path.exists():
        return
    partial = path.with_name(f"{path.name}.part")
    try:
        with partial.open("wb") as file:
            file.write(encode_shared(tensors).data)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def read_shared(path: Path) -> SharedTensors:
    """The tensors of a file called after their digest; from memory, if this process holds them.

    Raises:
        RunError: The file is missing, or does not hold what it is called after.
    """
    found = find_by_digest(path.name)
    if found is not None:
        return found
    try:
        data = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise RunError(
            f"what offloaded clients share could not be read from {path} ({error.strerror}). Continue with --resume."
        ) from error
    if hashlib.sha256(data.data).hexdigest() != path.name:
        raise RunError(f"what offloaded clients share, in {path}, has changed. Continue with --resume.")
    return register_digest(SharedTensors(decode_tree(data)), path.name)


def share_received(digest: str, tensors: Mapping[str, Any]) -> SharedTensors:
    """Tensors that came from another process, or those of the same digest that this one holds."""
    return find_by_digest(digest) or register_digest(SharedTensors(tensors), digest)
