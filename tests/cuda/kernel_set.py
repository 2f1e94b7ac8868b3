"""Kernels in one CUDA file, so that g++ runs once, and broken copies of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tvm.tirx import PrimFunc

from tests.cuda.emulate import run_kernels
from tests.cuda.emulator.launch import Traffic
from tests.cuda.products import Case

TOLERANCES = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}
_KERNEL = 'extern "C" __global__'


@dataclass(frozen=True)
class Kernels:
    """Functions, and one CUDA file with the kernels of all of them and of broken ones."""

    functions: dict[str, PrimFunc]
    source: str

    def run(self, name: str, case: Case, kernel: str = "", backward: bool = False) -> Traffic:
        """Run a function of one kernel and compare it with NumPy."""
        (traffic,) = self.run_all(name, case, first=kernel, backward=backward)
        return traffic

    def run_all(
        self, name: str, case: Case, first: str = "", backward: bool = False
    ) -> list[Traffic]:
        """Run a function's kernels, the first one perhaps a broken copy; compare with NumPy."""
        inputs, result = case.inputs(), case.empty()
        traffic = run_kernels(
            self.functions[name],
            self.source,
            [*inputs, result],
            kernel=f"{name}_kernel",
            first=first,
            sizes=case.sizes,
            backward=backward,
        )
        moved = list(traffic)
        assert case.error(inputs, result) < TOLERANCES[case.dtype]
        return moved

    def with_broken(self, name: str, how: Mapping[str, tuple[str, str, int]]) -> Kernels:
        """Add broken copies of a kernel: in each, one occurrence of a text is another text.

        Args:
            name: Of the function.
            how: By the name of the copy, the text, what comes in its place, and which occurrence.
        """
        parts = [p for p in self.source.split(_KERNEL) if f" {name}_kernel(" in p]
        whole, source = parts[-1], self.source  # declared, then defined
        for copy, (old, new, number) in how.items():
            pieces = whole.split(old)
            assert len(pieces) > number + 1, f"{old} is not there"
            broken = old.join(pieces[: number + 1]) + new + old.join(pieces[number + 1 :])
            source += f"\n{_KERNEL}{broken.replace(f'{name}_kernel', copy)}"
        return replace(self, source=source)
