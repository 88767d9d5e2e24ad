"""Silos of tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsilo.data.silos.own import SiloFile, read_silo_file
from kit.silos import CLASSES, NAMES, write_silo, write_tables


@pytest.fixture
def trio(tmp_path: Path) -> list[SiloFile]:
    """All classes; one class absent; no label at all."""
    for seed, (name, labels) in enumerate(zip(NAMES, (CLASSES, CLASSES[:2], []), strict=True)):
        write_tables(tmp_path, name, seed=seed, labels=labels, wide=True)
        write_silo(tmp_path, name)
    return [read_silo_file(tmp_path / f"{name}.yaml") for name in NAMES]
