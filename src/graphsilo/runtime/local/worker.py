"""A worker process: holds some of the clients and answers the coordinator. Started by ``runtime.workers``."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from graphsilo.data.scales import Scaling
from graphsilo.data.silos.scaling import prepared
from graphsilo.data.silos.silo import Silo
from graphsilo.data.silos.store import SiloStore
from graphsilo.errors import ConfigError, FederationError
from graphsilo.federation.client import ClientBase, ClientContext, ModelSpec
from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.federation.interface import Failure
from graphsilo.federation.model_files import scale_of
from graphsilo.runtime.dispatch import Inbox
from graphsilo.runtime.local.frames import Line, Ring
from graphsilo.runtime.local.parking import Residents, received_states, sent_states
from graphsilo.runtime.local.placement import Room
from graphsilo.runtime.machine import peak
from graphsilo.types import ClientId

_MOST_MAPPED = 2000
"""Silos that are mapped at once, of a dozen arrays each; Linux allows 65 530 mappings."""


def main() -> None:
    """Serve until the coordinator says stop or goes away."""
    descriptor, *shared = map(int, sys.argv[1:])
    incoming, outgoing = (Ring(number) if number >= 0 else None for number in shared)
    line = Line(socket.socket(fileno=descriptor), outgoing, incoming)
    torch.set_num_threads(1)
    # Ctrl-C reaches the whole group; the coordinator decides what happens and says stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    residents: Residents | None = None
    try:
        while True:
            header, payloads = line.receive()
            operation = header["do"]
            if operation == "stop":
                return
            try:
                if operation == "start":
                    residents = None  # what the seed before left makes room first
                    residents = _start(header, payloads)
                    line.send({"ok": True})
                elif operation == "memory":
                    line.send({"ok": True, "bytes": peak()})
                elif residents is None:
                    raise FederationError("no clients were started here.")
                elif operation == "call":
                    _call(line, residents, header, payloads)
                elif operation == "states":
                    line.send({"ok": True}, [encode_tree(sent_states(residents.states()))])
                elif operation == "load":
                    residents.load(received_states(decode_tree(payloads[0])))
                    line.send({"ok": True})
                elif operation == "remember":
                    residents.remember(header["clients"])
                    line.send({"ok": True})
                elif operation == "finish":
                    found = residents.finish(header["client"], embeddings=header["embeddings"], study=header["study"])
                    line.send({"ok": True}, [encode_tree(found)])
            except Exception as error:
                line.send(
                    {"ok": False, "kind": type(error).__name__, "text": str(error), "trace": traceback.format_exc()},
                )
    except (EOFError, ConnectionError):
        return  # the coordinator has gone; nothing here is worth keeping


def _start(header: dict[str, Any], payloads: Sequence[Any]) -> Residents:
    store = Path(header["store"])
    # By module and name, not through the registry: the very classes that the coordinator uses.
    kind: type[ClientBase] = _named(header["client_class"])
    config = _named(header["config_class"]).of(header["config"])

    scaling = Scaling.from_tree(header["scaling"])
    scale = scale_of(decode_tree(payloads[0])) if payloads else None

    def make(client: ClientId) -> ClientBase:
        model, common = (ModelSpec(*wire) for wire in (header["models"][str(client)], header["common"]))
        silo = prepared(_silo(store, client), scaling, scale)
        return kind(ClientContext(client, silo, config, model, header["seed"], header["device"], common))

    def folder() -> Path:
        place = Path(header["parked"])
        place.mkdir(parents=True, exist_ok=True)
        return place

    room = Room(header["resident"], header["graph_bytes"], folder, header["processes"])
    return Residents(header["clients"], make, room)


@lru_cache(maxsize=_MOST_MAPPED)
def _silo(store: Path, client: ClientId) -> Silo:
    """A silo, mapped, which costs no memory of its own: a parked client need not open a dozen files again, and the next
    seed finds what was made of its graphs, as it does in one process."""
    return SiloStore(store).read(client)


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
    line: Line,
    residents: Residents,
    header: dict[str, Any],
    payloads: list[Any],
) -> None:
    inboxes = [Inbox(payload) for payload in payloads]
    for client, index in header["to"]:
        started = time.process_time()
        reply = residents.call(client, header["handler"], header["round"], inboxes[index])
        answer: dict[str, Any] = {"client": client, "cpu": time.process_time() - started}
        if isinstance(reply, Failure):
            line.send({**answer, "failure": [reply.kind, reply.reason, reply.trace]})
        else:
            fields = [list(field) for field in reply.field_bytes]
            line.send({**answer, "name": reply.name, "fields": fields}, [reply.data])


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
