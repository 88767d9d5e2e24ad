"""A run whose silos are at other machines: the runner of one process over a transport.

The coordinator knows of each silo what its card says (``graphsilo silo check`` shows it) and what the method's
messages carry. Everything else is as in one process: rounds, evaluation from counts, checkpoints, results.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from graphsilo.data.scales import Scaling
from graphsilo.data.silos.cards import card_notes, compare_cards
from graphsilo.data.silos.schema import schema_tree
from graphsilo.data.silos.silo import Schema
from graphsilo.errors import FederationError
from graphsilo.experiments.check_remote import check_remote
from graphsilo.experiments.client_names import describe_absent, find_left_out
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.observer import Observer
from graphsilo.experiments.participants import Participants
from graphsilo.experiments.references import reference_config
from graphsilo.experiments.runner import run
from graphsilo.experiments.seed import secure_sums
from graphsilo.experiments.simulation import model_specs
from graphsilo.experiments.storage import disk
from graphsilo.experiments.storage.reading import FederationFacts, OwnSeed, OwnSummary, SiloShare
from graphsilo.experiments.storage.records import RunRecord, tree_of
from graphsilo.experiments.storage.results import Result
from graphsilo.experiments.storage.resume import check_free
from graphsilo.federation import registry
from graphsilo.federation.class_counts import CountingClient, count_classes
from graphsilo.federation.exposure import warn_coordinator
from graphsilo.federation.interface import answers_of
from graphsilo.federation.registry import Method
from graphsilo.federation.settings import MethodConfig
from graphsilo.runtime.hosted import READS_ONLY
from graphsilo.runtime.lost import StateLost
from graphsilo.runtime.remote.sites import RemoteSites
from graphsilo.runtime.setup import ClientSetup
from graphsilo.runtime.transport import Transport
from graphsilo.types import CLASS_TASKS, ClientId, Task

_WHERE_DATA_IS = ("data", "partition", "scenario", "perturb")
"""Sections that say where a simulation gets its data; between machines the silos say it."""


@dataclass(frozen=True, kw_only=True)
class RemoteParticipants(Participants):
    """Participants of whom only the cards are known."""

    cards: Mapping[ClientId, Mapping[str, Any]]

    def keep(self, folder: Path) -> None:
        disk.write_json(folder / "silos.json", {str(client): dict(card) for client, card in self.cards.items()})


def remote_participants(
    config: RunConfig,
    name: str,
    cards: Mapping[ClientId, Mapping[str, Any]],
    *,
    without: tuple[ClientId, ...] = (),
    names: Mapping[ClientId, str] | None = None,
) -> RemoteParticipants:
    """Compare the silos' cards and make participants of them.

    Raises:
        DataError: They do not describe their nodes and classes alike; names silos and the first difference.
    """
    schema = compare_cards([dict(card) for card in cards.values()], config.task)
    task: Task = config.task or schema.task
    schema = Schema(**{**asdict(schema), "task": task})
    rows = []
    held = {name: sum(card["counts"][name] for card in cards.values()) for name in ("graphs", "nodes", "edges")}
    items = "graphs" if held["graphs"] else "nodes"  # of a collection whole graphs are weighed and scored
    for client, card in cards.items():
        counts = card["counts"]
        rows.append(
            {
                "client": client,
                "silo": card["name"],
                "nodes": counts[items],
                "edges": counts["edges"],
                **{kind: counts.get(kind, 0) for kind in ("train", "val", "test")},
            }
        )
    text = json.dumps([[client, dict(card)] for client, card in cards.items()], sort_keys=True, default=str)
    # What is set and not used must not look as if it were.
    unused = [section for section in _WHERE_DATA_IS if config.is_given(section)]
    notes = card_notes(list(cards.values()))
    if without:
        notes = (describe_absent(without, len(cards) + len(without), config.replaces, names or {}), *notes)
    if unused:
        notes += (f"the silos hold their data: the settings under {', '.join(unused)} are not used between machines.",)
    data = {
        "name": name,
        **{name: number for name, number in held.items() if number or name != "graphs"},
        "features": schema.num_features,
        "classes" if task in CLASS_TASKS or task == "link" else "targets": schema.num_classes,
    }
    digest = hashlib.sha256(text.encode()).hexdigest()
    return RemoteParticipants(
        clients=tuple(cards),
        cards=cards,
        task=task,
        schema=schema,
        models=model_specs(config, list(cards)),
        rule="silos",
        num_holders=len(cards) + len(without),
        data=data,
        data_hash=digest,
        cut={"items": items, "per_client": rows},
        cut_hash=digest,
        has_edge_weights=any(card["weighted"] for card in cards.values()),
        notes=notes,
        scaling=Scaling.from_tree(next(iter(cards.values()))),
        without=without,
        names=dict(names or {}),
    )


def run_over(
    transport: Transport,
    config: RunConfig,
    *,
    name: str,
    clients: Mapping[str, Sequence[ClientId]],
    out: str | Path,
    resume: bool = False,
    observer: Observer | None = None,
    say: Callable[[str], None] = lambda text: None,
    report: Callable[[Path], Any] | None = None,
    wait: float = float("inf"),
    names: Mapping[ClientId, str] | None = None,
    max_items: Mapping[ClientId, int] | None = None,
    watch: Callable[[RemoteSites], None] = lambda sites: None,
    check: Callable[[], None] = lambda: None,
) -> Result:
    """Carry out a configuration over silos at other machines.

    Args:
        transport: Leads to the sites.
        config: What to run; where it says where data comes from, it is not used.
        name: Of the federation.
        clients: Numbers of the silos at each site.
        out: Folder for the results.
        resume: Go on from the folder's checkpoints; the sites go back to theirs.
        observer: Receives progress.
        say: Receives a line for every event between machines.
        report: Called with the folder when everything is written.
        wait: Seconds to wait for all sites to answer.
        names: What the silos are called, so that ``run.without`` may name them.
        max_items: Most nodes or graphs that a silo may say it holds, where the federation bounds it.
        watch: Is given the sites before anything is asked of them, to show how they are.
        check: Called again and again while sites are waited for; may raise to end it.

    Raises:
        GraphsiloError: As ``run`` does; and when silos do not fit together or too few answer.
    """
    folder = Path(out)
    check_remote(config)
    if not resume:
        check_free(folder)  # before the run that it holds loses its name
    members = [client for here in clients.values() for client in here]
    without = find_left_out(config.run.without, len(members), names) if config.run.without else ()
    sites = RemoteSites(
        transport, clients, _run_name(folder, config, resume), without=without, deadline=config.run.deadline,
        patience=config.run.patience, say=say,
    )  # fmt: skip
    watch(sites)
    try:
        sites.wait_for_all(wait, check=check)
        cards = sites.cards()
        participants = remote_participants(config, name, cards, without=without, names=names)
        text, is_warning = weights(participants, max_items or {})
        if is_warning:
            participants = replace(participants, notes=(*participants.notes, text))
        else:
            say(text)
        rows = {row["silo"]: row["train"] for row in participants.cut["per_client"]}
        seen = warn_coordinator(
            registry.load(config.method.name).title, config.method_config().square_columns(participants.schema), rows
        )
        if seen and not config.run.secure_sums:
            participants = replace(participants, notes=(*participants.notes, seen))
        sparse = any(bool(card.get("sparse")) for card in cards.values())
        sites.facts = {
            "schema": schema_tree(participants.schema), "sparse": sparse, "task": participants.task,
            "secure_sums": config.run.secure_sums, "report": config.evaluation.report,
        }  # fmt: skip
        sites.evaluations = partial(_count_evaluations, config)
        participants = replace(participants, trained=_count_trained(folder, config, participants, sites))
        apart = [name for name in config.run.references if name in ("local", "alone")]
        if apart:
            rounds = reference_config(config, apart[0]).method_config().total_rounds
            say(
                f"after the run every silo trains alone at its own site, for comparison ({' and '.join(apart)}, "
                f"{rounds} round{'' if rounds == 1 else 's'}): of it nothing leaves but what evaluation sends, with "
                f"standard errors of the differences where a silo lets out scores. run.references=[] leaves it out"
            )
        result = run(
            config, out=out, resume=resume, observer=observer, simulation=participants, elsewhere=sites, report=report
        )
        own = own_results(result.record, participants, sparse)
        trees = {client: tree_of(one) for client, one in own.items()}
        sites.send_results(trees, result.record.config)
        return result
    finally:
        sites.close()


def _count_evaluations(config: RunConfig, method: Method, settings: MethodConfig) -> int:
    """How many answers of evaluation a run asks a silo for at most, one of them to count classes; 0 where it may well
    end earlier."""
    if config.run.early_stopping is not None:
        return 0
    steps = 2 if config.evaluation.threshold_by == "federation" else 1
    asked = steps * len(config.scored_rounds(settings, settings.total_rounds))
    own = [kind for step, kind in answers_of(method.client).items() if step not in READS_ONLY]
    chosen = sum(any(spec.evaluated for spec in kind.specs()) for kind in own) * settings.total_rounds
    return 1 + len(config.run.seeds) * (asked + chosen)


def _count_trained(
    folder: Path, config: RunConfig, participants: RemoteParticipants, sites: RemoteSites
) -> tuple[int, ...] | None:
    """Training items of each class at all silos together; kept with the run, so that it goes on by the same ones."""
    kept = disk.read_json(folder / "run.json", "the run's name")
    if participants.task not in CLASS_TASKS:
        return None
    if "trained" not in kept:
        settings = config.method_config()
        method = replace(registry.load(config.method.name), client=CountingClient)
        setup = ClientSetup(method, settings, participants.models, config.run.seeds[0], config.run.device)
        while "trained" not in kept:
            try:
                federation = sites.federation(setup)
                federation.secure = secure_sums(config, method, federation, setup.seed)
                kept["trained"] = count_classes(federation, settings.min_clients)
            except StateLost as lost:
                sites.recover(lost)
        disk.write_json(folder / "run.json", kept)
    return tuple(kept["trained"])


def weights(participants: RemoteParticipants, max_items: Mapping[ClientId, int]) -> tuple[str, bool]:
    """What share of all items every silo says it holds: models weigh by it, and nobody else can check it.

    Returns:
        The shares in words, and whether they are a warning: of three silos or more, one says it holds more than half.

    Raises:
        FederationError: A silo says it holds more than the federation allows it.
    """
    rows = participants.cut["per_client"]
    for row in rows:
        limit = max_items.get(row["client"])
        if limit is not None and row["nodes"] > limit:
            raise FederationError(
                f"silo '{row['silo']}' says it holds {row['nodes']} items, more than the {limit} that federation.yaml "
                f"allows it (max_items): its models would weigh as much. Ask its owner, or raise the bound."
            )
    total = sum(row["nodes"] for row in rows) or 1
    shares = ", ".join(f"{row['silo']} {row['nodes']} ({100 * row['nodes'] / total:.0f} %)" for row in rows)
    largest = max(rows, key=lambda row: row["nodes"])
    if len(rows) > 2 and 2 * largest["nodes"] > total:
        return (
            f"silo '{largest['silo']}' says it holds more than half of all items ({shares}), and its models weigh as "
            f"much where a method weights by them. If that is not so, bound it by max_items in federation.yaml, or "
            f"weight all alike (method.weight_by=uniform)."
        ), True
    return f"items that the silos say they hold, by which models may be weighted: {shares}", False


def own_results(record: RunRecord, participants: RemoteParticipants, sparse: bool) -> dict[ClientId, SiloShare]:
    """What each silo is sent of a result: its own scores, the federation's means, and what its model was made for."""
    return {
        client: SiloShare(
            format=record.format,
            graphsilo=record.graphsilo,
            fingerprint=record.fingerprint,
            task=record.task,
            method=record.method,
            class_names=record.class_names,
            schema=schema_tree(participants.schema),
            sparse=sparse,
            model=[spec.name, dict(spec.settings)],
            seeds=[
                OwnSeed(
                    seed.seed,
                    seed.best_round,
                    seed.last_round,
                    next((row for row in seed.clients if row.client == client), None),
                    seed.reported,
                )
                for seed in record.seeds
            ],
            federation=FederationFacts(record.data.name, len(participants.clients), record.partition.without),
            summary=OwnSummary(record.summary.test),
        )
        for client, spec in participants.models.items()
    }


def _run_name(folder: Path, config: RunConfig, resume: bool) -> str:
    """The run's name at the sites: kept with the run, so that a restarted coordinator finds the sites' checkpoints."""
    path = folder / "run.json"
    if resume and path.exists():
        return str(disk.read_json(path, "the run's name")["run"])
    word = re.sub(r"[^a-z0-9]+", "-", f"{folder.name}-{config.method.name}".lower()).strip("-")[:60]
    name = f"{word or 'run'}-{secrets.token_hex(4)}"
    folder.mkdir(parents=True, exist_ok=True)
    disk.write_json(path, {"run": name})
    return name
