"""What a person should know of a run's outcome before believing a number of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import sqrt

import numpy as np

from graphsilo.errors import one_line, several
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.evaluation import EVERYBODY, SetScores
from graphsilo.experiments.participants import (
    Participants,
    asks_for,
    class_word,
    describe_untrained,
    selection_metric,
)
from graphsilo.experiments.simulation import model_entries
from graphsilo.experiments.storage.records import ClientScores, Seed
from graphsilo.federation import registry
from graphsilo.federation.client import common_model
from graphsilo.federation.registry import Method
from graphsilo.federation.secure import MIN_PARTIES
from graphsilo.types import CLASS_TASKS

_FAILURE = re.compile(r"client (\d+) failed in (.*)", re.DOTALL)
_IDLE = re.compile(r"client (\d+) in (.*)", re.DOTALL)
_LONGEST_REASON = 300
_MAX = 8
"""Silos that are named before the rest is only counted."""


def find_one_class(scores: SetScores) -> list[list[int]]:
    """[client, class] of the clients that were asked for several classes and answered with one."""
    if scores.counts is None:
        return []
    counts = scores.of("test").sum(axis=1)  # [clients, true, predicted]
    found = []
    for client, table in zip(scores.clients, counts, strict=True):
        answered = np.flatnonzero(table.sum(axis=0))
        if len(answered) == 1 and (table.sum(axis=1) > 0).sum() > 1:
            found.append([int(client), int(answered[0])])
    return found


def find_untrained(scores: SetScores, clients: int) -> list[list[int]]:
    """[class, items] of the classes that are tested and that no client has a training item of.

    Known from the tables that clients send to be evaluated; nothing where one of them sent none.
    """
    if scores.counts is None or len(scores.clients) < clients or not {"train", "test"} <= set(scores.kinds):
        return []
    trained, tested = (scores.of(kind).sum(axis=(0, 1, 3)) for kind in ("train", "test"))
    return [[int(label), int(tested[label])] for label in np.flatnonzero((trained == 0) & (tested > 0))]


def outcome_warnings(config: RunConfig, seeds: Sequence[Seed], method: Method, participants: Participants) -> list[str]:
    """What the outcome says that a person should know."""
    lost = [] if participants.has_data else seeds[0].untrained or []  # who has the data knew before
    return [
        *([describe_untrained(lost, participants.schema.class_names)] if lost else ()),
        *failure_warnings(seeds, participants),
        *_idle_warnings(seeds, participants),
        *_one_class_warnings(config, seeds, method, participants),
        *_inverted_warnings(seeds, method, participants),
        *_swapped_warnings(seeds, participants),
    ]


def failure_warnings(seeds: Sequence[Seed], participants: Participants) -> list[str]:
    """Says which clients a run went on without, where ``method.min_clients`` let it."""
    steps: dict[int, set[tuple[int, int]]] = {}
    trained: set[int] = set()  # who has no answer to more than evaluation
    failed_at: set[int] = set()  # whose policy was not all that kept an answer in
    reasons: dict[int, str] = {}
    for place, seed in enumerate(seeds):
        for number, row in enumerate((seed.setup, *seed.rounds)):
            for text in row.failures or ():
                found = _FAILURE.match(text)
                if found:
                    client = int(found[1])
                    if not found[2].startswith("'evaluate"):
                        trained.add(client)
                    if "(DisclosureError: " not in text:
                        failed_at.add(client)
                    steps.setdefault(client, set()).add((place, number))
                    reasons.setdefault(client, found[2])
    rounds = sum(len(seed.rounds) for seed in seeds)
    found_so_far = []
    for client in sorted(steps)[:_MAX]:
        failed = sum(number > 0 for _, number in steps[client])
        when = [f"{failed} of {rounds} rounds"] if failed else []
        when += ["set-up"] if failed < len(steps[client]) else []
        who, where = participants.name_clients([client]), " and in ".join(when)
        first = f"first in {one_line(reasons[client], _LONGEST_REASON)}"
        if client in trained:
            does = "failed" if client in failed_at else "refused"
            found_so_far.append(f"{who} {does} in {where}, which went on without it; {first}")
        else:
            found_so_far.append(f"{who} sent no scores in {where}, and those of the run are of the others; {first}")
    if len(steps) > _MAX:
        found_so_far.append(f"{len(steps) - _MAX} more clients failed; see failures in result.json.")
    return found_so_far


def _idle_warnings(seeds: Sequence[Seed], participants: Participants) -> list[str]:
    """Says which silos elsewhere sent nothing of their own while others did."""
    found: dict[int, tuple[int, str]] = {}
    rows = [row for seed in seeds for row in seed.rounds]
    for row in rows:
        for client, text in {int(each[1]): each[2] for each in map(_IDLE.match, row.idle or ()) if each}.items():
            found[client] = found.get(client, (0, ""))[0] + 1, text
    each = [
        f"{participants.name_clients([client])} in {often} of {len(rows)} rounds ({text})"
        for client, (often, text) in sorted(found.items())
    ]
    return each and [
        f"silos whose answers held nothing of their own, although others' did: {several(each, _MAX)}. So answers who "
        f"does not train, who holds the data of another, whose software is broken, and who only takes what the others "
        f"made: ask their owners."
    ]


def _one_class_warnings(
    config: RunConfig, seeds: Sequence[Seed], method: Method, participants: Participants
) -> list[str]:
    """Says so where silos predict one class for everything at the reported round, and what may be the matter."""
    among = {tuple(pair) for seed in seeds for pair in seed.one_class or ()}
    if not among or method.name == "majority":  # which is meant to
        return []
    classes = sorted({label for _, label in among})
    what = ", ".join(class_word(label, participants.schema) for label in classes[:_MAX])
    clients = sorted({client for client, _ in among})
    scored = {row.client for seed in seeds for row in seed.clients if row.test.metrics.get("accuracy") is not None}
    if clients == [EVERYBODY] or scored <= set(clients):
        who, verb = "every silo", "predicts"
    else:
        who, verb = participants.name_clients(clients), "predicts" if len(clients) == 1 else "predict"
    in_seeds = [str(seed.seed) for seed in seeds if seed.one_class]
    when = "" if len(seeds) == 1 else f" (seed{'s' if len(in_seeds) > 1 else ''} {', '.join(in_seeds)})"
    such = [seed for seed in seeds if seed.one_class]
    area, found = (_score_at(such, clients, name) for name in ("auc", "threshold_f1"))
    ranks = area is not None and area >= _FAR_ABOVE
    common, share = participants.commonest
    lopsided = participants.is_lopsided and classes == [common]
    text = f"{who} {verb} one class for everything ({what}) at the reported round{when}"
    text += f". That is the class of {share:.1f} % of all training items" if lopsided else ""
    if area is not None and area < _FAR_BELOW:
        return []  # items are told from each other, the wrong way round: see the warning of that
    if ranks and found and selection_metric(config.evaluation, participants).ranking is not None:
        return []  # what is wanted is a ranking, and decisions are made at the threshold of validation items
    if area is None:
        text += ". evaluation.auc=true measures whether items are ranked better than that. "
    elif ranks:
        text += f". Yet items are ranked better than by chance (AUC {100 * area:.1f}): something was learned, but no "
        text += "item comes over the line to another class. "
        if found:
            text += (
                f"At a threshold that validation items choose, as `graphsilo predict` does, F1 is {100 * found:.1f}. "
            )
    else:
        text += f", and the ranking of items is no better than chance (AUC {100 * area:.1f}): nothing was learned by "
        text += "then that tells one item from another. "
    if lopsided or ranks:
        return [text + _weighing(config, method, participants)]
    if _opposed_warnings(participants) or _swapped_warnings(seeds, participants):
        return [f"{text}Look first at the labels, which may be swapped at some silos."]
    rest = ", the learning rate and the rounds" if method.backbone else ""
    return [f"{text}Look at the units of the features (data.scale){rest}."]


_FAR_ABOVE, _FAR_BELOW = 0.6, 0.4
"""AUC from which items are ranked better than by chance, and below which worse; guessing has 0.5."""


def _score_at(seeds: Sequence[Seed], clients: Sequence[int], name: str) -> float | None:
    """Mean of a score of these clients at the reported round; of all together where none has its own."""
    each = [row.test.numbers.get(name) for seed in seeds for row in seed.clients if row.client in clients]
    own = _mean(each)
    return _mean([seed.test.numbers.get(name) for seed in seeds]) if own is None else own


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _weighing(config: RunConfig, method: Method, participants: Participants) -> str:
    """What gives rare classes more weight, and what chooses by them."""
    name, _, value = method.balances.partition("=")
    settings = config.method_config()
    if name and getattr(settings, name) == type(settings).model_fields[name].default:
        todo = f"Give rare classes more weight with method.{name}={value}"
    elif name:
        todo = f"method.{name} weighs rare classes already; try another value, more rounds, or other features"
    else:
        others = [f"{each.name} with method.{each.balances}" for each in registry.listings() if each.balances]
        todo = f"{method.title} cannot weigh classes; {', '.join(others[:-1])} or {others[-1]} can"
    if selection_metric(config.evaluation, participants).name != "accuracy":
        return f"{todo}."
    return f"{todo}, and have rounds chosen by them with evaluation.select_by=macro_f1."


def _inverted_warnings(seeds: Sequence[Seed], method: Method, participants: Participants) -> list[str]:
    """Says so where items are ranked the wrong way round, which no other score shows."""
    area, last = (
        _mean([scores.numbers.get("auc") for scores in each])
        for each in ([seed.test for seed in seeds], [seed.test_last for seed in seeds])
    )
    if area is None or area >= _FAR_BELOW:
        return []
    then = "" if last is None or last <= area else f" (in the last round {100 * last:.1f})"
    causes = []
    if len(participants.cut["per_client"]) > 1 and not method.alone:
        causes = ["features whose units or signs differ between silos (data.scale=standard with data.scale_by=silo)"]
        causes += ["labels that mean the opposite at some silos"] if participants.task != "link" else []
    if method.backbone:
        causes = ["too few rounds", *causes, "links that mostly join unlike items (model.name=mlp ignores them)"]
    causes = causes or ["features or links that say little of the labels"]
    return [
        f"test items are ranked worse than by chance at the reported round: AUC {100 * area:.1f}, where guessing has "
        f"50{then}. Likely causes: {'; '.join(causes)}."
    ]


def _swapped_warnings(seeds: Sequence[Seed], participants: Participants) -> list[str]:
    """Says so where single silos are answered the wrong way round, as they are by others' models if 0 is 1 there.

    An area under chance tells, or of two classes an accuracy: by more than few test items bring about by chance.
    """
    rows: dict[int, list[ClientScores]] = {}
    for seed in seeds:
        for row in seed.clients:
            rows.setdefault(row.client, []).append(row)
    measured = {name for each in rows.values() for row in each for name in row.test.numbers}
    name, title = ("auc", "AUC") if "auc" in measured else ("accuracy", "accuracy")
    means = {client: _mean([row.test.numbers.get(name) for row in each]) for client, each in rows.items()}
    scores = {client: score for client, score in means.items() if score is not None}
    items = {client: _mean([row.test_items for row in each]) or 1.0 for client, each in rows.items()}
    found = [client for client, score in scores.items() if score < min(_FAR_BELOW, 0.5 - 2 / sqrt(3 * items[client]))]
    others = _mean([score for client, score in scores.items() if client not in found])
    if not found or others is None or others < _FAR_ABOVE:
        return []
    if participants.task not in CLASS_TASKS or participants.schema.num_classes != 2:
        return []
    who = several(
        (f"{participants.name_clients([client])} ({title} {100 * scores[client]:.1f})" for client in found), _MAX
    )
    return [
        f"answers are the wrong way round at some silos and not at the others: {who}, where guessing has 50. May their "
        f"labels be swapped, so that 0 there is 1 elsewhere? Then nodes.words of their descriptions puts it right."
    ]


def lopsided_warnings(config: RunConfig, participants: Participants) -> list[str]:
    """Says by what rounds are chosen where one class is so common that accuracy says little."""
    if not participants.is_lopsided:
        return []
    label, share = participants.commonest
    by = selection_metric(config.evaluation, participants)
    beside = by.name != "ap"
    positive = asks_for(config.evaluation, participants).get("rare")
    rare = "" if positive is None else f" of class {class_word(positive, participants.schema)}"
    other = "; evaluation.select_by=ap chooses by how well the rare class is ranked"
    if config.is_given("evaluation.select_by"):
        other = ", as evaluation.select_by says"
    if by.name == "accuracy":
        other = "; evaluation.select_by=macro_f1 counts all classes alike"
    return [
        f"{share:.1f} % of the training items are of class {class_word(label, participants.schema)}, and whoever "
        f"always answers that has as much accuracy: rounds are chosen by {by.title}{other}."
        + (f" Average precision{rare} is measured beside it." if beside else "")
    ]


_SURE = 0.8
"""Share of one class from which a silo's other one is rare there."""


def label_warnings(participants: Participants) -> list[str]:
    """Says so where of two classes a silo has one alone, or has as the common one what others have as the rare one."""
    shares = _shares(participants)
    single = [client for client, share in shares.items() if share in (0, 1)]
    found = []
    if single and len(single) < len(shares):
        found.append(
            f"only one class occurs at {participants.name_clients(single)}: accuracy and Macro-F1 there are "
            f"of that class alone, often 100, and count in the means; AUC, average precision and the F1 of the rare "
            f"class leave such silos out."
        )
    return [*found, *_opposed_warnings(participants)]


def _shares(participants: Participants) -> dict[int, float]:
    """Of two classes the share of the second at each silo that has labels; empty where that is not known."""
    if participants.schema.num_classes != 2 or participants.task not in CLASS_TASKS:
        return {}
    rows = {row["client"]: row.get("labels") or [0, 0] for row in participants.cut["per_client"]}
    return {client: labels[1] / sum(labels) for client, labels in rows.items() if sum(labels) > 0}


def _opposed_warnings(participants: Participants) -> list[str]:
    """Says so where the common class of some silos is the rare one of others; names no side where neither is most."""
    shares = _shares(participants)
    if not shares:
        return []
    common = [[client for client, share in shares.items() if abs(share - label) < 1 - _SURE] for label in (0, 1)]
    few, many = sorted((0, 1), key=lambda label: len(common[label]))
    mixed = [[client for client in each if shares[client] not in (0, 1)] for each in common]
    words = [class_word(label, participants.schema) for label in (0, 1)]
    if mixed[few] and 2 * len(common[many]) > len(shares):
        text = (
            f"at {participants.name_clients(mixed[few])} class {words[few]} is the common one, which is the rare one "
            f"at most other silos. If the labels are swapped there, a line under nodes of that description"
        )
    elif all(common) and any(mixed) and 2 * len(common[many]) <= len(shares) < 2 * sum(map(len, common)):
        sides = "; ".join(f"{words[label]} at {participants.name_clients(common[label])}" for label in (0, 1))
        text = (
            f"the commonest class differs between silos: {sides}. That may be so, or labels are swapped at some of "
            f"them: then a line under nodes of their descriptions"
        )
    else:
        return []
    zero, one = participants.schema.class_names or ("0", "1")
    return [f"{text} puts it right: words: {{COLUMN: {{{zero}: {one}, {one}: {zero}}}}}."]


def backbone_warnings(method: Method, participants: Participants) -> list[str]:
    """Says so where a method is another one on the backbone that was chosen."""
    if method.elsewhere is None or method.model is None:
        return []
    usual = method.model.get("name")
    others = sorted({spec.name for spec in participants.models.values()} - {usual})
    if not others:
        return []
    return [
        f"{method.title} is {method.elsewhere} on any backbone but '{usual}', and '{', '.join(others)}' was chosen: "
        f"this run is not that of its paper. --model {usual} is."
    ]


def secure_warnings(config: RunConfig, method: Method, participants: Participants) -> list[str]:
    """Says what secure sums do not hide in this run."""
    if not config.run.secure_sums or method.pooled or config.run.alone:
        return []
    found = []
    asked = config.method_config().count_asked(len(participants.clients))
    if participants.has_data:
        changing = asked < len(participants.clients) or config.evaluation.share < 1
        refused = " There it would be refused to sum over some silos at a time." if changing else ""
        found.append(
            f"run.secure_sums is on, and all silos are in the hands of this process: this protects nobody, and shows "
            f"what sums would come to and cost between machines.{refused}"
        )
    if asked == MIN_PARTIES:
        found.append(
            f"a secure sum of {MIN_PARTIES} silos cannot be opened where one of them drops out, and any two of them "
            f"that share what they know can compute the third's answer from it."
        )
    if config.evaluation.report == "silos":
        found.append(
            "models and statistics are masked, but every silo's own counts and scores are seen: with "
            "evaluation.report=federation only their sums are."
        )
    return found


def setting_warnings(config: RunConfig, participants: Participants) -> list[str]:
    """Says what a method promises of what training sends, and where what it does comes to nothing."""
    settings, clients = config.method_config(), len(participants.clients)
    asked = settings.count_asked(clients)
    items = sum(row["train"] for row in participants.cut["per_client"])
    model = common_model(participants.models).name
    found = (
        settings.promises(len(config.run.seeds)),
        settings.explain_no_effect(participants.schema, items * asked // clients, asked, model),
    )
    said = [text for text in found if text]
    title = registry.load(config.method.name).title
    if settings.total_rounds == 1 < settings.rounds and config.is_given("method.rounds"):
        said.append(f"{title} has exactly one round: method.rounds {settings.rounds} is that of its reference rows.")
    least, counts = (
        getattr(settings, "min_count", 0),
        [row.get("labels") or [] for row in participants.cut["per_client"]],
    )
    if any(counts) and least > (most := max(max(each, default=0) for each in counts)):
        said.append(
            f"method.min_count is {least:,}, and no client has more than {most:,} items of a class: none may tell "
            f"of any, and what {title} makes of classes comes to nothing."
        )
    pool = config.model.pool
    if pool is not None and len(entries := model_entries(config)) > (count := len(participants.holders)):
        left = several(dict.fromkeys(name for name, _ in entries[count:]), 4)
        said.append(
            f"model.pool has {len(entries)} models, and there are {count} clients: the last are not used ({left})."
        )
    counted = participants.task != "link"  # whose pairs are no labelled items
    by_round = settings.total_rounds > 1
    unvalidated = counted and not any(row.get("val", 1) for row in participants.cut["per_client"])
    if unvalidated and (by_round or settings.chooses_by_validation):
        stops = "" if config.run.early_stopping is None else ", and run.early_stopping stops nothing"
        what, todo = f"round can be chosen: the last one is reported{stops}", ", or choose method.rounds yourself"
        if not by_round:
            what, todo = f"model can be chosen, as {title} does by them: it takes its usual one", ""
        said.append(f"no client has a validation item, so that no {what}. Give validation a share of the items{todo}.")
    return said
