"""Stopped anywhere and resumed: the same numbers, byte for byte."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphsilo.errors import ConfigError, GraphsiloError, RunError
from graphsilo.experiments import seed
from graphsilo.experiments.config import load_config
from graphsilo.experiments.observer import Observer
from graphsilo.experiments.runner import run
from graphsilo.experiments.storage import disk
from graphsilo.experiments.storage.resume import differences, some
from graphsilo.federation import registry
from graphsilo.methods.opfgl.server import Server
from graphsilo.testing import conformance
from kit import check_result
from kit.stopped import Stop, StopAfter, stopped

# Forks a run, kills it after each delay, resumes it, and lets the last one finish. One import serves all.
KILLER = """
import json, os, signal, sys, time
from pathlib import Path
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run

job = json.loads(sys.argv[1])
config = load_config(None, overrides=job["config"])
out = Path(job["out"])
killed = 0
for delays in job["runs"]:
    folder = out / f"run-{killed}-{len(delays)}-{delays[0]}"
    for delay in [*delays, None]:
        child = os.fork()
        if child == 0:
            try:
                run(config, out=folder, resume=True)
            finally:
                os._exit(0)
        if delay is not None:
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
print(killed)
"""


MOMENTS = [[round(0.01 + 0.017 * step, 3), round(0.3 - 0.011 * step, 3)] for step in range(0, 25, 6)]


def config_tree(config, **more):
    """The overrides behind ``small`` as dotted names."""
    return {
        "data.name": "citation-sbm",
        "data.generator": {"nodes": 150, "classes": 3, "features": 40, "feature_density": 0.1},
        "partition.rule": "random",
        "partition.clients": 3,
        "model.hidden": 8,
        "method.rounds": 12,
        "run.checkpoint_every": 1,
        "run.seeds": [0, 1],
        **more,
    }


def kill_and_compare(tmp_path, runs, **more):
    from graphsilo.experiments.config import load_config

    tree = config_tree(None, **more)
    job = {"config": tree, "out": str(tmp_path), "runs": runs}
    done = subprocess.run([sys.executable, "-c", KILLER, json.dumps(job)], capture_output=True, text=True, check=True)
    whole = run(load_config(None, overrides=tree), out=tmp_path / "whole").tree
    folders = sorted(path for path in tmp_path.iterdir() if path.name.startswith("run-"))
    assert len(folders) == len(runs), done.stderr
    for folder in folders:
        resumed = check_result(folder)
        assert conformance.numbers(resumed) == conformance.numbers(whole), folder
        for path in (tmp_path / "whole" / "models").iterdir():
            assert path.read_bytes() == (folder / "models" / path.name).read_bytes(), path.name
        ledgers = [(place / "ledger.parquet").read_bytes() for place in (folder, tmp_path / "whole")]
        assert ledgers[0] == ledgers[1]
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "global"])
def test_killed_at_some_moments(tmp_path, method):
    some = {} if method == "global" else {"method.participation": 0.7}
    more = {"method.name": method, "run.early_stopping": 8, **some}
    assert kill_and_compare(tmp_path, MOMENTS, **more) >= 1


@pytest.mark.parametrize(("every", "place"), [(1, (0, 1)), (1, (1, 4)), (2, (0, 5)), (2, (1, 4)), (0, (1, 4))], ids=str)
def test_stopped_after_any_round(small, tmp_path, every, place):
    config = small(
        method__rounds=7, method__participation=0.7, run__seeds=[0, 1], run__checkpoint_every=every,
        run__early_stopping=5, evaluation__every=2, evaluation__modes=["own_local", "aggregate_global"],
    )  # fmt: skip
    whole = run(config).tree
    with pytest.raises(Stop):
        run(config, out=tmp_path / "run", observer=StopAfter(*place))
    resumed = run(config, out=tmp_path / "run", resume=True).tree
    assert conformance.numbers(resumed) == conformance.numbers(whole)


@pytest.mark.slow
def test_resuming_with_workers_gives_the_same(small, tmp_path):
    config = small(run__checkpoint_every=1)
    whole = run(config).tree
    with pytest.raises(Stop):
        run(config, out=tmp_path / "run", observer=StopAfter(0, 2))
    spread = small(run__checkpoint_every=1, run__workers=2)
    assert conformance.numbers(run(spread, out=tmp_path / "run", resume=True).tree) == conformance.numbers(whole)


@pytest.mark.parametrize("settings", [{}, {"method__links": "learned"}], ids=str)
def test_stopped_within_the_servers_work_it_goes_on_there(small, tmp_path, monkeypatch, settings):
    """O-pFGL's server takes 12 steps in set-up; after 5 of them, of which a checkpoint knows, the run is stopped."""
    for name, value in (("CHECKPOINT_SHARE", 1e9), ("LEAST_SECONDS", 0.0), ("REPORT_SECONDS", 0.0)):
        monkeypatch.setattr(seed, name, value)
    quick = {f"method__{name}": value for name, value in registry.load("opfgl").quick.items()}
    config = small(
        **{**quick, "method__name": "opfgl", "method__rounds": None, "method__surrogate_steps": 12, **settings}
    )
    asked, steps = [], []
    collect = Server._ask
    monkeypatch.setattr(Server, "_ask", lambda self, federation: (asked.append(1), collect(self, federation)))

    class Heard(Observer):
        def on_work(self, working):
            steps.append(working.step)
            assert str(working) == f"server: surrogate, {working.step} of 12 steps"
            if working.step == stop:
                raise Stop

    stop = None
    whole = run(config, observer=Heard()).tree
    assert steps == list(range(1, 13))
    (work,) = whole["seeds"][0]["setup"]["works"]
    assert (work["name"], work["steps"]) == ("surrogate", 12)
    assert [step for step, _ in work["curves"]["loss"]][-1] == 12
    stop = 5
    with pytest.raises(Stop):
        run(config, out=tmp_path / "run", observer=Heard())
    asked.clear()
    steps.clear()
    stop = None
    resumed = run(config, out=tmp_path / "run", resume=True, observer=Heard()).tree
    assert (asked, steps) == ([], list(range(6, 13)))  # clients are not asked again, and seven steps were left
    assert conformance.numbers(resumed) == conformance.numbers(whole)
    assert resumed["seeds"][0]["setup"]["checkpoint_wall_seconds"] > 0


def test_finished_seeds_are_not_run_again(small, tmp_path):
    config = small(run__seeds=[0, 1])
    with pytest.raises(Stop):
        run(config, out=tmp_path / "run", observer=StopAfter(1, 1))

    seeds = set()

    class Heard(Observer):
        def on_progress(self, progress):
            seeds.add(progress.seed)

    run(config, out=tmp_path / "run", resume=True, observer=Heard())
    assert seeds == {1}


def test_a_damaged_checkpoint_is_refused(small, tmp_path):
    config = small(run__checkpoint_every=1)
    with pytest.raises(Stop):
        run(config, out=tmp_path / "run", observer=StopAfter(0, 2))
    path = tmp_path / "run" / "checkpoints" / "seed-0.ckpt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(RunError, match=r"seed-0\.ckpt is damaged\. Delete it to start seed 0 again"):
        run(config, out=tmp_path / "run", resume=True)
    path.unlink()
    assert conformance.numbers(run(config, out=tmp_path / "run", resume=True).tree) == conformance.numbers(
        run(config).tree
    )


def test_resuming_an_empty_folder_starts_anew(small, tmp_path):
    assert run(small(), out=tmp_path / "run", resume=True).tree["seeds"]


@pytest.mark.parametrize("writes", [0, 2, 3, 9])
def test_a_disk_that_is_full_at_some_write(small, tmp_path, monkeypatch, writes):
    """Whatever write fails, what was there is whole, and the run goes on when there is room again."""
    config = small(run__checkpoint_every=1, evaluation__models=True)
    original, left = os.fsync, [writes * 2]  # the file and its folder

    def until_full(handle):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(handle)

    monkeypatch.setattr(os, "fsync", until_full)
    with pytest.raises(GraphsiloError, match=r"No space left|cannot be written|could not be written"):
        run(config, out=tmp_path / "run")
    assert not [path for path in (tmp_path / "run").rglob("*") if path.name.startswith(".") and path.name != ".lock"]
    monkeypatch.undo()
    resumed = run(config, out=tmp_path / "run", resume=True).tree
    assert conformance.numbers(resumed) == conformance.numbers(run(config).tree)


def test_the_lock_goes_with_its_process(small, tmp_path):
    with pytest.raises(Stop):
        run(small(), out=tmp_path / "run", observer=StopAfter(0, 1))
    with disk.hold_folder(Path(tmp_path / "run")):
        pass


def test_differing_settings_are_named(small, tmp_path):
    begun = {"method__name": "fedprox", "run__checkpoint_every": 1}
    finished, halted = tmp_path / "finished", tmp_path / "halted"
    run(small(**begun, method__mu=0.01), out=finished)
    stopped(small(**begun, method__mu=0.01), halted)
    for folder in (finished, halted):
        before = (folder / "config.yaml").read_bytes()
        with pytest.raises(ConfigError) as caught:
            run(small(**begun, method__mu=0.1, run__workers=2), out=folder, resume=True)
        named = "data set or partition: method.mu was 0.01 when the run was begun and is 0.1 now. Give the settings"
        assert named in str(caught.value)
        assert (folder / "config.yaml").read_bytes() == before


def test_a_differing_partition_is_named_by_what_makes_it(small, tmp_path):
    run(small(), out=tmp_path / "run")
    told = r": partition\.clients was 3 when the run was begun and is 2 now\. Give"
    with pytest.raises(ConfigError, match=told):
        run(small(partition__clients=2), out=tmp_path / "run", resume=True)
    told = r": method\.lr was 0\.01 when the run was begun and is 0\.5 now\. Give"
    stored = str(tmp_path / "run" / "partition.npz")
    with pytest.raises(ConfigError, match=told):  # the same partition from a file is no difference
        run(small(partition__file=stored, method__lr=0.5), out=tmp_path / "run", resume=True)


def test_data_that_has_changed_is_told(small, tmp_path):
    run(small(), out=tmp_path / "run")
    result = tmp_path / "run" / "result.json"
    result.write_text(result.read_text().replace('"fingerprint": "', '"fingerprint": "0'))
    with pytest.raises(ConfigError, match="its settings are the same, so the data's contents are not"):
        run(small(), out=tmp_path / "run", resume=True)
    result.write_text(result.read_text().replace('"config": ', '"other": '))
    with pytest.raises(RunError, match=r"does not have the form of one: .*`other`"):
        run(small(), out=tmp_path / "run", resume=True)


@pytest.mark.parametrize("ended", [True, False], ids=["finished", "stopped"])
def test_a_config_that_was_edited_by_hand_is_named(small, tmp_path, ended):
    """--resume alone reads it, so that it cannot say itself what was changed in it."""
    config = small(run__checkpoint_every=1, method__lr=0.01)
    run(config, out=tmp_path) if ended else stopped(config, tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(path.read_text().replace("lr: 0.01", "lr: 0.5"))
    with pytest.raises(ConfigError, match=r"method\.lr was 0\.01 when the run was begun and is 0\.5 now\. Give"):
        run(load_config(path), out=tmp_path, resume=True)


def test_few_differences_are_listed():
    then = {"data": {"seed": 1}, "run": {"seeds": [0], "workers": 1}, "method": {"name": "fedprox", "mu": 1, "lr": 1}}
    now = {"data": {"seed": 2}, "run": {"seeds": [0, 1], "workers": 2}, "method": {"name": "fedavg", "lr": 2}}
    assert differences(then, now) == [
        "data.seed was 1 when the run was begun and is 2 now",
        "run.seeds was [0] when the run was begun and is [0, 1] now",
        "method.name was fedprox when the run was begun and is fedavg now",
        "method.lr was 1 when the run was begun and is 2 now",
    ]
    assert differences({"run": {"early_stopping": None, "device": "cpu"}}, {"run": {"device": "cpu"}}) == [
        "run.early_stopping was null when the run was begun and is not set now"
    ]
    assert some([str(number) for number in range(8)]) == "0; 1; 2; 3; 4; and 3 more"


def test_a_folder_is_not_taken_over_with_other_seeds(small, tmp_path):
    """Its own seeds' checkpoints are looked at, also where others are asked for."""
    out = tmp_path / "run"
    stopped(small(run__checkpoint_every=1), out)
    before = (out / "config.yaml").read_bytes()
    for other in ({"run__seeds": [1]}, {"run__seeds": [1], "method__name": "fedprox"}):
        with pytest.raises(ConfigError, match=r"run\.seeds was \[0\] when the run was begun and is \[1\] now"):
            run(small(**other), out=out, resume=True)
    assert (out / "config.yaml").read_bytes() == before
    run(small(run__checkpoint_every=1), out=out, resume=True)


def test_nor_is_one_that_has_no_checkpoint_yet(small, tmp_path):
    out = tmp_path / "run"
    stopped(small(run__checkpoint_every=0), out)
    with pytest.raises(ConfigError, match=r"is another run's, which has no checkpoint yet: method\.lr was 0\.01"):
        run(small(run__checkpoint_every=0, method__lr=0.5), out=out, resume=True)
    run(small(run__checkpoint_every=0), out=out, resume=True)
