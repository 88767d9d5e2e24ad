"""Imports without the collector."""

import gc
import os
import subprocess
import sys

from graphsilo.loading import command, load, without_collector


def test_the_collector_rests_inside_and_is_as_it_was_after():
    with without_collector():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with without_collector():
            pass
        assert not gc.isenabled()  # whoever switched it off goes on without
    finally:
        gc.enable()


def test_what_is_there_already_freezes_nothing():
    before = gc.get_freeze_count()
    load("graphsilo.loading", "graphsilo.errors")
    assert gc.get_freeze_count() == before


def test_a_process_of_our_own_has_its_arguments_one_thread_and_imports_that_nothing_looks_through(tmp_path):
    (tmp_path / "started_here.py").write_text(
        "import gc, os, sys\n"
        "made = [[] for _ in range(10_000)]\n"
        "def main():\n"
        "    print(sys.argv, os.environ['OMP_NUM_THREADS'], gc.isenabled(), gc.get_freeze_count() > 10_000)\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"} | {"PYTHONPATH": path}
    started = [sys.executable, *command("started_here", "7", "--x")]
    found = subprocess.run(started, check=True, capture_output=True, text=True, env=environment)
    assert found.stderr == ""
    assert found.stdout == "['started_here', '7', '--x'] 1 True True\n"
