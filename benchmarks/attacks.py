"""What attacks find on Cora, method by method: ten clients by Louvain, one seed, every method's default settings.

    python benchmarks/attacks.py                          # what findings.yaml lacks
    python benchmarks/attacks.py --only fedavg fedridge   # these methods again

Each run is carried out, then attacked as ``graphsilo attack`` does, and what was found replaces the rows of the method
and variant in ``src/graphsilo/attacks/findings.yaml``, which ships with the package. Where ``MEMBERSHIP`` says so,
sixteen shadow runs are made.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from graphsilo.attacks import findings, study
from graphsilo.attacks.findings import COLUMNS, Finding
from graphsilo.attacks.record import AttackRecord
from graphsilo.errors import GraphsiloError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.federation import registry

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "src" / "graphsilo" / "attacks" / "findings.yaml"
DATA = "Cora"
SECURE = {"run.secure_sums": True, "evaluation.report": "federation"}
VARIANTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("fedavg", "secure sums", SECURE),
    ("fedridge", "secure sums", SECURE),
    ("opfgl", "secure sums", SECURE),
    ("fedridge", "epsilon 8", {"method.epsilon": 8.0}),
    ("fedridge", "epsilon 8, secure sums", {"method.epsilon": 8.0, **SECURE}),
    ("fedridge", "dim 32", {"method.dim": 32}),
    ("opfgl", "epsilon 8", {"method.epsilon": 8.0}),
    ("opfgl", "min_count 5", {"method.min_count": 5}),
    ("opfgl", "epsilon 8, secure sums", {"method.epsilon": 8.0, **SECURE}),
    ("fedridge", "min_count 5", {"method.min_count": 5}),
    ("fedtrees", "secure sums", SECURE),
    ("fedtrees", "min_count 5", {"method.min_count": 5}),
    # Forced, as ten silos drown in it.
    ("dp_fedavg", "epsilon 8, secure sums", {"method.epsilon": 8.0, "method.max_noise": 1e6, **SECURE}),
)
"""Beside every method's defaults."""
MEMBERSHIP = {
    ("fedavg", ""), ("fedavg", "secure sums"), ("local", ""), ("fedridge", ""), ("fedridge", "secure sums"),
    ("fedridge", "epsilon 8"), ("fedproto", ""), ("fednh", ""),
}  # fmt: skip
"""Whose shadow runs are made."""
LAST = ("fedlog", "fedpg", "fairfgl", "fedsage_plus", "co_boosting", "fedgen")
"""Methods that take longest."""
SHADOWS = 16
LEFT_OUT = ("share of silos whose largest class", "cosine above 0.999")
"""Figures that attack.json has and the table does not need."""


def main() -> None:
    """Run, attack, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=None, help="methods that are attacked, also if they are known")
    options = parser.parse_args()
    names = [name for name in registry.names() if "node" in registry.load(name).tasks]
    names = [name for name in names if not registry.load(name).pooled]
    names.sort(key=lambda name: (name in LAST, name))
    cases = [(name, "", {}) for name in names]
    for name, variant, settings in [*VARIANTS, *cases] if options.only is None else [*cases, *VARIANTS]:
        known = findings.parse(FILE.read_text())
        if name not in options.only if options.only is not None else findings.about(name, variant, among=known):
            continue
        began = time.process_time()
        try:
            found = attacked(name, settings, SHADOWS if (name, variant) in MEMBERSHIP else 0)
        except GraphsiloError as error:
            print(f"{name} {variant}: {error}", flush=True)
            continue
        rest = [each for each in known if (each.method, each.variant) != (name, variant)]
        write([*rest, *rows(name, variant, found)])
        print(f"{name} {variant}: {time.process_time() - began:.0f} s of the processor", flush=True)


def attacked(name: str, settings: dict[str, Any], shadows: int) -> AttackRecord:
    """Run a method and attack it."""
    wanted = {"data.name": DATA, "method.name": name, "run.seeds": [0], "evaluation.models": False, **settings}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        run(load_config(overrides=wanted), out=place)
        return study.attack(place, shadows=shadows)


def rows(name: str, variant: str, found: AttackRecord) -> list[Finding]:
    """What is kept of a run's attacks: figures that there are, without what others say as well."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    (outcomes,) = found.outcomes.values()
    return [
        Finding(
            method=name, variant=variant, attacker=one.attacker, attack=one.attack, figure=one.figure,
            value=round(one.value, 4), low=round(one.low or 0.0, 4), high=round(one.high or 0.0, 4),
            prior=None if one.prior is None else round(one.prior, 4), targets=one.targets, data=DATA,
            commit=commit.stdout.strip(),
        )
        for one in outcomes
        if one.value is not None and not any(part in one.figure for part in LEFT_OUT)
    ]  # fmt: skip


def write(found: Iterable[Finding]) -> None:
    """The file, one row a line, by method and variant."""
    lines = [
        "# What attacks found on public data. Written by benchmarks/attacks.py; do not edit.",
        f"columns: [{', '.join(COLUMNS)}]",
        "rows:",
    ]
    for each in sorted(found, key=lambda each: (each.method, each.variant)):
        cells = (getattr(each, name) for name in COLUMNS)
        lines.append(f"- [{', '.join(map(json.dumps, cells))}]")
    FILE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
