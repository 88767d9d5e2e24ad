"""What a federation learns of a silo before round 1: its card, and the comparison of all cards.

A card holds names and counts, never a row: no feature, no label, no id, no link, and of the classes how many occur,
not how often each does. Where links lead to other silos, it says to which, how many, and a checksum of them. Nothing
else is reported of the data before a run, which begins with a sum over silos (``federation.class_counts``);
``graphsilo silo check`` shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
import numpy as np

from graphsilo.__about__ import __version__
from graphsilo.data.graph import GraphCollection
from graphsilo.data.partition.adjacency import undirected_links
from graphsilo.data.partition.splits import GRAPH_RATIOS
from graphsilo.data.scales import ScaleBy, ScaleName, Scaling
from graphsilo.data.silos.between import compare_sides, side_notes, sides_of
from graphsilo.data.silos.link_task import has_enough_links
from graphsilo.data.silos.silo import Schema, Silo
from graphsilo.data.sources.classes import is_signed, signed_note
from graphsilo.data.sources.directions import has_directions
from graphsilo.data.sources.faults import name_fault, unseen_fault
from graphsilo.data.sources.layout import Described, Layout, agree, rename_booleans
from graphsilo.data.sources.vocabulary import Vocabulary, alike_words, classes_in_words, first_difference, sort_words
from graphsilo.data.truth import BooleanWords, join_truth, truth_notes, words_of
from graphsilo.errors import DataError, one_line, quote, several
from graphsilo.types import ClientId, Task

if TYPE_CHECKING:
    from graphsilo.data.silos.own import SiloFile

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
STORED = "stored"
"""How items of a silo were divided that was exported."""
MOST_CLASSES, MOST_WORDS, MOST_TABLES = 1_000, 10_000, 100
"""Of one silo: all silos' tables of hits are as large as the classes squared, and features as wide as all words."""
LONGEST_NAME = 1_000
"""Characters of a name or word: errors and logs quote it."""


@dataclass(frozen=True)
class ItemCounts:
    """How much a silo holds.

    Attributes:
        nodes: Of all its graphs.
        links: Undirected ones count once.
        edges: As a graph counts them: both directions of an undirected link, but for those back in time.
        graphs: Graphs of a collection; 0 where the silo is one graph.
        train, val, test: Items of each split: nodes, graphs, or links.
        classes: How many classes occur among the labels.
    """

    nodes: Count
    links: Count
    edges: Count
    graphs: Count
    train: Count
    val: Count
    test: Count
    classes: Count


@dataclass(frozen=True)
class CardSplit:
    """How a silo's items were divided; ratios and seed are None where they were in its files."""

    mode: str | None
    ratios: list[Annotated[float, msgspec.Meta(ge=0, le=1)]] | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Card:
    """What a silo reports about itself.

    Attributes:
        graphsilo: Release that made the card.
        name: Of the silo.
        tasks: What it can serve, the natural one first.
        features: Columns of its features.
        feature_names: Their names, or None where they have none.
        one_hot: Words of every column that was spread over several, by its name.
        open_words: Those of them that declare no words: theirs are what occurs.
        booleans: Words of 0 and words of 1 of every column of truth values.
        classes: Size of its vocabulary of classes.
        class_names: The vocabulary, or None where classes have numbers only.
        classes_declared: Whether the vocabulary was written down, or is what occurs among the labels.
        directed: Whether links have a direction.
        weighted: Whether links have weights.
        sparse: Whether most features are zero and they are kept so.
        scale, scale_by: How features are scaled; see :class:`graphsilo.data.scales.Scaling`.
        counts: How much it holds.
        split: How items were divided.
        layout: Of which tables its graph is made.
        outside: How many links lead to each other silo, by its name, and a checksum of them.
    """

    graphsilo: str
    name: str
    tasks: Annotated[list[Task], msgspec.Meta(min_length=1)]
    features: Count
    feature_names: list[str] | None
    one_hot: dict[str, list[str]]
    open_words: list[str]
    booleans: dict[str, tuple[list[str], list[str]]]
    classes: Count
    class_names: list[str] | None
    classes_declared: bool
    directed: bool
    weighted: bool
    sparse: bool
    scale: ScaleName
    scale_by: ScaleBy
    counts: ItemCounts
    split: CardSplit
    layout: Layout = field(default_factory=Layout)
    outside: dict[str, tuple[Count, str]] = field(default_factory=dict)


def card(silo_file: SiloFile, client: ClientId) -> dict[str, Any]:
    """Everything that a federation knows of a silo before round 1, as plain values.

    Raises:
        GraphsiloError: As loading the silo does.
    """
    return card_of(silo_file, silo_file.load(client))


def card_of(silo_file: SiloFile, silo: Silo) -> dict[str, Any]:
    """As :func:`card`, of a silo that was loaded already, without a schema."""
    whole = silo.graph
    graph = whole.union
    tables = silo_file.tables
    split = CardSplit(STORED)
    declared, directed = True, False
    links = undirected_links(graph.edges).shape[1]
    tasks: list[Task] = [silo.schema.task]
    if silo.schema.task == "multilabel":  # also numbers may be 0 and 1 at one silo alone, or all unknown
        tasks.append("regression")
    if tables is not None:
        chosen = silo_file.split
        split = CardSplit(chosen.mode, None if chosen.ratios is None else list(chosen.ratios), chosen.seed)
        declared, directed = tables.classes is not None or silo.has_targets, tables.directed
        hideable = graph.links is None and chosen.mode != "time"
        hideable = hideable and has_enough_links(links, chosen.ratios or GRAPH_RATIOS)
        tasks += ["link"] if hideable else []
    else:
        directed = has_directions(graph)
    layout = Layout.of(graph, tables, silo_file.sums)
    names = silo.schema.feature_names
    words = None if tables is None else Vocabulary.of(silo_file.name, tables, names or (), layout.links)
    train, items = len(silo.train), silo.seen.items
    if silo.links is not None:
        train = silo.links.train.shape[1]
        links = train + silo.links.val.shape[1] + silo.links.test.shape[1]
    labels, classes = whole.labels, silo.schema.class_names
    made = Card(
        graphsilo=__version__,
        name=silo_file.name,
        tasks=tasks,
        features=silo.schema.num_features,
        feature_names=None if names is None else list(names),
        one_hot={} if words is None else {column: list(known) for column, known in words.words.items()},
        open_words=[] if words is None else sorted(words.open),
        booleans={column: (list(off), list(on)) for column, (off, on) in silo.schema.booleans.items()},
        classes=silo.schema.num_classes,
        class_names=None if classes is None else list(classes),
        classes_declared=declared,
        directed=directed,
        weighted=graph.edge_weights is not None,
        sparse=graph.is_sparse,
        scale=silo_file.scaling.scale,
        scale_by=silo_file.scaling.scale_by,
        counts=ItemCounts(
            nodes=graph.num_nodes,
            links=graph.num_edges if directed else links,
            edges=graph.num_edges if silo.links is None else 2 * links,
            graphs=len(whole) if isinstance(whole, GraphCollection) else 0,
            train=train,
            val=len(items["val"]),
            test=len(items["test"]),
            classes=len(np.unique(labels[labels >= 0])),
        ),
        split=split,
        layout=layout,
        outside=sides_of(graph),
    )
    return asdict(made)


def compare_cards(cards: Sequence[Mapping[str, Any]], task: Task | None = None) -> Schema:
    """What all silos agree on, from what each reported.

    Features must be the same everywhere. Classes that are absent at a silo are fine: a vocabulary that a silo declares
    holds for all, and several that declare one must declare the same; where none does, the vocabulary is every class
    that occurs anywhere, sorted. The schema goes back to the silos, which number their classes by it.

    Args:
        cards: At least one, in the order of the federation.
        task: What is asked for, if anything is: predicting links needs no classes.

    Returns:
        The schema; its task is the one asked for, or the natural one of most silos.

    Raises:
        DataError: Cards are malformed, or do not agree: names two silos and the first difference.
    """
    reported = [_parse(item) for item in cards]
    if not reported:
        raise DataError("no silo has reported anything about itself; a federation needs at least one.")
    first = reported[0]
    for other in reported[1:]:
        twice = next((one for one in reported if one is not other and one.name == other.name), None)
        if twice is not None:
            raise DataError(f"two silos are called '{other.name}'; every silo of a federation has a name of its own.")
        if other.graphsilo != first.graphsilo:
            raise DataError(
                f"silo '{first.name}' runs graphsilo {first.graphsilo}, silo '{other.name}' {other.graphsilo}: install "
                f"the same release everywhere."
            )
    tasks = [each for each in first.tasks if all(each in other.tasks for other in reported)]
    firsts = Counter(one.tasks[0] for one in reported)
    usual: Task = task or max(firsts.items(), key=lambda item: (item[1], item[0] == "regression"))[0]
    if lacking := [one for one in reported if usual not in one.tasks]:
        raise DataError(
            f"the task is {usual}{'' if task else ', as most silos say first'}, and silo '{lacking[0].name}' can serve "
            f"{' or '.join(lacking[0].tasks)} alone: a federation has one task. Leave it out, or ask for a task that "
            f"all can serve{f', such as task={tasks[0]}' if tasks else ''}."
        )
    reported = _share_tables(reported)
    first = reported[0]
    # Where some have names and others do not, the names are compared among those that have them.
    named = next((one for one in reported if one.feature_names is not None), first)
    for other in reported:
        _check_features(named, other)
        for key, what, todo in (
            ("weighted", "weights", "name a column as edges.weight in all descriptions, or in none"),
            ("directed", "a direction", "set `directed` alike in all descriptions"),
        ):
            if getattr(other, key) != getattr(first, key):
                one, two = (first, other) if getattr(first, key) else (other, first)
                raise DataError(f"links have {what} at silo '{one.name}' and none at silo '{two.name}': {todo}.")
        if (other.scale, other.scale_by) != (first.scale, first.scale_by):
            raise DataError(
                f"silo '{first.name}' scales its features so: {_scaling(first)}; silo '{other.name}' so: "
                f"{_scaling(other)}. Write the same `features: {{scale: ..., scale_by: ...}}` into every silo.yaml."
            )
        if _schema_tables(other.layout) != _schema_tables(first.layout):
            raise DataError(
                f"silo '{first.name}' has nodes of the types {_tables(first)}, silo '{other.name}' of "
                f"{_tables(other)}; one of them is a stored silo, which stays as it was exported."
            )
    compare_sides({one.name: one.outside for one in reported})
    count, names = _classes(reported, task)
    return Schema(
        task=usual,
        num_features=named.features,
        num_classes=count,
        feature_names=None if named.feature_names is None else tuple(named.feature_names),
        class_names=names,
        booleans=join_truth(_truth(reported)),
        directed=first.directed,
        weighted=first.weighted,
        **_schema_tables(first.layout),
    )


def card_notes(cards: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What a person should know of cards that agree."""
    reported = [_parse(item) for item in cards]
    words = dict.fromkeys(word for one in reported if not one.classes_declared for word in one.class_names or ())
    return (
        *truth_notes(_truth(reported)),
        *side_notes({one.name: one.outside for one in reported}),
        *signed_note(tuple(words)),
    )


def _truth(reported: Sequence[Card]) -> list[BooleanWords]:
    return [BooleanWords(f"silo '{one.name}'", one.feature_names or (), words_of(one.booleans)) for one in reported]


def _share_tables(reported: Sequence[Card]) -> list[Card]:
    """The cards as if each silo had the tables of all, with one list of words for each column; stored ones as is."""
    own = [one for one in reported if one.split.mode != STORED and one.feature_names is not None]
    described = [
        Described(
            one.layout,
            Vocabulary(f"silo '{one.name}'", tuple(one.feature_names or ()), one.one_hot, frozenset(one.open_words)),
        )
        for one in own
    ]
    agreed = dict(zip((one.name for one in own), agree(described), strict=True)) if own else {}
    return [_with_tables(one, agreed[one.name]) if one.name in agreed else one for one in reported]


def _with_tables(one: Card, agreed: Described) -> Card:
    mine = agreed.words
    return replace(
        one,
        feature_names=list(mine.names),
        features=len(mine.names),
        one_hot={column: list(words) for column, words in mine.words.items()},
        booleans=rename_booleans(one.booleans, one.layout, agreed.layout),
        layout=agreed.layout,
    )


def _tables(one: Card) -> str:
    return f"{several(one.layout.types, 6) or 'one'} and links {several(one.layout.relations, 6) or 'of one kind'}"


def _schema_tables(layout: Layout) -> dict[str, Any]:
    """What a schema says of tables: nothing of one type, and of links that are nothing but links."""
    many = len(layout.types) > 1
    return {
        "types": tuple(layout.types) if many else (),
        "target": layout.target if many else "",
        "relations": tuple(layout.relations) if layout.has_rows else (),
        "link_features": tuple(layout.links),
        "ends": tuple((start, end) for start, end in layout.ends) if many and layout.has_rows else (),
    }


def _scaling(one: Card) -> str:
    return Scaling(one.scale, one.scale_by).words()


def _parse(reported: Mapping[str, Any]) -> Card:
    """A card that came from elsewhere, its types checked."""
    name = quote(reported.get("name", "?") if isinstance(reported, Mapping) else "?")
    try:
        found = msgspec.convert(dict(reported), Card)
        for kind, part in ((Card, reported), (ItemCounts, reported["counts"]), (CardSplit, reported["split"]),
                           (Layout, reported.get("layout", {}))):  # fmt: skip
            strange = sorted(set(map(str, part)) - {item.name for item in fields(kind)})
            if strange:
                raise msgspec.ValidationError(f"unknown entry '{strange[0]}'")
        held = MOST_CLASSES if found.classes_declared else min(MOST_CLASSES, found.counts.nodes)
        if found.classes > held:
            raise msgspec.ValidationError(f"{found.classes} classes are more than it can have; at most {held}")
        if any(len(words) > MOST_WORDS for words in (*found.one_hot.values(), found.layout.links)):
            raise msgspec.ValidationError(f"a column has more than {MOST_WORDS} words")
        lengths = ((found.features, found.feature_names), (found.classes, found.class_names))
        if any(names is not None and len(names) != count for count, names in lengths):
            raise msgspec.ValidationError("numbers and names of features or classes do not agree")
        if any(names is not None and len(set(names)) != len(names) for _, names in lengths[1:]):
            raise msgspec.ValidationError("a class stands there twice")
        tables = (found.layout.types, found.layout.relations, found.layout.windows or [], found.layout.ends)
        if any(len(listed) > MOST_TABLES for listed in tables) or not found.layout.types:
            raise msgspec.ValidationError(f"it has none, or more than {MOST_TABLES} tables or windows")
        if trouble := found.layout.find_fault():
            raise msgspec.ValidationError(trouble)
        if not set(found.open_words) <= set(found.one_hot):
            raise msgspec.ValidationError("a column without words declares none")
        truth = (word for pair in found.booleans.values() for listed in pair for word in listed)
        for what, words, fault in (
            ("name", _reported_names(found), name_fault),
            ("word", truth, unseen_fault),
            ("split", [found.split.mode or "none"], name_fault),
        ):
            for word in words:
                too_long = f"has more than {LONGEST_NAME} characters" if len(word) > LONGEST_NAME else None
                if wrong := too_long or fault(word):
                    raise msgspec.ValidationError(f"the {what} {quote(word)} {wrong}")
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise DataError(
            f"the card of silo {name} is not one of graphsilo {__version__} ({one_line(error)}): install the same "
            f"release everywhere."
        ) from error
    return found


def _reported_names(one: Card) -> Iterator[str]:
    """Every word of a card that errors and logs quote."""
    yield from (one.name, one.graphsilo, *one.tasks, *(one.feature_names or ()), *(one.class_names or ()))
    for column, words in one.one_hot.items():
        yield from (column, *words)
    yield from (*one.booleans, *one.outside)
    tables = one.layout
    yield from (*tables.types, *tables.relations, *tables.links, *tables.shares, tables.target)
    yield from (*tables.dated, *(kind for pair in tables.ends for kind in pair))


def _check_features(one: Card, other: Card) -> None:
    mine, theirs = one.feature_names, other.feature_names
    if one.features == other.features and (theirs is None or mine == theirs):
        return
    sizes = f"silo '{one.name}' has {one.features} features, silo '{other.name}' {other.features}"
    difference = first_difference("feature", mine, f"'{one.name}'", theirs, f"'{other.name}'")
    raise DataError(
        f"{sizes}{difference}. All silos must describe nodes by the same features in the same order. "
        f"{alike_words(mine, theirs)}"
    )


def _classes(reported: Sequence[Card], task: Task | None) -> tuple[int, tuple[str, ...] | None]:
    """Size and names of the common vocabulary."""
    declared = [one for one in reported if one.classes_declared]
    if not declared:
        words = sort_words(dict.fromkeys(word for one in reported for word in one.class_names or ()))
        if not words and (task or reported[0].tasks[0]) == "node":
            raise DataError(
                "no silo has a label, and none declares classes: name the column of labels as nodes.label in at "
                "least one description, or list the classes under `classes`."
            )
        odd = next((one for one in reported if is_signed(one.class_names or ())), None)
        if odd is not None and not is_signed(words):
            raise DataError(
                f"silo '{odd.name}' has the labels -1 and 1 alone, hence takes -1 for a class, and others have more "
                f"({several(words, 8)}). List the classes under `classes` in every description."
            )
        return len(words), words
    first = next((one for one in declared if one.class_names is not None), declared[0])
    for other in declared:
        names = None if other.class_names is None or first.class_names is None else other.class_names
        if other.classes != first.classes or (names is not None and names != first.class_names):
            mine, theirs = (classes_in_words(card.classes, card.class_names) for card in (first, other))
            place = first_difference("class", first.class_names, f"'{first.name}'", names, f"'{other.name}'")
            raise DataError(
                f"silo '{first.name}' declares {mine}, silo '{other.name}' {theirs}{place}. Declare the same `classes` "
                f"in the same order in every description."
            )
    for other in reported:
        if other.classes_declared:
            continue
        if first.class_names is None and other.class_names:
            raise DataError(
                f"silo '{first.name}' numbers its {first.classes} classes and names none, silo '{other.name}' has "
                f"the class '{other.class_names[0]}': which number it is cannot be known."
            )
        strange = next((word for word in other.class_names or () if word not in (first.class_names or ())), None)
        if strange is not None:
            known = classes_in_words(first.classes, first.class_names)
            raise DataError(
                f"silo '{other.name}' has nodes of class '{strange}', which silo '{first.name}' does not declare: it "
                f"declares {known}. Add the class to `classes` in every description, or empty those labels."
            )
    return first.classes, None if first.class_names is None else tuple(first.class_names)
