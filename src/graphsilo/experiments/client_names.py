"""Clients as a person names them: by number, or by name where they have names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from graphsilo.data.partition import Partition
from graphsilo.data.sources import catalog
from graphsilo.errors import ConfigError, nearest, several
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.participants import client_words
from graphsilo.types import ClientId


def list_client_names(names: Sequence[str]) -> dict[ClientId, tuple[str, ...]]:
    """What a person may call clients that have data sets or files of their own: as given, by file, or as shown."""
    titles = tell_apart([catalog.title(name) for name in names])
    return {
        client: tuple(dict.fromkeys((name, Path(name).stem, title)))
        for client, (name, title) in enumerate(zip(names, titles, strict=True))
    }


def tell_apart(names: Sequence[str]) -> list[str]:
    """The names, with numbers behind those that several have.

    Example:
        >>> tell_apart(["adler", "birch", "adler"])
        ['adler 1', 'birch', 'adler 2']
    """
    return [
        name if names.count(name) == 1 else f"{name} {names[: place + 1].count(name)}"
        for place, name in enumerate(names)
    ]


def alike_notes(names: Sequence[str], files: Sequence[str]) -> Iterator[str]:
    """Says which silos have one name, and what they are called instead; ``files`` are their data sets.
    Those with no name are left out of the run."""
    for name in dict.fromkeys(name for name in names if name and names.count(name) > 1):
        pairs = [
            f"{file} is '{called}' here"
            for own, file, called in zip(names, files, tell_apart(names), strict=True)
            if own == name
        ]
        yield (
            f"{len(pairs)} silos are called '{name}': {several(pairs, 4)}. `name` in a description gives a silo a name "
            f"of its own."
        )


def leave_out(config: RunConfig, partition: Partition, institutions: Sequence[str] = ()) -> Partition:
    """The cut without the clients that are left out; they may be called by their institutions."""
    if not config.run.without:
        return partition
    names = config.data.name
    named = isinstance(names, list) and len(names) == partition.num_clients
    own = list_client_names(names) if isinstance(names, list) and named else None
    if institutions:
        own = {client: (name,) for client, name in enumerate(institutions)}
    return partition.without(find_left_out(config.run.without, partition.num_clients, own))


def find_left_out(
    wanted: Sequence[int | str], count: int, names: Mapping[ClientId, str | Collection[str]] | None = None
) -> tuple[ClientId, ...]:
    """The clients that ``run.without`` names, ascending.

    Args:
        wanted: Numbers and names.
        count: How many clients there are.
        names: What each is called, one name or several; None where they have only numbers.

    Raises:
        ConfigError: Somebody is named who is not there, or who cannot be told from another, or nobody is left.
    """
    found = set()
    for who in wanted:
        if isinstance(who, str):
            found.add(find_client(who, count, names or {}, "run.without (--without)"))
        elif 0 <= who < count:
            found.add(who)
        else:
            raise ConfigError(
                f"run.without (--without) names client {who}, and {_describe_count(count)}. Name one of these, or "
                f"leave it out."
            )
    if len(found) == count:
        raise ConfigError(
            f"run.without (--without) leaves out {'the only client' if count == 1 else f'all {count} clients'}: nobody "
            f"would take part. Leave in at least one."
        )
    return tuple(sorted(found))


def find_client(name: str, count: int, names: Mapping[ClientId, str | Collection[str]], what: str) -> ClientId:
    """The client of a name.

    Args:
        name: As a person says it.
        count: How many clients there are.
        names: What each is called, one name or several; empty where they have only numbers.
        what: Where it is said, for refusals.

    Raises:
        ConfigError: Nobody is called so, or several are.
    """
    own_names = {client: (own,) if isinstance(own, str) else own for client, own in names.items()}
    called = [client for client, own in own_names.items() if name in own]
    if len(called) == 1:
        return called[0]
    if called:
        raise ConfigError(
            f"{what} names '{name}', and clients {', '.join(map(str, called))} are all called so. Give their numbers."
        )
    if not names:
        raise ConfigError(
            f"{what} names '{name}', and the clients of this run have numbers only: "
            f"{_describe_count(count)}. Give the number."
        )
    known = dict.fromkeys(other for own in own_names.values() for other in own)
    raise ConfigError(f"{what} names '{name}', which is no client; {nearest(name, known)}")


def client_number(
    client: ClientId | str, count: int, names: Mapping[ClientId, str | Collection[str]], what: str
) -> ClientId:
    """The number of a client that a person names by number or by name; arguments as of :func:`find_client`.

    Raises:
        ConfigError: It is a name that nobody has, or several have.
    """
    if isinstance(client, int):
        return client
    called = {own for each in names.values() for own in ((each,) if isinstance(each, str) else each)}
    is_number = client.isdecimal() and client not in called
    return int(client) if is_number else find_client(client, count, names, what)


def _describe_count(count: int) -> str:
    return f"there are {count}, numbered 0 to {count - 1}" if count > 1 else "there is one, number 0"


def describe_absent(without: Sequence[ClientId], count: int, replaces: str, names: Mapping[ClientId, str]) -> str:
    """Says who was left out of a run, and which run it takes the place of."""
    who = f"{client_words(without, names)} {'is' if len(without) == 1 else 'are'}"
    text = f"; it replaces run {replaces[:12]}" if replaces else ""
    return (
        f"{who} left out (run.without): this run is that of the other {count - len(without)} of {count}, as if nobody "
        f"else had been there{text}."
    )
