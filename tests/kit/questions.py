"""A coordinator that asks silos what it likes, over the very packets that travel: the sites are in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from graphsilo.data.silos.cards import compare_cards
from graphsilo.data.silos.schema import schema_tree
from graphsilo.data.silos.silo import Schema
from graphsilo.errors import DisclosureError
from graphsilo.federation import registry
from graphsilo.federation.codec import decode, encode
from graphsilo.federation.message import Message
from graphsilo.federation.secure import CALL, CONFIRM, MASK, OPEN, SHARE
from graphsilo.federation.secure.coordinator import SecureSum
from graphsilo.federation.secure.messages import ANSWERS, Offer
from graphsilo.federation.secure.party import Purpose, Unproved
from graphsilo.runtime.protocol import pack, unpack
from graphsilo.runtime.site.worker import SiteWorker, members_of
from graphsilo.runtime.transport import views_of
from kit.site_tables import write_tables

Answer = TypeVar("Answer", bound=Message)


def opening(schema: Schema, client: int = 0, **more: Any) -> dict[str, Any]:
    """What opens one client of a FedAvg run, with other words where they are said."""
    model = ["gcn", {"hidden": [8]}, "float32"]
    usual = {
        "do": "open", "run": "run-1", "seed": 0, "method": "fedavg", "device": "cpu", "mark": None, "sparse": False,
        "config": registry.load("fedavg").config().model_dump(mode="json"), "schema": schema_tree(schema),
        "task": "node", "common": model, "models": [[client, model]], "compression": ["none", 0.01],
        "select_by": "accuracy", "agreeing": False, "scaling": {"scale": "none", "scale_by": "silo"},
    }  # fmt: skip
    return {**usual, **more}


@dataclass
class Questions:
    """Silos with tables of their own, each at a site, and somebody who keeps to no script.

    Attributes:
        folder: Of data and sites.
        silos: How many.
        method: Whose steps are asked for, with its usual settings.
        policy: Of every owner.
    """

    folder: Path
    silos: int = 5
    method: str = "fedridge"
    policy: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.files = []
        for client in range(self.silos):
            file = write_tables(self.folder / f"data{client}", f"silo{client}", client, columns=4)
            said = {**yaml.safe_load(file.read_text()), "features": {"scale": "none"}, "policy": dict(self.policy)}
            file.write_text(yaml.safe_dump(said))
            self.files.append(file)
        self.join()
        cards = [self.ask(client, {"do": "cards"}).header["cards"][0][1] for client in range(self.silos)]
        self.schema = compare_cards(cards)
        self.config = registry.load(self.method).config()

    def join(self, site: str = "site") -> None:
        """Start the sites, anew or with the folder of another kit."""
        self.workers = {}
        for client, file in enumerate(self.files):
            folder = self.folder / f"{site}{client}"
            self.workers[client] = SiteWorker(members_of([(client, file)], folder, {}), folder)

    def ask(self, client: int, header: Mapping[str, Any], payloads: Sequence[Any] = ()) -> Any:
        """One packet, and the answer to it."""
        packet = unpack(pack({**header, "id": "x"}, payloads))
        return unpack(b"".join(bytes(view) for view in views_of(self.workers[client].answer(packet))))

    def open(
        self, run: str = "run-1", *, secure: bool = True, report: str = "federation", also: Mapping[str, Any] = {},
        **more: Any,
    ) -> Any:  # fmt: skip
        """Have the sites open a run, the last one with other words as well; what each says."""
        words = {
            "run": run, "method": self.method, "config": self.config.model_dump(mode="json"), "secure_sums": secure,
            "report": report, **more,
        }  # fmt: skip
        return [
            self.ask(client, opening(self.schema, client, **{**words, **(also if client == 4 else {})})).header
            for client in range(self.silos)
        ]

    def call(self, client: int, step: str, message: Message, run: str = "run-1", round: int = 0) -> bytes:
        """The bytes that a silo answers one step with.

        Raises:
            DisclosureError: It does not; whatever the reason.
        """
        header = {"do": "call", "run": run, "seed": 0, "handler": step, "round": round, "to": [[client, 0]]}
        found = self.ask(client, header, [encode(message).data])
        answer = found.header["answers"][0] if found.header["ok"] else {"failure": ["", found.header["text"]]}
        if "failure" in answer:
            raise DisclosureError(answer["failure"][1])
        return bytes(found.payloads[0])

    def sum(
        self, step: str, message: Message | Mapping[int, Message], kind: type[Answer], of: Sequence[int],
        run: str = "run-1", round: int = 0,
    ) -> Answer:  # fmt: skip
        """The sum over some silos, as an honest coordinator would make it."""
        asked = dict.fromkeys(of, message) if isinstance(message, Message) else message

        def each(name: str, messages: Mapping[int, Message]) -> list[tuple[int, Any]]:
            answers = ((client, self.call(client, name, one, run, round)) for client, one in messages.items())
            return [(client, decode(data, ANSWERS.get(name, Offer))) for client, data in answers]

        offers = dict(each(CALL + step, asked))
        made = SecureSum(kind, Purpose(run, 0, round, step), offers, Unproved())
        made.require()
        for name, messages, take in (
            (SHARE, lambda: dict.fromkeys(made.clients, made.roster()), made.take_letters),
            (MASK, made.make_posts, made.add),
            (CONFIRM, lambda: dict.fromkeys(made.close_answers().clients, made.close_answers()), made.confirm),
            (OPEN, lambda: dict.fromkeys(made.confirming, made.close_confirmations()), made.take_opening),
        ):
            for client, answer in each(name, messages()):
                take(client, answer)
        return made.result()
