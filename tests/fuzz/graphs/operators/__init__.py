"""The operators the fuzzer draws from, by family; importing this fills the table."""

from tests.fuzz.graphs.operators import (  # noqa: F401
    binary,
    indexing,
    normalization,
    products,
    reductions,
    structure,
    unary,
    views,
    windows,
)
