// Remembers for each byte of shared memory who touched it, and finds what must not happen:
//  - a race: two threads touch a byte, one of them writes, and no barrier stands between;
//  - a read of a byte that nobody wrote in this block;
//  - an access to a byte that an asynchronous copy still has to write.
//
// A barrier starts a new epoch; accesses of different epochs are ordered. Threads of one warp count
// as ordered by __syncwarp too. An asynchronous copy writes at any time from its issue to the wait
// of the thread that issued it, so that it must be ordered with others at both ends.
#pragma once
#include "fibers.hpp"

#ifndef EMULATOR_CHECKED
namespace emulator {
static inline void shadow_new_block() {}
static inline void shadow_barrier() {}
static inline void shadow_access(const void*, size_t, bool) {}
static inline void shadow_copy_issued(const void*, size_t) {}
static inline void shadow_copy_arrived(const void*, size_t) {}
}  // namespace emulator
#else
namespace emulator {

constexpr int kNobody = -1, kSeveral = -2;

struct Access {
  int thread = kNobody;
  unsigned epoch = 0, warp_epoch = 0;
};
struct Cell {
  Access write, read;
  bool written = false, in_flight = false;
};

static std::vector<Cell> shadow;
static unsigned epoch = 1;

static void shadow_new_block() {
  shadow.assign(static_bytes() + dynamic_bytes, Cell{});
  epoch = 1;
}
static void shadow_barrier() { epoch++; }

static inline Cell* EMULATOR_UNCHECKED shadow_cell(const void* address) {
  const char* p = (const char*)address;
  if (is_static_shared(p)) return &shadow[p - static_begin];
  if (is_dynamic_shared(p)) return &shadow[static_bytes() + (p - dynamic_shared)];
  return nullptr;
}

static bool EMULATOR_UNCHECKED conflicts(const Access& other, int thread) {
  if (other.thread == kNobody || other.thread == thread || other.epoch != epoch) return false;
  return other.thread == kSeveral || other.thread / 32 != thread / 32 ||
         other.warp_epoch == current->warp_epoch;
}

static void EMULATOR_UNCHECKED check_ordered(const Cell& cell, bool writes) {
  int thread = thread_number();
  bool after_write = conflicts(cell.write, thread);
  if (!after_write && !(writes && conflicts(cell.read, thread))) return;
  char message[160];
  snprintf(message, sizeof message,
           "shared-memory race: a %s by thread %d and a %s by thread %d, no barrier between",
           writes ? "write" : "read", thread, after_write ? "write" : "read",
           after_write ? cell.write.thread : cell.read.thread);
  fail_here(message);
}

static void EMULATOR_UNCHECKED note_read(Cell& cell) {
  Access now{thread_number(), epoch, current->warp_epoch};
  bool shared = cell.read.epoch == epoch && cell.read.thread != kNobody &&
                cell.read.thread != now.thread;
  if (shared) now.thread = kSeveral;
  cell.read = now;
}

static void EMULATOR_UNCHECKED shadow_access(const void* address, size_t bytes, bool writes) {
  Cell* cell = shadow_cell(address);
  if (!cell || error[0]) return;
  for (size_t i = 0; i < bytes; i++, cell++) {
    if (cell->in_flight) fail_here("an access to shared memory that a copy in flight will write");
    if (!writes && !cell->written) fail_here("a read of shared memory that was never written");
    check_ordered(*cell, writes);
    if (writes) {
      cell->write = {thread_number(), epoch, current->warp_epoch};
      cell->written = true;
    } else {
      note_read(*cell);
    }
  }
}

static void EMULATOR_UNCHECKED shadow_copy_issued(const void* address, size_t bytes) {
  Cell* cell = shadow_cell(address);
  for (size_t i = 0; i < bytes; i++, cell++) {
    if (cell->in_flight) fail_here("two copies in flight to the same shared memory");
    check_ordered(*cell, true);
    cell->in_flight = true;
  }
}

static void EMULATOR_UNCHECKED shadow_copy_arrived(const void* address, size_t bytes) {
  Cell* cell = shadow_cell(address);
  for (size_t i = 0; i < bytes; i++, cell++) {
    cell->write = {thread_number(), epoch, current->warp_epoch};
    cell->written = true;
    cell->in_flight = false;
  }
}

}  // namespace emulator
#endif
