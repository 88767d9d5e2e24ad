"""`graphsilo explain`."""

from __future__ import annotations

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_explain_a_method_says_what_every_field_discloses(call):
    code, out, _ = call("explain", "FedProx")
    assert code == 0
    assert 'Smith. "Federated Optimization in Heterogeneous Networks"' in out
    assert "only sums over clients" in out
    rows = [line.split("  ") for line in out.splitlines()]
    rows = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert ["train", "receives", "weights", "model weights"] in rows
    fewer = "model weights (in a sum times num_samples, with run.compression only their change, in fewer bytes)"
    assert ["sends", "weights", fewer] in rows
    assert any(row[:1] == ["num_samples"] for row in rows)
    assert ["mu", "0.01", "number ≥ 0"] in [row[:3] for row in rows]
    settings = [row[0] for row in rows[rows.index(["setting", "default", "values", "meaning"]) + 1 :]]
    assert settings.index("mu") < settings.index("rounds")  # its own settings first


def test_explain_names_the_papers_model(call):
    assert "sage with model.hidden=64, unless --model names another" in call("explain", "fedsage")[1]
    assert "gamlp (task node); gin (task graph), unless --model names another" in call("explain", "fedpg")[1]


def test_explain_a_metric(call):
    said = call("explain", "hete-f1")[1]
    assert said.startswith("Hete-F1 (hete_f1): mean F1 over the labels' classes of the heterophilous nodes.")
    assert "the half of the nodes whose neighbours agree least" in said
    assert "less" in call("explain", "mae")[1].split()


def test_explain_what_a_file_of_ones_own_holds(call, tmp_path):
    """The person names it in this command, so that it may run; where it holds nothing, a method is asked for."""
    method, net = (EXAMPLES / f"{name}.py" for name in ("own_method", "own_net"))
    code, out, _ = call("explain", str(method))
    assert (code, out.startswith("FedPer (fedper): A shared encoder")) == (0, True)
    assert "only sums over clients" in out
    assert "Two graph convolutions with dropout" in call("explain", f"{net}:Net")[1]
    assert "unequal shares" in call("explain", str(EXAMPLES / "own_partition.py"))[1]
    (tmp_path / "empty.py").write_text("ONE = 1\n")
    code, out, err = call("explain", str(tmp_path / "empty.py"))
    assert (code, out) == (2, "")
    assert "wanted is METHOD = Method(...)" in err
    (tmp_path / "two.py").write_text("from torch.nn import Linear\nclass A(Linear): ...\nclass B(A): ...\n")
    assert "holds 2 things that could be meant: A, B" in call("explain", str(tmp_path / "two.py"))[2]
    assert "linear transformation" not in call("explain", f"{tmp_path / 'two.py'}:A")[1]  # what its base says of itself


def test_explain_others(call):
    assert "cross-client" in call("explain", "global")[1] or "pooled" in call("explain", "global")[1]
    assert "attention heads" in call("explain", "gat")[1]
    assert "concentration" in call("explain", "dirichlet")[1]
    assert "It has no settings of its own." in call("explain", "random")[1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fedprox", "number ≥ 0"), ("gcn", "number ≥ 0, < 1"), ("GraphSAGE", "whole number ≥ 1"),
        ("dirichlet", "number > 0"), ("features", "strict, degree"), ("Citation-SBM", "number > 0, ≤ 0.5"),
        ("cora", "whole number ≥ 1 or none"), ("open", "number > 0, < 1"), ("perturb", "number ≥ 0, ≤ 1"),
        ("run", "whole number ≥ 1"), ("policy", "whole number ≥ 1 or none"),
    ],
)  # fmt: skip
def test_explain_shows_the_bounds_of_every_kind(call, name, words):
    assert words in call("explain", name)[1]


def test_explain_a_setting_by_its_dotted_name(call):
    code, out, _ = call("explain", "run.top-share")
    assert code == 0
    assert out.splitlines()[0] == "run.top_share (--set run.top_share=VALUE):"
    assert [line.split(maxsplit=1)[1] for line in out.splitlines()[3:]] == ["number > 0, ≤ 1", "0.01"]
    out = call("explain", "method.mu")[1]
    assert [line.split()[1] for line in out.splitlines() if line.startswith("of ")] == ["fedpg", "fedprox", "moon"]
    assert "--set method.rounds=VALUE or --rounds" in call("explain", "method.rounds")[1]
    assert "policy in silo.yaml" in call("explain", "policy.min_silos")[1]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("run.compresion", "did you mean 'run.compression'?"),
        ("compression", "did you mean 'run.compression'?"),
        ("rum.workers", "no section 'rum'; did you mean 'run'?"),
        ("method.options", "there is no setting 'method.options'"),
        ("zzz", "a setting is called by its section, too"),
    ],
)
def test_an_unknown_setting_is_refused_with_a_hint(call, name, hint):
    code, _, err = call("explain", name)
    assert code == 2
    assert hint in " ".join(err.split())
    assert len(err) < 400
