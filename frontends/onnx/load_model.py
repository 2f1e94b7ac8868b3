"""Read and check an ONNX model: whatever is wrong with the file is an `InvalidModel` here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import external_data_helper

from frontends.errors import InvalidModel


def load_model(source: str | Path | bytes | onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    """Return the checked model, external data loaded, and the name to call it by in errors.

    Args:
        source: A path, the bytes of a file, or a model; a given model is not modified.

    Raises:
        InvalidModel: the file is missing, is no ONNX model, is truncated, refers to external data
            that is missing, short or outside the model's folder, or its graph is malformed
            (dangling inputs, cycles, duplicate names, wrong attributes, contradicting types).
    """
    if isinstance(source, onnx.ModelProto):
        model, name, folder = source, source.graph.name or "<model>", None
    elif isinstance(source, bytes):
        model, name, folder = _parse(source, "<bytes>"), "<bytes>", None
    elif isinstance(source, (str, Path)):
        path = Path(source)
        name, folder = str(path), path.parent
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise InvalidModel("no such file", file=name) from None
        except OSError as error:
            raise InvalidModel(f"cannot read the file: {error.strerror}", file=name) from error
        model = _parse(data, name)
    else:
        raise InvalidModel(f"expected a path, bytes or ModelProto, got {type(source).__name__}")
    if not model.graph.node and not model.graph.output:
        raise InvalidModel("the model has no graph", file=name)
    _load_external_data(model, folder, name)
    _check_names(model.graph, set(), name)
    _check_schema(model, name)
    return model, name


def _parse(data: bytes, name: str) -> onnx.ModelProto:
    if not data:
        raise InvalidModel("the file is empty", file=name)
    try:
        model = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise InvalidModel(
            "not an ONNX model, or a truncated one: its protobuf does not parse", file=name
        ) from error
    if not model.HasField("graph") or not model.opset_import:
        raise InvalidModel("not an ONNX model: it has no graph or no opset", file=name)
    return model


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor of a graph: initializers and attributes, subgraphs included."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for subgraph in subgraphs_of(attribute):
                yield from _tensors(subgraph)


def subgraphs_of(attribute: onnx.AttributeProto) -> Iterable[onnx.GraphProto]:
    """Return the graphs an attribute holds."""
    return ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs)


def _load_external_data(model: onnx.ModelProto, folder: Path | None, name: str) -> None:
    for tensor in _tensors(model.graph):
        if not external_data_helper.uses_external_data(tensor):
            continue
        if folder is None:
            raise InvalidModel(
                "its data is external, and a model given as object or bytes has no folder",
                tensor=tensor.name,
                file=name,
            )
        info = external_data_helper.ExternalDataInfo(tensor)
        root = folder.resolve()
        place = (root / info.location).resolve()
        if Path(info.location).is_absolute() or not place.is_relative_to(root):
            raise InvalidModel(
                f"external data {info.location!r} lies outside the model's folder",
                tensor=tensor.name,
                file=name,
            )
        if not place.is_file():
            raise InvalidModel(
                f"external data {info.location!r} is missing", tensor=tensor.name, file=name
            )
        end = (info.offset or 0) + (info.length or 0)
        if end > place.stat().st_size:
            raise InvalidModel(
                f"external data {info.location!r} is too short: {place.stat().st_size} bytes, "
                f"{end} needed",
                tensor=tensor.name,
                file=name,
            )
        with place.open("rb") as stream:
            stream.seek(info.offset or 0)
            tensor.raw_data = stream.read(info.length if info.length else -1)
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _check_names(graph: onnx.GraphProto, outer: set[str], file: str) -> None:
    """Check that every name is defined once and before it is used (ONNX spec: SSA, sorted)."""
    known = set(outer)
    own: set[str] = set()

    def define(name: str, node: str | None) -> None:
        if name in own:
            raise InvalidModel("the name is defined twice", node=node, tensor=name, file=file)
        own.add(name)
        known.add(name)

    for value in graph.input:
        define(value.name, None)
    seen: set[str] = set()
    for tensor in [*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)]:
        if tensor.name in seen:
            raise InvalidModel("two initializers have this name", tensor=tensor.name, file=file)
        seen.add(tensor.name)
        own.add(tensor.name)
        known.add(tensor.name)
    later = {output for node in graph.node for output in node.output}
    for node in graph.node:
        title = node.name or (node.output[0] if node.output else node.op_type)
        for used in node.input:
            if used and used not in known:
                reason = (
                    "the graph has a cycle or is not in topological order: an input is computed "
                    "only later"
                    if used in later
                    else "an input is defined nowhere"
                )
                raise InvalidModel(reason, node=title, tensor=used, file=file)
        for attribute in node.attribute:
            for subgraph in subgraphs_of(attribute):
                _check_names(subgraph, known, file)
        for output in node.output:
            if output:
                define(output, title)
    for value in graph.output:
        if value.name not in known:
            raise InvalidModel("an output is defined nowhere", tensor=value.name, file=file)


def _check_schema(model: onnx.ModelProto, file: str) -> None:
    """Run onnx's checker and type inference on the model without its weights.

    Shapes that a file declares are dropped first: ONNX Runtime only warns where they contradict
    the inferred ones, and the importer computes its own.
    """
    skeleton = onnx.ModelProto(ir_version=max(model.ir_version, 4))
    skeleton.opset_import.extend(model.opset_import)
    skeleton.functions.extend(model.functions)
    graph = skeleton.graph
    graph.name = model.graph.name or "graph"
    graph.node.extend(model.graph.node)
    graph.input.extend(model.graph.input)
    # The checker insists on output shapes and a graph name, ONNX Runtime does not.
    graph.output.extend(
        output for output in model.graph.output if output.type.tensor_type.HasField("shape")
    )
    given = {value.name for value in graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in given:
            graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    for sparse in model.graph.sparse_initializer:
        graph.sparse_initializer.append(sparse)
    try:
        onnx.checker.check_model(skeleton)
    except onnx.checker.ValidationError as error:
        raise InvalidModel(
            f"onnx's checker refuses the model: {str(error).strip()}", file=file
        ) from error
    for output in graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    try:
        onnx.shape_inference.infer_shapes(skeleton, check_type=True, strict_mode=False)
    except onnx.shape_inference.InferenceError as error:
        raise InvalidModel(
            f"types contradict each other: {str(error).strip()}", file=file
        ) from error
