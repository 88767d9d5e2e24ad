"""Every setting of a method does something: changed alone, it changes what clients have learned.

Which other value a setting is given comes from its type: a switch is set to each other option, a number to twice or
half of it. Where that says nothing, a ``Trial`` in the method's entry names values, what else must be set, or why the
setting is no number of a client's.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import torch
from torch import Tensor

from graphsilo.data.silos.silo import Silo
from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.simulation import prepare
from graphsilo.federation.client import ClientBase, ClientContext, ModelSpec
from graphsilo.federation.codec import encode_tree
from graphsilo.federation.registry import Method, Trial, load
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import MethodConfig
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.settings import above
from graphsilo.testing.small import ConformanceError, measured, play, rings
from graphsilo.types import TARGET_TASKS, Precision, Task

ROUNDS = 3


USUAL: Mapping[str, Trial] = {
    "rounds": Trial(reason="how often the runner asks"),
    "min_clients": Trial(reason="when failures end a round"),
    "participation": Trial([0.4]),
    "local_epochs": Trial([4]),
    "batch_size": Trial([3]),
    "lr": Trial([0.02]),
    "weight_decay": Trial([0.05]),
    "momentum": Trial([0.5]),
    "loss": Trial(["focal"]),
    "gamma": Trial(reason="of the loss, which tests of it try"),
    "huber_delta": Trial(reason="likewise, and of numbers"),
    "class_weights": Trial(["inverse"]),
    "class_beta": Trial(reason="likewise"),
    "server_lr": Trial([0.5]),
    "reset_optimizer": Trial(beside={"momentum": 0.5}),
    "min_count": Trial([12]),
    "epsilon": Trial([2.0]),
    "delta": Trial([1e-3], {"epsilon": 2.0}),
}
"""Settings that methods share."""


@dataclass(frozen=True)
class Case:
    """One change of one setting.

    Attributes:
        field, value: The setting, and what it is changed to.
        settings: All else that is set, before and after.
        task: On which task.
        off: The setting because of which this one says that it is idle; None where it must do something.
    """

    field: str
    value: Any
    settings: Mapping[str, Any]
    task: Task
    off: str | None = None

    def __str__(self) -> str:
        at = "" if self.off is None else f"-{self.off}-{self.settings.get(self.off, self.task)}"
        return f"{self.field}-{self.value}{at}"


def check_settings(method: Method, settings: Mapping[str, Any]) -> None:
    """Each setting, inherited ones too, changes what clients learn; where its ``when`` says that it is idle, nothing.

    Args:
        method: The registry entry; its ``trials`` say how settings are tried of which the type does not.
        settings: Where the changes start from.

    Raises:
        ConformanceError: One does nothing, or something where it should not.
    """
    for case in cases(method, settings):
        check_case(method, case)


def check_case(method: Method, case: Case) -> None:
    """One change, effective or idle as it should be.

    Raises:
        ConformanceError: It is not.
    """
    idle = case.off is not None
    try:
        before = train_states(method, case.settings, case.task, models=idle)
    except UnsupportedError:
        if idle:  # the task has no such thing: nothing is done there at all
            return
        raise
    after = train_states(method, {**case.settings, case.field: case.value}, case.task, models=idle)
    what = f"{method.name}: setting '{case.field}' changed to {case.value!r}"
    if idle and before != after:
        raise ConformanceError(
            f"{what} does something where its `when` says that it has nothing to do, with '{case.off}' at "
            f"{case.settings.get(case.off or '', case.task)!r}."
        )
    if not idle and before == after:
        raise ConformanceError(
            f"{what} changes nothing that clients have learned after {ROUNDS} rounds. Honour it (`download` of a "
            f"TrainingClient does reset_optimizer), leave it out of the settings, say with `when` where it acts, or "
            f"give the method's `trials` one of it: other values, what else must be set, or the reason."
        )


def cases(method: Method, settings: Mapping[str, Any]) -> list[Case]:
    """Every change of every setting; none of a method that trains on pooled data.

    Raises:
        ConformanceError: Nothing says what a setting could be changed to; or a trial is of no setting.
    """
    fields = method.config.model_fields
    strangers = sorted(set(method.trials) - set(fields))
    if strangers:
        raise ConformanceError(f"{method.name}: there is a trial of '{strangers[0]}', which is no setting.")
    base = add_starts(method, settings)
    return [] if method.pooled else [case for name in fields for case in _cases(method, name, base)]


def add_starts(method: Method, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings from which changes start, so that every part has something to do."""
    starts = {name: trial.start for name, trial in method.trials.items() if trial.start is not None}
    return {**settings, **starts}


def _cases(method: Method, name: str, settings: Mapping[str, Any]) -> Iterator[Case]:
    """Every change of one setting."""
    trial = {**USUAL, **method.trials}.get(name, Trial())
    beside = {key: value for key, value in trial.beside.items() if key in method.config.model_fields}
    task, base = method.tasks[0], {**settings, **beside}
    for other, allowed in _conditions(method, name).items():
        if other == "task":
            task = allowed[0]
        elif above(allowed) is None and getattr(method.config(**base), other) not in allowed:
            base[other] = allowed[0]
    values = _values(method, name, base, trial)
    if not trial.reason:
        yield from (Case(name, value, base, task) for value in values)
    for off, at in _idle_values(method, name):
        more = {} if off == "task" else {off: at}
        rest = {key: value for key, value in {**base, **more}.items() if key != name}
        yield from (Case(name, value, rest, at if off == "task" else task, off) for value in values[:1])


def _values(method: Method, name: str, settings: Mapping[str, Any], trial: Trial) -> Sequence[Any]:
    """What a setting is changed to."""
    if trial.values or trial.reason:
        return trial.values
    annotation = method.config.model_fields[name].annotation
    usual = getattr(method.config(**settings), name)
    if annotation is bool:
        return [not usual]
    if get_origin(annotation) is Literal:
        return [each for each in get_args(annotation) if each != usual]
    others: Sequence[Any] = ()
    if isinstance(usual, tuple) and usual and isinstance(usual[0], int | float):
        others = [(usual[0] * 2 or 1, *usual[1:])]
    elif isinstance(usual, int | float):
        others = (usual * 2 or 1, usual // 2 if isinstance(usual, int) else usual / 2 or 0.5)
    for value in others:
        with contextlib.suppress(ConfigError):
            method.config(**{**settings, name: value})
            if value != usual:
                return [value]
    raise ConformanceError(
        f"{method.name}: what else could setting '{name}' be than {usual!r}? Give the method's `trials` one of it: "
        f"values, or the reason why it changes nothing that clients learn."
    )


def _conditions(method: Method, name: str) -> Mapping[str, Any]:
    """A setting's ``when``."""
    extra: Any = method.config.model_fields[name].json_schema_extra or {}
    found: Mapping[str, Any] = extra.get("when", {})
    return found


def _idle_values(method: Method, name: str) -> list[tuple[str, Any]]:
    """Values of other settings at which a setting says that it is idle."""
    found: list[tuple[str, Any]] = []
    for other, allowed in _conditions(method, name).items():
        if other == "task":
            found += [(other, task) for task in method.tasks if task not in allowed][:1]
            continue
        annotation = method.config.model_fields[other].annotation
        if (least := above(allowed)) is not None:
            found.append((other, None if NoneType in get_args(annotation) else least))
        elif allowed in ([0.0], [None]):
            found.append((other, 50.0))
        else:
            options = (True, False) if annotation is bool else get_args(annotation)
            found += [(other, value) for value in options if value not in allowed]
    return found


def train_states(
    method: Method, settings: Mapping[str, Any], task: Task, precision: Precision = "float32", *, models: bool = False
) -> bytes:
    """Every client's state after three rounds, or its models alone."""
    config = method.config(**settings)
    key = (method, repr(config), task, precision, models)
    found = next((one for known, one in _LEARNED if known == key), None)
    if found is None:
        clients = _play_rounds(method, config, task, precision)
        trees = [client.final_models() if models else client.state() for client in clients]
        found = b"".join(encode_tree(tree).tobytes() for tree in trees)
        _LEARNED.append((key, found))
    return found


def find_difference(one: tuple[Method, Mapping[str, Any]], other: tuple[Method, Mapping[str, Any]], task: Task) -> str:
    """Where two methods' models differ after three rounds, in words: by how much, or that one lacks them; empty where
    they are the same, bit for bit.

    Args:
        one, other: Each with its settings; the first is what the second should be.
        task: Of both.
    """
    if train_states(*one, task, models=True) == train_states(*other, task, models=True):
        return ""
    wanted, got = (_list_weights(method, settings, task) for method, settings in (one, other))
    for place in dict.fromkeys((*wanted, *got)):
        if place not in wanted or place not in got or wanted[place].shape != got[place].shape:
            return f"after three rounds, only one of them has {place}, or of another shape"
        if not torch.equal(wanted[place], got[place]):
            far = (wanted[place] - got[place]).abs().max().item()
            return f"after three rounds, {place} differs by up to {far:.3g}"
    return "after three rounds, their models have the same weights in another order or form"


def _list_weights(method: Method, settings: Mapping[str, Any], task: Task) -> dict[str, Tensor]:
    """Every client's weights by where they stand."""
    clients = _play_rounds(method, method.config(**settings), task, "float32")
    return {
        f"client {place}'s {view}/{name}": tensor
        for place, client in enumerate(clients)
        for view, weights in client.final_models().items()
        for name, tensor in weights.items()
    }


_LEARNED: deque[tuple[Any, bytes]] = deque(maxlen=16)
"""The last few: most changes start from the same settings."""


def _play_rounds(method: Method, config: MethodConfig, task: Task, precision: Precision) -> list[ClientBase[Any]]:
    """Three clients after three rounds."""
    model = method.model or {}
    name = model.get("name") or model.get(task, {}).get("name") or ("gin" if task == "graph" else "gcn")
    spec = ModelSpec(name, {"hidden": 8}, precision)
    silos = _silos(task, method.cut_links)
    federation = InProcess(
        [silo.client for silo in silos],
        lambda client: method.client(ClientContext(client, silos[client], config, spec, 0)),
    )
    specs = dict.fromkeys(federation.clients, spec)
    play(method.server(ServerContext(config, silos[0].schema, specs, 0, federation.clients)), federation, ROUNDS)
    return [federation.client(client) for client in federation.clients]


@cache
def _silos(task: Task, cut_links: bool) -> tuple[Silo, ...]:
    """Three clients with different numbers of items and, the first with fewer, of training items."""
    several: dict[str, Any] = {"task": task, "partition": {"clients": 3, "rule": "metis"}}
    if task in TARGET_TASKS:
        several["data"] = {"name": str(measured(task))}
    elif task == "graph":
        several |= {"data": {"name": str(rings())}, "partition": {"clients": 3, "rule": "dirichlet"}}
    else:
        several["data"] = {"name": "citation-sbm", "generator": {"nodes": 122, "classes": 3, "features": 12}}
    if task == "node":
        several["partition"]["ratios"] = [0.4, 0.3, 0.3]
    first, *others = prepare(load_config(several), replace(load("fedavg"), cut_links=cut_links)).silos
    return (first if task == "link" else replace(first, train=first.train[:-5]), *others)
