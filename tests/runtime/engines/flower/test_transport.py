"""The relay over real SuperLinks and SuperNodes. Seconds are printed (``pytest -s``), never asserted."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("flwr", reason="needs graphsilo[flower], which lives in an environment of its own")

pytestmark = [pytest.mark.flower, pytest.mark.slow]

MEGABYTE = 1_000_000


def wait_until(condition, seconds=90.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.5)


@pytest.mark.parametrize("size", [1, 1_000, 20 * MEGABYTE])
def test_what_a_site_answers_comes_back(plain, size):
    body = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
    answer, error, seconds = plain.ask("south", body)
    print(f"\n{size} bytes there and back: {seconds:.1f} s")
    assert error is None
    assert answer == body[::-1]


def test_an_empty_request_is_answered_with_the_name(plain):
    assert plain.ask("north", b"")[:2] == (b"north", None)


def test_two_sites_work_at_the_same_time(plain):
    before = {name: len(endpoint.requests) for name, endpoint in plain.endpoints.items()}
    start = time.monotonic()
    answers = asked_together(plain, {site: site.encode() for site in ("north", "south")})
    print(f"\ntwo sites in parallel: {time.monotonic() - start:.1f} s")
    assert answers == {"north": (b"htron", None), "south": (b"htuos", None)}
    asked = {name: len(endpoint.requests) - before[name] for name, endpoint in plain.endpoints.items()}
    assert asked == {"north": 1, "south": 1}


def test_the_same_bytes_may_go_everywhere_and_come_back(plain):
    """Flower tells what it carries by hashes: equal messages, and an answer that equals its request, share them."""
    body = bytes(11 * MEGABYTE)
    for _ in range(2):
        answers = asked_together(plain, {"north": body, "south": body})
        assert answers == {"north": (body, None), "south": (body, None)}


def asked_together(federation, bodies):
    with ThreadPoolExecutor(len(bodies)) as pool:
        asked = {site: pool.submit(federation.ask, site, body) for site, body in bodies.items()}
        return {site: future.result()[:2] for site, future in asked.items()}


def test_a_site_that_errs_is_unreachable_in_words(plain):
    _, error, _ = plain.ask("north", b"die")
    assert error[0] == "Unreachable"
    assert "the site's supervisor gave no answer" in error[1]
    assert plain.ask("north", b"abc")[0] == b"cba"


def test_a_site_that_never_answers_holds_up_nobody(plain):
    _, error, seconds = plain.ask("south", b"sleep", timeout=20.0)
    print(f"\na silent site was given up after {seconds:.1f} s of 20")
    assert error[0] == "Unreachable"
    assert "south" in error[1]
    # The ClientApp gave up before the message expired, so the SuperNode carries the next one.
    assert plain.ask("south", b"abc")[:2] == (b"cba", None)


def test_a_message_that_expires_on_its_way_holds_up_nobody(plain):
    """Less time than it takes Flower to start a process."""
    _, error, _ = plain.ask("north", b"abc", timeout=1.0)
    assert error[0] == "Unreachable"
    assert plain.ask("north", b"abcd")[:2] == (b"dcba", None)


def test_a_supervisor_that_is_gone_is_named(plain):
    endpoint = plain.endpoints["north"]
    away = endpoint.path.with_suffix(".away")
    endpoint.path.rename(away)
    try:
        _, error, _ = plain.ask("north", b"abc")
    finally:
        away.rename(endpoint.path)
    assert error[0] == "Unreachable"
    assert "nobody listens at" in error[1]
    assert "graphsilo join" in error[1]


def test_a_stranger_is_a_mistake(plain):
    _, error, _ = plain.ask("west", b"abc")
    assert error[0] == "ConfigError"


def test_a_name_in_use_is_given_to_nobody_else_until_its_holder_is_silent(plain):
    """A second SuperNode for south: refused while the first one answers, taken when that one has been stopped."""

    def carried(node: str) -> int:
        return plain.log(node).read_text().count("Receiving:")

    plain.add_site("south", node="second")
    wait_until(lambda: carried("second") > 0)  # the hello
    time.sleep(5.0)  # for its answer
    before = carried("south")
    assert plain.ask("south", b"abc")[:2] == (b"cba", None)
    assert carried("south") == before + 1

    plain.processes["south"].kill()
    plain.processes["south"].wait()
    start = time.monotonic()
    answers = []
    while b"cba" not in answers and time.monotonic() < start + 150:
        answers.append(plain.ask("south", b"abc", timeout=20.0)[0])
    print(f"\nanother SuperNode has taken over after {time.monotonic() - start:.1f} s")
    assert answers[-1] == b"cba"
    assert carried("south") == before + 1


def test_the_template_says_what_is_missing(plain):
    """The app as it is in ``examples/flower``, started beside the other run, without a configuration to run."""
    number = plain.run("/nowhere/federation.yaml", component=None, **{"graphsilo-config": "/nowhere/run.yaml"})
    plain.wait_for_end(number)
    assert plain.status(number) == "finished:failed"
    assert "graphsilo-federation names /nowhere/federation.yaml, which is no file" in plain.flwr(
        "log", number, "here", "--show"
    )


def test_a_run_ends_when_its_server_app_ends(plain):
    plain.order("end")
    plain.wait_for_end(plain.number)
    assert plain.status(plain.number) == "finished:completed"


def test_tls_and_a_known_key(secure):
    answer, error, seconds = secure.ask("north", b"0123456789")
    print(f"\nTLS and SuperNode authentication: {seconds:.1f} s")
    assert (answer, error) == (b"9876543210", None)


def test_a_supernode_with_an_unknown_key_is_not_let_in(secure):
    secure.add_site("stranger", register=False)
    wait_until(lambda: "Failed to activate SuperNode" in secure.log("stranger").read_text())
    assert secure.endpoints["stranger"].requests == []
    assert secure.ask("north", b"abc")[:2] == (b"cba", None)


def test_an_unencrypted_supernode_is_not_let_in(secure):
    secure.add_site("unencrypted", encrypted=False)
    wait_until(lambda: "Connection attempt failed" in secure.log("unencrypted").read_text())
    time.sleep(5.0)
    assert "SuperNode ID" not in secure.log("unencrypted").read_text()
    assert secure.endpoints["unencrypted"].requests == []
