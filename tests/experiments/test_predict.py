"""Predictions of saved runs are those that were scored."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import graphsilo
from graphsilo.data import load
from graphsilo.data.silos.schema import schema_tree
from graphsilo.data.sources import catalog
from graphsilo.data.sources.files import save_graph
from graphsilo.errors import ConfigError, DataError, RunError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.export.card import model_card
from graphsilo.experiments.predict import open_member, predict
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare
from kit import silo_tree
from kit.runs import only


@pytest.fixture(scope="module")
def finished(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    config = small(evaluation__models=True, run__seeds=[3, 4], method__rounds=8, method__lr=0.05)
    return folder, run(config, out=folder).tree, prepare(config)


def score(prediction, silo, kind="test"):
    items = silo.seen.items[kind]
    return float((prediction.classes[items] == silo.seen.graph.labels[items]).mean())


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("client", [0, 1, 2])
def test_the_runs_own_scores(finished, client, place):
    folder, tree, simulation = finished
    seed = tree["seeds"][place]
    made = predict(folder, client=client, seed=seed["seed"])
    silo = simulation.silos[client]
    assert score(made, silo) == pytest.approx(seed["clients"][client]["test"]["accuracy"], abs=1e-12)
    assert np.array_equal(made.node_ids, silo.graph.global_ids)
    assert np.allclose(made.probabilities.sum(axis=1), 1.0, atol=1e-5)
    assert made.probabilities.shape == (silo.graph.num_nodes, 3)
    assert np.array_equal(made.classes, made.probabilities.argmax(axis=1))
    assert made.on == f"client {client}'s own graph"
    whose = "the common model" if seed["reported"] == "aggregate_local" else f"client {client}'s own model"
    assert made.by == f"{whose} of the best round by validation"
    other = predict(folder, client=client, seed=seed["seed"], model="own" if "common" in whose else "common")
    assert other.by.endswith(f", not {whose}, whose score the run reports")


def test_best_and_last(finished):
    folder, tree, simulation = finished
    seed = tree["seeds"][0]
    last = [score(predict(folder, client=client, checkpoint="last"), simulation.silos[client]) for client in range(3)]
    sizes = [silo.graph.num_nodes for silo in simulation.silos]
    assert np.average(last, weights=sizes) == pytest.approx(seed["test_last"]["accuracy"], abs=1e-12)
    assert np.array_equal(
        predict(folder, client=1).classes, predict(folder, client=1, seed=3, checkpoint="best").classes
    )


def test_a_grown_graph(finished, tmp_path):
    """Old nodes far from the new one are predicted as before; the new one is predicted, too."""
    folder, _, simulation = finished
    own = simulation.silos[0].seen.graph
    n = own.num_nodes
    dense = np.asarray(own.features)
    grown = replace(
        own,
        features=np.concatenate([dense, dense[:1]]),
        edges=np.concatenate([own.edges, [[0, n], [n, 0]]], axis=1).astype(np.int64),
        labels=np.append(own.labels, -1),
        node_ids=None,
        splits={},
    )
    before, after = predict(folder, client=0), predict(folder, client=0, graph=grown)
    assert len(after.classes) == n + 1
    adjacency = own.adjacency() + np.eye(n)
    far = np.flatnonzero(np.asarray((adjacency @ adjacency @ adjacency)[0]).ravel()[:n] == 0)
    assert len(far) > 5
    assert np.allclose(before.probabilities[far], after.probabilities[far], atol=1e-6)
    path = save_graph(tmp_path / "grown.npz", grown)
    from_file = predict(folder, client=0, graph=path)
    assert np.allclose(from_file.probabilities, after.probabilities, atol=1e-6)
    assert "given" in after.on


def test_another_order_of_nodes_is_followed(finished):
    folder, _, simulation = finished
    own = simulation.silos[1].seen.graph
    order = np.random.default_rng(0).permutation(own.num_nodes)
    made = predict(folder, client=1, graph=own.subgraph(order))
    assert np.allclose(made.probabilities, predict(folder, client=1).probabilities[order], atol=1e-5)


def test_wrong_features(finished, molecules):
    folder, _, simulation = finished
    own = simulation.silos[0].seen.graph
    with pytest.raises(DataError, match=r"was trained on 40 features.*has 39.*same features in the same order"):
        predict(folder, client=0, graph=replace(own, features=own.features[:, :39]))
    with pytest.raises(DataError, match="predicts on a single graph"):
        predict(folder, client=0, graph=molecules)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"client": 3}, "has clients 0 to 2; 3 was asked for"),
        ({"client": True}, "takes a client by number or by name; got True of type bool"),
        ({"client": "er"}, "names 'er', and the clients of this run have numbers only"),
        ({"client": 0, "seed": 0}, r"has seeds \[3, 4\]; 0 was asked for"),
        ({"client": 0, "seed": "3"}, r"has seeds \[3, 4\]; '3' was asked for"),
        ({"client": 0, "seed": 3.0}, r"has seeds \[3, 4\]; 3\.0 was asked for"),
        ({"client": 0, "checkpoint": "first"}, "'best' and 'last'; 'first'"),
    ],
    ids=str,
)
def test_what_a_run_does_not_have(finished, options, text):
    with pytest.raises(ConfigError, match=text):
        predict(finished[0], **options)


def test_a_client_is_named_by_number_or_by_name(finished, tmp_path):
    assert np.array_equal(predict(finished[0], client="1").classes, predict(finished[0], client=1).classes)
    files = []
    for seed, name in enumerate(("er", "icu")):
        graph = catalog.load("citation-sbm", options={"nodes": 60, "classes": 3, "features": 12}, seed=seed)
        files.append(str(save_graph(tmp_path / f"{name}.npz", graph)))
    graphsilo.run(data=files, rounds=1, out=tmp_path / "run", report=False, **{"model.hidden": 4})
    named, numbered = (predict(tmp_path / "run", client=who) for who in ("icu", 1))
    assert named.by == numbered.by
    assert np.array_equal(named.probabilities, numbered.probabilities)
    with pytest.raises(ConfigError, match=r"^--client names 'icus', which is no client; did you mean 'icu'"):
        predict(tmp_path / "run", client="icus")


def test_a_client_is_named_as_the_page_names_it(tmp_path):
    files = [write_tables(tmp_path, name) for name in ("north", "south", "west")]
    for file in files:
        text = Path(file).read_text()
        Path(file).write_text(text.replace("name: ", "name: St. ", 1))
    settings = {"model.hidden": 4, "data.scale": "unit_rows"}
    run(load_config(overrides={"data.name": files, "method.rounds": 1, "run.without": ["St. west"], **settings}),
        out=tmp_path / "run")  # fmt: skip
    with pytest.raises(ConfigError, match="client 2 was left out"):
        predict(tmp_path / "run", client="St. west")
    shown, by_file, numbered = (predict(tmp_path / "run", client=who) for who in ("St. south", "south", 1))
    assert np.array_equal(shown.probabilities, numbered.probabilities)
    assert np.array_equal(by_file.probabilities, numbered.probabilities)


def test_folders_without_a_run(tmp_path, small):
    with pytest.raises(ConfigError, match="a finished run was wanted"):
        predict(tmp_path, client=0)
    run(small(), out=tmp_path / "run")
    with pytest.raises(RunError, match=r"Models are saved unless evaluation\.models is false"):
        predict(tmp_path / "run", client=0)


def test_a_damaged_model(small, tmp_path):
    run(small(evaluation__models=True, method__rounds=1), out=tmp_path / "run")
    path = tmp_path / "run" / "models" / "seed0-client0-best.safetensors"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(RunError, match="cannot be read"):
        predict(tmp_path / "run", client=0)


def test_links_have_no_classes(small, tmp_path):
    run(small(task="link", evaluation__models=True, method__rounds=1), out=tmp_path / "run")
    with pytest.raises(ConfigError, match="scores pairs of nodes, not nodes"):
        predict(tmp_path / "run", client=0)


@pytest.mark.parametrize("method", ["local", "global", "fedprox"])
def test_other_methods(small, tmp_path, method):
    config = small(method__name=method, evaluation__models=True)
    seed = run(config, out=tmp_path / "run").tree["seeds"][0]
    simulation = prepare(config, None)
    if method == "global":
        made = predict(tmp_path / "run", client=0)
        assert len(made.classes) == 150
        return
    for client in range(3):
        made = predict(tmp_path / "run", client=client)
        assert score(made, simulation.silos[client]) == pytest.approx(seed["clients"][client]["test"]["accuracy"])


@pytest.mark.parametrize("features", ["strict", "degree"])
def test_graphs_are_predicted(features, molecules, tmp_path):
    config = load_config(
        overrides={
            "partition.features": features,
            "data.name": str(molecules), "partition.clients": 2, "partition.rule": "random", "model.name": "gin",
            "model.hidden": 8, "method.rounds": 2, "partition.ratios": [0.6, 0.2, 0.2],
        }
    )  # fmt: skip
    seed = run(config, out=tmp_path / "run").tree["seeds"][0]
    made = predict(tmp_path / "run", client=1)
    silo = prepare(config).silos[1]
    assert len(made.classes) == len(silo.graph)
    assert score(made, silo) == pytest.approx(seed["clients"][1]["test"]["accuracy"])


def test_scenarios_are_predicted_on_the_training_graph(small, tmp_path):
    config = small(scenario__name="unseen", partition__rule="metis", evaluation__models=True)
    seed = run(config, out=tmp_path / "run").tree["seeds"][0]
    silo = prepare(config).silos[0]
    made = predict(tmp_path / "run", client=0)
    assert score(made, silo) == pytest.approx(seed["clients"][0]["test"]["accuracy"])
    grown = predict(tmp_path / "run", client=0, graph=silo.evaluations[1].graph)
    items = silo.evaluations[1].items["unseen_node"]
    assert len(grown.classes) > max(items)


def test_a_given_graph_is_prepared_as_the_runs_data_was(tmp_path):
    """The same file with and without being named gives the same rows, row normalisation included."""
    (tmp_path / "nodes.csv").write_text(
        "id,a,b,y\n" + "".join(f"{row},{row + 1},{row % 3},{row % 2}\n" for row in range(30))
    )
    (tmp_path / "edges.csv").write_text("s,t\n" + "".join(f"{row},{(row + 2) % 30}\n" for row in range(30)))
    (tmp_path / "own.yaml").write_text(
        "name: own\nnodes: {path: nodes.csv, id: id, label: y, features: [a, b]}\n"
        "edges: {path: edges.csv, source: s, target: t}\n"
    )
    config = load_config(
        overrides={"data.name": str(tmp_path / "own.yaml"), "data.scale": "unit_rows", "partition.clients": 1},
        assignments=["method.rounds=2"],
    )
    run(config, out=tmp_path / "run")
    named = predict(tmp_path / "run", client=0, graph=tmp_path / "own.yaml")
    assert np.array_equal(named.probabilities, predict(tmp_path / "run", client=0).probabilities)


def write_tables(folder, name, *, label="y", features=("a", "b"), classes="['0', '1']"):
    """30 nodes on a ring, called <name>-0, <name>-1, ..., described by a YAML file."""
    ids = [f"{name}-{row}" for row in range(30)]
    rows = "".join(f"{node},{row % 5},{row % 3},{row % 2}\n" for row, node in enumerate(ids))
    (folder / f"{name}-nodes.csv").write_text(f"id,{','.join(features)},{label}\n{rows}")
    (folder / f"{name}-edges.csv").write_text("s,t\n" + "".join(f"{ids[row]},{ids[row - 1]}\n" for row in range(30)))
    (folder / f"{name}.yaml").write_text(
        f"name: {name}\nnodes: {{path: {name}-nodes.csv, id: id, label: {label}}}\nclasses: {classes}\n"
        f"edges: {{path: {name}-edges.csv, source: s, target: t}}\n"
    )
    return str(folder / f"{name}.yaml")


@pytest.mark.parametrize("method", ["fedavg", "global"])
def test_ids_of_the_tables_come_back(tmp_path, method):
    names = [write_tables(tmp_path, name) for name in ("north", "south")]
    config = load_config(overrides={"data.name": names, "method.name": method, "method.rounds": 1})
    run(config, out=tmp_path / "run")
    made = predict(tmp_path / "run", client=0 if method == "global" else 1)
    south = [f"south-{row}" for row in range(30)]
    assert made.node_ids.tolist() == ([f"north-{row}" for row in range(30)] if method == "global" else []) + south
    assert made.places(["south-4", "south-0"]) == [place + (30 if method == "global" else 0) for place in (4, 0)]
    with pytest.raises(ConfigError, match=r"node 4 is not on .* ids of their table, such as '\w+-0', '\w+-1'"):
        made.places([4])
    given = predict(tmp_path / "run", client=0, graph=names[1])
    assert given.node_ids.tolist() == south
    order = np.array([3, 1])
    assert predict(tmp_path / "run", client=0, graph=load(names[1]).subgraph(order)).node_ids.tolist() == [
        "south-3", "south-1",
    ]  # fmt: skip


def with_gaps(folder, name, *, fill, missing=""):
    """The ring, its feature a missing in every third row; ``fill`` stands there."""
    path = write_tables(folder, name)
    head, *rows = (folder / f"{name}-nodes.csv").read_text().splitlines()
    cells = [row.split(",") for row in rows]
    for row in cells[::3]:
        row[1] = fill
    (folder / f"{name}-nodes.csv").write_text("\n".join([head, *(",".join(row) for row in cells)]) + "\n")
    if missing:
        with (folder / f"{name}.yaml").open("a") as file:
            file.write(f"features: {{missing: {missing}}}\n")
    return path


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.slow
def test_a_later_table_is_filled_as_the_first_one_was(tmp_path, workers):
    """Rows 0, 3, ... are gaps; the others hold row % 5, whose mean is 2: so a 2 written out is the same question."""
    names = [with_gaps(tmp_path, name, fill="", missing="{a: mean}") for name in ("north", "south")]
    config = load_config(overrides={"data.name": names, "method.rounds": 1, "run.workers": workers})
    run(config, out=tmp_path / "run")
    (tmp_path / "later").mkdir()
    gaps = with_gaps(tmp_path / "later", "gaps", fill="", missing="{a: 777}")
    filled = with_gaps(tmp_path / "later", "filled", fill="2")
    asked = [predict(tmp_path / "run", client=1, graph=name).probabilities for name in (gaps, filled)]
    assert np.array_equal(*asked)
    other = with_gaps(tmp_path / "later", "other", fill="3")
    assert not np.array_equal(asked[0], predict(tmp_path / "run", client=1, graph=other).probabilities)
    no_rule = write_tables(tmp_path / "later", "none")
    (tmp_path / "later" / "none-nodes.csv").write_text((tmp_path / "later" / "gaps-nodes.csv").read_text())
    with pytest.raises(DataError, match="the feature is missing"):
        predict(tmp_path / "run", client=1, graph=no_rule)


def test_a_silos_table_that_grew_is_filled_as_before(tmp_path):
    """Two new patients, of 5,000 and without a number: the mean is another now, the model's gap still stands for 2."""
    config = load_config(overrides={"data.name": with_gaps(tmp_path, "north", fill="", missing="mean"),
                                    "partition.clients": 1, "method.rounds": 1})  # fmt: skip
    run(config, out=tmp_path / "run")
    silo = prepare(config).silos[0]
    (tmp_path / "silo.yaml").write_text("name: north\ndata: north.yaml\n")
    own = silo_tree(schema=schema_tree(silo.schema), silo_file=str(tmp_path / "silo.yaml"))
    (tmp_path / "run" / "result.json").write_text(json.dumps(own))
    table = tmp_path / "north-nodes.csv"
    table.write_text(table.read_text() + "new-0,5000,1,\nnew-1,,1,\n")
    grown = predict(tmp_path / "run")
    table.write_text(table.read_text().replace("new-1,,1", "new-1,2,1"))
    assert np.array_equal(grown.probabilities, predict(tmp_path / "run").probabilities)
    assert grown.node_ids.tolist()[-2:] == ["new-0", "new-1"]


@pytest.mark.parametrize("scenario", ["seen", "unseen", "open", "inductive"])
def test_ids_of_one_table_that_is_cut(tmp_path, scenario):
    name = write_tables(tmp_path, "own")
    config = load_config(
        overrides={
            "data.name": name, "data.largest_component": True, "scenario.name": scenario, "partition.clients": 2,
            "partition.rule": "metis", "method.rounds": 1,
        }
    )  # fmt: skip
    run(config, out=tmp_path / "run")
    silo = prepare(config).silos[1]
    made = predict(tmp_path / "run", client=1)
    assert made.node_ids.tolist() == [f"own-{row}" for row in silo.seen.graph.global_ids]


def test_a_graph_in_memory_keeps_its_ids(tmp_path):
    import graphsilo

    graph = graphsilo.load(write_tables(tmp_path, "own"))
    done = graphsilo.run(data=graph, clients=2, partition="metis", rounds=1, out=tmp_path / "run", report=False)
    ids = [set(graphsilo.predict(done, client).node_ids.tolist()) for client in (0, 1)]
    assert ids[0] | ids[1] == {f"own-{row}" for row in range(30)}
    assert not ids[0] & ids[1]


def test_numbers_where_there_are_no_ids(finished):
    made = predict(finished[0], client=0)
    wanted = made.node_ids[[5, 2]].tolist()
    assert made.places(wanted) == [5, 2]
    with pytest.raises(ConfigError, match=r"node 999 is not on client 0's own graph, which holds \d+ nodes numbered"):
        made.places([999])


def test_silos_that_do_not_agree_are_named(tmp_path):
    first = write_tables(tmp_path, "north")

    for changes, text in (
        (
            {"features": ("a", "c")},
            r"client 0 \(.*north\.yaml\) has 2, client 1 \(.*south\.yaml\) has 2: feature 2 is 'b' at client 0 and 'c'",
        ),
        ({"classes": "['0', '1', '2']"}, r"client 1 \(.*south\.yaml\) has 3 classes \(0, 1, 2\)\. Declare `classes`"),
    ):
        other = write_tables(tmp_path, "south", **changes)
        with pytest.raises(DataError, match=text):
            prepare(load_config(overrides={"data.name": [first, other]}))
    with pytest.raises(DataError, match="clients 0 and 1 would hold the same data"):
        prepare(load_config(overrides={"data.name": [first, first]}))


def test_collections_that_do_not_agree_are_named(molecules, tmp_path):
    other = load(str(molecules), options={"degree_features": True, "max_degree": 3})
    wider = save_graph(tmp_path / "wider.npz", other)
    config = {"data.name": [str(molecules), str(wider)], "model.name": "gin"}
    with pytest.raises(
        DataError, match=r"client 1 \(.*wider\.npz\).*partition\.features=degree.*data\.degree_features"
    ):
        prepare(load_config(overrides=config))
    assert len(prepare(load_config(overrides={**config, "partition.features": "degree"})).silos) == 2


def test_numbers_that_are_none_are_refused(finished):
    """The class of a row of NaN would be 0."""
    folder, _, simulation = finished
    own = simulation.silos[0].seen.graph
    features = np.asarray(own.features).copy()
    features[4, 7] = np.nan
    with pytest.raises(DataError, match=r"NaN"):
        predict(folder, client=0, graph=replace(own, features=features))


def test_data_that_has_changed_is_not_called_the_clients_own(small, tmp_path):
    graph = load("citation-sbm", options={"generator": {"nodes": 150, "classes": 3, "features": 40}})
    path = save_graph(tmp_path / "own.npz", graph)
    run(small(data__name=str(path), data__generator={}, evaluation__models=True), out=tmp_path / "run")
    before = predict(tmp_path / "run", client=0)
    save_graph(path, graph.with_features(2 * graph.features))
    with pytest.raises(RunError, match=r"data has changed since .* was trained.* client 0's own graph is not what"):
        predict(tmp_path / "run", client=0)
    named = predict(tmp_path / "run", client=0, graph=path)  # what is named is what is meant
    assert len(named.classes) == 150
    save_graph(path, graph)
    assert np.array_equal(predict(tmp_path / "run", client=0).probabilities, before.probabilities)


@pytest.mark.parametrize("directed", [False, True])
def test_a_graph_in_memory_is_prepared_like_its_file(small, tmp_path, directed):
    """Rows of length 1, and one direction of each link where the run's links have two."""
    graph = load("citation-sbm", options={"generator": {"nodes": 150, "classes": 3, "features": 40}})
    once = graph.with_edges(graph.edges[:, graph.edges[0] < graph.edges[1]])
    half = replace(once, features=3 * once.features)
    path = save_graph(tmp_path / "own.npz", half)
    config = small(
        data__name=str(path), data__generator={}, data__scale="unit_rows", data__undirected=not directed,
        evaluation__models=True, partition__clients=1,
    )  # fmt: skip
    run(config, out=tmp_path / "run")
    own, file, memory = (predict(tmp_path / "run", client=0, graph=given) for given in (None, path, half))
    assert np.array_equal(file.probabilities, own.probabilities)
    assert np.array_equal(memory.probabilities, own.probabilities)


def test_directions_of_a_run_without_any_are_kept_in_memory(tmp_path):
    """A description of tables says that links have directions; a graph in memory keeps them, too."""
    path = tmp_path / "own.yaml"
    write_tables(tmp_path, "own")
    path.write_text(path.read_text() + "directed: true\n")
    run(load_config(overrides={"data.name": str(path), "partition.clients": 1, "method.rounds": 1}), out=tmp_path / "r")
    wanted = predict(tmp_path / "r", client=0).probabilities
    assert np.array_equal(predict(tmp_path / "r", client=0, graph=load(str(path))).probabilities, wanted)


def test_names_of_features_on_one_side(finished, tmp_path):
    folder, _, simulation = finished
    own = simulation.silos[0].seen.graph
    named = replace(own, feature_names=tuple(f"word{column}" for column in range(40)))
    assert predict(folder, client=0, graph=named).on.endswith(
        "knows no names of features, so that their order was not compared"
    )
    run(
        load_config(overrides={"data.name": write_tables(tmp_path, "own"), "partition.clients": 1}),
        out=tmp_path / "run",
    )
    graph = load(str(tmp_path / "own.yaml"))
    with pytest.raises(DataError, match=r"knows its 2 features by name \(a, ...\), and those of own have no names"):
        predict(tmp_path / "run", client=0, graph=replace(graph, feature_names=None))


def described(folder, name, *, directed="false", weight=""):
    """The ring's description, as one of other links."""
    path = write_tables(folder, name)
    edges = "".join(f"{name}-{row},{name}-{row - 1 if row else 29},{row + 1}\n" for row in range(30))
    (folder / f"{name}-edges.csv").write_text(f"s,t,w\n{edges}")
    file = folder / f"{name}.yaml"
    text = file.read_text().replace("target: t", f"target: t{', weight: w' if weight else ''}")
    file.write_text(text + f"directed: {directed}\n")
    return path


@pytest.mark.parametrize("weights", [True, False])
def test_links_with_weights_are_not_taken_for_links_without(tmp_path, weights):
    """The same ring without its weights got other classes, without a word."""
    trained, other = (described(tmp_path, name, weight=own) for name, own in (("own", weights), ("later", not weights)))
    run(load_config(overrides={"data.name": trained, "partition.clients": 1, "method.rounds": 1}), out=tmp_path / "run")
    words = "have no weights, and .* had some" if weights else "have weights, and .* had none"
    with pytest.raises(DataError, match=f"links of later {words}"):
        predict(tmp_path / "run", client=0, graph=other)
    assert len(predict(tmp_path / "run", client=0, graph=trained).classes) == 30


def test_a_table_without_directions_is_not_asked_of_a_model_with(tmp_path):
    trained, other = (described(tmp_path, name, directed=own) for name, own in (("own", "true"), ("later", "false")))
    run(load_config(overrides={"data.name": trained, "partition.clients": 1, "method.rounds": 1}), out=tmp_path / "run")
    with pytest.raises(DataError, match=r"later\.yaml says that links have no direction.*Set directed: true"):
        predict(tmp_path / "run", client=0, graph=other)


def test_silos_with_and_without_directions_do_not_mix(tmp_path):
    """Half of the links of one silo were trained one way only, without a word."""
    names = [described(tmp_path, name, directed=own) for name, own in (("north", "true"), ("south", "false"))]
    with pytest.raises(DataError, match=r"a direction at client 0 \(.*north.yaml\) and none at client 1 \(.*south"):
        run(load_config(overrides={"data.name": names, "method.rounds": 1}))
    assert run(load_config(overrides={"data.name": names, "method.rounds": 1, "data.undirected": True})).tree["seeds"]


def test_what_is_said_of_names_is_true(tmp_path):
    """Of tables with names it said that the model knows none; of two lists that begin alike it named the beginning."""
    own, wide = write_tables(tmp_path, "own"), write_tables(tmp_path, "wide", features=("a", "c"))
    run(load_config(overrides={"data.name": own, "partition.clients": 1, "method.rounds": 1}), out=tmp_path / "run")
    made = predict(tmp_path / "run", client=0, graph=own)
    assert made.on == "the given graph 'own'"
    with pytest.raises(ConfigError, match=r"node x is not on the given graph 'own', which holds 30 nodes"):
        made.places(["x"])
    with pytest.raises(DataError, match=r"feature 2 is 'b' at the model and 'c' at wide"):
        predict(tmp_path / "run", client=0, graph=wide)


def dated(folder, name, how):
    path = write_tables(folder, name, features=("a", "born"))
    nodes = folder / f"{name}-nodes.csv"
    rows = [line.split(",") for line in nodes.read_text().splitlines()]
    rows[1:] = [[node, a, f"19{50 + row}-03-01", y] for row, (node, a, _, y) in enumerate(rows[1:])]
    nodes.write_text("\n".join(map(",".join, rows)) + "\n")
    file = folder / f"{name}.yaml"
    file.write_text(file.read_text().replace("label: y", f"label: y, dates: {{born: {{{how}}}}}"))
    return path


def test_dates_that_count_otherwise_are_another_feature(tmp_path):
    """Years at one silo and days at the other were trained on as one column, without a word."""
    years, later, days = (
        dated(tmp_path, name, how)
        for name, how in (
            ("north", "years_at: 2024-12-31"), ("later", "years_at: 2026-12-31"), ("south", "days_since: 1900-01-01"),
        )
    )  # fmt: skip
    words = r"'born \(years\)' at .* and 'born \(days since 1900-01-01\)' at "
    with pytest.raises(DataError, match=words):
        run(load_config(overrides={"data.name": [years, days], "method.rounds": 1}))
    run(load_config(overrides={"data.name": years, "partition.clients": 1, "method.rounds": 1}), out=tmp_path / "run")
    with pytest.raises(DataError, match=words):
        predict(tmp_path / "run", client=0, graph=days)
    assert len(predict(tmp_path / "run", client=0, graph=later).classes) == 30


def test_it_says_whose_model_answers_where_the_table_scores_another(small, tmp_path):
    config = small(method__name="fedgta", evaluation__models=True, method__rounds=2, evaluation__model="common")
    run(config, out=tmp_path / "run")
    made = predict(tmp_path / "run", client=1, checkpoint="last", model="own")
    assert made.by == ("client 1's own model of the last round, not the common model, whose score the run reports")
    with pytest.raises(ConfigError, match="neither own nor common"):
        predict(tmp_path / "run", client=1, model="best")


@pytest.mark.parametrize(
    "method",
    ["fedgta", "fed_pub", *(pytest.param(name, marks=pytest.mark.slow) for name in ("fedavg", "fedridge", "fedstar"))],
)
@pytest.mark.parametrize("settings", [{"evaluation__model": each} for each in ("run", "silo", "own", "common")]
                         + [{"run__alone": True}])  # fmt: skip
def test_the_model_that_a_run_reports_is_the_one_that_predicts(small, tmp_path, method, settings):
    rounds = {} if method == "fedridge" else {"method__rounds": 3, "method__lr": 0.05}
    backbone = {"model__name": "gin_fedstar"} if method == "fedstar" else {}
    config = small(method__name=method, evaluation__models=True, **rounds, **backbone, **settings)
    seed = only(run(config, out=tmp_path / "run"))
    for silo in prepare(config).silos:
        made = predict(tmp_path / "run", client=silo.client)
        row = seed["clients"][silo.client]
        assert score(made, silo) == pytest.approx(row["test"]["accuracy"], abs=1e-12)


@pytest.mark.parametrize(
    "where", [{}, {"run__resident_clients": 1}, pytest.param({"run__workers": 2}, marks=pytest.mark.slow)]
)
def test_either_model_of_a_silo_alone_is_of_its_own_best_round(small, tmp_path, where):
    """The common model was kept of the round of the client's own, which has another best one."""
    differ = []
    for view in ("own", "common"):
        config = small(
            method__name="fairfgl", method__rounds=6, method__lr=0.3, evaluation__models=True, evaluation__model=view,
            run__alone=True, **where,
        )  # fmt: skip
        seed = only(run(config, out=tmp_path / view))
        for silo in prepare(config).silos:
            made = predict(tmp_path / view, client=silo.client, model=view)
            row = seed["clients"][silo.client]
            differ.append(row["best_round"])
            assert score(made, silo) == pytest.approx(row["test"]["accuracy"], abs=1e-12)
    half = len(differ) // 2
    assert differ[:half] != differ[half:]


def test_a_silo_that_never_saw_a_class_says_so_of_its_own_model(tmp_path):
    """The second silo has nothing of class 2."""
    labels = np.array([0, 1, 2] * 12 + [0, 1] * 12)
    features = np.eye(3, dtype=np.float32)[labels]
    graph = graphsilo.Graph(features, np.array([np.arange(59), np.arange(1, 60)]), labels, 3)
    cut = np.repeat([0, 1], [36, 24])
    graphsilo.run(data=graph, partition=cut, method="fedridge", out=tmp_path / "run", report=False)
    with warnings.catch_warnings(record=True) as heard:
        for client, model in ((1, "own"), (1, "common"), (0, "own")):
            predict(tmp_path / "run", client=client, model=model)
    (said,) = [str(each.message) for each in heard]
    assert said.startswith("client 1 trained on no node of class 2, ")
    assert "common model may" in said
    assert "trained on no node of class 2" in model_card(open_member(tmp_path / "run", client=1, model="own"))


def test_how_far_other_items_move_an_mae_is_the_deviation_of_errors(tmp_path):
    graph = graphsilo.load("citation-sbm", nodes=160, classes=3, features=24)
    graph = graphsilo.data.with_targets(graph, graph.labels * 10.0, ["age"])
    found = graphsilo.run(
        data=graph, partition="random", clients=2, method="fedridge", out=tmp_path / "run", report=False
    )
    for row in found.record.seeds[0].clients:
        made = predict(tmp_path / "run", client=row.client)
        off = np.abs(made.values - made.truth)[made.splits == "test", 0]
        assert row.errors == {"mae": pytest.approx(off.std() / np.sqrt(len(off)), rel=1e-4)}
