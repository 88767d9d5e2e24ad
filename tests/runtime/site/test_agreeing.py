"""A silo is asked for the sums that scale features: its policy and its file decide, and its log has all of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from graphsilo.data.silos.cards import compare_cards
from graphsilo.errors import DataError
from graphsilo.federation.codec import decode, encode
from graphsilo.federation.journal import CARD, read
from graphsilo.federation.scaling import AgreedScale, FeatureSums, SumsRequest, TargetsRequest
from graphsilo.runtime.protocol import Packet, pack, unpack
from graphsilo.runtime.site.worker import SiteWorker, members_of
from graphsilo.runtime.transport import views_of
from kit import questions
from kit.site_tables import write_tables

AGREED = {"scale": "standard", "scale_by": "federation"}


def make(tmp_path: Path, **changes: Any) -> SiteWorker:
    """The worker of a site with one silo, whose file says this, too."""
    file = write_tables(tmp_path / "data", "north", 0)
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **changes}))
    return SiteWorker(members_of([(0, file)], tmp_path / "site", {}), tmp_path / "site")


def ask(worker: SiteWorker, header: Mapping[str, Any], payloads: Any = ()) -> Packet:
    return unpack(b"".join(views_of(worker.answer(unpack(pack({**header, "id": "x"}, payloads))))))


def opening(worker: SiteWorker, **changes: Any) -> dict[str, Any]:
    schema = compare_cards([ask(worker, {"do": "cards"}).header["cards"][0][1]])
    return questions.opening(schema, **{"agreeing": True, "scaling": AGREED, **changes})


def test_sums_leave_and_the_scale_comes(tmp_path: Path) -> None:
    worker = make(tmp_path)
    assert ask(worker, {"do": "cards"}).header["cards"][0][1]["scale_by"] == "federation"
    assert ask(worker, opening(worker)).header["clients"] == [0]
    call = {"do": "call", "run": "run-1", "seed": 0, "handler": "feature_sums", "round": 0, "to": [[0, 0]]}
    answer = ask(worker, call, [encode(SumsRequest()).data])
    found = decode(bytes(answer.payloads[0]), FeatureSums)
    assert found.num_samples == 60
    assert found.others.tolist()[:10] == [0] * 10
    factor = torch.tensor([*[2.0] * 11, 1e-5], dtype=torch.float64)  # of platelets, such as they are here
    scale = AgreedScale(shift=torch.full((12,), 0.5, dtype=torch.float64), factor=factor)
    assert ask(worker, opening(worker, agreeing=False), [encode(scale).data]).header["clients"] == [0]
    assert worker.session is not None
    features = worker.session.clients[0].client.silo.graph.features  # type: ignore[union-attr]
    assert set(features[:, 0].tolist()) == {-1.0, 1.0}
    noted = [
        (entry.way, entry.handler, [note.kind for note in entry.fields])
        for entry in read(worker.members[0].journal.path)
        if entry.message != CARD
    ]
    assert noted == [
        ("received", "feature_sums", []),
        ("sent", "feature_sums", ["counts", "statistic", "statistic"]),
        ("received", "scale", ["statistic", "statistic"]),
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policy": {"kinds": ["model", "counts"]}}, r"additive statistics of many nodes \(kind 'statistic'\), which"),
        ({"policy": {"kinds": ["model", "statistic"]}}, r"kind 'counts'"),
    ],
)  # fmt: skip
def test_a_policy_refuses_sums_and_says_what_to_do(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    worker = make(tmp_path, **changes)
    ((client, text),) = ask(worker, opening(worker)).header["refused"]
    assert client == 0
    if "statistic" in words:
        assert "features: {scale_by: silo}" in text
        alone = make(tmp_path / "alone", features={"scale_by": "silo"}, **changes)
        by_silo = {"agreeing": False, "scaling": {"scale": "standard", "scale_by": "silo"}}
        assert ask(alone, opening(alone, **by_silo)).header["clients"] == [0]


def test_a_silo_that_scales_alone_gives_no_sums(tmp_path: Path) -> None:
    worker = make(tmp_path, features={"scale_by": "silo"})
    answer = ask(worker, opening(worker)).header
    assert not answer["ok"]
    assert "scales its features by itself (standard, by silo), and sums were asked of it" in answer["text"]


def test_all_silos_scale_alike(tmp_path: Path) -> None:
    cards = [
        ask(make(tmp_path / name, name=name, **more), {"do": "cards"}).header["cards"][0][1]
        for name, more in (("north", {}), ("south", {"features": {"scale": "none"}}))
    ]
    with pytest.raises(
        DataError, match=r"'north' scales .* so: standard, by federation; silo 'south' so: none\. Write"
    ):
        compare_cards(cards)


def test_a_silo_says_that_its_unit_is_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The agreed deviation of the last column is 10^10, and this silo's some 10^5."""
    worker = make(tmp_path)
    factor = torch.ones(12, dtype=torch.float64)
    factor[-1] = 1e-10
    told = [encode(AgreedScale(shift=torch.zeros(12, dtype=torch.float64), factor=factor)).data]
    for seed in (0, 1):
        assert ask(worker, opening(worker, agreeing=False, seed=seed), told).header["clients"] == [0]
    assert sum(entry.way == "warned" for entry in read(worker.members[0].journal.path)) == 1
    said = capsys.readouterr().err
    assert said.count("times as far here as over all silos: are they in another unit?") == 1
    assert "silo 'north': the numbers of '" in said


def scale_of(factor: float, columns: int) -> Any:
    numbers = torch.full((columns,), factor, dtype=torch.float64)
    return encode(AgreedScale(shift=torch.zeros_like(numbers), factor=numbers)).data


def test_no_scale_tells_by_a_refusal_how_large_a_cell_is(tmp_path: Path) -> None:
    """Whether a scaled cell overflowed decided whether the run was opened: a search told the largest one."""
    worker = make(tmp_path, features={"scale": "standard"})
    columns = compare_cards([ask(worker, {"do": "cards"}).header["cards"][0][1]]).num_features
    for factor in (1.0, 1e38, 1e300):
        opened = ask(worker, opening(worker, agreeing=False), [scale_of(factor, columns)]).header
        assert opened["ok"], opened


def test_a_scale_is_taken_by_silos_that_agree_on_one_alone(tmp_path: Path) -> None:
    worker = make(tmp_path, features={"scale": "none"})
    columns = compare_cards([ask(worker, {"do": "cards"}).header["cards"][0][1]]).num_features
    answer = ask(worker, opening(worker, agreeing=False), [scale_of(1.0, columns)]).header
    assert not answer["ok"]
    assert "was sent a scale" in answer["text"]


def test_a_client_that_goes_back_is_made_anew(tmp_path: Path) -> None:
    """A model that it was sent after its checkpoint stayed with it, and answered in a sum with the others'."""
    worker = make(tmp_path)
    session = {"run": "run-1", "seed": 0, "mark": "seed0-round1"}
    opened = opening(worker, agreeing=False, scaling={"scale": "none", "scale_by": "silo"})
    assert ask(worker, opened).header["ok"]
    assert ask(worker, {"do": "save", **session}).header["ok"]
    assert worker.session is not None
    before = worker.session.clients[0]
    assert ask(worker, {"do": "restore", **session}).header["ok"]
    assert worker.session.clients[0].client is not before.client


@pytest.mark.parametrize("least", [1, 9])
def test_targets_are_added_up_where_features_are_not(tmp_path: Path, least: int) -> None:
    """Also where a silo scales its features alone a coordinator is told nothing of them; and of few items nothing."""
    place = tmp_path / "data"
    place.mkdir()
    (place / "n.csv").write_text("id,a,y\n" + "".join(f"{k},{k},{3 * k if k < 16 else ''}\n" for k in range(40)))
    (place / "e.csv").write_text("a,b\n" + "".join(f"{k},{k + 1}\n" for k in range(39)))
    tables = {
        "name": "north", "nodes": {"path": "n.csv", "id": "id", "targets": ["y"]},
        "edges": {"path": "e.csv", "source": "a", "target": "b"}, "features": {"scale_by": "silo"},
        "policy": {"min_evaluation_count": least},
    }  # fmt: skip
    (place / "silo.yaml").write_text(yaml.safe_dump(tables))
    worker = SiteWorker(members_of([(0, place / "silo.yaml")], tmp_path / "site", {}), tmp_path / "site")
    words = {"task": "regression", "select_by": "mae", "scaling": {"scale": "standard", "scale_by": "silo"}}
    assert ask(worker, opening(worker, **words)).header["clients"] == [0]
    call = {"do": "call", "run": "run-1", "seed": 0, "round": 0, "to": [[0, 0]]}
    answers = {
        name: ask(worker, call | {"handler": name}, [encode(request).data]).header["answers"][0].get("failure")
        for name, request in (("target_sums", TargetsRequest()), ("feature_sums", SumsRequest()))
    }
    assert "feature_sums" in answers["feature_sums"][1]
    if least == 1:
        assert answers["target_sums"] is None
    else:
        assert (
            "the scale of their targets are over fewer rows here than this silo's policy.min_ev"
            in (answers["target_sums"][1])
        )
