"""How clients compress the models that they send; what is done to them stands in ``federation.compressing``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from torch import Tensor

from graphsilo.errors import UnsupportedError
from graphsilo.federation.message import Message
from graphsilo.types import Compressing

if TYPE_CHECKING:
    from graphsilo.federation.compressing import Compressor

ReplyT = TypeVar("ReplyT", bound=Message)


@dataclass(frozen=True)
class Compression:
    """How the clients of a run compress what they send.

    Attributes:
        way: ``none``, ``int8`` or ``topk``.
        share: Share of the entries that ``topk`` sends.
    """

    way: Compressing = "none"
    share: float = 0.01

    @classmethod
    def of(cls, wire: Any) -> Compression:
        """What ``wire`` gave.

        Raises:
            UnsupportedError: It is nothing of the kind.
        """
        try:
            way, share = wire
            if way in get_args(Compressing) and 0 < float(share) <= 1:
                return cls(way, float(share))
        except (TypeError, ValueError):
            pass
        raise UnsupportedError("the run compresses in a way that this release of graphsilo does not know.")

    def wire(self) -> list[Any]:
        """As plain values."""
        return [self.way, self.share]

    def find_carrier(self, request: type[Message], reply: type[Message]) -> type[Message]:
        """The message that carries an answer: the answer itself where nothing of it is compressed."""
        return reply if self.way == "none" else self._compressor().find_carrier(request, reply)

    def compress(self, handler: str, request: Message, reply: Message, kept: dict[str, Tensor]) -> Message:
        """The message that carries an answer, as ``Compressor.compress``."""
        return reply if self.way == "none" else self._compressor().compress(handler, request, reply, kept)

    def restore(self, message: Message, request: Message, reply: type[ReplyT], largest: float) -> ReplyT:
        """The answer in a message that carries it, as ``Compressor.restore``."""
        return self._compressor().restore(message, request, reply, largest)

    def _compressor(self) -> Compressor:
        from graphsilo.federation.compressing import Compressor

        return Compressor(self.way, self.share)


UNCOMPRESSED = Compression()
