"""Walk an ONNX graph in order and build the Relax function `main`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnx
import tvm
from tvm import relax

from frontends.dataflow_blocks import to_dataflow
from frontends.dims import DimArithmetic, dim_name
from frontends.errors import RelaxcError, UnsupportedOperator
from frontends.imported_model import ImportedModel, TensorSpec
from frontends.onnx.declared_outputs import contradiction
from frontends.onnx.graph_builder import GraphBuilder, Scope
from frontends.onnx.initializers import read_initializers
from frontends.onnx.load_model import load_model
from frontends.onnx.paused_collection import paused_collection
from frontends.onnx.registry import normalize_domain
from frontends.onnx.sequence_inputs import GraphInputs
from frontends.onnx.support import check_support
from frontends.onnx.symbols import DynamicShapes, InputShapes, sanitize
from frontends.onnx.value import EmptyOptional, SequenceValue, Value
from frontends.size_bounds import promise
from frontends.storage_types import container

# Element types of inputs: of no tensor, or of none that is computed with.
_REFUSED = frozenset(
    getattr(onnx.TensorProto, name) for name in ("UNDEFINED", "STRING", "COMPLEX64", "COMPLEX128")
)


@paused_collection()
def import_onnx(
    source: str | Path | bytes | onnx.ModelProto, *, dynamic_shapes: DynamicShapes | None = None
) -> ImportedModel:
    """Import an ONNX model as a Relax graph.

    Args:
        source: A path, a file's bytes, or a model. External data is read from the path's folder.
        dynamic_shapes: Overrides for input dimensions by input name and axis: a string makes the
            dimension symbolic under that name (`"batch<=32"`: and at most 32), an integer fixes it,
            for example `{"x": {0: "batch", 2: 224}}`. The elements of an input of sequence type are
            inputs called `x[0]`, `x[1]`, ...: naming them states their number. What is said of one
            dimension with a `dim_param` holds for every use of that `dim_param`.

    Returns:
        The graph: parameters are the model's inputs (those without default), in order; weights are
        constants, each embedded once.

    Raises:
        InvalidInput: `dynamic_shapes` does not fit the model's inputs.
        InvalidModel: the model is missing, unreadable, malformed or contradicts itself.
        UnsupportedOperator: it uses operators that have neither a converter nor a function body
            (all are listed), or a variant that is not handled.
    """
    model, file = load_model(source)
    opsets = {normalize_domain(opset.domain): opset.version for opset in model.opset_import}
    check_support(model, opsets, file)
    arithmetic = DimArithmetic()
    constants = read_initializers(model.graph, file)
    declared = [value for value in model.graph.input if value.name not in constants]
    given = GraphInputs(declared, dynamic_shapes, file)
    inputs = given.tensors
    shapes = InputShapes(inputs, given.dynamic_shapes, arithmetic, file)
    parameters: list[relax.Var] = []
    specs: list[TensorSpec] = []
    taken: set[str] = set()
    for value in inputs:
        dtype = _dtype(value, file)
        shape = shapes.shape_of(value)
        name = sanitize(value.name)
        while name in taken:
            name += "_"
        taken.add(name)
        parameters.append(relax.Var(name, relax.TensorType(shape, container(dtype))))
        specs.append(TensorSpec(value.name, tuple(dim_name(dim) for dim in shape), dtype))
    block = relax.BlockBuilder()
    builder = GraphBuilder(block, arithmetic, shapes, model, opsets, file)
    scope: Scope = dict(constants)
    tensors = {
        value.name: Value(value.name, spec.dtype, expr=parameter)
        for value, parameter, spec in zip(inputs, parameters, specs, strict=True)
    }
    scope.update(given.join(tensors))
    notes = builder.notes
    with block.function("main", parameters):
        failure: RelaxcError | None = None
        try:
            builder.run(model.graph.node, scope)
            results = [scope[output.name] for output in model.graph.output]
            for output, result in zip(model.graph.output, results, strict=True):
                found = contradiction(output, result, file)
                if found and not dynamic_shapes:  # which are given to change what the file says
                    notes.append((output.name, found))
            named = _named_tensors(model.graph.output, results)
            exprs = [builder.expression(result) for _, result in named]
        except RelaxcError as error:
            # The blocks are closed before it is raised; Relax prints warnings otherwise.
            failure, exprs = error, [relax.const(0)]
        returned = exprs[0] if len(exprs) == 1 else relax.Tuple(exprs)
        if not isinstance(returned, relax.Var):
            single = failure is None and len(exprs) == 1
            returned = block.emit(returned, sanitize(named[0][0]) if single else "outputs")
        block.emit_func_output(returned)
    if failure is not None:
        blamed = shapes.blame(failure, lambda: import_onnx(source))
        if blamed is failure:
            raise failure  # with what caused it
        raise blamed from failure
    outputs = tuple(
        TensorSpec(name, tuple(dim_name(dim) for dim in result.shape), result.dtype)
        for name, result in named
    )
    module = promise(_finish(block.get()), shapes.upper_bounds)
    return ImportedModel(module, tuple(specs), outputs, file, tuple(notes))


def _named_tensors(
    declared: Iterable[onnx.ValueInfoProto], results: Iterable[Value]
) -> list[tuple[str, Value]]:
    """Return the tensors that are returned; an element of a sequence is called `name[place]`."""
    named = []
    for output, result in zip(declared, results, strict=True):
        if isinstance(result, SequenceValue):
            named += [(f"{output.name}[{n}]", item) for n, item in enumerate(result.items)]
        elif isinstance(result, EmptyOptional):
            raise UnsupportedOperator("the output is an optional without element, which has no "
                                      "tensor to return", tensor=output.name)  # fmt: skip
        else:
            named.append((output.name, result))
    return named


def _finish(module: tvm.IRModule) -> tvm.IRModule:
    """Drop what nothing reads, and put what lies between branches and loops into dataflow blocks.

    Values known while importing leave unused bindings behind.
    """
    return to_dataflow(relax.transform.DeadCodeElimination(["main"])(module))


def _dtype(value: onnx.ValueInfoProto, file: str) -> str:
    kind = value.type.tensor_type.elem_type
    if kind in _REFUSED:
        raise UnsupportedOperator(
            "an input of this element type is not supported: "
            + onnx.TensorProto.DataType.Name(kind),
            tensor=value.name,
            file=file,
        )
    return str(onnx.helper.tensor_dtype_to_np_dtype(kind))
