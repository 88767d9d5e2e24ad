"""The errors a person can meet, drawn as one tree.

    GraphsiloError
    ├── ConfigError            a setting is wrong, or a folder holds no run or study    (exit code 2)
    ├── DataError              a data set, table or file is not what it should be        (exit code 2)
    │   └── PartitionError     a graph cannot be cut, or a partition does not fit it      (exit code 2)
    ├── UnsupportedError       a combination that no method or model here can run         (exit code 2)
    ├── MessageError           a message is malformed, oversized or not declared          (exit code 1)
    ├── DisclosureError        a silo's policy does not allow a message or a method      (exit code 1)
    ├── FederationError        too few clients answered, or one of them failed            (exit code 1)
    └── RunError               a run, checkpoint or result on disk cannot be used         (exit code 1)

Each message is one paragraph: what was wanted, what came, what to do.
"""

from __future__ import annotations

import difflib
import importlib
import re
import reprlib
import shlex
import sys
from collections.abc import Iterable, Mapping
from typing import Any

PRIVATE = "Private :: Do Not Upload"
"""Classifier of a package that is on no index."""


_SECRET = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)"
    r"(?:[^\s/?#]{0,500}@|[^\s/?#:]{0,100}:(?!\d{1,5}(?:[/?#\s]|$))\S{0,300}@)"
    r"|(?P<name>[?&][^=&\s]{0,40}(?:token|secret|passw|pwd|api_?key)[^=&\s]{0,40}=)[^&\s'\"]+",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """A text for people, logs and files: of addresses in it without user and password, and without values that say
    they are secret.

    Example:
        >>> without_secrets("no answer from http://me:hidden@host:80/api?token=abc&page=2")
        'no answer from http://***@host:80/api?token=***&page=2'
    """
    return _SECRET.sub(lambda found: f"{found['scheme']}***@" if found["scheme"] else f"{found['name']}***", text)


class GraphsiloError(Exception):
    """Base of every error that graphsilo raises on purpose."""

    exit_code = 1

    def __init__(self, *parts: object):
        super().__init__(*(without_secrets(part) if isinstance(part, str) else part for part in parts))


class ConfigError(GraphsiloError):
    """A setting is unknown, missing, of the wrong type, or contradicts another one; or a folder holds no run."""

    exit_code = 2


class DataError(GraphsiloError):
    """A data set, table or file is missing or is not what it should be."""

    exit_code = 2


class PartitionError(DataError):
    """A graph cannot be cut as asked, or a partition does not belong to the graph."""


class UnsupportedError(GraphsiloError):
    """A method, model, task or scenario cannot be combined as asked."""

    exit_code = 2


class MessageError(GraphsiloError):
    """A message is malformed, oversized, or carries something that was not declared.

    The text quotes names out of messages, which are somebody else's words: it is one line and steers no terminal.
    """

    def __init__(self, *parts: object):
        super().__init__(*(one_line(part, 4000) if isinstance(part, str) else part for part in parts))


class RequestError(MessageError):
    """A client cannot answer what it was asked, for reasons that lie in what it was sent, now or before, alone.

    The text goes to the coordinator also where only sums are seen: it must not depend on the silo's data, and neither
    may whether there is this error.
    """


def refuse_unless(usual: object, what: str) -> None:
    """Whether a silo can answer an unusual question would say something about its rows.

    Raises:
        RequestError: It is one.
    """
    if not usual:
        raise RequestError(f"{what} of a kind was asked of this silo that no run of these settings asks of any.")


class DisclosureError(GraphsiloError):
    """A silo does not send a message, or does not take part in a run, because its policy says so.

    The text goes to the coordinator: it names messages, fields and settings, and nothing that depends on private data.
    What does stands in the error's notes, which stay in the silo's process.

    Attributes:
        peer: Number of the client whose part of a secure sum is refused; None where the silo refuses something else.
        of_answer: Whether it depends on what the answer holds: then that there is an error says something, too.
    """

    def __init__(self, *parts: object, peer: int | None = None):
        super().__init__(*parts)
        self.peer, self.of_answer = peer, False


class FederationError(GraphsiloError):
    """Too few clients answered, or a client failed in a way the method does not tolerate."""


class RunError(GraphsiloError):
    """A run, checkpoint or result on disk cannot be used."""


def nearest(name: str, choices: Iterable[object]) -> str:
    """The choice a person most likely meant, as a question, or the list of choices.

    Example:
        >>> nearest("mue", ["mu", "rounds"])
        "did you mean 'mu'?"
    """
    known = sorted(set(map(str, choices)))
    lower = [choice.lower() for choice in known]
    swapped = [choice for choice in lower if sorted(choice) == sorted(name.lower())]  # gnc is gcn, and no sgc
    close = swapped or difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    if close:
        original = next(choice for choice in known if choice.lower() == close[0])
        return f"did you mean '{original}'?"
    return f"known: {', '.join(known)}." if known else "there is nothing to choose from."


class _Short(reprlib.Repr):
    def repr_str(self, value: str, level: int) -> str:
        return super().repr_str(without_secrets(value[:20_000]), level)


_SHORT = _Short()
_SHORT.maxlevel = 3
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = _SHORT.maxfrozenset = 6
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 80
_MAX = 300


def quote(value: object) -> str:
    """A value for an error text: as ``repr`` gives it, but never long, whatever a person or another party wrote.

    Example:
        >>> quote(list(range(100)))
        '[0, 1, 2, 3, 4, 5, ...]'
    """
    text = _SHORT.repr(value)
    return text if len(text) <= _MAX else f"{text[: _MAX - 3]}..."


def unusable(where: str, wanted: str, value: object) -> ConfigError:
    """Says what an argument of a call takes, and what came.

    Example:
        >>> str(unusable("graphsilo.load", "a name", 3))
        'graphsilo.load takes a name; got 3 of type int.'
    """
    return ConfigError(f"{where} takes {wanted}; got {quote(value)} of type {type(value).__name__}.")


def several(words: Iterable[object], limit: int) -> str:
    """The first of many, and how many more there are.

    Example:
        >>> several(range(5), 3)
        '0, 1, 2 and 2 more'
    """
    texts = [str(word) for word in words]
    return ", ".join(texts[:limit]) + (f" and {len(texts) - limit} more" if len(texts) > limit else "")


def add_names(text: str, names: Mapping[int, str]) -> str:
    """A text with the names of clients behind their numbers.

    Example:
        >>> add_names("client 3 refuses", {3: "er"})
        "client 3 ('er') refuses"
    """
    known = {str(client): f" ('{name}')" for client, name in names.items()}
    return re.sub(r"\bclient (\d+)\b", lambda found: found[0] + known.get(found[1], ""), text)


def one_line(text: object, limit: int = 1000) -> str:
    """A text of somebody else's for a log or a terminal: on one line, no longer than is read, without secrets of
    addresses and without characters that steer a terminal.

    Example:
        >>> one_line("worker died\\n\\x1b[2Jbye")
        'worker died  [2Jbye'
    """
    whole = without_secrets(str(text)[: 20 * limit])  # of megabytes, looking for secrets takes seconds
    cut = whole if len(whole) <= limit else f"{whole[:limit]} …"
    return "".join(letter if letter.isprintable() else " " for letter in cut)


def library(name: str, extra: str) -> Any:
    """A library that not everybody has, imported.

    Args:
        name: Of the module.
        extra: What graphsilo is installed with to have it.

    Raises:
        UnsupportedError: It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise UnsupportedError(f"{package} is not installed, which this needs. {installing(extra)}") from None


def installing(extra: str) -> str:
    """The sentence that says how to install an extra of graphsilo where this process runs.

    As long as graphsilo is on no package index, its metadata have the classifier that indexes refuse.
    """
    from importlib import metadata

    try:
        classifiers = metadata.metadata("graphsilo").get_all("Classifier", ())
    except metadata.PackageNotFoundError:  # sources that were not installed
        classifiers = [PRIVATE]
    pip = f"{shlex.quote(sys.executable or 'python')} -m pip install"
    if PRIVATE in classifiers:
        return f"Get it with `{pip} '.[{extra}]'` in the clone of graphsilo."
    return f"Get it with `{pip} 'graphsilo[{extra}]'`."
