"""A run without some clients is, bit for bit, that of a federation that never had them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import graphsilo
from graphsilo.data.silos.scenarios import build_silos
from graphsilo.data.sources.files import save_graph
from graphsilo.errors import ConfigError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry
from kit import check_result
from kit.broad import broadly
from kit.stopped import Stop, StopAfter

SMALL = {"name": "citation-sbm", "nodes": 160, "classes": 3, "features": 24}
BASE: dict[str, Any] = {
    "data": SMALL, "partition": {"rule": "random", "clients": 4}, "model": {"hidden": 8, "dropout": 0.0},
    "method": {"name": "fedavg", "rounds": 2},
}  # fmt: skip
RIDGE = {**BASE, "model": {}, "method": {"name": "fedridge"}}


def own(config: dict[str, Any], files: list[str]) -> dict[str, Any]:
    """The same with a file for each client."""
    return {**config, "data": {"name": files}, "partition": {}}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the clients of ``BASE`` hold, as files of their own with the splits of the cut."""
    folder = tmp_path_factory.mktemp("silos")
    graph = graphsilo.load(SMALL["name"], **{key: value for key, value in SMALL.items() if key != "name"})
    cut = graphsilo.partition(graph, "random", clients=4)
    found = []
    for silo in build_silos(graph, cut):
        masks = {}
        for kind in ("train", "val", "test"):
            masks[kind] = np.zeros(silo.graph.num_nodes, dtype=bool)
            masks[kind][silo.seen.items[kind]] = True
        own = graphsilo.data.Graph(
            silo.graph.features, silo.graph.edges, silo.graph.labels, silo.graph.num_classes, splits=masks
        )
        found.append(str(save_graph(folder / f"silo{silo.client}.npz", own)))
    return found


def models(folder: Path, clients: list[int]) -> list[bytes]:
    """The aggregate and the clients' models, in the clients' order."""
    names = ["seed0-aggregate-last", *(f"seed0-client{client}-best" for client in clients)]
    return [(folder / "models" / f"{name}.safetensors").read_bytes() for name in names]


def numbers(tree: Any) -> Any:
    """Scores of a run and of its clients, without who they are."""
    (seed,) = tree["seeds"]
    return [seed["test"], seed["validation"], [row["test"] for row in seed["clients"]]]


def unnamed(tree: Any) -> Any:
    scores = json.loads(json.dumps(numbers(tree)))
    scores[0]["worst_client"].pop("client")
    scores[1]["worst_client"].pop("client")
    return scores


# -- the same bits as of a federation that never had them -----------------------------------------------------------


@pytest.mark.parametrize("wire", ["float32", "float64"])
@pytest.mark.parametrize("gone", [0, 2])
def test_fedridge_without_a_silo_is_that_of_the_others_alone(
    gone: int, wire: str, files: list[str], tmp_path: Path
) -> None:
    """Of the cut, of all files without one, and of the other files only, whose clients have other numbers then."""
    others = [client for client in range(4) if client != gone]
    settings = {"method.wire": wire, "method.balance": [0.0, 0.5], "method.random_features": 5}
    made = {
        "cut": (graphsilo.run(RIDGE, without=gone, out=tmp_path / "cut", report=False, **settings), others),
        "files": (
            graphsilo.run(own(RIDGE, files), without=[gone], out=tmp_path / "files", report=False,
                          **settings), others,
        ),
        "others": (
            graphsilo.run(own(RIDGE, [files[client] for client in others]), out=tmp_path / "others",
                          report=False, **settings), [0, 1, 2],
        ),
    }  # fmt: skip
    wanted = models(tmp_path / "others", [0, 1, 2])
    for name, (result, clients) in made.items():
        assert models(tmp_path / name, clients) == wanted, name
        assert unnamed(result.tree) == unnamed(made["others"][0].tree), name
        assert [row["client"] for row in result.tree["seeds"][0]["clients"]] == clients


def test_fedtrees_without_a_silo_is_that_of_the_others_alone(files: list[str], tmp_path: Path) -> None:
    trees = {**BASE, "model": {}, "method": {"name": "fedtrees", "rounds": 3, "min_child": 2}}
    graphsilo.run(trees, without=1, out=tmp_path / "cut", report=False)
    graphsilo.run(own(trees, [files[0], files[2], files[3]]), out=tmp_path / "others", report=False)
    assert models(tmp_path / "cut", [0, 2, 3]) == models(tmp_path / "others", [0, 1, 2])


def test_fedavg_without_a_silo_is_that_of_the_others_alone(files: list[str], tmp_path: Path) -> None:
    graphsilo.run(BASE, without=1, out=tmp_path / "cut", report=False)
    graphsilo.run(own(BASE, [files[0], files[2], files[3]]), out=tmp_path / "others", report=False)
    assert models(tmp_path / "cut", [0, 2, 3]) == models(tmp_path / "others", [0, 1, 2])


@pytest.mark.parametrize("name", broadly(registry.names()))
def test_every_method_can_do_without_its_first_client(name: str) -> None:
    method = registry.load(name)
    settings = {"method": {"name": name, **method.quick, "rounds": 1}, **({} if method.backbone else {"model": {}})}
    result = graphsilo.run({**BASE, "model": {} if method.model else BASE["model"], **settings}, without=[0, 2])
    assert [row["client"] for row in result.tree["seeds"][0]["clients"]] == [1, 3]
    assert all(row["test"]["accuracy"] is not None for row in result.tree["seeds"][0]["clients"])
    assert result.tree["seeds"][0]["test"]["worst_client"]["client"] in (1, 3)


@pytest.mark.slow
def test_workers_and_resume_give_the_same(tmp_path: Path) -> None:
    plain = graphsilo.run(BASE, without=1, out=tmp_path / "plain", report=False)
    spread = graphsilo.run(BASE, without=1, workers=2, out=tmp_path / "spread", report=False)
    check_result(tmp_path / "spread")
    assert models(tmp_path / "plain", [0, 2, 3]) == models(tmp_path / "spread", [0, 2, 3])
    assert numbers(plain.tree) == numbers(spread.tree)

    class Counted(StopAfter):
        def on_start(self, run: Any) -> None:
            assert run.clients == 3

    with pytest.raises(Stop):
        graphsilo.run(
            BASE, without=1, out=tmp_path / "on", progress=Counted(0, 1), report=False, **{"run.checkpoint_every": 1}
        )
    again = graphsilo.run(tmp_path / "on" / "config.yaml", out=tmp_path / "on", resume=True, report=False)
    assert numbers(again.tree) == numbers(plain.tree)
    assert models(tmp_path / "on", [0, 2, 3]) == models(tmp_path / "plain", [0, 2, 3])


def test_a_silo_that_joins_again_is_as_if_it_had_always_been_there(tmp_path: Path) -> None:
    graphsilo.run(RIDGE, without=1, out=tmp_path / "less", report=False)
    joined = graphsilo.run(tmp_path / "less" / "config.yaml", without=[], out=tmp_path / "joined", report=False)
    graphsilo.run(RIDGE, out=tmp_path / "all", report=False)
    assert models(tmp_path / "joined", [0, 1, 2, 3]) == models(tmp_path / "all", [0, 1, 2, 3])
    assert joined.tree["replaces"] == json.loads((tmp_path / "less" / "result.json").read_text())["fingerprint"]


def test_pooled_data_is_that_of_the_others() -> None:
    tree = graphsilo.run(
        BASE, without=[1], references=["global", "global_cut", "majority"], **{"method.rounds": 1}
    ).tree
    assert set(tree["references"]) == {"global", "global_cut", "majority"}
    whole = prepare(load_config(overrides={**flat(BASE), "run.without": [1], "method.name": "global"}),
                    registry.load("global"))  # fmt: skip
    alone = prepare(load_config(overrides={**flat(BASE), "run.without": [1]}))
    assert whole.silos[0].num_items == sum(silo.num_items for silo in alone.silos)
    assert whole.holders == alone.holders == (0, 2, 3)
    assert whole.silos[0].parts == 3


def flat(tree: Any) -> dict[str, Any]:
    return {f"{section}.{key}": value for section, inner in tree.items() for key, value in inner.items()}


# -- what stays, and what goes ---------------------------------------------------------------------------------------


def prepared(**overrides: Any) -> Any:
    return prepare(load_config(overrides={**flat(BASE), **{k.replace("__", "."): v for k, v in overrides.items()}}))


@pytest.mark.parametrize("scenario", ["seen", "unseen", "open", "inductive"])
def test_the_cut_stays_and_the_others_keep_all_they_have(scenario: str) -> None:
    whole, less = prepared(scenario__name=scenario), prepared(scenario__name=scenario, run__without=[2])
    assert less.partition.content_hash == whole.partition.content_hash
    assert less.data_hash == whole.data_hash
    assert less.clients == (0, 1, 3)
    assert less.num_holders == 4
    gone = set(whole.partition.nodes[2].tolist())
    for silo in less.silos:
        other = whole.silos[silo.client]
        assert np.array_equal(silo.train, other.train)
        assert np.array_equal(silo.graph.edges, other.graph.edges)
        for question in silo.evaluations:  # a grown graph does not reach through nodes that are not there
            assert not gone & set(question.graph.global_ids.tolist())


def test_global_evaluation_asks_about_nobody_who_left() -> None:
    less = prepared(run__without=[2], evaluation__modes=["own_local", "own_global"])
    whole = prepared()
    question = next(part for part in less.silos[0].evaluations if part.name == "global")
    gone = whole.partition.nodes[2]
    asked = np.concatenate([question.items["val"], question.items["test"]])
    assert not np.isin(asked, gone).any()
    assert not np.isin(question.graph.edges, gone).any()


def test_links() -> None:
    result = graphsilo.run({**BASE, "task": "link"}, without=1, **{"method.rounds": 1})
    assert [row["client"] for row in result.tree["seeds"][0]["clients"]] == [0, 2, 3]
    whole, less = prepared(task="link"), prepared(task="link", run__without=[1])
    assert np.array_equal(whole.silos[3].links.test_negative, less.silos[2].links.test_negative)


@pytest.mark.parametrize("apart", [False, True], ids=["one collection cut", "a file for each"])
def test_graphs(apart: bool, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    files = []
    for place in range(3 if apart else 1):
        count = 40 if apart else 120
        features = draw.standard_normal((3 * count, 4)).astype(np.float32)
        path = np.arange(3 * count).reshape(count, 3)
        edges = np.concatenate([path[:, :2].T, path[:, 1::-1].T], axis=1)
        union = graphsilo.data.Graph(features, edges, np.full(3 * count, -1), 2)
        labels = (features.reshape(count, -1).sum(1) > 0).astype(np.int64)
        whole = graphsilo.data.GraphCollection(union, np.arange(0, 3 * count + 1, 3), labels, 2)
        files.append(str(save_graph(tmp_path / f"graphs{place}.npz", whole)))
    settings: dict[str, Any] = {"data": {"name": files}} if apart else {
        "data": {"name": files[0]}, "partition": {"rule": "dirichlet", "clients": 3},
    }  # fmt: skip
    result = graphsilo.run({**settings, "method": {"name": "fedridge"}}, without=[1])
    assert [row["client"] for row in result.tree["seeds"][0]["clients"]] == [0, 2]
    alone = graphsilo.run({**settings, "method": {"name": "fedavg", "rounds": 1}}, without=[0, 2])
    assert [row["client"] for row in alone.tree["seeds"][0]["clients"]] == [1]


def test_what_a_file_holds_is_not_read_where_it_is_left_out(files: list[str], tmp_path: Path) -> None:
    lost = str(tmp_path / "lost.npz")
    result = graphsilo.run(own(RIDGE, [files[0], lost, files[2]]), without=["lost"])
    assert [row["client"] for row in result.tree["seeds"][0]["clients"]] == [0, 2]


@pytest.mark.parametrize("kind", ["nodes", "graphs"])
def test_columns_and_classes_of_who_is_left_out_are_not_compared(kind: str, tmp_path: Path) -> None:
    """Where one draw is over the items of all, the others' splits are those of a cut in which it fits."""

    def silo(name: str, width: int, classes: int) -> str:
        features = np.random.default_rng(0).standard_normal((24, width)).astype(np.float32) + len(name)
        labels, words = np.arange(24) % 2, tuple(f"x{place}" for place in range(width))
        graph = graphsilo.data.Graph(
            features, np.zeros((2, 0), np.int64), labels, classes, feature_names=words, name=name
        )
        whole = graphsilo.data.GraphCollection(graph, np.arange(25), labels, classes, name)
        return str(save_graph(tmp_path / f"{name}.npz", graph if kind == "nodes" else whole))

    others = [silo("aa", 3, 2), silo("bbb", 3, 2)]

    def prepared_with(left_out: str) -> Any:
        split = {"partition.split": "global"} if kind == "nodes" else {}
        return prepare(load_config(overrides={"data.name": [left_out, *others], "run.without": [0], **split}))

    fits, odd = prepared_with(silo("like", 3, 2)), prepared_with(silo("unlike", 7, 5))
    assert odd.partition.content_hash == fits.partition.content_hash
    assert (odd.schema.num_features, odd.schema.num_classes) == (3, 2)
    assert odd.clients == (1, 2)
    assert odd.data["name"].split("+")[0] == "aa"
    assert odd.data_hash == fits.data_hash


# -- what is said ----------------------------------------------------------------------------------------------------


def test_the_result_says_who_was_left_out_and_what_it_replaces(tmp_path: Path) -> None:
    first = graphsilo.run(RIDGE, out=tmp_path / "first", report=False)
    second = graphsilo.run(tmp_path / "first" / "config.yaml", without=3, out=tmp_path / "second")
    assert first.tree["replaces"] is None
    assert first.tree["partition"]["without"] == []
    assert second.tree["replaces"] == first.tree["fingerprint"] != second.tree["fingerprint"]
    assert second.tree["partition"]["without"] == [{"client": 3}]
    assert second.tree["partition"]["clients"] == 4
    assert second.tree["warnings"][0] == (
        "client 3 is left out (run.without): this run is that of the other 3 of 4, as if nobody else had been there; "
        f"it replaces run {first.tree['fingerprint'][:12]}."
    )
    page = (tmp_path / "second" / "report.html").read_text()
    assert "without client 3" in page
    assert first.tree["fingerprint"] in page
    # going on with it, or drawing it again, changes nothing of that; another method is another run
    assert load_config(tmp_path / "second" / "config.yaml").replaces == first.tree["fingerprint"]
    same = load_config(tmp_path / "second" / "config.yaml", overrides={"run.workers": 2, "run.without": [3]})
    assert same.replaces == first.tree["fingerprint"]
    other = load_config(tmp_path / "second" / "config.yaml", overrides={"method.dim": 8})
    assert other.replaces == ""
    assert other.run.without == [3]
    back = load_config(tmp_path / "second" / "config.yaml", overrides={"run.without": []})
    assert back.replaces == second.tree["fingerprint"]


def test_terminal_and_prediction(tmp_path: Path) -> None:
    from graphsilo.cli.app import app

    flags = ["--data", "citation-sbm", "--set", "data.nodes=120", "--partition", "random", "--clients", "3",
             "--method", "fedridge", "--without", "1", "--out", str(tmp_path / "run"), "--no-report"]  # fmt: skip
    done = CliRunner().invoke(app, ["run", *flags])
    assert done.exit_code == 0, done.output
    assert "without client 1" in done.output
    assert graphsilo.predict(tmp_path / "run", 2).classes.shape == (40,)
    with pytest.raises(ConfigError, match=r"client 1 was left out of the run in .* Ask for one of 0, 2\."):
        graphsilo.predict(tmp_path / "run", 1)


def test_a_comparison_is_over_the_clients_that_all_runs_have(tmp_path: Path) -> None:
    whole = graphsilo.run(RIDGE, out=tmp_path / "whole", report=False)
    graphsilo.run(tmp_path / "whole" / "config.yaml", without=[0, 3], out=tmp_path / "less", report=False)
    table = graphsilo.compare(tmp_path / "whole", tmp_path / "less")
    rows = [row for row in whole.tree["seeds"][0]["clients"] if row["client"] in (1, 2)]
    expected = sum(row["nodes"] * row["test"]["accuracy"] for row in rows) / sum(row["nodes"] for row in rows)
    assert table.rows[0].scores["accuracy"].mean == pytest.approx(expected)
    assert table.warnings == ()
    assert table.notes[0].startswith("Who takes part differs (FedRidge (")
    assert table.notes[0].endswith("scores are node-weighted means over the 2 clients that all runs have.")


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("without", "words"),
    [
        ([4], r"names client 4, and there are 4, numbered 0 to 3\. Name one"),
        ([-1], r"names client -1, and there are 4"),
        (["er"], r"names 'er', and the clients of this run have numbers only: there are 4, numbered 0 to 3"),
        ([0, 1, 2, 3], r"leaves out all 4 clients: nobody would take part"),
        (1.5, r"run\.without should list clients by number or name, such as \[3\] or \[er, icu\]; got 1\.5"),
        ([True], r"run\.without should list clients by number or name"),
        ({"a": 1}, r"run\.without should list clients|'run\.without' is a value"),
    ],
)  # fmt: skip
def test_bad_lists_are_refused(without: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        graphsilo.run(RIDGE, **{"run.without": without})


def test_too_few_for_min_clients_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"only 2 of 2 clients are asked per round \(run\.without leaves out 2 of 4\)"
    ):
        graphsilo.run(RIDGE, without=[0, 1], **{"method.min_clients": 3})
