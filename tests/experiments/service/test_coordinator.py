"""A coordinator's jobs: queued, stopped, continued, and found again after it was killed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from graphsilo.errors import FederationError, RunError, UnsupportedError, add_names
from graphsilo.experiments.observer import Observer, Progress
from graphsilo.experiments.runner import run
from graphsilo.experiments.service.coordinator import Coordinator
from graphsilo.experiments.service.jobs import Jobs
from graphsilo.experiments.service.run_over import remote_participants, weights
from graphsilo.experiments.service.watch import Status, read_status
from graphsilo.experiments.storage import disk
from graphsilo.runtime.remote.sites import RemoteSites
from graphsilo.runtime.transport import Unreachable
from kit.site_meddling import Meddling
from kit.site_tables import assert_same, numbers


def config_file(sites: Any, folder: Path, **overrides: Any) -> Path:
    path = folder / "config.yaml"
    tree = sites.config(**overrides).model_dump(mode="json", exclude_unset=True)
    tree.pop("data")
    path.write_text(yaml.safe_dump(tree))
    return path


def coordinator_of(sites: Any, kit: Path) -> Coordinator:
    status = Status(kit, "test", dict(enumerate(sites.clients)), "none", sites.clients)
    return Coordinator(kit, "test", sites.clients, sites.transport, status)


def test_errors_name_the_silos():
    text = "client 1 failed in 'train' (Gone); client 10 refuses"
    assert add_names(text, {1: "er"}) == "client 1 ('er') failed in 'train' (Gone); client 10 refuses"


@pytest.mark.slow
def test_jobs_are_carried_out_one_after_the_other(sites: Any, kit: Path, tmp_path: Path) -> None:
    jobs = Jobs(kit)
    first = jobs.submit(config_file(sites, tmp_path), out=tmp_path / "one")
    second = jobs.submit(config_file(sites, tmp_path), assignments=["method.name=local"])
    assert [job.id for job in jobs.all()] == ["0001-fedavg", "0002-local"]
    done = coordinator_of(sites, kit).serve(until_idle=True)
    assert [job.state for job in done] == ["done", "done"]
    tree = json.loads((tmp_path / "one" / "result.json").read_text())
    alone = run(sites.config()).tree
    assert numbers(tree["seeds"][0]["rounds"]) == numbers(alone["seeds"][0]["rounds"])
    assert (Path(second.out) / "result.json").exists()
    told = read_status(kit)
    assert told is not None
    assert [site["state"] for site in told["sites"]] == ["up", "up", "up"]
    assert told["job"]["id"] == second.id
    assert told["job"]["round"] == 4
    assert first.method == "fedavg"


def test_stopped_job_continues_where_it_was(sites: Any, kit: Path, tmp_path: Path) -> None:
    jobs = Jobs(kit)
    job = jobs.submit(config_file(sites, tmp_path))
    seen: list[int] = []

    class Stopping(Observer):
        def on_progress(self, progress: Progress) -> None:
            seen.extend([] if progress.label else [progress.round])
            if progress.round == 2 and not progress.label:
                jobs.ask_stop(jobs.get("1"))

    service = coordinator_of(sites, kit)
    assert [found.state for found in service.serve(observer=Stopping, until_idle=True)] == ["stopped"]
    assert not (Path(job.out) / "result.json").exists()
    jobs.go_on(jobs.get(job.id))
    assert [found.state for found in service.serve(observer=Stopping, until_idle=True)] == ["done"]
    assert seen == [1, 2, 3, 4]
    tree = json.loads((Path(job.out) / "result.json").read_text())
    assert numbers(tree["seeds"][0]["rounds"]) == numbers(run(sites.config()).tree["seeds"][0]["rounds"])


def test_job_of_a_killed_coordinator_comes_first(sites: Any, kit: Path, tmp_path: Path) -> None:
    jobs = Jobs(kit)
    first, second = (jobs.submit(config_file(sites, tmp_path)) for _ in range(2))
    jobs.write(replace(second, state="running", started=1.0))
    found = jobs.next()
    assert found is not None
    assert found.id == second.id
    jobs.ask_stop(first)
    assert jobs.get(first.id).state == "stopped"


def test_failed_job_says_why_and_the_next_one_runs(sites: Any, kit: Path, tmp_path: Path) -> None:
    jobs = Jobs(kit)
    jobs.submit(config_file(sites, tmp_path), assignments=["task=graph"])
    last = jobs.submit(config_file(sites, tmp_path), assignments=["evaluation.select_by=macro_f1"])
    done = coordinator_of(sites, kit).serve(until_idle=True)
    assert [job.state for job in done] == ["failed", "done"]
    # The score of a job is that by which rounds were chosen.
    assert (read_status(kit) or {})["job"]["metric"] == "macro_f1"
    found = json.loads((Path(last.out) / "result.json").read_text())["summary"]["test"]["macro_f1"]["mean"]
    assert f"job {last.id} is done: Macro-F1 {100 * found:.1f} %\n" in (kit / "run" / "coordinator.log").read_text()
    assert "the task is graph, and silo 'north' can serve node or link alone" in done[0].error


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("run.references=[global]", "trains on all data in one place"),
        ("evaluation.modes=[own_global]", "nobody holds the pooled graph"),
        ("evaluation.study=true", "for a researcher who holds both"),
    ],
)
def test_what_needs_all_data_in_one_place_is_refused_at_once(
    assignment: str, words: str, sites: Any, kit: Path, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=words):
        Jobs(kit).submit(config_file(sites, tmp_path), assignments=[assignment])
    assert Jobs(kit).all() == []


def test_settings_that_need_a_folder_are_taken(sites: Any, kit: Path, tmp_path: Path) -> None:
    Jobs(kit).submit(config_file(sites, tmp_path), assignments=["evaluation.embeddings=true"])
    assert len(Jobs(kit).all()) == 1


def test_job_that_waits_for_sites_can_be_stopped(sites: Any, kit: Path, tmp_path: Path) -> None:
    jobs = Jobs(kit)
    job = jobs.submit(config_file(sites, tmp_path))
    service = coordinator_of(sites, kit)

    def before(site: str, header: Mapping[str, Any]) -> None:
        jobs.ask_stop(jobs.get(job.id))
        raise Unreachable(site, "it has not joined")

    service.transport = Meddling(sites.transport, before)
    assert [found.state for found in service.serve(until_idle=True)] == ["stopped"]


def test_unexpected_error_ends_a_job_and_not_the_coordinator(sites: Any, kit: Path, tmp_path: Path) -> None:
    class Broken(Observer):
        def on_progress(self, progress: Progress) -> None:
            if progress.round == 1 and not seen:
                seen.append(True)
                raise ZeroDivisionError("by nought")

    seen: list[bool] = []
    jobs = Jobs(kit)
    first, _ = (jobs.submit(config_file(sites, tmp_path)) for _ in range(2))
    done = coordinator_of(sites, kit).serve(observer=Broken, until_idle=True)
    assert [job.state for job in done] == ["failed", "done"]
    assert "ZeroDivisionError: by nought" in done[0].error
    assert "by nought" in jobs.trace_path(first).read_text()


@pytest.mark.parametrize("place", ["job.json", "out"])
def test_full_disk_is_not_an_endless_loop(
    place: str, sites: Any, kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, begun = coordinator_of(sites, kit), []
    job = service.jobs.submit(config_file(sites, tmp_path))

    def full(path: Path, data: Any) -> None:
        if path.name == "job.json" or place == "out":
            raise RunError(f"{path} could not be written (No space left on device).")
        whole(path, data)

    whole = disk.write_bytes
    monkeypatch.setattr(disk, "write_bytes", full)
    monkeypatch.setattr(service.status, "job", lambda job: begun.append(job.state if job else None))
    assert [found.state for found in service.serve(until_idle=True)] == ["failed"]
    assert begun == ["running", "failed"]
    monkeypatch.undo()
    assert [found.state for found in service.serve(until_idle=True)] == ["done"]
    assert service.jobs.get(job.id).state == "done"


def test_a_command_given_again_takes_up_its_job(sites: Any, kit: Path, tmp_path: Path) -> None:
    """`serve KIT CONFIG --out DIR` after the coordinator was killed: one job, not a second one for the same folder."""
    jobs, path = Jobs(kit), config_file(sites, tmp_path)
    first = jobs.take_up(path, out=tmp_path / "one")
    assert jobs.take_up(path, out=tmp_path / "one") == first
    jobs.write(replace(first, state="running", started=1.0))
    assert jobs.take_up(path, out=tmp_path / "one").id == first.id
    jobs.write(replace(first, state="failed", started=1.0, error="x"))
    again = jobs.take_up(path, out=tmp_path / "one")
    assert (again.id, again.state, again.error) == (first.id, "queued", "")
    jobs.write(replace(first, state="done", started=1.0))
    assert jobs.take_up(path, out=tmp_path / "one").state == "done"
    others = [
        jobs.take_up(path, out=tmp_path / "two"),
        jobs.take_up(path, out=tmp_path / "one", assignments=["method.rounds=5"]),
        jobs.take_up(path),
    ]
    assert [job.id for job in others] == ["0002-fedavg", "0003-fedavg", "0004-fedavg"]
    assert jobs.take_up(path).id == "0004-fedavg"
    jobs.write(replace(others[2], state="done"))
    assert jobs.take_up(path).id == "0005-fedavg"  # done in a folder of its own: a new run is meant


@pytest.mark.slow
def test_every_silo_trains_alone_at_its_site(sites: Any, kit: Path, tmp_path: Path) -> None:
    """By default, and to the bit what one process finds; the status shows the job's own rounds."""
    jobs = Jobs(kit)
    jobs.submit(config_file(sites, tmp_path, method__rounds=3), out=tmp_path / "out")
    jobs.submit(config_file(sites, tmp_path, method__rounds=3), out=tmp_path / "off", assignments=["run.references=[]"])
    service = coordinator_of(sites, kit)
    rounds: list[int] = []
    service.status.listeners.append(lambda text: rounds.append(len(service.status.tree()["rounds"])))
    assert [job.state for job in service.serve(until_idle=True)] == ["done", "done"]
    whole = tmp_path / "whole"
    run(sites.config(method__rounds=3, run__references=["local", "alone"], evaluation__models=True), out=whole)
    for row in ("local", "alone"):
        apart, own = (
            json.loads((folder / "references" / row / "result.json").read_text())
            for folder in (tmp_path / "out", whole)
        )
        assert_same(own, apart)
        for mine, theirs in zip(own["seeds"], apart["seeds"], strict=True):
            for key in ("test", "paired"):
                assert [each[key] for each in mine["clients"]] == [each[key] for each in theirs["clients"]]
    assert "references" not in json.loads((tmp_path / "off" / "result.json").read_text())
    assert max(rounds) == 3
    told = (kit / "run" / "coordinator.log").read_text()
    assert told.count("every silo trains alone at its own site, for comparison (local and alone, 3 rounds)") == 1


@pytest.mark.slow
def test_a_silo_that_does_not_train_alone_costs_the_row_and_not_the_run(
    make_sites: Callable[..., Any], kit: Path, tmp_path: Path
) -> None:
    sites = make_sites({"south": {"methods": ["fedavg"]}})
    Jobs(kit).submit(config_file(sites, tmp_path, method__rounds=2), out=tmp_path / "out")
    assert [job.state for job in coordinator_of(sites, kit).serve(until_idle=True)] == ["done"]
    tree = json.loads((tmp_path / "out" / "result.json").read_text())
    assert "references" not in tree or "local" not in tree["references"]
    (why,) = [text for text in tree["warnings"] if text.startswith("the reference 'local' is missing")]
    assert "client 1 refuses: this silo does not take part in Local only" in why


def test_what_silos_say_they_hold_is_told_and_bounded(sites: Any, tmp_path: Path) -> None:
    """The weight of a silo's models is bounded by its card, which nobody else can check."""
    cards = RemoteSites(sites.transport, sites.clients, "weights").cards()
    graphs = {client: {**card, "counts": {**card["counts"], "graphs": 7}} for client, card in cards.items()}
    collection = remote_participants(sites.config(), "test", graphs)
    assert {row["nodes"] for row in collection.cut["per_client"]} == {7}  # of a collection graphs are weighed
    assert (collection.cut["items"], collection.data["graphs"]) == ("graphs", 7 * len(cards))
    participants = remote_participants(sites.config(), "test", cards)
    held = [row["nodes"] for row in participants.cut["per_client"]]
    text, is_warning = weights(participants, {})
    assert not is_warning
    assert f"north {held[0]} ({100 * held[0] / sum(held):.0f} %)" in text
    liar = replace(participants, cut={**participants.cut, "per_client": [
        {**row, "nodes": 10**18} if row["silo"] == "south" else row for row in participants.cut["per_client"]
    ]})  # fmt: skip
    text, is_warning = weights(liar, {})
    assert is_warning
    assert text.startswith("silo 'south' says it holds more than half of all items")
    with pytest.raises(FederationError, match=r"'south' says it holds 1000000000000000000 items, more than the 500"):
        weights(liar, {0: 500, 1: 500})
    weights(participants, dict(enumerate(held)))
