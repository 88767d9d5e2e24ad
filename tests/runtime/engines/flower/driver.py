"""A ServerApp for tests: does what the test's process says over a unix socket, with a real grid behind."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from graphsilo.runtime import pipe
from graphsilo.runtime.engines.flower.transport import FlowerTransport

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    transport = FlowerTransport(grid, str(context.run_config["graphsilo-federation"]).split())
    listener = pipe.listen(Path(str(context.run_config["graphsilo-out"])))
    ended = threading.Event()
    try:
        while not ended.is_set():
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection, transport, ended, listener), daemon=True).start()
    except OSError:
        assert ended.is_set()
    finally:
        transport.close()


def serve(connection, transport, ended, listener):
    try:
        while True:
            order = json.loads(pipe.receive(connection))
            body = pipe.receive(connection)
            start = time.monotonic()
            answer, error = b"", None
            try:
                if order["do"] == "end":
                    ended.set()
                    pipe.send(connection, b"{}")
                    pipe.send(connection, b"")
                    listener.shutdown(2)
                    return
                if order["do"] == "wait":
                    transport.wait_for_sites(order["timeout"])
                else:
                    answer = transport.request(order["site"], body, timeout=order["timeout"])
            except Exception as failure:  # whoever asked says whether it was to come; silence would be a time-out
                error = [type(failure).__name__, str(failure)]
            pipe.send(connection, json.dumps({"error": error, "seconds": time.monotonic() - start}).encode())
            pipe.send(connection, answer)
    except EOFError:
        return
