"""A worker process: holds some of the clients and answers the coordinator. Started by ``runtime.workers``."""

from __future__ import annotations

import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from graphsilo.data.scales import Scaling
from graphsilo.data.silos.scaling import prepare_silo
from graphsilo.data.silos.silo import Silo
from graphsilo.data.silos.store import SiloStore
from graphsilo.errors import ConfigError, FederationError
from graphsilo.federation.client import ClientBase, ClientContext, ModelSpec
from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.federation.compression import Compression
from graphsilo.federation.interface import Failure
from graphsilo.federation.model_files import read_answers, scale_of
from graphsilo.federation.own import Own, admit, class_at
from graphsilo.federation.trust import allow
from graphsilo.runtime.alone import client_of
from graphsilo.runtime.dispatch import Inbox
from graphsilo.runtime.local.clients import ClientCache
from graphsilo.runtime.local.frames import Channel, Ring
from graphsilo.runtime.local.offloading import pack_states, unpack_states
from graphsilo.runtime.local.placement import MemoryBudget
from graphsilo.runtime.machine import keep_freed_memory, make_repeatable, peak
from graphsilo.types import ClientId

_MAX_MAPPED = 2000
"""Silos that are mapped at once, of a dozen arrays each; Linux allows 65 530 mappings."""


def main() -> None:
    """Serve until the coordinator says stop or goes away."""
    descriptor, *shared = map(int, sys.argv[1:])
    incoming, outgoing = (Ring(number) if number >= 0 else None for number in shared)
    channel = Channel(socket.socket(fileno=descriptor), outgoing, incoming)
    torch.set_num_threads(1)
    keep_freed_memory()
    # Ctrl-C reaches the whole group; the coordinator decides what happens and says stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cache: ClientCache | None = None
    try:
        while True:
            header, payloads = channel.receive()
            if header["do"] == "stop":
                return
            try:
                if header["do"] == "start":
                    cache = None  # what the seed before left makes room first
                    cache = _start(header, payloads)
                if cache is None:
                    raise FederationError("no clients were started here.")
                if header["do"] == "call":
                    _call(channel, cache, header, payloads)
                else:
                    found, sent = _carry_out(cache, header, payloads)
                    channel.send({"ok": True, **found}, sent)
            except Exception as error:
                channel.send(
                    {"ok": False, "kind": type(error).__name__, "text": str(error), "trace": traceback.format_exc()},
                )
    except (EOFError, ConnectionError):
        return  # the coordinator has gone; nothing here is worth keeping


def _carry_out(
    cache: ClientCache, header: Mapping[str, Any], payloads: Sequence[Any]
) -> tuple[dict[str, Any], list[Any]]:
    """What a process does but calls, and what it answers."""
    match header["do"]:
        case "memory":
            return {"bytes": peak()}, []
        case "states":
            return {}, [encode_tree(pack_states(cache.states(dict(header["back"]))))]
        case "load":
            cache.load(unpack_states(decode_tree(payloads[0])))
        case "remember":
            cache.remember(header["clients"], header["view"])
        case "finish":
            return {}, [encode_tree(cache.finish(**decode_tree(payloads[0])))]
    return {}, []


def _start(header: Mapping[str, Any], payloads: Sequence[Any]) -> ClientCache:
    make_repeatable(header["device"])
    store = Path(header["store"])
    allow(header["allowed"])
    for name, *own in header["own"]:
        admit("model", name, Own(*own))
    # By address, not through the registry: the very classes that the coordinator uses.
    kind = client_of(*map(_load_class, header["client_class"]))
    config = _load_class(header["config_class"]).of(header["config"])

    scaling, compression = Scaling.from_tree(header["scaling"]), Compression.of(header["compression"])
    scale = scale_of(decode_tree(payloads[0])) if payloads else None

    def make(client: ClientId) -> ClientBase[Any]:
        model, common = (ModelSpec(*wire) for wire in (header["models"][str(client)], header["common"]))
        silo = prepare_silo(_silo(store, client), scaling, scale)
        seed, device, select_by = header["seed"], header["device"], header["select_by"]
        beside = read_answers(None if header["beside"] is None else Path(header["beside"]), seed, client)
        return kind(ClientContext(client, silo, config, model, seed, device, common, compression, select_by, beside))

    def folder() -> Path:
        place = Path(header["offloaded"])
        place.mkdir(parents=True, exist_ok=True)
        return place

    budget = MemoryBudget(header["resident"], header["graph_bytes"], folder, header["processes"])
    return ClientCache.within(header["clients"], make, budget)


@lru_cache(maxsize=_MAX_MAPPED)
def _silo(store: Path, client: ClientId) -> Silo:
    """A silo, mapped, which costs no memory of its own: an offloaded client need not open a dozen files again, and
    the next seed finds what was made of its graphs, as it does in one process."""
    return SiloStore(store).read(client)


def _load_class(address: list[str]) -> Any:
    """A class from its address."""
    try:
        return class_at(*address)
    except ConfigError as error:
        raise ConfigError(
            f"a worker process cannot import {':'.join(address[:2])}: {error} Put the method at the top level of a "
            f"module that can be imported by name, or run with workers=1."
        ) from None


def _call(channel: Channel, cache: ClientCache, header: Mapping[str, Any], payloads: Sequence[Any]) -> None:
    inboxes = [Inbox(payload) for payload in payloads]
    back = dict(header["back"])
    for client, index in header["to"]:
        started = time.process_time()
        turn = header["step"], back.get(client)
        reply = cache.call(client, header["handler"], header["round"], inboxes[index], turn)
        answer: dict[str, Any] = {"client": client, "cpu": time.process_time() - started}
        if isinstance(reply, Failure):
            channel.send({**answer, "failure": [reply.kind, reply.reason, reply.trace, reply.peer]})
        else:
            fields = [list(field) for field in reply.field_bytes]
            channel.send({**answer, "name": reply.name, "fields": fields}, [reply.data])
