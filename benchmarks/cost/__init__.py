"""What the cost suite is made of; ``benchmarks/suite.py`` runs it.

``settings.yaml`` says what is measured and ``bounds.yaml`` what must not get dearer; ``cases`` turns the first into
cases, ``measure`` runs one of them in turn with its unit, ``probe`` is what its processes run, ``store`` keeps the
results, ``fit`` and ``readings`` read them, ``page`` and ``others`` draw them; ``gate``, ``paired`` and ``loop`` are
the gate.
"""
