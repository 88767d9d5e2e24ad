"""A model card, made from what a run says of itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from graphsilo.__about__ import __version__
from graphsilo.evaluate.metrics import metric_of
from graphsilo.evaluate.rare import Decision
from graphsilo.experiments.predict import Member
from graphsilo.experiments.storage.records import RunRecord
from graphsilo.experiments.storage.views import names_of
from graphsilo.federation import registry

SHOWN = (
    "ap", "auc", "accuracy", "macro_f1", "precision_at_budget", "recall_at_budget", "threshold_precision",
    "threshold_recall", "micro_f1", "mae", "rmse", "r2", "spearman",
)  # fmt: skip
"""Metrics of a card, those of them that the run has."""


def model_card(asked: Member, decision: Decision | None = None) -> str:
    """Data, method, scores, what was sent, and limits, in Markdown.

    Args:
        asked: The client with its model.
        decision: How the scores of the class looked for are read.
    """
    result, schema = asked.result, asked.silo.schema
    method = registry.load(asked.asked.config.method.name)
    whose = f"{asked.owner}'s own model" if asked.whose == "own" else "the common model"
    features = list(schema.feature_names or ())
    lines = [
        f"# Model card: {method.title}, {whose}", "",
        f"Exported {datetime.now(UTC):%Y-%m-%d} by graphsilo {__version__} from a run of graphsilo {result.graphsilo} "
        f"(seed {asked.seed}, fingerprint {result.fingerprint[:16]}).", "",
        "## What it does", "",
        f"Task: {schema.task}. It says of every node "
        + ("its targets: " if schema.task in ("regression", "multilabel") else "the probability of each class: ")
        + ", ".join(asked.client.class_names) + ".",
        f"It looks at {schema.num_features} columns of a node"
        + (f" ({', '.join(features[:12])}{', ...' if len(features) > 12 else ''})" if features else "")
        + " and of the nodes around it.",
        *([] if decision is None else [f"It looks for one class; {asked.describe(decision)}."]), "",
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
        "- What a model learned of training items can in part be read from it: `graphsilo attack` measures that.",
        "- `check.npz` holds rows of the silo's own nodes. Remove it before the folder leaves the silo.", "",
    ]  # fmt: skip
    return "\n".join(lines)


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
    method = registry.load(asked.asked.config.method.name)
    if method.alone:
        return ["Nothing: each silo trained for itself."]
    lines = []
    spent = asked.result.spent if isinstance(asked.result, RunRecord) else None
    if spent is not None and spent.upload_bytes is not None:
        lines.append(f"Each silo sent {spent.upload_bytes:,.0f} bytes in all.")
    settings = asked.asked.config.method_config().model_dump(mode="json")
    noise = settings.get("epsilon")
    lines.append(
        f"With noise: differential privacy of ε = {noise}." if noise is not None
        else "Without noise: no differential privacy is claimed."
    )  # fmt: skip
    lines.append(f"`graphsilo explain {method.name}` lists every field and what it discloses.")
    return lines
