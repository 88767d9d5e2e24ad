"""Reads ``result.json``, of a run or at a silo: for the report, the terminal and predictions.

``schema`` is its form as JSON Schema, kept as ``docs/result.schema.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from graphsilo.__about__ import __version__
from graphsilo.errors import ConfigError, RunError
from graphsilo.experiments.storage import disk
from graphsilo.experiments.storage.records import (
    FORMAT,
    Absent,
    BesideMeans,
    BesideScores,
    ClientScores,
    Means,
    MethodFacts,
    Record,
    RunRecord,
    ScoreBins,
    Scores,
    Seed,
    convert,
    tree_of,
)
from graphsilo.types import Task

# -- what each silo gets of a run between machines -----------------------------------------------------------------


class OwnSeed(Record):
    """One seed, as a silo sees it: its own scores alone."""

    seed: int
    best_round: int
    last_round: int
    client: ClientScores | None
    reported: str | None = None

    @property
    def mode(self) -> str:
        """The mode that stands for the seed; empty where none was recorded."""
        return self.reported or ""


class FederationFacts(Record):
    """With whom a silo trained."""

    name: str
    clients: int
    without: list[Absent]


class OwnSummary(Record):
    """The federation's means."""

    test: Means


class SiloShare(Record):
    """What the coordinator sends a silo about a run.

    Attributes:
        schema: What its model was made for.
        sparse: Whether its features are.
        model: Name and settings of its backbone.
    """

    format: int
    graphsilo: str
    fingerprint: str
    task: Task
    method: MethodFacts
    class_names: list[str] | None
    schema: dict[str, Any]
    sparse: bool
    model: list[Any]
    seeds: list[OwnSeed]
    federation: FederationFacts
    summary: OwnSummary


class SiloRecord(SiloShare):
    """``result.json`` at a silo's site, which adds its name, its description, its number and the hash of its data."""

    silo: str
    silo_file: str
    client: int
    silo_data: str | None


def mode_of(seed: Seed | OwnSeed, client: int) -> str:
    """The mode that was reported of a client: its own choice, or that of the seed."""
    rows = seed.clients if isinstance(seed, Seed) else [seed.client]
    own = next((row.mode for row in rows if row is not None and row.client == client), None)
    return own or seed.mode


# -- files and form ------------------------------------------------------------------------------------------------


def read(folder: Path) -> RunRecord | SiloRecord:
    """A folder's ``result.json``, of a run or at a silo.

    Raises:
        ConfigError: The folder, or the result in it, is missing; one paragraph, as the next.
        RunError: It is damaged, or another version's.
    """
    if not folder.is_dir():
        there = "that is a file" if folder.exists() else "there is no such folder"
        raise ConfigError(
            f"a run folder was wanted at '{folder}', but {there}: give the folder that "
            f"`graphsilo run --out` wrote, the one that holds result.json."
        )
    path = folder / "result.json"
    if not path.is_file():
        unfinished = (folder / "config.yaml").is_file()
        finish = f"finish it with `graphsilo run --resume --out {folder}`, or " if unfinished else ""
        raise ConfigError(
            f"a finished run was wanted in '{folder}', but it holds no result.json: {finish}give the folder of a "
            f"finished run, as `graphsilo run --out` writes it."
        )
    tree = disk.read_json(path, "the result")
    version, wrote = (tree.get(key) if isinstance(tree, Mapping) else None for key in ("format", "graphsilo"))
    if version != FORMAT:
        raise RunError(
            f"'{path}' should hold the result of a run in format {FORMAT}, but its format is {version!r}: read it with "
            f"the graphsilo that wrote it ({wrote or 'version not recorded'}), or run again."
        )
    _empty_damaged_bins(tree)
    try:
        return convert(tree, SiloRecord) if "federation" in tree else convert(tree, RunRecord)
    except msgspec.ValidationError as error:
        raise RunError(
            f"'{path}' should hold the result of a run, but does not have the form of one: {error}. It was edited, or "
            f"written by another version of graphsilo ({wrote or 'not recorded'}; this is {__version__}): read it with "
            f"that version, restore it from a copy, or run again."
        ) from None


def _empty_damaged_bins(tree: dict[str, Any]) -> None:
    """Counts that nothing but figures is made of keep no result from being read: the report says what is left out."""
    for seed in tree["seeds"] if isinstance(tree.get("seeds"), list) else ():
        try:
            convert(seed.get("score_bins") if isinstance(seed, dict) else None, ScoreBins | None)  # type: ignore[arg-type]
        except msgspec.ValidationError:
            seed["score_bins"] = tree_of(ScoreBins([], [], [], []))


def read_run(folder: Path) -> RunRecord:
    """The same, of a run as a whole.

    Raises:
        ConfigError: As ``read``.
        RunError: As ``read``; or it is a silo's own.
    """
    found = read(folder)
    if isinstance(found, SiloRecord):
        raise RunError(
            f"'{folder / 'result.json'}' holds what silo {found.silo} was sent about a run, not the run's result: that "
            f"is at the coordinator."
        )
    return found


def schema() -> dict[str, Any]:
    """The JSON Schema of ``result.json``, made from the records."""
    kinds = (RunRecord, SiloRecord)
    opened = {Scores: BesideScores, Means: BesideMeans}
    _, parts = msgspec.json.schema_components(
        (*kinds, *opened.values()),
        schema_hook=lambda kind: {"$ref": f"#/$defs/{kind.__name__}"},
        ref_template="#/$defs/{name}",
    )
    values = {
        Scores: {"anyOf": [{"type": ["number", "null"]}, {"type": "array", "items": {"type": ["number", "null"]}}]},
        Means: {"$ref": "#/$defs/MeanStd"},
    }
    for kind, beside in opened.items():
        # Metrics are named by the table of metrics, not here.
        fields = parts.pop(beside.__name__)
        parts[kind.__name__] = {
            **fields, "title": kind.__name__, "description": kind.__doc__, "additionalProperties": values[kind],
        }  # fmt: skip
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "result.json of graphsilo",
        "anyOf": [{"$ref": f"#/$defs/{kind.__name__}"} for kind in kinds],
        "$defs": dict(sorted(parts.items())),
    }
