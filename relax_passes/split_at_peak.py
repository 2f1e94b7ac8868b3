"""Compute a convolution and the pool of its result by parts, where the two hold the most memory.

    pool(f(conv(x, W) + b))   ->   concat(y_1, ..., y_n),   y_k = pool(f(conv(x, W_k) + b_k))

W_k being the k-th share of the output channels. A pool keeps each channel to itself, so the result
of the convolution never exists as a whole: beside the pool's result there is one part of it. The
parts of one image are runs of bytes, so each pool writes its share of the concatenation in place
(`elide_copies`). The same work is done by n - 1 kernels more of either kind, and each part reads x
again: this is for results that dwarf what they are computed from, such as that of the first
convolution of a ResNet, which is five times its image. Similar are the patches of Lin et al.,
"MCUNetV2: Memory-Efficient Patch-based Inference for Tiny Deep Learning" (2021), which cut along
the pixels and so compute their borders twice.

Whether it pays is asked of the whole function: its peak must fall.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import tvm
from tvm import relax

from relax_passes.analysis.definitions import dimensions, equal_sizes, operator_name
from relax_passes.analysis.pointwise import BINARY, UNARY
from relax_passes.analysis.readers import readers_of
from relax_passes.analysis.tensor_bytes import bytes_of
from relax_passes.constant_values import array_of, constant_from
from relax_passes.lowering.rule import static_shape
from relax_passes.memory.live_ranges import bindings_of
from relax_passes.memory.operator_peak import operator_peak
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.pass_options import option

NAME = "split_at_peak"
_POOLS = ("nn.max_pool2d", "nn.avg_pool2d")


@dataclass(frozen=True)
class SplitOptions:
    """What a split must save, and may cost."""

    most_parts: int = option(4, "parts that a convolution is cut into", at_least=1)
    least_kib: int = option(256, "KiB by which the peak must fall", at_least=1)
    least_percent: int = option(10, "percent by which the peak must fall", at_least=0)
    read_percent: int = option(
        25, "most bytes of the image, which each part reads, in percent of the result", at_least=0
    )


@dataclass(frozen=True)
class _Pair:
    """The bindings from a convolution to the pool of its result, maps between them."""

    chain: list[relax.Binding]

    @property
    def pool(self) -> relax.Binding:
        return self.chain[-1]

    @property
    def blocks(self) -> int:
        """Channels of the convolution's result, or blocks of channels."""
        return int(self.chain[0].var.ty.shape.values[1])

    def counts(self, most: int) -> list[int]:
        """Return into how many equal parts the channels can be cut, at most `most`."""
        return [parts for parts in range(2, most + 1) if self.blocks % parts == 0]


@graph_pass(name=NAME, phase="layout", options=SplitOptions)
def split_at_peak(
    mod: tvm.IRModule, ctx: PassContext, options: SplitOptions
) -> tuple[tvm.IRModule, bool]:
    """Compute the convolution and the pool that hold the most memory by parts of their channels."""
    if ctx.machine.kind != "llvm":
        return mod, False  # a GPU needs all of a convolution at once to be busy
    changed = {}
    for var, func in mod.functions.items():
        if isinstance(func, relax.Function):
            split = _split(mod, func, ctx, options)
            while split is not None:
                changed[var] = split
                split = _split(mod, split, ctx, options)
    if not changed:
        return mod, False
    return tvm.IRModule({**mod.functions, **changed}, attrs=mod.attrs), True


def _split(
    mod: tvm.IRModule, func: relax.Function, ctx: PassContext, options: SplitOptions
) -> relax.Function | None:
    """Return the function with the pair at its peak split, None if there is none, or no gain."""
    if not any(operator_name(binding.value) in _POOLS for binding in bindings_of(func)):
        return None
    step, peak = operator_peak(func)
    found = _pair_at(func, step)
    if found is None:
        return None
    place, pair = found
    name = pair.pool.var.name
    reason = _obstacle(pair, options)
    if reason:
        ctx.log.decline(NAME, name, reason)
        return None
    best, lowest, count = None, peak, 1
    for parts in pair.counts(options.most_parts):
        trial = _rebuilt(mod, func, place, pair, parts)
        reached = operator_peak(trial)[1]
        saved = lowest - reached
        if saved >= options.least_kib * 1024 and saved * 100 >= options.least_percent * lowest:
            best, lowest, count = trial, reached, parts
    if best is None:
        ctx.log.decline(NAME, name, "the whole function would need hardly less memory")
        return None
    what = f"{count} parts of its channels, about {peak} -> {lowest} bytes alive at once"
    ctx.log.fire(NAME, f"{name}: {what}")
    return best


def _pair_at(func: relax.Function, step: int) -> tuple[int, _Pair] | None:
    """Return the pair under way at a step, and its block's number, None if there is none."""
    first = 0
    for place, block in enumerate(func.body.blocks):
        last = first + len(block.bindings)
        if first <= step < last and isinstance(block, relax.DataflowBlock):
            begins = {binding.var: first + k for k, binding in enumerate(block.bindings)}
            for pair in _pairs(block):
                if begins[pair.chain[0].var] <= step <= begins[pair.pool.var]:
                    return place, pair
        first = last
    return None


def _pairs(block: relax.DataflowBlock) -> Iterator[_Pair]:
    """Yield each pool of a convolution's result that nothing else reads, maps between or not.

    A pool that only a concatenation reads is left out: it may be a part already.
    """
    made = {b.var: b for b in block.bindings if isinstance(b, relax.VarBinding)}
    readers = readers_of(block)
    for binding in block.bindings:
        reading = {operator_name(reader.value) for reader in readers.get(binding.var, ())}
        if operator_name(binding.value) not in _POOLS or reading == {"concat"}:
            continue
        chain = [binding]
        while operator_name(chain[0].value) != "nn.conv2d":
            before = made.get(_source(chain[0].value))
            if before is None or not isinstance(before.var, relax.DataflowVar):
                break
            if len(readers[before.var]) != 1:
                break
            chain.insert(0, before)
        else:
            yield _Pair(chain)


def _source(call: relax.Expr) -> relax.Expr | None:
    """Return what a pool or a map reads besides constants, None if it is more than one tensor."""
    name = f"relax.{operator_name(call)}"
    if name in UNARY or name.removeprefix("relax.") in _POOLS:
        return call.args[0]
    if name in BINARY:
        tensors = [arg for arg in call.args if not isinstance(arg, tvm.ir.GenericConst)]
        return tensors[0] if len(tensors) == 1 else None
    return None


def _obstacle(pair: _Pair, options: SplitOptions) -> str:
    """Return why a pair cannot be split, or should not be, "" if it may."""
    conv, pool = pair.chain[0].value, pair.pool.value
    shape = static_shape(pair.chain[0].var)
    pooled = static_shape(pair.pool.var)
    if shape is None or pooled is None:
        return "its sizes are symbolic"
    if shape[0] != 1 or shape[:2] != pooled[:2]:
        return "channels of several images are no run of bytes"
    layouts = (conv.attrs.out_layout or conv.attrs.data_layout, pool.attrs.layout)
    if not all(str(layout).startswith("NCHW") for layout in layouts):
        return "the channels are not the outer axis"
    if int(conv.attrs.groups) != 1 or not isinstance(conv.args[1], tvm.ir.GenericConst):
        return "its weights are no constant of one group"
    if not isinstance(pair.pool.var, relax.DataflowVar):
        return "its result leaves the graph"
    if bytes_of(conv.args[0]) * 100 > options.read_percent * bytes_of(pair.chain[0].var):
        return "each part would read the whole image again"
    if not pair.counts(options.most_parts):
        return f"{pair.blocks} blocks of channels have no divisor from 2 to {options.most_parts}"
    return ""


def _rebuilt(
    mod: tvm.IRModule, func: relax.Function, place: int, pair: _Pair, parts: int
) -> relax.Function:
    """Return the function with a pair of one of its blocks computed in parts."""
    builder = relax.BlockBuilder(mod)
    chain = {binding.var for binding in pair.chain}
    bindings: list[relax.Binding] = []
    for binding in func.body.blocks[place].bindings:
        if binding.var not in chain:
            bindings.append(binding)
        elif binding.var.same_as(pair.pool.var):
            results = []
            for number in range(parts):
                made = _part(builder, pair, number, parts)
                bindings += made
                results.append(made[-1].var)
            whole = builder.normalize(relax.op.concat(results, axis=1))
            bindings.append(relax.VarBinding(binding.var, whole))
    blocks = list(func.body.blocks)
    blocks[place] = relax.DataflowBlock(bindings)
    body = relax.SeqExpr(blocks, func.body.body)
    split = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
    return builder.normalize(split)


def _part(
    builder: relax.BlockBuilder, pair: _Pair, number: int, parts: int
) -> list[relax.VarBinding]:
    """Return the bindings of one part, in order."""
    made: list[relax.VarBinding] = []
    for binding in pair.chain:
        call = binding.value
        if not made:
            args = [call.args[0], _share(call.args[1], 0, number, parts)]
        else:
            # Counted from the last axis: a constant of fewer axes is broadcast over the first.
            behind = len(call.ty.shape.values) - 1
            args = [_of_channels(arg, behind, number, parts) for arg in call.args]
            args = [made[-1].var if isinstance(arg, relax.Var) else arg for arg in args]
        value = builder.normalize(relax.Call(call.op, args, call.attrs, call.ty_args))
        var = relax.DataflowVar(f"{binding.var.name}_part{number}", value.ty)
        made.append(relax.VarBinding(var, value))
    return made


def _of_channels(value: relax.Expr, behind: int, number: int, parts: int) -> relax.Expr:
    """Return what a part reads of an operand of a map, whose channels are `behind` from the end."""
    if not isinstance(value, tvm.ir.GenericConst):
        return value
    dims = dimensions(value) or []
    axis = len(dims) - behind
    if axis < 0 or not dims or equal_sizes(dims[axis], 1):
        return value
    return _share(value, axis, number, parts)


def _share(constant: tvm.ir.GenericConst, axis: int, number: int, parts: int) -> relax.Expr:
    array = array_of(constant)
    size = array.shape[axis] // parts
    place = (*[slice(None)] * axis, slice(number * size, (number + 1) * size))
    return constant_from(array[place])
