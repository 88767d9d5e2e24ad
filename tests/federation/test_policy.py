"""What may leave a silo: every key of a policy, worked by hand; and nothing passes that is not allowed."""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphsilo.errors import ConfigError, DataError, DisclosureError, MessageError
from graphsilo.federation import noise, registry
from graphsilo.federation.account import Spent
from graphsilo.federation.candidates import Candidates
from graphsilo.federation.client import EvaluateReply, EvaluateSums, ScoreCounts
from graphsilo.federation.interface import Handler
from graphsilo.federation.message import KINDS, FieldSpec, Message, Tensors, sends
from graphsilo.federation.policy import (
    DEFAULT_KINDS,
    DisclosurePolicy,
    Gate,
    described_classes,
    is_filled,
    payload_bytes,
)
from graphsilo.federation.release import Release
from graphsilo.federation.scaling import FeatureSquares
from graphsilo.methods import fedavg
from graphsilo.methods.fedsage_plus.messages import Comparison

TELLS_MORE = {"fedgcn", "fedgl", "fedstruct"}
"""Over which nodes several silos have, or link to: their owners must allow it."""
NAMES = [name for name in registry.names() if not registry.load(name).pooled and name not in TELLS_MORE]
"""All but FedGCN, which tells of edges and is refused by default."""


class Report(Message):
    """A model, and what may be left out."""

    weights: Tensors = sends("model")
    number: float = sends("counts")
    tags: list[str] = sends("control", default=())
    rows: torch.Tensor | None = sends("embedding", default=None)
    more: list[torch.Tensor] = sends("logits", default=())


class Classes(Message):
    """Statistics: 3 classes, 2 rows each."""

    sums: torch.Tensor = sends("statistic", shape=(6, 2), per_class=True)
    named: Tensors = sends("generator", per_class=True)
    counts: list[int] = sends("counts", per_class="min_count")
    total: int = sends("counts")


class Undeclared(Message):
    """Nobody has said whether it describes classes."""

    value: torch.Tensor = sends("prototype")


def policy(**values: object) -> DisclosurePolicy:
    return DisclosurePolicy.of(values)


def report(**more: object) -> Report:
    """24 + 32 bytes of tensors named with 1 + 2 bytes, 8 for the number: 67."""
    weights = {"a": torch.ones(2, 3), "bc": torch.ones(4, dtype=torch.int64)}
    return Report(weights=weights, number=0.0, **more)


def classes(*described: int) -> Classes:
    """A message that says something of these classes."""
    mark = torch.zeros(3)
    mark[list(described)] = 1.0
    return Classes(
        sums=mark.repeat_interleave(2)[:, None] * torch.ones(6, 2),
        named={"w": mark[:, None, None] * torch.ones(3, 2, 2), "b": mark.clone()},
        counts=[int(value) for value in mark],
        total=5,
    )


# -- reading ---------------------------------------------------------------------------------------------------------


def test_the_default_lets_out_what_methods_send_by_default():
    made = policy()
    assert made == DisclosurePolicy.of(None) == DisclosurePolicy()
    assert set(KINDS) - set(made.kinds) == {"topology", "logits"}
    assert (made.max_message_bytes, made.max_run_bytes, made.methods) == (268_435_456, None, None)
    for name in registry.names():
        if name in TELLS_MORE:
            assert "(kind 'topology'), which this silo's policy.kinds does not allow" in refusal(made, name)
        else:
            admit(made, name, [1, 0, 3])


def test_values_as_people_write_them():
    made = policy(methods=["FedSage+", "fedavg"], kinds="model", max_message_bytes="1.5 MB", max_run_bytes="2 KiB")
    assert made.methods == ("fedsage_plus", "fedavg")
    assert made.kinds == ("model",)
    assert (made.max_message_bytes, made.max_run_bytes) == (1_500_000, 2048)
    assert policy(max_run_bytes=7).max_run_bytes == policy(max_run_bytes="7").max_run_bytes == 7
    units = {"B": 1, "kB": 1000, "MB": 1_000_000, "GB": 10**9, "KiB": 1024, "MiB": 1_048_576, "GiB": 1_073_741_824}
    assert {unit: policy(max_total_bytes=f"1 {unit}").max_total_bytes for unit in units} == units


def test_an_owner_who_wants_nothing_seen_but_sums():
    """Before a run: masked sums, a method that they are enough for, and scores of the federation as a whole."""
    only = policy(require_secure_sums=True)
    average, every = (registry.load(name).config() for name in ("fedavg", "fedpg"))
    only.check_secure_sums(average, True, "federation")
    for config, secure, report, text in (
        (average, False, "federation", "Run with run.secure_sums=true"),
        (every, True, "federation", "this method needs every client's prototypes"),
        (average, True, "silos", "Run with evaluation.report=federation"),
    ):
        with pytest.raises(DisclosureError, match=text):
            only.check_secure_sums(config, secure, report)
        policy().check_secure_sums(config, secure, report)


@pytest.mark.parametrize("method", ["fedridge", "fedtrees", "fpl", "fednh", "fedproto", "auto", "opfgl"])
def test_no_sum_to_which_the_others_add_nothing(method):
    """A coordinator who says that classes of fewer nodes do not count has all silos but the largest be silent."""
    config = registry.load(method).config
    usual = config().min_count
    policy().check_secure_sums(config(), True, "federation")
    policy().check_secure_sums(config(min_count=usual + 1), False, "federation")
    for own in (policy(), policy(min_class_count=9)):
        with pytest.raises(DisclosureError, match=rf"one silo's own numbers\. In secure sums leave it at {usual}\."):
            own.check_secure_sums(config(min_count=usual + 1), True, "federation")


def test_no_setting_tells_silos_apart():
    """Two sums over the same silos, in one of which one adds zeros: the difference is its own answer. Three sums of the
    same answers, weighed in three ways: so many equations."""
    for method, said, usual in (
        ("fedlog", {"receiver": 3}, "none"), ("fedavg", {"weight_by": "uniform"}, "train"),
        ("fedprox", {"stragglers": 0.5}, 0.0), ("feddc", {"weighted": "objectives"}, "means"),
        ("fedlog", {"rate_noise": 1e3}, 0.0), ("opfgl", {"expand_degree": 4}, 3),
        ("opfgl", {"expand": False}, True), ("opfgl", {"lp_alpha": 0.5}, 0.9),
    ):  # fmt: skip
        config = registry.load(method).config
        policy().check_secure_sums(config(), True, "silos")
        policy().check_secure_sums(config(**said), False, "silos")
        with pytest.raises(DisclosureError, match=rf"what is added to a secure sum, .* leave it at {usual}\."):
            policy().check_secure_sums(config(**said), True, "silos")


def test_what_is_not_masked_does_not_leave_such_a_silo():
    gate = Gate(policy(require_secure_sums=True), [9])
    reply = fedavg.TrainReply(weights={"w": torch.zeros(2)}, num_samples=1.0)
    with pytest.raises(DisclosureError, match="TrainReply, which 'train' sends, would be seen by itself"):
        gate.check_single("train", type(reply))
    assert gate.check("train", reply) == 17


def test_what_was_agreed_on_a_run_holds_whatever_the_policy():
    reply = fedavg.TrainReply(weights={"w": torch.zeros(2)}, num_samples=1.0)
    with pytest.raises(DisclosureError, match="'train' sends, would be seen by itself, and this run was opened with"):
        Gate(policy(), [9], singles=("evaluate",)).check_single("train", type(reply))
    Gate(policy(), [9], singles=("evaluate",)).check_single("evaluate", type(reply))
    Gate(policy(), [9]).check_single("train", type(reply))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"kind": ["model"]}, r"^silo.yaml: unknown setting 'policy\.kind'; did you mean 'policy\.kinds'\?$"),
        ({"kinds": ["model", "embeddings"]}, r"silo.yaml: policy\.kinds: 'embeddings' is no .* 'embedding'\?"),
        ({"methods": ["fedagv"]}, r"silo.yaml: policy\.methods: 'fedagv' is no .* did you mean 'fedavg'\?"),
        ({"max_message_bytes": "much"}, r"policy\.max_message_bytes must be a number of bytes, or text .*; got 'much'"),
        ({"max_run_bytes": "3 PB"}, r"units: B, kB, MB, GB, KiB, MiB, GiB\); got '3 PB'"),
        ({"max_message_bytes": 0}, r"policy\.max_message_bytes must be at least 1; got 0"),
        ({"min_class_count": 2.5}, r"policy\.min_class_count must be a whole number at least 1; got 2.5"),
        ({"kinds": 3}, r"policy\.kinds must be a list of texts; got 3"),
        ({"relay": "perhaps"}, r"policy\.relay must be true or false; got 'perhaps'"),
        (["model"], r"^silo.yaml: policy must be a table of settings; got \['model'\]\.$"),
    ],
)
def test_wrong_policies_are_explained(values, text):
    with pytest.raises(ConfigError, match=text):
        DisclosurePolicy.of(values, origin="silo.yaml")


# -- before a run ----------------------------------------------------------------------------------------------------


def admit(made: DisclosurePolicy, name: str, counts: typing.Sequence[int] = (9, 9), **config: object) -> None:
    method = registry.load(name)
    made.check_method(method, method.config(**config), counts)


def refusal(made: DisclosurePolicy, name: str, counts: typing.Sequence[int] = (9, 9), **config: object) -> str:
    with pytest.raises(DisclosureError) as caught:
        admit(made, name, counts, **config)
    return str(caught.value)


def test_methods_outside_the_list():
    assert "does not take part in FedLoG: policy.methods allows fedavg, local." in refusal(
        policy(methods=["fedavg", "local"]), "fedlog"
    )
    assert "allows none at all" in refusal(policy(methods=[]), "fedavg")


def test_the_refusal_names_message_field_and_kind():
    text = refusal(policy(kinds=["counts", "score"]), "fedavg")
    assert text.startswith("TrainReply.weights, which 'train' sends, discloses model weights (kind 'model')")
    assert "EvaluateReply.counts, which 'evaluate' sends" in refusal(policy(kinds=["model"]), "fedavg")
    text = refusal(policy(kinds=[kind for kind in DEFAULT_KINDS if kind != "embedding"]), "fedsage_plus")
    assert "Generator.embeddings, which 'offer' sends, discloses embeddings of single nodes" in text


def test_only_what_the_settings_send_is_needed():
    plain = policy(kinds=["model", "counts", "score", "generator", "gradient"])
    assert "(kind 'embedding')" in refusal(plain, "fedsage_plus")
    admit(plain, "fedsage_plus", [9], neighgen="shared")
    few = policy(kinds=["model", "counts", "synthetic"])
    assert "GeneratorReply.generators" in refusal(few, "fedlog")
    admit(few, "fedlog", [9], neighbour_generator=False)
    # Candidates are ranked where evaluation.select_by is a metric of scores, and by Auto in any run.
    counted = policy(kinds=["model", "counts", "statistic"])
    for name in ("fedridge", "fedtrees"):
        admit(counted, name, [9])
    assert "RankedCandidates.ranked, which 'score' sends, discloses" in refusal(counted, "auto")


def test_what_gives_features_away_needs_a_word():
    text = refusal(policy(), "fedsage_plus", exchange="outputs")
    assert "OutputComparison.gradient, which 'compare_outputs' sends, lets features of single nodes be computed" in text
    assert "Choose other settings than method.neighgen=own, method.exchange=outputs" in text
    admit(policy(recoverable=True), "fedsage_plus", [9], exchange="outputs")


def test_what_goes_on_to_other_silos():
    assert "Generator.weights, which 'offer' sends, goes on to other silos" in refusal(
        policy(relay=False), "fedsage_plus"
    )
    assert "TrainReply.values, which 'train' sends, goes on" in refusal(policy(relay=False), "fairfgl")
    admit(policy(relay=False), "fedavg", [9])


def test_rounds():
    made = policy(max_rounds=50)
    assert "takes part in 50 rounds at most (policy.max_rounds); the run has 51." in refusal(made, "fedavg", rounds=51)
    admit(made, "fedavg", [9], rounds=50)
    admit(made, "opfgl", [9])  # one round, whatever its setting says
    gate = Gate(made, [9])
    gate.admit(50)
    with pytest.raises(DisclosureError, match="this is round 51"):
        gate.admit(51)


def test_fedgcn_is_let_out_by_those_who_allow_edges_and_features_to_be_told():
    assert "Border.own, which 'border' sends, discloses facts about edges" in refusal(policy(), "fedgcn")
    kinds = [kind for kind in KINDS if kind != "logits"]
    assert "lets features of single nodes be computed" in refusal(policy(kinds=kinds), "fedgcn")
    admit(policy(kinds=kinds, recoverable=True), "fedgcn", [9])
    assert "Border.degrees, which 'border' sends, goes on" in refusal(
        policy(kinds=kinds, recoverable=True, relay=False), "fedgcn"
    )


def test_small_classes_before_a_run():
    made = policy(min_class_count=5)
    for name in NAMES:
        admit(made, name, [5, 0, 9])
    fields = {
        "fedlog": "GeneratorReply.generators", "fedpg": "TrainReply.prototypes", "fedgta": "TrainReply.moments",
        "ghost": "ProxyReply.generator",
    }  # fmt: skip
    for name, field in fields.items():
        assert f"{field}, which" in refusal(made, name, [5, 4, 9])
    for name in ("fedavg", "fedprox", "fedsage", "fedsage_plus", "fairfgl", "local"):
        admit(made, name, [5, 4, 9])
    admit(made, "fedlog", [5, 4, 9], local_generalization=False)


def test_a_setting_that_leaves_small_classes_out():
    made = policy(min_class_count=5)
    text = refusal(made, "opfgl", [5, 4, 9], min_count=4)
    assert "Statistics.counts, which 'statistics' sends, describes classes one by one" in text
    assert "Without secure sums set method.min_count to 5 or more; in secure sums, where every silo refuses" in text
    admit(made, "opfgl", [5, 4, 9], min_count=5)


def test_a_refusal_says_nothing_of_the_data():
    """Which class is small, and how small, is a note: it is no part of the text that goes to the coordinator."""
    with pytest.raises(DisclosureError) as caught:
        admit(policy(min_class_count=50), "fedpg", [90, 37, 90])
    assert "37" not in str(caught.value)
    assert caught.value.__notes__ == ["Classes with too few training items here: 1."]


# -- message by message ----------------------------------------------------------------------------------------------


def test_kinds_of_every_filled_field():
    gate = Gate(policy(kinds=["model", "counts"]), [9])
    gate.check("train", report(tags=["a"]))
    gate.check("train", report(rows=torch.zeros(0, 8)))  # no numbers, nothing said
    with pytest.raises(
        DisclosureError, match=r"Report.rows, which 'train' sends, discloses embeddings of single nodes"
    ):
        gate.check("train", report(rows=torch.zeros(1, 8)))
    with pytest.raises(DisclosureError, match=r"Report.more, .*kind 'logits'"):
        gate.check("train", report(more=[torch.zeros(1)]))
    with pytest.raises(DisclosureError, match=r"Report.number, .*kind 'counts'"):
        Gate(policy(kinds=["model"]), [9]).check("train", report())


def test_what_these_settings_never_send_does_not_leave():
    """A coordinator may ask for any step of a method, also for those of other settings than a run was opened with."""
    method = registry.load("fedsage_plus")
    reply = Comparison(gradient={"slot.0.bias": torch.zeros(2)})
    own, shared = (
        Gate(policy(kinds=["gradient"]), [9], config=method.config(neighgen=each)) for each in ("own", "shared")
    )
    assert own.check("compare", reply)
    with pytest.raises(
        DisclosureError, match=r"Comparison\.gradient, which 'compare' sends, leaves in runs with method\."
    ):
        shared.check("compare", reply)


def test_sizes_worked_by_hand():
    assert payload_bytes(report().weights) == 24 + 32 + 1 + 2
    assert payload_bytes(torch.zeros(3, 5, dtype=torch.bool)) == 15
    assert payload_bytes([torch.zeros(2), torch.zeros(2, dtype=torch.float16)]) == 8 + 4
    assert payload_bytes({"äb": [1, 0.5, True], "c": "dé"}) == 3 + 8 + 8 + 1 + 1 + 3
    assert Gate(policy(), [9]).check("train", report()) == 67
    assert Gate(policy(), [9]).check("train", report(tags=["x", "yz"], rows=torch.zeros(2, 2))) == 67 + 3 + 16


def test_the_size_of_a_message():
    assert Gate(policy(max_message_bytes=67), [9]).check("train", report()) == 67
    gate = Gate(policy(max_message_bytes=66), [9])
    with pytest.raises(DisclosureError, match=r"Report, which 'train' sends, has more bytes than .*: 66 ") as caught:
        gate.check("train", report())
    assert caught.value.__notes__ == ["The message has 67 bytes."]
    with pytest.raises(DisclosureError, match="more bytes"):  # text counts as tensors do
        Gate(policy(max_message_bytes=100), [9]).check("train", report(tags=["x" * 34]))
    assert gate.sent_bytes == 0


def test_the_size_of_a_run():
    gate = Gate(policy(max_run_bytes=200), [9])
    gate.check("train", report())
    gate.check("train", report())
    with pytest.raises(DisclosureError, match=r"more bytes out of the silo than 200 \(policy.max_run_bytes\)"):
        gate.check("train", report())
    assert gate.sent_bytes == 134
    gate.check("train", Report(weights={}, number=1.0))  # a smaller one still fits
    assert gate.sent_bytes == 142
    later = Gate(policy(max_run_bytes=200), [9], sent_bytes=142)  # the process was started again
    with pytest.raises(DisclosureError, match="this run"):
        later.check("train", report())


def test_the_size_of_all_runs_together():
    gate = Gate(policy(max_total_bytes=200), [9], spent=Spent(bytes=66))  # what the log says of earlier runs
    gate.check("train", report())
    gate.check("train", report())
    with pytest.raises(DisclosureError, match=r"in all runs than 200 \(policy.max_total_bytes\)"):
        gate.check("train", report())
    assert gate.spent.bytes == 200


def test_rows_of_small_classes():
    gate = Gate(policy(min_class_count=5), [5, 4, 0])
    gate.check("statistics", classes(0))
    gate.check("statistics", classes(0, 2))  # no item of class 2 here: what is said of it is not about this silo's
    with pytest.raises(DisclosureError, match=r"Classes.sums, which 'statistics' sends, describes classes one by one"):
        gate.check("statistics", classes(0, 1))
    Gate(policy(min_class_count=4), [5, 4, 0]).check("statistics", classes(0, 1))
    Gate(policy(), [5, 4, 0]).check("statistics", classes(0, 1))


@pytest.mark.parametrize("field", ["sums", "named", "counts"])
def test_every_field_is_looked_at(field):
    whole, part = classes(1), classes()
    values = {spec.name: getattr(part, spec.name) for spec in Classes.specs()} | {field: getattr(whole, field)}
    with pytest.raises(DisclosureError, match=f"Classes.{field},"):
        Gate(policy(min_class_count=5), [5, 4, 0]).check("statistics", Classes(**values))


def test_which_classes_are_described():
    assert described_classes(torch.tensor([[0.0, 0.0], [0.0, -1.0], [0.0, 0.0]]), 3) == [False, True, False]
    assert described_classes(torch.tensor([0, 0, float("nan"), 0]), 2) == [False, True]
    assert described_classes(torch.zeros(6, 2, 2), 3) == [False] * 3
    # What cannot be divided among the classes may be about any of them.
    assert described_classes(torch.zeros(4), 3) == [True] * 3
    assert described_classes(torch.tensor(0.0), 3) == [True] * 3
    assert described_classes([0, 0], 3) == [True] * 3
    assert described_classes({"a": 0}, 2) == [True] * 2
    assert described_classes([[0, 0], [0, 2]], 2) == [False, True]


def test_what_nobody_has_declared():
    with pytest.raises(DisclosureError, match=r"Undeclared.value, .* does not say whether it describes classes"):
        Gate(policy(min_class_count=5), [5, 4]).check("train", Undeclared(value=torch.zeros(2)))
    Gate(policy(min_class_count=5), [5, 5]).check("train", Undeclared(value=torch.ones(2)))


def evaluation(*items: int, weight: float = 9.0) -> EvaluateReply:
    """Tables of two classes over so many items, all of them right."""
    counts = torch.zeros(len(items), 4, 2, 2, dtype=torch.int32)
    counts[:, 1, 0, 0] = torch.tensor(items, dtype=torch.int32)
    return EvaluateReply(
        kinds={"own/seen": ["val", "test"]}, parts=[1], counts=counts, sizes=torch.tensor([30]),
        scores={"own/seen/test/auc": [0.5, weight], "own/seen/val/auc": [float("nan"), 0.0]},
    )  # fmt: skip


def test_evaluation_over_few_items():
    gate = Gate(policy(min_evaluation_count=5, min_class_count=5), [4])
    gate.check("evaluate", evaluation(5, 7))
    gate.check("evaluate", evaluation(0, 7))  # an empty set says nothing
    for reply in (evaluation(4, 7), evaluation(7, 1), evaluation(5, 5, weight=4.0)):
        with pytest.raises(DisclosureError, match=r"fewer items than its policy.min_evaluation_count of 5"):
            gate.check("evaluate", reply)
    Gate(policy(min_class_count=5), [4]).check("evaluate", evaluation(1, 1))  # tables have a minimum of their own


def test_a_bin_that_is_too_small_depends_on_the_answer() -> None:
    """Where only sums are seen, nobody learns why there is none; how many items there are in all, the card says."""
    gate = Gate(policy(min_evaluation_count=5), [])
    for reply, of_answer in (
        (ScoreCounts(bins={"own/seen/val": torch.tensor([[9, 4], [9, 9]])}), True), (evaluation(4, 7), False),
    ):  # fmt: skip
        with pytest.raises(DisclosureError) as caught:
            gate.check("evaluate", reply)
        assert caught.value.of_answer == of_answer


@pytest.mark.parametrize("items", [0, 4, 5])
def test_sums_of_scores_without_tables(items):
    """Of links there are scores alone, and each is a sum like any other."""
    name = "own/seen/test/auc"
    reply = EvaluateSums(
        counts={}, ranked={name: torch.tensor([[15.0], [30.0]], dtype=torch.float64)},
        items={name: torch.tensor([items])}, sizes={"own/seen": torch.tensor([30])},
    )  # fmt: skip
    gate = Gate(policy(min_evaluation_count=5), [])
    if items != 4:
        gate.check("evaluate_sums", reply)
        return
    with pytest.raises(DisclosureError, match=r"fewer items than its policy.min_evaluation_count of 5"):
        gate.check("evaluate_sums", reply)


@pytest.mark.parametrize(
    ("items", "rests_on", "leaves"), [(5, 5.0, True), (0, 0.0, True), (4, 5.0, False), (5, 4.0, False)]
)
def test_scores_of_candidates_are_an_evaluation(items, rests_on, leaves):
    """Tables of validation items, and what a metric of scores rests on."""
    counts, ranked = torch.zeros(2, 3, 3, dtype=torch.int64), torch.full((2, 2), rests_on, dtype=torch.float64)
    counts[:, 1, 2] = items
    reply, gate = Candidates(counts=counts, ranked={"auc": ranked}), Gate(policy(min_evaluation_count=5), [])
    if leaves:
        gate.check("score", reply)
        return
    with pytest.raises(DisclosureError, match=r"fewer items than its policy.min_evaluation_count of 5"):
        gate.check("score", reply)


@pytest.mark.parametrize("sums", [False, True])
def test_tables_of_training_items_describe_small_classes(sums):
    """However the 4 items of class 1 are predicted; those of validation items are not about training."""
    counts = torch.zeros(2, 4, 2, 2, dtype=torch.int32)
    counts[0, 1, 0, 0], counts[0, 2, 1, 0], counts[1, 0, 1, 0] = 9, 4, 1

    def reply(*kinds: str) -> Message:
        if sums:
            return EvaluateSums(
                counts={f"own/seen/{kind}": table.long() for kind, table in zip(kinds, counts, strict=True)},
                sizes={"own/seen": torch.tensor([30])},
            )  # fmt: skip
        return EvaluateReply(
            kinds={"own/seen": list(kinds)}, parts=[1], counts=counts, sizes=torch.tensor([30]), scores={}
        )

    gate = Gate(policy(min_class_count=5), [9, 4])
    with pytest.raises(
        DisclosureError, match=r"\.counts, which 'evaluate' sends, describes classes .* take such a class"
    ):
        gate.check("evaluate", reply("train", "val"))
    gate.check("evaluate", reply("val", "test"))
    Gate(policy(min_class_count=4), [9, 4]).check("evaluate", reply("train", "val"))
    Gate(policy(min_class_count=5), [9, 0]).check("evaluate", reply("train", "val"))


def test_sums_that_scale_features():
    policy().check_scaling()
    with pytest.raises(DisclosureError, match=r"\(kind 'statistic'\).*write `features: {scale_by: silo}`"):
        policy(kinds=["model", "counts"]).check_scaling()
    gate = Gate(policy(min_evaluation_count=5, min_class_count=9), [4])
    column = torch.ones(2, dtype=torch.float64)
    for rows in (0, 5):  # no row says nothing; the sums describe no class
        gate.check(
            "feature_squares",
            FeatureSquares(num_samples=rows, squares=column, members=torch.zeros(0, dtype=torch.int64)),
        )
    for rows in (1, 4):
        with pytest.raises(
            DisclosureError, match=r"over fewer rows here than this silo's policy.min_evaluation_count of 5"
        ):
            gate.check(
                "feature_squares",
                FeatureSquares(num_samples=rows, squares=column, members=torch.zeros(0, dtype=torch.int64)),
            )


def test_whose_errors_are_told():
    quiet, open_ = Gate(policy(), [9]), Gate(policy(error_texts=True), [9])
    for error in (MessageError("a"), DisclosureError("a")):
        assert quiet.may_report(error)
    for error in (ValueError("could not convert 'Meyer'"), DataError("row 3 holds 'Meyer'"), MemoryError()):
        assert not quiet.may_report(error)
        assert open_.may_report(error)


# -- nothing passes that is not allowed ------------------------------------------------------------------------------


def answers() -> Iterator[tuple[str, type[Message]]]:
    """The answers of every step of every method."""
    found: dict[type[Message], str] = {}
    for name in registry.names():
        client = registry.load(name).client
        for step in (getattr(client, key, None) for key in dir(client)):
            if isinstance(step, Handler):
                found.setdefault(step.types()[1], step.name)
    for kind in (Report, Classes):
        found[kind] = "report"
    yield from ((step, kind) for kind, step in found.items())


ANSWERS = list(answers())


def plain_value(draw: st.DrawFn, annotation: object) -> object:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in (int, float):
        return draw(st.integers(0, 9))
    if annotation in (str, bool):
        return draw(st.text(max_size=3) if annotation is str else st.booleans())
    if origin is dict:
        keys = draw(st.lists(st.text(max_size=3), max_size=2, unique=True))
        return {key: plain_value(draw, arguments[1]) for key in keys}
    return [plain_value(draw, arguments[0]) for _ in range(draw(st.integers(0, 2)))]


def field_value(draw: st.DrawFn, spec: FieldSpec) -> object:
    if spec.optional and draw(st.booleans()):
        return None
    if spec.form == "plain":
        return plain_value(draw, spec.plain_type)
    dimensions = [size if isinstance(size, int) else draw(st.integers(0, 2)) for size in spec.shape or (2, "x")]
    tensor = torch.full(dimensions, draw(st.integers(0, 1)), dtype=draw(st.sampled_from([torch.float32, torch.int64])))
    if spec.form == "tensor":
        return tensor
    count = draw(st.integers(0, 2))
    return {f"w{index}": tensor for index in range(count)} if spec.form == "tensors" else [tensor] * count


@st.composite
def messages(draw: st.DrawFn) -> tuple[str, Message]:
    step, kind = draw(st.sampled_from(ANSWERS))
    return step, kind(**{spec.name: field_value(draw, spec) for spec in kind.specs()})


@settings(max_examples=200, deadline=None)
@given(
    message=messages(),
    kinds=st.sets(st.sampled_from(sorted(KINDS))),
    relay=st.booleans(),
    recoverable=st.booleans(),
    most=st.integers(1, 200),
)
def test_no_field_that_is_not_allowed_ever_passes(message, kinds, relay, recoverable, most):
    """A message passes if and only if every filled field may leave, and it is not too large."""
    step, reply = message
    made = DisclosurePolicy(kinds=tuple(kinds), relay=relay, recoverable=recoverable, max_message_bytes=most)
    filled = [spec for spec in reply.specs() if is_filled(getattr(reply, spec.name))]
    allowed = all(
        spec.kind in {*kinds, "control"}
        and (relay or not spec.relayed)
        and (recoverable or spec.recoverable is not True)
        for spec in filled
    )
    size = sum(payload_bytes(getattr(reply, spec.name)) for spec in filled)
    gate = Gate(made, [3, 3, 3])
    if allowed and size <= most:
        assert gate.check(step, reply) == size == gate.sent_bytes
    else:
        with pytest.raises(DisclosureError):
            gate.check(step, reply)
        assert gate.sent_bytes == 0


# -- noise -------------------------------------------------------------------------------------------------------------


def release(mu: float, honest: int = 1) -> Release:
    return Release(numbers=torch.zeros(3, dtype=torch.int64), clients=1, mu=mu, honest=honest)


def test_releases_add_up_to_the_bound_and_no_further():
    """Three with μ of 0.6, 0.8 and 1 are one with √2, and a log that says so leaves no room for a fourth."""
    bound = noise.epsilon_of(math.sqrt(2.0), 1e-5)
    gate = Gate(policy(max_epsilon=bound), [9, 9])
    for mu in (0.6, 0.8, 1.0):
        gate.check("noisy_statistics", release(mu))
    assert gate.spent.mu == pytest.approx(math.sqrt(2.0))
    with pytest.raises(DisclosureError, match=r"all that this silo has sent would come to more than ε = ") as caught:
        gate.check("noisy_statistics", release(0.1))
    assert f"{bound:.4g}" in caught.value.__notes__[0]
    assert gate.spent.mu == pytest.approx(math.sqrt(2.0))
    later = Gate(policy(max_epsilon=bound), [9, 9], spent=gate.spent)
    with pytest.raises(DisclosureError, match=r"policy\.max_epsilon"):
        later.check("noisy_statistics", release(0.1))


def test_where_there_is_a_bound_nothing_of_training_leaves_without_noise():
    strict = policy(max_epsilon=8.0)
    with pytest.raises(DisclosureError, match=r"Report\.weights, which 'train' sends, has no noise"):
        Gate(strict, [9]).check("train", Report(weights={"w": torch.ones(1)}, number=1.0))
    assert Gate(strict, [9]).check("adopt", Report(weights={}, number=1.0)) >= 0
    with pytest.raises(DisclosureError, match="have no noise"):
        strict.check_scaling()
    admit(strict, "fedridge", epsilon=8.0)
    for settings_of, has in (({}, "none"), ({"epsilon": 9.0}, "ε = 9")):
        assert re.search(rf"for ε = 8 at most.*this run has {has}", refusal(strict, "fedridge", **settings_of))
    assert "Choose a method that has" in refusal(strict, "fedavg")


def test_shared_noise_counts_only_where_the_owner_says_so():
    """It is counted as the whole release that the sum is: three of μ = 1 are √3."""
    config = {"epsilon": 4.0, "noise": "sum"}
    share = release(1.0, honest=4)
    strict, trusting = policy(max_epsilon=9.0), policy(max_epsilon=9.0, shared_noise=True)
    assert re.search(r"wants all of the noise in its own .*policy\.shared_noise", refusal(strict, "fedridge", **config))
    with pytest.raises(DisclosureError, match="wants all of the noise in its own answer"):
        Gate(strict, [9, 9]).check("noisy_statistics", share)
    admit(trusting, "fedridge", **config)
    admit(policy(), "fedridge", **config)  # without a bound what has no noise leaves, too
    gate = Gate(trusting, [9, 9])
    for _ in range(3):
        gate.check("noisy_statistics", share)
    assert gate.spent.mu == pytest.approx(math.sqrt(3.0))


@pytest.mark.parametrize("name", ["fedridge", "opfgl"])
def test_small_classes_may_be_in_sums_with_noise_that_the_owner_bounds(name):
    """A coordinator may take ε = 10^6: without a bound, noise keeps no class in."""
    sent = release(1.0)
    careful, bounded = policy(min_class_count=5), policy(min_class_count=5, max_epsilon=8.0)
    for epsilon in (1e6, 8.0):
        text = refusal(careful, name, [2, 9], epsilon=epsilon)
        assert "Release.numbers, which 'noisy_statistics' sends, does not say whether it describes classes" in text
        assert "with noise it may leave where policy.max_epsilon bounds that" in text
        admit(careful, name, [5, 9], epsilon=epsilon)
    with pytest.raises(DisclosureError, match="min_class_count"):
        Gate(careful, [2, 9]).check("noisy_statistics", sent)
    Gate(careful, [5, 9]).check("noisy_statistics", sent)
    admit(bounded, name, [2, 9], epsilon=8.0)
    Gate(bounded, [2, 9]).check("noisy_statistics", sent)
    assert "policy.max_epsilon" in refusal(bounded, name, [2, 9], epsilon=1e6)
    assert "min_class_count" in refusal(careful, name, [2, 9])
    plain = {"min_count": 5, **({"expand": False} if name == "opfgl" else {})}
    admit(careful, name, [2, 9], **plain)  # whose settings have no noise
