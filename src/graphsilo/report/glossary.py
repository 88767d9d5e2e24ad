"""What the words of a page mean, for whoever does not work with them every day."""

from __future__ import annotations

from collections.abc import Iterable

TERMS = {
    "accuracy": ("Accuracy", "The share of test items that were predicted right."),
    "macro_f1": (
        "Macro-F1",
        "F1 weighs what was found against what was claimed wrongly, class by class; macro-F1 is the plain mean over "
        "classes, so that a rare class counts as much as a common one. A class that a silo never gets right counts 0.",
    ),
    "auc": (
        "AUC",
        "How often an item of the class (a true link) ranks above one that is not: 50 % is guessing, 100 % perfect.",
    ),
    "ap": (
        "Average precision",
        "How pure the top of the ranking is, averaged over all places where it may be cut off.",
    ),
    "mae": ("MAE", "Mean absolute error: by how much an estimate is off on average, in the unit of what is estimated."),
    "rmse": ("RMSE", "Root mean squared error, in the same unit: large errors count for more than in the MAE."),
    "r2": ("R²", "Share of the variance at a silo that is explained: 1 is perfect, 0 no better than the silo's mean."),
    "spearman": ("Spearman", "How alike estimates and true numbers are in their order, from −1 to 1."),
    "micro_f1": ("Micro-F1", "F1 over all labels of all nodes at once: common labels count for more than rare ones."),
    "rare_f1": (
        "F1 of the positive class",
        "Of two classes that which is looked for, by default the rarer: F1 weighs how many of its items were "
        "found against how many were taken for them.",
    ),
    "precision_at_budget": (
        "Budget",
        "How many items a silo can look into, those with the highest scores first. Precision is the share of them that "
        "is of the class looked for, recall the share of that class which is among them.",
    ),
    "threshold_f1": (
        "Threshold",
        "The score from which on an item is taken for the class looked for, chosen on validation items.",
    ),
    "brier": (
        "Brier score",
        "Mean squared difference between the probability that is said and what was: 0 is perfect; whoever always says "
        "the share p of the class gets p · (1 − p).",
    ),
    "calibration_error": (
        "Calibration error",
        "How far probabilities are from shares: of all items with a probability of 30 %, three in ten should be of the "
        "class.",
    ),
    "min_f1": ("Min-F1", "Macro-F1 of the test items whose class is rare at their own silo."),
    "hete_f1": ("Hete-F1", "Macro-F1 of the half of the nodes whose neighbours agree least with their label."),
    "hete_min_f1": (
        "Hete-Min-F1",
        "Macro-F1 of the nodes that are both: of a rare class and among unlike others.",
    ),
    "homophily": ("Homophily", "The share of links that join two nodes of the same class, from 0 to 1."),
    "plus_minus": ("±", "One standard deviation over seeds: how far chance alone moves the number."),
    "interval": (
        "95 % interval",
        "Where the mean difference may lie, judged by how much seeds differ (Student's t) and by how many items are "
        "tested, which are the same in every seed and for both models: only what they answer differently counts. "
        "Without saved models, and of an MAE, their errors are taken as unrelated, which is rather too wide than too "
        "narrow; of a ranking such as AUC it is over seeds alone.",
    ),
    "own": (
        "Clients' own models",
        "What each silo itself ends a round with: its model as trained further, corrected or chosen there.",
    ),
    "common": ("Common model", "The one model that the silos made together (aggregate), scored at the silos."),
    "pooled": ("Pooled", "The silos' test items counted as one set, instead of a mean over silos."),
    "gap": ("Gap closed", "How far the way from training alone to having all data in one place was gone."),
}
"""Key to the word and its meaning. Metrics have their own names as keys."""


def explain_terms(keys: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Key to word and meaning of those that are known, in the order of ``TERMS``."""
    wanted = set(keys)
    return {key: found for key, found in TERMS.items() if key in wanted}
