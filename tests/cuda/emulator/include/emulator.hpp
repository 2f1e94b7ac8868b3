// Runs TVM-generated CUDA C on the CPU: one fiber per CUDA thread, one block after another.
//
// A kernel file includes this header (through cuda_fp16.h and friends, or directly) and is compiled
// as C++. A fiber runs until it waits: at a barrier, or at a warp operation. The scheduler resumes
// fibers in a fixed order, forward or (EMULATOR_ORDER=rev) backward, so that a kernel whose result
// depends on the order of its threads gives different numbers in the two.
//
// Faults end the launch with a message: an access outside a buffer (guard pages), barriers reached
// by some threads only, deadlock, and with EMULATOR_RACE a race on shared memory (race.hpp). Shared
// memory starts as 0xFF bytes, so that an element never written reads as NaN.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <vector>

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
// Static shared memory lives in a section of its own, so that it can be poisoned as a whole.
#define __shared__ static __attribute__((section("emulated_shared")))

extern "C" char __start_emulated_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_emulated_shared[] __attribute__((weak, visibility("hidden")));

// ---- vector types --------------------------------------------------------------------------
#define EMULATOR_VECTOR(N, T)                                                    \
  struct N##1 { T x; };                                                          \
  struct __align__(2 * sizeof(T)) N##2 { T x, y; };                              \
  struct N##3 { T x, y, z; };                                                    \
  struct __align__(sizeof(T) > 4 ? 16 : 4 * sizeof(T)) N##4 { T x, y, z, w; };   \
  static inline N##1 make_##N##1(T x) { return {x}; }                            \
  static inline N##2 make_##N##2(T x, T y) { return {x, y}; }                    \
  static inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; }            \
  static inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATOR_VECTOR(char, signed char)
EMULATOR_VECTOR(uchar, unsigned char)
EMULATOR_VECTOR(short, short)
EMULATOR_VECTOR(ushort, unsigned short)
EMULATOR_VECTOR(int, int)
EMULATOR_VECTOR(uint, unsigned)
EMULATOR_VECTOR(longlong, long long)
EMULATOR_VECTOR(ulonglong, unsigned long long)
EMULATOR_VECTOR(long, long)
EMULATOR_VECTOR(ulong, unsigned long)
EMULATOR_VECTOR(float, float)
EMULATOR_VECTOR(double, double)

// ---- fibers --------------------------------------------------------------------------------
extern "C" void emulator_switch(void** save, void* load) __attribute__((visibility("hidden")));
#if !defined(__x86_64__)
#error "the emulator switches fibers in x86-64 assembly"
#endif
asm(R"(.text
.hidden emulator_switch
.type emulator_switch,@function
emulator_switch:
 pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
 movq %rsp,(%rdi); movq %rsi,%rsp
 popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
 ret
)");

namespace emulator {

struct Dim3 {
  unsigned x, y, z;
};

enum State { READY, AT_BARRIER, AT_WARP, DONE };

struct Fiber {
  void* stack_pointer;
  char* stack;
  State state;
  int line;            // of the barrier or warp operation it waits at
  int lane, warp;
  unsigned mask;       // lanes the warp operation names
  unsigned present;    // lanes that took part in it
  unsigned parity;     // which of two exchange buffers the next warp operation uses
  unsigned warp_epoch; // number of __syncwarp passed
  Dim3 thread;
};

union Slot {
  uint64_t bits;
};
struct Warp {
  Slot exchange[2][32];
};

static constexpr size_t kStackBytes = 256 << 10;
static constexpr size_t kDynamicBytes = 256 << 10;
static constexpr size_t kStaticLimit = 48 << 10;  // what sm_80 gives without opting in
static constexpr size_t kSharedLimit = 163 << 10;

static std::vector<Fiber> fibers;
static std::vector<Warp> warps;
static Fiber* current;
static void* scheduler_stack;
static Dim3 block_index, block_size, grid_size;
static char* dynamic_shared;
static size_t dynamic_bytes;
static bool reversed;
static char error[512];
static void (*kernel)(void**);
static void** kernel_arguments;

static inline size_t static_bytes() { return __stop_emulated_shared - __start_emulated_shared; }

static inline void fail(const char* message) {
  if (error[0]) return;  // the first fault is the cause
  Dim3 t = current ? current->thread : Dim3{0, 0, 0};
  snprintf(error, sizeof error, "emulator: %s [block %u,%u,%u thread %u,%u,%u line %d]", message,
           block_index.x, block_index.y, block_index.z, t.x, t.y, t.z, current ? current->line : 0);
}

static inline void wait_as(State state, int line) {
  Fiber* fiber = current;
  fiber->state = state;
  fiber->line = line;
  emulator_switch(&fiber->stack_pointer, scheduler_stack);
}

static inline void syncthreads(int line) { wait_as(AT_BARRIER, line); }

static inline unsigned warp_sync(unsigned mask, int line) {
  current->mask = mask;
  wait_as(AT_WARP, line);
  return current->present;
}

static void fiber_entry() {
  kernel(kernel_arguments);
  for (;;) wait_as(DONE, 0);
}

}  // namespace emulator

#include "race.hpp"

namespace emulator {

static void start_fiber(Fiber& fiber, int index) {
  fiber.state = READY;
  fiber.parity = fiber.warp_epoch = 0;
  // Stack tops are staggered so that they do not share cache sets.
  void** top = (void**)(fiber.stack + kStackBytes - 64 - index % 61 * 192);
  *--top = nullptr;
  *--top = (void*)fiber_entry;
  for (int saved = 0; saved < 6; saved++) *--top = nullptr;
  fiber.stack_pointer = top;
}

// Releases warp operations whose every live lane has arrived; tells whether any was.
static bool release_warp(Fiber* lanes, int count) {
  unsigned live = 0;
  for (int i = 0; i < count; i++)
    if (lanes[i].state != DONE) live |= 1u << i;
  bool released = false;
  for (int i = 0; i < count; i++) {
    if (lanes[i].state != AT_WARP) continue;
    unsigned need = lanes[i].mask & live, have = 0;
    for (int j = 0; j < count; j++)
      if (lanes[j].state == AT_WARP && lanes[j].mask == lanes[i].mask &&
          lanes[j].line == lanes[i].line)
        have |= 1u << j;
    if ((have & need) != need) continue;
    for (int j = 0; j < count; j++)
      if (have >> j & 1) {
        lanes[j].state = READY;
        lanes[j].present = have;
      }
    released = true;
  }
  return released;
}

// Runs every fiber of a warp until all of them wait or are done; tells whether any moved.
static bool run_warp(int warp) {
  int count = std::min<int>(32, (int)fibers.size() - warp * 32);
  Fiber* lanes = &fibers[warp * 32];
  bool moved = false;
  for (bool again = true; again;) {
    again = false;
    for (int i = 0; i < count; i++) {
      Fiber* fiber = &lanes[reversed ? count - 1 - i : i];
      if (fiber->state != READY) continue;
      current = fiber;
      emulator_switch(&scheduler_stack, fiber->stack_pointer);
      if (error[0]) return false;
      again = true;
    }
    again |= release_warp(lanes, count);
    moved |= again;
  }
  return moved;
}

// Opens the barrier when all threads wait at the same one; tells whether the block may go on.
static bool open_barrier() {
  int line = -1;
  for (Fiber& fiber : fibers) {
    current = &fiber;
    if (fiber.state == DONE) return fail("__syncthreads after some threads returned"), false;
    if (line >= 0 && line != fiber.line)
      return fail("threads wait at different __syncthreads"), false;
    line = fiber.line;
  }
  for (Fiber& fiber : fibers) fiber.state = READY;
  race_barrier();
  return true;
}

static bool run_block() {
  if (static_bytes()) memset(__start_emulated_shared, 0xFF, static_bytes());
  if (dynamic_bytes) memset(dynamic_shared, 0xFF, dynamic_bytes);
  race_new_block();
  for (size_t i = 0; i < fibers.size(); i++) start_fiber(fibers[i], (int)i);
  int warp_count = (int)warps.size();
  for (;;) {
    bool moved = false;
    for (int i = 0; i < warp_count; i++) moved |= run_warp(reversed ? warp_count - 1 - i : i);
    if (error[0]) return false;
    size_t done = 0, waiting = 0;
    for (Fiber& fiber : fibers) {
      done += fiber.state == DONE;
      waiting += fiber.state == AT_BARRIER;
    }
    if (done == fibers.size()) return true;
    if (waiting && done + waiting == fibers.size()) {
      if (!open_barrier()) return false;
    } else if (!moved) {
      for (Fiber& fiber : fibers)
        if (fiber.state == AT_WARP) current = &fiber;
      return fail("deadlock: divergent barrier or warp operation"), false;
    }
  }
}

// ---- launch --------------------------------------------------------------------------------
static sigjmp_buf fault_return;
static void* fault_address;
static void on_fault(int, siginfo_t* info, void*) {
  fault_address = info->si_addr;
  siglongjmp(fault_return, 1);
}

static void* map_pages(size_t bytes) {
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static void prepare_fibers(size_t count) {
  for (; fibers.size() > count; fibers.pop_back()) munmap(fibers.back().stack, kStackBytes);
  while (fibers.size() < count) {
    Fiber fiber{};
    fiber.stack = (char*)map_pages(kStackBytes);
    fibers.push_back(fiber);
  }
  warps.resize((count + 31) / 32);
  for (size_t i = 0; i < count; i++) {
    fibers[i].lane = (int)(i % 32);
    fibers[i].warp = (int)(i / 32);
    fibers[i].thread = {unsigned(i % block_size.x), unsigned(i / block_size.x % block_size.y),
                        unsigned(i / block_size.x / block_size.y)};
  }
}

static bool run_grid() {
  for (unsigned z = 0; z < grid_size.z; z++)
    for (unsigned y = 0; y < grid_size.y; y++)
      for (unsigned x = 0; x < grid_size.x; x++) {
        block_index = reversed ? Dim3{grid_size.x - 1 - x, grid_size.y - 1 - y, grid_size.z - 1 - z}
                               : Dim3{x, y, z};
        if (!run_block()) return false;
      }
  return true;
}

// Runs a kernel; returns 0, or 1 with the reason in `error`.
static int launch(void (*function)(void**), void** arguments, const unsigned* grid,
                  const unsigned* block, unsigned dynamic) {
  error[0] = 0;
  current = nullptr;
  kernel = function;
  kernel_arguments = arguments;
  grid_size = {grid[0], grid[1], grid[2]};
  block_size = {block[0], block[1], block[2]};
  block_index = {0, 0, 0};
  size_t count = (size_t)block[0] * block[1] * block[2];
  if (count > 1024) return fail("more than 1024 threads per block"), 1;
  if (grid[1] > 65535 || grid[2] > 65535) return fail("grid too large in y or z"), 1;
  if (static_bytes() > kStaticLimit) return fail("more than 48 KiB of static shared memory"), 1;
  if (static_bytes() + dynamic > kSharedLimit) return fail("too much shared memory"), 1;
  const char* order = getenv("EMULATOR_ORDER");
  reversed = order && !strcmp(order, "rev");
  static char* area;
  if (!area) {
    area = (char*)map_pages(kDynamicBytes + 4096);
    mprotect(area + kDynamicBytes, 4096, PROT_NONE);
  }
  dynamic_bytes = dynamic;
  dynamic_shared = area + kDynamicBytes - ((dynamic + 127) & ~127u);  // ends at the guard page
  prepare_fibers(count);

  static char signal_stack[65536];
  stack_t alternate{}, old_stack;
  alternate.ss_sp = signal_stack;
  alternate.ss_size = sizeof signal_stack;
  sigaltstack(&alternate, &old_stack);
  struct sigaction action{}, old_segv, old_bus;
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, &old_segv);
  sigaction(SIGBUS, &action, &old_bus);
  bool ok = false;
  if (sigsetjmp(fault_return, 1)) {
    char message[80];
    snprintf(message, sizeof message, "illegal address %p", fault_address);
    fail(message);
  } else {
    ok = run_grid();
  }
  sigaction(SIGSEGV, &old_segv, nullptr);
  sigaction(SIGBUS, &old_bus, nullptr);
  sigaltstack(&old_stack, nullptr);
  return ok ? 0 : 1;
}

// ---- warp operations -----------------------------------------------------------------------
// Returns lane `source`'s value; reading a lane that did not take part gives 0xFF bytes.
template <class T>
static inline T exchange(unsigned mask, T value, int source, int line) {
  static_assert(sizeof(T) <= 8);
  int parity = current->parity ^= 1;
  Slot* slots = warps[current->warp].exchange[parity];
  memcpy(&slots[current->lane], &value, sizeof value);
  unsigned present = warp_sync(mask, line);
  T result;
  if (present >> source & 1)
    memcpy((void*)&result, &slots[source], sizeof result);
  else
    memset((void*)&result, 0xFF, sizeof result);
  return result;
}

template <class T>
static inline T shuffle(unsigned mask, T value, int source, int line, int width = 32) {
  int base = current->lane & ~(width - 1);
  return exchange(mask, value, base + (source & (width - 1)), line);
}
template <class T>
static inline T shuffle_down(unsigned mask, T value, int by, int line, int width = 32) {
  int base = current->lane & ~(width - 1), source = current->lane + by;
  return exchange(mask, value, source < base + width ? source : current->lane, line);
}
template <class T>
static inline T shuffle_up(unsigned mask, T value, int by, int line, int width = 32) {
  int base = current->lane & ~(width - 1), source = current->lane - by;
  return exchange(mask, value, source >= base ? source : current->lane, line);
}
template <class T>
static inline T shuffle_xor(unsigned mask, T value, int by, int line, int width = 32) {
  int base = current->lane & ~(width - 1), source = current->lane ^ by;
  return exchange(mask, value, source < base + width ? source : current->lane, line);
}

// The lanes of the warp that exist: TVM asks for them before it shuffles.
static inline unsigned active_mask() {
  int count = std::min<int>(32, (int)fibers.size() - current->warp * 32);
  unsigned mask = 0;
  for (int i = 0; i < count; i++)
    if (fibers[current->warp * 32 + i].state != DONE) mask |= 1u << i;
  return mask;
}

}  // namespace emulator

#define threadIdx (emulator::current->thread)
#define blockIdx (emulator::block_index)
#define blockDim (emulator::block_size)
#define gridDim (emulator::grid_size)
#define warpSize 32
#define __syncthreads() emulator::syncthreads(__LINE__)
#define __syncwarp(...) \
  ((void)emulator::warp_sync(0xffffffffu, __LINE__), (void)emulator::current->warp_epoch++)
#define __activemask() emulator::active_mask()
#define __shfl_sync(m, v, s, ...) emulator::shuffle(m, v, s, __LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_down_sync(m, v, s, ...) \
  emulator::shuffle_down(m, v, s, __LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_up_sync(m, v, s, ...) \
  emulator::shuffle_up(m, v, s, __LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_xor_sync(m, v, s, ...) \
  emulator::shuffle_xor(m, v, s, __LINE__ __VA_OPT__(, ) __VA_ARGS__)

// ---- math ----------------------------------------------------------------------------------
// CUDA's max and min drop a NaN operand, as fmax and fmin do.
template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
static inline std::common_type_t<A, B> max(A a, B b) {
  using C = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<C>) return std::fmax((C)a, (C)b);
  else return (C)a < (C)b ? (C)b : (C)a;
}
template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
static inline std::common_type_t<A, B> min(A a, B b) {
  using C = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<C>) return std::fmin((C)a, (C)b);
  else return (C)b < (C)a ? (C)b : (C)a;
}
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline float __fdividef(float a, float b) { return a / b; }
#define __expf expf
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __powf powf
#define __exp10f exp10f
template <class T>
static inline T __ldg(const T* p) {
  return *p;
}
