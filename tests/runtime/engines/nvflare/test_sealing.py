import io
import stat
import tarfile
from pathlib import Path

import pytest

from graphsilo.errors import ConfigError, RunError
from graphsilo.runtime import certificates
from graphsilo.runtime.engines.nvflare import sealing
from graphsilo.runtime.engines.nvflare.kit import read_kit
from graphsilo.runtime.engines.nvflare.provision import provision
from graphsilo.runtime.engines.nvflare.sealing import open_sealed, seal
from graphsilo.runtime.remote.federation_file import FederationSpec

WORDS = "correct horse battery"


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(certificates, "_BITS", 2048)
    monkeypatch.setattr(sealing, "_LOG_N", 10)  # the real one takes half a second on purpose
    spec = FederationSpec.of({"name": "demo", "coordinator": {"host": "localhost"}, "silos": ["north"]})
    return provision(spec, tmp_path / "fed")[1]


def test_a_sealed_kit_opens_to_the_same_files(kit: Path, tmp_path: Path) -> None:
    (kit / "run").mkdir()
    (kit / "run" / "engine.log").write_text("stays")
    path = seal(kit, WORDS)
    assert path == kit.parent / "north.kit"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"PRIVATE" not in path.read_bytes()
    out = open_sealed(path, WORDS, tmp_path / "out")
    for name in ("kit.json", "root.pem", "certificate.pem", "key.pem"):
        assert (out / name).read_bytes() == (kit / name).read_bytes()
    assert not (out / "run").exists()
    assert stat.S_IMODE((out / "key.pem").stat().st_mode) == 0o600
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    read_kit(out).check()


def test_a_wrong_passphrase_and_a_changed_file_are_refused(kit: Path, tmp_path: Path) -> None:
    path = seal(kit, WORDS)
    with pytest.raises(RunError, match="the passphrase is wrong, or the file was changed"):
        open_sealed(path, WORDS + "!", tmp_path / "out")
    good = path.read_bytes()
    for place in (20, 40, len(good) - 1):  # salt, nonce, content
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(RunError, match="the file was changed"):
            open_sealed(path, WORDS, tmp_path / "out")
    for bad in (b"", good[:10], b"x" + good, good[:8] + bytes([30]) + good[9:], good.replace(b"\r\n", b"\n", 1)):
        path.write_bytes(bad)
        with pytest.raises(RunError, match=r"no sealed kit|another version"):
            open_sealed(path, WORDS, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten(kit: Path, tmp_path: Path) -> None:
    path = seal(kit, WORDS)
    with pytest.raises(RunError, match="not replaced"):
        seal(kit, WORDS)
    with pytest.raises(RunError, match="exists already"):
        open_sealed(path, WORDS, kit)
    with pytest.raises(ConfigError, match="8 characters or more"):
        seal(kit, "short", tmp_path / "x.kit")


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "run/x", "kit.json"])
def test_names_in_the_archive_are_checked(name: str) -> None:
    def pack(*members: tarfile.TarInfo) -> bytes:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for member in members:
                archive.addfile(member, io.BytesIO(b""))
        return packed.getvalue()

    link = tarfile.TarInfo("key.pem")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    for packed in (pack(tarfile.TarInfo(name), tarfile.TarInfo(name)), pack(link)):
        with pytest.raises(RunError, match="which no kit has"):
            sealing._unpack(packed, Path("x.kit"))
