"""The sites that these tests speak to."""

from __future__ import annotations

from kit.sites import make_sites, short_path, sites, standing

__all__ = ["make_sites", "short_path", "sites", "standing"]
