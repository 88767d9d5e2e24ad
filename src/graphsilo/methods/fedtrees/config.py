"""Settings of FedTrees."""

from __future__ import annotations

from graphsilo.data.silos.silo import Schema
from graphsilo.federation.settings import MethodConfig, setting
from graphsilo.methods.fedtrees.directions import principal_of
from graphsilo.methods.fedtrees.forest import Rule
from graphsilo.models.graph_columns import width_of_graphs
from graphsilo.models.node_columns import num_views, width_of, width_of_relations
from graphsilo.settings import WIDEST, Share
from graphsilo.types import TARGET_TASKS


class FedTreesConfig(MethodConfig):
    """Settings of FedTrees."""

    rounds: int = setting(
        100, "steps of boosting, one a round: a tree, or one for each of several classes", source="scikit-learn", ge=1
    )
    lr: float = setting(0.1, "what a tree's leaves are multiplied by", source="scikit-learn", gt=0, le=1)
    depth: int = setting(4, "levels of splits of a tree, which has up to 2^depth leaves", source="ours", ge=1, le=10)
    bins: int = setting(32, "most bins of a column", source="ours; LightGBM: 255", ge=2, le=255)
    columns: int = setting(
        64, "columns that a round draws for its trees, at most half of those that there are",
        source="ours; the idea: Breiman 2001", ge=1, le=WIDEST,
    )  # fmt: skip
    l2: float = setting(1.0, "λ: added to the sum of hessians of a leaf", source="XGBoost", ge=0)
    l2_per_row: float = setting(0.002, "what each training node adds to λ: many rare ones need it", source="ours", ge=0)
    gamma: float = setting(0.0, "γ: gain that a split must have", source="XGBoost", ge=0)
    min_child: int = setting(10, "fewest training nodes of all silos in a leaf", source="ours; LightGBM: 20", ge=1)
    dim: int = setting(
        128, "features wider than this are scaled to length 1 and projected onto so many columns: half are the first "
        "principal directions of all silos' training rows, half are random; of graphs, and above 16,384 features, "
        "all are random",
        source="ours; Halko et al. 2011, Kane and Nelson 2014", ge=1, le=WIDEST,
    )  # fmt: skip
    label_features: bool = setting(
        True, "the columns ½ [N Y ‖ (N² − diag N²) Y] of the classes Y of the silo's own training nodes; not where "
        "tables of links are known apart",
        source="ours; labels as features: UniMP, Shi et al. 2021", when={"task": ("node",)},
    )  # fmt: skip
    balance: Share = setting(
        0.0,
        "class weights (n / (C · n_c))^balance: 0 counts nodes alike, 1 classes",
        source="ours",
        when={"task": ("node", "graph")},
    )
    own: bool = setting(
        True, "whether silos correct the common leaves towards their own rows, or grow trees of these alone, where "
        "their validation nodes prefer it", source="ours",
    )  # fmt: skip
    own_weight: float = setting(
        4.0, "how much the common leaf counts beside the hessians of the own rows in a corrected one", source="ours",
        gt=0, when={"own": (True,)},
    )  # fmt: skip
    min_count: int = setting(
        1, "a class with fewer training nodes at a silo, and a bin of a histogram with fewer of its rows, is left out "
        "of its sums", source="ours", ge=1,
    )  # fmt: skip

    @property
    def chooses_by_validation(self) -> bool:
        """Each silo its own model."""
        return self.own

    def width(self, schema: Schema) -> int:
        """p, the columns of a node, or of a graph."""
        if schema.task == "graph":
            return width_of_graphs(schema.num_features, self.dim)
        labelled = schema.num_classes if self.has_labels(schema) else 0
        width = width_of(schema.num_features, self.dim, labelled, num_views(schema))
        return width + width_of_relations(schema, self.dim)

    def has_labels(self, schema: Schema) -> bool:
        """Whether there are label features: not where tables of links are known apart, whose nodes have times, as a
        rule. Then later nodes have more labelled neighbours than those that trees were grown on; on two generated banks
        validation average precision was .03 lower with them."""
        return self.label_features and not schema.relations and schema.task not in TARGET_TASKS

    def num_drawn(self, columns: int) -> int:
        """How many of p columns a round draws."""
        return min(self.columns, (columns + 1) // 2)

    def principal(self, schema: Schema) -> int:
        """k, the principal directions that wide features are projected onto."""
        return 0 if schema.task == "graph" else principal_of(schema.num_features, self.dim)

    def square_columns(self, schema: Schema) -> int:
        """Rows of wide features are added up in products with each other."""
        return schema.num_features if self.principal(schema) else 0

    @property
    def rule(self) -> Rule:
        """How a tree grows."""
        return Rule(self.depth, self.lr, self.l2, self.gamma, self.min_child, self.l2_per_row)
