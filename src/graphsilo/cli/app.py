"""The commands and their options. Each imports what it does only when it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from graphsilo.cli import complete
from graphsilo.cli.attack import attack
from graphsilo.cli.doctor import doctor
from graphsilo.cli.examples import demo, examples
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
    clients_of,
    data_and_cut,
    executor_named,
    whole_numbers,
)
from graphsilo.errors import ConfigError, nearest

app = typer.Typer(
    name="graphsilo",
    help="Train graph neural networks over graphs that may not leave the place where they are kept.",
    epilog="First steps: graphsilo demo, then graphsilo list methods and graphsilo explain fedavg.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


class TableFormat(StrEnum):
    """How a comparison is written."""

    table = "table"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"


_what = partial(typer.Option, rich_help_panel="What is run (flags and --set win over the file)")
_how = partial(typer.Option, rich_help_panel=HOW)
_where = partial(typer.Option, rich_help_panel="Where results go")
_apart = partial(typer.Option, rich_help_panel="Between machines")
_drawn = partial(typer.Option, rich_help_panel="What is tried")
_tried = partial(typer.Option, rich_help_panel="How it is estimated")


def _run_settings(
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="CONFIG.yaml",
            help="Settings; without it, flags and defaults decide.",
            autocompletion=complete.configurations,
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        _what(
            metavar="NAME",
            help="Data set, or a .yaml, .npz or .pt file of your own; repeat it to give each client one.",
            autocompletion=complete.data,
        ),
    ] = None,
    data_root: Annotated[
        Path | None,
        _what(metavar="DIR", help="Folder with PyG's raw files; else GRAPHSILO_DATA, else they are downloaded."),
    ] = None,
    partition: Annotated[
        str | None,
        _what(
            metavar="RULE",
            help="Rule that cuts the data into clients, or a .py file with one.",
            autocompletion=complete.partitions,
        ),
    ] = None,
    clients: Annotated[int | None, _what(metavar="K", help="Number of clients.")] = None,
    partition_seed: Annotated[
        int | None,
        _what(
            metavar="N",
            help="Seed of the splits, of random rules and added links; Louvain and Metis: partition.cut_seed.",
        ),
    ] = None,
    partition_file: Annotated[Path | None, _what(metavar="P.npz", help="A stored partition instead of a rule.")] = None,
    scenario: Annotated[
        str | None,
        _what(
            metavar="NAME",
            help="What is asked at test time: seen, unseen, open, inductive.",
            autocompletion=complete.scenarios,
        ),
    ] = None,
    task: Annotated[
        str | None,
        _what(
            metavar="TASK", help="node, graph or link; else what the data is made for.", autocompletion=complete.tasks
        ),
    ] = None,
    model: Annotated[
        str | None,
        _what(
            metavar="NAME",
            help="Backbone that the clients run, or a .py file with one.",
            autocompletion=complete.models,
        ),
    ] = None,
    method: Annotated[
        str | None,
        _what(metavar="NAME", help="Federated method, or a .py file with one.", autocompletion=complete.methods),
    ] = None,
    rounds: Annotated[int | None, _what(metavar="N", help="Communication rounds.")] = None,
    seeds: Annotated[
        str | None, _what(metavar="0,1,2", help="Seeds of training, one result each; 0-4 means 0 to 4, 3 is seed 3.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        _what(
            "--set",
            metavar="NAME=VALUE",
            help="Any other setting, such as method.mu=0.1 or model.hidden=128; repeatable.",
            autocompletion=complete.settings,
        ),
    ] = None,
    reference: Annotated[
        list[str] | None,
        _what(
            metavar="ROW",
            help="Also run alone (every silo this method by itself), local (its backbone by itself), fedavg, fedridge, "
            "auto, global, global_cut (centralised without cross-client edges), majority (the commonest class), or "
            "all; repeatable.",
            autocompletion=complete.references,
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        _what(
            metavar="3,er", help="Clients that are left out, by number or name, as if they had never been; repeatable."
        ),
    ] = None,
    own: OwnCode = None,
    workers: Annotated[int | None, _how(metavar="N", help="Processes that share the clients.")] = None,
    device: Annotated[str | None, _how(metavar="cpu|cuda", help="Device.", autocompletion=complete.devices)] = None,
    precision: Annotated[
        str | None,
        _how(
            metavar="float32|bfloat16",
            help="Of the dense matrix products of the clients' models.",
            autocompletion=complete.precisions,
        ),
    ] = None,
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
    def wrapped(**given: Any) -> None:
        command(_run_settings(**{name: given.pop(name) for name in shared}), **given)

    wrapped.__signature__ = inspect.Signature([*shared.values(), *own])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {each.name: each.annotation for each in [*shared.values(), *own]}
    return wrapped


@app.callback(invoke_without_command=True)
def graphsilo(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False
) -> None:
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
    out: Annotated[
        Path | None, _where(metavar="DIR", help="Folder for the results; else the next free one in runs/.")
    ] = None,
    resume: Annotated[bool, _where("--resume", help="Go on with the run in --out from its last checkpoint.")] = False,
    no_report: Annotated[bool, _where("--no-report", help="Draw no report page.")] = False,
    track: Track = None,
    debug: Debug = False,
) -> None:
    """Train a federation, evaluate it, and write results and a report."""
    from graphsilo.cli.run import run_command

    run_command(
        **chosen,
        out=out,
        resume=resume,
        quiet=quiet,
        draw_report=not no_report,
        debug=debug,
        track=track or (),
    )


@app.command(cls=Once)
@takes_run_settings
def plan(
    chosen: dict[str, Any],
    bandwidth: Annotated[
        float | None, _apart(metavar="MBIT/S", help="Rate of each site's line, for a run between machines.")
    ] = None,
    latency: Annotated[float | None, _apart(metavar="MS", help="Time of a message on that line, one way.")] = None,
    seconds: Annotated[
        float, _tried(metavar="S", help="CPU seconds for each trial; more make hard plans surer.")
    ] = 10.0,
    as_json: Annotated[bool, _tried("--json", help="Print one JSON object.")] = False,
    out: Annotated[
        Path | None, _where(metavar="DIR", help="Where the run would write: is there room? Nothing is written.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Estimate memory, bytes and time of a run, from its data and a few rounds of its method."""
    from graphsilo.cli.plan import plan_command

    plan_command(
        **chosen,
        seconds=seconds,
        bandwidth=bandwidth,
        latency=latency,
        out=out,
        as_json=as_json,
    )


@app.command(cls=Once)
@takes_run_settings
def tune(
    chosen: dict[str, Any],
    method: Annotated[
        list[str] | None,
        _what(
            metavar="NAME",
            help="Method to tune; repeatable: each has the same number of trials.",
            autocompletion=complete.methods,
        ),
    ] = None,
    space: Annotated[
        Path | None,
        _drawn(
            metavar="F.yaml", help="Settings and their values; else what CONFIG says under tune, else the methods' own."
        ),
    ] = None,
    trials: Annotated[int | None, _drawn(metavar="N", help="Trials of each method (16).")] = None,
    tuning_seeds: Annotated[
        str | None, _drawn(metavar="10,11", help="Seeds of training in trials (10); --seeds are those afterwards.")
    ] = None,
    sampler: Annotated[str | None, _drawn(metavar="tpe|random|grid", help="How settings are drawn (tpe).")] = None,
    sampler_seed: Annotated[int | None, _drawn(metavar="N", help="Seed of what is drawn (0).")] = None,
    no_prune: Annotated[bool, _drawn("--no-prune", help="Let every trial come to its end.")] = False,
    no_final: Annotated[bool, _drawn("--no-final", help="Only the trials, no runs with other seeds after them.")] = (
        False
    ),
    jobs: Jobs = None,
    executor: Executor = None,
    out: Annotated[
        Path | None, _where(metavar="DIR", help="Folder of the study; else the next free one in runs/.")
    ] = None,
    resume: Annotated[bool, _where("--resume", help="Go on with the study in --out.")] = False,
    show: Annotated[bool, _where("--show", help="Run nothing: show the study in --out so far.")] = False,
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
        executor=executor_named(executor, jobs),
        out=out,
        resume=resume,
        only_show=show,
        quiet=quiet,
    )


@app.command("list")
def list_command(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="methods|data|partitions|models|scenarios", help="What to list.", autocompletion=complete.lists
        ),
    ],
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
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A method; or a model, partition rule, data set, scenario or section.",
            autocompletion=complete.explained,
        ),
    ],
    debug: Debug = False,
) -> None:
    """Show what a method does, what it sends and receives, and its settings; or the settings of something else."""
    from graphsilo.cli.explain import explain_command

    explain_command(name)


@app.command(cls=Once)
def partition(
    data: Data = None,
    rule: Annotated[
        str | None, typer.Option(metavar="RULE", help="Rule that cuts it.", autocompletion=complete.partitions)
    ] = None,
    clients: Clients = None,
    seed: CutSeed = None,
    scenario: Annotated[str | None, typer.Option(metavar="NAME", help="Cut as this scenario needs it.")] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="P.npz", help="Audit a stored partition instead of cutting.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="P.npz", help="Store the partition here.")] = None,
    data_root: DataRoot = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the rule, such as alpha=0.5; or any setting."),
    ] = None,
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
    runs: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of finished runs.", autocompletion=complete.runs)
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Test metric to show, or VIEW.METRIC; repeatable. Else the usual five."),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="VIEW",
            help="own, aggregate, pooled, worst, …; else what each run reports.",
            autocompletion=complete.views,
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Also bytes and rounds until validation accuracy is there, e.g. 0.8."),
    ] = None,
    published: Annotated[bool, typer.Option("--published", help="Also the papers' scores, where they match.")] = False,
    paper: Annotated[
        str | None,
        typer.Option(
            metavar="PAPER[/TABLE]",
            help="Whose published scores; else who has most of them.",
            autocompletion=complete.papers,
        ),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="RUN", help="Folder or label of the run to test against; else the best.")
    ] = None,
    format: Annotated[TableFormat, typer.Option("--format", "-f", help="How the table is written.")] = (
        TableFormat.table
    ),
    report: Annotated[Path | None, typer.Option(metavar="F.html", help="Also write a page with figures.")] = None,
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
        form=format.value,
        page=report,
        figure=figure,
    )


@app.command(cls=Once)
def report(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a finished run.", autocompletion=complete.runs)],
    out: Annotated[Path | None, typer.Option(metavar="F.html", help="File to write; else DIR/report.html.")] = None,
    figure: Figure = None,
    debug: Debug = False,
) -> None:
    """Draw the report page of a finished run again, or a figure of it."""
    if figure is not None:
        from graphsilo import drawing
        from graphsilo.experiments.storage import records, views

        drawing.check_path(figure)
        typer.echo(str(drawing.save(views.figure(records.read_run(run), run), figure)))
        if out is None:
            return
    from graphsilo.report import write

    typer.echo(str(write(run, out)))


app.command(cls=Once)(reproduce)
app.command(cls=Once)(predict)
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
