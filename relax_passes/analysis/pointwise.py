"""Relax operators that compute each element from the same element of each operand.

Passes over layouts and views ask before lowering, when no loop nest tells the category yet.
"""

from __future__ import annotations

# The first argument is the tensor; what follows are numbers.
UNARY = frozenset(
    f"relax.{name}"
    for name in (
        "nn.relu nn.relu6 nn.leakyrelu nn.silu nn.gelu nn.gelu_tanh nn.selu nn.softplus clip "
        "sigmoid tanh exp log sqrt rsqrt abs negative square erf floor ceil round sign"
    ).split()
)
# Two tensors that broadcast against each other.
BINARY = frozenset(
    f"relax.{name}" for name in "add subtract multiply divide maximum minimum power".split()
)
# Of both, what may have no finite value at zeros.
INFINITE_AT_ZERO = frozenset({"relax.log", "relax.rsqrt", "relax.divide", "relax.power"})
