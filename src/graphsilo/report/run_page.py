"""What the page of one run says, as plain values and text; the template only lays it out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphsilo.evaluate.metrics import GROUPS, METRICS, group_f1, main_ones, metric_of, ordered
from graphsilo.report import curves, figures, kernel, studies, tables
from graphsilo.report.exchange import CLIENT_ROWS, cost_section, ledger_section
from graphsilo.report.formats import (
    MISSING,
    MODES,
    NOT_RECORDED,
    REFERENCES,
    Spread,
    absent_clients,
    bar_width,
    data_size,
    duration,
    in_sentence,
    integer,
    listed,
    mean,
    metric,
    number,
    percent,
    plus_minus,
    references_explained,
    short_hash,
    sortable,
    spread,
    with_unit,
    words,
)
from graphsilo.report.plot import Figure, choices, present
from graphsilo.report.record import NOT_METRICS, Context, Run, dig, flatten, mapping, records

FIRST_ROWS = 20
"""Rows shown before the reader asks for all."""
SCENARIOS = {
    "seen": "Seen graph",
    "missing_class": "Missing class",
    "unseen_node": "Unseen node",
    "new_client": "New client",
    "open": "Open set",
    "inductive": "Inductive",
}


def describe(run: Run) -> tuple[Context, list[Figure]]:
    """Everything the page of a run shows, and its figures."""
    rows = _client_rows(run)
    class_names = run.result.get("class_names")
    names = [str(name) for name in class_names] if isinstance(class_names, list) else None
    partition = run.section("partition")
    study, study_drawn = studies.describe(run.study, names) if run.study else (None, [])
    bound, bound_drawn = kernel.describe(run.kernel) if run.kernel else (None, [])
    drawn = {
        "curves": curves.curves(run),
        "partition": present(figures.label_map(partition, names), figures.homophily(partition)),
        "clients": present(figures.client_scores(rows, run.main_metric)),
        "classes": present(figures.confusion(_pooled_confusion(run), names), figures.per_class(_per_class(run), names)),
        "ledger": present(figures.kinds(run.ledger), figures.uploads(run.ledger)) if run.ledger else [],
        "cost": curves.round_cost(run),
        "study": study_drawn,
        "kernel": bound_drawn,
    }
    context: Context = {
        "title": f"{run.method_title} on {run.data_name}",
        "headline": _headline(run),
        "warnings": _warnings(run),
        "readings": _readings(run),
        "scenarios": _scenarios(run),
        "clients": _clients(run, rows),
        "partition": _partition(partition),
        "fairness": _fairness(run),
        "study": study,
        "kernel": bound,
        "ledger": ledger_section(run.ledger, len(run.seeds)),
        "ledger_missing": run.ledger is None,
        "pooled": _pools_data(run),
        "cost": cost_section(run),
        "settings": _settings(run.config),
        "environment": _environment(run),
        "drawn": drawn,
        "metric_choices": choices(drawn["curves"]),
    }
    return context, [figure for group in drawn.values() for figure in group]


def _pools_data(run: Run) -> bool:
    """Whether the method is the centralised reference, which works on all silos' data in one place."""
    method = run.section("method")
    return method.get("pooled") is True or method.get("name") == "global"


def _headline(run: Run) -> Context:
    name = run.main_metric
    score = run.spread("test", name)
    return {
        "sentence": sentence(run),
        "metric": metric_of(name).title,
        "unit": "%" if metric_of(name).is_share else "",
        "mean": MISSING if score is None else metric(score.mean, name),
        "std": None if score is None or score.std is None else metric(score.std, name),
        "explained": _headline_note(run, score),
        "references": _reference_table(run),
        "tiles": _tiles(run),
    }


def _headline_note(run: Run, score: Spread | None) -> str:
    seeds = run.seed_names
    if score is None:
        return "no test score recorded"
    over = f"mean ± standard deviation over {score.count} seeds" if score.std is not None else f"one seed ({seeds[0]})"
    chosen = [int(value) for value in run.values("best_round") if value is not None]
    when = f", at the round that validation chose ({listed(map(str, chosen))})" if chosen else ""
    if len(chosen) > 5:
        when = f", at the rounds that validation chose ({min(chosen)} to {max(chosen)})"
    return f"test, {over}{when}"


def sentence(run: Run) -> str:
    """What was run, in one sentence; parts that were not recorded are left out."""
    data, partition = run.section("data"), run.section("partition")
    text = f"{run.method_title}{_trained(run)}"
    sizes = [
        f"{integer(data[key])} {key}" for key in ("nodes", "edges", "classes") if number(data.get(key)) is not None
    ]
    text += f" on {run.data_name}" + (f" ({', '.join(sizes)})" if sizes else "")
    clients = number(partition.get("clients")) or number(run.setting("clients", "num_clients"))
    rule = partition.get("rule") or run.setting("partition", "rule")
    if clients is not None:
        text += f", held by {integer(clients)} {'silo' if clients == 1 else 'silos'}"
        absent = absent_clients(partition)
        without = f", without {absent}" if absent else ""
        text += f" (partition {rule}{without})" if isinstance(rule, str) else without
    rounds = number(run.section("method").get("rounds")) or number(run.setting("rounds"))
    if rounds is None:
        ran = [len(records(seed.get("rounds"))) for seed in run.seeds]
        rounds = max(ran) if any(ran) else None
    if rounds is not None:
        text += f", for {integer(rounds)} {'round' if rounds == 1 else 'rounds'}"
    scenario = tables.scenario_name(run)
    if scenario is not None and scenario not in ("seen", "none"):
        text += f", scenario {scenario}"
    seeds = run.seed_names
    text += f", {'seed' if len(seeds) == 1 else 'seeds'} {listed(map(str, seeds)) if len(seeds) <= 6 else len(seeds)}"
    if run.modes:
        text += f"; scored: the {MODES.get(run.modes[0], run.modes[0])}"
    return f"{text}."


def _trained(run: Run) -> str:
    """Which model, or which models where clients have different ones."""
    if run.section("method").get("backbone") is False:
        return ""
    model = run.config.get("model")
    pool = mapping(model).get("pool")
    if isinstance(pool, list) and pool:
        names = [mapping(item).get("name") if isinstance(item, Mapping) else item for item in pool]
        return (
            f" trained {listed(_model_title(str(name)) for name in dict.fromkeys(names))} models, one kind per client,"
        )
    name = model if isinstance(model, str) else mapping(model).get("name")
    return f" trained {_with_article(_model_title(name))}" if isinstance(name, str) and name else ""


def _model_title(name: str) -> str:
    return name.upper() if len(name) <= 4 or name.lower() in ("gamlp", "gcnii") else words(name)


def _with_article(name: str) -> str:
    """Abbreviations are spelled by letter: "an SGC", "a GCN"."""
    vowels = "AEFHILMNORSX" if name.isupper() and name not in ("SAGE", "GIN") else "AEIO"
    return f"{'an' if name[:1] in vowels else 'a'} {name}"


def _reference_table(run: Run) -> Context | None:
    """Local, this run, global: values per metric, and a dot on one common axis for the main metric."""
    main = run.main_metric
    names = [name for name in run.metrics() if name == main or metric_of(name).selects][:3]
    rows: list[tuple[str, dict[str, Spread | None], bool]] = [
        (title, {name: tables.reference_spread(run, key, name) for name in names}, False)
        for key, title in REFERENCES.items()
        if any(tables.reference_spread(run, key, name) is not None for name in names)
    ]
    if not rows or not names:
        return None
    keys = [key for key, title in REFERENCES.items() if any(title == shown for shown, _, _ in rows)]
    place = int("local" in keys)
    rows.insert(place, (run.method_title, {name: run.spread("test", name) for name in names}, True))
    reach = [
        edge
        for _, scores, _ in rows
        if (score := scores.get(main)) is not None
        for edge in (score.mean - (score.std or 0), score.mean + (score.std or 0))
    ]
    low, high = (min(reach), max(reach)) if reach else (0.0, 1.0)
    pad = 0.08 * (high - low) or 0.01
    low, high = low - pad, high + pad

    def at(value: float) -> str:
        return f"{100 * (value - low) / (high - low):.2f}"

    lines = []
    for title, scores, own in rows:
        score = scores.get(main)
        dot = None
        if score is not None:
            width = 200 * (score.std or 0) / (high - low)
            dot = {"at": at(score.mean), "from": at(score.mean - (score.std or 0)), "width": f"{width:.2f}"}
        cells = [plus_minus(scores[name], name) for name in names]
        lines.append({"title": title, "own": own, "dot": dot, "cells": cells})
    gaps = [(name, tables.run_gap(run, name)) for name in names]
    told = [f"{percent(gap, 0)} % in {in_sentence(name)}" for name, gap in gaps if gap is not None]
    return {
        "metric": in_sentence(main),
        "columns": [f"{each.title}, %" if each.is_share else each.title for each in map(metric_of, names)],
        "rows": lines,
        "gap_sentence": f"Of the gap between local and global, this run closes {listed(told)}." if told else None,
        "explained": references_explained(keys),
        "axis": [metric(low, main), metric(high, main)],
    }


def _tiles(run: Run) -> list[tuple[str, str]]:
    tiles: list[tuple[str, str]] = []
    for name in run.metrics():
        if name != run.main_metric and len(tiles) < 2:
            tiles.append((metric_of(name).title, with_unit(run.spread("test", name), name)))
    worst = spread(_worst(run))
    if worst is not None:
        tiles.append((f"Worst client, {in_sentence(run.main_metric)}", with_unit(worst, run.main_metric)))
    up, down = (tables.total_bytes(run, key) for key in ("upload_bytes", "download_bytes"))
    tiles.append(("Sent for training, per seed", NOT_RECORDED if up is None else data_size(up)))
    tiles.append(("Received for training, per seed", NOT_RECORDED if down is None else data_size(down)))
    cpu = mean(run.values("cpu_seconds"))
    tiles.append(("CPU time, per seed", NOT_RECORDED if cpu is None else duration(cpu)))
    return tiles


def _worst(run: Run) -> list[float | None]:
    """The worst client's score per seed: as recorded, else the least of the clients' scores."""
    name, found = run.main_metric, []
    for seed in run.seeds:
        value = number(dig(seed, "test", "worst_client", name))
        if value is None:
            scores = [number(dig(row, "test", name)) for row in records(seed.get("clients"))]
            known = [score for score in scores if score is not None]
            value = (min if metric_of(name).higher_is_better else max)(known) if known else None
        found.append(value)
    return found


def _warnings(run: Run) -> list[str]:
    recorded = run.result.get("warnings")
    found = [str(text) for text in recorded] if isinstance(recorded, list) else []
    found += run.problems
    failed = 0
    for seed in run.seeds:
        for row in records(seed.get("rounds")):
            failures = row.get("failures")
            failed += len(failures) if isinstance(failures, list | dict) else int(number(failures) or 0)
    if failed:
        found.append(
            f"{integer(failed)} client steps failed over all rounds and seeds; the method went on without them."
        )
    if len(run.seeds) == 1:
        found.append("One seed: the score is a number without a spread, and no claim can rest on it.")
    return found


def _readings(run: Run) -> Context | None:
    """The same run read in other ways: last round, other model, other average."""
    names = main_ones(run.metrics())
    rows: list[tuple[str, list[Spread | None]]] = []

    def add(title: str, *keys: str) -> None:
        scores = [run.spread(*keys, name) for name in names]
        if any(score is not None for score in scores):
            rows.append((title, scores))

    reported = run.modes[0] if run.modes else ""
    whose = f"{MODES.get(reported, reported)}, " if reported else ""
    add(f"Reported: {whose}round chosen by validation", "test")
    add("Last round", "test_last")
    add("Validation at the chosen round", "validation")
    add("Pooled: all clients' items as one set", "test", "pooled")
    add("Clients' own models", "views", "own", "test")
    add("Aggregate", "views", "aggregate", "test")
    for mode in run.modes:
        title = MODES.get(mode, words(mode))
        title = f"{title[:1].upper()}{title[1:]}"
        add(title, "modes", mode)
        if mode != reported:
            add(title, "modes", mode, "test")
    if len(rows) < 2:
        return None
    return {"columns": [metric_of(name).title for name in names], "rows": _score_rows(rows, names)}


def _scenarios(run: Run) -> Context | None:
    keys = list(dict.fromkeys(key for seed in run.seeds for key in mapping(seed.get("scenarios"))))
    names = ordered(name for key in keys for name in run.metrics("scenarios", key))
    rows = []
    for key in keys:
        title = SCENARIOS.get(key, words(key))
        rows.append((title, [run.spread("scenarios", key, name) for name in names]))
        for reference, named in REFERENCES.items():
            scores = [tables.reference_spread(run, reference, "scenarios", key, name) for name in names]
            if any(score is not None for score in scores):
                rows.append((f"{title}, {named}", scores))
    if not rows or not names:
        return None
    return {"columns": [metric_of(name).title for name in names], "rows": _score_rows(rows, names)}


def _score_rows(rows: Iterable[tuple[str, Sequence[Spread | None]]], names: Sequence[str]) -> list[Context]:
    return [
        {
            "title": title,
            "cells": [plus_minus(score, name) for score, name in zip(scores, names, strict=True)],
        }
        for title, scores in rows
    ]


def _fairness(run: Run) -> Context | None:
    rows = []
    for name, each in METRICS.items():
        if each.counts is not group_f1:
            continue
        title, meaning = GROUPS[each.group]
        score = run.spread("test", name)
        if each.group != "all" and score is None and not _asked(run, name):
            continue
        pooled = run.spread("test", "pooled", name)
        rows.append(
            {
                "title": title,
                "meaning": meaning,
                "bar": bar_width(score.mean if score is not None else None),
                "mean": plus_minus(score, name) if score is not None else "no such items",
                "pooled": plus_minus(pooled, name),
            }
        )
    return {"rows": rows, "pooled": any(row["pooled"] != MISSING for row in rows)} if len(rows) > 1 else None


def _asked(run: Run, name: str) -> bool:
    return any(name in mapping(seed.get("test")) for seed in run.seeds)


def _client_rows(run: Run) -> list[Context]:
    """Numbers per client, means over seeds; partition facts joined in."""
    gathered: dict[int, list[dict[str, Any]]] = {}
    for seed in run.seeds:
        for place, row in enumerate(records(seed.get("clients"))):
            who = number(row.get("client"))
            gathered.setdefault(place if who is None else int(who), []).append(row)
    audit = {
        int(who): row
        for row in records(run.section("partition").get("per_client"))
        if (who := number(row.get("client"))) is not None
    }
    names = ordered(
        name
        for rows in gathered.values()
        for row in rows[:1]
        for name, value in mapping(row.get("test")).items()
        if number(value) is not None and name not in NOT_METRICS
    )
    found = []
    for who, rows in sorted(gathered.items()):
        known = audit.get(who, {})
        facts: Context = {
            key: mean(row.get(key) for row in rows) for key in ("nodes", "graphs", "train", "val", "test_items")
        }
        if facts["train"] is None:
            facts["train"] = number(known.get("train"))
        lists = [row["missing_classes"] for row in [*rows, known] if isinstance(row.get("missing_classes"), list)]
        facts |= {
            "client": who,
            "homophily": number(known.get("homophily")),
            "missing_classes": max((len(classes) for classes in lists), default=None),
            "metrics": names,
        }
        found.append(facts | {name: mean(dig(row, "test", name) for row in rows) for name in names})
    return found


def _clients(run: Run, rows: Sequence[Context]) -> Context | None:
    if not rows:
        return None
    main = run.main_metric
    names: list[str] = main_ones(rows[0]["metrics"])
    if main not in names and names:
        main = names[0]
    sign = 1 if metric_of(main).higher_is_better else -1
    order = sorted(rows, key=lambda row: (row.get(main) is None, sign * (row.get(main) or 0), row["client"]))
    counts = [
        (key, title)
        for key, title in (
            ("nodes", "Nodes"),
            ("graphs", "Graphs"),
            ("train", "Train"),
            ("val", "Validation"),
            ("test_items", "Test"),
            ("missing_classes", "Classes missing"),
        )
        if any(row.get(key) is not None for row in rows)
    ]
    has_homophily = any(row["homophily"] is not None for row in rows)
    table = []
    for row in order[:CLIENT_ROWS]:
        cells = [{"text": str(row["client"]), "value": row["client"], "bar": None}]
        cells += [{"text": integer(row[key]), "value": sortable(row[key]), "bar": None} for key, _ in counts]
        if has_homophily:
            value = row["homophily"]
            text = MISSING if value is None else f"{value:.2f}"
            cells.append({"text": text, "value": sortable(value), "bar": None})
        for name in names:
            bar = bar_width(row[name]) if metric_of(name).is_share and row[name] is not None else None
            cells.append({"text": metric(row[name], name), "value": sortable(row[name]), "bar": bar})
        table.append(cells)
    columns = ["Client", *(title for _, title in counts), *(["Homophily"] if has_homophily else [])]
    scores = [row[main] for row in rows if row.get(main) is not None]
    return {
        "columns": columns + [metric_of(name).title for name in names],
        "sorted_by": len(columns) + names.index(main) if main in names else 0,
        "sorted_up": sign == 1,
        "rows": table,
        "first": FIRST_ROWS if len(table) > 2 * FIRST_ROWS else len(table),
        "note": _client_note(len(rows), len(table), main if main in names else None),
        "spread": _client_spread(scores, main),
    }


def _client_note(clients: int, shown: int, main: str | None) -> str:
    if main is None:
        return "Scores per client: not recorded; the test data belong to no single client."
    text = f"Means over seeds, sorted by {in_sentence(main)}, worst first; choose a heading to sort."
    if shown < clients:
        text += f" The worst {shown} of {integer(clients)} clients are listed; result.json holds all."
    return text


def _client_spread(scores: Sequence[float], name: str) -> list[tuple[str, str]]:
    if len(scores) < 4:
        return []
    import numpy as np

    places = (("Minimum", 0), ("Lower quarter", 25), ("Median", 50), ("Upper quarter", 75), ("Maximum", 100))
    return [(title, metric(float(np.percentile(scores, place)), name)) for title, place in places]


def _partition(partition: Mapping[str, Any]) -> Context | None:
    if not partition:
        return None
    kept, cut = number(partition.get("kept_edges")), number(partition.get("cut_edges"))
    share = number(partition.get("kept_share"))
    if share is None and kept is not None and cut is not None and kept + cut:
        share = kept / (kept + cut)
    clients = records(partition.get("per_client"))
    facts = [
        ("Rule", str(partition.get("rule") or NOT_RECORDED)),
        ("Clients", integer(partition.get("clients")) if partition.get("clients") else integer(len(clients) or None)),
        ("Seed", str(partition.get("seed", NOT_RECORDED))),
    ]
    absent = absent_clients(partition)
    if absent:
        facts.insert(2, ("Left out", absent))
    cover = partition.get("cover")
    if number(cover) is not None:
        facts.append(("Nodes covered", f"{percent(cover)} %"))
    elif isinstance(cover, str):
        facts.append(("Cover", cover))
    for key, title, shape in (
        ("nodes", "Nodes per client", integer),
        ("train", "Training items per client", integer),
        ("mean_degree", "Mean degree", lambda value: f"{value:.1f}"),
        ("homophily", "Homophily", lambda value: f"{value:.2f}"),
    ):
        values = [value for row in clients if (value := number(row.get(key))) is not None]
        if values:
            low, high = shape(min(values)), shape(max(values))
            facts.append((title, low if low == high else f"{low} to {high}"))
    whole = partition.get("is_disjoint_cover")
    if whole is True:
        facts.append(("Cover", "disjoint and complete"))
    elif whole is False:
        told = [f"{integer(count)} {what}" for what, count in _cover_flaws(partition)]
        facts.append(("Cover", listed(told) or "not disjoint"))
    for key, title in (("isolated", "Nodes without an edge"), ("components", "Connected components")):
        values = [value for row in clients if (value := number(row.get(key))) is not None]
        if values:
            facts.append((title, integer(sum(values))))
    lacking = [row for row in clients if row.get("missing_classes")]
    if clients and any("missing_classes" in row for row in clients):
        facts.append(("Clients that miss a class", f"{integer(len(lacking))} of {integer(len(clients))}"))
    return {
        "facts": facts,
        "hash": short_hash(partition.get("hash")),
        "edges": None
        if share is None
        else {
            "kept": integer(kept),
            "cut": integer(cut),
            "kept_share": percent(share),
            "cut_share": percent(1 - share),
        },
    }


def _cover_flaws(partition: Mapping[str, Any]) -> list[tuple[str, float]]:
    """How a partition departs from giving every node to exactly one client."""
    flaws = (("duplicates", "copies"), ("missing", "at no client"), ("held_out", "held out"))
    return [(title, count) for key, title in flaws if (count := number(partition.get(key)))]


def _pooled_confusion(run: Run) -> list[list[int]]:
    """Confusion counts summed over the seeds that recorded them in one shape."""
    import numpy as np

    total = None
    for seed in run.seeds:
        try:
            counts = np.asarray(seed.get("confusion"), dtype=np.float64)
        except (TypeError, ValueError):
            continue
        if counts.ndim == 2 and counts.shape[0] == counts.shape[1] and np.isfinite(counts).all():
            total = counts if total is None else total + counts if total.shape == counts.shape else total
    return [] if total is None else total.astype(int).tolist()


def _per_class(run: Run) -> list[Spread | None]:
    lists = [seed["per_class_f1"] for seed in run.seeds if isinstance(seed.get("per_class_f1"), list)]
    lists = lists or [found for seed in run.seeds if isinstance(found := dig(seed, "test", "per_class_f1"), list)]
    width = max((len(values) for values in lists), default=0)
    return [spread(values[place] for values in lists if place < len(values)) for place in range(width)]


def _settings(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, _setting_text(value)) for key, value in flatten(config).items()]


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
    environment = run.section("environment")
    facts = [("graphsilo", str(environment.get("graphsilo") or run.result.get("graphsilo") or NOT_RECORDED))]
    facts += [(words(key), str(environment.get(key) or NOT_RECORDED)) for key in ("python", "torch", "platform")]
    known = ("graphsilo", "python", "torch", "platform")
    facts += [(words(key), _setting_text(value)) for key, value in environment.items() if key not in known]
    facts.append(("Fingerprint", str(run.result.get("fingerprint") or NOT_RECORDED)))
    if run.result.get("replaces"):
        facts.append(("Replaces the run with fingerprint", str(run.result["replaces"])))
    facts.append(("Partition hash", str(run.section("partition").get("hash") or NOT_RECORDED)))
    citation = run.section("method").get("citation")
    if citation:
        facts.append(("Method", str(citation)))
    return facts
