"""``graphsilo silo``: look at a silo with its own data before it joins, and make such silos of a simulation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphsilo.cli.doctor import Finding
from graphsilo.cli.silo.explain import explain
from graphsilo.cli.silo.log import log
from graphsilo.cli.terminal import bare_table, count, say, show, show_findings, table
from graphsilo.cli.values import (
    DataRoot,
    Debug,
    argument,
    commands,
    option,
)
from graphsilo.errors import DisclosureError, RunError, several

if TYPE_CHECKING:
    from graphsilo.data.graph import Graph
    from graphsilo.data.silos.own import SiloFile
    from graphsilo.data.silos.silo import Silo
    from graphsilo.data.sources.tables import Reading
    from graphsilo.experiments.config import RunConfig

_FEW = 5
"""Training items below which a class is said to have few."""
SHOWN_WORDS = 12
"""Names of features or classes that are listed before the rest is only counted."""

silo = commands("silo", "Check a silo with its own data, see what left it, or make silos of a simulation.")
silo.command()(explain)
silo.command()(log)


@silo.command()
def check(
    file: Path = argument("SILO.yaml", "What describes the silo."),
    debug: Debug = False,
) -> None:
    """Read a silo's data as a run would, and show what the federation will learn of it and what stays."""
    from graphsilo.data.silos.cards import card_of

    described, held, reading = read(file)
    found = list(examine(described, held, reading))

    say(f"Silo '{described.name}' ({file})")
    say()
    show_findings(found)
    say()
    say("What the federation will learn of it before round 1:")
    say()
    show(bare_table((f"  {name}", value) for name, value in card_rows(card_of(described, held))))
    say()
    say(list_private(described))
    say()
    say(
        "In a run how often each class occurs, and the method's messages, leave as well: `graphsilo explain METHOD` "
        "lists these, and the policy of this file can refuse kinds of them."
    )
    notes = sum(finding.status == "note" for finding in found)
    say()
    say(
        "The silo can take part."
        if not notes
        else f"The silo can take part; {'one point' if notes == 1 else f'{notes} points'} above (!) "
        f"{'is' if notes == 1 else 'are'} worth a look."
    )


@silo.command()
def export(
    config: Path = argument("CONFIG.yaml", "Settings of a simulation, as for run."),
    out: Path = option("DIR", "Folder for the silos; made if it does not exist.", default=...),
    data_root: DataRoot = None,
    assignments: list[str] | None = option(
        "NAME=VALUE", "Any setting, such as partition.clients=5; repeatable.", flags="--set"
    ),
    debug: Debug = False,
) -> None:
    """Write every silo of a simulation into a folder of its own, to be carried to a machine of its own."""
    from graphsilo.experiments.config import load_config
    from graphsilo.report.formats import data_size

    root = {} if data_root is None else {"data.root": str(data_root.expanduser())}
    chosen = load_config(config, overrides=root, assignments=assignments or [])
    written = write_silos(chosen, out.expanduser())
    kind = "graphs" if written[0][1].schema.task == "graph" else "nodes"
    grid = table("silo", kind, "train", "val", "test", "size", numbers=range(1, 6))
    for folder, held in written:
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        items = held.seen.items
        grid.add_row(
            folder.name, count(held.num_items), count(len(held.train)), count(len(items["val"])),
            count(len(items["test"])), data_size(size),
        )  # fmt: skip
    show(grid)
    say()
    say(
        f"{len(written)} silos in {out}. Carry each folder to its machine; in federation.yaml list them in this order, "
        f"since a silo keeps its number. `graphsilo silo check {out}/{written[0][0].name}/silo.yaml` looks at one."
    )


def read(file: Path) -> tuple[SiloFile, Silo, Reading | None]:
    """A silo's file, its data, and what was read of its tables (None of a stored silo).

    Raises:
        GraphsiloError: With all that is wrong with file, policy and data.
    """
    from graphsilo.data.silos.own import read_silo_file
    from graphsilo.data.sources.faults import Faults, check_finite
    from graphsilo.federation.policy import DisclosurePolicy

    described = read_silo_file(file)
    faults = Faults(described.path)
    with faults.collect():
        DisclosurePolicy.of(described.policy, origin=str(described.path))
    reading: Reading | None = None
    with faults.collect():
        if described.store is None:
            # How many nodes each split has depends on the labels alone, not on which client this is.
            reading = described.read()
            held = described.silo_of(reading, 0)
        else:
            held = described.load(described.stored_client())
        check_finite(held.graph)
    faults.raise_if_any()
    return described, held, reading


def examine(described: SiloFile, held: Silo, reading: Reading | None) -> Iterator[Finding]:
    """What can be said of a silo that was read without an error.

    Args:
        described: Its file.
        held: The silo.
        reading: Of its tables; None of a stored silo.

    Raises:
        ConfigError: The policy is not one.
    """
    import numpy as np

    from graphsilo.data.silos.scaling import find_far_apart, find_lost_values
    from graphsilo.data.sources.remarks import remarks
    from graphsilo.data.sources.table_files import Query

    graph = held.graph.union
    if described.tables is not None:
        for part, source in described.tables.places.items():
            if isinstance(source, Query):
                from graphsilo.data.sources.sql import describe

                yield Finding("ok", part, f"a query of the {describe(source)}, in a read-only transaction")
                if not source.connection.strip().lower().startswith("env:") and _has_password(source.connection):
                    yield Finding(
                        "note", part, f"the password stands in {source.file.name}: keep it in an environment "
                        "variable instead, as `connection: env:NAME`",
                    )  # fmt: skip
            else:
                yield Finding("ok", part, str(source))
        yield Finding("ok", "ids", "each node has an id of its own, and every link ends at nodes that exist")
    else:
        number = described.stored_client()
        yield Finding("ok", "store", f"{described.store}, exported as client {number} of a simulation")
    yield from _tables(graph)
    if graph.num_features:
        columns = f"{count(graph.num_features)} column{'' if graph.num_features == 1 else 's'} of numbers"
        yield Finding("ok", "features", f"{columns}, {_describe_filling(described, reading)}")
    else:
        yield Finding("note", "features", "there are none: nodes are told apart by their links alone")
    spread = {} if described.tables is None else described.tables.one_hot
    for column, words in spread.items():
        if words is None:
            yield Finding(
                "note",
                "features",
                f"one_hot declares no words for '{column}': those that occur here are "
                f"reported, and all silos take what occurs anywhere. To report none, spell them out: "
                f"{{{column.rpartition('.')[2]}: [...]}}",
            )
    degree = np.bincount(graph.edges.ravel(), minlength=graph.num_nodes)
    alone = int((degree == 0).sum())
    if graph.num_edges == 0:
        yield Finding("note", "links", "there is none: every node is classified by its own features")
    elif alone:
        share = 100 * alone / graph.num_nodes
        nodes, learns = ("one node", "learns") if alone == 1 else (f"{count(alone)} nodes", "learn")
        text = f"{nodes} ({share:.1f} %) {'has' if alone == 1 else 'have'} no link, and {learns} from no neighbour"
        yield Finding("note", "links", text)
    else:
        yield Finding("ok", "links", "every node has at least one")
    if described.tables is not None and reading is not None:
        yield from (Finding("note", where, text) for where, text in remarks(reading, described.tables))
        apart = find_far_apart([graph]) if described.scaling.scale == "none" else None
        if apart is not None:
            wide, most, narrow, least = apart
            yield Finding(
                "note",
                "features",
                f"{wide} ranges over {most:g}, {narrow} over {least:g}, and features are not "
                f"scaled: the model hardly sees {narrow}. Leave out `scale: none`, or write them in like units",
            )
    if reading is not None:
        yield from (Finding("note", "tables", text) for text in graph.notes)
        yield from (Finding("note", "features", text) for text in find_lost_values(graph, described.scaling.scale))
    yield from _labels(described, held)
    yield from _policy(described, held)
    yield from _sums(described, held)


def _tables(graph: Graph) -> Iterator[Finding]:
    """How many nodes and rows of links there are by table, and from when they are."""
    import numpy as np

    from graphsilo.data.dates import show_time
    from graphsilo.data.sources.dates import dates_of

    days = {
        name: f", {show_time(found.min(), found)} to {show_time(found.max(), found)}"
        for name, found in dates_of(graph).items()
    }
    if graph.types is not None:
        for number, kind in enumerate(graph.types.names):
            told = ", which are classified" if number == graph.types.target else ""
            nodes = count(int((graph.types.of_node == number).sum()))
            yield Finding("ok", kind, f"{nodes} nodes{told}{days.get(kind, '')}")
    elif "nodes" in days:
        yield Finding("ok", "dates", f"of nodes{days['nodes']}")
    if graph.links is not None:
        rows = np.bincount(graph.links.of_link, minlength=len(graph.links.relations)).tolist()
        for kind, number in zip(graph.links.relations, rows, strict=True):
            yield Finding("ok", kind, f"{count(number)} rows of links{days.get(kind, '')}")


def _describe_filling(described: SiloFile, reading: Reading | None) -> str:
    """Which empty cells were filled, and how."""

    empty = {} if reading is None else {name: number for name, number in reading.empty.items() if number}
    if not empty or described.tables is None:
        return "none missing or NaN"
    rules = described.missing
    kinds = [kind for kind in described.tables.nodes if kind]
    called = {name: (name, name.partition(".")[2] or name, *(f"{kind}.{name}" for kind in kinds)) for name in empty}
    text = [f"{name} {count(number)} ({rules.of(*called[name])})" for name, number in empty.items()]
    cells = sum(empty.values())
    return f"{'one empty cell' if cells == 1 else f'{count(cells)} empty cells'} filled: {_some(text)}"


def _labels(described: SiloFile, held: Silo) -> Iterator[Finding]:
    import numpy as np

    labels, types = held.graph.labels, held.graph.union.types
    what = "graphs" if held.schema.task == "graph" else "nodes"
    if types is not None:
        labels, what = labels[types.targets], f"nodes of type {types.names[types.target]}"
    known, tables = int((labels >= 0).sum()), described.tables
    named = tables is None or tables.labels is not None or tables.classified.label is not None or held.has_targets
    if not known and not named and held.graph.union.num_edges and held.graph.union.links is None:
        text = "no column of them is named: to predict links none is needed, all else this silo can receive, not teach"
        yield Finding("note", "labels", text)
        return
    if held.has_targets and known:
        called = ", ".join(held.schema.class_names or ())
        yield Finding("ok", "targets", f"known of {count(known)} of {count(len(labels))} {what}: {called}")
    elif not known:
        yield Finding("note", "labels", f"none of the {what} has one: this silo can receive a model, not teach it")
    else:
        present = len(np.unique(labels[labels >= 0]))
        text = f"{count(known)} of {count(len(labels))} {what}, {present} of {held.schema.num_classes} classes occur"
        yield Finding("ok", "labels", text)
        if present == 1:
            only = int(labels[labels >= 0][0])
            word = f"'{held.schema.class_names[only]}'" if held.schema.class_names is not None else f"class {only}"
            yield Finding("note", "labels", f"all are {word}: nothing here tells classes apart")
    if described.tables is not None and described.tables.classes is None and not held.has_targets:
        text = "not declared: the classes that occur are reported, and their order follows the words"
        yield Finding("note", "classes", text)
    if held.links is not None:
        return
    split = {"train": held.train, "val": held.seen.items["val"], "test": held.seen.items["test"]}
    counts = ", ".join(f"{count(len(items))} {name}" for name, items in split.items())
    empty = [name for name, items in split.items() if not len(items)]
    if "train" in empty:
        yield Finding("note", "split", f"{counts}: without a training item nothing is learned here, only received")
    elif empty:
        missing = {"val": "no item to choose the best round by", "test": "no item to be scored on"}
        text = " and ".join(missing[name] for name in empty)
        yield Finding("note", "split", f"{counts}: there is {text}")
    else:
        yield Finding("ok", "split", counts)
    trained = held.class_counts()
    absent = np.flatnonzero((trained == 0) & (np.bincount(labels[labels >= 0], minlength=len(trained)) > 0))
    names = held.schema.class_names or [str(index) for index in range(len(trained))]
    if len(absent) and "train" not in empty:
        words = [names[index] for index in absent]
        yield Finding(
            "note", "split", f"no training item of {_some(words)}: too few of {'it' if len(words) == 1 else 'them'}"
        )
    few = [f"{names[index]} ({trained[index]})" for index in np.flatnonzero((trained > 0) & (trained < _FEW))]
    if few:
        which = "this class" if len(few) == 1 else "these classes"
        yield Finding("note", "split", f"few training items of {_some(few)}: of {which} little can be learned here")


def _policy(described: SiloFile, held: Silo) -> Iterator[Finding]:
    """What the policy lets out.

    Raises:
        ConfigError: It is not one.
    """
    from graphsilo.data.silos.targets import described_counts
    from graphsilo.federation.kinds import KINDS
    from graphsilo.federation.policy import DisclosurePolicy, small_classes

    policy = DisclosurePolicy.of(described.policy, origin=str(described.path))
    refused = [kind for kind in KINDS if not policy.allows(kind)]
    idle = policy.find_useless()
    own = [f"{name}: {_value(value)}" for name, value in described.policy.items() if name not in ("kinds", *idle)]
    text = "; ".join([f"refuses {', '.join(refused)}" if refused else "refuses no kind of disclosure", *own])
    yield Finding("ok", "policy", f"{text}{'' if described.policy else ' (the usual one)'}")
    if "counts" in refused:
        yield Finding("note", "policy", "counts are refused in messages; those of the card leave before every run")
    for name, why in idle.items():
        yield Finding("note", "policy", f"{name}: {_value(described.policy[name])} has no effect: {why}")
    counts = described_counts(held).tolist()
    small = [] if held.links is not None else list(small_classes(counts, policy.min_class_count))
    if small:
        names = held.schema.class_names
        words = [names[index] if names is not None else str(index) for index in small]
        text = f"fewer than {policy.min_class_count} training items of {_some(words)}: methods that describe single"
        yield Finding(
            "note", "policy", f"{text} classes are refused here, in secure sums those with a method.min_count as well, "
            "and so are scores (min_class_count)",
        )  # fmt: skip


def _sums(described: SiloFile, held: Silo) -> Iterator[Finding]:
    """Whether the policy lets out what scaling needs, and whether sums were opened of other data."""
    from graphsilo.data.graph import content_hash
    from graphsilo.federation.evaluations import Evaluations
    from graphsilo.federation.policy import DisclosurePolicy
    from graphsilo.federation.secure.opened import OpenedSums

    data = content_hash([held.graph])
    where, trouble = "sums", "no secure sum can be made"
    try:
        opened = OpenedSums(described.record("opened")).data
        if opened and data not in opened:
            yield Finding(
                "note", "sums", "secure sums were opened of other data than there are now: where the other silos' have "
                "not changed, the difference to the next sum is what has changed here",
            )  # fmt: skip
        where, trouble = "evaluation", "no run can begin"
        policy = DisclosurePolicy.of(described.policy)
        answered, most = Evaluations(described.record("evaluated")).answered(data), policy.max_total_evaluations
        if 2 * answered > most:
            yield Finding(
                "note", where, f"{answered:,} answers of evaluation have left of these data, of {most:,} that may "
                f"(policy.max_total_evaluations)",
            )  # fmt: skip
        where = "scaling"
        if described.scaling.is_agreed:
            policy.check_scaling()
    except DisclosureError as error:
        yield Finding("broken", where, f"{trouble}: {error}")


def _value(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def card_rows(text: dict[str, Any]) -> list[tuple[str, str]]:
    """A card in words, entry by entry."""
    from graphsilo.data.scales import Scaling
    from graphsilo.data.truth import in_words

    counts = text["counts"]
    names = text["feature_names"]
    spread = {f"{column}={word}" for column, words in text["one_hot"].items() for word in words}
    features = count(text["features"])
    if names is None:
        features += ", without names"
    elif names:
        features += f": {_some([name for name in names if name not in spread])}" if set(names) - spread else ""
    classes = count(text["classes"])
    if text["class_names"]:
        classes += f": {_some(text['class_names'])}"
    from graphsilo.types import TARGET_TASKS

    has_targets = text["tasks"][0] in TARGET_TASKS
    if has_targets:
        pass
    elif text["class_names"] is not None and not text["classes_declared"]:
        classes = f"{classes} (those that occur here)" if text["class_names"] else "unknown here: no node has a label"
    else:
        classes += f"; {count(counts['classes'])} of them occur here"
    ratios = text["split"]["ratios"]
    split = text["split"]["mode"]
    if split == "stratified":
        shares = "0.2/0.4/0.4" if ratios is None else "/".join(f"{ratio:g}" for ratio in ratios)
        split = f"{split} {shares}, seed {text['split']['seed']}"
    items = ", ".join(f"{count(counts[name])} {name}" for name in ("train", "val", "test"))
    held = f"{count(counts['graphs'])} graphs, " if counts["graphs"] else ""
    usual = counts["edges"] == counts["links"] * (1 if text["directed"] else 2)
    dated = "" if usual else f" ({count(counts['edges'])} edges, none back in time)"
    return [
        ("name", text["name"]),
        ("software", f"graphsilo {text['graphsilo']}"),
        ("tasks", ", ".join(text["tasks"])),
        ("features", features),
        *((f"  {column}", f"one of {_some(words)}") for column, words in text["one_hot"].items()),
        *((f"  {column}", f"0 or 1: {in_words(words)}") for column, words in text["booleans"].items()),
        ("kept as", "sparse: most features are zero" if text["sparse"] else "dense numbers"),
        ("scaled", Scaling(text["scale"], text["scale_by"]).words()),
        ("targets" if has_targets else "classes", classes),
        ("links", "with a direction" if text["directed"] else "without direction"),
        ("counts", f"{held}{count(counts['nodes'])} nodes, {count(counts['links'])} links{dated}; {items}"),
        *_card_tables(text["layout"]),
        *((f"links to {silo}", f"{count(links)}, and a checksum") for silo, (links, _) in text["outside"].items()),
        ("split", split),
    ]


def _card_tables(tables: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if tables["types"] != [""]:
        yield "types", f"{', '.join(tables['types'])}; classified are nodes of type {tables['target']}"
    if tables["has_rows"]:
        yield "tables of links", ", ".join(tables["relations"])
        yield "  their columns", _some(tables["links"]) or "none"
        windows = tables["windows"]
        days = "".join(f", of the last {days:g} days" for days in windows or [])
        yield "  added up", "no" if windows is None else f"over all days{days}"


def list_private(described: SiloFile) -> str:
    """What no card holds, and no message."""
    from graphsilo.data.sources.table_files import Query

    kept = ["every row of features and every label", "who is linked to whom"]
    if described.tables is not None:
        columns = dict.fromkeys(f"'{said.id}'" for said in described.tables.nodes.values())
        kept.append(f"the ids in column {', '.join(columns)}")
        if described.missing.rules:
            kept.append("what empty cells were filled with")
        kept.append("names of files, and tables and columns that are not used")
        if any(isinstance(source, Query) for source in described.tables.places.values()):
            kept.append("queries, and address and password of the database")
    else:
        kept.append("names of nodes")
    return f"What stays here: {'; '.join(kept)}."


def _has_password(connection: str) -> bool:
    from sqlalchemy.engine import make_url

    return bool(make_url(connection).password)


def _some(words: list[str]) -> str:
    return several(words, SHOWN_WORDS)


def write_silos(config: RunConfig, out: Path) -> list[tuple[Path, Silo]]:
    """Every silo of a simulation in a folder of its own: a store, and its ``silo.yaml``.

    Returns:
        The folders and what is in them, in the order of clients.

    Raises:
        RunError: A folder exists already, or cannot be written.
        GraphsiloError: As loading and cutting do.
    """
    from graphsilo import documents
    from graphsilo.data.silos.store import SiloStore
    from graphsilo.experiments.effects import check_clients, drop_idle
    from graphsilo.experiments.simulation import prepare
    from graphsilo.federation import registry

    method = registry.load(config.method.name)
    simulation = prepare(drop_idle(config), method if method.cut_links else None)
    check_clients(config, simulation.partition)
    drop_idle(config, task=simulation.task, partition=simulation.partition)
    silos, scaling = simulation.silos, simulation.scaling
    digits = len(str(max(held.client for held in silos)))
    folders = [out / f"silo-{held.client:0{digits}d}" for held in silos]
    taken = next((folder for folder in folders if folder.exists()), None)
    if taken is not None:
        raise RunError(f"{taken} exists already: choose another folder for --out, or remove it.")
    written = []
    try:
        for folder, held in zip(folders, silos, strict=True):
            SiloStore(folder / "store").write(held)
            features = {"features": scaling.tree()} if scaling.has_columns else {}
            content = {"name": folder.name, "store": "store", **features, "policy": {}}
            # Last, so that a folder without it is known to be incomplete.
            (folder / "silo.yaml").write_text(documents.write(content), encoding="utf-8")
            written.append((folder, held))
    except OSError as error:
        raise RunError(
            f"the silos could not be written to {out} ({error.strerror or error}): free some space or choose another "
            "place."
        ) from error
    return written
