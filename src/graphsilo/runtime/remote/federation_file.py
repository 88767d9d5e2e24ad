"""``federation.yaml``: who takes part and where they meet. No torch here: sites read it too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import model_validator

from graphsilo import documents
from graphsilo.errors import ConfigError, nearest, quote
from graphsilo.federation.kinds import KINDS
from graphsilo.settings import Settings, setting

RESERVED = frozenset({"coordinator", "server", "root", "requests"})
"""Names no silo and no site may have: they stand for the other party or for folders beside the kits."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


class CoordinatorSpec(Settings):
    """Where sites find the coordinator."""

    host: str | list[str] = setting(
        ..., "name or IPv4 address that sites connect to; with a list, the first one, and the certificate names all",
        min_length=1,
    )  # fmt: skip
    port: int = setting(8102, "the one port that must be reachable", ge=1, le=65535)

    @property
    def hosts(self) -> tuple[str, ...]:
        """All names and addresses, the one to connect to first."""
        return (self.host,) if isinstance(self.host, str) else tuple(self.host)

    @model_validator(mode="after")
    def _hosts_are_names(self) -> CoordinatorSpec:
        for host in self.hosts:
            if not _HOST.fullmatch(host):
                raise ConfigError(
                    f"coordinator.host should be a host name or an IPv4 address without a port, as 'fed.example.org'; "
                    f"got '{host}'."
                )
        return self


class SiloSpec(Settings):
    """One silo."""

    name: str = setting(..., "unique in the federation")
    site: str = setting("", "the machine it lives at; by default a site of the same name")
    may_send: list[str] | None = setting(
        None, "kinds of disclosure it may send at most; none says nothing about it (the silo's own policy rules)"
    )
    max_items: int | None = setting(
        None, "most nodes (or graphs) that it may say it holds; what a silo says bounds the weight of its models", ge=1
    )

    @model_validator(mode="before")
    @classmethod
    def _site_is_named_like_the_silo(cls, values: Any) -> Any:
        if isinstance(values, str):
            values = {"name": values}
        if isinstance(values, dict) and not values.get("site") and isinstance(values.get("name"), str):
            values = {**values, "site": values["name"]}
        return values

    @model_validator(mode="after")
    def _names_are_plain(self) -> SiloSpec:
        for what, name in (("silo", self.name), ("site", self.site)):
            check_name(name, what)
        for kind in self.may_send or ():
            if kind not in KINDS:
                raise ConfigError(
                    f"silo '{self.name}' may_send {quote(kind)}, which is no kind of disclosure; {nearest(kind, KINDS)}"
                )
        return self


class FederationSpec(Settings):
    """A federation between machines."""

    name: str = setting(..., "of the federation")
    coordinator: CoordinatorSpec = setting(..., "where sites find it")
    silos: list[SiloSpec] = setting(..., "in the order of their client numbers", min_length=1)
    engine: Literal["nvflare", "flower"] = setting("nvflare", "what carries the messages")

    @model_validator(mode="after")
    def _names_are_distinct(self) -> FederationSpec:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(_bad_name(self.name, "federation"))
        names = [silo.name for silo in self.silos]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"two silos are named '{name}': every silo of a federation needs its own name.")
        return self

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the order of their first silo."""
        return tuple(dict.fromkeys(silo.site for silo in self.silos))


def check_name(name: str, what: str) -> None:
    """Refuse names that cannot be a folder, an endpoint and a certificate's subject at once.

    Raises:
        ConfigError: The name has other characters than a-z, 0-9 and '-', or is taken.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(_bad_name(name, what))
    if name in RESERVED:
        raise ConfigError(f"no {what} can be named '{name}': taken are {', '.join(sorted(RESERVED))}.")


def _bad_name(name: str, what: str) -> str:
    return (
        f"the name of a {what} should have 1 to 63 of the characters a-z, 0-9 and '-', and begin and end with a letter "
        f"or digit; got '{name}'."
    )


def load_federation(path: str | Path) -> FederationSpec:
    """The federation that a YAML file describes.

    Raises:
        ConfigError: The file cannot be read or does not describe one.
    """
    loaded = documents.read(path, "the federation")
    if not isinstance(loaded, dict):
        raise ConfigError(f"the federation {path} should be a table with name, coordinator and silos; it is not.")
    return FederationSpec.of(loaded, origin=str(path))
