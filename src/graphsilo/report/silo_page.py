"""What the owner of a silo, or a data protection officer, wants to know of one run before it begins, on one page.

What would leave the silo under its policy, when, and who could see it; what has left so far, by the silo's own log;
which promises hold, and by what; what is promised by nobody.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from graphsilo.attacks import findings
from graphsilo.attacks.findings import Finding
from graphsilo.data.silos.column_scales import fewest_rows
from graphsilo.data.silos.targets import described_counts, target_sums
from graphsilo.errors import ConfigError, DisclosureError, GraphsiloError, RunError, UnsupportedError
from graphsilo.experiments.check_answers import BY_SETTINGS
from graphsilo.experiments.check_remote import check_remote
from graphsilo.experiments.effects import drop_idle
from graphsilo.experiments.references import reference_config, with_alone
from graphsilo.experiments.simulation import method_of
from graphsilo.experiments.storage import disk
from graphsilo.federation import journal, noise, registry
from graphsilo.federation.account import Account
from graphsilo.federation.compressing import compressible
from graphsilo.federation.exposure import warn_silo
from graphsilo.federation.kinds import KINDS, SHORT, describe_compression
from graphsilo.federation.policy import DisclosurePolicy, small_classes
from graphsilo.federation.release import PrivateConfig
from graphsilo.report import html
from graphsilo.report.formats import MISSING, REFERENCE_MEANINGS
from graphsilo.report.sections import Block, Page, Section, Table, add_heading, code, warn_of
from graphsilo.types import CLASS_TASKS

if TYPE_CHECKING:
    from graphsilo.data.silos.own import SiloFile
    from graphsilo.data.silos.silo import Silo
    from graphsilo.experiments.config import RunConfig, RunSection
    from graphsilo.federation.interface import Handler
    from graphsilo.federation.message import FieldSpec
    from graphsilo.federation.registry import Method
    from graphsilo.federation.settings import MethodConfig

Facts = list[tuple[str, str]]

_EVALUATION = {"silos": "evaluate", "federation": "evaluate_sums"}
"""The step by which clients are scored, by ``evaluation.report``."""
_AGREEING = "evaluate_bins"
"""The one before it by which they agree on a threshold."""
_ALMOST_NO_NOISE = noise.EPSILONS[1]
"""An ε."""


@dataclass(frozen=True)
class Sent:
    """One step of a run in which something leaves the silo.

    Attributes:
        step: Its name.
        does: What it does, in a sentence.
        when: And how often.
        discloses: What leaves, in words, and the fields of the message that hold it.
        seen: By whom, and how.
    """

    step: str
    does: str
    when: str
    discloses: tuple[tuple[str, str], ...]
    seen: str


@dataclass(frozen=True)
class Past:
    """What one run has taken out of the silo, by its log."""

    run: str
    method: str
    first: str
    last: str
    messages: int
    bytes: int
    kinds: str
    refused: int


@dataclass(frozen=True)
class Promise:
    """One thing that an owner may want to be sure of.

    Attributes:
        what: In a few words.
        holds: Whether it does in this run.
        why: Because of what, or what would be needed.
    """

    what: str
    holds: bool
    why: str


@dataclass(frozen=True)
class Explained:
    """One silo and one run.

    Attributes:
        silo: Its name.
        title: Of the method.
        run: What is run, in words.
        refusals: Why the silo would not take part; empty if it would.
        warnings: What its owner should know of it.
        sent: What leaves, step by step.
        past: What has left, run by run; None without a log.
        spent: What releases with noise came to so far, in words; empty where there were none.
        promises: Which hold.
        attacks: What attacks on public data found from such messages.
        limits: What the policy says that is not the usual, in words.
    """

    silo: str
    title: str
    run: Facts
    refusals: list[str]
    warnings: list[str]
    sent: list[Sent]
    past: list[Past] | None
    spent: str
    promises: list[Promise]
    attacks: tuple[Finding, ...]
    limits: Facts

    @property
    def verdict(self) -> str:
        """Whether the silo takes part, in a sentence."""
        if self.refusals:
            return f"Under its policy the silo '{self.silo}' does not take part in this run."
        return f"Under its policy the silo '{self.silo}' takes part in this run."


NOT_PROMISED = (
    "That models, sums and synthetic nodes tell nothing: what is made of data tells of it. Only noise (differential "
    "privacy) bounds how much, for the messages of training.",
    "That the other silos and the coordinator run this software. The silo's own process, policy and log are all that "
    "it controls; what has left it is out of its hands.",
    "That a declaration is right: a method whose author calls rows of features a statistic passes.",
    "That scores tell nothing: a coordinator may send a model of its own making and have it scored.",
    "Anything against somebody who controls the silo's machine.",
)
"""What no setting gives."""


ATTACKERS = {
    "coordinator": "the coordinator", "silo": "another silo", "reader": "who reads the model or predictions"
}  # fmt: skip


def attack_rows(explained: Explained) -> list[tuple[str, str, str, str, str, str]]:
    """Attack, attacker, settings, success with its interval, what would be guessed without the run, and a verdict."""
    return [
        (
            f"{each.attack}: {each.figure}",
            ATTACKERS.get(each.attacker, each.attacker),
            each.variant or "as it comes",
            f"{each.value:.2f} ({each.low:.2f} to {each.high:.2f})",
            "0" if each.prior is None else f"{each.prior:.2f}",
            "better than without" if each.succeeds else "no better than without",
        )
        for each in explained.attacks
    ]


def explain(described: SiloFile, held: Silo, config: RunConfig, log: Path | None = None) -> Explained:
    """What a run with these settings means for a silo.

    Args:
        described: The silo's file.
        held: Its data.
        config: Settings of the run; those of data and cut play no part.
        log: The log that the silo keeps of what it sends.

    Raises:
        ConfigError: The policy is not one, or the method takes no part between machines.
        RunError: The log cannot be read, or is none.
    """
    policy = DisclosurePolicy.of(described.policy, origin=str(described.path))
    method, settings = registry.load(config.method.name), config.method_config()
    if method.pooled:
        raise ConfigError(f"{method.title} pools all data in one place; silos do not take part in that.")
    entries = [] if log is None else list(journal.read(log))
    damaged = sum(entry.way == "damaged" for entry in entries)
    if entries and damaged == len(entries):
        raise RunError(f"{log} is no log that a silo keeps: not one of its lines can be read.")
    counted = Account(described.record("account")).read()
    spent = max(journal.compose_mu(entries), 0.0 if counted is None else counted.mu)
    idle = {name: f" (without effect here: {why})" for name, why in policy.find_useless(config.run.secure_sums).items()}
    return Explained(
        silo=described.name,
        title=method.title,
        run=[
            *_run(method, settings, config),
            *(("afterwards", text) for text in _describe_references(policy, config, described, held, spent)),
        ],
        refusals=list(_refusals(policy, config, described, held, spent)),
        warnings=list(_warnings(policy, method, settings, held, config, damaged)),
        sent=[*_list_sums(described, held, config, policy, method), *_list_steps(method, settings, config, policy)],
        past=None if log is None else _list_past_runs(entries),
        spent=f"Releases with noise came to ε = {noise.epsilon_of(spent, policy.max_delta):.3g} at δ = "
        f"{policy.max_delta:g} so far."
        if spent
        else "",
        promises=list(_promises(policy, method, settings, config)),
        attacks=_attacks(method, settings, config),
        limits=[(f"policy.{name}", _text(value) + idle.get(name, "")) for name, value in described.policy.items()],
    )


def write(explained: Explained, before: Facts, stays: str, out: Path) -> None:
    """Write the page.

    Args:
        explained: What it says.
        before: What the federation learns of the silo before round 1.
        stays: What it does not.
        out: The file.

    Raises:
        RunError: It cannot be written.
    """
    disk.write_text(out, render(explained, before, stays))


def render(explained: Explained, before: Facts, stays: str) -> str:
    """The page as HTML."""
    return html.page(describe(explained, before, stays))


def describe(one: Explained, before: Facts, stays: str) -> Page:
    """Everything the page shows."""
    usual = Markup("The silo's file says nothing under <code>policy:</code>, so the usual policy holds.")
    steps = [
        (
            Markup("{} {}").format(step.does, code(step.step)),
            step.when,
            Markup("; ").join(Markup("{} {}").format(words, code(fields)) for words, fields in step.discloses),
            step.seen.capitalize(),
        )
        for step in one.sent
    ]
    runs = [
        (
            run.run, run.method or MISSING, f"{run.first}, {run.last}", run.messages, journal.format_size(run.bytes),
            run.kinds or MISSING, run.refused,
        )
        for run in one.past or ()
    ]  # fmt: skip
    left = Table("Runs in the silo's log", _LEFT, runs)
    measured = Markup(
        "Measured on public data ({}) from messages of this method, by attackers who keep to the protocol and look at "
        "all that they see. Another graph may give away more or less; <code>graphsilo attack</code> measures it on a "
        "run of one's own."
    ).format(", ".join(sorted({each.data for each in one.attacks})))
    attacks = Table("Attacks", _ATTACKS, attack_rows(one))
    promises = [(promise.what, "yes" if promise.holds else "no", promise.why) for promise in one.promises]
    past: list[Block] = [("table", left) if runs else ("plain", "Nothing."), ("plain", one.spent)]
    return Page(
        f"{one.title} at silo '{one.silo}'",
        "graphsilo, for the owner of a silo",
        [("lede", one.verdict)],
        [
            Section("run", "Run and policy", [
                ("lines", [*one.run, *((code(name), value) for name, value in one.limits)]),
                ("note", "" if one.limits else usual),
            ], "Run"),
            Section("leaves", "What would leave the silo", [
                *add_heading("Before round 1", [("lines", before)]),
                ("heading", "In the run"),
                ("table", Table("Steps of the method in which something leaves the silo", _STEPS, steps)),
                ("note", "The steps are those of a trial run on small data with these settings. Names, shapes and "
                         "settings travel with every message and say nothing about the data."),
                ("plain", stays),
            ], "What would leave"),
            Section("past", "What has left so far", [] if one.past is None else past, "What has left"),
            Section("attacks", "What attacks found", [("plain", measured), ("table", attacks)] if one.attacks else [],
                    "Attacks"),
            Section("promises", "What is promised in this run", [
                ("table", Table("Promises", _PROMISES, promises)),
                *add_heading("What nobody promises", [("bullets", NOT_PROMISED)]),
            ], "Promises"),
        ],
        notices=[("aside", ("refusals", "Why not", one.refusals) if one.refusals else ()), warn_of(one.warnings)],
        footer=Markup("Made by <code>graphsilo silo explain</code> from the silo's own file, data and log. It stays at "
                      "the silo: nothing of this page was sent."),
    )  # fmt: skip


_STEPS = [("Step", "wrap"), ("When", "text wrap"), ("What leaves", "text wrap"), ("Who sees it", "text wrap")]
_LEFT = [
    ("Run", "wrap"), ("Method", "text"), ("First, last (UTC)", "text wrap"), ("Messages", ""), ("Bytes", ""),
    ("Of these", "text wrap"), ("Refused", ""),
]  # fmt: skip
_ATTACKS = [
    ("Attack and figure", "wrap"), ("Attacker", "text wrap"), ("Settings", "text wrap"), ("Success (95 %)", ""),
    ("Without the run", ""), ("Verdict", "text wrap"),
]  # fmt: skip
_PROMISES = [("Promise", "wrap"), ("Holds", "text"), ("By what", "text wrap")]


# -- the run -----------------------------------------------------------------------------------------------------------


def _run(method: Method, settings: MethodConfig, config: RunConfig) -> Facts:
    secure, report = config.run.secure_sums, config.evaluation.report
    seeds = len(config.run.seeds)
    rounds = settings.total_rounds
    given = [f"{name.removeprefix('method.')}={_text(value)}" for name, value in _find_overrides(config)]
    return [
        ("method", f"{method.title}: {method.summary}"),
        ("source", method.citation),
        *([("settings", ", ".join(given))] if given else []),
        ("length", f"{_count(rounds, 'round')}, {_count(seeds, 'seed')}"),
        ("sums", "masked (run.secure_sums)" if secure else "added up in plain by the coordinator"),
        ("scores", "of each silo" if report == "silos" else "of the federation as a whole (evaluation.report)"),
    ]


def _describe_references(
    policy: DisclosurePolicy, config: RunConfig, described: SiloFile, held: Silo, spent: float
) -> Iterator[str]:
    """Of every reference row what it is, and whether the silo takes part."""
    for name in with_alone(config).run.references:
        own = reference_config(config, name)
        method = method_of(own)
        if method.pooled:
            continue  # no coordinator begins such a run
        what = f"for comparison, {REFERENCE_MEANINGS[name]} (method {method.name})"
        refused = list(_refusals(policy, own, described, held, spent))
        if refused:
            yield f"{what}: without this silo: {refused[0]}"
        elif method.alone:
            more = ", with the standard errors of its differences" if policy.allows("score") else ""
            yield f"{what}: what evaluation sends leaves once more, for each round{more}; not with run.references=[]"
        else:
            yield f"{what}: this silo takes part; `graphsilo silo explain SILO.yaml {method.name}` lists what leaves"


def _find_overrides(config: RunConfig) -> Iterator[tuple[str, Any]]:
    """The method's settings that differ from how it comes."""
    settings = config.method_config()
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if value != field.get_default(call_default_factory=True):
            yield f"method.{name}", value


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value))
    return str(value)


# -- whether it takes part ---------------------------------------------------------------------------------------------


def _refusals(
    policy: DisclosurePolicy, config: RunConfig, described: SiloFile, held: Silo, spent: float
) -> Iterator[str]:
    method, settings = method_of(config), config.method_config()
    secure, report = config.run.secure_sums, config.evaluation.report
    scaling = described.scaling
    checks: list[Callable[[], object]] = [
        lambda: policy.check_method(method, settings, described_counts(held).tolist()),
        lambda: policy.check_secure_sums(settings, secure, report),
        *([policy.check_scaling] if scaling.is_agreed else []),
        *([lambda: policy.check_scaled_rows(fewest_rows(held))] if scaling.is_agreed else []),
        *(
            [
                lambda: policy.check_scaling(targets=True),
                lambda: policy.check_scaled_rows(min(filter(None, target_sums(held)[0]), default=0), targets=True),
            ]
            if held.schema.task == "regression" and not method.alone
            else []
        ),
        lambda: settings.check_features(scaling, held.estimated),
    ]
    for check in checks:
        try:
            check()
        except (DisclosureError, ConfigError) as error:
            yield str(error)
    begins: list[Callable[[], object]] = [
        lambda: drop_idle(config, remote=True),
        lambda: check_remote(config),
        *(partial(check, config, method, settings) for check in BY_SETTINGS),
    ]
    for check in begins:
        try:
            check()
        except (ConfigError, UnsupportedError) as error:
            yield f"No coordinator begins such a run: {error}"
    if held.schema.task not in method.tasks:
        yield f"{method.title} is made for tasks of another kind: {', '.join(method.tasks)}."
    if policy.max_epsilon is not None and isinstance(settings, PrivateConfig) and settings.epsilon is not None:
        one = noise.compose([settings.account] * settings.releases)
        together = noise.compose([spent, *[settings.account] * settings.releases * len(config.run.seeds)])
        epsilon = noise.epsilon_of(together, policy.max_delta)
        # What a run of one seed comes to by itself, the policy has looked at already.
        if noise.epsilon_of(one, policy.max_delta) <= policy.max_epsilon * (1 + 1e-9) < epsilon:
            earlier = "With what its log has of earlier releases, this run" if spent else "This run"
            yield (
                f"{earlier} would come to ε = {epsilon:.3g} at δ = {policy.max_delta:g} (policy.max_delta), and the "
                f"policy allows {policy.max_epsilon:g} (policy.max_epsilon)."
            )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _warnings(
    policy: DisclosurePolicy, method: Method, settings: MethodConfig, held: Silo, config: RunConfig, damaged: int
) -> Iterator[str]:  # fmt: skip
    if damaged:
        yield f"{_count(damaged, 'line')} of the log cannot be read; what they said left is not counted here."
    few = [
        f"{len(held.seen.items[name])} {name}" for name in ("val", "test")
        if 0 < len(held.seen.items.get(name, ())) < policy.min_evaluation_count
    ]  # fmt: skip
    if few:
        yield (
            f"With {' and '.join(few)} items, fewer than policy.min_evaluation_count of {policy.min_evaluation_count}, "
            f"scores of this silo do not leave: the run ends when they are asked for, or goes on without the silo "
            f"(method.min_clients)."
        )
    if held.links is None and small_classes(described_counts(held).tolist(), policy.min_class_count):
        yield (
            f"With a class of fewer training items than policy.min_class_count of {policy.min_class_count}, scores of "
            f"this silo do not leave, as tables of training items are part of them: the run ends when they are asked "
            f"for, or goes on without the silo (method.min_clients). Such a class can be taken out of training, by the "
            f"split or the labels."
        )
    if not config.run.secure_sums:
        least = getattr(settings, "min_count", 1)
        counts = held.class_counts().tolist()
        if text := warn_silo(method.title, settings.square_columns(held.schema), counts, least):
            yield text


# -- what leaves -------------------------------------------------------------------------------------------------------


def _list_sums(
    described: SiloFile, held: Silo, config: RunConfig, policy: DisclosurePolicy, method: Method
) -> Iterator[Sent]:
    """The sums by which silos learn how often classes occur, and agree on the units of features and targets."""
    seen = _describe_exposure(False, config.run.secure_sums, policy)
    if held.schema.task in CLASS_TASKS:
        does = "Add up how many training, validation and test items each class has, to know which are rare."
        counted = ((f"{KINDS['counts']}, class by class", "classes"),)
        yield Sent("counting classes", does, "Before round 1", counted, seen)
    scaled = {"features": described.scaling.is_agreed, "targets": held.schema.task == "regression" and not method.alone}
    for name in (name for name, is_agreed in scaled.items() if is_agreed):
        what = ((KINDS["counts"], "rows"), (f"{KINDS['statistic']}, column by column", "sums, sums of squares"))
        yield Sent(
            f"scaling {name}", f"Agree with the other silos on the units of {name}.", "Before round 1", what, seen
        )


def _list_steps(method: Method, settings: MethodConfig, config: RunConfig, policy: DisclosurePolicy) -> Iterator[Sent]:
    """The steps that a trial run on small data had with these settings, and the one that scores."""
    from graphsilo.federation.interface import handlers_of

    handlers = handlers_of(method.client)
    scoring = _EVALUATION[config.evaluation.report]
    seen = _try_run(method, config)
    tried = seen is not None
    if seen is None:  # then all that could be asked for
        own = {name for name in handlers if name not in (*_EVALUATION.values(), _AGREEING)}
        seen = {name: (frozenset({"setup", "round"}), True) for name in sorted(own)}
    every = _count(settings.total_rounds, "round")
    secure = config.run.secure_sums
    for name, (phases, single) in seen.items():
        before, during = "before round 1", f"in each round that asks this silo, of {every}"
        when = " and ".join([*([before] if "setup" in phases else []), *([during] if "round" in phases else [])])
        sent = _describe_disclosure(handlers[name], settings, config.run)
        if sent:
            when = _sentence(when) if tried else "Not known: no trial run could be made, and the method has this step"
            yield Sent(name, _summarise_step(handlers[name]), when, sent, _describe_exposure(single, secure, policy))
    agreeing = [(_AGREEING, False)] if config.evaluation.threshold_by == "federation" else []
    for name, single in (*agreeing, (scoring, config.evaluation.report == "silos")):
        sent, often = _describe_disclosure(handlers[name], settings, config.run), "After each round that is scored"
        yield Sent(name, _summarise_step(handlers[name]), often, sent, _describe_exposure(single, secure, policy))


def _try_run(method: Method, config: RunConfig) -> dict[str, tuple[frozenset[str], bool]] | None:
    """Step to its phases, and whether the server had single answers; None where the trial run failed."""
    from graphsilo.testing.conformance import assemble
    from graphsilo.testing.small import play

    settings = {name: value for name, value in config.method.options.items() if name != "rounds"}
    if getattr(config.method_config(), "epsilon", None) is not None:
        # Noise changes no step. With next to none, all of it each silo's own, nothing drowns and nothing needs masks.
        settings |= {"epsilon": _ALMOST_NO_NOISE, "noise": "silo"}
    try:
        server, _, spy = assemble(method, settings)
        play(server, spy)
    except GraphsiloError:
        return None
    phases: dict[str, set[str]] = {}
    for phase, _, _, way, handler, *_ in spy.ledger.rows():
        if way == "up":
            phases.setdefault(handler, set()).add(phase)
    return {name: (frozenset(found), name in spy.asked) for name, found in phases.items()}


def _summarise_step(handler: Handler[Any, Any]) -> str:
    return (inspect.getdoc(handler.function) or "").split("\n\n")[0].replace("\n", " ")


def _describe_disclosure(
    step: Handler[Any, Any], settings: MethodConfig, run: RunSection
) -> tuple[tuple[str, str], ...]:
    """What an answer discloses with these settings, in words, and in which fields; what says nothing left out."""
    found: dict[str, list[str]] = {}
    request, reply = step.types()
    fewer = () if run.compression == "none" else compressible(request, reply)
    for spec in reply.specs():
        if spec.kind != "control" and spec.is_sent(settings):
            how = f", {describe_compression(run.compression, run.top_share)}" if spec in fewer else ""
            found.setdefault(_words(spec, how), []).append(spec.name)
    return tuple((words, ", ".join(names)) for words, names in found.items())


def _words(spec: FieldSpec, how: str) -> str:
    notes = []
    if spec.per_class:
        notes.append("class by class")
    if spec.relayed:
        notes.append("goes on to other silos as it came")
    if spec.recoverable:
        notes.append(f"features of single nodes can be computed from it{spec.where_recoverable}")
    return KINDS[spec.kind] + how + (f" ({'; '.join(notes)})" if notes else "")


def _describe_exposure(single: bool, secure: bool, policy: DisclosurePolicy) -> str:
    if single:
        return "the coordinator, this silo's by itself"
    if secure:
        return f"the coordinator, masked: it sees the sum of at least {policy.min_silos} silos"
    return "the coordinator, who adds up and could look at this silo's"


# -- what has left -----------------------------------------------------------------------------------------------------


def _list_past_runs(entries: Iterable[journal.Entry]) -> list[Past]:
    """The runs of a log, oldest first."""
    runs: dict[tuple[str, str], list[journal.Entry]] = {}
    for entry in entries:
        if entry.way != "damaged":
            runs.setdefault((entry.run, entry.method), []).append(entry)
    found = []
    for (run, method), lines in runs.items():
        summary = journal.summarise(lines)
        kinds = sorted(
            ((kind, part.bytes) for kind, part in summary.kinds.items() if kind != "control"), key=lambda part: -part[1]
        )
        times = [line.time.replace("T", " ").removesuffix("Z") for line in lines if line.time]
        found.append(
            Past(
                run=run or "before a run",
                method=method,
                first=min(times, default=""),
                last=max(times, default=""),
                messages=summary.messages,
                bytes=summary.bytes,
                kinds=", ".join(f"{SHORT.get(kind, kind)} {journal.format_size(amount)}" for kind, amount in kinds),
                refused=summary.refused,
            )
        )
    return found


def _attacks(method: Method, settings: MethodConfig, config: RunConfig) -> tuple[Finding, ...]:
    """Findings about runs that are like this one in masks and noise; of an attack that has none, about less guarded."""
    known = findings.about(method.name)
    noisy = isinstance(settings, PrivateConfig) and settings.epsilon is not None
    # The masked runs that were attacked summed their scores, too.
    summed = config.run.secure_sums and config.evaluation.report == "federation"

    def guards(attack: str) -> set[str]:
        masked = summed if attack.endswith("from evaluation") else config.run.secure_sums
        return {word for word, on in (("secure sums", masked), ("epsilon", noisy)) if on}

    def parse_guards(each: Finding) -> set[str]:
        return {word for word in ("secure sums", "epsilon") if word in each.variant}

    like = {(each.attack, each.attacker) for each in known if parse_guards(each) == guards(each.attack)}
    return tuple(
        each
        for each in known
        if parse_guards(each) == guards(each.attack)
        or ((each.attack, each.attacker) not in like and parse_guards(each) < guards(each.attack))
    )


# -- what is promised --------------------------------------------------------------------------------------------------


def _promises(policy: DisclosurePolicy, method: Method, settings: MethodConfig, config: RunConfig) -> Iterator[Promise]:
    secure, report = config.run.secure_sums, config.evaluation.report
    yield Promise(
        "No message holds features, labels or links of single nodes",
        not policy.recoverable,
        "messages have no field for them, and no other fields than those that are declared; what can be computed from "
        "sums, gradients and models is another matter, which attacks show"
        if not policy.recoverable
        else "the policy lets out what features of single nodes can be computed from (policy.recoverable)",
    )
    sums = secure and report == "federation" and not settings.single_answers
    if sums:
        insists = policy.require_secure_sums
        why = f"answers are masked, and sums have at least {policy.min_silos} silos (policy.min_silos)"
        why += (
            "; the policy insists on it" if insists else "; another run may do without, as the policy does not insist"
        )
    elif settings.single_answers:
        why = f"this method needs {settings.single_answers}"
    elif not secure:
        why = "run with run.secure_sums=true and evaluation.report=federation; policy.require_secure_sums insists on it"
    else:
        why = "scores of this silo are seen by themselves; run with evaluation.report=federation"
    yield Promise("The coordinator sees sums over silos and nothing else of this one", sums, _sentence(why))
    promised = settings.promises(len(config.run.seeds))
    # Some methods promise it of a part of what they send.
    covered = isinstance(settings, PrivateConfig) and (secure or not settings.needs_secure_sums)
    unit = "whether this silo takes part" if getattr(settings, "protects", "nodes") == "silos" else "any one node"
    yield Promise(
        f"What training sends does not depend much on {unit} (differential privacy)",
        bool(promised) and covered,
        promised or "this run adds no noise; policy.max_epsilon lets only runs with noise take something out",
    )
    yield Promise(
        "Classes with few training items are not described",
        policy.min_class_count > 1,
        f"those with fewer than {policy.min_class_count} (policy.min_class_count)"
        if policy.min_class_count > 1
        else "policy.min_class_count is 1, which is off",
    )
    yield Promise(
        "Scores over few items do not leave",
        policy.min_evaluation_count > 1,
        f"over fewer than {policy.min_evaluation_count} (policy.min_evaluation_count)"
        if policy.min_evaluation_count > 1
        else "policy.min_evaluation_count is 1, which is off",
    )
    bounds = {
        "max_total_bytes": policy.max_total_bytes, "max_run_bytes": policy.max_run_bytes,
        "max_message_bytes": policy.max_message_bytes,
    }  # fmt: skip
    given = [f"{journal.format_size(value)} (policy.{name})" for name, value in bounds.items() if value is not None]
    bounded = len(given) > 1
    more = (
        ""
        if bounded
        else " in each message, and no bound on how many; policy.max_run_bytes and max_total_bytes set one"
    )
    yield Promise("There is a bound on how much leaves", bounded, _sentence(f"at most {', '.join(given)}{more}"))
    yield Promise(
        "There is a bound on how often the same data are evaluated",
        True,
        f"at most {policy.max_run_evaluations:,} answers in a run (policy.max_run_evaluations) and "
        f"{policy.max_total_evaluations:,} in all (policy.max_total_evaluations), counted beside the data",
    )
    yield Promise(
        "All that leaves is in the silo's log before it leaves", True, "if it cannot be logged, it is not sent"
    )
