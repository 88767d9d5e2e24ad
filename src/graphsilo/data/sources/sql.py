"""Tables from a database: one query per table, read in chunks inside a transaction that cannot write.

```yaml
nodes: {query: SELECT patient, age FROM stays WHERE year = 2024, connection: "env:WARD_DB", id: patient}
```

A database gives rows in any order, so nodes are put in the order of their ids and edges in that of their ends.

PostgreSQL and SQLite are read, through SQLAlchemy 2. Queries over one connection see one state of the database, so that
no edge can name a node that came in between. A password stands in no error: what a driver says is searched for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from graphsilo.data.sources.arrow import pa, pc
from graphsilo.data.sources.table_files import Query
from graphsilo.errors import ConfigError, DataError, installing

if TYPE_CHECKING:
    from sqlalchemy.engine import URL, Connection, Engine

CHUNK_ROWS = 50_000
"""Rows that are held as Python objects at a time."""
CONNECT_SECONDS = 15
"""How long an attempt to reach a server may take, unless the connection says ``connect_timeout``."""
DRIVER = "postgresql+psycopg"

_SECRET = "(?:pass|pwd|secret|token)"
_READING = ("select", "with", "values", "table")
# What may hold a semicolon or a keyword that is not part of the statement: strings, quoted names, comments.
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$", flags=re.DOTALL)


def read_queries(queries: Sequence[Query]) -> list[Any]:
    """Asks databases for tables.

    Args:
        queries: Those of the same connection are asked in one transaction.

    Returns:
        One pyarrow table each, in the order given. NULL is null; NUMERIC becomes whole numbers where all are, otherwise
        floating point; UUIDs become text.

    Raises:
        ConfigError: The connection or the query is written wrong.
        DataError: A package is missing, the database cannot be reached or refuses, or a query fails.
    """
    for query in queries:
        _check_reads_only(query)
    found: dict[Query, Any] = {}
    for connection in dict.fromkeys(query.connection for query in queries):
        mine = [query for query in queries if query.connection == connection]
        found |= zip(mine, _Database(mine[0]).read(mine), strict=True)
    return [found[query] for query in queries]


def describe(query: Query) -> str:
    """Which database a query is asked of, without user and password.

    Raises:
        ConfigError, DataError: As :func:`read_queries`.
    """
    return _Database(query).shown


def _check_reads_only(query: Query) -> None:
    """A transaction that cannot write is what protects the database; this says so before anything is opened."""
    bare = _QUOTED.sub(" ", query.text).strip().rstrip("; \n\t")
    first = re.match(r"[\s(]*(\w*)", bare)
    word = first.group(1) if first else ""
    if word.lower() not in _READING:
        raise ConfigError(
            f"{query.where} must be one SELECT; it starts with '{word or bare[:20]}'. Tables are only read: put what "
            f"prepares them into a view, and select from that."
        )
    if ";" in bare:
        raise ConfigError(f"{query.where} must be one SELECT; it holds several statements. Leave out all but one.")


class _Database:
    """A database that is opened for reading, and how its errors are reported."""

    def __init__(self, query: Query) -> None:
        try:
            import sqlalchemy
        except ImportError as error:
            raise DataError(
                f"{query.where} asks a database, which needs the package SQLAlchemy; it is not installed. "
                f"{installing('sql')}"
            ) from error
        if int(sqlalchemy.__version__.partition(".")[0]) < 2:
            raise DataError(
                f"{query.where} asks a database, which needs SQLAlchemy 2; {sqlalchemy.__version__} is installed. "
                f"{installing('sql')}"
            )
        self._query = query
        self._place = f"{query.file}: '{query.part}.connection'"
        self._url = self._parse(self._address())
        # Where more than the password is secret, as a key's passphrase among the options of a URL.
        options = [
            value
            for name, values in self._url.query.items()
            if re.search(_SECRET, name, flags=re.IGNORECASE)
            for value in ([values] if isinstance(values, str) else values)
        ]
        self._secrets = [secret for secret in (str(self._url.password or ""), *options) if len(secret) >= 3]
        self._sqlite = self._url.get_backend_name() == "sqlite"
        self._file = self._sqlite_file() if self._sqlite else None
        self.shown = f"SQLite database {self._file}" if self._sqlite else self._server()

    def _address(self) -> str:
        written = self._query.connection.strip()
        if not written.lower().startswith("env:"):
            return written
        name = written[4:].strip()
        value = os.environ.get(name, "").strip()
        if not value:
            raise DataError(
                f"{self._place} is the environment variable {name or '(no name)'}, which is not set here. Set it to an "
                f"address such as {DRIVER}://user:password@host/database."
            )
        return value

    def _parse(self, address: str) -> URL:
        """The address in parts. Nothing of it is ever shown: what does not parse may be a password."""
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError

        try:
            url = make_url(address)
        except (ArgumentError, ValueError):
            raise ConfigError(
                f"{self._place} is no address of a database; wanted is {DRIVER}://user:password@host:5432/database, "
                f"sqlite:///file.db, or env:NAME for a variable that holds one."
            ) from None
        if url.drivername in ("postgresql", "postgres"):
            url = url.set(drivername=DRIVER)
        if url.drivername not in (DRIVER, "sqlite", "sqlite+pysqlite"):
            raise ConfigError(
                f"{self._place} asks for '{url.drivername}'; read are PostgreSQL ({DRIVER}://...) and SQLite "
                f"(sqlite:///file.db). Export tables of other databases as Parquet or CSV."
            )
        if url.get_backend_name() != "sqlite" and address.partition("://")[2].count("@") > 1:
            raise ConfigError(
                f"{self._place} has more than one '@', so that it is not clear where the password ends: write an '@' "
                f"inside the user or the password as %40."
            )
        return url

    def _sqlite_file(self) -> Path:
        name = self._url.database
        if not name or name == ":memory:" or name.startswith("file:"):
            raise ConfigError(
                f"{self._place} must name the file of the SQLite database, as in sqlite:///file.db (relative to the "
                f"description) or sqlite:////var/data/file.db."
            )
        file = self._query.file.parent / Path(name).expanduser()
        if not file.is_file():
            raise DataError(f"the SQLite database {file} ({self._query.part}.connection) does not exist.")
        return file

    def _server(self) -> str:
        host = self._url.host or self._url.query.get("host") or "this machine"
        port = f":{self._url.port}" if self._url.port else ""
        return f"PostgreSQL database '{self._url.database or self._url.username or ''}' at {host}{port}"

    def _clean(self, error: object) -> str:
        """What a driver says, in one line and without secrets."""
        text = " ".join(str(error).split()).rstrip(".")
        for secret in self._secrets:
            text = text.replace(secret, "***").replace(quote(secret, safe=""), "***")
        return text if len(text) <= 300 else text[:299] + "…"

    def _engine(self) -> Engine:
        import sqlalchemy
        from sqlalchemy.pool import NullPool

        if self._file is not None:
            import sqlite3

            # Opened for reading by SQLite itself: nothing is written, and no file is made where there is none.
            address = f"file:{quote(str(self._file))}?mode=ro"
            return sqlalchemy.create_engine(
                "sqlite://",
                poolclass=NullPool,
                creator=lambda: sqlite3.connect(address, uri=True, isolation_level=None, timeout=CONNECT_SECONDS),
            )
        wait = {} if "connect_timeout" in self._url.query else {"connect_timeout": CONNECT_SECONDS}
        try:
            return sqlalchemy.create_engine(self._url, poolclass=NullPool, connect_args=wait, hide_parameters=True)
        except ImportError as error:
            raise DataError(
                f"{self._query.where} asks the {self.shown}, which needs the package psycopg; it cannot be imported "
                f"({self._clean(error)}). {installing('sql')}"
            ) from None

    def read(self, queries: Sequence[Query]) -> list[Any]:
        """All of them in one transaction."""
        from sqlalchemy.exc import DBAPIError

        engine = self._engine()
        try:
            try:
                connection = engine.connect()
            except DBAPIError as error:
                raise self._unreachable(error.orig) from None
            with connection:
                if self._sqlite:
                    connection.exec_driver_sql("BEGIN")
                else:
                    connection = connection.execution_options(
                        isolation_level="REPEATABLE READ", postgresql_readonly=True
                    )
                tables = []
                for query in queries:
                    try:
                        tables.append(_fetch(connection, query.text))
                    except DBAPIError as error:
                        raise self._explain_failure(query, error.orig) from None
                connection.rollback()
                return tables
        finally:
            engine.dispose()

    def _unreachable(self, error: object) -> DataError:
        # What libpq wraps round the reason is reported already, or is no help.
        text = re.sub(r"^connection failed: (connection to server (at|on) .*? failed: )?", "", self._clean(error))
        text = re.sub(r"\s*Is the server running .*$", "", text)
        if re.search(r"password|authentication|pg_hba", text, flags=re.IGNORECASE):
            user = self._url.username or "of this account"
            return DataError(
                f"the {self.shown} does not let the user '{user}' in ({text}). Check user and password in "
                f"'{self._query.part}.connection' of {self._query.file}; a password with characters such as @ / : has "
                f"them written as %40 %2F %3A."
            )
        if "FATAL" in text:  # the server answered
            return DataError(
                f"the {self.shown} refuses the connection ({text}). Check '{self._query.part}.connection' of "
                f"{self._query.file}."
            )
        return DataError(
            f"the {self.shown} cannot be reached ({text}). Is the server running, and can this machine reach it? The "
            f"address is '{self._query.part}.connection' of {self._query.file}."
        )

    def _explain_failure(self, query: Query, error: Any) -> DataError:
        reason = self._clean(error)
        diagnosis = getattr(error, "diag", None)
        if diagnosis is not None and diagnosis.message_primary:
            hint = f" ({diagnosis.message_hint.rstrip('.')})" if diagnosis.message_hint else ""
            reason = self._clean(f"{diagnosis.message_primary}{hint}")
        advice = {
            "25006": "Tables are only read: the query must not change anything.",
            "42501": "Ask whoever runs the database for the right to SELECT.",
            "57014": "The database ended it; ask for less, or raise its statement_timeout.",
        }.get(getattr(error, "sqlstate", None) or "", "Try the query in a client of the database.")
        if "readonly database" in reason or "data-modifying" in reason:
            advice = "Tables are only read: the query must not change anything."
        return DataError(f"{query.where} failed at the {self.shown}: {reason}. {advice}")


def _fetch(connection: Connection, text: str) -> Any:
    """The rows of a query as a pyarrow table, fetched chunk by chunk through a cursor of the server."""
    # Without parameters the driver takes the text as it is: neither % nor : means anything in it.
    options = {"stream_results": True, "max_row_buffer": CHUNK_ROWS, "no_parameters": True}
    result = connection.exec_driver_sql(text.strip().rstrip(";"), execution_options=options)
    names = list(result.keys())
    chunks: list[list[Any]] = [[] for _ in names]
    for rows in result.partitions(CHUNK_ROWS):
        for place, values in enumerate(zip(*rows, strict=True)):
            chunks[place].append(_array(values))
    return pa.Table.from_arrays([_join_chunks(parts) for parts in chunks], names=names)


def _array(values: Sequence[Any]) -> Any:
    """One chunk of a column, of the type that its values have."""
    import uuid
    from decimal import Decimal

    kinds = set(map(type, values))
    try:
        if uuid.UUID in kinds:
            raise pa.ArrowInvalid("text is wanted")
        if Decimal not in kinds:
            return pa.array(values)
        exact = pa.array(values)
        whole = pc.round(exact)
        if not pc.all(pc.fill_null(pc.equal(exact, whole), True)).as_py():
            return exact.cast(pa.float64())
        try:
            return whole.cast(pa.int64())
        except pa.ArrowInvalid:  # ids beyond 64 bits
            return whole.cast(pa.decimal256(76, 0)).cast(pa.string())
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        if Decimal in kinds and kinds <= {Decimal, int, float, type(None)}:  # NaN or infinite among them
            return pa.array([None if value is None else float(value) for value in values], pa.float64())
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def _join_chunks(parts: Sequence[Any]) -> Any:
    """A column's chunks as one type: SQLite checks no types, and a chunk may hold nothing but NULL."""
    kinds = {part.type for part in parts if not pa.types.is_null(part.type)}
    if not kinds:
        return pa.nulls(sum(len(part) for part in parts))
    if len(kinds) == 1:
        wanted = kinds.pop()
    elif all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds):
        wanted = pa.float64()
    elif all(pa.types.is_timestamp(kind) for kind in kinds):
        wanted = pa.timestamp("us")
    else:
        wanted = pa.string()
    return pa.chunked_array([part.cast(wanted) for part in parts], type=wanted)
