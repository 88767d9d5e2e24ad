"""What a package index shows: links of the project, and README.md with links that lead somewhere from there.

Hatchling calls this when it builds, with the table ``tool.hatch.metadata.hooks.custom`` of pyproject.toml.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^]]*)\]\((?P<address>[^)]+)\)")
PLACES = {
    "Homepage": "",
    "Source": "",
    "Documentation": "/blob/main/docs/index.md",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
}


class PackageMetadata(MetadataHookInterface):
    """Fills in ``readme`` and ``urls``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Hatchling calls this with what pyproject.toml says of the project."""
        repository = self.config.get("repository", "").rstrip("/")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": readable_anywhere(text, repository)}
        metadata["urls"] = urls(repository)


def urls(repository: str) -> dict[str, str]:
    """The project's links; none as long as nobody knows where it is published."""
    return {name: repository + path for name, path in PLACES.items()} if repository else {}


def readable_anywhere(text: str, repository: str) -> str:
    """Markdown without relative links: they lead to the repository; without one, their words stay and pictures go."""

    def found(link: re.Match[str]) -> str:
        picture, words, address = link.group("picture", "text", "address")
        if re.match(r"https?:|#", address):
            return link[0]
        if repository:
            return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/main/{address})"
        return "" if picture else words

    return LINK.sub(found, text)
