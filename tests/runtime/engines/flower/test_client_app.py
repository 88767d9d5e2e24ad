from __future__ import annotations

import contextlib
import subprocess
import sys
import threading

import pytest

pytest.importorskip("flwr", reason="needs graphsilo[flower], which lives in an environment of its own")

from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from graphsilo.runtime import pipe
from graphsilo.runtime.engines.flower.client_app import MARGIN, app
from graphsilo.runtime.engines.flower.envelope import ACTION, pack, unpack

pytestmark = pytest.mark.flower


@pytest.fixture(autouse=True)
def _task(monkeypatch):
    """What Flower tells a process about itself before it starts our code."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture
def supervisor(tmp_path, monkeypatch):
    """A socket at which each request is answered by the function given; None hangs up, an event is waited for."""
    monkeypatch.chdir(tmp_path)  # a unix socket's path must be short
    listeners = []

    def serve(answer):
        listener = pipe.listen(type(tmp_path)("site.sock"))
        listeners.append(listener)

        def run():
            connection, _ = listener.accept()
            with connection, contextlib.suppress(BrokenPipeError):
                said = answer(pipe.receive(connection))
                if said is not None:
                    pipe.send(connection, said)

        threading.Thread(target=run, daemon=True).start()
        return "site.sock"

    yield serve
    for listener in listeners:
        listener.close()


def context(**node):
    return Context(run_id=1, node_id=2, node_config=node, state=RecordDict(), run_config={})


def ask(body, where, ttl=60.0):
    return app(Message(pack(body), 2, ACTION, ttl=ttl), where)


def test_a_request_reaches_the_supervisor_and_its_answer_comes_back(supervisor):
    path = supervisor(lambda body: bytes(body) + b"!")
    reply = ask(b"abc", context(**{"graphsilo-site": path}))
    assert unpack(reply.content) == b"abc!"


def test_the_environment_names_the_socket_where_the_node_does_not(supervisor, monkeypatch):
    monkeypatch.setenv("GRAPHSILO_SITE", supervisor(lambda body: b""))
    assert unpack(ask(b"abc", context()).content) == b""


def test_no_socket_is_named():
    reply = ask(b"abc", context())
    assert not reply.has_content()
    assert "graphsilo-site" in reply.error.reason


def test_nobody_listens(tmp_path):
    reply = ask(b"abc", context(**{"graphsilo-site": str(tmp_path / "x")}))
    assert reply.error.reason.startswith("nobody listens at")


def test_the_supervisor_hangs_up(supervisor):
    reply = ask(b"abc", context(**{"graphsilo-site": supervisor(lambda body: None)}))
    assert reply.error.reason == "the site's supervisor gave no answer (the other process has ended)"


def test_a_site_that_works_on_is_given_up_before_the_message_expires(supervisor):
    ended = threading.Event()
    path = supervisor(lambda body: ended.wait(30) and None)
    reply = ask(b"abc", context(**{"graphsilo-site": path}), ttl=MARGIN + 1.0)
    ended.set()
    assert reply.error.reason == "the site was still working when the message expired"


def test_a_message_of_another_app_is_refused():
    reply = app(Message(RecordDict(), 2, ACTION), context(**{"graphsilo-site": "x"}))
    assert "is another app sending to this one?" in reply.error.reason


def test_starting_it_brings_no_torch():
    code = "import sys, graphsilo.runtime.engines.flower.client_app; print([m for m in ('torch',) if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
