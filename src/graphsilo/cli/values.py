"""Values of flags that stand for several, and flags that several commands have."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from graphsilo.cli import complete
from graphsilo.errors import ConfigError

if TYPE_CHECKING:
    from graphsilo.experiments.config import RunConfig
    from graphsilo.experiments.tracking import Tracker

HOW = "How it is run"
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print nothing but errors and, at the end, the folder.", rich_help_panel=HOW),
]
Figure = Annotated[
    Path | None,
    typer.Option(metavar="F.pdf|svg|png", help="Draw a figure for a paper, one column wide, into this file."),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND[:WHERE]",
        help="Also keep what the run reports in mlflow (WHERE: its address), tensorboard (a folder), wandb (a "
        "project), csv or jsonl (a file); repeatable.",
        rich_help_panel="Where results go",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(metavar="N", help="Runs at the same time, in processes of this machine.", rich_help_panel=HOW),
]
Executor = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="Where runs are made: processes:N, or dask://HOST:PORT for a cluster.",
        rich_help_panel=HOW,
    ),
]
OwnCode = Annotated[
    list[str] | None,
    typer.Option(
        "--own",
        metavar="FILE.py",
        help="Code that may run because the configuration or the run names it, for this command alone; repeatable. "
        "`graphsilo trust` lets it once for all.",
        rich_help_panel=HOW,
    ),
]
DataRoot = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder with PyG's raw files; else GRAPHSILO_DATA, else they are downloaded."),
]
Data = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Data set, or a file of your own.", autocompletion=complete.data),
]
Clients = Annotated[int | None, typer.Option(metavar="K", help="Number of clients.")]
CutSeed = Annotated[int | None, typer.Option(metavar="N", help="Seed of the cut and its splits.")]


def option(
    metavar: str,
    about: str,
    complete: Any = None,
    *,
    flags: str = "",
    default: Any = None,
    panel: str = "",
    **more: Any,
) -> Any:
    """A parameter that is a flag with a value.

    Args:
        metavar: What stands for the value in the help; empty where the type lists the choices.
        about: A line of help.
        complete: What a shell offers for the value, of :mod:`graphsilo.cli.complete`.
        flags: As they are typed, with blanks between; else it is called like the parameter.
        default: ``...`` where the flag has to be given.
        panel: Heading in the help.
        more: As ``typer.Option`` takes it.
    """
    return typer.Option(
        default, *flags.split(), metavar=metavar or None, help=about, autocompletion=complete,
        rich_help_panel=panel or None, **more,
    )  # fmt: skip


def switch(flags: str, about: str, *, panel: str = "") -> Any:
    """A parameter that is a flag without a value: it is given or not."""
    return typer.Option(False, *flags.split(), help=about, rich_help_panel=panel or None)


def argument(metavar: str, about: str, complete: Any = None, *, default: Any = ...) -> Any:
    """A positional parameter."""
    return typer.Argument(default, metavar=metavar, help=about, autocompletion=complete)


class Once(TyperCommand):
    """A command whose flags for one value are given once: of two, the first would be lost without a word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse a repeated flag, then parse as usual.

        Raises:
            ConfigError: Names the flag.
        """
        given = self.make_parser(ctx).parse_args(args=list(args))[2]
        for option in given:
            count = given.count(option)
            if count > 1 and option.param_type_name == "option" and not (option.multiple or option.is_flag):  # type: ignore[attr-defined]
                name = max(option.opts, key=len)
                raise ConfigError(f"{name} is given {count} times, and takes one value. Give it once.")
        return super().parse_args(ctx, args)


def commands(name: str, about: str) -> typer.Typer:
    """A group of commands, which shows its help where none of them is named."""
    group = typer.Typer(
        name=name, help=about, context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode="rich"
    )

    @group.callback(invoke_without_command=True)
    def show(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    return group


def allow_own(said: Sequence[str] | None) -> None:
    """Let code run that the person names with ``--own``.

    Raises:
        ConfigError: It is not there.
    """
    if said:
        from graphsilo.federation import own, trust

        trust.allow(dict(map(own.find_key, said)))


def resume_command(command: str, folder: Path, config: RunConfig) -> str:
    """The command that goes on with what is in a folder, with the code that it needs."""
    from graphsilo.experiments.doors import OWN

    own = [one.place for section in OWN for one in config.find_own(section).values() if one.is_findable]
    return shlex.join(["graphsilo", command, "--resume", "--out", str(folder), *(f"--own={place}" for place in own)])


def data_and_cut(
    data: Sequence[str] | None,
    data_root: Path | None,
    rule: str | None,
    clients: int | None,
    seed: int | None,
    file: Path | None,
) -> dict[str, Any]:
    """The settings behind the flags that say which data is cut, and how; None for a flag that was not given."""
    return {
        "data": None if not data else data[0] if len(data) == 1 else list(data),
        "data.root": None if data_root is None else str(data_root.expanduser()),
        "partition": rule,
        "partition.clients": clients,
        "partition.seed": seed,
        "partition.file": None if file is None else str(file.expanduser()),
    }


def resolve_executor(executor: str | None, jobs: int | None) -> str | None:
    """What ``--executor`` and ``--jobs`` name; None for this process.

    Raises:
        ConfigError: Both are given, or there are no jobs.
    """
    if executor is not None and jobs is not None:
        raise ConfigError("--jobs N is short for --executor processes:N; give one of them.")
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs takes a number of runs at the same time, 1 or more; got {jobs}.")
    return executor if jobs is None or jobs == 1 else f"processes:{jobs}"


def whole_numbers(text: str, option: str) -> list[int]:
    """``0,1,4-6`` as [0, 1, 4, 5, 6].

    Raises:
        ConfigError: It is something else.
    """
    found: list[int] = []
    for part in text.replace(" ", ",").split(","):
        first, dash, last = part.partition("-")
        if not part:
            continue
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ConfigError(f"{option} takes whole numbers such as 0,1,2 or 0-4; got '{text}'.")
        if dash and int(last) < int(first):
            raise ConfigError(f"{option} counts upwards: {first}-{last} is empty; {last}-{first} may be meant.")
        found.extend(range(int(first), int(last) + 1) if dash else [int(first)])
    if not found:
        raise ConfigError(f"{option} takes whole numbers such as 0,1,2 or 0-4; got '{text}'.")
    return found


def clients_of(texts: Sequence[str], option: str = "--without") -> list[int | str]:
    """``3,er`` as [3, "er"]: clients by number or by name, which may hold spaces.

    Raises:
        ConfigError: Nobody is named.
    """
    found: list[int | str] = []
    for part in (part.strip() for text in texts for part in text.split(",")):
        numbers = part.split()
        found += map(int, numbers) if all(each.isdecimal() for each in numbers) else [part]
    if not found:
        raise ConfigError(f"{option} takes clients by number or name, such as 3 or er,icu; got nothing.")
    return found


def trackers_of(track: Sequence[str] | None, say: Callable[[str], None] | None = None) -> list[Tracker]:
    """What ``--track`` names, and to whom trackers say what a person should know.

    Raises:
        ConfigError: There is no such tracker.
        UnsupportedError: Its library is not installed.
    """
    if not track:
        return []
    from graphsilo.experiments.tracking import tracker

    made = [tracker(text) for text in track]
    for each in made:
        each.say = say or each.say
    return made
