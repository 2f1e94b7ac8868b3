"""The engines relaxc is measured against, behind one small interface.

Each peer is optional: `prepare` raises `ImportError` where its package is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Feeds = Mapping[str, np.ndarray]


class Peer(Protocol):
    """An engine that runs a model from an ONNX file."""

    name: str

    def prepare(self, model_path: str | Path, threads: int) -> None:
        """Load or compile the model for `threads` threads.

        Raises:
            ImportError: If the engine is not installed.
        """

    def run(self, inputs: Feeds) -> list[np.ndarray]:
        """Run once on inputs by name; return the outputs in the model's order."""


class RelaxcPeer:
    """relaxc itself."""

    name = "relaxc"

    def __init__(self, model: Any = None) -> None:
        """Take a model that is compiled already, or compile one in `prepare`."""
        self._model = model

    @property
    def model(self) -> Any:
        """The `CompiledModel`."""
        return self._model

    def prepare(self, model_path: str | Path, threads: int) -> None:
        """Compile the model unless one was given."""
        import relaxc

        if self._model is None:
            self._model = relaxc.compile(model_path, threads=threads)

    def run(self, inputs: Feeds) -> list[np.ndarray]:
        """Run the compiled model."""
        result = self._model(**inputs)
        return list(result) if isinstance(result, tuple) else [result]


class OnnxRuntimePeer:
    """ONNX Runtime's CPU provider with all graph optimizations."""

    name = "onnxruntime"

    def prepare(self, model_path: str | Path, threads: int) -> None:
        """Create a session."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            str(model_path), options, providers=["CPUExecutionProvider"]
        )

    def run(self, inputs: Feeds) -> list[np.ndarray]:
        """Run the session."""
        return [np.asarray(value) for value in self._session.run(None, dict(inputs))]


class OpenVinoPeer:
    """OpenVINO's CPU plugin, latency mode, float32 arithmetic."""

    name = "openvino"

    def prepare(self, model_path: str | Path, threads: int) -> None:
        """Read and compile the model."""
        import openvino

        config = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",  # it may choose bf16 by itself
        }
        core = openvino.Core()
        self._model = core.compile_model(core.read_model(str(model_path)), "CPU", config)
        self._request = self._model.create_infer_request()

    def run(self, inputs: Feeds) -> list[np.ndarray]:
        """Run one infer request."""
        results = self._request.infer(dict(inputs), share_inputs=True, share_outputs=True)
        return [np.asarray(results[output]) for output in self._model.outputs]


class InductorPeer:
    """TorchInductor with freezing, on the PyTorch module that the ONNX file was exported from."""

    name = "inductor"

    def __init__(
        self, module: Any = None, bind: Callable[[Feeds], tuple[tuple, dict]] | None = None
    ) -> None:
        """Take the module, and how the ONNX inputs become its arguments.

        Args:
            module: A `torch.nn.Module` in eval mode; an ONNX file alone cannot be run by Inductor.
            bind: Inputs by name to positional and keyword arguments of torch tensors; by default
                all of them in order, as positional arguments.
        """
        self._module, self._bind = module, bind

    def prepare(self, model_path: str | Path, threads: int) -> None:
        """Wrap the module; Inductor compiles it at the first run.

        Raises:
            ImportError: If torch is not installed.
            ValueError: If there is no module to compile.
        """
        import torch

        if self._module is None:
            raise ValueError("inductor compiles PyTorch modules, not ONNX files")
        torch.set_num_threads(threads)
        options = {"freezing": True}
        self._compiled = torch.compile(self._module, backend="inductor", options=options)

    def run(self, inputs: Feeds) -> list[np.ndarray]:
        """Run the compiled module."""
        import torch

        if self._bind is not None:
            args, kwargs = self._bind(inputs)
        else:
            args, kwargs = tuple(torch.from_numpy(value) for value in inputs.values()), {}
        with torch.no_grad():
            return [tensor.numpy() for tensor in flatten_tensors(self._compiled(*args, **kwargs))]


class TvmDefaultPeer:
    """TVM's default CPU pipeline, on the graph that its own ONNX importer makes.

    Where that importer refuses a model, the graph comes from our importer, so that the pipelines
    can still be compared; `imported_by` tells which of the two it was.
    """

    name = "tvm"
    imported_by = "tvm"

    def prepare(self, model_path: str | Path, threads: int) -> None:
        """Remember the model; the first run compiles it for the shapes of its inputs."""
        self._path, self._threads = str(model_path), threads
        self._main: Any = None

    def run(self, inputs: Feeds) -> list[np.ndarray]:
        """Run TVM's virtual machine."""
        import tvm

        from relaxc.thread_pool import use_threads

        if self._main is None:
            self._compile({name: list(value.shape) for name, value in inputs.items()})
        use_threads(self._threads)
        result = self._main(*(tvm.runtime.tensor(value) for value in inputs.values()))
        tensors = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return [tensor.numpy() for tensor in tensors]

    def _compile(self, shapes: dict[str, list[int]]) -> None:
        import onnx
        import tvm
        from tvm import relax
        from tvm.relax.frontend.onnx import from_onnx

        from frontends.onnx import import_onnx
        from tir_schedules.machine import host_target

        try:
            module = from_onnx(onnx.load(self._path), shape_dict=shapes, keep_params_in_input=False)
        except Exception:  # it fails with whatever its converters run into
            fixed = {name: dict(enumerate(shape)) for name, shape in shapes.items()}
            module = import_onnx(self._path, dynamic_shapes=fixed).module
            self.imported_by = "relaxc"
        executable = tvm.compile(module, target=host_target(self._threads))
        # The function does not keep its machine alive.
        self._machine = relax.VirtualMachine(executable, tvm.cpu())
        self._main = self._machine["main"]


PEERS: dict[str, Callable[[], Peer]] = {
    "onnxruntime": OnnxRuntimePeer,
    "openvino": OpenVinoPeer,
    "inductor": InductorPeer,
    "tvm": TvmDefaultPeer,
}


def flatten_tensors(value: Any) -> list[Any]:
    """Return the tensors in nested tuples, lists, dicts and model outputs, in order."""
    if value is None:
        return []
    if hasattr(value, "to_tuple"):  # a Hugging Face ModelOutput
        value = value.to_tuple()
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, tuple | list):
        return [value]
    return [tensor for item in value for tensor in flatten_tensors(item)]
