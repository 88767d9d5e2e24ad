"""Files of a run: atomic writes, tables, one process per folder."""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import msgspec

from graphsilo.data.arrays import read_npz
from graphsilo.data.sources.atomic import atomic_file, atomic_files
from graphsilo.errors import ConfigError, RunError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class BusyError(RunError):
    """Another process is writing the folder."""


MAKE_ROOM = (
    "free some space, then continue (`graphsilo run --resume`, a federation's job by `graphsilo federation submit "
    "--continue`). On another disk, copy the folder there first and name it with --out."
)
"""What to do where a run's folder could not be written."""


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Write a file so that it is either the old one or the whole new one, whatever happens.

    Raises:
        RunError: The disk is full or cannot be written; the old file, if any, is unharmed.
        ConfigError: There is a folder in its place, or a file in that of its folder.
    """
    with _explain_errors(path), atomic_file(path.absolute()) as file:  # "." has no name
        file.write(data)


@contextlib.contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (IsADirectoryError, NotADirectoryError, FileExistsError) as error:
        place = "is a folder" if path.is_dir() else f"is to be written where a file is ({error.filename})"
        raise ConfigError(f"{path} {place}: name a file in a folder.") from None
    except OSError as error:
        raise RunError(
            f"{path} could not be written ({error.strerror}). What was there before is unharmed: {MAKE_ROOM}"
        ) from error


def open_to_append(path: Path) -> BinaryIO:
    """A file of a run's folder, to write at its end: the one that is there, and no other that a link leads to."""

    def open_in_place(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)

    return open(path, "ab", opener=open_in_place)  # a Path takes no opener


def write_text(path: Path, text: str) -> None:
    """The same for text."""
    write_bytes(path, text.encode())


def write_json(path: Path, tree: Any) -> None:
    """The same for JSON; NaN has no place in it."""
    text = json.dumps(tree, allow_nan=False)
    write_text(path, msgspec.json.format(text, indent=1) + "\n")  # ten times as fast as indenting by json


def read_json(path: Path, what: str) -> Any:
    """A JSON file.

    Raises:
        RunError: It is missing or damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{what} was looked for at {path}, and is not there. Is this the folder of a run?") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{what} at {path} cannot be read ({error}).") from None


class Repeated(NamedTuple):
    """A column of a table in which few values stand behind each other many times.

    Attributes:
        values: Texts or whole numbers.
        counts: How often each.
    """

    values: Sequence[str | int]
    counts: Sequence[int]


def write_parquet(path: Path, parts: Iterable[Mapping[str, Sequence[Any] | NDArray[Any] | Repeated]]) -> None:
    """A table as parquet, atomically; its parts follow each other, and only one of them is held at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = pa.BufferOutputStream()
    writer = None
    for part in parts:
        table = pa.table([_column(values) for values in part.values()], names=list(part))
        writer = writer or pq.ParquetWriter(buffer, table.schema, compression="zstd")
        writer.write_table(table)
    if writer is not None:
        writer.close()
    write_bytes(path, memoryview(buffer.getvalue()))


def _column(values: Sequence[Any] | NDArray[Any] | Repeated) -> Any:
    """A column as an array of pyarrow, without its own conversion where that is easy: it would import pandas first,
    which takes a quarter as long as torch."""
    import numpy as np
    import pyarrow as pa

    if isinstance(values, Repeated):
        places = np.repeat(np.arange(len(values.values), dtype=np.int32), values.counts)
        return pa.DictionaryArray.from_arrays(_column(places), _column(list(values.values))).dictionary_decode()
    if isinstance(values, np.ndarray):
        return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])
    kinds = {type(value) for value in values}
    if kinds == {int}:
        return _column(np.array(values, dtype=np.int64))
    if kinds == {float}:
        return _column(np.array(values, dtype=np.float64))
    if kinds == {str}:
        texts = [str(value).encode() for value in values]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))
    return pa.array(values)


def write_tensors(path: Path, tensors: Mapping[str, Any]) -> None:
    """Named tensors as safetensors, atomically."""
    from graphsilo.federation.model_files import tensor_file

    write_bytes(path, tensor_file(tensors))


def write_all_tensors(folder: Path, files: Iterable[tuple[Path, Mapping[str, Any]]]) -> None:
    """Many files of named tensors in a folder: all of them, or none.

    Raises:
        RunError: The disk is full or cannot be written; what was there before is unharmed.
    """
    from graphsilo.federation.model_files import tensor_file

    with _explain_errors(folder), atomic_files() as write:
        for path, tensors in files:
            write(path, tensor_file(tensors))


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


def _is_plain(path: Path) -> bool:
    """Whether it is a file, a folder, or a socket that a process left behind; what has gone meanwhile is."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISSOCK(mode)


@contextlib.contextmanager
def hold_folder(folder: Path, busy: str = "", *, within: Path | None = None) -> Iterator[None]:
    """Hold a folder, so that two processes cannot write into one.

    Links to folders elsewhere are refused: what stood there would be written over or removed as if it were the run's
    own, and a folder from elsewhere may hold any.

    Args:
        folder: Of a run, or of a kit.
        busy: What to say when another process holds it.
        within: What is written lies below it, and so does the folder; every link there is refused, and whatever else is
            neither a file nor a folder, as nothing of graphsilo's is. None: the folder of a run, in which trackers may
            leave links to files elsewhere.

    Raises:
        BusyError: Another process holds it.
        RunError: It cannot be made, or holds what it must not.
    """
    top = folder if within is None else within
    whole = top.resolve()
    for place, folders, files in os.walk(top):
        for found in (Path(place, name) for name in (folders if within is None else [*folders, *files])):
            if within is not None and not _is_plain(found):
                raise RunError(
                    f"{found} is a link or no file at all, and a kit holds files and folders: what is written to one "
                    f"place would be written to another. Put the file or folder itself there, or take it away."
                )
            if found.is_symlink() and not Path(os.path.realpath(found)).is_relative_to(whole):
                raise RunError(
                    f"{found} is a link that leads out of {top}, and what is written there would be, too. Put the file "
                    f"or folder itself in its place, or choose another --out."
                )
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        folder.mkdir(parents=True, exist_ok=True)
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
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
