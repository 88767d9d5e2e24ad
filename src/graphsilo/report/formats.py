"""How numbers are summed up over seeds and written for a reader.

Everything on disk is a fraction, a byte count or seconds. Only this module turns them into text, so the page, the
Markdown table and the LaTeX table round alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphsilo.evaluate.metrics import metric_of
from graphsilo.evaluate.spread import summarise_values
from graphsilo.experiments.storage.records import PartitionFacts, RunRecord, Seed, Spent

MISSING = "–"
"""What stands where there is nothing to show: an empty group, a metric that was not recorded."""
NOT_RECORDED = "not recorded"
MODES = {
    "own_local": "clients' own models",
    "own_global": "clients' own models, test data of all",
    "aggregate_local": "common model (aggregate)",
    "aggregate_global": "common model (aggregate), test data of all",
    "silo_local": "own or common model, as each silo's validation prefers",
    "silo_global": "own or common model, as each silo's validation prefers, test data of all",
    "validation": "own or common model, as validation prefers in each seed",
}
"""Whose model was scored on which test data; on the clients' own where nothing is said."""
REFERENCES = {
    "majority": "Majority class", "local": "Local only", "alone": "Alone", "trees_alone": "Trees alone",
    "fedavg": "FedAvg",
    "fedridge": "FedRidge", "auto": "Auto", "one_place": "In one place",
    "global_cut": "Centralised (cut)", "global": "Centralised",
}  # fmt: skip
"""Names of the reference rows, in the order they are shown."""
OF_THE_METHOD = ("alone", "one_place")
"""Those that are another row of each method."""
POOLED = ("one_place", "global_cut", "global")
"""Those of one place that holds everything, and is scored on everything."""
REFERENCE_MEANINGS = {
    "majority": "every silo answers with the commonest class of its training items",
    "local": "every silo trains the backbone by itself",
    "alone": "every silo runs the same method with the same settings by itself",
    "trees_alone": "gradient-boosted trees that every silo fits to its own table's columns, without neighbours",
    "fedavg": "the mean of all silos' models each round, untuned",
    "fedridge": "one exact round of sums, then a correction at every silo",
    "auto": "FedRidge, FedTrees or the mean of both, as validation says",
    "one_place": "one place holds everything, with the same method and settings",
    "global_cut": "one place holds everything but the edges between silos, its backbone untuned",
    "global": "one place holds everything, its backbone untuned",
}


@dataclass(frozen=True)
class Names:
    """What clients are called: by the names of their silos, where they have any, else by number."""

    known: Mapping[int, str]

    @classmethod
    def of(cls, partition: PartitionFacts) -> Names:
        """Those that the result holds."""
        return cls({holder.client: holder.silo for holder in partition.per_client if holder.silo})

    def short(self, client: int) -> str:
        """For an axis or a table: "north", "3"."""
        return self.known.get(client, str(client))

    def title(self, client: int) -> str:
        """For a sentence: "north", "client 3"."""
        return self.known.get(client, f"client {client}")


UNNAMED = Names({})
"""All by number."""


def reference_title(key: str, method: str) -> str:
    """What a reference row beside a method of this title is called.

    Example:
        >>> reference_title("alone", "FedRidge"), reference_title("fedavg", "FedAvg")
        ('FedRidge alone', 'FedAvg (reference)')
    """
    title = f"{method} {REFERENCES[key].lower()}" if key in OF_THE_METHOD else REFERENCES[key]
    return f"{title} (reference)" if title == method else title


def explain_references(keys: Iterable[str]) -> str:
    """What the reference rows that are shown mean, as a sentence.

    Example:
        >>> explain_references(["local"])
        'Local only: every silo trains the backbone by itself.'
    """
    texts = [f"{REFERENCES[key]}: {REFERENCE_MEANINGS[key]}" for key in REFERENCES if key in set(keys)]
    return f"{'; '.join(texts)}." if texts else ""


def number(value: Any) -> float | None:
    """The value as a finite float; None for anything else (missing, NaN, infinite, text, true or false)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds.

    Attributes:
        mean: Arithmetic mean, in the unit of the values.
        std: Sample standard deviation; None with one value, where there is no spread to speak of.
        count: How many values it stands for.
    """

    mean: float
    std: float | None
    count: int


def spread(values: Iterable[Any]) -> Spread | None:
    """Sum up the finite numbers among values; None when there are none.

    Example:
        >>> spread([0.5, None, 1.0])
        Spread(mean=0.75, std=0.3535533905932738, count=2)
    """
    found = summarise_values([number(value) for value in values])
    return None if found.mean is None else Spread(found.mean, found.std, found.count)


def mean(values: Iterable[Any]) -> float | None:
    """The mean of the finite numbers among values; None when there are none."""
    found = spread(values)
    return None if found is None else found.mean


def when_scored(seeds: Iterable[Seed], noun: str = "round") -> str:
    """At which round scores are reported: at the last one where nothing was validated."""
    validated = any(value is not None for seed in seeds for value in seed.validation.numbers.values())
    return f"at the {noun} that validation chose" if validated else "at the last round"


def words(name: str) -> str:
    """A key as words: ``missing_class`` is "Missing class"."""
    text = name.replace("_", " ").replace(".", " ").strip()
    return text[:1].upper() + text[1:]


def percent(value: Any, digits: int = 1) -> str:
    """A fraction as percent without the sign: 0.7934 is "79.3"."""
    known = number(value)
    return MISSING if known is None else f"{100 * known:.{digits}f}"


def metric(value: Any, name: str, digits: int = 1) -> str:
    """A metric's value as the tables show it: percent, or of what is no fraction about four digits."""
    known = number(value)
    if known is None:
        return MISSING
    if metric_of(name).name in _COST_TEXTS:
        return _COST_TEXTS[metric_of(name).name](known)
    return percent(known, digits) if metric_of(name).is_share else decimal(known, digits + 2)


def decimal(value: float, digits: int) -> str:
    """So many decimals; fewer of large numbers, more of small ones: 7046.96 is "7,047"."""
    size = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{max(0, digits - size)}f}" if size > 0 or size < -digits else f"{value:.{digits}f}"


def unit_of_errors(record: RunRecord, name: str) -> str:
    """What values of a metric are counted in, to stand behind them; empty where that needs no word."""
    if metric_of(name).is_share:
        return "%"
    if record.task != "regression" or metric_of(name).name not in ("mae", "rmse"):
        return ""
    if record.data.targets != 1:
        return "standard deviations"
    return record.class_names[0] if record.class_names else ""


def explain_targets(record: RunRecord) -> str:
    """The unit of errors where numbers are estimated; empty elsewhere."""
    if record.task != "regression":
        return ""
    names = record.class_names or []
    if record.data.targets == 1:
        return f"MAE and RMSE are in the unit of '{names[0]}'." if names else "MAE and RMSE are in the target's unit."
    return (
        f"MAE and RMSE are means over {record.data.targets} targets, each in standard deviations of all training "
        f"items; in result.json each stands by itself in its own unit."
    )


def plus_minus(value: Spread | None, name: str = "accuracy", digits: int = 1) -> str:
    """Mean ± deviation: "79.3 ± 0.6"; only the mean with one seed."""
    if value is None:
        return MISSING
    text = metric(value.mean, name, digits)
    return text if value.std is None else f"{text} ± {deviation(value, name, digits)}"


def deviation(value: Spread, name: str, digits: int = 1) -> str:
    """Its deviation, with as many decimals as the mean."""
    if metric_of(name).is_share or metric_of(name).name in _COST_TEXTS:
        return metric(value.std, name, digits)
    _, _, decimals = metric(value.mean, name, digits).partition(".")
    return f"{value.std or 0.0:,.{len(decimals)}f}"


def data_size(count: Any) -> str:
    """Bytes as people read them, in powers of 1000: 92_230 is "92.2 kB"."""
    known = number(count)
    if known is None:
        return MISSING
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(known) < 999.95 or unit == "TB":
            return f"{known:.0f} {unit}" if unit == "B" else f"{known:.1f} {unit}"
        known /= 1000
    return MISSING


def duration(seconds: Any) -> str:
    """Seconds as people read them: "0.4 s", "3 min 05 s", "2 h 10 min"."""
    known = number(seconds)
    if known is None:
        return MISSING
    if known < 0.0995:
        return f"{1000 * known:.0f} ms"
    if known < 99.95:
        return f"{known:.1f} s"
    if known < 3600:
        return f"{int(known) // 60} min {int(known) % 60:02d} s"
    return f"{int(known) // 3600} h {int(known) % 3600 // 60:02d} min"


def integer(value: Any) -> str:
    """A count with thin separators: 13264 is "13 264" (narrow no-break spaces)."""
    known = number(value)
    return MISSING if known is None else f"{known:,.0f}".replace(",", "\u202f")


def join_words(items: Iterable[str]) -> str:
    """Items as a sentence lists them: "a, b and c"."""
    found = list(items)
    return f"{', '.join(found[:-1])} and {found[-1]}" if len(found) > 1 else "".join(found)


def absent_clients(partition: PartitionFacts) -> str:
    """Who was left out of a run: "client 3"; empty where nobody was."""
    names = [str(row.client if row.silo is None else row.silo) for row in partition.without]
    if not names:
        return ""
    shown = join_words(names) if len(names) <= 6 else f"{', '.join(names[:6])} and {len(names) - 6} more"
    return f"{'client' if len(names) == 1 else 'clients'} {shown}"


def describe_share(record: RunRecord) -> str:
    """How many silos were scored, where ``evaluation.share`` asks for a part of them or scores of some never came:
    "2 of 4 silos were scored (evaluation.share=0.5)"; empty where all were."""
    share = record.config.get("evaluation", {}).get("share", 1.0)
    total = record.partition.clients - len(record.partition.without)
    if total < 2 or record.method.pooled:
        return ""
    scored = [tuple(row.client for row in seed.clients if row.test.metrics) for seed in record.seeds]
    fewest, most = min(map(len, scored)), max(map(len, scored))
    tested = [tuple(row.client for row in seed.clients if row.test_items or row.test.metrics) for seed in record.seeds]
    if share >= 1 and (most == 0 or scored == tested):
        return ""
    why = f"evaluation.share={share:g}" if share < 1 else "the warnings say why"
    if most == 0:  # the federation's sums alone are known
        text = f"Not all of the {total} silos were scored ({why})"
    else:
        count = str(most) if fewest == most else f"{fewest} to {most}"
        text = f"{count} of {total} silos {'was' if most == 1 else 'were'} scored ({why})"
        if len(set(scored)) > 1:
            text += ", not the same in every seed"
    central = [REFERENCES[key] for key in POOLED if key in record.reference_rows]
    return f"{text}; {join_words(central)}: all {total}" if central else text


def describe_weights(record: RunRecord) -> str:
    """By what a mean over silos weighs them: "by their nodes"; empty where the scores of less than two are known."""
    if len({row.client for seed in record.seeds for row in seed.clients if row.weight is not None}) < 2:
        return ""
    kind = record.data.classified
    return f"by their {'graphs' if record.task == 'graph' else 'nodes'}{f' of type {kind}' if kind else ''}"


def in_sentence(name: str) -> str:
    """A metric's name inside a sentence: "accuracy", but "Macro-F1"."""
    title = metric_of(name).title
    return title if any(sign.isupper() for sign in title[1:]) else title.lower()


def many(count: int, word: str) -> str:
    """A number of things: ``1 client``, ``3 clients``."""
    return f"{integer(count)} {word}{'' if count == 1 else 's'}"


def short_hash(value: Any) -> str:
    """The first twelve characters of a hash, enough to compare by eye."""
    return str(value).removeprefix("sha256:")[:12] if value else NOT_RECORDED


def sortable(value: Any) -> str:
    """A number as a table cell's sort key; empty when there is none."""
    known = number(value)
    return "" if known is None else repr(known)


def bar_width(value: float | None, top: float = 1.0) -> str:
    """Width of a bar in a table cell, percent of its track."""
    return "0" if value is None or not top else f"{min(100.0, max(0.0, 100 * value / top)):.1f}"


def with_unit(value: Spread | float | None, name: str) -> str:
    """Mean ± deviation, or one value, with the percent sign where it is one."""
    text = metric(value, name) if isinstance(value, float) else plus_minus(value, name)
    return f"{text} %" if metric_of(name).is_share and text != MISSING else text


_COST_TEXTS: dict[str, Callable[[float], str]] = {
    "bytes_to_target": data_size,
    "rounds_to_target": lambda value: f"{value:.1f}",
    "bytes_sent": data_size,
    "values_sent": lambda value: f"{value:,.0f}",
    "parameters": lambda value: f"{value:,.0f}",
    "training_seconds": lambda value: f"{value:.1f}",
    "distance_local": lambda value: f"{value:.4f}",
    "distance_mended": lambda value: f"{value:.4f}",
}
COSTS: Sequence[tuple[str, str, Callable[[float | None], str]]] = (
    ("Sent", "upload_bytes", data_size),
    ("Received", "download_bytes", data_size),
    ("CPU", "cpu_seconds", duration),
    ("of it server", "server_cpu_seconds", duration),
)
COST_TITLES = tuple(title for title, _, _ in COSTS)


def cost_texts(spent: Spent) -> list[str]:
    """What training took in each of ``COST_TITLES``."""
    return [text(getattr(spent, name)) for _, name, text in COSTS]
