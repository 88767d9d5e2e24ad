"""What the classes of the field's usual data sets stand for; their files only number them.

The order was found from the counts of nodes per class, which differ between all classes of a set and are those of the
publications that made them (a test compares them with the files).
"""

from __future__ import annotations

CLASS_NAMES: dict[str, tuple[str, ...]] = {
    "Cora": (
        "Theory", "Reinforcement learning", "Genetic algorithms", "Neural networks", "Probabilistic methods",
        "Case-based", "Rule learning",
    ),
    "CiteSeer": ("AI", "Machine learning", "Information retrieval", "Databases", "Agents", "HCI"),
    "PubMed": ("Diabetes, experimental", "Diabetes type 1", "Diabetes type 2"),
}  # fmt: skip
"""Name in the catalogue to the classes' names in the order of their numbers."""
