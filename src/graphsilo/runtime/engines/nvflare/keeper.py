"""Keeps an engine's process running: starts it, and starts it again when it ends, until it is asked to stop."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from graphsilo.errors import RunError, installing
from graphsilo.runtime.engines.nvflare.kit import ROOT, Kit
from graphsilo.runtime.engines.nvflare.workspace import OUT, arguments, write_workspace
from graphsilo.runtime.machine import LARGE_PAGES

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_LONG_ENOUGH = 60.0
_GRACE_SECONDS = 3.0

_NEEDED = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TEMP|TMP|VIRTUAL_ENV|LD_LIBRARY_PATH|PYTHON\w+|MALLOC_\w+|"
    r"OMP_\w+|((https?|all|no)_proxy)",
    re.IGNORECASE,
)
"""What the engine's process may know of the environment. It is the one with a network connection: a database's password
that the silos' processes need is not there to be found, and nothing overrides the engine's own settings."""

log = logging.getLogger(__name__)


class Keeper:
    """One engine's process of one kit.

    Args:
        kit: Whose; that no other process uses it is the caller's to see to.
    """

    def __init__(self, kit: Kit):
        self._kit = kit
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._change = threading.Lock()
        self.starts = 0
        """How often the process was started."""

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        """Start the process and watch over it.

        Raises:
            RunError: Parts of the kit do not fit together, or the engine is not installed.
        """
        if self._thread is not None:
            raise RunError(f"the engine of {self._kit.folder} was started already.")
        if importlib.util.find_spec("nvflare") is None:  # the engine's process imports it, this one need not
            raise RunError(f"NVIDIA FLARE is not installed. {installing('nvflare')}")
        self._kit.check()
        self._kit.run.mkdir(exist_ok=True, mode=0o700)
        self._kit.run.chmod(0o700)
        self._launch()
        self._thread = threading.Thread(target=self._watch, name=f"keeper-{self._kit.party}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the process. May be called twice."""
        self._stop.set()
        with self._change:
            process = self._process
            if process is not None:
                _end(process)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=_GRACE_SECONDS + 5)

    def _launch(self) -> None:
        with self._change:
            if self._stop.is_set():
                return
            folder = write_workspace(self._kit)
            environment = {
                **_filter_environment(os.environ),
                **trust_variables(self._kit.folder / ROOT),
                "PYTHONUNBUFFERED": "1",
                "OMP_NUM_THREADS": "1",
                "MALLOC_ARENA_MAX": "2",  # FLARE has hundreds of threads; each would keep an arena of its own
                **LARGE_PAGES,
            }
            with (self._kit.run / OUT).open("wb") as out:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-P",
                        "-m",
                        "graphsilo.runtime.engines.nvflare.engine",
                        self._kit.role,
                        str(os.getpid()),
                        *arguments(self._kit, folder),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    env=environment,
                    start_new_session=True,  # Ctrl-C is for the runner, which ends the engine in order
                )
            self.starts += 1

    def _watch(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stop.is_set():
            process, began = self._process, time.monotonic()
            if process is None:
                return
            code = process.wait()
            if self._stop.is_set():
                return
            if time.monotonic() - began > _LONG_ENOUGH:
                pause = _FIRST_PAUSE
            log.warning(
                "the engine of '%s' has ended (exit code %d); starting it again in %.1f s; see %s",
                self._kit.party, code, pause, self._kit.run,
            )  # fmt: skip
            if self._stop.wait(pause):
                return
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                self._launch()
            except OSError as error:
                log.error("the engine of '%s' cannot be started: %s", self._kit.party, error)


def _filter_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that an engine's process is given."""
    return {name: value for name, value in environment.items() if _NEEDED.fullmatch(name)}


def trust_variables(root: Path) -> dict[str, str]:
    """Variables with which OpenSSL trusts a root alone.

    FLARE's sites add their root to those that the machine trusts, and look at no host's name: whoever stands on the
    line with a certificate of any public authority would be taken for the coordinator.
    """
    return {"SSL_CERT_FILE": str(root), "SSL_CERT_DIR": ""}


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=_GRACE_SECONDS)
            break
        except subprocess.TimeoutExpired:
            continue


def tail(path: Path, lines: int = 5) -> str:
    """The last lines of a log; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 8192))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-lines:])
    except OSError:
        return ""
