"""What FedLoG's clients and server send each other."""

from __future__ import annotations

from torch import Tensor

from graphsilo.federation.message import Message, Tensors, sends

_GENERALISED = {"local_generalization": True}
_GENERATED = {**_GENERALISED, "neighbour_generator": True}


class RangeRequest(Message):
    """Ask whether features lie within -1 and 1."""


class RangeReply(Message):
    """One client's answer."""

    outside: int = sends("counts")


class GeneratorRequest(Message):
    """Fit a neighbour generator."""

    output: str = sends("control")


class GeneratorReply(Message):
    """The generator once for each class, times what the class counts at this client: its rate; and these weights."""

    generators: Tensors = sends("generator", per_class=True, only_with=_GENERATED)
    class_weights: Tensor = sends("counts", shape=("classes",), per_class=True, only_with=_GENERATED, whole=False)


class ClassGenerators(Message):
    """The class-wise generators, [classes, ...] each, and their last activation."""

    generators: Tensors = sends("generator")
    output: str = sends("control")


class PretrainRequest(Message):
    """Train the encoder on the own labels."""


class TrainRequest(Message):
    """The shared encoder and classifiers, and the global synthetic nodes, class by class, from round 2 on."""

    weights: Tensors = sends("model")
    synthetic: Tensor | None = sends("synthetic", shape=("nodes", "features"), default=None)


class TrainReply(Message):
    """The modules after local training, the learnable nodes times what each class counts here, and these weights."""

    weights: Tensors = sends("model", weighted_by="num_samples")
    num_samples: float = sends("counts")
    synthetic: Tensor = sends("synthetic", shape=("nodes", "features"), per_class=True, only_with=_GENERALISED)
    class_weights: Tensor = sends("counts", shape=("classes",), per_class=True, only_with=_GENERALISED, whole=False)
