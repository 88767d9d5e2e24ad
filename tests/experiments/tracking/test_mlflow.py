"""MLflow's own server on SQLite: runs, metrics and files read back through its client; and a server that goes away."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from graphsilo.errors import ConfigError
from graphsilo.experiments.observer import Observer, Several
from graphsilo.experiments.runner import run
from graphsilo.experiments.storage.records import reported_scores
from graphsilo.experiments.tracking import base, tracker

mlflow = pytest.importorskip("mlflow")
pytest.importorskip("sqlalchemy")
pytestmark = pytest.mark.slow


class Server:
    """``mlflow server`` on 127.0.0.1."""

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"

    def start(self):
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port),
                "--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db", "--workers", "1",
                "--artifacts-destination", str(self.folder / "artefacts"),
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        for _ in range(1800):
            try:
                urllib.request.urlopen(f"{self.uri}/health", timeout=1).close()
                return self
            except OSError:
                time.sleep(0.1)
        self.kill()
        raise TimeoutError("mlflow server")

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = Server(tmp_path_factory.mktemp("mlflow")).start()
    yield made
    made.kill()


def runs_of(server, experiment):
    client = mlflow.MlflowClient(server.uri)
    found = client.search_runs([client.get_experiment_by_name(experiment).experiment_id], max_results=100)
    return client, {(one.data.tags["graphsilo.label"], one.data.tags["graphsilo.seed"]): one for one in found}, found


def history(client, run, metric):
    return [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, metric)]


def test_runs_metrics_and_files(tmp_path, small, server):
    from graphsilo.experiments.tracking import MLflow

    config = small(run__seeds=[3, 4], run__references=["local"])
    tree = run(config, out=tmp_path / "run", observer=MLflow(server.uri, experiment="files")).tree
    client, runs, found = runs_of(server, "files")
    assert len(found) == 6
    assert runs.keys() == {(label, seed) for label in ("run", "local") for seed in ("all", "3", "4")}
    assert {one.info.status for one in found} == {"FINISHED"}
    whole = runs["run", "all"]
    assert whole.data.params["method.name"] == "fedavg"
    assert whole.data.params["model.hidden"] == "8"
    assert whole.data.metrics["test/accuracy"] == tree["summary"]["test"]["accuracy"]["mean"]
    assert runs["local", "all"].data.tags["mlflow.parentRunId"] == whole.info.run_id
    for seed in tree["seeds"]:
        mine = runs["run", str(seed["seed"])]
        assert mine.data.tags["mlflow.parentRunId"] == whole.info.run_id
        for group, name in (("validation", "accuracy"), ("test", "macro_f1")):
            wanted = [(row["round"], reported_scores(row)[group][name]) for row in seed["rounds"]]
            assert history(client, mine, f"{group}/{name}") == wanted
        assert history(client, mine, "upload_bytes") == [(row["round"], row["upload_bytes"]) for row in seed["rounds"]]
    assert {file.path for file in client.list_artifacts(whole.info.run_id)} == {"config.yaml", "result.json"}
    kept = client.download_artifacts(whole.info.run_id, "result.json", str(tmp_path))
    assert json.loads(Path(kept).read_text())["fingerprint"] == tree["fingerprint"]


def test_every_round_once_after_kill_9(tmp_path, killed, server, monkeypatch):
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "killed")
    started = killed(tmp_path / "run", f"mlflow:{server.uri}", workers=2)
    started.go(until="1 5")
    started.go(until="local 0 2", resume=True)
    started.go(resume=True)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    client, runs, found = runs_of(server, "killed")
    assert len(found) == 6
    for seed in result["seeds"]:
        wanted = [(row["round"], reported_scores(row)["validation"]["accuracy"]) for row in seed["rounds"]]
        assert history(client, runs["run", str(seed["seed"])], "validation/accuracy") == wanted
        assert [step for step, _ in history(client, runs["local", str(seed["seed"])], "test/accuracy")] == [
            1, 2, 3, 4, 5, 6,
        ]  # fmt: skip


class Striking(Observer):
    def __init__(self, at, server, start_again):
        self.at, self.server, self.start_again = at, server, start_again

    def on_progress(self, progress):
        if progress.round == self.at:
            self.server.kill()
        if progress.round == self.start_again:
            self.server.start()


@pytest.mark.parametrize("start_again", [4, None])
def test_a_server_that_is_killed_does_not_end_the_run(server, tmp_path, small, monkeypatch, start_again):
    """It misses nothing where it is there again before the run ends."""
    from graphsilo.experiments.tracking import MLflow

    monkeypatch.setattr(base, "RETRY_SECONDS", 0.0 if start_again else 60.0)
    monkeypatch.setattr("graphsilo.experiments.tracking.mlflow.EVERY", 0.0)
    experiment = f"struck, started again at {start_again}"
    tracker, told = MLflow(server.uri, experiment=experiment), []
    tracker.say = told.append
    result = run(
        small(method__rounds=6), out=tmp_path / "run", observer=Several(Striking(2, server, start_again), tracker)
    )
    assert result.tree["seeds"][0]["last_round"] == 6
    if start_again is None:
        assert len(told) == 2
        assert "events of the run could not be kept" in told[1]
        server.start()
        run(small(method__rounds=6), out=tmp_path / "run", resume=True, observer=tracker)  # sends what is missing
    else:
        assert len(told) == 1
    client, runs, _ = runs_of(server, experiment)
    wanted = [(row["round"], reported_scores(row)["test"]["accuracy"]) for row in result.tree["seeds"][0]["rounds"]]
    assert history(client, runs["run", "0"], "test/accuracy") == wanted
    assert runs["run", "all"].info.status == "FINISHED"


def test_a_store_that_mlflow_does_not_know():
    with pytest.raises(ConfigError, match=r"cannot keep runs in 'foo://x': name a folder, sqlite"):
        tracker("mlflow:foo://x")
