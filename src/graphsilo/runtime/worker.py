"""A worker process: holds some of the clients and answers the coordinator. Started by ``runtime.workers``."""

from __future__ import annotations

import importlib
import os
import resource
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from graphsilo.data.store import SiloStore
from graphsilo.errors import ConfigError
from graphsilo.federation import registry
from graphsilo.federation.client import ClientBase, ClientContext, ModelSpec
from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.federation.interface import Failure
from graphsilo.runtime import frames
from graphsilo.runtime.dispatch import Inbox, call


def main() -> None:
    """Serve until the coordinator says stop or goes away."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    torch.set_num_threads(1)
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
                    found = {client: clients[client].finish(embeddings=header["embeddings"]) for client in header["clients"]}
                    frames.send(connection, {"ok": True}, [encode_tree(found)])
                elif operation == "memory":
                    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
                    frames.send(connection, {"ok": True, "bytes": peak})
            except Exception as error:
                frames.send(
                    connection,
                    {"ok": False, "kind": type(error).__name__, "text": str(error), "trace": traceback.format_exc()},
                )
    except EOFError:
        return  # the coordinator has gone; nothing here is worth keeping


def _start(header: dict[str, Any]) -> dict[int, ClientBase]:
    store = SiloStore(Path(header["store"]))
    try:
        method = registry.load(header["method"])
    except ConfigError:
        method = getattr(importlib.import_module(header["module"]), "METHOD")  # noqa: B009 - checked just below
    config = method.config.model_validate(header["config"])
    clients: dict[int, ClientBase] = {}
    for client in header["clients"]:
        name, settings = header["models"][str(client)]
        clients[client] = method.client(
            ClientContext(client, store.read(client), config, ModelSpec(name, settings), header["seed"], header["device"])
        )
    return clients


def _call(connection: socket.socket, clients: dict[int, ClientBase], header: dict[str, Any], payloads: list) -> None:
    inboxes = [Inbox(payload) for payload in payloads]
    for client, index in header["to"]:
        started = time.process_time()
        reply = call(clients[client], header["handler"], header["round"], inboxes[index])
        cpu = time.process_time() - started
        if isinstance(reply, Failure):
            frames.send(
                connection,
                {"client": client, "cpu": cpu, "failure": [reply.kind, reply.reason, reply.trace]},
            )
        else:
            fields = [list(field) for field in reply.field_bytes]
            frames.send(connection, {"client": client, "cpu": cpu, "name": reply.name, "fields": fields}, [reply.data])


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
