"""Reading run folders: what must be there, what may be missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from graphsilo.errors import ConfigError, RunError
from graphsilo.report.record import flatten, load
from kit import result_tree


def result(folder: Path, value: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "result.json").write_text(value if isinstance(value, str) else json.dumps(value))
    return folder


def test_missing_folder_and_result(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"no result\.json: give the folder of a finished run"):
        load(tmp_path)
    (tmp_path / "config.yaml").touch()
    with pytest.raises(ConfigError, match=r"no result\.json: finish it with .*--resume --out"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"seeds": [', "cannot be read"),
        ("[1, 2]", "its format is None"),
        (result_tree(format=2, graphsilo="9.0"), r"format 1, but its format is 2: read it with .* wrote it \(9\.0\)"),
        ({**result_tree(), "seeds": [{}]}, r"missing required field `seed` - at `\$\.seeds\[0\]`"),
        ({**result_tree(), "novelty": 1}, r"unknown field `novelty`.*another version of graphsilo \(0; this is"),
        (result_tree([{"accuracy": "high"}]), r"metric accuracy: .* got `str`.*\$\.seeds\[0\]\.validation"),
        (result_tree([]), r"of length >= 1 - at `\$\.seeds`"),
    ],
)
def test_unusable_results_are_refused_in_one_paragraph(tmp_path: Path, content: object, complaint: str) -> None:
    with pytest.raises(RunError, match=complaint) as caught:
        load(result(tmp_path / "run", content))
    assert "\n" not in str(caught.value)


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_bytes(b"\xff\xfe\x00broken")
    with pytest.raises(RunError, match="cannot be read"):
        load(tmp_path)


def test_scores_by_seed(tmp_path: Path) -> None:
    run = load(result(tmp_path / "run", result_tree([{"accuracy": 0.5, "items": 4, "per_class_f1": [1.0, None]}])))
    assert run.metrics() == ["accuracy"]
    assert run.values("accuracy") == [0.5]
    assert run.seeds[0].test.per_class("per_class_f1") == [1.0, None]
    assert run.seeds[0].test.beside.items == 4
    assert (run.ledger, run.problems, run.seed_names) == (None, (), [0])


def test_ledger_is_summed_by_kind_client_and_field(tmp_path: Path) -> None:
    result(tmp_path, result_tree([{}, {}]))
    # Two seeds; client 3 sends 10 + 30 bytes of model in one and 20 in the other: (10 + 30 + 20) / 2 = 30 per seed
    rows = [
        (0, "round", 3, "up", "model", 10),
        (0, "round", 3, "up", "model", 30),
        (1, "round", 3, "up", "model", 20),
        (0, "setup", 4, "up", "counts", 8),
        (1, "round", 3, "down", "model", 100),
    ]
    keys = ("seed", "phase", "client", "direction", "kind", "bytes")
    lines = [dict(zip(keys, row, strict=True), handler="train", message="R", field=row[4], messages=1) for row in rows]
    parquet.write_table(arrow.Table.from_pylist(lines), tmp_path / "ledger.parquet")
    ledger = load(tmp_path).ledger
    assert ledger is not None
    assert ledger.by_kind == {"up": {"model": 30.0, "counts": 4.0}, "down": {"model": 50.0}}
    assert ledger.by_client["up"] == {3: {"model": 30.0}, 4: {"counts": 4.0}}
    assert ledger.by_phase["setup"] == {"up": 4.0}
    sent = next(field for field in ledger.fields if field.kind == "model" and field.direction == "up")
    assert (sent.bytes, sent.messages, sent.message, sent.name) == (30.0, 1.5, "R", "model")
    assert ledger.total("up") == 34.0


def test_damaged_side_files_are_told_not_raised(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs["fedavg"], tmp_path / "copy"))
    (folder / "ledger.parquet").write_bytes(b"PAR1 not a table")
    (folder / "gntk.json").write_text("{")
    run = load(folder)
    assert run.ledger is None
    assert [text.split()[0] for text in run.problems] == ["ledger.parquet", "gntk.json"]


def test_settings_by_dotted_names() -> None:
    config = {"method": {"rounds": 5, "mu": 0.1}, "rounds": 100}
    assert flatten(config) == {"method.rounds": 5, "method.mu": 0.1, "rounds": 100}
