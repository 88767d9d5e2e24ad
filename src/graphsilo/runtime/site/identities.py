"""Who a silo is to the others in secure sums: a key of its own that lasts, and the keys that it knows them by.

A silo makes its key when it is first needed, and keeps it. Another's key is believed if the kit of its site stands
behind it (``certified``), and from then on no other is taken for the same number of this federation. Where there are no
kits, it is believed when it is first seen: a coordinator that is honest when silos first meet cannot pose as one of
them later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from graphsilo.data.sources.atomic import atomic_file, lock_file
from graphsilo.errors import DisclosureError
from graphsilo.federation.secure.party import Identity, Unproved
from graphsilo.runtime.site.certified import Kits
from graphsilo.types import ClientId

_KEY_BYTES = 32


def load_identity(path: Path, client: ClientId = 0, kits: Kits | None = None) -> Identity:
    """The silo's key, from its file; made where there is none.

    Args:
        path: Of the file.
        client: Whose it is.
        kits: What its site's kit says; the key comes with that kit's word for it then.

    Raises:
        DisclosureError: The file cannot be read or written.
        RunError: A file of the kit cannot be read.
    """
    try:
        data = _load_or_make(path, lambda: Ed25519PrivateKey.generate().private_bytes_raw())
    except (OSError, ValueError) as error:
        raise DisclosureError(
            f"the key by which this silo signs in secure sums cannot be kept ({type(error).__name__}). Its owner must "
            f"mend the file, or remove it: the other silos then refuse this one until their owners remove what they "
            f"know of it."
        ) from None
    key = Ed25519PrivateKey.from_private_bytes(data)
    public = key.public_key().public_bytes_raw()
    return Identity(key, public if kits is None else kits.certify(client, public))


def load_secret(path: Path) -> bytes:
    """What checkpoints are known by, from its file; made where there is none.

    Raises:
        DisclosureError: The file cannot be read or written.
    """
    try:
        return _load_or_make(path, lambda: os.urandom(_KEY_BYTES))
    except (OSError, ValueError) as error:
        raise DisclosureError(
            f"the secret by which this silo knows its checkpoints cannot be kept ({type(error).__name__}). Its owner "
            f"must mend the file, or remove it: runs then go on from none of the checkpoints that there are."
        ) from None


def _load_or_make(path: Path, make: Callable[[], bytes]) -> bytes:
    """32 bytes that only their owner can read."""
    if not path.exists():
        with lock_file(path.with_suffix(".lock")):  # of several processes that are first, one makes them
            if not path.exists():
                with atomic_file(path, 0o600) as file:
                    file.write(make())
    data = path.read_bytes()
    if len(data) != _KEY_BYTES:
        raise ValueError(f"{len(data)} bytes")
    return data


class Pinned:
    """Believes a key when it first sees it, and no other for the same client from then on.

    Args:
        path: Where the keys are kept.
        kits: Of the federation: a key that they do not certify is not believed at all. None where there are none.

    Raises:
        DisclosureError: The file cannot be read.
    """

    def __init__(self, path: Path, kits: Kits | None = None):
        self.path, self._kits = path, kits
        self._checked: set[tuple[ClientId, bytes]] = set()
        try:
            known = json.loads(path.read_text()) if path.exists() else {}
            if not isinstance(known, dict):
                raise ValueError("no keys by client")
        except (OSError, ValueError, RecursionError) as error:
            raise DisclosureError(
                f"the keys of other silos cannot be read ({type(error).__name__}); their file is beside this silo's "
                f"own key."
            ) from None
        self._known: dict[str, str] = known

    def key_of(self, client: ClientId, identity: bytes) -> Ed25519PublicKey:
        if self._kits is not None and (client, identity) not in self._checked:
            self._kits.check(client, identity)
            self._checked.add((client, identity))
        key = Unproved().key_of(client, identity)
        public = key.public_bytes_raw().hex()
        known = self._known.setdefault(str(client), public)
        if known != public:
            raise DisclosureError(
                f"client {client} signs with another key than before: it was set up again, or somebody poses as it. If "
                f"its owner says so, take entry {client} out of sums/{self.path.name} in the kit and begin again.",
                peer=client,
            )
        self._keep()
        return key

    def _keep(self) -> None:
        text = json.dumps(self._known, indent=1).encode() + b"\n"
        try:
            if self.path.exists() and self.path.read_bytes() == text:
                return
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with atomic_file(self.path) as file:
                file.write(text)
        except OSError as error:
            raise DisclosureError(f"the keys of other silos cannot be kept ({error.strerror}).") from None
