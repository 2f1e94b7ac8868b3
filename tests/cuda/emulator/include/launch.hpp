// Launches a kernel: checks the configuration, maps stacks and shared memory, turns faults to errors.
#pragma once
#include <sys/mman.h>

#include <csetjmp>
#include <csignal>
#include <cstdlib>

#include "scheduler.hpp"

namespace emulator {

static constexpr size_t kDynamicBytes = 256 << 10;
static constexpr size_t kStaticLimit = 48 << 10;  // what sm_80 gives without opting in
static constexpr size_t kSharedLimit = 163 << 10;

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

struct Section {
  char *begin, *end;
};

// Runs a kernel whose static arrays lie in `section`; returns 0, or 1 with the reason in `error`.
static int launch(void (*function)(void**), Section section, void** arguments,
                  const unsigned* grid, const unsigned* block, unsigned dynamic) {
  error[0] = 0;
  current = nullptr;
  seeing = false;
  kernel = function;
  static_begin = section.begin;
  static_end = section.end;
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

}  // namespace emulator
