"""What cost models need to know about an NVIDIA GPU, by compute capability.

Sources: NVIDIA's A100, GA102, Ada and H100 architecture white papers for units and rates; the CUDA
C++ Programming Guide, "Technical Specifications per Compute Capability", for what a block may use.
Where chips of one capability differ, the numbers are those of the chip named.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """One GPU: sizes in bytes, rates per clock and multiprocessor unless they say otherwise.

    `matrix_fmas` counts float16 products summed in float32 by `mma.sync`, which is what schedules
    issue: on sm_90 that is half of what its wgmma instructions reach. What a multiprocessor gets of
    the L2 cache in a clock is about what public microbenchmarks measure when all of them ask.
    """

    name: str
    capability: int  # 80 for sm_80
    multiprocessors: int
    clock_hz: float
    memory_bytes_per_second: float
    l2_bytes: int
    shared_bytes: int  # of a multiprocessor
    block_shared_bytes: int  # what one block may ask for
    threads: int
    matrix_fmas: int
    float32_fmas: int
    l2_bytes_per_clock: int
    registers: int = 65536
    register_limit: int = 255  # of a thread
    shared_bytes_per_clock: int = 128

    @property
    def byte_fmas(self) -> int:
        """Products of 8-bit integers: twice those of 16-bit floats at their full rate.

        Chips for graphics add those up in float32 at half the rate, integers in int32 at the full.
        """
        return self.matrix_fmas * (4 if self.matrix_fmas < _FULL_RATE else 2)

    @staticmethod
    def from_arch(arch: str) -> Gpu:
        """Return the model of `arch`, such as "sm_86"; of the nearest older one where unknown.

        An architecture before sm_80 gets the rates of sm_80 under its own capability.
        """
        digits = "".join(char for char in arch if char.isdigit())
        capability = int(digits) if digits else 80
        known = [gpu for gpu in _GPUS if gpu.capability <= capability]
        base = known[-1] if known else _GPUS[0]
        return Gpu(**{**base.__dict__, "capability": capability})

    def blocks_together(self, threads: int, registers: int, shared: int) -> int:
        """Return how many blocks share a multiprocessor (the occupancy calculation).

        Args:
            threads: Of a block.
            registers: Of a thread; they are given out by eights.
            shared: Bytes of shared memory of a block; the system takes 1 KiB of each.
        """
        by_registers = self.registers // (-(-registers // 8) * 8 * threads)
        return min(by_registers, self.threads // threads, self.shared_bytes // (shared + 1024), 32)


_FULL_RATE = 512
_GPUS = (
    Gpu("A100", 80, 108, 1.41e9, 1.555e12, 40 << 20, 164 << 10, 163 << 10, 2048, 1024, 64, 32),
    Gpu("RTX 3090", 86, 82, 1.695e9, 0.936e12, 6 << 20, 100 << 10, 99 << 10, 1536, 256, 128, 16),
    Gpu("RTX 4090", 89, 128, 2.52e9, 1.008e12, 72 << 20, 100 << 10, 99 << 10, 1536, 256, 128, 16),
    Gpu("H100 SXM", 90, 132, 1.83e9, 3.35e12, 50 << 20, 228 << 10, 227 << 10, 2048, 1024, 128, 24),
)
