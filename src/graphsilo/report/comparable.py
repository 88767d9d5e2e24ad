"""Which runs answer the same question, what they are called beside each other, and what differs between them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

from msgspec import structs

from graphsilo.experiments.config import NO_NUMBERS
from graphsilo.experiments.storage.records import BesideScores, Scores
from graphsilo.report.formats import MODES, absent_clients, short_hash
from graphsilo.report.record import Run, flatten

# Settings in which runs may differ without a word: they change no number, or are compared by what they led to.
_FREE = NO_NUMBERS | {"run.seeds", "run.without"}
# Settings of the question that was asked. Of the first two, contents are compared, so that a name, path or seed that
# leads to the same contents is no difference.
_BY_CONTENT = ("data", "partition")
# Those of these that no hash tells: how features are scaled is settled when a run begins.
_SCALING = ("data.scale", "data.scale_by")
_ASKED = ("task", "scenario", "perturb")
# Within the method's section these are the schedule that compared runs usually share; the rest is the method itself.
_SCHEDULE = ("rounds", "local_epochs", "batch_size", "fan_out", "participation", "optimizer", "lr", "weight_decay")
_TOP_SHARE = "run.top_share"
_SHARE = "evaluation.share"  # whose scores are held against each other is said by with_shared_clients
_BACKBONE = "model."
_UNSET = "unset"


def questions(runs: Sequence[Run]) -> list[list[int]]:
    """Positions of the runs that answer the same question: same data, cut, split, scenario and perturbation.

    A run that repeats another with other clients belongs to it, wherever its data lies.
    """
    found: dict[Any, list[int]] = {}
    for position, run in enumerate(_originals(runs)):
        found.setdefault((_data_identity(run), _partition_identity(run), _task_identity(run)), []).append(position)
    return list(found.values())


def question_titles(runs: Sequence[Run]) -> list[str]:
    """A column's heading for each question, given by one of its runs: the data set, and what else tells it apart."""
    names = [run.result.data.name for run in runs]
    facts = [
        {
            "rule": run.result.partition.rule,
            "clients": f"{run.result.partition.clients} clients",
            **{
                key: f"{key.removesuffix('.name').rsplit('.', 1)[-1]} {value}"
                for key, value in flatten(run.config).items()
                if key.split(".")[0] in (*_BY_CONTENT, *_ASKED)
                and key not in ("data.name", "data.root", "partition.rule", "partition.clients")
            },
        }
        for run in runs
    ]
    titles = []
    for name, own in zip(names, facts, strict=True):
        alike = [other for other, title in zip(facts, names, strict=True) if title == name]
        telling = [  # what one rule alone has, the rule's name says already
            key for key in own if len({o.get(key) for o in alike if key in o or key.startswith("data.")}) > 1
        ]
        titles.append(", ".join([name, *(own[key] for key in telling[:3])]))
    for what in ("partition", "data"):
        hashes: dict[str, set[str]] = {}
        for title, run in zip(titles, runs, strict=True):
            hashes.setdefault(title, set()).add(getattr(run.result, what).hash)
        word = {"partition": "cut", "data": "data"}[what]
        titles = [
            f"{title}, {word} {short_hash(getattr(run.result, what).hash)[:6]}" if len(hashes[title]) > 1 else title
            for title, run in zip(titles, runs, strict=True)
        ]
    return _number_repeats(titles)


def distinct_labels(runs: Sequence[Run], groups: Sequence[Sequence[int]] | None = None) -> list[str]:
    """Method names; where two runs share one, the settings that tell them apart, else the folder's name, is added.

    Args:
        runs: What is compared.
        groups: Positions of the runs within which labels must differ, all by default. What tells questions apart is
            no part of a label, so that a method has the same one in every group.
    """
    several = groups is not None and len(groups) > 1
    places = groups or [range(len(runs))]
    titles = [run.result.method.title for run in runs]
    labels = list(titles)
    for title in set(titles):
        if all([titles[place] for place in group].count(title) < 2 for group in places):
            continue
        mine = [position for position, other in enumerate(titles) if other == title]
        flat = [
            {
                key: value
                for key, value in _settings(runs[position]).items()
                if not (several and key.split(".")[0] in (*_BY_CONTENT, *_ASKED))
            }
            for position in mine
        ]
        keys = dict.fromkeys(key for settings in flat for key in settings)
        telling = [key for key in keys if _differ(key, [settings.get(key, _UNSET) for settings in flat])]
        for position, settings in zip(mine, flat, strict=True):
            if 0 < len(telling) <= 2:
                parts = [
                    f"{key.removesuffix('.name').rsplit('.', 1)[-1]} {_format_setting(settings.get(key, _UNSET))}"
                    for key in telling
                    if key in settings or key != _TOP_SHARE
                ]
                labels[position] = f"{title} ({', '.join(parts)})"
            elif telling or not several:
                labels[position] = f"{title} ({runs[position].path.resolve().name})"
    for group in places:
        for place, label in zip(group, _number_repeats([labels[place] for place in group]), strict=True):
            labels[place] = label
    return labels


def _number_repeats(names: Sequence[str]) -> list[str]:
    """The same, with a number behind those that are there twice."""
    return [
        f"{name} [{list(names[: place + 1]).count(name)}]" if list(names).count(name) > 1 else name
        for place, name in enumerate(names)
    ]


def with_shared_clients(runs: Sequence[Run], labels: Sequence[str]) -> tuple[list[Run], list[str], list[str]]:
    """Where runs were scored on different clients: scores over those that all of them have, seed by seed.

    A mean over other clients is that of other test items: nothing could be said about its difference.

    Returns:
        The runs; a note that says so; or a warning where no client is common to all, so that nothing can be compared.
    """
    who = [_find_scored_clients(run) for run in runs]
    part = [run.config.get("evaluation", {}).get("share", 1.0) for run in runs]
    absent = [f"without {left}" if (left := absent_clients(run.result.partition)) else "all clients" for run in runs]
    by_seed = {seed: [of[seed] for of in who if seed in of] for of in who for seed in of}
    told = {seed: [clients for clients in each if clients is not None] for seed, each in by_seed.items()}
    is_told = all(len(told[seed]) == len(each) for seed, each in by_seed.items())
    if all(len(set(each)) < 2 for each in told.values()) and (is_told or len(set(zip(absent, part, strict=True))) < 2):
        return list(runs), [], []
    words = [
        f"{left}, evaluation.share {share:g}" if share < 1 and len(set(part)) > 1 else left
        for left, share in zip(absent, part, strict=True)
    ]
    what = "takes part" if len(set(part)) == 1 and len(set(absent)) > 1 else "is scored"
    text = f"who {what} differs" + (f" ({_format_distinct(labels, words)})" if len(set(words)) > 1 else "")
    common = {seed: frozenset.intersection(*each) if each else frozenset() for seed, each in told.items()}
    if not is_told or not all(common.values()):
        return list(runs), [], [f"The runs are not comparable: {text}, and no clients are known to be scored in all."]
    fewest, most = min(map(len, common.values())), max(map(len, common.values()))
    count = f"{most} client{'' if most == 1 else 's'}" if fewest == most else f"{fewest} to {most} clients"
    each = "" if len(set(common.values())) == 1 else ", others in each seed"
    said = f"{text[:1].upper()}{text[1:]}: scores are node-weighted means over the {count} that all runs have{each}."
    return [_restrict(run, common) for run in runs], [said], []


def _find_scored_clients(run: Run) -> dict[int, frozenset[int] | None]:
    """Seed to the clients that have test scores of their own; None where the sums of all are known alone."""
    found = {seed.seed: frozenset(row.client for row in seed.clients if row.test.metrics) for seed in run.seeds}
    return {seed: clients or None for seed, clients in found.items()}


def _restrict(run: Run, clients: Mapping[int, Collection[int]]) -> Run:
    """A run with test scores over some clients of each seed; metrics that no client has by itself are left out."""
    seeds = []
    for seed in run.seeds:
        rows = [row for row in seed.clients if row.client in clients[seed.seed]]
        test: dict[str, float | list[float | None] | None] = {}
        for name in run.metrics():
            pairs = [(row.weight or row.nodes, row.test.numbers.get(name)) for row in rows]
            known = [(size, score) for size, score in pairs if size is not None and score is not None]
            if known:
                test[name] = sum(size * score for size, score in known) / sum(size for size, _ in known)
        # Other views, and the curves, are of all its clients: what is not comparable is left out
        rounds = [structs.replace(row, validation=None, test=None, modes=None) for row in seed.rounds]
        alone = Scores(test, BesideScores())
        bare = structs.replace(seed, test=alone, modes={}, reported=None, scenarios={}, clients=rows, rounds=rounds)
        seeds.append(bare)
    return replace(run, result=structs.replace(run.result, seeds=seeds))


def compare_settings(
    runs: Sequence[Run], labels: Sequence[str], *, as_reported: bool = True
) -> tuple[list[str], list[str]]:
    """Sentences on what makes runs incomparable, and on settings that differ beside the method.

    Args:
        runs, labels: What is compared.
        as_reported: Whether a column shows what each run reports, on whatever test items that is.
    """
    if len(runs) < 2:
        return [], []
    warnings, notes, differing = [], [], set()
    originals = _originals(runs)
    checks: list[tuple[str, list[Any]]] = [
        ("data", [_data_identity(run) for run in originals]),
        ("partition", [_partition_identity(run) for run in originals]),
        ("seeds", [", ".join(map(str, sorted(run.seed_names))) for run in runs]),
        ("scenario", [run.scenario for run in runs]),
    ]
    if as_reported:
        of_all = [run.modes[0].endswith("_global") for run in runs]
        checks.append(("test items", ["those of all clients" if each else "each client's own" for each in of_all]))
    for what, values in checks:
        if len({repr(value) for value in values}) > 1:
            differing.add(what)
            warnings.append(f"The runs are not comparable: {what} differ ({_format_distinct(labels, values)}).")
    flat = [_settings(run) for run in runs]
    for key in dict.fromkeys(key for settings in flat for key in settings):
        section = key.split(".")[0]
        asked = [not key.startswith(_BACKBONE) or run.result.method.backbone for run in runs]
        values = [settings.get(key, _UNSET) for settings, is_asked in zip(flat, asked, strict=True) if is_asked]
        if not _differ(key, values):
            continue
        if (section in _BY_CONTENT and key not in _SCALING) or key == _SHARE:
            continue
        if section == "method" and key.removeprefix("method.") not in _SCHEDULE:
            continue
        if section in ("method", "model") and _UNSET in values:  # only one of two methods or backbones has it
            continue
        sentence = f"{key} differs ({_format_distinct(list(compress(labels, asked)), values)})."
        if section not in _ASKED:
            notes.append(sentence)
        elif section not in differing:
            warnings.append(f"The runs may not be comparable: {sentence}")
    scored = [MODES.get(run.reported, run.reported) for run in runs]
    if as_reported and len(set(scored)) > 1:
        notes.append(f"Whose model is scored differs ({_format_distinct(labels, scored)}).")
    if len({run.result.fingerprint for run in runs}) < len(runs):
        notes.append("Some runs have the same fingerprint: nothing on which a score depends differs between them.")
    return warnings, notes


def _originals(runs: Sequence[Run]) -> list[Run]:
    """Each run, or the one among them that it repeats with other clients."""
    found = {run.result.fingerprint: run for run in runs if run.result.replaces is None}
    for run in runs:
        found.setdefault(run.result.replaces or run.result.fingerprint, run)
    return [found[run.result.replaces or run.result.fingerprint] for run in runs]


def _task_identity(run: Run) -> str:
    flat = {**flatten(run.config), "task": run.result.task}  # said or not, it is the same task
    return repr(sorted((key, repr(value)) for key, value in flat.items() if key.split(".")[0] in _ASKED))


def _format_distinct(labels: Sequence[str], values: Sequence[Any]) -> str:
    """``A, B: 10; C: 20``, shortened when there are many values."""
    groups: dict[str, list[str]] = {}
    for label, value in zip(labels, values, strict=True):
        groups.setdefault(_format_setting(value), []).append(label)
    parts = [f"{', '.join(who)}: {value}" for value, who in groups.items()]
    return "; ".join(parts) if len(parts) <= 6 else "; ".join(parts[:6]) + f"; and {len(parts) - 6} more"


def _data_identity(run: Run) -> str:
    data = run.result.data
    counts = (f"{data.nodes} nodes", f"{data.edges} edges", f"{data.features} features", data.outputs)
    return ", ".join((data.name, *filter(None, counts), f"hash {short_hash(data.hash)}"))


def _partition_identity(run: Run) -> str:
    partition = run.result.partition
    return f"{partition.rule} {partition.clients}, hash {short_hash(partition.hash)}"


def _settings(run: Run) -> dict[str, Any]:
    """Settings that may tell runs apart, by dotted name."""
    flat = {
        key: value[0] if isinstance(value, list) and len(value) == 1 else value  # [64] is 64
        for key, value in flatten(run.config).items()
        if key not in _FREE
    }
    if "method.rounds" in flat:
        flat["method.rounds"] = run.result.method.rounds  # those that it had: some methods have one, whatever is set
    if flat.get("run.compression") != "topk":
        flat.pop(_TOP_SHARE, None)
    return flat if run.result.method.backbone else {key: flat[key] for key in flat if not key.startswith(_BACKBONE)}


def _differ(key: str, values: Sequence[Any]) -> bool:
    """Whether a setting differs. That one run alone has a share of topk, its compression says already."""
    told = [value for value in values if value != _UNSET] if key == _TOP_SHARE else values
    return len({repr(value) for value in told}) > 1


def _format_setting(value: Any) -> str:
    """As a person would set it."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
