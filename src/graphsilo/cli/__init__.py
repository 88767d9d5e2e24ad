"""The command line: parse, call, print. Entry point of the command ``graphsilo``.

Nothing heavy is imported here, so that ``graphsilo --help`` answers at once: each command imports what it needs, and
torch comes in only with commands that train or run a model.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from graphsilo.errors import GraphsiloError, quote, without_secrets
from graphsilo.loading import without_collector

BEGUN = time.perf_counter()
"""When this process started, but for the interpreter itself."""
STOPPED = 130
"""Exit code after Ctrl-C or SIGTERM, as shells use it."""


_stop = threading.Event()


def check_stopped() -> None:
    """End the command if a signal asked for it and the interrupt was lost on its way.

    Python drops an exception that a signal's handler raises while a finaliser or a callback from C runs. Long commands
    call this between their steps.

    Raises:
        KeyboardInterrupt: Somebody asked.
    """
    if _stop.is_set():
        raise KeyboardInterrupt


def wait_until_stopped() -> NoReturn:
    """Wait until a signal ends the command.

    It looks up every second: where another thread receives the signal, a main thread that waits for good never hears.

    Raises:
        KeyboardInterrupt: Somebody asked.
    """
    while True:
        check_stopped()
        time.sleep(1.0)


class Interrupted(Exception):
    """A person or the system ended a command; the text says what became of it and how to go on."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit code: 0 done, 1 failed run, 2 wrong usage or configuration, 130 stopped by Ctrl-C or SIGTERM.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    _open_streams()
    _never_fail_to_print()
    try:
        with _interrupt_on_sigterm(), _outlast_readers():
            status = _dispatch(given)
            sys.stdout.flush()
        return status
    except BrokenPipeError:
        _discard_output()
        return 0  # the reader had seen enough, e.g. `| head`
    except (KeyboardInterrupt, Interrupted) as stop:
        if sys.stderr.isatty():
            print(file=sys.stderr)  # behind the ^C that the terminal shows
        _complain(str(stop) or "stopped.", stop, debug)
        return STOPPED
    except GraphsiloError as error:
        _complain(str(error), error, debug)
        return error.exit_code
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _complain(f"the system refused: {error.strerror or error}{where}.", error, debug)
        return 1
    except Exception as error:
        if _is_usage_error(error):
            _complain(_setting_text(error, given) or _usage_text(error), error, debug)
            return 2
        if _is_out_of_memory(error):
            _complain("memory ran out. Use fewer workers, a smaller model or a smaller batch_size.", error, debug)
            return 1
        what, own = (
            f"{type(error).__name__}: {str(error).removesuffix('.')}.",
            sys.modules.get("graphsilo.federation.own"),
        )
        if own is not None and (place := own.locate_error(error)):
            text = (
                f"your own code failed, in {place}: {what} Run the same command with --debug for the whole traceback."
            )
        else:
            text = (
                f"this is a bug in graphsilo, not your mistake: {what} Run the same command with --debug, and report "
                f"the traceback that it shows."
            )
        _complain(text, error, debug)
        return 1


def _dispatch(arguments: list[str]) -> int:
    with without_collector():
        import typer
        from typer.main import get_command

        from graphsilo.cli.app import app

    try:
        status = get_command(app)(args=arguments, prog_name="graphsilo", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.Exit as end:
        status = int(end.exit_code)
    if status == STOPPED:  # what the argument parser makes of Ctrl-C
        raise KeyboardInterrupt
    return status if isinstance(status, int) else 0


def _is_out_of_memory(error: Exception) -> bool:
    """Whether Python ran out of memory, or PyTorch, whose error for it is of no class of its own on a CPU."""
    told = isinstance(error, RuntimeError) and any(word in str(error) for word in ("can't allocate", "out of memory"))
    return isinstance(error, MemoryError) or told


def _is_usage_error(error: Exception) -> bool:
    """Whether the argument parser raised it; by shape, because its classes moved between releases."""
    return hasattr(error, "format_message") and getattr(error, "exit_code", None) is not None


def _setting_text(error: Exception, given: Sequence[str]) -> str:
    """What to write where a setting was given as a flag, ``--lr 0.1``; empty where that is not what happened."""
    flag = getattr(error, "option_name", "")
    context = getattr(error, "ctx", None)
    if (
        not flag.startswith("--")
        or context is None
        or all(each.name != "assignments" for each in context.command.params)
    ):
        return ""
    from graphsilo.experiments.doors import FLAGS
    from graphsilo.experiments.suggestions import find_settings

    typed = [part for word in given for part in (word.split("=", 1) if word.startswith("--") else [word])]
    after = dict(zip(typed, [*typed[1:], ""], strict=True))
    found = find_settings(flag.removeprefix("--"), {"method.name": after["--method"]} if "--method" in after else {})
    if not found:
        return ""
    value = after[flag] if after.get(flag, "-")[:1] not in ("-", "") else "VALUE"
    name = found.split("'")[1]
    meant = f"{FLAGS[name]} {value}" if name in FLAGS else f"--set {name}={value}"
    return f"there is no option {flag}; the setting is {found}. Write {meant}."


def _usage_text(error: Exception) -> str:
    text = " ".join(str(error.format_message()).split())  # type: ignore[attr-defined]
    number = re.search(r"'(--[\w-]+)': Input should be a valid (integer|number)", text)
    errors = getattr(error.__cause__, "errors", None)  # pydantic's, which say what came
    if number is not None and errors is not None:
        flag, kind = number.groups()
        came = errors()[0]["input"]
        text = f"{flag} must be a {'whole number' if kind == 'integer' else kind}; got {quote(came)}."
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "graphsilo"
    text = text[:1].lower() + text[1:]
    if (wrong := re.fullmatch(r"no such command '([\w-]+)'\.?", text)) is not None and context is not None:
        groups = getattr(context.command, "commands", {})
        meant = [f"'{name} {wrong[1]}'" for name, group in groups.items() if wrong[1] in getattr(group, "commands", ())]
        text = f"{text.rstrip('.')}. Did you mean {' or '.join(meant)}?" if meant else text
    return f"{text}{'' if text.endswith(('.', '?')) else '.'} `{command} --help` shows what can be given."


def _complain(text: str, error: BaseException, debug: bool) -> None:
    """One paragraph on stderr, behind the traceback where one is wanted."""
    from graphsilo.cli.terminal import paragraph

    if debug:
        print(without_secrets("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    with contextlib.suppress(BrokenPipeError):
        print(paragraph(without_secrets(f"graphsilo: {text}"), sys.stderr), file=sys.stderr, flush=True)


def _open_streams() -> None:
    """Where the shell has closed a stream (``2>&-``), what is written there is dropped.

    Its number would otherwise go to the next file that is opened, which would then hold what libraries complain of.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115  # for as long as the process lives


def _never_fail_to_print() -> None:
    """A terminal that cannot show a sign gets a question mark instead of an error."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]


class _Outlasting:
    """A stream whose reader may go away, e.g. ``| head``: what comes after is dropped, and the work goes on."""

    def __init__(self, stream: Any):
        self._stream, self._heard = stream, True

    def write(self, text: str) -> int:
        if self._heard:
            with self._ignore_broken_pipe():
                self._stream.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        if self._heard:
            with self._ignore_broken_pipe():
                self._stream.flush()

    @contextlib.contextmanager
    def _ignore_broken_pipe(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self._heard = False
            _discard_output(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def _outlast_readers() -> Iterator[None]:
    """A run of hours must not end because nobody reads its progress any more."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_Outlasting, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@contextlib.contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """SIGTERM ends a command the way Ctrl-C does: processes are ended, files are closed."""
    _stop.clear()

    def stop(number: int, frame: object) -> None:
        _stop.set()
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a job in the background ignores Ctrl-C
        numbers.append(signal.SIGINT)
    try:
        before = {number: signal.signal(number, stop) for number in numbers}
    except ValueError:  # not in the main thread: whoever called decides about signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _discard_output(stream: Any = None) -> None:
    """Python flushes a stream, stdout by default, at exit, which would complain once more."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())
