"""A kit as one encrypted file, for the way from the coordinator to a site.

Layout: eight bytes ``GSKIT1\\r\\n`` (mended line ends show), log2 of scrypt's N, r, p (one byte each), 16 bytes of
salt, 12 bytes of nonce, then AES-256-GCM of a tar with the kit's files; everything before it is authenticated, too. The
key is scrypt of the passphrase (RFC 7914).
"""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from graphsilo.errors import ConfigError, RunError
from graphsilo.runtime.certificates import write_private
from graphsilo.runtime.engines.nvflare.kit import FILES, KEY, read_kit

_MAGIC = b"GSKIT1\r\n"
_LOG_N, _R, _P = 17, 8, 1  # 128 MiB and about half a second per guess
_SALT, _NONCE = 16, 12
_HEAD = len(_MAGIC) + 3 + _SALT + _NONCE
_SHORTEST = 8
_LARGEST = 1 << 20


def seal(kit: str | Path, passphrase: str, path: str | Path | None = None) -> Path:
    """Encrypt a kit into one file.

    Args:
        kit: The folder.
        passphrase: At least eight characters; tell it by another way than the one the file takes.
        path: The file; by default ``PARTY.kit`` beside the folder.

    Raises:
        ConfigError: The passphrase is too short.
        RunError: The folder is no kit, or the file exists.
    """
    if len(passphrase) < _SHORTEST:
        raise ConfigError(f"the passphrase should have {_SHORTEST} characters or more; it has {len(passphrase)}.")
    found = read_kit(kit)
    target = Path(path) if path is not None else found.folder.with_name(f"{found.party}.kit")
    if target.exists():
        raise RunError(f"{target} exists already: it is not replaced.")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in FILES:
            if (found.folder / name).is_file():  # a kit whose key was made at the silo has none
                content = (found.folder / name).read_bytes()
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    salt, nonce = os.urandom(_SALT), os.urandom(_NONCE)
    head = _MAGIC + bytes((_LOG_N, _R, _P)) + salt + nonce
    write_private(
        target, head + AESGCM(_derive(passphrase, salt, _LOG_N, _R, _P)).encrypt(nonce, packed.getvalue(), head)
    )
    return target


def open_sealed(path: str | Path, passphrase: str, out: str | Path) -> Path:
    """Decrypt a sealed kit into a folder.

    Args:
        path: The file.
        passphrase: As it was sealed.
        out: A folder that does not exist yet.

    Returns:
        The kit.

    Raises:
        RunError: The passphrase is wrong, the file was changed or is none of ours, or the folder exists.
    """
    path, out = Path(path), Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} exists already: choose a folder that does not.")
    try:
        if path.stat().st_size > _LARGEST:
            raise RunError(f"{path} is no sealed kit: it is too large.")
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"the sealed kit {path} cannot be read ({error.strerror}).") from None
    if len(data) <= _HEAD or not data.startswith(_MAGIC):
        raise RunError(f"{path} is no sealed kit, or was changed on its way (send it as a file, not as text).")
    head, parameters = data[:_HEAD], data[len(_MAGIC) : len(_MAGIC) + 3]
    salt, nonce = head[-_SALT - _NONCE : -_NONCE], head[-_NONCE:]
    if tuple(parameters) != (_LOG_N, _R, _P):  # not taken from the file: it could ask for any amount of memory
        raise RunError(f"{path} was sealed by another version of graphsilo, or was changed on its way.")
    try:
        packed = AESGCM(_derive(passphrase, salt, _LOG_N, _R, _P)).decrypt(nonce, data[_HEAD:], head)
    except InvalidTag:
        raise RunError(
            f"{path} cannot be opened: the passphrase is wrong, or the file was changed on its way."
        ) from None
    files = _unpack(packed, path)
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    out.chmod(0o700)
    for name, content in files.items():
        if name == KEY:
            write_private(out / name, content)
        else:
            (out / name).write_bytes(content)
    kit = read_kit(out)
    if KEY in files:
        kit.check()
    return kit.folder


def _unpack(packed: bytes, path: Path) -> dict[str, bytes]:
    """The files of a tar, by name; nothing is ever extracted by the tar's own idea of where it belongs."""
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isreg() else None
                if stream is None or member.name not in FILES or member.name in files:
                    raise RunError(f"{path} holds '{member.name}', which no kit has: it was not made by graphsilo.")
                files[member.name] = stream.read()
    except tarfile.TarError:
        raise RunError(f"{path} is damaged inside: it was not made by graphsilo.") from None
    return files


def _derive(passphrase: str, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    return Scrypt(salt=salt, length=32, n=1 << log_n, r=r, p=p).derive(passphrase.encode("utf-8"))
