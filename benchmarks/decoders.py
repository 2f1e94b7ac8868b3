"""Decoders with a cache as ONNX models: GPT-2 and a small Llama, with the weights of the zoo's.

A step takes tokens and writes their keys and values into a cache of fixed capacity, by
com.microsoft's GroupQueryAttention: past and present may be one buffer, as ONNX Runtime has it.
A prefill is a step of many tokens from an empty cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks import zoo

CAPACITY = 512  # tokens that a cache has room for
DECODERS = ("gpt2", "llama_small")


@dataclass
class _Graph:
    """Nodes and weights of a model that is being built."""

    weights: Mapping[str, np.ndarray]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def op(self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", **attrs: Any) -> Any:
        """Add a node; returns its output's name, or a list of several."""
        names = [f"{kind.lower()}_{len(self.nodes)}_{at}" for at in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, domain=domain, **attrs))
        return names[0] if outputs == 1 else names

    def weight(self, name: str, *, transpose: bool = False) -> str:
        """Return the name of a weight, transposed where the module stores (out, in)."""
        known = name + ".t" if transpose else name
        if known not in self.initializers:
            value = self.weights[name]
            value = np.ascontiguousarray(value.T) if transpose else value
            self.initializers[known] = numpy_helper.from_array(value, known)
        return known

    def constant(self, name: str, value: np.ndarray) -> str:
        """Return the name of a constant."""
        self.initializers.setdefault(name, numpy_helper.from_array(value, name))
        return name


def decoder(name: str, tokens: int, capacity: int = CAPACITY) -> onnx.ModelProto:
    """Return a decoder as a model of `tokens` tokens at a time.

    Inputs: `input_ids` and `position_ids` (1, tokens), `valid` (1,) of int32, the number of tokens
    in the cache with the new ones, less one; `past_key.i` and `past_value.i` (1, groups, capacity,
    head size). Outputs: `logits` (1, 1, vocabulary) of the last token, `present_key.i`,
    `present_value.i`.

    Raises:
        KeyError: If there is no decoder of that name.
    """
    module, _ = zoo.torch_model(name)
    weights = {key: value.numpy() for key, value in module.state_dict().items()}
    graph = _Graph(weights)
    # A prompt is where all tokens are new; any other number says that the cache holds some.
    total = tokens if tokens > 1 else capacity
    graph.constant("total", np.array(total, "int32"))
    config = module.model.config
    build = {"gpt2": _gpt2, "llama_small": _llama}[name]
    layers, groups, size = build(graph, config)
    cache = [1, groups, capacity, size]
    values = helper.make_tensor_value_info
    inputs = [values(key, TensorProto.INT64, [1, tokens]) for key in ("input_ids", "position_ids")]
    inputs.append(values("valid", TensorProto.INT32, [1]))
    outputs = [values("logits", TensorProto.FLOAT, [1, 1, config.vocab_size])]
    for layer in range(layers):
        for part in ("key", "value"):
            inputs.append(values(f"past_{part}.{layer}", TensorProto.FLOAT, cache))
            outputs.append(values(f"present_{part}.{layer}", TensorProto.FLOAT, cache))
    made = helper.make_graph(graph.nodes, name, inputs, outputs, list(graph.initializers.values()))
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=10)


def state_names(model: onnx.ModelProto) -> dict[str, str]:
    """Return the cache's inputs, each with the output that is its next value."""
    names = [value.name for value in model.graph.input]
    return {name: name.replace("past", "present") for name in names if name.startswith("past")}


def _attend(
    graph: _Graph, layer: int, qkv: tuple[str, str, str], heads: int, groups: int, **attrs: Any
) -> str:
    tables = (
        [graph.constant("cos", attrs.pop("cos")), graph.constant("sin", attrs.pop("sin"))]
        if ("cos" in attrs)
        else []
    )
    past = [f"past_key.{layer}", f"past_value.{layer}"]
    present = [f"present_key.{layer}", f"present_value.{layer}"]
    out = f"attention_{layer}"
    node = helper.make_node(
        "GroupQueryAttention", [*qkv, *past, "valid", "total", *tables], [out, *present],
        domain="com.microsoft", num_heads=heads, kv_num_heads=groups, do_rotary=int(bool(tables)),
        **attrs,
    )  # fmt: skip
    graph.nodes.append(node)
    return out


def _last(graph: _Graph, x: str) -> str:
    """Return the last token of a sequence: its logits alone are asked for."""
    ends = [graph.constant(name, np.array([at], "int64")) for name, at in
            (("minus_one", -1), ("end", 2**31), ("axis", 1))]  # fmt: skip
    return graph.op("Slice", x, *ends)


def _gpt2(graph: _Graph, config: Any) -> tuple[int, int, int]:
    def linear(x: str, name: str) -> str:
        product = graph.op("MatMul", x, graph.weight(f"{name}.weight"))
        return graph.op("Add", product, graph.weight(f"{name}.bias"))

    def norm(x: str, name: str) -> str:
        scale, shift = graph.weight(f"{name}.weight"), graph.weight(f"{name}.bias")
        return graph.op("LayerNormalization", x, scale, shift, epsilon=config.layer_norm_epsilon)

    root = "model.transformer"
    tokens = graph.op("Gather", graph.weight(f"{root}.wte.weight"), "input_ids")
    places = graph.op("Gather", graph.weight(f"{root}.wpe.weight"), "position_ids")
    x = graph.op("Add", tokens, places)
    heads = config.n_head
    for layer in range(config.n_layer):
        block = f"{root}.h.{layer}"
        packed = linear(norm(x, f"{block}.ln_1"), f"{block}.attn.c_attn")
        qkv = tuple(graph.op("Split", packed, outputs=3, axis=2, num_outputs=3))
        attended = _attend(graph, layer, qkv, heads, heads)
        x = graph.op("Add", x, linear(attended, f"{block}.attn.c_proj"))
        wide = linear(norm(x, f"{block}.ln_2"), f"{block}.mlp.c_fc")
        active = graph.op("Gelu", wide, approximate="tanh")
        x = graph.op("Add", x, linear(active, f"{block}.mlp.c_proj"))
    x = norm(_last(graph, x), f"{root}.ln_f")
    _logits(graph, x, f"{root}.wte.weight")
    return config.n_layer, heads, config.n_embd // heads


def _llama(graph: _Graph, config: Any) -> tuple[int, int, int]:
    def linear(x: str, name: str) -> str:
        return graph.op("MatMul", x, graph.weight(f"{name}.weight", transpose=True))

    def norm(x: str, name: str) -> str:
        scale = graph.weight(f"{name}.weight")
        return graph.op("SimplifiedLayerNormalization", x, scale, epsilon=config.rms_norm_eps)

    size = config.hidden_size // config.num_attention_heads
    tables = _rotary_tables(size, config.max_position_embeddings)
    x = graph.op("Gather", graph.weight("model.model.embed_tokens.weight"), "input_ids")
    for layer in range(config.num_hidden_layers):
        block = f"model.model.layers.{layer}"
        before = norm(x, f"{block}.input_layernorm")
        q, k, v = (linear(before, f"{block}.self_attn.{part}_proj") for part in "qkv")
        heads = config.num_attention_heads, config.num_key_value_heads
        attended = _attend(graph, layer, (q, k, v), *heads, **tables)
        x = graph.op("Add", x, linear(attended, f"{block}.self_attn.o_proj"))
        before = norm(x, f"{block}.post_attention_layernorm")
        gate, up = (linear(before, f"{block}.mlp.{part}_proj") for part in ("gate", "up"))
        active = graph.op("Mul", gate, graph.op("Sigmoid", gate))
        x = graph.op("Add", x, linear(graph.op("Mul", active, up), f"{block}.mlp.down_proj"))
    x = norm(_last(graph, x), "model.model.norm")
    _logits(graph, x, "model.lm_head.weight")
    return config.num_hidden_layers, config.num_key_value_heads, size


def _logits(graph: _Graph, x: str, weight: str) -> None:
    inputs = [x, graph.weight(weight, transpose=True)]
    graph.nodes.append(helper.make_node("MatMul", inputs, ["logits"]))


def _rotary_tables(size: int, places: int, base: float = 10000.0) -> dict[str, np.ndarray]:
    angles = np.outer(np.arange(places), base ** (-np.arange(0, size, 2) / size))
    return {"cos": np.cos(angles).astype("float32"), "sin": np.sin(angles).astype("float32")}
