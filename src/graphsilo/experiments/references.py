"""Reference rows under the run's data, cut, model, seeds and schedule: silos alone, all data together, a constant.

``alone`` is the run's own method and settings with every silo in a federation of one: what joining brings is the
difference to it. ``one_place`` is the same with all data in one silo: what a federation could reach. ``local`` and
``global`` train the backbone so, whatever the method.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphsilo.data.silos.silo import Schema
from graphsilo.evaluate.metrics import metric_of
from graphsilo.evaluate.significance import gap_closed
from graphsilo.experiments.config import RunConfig, RunReference
from graphsilo.experiments.simulation import method_of, reference_method
from graphsilo.experiments.storage.records import Means
from graphsilo.federation import registry
from graphsilo.federation.settings import LocalTrainingConfig, MethodConfig, OneRoundConfig

_SCHEDULE = {"rounds", "min_clients"}
"""Settings of a method that its references share, where they have them; one place alone always answers."""
_TRAINING = {"local_epochs", "batch_size", "optimizer", "lr", "weight_decay", "momentum"}
"""Those that methods of local epochs, round by round, share if somebody said them. Elsewhere the name means something
else, such as what a tree's leaves are multiplied by, and a default is a method's own."""
ENDS = (("alone", "one_place"), ("local", "global"))
"""Rows from which and to which a gap is: of the same method, or of the backbone."""
SEVERAL_ROUNDS = ("method.rounds", "evaluation.every", "run.early_stopping")
"""Settings that are about several rounds."""


def _among_others() -> set[str]:
    """Settings of a method that a silo by itself has no use for: its noise, and how many take part."""
    from graphsilo.federation.release import PrivateConfig

    return {"participation", *(PrivateConfig.model_fields.keys() - MethodConfig.model_fields.keys())}


def _trains_by_rounds(kind: type[MethodConfig]) -> bool:
    return issubclass(kind, LocalTrainingConfig) and not issubclass(kind, OneRoundConfig)


def reference_config(config: RunConfig, name: RunReference) -> RunConfig:
    """The configuration of a reference row.

    Args:
        config: Of the run that it stands beside.
        name: A method, ``alone``, or ``global_cut``: all data in one place without the edges between silos.
    """
    method = registry.load(reference_method(config, name))
    is_pooled, kind = method.pooled or name == "one_place", method.config
    own = config.method_config()
    both_train = _trains_by_rounds(kind) and _trains_by_rounds(type(own))
    said = {key for key in _TRAINING if both_train and config.is_given(f"method.{key}")}
    options = {
        key: value for key, value in own.model_dump(include=_SCHEDULE | said).items() if key in kind.model_fields
    }
    if name in ("alone", "one_place"):
        # What does not leave needs no noise, and a silo by itself is always there.
        among_others = _among_others()
        options = {key: value for key, value in config.method.options.items() if key not in among_others}
    if is_pooled:
        options.pop("min_clients", None)
    if name == "global_cut":
        options["cross_edges"] = False
    if config.evaluation.report == "federation" and "best_round" in kind.model_fields:
        options["best_round"] = "common"  # nobody sees a client's own score
    is_alone = name == "alone"
    changes: dict[str, Any] = {
        "method.name": method.name,
        "method.options": options,
        "evaluation.embeddings": False,
        "run.references": [],
        "run.seeds": config.run.seeds[:1] if method.seedless else config.run.seeds,
        "run.alone": is_alone,
        "run.one_place": name == "one_place",
        # Others send no model, or all that they know in one answer.
        "run.compression": config.run.compression if is_alone else "none",
        # And so few that there is nobody to outvote.
        "run.robust": "none",
        "run.liars": 1,
        "run.precision": config.run.precision if method.backbone else "float32",
    }
    if not is_alone:
        changes |= {"evaluation.modes": None, "evaluation.model": "run"}
    if is_pooled:  # data in one place has no sums over silos
        changes |= {"evaluation.report": "silos", "run.secure_sums": False}
    given = [
        name
        for name in config.given
        if (method.backbone or not name.startswith("model."))
        and name.removeprefix("method.") not in _TRAINING - options.keys()
        and not (issubclass(kind, OneRoundConfig) and name in SEVERAL_ROUNDS)
    ]
    # Remarks stand beside the run's own.
    return config.with_settings(changes).model_copy(update={"remarks": [], "given": given}).with_explicit(())


def with_alone(config: RunConfig) -> RunConfig:
    """As it is run between machines: every silo also trains its backbone and runs the method itself alone, and boosts
    trees on its table's columns where these serve the task, at its own site, so that the page can say what joining
    brought it. ``run.references`` says otherwise; a method that trains alone needs no such rows."""
    method = method_of(config)
    if config.is_given("run.references") or method.alone:
        return config
    rows = ["local", "alone"] if method.backbone else ["alone"]
    if (config.task or "node") in registry.load("trees_alone").tasks:
        rows.append("trees_alone")
    return config.with_settings({"run.references": rows})


def with_trees_alone(config: RunConfig, schema: Schema) -> RunConfig:
    """A run on tables here: unless rows were named, or left out, what has to be beaten stands beside it."""
    row = registry.load("trees_alone")
    # Also the program's own choice counts, such as no rows beside a row.
    if "references" in config.run.model_fields_set or config.method.name == row.name:
        return config
    if schema.task not in row.tasks or not schema.num_features:
        return config
    return config.with_settings({"run.references": [row.name]})


def measure_gaps_closed(test: Means, rows: Mapping[str, Means]) -> dict[str, float | None] | None:
    """Per metric, how far from silos alone to all data in one place a run gets; None without rows of both."""
    ends = next((pair for pair in ENDS if rows.keys() >= set(pair)), None)
    if ends is None:
        return None
    closed = {}
    for metric in test.metrics:
        means = [
            found.mean
            for part in (test, *map(rows.__getitem__, ends))
            if (found := part.metrics.get(metric)) is not None
        ]
        known = [mean for mean in means if mean is not None]
        if len(known) == 3:
            closed[metric] = gap_closed(*map(metric_of(metric).goodness, known))
    return closed
