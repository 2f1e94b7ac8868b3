"""The command line: light to start, one line and exit code 2 for every error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
import tvm
from onnx import TensorProto, helper

import relaxc
import relaxc.check
from relaxc.cli import main
from relaxc.compiled_model import CompiledModel
from tests.relaxc.small_models import affine_relu, two_inputs

REPOSITORY = Path(relaxc.__file__).parents[1]


@pytest.fixture
def onnx_file(tmp_path: Path) -> Path:
    path = tmp_path / "affine.onnx"
    onnx.save(affine_relu(), path)
    return path


def test_help_and_import_leave_tvm_alone() -> None:
    code = (
        "import sys, relaxc, relaxc.cli\n"
        "try: relaxc.cli.main(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'tvm', 'tvm_ffi', 'torch', 'onnx', 'numpy', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    for name in ("compile", "run", "bench", "check", "explain", "opt"):
        assert name in done.stdout


def test_python_dash_m_is_the_command(tmp_path: Path) -> None:
    done = run_python("-m", "relaxc", "--version", cwd=tmp_path)
    assert done.stdout.strip() == f"relaxc {relaxc.__version__}"
    done = run_python("-m", "relaxc", "compile", "absent.onnx", cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1 and "absent.onnx" in done.stderr


def test_compile_run_check_explain(
    onnx_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library, html, report = (tmp_path / name for name in ("m.so", "report.html", "report.json"))
    dumps = tmp_path / "dumps"
    command = ["compile", str(onnx_file), "-o", str(library), "--dump-dir", str(dumps)]
    assert main(command) == 0 and library.is_file()
    assert "x: float32[2, 4]" in capsys.readouterr().out
    assert len(list(dumps.glob("*.py"))) > 5

    x = np.random.default_rng(0).standard_normal((2, 4)).astype("float32")
    np.save(tmp_path / "x.npy", x)
    outputs = tmp_path / "y.npz"
    assert main(["run", str(library), "--input", f"x={tmp_path}/x.npy", "-o", str(outputs)]) == 0
    np.testing.assert_array_equal(np.load(outputs)["y"], relaxc.load(library)(x))

    assert main(["check", str(onnx_file)]) == 0
    assert "ok" in capsys.readouterr().out
    assert main(["explain", str(library), "--html", str(html), "--json", str(report)]) == 0
    assert "kernels" in capsys.readouterr().out
    assert json.loads(report.read_text())["kernels"] and "<html" in html.read_text()


def test_check_fails_beyond_the_tolerance(onnx_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["check", str(onnx_file), "--tolerance"]
    wrong = relaxc.check.OutputError("y", 0.5)
    monkeypatch.setattr(relaxc.check, "check_against_onnxruntime", lambda *_, **__: [wrong])
    assert main([*command, "0.5"]) == 0 and main([*command, "0.4"]) == 1


@pytest.mark.parametrize("tolerance", ["-1", "nan"])
def test_check_refuses_a_tolerance_that_none_can_meet(
    tolerance: str, onnx_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(onnx_file), "--tolerance", tolerance]) == 2
    assert "at least 0" in capsys.readouterr().err


def test_explain_refuses_a_folder_that_is_not_there_before_it_compiles(
    onnx_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(onnx_file), "--html", str(tmp_path / "absent" / "r.html")]) == 2
    shown = capsys.readouterr()
    assert "no such folder" in shown.err and not shown.out


def test_opt_prints_why_a_pass_declines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,2,4,4] x, float[2] m) => (float[1,2,4,4] y, float[1,2,4,4] c)
    <float[2,2,1,1] w = {1,2,3,4}, float[2] s = {1,2}>
    { c = Conv(x, w) y = BatchNormalization(c, s, s, s, s) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "shared.onnx")
    assert main(["opt", str(tmp_path / "shared.onnx"), "-p", "fold_batch_norm"]) == 0
    assert "# fold_batch_norm: not c: it has another reader" in capsys.readouterr().out


def test_bench_measures_and_skips_what_is_missing(
    onnx_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tmp_path / "bench.json"
    command = ["bench", str(onnx_file), "--against", "onnxruntime,inductor", "--rounds", "3"]
    assert main([*command, "--json", str(result)]) == 0
    ours, peer, skipped = json.loads(result.read_text())
    assert ours["name"] == "relaxc" and len(ours["samples"]) == 3 and ours["relative_error"] < 1e-4
    assert peer["relative_error"] == 0 and peer["seconds"] > 0
    assert skipped["seconds"] is None and skipped["skipped"]
    assert "inductor" in capsys.readouterr().out


def test_opt_runs_named_passes(onnx_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", "--list"]) == 0
    listed = capsys.readouterr().out
    assert "fold_constant" in listed and "alias cse" in listed and "max_blocks=48" in listed
    command = ["opt", str(onnx_file), "-p", "lower_operators,fuse{max_blocks=1}"]
    assert main(command) == 0
    assert "# fuse_operators: nothing to do" in capsys.readouterr().out
    assert main(["opt", str(onnx_file), "-p", "lower_operators,fuse"]) == 0
    assert "# fuse_operators: 3 -> 1 bindings" in capsys.readouterr().out
    assert main(["opt", str(onnx_file), "-p", "cse,dce"]) == 0
    shown = capsys.readouterr().out
    assert "R.matmul" in shown and "# eliminate_dead_code: nothing to do" in shown


def test_compile_takes_options_of_passes(
    onnx_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = tmp_path / "m.so"
    command = ["compile", str(onnx_file), "-o", str(library), "--without", "dce,cse"]
    options = "fuse{max_blocks=1},plan_memory{reuse=false,in_place=false}"
    assert main([*command, "--pass-options", options]) == 0
    report = relaxc.load(library).report
    assert sum(kernel["calls"] for kernel in report.kernels) == 3
    assert report.arena_bytes == report.naive_bytes
    ran = {run["name"] for run in report.passes}
    assert "fuse_operators" in ran and "eliminate_dead_code" not in ran


def test_symbolic_dimensions_get_their_sizes_from_the_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(two_inputs(), tmp_path / "two.onnx")
    library = tmp_path / "two.so"
    assert main(["compile", str(tmp_path / "two.onnx"), "-o", str(library)]) == 0
    capsys.readouterr()
    assert main(["run", str(library), "--random", "--dim", "batch=3"]) == 0
    assert "total: float32[3, 4]" in capsys.readouterr().out


def test_buckets_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(two_inputs(), tmp_path / "two.onnx")
    library = tmp_path / "two.so"
    (name, rank), *_ = [
        (value.name, len(value.type.tensor_type.shape.dim)) for value in two_inputs().graph.input
    ]
    shape = ",".join(["2/8", *[""] * (rank - 1)])
    command = ["compile", str(tmp_path / "two.onnx"), "-o", str(library), "--quiet"]
    assert main([*command, "--shape", f"{name}={shape}"]) == 0
    model = relaxc.load(library)
    (sizes,) = model.buckets.sizes.values()
    assert sizes == (2, 8)


def unknown_operator(folder: Path) -> Path:
    graph = helper.make_graph(
        [helper.make_node("Frobnicate", ["x"], ["y"], name="odd", domain="somewhere")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("somewhere", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), folder / "unknown.onnx")
    return folder / "unknown.onnx"


def not_onnx(folder: Path) -> Path:
    (folder / "garbage.onnx").write_bytes(bytes(range(256)) * 8)
    return folder / "garbage.onnx"


def empty(folder: Path) -> Path:
    (folder / "empty.onnx").write_bytes(b"")
    return folder / "empty.onnx"


def truncated(folder: Path) -> Path:
    data = affine_relu().SerializeToString()
    (folder / "cut.onnx").write_bytes(data[: len(data) // 2])
    return folder / "cut.onnx"


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda folder: folder / "absent.onnx", "InvalidModel"),
        (lambda folder: folder, "InvalidModel"),
        (not_onnx, "InvalidModel"),
        (empty, "InvalidModel"),
        (truncated, "InvalidModel"),
        (unknown_operator, "UnsupportedOperator"),
    ],
)
def test_bad_models_are_one_line_and_exit_code_2(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], make: object, error: str
) -> None:
    model = make(tmp_path)  # type: ignore[operator]
    before = set(tmp_path.iterdir())
    assert main(["compile", str(model), "-o", str(tmp_path / "m.so")]) == 2
    shown = capfd.readouterr().err
    assert shown.startswith(f"relaxc: {error}: ") and shown.count("\n") == 1
    assert model.name in shown
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["compile", "{model}", "-o", "{folder}/no/m.so"], "no such folder"),
        (["compile", "{model}", "--target", "abacus"], "unknown target"),
        (["compile", "{model}", "--threads", "0"], "threads must be"),
        (["compile", "{model}", "--mcpu", "abacus"], "no processor 'abacus'"),
        (["compile", "{model}", "--arch", "sm_80"], "--target cuda"),
        (["compile", "{model}", "--target", "opencl", "--arch", "sm_80"], "--target cuda or rocm"),
        (["compile", "{model}", "--target", "cuda", "--arch", "sm_99"], "no CUDA architecture"),
        (["compile", "{model}", "--target", "cuda", "--mcpu", "abacus"], "no processor 'abacus'"),
        (["compile", "{model}", "--triple", "abacus-linux"], "no processor 'abacus'"),
        (["link", "{folder}/absent.tar"], "absent.tar"),
        (["compile", "{model}", "--shape", "x=1"], "the input has 2"),
        (["compile", "{model}", "--shape", "x="], "the input has 2"),
        (["compile", "{model}", "--shape", "x=0/4,4"], "positive sizes"),
        (["compile", ""], "no such file"),
        (["opt", "{model}", "-o", "{folder}/no/m.py"], "no such folder"),
        (["compile", "{model}", "--without", "sorcery"], "sorcery"),
        (["compile", "{model}", "--dump-dir", "{model}/x"], "cannot write dumps"),
        (["opt", "{model}", "-p", "sorcery"], "sorcery"),
        (["opt", "{model}", "-p", "cse{{max_bytes=4}}"], "at position 5: pass 'eliminate_common"),
        (["opt", "{model}", "-p", "algebra{{without=[sorcery]}}"], "no rule or family is called"),
        (["compile", "{model}", "--pass-options", "fuse{{max_blocks=x}}"], "at position 6: pass"),
        (["compile", "{model}", "--pass-options", "fuse{{"], "got the end"),
        (["opt"], "needs a model"),
        (["bench", "{model}", "--against", "abacus"], "unknown engine"),
        (["run", "{folder}/absent.so"], "absent.so"),
        (["run", "{model}"], "not a model compiled by relaxc"),
    ],
)
def test_bad_options(
    onnx_file: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    folder = onnx_file.parent
    assert main([a.format(model=onnx_file, folder=folder) for a in arguments]) == 2
    shown = capfd.readouterr().err
    assert text in shown and shown.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == [onnx_file.name]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.zeros((2, 3), "float64"), "wrong dtype"),
        (np.zeros(6, "float32"), "wrong rank"),
        (np.zeros((3, 2), "float32"), "wrong shape"),
        (None, "cannot read input"),
    ],
)
def test_bad_inputs_of_run(
    square_model: CompiledModel,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    value: np.ndarray | None,
    text: str,
) -> None:
    library = square_model.save(tmp_path / "m.so")
    if value is not None:
        np.save(tmp_path / "x.npy", value)
    assert main(["run", str(library), "-i", f"x={tmp_path}/x.npy"]) == 2
    assert text in capfd.readouterr().err
    assert main(["run", str(library), "-i", f"z={tmp_path}/x.npy"]) == 2


def test_run_of_a_damaged_file(
    square_model: CompiledModel, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = square_model.save(tmp_path / "m.so").read_bytes()
    (tmp_path / "m.so").write_bytes(data[:3000])
    assert main(["run", str(tmp_path / "m.so"), "--random"]) == 2
    assert "cut short" in capfd.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(onnx_file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o500)
        assert main(["compile", str(onnx_file), "-o", f"{folder}/m.so"]) == 2


def test_no_rounds_are_refused(onnx_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(onnx_file), "--rounds", "0"]) == 2
    assert "--rounds must be a positive number" in capsys.readouterr().err


def test_running_for_an_absent_gpu_names_the_device(
    onnx_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if tvm.cuda().exist:
        pytest.skip("this machine has a GPU")
    library = str(tmp_path / "gpu.so")
    compiling = ["compile", str(onnx_file), "-o", library, "--target", "cuda", "--arch", "sm_80"]
    assert main([*compiling, "--sources", str(tmp_path / "sources")]) == 0
    assert "__global__" in (tmp_path / "sources" / "kernels.cu").read_text()
    assert main(["run", library, "--random"]) == 2
    assert (
        "compiled for cuda (sm_80) and this machine has no such device" in capsys.readouterr().err
    )


def test_the_processor_that_drives_a_gpu_is_named_by_its_triple(
    onnx_file: Path, tmp_path: Path
) -> None:
    objects = tmp_path / "model.tar"
    compiling = ["compile", str(onnx_file), "-o", str(objects), "--target", "cuda"]
    assert main([*compiling, "--arch", "sm_86", "--triple", "aarch64-linux-gnu"]) == 0
    with pytest.raises(relaxc.IncompatibleArtifact, match="compiled for a aarch64 processor"):
        relaxc.link(objects, tmp_path / "model.so")


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    with pytest.raises(relaxc.InvalidModel):
        main(["compile", str(tmp_path / "absent.onnx"), "--debug"])


def run_python(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=cwd
    )
