"""Code of others does not run: only what is named in this command, or was trusted before, and only these very bytes."""

from __future__ import annotations

import importlib.util
import os
import stat
import sys
from pathlib import Path

import pytest

from graphsilo.errors import ConfigError
from graphsilo.federation import trust
from graphsilo.federation.own import Own, address_of, admit, bring, class_at, find_key
from kit.own import RULE, written

MARK = "import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\n"


def trust_file(path: Path) -> None:
    trust.trust(trust.find_keys(path))


def refused(path: Path, call) -> str:
    with pytest.raises(ConfigError, match=r"you have not named it in this command.*graphsilo trust") as error:
        call()
    assert not path.with_suffix(".ran").exists()
    return str(error.value)


def test_code_that_nobody_named_does_not_run(tmp_path):
    path = written(tmp_path, "rule.py", MARK + RULE)
    own = Own(f"{path}:bands", trust.key_of(path.read_bytes()))  # the hash in the configuration itself proves nothing
    for call in (
        lambda: bring("partition", str(path)),
        lambda: bring("partition", "rule.py", tmp_path),
        lambda: admit("partition", "rule.bands", own),
        lambda: class_at("rule_of_nobody", "Net", str(path)),
    ):
        text = refused(path, call)
    assert str(path) in text
    assert own.sha256 in text
    assert f"graphsilo trust {path}" in text
    assert bring("partition", str(path), named=True) == ("rule.bands", own)
    assert path.with_suffix(".ran").exists()
    admit("partition", "rule.bands", own)  # what was named in this command is named for all of it


def test_what_is_trusted_are_these_bytes(tmp_path):
    path = written(tmp_path, "rule.py", MARK + RULE)
    trust_file(path)
    written(tmp_path, "rule.py", MARK + RULE + "\n")
    refused(path, lambda: bring("partition", str(path)))
    written(tmp_path, "rule.py", MARK + RULE)
    elsewhere = tmp_path / "moved"
    elsewhere.mkdir()
    assert bring("partition", str(written(elsewhere, "rule.py", MARK + RULE)))[0] == "rule.bands"


@pytest.mark.parametrize("named", [False, True])
def test_the_bytes_that_were_looked_at_are_those_that_run(named, tmp_path, monkeypatch):
    """Neither Python's cache of an import nor a file that is exchanged after it was looked at."""
    path = written(tmp_path, "rule.py", RULE)
    evil = MARK + RULE
    trust_file(path)
    cache = Path(importlib.util.cache_from_source(str(path)))
    cache.parent.mkdir()
    other = written(tmp_path, "other.py", evil.ljust(len(RULE)))
    status = path.stat()
    importlib.machinery.SourceFileLoader("other", str(other))._cache_bytecode(
        str(other), str(cache),
        importlib._bootstrap_external._code_to_timestamp_pyc(
            compile(evil, str(path), "exec"), int(status.st_mtime), status.st_size
        ),
    )  # fmt: skip
    check = trust.check

    def exchanged(key, place, **more):
        found = check(key, place, **more)
        written(tmp_path, "rule.py", evil)
        return found

    monkeypatch.setattr(trust, "check", exchanged)
    name, own = bring("partition", str(path), named=named)
    assert (name, own.sha256) == ("rule.bands", trust.key_of(RULE.encode()))
    assert not path.with_suffix(".ran").exists()


def test_what_a_trusted_file_imports_is_looked_at_as_well(tmp_path):
    text = f"from helpers.sizes import WIDTH\nimport plain_one\n{RULE}"
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for folder in (mine, theirs):
        (folder / "helpers").mkdir(parents=True)
        written(folder / "helpers", "__init__.py", "")
        written(folder / "helpers", "sizes.py", "from . import two\nWIDTH = two.TWO\n")
        written(folder / "helpers", "two.py", "TWO = 2\n")
        written(folder, "plain_one.py", "ONE = 1\n")
        written(folder, "rule.py", text)
    trust_file(mine / "rule.py")
    names = ["__init__.py", "plain_one.py", "rule.py", "sizes.py", "two.py"]
    assert sorted(Path(at).name for at in trust.read_trusted().values()) == names
    evil = written(theirs / "helpers", "two.py", MARK + "TWO = 2\n")
    text = refused(evil, lambda: bring("partition", str(theirs / "rule.py")))
    assert f"{theirs / 'rule.py'} imports it" in text
    for name in [name for name in sys.modules if name.partition(".")[0] == "helpers"]:
        del sys.modules[name]  # as in another process
    assert bring("partition", str(mine / "rule.py"))[0] == "rule.bands"


def test_a_copy_of_a_file_that_was_named_does_not_bring_other_helpers(tmp_path):
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for folder in (mine, theirs):
        folder.mkdir()
        written(folder, "rule.py", f"import beside_the_rule\n{RULE}")
    trust.allow(dict([find_key(str(mine / "rule.py"))]))
    evil = written(theirs, "beside_the_rule.py", MARK)
    refused(evil, lambda: bring("partition", str(theirs / "rule.py")))
    beside = written(mine, "beside_the_rule.py", "")
    assert bring("partition", str(mine / "rule.py"))[0] == "rule.bands"
    assert trust.key_of(beside.read_bytes()) in trust.list_allowed()  # for workers, which import it again


def test_workers_may_run_what_ran_here_and_not_what_took_its_place(tmp_path):
    path = written(
        tmp_path, "with_a_class.py", "class Mine:\n    pass\n\n\ndef rule(graph, clients, seed):\n    return []\n"
    )
    trust_file(path)
    bring("partition", str(path))
    (module,) = (module for name, module in list(sys.modules.items()) if "with_a_class" in name)
    ran = trust.key_of(path.read_bytes())
    evil = written(tmp_path, "with_a_class.py", MARK)
    assert address_of(module.Mine)[2] == str(path)
    bring("partition", module.rule)
    assert trust.list_allowed() == {ran: str(path)}
    refused(evil, lambda: class_at("nowhere_else", "Mine", str(path)))


def test_modules_are_trusted_by_place_or_by_what_they_are(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"the code of subprocess:Popen does not run"):
        bring("model", "subprocess:Popen")
    with pytest.raises(ConfigError, match=r"the code of __main__:os does not run"):
        bring("model", "__main__:os")
    with pytest.raises(ConfigError, match=r"cannot find"):
        admit("model", "pytest.fixture", Own("__main__:pytest.fixture", ""))
    package = tmp_path / "package_of_rules"
    package.mkdir()
    written(package, "__init__.py", "")
    path = written(package, "rules.py", MARK + RULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    place = "package_of_rules.rules:bands"
    refused(path, lambda: bring("partition", place))
    key, where = find_key(place)
    assert (key, where) == (trust.key_of(path.read_bytes()), place)
    trust.trust({key: where})
    assert bring("partition", place)[0] == "rules.bands"
    assert find_key("torch.nn:Linear") == ("torch.nn:Linear", "torch.nn:Linear")


def test_the_store_is_private_and_believed_only_as_such(tmp_path, monkeypatch):
    assert trust.read_trusted() == {}
    path = written(tmp_path, "rule.py", RULE)
    trust_file(path)
    store = trust.store()
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.parent.stat().st_mode) == 0o700
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", "here")  # in whose folder somebody happens to be
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert trust.store() == tmp_path / "home" / ".config" / "graphsilo" / "trusted"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(store.parents[1]))
    for each, mode in ((store, 0o620), (store.parent, 0o777)):
        before = stat.S_IMODE(each.stat().st_mode)
        each.chmod(mode)
        with pytest.raises(ConfigError, match="others may write to it"):
            bring("partition", str(path))
        each.chmod(before)
    store.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        bring("partition", str(path))
    store.unlink()


def test_trust_is_taken_back(tmp_path):
    paths = [written(tmp_path, f"rule{number}.py", RULE + f"# {number}\n") for number in range(3)]
    for path in paths:
        trust_file(path)
    keys = [trust.key_of(path.read_bytes()) for path in paths]
    assert list(trust.forget(str(paths[0]))) == [keys[0]]
    assert list(trust.forget(keys[1][:10])) == [keys[1]]
    for said in (str(paths[0]), "", keys[2][:7]):
        with pytest.raises(ConfigError, match="is not trusted"):
            trust.forget(said)
    assert list(trust.read_trusted()) == [keys[2]]


def test_a_name_with_a_line_break_adds_no_line(tmp_path):
    path = tmp_path / f"a\n{'0' * 64}  b.py"
    path.write_text(RULE)
    trust_file(path)
    assert list(trust.read_trusted()) == [trust.key_of(path.read_bytes())]
    assert os.linesep not in next(iter(trust.read_trusted().values()))
