"""Files of a run: atomic writes, tables, one process per folder."""

from __future__ import annotations

import contextlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphsilo.data.arrays import read_npz
from graphsilo.data.sources.files import atomic_file
from graphsilo.errors import RunError


class BusyError(RunError):
    """Another process is writing the folder."""


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Write a file so that it is either the old one or the whole new one, whatever happens.

    Raises:
        RunError: The disk is full or cannot be written; the old file, if any, is unharmed.
    """
    try:
        with atomic_file(path) as file:
            file.write(data)
    except OSError as error:
        raise RunError(
            f"{path} could not be written ({error.strerror}). What was there before is unharmed; free some space or "
            f"choose another --out, then continue with --resume."
        ) from error


def write_text(path: Path, text: str) -> None:
    """The same for text."""
    write_bytes(path, text.encode())


def write_json(path: Path, tree: Any) -> None:
    """The same for JSON; NaN has no place in it."""
    write_text(path, json.dumps(tree, indent=1, allow_nan=False) + "\n")


def read_json(path: Path, what: str) -> Any:
    """A JSON file.

    Raises:
        RunError: It is missing or damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{what} was looked for at {path}, and is not there. Is this the folder of a run?") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{what} at {path} cannot be read ({error}).") from None


def write_parquet(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """A table as parquet, atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table(dict(columns)), buffer, compression="zstd")
    write_bytes(path, memoryview(buffer.getvalue()))


def write_tensors(path: Path, tensors: Mapping[str, Any]) -> None:
    """Named tensors as safetensors, atomically."""
    from graphsilo.federation.model_files import tensor_file

    write_bytes(path, tensor_file(tensors))


def read_tensors(path: Path) -> dict[str, Any]:
    """Named tensors from a safetensors file.

    Raises:
        RunError: It is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(path))
    except (SafetensorError, OSError) as error:
        raise RunError(f"the tensors in {path} cannot be read ({error}).") from None


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Named arrays as npz, atomically."""
    import numpy as np

    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    write_bytes(path, file.getvalue())


def study_path(folder: Path, seed: int) -> Path:
    """Where a run keeps the arrays of its clients' studies, one file per seed; each is named ``client-<k>/<name>``."""
    return folder / "study" / f"seed{seed}" / "study.npz"


def study_seeds(folder: Path) -> list[int]:
    """Seeds whose studies a run folder holds, ascending."""
    names = (path.parent.name.removeprefix("seed") for path in folder.glob("study/seed*/study.npz"))
    return sorted(int(name) for name in names if name.isdecimal())


def read_study(path: Path) -> dict[str, dict[str, Any]]:
    """The arrays of a seed's studies, by client (as text) and name.

    Raises:
        RunError: The file cannot be read.
    """
    found: dict[str, dict[str, Any]] = {}
    try:
        for key, array in read_npz(path).items():
            client, _, name = key.removeprefix("client-").partition("/")
            found.setdefault(client, {})[name] = array
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise RunError(f"the study {path} cannot be read ({error}).") from None
    return found


@contextlib.contextmanager
def owned(folder: Path, busy: str = "") -> Iterator[None]:
    """Hold a folder, so that two processes cannot write into one.

    Args:
        folder: Of a run, or of a kit.
        busy: What to say when another process holds it.

    Raises:
        BusyError: Another process holds it.
        RunError: It cannot be made.
    """
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        folder.mkdir(parents=True, exist_ok=True)
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunError(f"the folder {folder} cannot be written ({error.strerror}); choose another --out.") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BusyError(
                busy or f"another process is writing {folder}. Wait for it, stop it, or choose another --out."
            ) from None
        yield
    finally:
        os.close(handle)
