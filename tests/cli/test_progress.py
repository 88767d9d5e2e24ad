"""What is said of rounds, with hand-made events."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from graphsilo.cli.progress import LiveProgress, Log, PlainProgress, Tracks, headline, round_line, score, short_time
from graphsilo.experiments.observer import Progress, RunStarted, Several, Working

DESCRIPTION = RunStarted(
    title="FedAvg", method="fedavg", data={"name": "toy", "nodes": 8, "edges": 20, "features": 3, "classes": 2},
    clients=2, rule="random", models=["gcn"], seeds=[4, 5], rounds=10,
)  # fmt: skip


def event(number: int, *, seed: int = 4, rounds: int = 10, seconds: float = 1.0, measured: bool = True) -> Progress:
    return Progress(
        seed=seed, index=1 if seed == 4 else 2, seeds=2, round=number, rounds=rounds,
        validation={"accuracy": number / (2 * rounds)} if measured else None, test=None, best=(0.5, 3),
        upload_bytes=1000 * number, download_bytes=2000 * number, seconds=seconds,
    )  # fmt: skip


def test_a_line_about_every_tenth_of_the_rounds():
    lines: list[str] = []
    observer = PlainProgress(lines.append)
    observer.on_start(replace(DESCRIPTION, rounds=40))
    dated = replace(DESCRIPTION, bounds="training up to 2025-07-31")
    assert ": random, 2 clients, by time (training up to 2025-07-31); gcn;" in headline(dated)
    assert "by time" not in headline(replace(dated, label="local"))  # as above it
    for number in range(1, 41):
        observer.on_progress(event(number, rounds=40))
    assert lines[0] == (
        "FedAvg on toy (8 nodes, 20 edges, 3 features, 2 classes): random, 2 clients; gcn; 40 rounds; seeds 4, 5"
    )
    assert len(lines) == 1 + 9 + 1
    assert lines[-1] == (
        "FedAvg, seed 4 (1/2): done after 40 rounds, best validation accuracy 50.0 % in round 3, sent 40.0 kB, "
        "received 80.0 kB, 1.0 s"
    )


def test_where_it_is_brief_a_line_per_row_and_one_after_a_long_silence():
    lines: list[str] = []
    observer = PlainProgress(lines.append, is_brief=True)
    for row in (DESCRIPTION, replace(DESCRIPTION, label="local")):
        observer.on_start(row)
        for seed in (4, 5):
            for number in range(1, 11):
                observer.on_progress(event(number, seed=seed))
    observer.finish()
    assert [line.split(" on ")[0] for line in lines] == ["FedAvg", "Local only"]
    observer.on_start(DESCRIPTION)
    observer._reported -= 61
    observer.on_progress(event(3))
    observer.on_progress(event(4))
    observer._reported -= 61
    observer.on_progress(event(10))
    observer.on_warning("careful")
    assert ["round 3/10" in lines[3], "done after 10 rounds" in lines[4], lines[5:]] == [
        True,
        True,
        ["warning: careful"],
    ]


def test_the_end_of_a_seed_is_noticed_when_it_stops_early():
    lines: list[str] = []
    observer = PlainProgress(lines.append)
    observer.on_start(DESCRIPTION)
    observer.on_progress(event(6))
    observer.on_progress(event(1, seed=5))
    assert any(line.startswith("FedAvg, seed 4 (1/2): done after 6 rounds (stopped early)") for line in lines)
    observer.on_start(replace(DESCRIPTION, label="local"))
    observer.on_progress(event(10))
    observer.finish()
    assert [line.split(",")[0] for line in lines if "done after" in line] == ["FedAvg", "FedAvg", "Local only"]
    observer.finish()
    assert sum("done after" in line for line in lines) == 3


def test_time_left_counts_the_seeds_that_follow():
    tracks = Tracks()
    tracks.begin(DESCRIPTION)
    _, track = tracks.advance(event(1, seconds=5.0))  # set-up and the first round
    assert track.remaining is None
    _, track = tracks.advance(event(3, seconds=9.0))  # 2 s a round
    assert track.remaining == pytest.approx(2.0 * (7 + 10))
    assert round_line(track) == (
        "FedAvg, seed 4 (1/2): round 3/10, validation accuracy 15.0 %, best 50.0 % in round 3, sent 3.0 kB, "
        "received 6.0 kB, 9.0 s, about 0:34 left"
    )


def test_errors_are_in_their_own_units():
    tracks = Tracks()
    tracks.begin(replace(DESCRIPTION, config={"evaluation": {"select_by": "mae"}}))
    _, track = tracks.advance(replace(event(3), validation={"mae": 1.447, "rmse": 2.0}, best=(0.971, 2)))
    assert "validation MAE 1.447, best 0.971 in round 2, sent" in round_line(track)


def test_a_round_that_was_not_evaluated_keeps_the_last_score():
    tracks = Tracks()
    tracks.begin(DESCRIPTION)
    tracks.advance(event(2))
    _, track = tracks.advance(event(3, measured=False))
    assert track.validation == pytest.approx(0.1)
    assert score(None) is None
    assert score({"auc": 0.7, "ap": 0.1}) == ("auc", 0.7)
    assert score({"accuracy": 0.9, "macro_f1": 0.4}, "macro_f1") == ("macro_f1", 0.4)
    assert score({"accuracy": None}) is None
    assert score({"accuracy": 0.99, "macro_f1": 0.5}, "macro_f1") == ("macro_f1", 0.5)  # by which rounds are chosen


def test_times():
    assert [short_time(value) for value in (0.2, 7, 760, 3723)] == ["0:00", "0:07", "12:40", "1:02:03"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [80, 120])
def test_live_lines_fit_the_terminal(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    live = LiveProgress(screen)
    live.on_start(replace(DESCRIPTION, rounds=1000))
    for number in (1, 500, 1000):
        live.on_progress(event(number, rounds=1000))
    row = live._row(live.tracks.current)
    assert len(row.plain) <= width - 2  # room for ^C
    assert "1000/1000" in row.plain
    assert ("━" in row.plain) == (width == 120)
    live.on_progress(event(1, seed=5, rounds=1000))
    live.on_warning("careful")
    live.finish()
    text = screen.getvalue()
    assert text.count("✓") == 2
    assert "Warning: careful" in text
    live.finish()  # a second time changes nothing


def test_the_servers_work_is_shown_until_a_round_ends(monkeypatch):
    working = Working(seed=4, index=1, seeds=2, name="surrogate", step=3, steps=100, seconds=1.0)
    lines: list[str] = []
    plain = PlainProgress(lines.append)
    plain.on_start(DESCRIPTION)
    plain.on_work(working)
    assert len(lines) == 1  # something was said a moment ago
    plain._reported -= 61
    plain.on_work(working)
    assert lines[1:] == ["server: surrogate, 3 of 100 steps"]
    monkeypatch.setenv("TERM", "xterm")
    live = LiveProgress(Terminal())
    Several(live, plain).on_start(DESCRIPTION)
    Several(live, plain).on_work(working)
    assert str(live._draw().text) == "server: surrogate, 3 of 100 steps"
    live.on_progress(event(1))
    assert "1/10" in live._draw().plain
    live.finish()


def test_a_log_holds_no_secrets_and_is_no_other_file(tmp_path, capsys):
    """A folder from elsewhere may have a link in the log's place."""
    log = Log(tmp_path / "log.txt")
    log("failed: no answer from http://me:S3cret@host/")
    assert (tmp_path / "log.txt").read_text().endswith(" failed: no answer from http://***@host/\n")
    profile = tmp_path / "profile"
    profile.write_text("mine\n")
    (tmp_path / "link.txt").symlink_to(profile)
    Log(tmp_path / "link.txt")("$(evil)")
    assert profile.read_text() == "mine\n"
    assert "is not continued" in capsys.readouterr().err


def test_a_log_that_cannot_be_written_is_given_up(tmp_path, capsys):
    log = Log(tmp_path / "gone" / "log.txt")
    log("one")
    log("two")
    assert capsys.readouterr().err.count("is not continued") == 1
