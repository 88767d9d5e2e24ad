"""Commands that are given a folder, file or name of another kind answer in one paragraph that says what was wanted."""

from __future__ import annotations

import pytest

FOLDER = "a run folder was wanted at"
UNFINISHED = "finish it with `graphsilo run --resume --out"
LINKS = "--task", "link", "--set", "data.nodes=80", "--partition", "random", "--clients", "2", "--no-report"

SAID = [
    (("compare", "MISSING"), f"{FOLDER} 'MISSING', but there is no such folder"),
    (("compare", "FILE"), f"{FOLDER} 'FILE', but that is a file"),
    (("attack", "FILE"), f"{FOLDER} 'FILE', but that is a file"),
    (("report", "EMPTY"), "a finished run was wanted in 'EMPTY', but it holds no result.json"),
    (("predict", "--run", "STOPPED", "--client", "0"), UNFINISHED),
    (("attack", "STOPPED"), UNFINISHED),
    (("plan", "EMPTY"), "the configuration EMPTY is a folder; name a file in it, such as EMPTY/config.yaml."),
    (("tune", "--space", "EMPTY"), "the space EMPTY is a folder; name a file in it"),
    (("report", "RUN", "--out", "EMPTY"), "EMPTY is a folder: name a file in a folder."),
    (("compare", "RUN", "--report", "FILE/page.html"), "FILE/page.html is to be written where a file is"),
    (("explain", "EMPTY/none.py"), "the file EMPTY/none.py cannot be read (No such file or directory)"),
    (("explain", "FILE:METHOD"), "explain takes a name, such as fedavg or run.workers"),
    (("explain", "silo.yaml"), "and 'silo.yaml' names another file. `graphsilo silo explain` explains a silo.yaml"),
    (("run", *LINKS, "--set", "evaluation.modes=[own_global]"), "leave out the evaluation modes that end in _global"),
    (("run", *LINKS, "--set", "evaluation.modes=[aggregate_global]"), "leave out the evaluation modes"),
]


@pytest.mark.parametrize(("words", "text"), SAID, ids=lambda value: " ".join(value)[:60] if value else "")
def test_one_paragraph_says_what_was_wanted(call, finished, tmp_path, words, text):
    places = {name: str(tmp_path / name.lower()) for name in ("MISSING", "EMPTY", "FILE", "STOPPED")} | {
        "RUN": finished
    }
    for name in ("EMPTY", "STOPPED"):
        (tmp_path / name.lower()).mkdir()
    (tmp_path / "file").write_text("hello")
    (tmp_path / "stopped" / "config.yaml").write_text((finished / "config.yaml").read_text())

    def placed(word):
        for name, place in places.items():
            word = word.replace(name, str(place)) if name in word else word
        return word

    code, out, err = call(*map(placed, words))
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert placed(text) in err
