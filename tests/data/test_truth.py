"""Two words, one of which is 1: which one must be the same wherever one model reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from graphsilo.data.truth import TRUTH, BooleanWords, Words, in_words, join_truth, truth_notes
from graphsilo.errors import ConfigError, DataError
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.predict import predict
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare

GERMAN: Words = (("nein",), ("ja",))
NODES = "id,age,smoker,y\n" + "".join(f"p{row},{20 + row},{('nein', 'ja')[row % 2]},{row % 2}\n" for row in range(12))
EDGES = "a,b\n" + "".join(f"p{row},p{row + 1}\n" for row in range(11))


def told(owner: str, words: Words | None) -> BooleanWords:
    return BooleanWords(owner, ["age", "smoker"], {} if words is None else {"smoker": words})


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            (("ja",), ("nein",)),
            r"'smoker' .*'ja' is 0 at b, which reads \[ja, nein\], and 1 at a, which reads \[nein, ja",
        ),
        ((("JA",), ("x",)), "'JA' is 0 at b"),
        (GERMAN, None),
        ((("no",), ("yes",)), None),
        (TRUTH, None),
        (None, None),
    ],
)
def test_a_word_of_both_is_refused(other: Words | None, said: str | None) -> None:
    pair = [told("a", GERMAN), told("b", other)]
    if said is None:
        assert set(join_truth(pair)["smoker"][0]) >= {"nein"}
    else:
        with pytest.raises(DataError, match=said):
            join_truth(pair)


def test_the_usual_words_and_numbers_have_a_meaning() -> None:
    """A column that declares nothing reads `no` and 0 as 0, and so does a column of plain numbers."""
    for words in ((("yes",), ("no",)), (("1",), ("2",))):
        for usual in (TRUTH, None):
            with pytest.raises(DataError, match="The same word must mean the same everywhere"):
                join_truth([told("a", usual), told("b", words)])


def test_other_words_are_remarked() -> None:
    (note,) = truth_notes([told("a", GERMAN), told("b", GERMAN), told("c", (("no",), ("yes",)))])
    assert "[nein, ja] at a and [no, yes] at c (0 first): do they mean the same?" in note
    assert not truth_notes([told("a", TRUTH), told("b", (("no",), ("yes",)))])  # among the usual words
    assert in_words(TRUTH) == "[false/no/0, true/yes/1]"


@pytest.fixture
def silos(tmp_path: Path) -> Callable[..., list[str]]:
    """Descriptions of one table each, by the order of their words."""

    def write(**words: tuple[str, str]) -> list[str]:
        (tmp_path / "edges.csv").write_text(EDGES)
        for name, (off, on) in words.items():
            table = NODES.replace("nein", sorted(words[name])[1]).replace(",ja,", f",{sorted(words[name])[0]},")
            (tmp_path / f"{name}.csv").write_text(table.replace("p1,21", f"p1,{len(name)}"))
            (tmp_path / f"{name}.yaml").write_text(
                f"nodes: {{path: {name}.csv, id: id, label: y, features: [age],\n"
                f"  boolean: {{smoker: ['{off}', '{on}']}}}}\n"
                "edges: {path: edges.csv, source: a, target: b}\nclasses: ['0', '1']\n"
            )
        return [str(tmp_path / f"{name}.yaml") for name in words]

    return write


def config(files: list[str]) -> RunConfig:
    return RunConfig.of(
        {"data": {"name": files}, "partition": {"ratios": [0.4, 0.3, 0.3]}, "method": {"name": "fedavg", "rounds": 1}}
    )


def test_in_one_process(silos: Callable) -> None:
    with pytest.raises(DataError, match=r"'smoker' .*is 0 at client 1 .*and 1 at client 0"):
        prepare(config(silos(north=("nein", "ja"), south_=("ja", "nein"))))
    found = prepare(config(silos(north=("nein", "ja"), south_=("no", "am"))))
    assert found.schema.booleans == {"smoker": (("nein", "no"), ("ja", "am"))}
    assert any("do they mean the same?" in text for text in found.warnings())


def test_a_model_knows_the_words_that_it_was_trained_on(silos: Callable, tmp_path: Path) -> None:
    made = config(silos(north=("nein", "ja"), south_=("nein", "ja")))
    run(made, out=tmp_path / "run")
    (same,) = silos(later=("nein", "ja"))
    assert predict(tmp_path / "run", client=0, graph=same).classes.shape == (12,)
    (swapped,) = silos(later=("ja", "nein"))
    with pytest.raises(DataError, match=r"is 0 at later, which reads \[ja, nein\], and 1 at the model"):
        predict(tmp_path / "run", client=0, graph=swapped)
    # What the silos' descriptions say today does not change what was learned.
    silos(north=("ja", "nein"), south_=("ja", "nein"))
    with pytest.raises(DataError, match=r"is 0 at later, which reads \[ja, nein\], and 1 at the model"):
        predict(tmp_path / "run", client=0, graph=swapped)


def test_words_that_cannot_be_shown(silos: Callable) -> None:
    (name,) = silos(north=("no", "a"))
    path = Path(name)
    path.write_text(path.read_text().replace("['no'", '["n\\u202eo"').replace("'a']", '"a"]'))
    with pytest.raises(ConfigError, match=r"nodes\.boolean\.smoker must be .* holds the unseen character U\+202E"):
        prepare(config([name]))


def test_a_copy_under_another_name_is_refused(silos: Callable, tmp_path: Path) -> None:
    files = silos(north=("nein", "ja"), south_=("nein", "ja"))
    prepare(config(files))
    copy = tmp_path / "copy.csv"
    copy.write_bytes((tmp_path / "north.csv").read_bytes())
    described = (tmp_path / "north.yaml").read_text().replace("north.csv", "copy.csv")
    (tmp_path / "copy.yaml").write_text(described)
    with pytest.raises(DataError, match=r"clients 0 \(.*copy\.yaml\) hold the same data under two names"):
        prepare(config([*files, str(tmp_path / "copy.yaml")]))
    copy.write_text(copy.read_text().replace("\np", "\nq"))
    (tmp_path / "copied.csv").write_text(EDGES.replace("\np", "\nq").replace(",p", ",q"))
    (tmp_path / "copy.yaml").write_text(described.replace("edges.csv", "copied.csv"))
    warnings = prepare(config([*files, str(tmp_path / "copy.yaml")])).warnings()
    assert any("copy.yaml) hold the same data under two names" in text for text in warnings)


def test_a_shuffled_or_edited_copy_is_remarked(silos: Callable, tmp_path: Path) -> None:
    files = silos(north=("nein", "ja"))
    head, *rows = (tmp_path / "north.csv").read_text().splitlines()
    described = (tmp_path / "north.yaml").read_text().replace("north.csv", "copy.csv")
    (tmp_path / "copy.yaml").write_text(described)
    rows[0] = rows[0].replace(",20,", ",95,")
    (tmp_path / "copy.csv").write_text("\n".join([head, *reversed(rows)]) + "\n")
    warnings = prepare(config([*files, str(tmp_path / "copy.yaml")])).warnings()
    assert any("copy.yaml) hold much of the same: 92 % of the nodes of the smaller" in text for text in warnings)


def test_a_run_remarks_a_code_for_an_empty_cell(silos: Callable, tmp_path: Path) -> None:
    """As `graphsilo silo check` does: two ages of -99 beside 5 to 29."""
    files = silos(north=("nein", "ja"))
    table = tmp_path / "north.csv"
    table.write_text(table.read_text().replace("p10,30,", "p10,-99,").replace("p11,31,", "p11,-99,"))
    (note,) = [text for text in prepare(config(files)).warnings() if "-99" in text]
    assert note == (
        "north: 'age': -99 in 2 rows, far from all others (5 to 29): a slip, or a code for an empty cell? List such "
        "codes in nodes.empty."
    )
