"""What a run comes to: the record that ``result.json`` holds, and ``Result`` for Python."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from graphsilo.__about__ import __version__
from graphsilo.evaluate.metrics import find_leading, score_clients
from graphsilo.evaluate.spread import item_errors, summarise_seeds
from graphsilo.experiments.config import Mode, RunConfig
from graphsilo.experiments.evaluation import SetScores, fold_targets
from graphsilo.experiments.outcome import (
    backbone_warnings,
    find_one_class,
    find_untrained,
    label_warnings,
    lopsided_warnings,
    outcome_warnings,
    secure_warnings,
    setting_warnings,
)
from graphsilo.experiments.participants import Participants, needs_ranking
from graphsilo.experiments.progress import Reported, SeedProgress, first_set, scenarios_of
from graphsilo.experiments.simulation import complete_config
from graphsilo.experiments.storage.records import (
    FORMAT,
    ClientScores,
    DataFacts,
    Environment,
    Means,
    MethodFacts,
    ModeMeans,
    PartitionFacts,
    Round,
    RoundCost,
    RunRecord,
    Scores,
    Seed,
    Summary,
    record_of,
    tree_of,
)
from graphsilo.federation.registry import Method
from graphsilo.federation.scoring import PAIRED


@dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes:
        record: What ``result.json`` holds, typed.
        out: Its folder, or None when nothing was written.
    """

    record: RunRecord
    out: Path | None

    def __repr__(self) -> str:
        score, name = self.accuracy(), find_leading(self.record.summary.test.metrics)
        shown = "no score" if name is None or score is None else f"{name} {score:.3f}"
        return f"Result({self.record.method.title} on {self.record.data.name}: {shown}, out={self.out})"

    @property
    def _views(self) -> ModuleType:
        """How it is shown, which training has no use for."""
        from graphsilo.experiments.storage import views

        return views

    def _repr_html_(self) -> str:
        return str(self._views.html(self.record))

    @cached_property
    def tree(self) -> dict[str, Any]:
        """What ``result.json`` holds, as plain values."""
        return tree_of(self.record)

    @property
    def summary(self) -> Mapping[str, Any]:
        """Mean and standard deviation over seeds."""
        found: Mapping[str, Any] = self.tree["summary"]
        return found

    def accuracy(self) -> float | None:
        """Mean test accuracy at the best validation round (links, several labels: AUC; numbers: MAE)."""
        test = self.record.summary.test.metrics
        name = find_leading(test)
        return None if name is None else test[name].mean

    def frame(self, kind: str = "rounds") -> Any:
        """The result as a data frame: of pandas, or of polars where only that is installed.

        Args:
            kind: ``rounds`` has a row for each seed and round, ``clients`` for each seed and client at the reported
                round (with ``alone.accuracy`` and so on, where such a row was run), ``seeds`` for each seed.

        Raises:
            ConfigError: There is no such table.
            UnsupportedError: Neither library is installed.
        """
        return self._views.frame(self.record, self.out, kind)

    def plot(self, metric: str | None = None, *, width: float | None = None) -> Any:
        """A figure for a paper or a notebook: validation and test along rounds, a band from the lowest to the highest
        seed; below, every client alone and together, where a row of these was run and kept.

        Args:
            metric: What is shown; None takes accuracy (link prediction: AUC).
            width: Inches; None takes one column of a paper.

        Returns:
            A ``matplotlib.figure.Figure``; its ``savefig`` writes it, ``graphsilo.drawing.save`` with embedded fonts.

        Raises:
            ConfigError: The run was not scored by such a metric.
            UnsupportedError: matplotlib is not installed.
        """
        return self._views.figure(self.record, self.out, metric=metric, width=width)


def seed_result(
    seed: int,
    progress: SeedProgress,
    modes: Sequence[Mode],
    reported: Reported,
    simulation: Participants,
    peak_rss_bytes: int,
    periods: Sequence[float] = (),
) -> Seed:
    """What the result says of one seed.

    Args:
        seed: Of training.
        progress: Its rounds and its best and last evaluations.
        modes: What was scored.
        reported: What of it stands for the seed.
        simulation: The data it was trained on.
        peak_rss_bytes: Most memory a process of it used.
        periods: Bounds of the periods that were scored.
    """
    views = {str(mode): progress.views[mode].summary(mode) for mode in modes if mode in progress.views}
    first, main = reported.view, reported.view.summary(reported.mode)
    views.setdefault(reported.mode, main)
    counts = first.best[first_set(reported.mode)]
    counted = counts.counts is not None
    setup, rounds = record_of(progress.setup, RoundCost), record_of(progress.rounds, list[Round])
    steps = (setup, *rounds)
    return Seed(
        seed=seed,
        best_round=main.best_round,
        last_round=progress.round,
        validation=main.validation,
        test=main.test,
        test_last=first.last[first_set(reported.mode)].full("test"),
        scenarios=main.scenarios,
        scenarios_last=scenarios_of(first.last),
        modes=views,
        reported=reported.mode,
        rounds=rounds,
        clients=_clients(reported, simulation),
        setup=setup,
        confusion=counts.of("test").sum(axis=(0, 1)).tolist() if counted else None,
        per_class_f1=main.test.per_class("per_class_f1") if counted else None,
        one_class=find_one_class(counts) if counted else None,
        untrained=find_untrained(counts, len(simulation.clients)) if counted else None,
        cpu_seconds=sum(step.cpu_seconds for step in steps),
        server_cpu_seconds=_total([step.server_cpu_seconds for step in steps]),
        wall_seconds=sum(step.wall_seconds for step in steps),
        # A step that no checkpoint followed has none of its own.
        checkpoint_cpu_seconds=sum(step.checkpoint_cpu_seconds or 0.0 for step in steps),
        checkpoint_wall_seconds=sum(step.checkpoint_wall_seconds or 0.0 for step in steps),
        peak_rss_bytes=peak_rss_bytes,
        **_curves(counts, periods),
    )


def _curves(scores: SetScores, periods: Sequence[float]) -> dict[str, Any]:
    if "test" not in scores.tables and not len(periods):
        return {}
    from graphsilo.experiments.storage.curves import score_bins, score_periods

    table = scores.tables.get("test")
    return {
        "score_bins": None if table is None else score_bins(table), "periods": score_periods(scores, periods),
    }  # fmt: skip


def _total(values: Sequence[float | None]) -> float | None:
    """The sum; None where one is missing."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _clients(reported: Reported, simulation: Participants) -> list[ClientScores]:
    kept = reported.view
    scores = kept.best[first_set(reported.mode)]
    if scores.counts is not None:
        each = score_clients(scores.of("test"), clients=scores.clients, rare=scores.rare)
    else:
        each = [{"client": client} for client in scores.clients]
    paired: dict[int, dict[str, float | None]] = {}
    for name, pairs in scores.scores.items():
        kind, _, metric = name.partition("/")
        if kind == "test":
            for row, value in zip(each, pairs[:, 0].tolist(), strict=True):
                row[metric] = None if value != value else value
        elif kind == PAIRED:
            for client, value in zip(scores.clients, pairs[:, 0].tolist(), strict=True):
                paired.setdefault(client, {})[metric] = None if value != value else value
    errors: dict[int, dict[str, float | None]] = {}
    if simulation.task == "regression" and simulation.schema.num_classes == 1 and "test/mae" in scores.scores:
        from graphsilo.evaluate.targets import mean_errors

        each_error = mean_errors(scores.scores["test/mae"], scores.scores["test/rmse"])
        errors = {client: {"mae": error} for client, error in zip(scores.clients, each_error, strict=True)}
    rare: dict[int, int] = {}
    if scores.counts is not None:
        tables = scores.of("test").sum(axis=1)
        if scores.rare is not None:
            rare = dict(zip(scores.clients, tables[:, scores.rare].sum(axis=1).tolist(), strict=True))
        for metric, values in item_errors(tables).items():
            for client, value in zip(scores.clients, values.tolist(), strict=True):
                errors.setdefault(client, {})[metric] = None if value != value else value
    weights = dict(zip(scores.clients, scores.sizes.tolist(), strict=False))
    cut = simulation.cut["per_client"]
    # A client that failed was not scored, and one score for all clients pooled is nobody's own.
    pooled = len(simulation.clients) == 1 and len(each) < len(cut)
    found = {} if pooled else {scored.pop("client"): fold_targets(scored) for scored in each}
    return [
        ClientScores(
            **{key: facts[key] for key in ("client", "nodes", "train", "val", "missing_classes") if key in facts},
            weight=None if pooled else weights.get(facts["client"]),
            test_items=facts.get("test"),
            best_round=kept.rounds[facts["client"]][0] if facts["client"] in kept.rounds else None,
            mode=reported.whose.get(facts["client"]),
            rare_items=None if pooled else rare.get(facts["client"]),
            errors=None if pooled else errors.get(facts["client"]),
            paired=paired.get(facts["client"]),
            test=Scores.of({key: value for key, value in found.get(facts["client"], {}).items() if key != "items"}),
        )
        for facts in cut
    ]


def assemble(
    config: RunConfig, method: Method, simulation: Participants, seeds: Sequence[Seed], run_fingerprint: str
) -> RunRecord:
    """What ``result.json`` holds, but for the references and what the process took."""
    totals = {
        key: [sum(getattr(step, key) for step in (seed.setup, *seed.rounds)) for seed in seeds]
        for key in ("upload_bytes", "download_bytes")
    }
    kind = simulation.schema.target
    return RunRecord(
        format=FORMAT,
        graphsilo=__version__,
        config=complete_config(config, simulation),
        fingerprint=run_fingerprint,
        replaces=config.replaces or None,
        task=simulation.task,
        method=MethodFacts(
            evaluates=list(method.evaluates),
            rounds=config.method_config().total_rounds,
            alone=method.alone,
            **{key: getattr(method, key) for key in ("name", "title", "citation", "pooled", "backbone")},
        ),
        data=record_of({**simulation.data, "hash": simulation.data_hash, "classified": kind or None}, DataFacts),
        partition=record_of(simulation.cut_facts, PartitionFacts),
        class_names=list(simulation.schema.class_names) if simulation.schema.class_names else None,
        seeds=list(seeds),
        summary=Summary(
            validation=_means([seed.validation for seed in seeds]),
            test=_means([seed.test for seed in seeds]) or Means.of({}),
            test_last=_means([seed.test_last for seed in seeds]),
            scenarios=_means_by_kind([seed.scenarios for seed in seeds]),
            scenarios_last=_means_by_kind([seed.scenarios_last for seed in seeds]),
            modes={
                mode: ModeMeans(
                    Means.of(summarise_seeds([seed.modes[mode].validation.tree() for seed in seeds])),
                    Means.of(summarise_seeds([seed.modes[mode].test.tree() for seed in seeds])),
                )
                for mode in seeds[0].modes
                if all(mode in seed.modes for seed in seeds)
            },
            **{key: sum(each) / len(each) if len(set(each)) > 1 else each[0] for key, each in totals.items()},
        ),
        environment=Environment(
            graphsilo=__version__,
            python=platform.python_version(),
            torch=str(torch.__version__),
            platform=f"{platform.system()} {platform.machine()}",
            device=config.run.device,
        ),
        warnings=[*first_warnings(config, method, simulation), *outcome_warnings(config, seeds, method, simulation)],
    )


def _means(scores: Sequence[Scores]) -> Means | None:
    """Over seeds; None where nothing was scored."""
    trees = [each.tree() for each in scores]
    return Means.of(summarise_seeds(trees)) if any(trees) else None


def _means_by_kind(scores: Sequence[Mapping[str, Scores]]) -> dict[str, Means] | None:
    """The same of scenarios."""
    trees = [{kind: each.tree() for kind, each in found.items()} for found in scores]
    return {kind: Means.of(means) for kind, means in summarise_seeds(trees).items()} or None


def first_warnings(config: RunConfig, method: Method, simulation: Participants) -> list[str]:
    """What is known before anything is trained."""
    decided = list[str]()
    if needs_ranking(config.evaluation, simulation):
        from graphsilo.experiments.decisions import threshold_warnings

        decided = threshold_warnings(config.evaluation, simulation)
    return [
        *simulation.warnings(), *lopsided_warnings(config, simulation), *label_warnings(simulation), *decided,
        *backbone_warnings(method, simulation), *secure_warnings(config, method, simulation),
        *config.remarks, *setting_warnings(config, simulation), *_start_warnings(config, simulation),
    ]  # fmt: skip


def _start_warnings(config: RunConfig, simulation: Participants) -> list[str]:
    if config.run.start is None:
        return []
    from graphsilo.experiments.starts import explain_overlap

    return explain_overlap(config.run.start, simulation)
