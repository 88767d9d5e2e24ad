"""Settings of FedSage+."""

from __future__ import annotations

from typing import Literal

from graphsilo.federation.settings import setting
from graphsilo.methods import fedsage
from graphsilo.settings import Width


class GeneratorConfig(fedsage.FedSageConfig):
    """Settings of a generator of missing neighbours."""

    generator_lr: float = setting(1e-3, "learning rate of the generator's Adam", source="release", gt=0)
    generator_weight_decay: float = setting(1e-4, "L2 weight decay of the generator", source="release", ge=0)
    generator_hidden: tuple[Width, ...] = setting(
        (256, 64), "hidden widths of the feature generator; its last layer has up to 5 · width · features weights",
        source="ours, for 25 times fewer bytes; release 256, 2048", min_length=1,
    )  # fmt: skip
    encoder_widths: tuple[Width, Width] = setting(
        (32, 128), "hidden width of encoder and auxiliary classifier, and width of the embedding", source="release"
    )
    generator_dropout: float = setting(
        0.5, "dropout in encoder, classifier and generator", source="release", ge=0, lt=1
    )
    lambda_d: float = setting(1.0, "weight of the loss of the predicted counts (λ_d)", source="release", ge=0)
    lambda_f: float = setting(
        0.01, "weight of the loss of the generated features (λ_f)",
        source="validation on Cora and CiteSeer; paper and release 1", ge=0,
    )  # fmt: skip
    lambda_c: float = setting(1.0, "weight of the auxiliary classifier's loss (λ_c)", source="release", ge=0)
    feature_error: Literal["sum", "mean"] = setting(
        "sum", "L_f adds up squared differences over generated neighbours and features, or divides by 5 · features",
        source="Zhang et al., eq. 5; release mean",
    )  # fmt: skip
    count_bias: float = setting(
        1.0,
        "where the bias of the predicted count starts; 0 may leave the generator dead from the start",
        source="ours",
        ge=-100,
    )
    loss_counts: Literal["round", "truncate", "stochastic"] = setting(
        "stochastic", "how a predicted count becomes a number of neighbours in the losses",
        source="as in mending; release truncate",
    )  # fmt: skip
    mend_counts: Literal["round", "truncate", "stochastic"] = setting(
        "stochastic", "how a predicted count becomes a number of neighbours in the mended graph; stochastic: the whole "
        "part, and one more with the probability of the rest", source="validation on Cora; release round",
    )  # fmt: skip
    mend_graph: Literal["impaired", "whole"] = setting(
        "impaired", "what the generator looks at when it mends: the graph without the hidden nodes, which get no "
        "neighbours then, or all of the client's graph", source="release",
    )  # fmt: skip


class FedSagePlusConfig(GeneratorConfig):
    """Settings of FedSage+."""

    hidden_share: float = setting(
        0.95, "share of the nodes outside training and test that a client hides from its generator (where it has none: "
        "of its training nodes, half of them at most)", source="validation on Cora; release 0.5", ge=0, lt=1,
    )  # fmt: skip
    neighgen: Literal["own", "shared"] = setting(
        "own", "every client has a generator of its own, helped by the others' gradients; or all train one on the mean "
        "of their local losses", source="Zhang et al., section 3.3; shared: appendix D",
    )  # fmt: skip
    exchange: Literal["weights", "outputs"] = setting(
        "weights", "what goes to the others: the generator's weights and embeddings, gradients of the weights coming "
        "back; or generated features and the gradients of these, a hundredth of the bytes, which tell whoever sees "
        "them the others' features",
        source="Zhang et al.; FederatedScope-GNN", when={"neighgen": ("own",)},
    )  # fmt: skip
    local_generator_epochs: int = setting(20, "epochs each client trains its generator alone", source="release", ge=0)
    generator_epochs: int = setting(20, "epochs with the other clients' gradients", source="release", ge=0)
    alpha: float = setting(
        1.0,
        "weight of the other clients' features beside one's own (α)",
        source="release",
        ge=0,
        when={"neighgen": ("own",)},
    )
    cross_targets: Literal["neighbours", "all"] = setting(
        "all", "what a client compares another's generated features with: the nearest of all its nodes, or of five "
        "neighbours of a random node, drawn for each generated row",
        source="Zhang et al., Algorithm 1, line 25; release neighbours", when={"neighgen": ("own",)},
    )  # fmt: skip
    helpers: int = setting(
        3, "how many other clients, drawn in every epoch, compare a client's generator; their sum is scaled up to "
        "all of them. 0: all of them do", source="ours, for fewer bytes; Zhang et al. 0", ge=0,
        when={"neighgen": ("own",)},
    )  # fmt: skip

    def num_comparing(self, clients: int) -> int:
        """How many of so many clients compare one's generator in an epoch."""
        return min(self.helpers or clients, clients - 1)

    @property
    def single_answers(self) -> str:
        return (
            ""
            if self.neighgen == "shared"
            else "what every client's generator makes (with method.neighgen=shared sums are enough)"
        )
