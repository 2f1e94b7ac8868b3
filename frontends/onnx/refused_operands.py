"""Refuse operands that no operator takes, in the model's words.

Relax refuses them as well, in terms of its own objects: what it prints of a call names variables
that are in no model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import relax
from tvm.ir import Op

from frontends.dims import Dim, as_dim, is_static, plain_text
from frontends.errors import InvalidModel


def refuse_operands(expr: relax.Expr) -> None:
    """Check the operands of a matrix product, and the elements of a reshape.

    Raises:
        InvalidModel: A factor is a scalar, the sizes that a product sums over differ, or a reshape
            has other than its operand's elements; sizes known only at run time are checked then.
    """
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, Op):
        return
    name = str(expr.op.name)
    if name == "relax.matmul":
        left, right = (_dims(factor) for factor in expr.args[:2])
        if left is not None and right is not None:
            _check_product(left, right)
    elif name == "relax.reshape" and isinstance(expr.args[1], relax.ShapeExpr):
        have, wanted = _dims(expr.args[0]), [as_dim(dim) for dim in expr.args[1].values]
        if have is not None and all(is_static(dim) for dim in (*have, *wanted)):
            # -1 stands for whatever is left; Relax works it out.
            if min(wanted, default=0) >= 0 and math.prod(have) != math.prod(wanted):
                raise InvalidModel(
                    f"a tensor of shape {_text(have)} where one of {_text(wanted)} is needed"
                )


def _check_product(left: Sequence[Dim], right: Sequence[Dim]) -> None:
    fault = ""
    if not left or not right:
        fault = "a scalar is no factor"
    else:
        across, down = left[-1], right[-2 if len(right) > 1 else 0]
        if is_static(across) and is_static(down) and across != down:
            fault = f"it sums over {across} and {down} elements"
    if fault:
        raise InvalidModel(f"a matrix product of shapes {_text(left)} and {_text(right)}: {fault}")


def _dims(expr: relax.Expr) -> list[Dim] | None:
    shape = getattr(getattr(expr, "ty", None), "shape", None)
    return [as_dim(dim) for dim in shape.values] if isinstance(shape, relax.ShapeExpr) else None


def _text(dims: Sequence[Dim]) -> str:
    return "[" + ", ".join(plain_text(str(dim)) for dim in dims) + "]"
