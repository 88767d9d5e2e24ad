"""The runner: rounds, selection, results, refusals."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import yaml

from graphsilo.data.sources import catalog
from graphsilo.data.sources.files import save_graph
from graphsilo.errors import ConfigError, FederationError, GraphsiloError, RunError, UnsupportedError
from graphsilo.evaluate.significance import gap_closed
from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.experiments.evaluation import scored_clients
from graphsilo.experiments.observer import Silent
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry
from graphsilo.federation.registry import Method
from graphsilo.methods import fedavg
from graphsilo.testing import conformance

MODES = ["own_local", "own_global", "aggregate_local", "aggregate_global"]


class Listener(Silent):
    """Notes everything."""

    def __init__(self):
        self.heard, self.first = [], None

    def started(self, description):
        self.first = description

    def progressed(self, progress):
        self.heard.append(progress)


def only(result):
    (seed,) = result.tree["seeds"]
    return seed


def test_result_on_disk(small, tmp_path):
    result = run(small(evaluation__models=True), out=tmp_path / "run")
    tree = json.loads((tmp_path / "run" / "result.json").read_text())
    assert tree == json.loads(json.dumps(result.tree))
    assert tree["format"] == 1
    assert tree["graphsilo"]
    assert tree["config"] == load_config(tmp_path / "run" / "config.yaml").complete()
    assert len(tree["fingerprint"]) == 64
    seed = tree["seeds"][0]
    assert {
        "seed", "best_round", "validation", "test", "scenarios", "rounds", "clients", "setup", "cpu_seconds",
        "wall_seconds", "peak_rss_bytes",
    } <= set(seed)  # fmt: skip
    assert {"accuracy", "macro_f1", "min_f1", "hete_f1", "hete_min_f1", "pooled", "worst_client"} <= set(seed["test"])
    assert [row["round"] for row in seed["rounds"]] == [1, 2, 3]
    assert {
        "round", "validation", "test", "upload_bytes", "download_bytes", "cpu_seconds", "wall_seconds"
    } <= set(seed["rounds"][0])  # fmt: skip
    assert {"client", "nodes", "train", "test"} <= set(seed["clients"][0])
    assert [client["client"] for client in seed["clients"]] == [0, 1, 2]
    assert sum(client["nodes"] for client in seed["clients"]) == 150
    assert seed["setup"]["upload_bytes"] == seed["setup"]["download_bytes"] == 0
    assert set(tree["summary"]["test"]["accuracy"]) >= {"mean", "std"}
    assert 0 <= seed["test"]["accuracy"] <= 1
    assert seed["peak_rss_bytes"] > 2**20
    for name in ("config.yaml", "rounds.parquet", "ledger.parquet", "partition.npz", "checkpoints/seed-0.ckpt"):
        assert (tmp_path / "run" / name).exists()
    models = sorted(path.name for path in (tmp_path / "run" / "models").iterdir())
    assert models == sorted(
        [f"seed0-client{k}-{when}.safetensors" for k in range(3) for when in ("best", "last")]
        + [f"seed0-aggregate-{when}.safetensors" for when in ("best", "last")]
    )
    assert not [path for path in (tmp_path / "run").rglob(".*") if path.name != ".lock"]


def test_bytes_add_up(small, tmp_path):
    import pyarrow.parquet as pq

    tree = run(small(run__seeds=[0, 1]), out=tmp_path / "run").tree
    table = pq.read_table(tmp_path / "run" / "ledger.parquet").to_pylist()
    for seed in tree["seeds"]:
        for row in seed["rounds"]:
            for direction, key in (("up", "upload_bytes"), ("down", "download_bytes")):
                noted = sum(
                    entry["bytes"]
                    for entry in table
                    if entry["seed"] == seed["seed"]
                    and (entry["phase"], entry["round"], entry["direction"]) == ("round", row["round"], direction)
                )
                assert noted == row[key] > 0
    total = sum(row["upload_bytes"] for row in tree["seeds"][0]["rounds"])
    assert tree["summary"]["upload_bytes"] == total
    assert {entry["kind"] for entry in table if entry["direction"] == "up"} == {"model", "counts", "control", "score"}


def test_rounds_table(small, tmp_path):
    import pyarrow.parquet as pq

    tree = run(small(evaluation__every=2), out=tmp_path / "run").tree
    table = pq.read_table(tmp_path / "run" / "rounds.parquet").to_pydict()
    assert table["round"] == [1, 2, 3]
    expected = [row.get("test", {}).get("accuracy") for row in tree["seeds"][0]["rounds"]]
    assert table["test.accuracy"] == expected
    assert expected[0] is None


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1", "auc"])
def test_the_best_round_is_the_first_best_by_validation(small, metric):
    seed = only(run(small(method__rounds=12, evaluation__select_by=metric, method__lr=0.05)))
    scores = [row["validation"][metric] for row in seed["rounds"]]
    assert len(set(scores)) > 2
    best = int(np.argmax(scores)) + 1
    assert seed["best_round"] == best
    assert seed["test"]["accuracy"] == pytest.approx(seed["rounds"][best - 1]["test"]["accuracy"], abs=1e-12)
    assert seed["validation"][metric] == pytest.approx(max(scores), abs=1e-12)
    assert seed["test_last"]["accuracy"] == pytest.approx(seed["rounds"][-1]["test"]["accuracy"], abs=1e-12)


def shuffled(simulation, kind):
    """Labels of the items of one kind dealt out anew, in graphs that training does not read labels of."""
    silos = []
    for silo in simulation.silos:
        labels = silo.graph.labels.copy()
        items = silo.seen.items[kind]
        labels[items] = labels[np.roll(items, 1)]
        graph = replace(silo.graph, labels=labels)
        silos.append(
            replace(silo, graph=graph, evaluations=tuple(replace(one, graph=graph) for one in silo.evaluations))
        )
    return replace(simulation, silos=tuple(silos))


def test_test_labels_influence_nothing_but_test_scores(small):
    config = small(method__rounds=8, method__lr=0.05, run__early_stopping=3)
    simulation = prepare(config)
    first = only(run(config, simulation=simulation))
    second = only(run(config, simulation=shuffled(simulation, "test")))
    assert [row["test"]["accuracy"] for row in first["rounds"]] != [row["test"]["accuracy"] for row in second["rounds"]]
    assert first["best_round"] == second["best_round"]
    assert first["validation"]["accuracy"] == second["validation"]["accuracy"]
    assert [row["validation"]["accuracy"] for row in first["rounds"]] == [
        row["validation"]["accuracy"] for row in second["rounds"]
    ]


def test_without_validation_the_last_round_is_reported(small):
    seed = only(run(small(partition__ratios=[0.5, 0.0, 0.5], run__early_stopping=1)))
    assert seed["best_round"] == 3
    assert seed["test"]["accuracy"] == seed["test_last"]["accuracy"]
    assert seed["validation"]["accuracy"] is None


def test_without_test_items(small):
    result = run(small(partition__ratios=[0.5, 0.5, 0.0]))
    assert only(result)["test"]["accuracy"] is None
    assert result.accuracy() is None


def test_early_stopping(small):
    whole = only(run(small(method__rounds=30, method__lr=0.05)))
    stopped = only(run(small(method__rounds=30, method__lr=0.05, run__early_stopping=2)))
    scores = [row["validation"]["accuracy"] for row in whole["rounds"]]
    best, since, last = -1.0, 0, 30
    for number, score in enumerate(scores, start=1):
        best, since = (score, 0) if score > best else (best, since + 1)
        if since == 2:
            last = number
            break
    assert last < 30
    assert stopped["last_round"] == len(stopped["rounds"]) == last
    assert [row["validation"]["accuracy"] for row in stopped["rounds"]] == scores[:last]


def test_early_stopping_counts_evaluations(small):
    seed = only(run(small(method__rounds=40, method__lr=1e-9, evaluation__every=3, run__early_stopping=2)))
    assert seed["last_round"] == 9  # rounds 3, 6 and 9 are the same


def test_evaluation_every_few_rounds_and_after_the_last(small):
    seed = only(run(small(method__rounds=7, evaluation__every=3)))
    assert ["validation" in row for row in seed["rounds"]] == [False, False, True, False, False, True, True]
    every = only(run(small(method__rounds=7)))
    for number in (3, 6, 7):
        assert seed["rounds"][number - 1]["test"] == every["rounds"][number - 1]["test"]
    assert all("upload_bytes" in row for row in seed["rounds"])


def test_a_share_of_the_clients_is_scored_and_all_train(small):
    """Two of six: the same ones in every round, with the scores that they have when all are scored."""
    some = only(run(small(partition__clients=6, evaluation__share=0.4)))
    every = only(run(small(partition__clients=6)))
    scored = [row["client"] for row in some["clients"] if row["test"]]
    assert len(scored) == 2
    assert len([row for row in every["clients"] if row["test"]]) == 6
    assert [row["participants"] for row in some["rounds"]] == [6, 6, 6]
    assert some["modes"]["aggregate_local"]["test"]["accuracy"] is not None
    config = small(evaluation__share=0.4).evaluation
    assert list(scored_clients(config, range(6), 0)) == scored
    assert scored_clients(config, range(1000), 7) == scored_clients(config, range(1000), 7)
    assert len(scored_clients(config, range(1000), 7)) == 400
    assert scored_clients(small().evaluation, range(6), 0) is None
    assert scored_clients(small(evaluation__share=0.001).evaluation, range(6), 0) is not None


def test_observers_hear_every_round(small):
    listener = Listener()
    result = run(small(run__seeds=[5, 6]), observer=listener)
    assert [(one.seed, one.index, one.round) for one in listener.heard] == [
        (5, 1, 1), (5, 1, 2), (5, 1, 3), (6, 2, 1), (6, 2, 2), (6, 2, 3),
    ]  # fmt: skip
    last = listener.heard[2]
    first_seed = result.tree["seeds"][0]
    assert last.upload_bytes == sum(row["upload_bytes"] for row in first_seed["rounds"])
    assert last.best == (pytest.approx(first_seed["validation"]["accuracy"]), first_seed["best_round"])
    assert listener.first["clients"] == 3


def test_seeds_are_independent_of_each_other(small):
    both = run(small(run__seeds=[0, 1])).tree
    second = run(small(run__seeds=[1])).tree
    assert conformance.numbers({"seeds": both["seeds"][1:]}) == conformance.numbers({"seeds": second["seeds"]})
    scores = [seed["test"]["accuracy"] for seed in both["seeds"]]
    assert scores[0] != scores[1]
    assert both["summary"]["test"]["accuracy"]["mean"] == pytest.approx(np.mean(scores))
    assert both["summary"]["test"]["accuracy"]["std"] == pytest.approx(np.std(scores, ddof=1))


# -- evaluation modes ------------------------------------------------------------------------------------------------


def test_one_client_makes_all_modes_one(small):
    seed = only(run(small(partition__clients=1, evaluation__modes=MODES)))
    for row in seed["rounds"]:
        for mode in MODES[1:]:
            assert row["modes"][mode] == {"validation": row["validation"], "test": row["test"]}
    scores = [seed["modes"][mode]["test"]["accuracy"] for mode in MODES]
    assert len(set(scores)) == 1


def test_modes_ask_different_questions(small):
    config = small(evaluation__modes=MODES, method__lr=0.05, partition__rule="metis")
    seed = only(run(config))
    plain = only(run(small(method__lr=0.05, partition__rule="metis")))
    assert seed["test"] == plain["test"]
    nodes = sum(client["test_items"] for client in seed["clients"])
    items = {mode: seed["modes"][mode]["test"]["items"] for mode in MODES}
    # Every client's model answers for all nodes; the aggregate is scored once.
    assert items == {"own_local": nodes, "aggregate_local": nodes, "own_global": 3 * nodes, "aggregate_global": nodes}
    aggregate = seed["modes"]["aggregate_global"]["test"]
    assert aggregate["worst_client"]["client"] is None
    assert aggregate["accuracy"] == pytest.approx(aggregate["pooled"]["accuracy"])
    assert len({seed["modes"][mode]["test"]["accuracy"] for mode in MODES}) > 2


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_can_be_the_first(small, mode):
    seed = only(run(small(evaluation__modes=[mode])))
    assert 0 <= seed["test"]["accuracy"] <= 1
    scored = [bool(client["test"]) for client in seed["clients"]]
    assert scored == [mode != "aggregate_global"] * 3


def test_own_global_is_weighted_by_own_nodes(small):
    """By hand from each client's own score on the whole graph."""
    config = small(evaluation__modes=["own_global"], partition__rule="louvain", method__rounds=1)
    seed = only(run(config))
    sizes = [client["nodes"] for client in seed["clients"]]
    scores = [client["test"]["accuracy"] for client in seed["clients"]]
    assert len(set(sizes)) > 1
    assert seed["test"]["accuracy"] == pytest.approx(np.average(scores, weights=sizes))


def test_clients_that_were_not_asked_are_scored_all_the_same(small):
    """One of three trains per round; the mean runs over all three, weighted by all their nodes."""
    seed = only(run(small(method__participation=0.34, method__rounds=1, partition__rule="louvain")))
    assert seed["rounds"][0]["participants"] == 1
    sizes = [client["nodes"] for client in seed["clients"]]
    scores = [client["test"]["accuracy"] for client in seed["clients"]]
    assert len(scores) == 3
    assert seed["test"]["accuracy"] == pytest.approx(np.average(scores, weights=sizes))


def test_the_global_reference_on_the_global_graph(small):
    seed = only(run(small(method__name="global", evaluation__modes=["own_global", "own_local"])))
    assert seed["modes"]["own_local"]["test"]["items"] == seed["test"]["items"]


def test_views_that_a_method_lacks(small):
    with pytest.raises(UnsupportedError, match="needs the view 'aggregate'; Local only has only own"):
        run(small(method__name="local", evaluation__modes=["aggregate_local"]))


def test_aucs_do_not_change_the_rest(small):
    plain, more = only(run(small())), only(run(small(evaluation__auc=True)))
    assert 0 <= more["test"].pop("auc") <= 1
    assert more["test"] == plain["test"]
    assert all(0 <= row["validation"]["auc"] <= 1 for row in more["rounds"])


# -- references ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        ({"task": "link", "run__references": ["fedridge"]}, "FedRidge does not do task 'link'"),
        (
            {"method__name": "fedridge", "model__hidden": None, "run__precision": "bfloat16"},
            "FedRidge has no backbone whose products could be made in bfloat16",
        ),
    ],
)
def test_what_a_reference_cannot_do_is_said_before_the_run(small, tmp_path, overrides, complaint):
    config = small(**{**overrides, "partition__rule": "louvain"})
    listener = Listener()
    with pytest.raises(UnsupportedError, match=complaint):
        run(config, out=tmp_path / "run", observer=listener)
    assert listener.first is None
    assert not (tmp_path / "run" / "result.json").exists()


def test_references(small, tmp_path):
    config = small(run__references=["global_cut", "local", "global"], run__seeds=[0, 1], method__participation=0.5)
    tree = run(config, out=tmp_path / "run").tree
    rows = tree["references"]
    assert set(rows) == {"local", "global", "global_cut", "gap_closed"}
    alone = run(small(method__name="local", run__seeds=[0, 1])).tree
    assert rows["local"] == alone["summary"]["test"]
    cut = run(small(method__name="global", method__cross_edges=False, run__seeds=[0, 1])).tree
    assert rows["global_cut"] == cut["summary"]["test"]
    means = [part["accuracy"]["mean"] for part in (tree["summary"]["test"], rows["local"], rows["global"])]
    assert rows["gap_closed"]["accuracy"] == gap_closed(*means)
    assert (tmp_path / "run" / "references" / "global_cut" / "result.json").exists()
    again = run(config, out=tmp_path / "run", resume=True).tree
    assert conformance.numbers(again) == conformance.numbers(tree)


def test_fedavg_of_one_client_is_global(small):
    """The same schedule and the same numbers."""
    federated = only(run(small(partition__clients=1)))
    central = only(run(small(partition__clients=1, method__name="global")))
    assert [row["test"] for row in federated["rounds"]] == [row["test"] for row in central["rounds"]]


def test_references_have_scenario_scores(small):
    tree = run(small(run__references=["local", "global"], scenario__name="unseen")).tree
    scenarios = tree["summary"]["scenarios"]
    assert scenarios
    for name in ("local", "global"):
        assert set(tree["references"][name]["scenarios"]) == set(scenarios)
    assert set(tree["references"]["gap_closed"]) <= set(tree["summary"]["test"])


def test_no_gap_without_both_ends(small):
    assert "gap_closed" not in run(small(run__references=["local"])).tree["references"]


# -- folders ---------------------------------------------------------------------------------------------------------


def test_a_used_folder_is_refused(small, tmp_path):
    run(small(), out=tmp_path / "run")
    before = (tmp_path / "run" / "result.json").read_bytes()
    with pytest.raises(RunError, match=r"already holds a run\. Continue it with --resume"):
        run(small(), out=tmp_path / "run")
    assert (tmp_path / "run" / "result.json").read_bytes() == before
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(RunError, match="already holds a run"):
        run(small(), out=tmp_path / "run")


def test_a_held_folder_is_refused(small, tmp_path):
    class Intruder(Silent):
        caught = None

        def progressed(self, progress):
            if progress.round == 2:
                with pytest.raises(RunError, match="another process is writing") as caught:
                    run(small(), out=tmp_path / "run", resume=True)
                Intruder.caught = caught

    run(small(), out=tmp_path / "run", observer=Intruder())
    assert Intruder.caught is not None


@pytest.mark.parametrize(
    "change",
    [
        {"method__lr": 0.02}, {"run__seeds": [0, 1]}, {"partition__seed": 1}, {"data__seed": 1}, {"model__hidden": 4},
        {"method__name": "fedprox"}, {"evaluation__every": 2}, {"run__early_stopping": 4},
    ],
    ids=str,
)  # fmt: skip
def test_resuming_something_else_is_refused(small, tmp_path, change):
    run(small(), out=tmp_path / "run")
    with pytest.raises(RunError, match="another configuration, data set or partition"):
        run(small(**change), out=tmp_path / "run", resume=True)
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(RunError, match="another configuration, data set or partition"):  # by its checkpoint
        run(small(**change), out=tmp_path / "run", resume=True)


def test_a_finished_run_has_nothing_left_to_do(small, tmp_path):
    first = run(small(), out=tmp_path / "run")
    listener = Listener()
    again = run(small(run__workers=2, run__checkpoint_every=1), out=tmp_path / "run", resume=True, observer=listener)
    assert listener.heard == []
    assert again.tree == json.loads(json.dumps(first.tree))


def test_the_stored_configuration_runs_again(small, tmp_path):
    first = run(small(), out=tmp_path / "one")
    second = run(load_config(tmp_path / "one" / "config.yaml"), out=tmp_path / "two")
    assert second.tree["fingerprint"] == first.tree["fingerprint"]
    assert conformance.numbers(second.tree) == conformance.numbers(first.tree)


def test_a_stored_partition_stands_for_its_rule(small, tmp_path):
    first = run(small(), out=tmp_path / "one")
    second = run(small(partition__file=str(tmp_path / "one" / "partition.npz"), partition__clients=3))
    assert [row["test"] for row in only(second)["rounds"]] == [row["test"] for row in only(first)["rounds"]]
    with pytest.raises(GraphsiloError, match="was made for 150 nodes"):
        run(
            small(
                partition__file=str(tmp_path / "one" / "partition.npz"),
                data__generator={"nodes": 100, "classes": 3, "features": 40, "feature_density": 0.1},
            )
        )


def test_clients_and_rule_must_agree_with_a_stored_partition(small, tmp_path):
    stored = str(run(small(), out=tmp_path / "one").out / "partition.npz")
    with pytest.raises(ConfigError, match=r"9 clients are asked for .* has 3\. Leave the number out"):
        run(small(partition__file=stored, partition__clients=9))
    path = tmp_path / "both.yaml"
    path.write_text(yaml.safe_dump({"partition": {"rule": "metis", "file": stored}}))
    with pytest.raises(ConfigError, match=r"both the rule 'metis' .* and the stored partition .*only one of them"):
        load_config(path)
    again = run(RunConfig.of(small(partition__file=stored).complete()))  # its defaults are no wishes
    assert again.tree["partition"]["clients"] == 3


def test_clients_must_agree_with_the_number_of_files(small, tmp_path):
    generator = small().data.options
    names = []
    for seed in (0, 1):
        graph = catalog.load("citation-sbm", options={"generator": generator}, seed=seed)
        names.append(str(save_graph(tmp_path / f"{seed}.npz", graph)))
    more = {"data__name": names, "data__generator": None, "partition__rule": "auto"}
    with pytest.raises(ConfigError, match=r"3 clients are asked for .* one client per data set or file makes 2\."):
        run(small(**more, partition__clients=3))
    assert run(small(**more, partition__clients=2)).tree["partition"]["clients"] == 2


# -- refusals before training ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"model__pool": ["gcn", "sage"]}, UnsupportedError, r"must run the same one.*different models: .*local"),
        ({"model__name": "nope"}, GraphsiloError, "nope"),
        ({"model__hiden": 3}, ConfigError, "hiden"),
        ({"method__min_clients": 4}, ConfigError, "wants 4 answers, but only 3 of 3 clients"),
        ({"method__min_clients": 2, "method__participation": 0.4}, ConfigError, "only 1 of 3"),
        ({"task": "graph"}, UnsupportedError, r"'graph' was asked for, but .* is made for task 'node' \(or link\)"),
        ({"partition__rule": "lovain"}, ConfigError, "did you mean 'louvain'"),
        ({"partition__alpha": 3}, ConfigError, r"unknown setting 'partition\.alpha' for random"),
        ({"partition__clients": 1000}, GraphsiloError, "ask for at most 150"),
        ({"perturb": {"edge_noize": 1}}, ConfigError, r"did you mean 'perturb\.edge_noise'"),
        ({"scenario__hop": 1}, ConfigError, r"did you mean 'scenario\.hops'"),
        ({"scenario__crop": 0.5}, ConfigError, "belongs to the scenario 'open'"),
        ({"task": "link", "scenario__name": "unseen"}, UnsupportedError, "has the scenario 'seen' only"),
        ({"task": "link", "evaluation__modes": ["own_global"]}, UnsupportedError, "global"),
        ({"run__device": "tpu3"}, ConfigError, "is no device"),
        ({"data__name": "Coraa"}, ConfigError, "Coraa"),
    ],
    ids=str,
)  # fmt: skip
def test_refused_before_training(small, tmp_path, change, error, text):
    listener = Listener()
    with pytest.raises(error, match=text):
        run(small(**change), out=tmp_path / "run", observer=listener)
    assert listener.first is None
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_method_for_another_task(small):
    method = Method(
        name="graphsonly", title="Graphs only", citation="none", summary="none", config=fedavg.FedAvgConfig,
        client=fedavg.Client, server=fedavg.Server, tasks=("graph",),
    )  # fmt: skip
    registry.register(method)
    try:
        with pytest.raises(UnsupportedError, match=r"Graphs only does not do task 'node', only graph.*fedavg.*fedprox"):
            run(small(method__name="graphsonly"))
    finally:
        del registry._REGISTERED["graphsonly"]


def test_a_model_for_another_task(small, molecules):
    with pytest.raises(UnsupportedError, match=r"model 'sign' does not do task 'graph'.*there are: .*gin"):
        run(small(data__name=str(molecules), data__generator=None, model__name="sign", model__hidden=None))


def test_training_that_diverges_is_told(small):
    config = small(method__optimizer="sgd", method__lr=1e30, method__rounds=9)
    with pytest.raises(FederationError, match="NaN or infinity"):
        run(config)
