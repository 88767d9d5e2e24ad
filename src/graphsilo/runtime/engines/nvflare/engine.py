"""The engine's process: ``python -m graphsilo.runtime.engines.nvflare.engine ROLE PARENT ARGUMENTS``.

Started by ``keeper``.

Runs FLARE's own server or client, with what is not needed taken away before it starts: a coordinator could otherwise
list and read files at a site (FLARE's shell commands), send it jobs, and be commanded by an administrator.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

_PARENT_SECONDS = 0.5
_HANDSHAKE_SECONDS = 10
_HANDSHAKES = 200
"""At once; who comes beyond them is sent away, and comes again."""


def main() -> None:
    """Run one engine until it ends or its parent does."""
    role, parent, arguments = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    threading.Thread(target=_end_with, args=(parent,), name="parent", daemon=True).start()
    os.umask(0o077)
    sys.argv = ["nvflare", *arguments]
    program = _coordinator() if role == "coordinator" else _site()
    from nvflare.fuel.f3.mpm import MainProcessMonitor

    program.version_check()
    parsed = program.parse_arguments()
    code = MainProcessMonitor.run(
        main_func=program.main, run_dir=parsed.workspace, shutdown_grace_time=0, cleanup_grace_time=2, args=parsed
    )
    os._exit(code if isinstance(code, int) else 0)  # FLARE leaves threads behind that would keep the process


def _coordinator() -> Any:
    from nvflare.private.fed.app.server import server_train
    from nvflare.private.fed.server.server_cmd_modules import ServerCommandModules

    ServerCommandModules.cmd_modules.clear()
    create = server_train.create_admin_server

    def without_commands(*args: Any, **kwargs: Any) -> Any:
        return create(*args, **{**kwargs, "enable_hci": False})

    server_train.create_admin_server = without_commands
    _shake_hands_apart()
    return server_train


def _shake_hands_apart() -> None:
    """Have each connection shake hands in its own thread, for as long as that may take.

    FLARE does it in the one thread that accepts: a single connection that says nothing keeps all sites out.
    """
    import socket

    from nvflare.fuel.f3.drivers import tcp_driver

    free = threading.BoundedSemaphore(_HANDSHAKES)

    class Server(tcp_driver.TcpStreamServer):  # type: ignore[misc]
        def __init__(self, *args: Any):
            super().__init__(*args)
            self.socket.do_handshake_on_connect = False

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            if not free.acquire(blocking=False):
                self.shutdown_request(request)
                return
            try:
                request.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                request.settimeout(_HANDSHAKE_SECONDS)
                request.do_handshake()
                request.settimeout(None)
            except OSError:
                self.shutdown_request(request)
                return
            finally:
                free.release()
            super().process_request_thread(request, client_address)

    tcp_driver.TcpStreamServer = Server


def _site() -> Any:
    from nvflare.private.fed.app.client import client_train
    from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

    ClientRequestProcessors.request_processors.clear()
    return client_train


def _end_with(parent: int) -> None:
    """Nobody tells a process that its parent was killed; who its parent is now does."""
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os._exit(0)


if __name__ == "__main__":
    main()
