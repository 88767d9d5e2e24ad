"""``graphsilo export``: a fitted model as a folder that runs without a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from graphsilo.cli import complete
from graphsilo.cli.terminal import say
from graphsilo.cli.values import Debug, OwnCode, allow_own, option, switch
from graphsilo.loading import load


def export(
    run: Path = option("DIR", "Folder of a finished run.", complete.runs, default=...),
    out: Path = option("FOLDER", "Folder that is made.", default=...),
    client: str | None = option("K", "Whose model, by number or name; not needed in a silo's own result folder."),
    seed: int | None = option("S", "Seed of training; else the run's first."),
    checkpoint: Literal["best", "last"] = option("", "Best by validation, or last round.", default="best"),
    model: Literal["own", "common"] | None = option(
        "", "The silo's own model or the common one; else the one that the run reports."
    ),
    onnx: bool = switch("--onnx", "Also write what follows on finished columns as model.onnx."),
    own: OwnCode = None,
    debug: Debug = False,
) -> None:
    """Write a fitted model as a folder that scores tables without a federation, with a model card."""
    allow_own(own)
    load("graphsilo.experiments.export")
    from graphsilo.experiments import export as exports

    found = exports.export(run, out, client=client, seed=seed, checkpoint=checkpoint, model=model, onnx=onnx)
    say(f"{found.by}: {found.folder} ({', '.join(found.files)})")
    say(f"It checks itself: python {found.folder / 'scorer.py'}")
