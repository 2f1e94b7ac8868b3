"""ResNet-18 and one BERT layer as Relax graphs, with the operators the frontends emit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax
from tvm.script import relax as R

op = relax.op


class GraphBuilder:
    """Emits operators into one dataflow function; weights are small random constants.

    Values are of one type; as the frontends write it, products are summed in float32.
    """

    def __init__(self, dtype: str = "float32") -> None:
        self.dtype = dtype
        self.builder = relax.BlockBuilder()
        self.random = np.random.default_rng(0)

    def weight(self, *shape: int) -> relax.Expr:
        values = self.random.standard_normal(shape, dtype="float32") * 0.05
        return relax.const(values.astype(self.dtype))

    def matmul(self, x: relax.Expr, y: relax.Expr) -> relax.Var:
        product = self.emit(op.matmul(x, y, out_dtype="float32"))
        return product if self.dtype == "float32" else self.emit(op.astype(product, self.dtype))

    def emit(self, value: relax.Expr) -> relax.Var:
        return self.builder.emit(value)

    def build(self, shape: tuple[int, ...], body: Callable[[relax.Var], relax.Var]) -> tvm.IRModule:
        x = relax.Var("x", R.Tensor(shape, self.dtype))
        with self.builder.function("main", [x]):
            with self.builder.dataflow():
                result = self.builder.emit_output(body(x))
            self.builder.emit_func_output(result)
        return self.builder.get()


def resnet18(size: int = 224) -> tvm.IRModule:
    """Return ResNet-18 (He et al., 2015) for one image [1, 3, size, size]; batch norms folded."""
    g = GraphBuilder()

    def conv(
        x: relax.Var,
        channels: int,
        kernel: int,
        stride: int,
        residual: relax.Var | None = None,
        activate: bool = True,
    ) -> relax.Var:
        weight = g.weight(channels, int(x.ty.shape[1]), kernel, kernel)
        y = g.emit(op.nn.conv2d(x, weight, strides=stride, padding=kernel // 2))
        y = g.emit(op.add(y, g.weight(1, channels, 1, 1)))
        if residual is not None:
            y = g.emit(op.add(y, residual))
        return g.emit(op.nn.relu(y)) if activate else y

    def block(x: relax.Var, channels: int, stride: int) -> relax.Var:
        short = conv(x, channels, 1, stride, activate=False) if stride == 2 else x
        return conv(conv(x, channels, 3, stride), channels, 3, 1, residual=short)

    def body(x: relax.Var) -> relax.Var:
        x = conv(x, 64, 7, 2)
        x = g.emit(op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1)))
        for channels, stride in [(64, 1), (128, 2), (256, 2), (512, 2)]:
            x = block(block(x, channels, stride), channels, 1)
        x = g.emit(op.nn.adaptive_avg_pool2d(x, (1, 1)))
        x = g.emit(op.reshape(x, (1, 512)))
        x = g.emit(op.matmul(x, g.weight(512, 1000)))
        return g.emit(op.add(x, g.weight(1000)))

    return g.build((1, 3, size, size), body)


def bert_layer(
    tokens: int = 128, width: int = 768, heads: int = 12, dtype: str = "float32"
) -> tvm.IRModule:
    """Return one encoder layer of BERT-base (Devlin et al., 2018) for [1, tokens, width]."""
    g = GraphBuilder(dtype)

    def linear(x: relax.Var, out: int) -> relax.Var:
        y = g.matmul(x, g.weight(int(x.ty.shape[-1]), out))
        return g.emit(op.add(y, g.weight(out)))

    def split_heads(x: relax.Var, order: list[int]) -> relax.Var:
        x = g.emit(op.reshape(x, (1, tokens, heads, width // heads)))
        return g.emit(op.permute_dims(x, order))

    def norm(x: relax.Var) -> relax.Var:
        return g.emit(op.nn.layer_norm(x, g.weight(width), g.weight(width), axes=[-1]))

    def body(x: relax.Var) -> relax.Var:
        query = split_heads(linear(x, width), [0, 2, 1, 3])
        key = split_heads(linear(x, width), [0, 2, 3, 1])
        value = split_heads(linear(x, width), [0, 2, 1, 3])
        scores = g.matmul(query, key)
        scores = g.emit(op.divide(scores, relax.const(float(np.sqrt(width // heads)), dtype)))
        mixed = g.matmul(g.emit(op.nn.softmax(scores, axis=-1)), value)
        mixed = g.emit(op.permute_dims(mixed, [0, 2, 1, 3]))
        mixed = g.emit(op.reshape(mixed, (1, tokens, width)))
        x = norm(g.emit(op.add(linear(mixed, width), x)))
        hidden = g.emit(op.nn.gelu(linear(x, 4 * width)))
        return norm(g.emit(op.add(linear(hidden, width), x)))

    return g.build((1, tokens, width), body)


def small_bert_layer(dtype: str) -> tvm.IRModule:
    """Return an encoder layer that is emulated in a second."""
    return bert_layer(tokens=32, width=64, heads=2, dtype=dtype)


def small_deep_product(dtype: str) -> tvm.IRModule:
    """Return three layers for [40, 64], the second of so many steps that blocks divide them."""
    g = GraphBuilder(dtype)

    def body(x: relax.Var) -> relax.Var:
        for before, after in [(64, 4096), (4096, 64), (64, 32)]:
            x = g.emit(op.nn.relu(g.matmul(x, g.weight(before, after))))
        return x

    return g.build((40, 64), body)


def small_residual_block(dtype: str) -> tvm.IRModule:
    """Return the first layer of ResNet-18 and a block with a stride, for [1, 3, 12, 12]."""
    g = GraphBuilder(dtype)

    def body(x: relax.Var) -> relax.Var:
        x = g.emit(op.nn.relu(g.emit(op.nn.conv2d(x, g.weight(8, 3, 3, 3), padding=1))))
        short = g.emit(op.nn.conv2d(x, g.weight(16, 8, 1, 1), strides=2))
        y = g.emit(op.nn.conv2d(x, g.weight(16, 8, 3, 3), strides=2, padding=1))
        y = g.emit(op.nn.relu(g.emit(op.add(y, g.weight(1, 16, 1, 1)))))
        y = g.emit(op.nn.conv2d(y, g.weight(16, 16, 3, 3), padding=1))
        return g.emit(op.nn.relu(g.emit(op.add(y, short))))

    return g.build((1, 3, 12, 12), body)
