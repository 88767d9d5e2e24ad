"""What crossed the silos' boundaries and what a run cost, in words and numbers for its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphsilo.federation.kinds import MASKED, describe_compression
from graphsilo.federation.secure import MIN_PARTIES
from graphsilo.report import curves, figures
from graphsilo.report.formats import (
    MISSING,
    NOT_RECORDED,
    bar_width,
    data_size,
    duration,
    integer,
    join_words,
    mean,
    percent,
    words,
)
from graphsilo.report.plot import present
from graphsilo.report.record import KIND_WORDS, Ledger, Run
from graphsilo.report.sections import Block, Table, code, with_bar

CLIENT_ROWS = 200
"""Most rows of a table per client; the worst are kept."""
_UNKNOWN_KIND = ("an unknown kind", "a kind that this report does not know", "a kind that this report does not know")

_BYTES = ("upload_bytes", "download_bytes")


def ledger_blocks(run: Run) -> list[Block]:
    """The section of what crossed."""
    ledger, settings = run.ledger, run.config.get("run", {})
    if ledger is None:
        return [("note", "Not recorded: the run's folder holds no readable ledger.parquet.")]
    if not ledger.total("up") and not ledger.total("down"):
        return [("plain", "Nothing: no message crossed the boundary of a silo.")]
    return [
        ("plain", ledger_sentence(ledger, len(run.seeds), settings)),
        ("promise", _POOLED if run.result.method.pooled else _PROMISE),
        ("table", kind_table(ledger, settings)),
        ("pair", present(figures.uploads(ledger, run.names))),
        ("folded", ("Bytes by client and kind", _client_table(ledger), False) if ledger.by_client.get("up") else ()),
        ("folded", ("Every field that crossed", _field_table(ledger), False)),
    ]


_PROMISE = (
    "Raw features and labels of nodes have no disclosure kind: a message cannot declare them, and what is not declared "
    "is not sent."
)
_POOLED = (
    "This is a reference, not federated learning: it trains on the data of all silos in one place. The ledger counts "
    "the messages only, not the data put together beforehand."
)


def kind_table(ledger: Ledger, settings: Mapping[str, Any]) -> Table:
    """Bytes by disclosure kind, with what it is; ``settings`` are the configuration's ``run``."""
    up = ledger.total("up")
    rows = []
    for name in sorted(figures.kind_names(ledger), key=lambda kind: -ledger.by_kind.get("up", {}).get(kind, 0.0)):
        sent, received = (ledger.by_kind.get(way, {}).get(name, 0.0) for way in ("up", "down"))
        _, left, came = KIND_WORDS.get(name, _UNKNOWN_KIND)
        share = percent(sent / up) if up and sent else MISSING
        rows.append((
            name,
            left + _how(name, ledger, settings) if sent else "nothing",
            data_size(sent) if sent else MISSING,
            with_bar(f"{share}\u00a0%", bar_width(sent, up)) if sent else share,
            came if received else "nothing",
            data_size(received) if received else MISSING,
        ))  # fmt: skip
    columns = [("Kind", ""), ("What left the silos", "text wrap"), ("Sent", ""), ("Share", "")]
    columns += [("What came back", "text wrap"), ("Received", "")]
    return Table("Bytes by disclosure kind", columns, rows)


def _client_table(ledger: Ledger) -> Table:
    """What each client sent, by kind."""
    senders, received = ledger.by_client.get("up", {}), ledger.by_client.get("down", {})
    largest = sorted(senders, key=lambda who: (-sum(senders[who].values()), who))
    kinds = [name for name in figures.kind_names(ledger) if ledger.by_kind.get("up", {}).get(name)]
    note = f"The {CLIENT_ROWS} of {integer(len(senders))} clients that sent most; ledger.parquet holds all."
    if len(senders) <= CLIENT_ROWS:
        note = "Means over seeds; the clients that sent most first."
    columns = [("Client", "name"), *((name, "") for name in (*kinds, "Sent", "Received"))]
    rows = [
        (
            who,
            *(data_size(senders[who].get(name) or None) for name in kinds),
            data_size(sum(senders[who].values())),
            data_size(sum(received.get(who, {}).values()) or None),
        )
        for who in largest[:CLIENT_ROWS]
    ]
    return Table(note, columns, rows, is_hidden=False)


def _field_table(ledger: Ledger) -> Table:
    """Every field, those with most bytes first."""
    note = f"The {CLIENT_ROWS} of {len(ledger.fields)} fields with most bytes."
    if len(ledger.fields) <= CLIENT_ROWS:
        note = "Every field of every message that crossed a silo's boundary, per seed."
    columns = [("Field", ""), *((title, "text") for title in ("Kind", "Way", "Handler", "Phase"))]
    rows = [
        (
            code(f"{field.message}.{field.name}" if field.message else field.name),
            field.kind,
            {"up": "left", "down": "came back"}.get(field.direction, field.direction),
            field.handler,
            {"setup": "set-up"}.get(field.phase, field.phase),
            integer(field.messages) if field.messages else MISSING,
            data_size(field.bytes),
        )
        for field in ledger.fields[:CLIENT_ROWS]
    ]
    return Table(note, [*columns, ("Messages", ""), ("Bytes", "")], rows, is_hidden=False)


def _phase_table(ledger: Ledger) -> Table:
    """Bytes of set-up, rounds and evaluation."""
    order = {"setup": "Set-up", "round": "Rounds", "evaluation": "Evaluation"}
    phases = [*(name for name in order if name in ledger.by_phase), *sorted(ledger.by_phase.keys() - order)]
    rows = [
        (order.get(name, words(name)), *(data_size(ledger.by_phase[name].get(way)) for way in ("up", "down")))
        for name in phases
    ]
    return Table("Bytes by phase, per seed", [("Phase", ""), ("Sent", ""), ("Received", "")], rows, is_hidden=False)


def _how(kind: str, ledger: Ledger, settings: Mapping[str, Any]) -> str:
    """How what left went in fewer bytes, to stand behind its name; empty where it did not."""
    way = settings.get("compression", "none")
    fewer = {field.message.endswith(f" ({way})") for field in ledger.fields
             if (field.direction, field.kind, bool(field.bytes)) == ("up", kind, True)}  # fmt: skip
    if kind != "model" or True not in fewer:
        return ""
    return f", {'some ' if False in fewer else ''}{describe_compression(way, settings['top_share'])}"


def ledger_sentence(ledger: Ledger, seeds: int, settings: Mapping[str, Any]) -> str:
    """How much left the silos and came back, of what kinds, and how much of it was masked or served evaluation."""
    up, down, clients = ledger.total("up"), ledger.total("down"), len(ledger.by_client.get("up", {}))
    sent = [name for name in figures.kind_names(ledger) if ledger.by_kind.get("up", {}).get(name)]
    sent.sort(key=lambda name: -ledger.by_kind["up"][name])
    per = f", {data_size(up / clients)} per silo on average" if clients else ""
    mean_of = f" (mean over {seeds} seeds)" if seeds > 1 else ""
    phrases = [
        KIND_WORDS.get(name, (name,))[0] + (" (compressed)" if _how(name, ledger, settings) else "") for name in sent
    ]
    what = f": {join_words(phrases)}" if phrases else ""
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


def cost_blocks(run: Run) -> list[Block]:
    """The section of what the run took."""
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
    crossed = run.ledger is not None and any(run.ledger.total(way) for way in ("up", "down"))
    return [
        ("panel", {"facts": facts, "edges": None}),
        ("table", _phase_table(run.ledger) if run.ledger is not None and crossed else None),
        ("pair", [*curves.server_work(run), *curves.round_cost(run)]),
    ]


def _range(values: Sequence[int]) -> str:
    low, high = integer(min(values)), integer(max(values))
    return low if low == high else f"{low} to {high}"
