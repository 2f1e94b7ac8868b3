"""`relaxc check --coverage`: the table of operators, without compiling."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from relaxc.cli import main
from relaxc.coverage import coverage_rows, model_coverage
from tests.relaxc.small_models import affine_relu


def test_rows_count_the_nodes_of_each_operator(tmp_path: Path) -> None:
    onnx.save(affine_relu(), tmp_path / "m.onnx")
    rows = coverage_rows(model_coverage(tmp_path / "m.onnx"))
    assert rows == [
        (name, "ai.onnx", "17", "1", "converter", "") for name in ("Add", "MatMul", "Relu")
    ]


def test_a_covered_model_is_listed_and_not_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import relaxc

    def never(*args: object, **named: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(relaxc, "compile", never)
    onnx.save(affine_relu(), tmp_path / "m.onnx")
    assert main(["check", str(tmp_path / "m.onnx"), "--coverage"]) == 0
    out = capsys.readouterr().out
    assert "MatMul" in out and "converter" in out and "every operator can be imported" in out


def test_unsupported_operators_and_variants_are_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    unknown = helper.make_node("Unknown", ["x"], ["y"], "odd", domain="own")
    text = helper.make_node("Cast", ["x"], ["s"], "to_text", to=TensorProto.STRING)
    back = helper.make_node("Cast", ["s"], ["y"], "back", to=TensorProto.FLOAT)
    image = [
        helper.make_node("Cast", ["x"], ["bytes"], to=TensorProto.UINT8),
        helper.make_node("ImageDecoder", ["bytes"], ["pixels"], "photo"),
        helper.make_node("Cast", ["pixels"], ["y"], to=TensorProto.FLOAT),
    ]
    opsets[0].version = 20
    for nodes, expected in (([unknown], "own.Unknown (opset 1) in 1 node(s): odd"),
                            (image, "in 1 node(s): photo (the decoder of a file format is no"),
                            ([text, back], "to_text")):  # fmt: skip
        graph = helper.make_graph(nodes, "g", [x], [y])
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
        assert main(["check", str(tmp_path / "m.onnx"), "--coverage"]) == 2
        captured = capsys.readouterr()
        assert expected in captured.err and captured.err.startswith("relaxc: Unsupported")
        assert nodes[0].op_type in captured.out
