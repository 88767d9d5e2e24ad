"""`graphsilo federation`."""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from graphsilo.cli.federation import live as federation_live
from graphsilo.cli.federation import view as federation_view
from graphsilo.runtime.engines.nvflare.kit import Kit
from kit.status import NOW, RUNNING, kit, sites_of


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    """Ages are counted from the moment that the made-up trees name, however long the tests take."""
    monkeypatch.setattr(federation_view, "time", SimpleNamespace(time=lambda: NOW))


def test_the_command(tmp_path, monkeypatch, call):
    """``graphsilo federation status`` over what a coordinator wrote, as tables and for programs."""
    from graphsilo.runtime.engines import choice as engines

    day = datetime.timedelta(days=1)

    class Own(Kit):
        expires = datetime.datetime.now(datetime.UTC) + 29 * day

    own = Own(tmp_path, "coordinator", "coordinator", None, "")
    monkeypatch.setattr(engines, "coordinator_kit", lambda folder: own)
    status = kit(tmp_path)
    status.watch(sites_of("north", "south"))
    (tmp_path / "jobs" / RUNNING.id).mkdir(parents=True)
    (tmp_path / "jobs" / RUNNING.id / "job.json").write_text(json.dumps(asdict(RUNNING)))
    status.job(RUNNING)
    code, out, err = call("federation", "status", "--kit", tmp_path)
    assert (code, err) == (0, "")
    assert re.search(r"south +○ waiting +0 s +– +0 B +0 B", out)
    assert re.search(r"0002-fedavg +▲ interrupted", out)
    assert f"is valid until {Own.expires:%Y-%m-%d} only: `graphsilo federation renew coordinator`" in " ".join(
        out.split()
    )
    code, out, _ = call("federation", "status", "--kit", tmp_path, "--json")
    assert json.loads(out)["sites"][1]["state"] == "waiting"
    assert json.loads(out)["certificate_expires"] == Own.expires.timestamp()
    Own.expires += 2 * day
    assert "is valid until" not in call("federation", "status", "--kit", tmp_path)[1]
    assert federation_live.SHOWN_EVENTS == 5


@pytest.mark.slow
def test_a_sealed_key_lies_nowhere_else(tmp_path, call):
    from graphsilo.runtime.engines.nvflare.sealing import open_sealed

    file = tmp_path / "federation.yaml"
    file.write_text("name: f\ncoordinator: {host: 127.0.0.1}\nsilos: [er]\n")
    code, out, err = call("federation", "init", file, "--out", tmp_path / "kits", "--sealed")
    assert (code, err) == (0, "")
    assert not (tmp_path / "kits" / "er" / "key.pem").exists()
    assert (tmp_path / "kits" / "coordinator" / "key.pem").exists()
    (words,) = re.findall(r"er\.kit +([0-9a-f-]+)", out)
    assert (open_sealed(tmp_path / "kits" / "er.kit", words, tmp_path / "there") / "key.pem").exists()


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
