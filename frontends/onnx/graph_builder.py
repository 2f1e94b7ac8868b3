"""Turn nodes into Relax bindings: fold what is known, convert the rest, expand functions."""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from tvm import relax, te, tirx

from frontends.control_flow.function_builder import FunctionBuilder
from frontends.control_flow.private_function import Frame, PrivateFunction
from frontends.dims import Dim, DimArithmetic, dtype_of, is_static, prim
from frontends.errors import InvalidModel, RelaxcError, UnsupportedOperator
from frontends.onnx import fold, shape_values
from frontends.onnx.attribute_choices import check_choices
from frontends.onnx.broadcasting import Broadcasting
from frontends.onnx.captured_scope import CapturedScope
from frontends.onnx.einsum_equation import check_equation
from frontends.onnx.function_body import FunctionBody, instantiate, schema_function
from frontends.onnx.initializers import read_initializers
from frontends.onnx.load_model import subgraphs_of
from frontends.onnx.node_fault import fault_of
from frontends.onnx.op import Op, numpy_dtype
from frontends.onnx.operand_sizes import agreeing, shared_sizes
from frontends.onnx.ratio import Ratio
from frontends.onnx.refused_operands import refuse_operands
from frontends.onnx.registry import find_converter, normalize_domain, refusal
from frontends.onnx.stored_types import check_stored_inputs, name_stored_results
from frontends.onnx.symbols import MOST_ELEMENTS, InputShapes, sanitize
from frontends.onnx.value import Value, relax_constant, shared_array, tensors_of
from frontends.size_statements import state
from frontends.storage_types import container

Scope = MutableMapping[str, Value]


class GraphBuilder:
    """Builds the bindings of one function from ONNX nodes, in time linear in their number."""

    def __init__(
        self,
        block: relax.BlockBuilder,
        arithmetic: DimArithmetic,
        shapes: InputShapes,
        model: onnx.ModelProto,
        opsets: dict[str, int],
        file: str,
    ) -> None:
        self.arithmetic = arithmetic
        self._block, self._shapes, self._opsets, self._file = block, shapes, opsets, file
        self._functions = {
            (normalize_domain(f.domain), f.name, f.overload): f for f in model.functions
        }
        self._scope: Scope = {}
        self._home: Frame | None = None  # the function that the names in the scope are of
        self.functions = FunctionBuilder(block, arithmetic, shapes.known, shapes.fresh)
        self.sizes = Broadcasting(self)
        self.notes: list[tuple[str, str]] = []  # a tensor, and what was declined of it
        self._read: dict[int, tuple[onnx.GraphProto, dict[str, Value]]] = {}

    # Nodes ------------------------------------------------------------------------------------

    def run(self, nodes: Iterable[onnx.NodeProto], scope: Scope) -> None:
        """Convert `nodes`, which are sorted topologically; their outputs are put into `scope`."""
        outer, self._scope = self._scope, scope
        try:
            for node in nodes:
                inputs = [scope[name] if name else None for name in node.input]
                values = self._convert(node, inputs)
                for place, name in enumerate(node.output):
                    if name:
                        given = place < len(values)
                        # What an operator leaves out is refused where it is read.
                        scope[name] = values[place] if given else Value(name, "float32")
        finally:
            self._scope = outer

    def run_subgraph(self, graph: onnx.GraphProto, inputs: Sequence[Value] = ()) -> list[Value]:
        """Convert a graph where it stands, its inputs given; return its outputs."""
        scope: Scope = ChainMap({}, self._scope)
        scope.update(self._initializers(graph))
        for declared, value in zip(graph.input, inputs, strict=True):
            scope[declared.name] = value
        self.run(graph.node, scope)
        return [scope[output.name] for output in graph.output]

    def _initializers(self, graph: onnx.GraphProto) -> dict[str, Value]:
        """Return a subgraph's initializers: the same ones each time its body is converted."""
        key = id(graph)
        if key not in self._read:
            self._read[key] = (graph, read_initializers(graph, self._file))
        return self._read[key][1]

    def lookup(self, name: str) -> Value:
        """Return the value that a name stands for in the function that is being built."""
        return self._scope[name]

    def bind(self, name: str, value: Value) -> None:
        """Let a name stand for a value from here on, in the subgraphs that follow as well."""
        self._scope[name] = value

    # Functions of their own -------------------------------------------------------------------

    def define_function(self, hint: str, run: Callable[[], list[Value]]) -> PrivateFunction:
        """Build a private function; `run` converts its body and returns its results."""

        def body() -> tuple[list[Value], list[relax.Expr]]:
            with self.function_scope():
                results = run()
            return results, [self.expression(result) for result in tensors_of(results)]

        return self.functions.define(sanitize(hint), body)

    @contextmanager
    def function_scope(self) -> Iterator[None]:
        """Let names stand for what the private function being built reads of its outside."""
        frame = self.functions.frame
        if frame is None or frame is self._home:
            yield
            return
        outer = self._scope, self._home
        self._scope, self._home = CapturedScope(self._scope, frame), frame
        try:
            yield
        finally:
            self._scope, self._home = outer

    # Conversion -------------------------------------------------------------------------------

    def _convert(self, node: onnx.NodeProto, inputs: Sequence[Value | None]) -> list[Value]:
        domain = normalize_domain(node.domain)
        opset = self._opsets.get(domain, 1)
        try:
            values = self._convert_any(node, domain, opset, inputs)
            _check_sizes(values)
        except (InvalidModel, UnsupportedOperator) as error:
            if error.node is not None:
                raise
            raise type(error)(
                f"{error.message}; {self._describe(node, opset, inputs)}",
                node=_title(node),
                tensor=error.tensor,
                file=self._file,
            ) from error
        except RelaxcError:
            raise
        except Exception as error:  # a converter may raise anything; `fault_of` tells whose fault
            fault = fault_of(error)
            if fault is None:
                raise
            kind, reason = fault
            told = f"{reason}; {self._describe(node, opset, inputs)}"
            raise kind(told, node=_title(node), file=self._file) from error
        given = [value for value in inputs if value is not None]
        bodies = any(subgraphs_of(attribute) for attribute in node.attribute)
        of_sizes = bool(given) and not bodies and all(v.depends_on_sizes_only for v in given)
        for name, value in zip(node.output, values, strict=False):
            value.of_sizes = value.of_sizes or of_sizes
            if name and not value.name:
                value.name = name
        return values

    def _convert_any(
        self, node: onnx.NodeProto, domain: str, opset: int, inputs: Sequence[Value | None]
    ) -> list[Value]:
        function = self._functions.get((domain, node.op_type, node.overload))
        if function is not None:
            return self.expand(instantiate(function, node), inputs)
        check_choices(node)
        check_equation(node)
        given = [value for value in inputs if value is not None]
        if given and fold.can_fold(node) and all(value.array is not None for value in given):
            if not any(subgraphs_of(attribute) for attribute in node.attribute):
                arrays = [value.array if value is not None else None for value in inputs]
                folded = fold.fold(node, arrays, opset)
                if folded is not None:
                    pairs = zip(node.output, folded, strict=True)
                    return [Value.constant(name, array) for name, array in pairs]
        if any(value.symbolic is not None for value in given):
            symbolic = shape_values.evaluate(node, inputs, self.arithmetic)
            if symbolic is not None:
                return [symbolic]
        convert = find_converter(domain, node.op_type, opset)
        if convert is not None:
            check_stored_inputs(node, given)
            results = self._bind(node, convert(Op(self, node, opset, inputs)))
            name_stored_results(node, given, results)
            return results
        body = schema_function(node, opset, [_type_proto(value) for value in inputs])
        if body is None:
            why = refusal(domain, node.op_type)
            raise UnsupportedOperator(
                f"operator {node.op_type} is not supported" + (f": {why}" if why else "")
            )
        return self.expand(body, inputs)

    def expand(self, body: FunctionBody, inputs: Sequence[Value | None]) -> list[Value]:
        """Convert the nodes of a function body in a scope of its own."""
        scope: Scope = {}
        nodes = list(body.nodes)
        missing = set()
        for place, name in enumerate(body.inputs):
            value = inputs[place] if place < len(inputs) else None
            if value is None:
                missing.add(name)
            else:
                scope[name] = value
        if missing:
            nodes = [_without_inputs(node, missing) for node in nodes]
        outer = self._opsets
        self._opsets = {**outer, **body.opsets}
        try:
            self.run(nodes, scope)
        finally:
            self._opsets = outer
        return [scope.get(name, Value("", "float32")) for name in body.outputs]

    def _bind(self, node: onnx.NodeProto, result: Any) -> list[Value]:
        """Give a converter's results their ONNX names."""
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        values = []
        for place, item in enumerate(results):
            name = node.output[place] if place < len(node.output) else ""
            if isinstance(item, Value):
                values.append(item)
            elif isinstance(item, np.ndarray):
                values.append(Value.constant(name, item))
            elif item is None:
                values.append(Value(name, "float32"))
            else:
                bound = item if isinstance(item, relax.Var) else self.emit(item, name)
                values.append(Value.of_expr(name, bound))
        return values

    def _describe(self, node: onnx.NodeProto, opset: int, inputs: Sequence[Value | None]) -> str:
        shown = ", ".join(value.describe() if value is not None else "-" for value in inputs)
        return f"{node.op_type} (opset {opset}) of [{shown}]"

    # Emission ---------------------------------------------------------------------------------

    def expression(self, value: Value) -> relax.Expr:
        """Return a value as Relax tensor; a constant is embedded once."""
        if value.expr is None:
            if value.array is not None:
                value.expr = relax_constant(value.array)
                value.array = shared_array(value.expr, value.array)
            elif value.symbolic is not None:
                value.expr = self._materialize(value)
            else:
                raise InvalidModel("an optional output that the operator does not give is read")
        return value.expr

    def _materialize(self, value: Value) -> relax.Var:
        """Compute a shape value at run time, one element of the tensor for each expression."""
        assert value.symbolic is not None
        shape, items = value.symbolic.shape, list(value.symbolic.flat)
        sources = [item.source if isinstance(item, Ratio) else item for item in items]

        def compute(sizes: list[Any]) -> te.Tensor:
            elements = [
                item.computed(prim(size), value.dtype) if isinstance(item, Ratio) else prim(size)
                for item, size in zip(items, sizes, strict=True)
            ]

            def pick(*place: Any) -> Any:
                flat: Any = 0
                for size, index in zip(shape, place, strict=True):
                    flat = flat * size + index
                chosen = elements[-1]
                for number in range(len(elements) - 2, -1, -1):
                    chosen = tirx.Select(flat == number, elements[number], chosen)
                return chosen.astype(value.dtype)

            return te.compute(shape, pick, name="shape_value")

        return self.emit_te(compute, name=value.name or "shape_value", dims=sources)

    def emit(self, expr: relax.Expr, hint: str) -> relax.Var:
        """Bind `expr`, its operands broadcast; sizes that Relax cannot deduce are new symbols."""
        refuse_operands(expr)
        expr = agreeing(expr, self.sizes, hint)
        for left, right in shared_sizes(expr):
            if not (is_static(left) and is_static(right)) and not self.arithmetic.equal(
                left, right
            ):
                self.require(prim(left) == prim(right), f"{hint}_operands")
        bound = self._block.emit(expr, sanitize(hint))
        kind = bound.ty
        if isinstance(kind, relax.TensorType) and not isinstance(kind.shape, relax.ShapeExpr):
            if kind.ndim < 0:
                raise UnsupportedOperator("the rank of its result is unknown")
            dims = [self.fresh_symbol(hint) for _ in range(kind.ndim)]
            return self.match_tensor(bound, dims, dtype_of(bound))
        return bound

    def emit_te(
        self,
        compute: Callable[..., te.Tensor],
        *tensors: relax.Expr,
        name: str,
        dims: Sequence[Dim] = (),
    ) -> relax.Var:
        """Emit a call of the PrimFunc that a tensor expression describes.

        `compute` gets a TE tensor for each of `tensors` and then, if `dims` is given, their list:
        a PrimFunc has symbols of its own, so `compute` must not use the graph's.
        """
        return self.functions.emit_te(compute, *tensors, name=sanitize(name), dims=dims)

    def match_tensor(
        self, expr: relax.Expr, dims: Sequence[Dim], dtype: str, name: str = ""
    ) -> relax.Var:
        """Bind `expr` with a shape that may define new symbols; it is checked at run time."""
        hint = sanitize(name) if name else ""
        return self.functions.match_tensor(expr, dims, container(dtype), hint)

    def read_dims(self, value: Value, title: str = "") -> list[Dim]:
        """Return symbols for the elements of an integer vector known only at run time.

        An error at run time calls the vector `<title>_sizes`; by default, title is its own name.
        """
        length = value.shape[0]
        if not is_static(length):
            raise UnsupportedOperator(
                "a shape of unknown length: the result has no rank", tensor=value.name
            )
        vector = self.expression(value)
        if value.dtype != "int64":
            vector = self._block.emit(relax.op.astype(vector, "int64"))
        symbols = [self.fresh_symbol(value.name or "n") for _ in range(length)]
        read = relax.op.call_pure_packed(
            "vm.builtin.tensor_to_shape", vector, ty_args=relax.ShapeType(ndim=length)
        )
        name = sanitize(f"{title or value.name}_sizes")
        self._block.match_cast(self._block.emit(read), relax.ShapeType(symbols), name)
        return symbols

    def require(self, condition: Any, name: str) -> None:
        """State a condition on sizes; a run fails where it does not hold (pass `check_sizes`)."""
        truth = self.arithmetic.known_truth(condition)
        if truth:
            return
        if truth is False:
            raise InvalidModel(f"its sizes contradict what it needs: {name}")
        state(self._block, condition, sanitize(name))

    def name_size(self, size: Dim, name: str) -> tirx.Var:
        """Return a new symbol for a size that is computed."""
        symbol = self.fresh_symbol(name)
        made = self._block.emit(relax.ShapeExpr([prim(size)]))
        self._block.match_cast(made, relax.ShapeType([symbol]), sanitize(name))
        return symbol

    def fresh_symbol(self, hint: str) -> tirx.Var:
        """Return a new symbolic dimension."""
        return self._shapes.fresh(hint)


def _check_sizes(results: Sequence[Value]) -> None:
    """Refuse negative sizes (a window larger than its image) and what no memory holds."""
    for tensor in tensors_of(results):
        if tensor.is_unused:
            continue
        if any(is_static(size) and size < 0 for size in tensor.shape):
            raise InvalidModel(f"the result's shape {tuple(tensor.shape)} is negative")
        known = [int(size) for size in tensor.shape if is_static(size)]
        if math.prod(known) > MOST_ELEMENTS:
            raise InvalidModel(f"no memory holds the result's shape {tuple(tensor.shape)}")


def _title(node: onnx.NodeProto) -> str:
    return node.name or next((name for name in node.output if name), node.op_type)


def _without_inputs(node: onnx.NodeProto, missing: set[str]) -> onnx.NodeProto:
    """Return the node with inputs that the caller left out as empty."""
    if not any(name in missing for name in node.input):
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.input[:]
    copy.input.extend("" if name in missing else name for name in node.input)
    return copy


def _type_proto(value: Value | None) -> onnx.TypeProto:
    """Return the ONNX type of a value, for function bodies that depend on it."""
    if value is None:
        return onnx.TypeProto()
    kind = onnx.helper.np_dtype_to_tensor_dtype(numpy_dtype(value.dtype))
    shape = [int(dim) if is_static(dim) else None for dim in value.shape]
    return onnx.helper.make_tensor_type_proto(kind, shape)
