"""A GPU that is not there: tensors in main memory that say they are on one, refused where a real one's would be.

What tensors on two devices may do together is torch's rule: nothing, but for numbers without dimensions, indices in
brackets and copies. A run that mixes devices fails here as it would on a GPU. Numbers are the CPU's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

GPU = torch.device("cuda", 0)


class OnGPU(Tensor):
    """A tensor that says so."""


class _Backward:
    """Whether autograd is on its way back, where tensors come out of its memory without their class."""

    running = 0


def _is_there(tensor: Tensor) -> bool:
    return isinstance(tensor, OnGPU) or "on_gpu" in tensor.__dict__


def _is_gpu(tensor: Tensor) -> bool:
    return _is_there(tensor) or _Backward.running > 0


def _mark(tensor: Tensor) -> None:
    """Say of a tensor that can be of no other class that it is there."""
    tensor.__dict__["on_gpu"] = True


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _there(value: Any, gpu: bool) -> Any:
    """The tensors of a result, on that device."""
    if isinstance(value, Tensor):
        if gpu == _is_there(value):
            return value
        if value.layout is not torch.strided:  # has no subclass
            _mark(value)
            return value
        leaf = value.requires_grad and value.is_leaf
        if leaf:
            return value.detach().as_subclass(OnGPU if gpu else Tensor).requires_grad_()
        return value.as_subclass(OnGPU if gpu else Tensor)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_there(each, gpu) for each in value))
    if isinstance(value, list | tuple):
        # torch's own named results, such as those of max(), take one iterable
        return type(value)([_there(each, gpu) for each in value])
    return value


_INDEXING = {Tensor.__getitem__, Tensor.__setitem__, torch.index_put, Tensor.index_put_}
_ACROSS = {Tensor.copy_, *_INDEXING}
_TO_HOST = {Tensor.numpy, Tensor.__array__}
_WHERE = {Tensor.device.__get__, Tensor.is_cuda.__get__, Tensor.is_cpu.__get__, Tensor.get_device}


class PretendedGPU(TorchFunctionMode):
    """While it is on, ``cuda`` is a device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _WHERE:
            return self._where(func, args[0])
        if func is torch.autograd.grad:
            return self._backward(func, args, kwargs)
        if func == Tensor.data.__set__:
            # a parameter may be given numbers on another device, and is there from then on
            with torch._C.DisableTorchFunctionSubclass():
                func(*args)
            return _mark(args[0]) if _is_there(args[1]) else None
        found = list(_tensors([args, kwargs]))
        if func in _TO_HOST and _is_there(found[0]) and not kwargs.get("force"):
            raise TypeError(f"can't convert cuda:0 device type tensor to numpy ({func.__name__})")
        if func is torch._has_compatible_shallow_copy_type:
            return False  # modules then take new parameters
        if func is Tensor.cpu:
            return self._moved(args[0], torch.device("cpu"), {})
        if func is Tensor.cuda:
            return self._moved(args[0], GPU, {})
        if func is Tensor.to:
            return self._to(args, kwargs)
        wanted = None if kwargs.get("device") is None else torch.device(kwargs["device"])
        if wanted is not None:
            kwargs["device"] = "cpu"
        like = self._device_of(func, found)
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
        return _there(result, like if wanted is None else wanted.type == "cuda")

    def _where(self, func: Any, tensor: Tensor) -> Any:
        gpu = _is_gpu(tensor)
        if func == Tensor.device.__get__:
            return GPU if gpu else torch.device("cpu")
        if func is Tensor.get_device:
            return 0 if gpu else -1
        return gpu == (func == Tensor.is_cuda.__get__)

    def _device_of(self, func: Any, found: list[Tensor]) -> bool:
        """Whether a result is on the GPU.

        Raises:
            RuntimeError: Some of what it is made of is, and some is not.
        """
        if _Backward.running or not found:
            return _Backward.running > 0
        first = _is_there(found[0])
        if func in _ACROSS:
            if func in _INDEXING and not first and any(_is_there(each) for each in found[1:]):
                raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
            return first
        name = getattr(func, "__name__", str(func))
        # Numbers without dimensions may be anywhere, but torch's fused optimisers take their counters from the device.
        counted = {_is_there(each) for each in found if each.dim() or "fused" in name}
        if func in _IN_PLACE:
            counted.add(first)
        if len(counted) > 1:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but {name} got some on cuda:0, some on cpu"
            )
        return counted.pop() if counted else any(map(_is_there, found))

    def _to(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        tensor, *rest = args
        device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
        for each in rest:
            if isinstance(each, Tensor):
                device, dtype = (GPU if _is_gpu(each) else torch.device("cpu")), each.dtype
            elif isinstance(each, torch.dtype):
                dtype = each
            elif isinstance(each, str | torch.device):
                device = each
        other = kwargs.pop("other", None)
        if other is not None:
            device, dtype = (GPU if _is_gpu(other) else torch.device("cpu")), other.dtype
        target = (GPU if _is_gpu(tensor) else torch.device("cpu")) if device is None else torch.device(device)
        options = {"copy": bool(kwargs.get("copy"))}
        if dtype is not None:
            options["dtype"] = dtype
        return self._moved(tensor, target, options)

    def _moved(self, tensor: Tensor, target: torch.device, options: dict[str, Any]) -> Tensor:
        gpu = target.type == "cuda"
        copied = options.pop("copy", False) or gpu != _is_gpu(tensor)
        with torch._C.DisableTorchFunctionSubclass():
            if options:
                moved = tensor.to(copy=copied, **options)
            else:
                moved = tensor.clone() if copied else tensor
        return moved if moved is tensor else _there(moved, gpu)

    def _backward(self, func: Any, args: Any, kwargs: Any) -> Any:
        gpu = any(_is_there(each) for each in _tensors([args, kwargs]))
        _Backward.running += gpu
        try:
            with torch._C.DisableTorchFunctionSubclass():
                result = func(*args, **kwargs)
        finally:
            _Backward.running -= gpu
        return _there(result, gpu)


_IN_PLACE: set[Any] = {
    getattr(Tensor, name)
    for name in dir(Tensor)
    if name.endswith("_") and not name.endswith("__") and name not in ("copy_", "requires_grad_")
}


@contextlib.contextmanager
def pretended_gpu() -> Iterator[None]:
    """``cuda`` is a device for as long as this lasts."""
    from graphsilo.models import base, dropout

    plain = dropout.draw_bits

    def drawn(count: int, rate: float, generator: torch.Generator) -> Tensor:
        bits = plain(count, rate, generator)
        return _there(bits, generator in beside)

    beside: set[torch.Generator] = set()

    def generator_there(values: Tensor, generator: torch.Generator) -> torch.Generator:
        if not _is_gpu(values):
            return generator
        there = torch.Generator().manual_seed(int(torch.randint(2**63 - 1, (), generator=generator)))
        beside.add(there)
        return there

    engine, vmap = torch.autograd._engine_run_backward, base.vmap

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        with PretendedGPU():  # no mode is on inside its own handler
            return engine(*args, **kwargs)

    def mapped(function: Any) -> Any:
        def run(*args: Any) -> Any:
            gpu = any(_is_there(each) for each in _tensors(args))
            _Backward.running += gpu
            try:
                return _there(vmap(function)(*args), gpu)
            finally:
                _Backward.running -= gpu

        return run

    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with (
            mock.patch.object(torch.cuda, "is_available", return_value=True),
            mock.patch.object(torch.cuda, "is_bf16_supported", return_value=True),
            mock.patch.object(torch.autograd, "_engine_run_backward", run_backward),
            mock.patch.object(base, "vmap", mapped),
            mock.patch.object(dropout, "draw_bits", drawn),
            mock.patch.object(dropout, "_move_generator", generator_there),
            PretendedGPU(),
        ):
            yield
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(before)
        torch.use_deterministic_algorithms(False)  # which a run there asks for
