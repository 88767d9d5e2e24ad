"""A worker process: holds some of the clients and answers the coordinator. Started by ``runtime.workers``."""

from __future__ import annotations

import importlib
import os
import resource
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from graphsilo.data.store import SiloStore
from graphsilo.errors import ConfigError
from graphsilo.federation.client import ClientBase, ClientContext, ModelSpec
from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.federation.interface import Failure
from graphsilo.runtime import frames
from graphsilo.runtime.dispatch import Inbox, call


def main() -> None:
    """Serve until the coordinator says stop or goes away."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    torch.set_num_threads(1)
    # Ctrl-C reaches the whole group; the coordinator decides what happens and says stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    clients: dict[int, ClientBase] = {}
    try:
        while True:
            header, payloads = frames.receive(connection)
            operation = header["do"]
            if operation == "stop":
                return
            if operation == "call":
                _call(connection, clients, header, payloads)
                continue
            try:
                if operation == "start":
                    clients = _start(header)
                    frames.send(connection, {"ok": True})
                elif operation == "states":
                    tree = {client: clients[client].full_state() for client in header["clients"]}
                    frames.send(connection, {"ok": True}, [encode_tree(tree)])
                elif operation == "load":
                    for client, state in decode_tree(payloads[0]).items():
                        clients[client].load_full_state(state)
                    frames.send(connection, {"ok": True})
                elif operation == "remember":
                    for held in clients.values():
                        held.remember()
                    frames.send(connection, {"ok": True})
                elif operation == "finish":
                    found = clients[header["client"]].finish(embeddings=header["embeddings"], study=header["study"])
                    frames.send(connection, {"ok": True}, [encode_tree(found)])
                elif operation == "memory":
                    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
                    frames.send(connection, {"ok": True, "bytes": peak})
            except Exception as error:
                frames.send(
                    connection,
                    {"ok": False, "kind": type(error).__name__, "text": str(error), "trace": traceback.format_exc()},
                )
    except (EOFError, ConnectionError):
        return  # the coordinator has gone; nothing here is worth keeping


def _start(header: dict[str, Any]) -> dict[int, ClientBase]:
    store = SiloStore(Path(header["store"]))
    # By module and name, not through the registry: the very classes that the coordinator uses.
    kind: type[ClientBase] = _named(header["client_class"])
    config = _named(header["config_class"]).model_validate(header["config"])
    clients: dict[int, ClientBase] = {}
    for client in header["clients"]:
        name, settings = header["models"][str(client)]
        model = ModelSpec(name, settings)
        clients[client] = kind(
            ClientContext(client, store.read(client), config, model, header["seed"], header["device"])
        )
    return clients


def _named(place: list[str]) -> Any:
    """A class from its module and qualified name."""
    module, names = place
    try:
        found: Any = importlib.import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"a worker process cannot import {module}.{names} ({error}). Put the method at the top level of a module "
            f"that can be imported by name, or run with workers=1."
        ) from None
    return found


def _call(
    connection: socket.socket, clients: dict[int, ClientBase], header: dict[str, Any], payloads: list[Any]
) -> None:
    inboxes = [Inbox(payload) for payload in payloads]
    for client, index in header["to"]:
        started = time.process_time()
        reply = call(clients[client], header["handler"], header["round"], inboxes[index])
        answer: dict[str, Any] = {"client": client, "cpu": time.process_time() - started}
        if isinstance(reply, Failure):
            frames.send(connection, {**answer, "failure": [reply.kind, reply.reason, reply.trace]})
        else:
            fields = [list(field) for field in reply.field_bytes]
            frames.send(connection, {**answer, "name": reply.name, "fields": fields}, [reply.data])


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
