// Finds races on shared memory: two threads touch one byte, one of them writes, no barrier between.
//
// With EMULATOR_RACE the kernel is compiled with -fsanitize=thread, whose calls before every load
// and store land here instead of in its runtime library. Each byte of shared memory remembers its
// last writer and reader with the barrier epoch in which they came. Threads of one warp count as
// ordered by __syncwarp too.
#pragma once

#ifndef EMULATOR_RACE
namespace emulator {
static inline void race_new_block() {}
static inline void race_barrier() {}
}  // namespace emulator
#else
#define EMULATOR_UNCHECKED \
  __attribute__((no_sanitize("thread"), noinline, visibility("hidden")))

namespace emulator {

constexpr int kNobody = -1, kSeveral = -2;

struct Access {
  int thread = kNobody;
  unsigned epoch = 0, warp_epoch = 0;
};
struct Cell {
  Access write, read;
};

static std::vector<Cell> shadow;
static unsigned epoch = 1;

static void race_new_block() {
  shadow.assign(static_bytes() + dynamic_bytes + 256, Cell{});
  epoch = 1;
}
static void race_barrier() { epoch++; }

static inline Cell* EMULATOR_UNCHECKED shadow_cell(const void* address) {
  const char* p = (const char*)address;
  if (p >= __start_emulated_shared && p < __stop_emulated_shared)
    return &shadow[p - __start_emulated_shared];
  if (p >= dynamic_shared && p < dynamic_shared + dynamic_bytes)
    return &shadow[static_bytes() + (p - dynamic_shared)];
  return nullptr;
}

static bool EMULATOR_UNCHECKED conflicts(const Access& other, int thread) {
  if (other.thread == kNobody || other.thread == thread || other.epoch != epoch) return false;
  return other.thread == kSeveral || other.thread / 32 != thread / 32 ||
         other.warp_epoch == current->warp_epoch;
}

static void EMULATOR_UNCHECKED check_access(const void* address, size_t bytes, bool writes) {
  if (!current || error[0]) return;
  Cell* cell = shadow_cell(address);
  if (!cell) return;
  int thread = (int)(current - &fibers[0]);
  for (size_t i = 0; i < bytes; i++, cell++) {
    bool after_write = conflicts(cell->write, thread);
    if (after_write || (writes && conflicts(cell->read, thread))) {
      char message[160];
      snprintf(message, sizeof message,
               "shared-memory race: a %s by thread %d and a %s by thread %d, no barrier between",
               writes ? "write" : "read", thread, after_write ? "write" : "read",
               after_write ? cell->write.thread : cell->read.thread);
      fail(message);
      emulator_switch(&current->stack_pointer, scheduler_stack);
    }
    Access now{thread, epoch, current->warp_epoch};
    if (writes) {
      cell->write = now;
    } else {
      bool shared = cell->read.epoch == epoch && cell->read.thread != kNobody &&
                    cell->read.thread != thread;
      if (shared) now.thread = kSeveral;
      cell->read = now;
    }
  }
}

}  // namespace emulator

extern "C" {
#define EMULATOR_HOOK(name, bytes, writes) \
  void EMULATOR_UNCHECKED name(void* a) { emulator::check_access(a, bytes, writes); }
#define EMULATOR_HOOKS(n)                                                                  \
  EMULATOR_HOOK(__tsan_read##n, n, false) EMULATOR_HOOK(__tsan_write##n, n, true)          \
  EMULATOR_HOOK(__tsan_unaligned_read##n, n, false)                                        \
  EMULATOR_HOOK(__tsan_unaligned_write##n, n, true)                                        \
  EMULATOR_HOOK(__tsan_volatile_read##n, n, false)                                         \
  EMULATOR_HOOK(__tsan_volatile_write##n, n, true)
EMULATOR_HOOKS(1) EMULATOR_HOOKS(2) EMULATOR_HOOKS(4) EMULATOR_HOOKS(8) EMULATOR_HOOKS(16)
void EMULATOR_UNCHECKED __tsan_read_range(void* a, size_t n) { emulator::check_access(a, n, false); }
void EMULATOR_UNCHECKED __tsan_write_range(void* a, size_t n) { emulator::check_access(a, n, true); }
void EMULATOR_UNCHECKED __tsan_vptr_update(void*, void*) {}
void EMULATOR_UNCHECKED __tsan_init() {}
void EMULATOR_UNCHECKED __tsan_func_entry(void*) {}
void EMULATOR_UNCHECKED __tsan_func_exit() {}
}
#endif
