"""The public functions, which ``import graphsilo`` offers: the commands of the command line as Python calls.

They take the same names and settings, raise the classes of :mod:`graphsilo.errors`, and print nothing unless asked.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from difflib import get_close_matches
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from graphsilo.errors import ConfigError, RunError, UnsupportedError, nearest, quote, unusable

if TYPE_CHECKING:
    from graphsilo.attacks.record import AttackRecord
    from graphsilo.cli.progress import LiveProgress, PlainProgress
    from graphsilo.data.graph import Graph, GraphCollection
    from graphsilo.data.partition import Partition
    from graphsilo.experiments.config import RunConfig
    from graphsilo.experiments.doors import Door
    from graphsilo.experiments.export import Export
    from graphsilo.experiments.observer import Observer
    from graphsilo.experiments.predict import Prediction
    from graphsilo.experiments.storage.results import Result
    from graphsilo.experiments.tuning.record import TuneRecord
    from graphsilo.experiments.why import Why
    from graphsilo.federation.registry import Method
    from graphsilo.planning import Plan
    from graphsilo.report import Comparison, Grid, record
    from graphsilo.report.reproduced import Reproduction
    from graphsilo.report.sweep_page import Swept

PathName: TypeAlias = "str | PathLike[str]"
Foreign: TypeAlias = Any
"""A graph of PyTorch Geometric, NetworkX or DGL, or several: what ``graph_of`` takes."""
Section: TypeAlias = "str | Mapping[str, Any]"
"""A name, or a table with the name and its settings: ``"fedprox"`` or ``{"name": "fedprox", "mu": 0.1}``. In place of
the name: a file or a place in it (``"net.py"``, ``"net.py:Net"``), or the thing itself."""


@contextmanager
def _usual_torch() -> Iterator[None]:
    """What a caller has set in torch, such as another default type, holds for the caller and not for what is run."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        yield
        return
    kind = torch.get_default_dtype()
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        stack.callback(torch.set_default_dtype, kind)
        torch.set_default_dtype(torch.float32)
        yield


@_usual_torch()
def load(
    name: PathName | Mapping[str, Any] | Foreign, *, root: PathName | None = None, seed: int = 0, **options: Any
) -> Graph | GraphCollection:
    """Load a data set of the catalog, or a graph of your own.

    Args:
        name: As ``graphsilo list data`` shows it; a .yaml (tables), .npz or .pt file; a table of these arguments, as
            ``run`` takes it; or a graph of another library, as :func:`graph_of` takes it.
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
    from graphsilo.data.sources import catalog
    from graphsilo.experiments.doors import plain

    if isinstance(name, Mapping) and "name" in name:
        table = plain(name)
        nested = table.pop("options", None) or {}
        return load(**{"root": root, "seed": seed, **nested, **table, **options})
    if not isinstance(name, str | PathLike):
        from graphsilo.data.sources.objects import graph_of, is_graph

        if not is_graph(name):
            wanted = "the name of a data set, the path of a file, or a graph of PyTorch Geometric, NetworkX or DGL"
            raise unusable("graphsilo.load", wanted, name)
        return catalog.apply_options(graph_of(name), plain(options) or None)
    return catalog.load(fspath(name), root=root, options=plain(options) or None, seed=plain(seed))


@_usual_torch()
def graph_of(
    thing: Foreign,
    *,
    features: str | Sequence[str] | None = None,
    labels: str | None = None,
    weights: str | None = None,
    name: str | None = None,
    target: str | None = None,
) -> Graph | GraphCollection:
    """The graph that an object of another library is.

    Known are PyTorch Geometric's ``Data`` and ``Dataset`` (one graph is for node tasks, several are a collection with a
    label each), lists of ``Data``, NetworkX's graphs, lists of these, and DGL's graphs. Masks ``train_mask``,
    ``val_mask`` and ``test_mask`` of the nodes are taken where they are there. Directions stay as they are.

    A ``HeteroData``, or a DGL graph with several types, keeps its types and relations; ``edge_attr`` (in DGL ``feat``)
    become columns of links, and ``time`` of nodes and links is in days since 1970-01-01.

    Args:
        thing: The object.
        features: Attribute of the nodes that holds their features: ``x``, in DGL ``feat``. For NetworkX also a list of
            attributes, which are a column each. A graph that has none has none.
        labels: Attribute that holds the class, or numbers to be estimated (those that are not whole; others by
            ``graphsilo.data.with_targets``): ``y``, in DGL ``label``. Words are numbered in alphabetical order; in
            NetworkX a node without one is unlabelled.
        weights: Attribute of the edges that holds their weight: ``edge_weight``, in NetworkX and DGL ``weight``.
        name: What to call it.
        target: Type of the nodes that are classified, where several have labels.

    Raises:
        ConfigError: It is no graph that is known here, or it is not clear what is classified.
        DataError: A part is missing or does not fit.

    Example:
        >>> import networkx
        >>> found = networkx.path_graph(3)
        >>> networkx.set_node_attributes(found, {0: "a", 1: "b", 2: "a"}, "kind")
        >>> graph_of(found, labels="kind").labels.tolist()
        [0, 1, 0]
    """
    from graphsilo.data.sources import objects

    return objects.graph_of(thing, features=features, labels=labels, weights=weights, name=name, target=target)


@_usual_torch()
def partition(
    graph: PathName | Graph | GraphCollection | Foreign,
    rule: Any = "auto",
    *,
    clients: int | None = None,
    seed: int = 2024,
    scenario: str = "seen",
    ratios: Sequence[float] | None = None,
    split: str | None = None,
    split_index: int = 0,
    **options: Any,
) -> Partition:
    """Cut data into clients, and each client's items into train, validation and test.

    Args:
        graph: What ``load`` gives, its name, or a graph of another library (:func:`graph_of`).
        rule: As ``graphsilo list partitions`` shows it; ``auto`` is louvain for a graph, dirichlet for a collection.
            Or one of your own: a function (graph, clients, seed), the file that it is in, or [n] client numbers.
        clients: K; None takes as many as your own numbers have, else 10.
        seed: Of the splits, of random rules and added links; Louvain and Metis take ``cut_seed`` for another cut.
        scenario: ``unseen`` and ``open`` keep a new client apart; see ``graphsilo list scenarios``.
        ratios: Shares of train, validation and test; None takes those the field uses for this data set.
        split: ``stratified``, ``global``, ``predefined`` or ``time``; None takes the masks of your own data where it
            has some, else the rule's own.
        split_index: Which of several predefined splits.
        options: Settings of the rule, e.g. ``alpha=0.5``; of a split by time ``train_until``, ``val_until``,
            ``split_by``.

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
    from graphsilo.data.partition.graphs import partition_graphs
    from graphsilo.data.partition.registry import usual_rule
    from graphsilo.data.partition.rule import TimeOptions
    from graphsilo.data.silos.scenarios import check_scenario, partition_for_scenario

    clients = None if clients is None else _whole("clients", clients)
    seed, split_index = (_whole(name, value) for name, value in (("seed", seed), ("split_index", split_index)))
    data = graph if isinstance(graph, Graph | GraphCollection) else load(graph)
    with tempfile.TemporaryDirectory(prefix="graphsilo-") as folder:
        rule, options = _rule(rule, options, Path(folder))
        times = {key: options.pop(key) for key in TimeOptions.model_fields if key in options}
        how: dict[str, Any] = {"seed": seed, "ratios": ratios}
        if isinstance(data, GraphCollection):
            if scenario != "seen" or split is not None or split_index or times:
                raise UnsupportedError(
                    "scenarios and predefined splits are about nodes; a collection of graphs has none."
                )
            chosen, count = "dirichlet" if rule == "auto" else rule, 10 if clients is None else clients
            return partition_graphs(data, chosen, clients=count, options=options or None, **how)
        if "crop" in options:
            if check_scenario(scenario) != "open":
                raise ConfigError(
                    f"graphsilo.partition(crop=...) belongs to the scenario 'open'; this is '{scenario}'."
                )
            how["crop"] = options.pop("crop")
        if times and split != "time":
            raise ConfigError(f"graphsilo.partition({next(iter(times))}=...) divides by time: say split='time', too.")
        if split_index and split != "predefined":
            raise ConfigError(
                f"graphsilo.partition(split_index={split_index}) chooses among predefined splits: say "
                f"split='predefined', too."
            )
        return partition_for_scenario(
            data, usual_rule(data) if rule == "auto" else rule, clients=clients, scenario=scenario,
            options=options or None, split=split, split_index=split_index, times=times, **how,
        )  # fmt: skip


def _rule(rule: Any, options: dict[str, Any], folder: Path) -> tuple[str, dict[str, Any]]:
    """The name of a rule, whatever a person said, and its options."""
    from graphsilo.experiments.given import read_partition
    from graphsilo.federation.own import bring

    said = read_partition(rule, folder)
    if isinstance(said, Mapping):
        if "path" not in said:
            wanted = "a rule, a client number per node, or a function (graph, clients, seed)"
            raise unusable("graphsilo.partition(rule=...)", wanted, rule)
        return str(said["rule"]), {**options, "path": said["path"]}
    found = bring("partition", said, named=True)
    return said if found is None else found[0], options


@_usual_torch()
def run(
    config: PathName | Mapping[str, Any] | RunConfig | None = None,
    *,
    data: Section | Sequence[str] | PathName | Graph | GraphCollection | Foreign | None = None,
    data_root: PathName | None = None,
    partition: Section | PathName | Partition | Any | None = None,
    clients: int | None = None,
    partition_seed: int | None = None,
    scenario: Section | None = None,
    task: str | None = None,
    model: Section | Any | None = None,
    method: Section | Method | None = None,
    rounds: int | None = None,
    seeds: Sequence[int] | None = None,
    references: Sequence[str] | None = None,
    without: int | str | Sequence[int | str] | None = None,
    workers: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    out: PathName | None = None,
    resume: bool = False,
    report: bool = True,
    progress: bool | Observer | Sequence[bool | Observer] | None = False,
    **settings: Any,
) -> Result:
    """Train a federation and evaluate it.

    What is given here wins over ``config``; what is given nowhere has its default, or keeps what ``config`` says.
    ``data``, ``partition``, ``scenario``, ``model`` and ``method`` take a name, or a table that holds the name and its
    settings, as in a configuration file. Any single setting may also be given by its dotted name. What a call says
    twice and differently is refused::

        graphsilo.run("cora.yaml", method={"name": "fedprox", "mu": 0.1}, seeds=range(3), out="runs/fedprox")
        graphsilo.run(data="Cora", clients=5, **{"method.lr": 0.05, "data.scale": "unit_rows"})

    Args:
        config: A configuration: YAML file, table or RunConfig; None starts from the defaults.
        data: Data set, file of your own, what ``graphsilo.load`` gave, or a graph of PyTorch Geometric, NetworkX or
            DGL, as :func:`graph_of` takes it; a list of names gives each client one.
        data_root: Folder with PyG's raw files; None takes ``GRAPHSILO_DATA``, else they are downloaded.
        partition: Cutting rule, a stored partition (.npz), or what ``graphsilo.partition`` gave; [n] client numbers of
            the nodes; or a function (graph, clients, seed) that gives such numbers.
        clients: Number of clients.
        partition_seed: Seed of the splits, of random rules and added links; Louvain and Metis: ``partition.cut_seed``.
        scenario: ``seen``, ``unseen``, ``open``, ``inductive`` or ``receiver``.
        task: ``node``, ``graph`` or ``link``; None takes what the data is made for.
        model: Backbone; or a class that derives from ``torch.nn.Module``, or a function f(inputs, outputs) that makes
            such a module, with ``forward(x, edge_index)``.
        method: Federated method; or a ``Method``.
        rounds: Communication rounds.
        seeds: Seeds of training as a list or range, one result each.
        references: Rows to add: ``alone``, ``local``, ``trees_alone`` (on tables, where nothing is said), ``fedavg``,
            ``fedridge``, ``auto``, ``one_place``, ``global``, ``global_cut``, ``majority``; an empty list for none.
        without: Clients that are left out, by number or name, as if they had never been there.
        workers: Processes that share the clients.
        device: ``cpu`` or ``cuda``.
        precision: ``float32``, or ``bfloat16`` for the dense matrix products of the clients' models.
        out: Folder for results, checkpoints, models and the report; None writes nothing.
        resume: Go on from the checkpoints in ``out``; what is not said is as the run was begun with.
        report: Draw the report page, where there is a folder.
        progress: True shows progress on stderr; or an observer that is notified of it all, such as a tracker of
            ``graphsilo.experiments.tracking``; or a list of them.
        settings: Single settings by dotted name, e.g. ``**{"evaluation.every": 5}``.

    Returns:
        The result; ``result.record`` is what result.json holds, ``result.tree`` the same as plain values.

    Raises:
        ConfigError: An unknown setting, or one that contradicts another.
        GraphsiloError: As the parts of a run do.

    Example:
        >>> small = {"name": "citation-sbm", "nodes": 100, "classes": 3, "features": 30}
        >>> result = run(data=small, partition="random", clients=2, rounds=2)
        >>> result.tree["task"]
        'node'
    """
    given = locals()
    from graphsilo.experiments import runner

    if resume and out is None:
        raise ConfigError("graphsilo.run(resume=True) goes on with the run in a folder: name it with out=DIR.")
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="graphsilo-")))
        place = None if out is None else Path(out)
        if resume and config is None and place is not None and (place / "config.yaml").exists():
            config = place / "config.yaml"  # what is not said now is as the run was begun with
        settings |= {name: value for name, value in given.items() if name in _ARGUMENTS}
        chosen = _configuration(config, _parse_call(run, settings, scratch))
        observer = _observer(progress, stack)
        draw = _draw_report if report else None
        return runner.run(chosen, out=place, resume=resume, observer=observer, report=draw, own=scratch)


@_usual_torch()
def plan(
    config: PathName | Mapping[str, Any] | RunConfig | None = None,
    *,
    seconds: float = 10.0,
    bandwidth: float | None = None,
    latency: float | None = None,
    out: PathName | None = None,
    **settings: Any,
) -> Plan:
    """Estimate what a run will cost: memory, bytes, CPU and wall time.

    The data is loaded and cut, and the method's set-up and a few rounds run in a process of their own. As with
    workers, what you bring along must stand in a file or a package, not in a notebook.

    Args:
        config: A configuration, as ``run`` takes it.
        seconds: CPU seconds that the trial aims at, up to six times as many where set-up and two rounds take longer.
        bandwidth: Mbit per second of each site's line, for a run between machines.
        latency: Milliseconds of a message on that line, one way.
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
        >>> found.is_steady, found.seed.up > 0
        (True, True)
    """
    from graphsilo import planning

    line = planning.Connection.of(bandwidth, latency)
    with tempfile.TemporaryDirectory(prefix="graphsilo-") as folder:
        chosen = _configuration(config, _parse_call(plan, settings, Path(folder)))
        place = None if out is None else Path(out)
        finish = "" if place is None else "graphsilo.report:write"
        return planning.plan(chosen, seconds=seconds, line=line, out=place, finish=finish)


@_usual_torch()
def tune(
    config: PathName | Mapping[str, Any] | RunConfig | None = None,
    *,
    out: PathName,
    methods: str | Method | Sequence[str | Method] | None = None,
    space: Mapping[str, Any] | None = None,
    trials: int | None = None,
    tuning_seeds: Sequence[int] | None = None,
    sampler: str | None = None,
    sampler_seed: int | None = None,
    prune: bool | None = None,
    final: bool = True,
    executor: str | None = None,
    resume: bool = False,
    progress: bool = False,
    **settings: Any,
) -> TuneRecord:
    """Choose settings by validation, with as many trials for each method; then run the best with other seeds.

    Args:
        config: A configuration, as ``run`` takes it; it may hold a space under ``tune``.
        out: Folder of the study.
        methods: Methods to tune, by name or as ``run`` takes one of your own; None takes the configuration's.
        space: Settings and their values: ``{"method.lr": [0.003, 0.01]}``, a range as ``{"low": 0.001, "high": 1.0,
            "log": True}``; under a method's name what is for it alone. None takes the short space of each method,
            of one of your own that trains locally its learning rates.
        trials: Of each method, 16 if not said; the first has the settings of the configuration.
        tuning_seeds: Seeds of training in trials, 10 if not said; ``seeds`` are those of the runs afterwards.
        sampler: ``tpe`` (if not said), ``random``, or ``grid``, which tries everything.
        sampler_seed: Seed of what is drawn.
        prune: Stop trials that fall behind the median of the others; True if not said.
        final: Run the best settings with other seeds, and the configuration's beside them.
        executor: Where runs are made: None is this process, else ``processes:4`` or ``dask://host:8786``.
        resume: Go on with the study in ``out``; what is not said is as it was begun with.
        progress: Say on stderr what has ended.
        settings: What ``run`` takes by the same names: data, clients, rounds, seeds, ``"method.mu"`` and so on.

    Returns:
        The study; ``methods`` has the trials, ``final`` the folders of the runs afterwards, for ``compare``.

    Raises:
        ConfigError: The space is empty, names something that cannot be drawn, there is nothing to validate on, or the
            folder holds another study.
        UnsupportedError: Optuna or Dask is not installed.
        RunError: Every trial of a method failed.
    """
    from graphsilo.cli.terminal import to_stderr
    from graphsilo.cli.tune import line
    from graphsilo.experiments import tuning
    from graphsilo.experiments.doors import plain

    place = Path(out)
    kept = tuning.read_study(place) if resume else {}
    base = kept.get("config") if config is None else config
    said = tuning.read_space(base) if space is None and isinstance(base, str | PathLike | Mapping) else space
    if isinstance(base, Mapping):
        base = {name: value for name, value in base.items() if name != "tune"}
    each = [methods] if isinstance(methods, str) or not isinstance(methods, Sequence | None) else methods
    if each:
        settings.setdefault("method", each[0])
    with _prepare_folder(place) as kept_data:
        call = _parse_call(tune, settings, kept_data)
        names = [call.name_own("method", method) for method in each] if each else None
        chosen = _configuration(base, call)
        wanted = tuning.Plan.merge(
            kept, methods=names, space=said, trials=trials,
            tuning_seeds=plain(tuning_seeds), seeds=chosen.run.seeds if "seeds" in settings else None,
            sampler=sampler, sampler_seed=sampler_seed, prune=prune, final=final,
        )  # fmt: skip
        on_result = (lambda *ended: to_stderr(line(*ended))) if progress else (lambda *ended: None)
        return tuning.tune(chosen, wanted, out=place, resume=resume, executor=executor, on_result=on_result)


@_usual_torch()
def sweep(
    config: PathName | Mapping[str, Any] | RunConfig | None = None,
    *,
    grid: Mapping[str, Sequence[Any]],
    out: PathName,
    methods: str | Method | Sequence[str | Method] | None = None,
    executor: str | None = None,
    progress: bool = False,
    **settings: Any,
) -> Swept:
    """Run a grid over one or two settings, and draw it: curves over one, heat maps over two.

    Every point is a run in a folder of its own with all seeds; what is done is not run again.

    Args:
        config: A configuration, as ``run`` takes it.
        grid: One or two settings by dotted name and their values: ``{"method.mu": [0.01, 0.1, 1]}``.
        out: Folder of everything.
        methods: Methods that are drawn beside each other, by name or as ``run`` takes one of your own; None takes the
            configuration's.
        executor: Where runs are made: None is this process, else ``processes:4`` or ``dask://host:8786``.
        progress: Say on stderr what has ended.
        settings: What ``run`` takes by the same names; ``seeds`` are 0, 1 and 2 if not said.

    Returns:
        What came of it: ``rows`` has every point, ``files`` the page and the CSV, ``failed`` what failed.

    Raises:
        ConfigError: The grid cannot be, or the folder holds another sweep.
        GraphsiloError: As any of the runs would, before one is begun.
        RunError: Every point failed.
    """
    from graphsilo.cli.reproduce import tell
    from graphsilo.experiments import sweep as sweeping
    from graphsilo.experiments.doors import plain
    from graphsilo.report import sweep_page

    each = [methods] if isinstance(methods, str) or not isinstance(methods, Sequence | None) else methods
    if each:
        settings.setdefault("method", each[0])
    place = Path(out)
    with _prepare_folder(place, "sweep.yaml") as kept_data:
        call = _parse_call(sweep, settings, kept_data)
        names = [call.name_own("method", method) for method in each or ()]
        planned = sweeping.plan(_configuration(config, call), plain(grid), names, place)
        return sweep_page.sweep([planned], place, executor, say=tell if progress else lambda text: None)


@contextmanager
def _prepare_folder(place: Path, begun: str = "study.yaml") -> Iterator[Path]:
    """A study's or sweep's folder, where a graph or partition in memory becomes a file; as it was if none is begun."""
    before = {path for path in (place, place / "data.npz", place / "partition.npz") if path.exists()}
    place.mkdir(parents=True, exist_ok=True)
    try:
        yield place
    finally:
        if not (place / begun).exists():
            for name in ("data.npz", "partition.npz", ".lock"):
                if place / name not in before:
                    (place / name).unlink(missing_ok=True)
            if place not in before:
                with suppress(OSError):
                    place.rmdir()


def compare(
    *runs: PathName | Result,
    metrics: Sequence[str] | None = None,
    baseline: str | None = None,
    mode: str | None = None,
    target: float | None = None,
    published: bool | str = False,
    report: PathName | None = None,
) -> Comparison | Grid:
    """Put runs side by side: mean and deviation over seeds, paired significance, costs.

    Runs over several data sets, cuts or scenarios make a table with these as columns and methods as rows, in which
    each column is compared by itself, and methods are ranked over the columns.

    Args:
        runs: Folders of finished runs, or what ``run`` returned.
        metrics: Test metrics to show, such as ``macro_f1`` or with their view ``aggregate.macro_f1``; None takes the
            usual five, of several data sets the first.
        baseline: Label or folder name of the run to test against; None takes the best of each metric.
        mode: View of the metrics that name none: ``own`` or ``aggregate`` (whose model), ``pooled`` or ``worst`` (how
            clients are averaged); None is what each run reports.
        target: Validation accuracy as a share: adds bytes and rounds until it is reached.
        published: Show published scores beside, where a paper has any; ``"FairFGL"`` or ``"FairFGL/II"`` says whose.
        report: Also write a page with figures to this file.

    Returns:
        A ``Comparison``, or of several data sets a ``Grid`` of them; ``graphsilo.report.to_markdown``, ``to_latex`` and
        ``to_csv`` write either as text.

    Raises:
        RunError: A result cannot be read.
        ConfigError: A folder holds no finished run; an unknown metric, view, paper or baseline.
    """
    from graphsilo.experiments.storage import disk
    from graphsilo.report import grid, html

    loaded = [_as_record(run, place + 1) for place, run in enumerate(runs)]
    asked: dict[str, Any] = {
        "metrics": metrics, "baseline": baseline, "mode": mode, "target": target, "published": published,
    }  # fmt: skip
    if report is not None:
        disk.write_text(Path(report), html.render_comparison(loaded, **asked))
    return grid.compare_runs(loaded, **asked)


@_usual_torch()
def reproduce(
    paper: str,
    table: str | None = None,
    *,
    data: str | Sequence[str] | None = None,
    clients: int | None = None,
    methods: str | Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    quick: bool = False,
    executor: str | None = "processes:1",
    out: PathName | None = None,
    data_root: PathName | None = None,
    progress: bool = False,
) -> Reproduction | Swept:
    """Run a paper's table again, and put ours beside what it prints; or run and draw one of its figures.

    Every method, data set and seed is a run in a folder of its own; what is done is not run again.

    Args:
        paper: ``FedSage+``, ``FedLoG``, ``O-pFGL``, ``FedPG`` or ``FairFGL``.
        table: Number of one table, such as ``"II"``, or of one figure, such as ``"fig4"`` or ``"fig5a"``; None takes
            all of the paper's tables that can be run.
        data: Only these data sets, of a figure any; None takes all but large graphs.
        clients: Only rows with so many; of a figure this number.
        methods: Only these methods beside the references, as the table or figure names them.
        seeds: Seeds of training; None takes the table's own, mostly three.
        quick: A look: shortened runs, one seed, one data set. Its numbers are no reproduction.
        executor: ``processes:N``, ``dask://HOST:PORT``; None is this process.
        out: Folder; None is ``runs/reproduce-PAPER``.
        data_root: Folder with PyG's raw files; None takes ``GRAPHSILO_DATA``, else they are downloaded.
        progress: Say on stderr what has ended.

    Returns:
        The tables, the files that were written, and what failed; of a figure its points.

    Raises:
        ConfigError: There is no such paper, table, figure, data set, number of clients, method or executor; or a figure
            has several parts.
        RunError: Every run failed.
    """
    from graphsilo.cli.reproduce import tell
    from graphsilo.experiments.reproduce import figures, runs
    from graphsilo.report import reproduced

    say = tell if progress else lambda text: None
    number = None if table is None else str(table)
    asked: dict[str, Any] = {
        "data": [data] if isinstance(data, str) else data, "clients": clients, "quick": quick,
        "methods": [methods] if isinstance(methods, str) else methods,
        "seeds": None if seeds is None else _seeds(seeds), "out": None if out is None else Path(out),
        "data_root": None if data_root is None else fspath(data_root),
    }  # fmt: skip
    if number is None or not figures.is_figure(number):
        return reproduced.reproduce(runs.plan(paper, number, **asked), executor, say=say)
    found = figures.find_figures(paper, number)
    if len(found) > 1:
        parts = ", ".join(f"fig{each.number}" for each in found)
        raise ConfigError(f"one figure is drawn at a time, and '{table}' has several parts: name one of {parts}.")
    return next(reproduced.reproduce_figures(paper, number, executor, say=say, **asked))


@_usual_torch()
def predict(
    run: PathName | Result,
    client: int | str,
    *,
    seed: int | None = None,
    checkpoint: str = "best",
    graph: PathName | Graph | GraphCollection | Foreign | None = None,
    model: str | None = None,
) -> Prediction:
    """Classify with the model that a client had in a finished run.

    Args:
        run: Folder of the run, or what ``run`` returned with ``out``.
        client: Whose model, by number, or by name where clients have names.
        seed: Seed of training; None takes the run's first.
        checkpoint: ``best`` (by validation) or ``last``.
        graph: A graph or a file of one, such as the client's with new nodes; None takes the client's own.
        model: The client's ``own`` or the ``common`` one; None takes the one that the run reports.

    Raises:
        RunError: The run had no folder, or its models were not saved.
        ConfigError: The folder holds no finished run; no such client, seed or checkpoint.
        DataError: The graph does not fit the model.
    """
    from graphsilo.data.graph import Graph, GraphCollection
    from graphsilo.data.sources.objects import graph_of, is_graph
    from graphsilo.experiments import predict as prediction

    place = _folder("predict", run)
    if graph is not None and not isinstance(graph, str | PathLike | Graph | GraphCollection):
        if not is_graph(graph):
            raise unusable("graphsilo.predict(graph=...)", "a graph, or a file of one", graph)
        graph = graph_of(graph)
    target = Path(graph) if isinstance(graph, str | PathLike) else graph
    return prediction.predict(place, client=client, seed=seed, checkpoint=checkpoint, graph=target, model=model)


@_usual_torch()
def why(
    run: PathName | Result,
    node: str | int,
    *,
    client: int | str | None = None,
    seed: int | None = None,
    checkpoint: str = "best",
    model: str | None = None,
    of: str | int | None = None,
) -> Why:
    """Say why a node has the score that it has: what each column, and each node around it, adds to it.

    Exact for fedridge, fedtrees and auto, integrated gradients for networks; ``docs/why.md`` says against what.

    Args:
        run: Folder of the run, or what ``run`` returned with ``out``.
        node: What your table calls it; where it has no ids, its number.
        client: Whose node; None: of the only client that has it.
        seed, checkpoint, model: As for ``predict``.
        of: The class or target whose score it is, by name or number; None: of two classes the rarer one, of several the
            most probable.

    Raises:
        RunError: The run had no folder, its models were not saved, or its data has changed.
        ConfigError: No such node, client, seed, checkpoint or class.
        UnsupportedError: The method cannot tell.
    """
    from graphsilo.experiments import why as reasons

    return reasons.why(_folder("why", run), node, client=client, seed=seed, checkpoint=checkpoint, model=model, of=of)


@_usual_torch()
def export(
    run: PathName | Result,
    client: int | str,
    out: PathName,
    *,
    seed: int | None = None,
    checkpoint: str = "best",
    model: str | None = None,
    onnx: bool = False,
) -> Export:
    """Write a client's fitted model as a folder that scores tables without a federation, with a model card and a check
    of itself.

    Args:
        run: Folder of the run, or what ``run`` returned with ``out``.
        client: Whose model, by number or name.
        out: Folder that is made.
        seed, checkpoint, model: As for ``predict``.
        onnx: Whether what follows on finished columns is written as model.onnx, too.

    Raises:
        RunError: The run had no folder, its models were not saved, or its data has changed.
        ConfigError: No such client, seed or checkpoint; the folder is not empty.
        UnsupportedError: The method decides by more than ridges, trees or one network; or a network has no ONNX form.
    """
    from graphsilo.experiments import export as exports

    return exports.export(
        _folder("export", run), fspath(out), client=client, seed=seed, checkpoint=checkpoint, model=model, onnx=onnx
    )


_ARGUMENTS = {
    "data": "data", "data_root": "data.root", "partition": "partition", "clients": "partition.clients",
    "partition_seed": "partition.seed", "scenario": "scenario", "task": "task", "model": "model", "method": "method",
    "rounds": "method.rounds", "seeds": "run.seeds", "references": "run.references", "without": "run.without",
    "workers": "run.workers", "device": "run.device", "precision": "run.precision",
}  # fmt: skip
"""Arguments of ``run`` and ``plan`` that say what is run, and the settings that they stand for."""


@_usual_torch()
def attack(
    run: PathName | Result,
    *,
    attacks: Sequence[str] | None = None,
    attackers: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    clients: Sequence[int] | None = None,
    shadows: int = 16,
    report: bool = True,
    progress: bool = False,
) -> AttackRecord:
    """Attack a finished run: it is run again, its messages are noted, and what they give away is measured.

    Args:
        run: Folder of the run, or what ``run`` returned with ``out``. ``attack.json`` is written into it, beside what
            was found of the same clients before.
        attacks: Which: ``rows``, ``classes``, ``attribute``, ``links``, ``membership``, ``replay``; None takes all.
        attackers: As whom: ``coordinator``, ``silo``, ``reader`` (of the saved model); None takes all.
        seeds: Seeds that are run again and attacked; None takes the first.
        clients: Clients that are attacked; None takes all.
        shadows: Runs behind the membership attack, each as long as the run; 0 leaves it out.
        report: Draw the page ``attack.html``.
        progress: Say on stderr what is done.

    Returns:
        What was found; ``outcomes`` has it by seed.

    Raises:
        RunError: The run had no folder, or its data is at other machines.
        UnsupportedError: The run's task is not ``node``.
        ConfigError: The folder holds no finished run; no such attack, attacker, seed or client.
    """
    from graphsilo.attacks import study
    from graphsilo.cli.terminal import to_stderr
    from graphsilo.report import attack_page

    folder = _folder("attack", run)
    say = to_stderr if progress else (lambda text: None)
    found = study.attack(
        folder, attacks=attacks, attackers=attackers, seeds=seeds, clients=clients, shadows=shadows, say=say
    )
    if report:
        attack_page.write(folder)
    return found


def _folder(function: str, run: PathName | Result) -> Path:
    """Where a finished run lies, which a function needs on disk.

    Raises:
        ConfigError: It is something else.
        RunError: The run had no folder.
    """
    from graphsilo.experiments.storage.results import Result

    if isinstance(run, str | PathLike):
        return Path(run)
    if not isinstance(run, Result):
        raise unusable(f"graphsilo.{function}", "the folder of a run, or what graphsilo.run returned with out=DIR", run)
    if run.out is None:
        raise RunError(
            f"{function} needs what a run leaves on disk, and this run had no folder. Run again with out=DIR."
        )
    return run.out


def _parse_call(function: Callable[..., Any], said: Mapping[str, Any], scratch: Path) -> Door:
    """What a call says: arguments that ``run`` has, where one was given, and settings by dotted name.

    Raises:
        ConfigError: One of the settings has a name without a dot, or what is said cannot be.
    """
    from graphsilo.experiments.config import door_of
    from graphsilo.experiments.given import read_data, read_partition

    call = door_of("this call", is_call=True)
    for argument, name in _ARGUMENTS.items():
        value = said.get(argument)
        if value is None:
            continue
        if argument == "data":
            value = read_data(value, call, scratch)
        elif argument == "partition":
            value = read_partition(value, scratch)
        elif argument == "seeds":
            value = _seeds(value)
        elif argument == "references":
            value = [value] if isinstance(value, str) else list(value)
        call.say(name, value, f"{argument}={quote(said[argument])}")
    for name, value in said.items():
        if name in _ARGUMENTS:
            continue
        if "." not in name:
            hint = _suggest_argument(function, name, value, call.values)
            raise ConfigError(f"graphsilo.{function.__name__} has no argument '{name}'; {hint}")
        call.say(name, value, f"'{name}': {quote(value)}")
    return call


def _seeds(value: Any) -> Any:
    """Seeds of training as a list; a number alone is refused where every way of saying it comes together."""
    from graphsilo.experiments.doors import plain

    value = plain(value)
    if not isinstance(value, list | int) or isinstance(value, bool):
        raise unusable("graphsilo.run(seeds=...)", "a list of seeds such as [0, 1, 2] or range(3)", value)
    return value


def _whole(name: str, value: Any) -> int:
    """A whole number, also one of numpy's."""
    from graphsilo.experiments.doors import plain

    found = plain(value)
    if isinstance(found, bool) or not isinstance(found, int):
        raise unusable(f"graphsilo.partition({name}=...)", "a whole number", value)
    return found


def _suggest_argument(function: Callable[..., Any], name: str, value: Any, said: Mapping[str, Any]) -> str:
    """How to say what a person most likely meant by an argument that there is not: as another one, or as a setting."""
    from graphsilo.experiments.config import SECTIONS
    from graphsilo.experiments.suggestions import suggest

    arguments = [*list(inspect.signature(function).parameters)[:-1], *_ARGUMENTS]
    if name in (*SECTIONS, "perturb"):
        key, value = next(iter(value.items())) if isinstance(value, Mapping) and value else ("NAME", "VALUE")
        return f"its settings are given by their dotted names: {_keyword(f'{name}.{key}', value)}."
    if get_close_matches(name, arguments, n=1, cutoff=0.8):
        return nearest(name, arguments)
    hint = "" if name in inspect.signature(run).parameters else suggest(name, said)
    if hint.startswith("did you mean") and "." in hint:
        return f"{hint} A setting is given by its dotted name: {_keyword(hint.split(chr(39))[1], value)}."
    return (
        f"{nearest(name, arguments)} Settings of a part are given with its name, such as method={{'name': 'fedprox', "
        f"'mu': 0.1}}, or as {_keyword('method.mu', 0.1)}."
    )


def _keyword(name: str, value: Any) -> str:
    """How a setting is given as a keyword argument."""
    return f"**{{{name!r}: {quote(value)}}}"


def _configuration(config: Any, call: Door) -> RunConfig:
    from graphsilo.experiments.config import RunConfig, configure

    if isinstance(config, RunConfig):
        return configure(config.complete(), call)
    if config is not None and not isinstance(config, Mapping | str | PathLike):
        raise unusable("graphsilo.run", "a configuration: a YAML file, a table or a RunConfig", config)
    return configure(fspath(config) if isinstance(config, PathLike) else config, call)


def _observer(progress: bool | Observer | Sequence[bool | Observer] | None, stack: ExitStack) -> Observer:
    """The observer of a call; a display is closed in any case."""
    from graphsilo.experiments.observer import Observer, Several
    from graphsilo.experiments.tracking.base import Tracker

    wanted = list(progress) if isinstance(progress, list | tuple) else [] if progress is None else [progress]
    for item in wanted:
        if not isinstance(item, bool | Observer):
            raise unusable("graphsilo.run(progress=...)", "True, a graphsilo.Observer or a list of them", item)
    observers = [item for item in wanted if isinstance(item, Observer)]
    if any(item is True for item in wanted):
        shown = _choose_display()
        stack.callback(shown.finish)
        for tracker in observers:
            if isinstance(tracker, Tracker):
                tracker.say = shown.on_warning
        observers.insert(0, shown)
    return Several(*observers)


def _choose_display() -> LiveProgress | PlainProgress:
    from graphsilo.cli.progress import LiveProgress, PlainProgress, choose_progress
    from graphsilo.notebook import is_notebook

    if not is_notebook():
        return choose_progress()
    has_widgets = importlib.util.find_spec("ipywidgets") is not None
    return LiveProgress(None) if has_widgets else PlainProgress(print, is_brief=True)


def _draw_report(folder: Path) -> None:
    """Draw the page; a page that cannot be drawn does not take the result away."""
    from graphsilo import report

    try:
        report.write(folder)
    except Exception as error:
        warnings.warn(f"the report page of {folder} could not be drawn: {error}", stacklevel=3)


def _as_record(run: PathName | Result, number: int) -> record.Run:
    from graphsilo.experiments.storage.results import Result
    from graphsilo.report import record

    if isinstance(run, Result) and run.out is None:
        return record.Run(Path(f"run {number}"), run.record)
    return record.load(_folder("compare", run), with_ledger=False)
