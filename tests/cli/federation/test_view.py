"""A federation in the terminal: its status as tables, the live view, and lines for a pipe."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphsilo.cli.federation import live as federation_live
from graphsilo.cli.federation import view as federation_view
from graphsilo.cli.federation.live import LiveScreen, PlainScreen, draw, screen
from graphsilo.cli.federation.view import age, nearer, printable, show_status
from graphsilo.cli.progress import Tracks
from graphsilo.experiments.observer import Progress, Silent
from graphsilo.experiments.service.jobs import Job
from graphsilo.experiments.service.watch import Status
from graphsilo.runtime.remote.sites import RemoteSites

NOW = time.time()
DESCRIPTION = {
    "label": "FedAvg", "data": {"name": "hospitals", "nodes": 80, "edges": 20, "features": 3, "classes": 2},
    "clients": 3, "rule": "files", "models": ["gcn"], "seeds": [0, 1, 2], "rounds": 40,
}  # fmt: skip
RUNNING = Job("0002-fedavg", "running", NOW - 400, "fedavg", "/srv/kit/jobs/0002-fedavg/out", started=NOW - 390.0)
FAILED = Job(
    "0001-local", "failed", NOW - 900, "local", "/srv/kit/jobs/0001-local/out", started=NOW - 800,
    finished=NOW - 700, error="3 clients have to take part, 2 do.",
)  # fmt: skip


def event(number: int, seed: int = 1) -> Progress:
    return Progress(
        seed=seed, index=seed + 1, seeds=3, round=number, rounds=40, validation={"accuracy": number / 50}, test=None,
        best=(0.5, 10), upload_bytes=1000 * number, download_bytes=2000 * number, seconds=10.0 * number,
    )  # fmt: skip


def site(name: str, state: str, *silos: str, note: str = "") -> dict[str, Any]:
    return {
        "site": name, "clients": [0], "silos": list(silos or [name]), "state": state, "since": NOW - 125.5,
        "seconds": 3.21, "sent": 13_000_000, "received": 6_500_000, "losses": 0, "note": note,
    }  # fmt: skip


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    """Ages are counted from the moment that the made-up trees name, however long the tests take."""
    monkeypatch.setattr(federation_view, "time", SimpleNamespace(time=lambda: NOW))


@pytest.fixture
def tree() -> dict[str, Any]:
    rows = [
        {"seed": 1, "round": number, "validation": {"accuracy": number / 50}, "test": {}, "seconds": 10.0 * number}
        for number in range(1, 13)
    ]
    progress = {"seed": 1, "index": 2, "seeds": 3, "round": 12, "rounds": 40, "best": [0.5, 10], "seconds": 120.0}
    return {
        "federation": "hospitals", "engine": "nvflare", "pid": 42, "since": NOW - 7923.5, "at": NOW, "serving": True,
        "job": {**asdict(RUNNING), **progress},
        "sites": [
            site("north", "up"),
            site("west", "working", "heart", "lung", note="a worker died"),
            site("south", "lost", note="no heartbeat for 60 seconds"),
        ],
        "rounds": rows,
        "events": [{"at": NOW - number, "text": f"event {number}"} for number in range(8, 0, -1)],
    }  # fmt: skip


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def text_of(part: Any, width: int) -> list[str]:
    """What a terminal of this width shows, without colours."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, height=30, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(part)
    return [line.rstrip() for line in captured.get().splitlines()]


def kit(folder: Path) -> Status:
    return Status(folder, "hospitals", {0: "north", 1: "south"}, "nvflare", {"north": [0], "south": [1]})


class NoTransport:
    """Nobody is asked in these tests."""


def sites_of(*names: str) -> RemoteSites:
    return RemoteSites(NoTransport(), {name: [number] for number, name in enumerate(names)}, "run")  # type: ignore[arg-type]


def test_the_status_in_a_pipe(tree, capsys):
    show_status(tree, [FAILED, RUNNING])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "hospitals: serving for 2 h 12 min (process 42), engine NVIDIA FLARE"
    rows = [re.split(r" {2,}", line) for line in lines]
    assert rows[2] == ["site", "silos", "state", "for", "answer", "to it", "from it"]
    assert rows[3] == ["north", "north", "● up", "2 min 05 s", "3.2 s", "13.0 MB", "6.5 MB"]
    assert rows[4][:3] == ["west", "heart, lung", "▶ working"]
    assert rows[5][2] == "✕ lost"
    assert rows[7] == ["job", "state", "round", "best %", "took", "left", "results"]
    assert rows[8] == ["0001-local", "✕ failed", "1 min 40 s", "/srv/kit/jobs/0001-local/out"]
    # 10 s a round: 28 rounds of this seed, 40 of the next
    assert rows[9][:4] == ["0002-fedavg", "▶ running", "12/40 of seed 2/3", "50.0"]
    assert rows[9][5:] == ["11:20", "/srv/kit/jobs/0002-fedavg/out"]
    assert lines[11:] == ["south: no heartbeat for 60 seconds", "0001-local: 3 clients have to take part, 2 do."]


@pytest.mark.parametrize("width", [70, 80, 100, 200])
def test_the_status_fits_a_terminal(tree, monkeypatch, width):
    tree["sites"][1].update(site="university-of-the-west", silos=["cardiology", "oncology", "surgery"])
    stdout = Terminal()
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    show_status(tree, [FAILED, RUNNING])
    lines = re.sub(r"\x1b\[[0-9;]*m", "", stdout.getvalue()).splitlines()
    assert max(map(len, lines)) <= width
    assert sum("▶ working" in line and "13.0 MB" in line for line in lines) == 1
    assert sum("/srv/kit/jobs/0002-fedavg/out" in line for line in lines) == 1
    assert any("✕ lost" in line for line in lines)
    assert any("cardiology, oncology, surgery" in line for line in lines) == (width == 200)
    assert sum(line.startswith("Results of ") for line in lines) == (0 if width >= 120 else 2)


def test_the_status_of_a_coordinator_that_ended(tree, capsys):
    tree.update(serving=False, at=NOW - 7200.5)
    tree["sites"] = [dict(site("north", "up"), since=NOW - 7202)]
    show_status(tree, [RUNNING])
    out = capsys.readouterr().out
    assert "hospitals: not serving; what follows is 2 h 00 min old" in out
    assert re.search(r"north +● up +1 s", out)
    assert re.search(r"▲ interrupted +12/40 of seed 2/3 +50.0 +0 s +/srv", out)
    show_status({"serving": False}, [])
    assert capsys.readouterr().out == "Nobody has served this kit yet: start it with `graphsilo serve`.\n"
    show_status({**tree, "serving": True, "sites": [], "job": None}, [])
    assert "No job yet: `graphsilo federation submit CONFIG.yaml`" in capsys.readouterr().out


def test_what_a_site_says_cannot_steer_the_terminal(tree, capsys):
    hostile = "died\n\x1b[2J\x1b]0;title\x07\r\u202e\x9b31m" + "x" * 10_000
    tree["sites"][2].update(note=hostile, site=hostile[:20], silos=[hostile[:20]])
    tree["events"].append({"at": NOW, "text": hostile})
    show_status(tree, [replace(FAILED, error=hostile, out=hostile[:30])])
    shown = capsys.readouterr().out + "\n".join(text_of(draw(tree, None, 100, 30), 100))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown)
    assert "x" * (federation_view.LONGEST_TEXT + 1) not in shown
    assert printable("plain – text ✓") == "plain – text ✓"


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
    assert "FedAvg, seed 1 (2/3): round 12/40, validation 24.0 %, best 50.0 % in round 10" in said
    assert "about 11:20 left" in said
    assert [line.split()[-1] for line in lines[-5:-1]] == ["4", "3", "2", "1"]
    assert ("… and 30 more sites" in said) == (number == 40)


def test_the_live_view_without_rounds(tree):
    tree["sites"] = [site("north", "up"), site("south", "waiting")]
    assert any("waits for south, for 6 min 30 s" in line for line in text_of(draw(tree, None, 80, 24), 80))
    tree["sites"] = []
    assert any("gets ready, for 6 min 30 s" in line for line in text_of(draw(tree, None, 80, 24), 80))
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
    observer.started(DESCRIPTION)
    observer.progressed(event(4))
    observer.warned("told as an event already")
    status.say("site 'south'\x1b[2J\nis lost")
    show.close()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "coordinator of 'hospitals'"
    assert lines[1].startswith("FedAvg on hospitals (80 nodes")
    assert lines[2].startswith("FedAvg, seed 1 (2/3): round 4/40, validation 8.0 %")
    assert lines[3:] == ["site 'south' [2J is lost"]  # a job that was stopped has no last seed that is done
    observer = show.observer()
    observer.started(DESCRIPTION)
    observer.progressed(event(4))
    status.job(replace(RUNNING, state="done"))
    show.close()
    show.close()
    ends = [line for line in capsys.readouterr().err.splitlines() if "done after" in line]
    assert len(ends) == 1
    assert "done after 4 rounds (stopped early)" in ends[0]


def test_quiet(tmp_path, capsys):
    status = kit(tmp_path)
    show = screen(status, quiet=True)
    assert isinstance(show.observer(), Silent)
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
    observer.started(DESCRIPTION)
    for progress in (event(40, seed=0), event(1), event(2)):
        observer.progressed(progress)
        status.progressed(progress)
    observer.warned("told as an event already")
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
    first.started(DESCRIPTION)
    first.progressed(event(3))
    status.job(FAILED)
    second = show.observer()
    status.job(replace(RUNNING, id="0003-fedprox"))
    second.started({**DESCRIPTION, "label": "FedProx"})
    assert show.tracks.current is None
    show.close()
    assert "done after" not in stream.getvalue()


def test_ages_and_paths(tmp_path, monkeypatch):
    assert [age(value) for value in (-3, 59.9, 60, 3599, 3600, 86399, 90000)] == [
        "0 s", "59 s", "1 min 00 s", "59 min 59 s", "1 h 00 min", "23 h 59 min", "1 d 1 h",
    ]  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert nearer(str(tmp_path / "kit" / "out")) == str(Path("kit", "out"))
    assert nearer("/srv/x") == "/srv/x"


def test_the_command(tmp_path, monkeypatch, call):
    """``graphsilo federation status`` over what a coordinator wrote, as tables and for programs."""
    from graphsilo.runtime.engines import choice as engines

    class Kit:
        folder = tmp_path

    monkeypatch.setattr(engines, "coordinator_kit", lambda folder: Kit)
    status = kit(tmp_path)
    status.watch(sites_of("north", "south"))
    (tmp_path / "jobs" / RUNNING.id).mkdir(parents=True)
    (tmp_path / "jobs" / RUNNING.id / "job.json").write_text(json.dumps(asdict(RUNNING)))
    status.job(RUNNING)
    code, out, err = call("federation", "status", "--kit", tmp_path)
    assert (code, err) == (0, "")
    assert re.search(r"south +○ waiting +0 s +– +0 B +0 B", out)
    assert re.search(r"0002-fedavg +▲ interrupted", out)
    code, out, _ = call("federation", "status", "--kit", tmp_path, "--json")
    assert json.loads(out)["sites"][1]["state"] == "waiting"
    assert federation_live.SHOWN_EVENTS == 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["federation", "submit", "--continue", "2", "--set", "method.rounds=3"], "leave out --set"),
        (["federation", "submit", "--continue", "2", "--out", "there"], "leave out --out"),
        (["federation", "submit", "--continue", "2", "--without", "er"], "leave out --without"),
        (["serve", "KIT", "--set", "method.rounds=3"], "--set is about a CONFIG.yaml"),
        (["serve", "KIT", "--out", "there"], "--out is about a CONFIG.yaml"),
    ],
)
def test_what_would_have_no_effect_is_refused(arguments, words, tmp_path, monkeypatch, call):
    from graphsilo.runtime.engines import choice as engines

    class Kit:
        folder = tmp_path

    monkeypatch.setattr(engines, "coordinator_kit", lambda folder: Kit)
    stopped = replace(RUNNING, state="stopped")
    (tmp_path / "jobs" / RUNNING.id).mkdir(parents=True)
    (tmp_path / "jobs" / RUNNING.id / "job.json").write_text(json.dumps(asdict(stopped)))
    code, _, err = call(*arguments)
    assert code == 2
    assert words in err.replace("\n", " ")
    assert json.loads((tmp_path / "jobs" / RUNNING.id / "job.json").read_text())["state"] == "stopped"


def test_a_job_without_a_silo(tmp_path, monkeypatch, call):
    """Both ways of saying it; names are those of the federation, and somebody must be left."""
    from graphsilo.experiments.config import load_config
    from graphsilo.runtime.engines import choice as engines

    class Kit:
        folder = tmp_path
        silos = {"north": 0, "er": 1, "icu": 2}  # noqa: RUF012

    monkeypatch.setattr(engines, "coordinator_kit", lambda folder: Kit)
    config = tmp_path / "config.yaml"
    config.write_text("method: fedridge\n")
    for place, words in enumerate((["--without", "er,2"], ["--set", "run.without=[er, 2]"])):
        code, out, err = call("federation", "submit", config, *words)
        assert (code, err) == (0, ""), out
        job = tmp_path / "jobs" / f"000{place + 1}-fedridge" / "config.yaml"
        assert load_config(job).run.without == [2, "er"]
    for words, told in (
        (["--without", "err"], "names 'err', which is no client; did you mean 'er'?"),
        (["--without", "3"], "names client 3, and there are 3, numbered 0 to 2"),
        (["--without", "north,1,icu"], "leaves out all 3 clients"),
        (["--without", "er", "--set", "run.without=[icu]"], "contradict each other"),
    ):
        code, _, err = call("federation", "submit", config, *words)
        assert code == 2
        assert told in err.replace("\n", " ")
    assert len(list((tmp_path / "jobs").iterdir())) == 2
