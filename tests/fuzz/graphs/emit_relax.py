"""Write a recipe as a Relax module."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.sym import Analyzer

from relax_passes.constant_values import constant_from
from tests.fuzz.graphs import operators  # noqa: F401 - fills the table
from tests.fuzz.graphs.evaluate import constant_array
from tests.fuzz.graphs.operator import OPERATORS
from tests.fuzz.graphs.recipe import CONSTANT, INPUT, Attributes, Recipe, Step, TensorType
from tests.fuzz.graphs.sizes import Shape


def emit_relax(recipe: Recipe) -> tvm.IRModule:
    """Return the module whose `main` computes the recipe.

    Raises:
        ValueError: If TVM finds it ill-formed, which only a recipe made smaller can be.
    """
    builder = relax.BlockBuilder()
    writer = _Writer(builder, builder, recipe)
    params = writer.params()
    with builder.function("main", params):
        builder.emit_func_output(writer.body(params))
    mod = builder.get()
    relax.analysis.well_formed(mod)
    return mod


class _Writer:
    """Writes one function; what operators ask while they are written."""

    def __init__(self, module: relax.BlockBuilder, block: relax.BlockBuilder, recipe: Recipe):
        self._module, self._block, self._recipe = module, block, recipe
        self._symbols: dict[str, tirx.Var] = {}
        self._values: dict[int, Any] = {}

    def __call__(self, shape: Shape) -> list[Any]:
        """Return a shape as Relax takes it."""
        return [s if isinstance(s, int) else self._symbol(s.symbol) * s.scale + s.offset
                for s in shape]  # fmt: skip

    def _symbol(self, name: str) -> tirx.Var:
        if name not in self._symbols:
            self._symbols[name] = tirx.Var(name, "int64")
        return self._symbols[name]

    def type_of(self, kind: TensorType) -> relax.TensorType:
        """Return a tensor type as Relax writes it."""
        return relax.TensorType(self(kind.shape), kind.dtype)

    def params(self) -> list[relax.Var]:
        """Return new parameters for the inputs."""
        steps = self._recipe.steps
        return [relax.Var(f"x{i}", self.type_of(steps[i].type)) for i in self._recipe.inputs()]

    # The body -------------------------------------------------------------------------------------

    def body(self, params: Sequence[relax.Expr]) -> relax.Expr:
        """Emit all bindings; return the result."""
        recipe = self._recipe
        self._values = dict(zip(recipe.inputs(), params, strict=True))
        escaping = self._escaping()
        for inside, numbers in self._blocks():
            with self._block.dataflow() if inside else nullcontext():
                for number in numbers:
                    self._values[number] = self._step(number, inside and number in escaping)
        results = [self._values[o] for o in recipe.outputs]
        return results[0] if recipe.single else relax.Tuple(results)

    def _blocks(self) -> list[tuple[bool, list[int]]]:
        """Return runs of steps, and whether each is a dataflow block: branches end one."""
        runs: list[tuple[bool, list[int]]] = []
        for number, step in enumerate(self._recipe.steps):
            if step.kind == INPUT:
                continue
            inside = self._recipe.dataflow and step.kind != "if"
            if not runs or runs[-1][0] != inside:
                runs.append((inside, []))
            runs[-1][1].append(number)
        return runs

    def _escaping(self) -> set[int]:
        """Return the steps that another block reads, or the result."""
        found = set(self._recipe.outputs)
        block_of = {n: i for i, (_, numbers) in enumerate(self._blocks()) for n in numbers}
        for reader, step in enumerate(self._recipe.steps):
            found.update(a for a in step.args if block_of.get(a) != block_of.get(reader))
        return found

    def _step(self, number: int, escapes: bool) -> relax.Expr:
        step = self._recipe.steps[number]
        if step.kind == CONSTANT:
            return constant_from(constant_array(step))
        expr = OPERATORS[step.kind].relax(self, [self._values[a] for a in step.args], step.attrs)
        var = self._block.emit_output(expr) if escapes else self._block.emit(expr)
        self._check_type(step, var)
        return var

    def _check_type(self, step: Step, var: relax.Var) -> None:
        """Check that the fuzzer's type rule and TVM's agree."""
        if not isinstance(step.type, TensorType):
            return
        ours = self.type_of(step.type)
        if not tvm_ffi.structural_equal(var.ty, ours):
            known = isinstance(var.ty.shape, relax.ShapeExpr)
            analyzer = Analyzer()
            pairs = zip(var.ty.shape.values, ours.shape.values, strict=True) if known else ()
            equal = known and all(analyzer.can_prove_equal(a, b) for a, b in pairs)
            if not equal or str(var.ty.dtype) != str(ours.dtype):
                raise TypeError(f"{step.kind}: TVM says {var.ty}, the fuzzer {ours}")

    # What operators ask ---------------------------------------------------------------------------

    def tuple(self, args: Sequence[relax.Expr]) -> relax.Expr:
        return relax.Tuple(list(args))

    def item(self, value: relax.Expr, index: int) -> relax.Expr:
        return relax.TupleGetItem(value, index)

    def match_cast(self, value: relax.Expr, shape: Shape) -> relax.Expr:
        kind = relax.TensorType(self(shape), value.ty.dtype)
        return self._block.match_cast(value, kind)

    def call(self, recipe: Recipe, args: Sequence[relax.Expr]) -> relax.Expr:
        """Return a call of a new private function."""
        builder = relax.BlockBuilder()
        writer = _Writer(self._module, builder, recipe)
        params = writer.params()
        with builder.function("part", params, private=True):
            builder.emit_func_output(writer.body(params))
        callee = self._module.add_func(builder.get()["part"], "part")
        return self._block.normalize(relax.Call(callee, list(args)))

    def branch(
        self, condition: relax.Expr, args: Sequence[relax.Expr], attrs: Attributes
    ) -> relax.Expr:
        """Return an If of two bodies, or of calls of two private functions."""
        arms = []
        for recipe in (attrs["then"], attrs["other"]):
            if attrs["inline"]:
                arms.append(self._inline(recipe, args))
            else:
                arms.append(relax.SeqExpr([], self.call(recipe, args)))
        return relax.If(condition, *arms)

    def _inline(self, recipe: Recipe, args: Sequence[relax.Expr]) -> relax.Expr:
        builder = relax.BlockBuilder()
        writer = _Writer(self._module, builder, recipe)
        writer._symbols = self._symbols
        with builder.function("arm", list(args), private=True):
            builder.emit_func_output(writer.body(args))
        return builder.get()["arm"].body
