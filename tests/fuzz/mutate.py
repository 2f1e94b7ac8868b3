"""Mutate ONNX models: bytes of the file, and fields of its protobuf tree.

Everything is drawn from one `random.Random`, so a seed names a file for good.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import onnx
from google.protobuf.message import Message

from frontends.onnx.subgraphs import all_nodes, parts_of

_NUMBERS = (-(2**63), -(2**31), -1000, -2, -1, 0, 1, 2, 3, 5, 17, 1000, 2**20, 2**31, 2**40, 2**62)
_FLOATS = (float("nan"), float("inf"), float("-inf"), 0.0, -1.0, 1e-45, 3.4e38, 0.5, 1e6)
_TEXTS = (
    *("", "x", "y", "a", "../weights.bin", "/etc/hostname", "weights.bin", "\0", "ü" * 300),
    *("linear", "nearest", "reflect", "bidirectional", "SAME_UPPER", "nonsense"),
)
_OPERATORS = (
    *("Add", "MatMul", "Conv", "Reshape", "Concat", "Slice", "Gather", "Expand", "Tile", "Resize"),
    *("If", "Loop", "Scan", "LSTM", "Softmax", "ReduceSum", "Transpose", "Cast", "Pad", "Split"),
    *("Squeeze", "TopK", "Where", "Range", "ConstantOfShape", "OneHot", "Einsum", "NonZero"),
    *("QuantizeLinear", "Constant", "Identity", "Frobnicate", "SequenceConstruct", "Optional"),
)


def mutate(data: bytes, random: Random) -> bytes:
    """Return the bytes of a model with one to five mutations.

    One in six is mutated as bytes, which mostly ends in the parser; the others in their tree.
    """
    if random.random() < 1 / 6:
        return _mutate_bytes(data, random)
    model = onnx.ModelProto.FromString(data)
    for _ in range(random.choice((1, 1, 1, 1, 2, 4))):
        random.choice(_TREE)(model, random)
    return model.SerializeToString()


def _mutate_bytes(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    kind = random.randrange(5)
    if kind == 0:
        return bytes(changed[: random.randrange(len(changed))])
    for _ in range(random.choice((1, 1, 2, 4, 16))):
        place = random.randrange(len(changed))
        if kind == 1:
            changed[place] ^= 1 << random.randrange(8)
        elif kind == 2:
            changed[place] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        elif kind == 3:
            start, end = sorted(random.randrange(len(changed)) for _ in range(2))
            changed[place:place] = changed[start : min(end, start + 64)]
        elif len(changed) > 1:
            del changed[place : place + random.randrange(1, 9)]
    return bytes(changed)


# Each of these changes one thing in the tree, or nothing where there is nothing of its kind.


def _nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    found = list(all_nodes(model.graph.node))
    for function in model.functions:
        found.extend(all_nodes(function.node))
    return found


def _names(model: onnx.ModelProto) -> list[str]:
    names = [value.name for value in [*model.graph.input, *model.graph.initializer]]
    return names + [name for node in _nodes(model) for name in node.output] + ["", "ghost"]


def _graph(model: onnx.ModelProto, random: Random) -> onnx.GraphProto:
    return random.choice(parts_of(model).graphs)


def _drop(model: onnx.ModelProto, random: Random) -> None:
    graph = _graph(model, random)
    fields = (graph.node, graph.input, graph.output, graph.initializer, model.opset_import)
    field = random.choice([*fields, model.functions])
    if field:
        del field[random.randrange(len(field))]


def _duplicate(model: onnx.ModelProto, random: Random) -> None:
    graph = _graph(model, random)
    field = random.choice((graph.node, graph.input, graph.output, graph.initializer))
    if field:
        field.add().CopyFrom(random.choice(field))


def _swap_nodes(model: onnx.ModelProto, random: Random) -> None:
    nodes = _graph(model, random).node
    if len(nodes) > 1:
        first, second = random.sample(range(len(nodes)), 2)
        kept = onnx.NodeProto()
        kept.CopyFrom(nodes[first])
        nodes[first].CopyFrom(nodes[second])
        nodes[second].CopyFrom(kept)


def _retarget(model: onnx.ModelProto, random: Random) -> None:
    nodes = _nodes(model)
    if nodes:
        node = random.choice(nodes)
        field = random.choice((node.input, node.input, node.output))
        if field:
            field[random.randrange(len(field))] = random.choice(_names(model))


def _change_arity(model: onnx.ModelProto, random: Random) -> None:
    nodes = _nodes(model)
    if nodes:
        node = random.choice(nodes)
        field = random.choice((node.input, node.output))
        if field and random.random() < 0.5:
            del field[random.randrange(len(field))]
        else:
            field.append(random.choice(_names(model)))


def _change_operator(model: onnx.ModelProto, random: Random) -> None:
    nodes = _nodes(model)
    if nodes:
        node = random.choice(nodes)
        others = [other.op_type for other in nodes]
        node.op_type = random.choice([*_OPERATORS, *others])
        if random.random() < 0.1:
            node.domain = random.choice(("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "local"))


def _change_attribute(model: onnx.ModelProto, random: Random) -> None:
    attributes = [attribute for node in _nodes(model) for attribute in node.attribute]
    if not attributes:
        return
    attribute = random.choice(attributes)
    if random.random() < 0.3:
        attribute.type = random.randrange(15)
        return
    if random.random() < 0.1:
        attribute.name = random.choice(("axis", "axes", "pads", "strides", "to", "body", "value"))
        return
    attribute.i = random.choice(_NUMBERS)
    attribute.f = random.choice(_FLOATS)
    attribute.s = random.choice(_TEXTS).encode()
    if attribute.ints:
        attribute.ints[random.randrange(len(attribute.ints))] = random.choice(_NUMBERS)
        if random.random() < 0.3:
            attribute.ints.append(random.choice(_NUMBERS))
        elif random.random() < 0.3:
            del attribute.ints[-1]


def _drop_attribute(model: onnx.ModelProto, random: Random) -> None:
    nodes = [node for node in _nodes(model) if node.attribute]
    if nodes:
        node = random.choice(nodes)
        del node.attribute[random.randrange(len(node.attribute))]


def _change_tensor(model: onnx.ModelProto, random: Random) -> None:
    tensors = list(model.graph.initializer)
    tensors += [a.t for node in _nodes(model) for a in node.attribute if a.HasField("t")]
    if not tensors:
        return
    tensor = random.choice(tensors)
    kind = random.randrange(5)
    if kind == 0 and tensor.dims:
        tensor.dims[random.randrange(len(tensor.dims))] = random.choice(_NUMBERS)
    elif kind == 1:
        tensor.data_type = random.randrange(30)
    elif kind == 2 and len(tensor.raw_data) % 8 == 0 and tensor.data_type == 7:
        values = [random.choice(_NUMBERS) for _ in range(len(tensor.raw_data) // 8)]
        tensor.raw_data = b"".join(v.to_bytes(8, "little", signed=True) for v in values)
    elif kind == 3 and tensor.raw_data:
        tensor.raw_data = tensor.raw_data[: random.randrange(len(tensor.raw_data))]
    elif tensor.external_data:
        entry = random.choice(tensor.external_data)
        entry.value = random.choice((*_TEXTS, *map(str, _NUMBERS)))
    elif tensor.dims and random.random() < 0.5:
        # Shapes stay consistent with the data, so that converters see them.
        count = 1
        for dim in tensor.dims:
            count *= dim
        del tensor.dims[:]
        tensor.dims.extend(random.choice(([count], [1, count], [count, 1], [1, 1, count])))


def _change_type(model: onnx.ModelProto, random: Random) -> None:
    values = [value for graph in parts_of(model).graphs for value in [*graph.input, *graph.output]]
    if not values:
        return
    kind = random.choice(values).type
    if random.random() < 0.1:
        kind.sequence_type.elem_type.tensor_type.elem_type = 1
        return
    tensor = kind.tensor_type
    choice = random.randrange(5)
    if choice == 0:
        tensor.elem_type = random.randrange(30)
    elif choice == 1 and tensor.shape.dim:
        random.choice(tensor.shape.dim).dim_value = random.choice(_NUMBERS)
    elif choice == 2 and tensor.shape.dim:
        random.choice(tensor.shape.dim).dim_param = random.choice(("n", "", "?", "n+1", "batch"))
    elif choice == 3 and tensor.shape.dim:
        del tensor.shape.dim[random.randrange(len(tensor.shape.dim))]
    else:
        tensor.shape.dim.add().dim_value = random.choice((1, 2, 3))


def _change_version(model: onnx.ModelProto, random: Random) -> None:
    if random.random() < 0.2:
        model.ir_version = random.choice(_NUMBERS)
    elif model.opset_import:
        version = random.choice((*range(1, 30), 0, -1, 9999))
        random.choice(model.opset_import).version = version


def _nest(model: onnx.ModelProto, random: Random) -> None:
    """Put a copy of the graph, or of a part of it, into an attribute of a node."""
    nodes = _nodes(model)
    if nodes and model.ByteSize() < 1 << 16:
        attribute = random.choice(nodes).attribute.add()
        attribute.name = random.choice(("body", "then_branch", "else_branch"))
        attribute.type = onnx.AttributeProto.GRAPH
        copy = onnx.GraphProto()
        copy.CopyFrom(_graph(model, random))
        attribute.g.CopyFrom(copy)


def _copy_field(model: onnx.ModelProto, random: Random) -> None:
    """Copy a message over another one of its type, anywhere in the tree."""
    found: dict[str, list[Message]] = {}
    waiting: list[Message] = [model]
    while waiting:
        message = waiting.pop()
        found.setdefault(message.DESCRIPTOR.name, []).append(message)
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                waiting.extend([value] if isinstance(value, Message) else list(value))
    kinds = [kind for kind in found.values() if len(kind) > 1]
    if kinds and model.ByteSize() < 1 << 16:
        target, source = random.sample(random.choice(kinds), 2)
        copy = type(source)()
        copy.CopyFrom(source)
        target.CopyFrom(copy)


_TREE: tuple[Callable[[onnx.ModelProto, Random], None], ...] = (
    *(_drop, _duplicate, _swap_nodes, _retarget, _retarget, _change_arity, _change_operator),
    *(_change_operator, _change_attribute, _change_attribute, _drop_attribute, _change_tensor),
    *(_change_tensor, _change_tensor, _change_type, _change_type, _change_version, _nest),
    *(_copy_field,),
)
