"""Runs in MLflow: one with settings, summary and files, and one below it for each seed with its curves."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from graphsilo.errors import ConfigError, library, one_line, quote
from graphsilo.experiments.observer import ClientRound, RunEnded, RunStarted, SeedEnded
from graphsilo.experiments.storage.views import flatten
from graphsilo.experiments.tracking.base import Tracker, artefacts, numbers

_IMPATIENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""Where nothing else is said: MLflow's client would hold up every round for minutes while its server is away."""
_PARAMS, _METRICS = 100, 1000
"""What MLflow takes at once."""
EVERY = 5.0
"""Seconds between two requests with rounds: one takes longer than a small round."""


_MARK = "download_bytes"
"""What every round has; by it the server is asked which ones it has."""


class MLflow(Tracker):
    """Settings are parameters, rounds are steps of metrics such as ``validation/accuracy``. Reference rows are runs
    below the run that they belong to, and are tagged ``graphsilo.label``.

    Args:
        uri: Of the tracking server or store; None takes ``MLFLOW_TRACKING_URI``, else MLflow's own default.
        experiment: Its name; None takes ``MLFLOW_EXPERIMENT_NAME``, else "graphsilo".
        clients: Whether what each client did is kept with every round.
    """

    kind = "mlflow"

    def __init__(self, uri: str | None = None, *, experiment: str | None = None, clients: bool = False):
        super().__init__(clients=clients)
        library("mlflow", "tracking")
        for name, value in _IMPATIENT.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        try:
            self._client = MlflowClient(uri)
        except MlflowException as error:
            place = uri or os.environ.get("MLFLOW_TRACKING_URI", "")
            raise ConfigError(
                f"MLflow cannot keep runs in {quote(place)}: name a folder, sqlite:///FILE.db or the http address of a "
                f"server ({one_line(error, 80)})."
            ) from error
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "graphsilo"
        self._runs: dict[tuple[str, int | None], str] = {}
        self._unsent: dict[tuple[str, int, int], list[Any]] = {}
        self._sent = 0.0

    def open(self, run: RunStarted) -> None:
        parent = self._runs.get(("", None)) if run.label else None
        name = run.label or f"{run.title} on {run.data['name']}"
        mine = self._begin(run.label, None, name, parent)
        if self._client.get_run(mine).data.params:
            return
        from mlflow.entities import Param

        params = [Param(key, str(value)) for key, value in flatten(run.config).items()]
        for start in range(0, len(params), _PARAMS):
            self._client.log_batch(mine, params=params[start : start + _PARAMS])

    def find_rounds(self, label: str, seed: int) -> Collection[int]:
        mine = self._begin(label, seed, f"seed {seed}", self._runs[label, None])
        return {one.step for name in (_MARK, f"setup/{_MARK}") for one in self._client.get_metric_history(mine, name)}

    def keep(self, label: str, seed: int, number: int, row: Mapping[str, Any], clients: Sequence[ClientRound]) -> None:
        from mlflow.entities import Metric

        found = numbers(row, clients, self.runs[label].names)
        now, prefix = int(1000 * time.time()), "" if number else "setup/"
        found[_MARK] = found.pop(_MARK)  # the last one: where it stands, the round is complete
        metrics = [Metric(f"{prefix}{name}", value, now, number) for name, value in found.items()]
        self._unsent[label, seed, number] = metrics
        if time.monotonic() - self._sent >= EVERY:
            self._send()

    def _send(self) -> None:
        """Rounds that are not with the server yet; of those that it has had already it takes none twice."""
        rounds: dict[str, list[Any]] = {}
        for (label, seed, _), metrics in self._unsent.items():
            rounds.setdefault(self._runs[label, seed], []).extend(metrics)
        for mine, metrics in rounds.items():
            for start in range(0, len(metrics), _METRICS):
                self._client.log_batch(mine, metrics=metrics[start : start + _METRICS])
        self._unsent.clear()
        self._sent = time.monotonic()

    def note(self, text: str) -> None:
        said = self._client.get_run(self._runs["", None]).data.tags.get("graphsilo.warnings", "")
        if text not in said:
            self._client.set_tag(self._runs["", None], "graphsilo.warnings", f"{said}{text}\n")

    def close_seed(self, event: SeedEnded) -> None:
        self._send()
        mine = self._runs[event.label, event.seed]
        best = {f"best/{name}": value for name, value in numbers(event.result.test.metrics).items()}
        for name, value in {**best, "best/round": event.result.best_round}.items():
            self._client.log_metric(mine, name, value)
        self._client.set_terminated(mine, "FINISHED")

    def close(self, run: RunStarted, event: RunEnded) -> None:
        self._send()
        stopped = isinstance(event.error, KeyboardInterrupt)
        state = "FINISHED" if event.error is None else "KILLED" if stopped else "FAILED"
        mine = self._runs[run.label, None]
        if event.result is not None:
            means = event.result.record.summary.test.metrics
            for name, value in means.items():
                if value.mean is not None:
                    self._client.log_metric(mine, f"test/{name}", value.mean)
                if value.std is not None:
                    self._client.log_metric(mine, f"test/{name}/std", value.std)
            for path in artefacts(run):
                self._client.log_artifact(mine, str(path))
        for (label, seed), known in self._runs.items():
            if label == run.label and (seed is None or event.error is not None):
                self._client.set_terminated(known, state)

    def _begin(self, label: str, seed: int | None, name: str, parent: str | None) -> str:
        """Create a run of MLflow's, or find the one that was created before a resume."""
        which = {"graphsilo.run": self.ids[label], "graphsilo.label": label or "run"}
        which["graphsilo.seed"] = "all" if seed is None else str(seed)
        found = self._client.get_experiment_by_name(self._experiment)
        experiment = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
        asked = " and ".join(f"tags.`{key}` = '{value}'" for key, value in which.items())
        runs = self._client.search_runs([experiment], asked, max_results=1)
        if runs:
            mine = runs[0].info.run_id
            self._client.update_run(mine, "RUNNING")
        else:
            tags = {**which, **({} if parent is None else {"mlflow.parentRunId": parent})}
            run = self.runs[label]
            tags.update({"graphsilo.method": run.method, "graphsilo.fingerprint": run.fingerprint})
            mine = self._client.create_run(experiment, tags=tags, run_name=name).info.run_id
        self._runs[label, seed] = mine
        return str(mine)
