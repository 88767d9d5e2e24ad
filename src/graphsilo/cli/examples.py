"""``graphsilo demo`` and ``graphsilo examples``: what to try first, and the files that the documentation speaks of."""

from __future__ import annotations

import re
import shutil
import tempfile
from importlib import resources
from pathlib import Path

from graphsilo.cli import complete
from graphsilo.cli.values import (
    Debug,
    Quiet,
    argument,
    option,
)
from graphsilo.errors import ConfigError, nearest

_NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def demo(
    out: Path | None = option("DIR", "Folder for the results; else the next free one in runs/."),
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train on four generated banks, print a table and draw a report: about half a minute, offline."""
    from graphsilo.cli.run import run_command
    from graphsilo.cli.terminal import say

    run_command(
        folder() / "demo.yaml",
        overrides={},
        assignments=[],
        out=out,
        resume=False,
        quiet=quiet,
        draw_report=True,
        debug=debug,
    )
    if quiet:
        return
    say()
    say(
        "Next: open the report in a browser; `graphsilo why --run DIR --client adler --page why.html` explains the "
        "highest scores, and `graphsilo examples` shows what else there is."
    )


def examples(
    name: str | None = argument(
        "NAME", "Example to copy; without it, all are listed.", complete.examples, default=None
    ),
    to: Path = option("DIR", "Folder to copy it into; else this one.", flags="--to", default=Path()),
    debug: Debug = False,
) -> None:
    """List the examples that come with graphsilo, or copy one."""
    from graphsilo.cli import terminal

    known = list_examples()
    if name is None:
        grid = terminal.table("example", "what it is")
        for each, path in known.items():
            grid.add_row(each, about(path))
        terminal.show(grid)
        terminal.say()
        terminal.say("`graphsilo examples NAME` copies one into this folder.")
        return
    if name not in known:
        raise ConfigError(f"there is no example '{name}'; {nearest(name, known)}")
    terminal.say(f"{copy(known[name], to.expanduser())}: {about(known[name])}")


def list_examples() -> dict[str, Path]:
    """The examples by name."""
    return {_name(path): path for path in sorted(folder().iterdir()) if not path.name.startswith(("_", "."))}


def folder() -> Path:
    """Where the examples are: in the installed package; in a checkout, beside ``src``."""
    package = Path(str(resources.files("graphsilo")))
    installed = package / "examples"
    return installed if installed.is_dir() else package.parents[1] / "examples"


def about(example: Path) -> str:
    """The first sentence that an example says of itself: in its docstring, its first comment, or its README."""
    if example.is_dir():
        _, _, text = (example / "README.md").read_text(encoding="utf-8").partition("\n\n")
        first, _, _ = text.partition("\n\n")
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)|`", r"\1", first.replace("\n", " "))
        return re.split(r"[.?] ", plain)[0].removesuffix(".")
    first, *_ = example.read_text(encoding="utf-8").splitlines()
    return first.strip('#" ').removesuffix(".")


def copy(example: Path, target: Path) -> Path:
    """Copy an example into a folder, all of it or nothing.

    Args:
        example: One of ``folder()``.
        target: The folder; made where it does not exist.

    Returns:
        The copy.

    Raises:
        ConfigError: Something of that name is there already, or the folder cannot be written.
    """
    made = target / example.name
    if made.exists() or made.is_symlink():
        raise ConfigError(
            f"'{made}' exists, and an example replaces nothing: remove it, or name another folder with --to DIR."
        )
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".example-", dir=target) as fresh:
            whole = Path(fresh) / example.name
            shutil.copytree(example, whole, ignore=_NOT_COPIED) if example.is_dir() else shutil.copy(example, whole)
            whole.rename(made)
    except OSError as error:
        raise ConfigError(
            f"the example cannot be written to '{target}' ({error.strerror}): name another folder with --to DIR."
        ) from None
    return made


def _name(path: Path) -> str:
    return path.name if path.is_dir() else path.stem
