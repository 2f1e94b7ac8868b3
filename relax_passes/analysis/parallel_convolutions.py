"""Find convolutions of one tensor that could be one convolution, with what follows each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from relax_passes.analysis.definitions import operator_name
from relax_passes.constant_values import array_of
from relax_passes.lowering.rule import is_float32, static_shape

Readers = dict[relax.Var, list[relax.Binding]]
_ACTIVATIONS = frozenset("nn.relu nn.relu6 sigmoid tanh nn.silu nn.gelu".split())


@dataclass(frozen=True)
class Branch:
    """`result = activation(conv2d(x, weight) + bias)`, bias and activation where they are there."""

    conv: relax.Var
    call: tvm.ir.Call
    weight: np.ndarray  # (out, in, height, width)
    bias: np.ndarray | None  # (out,)
    biased: relax.Var
    activation: tvm.ir.Call | None
    result: relax.Var

    @property
    def width(self) -> int:
        """How many channels it computes."""
        return int(self.weight.shape[0])

    @property
    def inner(self) -> tuple[relax.Var, ...]:
        """What is computed before its result."""
        return tuple(v for v in (self.conv, self.biased) if v != self.result)

    @property
    def kernel(self) -> tuple[int, int]:
        """Height and width of its window."""
        return self.weight.shape[2], self.weight.shape[3]

    @property
    def padding(self) -> tuple[int, ...]:
        """Top, left, bottom, right."""
        values = [int(p) for p in self.call.attrs.padding]
        return tuple(values * (4 // len(values)))

    def geometry(self) -> tuple[object, ...]:
        """Return what two convolutions must share to be one, but for window and padding."""
        attrs = self.call.attrs
        strides, dilation = ([int(v) for v in values] for values in (attrs.strides, attrs.dilation))
        return self.call.args[0], *strides, *dilation

    def enlarged(self, kernel: tuple[int, int], padding: tuple[int, ...]) -> np.ndarray | None:
        """Return the weight in a window of zeros that computes the same, None if there is none."""
        if (kernel, padding) == (self.kernel, self.padding):
            return self.weight
        dilated = any(int(d) != 1 for d in self.call.attrs.dilation)
        top, left, bottom, right = (b - a for a, b in zip(self.padding, padding, strict=True))
        grown = (self.kernel[0] + top + bottom, self.kernel[1] + left + right)
        if dilated or min(top, left, bottom, right) < 0 or grown != kernel:
            return None
        return np.pad(self.weight, ((0, 0), (0, 0), (top, bottom), (left, right)))


def branches(block: relax.BindingBlock, readers: Readers) -> list[list[Branch]]:
    """Return the convolutions of each tensor that has several of one geometry, in order."""
    found: dict[tuple[object, ...], list[Branch]] = {}
    for binding in block.bindings:
        if operator_name(getattr(binding, "value", None)) != "nn.conv2d":
            continue
        branch = _branch(binding, readers)
        if branch is not None:
            found.setdefault(branch.geometry(), []).append(branch)
    return [group for group in found.values() if len(group) > 1]


def _branch(binding: relax.Binding, readers: Readers) -> Branch | None:
    call, conv = binding.value, binding.var
    x, weight = call.args
    attrs = call.attrs
    plain = (str(attrs.data_layout), str(attrs.kernel_layout)) == ("NCHW", "OIHW")
    if not plain or str(attrs.out_layout) not in ("", "NCHW") or int(attrs.groups) != 1:
        return None
    if not isinstance(weight, tvm.ir.GenericConst) or not isinstance(x, relax.Var):
        return None
    if not is_float32(x, weight, call) or static_shape(weight) is None:
        return None
    values = array_of(weight)
    biased, bias = _bias(conv, values.shape[0], readers)
    follower = _only_reader(biased, readers)
    name = "" if follower is None else operator_name(follower.value)
    if follower is None or name not in _ACTIVATIONS:
        return Branch(conv, call, values, bias, biased, None, biased)
    return Branch(conv, call, values, bias, biased, follower.value, follower.var)


def _bias(conv: relax.Var, channels: int, readers: Readers) -> tuple[relax.Var, np.ndarray | None]:
    follower = _only_reader(conv, readers)
    if follower is None or operator_name(follower.value) != "add":
        return conv, None
    other = [arg for arg in follower.value.args if not arg.same_as(conv)]
    if len(other) != 1 or not isinstance(other[0], tvm.ir.GenericConst):
        return conv, None
    array = array_of(other[0])
    shape = (1,) * (4 - array.ndim) + array.shape
    if array.ndim > 4 or shape != (1, channels, 1, 1):
        return conv, None
    return follower.var, array.reshape(-1)


def _only_reader(var: relax.Var, readers: Readers) -> relax.Binding | None:
    found = readers.get(var, [])
    inner = isinstance(var, relax.DataflowVar)
    return found[0] if inner and len(found) == 1 else None
