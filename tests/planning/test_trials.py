"""Which trials are made."""

from __future__ import annotations

from typing import Any

from graphsilo.planning.trials import Trial, repeats, tried


def facts(clients: int, **more: Any) -> dict[str, Any]:
    silos = [{"client": k, "work": 10 * (k + 1)} for k in range(clients)]
    return {"silos": silos, "rounds": 9, "repeats": {}, **more}


def attempts(*enough: bool):
    """Stands for the trials: those of which each comes through set-up and three rounds, or sees nothing."""
    made: list[Trial] = []

    def attempt(trial: Trial) -> Trial:
        made.append(trial)
        if enough[len(made) - 1]:
            trial.steps = [{"phase": phase} for phase in ("setup", "round", "round", "round")]
        return trial

    return attempt, made


def test_one_trial_that_comes_through_is_enough():
    attempt, made = attempts(True)
    assert tried(facts(40, repeats={"epochs": 20}), attempt) == made
    assert made[0].clients == tuple(range(40))


def test_of_many_clients_eight_stand_for_all_from_the_smallest_to_the_largest():
    attempt, made = attempts(False, True)
    tried(facts(40, repeats={"epochs": 20}), attempt)
    assert made[1].clients == (0, 6, 11, 17, 22, 28, 33, 39)
    assert not made[1].settings


def test_else_repetitions_are_shortened_twice():
    attempt, made = attempts(False, True, True)
    tried(facts(3, repeats={"epochs": 20, "steps": 40}), attempt)
    assert [trial.settings for trial in made] == [{}, {"epochs": 1, "steps": 1}, {"epochs": 2, "steps": 2}]
    attempt, made = attempts(False, True, False)
    assert len(tried(facts(3, repeats={"epochs": 20}), attempt)) == 1
    assert len(made) == 3


def test_what_ran_out_of_memory_or_failed_is_not_tried_again():
    for end in ("memory", "error"):
        assert len(tried(facts(40), lambda trial, end=end: Trial(trial.clients, end=end))) == 1


def test_settings_that_are_repetitions():
    assert repeats({"rounds": 90, "epochs": 20, "lp_steps": 3, "steps": True, "step_size": 9.5, "cycle": 50}) == {
        "epochs": 20
    }


def test_events_are_read_up_to_where_the_process_was_ended(tmp_path):
    path = tmp_path / "trial.jsonl"
    path.write_text(
        '{"event": "rounds", "rounds": 7}\n{"event": "step", "phase": "setup", "peak": 5}\n'
        '{"event": "partial", "phase": "round", "peak": 9}\n{"event": "st'
    )
    trial = Trial((0,))
    trial.read(path)
    assert (trial.is_set_up, trial.rounds, trial.peak, trial.end) == (True, 0, 9, "late")
    assert trial.events["rounds"]["rounds"] == 7
    assert trial.partial is not None
