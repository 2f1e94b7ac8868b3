// One fiber per CUDA thread, and the state of the block that is running.
//
// A fiber runs until it waits: at a barrier, or at a warp operation. Shared memory is 32 bits of
// address on a GPU: a window of two parts, static arrays and the dynamic array.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#if !defined(__x86_64__)
#error "the emulator switches fibers in x86-64 assembly"
#endif
// Saves the callee-saved registers and the stack pointer of one fiber, and loads another's.
extern "C" void emulator_switch(void** save, void* load) __attribute__((visibility("hidden")));
asm(R"(.text
.hidden emulator_switch
.type emulator_switch,@function
emulator_switch:
 pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
 movq %rsp,(%rdi); movq %rsi,%rsp
 popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
 ret
)");

// A function that is no part of the kernel: its accesses are not the kernel's.
#define EMULATOR_UNCHECKED __attribute__((no_sanitize("thread"), noinline, visibility("hidden")))

namespace emulator {

struct Dim3 {
  unsigned x, y, z;
};

enum State { READY, AT_BARRIER, AT_WARP, DONE };

// A copy to shared memory that was issued and has not arrived.
struct PendingCopy {
  char* to;
  const char* from;
  unsigned bytes, zeros;  // zeros follow the bytes
};

struct Fiber {
  void* stack_pointer;
  char* stack;
  State state;
  int line;             // of the barrier or warp operation it waits at
  int lane, warp;
  unsigned mask;        // lanes the warp operation names
  unsigned present;     // lanes that took part in it
  unsigned parity;      // which of two exchange buffers the next warp operation uses
  unsigned warp_epoch;  // number of __syncwarp passed
  Dim3 thread;
  std::vector<PendingCopy> copies;
  std::vector<size_t> groups;  // how many of `copies` each committed group ends at
};

struct Warp {
  uint64_t exchange[2][32];
  unsigned fragments[2][32][6];  // registers of A, then of B, of each lane
};

static constexpr unsigned char kPoison = 0xFF;
static constexpr unsigned kDynamicWindow = 1u << 28;

static std::vector<Fiber> fibers;
static std::vector<Warp> warps;
static Fiber* current;
static void* scheduler_stack;
static Dim3 block_index, block_size, grid_size;
// The static arrays of a kernel lie in a section of their own, so that they are one range.
static char *static_begin, *static_end;
static char* dynamic_shared;
static size_t dynamic_bytes;
static bool seeing;  // an access is being looked at
static bool reversed;
static char error[512];
static void (*kernel)(void**);
static void** kernel_arguments;

static inline size_t static_bytes() { return static_end - static_begin; }
static inline int thread_number() { return (int)(current - fibers.data()); }
static inline Warp& warp_of_current() { return warps[current->warp]; }

static inline void fail(const char* message) {
  if (error[0]) return;  // the first fault is the cause
  Dim3 t = current ? current->thread : Dim3{0, 0, 0};
  snprintf(error, sizeof error, "emulator: %s [block %u,%u,%u thread %u,%u,%u line %d]", message,
           block_index.x, block_index.y, block_index.z, t.x, t.y, t.z, current ? current->line : 0);
}

// Ends the launch from inside a fiber.
static inline void fail_here(const char* message) {
  fail(message);
  emulator_switch(&current->stack_pointer, scheduler_stack);
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
  if (!current->copies.empty()) fail("the kernel ended with an asynchronous copy in flight");
  for (;;) wait_as(DONE, 0);
}

static inline bool is_static_shared(const char* p) {
  return p >= static_begin && p < static_end;
}
static inline bool is_dynamic_shared(const char* p) {
  return p >= dynamic_shared && p < dynamic_shared + dynamic_bytes;
}

// A pointer as an address in the shared window, and back.
static inline unsigned to_window(const void* pointer) {
  const char* p = (const char*)pointer;
  if (is_static_shared(p)) return (unsigned)(p - static_begin);
  return kDynamicWindow + (unsigned)(p - dynamic_shared);
}
static EMULATOR_UNCHECKED char* from_window(unsigned address, unsigned bytes) {
  bool dynamic = address >= kDynamicWindow;
  unsigned offset = dynamic ? address - kDynamicWindow : address;
  if (offset + (size_t)bytes > (dynamic ? dynamic_bytes : static_bytes()))
    fail_here("an address outside shared memory");
  if (offset % bytes) fail_here("a misaligned address in shared memory");
  return (dynamic ? dynamic_shared : static_begin) + offset;
}

}  // namespace emulator

#define threadIdx (emulator::current->thread)
#define blockIdx (emulator::block_index)
#define blockDim (emulator::block_size)
#define gridDim (emulator::grid_size)
#define warpSize 32
#define __syncthreads() emulator::syncthreads(__LINE__)
#define __cvta_generic_to_shared(p) emulator::to_window((const void*)(p))
