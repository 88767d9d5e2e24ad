"""The commands and their options. Each imports what it does only when it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any, Literal

import typer

from graphsilo.cli import complete
from graphsilo.cli.attack import attack
from graphsilo.cli.contribution import contribution
from graphsilo.cli.doctor import doctor
from graphsilo.cli.examples import demo, examples
from graphsilo.cli.export import export
from graphsilo.cli.federation.commands import federation
from graphsilo.cli.federation.join import join
from graphsilo.cli.federation.serve import serve
from graphsilo.cli.gntk import gntk
from graphsilo.cli.predict import predict
from graphsilo.cli.reproduce import reproduce
from graphsilo.cli.silo.commands import silo
from graphsilo.cli.trust import trust
from graphsilo.cli.values import (
    HOW,
    Clients,
    CutSeed,
    Data,
    DataRoot,
    Debug,
    Executor,
    Figure,
    Jobs,
    Once,
    OwnCode,
    Quiet,
    Track,
    allow_own,
    argument,
    clients_of,
    data_and_cut,
    option,
    resolve_executor,
    switch,
    whole_numbers,
)
from graphsilo.cli.why import why
from graphsilo.errors import ConfigError, nearest

app = typer.Typer(
    name="graphsilo",
    help="Train graph neural networks over graphs that may not leave the place where they are kept.",
    epilog="First steps: graphsilo demo, then graphsilo list methods and graphsilo explain fedavg.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


_WHERE, _DRAWN, _TRIED = "Where results go", "What is tried", "How it is estimated"
_what = partial(option, panel="What is run (flags and --set win over the file)")
_how = partial(option, panel=HOW)
_where = partial(option, panel=_WHERE)
_apart = partial(option, panel="Between machines")
_drawn = partial(option, panel=_DRAWN)
_tried = partial(option, panel=_TRIED)


def _run_settings(
    config: Path | None = argument(
        "CONFIG.yaml", "Settings; without it, flags and defaults decide.", complete.configurations, default=None
    ),
    data: list[str] | None = _what(
        "NAME", "Data set, or a .yaml, .npz or .pt file of your own; repeat it to give each client one.", complete.data
    ),
    data_root: Path | None = _what(
        "DIR", "Folder with PyG's raw files; else GRAPHSILO_DATA, else they are downloaded."
    ),
    partition: str | None = _what(
        "RULE", "Rule that cuts the data into clients, or a .py file with one.", complete.partitions
    ),
    clients: int | None = _what("K", "Number of clients."),
    partition_seed: int | None = _what(
        "N", "Seed of the splits, of random rules and added links; Louvain and Metis: partition.cut_seed."
    ),
    partition_file: Path | None = _what("P.npz", "A stored partition instead of a rule."),
    scenario: str | None = _what(
        "NAME", "What is asked at test time: seen, unseen, open, inductive, receiver.", complete.scenarios
    ),
    task: str | None = _what(
        "TASK", "node, graph, link, regression, multilabel; else what the data is made for.", complete.words_of("task")
    ),
    model: str | None = _what("NAME", "Backbone that the clients run, or a .py file with one.", complete.models),
    method: str | None = _what("NAME", "Federated method, or a .py file with one.", complete.methods),
    rounds: int | None = _what("N", "Communication rounds."),
    seeds: str | None = _what("0,1,2", "Seeds of training, one result each; 0-4 means 0 to 4, 3 is seed 3."),
    assignments: list[str] | None = _what(
        "NAME=VALUE",
        "Any other setting, such as method.mu=0.1 or model.hidden=128; repeatable.",
        complete.settings,
        flags="--set",
    ),
    reference: list[str] | None = _what(
        "ROW",
        "Also run alone (every silo this method by itself), local (its backbone by itself), fedavg, fedridge, "
        "auto, one_place (this method on all data in one place), global (its backbone so), global_cut (without "
        "cross-client edges), majority (the commonest class), "
        "trees_alone (boosted trees on its own tables by itself; of tables the default), all, or none; repeatable.",
        complete.references,
    ),
    without: list[str] | None = _what(
        "3,er", "Clients that are left out, by number or name, as if they had never been; repeatable."
    ),
    own: OwnCode = None,
    workers: int | None = _how("N", "Processes that share the clients."),
    device: str | None = _how("cpu|cuda", "Device.", complete.devices),
    precision: str | None = _how(
        "float32|bfloat16", "Of the dense matrix products of the clients' models.", complete.words_of("run.precision")
    ),
) -> dict[str, Any]:
    """What the flags of a run say: the configuration's file, settings by dotted name, and those of ``--set``."""
    allow_own(own)
    given = {
        **data_and_cut(data, data_root, partition, clients, partition_seed, partition_file),
        "scenario": scenario,
        "task": task,
        "model": model,
        "method": method,
        "method.rounds": rounds,
        "run.seeds": None if seeds is None else whole_numbers(seeds, "--seeds"),
        "run.references": references(reference),
        "run.without": None if without is None else clients_of(without),
        "run.workers": workers,
        "run.device": device,
        "run.precision": precision,
    }
    overrides = {name: value for name, value in given.items() if value is not None}
    return {"path": config, "overrides": overrides, "assignments": assignments or []}


def takes_run_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the flags of a run before its own; what they say comes as its first argument.

    A flag that the command has itself under the same name is its own.
    """
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    kept = {each.name for each in own}
    every = inspect.signature(_run_settings, eval_str=True).parameters
    shared = {name: each for name, each in every.items() if name not in kept}

    @wraps(command)
    def wrapper(**given: Any) -> None:
        command(_run_settings(**{name: given.pop(name) if name in shared else None for name in every}), **given)

    wrapper.__signature__ = inspect.Signature([*shared.values(), *own])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {each.name: each.annotation for each in [*shared.values(), *own]}
    return wrapper


@app.callback(invoke_without_command=True)
def graphsilo(context: typer.Context, version: bool = switch("--version", "Show the version.")) -> None:
    """Train graph neural networks over graphs that may not leave the place where they are kept."""
    if version:
        from graphsilo.__about__ import __version__

        typer.echo(f"graphsilo {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(cls=Once)
@takes_run_settings
def run(
    chosen: dict[str, Any],
    quiet: Quiet = False,
    out: Path | None = _where("DIR", "Folder for the results; else the next free one in runs/."),
    resume: bool = switch("--resume", "Go on with the run in --out from its last checkpoint.", panel=_WHERE),
    no_report: bool = switch("--no-report", "Draw no report page.", panel=_WHERE),
    track: Track = None,
    debug: Debug = False,
) -> None:
    """Train a federation, evaluate it, and write results and a report."""
    from graphsilo.cli.run import run_command

    run_command(
        **chosen, out=out, resume=resume, quiet=quiet, draw_report=not no_report, debug=debug, track=track or ()
    )


@app.command(cls=Once)
@takes_run_settings
def plan(
    chosen: dict[str, Any],
    bandwidth: float | None = _apart("MBIT/S", "Rate of each site's line, for a run between machines."),
    latency: float | None = _apart("MS", "Time of a message on that line, one way."),
    seconds: float = _tried("S", "CPU seconds for each trial; more make hard plans surer.", default=10.0),
    as_json: bool = switch("--json", "Print one JSON object.", panel=_TRIED),
    out: Path | None = _where("DIR", "Where the run would write: is there room? Nothing is written."),
    debug: Debug = False,
) -> None:
    """Estimate memory, bytes and time of a run, from its data and a few rounds of its method."""
    from graphsilo.cli.plan import plan_command

    plan_command(**chosen, seconds=seconds, bandwidth=bandwidth, latency=latency, out=out, as_json=as_json)


@app.command(cls=Once)
@takes_run_settings
def tune(
    chosen: dict[str, Any],
    method: list[str] | None = _what(
        "NAME", "Method to tune; repeatable: each has the same number of trials.", complete.methods
    ),
    space: Path | None = _drawn(
        "F.yaml", "Settings and their values; else what CONFIG says under tune, else the methods' own."
    ),
    trials: int | None = _drawn("N", "Trials of each method (16)."),
    tuning_seeds: str | None = _drawn("10,11", "Seeds of training in trials (10); --seeds are those afterwards."),
    sampler: str | None = _drawn("tpe|random|grid", "How settings are drawn (tpe)."),
    sampler_seed: int | None = _drawn("N", "Seed of what is drawn (0)."),
    no_prune: bool = switch("--no-prune", "Let every trial come to its end.", panel=_DRAWN),
    no_final: bool = switch("--no-final", "Only the trials, no runs with other seeds after them.", panel=_DRAWN),
    jobs: Jobs = None,
    executor: Executor = None,
    out: Path | None = _where("DIR", "Folder of the study; else the next free one in runs/."),
    resume: bool = switch("--resume", "Go on with the study in --out.", panel=_WHERE),
    show: bool = switch("--show", "Run nothing: show the study in --out so far.", panel=_WHERE),
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Choose settings by validation, with as many trials for each method; then run the best with other seeds."""
    from graphsilo.cli.tune import tune_command

    tune_command(
        **chosen,
        methods=method,
        space=space,
        given={
            "trials": trials,
            "tuning_seeds": None if tuning_seeds is None else whole_numbers(tuning_seeds, "--tuning-seeds"),
            "sampler": sampler,
            "sampler_seed": sampler_seed,
            "prune": False if no_prune else None,
            "final": not no_final,
        },
        executor=resolve_executor(executor, jobs),
        out=out,
        resume=resume,
        only_show=show,
        quiet=quiet,
    )


@app.command(cls=Once)
@takes_run_settings
def sweep(
    chosen: dict[str, Any],
    config: list[str] = argument(
        "NAME=V1,V2… [CONFIG.yaml]",
        "One setting or two with their values, such as method.mu=0.01,0.1,1.",
        complete.settings,
    ),
    method: list[str] | None = _what("NAME", "Method; repeatable: each makes a curve or a map.", complete.methods),
    jobs: Jobs = None,
    executor: Executor = None,
    out: Path | None = _where("DIR", "Folder; else runs/sweep-…, which goes on with what is done there."),
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run a grid over one or two settings, and draw it as curves or heat maps. What is done is not run again."""
    from graphsilo.cli.sweep import sweep_command

    chosen.pop("path")
    sweep_command(config, **chosen, methods=method, executor=resolve_executor(executor, jobs), out=out, quiet=quiet)


@app.command("list")
def list_command(
    kind: str = argument("methods|data|partitions|models|scenarios", "What to list.", complete.lists),
    data_root: DataRoot = None,
    debug: Debug = False,
) -> None:
    """Show which methods, data sets, partition rules, models or scenarios there are."""
    from graphsilo.cli import listing

    known = {
        "methods": listing.methods,
        "data": lambda: listing.data(data_root),
        "partitions": listing.partitions,
        "models": listing.models,
        "scenarios": listing.scenarios,
    }
    if kind not in known:
        raise ConfigError(f"there is no list of '{kind}'; {nearest(kind, known)}")
    known[kind]()


@app.command()
def explain(
    name: str = argument(
        "NAME", "A method; or a model, partition rule, data set, scenario, section or FILE.py.", complete.topics
    ),
    debug: Debug = False,
) -> None:
    """Show what a method does, what it sends and receives, and its settings; or the settings of something else."""
    from graphsilo.cli.explain import explain_command

    explain_command(name)


@app.command(cls=Once)
def partition(
    data: Data = None,
    rule: str | None = option("RULE", "Rule that cuts it.", complete.partitions),
    clients: Clients = None,
    seed: CutSeed = None,
    scenario: str | None = option("NAME", "Cut as this scenario needs it."),
    file: Path | None = option("P.npz", "Audit a stored partition instead of cutting."),
    out: Path | None = option("P.npz", "Store the partition here."),
    data_root: DataRoot = None,
    assignments: list[str] | None = option(
        "NAME=VALUE", "A setting of the rule, such as alpha=0.5; or any setting.", flags="--set"
    ),
    debug: Debug = False,
) -> None:
    """Cut data into clients, store the partition, and print its audit."""
    from graphsilo.cli.partition import partition_command

    overrides: dict[str, Any] = {
        **data_and_cut(data, data_root, rule, clients, seed, file),
        "scenario": scenario,
    }
    partition_command({name: value for name, value in overrides.items() if value is not None}, assignments or [], out)


@app.command(cls=Once)
def compare(
    runs: list[Path] = argument("DIR...", "Folders of finished runs.", complete.runs),
    metric: list[str] | None = option("NAME", "Test metric to show, or VIEW.METRIC; repeatable. Else the usual five."),
    mode: str | None = option("VIEW", "own, aggregate, pooled, worst, …; else what each run reports.", complete.views),
    target: float | None = option("SHARE", "Also bytes and rounds until validation accuracy is there, e.g. 0.8."),
    published: bool = switch("--published", "Also the papers' scores, where they match."),
    paper: str | None = option("PAPER[/TABLE]", "Whose published scores; else who has most of them.", complete.papers),
    baseline: str | None = option("RUN", "Folder or label of the run to test against; else the best."),
    format: Literal["table", "markdown", "latex", "csv"] = option(
        "", "How the table is written.", flags="--format -f", default="table"
    ),
    report: Path | None = option("F.html", "Also write a page with figures."),
    figure: Figure = None,
    debug: Debug = False,
) -> None:
    """Put finished runs side by side: mean, deviation, significance over seeds, costs; several data sets as columns."""
    from graphsilo.cli.compare import compare_command

    compare_command(
        runs,
        metrics=metric,
        baseline=baseline,
        mode=mode,
        target=target,
        published=paper or published,
        form=format,
        page=report,
        figure=figure,
    )


@app.command(cls=Once)
def report(
    run: Path = argument("DIR", "Folder of a finished run.", complete.runs),
    out: Path | None = option("F.html", "File to write; else DIR/report.html."),
    figure: Figure = None,
    debug: Debug = False,
) -> None:
    """Draw the report page of a finished run again, or a figure of it."""
    if figure is not None:
        from graphsilo import drawing
        from graphsilo.experiments.storage import reading, views

        drawing.check_path(figure)
        typer.echo(str(drawing.save(views.figure(reading.read_run(run), run), figure)))
        if out is None:
            return
    from graphsilo.report import write

    typer.echo(str(write(run, out)))


app.command(cls=Once)(reproduce)
app.command(cls=Once)(predict)
app.command(cls=Once)(why)
app.command(cls=Once)(contribution)
app.command(cls=Once)(export)
app.command(cls=Once)(gntk)
app.command(cls=Once)(attack)
app.command(cls=Once)(trust)
app.add_typer(silo, name="silo")
app.add_typer(federation, name="federation")
app.command()(serve)
app.command()(join)
app.command()(doctor)
app.command(cls=Once)(demo)
app.command(cls=Once)(examples)


def references(names: list[str] | None) -> list[str] | None:
    """The reference rows asked for; ``all`` stands for each of them, commas may join them."""
    if not names:
        return None
    parts = [part for name in names for part in name.replace(",", " ").split()]
    if "all" not in parts:
        return list(dict.fromkeys(parts))
    from graphsilo.experiments.config import REFERENCES

    return list(REFERENCES)
