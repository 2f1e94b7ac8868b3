"""Small CUDA kernels, right and wrong ones, that show what the emulator computes and catches."""

from __future__ import annotations

from string import Template

HELPERS = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>

__device__ __forceinline__ uint32_t window(const void* p) { return __cvta_generic_to_shared(p); }
__device__ __forceinline__ void copy(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               : : "r"(window(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_some(void* to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               : : "r"(window(to)), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" : :); }
__device__ __forceinline__ void wait_all() {
  asm volatile("cp.async.wait_group 0;" : : : "memory");
}
__device__ __forceinline__ void wait_but_one() {
  asm volatile("cp.async.wait_group 1;" : : : "memory");
}
"""

# y = x backward, through shared memory.
_REVERSE = Template("""
extern "C" __global__ void $name(const float* __restrict__ x, float* __restrict__ y) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  $barrier
  y[threadIdx.x] = s[63 - threadIdx.x];
}
""")

# y = the sums over eight chunks of x, which stream through a ring of two buffers.
_RING = Template("""
extern "C" __global__ void $name(const float* __restrict__ x, float* __restrict__ y) {
  __shared__ __align__(16) float ring[2][256];
  float sum = 0;
  copy(&ring[0][threadIdx.x * 4], &x[threadIdx.x * 4]);
  commit();
  for (int chunk = 1; chunk <= 8; ++chunk) {
    $before_refilling
    if (chunk < 8) copy(&ring[chunk % 2][threadIdx.x * 4], &x[chunk * 256 + threadIdx.x * 4]);
    commit();
    $wait
    $before_reading
    sum += ring[(chunk - 1) % 2][255 - threadIdx.x];
  }
  y[threadIdx.x] = sum;
}
""")

# Each lane reads a column of a tile whose rows are `width` floats.
_COLUMNS = Template("""
extern "C" __global__ void $name(const float* __restrict__ x, float* __restrict__ y) {
  __shared__ float s[32 * $width];
  int lane = threadIdx.x % 32, first = threadIdx.x / 32;
  for (int row = first; row < 32; row += 2) s[row * $width + lane] = x[row * 32 + lane];
  __syncthreads();
  for (int row = first; row < 32; row += 2) y[row * 32 + lane] = s[lane * $width + row];
}
""")

# c[16][8] = a[16][k] b[8][k]^T, the fragments loaded by hand.
_MULTIPLY = Template("""
extern "C" __global__ void $name(const $element* a, const $other* b, $sum* c) {
  const uint32_t* left = (const uint32_t*)a;
  const uint32_t* right = (const uint32_t*)b;
  const int words = $depth * sizeof($element) / 4, g = threadIdx.x / 4, t = threadIdx.x % 4;
  $sum d[4] = {0, 0, 0, 0};
  uint32_t p[4], q[2];
  for (int i = 0; i < 4; ++i) p[i] = left[(g + i % 2 * 8) * words + t + i / 2 * 4];
  for (int i = 0; i < 2; ++i) q[i] = right[g * words + t + i * 4];
  asm volatile("mma.sync.aligned.m16n8k$depth.row.col.$types "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=$kind"(d[0]), "=$kind"(d[1]), "=$kind"(d[2]), "=$kind"(d[3])
      : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(q[0]), "r"(q[1]),
        "$kind"(d[0]), "$kind"(d[1]), "$kind"(d[2]), "$kind"(d[3]));
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = d[i];
}
""")

# Each thread's four bytes of a by those of b, added to c.
_DOT = Template("""
extern "C" __global__ void $name(const uint32_t* a, const uint32_t* b, int* c) {
  uint32_t p[4];
  int sum;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(p[0]), "=r"(p[1]), "=r"(p[2]), "=r"(p[3]) : "l"(&a[threadIdx.x / 4 * 4]));
  asm volatile("dp4a.$types %0, %1, %2, %3;"
      : "=r"(sum) : "r"(p[threadIdx.x % 4]), "r"(b[threadIdx.x]), "r"(c[threadIdx.x]));
  c[threadIdx.x] = sum;
}
""")

_OTHERS = """
extern "C" __global__ void barriers_apart(const float* x, float* y) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void barrier_of_one_warp(const float* x, float* y) {
  if (threadIdx.x < 32) __syncthreads();
  y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void read_past_the_end(const float* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x + 1];
}
extern "C" __global__ void read_far_away(const float* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x + (1 << 23)];
}
extern "C" __global__ void read_unwritten(const float* x, float* y) {
  __shared__ float s[65];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x + 1];
}
extern "C" __global__ void never_waits(const float* x, float* y) {
  __shared__ __align__(16) float s[256];
  copy(&s[threadIdx.x * 4], &x[threadIdx.x * 4]);
  commit();
  y[threadIdx.x] = 0;
}
extern "C" __global__ void copy_a_part(const float* x, float* y) {
  __shared__ __align__(16) float s[256];
  copy_some(&s[threadIdx.x * 4], &x[threadIdx.x * 4], threadIdx.x % 2 ? 16 : 0);
  commit();
  wait_all();
  y[threadIdx.x] = s[threadIdx.x * 4] + s[threadIdx.x * 4 + 3];
}
extern "C" __global__ void vectors(const float4* x, float4* y) {
  __shared__ float4 s[64];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  float4 v = s[threadIdx.x];
  v.x = v.x + 1.0f;
  y[threadIdx.x] = v;
}
extern "C" __global__ void warp_sums(const float* x, float* y) {
  float sum = x[threadIdx.x];
  for (int by = 16; by; by >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, by, 32);
  y[threadIdx.x] = sum + __ballot_sync(0xffffffffu, threadIdx.x % 32 < 3);
}
"""

_BARRIER = "__syncthreads();"
_WHOLE = {"wait": "wait_but_one();", "before_reading": _BARRIER, "before_refilling": _BARRIER}


def _multiply(name: str, element: str, depth: int, types: str, other: str = "") -> str:
    sum_type, kind = ("int", "r") if types.startswith("s32") else ("float", "f")
    return _MULTIPLY.substitute(
        name=name, element=element, other=other or element, depth=depth, types=types, sum=sum_type,
        kind=kind,
    )  # fmt: skip


DOT_TYPES = (("s32", "s32"), ("u32", "u32"), ("u32", "s32"))
SOURCE = "".join(
    [
        HELPERS,
        _REVERSE.substitute(name="reverse", barrier=_BARRIER),
        _REVERSE.substitute(name="reverse_without_barrier", barrier=""),
        _RING.substitute(_WHOLE, name="ring"),
        _RING.substitute({**_WHOLE, "wait": ""}, name="ring_without_wait"),
        _RING.substitute({**_WHOLE, "before_reading": ""}, name="ring_read_too_early"),
        _RING.substitute({**_WHOLE, "before_refilling": ""}, name="ring_refilled_too_early"),
        _COLUMNS.substitute(name="columns", width=32),
        _COLUMNS.substitute(name="columns_padded", width=33),
        _multiply("multiply_f16", "half", 16, "f32.f16.f16.f32"),
        _multiply("multiply_bf16", "nv_bfloat16", 16, "f32.bf16.bf16.f32"),
        _multiply("multiply_tf32", "float", 8, "f32.tf32.tf32.f32"),
        _multiply("multiply_s8", "signed char", 32, "s32.s8.s8.s32"),
        _multiply("multiply_u8", "unsigned char", 32, "s32.u8.u8.s32"),
        _multiply("multiply_u8_s8", "unsigned char", 32, "s32.u8.s8.s32", "signed char"),
        *(_DOT.substitute(name=f"dot_{a}_{b}", types=f"{a}.{b}") for a, b in DOT_TYPES),
        _OTHERS,
    ]
)
