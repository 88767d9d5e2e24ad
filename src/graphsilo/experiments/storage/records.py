"""What ``result.json`` holds, typed: ``results.py`` makes it of a run; ``reading.py`` reads it from a file.

A field without a default is always there; one whose default is None is left out where there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Annotated, Any, ClassVar, Self, TypeAlias, TypeVar

import msgspec

from graphsilo.errors import RunError
from graphsilo.types import Task

FORMAT = 1
"""Version of ``result.json``."""

Number: TypeAlias = int | float
Share: TypeAlias = float | None
Curve: TypeAlias = dict[str, Share]
"""Metric to its node-weighted mean over clients, as each round records it."""


class Record(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A part of a result."""


class MeanStd(Record):
    """Over seeds: mean, and sample standard deviation (None with one seed)."""

    mean: Share
    std: Share


# -- scores --------------------------------------------------------------------------------------------------------


class WorstClient(Record):
    """The client with the least accuracy."""

    client: int | None
    accuracy: Share


class Evenness(Record):
    """Standard deviation, minimum and maximum of the clients' accuracies."""

    std: Share
    min: Share
    max: Share


class BesideScores(Record):
    """What stands beside the metrics of one kind of items.

    Attributes:
        pooled: The same of the summed counts.
        items: How many were scored.
    """

    pooled: Scores | None = None
    worst_client: WorstClient | None = None
    spread: Evenness | None = None
    items: int | None = None


class WorstClientMean(Record):
    """``WorstClient`` over seeds."""

    accuracy: MeanStd


class EvennessMean(Record):
    """``Evenness`` over seeds."""

    std: MeanStd
    min: MeanStd
    max: MeanStd


class Spent(Record, kw_only=True):
    """What training took, per seed.

    Attributes:
        upload_bytes, download_bytes: Of set-up and rounds; missing where all data lie in one place, and where every
            silo is by itself: orders to begin are no exchange.
        server_cpu_seconds: What of ``cpu_seconds`` was no client's step.
    """

    upload_bytes: Number | None = None
    download_bytes: Number | None = None
    cpu_seconds: float | None = None
    server_cpu_seconds: float | None = None
    wall_seconds: float | None = None


class BesideMeans(Record):
    """What stands beside the metrics over seeds; ``scenarios`` and ``spent`` in reference rows alone."""

    pooled: Means | None = None
    worst_client: WorstClientMean | None = None
    spread: EvennessMean | None = None
    scenarios: dict[str, Means] | None = None
    spent: Spent | None = None


class Open:
    """Metrics by name and, on the same level of the tree, the fields of a record: a metric needs no field of its own.

    Attributes:
        metrics: Value by name of the metric.
        beside: The fields.
    """

    VALUE: ClassVar[Any]
    BESIDE: ClassVar[type[Record]]

    def __init__(self, metrics: Any, beside: Any):
        self.metrics, self.beside = metrics, beside

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.tree() == other.tree()

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def of(cls, tree: Any) -> Self:
        """From the tree.

        Raises:
            ValueError: A value is of the wrong kind.
        """
        if not isinstance(tree, Mapping):
            raise ValueError(f"Expected `object`, got `{type(tree).__name__}`")
        fields = set(cls.BESIDE.__struct_fields__)
        metrics = {}
        name = ""
        try:
            for name in tree.keys() - fields:
                metrics[name] = msgspec.convert(tree[name], cls.VALUE)
            name = ""
            beside = convert({key: tree[key] for key in tree if key in fields}, cls.BESIDE)
        except msgspec.ValidationError as error:
            raise ValueError(f"{f'metric {name}: ' if name else ''}{error}") from None
        return cls({name: metrics[name] for name in tree if name in metrics}, beside)

    def tree(self) -> dict[str, Any]:
        """Plain values."""
        return {**msgspec.to_builtins(self.metrics), **tree_of(self.beside)}


class Scores(Open):
    """Metrics of one kind of items; a number, None where missing, or a list with one per class."""

    VALUE = float | None | list[Share]
    BESIDE = BesideScores
    metrics: dict[str, float | list[Share] | None]
    beside: BesideScores

    @property
    def numbers(self) -> dict[str, Share]:
        """The metrics that are one number."""
        return {name: value for name, value in self.metrics.items() if not isinstance(value, list)}

    def per_class(self, name: str) -> list[Share] | None:
        """A metric with a number per class; None where there is none."""
        found = self.metrics.get(name)
        return found if isinstance(found, list) else None


class Means(Open):
    """``Scores`` over seeds."""

    VALUE = MeanStd
    BESIDE = BesideMeans
    metrics: dict[str, MeanStd]
    beside: BesideMeans


# -- one seed ------------------------------------------------------------------------------------------------------


class ServerWork(Record):
    """A long piece of the server's work; by name, [step, value] along its steps."""

    name: str
    steps: int
    curves: dict[str, list[tuple[Number, Share]]]


class RoundCost(Record):
    """Set-up or a round: bytes of the method's messages, and time, the clients' processes included.

    Attributes:
        upload_bytes, download_bytes: Of training's messages; those of evaluation are in the ledger only.
        cpu_seconds, wall_seconds: With evaluation.
        server_cpu_seconds: What of ``cpu_seconds`` was no client's step: the server, encoding, scoring. Missing where
            it was not recorded.
        checkpoint_cpu_seconds, checkpoint_wall_seconds: Of the checkpoint that followed, not in the others.
        failures: Clients that failed, in words.
        idle: Clients whose answers held nothing of their own, and what they held.
        log: The server's own numbers.
        works: Its long pieces of work, such as training a generator, with curves of up to 100 points [step, value].
    """

    upload_bytes: int
    download_bytes: int
    cpu_seconds: float
    wall_seconds: float
    checkpoint_cpu_seconds: float | None = None
    checkpoint_wall_seconds: float | None = None
    failures: list[str] | None = None
    log: dict[str, Number | None] | None = None
    server_cpu_seconds: float | None = None
    works: list[ServerWork] | None = None
    idle: list[str] | None = None


class CurvePair(Record):
    """Validation and test scores of a round."""

    validation: Curve
    test: Curve


class Round(RoundCost, kw_only=True):
    """One round; scores where it was evaluated.

    Attributes:
        round: From 1.
        participants: How many clients sent what the round is made of; for a method's only round that is sent in set-up.
        validation, test, scenarios, modes: Each score's mean over clients, of the first mode and of the others; where
            silos choose, ``silo_local`` is of the modes that they preferred by then.
        reported: The mode that validation preferred by then; None: the first.
    """

    round: int
    participants: int
    validation: Curve | None = None
    test: Curve | None = None
    scenarios: dict[str, Curve] | None = None
    modes: dict[str, CurvePair] | None = None
    reported: str | None = None

    def curve(self, group: str, mode: str | None = None) -> Curve:
        """Scores of ``validation`` or ``test``, of the first mode or a further one; empty where not evaluated."""
        source = self if mode is None else (self.modes or {}).get(mode)
        found: Curve | None = getattr(source, group, None)
        return found or {}


def reported_scores(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """``validation`` and ``test`` of a round's row, of the mode that was reported as things stood."""
    found: Mapping[str, Any] = row if row.get("reported") is None else row["modes"][row["reported"]]
    return found


class ModeScores(Record):
    """One mode at its own best round."""

    best_round: int
    validation: Scores
    test: Scores
    scenarios: dict[str, Scores]


class ClientScores(Record, kw_only=True):
    """One client.

    Attributes:
        weight: n_k, by which means over clients weigh it: its nodes (graphs) that could be classified.
        missing_classes: Without a training item.
        best_round, mode: If it has its own.
        rare_items: How many of its test items are of the one of two classes that is looked for, where there are two.
        test: Its scores.
        errors: Their standard errors over which items are tested, of those that are made of counts, and of the MAE of a
            single target.
        paired: In a reference row, standard errors of the differences to the run that it stands beside, whose models
            answer on the same items.
    """

    client: int
    nodes: int | None = None
    weight: int | None = None
    train: int | None = None
    val: int | None = None
    missing_classes: list[int] | None = None
    test_items: int | None
    best_round: int | None = None
    mode: str | None = None
    rare_items: int | None = None
    test: Scores
    errors: dict[str, Share] | None = None
    paired: dict[str, Share] | None = None


class ScoreBins(Record):
    """How test scores of the class looked for lie at all silos: [others, that class] counts in ``evaluate.binned``'s.

    Attributes:
        places: By place in the silo's ranking.
        model, calibrated: By the log-odds of the model, and by calibrated ones.
        found: At the thresholds.
    """

    places: list[list[int]]
    model: list[list[int]]
    calibrated: list[list[int]]
    found: list[int]


class Period(Record):
    """A period of the test part: its first day, how many items, the share of the class looked for, and scores."""

    name: str
    items: int
    share: Share
    scores: Curve


class Seed(Record, kw_only=True):
    """One seed.

    Attributes:
        seed, best_round, last_round: The reported round is the best on validation, of the reported mode.
        validation, test, scenarios: Scores of the reported mode at the best round, with ``pooled``, ``worst_client``,
            ``spread`` and ``items``; scenarios are ``missing_class``, ``unseen_node`` and ``new_client``.
        test_last, scenarios_last: The same of the last round.
        modes: Best round and scores of every mode.
        reported: The mode that stands for the seed, ``silo_local`` where each client has its own, which is named in its
            row of ``clients``; None: the first.
        rounds: Every round; its own scores are of the first mode.
        clients: Size, splits, missing classes and test scores of each.
        setup: Costs of what comes before round 1.
        confusion: ``[true][predicted]`` test counts of all clients.
        per_class_f1: As in ``test``.
        one_class: [client, class] of clients that answered one class for everything.
        untrained: [class, test items] of classes that nobody trains.
        cpu_seconds, wall_seconds: Of set-up, rounds and evaluations, the clients' processes included.
        server_cpu_seconds: What of ``cpu_seconds`` was no client's step; missing where a step says none.
        checkpoint_cpu_seconds, checkpoint_wall_seconds: Of writing checkpoints, not in the others.
        peak_rss_bytes: Most memory of the largest process until the seed was done.
        study: Single numbers of what clients say of their inner workings, by client.
        score_bins, periods: Of the test items, in the reported mode at the best round: counts of scores of the class
            looked for, in bins; scores by period.
    """

    seed: int
    best_round: int
    last_round: int
    validation: Scores
    test: Scores
    test_last: Scores
    scenarios: dict[str, Scores]
    scenarios_last: dict[str, Scores]
    modes: dict[str, ModeScores]
    reported: str | None = None
    rounds: list[Round]
    clients: list[ClientScores]
    setup: RoundCost
    confusion: list[list[int]] | None = None
    per_class_f1: list[Share] | None = None
    one_class: list[list[int]] | None = None
    untrained: list[list[int]] | None = None
    cpu_seconds: float
    server_cpu_seconds: float | None = None
    checkpoint_cpu_seconds: float
    wall_seconds: float
    checkpoint_wall_seconds: float
    peak_rss_bytes: int
    study: dict[str, dict[str, Any]] | None = None
    score_bins: ScoreBins | None = None
    periods: list[Period] | None = None

    @property
    def mode(self) -> str:
        """The mode that stands for the seed; empty where none was recorded."""
        return self.reported or next(iter(self.modes), "")

    def curve(self, row: Round, group: str, mode: str | None = None) -> Curve:
        """``validation`` or ``test`` of a round in a mode, by default the reported one; empty where not scored."""
        wanted = mode or self.mode
        return row.curve(group, None if wanted == next(iter(self.modes), "") else wanted)


# -- the run -------------------------------------------------------------------------------------------------------


class MethodFacts(Record):
    """What was run; ``alone`` where every client ran it by itself."""

    name: str
    title: str
    citation: str
    evaluates: list[str]
    pooled: bool
    backbone: bool
    rounds: int
    alone: bool = False


class DataFacts(Record, kw_only=True):
    """The whole data. ``hash``: sha256 of its contents; ``classified``: type of nodes with labels, of several types."""

    name: str
    graphs: int | None = None
    nodes: int
    edges: int
    features: int
    classes: int | None = None
    targets: int | None = None
    hash: str
    classified: str | None = None

    @property
    def outputs(self) -> str:
        """How many classes or targets there are, in words; empty where links are predicted."""
        count, word = (self.classes, "class") if self.targets is None else (self.targets, "target")
        many = "es" if word == "class" else "s"
        return f"{count:,} {word}{'' if count == 1 else many}" if count else ""


class Holder(Record, kw_only=True):
    """A client's share of the data, as the audit of the partition counts it."""

    client: int
    silo: str | None = None
    nodes: int
    edges: int | None = None
    train: int
    val: int
    test: int
    labels: list[int] | None = None
    missing_classes: list[int] | None = None
    homophily: Share = None
    mean_degree: float | None = None
    isolated: int | None = None
    components: int | None = None
    added_edges: int | None = None


class Absent(Record):
    """A client that was left out."""

    client: int
    silo: str | None = None


class PartitionFacts(Record, kw_only=True):
    """Who held what; ``graphsilo.data.partition.audit`` says what the counts are. ``bounds``: of a split by time, up to
    when items are trained on, validated and tested on."""

    rule: str
    clients: int
    without: list[Absent]
    seed: int | None
    hash: str
    data: str | None = None
    items: str | None = None
    nodes: int | None = None
    edges: int | None = None
    is_disjoint_cover: bool | None = None
    duplicates: int | None = None
    missing: int | None = None
    held_out: int | None = None
    train_test_overlap: int | None = None
    kept_edges: int | None = None
    cut_edges: int | None = None
    kept_share: float | None = None
    homophily: Share = None
    bounds: str | None = None
    per_client: list[Holder]


class ModeMeans(Record):
    """A mode over seeds."""

    validation: Means
    test: Means


class Summary(Record, kw_only=True):
    """Over seeds; bytes per seed, of set-up and rounds."""

    validation: Means | None = None
    test: Means
    test_last: Means | None = None
    scenarios: dict[str, Means] | None = None
    scenarios_last: dict[str, Means] | None = None
    modes: dict[str, ModeMeans]
    upload_bytes: Number
    download_bytes: Number


class References(Record):
    """Test scores of the reference rows, and how far from silos alone to all data in one place it gets, by metric."""

    majority: Means | None = None
    local: Means | None = None
    alone: Means | None = None
    trees_alone: Means | None = None
    fedavg: Means | None = None
    fedridge: Means | None = None
    auto: Means | None = None
    one_place: Means | None = None
    global_cut: Means | None = None
    global_: Means | None = msgspec.field(default=None, name="global")
    gap_closed: dict[str, Share] | None = None

    @classmethod
    def of(cls, rows: Mapping[str, Means], gap_closed: dict[str, Share] | None) -> References:
        """From the rows by name."""
        named = {"global_" if name == "global" else name: row for name, row in rows.items()}
        return cls(**named, gap_closed=gap_closed)


class Usage(Record):
    """What the whole run took of this machine."""

    cpu_seconds: float
    wall_seconds: float
    peak_rss_bytes: int


class Environment(Record):
    """Versions and platform."""

    graphsilo: str
    python: str
    torch: str
    platform: str
    device: str


class RunRecord(Record, kw_only=True):
    """``result.json``.

    Attributes:
        format, graphsilo: Version of this form, 1, and of the package that wrote it.
        config: The settings, complete.
        fingerprint: sha256 of configuration, data and partition: equal fingerprints, equal numbers.
        replaces: Fingerprint of the run that this one repeats with other clients.
        task, method, data, class_names: What was run; ``data.hash`` is the sha256 of the graph.
        partition: Rule, seed, hash; kept and cut edges, homophily, what each client has, who is left out (``without``).
        seeds: One entry per seed.
        summary: Mean and sample standard deviation over seeds of each score, and bytes sent.
        references: Test scores of the reference rows, and ``gap_closed`` (a fraction).
        environment: Versions and platform.
        process: Time and memory of the whole command; missing only while the run goes on.
        warnings: What to know before believing a number.
    """

    format: int
    graphsilo: str
    config: dict[str, Any]
    fingerprint: str
    replaces: str | None
    task: Task
    method: MethodFacts
    data: DataFacts
    partition: PartitionFacts
    class_names: list[str] | None
    seeds: Annotated[list[Seed], msgspec.Meta(min_length=1)]
    summary: Summary
    environment: Environment
    warnings: list[str]
    references: References | None = None
    process: Usage | None = None

    @property
    def spent(self) -> Spent:
        """What training took."""

        def over_seeds(name: str) -> float | None:
            known = [number for seed in self.seeds if (number := getattr(seed, name)) is not None]
            return fmean(known) if known else None

        nothing = self.method.alone or self.method.pooled
        return Spent(
            upload_bytes=None if nothing else self.summary.upload_bytes,
            download_bytes=None if nothing else self.summary.download_bytes,
            cpu_seconds=over_seeds("cpu_seconds"),
            server_cpu_seconds=over_seeds("server_cpu_seconds"),
            wall_seconds=over_seeds("wall_seconds"),
        )

    @property
    def reference_rows(self) -> dict[str, Means]:
        """The reference rows that were run, by name, in the order in which they are shown."""
        of = self.references or References()
        names = (name for name in References.__struct_fields__ if name != "gap_closed")
        return {name.rstrip("_"): means for name in names if (means := getattr(of, name)) is not None}

    @property
    def gap_closed(self) -> dict[str, Share]:
        """By metric, how far from ``local`` to ``global`` the run gets; empty without both."""
        return {} if self.references is None else self.references.gap_closed or {}


# -- trees -------------------------------------------------------------------------------------------------------------

T = TypeVar("T")


def _decode(kind: type, value: Any) -> Any:
    if issubclass(kind, Open):
        return kind.of(value)
    raise NotImplementedError(kind)


def _encode(value: Any) -> Any:
    if isinstance(value, Open):
        return value.tree()
    raise NotImplementedError(type(value))


def convert(tree: Any, kind: type[T]) -> T:
    """A record, or records, from plain values; raises msgspec's own error."""
    return msgspec.convert(tree, kind, dec_hook=_decode)


def record_of(tree: Any, kind: type[T]) -> T:
    """A record, or records, from plain values.

    Raises:
        RunError: They have another form; says where.
    """
    try:
        return convert(tree, kind)
    except msgspec.ValidationError as error:
        raise RunError(f"{kind} was wanted of a result, and something else came: {error}.") from None


def tree_of(record: Record) -> dict[str, Any]:
    """A record as plain values, as JSON holds it."""
    tree: dict[str, Any] = msgspec.to_builtins(record, enc_hook=_encode)
    return tree
