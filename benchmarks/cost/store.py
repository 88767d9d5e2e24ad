"""Where results are kept: ``.benchmarks/cost/NAME.json``, one file per state of the code, outside git."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from children import RESULTS, ROOT, commit, write_json

from cost.cases import Case

KEPT = RESULTS / "cost"


def code_name() -> str:
    """The commit; with a hash of the package's files behind it where they differ from the commit's."""
    changed = subprocess.run(
        ["git", "status", "--porcelain", "src"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    if not changed.stdout.strip():
        return commit()
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src").rglob("*.py")):
        digest.update(str(path).encode() + path.read_bytes())
    return f"{commit()}+{digest.hexdigest()[:6]}"


def machine() -> dict[str, Any]:
    """What numbers depend on beside the code."""
    model = platform.processor() or platform.machine()
    memory = 0
    cpu = Path("/proc/cpuinfo")
    if cpu.exists():
        lines = cpu.read_text(encoding="utf-8").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory,
        "system": f"{platform.system()} {platform.release()}",
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numpy", "scipy")},
    }


class Store:
    """Results of one state of the code, written after every case.

    Args:
        name: The state, from ``code_name``.
        folder: Where the files are.
    """

    def __init__(self, name: str, folder: Path = KEPT):
        self.name, self.folder = name, folder
        self.path = folder / f"{name}.json"
        self.tree: dict[str, Any] = {"format": 1, "code": name, "commit": name.partition("+")[0], "cases": {}}
        if self.path.exists():
            self.tree = json.loads(self.path.read_text(encoding="utf-8"))

    def has(self, case: Case) -> bool:
        """Whether a case need not be run again: it came to its end, or took too long, with these settings."""
        kept = self.tree["cases"].get(case.id)
        return (
            kept is not None
            and kept["settings"] == case.settings
            and (kept["status"] == "stopped" or (kept["status"] == "done" and len(kept["turns"]) >= case.turns))
        )

    def keep(self, case: Case, found: Mapping[str, Any]) -> None:
        """Write a case's result."""
        self.tree["cases"][case.id] = {
            "kind": case.kind,
            "facts": {key: value for key, value in case.facts.items() if "command" not in key},
            "settings": case.settings,
            **found,
        }
        self.note(machine=machine(), command=sys.argv[1:])

    def note(self, **facts: Any) -> None:
        """Write something else."""
        self.tree.update(facts, time=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))
        write_json(self.path, self.tree)


def earlier(name: str, folder: Path = KEPT) -> dict[str, Any] | None:
    """The results that ``name``'s stand beside: those of the nearest commit that has some, this one included.

    Of one commit, the clean state goes before states that differ from it, and later ones before earlier ones. Without
    a commit of this history the latest file is taken; None where there is no other.
    """
    others = sorted(
        (path for path in folder.glob("*.json") if path.stem != name),
        key=lambda path: ("+" not in path.stem, path.stat().st_mtime),
    )
    if not others:
        return None
    history = subprocess.run(
        ["git", "rev-list", "--abbrev-commit", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False
    ).stdout.split()
    by_commit = {path.stem.partition("+")[0]: path for path in others}
    nearest = next((by_commit[one] for one in history if one in by_commit), None)
    path = nearest or max(others, key=lambda other: other.stat().st_mtime)
    return dict(json.loads(path.read_text(encoding="utf-8")))


def latest(folder: Path = KEPT) -> str | None:
    """The state that was measured last."""
    found = max(folder.glob("*.json"), key=lambda path: path.stat().st_mtime, default=None)
    return None if found is None else found.stem
