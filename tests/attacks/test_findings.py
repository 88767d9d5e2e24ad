"""What attacks found on public data."""

from __future__ import annotations

import pytest

from graphsilo.attacks import findings
from graphsilo.errors import DataError

TEXT = """
columns: [method, variant, attacker, attack, figure, value, low, high, prior, targets, data, commit]
rows:
- [fedavg, '', coordinator, classes, AUC, 0.8, 0.7, 0.9, 0.5, 70, Cora, abc]
- [fedavg, secure sums, coordinator, classes, AUC, 0.5, 0.4, 0.6, 0.5, 70, Cora, abc]
"""


def test_findings_are_read():
    plain, secure = findings.parse(TEXT)
    assert plain.succeeds
    assert not secure.succeeds
    assert findings.about("fedavg", "secure sums", among=(plain, secure)) == (secure,)
    assert findings.about("fedavg", among=(plain, secure)) == (plain, secure)


def test_the_package_s_own_can_be_read():
    assert all(0 <= each.low <= each.value <= each.high <= 1 for each in findings.load())


def test_another_form_is_refused():
    with pytest.raises(DataError, match="does not have the form of findings"):
        findings.parse(TEXT.replace("targets, data", "targets"))
