"""The loop of local training, teachers, and weights that come and go."""

from __future__ import annotations

import pytest
import torch

from graphsilo.errors import MessageError
from graphsilo.models import dense
from graphsilo.models.view import GraphTensors
from graphsilo.random import generator
from graphsilo.training.local import LocalTrainer, Teacher, load_weights, weights_of
from graphsilo.training.objective import objective
from graphsilo.training.optimizer import optimizer
from kit.training import CLASSES, full_batch, model_for, silo

# -- the loop --------------------------------------------------------------------------------------------------------


def trainer(one, *, lr=0.05, name="gcn"):
    model = model_for(one, name)
    goal = objective(GraphTensors(one.graph), one)
    return LocalTrainer(model, goal, optimizer("sgd", list(model.parameters()), lr=lr))


def current(loop):
    """The loss without dropout."""
    return float(loop.objective.loss(loop.model, full_batch(loop.objective), None).detach())


def test_the_loop_lowers_the_loss():
    loop = trainer(silo(), lr=0.5)
    before = current(loop)
    loop.run(50, generator(0))
    assert current(loop) < 0.9 * before


def test_epochs_add_up():
    one, two = trainer(silo()), trainer(silo())
    draw = generator(0)
    one.run(2, draw)
    one.run(3, draw)
    two.run(5, generator(0))
    assert all(torch.equal(*pair) for pair in zip(one.parameters, two.parameters, strict=True))


@pytest.mark.parametrize(("size", "varying"), [(0, False), (10_000, False), (4, True)])
def test_products_know_whether_each_step_has_other_rows(size, varying):
    loop, seen = trainer(silo()), []
    loop.run(2, generator(0), batch_size=size, adjust=lambda gradients, batch: seen.append(dense._VARYING.get()))
    assert set(seen) == {varying}
    assert dense._VARYING.get() is False


@pytest.mark.parametrize("name", ["gcn", "sage", "gin", "mlp", "sgc", "gat"])
def test_the_steps_of_many_epochs_are_those_of_one_at_a_time(name):
    # From the second call on, masks are drawn ahead and the plan of the first is run again.
    one, two = trainer(silo(), name=name), trainer(silo(), name=name)
    ahead, alone = generator(1), generator(1)
    for _ in range(2):
        one.run(3, ahead)
    for _ in range(6):
        (batch,) = two.objective.batches(0, alone)
        loss = two.objective.loss(two.model, batch, alone)
        with torch.no_grad():
            two.optimizer.step(torch.autograd.grad(loss, two.parameters, allow_unused=True))
    for left, right in zip(one.parameters, two.parameters, strict=True):
        torch.testing.assert_close(left, right)
    assert torch.equal(ahead.get_state(), alone.get_state())


def test_nothing_to_learn_from_changes_nothing():
    loop = trainer(silo(train=()))
    before = [parameter.detach().clone() for parameter in loop.parameters]
    assert loop.run(3, generator(0)) == 0
    assert all(torch.equal(*pair) for pair in zip(before, loop.parameters, strict=True))


def test_adjust_changes_the_step():
    one, still = trainer(silo()), trainer(silo())
    before = [parameter.detach().clone() for parameter in one.parameters]

    batches = []

    def away(gradients, batch):
        batches.append(batch.view.items.tolist())
        for gradient in gradients:
            gradient.zero_().add_(1.0)

    assert one.run(2, generator(0), adjust=away) == 2
    assert batches == 2 * [list(range(0, 30, 2))]
    for parameter, old in zip(one.parameters, before, strict=True):
        torch.testing.assert_close(parameter.detach(), old - 2 * 0.05)
    still.run(2, generator(0), adjust=lambda gradients, _: [gradient.zero_() for gradient in gradients])
    assert all(torch.equal(*pair) for pair in zip(before, still.parameters, strict=True))


@pytest.mark.parametrize(("size", "steps"), [(0, 3), (15, 3), (14, 6), (4, 12)])
def test_the_loop_counts_its_steps(size, steps):
    assert trainer(silo()).run(3, generator(0), batch_size=size) == steps


# -- a frozen model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gcn", "gat", "gin"])
def test_a_teacher_answers_as_the_model_with_its_weights(name):
    settings = {"norm": "batch"} if name == "gin" else {}
    one = silo()
    student, other = (model_for(one, name, **settings) for _ in range(2))
    held = {key: value + 0.3 for key, value in weights_of(other).items()}
    load_weights(other, held)
    before = {key: value.clone() for key, value in weights_of(student).items()}
    data = GraphTensors(one.graph)
    kept, passing = data.kept_view(one.train), data.view(one.train[:4])
    teacher = Teacher(student, held)
    for view in (kept, passing):
        found = teacher.outputs(view)
        assert torch.equal(found.logits, other(view).detach())
        torch.testing.assert_close(found.embeddings, other.embed(view).detach())
        assert not found.logits.requires_grad
    assert teacher.outputs(kept) is teacher.outputs(kept)
    assert teacher.outputs(passing) is not teacher.outputs(passing)
    assert all(torch.equal(value, before[key]) for key, value in weights_of(student).items())


@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_a_teacher_inside_a_term(name):
    """Borrowing the student's parameters in the middle of a step leaves its gradient as it was."""
    one = silo()
    loop, model = trainer(one, name=name), model_for(one, name)
    teacher = Teacher(loop.model, {key: value + 0.3 for key, value in weights_of(model).items()})
    batch = full_batch(loop.objective)
    logits = teacher.outputs(batch.view).logits.clone()

    def gradients(term):
        return loop.objective.gradients(loop.model, batch, generator(0), loop.parameters, term)

    mine = gradients(lambda step: (step.logits - teacher.outputs(step.view).logits).square().sum())
    theirs = gradients(lambda step: (step.logits - logits).square().sum())
    assert all(torch.equal(*pair) for pair in zip(mine, theirs, strict=True))


def test_a_teacher_of_another_model_is_refused():
    with pytest.raises(MessageError, match="is missing"):
        Teacher(trainer(silo()).model, {})


def test_weights_are_copied_in():
    one, two = trainer(silo()), trainer(silo())
    one.run(2, generator(0))
    held = {name: value.clone() for name, value in weights_of(one.model).items()}
    load_weights(two.model, held)
    held["layers.0.weight"].zero_()
    assert torch.equal(weights_of(two.model)["layers.0.weight"], weights_of(one.model)["layers.0.weight"])


def test_wrong_weights_are_refused_and_change_nothing():
    model = trainer(silo()).model
    good = {name: torch.zeros_like(value) for name, value in weights_of(model).items()}
    before = {name: value.clone() for name, value in weights_of(model).items()}
    last = list(good)[-1]
    cases = [
        ({key: value for key, value in good.items() if key != last}, f"'{last}' is missing"),
        ({**good, "extra": torch.zeros(1)}, "'extra' is unknown"),
        ({**good, last: torch.zeros(99)}, rf"weight '{last}' must have shape"),
    ]
    for weights, text in cases:
        with pytest.raises(MessageError, match=text):
            load_weights(model, weights)
        assert all(torch.equal(value, before[name]) for name, value in weights_of(model).items())


def test_some_weights_by_name():
    model = trainer(silo()).model
    before = weights_of(model)["layers.0.weight"].clone()
    load_weights(model, {"layers.1.bias": torch.ones(CLASSES)}, names=["layers.1.bias"])
    assert weights_of(model)["layers.1.bias"].tolist() == [1.0] * CLASSES
    assert torch.equal(weights_of(model)["layers.0.weight"], before)
