"""What a coordinator that keeps to no script gets to know of silos that make secure sums with it: sums."""

from __future__ import annotations

import hmac
import itertools
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphsilo import models
from graphsilo.data.silos.own import read_silo_file
from graphsilo.errors import ConfigError, DisclosureError, FederationError, MessageError, RunError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.service.run_over import run_over
from graphsilo.federation import registry
from graphsilo.federation.client import ClientBase, EvaluateReply, EvaluateRequest, EvaluateSums
from graphsilo.federation.codec import decode, encode
from graphsilo.federation.release import Release, ReleaseRequest
from graphsilo.federation.secure import CALL, opened
from graphsilo.methods.fedavg import TrainReply, TrainRequest
from graphsilo.methods.fedlog.messages import RangeReply, RangeRequest
from graphsilo.methods.fedridge import private
from graphsilo.methods.fedridge.messages import AdoptRequest, CountRequest, Counts, Statistics, StatisticsRequest
from graphsilo.runtime.hosted import HostedClient
from graphsilo.runtime.site import worker
from kit.here import Here, Straight
from kit.questions import Questions
from kit.secure import garbling, lying
from kit.site_tables import write_tables

MOST_OFFERED = 6  # not a silo's own limit, which takes a while to come to


@pytest.fixture(autouse=True)
def _few_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "MOST_OFFERED", MOST_OFFERED)


def statistics_request(asked: Any, weight: float = 1.0) -> StatisticsRequest:
    """FedRidge's, with class weights that move what silos answer as little as one likes."""
    recipe = asked.config.recipe("mean", 0, 2048, asked.schema)
    features = asked.schema.num_features
    weights = torch.full((1, asked.schema.num_classes), weight, dtype=torch.float64)
    return StatisticsRequest(
        kinds=["mean"], dim=2048, class_weights=weights, size=1.0, blocks={"mean": recipe.blocks(features, None)},
        constants={"mean": recipe.constant(features)},
    )  # fmt: skip


@pytest.fixture
def asked(tmp_path: Path) -> Questions:
    return Questions(tmp_path)


# -- what was agreed at the opening ------------------------------------------------------------------------------------


def test_a_run_that_was_opened_with_secure_sums_gives_no_single_answer(asked: Questions) -> None:
    """The owners have written no policy: what was agreed holds all the same, for every step but the one agreed on."""
    asked.open()
    for step, message in (
        ("count", CountRequest()), ("statistics", statistics_request(asked)),
        ("evaluate", EvaluateRequest(views=["own"])),
    ):  # fmt: skip
        with pytest.raises(DisclosureError, match="opened with secure sums, in which nothing but sums is seen"):
            asked.call(0, step, message)
    asked.open("run-2", report="silos")
    with pytest.raises(DisclosureError, match="Statistics, which 'statistics' sends, would be seen by itself"):
        asked.call(0, "statistics", statistics_request(asked), "run-2")
    assert decode(asked.call(0, "evaluate", EvaluateRequest(views=["own"]), "run-2"), EvaluateReply).kinds
    asked.open("run-3", secure=False)
    assert decode(asked.call(0, "statistics", statistics_request(asked), "run-3"), Statistics).num_samples > 0


@pytest.mark.parametrize("other", [{"secure": False}, {"report": "silos"}])
def test_a_run_is_not_opened_again_with_other_words(asked: Questions, other: dict[str, Any]) -> None:
    asked.open()
    for answer in asked.open(**other):
        assert not answer["ok"]
        assert "was opened here with other words on what is seen of single silos" in answer["text"]
    asked.join()  # all sites are started anew
    assert [answer["kind"] for answer in asked.open(**other)] == ["DisclosureError"] * 5
    assert all(answer["ok"] for answer in asked.open())
    for client in asked.workers:  # nothing to tell, and checkpoints to forget, as of a reference row
        assert asked.ask(client, {"do": "result", "run": "run-1", "results": [], "config": {}}).header["ok"]
    asked.join()
    assert [answer["kind"] for answer in asked.open(**other)] == ["DisclosureError"] * 5
    opened = next(asked.folder.rglob("opened.json"))
    opened.write_text("{")
    assert "cannot read" in asked.open(**other)[int(opened.parts[-4][-1])]["text"]


@pytest.mark.parametrize("secure", [True, False])
def test_a_checkpoint_is_the_sites_own(asked: Questions, secure: bool) -> None:
    """A kit that the coordinator hands over may hold one of its making, with all the hashes that it can compute."""
    asked.open(secure=secure, report="federation" if secure else "silos")
    assert asked.ask(0, {"do": "save", "run": "run-1", "seed": 0, "mark": "seed0-round1"}).header["ok"]
    path = next((asked.folder / "site0").rglob("seed0-round1.ckpt"))
    tree = path.read_bytes()[32:]
    path.write_bytes(hmac.digest(b"", b"run-1 seed0-round1 " + tree, "sha256") + tree)
    found = asked.ask(0, {"do": "restore", "run": "run-1", "seed": 0, "mark": "seed0-round1"}).header
    assert found["ok"] is not secure
    assert secure is ("was written by somebody else" in found.get("text", ""))


def test_another_silo_at_the_site_leaves_checkpoints_as_they_are(asked: Questions) -> None:
    asked.open()
    mark = {"run": "run-1", "seed": 0, "mark": "seed0-round1"}
    assert asked.ask(0, {"do": "save", **mark}).header["ok"]
    folder = asked.folder / "site0"
    both = worker.members_of([(0, asked.files[0]), (7, asked.files[1])], folder, {})
    asked.workers[0] = worker.SiteWorker(both, folder)
    assert asked.open()[0]["ok"]
    assert asked.ask(0, {"do": "restore", **mark}).header["ok"]


def test_no_run_begins_on_a_disk_that_is_nearly_full(asked: Questions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "free_disk", lambda folder: 999_999_999)
    for answer in asked.open():
        assert not answer["ok"]
        assert "less than 1 GB free on the disk of its folder" in answer["text"]
    assert not list(asked.folder.rglob("results"))
    monkeypatch.setattr(worker, "free_disk", lambda folder: 1_000_000_000)
    asked.open()


def test_words_of_a_failure_that_cannot_be_logged_do_not_leave(tmp_path: Path) -> None:
    asked = Questions(tmp_path, silos=1)
    asked.method = "fedavgg"
    assert "unknown method 'fedavgg'" in asked.open()[0]["text"]
    shutil.rmtree(tmp_path / "site0" / "sent")
    (tmp_path / "site0" / "sent").write_text("in the way, as a full disk is")
    assert asked.open()[0]["text"] == "this site cannot write its silos' logs."


# -- the same sum of others --------------------------------------------------------------------------------------------

MORE = (
    DisclosureError,
    r"these data were opened before in a sum with other silos \(0 are new, 1 are not there any more\)",
)


def ask_fewer(asked: Questions, run: str = "run-1", round: int = 0) -> None:
    """Four of the five silos that were asked before, with class weights that differ in the seventh digit."""
    with pytest.raises(MORE[0], match=MORE[1]):
        asked.sum("statistics", statistics_request(asked, 1 + 1e-6), Statistics, [0, 1, 2, 3], run, round)


@pytest.mark.slow
def test_a_question_that_is_as_good_as_the_same_is_not_answered_without_one(tmp_path: Path) -> None:
    """The difference was Σ φφᵀ of one silo to 3.6e-6: in one round, and in whatever round, run or federation."""
    asked = Questions(tmp_path, policy={"require_secure_sums": True, "min_silos": 4})
    asked.open()
    total = asked.sum("statistics", statistics_request(asked), Statistics, range(5))
    assert total.num_samples > 0
    ask_fewer(asked)
    ask_fewer(asked, round=7)
    asked.open("run-2")
    ask_fewer(asked, "run-2")
    asked.join()  # all sites are started anew
    asked.open("run-3")
    ask_fewer(asked, "run-3")
    asked.join("other-kit")  # of another federation, which has the same data
    asked.open("run-1")
    ask_fewer(asked)
    for client, file in enumerate(asked.files):  # one that calls these silos otherwise
        asked.files[client] = second = file.with_name("second.yaml")
        second.write_text(file.read_text().replace(f"silo{client}", f"clinic{client}"))
    asked.join("third-kit")
    asked.open("run-1")
    ask_fewer(asked)
    # With the same silos they answer as often as one likes, of that federation, too.
    asked.open("run-2")
    again = asked.sum("statistics", statistics_request(asked), Statistics, range(5), "run-2")
    assert again.num_samples == total.num_samples


@pytest.mark.slow
def test_it_is_the_data_as_they_are_and_not_as_a_coordinator_has_them_read(asked: Questions) -> None:
    """It may say in which order classes are, and that features are kept as CSR."""
    asked.open()
    asked.sum("statistics", statistics_request(asked), Statistics, range(5))
    asked.join()
    asked.open("run-2", sparse=True)
    ask_fewer(asked, "run-2")
    asked.schema = replace(asked.schema, class_names=tuple(reversed(asked.schema.class_names or ())))
    assert all(answer["ok"] for answer in asked.open("run-3"))
    ask_fewer(asked, "run-3")


def test_another_step_of_another_method_is_not_answered_without_one(asked: Questions) -> None:
    """Models say of the data what other sums do."""
    asked.open()
    asked.sum("statistics", statistics_request(asked), Statistics, range(5))
    asked.method, asked.config = "fedavg", registry.load("fedavg").config()
    assert all(answer["ok"] for answer in asked.open("run-2"))
    with pytest.raises(MORE[0], match=MORE[1]):
        asked.sum("evaluate_sums", EvaluateRequest(views=["own"]), EvaluateSums, [0, 1, 2, 3], "run-2")


def test_a_damaged_record_opens_nothing(asked: Questions) -> None:
    asked.open()
    asked.sum("statistics", statistics_request(asked), Statistics, range(5))
    record = read_silo_file(asked.files[2]).record("opened")
    record.write_bytes(record.read_bytes()[1:])
    asked.join()
    asked.open()
    with pytest.raises(DisclosureError, match=rf"the record of opened sums {record.name} cannot be read"):
        asked.sum("statistics", statistics_request(asked), Statistics, range(5))


@pytest.mark.slow
def test_other_data_are_summed_with_others_once_answers_are_others(asked: Questions, tmp_path: Path) -> None:
    """A row more that nobody trains on changes the data, and not what is sent."""
    asked.open()
    asked.sum("statistics", statistics_request(asked), Statistics, range(5))
    for client in range(4):
        table = tmp_path / f"data{client}" / "nodes.csv"
        text = table.read_text()
        table.write_text(f"{text}new,c0{4 * ',1'}\n" if client == 3 else text.replace("0,1", "1,1"))
    asked.join()
    asked.open("run-2")
    with pytest.raises(DisclosureError, match="this answer was opened before in a sum with other silos"):
        asked.sum("statistics", statistics_request(asked), Statistics, range(4), "run-2")
    table.write_text(text.replace("0,1", "1,1"))
    asked.join()
    asked.open("run-3")
    assert asked.sum("statistics", statistics_request(asked), Statistics, range(4), "run-3").num_samples > 0


# -- other questions to one --------------------------------------------------------------------------------------------

OTHERWISE = "client 4 was asked something else than this one in the run, or runs it with other settings"


def test_all_silos_of_a_sum_are_asked_the_same(asked: Questions) -> None:
    """With class weights of 0 for one the sum is that of the others, and over the very same silos."""
    asked.open()
    asked.sum("statistics", statistics_request(asked), Statistics, range(5))
    questions = {client: statistics_request(asked, float(client != 4)) for client in range(5)}
    with pytest.raises(DisclosureError, match=OTHERWISE):
        asked.sum("statistics", questions, Statistics, range(5))


def test_all_silos_of_a_sum_were_asked_the_same_before(asked: Questions) -> None:
    """One has a model of its own now: what its predictions are is the difference to a sum without it."""
    asked.open()
    request = EvaluateRequest(views=["own"])
    asked.sum("evaluate_sums", request, EvaluateSums, range(5))
    width = asked.config.width("mean", 2048, asked.schema)
    model = AdoptRequest(
        weights={"mean": torch.ones(width, asked.schema.num_classes)}, shifts=torch.zeros(1, 4).double(),
        class_weights=torch.ones(1, 4).double(), size=1.0,
    )  # fmt: skip
    asked.call(4, CALL + "adopt", model)
    with pytest.raises(DisclosureError, match=OTHERWISE):
        asked.sum("evaluate_sums", request, EvaluateSums, range(5))


@pytest.mark.parametrize(
    "also", [{"config": {}}, {"models": [[4, ["gcn", {"hidden": [8], "dropout": 0.9}, "float32"]]]}]
)
def test_all_silos_of_a_sum_run_the_same_settings(asked: Questions, also: dict[str, Any]) -> None:
    asked.method, asked.config = "fedavg", registry.load("fedavg").config()
    if "config" in also:
        also = {"config": asked.config.model_copy(update={"lr": 1e-9}).model_dump(mode="json")}
    assert all(answer["ok"] for answer in asked.open(also=also))
    with pytest.raises(DisclosureError, match=OTHERWISE):
        asked.sum("evaluate_sums", EvaluateRequest(views=["own"]), EvaluateSums, range(5))


def test_a_single_number_is_guarded_as_all_others_are(asked: Questions) -> None:
    """FedLoG's says whether any cell lies outside a range that the settings move: of one silo, that tells."""
    asked.method, asked.config = "fedlog", registry.load("fedlog").config()
    other = asked.config.model_copy(update={"lr": 1e-9}).model_dump(mode="json")
    assert all(answer["ok"] for answer in asked.open(also={"config": other}))
    with pytest.raises(DisclosureError, match=OTHERWISE):
        asked.sum("check_range", RangeRequest(), RangeReply, range(5))
    asked.open("run-2")
    assert asked.sum("check_range", RangeRequest(), RangeReply, range(5), "run-2").outside >= 0
    with pytest.raises(MORE[0], match="opened before in a sum with other silos"):
        asked.sum("check_range", RangeRequest(), RangeReply, range(4), "run-2")


def weights(asked: Questions) -> dict[str, torch.Tensor]:
    model = models.build(
        "gcn", num_features=asked.schema.num_features, num_classes=asked.schema.num_classes, task="node",
        generator=torch.Generator().manual_seed(0), hidden=[8],
    )  # fmt: skip
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def kept(asked: Questions, clients: Sequence[int] = range(5)) -> None:
    for client in clients:
        found = asked.ask(client, {"do": "save", "run": "run-1", "seed": 0, "mark": "seed0-round1"})
        assert found.header["ok"]


def go_back(asked: Questions, clients: Sequence[int]) -> None:
    for client in clients:
        found = asked.ask(client, {"do": "restore", "run": "run-1", "seed": 0, "mark": "seed0-round1"})
        assert found.header["ok"]


@pytest.mark.slow
@pytest.mark.parametrize("secure", [True, False])
def test_a_checkpoint_is_of_the_settings_it_was_made_under(asked: Questions, secure: bool) -> None:
    """Kept with the settings of all and gone on from with others by one, or the other way round: what Adam remembered
    of a step with an absurd weight decay outweighed all data, so that the difference of two sums was one silo's model.
    """
    asked.method, asked.config = "fedavg", registry.load("fedavg").config()
    other = asked.config.model_copy(update={"weight_decay": 1e15}).model_dump(mode="json")
    for site, (before, after) in enumerate((({}, {"config": other}), ({"config": other}, {}), ({}, {"seed": 1}))):
        asked.join(f"site{site}")
        asked.open(secure=secure, also=before)
        kept(asked)
        *honest, last = asked.open(secure=secure, mark="seed0-round1", also=after)
        assert all(answer["ok"] for answer in honest)
        assert "was made under other settings than this run is opened with" in last["text"]


def test_how_often_a_step_was_asked_for_is_part_of_what_was_asked(asked: Questions) -> None:
    """Its draws depend on that. Some were taken back to a checkpoint, and drew as before, and one was not."""
    asked.method = "fedavg"
    asked.config = registry.load("fedavg").config().model_copy(update={"reset_optimizer": True})
    asked.open()
    request = TrainRequest(weights=weights(asked))
    asked.sum("train", request, TrainReply, range(5), "run-1", 1)
    kept(asked)
    go_back(asked, range(4))
    with pytest.raises(DisclosureError, match=OTHERWISE):
        asked.sum("train", request, TrainReply, range(5), "run-1", 1)
    found = []
    for _ in range(2):
        go_back(asked, range(5))
        found.append(asked.sum("train", request, TrainReply, range(5), "run-1", 1).weights["layers.0.bias"])
    assert torch.equal(*found)


def test_scores_that_are_seen_anyway_may_be_asked_of_some(asked: Questions) -> None:
    asked.open(report="silos")
    asked.call(4, "evaluate", EvaluateRequest(views=["own"]))
    assert asked.sum("statistics", statistics_request(asked), Statistics, range(5)).num_samples > 0


# -- noise -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("noise", "honest"), [("silo", 1), ("sum", 3)])
def test_noise_is_new_at_each_opening(tmp_path: Path, noise: str, honest: int) -> None:
    """Equal releases said for sure that no node had come in between, and equal shares cancelled between two sums."""
    asked = Questions(tmp_path, policy={"max_epsilon": 50, "shared_noise": True})
    asked.config = asked.config.model_copy(update={"epsilon": 1.0, "noise": noise})
    found = []
    for run in ("run-1", "run-1", "run-2"):
        asked.join()  # all sites are started anew
        asked.open(run, secure=noise == "sum", report="federation" if noise == "sum" else "silos")
        held = asked.workers[0].session
        assert held is not None
        rows = held.clients[0].client._own_rows()
        request = ReleaseRequest(size=private.size(rows.width, asked.schema.num_classes), honest=honest)
        if noise == "sum":
            found.append(asked.sum("noisy_statistics", request, Release, range(5), run).numbers)
        else:
            found.append(decode(asked.call(0, "noisy_statistics", request, run), Release).numbers)
    for one, other in itertools.combinations(found, 2):
        assert not torch.equal(one, other)


def test_sums_are_kept_under_the_data_that_they_are_of(asked: Questions) -> None:
    """Tables that are written anew while a site runs: sums over them were kept under what they had held before."""
    asked.open()
    table = next((asked.folder / "data0").glob("*nodes*"))
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines, f"one-more,{lines[-1].partition(',')[2]}"]) + "\n")
    said = asked.open("run-2", sparse=True)
    assert "the data of silo 'silo0' changed since this site read them" in said[0]["text"]
    assert all(answer["ok"] for answer in asked.open("run-3", sparse=True))
    asked.sum("statistics", statistics_request(asked), Statistics, range(5), "run-3")
    asked.join()
    asked.open("run-4")
    with pytest.raises(MORE[0], match=MORE[1]):
        asked.sum("statistics", statistics_request(asked, 1.000001), Statistics, range(4), "run-4")


def test_each_answer_of_which_there_is_no_sum_is_an_offer(asked: Questions) -> None:
    """Whether a made-up model runs over tells of single rows, and all such answers had the same bytes."""
    asked.method, asked.config = "fedavg", registry.load("fedavg").config()
    asked.open()
    huge = TrainRequest(weights={name: weight * 0 + 3e38 for name, weight in weights(asked).items()})
    for _ in range(MOST_OFFERED):
        with pytest.raises(DisclosureError, match="its TrainReply is none that can be summed"):
            asked.call(4, CALL + "train", huge)
    with pytest.raises(DisclosureError, match="never opened"):
        asked.call(4, CALL + "train", huge)


def tells_of_a_row(asked: Questions, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A step that goes wrong where some row is as the coordinator's model wants it; how often it was carried out."""
    ran: list[int] = []

    def scores(self: Any, request: EvaluateRequest, beside: Any = None) -> dict[str, Any]:
        ran.append(self.id)
        raise RunError("scores to rank items by are NaN.")

    monkeypatch.setattr(ClientBase, "_scores", scores)
    asked.open()
    return ran


def test_what_may_not_be_seen_is_not_even_computed(asked: Questions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another error than the refusal said that there is such a row: all rows of a silo could be read."""
    ran = tells_of_a_row(asked, monkeypatch)
    for step in ("evaluate", "evaluate_sums"):
        with pytest.raises(DisclosureError, match=rf"'{step}' sends, would be seen by itself, and this run was opened"):
            asked.call(0, step, EvaluateRequest(views=["own"], auc=True))
    assert not ran


def test_a_step_that_goes_wrong_is_an_offer_without_words(asked: Questions, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = tells_of_a_row(asked, monkeypatch)
    for _ in range(MOST_OFFERED):
        with pytest.raises(DisclosureError, match=r"^its EvaluateSums is none that can be summed; why stands in"):
            asked.call(0, CALL + "evaluate_sums", EvaluateRequest(views=["own"], auc=True))
    with pytest.raises(DisclosureError, match="never opened"):
        asked.call(0, CALL + "evaluate_sums", EvaluateRequest(views=["own"], auc=True))
    assert len(ran) == MOST_OFFERED + 1


def test_no_silo_is_asked_many_times_at_once(asked: Questions) -> None:
    asked.open()
    header = {"do": "call", "run": "run-1", "seed": 0, "handler": CALL + "count", "round": 0, "to": [[0, 0]] * 1000}
    found = asked.ask(0, header, [encode(CountRequest()).data])
    assert "the same step twice at once" in found.header["text"]


def test_what_lies_in_the_question_alone_is_said_and_counted(asked: Questions) -> None:
    """An honest silo that has missed a step, or was asked what no run asks, is not told to learn more slowly."""
    asked.open()
    wide = replace(statistics_request(asked), dim=99)
    for _ in range(MOST_OFFERED):
        with pytest.raises(DisclosureError, match=r"^features of a kind or width were asked for that no run"):
            asked.call(0, CALL + "statistics", wide)
    with pytest.raises(DisclosureError, match="never opened"):
        asked.call(0, CALL + "statistics", wide)


@pytest.mark.parametrize("secure", [True, False])
def test_a_model_that_cannot_be_used_is_the_owners_to_know(
    asked: Questions, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], secure: bool
) -> None:
    def finish(self: Any, **wanted: Any) -> dict[str, Any]:
        raise RunError("scores to rank items by are NaN.")

    monkeypatch.setattr(HostedClient, "finish", finish)
    asked.open(secure=secure)
    header = {"do": "finish", "run": "run-1", "seed": 0, "client": 0, "view": None, "embeddings": False}
    assert asked.ask(0, header).header["ok"] is secure
    assert "are NaN" in capfd.readouterr().err


def test_answers_that_are_the_same_are_no_free_questions(asked: Questions) -> None:
    """Where nearly every question has the same answer, one that has none told more than a bit."""
    asked.open()
    for number in range(MOST_OFFERED):
        asked.call(4, CALL + "count", CountRequest(), round=number)
    with pytest.raises(DisclosureError, match="never opened"):
        asked.call(4, CALL + "count", CountRequest(), round=MOST_OFFERED)


@pytest.mark.slow
def test_the_same_sum_again_and_again_leaves_nothing_waiting(asked: Questions) -> None:
    asked.open()
    for number in range(MOST_OFFERED + 2):
        asked.sum("count", CountRequest(), Counts, range(5), round=number)


def test_numbers_of_an_answer_that_cannot_be_summed_stay(asked: Questions, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(self: Statistics) -> None:
        raise MessageError(f"it holds {self.num_samples:g} rows.")

    monkeypatch.setattr(Statistics, "check", check)
    asked.open()
    with pytest.raises(DisclosureError, match=r"^its Statistics is none that can be summed; why stands in the silo's"):
        asked.call(0, CALL + "statistics", statistics_request(asked))


@pytest.mark.parametrize("change", [{"dim": 10**9}, {"class_weights": torch.ones(1000, 2, dtype=torch.float64)}])
def test_what_would_take_memory_is_refused_before_it_does(asked: Questions, change: dict[str, Any]) -> None:
    asked.open()
    wanted = r"columns, \d+ times; known are mean, separate, mean\+labels, separate\+labels of 2048 or 128, 1 times\.$"
    with pytest.raises(DisclosureError, match=wanted):
        asked.call(0, CALL + "statistics", replace(statistics_request(asked), **change))


@pytest.mark.parametrize("setting", [{"dim": 10**9}, {"hops": 10**6}])
def test_settings_that_would_take_memory_open_no_run(asked: Questions, setting: dict[str, int]) -> None:
    (name,) = setting
    answer = asked.open(config={**asked.config.model_dump(mode="json"), **setting})[0]
    assert f"method.{name} must be at least 0 and at most" in answer["text"]


# -- offers ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_offers_that_are_never_opened_are_few(asked: Questions) -> None:
    """Scaled at will, they would say whether the numbers of one silo can be summed."""
    asked.open()
    for number in range(MOST_OFFERED):
        asked.call(4, CALL + "statistics", statistics_request(asked, 2.0**number))
    asked.join("other-kit")
    asked.open("run-2")
    with pytest.raises(DisclosureError, match="never opened"):
        asked.call(4, CALL + "statistics", statistics_request(asked, 0.3), "run-2")
    path = asked.workers[4].members[4].file.record("opened")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))  # its owner makes room for one
    asked.open("run-3")
    assert asked.sum("statistics", statistics_request(asked), Statistics, range(5), "run-3").num_samples > 0
    asked.call(4, CALL + "statistics", statistics_request(asked, 0.3), "run-3")  # that one was opened
    with pytest.raises(DisclosureError, match="never opened"):
        asked.call(4, CALL + "statistics", statistics_request(asked, 0.3), "run-3")


# -- totals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            5000,
            r"it stands for 5\d\d\d items .EvaluateSums.counts.; 4 silos said before round 1 that they hold \d+ at",
        ),
        (-5000, r"it stands for -\d+ items .EvaluateSums.counts."),
    ],
)
def test_totals_are_held_against_the_cards(
    more: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of four moves its whole numbers: class counts come first, from which all silos learn what is rare."""
    lying(monkeypatch, lambda kind, behind: more if kind == "counts" and not behind else 0)
    with pytest.raises(FederationError, match=words) as caught:
        carry_out(tmp_path, {"method.name": "fedavg"})
    assert "nobody is named" in str(caught.value)


def test_between_machines_both_that_contradict_each_other_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose letter it is that a silo cannot read travels with its refusal; the run ends with both names, not with one
    of those who open no sum with others than before."""
    garbling(monkeypatch, {1: [3]})
    words = r"First failure: client 1 failed in '.*' \(MessageError: clients 3 and 1 contradict each other, and nobody"
    with pytest.raises(FederationError, match=words):
        carry_out(tmp_path, {"method.name": "fedavg", "method.min_clients": 3}, silos=5)


def test_silos_of_a_sum_run_one_model(tmp_path: Path) -> None:
    """Said before the run, where every silo would refuse the others."""
    with pytest.raises(ConfigError, match="only with silos that were asked the same as itself, its model included"):
        carry_out(tmp_path, {"method.name": "fedproto", "model.pool": ["gcn", "mlp"]})


def carry_out(folder: Path, settings: dict[str, Any], silos: int = 4) -> Any:
    """A run over sites in this process, with nothing but sums seen."""
    sites = {}
    for client in range(silos):
        name = f"silo{client}"
        file = write_tables(folder / f"data{client}", name, client)
        sites[name] = Here(name, [(client, file)], folder / f"site{client}")
        sites[name].start()
    said = {"run.secure_sums": True, "evaluation.report": "federation", "run.references": [], **settings}
    clients = {name: [client] for client, name in enumerate(sites)}
    return run_over(
        Straight(sites), load_config(overrides=said), name="sums", clients=clients, out=folder / "out", wait=30
    )
