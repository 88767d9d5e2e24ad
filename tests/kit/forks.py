"""Worker processes that are forked from one that has torch already, instead of started: tests start a thousand.

What a process is given and how it ends is the same; only its imports are there already.

    python -P kit/forks.py SOCKET        # the process that is forked, by ``Forker``
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MODULES = (
    "graphsilo.experiments.batch.child", "graphsilo.planning.probe", "graphsilo.runtime.local.worker",
    "graphsilo.runtime.site.worker",
)  # fmt: skip
"""What is forked; other commands are started."""
START = subprocess.Popen
_SUBREAPER = 36
_LONGEST = 1 << 20


def asks_for_a_worker(command: Any, more: Mapping[str, Any]) -> list[str] | None:
    """The module and its arguments, where a command is ``graphsilo.loading`` on one of ``MODULES``."""
    if not isinstance(command, Sequence) or isinstance(command, str) or "graphsilo.loading" not in command:
        return None
    wanted = list(map(str, command[list(command).index("graphsilo.loading") + 1 :]))
    known = {"pass_fds", "env", "stdin", "stdout", "stderr", "start_new_session", "text", "encoding"}
    return wanted if command[0] == sys.executable and wanted[0] in MODULES and set(more) <= known else None


class Forker:
    """The process that is forked, started when it is first asked."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._owner = os.getpid()
        self._lock = threading.Lock()

    def fork(self, order: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        """The id of a new child of this process."""
        with self._lock:
            if self._socket is None or self._owner != os.getpid():
                self._owner = os.getpid()
                self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    START(
                        [sys.executable, "-P", __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                        stdin=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
                    )  # fmt: skip
                self._socket.recv(1)
            # A child whose parent has ended falls to the nearest process that says it takes such children.
            _take_orphans(True)
            try:
                socket.send_fds(self._socket, [json.dumps(order).encode()], list(descriptors))
                return int(self._socket.recv(64))
            finally:
                _take_orphans(False)


def _take_orphans(on: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, int(on), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


FORKER = Forker()


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """As ``subprocess.Popen``, of which it keeps all but how the process comes to be."""

    def __init__(self, args: Any, **more: Any):
        self._wanted = asks_for_a_worker(args, more)
        super().__init__(args, **more)

    def _execute_child(self, *given: Any) -> None:
        start = super()._execute_child
        if self._wanted is None:
            start(*given)
            return
        asked = inspect.signature(start).bind(*given).arguments
        own = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        streams = [number if one == -1 else one for number, one in enumerate(own)]
        environment = dict(os.environ if asked["env"] is None else asked["env"])
        order = {
            "command": self._wanted, "env": environment, "folder": str(Path.cwd()), "pass": list(asked["pass_fds"]),
            "session": bool(asked["start_new_session"]),
        }  # fmt: skip
        self.pid = FORKER.fork(order, [*streams, *asked["pass_fds"]])
        self._child_created = True
        self._close_pipe_fds(*(asked[name] for name in _PIPES))


_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")


def serve(channel: socket.socket) -> None:
    """Fork this process as often as asked, until who asks has gone."""
    from graphsilo import loading

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever asks
    loading.load(*MODULES)
    channel.send(b"!")
    while True:
        text, descriptors, _, _ = socket.recv_fds(channel, _LONGEST, 64)
        if not text:
            return
        middle = os.fork()
        if middle == 0:
            # The child of a child: its parent ends at once, and it becomes one of whoever asked.
            parent = os.getpid()
            if os.fork() != 0:
                os._exit(0)
            while os.getppid() == parent:
                os.sched_yield()
            channel.send(str(os.getpid()).encode())
            channel.close()
            _become(json.loads(text), descriptors)
        os.waitpid(middle, 0)
        for each in descriptors:
            os.close(each)


def _become(order: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """What a started process would be; ends it."""
    code = 1
    try:
        high = [_above(each, 512) for each in descriptors]  # none stands where another is to be
        for each, place in zip(high, [0, 1, 2, *order["pass"]], strict=True):
            os.dup2(each, place)
            os.close(each)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if order["session"]:
            os.setsid()
        os.chdir(order["folder"])
        here, there = (each.get("PYTHONPATH", "").split(os.pathsep) for each in (os.environ, order["env"]))
        sys.path[:] = [*filter(None, there), *(place for place in sys.path if place not in {*here, *there})]
        os.environ.clear()
        os.environ.update(order["env"])
        sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
        tempfile.tempdir = None
        module, *sys.argv[1:] = order["command"]
        sys.argv[0] = module
        code = _run(module)
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def _above(descriptor: int, least: int) -> int:
    import fcntl

    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD, least)
    os.close(descriptor)
    return high


def _run(module: str) -> int:
    try:
        sys.modules[module].main()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:
        import traceback

        traceback.print_exc()
        return 1
    threading._shutdown()  # type: ignore[attr-defined]
    return 0


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
