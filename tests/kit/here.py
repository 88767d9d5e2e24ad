"""Sites in this process, and a transport that leads to them: between machines without machines."""

from __future__ import annotations

import threading

from graphsilo.runtime.protocol import Packet, unpack
from graphsilo.runtime.site.supervisor import SiteSupervisor
from graphsilo.runtime.site.worker import SiteWorker, members_of
from graphsilo.runtime.transport import Body, Parts, Transport, views_of


class Here(SiteSupervisor):
    """A site whose worker is in this process: no time goes by for starting one."""

    busy = threading.Lock()  # torch's settings, too, are this process's

    def start(self) -> None:
        self._worker = SiteWorker(members_of(self.silos, self.folder, self.may_send), self.folder)

    def _ask_worker(self, packet: Packet, body: Body) -> Body:
        with self.busy:
            answer = self._worker.answer(unpack(bytearray(body), clients=len(self.silos), whole=True))
        return bytearray().join(views_of(answer))


class Straight(Transport):
    """Leads to such sites."""

    def __init__(self, held: dict[str, Here]):
        self.held, self.sites = held, tuple(held)

    def request(self, site: str, body: Body | Parts, *, timeout: float) -> Body:
        return bytearray(self.held[site].answer(bytearray().join(views_of(body))))
