"""The status page of a coordinator: a federation as it is this second, for a browser on the same machine.

The server reads nothing but the request line and the Host header, and changes nothing: a few addresses, GET and HEAD.
It listens at 127.0.0.1 only, so who wants to look from elsewhere comes through SSH (``ssh -L 8800:127.0.0.1:8800``);
every user of the coordinator's own machine can look. A page of another site cannot: its name in the Host header is
refused (DNS rebinding), and the content security policy lets the page run its own script and ask its own address only.
What sites say of themselves is shown as text, never as markup, and cut where it is too long to be read.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from graphsilo.errors import ConfigError, RunError
from graphsilo.evaluate.metrics import list_selecting, metric_of
from graphsilo.report import html
from graphsilo.report.formats import in_sentence

LOOPBACK = "127.0.0.1"
ENGINES = {"nvflare": "NVIDIA FLARE", "flower": "Flower"}
LONGEST_TEXT = 1000
"""Signs of one text that are shown; a site could send a book as its trouble."""
_OWN_NAME = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_ANSWERS = ("up", "working")
_JOB_STATES = ("queued", "running", "done", "failed", "stopped")
_IDLE_SECONDS = 30
MAX_CONNECTIONS = 32
"""Open at once, a thread each; a browser needs a few."""


def current_rounds(tree: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rounds of what trains just now: one seed of one run.

    A job may train several seeds and references one after the other, and all leave their rounds in the status.

    Example:
        >>> rows = [{"seed": 0, "round": 9}, {"seed": 0, "round": 1}, {"seed": 0, "round": 2}]
        >>> [row["round"] for row in current_rounds({"rounds": rows})]
        [1, 2]
    """
    rows = list(tree.get("rounds") or [])
    start = len(rows) - 1
    while start > 0 and rows[start - 1]["seed"] == rows[-1]["seed"] and rows[start - 1]["round"] < rows[start]["round"]:
        start -= 1
    return rows[max(0, start) :]


def time_left(tree: Mapping[str, Any]) -> float | None:
    """Seconds that the running job still takes if rounds go on as before; None while nothing can be said."""
    job = tree.get("job") or {}
    rows = current_rounds(tree)
    if job.get("state") != "running" or job.get("seconds") is None or not rows:
        return None
    if rows[0].get("seconds") is not None:
        # The first round seen carries the set-up, so the pace is taken from the rounds after it.
        done, spent = job["round"] - rows[0]["round"], job["seconds"] - rows[0]["seconds"]
    else:
        done, spent = len(rows), job["seconds"]
    if done <= 0:
        return None
    rounds = job["rounds"] - job["round"] + (job["seeds"] - job["index"]) * job["rounds"]
    return float(rounds * spent / done)


def build_content(tree: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows of a status: JSON values, with ``left`` (seconds) and the rounds of the current seed.

    Args:
        tree: As ``Status.tree`` makes it; its ``jobs``, where it has any, are listed oldest first.
    """
    content = {**tree, "rounds": current_rounds(tree), "left": time_left(tree)}
    return dict(html.plain(content, LONGEST_TEXT))


def metrics(tree: Mapping[str, Any]) -> str:
    """The same in the text format of Prometheus."""
    job, sites, jobs = tree.get("job") or {}, tree.get("sites") or [], tree.get("jobs") or []
    by_state = {state: [each["state"] for each in jobs].count(state) for state in _JOB_STATES}
    of_sites = [(f'{{site="{each["site"]}"}}', each) for each in sites]
    series: list[tuple[str, str, list[tuple[str, float | None]]]] = [
        ("site_up", "1 where a site answers", [(label, each["state"] in _ANSWERS) for label, each in of_sites]),
        ("site_sent_bytes", "To a site in this job", [(label, each["sent"]) for label, each in of_sites]),
        ("site_received_bytes", "From a site in this job", [(label, each["received"]) for label, each in of_sites]),
        ("jobs", "By their state", [(f'{{state="{state}"}}', number) for state, number in by_state.items()]),
        ("job_round", "Last round of the newest job", [("", job.get("round"))]),
        ("job_rounds", "Rounds that it has", [("", job.get("rounds"))]),
        ("job_best_validation", "Its best score in validation", [("", (job.get("best") or [None])[0])]),
        ("certificate_expiry_timestamp_seconds", "Of this coordinator", [("", tree.get("certificate_expires"))]),
    ]
    lines = []
    for name, meaning, values in series:
        lines += [f"# HELP graphsilo_{name} {meaning}.", f"# TYPE graphsilo_{name} gauge"]
        lines += [f"graphsilo_{name}{label} {float(value)!r}" for label, value in values if value is not None]
    return "\n".join(lines) + "\n"


class StatusPage:
    """Serves a federation's status on this machine.

    Args:
        tree: Gives the status, as ``Status.tree`` makes it; called from several threads.
        port: Where to listen; 0 takes a free one.

    Raises:
        ConfigError: The port is no port.
    """

    def __init__(self, tree: Callable[[], dict[str, Any]], port: int):
        if not 0 <= port <= 65535:
            raise ConfigError(f"the port of the status page should be between 0 and 65535; got {port}.")
        self._tree, self._port = tree, port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """What to open in a browser, once it is started."""
        return f"http://{LOOPBACK}:{self._port}/"

    def start(self) -> None:
        """Listen, and answer in threads of its own.

        Raises:
            RunError: The port is taken, or this user may not have it.
        """
        if self._server is not None:
            return
        try:
            self._server = _Server(self._port, _Content(self._tree))
        except OSError as error:
            raise RunError(
                f"the status page should be at {self.address}, but that port cannot be had "
                f"({error.strerror or error}). Another program uses it, or only an administrator may: choose another "
                f"with --page, 0 for a free one, or -1 for no page."
            ) from None
        self._port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True, name="status page"
        )
        self._thread.start()

    def close(self) -> None:
        """Listen no more, and hang up on who is listening. May be called twice."""
        server, self._server = self._server, None
        if server is None or self._thread is None:
            return
        server.shutdown()
        server.hang_up()
        server.server_close()
        self._thread.join(timeout=5)


class _Content:
    """The bodies of all addresses, and the policy that goes with them."""

    def __init__(self, tree: Callable[[], dict[str, Any]]):
        self.tree = tree
        self.script = html.script_text(html.read_asset("status.js"))
        self.style = (html.read_asset("report.css") + html.read_asset("status.css")).replace("\r\n", "\n")
        self.policy = (
            f"default-src 'none'; script-src {html.hash_source(self.script)}; "
            f"style-src {html.hash_source(self.style)}; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
        )
        self.template = html.environment().get_template("status.html.j2")
        self.answers: dict[str, tuple[Callable[[], str], str]] = {
            "/": (self.page, "text/html"),
            "/status.json": (self.json, "application/json"),
            "/metrics": (lambda: metrics(self.tree()), "text/plain; version=0.0.4"),
            "/health": (lambda: "ok\n", "text/plain"),
        }

    def json(self) -> str:
        """``/status.json``."""
        return json.dumps(build_content(self.tree()), allow_nan=False)

    def page(self) -> str:
        """``/``, with the status of this moment inside, so that nothing flickers."""
        from markupsafe import Markup

        tree = build_content(self.tree())
        scores = {name: [in_sentence(name), metric_of(name).is_share] for name in list_selecting()}
        data = {"status": tree, "scores": scores, "engines": ENGINES}
        return self.template.render(
            title=str(tree.get("federation") or "Federation"),
            style=Markup(self.style),
            scripts=[Markup(self.script)],
            policy=self.policy,
            page_data=Markup(html.json_for_html(data)),
        )


class _Server(ThreadingHTTPServer):
    """Listens at the loopback address, and knows who is connected."""

    daemon_threads = True

    def __init__(self, port: int, content: _Content):
        self.content = content
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__((LOOPBACK, port), _Handler)

    def server_bind(self) -> None:
        """As the base class without asking the network for this machine's name, which may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            full = len(self._open) >= MAX_CONNECTIONS
            if not full:
                self._open.add(request)
        if full:
            super().shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End the connections that browsers keep open."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away in the middle of an answer is no news."""


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "graphsilo"
    sys_version = ""
    timeout = _IDLE_SECONDS
    server: _Server

    def do_GET(self) -> None:
        """Answer."""
        content = self.server.content
        path = self.path.partition("?")[0]
        hosts = self.headers.get_all("Host") or []
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # a body is not read, and must not be taken for the next request
        if len(hosts) != 1 or not _OWN_NAME.fullmatch(hosts[0].strip()):
            self._send(403, "Only localhost is answered: open the address that `graphsilo serve` printed.")
            return
        if path not in content.answers:
            self._send(404, f"There is the page / and, for programs, {', '.join(list(content.answers)[1:])}.")
            return
        answer, kind = content.answers[path]
        try:
            text = answer()
        except Exception:  # whatever it is, the coordinator goes on, and a reader learns nothing of its insides
            self._send(500, "The status cannot be read just now.")
            return
        self._send(200, text, kind)

    def do_HEAD(self) -> None:
        """Answer without a body."""
        self.do_GET()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses: other methods, and what is no HTTP."""
        self.close_connection = True
        if code == 501:
            self._send(405, "This page is for looking only: GET and HEAD.")
        else:
            self._send(code, "This is no request that a browser would make.")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: a page that asks every second would fill the screen."""

    def _send(self, status: int, text: str, kind: str = "text/plain") -> None:
        body = text.encode("utf-8", errors="replace")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", f"{self.server.content.policy}; frame-ancestors 'none'")
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        if status == 405:
            self.send_header("Allow", "GET, HEAD")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
