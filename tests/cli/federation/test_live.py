"""What a coordinator shows while it works."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from graphsilo.cli.federation import view as federation_view
from graphsilo.cli.federation.live import LiveScreen, PlainScreen, draw, screen
from graphsilo.cli.progress import Tracks
from graphsilo.experiments.observer import Observer, Progress, RunStarted
from kit.status import FAILED, NOW, RUNNING, Terminal, kit, site, sites_of, text_of

DESCRIPTION = RunStarted(
    title="FedAvg", method="fedavg",
    data={"name": "hospitals", "nodes": 80, "edges": 20, "features": 3, "classes": 2},
    clients=3, rule="files", models=["gcn"], seeds=[0, 1, 2], rounds=40,
)  # fmt: skip


def event(number: int, seed: int = 1) -> Progress:
    return Progress(
        seed=seed, index=seed + 1, seeds=3, round=number, rounds=40, validation={"accuracy": number / 50}, test=None,
        best=(0.5, 10), upload_bytes=1000 * number, download_bytes=2000 * number, seconds=10.0 * number,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    """Ages are counted from the moment that the made-up trees name, however long the tests take."""
    monkeypatch.setattr(federation_view, "time", SimpleNamespace(time=lambda: NOW))


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("number", [3, 40])
def test_the_live_view_fits(tree, width, number):
    tracks = Tracks()
    tracks.begin(DESCRIPTION)
    for round in (1, 12):
        _, track = tracks.advance(event(round))
    tree["sites"] = [site(f"site-{place:02d}", "up") for place in range(number - 1)] + tree["sites"][2:]
    tree["events"].append({"at": NOW, "text": "long " * 80})
    lines = text_of(draw(tree, track, width, 24), width)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= width
    assert sum("✕ lost" in line for line in lines) == 1  # who is in trouble is never among those left out
    assert sum(line.endswith("12/40") and "━" in line for line in lines) == 1
    said = " ".join(line.strip() for line in lines)
    # 110 s for 11 rounds, 68 to come
    assert "FedAvg, seed 1 (2/3): round 12/40, validation accuracy 24.0 %, best 50.0 % in round 10" in said
    assert "about 11:20 left" in said
    assert [line.split()[-1] for line in lines[-5:-1]] == ["4", "3", "2", "1"]
    assert ("… and 30 more sites" in said) == (number == 40)


def test_the_live_view_without_rounds(tree):
    tree["sites"] = [site("north", "up"), site("south", "waiting")]
    assert any("waits for south, for 6 min 30 s" in line for line in text_of(draw(tree, None, 80, 24), 80))
    tree["sites"] = []
    assert any("gets ready, for 6 min 30 s" in line for line in text_of(draw(tree, None, 80, 24), 80))
    tree["job"]["work"] = "server: surrogate, 3 of 100 steps"
    assert any("server: surrogate, 3 of 100 steps, for 6 min" in line for line in text_of(draw(tree, None, 80, 24), 80))
    tree["job"]["state"] = "failed"
    assert any(
        "no job runs; the last one, 0002-fedavg, is failed" in line for line in text_of(draw(tree, None, 80, 24), 80)
    )
    tree.update(job=None, events=[])
    assert any("○ no job runs" in line for line in text_of(draw(tree, None, 80, 24), 80))


def test_lines_for_a_pipe(tmp_path, capsys):
    status = kit(tmp_path)
    show = screen(status, quiet=False)  # the test's stderr is no terminal
    assert isinstance(show, PlainScreen)
    status.say("coordinator of 'hospitals'")
    observer = show.observer()
    status.job(RUNNING)
    observer.on_start(DESCRIPTION)
    observer.on_progress(event(4))
    observer.on_warning("told as an event already")
    status.say("site 'south'\x1b[2J\nis lost")
    show.close()
    moments, lines = zip(*((line[:20], line[20:]) for line in capsys.readouterr().err.splitlines()), strict=True)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", moment) for moment in moments)
    assert lines[0] == "coordinator of 'hospitals'"
    assert lines[1].startswith("FedAvg on hospitals (80 nodes")
    assert lines[2].startswith("FedAvg, seed 1 (2/3): round 4/40, validation accuracy 8.0 %")
    assert lines[3:] == ("site 'south' [2J is lost",)  # a job that was stopped has no last seed that is done
    observer = show.observer()
    observer.on_start(DESCRIPTION)
    observer.on_progress(event(4))
    status.job(replace(RUNNING, state="done"))
    show.close()
    show.close()
    ends = [line for line in capsys.readouterr().err.splitlines() if "done after" in line]
    assert len(ends) == 1
    assert "done after 4 rounds (stopped early)" in ends[0]


def test_quiet(tmp_path, capsys):
    status = kit(tmp_path)
    show = screen(status, quiet=True)
    assert type(show.observer()) is Observer  # which ignores everything
    status.say("nothing of this")
    show.result(tmp_path / "out")
    assert capsys.readouterr() == (f"{tmp_path / 'out'}\n", "")


def test_a_live_screen(tmp_path, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.setenv("TERM", "xterm")
    status = kit(tmp_path)
    show = screen(status, quiet=False)
    assert isinstance(show, LiveScreen)
    status.say("status page: http://127.0.0.1:8800/")
    observer = show.observer()
    status.watch(sites_of("north", "south"))
    status.job(RUNNING)
    status.say("job begins")
    observer.on_start(DESCRIPTION)
    for progress in (event(40, seed=0), event(1), event(2)):
        observer.on_progress(progress)
        status.on_progress(progress)
    observer.on_warning("told as an event already")
    show._live.refresh()
    view = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    assert view.count("status page: ") == 1  # stays above
    assert "FedAvg, seed 0 (1/3): done after 40 rounds" in view
    assert "○ waiting" in view
    assert "about 13:00 left" in view
    assert "job begins" in view
    assert "told as an event" not in view
    show.close()
    show.close()
    status.say("after the end")
    assert "seed 1 (2/3): done" not in stream.getvalue()
    assert "after the end" not in stream.getvalue()
    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")  # the cursor is back
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(screen(status, quiet=False), PlainScreen)


def test_a_failed_job_leaves_nothing_to_the_next(tmp_path, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    status = kit(tmp_path)
    show = LiveScreen(status, stream)
    first = show.observer()
    status.job(RUNNING)
    first.on_start(DESCRIPTION)
    first.on_progress(event(3))
    status.job(FAILED)
    second = show.observer()
    status.job(replace(RUNNING, id="0003-fedprox"))
    second.on_start(replace(DESCRIPTION, title="FedProx"))
    assert show.tracks.current is None
    show.close()
    assert "done after" not in stream.getvalue()
