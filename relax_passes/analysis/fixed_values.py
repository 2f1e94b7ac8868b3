"""Values that depend on fixed inputs and constants alone: they are the same from call to call.

Here are also the names by which a module tells what `lift_preparation` has split off.
"""

from __future__ import annotations

from tvm import relax

FIXED_INPUTS = "relaxc.fixed_inputs"  # attribute of a function: the numbers of such parameters
PREPARE = "prepare"  # the name of the function that computes such values
TAKES = "relaxc.takes"  # attribute of it and of `main`: the numbers of the inputs that they take


def fixed_inputs(func: relax.Function) -> list[relax.Var]:
    """Return the parameters that the frontend has marked as staying from call to call."""
    numbers = (func.attrs or {}).get(FIXED_INPUTS) or ()
    return [func.params[int(number)] for number in numbers]


def fixed_values(func: relax.Function) -> set[relax.Var]:
    """Return the fixed inputs of a function and the variables that are computed from them alone.

    Constants may take part; what depends on constants only is no such variable.
    """
    fixed = set(fixed_inputs(func))
    for block in func.body.blocks if fixed else ():
        for binding in block.bindings:
            if isinstance(binding, relax.VarBinding) and not isinstance(binding.value, relax.If):
                read = relax.analysis.free_vars(binding.value)
                if read and all(var in fixed for var in read):
                    fixed.add(binding.var)
    return fixed
