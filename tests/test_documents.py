"""One reading of YAML: what a person cannot have meant is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphsilo import documents
from graphsilo.data.silos.own import read_silo_file
from graphsilo.data.sources.tables import read_spec
from graphsilo.errors import ConfigError, quote
from graphsilo.experiments.config import load_config
from graphsilo.federation.policy import DisclosurePolicy
from graphsilo.runtime.remote.federation_file import load_federation

BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 10)
)
"""Some 500 bytes that stand for 9^9 lists."""


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("12", 12), ("-3", -3), ("+3", 3), ("0", 0), ("1_000", 1000), ("0.1", 0.1), ("1e-1", 0.1), ("1e5", 1e5),
        ("2.5E+3", 2500.0), (".5", 0.5), ("5.", 5.0), (".inf", math.inf), ("-.inf", -math.inf),
        ("yes", True), ("off", False), ("True", True), ("yEs", "yEs"), ("y", "y"), ("", None), ("~", None),
        ("null", None), ("2024-05-01", "2024-05-01"), ("2024-05-01 10:00:00", "2024-05-01 10:00:00"),
        ("1.2.3", "1.2.3"), ("127.0.0.1:8102", "127.0.0.1:8102"), ("nan", "nan"), ("1_", "1_"), ("=", "="),
        ("'010'", "010"), ('"1e5"', "1e5"), ("'yes'", "yes"),
    ],
)  # fmt: skip
def test_each_word_has_one_reading(word: str, value: Any) -> None:
    tree = documents.parse(f"key: {word}", "here")
    assert tree == {"key": value}
    assert type(tree["key"]) is type(value)


@pytest.mark.parametrize("word", ["010", "00", "-07", "08", "0_1", "0x1F", "0b11", "0o17", "1:30", "0:30", "1:30.5"])
def test_numbers_on_which_readers_differ_are_refused(word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        documents.parse(f"split:\n  seed: {word}\n", "silo.yaml")
    text = str(caught.value)
    assert text.startswith(f"silo.yaml, line 2, column 9: readers of YAML do not agree on what '{word}' is.")
    assert f'quotes: "{word}".' in text


@pytest.mark.parametrize("word", ["1e999", "-1e999", "9" * 200, "0." + "1" * 200])
def test_numbers_beyond_all_bounds_are_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="longer or larger than any setting can be"):
        documents.parse(word, "here")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: 1\nb: 2\na: 3", "line 3, column 1", "the key 'a' stands there a second time, after line 1."),
        ("a: {b: 1, b: 2}", "line 1, column 11", "the key 'b' stands there a second time, after the same line."),
        ("1: x\n'1': y", "line 2, column 1", "the key '1' stands there a second time"),
        ("yes: x\nyes: y", "line 2, column 1", "the key 'yes' stands there a second time"),
        ("a:\n\tb: 1", "line 2, column 1", "there is a tab, and YAML wants spaces"),
        ("a: b: c", "line 1, column 5", "a ':' stands where no key can be"),
        ("a: [1, 2", "line 1, column 9", "a list that began with '[' is not closed"),
        ("a: {b: 1", "line 1, column 9", "a table that began with '{' is not closed"),
        ("a: 'x", "line 1, column 6", "text in quotes is not closed"),
        ("a:\n  b: 1\n c: 2", "line 3, column 2", "the indentation does not fit the lines above"),
        ('a: "C:\\Users"', "line 1, column 9", "a backslash in double quotes begins an escape"),
        ("a: @x", "line 1, column 4", "no word can begin with this character"),
        ("a: &x 1", "line 1, column 4", "'&x' names a part, which is not read."),
        ("a: *x", "line 1, column 4", "'*x' refers to another part."),
        ("a: !!python/object/apply:os.getcwd []", "line 1, column 4", "the tag 'tag:yaml.org,2002:python/object"),
        ("a: !!int '3'", "line 1, column 4", "the tag 'tag:yaml.org,2002:int' is not read"),
        ("? [a]\n: 1", "line 1, column 3", "a key must be a word"),
        ("a: 1\n---\nb: 2", "line 2, column 1", "a second document begins"),
        ("[" * 5000, "line 1, column 51", "nested more than 50 deep"),
        ("{a: " * 5000, "line 1, column 201", "nested more than 50 deep"),
        ("a\x00b", "line 1", "there is a character that no text has (U+0000)"),
        ("k" * 300 + ": 1", "line 1, column 1", "has more than 200 characters"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(text: str, place: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        documents.parse(text, "the file x.yaml")
    said = str(caught.value)
    assert said.startswith(f"the file x.yaml, {place}: ")
    assert words in said
    assert "\n" not in said
    assert len(said) < 500


def test_depth_is_counted_as_written() -> None:
    assert documents.parse("[" * 50 + "]" * 50, "here") is not None
    with pytest.raises(ConfigError, match="50 deep"):
        documents.parse("[" * 51 + "]" * 51, "here")


def test_long_documents_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has more than 1048576 characters"):
        documents.parse("#" * (documents.MAX_CHARACTERS + 1), "here")
    (tmp_path / "big.yaml").write_bytes(b"\xff" * (4 * documents.MAX_CHARACTERS + 1))
    with pytest.raises(ConfigError, match=r"the file .*big\.yaml has more than"):
        documents.read(tmp_path / "big.yaml", "the file")


def test_references_where_they_are_allowed() -> None:
    assert documents.parse("a: &x [1]\nb: *x\nc: *x", "here", references=2) == {"a": [1], "b": [1], "c": [1]}
    with pytest.raises(ConfigError, match="line 3"):
        documents.parse("a: &x [1]\nb: *x\nc: *x", "here", references=1)
    with pytest.raises(ConfigError, match="a part that is not there"):
        documents.parse("a: &x [*x]", "here", references=1)


def test_files_say_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the silo file .*none\.yaml does not exist"):
        documents.read(tmp_path / "none.yaml", "the silo file")
    (tmp_path / "utf16.yaml").write_text("a: 1", encoding="utf-16")
    with pytest.raises(ConfigError, match="is no text in UTF-8"):
        documents.read(tmp_path / "utf16.yaml", "the silo file")
    (tmp_path / "mark.yaml").write_text("a: 1", encoding="utf-8-sig")
    assert documents.read(tmp_path / "mark.yaml", "the silo file") == {"a": 1}


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("0123456789e.:-_ \n\tx"), max_size=8)
    | st.sampled_from(["010", "1:30", "1e5", "yes", "null", "~", "2024-05-01", "0x1F", "&a", "*a", "!x", ".inf"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab01:e- ", max_size=4), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(TREES)
def test_what_is_written_is_read_again(tree: Any) -> None:
    assert documents.parse(documents.write(tree), "here") == tree


def test_a_part_that_occurs_twice_is_written_twice() -> None:
    part = [1, 2]
    assert documents.write({"a": part, "b": part}) == "a:\n- 1\n- 2\nb:\n- 1\n- 2\n"


# -- through the doors -------------------------------------------------------------------------------------------------

SILO = "name: north\nnodes: {file: n.csv, id: id, features: [x]}\nedges: {file: e.csv, source: a, target: b}\n"
FEDERATION = "name: demo\ncoordinator: {host: fed.example.org}\n"


@pytest.mark.parametrize(
    "more",
    [
        "policy: {min_class_count: 100}\npolicy: {}\n",
        "policy: {min_class_count: 5, min_class_count: 1}\n",
        "split: {seed: 1}\nsplit: {seed: 2}\n",
        "directed: true\ndirected: false\n",
    ],
)
def test_a_silo_file_says_a_thing_once(tmp_path: Path, more: str) -> None:
    (tmp_path / "silo.yaml").write_text(SILO + more)
    with pytest.raises(ConfigError, match=r"the silo file .*silo\.yaml, line \d, column \d+: the key '\w+' stands"):
        read_silo_file(tmp_path / "silo.yaml")


def test_a_silo_file_with_an_octal_seed(tmp_path: Path) -> None:
    (tmp_path / "silo.yaml").write_text(SILO + "split: {seed: 010}\n")
    with pytest.raises(ConfigError, match="do not agree on what '010' is"):
        read_silo_file(tmp_path / "silo.yaml")


def test_a_description_of_tables_says_a_thing_once(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(SILO + "directed: true\ndirected: false\n")
    with pytest.raises(ConfigError, match=r"the data description .* the key 'directed' stands"):
        read_spec(tmp_path / "t.yaml")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("silos: [north]\nsilos: [south]\n", "the key 'silos' stands there a second time, after line 3"),
        ("silos: [{name: north, may_send: [model], may_send: [logits]}]\n", "the key 'may_send' stands"),
        ("silos: [{name: north, may_send: [modle]}]\n", "silo 'north' may_send 'modle', which is no kind of"),
        ("silos: [{name: north, may_send: [modle]}]\n", "did you mean 'model'?"),
    ],
)
def test_a_federation_file_says_a_thing_once(tmp_path: Path, more: str, words: str) -> None:
    (tmp_path / "federation.yaml").write_text(FEDERATION + more)
    with pytest.raises(ConfigError) as caught:
        load_federation(tmp_path / "federation.yaml")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("run: {seeds: [4]}\nrun: {workers: 1}\n", "line 2, column 1: the key 'run' stands"),
        ("method: {name: fedprox, mu: 0.3, mu: 0.6}\n", "line 1, column 34: the key 'mu' stands"),
        ("partition: {seed: 010}\n", "'010'"),
    ],
)
def test_a_configuration_says_a_thing_once(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "run.yaml")
    assert words in str(caught.value)


def test_a_number_reads_alike_in_a_file_and_on_the_command_line(tmp_path: Path) -> None:
    text = "partition: {rule: dirichlet, alpha: 1e-1}\nmethod: {name: fedprox, mu: 1e-1}\n"
    (tmp_path / "run.yaml").write_text(text)
    config = load_config(tmp_path / "run.yaml", assignments=["method.lr=1e-3", "data.homophily=1e-2"])
    assert config.partition.options == {"alpha": 0.1}
    assert config.method.options == {"mu": 0.1, "lr": 0.001}
    assert config.data.options == {"homophily": 0.01}


def test_a_date_stays_text(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("data: 2024-05-01\n")
    assert load_config(tmp_path / "run.yaml").data.name == "2024-05-01"


@pytest.mark.parametrize("read", [load_config, load_federation, read_silo_file, read_spec])
def test_a_few_bytes_do_not_explode(tmp_path: Path, read: Any) -> None:
    (tmp_path / "bomb.yaml").write_text(BOMB)
    with pytest.raises(ConfigError, match="'&a0' names a part") as caught:
        read(tmp_path / "bomb.yaml")
    assert len(str(caught.value)) < 500


def test_errors_show_values_in_short() -> None:
    large: Any = ["x"]
    for _ in range(4):
        large = [large] * 9  # 6,561 lists
    with pytest.raises(ConfigError) as caught:
        DisclosurePolicy.of({"methods": large})
    with pytest.raises(ConfigError) as second:
        load_config(overrides={"run.workers": large})
    assert len(str(caught.value)) < 800  # two of nine faults
    assert len(str(second.value)) < 500
    assert len(quote("x" * 10**6)) < 100
    assert len(quote({str(number): large for number in range(100)})) <= 300
