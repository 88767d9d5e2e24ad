"""What leaves a silo, field by field: no method begins to send something else unless a line here changes.

A line is: step, field, kind of disclosure; types and shape of tensors; what else was declared of it.
"""

from __future__ import annotations

import pytest

from graphsilo.federation import registry
from graphsilo.federation.message import FieldSpec
from graphsilo.federation.policy import _answers

EVALUATE = """
    evaluate kinds: control
    evaluate parts: control
    evaluate counts: counts int32 [rows, 4, classes, classes]
    evaluate sizes: counts int64 [parts]
    evaluate scores: score allow_nan
    evaluate_sums counts: counts int64
    evaluate_sums sizes: counts int64
    evaluate_sums ranked: score float64
    evaluate_sums items: counts int64
"""
MEAN = """
    train weights: model float32 weighted_by=num_samples
    train num_samples: counts
"""
SENT = {
    "fedavg": MEAN,
    "dp_fedavg": f"""{MEAN}
        train_noisily numbers: gradient int64
        train_noisily clients: counts
        train_noisily mu: control
        train_noisily honest: control
    """,
    "feded": MEAN,
    "fedntd": MEAN,
    "fedprox": MEAN,
    "fedsage": MEAN,
    "focal": MEAN,
    "renode": MEAN,
    "gcfl": MEAN,
    "gcfl_plus": f"""{MEAN}
        train norm: gradient
    """,
    "fedstar": MEAN,
    "global": MEAN,
    "moon": MEAN,
    "scaffold": f"""{MEAN}
        count weight: counts
        train control: gradient float32 weighted_by=num_samples
    """,
    "feddc": f"""{MEAN}
        count weight: counts
        count clients: counts
        train control: gradient float32 weighted_by=num_samples
    """,
    "local": """
        train_alone clients: counts
    """,
    "majority": """
        count clients: counts
    """,
    "fairfgl": """
        train values: model float32 relayed
        train positions: model int32 optional relayed
        train bitmap: model uint8 optional relayed
        train num_samples: counts
    """,
    "fedgcn": f"""{MEAN}
        border own: topology int64 [own]
        border degrees: topology int64 [own] relayed
        border beyond: topology int64 [beyond]
        sums ids: topology int64 [nodes]
        sums rows: statistic float32 [nodes, features] recoverable per_class=False
        install clients: counts
    """,
    "fedkd": """
        train update: model float32
        train num_samples: counts
    """,
    "co_boosting": """
        train_alone weights: model float32
        train_alone label_counts: counts int64 [classes] per_class=True
        adopt clients: counts
    """,
    "dense": """
        train_alone weights: model float32
        train_alone label_counts: counts int64 [classes] per_class=True
        adopt clients: counts
    """,
    "fedgen": f"""{MEAN}
        train label_counts: counts int64 [classes] per_class=True
    """,
    "fedgta": """
        train weights: model float32
        train moments: statistic float32 [classes, moments] per_class=True
        train confidence: statistic per_class=False
    """,
    "fedlog": f"""{MEAN}
        check_range outside: counts
        pretrain clients: counts
        fit_generator generators: generator float32 per_class=True local_generalization=True neighbour_generator=True
        fit_generator class_weights: counts float32 [classes] per_class=True local_generalization=True \
neighbour_generator=True
        take_generators clients: counts
        train synthetic: synthetic float32 [nodes, features] per_class=True local_generalization=True
        train class_weights: counts float32 [classes] per_class=True local_generalization=True
    """,
    "feddistill": """
        train sums: prototype float32 [classes, width] per_class=min_count
        train counts: counts int64 [classes] per_class=min_count
    """,
    "fedproto": """
        train sums: prototype float32 [classes, width] per_class=min_count
        train counts: counts int64 [classes] per_class=min_count
    """,
    "fedtgp": """
        train sums: prototype float32 [classes, width] per_class=min_count
        train counts: counts int64 [classes] per_class=min_count
    """,
    "fednh": f"""{MEAN}
        train sums: prototype float32 [classes, width] per_class=min_count
        train counts: counts int64 [classes] per_class=min_count
    """,
    "fpl": f"""{MEAN}
        describe sums: prototype float32 [classes, width] per_class=min_count
        describe counts: counts int64 [classes] per_class=min_count
    """,
    "fedpg": """
        hello width: control
        hello depth: control
        train prototypes: prototype float32 [classes, levels, width] per_class=True
        train counts: counts int32 [classes] per_class=True
    """,
    "fedsage_plus": f"""{MEAN}
        pretrain nodes: counts
        pretrain missing: counts
        pretrain predicted: counts
        offer weights: generator float32 relayed neighgen=own exchange=weights
        offer embeddings: embedding float32 [rows, width] relayed neighgen=own exchange=weights
        offer counts: counts int64 [rows] relayed neighgen=own exchange=weights
        compare gradient: gradient float32 recoverable like=weights neighgen=own exchange=weights \
where few rows were compared, or such as the coordinator made up
        offer_outputs features: synthetic float32 [generated, features] relayed per_class=False neighgen=own \
exchange=outputs
        offer_outputs counts: counts int64 [rows] relayed neighgen=own exchange=outputs
        compare_outputs gradient: gradient float32 [generated, features] recoverable like=features neighgen=own \
exchange=outputs
        shared_gradient gradient: gradient float32 weighted_by=clients like=weights neighgen=shared
        shared_gradient clients: counts
        mend nodes: counts
        mend generated: counts
    """,
    "fedridge": """
        count classes: counts int64 [classes] per_class=min_count
        count sizes: counts int64 [2] per_class=False
        statistics moments: statistic float32 per_class=False
        statistics products: statistic float32 per_class=min_count
        statistics moments_rest: statistic float32 per_class=False
        statistics products_rest: statistic float32 per_class=min_count
        statistics num_samples: counts
        noisy_statistics numbers: statistic int64
        noisy_statistics clients: counts
        noisy_statistics mu: control
        noisy_statistics honest: control
        score counts: counts int64 [candidates, classes, classes]
        score ranked: score float64
        score num_samples: counts
        adopt clients: counts
    """,
    "fedtrees": """
        count classes: counts int64 [classes] per_class=min_count
        moments sums: statistic int64 [features, directions] per_class=False
        project clients: counts
        cells counts: counts int32 [columns, cells] per_class=False
        start clients: counts
        histograms gradients: statistic int32 [wanted, entries]
        histograms hessians: statistic int32 [wanted, entries]
        histograms counts: counts int32 [wanted, entries] per_class=False
        adopt counts: counts int64 [forests, classes, classes]
        adopt ranked: score float64
    """,
    "opfgl": """
        statistics counts: counts float64 [classes] per_class=min_count
        statistics labelled: counts float64 [classes] per_class=min_count
        statistics contributors: counts float64 [classes] per_class=min_count
        statistics totals: statistic float64 [classes, width] per_class=min_count
        statistics within: statistic float64 [classes, width] per_class=min_count
        statistics squares: statistic float64 [classes, width] per_class=min_count
        noisy_statistics numbers: statistic int64
        noisy_statistics clients: counts
        noisy_statistics mu: control
        noisy_statistics honest: control
        personalise clients: counts
        condense clients: counts
    """,
}


SENT["auto"] = (
    "".join(
        f"{part}_{line.strip()}\n"
        for part, method in (("ridge", "fedridge"), ("trees", "fedtrees"))
        for line in SENT[method].splitlines()
        if line.strip() and not line.strip().startswith("noisy_statistics")
    )
    + """
        choose counts: counts int64 [models, classes, classes]
        choose ranked: score float64
"""
)


def said(spec: FieldSpec) -> str:
    """A field's declaration in the words of these lines."""
    dtypes = [str(dtype).removeprefix("torch.") for dtype in spec.dtypes] if spec.form != "plain" else []
    shape = [] if spec.shape is None else [f"[{', '.join(map(str, spec.shape))}]"]
    switches = [name for name in ("optional", "allow_nan", "relayed", "recoverable") if getattr(spec, name)]
    values = {name: getattr(spec, name) for name in ("per_class", "weighted_by", "largest", "like")}
    words = [f"{name}={value}" for name, value in (*values.items(), *spec.only_with) if value is not None]
    return " ".join([spec.kind, *dtypes, *shape, *switches, *words]) + spec.where_recoverable


@pytest.mark.parametrize("method", registry.names())
def test_what_leaves_a_silo(method):
    found = {
        f"{step} {spec.name}: {said(spec)}"
        for step, reply in _answers(registry.load(method).client)
        for spec in reply.specs()
    }
    assert found == {line.strip() for line in (EVALUATE + SENT[method]).splitlines() if line.strip()}
