"""Which methods are tried in full by quick tests."""

from __future__ import annotations

BROAD = {"fedavg", "fedgta", "fairfgl", "fedlog", "fedpg", "fedridge", "fedsage_plus", "local", "opfgl", "scaffold"}
"""Methods with machinery of their own; the others inherit what the longest checks are about: slow tests there."""
