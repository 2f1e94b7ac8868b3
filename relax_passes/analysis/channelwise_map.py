"""Kernels of an importer that compute each channel of an image alone, such as resampling.

    y[n, c, h, w] = f(x[n, c, ...] at places that h and w decide, tables of such places and weights)

They have no operator of their own, so this is read off the loop nest. The channel only passes
through: the same map can be computed in another layout, or of other channels. Where f is a sum of
elements with factors, it is linear, and what mixes channels of one pixel may as well come before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, te, tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import BufferStore, IterVar, PrimFunc

from relax_passes.layout.blocked import dims_of, has_channels
from relax_passes.lowering.rule import is_float32
from tir_schedules.loads import loads_in
from tir_schedules.variables import uses

_RANK = 4


@dataclass(frozen=True)
class ChannelwiseMap:
    """A kernel call whose result (N, C, H, W) holds each channel of `data` (N, C, H', W') alone.

    Attributes:
        data: The image that is read.
        call: The call.
    """

    data: relax.Expr
    call: tvm.ir.Call
    _func: PrimFunc
    _place: int  # of data among the arguments

    @property
    def is_linear(self) -> bool:
        """Whether the result is a sum of elements of the image with factors that are none."""
        if not is_float32(self.call, self.data):
            return False
        _, store = _leaf(self._func) or (None, None)
        image = self._func.params[self._place]
        return store is not None and _is_linear(store.value, image)

    def of(
        self, builder: relax.BlockBuilder, image: relax.Expr, channels_last: bool = False
    ) -> tvm.ir.Call:
        """Return the map of another image.

        Args:
            builder: Where the kernel goes.
            image: Tensor (N, D, H', W'), or (N, D, H', W', x) in blocks of channels, D any number;
                (N, H', W', D) where `channels_last`.
            channels_last: Whether the channels are.

        Returns:
            Tensor (N, D, H, W), (N, D, H, W, x) or (N, H, W, D).
        """
        arguments = list(self.call.args[1].fields)
        arguments[self._place] = image
        tensors = [a for a in arguments if isinstance(a.ty, relax.TensorType)]
        rows, columns = dims_of(self.call)[2:]
        sizes = _sizes(self._func, self.call)

        def compute(*given: te.Tensor) -> te.Tensor:
            tables = iter(given)
            parameters = {
                param: next(tables)
                for param, argument in zip(self._func.params, arguments, strict=False)
                if isinstance(argument.ty, relax.TensorType)
            }
            size = (rows, columns)
            return _map_of(self._func, parameters, sizes, size, self._place, channels_last)

        return builder.call_te(compute, *tensors, primfunc_name_hint=self.call.args[0].name_hint)


def channelwise_map(call: relax.Expr, mod: tvm.IRModule) -> ChannelwiseMap | None:
    """Return what `call` computes, if it is a kernel that computes each channel of an image alone.

    Args:
        call: A value bound in a function of `mod`.
        mod: Holds the kernels.
    """
    if not isinstance(call, tvm.ir.Call) or not isinstance(call.op, tvm.ir.Op):
        return None
    if call.op.name != "relax.call_tir" or not has_channels(call):
        return None
    func = mod[call.args[0]]
    leaf = _leaf(func)
    if leaf is None:
        return None
    block, store = leaf
    given = list(call.args[1].fields)
    images = [place for place, arg in enumerate(given) if _reads_channel(func, place, block, store)]
    if len(images) != 1 or not has_channels(given[images[0]]):
        return None
    if not _passes_through(block, store, func.params[images[0]]):
        return None
    if not _uses_only_known(func, call, block, store):
        return None
    return ChannelwiseMap(given[images[0]], call, func, images[0])


def _leaf(func: PrimFunc) -> tuple[SBlock, BufferStore] | None:
    """Return the only block of a plain map over four axes and what it stores, None if not one."""
    blocks: list[SBlockRealize] = []
    tvm_ffi.structural_walk(func.body, (SBlockRealize, blocks.append))
    leaves = [realize.block for realize in blocks if len(realize.block.iter_vars)]
    if len(leaves) != 1 or any(len(realize.block.alloc_buffers) for realize in blocks):
        return None
    block = leaves[0]
    store = block.body
    if block.init is not None or not isinstance(store, BufferStore):
        return None
    if len(block.iter_vars) != _RANK or any(
        int(iv.iter_type) != IterVar.DataPar for iv in block.iter_vars
    ):
        return None
    places = list(store.indices)
    straight = all(i.same_as(iv.var) for i, iv in zip(places, block.iter_vars, strict=True))
    return (block, store) if straight and len(places) == _RANK else None


def _reads_channel(func: PrimFunc, place: int, block: SBlock, store: BufferStore) -> bool:
    """Tell whether the parameter at `place` is read at the channel of the result."""
    channel = block.iter_vars[1].var
    parameter = func.params[place]
    return any(
        load.source.same_as(parameter) and len(load.indices) == _RANK
        and load.indices[1].same_as(channel)
        for load in loads_in(store.value)
    )  # fmt: skip


def _passes_through(block: SBlock, store: BufferStore, image: tirx.Var) -> bool:
    """Tell whether sample and channel are used for nothing but the place in the image."""
    sample, channel = (iv.var for iv in block.iter_vars[:2])
    for load in loads_in(store.value):
        if not load.source.same_as(image):
            continue
        if not (load.indices[0].same_as(sample) and load.indices[1].same_as(channel)):
            return False

    def without_places(load: TensorLoad) -> Any:
        if not load.source.same_as(image):
            return load
        row, column = (tirx.Cast(str(load.ty.dtype), index) for index in load.indices[2:])
        return row + column

    rest = tvm_ffi.structural_map(store.value, (TensorLoad, without_places))
    return not uses(rest, sample) and not uses(rest, channel)


def _is_linear(value: Any, image: tirx.Var) -> bool:
    """Tell whether an expression is a sum of elements of `image` with factors."""

    def reads(part: Any) -> bool:
        return any(load.source.same_as(image) for load in loads_in(part))

    if isinstance(value, TensorLoad):
        return bool(value.source.same_as(image)) and not any(map(reads, value.indices))
    if isinstance(value, tirx.Add | tirx.Sub):
        return _is_linear(value.a, image) and _is_linear(value.b, image)
    if isinstance(value, tirx.Mul):
        for one, other in ((value.a, value.b), (value.b, value.a)):
            if not reads(other):
                return _is_linear(one, image)
    return False


def _uses_only_known(func: PrimFunc, call: tvm.ir.Call, block: SBlock, store: BufferStore) -> bool:
    """Tell whether each variable in the stored value is an axis or a size of a tensor.

    A number that the kernel is passed beside them would have to be passed on. Some kernels are
    passed one only for the shape of a tensor, whose sizes are no variables (2*h rows of an image).
    """
    known = {*_sizes(func, call), *(iv.var for iv in block.iter_vars)}
    return all(var in known for var in _read_variables(store.value))


def _read_variables(value: tirx.Expr) -> set[tirx.Var]:
    """Return the variables that an expression computes with, those in shapes of tensors not."""
    found: set[tirx.Var] = set()

    def load(node: TensorLoad) -> tvm_ffi.WalkResult:
        found.update(*map(_read_variables, node.indices))
        return tvm_ffi.WalkResult.SKIP

    tvm_ffi.structural_walk(value, [(TensorLoad, load), (tirx.Var, found.add)], order="pre")
    return found


def _sizes(func: PrimFunc, call: tvm.ir.Call) -> dict[tirx.Var, Any]:
    """Return what the symbolic sizes of a kernel's tensors are in its call."""
    found: dict[tirx.Var, Any] = {}
    for param, argument in zip(func.params, [*call.args[1].fields, call], strict=True):
        if isinstance(argument.ty, relax.TensorType):
            sizes = zip(param.ty.shape, argument.ty.shape.values, strict=True)
            found.update((own, size) for own, size in sizes if isinstance(own, tirx.Var))
    return found


def _map_of(
    func: PrimFunc,
    parameters: dict[tirx.Var, te.Tensor],
    sizes: dict[tirx.Var, Any],
    size: Sequence[Any],
    place: int,
    channels_last: bool,
) -> te.Tensor:
    """Return the map of `func` as a computation of other operands."""
    leaf = _leaf(func)
    assert leaf is not None, "only plain maps are taken"
    block, store = leaf
    image = parameters[func.params[place]]
    blocked = len(image.shape) > _RANK

    def element(*index: Any) -> Any:
        if channels_last:
            n, y, x, c = index
            index = (n, c, y, x)
        values = {iv.var: i for iv, i in zip(block.iter_vars, index, strict=False)}
        values.update(sizes)

        def load(old: TensorLoad) -> Any:
            tensor = parameters[old.source]
            places = [tvm_ffi.structural_map(i, rules) for i in old.indices]
            if tensor is image and blocked:
                places.append(index[-1])
            if tensor is image and channels_last:
                places = [places[axis] for axis in (0, 2, 3, 1)]
            return tensor(*places)

        rules = [(TensorLoad, load), (tirx.Var, lambda var: values.get(var, var))]
        return tvm_ffi.structural_map(store.value, rules)

    shape = [image.shape[0], image.shape[1], *size, *([image.shape[4]] if blocked else [])]
    if channels_last:
        shape = [image.shape[0], *size, image.shape[3]]
    return te.compute(shape, element, name="channelwise_map")
