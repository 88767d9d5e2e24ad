"""The public functions, which ``import graphsilo`` offers: the commands of the command line as Python calls.

They take the same names and settings, raise the classes of :mod:`graphsilo.errors`, and print nothing unless asked.
"""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from graphsilo.errors import ConfigError, RunError, UnsupportedError, nearest

if TYPE_CHECKING:
    from graphsilo.data.graph import Graph, GraphCollection
    from graphsilo.data.partition import Partition
    from graphsilo.experiments.config import RunConfig
    from graphsilo.experiments.observer import Observer
    from graphsilo.experiments.planning import Plan
    from graphsilo.experiments.predict import Prediction
    from graphsilo.experiments.results import Result
    from graphsilo.report import Comparison, record

PathName: TypeAlias = "str | PathLike[str]"
Section: TypeAlias = "str | Mapping[str, Any]"
"""A name, or a table with the name and its settings: ``"fedprox"`` or ``{"name": "fedprox", "mu": 0.1}``."""


def load(name: PathName, *, root: PathName | None = None, seed: int = 0, **options: Any) -> Graph | GraphCollection:
    """Load a data set of the catalog, or a graph of your own.

    Args:
        name: As ``graphsilo list data`` shows it, or a .yaml (tables), .npz or .pt file.
        root: Folder with PyG's raw files; None takes ``GRAPHSILO_DATA``, else they are downloaded.
        seed: Of generated data.
        options: What is done on the way in, e.g. ``largest_component=True``; for generated data also its settings,
            e.g. ``nodes=500``.

    Returns:
        A graph for node tasks, a collection of graphs for graph tasks.

    Raises:
        ConfigError: An unknown name or option.
        DataError: The files are missing or damaged.

    Example:
        >>> load("citation-sbm", nodes=100).num_nodes
        100
    """
    from graphsilo.data import catalog

    if not isinstance(name, str | PathLike):
        raise _unusable("graphsilo.load", "the name of a data set or the path of a file, such as 'Cora'", name)
    return catalog.load(fspath(name), root=root, options=options or None, seed=seed)


def partition(
    graph: PathName | Graph | GraphCollection,
    rule: str = "auto",
    *,
    clients: int = 10,
    seed: int = 2024,
    scenario: str = "seen",
    ratios: Sequence[float] | None = None,
    split: str | None = None,
    split_index: int = 0,
    **options: Any,
) -> Partition:
    """Cut data into clients, and each client's items into train, validation and test.

    Args:
        graph: What ``load`` gives, or its name.
        rule: As ``graphsilo list partitions`` shows it; ``auto`` is louvain for a graph, dirichlet for a collection.
        clients: K.
        seed: Of the cut and its splits.
        scenario: ``unseen`` and ``open`` keep a new client apart; see ``graphsilo list scenarios``.
        ratios: Shares of train, validation and test; None takes those the field uses for this data set.
        split: ``stratified``, ``global`` or ``predefined``; None takes the rule's own.
        split_index: Which of several predefined splits.
        options: Settings of the rule, e.g. ``alpha=0.5``.

    Returns:
        The partition. ``save`` writes it as a file that ``run(partition="file.npz")`` takes.

    Raises:
        ConfigError: An unknown rule or setting.
        PartitionError: The data cannot be cut so.

    Example:
        >>> partition(load("citation-sbm", nodes=100), "random", clients=4).num_clients
        4
    """
    from graphsilo.data.graph import Graph, GraphCollection
    from graphsilo.data.partition import partition_graphs
    from graphsilo.data.scenarios import partition_for_scenario

    data = load(graph) if isinstance(graph, str | PathLike) else graph
    if not isinstance(data, Graph | GraphCollection):
        raise _unusable("graphsilo.partition", "what graphsilo.load gives, or the name of a data set", data)
    if isinstance(data, GraphCollection):
        if scenario != "seen" or split is not None or split_index:
            raise UnsupportedError("scenarios and predefined splits are about nodes; a collection of graphs has none.")
        chosen = "dirichlet" if rule == "auto" else rule
        return partition_graphs(data, chosen, clients=clients, seed=seed, ratios=ratios, options=options or None)
    crop = {"crop": options.pop("crop")} if "crop" in options else {}
    return partition_for_scenario(
        data,
        "louvain" if rule == "auto" else rule,
        clients=clients,
        seed=seed,
        scenario=scenario,
        ratios=ratios,
        options=options or None,
        split=split,
        split_index=split_index,
        **crop,
    )


def run(
    config: PathName | Mapping[str, Any] | RunConfig | None = None,
    *,
    data: Section | Sequence[str] | PathName | Graph | GraphCollection | None = None,
    data_root: PathName | None = None,
    partition: Section | PathName | Partition | None = None,
    clients: int | None = None,
    partition_seed: int | None = None,
    scenario: Section | None = None,
    task: str | None = None,
    model: Section | None = None,
    method: Section | None = None,
    rounds: int | None = None,
    seeds: int | Sequence[int] | None = None,
    references: Sequence[str] | None = None,
    workers: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    out: PathName | None = None,
    resume: bool = False,
    report: bool = True,
    progress: bool | Observer = False,
    **settings: Any,
) -> Result:
    """Train a federation and evaluate it.

    What is given here wins over ``config``; what is given nowhere has its default. ``data``, ``partition``,
    ``scenario``, ``model`` and ``method`` take a name, or a table that holds the name and its settings, as in a
    configuration file. Any single setting may also be given by its dotted name, which wins over all::

        graphsilo.run("cora.yaml", method={"name": "fedprox", "mu": 0.1}, seeds=range(3), out="runs/fedprox")
        graphsilo.run(data="Cora", clients=5, **{"method.lr": 0.05, "data.row_normalize": True})

    Args:
        config: A configuration: YAML file, table or RunConfig; None starts from the defaults.
        data: Data set, file of your own, or what ``graphsilo.load`` gave; a list of names gives each client one.
        data_root: Folder with PyG's raw files; None takes ``GRAPHSILO_DATA``, else they are downloaded.
        partition: Cutting rule, a stored partition (.npz), or what ``graphsilo.partition`` gave.
        clients: Number of clients.
        partition_seed: Seed of the cut and its splits.
        scenario: ``seen``, ``unseen``, ``open`` or ``inductive``.
        task: ``node``, ``graph`` or ``link``; None takes what the data is made for.
        model: Backbone.
        method: Federated method.
        rounds: Communication rounds.
        seeds: Seeds of training, one result each.
        references: Rows to add: ``local``, ``global``, ``global_cut``, ``majority``.
        workers: Processes that share the clients.
        device: ``cpu`` or ``cuda``.
        precision: ``float32``, or ``bfloat16`` for the dense matrix products of the clients' models.
        out: Folder for results, checkpoints, models and the report; None writes nothing.
        resume: Go on from the checkpoints in ``out``.
        report: Draw the report page, where there is a folder.
        progress: Show progress on stderr; or an observer that hears of every round.
        settings: Single settings by dotted name, e.g. ``**{"evaluation.every": 5}``.

    Returns:
        The result; ``result.tree`` is what result.json holds.

    Raises:
        ConfigError: An unknown setting, or one that contradicts another.
        GraphsiloError: As the parts of a run do.

    Example:
        >>> small = {"name": "citation-sbm", "nodes": 100, "classes": 3, "features": 30}
        >>> result = run(data=small, partition="random", clients=2, rounds=2)
        >>> result.tree["task"]
        'node'
    """
    from graphsilo.experiments import runner

    with tempfile.TemporaryDirectory(prefix="graphsilo-") as folder:
        scratch = Path(folder)
        place = None if out is None else Path(out)
        arguments = {
            "data": data, "data_root": data_root, "partition": partition, "clients": clients,
            "partition_seed": partition_seed, "scenario": scenario, "task": task, "model": model, "method": method,
            "rounds": rounds, "seeds": seeds, "references": references, "workers": workers, "device": device,
            "precision": precision,
        }  # fmt: skip
        chosen = _configuration(config, _overrides(arguments, place or scratch, scratch), _dotted(settings), scratch)
        observer, finish = _observer(progress)
        draw = _draw_report if report else None
        try:
            return runner.run(chosen, out=place, resume=resume, observer=observer, report=draw)
        finally:
            finish()


def plan(
    config: PathName | Mapping[str, Any] | RunConfig | None = None,
    *,
    seconds: float = 10.0,
    bandwidth: str | None = None,
    latency: str | None = None,
    out: PathName | None = None,
    **settings: Any,
) -> Plan:
    """Estimate what a run will cost: memory, bytes, CPU and wall time.

    The data is loaded and cut, and the method's set-up and a few rounds run in a process of their own. As with
    workers, a method of your own must stand in a package with an entry point.

    Args:
        config: A configuration, as ``run`` takes it.
        seconds: CPU seconds that a trial aims at, up to three times as many where set-up or two rounds take longer.
        bandwidth: Rate of each site's line, such as ``100Mbit/s``, for a run between machines.
        latency: Time of a message on that line, one way, such as ``20ms``.
        out: Where the run would write; None leaves results, checkpoints and the disk out.
        settings: What ``run`` takes by the same names: data, clients, method, rounds, workers, ``"method.mu"`` and so
            on.

    Returns:
        The plan; ``to_dict`` gives plain values, ``findings`` what to know, ``is_refused`` whether it does not fit.

    Raises:
        ConfigError: An unknown setting, or one that contradicts another.
        GraphsiloError: As the run itself would.

    Example:
        >>> small = {"name": "citation-sbm", "nodes": 100, "classes": 3, "features": 30}
        >>> found = plan(data=small, partition="random", clients=2, rounds=2)
        >>> found.bytes.seed.exact
        True
    """
    from graphsilo.experiments import planning
    from graphsilo.experiments.planning import lines

    if latency is not None and bandwidth is None:
        raise ConfigError("graphsilo.plan(latency=...) goes with bandwidth: how much a site's line carries.")
    line = None
    if bandwidth is not None:
        line = planning.Line(lines.bandwidth(bandwidth), 0.0 if latency is None else lines.latency(latency))
    with tempfile.TemporaryDirectory(prefix="graphsilo-") as folder:
        scratch = Path(folder)
        arguments = {name: settings.pop(name) for name in _ARGUMENTS if name in settings}
        chosen = _configuration(config, _overrides(arguments, scratch, scratch), _dotted(settings), scratch)
        place = None if out is None else Path(out)
        finish = "" if place is None else "graphsilo.report:write"
        return planning.plan(chosen, seconds=seconds, line=line, out=place, finish=finish)


def compare(
    *runs: PathName | Result,
    metrics: Sequence[str] | None = None,
    baseline: str | None = None,
    report: PathName | None = None,
) -> Comparison:
    """Put runs side by side: mean and deviation over seeds, paired significance, costs.

    Args:
        runs: Folders of finished runs, or what ``run`` returned.
        metrics: Test metrics to show; None takes the usual five.
        baseline: Label or folder name of the run to test against; None takes the best of each metric.
        report: Also write a page with figures to this file.

    Returns:
        The comparison; ``graphsilo.report.to_markdown``, ``to_latex`` and ``to_csv`` write it as text.

    Raises:
        RunError: A folder cannot be read.
        ConfigError: An unknown metric or baseline.
    """
    from graphsilo.experiments import disk
    from graphsilo.report import html, tables

    loaded = [_as_record(run, place + 1) for place, run in enumerate(runs)]
    if report is not None:
        disk.write_text(Path(report), html.render_comparison(loaded, baseline=baseline))
    return tables.compare_runs(loaded, metrics=metrics, baseline=baseline)


def predict(
    run: PathName | Result,
    client: int,
    *,
    seed: int | None = None,
    checkpoint: str = "best",
    graph: PathName | Graph | GraphCollection | None = None,
) -> Prediction:
    """Classify with the model that a client had in a finished run.

    Args:
        run: Folder of the run, or what ``run`` returned with ``out``.
        client: Whose model.
        seed: Seed of training; None takes the run's first.
        checkpoint: ``best`` (by validation) or ``last``.
        graph: A graph or a file of one, such as the client's with new nodes; None takes the client's own.

    Raises:
        RunError: There is no such run on disk, or its models were not saved.
        ConfigError: No such client, seed or checkpoint.
        DataError: The graph does not fit the model.
    """
    from graphsilo.data.graph import Graph, GraphCollection
    from graphsilo.experiments import predict as prediction
    from graphsilo.experiments.results import Result

    place: Path
    if not isinstance(run, str | PathLike | Result):
        raise _unusable("graphsilo.predict", "the folder of a run, or what graphsilo.run returned", run)
    if graph is not None and not isinstance(graph, str | PathLike | Graph | GraphCollection):
        raise _unusable("graphsilo.predict(graph=...)", "a graph, or a file of one", graph)
    if isinstance(run, str | PathLike):
        place = Path(run)
    elif run.out is None:
        raise RunError("predict needs the models of a run on disk; this run had no folder. Run again with out=DIR.")
    else:
        place = run.out
    target = Path(graph) if isinstance(graph, str | PathLike) else graph
    return prediction.predict(place, client=client, seed=seed, checkpoint=checkpoint, graph=target)


_ARGUMENTS = (
    "data", "data_root", "partition", "clients", "partition_seed", "scenario", "task", "model", "method", "rounds",
    "seeds", "references", "workers", "device", "precision",
)  # fmt: skip
"""What says in ``run`` and ``plan`` what is run."""


def _overrides(arguments: Mapping[str, Any], kept: Path, scratch: Path) -> dict[str, Any]:
    """Settings by dotted name, of those arguments of ``run`` that were given."""
    named = {name: arguments.get(name) for name in _ARGUMENTS}
    seeds, root, references = named["seeds"], named["data_root"], named["references"]
    given: dict[str, Any] = {
        **_data_settings(named["data"], kept, scratch),
        "data.root": None if root is None else fspath(root),
        **_partition_settings(named["partition"], kept, scratch),
        "partition.clients": named["clients"],
        "partition.seed": named["partition_seed"],
        **_section("scenario", named["scenario"]),
        "task": named["task"],
        **_section("model", named["model"]),
        **_section("method", named["method"]),
        "method.rounds": named["rounds"],
        "run.seeds": None if seeds is None else [seeds] if isinstance(seeds, int) else [int(seed) for seed in seeds],
        "run.references": None if references is None else list(references),
        "run.workers": named["workers"],
        "run.device": named["device"],
        "run.precision": named["precision"],
    }
    return {name: value for name, value in given.items() if value is not None}


def _unusable(where: str, wanted: str, value: object) -> ConfigError:
    text = repr(value)
    shown = text if len(text) <= 60 else f"{text[:59]}…"
    return ConfigError(f"{where} takes {wanted}; got {shown} of type {type(value).__name__}.")


_NAMES = {"data": "name", "partition": "rule", "scenario": "name", "model": "name", "method": "name"}
"""What the name of a section is called."""


def _section(section: str, value: Section | Sequence[str] | None) -> dict[str, Any]:
    """A section's settings by dotted name, the name first: it decides which settings there are."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        return {section: value}
    name = _NAMES[section]
    ordered = {name: value[name], **value} if name in value else value
    return {f"{section}.{key}": item for key, item in ordered.items()}


def _data_settings(data: Any, kept: Path, scratch: Path) -> dict[str, Any]:
    """The data's settings; a graph in memory is stored with the run, so that the run can be taken up again."""
    from graphsilo.data.files import load_graph, save_graph
    from graphsilo.data.graph import Graph, GraphCollection

    if isinstance(data, Graph | GraphCollection):
        place = kept / "data.npz"
        if _is_taken(kept):
            from graphsilo.experiments.simulation import content_hash

            if not place.exists() or content_hash((load_graph(place),)) != content_hash((data,)):
                place = scratch / "data.npz"
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            save_graph(place, data)
        # What was loaded is what is trained on: nothing is done to it on the way back in.
        return {"data.name": str(place), "data.undirected": False}
    if isinstance(data, PathLike):
        return {"data": fspath(data)}
    if isinstance(data, list | tuple):
        return {"data": [_data_name(item, client) for client, item in enumerate(data)]}
    if data is not None and not isinstance(data, str | Mapping):
        raise _unusable("graphsilo.run(data=...)", "a data set's name, a file, a table of settings or a graph", data)
    if isinstance(data, Mapping) and isinstance(data.get("name"), list | tuple):
        data = {**data, "name": [_data_name(item, client) for client, item in enumerate(data["name"])]}
    elif isinstance(data, Mapping) and not isinstance(data.get("name", ""), str):
        data = {**data, "name": _data_name(data["name"], None)}
    return _section("data", data)


def _data_name(item: object, client: int | None) -> str:
    """A name or path as text; ``client`` is the place in a list of names, None outside of one."""
    from graphsilo.data.graph import Graph, GraphCollection

    if isinstance(item, str | PathLike):
        return str(fspath(item))
    where = "data['name']" if client is None else f"entry {client} of a list for data"
    if isinstance(item, Graph | GraphCollection):
        file = "own.npz" if client is None else f"client{client}.npz"
        raise ConfigError(
            f"{where} must name a data set or file; got {item.name}, a {type(item).__name__} in memory. Write it with "
            f"graphsilo.data.save_graph('{file}', graph) and name the file; or give one graph as data=graph, which the "
            f"partition cuts."
        )
    raise _unusable(f"graphsilo.run: {where}", "a data set's name or a file", item)


def _partition_settings(partition: Any, kept: Path, scratch: Path) -> dict[str, Any]:
    """The same for the partition, which is a rule, a file or an object."""
    from graphsilo.data.partition import Partition

    if isinstance(partition, Partition):
        place = kept / "partition.npz"
        if _is_taken(kept) and not (place.exists() and Partition.load(place).content_hash == partition.content_hash):
            place = scratch / "partition.npz"
        if not place.exists():
            partition.save(place)
        return {"partition.file": str(place)}
    if isinstance(partition, PathLike) or (isinstance(partition, str) and partition.endswith(".npz")):
        return {"partition.file": fspath(partition)}
    if partition is not None and not isinstance(partition, str | Mapping):
        raise _unusable("graphsilo.run(partition=...)", "a rule, a partition (.npz), or a table of settings", partition)
    return _section("partition", partition)


def _is_taken(folder: Path) -> bool:
    """Whether a folder holds a run: what is stored there must not be changed, and another run is refused later."""
    return (folder / "config.yaml").exists()


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted name, anything else refused.

    Raises:
        ConfigError: A name without a dot, most likely a mistyped argument.
    """
    for name in settings:
        if "." not in name:
            arguments = list(inspect.signature(run).parameters)[:-1]
            raise ConfigError(
                f"graphsilo.run has no argument '{name}'; {nearest(name, arguments)} Settings of a part are given with "
                f"its name, such as method={{'name': 'fedprox', 'mu': 0.1}}, or as **{{'method.mu': 0.1}}."
            )
    return dict(settings)


def _configuration(config: Any, overrides: Mapping[str, Any], dotted: Mapping[str, Any], scratch: Path) -> RunConfig:
    from graphsilo.experiments.config import RunConfig, load_config

    path: Path | None
    if isinstance(config, RunConfig | Mapping):
        tree = config.complete() if isinstance(config, RunConfig) else dict(config)
        path = scratch / "config.yaml"
        path.write_text(json.dumps(tree, default=str), encoding="utf-8")  # JSON is YAML
    elif config is None or isinstance(config, str | PathLike):
        path = None if config is None else Path(config)
    else:
        raise _unusable("graphsilo.run", "a configuration: a YAML file, a table or a RunConfig", config)
    nothing = [f"{name}=null" for name, value in dotted.items() if value is None]
    return load_config(path, overrides={**overrides, **dotted}, assignments=nothing)


def _observer(progress: bool | Observer) -> tuple[Observer | None, Callable[[], None]]:
    """Who hears of the rounds, and what is called at the end."""
    if not isinstance(progress, bool):
        return progress, lambda: None
    if not progress:
        return None, lambda: None
    from graphsilo.cli.progress import LiveProgress, PlainProgress

    if sys.stderr.isatty():
        live = LiveProgress(sys.stderr)
        return live, live.finish
    plain = PlainProgress(lambda line: print(line, file=sys.stderr, flush=True))
    return plain, plain.finish


def _draw_report(folder: Path) -> None:
    """Draw the page; a page that cannot be drawn does not take the result away."""
    from graphsilo import report

    try:
        report.write(folder)
    except Exception as error:
        warnings.warn(f"the report page of {folder} could not be drawn: {error}", stacklevel=3)


def _as_record(run: PathName | Result, number: int) -> record.Run:
    from graphsilo.experiments.results import Result
    from graphsilo.report import record

    if isinstance(run, str | PathLike):
        return record.load(run if isinstance(run, str) else Path(run), with_ledger=False)
    if not isinstance(run, Result):
        raise _unusable("graphsilo.compare", "folders of runs, or what graphsilo.run returned", run)
    if run.out is not None:
        return record.load(run.out, with_ledger=False)
    tree = dict(run.tree)
    return record.Run(Path(f"run {number}"), tree, dict(tree["config"]), None, ())
