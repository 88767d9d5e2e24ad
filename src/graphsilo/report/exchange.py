"""What crossed the silos' boundaries and what a run cost, in words and numbers for its page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphsilo.report import figures, tables
from graphsilo.report.formats import (
    MISSING,
    NOT_RECORDED,
    bar_width,
    data_size,
    duration,
    integer,
    listed,
    mean,
    number,
    percent,
    words,
)
from graphsilo.report.record import Context, Ledger, Run, records

CLIENT_ROWS = 200
"""Most rows of a table per client; the worst are kept."""
KIND_WORDS = {
    "model": ("model weights", "model weights after local training", "model weights to start the round from"),
    "gradient": ("gradients", "gradients of the model on the silo's own data", "gradients to apply or compare with"),
    "prototype": (
        "class prototypes",
        "class prototypes: one average embedding per class, of the nodes that have it",
        "class prototypes of the federation or of other silos",
    ),
    "statistic": (
        "statistics over nodes",
        "sums, means or moments over the silo's nodes, no single node's values",
        "sums, means or moments over all silos",
    ),
    "embedding": ("embeddings of nodes", "embeddings of single nodes", "embeddings of single nodes of other silos"),
    "generator": (
        "generator weights",
        "weights of a model that generates data like the silo's",
        "weights of a model that generates data like the silos'",
    ),
    "synthetic": ("synthetic data", "made-up nodes or graphs, fitted to the silo's data", "made-up nodes or graphs"),
    "logits": (
        "predictions",
        "predictions of the silo's model, one row per item",
        "predictions to learn from, one row per item",
    ),
    "topology": ("graph structure", "structure of the silo's graph: edges, degrees or paths", "graph structure"),
    "counts": (
        "counts",
        "how many: nodes, labels per class, right and wrong predictions",
        "how many, over the whole federation",
    ),
    "score": ("scores", "single numbers on quality: losses, accuracies, similarities", "single numbers on quality"),
    "control": ("control values", "settings and progress, nothing computed from data", "settings and progress"),
}
"""Disclosure kind to: its name in a sentence, what leaves a silo under it, what comes back."""
_UNKNOWN_KIND = ("an unknown kind", "a kind that this report does not know", "a kind that this report does not know")

_BYTES = ("upload_bytes", "download_bytes")


def ledger_section(ledger: Ledger | None, seeds: int) -> Context | None:
    if ledger is None:
        return None
    up, down = ledger.total("up"), ledger.total("down")
    if not up and not down:
        return None
    names = figures.kind_names(ledger)
    kinds = []
    for name in sorted(names, key=lambda kind: -ledger.by_kind.get("up", {}).get(kind, 0.0)):
        sent, received = (ledger.by_kind.get(way, {}).get(name, 0.0) for way in ("up", "down"))
        _, left, came = KIND_WORDS.get(name, _UNKNOWN_KIND)
        kinds.append(
            {
                "name": name,
                "left": left if sent else "nothing",
                "sent": data_size(sent) if sent else MISSING,
                "share": percent(sent / up) if up and sent else MISSING,
                "bar": bar_width(sent, up) if sent else None,
                "came": came if received else "nothing",
                "received": data_size(received) if received else MISSING,
            }
        )
    senders = ledger.by_client.get("up", {})
    largest = sorted(senders, key=lambda who: (-sum(senders[who].values()), who))
    told = [name for name in names if ledger.by_kind.get("up", {}).get(name)]
    return {
        "sentence": _ledger_sentence(ledger, up, down, len(senders), seeds),
        "kinds": kinds,
        "client_columns": told,
        "clients": [
            {
                "client": who,
                "cells": [data_size(senders[who].get(name) or None) for name in told],
                "total": data_size(sum(senders[who].values())),
                "received": data_size(sum(ledger.by_client.get("down", {}).get(who, {}).values()) or None),
            }
            for who in largest[:CLIENT_ROWS]
        ],
        "client_note": f"The {CLIENT_ROWS} of {integer(len(senders))} clients that sent most; ledger.parquet holds all."
        if len(senders) > CLIENT_ROWS
        else "Means over seeds; the clients that sent most first.",
        "fields": [
            {
                "direction": {"up": "left", "down": "came back"}.get(field.direction, field.direction),
                "phase": {"setup": "set-up"}.get(field.phase, field.phase),
                "handler": field.handler,
                "field": f"{field.message}.{field.name}" if field.message else field.name,
                "kind": field.kind,
                "bytes": data_size(field.bytes),
                "messages": integer(field.messages) if field.messages else MISSING,
            }
            for field in ledger.fields[:CLIENT_ROWS]
        ],
        "field_note": f"The {CLIENT_ROWS} of {len(ledger.fields)} fields with most bytes."
        if len(ledger.fields) > CLIENT_ROWS
        else "Every field of every message that crossed a silo's boundary, per seed.",
        "phases": [
            {
                "name": {"setup": "Set-up", "round": "Rounds", "evaluation": "Evaluation"}.get(phase, words(phase)),
                "up": data_size(ways.get("up")),
                "down": data_size(ways.get("down")),
            }
            for phase, ways in sorted(ledger.by_phase.items(), key=lambda item: _phase_order(item[0]))
        ],
    }


def _ledger_sentence(ledger: Ledger, up: float, down: float, clients: int, seeds: int) -> str:
    sent = [name for name in figures.kind_names(ledger) if ledger.by_kind.get("up", {}).get(name)]
    sent.sort(key=lambda name: -ledger.by_kind["up"][name])
    per = f", {data_size(up / clients)} per silo on average" if clients else ""
    mean_of = f" (mean over {seeds} seeds)" if seeds > 1 else ""
    phrases = [KIND_WORDS.get(name, (name,))[0] for name in sent]
    what = f": {listed(phrases)}" if phrases else ""
    text = f"{data_size(up)} left the silos{per}{mean_of}{what}. {data_size(down)} came back."
    scoring = ledger.by_phase.get("evaluation", {})
    if any(scoring.values()):
        parts = (data_size(scoring.get(way, 0.0)) for way in ("up", "down"))
        text += f" Of this, {' and '.join(parts)} served evaluation alone and do not count as cost of training."
    return text


def _phase_order(name: str) -> tuple[int, str]:
    order = ("setup", "round", "evaluation")
    return (order.index(name) if name in order else len(order), name)


def cost_section(run: Run) -> Context:
    rounds = [len(records(seed.get("rounds"))) for seed in run.seeds]
    up, down = (tables.total_bytes(run, key) for key in ("upload_bytes", "download_bytes"))
    ran = mean(rounds) or 0
    peak = max((value for value in run.values("peak_rss_bytes") if value is not None), default=None)
    whole = run.section("process")
    facts = [
        ("Processor time of training and evaluation, per seed", _recorded(duration, mean(run.values("cpu_seconds")))),
        ("Clock time of training and evaluation, per seed", _recorded(duration, mean(run.values("wall_seconds")))),
        ("Processor time of checkpoints, per seed", _recorded(duration, mean(run.values("checkpoint_cpu_seconds")))),
        ("Processor time of the whole run, to this page", _recorded(duration, number(whole.get("cpu_seconds")))),
        ("Clock time of the whole run, to this page", _recorded(duration, number(whole.get("wall_seconds")))),
        ("Peak memory of training, largest process", _recorded(data_size, peak)),
        ("Peak memory to this page, largest process", _recorded(data_size, number(whole.get("peak_rss_bytes")))),
        ("Rounds", _range(rounds) if any(rounds) else NOT_RECORDED),
        ("Sent for training, per seed", _recorded(data_size, up)),
        ("Received for training, per seed", _recorded(data_size, down)),
    ]
    if up is not None and ran:
        each = [
            mean(number(row.get(key)) for seed in run.seeds for row in records(seed.get("rounds"))) for key in _BYTES
        ]
        facts += [
            ("Sent for training, per round", data_size(each[0])),
            ("Received for training, per round", data_size(each[1])),
        ]
    setup = [mean(run.values("setup", key)) for key in _BYTES]
    if any(setup):
        facts.append(("Set-up, sent and received", f"{data_size(setup[0])}, {data_size(setup[1])}"))
    taking_part = [
        float(len(found)) if isinstance(found := row.get("participants"), list) else number(found)
        for seed in run.seeds
        for row in records(seed.get("rounds"))
    ]
    if any(value is not None for value in taking_part):
        facts.append(("Clients per round", _range([value for value in taking_part if value is not None])))
    return {"facts": facts}


def _recorded(shape: Any, value: float | None) -> str:
    return NOT_RECORDED if value is None else str(shape(value))


def _range(values: Sequence[float]) -> str:
    low, high = integer(min(values)), integer(max(values))
    return low if low == high else f"{low} to {high}"
