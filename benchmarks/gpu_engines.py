"""The engines that `benchmarks.gpu` compares, and the device they share."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from benchmarks.gpu import Engine
from relaxc.targets import resolve_target

# TVM runs kernels on the default stream, as torch does.
_DEVICE = ("cuda", 0)


@dataclass(frozen=True)
class CudaDevice:
    """The first GPU: its name, and how to wait for it."""

    name: str
    arch: str
    handle: Any

    def synchronize(self) -> None:
        """Wait until everything that was started is finished."""
        self.handle.sync()


def find_device() -> CudaDevice | None:
    """Return the first CUDA device, None if there is none."""
    handle = tvm.runtime.device(*_DEVICE)
    if not handle.exist:
        return None
    arch = "sm_" + str(handle.compute_version).replace(".", "")
    return CudaDevice(str(handle.device_name), arch, handle)


def installed_engines(device: CudaDevice) -> list[Engine]:
    """Return relaxc, TVM's default rules and, where torch sees the GPU, torch's two ways."""
    engines: list[Engine] = [RelaxcEngine(device), DefaultTvmEngine(device)]
    if torch_sees_cuda():
        engines[1:1] = [TorchEngine(), TorchCompileEngine()]
    return engines


def torch_sees_cuda() -> bool:
    """Tell whether torch is installed with CUDA and finds the device."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def torch_reference(case: Any, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """Return what torch computes in float32, on the GPU where it can, else on the processor."""
    import torch

    where = "cuda" if torch_sees_cuda() else "cpu"
    if where == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    tensors = [torch.from_numpy(np.ascontiguousarray(x)).to(where) for x in inputs]
    with torch.inference_mode():
        wide = [x.float() if x.is_floating_point() else x for x in tensors]
        return case.function()(*wide).cpu().numpy()


class RelaxcEngine:
    """The model compiled by relaxc, called with tensors on the device."""

    name = "relaxc"

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self.least_seconds: float | None = None

    def prepare(self, case: Any, inputs: Sequence[np.ndarray], small: bool) -> Callable[[], Any]:
        """Return a call of the compiled model."""
        import relaxc

        source, example = case.source(small)
        target = {"kind": "cuda", "arch": self._device.arch}
        model = relaxc.compile(source, example, target=target, progress=False)
        self.least_seconds = sum(k["least_seconds"] * k["calls"] for k in model.kernels)
        tensors = [tvm.runtime.tensor(x, self._device.handle) for x in inputs]
        return lambda: model(*tensors)

    def array(self, result: Any) -> np.ndarray:
        """Return the result, which is a TVM tensor."""
        return result.numpy() if hasattr(result, "numpy") else np.asarray(result)


class DefaultTvmEngine:
    """The same module through TVM's default pipeline, whose rules are dlight's."""

    name = "TVM default"

    def __init__(self, device: CudaDevice) -> None:
        self._device = device

    def prepare(self, case: Any, inputs: Sequence[np.ndarray], small: bool) -> Callable[[], Any]:
        """Return a call of the module's `main`.

        Raises:
            TypeError: For a torch module, which TVM's pipeline does not take.
        """
        source, _ = case.source(small)
        if not isinstance(source, tvm.IRModule):
            raise TypeError("takes modules of one operator only")
        target = resolve_target({"kind": "cuda", "arch": self._device.arch}, 1)
        with target:
            executable = tvm.compile(source, target=target)
        main = relax.VirtualMachine(executable, self._device.handle)["main"]
        tensors = [tvm.runtime.tensor(x, self._device.handle) for x in inputs]
        return lambda: main(*tensors)

    def array(self, result: Any) -> np.ndarray:
        """Return the result, which is a TVM tensor."""
        return result.numpy()


class TorchEngine:
    """torch as it is: cuBLAS, cuDNN and its own kernels."""

    name = "torch"

    def prepare(self, case: Any, inputs: Sequence[np.ndarray], small: bool) -> Callable[[], Any]:
        """Return a call of the case's function."""
        import torch

        function = self.compiled(case.function())
        tensors = [torch.from_numpy(np.ascontiguousarray(x)).cuda() for x in inputs]

        def call() -> Any:
            with torch.inference_mode():
                return function(*tensors)

        return call

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as it is."""
        return function

    def array(self, result: Any) -> np.ndarray:
        """Return the result, which is a torch tensor."""
        return result.cpu().numpy()


class TorchCompileEngine(TorchEngine):
    """torch.compile with CUDA graphs, as relaxc has them."""

    name = "torch.compile"

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function compiled by Inductor."""
        import torch

        return torch.compile(function, mode="reduce-overhead", dynamic=False)
