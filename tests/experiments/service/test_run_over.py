"""The same configuration in one process and over sites: the same numbers, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from graphsilo import compare
from graphsilo.errors import ConfigError, DataError, RunError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.predict import predict
from graphsilo.experiments.runner import run
from graphsilo.experiments.service.jobs import Jobs
from graphsilo.experiments.service.run_over import run_over
from graphsilo.experiments.storage import reading
from graphsilo.experiments.storage.records import reported_scores
from graphsilo.experiments.tracking import JSONLines
from graphsilo.federation.journal import read
from graphsilo.federation.policy import DEFAULT_KINDS
from graphsilo.runtime.site.supervisor import SiteSupervisor
from kit import check_result
from kit.same_machine import SameMachine
from kit.site_tables import METHODS, NAMES, assert_same, numbers, write_tables


@pytest.mark.parametrize(
    "method", [name if name == "fedavg" else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]
)
def test_same_numbers_as_in_one_process(method: str, sites: Any, tmp_path: Path) -> None:
    config = sites.config(**{"method.name": method, **METHODS[method]})
    apart = run_over(sites.transport, config, name="test", clients=sites.clients, out=tmp_path / "out").tree
    assert_same(run(config).tree, apart)


@pytest.mark.slow
def test_links_between_silos_give_the_same_numbers_as_in_one_process(
    make_sites: Callable[..., Any], tmp_path: Path
) -> None:
    """FedGCN over the links that the tables of three silos name, down to what its models say of every node."""
    policy = {"kinds": [*DEFAULT_KINDS, "topology"], "recoverable": True}
    sites = make_sites(dict.fromkeys(NAMES, policy))
    config = sites.config(method__name="fedgcn", method__rounds=2)
    apart = run_over(sites.transport, config, name="test", clients=sites.clients, out=tmp_path / "linked").tree
    whole = run(config, out=tmp_path / "whole")
    assert_same(whole.tree, apart)
    for number, name in enumerate(NAMES):
        (folder,) = (sites.folder / name / "results").glob(f"linked-fedgcn-*/{name}")
        one, other = (predict(path, client=number).probabilities for path in (tmp_path / "whole", folder))
        assert one.tobytes() == other.tobytes()
    moved = sites.files["west"].parent / "moved.csv"
    moved.write_text(moved.read_text().replace("west0,", "west5,", 1))
    with pytest.raises(DataError, match="silos north and west do not name the same links between them"):
        run(config)


def write_rare(folder: Path, name: str, number: int, **more: Any) -> Path:
    """The tables with two classes, of which one silo alone has the rare one, number 0."""
    file = write_tables(folder, name, number, **more)
    head, *rows = (folder / "nodes.csv").read_text().splitlines()
    cells = [row.split(",") for row in rows]
    for place, row in enumerate(cells):
        row[1] = "c0" if name == "north" and place < 20 else "c1"
    (folder / "nodes.csv").write_text("\n".join([head, *map(",".join, cells)]) + "\n")
    tables = (folder / "tables.yaml").read_text()
    (folder / "tables.yaml").write_text(tables.replace("- c2\n- c3\n", ""))
    return file


@pytest.mark.slow
def test_a_rare_class_is_known_from_sums_alone(
    make_sites: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What chooses rounds, and what is measured beside it, is the same as in one process."""
    monkeypatch.setattr("kit.sites.write_tables", write_rare)
    sites = make_sites()
    config = sites.config(run__secure_sums=True, evaluation__report="federation", method__rounds=2)
    apart = run_over(sites.transport, config, name="test", clients=sites.clients, out=tmp_path / "out").tree
    alone = run(config).tree
    assert_same(alone, apart)
    assert apart["config"]["evaluation"]["select_by"] == alone["config"]["evaluation"]["select_by"] == "macro_f1"
    assert {"ap", "auc", "rare_f1"} <= set(apart["summary"]["test"])
    assert any("of class 'c0' is measured beside it" in text for text in apart["warnings"])
    again = run_over(sites.transport, config, name="test", clients=sites.clients, out=tmp_path / "out", resume=True)
    assert again.tree["fingerprint"] == apart["fingerprint"]


def test_same_numbers_in_bfloat16(sites: Any, tmp_path: Path) -> None:
    config = sites.config(run__precision="bfloat16", method__rounds=2)
    apart = run_over(sites.transport, config, name="test", clients=sites.clients, out=tmp_path / "lowered").tree
    assert apart["config"]["run"]["precision"] == "bfloat16"
    whole = run(config, out=tmp_path / "whole")
    assert_same(whole.tree, apart)
    for number, name in enumerate(sites.clients):
        model = f"models/seed0-client{number}-best.safetensors"
        (kept,) = (sites.folder / name / "results").glob(f"lowered-fedavg-*/{name}/{model}")
        assert kept.read_bytes() == (tmp_path / "whole" / model).read_bytes()


def test_a_silos_own_results_know_its_data(sites: Any, tmp_path: Path) -> None:
    config = sites.config(method__rounds=1, run__references=["local"])  # which opens another run before the end of this
    run_over(sites.transport, config, name="test", clients=sites.clients, out=tmp_path / "own")
    (folder,) = (sites.folder / "north" / "results").glob("own-fedavg-*/north")
    before = predict(folder)
    nodes = sites.files["north"].parent / "nodes.csv"
    text = nodes.read_text()
    try:
        nodes.write_text(text.replace("north0,c1,", "north0,c2,").replace("north0,c3,", "north0,c1,"))
        assert nodes.read_text() != text
        with pytest.raises(RunError, match=r"data has changed since .* silo north's own graph"):
            predict(folder)
        assert len(predict(folder, graph=nodes.parent / "tables.yaml").classes) == 60
    finally:
        nodes.write_text(text)
    assert predict(folder).probabilities.tolist() == before.probabilities.tolist()
    # What a coordinator once wrote there about code is not read, and a method that is not installed is unknown.
    evil = tmp_path / "evil.py"
    evil.write_text("import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\n")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    kept = (folder / "config.yaml").read_text()
    own = {"method": {"fedavg": {"place": f"{evil}:METHOD", "sha256": ""}}}
    try:
        (folder / "config.yaml").write_text(yaml.safe_dump({**config, "own": own}))
        assert predict(folder).probabilities.tolist() == before.probabilities.tolist()
        (folder / "config.yaml").write_text(yaml.safe_dump({**config, "method": {"name": f"{evil}:METHOD"}}))
        with pytest.raises(ConfigError, match="graphsilo trust"):
            predict(folder)
    finally:
        (folder / "config.yaml").write_text(kept)
    assert not evil.with_suffix(".ran").exists()


@pytest.mark.parametrize("overrides", [{}, {"run__precision": "bfloat16"}])
def test_references_that_pool_nothing_are_the_rows_of_one_process(
    overrides: dict[str, Any], sites: Any, tmp_path: Path
) -> None:
    """Every silo answers its own commonest class at its own site, and FedRidge adds up sums."""
    config = sites.config(run__references=["majority", "fedridge"], method__rounds=1, **overrides)
    apart = run_over(sites.transport, config, name="test", clients=sites.clients, out=tmp_path / "out").tree
    assert numbers(apart["references"]) == numbers(run(config).tree["references"])
    assert not any("missing" in text for text in apart["warnings"])


def test_reference_rows_stand_apart(sites: Any, tmp_path: Path) -> None:
    before = set(sites.folder.glob("*/state/**/*"))
    config = sites.config(run__references=["local"], method__rounds=2)
    plain = sites.config(method__rounds=2)
    arguments = {"name": "test", "clients": sites.clients}
    apart = run_over(sites.transport, config, out=tmp_path / "with", **arguments).tree
    run_over(sites.transport, plain, out=tmp_path / "without", **arguments)
    assert numbers(apart["references"]["local"]) == numbers(run(config).tree["references"]["local"])
    for number, name in enumerate(sites.clients):
        model = f"{name}/models/seed0-client{number}-best.safetensors"
        kept = [next((sites.folder / name / "results").glob(f"{out}-fedavg-*/{model}")) for out in ("with", "without")]
        assert kept[0].read_bytes() == kept[1].read_bytes()  # those of the method, not of the reference
    # Of the reference rows nothing stays but the words under which they were opened: no site holds their results.
    left = set(sites.folder.glob("*/state/**/*")) - before
    assert {path.name for path in left if path.is_file()} <= {"opened.json"}


@pytest.mark.slow
def test_a_silo_that_lets_out_no_scores_has_a_row_alone_as_well(make_sites: Callable[..., Any], tmp_path: Path) -> None:
    """The row was lost for all silos: its comparison item by item is a score."""
    sites = make_sites({"south": {"kinds": ["model", "counts", "statistic"]}})
    config = sites.config(run__references=["alone"], method__rounds=2, evaluation__models=True)
    run_over(sites.transport, config, name="test", clients=sites.clients, out=tmp_path / "out")
    run(config, out=tmp_path / "whole")
    apart, whole = (
        reading.read(folder / "references" / "alone").seeds[0].clients
        for folder in (tmp_path / "out", tmp_path / "whole")
    )
    assert [row.test for row in apart] == [row.test for row in whole]
    for name, one, other in zip(NAMES, apart, whole, strict=True):
        assert one.paired == (dict.fromkeys(other.paired) if name == "south" else other.paired)


@pytest.mark.slow
def test_one_site_may_hold_several_silos(sites: Any, tmp_path: Path) -> None:
    both = SiteSupervisor("both", [(0, sites.files["north"]), (1, sites.files["south"])], tmp_path / "both")
    both.start()
    try:
        sockets = {"both": both.socket_path, "west": sites.supervisors["west"].socket_path}
        places = {"both": [0, 1], "west": [2]}
        tree = run_over(
            SameMachine(sockets), sites.config(), name="test", clients=places, out=tmp_path / "out"
        ).tree  # fmt: skip
    finally:
        both.close()
    alone = run(sites.config()).tree
    assert numbers(tree["seeds"][0]["rounds"]) == numbers(alone["seeds"][0]["rounds"])
    assert tree["summary"] == alone["summary"]


def short(sites: Any, method: str, **settings: Any) -> Any:
    """A configuration of a method for the sites."""
    return sites.config(**{"method.name": method, **METHODS[method], **settings})


@pytest.mark.parametrize("method", ["fedridge", "fedavg"])
def test_a_visible_share_is_warned_of_on_both_sides(method: str, sites: Any, tmp_path: Path) -> None:
    """Silos with a dozen training nodes each and 45 columns; nothing of it in one process, where nothing leaves."""
    config = short(sites, method, **{"run.seeds": [0, 1]})
    apart = run_over(sites.transport, config, name="test", clients=sites.clients, out=tmp_path / "seen").tree
    told = [text for text in apart["warnings"] if "sums of products" in text]
    noted = list(read(sites.folder / "north" / "sent" / "north.jsonl"))
    mine = [entry for entry in noted if entry.way == "warned" and entry.run.startswith(f"seen-{method}")]
    assert not any("sums of products" in text for text in run(config).tree["warnings"])
    if method == "fedavg":
        assert not told
        assert not mine
        return
    rows = [row["train"] for row in apart["partition"]["per_client"]]
    names = ", ".join(f"'{name}' ({count} training items)" for name, count in zip(sites.clients, rows, strict=True))
    assert f"{names} have fewer rows" in told[0]
    (entry,) = mine  # once, not for each seed
    assert f"this silo has {rows[0]} rows to add up" in str(entry)


@pytest.mark.parametrize("method", ["fedridge", "fedavg"])
def test_without_a_silo_whose_machine_is_gone(method: str, sites: Any, tmp_path: Path) -> None:
    """Nobody waits for it, and the others' numbers are those of one process without it."""
    sockets = {name: site.socket_path for name, site in sites.supervisors.items() if name != "south"}
    names = dict(enumerate(sites.clients))
    config = short(sites, method, **{"run.without": ["south"]})
    apart = run_over(
        SameMachine(sockets), config, name="test", clients=sites.clients, names=names, out=tmp_path / "gone", wait=30
    ).tree
    files = sites.overrides()["data.name"]
    assert_same(run(short(sites, method, **{"run.without": [1]})).tree, apart)
    lost = [files[0], str(tmp_path / "lost.yaml"), files[2]]  # its tables are not needed, either
    assert_same(run(short(sites, method, **{"run.without": [1], "data.name": lost})).tree, apart)
    assert apart["partition"]["without"] == [{"client": 1, "silo": "south"}]
    assert apart["partition"]["clients"] == 3
    assert apart["warnings"][0].startswith("client 'south' is left out (run.without): this run is that of the other 2")
    (own,) = (sites.folder / "north" / "results").glob(f"gone-{method}-*/north/result.json")
    check_result(tmp_path / "gone")
    told = check_result(own.parent)["federation"]
    assert (told["clients"], told["without"]) == (2, [{"client": 1, "silo": "south"}])


@pytest.mark.slow
def test_one_of_two_silos_of_a_site_is_left_out(sites: Any, tmp_path: Path) -> None:
    both = SiteSupervisor("both", [(0, sites.files["north"]), (1, sites.files["south"])], tmp_path / "both")
    both.start()
    config = short(sites, "fedridge", **{"run.without": [1]})
    try:
        sockets = {"both": both.socket_path, "west": sites.supervisors["west"].socket_path}
        tree = run_over(
            SameMachine(sockets), config, name="test", clients={"both": [0, 1], "west": [2]}, out=tmp_path / "out"
        ).tree
    finally:
        both.close()
    assert numbers(tree["seeds"][0]["rounds"]) == numbers(run(config).tree["seeds"][0]["rounds"])
    assert not (tmp_path / "both" / "sent" / "south.jsonl").exists()  # nothing left it, not even its card


def test_a_silo_that_joins_later_is_as_if_it_had_been_there(sites: Any, tmp_path: Path) -> None:
    """Two silos, then a job with all three: every number is that of a run with three from the start."""
    config = short(sites, "fedridge")
    two = {name: members for name, members in sites.clients.items() if name != "west"}
    run_over(sites.transport, config, name="test", clients=two, out=tmp_path / "two")
    joined = run_over(sites.transport, config, name="test", clients=sites.clients, out=tmp_path / "joined").tree
    assert_same(run(config).tree, joined)


def test_a_job_may_be_based_on_the_one_that_it_replaces(sites: Any, tmp_path: Path) -> None:
    arguments = {"name": "test", "clients": sites.clients, "names": dict(enumerate(sites.clients))}
    first = run_over(sites.transport, short(sites, "fedridge"), out=tmp_path / "first", **arguments).tree
    jobs = Jobs(tmp_path / "kit")
    job = jobs.submit(
        tmp_path / "first" / "config.yaml",
        assignments=["run.without=[south]"],
        names={"north": 0, "south": 1, "west": 2},
    )
    second = run_over(sites.transport, load_config(jobs.config_path(job)), out=job.out, **arguments).tree
    assert second["replaces"] == first["fingerprint"]
    assert_same(run(short(sites, "fedridge", **{"run.without": [1]})).tree, second)
    table = compare(tmp_path / "first", job.out)
    assert table.warnings == ()
    assert table.notes[0].endswith("over the 2 clients that all runs have.")


@pytest.mark.slow
def test_a_tracker_at_the_coordinator_has_every_round(sites: Any, tmp_path: Path) -> None:
    config = short(sites, "fedavg", **{"run.references": ["local"]})
    arguments = {"name": "test", "clients": sites.clients}
    tree = run_over(sites.transport, config, out=tmp_path / "out", observer=JSONLines(), **arguments).tree
    lines = [json.loads(line) for line in (tmp_path / "out" / "track.jsonl").read_text().splitlines()]
    rounds = [line for line in lines if line["event"] == "round" and line["label"] == ""]
    rows = [row for seed in tree["seeds"] for row in seed["rounds"]]
    assert [line["test"] for line in rounds] == [reported_scores(row)["test"] for row in rows]
    each = [client["upload_bytes"] for client in rounds[0]["clients"]]
    assert sum(each) == rounds[0]["upload_bytes"]
    assert all(client["cpu_seconds"] >= 0 for client in rounds[0]["clients"])
    assert [line["label"] for line in lines if line["event"] == "ended"] == ["local", ""]
