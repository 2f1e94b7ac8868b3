"""Read and check an ONNX model: whatever is wrong with the file is an `InvalidModel` here.

The order matters: what one step checks, the next ones rely on. Functions that call themselves would
overflow the stack of onnx's own checker, and unchecked sizes would be allocated by it.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from frontends.errors import InvalidModel, UnsupportedOperator
from frontends.onnx.attribute_ranges import check_ranges
from frontends.onnx.check_graph import check_graph
from frontends.onnx.check_tensors import check_tensors
from frontends.onnx.einsum_equation import check_equations
from frontends.onnx.external_data import load_external_data
from frontends.onnx.registry import normalize_domain
from frontends.onnx.subgraphs import all_nodes, parts_of, subgraphs_of

__all__ = ["load_model", "subgraphs_of"]

# Where onnx's checker takes any operator; the nodes that are converted keep their own domain.
FOREIGN = "com.microsoft"


def load_model(source: str | Path | bytes | onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    """Return the checked model, and the name to call it by in errors.

    External data is checked and loaded, but for the main graph's weights (`external_data`).

    Args:
        source: A path, the bytes of a file, or a model; a given model is not modified.

    Raises:
        InvalidModel: the file is missing, is no ONNX model, is truncated, refers to external data
            that is missing, short or outside the model's folder, or its graph is malformed
            (dangling inputs, cycles, duplicate names, wrong attributes, contradicting types).
        UnsupportedOperator: it is written for an opset newer than the installed onnx package.
    """
    if isinstance(source, onnx.ModelProto):
        model, name, folder = source, source.graph.name or "<model>", None
    elif isinstance(source, bytes):
        model, name, folder = _parse(source, "<bytes>"), "<bytes>", None
    elif isinstance(source, (str, Path)):
        path = Path(source)
        name, folder = str(path), path.parent
        model = _parse(_read(path), name)
    else:
        raise InvalidModel(f"expected a path, bytes or ModelProto, got {type(source).__name__}")
    if not model.HasField("graph") or not model.opset_import:
        raise InvalidModel("not an ONNX model: it has no graph or no opset", file=name)
    if not model.graph.output:
        raise InvalidModel("the graph has no outputs", file=name)
    parts = parts_of(model)
    check_graph(model, parts, name)
    _check_opsets(model, name)
    load_external_data(parts, folder, name)
    check_tensors(parts, name)
    check_equations(parts.bodies[0], name)
    check_ranges(parts.bodies[0], name)
    _check_schema(model, name)
    return model, name


def _read(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():  # a pipe or a device might never end
            raise InvalidModel("cannot read the file: not a regular file", file=str(path))
        return path.read_bytes()
    except FileNotFoundError:
        raise InvalidModel("no such file", file=str(path)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidModel(f"cannot read the file: {reason}", file=str(path)) from error


def _parse(data: bytes, name: str) -> onnx.ModelProto:
    if not data:
        raise InvalidModel("the file is empty", file=name)
    try:
        return onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise InvalidModel(
            "not an ONNX model, or a truncated one: its protobuf does not parse", file=name
        ) from error


def _check_opsets(model: onnx.ModelProto, file: str) -> None:
    """Check that the versions exist: an operator of a newer one may mean something else."""
    versions: dict[str, int] = {}
    for opset in model.opset_import:
        domain = normalize_domain(opset.domain)
        if versions.setdefault(domain, opset.version) != opset.version:
            raise InvalidModel(
                f"two versions of domain {domain or 'ai.onnx'!r} are imported", file=file
            )
        if opset.version < 1:
            raise InvalidModel(f"opset {opset.version} does not exist", file=file)
    newest = onnx.defs.onnx_opset_version()
    if versions.get("", 1) > newest:
        raise UnsupportedOperator(
            f"the model is written for opset {versions['']}, the newest one known is {newest}",
            file=file,
        )


def _move_foreign(skeleton: onnx.ModelProto) -> None:
    """Move operators that exporters write into ONNX's domain to one without schemas.

    SimplifiedLayerNormalization is one, and so are versions that were deprecated after models had
    been written with them, such as GroupNormalization of opset 18: ONNX Runtime takes both, onnx's
    checker does not. What nobody knows is listed later, with all else that is unsupported.
    """
    foreign = []
    for holder in (skeleton, *skeleton.functions):
        nodes = skeleton.graph.node if holder is skeleton else holder.node
        versions = {normalize_domain(opset.domain): opset.version for opset in holder.opset_import}
        foreign += [
            node for node in all_nodes(nodes)
            if normalize_domain(node.domain) == ""
            and not _has_schema(node.op_type, versions.get("", 1))
        ]  # fmt: skip
    if not foreign:
        return
    for node in foreign:
        node.domain = FOREIGN
    for holder in (skeleton, *skeleton.functions):
        if all(opset.domain != FOREIGN for opset in holder.opset_import):
            holder.opset_import.append(onnx.helper.make_opsetid(FOREIGN, 1))


def _has_schema(name: str, opset: int) -> bool:
    """Tell whether onnx's checker takes an operator; it refuses deprecated versions."""
    if not onnx.defs.has(name):
        return False
    try:
        return not onnx.defs.get_schema(name, opset, "").deprecated
    except onnx.defs.SchemaError:
        return True  # newer than the opset: the checker says so


def _check_functions_of_other_versions(skeleton: onnx.ModelProto) -> None:
    """Check functions that import other opsets than the model, and take them out of it.

    A function's operators mean what its own opsets say. onnx's checker refuses it in a model of
    another one where the operator has changed since, ONNX Runtime does not.
    """
    versions = {normalize_domain(opset.domain): opset.version for opset in skeleton.opset_import}
    for place, function in reversed(list(enumerate(skeleton.functions))):
        own = {normalize_domain(opset.domain): opset.version for opset in function.opset_import}
        if all(versions.get(domain, version) == version for domain, version in own.items()):
            continue
        context = onnx.checker.C.CheckerContext()
        context.ir_version, context.opset_imports = skeleton.ir_version, own
        onnx.checker.check_function(function, context, onnx.checker.C.LexicalScopeContext())
        del skeleton.functions[place]


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
    dense = [(tensor.name, tensor.data_type, tensor.dims) for tensor in model.graph.initializer]
    # Operators take sparse initializers as the dense tensors they stand for.
    sparse = [(s.values.name, s.values.data_type, s.dims) for s in model.graph.sparse_initializer]
    graph.input.extend(
        onnx.helper.make_tensor_value_info(name, kind, dims)
        for name, kind, dims in [*dense, *sparse]
        if name not in given
    )
    _move_foreign(skeleton)
    try:
        _check_functions_of_other_versions(skeleton)
        onnx.checker.check_model(skeleton)
    except Exception as error:  # noqa: BLE001 - ValidationError, and whatever its C++ throws
        raise InvalidModel(
            f"onnx's checker refuses the model: {str(error).strip()}", file=file
        ) from error
    # Inference takes time quadratic in the number of functions; what is inside of them is checked
    # where it is expanded.
    del skeleton.functions[:]
    for output in graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    try:
        onnx.shape_inference.infer_shapes(skeleton, check_type=True, strict_mode=False)
    except Exception as error:  # noqa: BLE001 - InferenceError, and whatever its C++ throws
        raise InvalidModel(
            f"types contradict each other: {str(error).strip()}", file=file
        ) from error
