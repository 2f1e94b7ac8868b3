"""A Relax module as the source of a compilation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
from tvm import relax

from frontends.imported_model import ImportedModel, TensorSpec
from relaxc.errors import InvalidModel


def from_ir_module(mod: tvm.IRModule) -> ImportedModel:
    """Take a Relax module as it is; names and types are read from its function `main`.

    Where `main` returns tuples within a tuple, their tensors become outputs side by side, in order.

    Raises:
        InvalidModel: If there is no `main`, or its inputs or outputs are not tensors of known rank.
    """
    names = {var.name_hint for var in mod.get_global_vars()}
    if "main" not in names or not isinstance(mod["main"], relax.Function):
        raise InvalidModel("the module has no Relax function called 'main'")
    inputs = tuple(_spec(param.name, param.ty) for param in mod["main"].params)
    result = mod["main"].ret_ty
    fields = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    if any(isinstance(field, relax.TupleType) for field in fields):
        mod = _with_flat_result(mod)
        fields = list(mod["main"].ret_ty.fields)
    outputs = tuple(_spec(f"output_{i}", field) for i, field in enumerate(fields))
    return ImportedModel(mod, inputs, outputs, "IRModule")


def _with_flat_result(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with the tensors that `main` returns in one tuple."""
    main = mod["main"]
    callers = (f for f in mod.functions.values() if isinstance(f, relax.Function))
    used = {var for func in callers for var in relax.analysis.all_global_vars(func.body)}
    if mod.get_global_var("main") in used:
        raise InvalidModel("'main' returns nested tuples and is called by a function")
    result = relax.Tuple(list(_leaves(main.body.body)))
    body = relax.SeqExpr(main.body.blocks, result)
    types = relax.TupleType(list(_leaf_types(main.ret_ty)))
    flat = relax.Function(main.params, body, types, main.is_pure, main.attrs)
    functions = {**mod.functions, mod.get_global_var("main"): flat}
    return relax.transform.Normalize()(tvm.IRModule(functions, attrs=mod.attrs))


def _leaves(value: relax.Expr) -> Iterator[relax.Expr]:
    """Yield the tensors of nested tuples."""
    if isinstance(value, relax.Tuple):
        for field in value.fields:
            yield from _leaves(field)
    elif isinstance(value.ty, relax.TupleType):
        for number in range(len(value.ty.fields)):
            yield from _leaves(relax.TupleGetItem(value, number))
    else:
        yield value


def _leaf_types(ty: Any) -> Iterator[Any]:
    if isinstance(ty, relax.TupleType):
        for field in ty.fields:
            yield from _leaf_types(field)
    else:
        yield ty


def _spec(name: str, ty: Any) -> TensorSpec:
    if isinstance(ty, relax.TupleType):
        raise InvalidModel("an input is a tuple: give its tensors as inputs", tensor=name)
    shape = getattr(getattr(ty, "shape", None), "values", None)
    if shape is None or not isinstance(ty, relax.TensorType):
        raise InvalidModel("expected a tensor of known rank", tensor=name)
    dims = [int(d) if isinstance(d, int | tvm.tirx.IntImm) else str(d) for d in shape]
    return TensorSpec(name, tuple(dims), str(ty.dtype))
