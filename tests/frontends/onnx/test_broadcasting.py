"""Sizes that the file fixes and that do not broadcast are refused at import."""

from __future__ import annotations

import numpy as np
import pytest

from frontends.errors import InvalidModel
from frontends.onnx import import_onnx
from tests.frontends.onnx.compiled import check_node, node_model


def f(*shape: int) -> np.ndarray:
    return np.ones(shape, "float32")


@pytest.mark.parametrize("wanted", [[5, 3], [2, 7], [-3, 3], [0, 3], [4, 5, 3]])
@pytest.mark.parametrize("rows", [2, "n"])
def test_expand_to_another_size(wanted: list[int], rows: int | str) -> None:
    x = f(2, 3) if wanted[-1] == 3 and rows == 2 else f(2, 4)
    model = node_model("Expand", [x, np.asarray(wanted)], 1, [1], symbolic={0: [rows, x.shape[1]]})
    with pytest.raises(InvalidModel, match="not broadcastable"):
        import_onnx(model)


ONE_WAY = [
    ("Gemm", "", [f(2, 3), f(3, 4), f(5, 2, 4)]),
    ("Gemm", "", [f(2, 3), f(3, 4), f(3)]),
    ("PRelu", "", [f(2, 3), f(1, 2, 3)]),
    ("PRelu", "", [f(2, 3), f(5, 3)]),
    ("BiasGelu", "com.microsoft", [f(2, 3), f(5)]),
    ("FusedGemm", "com.microsoft", [f(2, 3), f(3, 4), f(1, 2, 4)]),
]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("op", "domain", "inputs"), ONE_WAY)
def test_an_operand_that_broadcasts_one_way(
    op: str, domain: str, inputs: list[np.ndarray], symbolic: bool
) -> None:
    """The result has the shape of the others: the operand has no more axes and no other size."""
    attributes = {"beta": 2.0} if op == "Gemm" else {}
    model = node_model(
        op, inputs, 1, [len(inputs) - 1], domain=domain, **attributes,
        symbolic={0: ["n", inputs[0].shape[1]]} if symbolic else None,
    )  # fmt: skip
    if symbolic and inputs[-1].shape == (5, 3):
        assert import_onnx(model)  # it may be 5
        return
    with pytest.raises(InvalidModel, match="does not broadcast to"):
        import_onnx(model)


def test_a_permutation_lists_each_axis() -> None:
    for perm in ([0, 0], [0], [0, 2]):
        with pytest.raises(InvalidModel, match="does not list the axes of a tensor of rank 2"):
            import_onnx(node_model("Transpose", [f(2, 3)], 1, perm=perm))


def test_steps_of_any_length() -> None:
    """A step beyond the axis selects one element, whatever it overflows."""
    x, least, most = np.arange(4, dtype="float32"), -(2**63), 2**63 - 1
    for start, end, step in [(0, 4, 2**62), (3, -9, least), (least, most, most), (-7, 7, least)]:
        bounds = [np.asarray([number]) for number in (start, end, 0, step)]
        for symbolic in (None, {0: ["n"]}):
            check_node("Slice", x, *bounds, constants=[1, 2, 3, 4], symbolic=symbolic)
    with pytest.raises(InvalidModel, match="a step of zero never arrives"):
        bounds = [np.asarray([number]) for number in (0, 4, 0, 0)]
        import_onnx(node_model("Slice", [x, *bounds], 1, [1, 2, 3, 4]))
