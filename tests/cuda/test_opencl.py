"""Families of kernels as OpenCL C: their numbers under PoCL, their races under Oclgrind."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu_cases import FAMILIES
from tests.cuda.families import RULES
from tests.cuda.opencl_kernels import schedule_for
from tests.cuda.opencl_process import relative_error

# What Oclgrind reports of a kernel.
_FAULT = re.compile(r"data race at|Invalid (?:read|write) of size|FATAL ERROR|divergence detected")


def has_device() -> bool:
    """Tell whether OpenCL has a device here."""
    if importlib.util.find_spec("pyopencl") is None:
        return False
    import pyopencl

    try:
        return any(platform.get_devices() for platform in pyopencl.get_platforms())
    except pyopencl.LogicError:  # no platform
        return False


@pytest.mark.skipif(not has_device(), reason="no OpenCL: pyopencl and pocl-binary-distribution")
@pytest.mark.parametrize("name", FAMILIES)
def test_numbers(name: str) -> None:
    assert relative_error(name) < 1e-5


@pytest.mark.parametrize("name", FAMILIES)
def test_the_rule_meant_for_a_family_takes_it(name: str) -> None:
    model = schedule_for("opencl", FAMILIES[name].source(small=True)[0])
    assert RULES[name] in model.rules.values()
    assert "fallback" not in set(model.rules.values()) - {RULES[name]}


def _under_oclgrind(*arguments: str) -> tuple[list[str], dict[str, float]]:
    """Return the faults that Oclgrind finds, and how far off each family is."""
    oclgrind = shutil.which("oclgrind")
    if oclgrind is None:
        pytest.skip("no oclgrind: a package of Debian and others")
    command = [oclgrind, "--data-races", "--max-errors", "3"]
    ran = subprocess.run(
        [*command, sys.executable, "-m", "tests.cuda.opencl_process", *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = ran.stdout.splitlines()
    errors = [json.loads(line) for line in lines if line.startswith('{"name"')]
    assert errors, ran.stderr[-2000:]
    return _FAULT.findall(ran.stdout + ran.stderr), {e["name"]: e["error"] for e in errors}


def test_oclgrind_finds_no_race() -> None:
    faults, errors = _under_oclgrind()
    assert faults == []
    assert set(errors) == set(FAMILIES)
    assert max(errors.values()) < 1e-5


def test_oclgrind_finds_the_races_of_kernels_without_barriers() -> None:
    faults, _ = _under_oclgrind("--without-barriers", "matmul", "softmax")
    assert "data race at" in faults
