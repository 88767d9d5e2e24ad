"""Columns of a table as features: numbers, truth values, dates and words, and what stands in for empty cells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, model_validator

from graphsilo.data.sources.arrow import pa, pc
from graphsilo.data.sources.description import (
    Character,
    Day,
    Description,
    Name,
    Names,
    Pairs,
    Renames,
    Units,
    Vocabularies,
    WordMaps,
)
from graphsilo.data.sources.empty import Rule
from graphsilo.data.sources.faults import Faults, is_number, name_fault
from graphsilo.data.sources.missing import EMPTY_WORDS, ESTIMATES, INDICATOR, Missing, fill_value
from graphsilo.data.sources.table_files import Table, TableSource, distinct, is_text, mask
from graphsilo.data.sources.vocabulary import ANY_OTHER, Learned, sort_words
from graphsilo.data.truth import TRUTH
from graphsilo.errors import ConfigError, DataError, nearest, several
from graphsilo.settings import must_be, setting

DateOrder: TypeAlias = Literal["year-first", "day-first", "month-first"]

DAYS_PER_YEAR = 365.25
_MICROSECONDS = 86_400e6
"""Of a day."""

_INDEX = r"(Unnamed: \d+\S*|__index_level_\d+__)?"
"""What pandas calls a column that was an index."""
_NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|infinity)$"
_GROUPED = (
    r"^[+-]?\d{1,3}((?:\.\d{3})+,\d+|(?:,\d{3})+\.\d+|(?:\.\d{3}){2,}|(?:,\d{3}){2,}"
    r"|(?:[ '\x{2019}\x{a0}\x{202f}]\d{3})+(?:[.,]\d+)?)$"
)
"""Numbers with a sign between thousands that can be nothing else; 1.805 may be a number below two."""
_PARTS = {
    "year-first": r"(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})",
    "day-first": r"(?P<d>\d{1,2})[-/.](?P<m>\d{1,2})[-/.](?P<y>\d{4})",
    "month-first": r"(?P<m>\d{1,2})[-/.](?P<d>\d{1,2})[-/.](?P<y>\d{4})",
}
_CLOCK = r"(?:[ T](?P<h>\d{1,2}):(?P<min>\d{2})(?::(?P<s>\d{2})(?:\.\d*)?)?Z?)?"
_COMPACT = r"(?P<y>\d{4})(?P<m>\d{2})(?P<d>\d{2})(?:(?P<h>\d{2})(?P<min>\d{2})(?P<s>\d{2})?)?"
"""Digits alone are the basic form of ISO 8601, year first whatever the order."""
_FILL = (
    "Fill such cells in, leave the rows or the column out, or say what stands in their place: "
    "features: {missing: mean}, or median, or indicator."
)


class DateRule(Description):
    """How a column of dates becomes numbers."""

    days_since: Day | None = setting(None, "days since this day")
    years_at: Day | None = setting(None, "age in years at this day")
    order: DateOrder = setting("year-first", "how days are written")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.days_since is None) == (self.years_at is None):
            raise must_be("a table with one of days_since (days since a day) and years_at (age in years at a day)")
        return self

    def feature(self, name: str) -> str:
        """What the feature is called: with its unit, so that silos and later tables that count otherwise differ."""
        return f"{name} ({'years' if self.days_since is None else f'days since {self.days_since.isoformat()}'})"


class TimeRule(Description):
    """The column that says when a row was."""

    column: Name = setting(..., "its name")
    order: DateOrder = setting("year-first", "how days are written")
    steps: bool = setting(False, "whether it holds numbers, such as of weeks, which are taken as they are")


def _parse_time(value: Any) -> Any:
    return value if isinstance(value, dict) else {"column": value}


class ColumnTable(TableSource):
    """A table of which columns become features."""

    features: Names = setting(("*",), "columns, beginnings of names with *, or * for every column that is left")
    one_hot: Vocabularies = setting({}, "columns of words: their names, or a table of each one's words")
    boolean: Pairs = setting({}, "columns of truth values: their names, or a table of each one's words of 0 and 1")
    dates: dict[str, DateRule] = setting({}, "columns of dates")
    time: Annotated[TimeRule, BeforeValidator(_parse_time)] | None = setting(
        None, "column of dates that says when a row was; or a table: column, order, steps"
    )
    decimal: Literal[".", ","] = setting(".", "how numbers are written")
    thousands: Character | None = setting(None, "what stands between thousands, such as '.' in 1.805,30")
    empty: Names = setting((), "further words that mean an empty cell, or no label; numbers however they are written")
    rename: Renames = setting({}, "columns, with the names that they have in this table")
    words: WordMaps = setting({}, "columns, with words of this table and what each is taken for")
    units: Units = setting({}, "columns of numbers, with what they are multiplied by")

    @property
    def time_column(self) -> str | None:
        """The column that says when a row was."""
        return None if self.time is None else self.time.column


@dataclass(frozen=True)
class Part:
    """A table of a description, and what is said of its columns.

    Attributes:
        key: What errors call it: ``nodes``, or ``edges.transfer``.
        said: What the description says.
        file: Where that stands.
        start: What stands before the names of its columns where there are others beside them: ``transfer.``.
        taken: Columns of which the word * makes no features.
        answers: Columns that may be no features, with what they are.
        missing: What stands in an empty cell's place; None leaves it empty, as NaN.
    """

    key: str
    said: ColumnTable
    file: Path
    start: str = ""
    taken: frozenset[str | None] = frozenset()
    answers: Mapping[str, str] = field(default_factory=dict)
    missing: Missing | None = None

    def rule(self, name: str) -> Rule | None:
        """What stands in the place of an empty cell of a column."""
        return None if self.missing is None else self.missing.of(*self.called(name))

    def called(self, name: str) -> tuple[str, ...]:
        """A column by the table's name and by its own alone."""
        _, named, kind = self.key.partition(".")
        return (f"{kind}.{name}", name) if named else (name,)


@dataclass(frozen=True)
class FeatureTable:
    """The features of a table.

    Attributes:
        values: [n, d] float64; float32 where all are made of words.
        names: One per column.
        fills: What an empty cell of each feature becomes; features whose empty cells are refused are not in it.
        empty: How many cells of each column of the table are empty.
        estimated: Columns in which other rows decide what an empty cell becomes.
        notes: What was not taken, for people.
    """

    values: NDArray[np.floating]
    names: tuple[str, ...] = ()
    fills: Mapping[str, float] = field(default_factory=dict)
    empty: Mapping[str, int] = field(default_factory=dict)
    estimated: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Block:
    """One column of the table, before empty cells are filled.

    Attributes:
        values: [n, k] float64, float32 of words; rows of empty cells hold anything.
        names: k of them.
        empty: [n].
        words: Whether it was made of words.
    """

    values: NDArray[np.float64] | NDArray[np.float32]
    names: tuple[str, ...]
    empty: NDArray[np.bool_]
    words: bool = False


def read_features(
    table: Table, part: Part, faults: Faults, counting: NDArray[np.bool_], learned: Learned
) -> FeatureTable:
    """The features that a description names.

    Args:
        table: The table.
        part: What is said of it.
        faults: Takes what is wrong.
        counting: [n] rows that means and medians are taken of.
        learned: Of a model that is asked; its fill values replace those of the table.
    """
    columns: list[NDArray[np.floating]] = []
    names: list[str] = []
    fills: dict[str, float] = {}
    empty: dict[str, int] = {}
    chosen, notes = _feature_columns(table, part, faults)
    for name in chosen:
        with faults.collect():
            block = _block(table, part, name, learned)
            empty[name] = int(block.empty.sum())
            values, called, filled = _fill(table, part, name, block, counting, learned)
            if not block.words:
                table.refuse(
                    name,
                    ~((np.abs(values[:, 0]) <= np.finfo(np.float32).max) | (np.isnan(values[:, 0]) & block.empty)),
                    "the feature is infinite or too large for float32",
                    values=table.column(name, key=f"{part.key}.features"),
                    todo="Correct these cells.",
                )
            columns.append(values)
            names += called
            fills |= filled
    for name in part.said.units:
        if name not in chosen or name in (*part.said.one_hot, *part.said.boolean, *part.said.dates):
            numbers = [name for name in chosen if name in table.names]
            faults.found.append(
                ConfigError(
                    f"{part.file}: {part.key}.units: '{name}' is no column of numbers among the "
                    f"features; {nearest(name, numbers)}"
                )
            )
    for name in names:
        if wrong := name_fault(name):
            faults.found.append(DataError(f"{table.where}: the name {name!r} of a feature {wrong}. Rename it."))
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        faults.found.append(DataError(f"{table.where}: two features are called '{twice}'; rename a column."))
    if not columns:
        return FeatureTable(np.zeros((table.rows, 0), dtype=np.float32), notes=notes)
    estimated = tuple(name for name in chosen if part.rule(name) in ESTIMATES)
    return FeatureTable(np.concatenate(columns, axis=1), tuple(names), fills, empty, estimated, notes)


def _feature_columns(table: Table, part: Part, faults: Faults) -> tuple[list[str], tuple[str, ...]]:
    """Names of columns, and what is to be said of those that were left out."""
    free = [name for name in table.names if name not in part.taken]
    chosen: dict[str, None] = {}
    dropped: list[str] = []
    for word in part.said.features:
        with faults.collect():
            if word.endswith("*"):
                matches = [name for name in free if name.startswith(word[:-1])]
                if not matches and word != "*":
                    raise DataError(
                        f"{table.where}: no column starts with '{word[:-1]}' ({part.key}.features); the table has "
                        f"{', '.join(free) or 'no further columns'}."
                    )
                if word == "*":
                    dropped = [name for name in matches if re.fullmatch(_INDEX, name)]
                chosen |= dict.fromkeys(name for name in matches if name not in dropped)
            else:
                _refuse_answer(word, part, f"{part.key}.features")
                table.column(word, key=f"{part.key}.features")
                chosen[word] = None
    for key, declared in (
        ("one_hot", part.said.one_hot),
        ("boolean", part.said.boolean),
        ("dates", part.said.dates),
    ):
        for name in declared:
            with faults.collect():
                _refuse_answer(name, part, f"{part.key}.{key}")
                table.column(name, key=f"{part.key}.{key}")
                chosen[name] = None
    dropped = [name for name in dropped if name not in chosen]
    if not dropped:
        return list(chosen), ()
    listed = several((f"'{name}'" for name in dropped), 3)
    return list(chosen), (
        f"{listed}: row numbers that a program left in the table, of which no feature is made; to have one, name it "
        f"under {part.key}.features",
    )


def _refuse_answer(name: str, part: Part, key: str) -> None:
    if name in part.answers:
        raise ConfigError(
            f"{part.file}: '{name}' is the {part.answers[name]} column and cannot be a feature as well ({key}): the "
            f"model would be given the answer."
        )


def _block(table: Table, part: Part, name: str, learned: Learned) -> _Block:
    if name in part.said.one_hot:
        return _one_hot(table, part, name, learned)
    if name in part.said.boolean:
        return _truth(table, part, name)
    if name in part.said.dates:
        return _date(table, part, name, part.said.dates[name])
    return _numbers(table, part, name)


def _fill(
    table: Table, part: Part, name: str, block: _Block, counting: NDArray[np.bool_], learned: Learned
) -> tuple[NDArray[np.float64] | NDArray[np.float32], tuple[str, ...], dict[str, float]]:
    """Values without gaps, names, and what filled them."""
    rule = part.rule(name)
    if rule is None:
        block.values[block.empty] = np.nan
        return block.values, block.names, {}
    if rule == "refuse":
        table.refuse(
            name,
            block.empty,
            "the feature is missing",
            values=table.column(name, key=f"{part.key}.features"),
            todo=_FILL,
        )
        block.values[block.empty] = 0.0
        return block.values, block.names, {}
    if learned.fills is None:
        standing = _choose_fill(table, name, block, rule, counting & ~block.empty)
    else:
        known = learned.fills
        if block.empty.any() and not all(other in known for other in block.names):
            raise DataError(
                f"{table.where}: column '{name}' has {int(block.empty.sum())} empty cells, and the model knows nothing "
                f"to fill them with: where it was trained, empty cells of this column were refused, or tables of "
                f"several silos were pooled. Fill them in."
            )
        standing = [known.get(other, 0.0) for other in block.names]
    block.values[block.empty] = standing
    fills = dict(zip(block.names, standing, strict=True))
    if rule != "indicator":
        return block.values, block.names, fills
    indicator = f"{name}{INDICATOR}"
    return (
        np.column_stack([block.values, block.empty.astype(block.values.dtype)]),
        (*block.names, indicator),
        {**fills, indicator: 1.0},
    )


def _choose_fill(table: Table, name: str, block: _Block, rule: Rule, counting: NDArray[np.bool_]) -> list[float]:
    """What stands in each column of a block where the cell is empty."""
    where = f"{table.where}: column '{name}'"
    if not block.words:
        return [fill_value(rule, block.values[counting, 0], where)]
    if not isinstance(rule, str):
        raise ConfigError(
            f"{where} holds words, and features.missing fills it with the number {rule:g}. Fill it with mean or "
            f"median, which take the most frequent word, or with indicator, which makes 'missing' a word of its own."
        )
    if rule == "indicator":
        return [0.0] * len(block.names)
    counts = block.values[counting].sum(axis=0, dtype=np.float64)
    fill_value(rule, counts[counts > 0], where)  # refuses a column that is empty altogether
    return [float(place == int(counts.argmax())) for place in range(len(counts))]


def find_gaps(words: Any, said: ColumnTable, usual: Sequence[str] = EMPTY_WORDS) -> tuple[Any, NDArray[np.bool_]]:
    """Text without the words that stand for an empty cell, and where it is empty.

    Args:
        words: As pyarrow.
        said: Names further such words; a number among them is meant however it is written, -99 as -99.0.
        usual: Those that need not be said.
    """
    words = pc.utf8_trim_whitespace(words.cast(pa.string()))
    lower = pc.utf8_lower(words)
    known = pa.array([word.lower() for word in (*said.empty, *usual)], pa.string())
    empty = mask(pc.fill_null(pc.or_(pc.equal(words, ""), pc.is_in(lower, value_set=known)), True))
    numbers = _empty_numbers(said)
    if numbers:
        pointed = pc.replace_substring(lower, said.decimal, ".")
        written = pc.if_else(pc.match_substring_regex(pointed, _NUMBER), pointed, pa.scalar(None, pointed.type))
        empty |= mask(pc.and_(pc.is_valid(written), pc.is_in(written.cast(pa.float64()), value_set=pa.array(numbers))))
    return pc.if_else(pa.array(empty), pa.scalar(None, pa.string()), words), empty


def _empty_numbers(said: ColumnTable) -> list[float]:
    """The numbers among the words that mean an empty cell."""
    pointed = [word.replace(said.decimal, ".") for word in said.empty]
    return [float(word) for word in pointed if is_number(word)]


def _numbers(table: Table, part: Part, name: str, key: str = "features") -> _Block:
    """A column of numbers or of true and false."""
    where = f"{part.key}.{key}"
    column = table.column(name, key=where)
    kind = column.type
    if is_text(kind):
        words, empty = find_gaps(column, part.said)
        words = ungroup(words, part.said)
        return _one(name, _parse_numbers(table, part, name, words, empty) * part.said.units.get(name, 1.0), empty)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        raise DataError(
            f"{table.where}: column '{name}' ({where}) holds dates. Say what number each becomes, under "
            f"{part.key}: dates: {{{name}: {{days_since: 2024-01-01}}}}, or {{years_at: 2024-12-31}} for an age; or "
            f"leave it out of {part.key}.features."
        )
    known = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    if not any(test(kind) for test in known):
        raise DataError(
            f"{table.where}: column '{name}' ({where}) holds {kind}; features must be numbers, true/false, "
            f"dates or words. Convert the column, or leave it out of {part.key}.features."
        )
    numbers = column.cast(pa.uint8()) if pa.types.is_boolean(kind) else column
    values = np.array(pc.fill_null(numbers.cast(pa.float64(), safe=False), np.nan).to_numpy(zero_copy_only=False))
    empty = np.isnan(values) | np.isin(values, _empty_numbers(part.said))
    return _one(name, values * part.said.units.get(name, 1.0), empty)


def read_targets(table: Table, part: Part, names: Sequence[str]) -> NDArray[np.float64]:
    """[n, m] columns of numbers, NaN where a cell is empty."""
    blocks = [_numbers(table, part, name, "targets") for name in names]
    return np.stack([np.where(block.empty, np.nan, block.values[:, 0]) for block in blocks], axis=1)


def _one(name: str, values: NDArray[np.float64], empty: NDArray[np.bool_]) -> _Block:
    return _Block(values[:, None], (name,), empty)


def _parse_numbers(table: Table, part: Part, name: str, words: Any, empty: NDArray[np.bool_]) -> NDArray[np.float64]:
    """[n] the numbers of a text column; whatever is none is noted as a fault."""
    lower = pc.utf8_lower(words)
    if empty.all():
        return np.zeros(table.rows)
    if (mask(pc.is_in(lower, value_set=pa.array(["true", "false"]))) | empty).all():
        return mask(pc.equal(lower, "true")).astype(np.float64)
    if not any(mask(pc.match_substring_regex(lower, how)).any() for how in (_NUMBER.replace(r"\.", "[.,]"), _GROUPED)):
        raise DataError(_explain_words(table, part, name, distinct(words)))
    return parse_decimals(
        table, name, words, part.said.decimal, ("feature", part.key), empty,
        todo=f"Correct these cells, list words that mean an empty cell as {part.key}.empty, or declare the column "
        f"under {part.key}.one_hot.",
    )  # fmt: skip


def ungroup(words: Any, said: ColumnTable) -> Any:
    """Text of numbers without the sign between thousands; other words as they are."""
    if said.thousands is None:
        return words
    sign = re.escape(said.thousands)
    grouped = pc.match_substring_regex(words, rf"^[+-]?\d{{1,3}}(?:{sign}\d{{3}})+(?:{re.escape(said.decimal)}\d*)?$")
    return pc.if_else(pc.fill_null(grouped, False), pc.replace_substring(words, said.thousands, ""), words)


def parse_decimals(
    table: Table, name: str, words: Any, decimal: str, what: tuple[str, str], empty: NDArray[np.bool_], *, todo: str
) -> NDArray[np.float64]:
    """[n] the numbers of a text column; whatever is none is noted as a fault, and stands as 1, as an empty cell does.

    Args:
        table, name: Where the column is.
        words: Its text.
        decimal: What stands before decimals.
        what: What a number is, and the part of the description that says how they are written.
        empty: [n] cells in which none is wanted.
        todo: What to do where there is none.
    """
    lower = pc.utf8_lower(words)
    grouped = mask(pc.match_substring_regex(lower, _GROUPED))
    if grouped.any():
        first = re.sub(r"[+\-\d]", "", words[int(grouped.argmax())].as_py())
        point = first[-1] if first[-1] != first[0] else "," if first[0] == "." else "."
        table.refuse(
            name, grouped, f"the {what[0]} has a sign between thousands", values=words,
            todo=f'Set {what[1]}.thousands: "{first[0]}" and {what[1]}.decimal: "{point}", or write them without.',
        )  # fmt: skip
        return np.ones(table.rows)
    sign, other = (",", ".") if decimal == "," else (".", ",")
    apart = mask(pc.match_substring_regex(lower, rf"^[+-]?\d*[{other}]\d+(e[+-]?\d+)?$"))
    pointed = pc.replace_substring(lower, sign, ".")
    numeric = mask(pc.match_substring_regex(pointed, _NUMBER)) & ~apart
    table.refuse(
        name, apart, f"the {what[0]} has a decimal {'point' if decimal == ',' else 'comma'}", values=words,
        todo=f"Write numbers with '{sign}', or set {what[1]}.decimal: \"{other}\" if all are written so.",
    )  # fmt: skip
    table.refuse(name, ~(numeric | apart | empty), f"the {what[0]} is not a number", values=words, todo=todo)
    numbers = pc.if_else(pa.array(numeric), pointed, pa.scalar("1", pointed.type)).cast(pa.float64())
    return np.array(numbers.to_numpy(zero_copy_only=False))


def _explain_words(table: Table, part: Part, name: str, words: Sequence[str]) -> str:
    """What an error says of a column that holds none."""
    what = f"{table.where}: column '{name}' ({part.key}.features) holds words such as {words[0]!r}, not numbers."
    if all(_looks_like_date(word) for word in words):
        return (
            f"{what} If they are dates, say what number each becomes, under {part.key}: dates: {{{name}: {{days_since: "
            f"2024-01-01}}}}, or {{years_at: 2024-12-31}} for an age. Or leave the column out of the features."
        )
    usual = {word.lower() for word in words} <= {*TRUTH[0], *TRUTH[1]}
    if len(words) == 2 or usual:
        # Which of two words of another language is 0 cannot be known, and whoever copies a guess may turn it round.
        how = "" if usual else f": {{{name}: [WORD, WORD]}}, the word of 0 first and that of 1 behind it"
        return (
            f"{what} Add it to boolean under {part.key} (boolean{how or f': [{name}]'}), to one_hot (one_hot: "
            f"[{name}]) for one column per word, or leave it out of the features."
        )
    return (
        f"{what} Add it to one_hot under {part.key} (one_hot: [{name}]) to get one column per word, or leave it out "
        f"of the features."
    )


def _looks_like_date(word: str) -> bool:
    return any(re.fullmatch(parts + _CLOCK, word) for parts in _PARTS.values())


def _truth(table: Table, part: Part, name: str) -> _Block:
    words, empty = find_gaps(table.text(name, key=f"{part.key}.boolean"), part.said)
    pair = part.said.boolean[name]
    if pair is None:
        lower, sides = pc.utf8_lower(words), TRUTH
    else:
        lower, sides = words, ((pair[0],), (pair[1],))
    off, on = (mask(pc.is_in(lower, value_set=pa.array(side, pa.string()))) for side in sides)
    known = list(pair) if pair is not None else ["true", "false", "yes", "no", "1", "0"]
    table.unknown(
        name, ~(off | on | empty), f"the word is none of {', '.join(known)} ({part.key}.boolean)", values=words,
        known=known, todo=f"Correct these cells, or name the words of 0 and 1: boolean: {{{name}: [WORD, WORD]}}.",
    )  # fmt: skip
    return _one(name, on.astype(np.float64), empty)


def _date(table: Table, part: Part, name: str, how: DateRule) -> _Block:
    advice = f"dates: {{{name}: {{order: day-first}}}}"
    stamps, empty = _moments(table, part, name, "dates", how.order, advice)
    days = (stamps - np.datetime64(how.years_at or how.days_since, "us")) / np.timedelta64(1, "D")
    return _one(how.feature(name), np.where(empty, 0.0, -days / DAYS_PER_YEAR if how.years_at else days), empty)


def read_time(table: Table, part: Part) -> NDArray[np.float64] | None:
    """[n] float64 days since 1970-01-01 that rows were at, NaN where the cell is empty; None where no column says so.

    Raises:
        DataError: The column is missing or holds something else.
    """
    how = part.said.time
    if how is None:
        return None
    if how.steps:
        block = _numbers(table, part, how.column, "time")
        return np.where(block.empty, np.nan, block.values[:, 0])
    advice = f"time: {{column: {how.column}, order: day-first}}"
    stamps, empty = _moments(table, part, how.column, "time", how.order, advice)
    return np.where(empty, np.nan, stamps.astype(np.int64) / _MICROSECONDS)


def _moments(
    table: Table, part: Part, name: str, key: str, order: DateOrder, advice: str
) -> tuple[NDArray[np.datetime64], NDArray[np.bool_]]:
    """[n] moments of a column, and where there is none."""
    column = table.column(name, key=f"{part.key}.{key}")
    kind = column.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        moments = column.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False)
        stamps = pc.fill_null(moments.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).astype("datetime64[us]")
        return stamps, mask(pc.is_null(column))
    if is_text(kind) or pa.types.is_null(kind) or pa.types.is_integer(kind):
        words, empty = find_gaps(column, part.said)
        return _parse_dates(table, name, words, empty, order, advice), empty
    raise DataError(
        f"{table.where}: column '{name}' ({part.key}.{key}) holds {kind}; wanted dates, or text or whole numbers that "
        f"are one."
    )


def _parse_dates(
    table: Table, name: str, words: Any, empty: NDArray[np.bool_], order: DateOrder, advice: str
) -> NDArray[np.datetime64]:
    """[n] moments; what is no date is noted as a fault, and so is what may be two."""
    compact = pc.extract_regex(words, rf"^{_COMPACT}$")
    apart = pc.extract_regex(words, rf"^{_PARTS[order]}{_CLOCK}$")
    written = mask(pc.or_(pc.is_valid(compact), pc.is_valid(apart)))

    def part(key: str) -> NDArray[np.int64]:
        text = pc.coalesce(pc.struct_field(compact, key), pc.struct_field(apart, key))
        digits = pc.if_else(pc.equal(text, ""), "0", text)
        return np.asarray(pc.fill_null(digits, "0").cast("int64").to_numpy(zero_copy_only=False))

    year, month, day = part("y"), part("m"), part("d")
    clock = part("h") * 3600 + part("min") * 60 + part("s")
    sound = written & (month >= 1) & (month <= 12)
    months = (np.where(sound, year, 1970) - 1970) * 12 + np.where(sound, month, 1) - 1
    begin = months.astype("datetime64[M]")
    days = begin.astype("datetime64[D]") + (day - 1)
    sound &= (day >= 1) & (days.astype("datetime64[M]") == begin) & (clock < 24 * 3600)
    others = [other for other in get_args(DateOrder) if other != order]
    table.refuse(
        name,
        ~written & ~empty,
        f"the date is not written with the {order.replace('-', ' ')} and its parts apart",
        values=words,
        todo="Years have four digits; write dates as 2024-03-05"
        + (
            f", or say how they are written (05/03/2024 may be 5 March or 3 May): {advice} or month-first."
            if order == "year-first"
            else f" throughout, and leave 'order' out; or set it to {' or '.join(others)}."
        ),
    )
    table.refuse(name, written & ~sound & ~empty, "there is no such date", values=words, todo="Correct these cells.")
    stamps: NDArray[np.datetime64] = np.where(sound, days, np.datetime64(0, "D")).astype("datetime64[us]")
    stamps += (clock * 1_000_000).astype("timedelta64[us]")
    return stamps


def _one_hot(table: Table, part: Part, name: str, learned: Learned) -> _Block:
    words, empty = find_gaps(table.text(name, key=f"{part.key}.one_hot"), part.said, usual=())
    declared = part.said.one_hot[name]
    if declared is None:
        declared = learned.words(name) or sort_words(distinct(words))
    known = [word for word in declared if word != ANY_OTHER]
    place = pc.index_in(words, value_set=pa.array(known, pa.string()))
    strange = mask(pc.is_null(place)) & ~empty
    column = np.asarray(pc.fill_null(place, 0).to_numpy(zero_copy_only=False), dtype=np.int64)
    numbers = {word: number for number, word in enumerate(declared)}
    column = np.array([numbers[word] for word in known] or [0], dtype=np.int64)[column]
    if ANY_OTHER in declared:
        column = np.where(strange, numbers[ANY_OTHER], column)
    else:
        table.unknown(
            name, strange, f"the word is not among {part.key}.one_hot.{name} ({', '.join(known)})", values=words,
            known=known, todo=f'Add it there (at every silo), or add "{ANY_OTHER}" for all other words.',
        )  # fmt: skip
    block = np.zeros((table.rows, len(declared)), dtype=np.float32)
    if len(declared):
        rows = np.flatnonzero(~empty)
        block[rows, column[rows]] = 1.0
    return _Block(block, tuple(f"{name}={word}" for word in declared), empty, words=True)
