"""One seed of a run: set up, train round by round, evaluate, keep checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from graphsilo.data.silos.scaling import FeatureScale
from graphsilo.data.sources.sizes import in_words
from graphsilo.errors import RunError
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.evaluation import (
    SetScores,
    choice_of,
    evaluate,
    modes_of,
    scored_clients,
    view_of,
)
from graphsilo.experiments.observer import ClientRound, Observer, Progress, SeedEnded, SeedStarted, SetUp, Working
from graphsilo.experiments.participants import Federations, Participants, asks_for, selection_metric
from graphsilo.experiments.progress import Aggregates, Improved, Reported, SeedProgress, first_set
from graphsilo.experiments.simulation import Simulation
from graphsilo.experiments.storage.records import Round, RoundCost, Seed, record_of, reported_scores, tree_of
from graphsilo.experiments.storage.results import seed_result
from graphsilo.federation.codec import encode
from graphsilo.federation.compression import Compression
from graphsilo.federation.interface import handlers_of
from graphsilo.federation.ledger import Ledger, Traffic
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.federation.settings import MethodConfig
from graphsilo.federation.wire import Encoded
from graphsilo.runtime.exchange import Exchange
from graphsilo.runtime.hosted import Reported as ReportedModel
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.runtime.local.offload_folder import OffloadFolder
from graphsilo.runtime.local.placement import MemoryBudget, graph_bytes
from graphsilo.runtime.setup import ClientSetup
from graphsilo.types import CLASS_TASKS, ClientId

if TYPE_CHECKING:
    from graphsilo.experiments.storage.checkpoint import Checkpoints
    from graphsilo.runtime.secure import SecureSums
    from graphsilo.training.work import Work

CHECKPOINT_SHARE = 0.05
"""Most of a run's time that checkpoints take, where nobody says how often they are written."""
LEAST_SECONDS = 0.05
"""What a checkpoint is taken to cost before the first: the first one comes after a second of training."""
REPORT_SECONDS = 0.2
"""Least time between two reports of a long piece of the server's work."""
MUCH_TRAFFIC = 5 * 10**9
"""Bytes one way in a run that a person is warned of beforehand."""


class SeedRun:
    """One seed of a run."""

    def __init__(
        self,
        config: RunConfig,
        method: Method,
        method_config: MethodConfig,
        simulation: Participants,
        seed: int,
        elsewhere: Federations | None,
        checkpoints: Checkpoints | None,
        offload_folder: OffloadFolder | None = None,
        beside: Path | None = None,
    ):
        self.config, self.method, self.method_config = config, method, method_config
        self.simulation, self.seed, self.elsewhere, self.checkpoints = simulation, seed, elsewhere, checkpoints
        self.offload_folder, self.beside = offload_folder, beside
        self.scored_rounds = config.scored_rounds(method_config, method_config.total_rounds)
        self.scored = scored_clients(config.evaluation, simulation.clients, seed)
        self.modes = modes_of(config.evaluation, method)
        self.choice = choice_of(config)
        self.metric = selection_metric(config.evaluation, simulation)
        self.asks = asks_for(config.evaluation, simulation)
        if config.run.alone:
            self.asks.pop("within", None)
        self.progress = SeedProgress()
        self.holders = simulation.holders if method.pooled else ()
        # By itself a silo chooses its own round, as far as its own scores are seen.
        by_itself = config.run.alone and config.evaluation.report == "silos"
        if by_itself and self.choice == "run":  # which every silo is by itself
            self.choice = "silo"
        self.own_rounds = by_itself or getattr(method_config, "best_round", "common") == "own"
        self.best = Aggregates()
        self._kept_rounds = 0
        self._since_save = self._save_seconds = 0.0  # seconds since the last checkpoint, and those that it took
        self.keeps_models = checkpoints is not None and (config.evaluation.models or config.evaluation.embeddings)
        self.exchanges = not (method.alone or method.pooled)
        self.models = simulation.models
        if config.run.start is not None:
            from graphsilo.experiments.starts import start_models

            self.models = start_models(config.run.start, method, simulation, seed)
        self.scaling = simulation.scaling if self.exchanges else simulation.scaling.alone
        self.scale: FeatureScale | None = None
        self.compression = Compression(config.run.compression, config.run.top_share)
        # Of set-up: what it took and who failed before the clock was last started.
        self._taken: dict[str, float] = {}
        self._failed_before: list[str] = []
        self._reported = 0.0
        self._last_clients: Callable[[], list[ClientRound]] = list

    def federation(self, ledger: Ledger) -> Exchange:
        """Clients of this seed in this process, or where they live."""
        return self._clients(self.method, ledger)

    def _clients(self, method: Method, ledger: Ledger) -> Exchange:
        agreeing = method.client.takes_unscaled
        setup = ClientSetup(
            method, self.method_config, self.models, self.seed, self.config.run.device, self.scaling, self.scale,
            self.compression, self.metric.name, self.beside,
        )  # fmt: skip
        if self.elsewhere is not None and not (agreeing and isinstance(self.simulation, Simulation)):
            return self.elsewhere.federation(setup, ledger)
        if not isinstance(self.simulation, Simulation):
            raise RunError("clients whose data is elsewhere cannot be made in this process.")
        silos = {silo.client: silo for silo in self.simulation.silos}
        budget = None
        if self.offload_folder is not None and not agreeing:
            sizes = sum(map(graph_bytes, silos.values()))
            budget = MemoryBudget(self.config.run.resident_clients, sizes, self.offload_folder.make_empty)
        return InProcess(sorted(silos), lambda client: setup.client(silos[client]), ledger, budget)

    def run(
        self, index: int, *, resume: bool, observer: Observer, label: str, folder: Path | None
    ) -> tuple[Seed, Ledger]:
        """Set up, train, evaluate; returns the seed's result and its ledger."""
        state = self.checkpoints.load(self.seed) if resume and self.checkpoints else None
        ledger = Ledger(exchanges=self.exchanges)
        if state is not None:
            ledger.extend(state["history"]["ledger"])
        place = (self.seed, index + 1, len(self.config.run.seeds))
        if state is not None and state["result"] is not None:
            if folder is not None and self.config.evaluation.embeddings and isinstance(self.simulation, Simulation):
                from graphsilo.experiments.storage.outputs import write_missing_embeddings

                write_missing_embeddings(folder, self.config, self.method, self.simulation, [self.seed])
            kept = record_of(state["result"], Seed)
            announce_seed(kept, place, observer, label)
            return kept, ledger
        started = time.perf_counter()
        federation, server = self._open(state, ledger)
        self._clock = _Clock(federation)
        noted = index > 0  # the first seed speaks for all

        def after_step(work: Work) -> None:
            self._save_within(work, server, federation)
            now = time.perf_counter()
            if now - self._reported >= REPORT_SECONDS or work.done == work.steps:
                self._reported = now
                observer.on_work(Working(*place, work.name, work.done, work.steps, now - started, label=label))

        server.after_step = after_step
        is_set_up = state is not None and state["work"] is None
        if state is not None:
            self._go_on(state, server, federation)
        progress = self.progress
        setup = _cost_tree(progress.setup) if is_set_up else None
        rows = [_round_tree(row) for row in progress.rounds]
        observer.on_seed_start(SeedStarted(*place, rounds=server.rounds, setup=setup, rows=rows, label=label))
        if state is None and not noted:
            noted = self._note_traffic(self._expected_bytes(server), observer, of=" of tensors")
        if not is_set_up:
            self._set_up(server, federation)
            observer.on_set_up(SetUp(*place, row=_cost_tree(progress.setup), label=label))
        sent = {key: sum(row[key] for row in (progress.setup, *progress.rounds)) for key in _WAYS}
        for number in range(progress.round + 1, server.rounds + 1):
            if progress.stopped:
                break
            self._round(number, server, federation)
            if number == 1 and not noted:
                whole = [progress.setup[key] + server.rounds * progress.rounds[-1][key] for key in _WAYS]
                self._note_traffic((whole[0], whole[1]), observer)
            if number < server.rounds and not progress.stopped and self._is_due(number):
                # Before anybody is sent the round: who stops a run then, stops it where it can go on.
                self._save(server, federation)
            last, shown = progress.rounds[-1], reported_scores(progress.rounds[-1])
            sent = {key: size + last[key] for key, size in sent.items()}
            observer.on_progress(
                Progress(
                    *place, number, server.rounds, shown.get("validation"), shown.get("test"), progress.best_score,
                    sent["upload_bytes"], sent["download_bytes"], time.perf_counter() - started,
                    row=_round_tree(last), each_client=self._last_clients, label=label,
                )
            )  # fmt: skip
        reported = progress.choose_reported(self.modes, self.metric, self.choice)
        result = seed_result(
            self.seed, progress, self.modes, reported, self.simulation, federation.peak_rss_bytes(),
            self.asks.get("periods", ()),
        )  # fmt: skip
        if self.keeps_models or self.config.evaluation.study:
            from graphsilo.experiments.storage.outputs import write_outputs

            study = write_outputs(
                folder, self.seed, federation, server, self.config.evaluation, self.best, self.scale,
                self._to_answer(reported),
            )  # fmt: skip
            if self.config.evaluation.study:
                result = structs.replace(result, study=study)
        if self.checkpoints:
            self.checkpoints.save(self.seed, {"result": tree_of(result)}, {"ledger": ledger.take()})
        observer.on_seed_end(SeedEnded(*place, result=result, label=label))
        return result, ledger

    def _open(self, state: Mapping[str, Any] | None, ledger: Ledger) -> tuple[Exchange, ServerBase[Any]]:
        """Clients and server, once silos have agreed on the scale of their features."""
        if state is None and (self.scaling.is_agreed or self._agrees_on_targets):
            self._agree(ledger)
        elif state is not None and state["scale"] is not None:
            from graphsilo.federation.model_files import scale_of

            self.scale = scale_of(state["scale"])
        federation = self.federation(ledger)
        federation.largest_value = self.config.run.largest_value
        federation.largest_ratio = self.config.run.largest_ratio
        federation.compression = self.compression
        if self.config.run.robust != "none":
            from graphsilo.federation.robust import Robust

            federation.robust = Robust(self.config.run.robust, self.config.run.liars)
        federation.secure = secure_sums(self.config, self.method, federation, self.seed)
        return federation, self._server(federation)

    def _go_on(self, state: Mapping[str, Any], server: ServerBase[Any], federation: Exchange) -> None:
        """Take back what a checkpoint kept."""
        server.load_state(state["server"])
        federation.load_client_states(state["clients"])
        # The last round stands in the checkpoint: what it cost to write is added to it afterwards.
        rounds = [*state["history"]["rounds"], *state["last_round"]]
        self.progress = SeedProgress.from_state(state["progress"], rounds)
        self._kept_rounds = len(state["history"]["rounds"])
        self.best = Aggregates.from_state(state["best"])
        if state["work"] is not None:
            self._continue_set_up(state["work"], server)

    def _to_answer(self, found: Reported) -> dict[ClientId, ReportedModel]:
        """What silos need to keep what the run reports of them: for themselves, or to be compared with what they reach
        alone, item by item."""
        apart = not isinstance(self.simulation, Simulation)
        compared = self.simulation.task in CLASS_TASKS and not {"local", "alone"}.isdisjoint(self.config.run.references)
        scores = found.view.best[first_set(found.mode)]
        agreed = dict(zip(scores.clients, scores.tables.get("agreed", ()), strict=False))
        usual = next(iter(agreed.values()), ())  # of who is not scored, or not by itself
        wanted = (apart or compared or agreed) and self.config.evaluation.models
        if not wanted or self.config.run.alone or self.method.pooled:
            return {}
        models = {}
        for client in self.simulation.clients:
            mode = found.whose.get(client, found.mode)
            common = self.best.of(client) if mode.startswith("aggregate") else None
            if mode.endswith("_local") and (common is not None or mode.startswith("own")):
                models[client] = view_of(mode), common, list(map(float, agreed.get(client, usual)))
        return models

    def _note_traffic(self, expected: tuple[int, int], observer: Observer, *, of: str = "") -> bool:
        """Warn of a run that will send much; returns whether it will. ``of`` says what the bytes are, if not all."""
        sent, received = expected
        if max(expected) <= MUCH_TRAFFIC:
            return False
        observer.on_warning(
            f"{self.method.title} will send up to {in_words(sent)}{of} from the clients in this run and "
            f"{in_words(received)} to them. If that is too much, `graphsilo plan` says what of it is set-up and what "
            f"a round takes, and `graphsilo explain {self.method.name}` which settings change it."
        )
        return True

    def _expected_bytes(self, server: ServerBase[Any]) -> tuple[int, int]:
        """Bytes of tensors up and down, before anything is sent; a secure sum has eight of each number for four."""
        up, down = server.expected_bytes()
        return (2 * up if self.config.run.secure_sums else up), down

    def _server(self, federation: Exchange) -> ServerBase[Any]:
        return self.method.server(
            ServerContext(
                self.method_config, self.simulation.schema, self.models, self.seed, federation.clients,
                self.config.run.device, self.metric.name,
            )
        )  # fmt: skip

    @property
    def _agrees_on_targets(self) -> bool:
        """Whether numbers are to be estimated by models that silos have in common: then they need one scale."""
        return self.exchanges and self.simulation.task == "regression"

    def _agree(self, ledger: Ledger) -> None:
        """Have the silos agree on the scale of their features, and of their targets."""
        from graphsilo.federation.scaling import ScalingClient, agree, message_of

        federation = self._clients(replace(self.method, client=ScalingClient), ledger)
        federation.secure = secure_sums(self.config, self.method, federation, self.seed)
        federation.at("setup", 0)
        clock = _Clock(federation)
        self.scale = agree(
            federation, self.method_config.min_clients, features=self.scaling.is_agreed,
            targets=self._agrees_on_targets,
        )  # fmt: skip
        self._failed_before = list(map(str, federation.failures))
        self._hand_out(encode(message_of(self.scale)), federation)
        self._taken = clock.stop()

    def _hand_out(self, scale: Encoded, federation: Exchange) -> None:
        """Every client will be made with the scale."""
        for client in federation.clients:
            federation.ledger.record(client, "down", "scale", scale)

    def _set_up(self, server: ServerBase[Any], federation: Exchange) -> None:
        federation.at("setup", 0)
        self._clock.start()
        before = federation.ledger.total("setup")["up"]
        server.set_up(federation)
        self._note_set_up(federation)
        self.progress.take_logs(server)
        # What was agreed on before is made again faster than it is kept.
        if self.config.run.checkpoint_every != 0 and federation.ledger.total("setup")["up"] > before:
            self._save(server, federation)

    def _note_set_up(self, federation: Exchange) -> None:
        """What set-up came to so far. The clock starts again."""
        for key, seconds in self._clock.stop().items():
            self._taken[key] = self._taken.get(key, 0.0) + seconds
        failures = [*self._failed_before, *map(str, federation.failures)]
        kept = {key: value for key, value in self.progress.setup.items() if key.startswith("checkpoint_")}
        self.progress.setup = {**_bytes(federation.ledger.total("setup")), **self._taken, **kept}
        if failures:
            self.progress.setup["failures"] = failures
        self._clock.start()

    def _save_within(self, work: Work, server: ServerBase[Any], federation: Exchange) -> None:
        """A step of a long piece of work has ended: in set-up, from which clients go on as they are, keep it if due."""
        saved = work.state() if federation.ledger.phase == "setup" and self._is_due_within() else None
        if saved is not None:
            self._note_set_up(federation)
            self._save(server, federation, {**saved, "log": dict(server.log)})
            self._clock.start()

    def _is_due_within(self) -> bool:
        """Whether a checkpoint follows this step of a long piece of work."""
        since = self._clock.wall_seconds()
        return self.config.run.checkpoint_every != 0 and (
            CHECKPOINT_SHARE * since >= max(self._save_seconds, LEAST_SECONDS)
        )

    def _continue_set_up(self, work: Mapping[str, Any], server: ServerBase[Any]) -> None:
        """Take back what set-up came to before it was stopped within a piece of work."""
        setup = self.progress.setup
        self._taken = {key: setup[key] for key in ("cpu_seconds", "server_cpu_seconds", "wall_seconds")}
        self._failed_before = list(setup.get("failures", ()))
        server.unfinished = work
        server.log.update(work["log"])

    def _round(self, number: int, server: ServerBase[Any], federation: Exchange) -> None:
        progress, config = self.progress, self.config.evaluation
        federation.at("round", number)
        self._clock.start()
        server.round(federation, number)
        # What a method's only round hands out is made of what was sent in set-up, and everybody is handed it.
        sent = federation.ledger.senders("setup", handlers_of(self.method.client)) if server.rounds == 1 else ()
        row: dict[str, Any] = {"round": number, "participants": len(sent or federation.participants)}
        failures, idle = list(federation.failures), federation.idle
        asked = _Asked(federation.ledger.traffic(), federation.spent, {failure.client for failure in failures})
        row.update(_bytes(federation.ledger.total("round", number)))
        progress.stopped = server.ends_early
        if number in self.scored_rounds or server.ends_early:
            federation.at("evaluation", number)
            scores = evaluate(
                federation, server, self.method.client, self.modes, **self.asks,
                minimum=self.method_config.min_clients, to=self.scored, holders=self.holders,
                summed=config.report == "federation",
            )  # fmt: skip
            stop = self.config.run.early_stopping if self.config.run.alone else None
            wait = math.inf if stop is None else stop * math.ceil(server.rounds / len(self.scored_rounds))
            better, shown = progress.note(
                number, scores, self.modes, self.metric, self.choice, alone=self.own_rounds, patience=wait
            )
            asked = replace(asked, scores=shown)
            if self.keeps_models:
                self._remember(better, server, federation)
            failures += federation.failures
            row.update(progress.current)
            patience = self.config.run.early_stopping
            progress.stopped |= patience is not None and progress.since_best >= patience
        self._last_clients = partial(asked.clients, self.metric.name)
        if failures:
            row["failures"] = [str(failure) for failure in failures]
        if idle:
            row["idle"] = idle
        row.update(self._clock.stop())
        self._since_save += row["wall_seconds"]
        progress.rounds.append(row)
        progress.round = number
        progress.take_logs(server)

    def _remember(self, better: Mapping[str, Improved], server: ServerBase[Any], federation: Exchange) -> None:
        """Keep each view's models when its validation has never been better."""
        first = self.modes[0]
        by_view = {view_of(mode): better.get(mode, False) for mode in reversed(self.modes)}
        for view in ("own", "aggregate"):
            found = by_view.get(view, better.get(first, False))
            if not found:
                continue
            whose = None if found is True else frozenset(found)
            alone = self.config.run.alone  # then the server's model is the client's, too
            if view == "own" or alone or self.method.client.completes_common:
                federation.remember(whose, view)
            if view == "aggregate" and not alone:
                self.best.keep(server.aggregates(), whose)

    def _is_due(self, number: int) -> bool:
        """Whether a checkpoint follows this round. Whatever the answer, the numbers of the run are the same."""
        every = self.config.run.checkpoint_every
        if every is not None:
            return every > 0 and number % every == 0
        return CHECKPOINT_SHARE * self._since_save >= max(self._save_seconds, LEAST_SECONDS)

    def _save(self, server: ServerBase[Any], federation: Exchange, work: Mapping[str, Any] | None = None) -> None:
        """Keep a checkpoint, within set-up of a piece of work; what it costs is no part of the round's cost, and stands
        beside it."""
        if self.checkpoints is None:
            return
        from graphsilo.federation.model_files import scale_tensors

        self._clock.start()
        progress = self.progress
        before, last = progress.rounds[:-1], progress.rounds[-1:]
        self.checkpoints.save(
            self.seed,
            {
                "result": None,
                "server": server.state(),
                "clients": federation.client_states(),
                "progress": progress.state(),
                "best": self.best.state(),
                "last_round": last,
                "scale": None if self.scale is None else scale_tensors(self.scale),
                "work": work,
            },
            {"ledger": federation.ledger.take(), "rounds": before[self._kept_rounds :]},
        )
        self._kept_rounds = len(before)
        spent = self._clock.stop()
        self._since_save, self._save_seconds = 0.0, spent["wall_seconds"]
        row = last[0] if last else progress.setup
        for name in ("cpu_seconds", "wall_seconds"):
            row[f"checkpoint_{name}"] = row.get(f"checkpoint_{name}", 0.0) + spent[name]


def secure_sums(config: RunConfig, method: Method, federation: Exchange, seed: int) -> SecureSums | None:
    """How sums are made, where they are secure; data in one place needs none."""
    if not config.run.secure_sums or method.pooled:
        return None
    from graphsilo.runtime.secure import SecureSums

    singles = ("evaluate",) if config.evaluation.report == "silos" else ()
    return SecureSums(seed, federation.run, singles=singles, minimum=config.method_config().min_clients)


_WAYS = ("upload_bytes", "download_bytes")


def announce_seed(seed: Seed, place: tuple[int, int, int], observer: Observer, label: str) -> None:
    """Report a seed that was done before."""
    tree = tree_of(seed)
    rounds = len(seed.rounds)
    started = SeedStarted(*place, rounds=rounds, setup=tree["setup"], rows=tree["rounds"], label=label)
    observer.on_seed_start(started)
    observer.on_seed_end(SeedEnded(*place, result=seed, label=label))


def _round_tree(row: Mapping[str, Any]) -> dict[str, Any]:
    """A round as result.json holds it."""
    return tree_of(record_of(row, Round))


def _cost_tree(row: Mapping[str, Any]) -> dict[str, Any]:
    return tree_of(record_of(row, RoundCost))


@dataclass(frozen=True)
class _Asked:
    """What is known of the clients after a round, to be put together if anybody wants to know."""

    traffic: Callable[[], Traffic]
    spent: Mapping[ClientId, float]
    failed: Collection[ClientId]
    scores: SetScores | None = None

    def clients(self, metric: str) -> list[ClientRound]:
        """By number. Where only sums are seen, nobody has a score of its own."""
        found = self.scores or SetScores()
        validation, test = (dict(zip(found.clients, found.each(kind, metric), strict=True)) for kind in ("val", "test"))
        return [
            ClientRound(
                client, traffic["up"], traffic["down"], self.spent.get(client, 0.0), validation.get(client),
                test.get(client), client in self.failed,
            )
            for client, traffic in sorted(self.traffic().items())
        ]  # fmt: skip


class _Clock:
    """CPU and wall time since a start, the clients' processes included."""

    def __init__(self, federation: Exchange):
        self.federation = federation
        self.start()

    def start(self) -> None:
        self._began = self._now()

    def stop(self) -> dict[str, float]:
        """Everybody's CPU seconds, those of them that were no client's step, and seconds of the clock."""
        return {name: now - self._began[name] for name, now in self._now().items()}

    def wall_seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._began["wall_seconds"]

    def _now(self) -> dict[str, float]:
        here, clients = time.process_time(), self.federation.client_cpu_seconds
        everybody = here + self.federation.elsewhere_cpu_seconds
        return {
            "cpu_seconds": everybody, "server_cpu_seconds": everybody - clients, "wall_seconds": time.perf_counter()
        }  # fmt: skip


def _bytes(total: Mapping[str, int]) -> dict[str, int]:
    return {"upload_bytes": total["up"], "download_bytes": total["down"]}
