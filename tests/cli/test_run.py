"""``graphsilo run``: folders, what is printed where, the log, and resuming."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from graphsilo.cli.app import references, whole_numbers
from graphsilo.cli.run import claim_folder, find_unfinished, folder_name
from graphsilo.errors import ConfigError, installing
from graphsilo.experiments.config import load_config
from graphsilo.experiments.seed import SeedRun


def test_results_and_progress(call, small, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("run", *small, "--rounds", "20", "--seeds", "0,1", "--reference", "local")
    assert code == 0
    assert out.splitlines()[0].startswith("Test, % (2 seeds)  Accuracy  ") or "Accuracy" in out.splitlines()[0]
    rows = [line.split("  ")[0] for line in out.splitlines() if line]
    assert "FedAvg" in rows
    assert "Local only" in rows
    assert "_local) at the round that validation chose" in out
    assert "Results: runs/citation-sbm-random3-fedavg" in out
    assert "Report:  runs/citation-sbm-random3-fedavg/report.html" in out
    lines = err.splitlines()  # without a terminal, one for each row of the table
    assert lines[0].startswith("FedAvg on citation-sbm (150 nodes, ")
    assert lines[0].endswith("random, 3 clients; gcn; 20 rounds; seeds 0, 1")
    assert [line.split(" on ")[0] for line in lines] == ["FedAvg", "Local only"]
    folder = tmp_path / "runs/citation-sbm-random3-fedavg"
    assert {"config.yaml", "result.json", "rounds.parquet", "ledger.parquet", "report.html", "log.txt"} <= {
        path.name for path in folder.iterdir()
    }
    log = [line.split(" ", 2)[2] for line in (folder / "log.txt").read_text().splitlines()]  # behind its time
    assert [line for line in log if " on citation-sbm " in line] == lines
    first = [line for line in log if line.startswith("FedAvg, seed 0 (1/2): ")]
    assert [line.split(": ")[1].split(",")[0] for line in first] == [
        *(f"round {number}/20" for number in range(2, 20, 2)), "done after 20 rounds",
    ]  # fmt: skip
    assert sum(": done after 20 rounds" in line for line in log) == 4  # two seeds of the run and of the reference


def test_quiet_prints_only_the_folder_and_takes_the_next_free_one(call, small, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for number in ("", "-2", "-3"):
        code, out, err = call("run", *small, "--rounds", "1", "--quiet", "--no-report")
        assert (code, err) == (0, "")
        assert out == f"runs/citation-sbm-random3-fedavg{number}\n"
        assert not (Path(out.strip()) / "report.html").exists()


def test_flags_and_set_win_over_the_file_and_must_not_contradict_each_other(call, small, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"method": {"name": "fedprox", "rounds": 9, "mu": 0.5}, "run": {"seeds": [7]}}))
    out = tmp_path / "run"
    flags = ["run", config, *small, "--rounds", "3", "--seeds", "1", "--out", out, "--no-report"]
    code, _, err = call(*flags, "--set", "method.rounds=2")
    assert code == 2
    assert "--rounds 3 and --set method.rounds=2 contradict each other" in err
    assert not out.exists()
    flags[flags.index("--rounds") + 1] = "2"
    code, _, err = call(*flags, "--set", "method.rounds=2")
    assert code == 0, err
    tree = json.loads((out / "result.json").read_text())
    assert tree["config"]["method"]["mu"] == 0.5
    assert tree["config"]["method"]["rounds"] == 2
    assert [seed["seed"] for seed in tree["seeds"]] == [1]


def test_resume_needs_only_the_folder(call, small, monkeypatch, tmp_path):
    whole, part = tmp_path / "whole", tmp_path / "part"
    flags = [*small, "--rounds", "6", "--set", "run.checkpoint_every=2", "--no-report"]
    assert call("run", *flags, "--out", whole)[0] == 0

    original = SeedRun._round

    def interrupted(self, number, *arguments):
        if number == 5:
            raise KeyboardInterrupt
        return original(self, number, *arguments)

    monkeypatch.setattr(SeedRun, "_round", interrupted)
    code, _, err = call("run", *flags, "--out", part)
    assert code == 130
    assert f"continue with `graphsilo run --resume --out {part}`" in err
    monkeypatch.setattr(SeedRun, "_round", original)
    code, out, _ = call("run", "--resume", "--out", part)
    assert code == 0
    resumed = (part / "log.txt").read_text().split("stopped.")[1]
    assert "round 5/6" in resumed
    assert "round 4/6" not in resumed
    assert f"Report:  {part}/report.html" in out
    first, second = (json.loads((folder / "result.json").read_text()) for folder in (whole, part))
    assert first["seeds"][0]["test"] == second["seeds"][0]["test"]
    assert first["fingerprint"] == second["fingerprint"]
    log = (part / "log.txt").read_text()
    assert "stopped." in log
    assert log.count("FedAvg on citation-sbm") == 2  # appended
    code, out, err = call("run", "--resume", "--out", part)
    assert code == 0
    assert "finished before" in err


def test_a_refused_resume_names_what_differs(call, finished):
    code, _, err = call(
        "run", "--resume", "--out", finished, "--set", "method.lr=0.5", "--seeds", "0-2", "--device", "cpu"
    )
    assert code == ConfigError.exit_code
    assert "method.lr was 0.01 when the run was begun and is 0.5 now" in err
    assert "run.seeds was [0, 1] when the run was begun and is [0, 1, 2] now" in err


def test_contradicting_flags_are_refused(call, small, finished, tmp_path):
    stored = finished / "partition.npz"
    code, _, err = call("run", *small, "--partition-file", stored, "--out", tmp_path / "run")
    assert code == 2
    assert f"both the rule 'random' (--partition, partition.rule) and the stored partition '{stored}'" in err
    data = [flag for flag in small if flag not in ("--partition", "random", "--clients", "3")]
    code, _, err = call("run", *data, "--partition-file", stored, "--clients", "5", "--out", tmp_path / "run")
    assert code == 2
    assert f"5 clients are asked for (partition.clients, --clients), but the stored partition {stored} has 3." in err
    assert not (tmp_path / "run").exists()
    flags = ["--partition-file", stored, "--clients", "3", "--rounds", "1", "--out", tmp_path / "run", "-q"]
    assert call("run", *data, *flags)[0] == 0


def test_embeddings_are_added_to_a_finished_run(call, small, tmp_path):
    assert call("run", *small, "--rounds", "2", "--out", tmp_path / "run", "-q", "--no-report")[0] == 0
    code, _, err = call("run", "--resume", "--out", tmp_path / "run", "--set", "evaluation.embeddings=true")
    assert code == 0
    assert "finished before; nothing was trained" in err
    assert len(list((tmp_path / "run" / "embeddings").iterdir())) == 3


def test_a_finished_folder_is_not_overwritten(call, small, finished):
    before = (finished / "result.json").read_bytes(), (finished / "log.txt").read_bytes()
    code, _, err = call("run", *small, "--out", finished)
    assert code == ConfigError.exit_code
    assert "--resume" in err
    assert before == ((finished / "result.json").read_bytes(), (finished / "log.txt").read_bytes())


def test_a_report_that_cannot_be_drawn_does_not_fail_the_run(call, small, monkeypatch, tmp_path):
    from graphsilo import report

    def broken(folder):
        raise RuntimeError("no ink")

    monkeypatch.setattr(report, "write", broken)
    code, out, err = call("run", *small, "--rounds", "1", "--out", tmp_path / "run")
    assert code == 0
    assert "Results: " in out
    assert "Report: " not in out
    assert "warning: the report page could not be drawn (RuntimeError: no ink)" in err


def test_which_run_is_resumed(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="holds no unfinished one"):
        find_unfinished()
    for name in ("a", "b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").touch()
    (tmp_path / "runs" / "a" / "result.json").touch()
    assert find_unfinished() == Path("runs/b")
    (tmp_path / "runs" / "a" / "result.json").unlink()
    with pytest.raises(ConfigError, match=r"2 in runs/ are unfinished: name one with --out DIR \(runs/a, runs/b\)"):
        find_unfinished()


def test_resume_without_a_run(call, tmp_path):
    code, _, err = call("run", "--resume", "--out", tmp_path / "none")
    assert code == 2
    assert "is this the folder of a run?" in err


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "citation-sbm-louvain10-fedavg"),
        ({"data": "Cora", "partition": {"rule": "louvain+", "clients": 5}}, "Cora-louvain+5-fedavg"),
        ({"data": "MUTAG", "method": "local"}, "MUTAG-dirichlet10-local"),
        ({"data": "my data/bank one.yaml"}, "bank_one-louvain10-fedavg"),
        ({"data": "Cora", "partition": {"file": "cuts/p.npz"}}, "Cora-p-fedavg"),
        ({"data": ["MUTAG", "PROTEINS"]}, "MUTAG+PROTEINS-fedavg"),
        ({"data": ["a/tables.yaml", "b/tables.yaml"]}, "2-silos-fedavg"),
        ({"data": [f"bank of {town}.npz" for town in ("Adlershof", "Birch", "Corso")]}, "3-silos-fedavg"),
    ],
)
def test_folder_names(settings, name):
    assert folder_name(load_config(overrides=settings)) == name


def test_claimed_folders_differ(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = load_config()
    assert [claim_folder(config).name for _ in range(2)] == [folder_name(config), f"{folder_name(config)}-2"]


def test_lists_of_numbers():
    assert whole_numbers("0,1, 4-6", "--seeds") == [0, 1, 4, 5, 6]
    for wrong in ("", "a", "1-", "-1", "1.5"):
        with pytest.raises(ConfigError, match="--seeds takes whole numbers"):
            whole_numbers(wrong, "--seeds")


def test_references():
    assert references(None) is None
    assert references(["local,global"]) == ["local", "global"]
    every = "local, alone, trees_alone, fedavg, fedridge, auto, one_place, global, global_cut, majority"
    assert references(["all"]) == every.split(", ")


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--seeds", "1", "--seeds", "2"], "--seeds is given 2 times, and takes one value. Give it once."),
        (["--model", "gcn", "--model=sage"], "--model is given 2 times"),
        (["--seeds", "0,5-3"], "--seeds counts upwards: 5-3 is empty; 3-5 may be meant."),
        (["--reference", "global", "--set", "run.references=[local]"], "--reference ['global'] and --set"),
    ],
)  # fmt: skip
def test_flags_that_would_be_lost_are_refused(call, flags, text, tmp_path):
    code, _, err = call("run", *flags, "--out", tmp_path / "run")
    assert code == 2
    assert text in err
    assert not (tmp_path / "run").exists()


def test_flags_that_name_several_may_be_repeated(call, small, tmp_path):
    flags = ["--reference", "local", "--reference", "global", "--set", "run.workers=1", "--rounds", "1"]
    assert call("run", *small, *flags, "--no-report", "--out", tmp_path / "run")[0] == 0
    assert set(json.loads((tmp_path / "run" / "result.json").read_text())["references"]) >= {"local", "global"}


def test_trackers_from_the_command_line(call, small, tmp_path):
    places = ["--track", "csv", "--track", f"jsonl:{tmp_path / 'events.jsonl'}"]
    code, _, _ = call("run", *small, "--rounds", "2", "--out", tmp_path / "run", "--no-report", "-q", *places)
    assert code == 0
    assert (tmp_path / "run" / "track.csv").read_text().count("\n") == 1 + 3
    assert '"event": "ended"' in (tmp_path / "events.jsonl").read_text()


def test_a_tracker_that_cannot_be_had_is_refused_before_anything_is_written(call, small, tmp_path, monkeypatch):
    code, _, said = call("run", *small, "--out", tmp_path / "run", "--track", "mlflo")
    assert (code, "did you mean 'mlflow'" in said) == (2, True)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    code, _, said = call("run", *small, "--out", tmp_path / "run", "--track", "mlflow:http://127.0.0.1:1")
    assert (code, f"{installing('tracking')}" in said) == (2, True)
    assert not (tmp_path / "run").exists()
