"""`graphsilo explain`."""

from __future__ import annotations

import pytest


def test_explain_a_method_says_what_every_field_discloses(call):
    code, out, _ = call("explain", "FedProx")
    assert code == 0
    assert 'Li et al. "Federated Optimization in Heterogeneous Networks"' in out
    assert "only sums over clients" in out
    rows = [line.split("  ") for line in out.splitlines()]
    rows = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert ["train", "receives", "weights", "model weights"] in rows
    assert ["sends", "weights", "model weights (in a sum times num_samples)"] in rows
    assert any(row[:1] == ["num_samples"] for row in rows)
    assert ["mu", "0.01", "number ≥ 0"] in [row[:3] for row in rows]
    settings = [row[0] for row in rows[rows.index(["setting", "default", "values", "meaning"]) + 1 :]]
    assert settings.index("mu") < settings.index("rounds")  # its own settings first


def test_explain_names_the_papers_model(call):
    assert "sage with model.hidden=64, unless --model names another" in call("explain", "fedsage")[1]
    assert "gamlp (task node); gin (task graph), unless --model names another" in call("explain", "fedpg")[1]


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
