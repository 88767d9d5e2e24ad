"""Exit codes, errors in one paragraph, and what is imported for which command."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from graphsilo import cli
from graphsilo.errors import RunError
from kit.main import imported_by


def test_listing_imports_no_torch():
    listings = [("list", kind) for kind in ("methods", "data", "partitions", "models", "scenarios")]
    assert not imported_by(*listings) & {"torch", "torch_geometric", "sklearn", "pyarrow"}


def test_partition_imports_no_torch():
    loaded = imported_by(("partition", "--data", "citation-sbm", "--set", "data.nodes=100", "--clients", "2"))
    assert not loaded & {"torch", "torch_geometric", "sklearn"}


@pytest.mark.parametrize(
    "command", [("report",), ("compare",), ("attack",), ("predict", "--client=0", "--run"), ("gntk", "--run")]
)
@pytest.mark.parametrize("folder", ["empty", "nowhere"])
def test_a_folder_without_a_run_is_wrong_usage(call, tmp_path, command, folder):
    (tmp_path / "empty").mkdir()
    code, _, err = call(*command, tmp_path / folder)
    assert code == 2
    assert folder in err
    assert "give the folder" in err


def test_failures_exit_with_1(call, tmp_path):
    (tmp_path / "result.json").write_text("{")
    code, _, err = call("report", tmp_path)
    assert code == 1
    assert "cannot be read" in err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (RuntimeError("odd"), 1, "this is a bug in graphsilo, not your mistake: RuntimeError: odd. Run"),
        (RunError("the run is gone."), 1, "graphsilo: the run is gone."),
        (KeyboardInterrupt(), 130, "graphsilo: stopped."),
        (cli.Interrupted("stopped; continue so."), 130, "graphsilo: stopped; continue so."),
        (MemoryError(), 1, "memory ran out"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 4 bytes."), 1, "memory ran out"),
        (RuntimeError("CUDA out of memory. Tried to allocate 4 bytes."), 1, "memory ran out"),
        (PermissionError(13, "Permission denied", "/x"), 1, "the system refused: Permission denied (/x)."),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_what_becomes_of_exceptions(monkeypatch, capsys, error, code, words):
    def fail(arguments):
        raise error

    monkeypatch.setattr(cli, "_dispatch", fail)
    monkeypatch.setattr(cli, "_discard_output", lambda: None)
    assert cli.main(["run"]) == code
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err
    assert cli.main(["run", "--debug"]) == code
    if words:
        assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m graphsilo list data | head -n 1; exit ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("closed", "kind", "code"), [(">&-", "methods", 0), ("2>&-", "methods", 0), (">&- 2>&- <&-", "nonsense", 2)]
)
def test_a_stream_that_the_shell_has_closed_is_no_error(closed, kind, code):
    done = subprocess.run(
        f"{sys.executable} -m graphsilo list {kind} {closed}",
        shell=True, executable="/bin/bash", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (code, "")
    assert bool(done.stdout) == (closed == "2>&-")


@pytest.mark.slow
def test_a_run_outlasts_who_reads_its_progress(small, tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "graphsilo", "run", *small, "--rounds", "3", "--out", str(folder)]
    done = subprocess.run(
        f"{shlex.join(command)} 2>&1 | head -n 1; exit ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "result.json").exists()
    assert (folder / "report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_says_how_to_go_on(small, tmp_path, number):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "graphsilo", "run", *small, "--rounds", "100000", "--out", str(folder)]
    command += ["--set", "run.checkpoint_every=2", "--workers", "2"]
    # Tests that run in the background inherit that Ctrl-C is ignored.
    heed = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", heed, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not any((folder / "checkpoints").glob("*.ckpt")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.splitlines()[-1] == f"graphsilo: stopped; continue with `graphsilo run --resume --out {folder}`."
    assert "Traceback" not in err
    log = (folder / "log.txt").read_text().splitlines()
    assert log[-1].endswith("stopped.")
    assert Path(folder / "config.yaml").exists()


def test_a_signal_that_another_thread_receives_ends_a_command_that_waits():
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    strike = threading.Timer(0.2, lambda: signal.pthread_kill(other.ident, signal.SIGTERM))
    try:
        with cli._interrupt_on_sigterm():
            strike.start()
            with pytest.raises(KeyboardInterrupt):
                cli.wait_until_stopped()
    finally:
        done.set()
        other.join()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--lr 0.1", "there is no option --lr; the setting is 'method.lr'. Write --set method.lr=0.1."),
        ("--learning-rate=0.05", "the setting is 'method.lr'. Write --set method.lr=0.05."),
        ("--mu 0.1", "the setting is 'method.mu' (of fedpg, fedprox, moon). Write --set method.mu=0.1."),
        ("--method fedprox --mu 0.3", "the setting is 'method.mu'. Write --set method.mu=0.3."),
        ("--epochs", "the setting is 'method.local_epochs'. Write --set method.local_epochs=VALUE."),
        ("--num-clients 3", "the setting is 'partition.clients'. Write --clients 3."),
        ("--client 5", "no such option: --client"),
        (
            "--set method.learning_rate=1",
            "unknown setting 'method.learning_rate' for fedavg; did you mean 'method.lr'?",
        ),
        ("--set learning_rate=1", "unknown setting 'learning_rate'; did you mean 'method.lr'?"),
    ],
)
def test_a_setting_given_as_a_flag(call, words, text):
    code, _, err = call("run", *words.split())
    assert code == 2
    assert text in " ".join(err.split())


def test_a_command_without_settings_gives_no_hint(call):
    code, _, err = call("report", "--lr", "3")
    assert code == 2
    assert "no such option" in err
