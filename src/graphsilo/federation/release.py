"""Releases: numbers that leave a silo with noise that makes them differentially private, and what both sides need.

A silo adds all of the noise itself (``method.noise=silo``), or its share of what a secure sum needs (``sum``). Either
way numbers leave as whole steps of the grid that the noise is on (``federation.noise``): they add up without rounding,
in plain and masked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import torch
from pydantic import model_validator
from torch import Tensor

from graphsilo.data.scales import Scaling
from graphsilo.errors import ConfigError, DisclosureError, MessageError, several
from graphsilo.federation import noise as gaussian
from graphsilo.federation.message import Message, sends
from graphsilo.federation.secure import MIN_PARTIES
from graphsilo.federation.secure.fixed import MAX_PARTIES
from graphsilo.federation.secure.peers import count_honest
from graphsilo.federation.settings import ABOVE_ZERO, MethodConfig, setting

if TYPE_CHECKING:
    from graphsilo.data.silos.silo import Schema

_LARGE_EPSILON = 20
"""From here on odds may change by e^20, and somebody who looks may be as good as sure."""
_LARGE_DELTA = 1e-3
"""From here on a δ is no small probability in any data."""

# -- settings ----------------------------------------------------------------------------------------------------------


class PrivateConfig(MethodConfig):
    """For methods that can send with noise what training sends.

    Attributes:
        protects: What the promise is about: single nodes, or all that a silo has.
    """

    protects: ClassVar[Literal["nodes", "silos"]] = "nodes"
    fewer: ClassVar[str] = "fewer features"
    """What makes a release of fewer numbers, in words."""

    epsilon: float | None = setting(
        None, "differential privacy: what training sends leaves with normal noise for this ε; none: no noise. Scores "
        "are not covered", source="ours", ge=gaussian.EPSILONS[0], le=gaussian.EPSILONS[1],
    )  # fmt: skip
    delta: float = setting(1e-5, "δ beside ε", source="ours", gt=0, lt=1, when={"epsilon": ABOVE_ZERO})
    noise: Literal["silo", "sum"] = setting(
        "silo", "who adds the noise: every silo all of it (a promise against whoever sees its answer), or all together "
        "what their sum needs, with run.secure_sums (against whoever sees sums, with fewer than a third of the silos "
        "colluding)", source="ours", when={"epsilon": ABOVE_ZERO},
    )  # fmt: skip

    @model_validator(mode="after")
    def _check_noise(self) -> Self:
        if self.epsilon is not None and self.mu < gaussian.LEAST_MU:
            several = f" and {self.releases} releases" if self.releases > 1 else ""
            raise ConfigError(
                f"method.epsilon={self.epsilon:g} with method.delta={self.delta:g}{several} asks for noise of "
                f"{1 / self.mu:.3g} times what one of the {self.protects} that are protected can change. Above "
                f"{1 / gaussian.LEAST_MU:g} times it is too large to be sent as whole numbers of 64 bits, and nothing "
                f"can be learned from it. Take a larger method.epsilon or method.delta."
            )
        return self

    @property
    def releases(self) -> int:
        """How many times a silo sends something with noise in a run of one seed."""
        return 1

    @property
    def mu(self) -> float:
        """How well one release tells whether a node, or a silo's data, was there, as ``federation.noise`` has it."""
        assert self.epsilon is not None
        return gaussian.mu_of(self.epsilon, self.delta) / math.sqrt(self.releases)

    @property
    def account(self) -> float:
        """The same of what the data of a silo are that takes part, a single node included: what its owner counts.

        Where silos are protected that is twice as much, as one node may turn a change round.
        """
        return self.mu * (2 if self.protects == "silos" else 1)

    def numbers(self, schema: Schema) -> int:
        """How many numbers a silo releases at a time; 0 where that is not known from here."""
        return 0

    def noise_ratio(self, numbers: int, units: float, asked: int) -> float:
        """Length of the noise in a sum of releases, as a multiple of the largest length that the sum can have.

        Args:
            numbers: How many are in it.
            units: How many of what is protected are in it; each moves it by Δ at most.
            asked: Silos that add to it.
        """
        sigma = gaussian.deviation(1.0, self.mu) * math.sqrt(asked / count_sharers(self, asked))
        return sigma * math.sqrt(numbers) / units

    def explain_no_effect(self, schema: Schema, items: int, asked: int, model: str) -> str:
        numbers = self.numbers(schema) if self.epsilon is not None else 0
        ratio = self.noise_ratio(numbers, max(items, 1), asked) if numbers else 0.0
        if ratio <= 1:
            return ""
        return (
            f"the noise in what training sends is {ratio:.3g} times as large as the sums under it can be: {items} "
            f"training items, {numbers:,} numbers, {asked} silos, ε = {self.epsilon:g}. The silos learn little or "
            f"nothing from each other. Take more training items, {self.fewer} or a larger method.epsilon."
        )

    @property
    def needs_secure_sums(self) -> str:
        if self.epsilon is None or self.noise == "silo":
            return ""
        return (
            "with method.noise=sum every silo adds only its share of the noise, which protects nothing but sums that "
            "nobody sees the parts of"
        )

    def promises(self, seeds: int) -> str:
        if self.epsilon is None:
            return ""
        told = gaussian.compose([self.mu] * self.releases * seeds)
        several = gaussian.epsilon_of(told, self.delta)
        more = f" {seeds} seeds are {seeds} releases: together ε = {several:.3g}." if seeds > 1 else ""
        if self.protects == "silos":  # a change turned round moves the sum by twice its length
            within = gaussian.epsilon_of(2 * told, self.delta)
            more += (
                f" That is of whether a silo took part; of what the data of one that took part are, a single node "
                f"included, it is ε = {within:.3g}."
            )
        if several > _LARGE_EPSILON:
            more += f" ε = {several:.3g} is large: it rules out next to nothing."
        if self.delta > _LARGE_DELTA:
            more += (
                f" δ = {self.delta:g} is large: with such a probability nothing may be hidden at all. Take one well "
                f"below 1 / the number of {self.protects}."
            )
        if self.noise == "silo":
            who = (
                f"every silo adds noise of its own to what training sends, for ε = {self.epsilon:g} and δ = "
                f"{self.delta:g}, whoever reads it."
            )
        else:
            who = (
                f"the silos together add the noise that the sum of what training sends needs, for ε = {self.epsilon:g} "
                f"and δ = {self.delta:g}, against whoever sees that sum, silos included, as long as fewer than a third "
                f"of them (of three or four: none but the one that looks) collude. It does not hold against one who "
                f"sees a silo's answer without its mask."
            )
        return (
            f"Differential privacy of {self.protects}: {who}{more} Not covered are scores and counts of evaluation, "
            f"the split into training and other nodes, and what silos say of their data before round 1, how often each "
            f"class occurs included. The noise comes from the operating system: no run with it is repeated to the bit. "
            f"If the run is stopped and resumed in one process, what was sent after its last checkpoint is sent again "
            f"with new noise, and is as many releases more; between machines silos send again what they sent."
        )

    def check_features(self, scaling: Scaling, estimated: Collection[str]) -> None:
        if self.epsilon is None or self.protects != "nodes":
            return
        if estimated:
            raise ConfigError(
                f"method.epsilon stands on how far one node can move what is sent, and what other nodes decide "
                f"({several(sorted(estimated), 3)}) moves with every node. Fill empty cells with a number of your own, "
                f"fixed before looking at the data (data.missing, in a silo.yaml `features: {{missing: {{COLUMN: "
                f"60}}}}`), and set data.degree_features, data.largest_component and data.sums to false (in a "
                f"description of tables `sums: false`)."
            )
        if scaling.has_columns:
            raise ConfigError(
                "method.epsilon stands on how far one node can move what is sent, and features that are scaled by "
                f"columns' means and deviations ({scaling.words()}) move with every node. Use data.scale=none, which "
                "in a silo.yaml is `features: {scale: none}`; with noise every row is given the length 1."
            )


# -- messages ----------------------------------------------------------------------------------------------------------


class ReleaseRequest(Message):
    """Ask for numbers with noise. Which ones, a client's own settings say.

    Attributes:
        size: How many the answer must have.
        honest: h, how many silos that do not collude every sum of the answers is sure to hold; 1: each adds all noise.
    """

    size: int = sends("control")
    honest: int = sends("control")


class Release(Message):
    """Numbers of one client in whole steps of the noise's grid, with 1/h of the noise's variance on each.

    Attributes:
        numbers: [n].
        clients: 1; of a sum, how many have added noise.
        mu: How well the sum (h = 1: the answer) tells whether the unit is there, for the silo's own account.
        honest: h.
    """

    numbers: Tensor = sends("statistic", dtype=torch.int64)
    clients: int = sends("counts")
    mu: float = sends("control")
    honest: int = sends("control")

    def honest_silos(self) -> int:
        return self.honest

    def check_answer(self, request: Message) -> None:
        """As many numbers as were asked for, of one client; noise leaves no more to look at."""
        size = getattr(request, "size", self.numbers.numel())
        found = (tuple(self.numbers.shape), self.clients)
        if found != ((size,), 1):
            raise MessageError(
                f"{type(self).__name__} holds numbers of shape {found[0]} from {found[1]} clients; {size} of one "
                f"client were asked for."
            )

    def check_total(self, request: Message, clients: int) -> None:
        if self.clients != clients:
            raise MessageError(
                f"{type(self).__name__} holds the noise of {self.clients} clients, and {clients} sent it."
            )


# -- the client's side -------------------------------------------------------------------------------------------------

ReleaseT = TypeVar("ReleaseT", bound=Release)


class Released:
    """What a client has released, so that whoever asks again has the same answer: the mean of several would have less
    noise.

    Args:
        config: Settings of the run.
        sensitivity: Δ, how far one unit moves the numbers.
    """

    def __init__(self, config: PrivateConfig, sensitivity: float):
        self.config, self.sensitivity = config, sensitivity
        self._last: dict[str, Any] = {}
        self._made = 0

    def answer(
        self, kind: type[ReleaseT], honest_silos: int, numbers: Callable[[], Tensor], number: int = 0
    ) -> ReleaseT:
        """The release of this number: made, or the one that was made before.

        Args:
            kind: Of the answer.
            honest_silos: h, as the request says.
            numbers: Computes what is released, before noise; of any shape.
            number: Which of the run's releases it is, such as the round.

        Raises:
            DisclosureError: These settings have no noise, noise of another kind, or fewer releases.
            MessageError: Too many silos, or none, are said to share the noise.
        """
        config = self.config
        if config.epsilon is None or (config.noise == "sum") != (honest_silos != 1):
            has = "none" if config.epsilon is None else f"method.noise={config.noise}"
            raise DisclosureError(
                f"{'all of the noise' if honest_silos == 1 else 'a share of noise'} was asked for, and this run's "
                f"settings have {has} (method.epsilon, method.noise)."
            )
        if not 1 <= honest_silos <= MAX_PARTIES:
            raise MessageError(f"noise is shared between 2 to {MAX_PARTIES} silos; {honest_silos} were asked for.")
        if self._last.get("number") != number:
            if self._made >= config.releases:
                raise DisclosureError(
                    f"this run's settings promise that {config.releases} answers with noise leave, and another one was "
                    f"asked for."
                )
            every = numbers().flatten()
            # Always new: equal releases would say for sure that no data changed in between, and equal shares cancel.
            steps = gaussian.noisy_steps(every, self.sensitivity, config.mu, honest_silos)
            self._last = {"number": number, "steps": steps.long(), "honest": honest_silos}
            self._made += 1
        last = self._last
        return kind(numbers=last["steps"], clients=1, mu=config.account, honest=last["honest"])

    def state(self) -> dict[str, Any]:
        """For a checkpoint; empty before the first release."""
        return {**self._last, "made": self._made} if self._made else {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state()``."""
        self._last = {name: value for name, value in state.items() if name != "made"}
        self._made = int(state.get("made", 0))


def refuse_without_noise(config: PrivateConfig) -> None:
    """For steps that send without noise: a coordinator may ask for any step of a method.

    Raises:
        DisclosureError: The settings promise noise.
    """
    if config.epsilon is not None:
        raise DisclosureError(
            "this run's settings promise differential privacy (method.epsilon), and what was asked for has no noise."
        )


# -- the server's side -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Noisy:
    """The sum of releases.

    Attributes:
        numbers: [n] float64.
        releases: How many times the variance that one release needs is in it: as many as clients where each has added
            all of it.
        sigma: The deviation of the noise on each number.
    """

    numbers: Tensor
    releases: float
    sigma: float


def count_sharers(config: PrivateConfig, asked: int) -> int:
    """h: how many honest silos every sum of so many clients' answers is sure to hold; 1 where nothing is shared."""
    if config.noise == "silo":
        return 1
    least = max(MIN_PARTIES, config.min_clients or asked)
    return min((count_honest(parties) for parties in range(least, asked + 1)), default=1)


def read_sum(total: Release, config: PrivateConfig, sensitivity: float, sharers: int) -> Noisy:
    """What the sum of the answers to a request is.

    Args:
        total: The sum.
        config: Settings of the run.
        sensitivity: Δ, as at the clients.
        sharers: h of the request.
    """
    releases = total.clients / sharers
    sigma = gaussian.deviation(sensitivity, config.mu) * math.sqrt(releases)
    return Noisy(total.numbers.double() * gaussian.grid(sensitivity, total.numbers.numel()), releases, sigma)
