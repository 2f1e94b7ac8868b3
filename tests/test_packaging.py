"""The wheel works in a clean environment outside the checkout, and the pinned TVM FFI is sound."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib import metadata
from pathlib import Path

import onnx
import pytest

import relaxc
from tests.relaxc.small_models import affine_relu

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("relaxc", "frontends", "relax_passes", "tir_schedules")


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command that sees neither the checkout nor this environment's variables."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))}
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, env=environment, cwd=cwd
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy: a build inside the checkout would leave stale files behind."""
    source = tmp_path_factory.mktemp("source")
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source / name)
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check")
    run(*pip, "--no-deps", "--no-build-isolation", "-w", "dist", ".", cwd=source)
    (built,) = (source / "dist").glob("*.whl")
    return built


def test_the_wheel_compiles_and_runs_a_model_outside_the_checkout(
    wheel: Path, tmp_path: Path
) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    install = ("install", "--quiet", "--disable-pip-version-check", "--no-deps", str(wheel))
    run(sys.executable, "-m", "pip", "--python", python, *install, cwd=tmp_path)
    # The dependencies are borrowed from this environment by a plain path, whose own .pth files
    # (an editable install of relaxc among them) do not count.
    (site,) = environment.glob("lib/python*/site-packages")
    borrowed = {sysconfig.get_path(key) for key in ("purelib", "platlib")}
    (site / "borrowed.pth").write_text("\n".join(sorted(borrowed)))

    onnx.save(affine_relu(), tmp_path / "affine.onnx")
    script = (
        "import numpy as np, relaxc, frontends, relax_passes, tir_schedules\n"
        "for package in (relaxc, frontends, relax_passes, tir_schedules):\n"
        f"    assert package.__file__.startswith({str(site)!r}), package.__file__\n"
        "model = relaxc.compile('affine.onnx')\n"
        "model.save('affine.so')\n"
        "x = np.ones((2, 4), 'float32')\n"
        "assert np.array_equal(relaxc.load('affine.so')(x), model(x))\n"
    )
    run(python, "-c", script, cwd=tmp_path)
    command = environment / "bin" / "relaxc"
    assert "y: float32[2, 3]" in run(command, "run", "affine.so", "--random", cwd=tmp_path)


def test_the_wheel_holds_the_four_packages_and_nothing_else(wheel: Path) -> None:
    listing = run(sys.executable, "-m", "zipfile", "-l", wheel, cwd=wheel.parent)
    names = re.findall(r"^(\S+)", listing, re.M)[1:]
    tops = {name.split("/")[0] for name in names}
    assert tops == {*PACKAGES, f"relaxc-{relaxc.__version__}.dist-info"}
    assert f"relaxc-{relaxc.__version__}.dist-info/licenses/LICENSE" in names


def test_the_installed_tvm_ffi_is_the_pinned_one_and_does_not_crash() -> None:
    pin = re.search(r'"apache-tvm-ffi==([^"]+)"', (REPOSITORY / "pyproject.toml").read_text())
    assert pin is not None and metadata.version("apache-tvm-ffi") == pin[1]
    # 0.1.15.post1 and .post2 kill the process here, so it is another one.
    code = (
        "import tvm\n"
        "from tvm import te\n"
        "a = te.placeholder((4,), name='a')\n"
        "f = te.create_prim_func([a, te.compute((4,), lambda i: a[i] + 1.0, name='b')])\n"
        "mod = tvm.IRModule({'main': f})\n"
        "again = tvm.ir.load_json(tvm.ir.save_json(mod))\n"
        "tvm.ir.assert_structural_equal(mod, again)\n"
        "print('survived')\n"
    )
    assert run(sys.executable, "-c", code, cwd=Path.cwd()).strip() == "survived"
