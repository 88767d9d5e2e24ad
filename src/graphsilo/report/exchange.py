"""What crossed the silos' boundaries and what a run cost, in words and numbers for its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphsilo.federation.kinds import MASKED, compressed
from graphsilo.federation.secure.peers import MIN_PARTIES
from graphsilo.report import figures
from graphsilo.report.formats import (
    MISSING,
    NOT_RECORDED,
    bar_width,
    data_size,
    duration,
    integer,
    listed,
    mean,
    percent,
    words,
)
from graphsilo.report.record import KIND_WORDS, Context, Ledger, Run

CLIENT_ROWS = 200
"""Most rows of a table per client; the worst are kept."""
_UNKNOWN_KIND = ("an unknown kind", "a kind that this report does not know", "a kind that this report does not know")

_BYTES = ("upload_bytes", "download_bytes")


def ledger_section(ledger: Ledger | None, seeds: int, settings: Mapping[str, Any]) -> Context | None:
    """What crossed.

    Args:
        ledger: None where it is missing.
        seeds: How many.
        settings: ``run`` of the configuration.
    """
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
        left += _how(name, ledger, settings)
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
    sent_kinds = [name for name in names if ledger.by_kind.get("up", {}).get(name)]
    return {
        "sentence": _ledger_sentence(ledger, up, down, len(senders), seeds, settings),
        "kinds": kinds,
        "client_columns": sent_kinds,
        "clients": [
            {
                "client": who,
                "cells": [data_size(senders[who].get(name) or None) for name in sent_kinds],
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


def _how(kind: str, ledger: Ledger, settings: Mapping[str, Any]) -> str:
    """How what left went in fewer bytes, to stand behind its name; empty where it did not."""
    way = settings.get("compression", "none")
    fewer = {field.message.endswith(f" ({way})") for field in ledger.fields
             if (field.direction, field.kind, bool(field.bytes)) == ("up", kind, True)}  # fmt: skip
    if kind != "model" or True not in fewer:
        return ""
    return f", {'some ' if False in fewer else ''}{compressed(way, settings['top_share'])}"


def _ledger_sentence(
    ledger: Ledger, up: float, down: float, clients: int, seeds: int, settings: Mapping[str, Any]
) -> str:
    sent = [name for name in figures.kind_names(ledger) if ledger.by_kind.get("up", {}).get(name)]
    sent.sort(key=lambda name: -ledger.by_kind["up"][name])
    per = f", {data_size(up / clients)} per silo on average" if clients else ""
    mean_of = f" (mean over {seeds} seeds)" if seeds > 1 else ""
    phrases = [
        KIND_WORDS.get(name, (name,))[0] + (" (compressed)" if _how(name, ledger, settings) else "") for name in sent
    ]
    what = f": {listed(phrases)}" if phrases else ""
    text = f"{data_size(up)} left the silos{per}{mean_of}{what}. {data_size(down)} came back."
    masked = sum(field.bytes for field in ledger.fields if field.message.endswith(MASKED))
    if masked:
        text += (
            f" {data_size(masked)} of it was masked: the coordinator saw the sums of at least {MIN_PARTIES} silos, and "
            f"of no single one what it had sent."
        )
    scoring = ledger.by_phase.get("evaluation", {})
    if any(scoring.values()):
        parts = (data_size(scoring.get(way, 0.0)) for way in ("up", "down"))
        text += f" Of this, {' and '.join(parts)} served evaluation alone and do not count as cost of training."
    return text


def _phase_order(name: str) -> tuple[int, str]:
    order = ("setup", "round", "evaluation")
    return (order.index(name) if name in order else len(order), name)


def cost_section(run: Run) -> Context:
    seeds, spent = run.seeds, run.result.spent
    rounds = [row for seed in seeds for row in seed.rounds]
    whole = run.result.process
    setup = [mean(getattr(seed.setup, key) for seed in seeds) for key in _BYTES]
    facts = [
        ("Processor time of training and evaluation, per seed", duration(mean(seed.cpu_seconds for seed in seeds))),
        ("Of this, the server and scoring, per seed", duration(mean(seed.server_cpu_seconds for seed in seeds))),
        ("Clock time of training and evaluation, per seed", duration(mean(seed.wall_seconds for seed in seeds))),
        ("Processor time of checkpoints, per seed", duration(mean(seed.checkpoint_cpu_seconds for seed in seeds))),
        ("Processor time of the whole run, to this page", duration(whole.cpu_seconds) if whole else NOT_RECORDED),
        ("Clock time of the whole run, to this page", duration(whole.wall_seconds) if whole else NOT_RECORDED),
        ("Peak memory of training, largest process", data_size(max(seed.peak_rss_bytes for seed in seeds))),
        ("Peak memory to this page, largest process", data_size(whole.peak_rss_bytes) if whole else NOT_RECORDED),
        ("Rounds", _range([len(seed.rounds) for seed in seeds])),
        ("Sent for training, per seed", data_size(spent.upload_bytes)),
        ("Received for training, per seed", data_size(spent.download_bytes)),
        ("Sent for training, per round", data_size(mean(row.upload_bytes for row in rounds))),
        ("Received for training, per round", data_size(mean(row.download_bytes for row in rounds))),
    ]
    if any(setup):
        facts.append(("Set-up, sent and received", f"{data_size(setup[0])}, {data_size(setup[1])}"))
    if rounds:
        facts.append(("Clients per round", _range([row.participants for row in rounds])))
    return {"facts": facts}


def _range(values: Sequence[int]) -> str:
    low, high = integer(min(values)), integer(max(values))
    return low if low == high else f"{low} to {high}"
