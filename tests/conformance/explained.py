"""Why cases that refuse the exact result do not pass; a test proves that they refuse it."""

from __future__ import annotations

DFT = (
    "the expected numbers carry the rounding errors of a float32 transform: where the exact "
    "inverse of the recorded input is 0 they are 1.9e-7, beyond the tolerance of 1e-7"
)
EXPLAINED = {
    "node/dft_inverse": DFT,
    "node/dft_inverse_opset19": DFT,
}
