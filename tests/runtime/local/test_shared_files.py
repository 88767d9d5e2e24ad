"""What many clients hold is written once per folder, comes back as one object, and is missed when it is gone."""

from __future__ import annotations

import gc
import hashlib

import pytest
import torch

from graphsilo.errors import RunError
from graphsilo.experiments.runner import run
from graphsilo.experiments.storage.checkpoint import Checkpoints
from graphsilo.federation import registry
from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.runtime.local.offloading import pack_states, unpack_states
from graphsilo.runtime.local.placement import MemoryBudget
from graphsilo.runtime.local.shared_files import digest_of, join_shared, read_shared, split_shared, write_shared
from graphsilo.testing import conformance
from graphsilo.training.sharing import shared_copy
from kit.damage import small_files

FEDLOG = {"generator_epochs": 2, "prototypes": 2, "embedding_dim": 8}
"""Its generators weigh 2 MB, all else of a client 50 kB."""


@pytest.fixture
def tensors():
    return shared_copy({"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4)})


@pytest.fixture
def played(tmp_path):
    """A method after set-up and some rounds, with so many clients in memory."""
    folders = iter("abcdef")

    def make(limit, rounds=2, method="fedlog", settings=FEDLOG):
        server, twin, _ = conformance.assemble(registry.load(method), settings)

        def folder():
            place = tmp_path / next(folders)
            place.mkdir()
            return place

        federation = InProcess(twin.clients, twin.cache._make, budget=MemoryBudget(limit, 0, folder))
        conformance.play(server, conformance.Spy(federation), rounds)
        return server, federation

    return make


def generators(federation):
    return [federation.client(client).generators for client in federation.clients]


def size(folder):
    return sum(path.stat().st_size for path in folder.iterdir())


def test_a_tree_refers_to_what_is_shared_and_gets_it_back(tensors):
    tree = {"x": [1, {"y": tensors}], 3: tensors, "z": torch.zeros(2)}
    bare, shared = split_shared(tree)
    assert list(shared.values()) == [tensors]
    assert len(encode_tree(bare)) < len(encode_tree(tree))
    back = join_shared(decode_tree(encode_tree(bare)), shared.__getitem__)
    assert back["x"][1]["y"] is back[3] is tensors
    assert encode_tree(back).tobytes() == encode_tree(tree).tobytes()


def test_a_file_is_called_after_its_contents(tensors, tmp_path):
    path = tmp_path / digest_of(tensors)
    write_shared(path, tensors)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    written = path.stat().st_mtime_ns
    write_shared(path, tensors)
    assert path.stat().st_mtime_ns == written
    assert read_shared(path) is tensors


@pytest.mark.slow
def test_a_changed_or_missing_file_is_refused_by_who_has_to_read_it(tmp_path):
    held = shared_copy({"a": torch.full((5,), 7.0)})
    path = tmp_path / digest_of(held)
    write_shared(path, held)
    del held
    gc.collect()
    again = read_shared(path)
    assert torch.equal(again["a"], torch.full((5,), 7.0))
    assert read_shared(path) is again
    del again
    gc.collect()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(RunError, match=r"what offloaded clients share, in .*, has changed\. Continue with --resume"):
        read_shared(path)
    path.unlink()
    with pytest.raises(RunError, match=r"could not be read from .* \(No such file or directory\)"):
        read_shared(path)


@pytest.mark.slow
def test_offloaded_clients_share_one_file_and_one_object(played, tmp_path):
    _, federation = played(1)
    states = federation.client_states()
    (names,) = {state.shared for state in states.values()}
    assert len(names) == 2  # generators, and the nodes of the last round: what went before is gone
    weight = sum(tensor.nbytes for tensor in federation.client(0).generators.values())
    each = [state.path.stat().st_size for state in states.values()]
    assert max(each) < weight / 5
    assert size(tmp_path / "a") < sum(each) + 1.01 * weight
    assert {path.name for path in (tmp_path / "a").iterdir()} == {
        *names, *(state.path.name for state in states.values())
    }  # fmt: skip
    first, *others = generators(federation)
    assert all(each is first for each in others)
    _, resident = played(None)
    for one, other in zip(generators(federation), generators(resident), strict=True):
        assert all(torch.equal(one[name], other[name]) for name in other)


@pytest.mark.slow
def test_the_file_goes_with_the_last_client_that_refers_to_it(played, tmp_path):
    _, federation = played(1)
    (names,) = {state.shared for state in federation.client_states().values()}
    for client in federation.clients:
        assert all((tmp_path / "a" / name).exists() for name in names)
        federation.cache._forget(client)
    assert list((tmp_path / "a").iterdir()) == []


def test_fairfgls_clients_share_their_history(played, tmp_path):
    _, federation = played(1, rounds=3, method="fairfgl", settings={"history": 2})
    (names,) = {state.shared for state in federation.client_states().values()}
    assert len(names) == 2
    assert len(list((tmp_path / "a").iterdir())) == len(federation.clients) + 2
    first, *others = (list(federation.client(client)._history) for client in federation.clients)
    assert all(mine is one for other in others for mine, one in zip(other, first, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 2])
def test_a_checkpoint_holds_it_once(played, tmp_path, limit):
    server, federation = played(limit)
    weight = sum(tensor.nbytes for tensor in federation.client(0).generators.values())
    kept = Checkpoints(tmp_path / "checkpoints", "print")
    kept.save(0, {"server": server.state(), "clients": federation.client_states()}, {})
    files = [path for path in (tmp_path / "checkpoints").rglob("*") if path.is_file()]
    assert weight < sum(path.stat().st_size for path in files) < 1.5 * weight
    shared = [path for path in files if path.stat().st_size > weight]
    assert len(shared) == 1
    written = shared[0].stat().st_mtime_ns
    kept.save(0, {"server": server.state(), "clients": federation.client_states()}, {})
    assert shared[0].stat().st_mtime_ns == written
    for other in (None, 1):
        _, again = played(other, rounds=0)
        again.load_client_states(Checkpoints(tmp_path / "checkpoints", "print").load(0)["clients"])
        assert {id(each) for each in generators(again)} == {id(federation.client(0).generators)}
        for client in federation.clients:
            mine, theirs = (one.cache.get(client).state() for one in (again, federation))
            assert encode_tree(mine).tobytes() == encode_tree(theirs).tobytes()
    data = bytearray(shared[0].read_bytes())
    data[100] ^= 1
    shared[0].write_bytes(data)
    with pytest.raises(RunError, match=r"seed-0\.ckpt is damaged: .* is missing or changed\. Delete both"):
        Checkpoints(tmp_path / "checkpoints", "print").load(0)
    kept.save(0, {"result": {}}, {})
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["seed-0.ckpt", "seed-0.history"]


@pytest.mark.slow
def test_processes_send_it_once_to_each_other(played):
    _, federation = played(None)
    states = federation.client_states()
    data = encode_tree(pack_states(states))
    weight = sum(tensor.nbytes for tensor in federation.client(0).generators.values())
    assert len(data) < 1.5 * weight
    back = unpack_states(decode_tree(data))
    assert {id(state["state"]["generators"]) for state in back.values()} == {id(federation.client(0).generators)}
    assert encode_tree(back).tobytes() == encode_tree(states).tobytes()


def test_a_disk_that_is_full_leaves_no_part_of_it(tmp_path):
    large = shared_copy({"a": torch.zeros(100_000)})
    path = tmp_path / digest_of(large)
    with small_files(200_000), pytest.raises(OSError, match="File too large"):
        write_shared(path, large)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_fedlog_resumes_with_other_processes_and_other_room(tmp_path):
    method, folder = registry.load("fedlog"), tmp_path / "run"

    def config(**how):
        return conformance.small_config(method, FEDLOG, run={"checkpoint_every": 1, **how})

    whole = run(config())
    for after, how in ((1, {"workers": 2}), (2, {"resident_clients": 1})):
        with pytest.raises(conformance._Stopped):
            run(config(**how), out=folder, resume=after > 1, observer=conformance._Stop(after))
        files = [path for path in (folder / "checkpoints").rglob("*") if path.is_file()]
        assert sum(path.stat().st_size > 1_000_000 for path in files) == 1  # the generators of all clients
    resumed = run(config(workers=2, resident_clients=2), out=folder, resume=True)
    assert conformance.numbers(resumed.tree) == conformance.numbers(whole.tree)
    assert not (folder / "checkpoints" / "seed-0.clients").exists()
