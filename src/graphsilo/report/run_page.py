"""What the page of one run says: its sections."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from graphsilo.evaluate.metrics import GROUPS, METRICS, group_f1, metric_of, select_main
from graphsilo.federation import registry
from graphsilo.report import clients, curves, figures, glossary, kernel, studies, tables
from graphsilo.report.exchange import cost_blocks, ledger_blocks
from graphsilo.report.finding import finding
from graphsilo.report.formats import (
    MISSING,
    MODES,
    REFERENCES,
    Spread,
    absent_clients,
    bar_width,
    describe_share,
    explain_targets,
    integer,
    join_words,
    many,
    percent,
    plus_minus,
    reference_title,
    spread,
    when_scored,
    words,
)
from graphsilo.report.headline import headline
from graphsilo.report.periods import period_blocks
from graphsilo.report.plot import present
from graphsilo.report.rare import rare_blocks
from graphsilo.report.record import Pick, Run, flatten
from graphsilo.report.sections import (
    SELF_CONTAINED,
    Block,
    Page,
    Section,
    Table,
    add_heading,
    code,
    pair_figures,
    warn_of,
    with_bar,
)
from graphsilo.types import TARGET_TASKS

RULES = {"silos": "each silo its own data", "files": "as the files say"}
"""Rules that are no partition's names."""
SCENARIOS = {"seen": "Seen graph", "open": "Open set"}
"""What is asked at test time, where its key says too little."""


def describe(run: Run) -> Page:
    """Everything the page of a run shows."""
    found, head = finding(run), headline(run)
    several = len(run.seeds) > 1
    over = ", mean ± standard deviation over seeds" if head["std"] else ""
    sections = [
        Section("result", "", [("hero", head), ("tiles", head["tiles"]), warn_of(_warnings(run))], "Result"),
        Section("gains", "Silo by silo: alone and together", clients.gain_blocks(run, found), "Silo by silo"),
        Section("readings", "Read in other ways", _readings(run, over), "Read in other ways"),
        Section("curves", "Curves", pair_figures("curves", curves.curves(run)), "Curves"),
        Section("clients", "Clients", clients.blocks(run), "Clients"),
        Section("classes", "Classes and groups", _classes(run, ", ± over seeds" if over else ""), "Classes and groups"),
        Section("rare", "The class looked for", rare_blocks(run), "The class looked for"),
        Section("periods", "As time goes on", period_blocks(run), "As time goes on"),
        Section("targets", "Targets", _targets(run, ", ± over seeds" if over else ""), "Targets"),
        Section("partition", "Partition", _partition(run), "Partition"),
        Section("study", "Inner workings", [*study_of(run), *_kernel(run)], "Inner workings"),
        Section("ledger", "What left each silo", ledger_blocks(run), "What left each silo"),
        Section("cost", "Cost", cost_blocks(run), "Cost"),
    ]
    there = {section.id for section in sections if any(value for _, value in section.blocks)}
    words_ = glossary.explain_terms([
        *run.metrics(),
        *(name for name in _OF_RARE if run.spread(name) is not None),
        *(["plus_minus"] if several else []),
        *(["interval"] if several and "gains" in there else []),
        *(["own", "common"] if run.others else []),
        *(["homophily"] if any(holder.homophily is not None for holder in run.result.partition.per_client) else []),
        "pooled",
        *(["gap"] if run.result.gap_closed else []),
    ])  # fmt: skip
    return Page(
        f"{run.result.method.title} on {run.result.data.name}",
        "graphsilo run report",
        [
            ("finding", found.sentence),
            ("certainty", found.certainty),
            ("certainty", found.missing),
            ("lede", f"{sentence(run)} {explain_targets(run.result)}".rstrip()),
        ],
        [
            *sections,
            Section("words", "What the words mean", [("words", words_)], "Words"),
            Section("settings", "Settings and environment", _settings(run), "Settings"),
        ],
        footer=f"Numbers are recomputed from the seeds in result.json. {SELF_CONTAINED}",
        glossary=words_,
    )


_OF_RARE = ("precision_at_budget", "threshold_f1", "brier", "calibration_error")
"""Scores whose words are explained where there are some; they are no main ones."""
_COVER = "Each item at one client"
_BEFORE = "All this is from before the scenario takes each client's missing classes away."


def sentence(run: Run) -> str:
    """What was run, in one sentence."""
    data, partition = run.result.data, run.result.partition
    absent = absent_clients(partition)
    graphs = "" if data.graphs is None else f"{integer(data.graphs)} graphs, "
    outputs = f", {data.outputs}" if data.outputs else ""
    text = (
        f"{run.result.method.title}{_describe_model(run)} on {data.name} ({graphs}{integer(data.nodes)} nodes, "
        f"{integer(data.edges)} edges{outputs}), held by {many(partition.clients - len(partition.without), 'silo')} "
        f"({_describe_cut(run)}{f', without {absent}' if absent else ''}), for {_describe_rounds(run)}"
    )
    if run.scenario != "seen":
        text += f", scenario {run.scenario}"
    seeds = run.seed_names
    text += (
        f", {'seed' if len(seeds) == 1 else 'seeds'} {join_words(map(str, seeds)) if len(seeds) <= 6 else len(seeds)}"
    )
    part = " at some of the silos" if describe_share(run.result) else ""
    return f"{text}; scored: the {MODES.get(run.reported, run.reported)}{part}."


def _describe_rounds(run: Run) -> str:
    """How many there were, and how many there might have been."""
    planned, had = run.result.method.rounds, sorted({len(seed.rounds) for seed in run.seeds if seed.rounds})
    if had in ([], [planned]):
        return many(planned, "round")
    return f"{' to '.join(map(str, dict.fromkeys((had[0], had[-1]))))} of at most {many(planned, 'round')}"


def _describe_cut(run: Run) -> str:
    """Who holds the data: silos by name, or the rule by which one data set was cut."""
    named = list(run.names.known.values())
    if not named:
        return f"partition {run.result.partition.rule}"
    return join_words(named) if len(named) <= 8 else "each with its own data"


def _describe_model(run: Run) -> str:
    """Which model, or which models where clients have different ones."""
    if not run.result.method.backbone:
        return ""
    model = run.config["model"]
    if pool := model["pool"]:
        names = [item["name"] if isinstance(item, Mapping) else item for item in pool]
        kinds = join_words(_model_title(str(name)) for name in dict.fromkeys(names))
        return f" trained {kinds} models, one kind per client,"
    return f" trained {_with_article(_model_title(model['name']))}"


def _model_title(name: str) -> str:
    return name.upper() if len(name) <= 4 or name.lower() in ("gamlp", "gcnii") else words(name)


def _with_article(name: str) -> str:
    """Abbreviations are spelled by letter: "an SGC", "a GCN"."""
    vowels = "AEFHILMNORSX" if name.isupper() and name not in ("SAGE", "GIN") else "AEIO"
    return f"{'an' if name[:1] in vowels else 'a'} {name}"


def _warnings(run: Run) -> list[str]:
    found = [*run.result.warnings, *run.problems]
    if len(run.seeds) == 1:
        found.append("One seed: the score is a number without a spread, and no claim can rest on it.")
    return found


def _readings(run: Run, over: str) -> list[Block]:
    """The same run read in other ways: last round, other model, other average; and its scenarios."""
    names = select_main(run.metrics(), run.main_metric)
    whose = MODES.get(run.reported, run.reported)
    pooled = "the scored clients'" if describe_share(run.result) else "all clients'"
    picks: list[tuple[str, Pick]] = [
        (f"Reported: {whose}, round chosen by validation", lambda seed: seed.test),
        ("Last round", lambda seed: seed.test_last),
        ("Validation at the chosen round", lambda seed: seed.validation),
        (f"Pooled: {pooled} items as one set", lambda seed: seed.test.beside.pooled),
    ]
    for mode in run.others:
        title = MODES.get(mode, words(mode))
        picks.append((f"{title[:1].upper()}{title[1:]}", partial(lambda mode, seed: seed.modes[mode].test, mode)))
    rows = [(title, [run.spread(name, pick) for name in names]) for title, pick in picks]
    known = [row for row in rows if any(score is not None for score in row[1])]
    asked, scored = _scenarios(run)
    scenarios = _score_table(asked, scored, "Asked at test time", f"Test scores in percent{over}.")
    return [
        ("table", _score_table(known, names, "The same run", f"{_unit(names)}{over}.")),
        *add_heading("Scenarios", [("table", scenarios if asked and scored else None)]),
    ]


_Scored = list[tuple[str, list[Spread | None]]]


def _scenarios(run: Run) -> tuple[_Scored, list[str]]:
    """Scores of what was asked at test time, those of reference rows among them, and their metrics."""
    keys = list(dict.fromkeys(key for seed in run.seeds for key in seed.scenarios))
    picks: dict[str, Pick] = {key: partial(lambda key, seed: seed.scenarios.get(key), key) for key in keys}
    names = select_main(name for pick in picks.values() for name in run.metrics(pick))
    rows: _Scored = []
    for key, pick in picks.items():
        title = SCENARIOS.get(key, words(key))
        rows.append((title, [run.spread(name, pick) for name in names]))
        for reference in REFERENCES:
            named = reference_title(reference, run.result.method.title)
            scores = [tables.reference_spread(run, reference, name, key) for name in names]
            if any(score is not None for score in scores):
                rows.append((f"{title}, {named}", scores))
    return rows, names


def _unit(names: Sequence[str]) -> str:
    return "Percent" if any(metric_of(name).is_share for name in names) else "Test scores"


def _score_table(rows: _Scored, names: Sequence[str], first: str, caption: str) -> Table:
    columns = [(first, "wrap"), *((metric_of(name).title, "") for name in names)]
    return Table(caption, columns, [(title, *map(plus_minus, scores, names)) for title, scores in rows], False)


def _classes(run: Run, over: str) -> list[Block]:
    """Confusion and F1 of each class, and the groups of test items."""
    names = run.class_names
    rows: list[tuple[Any, ...]] = []
    for name, each in METRICS.items():
        if each.counts is not group_f1:
            continue
        title, meaning = GROUPS[each.group]
        score = run.spread(name)
        if each.group != "all" and score is None and not any(name in seed.test.metrics for seed in run.seeds):
            continue
        pooled = plus_minus(run.spread(name, lambda seed: seed.test.beside.pooled), name)
        text = "no such items" if score is None else plus_minus(score, name)
        rows.append((title, meaning, with_bar(text, bar_width(None if score is None else score.mean)), pooled))
    columns = [("Group", ""), ("Which items", "text wrap"), ("F1", ""), ("Pooled", "")]
    shown = len(columns) if any(row[-1] != MISSING for row in rows) else len(columns) - 1
    as_one_set = not any(row.test.metrics for seed in run.seeds for row in seed.clients)  # only sums are known
    how = "all silos' items as one set" if as_one_set else "node-weighted mean over clients"
    caption = f"Macro-F1 per group of test items, in percent: {how}{over}."
    groups = Table(caption, columns[:shown], [row[:shown] for row in rows], False) if len(rows) > 1 else None
    decided = run.spread("threshold_recall") is not None
    confusion = figures.confusion(_sum_confusions(run), names, when_scored(run.seeds), decided=decided)
    return [
        ("wide", present(confusion, figures.per_class(f1_of_classes(run), names, as_one_set=as_one_set))),
        *add_heading("Group fairness", [("table", groups)]),
    ]


def _targets(run: Run, over: str) -> list[Block]:
    """Scores of each of several targets, or labels."""
    lists = {
        each.name: [seed.test.per_class(each.name) for seed in run.seeds]
        for each in METRICS.values()
        if each.per_class and set(each.tasks) <= set(TARGET_TASKS)
    }
    cells = {
        name: [plus_minus(spread(values), name) for values in zip(*filter(None, found), strict=True)]
        for name, found in lists.items()
        if all(found)
    }
    if not cells:
        return []
    count = len(next(iter(cells.values())))
    names = run.class_names or [str(number) for number in range(count)]
    columns = [("Target", "wrap"), *((metric_of(name).title, "") for name in cells)]
    rows = [(names[place], *(column[place] for column in cells.values())) for place in range(count)]
    what = "target by itself, errors in its own unit" if run.result.task == "regression" else "label by itself"
    caption = f"Each {what}: node-weighted mean over clients{over}."
    return [("table", Table(caption, columns, rows, False))]


def _partition(run: Run) -> list[Block]:
    partition = run.result.partition
    clients = partition.per_client
    facts = [("Rule", RULES.get(partition.rule, partition.rule)), ("Clients", integer(partition.clients))]
    if absent := absent_clients(partition):
        facts.append(("Left out", absent))
    if partition.seed is not None:
        facts.append(("Seed", str(partition.seed)))
    if partition.bounds:
        facts.append(("Divided by time", partition.bounds))
    for key, title, shape in (
        ("nodes", "Nodes per client", integer),
        ("train", "Training items per client", integer),
        ("mean_degree", "Mean degree", lambda value: f"{value:.1f}"),
        ("homophily", "Homophily", lambda value: f"{value:.2f}"),
    ):
        values = [value for holder in clients if (value := getattr(holder, key)) is not None]
        if values:
            low, high = shape(min(values)), shape(max(values))
            facts.append((title, low if low == high else f"{low} to {high}"))
    if partition.is_disjoint_cover:
        facts.append((_COVER, "yes"))
    elif partition.is_disjoint_cover is not None:
        flaws = (
            (partition.duplicates, "copies"),
            ((partition.missing or 0) - (partition.held_out or 0), "at no client"),
            (partition.held_out, "held out by the scenario"),
        )
        facts.append((_COVER, join_words(f"{integer(count)} {what}" for count, what in flaws if count) or "no"))
    for key, title in (("isolated", "Nodes without an edge"), ("components", "Connected components")):
        values = [value for holder in clients if (value := getattr(holder, key)) is not None]
        if values:
            facts.append((title, integer(sum(values))))
    if run.result.data.targets is None and any(holder.missing_classes is not None for holder in clients):
        lacking = sum(bool(holder.missing_classes) for holder in clients)
        facts.append(("Clients that miss a class", f"{integer(lacking)} of {integer(len(clients))}"))
    share = partition.kept_share
    edges = share is not None and {
        "kept": integer(partition.kept_edges),
        "cut": integer(partition.cut_edges),
        "kept_share": percent(share),
        "cut_share": percent(1 - share),
    }
    labels = figures.label_map(partition, run.class_names, run.names)
    return [
        ("panel", {"facts": facts, "edges": edges}),
        ("wide", present(labels, figures.homophily(partition))),
        ("note", _BEFORE if partition.held_out else ""),
    ]


def study_of(run: Run) -> list[Block]:
    """What the method's clients keep about themselves."""
    if not run.study:
        return []
    method = registry.listing(run.result.method.name)
    return [
        ("note", "What the clients reported to the researcher at this machine, with the last models of the first seed. "
         "None of it was in a message."),
        ("table", studies.table(run.study, method.choices if method else {})),
        *pair_figures("study", studies.draw_study(run.study, run.class_names)),
    ]  # fmt: skip


def _kernel(run: Run) -> list[Block]:
    """The bound that ``graphsilo gntk`` found for this run."""
    if not run.kernel:
        return []
    return add_heading("Kernel bound", [
        ("note", kernel.summary(run.kernel)),
        ("table", kernel.table(run.kernel)),
        ("pair", present(kernel.figure(run.kernel))),
    ])  # fmt: skip


def _sum_confusions(run: Run) -> list[list[int]]:
    """Confusion counts summed over the seeds."""
    tables = [seed.confusion for seed in run.seeds if seed.confusion is not None]
    return [[sum(cells) for cells in zip(*rows, strict=True)] for rows in zip(*tables, strict=True)]


def f1_of_classes(run: Run) -> list[Spread | None]:
    """F1 of each class, mean over clients, over seeds."""
    lists = [seed.per_class_f1 for seed in run.seeds if seed.per_class_f1 is not None]
    return [spread(values) for values in zip(*lists, strict=True)]


def _settings(run: Run) -> list[Block]:
    said = [(code(key), _setting_text(value)) for key, value in flatten(run.config).items()]
    columns = [("Setting", ""), ("Value", "text wrap")]
    table = Table("Complete configuration, defaults written out", columns, said)
    return [("folded", (f"All {len(said)} settings", table, False)), ("lines", _environment(run))]


def _setting_text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_setting_text, value)) or "empty list"
    if isinstance(value, Mapping):
        return "empty" if not value else json.dumps(value)
    return str(value)


def _environment(run: Run) -> list[tuple[str, str]]:
    environment = run.result.environment
    names = ("graphsilo", "python", "torch", "platform", "device")
    facts = [(name if name == "graphsilo" else words(name), getattr(environment, name)) for name in names]
    facts.append(("Fingerprint", run.result.fingerprint))
    if run.result.replaces:
        facts.append(("Replaces the run with fingerprint", run.result.replaces))
    return [*facts, ("Partition hash", run.result.partition.hash), ("Method", run.result.method.citation)]
