"""Frontends: a model file or module in, a Relax graph out.

Importing this package is cheap: TVM is only imported by the frontend that needs it.
"""

from frontends.errors import InvalidInput, InvalidModel, RelaxcError, UnsupportedOperator

__all__ = ["InvalidInput", "InvalidModel", "RelaxcError", "UnsupportedOperator"]
