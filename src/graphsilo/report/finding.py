"""Whether it was worth it: what every silo reaches together with the others, against what it reaches alone.

The page of a run opens with ``Finding.sentence``: what came out, how certain it is, and what would make it certain
where it is not. Differences are paired seed by seed, as everywhere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, TypeAlias

from graphsilo.evaluate.metrics import metric_of
from graphsilo.evaluate.significance import PairedComparison, compare_paired
from graphsilo.experiments.storage.records import RunRecord
from graphsilo.experiments.storage.views import by_client
from graphsilo.federation import registry
from graphsilo.report.formats import decimal, describe_share, in_sentence, join_words, mean, metric, unit_of_errors
from graphsilo.report.record import Run, flatten

Side: TypeAlias = Literal["gains", "loses", "same"]

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NORMAL = 1.96
ALONE = ("local", "majority")
"""Methods in which no silo hears of another."""
_ALIKE = (
    "All {count} seeds gave the same {metric}, and other scores differ: this one does not tell their models apart, as "
    "where each answers one class for everything."
)
SHOWN = 3
"""How many of the things that a method chooses among are named."""
LEAST_SEEDS = 6
"""From so many seeds on, an exact test can call a difference one at the level of 5 %."""


def choice(record: RunRecord) -> str:
    """What all silos' validation items preferred of what a method chooses among, and how good they say each is; empty
    where it chooses nothing."""
    known = registry.listing(record.method.name)
    names = known.choices.get("chosen", ()) if known else ()
    selected = str(record.config.get("evaluation", {}).get("select_by", "accuracy"))
    taken, said = list[str](), {name: list[float]() for name in names}
    for seed in record.seeds:
        # Of the last choice up to the round whose models are reported: a method need not choose in every one.
        logs = [row.log for row in seed.rounds if row.log and row.round <= seed.best_round]
        number = logs[-1].get("chosen") if logs else None
        if number is not None and 0 <= int(number) < len(names):
            taken.append(names[int(number)])
        for place, name in enumerate(names):
            said[name] += [value for log in logs if (value := log.get(f"chosen_{place}")) is not None][-1:]
    if not taken:
        return ""
    counts = Counter(taken).most_common()
    which = (
        counts[0][0]
        if len(counts) == 1
        else join_words(f"{name} ({count} of {len(taken)} seeds)" for name, count in counts)
    )
    good = metric_of(selected).goodness
    means = sorted(((fmean(values), name) for name, values in said.items() if values), key=lambda each: -good(each[0]))
    each = join_words(f"{metric(value, selected)} for {name}" for value, name in means[:SHOWN])
    tried = f", no better for {len(means) - SHOWN} others" if len(means) > SHOWN else ""
    spread = " (in standard deviations)" if selected in ("mae", "rmse") else ""  # silos add up errors in these
    return (
        f"Validation items of all silos chose {which}. At the reported round their {in_sentence(selected)}{spread} was "
        f"{each}{tried}; here a silo counts by its validation items, elsewhere by its nodes."
    )


@dataclass(frozen=True)
class Gain:
    """One silo.

    Attributes:
        client: Its number.
        alone, together: Its scores, means over the seeds that have both.
        paired: The difference over these seeds; above 0 is better, whichever way the metric goes.
        items: Its test items.
        rare: How many of them are of the rarer of two classes; None where there is none.
        error: Standard error of the difference over which items are tested; None where it is not known.
    """

    client: int
    alone: float
    together: float
    paired: PairedComparison
    items: int | None
    error: float | None = None
    rare: int | None = None

    @property
    def difference(self) -> float:
        """Mean over seeds; above 0 is better."""
        return self.paired.difference or 0.0

    @property
    def side(self) -> Side:
        """Whether it gains, by what can be read of the difference."""
        if abs(self.difference) < 0.0005:  # is shown as 0.0 points
            return "same"
        return "gains" if self.difference > 0 else "loses"

    @property
    def span(self) -> tuple[float, float] | None:
        """The 95 % interval of the difference, over seeds and test items as far as either is known."""
        return span_of(self.paired, self.error)

    @property
    def may_be_chance(self) -> bool:
        """Whether the interval holds 0, or there is none."""
        return self.span is None or self.span[0] <= 0 <= self.span[1]


@dataclass(frozen=True)
class Finding:
    """What a run found.

    Attributes:
        sentence: The finding.
        certainty: How much it can be relied on; empty where there is nothing to say.
        gains: Of each silo, the largest first; empty where they are not known.
        overall: The mean over silos, seed by seed.
        missing: Why the gains are not known, and what would tell them; empty where they are.
    """

    sentence: str
    certainty: str = ""
    gains: tuple[Gain, ...] = ()
    overall: PairedComparison | None = None
    missing: str = ""


def finding(run: Run) -> Finding:
    """What a run found, in words and silo by silo."""
    name, title = run.main_metric, run.result.method.title
    score = run.spread(name)
    if score is None:
        return Finding(f"{title}: no test score was recorded.")
    unit = unit_of_errors(run.result, name)
    reached = f"{metric(score.mean, name)}{' %' if unit == '%' else ''} {in_sentence(name)}"
    reached += f" ({unit})" if unit not in ("", "%") else ""
    part = describe_share(run.result)
    first, scored = (f"{part}. ", "scored ") if part else ("", "")
    single = one_class(run)
    caution = f"{first}{single}".strip()
    if run.result.method.pooled:
        return Finding(f"With all data in one place {title} reaches {reached}.", caution)
    if run.result.method.alone or run.result.method.name in ALONE:
        return Finding(f"Every {scored}silo alone: {reached} on average{_span(run)}.", caution)
    together = f"Together, the {scored}silos reach {reached} on average{_span(run)}"
    if run.alone is None or _is_pooled_test(run):
        return Finding(f"{together}. Whether that is more than alone is not known.", caution, missing=_missing(run))
    overall = compare_paired(*_order(name, _by_seed(run.result, name), _by_seed(run.alone, name)))
    found = gains_of(run)
    if overall.difference is None:
        return Finding(f"{together}. No seed has a score alone to compare it with.", caution)
    error = _overall_error(run, found)
    alone = "their backbone alone" if _beside(run) else "alone"
    chance = _certainty(overall, "" if run.result.method.backbone else _redraw(run.result))
    if len(overall.seeds) == 1 < len(run.seeds):
        chance = (
            say_same(run.result)
            if are_seeds_alike(run.result)
            else _ALIKE.format(count=_word(len(run.seeds)), metric=in_sentence(name))
        )
    parts = (first.strip(), chance, _items(error, name), _single_silos(found), _beside(run), single)
    certainty = " ".join(filter(None, parts))
    if not found:
        text = f"{together}: {_mean(overall, name)} against alone. Scores of single silos are seen by nobody."
        return Finding(text, certainty, overall=overall)
    return Finding(
        _sentence(found, overall, name, run.names.title, scored, alone, len(run.seeds)), certainty, found, overall
    )


def are_seeds_alike(record: RunRecord) -> bool:
    """Whether several seeds have the same scores."""
    return len(record.seeds) > 1 and all(seed.test == record.seeds[0].test for seed in record.seeds)


def gains_of(run: Run) -> tuple[Gain, ...]:
    """What joining brought every silo, the largest gain first; empty where it is not known."""
    if run.alone is None or _is_pooled_test(run):
        return ()
    name = run.main_metric
    together, alone = (by_client(record, name) for record in (run.result, run.alone))
    items = {row.client: (row.test_items, row.rare_items) for seed in run.seeds for row in seed.clients}
    gains = []
    for client in together.keys() & alone.keys():
        seeds = together[client].keys() & alone[client].keys()
        if not seeds:
            continue
        means = [fmean(scores[client][seed] for seed in seeds) for scores in (alone, together)]
        paired = compare_paired(*_order(name, together[client], alone[client]))
        tested, rare = items.get(client, (None, None))
        gains.append(Gain(client, means[0], means[1], paired, tested, _error(run, client, name), rare))
    return tuple(sorted(gains, key=lambda gain: (-gain.difference, gain.client)))


def span_of(paired: PairedComparison, error: float | None) -> tuple[float, float] | None:
    """The 95 % interval of a mean difference, over seeds and over which items are tested; None without either.

    Both parts are taken as independent. Two models that answer alike on every item that is tested say nothing of how
    far they are apart on others.
    """
    if paired.difference is None:
        return None
    half = [_NORMAL * error] if error else []
    if paired.ci_low is not None and paired.ci_high is not None:
        half.append((paired.ci_high - paired.ci_low) / 2)
    reach = math.hypot(*half)
    return (paired.difference - reach, paired.difference + reach) if half else None


def _error(run: Run, client: int, name: str) -> float | None:
    """Standard error of a client's difference over which items are tested, which are the same in every seed.

    Where both models' answers were held together, of what they answer differently; else as if items were not the same.
    """
    rows = [
        [row for seed in (record.seeds if record else ()) for row in seed.clients if row.client == client]
        for record in (run.result, run.alone)
    ]
    paired = [error for row in rows[1] if (error := (row.paired or {}).get(name)) is not None]
    if paired:
        return fmean(paired)
    known = [[error for row in each if (error := (row.errors or {}).get(name)) is not None] for each in rows]
    return math.hypot(*map(fmean, known)) if all(known) else None


def _overall_error(run: Run, gains: Sequence[Gain]) -> float | None:
    """The same of the mean over silos, which weighs each by its n_k."""
    sizes = {row.client: row.weight or row.nodes for row in run.seeds[0].clients}
    weights = [sizes.get(gain.client) for gain in gains]
    if not gains or None in weights or any(gain.error is None for gain in gains):
        return None
    total = sum(weight or 0 for weight in weights)
    return (
        math.hypot(*((weight or 0) * (gain.error or 0.0) for weight, gain in zip(weights, gains, strict=True))) / total
    )


def _beside(run: Run) -> str:
    """What alone is, where it is not the method itself."""
    if run.alone is None or (run.alone.method.alone and run.alone.method.name == run.result.method.name):
        return ""
    return (
        f"Alone is here {run.alone.method.title}, the backbone by itself, and part of the difference may be the "
        f"method's: --reference alone runs {run.result.method.title} at each silo by itself."
    )


def points(value: float, name: str) -> str:
    """A difference with its sign: "+1.5", "−0.3" in points where the metric is shown in percent."""
    each = metric_of(name)
    size = decimal(abs(value), 3)
    digits = 1 if each.is_share else len(size.partition(".")[2])
    return f"{round(each.factor * value, digits) + 0.0:+,.{digits}f}".replace("-", "−")


def _order(name: str, one: Mapping[int, float], other: Mapping[int, float]) -> tuple[Mapping[int, float], ...]:
    """As ``compare_paired`` takes them, so that above 0 is better."""
    return (one, other) if metric_of(name).higher_is_better else (other, one)


def _by_seed(record: RunRecord | None, name: str) -> dict[int, float]:
    found = {} if record is None else {seed.seed: seed.test.numbers.get(name) for seed in record.seeds}
    return {seed: value for seed, value in found.items() if value is not None}


def _sentence(
    gains: Sequence[Gain],
    overall: PairedComparison,
    name: str,
    called: Callable[[int], str],
    scored: str,
    alone: str,
    ran: int,
) -> str:
    better, worse = ([gain for gain in gains if gain.side == side] for side in ("gains", "loses"))
    count = len(gains)
    if count == 1:
        who = f"the {scored}silo does" if better else f"the {scored}silo does not do"
    elif len(better) in (0, count):
        who = f"{_all_of(count)} {scored}silos do" if better else f"no {scored}silo does"
    else:
        few = "only " if len(better) < count / 2 else ""
        who = f"{few}{len(better)} of {count} {scored}silos {'does' if len(better) == 1 else 'do'}"
    text = f"Together, {who} better than {alone}: {_mean(overall, name)} on average{interval(overall, name, ran=ran)}"
    if worse and count > 1:
        lost = f"{points(worse[-1].difference, name).lstrip('+−')}{unit_of(name)} ({called(worse[-1].client)})"
        many = _all_of(count) if len(worse) == count else str(len(worse))
        text += f"; {many} {f'loses {lost}' if len(worse) == 1 else f'lose, up to {lost}'}"
    return f"{text}."


def _all_of(count: int) -> str:
    return "both" if count == 2 else f"all {count}"


def _mean(overall: PairedComparison, name: str) -> str:
    found = overall.difference or 0.0
    if not metric_of(name).higher_is_better:  # a gain is above 0
        return f"{decimal(abs(found), 3)} {'less' if found >= 0 else 'more'} {in_sentence(name)}"
    return f"{points(found, name)}{unit_of(name)} of {in_sentence(name)}"


def unit_of(name: str) -> str:
    """What follows a difference: " points" where the metric is shown in percent."""
    return " points" if metric_of(name).is_share else ""


def interval(paired: PairedComparison, name: str, *, flip: bool = False, ran: int = 0) -> str:
    """In brackets, with how many seeds it is made of; ``flip`` reads the difference the other way round.

    Of ``ran`` seeds that gave the same numbers one is left.
    """
    if len(paired.seeds) == 1 < ran:
        return f" ({_word(ran)} seeds, all alike)"
    seeds = f"{_word(len(paired.seeds))} seed{'' if len(paired.seeds) == 1 else 's'}"
    if paired.ci_low is None or paired.ci_high is None:
        return f" ({seeds})"
    low, high = (-paired.ci_high, -paired.ci_low) if flip else (paired.ci_low, paired.ci_high)
    return f" (95\u00a0% interval over {seeds}: {points(low, name)} to {points(high, name)})"


def _items(error: float | None, name: str) -> str:
    """What other test items could do to the mean difference."""
    if not error:
        return ""
    reach = points(_NORMAL * error, name).lstrip("+")
    return f"Other test items might move it by up to {reach}{unit_of(name)} more (95 %)."


def _single_silos(gains: Sequence[Gain]) -> str:
    """How many silos' own differences may be chance; empty where none of those that have an interval is."""
    known = [gain for gain in gains if gain.span is not None]
    chance = sum(gain.may_be_chance for gain in known)
    if not chance or len(known) < 2:
        return ""
    return f"By itself, the difference at {chance} of {len(known)} silos may be chance."


def say_same(record: RunRecord) -> str:
    """What follows from seeds that are alike."""
    return (
        f"All seeds gave the same numbers: nothing here is drawn at random, so that seeds say nothing of chance; "
        f"{_redraw(record)} do."
    )


def _redraw(record: RunRecord) -> str:
    """What says how much is chance where training draws nothing."""
    if record.partition.rule == "silos":  # which the coordinator does not cut
        return "other splits in every silo.yaml (split.seed, or its dates)"
    dated = record.config.get("partition", {}).get("split") == "time"
    return "other dates (partition.train_until)" if dated else "other cuts and splits (partition.seed)"


def _certainty(overall: PairedComparison, redraw: str = "") -> str:
    """What may be said of the mean difference; ``redraw``: what to run again where training draws no weights."""
    count = len(overall.seeds)
    if count < 2 and redraw:
        return (
            f"One cut and split: nothing says how much of this is chance. Run {redraw}; seeds change little or nothing "
            f"of a method that draws no weights."
        )
    if count < 2:
        return "One seed: nothing says how much of this is chance. Run several, such as --seeds 0,1,2,3,4,5."
    span, verdict = span_of(overall, None), overall.verdict()
    chance = "The interval holds 0: this may be chance." if span is not None and span[0] <= 0 <= span[1] else ""
    if verdict == "too few seeds":
        few = f"{_word(count).capitalize()} seeds are too few for an exact test; {_word(LEAST_SEEDS)} are enough."
        return f"{chance} {few}".strip()
    p = overall.sign_flip_p or 0.0
    shown = f"sign-flip test, p {'< 0.001' if p < 0.001 else f'= {p:.2g}'}"
    if verdict == "no difference shown":
        return f"No difference is shown: this may be chance ({shown})."
    return f"It is {verdict} by more than chance explains ({shown})."


def _is_pooled_test(run: Run) -> bool:
    """Whether every client was scored on the test data of all."""
    return bool(run.modes) and run.modes[0].endswith("_global")


def _missing(run: Run) -> str:
    """Why it is not known what every silo reaches alone, and how to learn it."""
    if _is_pooled_test(run):
        return "Scored on the test data of all, so that a silo's own training has nothing to stand against."
    if run.result.reference_rows.keys() & {"local", "alone"}:
        return "The scores of each silo alone are not in this folder (references)."
    if run.result.partition.rule == "silos":
        if {"local", "alone"} & {*flatten(run.config).get("run.references", ())}:
            return "Training alone was asked for and did not come about: the warnings say why."
        return "Run the job with the reference `alone`, which is usual between machines (run.references=[alone])."
    return "Run it again with --reference alone: every silo then also runs the method by itself."


def _span(run: Run) -> str:
    """From the worst to the best silo, means over seeds."""
    name = run.main_metric
    scores = [value for each in by_client(run.result, name).values() if (value := mean(each.values())) is not None]
    if len(scores) < 2:
        return ""
    worst, best = sorted(scores, key=metric_of(name).goodness)[:: len(scores) - 1]
    return f", from {metric(worst, name)} to {metric(best, name)}"


def one_class(run: Run) -> str:
    """A caution where models answer one class for everything, in every seed; not of a ranking, which needs no line."""
    if metric_of(run.main_metric).ranking is not None:
        return ""
    each = [{client for client, _ in seed.one_class or ()} for seed in run.seeds]
    stuck = sorted(set.intersection(*each)) if each else []
    total = len(run.result.partition.per_client)
    if not stuck:
        return ""
    if len(stuck) == total and total > 1:
        return "Caution: at every silo the model answers one class for everything."
    who = join_words(run.names.title(client) for client in stuck) if len(stuck) <= 3 else f"{len(stuck)} silos"
    return f"Caution: at {who} the model answers one class for everything."


def _word(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)
