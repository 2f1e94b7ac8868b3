// Runs TVM-generated CUDA C on the CPU: one fiber per CUDA thread, one block after another.
//
// A kernel file includes this header (through cuda_fp16.h and friends, or directly) and is compiled
// as C++. Faults end the launch with a message: an access outside a buffer (guard pages), barriers
// reached by some threads only, deadlock, an asynchronous copy never waited for. Shared memory
// starts as 0xFF bytes, so that an element never written reads as NaN. With EMULATOR_CHECKED each
// access is seen: shadow_memory.hpp finds races, traffic.hpp counts bytes and bank conflicts.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 800
#endif
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
// compile_kernel.py replaces __shared__ by this, with the kernel's name.
#define EMULATED_SHARED(kernel) static __attribute__((section("shared_" #kernel)))

#include "vector_types.hpp"
#include "math.hpp"
#include "half.hpp"
#include "convert.hpp"
#include "fibers.hpp"
#include "shadow_memory.hpp"
#include "traffic.hpp"
#include "access_hooks.hpp"
#include "warp_operations.hpp"
#include "shared_access.hpp"
#include "async_copy.hpp"
#include "tensor_core.hpp"
#include "launch.hpp"
