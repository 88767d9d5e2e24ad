"""Own tables in units of their own: agreed scales in every runtime, references, scenarios and predictions; warnings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from graphsilo.data.scales import Scaling
from graphsilo.data.silos.column_scales import visible_graph
from graphsilo.errors import ConfigError, FederationError
from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.experiments.observer import Observer
from graphsilo.experiments.outcome import find_one_class
from graphsilo.experiments.predict import predict
from graphsilo.experiments.runner import run
from graphsilo.experiments.seed import SeedRun
from graphsilo.experiments.simulation import prepare
from graphsilo.experiments.storage.disk import read_tensors
from graphsilo.federation import registry
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.model_files import scale_of
from graphsilo.planning import plan
from kit.site_tables import numbers
from kit.stopped import Stop, StopAfter

NAMES = ("north", "south", "west")
NODES = 40


def write_hospital(folder: Path, number: int, *, platelets: float = 250_000, more: str = "") -> Path:
    """Patients by age in years, platelets per microlitre, ward, and a device that is one everywhere; and more rows."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(number)
    label = draw.integers(0, 2, NODES)
    age = np.rint(55 + 12 * (label - 0.5) + 10 * draw.standard_normal(NODES) + 4 * number).astype(int)
    count = np.rint(8 * (16 + 4 * (label - 0.5) + 2 * draw.standard_normal(NODES))) / 128 * platelets
    home = np.where(label, "yes", "no")
    rows = [f"{number}-{k},{home[k]},{age[k]},{float(count[k])!r},{k % 2},1.5" for k in range(NODES)]
    (folder / "nodes.csv").write_text("id,home,age,platelets,ward,device\n" + "\n".join(rows) + "\n" + more)
    pairs = {tuple(sorted(pair)) for pair in draw.integers(0, NODES, (60, 2)).tolist() if pair[0] != pair[1]}
    lines = [f"{number}-{a},{number}-{b}" for a, b in sorted(pairs)]
    (folder / "edges.csv").write_text("a,b\n" + "\n".join(lines) + "\n")
    tables = {
        "nodes": {"path": "nodes.csv", "id": "id", "label": "home", "features": ["age", "platelets", "ward", "device"]},
        "edges": {"path": "edges.csv", "source": "a", "target": "b"},
        "classes": ["no", "yes"],
    }
    (folder / "tables.yaml").write_text(yaml.safe_dump(tables))
    return folder / "tables.yaml"


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("hospitals")
    return [str(write_hospital(folder / name, number)) for number, name in enumerate(NAMES)]


def config_of(names: list[str], **more: Any) -> RunConfig:
    usual = {"data.name": names, "method.rounds": 3, "run.seeds": [0], "model.hidden": [8], "run.checkpoint_every": 1}
    return load_config(overrides={**usual, **{key.replace("__", "."): value for key, value in more.items()}})


def seeds_of(config: RunConfig, **options: Any) -> Any:
    return numbers(run(config, **options).tree["seeds"])


def agreed(config: RunConfig) -> SeedRun:
    """A seed whose silos have agreed."""
    method = registry.load(config.method.name)
    one = SeedRun(config, method, config.method_config(), prepare(config, method), 0, None, None)
    if one.scaling.is_agreed:
        one._agree(Ledger())
    return one


def of_units(warnings: list[str]) -> list[str]:
    """Without those of one device a hospital, and of files that give no name."""
    return [text for text in warnings if "constant, the same value" not in text and "silos are called" not in text]


def test_units_change_no_number(hospitals: list[str], tmp_path: Path) -> None:
    """Platelets by 1024: a power of two, so that every scaled number is the same to the last bit."""
    other = [
        str(write_hospital(tmp_path / name, number, platelets=1024 * 250_000)) for number, name in enumerate(NAMES)
    ]
    scale = run(config_of(hospitals))
    assert numbers(scale.tree["seeds"]) == seeds_of(config_of(other))
    assert scale.tree["config"]["data"]["scale"] == "standard"
    assert scale.tree["config"]["data"]["scale_by"] == "federation"
    assert of_units(scale.tree["warnings"]) == []


def test_the_agreed_scale_is_that_of_all_rows(hospitals: list[str]) -> None:
    one = agreed(config_of(hospitals))
    rows = np.concatenate([silo.graph.features for silo in one.simulation.silos]).astype(np.float64)  # type: ignore
    scale = one.scale
    assert scale is not None
    np.testing.assert_allclose(scale.shift, [*rows[:, :2].mean(axis=0), 0, 1.5], rtol=1e-12)
    np.testing.assert_allclose(scale.factor, [*1 / rows[:, :2].std(axis=0), 1, 0], rtol=1e-12)
    held = one.federation(Ledger())
    features = np.concatenate([held.client(k).silo.graph.features for k in range(3)])  # type: ignore[attr-defined]
    np.testing.assert_allclose(features[:, :2].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(features[:, :2].std(axis=0), 1, atol=1e-6)
    assert np.array_equal(features[:, 2], rows[:, 2])
    assert not features[:, 3].any()


@pytest.mark.parametrize("more", [{"run.workers": 2}, {"run.resident_clients": 1}])
@pytest.mark.slow
def test_the_same_bits_in_workers_and_with_few_clients_in_memory(hospitals: list[str], more: dict[str, Any]) -> None:
    assert seeds_of(config_of(hospitals, **more)) == seeds_of(config_of(hospitals))


def test_the_same_bits_after_a_stop(hospitals: list[str], tmp_path: Path) -> None:
    with pytest.raises(Stop):
        run(config_of(hospitals), out=tmp_path / "out", observer=StopAfter(0, 2))
    again = run(config_of(hospitals), out=tmp_path / "out", resume=True)
    assert numbers(again.tree["seeds"]) == seeds_of(config_of(hospitals))


def test_what_scaling_sends_stands_in_the_ledger(hospitals: list[str]) -> None:
    config = config_of(hospitals)
    method = registry.load("fedavg")
    one = SeedRun(config, method, config.method_config(), prepare(config, method), 0, None, None)
    seed, ledger = one.run(0, resume=False, observer=Observer(), label="", folder=None)
    rows = [row for row in ledger.rows() if row[0] == "setup"]
    up = {(row[4], row[6], row[7]) for row in rows if row[3] == "up" and row[6] != "(header)"}
    assert up == {
        ("feature_sums", "num_samples", "counts"), ("feature_sums", "sums", "statistic"),
        ("feature_sums", "others", "statistic"), ("feature_sums", "filled", "statistic"),
        ("feature_squares", "num_samples", "counts"), ("feature_squares", "squares", "statistic"),
        ("feature_sums", "members", "statistic"), ("feature_squares", "members", "statistic"),
    }  # fmt: skip
    assert {row[4] for row in rows if row[3] == "down"} == {"feature_sums", "feature_squares", "scale"}
    # 32 bytes for 4 sums, 4 counts and 4 squares of each of 3 clients, filled up to 64.
    assert sum(row[8] for row in rows if row[3] == "up" and row[7] == "statistic") == 3 * 3 * 64
    assert seed.setup.upload_bytes == sum(row[8] for row in rows if row[3] == "up")


@pytest.mark.slow
def test_a_plan_knows_what_scaling_sends(hospitals: list[str]) -> None:
    config = config_of(hospitals)
    planned = plan(config, seconds=1.0)
    tree = run(config).tree
    assert planned.is_steady
    assert (planned.seed.up, planned.seed.down) == (tree["summary"]["upload_bytes"], tree["summary"]["download_bytes"])


def test_who_is_alone_hears_of_nobody(hospitals: list[str], tmp_path: Path) -> None:
    """Local training has its silo's own scale and sends no sums; centralised training has that of all rows."""
    tree = run(config_of(hospitals, **{"run.references": ["local", "global"]}), out=tmp_path / "out").tree
    local = tmp_path / "out" / "references" / "local" / "models"
    common = scale_of_file(tmp_path / "out" / "models" / "seed0-client0-best.safetensors")
    shared = scale_of_file(tmp_path / "out" / "models" / "seed0-aggregate-last.safetensors")
    assert np.array_equal(common.shift, shared.shift)
    shifts = []
    for client, silo in enumerate(prepare(config_of(hospitals)).silos):
        own = scale_of_file(local / f"seed0-client{client}-best.safetensors")
        np.testing.assert_allclose(own.shift[:2], silo.graph.features[:, :2].astype(np.float64).mean(axis=0))  # type: ignore
        shifts.append(own.shift[0])
    assert len(set(shifts)) == 3
    pooled = scale_of_file(tmp_path / "out" / "references" / "global" / "models" / "seed0-client0-best.safetensors")
    np.testing.assert_allclose(pooled.shift, common.shift, rtol=1e-12)
    alone = run(config_of(hospitals, method__name="local")).tree
    assert alone["seeds"][0]["setup"]["upload_bytes"] == 0
    assert tree["references"]["local"]["accuracy"] == alone["summary"]["test"]["accuracy"]
    by_silo = run(config_of(hospitals, data__scale_by="silo", method__name="local")).tree
    assert numbers(by_silo["seeds"]) == numbers(alone["seeds"])


def scale_of_file(path: Path) -> Any:
    tensors = read_tensors(path)
    return scale_of({name: tensors[f"scale/{name}"] for name in ("shift", "factor")})


@pytest.mark.parametrize("scenario", ["unseen", "open", "inductive"])
def test_only_what_training_sees_counts(hospitals: list[str], scenario: str) -> None:
    one = agreed(
        config_of(hospitals[:1], scenario__name=scenario, partition__clients=2, partition__ratios=[0.5, 0.2, 0.3])
    )
    silos = one.simulation.silos  # type: ignore[attr-defined]
    rows = np.concatenate([np.asarray(visible_graph(silo).features, dtype=np.float64) for silo in silos])
    assert len(rows) < NODES
    if scenario == "inductive":
        assert len(rows) == sum(len(silo.train) for silo in silos)
    scale = one.scale
    assert scale is not None
    np.testing.assert_allclose(scale.shift[:2], rows[:, :2].mean(axis=0), rtol=1e-12)
    held = one.federation(Ledger())
    for number, silo in enumerate(silos):
        member = held.client(number).silo  # type: ignore[attr-defined]
        for mine, raw in zip(member.evaluations, silo.evaluations, strict=True):
            wanted = (raw.graph.features[:, :2] - scale.shift[:2]) * scale.factor[:2]
            np.testing.assert_allclose(mine.graph.features[:, :2], wanted, rtol=1e-5, atol=1e-6)
    shared = [member.evaluations[-1].graph for member in (held.client(0).silo, held.client(1).silo)]  # type: ignore
    assert (shared[0] is shared[1]) == (scenario != "inductive")


def test_predictions_are_scaled_as_training_was(hospitals: list[str], tmp_path: Path) -> None:
    """A patient far out who met nobody changes means and deviations of the table, and nobody's prediction."""
    tables = [str(write_hospital(tmp_path / name, number)) for number, name in enumerate(NAMES)]
    tree = run(config_of(tables), out=tmp_path / "out").tree
    own = predict(tmp_path / "out", client=0)
    items = prepare(config_of(tables)).silos[0].seen.items["test"]
    labels = prepare(config_of(tables)).silos[0].graph.labels
    assert (own.classes[items] == labels[items]).mean() == tree["seeds"][0]["clients"][0]["test"]["accuracy"]
    grown = write_hospital(tmp_path / "grown", 0, more="far,yes,104,9000000,1,700\n")
    later = predict(tmp_path / "out", client=0, graph=grown)
    assert np.array_equal(later.probabilities[:NODES], own.probabilities)
    # Where the run's own table changes, so that its silo would now have another scale.
    write_hospital(tmp_path / "north", 0, platelets=2 * 250_000)
    again = predict(tmp_path / "out", client=0, graph=tmp_path / "grown" / "tables.yaml")
    assert np.array_equal(again.probabilities[:NODES], own.probabilities)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedprox", "fedsage", "fedsage_plus", "fedlog", "fedpg", "fairfgl", "opfgl"])
@pytest.mark.parametrize("by", ["federation", "silo"])
def test_every_method_learns_from_scaled_features(hospitals: list[str], method: str, by: str) -> None:
    more = {"generator_hidden": [8]} if method == "fedsage_plus" else {}
    config = config_of(
        hospitals,
        method__name=method,
        method__rounds=1,
        data__scale_by=by,
        **{f"method__{k}": v for k, v in more.items()},
    )
    tree = run(config).tree
    assert np.isfinite(tree["summary"]["test"]["accuracy"]["mean"])
    assert not any("not scaled" in text for text in tree["warnings"])


def test_silos_of_a_simulation_scale_as_it_does(hospitals: list[str], tmp_path: Path) -> None:
    from graphsilo.cli.silo.commands import write_silos
    from graphsilo.data.silos.own import read_silo_file

    for (folder, silo), raw in zip(
        write_silos(config_of(hospitals), tmp_path / "silos"), prepare(config_of(hospitals)).silos, strict=True
    ):
        file = read_silo_file(folder / "silo.yaml")
        assert file.scaling == Scaling("standard", "federation")
        assert np.array_equal(file.load(silo.client).graph.features, raw.graph.features)  # type: ignore[union-attr]


def test_public_graphs_are_as_they_were(small: Any) -> None:
    config = small(method__rounds=2)
    simulation = prepare(config)
    assert simulation.scaling == Scaling("none", "silo")
    held = SeedRun(config, registry.load("fedavg"), config.method_config(), simulation, 0, None, None).federation(
        Ledger()
    )
    assert held.client(0).silo is simulation.silos[0]  # type: ignore[attr-defined]
    plain = run(config).tree
    assert plain["seeds"][0]["setup"]["upload_bytes"] == 0
    assert "scale" not in plain["config"]["data"]
    assert numbers(plain["seeds"]) == seeds_of(small(method__rounds=2, data__scale="none"))


def test_scaling_that_cannot_be(hospitals: list[str]) -> None:
    with pytest.raises(ConfigError, match="medians and quartiles, which cannot be made from sums"):
        run(config_of(hospitals, data__scale="robust", data__scale_by="federation"))
    with pytest.raises(ConfigError, match="scale must be one of none, standard, robust, unit_rows"):
        run(config_of(hospitals, data__scale="standrad"))


# -- warnings ----------------------------------------------------------------------------------------------------------


def test_columns_worlds_apart_and_one_class_for_all(hospitals: list[str]) -> None:
    heard: list[str] = []

    class Hears(Observer):
        def on_warning(self, text: str) -> None:
            heard.append(text)

    tree = run(config_of(hospitals, data__scale="none", method__rounds=1), observer=Hears()).tree
    assert tree["warnings"] == heard
    units, outcome = of_units(heard)
    assert "data.scale is none" in units
    assert "'platelets' ranges over" in units
    assert outcome.startswith("every silo predicts one class for everything (")


def test_one_class_is_told_of_who_gives_it() -> None:
    from graphsilo.experiments.evaluation import SetScores

    counts = np.zeros((3, 1, 4, 2, 2), dtype=np.int64)
    counts[0, 0, 0] = [[3, 0], [2, 0]]  # says 0 whatever it is
    counts[1, 0, 0] = [[3, 0], [1, 1]]
    counts[2, 0, 0] = [[5, 0], [0, 0]]  # there is nothing else to say
    scores = SetScores(("test",), counts, np.array([5, 5, 5]), {}, (0, 1, 2))
    assert find_one_class(scores) == [[0, 0]]


def test_a_class_that_nobody_trains(tmp_path: Path) -> None:
    tables = write_hospital(tmp_path / "north", 0)
    description = yaml.safe_load(tables.read_text())
    description["nodes"]["split"] = "part"
    lines = (tmp_path / "north" / "nodes.csv").read_text().splitlines()
    # Whoever goes home is only ever asked for.
    rows = [
        f"{line},{'test' if ',yes,' in line else ('train', 'val', 'test')[place % 3]}"
        for place, line in enumerate(lines[1:])
    ]
    (tmp_path / "north" / "nodes.csv").write_text("\n".join([f"{lines[0]},part", *rows]) + "\n")
    tables.write_text(yaml.safe_dump(description))
    asked = sum(",yes," in line for line in lines)
    tree = run(config_of([str(tables)], method__rounds=1, partition__clients=2, partition__split="predefined")).tree
    assert (
        f"no client trains the class 'yes', and {asked} items of it are asked for at test time: they cannot be found."
        in tree["warnings"]
    )


def test_a_method_on_a_backbone_that_makes_it_another(small: Any) -> None:
    found = run(small(method__name="fedsage", model__name="gcn", method__rounds=1)).tree["warnings"]
    assert any(text.startswith("FedSage is FedAvg in which every client counts alike") for text in found)
    usual = run(small(method__name="fedsage", model__name="sage", method__rounds=1)).tree["warnings"]
    assert not any("FedSage is" in text for text in usual)


def test_too_few_silos_to_agree(hospitals: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from graphsilo.federation import scaling

    look = scaling.sums_of
    monkeypatch.setattr(scaling, "sums_of", lambda rows: look(rows) if rows[0, 0] > 1e9 else 1 / 0)
    with pytest.raises(FederationError, match="3 clients had to answer, 0 did"):
        run(config_of(hospitals))


def test_secure_sums_agree_on_the_same_scale(hospitals: list[str]) -> None:
    """Σx, and Σ(x - mean)² with three words: the same scale to the last digits, and nothing but control is in plain."""
    scales, ledgers = [], []
    for secure in (False, True):
        config = config_of(hospitals, **{"run.secure_sums": secure})
        method = registry.load(config.method.name)
        seed = SeedRun(config, method, config.method_config(), prepare(config, method), 0, None, None)
        ledger = Ledger()
        seed._agree(ledger)
        assert seed.scale is not None
        scales.append(seed.scale)
        ledgers.append({(row[5], row[7]) for row in ledger.rows() if row[3] == "up"})
    np.testing.assert_allclose(scales[1].shift, scales[0].shift, rtol=1e-14)
    np.testing.assert_allclose(scales[1].factor, scales[0].factor, rtol=1e-14)
    assert {name for name, kind in ledgers[1] if kind != "control"} == {
        "scaling.FeatureSums (masked)", "scaling.FeatureSquares (masked)",
    }  # fmt: skip


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Patients whose outcome is known from when they came, as a number such as 202401010130; a silo's day each."""
    files = []
    for number, name in enumerate(NAMES):
        folder = tmp_path_factory.mktemp(name)
        path = write_hospital(folder, number)
        late = np.random.default_rng(number).permutation(NODES)
        start = 202_401_010_000 + 60 * number
        rows = [f"{number}-{k},{'yes' if late[k] >= 20 else 'no'},{start + late[k]}" for k in range(NODES)]
        (folder / "nodes.csv").write_text("id,home,when\n" + "\n".join(rows) + "\n")
        path.write_text(path.read_text().replace("- age\n  - platelets\n  - ward\n  - device", "- when"))
        files.append(str(path))
    return files


@pytest.mark.parametrize("how", [("standard", "federation"), ("standard", "silo"), ("robust", "silo")])
def test_times_as_numbers_reach_models_and_predictions(visits: list[str], how: tuple[str, str], tmp_path: Path) -> None:
    config = config_of(visits, data__scale=how[0], data__scale_by=how[1], model__name="mlp", method__rounds=1)
    one = agreed(config)
    held = one.federation(Ledger())
    for client, silo in enumerate(one.simulation.silos):  # type: ignore[attr-defined]
        features = held.client(client).silo.graph.features[:, 0]  # type: ignore[attr-defined]
        assert features.dtype == np.float32
        assert np.array_equal(np.argsort(features), np.argsort(silo.graph.features[:, 0]))
        assert len(np.unique(features)) == NODES
    run(config, out=tmp_path / "out")
    own = predict(tmp_path / "out", client=0)
    assert len(np.unique(own.probabilities[:, 0])) > NODES / 2
    assert np.array_equal(predict(tmp_path / "out", client=0, graph=visits[0]).probabilities, own.probabilities)
