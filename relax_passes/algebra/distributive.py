"""Distributivity: a common factor is taken out, a scale and a shift become one of each.

The first block is the distributive family of Niu et al., DNNFusion, PLDI 2021, table 4.
"""

from __future__ import annotations

from relax_passes.algebra.rule import Family, Ieee, Rule

_ROUNDING, _NONFINITE = Ieee.ROUNDING, Ieee.NONFINITE
_FACTOR = "where the common factor is read once instead of twice"
_AFFINE = "always: three operations become a scale and a shift"
_PRODUCT = "always: one matrix product instead of two"

DISTRIBUTIVE = Family(
    "distributive",
    "x * y + x * z = x * (y + z), and the same for matrix products",
    (
        Rule("common_factor", "x * y + x * z = x * (y + z)", _NONFINITE, _FACTOR, "fi"),
        Rule("common_factor_minus", "x * y - x * z = x * (y - z)", _NONFINITE, _FACTOR, "fi"),
        Rule("common_divisor", "x / z + y / z = (x + y) / z", _NONFINITE, _FACTOR),
        Rule("common_divisor_minus", "x / z - y / z = (x - y) / z", _NONFINITE, _FACTOR),
        Rule("add_itself_scaled", "x + x * y = x * (y + 1)", _NONFINITE, _FACTOR, "fi"),
        Rule("subtract_itself_scaled", "x - x * y = x * (1 - y)", _NONFINITE, _FACTOR, "fi"),
        Rule("scaled_less_itself", "x * y - x = x * (y - 1)", _NONFINITE, _FACTOR, "fi"),
        Rule("square_less_product", "square(x) - x * z = x * (x - z)", _NONFINITE, _FACTOR, "fi"),
        Rule("square_plus_product", "square(x) + x * z = x * (x + z)", _NONFINITE, _FACTOR, "fi"),
        Rule(
            "scale_an_affine", "((x * a) + b) * c = x * (a * c) + b * c", _ROUNDING, _AFFINE, "fi"
        ),
        Rule(
            "scale_a_left_affine",
            "((x * a) - b) * c = x * (a * c) - b * c",
            _ROUNDING,
            _AFFINE,
            "fi",
        ),
        Rule("divide_an_affine", "((x * a) + b) / c = x * (a / c) + b / c", _ROUNDING, _AFFINE),
        Rule(
            "shift_after_scale", "((x + a) * b) + c = x * b + (a * b + c)", _ROUNDING, _AFFINE, "fi"
        ),
        Rule(
            "shift_back_after_scale",
            "((x - a) * b) + c = x * b + (c - a * b)",
            _ROUNDING,
            _AFFINE,
            "fi",
        ),
        Rule(
            "shift_left_after_scale",
            "((x - a) * b) - c = x * b - (a * b + c)",
            _ROUNDING,
            _AFFINE,
            "fi",
        ),
        Rule("shift_after_division", "((x - a) / b) + c = x / b + (c - a / b)", _ROUNDING, _AFFINE),
        Rule("same_input_products", "x @ y + x @ z = x @ (y + z)", _NONFINITE, _PRODUCT, "fi"),
        Rule("same_weight_products", "x @ y + z @ y = (x + z) @ y", _NONFINITE, _PRODUCT, "fi"),
        Rule("same_input_difference", "x @ y - x @ z = x @ (y - z)", _NONFINITE, _PRODUCT, "fi"),
    ),
)
