"""What the owner of a silo reads of a run before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from msgspec.structs import replace

from graphsilo.attacks import findings
from graphsilo.attacks.findings import Finding
from graphsilo.data.silos.own import read_silo_file
from graphsilo.errors import ConfigError, RunError
from graphsilo.experiments.config import load_config
from graphsilo.federation import noise, registry
from graphsilo.federation.journal import Journal
from graphsilo.federation.release import Release
from graphsilo.methods.fedavg import TrainReply
from graphsilo.report import silo_page

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tables" / "hospital.yaml"


@pytest.fixture
def explained(tmp_path):
    def explain(method, *assignments, policy=None, features=None, log=None):
        path = tmp_path / "silo.yaml"
        content = {"name": "north", "data": str(EXAMPLE), "policy": policy or {}, "split": {"ratios": [0.4, 0.3, 0.3]}}
        path.write_text(yaml.safe_dump({**content, **({"features": features} if features else {})}))
        described = read_silo_file(path)
        held = described.silo_of(described.read(), 0)
        quick = {f"method.{name}": value for name, value in registry.load(method).quick.items()}
        config = load_config(None, overrides={"method.name": method, **quick}, assignments=assignments)
        return silo_page.explain(described, held, config, log)

    return explain


def sent(found):
    return {step.step: step for step in found.sent}


def promise(found, start):
    return next(promise for promise in found.promises if promise.what.startswith(start))


def test_fedavg_sends_a_model_in_every_round_and_scores_of_the_silo(explained):
    found = explained("fedavg", "method.rounds=7")
    assert found.verdict == "Under its policy the silo 'north' takes part in this run."
    assert ("length", "7 rounds, 1 seed") in found.run
    steps = sent(found)
    assert list(steps) == ["counting classes", "scaling features", "train", "evaluate"]
    assert steps["train"].when == "In each round that asks this silo, of 7 rounds"
    assert ("model weights", "weights") in steps["train"].discloses
    assert "could look at this silo's" in steps["train"].seen
    assert steps["evaluate"].seen == "the coordinator, this silo's by itself"


def test_what_is_not_sent_with_these_settings_is_left_out(explained):
    own = explained("fedridge", features={"scale": "none"})
    noisy = explained("fedridge", "method.epsilon=2", features={"scale": "none"})
    assert "noisy_statistics" in sent(noisy)
    assert "noisy_statistics" not in sent(own)
    assert "scaling features" not in sent(noisy)
    assert not promise(own, "What training sends").holds
    assert promise(noisy, "What training sends").holds
    assert "ε = 2" in promise(noisy, "What training sends").why


def test_masked_sums_are_promised_only_if_scores_are_summed_too(explained):
    half = explained("fedavg", "run.secure_sums=true", "evaluation.threshold_by=federation")
    whole = explained("fedavg", "run.secure_sums=true", "evaluation.report=federation", policy={"min_silos": 5})
    assert "sum of at least 5 silos" in sent(whole)["train"].seen
    assert "evaluate_sums" in sent(whole)
    assert "sum of at least 5 silos" in sent(whole)["evaluate_sums"].seen
    assert sent(half)["evaluate"].seen == "the coordinator, this silo's by itself"
    assert "the sum of at least 3 silos" in sent(half)["evaluate_bins"].seen
    assert not promise(half, "The coordinator sees sums").holds
    assert promise(whole, "The coordinator sees sums").holds
    assert "does not insist" in promise(whole, "The coordinator sees sums").why


def test_all_refusals_are_listed_in_the_words_of_the_policy(explained):
    policy = {"methods": ["fedprox"], "require_secure_sums": True, "kinds": ["model", "counts"]}
    found = explained("fedavg", policy=policy)
    assert found.verdict.endswith("does not take part in this run.")
    first, second, third = found.refusals
    assert "policy.methods allows fedprox" in first
    assert "policy.require_secure_sums" in second
    assert "scale of their features" in third
    assert ("policy.kinds", "model, counts") in found.limits


def test_every_reference_row_says_whether_the_silo_takes_part(explained):
    """FedRidge has one round, the row ``local`` beside it a hundred; a policy of three rounds refuses that row."""
    asked = ("run.references=[local, majority, fedridge]",)
    free, bound = explained("fedridge", *asked), explained("fedridge", *asked, policy={"max_rounds": 3})
    alone, constant, ridge = (text for name, text in free.run if name == "afterwards")
    assert alone.startswith(
        "for comparison, every silo trains the backbone by itself (method local): what evaluation sends leaves once"
    )
    assert "(method majority): what evaluation sends" in constant
    assert "(method fedridge): this silo takes part" in ridge
    refused, *others = (text for name, text in bound.run if name == "afterwards")
    assert "without this silo: this silo takes part in 3 rounds at most (policy.max_rounds); the run has 100" in refused
    assert others == [constant, ridge]
    assert bound.refusals == []
    (why,) = explained("fedridge", "run.references=[global]").refusals
    assert "No coordinator begins such a run: the reference 'global' trains on all data in one place" in why


def test_lines_of_a_policy_that_refuse_nothing_say_what_they_need(explained):
    lines = {"min_silos": 5, "shared_noise": True, "max_delta": 1e-6, "max_total_bytes": 50, "max_run_bytes": "1 kB"}
    found = dict(explained("fedavg", policy=lines).limits)
    assert found["policy.max_total_bytes"] == "50"
    assert "5 (without effect here: it counts the silos of secure sums" in found["policy.min_silos"]
    assert found["policy.min_silos"].endswith("policy.require_secure_sums refuses those)")
    assert found["policy.shared_noise"].endswith("it goes with policy.max_epsilon, which is not set)")
    assert found["policy.max_delta"].startswith("1e-06 (without effect here")
    assert found["policy.max_run_bytes"].endswith("policy.max_total_bytes is less)")
    held = dict(explained("fedavg", "run.secure_sums=true", policy={**lines, "max_epsilon": 3}).limits)
    assert [held[f"policy.{name}"] for name in ("min_silos", "shared_noise")] == ["5", "yes"]


@pytest.mark.slow
def test_what_passes_on_and_describes_classes_is_said(explained):
    found = explained("fedlog")
    assert any("class by class" in words for words, _ in sent(found)["train"].discloses)
    gone = explained("fedlog", policy={"min_class_count": 1000})
    assert any("min_class_count" in text for text in gone.refusals)
    assert promise(gone, "Classes with few").holds


def test_an_owner_reads_when_features_can_be_computed_from_what_leaves(explained):
    """The gradient leaves under the usual policy: no bound keeps features out of it."""
    found = explained("fedsage_plus")
    assert not found.refusals
    said = "(features of single nodes can be computed from it where few rows were compared, or such as the "
    assert any(said in words for words, _ in sent(found)["compare"].discloses)


def test_the_log_is_summed_up_by_run_and_spent_noise_counts(explained, tmp_path):
    log = tmp_path / "north.jsonl"
    journal = Journal(log)
    reply = TrainReply(weights={"w": torch.zeros(10)}, num_samples=23.0)
    for number in (1, 2):
        journal.note_message("sent", "first", "fedavg", number, "train", reply)
    journal.note("refused", "first", "fedavg", 3, "train", "too much")
    mu = noise.mu_of(4.0, 1e-5)
    release = Release(numbers=torch.zeros(7, dtype=torch.int64), clients=1, mu=mu, honest=1)
    journal.note_message("sent", "second", "fedridge", 0, "noisy_statistics", release)
    found = explained("fedavg", log=log)
    first, second = found.past
    assert (first.run, first.messages, first.refused, second.method) == ("first", 2, 1, "fedridge")
    assert first.kinds.startswith("model weights 82 B")
    assert found.spent == "Releases with noise came to ε = 4 at δ = 1e-05 so far."
    again = {"scale": "none"}
    fits = explained("fedridge", "method.epsilon=4", features=again, policy={"max_epsilon": 6.1}, log=log)
    tight = explained("fedridge", "method.epsilon=4", features=again, policy={"max_epsilon": 5}, log=log)
    assert fits.refusals == []
    assert "would come to ε = 5.99" in tight.refusals[0]


def test_a_pooled_reference_takes_no_silo_in_and_a_missing_log_is_named(explained, tmp_path):
    with pytest.raises(ConfigError, match="silos do not take part"):
        explained("global")
    with pytest.raises(RunError, match="is not there"):
        explained("fedavg", log=tmp_path / "none.jsonl")


@pytest.mark.slow
def test_what_attacks_found_from_such_messages_is_listed(explained, monkeypatch):
    known = Finding(
        method="fedavg", variant="", attacker="coordinator", attack="rows", figure="share recovered", value=0.25,
        low=0.2, high=0.31, prior=None, targets=80, data="Cora", commit="abc",
    )  # fmt: skip
    weak = replace(known, variant="secure sums", value=0.01, low=0.0, prior=0.01)
    other = replace(known, method="fedlog")
    monkeypatch.setattr(findings, "load", lambda: (known, weak, other))
    found = explained("fedavg")
    (first,) = silo_page.attack_rows(found)
    (second,) = silo_page.attack_rows(explained("fedavg", "run.secure_sums=true"))
    assert len(explained("fedlog", "run.secure_sums=true").attacks) == 1  # none with masks: what there is
    assert first[1:] == ("the coordinator", "as it comes", "0.25 (0.20 to 0.31)", "0", "better than without")
    assert second[2:] == ("secure sums", "0.01 (0.00 to 0.31)", "0.01", "no better than without")
    page = silo_page.render(found, [], "")
    assert "public data (Cora)" in page
    assert "rows: share recovered" in page


def test_attacks_on_scores_are_those_of_runs_that_show_scores_alike(explained, monkeypatch):
    """With masks, but every silo's scores by themselves, the coordinator has the counts that it has without masks."""
    plain = Finding(
        method="fedavg", variant="", attacker="coordinator", attack="classes, from evaluation", figure="AUC",
        value=0.98, low=0.95, high=1.0, prior=0.65, targets=70, data="Cora", commit="abc",
    )  # fmt: skip
    masked = replace(plain, variant="secure sums", value=0.65, low=0.5, high=0.78)
    rows = replace(plain, attack="rows"), replace(masked, attack="rows")
    monkeypatch.setattr(findings, "load", lambda: (plain, masked, *rows))

    def found(*settings):
        return [(each.attack, each.variant) for each in explained("fedavg", *settings).attacks]

    alone, whole = "run.secure_sums=true", "evaluation.report=federation"
    assert found(alone) == [("classes, from evaluation", ""), ("rows", "secure sums")]
    assert found(alone, whole) == [("classes, from evaluation", "secure sums"), ("rows", "secure sums")]
    assert found(whole) == [("classes, from evaluation", ""), ("rows", "")]


def test_the_page_holds_what_was_found_and_asks_nothing_of_anyone(explained):
    found = explained("fedavg", policy={"methods": ["fedprox"]})
    page = silo_page.render(found, [("name", "<b>north</b>")], "What stays here: all.")
    assert "&lt;b&gt;north" in page
    assert "<b>north" not in page
    assert "Why not" in page
    assert "policy.methods allows fedprox" in page
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dp_fedavg", "opfgl", "fedridge"])
def test_shared_noise_has_the_steps_of_a_run_with_noise_and_masks(explained, method):
    wanted = ("method.epsilon=1", "method.noise=sum", "run.secure_sums=true", "evaluation.report=federation")
    steps = sent(explained(method, *wanted, features={"scale": "none"}))
    noisy = next(name for name in steps if "noisily" in name or "noisy" in name)
    assert "masked" in steps[noisy].seen
    assert not {"train", "statistics", "condense", "count"} & set(steps)


def test_steps_that_no_trial_run_shows_are_listed_as_unknown(explained, monkeypatch):
    monkeypatch.setattr(silo_page, "_try_run", lambda method, config: None)
    assert "no trial run could be made" in sent(explained("fedavg"))["train"].when


def test_noise_for_silos_is_not_said_to_be_for_nodes(explained):
    found = explained("dp_fedavg", "method.epsilon=8", "method.noise=silo", features={"scale": "none"})
    assert promise(found, "What training sends does not depend much on whether this silo takes part").holds


def test_an_epsilon_too_large_at_the_policys_delta_is_said_with_it(explained):
    settings = ("method.epsilon=4", "method.delta=0.01")
    found = explained("fedridge", *settings, features={"scale": "none"}, policy={"max_epsilon": 4})
    (text,) = found.refusals
    assert "this run has ε = 7.02" in text


def test_a_bound_on_one_message_is_none_on_how_much_leaves(explained):
    free, bound = explained("fedavg"), explained("fedavg", policy={"max_run_bytes": "1 MB"})
    assert not promise(free, "There is a bound").holds
    assert "no bound on how many" in promise(free, "There is a bound").why
    assert promise(bound, "There is a bound").holds
    assert promise(bound, "There is a bound").why.startswith("At most 1.0 MB (policy.max_run_bytes)")


def test_a_file_that_is_no_log_does_not_say_that_nothing_has_left(explained, tmp_path):
    log = tmp_path / "north.jsonl"
    log.write_text("hello\n")
    with pytest.raises(RunError, match="no log that a silo keeps: not one of its lines can be read"):
        explained("fedavg", log=log)
    Journal(log).note_message("sent", "first", "fedavg", 1, "train", TrainReply(weights={}, num_samples=1.0))
    assert "1 line of the log cannot be read" in explained("fedavg", log=log).warnings[0]


def test_noise_on_a_part_of_what_is_sent_is_no_promise_of_all(explained):
    rates = promise(explained("fedlog", "method.rate_epsilon=1"), "What training sends")
    assert not rates.holds
    assert "They alone" in rates.why


@pytest.mark.slow
def test_runs_that_no_coordinator_begins_are_named(explained):
    shared = explained("opfgl", "method.epsilon=8", "method.noise=sum", features={"scale": "none"})
    assert "No coordinator begins such a run: with method.noise=sum" in shared.refusals[0]
    assert not promise(shared, "What training sends").holds
    (single,) = explained("gcfl", "run.secure_sums=true").refusals
    assert "needs every client's update" in single
    (masked,) = explained("fedavg", "run.secure_sums=true", "run.compression=topk").refusals
    assert masked.startswith("No coordinator begins such a run: run.compression sends a part of each model")
    (nothing,) = explained("fedridge", "run.compression=int8", features={"scale_by": "silo"}).refusals
    assert "no answer of FedRidge holds a model that the client was sent" in nothing
    (needed,) = explained("dp_fedavg", "method.epsilon=8", features={"scale": "none"}).refusals
    assert needed.startswith("No coordinator begins such a run: with method.noise=sum")
    (own,) = explained("local", "evaluation.report=federation", "method.best_round=own").refusals
    assert "method.best_round=own takes every client's own score" in own


def test_a_compressed_model_is_said_to_be_one(explained):
    def leaves(*settings):
        return sent(explained("scaffold", *settings))["train"].discloses

    assert leaves()[0] == ("model weights", "weights")
    (model, names), *rest = leaves("run.compression=topk", "run.top_share=0.05")
    assert (model.partition(", as the largest ")[::2], names) == (
        (
            "model weights",
            "5 % of their change: 8 bytes for each of these numbers, not 4 for all (run.compression=topk)",
        ),
        "weights",
    )
    assert tuple(rest) == leaves()[1:]  # control variates and counts go as they are


def test_sets_too_small_to_be_scored_are_spoken_of_before_the_run(explained):
    (text,) = explained("fedavg", policy={"min_evaluation_count": 30}).warnings
    assert text.startswith("With 18 val and 19 test items, fewer than policy.min_evaluation_count of 30")
    found = explained("fedavg", policy={"min_evaluation_count": 100})
    assert "are over fewer rows here than this silo's policy.min_evaluation_count of 100" in found.refusals[0]
    assert explained("fedavg", policy={"min_evaluation_count": 10}).warnings == []
    (text,) = explained("fedavg", policy={"min_class_count": 1000}).warnings
    assert text.startswith("With a class of fewer training items than policy.min_class_count of 1000, scores of this")
