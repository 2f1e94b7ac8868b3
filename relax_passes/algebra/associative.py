"""Associativity: constants along a chain are gathered into one, equal factors meet.

The chains of square roots and absolute values are those of the associative family of Niu et al.,
DNNFusion, PLDI 2021, table 4.
"""

from __future__ import annotations

from relax_passes.algebra.rule import Family, Ieee, Rule

_ROUNDING = Ieee.ROUNDING
_CONSTANTS = "always: one operation less, the constants meet at compile time"
_SIGNS = "always: the sign goes into the other operator"
_FEWER = "always: fewer operations"

ASSOCIATIVE = Family(
    "associative",
    "a chain of sums or products may be grouped otherwise",
    (
        Rule("add_constants", "(x + a) + b = x + (a + b)", _ROUNDING, _CONSTANTS, "fi"),
        Rule("subtract_add", "(x - a) + b = x + (b - a)", _ROUNDING, _CONSTANTS, "fi"),
        Rule("add_subtract", "(x + a) - b = x + (a - b)", _ROUNDING, _CONSTANTS, "fi"),
        Rule("subtract_constants", "(x - a) - b = x - (a + b)", _ROUNDING, _CONSTANTS, "fi"),
        Rule("from_constant_add", "(a - x) + b = (a + b) - x", _ROUNDING, _CONSTANTS, "fi"),
        Rule("from_constant_subtract", "(a - x) - b = (a - b) - x", _ROUNDING, _CONSTANTS, "fi"),
        Rule("from_constant_of_sum", "a - (x + b) = (a - b) - x", _ROUNDING, _CONSTANTS, "fi"),
        Rule("from_constant_of_left", "a - (x - b) = (a + b) - x", _ROUNDING, _CONSTANTS, "fi"),
        Rule("from_constant_of_right", "a - (b - x) = x + (a - b)", _ROUNDING, _CONSTANTS, "fi"),
        Rule("multiply_constants", "(x * a) * b = x * (a * b)", _ROUNDING, _CONSTANTS, "fi"),
        Rule("divide_multiply", "(x / a) * b = x * (b / a)", _ROUNDING, _CONSTANTS),
        Rule("multiply_divide", "(x * a) / b = x * (a / b)", _ROUNDING, _CONSTANTS),
        Rule("divide_constants", "(x / a) / b = x / (a * b)", _ROUNDING, _CONSTANTS),
        Rule("quotient_multiply", "(a / x) * b = (a * b) / x", _ROUNDING, _CONSTANTS),
        Rule("quotient_divide", "(a / x) / b = (a / b) / x", _ROUNDING, _CONSTANTS),
        Rule("quotient_of_product", "a / (x * b) = (a / b) / x", _ROUNDING, _CONSTANTS),
        Rule("quotient_of_quotient", "a / (x / b) = (a * b) / x", _ROUNDING, _CONSTANTS),
        Rule("quotient_of_inverse", "a / (b / x) = x * (a / b)", _ROUNDING, _CONSTANTS),
        Rule(
            "max_constants",
            "max(max(x, a), b) = max(x, max(a, b))",
            Ieee.ZERO_SIGN,
            _CONSTANTS,
            "fi",
        ),
        Rule(
            "min_constants",
            "min(min(x, a), b) = min(x, min(a, b))",
            Ieee.ZERO_SIGN,
            _CONSTANTS,
            "fi",
        ),
        Rule("relu_of_max", "relu(max(x, a)) = max(x, max(a, 0))", Ieee.ZERO_SIGN, _CONSTANTS),
        Rule("max_of_relu", "max(relu(x), a) = max(x, max(a, 0))", Ieee.ZERO_SIGN, _CONSTANTS),
        Rule(
            *("sum_of_shifted", "(x + a) + (y + b) = (x + y) + (a + b)", _ROUNDING),
            *(_CONSTANTS, "fi"),
        ),
        Rule(
            *("product_of_scaled", "(x * a) * (y * b) = (x * y) * (a * b)", _ROUNDING),
            *(_CONSTANTS, "fi"),
        ),
        Rule("product_of_negatives", "(-x) * (-y) = x * y", Ieee.EXACT, _SIGNS, "fi"),
        Rule("quotient_of_negatives", "(-x) / (-y) = x / y", Ieee.EXACT, _SIGNS),
        Rule("negative_times_constant", "(-x) * a = x * (-a)", Ieee.EXACT, _SIGNS, "fi"),
        Rule("negative_of_product", "-(x * a) = x * (-a)", Ieee.EXACT, _SIGNS, "fi"),
        Rule("negative_of_quotient", "-(x / a) = x / (-a)", Ieee.EXACT, _SIGNS),
        Rule("negative_over_constant", "(-x) / a = x / (-a)", Ieee.EXACT, _SIGNS),
        Rule("add_negative", "x + (-y) = x - y", Ieee.EXACT, _SIGNS, "fi"),
        Rule("subtract_negative", "x - (-y) = x + y", Ieee.EXACT, _SIGNS, "fi"),
        Rule("negative_of_difference", "-(x - y) = y - x", Ieee.ZERO_SIGN, _SIGNS, "fi"),
        Rule("product_of_absolutes", "abs(x) * abs(y) = abs(x * y)", Ieee.EXACT, _FEWER),
        Rule(
            *("absolutes_around", "(abs(x) * z) * abs(y) = abs(x * y) * z"),
            *(Ieee.NONFINITE, _FEWER),
        ),
        Rule(
            *("roots_around", "(x * sqrt(y)) * (sqrt(y) * z) = (x * z) * y"),
            *(Ieee.NONFINITE, _FEWER),
        ),
        Rule("square_of_root", "sqrt(x) * sqrt(x) = x", Ieee.NONFINITE, _FEWER),
        Rule(
            *("inverses_around", "(1 / x) * (1 / (x * y)) = 1 / ((x * x) * y)"),
            *(Ieee.NONFINITE, "always: one division less"),
        ),
        Rule("product_of_exponentials", "exp(x) * exp(y) = exp(x + y)", Ieee.NONFINITE, _FEWER),
        Rule("quotient_of_exponentials", "exp(x) / exp(y) = exp(x - y)", Ieee.NONFINITE, _FEWER),
    ),
)
