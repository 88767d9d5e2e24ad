"""A body as Flower carries it: one array of bytes in one record, whatever the body means. No torch."""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, RecordDict

from graphsilo.errors import MessageError
from graphsilo.runtime.transport import Body

ACTION = "query"
"""The only kind of message that is sent: Flower's word for 'answer this'."""

_RECORD = "graphsilo"
_ARRAY = "body"
_SERIALISED = "graphsilo.bytes"  # the bytes themselves: Flower's own form would put a header of numpy before them


def pack(body: Body) -> RecordDict:
    """The content of a Flower message that carries a body."""
    data = bytes(body)
    return RecordDict({_RECORD: ArrayRecord({_ARRAY: Array("uint8", (len(data),), _SERIALISED, data)})})


def unpack(content: RecordDict) -> bytes:
    """The body in the content of a Flower message.

    Raises:
        MessageError: Something else was sent.
    """
    record = content.get(_RECORD)
    if len(content) != 1 or not isinstance(record, ArrayRecord) or list(record) != [_ARRAY]:
        raise MessageError(
            f"a Flower message of graphsilo holds one record '{_RECORD}' with one array '{_ARRAY}', this one holds "
            f"{sorted(content)}: is another app sending to this one?"
        )
    array = record[_ARRAY]
    if array.dtype != "uint8" or array.stype != _SERIALISED or tuple(array.shape) != (len(array.data),):
        raise MessageError(
            f"a body is a row of bytes of kind '{_SERIALISED}', but {array.dtype}{list(array.shape)} of kind "
            f"'{array.stype}' with {len(array.data)} bytes came: use the same version of graphsilo everywhere."
        )
    data: bytes = array.data
    return data
