"""The runner: seeds, rounds, evaluation, checkpoints, results on disk."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
import yaml

from graphsilo import models
from graphsilo.__about__ import __version__
from graphsilo.errors import ConfigError, RunError, UnsupportedError
from graphsilo.evaluate.significance import gap_closed, summarise_seeds
from graphsilo.experiments import disk
from graphsilo.experiments.checkpoint import Checkpoints
from graphsilo.experiments.config import REFERENCES, RunConfig
from graphsilo.experiments.evaluation import RoundScores, SetScores, evaluate, modes_of, selection_metric
from graphsilo.experiments.simulation import Simulation, complete_config, fingerprint, prepare
from graphsilo.federation import registry
from graphsilo.federation.client import ClientContext
from graphsilo.federation.ledger import COLUMNS, Ledger
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.federation.settings import MethodConfig
from graphsilo.runtime.in_process import InProcess, LocalFederation
from graphsilo.runtime.workers import WorkerPool

FORMAT = 1


@dataclass(frozen=True)
class Progress:
    """What an observer hears after each round.

    Attributes:
        seed: Seed of training.
        index, seeds: Which of how many seeds this is, from 1.
        round, rounds: Which of how many rounds; 0 is the set-up.
        validation, test: The first view's scores of this round, or None when it was not evaluated.
        best: Best validation score so far, and its round.
        upload_bytes, download_bytes: So far, set-up included.
        seconds: Wall time of this seed so far in this process.
    """

    seed: int
    index: int
    seeds: int
    round: int
    rounds: int
    validation: Mapping[str, float | None] | None
    test: Mapping[str, float | None] | None
    best: tuple[float, int] | None
    upload_bytes: int
    download_bytes: int
    seconds: float
    label: str = ""


class Observer(Protocol):
    """Who wants to hear of a run. Nothing an observer does changes a number."""

    def started(self, description: Mapping[str, Any]) -> None:
        """The data is ready; training begins."""

    def progressed(self, progress: Progress) -> None:
        """A round has ended."""

    def warned(self, text: str) -> None:
        """Something a person should know."""


class Silent:
    """Hears and says nothing."""

    def started(self, description: Mapping[str, Any]) -> None:
        """Nothing."""

    def progressed(self, progress: Progress) -> None:
        """Nothing."""

    def warned(self, text: str) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes:
        tree: What ``result.json`` holds.
        out: Its folder, or None when nothing was written.
    """

    tree: Mapping[str, Any]
    out: Path | None

    def __repr__(self) -> str:
        score = self.accuracy()
        shown = "no score" if score is None else f"{score:.3f}"
        return f"Result({self.tree['method']['title']} on {self.tree['data']['name']}: {shown}, out={self.out})"

    @property
    def summary(self) -> Mapping[str, Any]:
        """Mean and standard deviation over seeds."""
        found: Mapping[str, Any] = self.tree["summary"]
        return found

    def accuracy(self) -> float | None:
        """Mean test accuracy at the best validation round (link prediction: AUC)."""
        test = self.summary["test"]
        value = test.get("accuracy", test.get("auc"))
        return None if value is None else value["mean"]


def run(
    config: RunConfig,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    observer: Observer | None = None,
    simulation: Simulation | None = None,
    report: Callable[[Path], Any] | None = None,
    label: str = "",
) -> Result:
    """Carry out a configuration.

    Args:
        config: What to run.
        out: Folder for the results; None writes nothing.
        resume: Go on from the folder's checkpoints.
        observer: Hears of progress.
        simulation: Data prepared before, to share it between runs.
        report: Called with the folder when everything is written, e.g. to draw the report page.
        label: How progress names this run, for reference rows.

    Raises:
        GraphsiloError: As the parts do; what was finished before stays on disk.
    """
    torch.set_num_threads(1)  # the order of additions depends on the number of threads
    observer = observer or Silent()
    method = registry.load(config.method.name)
    method_config = config.method_config()
    _check_device(config.run.device)
    folder = None if out is None else Path(out)
    with ExitStack() as stack:
        if folder is not None:
            _check_folder(folder, resume)
            stack.enter_context(disk.owned(folder))
        simulation = simulation or prepare(config, method)
        _check_support(config, method, method_config, simulation)
        print_of = fingerprint(config, simulation)
        done = _finished(folder, print_of) if resume else None
        if done is not None and set(config.run.references) <= set(done.get("references", {})):
            if folder is not None and report is not None and not (folder / "report.html").exists():
                report(folder)  # stopped between the result and its page
            return Result(done, folder)
        checkpoints = None if folder is None else Checkpoints(folder / "checkpoints", print_of)
        if checkpoints is not None and resume:
            for seed in config.run.seeds:
                checkpoints.load(seed)  # refuses another run's before anything of it is overwritten
        if folder is not None:
            disk.write_text(
                folder / "config.yaml", yaml.safe_dump(complete_config(config, simulation), sort_keys=False)
            )
            simulation.partition.save(folder / "partition.npz")
        observer.started(_description(config, method, simulation, label))
        for warning in simulation.warnings():
            observer.warned(warning)
        pool = None
        if config.run.workers > 1 and len(simulation.silos) > 1:
            pool = WorkerPool(simulation.silos, config.run.workers)
            stack.callback(pool.close)
        seeds = []
        ledgers: list[tuple[int, Ledger]] = []
        for index, seed in enumerate(config.run.seeds):
            one = SeedRun(config, method, method_config, simulation, seed, pool, checkpoints)
            tree, ledger = one.run(index, resume=resume, observer=observer, label=label, folder=folder)
            seeds.append(tree)
            ledgers.append((seed, ledger))
        tree = _assemble(config, method, simulation, seeds, print_of)
        if config.run.references:
            tree["references"] = _references(config, simulation, tree, folder, resume, observer)
        if folder is not None:
            _write(folder, tree, ledgers)
            if report is not None:
                report(folder)
    return Result(tree, folder)


class SeedRun:
    """One seed of a run."""

    def __init__(
        self,
        config: RunConfig,
        method: Method,
        method_config: MethodConfig,
        simulation: Simulation,
        seed: int,
        pool: WorkerPool | None,
        checkpoints: Checkpoints | None,
    ):
        self.config, self.method, self.method_config = config, method, method_config
        self.simulation, self.seed, self.pool, self.checkpoints = simulation, seed, pool, checkpoints
        self.modes = modes_of(config.evaluation, method)
        self.metric = selection_metric(config.evaluation, simulation.task)
        self.progress = SeedProgress()
        self.keeps_models = checkpoints is not None and (config.evaluation.models or config.evaluation.embeddings)

    def federation(self, ledger: Ledger) -> LocalFederation:
        """Clients of this seed in this process, or in the pool's."""
        device = self.config.run.device
        if self.pool is not None:
            return self.pool.federation(
                self.method, self.method_config, self.simulation.models, self.seed, device, ledger
            )
        silos = {silo.client: silo for silo in self.simulation.silos}
        return InProcess(
            sorted(silos),
            lambda client: self.method.client(
                ClientContext(
                    client, silos[client], self.method_config, self.simulation.models[client], self.seed, device
                )
            ),
            ledger,
        )

    def run(
        self, index: int, *, resume: bool, observer: Observer, label: str, folder: Path | None
    ) -> tuple[dict[str, Any], Ledger]:
        """Set up, train, evaluate; returns the seed's result and its ledger."""
        state = self.checkpoints.load(self.seed) if resume and self.checkpoints else None
        ledger = Ledger()
        if state is not None and state["result"] is not None:
            ledger.load_state(state["ledger"])
            return state["result"], ledger
        started = time.perf_counter()
        federation = self.federation(ledger)
        server = self.method.server(
            ServerContext(
                self.method_config,
                self.simulation.schema,
                self.simulation.models[self.simulation.silos[0].client],
                self.seed,
                federation.clients,
                self.config.run.device,
            )
        )
        clock = _Clock(federation)
        progress = self.progress
        if state is not None:
            ledger.load_state(state["ledger"])
            server.load_state(state["server"])
            federation.load_client_states(state["clients"])
            progress = self.progress = SeedProgress.from_state(state["progress"])
        else:
            federation.at("setup", 0)
            clock.start()
            server.set_up(federation)
            progress.setup = {**_bytes(ledger.total("setup")), **clock.stop()}
            progress.logs(server)
            if self.checkpoints and self.config.run.checkpoint_every and ledger.total("setup")["up"]:
                self._save(server, federation, ledger, None)
        rounds = server.rounds
        for number in range(progress.round + 1, rounds + 1):
            if progress.stopped:
                break
            self._round(number, rounds, server, federation, ledger, clock)
            uploaded = sum(row["upload_bytes"] for row in [progress.setup, *progress.rounds])
            downloaded = sum(row["download_bytes"] for row in [progress.setup, *progress.rounds])
            row = progress.rounds[-1]
            observer.progressed(
                Progress(
                    self.seed, index + 1, len(self.config.run.seeds), number, rounds, row.get("validation"),
                    row.get("test"), progress.best_score, uploaded, downloaded, time.perf_counter() - started, label,
                )
            )  # fmt: skip
            every = self.config.run.checkpoint_every
            if self.checkpoints and every and number % every == 0 and number < rounds and not progress.stopped:
                self._save(server, federation, ledger, None)
        result = self._result(federation)
        if folder is not None and self.keeps_models:
            _write_models(folder, self.seed, federation, server, self.config)
        if self.checkpoints:
            self.checkpoints.save(self.seed, {"result": result, "ledger": ledger.state()})
        return result, ledger

    def _round(
        self,
        number: int,
        rounds: int,
        server: ServerBase,
        federation: LocalFederation,
        ledger: Ledger,
        clock: _Clock,
    ) -> None:
        progress, config = self.progress, self.config.evaluation
        federation.at("round", number)
        clock.start()
        server.round(federation, number)
        row: dict[str, Any] = {"round": number, "participants": len(federation.participants)}
        if federation.failures:
            row["failures"] = [str(failure) for failure in federation.failures]
        row.update(_bytes(ledger.total("round", number)))
        if number % config.every == 0 or number == rounds:
            federation.at("evaluation", number)
            scores = evaluate(
                federation, server, self.method.client, self.modes, auc=config.auc or self.metric == "auc",
                minimum=self.method_config.min_clients,
            )  # fmt: skip
            if progress.note(number, scores, self.modes, self.metric) and self.keeps_models:
                federation.remember()
            row.update(progress.current)
            patience = self.config.run.early_stopping
            progress.stopped = patience is not None and progress.since_best >= patience
        row.update(clock.stop())
        progress.rounds.append(row)
        progress.round = number
        progress.logs(server)

    def _save(
        self, server: ServerBase, federation: LocalFederation, ledger: Ledger, result: dict[str, Any] | None
    ) -> None:
        if self.checkpoints is None:
            return
        self.checkpoints.save(
            self.seed,
            {
                "result": result,
                "server": server.state(),
                "clients": federation.client_states(),
                "ledger": ledger.state(),
                "progress": self.progress.state(),
            },
        )

    def _result(self, federation: LocalFederation) -> dict[str, Any]:
        progress, simulation = self.progress, self.simulation
        views = {}
        for mode in self.modes:
            kept = progress.views.get(mode)
            if kept is not None:
                views[mode] = kept.summary(mode)
        first = progress.views[self.modes[0]]
        main = views[self.modes[0]]
        last = first.last[_first_set(self.modes[0])]
        tree: dict[str, Any] = {
            "seed": self.seed,
            "best_round": main["best_round"],
            "last_round": progress.round,
            "validation": main["validation"],
            "test": main["test"],
            "test_last": last.full("test"),
            "scenarios": main["scenarios"],
            "scenarios_last": _scenarios(first.last),
            "modes": views,
            "rounds": progress.rounds,
            "clients": self._clients(first),
            "setup": progress.setup,
        }
        counts = first.best[_first_set(self.modes[0])]
        if counts.counts is not None:
            tree["confusion"] = counts.of("test").sum(axis=(0, 1)).tolist()
            tree["per_class_f1"] = main["test"].get("per_class_f1")
        for key in ("cpu_seconds", "wall_seconds"):
            tree[key] = progress.setup[key] + sum(row[key] for row in progress.rounds)
        tree["peak_rss_bytes"] = federation.peak_rss_bytes()
        if simulation.task == "link":
            tree.pop("confusion", None)
        return tree

    def _clients(self, kept: ViewProgress) -> list[dict[str, Any]]:
        scores = kept.best[_first_set(self.modes[0])]
        if scores.counts is not None:
            from graphsilo.evaluate.metrics import per_client

            each = per_client(scores.of("test"), clients=scores.clients)
        else:
            each = []
            for place, client in enumerate(scores.clients):
                row: dict[str, Any] = {"client": client}
                for name, pairs in scores.scores.items():
                    kind, _, metric = name.partition("/")
                    if kind == "test":
                        value = float(pairs[place, 0])
                        row[metric] = None if value != value else value
                each.append(row)
        cut = self.simulation.cut["per_client"]
        # A client that failed was not scored, and one score for all clients pooled is nobody's own.
        pooled = len(self.simulation.silos) == 1 and len(each) < len(cut)
        found = {} if pooled else {scored["client"]: scored for scored in each}
        rows = []
        for facts in cut:
            row = {key: facts[key] for key in ("client", "nodes", "train", "val", "missing_classes") if key in facts}
            row["test_items"] = facts.get("test")
            scored = found.get(facts["client"], {})
            row["test"] = {key: value for key, value in scored.items() if key not in ("client", "items")}
            rows.append(row)
        return rows


@dataclass
class ViewProgress:
    """The best and the last evaluation of one mode."""

    best_round: int = 0
    best_value: float = float("-inf")
    best: dict[str, SetScores] = field(default_factory=dict)
    last: dict[str, SetScores] = field(default_factory=dict)

    def summary(self, mode: str) -> dict[str, Any]:
        """What the result says of this mode."""
        scores = self.best[_first_set(mode)]
        return {
            "best_round": self.best_round,
            "validation": scores.full("val"),
            "test": scores.full("test"),
            "scenarios": _scenarios(self.best),
        }

    def state(self) -> dict[str, Any]:
        return {
            "best_round": self.best_round,
            "best_value": self.best_value,
            "best": {name: scores.state() for name, scores in self.best.items()},
            "last": {name: scores.state() for name, scores in self.last.items()},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> ViewProgress:
        return cls(
            state["best_round"],
            state["best_value"],
            {name: SetScores.from_state(scores) for name, scores in state["best"].items()},
            {name: SetScores.from_state(scores) for name, scores in state["last"].items()},
        )


@dataclass
class SeedProgress:
    """How far a seed is, and what it has found; all of it survives in a checkpoint."""

    round: int = 0
    rounds: list[dict[str, Any]] = field(default_factory=list)
    setup: dict[str, Any] = field(default_factory=dict)
    views: dict[str, ViewProgress] = field(default_factory=dict)
    since_best: int = 0
    stopped: bool = False
    current: dict[str, Any] = field(default_factory=dict)
    best_score: tuple[float, int] | None = None

    def note(self, number: int, scores: RoundScores, modes: tuple[str, ...], metric: str) -> bool:
        """Keep what is best by validation, per mode; says whether the first mode has never been better."""
        improved = False
        self.current = {}
        for place, mode in enumerate(modes):
            view = mode.split("_")[0]
            found = scores.get(view, {})
            sets = {name: value for name, value in found.items() if (name == "global") == mode.endswith("_global")}
            light = sets[_first_set(mode)].light()
            if place == 0:
                self.current = {"validation": light.get("validation", {}), "test": light.get("test", {})}
                scenarios = {name: value.light() for name, value in sets.items() if name != _first_set(mode)}
                if scenarios:
                    self.current["scenarios"] = {
                        kind: score for part in scenarios.values() for kind, score in part.items()
                    }
            else:
                self.current.setdefault("modes", {})[mode] = {
                    "validation": light.get("validation", {}), "test": light.get("test", {})
                }  # fmt: skip
            kept = self.views.setdefault(mode, ViewProgress())
            value = light.get("validation", {}).get(metric)
            kept.last = sets
            # A round in which a client was not scored is no match for one in which all were: its mean is of others.
            scored = len(sets[_first_set(mode)].clients)
            before = len(kept.best[_first_set(mode)].clients) if kept.best else 0
            better = value is not None and (scored, value) > (before, kept.best_value)
            # Without anything to validate on no round is better than another: the last one is reported.
            if better or not kept.best or (value is None and kept.best_value == float("-inf")):
                kept.best, kept.best_round = sets, number
                if value is not None:
                    kept.best_value = value
                improved = improved or place == 0
        if improved:
            first = self.views[modes[0]]
            self.since_best, self.best_score = 0, (first.best_value, number)
        else:
            self.since_best += 1
        return improved

    def logs(self, server: ServerBase) -> None:
        """Take the server's own numbers of the last round."""
        if server.log:
            target = self.rounds[-1] if self.rounds else self.setup
            target["log"] = dict(server.log)
            server.log.clear()

    def state(self) -> dict[str, Any]:
        return {
            "round": self.round,
            "rounds": self.rounds,
            "setup": self.setup,
            "views": {mode: view.state() for mode, view in self.views.items()},
            "since_best": self.since_best,
            "stopped": self.stopped,
            "best_score": None if self.best_score is None else list(self.best_score),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SeedProgress:
        best = state["best_score"]
        return cls(
            state["round"],
            state["rounds"],
            state["setup"],
            {mode: ViewProgress.from_state(view) for mode, view in state["views"].items()},
            state["since_best"],
            state["stopped"],
            best_score=None if best is None else (best[0], best[1]),
        )


class _Clock:
    """CPU and wall time of a stretch, the clients' processes included."""

    def __init__(self, federation: LocalFederation):
        self.federation = federation
        self.start()

    def start(self) -> None:
        self._cpu = time.process_time() + self.federation.client_cpu_seconds
        self._wall = time.perf_counter()

    def stop(self) -> dict[str, float]:
        cpu = time.process_time() + self.federation.client_cpu_seconds - self._cpu
        return {"cpu_seconds": cpu, "wall_seconds": time.perf_counter() - self._wall}


def _first_set(mode: str) -> str:
    return "global" if mode.endswith("_global") else "seen"


def _scenarios(sets: Mapping[str, SetScores]) -> dict[str, Any]:
    found = {}
    for name, scores in sets.items():
        if name in ("seen", "global"):
            continue
        for kind in scores.kinds:
            found[kind] = scores.full(kind)
    return found


def _bytes(total: Mapping[str, int]) -> dict[str, int]:
    return {"upload_bytes": total["up"], "download_bytes": total["down"]}


def _check_device(device: str) -> None:
    try:
        torch.device(device)
    except RuntimeError:
        raise ConfigError(f"run.device '{device}' is no device; use cpu or cuda.") from None
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(
            "run.device cuda was asked for, but this machine or this build of torch has none. Use --set "
            "run.device=cpu, or install torch with CUDA."
        )
    if device.startswith("cuda"):
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)


def _check_support(config: RunConfig, method: Method, method_config: MethodConfig, simulation: Simulation) -> None:
    modes_of(config.evaluation, method)
    clients = len(simulation.silos)
    asked = max(1, int(clients * method_config.participation + 1e-9))
    if method_config.min_clients is not None and method_config.min_clients > asked:
        raise ConfigError(
            f"method.min_clients wants {method_config.min_clients} answers, but only {asked} of {clients} clients are "
            f"asked per round. Lower it, or raise method.participation."
        )
    if simulation.task not in method.tasks:
        able = [listing.name for listing in registry.listings() if simulation.task in registry.load(listing.name).tasks]
        raise UnsupportedError(
            f"{method.title} does not do task '{simulation.task}', only {', '.join(method.tasks)}. For this task there "
            f"are: {', '.join(able)}."
        )
    for spec in simulation.models.values():
        tasks = models.entry(spec.name).tasks
        if simulation.task not in tasks:
            able = [name for name in models.names() if simulation.task in models.entry(name).tasks]
            raise UnsupportedError(
                f"model '{spec.name}' does not do task '{simulation.task}', only {', '.join(tasks)}. For this task "
                f"there are: {', '.join(able)}."
            )
    different = {(spec.name, tuple(sorted(map(str, spec.settings.items())))) for spec in simulation.models.values()}
    if len(different) > 1 and not method.heterogeneous:
        able = [listing.name for listing in registry.listings() if registry.load(listing.name).heterogeneous]
        raise UnsupportedError(
            f"{method.title} averages models, so all clients must run the same one; model.pool gives "
            f"{len(different)} different ones. Methods for different models: {', '.join(able)}."
        )


def _check_folder(folder: Path, resume: bool) -> None:
    if resume:
        return
    if (folder / "result.json").exists() or any((folder / "checkpoints").glob("*.ckpt")):
        raise RunError(
            f"{folder} already holds a run. Continue it with --resume, choose another --out, or delete the folder."
        )


def _finished(folder: Path | None, print_of: str) -> dict[str, Any] | None:
    """The result of a run that has nothing left to do."""
    if folder is None or not (folder / "result.json").exists():
        return None
    tree = disk.read_json(folder / "result.json", "the result")
    if tree.get("fingerprint") != print_of:
        raise RunError(
            f"{folder} holds the result of another configuration, data set or partition. Give the settings of its "
            f"config.yaml, or choose another --out."
        )
    return dict(tree)


def _description(config: RunConfig, method: Method, simulation: Simulation, label: str) -> dict[str, Any]:
    return {
        "label": label or method.title,
        "method": method.name,
        "data": simulation.describe(),
        "clients": simulation.partition.num_clients,
        "rule": simulation.partition.rule,
        "models": sorted({spec.name for spec in simulation.models.values()}),
        "seeds": list(config.run.seeds),
        "rounds": config.method_config().rounds,
        "workers": config.run.workers,
    }


def _assemble(
    config: RunConfig, method: Method, simulation: Simulation, seeds: list[dict[str, Any]], print_of: str
) -> dict[str, Any]:
    keys = ("validation", "test", "test_last", "scenarios", "scenarios_last")
    summary: dict[str, Any] = {
        key: summarise_seeds([seed[key] for seed in seeds]) for key in keys if any(seed.get(key) for seed in seeds)
    }
    summary["modes"] = {
        mode: {part: summarise_seeds([seed["modes"][mode][part] for seed in seeds]) for part in ("validation", "test")}
        for mode in seeds[0]["modes"]
    }
    for key in ("upload_bytes", "download_bytes"):
        totals = [seed["setup"][key] + sum(row[key] for row in seed["rounds"]) for seed in seeds]
        summary[key] = sum(totals) / len(totals) if len(set(totals)) > 1 else totals[0]
    return {
        "format": FORMAT,
        "graphsilo": __version__,
        "config": complete_config(config, simulation),
        "fingerprint": print_of,
        "task": simulation.task,
        "method": {
            "name": method.name,
            "title": method.title,
            "citation": method.citation,
            "evaluates": list(method.evaluates),
            "pooled": method.pooled,
        },
        "data": {**simulation.describe(), "hash": simulation.data_hash},
        "partition": {
            "rule": simulation.partition.rule,
            "clients": simulation.partition.num_clients,
            "seed": simulation.partition.seed,
            "hash": simulation.partition.content_hash,
            **simulation.cut,
        },
        "class_names": list(simulation.schema.class_names) if simulation.schema.class_names else None,
        "seeds": seeds,
        "summary": summary,
        "environment": {
            "graphsilo": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "platform": f"{platform.system()} {platform.machine()}",
            "device": config.run.device,
        },
        "warnings": simulation.warnings(),
    }


def _references(
    config: RunConfig,
    simulation: Simulation,
    tree: dict[str, Any],
    folder: Path | None,
    resume: bool,
    observer: Observer,
) -> dict[str, Any]:
    """Local-only and centralised rows under the same data, cut, model, seeds and schedule."""
    rows: dict[str, Any] = {}
    shared = config.method_config().model_dump()
    for name in REFERENCES:
        if name not in config.run.references:
            continue
        method_name = "local" if name == "local" else "global"
        kind = registry.load(method_name).config
        options = {key: value for key, value in shared.items() if key in kind.model_fields and key in _SCHEDULE}
        if name == "global_cut":
            options["cross_edges"] = False
        changed = config.model_copy(
            update={
                "method": config.method.model_copy(update={"name": method_name, "options": options}),
                "evaluation": config.evaluation.model_copy(update={"modes": None, "embeddings": False}),
                "run": config.run.model_copy(update={"references": []}),
            }
        )
        place = None if folder is None else folder / "references" / name
        again = resume and place is not None and place.exists()
        reuse = simulation if name == "local" and not registry.load(config.method.name).pooled else None
        result = run(changed, out=place, resume=again, observer=observer, simulation=reuse, label=name)
        rows[name] = result.tree["summary"]["test"]
    if "local" in rows and "global" in rows:
        closed = {}
        for metric, value in tree["summary"]["test"].items():
            parts = [row.get(metric) for row in (rows["local"], rows["global"])]
            numbers = [
                part["mean"] for part in [value, *parts] if isinstance(part, dict) and part.get("mean") is not None
            ]
            if len(numbers) == 3:
                closed[metric] = gap_closed(*numbers)
        rows["gap_closed"] = closed
    return rows


_SCHEDULE = {"rounds", "local_epochs", "batch_size", "optimizer", "lr", "weight_decay", "momentum"}


def _write(folder: Path, tree: dict[str, Any], ledgers: list[tuple[int, Ledger]]) -> None:
    """The tables, then ``result.json``: where it stands, the run is complete."""
    rounds: dict[str, list[Any]] = {"seed": []}
    flat = [(seed["seed"], _flatten(row)) for seed in tree["seeds"] for row in seed["rounds"]]
    names = list(dict.fromkeys(name for _, row in flat for name in row))
    rounds.update({name: [] for name in names})
    for seed, row in flat:
        rounds["seed"].append(seed)
        for name in names:
            rounds[name].append(row.get(name))
    disk.write_parquet(folder / "rounds.parquet", rounds)
    rows = [(seed, *row) for seed, ledger in ledgers for row in ledger.rows()]
    columns = ("seed", *COLUMNS)
    disk.write_parquet(
        folder / "ledger.parquet", {name: [row[place] for row in rows] for place, name in enumerate(columns)}
    )
    disk.write_json(folder / "result.json", tree)


def _flatten(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat.update(_flatten(value, f"{prefix}{name}."))
        elif isinstance(value, list):
            flat[prefix + name] = "; ".join(str(item) for item in value)
        else:
            flat[prefix + name] = value
    return flat


def _write_models(folder: Path, seed: int, federation: LocalFederation, server: ServerBase, config: RunConfig) -> None:
    for client, kept in federation.finish(embeddings=config.evaluation.embeddings):
        if config.evaluation.models:
            for when in ("best", "last"):
                weights = {
                    f"{view}/{name}": tensor.detach()
                    for view, tensors in (kept[when] or {}).items()
                    for name, tensor in tensors.items()
                }
                if weights:
                    disk.write_tensors(folder / "models" / f"seed{seed}-client{client}-{when}.safetensors", weights)
        if "embeddings" in kept:
            disk.write_tensors(
                folder / "embeddings" / f"seed{seed}-client{client}.safetensors", {"embeddings": kept["embeddings"]}
            )
    aggregate = server.aggregate()
    if config.evaluation.models and aggregate:
        disk.write_tensors(folder / "models" / f"seed{seed}-aggregate-last.safetensors", dict(aggregate))


__all__ = ["Observer", "Progress", "Result", "Silent", "run"]
