"""Silos with their own data: alone at their machine they hold what they hold in one process with the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import yaml

from graphsilo.data.graph import Graph
from graphsilo.data.silos.cards import card, compare_cards
from graphsilo.data.silos.own import SiloFile, read_silo_file
from graphsilo.data.silos.silo import Silo
from graphsilo.data.silos.store import SiloStore
from graphsilo.data.silos.union import dense
from graphsilo.errors import ConfigError, DataError, GraphsiloError, UnsupportedError
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.simulation import prepare
from kit.silos import CLASSES, NAMES, SPLIT, write_silo, write_tables

EDGES = {"path": "north.edges.csv", "source": "a", "target": "b"}


def change(path: Path, **content: Any) -> None:
    """Keys of a YAML file; None takes one out."""
    tree = {**yaml.safe_load(path.read_text()), **content}
    path.write_text(yaml.safe_dump({key: value for key, value in tree.items() if value is not None}))


def together(silos: Sequence[SiloFile], **settings: Any) -> tuple[Silo, ...]:
    """The same silos in one process."""
    tables = [str(silo.tables.file) for silo in silos if silo.tables is not None]
    tree: dict[str, Any] = {
        "data": {"name": tables, **settings.pop("data", {})},
        "partition": {"ratios": SPLIT["ratios"], "seed": SPLIT["seed"], **settings.pop("partition", {})},
        **settings,
    }
    return prepare(RunConfig.of(tree)).silos


def assert_same_array(one: Any, other: Any) -> None:
    if sp.issparse(one) or sp.issparse(other):
        assert sp.issparse(one)
        assert sp.issparse(other)
        assert one.shape == other.shape
        for part in ("data", "indices", "indptr"):
            assert_same_array(getattr(one, part), getattr(other, part))
        return
    assert one.dtype == other.dtype
    assert one.shape == other.shape
    assert one.tobytes() == other.tobytes()
    assert one.flags.c_contiguous == other.flags.c_contiguous


def assert_same_graph(one: Graph, other: Graph) -> None:
    for name in ("features", "edges", "labels"):
        assert_same_array(getattr(one, name), getattr(other, name))
    assert one.external_ids.tolist() == other.external_ids.tolist()
    for name in ("num_classes", "feature_names", "class_names", "splits"):
        assert getattr(one, name) == getattr(other, name)
    assert (one.edge_weights is None) == (other.edge_weights is None)
    if one.edge_weights is not None:
        assert_same_array(one.edge_weights, other.edge_weights)


def assert_same_silo(one: Silo, other: Silo) -> None:
    """Everything but the numbers of nodes in the union, which nobody has alone, and its name."""
    assert one.client == other.client
    assert_same_graph(one.graph, other.graph)
    assert_same_array(one.train, other.train)
    assert len(one.evaluations) == len(other.evaluations)
    for mine, theirs in zip(one.evaluations, other.evaluations, strict=True):
        assert mine.name == theirs.name
        assert_same_graph(mine.graph, theirs.graph)
        assert list(mine.items) == list(theirs.items)
        for kind in mine.items:
            assert_same_array(mine.items[kind], theirs.items[kind])
    assert one.schema == other.schema
    assert (one.parts, one.facts, one.noisy_labels) == (other.parts, other.facts, other.noisy_labels)
    assert (one.links is None) == (other.links is None)
    if one.links is not None:
        for name in one.links.__dataclass_fields__:
            assert_same_array(getattr(one.links, name), getattr(other.links, name))


def apart(silos: Sequence[SiloFile], **asked: Any) -> list[Silo]:
    """Each alone, told what all agree on."""
    cards = [card(silo, client) for client, silo in enumerate(silos)]
    schema, sparse = compare_cards(cards), any(one["sparse"] for one in cards)
    if "task" in asked:
        schema = replace(schema, task=asked["task"])
    return [silo.load(client, schema=schema, sparse=sparse, **asked) for client, silo in enumerate(silos)]


@pytest.mark.parametrize("case", ["node", "link", "inductive"])
def test_alone_and_together_are_the_same(trio: list[SiloFile], case: str) -> None:
    asked: dict[str, Any] = {"link": {"task": "link"}, "inductive": {"scenario": "inductive"}}.get(case, {})
    silos = trio[:2] if case == "inductive" else trio  # the third has no label, hence no graph of training nodes
    one, many = apart(silos, **asked), together(silos, **asked)
    for mine, theirs in zip(one, many, strict=True):
        assert_same_silo(mine, theirs)
    assert all(isinstance(silo.graph, Graph) and silo.graph.is_sparse for silo in many)
    if case == "node":
        assert len(one[0].train) > 5
        assert [len(silo.train) for silo in one][2] == 0


@pytest.mark.parametrize("case", ["node", "link"])
def test_weights_of_links_alone_and_together(trio: list[SiloFile], tmp_path: Path, case: str) -> None:
    for name in NAMES:
        _, *rows = (tmp_path / f"{name}.edges.csv").read_text().splitlines()
        once = {frozenset(row.split(",")): f"{row},{1 + number % 7}" for number, row in enumerate(rows)}
        (tmp_path / f"{name}.edges.csv").write_text("\n".join(["a,b,visits", *once.values()]) + "\n")
        tree = yaml.safe_load((tmp_path / f"{name}.tables.yaml").read_text())
        change(tmp_path / f"{name}.tables.yaml", edges={**tree["edges"], "weight": "visits"})
    silos = [read_silo_file(tmp_path / f"{name}.yaml") for name in NAMES]
    asked: dict[str, Any] = {"task": "link"} if case == "link" else {}
    for mine, theirs in zip(apart(silos, **asked), together(silos, **asked), strict=True):
        assert_same_silo(mine, theirs)
        assert isinstance(mine.graph, Graph)
        assert mine.graph.edge_weights is not None
    assert card(silos[0], 0)["weighted"]


def test_one_sparse_silo_makes_all_sparse(tmp_path: Path) -> None:
    """Most columns are filled at 'south', which alone would keep them dense."""
    for seed, name in enumerate(NAMES[:2]):
        path = write_tables(tmp_path, name, seed=seed, labels=CLASSES)
        filled = "1" if name == "south" else "0"
        text = (tmp_path / f"{name}.nodes.csv").read_text().splitlines()
        extra = [f"c{number:02}" for number in range(70)]
        text = [f"{text[0]},{','.join(extra)}", *(f"{line},{','.join([filled] * 70)}" for line in text[1:])]
        (tmp_path / f"{name}.nodes.csv").write_text("\n".join(text) + "\n")
        tree = yaml.safe_load(path.read_text())
        tree["nodes"]["features"] = ["age", "weight", "c*"]
        path.write_text(yaml.safe_dump(tree))
        write_silo(tmp_path, name)
    silos = [read_silo_file(tmp_path / f"{name}.yaml") for name in NAMES[:2]]
    assert [card(silo, client)["sparse"] for client, silo in enumerate(silos)] == [True, False]
    for mine, theirs in zip(apart(silos), together(silos), strict=True):
        assert isinstance(mine.graph, Graph)
        assert mine.graph.is_sparse
        assert_same_silo(mine, theirs)


def test_a_split_depends_on_seed_number_and_own_labels_only(trio: list[SiloFile]) -> None:
    all_three, two, swapped = together(trio), together(trio[:2]), together([trio[0], trio[2], trio[1]])
    assert_same_array(all_three[0].train, two[0].train)
    assert_same_array(all_three[1].train, two[1].train)
    assert_same_array(all_three[0].train, swapped[0].train)
    assert all_three[1].train.tolist() != swapped[2].train.tolist()
    other_seed = together(trio, partition={"seed": 12})
    assert all_three[0].train.tolist() != other_seed[0].train.tolist()


def test_options_and_a_predefined_split(trio: list[SiloFile], tmp_path: Path) -> None:
    for name in NAMES[:2]:
        rows = (tmp_path / f"{name}.nodes.csv").read_text().splitlines()
        kinds = ["train", "val", "test", ""]
        rows = [f"{rows[0]},part", *(f"{line},{kinds[number % 4]}" for number, line in enumerate(rows[1:]))]
        (tmp_path / f"{name}.nodes.csv").write_text("\n".join(rows) + "\n")
        tree = yaml.safe_load((tmp_path / f"{name}.tables.yaml").read_text())
        tree["nodes"]["split"] = "part"
        (tmp_path / f"{name}.tables.yaml").write_text(yaml.safe_dump(tree))
        write_silo(tmp_path, name, features={"scale": "unit_rows"}, split={})
    silos = [read_silo_file(tmp_path / f"{name}.yaml") for name in NAMES[:2]]
    assert [silo.split.mode for silo in silos] == ["predefined", "predefined"]
    many = together(silos, data={"scale": "unit_rows"}, partition={"ratios": None})
    for mine, theirs in zip(apart(silos), many, strict=True):
        assert_same_silo(mine, theirs)


def test_tables_in_the_silo_file_itself(trio: list[SiloFile], tmp_path: Path) -> None:
    tree = yaml.safe_load((tmp_path / "south.tables.yaml").read_text())
    write_silo(tmp_path, "south", data=None, **{key: tree[key] for key in ("nodes", "edges", "classes")})
    change(tmp_path / "south.yaml", data=None)
    assert_same_silo(read_silo_file(tmp_path / "south.yaml").load(1), trio[1].load(1))


def test_classes_are_numbered_as_the_federation_says(trio: list[SiloFile], tmp_path: Path) -> None:
    """Where nobody declares them: what occurs anywhere, sorted; 'back' is absent at 'south', everything at 'west'."""
    for name in NAMES:
        change(tmp_path / f"{name}.tables.yaml", classes=None)
    silos = [read_silo_file(tmp_path / f"{name}.yaml") for name in NAMES]
    cards = [card(silo, client) for client, silo in enumerate(silos)]
    assert [one["class_names"] for one in cards] == [["back", "home", "stays"], ["home", "stays"], []]
    assert [one["counts"]["classes"] for one in cards] == [3, 2, 0]
    schema = compare_cards(cards)
    assert schema.class_names == ("back", "home", "stays")
    south = silos[1].load(1, schema=schema)
    declared = trio[1].read().graph
    wanted = [-1 if label < 0 else schema.class_names.index(CLASSES[label]) for label in declared.labels]
    assert south.graph.labels.tolist() == wanted
    assert south.schema == schema
    assert south.graph.num_classes == 3
    assert silos[2].load(2, schema=schema).class_counts().tolist() == [0, 0, 0]


def test_a_silo_that_has_changed_since_is_noticed(trio: list[SiloFile], tmp_path: Path) -> None:
    schema = compare_cards([card(silo, client) for client, silo in enumerate(trio)])
    change(tmp_path / "south.tables.yaml", classes=["home", "stays", "other"])
    with pytest.raises(DataError, match="silo 'south' has nodes of class 'other', which the federation does not know"):
        read_silo_file(tmp_path / "south.yaml").load(1, schema=schema)
    for count, names in ((3, ("a", "b", "c")), (schema.num_features, ("a", "b")), (3, None)):
        with pytest.raises(DataError, match=f"silo 'north' has other features now.*agreed on .{count}"):
            trio[0].load(0, schema=replace(schema, num_features=count, feature_names=names))
    with pytest.raises(DataError, match="silo 'north' has 3 classes, the federation 2 without names"):
        trio[0].load(0, schema=replace(schema, num_classes=2, class_names=None))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"polcy": {}}, r"unknown setting 'polcy'; did you mean 'policy'"),
        ({"name": None}, r"name is missing; it must be text"),
        ({"name": "North Ward"}, r"name must be small letters, digits and hyphens.*got 'North Ward'"),
        ({"data": None}, r"named by one of .*it has none of them"),
        ({"store": "."}, r"named by one of .*it has 'data' and 'store'"),
        ({"classes": ["a"]}, r"'classes' stands in the description of tables, not beside 'data'"),
        ({"data": "north.nodes.csv"}, r"'data' must name a description of tables \(\.yaml\); got 'north\.nodes\.csv'"),
        ({"data": "nowhere.yaml"}, r"the data description .*nowhere\.yaml does not exist"),
        ({"policy": "none"}, r"policy must be a table; got 'none'"),
        ({"options": {"undirectd": True}}, r"unknown setting 'data\.undirectd' .*did you mean 'data\.undirected'"),
        (
            {"options": {"scale": "none"}, "features": {"scale": "robust"}},
            r"'scale' stands under 'options' and under 'features'",
        ),
        ({"features": {"scale": "standrad"}}, r"scale must be one of .*got 'standrad'.*mean 'standard'"),
        ({"features": {"scale": "none", "scale_by": "silo"}}, r"scale_by says whose .*scale: none has none"),
        ({"features": {"scale": "robust", "scale_by": "federation"}}, r"medians and quartiles, which cannot be made"),
        ({"features": {"scales": "none"}}, r"unknown setting 'features\.scales'; did you mean 'features\.scale'"),
        ({"split": {"mode": "global"}}, r"split\.mode must be .*'global' draws over the nodes of all silos"),
        ({"split": {"mode": "predefned"}}, r"split\.mode must be .*; got 'predefned'\. Did you mean 'predefined'"),
        ({"split": {"mode": "predefined"}}, r"no column says which node trains"),
        ({"split": {"ratio": [1, 0, 0]}}, r"unknown setting 'split\.ratio'; did you mean 'split\.ratios'"),
        ({"split": {"ratios": [0.5, 0.6, 0.1]}}, r"north\.yaml: split\.ratios must be three shares"),
        ({"split": {"ratios": "0.2/0.4/0.4"}}, r"split\.ratios must be a list of 3 numbers"),
        ({"split": {"seed": "x"}}, r"split\.seed must be a whole number .*; got 'x'"),
    ],
)
def test_mistakes_in_the_silo_file(
    trio: list[SiloFile], tmp_path: Path, content: Mapping[str, Any], message: str
) -> None:
    change(tmp_path / "north.yaml", **content)
    with pytest.raises(GraphsiloError, match=message):
        read_silo_file(tmp_path / "north.yaml")


def test_what_a_silo_of_tables_cannot_do(trio: list[SiloFile], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="tasks node and link; 'graph' was asked for"):
        trio[0].load(0, task="graph")
    with pytest.raises(UnsupportedError, match="'unseen' is made of all clients' data"):
        trio[0].load(0, scenario="unseen")
    with pytest.raises(ConfigError, match=r"the silo file .*none\.yaml does not exist"):
        read_silo_file(tmp_path / "none.yaml")
    (tmp_path / "north.edges.csv").write_text("a,b\nnorth0,north1\n")
    assert card(trio[0], 0)["tasks"] == ["node"]


def test_a_description_that_is_wrong_is_refused_before_the_data(trio: list[SiloFile], tmp_path: Path) -> None:
    change(tmp_path / "north.tables.yaml", nodez={})
    with pytest.raises(ConfigError, match="unknown setting 'nodez'; did you mean 'nodes'"):
        read_silo_file(tmp_path / "north.yaml")


def make_gaps(folder: Path) -> None:
    """Every third age of every silo is empty."""
    for name in NAMES:
        path = folder / f"{name}.nodes.csv"
        head, *rows = path.read_text().splitlines()
        cells = [row.split(",") for row in rows]
        for row in cells[::3]:
            row[1] = ""
        path.write_text("\n".join([head, *(",".join(row) for row in cells)]) + "\n")


def test_gaps_are_filled_by_each_silo_alike_apart_and_together(trio: list[SiloFile], tmp_path: Path) -> None:
    """By its own mean: what fills them is kept with the silo, and is on no card."""
    make_gaps(tmp_path)
    for name in NAMES:
        change(tmp_path / f"{name}.yaml", features={"missing": {"age": "indicator"}})
    silos = [read_silo_file(tmp_path / f"{name}.yaml") for name in NAMES]
    cards = [card(silo, client) for client, silo in enumerate(silos)]
    schema = compare_cards(cards)
    assert schema.feature_names is not None
    assert schema.feature_names[:2] == ("age", "age:missing")
    files = [str(tmp_path / f"{name}.tables.yaml") for name in NAMES]
    data = {"name": files, "missing": {"age": "indicator"}}
    together = prepare(RunConfig.of({"data": data, "partition": {"ratios": [0.4, 0.3, 0.3], "seed": 11}}))
    means = []
    for client, silo in enumerate(silos):
        apart = silo.load(client, schema=schema, sparse=any(told["sparse"] for told in cards))
        assert apart.fills == together.silos[client].fills
        assert apart.fills is not None
        ages = np.asarray(dense(apart.graph.features))[:, 0]
        given = [age for row, age in enumerate(ages) if row % 3]
        assert apart.fills == {"age": pytest.approx(np.mean(given)), "age:missing": 1.0}
        assert ages[::3].tolist() == [np.float32(apart.fills["age"])] * len(ages[::3])
        np.testing.assert_array_equal(ages, np.asarray(dense(together.silos[client].graph.features))[:, 0])
        means.append(apart.fills["age"])
        assert str(means[-1])[:6] not in str(cards)
        store = SiloStore(tmp_path / f"store-{client}")
        store.write(apart)
        assert store.read(client).fills == apart.fills
    assert len(set(means)) == 3
    later = silos[0].load(0, schema=schema, fills={"age": 5.0, "age:missing": 1.0})
    assert np.asarray(dense(later.graph.features))[::3, :2].tolist() == [[5.0, 1.0]] * len(range(0, 30, 3))


def test_a_silo_without_the_indicator_does_not_fit(trio: list[SiloFile], tmp_path: Path) -> None:
    change(tmp_path / "north.yaml", features={"missing": "indicator"})
    cards = [card(read_silo_file(tmp_path / f"{name}.yaml"), client) for client, name in enumerate(NAMES[:2])]
    with pytest.raises(DataError, match="feature 2 is 'age:missing' at 'north' and 'weight' at 'south'"):
        compare_cards(cards)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"features": {"missing": "avg"}}, r"north\.yaml: features\.missing must be one of"),
        ({"features": {"mising": "mean"}}, r"unknown setting 'features\.mising'; did you mean 'features\.missing'"),
        (
            {"options": {"missing": "mean"}, "features": {"missing": "mean"}},
            "stands under 'options' and under 'features'",
        ),
        (
            {"data": None, "store": ".", "features": {"missing": "mean"}},
            r"Leave out features\.missing",
        ),
    ],
)
def test_what_features_may_not_say(trio: list[SiloFile], tmp_path: Path, content: dict, message: str) -> None:
    change(tmp_path / "north.yaml", **{"split": None, **content})
    with pytest.raises(ConfigError, match=message):
        read_silo_file(tmp_path / "north.yaml")


def test_missing_stands_in_one_place(trio: list[SiloFile], tmp_path: Path) -> None:
    change(tmp_path / "north.tables.yaml", features={"missing": "mean"})
    assert read_silo_file(tmp_path / "north.yaml").missing.of("age") == "mean"
    change(tmp_path / "north.yaml", features={"missing": "median"})
    with pytest.raises(ConfigError, match=r"features\.missing stands here and in north\.tables\.yaml"):
        read_silo_file(tmp_path / "north.yaml")


def test_a_run_tells_the_faults_of_all_its_files(trio: list[SiloFile], tmp_path: Path) -> None:
    make_gaps(tmp_path)
    change(tmp_path / "south.tables.yaml", classes=["home"])
    files = [str(tmp_path / f"{name}.tables.yaml") for name in NAMES]
    with pytest.raises(DataError, match=r"^the data: 4 faults are to be mended\.\n1\. .*north\.nodes.*\n2\. .*south"):
        prepare(RunConfig.of({"data": {"name": files}}))


def test_what_is_kept_of_a_silo_is_called_after_where_its_nodes_are(tmp_path: Path) -> None:
    """Not after its name, its other settings or what is in the tables; and the folder may be moved."""

    def kept(file: Path) -> Path:
        return read_silo_file(file).record("account")

    (tmp_path / "one").mkdir()
    for name in ("north", "south"):
        write_tables(tmp_path / "one", name, seed=0, labels=CLASSES)
    first = kept(write_silo(tmp_path / "one", "north"))
    assert (first.parent, first.suffix) == (tmp_path / "one" / "sums", ".account")
    change(tmp_path / "one" / "north.yaml", name="clinic", options={"largest_component": True})
    (tmp_path / "one" / "link.csv").symlink_to("north.nodes.csv")
    nodes = {"path": "link.csv", "id": "id", "label": "outcome", "features": ["age"]}
    other = write_silo(tmp_path / "one", "other", data=None, nodes=nodes, edges={**EDGES, "path": "south.edges.csv"})
    change(other, data=None)
    with (tmp_path / "one" / "north.nodes.csv").open("a") as table:
        table.write("more,9,9,alpha,\n")
    assert kept(tmp_path / "one" / "north.yaml") == kept(other) == first
    assert kept(write_silo(tmp_path / "one", "south")) != first
    (tmp_path / "one").rename(tmp_path / "two")
    assert kept(tmp_path / "two" / "north.yaml") == tmp_path / "two" / "sums" / first.name


def test_so_it_is_with_sheets_databases_and_stores(tmp_path: Path) -> None:
    def kept(**nodes: Any) -> Path:
        file = write_silo(tmp_path, "north", nodes={"id": "id", **nodes}, edges=EDGES)
        change(file, data=None)
        return read_silo_file(file).record("key")

    def asked(connection: str, query: str = "SELECT * FROM stays") -> Path:
        return kept(query=query, connection=connection)

    sheets = {kept(path="ward.xlsx"), kept(path="ward.xlsx", sheet="b"), kept(path="other.xlsx")}
    assert len(sheets) == 3
    at = asked("postgresql://reader:secret@db/ward?sslpassword=one")
    assert at == asked("postgresql+psycopg://admin:other@db/ward?sslpassword=two", " SELECT *\nFROM stays;")
    lite, name = asked("sqlite:///ward.db"), asked("env:WARD_DB")
    assert lite == asked(f"sqlite:///{tmp_path}/ward.db")
    others = {asked("postgresql://reader:secret@db/b"), asked("postgresql://reader:secret@db/ward", "SELECT a FROM b")}
    assert len({at, lite, name, asked("sqlite:///b.db"), asked("env:B"), *others, *sheets}) == 10
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    stores = [SiloFile(tmp_path / "silo.yaml", name, store=tmp_path / folder)
              for name, folder in (("x", "a"), ("y", "a"), ("x", "b"))]  # fmt: skip
    assert stores[0].record("key") == stores[1].record("key") != stores[2].record("key")
