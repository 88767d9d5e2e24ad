from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="needs graphsilo[flower], which lives in an environment of its own")

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from graphsilo.errors import MessageError
from graphsilo.runtime.engines.flower.envelope import pack, unpack

pytestmark = pytest.mark.flower


def over_the_wire(content):
    """What Flower does with a content: cut into objects, told by their hashes, and put together again."""
    objects = {number: thing.deflate() for number, thing in get_all_nested_objects(content).items()}
    return objects, inflate_object_from_contents(content.object_id, dict(objects))


@pytest.mark.parametrize("body", [b"", b"\0", b"\0\n" * 500, bytes(11_000_000)])
def test_a_body_comes_back_as_it_was(body):
    objects, content = over_the_wire(pack(memoryview(bytearray(body))))
    assert unpack(content) == body
    overhead = sum(map(len, objects.values())) - len(body)
    if len(body) == 1000:
        assert overhead < 1000  # names, hashes and one array's description, whatever the body's length
    if len(body) == 11_000_000:
        assert overhead < -5_000_000  # pieces of 5,242,880 bytes; of two equal ones the second is not sent


def array(dtype="uint8", shape=(3,), kind="graphsilo.bytes", data=b"abc"):
    return RecordDict({"graphsilo": ArrayRecord({"body": Array(dtype, shape, kind, data)})})


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"graphsilo": ConfigRecord({"body": 1})}),
        RecordDict({"other": ArrayRecord()}),
        RecordDict({"graphsilo": ArrayRecord()}),
        RecordDict({**array(), "more": ConfigRecord({})}),
        array(dtype="float32"),
        array(shape=(4,)),
        array(kind="numpy.ndarray"),
    ],
    ids=["empty", "no array", "another's", "no body", "too much", "floats", "wrong length", "numpy"],
)
def test_anything_else_is_refused(content):
    with pytest.raises(MessageError):
        unpack(content)
