"""Compiled graphs on disk, by what they are compiled from."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from relaxc.artifact import load
from relaxc.compatibility import installed_tvm_version
from relaxc.compiled_model import CompiledModel
from relaxc.errors import RelaxcError
from relaxc.targets import resolve_target, target_dict
from relaxc.thread_pool import available_cores
from relaxc.torch_compile.options import BackendOptions

LOG = logging.getLogger("relaxc.torch_compile")


class GraphCache:
    """A folder of compiled graphs; without a folder it keeps and finds nothing.

    A key covers the graph with the dtypes, shapes and strides of its arguments, the values of what
    is constant in it, every option, the target, and the versions of relaxc, TVM and torch. Weights
    that are arguments are not part of it.
    """

    def __init__(self, options: BackendOptions) -> None:
        """Use the folder that the options name, or the environment's RELAXC_TORCH_CACHE."""
        folder = options.cache_dir or os.environ.get("RELAXC_TORCH_CACHE")
        # A pipeline is code: nothing says that two of them do the same.
        self._folder = Path(folder) if folder and options.passes is None else None
        self._options = options

    def key(
        self,
        graph: torch.fx.GraphModule,
        constants: Mapping[int, torch.Tensor],
        fixed: Sequence[int],
    ) -> str:
        """Return the key of a graph, "" if nothing is kept; `fixed` are places of parameters."""
        if self._folder is None:
            return ""
        digest = hashlib.sha256()
        settings = {**self._settings(), "fixed": list(fixed)}
        for part in (_graph_text(graph), json.dumps(settings, sort_keys=True, default=str)):
            digest.update(part.encode())
        for place, tensor in sorted(constants.items()):
            digest.update(f"constant {place}".encode())
            _add_tensor(digest, tensor)
        for name, tensor in sorted(_own_tensors(graph)):
            digest.update(name.encode())
            _add_tensor(digest, tensor)
        return digest.hexdigest()

    def load(self, key: str) -> CompiledModel | None:
        """Return the compiled graph of a key; None if there is none that this machine can run."""
        path = self._path(key)
        if path is None or not path.exists():
            return None
        try:
            return load(path)
        except RelaxcError as fault:
            LOG.info("relaxc compiles a cached graph anew: %s", fault)
            return None

    def save(self, key: str, model: CompiledModel) -> None:
        """Keep a compiled graph; a folder that cannot be written is reported, not raised."""
        path = self._path(key)
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            model.save(path)
        except (OSError, RelaxcError) as fault:
            LOG.warning("relaxc cannot keep a compiled graph: %s", fault)

    def _path(self, key: str) -> Path | None:
        return self._folder / f"{key}.so" if self._folder is not None and key else None

    def _settings(self) -> dict[str, Any]:
        import relaxc

        options = self._options
        threads = options.threads or available_cores()
        return {
            "target": target_dict(resolve_target(options.target, threads)),
            "precision": options.precision,
            "threads": threads,
            "debug": options.debug,
            "versions": [relaxc.__version__, installed_tvm_version(), torch.__version__],
        }


def _graph_text(graph: torch.fx.GraphModule) -> str:
    """Return the graph's operators, arguments and types as text, its nodes numbered in order.

    Graphs that operators hold, the branches of a `torch.cond`, follow in the order of their names.
    """
    numbers = {node: number for number, node in enumerate(graph.graph.nodes)}
    lines = []
    for node, number in numbers.items():
        args = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: f"%{numbers[n]}")
        target = _target_text(node.target) if node.op in ("call_function", "get_attr") else node.op
        lines.append(f"%{number} = {target}{args}: {_type_text(node.meta.get('val'))}")
    for name, inner in sorted(graph.named_children()):
        if isinstance(inner, torch.fx.GraphModule):
            lines += [f"graph {name}", _graph_text(inner)]
    return "\n".join(lines)


def _target_text(target: Any) -> str:
    """Return the name of an operator; a Python function prints its address, which changes."""
    if inspect.isfunction(target):
        return f"{target.__module__}.{target.__qualname__}"
    return str(target)


def _type_text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{list(value.shape)}{list(value.stride())} on {value.device}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_type_text, value))})"
    return f"{type(value).__name__} {value}"


def _own_tensors(graph: torch.fx.GraphModule) -> list[tuple[str, torch.Tensor]]:
    held = [*graph.named_parameters(), *graph.named_buffers()]
    known = {name for name, _ in held}
    plain = [(n, v) for n, v in vars(graph).items() if isinstance(v, torch.Tensor)]
    return [*held, *((name, value) for name, value in plain if name not in known)]


def _add_tensor(digest: Any, tensor: torch.Tensor) -> None:
    data = tensor.detach().cpu().contiguous()
    digest.update(f"{data.dtype}{list(data.shape)}".encode())
    digest.update(data.reshape(-1).view(torch.uint8).numpy().tobytes() if data.numel() else b"")
