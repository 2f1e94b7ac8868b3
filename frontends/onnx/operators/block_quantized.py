"""Weights quantized by blocks and packed in bytes: MatMulNBits and GatherBlockQuantized."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, te
from tvm.relax import op as R

from frontends.computations.packed_weights import dequantize_columns, unpack
from frontends.dims import dims_of, is_static
from frontends.errors import InvalidModel
from frontends.onnx.indices import at_most, checked
from frontends.onnx.op import Op, normalize_axis
from frontends.onnx.operators.cast import widen
from frontends.onnx.registry import converter

MICROSOFT = "com.microsoft"


@converter("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(op: Op) -> relax.Expr:
    """Multiply by a weight of 2, 4 or 8 bits, whose blocks along K have a scale each.

    Where the input g_idx is given, it tells the block whose scale and zero point a row has.
    The weight stays packed in the model; a kernel unpacks it at run time.
    """
    bits, block = int(op.attr("bits", 4)), op.count("block_size")
    depth, columns = op.count("K"), op.count("N")
    if bits not in (2, 4, 8):
        raise op.unsupported(f"weights of {bits} bits")
    if op.attr("weight_prepacked", 0):
        raise op.unsupported("a weight packed for one device")
    if block < 16 or block & (block - 1) or depth < 1 or columns < 1:
        raise InvalidModel(
            f"block_size {block}, K {depth}, N {columns}: a block is a power of two of at least "
            "16 rows, K and N are positive"
        )
    blocks = -(-depth // block)

    def laid_out(place: int, name: str, *shape: int) -> relax.Expr:
        """Return a parameter in its shape; files have some of them flat."""
        have = op.shape(place)
        if all(is_static(dim) for dim in have) and math.prod(have) != math.prod(shape):
            raise InvalidModel(
                f"{name} have shape {list(have)} where block_size {block}, {bits} bits, K {depth} "
                f"and N {columns} need {list(shape)}"
            )
        return op.emit(R.reshape(op.x(place), relax.ShapeExpr(shape)))

    tensors = [
        laid_out(1, "the packed weights", columns, blocks, block * bits // 8),
        laid_out(2, "the scales", columns, blocks),
    ]
    if op.has(3):
        width = -(-blocks * bits // 8) if op.dtype(3) == "uint8" else blocks
        tensors.append(laid_out(3, "the zero points", columns, width))
    if op.has(4):
        if op.shape(4) != (blocks * block,):  # padded as the weight is
            op.state(4, [depth])
        tensors.append(at_most(op, 4, blocks - 1, "the group of a row"))

    def compute(w: te.Tensor, s: te.Tensor, *rest: te.Tensor) -> te.Tensor:
        given = iter(rest)
        zeros, groups = (next(given) if op.has(place) else None for place in (3, 4))
        return dequantize_columns(w, s, zeros, groups, bits=bits, block=block, depth=depth)

    weight = op.te(compute, *tensors, name="unpack_weight")
    result = op.emit(R.matmul(op.x(0), weight))
    return R.add(result, op.fitted(op.x(5), dims_of(result))) if op.has(5) else result


@converter("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(op: Op) -> Any:
    """Gather rows of a block-quantized table and dequantize them only."""
    rank = op.ndim(0)
    gather = normalize_axis(int(op.attr("gather_axis", 0)), rank)
    quantize = normalize_axis(int(op.attr("quantize_axis", 1)), rank)
    block, bits = int(op.attr("block_size", 128)), int(op.attr("bits", 4))
    if gather == quantize or gather != 0 or quantize != rank - 1:
        raise op.unsupported(f"gather_axis {gather} with quantize_axis {quantize}")
    packed = op.dtype(0) == "uint8"
    data, _ = widen(op, op.x(0), op.dtype(0), "float32")
    if block < 1:
        raise op.unsupported("one block for a whole axis")

    length = op.shape(0)[0]
    if not is_static(length):
        raise op.unsupported("a table of symbolic size")
    indices = checked(op, op.x(1), [length], op.value(1).name)

    def rows(place: int, x: relax.Expr | None = None) -> relax.Expr:
        source = op.x(place) if x is None else x
        return op.emit(R.take(source, indices, axis=0, mode="clip"))

    tensors = [rows(0, data), rows(2)]
    if op.has(3):
        tensors.append(rows(3))
    target = op.dtype(2)

    def compute(x: te.Tensor, s: te.Tensor, z: te.Tensor | None = None) -> te.Tensor:
        wide = x.shape[-1] * (8 // bits) if packed else x.shape[-1]

        def element(*place: Any) -> Any:
            outer, last = list(place[:-1]), place[-1]
            group = last // block
            if packed:
                value = unpack(x, outer, last, bits).astype("int32")
                zero = 2 ** (bits - 1) if z is None else unpack(z, outer, group, bits)
                value = value - zero
            else:
                value = x(*outer, last).astype("int32" if "int" in str(x.dtype) else "float32")
                if z is not None:
                    value = value - z(*outer, group).astype("int32")
            return (value.astype("float32") * s(*outer, group).astype("float32")).astype(target)

        return te.compute((*x.shape[:-1], wide), element, name="dequantize_rows")

    return op.te(compute, *tensors, name="gather_block_quantized")
