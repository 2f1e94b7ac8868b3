"""PyTorch frontend: a module or an exported program in, a Relax graph out.

`torch` and `tvm` are imported when `import_torch` is first called, not when this package is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frontends.imported_model import ImportedModel

__all__ = ["import_torch"]


def import_torch(
    source: Any,
    example_inputs: Any = None,
    *,
    dynamic_shapes: Any = None,
    keep_params: bool = False,
) -> ImportedModel:
    """Import a `torch.nn.Module` in eval mode, or a `torch.export.ExportedProgram`.

    A buffer or input that the module writes to is returned as one more output, `new_<name>`; such
    a buffer is an input too, after the module's own inputs and called as the module calls it.

    Args:
        source: The module or the exported program.
        example_inputs: Example arguments, a tuple or a dict by name; needed for a module.
        dynamic_shapes: As `torch.export.export` takes it; a plain string names a dimension.
        keep_params: The parameters and buffers that are read become inputs, not constants. They
            follow the module's own inputs, parameters first, each in the order and by the name
            (`"0.weight"`) that the module has.

    Raises:
        InvalidModel: The module is in training mode, has no example inputs, or cannot be
            exported.
        UnsupportedOperator: Some ATen operators have no converter; the message lists all of them.
    """
    from frontends.torch.importer import import_exported_program

    return import_exported_program(source, example_inputs, dynamic_shapes, keep_params)
