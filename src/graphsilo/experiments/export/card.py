"""A model card, made from what a run says of itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow.parquet as parquet

from graphsilo.__about__ import __version__
from graphsilo.data.silos.silo import Schema
from graphsilo.evaluate.metrics import metric_of
from graphsilo.evaluate.rare import Decision
from graphsilo.experiments.predict import Member
from graphsilo.experiments.simulation import method_of
from graphsilo.experiments.storage.records import RunRecord
from graphsilo.experiments.storage.views import names_of
from graphsilo.federation import registry

SHOWN = (
    "ap", "auc", "accuracy", "macro_f1", "precision_at_budget", "recall_at_budget", "threshold_precision",
    "threshold_recall", "micro_f1", "mae", "rmse", "r2", "spearman",
)  # fmt: skip
"""Metrics of a card, those of them that the run has."""
MOST = 40
"""Columns of a table that are listed."""


def model_card(
    asked: Member, decision: Decision | None = None, parts: Sequence[Sequence[Mapping[str, Any]]] = (), *,
    knows_more: bool = False,
) -> str:  # fmt: skip
    """Data, columns, method, scores, what was sent, and limits, in Markdown.

    Args:
        asked: The client with its model.
        decision: How the scores of the class looked for are read.
        parts: What the scorer adds up, as it has them.
        knows_more: Whether the run's model says something else of the silo's own items.
    """
    result, schema = asked.result, asked.silo.schema
    method = registry.load(asked.asked.config.method.name)
    whose = f"{asked.owner}'s own model" if asked.whose == "own" else "the common model"
    lines = [
        f"# Model card: {method.title}, {whose}", "",
        f"Exported {datetime.now(UTC):%Y-%m-%d} by graphsilo {__version__} from a run of graphsilo {result.graphsilo} "
        f"(seed {asked.seed}, fingerprint {result.fingerprint[:16]}).", "",
        "## What it does", "",
        f"Task: {schema.task}. It says of every {'graph' if schema.task == 'graph' else 'node'} "
        + ("its targets: " if schema.task in ("regression", "multilabel") else "the probability of each class: ")
        + ", ".join(asked.client.class_names) + ".",
        *([] if decision is None else [f"It looks for one class; {asked.describe(decision)}."]), "",
        "## Columns", "", *_columns(schema), "", *_made(parts), "",
        "## How it was trained", "",
        f"{method.summary} Source: {method.citation}",
        f"Settings: {_settings(asked.asked.config.method_config().model_dump(mode='json'))}.", "",
        "## Scores on test items", "", *_scores(asked), "",
        "## What left the silos", "", *_sent(asked), "",
        "## Limits", "",
        "- Scores hold for nodes like those it was tested on: other institutions, later times and other ways of "
        "filling in the columns were not tested unless the run's split says so.",
        "- A score is no proof. `graphsilo why` says what columns and neighbours it is made of; these are reasons of "
        "the model, not causes in the world.",
        *([f"- {asked.gap}"] if asked.gap else []),
        "- What a model learned of training items can in part be read from it: `graphsilo attack` measures that.",
        *(["- Of the silo's own items the run knows more than tables say (classes around them, or what other silos "
           "added), so that its scores of these are others."] if knows_more else []),
        "- `check*.npz` hold rows of the silo's own nodes. Remove them before the folder leaves the silo.", "",
    ]  # fmt: skip
    return "\n".join(lines)


def _columns(schema: Schema) -> list[str]:
    """What a silo's tables must have."""
    names, sums = schema.feature_names, tuple(f"{relation} " for relation in schema.relations)
    if names is None:
        return [f"{schema.num_features} features of each node, without names."]
    own = [name for name in names if not (sums and name.startswith(sums) and ": " in name)]
    lines = ["| table | columns |", "|---|---|"]
    for kind in schema.types or ("",):
        mine = [name for name in own if not kind or name.startswith(f"{kind}.")]
        lines.append(f"| nodes{f', {kind}' if kind else ''} | {_listed(mine, kind)} |")
    for place, relation in enumerate(schema.relations):
        between = f" ({' to '.join(schema.ends[place])})" if schema.ends else ""
        mine = [name for name in schema.link_features if name.startswith(f"{relation}.")]
        lines.append(f"| links, {relation}{between} | {_listed(mine, relation)} |")
    if added := len(names) - len(own):
        windows = dict.fromkeys(re.findall(r", (\S+ days?)(?=\n|$)", "\n".join(names)))
        spans = f" of all days and of the last {' and '.join(windows)}" if windows else ""
        lines += ["", f"{added} more are sums over a node's rows of links{spans}, made of these."]
    return lines


def _listed(names: Sequence[str], start: str) -> str:
    """Columns as the tables have them: one for all words of a category."""
    found = list(dict.fromkeys(name.removeprefix(f"{start}.").partition("=")[0] for name in names))
    return f"{', '.join(found[:MOST])}{', ...' if len(found) > MOST else ''}" if found else "none"


def _made(parts: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """What the scorer makes of a node's features before the model sees them."""
    lines: dict[str, None] = {}
    for term in (term for part in parts for term in part):
        if term.get("columns") == "graphs":
            made = f"{term['width']} columns of a graph: means of its nodes' features and of those one and two links "
            made += "away, how many nodes and links it has, how these are spread, and its groups of nodes"
        elif term.get("columns") == "wl":
            made = f"counts of the neighbourhoods that a graph has, up to {term['hops']} links wide, in {term['base']} "
            made += "columns"
        elif "relations" in term:
            own = "principal and random directions of its features" if term["principal"] else "its features as they are"
            made = f"{term['width']} columns of a node: {own}; their means around it and two links away"
            made += "" if term["principal"] else ", and how they vary around it"
            made += ", and how many links it has"
            made += "; the same of each relation in both directions" if term["relations"] else ""
            made += "; their logarithms, on the scale of all silos" if term["kind"] == "linear" else ""
        elif term["kind"] == "linear":
            made = f"rows of length 1 of its features and of those up to {term['hops']} links away ({term['columns']})"
            made += "" if term["size"] is None else ", their mean and their sum over a graph"
        else:
            made = f"its features and the graph (network {term['model']})"
            if term["layers"]:
                made = f"the columns that dense layers of {term['model']} are put on"
        made += ", with how the nodes around it are labelled" if term.get("labelled") else ""
        lines[f"The model sees {made}."] = None
        if "input" in term:
            lines[f"`model.onnx` takes them as `{term['input']}`, as `inputs` of scorer.py makes them."] = None
    return [" ".join(lines)]


def _settings(tree: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in tree.items() if name != "name")


def _scores(asked: Member) -> list[str]:
    found = asked.result
    if not isinstance(found, RunRecord):
        return ["In the silo's own result.json, beside this model."]
    seed = next(row for row in found.seeds if row.seed == asked.seed)
    names = [name for name in SHOWN if seed.test.numbers.get(name) is not None]
    lines = [
        "| silo | nodes | training | " + " | ".join(metric_of(name).title for name in names) + " |",
        "|---|--:|--:|" + "--:|" * len(names),
    ]
    silos = names_of(found)
    for row in seed.clients:
        cells = [_number(row.test.numbers.get(name)) for name in names]
        who = f"{silos[row.client]}{' (this one)' if row.client == asked.silo.client else ''}"
        lines.append(f"| {who} | {row.nodes} | {row.train} | " + " | ".join(cells) + " |")
    lines.append("| mean | | | " + " | ".join(_number(seed.test.numbers[name]) for name in names) + " |")
    return lines


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float | int) else ""


def _sent(asked: Member) -> list[str]:
    method = method_of(asked.asked.config)
    if method.alone:
        return ["Nothing: each silo trained for itself."]
    lines = [_bytes_sent(asked)] if isinstance(asked.result, RunRecord) and not method.pooled else []
    settings = asked.asked.config.method_config().model_dump(mode="json")
    noise = settings.get("epsilon")
    lines.append(
        f"With noise: differential privacy of ε = {noise}." if noise is not None
        else "Without noise: no differential privacy is claimed."
    )  # fmt: skip
    lines.append(f"`graphsilo explain {method.name}` lists every field and what it discloses.")
    return lines


def _bytes_sent(asked: Member) -> str:
    """How much this silo sent, and all of them, for training and for evaluation apart."""
    file = asked.folder / "ledger.parquet"
    if not file.is_file():
        return "How much was sent is not known: the run's folder has no ledger.parquet."
    rows = parquet.read_table(
        file, columns=["client", "phase", "bytes"], filters=[("seed", "=", asked.seed), ("direction", "=", "up")]
    )
    sums = rows.group_by(["client", "phase"]).aggregate([("bytes", "sum")]).to_pylist()
    mine = [row for row in sums if row["client"] == asked.silo.client]
    (own, answers), (every, all_answers) = (
        [sum(row["bytes_sum"] for row in some if (row["phase"] == "evaluation") is judged) for judged in (False, True)]
        for some in (mine, sums)
    )
    return (
        f"This silo sent {own:,} bytes for training, and {answers:,} of scores and counts for evaluation; all silos "
        f"together {every:,} and {all_answers:,} (seed {asked.seed}, by the ledger)."
    )
