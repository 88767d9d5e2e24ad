"""``graphsilo gntk``: what a cut does to the generalisation bound of the graph neural tangent kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from graphsilo.cli.terminal import say, show, table
from graphsilo.cli.values import (
    Clients,
    CutSeed,
    Data,
    DataRoot,
    Debug,
    data_and_cut,
    option,
)
from graphsilo.errors import ConfigError, RunError, UnsupportedError

if TYPE_CHECKING:
    from graphsilo.data.graph import Graph
    from graphsilo.data.silos.silo import Silo


def gntk(
    data: Data = None,
    partition: str | None = option("RULE", "Rule that cuts the data into clients."),
    clients: Clients = None,
    partition_seed: CutSeed = None,
    partition_file: Path | None = option("P.npz", "A stored partition instead of a rule."),
    run: Path | None = option(
        "DIR",
        "Folder of a finished run of FedSage+ with evaluation.study: its data, its cut, and the graphs that it mended.",
    ),
    seed: int | None = option("S", "Seed of training; else the run's first."),
    blocks: int = option("K", "Aggregations.", default=2, min=1),
    layers: int = option("R", "ReLU layers behind each.", default=1, min=1),
    scale: Literal["mean", "root"] = option("", "Neighbourhoods count 1 / degree, or 1 / √degree.", default="mean"),
    confidence: float | None = option("σ", "Add √(log(1/σ) / n): the bound then holds with 1 - σ."),
    jitter: float = option("X", "Added to the kernel's diagonal, as a share of its mean.", default=1e-6, min=0.0),
    out: Path | None = option("F.json", "Write the numbers here; else DIR/gntk.json for a run."),
    data_root: DataRoot = None,
    assignments: list[str] | None = option("NAME=VALUE", "Any setting of the data or the cut.", flags="--set"),
    debug: Debug = False,
) -> None:
    """Compare the tangent kernel's bound on the whole, the cut and the mended graphs."""
    from graphsilo.data.graph import Graph
    from graphsilo.evaluate.gntk import check_size, compare
    from graphsilo.experiments.effects import check_clients, drop_idle
    from graphsilo.experiments.simulation import prepare
    from graphsilo.experiments.storage import disk

    if confidence is not None and not 0 < confidence < 1:
        raise ConfigError(f"--confidence is a probability between 0 and 1; got {confidence:g}.")
    if run is None and seed is not None:
        raise ConfigError("--seed chooses among the seeds of a run: name its folder with --run.")
    given = data_and_cut(data, data_root, partition, clients, partition_seed, partition_file)
    config = _config({name: value for name, value in given.items() if value is not None}, assignments or [], run)
    simulation = prepare(config)
    if run is None:
        check_clients(config, simulation.partition)
        drop_idle(config, task=simulation.task, partition=simulation.partition)
    if not isinstance(simulation.graph, Graph) or any(silo.parts > 1 for silo in simulation.silos):
        raise UnsupportedError("the tangent kernel is computed for one graph that is cut; this data holds several.")
    check_size(simulation.graph.num_nodes)
    silos: dict[int, Graph] = {silo.client: silo.graph for silo in simulation.silos if isinstance(silo.graph, Graph)}
    study = None if run is None else find_study(run.expanduser(), seed)
    mended = {} if study is None else load_mended(study, simulation.silos)
    found = {
        "data": simulation.graph.name,
        "partition": simulation.partition.rule,
        "study": None if study is None else str(study),
        **compare(
            simulation.graph,
            silos,
            mended,
            blocks=blocks,
            layers=layers,
            scale=scale,
            confidence=confidence,
            jitter=jitter,
        ),
    }
    target = out.expanduser() if out is not None else None if run is None else run.expanduser() / "gntk.json"
    if target is not None:
        disk.write_json(target, found)
    print_kernel(found)
    if target is not None:
        say()
        say(f"Written: {target}")


def _config(overrides: Mapping[str, Any], assignments: Sequence[str], run: Path | None) -> Any:
    """The configuration of the flags, or of a run with its stored partition."""
    from graphsilo.experiments.config import load_config

    if run is None:
        return load_config(None, overrides=dict(overrides), assignments=assignments)
    taken = [name for name in overrides if name != "data.root"]
    if taken or assignments:
        odd = f"--set {assignments[0]}" if not taken else f"a setting of {taken[0].partition('.')[0]}"
        raise ConfigError(f"--run brings its own data and cut; leave out {odd}.")
    folder = run.expanduser()
    if not (folder / "config.yaml").is_file():
        raise ConfigError(
            f"a finished run was wanted in '{folder}', but it holds no config.yaml: give the folder that "
            f"`graphsilo run --out` wrote."
        )
    return load_config(folder / "config.yaml", overrides={**overrides, "partition.file": str(folder / "partition.npz")})


def find_study(folder: Path, seed: int | None = None) -> Path:
    """The study file of a run's seed; None takes the first that has one.

    Raises:
        ConfigError: There is none, or none of that seed.
    """
    from graphsilo.experiments.storage import disk

    known = disk.study_seeds(folder)
    if not known:
        raise ConfigError(
            f"{folder} holds no study: run FedSage+ with --set evaluation.study=true, which keeps the mended graphs."
        )
    if seed is not None and seed not in known:
        raise ConfigError(f"{folder} holds studies of the seeds {known}; {seed} was asked for.")
    return disk.study_path(folder, known[0] if seed is None else seed)


def load_mended(study: Path, silos: Sequence[Silo]) -> dict[int, Graph]:
    """Each client's mended graph: ``client-<k>/mended_edges`` [2, m] and ``client-<k>/mended_features`` [n, d].

    Raises:
        RunError: The file cannot be read, or has no mended graph.
        DataError: Edges and features do not fit together.
    """
    import numpy as np

    from graphsilo.data.graph import Graph
    from graphsilo.experiments.storage import disk

    arrays = disk.read_study(study)
    found: dict[int, Graph] = {}
    for silo in silos:
        mine = arrays.get(str(silo.client), {})
        if not {"mended_edges", "mended_features"} <= mine.keys():
            continue
        features = np.ascontiguousarray(mine["mended_features"], dtype=np.float32)
        found[silo.client] = Graph(
            features=features,
            edges=np.ascontiguousarray(mine["mended_edges"], dtype=np.int64),
            labels=np.full(len(features), -1, dtype=np.int64),
            num_classes=silo.schema.num_classes,
            name=f"client {silo.client}, mended",
        )
    if not found:
        raise RunError(f"{study} holds no mended graph; only FedSage+ mends graphs.")
    return found


def print_kernel(found: Mapping[str, Any]) -> None:
    """Print a comparison: what it is, and a row per silo."""
    from graphsilo.report import kernel

    say(f"{found['data']}, {found['partition']}, {len(found['silos'])} clients")
    say()
    rows = kernel.table(found)
    if rows is not None:
        grid = table("", *(title for title, _ in rows.columns[1:]), numbers=range(1, len(rows.columns)))
        for row in rows.rows:
            grid.add_row(*row)
        show(grid)
        say()
    say(kernel.summary(found))
