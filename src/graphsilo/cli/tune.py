"""``graphsilo tune``: trials as they end, the study's table, and the comparison of the runs after it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphsilo import documents
from graphsilo.cli import Interrupted, check_stopped
from graphsilo.cli.run import folder_name, folders
from graphsilo.cli.terminal import Sheet, say, show, table, to_stderr
from graphsilo.cli.values import resume_command
from graphsilo.errors import ConfigError, RunError
from graphsilo.evaluate.metrics import metric_of
from graphsilo.experiments.config import RunConfig, call_of, configure
from graphsilo.experiments.tuning import record
from graphsilo.experiments.tuning.record import FinalRecord, MethodRecord, TrialRecord, TuneRecord
from graphsilo.loading import load
from graphsilo.report.formats import MISSING, in_sentence, metric, percent

if TYPE_CHECKING:
    from graphsilo.experiments.tuning import Plan


def tune_command(
    path: Path | None,
    *,
    overrides: Mapping[str, Any],
    assignments: Sequence[str],
    methods: Sequence[str] | None,
    space: Path | None,
    given: Mapping[str, Any],
    executor: str | None,
    out: Path | None,
    resume: bool,
    only_show: bool,
    quiet: bool,
) -> None:
    """Tune, or show a study; see the flags of ``graphsilo tune``."""
    if (only_show or resume) and out is None:
        raise ConfigError(f"--{'show' if only_show else 'resume'} is about a study: name its folder with --out DIR.")
    if only_show and out is not None:
        print_study(record.read(out.expanduser()), every=True)
        return
    load("graphsilo.experiments.tuning", "graphsilo.experiments.runner")
    config, plan = _load_plan(path, overrides, assignments, methods, space, given, out if resume else None)
    folder = _free(config) if out is None else out.expanduser()
    from graphsilo.experiments.tuning import tune

    def print_trial(found: TuneRecord, method: str, ended: TrialRecord | FinalRecord) -> None:
        if not quiet:
            to_stderr(line(found, method, ended))

    try:
        found = tune(
            config, plan, out=folder, resume=resume, executor=executor, on_result=print_trial, after_round=check_stopped
        )
    except KeyboardInterrupt:
        raise Interrupted(_how_to_go_on(folder, config)) from None
    _finish(found, folder, quiet)


def _load_plan(
    path: Path | None,
    overrides: Mapping[str, Any],
    assignments: Sequence[str],
    methods: Sequence[str] | None,
    space: Path | None,
    given: Mapping[str, Any],
    resumed: Path | None,
) -> tuple[RunConfig, Plan]:
    """What is run in every trial, and what is tuned; of a study that goes on, what it was begun with."""
    from graphsilo.experiments.tuning import Plan, read_space, read_study

    kept = {} if resumed is None else read_study(resumed.expanduser())
    said = read_space(path) if space is None else documents.read(space, "the space")
    if isinstance(said, Mapping) and space is not None and set(said) == {"tune"}:
        said = said["tune"]
    said_methods = [name for text in methods or () for name in text.split(",")]
    base: Path | Mapping[str, Any] | None = path if path is not None else kept.get("config")
    call = call_of({**overrides, **({"method": said_methods[0]} if said_methods else {})}, assignments)
    names = [call.name_own("method", name) for name in said_methods]
    config = configure(base, call)
    return config, Plan.merge(kept, methods=names or None, space=said, seeds=overrides.get("run.seeds"), **given)


def _free(config: RunConfig) -> Path:
    """The next folder below ``runs`` that is not there."""
    name = f"tune-{folder_name(config).rpartition('-')[0]}"
    return next(folder for folder in folders(name) if not folder.exists())


def _how_to_go_on(folder: Path, config: RunConfig) -> str:
    if not (folder / "study.yaml").exists():
        return "stopped before the first trial; nothing was kept."
    return f"stopped; continue with `{resume_command('tune', folder, config)}`."


def line(found: TuneRecord, method: str, ended: TrialRecord | FinalRecord) -> str:
    """What is said of a trial or a run that has ended."""
    if isinstance(ended, FinalRecord):
        what = f"{method}, {'tuned' if ended.tuned else 'untuned'}: "
        return what + (f"failed: {ended.error}" if ended.error else f"run with seeds {_list(found.seeds)}")
    best = next(each for each in found.methods if each.name == method).best_trial
    outcome = {
        "complete": f"validation {metric(ended.validation, found.metric, 2)}",
        "pruned": f"pruned after round {ended.round} at validation {metric(ended.validation, found.metric, 2)}",
        "failed": f"failed: {(ended.error or '').removesuffix('.')}",
        "running": "running",
    }[ended.state]
    first = f"{method}, trial {ended.trial} ({_settings(ended)}): {outcome}"
    if best is None:
        return first
    return f"{first}; best so far {metric(best.validation, found.metric, 2)} (trial {best.trial})"


def print_study(found: TuneRecord, *, every: bool = False) -> None:
    """The study as tables.

    Args:
        found: The study.
        every: Each trial in a row, too.
    """
    title = metric_of(found.metric).title
    if every:
        grid = table("Method", "Trial", f"Validation {title}", "State", "Round", "Settings", numbers=(1, 2, 4))
        for method in found.methods:
            for trial in method.trials:
                grid.add_row(
                    method.title if trial.trial == 0 else "",
                    str(trial.trial),
                    metric(trial.validation, found.metric, 2) + ("*" if trial.trial == method.best else ""),
                    trial.state,
                    str(trial.round or MISSING),
                    _settings(trial) if trial.error is None else f"{_settings(trial)}: {trial.error}",
                )
        show(grid)
        say()
    columns = ["Trials", "Pruned", "Failed", "Untuned", "Best", "Settings of the best"]
    show(Sheet(f"Validation {title}", columns, [_row(each, found.metric) for each in found.methods]).draw())
    say()
    say(
        f"Compared by validation {in_sentence(found.metric)} with the training seeds {_list(found.tuning_seeds)}; test "
        f"scores were not looked at. Untuned: trial 0, with the settings of the configuration."
    )
    for method in found.methods:
        if method.exhausted:
            say(f"Note: the space of {method.title} has no more than {len(method.trials)} trials; all were made.")
        if method.importance:
            shares = ", ".join(f"{name} {percent(value, 0)} %" for name, value in method.importance.items())
            say(f"What the scores of {method.title} hang on, by fANOVA over its trials: {shares}.")


def _row(method: MethodRecord, name: str) -> tuple[str, list[str], str]:
    first, best = method.trials[0] if method.trials else None, method.best_trial
    cells = [
        str(len(method.trials)),
        str(method.count("pruned")),
        str(method.count("failed")),
        MISSING if first is None else metric(first.validation, name, 2),
        MISSING if best is None else metric(best.validation, name, 2),
        MISSING if best is None else _settings(best),
    ]
    return method.title, cells, ""


def _settings(trial: TrialRecord) -> str:
    """As a person would name them: without sections, numbers short."""
    if not trial.settings:
        return "as configured"
    return ", ".join(f"{name.partition('.')[2]} {_number(value)}" for name, value in trial.settings.items())


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def _finish(found: TuneRecord, folder: Path, quiet: bool) -> None:
    """Print the study and the comparison of the runs after it, and draw its page.

    Raises:
        RunError: A run after the study failed.
    """
    same = {method.name for method in found.methods if method.best == 0}  # tuned and untuned are one run
    kept = [each for each in found.final if each.error is None and not (each.tuned and each.method in same)]
    ended = [folder / each.folder for each in kept]
    page = folder / "compare.html"
    if quiet:
        say(str(folder))
    else:
        print(file=sys.stderr)
        print_study(found)
    if ended:
        from graphsilo.cli.compare import print_table
        from graphsilo.report import comparison, write_comparison

        write_comparison(ended, page)
        if not quiet:
            say()
            print_table(comparison(ended))
            say()
            say(f"Report: {page}")
    from graphsilo.report import tune_page

    drawn = tune_page.write(found, folder)
    if not quiet:
        say(f"Trials: {drawn}")
        say(f"Study:  {folder}")
    failed = next((each for each in found.final if each.error is not None), None)
    if failed is not None:
        raise RunError(f"the run of {failed.method} in {folder / failed.folder} failed: {failed.error}")
