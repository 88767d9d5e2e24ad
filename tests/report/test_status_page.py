"""The status page: what it answers, whom it refuses, and what a browser makes of it."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from graphsilo.errors import ConfigError, RunError
from graphsilo.report.status_page import (
    LONGEST_TEXT,
    MAX_CONNECTIONS,
    StatusPage,
    build_content,
    current_rounds,
    time_left,
)
from kit.pages import Visit

NOW = 1_800_000_000.0
HOSTILE = "</script><script>window.smuggled = 1</script><img src=x onerror='window.smuggled = 1'>"


def site(name: str, state: str, **other: Any) -> dict[str, Any]:
    return {
        "site": name, "clients": [0], "silos": [name], "state": state, "since": NOW - 65, "seconds": 1.5,
        "sent": 1_500_000, "received": 2_000, "losses": 0, "note": "", **other,
    }  # fmt: skip


def make_tree() -> dict[str, Any]:
    """Three sites, a job at round 12 of 40 in the second of three seeds."""
    job = {
        "id": "0002-fedavg", "state": "running", "submitted": NOW - 400, "started": NOW - 390, "finished": 0.0,
        "method": "fedavg", "out": "jobs/0002-fedavg/out", "error": "",
    }  # fmt: skip
    rows = [
        {"seed": seed, "round": number, "validation": {"accuracy": number / 20}, "test": {"accuracy": number / 25}}
        for seed, last in ((0, 40), (1, 12))
        for number in range(1, last + 1)
    ]
    progress = {
        "seed": 1, "index": 2, "seeds": 3, "round": 12, "rounds": 40, "best": [0.6, 12], "upload_bytes": 1_000_000,
        "download_bytes": 2_000_000, "seconds": 120.0,
    }  # fmt: skip
    return {
        "federation": "hospitals",
        "engine": "nvflare",
        "pid": 1,
        "since": NOW - 7500,
        "at": NOW,
        "job": {**job, **progress},
        "sites": [
            site("north", "up"),
            site("west", "working", silos=["heart", "lung"]),
            site("south", "lost", note="no heartbeat"),
        ],
        "rounds": rows,
        "events": [{"at": NOW - 5, "text": "site 'south' is lost"}],
        "jobs": [{**job, "id": "0001-local", "state": "failed", "error": "too few clients"}, job],
    }


@pytest.fixture
def tree() -> dict[str, Any]:
    return make_tree()


@pytest.fixture
def page(tree: dict[str, Any]) -> Iterator[StatusPage]:
    served = StatusPage(lambda: tree, 0)
    served.start()
    yield served
    served.close()


def ask_again(connection: http.client.HTTPConnection) -> None:
    connection.request("GET", "/status.json")
    connection.getresponse()


def port_of(page: StatusPage) -> int:
    return int(page.address.rstrip("/").rpartition(":")[2])


def ask(page: StatusPage, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", port_of(page), timeout=10)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()


def ask_raw(page: StatusPage, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port_of(page)), timeout=10) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_the_rounds_of_what_trains_now() -> None:
    rows = [(0, 1), (0, 2), (1, 1), (1, 2), (1, 1), (1, 2), (1, 3)]  # seed 1 again: the reference after the run
    found = current_rounds({"rounds": [{"seed": seed, "round": number} for seed, number in rows]})
    assert [row["round"] for row in found] == [1, 2, 3]
    assert current_rounds({"rounds": []}) == []
    assert current_rounds({}) == []


def test_time_left(tree: dict[str, Any]) -> None:
    # 12 rounds took 120 s; 28 of this seed and 40 of the next are to come
    assert time_left(tree) == pytest.approx(680.0)
    for row in tree["rounds"]:
        row["seconds"] = 9.0 * row["round"] + 12.0  # 12 s of set-up
    assert time_left(tree) == pytest.approx((120.0 - 21.0) / 11 * 68)
    assert time_left({**tree, "rounds": []}) is None
    assert time_left({**tree, "job": {**tree["job"], "state": "done"}}) is None
    assert time_left({**tree, "job": None}) is None


def test_a_run_that_went_on_from_round_20_counts_what_it_did_itself(tree: dict[str, Any]) -> None:
    tree["rounds"] = [{"seed": 1, "round": number} for number in (21, 22)]
    tree["job"].update(round=22, seconds=10.0, seeds=2)
    assert time_left(tree) == pytest.approx(18 * 5.0)


def test_json(page: StatusPage, tree: dict[str, Any]) -> None:
    tree["sites"][0]["seconds"] = math.nan
    tree["sites"][1]["note"] = "x" * 5000
    status, headers, body = ask(page, "/status.json")
    assert status == 200
    assert headers["content-type"] == "application/json; charset=utf-8"
    assert headers["cache-control"] == "no-store"
    told = json.loads(body)
    assert told["sites"][0]["seconds"] is None
    assert len(told["sites"][1]["note"]) == LONGEST_TEXT + 2
    assert [row["seed"] for row in told["rounds"]] == [1] * 12
    assert told["left"] == pytest.approx(680.0)
    assert told["federation"] == "hospitals"
    tree["job"] = None
    assert json.loads(ask(page, "/status.json?again")[2])["job"] is None


def test_for_programs_that_watch(page: StatusPage, tree: dict[str, Any]) -> None:
    status, headers, body = ask(page, "/metrics")
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    lines = body.splitlines()
    assert {
        'graphsilo_site_up{site="west"} 1.0', 'graphsilo_site_up{site="south"} 0.0',
        'graphsilo_site_sent_bytes{site="north"} 1500000.0', 'graphsilo_jobs{state="failed"} 1.0',
        'graphsilo_jobs{state="done"} 0.0', "graphsilo_job_round 12.0", "graphsilo_job_best_validation 0.6",
        "# TYPE graphsilo_job_rounds gauge",
    } <= set(lines)  # fmt: skip
    assert not any(line.startswith("graphsilo_certificate") for line in lines)
    tree.update(job=None, sites=[], certificate_expires=NOW)
    assert "graphsilo_certificate_expiry_timestamp_seconds 1800000000.0" in ask(page, "/metrics")[2]
    assert ask(page, "/health")[::2] == (200, "ok\n")
    assert ask(page, "/healthy")[2] == "There is the page / and, for programs, /status.json, /metrics, /health."


def test_only_looking(page: StatusPage) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "get"):
        status, headers, body = ask(page, "/status.json", method)
        assert status == 405, method
        assert headers["allow"] == "GET, HEAD"
        assert headers["connection"] == "close"
        assert "hospitals" not in body
    for path in ("/", "/status.json"):
        status, headers, body = ask(page, path, "HEAD")
        assert (status, body) == (200, "")
        assert int(headers["content-length"]) > 100
    for path in ("/x", "/../etc/passwd", "/status.json/", "/index.html", "http://127.0.0.1/"):
        assert ask(page, path)[0] == 404, path


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:8800", "[::1]:8800"])
def test_this_machine_may_ask(page: StatusPage, host: str) -> None:
    assert ask(page, "/status.json", Host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.", "localhost:", "0.0.0.0", "::1", ""],
)
def test_another_name_is_refused(page: StatusPage, host: str) -> None:
    for path in ("/", "/status.json", "/x"):
        status, _, body = ask(page, path, Host=host)
        assert status == 403
        assert "hospitals" not in body
    assert ask(page, "/status.json", "POST", Host=host)[0] == 405


def test_a_request_without_a_name_or_with_two(page: StatusPage) -> None:
    assert ask_raw(page, b"GET /status.json HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 403")
    both = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
    assert ask_raw(page, both).startswith(b"HTTP/1.1 403")
    assert b"hospitals" not in ask_raw(page, b"GET /status.json\r\n\r\n")


def test_what_is_no_http(page: StatusPage) -> None:
    for request in (
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"A" * 70000 + b"\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n",
        b"",
    ):
        answer = ask_raw(page, request)
        assert b"Traceback" not in answer
        assert b"<html" not in answer.lower()
    request = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
    smuggled = request % (b"x", b"Content-Length: 40\r\n") + request % (b"status.json", b"")
    assert b"hospitals" not in ask_raw(page, smuggled)  # what follows a body that is not read is not answered
    assert ask(page, "/status.json")[0] == 200


def test_headers_that_keep_others_out(page: StatusPage) -> None:
    for path, host in (("/", "localhost"), ("/status.json", "localhost"), ("/", "evil.example"), ("/x", "localhost")):
        _, headers, _ = ask(page, path, Host=host)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "connect-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
        assert "python" not in headers["server"].lower()


def test_what_others_write_is_never_markup(page: StatusPage, tree: dict[str, Any]) -> None:
    tree["federation"] = HOSTILE
    tree["sites"][0].update(site=HOSTILE, note=HOSTILE, silos=[HOSTILE])
    tree["events"].append({"at": NOW, "text": "\ud800 a broken sign \u2028"})
    status, _, body = ask(page)
    assert status == 200
    assert "<script>window" not in body
    assert "<img" not in body
    assert body.count("</script>") == 2
    assert ask(page, "/status.json")[0] == 200


def test_a_status_that_cannot_be_told(page: StatusPage, tree: dict[str, Any]) -> None:
    tree["rounds"] = [{"seed": 1}, {}]
    for path in ("/", "/status.json"):
        status, _, body = ask(page, path)
        assert status == 500
        assert body == "The status cannot be read just now."


def test_it_listens_on_this_machine_only(page: StatusPage) -> None:
    assert page.address.startswith("http://127.0.0.1:")
    assert page._server is not None
    assert page._server.socket.getsockname()[0] == "127.0.0.1"
    with pytest.raises(OSError), socket.create_connection(("127.0.0.2", port_of(page)), timeout=2):
        pass


def test_a_port_in_use_is_one_paragraph(page: StatusPage, tree: dict[str, Any]) -> None:
    second = StatusPage(lambda: tree, port_of(page))
    with pytest.raises(RunError, match=r"that port cannot be had .*choose another with --page") as caught:
        second.start()
    assert "\n" not in str(caught.value)
    second.close()
    with pytest.raises(ConfigError, match="between 0 and 65535; got 70000"):
        StatusPage(lambda: tree, 70000)


def test_closing_ends_open_connections(tree: dict[str, Any]) -> None:
    page = StatusPage(lambda: tree, 0)
    page.start()
    page.start()
    connection = http.client.HTTPConnection("127.0.0.1", port_of(page), timeout=10)
    connection.request("GET", "/status.json")
    assert connection.getresponse().read()
    page.close()
    page.close()
    connection.auto_open = 0
    with pytest.raises((OSError, http.client.HTTPException)):  # in asking or in reading, as the system has it
        ask_again(connection)
    connection.close()
    again = StatusPage(lambda: tree, port_of(page))  # the port is free at once
    again.start()
    again.close()


def test_shown_keeps_the_tree_as_it_was(tree: dict[str, Any]) -> None:
    before = json.dumps(tree)
    build_content(tree)
    assert json.dumps(tree) == before
    assert build_content({"federation": "x", "sites": [], "job": None, "rounds": [], "events": []})["left"] is None


# -- in a browser -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_follows_the_federation(browser: Any, page: StatusPage, tree: dict[str, Any]) -> None:
    visit = Visit(browser, page.address, viewport={"width": 1100, "height": 900})
    row = "#sites tbody tr:nth-child(3)"
    assert visit.page.inner_text("h1") == "hospitals"
    assert visit.page.locator("#sites tbody tr").count() == 3
    assert [cell.split() for cell in visit.page.locator("#sites td.state").all_inner_texts()] == [
        ["●", "up"], ["▶", "working"], ["✕", "lost"],
    ]  # fmt: skip
    for text in ("1 min 05 s", "1.5 s", "1.5 MB", "2.0 kB", "no heartbeat"):
        assert text in visit.page.inner_text(row)
    assert visit.page.inner_text("#rounds") == "Round 12 of 40, seed 1 (2 of 3)"
    assert visit.page.get_attribute("#bar", "aria-valuenow") == "12"
    assert visit.page.evaluate("document.querySelector('#bar i').style.width") == "30%"
    assert visit.page.inner_text("#best") == "60.0 %"
    assert "about 11 min" in visit.page.inner_text("#facts")
    assert visit.page.get_attribute("#plot svg", "aria-label") == (
        "Scores per round, up to round 12 of 40: validation 60.0 %, test 48.0 %"
    )
    assert "too few clients" in visit.page.inner_text("#jobs")
    assert "✕ 12/40 hospitals" in visit.page.title()

    tree["sites"][2].update(state="up", since=NOW)
    tree["job"].update(round=13, best=[0.65, 13])
    tree["rounds"].append({"seed": 1, "round": 13, "validation": {"accuracy": 0.65, "ap": 0.3}, "test": {}})
    tree["events"].append({"at": NOW, "text": "site 'south' is back"})
    visit.until(row, "● up")
    visit.until("#told", "south: up")
    visit.until("#rounds", "Round 13 of 40")
    visit.until("#best", "65.0 %")
    visit.until("#events", "site 'south' is back")
    visit.until("#plot", "validation 65.0")
    tree["rounds"] = tree["rounds"][-1:]
    tree["job"].update(metric="ap")  # the curve is that of the score by which rounds are chosen
    visit.until("#best-name", "Best validation average precision")
    visit.until("#plot", "validation 30.0")
    tree["rounds"][-1].update(validation={"mae": 1.447})
    tree["job"].update(metric="mae", best=[0.9712, 12])  # an error is no share
    visit.until("#best", "0.9712")
    visit.until("#plot", "validation 1.447")
    assert "%" not in visit.page.inner_text("#job")

    tree["job"] = {**tree["jobs"][0], "id": "0003-fedprox"}
    tree["rounds"], tree["sites"] = [], []
    visit.until("#job-error", "too few clients")
    visit.until("#no-sites", "No site has been asked yet")
    assert not visit.page.is_visible("#curve")
    tree["job"] = None
    visit.until("#no-job", "No job runs")
    assert not visit.page.is_visible("#job")
    assert visit.complaints == []
    assert visit.requests == {page.address, f"{page.address}status.json"}
    visit.page.close()


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_says_when_nobody_answers(browser: Any, tree: dict[str, Any]) -> None:
    page = StatusPage(lambda: tree, 0)
    page.start()
    visit = Visit(browser, page.address)
    assert not visit.page.is_visible("#silent")
    page.close()
    visit.until("#silent", "The coordinator does not answer any more.")
    assert visit.page.title().startswith("No answer")
    assert visit.page.inner_text("#sites tbody tr:nth-child(1) td.state").endswith("up")  # what was known stays
    again = StatusPage(lambda: tree, port_of(page))
    again.start()
    for _ in range(200):
        if not visit.page.is_visible("#silent"):
            break
        visit.page.wait_for_timeout(50)
    assert not visit.page.is_visible("#silent")
    visit.page.close()
    again.close()


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(1100, "dark"), (360, "light")])
def test_the_page_fits_and_obeys(browser: Any, page: StatusPage, tree: dict[str, Any], width: int, scheme: str) -> None:
    tree["federation"] = HOSTILE
    tree["sites"][0].update(site=HOSTILE, note=HOSTILE, silos=[HOSTILE], state=HOSTILE)
    tree["sites"][1].update(site="w" * 63, state="constructor")
    tree["events"].append({"at": NOW, "text": HOSTILE})
    tree["jobs"][0].update(error=HOSTILE, state="__proto__")
    visit = Visit(browser, page.address, viewport={"width": width, "height": 900}, color_scheme=scheme)
    visit.until("#events", HOSTILE)
    assert visit.page.inner_text("h1") == HOSTILE
    assert HOSTILE in visit.page.inner_text("#sites")
    assert visit.page.evaluate("window.smuggled") is None
    assert visit.page.locator("img").count() == 0
    assert visit.page.evaluate("document.documentElement.scrollWidth") == width  # nothing sticks out
    background = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(18, 22, 28)" if scheme == "dark" else "rgb(246, 248, 250)")
    visit.page.keyboard.press("Tab")
    focused = visit.page.evaluate("document.activeElement.className + ' ' + document.activeElement.tagName")
    assert "scroll" in focused or focused.endswith(" A")
    assert visit.complaints == []
    visit.page.close()


@pytest.mark.slow
def test_connections_are_bounded(page: StatusPage) -> None:
    """Who opens 300 connections and says nothing takes 32 threads at most; there is an answer when they are gone."""
    before = threading.active_count()
    held = [socket.create_connection(("127.0.0.1", port_of(page)), timeout=10) for _ in range(3 * MAX_CONNECTIONS)]
    time.sleep(0.5)
    assert threading.active_count() - before <= MAX_CONNECTIONS
    for connection in held:
        connection.close()
    for _ in range(50):
        with contextlib.suppress(OSError, http.client.HTTPException):
            if ask(page)[0] == 200:
                return
        time.sleep(0.1)
    raise AssertionError("the page does not answer any more")
