"""Prove that a model treats the places along a symbolic axis independently of each other.

Then its input may be padded at the end of that axis and its output cropped: what is computed for
the places that exist does not depend on those that were added, nor on how many there are. A batch
is such an axis in almost every model; a sequence is not, where attention, a convolution, a mean or
a recurrence mixes its places.

The proof reads the loop nests, so it needs no list of operators. By induction over the bindings of
`main`, every tensor either has the symbol as exactly one whole dimension (its axis) and its places
depend on the same place of the inputs, or does not depend on the padding at all:

- a kernel's block that writes a tensor with the axis has one data-parallel iterator over it, which
  indexes the axis of every such tensor it reads or writes, and nothing else as an index;
- the symbol itself occurs in no other place: not as a value, and not inside a larger dimension;
- a reshape keeps the sizes before and after the axis.

What does not match one of these is an obstacle, and is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer
from tvm.tirx import BufferStore, IterVar, PrimFunc, While

from relax_passes.drop_index_checks import without_index_checks
from relax_passes.lower_operators import lowering_rules
from relax_passes.lowering.attention import lower_attentions
from relax_passes.pass_base import PassContext
from tir_schedules.variables import used_in

_WITHOUT_EFFECT = frozenset({"relax.shape_of"})


class _Obstacle(Exception):
    """Why the axis is not independent."""


def padding_obstacle(mod: tvm.IRModule, symbol: str, ctx: PassContext) -> str | None:
    """Return why padding along `symbol` would change results, None if it surely does not.

    Args:
        mod: A module as a frontend returns it.
        symbol: Name of a symbolic dimension of the inputs of `main`.
        ctx: Gives the target.
    """
    # The plainest loop nests will do: packed and tiled ones compute the same.
    mod = without_index_checks(mod)
    with ctx.target:
        mod, _ = lower_attentions(mod, ctx)
        mod = relax.transform.LegalizeOps(lowering_rules(ctx), skip_ops=["relax.reshape"])(mod)
    main = mod["main"]
    variable = _find(main, symbol)
    if variable is None:
        return f"no input has a dimension {symbol}"
    try:
        _Proof(mod, variable).function(main)
    except _Obstacle as obstacle:
        return str(obstacle)
    return None


def _find(main: relax.Function, symbol: str) -> tirx.Var | None:
    for param in main.params:
        for dim in param.ty.shape.values:
            if isinstance(dim, tirx.Var) and dim.name == symbol:
                return dim
    return None


class _Proof:
    """The induction over the bindings of one function."""

    def __init__(self, mod: tvm.IRModule, symbol: tirx.Var) -> None:
        self.mod, self.symbol = mod, symbol
        self.seen: set[tuple[tvm.ir.GlobalVar, tuple[int | None, ...]]] = set()

    def function(self, main: relax.Function) -> None:
        for param in main.params:
            self.axis(param.ty, param.name)
        for block in main.body.blocks:
            for binding in block.bindings:
                self.binding(binding)

    def axis(self, ty: Any, name: str) -> int | None:
        """Return which dimension of a tensor is the symbol, None if none mentions it."""
        return self._whole_dimension(ty.shape.values, {self.symbol}, name)

    def types(self, ty: Any) -> list[Any]:
        if isinstance(ty, relax.TupleType):
            return [inner for field in ty.fields for inner in self.types(field)]
        return [ty]

    def depends(self, expr: relax.Expr) -> bool:
        return _mentions(expr.ty, {self.symbol})

    def binding(self, binding: relax.Binding) -> None:
        value, name = binding.value, binding.var.name
        for ty in self.types(binding.var.ty):
            if _is_tensor(ty):
                self.axis(ty, name)
        if isinstance(value, relax.Var | relax.Tuple | relax.TupleGetItem | tvm.ir.GenericConst):
            return
        if isinstance(value, relax.ShapeExpr):
            # Sizes that a run checks, as that a window fits into its image.
            if _mentions(value, {self.symbol}):
                raise _Obstacle(f"{name} computes with the size {self.symbol.name}")
            return
        if isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op):
            operator = value.op.name
            if operator == "relax.call_tir":
                return self.kernel(value)
            if operator == "relax.reshape":
                return self.reshape(value, name)
            touched = [arg for arg in value.args if self.depends(arg)]
            if not touched and not self.depends(value) and not _mentions(value, {self.symbol}):
                return None
            if operator in _WITHOUT_EFFECT:
                return None
            raise _Obstacle(f"{name} is computed by {operator}")
        raise _Obstacle(f"{name} is a {type(value).__name__}")

    def reshape(self, call: tvm.ir.Call, name: str) -> None:
        source, target = self.axis(call.args[0].ty, name), self.axis(call.ty, name)
        if source is None and target is None:
            return
        if source is None or target is None:
            raise _Obstacle(f"{name} reshapes {self.symbol.name} into another dimension")
        before, after = call.args[0].ty.shape.values, call.ty.shape.values
        same = _product(before[:source], after[:target])
        if not same or not _product(before[source + 1 :], after[target + 1 :]):
            raise _Obstacle(f"{name} reshapes across {self.symbol.name}")

    def kernel(self, call: tvm.ir.Call) -> None:
        kernel, given = call.args[0], list(call.args[1].fields)
        name = kernel.name_hint
        numbers = [arg for arg in given if not isinstance(arg.ty, relax.TensorType)]
        if any(_mentions(part, {self.symbol}) for part in [*numbers, *call.args[2:]]):
            raise _Obstacle(f"kernel {name} takes the size {self.symbol.name} as a number")
        kinds = [*(arg.ty for arg in given), *self.types(call.ty)]
        axes = [self.axis(ty, name) if _is_tensor(ty) else None for ty in kinds]
        if any(axis is not None for axis in axes[: len(given)]) and any(
            axis is None for axis in axes[len(given) :]
        ):
            raise _Obstacle(f"kernel {name} reduces along {self.symbol.name}")
        key = (kernel, tuple(axes))
        if any(axis is not None for axis in axes) and key not in self.seen:
            self.seen.add(key)
            self.check(self.mod[kernel], axes, name)

    def check(self, func: PrimFunc, axes: list[int | None], name: str) -> None:
        """Check the loop nests of one kernel whose parameters have the axis at `axes`."""
        own: set[tirx.Var] = set()
        for param, axis in zip(func.params, axes, strict=False):
            if axis is not None:
                size = param.ty.shape[axis]
                if not isinstance(size, tirx.Var):
                    raise _Obstacle(f"kernel {name} has {self.symbol.name} inside a dimension")
                own.add(size)
        if _found(func.body, While) or any(
            _mentions(param.ty, own) and axis is None
            for param, axis in zip(func.params, axes, strict=False)
        ):
            raise _Obstacle(f"kernel {name} is no plain loop nest over {self.symbol.name}")
        realized = [r for r in _found(func.body, SBlockRealize) if len(r.block.iter_vars)]
        around = tvm_ffi.structural_map(
            func.body,
            (SBlockRealize, lambda r: tirx.Evaluate(0) if len(r.block.iter_vars) else None),
        )
        bindings = [value for r in realized for value in r.iter_values]
        if any(_found(part, (TensorLoad, BufferStore)) for part in [around, *bindings]):
            raise _Obstacle(f"kernel {name} is no plain loop nest over {self.symbol.name}")
        for one in realized:
            self.block(one.block, own, name)

    def block(self, block: SBlock, own: set[tirx.Var], name: str) -> None:
        along = [iv for iv in block.iter_vars if _mentions(iv.dom.extent, own)]
        parallel = [
            iv.var
            for iv in along
            if int(iv.iter_type) == IterVar.DataPar and iv.dom.extent in own and _zero(iv.dom.min)
        ]
        if len(parallel) != len(along) or len(along) > 1:
            raise _Obstacle(f"kernel {name} combines places along {self.symbol.name}")
        place = parallel[0] if parallel else None
        parts = [block.body] if block.init is None else [block.body, block.init]
        for part in parts:
            for store in _found(part, BufferStore):
                self.access(store.buffer, store.indices, True, place, own, name)
                self.expression(store.value, own, name)
            for load in _found(part, TensorLoad):
                self.access(load.source, load.indices, False, place, own, name)
            self.expression(part, own, name)
            bound = [bind.value for bind in [*_found(part, tirx.Bind), *_found(part, tirx.Let)]]
            if place is not None and any(_mentions(_strip(value), {place}) for value in bound):
                raise _Obstacle(f"kernel {name} names a place along {self.symbol.name}")

    def expression(self, part: Any, own: set[tirx.Var], name: str) -> None:
        """Check what is left of a statement or a value without its accesses to tensors."""
        left = _found(_strip(part), tirx.Var)
        if any(var in own for var in left):
            raise _Obstacle(f"kernel {name} computes with the size {self.symbol.name}")
        if any(isinstance(var.ty, tirx.BufferType) for var in left):
            raise _Obstacle(f"kernel {name} is no plain loop nest over {self.symbol.name}")

    def access(
        self,
        buffer: Any,
        indices: Iterable[Any],
        written: bool,
        place: tirx.Var | None,
        own: set[tirx.Var],
        name: str,
    ) -> None:
        axis = self._whole_dimension(buffer.ty.shape, own, f"{buffer.name} in kernel {name}")
        if axis is None and written and place is not None:
            raise _Obstacle(f"kernel {name} reduces along {self.symbol.name}")
        for number, index in enumerate(indices):
            if axis is not None and number == axis:
                if place is None or not (isinstance(index, tirx.Var) and index.same_as(place)):
                    raise _Obstacle(f"kernel {name} mixes places along {self.symbol.name}")
            elif _mentions(_strip(index), own | {place} if place is not None else own):
                raise _Obstacle(f"kernel {name} indexes {buffer.name} by {self.symbol.name}")

    def _whole_dimension(self, shape: Iterable[Any], symbols: set[Any], name: str) -> int | None:
        dims = list(shape)
        places = [place for place, dim in enumerate(dims) if _mentions(dim, symbols)]
        if not places:
            return None
        if len(places) > 1 or dims[places[0]] not in symbols:
            shown = ", ".join(re.sub(r"T\.int64\((-?\d+)\)", r"\1", str(dim)) for dim in dims)
            raise _Obstacle(f"{name} has the shape ({shown})")
        return places[0]


def _found(part: Any, kinds: Any) -> list[Any]:
    """Return the parts of these types."""
    found: list[Any] = []
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        tvm_ffi.structural_walk(part, (kind, found.append))
    return found


def _mentions(part: Any, symbols: set[Any]) -> bool:
    return any(var in symbols for var in used_in(part))


def _strip(part: Any) -> Any:
    """Return a statement or an expression without its accesses to tensors.

    The type of a tensor mentions its sizes, so a walk would find them at each access.
    """
    return tvm_ffi.structural_map(
        part,
        [
            (TensorLoad, lambda load: tirx.const(0, str(load.ty.dtype))),
            (BufferStore, lambda store: tirx.Evaluate(0)),
        ],
    )


def _product(left: Iterable[Any], right: Iterable[Any]) -> bool:
    """Tell whether two lists of sizes surely have the same product."""
    one: Any = 1
    other: Any = 1
    for dim in left:
        one = one * dim
    for dim in right:
        other = other * dim
    difference = Analyzer().simplify(one - other + tirx.IntImm("int64", 0))
    return isinstance(difference, tirx.IntImm) and int(difference) == 0


def _is_tensor(ty: Any) -> bool:
    return isinstance(ty, relax.TensorType)


def _zero(expr: Any) -> bool:
    return isinstance(expr, tirx.IntImm) and int(expr) == 0
