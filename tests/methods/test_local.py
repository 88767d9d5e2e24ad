"""Every silo alone: nothing but the call and a count crosses, and every silo has its own best round."""

from __future__ import annotations

from graphsilo.experiments.runner import run
from graphsilo.methods import local
from kit import small_run
from kit.messages import check_sent


def test_nothing_of_a_model_crosses() -> None:
    record = run(small_run(method__name="local")).record
    assert [spec.name for spec in local.TrainReply.specs()] == ["clients"]
    assert local.TrainRequest.specs() == ()
    assert all(row.upload_bytes < 3 * 200 and row.download_bytes < 3 * 200 for row in record.seeds[0].rounds)
    assert [row.participants for row in record.seeds[0].rounds] == [3, 3, 3]


def test_each_silo_is_reported_at_its_own_round_unless_one_for_all_is_asked_for() -> None:
    own, common = (run(small_run(method__name="local", method__best_round=which)).record for which in ("own", "common"))
    assert all(row.best_round is not None for row in own.seeds[0].clients)
    assert own.seeds[0].best_round == max(row.best_round or 0 for row in own.seeds[0].clients)
    assert all(row.best_round is None for row in common.seeds[0].clients)
    assert [row.validation for row in own.seeds[0].rounds] == [row.validation for row in common.seeds[0].rounds]


def test_what_leaves_a_silo():
    check_sent(
        "local",
        """
        train_alone clients: counts
        """,
    )
