"""A kit: the folder with which one party takes part in a federation.

kit.json          who this is, where the coordinator is, the silos (readable, nothing secret)
root.pem          certificate of the federation's root
certificate.pem   of this party, signed by the root
key.pem           of this party (0600); the only secret
run/              sockets, logs and the engine's working folder; made when it runs, may be deleted when it does not
"""

from __future__ import annotations

import contextlib
import datetime
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from graphsilo.errors import ConfigError, RunError
from graphsilo.runtime.remote.federation_file import FederationSpec

FORMAT = 1
KIT, ROOT, CERTIFICATE, KEY, RUN = "kit.json", "root.pem", "certificate.pem", "key.pem", "run"
FILES = (KIT, ROOT, CERTIFICATE, KEY)
COORDINATOR = "coordinator"
SOON = datetime.timedelta(days=30)
_DAY = 86400.0
Role = Literal["coordinator", "site"]


@dataclass(frozen=True)
class Kit:
    """What ``kit.json`` says.

    Attributes:
        folder: Where it lies.
        party: Name of the site, or 'coordinator'.
        role: Which of the two.
        federation: All parties.
        fingerprint: SHA-256 of the root's certificate.
    """

    folder: Path
    party: str
    role: Role
    federation: FederationSpec
    fingerprint: str

    @property
    def silos(self) -> dict[str, int]:
        """Silos that live here, with their client numbers; for a coordinator, all."""
        numbered = {silo.name: number for number, silo in enumerate(self.federation.silos)}
        if self.role == COORDINATOR:
            return numbered
        return {silo.name: numbered[silo.name] for silo in self.federation.silos if silo.site == self.party}

    @property
    def run(self) -> Path:
        """Folder for sockets and logs."""
        return self.folder / RUN

    @property
    def expires(self) -> datetime.datetime:
        """When this party's certificate ends.

        Raises:
            RunError: It cannot be read.
        """
        from graphsilo.runtime import certificates

        return certificates.read_cert(self.folder / CERTIFICATE).not_valid_after_utc

    def ends_soon(self) -> str:
        """Says that the certificate ends within ``SOON``, and what to do; empty if it does not."""
        expires = self.expires
        if expires - datetime.datetime.now(datetime.UTC) > SOON:
            return ""
        return (
            f"the certificate in {self.folder} is valid until {expires:%Y-%m-%d} only: `graphsilo federation renew "
            f"{self.party}`, where the federation's kits were made, makes a new one. Put it here and start again"
        )

    def remind(self, say: Callable[[str], None]) -> None:
        """Say so now and once a day, for as long as this process lives."""

        def look() -> None:
            while True:
                with contextlib.suppress(RunError):
                    if text := self.ends_soon():
                        say(text)
                time.sleep(_DAY)

        threading.Thread(target=look, daemon=True, name="certificate").start()

    def check(self) -> None:
        """Whether this party can take part with what lies in its kit.

        Raises:
            RunError: A file is missing, or certificate, key, root and name do not belong together, or it has expired.
        """
        from graphsilo.runtime import certificates

        root = certificates.read_cert(self.folder / ROOT)
        if certificates.fingerprint(root) != self.fingerprint:
            raise RunError(
                f"the root certificate in {self.folder} is not the one its kit.json names: the kit was put together "
                f"from two federations, or changed on its way. Ask the coordinator for a new one."
            )
        certificate = certificates.read_cert(self.folder / CERTIFICATE)
        if not certificates.is_signed_by(certificate, root):
            raise RunError(
                f"the certificate in {self.folder} was not signed by the root of federation '{self.federation.name}': "
                f"it belongs to another federation. Ask the coordinator for a kit of this one."
            )
        name = certificates.common_name(certificate.subject)
        if name != self.party:
            raise RunError(
                f"the certificate in {self.folder} is made out to '{name}', but the kit is that of '{self.party}': "
                f"nobody can take part under another's name."
            )
        if not (self.folder / KEY).is_file():
            raise RunError(
                f"the kit {self.folder} has no key yet: put the key that was made with the signing request into it "
                f"('complete'), or ask for a kit that has one."
            )
        if not certificates.fits(certificate, certificates.read_key(self.folder / KEY)):
            raise RunError(
                f"the key in {self.folder} does not fit the certificate beside it: one of them is another's."
            )
        if not certificates.is_valid(certificate):
            raise RunError(
                f"the certificate in {self.folder} is valid from {certificate.not_valid_before_utc:%Y-%m-%d} to "
                f"{certificate.not_valid_after_utc:%Y-%m-%d}, and this machine's clock says "
                f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}: ask the "
                f"coordinator to renew it, or set the clock."
            )


def write_kit(folder: Path, party: str, spec: FederationSpec, fingerprint: str) -> None:
    """Write (or replace) ``kit.json``."""
    role: Role = "coordinator" if party == COORDINATOR else "site"
    silos = [{"client": number, **silo.model_dump(exclude_none=True)} for number, silo in enumerate(spec.silos)]
    content: dict[str, Any] = {
        "format": FORMAT,
        "federation": spec.name,
        "party": party,
        "role": role,
        "engine": spec.engine,
        "coordinator": {"host": list(spec.coordinator.hosts), "port": spec.coordinator.port},
        "silos": silos,
        "here": [silo["client"] for silo in silos if role == COORDINATOR or silo["site"] == party],
        "root": fingerprint,
    }
    (folder / KIT).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_kit(folder: str | Path) -> Kit:
    """The kit in a folder; its certificates are looked at by ``Kit.check``.

    Raises:
        RunError: There is none, or it was made by another version.
    """
    folder = Path(folder).resolve()
    try:
        content = json.loads((folder / KIT).read_text(encoding="utf-8"))
    except OSError:
        raise RunError(f"{folder} is no kit: it has no {KIT}.") from None
    except ValueError:
        raise RunError(f"{folder / KIT} is damaged: it is no JSON.") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else None
        raise RunError(f"{folder / KIT} has format {found!r}; this graphsilo reads format {FORMAT}.")
    try:
        spec = FederationSpec.of(
            {
                "name": content["federation"],
                "coordinator": content["coordinator"],
                "engine": content["engine"],
                "silos": [{key: value for key, value in silo.items() if key != "client"} for silo in content["silos"]],
            },
            origin=str(folder / KIT),
        )
        party, role, root = str(content["party"]), content["role"], str(content["root"])
    except (KeyError, TypeError, AttributeError, ConfigError) as error:
        raise RunError(f"{folder / KIT} is damaged or was changed by hand ({error}).") from None
    if role not in ("coordinator", "site") or (role == COORDINATOR) != (party == COORDINATOR):
        raise RunError(f"{folder / KIT} is damaged or was changed by hand (role {role!r} of '{party}').")
    return Kit(folder=folder, party=party, role=role, federation=spec, fingerprint=root)
