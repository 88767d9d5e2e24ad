"""Whether a folder's run can be gone on with: is it the same run, and can it still give what is asked of it now?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from graphsilo import documents
from graphsilo.data.partition import Partition
from graphsilo.errors import ConfigError, GraphsiloError
from graphsilo.experiments.config import NO_NUMBERS
from graphsilo.experiments.doors import NAMES, RECORDS
from graphsilo.experiments.participants import Participants

SHOWN = 5
"""Most differing settings that a refusal names."""
_UNSET = object()


def check_free(folder: Path) -> None:
    """Refuse a folder that holds a run, where a new one is to begin.

    Raises:
        ConfigError: It holds one.
    """
    if holds_run(folder):
        raise ConfigError(
            f"{folder} already holds a run. Continue it with --resume, choose another --out, or delete the folder."
        )


def holds_run(folder: Path) -> bool:
    """Whether a run has left its result or a checkpoint in a folder."""
    return (folder / "result.json").exists() or any((folder / "checkpoints").glob("*.ckpt"))


def reason(folder: Path, config: Mapping[str, Any], simulation: Participants, begun: Mapping[str, Any]) -> str:
    """In what a run differs from the one that its folder holds, and what to do.

    Args:
        folder: Of the run.
        config: The complete settings now.
        simulation: The data and the partition now.
        begun: Complete settings that the run was begun with, as its result or checkpoint says: somebody may have
            edited the folder's config.yaml since, and --resume alone reads that.
    """
    try:
        is_same = Partition.load(folder / "partition.npz").content_hash == simulation.cut_hash
    except (GraphsiloError, OSError):
        is_same = False
    changes = differences(begun, config, with_partition=not is_same)
    if not changes:
        what = "the data's contents are" if is_same else "the stored partition is"
        changes = [f"its settings are the same, so {what} not what the run was begun with"]
    return (
        f"{some(changes)}. Give the settings that it was begun with (--resume alone takes them from its config.yaml, "
        f"which must be as it was), or choose another --out."
    )


def some(sentences: list[str]) -> str:
    """The first sentences, and how many more there are."""
    more = f"; and {len(sentences) - SHOWN} more" if len(sentences) > SHOWN else ""
    return "; ".join(sentences[:SHOWN]) + more


def stored_config(folder: Path) -> dict[str, Any] | None:
    """The folder's ``config.yaml`` as a tree; None where there is none that can be read."""
    try:
        tree = documents.read(folder / "config.yaml", "the configuration")
    except ConfigError:
        return None
    return tree if isinstance(tree, dict) else None


def differences(stored: Mapping[str, Any], now: Mapping[str, Any], *, with_partition: bool = True) -> list[str]:
    """Settings that differ and matter, as sentences that name them as a person would set them.

    Args:
        stored: Complete settings that a run was begun with.
        now: Complete settings of the run that is to go on there.
        with_partition: Whether the partitions differ; where they do not, it does not matter how they came about.

    Example:
        >>> differences({"method": {"name": "fedprox", "mu": 0.01}}, {"method": {"name": "fedprox", "mu": 0.1}})
        ['method.mu was 0.01 when the run was begun and is 0.1 now']
    """
    then, here = dict(_flat(stored)), dict(_flat(now))
    renamed = {
        section for section, key in NAMES.items() if then.get(f"{section}.{key}") != here.get(f"{section}.{key}")
    }
    found = []
    for name in dict.fromkeys([*here, *then]):
        section = name.partition(".")[0]
        old, new = then.get(name, _UNSET), here.get(name, _UNSET)
        if old == new or name in NO_NUMBERS | set(RECORDS) or (section == "partition" and not with_partition):
            continue
        if section in renamed and _UNSET in (old, new):
            continue  # another method has other settings
        found.append(f"{name} was {_format(old)} when the run was begun and is {_format(new)} now")
    for section, own in (stored.get("own") or {}).items():
        for name, one in own.items():
            known = ((now.get("own") or {}).get(section) or {}).get(name, one)
            if known["sha256"] != one["sha256"] and (section != "partition" or with_partition):
                found.append(f"{section} '{name}' ({known['place']}) is not what it was when the run was begun")
    return found


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", list(value) if isinstance(value, tuple) else value


def _format(value: Any) -> str:
    if value is _UNSET:
        return "not set"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
