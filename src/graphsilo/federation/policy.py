"""What may leave a silo: the policy of its owner, and the gate that every message passes in the silo's own process.

The coordinator is not asked. A method is looked at before a run (``DisclosurePolicy.check_method``), and every single
message before it is encoded (``Gate.check``); who refuses is the process that holds the data.

What a refusal says goes to the coordinator. So it names messages, fields and settings, and nothing that depends on
private data: no number of a class, no size of a message. These stand in the error's notes, which stay in the silo. That
something was refused is a bit of information all the same: with ``min_class_count``, that there is a small class.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, get_origin

from pydantic import field_validator

from graphsilo.errors import ConfigError, DataError, DisclosureError, GraphsiloError, nearest
from graphsilo.federation import noise, registry
from graphsilo.federation.account import Spent
from graphsilo.federation.kinds import KINDS
from graphsilo.federation.settings import MethodConfig
from graphsilo.settings import Settings, must_be, setting

if TYPE_CHECKING:
    from torch import Tensor

    from graphsilo.federation.message import FieldSpec, Message
    from graphsilo.federation.registry import Method

DEFAULT_KINDS = tuple(kind for kind in KINDS if kind not in ("topology", "logits"))
"""What every method that comes with graphsilo sends, in its default settings or in others."""
ALWAYS = "control"
"""The kind that says nothing about the data; every message has a header of it."""
ABOUT_CLASSES = ("prototype", "statistic", "synthetic")
"""Kinds whose fields must say whether they describe classes one by one, where small classes are to be protected."""

_WITHOUT_NOISE = ("control", "counts", "score")
"""Kinds that leave without noise where ``max_epsilon`` is set: methods with noise count nothing in training."""

SCALED_ALONE = (
    "Ask the silo's owner, or write `features: {scale_by: silo}` into every silo.yaml: each then scales alone."
)
"""What to do without such sums."""
TARGETS_TOGETHER = "Ask the silo's owner: numbers are estimated together on one scale, or by each silo for itself."
"""What to do where they are of targets."""

NOT_SHARED = (
    "this silo wants all of the noise in its own answer (policy.max_epsilon), and in this run silos share it, so that "
    "it protects their sum alone. Run with method.noise=silo, or ask the silo's owner to set policy.shared_noise."
)
"""Why a share of noise does not leave."""

_BYTES = ("max_total_bytes", "max_run_bytes", "max_message_bytes")
"""Bounds of which each is part of what the one before it counts."""
_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class DisclosurePolicy(Settings):
    """What the owner of a silo lets out: the mapping ``policy:`` of a ``silo.yaml``.

    Example:
        >>> DisclosurePolicy.of({"methods": ["fedavg"], "max_message_bytes": "10 MB"}).max_message_bytes
        10000000
    """

    section: ClassVar[str] = "policy"
    methods: tuple[str, ...] | None = setting(None, "methods that the silo takes part in; none: in all")
    kinds: tuple[str, ...] = setting(
        DEFAULT_KINDS,
        "kinds of disclosure that messages of a run may hold; control, which says nothing about the data, always may. "
        "The silo's card is no message: it leaves before every run, whatever the policy says",
    )
    relay: bool = setting(True, "whether messages may leave that the coordinator passes on to other silos as they came")
    recoverable: bool = setting(
        False, "whether messages may leave that give features of single nodes away whatever was asked (fedgcn; "
        "fedsage_plus with exchange=outputs). It does not keep in what else they can be computed from, such as "
        "fedsage_plus's gradients; kinds does",
    )  # fmt: skip
    max_message_bytes: int = setting(
        256 * 2**20, "most bytes of tensors and text in one message; a number, or text such as 256 MiB", ge=1
    )
    max_run_bytes: int | None = setting(
        None, "most bytes that a run may take out of the silo, evaluation included", ge=1
    )
    max_total_bytes: int | None = setting(
        None, "most bytes that all runs together may take out of the silo, counted from its log: a run's name and its "
        "rounds are the coordinator's word, the log is not", ge=1,
    )  # fmt: skip
    max_rounds: int | None = setting(None, "rounds of a run that the silo takes part in", ge=1)
    min_class_count: int = setting(
        1, "a class with fewer training items here, but some, is not described: neither by prototypes, statistics and "
        "synthetic nodes nor by counts per class; 1 is off", ge=1,
    )  # fmt: skip
    min_evaluation_count: int = setting(
        1, "a table of hits and misses, a score, a bin of scores, or a sum that scales features or targets, over fewer "
        "items, but some, does not leave; 1 is off", ge=1,
    )  # fmt: skip
    max_run_evaluations: int = setting(
        5_000, "answers of evaluation, and refusals, that a run gets of the same data: one in each round of a seed, "
        "two where evaluation.threshold_by is federation, and one more where a method chooses among models. From "
        "tables that hardly differ in models, thresholds or periods one learns of single items. Counted beside the "
        "data; the same answer to the same questions counts once", ge=1,
    )  # fmt: skip
    max_total_evaluations: int = setting(
        50_000, "likewise of all runs together: a run's name is the coordinator's word", ge=1
    )
    max_epsilon: float | None = setting(
        None, "differential privacy: largest ε that what training has sent in all runs may come to, counted from the "
        "silo's log; what carries no noise does not leave then. Scores and counts of evaluation are not part of it",
        gt=0,
    )  # fmt: skip
    shared_noise: bool = setting(
        False, "whether noise that silos share counts under max_epsilon: it protects their sum alone, and only if "
        "fewer than a third of them collude; else the silo adds all of it itself (method.noise=silo) or sends nothing",
    )  # fmt: skip
    max_delta: float = setting(1e-5, "δ beside max_epsilon", gt=0, lt=1)
    require_secure_sums: bool = setting(
        False, "whether nothing but masked answers leaves the silo, of which the coordinator sees sums alone"
    )
    min_silos: int = setting(3, "fewest silos of a secure sum that the silo takes part in", ge=3)
    error_texts: bool = setting(
        False, "whether the text of an unexpected error, which may hold values of the data, goes to the coordinator; "
        "else only its kind does",
    )  # fmt: skip

    @field_validator("methods", "kinds", mode="before")
    @classmethod
    def _wrap_name(cls, value: Any) -> Any:
        """One name may stand for a list of one."""
        return (value,) if isinstance(value, str) else value

    @field_validator("max_message_bytes", "max_run_bytes", "max_total_bytes", mode="before")
    @classmethod
    def _parse_bytes(cls, value: Any) -> Any:
        """Bytes from text such as ``256 MiB``."""
        if not isinstance(value, str):
            return value
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
        if found is None or (found[2] or "B") not in _UNITS:
            raise must_be(f"a number of bytes, or text such as '256 MiB' (units: {', '.join(_UNITS)})")
        return int(float(found[1]) * _UNITS[found[2] or "B"])

    @field_validator("kinds")
    @classmethod
    def _check_kinds(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in KINDS:
                raise ConfigError(f"policy.kinds: '{name}' is no kind of disclosure; {nearest(name, KINDS)}")
        return names

    @field_validator("methods")
    @classmethod
    def _check_methods(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names is None:
            return None
        known = {*registry.names(), *registry._REGISTERED}
        spelled = tuple(registry.resolve_name(name) for name in names)
        for name, given in zip(spelled, names, strict=True):
            if name not in known:
                raise ConfigError(
                    f"policy.methods: '{given}' is no method that is installed here; {nearest(name, known)}"
                )
        return spelled

    def allows(self, kind: str) -> bool:
        """Whether this kind of disclosure may leave the silo."""
        return kind == ALWAYS or kind in self.kinds

    def find_useless(self, secure: bool = False) -> dict[str, str]:
        """Lines that an owner wrote and that refuse nothing, each with what it needs.

        Args:
            secure: Whether a run makes secure sums; False, too, where no run is meant, as then it need not.
        """
        found = {}
        if self.max_epsilon is None:
            found = dict.fromkeys(("shared_noise", "max_delta"), "it goes with policy.max_epsilon, which is not set")
        if not secure and not self.require_secure_sums:
            found["min_silos"] = (
                "it counts the silos of secure sums, and runs without any are allowed; policy.require_secure_sums "
                "refuses those"
            )
        for wide, narrow in (*combinations(_BYTES, 2), ("max_total_evaluations", "max_run_evaluations")):
            most, bound = getattr(self, wide), getattr(self, narrow)
            if most is not None and bound is not None and most < bound:
                found[narrow] = f"policy.{wide} is less"
        return {name: why for name, why in found.items() if name in self.model_fields_set}

    # -- before a run --------------------------------------------------------------------------------------------------

    def check_method(self, method: Method, config: MethodConfig, class_counts: Sequence[int]) -> None:
        """Refuse a run that would be stopped by this policy on its way, before anything is trained.

        Looked at are the answers that the method's steps are declared to give, evaluation included, as far as its
        settings have them given. Fields that may be left out or be empty are looked at when they are filled (``Gate``).

        Args:
            method: What is run.
            config: Its settings in this run.
            class_counts: [C] training items of each class at this silo.

        Raises:
            DisclosureError: The method or one of its messages is not allowed; the text names message, field and kind.
        """
        from graphsilo.federation.interface import answers_of  # with torch, which a policy is read without
        from graphsilo.federation.release import PrivateConfig, Release

        if self.methods is not None and method.name not in self.methods:
            allowed = ", ".join(self.methods) or "none at all"
            raise DisclosureError(
                f"this silo does not take part in {method.title}: policy.methods allows {allowed}. Run one of these, "
                f"or ask the silo's owner to add '{method.name}'."
            )
        if self.max_rounds is not None and _rounds_are_set(method) and config.total_rounds > self.max_rounds:
            raise DisclosureError(
                f"this silo takes part in {self.max_rounds} rounds at most (policy.max_rounds); the run has "
                f"{config.total_rounds}. Set method.rounds={self.max_rounds}."
            )
        most = None if method.alone else self.max_epsilon  # of the training of silos by themselves nothing leaves
        epsilon = config.epsilon if isinstance(config, PrivateConfig) else None
        if isinstance(config, PrivateConfig) and epsilon is not None and self.max_epsilon is not None:
            epsilon = noise.epsilon_of(noise.compose([config.account] * config.releases), self.max_delta)
        if most is not None and (epsilon is None or epsilon > most * (1 + 1e-9)):
            raise DisclosureError(
                f"this silo sends nothing in training without noise, for ε = {most:g} at most in all runs "
                f"(policy.max_epsilon); this run has {'none' if epsilon is None else f'ε = {epsilon:.4g}'}. Choose a "
                f"method that has method.epsilon, such as fedridge, or ask the silo's owner."
            )
        if most is not None and config.needs_secure_sums and not self.shared_noise:
            raise DisclosureError(NOT_SHARED)
        small = small_classes(class_counts, self.min_class_count)
        for step, reply in answers_of(method.client).items():
            if epsilon is None and issubclass(reply, Release):
                continue  # noise that these settings have not
            for spec in reply.specs():
                if not _is_always_sent(spec) or not spec.is_sent(config):
                    continue
                self.check_field(step, reply, spec)
                if small:
                    self._check_described(step, reply, spec, config, small)

    def check_secure_sums(self, config: MethodConfig, secure: bool, report: str) -> None:
        """Refuse a run in which more than sums would be seen of this silo, where its owner wants sums alone; and secure
        sums to which others would add nothing.

        Args:
            config: Settings of the method.
            secure: Whether the run makes secure sums.
            report: ``evaluation.report`` of the run.

        Raises:
            DisclosureError: It is one.
        """
        for name in config.tells_apart if secure else ():
            given, usual = (getattr(one, name, None) for one in (config, type(config)()))
            if given != usual:
                raise DisclosureError(
                    f"method.{name}={given} changes what is added to a secure sum, or how much: with sums of other "
                    f"runs, or by itself, it may tell one silo's own numbers. In secure sums leave it at "
                    f"{'none' if usual is None else usual}."
                )
        if not self.require_secure_sums:
            return
        needed = config.single_answers
        if not secure or needed:
            more = f"; this method needs {needed}" if needed else ""
            raise DisclosureError(
                f"this silo lets nothing be seen but sums (policy.require_secure_sums){more}. Run with "
                f"run.secure_sums=true and a method that sums are enough for."
            )
        if report != "federation":
            raise DisclosureError(
                "this silo lets nothing be seen but sums (policy.require_secure_sums), and evaluation.report=silos "
                "shows its own counts and scores. Run with evaluation.report=federation."
            )

    def check_scaling(self, *, targets: bool = False) -> None:
        """Refuse the sums by which silos agree on the scale of their features, before anything is added up.

        Args:
            targets: Of their targets alone.

        Raises:
            DisclosureError: They are not allowed; the text says how to do without.
        """
        sums, todo = _scaling_sums(targets)
        if self.max_epsilon is not None:
            raise DisclosureError(
                f"{sums} have no noise, which this silo wants of all that it sends (policy.max_epsilon). {todo}"
            )
        for kind in ("counts", "statistic"):
            if not self.allows(kind):
                raise DisclosureError(
                    f"{sums} disclose {KINDS[kind]} (kind '{kind}'), which this silo's policy.kinds does not allow. "
                    f"{todo}"
                )

    def check_scaled_rows(self, rows: float, *, targets: bool = False) -> None:
        """Refuse such sums over few rows.

        Raises:
            DisclosureError: They are fewer than ``min_evaluation_count``, but some.
        """
        if 0 < rows < self.min_evaluation_count:
            sums, todo = _scaling_sums(targets)
            raise DisclosureError(
                f"{sums} are over fewer rows here than this silo's policy.min_evaluation_count of "
                f"{self.min_evaluation_count}, so that they do not leave. {todo}"
            )

    def check_field(self, step: str, reply: type[Message], spec: FieldSpec) -> None:
        """Refuse a field for what it is declared to be.

        Raises:
            DisclosureError: Its kind is not allowed; or others would get it as it came; or it gives features away.
        """
        place = f"{reply.__name__}.{spec.name}, which '{step}' sends,"
        if not self.allows(spec.kind):
            raise DisclosureError(
                f"{place} discloses {KINDS[spec.kind]} (kind '{spec.kind}'), which this silo's policy.kinds does not "
                f"allow. Choose a method or settings that send no such thing, or ask the silo's owner to allow "
                f"'{spec.kind}'."
            )
        if spec.recoverable is True and not self.recoverable:
            raise DisclosureError(
                f"{place} lets features of single nodes be computed, which this silo does not allow "
                f"(policy.recoverable). Choose other settings{_name_settings(spec.only_with)}, or ask the silo's owner "
                f"to allow it."
            )
        if spec.relayed and not self.relay:
            raise DisclosureError(
                f"{place} goes on to other silos as it came, which this silo does not allow (policy.relay). Choose a "
                f"method whose server keeps to itself what it gets, or ask the silo's owner to allow it."
            )

    def check_in_all(self, what: str, before: Spent, after: Spent) -> None:
        """Refuse a message with which more would have left in all runs than may.

        Args:
            what: The message, in words.
            before, after: What has left in all without it, and with it.

        Raises:
            DisclosureError: It would be too much.
        """
        most, more = self.max_epsilon, after.squared_mu > before.squared_mu
        if most is not None and more and noise.epsilon_of(after.mu, self.max_delta) > most * (1 + 1e-9):
            error = DisclosureError(
                f"with {what}, all that this silo has sent would come to more than ε = {most:g} at δ = "
                f"{self.max_delta:g} (policy.max_epsilon). Choose a smaller method.epsilon and fewer seeds, or ask "
                f"the silo's owner."
            )
            error.add_note(f"What was sent before comes to ε = {noise.epsilon_of(before.mu, self.max_delta):.4g}.")
            raise error
        if self.max_total_bytes is not None and after.bytes > self.max_total_bytes:
            raise _make_size_error(
                f"with {what}, more bytes would have left the silo in all runs than {self.max_total_bytes} "
                f"(policy.max_total_bytes). Ask the silo's owner.", after.bytes - before.bytes,
            )  # fmt: skip

    def _check_described(
        self, step: str, reply: type[Message], spec: FieldSpec, config: MethodConfig, small: Sequence[int]
    ) -> None:
        """Refuse a field that is going to describe small classes."""
        if spec.per_class is False or (spec.per_class is None and not self._may_describe(spec)):
            return
        if isinstance(spec.per_class, str) and getattr(config, spec.per_class) >= self.min_class_count:
            return
        raise self.make_class_error(step, reply, spec, small)

    def _may_describe(self, spec: FieldSpec) -> bool:
        """Whether a field that does not say so may tell of classes one by one.

        Noise hides a class only where the owner bounds it, and nothing of such a kind leaves without it then. Else a
        coordinator has it as small as it likes.
        """
        return spec.kind in ABOUT_CLASSES and self.max_epsilon is None

    def make_class_error(
        self, step: str, reply: type[Message], spec: FieldSpec, small: Sequence[int]
    ) -> DisclosureError:
        """The error for a field that describes small classes, or may."""
        minimum = self.min_class_count
        told = spec.per_class or spec.evaluated
        does = "describes classes one by one" if told else "does not say whether it describes classes"
        advice = "Choose another method"
        if spec.evaluated:
            advice = (
                "Runs go on without this silo's scores where method.min_clients allows it; its owner can take such a "
                "class out of training, by the split or its labels, or set a smaller minimum"
            )
        if isinstance(spec.per_class, str):
            advice = (
                f"Without secure sums set method.{spec.per_class} to {minimum} or more; in secure sums, where every "
                f"silo refuses more than its default, or if it is as large, choose another method"
            )
        asked = "" if spec.evaluated else ", or ask the silo's owner"
        asked += "" if told else ": with noise it may leave where policy.max_epsilon bounds that"
        error = DisclosureError(
            f"{reply.__name__}.{spec.name}, which '{step}' sends, {does}, and this silo has one with fewer training "
            f"items than its policy.min_class_count of {minimum}. {advice}{asked}."
        )
        error.add_note(f"Classes with too few training items here: {', '.join(map(str, small))}.")
        return error


def _scaling_sums(targets: bool) -> tuple[str, str]:
    """What they are called, and what to do without."""
    of = "the sums by which silos agree on the scale of their"
    return (f"{of} targets", TARGETS_TOGETHER) if targets else (f"{of} features", SCALED_ALONE)


def small_classes(class_counts: Sequence[int], minimum: int) -> list[int]:
    """Numbers of the classes with fewer items than ``minimum``, but some.

    Example:
        >>> small_classes([0, 1, 4, 5], 5)
        [1, 2]
    """
    return [number for number, count in enumerate(class_counts) if 0 < count < minimum]


def _name_settings(settings: Iterable[tuple[str, Any]], before: str = " than ") -> str:
    text = ", ".join(f"method.{name}={value}" for name, value in settings)
    return f"{before}{text}" if text else ""


def _rounds_are_set(method: Method) -> bool:
    """Whether a run has as many rounds as its settings say; where the server decides by itself, the gate counts."""
    from graphsilo.federation.server import ServerBase

    return method.server.rounds is ServerBase.rounds


def _is_always_sent(spec: FieldSpec) -> bool:
    """Whether a field cannot be left out, nor be an empty list, mapping or text."""
    container = spec.form == "plain" and (spec.plain_type is str or get_origin(spec.plain_type) is not None)
    return spec.required and not spec.optional and not container


# -- during a run ------------------------------------------------------------------------------------------------------


class Gate:
    """What every message of one client passes in one run, before it is encoded.

    Args:
        policy: Of the silo.
        class_counts: [C] training items of each class at the silo.
        sent_bytes: What has left in this run already, if the process is younger than the run
            (``Journal.sent_bytes``); every message is counted once, however often its bytes are sent again.
        spent: What has left in all runs already.
        singles: Where the run was opened with secure sums: the steps whose single answers may be seen all the same;
            None where it was not.
        config: Settings of the run's method; with others some fields are sent that never leave with these.

    Attributes:
        sent_bytes: What has left in this run: bytes of tensors and text, as ``payload_bytes`` counts them.
        spent: What has left in all, as far as this run knows; those beside it are counted when a message leaves
            (``Journal``).
    """

    def __init__(
        self, policy: DisclosurePolicy, class_counts: Sequence[int], *, sent_bytes: int = 0,
        spent: Spent | None = None, singles: Collection[str] | None = None, config: MethodConfig | None = None,
    ):  # fmt: skip
        self.policy, self.singles, self.config = policy, singles, config
        self.classes = len(class_counts)
        self.small = small_classes(class_counts, policy.min_class_count)
        self.sent_bytes, self.spent = sent_bytes, spent or Spent()

    def admit(self, round_number: int) -> None:
        """Refuse a call before its step runs.

        Raises:
            DisclosureError: The run has more rounds than this silo takes part in.
        """
        limit = self.policy.max_rounds
        if limit is not None and round_number > limit:
            raise DisclosureError(
                f"this silo takes part in {limit} rounds at most (policy.max_rounds), and this is round "
                f"{round_number}. Set method.rounds={limit}."
            )

    def explain_only_sums(self, handler: str) -> str:
        """Why nothing but a sum of what a step answers may be seen, in words; empty where a single answer may."""
        if self.policy.require_secure_sums:
            return "this silo lets nothing be seen but sums (policy.require_secure_sums)"
        if self.singles is not None and handler not in self.singles:
            return "this run was opened with secure sums, in which nothing but sums is seen"
        return ""

    def check_single(self, handler: str, reply: type[Message]) -> None:
        """Refuse a step whose answer would not be masked, where nothing else may leave: before it runs, as whether it
        can be carried out may depend on rows.

        Raises:
            DisclosureError: It may not.
        """
        why = self.explain_only_sums(handler)
        if why and any(spec.kind != ALWAYS for spec in reply.specs()):
            raise DisclosureError(f"{reply.__name__}, which '{handler}' sends, would be seen by itself, and {why}.")

    def check(self, handler: str, reply: Message) -> int:
        """Let a message pass.

        Returns:
            Its bytes of tensors and text, which are added to ``sent_bytes``.

        Raises:
            DisclosureError: The policy does not allow it; nothing has changed then.
        """
        policy, kind, size = self.policy, type(reply), 0
        for spec in reply.specs():
            value = getattr(reply, spec.name)
            if not is_filled(value):
                continue
            if not spec.is_sent(self.config):
                raise DisclosureError(
                    f"{kind.__name__}.{spec.name}, which '{handler}' sends, leaves in runs with "
                    f"{_name_settings(spec.only_with, '')} only, and this run was opened with other settings."
                )
            policy.check_field(handler, kind, spec)
            self._check_classes(handler, kind, spec, value)
            if spec.evaluated:
                self._check_evaluation(spec, value)
                self._check_trained(handler, reply, spec)
            size += payload_bytes(value)
        if policy.min_evaluation_count > 1:
            self._check_sums(reply)
        if policy.max_epsilon is not None:
            self._check_noise(handler, reply)
        if size > policy.max_message_bytes:
            raise _make_size_error(
                f"{kind.__name__}, which '{handler}' sends, has more bytes than this silo lets out in one message: "
                f"{policy.max_message_bytes} (policy.max_message_bytes). Choose a smaller model or other settings, or "
                f"ask the silo's owner.", size,
            )  # fmt: skip
        if policy.max_run_bytes is not None and self.sent_bytes + size > policy.max_run_bytes:
            raise _make_size_error(
                f"with {kind.__name__}, which '{handler}' sends, this run would take more bytes out of the silo than "
                f"{policy.max_run_bytes} (policy.max_run_bytes). Choose fewer rounds or a smaller model, or ask the "
                f"silo's owner.", size,
            )  # fmt: skip
        after = self.spent.plus(getattr(reply, "mu", None), size)
        policy.check_in_all(f"{kind.__name__}, which '{handler}' sends", self.spent, after)
        self.sent_bytes += size
        self.spent = after
        return size

    def may_report(self, error: Exception) -> bool:
        """Whether the coordinator may read an error's text: those that graphsilo words itself quote no tables."""
        return self.policy.error_texts or (isinstance(error, GraphsiloError) and not isinstance(error, DataError))

    def _check_noise(self, handler: str, reply: Message) -> None:
        """Refuse what has no noise, or a share of it."""
        kind = type(reply)
        if getattr(reply, "mu", None) is None:
            for spec in reply.specs():
                if spec.kind not in _WITHOUT_NOISE and is_filled(getattr(reply, spec.name)):
                    raise DisclosureError(
                        f"{kind.__name__}.{spec.name}, which '{handler}' sends, has no noise, and this silo sends "
                        f"nothing in training without (policy.max_epsilon). Choose a method that has method.epsilon."
                    )
        elif reply.honest_silos() > 1 and not self.policy.shared_noise:
            raise DisclosureError(NOT_SHARED)

    def _check_classes(self, handler: str, kind: type[Message], spec: FieldSpec, value: Any) -> None:
        if not self.small or spec.per_class is False:
            return
        if spec.per_class is None:
            if self.policy._may_describe(spec):
                raise self.policy.make_class_error(handler, kind, spec, self.small)
            return
        for part in _parts(value):
            described = described_classes(part, self.classes)
            if any(described[number] for number in self.small):
                raise self._make_class_error(handler, kind, spec)

    def _make_class_error(self, handler: str, kind: type[Message], spec: FieldSpec) -> DisclosureError:
        error = self.policy.make_class_error(handler, kind, spec, self.small)
        error.of_answer = True
        return error

    def _check_sums(self, reply: Message) -> None:
        from graphsilo.federation.scaling import FeatureSquares, FeatureSums, TargetSums

        if isinstance(reply, FeatureSums | FeatureSquares | TargetSums):
            self.policy.check_scaled_rows(reply.fewest, targets=isinstance(reply, TargetSums))

    def _check_evaluation(self, spec: FieldSpec, value: Any) -> None:
        least = self.policy.min_evaluation_count
        if any(0 < count < least for count in _count_scored(spec, value)):
            error = DisclosureError(
                f"an evaluation set of this silo has fewer items than its policy.min_evaluation_count of {least}, so "
                f"that its scores do not leave. Runs go on without this silo where method.min_clients allows it; or "
                f"ask its owner."
            )
            error.of_answer = spec.evaluated == "each"  # how many items there are in all, the card says
            raise error

    def _check_trained(self, handler: str, reply: Message, spec: FieldSpec) -> None:
        """Tables of training items tell how many there are of each class, whatever was predicted."""
        if not self.small or spec.kind != "counts":
            return
        for table in _find_training_tables(reply):
            if any(described_classes(table.sum((0, 2)), self.classes)[number] for number in self.small):
                raise self._make_class_error(handler, type(reply), spec)


def _make_size_error(text: str, size: int) -> DisclosureError:
    error = DisclosureError(text)
    error.add_note(f"The message has {size} bytes.")
    return error


def _count_scored(spec: FieldSpec, value: Any) -> Iterator[float]:
    """How many items stand behind each table, and behind each score."""
    if spec.kind == "score":
        for each in value.values():
            yield from each[1::2] if isinstance(each, list | tuple) else each[1].tolist()
    elif spec.evaluated == "each":
        yield from (float(number) for table in value.values() for number in table.flatten().tolist())
    elif isinstance(value, Mapping):
        yield from (float(table.sum()) for table in value.values())
    else:
        yield from value.flatten(1).sum(1).tolist()


def _find_training_tables(reply: Message) -> Iterator[Tensor]:
    """[4, C true, C predicted] tables of training items."""
    from graphsilo.federation.client import EvaluateReply, EvaluateSums

    if isinstance(reply, EvaluateReply):
        pairs = zip(reply.kinds.values(), reply.parts, strict=True)
        names = [name for kinds, parts in pairs for name in list(kinds) * parts]
        yield from (table for name, table in zip(names, reply.counts, strict=True) if name == "train")
    elif isinstance(reply, EvaluateSums):
        yield from (table for name, table in reply.counts.items() if name.endswith("/train"))


def is_filled(value: Any) -> bool:
    """Whether a field says anything: None, tensors without numbers and empty lists, mappings and texts do not."""
    if value is None:
        return False
    if hasattr(value, "numel"):
        return bool(value.numel())
    return bool(value) if isinstance(value, str | Mapping | list | tuple) else True


def payload_bytes(value: Any) -> int:
    """Bytes of a field: the numbers in its tensors, their names, text in UTF-8, 8 for a number, 1 for a truth value.

    The message on its way has more: types, shapes, the names of the fields, and padding.

    Example:
        >>> payload_bytes({"é": [1, 2.5, True, None]})
        19
    """
    if hasattr(value, "numel"):
        return int(value.numel() * value.element_size())
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, Mapping):
        return sum(payload_bytes(key) + payload_bytes(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return sum(map(payload_bytes, value))
    if value is None:
        return 0
    return 1 if isinstance(value, bool) else 8


def described_classes(value: Any, classes: int) -> list[bool]:
    """[C] whether a part of a field says anything of each class: some entry of the class's block is not 0.

    Args:
        value: A tensor or a plain list; the first axis is divided evenly among the classes, in their order. If it
            cannot be, or if it is something else, all classes count as described.
        classes: C.

    Example:
        >>> described_classes([0, 0, 3.5, 0, 0, 0], 3)
        [False, True, False]
    """
    if isinstance(value, list | tuple):
        each, rest = divmod(len(value), max(classes, 1))
        blocks = [value[number * each : (number + 1) * each] for number in range(classes)]
        return [rest != 0 or any(map(_is_nonzero, block)) for block in blocks]
    if not hasattr(value, "numel") or not value.dim() or not classes or len(value) % classes:
        return [True] * classes
    found: list[bool] = value.reshape(classes, -1).ne(0).any(1).tolist()
    return found


def _is_nonzero(value: Any) -> bool:
    return any(map(_is_nonzero, value)) if isinstance(value, list | tuple) else value != 0


def _parts(value: Any) -> Iterator[Any]:
    """What is divided among the classes: each tensor of a field, or a plain value whole."""
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else (value,)
    if isinstance(value, Mapping) or any(hasattr(item, "numel") for item in items):
        yield from (item for item in items if is_filled(item))
    else:
        yield value
