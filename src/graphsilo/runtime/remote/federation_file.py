"""``federation.yaml``: who takes part and where they meet. No torch here: sites read it too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from graphsilo import documents
from graphsilo.errors import ConfigError, nearest, shown
from graphsilo.federation.kinds import KINDS
from graphsilo.federation.settings import Settings

RESERVED = frozenset({"coordinator", "server", "root", "requests"})
"""Names no silo and no site may have: they stand for the other party or for folders beside the kits."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


class CoordinatorSpec(Settings):
    """Where sites find the coordinator.

    Attributes:
        host: Name or IPv4 address that sites connect to; with a list, the first one, and the certificate names all.
        port: The one port that must be reachable.
    """

    host: str | Annotated[list[str], Field(min_length=1)]
    port: int = Field(8102, ge=1, le=65535)

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

    @classmethod
    def label(cls) -> str:
        return "the coordinator"


class SiloSpec(Settings):
    """One silo.

    Attributes:
        name: Unique in the federation.
        site: The machine it lives at; by default a site of the same name.
        may_send: Kinds of disclosure it may send at most; none says nothing about it (the silo's own policy rules).
        max_items: Most nodes (or graphs) that it may say it holds. What a silo says bounds the weight of its models.
    """

    name: str
    site: str = ""
    may_send: list[str] | None = None
    max_items: int | None = Field(None, ge=1)

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
                    f"silo '{self.name}' may_send {shown(kind)}, which is no kind of disclosure; {nearest(kind, KINDS)}"
                )
        return self

    @classmethod
    def label(cls) -> str:
        return "a silo"


class FederationSpec(Settings):
    """A federation between machines.

    Attributes:
        name: Of the federation.
        coordinator: Where sites find it.
        silos: In the order of their client numbers.
        engine: What carries the messages.
    """

    name: str
    coordinator: CoordinatorSpec
    silos: list[SiloSpec] = Field(min_length=1)
    engine: Literal["nvflare", "flower"] = "nvflare"

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

    @classmethod
    def label(cls) -> str:
        return "a federation"


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


def parse_federation(values: Mapping[str, Any], where: str = "the federation") -> FederationSpec:
    """A federation from a table of settings.

    Args:
        values: As read from YAML or JSON.
        where: How errors name the source.

    Raises:
        ConfigError: A setting is missing, unknown, or has a value that it cannot have.
    """
    try:
        return FederationSpec.model_validate(dict(values))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    except ValidationError as error:
        found: dict[str, list[str]] = {}
        for item in error.errors():
            # pydantic names the arm of a union after the setting; a person has not written it.
            path = ".".join(
                str(part) for part in item["loc"] if not ((isinstance(part, str) and "[" in part) or part == "str")
            )
            text = _WANTED.get(item["type"], item["msg"].removeprefix("Input should be "))
            came = "" if item["type"] == "missing" else f" (got {shown(item['input'])})"
            words = f"{text}{came}"
            if words not in found.setdefault(path, []):
                found[path].append(words)
        told = " ".join(f"{path} should be {' or '.join(texts)}." for path, texts in list(found.items())[:5])
        raise ConfigError(f"{where}: {told}") from None


_WANTED = {
    "missing": "given",
    "too_short": "longer: at least one is needed",
    "model_type": "a table of settings",
    "model_attributes_type": "a table of settings",
    "dict_type": "a table of settings",
}


def load_federation(path: str | Path) -> FederationSpec:
    """The federation that a YAML file describes.

    Raises:
        ConfigError: The file cannot be read or does not describe one.
    """
    loaded = documents.read(path, "the federation")
    if not isinstance(loaded, dict):
        raise ConfigError(f"the federation {path} should be a table with name, coordinator and silos; it is not.")
    return parse_federation(loaded, where=str(path))
