"""Steps that are counted, noted and taken up again."""

from __future__ import annotations

import math

import pytest

from graphsilo.training.work import MAX_POINTS, Work


def halving(total, *, saved=None, stop=None):
    """A number that each step halves: what is heard, what is noted, and where it ends."""
    value, heard = [1.0], []
    work = Work("halving", total, lambda: {"value": value[0]}, lambda work: heard.append(work.done))
    if saved is not None:
        value[0] = saved["state"]["value"]
        work.load_state(saved)
    for step in work:
        work.note(value=value[0])
        value[0] /= 2
        if step == stop:
            break
    return work, value[0], heard


def test_every_step_is_heard_and_noted():
    work, value, heard = halving(4)
    assert (value, heard) == (1 / 16, [1, 2, 3, 4])
    assert work.curves == {"value": [[1, 1.0], [2, 0.5], [3, 0.25], [4, 0.125]]}


def test_what_is_not_finite_is_missing():
    work = Work("diverging", 1, None, lambda work: None)
    for _ in work:
        work.note(loss=math.nan, other=2)
    assert work.curves == {"loss": [[1, None]], "other": [[1, 2.0]]}


def test_of_many_steps_a_hundred_and_the_last_are_noted():
    work, _, heard = halving(250)
    assert [step for step, _ in work.curves["value"]] == [*range(1, 251, 3)]  # 250 is the last, and one of them
    assert len(heard) == 250
    work, _, _ = halving(1001)
    steps = [step for step, _ in work.curves["value"]]
    assert steps[-1] == 1001
    assert len(steps) <= MAX_POINTS + 1


@pytest.mark.parametrize("at", [1, 3])
def test_it_goes_on_where_it_was(at):
    """As after a checkpoint that followed a step: the state and the curve of that step, the steps that are left."""
    kept = []
    value = [1.0]
    work = Work("halving", 5, lambda: {"value": value[0]}, lambda work: kept.append(work.state()))
    for _ in work:
        work.note(value=value[0])
        value[0] /= 2
    assert Work("kept nowhere", 2, None, lambda work: None).state() is None
    saved = {**kept[at - 1], "curves": {"value": kept[-1]["curves"]["value"][:at]}}
    again, end, heard = halving(5, saved=saved)
    assert (end, heard) == (1 / 32, list(range(at + 1, 6)))
    assert again.curves == work.curves
