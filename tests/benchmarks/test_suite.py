"""Which cases there are, that what was measured is kept, and what is read from it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import suite
from children import ChildFailed, execute
from cost import others, page, readings
from cost.cases import Case, cases, chosen, read_settings, registered
from cost.measure import Limits, measure, run_probe
from cost.store import Store, commit, earlier

LIMITS = Limits(120, 3_000_000_000)
SETTINGS = read_settings()


def by_id(found: list[Case]) -> dict[str, Case]:
    assert len({case.id for case in found}) == len(found)
    return {case.id: case for case in found}


def test_every_registered_method_is_measured_on_every_data_set() -> None:
    found = by_id(cases(SETTINGS, [*registered(), "brand_new"]))
    for data in ("Cora", "PubMed", "sbm-169k"):
        for method in [*registered(), "brand_new"]:
            assert found[f"methods/{method}/{data}"].overrides["method.name"] == method
    assert found["methods/opfgl/Cora"].overrides["method.surrogate_steps"] == 50
    assert found["methods/opfgl/Cora"].unit == found["methods/fedavg/Cora"].overrides


def test_growth_stays_below_its_limits() -> None:
    def sizes(**options: Any) -> list[int]:
        found = chosen(cases(SETTINGS, registered(), **options), ["growth/nodes/fedavg"])
        return [case.facts["value"] for case in found]

    assert max(sizes()) == 100_000
    assert max(sizes(largest=2_000_000)) == 2_000_000
    assert sizes(quick=True) == [1000, 3162, 10000]
    clients = chosen(cases(SETTINGS, registered()), ["growth/clients/*/1000"])
    assert all(case.overrides["data.nodes"] == 60_000 for case in clients)
    assert {case.facts["method"] for case in clients} == {"fedavg", "fedpg", "fairfgl", "opfgl"}


def test_patterns_choose_whole_ids_and_their_beginnings() -> None:
    found = cases(SETTINGS, registered())
    assert [case.id for case in chosen(found, ["methods/fedavg/Cora", "growth/clients/fedavg/10"])] == [
        "methods/fedavg/Cora",
        "growth/clients/fedavg/10",
    ]
    assert {case.kind for case in chosen(found, ["start", "workers"])} <= {"start", "workers"}
    assert chosen(found, []) == found


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    case = Case("start", "nothing", {}, None, 2, {"title": "t", "unit": "u", **_commands("pass", "pass")})
    store = Store("abc1234", tmp_path)
    store.note(imports={})
    suite.run(store, [case], LIMITS, None)
    again = Store("abc1234", tmp_path)  # as after a stop
    assert again.has(case)
    assert len(again.tree["cases"][case.id]["turns"]) == 2
    before = again.path.stat().st_mtime_ns
    suite.run(again, [case], LIMITS, None)
    assert again.path.stat().st_mtime_ns == before
    assert again.has(replace(case, turns=1))
    assert not again.has(replace(case, turns=3))
    assert not again.has(replace(case, facts={**case.facts, "command": ["other"]}))


def test_what_a_state_is_compared_with(tmp_path: Path) -> None:
    assert earlier("one", tmp_path) is None
    for name in (f"{commit()}+abcdef", commit(), "0000000"):
        Store(name, tmp_path).note(machine={})
    assert (earlier(f"{commit()}+123456", tmp_path) or {})["code"] == commit()  # the clean state, not the latest file
    assert (earlier(commit(), tmp_path) or {})["code"] == f"{commit()}+abcdef"


def test_failures_are_tried_again_and_what_takes_too_long_is_not(tmp_path: Path) -> None:
    store = Store("abc1234", tmp_path)
    failing = Case("start", "failing", {}, None, 1, _commands("raise SystemExit('no data')", "pass"))
    slow = Case("start", "slow", {}, None, 1, _commands("import time; time.sleep(60)", "pass"))
    for case, limit in ((failing, 60.0), (slow, 0.5)):
        store.keep(case, measure(case, replace(LIMITS, seconds=limit), None))
    assert store.tree["cases"]["start/failing"]["reason"] == "no data"
    assert store.tree["cases"]["start/slow"]["status"] == "stopped"
    assert (store.has(failing), store.has(slow)) == (False, True)


def _commands(case: str, unit: str) -> dict[str, list[str]]:
    return {"command": ["{python}", "-c", case], "unit_command": ["{python}", "-c", unit]}


def test_a_process_tells_its_own_costs() -> None:
    ended = execute([sys.executable, "-c", "import os; print('{\"threads\": ' + os.environ['OMP_NUM_THREADS'] + '}')"])
    assert ended.json() == {"threads": 1}
    assert ended.cpu_seconds > 0
    with pytest.raises(ChildFailed, match="ValueError: bad"):
        execute([sys.executable, "-c", "raise ValueError('bad')"])


@pytest.mark.slow
def test_a_probe_tells_the_parts_of_a_run_apart() -> None:
    overrides = {
        "data.name": "citation-sbm", "data.nodes": 200, "data.features": 32, "partition.clients": 2,
        "partition.rule": "metis", "method.name": "fedavg", "method.rounds": 3, "evaluation.models": False,
    }  # fmt: skip
    found = run_probe(overrides, LIMITS)
    assert found["rounds"] == 3
    assert set(found["parts"]) == {"prepare", "load", "cut", "setup", "round", "evaluation"}
    # 32 · 64 + 64 + 64 · 7 + 7 weights of four bytes, and a header, to each of two clients
    weights = 4 * (32 * 64 + 64 + 64 * 7 + 7)
    assert 2 * weights < found["parts"]["round"]["up"] < 2 * weights + 2000
    assert readings.part(found, "setup", "up") == 0
    inner = readings.part(found, "round") + readings.part(found, "evaluation")
    assert 0 < inner < found["cpu"]
    assert readings.training_memory(found) > 0


def test_too_little_memory_is_a_failure_with_a_reason() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from cost.probe import limit_memory; limit_memory(200_000_000); "
    )
    with pytest.raises(ChildFailed, match="MemoryError"):
        execute([sys.executable, "-c", code + "bytearray(300_000_000)", str(Path(suite.__file__).parent)])


# -- what is read from results


def probe(scale: float, memory: float = 1e6) -> dict[str, Any]:
    part = {"cpu": scale, "wall": scale, "codec": scale / 10, "peak": 3e8 + memory, "up": 100, "down": 200}
    parts = dict.fromkeys(("setup", "round", "evaluation"), part)
    return {
        "parts": {**parts, "prepare": part}, "base": 3e8, "held": 3e8, "pss": 0, "cpu": scale, "wall": scale,
        "rounds": 3, "score": 0.5, "clients": 2, "model": "gcn",
    }  # fmt: skip


def tree(factor: float = 2.0) -> dict[str, Any]:
    store = Store("abc1234", Path("nowhere"))
    store.tree["cases"] = {
        "methods/fedprox/Cora": {
            "kind": "methods", "facts": {"method": "fedprox", "data": "Cora"}, "status": "done", "reason": "",
            "turns": [{"case": probe(factor * slow, 3e6), "unit": probe(slow)} for slow in (1.0, 4.0, 2.0)],
        },
        "methods/fedlog/Cora": {
            "kind": "methods", "facts": {"method": "fedlog", "data": "Cora"}, "status": "stopped",
            "reason": "stopped after 600 s", "turns": [],
        },
        **{
            f"growth/clients/fedavg/{value}": {
                "kind": "growth", "status": "done", "reason": "", "turns": [{"case": probe(value / 100)}],
                "facts": {"method": "fedavg", "axis": "clients", "value": value, "title": "clients"},
            }
            for value in (10, 100, 1000)
        },
    }  # fmt: skip
    machine = {"cpu": "a <cpu>", "cores": 2, "memory_bytes": 8e9, "load_average": [1.0], "python": "3", "torch": "2"}
    store.tree.update(machine={**machine, "numpy": "2", "scipy": "1"}, time="now")
    return store.tree


def test_ratios_are_taken_within_a_turn() -> None:
    done = next(row for row in readings.methods(tree()) if not row.trouble)
    # A round with its evaluation is 2 · slow of the unit; the case's parts are 2 · slow each, however busy the machine.
    assert [done.ratios[name].value for name in ("set_up", "round", "evaluation")] == [1.0, 1.0, 1.0]
    assert done.ratios["round"].spread == 0
    assert done.ratios["memory"].value == 3.0
    assert done.codec is not None
    assert done.codec.value == pytest.approx(0.1)


def test_changes_are_told_when_quartiles_do_not_touch() -> None:
    found = {change.name: change for change in readings.changes(tree(2.0), tree(3.0))}
    dearer = found["fedprox on Cora, round"]
    assert (dearer.factor, dearer.clear) == (1.5, True)
    assert (found["fedprox on Cora, up bytes"].factor, found["fedprox on Cora, up bytes"].clear) == (1.0, False)
    close = {change.name: change for change in readings.changes(tree(2.0), tree(2.08))}
    assert not close["fedprox on Cora, round"].clear  # a twenty-fifth
    assert found["fedavg along clients, exponent of round"].before.value == pytest.approx(1.0)


def test_the_page_has_everything_and_escapes_it(tmp_path: Path) -> None:
    text = page.write(tree(3.0), {**tree(2.0), "code": "0ld"}, tmp_path).read_text(encoding="utf-8")
    assert "| fedprox | gcn | 1.50 | 1.50 | 1.50 | 3.00 | 10.0 % | 50.0 % |" in text
    assert "| fedlog | stopped after 600 s |" in text
    assert "1.00 ± 0.00, at the end 1.00" in text
    assert "× 1.50" in text
    html = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "a &lt;cpu&gt;" in html
    assert 'id="growth-clients"' in html
    assert "http-equiv" in html


def test_other_benchmarks_are_shown_where_they_ran(tmp_path: Path) -> None:
    assert others.sections(tmp_path)[-1].tables == []
    ratios = {"cpu_seed": 0.9, "memory": 1.25, "worker": None, "up": 1.0, "down": 1.0}
    text = json.dumps({"cases": [{"case": "FedAvg, Cora", "ratios": ratios}, {"case": "stopped"}]})
    (tmp_path / "plan-error-abc1234.json").write_text(text, encoding="utf-8")
    [plans, _] = others.sections(tmp_path)
    assert [list(row) for row in plans.tables[0].rows] == [["FedAvg, Cora", "0.90", "–", "1.25", "–", "1.00", "1.00"]]
    assert "abc1234" in plans.text
