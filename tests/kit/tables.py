"""Tables of nodes and edges."""

from __future__ import annotations

from pathlib import Path

NODES = """patient,age,lab_a,lab_b,smoker,ward,outcome,split
p1,40,1.5,-2,true,icu,yes,train
p2,50,2.5,0,false,er,no,val
p3,60,3.5,1e1,true,icu,,test
p4,70,4.5,3,false,er,yes,
"""


EDGES = "src,dst,weight\np1,p2,0.5\np2,p3,1\np3,p2,1\np4,p4,1\n"


YAML = """name: hospital-a
nodes: {path: nodes.csv, id: patient, label: outcome, features: [age, "lab_*", smoker], split: split}
edges: {path: edges.csv, source: src, target: dst}
classes: ["no", "yes"]
"""


def rewrite(folder: Path, name: str, old: str, new: str) -> Path:
    path = folder / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return folder / "a.yaml"
